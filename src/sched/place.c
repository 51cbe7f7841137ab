/* SPDX-License-Identifier: Apache-2.0 */
/*
 * place: runs tasks in the worker processes of a pool.
 *
 * A pool belongs to one thread. That thread takes the tasks of the kinds that have the pool,
 * gives their jobs to the pool, and ends the tasks by the results. It waits for results in the
 * pool, and for tasks on its condition if no job is given.
 *
 * A task has what it requests from before its job is given until after its result is taken.
 * Several short tasks may share one CPU. They lie in one queue for all workers, which have no
 * more than all CPUs, so no worker waits for a message between two of them.
 *
 * A worker that dies leaves its job to another (pool.h). If the pool fails as a whole, for
 * example because no worker can be started, the tasks whose jobs it has fail with its error.
 */
#include <stdio.h>
#include <stdlib.h>

#include "sched/crew.h"
#include "spawn/spawn.h"

enum {
    BATCH = 64,            /* most tasks that share a CPU */
    BATCH_NS = 500 * 1000, /* how long they may take together */
    RESULTS = 32,          /* most results between two looks for tasks */
    RETRY_NS = 1000 * 1000 /* after a lack of memory */
};

/* ---- calling the program ----------------------------------------------------------------- */

static tn_task_call call_of(const struct tni_task *task, tn_message *job)
{
    return (tn_task_call){.graph = tni_graph_of(task),
                          .task = task->id,
                          .context = task->context,
                          .attempt = task->attempt,
                          .variant = task->kind->numbers[task->variant],
                          .flags = tni_finish_call_flags(task),
                          .job = job};
}

/* Let tn_resource_id() find what the task has. @return what end_call() needs */
static struct tni_running *begin_call(struct tni_place *place, struct tni_task *task)
{
    struct tni_running *own = place->worker.running;
    place->worker.running = task->running;
    place->worker.task = task;
    return own;
}

static void end_call(struct tni_place *place, struct tni_running *own)
{
    place->worker.running = own;
    place->worker.task = NULL;
}

static int fill_in(struct tni_place *place, struct tni_task *task, tn_message *ret_job)
{
    const tn_task_call call = call_of(task, ret_job);
    struct tni_running *own = begin_call(place, task);
    int status = ((tn_task_fn *)task->kind->run[task->variant])(&call);
    end_call(place, own);
    return status <= 0 ? status
                       : tni_fail(TN_ERR_INVALID,
                                  "its function returned %d instead of TN_TASK_DONE or a "
                                  "TN_ERR_*: the kind has a pool",
                                  status);
}

static int take_result(struct tni_place *place, struct tni_task *task, tn_pool_result *result)
{
    if (result->status < 0)
        return tni_fail(result->status, "%s", result->detail);
    if (result->status == TN_TASK_PENDING)
        return tni_fail_plain(
            TN_ERR_INVALID,
            "its job ended with TN_TASK_PENDING, which is only for tasks in threads");
    if (result->status != 0 || task->kind->take == NULL)
        return result->status;
    const tn_task_call call = call_of(task, NULL);
    struct tni_running *own = begin_call(place, task);
    int status = ((tn_task_take_fn *)task->kind->take)(&call, result);
    end_call(place, own);
    return status;
}

/* ---- tasks whose job the pool has -------------------------------------------------------- */

static void link_given(struct tni_place *place, struct tni_task *task)
{
    task->child = NULL;
    task->next = place->given;
    if (place->given != NULL)
        place->given->child = task;
    place->given = task;
}

static void unlink_given(struct tni_place *place, struct tni_task *task)
{
    if (task->child != NULL)
        task->child->next = task->next;
    else
        place->given = task->next;
    if (task->next != NULL)
        task->next->child = task->child;
    task->child = NULL;
}

