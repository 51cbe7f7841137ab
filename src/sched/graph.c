/* SPDX-License-Identifier: Apache-2.0 */
/* graph: makes graphs, adds tasks to them, and waits for their end. */
#include <stdlib.h>

#include "sched/crew.h"

static int check_graph(const struct tn_graph *graph)
{
    return graph == NULL ? tni_fail_null("graph") : tni_sched_check(graph->sched, "sched");
}

int tn_graph_create(tn_sched *sched, tn_graph **ret_graph)
{
    int status = tni_sched_check(sched, "sched");
    if (status != 0)
        return status;
    if (ret_graph == NULL)
        return tni_fail_null("ret_graph");
    struct tn_graph *graph = calloc(1, sizeof *graph);
    if (graph == NULL)
        return tni_fail(TN_ERR_NO_MEMORY, "there is no memory for a graph");
    status = tni_os_cond_init(&graph->ended);
    if (status != 0) {
        free(graph);
        return status;
    }
    tni_graph_init(&graph->tasks);
    graph->sched = sched;
    graph->trace_number = sched->trace != NULL ? tni_trace_graph(sched->trace) : 0;
    tni_sched_lock(sched);
    graph->next = sched->graphs;
    if (sched->graphs != NULL)
        sched->graphs->prev = graph;
    sched->graphs = graph;
    tni_sched_unlock(sched);
    *ret_graph = graph;
    return 0;
}

/* ---- adding ------------------------------------------------------------------------------ */

/* Copy the tasks as the plan takes them. Under the lock. */
static int take_tasks(const struct tn_sched *sched, const tn_task_list *list,
                      struct tni_new_task *tasks)
{
    for (uint64_t i = 0; i < list->count; i++) {
        const tn_task *given = &list->tasks[i];
        if (given->kind == NULL)
            return tni_fail(TN_ERR_INVALID, "the kind of task %llu is NULL",
                            (unsigned long long)i);
        if (given->reserved != 0)
            return tni_fail(TN_ERR_INVALID, "reserved of task %llu is %u, not 0",
                            (unsigned long long)i, given->reserved);
        if (given->run_ns > TN_RUN_NS_MAX)
            return tni_fail(TN_ERR_INVALID, "run_ns of task %llu is more than TN_RUN_NS_MAX",
                            (unsigned long long)i);
        if (given->kind->plan != &sched->plan)
            return tni_fail(TN_ERR_INVALID, "the kind of task %llu is not of this scheduler",
                            (unsigned long long)i);
        if (given->priority > TNI_PRIORITY_MOST || given->priority < -TNI_PRIORITY_MOST - 1)
            return tni_fail(TN_ERR_INVALID,
                            "the priority of task %llu is %d: it is from -32768 to 32767",
                            (unsigned long long)i, given->priority);
        tasks[i] = (struct tni_new_task){.kind = given->kind,
                                         .context = given->context,
                                         .priority = given->priority,
                                         .bytes = given->bytes,
                                         .run_ns = given->run_ns};
    }
    return 0;
}

/* ---- data of tasks ----------------------------------------------------------------------- */

/* The accesses of the tasks of a list, as the plan takes them. */
struct accesses {
    struct tni_access *all; /* owned */
    uint32_t *firsts;       /* owned; [count] */
};

static int check_access(const struct tn_sched *sched, const tn_access *access, uint64_t task)
{
    if (access->data == NULL)
        return tni_fail(TN_ERR_INVALID, "an access of task %llu names no data",
                        (unsigned long long)task);
    if (access->data->sched != sched)
        return tni_fail(TN_ERR_INVALID, "data of task %llu is not of this scheduler",
                        (unsigned long long)task);
    if (access->mode == 0 || (access->mode & ~(uint32_t)(TN_READ | TN_WRITE)) != 0 ||
        access->reserved != 0)
        return tni_fail(TN_ERR_INVALID,
                        "an access of task %llu has the mode %#x and reserved %u: a mode is "
                        "TN_READ, TN_WRITE or both",
                        (unsigned long long)task, access->mode, access->reserved);
    if ((access->mode & TN_WRITE) != 0 && access->data->tensors != NULL &&
        access->data->tensors->is_read_only)
        return tni_fail(TN_ERR_DENIED, "task %llu writes '%.64s', whose tensor is read-only",
                        (unsigned long long)task, access->data->name);
    return 0;
}

