/* SPDX-License-Identifier: Apache-2.0 */
/* pool_make: makes a pool and starts its workers. The invariants are in pool.c. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "spawn/pool.h"

enum {
    MAX_WORKERS = 1024,
    MAX_CAPACITY = 1 << 18,
    DEFAULT_CAPACITY = 256,
    DEFAULT_ATTEMPTS = 3
};

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
    if (o.workers > MAX_WORKERS)
        return tni_fail(TN_ERR_INVALID, "a pool cannot have %u workers: at most %d are allowed",
                        o.workers, MAX_WORKERS);
    if (o.capacity > MAX_CAPACITY)
        return tni_fail(TN_ERR_INVALID,
                        "a pool cannot have a capacity of %u jobs: at most %d are allowed",
                        o.capacity, MAX_CAPACITY);
    if (o.start > TN_START_FORKSERVER)
        return tni_fail(TN_ERR_INVALID,
                        "tn_pool_options.start is %u: no start method has this number",
                        o.start);
    if (o.reserved != 0)
        return tni_fail(TN_ERR_INVALID, "tn_pool_options.reserved is %u, not 0", o.reserved);
    if (o.start != TN_START_SPAWN && run == NULL)
        return tni_fail(TN_ERR_INVALID,
                        "run is NULL, but a pool without TN_START_SPAWN needs a function");
    if (o.start == TN_START_SPAWN && run != NULL)
        return tni_fail(TN_ERR_INVALID, "run is not NULL, but with TN_START_SPAWN the program "
                                        "in argv gives the function");
    if (o.start == TN_START_SPAWN && (o.argv == NULL || o.argv[0] == NULL))
        return tni_fail(TN_ERR_INVALID,
                        "tn_pool_options.argv names no program, which TN_START_SPAWN needs");
    for (size_t i = 0; o.environment != NULL && o.environment[i] != NULL; i++)
        if (tni_variable_has_name(o.environment[i], TNI_POOL_VARIABLE))
            return tni_fail(TN_ERR_INVALID, "the environment of the pool has " TNI_POOL_VARIABLE
                                            ", which the library sets itself");
    if ((o.start == TN_START_FORKSERVER) != (o.server != NULL))
        return tni_fail(TN_ERR_INVALID,
                        "a pool needs a fork server with TN_START_FORKSERVER, and only then");
    *ret_options = o;
    return 0;
}

/*
 * Copy a list of strings. The copy has one free entry more. If memory runs out, the copy has
 * only the first strings, and the caller must free it. @return whether all strings were copied
 */
static bool copy_strings(const char *const *strings, char ***ret_copy, size_t *ret_count)
{
    size_t count = 0;
    while (strings != NULL && strings[count] != NULL)
        count++;
    char **copy = calloc(count + 2, sizeof copy[0]);
    *ret_copy = copy;
    *ret_count = count;
    for (size_t i = 0; copy != NULL && i < count; i++)
        if ((copy[i] = strdup(strings[i])) == NULL)
            return false;
    return copy != NULL;
}

/* Make the private part of a pool. */
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
    pool->worker_count = pool->used_count = o->workers;
    pool->place_count = o->workers + TNI_POOL_EXTRA;
    pool->start = o->start;
    pool->limit = o->capacity;
    pool->server = o->server;
    pool->pass.attempts = o->attempts;
    pool->patience_ns = TNI_POOL_SERVER_WAIT_NS;
    pool->workers = calloc(pool->place_count, sizeof pool->workers[0]);
    pool->pids = calloc(pool->place_count, sizeof pool->pids[0]);
    pool->fds = calloc(pool->place_count, sizeof pool->fds[0]);
    bool is_copied = copy_strings(o->argv, &pool->argv, &count);
    is_copied &= copy_strings(o->environment, &pool->environment, &pool->environment_count);
    *ret_pool = pool;
    if (pool->workers == NULL || pool->pids == NULL || pool->fds == NULL || !is_copied)
        return tni_fail(TN_ERR_NO_MEMORY, "no private memory for a pool of %u workers",
                        o->workers);
    return 0;
}

/*
 * Make the queues and the board. The queues have room for more messages than jobs can be under
 * way (I1): each worker and the worker that it replaced may still have one lease of a job whose
 * result was filed already, and each extra worker has a job (I9).
 */
static int make_shared(struct tn_pool *pool, const tn_pool_options *o)
{
    tn_queue_options queue = {.struct_size = sizeof queue,
                              .capacity = o->capacity + 2 * pool->place_count + 2,
                              .inline_bytes = o->inline_bytes,
                              .policy = TN_QUEUE_LEASE};
    tn_queue_options boards = {.struct_size = sizeof boards, .capacity = o->workers};
    int64_t shape[2] = {pool->place_count, TNI_POOL_ROW};
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
        return tni_fail_null(domain == NULL ? "the domain" : "ret_pool");
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
        status = tni_pool_start_worker(pool, i, &wait);
    if (status == 0) {
        *ret_pool = pool;
        return 0;
    }
    char detail[256];
    snprintf(detail, sizeof detail, "%s", tn_error_detail());
    tn_pool_close(pool);
    return tni_fail(status, "%s", detail);
}
