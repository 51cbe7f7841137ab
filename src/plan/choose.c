/* SPDX-License-Identifier: Apache-2.0 */
/*
 * choose: which ready task begins, as which variant, and on which slots.
 *
 * The first task of each lane that is not blocked comes into question. User priority decides
 * first. Then come tasks that lead to a resource with little to do, so that a scarce resource
 * is kept busy. Then the key of the task decides.
 */
#include <stdlib.h>

#include "plan/lane.h"

enum { PRIORITY_SHIFT = 48, LOW_WATER = 2, MOST_RUNNING = 256 };

/* ---- which lane -------------------------------------------------------------------------- */

/* Whether a resource has fewer ready tasks than twice what it can run. */
static bool is_hungry(const struct tni_plan *plan, uint32_t pool_mask)
{
    for (uint32_t rest = pool_mask; rest != 0; rest &= rest - 1) {
        uint32_t i = tni_low_bit(rest);
        const struct tni_pool *pool = &plan->pools.pools[i];
        uint64_t units = pool->has_slots ? pool->slot_count : pool->total / TNI_UNIT;
        if (plan->ready_of_pool[i] < LOW_WATER * TNI_MAX(units, 1))
            return true;
    }
    return false;
}

/* What decides between lanes: the smaller pair comes first. */
struct rank {
    uint64_t priority; /* of the user; then 0 for a lane that feeds a hungry resource, or that
                          was overtaken too often, and 1 for the others */
    const struct tni_task *head;
};

static struct rank rank_lane(const struct tni_plan *plan, const struct tni_lane *lane)
{
    const struct tni_task *head = tni_lane_head(lane);
    bool is_first =
        lane->skipped >= plan->skips || (lane->feeds != 0 && is_hungry(plan, lane->feeds));
    return (struct rank){(head->key >> PRIORITY_SHIFT) << 1 | !is_first, head};
}

static bool rank_precedes(const struct rank *a, const struct rank *b)
{
    return a->priority != b->priority ? a->priority < b->priority
                                      : tni_task_precedes(a->head, b->head);
}

/* ---- when resources become free ---------------------------------------------------------- */

struct end {
    uint64_t ns, amount;
};

static int compare_ends(const void *a, const void *b)
{
    const struct end *x = a, *y = b;
    return x->ns < y->ns ? -1 : x->ns > y->ns;
}

/* When `amount` of a sum is free, if running tasks end as expected. TNI_FOREVER: not known. */
static uint64_t sum_free_ns(const struct tni_plan *plan, uint32_t pool, uint64_t amount)
{
    struct end ends[MOST_RUNNING];
    uint32_t count = 0;
    uint64_t room = plan->pools.pools[pool].free;
    for (const struct tni_running *r = plan->running.next; r != &plan->running; r = r->next) {
        const struct tni_request *request = &r->signature->variants[r->variant].request;
        for (uint32_t i = 0; i < request->count && (r->held_mask >> pool & 1) != 0; i++)
            if (request->needs[i].pool == pool && r->ends_ns != 0 && count < MOST_RUNNING)
                ends[count++] = (struct end){r->ends_ns, request->needs[i].amount};
    }
    qsort(ends, count, sizeof ends[0], compare_ends);
    for (uint32_t i = 0; i < count && room < amount; i++) {
        room += ends[i].amount;
        if (room >= amount)
            return ends[i].ns;
    }
    return room >= amount ? 0 : TNI_FOREVER;
}

/* When a request can be met, if running tasks end as expected. TNI_FOREVER: not known. */
static uint64_t free_ns(const struct tni_plan *plan, const struct tni_request *request)
{
    uint64_t last = 0;
    for (uint32_t i = 0; i < request->count; i++) {
        const struct tni_need *need = &request->needs[i];
        const struct tni_pool *pool = &plan->pools.pools[need->pool];
        uint64_t ns = pool->has_slots ? tni_pool_slots_free_ns(pool, need->amount)
                                      : sum_free_ns(plan, need->pool, need->amount);
        last = TNI_MAX(last, ns);
    }
    return last;
}

/* ---- which variant ----------------------------------------------------------------------- */

