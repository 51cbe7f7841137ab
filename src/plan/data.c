/* SPDX-License-Identifier: Apache-2.0 */
/*
 * data: which copies a task needs, where, and what has to leave for them.
 *
 * Nouns: data, copy, memory, link, access (data.h).
 *
 * I1  The used bytes of a memory are those of its copies that have room: in each state but
 *     NONE and GOING; and those that a task holds while it moves data (make_room()). They are
 *     never more than its capacity.
 * I2  A copy with pins is neither evicted nor dropped. A copy without pins is idle, and in the
 *     ring of its memory.
 * I3  While a task that writes data runs, no other task runs with it, and nothing moves it.
 * I4  The last valid copy of data is evicted only after the host has one, unless the data is
 *     temporary and no task names it any more.
 *
 * The room above moves data, without its lock, between tni_data_begin() and tni_data_moved().
 */
#include <stdlib.h>

#include "plan/plan.h"

/* ---- data -------------------------------------------------------------------------------- */

static struct tni_memory *memory_of(struct tni_plan *plan, const struct tni_copy *copy)
{
    return &plan->memories.all[copy->memory];
}

static void add_idle(struct tni_plan *plan, struct tni_copy *copy)
{
    struct tni_memory *memory = memory_of(plan, copy);
    copy->next = &memory->oldest;
    copy->prev = memory->oldest.prev;
    copy->prev->next = copy->next->prev = copy;
    memory->idle += copy->data->bytes;
}

static void remove_idle(struct tni_plan *plan, struct tni_copy *copy)
{
    copy->prev->next = copy->next;
    copy->next->prev = copy->prev;
    memory_of(plan, copy)->idle -= copy->data->bytes;
}

static bool has_room(const struct tni_copy *copy)
{
    return copy->state == TNI_COPY_STALE || copy->state == TNI_COPY_VALID;
}

static bool is_in_transit(const struct tni_copy *copy)
{
    return copy->state == TNI_COPY_COMING || copy->state == TNI_COPY_GOING;
}

static bool is_moving(const struct tni_plan *plan, const struct tni_data *data)
{
    for (uint32_t m = 0; m < plan->memories.count; m++)
        if (is_in_transit(&data->copies[m]))
            return true;
    return false;
}

static void pin(struct tni_plan *plan, struct tni_copy *copy)
{
    if (copy->pins++ == 0 && has_room(copy))
        remove_idle(plan, copy);
}

static void unpin(struct tni_plan *plan, struct tni_copy *copy)
{
    if (--copy->pins == 0 && has_room(copy))
        add_idle(plan, copy);
}

/* No copy of data that is written is idle: it is neither evicted nor written back. */
static void pin_others(struct tni_plan *plan, const struct tni_copy *its)
{
    for (uint32_t m = 0; m < plan->memories.count; m++)
        if (m != its->memory && has_room(&its->data->copies[m]))
            pin(plan, &its->data->copies[m]);
}

static void unpin_others(struct tni_plan *plan, const struct tni_copy *its)
{
    for (uint32_t m = 0; m < plan->memories.count; m++)
        if (m != its->memory && has_room(&its->data->copies[m]))
            unpin(plan, &its->data->copies[m]);
}

struct tni_data *tni_data_create(struct tni_plan *plan, uint64_t bytes, uint32_t first)
{
    uint32_t count = plan->memories.count;
    struct tni_data *data = calloc(1, sizeof *data + count * sizeof data->copies[0]);
    if (data == NULL)
        return NULL;
    data->bytes = bytes;
    for (uint32_t m = 0; m < count; m++)
        data->copies[m] = (struct tni_copy){.data = data, .memory = (uint8_t)m};
    if (first != TNI_NO_MEMORY) {
        struct tni_copy *copy = &data->copies[first];
        copy->data = data;
        copy->is_kept = first == TNI_HOST;
        copy->state = TNI_COPY_VALID;
        memory_of(plan, copy)->used += bytes;
        add_idle(plan, copy);
    }
    return data;
}

bool tni_data_is_quiet(const struct tni_plan *plan, const struct tni_data *data)
{
    /* This acquire pairs with the release in end_one(). */
    if (atomic_load_explicit(&data->uses, memory_order_acquire) != 0 || is_moving(plan, data))
        return false;
    for (uint32_t m = 0; m < plan->memories.count; m++)
        if (data->copies[m].pins > 0)
            return false;
    return true;
}

