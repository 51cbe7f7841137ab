/* SPDX-License-Identifier: Apache-2.0 */
/*
 * begin: which copies come when a task begins, what leaves for them, and what its end changes.
 *
 * Nouns: data, copy, memory, link, access (data.h).
 *
 * I1  The used bytes of a memory are those of its copies that have room and are not kept: in
 *     each state but NONE and GOING; and those that a task holds while it moves data
 *     (hold_room()). They are never more than its capacity.
 * I2  A copy with pins is neither evicted nor dropped. A copy without pins is idle; it is in
 *     the ring of its memory, unless it is kept.
 * I3  While a task that writes data runs, no other task runs with it, and nothing moves it.
 * I4  The last valid copy of data is evicted only after the host or the disk has one, unless
 *     the data is temporary and no task names it any more.
 * I5  Nothing is evicted from the disk. So what leaves a card always finds a place: the disk,
 *     where the host has no room for it.
 *
 * The room above moves data, without its lock, between tni_data_begin() and tni_data_moved().
 */
#include <stdlib.h>

#include "plan/copies.h"

/* ---- beginning --------------------------------------------------------------------------- */

/* The moves of a task, in their order. */
struct moves {
    struct tni_copy **end;
    uint32_t at;                 /* the memory of the task */
    uint64_t most, most_on_host; /* that is taken there and on the host at any time */
};

static void note_most(const struct tni_plan *plan, struct moves *moves)
{
    const struct tni_memory *all = plan->memories.all;
    moves->most = TNI_MAX(moves->most, all[moves->at].used);
    moves->most_on_host = TNI_MAX(moves->most_on_host, all[TNI_HOST].used);
}

static void add_move(struct moves *moves, struct tni_copy *copy)
{
    copy->is_moved = false;
    copy->next_move = NULL;
    *moves->end = copy;
    moves->end = &copy->next_move;
}

/* Let a copy come. @param source  pinned until it is there; NULL: room only */
static void let_come(struct tni_plan *plan, struct moves *moves, struct tni_copy *copy,
                     struct tni_copy *source)
{
    copy->had_room = tni_copy_has_room(copy);
    if (!copy->had_room)
        tni_copy_take_room(plan, copy, (int64_t)copy->data->bytes);
    else if (copy->pins == 0)
        tni_copy_remove_idle(plan, copy);
    note_most(plan, moves);
    if (source != NULL)
        tni_copy_pin(plan, source);
    copy->from = source != NULL ? source->memory : TNI_NO_MEMORY;
    copy->state = TNI_COPY_COMING;
    add_move(moves, copy);
}

static bool is_needed(const struct tni_data *data)
{
    /* This acquire pairs with the release in end_one(). */
    return !data->is_temporary || atomic_load_explicit(&data->uses, memory_order_acquire) != 0;
}

/* Whether another memory needs a copy before this one leaves. */
static bool is_dirty(const struct tni_plan *plan, const struct tni_copy *copy)
{
    if (copy->state != TNI_COPY_VALID || !is_needed(copy->data))
        return false;
    for (uint32_t m = 0; m < plan->memories.count; m++)
        if (m != copy->memory && copy->data->copies[m].state == TNI_COPY_VALID)
            return false;
    return true;
}

/* Evict an idle copy. @param back  the copy that gets its content before; NULL: none */
static void evict(struct tni_plan *plan, struct moves *moves, struct tni_copy *copy,
                  struct tni_copy *back)
{
    struct tni_memory *memory = tni_copy_memory(plan, copy);
    if (back != NULL) {
        let_come(plan, moves, back, copy);
        copy->pins--; /* it goes, so it is not idle again */
    } else {
        tni_copy_remove_idle(plan, copy);
    }
    copy->was_valid = copy->state == TNI_COPY_VALID;
    copy->state = TNI_COPY_GOING;
    memory->used -= copy->data->bytes;
    memory->evictions++;
    memory->evicted_bytes += copy->data->bytes;
    add_move(moves, copy);
}

/* The copy that leaves next: of those that were not used for long, one that needs no copy
   elsewhere before, else the oldest. NULL: none is idle. */
static struct tni_copy *find_leaver(const struct tni_plan *plan,
                                    const struct tni_memory *memory)
{
    enum { LOOKED_AT = 32 }; /* the younger ones are likely to be used again */
    struct tni_copy *oldest = memory->oldest.next, *copy = oldest;
    for (uint32_t i = 0; i < LOOKED_AT && copy != &memory->oldest; i++, copy = copy->next)
        if (!is_dirty(plan, copy))
            return copy;
    return oldest != &memory->oldest ? oldest : NULL;
}

