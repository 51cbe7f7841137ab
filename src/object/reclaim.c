/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reclaim: reclaim what a dead seat left in the objects that it had open.
 *
 * Callers: the reaper. Death of the recoverer: each step is idempotent, and the next
 * recoverer begins at the first step. I2 and I4 are in handle.c, I3 and I5 in entry.c.
 */
#include "object/entry.h"
#include "object/names.h"
#include "object/registry.h"
#include "wait/wait.h"

static void note_death(struct tni_object *object, uint32_t side, uint32_t seat, int32_t pid)
{
    uint64_t old = atomic_load(&object->death[side]), next;
    if (side == TNI_SIDE_PRODUCER)
        atomic_fetch_or(&object->ended, TNI_QUEUE_ORPHANED); /* before others see the death */
    atomic_store(&object->death_pid[side], pid);
    do /* a CAS: another recoverer may count the death of another seat meanwhile */
        next = tni_death_word(tni_death_count(old) + 1, seat);
    while (!atomic_compare_exchange_strong(&object->death[side], &old, next));
}

static void reclaim_kind(struct tn_domain *d, struct tni_object *object, uint32_t number,
                         uint32_t seat)
{
    const struct tni_kind *kind = tni_kind_of(d, number);
    if (kind != NULL && kind->reclaim_seat != NULL)
        kind->reclaim_seat(d, object, seat);
}

/* The seat was for a child whose fork() failed: no process has died. */
static bool is_unborn(const struct tni_seat *entry)
{
    return (atomic_load(&entry->flags) & TNI_SEAT_UNBORN) != 0 && atomic_load(&entry->pid) == 0;
}

/*
 * The death is noted before the seat's bit is cleared. A recoverer that is killed in between
 * leaves the bit, and the next recoverer notes the death again. Waiters do not report a death
 * while the bit is set, so it does no harm either if two recoverers count two deaths as one.
 */
static void reclaim_role(struct tni_object *object, uint32_t side, uint32_t seat, int32_t pid)
{
    struct tni_seat_set *set =
        side == TNI_SIDE_PRODUCER ? &object->producers : &object->consumers;
    if (!tni_seat_set_has(set, seat))
        return;
    note_death(object, side, seat, pid);
    TNI_KILL_POINT("reclaim_role_noted");
    tni_seat_set_remove(set, seat);
}

/*
 * I4: a recoverer that begins anew comes to the object again. It wakes all waiters there even
 * if the recoverer before it has cleared the seat's bits.
 */
static void reclaim_live(struct tn_domain *d, struct tni_object *object, uint32_t kind,
                         uint32_t seat)
{
    const struct tni_seat *entry = tni_seat_at(&d->segment, seat);
    int32_t pid = atomic_load(&entry->pid);

    if (!tni_seat_set_has(&object->openers, seat) || is_unborn(entry)) {
        tni_entry_clear_bits(object, seat);
        tni_object_wake_all(&d->segment, object);
        return;
    }
    reclaim_kind(d, object, kind, seat);
    TNI_KILL_POINT("reclaim_object_kind");
    reclaim_role(object, TNI_SIDE_PRODUCER, seat, pid);
    reclaim_role(object, TNI_SIDE_CONSUMER, seat, pid);
    note_death(object, TNI_SIDE_ANY, seat, pid);
    TNI_KILL_POINT("reclaim_object_noted");
    tni_entry_clear_bits(object, seat);
    TNI_KILL_POINT("reclaim_object_closed");
    tni_object_wake_all(&d->segment, object);
}

/*
 * Undo an object that is half made, end one that is half ended or has no opener, and mark again
 * one that needs a recount. pre: this process has the registry.
 */
