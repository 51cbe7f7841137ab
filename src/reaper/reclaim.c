/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reclaim: reclaim one dead seat, from REAPING to FREE.
 *
 * Nouns: recoverer (the seat that reclaims another one), suspect (a block whose count may
 * be wrong).
 * I1  A seat becomes REAPING only if its process has ended, or exec has replaced its
 *     program.
 * I2  Every step may be repeated: a step un-records a reference, under the recoverer's own
 *     announce, before it gives the reference back.
 * I3  A seat becomes FREE, with the next incarnation, only after its row, announces, bits
 *     and claims are empty, so that a new owner finds nothing of the old one.
 * I4  A seat has at most one recoverer; one that cannot finish names TNI_SEAT_NOBODY as the
 *     recoverer.
 * I5  Waits end before memory is reclaimed.
 * I6  No seat waits for a recount: the blocks that it announced become suspects (suspects.c).
 *     They are recounted when all seats are reclaimed, and again until all are done.
 * I7  Blocks of devices are released, and timelines settled, only after the whole process has
 *     ended, or has executed another program. The witness ends with the memory of a process,
 *     but what the process had a device do ends with its descriptors, a moment later.
 * Callers: tenond, every member that waits, tn_domain_reap(), the audit.
 * Death: the seat stays REAPING by a dead recoverer, and the next recoverer begins at the first
 *     step (I2). The dead recoverer's own announces and row are reclaimed with its own seat.
 */
#include <signal.h>

#include "reaper/manager.h"
#include "reaper/recount.h"
#include "wait/wait.h"

/* ---- the recoverer ---------------------------------------------------------------------- */

static bool is_dead(const struct tni_segment *s, uint32_t seat)
{
    return tni_process_seat_state(s, seat) == TNI_OS_DEAD;
}

static bool is_recoverer_alive(const struct tni_segment *s, uint32_t recoverer)
{
    uint32_t seat = tni_recoverer_seat(recoverer);
    if (recoverer == TNI_SEAT_NOBODY || !tni_geometry_has_seat(&s->geometry, seat))
        return false;
    uint64_t word = atomic_load(&tni_seat_at(s, seat)->word);
    uint32_t state = tni_seat_state(word);
    return tni_recoverer(seat, tni_seat_incarnation(word)) == recoverer &&
           state != TNI_SEAT_FREE && state != TNI_SEAT_REAPING && !is_dead(s, seat);
}

/*
 * One thread of a process reclaims at a time. In a forked child `reaping` may still name the
 * parent, whose `who` is another one.
 */
bool tni_reclaim_begin(struct tn_domain *d)
{
    uint64_t seen = atomic_load(&tni_reaper_part(d)->reaping);
    return d->seat != TNI_NO_SEAT && seen != d->who &&
           atomic_compare_exchange_strong(&tni_reaper_part(d)->reaping, &seen, d->who);
}

static void end(struct tn_domain *d) { atomic_store(&tni_reaper_part(d)->reaping, 0); }

/*
 * I1, I4. @return 1: this process is the recoverer, and *ret_word is the word of the seat now
 */
static int claim(struct tn_domain *d, uint32_t seat, uint64_t *ret_word)
{
    const struct tni_segment *s = &d->segment;
    uint32_t us = tni_recoverer(d->seat, d->incarnation);
    uint64_t word = atomic_load(&tni_seat_at(s, seat)->word);

    switch (tni_seat_state(word)) {
    case TNI_SEAT_FREE:
        return 0;
    case TNI_SEAT_JOINING:
    case TNI_SEAT_ALIVE:
    case TNI_SEAT_LEAVING:
        if (!is_dead(s, seat))
            return 0;
        break;
    case TNI_SEAT_REAPING:
        /*
         * The recoverer may be this process: then no thread of it is reclaiming now
         * (tni_reclaim_begin()), an earlier one was interrupted, and this thread goes on.
         */
        if (tni_seat_recoverer(word) != us && is_recoverer_alive(s, tni_seat_recoverer(word)))
            return 0;
        break;
    default:
        return tni_fail(TN_ERR_CORRUPT, "seat %u of the domain is in state %u", seat,
                        tni_seat_state(word));
    }
    uint64_t ours = tni_seat_word(tni_seat_incarnation(word), TNI_SEAT_REAPING, us);
    if (word != ours &&
        !atomic_compare_exchange_strong(&tni_seat_at(s, seat)->word, &word, ours))
        return 0;
    *ret_word = ours;
    return 1;
}

/* ---- children, claims, the seat --------------------------------------------------------- */

static bool ends_with(const struct tni_segment *s, uint32_t seat, uint64_t parent)
{
    const struct tni_seat *entry = tni_seat_at(s, seat);
    return (atomic_load(&entry->flags) & TNI_SEAT_ENDS_WITH_PARENT) != 0 &&
           atomic_load(&entry->parent) == parent;
}

