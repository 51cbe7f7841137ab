/* SPDX-License-Identifier: Apache-2.0 */
/*
 * order: which task of a list is to run before which.
 *
 * By depth: as walk.c says, so that few results are in memory at a time.
 * By rank: the time from the beginning of a task to the end of all that depends on it, the
 * longest first. Source: Topcuoglu, Hariri, Wu, Performance-effective and low-complexity task
 * scheduling for heterogeneous computing, IEEE TPDS 2002, the upward rank; here without the
 * times of transfers, since the places are chosen later. Lists that are added later count from
 * then: a task is overtaken only by those that were added at most so much later as their rank
 * is longer, so no stream of long tasks keeps a short one waiting for ever.
 */
#include <stdlib.h>

#include "plan/order.h"

enum { ORDER_BITS = 48, RANK_SHIFT = 8, UNKNOWN_NS = 1000000 };
#define ORDER_MASK ((UINT64_C(1) << ORDER_BITS) - 1)
#define RANK_MOST  (ORDER_MASK >> 1)

/* ---- checks ------------------------------------------------------------------------------ */

static int check_inputs(const struct tni_task_list *list, uint32_t old_count,
                        uint64_t *ret_edges, uint64_t *ret_old)
{
    uint64_t at = 0, edges = 0;
    for (uint32_t i = 0; i < list->count && list->input_ends != NULL; i++) {
        uint64_t end = list->input_ends[i];
        if (end < at || end > UINT32_MAX)
            return tni_fail(TN_ERR_INVALID,
                            "input_ends[%u] is %llu: it is at least %llu, and at most 2^32 - 1",
                            i, (unsigned long long)end, (unsigned long long)at);
        for (; at < end; at++) {
            uint64_t input = list->inputs[at], number = input & ~TNI_INPUT_IN_LIST;
            bool is_own = tni_is_in_list(input);
            if (number >= (is_own ? list->count : old_count))
                return tni_fail(
                    TN_ERR_INVALID,
                    "task %u of the list waits for task %llu of the %s, which has %u", i,
                    (unsigned long long)number, is_own ? "list" : "graph",
                    is_own ? list->count : old_count);
            edges += is_own;
        }
    }
    *ret_edges = edges;
    *ret_old = at - edges;
    return 0;
}

/* ---- edges ------------------------------------------------------------------------------- */

static void fill_successors(struct tni_order *order)
{
    const struct tni_task_list *list = order->list;
    uint32_t *first = order->successor_first;
    uint64_t inputs = list->count > 0 ? tni_input_end(list, list->count - 1) : 0;
    for (uint64_t i = 0; i < inputs; i++)
        if (tni_is_in_list(list->inputs[i]))
            first[(list->inputs[i] & ~TNI_INPUT_IN_LIST) + 1]++;
    for (uint32_t i = 0; i < list->count; i++)
        first[i + 1] += first[i];
    /* Fill from the end of each range, so that the sums need no copy. */
    for (uint32_t task = list->count; task-- > 0;)
        for (uint64_t i = tni_input_end(list, task); i-- > tni_input_first(list, task);)
            if (tni_is_in_list(list->inputs[i])) {
                uint32_t input = (uint32_t)list->inputs[i];
                order->successors[--first[input + 1]] = task;
            }
    /* Now first[i + 1] is where the range of i begins: move each to its place. */
    for (uint32_t i = 0; i < list->count; i++)
        first[i] = first[i + 1];
    first[list->count] = (uint32_t)(inputs - order->old_input_count);
}

/* ---- keys -------------------------------------------------------------------------------- */

static uint64_t time_of(const struct tni_new_task *task)
{
    uint64_t least = task->run_ns;
    const struct tn_kind *kind = task->kind;
    for (uint32_t i = 0; least == 0 && i < kind->signature->variant_count; i++)
        if (kind->mean_ns[i] != 0 && (least == 0 || kind->mean_ns[i] < least))
            least = kind->mean_ns[i];
    return least;
}

