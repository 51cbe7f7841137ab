/* SPDX-License-Identifier: Apache-2.0 */
/*
 * graph: adds tasks, and ends them.
 *
 * A task may end in one thread while another thread adds tasks that wait for it: an edge to a
 * later list is pushed on the task's list `later`, and the task's end closes that list.
 */
#include <stdlib.h>

#include "plan/order.h"

/* Memory that tasks point to: edges to later lists, and the successors in the same list. */
struct tni_block {
    struct tni_block *next;
    uint32_t *successors;        /* owned */
    struct tni_access *accesses; /* owned */
    struct tni_edge edges[];
};

void tni_graph_init(struct tni_graph *graph) { memset(graph, 0, sizeof *graph); }

void tni_graph_fini(struct tni_graph *graph)
{
    for (uint32_t i = 0; i < TNI_CHUNKS; i++)
        free(atomic_load_explicit(&graph->chunks[i], memory_order_relaxed));
    while (graph->blocks != NULL) {
        struct tni_block *block = graph->blocks;
        graph->blocks = block->next;
        free(block->successors);
        free(block->accesses);
        free(block);
    }
}

/* ---- ending ------------------------------------------------------------------------------ */

/* Count that one input of a task has ended, or that all tasks of its list were added. */
static void arrive(struct tni_task *task, struct tni_chain *failed, struct tni_chain *ready)
{
    /* The last of the threads that arrive sees what the others wrote. */
    if (atomic_fetch_sub_explicit(&task->waits, 1, memory_order_acq_rel) != 1)
        return;
    bool has_failed = atomic_load_explicit(&task->cause, memory_order_relaxed) != 0;
    tni_chain_append(has_failed ? failed : ready, task);
}

/* Note which task failed first, for a task that depends on it. */
static void blame(struct tni_task *task, uint32_t cause)
{
    uint32_t none = 0; /* the first cause stays */
    if (cause != 0)
        atomic_compare_exchange_strong_explicit(&task->cause, &none, cause,
                                                memory_order_relaxed, memory_order_relaxed);
}

/* End one task, and tell those that wait for it. */
static void end_one(struct tni_task *task, int status, struct tni_chain *failed,
                    struct tni_chain *ready)
{
    const struct tni_graph *graph = task->graph;
    uint32_t cause = 0;
    if (status < 0) {
        blame(task, task->id + 1);
        cause = atomic_load_explicit(&task->cause, memory_order_relaxed);
    }
    task->status = status;
    for (const struct tni_access *a = task->accesses; a != NULL && a->data != NULL; a++)
        atomic_fetch_sub_explicit(&a->data->uses, 1, memory_order_release);
    if (task->wide_in != NULL)
        atomic_fetch_sub_explicit(&task->wide_in->wide_count, 1, memory_order_relaxed);
    /* This release pairs with the acquire of a thread that asks for the status of a task. */
    atomic_store_explicit(&task->state, TNI_TASK_ENDED, memory_order_release);
    for (uint32_t i = 0; i < task->successor_count; i++) {
        struct tni_task *next = tni_graph_task(graph, task->successors[i]);
        blame(next, cause);
        arrive(next, failed, ready);
    }
    /* This acquire pairs with the release of the exchange in wait_for(), and the other way. */
    struct tni_edge *edge =
        atomic_exchange_explicit(&task->later, TNI_EDGES_CLOSED, memory_order_acq_rel);
    for (; edge != NULL; edge = edge->next) {
        blame(edge->task, cause);
        arrive(edge->task, failed, ready);
    }
}

/* End the tasks of a chain that depend on a failed task, and all that depend on those. */
static uint32_t end_failed(struct tni_chain *failed, struct tni_chain *ready)
{
    uint32_t ended = 0;
    for (struct tni_task *task; (task = tni_chain_take(failed)) != NULL; ended++) {
        uint32_t cause = atomic_load_explicit(&task->cause, memory_order_relaxed);
        end_one(task, tni_graph_task(task->graph, cause - 1)->status, failed, ready);
    }
    return ended;
}

void tni_task_end(struct tni_task *task, int status, struct tni_chain *ready,
                  uint32_t *ret_ended)
{
    struct tni_chain failed = {0};
    end_one(task, status, &failed, ready);
    /* A task whose last input ends well may have one that failed before. */
    *ret_ended = 1 + (failed.first != NULL ? end_failed(&failed, ready) : 0);
}

