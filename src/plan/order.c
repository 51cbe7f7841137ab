/* SPDX-License-Identifier: Apache-2.0 */
/*
 * order: which task of a list is to run before which.
 *
 * By depth: the list is walked from the tasks on which none depends, inputs first. So a result
 * is used soon after it was made, and few results are in memory at a time.
 * By rank: the time from the beginning of a task to the end of all that depends on it, the
 * longest first. Source: Topcuoglu, Hariri, Wu, Performance-effective and low-complexity task
 * scheduling for heterogeneous computing, IEEE TPDS 2002, the upward rank; here without the
 * times of transfers, since the places are chosen later.
 */
#include <stdlib.h>

#include "plan/order.h"

enum { ORDER_BITS = 48, RANK_SHIFT = 8, UNKNOWN_NS = 1000000 };
#define ORDER_MASK ((UINT64_C(1) << ORDER_BITS) - 1)

static bool is_in_list(uint64_t input) { return (input & TNI_INPUT_IN_LIST) != 0; }

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
            bool is_own = is_in_list(input);
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
        if (is_in_list(list->inputs[i]))
            first[(list->inputs[i] & ~TNI_INPUT_IN_LIST) + 1]++;
    for (uint32_t i = 0; i < list->count; i++)
        first[i + 1] += first[i];
    /* Fill from the end of each range, so that the sums need no copy. */
    for (uint32_t task = list->count; task-- > 0;)
        for (uint64_t i = tni_input_end(list, task); i-- > tni_input_first(list, task);)
            if (is_in_list(list->inputs[i])) {
                uint32_t input = (uint32_t)list->inputs[i];
                order->successors[--first[input + 1]] = task;
            }
    /* Now first[i + 1] is where the range of i begins: move each to its place. */
    for (uint32_t i = 0; i < list->count; i++)
        first[i] = first[i + 1];
    first[list->count] = (uint32_t)(inputs - order->old_input_count);
}

/* ---- depth first ------------------------------------------------------------------------- */

enum { NEW, OPEN, DONE };

/* The walk: tasks whose inputs are being walked, the innermost last. */
struct walk {
    struct tni_order *order;
    uint32_t *stack; /* [count] */
    uint64_t *next;  /* [count]: the next input of a task */
    uint8_t *state;  /* [count] */
    uint32_t depth, placed;
};

static int fail_circle(const struct walk *walk, uint32_t again)
{
    uint32_t length = 0;
    while (walk->stack[walk->depth - 1 - length] != again)
        length++;
    return tni_fail(TN_ERR_INVALID,
                    "tasks %u and %u of the list wait for each other, in a circle of %u", again,
                    walk->stack[walk->depth - 1], length + 1);
}

static void open_task(struct walk *walk, uint32_t task)
{
    walk->state[task] = OPEN;
    walk->next[task] = tni_input_first(walk->order->list, task);
    walk->stack[walk->depth++] = task;
}

/* Walk one task and all that it waits for. */
static int walk_from(struct walk *walk, uint32_t task)
{
    const struct tni_task_list *list = walk->order->list;
    open_task(walk, task);
    while (walk->depth > 0) {
        uint32_t top = walk->stack[walk->depth - 1];
        uint64_t end = tni_input_end(list, top), *next = &walk->next[top];
        while (*next < end && (!is_in_list(list->inputs[*next]) ||
                               walk->state[(uint32_t)list->inputs[*next]] == DONE))
            ++*next;
        if (*next < end) {
            uint32_t input = (uint32_t)list->inputs[(*next)++];
            if (walk->state[input] == OPEN)
                return fail_circle(walk, input);
            open_task(walk, input);
            continue;
        }
        walk->state[top] = DONE;
        walk->order->position[top] = walk->placed;
        walk->order->by_position[walk->placed++] = top;
        walk->depth--;
    }
    return 0;
}

static int place_by_depth(struct walk *walk)
{
    const struct tni_order *order = walk->order;
    for (uint32_t pass = 0; pass < 2 && walk->placed < order->list->count; pass++)
        for (uint32_t i = 0; i < order->list->count; i++) {
            bool is_last = order->successor_first[i] == order->successor_first[i + 1];
            if (walk->state[i] != NEW || (pass == 0 && !is_last))
                continue;
            /* In the second pass there are only circles. */
            int status = walk_from(walk, i);
            if (status != 0)
                return status;
        }
    return 0;
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
        uint64_t place = is_by_rank
                             ? ORDER_MASK - TNI_MIN(order->keys[i] >> RANK_SHIFT, ORDER_MASK)
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
    order->scratch = calloc(n + 1, sizeof(uint64_t) + sizeof(uint32_t) + sizeof(uint8_t));
    if (order->keys == NULL || order->successor_first == NULL || order->successors == NULL ||
        order->scratch == NULL)
        return tni_fail(TN_ERR_NO_MEMORY, "there is no memory to order %zu tasks", n);
    order->by_position = order->successor_first + n + 1;
    order->position = order->by_position + n;
    order->feeds = order->position + n;
    struct walk walk = {.order = order, .next = order->scratch};
    walk.stack = (uint32_t *)(walk.next + n);
    walk.state = (uint8_t *)(walk.stack + n);
    fill_successors(order);
    status = place_by_depth(&walk);
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
    free(order->scratch);
}
