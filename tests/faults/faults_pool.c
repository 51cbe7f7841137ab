/* SPDX-License-Identifier: Apache-2.0 */
/* Pools of workers. */
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "faults.h"
#include "harness/tensor.h"

enum { LONG_MS = 20000 };

static tn_pool *pool;
static tn_pool_result result = {.struct_size = sizeof result};
static uint64_t job;

/* Our own children can always be signalled; a close() that cannot kill would wait for ever. */
#define KILLS .spared_call = SYS_pidfd_send_signal

static int answer(tn_domain *domain, const tn_pool_job *work, tn_message *ret_result,
                  void *context)
{
    (void)domain, (void)context;
    faults_child_runs();
    memcpy(work->room, "answer", 6);
    ret_result->bytes = work->room;
    ret_result->size_bytes = 6;
    return 0;
}

static int create_into(tn_pool **ret_pool)
{
    tn_pool_options options = {.struct_size = sizeof options, .workers = 1, .capacity = 4};
    return tn_pool_create(faults_d, &options, answer, NULL, ret_pool);
}
static int create(void) { return create_into(FAULTS_OUT(tn_pool *)); }
static void reap(void) { TN_CHECK_OK(tn_domain_reap(faults_d, NULL)); }
static void close_pool(void)
{
    pool = tn_pool_close(pool);
    reap();
}
/* A pool that was made is one that works, whatever failed in its first worker. */
static void use_and_close_out(void)
{
    pool = *FAULTS_OUT(tn_pool *);
    TN_CHECK_OK(tn_pool_submit(pool, NULL, 0, tnt_deadline(LONG_MS), NULL));
    TN_CHECK_OK(tn_pool_fetch(pool, TN_POOL_ANY_JOB, tnt_deadline(LONG_MS), &result));
    if (result.status != 0)
        fail_msg("the job failed: %d: %s", result.status, result.detail);
    tn_pool_result_fini(&result);
    close_pool();
}
FAULTS(tn_pool_create, KILLS, .prepare = faults_begin, .finish = faults_end, .forks = true,
       .call = create, .undo = use_and_close_out)

static void make(void)
{
    faults_begin();
    TN_CHECK_OK(create_into(&pool));
}
static void end(void)
{
    close_pool();
    faults_end();
}
static uint64_t jobs(void) { return tnt_pool_info(pool).job_count; }
#define WITH_POOL .prepare = make, .finish = end

/* ---- jobs -------------------------------------------------------------------------------- */

static int submit(void)
{
    tn_message message = {.bytes = "question", .size_bytes = 8};
    return tn_pool_submit(pool, &message, 0, TN_NOW, FAULTS_OUT(uint64_t));
}
static void fetch(void)
{
    TN_CHECK_OK(tn_pool_fetch(pool, TN_POOL_ANY_JOB, tnt_deadline(LONG_MS), &result));
    tn_pool_result_fini(&result);
}
static void submit_now(void)
{
    tn_message message = {.bytes = "question", .size_bytes = 8};
    TN_CHECK_OK(tn_pool_submit(pool, &message, 0, tnt_deadline(LONG_MS), &job));
}
static int next(void)
{
    return tn_pool_fetch(pool, TN_POOL_ANY_JOB, tnt_deadline(LONG_MS),
                         FAULTS_OUT_STRUCT(tn_pool_result));
}
static int get(void)
{
    return tn_pool_fetch(pool, job, tnt_deadline(LONG_MS), FAULTS_OUT_STRUCT(tn_pool_result));
}
static void fini_out(void) { tn_pool_result_fini(FAULTS_OUT(tn_pool_result)); }
FAULTS(tn_pool_submit, WITH_POOL, .depends = true, KILLS, .keeps_memory = true, .measure = jobs,
       .call = submit, .undo = fetch)
FAULTS_WHEN(tn_pool_fetch, any, WITH_POOL, KILLS, .keeps_memory = true, .before = submit_now,
            .call = next, .undo = fini_out)
FAULTS(tn_pool_fetch, WITH_POOL, KILLS, .keeps_memory = true, .before = submit_now, .call = get,
       .undo = fini_out)

static void have_result(void)
{
    submit_now();
    TN_CHECK_OK(tn_pool_fetch(pool, TN_POOL_ANY_JOB, tnt_deadline(LONG_MS), &result));
}
static int fini(void) { return tn_pool_result_fini(&result), 0; }
FAULTS(tn_pool_result_fini, WITH_POOL, .never_fails = true, .has_no_calls = true,
       .before = have_result, .call = fini)

