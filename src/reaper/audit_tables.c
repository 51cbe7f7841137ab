/* SPDX-License-Identifier: Apache-2.0 */
/*
 * audit_tables: check limits, seats, claims and leases. A subject is wrong if it stays wrong
 * for a while.
 *
 * A FREE seat that still has something is repaired by reclaiming it: the audit makes it REAPING
 * without a recoverer, and then reclaims it as any dead seat.
 */
#include "reaper/audit.h"
#include "wait/wait.h"

static const char *const state_names[] = {"free", "joining", "alive", "leaving", "reaping"};

static uint64_t load_seat(const struct tni_segment *s, uint32_t seat)
{
    return atomic_load(&tni_seat_at(s, seat)->word);
}

static bool lives(const struct tni_segment *s, uint64_t who)
{
    return tni_process_who_lives(s, who);
}

/* ---- limits ------------------------------------------------------------------------------ */

static void check_limit(struct tni_audit *a, const char *what, _Atomic uint32_t *limit,
                        uint32_t most)
{
    uint32_t value = atomic_load(limit);
    if (value <= most)
        return;
    if (a->is_repair)
        atomic_store(limit, most);
    tni_audit_report(a, a->is_repair, "the limit of %s is %u, but there are only %u", what,
                     value, most);
}

static void check_limits(struct tni_audit *a)
{
    const struct tni_segment *s = a->segment;
    check_limit(a, "seats", &s->header->seat_limit, s->geometry.seats);
    check_limit(a, "objects", &s->header->object_limit, s->geometry.objects);
    check_limit(a, "tickets", &s->header->ticket_limit, s->geometry.tickets);
    check_limit(a, "leases", &s->header->lease_limit, TNI_LEASES);
    for (uint32_t c = 1; c < s->geometry.class_count; c++)
        check_limit(a, "blocks of a class", &tni_class_at(s, c)->frontier,
                    s->geometry.classes[c].capacity);
}

/* ---- seats ------------------------------------------------------------------------------- */

struct seat_subject {
    uint32_t seat;
    uint64_t word;
};

static bool is_unreclaimed(const struct tni_audit *a, const void *subject)
{
    const struct seat_subject *of = subject;
    uint64_t word = load_seat(a->segment, of->seat);
    if (word != of->word)
        return false;
    if (tni_seat_state(word) == TNI_SEAT_REAPING)
        return true;
    return tni_process_seat_state(a->segment, of->seat) == TNI_OS_DEAD;
}

static void check_taken(struct tni_audit *a, uint32_t seat, uint64_t word)
{
    struct seat_subject subject = {.seat = seat, .word = word};
    int32_t pid = atomic_load(&tni_seat_at(a->segment, seat)->pid);

    if (!is_unreclaimed(a, &subject))
        return;
    if (a->is_repair) {
        bool is_reclaimed = tni_reaper_reclaim(a->domain, seat) == 1;
        if (is_reclaimed || tni_audit_stays_wrong(a, is_unreclaimed, &subject))
            tni_audit_report(a, is_reclaimed,
                             "seat %u: process %d is dead and was not reclaimed", seat, pid);
    } else if (tni_audit_stays_wrong(a, is_unreclaimed, &subject)) {
        tni_audit_report(a, false, "seat %u: process %d is dead and not reclaimed (%s)", seat,
                         pid, state_names[tni_seat_state(word)]);
    }
}

static bool has_row(const struct tni_segment *s, uint32_t seat)
{
    for (uint32_t c = 1; c < s->geometry.class_count; c++) {
        uint32_t words = (tni_frontier(s, c) + 63) / 64;
        for (uint32_t w = 0; w < words; w++)
            if (atomic_load(tni_row_at(s, seat, s->geometry.classes[c].base + w * 64)) != 0)
                return true;
    }
    return false;
}

static bool has_announce(const struct tni_segment *s, uint32_t seat)
{
    for (uint32_t t = 0; t < TNI_THREADS; t++) {
        const struct tni_announce *announce = tni_announce_at(s, seat, t);
        if (atomic_load(&announce->block) != 0 || atomic_load(&announce->outer) != 0 ||
            atomic_load(&announce->commit_bytes) != 0 || atomic_load(&announce->object) != 0)
            return true;
    }
    return false;
}

static bool is_used_by(const struct tni_object *object, uint32_t seat)
{
    return tni_object_state(atomic_load(&object->word)) == TNI_OBJECT_LIVE &&
           (tni_seat_set_has(&object->openers, seat) ||
            tni_seat_set_has(&object->producers, seat) ||
            tni_seat_set_has(&object->consumers, seat) ||
            tni_seat_set_has(&object->watchers, seat));
}

static bool has_object(const struct tni_segment *s, uint32_t seat)
{
    uint32_t limit = tni_object_limit(s);
    for (uint32_t i = 0; i < limit; i++)
        if (is_used_by(tni_object_at(s, i), seat))
            return true;
    return false;
}

/* Complete the row of the seat: a reaper reclaims the objects that the row has. */
static void add_objects_to_row(const struct tni_segment *s, uint32_t seat)
{
    uint32_t limit = tni_object_limit(s);
    for (uint32_t i = 0; i < limit; i++)
        if (is_used_by(tni_object_at(s, i), seat))
            tni_bit_set(tni_opens_of(s, seat), i);
}

