/* SPDX-License-Identifier: Apache-2.0 */
/* ready: the lanes with ready tasks; puts tasks into them, and takes tasks out. */
#include <stdlib.h>

#include "plan/lane.h"

static void activate(struct tni_plan *plan, struct tni_lane *lane)
{
    lane->prev_active = NULL;
    lane->next_active = plan->active;
    if (plan->active != NULL)
        plan->active->prev_active = lane;
    plan->active = lane;
}

static void deactivate(struct tni_plan *plan, struct tni_lane *lane)
{
    if (lane->prev_active != NULL)
        lane->prev_active->next_active = lane->next_active;
    else
        plan->active = lane->next_active;
    if (lane->next_active != NULL)
        lane->next_active->prev_active = lane->prev_active;
}

static bool is_lane_of(const struct tni_lane *lane, const struct tni_task *task)
{
    return lane->feeds == task->feeds && lane->near.pool == task->near.pool &&
           lane->near.slot == task->near.slot;
}

static struct tni_lane *find_lane(struct tni_task *task)
{
    /* The first lane was made with the signature. */
    struct tni_lane *first = task->kind->signature->lanes, *lane = first;
    while (!is_lane_of(lane, task) && lane->next != NULL)
        lane = lane->next;
    if (is_lane_of(lane, task))
        return lane;
    struct tni_lane *made = calloc(1, sizeof *made);
    if (made == NULL)
        return first;
    *made = (struct tni_lane){.signature = first->signature,
                              .feeds = task->feeds,
                              .near = task->near,
                              .next = first->next};
    first->next = made;
    return made;
}

/* Count a ready task, for each pool that is not built in too. @param by  1 or -1 */
static void count_ready(struct tni_plan *plan, uint32_t pool_mask, int32_t by)
{
    plan->ready_count += (uint32_t)by;
    for (uint32_t rest = pool_mask & ~(uint32_t)TNI_BUILT_IN_MASK; rest != 0; rest &= rest - 1)
        plan->ready_of_pool[tni_low_bit(rest)] += (uint32_t)by;
}

void tni_ready_set_best(struct tni_plan *plan)
{
    uint64_t best = UINT64_MAX;
    for (const struct tni_lane *lane = plan->active; lane != NULL; lane = lane->next_active)
        if (lane->signature->place == NULL)
            best = TNI_MIN(best, tni_lane_head(lane)->key);
    atomic_store_explicit(&plan->best_key, best, memory_order_relaxed);
}

void tni_ready_unblock(struct tni_plan *plan, uint32_t pool_mask)
{
    for (struct tni_lane *lane = plan->active; lane != NULL; lane = lane->next_active)
        if ((lane->signature->pool_mask & pool_mask) != 0)
            lane->is_blocked = false;
}

static void put_into_lane(struct tni_plan *plan, struct tni_task *task)
{
    struct tni_lane *lane = find_lane(task);
    if (lane->count == 0) {
        activate(plan, lane);
        lane->skipped = 0;
        lane->gives_up_ns = 0;
        lane->is_blocked = false;
    } else if (lane->is_blocked && lane->signature->variant_count > 1) {
        lane->is_blocked = false; /* with one more task, another variant may be worth it */
    }
    tni_lane_push(lane, task);
}

static void push_one(struct tni_plan *plan, struct tni_task *task)
{
    put_into_lane(plan, task);
    atomic_store_explicit(&task->state, TNI_TASK_READY, memory_order_relaxed);
    count_ready(plan, task->kind->signature->pool_mask, 1);
}

void tni_plan_push(struct tni_plan *plan, struct tni_chain *ready)
{
    struct tni_task *task;
    if (ready->first == NULL)
        return;
    while ((task = tni_chain_take(ready)) != NULL)
        push_one(plan, task);
    tni_ready_set_best(plan);
}

void tni_ready_unreserve(struct tni_plan *plan, struct tni_lane *lane)
{
    uint32_t mask = 0;
    for (uint32_t i = 0; i < plan->pools.count; i++)
        if (plan->pools.pools[i].reserver == lane)
            mask |= 1u << i;
    if (mask == 0)
        return;
    tni_pools_unreserve(&plan->pools, lane);
    tni_ready_unblock(plan, mask);
}

struct tni_task *tni_ready_pop(struct tni_plan *plan, struct tni_lane *lane)
{
    struct tni_task *task = tni_lane_pop(lane);
    count_ready(plan, lane->signature->pool_mask, -1);
    if (lane->count == 0) {
        deactivate(plan, lane);
        tni_ready_unreserve(plan, lane);
    }
    return task;
}

bool tni_ready_set_aside(struct tni_plan *plan, struct tni_lane *lane)
{
    /* More would be looked at again and again. A task from which others took the room often
     * waits in its lane, so that those behind it leave the room to it. */
    enum { MOST_ASIDE = 64, MOST_TIMES = 16 };
    struct tni_task *head = tni_lane_head(lane);
    bool is_busy = tni_data_is_busy(plan, head->accesses);
    if (plan->aside_count >= MOST_ASIDE || (!is_busy && head->set_aside >= MOST_TIMES))
        return false;
    head->set_aside = (uint8_t)(head->set_aside + !is_busy);
    if (is_busy)
        tni_data_await(head->accesses, true);
    tni_lane_pop(lane);
    if (lane->count == 0) {
        deactivate(plan, lane);
        tni_ready_unreserve(plan, lane);
    }
    tni_chain_append(&plan->aside, head);
    plan->aside_count++;
    return true;
}

void tni_ready_take_back(struct tni_plan *plan)
{
    struct tni_task *task;
    if (plan->aside.first == NULL)
        return;
    while ((task = tni_chain_take(&plan->aside)) != NULL) {
        tni_data_await(task->accesses, false);
        put_into_lane(plan, task);
    }
    plan->aside_count = 0;
    tni_ready_set_best(plan);
}

/* A lane that keeps tasks also keeps its place: how often it was overtaken, and what is
 * reserved for it. */
static void remove_from_lane(struct tni_plan *plan, struct tni_lane *lane,
                             const struct tni_graph *graph, struct tni_chain *ret_tasks)
{
    struct tni_chain others = {0};
    struct tni_task *task;
    while (lane->count > 0) {
        task = tni_lane_pop(lane);
        if (task->graph == graph)
            count_ready(plan, lane->signature->pool_mask, -1);
        tni_chain_append(task->graph == graph ? ret_tasks : &others, task);
    }
    while ((task = tni_chain_take(&others)) != NULL)
        tni_lane_push(lane, task);
    if (lane->count == 0) {
        deactivate(plan, lane);
        tni_ready_unreserve(plan, lane);
    }
}

void tni_plan_remove(struct tni_plan *plan, const struct tni_graph *graph,
                     struct tni_chain *ret_tasks)
{
    struct tni_lane *next;
    tni_ready_take_back(plan);
    for (struct tni_lane *lane = plan->active; lane != NULL; lane = next) {
        next = lane->next_active;
        remove_from_lane(plan, lane, graph, ret_tasks);
    }
    tni_ready_set_best(plan);
}
