/* SPDX-License-Identifier: Apache-2.0 */
/*
 * walk: puts the tasks of a list in such an order that few results are in memory at a time.
 *
 * The list is walked from the tasks on which none depends, inputs first. So a result is used
 * soon after it was made. Two rules make the results fewer:
 * - Of the inputs of a task, the one that needs most results for itself comes first: the others
 *   would lie in memory meanwhile. How many a task needs is estimated, as if no other task read
 *   its inputs. Source: Sethi, Ullman, The generation of optimal code for arithmetic
 *   expressions, Journal of the ACM 1970.
 * - A task whose inputs are all there comes at once if it is the last that reads one of them:
 *   then its own result takes the place of that one.
 */
#include <stdlib.h>

#include "plan/order.h"

enum { NEW, OPEN, DONE };

struct walk {
    struct tni_order *order;
    void *memory;      /* owned; of all that follows, each [count] */
    uint64_t *next;    /* the next input of a task that is OPEN */
    uint32_t *stack;   /* from 0: tasks that are OPEN, the innermost last; from the end: tasks
                          that   come at once */
    uint32_t *left;    /* inputs that have no place yet */
    uint32_t *readers; /* tasks that read the result, and have no place yet */
    uint32_t *needed;  /* results */
    uint32_t *begins;  /* 1 + the input that comes first; 0: as they are */
    uint8_t *state;
    uint32_t depth, at_once, placed;
};

static int begin_walk(struct walk *walk, struct tni_order *order)
{
    const size_t n = order->list->count;
    *walk = (struct walk){.order = order};
    walk->memory = calloc(n + 1, sizeof(uint64_t) + 5 * sizeof(uint32_t) + sizeof(uint8_t));
    if (walk->memory == NULL)
        return tni_fail(TN_ERR_NO_MEMORY, "there is no memory to order %zu tasks", n);
    walk->next = walk->memory;
    walk->stack = (uint32_t *)(walk->next + n);
    walk->left = walk->stack + n;
    walk->readers = walk->left + n;
    walk->needed = walk->readers + n;
    walk->begins = walk->needed + n;
    walk->state = (uint8_t *)(walk->begins + n);
    return 0;
}

/* ---- places ------------------------------------------------------------------------------ */

/* Whether the task is the last that reads one of its inputs. */
static bool is_last_reader(const struct walk *walk, uint32_t task)
{
    const struct tni_task_list *list = walk->order->list;
    for (uint64_t i = tni_input_first(list, task); i < tni_input_end(list, task); i++)
        if (tni_is_in_list(list->inputs[i]) && walk->readers[(uint32_t)list->inputs[i]] == 1)
            return true;
    return false;
}

static void place(struct walk *walk, uint32_t task)
{
    struct tni_order *order = walk->order;
    const struct tni_task_list *list = order->list;
    walk->state[task] = DONE;
    order->position[task] = walk->placed;
    order->by_position[walk->placed++] = task;
    for (uint64_t i = tni_input_first(list, task); i < tni_input_end(list, task); i++)
        if (tni_is_in_list(list->inputs[i]))
            walk->readers[(uint32_t)list->inputs[i]]--;
    /* Backwards, so that the first of them is the last on the stack, and comes first. */
    for (uint32_t s = order->successor_first[task + 1]; s-- > order->successor_first[task];) {
        uint32_t successor = order->successors[s];
        if (--walk->left[successor] == 0 && walk->state[successor] == NEW)
            walk->stack[list->count - ++walk->at_once] = successor;
    }
}

/* Place a task, and all that come at once. */
static void place_all(struct walk *walk, uint32_t task)
{
    const uint32_t count = walk->order->list->count;
    place(walk, task);
    while (walk->at_once > 0) {
        uint32_t next = walk->stack[count - walk->at_once--];
        if (walk->state[next] == NEW && is_last_reader(walk, next))
            place(walk, next);
    }
}

/* ---- depth first ------------------------------------------------------------------------- */

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

/* An input of the task that has no place yet. UINT32_MAX: there is none */
static uint32_t next_input(struct walk *walk, uint32_t task)
{
    const struct tni_task_list *list = walk->order->list;
    uint32_t first = walk->begins[task];
    walk->begins[task] = 0;
    if (first != 0 && walk->state[first - 1] != DONE)
        return first - 1;
    for (uint64_t *next = &walk->next[task]; *next < tni_input_end(list, task); ++*next) {
        uint64_t input = list->inputs[*next];
        if (tni_is_in_list(input) && walk->state[(uint32_t)input] != DONE)
            return (uint32_t)input;
    }
    return UINT32_MAX;
}

/* Walk one task and all that it waits for. */
static int walk_from(struct walk *walk, uint32_t task)
{
    open_task(walk, task);
    while (walk->depth > 0) {
        uint32_t top = walk->stack[walk->depth - 1], input = next_input(walk, top);
        if (input == UINT32_MAX) {
            walk->depth--;
            place_all(walk, top);
        } else if (walk->state[input] == OPEN) {
            return fail_circle(walk, input);
        } else {
            open_task(walk, input);
        }
    }
    return 0;
}

static int walk_all(struct walk *walk)
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

/* ---- which input comes first ------------------------------------------------------------- */

static void count_edges(struct walk *walk)
{
    const struct tni_order *order = walk->order;
    for (uint32_t i = 0; i < order->list->count; i++)
        walk->readers[i] = order->successor_first[i + 1] - order->successor_first[i];
    for (uint32_t i = 0; i < order->list->count; i++)
        for (uint32_t s = order->successor_first[i]; s < order->successor_first[i + 1]; s++)
            walk->left[order->successors[s]]++;
}

/* Estimate what a task needs from what its inputs need. @return whether one comes first */
static bool estimate(struct walk *walk, uint32_t task)
{
    const struct tni_task_list *list = walk->order->list;
    uint32_t most = 0, second = 0, count = 0, first = 0;
    for (uint64_t i = tni_input_first(list, task); i < tni_input_end(list, task); i++) {
        if (!tni_is_in_list(list->inputs[i]))
            continue;
        uint32_t input = (uint32_t)list->inputs[i], needed = walk->needed[input];
        bool is_most = needed > most;
        second = is_most ? most : TNI_MAX(second, needed);
        most = is_most ? needed : most;
        first = is_most ? input : first;
        count++;
    }
    walk->needed[task] = TNI_MAX(TNI_MAX(most, count > 1 ? second + 1 : 0), TNI_MAX(count, 1));
    walk->begins[task] = count > 1 ? first + 1 : 0;
    return count > 1;
}

int tni_order_walk(struct tni_order *order)
{
    struct walk walk;
    int status = begin_walk(&walk, order);
    if (status != 0)
        return status;
    const uint32_t count = order->list->count;
    count_edges(&walk);
    status = walk_all(&walk);
    bool has_choice = false;
    for (uint32_t i = 0; status == 0 && i < count; i++)
        has_choice |= estimate(&walk, order->by_position[i]);
    if (has_choice) { /* again, and now each task begins with the right input */
        memset(walk.left, 0, count * sizeof walk.left[0]);
        memset(walk.state, NEW, count);
        walk.placed = 0;
        count_edges(&walk);
        status = walk_all(&walk);
    }
    free(walk.memory);
    return status;
}