/* Run a task again: it gives back what it has, and is ready. Under the lock. */
static void run_again(struct tn_sched *sched, struct tni_task *task, uint64_t now_ns)
{
    struct tni_chain again = {0};
    tni_finish_running(sched, task, now_ns);
    tni_chain_append(&again, task);
    tni_plan_push(&sched->plan, &again);
}

/* @param status  of the result, or of the function of the program */
static void end_task(struct tni_place *place, struct tni_task *task, int status)
{
    struct tn_sched *sched = place->worker.sched;
    uint64_t now_ns = tni_os_now_ns();
    bool is_again = status > 0 && tni_finish_again(sched, task, task->running, &status);
    if (!is_again && status != 0)
        status = tni_finish_status(task, status);
    if (!is_again)
        tni_finish_trace(sched, task, task->running, status, now_ns);
    tni_sched_lock(sched);
    place->is_full = false;
    if (is_again)
        run_again(sched, task, now_ns);
    else
        tni_finish_later(task, status, now_ns);
    (void)tni_crew_wake(sched);
    tni_sched_unlock(sched);
}

/* The pool failed: no result will come. */
static void fail_given(struct tni_place *place, int status)
{
    char detail[256];
    snprintf(detail, sizeof detail, "%s", tn_error_detail());
    place->dropped = place->newest;
    while (place->given != NULL) {
        struct tni_task *task = place->given;
        unlink_given(place, task);
        end_task(place, task, tni_fail(status, "%s", detail));
    }
}

/* ---- taking tasks, giving jobs ----------------------------------------------------------- */

/* What tasks share until the last of them has ended. */
static void share(struct tni_running *running, const struct tni_chain *tasks)
{
    running->count = running->seceded = 0;
    running->kind = tasks->first->kind;
    running->pid = 0;
    for (struct tni_task *task = tasks->first; task != NULL; task = task->next) {
        task->running = running;
        running->count++;
        if (task->kind != running->kind)
            running->kind = NULL;
    }
    running->left = running->count;
}

/* Take the tasks that can begin, if the pool has room for their jobs. Under the lock. */
static void take_tasks(struct tni_place *place)
{
    struct tn_sched *sched = place->worker.sched;
    struct tni_running **spare = &place->worker.running;
    uint32_t room = place->taken.first == NULL ? tni_pool_room(place->pool) : 0;
    /* A pool that has failed may have no room. It says so when it gets a job. */
    if (place->given == NULL)
        room = TNI_MAX(room, 1);
    place->is_called = place->is_short = false;
    for (; room > 0; room -= TNI_MIN(room, place->taken.last->running->count)) {
        struct tni_chain tasks = {0};
        const struct tni_taker taker = {.place = place,
                                        .now_ns = tni_os_now_ns(),
                                        .most = TNI_MIN(place->most, room),
                                        .batch_ns = BATCH_NS};
        if (*spare == NULL)
            *spare = tni_running_create(sched);
        place->is_short = *spare == NULL;
        if (place->is_short)
            break;
        if (!tni_plan_next(&sched->plan, &taker, *spare, &tasks))
            break;
        share(*spare, &tasks);
        *spare = NULL;
        if (place->taken.first == NULL)
            place->taken.first = tasks.first;
        else
            place->taken.last->next = tasks.first;
        place->taken.last = tasks.last;
    }
    place->is_full = room == 0;
    if (place->taken.first != NULL) /* their reservations have ended: others may begin */
        (void)tni_crew_wake(sched);
}

/* Give jobs to the pool, as long as it has room for them. */
static void give_jobs(struct tni_place *place)
{
    struct tni_task *task;
    while ((task = place->taken.first) != NULL) {
        tn_message job = {0};
        bool has_room = true;
        int status = TN_ERR_INTERRUPTED;
        task->attempt++;
        if (!atomic_load_explicit(&tni_graph_of(task)->tasks.is_cancelled,
                                  memory_order_relaxed))
            status = fill_in(place, task, &job);
        if (status == 0) {
            status = tni_pool_give(place->pool, &job, task, &place->newest);
            has_room = status != TN_ERR_TIMED_OUT && status != TN_ERR_NO_MEMORY;
        }
        if (!has_room && place->given != NULL) {
            task->attempt--;
            return; /* a result will make room */
        }
        tni_chain_take(&place->taken);
        if (status == 0)
            link_given(place, task);
        else
            end_task(place, task, status);
    }
}

