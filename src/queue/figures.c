/* SPDX-License-Identifier: Apache-2.0 */
/*
 * figures: what the word of an event, semaphore, lock or barrier says; for people, who look on.
 */
#include "queue/queue.h"

/*
 * The words are as event.c, semaphore.c, lock.c and barrier.c state them;
 * tests/tools/cli_test.py sees each.
 */
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
    case TNI_OBJECT_SEMAPHORE: /* {version:32, permits:32} */
        figures.count = (uint32_t)value;
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
