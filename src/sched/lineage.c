/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lineage: makes data again that was lost with a device.
 *
 * A task that reads such data cannot have it moved, and would fail with TN_ERR_DEVICE. Instead,
 * the task that wrote all of the data last is added to the graph once more, with its function,
 * context and data, and the reader waits for it as for any input. So the second run is placed,
 * traced, cancelled and fails as others do; if its own inputs were lost, it waits for the tasks
 * that wrote those. The thread of the reader looks for tasks next, and calls others for them.
 *
 * A second run writes the same as the first one only if the kind of the task says so, and if no
 * other task has written its inputs since. It must also destroy nothing: no other task may have
 * written what it writes besides.
 */
#include <stdio.h>
#include <stdlib.h>

#include "sched/crew.h"

enum { MOST_REMAKES = 3 }; /* of one piece of data */

static bool has_valid(const struct tni_plan *plan, const struct tni_data *data, bool is_lost)
{
    for (uint32_t m = 0; m < plan->memories.count; m++)
        if (data->copies[m].state == TNI_COPY_VALID && plan->memories.all[m].is_lost == is_lost)
            return true;
    return false;
}

static bool is_lost(const struct tni_plan *plan, const struct tni_data *data)
{
    return has_valid(plan, data, true) && !has_valid(plan, data, false);
}

/* Whether data that a task named once is still there, and not other data at its address. */
static bool is_open(const struct tn_sched *sched, const struct tni_data *its, uint64_t until)
{
    const struct tn_data *data = sched->data;
    while (data != NULL && data->its != its)
        data = data->next;
    return data != NULL && its->made_at < until;
}

/* Whether what the task that wrote `data` named was written neither by others nor since. */
static bool is_as_it_was(const struct tni_access *access, const struct tni_data *data)
{
    if (access->mode == TNI_READS)
        return access->data->written_at < data->written_at;
    return access->mode == TNI_WRITES && access->data->maker == data->maker;
}

/* Whether the task that wrote the data would find what it found, and destroy nothing. */
static bool may_remake(const struct tn_sched *sched, const struct tni_graph *graph,
                       const struct tni_data *data)
{
    const struct tni_task *maker = data->maker;
    if (maker == NULL || maker->graph != graph || data->remakes >= MOST_REMAKES)
        return false;
    const struct tn_kind *kind = maker->kind->of != NULL ? maker->kind->of : maker->kind;
    if (!kind->is_repeatable || kind->writes_inputs)
        return false;
    for (const struct tni_access *a = maker->accesses; a->data != NULL; a++) {
        if (!is_open(sched, a->data, data->written_at))
            return false;
        if (!is_as_it_was(a, data))
            return false;
        if (a->mode == TNI_READS && !has_valid(&sched->plan, a->data, false) &&
            !has_valid(&sched->plan, a->data, true))
            return false; /* nobody needed it any more */
    }
    return true;
}

/* Whether a task of the graph makes the data again already. */
static bool is_remade(const struct tni_data *data, const struct tni_graph *graph)
{
    /* This acquire pairs with the release of the end of the task. */
    return data->remaker != NULL && data->remaker->graph == graph &&
           atomic_load_explicit(&data->remaker->state, memory_order_acquire) != TNI_TASK_ENDED;
}

/* Add the task that wrote the data to its graph once more. */
static int remake(struct tn_sched *sched, const struct tni_data *data)
{
    const struct tni_task *maker = data->maker;
    struct tn_graph *graph = tni_graph_of(maker);
    uint32_t count = 0;
    while (maker->accesses[count].data != NULL)
        count++;
    struct tni_access *accesses = malloc((count + 1) * sizeof *accesses);
    if (accesses == NULL)
        return tni_fail(TN_ERR_NO_MEMORY, "there is no memory for the data of a task");
    memcpy(accesses, maker->accesses, (count + 1) * sizeof *accesses);
    const struct tni_new_task task = {.kind = maker->kind->of != NULL ? maker->kind->of
                                                                      : maker->kind,
                                      .context = maker->context,
                                      .priority = TNI_PRIORITY_MOST,
                                      .bytes = maker->bytes,
                                      .run_ns = maker->run_ns};
    const struct tni_task_list list = {.count = 1,
                                       .added_ns = tni_sched_now_ns(sched) - sched->began_ns,
                                       .tasks = &task,
                                       .accesses = accesses,
                                       .access_firsts = (const uint32_t[]){0}};
    struct tni_chain ready = {0};
    struct tni_added added = {0};
    int status = tni_graph_add(&sched->plan, &graph->tasks, &list, &ready, &added);
    if (status != 0) {
        free(accesses);
        return status;
    }
    sched->added_count++;
    for (const struct tni_access *a = accesses; a->data != NULL; a++)
        if (a->mode == TNI_WRITES) {
            a->data->remaker = tni_graph_task(&graph->tasks, added.first);
            a->data->remakes++;
        }
    tni_plan_push(&sched->plan, &ready);
    return 0;
}