uint64_t tni_data_end_use(struct tni_plan *plan, struct tni_data *data)
{
    uint64_t held = 0;
    for (uint32_t m = 0; m < plan->memories.count; m++) {
        struct tni_copy *copy = &data->copies[m];
        if (has_room(copy))
            pin(plan, copy);
        if (has_room(copy) && !copy->is_kept)
            held |= UINT64_C(1) << m;
    }
    return held;
}

void tni_data_free(struct tni_plan *plan, struct tni_data *data)
{
    for (uint32_t m = 0; m < plan->memories.count; m++)
        if (has_room(&data->copies[m]))
            plan->memories.all[m].used -= data->bytes;
    free(data);
}

/* ---- whether a task can begin ------------------------------------------------------------ */

/* Whether a copy from one memory comes sooner than from another. A failed device gives none. */
static bool is_nearer(const struct tni_plan *plan, uint32_t one, uint32_t other, uint32_t to)
{
    const struct tni_memories *memories = &plan->memories;
    if (memories->all[one].is_lost != memories->all[other].is_lost)
        return memories->all[other].is_lost;
    return memories->ns_per_byte[tni_link_between(memories, one, to)] <
           memories->ns_per_byte[tni_link_between(memories, other, to)];
}

/* The valid copy that is brought to a memory in the least time; NULL: none is valid. */
static struct tni_copy *find_source(const struct tni_plan *plan, struct tni_data *data,
                                    uint32_t to)
{
    struct tni_copy *best = NULL;
    for (uint32_t m = 0; m < plan->memories.count; m++)
        if (data->copies[m].state == TNI_COPY_VALID &&
            (best == NULL || is_nearer(plan, m, best->memory, to)))
            best = &data->copies[m];
    return best;
}

uint64_t tni_data_cost_ns(const struct tni_plan *plan, const struct tni_access *accesses,
                          uint32_t memory)
{
    double cost = 0;
    for (const struct tni_access *a = accesses; a->data != NULL; a++) {
        if ((a->mode & TNI_READS) == 0 || a->data->copies[memory].state == TNI_COPY_VALID)
            continue;
        const struct tni_copy *source = find_source(plan, a->data, memory);
        if (source != NULL)
            cost += (double)a->data->bytes *
                    plan->memories
                        .ns_per_byte[tni_link_between(&plan->memories, source->memory, memory)];
    }
    return (uint64_t)cost;
}

static uint64_t bytes_of(const struct tni_access *accesses)
{
    uint64_t bytes = 0;
    for (const struct tni_access *a = accesses; a->data != NULL; a++)
        bytes += a->data->bytes;
    return bytes;
}

/* How many slots of a pool a request needs. */
static uint64_t slots_of(const struct tni_plan *plan, const struct tni_request *request,
                         const struct tni_pool *pool)
{
    uint64_t slots = 0;
    for (uint32_t i = 0; i < request->count; i++)
        if (&plan->pools.pools[request->needs[i].pool] == pool)
            slots = TNI_MAX(request->needs[i].amount / TNI_UNIT, 1);
    return slots;
}

bool tni_data_is_lost_at(const struct tni_plan *plan, const struct tni_request *request,
                         const struct tni_access *accesses, uint32_t memory)
{
    const struct tni_memory *its = &plan->memories.all[memory];
    if (TNI_LIKELY(!its->is_lost))
        return false;
    uint64_t slots = slots_of(plan, request, its->pool), bytes = bytes_of(accesses);
    for (uint32_t m = 0; m < plan->memories.count; m++) {
        const struct tni_memory *other = &plan->memories.all[m];
        if (other->pool == its->pool && !other->is_lost && other->count >= slots &&
            other->capacity >= bytes)
            return true;
    }
    return false;
}