static void kill_process(const struct tni_segment *s, uint32_t seat)
{
    const struct tni_seat *entry = tni_seat_at(s, seat);
    uint64_t word = atomic_load(&entry->word);
    int fd;

    int32_t pid = atomic_load(&entry->pid);
    int status = tni_os_process_open(pid, &fd);
    if (status == TN_ERR_NOT_FOUND)
        return;
    /* Checked after the open: so the descriptor is of the process that the seat names. */
    if (tni_process_is_here(s, seat) && atomic_load(&entry->word) == word)
        (void)(status == 0 ? tni_os_process_signal(fd, SIGKILL)
                           : tni_os_process_signal_number(pid, SIGKILL));
    if (status == 0)
        tni_os_close(fd);
}

/*
 * Kill the children that shall end with the dead process, but not this process: it has to
 * finish the seat first.
 */
static void end_children(struct tn_domain *d, uint64_t parent)
{
    uint32_t limit = tni_seat_limit(&d->segment);
    for (uint32_t seat = 0; seat < limit; seat++) {
        uint64_t word = atomic_load(&tni_seat_at(&d->segment, seat)->word);
        uint32_t state = tni_seat_state(word);
        if (seat != d->seat && state != TNI_SEAT_FREE && state != TNI_SEAT_REAPING &&
            ends_with(&d->segment, seat, parent))
            kill_process(&d->segment, seat);
    }
}

/*
 * The registry claim is not released here: tni_object_reclaim_seat() takes it over and finishes
 * what its owner was doing.
 */
void tni_reclaim_release_claims(struct tn_domain *d, uint64_t who)
{
    tni_recount_release(d, who);
    tni_claim_release(&d->segment.header->manager, who);
}

/* I3 */
static void set_free(struct tn_domain *d, uint32_t seat, uint64_t word)
{
    struct tni_seat *entry = tni_seat_at(&d->segment, seat);

    atomic_fetch_add(&d->segment.header->deaths, 1);
    atomic_store(&entry->flags, 0);
    atomic_store(&entry->parent, 0);
    atomic_store(&entry->bell_number, 0);
    atomic_store(&entry->pid, 0);
    TNI_KILL_POINT("reclaim_before_free");
    atomic_compare_exchange_strong(
        &entry->word, &word, tni_seat_word(tni_seat_incarnation(word) + 1, TNI_SEAT_FREE, 0));
    TNI_KILL_POINT("reclaim_freed");
    tni_alloc_wake(d);
}

static void log_reclaimed(uint32_t seat, int32_t pid, const char *command, uint64_t blocks,
                          uint64_t begun_ns)
{
    tni_log(TNI_LOG_INFO,
            "reclaimed seat %u: process %d (%s) is gone, %llu blocks released, %llu us", seat,
            pid, command, (unsigned long long)blocks,
            (unsigned long long)((tni_os_now_ns() - begun_ns) / 1000));
}

/* I7. A process whose program cannot be told from another counts as ended. */
static bool may_still_compute(const struct tni_segment *s, uint32_t seat, uint64_t who)
{
    const struct tni_seat *entry = tni_seat_at(s, seat);
    const struct tni_os_process process = {.pid = atomic_load(&entry->pid),
                                           .start_time = TNI_LOOK(entry->start_time),
                                           .image = TNI_LOOK(entry->image),
                                           .pid_space = TNI_LOOK(entry->pid_space)};
    return process.image != 0 &&
           (tni_ref_holds_devices(s, seat) || tni_timelines_has(s, who) ||
            tni_leases_has(s, who)) &&
           tni_os_process_state(&process, true) == TNI_OS_ALIVE;
}

/* Give up for now: the next process that reclaims goes on; this one may, too (I4). */
static int leave_to_others(struct tn_domain *d, uint32_t seat, uint64_t word, const char *why)
{
    atomic_compare_exchange_strong(
        &tni_seat_at(&d->segment, seat)->word, &word,
        tni_seat_word(tni_seat_incarnation(word), TNI_SEAT_REAPING, TNI_SEAT_NOBODY));
    tni_log(TNI_LOG_DEBUG, "seat %u: %s; to be retried", seat, why);
    return tni_fail(TN_ERR_TIMED_OUT, "seat %u cannot be reclaimed yet, because %s", seat, why);
}