/* How many tasks of this request can run at a time. */
static uint64_t parallel(const struct tni_plan *plan, const struct tni_request *request)
{
    uint64_t least = UINT32_MAX;
    for (uint32_t i = 0; i < request->count; i++)
        least = TNI_MIN(least, plan->pools.pools[request->needs[i].pool].total /
                                   request->needs[i].amount);
    return TNI_MAX(least, 1);
}

/* How long it takes to bring the data of the first task of a lane to where a variant runs. */
static uint64_t cost_of(const struct tni_plan *plan, const struct tni_lane *lane, uint32_t v)
{
    const struct tni_access *accesses = tni_lane_head(lane)->accesses;
    const struct tni_request *request = &lane->signature->variants[v].request;
    return accesses != NULL ? tni_where_least_ns(plan, request, accesses) : 0;
}

/*
 * @return until when it is better to wait for another variant, because that would have done all
 *         tasks of the lane before this task ended as variant `v`; 0: it is not better
 */
static uint64_t wait_for_variant(const struct tni_plan *plan, const struct tni_lane *lane,
                                 uint64_t now_ns, uint32_t v)
{
    const struct tni_task *head = tni_lane_head(lane);
    uint64_t own_ns = tni_task_time(head, v);
    if (own_ns == 0)
        return 0;
    own_ns += cost_of(plan, lane, v);
    for (uint32_t w = 0; w < lane->signature->variant_count; w++) {
        const struct tni_request *request = &lane->signature->variants[w].request;
        uint64_t other_ns = head->kind->mean_ns[w];
        if (w == v || other_ns == 0)
            continue;
        other_ns += cost_of(plan, lane, w);
        uint64_t from_ns = free_ns(plan, request);
        if (from_ns == TNI_FOREVER || from_ns + other_ns <= now_ns)
            continue; /* not known, or late: it may take much longer */
        uint64_t side_by_side = parallel(plan, request);
        uint64_t rounds = (lane->count + side_by_side - 1) / side_by_side;
        double all_ns = (double)rounds * (double)other_ns;
        if ((double)TNI_MAX(from_ns, now_ns) + all_ns < (double)now_ns + (double)own_ns)
            return TNI_MAX(from_ns, now_ns) + other_ns;
    }
    return 0;
}

static struct tni_pick pick_of(const struct tni_lane *lane, uint64_t now_ns, uint32_t v)
{
    return (struct tni_pick){.lane = lane,
                             .near = lane->near,
                             .now_ns = now_ns,
                             .run_ns = tni_task_time(tni_lane_head(lane), v)};
}

/*
 * @return until when it is better to wait for the slot that made the largest input, because the
 *         task would end not much later than on another slot; 0: it is not better
 */
static uint64_t wait_for_slot(const struct tni_plan *plan, const struct tni_lane *lane,
                              uint32_t v, uint64_t now_ns)
{
    if (lane->near.pool == TNI_NO_SLOT.pool)
        return 0;
    const struct tni_slot *slot = &plan->pools.pools[lane->near.pool].slots[lane->near.slot];
    double most_ns = plan->skew * (double)tni_task_time(tni_lane_head(lane), v);
    if (slot->free == TNI_UNIT || slot->ends_ns == TNI_FOREVER || slot->ends_ns <= now_ns ||
        (double)(slot->ends_ns - now_ns) > most_ns)
        return 0;
    return now_ns + (uint64_t)most_ns;
}

/* How the first task of a lane can begin as one of its variants. */
struct start {
    uint32_t variant;
    uint64_t takes_ns; /* with what moves before; 0: not known */
    struct tni_pick pick;
    struct tni_where where; /* of its data */
};

/* @return whether it can begin now */
static bool find_start(const struct tni_plan *plan, const struct tni_lane *lane,
                       uint64_t now_ns, uint32_t v, struct start *ret)
{
    const struct tni_task *head = tni_lane_head(lane);
    const struct tni_request *request = &lane->signature->variants[v].request;
    *ret = (struct start){
        .variant = v, .takes_ns = tni_task_time(head, v), .pick = pick_of(lane, now_ns, v)};
    if (TNI_LIKELY(head->accesses == NULL))
        return tni_pools_can_take(&plan->pools, request, &ret->pick);
    bool can = tni_where_find(plan, request, head->accesses, &ret->pick, &ret->where);
    ret->takes_ns += can && ret->takes_ns != 0 ? ret->where.cost_ns : 0;
    return can;
}