/* Copy the accesses of one task. @return how many, or an error */
static int64_t copy_accesses(const struct tn_sched *sched, const tn_task_list *list,
                             uint64_t task, struct tni_access *ret)
{
    uint64_t first = task == 0 ? 0 : list->access_ends[task - 1];
    uint64_t end = list->access_ends[task];
    for (uint64_t i = first; i < end; i++) {
        const tn_access *given = &list->accesses[i];
        int status = check_access(sched, given, task);
        if (status != 0)
            return status;
        ret[i - first] = (struct tni_access){given->data->its, given->mode};
        for (uint64_t j = first; j < i; j++)
            if (list->accesses[j].data == given->data)
                return tni_fail(TN_ERR_INVALID, "task %llu names the same data twice",
                                (unsigned long long)task);
    }
    ret[end - first] = (struct tni_access){0};
    return (int64_t)(end - first);
}

static int read_accesses(const struct tn_sched *sched, const tn_task_list *list,
                         struct accesses *ret)
{
    uint64_t used = 0, before = 0;
    for (uint64_t i = 0; i < list->count; before = list->access_ends[i++])
        if (list->access_ends[i] < before || list->access_ends[i] > UINT32_MAX / 4)
            return tni_fail(TN_ERR_INVALID, "access_ends of task %llu is %llu, after %llu",
                            (unsigned long long)i, (unsigned long long)list->access_ends[i],
                            (unsigned long long)before);
    ret->all = malloc((before + list->count) * sizeof *ret->all);
    ret->firsts = malloc(list->count * sizeof *ret->firsts);
    if (ret->all == NULL || ret->firsts == NULL)
        return tni_fail(TN_ERR_NO_MEMORY, "there is no memory for the data of %llu tasks",
                        (unsigned long long)list->count);
    for (uint64_t i = 0; i < list->count; i++) {
        int64_t count = copy_accesses(sched, list, i, ret->all + used);
        if (count < 0)
            return (int)count;
        ret->firsts[i] = count == 0 ? UINT32_MAX : (uint32_t)used;
        if (count == 0)
            continue;
        int status = tni_data_can_ever(&sched->plan, list->tasks[i].kind, ret->all + used);
        if (status != 0)
            return status;
        used += (uint64_t)count + 1;
    }
    return 0;
}

/* Add a checked list. Under the lock. */
static int add_tasks(struct tn_graph *graph, const tn_task_list *given,
                     struct tni_new_task *tasks, uint64_t *ret_first)
{
    struct tni_chain ready = {0};
    struct tni_added added = {0};
    struct tn_sched *sched = graph->sched;
    if (atomic_load_explicit(&graph->tasks.is_cancelled, memory_order_relaxed))
        return tni_fail(TN_ERR_CLOSED, "the graph was cancelled");
    struct accesses accesses = {0};
    int status = take_tasks(sched, given, tasks);
    if (status == 0 && given->access_ends != NULL && given->count > 0)
        status = read_accesses(sched, given, &accesses);
    const struct tni_task_list list = {.count = (uint32_t)given->count,
                                       .added_ns = tni_sched_now_ns(sched) - sched->began_ns,
                                       .tasks = tasks,
                                       .input_ends = given->input_ends,
                                       .inputs = given->inputs,
                                       .accesses = accesses.all,
                                       .access_firsts = accesses.firsts};
    if (status == 0)
        status = tni_graph_add(&sched->plan, &graph->tasks, &list, &ready, &added);
    if (status != 0)
        free(accesses.all);
    free(accesses.firsts);
    if (status != 0)
        return status;
    sched->added_count += list.count;
    if (sched->trace != NULL)
        tni_trace_add(sched->trace, graph->trace_number, added.first, given);
    tni_plan_push(&sched->plan, &ready);
    tni_finish_count(graph, added.ended);
    (void)tni_crew_wake(sched);
    if (ret_first != NULL)
        *ret_first = added.first;
    return 0;
}

