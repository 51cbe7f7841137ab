/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pool: worker processes, as the process that made them sees them.
 *
 * Nouns: job, result, worker, board (pool.h), attempt (one start of a job), early end (the end
 * of a worker that began no job).
 * I1  A job is under way from its push until its result is filed. At most `limit` jobs are
 *     under way, and both queues have room for more, so owner and workers never wait for room
 *     in a queue that only the other side can empty. A call that submits jobs also files
 *     results. Before the owner waits, it copies the bytes of all unfetched results to
 *     private memory.
 * I2  A job has one result: the first that arrives while the job is under way. Later results
 *     with the same id are dropped.
 * I3  A worker acknowledges a job after it pushed the result. So the death of a worker loses
 *     no job: the queue delivers it again (queue.h, TN_QUEUE_LEASE), or its result is there.
 * I4  The queue counts how often a job was started. A worker that pops a job which was
 *     started too often pushes a result that says so. The board only adds which worker had
 *     the job.
 * I5  If the tensors of a job or of its result are lost, the job still gets a result that
 *     says so. If a message cannot be read, its job is not known at first: once the queue of
 *     jobs and then the queue of results are empty, every job that is still under way is
 *     lost.
 * I6  Workers that end before they begin a job are not replaced for ever: if `early_ends` in
 *     a row reaches a limit, no worker is started again.
 * I7  A fork server that does not answer delays one call, for `patience_ns` or until the
 *     program's hook ends the wait. The pool asks it for no other worker before it has
 *     answered, and then waits twice as long, up to a limit, until a worker was started.
 * I8  The owner pushes a WAKE message to its own queue of results, to end a wait of the thread
 *     that has claimed the pool. At most two are in the queue, which has room for two messages
 *     that are no results. One that is popped later is dropped.
 * I9  A job that secedes says so once, by a message in the queue of results. If a scheduler has
 *     claimed the pool, `worker_count` other jobs then run beside it: `limit` does not count
 *     it, and the pool starts up to TNI_POOL_EXTRA more workers, which stay.
 *
 * Callers: the user. If the owner dies, its workers end (child.c, I3), and the reaper gives
 * back its queues, the board and the messages in them. The death of a worker: see
 * pool_worker.c.
 */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "spawn/pool.h"

enum { ROOM_SLICE_NS = 1000 * 1000 };

/* ---- results ----------------------------------------------------------------------------- */

/* Wait until a worker ends, for a slice of time at most (I1). */
static void await_worker(struct tn_pool *pool, uint64_t deadline_ns)
{
    tni_pool_detach_results(pool);
    tni_pool_await_worker(pool, deadline_ns);
}

/* Replace ended workers, unless a call did so a moment ago. */
static int tend_if_due(struct tn_pool *pool)
{
    return tni_os_coarse_ns() < pool->tend_ns ? 0 : tni_pool_replace_workers(pool);
}

/* Wait until one more result is filed. */
static int receive(struct tn_pool *pool, uint64_t deadline_ns)
{
    for (;;) {
        uint64_t slice_ns = deadline_ns == 0 ? 0 : tni_os_now_ns() + TNI_POOL_SLICE_NS;
        int status = tni_pool_file_next(pool, TNI_MIN(deadline_ns, slice_ns));
        if (!tni_pool_is_empty(status))
            return status;
        tni_pool_detach_results(pool);
        uint64_t finished = pool->table.count - pool->table.under_way;
        int tended = tni_pool_replace_workers(pool);
        if (tended != 0 && (status = tni_pool_check(pool)) != 0)
            return status;
        if (pool->may_have_lost)
            tni_pool_find_lost(pool);
        if (pool->table.count - pool->table.under_way > finished)
            return 0;
        if (tended != 0)
            return tended;
        if (deadline_ns == 0 || tni_os_now_ns() >= deadline_ns)
            return tni_fail_plain(TN_ERR_TIMED_OUT, "no result came until the deadline");
    }
}