/*
 * @param ret_gives_up_ns  0, or until when the task waits although it could begin
 * @return the variant as which the first task of the lane can begin now, or UINT32_MAX
 */
static uint32_t find_variant(const struct tni_plan *plan, const struct tni_lane *lane,
                             uint64_t now_ns, uint64_t *ret_gives_up_ns)
{
    const struct tni_signature *signature = lane->signature;
    struct start best = {.variant = UINT32_MAX}, other;
    for (uint32_t v = 0; v < signature->variant_count; v++)
        if (find_start(plan, lane, now_ns, v, &other) &&
            (best.variant == UINT32_MAX ||
             (other.takes_ns != 0 && other.takes_ns < best.takes_ns)))
            best = other;
    *ret_gives_up_ns = 0;
    if (best.variant == UINT32_MAX || (lane->gives_up_ns != 0 && lane->gives_up_ns <= now_ns))
        return best.variant;
    uint64_t until_ns = tni_lane_head(lane)->accesses != NULL
                            ? best.where.wait_until_ns
                            : wait_for_slot(plan, lane, best.variant, now_ns);
    if (until_ns == 0 && signature->variant_count > 1)
        until_ns = wait_for_variant(plan, lane, now_ns, best.variant);
    *ret_gives_up_ns = lane->gives_up_ns != 0 ? lane->gives_up_ns : until_ns;
    return until_ns == 0 ? best.variant : UINT32_MAX;
}

/* Whether the first task of a lane that cannot begin has data and lacks no resource. */
static bool waits_for_data(const struct tni_plan *plan, const struct tni_lane *lane,
                           uint64_t now_ns)
{
    if (TNI_LIKELY(tni_lane_head(lane)->accesses == NULL))
        return false;
    for (uint32_t v = 0; v < lane->signature->variant_count; v++) {
        struct tni_pick pick = pick_of(lane, now_ns, v);
        if (tni_pools_can_take(&plan->pools, &lane->signature->variants[v].request, &pick))
            return true;
    }
    return false;
}

/*
 * Find a task of the lane that can begin: the first, or, if that waits for data, one of the
 * next. @return its variant, or UINT32_MAX: the lane is blocked, or empty
 */
static uint32_t find_in_lane(struct tni_plan *plan, struct tni_lane *lane, uint64_t now_ns)
{
    uint64_t gives_up_ns;
    uint32_t variant = find_variant(plan, lane, now_ns, &gives_up_ns);
    while (variant == UINT32_MAX && gives_up_ns == 0 && waits_for_data(plan, lane, now_ns) &&
           tni_ready_set_aside(plan, lane)) {
        if (lane->count == 0)
            return UINT32_MAX;
        variant = find_variant(plan, lane, now_ns, &gives_up_ns);
    }
    lane->is_blocked = variant == UINT32_MAX;
    if (lane->is_blocked)
        lane->gives_up_ns = gives_up_ns;
    return variant;
}

/* ---- reservations ------------------------------------------------------------------------ */

/*
 * Whether a lane that needs some of the same has been overtaken too often for longer. A lane
 * that needs several resources gets them only when none is reserved; if others could always
 * reserve one of them anew, that time might never come. A lane of another place that is not
 * blocked may wait for that place, and for how long is not known.
 */
static bool has_older(const struct tni_plan *plan, const struct tni_lane *lane)
{
    uint64_t priority = tni_lane_head(lane)->key >> PRIORITY_SHIFT;
    for (const struct tni_lane *it = plan->active; it != NULL; it = it->next_active)
        if (it->skipped >= plan->skips && it->overtaken_at < lane->overtaken_at &&
            (it->is_blocked || it->signature->place == lane->signature->place) &&
            (it->signature->pool_mask & lane->signature->pool_mask) != 0 &&
            tni_lane_head(it)->key >> PRIORITY_SHIFT <= priority)
            return true;
    return false;
}

