/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crew: the threads that run tasks.
 *
 * A worker takes resources and tasks under the lock, and runs the tasks without it. If the
 * tasks request CPUs only, it takes several at a time, and runs a task that became ready at
 * once, as long as its turn of about 50 us lasts. So short tasks do not need the lock each.
 *
 * A task can take much longer than others of its kind did, and tasks of the same turn wait
 * behind it. So one idle worker is the guard: it looks each millisecond, and puts tasks that
 * wait in a turn that made no progress, or became ready in it, back into the plan.
 */
#include <stdlib.h>

#include "sched/crew.h"

enum {
    BATCH = 512,         /* most tasks of a turn */
    TURN_NS = 50 * 1000, /* how long a turn lasts, if its tasks are shorter */
    SHORT_NS = 2000,     /* of shorter tasks, the time is not read after each */
    LOOK_NS = 1000000,   /* time between two looks of the guard */
    LEARNED = 4          /* kinds of one turn whose time is learned */
};

static _Thread_local struct tni_worker *current;
struct tni_worker *tni_crew_current(void) { return current; }
void tni_crew_set_current(struct tni_worker *worker) { current = worker; }

/* ---- waking up --------------------------------------------------------------------------- */

static void run_thread(void *context);

/* While a worker is on its way to the plan, no other is called: it may have to wait for a lock
 * of the program (begin_work), and calls the next one when it has taken tasks. */
static void call_worker(struct tn_sched *sched, struct tni_worker *worker)
{
    worker->is_coming = true;
    sched->coming_count++;
}

static void arrive(struct tni_worker *worker)
{
    worker->sched->coming_count -= worker->is_coming;
    worker->is_coming = false;
}

static void wake_one(struct tn_sched *sched)
{
    struct tni_worker *worker = sched->idle;
    sched->idle = worker->next_idle;
    atomic_fetch_sub_explicit(&sched->idle_count, 1, memory_order_relaxed);
    worker->is_woken = true;
    call_worker(sched, worker);
    tni_os_cond_signal(&worker->wake_up);
}

static int start_thread(struct tn_sched *sched)
{
    struct tni_worker *worker = malloc(sizeof *worker);
    if (worker == NULL)
        return tni_fail(TN_ERR_NO_MEMORY, "there is no memory for a worker");
    int status = tni_worker_init(sched, worker);
    if (status != 0) {
        free(worker);
        return status;
    }
    worker->next = sched->workers;
    status = tni_os_thread_start("tenon task", run_thread, worker, &worker->thread);
    if (status != 0) {
        tni_worker_fini(worker);
        free(worker);
        return status;
    }
    sched->workers = worker;
    sched->thread_count++;
    call_worker(sched, worker);
    return 0;
}

static bool may_start(const struct tn_sched *sched)
{
    return sched->thread_count < sched->thread_most + sched->seceded_count;
}

/* With one thread, all tasks run, unless its task may wait for them. */
static bool has_thread(const struct tn_sched *sched)
{
    const struct tni_worker *worker = sched->workers;
    while (worker != NULL && worker->has_seceded)
        worker = worker->next;
    return worker != NULL;
}

int tni_crew_wake(struct tn_sched *sched)
{
    if (tni_sched_is_virtual(sched))
        return 0;
    if (sched->places != NULL)
        tni_places_wake(sched, tni_os_now_ns());
    if (sched->coming_count > 0 || (sched->idle == NULL && !may_start(sched)) ||
        !tni_plan_can_start(&sched->plan, NULL, tni_os_now_ns()))
        return 0;
    if (sched->idle != NULL) {
        wake_one(sched);
        return 0;
    }
    int status = start_thread(sched);
    return has_thread(sched) ? 0 : status;
}

/* Let an idle worker look at the turns in which tasks wait. Under the lock. */
static void call_guard(struct tn_sched *sched)
{
    if (sched->guarded_count == 0 || sched->guard != NULL)
        return;
    if (sched->idle != NULL)
        tni_os_cond_signal(&sched->idle->wake_up);
    else if (sched->coming_count == 0 && may_start(sched))
        (void)start_thread(
            sched); /* else the tasks run all the same, after those before them */
}

/* ---- one turn of a worker ---------------------------------------------------------------- */

