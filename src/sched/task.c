/* SPDX-License-Identifier: Apache-2.0 */
/* task: the calls that are about one task. */
#include <stdlib.h>

#include "sched/crew.h"
#include "spawn/spawn.h"

static int find_task(struct tn_graph *graph, uint64_t number, struct tni_task **ret_task)
{
    int status =
        graph == NULL ? tni_fail_null("graph") : tni_sched_check(graph->sched, "sched");
    if (status != 0)
        return status;
    /* This acquire pairs with the release in tni_graph_add(). */
    uint32_t count = atomic_load_explicit(&graph->tasks.count, memory_order_acquire);
    if (number >= count)
        return tni_fail(TN_ERR_NOT_FOUND, "the graph has no task %llu: it has %u",
                        (unsigned long long)number, count);
    *ret_task = tni_graph_task(&graph->tasks, (uint32_t)number);
    return 0;
}

int tn_task_get_status(tn_graph *graph, uint64_t task, uint64_t *ret_cause)
{
    struct tni_task *its;
    int status = find_task(graph, task, &its);
    if (status != 0)
        return status;
    /* This acquire pairs with the release of the end of the task. */
    if (atomic_load_explicit(&its->state, memory_order_acquire) != TNI_TASK_ENDED)
        return tni_fail_plain(TN_ERR_TIMED_OUT, "the task has not ended");
    if (its->status == 0)
        return 0;
    uint32_t cause = atomic_load_explicit(&its->cause, memory_order_relaxed) - 1;
    if (ret_cause != NULL)
        *ret_cause = cause;
    return tni_fail(its->status, "task %u (%s) failed%s", cause,
                    tni_graph_task(&graph->tasks, cause)->kind->name,
                    cause == its->id ? "" : ", and this task depends on it");
}

/* Whether it can be said now that the task has ended when its function returns. */
static bool may_end_early(const struct tni_task *task)
{
    return atomic_load_explicit(&task->state, memory_order_relaxed) == TNI_TASK_RUNNING &&
           !task->is_ended_early && task->running == NULL;
}

/* End a task that pends. Under the lock, which is released meanwhile. */
static void end_pending(struct tn_sched *sched, struct tni_task *task, int status)
{
    uint64_t now_ns = tni_os_now_ns();
    if (tni_sched_is_traced(sched)) {
        task->is_ended_early = true; /* so that nobody else ends it */
        atomic_store_explicit(&task->state, TNI_TASK_RUNNING, memory_order_relaxed);
        tni_sched_unlock(sched);
        tni_finish_trace(sched, task, task->running, status, now_ns);
        tni_sched_lock(sched);
    }
    tni_finish_later(task, status, now_ns);
    (void)tni_crew_wake(sched);
}

/* End a task that pends, or whose function is about to return TN_TASK_PENDING. Under the lock,
 * which is released meanwhile. */
static int end_now(struct tn_sched *sched, struct tni_task *task, int status)
{
    uint8_t state = atomic_load_explicit(&task->state, memory_order_relaxed);
    if (state == TNI_TASK_PENDING) {
        end_pending(sched, task, status);
    } else if (may_end_early(task)) {
        task->is_ended_early = true; /* its function is about to return TN_TASK_PENDING */
        task->early_status = status;
        if (status < 0)
            tni_finish_keep_sentence(tni_graph_of(task), task);
    } else {
        return tni_fail(TN_ERR_INVALID, "task %u does not run", task->id);
    }
    return 0;
}

int tn_task_end(tn_graph *graph, uint64_t task, int status)
{
    struct tni_task *its;
    int found = find_task(graph, task, &its);
    if (found != 0)
        return found;
    if (status > 0)
        return tni_fail(TN_ERR_INVALID, "the status is %d: it is 0 or a negative TN_ERR_*",
                        status);
    struct tn_sched *sched =
        graph->sched; /* once the task has ended, the graph may be closed */
    tni_sched_lock(sched);
    found = end_now(sched, its, status);
    tni_sched_unlock(sched);
    return found;
}

