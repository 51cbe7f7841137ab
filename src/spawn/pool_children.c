/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pool_children: starts, collects and signals the workers of a pool, in the owner. The
 * invariants are in pool.c.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "spawn/pool.h"

/* ---- starting a worker ------------------------------------------------------------------- */

struct work {
    struct tni_pool_pass pass;
    tn_pool_fn *run;
    void *context;
};

/* The main function of a worker. It returns 0 also if the owner died or ended the pool. */
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

int tni_pool_start_worker(struct tn_pool *pool, uint32_t index, struct tni_wait *wait)
{
    /* A full queue is fine: workers that died before they popped a board left theirs in it. */
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
    for (uint32_t i = 0; i < pool->used_count; i++)
        if (pool->workers[i] != NULL)
            begun += atomic_load_explicit(&tni_pool_row(pool->board, i)[TNI_POOL_ROW_BEGUN],
                                          memory_order_relaxed);
    return begun;
}

uint32_t tni_pool_count_workers(const struct tn_pool *pool)
{
    uint32_t running = 0;
    for (uint32_t i = 0; i < pool->used_count; i++)
        running += pool->workers[i] != NULL;
    return running;
}

/* If any worker began a job since the last call, workers can work: reset `early_ends` (I6). */
void tni_pool_note_progress(struct tn_pool *pool)
{
    uint64_t begun = count_begun(pool);
    if (begun != pool->begun)
        pool->early_ends = 0;
    pool->begun = begun;
}

static void note_death(struct tn_pool *pool, uint32_t index, const tn_process_status *end)
{
    uint64_t id = atomic_load_explicit(&tni_pool_row(pool->board, index)[TNI_POOL_ROW_JOB],
                                       memory_order_acquire);
    struct tni_job *job = id != 0 ? tni_jobs_find(&pool->table, id) : NULL;
    if (job == NULL || job->is_done)
        return;
    if (job->seceded_pid == end->pid)
        tni_jobs_unsecede(&pool->table, job);
    job->last_death = *end;
    struct tni_death *more = realloc(job->deaths, (job->death_count + 1) * sizeof *more);
    if (more == NULL)
        return; /* the error does not name it */
    job->deaths = more;
    more[job->death_count++] = (struct tni_death){index, end->pid};
}

/* Collect one worker if it has ended. */
static void collect(struct tn_pool *pool, uint32_t index)
{
    struct tn_process *process = pool->workers[index];
    if (process == NULL || tni_child_collect(process, 0) != 0)
        return;
    const tn_process_status *end = &process->status;
    note_death(pool, index, end);
    uint64_t begun = atomic_load_explicit(&tni_pool_row(pool->board, index)[TNI_POOL_ROW_BEGUN],
                                          memory_order_relaxed);
    tni_pool_note_progress(pool); /* must come before the worker's row is no longer counted */
    pool->begun_by_gone += begun;
    pool->early_ends += begun == 0 && (!pool->is_ended || tni_child_has_failed(process));
    pool->last_end = *end;
    pool->may_have_lost = true;  /* the worker may have died while it popped a message */
    pool->workers[index] = NULL; /* child.c, I7 */
    tn_process_close(process);
}

void tni_pool_collect_workers(struct tn_pool *pool)
{
    for (uint32_t i = 0; i < pool->used_count; i++)
        collect(pool, i);
}

void tni_pool_await_worker(struct tn_pool *pool, uint64_t deadline_ns)
{
    for (uint32_t i = 0; i < pool->used_count; i++)
        pool->fds[i] = pool->workers[i] != NULL ? pool->workers[i]->pid_fd : -1;
    if (tni_os_poll(pool->fds, pool->used_count,
                    TNI_MIN(deadline_ns, tni_os_now_ns() + TNI_POOL_SLICE_NS)) ==
        TN_ERR_TIMED_OUT)
        tni_child_survive(pool->domain);
}

void tni_pool_signal_workers(struct tn_pool *pool, int signal)
{
    for (uint32_t i = 0; i < pool->used_count; i++)
        if (pool->workers[i] != NULL && tn_process_kill(pool->workers[i], signal) != 0)
            tni_log(TNI_LOG_WARNING, "signal %d could not be sent to worker %u of a pool: %s",
                    signal, i, tn_error_detail());
}
