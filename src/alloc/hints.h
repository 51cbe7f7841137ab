/* SPDX-License-Identifier: Apache-2.0 */
/* Hints of free blocks: what alloc.c and trim.c need of hints.c. */
#ifndef TNI_ALLOC_HINTS_H
#define TNI_ALLOC_HINTS_H

#include "alloc/alloc.h"

enum { TNI_FETCH_BLOCKS = 32 }; /* hints that are fetched together, at most */

/** How many hints of a class a thread may keep. */
static inline uint32_t tni_hints_cached(const struct tn_domain *domain, uint32_t class_id)
{
    return domain->segment.geometry.classes[class_id].cached;
}

/** Fill an empty cache with hints, else with blocks that nobody has used. @return how many */
uint32_t tni_hints_refill(struct tn_domain *domain, uint32_t class_id,
                          struct tni_block_cache *cache);

/** Publish the `count` oldest hints of a cache. */
void tni_hints_drain(struct tn_domain *domain, uint32_t class_id, struct tni_block_cache *cache,
                     uint32_t count);

/** So many bytes that were behind hints are not any more. */
void tni_alloc_note_taken(struct tn_domain *domain, uint64_t bytes);

/**
 * Undo a take: give the reference of a block that nobody recorded back. pre: announced
 * @return as of tni_alloc_publish()
 */
bool tni_alloc_untake(struct tn_domain *domain, tni_block block);

#endif
