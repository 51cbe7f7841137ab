/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reclaim: one dead seat, from REAPING to FREE.
 *
 * Nouns: recoverer (the seat that reclaims another one), suspect (a block whose count may be
 * wrong).
 * I1  Only a seat whose whole process is gone, or was replaced by exec, becomes REAPING.
 * I2  Every step may be repeated: what a step gives back it un-records first, under our own
 *     announce.
 * I3  The seat is FREE, with the next incarnation, only after its row, announces, bits and
 *     claims are empty. Never earlier: what it left must not meet a new owner.
 * I4  A seat has at most one recoverer; one that cannot finish gives the seat back to nobody.
 * I5  Waits end before memory is reclaimed.
 * I6  A seat waits for no recount: the blocks that it announced become suspects (recount.c),
 *     which are recounted once all seats are reclaimed, and again until it has been done.
 * Callers: tenond, every member that waits, tn_domain_reap(), the audit. Death: the seat stays
 * REAPING by somebody dead, and the next to look takes it over and starts from the top (I2);
 * our own announces and row are reclaimed with our own seat.
 */
#include <signal.h>

#include "reaper/manager.h"
#include "reaper/recount.h"
#include "wait/wait.h"

/* ---- who reclaims -------------------------------------------------------------------------
 */

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
 * One thread of a process at a time. What a parent's thread was at is nothing to its forked
 * child.
 */
bool tni_reclaim_begin(struct tn_domain *d)
{
    uint64_t seen = atomic_load(&tni_reaper_part(d)->reaping);
    return d->seat != TNI_NO_SEAT && seen != d->who &&
           atomic_compare_exchange_strong(&tni_reaper_part(d)->reaping, &seen, d->who);
}

static void end(struct tn_domain *d) { atomic_store(&tni_reaper_part(d)->reaping, 0); }

/*
 * I1, I4. @return 1: *ret_word is the seat's word now, and we are its recoverer
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
         * Our own name: tni_reclaim_begin() says that no thread of ours is at it, so one was
         * torn away from it.
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

/* ---- what it leaves behind --------------------------------------------------------------- */

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
    /* Looked at after the descriptor was there: it means the process that the seat means. */
    if (tni_process_is_here(s, seat) && atomic_load(&entry->word) == word)
        (void)(status == 0 ? tni_os_process_signal(fd, SIGKILL)
                           : tni_os_process_signal_number(pid, SIGKILL));
    if (status == 0)
        tni_os_close(fd);
}

/*
 * Children that are to end with the dead one, but for ourselves: we have something to finish.
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
 * The registry is not here: tni_object_reclaim_seat() took it over and finished what it was
 * taken for.
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

/* pre: the seat is REAPING by us; word says so. */
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
    uint64_t blocks = tni_ref_release_row(d, seat);
    TNI_KILL_POINT("reclaim_row_released");
    tni_recount_take_announces(d, seat);
    TNI_KILL_POINT("reclaim_announces_taken");
    tni_alloc_mark_sweep(d); /* the hints it had cached are lost */
    TNI_KILL_POINT("reclaim_hints_marked");
    if (status != 0) {
        /* I4: whoever comes first goes on, be it us. */
        atomic_compare_exchange_strong(
            &entry->word, &word,
            tni_seat_word(tni_seat_incarnation(word), TNI_SEAT_REAPING, TNI_SEAT_NOBODY));
        tni_log(TNI_LOG_DEBUG, "seat %u: somebody is in the way, to be tried again", seat);
        return tni_fail(TN_ERR_TIMED_OUT, "seat %u: a live thread is in the way", seat);
    }
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
    /* We were to end with it, and nobody looks for us once its seat is free. */
    if (was_our_parent && status == 1)
        kill_process(&d->segment, d->seat);
    return status;
}

/* One past the highest seat that may be taken: a claimer may die before it raises the limit. */
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
                return tni_fail(TN_ERR_TIMED_OUT, "there are more of the dead to be reclaimed");
            int status = tni_reaper_reclaim(d, seat);
            now += status == 1;
            if (status < 0)
                failed = failed == TN_ERR_TIMED_OUT ? failed : status;
        }
        reclaimed += now;
        if (failed == 0)
            return reclaimed;
        /* What was in the way may have been one of the others that are reclaimed now. */
        if (now == 0 || pass == limit)
            return failed;
    }
}

int tni_reaper_reclaim_until(struct tn_domain *d, uint64_t deadline_ns)
{
    int reclaimed = reclaim_seats(d, deadline_ns);
    /* I6. Last: an announce of a dead seat that was not reclaimed would be in the way. */
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