static bool is_wanted(const struct tn_sched *sched, const struct tni_access *access)
{
    return (access->mode & TNI_READS) != 0 && is_lost(&sched->plan, access->data);
}

/* Have all lost data made again. Under the lock. @return how many, 0: not all can be */
static uint32_t remake_all(struct tn_sched *sched, const struct tni_task *task)
{
    uint32_t count = 0;
    for (const struct tni_access *a = task->accesses; a->data != NULL; a++)
        if (is_wanted(sched, a) && !is_remade(a->data, task->graph) &&
            !may_remake(sched, task->graph, a->data))
            return 0;
    for (const struct tni_access *a = task->accesses; a->data != NULL; a++) {
        if (!is_wanted(sched, a))
            continue;
        if (!is_remade(a->data, task->graph) && remake(sched, a->data) != 0)
            return 0;
        count++;
    }
    return count;
}

static void free_awaits(struct tni_await *awaits)
{
    while (awaits != NULL) {
        struct tni_await *next = awaits->next;
        free(awaits);
        awaits = next;
    }
}

static struct tni_await *make_awaits(uint32_t count)
{
    struct tni_await *first = NULL;
    for (uint32_t i = 0; i < count; i++) {
        struct tni_await *await = calloc(1, sizeof *await);
        if (await == NULL) {
            free_awaits(first);
            return NULL;
        }
        await->next = first;
        first = await;
    }
    return first;
}

/* Let the task wait for those that make its data again. Under the lock. */
static void wait_for_all(struct tn_sched *sched, struct tni_task *task,
                         struct tni_await *awaits)
{
    struct tn_graph *graph = tni_graph_of(task);
    struct tni_chain ready = {0};
    task->attempt--; /* this run does not count */
    tni_task_wait_more(task);
    for (const struct tni_access *a = task->accesses; a->data != NULL; a++) {
        if (!is_wanted(sched, a))
            continue;
        struct tni_await *await = awaits;
        awaits = await->next;
        await->next = graph->awaits;
        graph->awaits = await;
        tni_task_wait_for(task, a->data->remaker, &await->edge);
    }
    uint32_t ended = tni_task_waits(task, &ready);
    tni_plan_push(&sched->plan, &ready);
    tni_finish_count(graph, ended);
}

bool tni_lineage_await(struct tn_sched *sched, struct tni_task *task)
{
    char sentence[TNI_FAILURE_BYTES]; /* of the copy that failed */
    snprintf(sentence, sizeof sentence, "%s", tn_error_detail());
    tni_sched_lock(sched);
    bool is_cancelled = atomic_load_explicit(&task->graph->is_cancelled, memory_order_relaxed);
    uint32_t count = is_cancelled ? 0 : remake_all(sched, task);
    struct tni_await *awaits = make_awaits(count);
    if (awaits != NULL)
        wait_for_all(sched, task, awaits);
    tni_sched_unlock(sched);
    if (awaits == NULL)
        (void)!tni_fail(TN_ERR_DEVICE, "%s", sentence);
    return awaits != NULL;
}

void tni_lineage_forget(struct tn_sched *sched, struct tn_graph *graph)
{
    for (struct tn_data *data = sched->data; sched->devices != NULL && data != NULL;
         data = data->next) {
        if (data->its->maker != NULL && data->its->maker->graph == &graph->tasks)
            data->its->maker = NULL;
        if (data->its->remaker != NULL && data->its->remaker->graph == &graph->tasks)
            data->its->remaker = NULL;
    }
}