/* A lane has been overtaken often: keep for it what its first task needs. */
static void reserve(struct tni_plan *plan, struct tni_lane *lane)
{
    const struct tni_request *request = &lane->signature->variants[0].request;
    if (has_older(plan, lane) || !tni_pools_reserve(&plan->pools, request, lane))
        return;
    uint64_t from_ns = free_ns(plan, request);
    for (uint32_t i = 0; i < request->count; i++)
        plan->pools.pools[request->needs[i].pool].reserved_from_ns =
            from_ns == TNI_FOREVER ? 0 : from_ns;
}

/* Whether a task comes before another one, whatever they feed. */
static bool is_earlier(const struct tni_task *a, const struct tni_task *b)
{
    uint64_t of_a = a->key >> PRIORITY_SHIFT, of_b = b->key >> PRIORITY_SHIFT;
    return of_a != of_b ? of_a < of_b : tni_task_precedes(a, b);
}

/*
 * Count that a task of `chosen` begins before the first tasks of lanes that are blocked, or
 * that come before it but for what it feeds.
 */
static void count_skips(struct tni_plan *plan, const struct tni_lane *chosen,
                        const struct rank *rank)
{
    for (struct tni_lane *lane = plan->active; lane != NULL; lane = lane->next_active) {
        if (lane == chosen || (lane->signature->pool_mask & chosen->signature->pool_mask) == 0)
            continue;
        struct rank other = rank_lane(plan, lane);
        bool is_overtaken = rank_precedes(&other, rank) || is_earlier(other.head, rank->head);
        if (!is_overtaken)
            continue;
        if (++lane->skipped == plan->skips)
            lane->overtaken_at = ++plan->overtaken_count;
        if (lane->skipped >= plan->skips && lane->is_blocked)
            reserve(plan, lane);
    }
}

/* ---- the choice -------------------------------------------------------------------------- */

/* How many tasks of the lane may run one after the other on what the first one gets. */
static uint32_t batch_of(const struct tni_plan *plan, const struct tni_lane *lane,
                         const struct tni_taker *taker)
{
    const struct tni_task *head = tni_lane_head(lane);
    uint64_t run_ns = tni_task_time(head, 0);
    if (!lane->signature->is_batch || run_ns == 0 || head->accesses != NULL)
        return 1;
    uint64_t side_by_side = parallel(plan, &lane->signature->variants[0].request);
    uint64_t fair = lane->count / (2 * side_by_side) + 1;
    return (uint32_t)TNI_MAX(TNI_MIN(TNI_MIN(fair, taker->most), taker->batch_ns / run_ns), 1);
}

/* @return false: a task that was set aside meanwhile awaits the data of this one */
static bool begin(struct tni_plan *plan, struct tni_lane *lane, uint32_t variant,
                  uint64_t now_ns, struct tni_running *ret)
{
    const struct tni_variant *its = &lane->signature->variants[variant];
    const struct tni_task *head = tni_lane_head(lane);
    struct start start;
    lane->is_blocked = !find_start(plan, lane, now_ns, variant, &start);
    if (lane->is_blocked)
        return false;
    tni_pools_take(&plan->pools, &its->request, &start.pick, ret->slots);
    ret->signature = lane->signature;
    ret->variant = variant;
    ret->began_ns = now_ns;
    ret->ends_ns = start.takes_ns != 0 ? now_ns + start.takes_ns : 0;
    ret->accesses = head->accesses;
    ret->task = head;
    ret->held_mask = its->pool_mask;
    ret->cpu_until_ns = 0;
    ret->prev = plan->running.prev;
    ret->next = &plan->running;
    ret->prev->next = ret->next->prev = ret;
    lane->skipped = 0;
    lane->gives_up_ns = 0;
    tni_ready_unreserve(plan, lane);
    if (TNI_LIKELY(head->accesses == NULL))
        return true;
    ret->memory = (uint8_t)start.where.memory;
    tni_data_begin(plan, ret, tni_kind_is_alone(head->kind));
    return true;
}