/* Evict to the disk until the host has as many bytes free. @return whether it has */
static bool make_room_on_host(struct tni_plan *plan, struct moves *moves, uint64_t bytes)
{
    struct tni_memory *host = &plan->memories.all[TNI_HOST];
    struct tni_copy *copy;
    if (host->capacity - host->used + host->idle < bytes)
        return false;
    while (host->capacity - host->used < bytes && (copy = find_leaver(plan, host)) != NULL)
        evict(plan, moves, copy, is_dirty(plan, copy) ? &copy->data->copies[TNI_DISK] : NULL);
    return true;
}

/* Where the content of a copy goes that leaves a card: to the host, which makes room for it, or
   to the disk. */
static struct tni_copy *find_back(struct tni_plan *plan, struct moves *moves,
                                  const struct tni_copy *copy)
{
    struct tni_copy *on_host = &copy->data->copies[TNI_HOST];
    bool has_host = !tni_copy_is_in_transit(on_host) &&
                    make_room_on_host(plan, moves, tni_copy_room_for(on_host));
    return has_host ? on_host : &copy->data->copies[TNI_DISK];
}

/* Evict from a card until it has as many bytes free, or nothing is idle. */
static void make_room(struct tni_plan *plan, struct moves *moves, uint64_t bytes)
{
    struct tni_memory *memory = &plan->memories.all[moves->at];
    struct tni_copy *copy;
    while (memory->capacity - memory->used < bytes &&
           (copy = find_leaver(plan, memory)) != NULL)
        evict(plan, moves, copy, is_dirty(plan, copy) ? find_back(plan, moves, copy) : NULL);
}

/*
 * What failed to leave takes its room again, and what came keeps it, so nobody gets what is
 * free between the moves until all have ended (I1).
 */
static void hold_room(struct tni_plan *plan, const struct moves *moves,
                      struct tni_running *running)
{
    struct tni_memory *its = &plan->memories.all[moves->at],
                      *host = &plan->memories.all[TNI_HOST];
    running->held_bytes = moves->most - its->used;
    its->used += running->held_bytes;
    running->held_host_bytes = its != host ? moves->most_on_host - host->used : 0;
    host->used += running->held_host_bytes;
}

/*
 * Pin what the task needs there, and what comes there from elsewhere, so that none of it leaves
 * for the rest. @return the bytes that it needs
 */
static uint64_t pin_all(struct tni_plan *plan, struct tni_running *running)
{
    uint64_t needed = 0;
    for (const struct tni_access *a = running->accesses; a->data != NULL; a++) {
        struct tni_copy *copy = &a->data->copies[running->memory], *source = NULL;
        bool writes = (a->mode & TNI_WRITES) != 0;
        needed += tni_copy_room_for(copy);
        tni_copy_pin(plan, copy);
        if (writes)
            tni_copy_pin_others(plan, copy);
        a->data->is_written |= writes;
        a->data->readers += !writes;
        if ((a->mode & TNI_READS) == 0 || copy->state == TNI_COPY_VALID)
            continue;
        if ((source = tni_data_source(plan, a->data, running->memory)) == NULL)
            running->lacking = a->data;
        else
            tni_copy_pin(plan, source);
        copy->from = source != NULL ? source->memory : TNI_NO_MEMORY;
    }
    return needed;
}

/* Let come what the task needs. */
static void bring_all(struct tni_plan *plan, struct moves *moves,
                      const struct tni_running *running)
{
    for (const struct tni_access *a = running->accesses; a->data != NULL; a++) {
        struct tni_copy *copy = &a->data->copies[running->memory], *source = NULL;
        if ((a->mode & TNI_READS) != 0 && copy->state != TNI_COPY_VALID &&
            copy->from != TNI_NO_MEMORY)
            source = &a->data->copies[copy->from];
        if (source != NULL || !tni_copy_has_room(copy))
            let_come(plan, moves, copy, source);
        if (source != NULL)
            tni_copy_unpin(plan, source); /* let_come() pinned it, too */
    }
}

