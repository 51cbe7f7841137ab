/* SPDX-License-Identifier: Apache-2.0 */
/* Pools: how they end, in good order or not, and which arguments they refuse. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "harness/members.h"
#include "harness/tensor.h"
#include "process/pool_world.h"

/* ---- ends -------------------------------------------------------------------------------- */

TN_TEST(an_ended_pool_finishes_its_jobs_by_every_start_method)
{
    for (uint32_t method = 0; method < POOL_METHODS; method++) {
        struct pool_world w = pool_open_by(method, 2);
        tn_pool_result result = {.struct_size = sizeof result};
        for (int32_t i = 0; i < 50; i++)
            pool_submit(&w, ADD_ONE, i);
        assert_int_equal(tn_pool_join(w.pool, TN_NOW), TN_ERR_INVALID);
        TN_CHECK_OK(tn_pool_end(w.pool));
        assert_int_equal(tn_pool_submit(w.pool, NULL, 0, TN_NOW, NULL), TN_ERR_CLOSED);
        for (int again = 0; again < 2; again++)
            TN_CHECK_OK(tn_pool_join(w.pool, tnt_deadline(20000)));
        for (uint32_t i = 0; i < 2; i++)
            assert_int_equal(tnt_worker_pid(w.pool, i), 0);
        for (int32_t i = 0; i < 50; i++) {
            TN_CHECK_OK(tn_pool_fetch(w.pool, (uint64_t)i + 1, TN_NOW, &result));
            assert_int_equal(pool_number_in(&result), i + 1);
            tn_pool_result_fini(&result);
        }
        assert_int_equal(tn_pool_fetch(w.pool, TN_POOL_ANY_JOB, TN_FOREVER, &result),
                         TN_ERR_NOT_FOUND);
        assert_int_equal(tnt_pool_info(w.pool).restart_count, 0);
        pool_close_world(&w);
    }
}

TN_TEST(after_the_end_a_dead_worker_is_replaced_while_jobs_remain)
{
    struct pool_world w = pool_open_by(TN_START_FORK, 1);
    for (int32_t i = 0; i < 3; i++)
        pool_submit(&w, KILL_ITSELF, 1);
    TN_CHECK_OK(tn_pool_end(w.pool));
    TN_CHECK_OK(tn_pool_join(w.pool, tnt_deadline(20000)));
    for (int32_t i = 0; i < 3; i++) {
        tn_pool_result result = pool_next(&w);
        assert_int_equal(result.status, 0);
        assert_int_equal(result.attempt, 2);
        tn_pool_result_fini(&result);
    }
    assert_int_equal(tnt_pool_info(w.pool).restart_count, 3);
    pool_close_world(&w);
}

TN_TEST(a_join_times_out_while_a_job_runs)
{
    struct pool_world w = pool_open_by(TN_START_FORK, 2);
    tn_pool_result result = {.struct_size = sizeof result};
    pool_submit(&w, WAIT, 0);
    TN_CHECK_OK(tn_pool_end(w.pool));
    assert_int_equal(tn_pool_join(w.pool, TN_NOW), TN_ERR_TIMED_OUT);
    assert_int_equal(tn_pool_join(w.pool, tnt_deadline(70)), TN_ERR_TIMED_OUT);
    TN_CHECK_OK(tn_event_set(w.go));
    TN_CHECK_OK(tn_pool_join(w.pool, tnt_deadline(20000)));
    result = pool_next(&w);
    assert_int_equal(result.status, 0);
    tn_pool_result_fini(&result);
    pool_close_world(&w);
}

TN_TEST(terminate_drops_jobs_and_ends_workers_by_every_start_method)
{
    for (uint32_t method = 0; method < POOL_METHODS; method++) {
        struct pool_world w = pool_open_by(method, 2);
        tn_pool_result result = {.struct_size = sizeof result};
        int fds[2];
        pool_submit(&w, ADD_ONE, 1);
        for (int i = 0; i < 10; i++)
            pool_submit(&w, SLEEP, 0);
        fds[0] = pool_pidfd(pool_pop_pid(&w));
        fds[1] = pool_pidfd(pool_pop_pid(&w));
        TN_CHECK_OK(tn_pool_terminate(w.pool, TN_FOREVER));
        for (int i = 0; i < 2; i++) {
            assert_true(pool_ends_within(fds[i], 0));
            close(fds[i]);
        }
        TN_CHECK_OK(tn_pool_fetch(w.pool, TN_POOL_ANY_JOB, TN_NOW, &result));
        assert_int_equal(pool_number_in(&result), 2);
        tn_pool_result_fini(&result);
        assert_int_equal(tn_pool_fetch(w.pool, TN_POOL_ANY_JOB, TN_FOREVER, &result),
                         TN_ERR_CLOSED);
        pool_expect_detail(tn_error_detail(), "10 jobs were given up");
        assert_int_equal(tn_pool_submit(w.pool, NULL, 0, TN_NOW, NULL), TN_ERR_CLOSED);
        TN_CHECK_OK(tn_pool_join(w.pool, TN_NOW));
        TN_CHECK_OK(tn_pool_terminate(w.pool, TN_NOW));
        pool_close_world(&w);
    }
}