/*
 * Give back the CPU of tasks that have seceded in their workers. Tasks that shared it with such
 * a task may now run beside each other, in the worker that goes on and in one that was started
 * instead: from here on, each task has its own. Not under the lock.
 */
static void let_secede(struct tni_place *place)
{
    struct tn_sched *sched = place->worker.sched;
    void *context;
    uint64_t job;
    while (tni_pool_next_seceded(place->pool, &job, &context)) {
        if (job <= place->dropped || context == NULL) /* NULL: not a task's */
            continue;
        tni_sched_lock(sched);
        place->most = 1;
        place->is_full = false;
        tni_finish_secede(sched, context, tni_os_now_ns());
        (void)tni_crew_wake(sched);
        tni_sched_unlock(sched);
    }
}

/* ---- fetching results -------------------------------------------------------------------- */

/* End a task by its result, or all tasks if the pool failed. @return false: there is none */
static bool settle(struct tni_place *place, int status, tn_pool_result *result, void *context)
{
    struct tni_task *task = context;
    if (status == TN_ERR_NO_MEMORY)
        place->is_short = true; /* the result is still there */
    if (status == TN_ERR_TIMED_OUT || status == TN_ERR_NO_MEMORY)
        return false;
    if (status != 0) {
        fail_given(place, status);
        return true;
    }
    bool is_dropped = result->job <= place->dropped;
    if (!is_dropped) {
        unlink_given(place, task);
        task->running->pid = result->pid;
        status = take_result(place, task, result);
    }
    tn_pool_result_fini(result);
    if (!is_dropped)
        end_task(place, task, status);
    return true;
}

/* Fetch results that are there. @return whether there was one */
static bool fetch(struct tni_place *place)
{
    uint32_t count = 0;
    tn_pool_result result = {.struct_size = sizeof result};
    void *context = NULL;
    while (place->given != NULL && count < RESULTS) {
        int status = tni_pool_take(place->pool, TN_NOW, &result, &context);
        if (!settle(place, status, &result, context))
            break;
        count++;
    }
    return count > 0;
}

/* Wait for a result. Under the lock, which is released meanwhile. */
static void await_result(struct tni_place *place, uint64_t until_ns)
{
    struct tn_sched *sched = place->worker.sched;
    tn_pool_result result = {.struct_size = sizeof result};
    void *context = NULL;
    place->is_fetching = true;
    tni_crew_call_hook(sched, sched->options.end_work);
    tni_sched_unlock(sched);
    int status = tni_pool_take(place->pool, (tn_deadline){until_ns}, &result, &context);
    tni_sched_lock(sched);
    tni_crew_call_hook(sched, sched->options.begin_work);
    place->is_fetching = false;
    tni_sched_unlock(sched);
    let_secede(place);
    (void)settle(place, status, &result, context);
    tni_sched_lock(sched);
}

/* Wait for tasks. Under the lock, which is released meanwhile. */
static void await_call(struct tni_place *place, uint64_t until_ns)
{
    struct tn_sched *sched = place->worker.sched;
    tni_crew_call_hook(sched, sched->options.end_work);
    while (!place->is_called && !sched->is_closing && tni_os_now_ns() < until_ns)
        tni_sched_wait(sched, &place->worker.wake_up, until_ns);
    tni_crew_call_hook(sched, sched->options.begin_work);
}

/* ---- the thread -------------------------------------------------------------------------- */