/* ---- ending ------------------------------------------------------------------------------ */

#define WITH_DOMAIN .prepare = faults_begin, .finish = faults_end
static void make_pool(void) { TN_CHECK_OK(create_into(&pool)); }
static int end_it(void) { return tn_pool_end(pool); }
/* Together: a worker that is told to end may be gone a moment later. */
static int end_and_join(void)
{
    int status = tn_pool_end(pool);
    return status != 0 ? status : tn_pool_join(pool, tnt_deadline(LONG_MS));
}
static int terminate(void) { return tn_pool_terminate(pool, TN_NOW); }
static int close_it(void) { return pool = tn_pool_close(pool), 0; }
FAULTS(tn_pool_end, WITH_DOMAIN, .depends = true, KILLS, .before = make_pool, .call = end_it,
       .undo = close_pool)
FAULTS(tn_pool_join, WITH_DOMAIN, .depends = true, KILLS, .before = make_pool,
       .call = end_and_join, .undo = close_pool)
FAULTS(tn_pool_terminate, WITH_DOMAIN, KILLS, .before = make_pool, .call = terminate,
       .undo = close_pool)
FAULTS(tn_pool_close, WITH_DOMAIN, KILLS, .never_fails = true, .before = make_pool,
       .call = close_it, .undo = reap)

/* ---- asking ------------------------------------------------------------------------------ */

#define ASK(function, expression)                                                              \
    static int ask_##function(void) { return (expression) ? 0 : TN_ERR_CORRUPT; }              \
    FAULTS(function, WITH_POOL, .has_no_calls = true, .call = ask_##function)
ASK(tn_pool_get_info, tnt_pool_info(pool).worker_count == 1 && tnt_worker_pid(pool, 0) > 0 &&
                          tnt_pool_info(pool).job_count == 0 &&
                          tnt_pool_info(pool).restart_count == 0)

/* ---- serving ----------------------------------------------------------------------------- */

/*
 * What a program calls that a pool started. This process is none, and is told so before
 * anything can fail; what a worker does after that is in the rows of the queues, and in
 * tn_pool_create's.
 */
static void name_nobody(void)
{
    faults_begin();
    unsetenv("TENON_POOL");
}
static int serve(void) { return tn_pool_serve(faults_d, answer, NULL); }
FAULTS(tn_pool_serve, .prepare = name_nobody, .finish = faults_end, .has_no_calls = true,
       .expected = TN_ERR_NOT_FOUND, .call = serve)

/* ---- tasks ------------------------------------------------------------------------------- */

static tn_sched *sched;
static tn_graph *graph;

static int send_nothing(const tn_task_call *call) { return (void)call, TN_TASK_DONE; }
static int create_kind_into(tn_kind **ret_kind)
{
    const tn_variant variant = {.run = send_nothing};
    return tn_kind_create(
        sched,
        TN_OPTIONS(tn_kind_options, .variants = &variant, .variant_count = 1, .pool = pool),
        ret_kind);
}
static int create_kind(void) { return create_kind_into(FAULTS_OUT(tn_kind *)); }
static void make_sched(void)
{
    TN_CHECK_OK(tn_sched_create(TN_OPTIONS(tn_sched_options, .resources = "CPU=1"), &sched));
}
static void end_sched(void) { sched = tn_sched_close(sched); }
static void make_graph(void)
{
    tn_kind *kind;
    make_sched();
    TN_CHECK_OK(create_kind_into(&kind));
    TN_CHECK_OK(tn_graph_create(sched, &graph));
    const tn_task tasks[] = {{.kind = kind}, {.kind = kind}};
    TN_CHECK_OK(
        tn_graph_add(graph, TN_OPTIONS(tn_task_list, .tasks = tasks, .count = 2), NULL));
}
static int wait_for_graph(void) { return tn_graph_wait(graph, tnt_deadline(LONG_MS)); }
/* The thread that uses the pool allocates, too. */
FAULTS_WHEN(tn_kind_create, with_a_pool, WITH_POOL, .keeps_memory = true, .before = make_sched,
            .call = create_kind, .undo = end_sched)
FAULTS_WHEN(tn_graph_wait, for_workers, WITH_POOL, .keeps_memory = true, .depends = true,
            .before = make_graph, .call = wait_for_graph, .undo = end_sched)
