/* SPDX-License-Identifier: Apache-2.0 */
/* How many blocks of a domain are not free, by their words in shared memory. */
#ifndef TENON_TESTS_LIVE_BLOCKS_H
#define TENON_TESTS_LIVE_BLOCKS_H

#include "process/process.h"

static inline uint32_t live_blocks(const struct tn_domain *d)
{
    uint32_t live = 0;
    for (uint32_t c = 1; c < d->segment.geometry.class_count; c++)
        for (uint32_t i = 0; i < tni_frontier(&d->segment, c); i++)
            live +=
                tni_word_state(atomic_load(tni_word_at(&d->segment, tni_block_make(c, i)))) !=
                TNI_BLOCK_FREE;
    return live;
}

#endif
