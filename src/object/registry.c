/* SPDX-License-Identifier: Apache-2.0 */
/*
 * registry: the claim of the one who makes, opens or ends an object.
 *
 * Nouns: suspect (who was waited for in vain, and may be stopped).
 * I1  One thread of one process has the claim; of a dead process, whoever reclaims it takes the
 *     claim over, before the dead one's seat is free.
 * I2  A wait for the claim ends: a stopped owner costs each process one long wait, then short
 *     ones until the claim changes hands.
 * I3  `registry_turns` rises with each change of hands.
 * Callers: object.c. Death: leaves the claim with the dead seat, and `registry_object` says
 * what it was at; a death between the claim and its turn leaves a turn uncounted, which costs a
 * waiter one shorter wait.
 */
#include "object/registry.h"

#include "object/object.h"
#include "wait/wait.h"

#define MS_NS UINT64_C(1000000)

/*
 * Whoever has it is back in far less than REGISTRY_MS, or stopped, or a word that noise has
 * written. Who was waited for that long in vain (a suspect) is waited for SUSPECT_MS from then
 * on, until the claim changes hands. Who reclaims a seat waits less, and suspects nobody.
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
                    "process %d in seat %u has begun to make, open or end an object, and does "
                    "not come to the end of it: is it stopped?",
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
        most_ms = REGISTRY_MS; /* it goes from hand to hand: others were faster than we */
    }
}

void tni_registry_leave(struct tn_domain *d)
{
    struct tni_header *h = d->segment.header;
    tni_process_unclaim(d, &h->registry, &tni_object_part(d)->registering);
    tni_wait_notify(&h->registry_wait, 1);
}