static uint64_t limit_of(const struct tn_pool *pool)
{
    return (uint64_t)pool->limit + pool->table.seceded; /* I9 */
}

/* ---- submitting -------------------------------------------------------------------------- */

static int compose(struct tn_pool *pool, const tn_message *message, tn_message *ret_message)
{
    struct tni_pool_job_head head = {.job = pool->table.newest + 1};
    tn_message m = message != NULL ? *message : (tn_message){0};
    uint64_t size_bytes;
    if (!tni_add_size(sizeof head, m.size_bytes, &size_bytes))
        return tni_fail(TN_ERR_INVALID, "a job cannot have %zu bytes", m.size_bytes);
    if (m.size_bytes > 0 && m.bytes == NULL)
        return tni_fail(TN_ERR_INVALID, "bytes of the job is NULL, but size_bytes is %zu",
                        m.size_bytes);
    if (size_bytes > pool->out_bytes) {
        void *old = pool->out, *out = malloc(size_bytes);
        if (out == NULL)
            return tni_fail(TN_ERR_NO_MEMORY, "no private memory for a job of %zu bytes",
                            m.size_bytes);
        pool->out = out;
        pool->out_bytes = size_bytes;
        free(old); /* child.c, I7 */
    }
    memcpy(pool->out, &head, sizeof head);
    if (m.size_bytes > 0)
        memcpy(pool->out + sizeof head, m.bytes, m.size_bytes);
    m.bytes = pool->out;
    m.size_bytes = size_bytes;
    *ret_message = m;
    return 0;
}

/*
 * Push a job. Leases of dead workers may fill the queue, and unfetched results may fill the
 * domain. They stay while this process sleeps in a push. So the process pushes for one slice of
 * time, files results, and pushes again.
 */
static int push_job(struct tn_pool *pool, const tn_message *m, uint32_t flags,
                    uint64_t deadline_ns)
{
    for (;;) {
        uint64_t now_ns = deadline_ns == 0 ? 0 : tni_os_now_ns();
        uint64_t slice_ns = deadline_ns == 0 ? 0 : now_ns + ROOM_SLICE_NS;
        bool deferred = tni_interrupt_defer(true);
        int status =
            tn_queue_push(pool->jobs, m, flags, (tn_deadline){TNI_MIN(deadline_ns, slice_ns)});
        tni_interrupt_defer(deferred);
        if (status == TN_ERR_INTERRUPTED && (status = tni_pool_ask(pool)) == 0)
            continue;
        bool is_full = status == TN_ERR_TIMED_OUT || status == TN_ERR_PEER_DIED;
        if (!is_full && status != TN_ERR_NO_MEMORY)
            return status;
        char why[256]; /* tni_pool_drain() replaces the error detail */
        snprintf(why, sizeof why, "%s", tn_error_detail());
        (void)!tni_pool_drain(pool);
        bool is_last = now_ns >= deadline_ns || !is_full;
        if (!tni_pool_detach_results(pool) && is_last)
            return tni_fail(status == TN_ERR_PEER_DIED ? TN_ERR_TIMED_OUT : status, "%s", why);
        if ((status = tend_if_due(pool)) != 0)
            return status;
    }
}

static int submit(struct tn_pool *pool, const tn_message *message, uint32_t flags,
                  uint64_t deadline_ns, struct tni_job **ret_job)
{
    tn_message m;
    int status = tni_pool_check(pool);
    if (status == 0 && pool->is_ended)
        status = tni_fail(TN_ERR_CLOSED, "the pool was ended");
    if (status == 0)
        status = tend_if_due(pool);
    while (status == 0 && pool->table.under_way >= limit_of(pool)) /* I1 */
        if ((status = receive(pool, deadline_ns)) == TN_ERR_TIMED_OUT)
            return tni_fail_plain(
                TN_ERR_TIMED_OUT,
                "the pool is full: as many jobs are under way as its capacity "
                "allows, and none was done before the deadline");
    if (status == 0)
        status = compose(pool, message, &m);
    if (status == 0)
        status = tni_jobs_reserve(&pool->table);
    if (status == 0)
        status = push_job(pool, &m, flags, deadline_ns);
    if (status == 0)
        *ret_job = tni_jobs_add(&pool->table);
    return status;
}

