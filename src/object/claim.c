/* SPDX-License-Identifier: Apache-2.0 */
/*
 * claim: one process at a time changes a store, or publishes in a channel.
 *
 * Callers: the rooms store and channel. Death: the claim names the dead process, and the next
 * caller takes it over (tni_process_claim()). Who waits at `room` is woken by the reaper.
 */
#include "object/object.h"
#include "wait/wait.h"

/* How long a call waits at least for the owner of the claim, who needs microseconds. */
#define CLAIM_NS (UINT64_C(5000) * 1000 * 1000)

/* Few objects have the same turn: a thread waits for one that has another object's only then.
 */
static _Atomic uint64_t *turn_of(struct tn_domain *d, const struct tni_object *object)
{
    size_t index = (size_t)(object - tni_object_at(&d->segment, 0));
    return &tni_object_part(d)->changing[index % TNI_OBJECT_TURNS];
}

bool tni_object_try_claim(struct tn_domain *d, struct tni_object *object)
{
    return tni_process_claim(d, &object->value2, turn_of(d, object), 0, false);
}

static int fail_held(const struct tn_domain *d, const struct tni_object *object)
{
    uint32_t seat = tni_who_seat(atomic_load(&object->value2));
    const char *kind = tni_object_kind_name(tni_object_kind(atomic_load(&object->word)));
    int32_t pid = tni_geometry_has_seat(&d->segment.geometry, seat)
                      ? atomic_load(&tni_seat_at(&d->segment, seat)->pid)
                      : 0;
    return tni_fail(TN_ERR_TIMED_OUT,
                    "process %d in seat %u is changing the %s " TNI_TITLE_FORMAT
                    " and does not finish; the process may be stopped",
                    pid, seat, kind != NULL ? kind : "object", TNI_TITLE(object->name));
}

static int wait_for_claim(struct tn_domain *d, struct tni_object *object, uint64_t deadline_ns)
{
    struct tni_wait wait = {.deadline_ns = TNI_MAX(deadline_ns, tni_os_now_ns() + CLAIM_NS),
                            .is_through = true};
    for (uint32_t tries = 0; !tni_object_try_claim(d, object); tries++) {
        uint64_t owner = atomic_load(&object->value2);
        /* A thread of this process has the turn, for microseconds. */
        if ((owner == 0 || owner == d->who) && tni_os_now_ns() < wait.deadline_ns) {
            tni_os_back_off(tries);
            continue;
        }
        uint32_t seen = tni_wait_arm(&object->room);
        if (tni_object_try_claim(d, object))
            break;
        if (tni_process_sleep(d, &object->room, seen, &wait) != 0)
            return fail_held(d, object);
    }
    return 0;
}

int tni_object_claim(struct tn_domain *d, struct tni_object *object, uint64_t deadline_ns)
{
    return TNI_LIKELY(tni_object_try_claim(d, object)) ? 0
                                                       : wait_for_claim(d, object, deadline_ns);
}

void tni_object_unclaim(struct tn_domain *d, struct tni_object *object)
{
    tni_process_unclaim(d, &object->value2, turn_of(d, object));
    tni_wait_notify(&object->room, 1);
}
