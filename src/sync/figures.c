/* SPDX-License-Identifier: Apache-2.0 */
/* figures: reads the numbers of an event, semaphore, lock or barrier that the tool shows. */
#include "sync/sync.h"

static bool has_permits(const struct tni_segment *s, const struct tni_object *object,
                        uint32_t seat)
{
    if ((TNI_LOOK(object->flags) & TN_SEMAPHORE_OWNED) == 0)
        return false;
    if (TNI_LOOK(object->capacity) == 1)
        return tni_semaphore_one_holder(atomic_load(&object->value)) == seat;
    const _Atomic uint32_t *held =
        tni_object_ring(s, object, (uint64_t)s->geometry.seats * sizeof *held);
    return held != NULL && atomic_load(&held[seat]) != 0;
}

bool tni_object_has_owner(const struct tni_segment *s, uint32_t index, uint32_t seat)
{
    const struct tni_object *object = tni_object_at(s, index);
    uint64_t value = atomic_load(&object->value);

    switch (tni_object_kind(atomic_load(&object->word))) {
    case TNI_OBJECT_SEMAPHORE:
        return has_permits(s, object, seat);
    case TNI_OBJECT_LOCK:
        return (value & TNI_LOCK_HELD) != 0 && tni_lock_seat(value) == seat;
    default:
        return false;
    }
}

void tni_object_figures(const struct tni_segment *s, uint32_t index,
                        struct tni_object_figures *ret_figures)
{
    const struct tni_object *object = tni_object_at(s, index);
    uint64_t value = atomic_load(&object->value);
    struct tni_object_figures figures = {0};

    switch (tni_object_kind(atomic_load(&object->word))) {
    case TNI_OBJECT_EVENT:
        figures.count = value != 0;
        break;
    case TNI_OBJECT_SEMAPHORE:
        figures.count = tni_semaphore_permits(value);
        break;
    case TNI_OBJECT_LOCK:
        figures.count = (value & TNI_LOCK_HELD) != 0;
        break;
    case TNI_OBJECT_BARRIER:
        /* A barrier that breaks wakes all its waiters, and takes no others. */
        figures.is_broken = tni_barrier_is_broken(value);
        figures.count = figures.is_broken ? 0 : tni_barrier_arrived(value);
        break;
    default:
        break;
    }
    *ret_figures = figures;
}
