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
    uint32_t count;      /* permits; waiters at a barrier; 1 if set or held */
    uint32_t owner_seat; /* of a lock that is held; else TNI_NO_SEAT */
};
/** Of objects other than queues. */
void tni_object_figures(const struct tni_segment *segment, uint32_t object,
                        struct tni_object_figures *ret_figures);

#endif
