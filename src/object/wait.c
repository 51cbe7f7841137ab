/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wait: how a wait at an object goes: look for a while, arm the wait word, sleep, look again.
 *
 * Nouns: attempt (what is tried until it says something else than "not yet"), look (an attempt
 * before the first sleep), side (those whose death ends the wait).
 * I1  Between the last attempt and the sleep nothing can come unseen: the word is armed first,
 *     see sync.h.
 * I2  Each death is reported once for each handle, after a last attempt.
 * I3  After each sleep, however it ended, the word says no more that we are on our way, and an
 *     attempt follows, but for a wait that the program ended.
 * Callers: queue.c, event.c, ... Death: leaves a word armed, or `looking` in it, which costs
 * others one wake-up or one slice; the reaper wakes all at the object.
 */
#include "object/object.h"

#include "wait/wait.h"

/*
 * Whether there was a death on this side since `told`, nobody else is left there, and nothing
 * that is out with others may come back.
 */
static bool are_peers_dead(const struct tn_object *handle, uint32_t side, uint32_t told)
{
    const struct tni_object *object = handle->object;
    const struct tni_seat_set *set = side == TNI_SIDE_PRODUCER   ? &object->producers
                                     : side == TNI_SIDE_CONSUMER ? &object->consumers
                                                                 : &object->openers;
    return TNI_UNLIKELY(tni_death_count(atomic_load(&object->death[side])) != told) &&
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
    return tni_fail(TN_ERR_PEER_DIED,
                    "process %d in seat %u died, the last %s of %s " TNI_NAME_FORMAT, pid,
                    tni_who_seat(death),
                    side == TNI_SIDE_PRODUCER   ? "producer"
                    : side == TNI_SIDE_CONSUMER ? "consumer"
                                                : "other member",
                    tni_object_kind_name(handle->kind), object->name);
}

/* A deadline far in the past is likely a duration that was taken for a time. */
static int fail_late(uint64_t deadline_ns)
{
    uint64_t late_s = (tni_os_now_ns() - deadline_ns) / UINT64_C(1000000000);
    if (late_s == 0)
        return tni_fail_plain(TN_ERR_TIMED_OUT, "the deadline passed");
    return tni_fail(TN_ERR_TIMED_OUT,
                    "the deadline passed %llu s ago: a deadline is a time of CLOCK_MONOTONIC, "
                    "such as tn_deadline_after() gives",
                    (unsigned long long)late_s);
}

/* Two threads may learn at once, and one of them in vain. */
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

/* pre: one attempt was in vain. */
static int spin(struct tn_object *handle, const _Atomic uint32_t *word, uint32_t spins,
                tni_try_fn *attempt, void *context)
{
    int status = TN_ERR_TIMED_OUT;
    if (spins == TNI_LOOKED)
        return status;
    for (uint32_t i = 0; status == TN_ERR_TIMED_OUT && i < spins; i++) {
        tni_relax();
        status = attempt(context);
    }
    tni_spins_learn(handle, word, spins, status != TN_ERR_TIMED_OUT);
    return status;
}

int tni_object_wait(struct tn_object *handle, _Atomic uint32_t *word, int side, uint32_t spins,
                    uint64_t deadline_ns, tni_try_fn *attempt, void *context)
{
    /*
     * Read once, so that a death ends the waits of all threads that were waiting when it came.
     */
    uint32_t told = side >= 0 ? atomic_load(&handle->deaths_seen[side]) : 0;
    struct tni_wait wait = {.deadline_ns = deadline_ns, .is_through = side == TNI_SIDE_THROUGH};
    int status = attempt(context);
    if (status == TN_ERR_TIMED_OUT && deadline_ns != 0)
        status = spin(handle, word, spins, attempt, context);
    while (status == TN_ERR_TIMED_OUT) {
        /*
         * A death that was noticed before the last look may have been preceded by a last
         * message.
         */
        if (side >= 0 && are_peers_dead(handle, (uint32_t)side, told)) {
            status = attempt(context);
            return status == TN_ERR_TIMED_OUT ? report_death(handle, (uint32_t)side) : status;
        }
        if (deadline_ns == 0)
            return tni_fail_plain(TN_ERR_TIMED_OUT, "not ready, and not waiting");
        uint32_t seen = tni_wait_arm(word);
        status = attempt(context);
        if (status != TN_ERR_TIMED_OUT)
            return status;
        if (side >= 0 && are_peers_dead(handle, (uint32_t)side, told))
            continue;
        int slept = tni_process_sleep(handle->domain, word, seen, &wait);
        tni_wait_awake(word);
        if (slept == TN_ERR_INTERRUPTED)
            return slept; /* without another attempt, which might take something */
        /* In a child that the program's hook forked, which may have no seat, too. */
        if ((status = tni_object_check(handle, handle->kind)) != 0)
            return status;
        status = attempt(context);
        if (status == TN_ERR_TIMED_OUT && slept == TN_ERR_TIMED_OUT &&
            tni_os_now_ns() >= deadline_ns)
            return fail_late(deadline_ns);
    }
    return status;
}
