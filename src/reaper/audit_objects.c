/* SPDX-License-Identifier: Apache-2.0 */
/* audit_objects: check objects and tickets. A subject is wrong if it stays wrong for a while.
 */
#include <string.h>

#include "channel/channel.h"
#include "reaper/audit.h"
#include "store/store.h"
#include "wait/wait.h"

struct object_subject {
    uint32_t index;
    uint64_t word;
};

/* What is wrong with an object; NULL for nothing. */
static const char *object_fault(const struct tni_segment *s, uint32_t index)
{
    const struct tni_object *object = tni_object_at(s, index);
    uint64_t word = atomic_load(&object->word);
    uint32_t state = tni_object_state(word), kind = tni_object_kind(word);

    if (state == TNI_OBJECT_FREE)
        return kind == TNI_OBJECT_FREE ? NULL : "free, but it has a kind";
    if (kind == TNI_OBJECT_FREE || kind >= TNI_OBJECT_KINDS)
        return "of no known kind";
    switch (state) {
    case TNI_OBJECT_MAKING:
        return tni_process_who_lives(s, atomic_load(&s->header->registry))
                   ? NULL
                   : "half made, and no live process makes it";
    case TNI_OBJECT_ENDING:
        return tni_process_who_lives(s, atomic_load(&s->header->registry))
                   ? NULL
                   : "half ended, and no live process ends it";
    case TNI_OBJECT_LIVE: /* a store that is kept needs no opener */
        return tni_seat_set_count(&object->openers, TNI_NO_SEAT) != 0 ||
                       (atomic_load(&object->ended) & TNI_STORE_KEPT) != 0
                   ? NULL
                   : "open in no seat";
    default:
        return "in a state that does not exist";
    }
}

static bool is_faulty(const struct tni_audit *a, const void *subject)
{
    const struct object_subject *of = subject;
    return object_fault(a->segment, of->index) != NULL &&
           atomic_load(&tni_object_at(a->segment, of->index)->word) == of->word;
}

static void check_object(struct tni_audit *a, uint32_t index)
{
    struct tni_object *object = tni_object_at(a->segment, index);
    struct object_subject subject = {.index = index, .word = atomic_load(&object->word)};
    const char *fault = object_fault(a->segment, index);
    if (fault == NULL || !tni_audit_stays_wrong(a, is_faulty, &subject))
        return;
    const char *kind = tni_object_kind_name(tni_object_kind(subject.word));
    bool is_repaired =
        a->is_repair && tni_object_finish(a->domain, index) == 0 && !is_faulty(a, &subject);
    tni_audit_report(a, is_repaired, "object %u (%s '%.*s') is %s", index,
                     kind != NULL ? kind : "?", TNI_OBJECT_NAME_BYTES, object->name, fault);
}

static bool is_name_lost(const struct tni_audit *a, const void *subject)
{
    const struct object_subject *of = subject;
    return tni_object_state(of->word) == TNI_OBJECT_LIVE &&
           !tni_names_has(a->segment, of->index) &&
           atomic_load(&tni_object_at(a->segment, of->index)->word) == of->word;
}

/* The repair has the next search for a name build all chains anew. */
static void check_name(struct tni_audit *a, uint32_t index)
{
    const struct tni_object *object = tni_object_at(a->segment, index);
    struct object_subject subject = {.index = index, .word = atomic_load(&object->word)};
    if (!is_name_lost(a, &subject) || !tni_audit_stays_wrong(a, is_name_lost, &subject))
        return;
    if (a->is_repair)
        atomic_store(&a->segment->header->names_lost, 1);
    tni_audit_report(a, a->is_repair, "object %u is not found by its name '%.*s'", index,
                     TNI_OBJECT_NAME_BYTES, object->name);
}

/* A seat that has the object open and whose row does not say so: a reaper would not find it. */
static uint32_t unlisted_opener(const struct tni_segment *s, uint32_t index)
{
    const struct tni_object *object = tni_object_at(s, index);
    for (uint32_t seat = 0; seat < s->geometry.seats; seat++)
        if (tni_seat_state(atomic_load(&tni_seat_at(s, seat)->word)) != TNI_SEAT_FREE &&
            tni_seat_set_has(&object->openers, seat) &&
            !tni_bit_is_set(tni_opens_of(s, seat), index))
            return seat;
    return TNI_NO_SEAT;
}

static bool has_unlisted_opener(const struct tni_audit *a, const void *subject)
{
    const struct object_subject *of = subject;
    return tni_object_state(of->word) == TNI_OBJECT_LIVE &&
           unlisted_opener(a->segment, of->index) != TNI_NO_SEAT &&
           atomic_load(&tni_object_at(a->segment, of->index)->word) == of->word;
}

static void check_opens(struct tni_audit *a, uint32_t index)
{
    uint64_t word = atomic_load(&tni_object_at(a->segment, index)->word);
    struct object_subject subject = {.index = index, .word = word};
    if (!has_unlisted_opener(a, &subject) ||
        !tni_audit_stays_wrong(a, has_unlisted_opener, &subject))
        return;
    uint32_t seat = unlisted_opener(a->segment, index);
    for (uint32_t at = seat; a->is_repair && at != TNI_NO_SEAT;
         at = unlisted_opener(a->segment, index))
        tni_bit_set(tni_opens_of(a->segment, at), index);
    tni_audit_report(a, a->is_repair, "object %u is open in seat %u, whose row does not say so",
                     index, seat);
}