struct turn {
    struct tni_worker *worker;
    struct tni_task *next;  /* that became ready, and runs next; NULL: the first that waits */
    uint64_t waiting_key;   /* of the first that waits; UINT64_MAX: none does */
    struct tn_graph *graph; /* whose tasks `ended` counts */
    uint32_t ended, count;
    bool is_batch, is_short;
    bool is_handed_over;          /* a task that pends keeps what the turn has got */
    uint64_t started_ns, read_ns; /* when the time was last read */
    uint32_t unread;              /* tasks of `kind` since then */
    struct tn_kind *kind;
    struct learned {
        struct tn_kind *kind;
        uint64_t took_ns;
        uint32_t count;
    } learned[LEARNED];
    uint32_t learned_count;
};

/* Take the task that runs next. NULL: there is none */
static struct tni_task *take_task(struct turn *turn)
{
    struct tni_worker *worker = turn->worker;
    struct tni_task *task = turn->next;
    if (task != NULL) {
        turn->next = NULL;
        return task;
    }
    /* The guard takes all tasks that wait, or finds none: a task is never taken twice. */
    task = atomic_exchange_explicit(&worker->waiting, NULL, memory_order_acquire);
    if (task == NULL)
        return NULL;
    turn->waiting_key = task->next != NULL ? task->next->key : UINT64_MAX;
    atomic_store_explicit(&worker->waiting, task->next, memory_order_release);
    return task;
}

/* Read the time, and count what passed for the tasks of the kind since the last reading. */
static void read_time(struct turn *turn)
{
    uint64_t now_ns = tni_os_now_ns();
    if (turn->unread > 0 && turn->learned_count < LEARNED)
        turn->learned[turn->learned_count++] =
            (struct learned){turn->kind, now_ns - turn->read_ns, turn->unread};
    turn->read_ns = now_ns;
    turn->unread = 0;
}

/* Put what became ready into the plan, and count what ended. Under the lock. */
static void flush(struct turn *turn)
{
    struct tn_sched *sched = turn->worker->sched;
    struct tni_chain ready = {0};
    tni_worker_take_ready(turn->worker, &ready);
    if (ready.first != NULL) {
        tni_plan_push(&sched->plan, &ready);
        tni_crew_wake(sched);
    }
    if (turn->graph != NULL)
        tni_finish_count(turn->graph, turn->ended);
    turn->ended = 0;
    turn->graph = NULL;
}

static void flush_locked(struct turn *turn)
{
    tni_sched_lock(turn->worker->sched);
    flush(turn);
    tni_sched_unlock(turn->worker->sched);
}

static int call_task(struct tni_worker *worker, struct tni_task *task)
{
    tn_memory memory;
    tn_task_call call = {.graph = tni_graph_of(task),
                         .task = task->id,
                         .context = task->context,
                         .attempt = task->attempt,
                         .variant = task->kind->numbers[task->variant],
                         .flags = tni_finish_call_flags(task)};
    if (TNI_UNLIKELY(task->accesses != NULL)) {
        memory = tni_memory_named(worker->sched, worker->running->memory);
        call.memory = &memory;
        worker->running->has_run = true;
    }
    worker->task = task;
    int status = ((tn_task_fn *)task->kind->run[task->variant])(&call);
    worker->task = NULL;
    return status;
}

/*
 * The task's function returned TN_TASK_PENDING: hand over what it has got, or end the task if
 * that was asked for meanwhile. @return whether the task pends
 */
static bool let_pend(struct turn *turn, struct tni_task *task, int *status)
{
    struct tni_worker *worker = turn->worker;
    struct tn_sched *sched = worker->sched;
    bool pends = false;
    tni_sched_lock(sched);
    struct tni_running *next = task->is_ended_early ? NULL : tni_running_create(sched);
    if (task->is_ended_early) {
        *status = tni_finish_early(tni_graph_of(task), task);
    } else if (next == NULL) {
        *status = tni_fail(TN_ERR_NO_MEMORY, "there is no memory for a task that pends");
        tni_finish_failure(tni_graph_of(task), task, *status);
    } else {
        pends = turn->is_handed_over = true;
        task->running = worker->running;
        task->running->left = 1;
        worker->running = next;
        atomic_store_explicit(&task->state, TNI_TASK_PENDING, memory_order_relaxed);
        tni_plan_give_back(&sched->plan, task->running, TNI_BUILT_IN_MASK, tni_os_now_ns());
        tni_crew_wake(sched);
    }
    tni_sched_unlock(sched);
    return pends;
}

static int settle_status(struct turn *turn, struct tni_task *task, int status)
{
    struct tn_sched *sched = turn->worker->sched;
    status = tni_finish_status(task, status);
    if (status < 0) {
        tni_sched_lock(sched);
        tni_finish_failure(tni_graph_of(task), task, status);
        tni_sched_unlock(sched);
    }
    return status;
}