TN_TEST(terminate_kills_workers_that_ignore_sigterm_at_the_deadline)
{
    struct pool_world w = pool_open_by(TN_START_FORK, 2);
    pool_submit(&w, DEAF, 0);
    int fd = pool_pidfd(pool_pop_pid(&w));
    tn_deadline deadline = tnt_deadline(60);
    TN_CHECK_OK(tn_pool_terminate(w.pool, deadline));
    assert_true(tnt_until_ns(0) >= deadline.ns);
    assert_true(pool_ends_within(fd, 0));
    close(fd);
    pool_close_world(&w);
}

/* ---- results that fill the domain -------------------------------------------------------- */

/* The quota has room for one result, not for two. */
enum { ONE_RESULT_BYTES = 700 << 10, SMALL_QUOTA_BYTES = 1 << 20 };

static struct pool_world open_small_world(uint32_t workers)
{
    return pool_open_world_in(pool_open_domain_of(SMALL_QUOTA_BYTES), pool_options(workers));
}

static void expect_one_result(tn_pool_result *result)
{
    assert_int_equal(result->status, 0);
    assert_int_equal(result->message.size_bytes, ONE_RESULT_BYTES);
    const uint8_t *bytes = result->message.bytes;
    assert_int_equal(bytes[0], (uint8_t)result->job);
    assert_int_equal(bytes[ONE_RESULT_BYTES - 1], (uint8_t)result->job);
    tn_pool_result_fini(result);
}

TN_TEST(terminate_makes_room_for_results_of_finishing_workers)
{
    struct pool_world w = open_small_world(2);
    tn_deadline deadline = tnt_deadline(15000);
    tn_pool_result result = {.struct_size = sizeof result};
    for (int i = 0; i < 2; i++)
        pool_submit(&w, SEND_LATE, ONE_RESULT_BYTES);
    for (int i = 0; i < 2; i++)
        pool_pop_pid(&w);
    TN_CHECK_OK(tn_event_set(w.go));
    TN_CHECK_OK(tn_pool_terminate(w.pool, deadline));
    assert_true(tnt_until_ns(0) < deadline.ns);
    for (int i = 0; i < 2; i++) {
        TN_CHECK_OK(tn_pool_fetch(w.pool, TN_POOL_ANY_JOB, TN_NOW, &result));
        expect_one_result(&result);
    }
    assert_int_equal(tn_pool_fetch(w.pool, TN_POOL_ANY_JOB, TN_NOW, &result), TN_ERR_CLOSED);
    pool_close_world(&w);
}

#if defined(TN_KILL_POINTS)
void tni_kill_point_arm(const char *name, uint32_t passing);

/*
 * A worker dies after its result and before its acknowledgement, so another worker does the
 * job again.
 */
TN_TEST(a_join_makes_room_for_a_second_result_of_one_job)
{
    tni_kill_point_arm("pool_result_pushed", 1);
    struct pool_world w = open_small_world(2);
    tni_kill_point_arm(NULL, 0);
    pool_submit(&w, SEND_MUCH, ONE_RESULT_BYTES);
    TN_CHECK_OK(tn_pool_end(w.pool));
    TN_CHECK_OK(tn_pool_join(w.pool, tnt_deadline(15000)));
    tn_pool_result result = pool_next(&w);
    expect_one_result(&result);
    pool_close_world(&w);
}
#endif

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
/* Limit private memory to what there is and `bytes` more. The kernel takes 0 for no limit. */
static void limit_memory(rlim_t bytes)
{
    struct rlimit limit;
    TN_CHECK(getrlimit(RLIMIT_DATA, &limit) == 0);
    limit.rlim_cur = bytes < limit.rlim_max ? bytes : limit.rlim_max;
    TN_CHECK(setrlimit(RLIMIT_DATA, &limit) == 0);
}