/* ---- where results were made ------------------------------------------------------------- */

/* Remember where the largest input of `task` was made. */
static void inherit(struct tni_task *task, const struct tni_task *input)
{
    if (input->made_on.pool == TNI_NO_SLOT.pool ||
        (task->kind->affinity_mask >> input->made_on.pool & 1) == 0)
        return;
    if (task->near.pool != TNI_NO_SLOT.pool && input->bytes <= task->near_bytes)
        return;
    task->near = input->made_on;
    task->near_bytes = input->bytes;
}

void tni_task_made_on(struct tni_task *task, struct tni_slot_ref slot)
{
    task->made_on = slot;
    for (uint32_t i = 0; i < task->successor_count; i++)
        inherit(tni_graph_task(task->graph, task->successors[i]), task);
    /* Lists are added under the same lock, so that no edge is added here meanwhile. */
    for (const struct tni_edge *edge = atomic_load_explicit(&task->later, memory_order_acquire);
         edge != NULL; edge = edge->next)
        inherit(edge->task, task);
}

/* ---- adding ------------------------------------------------------------------------------ */

/* Make the chunks that tasks up to `count` lie in. Chunks that are not used yet do no harm. */
static int make_chunks(struct tni_graph *graph, uint32_t count)
{
    for (uint32_t i = 0; i < TNI_CHUNKS; i++) {
        uint32_t size = 1u << (i + TNI_FIRST_CHUNK_LOG2);
        if (count <= size - (1u << TNI_FIRST_CHUNK_LOG2))
            return 0;
        if (atomic_load_explicit(&graph->chunks[i], memory_order_relaxed) != NULL)
            continue;
        struct tni_task *chunk = calloc(size, sizeof *chunk);
        if (chunk == NULL)
            return tni_fail(TN_ERR_NO_MEMORY, "there is no memory for %u tasks", size);
        /* This release pairs with the acquire in tni_graph_task(). */
        atomic_store_explicit(&graph->chunks[i], chunk, memory_order_release);
    }
    return 0;
}

/* @return the pool of which a kind requests two slots or more, or NULL */
static struct tni_pool *find_wide(struct tni_plan *plan, const struct tn_kind *kind)
{
    const struct tni_signature *signature = kind->signature;
    for (uint32_t v = 0; v < signature->variant_count; v++) {
        const struct tni_request *request = &signature->variants[v].request;
        for (uint32_t i = 0; i < request->count; i++) {
            struct tni_pool *pool = &plan->pools.pools[request->needs[i].pool];
            if (pool->has_slots && request->needs[i].amount > TNI_UNIT)
                return pool;
        }
    }
    return NULL;
}

/*
 * Let `task` wait for a task of an older list. @return whether it waits: not if that task has
 * ended.
 */
static bool wait_for(struct tni_task *task, struct tni_task *input, struct tni_edge *edge)
{
    /* This acquire pairs with the release of the exchange in end_one(). */
    struct tni_edge *first = atomic_load_explicit(&input->later, memory_order_acquire);
    edge->task = task;
    while (first != TNI_EDGES_CLOSED) {
        edge->next = first;
        if (atomic_compare_exchange_weak_explicit(&input->later, &first, edge,
                                                  memory_order_acq_rel, memory_order_acquire))
            return true;
    }
    blame(task, input->status < 0 ? input->cause : 0);
    inherit(task, input);
    return false;
}

void tni_task_wait_more(struct tni_task *task)
{
    atomic_store_explicit(&task->waits, 1,
                          memory_order_relaxed); /* 1: until tni_task_waits() */
    atomic_store_explicit(&task->state, TNI_TASK_WAITING, memory_order_relaxed);
}

void tni_task_wait_for(struct tni_task *task, struct tni_task *input, struct tni_edge *edge)
{
    atomic_fetch_add_explicit(&task->waits, 1, memory_order_relaxed);
    if (!wait_for(task, input, edge))
        atomic_fetch_sub_explicit(&task->waits, 1, memory_order_relaxed);
}

uint32_t tni_task_waits(struct tni_task *task, struct tni_chain *ready)
{
    struct tni_chain failed = {0};
    arrive(task, &failed, ready);
    return end_failed(&failed, ready);
}