int tn_graph_add(tn_graph *graph, const tn_task_list *list, uint64_t *ret_first)
{
    tn_task_list l = {0};
    int status = check_graph(graph);
    if (status != 0)
        return status;
    if (list == NULL)
        return tni_fail_null("list");
    status = tni_take_options("tn_task_list", list, sizeof l, &l);
    if (status != 0)
        return status;
    if (l.count > (1u << TNI_TASKS_LOG2))
        return tni_fail(TN_ERR_INVALID, "tn_task_list.count is %llu: it is at most 2^%d",
                        (unsigned long long)l.count, TNI_TASKS_LOG2);
    if (l.count > 0 && l.tasks == NULL)
        return tni_fail_null("tn_task_list.tasks");
    if (l.count > 0 && l.input_ends != NULL && l.input_ends[l.count - 1] > 0 &&
        l.inputs == NULL)
        return tni_fail_null("tn_task_list.inputs");
    if (l.count > 0 && l.access_ends != NULL && l.access_ends[l.count - 1] > 0 &&
        l.accesses == NULL)
        return tni_fail_null("tn_task_list.accesses");
    struct tni_new_task *tasks = malloc((l.count + 1) * sizeof *tasks);
    if (tasks == NULL)
        return tni_fail(TN_ERR_NO_MEMORY, "there is no memory for %llu tasks",
                        (unsigned long long)l.count);
    tni_sched_lock(graph->sched);
    status = add_tasks(graph, &l, tasks, ret_first);
    tni_sched_unlock(graph->sched);
    free(tasks);
    return status;
}

/* ---- waiting ----------------------------------------------------------------------------- */

/* Wait without running tasks. Under the lock. */
static int sleep_until_ended(struct tn_graph *graph, uint64_t deadline_ns)
{
    int status = tni_crew_wake(graph->sched); /* there may have been no thread for it before */
    while (status == 0 && !tni_graph_has_ended(graph)) {
        if (tni_os_now_ns() >= deadline_ns)
            return tni_fail(TN_ERR_TIMED_OUT, "tasks of the graph have not ended");
        status = tni_sched_sleep(graph->sched, &graph->ended, deadline_ns);
    }
    return status;
}

/* Whether this thread runs a task of the graph, which then cannot end. */
static bool is_in_graph(const struct tn_graph *graph)
{
    const struct tni_worker *worker = tni_crew_current();
    while (worker != NULL && (worker->task == NULL || tni_graph_of(worker->task) != graph))
        worker = worker->outer;
    return worker != NULL;
}

static int wait_for_end(struct tn_graph *graph, bool helps, tn_deadline deadline)
{
    int status = check_graph(graph);
    if (status != 0)
        return status;
    struct tn_sched *sched = graph->sched;
    struct tni_worker *current = tni_crew_current();
    bool is_in_task = current != NULL && current->sched == sched && deadline.ns > TN_NOW.ns;
    if (is_in_task && current->is_place)
        return tni_fail_plain(
            TN_ERR_INVALID,
            "a function of a kind that has a pool waits for a graph: it must not wait");
    if (is_in_task && is_in_graph(graph))
        return tni_fail_plain(TN_ERR_INVALID, "a task waits for its own graph");
    if (is_in_task)
        tni_crew_secede(current);
    tni_sched_lock(sched);
    if (tni_sched_is_virtual(sched))
        status = tni_virtual_run(sched, graph);
    else
        status = helps ? tni_crew_help(sched, graph, deadline.ns)
                       : sleep_until_ended(graph, deadline.ns);
    if (status == 0 && graph->failure_status != 0)
        status = tni_fail(graph->failure_status, "%s", graph->failure);
    tni_sched_unlock(sched);
    return status;
}

