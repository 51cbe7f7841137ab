/* SPDX-License-Identifier: Apache-2.0 */
/*
 * registry: the claim of the process that makes, opens or ends an object.
 *
 * Nouns: suspect (an owner that this process waited for in vain, and that may be stopped).
 * I1  One thread of one process has the registry. The recoverer of a dead owner takes the
 *     registry over before the dead seat is FREE.
 * I2  A wait for the registry ends. A stopped owner costs each process one long wait; its
 *     later waits are short until the registry changes its owner.
 * I3  `registry_turns` rises each time the registry changes its owner.
 * Callers: object.c, reclaim.c. Death: the dead seat still owns the registry, and
 * `registry_object` names the object that it was changing. A process that dies after it
 * took the registry and before it counted the turn leaves one turn uncounted: one waiter
 * waits shorter.
 */
#include "object/registry.h"

#include "object/object.h"
#include "wait/wait.h"

#define MS_NS UINT64_C(1000000)

/*
 * An owner needs far less than REGISTRY_MS, unless it is stopped or damage wrote the word. A
 * process that waited that long in vain suspects the owner, and waits SUSPECT_MS from then on
 * until the registry changes its owner. A reaper waits RECLAIMER_MS, and suspects no owner.
 */
enum { REGISTRY_MS = 5000, SUSPECT_MS = 100, RECLAIMER_MS = 1, REGISTRY_ROUNDS = 4 };

bool tni_registry_take(struct tn_domain *d, uint64_t from)
{
    if (!tni_process_claim(d, &d->segment.header->registry, &tni_object_part(d)->registering,
                           from, true))
        return false;
    TNI_KILL_POINT("registry_taken");
    atomic_fetch_add(&d->segment.header->registry_turns, 1);
    return true;
}

static int fail_held(const struct tn_domain *d)
{
    uint64_t who = atomic_load(&d->segment.header->registry);
    uint32_t seat = tni_who_seat(who);
    int32_t pid = tni_geometry_has_seat(&d->segment.geometry, seat)
                      ? atomic_load(&tni_seat_at(&d->segment, seat)->pid)
                      : 0;
    return tni_fail(TN_ERR_TIMED_OUT,
                    "process %d in seat %u is making, opening or ending an object and does not "
                    "finish; the process may be stopped",
                    pid, seat);
}

static bool is_suspect(const struct tn_domain *d)
{
    const struct tni_header *h = d->segment.header;
    uint64_t suspect = atomic_load(&tni_object_part(d)->registry_suspect);
    return suspect != 0 && atomic_load(&h->registry) == suspect &&
           atomic_load(&h->registry_turns) == atomic_load(&tni_object_part(d)->registry_turn);
}

static void suspect(struct tn_domain *d, uint32_t turn)
{
    atomic_store(&tni_object_part(d)->registry_suspect,
                 atomic_load(&d->segment.header->registry));
    atomic_store(&tni_object_part(d)->registry_turn, turn);
}

static int await(struct tn_domain *d, struct tni_wait wait)
{
    struct tni_header *h = d->segment.header;
    while (!tni_registry_take(d, 0)) {
        uint32_t seen = tni_wait_arm(&h->registry_wait);
        if (tni_registry_take(d, 0))
            break;
        if (tni_process_sleep(d, &h->registry_wait, seen, &wait) != 0)
            return fail_held(d);
    }
    return 0;
}

int tni_registry_enter_reclaiming(struct tn_domain *d)
{
    return await(d, (struct tni_wait){.deadline_ns = tni_os_now_ns() + RECLAIMER_MS * MS_NS,
                                      .is_through = true,
                                      .is_reclaiming = true});
}

int tni_registry_enter(struct tn_domain *d)
{
    const struct tni_header *h = d->segment.header;
    uint64_t most_ms = is_suspect(d) ? SUSPECT_MS : REGISTRY_MS;
    for (int round = 1;; round++) {
        uint32_t turn = atomic_load(&h->registry_turns);
        struct tni_wait wait = {.deadline_ns = tni_os_now_ns() + most_ms * MS_NS,
                                .is_through = true};
        int status = await(d, wait);
        if (status == 0)
            return 0;
        bool has_moved = atomic_load(&h->registry_turns) != turn;
        if (!has_moved)
            suspect(d, turn);
        if (!has_moved || round == REGISTRY_ROUNDS)
            return status;
        most_ms =
            REGISTRY_MS; /* the registry changed its owner, so it is not stuck: wait again */
    }
}

void tni_registry_leave(struct tn_domain *d)
{
    struct tni_header *h = d->segment.header;
    tni_process_unclaim(d, &h->registry, &tni_object_part(d)->registering);
    tni_wait_notify(&h->registry_wait, 1);
}