static void init_task(struct tni_plan *plan, struct tni_graph *graph,
                      const struct tni_order *order, uint32_t at, uint32_t id)
{
    const struct tni_task_list *list = order->list;
    const struct tni_new_task *given = &list->tasks[at];
    struct tni_task *task = tni_graph_task(graph, id);
    uint32_t first = order->successor_first[at];
    uint64_t inputs = tni_input_end(list, at) - tni_input_first(list, at);
    atomic_init(&task->waits, (uint32_t)inputs + 1); /* 1: until all of the list is there */
    task->id = id;
    task->key = order->keys[at];
    task->kind = given->kind;
    task->context = given->context;
    task->graph = graph;
    task->successors = order->successors + first;
    task->successor_count = order->successor_first[at + 1] - first;
    task->bytes = given->bytes;
    task->run_ns = given->run_ns;
    task->near = task->made_on = TNI_NO_SLOT;
    if (list->accesses != NULL && list->access_firsts[at] != UINT32_MAX)
        task->accesses = list->accesses + list->access_firsts[at];
    for (const struct tni_access *a = task->accesses; a != NULL && a->data != NULL; a++)
        atomic_fetch_add_explicit(&a->data->uses, 1, memory_order_relaxed);
    task->feeds = order->feeds[at];
    task->wide_in = find_wide(plan, given->kind);
    if (task->wide_in != NULL)
        atomic_fetch_add_explicit(&task->wide_in->wide_count, 1, memory_order_relaxed);
}

/* Let the tasks of the list wait for those of older lists. */
static void connect_old(struct tni_graph *graph, const struct tni_task_list *list,
                        uint32_t first, struct tni_edge *edge)
{
    for (uint32_t i = 0; i < list->count; i++) {
        struct tni_task *task = tni_graph_task(graph, first + i);
        for (uint64_t j = tni_input_first(list, i); j < tni_input_end(list, i); j++)
            if ((list->inputs[j] & TNI_INPUT_IN_LIST) == 0 &&
                !wait_for(task, tni_graph_task(graph, (uint32_t)list->inputs[j]), edge++))
                atomic_fetch_sub_explicit(&task->waits, 1, memory_order_relaxed);
    }
}

static void publish(struct tni_plan *plan, struct tni_graph *graph, struct tni_order *order,
                    struct tni_block *block)
{
    const uint32_t count = order->list->count;
    uint32_t first = atomic_load_explicit(&graph->count, memory_order_relaxed);
    for (uint32_t i = 0; i < order->successor_first[count]; i++)
        order->successors[i] += first;
    for (uint32_t i = 0; i < count; i++)
        init_task(plan, graph, order, i, first + i);
    block->next = graph->blocks;
    block->successors = order->successors;
    block->accesses = order->list->accesses;
    graph->blocks = block;
    order->successors = NULL;
    atomic_fetch_add_explicit(&graph->unended, count, memory_order_relaxed);
    /* This release pairs with the acquire of a thread that asks for the status of a task. */
    atomic_store_explicit(&graph->count, first + count, memory_order_release);
    plan->order_next += count;
    if (order->old_input_count > 0)
        connect_old(graph, order->list, first, block->edges);
}

int tni_graph_add(struct tni_plan *plan, struct tni_graph *graph,
                  const struct tni_task_list *list, struct tni_chain *ready,
                  struct tni_added *ret_added)
{
    struct tni_order order;
    struct tni_chain failed = {0};
    struct tni_block *block = NULL;
    uint32_t first = atomic_load_explicit(&graph->count, memory_order_relaxed);
    if (list->count > (1u << TNI_TASKS_LOG2) - first)
        return tni_fail(TN_ERR_INVALID, "a graph has at most 2^%d tasks", TNI_TASKS_LOG2);
    int status = tni_order_init(&order, plan, list, first);
    if (status == 0)
        status = make_chunks(graph, first + list->count);
    if (status == 0 && (block = malloc(sizeof *block +
                                       order.old_input_count * sizeof block->edges[0])) == NULL)
        status = tni_fail(TN_ERR_NO_MEMORY, "there is no memory for %llu inputs",
                          (unsigned long long)order.old_input_count);
    if (status == 0) {
        publish(plan, graph, &order, block);
        for (uint32_t i = 0; i < list->count; i++)
            arrive(tni_graph_task(graph, first + order.by_position[i]), &failed, ready);
        ret_added->first = first;
        ret_added->ended = end_failed(&failed, ready);
    }
    tni_order_fini(&order);
    return status;
}
