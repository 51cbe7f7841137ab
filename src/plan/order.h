/* SPDX-License-Identifier: Apache-2.0 */
/* order: the order of the tasks of one list. Private to the room plan. */
#ifndef TNI_PLAN_ORDER_H
#define TNI_PLAN_ORDER_H

#include "plan/plan.h"

/* A list of tasks, with the edges between its own tasks in both directions. */
struct tni_order {
    const struct tni_task_list *list;
    uint32_t *successor_first; /* [count + 1] */
    uint32_t *successors;      /* owned until the list is added: [edges of the list] */
    uint32_t *by_position;     /* [count]: the tasks, inputs first */
    uint32_t *position;        /* [count] */
    uint64_t *keys;            /* [count]; what tni_task.key is to be */
    uint32_t *feeds;           /* [count]; what tni_task.feeds is to be */
    uint64_t old_input_count;  /* inputs that are no tasks of the list */
};

/**
 * Put the tasks in order.
 * @param old_count  how many tasks the graph has
 * @return 0; TN_ERR_INVALID: an input does not exist, or tasks wait for each other in a
 *         circle; TN_ERR_NO_MEMORY
 */
int tni_order_init(struct tni_order *order, struct tni_plan *plan,
                   const struct tni_task_list *list, uint32_t old_count);
void tni_order_fini(struct tni_order *order);

/**
 * Fill in `position` and `by_position`: depth first. pre: the successors are filled in
 * @return 0, TN_ERR_INVALID: tasks wait for each other in a circle; TN_ERR_NO_MEMORY
 */
int tni_order_walk(struct tni_order *order);

static inline bool tni_is_in_list(uint64_t input) { return (input & TNI_INPUT_IN_LIST) != 0; }
static inline uint64_t tni_input_first(const struct tni_task_list *list, uint32_t task)
{
    return task == 0 || list->input_ends == NULL ? 0 : list->input_ends[task - 1];
}
static inline uint64_t tni_input_end(const struct tni_task_list *list, uint32_t task)
{
    return list->input_ends == NULL ? 0 : list->input_ends[task];
}

#endif