int tn_pool_submit(tn_pool *pool, const tn_message *message, uint32_t flags,
                   tn_deadline deadline, uint64_t *ret_job)
{
    struct tni_job *job;
    int status = submit(pool, message, flags, deadline.ns, &job);
    if (status == 0 && ret_job != NULL)
        *ret_job = job->id;
    return status;
}

int tni_pool_give(struct tn_pool *pool, const tn_message *message, void *context,
                  uint64_t *ret_job)
{
    struct tni_job *job;
    int status = submit(pool, message, 0, TN_NOW.ns, &job);
    if (status != 0)
        return status;
    job->context = context;
    *ret_job = job->id;
    if (tni_pool_wants_extra(pool))
        (void)!tni_pool_replace_workers(pool);
    return 0;
}

/* ---- fetching ---------------------------------------------------------------------------- */

/* Give the caller the result of a job. pre: check_result(ret_result) == 0 */
static void hand_over(struct tn_pool *pool, struct tni_job *job, tn_pool_result *ret_result)
{
    tn_pool_result result = {.job = job->id,
                             .status = job->status,
                             .pid = job->pid,
                             .worker = job->worker,
                             .attempt = job->attempt,
                             .message = job->message};
    if (job->detail != NULL)
        snprintf(result.detail, sizeof result.detail, "%s", job->detail);
    (void)tni_give_struct("tn_pool_result", &result, sizeof result, ret_result);
    job->message = (tn_message){0};
    tni_jobs_drop(&pool->table, job);
}

static int fail_nothing(const struct tn_pool *pool)
{
    if (pool->is_over)
        return tni_fail(TN_ERR_CLOSED,
                        "the pool was terminated; %" PRIu64 " jobs were given up",
                        pool->given_up);
    return tni_fail_plain(TN_ERR_NOT_FOUND, "no job is under way, and no result is left");
}

static int check_result(const tn_pool_result *result)
{
    int status = tni_check_struct("tn_pool_result", result, sizeof *result);
    if (status == 0 && result->struct_size < offsetof(tn_pool_result, detail))
        return tni_fail(TN_ERR_INVALID,
                        "tn_pool_result.struct_size is %zu: no room for a message",
                        result->struct_size);
    return status;
}

/* Wait until the job, or any, has a result. */
static int find_done(struct tn_pool *pool, uint64_t id, uint64_t deadline_ns,
                     struct tni_job **ret_job)
{
    int status;
    if (tend_if_due(pool) != 0 && (status = tni_pool_check(pool)) != 0)
        return status; /* other errors do not keep a result from being fetched */
    for (;;) {
        struct tni_job *job =
            id == TN_POOL_ANY_JOB ? pool->table.first : tni_jobs_find(&pool->table, id);
        if (job != NULL && job->is_done) {
            *ret_job = job;
            return 0;
        }
        if (id != TN_POOL_ANY_JOB && job == NULL && !pool->is_over)
            return tni_fail(TN_ERR_NOT_FOUND,
                            "no job %" PRIu64 " is under way, or its result was fetched", id);
        if (pool->table.under_way == 0)
            return fail_nothing(pool);
        if (pool->is_woken || pool->table.told != NULL)
            return tni_fail_plain(TN_ERR_TIMED_OUT, "the wait for a result was ended");
        if ((status = receive(pool, deadline_ns)) != 0)
            return status;
    }
}

int tn_pool_fetch(tn_pool *pool, uint64_t id, tn_deadline deadline, tn_pool_result *ret_result)
{
    struct tni_job *job;
    int status = tni_pool_check(pool);
    if (status == 0)
        status = check_result(ret_result);
    if (status == 0)
        status = find_done(pool, id, deadline.ns, &job);
    if (status == 0)
        hand_over(pool, job, ret_result);
    return status;
}

