/* SPDX-License-Identifier: Apache-2.0 */
/* Operations: fork servers and pools, with all processes that they start. */
#include "process/crash.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <tenon/sched.h>

#include "harness/tensor.h"
#include "process/process.h"

static uint64_t deaths(const struct crash_world *w)
{
    return atomic_load(&w->domain->segment.header->deaths);
}

/* Either a process that this one started was killed, or the test fails. */
static void expect_killed_below(struct crash_world *w, uint64_t before, int status)
{
    TN_CHECK_OK(tn_domain_reap(w->domain, NULL));
    if (deaths(w) != before)
        _exit(CRASH_KILLED_BELOW);
    TN_CHECK_OK(status);
}

/* ---- a fork server ----------------------------------------------------------------------- */

static void hold_one(struct crash_world *w) { w->tensor[0] = crash_tensor(w, 1000); }

static int use_domain(tn_domain *domain, void *argument)
{
    tn_queue *queue;
    tn_message message;
    TN_CHECK_OK(tn_object_open_id(domain, TN_OBJECT_QUEUE, *(uint64_t *)argument, &queue));
    TN_CHECK_OK(tn_queue_pop(queue, TN_NOW, &message));
    TN_CHECK_OK(tn_queue_push(queue, &message, TN_PUSH_MOVE, TN_NOW));
    message.tensor_count = 0;
    tn_message_fini(&message);
    tn_object_close(queue);
    return 0;
}

static int run_server(struct crash_world *w)
{
    uint64_t id = tn_object_id(w->queue);
    tn_forkserver *server;
    tn_process *process;
    tn_process_status end = {.struct_size = sizeof end};
    int status = tn_forkserver_start(w->domain, &server);
    if (status != 0)
        return status;
    crash_push(w, 1, 100);
    status = tn_forkserver_fork(server, use_domain, &id, sizeof id, 0, &process);
    if (status != 0)
        return status;
    TN_CHECK_OK(tn_process_wait(process, TN_FOREVER, &end));
    if (end.signal == 0)
        assert_int_equal(end.exit_code, 0);
    tn_process_close(process);
    tn_forkserver_close(server);
    return 0;
}

static void forkserver(struct crash_world *w)
{
    uint64_t before = deaths(w);
    int status = run_server(w);
    expect_killed_below(w, before, status);
}

/* ---- a pool ------------------------------------------------------------------------------ */

/* Return one of the job's two tensors, and one new tensor. The first job also secedes. */
static int do_job(tn_domain *domain, const tn_pool_job *job, tn_message *result, void *context)
{
    tn_tensor **list = job->room;
    int64_t size = 1000;
    (void)context;
    TN_CHECK(job->message->tensor_count == 2);
    int status = job->id == 1 ? tn_task_secede() : 0;
    if (status != 0)
        return status; /* the owner is dead */
    list[0] = job->message->tensors[1];
    job->message->tensors[1] = NULL;
    TN_CHECK_OK(tn_tensor_create(domain, TN_UINT8, 1, &size, NULL, &list[1]));
    crash_fill(tn_tensor_data(list[1]), (size_t)size);
    result->tensors = list;
    result->tensor_count = 2;
    return 0;
}

static int submit(struct crash_world *w, tn_pool *pool)
{
    tn_tensor *tensors[2] = {crash_tensor(w, 1000), crash_tensor(w, 1000)};
    tn_message message = {.tensors = tensors, .tensor_count = 2};
    return tn_pool_submit(pool, &message, TN_PUSH_MOVE, TN_FOREVER, NULL);
}

static int open_pool(struct crash_world *w, tn_pool_fn *task, tn_pool **ret_pool)
{
    tn_pool_options options = {.struct_size = sizeof options, .workers = 1, .attempts = 1};
    return tn_pool_create(w->domain, &options, task, NULL, ret_pool);
}

