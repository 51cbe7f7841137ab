/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sync: events, semaphores, locks, conditions and barriers, which are objects.
 */
#ifndef TNI_SYNC_H
#define TNI_SYNC_H

#include <tenon/sync.h>

#include "object/object.h"

extern const struct tni_kind tni_event_kind, tni_semaphore_kind, tni_lock_kind,
    tni_condition_kind, tni_barrier_kind;

/* ---- for inspect ------------------------------------------------------------------------- */

struct tni_object_figures {
    uint32_t count; /* permits; parties that wait at a barrier; 1: set, or held */
    bool is_broken; /* a barrier */
};
/** Fill in the numbers that the tool shows of an object other than a queue. */
void tni_object_figures(const struct tni_segment *segment, uint32_t object,
                        struct tni_object_figures *ret_figures);
/**
 * Whether the process in a seat holds the lock, or permits of the owned semaphore. pre: `seat`
 * is the index of a seat of the domain
 */
bool tni_object_has_owner(const struct tni_segment *segment, uint32_t object, uint32_t seat);

#endif
