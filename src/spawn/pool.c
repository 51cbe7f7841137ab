/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pool: worker processes, seen from the process that made them.
 *
 * Nouns: job, result, worker, board (pool.h), attempt, early end (of a worker that began no
 * job).
 * I1  A job is under way from its push until its result is filed; at most `limit` are. Both
 *     queues have room for more than that, so neither side waits for room while the other waits
 *     for it; who submits files results meanwhile. Before the owner waits, the bytes of all
 *     results that nobody fetched are in private memory.
 * I2  A job has one result: it is filed by its id while it is under way, and later ones of the
 *     same id are dropped.
 * I3  A worker acknowledges a job after its result is in the queue. So a death loses no job: it
 *     is delivered again (queue.h, TN_QUEUE_LEASE), or its result is there.
 * I4  How often a job may start is counted by its queue, and decided by who pops it. Its
 *     failure is told only by a result, and only named from what the board said.
 * I5  A job whose tensors are lost, or whose result's are, still has its result: one that says
 *     so. A message that cannot even be read is of a job that is under way and in neither
 *     queue: an empty queue of jobs, and then one of results, tell which.
 * I6  Workers that end before they begin a job are not replaced for ever: `early_ends` in a row
 * is bounded, and then the pool stays without them. I7  A fork server that does not answer
 * holds up one call, for `patience_ns` or until the program's hook ends the wait. It is not
 * asked for another worker before it has answered; then `patience_ns` is twice as long, up to a
 * limit, until a worker was started. Callers: the user. A death of the owner ends the workers
 * (child.c, I3) and, when its seat is reclaimed, gives back its queues, the board and what was
 * in them. A death of a worker: see pool_worker.c.
 */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "spawn/pool.h"

enum {
    MAX_WORKERS = 1024,
    MAX_CAPACITY = 1 << 18,
    DEFAULT_CAPACITY = 256,
    DEFAULT_ATTEMPTS = 3,
    ROOM_SLICE_NS = 1000 * 1000
};

/* ---- results ----------------------------------------------------------------------------- */

/* I1. Until a worker ends, for a slice at most. */
static void await_worker(struct tn_pool *pool, uint64_t deadline_ns)
{
    tni_pool_detach_results(pool);
    tni_crew_await(pool, deadline_ns);
}

/* Calls that come one after the other do it now and then. */
static int tend_if_due(struct tn_pool *pool)
{
    return tni_os_coarse_ns() < pool->tend_ns ? 0 : tni_crew_tend(pool);
}