/* pre: the seat is REAPING by this process, and `word` is its word. */
static int reclaim_claimed(struct tn_domain *d, uint32_t seat, uint64_t word)
{
    struct tni_seat *entry = tni_seat_at(&d->segment, seat);
    uint64_t who = tni_who(seat, tni_seat_incarnation(word)), begun_ns = tni_os_now_ns();
    int32_t pid = atomic_load(&entry->pid);
    char command[sizeof entry->command];

    tni_text_copy(command, sizeof command, entry->command, sizeof entry->command);
    TNI_KILL_POINT("reclaim_claimed");
    int status = tni_object_reclaim_seat(d, seat); /* I5 */
    TNI_KILL_POINT("reclaim_waits_ended");
    end_children(d, who);
    TNI_KILL_POINT("reclaim_children_ended");
    tni_ticket_reclaim_seat(d, who);
    TNI_KILL_POINT("reclaim_tickets_reclaimed");
    tni_reclaim_release_claims(d, who);
    TNI_KILL_POINT("reclaim_claims_released");
    bool computes = may_still_compute(&d->segment, seat, who);
    uint64_t blocks = tni_ref_release_row(d, seat, computes);
    TNI_KILL_POINT("reclaim_row_released");
    if (!computes)
        tni_timelines_reclaim(&d->segment, who, pid);
    TNI_KILL_POINT("reclaim_timelines_settled");
    if (!computes)
        tni_leases_reclaim(&d->segment, who);
    TNI_KILL_POINT("reclaim_leases_settled");
    tni_recount_take_announces(d, seat);
    TNI_KILL_POINT("reclaim_announces_taken");
    tni_alloc_mark_sweep(d); /* the blocks in its caches are in no hint */
    /* It may have ended a slab and died before it told the others: backing/device.c, I9. */
    atomic_fetch_add(&d->segment.header->slabs_ended, 1);
    TNI_KILL_POINT("reclaim_hints_marked");
    if (status != 0)
        return leave_to_others(d, seat, word, "a live process has the registry");
    if (computes)
        return leave_to_others(d, seat, word,
                               "its process has not ended, and a device may work for it");
    set_free(d, seat, word);
    log_reclaimed(seat, pid, command, blocks, begun_ns);
    return 1;
}

int tni_reaper_reclaim(struct tn_domain *d, uint32_t seat)
{
    uint64_t word = 0;

    if (!tni_geometry_has_seat(&d->segment.geometry, seat) || seat == d->seat ||
        tni_seat_state(atomic_load(&tni_seat_at(&d->segment, seat)->word)) == TNI_SEAT_FREE ||
        !tni_reclaim_begin(d))
        return 0;
    int status = claim(d, seat, &word);
    bool was_our_parent = false;
    if (status > 0) {
        was_our_parent =
            ends_with(&d->segment, d->seat, tni_who(seat, tni_seat_incarnation(word)));
        status = reclaim_claimed(d, seat, word);
    }
    end(d);
    /* This process shall end with the dead one, whose seat is FREE now: no other will kill it.
     */
    if (was_our_parent && status == 1)
        kill_process(&d->segment, d->seat);
    return status;
}

/* One past the highest seat in use: a process may die before it raises the limit. */
static uint32_t last_seat(const struct tni_segment *s)
{
    uint32_t limit = tni_seat_limit(s);
    while (limit < s->geometry.seats &&
           tni_seat_state(atomic_load(&tni_seat_at(s, limit)->word)) != TNI_SEAT_FREE)
        limit++;
    return limit;
}

/* @return how many, or the last failure */
static int reclaim_seats(struct tn_domain *d, uint64_t deadline_ns)
{
    uint32_t limit = last_seat(&d->segment);
    int reclaimed = 0;

    for (uint32_t pass = 0;; pass++) {
        int now = 0, failed = 0;
        for (uint32_t seat = 0; seat < limit; seat++) {
            if (seat > 0 && deadline_ns != TNI_FOREVER && tni_os_now_ns() >= deadline_ns)
                return tni_fail(TN_ERR_TIMED_OUT,
                                "the deadline passed before all dead seats were reclaimed");
            int status = tni_reaper_reclaim(d, seat);
            now += status == 1;
            if (status < 0)
                failed = failed == TN_ERR_TIMED_OUT ? failed : status;
        }
        reclaimed += now;
        if (failed == 0)
            return reclaimed;
        /* Another dead seat may have had the registry, and be reclaimed now: try again. */
        if (now == 0 || pass == limit)
            return failed;
    }
}

int tni_reaper_reclaim_until(struct tn_domain *d, uint64_t deadline_ns)
{
    int reclaimed = reclaim_seats(d, deadline_ns);
    /* I6. Last: the announce of a dead seat that is not reclaimed yet would delay a recount. */
    int recounted = tni_reaper_recount(d, deadline_ns);
    return reclaimed < 0 || recounted == 0 ? reclaimed : recounted;
}

int tni_reaper_recount(struct tn_domain *d, uint64_t deadline_ns)
{
    if (d->seat == TNI_NO_SEAT)
        return 0;
    tni_object_finish_unopened(d);
    return tni_recount_suspects(d, deadline_ns);
}

int tni_reaper_reclaim_all(struct tn_domain *d)
{
    return tni_reaper_reclaim_until(d, TNI_FOREVER);
}
