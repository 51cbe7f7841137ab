/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wake: waking who waits at an object, and who watches it through a descriptor.
 *
 * Callers: ring.c, object.c, reclaim.c. Death: whoever reclaims the dead wakes all at each
 * object that the dead had open.
 */
#include "object/object.h"
#include "wait/wait.h"

/*
 * Ring first, and disarm only what was armed at our look. Who is killed or stopped before the
 * ring leaves it to the next one who rings, or to who reclaims the dead; so does who cannot
 * ring. Who dies after it has made the descriptor readable. One that was cleared and armed
 * again meanwhile stays armed.
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
    /* Who said that it looks may be the one that died. */
    atomic_fetch_and(&object->items, ~(uint32_t)TNI_WAIT_LOOKING);
    atomic_fetch_and(&object->room, ~(uint32_t)TNI_WAIT_LOOKING);
    tni_wait_notify_all(&object->items);
    tni_wait_notify_all(&object->room);
    tni_object_ring_watchers(s, object);
}