TN_TEST(results_leave_shared_memory_once_there_is_private_memory)
{
    struct pool_world w = open_small_world(1);
    tn_pool_result result = {.struct_size = sizeof result};
    for (int i = 0; i < 3; i++)
        pool_submit(&w, SEND_MUCH, ONE_RESULT_BYTES);
    limit_memory(1);
    while (tnt_pool_info(w.pool).job_count == 3)
        assert_int_equal(tn_pool_fetch(w.pool, 3, tnt_deadline(20), &result), TN_ERR_TIMED_OUT);
    /* The first result was filed; this call needs memory for it, and finds none. */
    assert_int_equal(tn_pool_fetch(w.pool, 3, tnt_deadline(50), &result), TN_ERR_TIMED_OUT);
    assert_int_equal(tnt_pool_info(w.pool).job_count, 2);
    limit_memory(RLIM_INFINITY);
    for (uint64_t id = 3; id >= 1; id--) {
        TN_CHECK_OK(tn_pool_fetch(w.pool, id, tnt_deadline(15000), &result));
        expect_one_result(&result);
    }
    pool_close_world(&w);
}
#endif

/* ---- what waits -------------------------------------------------------------------------- */

static void submit_tensor(struct pool_world *w, tn_tensor *tensor)
{
    struct pool_order order = {DOUBLE_TENSOR, 0};
    tn_message message = {
        .bytes = &order, .size_bytes = sizeof order, .tensors = &tensor, .tensor_count = 1};
    TN_CHECK_OK(tn_pool_submit(w->pool, &message, TN_PUSH_MOVE, TN_NOW, NULL));
}

static tn_tensor *make_tensor_as(struct pool_world *w, uint32_t strategy)
{
    tn_tensor_options options = {.struct_size = sizeof options, .strategy = strategy};
    int64_t size = 100000;
    tn_tensor *tensor;
    TN_CHECK_OK(tn_tensor_create(w->domain, TN_INT32, 1, &size, &options, &tensor));
    return tensor;
}

TN_TEST(close_kills_what_runs_and_gives_back_what_waits)
{
    struct pool_world w = pool_open_by(TN_START_FORK, 2);
    unsigned before = tnt_descriptor_count();
    pool_submit(&w, SLEEP, 0);
    pool_submit(&w, SLEEP, 0);
    pool_submit(&w, MAKE_TENSOR, 1);
    pool_pop_pid(&w);
    pool_pop_pid(&w);
    for (int i = 0; i < 10; i++)
        submit_tensor(&w, make_tensor_as(&w, TN_STRATEGY_ARENA));
    w.pool = tn_pool_close(w.pool);
    assert_int_equal(tnt_descriptor_count(), before - 4);
    assert_int_equal(live_blocks(w.domain), 1); /* the block of the queue "pids" */
    pool_close_world(&w);
}

static int hold_until_told(void *argument)
{
    tnt_await(argument);
    return 0;
}

static void close_with_jobs_that_wait(uint32_t strategy, bool loses_one)
{
    struct pool_world w = pool_open_by(TN_START_FORK, 1);
    struct tnt_signal end = tnt_signal_open();
    pid_t other = tnt_fork(hold_until_told, &end);
    uint32_t before = live_blocks(w.domain);
    pool_submit(&w, SLEEP, 0);
    pool_pop_pid(&w);
    for (int i = 0; i < 5; i++) {
        tn_tensor *tensor = make_tensor_as(&w, strategy);
        if (loses_one && i == 0)
            assert_int_equal(unlink(tnt_info(tensor).path), 0);
        submit_tensor(&w, tensor);
    }
    assert_int_equal(live_blocks(w.domain), before + 5);
    w.pool = tn_pool_close(w.pool);
    assert_int_equal(live_blocks(w.domain), before);
    tnt_signal(&end);
    tnt_wait_ok(other);
    tnt_signal_close(&end);
    pool_close_world(&w);
}

TN_TEST(jobs_without_a_result_leave_the_queues_of_other_holders)
{
    close_with_jobs_that_wait(TN_STRATEGY_ARENA, false);
}

TN_TEST(a_job_that_is_lost_does_not_keep_those_behind_it)
{
    close_with_jobs_that_wait(TN_STRATEGY_FILE_SYSTEM, true);
}

