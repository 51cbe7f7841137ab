/* SPDX-License-Identifier: Apache-2.0 */
/*
 * barrier: no party passes until all parties have arrived.
 *
 * Nouns: generation (one gathering of the parties), fate (of a generation: PASSED, DIED
 * when an opener died, LATE when a waiter reached its deadline or was interrupted).
 * Word: value is {generation:24, fates:16, arrived:16, fate:8}: the fates of the last eight
 * generations, and the fate of this one so far.
 *
 * I1  Arrivals, fate and generation are one word, changed by CAS. An arrival counts in the
 *     generation that the arriving process read, or not at all; the CAS of the last arrival
 *     passes the generation.
 * I2  A generation with a fate other than PASSED takes no arrivals. A reset begins the next
 *     generation.
 * I3  A waiter learns the fate of its own generation, even when later generations have begun.
 * I4  value2 names the dead process before a fate becomes DIED.
 * Callers: users, the reaper. Death of any process that has the barrier open: the reaper
 * makes the generation DIED. Death of a process that changed the word, before its wake-up:
 * the reaper wakes all waiters.
 */
#include "sync/dead.h"

enum { FATE_PASSED = 0, FATE_DIED = 1, FATE_LATE = 2, MAX_PARTIES = 0xffff, FATES = 8 };

static uint64_t with_arrival(uint64_t word) { return word + (1u << 8); }
static uint64_t with_fate(uint64_t word, uint32_t fate)
{
    return (word & ~UINT64_C(0xff)) | fate;
}
/* The word of the next generation, after the generation in `word` ended with `fate`. */
static uint64_t next_word(uint64_t word, uint32_t fate)
{
    uint64_t fates = (uint64_t)tni_barrier_fates(word) << 2 | fate;
    return ((word >> 40) + 1) << 40 | (fates & 0xffff) << 24;
}

int tn_barrier_open(tn_domain *domain, const char *name, uint32_t parties, uint32_t flags,
                    tn_barrier **ret_barrier)
{
    struct tni_object_spec spec = {.kind = &tni_barrier_kind,
                                   .name = name,
                                   .capacity = parties,
                                   .wanted_capacity = parties,
                                   .count_name = "parties"};
    if (parties > MAX_PARTIES || (parties == 0 && (flags & TN_OPEN_EXISTING) == 0))
        return tni_fail(TN_ERR_INVALID, "a barrier for %u parties; 1 to %d are possible",
                        parties, MAX_PARTIES);
    return tni_object_open("tn_barrier_open", domain, &spec, flags, ret_barrier);
}

/* ---- wait -------------------------------------------------------------------------------- */

static int check_word(const struct tni_object *object, uint64_t word)
{
    if (TNI_LIKELY(tni_barrier_arrived(word) < object->capacity &&
                   object->capacity <= MAX_PARTIES && tni_barrier_fate(word) <= FATE_LATE))
        return 0;
    return tni_fail(TN_ERR_CORRUPT,
                    "the barrier " TNI_TITLE_FORMAT " for %u parties has the word %llx",
                    TNI_TITLE(object->name), object->capacity, (unsigned long long)word);
}

static int report(const struct tni_object *object, uint32_t fate)
{
    if (fate == FATE_PASSED)
        return 0;
    if (fate == FATE_LATE)
        return tni_fail(TN_ERR_CLOSED,
                        "the barrier " TNI_TITLE_FORMAT
                        " is broken: a waiter reached its deadline or was interrupted",
                        TNI_TITLE(object->name));
    uint64_t dead = atomic_load(&object->value2); /* I4 */
    tni_set_peer(tni_dead_seat(dead), tni_dead_pid(dead));
    return tni_fail(TN_ERR_PEER_DIED,
                    "the barrier " TNI_TITLE_FORMAT " is broken: process %d in seat %u died",
                    TNI_TITLE(object->name), tni_dead_pid(dead), tni_dead_seat(dead));
}

/* The fate of a generation as a status (I3). TN_ERR_TIMED_OUT: no fate is decided yet. */
static int outcome(const struct tni_object *object, uint64_t word, uint32_t generation)
{
    uint32_t since = (tni_barrier_generation(word) - generation) & 0xffffff;
    if (since == 0)
        return tni_barrier_fate(word) == FATE_PASSED ? TN_ERR_TIMED_OUT
                                                     : report(object, tni_barrier_fate(word));
    /* After more than eight later generations, the word no longer has the fate of this one. */
    if (since > FATES)
        return 0;
    return report(object, tni_barrier_fates(word) >> (2 * (since - 1)) & 3);
}

struct gathering {
    struct tni_object *object;
    uint32_t generation;
};

static int try_pass(void *context)
{
    const struct gathering *g = context;
    uint64_t seen = atomic_load(&g->object->value);
    int status = check_word(g->object, seen);
    return status != 0 ? status : outcome(g->object, seen, g->generation);
}