int tni_pool_take(struct tn_pool *pool, tn_deadline deadline, tn_pool_result *ret_result,
                  void **ret_context)
{
    struct tni_job *job;
    int status = tni_pool_check(pool);
    if (status == 0)
        status = find_done(pool, TN_POOL_ANY_JOB, deadline.ns, &job);
    pool->is_woken = false;
    if (status != 0)
        return status;
    *ret_context = job->context;
    hand_over(pool, job, ret_result);
    return 0;
}

void tn_pool_result_fini(tn_pool_result *result)
{
    if (result == NULL || result->struct_size < offsetof(tn_pool_result, detail))
        return;
    tn_message_fini(&result->message);
    size_t struct_size = TNI_MIN(result->struct_size, sizeof *result);
    memset((char *)result + sizeof struct_size, 0, struct_size - sizeof struct_size);
}

/* ---- for the thread of a scheduler (spawn.h) --------------------------------------------- */

int tni_pool_claim(struct tn_pool *pool)
{
    int status = tni_pool_check(pool);
    if (status == 0 && pool->is_claimed)
        status = tni_fail_plain(TN_ERR_INVALID, "another scheduler uses the pool");
    if (status == 0)
        status = tn_queue_attach(pool->results, TN_PRODUCER);
    pool->is_claimed |= status == 0;
    return status;
}

void tni_pool_release(struct tn_pool *pool)
{
    pool->is_claimed = pool->is_woken = false; /* a late message is no result either */
}

void tni_pool_wake(struct tn_pool *pool)
{
    const struct tni_pool_result_head head = {.pid = pool->owner_pid, .kind = TNI_POOL_WAKE};
    const tn_message m = {.bytes = &head, .size_bytes = sizeof head};
    /* If the queue is full, there are results, and the thread does not wait. */
    (void)!tn_queue_push(pool->results, &m, 0, TN_NOW);
}

bool tni_pool_next_seceded(struct tn_pool *pool, uint64_t *ret_job, void **ret_context)
{
    struct tni_job *job = pool->table.told;
    if (job == NULL)
        return false;
    pool->table.told = job->next_told;
    job->next_told = NULL;
    *ret_job = job->id;
    *ret_context = job->context;
    if (tni_pool_wants_extra(pool)) /* jobs that were given before wait behind this one */
        (void)!tni_pool_replace_workers(pool);
    return true;
}

uint32_t tni_pool_room(const struct tn_pool *pool)
{
    uint64_t limit = limit_of(pool);
    return (uint32_t)(limit - TNI_MIN(pool->table.under_way, limit));
}

uint32_t tni_pool_worker_count(const struct tn_pool *pool) { return pool->worker_count; }

/* ---- ending ------------------------------------------------------------------------------ */

int tn_pool_end(tn_pool *pool)
{
    int status = tni_pool_check(pool);
    if (status == 0)
        status = tn_queue_end(pool->jobs);
    if (status != 0)
        return status;
    pool->is_ended = true;
    (void)!tni_pool_replace_workers(pool);
    return tni_pool_check(pool);
}

int tn_pool_join(tn_pool *pool, tn_deadline deadline)
{
    int status = tni_pool_check(pool);
    if (status == 0 && !pool->is_ended)
        status = tni_fail(TN_ERR_INVALID, "the pool was not ended: call tn_pool_end() first");
    while (status == 0) {
        (void)!tni_pool_drain(pool);
        if ((status = tni_pool_replace_workers(pool)) != 0)
            break;
        if (tni_pool_count_workers(pool) == 0 && (pool->is_over || pool->table.under_way == 0))
            return 0;
        uint64_t now_ns = tni_os_now_ns();
        if (now_ns >= deadline.ns)
            return tni_fail(TN_ERR_TIMED_OUT, "%u workers still run, %" PRIu64 " jobs are left",
                            tni_pool_count_workers(pool), pool->table.under_way);
        if (pool->table.under_way > 0)
            status = receive(pool, TNI_MIN(deadline.ns, now_ns + TNI_POOL_SLICE_NS));
        else if ((status = tni_pool_ask(pool)) == 0)
            await_worker(pool, deadline.ns);
        status = status == TN_ERR_TIMED_OUT ? 0 : status;
    }
    return status;
}