static void rest(struct tni_place *place)
{
    const struct tni_plan *plan = &place->worker.sched->plan;
    uint64_t until_ns = tni_plan_retry_ns(plan);
    if (place->is_short)
        until_ns = TNI_MIN(until_ns, tni_os_now_ns() + RETRY_NS);
    if (place->is_called)
        return;
    if (place->given != NULL && !place->is_short)
        await_result(place, until_ns);
    else
        await_call(place, until_ns);
}

static void run_thread(void *context)
{
    struct tni_place *place = context;
    struct tn_sched *sched = place->worker.sched;
    tni_interrupt_exempt(true);
    tni_crew_set_current(&place->worker);
    tni_sched_lock(sched);
    tni_crew_call_hook(sched, sched->options.begin_work);
    while (!sched->is_closing) {
        take_tasks(place);
        tni_sched_unlock(sched);
        give_jobs(place);
        bool has_result = fetch(place);
        let_secede(place);
        tni_sched_lock(sched);
        if (!has_result)
            rest(place);
    }
    tni_crew_call_hook(sched, sched->options.end_work);
    tni_sched_unlock(sched);
}

/* ---- making and ending ------------------------------------------------------------------- */

static void free_place(struct tni_place *place, bool is_own)
{
    if (is_own) {
        tni_pool_release(place->pool);
        tni_os_cond_fini(&place->worker.wake_up);
    }
    free(place->worker.running);
    free(place);
}

/* Not under the lock: the pool is claimed, so no other thread makes this place. */
static int make_place(struct tn_sched *sched, struct tn_pool *pool,
                      struct tni_place **ret_place)
{
    struct tni_place *place = calloc(1, sizeof *place);
    if (place == NULL)
        return tni_fail(TN_ERR_NO_MEMORY, "there is no memory for the thread that uses a pool");
    int status = tni_worker_init(sched, &place->worker);
    if (status != 0) {
        free(place);
        return status;
    }
    uint64_t cpus = sched->plan.pools.pools[TNI_CPU].total / TNI_UNIT;
    bool is_batch = !tni_sched_is_traced(sched) && tni_pool_worker_count(pool) <= cpus;
    place->worker.is_place = true;
    place->pool = pool;
    place->most = is_batch ? BATCH : 1;
    status = tni_os_thread_start("tenon jobs", run_thread, place, &place->worker.thread);
    if (status != 0) {
        tni_worker_fini(&place->worker);
        free(place);
        return status;
    }
    *ret_place = place;
    return 0;
}

static struct tni_place *find_place(struct tn_sched *sched, const struct tn_pool *pool)
{
    tni_sched_lock(sched);
    struct tni_place *place = sched->places;
    while (place != NULL && place->pool != pool)
        place = place->next;
    tni_sched_unlock(sched);
    return place;
}

int tni_place_of(struct tn_sched *sched, struct tn_pool *pool, struct tni_place **ret_place)
{
    *ret_place = find_place(sched, pool);
    if (*ret_place != NULL)
        return 0;
    int status = tni_pool_claim(pool);
    if (status != 0)
        return status;
    status = make_place(sched, pool, ret_place);
    if (status != 0) {
        tni_pool_release(pool);
        return status;
    }
    tni_sched_lock(sched);
    (*ret_place)->next = sched->places;
    sched->places = *ret_place;
    tni_sched_unlock(sched);
    return 0;
}

void tni_places_end(struct tn_sched *sched)
{
    bool is_own = sched->pid == tni_os_pid(); /* a forked child has no threads to end */
    struct tni_place *next, *places;
    if (is_own)
        tni_sched_lock(sched);
    places = sched->places;
    sched->places = NULL; /* their threads go through the list until they end */
    for (struct tni_place *place = places; is_own && place != NULL; place = place->next)
        tni_os_cond_signal(&place->worker.wake_up);
    sched->is_closing = true;
    if (is_own)
        tni_sched_unlock(sched);
    for (; places != NULL; places = next) {
        next = places->next;
        if (is_own)
            tni_os_thread_join(&places->worker.thread);
        free_place(places, is_own);
    }
}