/* What a FREE seat still has; NULL: nothing. */
static const char *leftover(const struct tni_segment *s, uint32_t seat)
{
    return has_row(s, seat)        ? "holds blocks"
           : has_announce(s, seat) ? "announces blocks"
           : has_object(s, seat)   ? "has objects open"
                                   : NULL;
}

static bool has_leftover(const struct tni_audit *a, const void *subject)
{
    const struct seat_subject *of = subject;
    return leftover(a->segment, of->seat) != NULL &&
           load_seat(a->segment, of->seat) == of->word;
}

static bool reclaim_free_seat(struct tn_domain *d, uint32_t seat, uint64_t word)
{
    uint64_t reaping = tni_seat_word(tni_seat_incarnation(word), TNI_SEAT_REAPING, 0xffffff);
    add_objects_to_row(&d->segment, seat);
    return atomic_compare_exchange_strong(&tni_seat_at(&d->segment, seat)->word, &word,
                                          reaping) &&
           tni_reaper_reclaim(d, seat) == 1;
}

static void check_free(struct tni_audit *a, uint32_t seat, uint64_t word)
{
    struct seat_subject subject = {.seat = seat, .word = word};
    const char *what = leftover(a->segment, seat);
    if (what == NULL || !tni_audit_stays_wrong(a, has_leftover, &subject))
        return;
    bool is_reclaimed = a->is_repair && reclaim_free_seat(a->domain, seat, word);
    tni_audit_report(a, is_reclaimed, "seat %u is free, but %s", seat, what);
}

static void check_seats(struct tni_audit *a)
{
    const struct tni_segment *s = a->segment;
    uint32_t limit = tni_seat_limit(s);

    for (uint32_t seat = 0; seat < limit && a->stop == 0; seat++) {
        uint64_t word = load_seat(s, seat);
        if (tni_seat_state(word) == TNI_SEAT_FREE)
            check_free(a, seat, word);
        else if (tni_seat_state(word) <= TNI_SEAT_REAPING)
            check_taken(a, seat, word);
        else
            tni_audit_report(a, false, "seat %u is in state %u, which does not exist", seat,
                             tni_seat_state(word));
    }
}

/* ---- claims ------------------------------------------------------------------------------ */

struct claim_subject {
    const _Atomic uint64_t *claim;
    uint64_t who;
};

static bool is_orphaned(const struct tni_audit *a, const void *subject)
{
    const struct claim_subject *of = subject;
    return atomic_load(of->claim) == of->who && !lives(a->segment, of->who);
}

static void check_claim(struct tni_audit *a, const char *what, _Atomic uint64_t *claim)
{
    struct claim_subject subject = {.claim = claim, .who = atomic_load(claim)};
    if (subject.who == 0 || !is_orphaned(a, &subject) ||
        !tni_audit_stays_wrong(a, is_orphaned, &subject))
        return;
    if (a->is_repair) {
        tni_claim_release(claim, subject.who);
        tni_wait_notify_all(&a->segment->header->registry_wait);
    }
    tni_audit_report(a, a->is_repair, "%s belongs to seat %u, whose process has ended", what,
                     tni_who_seat(subject.who));
}

static void check_claims(struct tni_audit *a)
{
    struct tni_header *h = a->segment->header;
    check_claim(a, "the claim on making and ending objects", &h->registry);
    check_claim(a, "the claim on recounts", &h->recount);
    check_claim(a, "the claim to manage the domain", &h->manager);
}

/* ---- leases ------------------------------------------------------------------------------ */

struct lease_subject {
    const struct tni_lease *lease;
    uint64_t holder;
};

/* A seat that is being reclaimed may have leases until its whole process has ended. */
static bool is_forgotten(const struct tni_audit *a, const void *subject)
{
    const struct lease_subject *of = subject;
    return atomic_load(&of->lease->holder) == of->holder &&
           tni_process_who_state(a->segment, of->holder) == TNI_SEAT_FREE;
}

static void check_lease(struct tni_audit *a, uint32_t index)
{
    const struct tni_lease *lease = tni_lease_at(a->segment, index);
    struct lease_subject subject = {.lease = lease, .holder = atomic_load(&lease->holder)};
    if (subject.holder == 0 || subject.holder == TNI_LEASE_OVER || !is_forgotten(a, &subject) ||
        !tni_audit_stays_wrong(a, is_forgotten, &subject))
        return;
    if (a->is_repair)
        tni_leases_reclaim(a->segment, subject.holder);
    tni_audit_report(
        a, a->is_repair,
        "lease %u of memory of another allocator belongs to seat %u, whose process "
        "has ended",
        index, tni_who_seat(subject.holder));
}

static void check_leases(struct tni_audit *a)
{
    uint32_t limit = tni_lease_limit(a->segment);
    for (uint32_t i = 0; i < limit && a->stop == 0; i++)
        check_lease(a, i);
}

void tni_audit_tables(struct tni_audit *a)
{
    check_limits(a);
    check_seats(a);
    if (a->stop == 0)
        check_claims(a);
    check_leases(a);
    tni_audit_objects(a);
}