/* Fetch a result with this status, or one that reports the death of the worker. */
static int fetch(tn_pool *pool, int wanted)
{
    tn_pool_result result = {.struct_size = sizeof result};
    int status = tn_pool_fetch(pool, TN_POOL_ANY_JOB, TN_FOREVER, &result);
    if (status != 0)
        return status;
    TN_CHECK(result.status == wanted || result.status == TN_ERR_CHILD_FAILED);
    status = result.status == wanted ? 0 : result.status;
    tn_pool_result_fini(&result);
    return status;
}

static int end_pool(tn_pool *pool, int status)
{
    if (status == 0)
        status = tn_pool_end(pool);
    if (status == 0)
        status = tn_pool_join(pool, TN_FOREVER);
    if (status == 0)
        tn_pool_close(pool);
    return status;
}

static int run_pool(struct crash_world *w)
{
    tn_pool *pool;
    int status = open_pool(w, do_job, &pool);
    if (status != 0)
        return status;
    for (int i = 0; i < 2 && status == 0; i++)
        if ((status = submit(w, pool)) == 0)
            status = fetch(pool, 0);
    return end_pool(pool, status);
}

static void pool(struct crash_world *w)
{
    uint64_t before = deaths(w);
    int status = run_pool(w);
    expect_killed_below(w, before, status);
}

/* One worker works, one result waits to be fetched, and one job waits for a worker. */
static int sleep_over_second(tn_domain *domain, const tn_pool_job *job, tn_message *result,
                             void *context)
{
    if (job->id != 2)
        return do_job(domain, job, result, context);
    while (pause() == -1) {
    }
    return 0;
}

static int run_pool_to_its_close(struct crash_world *w)
{
    tn_pool *pool;
    int status = open_pool(w, sleep_over_second, &pool);
    for (int i = 0; i < 3 && status == 0; i++)
        status = submit(w, pool);
    if (status == 0)
        tn_pool_close(pool);
    return status;
}

static void close_pool(struct crash_world *w)
{
    int status = run_pool_to_its_close(w);
    if (status != 0) /* a worker was killed while it started */
        expect_killed_below(w, 0, status);
}

/* The pool has jobs and a result whose files were removed. */
static tn_tensor *make_lost(tn_domain *domain)
{
    tn_tensor_options options = {.struct_size = sizeof options,
                                 .strategy = TN_STRATEGY_FILE_SYSTEM};
    int64_t size = 1000;
    tn_tensor *tensor;
    TN_CHECK_OK(tn_tensor_create(domain, TN_UINT8, 1, &size, &options, &tensor));
    crash_fill(tn_tensor_data(tensor), (size_t)size);
    TN_CHECK(unlink(tnt_info(tensor).path) == 0);
    return tensor;
}

static int lose_result(tn_domain *domain, const tn_pool_job *job, tn_message *result,
                       void *context)
{
    (void)context;
    result->tensors = job->room;
    result->tensors[0] = make_lost(domain);
    result->tensor_count = 1;
    return 0;
}

static int run_pool_that_loses(struct crash_world *w)
{
    tn_pool *pool;
    int status = open_pool(w, lose_result, &pool);
    if (status != 0)
        return status;
    for (uint32_t count = 0; count <= 2 && status == 0; count++) {
        tn_tensor *tensors[2] = {NULL, NULL};
        for (uint32_t i = 0; i < count; i++)
            tensors[i] = make_lost(w->domain);
        tn_message message = {.tensors = tensors, .tensor_count = count};
        status = tn_pool_submit(pool, &message, TN_PUSH_MOVE, TN_FOREVER, NULL);
        if (status == 0)
            status = fetch(pool, TN_ERR_NOT_FOUND);
    }
    return end_pool(pool, status);
}

static void pool_lost(struct crash_world *w)
{
    uint64_t before = deaths(w);
    int status = run_pool_that_loses(w);
    expect_killed_below(w, before, status);
}

const struct crash_op crash_spawn_ops[] = {
    {.name = "forkserver", .is_costly = true, .prepare = hold_one, .run = forkserver},
    {.name = "pool", .is_costly = true, .prepare = hold_one, .run = pool},
    {.name = "pool_close", .is_costly = true, .prepare = hold_one, .run = close_pool},
    {.name = "pool_lost", .is_costly = true, .prepare = hold_one, .run = pool_lost},
    {0},
};
