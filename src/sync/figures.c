/* SPDX-License-Identifier: Apache-2.0 */
/*
 * figures: what the word of an event, semaphore, lock or barrier says; for people, who look on.
 */
#include "sync/sync.h"

/*
 * The words are as event.c, semaphore.c, lock.c and barrier.c state them;
 * tests/tools/cli_test.py sees each.
 */
/* The seat that holds all taken permits of an owned semaphore; TNI_NO_SEAT: there is none, or
 * several hold some. */
static uint32_t only_holder(const struct tni_segment *s, const struct tni_object *object)
{
    if ((TNI_LOOK(object->flags) & TN_SEMAPHORE_OWNED) == 0)
        return TNI_NO_SEAT;
    if (TNI_LOOK(object->capacity) == 1) { /* {holder's seat + 1:32, permits:32} */
        uint64_t holder_and_one = atomic_load(&object->value) >> 32;
        bool is_held = holder_and_one != 0 && holder_and_one <= s->geometry.seats;
        return is_held ? (uint32_t)holder_and_one - 1 : TNI_NO_SEAT;
    }
    const _Atomic uint32_t *held =
        tni_object_ring(s, object, (uint64_t)s->geometry.seats * sizeof *held);
    uint32_t limit = held != NULL ? tni_seat_limit(s) : 0, holder = TNI_NO_SEAT;
    for (uint32_t seat = 0; seat < limit; seat++) {
        if (atomic_load(&held[seat]) == 0)
            continue;
        if (holder != TNI_NO_SEAT)
            return TNI_NO_SEAT;
        holder = seat;
    }
    return holder;
}

void tni_object_figures(const struct tni_segment *s, uint32_t index,
                        struct tni_object_figures *ret_figures)
{
    const struct tni_object *object = tni_object_at(s, index);
    uint64_t value = atomic_load(&object->value);
    struct tni_object_figures figures = {.owner_seat = TNI_NO_SEAT};
    uint32_t owner;

    switch (tni_object_kind(atomic_load(&object->word))) {
    case TNI_OBJECT_EVENT:
        figures.count = value != 0;
        break;
    case TNI_OBJECT_SEMAPHORE: /* {version or holder:32, permits:32} */
        figures.count = (uint32_t)value;
        figures.owner_seat = only_holder(s, object);
        break;
    case TNI_OBJECT_LOCK: /* {HELD:1, RECOVERED:1, incarnation:22, seat:16, thread:24} */
        figures.count = (uint32_t)(value >> 63);
        owner = (uint32_t)(value >> 24) & 0xffff;
        if (figures.count != 0 && tni_geometry_has_seat(&s->geometry, owner))
            figures.owner_seat = owner;
        break;
    case TNI_OBJECT_BARRIER: /* {generation:24, fates:16, arrived:16, fate:8} */
        figures.count = (uint32_t)(value >> 8) & 0xffff;
        break;
    default:
        break;
    }
    *ret_figures = figures;
}