static bool knows_every_time(const struct tni_task_list *list)
{
    for (uint32_t i = 0; i < list->count; i++)
        if (time_of(&list->tasks[i]) == 0)
            return false;
    return true;
}

/* Rank into `keys`; what a task depends on comes before it in by_position. */
static void rank(struct tni_order *order)
{
    for (uint32_t i = order->list->count; i-- > 0;) {
        uint32_t task = order->by_position[i];
        uint64_t longest = 0, own = time_of(&order->list->tasks[task]);
        for (uint32_t s = order->successor_first[task]; s < order->successor_first[task + 1];
             s++)
            longest = TNI_MAX(longest, order->keys[order->successors[s]]);
        own = own != 0 ? own : UNKNOWN_NS;
        order->keys[task] = longest + TNI_MIN(own, UINT64_MAX - longest);
    }
}

/* Where a task comes by its rank: by the time at which it has to begin, were it the only one.
 */
static uint64_t place_of(uint64_t rank_ns, uint64_t added_ns)
{
    uint64_t added = TNI_MIN(added_ns >> RANK_SHIFT, RANK_MOST);
    return RANK_MOST + added - TNI_MIN(rank_ns >> RANK_SHIFT, RANK_MOST);
}

static void set_keys(struct tni_order *order, struct tni_plan *plan)
{
    const struct tni_task_list *list = order->list;
    /* Keys of one order say nothing beside keys of the other, so all lists have the same. */
    if (plan->order == TNI_ORDER_AUTO && list->count > 0)
        plan->order = knows_every_time(list) ? TNI_ORDER_RANK : TNI_ORDER_DEPTH;
    bool is_by_rank = plan->order == TNI_ORDER_RANK;
    if (is_by_rank)
        rank(order);
    for (uint32_t i = 0; i < list->count; i++) {
        uint64_t place = is_by_rank ? place_of(order->keys[i], list->added_ns)
                                    : (plan->order_next + order->position[i]) & ORDER_MASK;
        uint64_t last = (uint64_t)(TNI_PRIORITY_MOST - list->tasks[i].priority);
        order->keys[i] = last << ORDER_BITS | place;
    }
}

static void set_feeds(struct tni_order *order)
{
    for (uint32_t i = order->list->count; i-- > 0;) {
        uint32_t task = order->by_position[i], mask = 0;
        for (uint32_t s = order->successor_first[task]; s < order->successor_first[task + 1];
             s++) {
            uint32_t next = order->successors[s];
            uint32_t its = order->list->tasks[next].kind->signature->pool_mask &
                           ~(uint32_t)TNI_BUILT_IN_MASK;
            mask |= its != 0 ? its : order->feeds[next];
        }
        order->feeds[task] = mask;
    }
}

int tni_order_init(struct tni_order *order, struct tni_plan *plan,
                   const struct tni_task_list *list, uint32_t old_count)
{
    uint64_t edges = 0;
    const size_t n = list->count;
    memset(order, 0, sizeof *order);
    order->list = list;
    int status = check_inputs(list, old_count, &edges, &order->old_input_count);
    if (status != 0)
        return status;
    order->keys = calloc(n + 1, sizeof *order->keys);
    order->successor_first = calloc(n * 4 + 1, sizeof *order->successor_first);
    order->successors = malloc((edges + 1) * sizeof *order->successors);
    if (order->keys == NULL || order->successor_first == NULL || order->successors == NULL)
        return tni_fail(TN_ERR_NO_MEMORY, "there is no memory to order %zu tasks", n);
    order->by_position = order->successor_first + n + 1;
    order->position = order->by_position + n;
    order->feeds = order->position + n;
    fill_successors(order);
    status = tni_order_walk(order);
    if (status != 0)
        return status;
    set_keys(order, plan);
    if (plan->pools.count > TNI_BUILT_IN)
        set_feeds(order);
    return 0;
}

void tni_order_fini(struct tni_order *order)
{
    free(order->keys);
    free(order->successor_first);
    free(order->successors);
}
