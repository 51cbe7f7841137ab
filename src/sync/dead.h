/* SPDX-License-Identifier: Apache-2.0 */
/* dead: `value2` of locks and barriers names a dead process. Private to the room sync. */
#ifndef TNI_SYNC_DEAD_H
#define TNI_SYNC_DEAD_H

#include "sync/sync.h"

/** A `value2` that names the process of a seat. pre: the seat is not reclaimed yet */
static inline uint64_t tni_dead_word(const struct tni_segment *segment, uint32_t seat)
{
    return tni_dead_make((uint32_t)atomic_load(&tni_seat_at(segment, seat)->pid), seat);
}

#endif