TN_TEST(a_second_pool_gets_the_tensor_of_one_that_was_ended)
{
    struct pool_world w = pool_open_by(TN_START_FORK, 1);
    struct pool_order order = {DOUBLE_TENSOR, 0};
    tn_pool_options options = pool_options(1);
    int64_t size = 1000;
    tn_tensor *tensor;
    TN_CHECK_OK(tn_tensor_create(w.domain, TN_INT32, 1, &size,
                                 TN_OPTIONS(tn_tensor_options, .flags = TN_TENSOR_ZEROED),
                                 &tensor));
    *(int32_t *)tn_tensor_data(tensor) = 1;
    tn_message message = {
        .bytes = &order, .size_bytes = sizeof order, .tensors = &tensor, .tensor_count = 1};
    for (int32_t round = 0; round < 3; round++) {
        TN_CHECK_OK(tn_pool_submit(w.pool, &message, 0, TN_NOW, NULL));
        TN_CHECK_OK(tn_pool_end(w.pool));
        TN_CHECK_OK(tn_pool_join(w.pool, tnt_deadline(20000)));
        tn_pool_result result = pool_next(&w);
        assert_int_equal(*(int32_t *)tn_tensor_data(result.message.tensors[0]), 2 << round);
        tn_pool_result_fini(&result);
        tn_pool_close(w.pool);
        w.pool = pool_open(w.domain, &options);
    }
    tn_tensor_unref(tensor);
    pool_close_world(&w);
}

TN_TEST(a_pool_outlives_its_domain_as_an_object)
{
    struct pool_world w = pool_open_by(TN_START_FORK, 2);
    tn_pool_result result = {.struct_size = sizeof result};
    pool_submit(&w, SLEEP, 0);
    int fd = pool_pidfd(pool_pop_pid(&w));
    tn_object_close(w.pids);
    tn_object_close(w.go);
    tn_domain_close(w.domain);
    assert_true(tn_pool_fetch(w.pool, TN_POOL_ANY_JOB, TN_NOW, &result) < 0);
    assert_true(tn_pool_submit(w.pool, NULL, 0, TN_NOW, NULL) < 0);
    tn_pool_close(w.pool);
    assert_true(pool_ends_within(fd, 0));
    close(fd);
}

/* ---- with the main process --------------------------------------------------------------- */

struct family {
    tn_domain *domain;
    tn_queue *pids;
    uint32_t method;
    int told[2]; /* a pipe on which the workers say that they are busy */
    bool has_exited;
};

static int be_main(void *argument)
{
    struct family *family = argument;
    struct pool_world w = {.domain = family->domain, .pids = family->pids};
    tn_pool_options options = pool_options(2);
    options.start = family->method;
    options.argv = family->method == TN_START_SPAWN ? pool_argv : NULL;
    options.environment = family->method == TN_START_SPAWN ? pool_environment : NULL;
    signal(SIGINT, SIG_DFL);
    setpgid(0, 0);
    if (family->method == TN_START_FORKSERVER)
        TN_CHECK_OK(tn_forkserver_start(w.domain, &w.server));
    options.server = w.server;
    w.pool = pool_open(w.domain, &options);
    for (int i = 0; i < 20; i++) {
        pool_submit(&w, MAKE_TENSOR, i);
        pool_submit(&w, SLEEP, 0);
    }
    pid_t pids[3] = {tn_forkserver_pid(w.server), tnt_worker_pid(w.pool, 0),
                     tnt_worker_pid(w.pool, 1)};
    TN_CHECK(write(family->told[1], pids, sizeof pids) == sizeof pids);
    if (family->has_exited)
        _exit(3);
    tn_pool_result result = {.struct_size = sizeof result};
    while (tn_pool_fetch(w.pool, TN_POOL_ANY_JOB, TN_FOREVER, &result) == 0) {
    }
    return 1;
}

