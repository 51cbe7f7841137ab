/* SPDX-License-Identifier: Apache-2.0 */
/*
 * figures: what the word of an event, semaphore, lock or barrier says; for people, who look on.
 */
#include "sync/sync.h"

/* The seat that holds all taken permits of an owned semaphore; TNI_NO_SEAT: there is none, or
 * several hold some. */
static uint32_t only_holder(const struct tni_segment *s, const struct tni_object *object)
{
    if ((TNI_LOOK(object->flags) & TN_SEMAPHORE_OWNED) == 0)
        return TNI_NO_SEAT;
    if (TNI_LOOK(object->capacity) == 1) {
        uint32_t holder = tni_semaphore_one_holder(atomic_load(&object->value));
        return tni_geometry_has_seat(&s->geometry, holder) ? holder : TNI_NO_SEAT;
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
    case TNI_OBJECT_SEMAPHORE:
        figures.count = tni_semaphore_permits(value);
        figures.owner_seat = only_holder(s, object);
        break;
    case TNI_OBJECT_LOCK:
        figures.count = (value & TNI_LOCK_HELD) != 0;
        owner = tni_lock_seat(value);
        if (figures.count != 0 && tni_geometry_has_seat(&s->geometry, owner))
            figures.owner_seat = owner;
        break;
    case TNI_OBJECT_BARRIER:
        figures.count = tni_barrier_arrived(value);
        break;
    default:
        break;
    }
    *ret_figures = figures;
}