/* Until one more result is filed. */
static int receive(struct tn_pool *pool, uint64_t deadline_ns)
{
    for (;;) {
        uint64_t slice_ns = deadline_ns == 0 ? 0 : tni_os_now_ns() + TNI_CREW_SLICE_NS;
        int status = tni_pool_file_next(pool, TNI_MIN(deadline_ns, slice_ns));
        if (!tni_pool_is_empty(status))
            return status;
        tni_pool_detach_results(pool);
        uint64_t finished = pool->table.count - pool->table.under_way;
        int tended = tni_crew_tend(pool);
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

/* ---- submitting -------------------------------------------------------------------------- */

static int compose(struct tn_pool *pool, const tn_message *message, tn_message *ret_message)
{
    struct tni_pool_job_head head = {.job = pool->table.newest + 1};
    tn_message m = message != NULL ? *message : (tn_message){0};
    uint64_t size_bytes;
    if (!tni_add_size(sizeof head, m.size_bytes, &size_bytes) ||
        (m.size_bytes > 0 && m.bytes == NULL))
        return tni_fail(TN_ERR_INVALID, "a job of %zu bytes, or of bytes that are nowhere",
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
 * Leases of the dead may fill the ring for a moment, and results that nobody fetched the
 * domain: neither goes away while we sleep, so results are filed in between.
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
        char why[256]; /* who drains asks for more results than there are */
        snprintf(why, sizeof why, "%s", tn_error_detail());
        (void)!tni_pool_drain(pool);
        bool is_last = now_ns >= deadline_ns || !is_full;
        if (!tni_pool_detach_results(pool) && is_last)
            return tni_fail(status == TN_ERR_PEER_DIED ? TN_ERR_TIMED_OUT : status, "%s", why);
        if ((status = tend_if_due(pool)) != 0)
            return status;
    }
}

int tn_pool_submit(tn_pool *pool, const tn_message *message, uint32_t flags,
                   tn_deadline deadline, uint64_t *ret_job)
{
    tn_message m;
    int status = tni_pool_check(pool);
    if (status == 0 && pool->is_ended)
        status = tni_fail(TN_ERR_CLOSED, "the pool was ended");
    if (status == 0)
        status = tend_if_due(pool);
    while (status == 0 && pool->table.under_way >= pool->limit)
        status = receive(pool, deadline.ns); /* I1 */
    if (status == 0)
        status = compose(pool, message, &m);
    if (status == 0)
        status = tni_jobs_reserve(&pool->table);
    if (status == 0)
        status = push_job(pool, &m, flags, deadline.ns);
    if (status != 0)
        return status;
    uint64_t id = tni_jobs_add(&pool->table)->id;
    if (ret_job != NULL)
        *ret_job = id;
    return 0;
}

/* ---- fetching ---------------------------------------------------------------------------- */

/* pre: check_result(ret_result) == 0 */
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

int tn_pool_fetch(tn_pool *pool, uint64_t id, tn_deadline deadline, tn_pool_result *ret_result)
{
    int status = tni_pool_check(pool);
    if (status == 0)
        status = check_result(ret_result);
    if (status != 0)
        return status;
    if (tend_if_due(pool) != 0 && (status = tni_pool_check(pool)) != 0)
        return status; /* else what came can be fetched all the same */
    for (;;) {
        struct tni_job *job =
            id == TN_POOL_ANY_JOB ? pool->table.first : tni_jobs_find(&pool->table, id);
        if (job != NULL && job->is_done) {
            hand_over(pool, job, ret_result);
            return 0;
        }
        if (id != TN_POOL_ANY_JOB && job == NULL && !pool->is_over)
            return tni_fail(TN_ERR_NOT_FOUND,
                            "no job %" PRIu64 " is under way, or its result was fetched", id);
        if (pool->table.under_way == 0)
            return fail_nothing(pool);
        if ((status = receive(pool, deadline.ns)) != 0)
            return status;
    }
}

void tn_pool_result_fini(tn_pool_result *result)
{
    if (result == NULL || result->struct_size < offsetof(tn_pool_result, detail))
        return;
    tn_message_fini(&result->message);
    size_t struct_size = TNI_MIN(result->struct_size, sizeof *result);
    memset((char *)result + sizeof struct_size, 0, struct_size - sizeof struct_size);
}

/* ---- ending ------------------------------------------------------------------------------ */

int tn_pool_end(tn_pool *pool)
{
    int status = tni_pool_check(pool);
    if (status == 0)
        status = tn_queue_end(pool->jobs);
    if (status != 0)
        return status;
    pool->is_ended = true;
    (void)!tni_crew_tend(pool);
    return tni_pool_check(pool);
}

int tn_pool_join(tn_pool *pool, tn_deadline deadline)
{
    int status = tni_pool_check(pool);
    if (status == 0 && !pool->is_ended)
        status = tni_fail(TN_ERR_INVALID, "a pool that was not ended");
    while (status == 0) {
        (void)!tni_pool_drain(pool);
        if ((status = tni_crew_tend(pool)) != 0)
            break;
        if (tni_crew_count(pool) == 0 && (pool->is_over || pool->table.under_way == 0))
            return 0;
        uint64_t now_ns = tni_os_now_ns();
        if (now_ns >= deadline.ns)
            return tni_fail(TN_ERR_TIMED_OUT, "%u workers still run, %" PRIu64 " jobs are left",
                            tni_crew_count(pool), pool->table.under_way);
        if (pool->table.under_way > 0)
            status = receive(pool, TNI_MIN(deadline.ns, now_ns + TNI_CREW_SLICE_NS));
        else if ((status = tni_pool_ask(pool)) == 0)
            await_worker(pool, deadline.ns);
        status = status == TN_ERR_TIMED_OUT ? 0 : status;
    }
    return status;
}

/* Results that they still push are filed, so that none of them waits for room. */
static void end_workers(struct tn_pool *pool, uint64_t deadline_ns)
{
    bool was_killed = false;
    pool->is_ended = pool->is_over = true;
    (void)!tn_queue_end(pool->jobs);
    tni_crew_collect(pool);
    if (deadline_ns != 0)
        tni_crew_signal(pool, SIGTERM);
    while (tni_crew_count(pool) > 0) {
        if (!was_killed && tni_os_now_ns() >= deadline_ns) {
            was_killed = true;
            tni_crew_signal(pool, SIGKILL);
        }
        await_worker(pool, was_killed ? TNI_FOREVER : deadline_ns);
        (void)!tni_pool_drain(pool);
        tni_crew_collect(pool);
    }
    (void)!tni_pool_drain(pool);
    pool->given_up += tni_jobs_give_up(&pool->table);
}

/* What nobody will do, so that it does not stay with who else has the queue open. */
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
    for (uint32_t i = 0; pool->workers != NULL && i < pool->worker_count; i++)
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

/* ---- making ------------------------------------------------------------------------------ */

static int read_options(const tn_pool_options *options, tn_pool_fn *run,
                        tn_pool_options *ret_options)
{
    tn_pool_options o = {0};
    int status = tni_take_options("tn_pool_options", options, sizeof o, &o);
    if (status != 0)
        return status;
    o.workers = o.workers != 0 ? o.workers : TNI_MIN(tni_os_cpu_count(), (uint32_t)MAX_WORKERS);
    o.attempts = o.attempts != 0 ? o.attempts : DEFAULT_ATTEMPTS;
    o.capacity = o.capacity != 0 ? o.capacity : DEFAULT_CAPACITY;
    if (o.reserved != 0 || o.start > TN_START_FORKSERVER || o.workers > MAX_WORKERS ||
        o.capacity > MAX_CAPACITY)
        return tni_fail(TN_ERR_INVALID, "a pool of %u workers and %u jobs, started by way %u",
                        o.workers, o.capacity, o.start);
    if (o.start == TN_START_SPAWN ? o.argv == NULL || o.argv[0] == NULL || run != NULL
                                  : run == NULL)
        return tni_fail(TN_ERR_INVALID, "a pool needs a function, or a program that has it");
    if ((o.start == TN_START_FORKSERVER) != (o.server != NULL))
        return tni_fail(TN_ERR_INVALID, "a fork server goes with TN_START_FORKSERVER only");
    *ret_options = o;
    return 0;
}

/* With one entry more than it needs. */
static char **copy_strings(const char *const *strings, size_t *ret_count)
{
    size_t count = 0;
    while (strings != NULL && strings[count] != NULL)
        count++;
    char **copy = calloc(count + 2, sizeof copy[0]);
    for (size_t i = 0; copy != NULL && i < count; i++)
        if ((copy[i] = strdup(strings[i])) == NULL) {
            free_strings(copy);
            return NULL;
        }
    *ret_count = count;
    return copy;
}

/* The private part. */
static int make_pool(struct tn_domain *domain, const tn_pool_options *o,
                     struct tn_pool **ret_pool)
{
    size_t count;
    struct tn_pool *pool = calloc(1, sizeof *pool);
    if (pool == NULL)
        return tni_fail(TN_ERR_NO_MEMORY, "no private memory for a pool");
    pool->domain = domain;
    tni_process_keep(domain);
    pool->owner_pid = tni_os_pid();
    pool->worker_count = o->workers;
    pool->start = o->start;
    pool->limit = o->capacity;
    pool->server = o->server;
    pool->pass.attempts = o->attempts;
    pool->patience_ns = TNI_CREW_PATIENCE_NS;
    pool->workers = calloc(o->workers, sizeof pool->workers[0]);
    pool->pids = calloc(o->workers, sizeof pool->pids[0]);
    pool->fds = calloc(o->workers, sizeof pool->fds[0]);
    pool->argv = copy_strings(o->argv, &count);
    pool->environment = copy_strings(o->environment, &pool->environment_count);
    *ret_pool = pool;
    if (pool->workers == NULL || pool->pids == NULL || pool->fds == NULL ||
        pool->argv == NULL || pool->environment == NULL)
        return tni_fail(TN_ERR_NO_MEMORY, "no private memory for a pool of %u workers",
                        o->workers);
    return 0;
}

/*
 * I1: besides what is under way, leases whose result was filed already, of workers old and new.
 */
static int make_shared(struct tn_pool *pool, const tn_pool_options *o)
{
    tn_queue_options queue = {.struct_size = sizeof queue,
                              .capacity = o->capacity + 2 * o->workers + 2,
                              .inline_bytes = o->inline_bytes,
                              .policy = TN_QUEUE_LEASE};
    tn_queue_options boards = {.struct_size = sizeof boards, .capacity = o->workers};
    int64_t shape[2] = {o->workers, TNI_POOL_ROW};
    int status = tn_queue_open(pool->domain, NULL, &queue, 0, &pool->jobs);
    queue.policy = TN_QUEUE_REDELIVER;
    if (status == 0)
        status = tn_queue_open(pool->domain, NULL, &queue, 0, &pool->results);
    if (status == 0)
        status = tn_queue_open(pool->domain, NULL, &boards, 0, &pool->boards);
    if (status == 0)
        status = tn_queue_attach(pool->jobs, TN_PRODUCER);
    if (status == 0)
        status = tn_queue_attach(pool->results, TN_CONSUMER);
    if (status == 0)
        status = tn_tensor_create(pool->domain, TN_UINT64, 2, shape,
                                  TN_OPTIONS(tn_tensor_options, .flags = TN_TENSOR_ZEROED),
                                  &pool->board);
    if (status != 0)
        return status;
    pool->pass.jobs = tn_object_id(pool->jobs);
    pool->pass.results = tn_object_id(pool->results);
    pool->pass.boards = tn_object_id(pool->boards);
    return 0;
}

int tn_pool_create(tn_domain *domain, const tn_pool_options *options, tn_pool_fn *run,
                   void *context, tn_pool **ret_pool)
{
    tn_pool_options o;
    struct tn_pool *pool = NULL;
    struct tni_wait wait = {.deadline_ns = TNI_FOREVER};
    if (domain == NULL || ret_pool == NULL)
        return tni_fail(TN_ERR_INVALID, "no domain, or nowhere to put the pool");
    int status = tni_process_check(domain);
    if (status == 0)
        status = read_options(options, run, &o);
    if (status == 0)
        status = make_pool(domain, &o, &pool);
    if (status == 0) {
        pool->run = run;
        pool->context = context;
        status = make_shared(pool, &o);
    }
    for (uint32_t i = 0; status == 0 && i < o.workers; i++)
        status = tni_crew_start(pool, i, &wait);
    if (status == 0) {
        *ret_pool = pool;
        return 0;
    }
    char detail[256];
    snprintf(detail, sizeof detail, "%s", tn_error_detail());
    tn_pool_close(pool);
    return tni_fail(status, "%s", detail);
}

int tn_pool_get_info(const tn_pool *pool, tn_pool_info *ret_info)
{
    if (pool == NULL)
        return tni_fail(TN_ERR_INVALID, "the pool is NULL");
    for (uint32_t i = 0; i < pool->worker_count; i++)
        pool->pids[i] = tn_process_pid(pool->workers[i]);
    tn_pool_info info = {.worker_pids = pool->pids,
                         .worker_count = pool->worker_count,
                         .job_count = (uint32_t)pool->table.under_way,
                         .restart_count = pool->restarts};
    return tni_give_struct("tn_pool_info", &info, sizeof info, ret_info);
}