int tni_data_can_ever(const struct tni_plan *plan, const struct tn_kind *kind,
                      const struct tni_access *accesses)
{
    uint64_t bytes = bytes_of(accesses), most = 0;
    if (kind->signature->place != NULL)
        return tni_fail(TN_ERR_INVALID, "%.40s: tasks of a pool have no data", kind->name);
    for (uint32_t v = 0; v < kind->signature->variant_count; v++) {
        const struct tni_request *request = &kind->signature->variants[v].request;
        const struct tni_pool *pool = tni_memories_pool(&plan->memories, &plan->pools, request);
        uint64_t slots = slots_of(plan, request, pool), fits = 0;
        for (uint32_t m = 0; m < plan->memories.count; m++)
            if (plan->memories.all[m].pool == pool &&
                (m == 0 || plan->memories.all[m].count >= slots))
                fits = TNI_MAX(fits, plan->memories.all[m].capacity);
        if (fits == 0)
            return tni_fail(
                TN_ERR_INVALID,
                "%.40s: its tasks have data and request %llu slots of %s: no card has "
                "that many",
                kind->name, (unsigned long long)slots, pool->name);
        most = TNI_MAX(most, fits);
    }
    return bytes <= most
               ? 0
               : tni_fail(TN_ERR_INVALID,
                          "%.40s: the data of a task has %llu bytes, and the largest memory "
                          "for it %llu",
                          kind->name, (unsigned long long)bytes, (unsigned long long)most);
}

/* Whether tasks that run keep this one from the data. */
static bool is_used(const struct tni_access *access)
{
    const struct tni_data *data = access->data;
    /* Without readers nobody is waited for: two tasks never wait for each other. */
    return data->is_written ||
           (data->readers > 0 && ((access->mode & TNI_WRITES) != 0 || data->is_awaited));
}

bool tni_data_is_busy(const struct tni_plan *plan, const struct tni_access *accesses)
{
    for (const struct tni_access *a = accesses; a->data != NULL; a++)
        if (is_used(a) || is_moving(plan, a->data))
            return true;
    return false;
}

void tni_data_await(const struct tni_access *accesses, bool is_awaited)
{
    for (const struct tni_access *a = accesses; a->data != NULL; a++)
        if ((a->mode & TNI_WRITES) != 0)
            a->data->is_awaited = is_awaited;
}

bool tni_data_can_begin(const struct tni_plan *plan, const struct tni_access *accesses,
                        uint32_t memory)
{
    const struct tni_memory *its = &plan->memories.all[memory];
    uint64_t needed = 0, own_idle = 0;
    for (const struct tni_access *a = accesses; a->data != NULL; a++) {
        const struct tni_copy *copy = &a->data->copies[memory];
        bool writes = (a->mode & TNI_WRITES) != 0;
        if (is_used(a) || is_in_transit(copy))
            return false;
        /* A copy that comes or goes elsewhere may be the only one, and would miss a write. */
        bool needs_source = copy->state != TNI_COPY_VALID && !writes;
        if ((writes || (needs_source && find_source(plan, a->data, memory) == NULL)) &&
            is_moving(plan, a->data))
            return false;
        needed += has_room(copy) ? 0 : a->data->bytes;
        own_idle += has_room(copy) && copy->pins == 0 ? a->data->bytes : 0;
    }
    return needed <= its->capacity - its->used + (its->idle - own_idle);
}

bool tni_data_is_alone(const struct tni_plan *plan, const struct tni_access *accesses,
                       uint32_t memory)
{
    const struct tni_memory *its = &plan->memories.all[memory];
    uint64_t others = its->used - its->idle;
    for (const struct tni_access *a = accesses; a->data != NULL; a++) {
        const struct tni_copy *copy = &a->data->copies[memory];
        others -= has_room(copy) && copy->pins > 0 ? a->data->bytes : 0;
    }
    return memory == TNI_HOST || others == 0;
}

/* ---- beginning --------------------------------------------------------------------------- */

/* The moves of a task, in their order. */
struct moves {
    struct tni_copy **end;
};

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
    copy->had_room = has_room(copy);
    if (!copy->had_room)
        memory_of(plan, copy)->used += copy->data->bytes;
    else if (copy->pins == 0)
        remove_idle(plan, copy);
    if (source != NULL)
        pin(plan, source);
    copy->from = source != NULL ? source->memory : TNI_NO_MEMORY;
    copy->state = TNI_COPY_COMING;
    add_move(moves, copy);
}

static bool is_only_valid(const struct tni_plan *plan, const struct tni_copy *copy)
{
    if (copy->state != TNI_COPY_VALID)
        return false;
    for (uint32_t m = 0; m < plan->memories.count; m++)
        if (m != copy->memory && copy->data->copies[m].state == TNI_COPY_VALID)
            return false;
    return true;
}