static void count_ended(struct turn *turn, struct tni_task *task, uint32_t ended)
{
    turn->graph = tni_graph_of(task);
    turn->ended += ended;
}

/* Whether a task that became ready runs in this turn. */
static bool is_next(const struct turn *turn, const struct tni_task *task)
{
    const struct tn_sched *sched = turn->worker->sched;
    if (!turn->is_batch || task->accesses != NULL ||
        task->kind->signature != turn->worker->running->signature ||
        turn->worker->has_seceded || turn->count >= BATCH)
        return false;
    if (!turn->is_short && turn->read_ns - turn->started_ns >= TURN_NS)
        return false;
    return task->key <= atomic_load_explicit(&sched->plan.best_key, memory_order_relaxed) &&
           task->key <= turn->waiting_key;
}

static void end_task(struct turn *turn, struct tni_task *task, int status)
{
    struct tni_chain ready = {0};
    uint32_t ended = 0;
    struct tni_slot_ref place = tni_running_place(turn->worker->running);
    if (place.pool != TNI_NO_SLOT.pool) {
        tni_sched_lock(turn->worker->sched);
        tni_task_made_on(task, place);
        tni_sched_unlock(turn->worker->sched);
    }
    tni_task_end(task, status, &ready, &ended);
    count_ended(turn, task, ended);
    struct tni_task *first = ready.first;
    if (first == NULL)
        return;
    if (is_next(turn, first)) {
        turn->next = tni_chain_take(&ready);
    }
    if (ready.first == NULL)
        return;
    tni_worker_add_ready(turn->worker, &ready);
    if (turn->worker->running->accesses != NULL)
        return; /* who waits for the task finds its data given back: take_turn() */
    /* What needs other resources does not wait for the next task of this turn. */
    if (first->kind->signature != turn->worker->running->signature ||
        atomic_load_explicit(&turn->worker->sched->idle_count, memory_order_relaxed) > 0)
        flush_locked(turn);
}

/* Let other turns run the rest of the tasks, which need resources of their own. */
static void put_back(struct turn *turn)
{
    struct tni_chain tasks = {0};
    if (turn->next != NULL)
        tni_chain_append(&tasks, turn->next);
    turn->next = NULL;
    tni_worker_take_waiting(turn->worker, &tasks);
    tni_worker_add_ready(turn->worker, &tasks);
}

/* Bring the data of the task that runs next. That is no part of the time of its kind. */
static int move_data(struct turn *turn)
{
    struct tn_sched *sched = turn->worker->sched;
    bool moves = turn->worker->running->moves != NULL;
    int status = tni_moves_run(sched, turn->worker->running);
    if (moves) {
        tni_sched_lock(sched);
        tni_crew_wake(sched); /* for tasks that waited for what was moved */
        tni_sched_unlock(sched);
    }
    turn->read_ns = tni_os_now_ns();
    return status;
}

static void run_task(struct turn *turn, struct tni_task *task)
{
    struct tn_sched *sched = turn->worker->sched;
    if (turn->graph != NULL && turn->graph != tni_graph_of(task))
        flush_locked(turn); /* who waits for that graph does not wait for this task */
    if (task->kind != turn->kind) {
        read_time(turn);
        turn->is_short = turn->is_short && turn->count == 0;
        turn->kind = task->kind;
    }
    atomic_store_explicit(&turn->worker->run_count, ++turn->count, memory_order_relaxed);
    task->attempt++;
    atomic_store_explicit(&task->state, TNI_TASK_RUNNING, memory_order_relaxed);
    if (atomic_load_explicit(&tni_graph_of(task)->tasks.is_cancelled, memory_order_relaxed)) {
        end_task(turn, task, TN_ERR_INTERRUPTED);
        return;
    }
    int status = task->accesses == NULL ? 0 : move_data(turn);
    if (status == TN_ERR_DEVICE && tni_lineage_await(sched, task))
        return;
    if (status == 0) {
        status = call_task(turn->worker, task);
        turn->unread++;
    }
    if (!turn->is_short)
        read_time(turn);
    if (task->accesses != NULL) {
        turn->worker->running->has_failed = status != TN_TASK_DONE && status != TN_TASK_PENDING;
        if (status == TN_TASK_RETRY) /* it has written nothing */
            turn->worker->running->has_run = false;
    }
    if (status == TN_TASK_PENDING && let_pend(turn, task, &status)) {
        put_back(turn); /* the task keeps what this turn has got */
        return;
    }
    if (TNI_UNLIKELY(atomic_load_explicit(&task->watch, memory_order_relaxed) != NULL))
        tni_watch_end_locked(sched, task);
    if (turn->worker->has_seceded)
        put_back(turn);
    if (status == TN_TASK_OOM && sched->options.release_caches != NULL)
        sched->options.release_caches(sched->options.release_context);
    if (status > 0 && tni_finish_again(sched, task, turn->worker->running, &status)) {
        struct tni_chain again = {0};
        tni_chain_append(&again, task);
        tni_worker_add_ready(turn->worker, &again);
        return;
    }
    if (status != 0)
        status = settle_status(turn, task, status);
    if (tni_sched_is_traced(sched))
        tni_finish_trace(sched, task, turn->worker->running, status, tni_os_now_ns());
    end_task(turn, task, status);
}

