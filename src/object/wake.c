/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wake: wake the processes that wait at an object or that poll a descriptor for it.
 *
 * Callers: the kinds, object.c, reclaim.c. Death: a recoverer wakes all waiters at each object
 * that the dead process had open.
 */
#include "object/object.h"
#include "wait/wait.h"

/*
 * Make the descriptor of a watcher readable, if it is armed: ring, then disarm. A process that
 * dies before the ring, or cannot ring, leaves the descriptor armed, for the next ring or the
 * recoverer; one that dies after the ring has made it readable. The compare-and-swap leaves a
 * descriptor armed that its owner cleared and armed again meanwhile.
 */
static void ring_descriptor(const struct tni_segment *s, uint32_t seat)
{
    struct tni_seat *entry = tni_seat_at(s, seat);
    uint32_t armed = atomic_load(&entry->bell_fd_armed);
    if (TNI_LIKELY((armed & TNI_BELL_ARMED) == 0))
        return;
    TNI_KILL_POINT("bell_rings");
    if (!tni_process_bell_ring(s, seat))
        return;
    TNI_KILL_POINT("bell_rung");
    atomic_compare_exchange_strong(&entry->bell_fd_armed, &armed,
                                   armed & ~(uint32_t)TNI_BELL_ARMED);
}

void tni_object_ring_watchers(const struct tni_segment *s, const struct tni_object *object)
{
    for (uint32_t w = 0; w < TNI_SEAT_WORDS; w++)
        for (uint64_t bits = atomic_load(&object->watchers.word[w]); bits != 0;
             bits &= bits - 1) {
            uint32_t seat = w * 64 + tni_low_bit(bits);
            if (!tni_geometry_has_seat(&s->geometry, seat))
                continue;
            struct tni_seat *entry = tni_seat_at(s, seat);
            tni_wait_notify(&entry->bell, INT32_MAX);
            ring_descriptor(s, seat);
        }
}

void tni_object_wake_all(const struct tni_segment *s, struct tni_object *object)
{
    /* The process that set LOOKING may be the one that died. */
    atomic_fetch_and(&object->items, ~(uint32_t)TNI_WAIT_LOOKING);
    atomic_fetch_and(&object->room, ~(uint32_t)TNI_WAIT_LOOKING);
    tni_wait_notify_all(&object->items);
    tni_wait_notify_all(&object->room);
    tni_object_ring_watchers(s, object);
}
