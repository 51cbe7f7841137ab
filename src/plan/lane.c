/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lane: ready tasks that need the same, in order.
 *
 * Most tasks become ready in their order, so a lane is a sorted list, with a heap for the
 * others. Neither needs memory beside the tasks, so no task is lost when memory runs out.
 * Source: Fredman, Sedgewick, Sleator, Tarjan, The pairing heap, Algorithmica 1986; the variant
 * with two passes.
 */
#include "plan/lane.h"

static struct tni_task *meld(struct tni_task *a, struct tni_task *b)
{
    if (a == NULL || b == NULL)
        return a != NULL ? a : b;
    struct tni_task *first = tni_task_precedes(b, a) ? b : a, *other = first == a ? b : a;
    other->next = first->child;
    first->child = other;
    return first;
}

/* Meld the children of a root that was taken: in pairs, then all from the last to the first. */
static struct tni_task *meld_children(struct tni_task *child)
{
    struct tni_task *pairs = NULL, *heap = NULL;
    while (child != NULL) {
        struct tni_task *second = child->next, *rest = second != NULL ? second->next : NULL;
        struct tni_task *pair = meld(child, second);
        pair->next = pairs;
        pairs = pair;
        child = rest;
    }
    while (pairs != NULL) {
        struct tni_task *rest = pairs->next;
        heap = meld(heap, pairs);
        pairs = rest;
    }
    return heap;
}

static bool is_sorted_next(const struct tni_lane *lane)
{
    return lane->heap == NULL ||
           (lane->sorted.first != NULL && tni_task_precedes(lane->sorted.first, lane->heap));
}

struct tni_task *tni_lane_head(const struct tni_lane *lane)
{
    return is_sorted_next(lane) ? lane->sorted.first : lane->heap;
}

void tni_lane_push(struct tni_lane *lane, struct tni_task *task)
{
    lane->count++;
    if (lane->sorted.first == NULL || tni_task_precedes(lane->sorted.last, task)) {
        tni_chain_append(&lane->sorted, task);
        return;
    }
    task->child = NULL;
    lane->heap = meld(lane->heap, task);
}

struct tni_task *tni_lane_pop(struct tni_lane *lane)
{
    struct tni_task *task;
    lane->count--;
    if (is_sorted_next(lane))
        return tni_chain_take(&lane->sorted);
    task = lane->heap;
    lane->heap = meld_children(task->child);
    return task;
}