/*
 * A party that has arrived stops waiting, because of the status `why`: break the generation,
 * unless its fate is decided by now.
 */
static int break_generation(const struct gathering *g, int why, uint64_t deadline_ns)
{
    uint64_t seen = atomic_load(&g->object->value);
    do {
        int status = check_word(g->object, seen);
        if (status == 0)
            status = outcome(g->object, seen, g->generation);
        if (status != TN_ERR_TIMED_OUT)
            return status;
    } while (
        !atomic_compare_exchange_weak(&g->object->value, &seen, with_fate(seen, FATE_LATE)));
    TNI_KILL_POINT("barrier_broken_late");
    tni_wait_notify(&g->object->items, INT32_MAX);
    /* The sentence of tni_object_wait() says so if the deadline is likely a duration. */
    const char *reason = why != TN_ERR_TIMED_OUT ? "the wait was interrupted"
                         : deadline_ns == 0      ? "the deadline passed"
                                                 : tn_error_detail();
    return tni_fail(why, "%u of %u parties had arrived at the barrier " TNI_TITLE_FORMAT ": %s",
                    tni_barrier_arrived(seen), g->object->capacity, TNI_TITLE(g->object->name),
                    reason);
}

int tn_barrier_wait(tn_barrier *barrier, tn_deadline deadline)
{
    int status = tni_object_check(barrier, TNI_OBJECT_BARRIER);
    if (status != 0)
        return status;
    struct tni_object *object = barrier->object;
    uint64_t seen = atomic_load(&object->value);
    bool is_last;
    do {
        if ((status = check_word(object, seen)) != 0)
            return status;
        if (tni_barrier_fate(seen) != FATE_PASSED)
            return report(object, tni_barrier_fate(seen)); /* I2 */
        is_last = tni_barrier_arrived(seen) + 1 == object->capacity;
    } while (!atomic_compare_exchange_weak(
        &object->value, &seen, is_last ? next_word(seen, FATE_PASSED) : with_arrival(seen)));
    TNI_KILL_POINT("barrier_arrived");
    if (is_last) {
        tni_wait_notify(&object->items, INT32_MAX);
        return 1;
    }
    struct gathering g = {object, tni_barrier_generation(seen)};
    const struct tn_domain *d = barrier->domain;
    uint64_t who = d->who;
    /* TNI_SIDE_NONE: a death ends the wait as the fate of the generation, not by itself. */
    status = tni_object_wait(barrier,
                             &(struct tni_awaited){.word = &object->items,
                                                   .side = TNI_SIDE_NONE,
                                                   .spins = tni_spins(barrier, &object->items),
                                                   .attempt = try_pass,
                                                   .context = &g},
                             deadline.ns);
    bool is_leaving = status == TN_ERR_TIMED_OUT || status == TN_ERR_INTERRUPTED;
    return is_leaving && tni_process_is_same_member(d, who)
               ? break_generation(&g, status, deadline.ns)
               : status;
}

/*
 * Does nothing if the barrier is not broken: two survivors may both call this, and the first
 * may wait at the barrier again when the second one calls.
 */
int tn_barrier_reset(tn_barrier *barrier)
{
    int status = tni_object_check(barrier, TNI_OBJECT_BARRIER);
    if (status != 0)
        return status;
    struct tni_object *object = barrier->object;
    uint64_t seen = atomic_load(&object->value);
    do {
        if ((status = check_word(object, seen)) != 0 || tni_barrier_fate(seen) == FATE_PASSED)
            return status;
    } while (!atomic_compare_exchange_weak(&object->value, &seen,
                                           next_word(seen, tni_barrier_fate(seen))));
    TNI_KILL_POINT("barrier_reset");
    return 0;
}

/*
 * Break the barrier for a dead seat. If a party resets the barrier after one recoverer of the
 * seat and before another, the other recoverer breaks it again.
 */
static void reclaim_seat(struct tn_domain *domain, struct tni_object *object, uint32_t seat)
{
    uint64_t seen = atomic_load(&object->value);
    do {
        if (tni_barrier_fate(seen) == FATE_DIED)
            return;
        atomic_store(&object->value2, tni_dead_word(&domain->segment, seat)); /* I4 */
        TNI_KILL_POINT("barrier_dead_named");
    } while (!atomic_compare_exchange_weak(&object->value, &seen, with_fate(seen, FATE_DIED)));
    TNI_KILL_POINT("barrier_broken");
    tni_wait_notify(&object->items, INT32_MAX);
}

const struct tni_kind tni_barrier_kind = {
    .number = TNI_OBJECT_BARRIER,
    .name = "barrier",
    .handle_bytes = sizeof(struct tn_object),
    .reclaim_seat = reclaim_seat,
};