void tni_data_begin(struct tni_plan *plan, struct tni_running *running, bool empties)
{
    struct moves moves = {.end = &running->moves, .at = running->memory};
    running->moves = NULL;
    running->lacking = NULL;
    running->has_run = running->has_failed = false;
    uint64_t needed = pin_all(plan, running);
    note_most(plan, &moves);
    if (running->memory == TNI_HOST)
        (void)make_room_on_host(plan, &moves, needed);
    else
        make_room(plan, &moves, empties ? UINT64_MAX : needed);
    bring_all(plan, &moves, running);
    hold_room(plan, &moves, running);
    running->move_ns = 0;
    for (const struct tni_copy *copy = running->moves; copy != NULL; copy = copy->next_move)
        if (copy->state == TNI_COPY_COMING && copy->from != TNI_NO_MEMORY)
            running->move_ns += (uint64_t)((double)copy->data->bytes *
                                           plan->memories.ns_per_byte[tni_link_between(
                                               &plan->memories, copy->from, copy->memory)]);
}

/* ---- moved, ended ------------------------------------------------------------------------ */

static void settle_coming(struct tni_plan *plan, struct tni_copy *copy)
{
    struct tni_copy *source =
        copy->from != TNI_NO_MEMORY ? &copy->data->copies[copy->from] : NULL;
    copy->state = copy->is_moved && source != NULL   ? TNI_COPY_VALID
                  : copy->is_moved || copy->had_room ? TNI_COPY_STALE
                                                     : TNI_COPY_NONE;
    if (copy->state == TNI_COPY_NONE)
        tni_copy_take_room(plan, copy, -(int64_t)copy->data->bytes);
    else if (copy->is_moved)
        tni_copy_memory(plan, copy)->arrivals_bytes += source != NULL ? copy->data->bytes : 0;
    if (copy->pins == 0 && tni_copy_has_room(copy))
        tni_copy_add_idle(plan, copy);
    if (source != NULL && source->state != TNI_COPY_GOING)
        tni_copy_unpin(plan, source);
}

static void settle_going(struct tni_plan *plan, struct tni_copy *copy)
{
    copy->state = TNI_COPY_NONE;
    if (copy->is_moved)
        return;
    copy->state = copy->was_valid ? TNI_COPY_VALID : TNI_COPY_STALE;
    tni_copy_take_room(plan, copy, (int64_t)copy->data->bytes);
    tni_copy_add_idle(plan, copy);
}

void tni_data_moved(struct tni_plan *plan, struct tni_running *running)
{
    struct tni_copy *next;
    plan->memories.all[running->memory].used -= running->held_bytes;
    plan->memories.all[TNI_HOST].used -= running->held_host_bytes;
    running->held_bytes = running->held_host_bytes = 0;
    for (struct tni_copy *copy = running->moves; copy != NULL; copy = next) {
        next = copy->next_move;
        if (copy->state == TNI_COPY_COMING)
            settle_coming(plan, copy);
        else
            settle_going(plan, copy);
    }
    running->moves = NULL;
}

/* A task that wrote has ended: of the copies its own is valid, or none if it failed. */
static void settle_write(struct tni_plan *plan, const struct tni_running *running,
                         struct tni_copy *its)
{
    for (uint32_t m = 0; !running->has_failed && m < plan->memories.count; m++)
        if (its->data->copies[m].state == TNI_COPY_VALID)
            its->data->copies[m].state = TNI_COPY_STALE;
    if (tni_copy_has_room(its))
        its->state = running->has_failed ? TNI_COPY_STALE : TNI_COPY_VALID;
}

/* Note which task makes the data again, should all copies be lost. */
static void note_maker(struct tni_plan *plan, const struct tni_running *running,
                       const struct tni_access *access)
{
    bool is_whole = access->mode == TNI_WRITES && !running->has_failed;
    access->data->written_at = ++plan->data_events;
    access->data->maker = is_whole ? running->task : NULL;
}

void tni_data_end(struct tni_plan *plan, struct tni_running *running)
{
    tni_data_moved(plan, running); /* nothing is left, unless the task did not run */
    for (const struct tni_access *a = running->accesses; a->data != NULL; a++) {
        struct tni_copy *its = &a->data->copies[running->memory];
        if ((a->mode & TNI_WRITES) == 0) {
            a->data->readers--;
        } else {
            a->data->is_written = false;
            if (running->has_run)
                settle_write(plan, running, its);
            if (running->has_run)
                note_maker(plan, running, a);
            tni_copy_unpin_others(plan, its);
        }
        tni_copy_unpin(plan, its);
    }
    running->accesses = NULL;
}