/* End all workers. Their last results are filed meanwhile, so that no worker waits for room. */
static void end_workers(struct tn_pool *pool, uint64_t deadline_ns)
{
    bool was_killed = false;
    pool->is_ended = pool->is_over = true;
    (void)!tn_queue_end(pool->jobs);
    tni_pool_collect_workers(pool);
    if (deadline_ns != 0)
        tni_pool_signal_workers(pool, SIGTERM);
    while (tni_pool_count_workers(pool) > 0) {
        if (!was_killed && tni_os_now_ns() >= deadline_ns) {
            was_killed = true;
            tni_pool_signal_workers(pool, SIGKILL);
        }
        await_worker(pool, was_killed ? TNI_FOREVER : deadline_ns);
        (void)!tni_pool_drain(pool);
        tni_pool_collect_workers(pool);
    }
    (void)!tni_pool_drain(pool);
    pool->given_up += tni_jobs_give_up(&pool->table);
}

/* Drop the messages in all queues, so that a process that has a queue open keeps no memory. */
static void empty_queues(struct tn_pool *pool)
{
    tn_message m;
    int lost;
    while (tni_queue_pop_bytes(pool->jobs, 0, &m, &lost) == 0) {
        (void)!tn_message_ack(pool->jobs, &m);
        tn_message_fini(&m);
    }
    tn_queue *const others[] = {pool->results, pool->boards};
    for (size_t i = 0; i < TNI_COUNT(others); i++) {
        (void)!tn_queue_end(others[i]);
        while (tni_queue_pop_bytes(others[i], 0, &m, &lost) == 0)
            tn_message_fini(&m);
    }
}

int tn_pool_terminate(tn_pool *pool, tn_deadline deadline)
{
    int status = tni_pool_check(pool);
    if (status != 0)
        return status;
    end_workers(pool, deadline.ns);
    empty_queues(pool);
    return 0;
}

static void free_strings(char **strings)
{
    for (size_t i = 0; strings != NULL && strings[i] != NULL; i++)
        free(strings[i]);
    free(strings);
}

static void free_pool(struct tn_pool *pool)
{
    tni_jobs_fini(&pool->table);
    tn_tensor_unref(pool->board);
    tn_object_close(pool->jobs);
    tn_object_close(pool->results);
    tn_object_close(pool->boards);
    for (uint32_t i = 0; pool->workers != NULL && i < pool->used_count; i++)
        tn_process_close(pool->workers[i]);
    free_strings(pool->argv);
    free_strings(pool->environment);
    free(pool->workers);
    free(pool->pids);
    free(pool->fds);
    free(pool->out);
    tni_process_unkeep(pool->domain);
    free(pool);
}

tn_pool *tn_pool_close(tn_pool *pool)
{
    if (pool == NULL)
        return NULL;
    if (pool->owner_pid == tni_os_pid() && pool->workers != NULL && pool->board != NULL) {
        end_workers(pool, 0);
        if (tni_process_has_seat(pool->domain))
            empty_queues(pool);
    }
    free_pool(pool);
    return NULL;
}

/* ---- information ---------------------------------------------------------------------- */

int tn_pool_get_info(const tn_pool *pool, tn_pool_info *ret_info)
{
    if (pool == NULL)
        return tni_fail_null("the pool");
    for (uint32_t i = 0; i < pool->used_count; i++)
        pool->pids[i] = tn_process_pid(pool->workers[i]);
    tn_pool_info info = {.worker_pids = pool->pids,
                         .worker_count = pool->used_count,
                         .job_count = (uint32_t)pool->table.under_way,
                         .restart_count = pool->restarts};
    return tni_give_struct("tn_pool_info", &info, sizeof info, ret_info);
}
