/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pool_crew: the workers of a pool, from the owner's side: started, collected, replaced. The
 * invariants are in pool.c.
 */
#include <stdio.h>
#include <string.h>

#include "spawn/pool.h"

enum {
    TEND_NS = 10 * 1000 * 1000 /* how long calls that do not wait leave the workers alone */
};

static const uint64_t most_patience_ns = UINT64_C(10000000000); /* with a fork server */

/* ---- starting a worker ------------------------------------------------------------------- */

struct work {
    struct tni_pool_pass pass;
    tn_pool_fn *run;
    void *context;
};

/* In a child. Who made the pool is gone, or ended it: nothing to say. */
static int run_worker(struct tn_domain *domain, void *argument)
{
    const struct work *work = argument;
    int status = tni_pool_work(domain, &work->pass, work->run, work->context);
    if (status != 0 && status != TN_ERR_PEER_DIED)
        tn_process_fail(tn_error_detail());
    return status == 0 ? 0 : 1;
}

static int exec_worker(struct tn_pool *pool, struct tn_process **ret_process)
{
    char variable[sizeof TNI_POOL_VARIABLE + TNI_POOL_VARIABLE_BYTES] = TNI_POOL_VARIABLE "=";
    tni_pool_write_variable(&pool->pass, variable + strlen(variable), TNI_POOL_VARIABLE_BYTES);
    pool->environment[pool->environment_count] = variable;
    int status = tn_process_exec(pool->domain, (const char *const *)pool->argv,
                                 (const char *const *)pool->environment, 0, ret_process);
    pool->environment[pool->environment_count] = NULL;
    return status;
}

static int start_process(struct tn_pool *pool, struct tni_wait *wait,
                         struct tn_process **ret_process)
{
    struct work work = {pool->pass, pool->run, pool->context};
    struct tni_server_call call = {run_worker, &work, sizeof work, 0};
    switch (pool->start) {
    case TN_START_FORK:
        return tn_process_fork(pool->domain, run_worker, &work, 0, ret_process);
    case TN_START_SPAWN:
        return exec_worker(pool, ret_process);
    default:
        return tni_server_fork(pool->server, &call, wait, ret_process);
    }
}

int tni_crew_start(struct tn_pool *pool, uint32_t index, struct tni_wait *wait)
{
    /* No room: those that died before they took theirs left enough. */
    int status = tn_queue_push_tensor(pool->boards, pool->board, 0, TN_NOW);
    if (status == 0 || status == TN_ERR_TIMED_OUT || status == TN_ERR_PEER_DIED) {
        _Atomic uint64_t *row = tni_pool_row(pool->board, index);
        for (uint32_t i = 0; i < TNI_POOL_ROW; i++)
            atomic_store_explicit(&row[i], 0, memory_order_relaxed);
        pool->pass.worker = index;
        status = start_process(pool, wait, &pool->workers[index]);
    }
    pool->start_status = status;
    if (status != 0)
        snprintf(pool->start_detail, sizeof pool->start_detail, "%s", tn_error_detail());
    return status;
}

/* ---- workers that ended ------------------------------------------------------------------ */

static uint64_t count_begun(const struct tn_pool *pool)
{
    uint64_t begun = pool->begun_by_gone;
    for (uint32_t i = 0; i < pool->worker_count; i++)
        if (pool->workers[i] != NULL)
            begun += atomic_load_explicit(&tni_pool_row(pool->board, i)[TNI_POOL_ROW_BEGUN],
                                          memory_order_relaxed);
    return begun;
}

static uint32_t barren_limit(const struct tn_pool *pool) { return pool->worker_count + 4; }

uint32_t tni_crew_count(const struct tn_pool *pool)
{
    uint32_t running = 0;
    for (uint32_t i = 0; i < pool->worker_count; i++)
        running += pool->workers[i] != NULL;
    return running;
}

/* I6. Whoever began a job meanwhile shows that workers can. */
static void forgive(struct tn_pool *pool)
{
    uint64_t begun = count_begun(pool);
    if (begun != pool->begun)
        pool->barren = 0;
    pool->begun = begun;
}

static void note_death(struct tn_pool *pool, uint32_t index, const tn_process_status *end)
{
    uint64_t id = atomic_load_explicit(&tni_pool_row(pool->board, index)[TNI_POOL_ROW_JOB],
                                       memory_order_acquire);
    struct tni_job *job = id != 0 ? tni_jobs_find(&pool->table, id) : NULL;
    if (job == NULL || job->is_done)
        return;
    job->death = *end;
    job->death_worker = index;
    job->death_count++;
}