/* Take tasks and run them. Under the lock, which is released meanwhile. @return false: none */
static bool take_turn(struct tni_worker *worker)
{
    struct tn_sched *sched = worker->sched;
    struct turn turn = {
        .worker = worker, .started_ns = tni_os_now_ns(), .waiting_key = UINT64_MAX};
    struct tni_chain tasks = {0};
    struct tni_task *task;
    /* With a trace, each task has its own times. */
    const struct tni_taker taker = {.now_ns = turn.started_ns,
                                    .most = tni_sched_is_traced(sched) ? 1 : BATCH,
                                    .batch_ns = TURN_NS};
    if (!tni_plan_next(&sched->plan, &taker, worker->running, &tasks))
        return false;
    uint32_t variant = worker->running->variant;
    uint64_t mean_ns = tasks.first->kind->mean_ns[variant];
    turn.is_batch = worker->running->signature->is_batch && taker.most > 1;
    turn.is_short = turn.is_batch && mean_ns != 0 && mean_ns < SHORT_NS;
    turn.read_ns = turn.started_ns;
    turn.kind = tasks.first->kind;
    bool has_data = worker->running->accesses != NULL;
    turn.is_batch = turn.is_batch && !has_data;
    turn.is_short = turn.is_short && !has_data;
    bool is_guarded = tasks.first != tasks.last || turn.is_short;
    atomic_store_explicit(&worker->waiting, tasks.first, memory_order_release);
    tni_crew_wake(sched);
    sched->guarded_count += is_guarded;
    call_guard(sched);
    tni_sched_unlock(sched);

    while ((task = take_task(&turn)) != NULL) {
        run_task(&turn, task);
        if (turn.is_short)
            continue;
        /* The next task may be long: nothing else waits for it. */
        if (turn.read_ns - turn.started_ns >= TURN_NS)
            put_back(&turn);
        if (tni_worker_has_ready(worker) && !has_data)
            flush_locked(&turn);
    }
    read_time(&turn);

    tni_sched_lock(sched);
    sched->guarded_count -= is_guarded;
    for (uint32_t i = 0; i < turn.learned_count; i++)
        tni_kind_learn(turn.learned[i].kind, variant, turn.learned[i].took_ns,
                       turn.learned[i].count);
    if (!turn.is_handed_over)
        tni_finish_use(sched, worker->running, turn.read_ns);
    if (worker->has_seceded)
        sched->seceded_count--;
    worker->has_seceded = false;
    flush(&turn);
    tni_places_wake(sched, turn.read_ns); /* this worker looks only at tasks for threads */
    return true;
}

/* ---- sleeping ---------------------------------------------------------------------------- */

static void leave_idle(struct tn_sched *sched, const struct tni_worker *worker)
{
    struct tni_worker **at = &sched->idle;
    while (*at != NULL && *at != worker)
        at = &(*at)->next_idle;
    if (*at == NULL)
        return; /* wake_one() has taken it out */
    *at = worker->next_idle;
    atomic_fetch_sub_explicit(&sched->idle_count, 1, memory_order_relaxed);
}

void tni_crew_call_hook(struct tn_sched *sched, void (*hook)(void *))
{
    if (hook == NULL)
        return;
    tni_sched_unlock(sched);
    hook(sched->options.work_context);
    tni_sched_lock(sched);
}

/* Whether a worker has to do something else than to wait for a task. */
static bool is_done(const struct tni_worker *worker)
{
    return worker->helps != NULL ? tni_graph_has_ended(worker->helps)
                                 : worker->sched->is_closing;
}