/* Whether the first task of the lane may be looked at. */
static bool is_open(const struct tni_lane *lane, uint64_t now_ns)
{
    return !lane->is_blocked || (lane->gives_up_ns != 0 && lane->gives_up_ns <= now_ns);
}

/* The lane whose first task begins next. */
struct choice {
    struct tni_lane *lane; /* NULL: there is none */
    struct rank rank;
    uint32_t variant;
};

static struct choice choose(struct tni_plan *plan, const struct tni_taker *taker)
{
    struct choice best = {0};
    struct tni_lane *next;
    for (struct tni_lane *lane = plan->active; lane != NULL; lane = next) {
        next = lane->next_active;
        if (lane->signature->place != taker->place || !is_open(lane, taker->now_ns))
            continue;
        struct rank rank = rank_lane(plan, lane);
        if (best.lane != NULL && !rank_precedes(&rank, &best.rank))
            continue;
        uint32_t variant = find_in_lane(plan, lane, taker->now_ns);
        if (variant == UINT32_MAX)
            continue;
        rank = rank_lane(plan, lane); /* others may have been set aside */
        if (best.lane == NULL || rank_precedes(&rank, &best.rank))
            best = (struct choice){lane, rank, variant};
    }
    return best;
}

bool tni_plan_next(struct tni_plan *plan, const struct tni_taker *taker,
                   struct tni_running *ret, struct tni_chain *ret_tasks)
{
    struct choice best;
    uint32_t count;
    do {
        best = choose(plan, taker);
        if (best.lane == NULL)
            return false;
        count = batch_of(plan, best.lane, taker);
    } while (!begin(plan, best.lane, best.variant, taker->now_ns, ret));
    count_skips(plan, best.lane, &best.rank);
    while (count-- > 0 &&
           (ret_tasks->first == NULL || tni_lane_head(best.lane)->accesses == NULL)) {
        struct tni_task *task = tni_ready_pop(plan, best.lane);
        task->variant = (uint8_t)best.variant;
        atomic_store_explicit(&task->state, TNI_TASK_RUNNING, memory_order_relaxed);
        tni_chain_append(ret_tasks, task);
    }
    tni_ready_set_best(plan);
    return true;
}

bool tni_plan_can_start(const struct tni_plan *plan, const void *place, uint64_t now_ns)
{
    uint64_t gives_up_ns;
    for (const struct tni_lane *lane = plan->active; lane != NULL; lane = lane->next_active)
        if (lane->signature->place == place &&
            (lane->gives_up_ns != 0 ||
             (is_open(lane, now_ns) &&
              (find_variant(plan, lane, now_ns, &gives_up_ns) != UINT32_MAX ||
               gives_up_ns != 0 || waits_for_data(plan, lane, now_ns)))))
            return true; /* a task behind one that waits for data may begin */
    return false;
}

uint64_t tni_plan_retry_ns(const struct tni_plan *plan)
{
    uint64_t soonest = TNI_FOREVER;
    for (const struct tni_lane *lane = plan->active; lane != NULL; lane = lane->next_active)
        if (lane->is_blocked && lane->gives_up_ns != 0)
            soonest = TNI_MIN(soonest, lane->gives_up_ns);
    return soonest;
}

void tni_plan_count_waiting(const struct tni_plan *plan, uint64_t now_ns,
                            uint32_t ret_counts[TNI_POOLS])
{
    memset(ret_counts, 0, TNI_POOLS * sizeof ret_counts[0]);
    for (const struct tni_lane *lane = plan->active; lane != NULL; lane = lane->next_active) {
        const struct tni_signature *signature = lane->signature;
        uint32_t lacking = UINT32_MAX;
        for (uint32_t v = signature->variant_count; v-- > 0;) {
            struct tni_pick pick = pick_of(lane, now_ns, v);
            lacking = tni_pools_lacking(&plan->pools, &signature->variants[v].request, &pick);
            if (lacking == UINT32_MAX)
                break;
        }
        if (lacking != UINT32_MAX)
            ret_counts[lacking] += lane->count;
    }
}