/* If it has ended. */
static void collect(struct tn_pool *pool, uint32_t index)
{
    struct tn_process *process = pool->workers[index];
    if (process == NULL || tni_child_collect(process, 0) != 0)
        return;
    const tn_process_status *end = &process->status;
    note_death(pool, index, end);
    uint64_t begun = atomic_load_explicit(&tni_pool_row(pool->board, index)[TNI_POOL_ROW_BEGUN],
                                          memory_order_relaxed);
    forgive(pool); /* its row is still counted */
    pool->begun_by_gone += begun;
    pool->barren += begun == 0 && (!pool->is_ended || tni_child_has_failed(process));
    pool->last_end = *end;
    pool->may_have_lost = true;  /* it may have died over a message that it could not read */
    pool->workers[index] = NULL; /* child.c, I7 */
    tn_process_close(process);
}

/* Whether the last start ended with the wait for a fork server. */
static bool was_unanswered(const struct tn_pool *pool)
{
    return pool->start_status == TN_ERR_TIMED_OUT || pool->start_status == TN_ERR_INTERRUPTED;
}

static int fail_barren(const struct tn_pool *pool)
{
    char end[TNI_CHILD_END_BYTES];
    if (pool->start_status != 0 && !was_unanswered(pool))
        return tni_fail(pool->start_status, "no worker can be started: %s", pool->start_detail);
    tni_child_describe_end(&pool->last_end, end, sizeof end);
    return tni_fail(TN_ERR_CHILD_FAILED,
                    "%u workers ended one after the other before they began a job; the last, "
                    "process %d, %s",
                    pool->barren, pool->last_end.pid, end);
}

/* ---- looking after the workers ----------------------------------------------------------- */

void tni_crew_collect(struct tn_pool *pool)
{
    for (uint32_t i = 0; i < pool->worker_count; i++)
        collect(pool, i);
}

static bool is_wanted(struct tn_pool *pool)
{
    if (pool->barren >= barren_limit(pool))
        forgive(pool);
    if (pool->is_over || pool->barren >= barren_limit(pool))
        return false;
    if (!pool->is_ended)
        return true;
    /* Those that are left finish it; there may be results of who is gone. */
    if (pool->table.under_way > 0)
        (void)!tni_pool_drain(pool);
    return pool->table.under_way > 0 && tni_crew_count(pool) == 0;
}

/* I7. Not of workers that are not wanted any more (I6). */
static bool awaits_server(const struct tn_pool *pool)
{
    return pool->start == TN_START_FORKSERVER && was_unanswered(pool) &&
           pool->barren < barren_limit(pool);
}

static void note_failed_start(struct tn_pool *pool, uint32_t index)
{
    if (pool->start_status == TN_ERR_INTERRUPTED)
        return;
    tni_log(TNI_LOG_WARNING, "worker %u of a pool cannot be started: %s", index,
            pool->start_detail);
    if (awaits_server(pool))
        pool->patience_ns = TNI_MIN(2 * pool->patience_ns, most_patience_ns);
}

/* @return 0, TN_ERR_INTERRUPTED, or as tni_pool_check(): the hook of the wait forked */
static int restart(struct tn_pool *pool)
{
    for (uint32_t i = 0; i < pool->worker_count; i++) {
        if (pool->workers[i] != NULL || !is_wanted(pool))
            continue;
        if (awaits_server(pool) && !tni_server_is_free(pool->server))
            return 0;
        struct tni_wait wait = {.deadline_ns = tn_deadline_after(pool->patience_ns).ns};
        int started = tni_crew_start(pool, i, &wait), status = tni_pool_check(pool);
        if (status != 0)
            return status;
        if (started != 0) {
            note_failed_start(pool, i);
            return started == TN_ERR_INTERRUPTED ? started : 0;
        }
        pool->patience_ns = TNI_CREW_PATIENCE_NS;
        pool->restarts++;
    }
    return 0;
}

int tni_crew_tend(struct tn_pool *pool)
{
    pool->tend_ns = tni_os_coarse_ns() + TEND_NS;
    tni_crew_collect(pool);
    int status = restart(pool);
    if (status != 0)
        return status;
    if (pool->is_over || tni_crew_count(pool) > 0 || awaits_server(pool) ||
        (pool->is_ended && pool->table.under_way == 0))
        return 0;
    return fail_barren(pool);
}

void tni_crew_await(struct tn_pool *pool, uint64_t deadline_ns)
{
    for (uint32_t i = 0; i < pool->worker_count; i++)
        pool->fds[i] = pool->workers[i] != NULL ? pool->workers[i]->pid_fd : -1;
    if (tni_os_poll(pool->fds, pool->worker_count,
                    TNI_MIN(deadline_ns, tni_os_now_ns() + TNI_CREW_SLICE_NS)) ==
        TN_ERR_TIMED_OUT)
        tni_child_survive(pool->domain);
}

void tni_crew_signal(struct tn_pool *pool, int signal)
{
    for (uint32_t i = 0; i < pool->worker_count; i++)
        if (pool->workers[i] != NULL && tn_process_kill(pool->workers[i], signal) != 0)
            tni_log(TNI_LOG_WARNING, "signal %d to worker %u of a pool: %s", signal, i,
                    tn_error_detail());
}