/* Whatever ends the main process, no process and no memory is left. */
static void family_ends(uint32_t method, int signal, bool is_for_group)
{
    struct family family = {
        .domain = pool_open_domain(), .method = method, .has_exited = signal == 0};
    pid_t pids[3];
    int fds[3];
    TN_CHECK_OK(tn_queue_open(family.domain, "pids", NULL, TN_OPEN_NEW, &family.pids));
    uint32_t before = live_blocks(family.domain);
    assert_int_equal(pipe(family.told), 0);
    pid_t main_pid = tnt_fork(be_main, &family);
    TN_CHECK(read(family.told[0], pids, sizeof pids) == sizeof pids);
    for (int i = 0; i < 3; i++)
        fds[i] = pids[i] != 0 ? pool_pidfd(pids[i]) : -1;
    if (signal != 0)
        assert_int_equal(kill(is_for_group ? -main_pid : main_pid, signal), 0);
    tnt_wait(main_pid);
    for (int i = 0; i < 3; i++) {
        assert_true(fds[i] < 0 || pool_ends_within(fds[i], 10000));
        close(fds[i]);
    }
    close(family.told[0]);
    close(family.told[1]);
    TN_CHECK_OK(tn_domain_reap(family.domain, NULL));
    tn_message message;
    while (tn_queue_pop(family.pids, TN_NOW, &message) == 0)
        tn_message_fini(&message);
    assert_int_equal(live_blocks(family.domain), before);
    assert_int_equal(tnt_members(&family.domain->segment, 1), 1);
    tn_object_close(family.pids);
    pool_close_domain(family.domain);
}

TN_TEST(nothing_is_left_after_a_kill_by_every_start_method)
{
    for (uint32_t method = 0; method < POOL_METHODS; method++)
        family_ends(method, SIGKILL, false);
}

TN_TEST(nothing_is_left_after_sigterm_by_every_start_method)
{
    for (uint32_t method = 0; method < POOL_METHODS; method++)
        family_ends(method, SIGTERM, false);
}

TN_TEST(nothing_is_left_after_an_abrupt_exit_by_every_start_method)
{
    for (uint32_t method = 0; method < POOL_METHODS; method++)
        family_ends(method, 0, false);
}

TN_TEST(by_every_method_nothing_is_left_after_a_ctrl_c)
{
    for (uint32_t method = 0; method < POOL_METHODS; method++)
        family_ends(method, SIGINT, true);
}

TN_TEST(nothing_is_left_after_a_group_kill_by_every_start_method)
{
    for (uint32_t method = 0; method < POOL_METHODS; method++)
        family_ends(method, SIGKILL, true);
}

/* ---- bad input --------------------------------------------------------------------------- */

static void expect_refused(tn_domain *domain, tn_pool_options options, tn_pool_fn *run)
{
    tn_pool *pool = NULL;
    assert_int_equal(tn_pool_create(domain, &options, run, NULL, &pool), TN_ERR_INVALID);
    assert_null(pool);
}

TN_TEST(options_that_make_no_sense_are_refused)
{
    tn_domain *domain = pool_open_domain();
    tn_pool *pool = NULL;
    assert_int_equal(tn_pool_create(NULL, NULL, pool_deed, NULL, &pool), TN_ERR_INVALID);
    assert_int_equal(tn_pool_create(domain, NULL, pool_deed, NULL, NULL), TN_ERR_INVALID);
    expect_refused(domain, pool_options(1), NULL);
    expect_refused(domain, pool_options(1025), pool_deed);
    expect_refused(domain, (tn_pool_options){.struct_size = 8}, pool_deed);
    tn_pool_options options = pool_options(1);
    options.start = 3;
    expect_refused(domain, options, pool_deed);
    options.start = TN_START_FORKSERVER;
    expect_refused(domain, options, pool_deed);
    options.start = TN_START_SPAWN;
    expect_refused(domain, options, NULL);
    options.argv = pool_argv;
    expect_refused(domain, options, pool_deed);
    options = pool_options(1);
    options.capacity = (1 << 18) + 1;
    expect_refused(domain, options, pool_deed);
    options.capacity = 0;
    options.reserved = 1;
    expect_refused(domain, options, pool_deed);
    assert_null(tn_pool_close(NULL));
    assert_int_equal(tn_pool_fetch(NULL, TN_POOL_ANY_JOB, TN_NOW,
                                   &(tn_pool_result){.struct_size = sizeof(tn_pool_result)}),
                     TN_ERR_INVALID);
    pool_close_domain(domain);
}