/* Sleep for a while, as the guard or not. Under the lock, which is released meanwhile. */
static int sleep_once(struct tni_worker *worker, uint64_t until_ns)
{
    struct tn_sched *sched = worker->sched;
    uint64_t look_ns = TNI_FOREVER;
    int status = 0;
    if (sched->guarded_count > 0 && sched->guard == NULL) {
        sched->guard = worker;
        look_ns = tni_os_now_ns() + LOOK_NS;
        until_ns = TNI_MIN(until_ns, look_ns);
    }
    /* The hook that interrupts waits is for waits of the program, not for those here. */
    if (worker->helps != NULL)
        status = tni_sched_sleep(sched, &worker->wake_up, until_ns);
    else
        tni_sched_wait(sched, &worker->wake_up, until_ns);
    if (sched->guard != worker)
        return status;
    sched->guard = NULL;
    if (tni_os_now_ns() >= look_ns && tni_workers_look(sched))
        tni_crew_wake(sched);
    return status;
}

/* Sleep until there is something to do. Under the lock, which is released meanwhile. */
static int be_idle(struct tni_worker *worker, uint64_t deadline_ns)
{
    struct tn_sched *sched = worker->sched;
    int status = 0;
    worker->is_woken = false;
    worker->next_idle = sched->idle;
    sched->idle = worker;
    atomic_fetch_add_explicit(&sched->idle_count, 1, memory_order_relaxed);
    tni_crew_call_hook(sched, sched->options.end_work);
    while (!worker->is_woken && status == 0 && !is_done(worker)) {
        uint64_t until_ns = TNI_MIN(deadline_ns, tni_plan_retry_ns(&sched->plan));
        if (until_ns != TNI_FOREVER && tni_os_now_ns() >= until_ns)
            break;
        status = sleep_once(worker, until_ns);
    }
    leave_idle(sched, worker);
    call_guard(sched);
    tni_crew_call_hook(sched, sched->options.begin_work);
    arrive(worker);
    return status;
}

/* ---- workers ----------------------------------------------------------------------------- */

static void run_thread(void *context)
{
    struct tni_worker *worker = context;
    struct tn_sched *sched = worker->sched;
    current = worker;
    tni_sched_lock(sched);
    tni_crew_call_hook(sched, sched->options.begin_work);
    arrive(worker);
    while (!sched->is_closing)
        if (!take_turn(worker))
            (void)be_idle(worker, TNI_FOREVER);
    tni_crew_call_hook(sched, sched->options.end_work);
    tni_sched_unlock(sched);
    current = NULL;
}

int tni_crew_help(struct tn_sched *sched, struct tn_graph *graph, uint64_t deadline_ns)
{
    struct tni_worker worker;
    int status = tni_worker_init(sched, &worker);
    if (status != 0)
        return status;
    worker.helps = graph;
    worker.outer = current;
    worker.next = sched->workers;
    sched->workers = &worker;
    current = &worker;
    while (status == 0 && !tni_graph_has_ended(graph)) {
        if (deadline_ns != TNI_FOREVER && tni_os_now_ns() >= deadline_ns)
            status = tni_fail(TN_ERR_TIMED_OUT, "tasks of the graph have not ended");
        else if (!take_turn(&worker))
            status = be_idle(&worker, deadline_ns);
    }
    current = worker.outer;
    struct tni_worker **at = &sched->workers;
    while (*at != &worker)
        at = &(*at)->next;
    *at = worker.next;
    if (worker.is_woken)
        tni_crew_wake(sched); /* it was woken up for a task that it does not run */
    tni_worker_fini(&worker);
    return status;
}

void tni_crew_end(struct tn_sched *sched)
{
    bool is_own = sched->pid == tni_os_pid(); /* a forked child has no threads to end */
    if (is_own) {
        tni_sched_lock(sched);
        sched->is_closing = true;
        while (sched->idle != NULL)
            wake_one(sched);
        tni_sched_unlock(sched);
    }
    /* A thread looks at all workers, so none is freed before all have ended. */
    for (struct tni_worker *worker = sched->workers; is_own && worker != NULL;
         worker = worker->next)
        tni_os_thread_join(&worker->thread);
    while (sched->workers != NULL) {
        struct tni_worker *worker = sched->workers;
        sched->workers = worker->next;
        if (is_own)
            tni_os_cond_fini(&worker->wake_up);
        free(worker->running);
        free(worker);
    }
}

void tni_crew_secede(struct tni_worker *worker)
{
    struct tn_sched *sched = worker->sched;
    tni_sched_lock(sched);
    if (!worker->has_seceded) {
        worker->has_seceded = true;
        sched->seceded_count++; /* its thread is one more than the resources allow */
        tni_plan_give_back(&sched->plan, worker->running, TNI_BUILT_IN_MASK, tni_os_now_ns());
        tni_crew_wake(sched);
    }
    tni_sched_unlock(sched);
}