static void finish_object(struct tn_domain *d, uint32_t index)
{
    if (!tni_geometry_has_object(&d->segment.geometry, index))
        return;
    struct tni_object *object = tni_object_at(&d->segment, index);
    uint64_t word = atomic_load(&object->word);
    uint32_t state = tni_object_state(word);
    if (state == TNI_OBJECT_MAKING) {
        tni_entry_undo(d, object);
    } else if (state == TNI_OBJECT_ENDING ||
               (state == TNI_OBJECT_LIVE && tni_entry_is_unopened(object))) {
        tni_entry_end(d, object);
    } else if (tni_entry_has_suspects(object)) {
        tni_bit_set(tni_loose_of(&d->segment, TNI_LOOSE_SUSPECT), index);
    }
}

/*
 * Take the registry over from the dead seat, and finish the object that it was changing (I5).
 * If another process has the registry, wait for it briefly.
 */
static int registry_take_over(struct tn_domain *d, uint32_t dead)
{
    uint64_t who = atomic_load(&d->segment.header->registry);
    if (who == 0 || tni_who_seat(who) != dead || !tni_registry_take(d, who))
        return tni_registry_enter_reclaiming(d);
    finish_object(d, atomic_load(&d->segment.header->registry_object) - 1);
    return 0;
}

/*
 * pre: this process has the registry. The bit is cleared first: if a process closes the object
 * at the same time, either finish_object() sees that, or that process sets the bit again.
 */
static void finish_unopened(struct tn_domain *d)
{
    _Atomic uint64_t *row = tni_loose_of(&d->segment, TNI_LOOSE_UNOPENED);
    uint32_t limit = tni_object_limit(&d->segment);
    for (uint32_t i = tni_bit_next(row, 0, limit); i < limit;
         i = tni_bit_next(row, i + 1, limit)) {
        atomic_store(&d->segment.header->registry_object, i + 1); /* I5 */
        tni_bit_clear(row, i);
        TNI_KILL_POINT("object_unopened_cleared");
        finish_object(d, i);
    }
}

static bool has_unopened(const struct tni_segment *s)
{
    uint32_t limit = tni_object_limit(s);
    return tni_bit_next(tni_loose_of(s, TNI_LOOSE_UNOPENED), 0, limit) < limit;
}

void tni_object_finish_unopened(struct tn_domain *d)
{
    if (!has_unopened(&d->segment) || tni_registry_enter_reclaiming(d) != 0)
        return;
    finish_unopened(d);
    tni_registry_leave(d);
}

bool tni_object_hold_all(struct tn_domain *d) { return tni_registry_enter_reclaiming(d) == 0; }
void tni_object_end_unopened(struct tn_domain *d, uint32_t index)
{
    tni_entry_end_if_unopened(d, index);
}
void tni_object_let_go(struct tn_domain *d) { tni_registry_leave(d); }

int tni_object_finish(struct tn_domain *d, uint32_t index)
{
    int status = tni_registry_enter_reclaiming(d);
    if (status == 0) {
        finish_object(d, index);
        tni_registry_leave(d);
    }
    return status;
}

static bool needs_finish(const struct tn_domain *d, uint32_t dead)
{
    uint64_t who = atomic_load(&d->segment.header->registry);
    return (who != 0 && tni_who_seat(who) == dead) || has_unopened(&d->segment);
}

/* I4. Only its recoverer writes the row of a dead seat. */
static void reclaim_opens(struct tn_domain *d, bool are_queues, uint32_t seat)
{
    _Atomic uint64_t *row = tni_opens_of(&d->segment, seat);
    uint32_t limit = tni_object_limit(&d->segment);
    for (uint32_t i = tni_bit_next(row, 0, limit); i < limit;
         i = tni_bit_next(row, i + 1, limit)) {
        struct tni_object *object = tni_object_at(&d->segment, i);
        uint64_t word = atomic_load(&object->word);
        uint32_t kind = tni_object_kind(word);
        bool is_live = tni_object_state(word) == TNI_OBJECT_LIVE && kind < TNI_OBJECT_KINDS;
        if (are_queues && !(is_live && kind == TNI_OBJECT_QUEUE))
            continue;
        if (is_live) {
            reclaim_live(d, object, kind, seat);
            tni_entry_end_unopened(d, object, false);
        }
        TNI_KILL_POINT("reclaim_object_woken");
        tni_bit_clear(row, i);
    }
    tni_bit_forget(row, limit);
}