static bool is_needed(const struct tni_data *data)
{
    /* This acquire pairs with the release in end_one(). */
    return !data->is_temporary || atomic_load_explicit(&data->uses, memory_order_acquire) != 0;
}

/* Evict an idle copy; the host gets it before, if no other memory has it. */
static void evict(struct tni_plan *plan, struct moves *moves, struct tni_copy *copy)
{
    struct tni_memory *memory = memory_of(plan, copy);
    if (is_only_valid(plan, copy) && is_needed(copy->data)) {
        let_come(plan, moves, &copy->data->copies[TNI_HOST], copy);
        copy->pins--; /* it goes, so it is not idle again */
    } else {
        remove_idle(plan, copy);
    }
    copy->was_valid = copy->state == TNI_COPY_VALID;
    copy->state = TNI_COPY_GOING;
    memory->used -= copy->data->bytes;
    memory->evictions++;
    memory->evicted_bytes += copy->data->bytes;
    add_move(moves, copy);
}

/*
 * Evict until `bytes` are free. Copies whose eviction fails take their room again, so what is
 * evicted beyond the need of the task stays in use until then (I1). @return these bytes
 */
static uint64_t make_room(struct tni_plan *plan, struct moves *moves, uint32_t at,
                          uint64_t bytes, uint64_t needed)
{
    struct tni_memory *memory = &plan->memories.all[at];
    uint64_t before = memory->used;
    while (memory->capacity - memory->used < bytes && memory->oldest.next != &memory->oldest)
        evict(plan, moves, memory->oldest.next);
    uint64_t evicted = before - memory->used;
    uint64_t held = evicted > needed ? evicted - needed : 0;
    memory->used += held;
    return held;
}

void tni_data_begin(struct tni_plan *plan, struct tni_running *running, bool empties)
{
    uint32_t at = running->memory;
    struct moves moves = {&running->moves};
    uint64_t needed = 0;
    running->moves = NULL;
    running->lacking = NULL;
    running->has_run = running->has_failed = false;
    for (const struct tni_access *a = running->accesses; a->data != NULL; a++) {
        struct tni_copy *copy = &a->data->copies[at];
        needed += has_room(copy) ? 0 : a->data->bytes;
        pin(plan, copy);
        if ((a->mode & TNI_WRITES) == 0) {
            a->data->readers++;
            continue;
        }
        a->data->is_written = true;
        pin_others(plan, copy);
    }
    running->held_bytes =
        at != TNI_HOST ? make_room(plan, &moves, at, empties ? UINT64_MAX : needed, needed) : 0;
    for (const struct tni_access *a = running->accesses; a->data != NULL; a++) {
        struct tni_copy *copy = &a->data->copies[at], *source = NULL;
        bool reads = (a->mode & TNI_READS) != 0;
        if (reads && copy->state != TNI_COPY_VALID &&
            (source = find_source(plan, a->data, at)) == NULL)
            running->lacking = a->data;
        if (source != NULL || !has_room(copy))
            let_come(plan, &moves, copy, source);
    }
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
        memory_of(plan, copy)->used -= copy->data->bytes;
    else if (copy->is_moved)
        memory_of(plan, copy)->arrivals_bytes += source != NULL ? copy->data->bytes : 0;
    if (copy->pins == 0 && has_room(copy))
        add_idle(plan, copy);
    if (source != NULL && source->state != TNI_COPY_GOING)
        unpin(plan, source);
}

static void settle_going(struct tni_plan *plan, struct tni_copy *copy)
{
    copy->state = TNI_COPY_NONE;
    if (copy->is_moved)
        return;
    copy->state = copy->was_valid ? TNI_COPY_VALID : TNI_COPY_STALE;
    memory_of(plan, copy)->used += copy->data->bytes;
    add_idle(plan, copy);
}

void tni_data_moved(struct tni_plan *plan, struct tni_running *running)
{
    struct tni_copy *next;
    plan->memories.all[running->memory].used -= running->held_bytes;
    running->held_bytes = 0;
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
    if (has_room(its))
        its->state = running->has_failed ? TNI_COPY_STALE : TNI_COPY_VALID;
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
            unpin_others(plan, its);
        }
        unpin(plan, its);
    }
    running->accesses = NULL;
}