int tn_task_end_on(tn_graph *graph, uint64_t task, int fd)
{
    struct tni_task *its;
    int status = find_task(graph, task, &its);
    if (status != 0)
        return status;
    tni_sched_lock(graph->sched);
    if (!may_end_early(its) &&
        atomic_load_explicit(&its->state, memory_order_relaxed) != TNI_TASK_PENDING)
        status = tni_fail(TN_ERR_INVALID, "task %u does not run", its->id);
    else if (atomic_load_explicit(&its->watch, memory_order_relaxed) != NULL)
        status = tni_fail(TN_ERR_EXISTS, "another descriptor ends task %u", its->id);
    else
        status = tni_watch_begin(graph->sched, its, fd, end_now);
    tni_sched_unlock(graph->sched);
    return status;
}

/* ---- in a task --------------------------------------------------------------------------- */

/* Find the worker whose task this thread runs. A child that the task forked runs none. */
static int find_worker(struct tni_worker **ret_worker)
{
    *ret_worker = tni_crew_current();
    if (*ret_worker == NULL || (*ret_worker)->task == NULL)
        return tni_fail_plain(TN_ERR_INVALID, "this thread runs no task");
    return tni_sched_check((*ret_worker)->sched, "sched");
}

int tn_task_secede(void)
{
    struct tni_worker *worker;
    int status = find_worker(&worker);
    if (status != 0)
        return tni_pool_runs_job() ? tni_pool_secede() : status;
    if (worker->is_place)
        return tni_fail_plain(TN_ERR_INVALID, "the task runs in a worker process");
    tni_crew_secede(worker);
    return 0;
}

int tn_task_set_bytes(uint64_t bytes)
{
    struct tni_worker *worker;
    int status = find_worker(&worker);
    if (status != 0)
        return status;
    worker->task->bytes = bytes; /* tasks that wait for it read this when it has ended */
    return 0;
}

/*
 * How many slots of a pool the task of a worker requested. A task that runs again alone, since
 * its memory ran out, has more of them, and needs not know.
 */
static uint32_t requested_slots(const struct tni_worker *worker, uint32_t pool)
{
    const struct tn_kind *kind = worker->task->kind;
    uint32_t variant = tni_kind_first_variant(kind, worker->running->variant);
    const struct tni_signature *signature =
        kind->of != NULL ? kind->of->signature : kind->signature;
    const struct tni_request *request = &signature->variants[variant].request;
    for (uint32_t i = 0; i < request->count; i++)
        if (request->needs[i].pool == pool)
            return (uint32_t)TNI_MAX(request->needs[i].amount / TNI_UNIT, 1);
    return 0;
}

int tn_resource_id(const char *resource, uint32_t *ret_ids, uint32_t capacity)
{
    struct tni_worker *worker;
    uint32_t count = 0;
    if (resource == NULL || (ret_ids == NULL && capacity > 0))
        return tni_fail_null(resource == NULL ? "resource" : "ret_ids");
    int status = find_worker(&worker);
    if (status != 0)
        return status;
    const struct tni_pools *pools = &worker->sched->plan.pools;
    uint32_t at = tni_pools_find(pools, resource, strlen(resource));
    if (at == UINT32_MAX)
        return tni_fail(TN_ERR_NOT_FOUND, "the scheduler has no resource %.40s", resource);
    if (!pools->pools[at].has_slots)
        return tni_fail(TN_ERR_INVALID,
                        "the resource %s is a sum: a task has an amount of it, and no slots "
                        "with numbers",
                        pools->pools[at].name);
    const struct tni_running *running = worker->running;
    uint32_t held = running->signature->variants[running->variant].slot_count;
    uint32_t most = requested_slots(worker, at);
    for (uint32_t i = 0; i < held && count < most; i++)
        if (running->slots[i].pool == at && count++ < capacity)
            ret_ids[count - 1] = pools->pools[at].slots[running->slots[i].slot].id;
    return (int)count;
}