int tn_graph_wait(tn_graph *graph, tn_deadline deadline)
{
    return wait_for_end(graph, false, deadline);
}

int tn_graph_run(tn_graph *graph, tn_deadline deadline)
{
    return wait_for_end(graph, true, deadline);
}

/* ---- cancelling -------------------------------------------------------------------------- */

/* Under the lock. */
static void cancel(struct tn_graph *graph)
{
    struct tn_sched *sched = graph->sched;
    struct tni_chain tasks = {0};
    struct tni_task *task;
    atomic_store_explicit(&graph->tasks.is_cancelled, true, memory_order_relaxed);
    if (tni_graph_has_ended(graph))
        return;
    tni_finish_failure(graph, NULL, TN_ERR_INTERRUPTED);
    tni_plan_remove(&sched->plan, &graph->tasks, &tasks);
    while ((task = tni_chain_take(&tasks)) != NULL) {
        uint32_t ended = 0;
        tni_task_end(task, TN_ERR_INTERRUPTED, &tasks, &ended);
        tni_finish_count(graph, ended);
    }
    (void)tni_crew_wake(sched); /* their reservations have ended: others may begin */
}

int tn_graph_cancel(tn_graph *graph)
{
    int status = check_graph(graph);
    if (status != 0)
        return status;
    tni_sched_lock(graph->sched);
    cancel(graph);
    tni_sched_unlock(graph->sched);
    return 0;
}

/* End the tasks that run in virtual time. Under the lock. */
static void wait_out(struct tn_graph *graph)
{
    if (tni_sched_is_virtual(graph->sched)) {
        (void)tni_virtual_run(graph->sched, graph);
        return;
    }
    while (!tni_graph_has_ended(graph))
        tni_sched_wait(graph->sched, &graph->ended, TNI_FOREVER);
}

tn_graph *tn_graph_close(tn_graph *graph)
{
    if (graph == NULL)
        return NULL;
    struct tn_sched *sched = graph->sched;
    bool is_own = sched->pid == tni_os_pid();
    if (is_own) {
        tni_sched_lock(sched);
        cancel(graph);
        wait_out(graph);
        tni_watch_end_graph(sched, graph);
        tni_lineage_forget(sched, graph);
    }
    if (graph->prev != NULL)
        graph->prev->next = graph->next;
    else
        sched->graphs = graph->next;
    if (graph->next != NULL)
        graph->next->prev = graph->prev;
    if (is_own) {
        tni_sched_unlock(sched);
        tni_os_cond_fini(&graph->ended);
    }
    tni_graph_fini(&graph->tasks);
    while (graph->early != NULL) {
        struct tni_early *early = graph->early;
        graph->early = early->next;
        free(early);
    }
    while (graph->awaits != NULL) {
        struct tni_await *await = graph->awaits;
        graph->awaits = await->next;
        free(await);
    }
    free(graph);
    return NULL;
}

int tn_graph_get_info(tn_graph *graph, tn_graph_info *ret_info)
{
    tn_graph_info info = {0};
    int status = check_graph(graph);
    if (status != 0)
        return status;
    /* This acquire pairs with the release in tni_graph_add(). */
    uint32_t count = atomic_load_explicit(&graph->tasks.count, memory_order_acquire);
    info.tasks = count;
    for (uint32_t i = 0; i < count; i++) {
        const struct tni_task *task = tni_graph_task(&graph->tasks, i);
        /* This acquire pairs with the release of the end of the task. */
        uint8_t state = atomic_load_explicit(&task->state, memory_order_acquire);
        info.waiting += state == TNI_TASK_WAITING;
        info.ready += state == TNI_TASK_READY;
        info.running += state == TNI_TASK_RUNNING;
        info.pending += state == TNI_TASK_PENDING;
        info.done += state == TNI_TASK_ENDED && task->status == 0;
        info.failed += state == TNI_TASK_ENDED && task->status < 0;
    }
    return tni_give_struct("tn_graph_info", &info, sizeof info, ret_info);
}
