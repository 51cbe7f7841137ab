/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wait: wait at an object: poll, arm the wait word, sleep, try again.
 *
 * Nouns: attempt (a call that is repeated until it returns something else than "not yet"),
 * poll (attempts before the first sleep), side (the processes whose death ends the wait).
 * I1  No change between the last attempt and the sleep is missed: the waiter arms the word
 *     before that attempt (wait.h).
 * I2  A handle reports each death once, after a last attempt.
 * I3  After each sleep, however it ended, the waiter clears LOOKING in the word, and tries
 *     again. Only a wait that the program interrupted makes no further attempt.
 * Callers: the kinds (turn.c, event.c, ...). Death: a dead waiter leaves the word armed, or
 * LOOKING in it, which costs others one wake-up or one slice of a sleep; its recoverer
 * wakes all waiters at the object.
 */
#include "object/object.h"

#include "wait/wait.h"

/*
 * Whether a process on this side died since `reported` deaths, no other one is left there,
 * and no message that another process has out may come back.
 */
static bool are_peers_dead(const struct tn_object *handle, uint32_t side, uint32_t reported)
{
    const struct tni_object *object = handle->object;
    const struct tni_seat_set *set = side == TNI_SIDE_PRODUCER   ? &object->producers
                                     : side == TNI_SIDE_CONSUMER ? &object->consumers
                                                                 : &object->openers;
    return TNI_UNLIKELY(tni_death_count(atomic_load(&object->death[side])) != reported) &&
           tni_seat_set_count(set, handle->domain->seat) == 0 &&
           (side != TNI_SIDE_PRODUCER ||
            !tni_kind_of(handle->domain, handle->kind)->has_more(handle));
}

static int report_death(struct tn_object *handle, uint32_t side)
{
    const struct tni_object *object = handle->object;
    uint64_t death = atomic_load(&object->death[side]);
    atomic_store(&handle->deaths_seen[side], tni_death_count(death));
    int32_t pid = atomic_load(&object->death_pid[side]);
    tni_set_peer(tni_who_seat(death), pid);
    /* The sentence does not say "the last": another process may have left after that death. */
    const char *role = side == TNI_SIDE_PRODUCER   ? "producer"
                       : side == TNI_SIDE_CONSUMER ? "consumer"
                                                   : "user";
    return tni_fail(
        TN_ERR_PEER_DIED,
        "process %d in seat %u, a %s of %s " TNI_NAME_FORMAT ", died, and no other %s is left",
        pid, tni_who_seat(death), role, tni_object_kind_name(handle->kind), object->name, role);
}

/* A deadline far in the past is likely a duration that the caller took for a time. */
int tni_object_fail_late(uint64_t deadline_ns)
{
    uint64_t late_s = (tni_os_now_ns() - deadline_ns) / UINT64_C(1000000000);
    if (late_s == 0)
        return tni_fail_plain(TN_ERR_TIMED_OUT, "the deadline passed");
    return tni_fail(TN_ERR_TIMED_OUT,
                    "the deadline passed %llu s ago: a deadline is a time of CLOCK_MONOTONIC, "
                    "such as tn_deadline_after() gives",
                    (unsigned long long)late_s);
}

/* Of two threads that store at once, one store may be lost: the doubt is a hint. */
void tni_spins_learn(struct tn_object *handle, const _Atomic uint32_t *word, uint32_t spins,
                     bool has_paid)
{
    _Atomic uint32_t *at = &handle->doubt[word == &handle->object->room];
    uint32_t seen = atomic_load_explicit(at, memory_order_relaxed), doubt = seen & 15;
    if (spins != 0 && has_paid)
        doubt -= TNI_MIN(doubt, 2u);
    else if (spins != 0 && doubt < TNI_DOUBT_MOST)
        doubt++;
    atomic_store_explicit(at, ((seen >> 4) + 1) << 4 | doubt, memory_order_relaxed);
}

/* pre: one attempt returned TN_ERR_TIMED_OUT. */
static int poll(struct tn_object *handle, const struct tni_awaited *a)
{
    int status = TN_ERR_TIMED_OUT;
    if (a->spins == TNI_HAS_POLLED)
        return status;
    for (uint32_t i = 0; status == TN_ERR_TIMED_OUT && i < a->spins; i++) {
        tni_relax();
        status = a->attempt(a->context);
    }
    tni_spins_learn(handle, a->word, a->spins, status != TN_ERR_TIMED_OUT);
    return status;
}

int tni_object_wait(struct tn_object *handle, const struct tni_awaited *a, uint64_t deadline_ns)
{
    const int side = a->side;
    /* Read once: a death ends the waits of all threads that were waiting when it came. */
    uint32_t reported = side >= 0 ? atomic_load(&handle->deaths_seen[side]) : 0;
    struct tni_wait wait = {.deadline_ns = deadline_ns, .is_through = side == TNI_SIDE_THROUGH};
    int status = a->attempt(a->context);
    if (status == TN_ERR_TIMED_OUT && deadline_ns != 0)
        status = poll(handle, a);
    while (status == TN_ERR_TIMED_OUT) {
        /* The dead process may have pushed a last message after our attempt, before it died. */
        if (side >= 0 && are_peers_dead(handle, (uint32_t)side, reported)) {
            status = a->attempt(a->context);
            return status == TN_ERR_TIMED_OUT ? report_death(handle, (uint32_t)side) : status;
        }
        if (deadline_ns == 0)
            return tni_fail_plain(TN_ERR_TIMED_OUT, "not ready, and the caller does not wait");
        uint32_t seen = tni_wait_arm(a->word);
        status = a->attempt(a->context);
        if (status != TN_ERR_TIMED_OUT)
            return status;
        if (side >= 0 && are_peers_dead(handle, (uint32_t)side, reported))
            continue;
        int slept = tni_process_sleep(handle->domain, a->word, seen, &wait);
        tni_wait_awake(a->word);
        if (slept == TN_ERR_INTERRUPTED)
            return slept; /* an interrupted wait makes no further attempt, which might take
                             something */
        /* Now this may be a child without a seat: the program's hook may have forked. */
        if ((status = tni_object_check(handle, handle->kind)) != 0)
            return status;
        status = a->attempt(a->context);
        if (status == TN_ERR_TIMED_OUT && slept == TN_ERR_TIMED_OUT &&
            tni_os_now_ns() >= deadline_ns)
            return tni_object_fail_late(deadline_ns);
    }
    return status;
}