TN_TEST(a_pool_that_cannot_start_workers_leaves_nothing)
{
    tn_domain *domain = pool_open_domain();
    unsigned before = tnt_descriptor_count();
    tn_pool *pool = NULL;
    tn_pool_options options = pool_options(40); /* the domain has 32 seats */
    assert_int_equal(tn_pool_create(domain, &options, pool_deed, NULL, &pool), TN_ERR_FULL);
#if !defined(__SANITIZE_THREAD__)
    const char *const argv[] = {"/nonexistent/program", NULL};
    options = pool_options(2);
    options.start = TN_START_SPAWN;
    options.argv = argv;
    assert_int_equal(tn_pool_create(domain, &options, NULL, NULL, &pool), TN_ERR_NOT_FOUND);
#endif
    assert_null(pool);
    assert_int_equal(tnt_descriptor_count(), before);
    pool_close_domain(domain);
}

static int use_another_ones(void *argument)
{
    struct pool_world *w = argument;
    tn_pool_result result = {.struct_size = sizeof result};
    TN_CHECK(tn_pool_submit(w->pool, NULL, 0, TN_NOW, NULL) == TN_ERR_INVALID);
    TN_CHECK(tn_pool_fetch(w->pool, TN_POOL_ANY_JOB, TN_NOW, &result) == TN_ERR_INVALID);
    TN_CHECK(tn_pool_end(w->pool) == TN_ERR_INVALID);
    TN_CHECK(tn_pool_terminate(w->pool, TN_NOW) == TN_ERR_INVALID);
    tn_pool_close(w->pool);
    tn_domain_close(w->domain);
    return 0;
}

TN_TEST(a_process_that_did_not_make_a_pool_cannot_use_or_end_it)
{
    struct pool_world w = pool_open_by(TN_START_FORK, 2);
    tnt_wait_ok(tnt_fork(use_another_ones, &w));
    tn_pool_result result = pool_get(&w, pool_submit(&w, ADD_ONE, 1));
    assert_int_equal(pool_number_in(&result), 2);
    tn_pool_result_fini(&result);
    assert_int_equal(tnt_pool_info(w.pool).restart_count, 0);
    pool_close_world(&w);
}

TN_TEST(serve_refuses_an_invalid_or_foreign_variable)
{
    static const char *const values[] = {"",
                                         "1",
                                         "1,2,3,4,5",
                                         "1,2,3,4,0,5",
                                         "1,2,3,4,5,",
                                         "1,2,3,4,5,6,7",
                                         "x,2,3,4,5,6",
                                         "1,2,3,4,5,6 "};
    tn_domain *domain = pool_open_domain();
    char value[64];
    unsetenv("TENON_POOL");
    assert_int_equal(tn_pool_serve(NULL, pool_deed, NULL), TN_ERR_INVALID);
    assert_int_equal(tn_pool_serve(domain, pool_deed, NULL), TN_ERR_NOT_FOUND);
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        setenv("TENON_POOL", values[i], 1);
        assert_int_equal(tn_pool_serve(domain, pool_deed, NULL), TN_ERR_CORRUPT);
    }
    snprintf(value, sizeof value, "1,2,3,4,5,%x", (unsigned)getpid());
    setenv("TENON_POOL", value, 1);
    assert_int_equal(tn_pool_serve(domain, pool_deed, NULL), TN_ERR_NOT_FOUND);
    /* The value is well formed, but names no pool that exists. */
    snprintf(value, sizeof value, "1,2,3,4,5,%x", (unsigned)getppid());
    setenv("TENON_POOL", value, 1);
    assert_true(tn_pool_serve(domain, pool_deed, NULL) < 0);
    unsetenv("TENON_POOL");
    pool_close_domain(domain);
}

static int serve_in_vain(tn_domain *domain, const tn_pool_job *job, tn_message *result,
                         void *context)
{
    (void)result, (void)context, (void)job;
    return tn_pool_serve(domain, pool_deed, NULL);
}

TN_TEST(a_job_in_a_forked_worker_finds_no_pool_to_serve)
{
    struct pool_world w = pool_open_by(TN_START_FORK, 1);
    tn_pool *pool;
    tn_pool_result result = {.struct_size = sizeof result};
    tn_pool_options options = pool_options(1);
    TN_CHECK_OK(tn_pool_create(w.domain, &options, serve_in_vain, NULL, &pool));
    TN_CHECK_OK(tn_pool_submit(pool, NULL, 0, TN_NOW, NULL));
    TN_CHECK_OK(tn_pool_fetch(pool, TN_POOL_ANY_JOB, tnt_deadline(20000), &result));
    assert_int_equal(result.status, TN_ERR_NOT_FOUND);
    tn_pool_result_fini(&result);
    tn_pool_close(pool);
    pool_close_world(&w);
}