/* No process would ever clear the bit of a seat that does not exist. */
static bool has_unknown_seats(const struct tni_segment *s, const struct tni_seat_set *set)
{
    for (uint32_t w = 0; w < TNI_SEAT_WORDS; w++)
        for (uint64_t bits = atomic_load(&set->word[w]); bits != 0; bits &= bits - 1)
            if (!tni_geometry_has_seat(&s->geometry, w * 64 + tni_low_bit(bits)))
                return true;
    return false;
}

static void check_sets(struct tni_audit *a, uint32_t index)
{
    const struct tni_object *object = tni_object_at(a->segment, index);
    if (tni_object_state(atomic_load(&object->word)) == TNI_OBJECT_LIVE &&
        (has_unknown_seats(a->segment, &object->openers) ||
         has_unknown_seats(a->segment, &object->producers) ||
         has_unknown_seats(a->segment, &object->consumers) ||
         has_unknown_seats(a->segment, &object->watchers)))
        tni_audit_report(a, false, "object %u is used by seats that do not exist", index);
}

static void check_ring(struct tni_audit *a, uint32_t index)
{
    const struct tni_object *object = tni_object_at(a->segment, index);
    uint64_t word = atomic_load(&object->word);
    uint32_t ring = atomic_load(&object->ring);
    uint32_t kind = tni_object_kind(word);
    bool needs_ring =
        kind == TNI_OBJECT_QUEUE || kind == TNI_OBJECT_STORE || kind == TNI_OBJECT_CHANNEL;

    if (tni_object_state(word) != TNI_OBJECT_LIVE || (ring == 0 && !needs_ring) ||
        atomic_load(&object->word) != word)
        return;
    if (!tni_geometry_has_block(&a->segment->geometry, ring))
        tni_audit_report(a, false,
                         "object %u has its slots in block %08x, which does not exist", index,
                         ring);
}

static void check_slots(struct tni_audit *a, uint32_t index)
{
    const struct tni_object *object = tni_object_at(a->segment, index);
    uint64_t word = atomic_load(&object->word);
    if (tni_object_state(word) != TNI_OBJECT_LIVE || tni_object_kind(word) != TNI_OBJECT_QUEUE)
        return;
    uint32_t orphaned = tni_queue_count_orphaned(a->segment, index);
    if (orphaned > 0 && atomic_load(&object->word) == word)
        tni_audit_report(a, false, "queue %u has %u slots of seats that are free", index,
                         orphaned);
}

static void check_store(struct tni_audit *a, uint32_t index)
{
    const char *fault = tni_store_fault(a->segment, index);
    if (fault != NULL)
        tni_audit_report(a, false, "store %u %s", index, fault);
}

static void check_channel(struct tni_audit *a, uint32_t index)
{
    const char *fault = tni_channel_fault(a->segment, index);
    if (fault != NULL)
        tni_audit_report(a, false, "channel %u %s", index, fault);
}

static void check_objects(struct tni_audit *a)
{
    uint32_t limit = tni_object_limit(a->segment);
    for (uint32_t i = 0; i < limit && a->stop == 0; i++) {
        check_object(a, i);
        check_name(a, i);
        check_opens(a, i);
        check_sets(a, i);
        check_ring(a, i);
        check_slots(a, i);
        check_store(a, i);
        check_channel(a, i);
    }
}

struct ticket_subject {
    uint32_t index;
    uint64_t word;
};

static bool is_half_made(const struct tni_audit *a, const void *subject)
{
    const struct ticket_subject *of = subject;
    uint32_t maker = tni_ticket_maker(of->word);
    return atomic_load(&tni_ticket_at(a->segment, of->index)->word) == of->word &&
           tni_ticket_state(of->word) == TNI_TICKET_MAKING &&
           (!tni_geometry_has_seat(&a->segment->geometry, maker) ||
            tni_seat_state(atomic_load(&tni_seat_at(a->segment, maker)->word)) ==
                TNI_SEAT_FREE);
}

static bool undo_ticket(struct tn_domain *d, uint32_t index, uint64_t word)
{
    uint32_t maker = tni_ticket_maker(word);
    if (!tni_geometry_has_seat(&d->segment.geometry, maker))
        return false;
    tni_bit_set(tni_issues_of(&d->segment, maker), index / TNI_TICKET_GROUP);
    tni_ticket_reclaim_seat(d, tni_who(maker, tni_seat_incarnation(atomic_load(
                                                  &tni_seat_at(&d->segment, maker)->word))));
    return true;
}

static void check_ticket(struct tni_audit *a, uint32_t index)
{
    const struct tni_ticket *ticket = tni_ticket_at(a->segment, index);
    struct ticket_subject subject = {.index = index, .word = atomic_load(&ticket->word)};

    if (tni_ticket_state(subject.word) > TNI_TICKET_EXPIRED) {
        tni_audit_report(a, false, "ticket %u is in state %u, which does not exist", index,
                         tni_ticket_state(subject.word));
        return;
    }
    if (!is_half_made(a, &subject) || !tni_audit_stays_wrong(a, is_half_made, &subject))
        return;
    bool is_undone = a->is_repair && undo_ticket(a->domain, index, subject.word) &&
                     !is_half_made(a, &subject);
    tni_audit_report(a, is_undone,
                     "ticket %u is half made, and the process that made it has ended", index);
}

static void check_tickets(struct tni_audit *a)
{
    uint32_t limit = tni_ticket_limit(a->segment);
    for (uint32_t i = 0; i < limit && a->stop == 0; i++)
        check_ticket(a, i);
}

void tni_audit_objects(struct tni_audit *a)
{
    check_objects(a);
    check_tickets(a);
}