int tni_object_reclaim_seat(struct tn_domain *d, uint32_t seat)
{
    /*
     * Queues first. A program may count a queue's messages in a semaphore: a permit must not
     * come back before its message does.
     */
    reclaim_opens(d, true, seat);
    reclaim_opens(d, false, seat);
    int status = 0;
    if (needs_finish(d, seat) && (status = registry_take_over(d, seat)) == 0) {
        finish_unopened(d);
        tni_registry_leave(d);
    }
    for (uint32_t k = 0; k < TNI_OBJECT_KINDS; k++)
        if (tni_kind_of(d, k) != NULL && tni_kind_of(d, k)->take_announces != NULL)
            tni_kind_of(d, k)->take_announces(d, seat);
    /*
     * The dead process may have released the registry without a wake-up, or have died of the
     * only wake-up that was sent.
     */
    tni_wait_notify(&d->segment.header->registry_wait, INT32_MAX);
    return status;
}

/* ---- recounts of what dead threads were changing ----------------------------------------- */

bool tni_object_has_suspects(const struct tni_segment *s)
{
    return atomic_load(&s->header->objects_added) != atomic_load(&s->header->objects_done);
}

/* @return true: the object needs no recount any more */
static bool recount_kind(struct tn_domain *d, uint32_t index)
{
    const struct tni_kind *kind =
        tni_kind_of(d, tni_object_kind(atomic_load(&tni_object_at(&d->segment, index)->word)));
    return kind == NULL || kind->recount == NULL || kind->recount(d, index);
}

static bool recount_object(struct tn_domain *d, uint32_t index, uint64_t deadline_ns)
{
    bool is_done = recount_kind(d, index);
    if (is_done || tni_os_now_ns() >= deadline_ns)
        return is_done;
    tni_process_name_recounted(d, tni_recounted_object(index));
    uint32_t tries = 0;
    do {
        tni_os_back_off(tries++);
        is_done = recount_kind(d, index);
    } while (!is_done && tni_os_now_ns() < deadline_ns);
    tni_process_name_recounted(d, 0);
    return is_done;
}

int tni_object_recount(struct tn_domain *d, uint64_t deadline_ns)
{
    struct tni_header *h = d->segment.header;
    if (!tni_object_has_suspects(&d->segment))
        return 0;
    /* With the registry, no object ends meanwhile. */
    int status = tni_registry_enter_reclaiming(d);
    if (status != 0)
        return status;
    uint64_t added = atomic_load(&h->objects_added); /* marked before it was counted */
    uint32_t left = 0;
    _Atomic uint64_t *row = tni_loose_of(&d->segment, TNI_LOOSE_SUSPECT);
    uint32_t limit = tni_object_limit(&d->segment);
    for (uint32_t i = tni_bit_next(row, 0, limit); i < limit;
         i = tni_bit_next(row, i + 1, limit)) {
        const struct tni_object *object = tni_object_at(&d->segment, i);
        left += tni_entry_has_suspects(object) && !recount_object(d, i, deadline_ns);
        atomic_store(&h->registry_object, i + 1); /* I5 */
        tni_bit_clear(row, i);
        TNI_KILL_POINT("semaphore_unmarked");
        if (tni_entry_has_suspects(object)) /* not done, or marked again */
            tni_bit_set(row, i);
    }
    if (left == 0)
        atomic_store(&h->objects_done, added);
    tni_registry_leave(d);
    if (left == 0)
        return 0;
    return tni_fail(
        TN_ERR_TIMED_OUT,
        "%u semaphores could not be recounted yet, because live threads are changing "
        "them",
        left);
}
