/* SPDX-License-Identifier: Apache-2.0 */
/* Pools: jobs, results, workers that die, and messages that are lost. */
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/tensor.h"
#include "process/pool_world.h"
#include "queue/ring.h"
#include "spawn/pool.h"

/* ---- results ----------------------------------------------------------------------------- */

TN_TEST(by_every_method_each_job_has_its_result)
{
    for (uint32_t method = 0; method < POOL_METHODS; method++) {
        struct pool_world w = pool_open_by(method, 2);
        bool seen[101] = {false};
        for (int32_t i = 0; i < 100; i++)
            assert_int_equal(pool_submit(&w, ADD_ONE, i), i + 1);
        for (int32_t i = 0; i < 100; i++) {
            tn_pool_result result = pool_next(&w);
            assert_int_equal(result.status, 0);
            assert_in_range(result.job, 1, 100);
            assert_int_equal(pool_number_in(&result), result.job);
            assert_int_equal(result.attempt, 1);
            assert_int_equal(result.pid, tnt_worker_pid(w.pool, result.worker));
            assert_string_equal(result.detail, "");
            assert_false(seen[result.job]);
            seen[result.job] = true;
            tn_pool_result_fini(&result);
        }
        assert_int_equal(tnt_pool_info(w.pool).job_count, 0);
        pool_close_world(&w);
    }
}

TN_TEST(by_every_method_tensors_go_there_and_back_without_a_copy)
{
    for (uint32_t method = 0; method < POOL_METHODS; method++) {
        struct pool_world w = pool_open_by(method, 2);
        struct pool_order order = {DOUBLE_TENSOR, 0};
        int64_t size = 1000;
        tn_tensor *tensor;
        TN_CHECK_OK(tn_tensor_create(w.domain, TN_INT32, 1, &size,
                                     TN_OPTIONS(tn_tensor_options, .flags = TN_TENSOR_ZEROED),
                                     &tensor));
        *(int32_t *)tn_tensor_data(tensor) = 21;
        tn_message message = {
            .bytes = &order, .size_bytes = sizeof order, .tensors = &tensor, .tensor_count = 1};
        TN_CHECK_OK(tn_pool_submit(w.pool, &message, 0, tnt_deadline(20000), NULL));
        tn_pool_result result = pool_next(&w);
        assert_int_equal(result.message.tensor_count, 1);
        assert_true(tn_tensor_same_storage(result.message.tensors[0], tensor));
        assert_int_equal(*(int32_t *)tn_tensor_data(tensor), 42);
        tn_pool_result_fini(&result);
        TN_CHECK_OK(tn_pool_submit(w.pool, &message, TN_PUSH_MOVE, TN_NOW, NULL));
        result = pool_next(&w);
        assert_int_equal(*(int32_t *)tn_tensor_data(result.message.tensors[0]), 84);
        tn_pool_result_fini(&result);
        pool_submit(&w, MAKE_TENSOR, 7);
        result = pool_next(&w);
        assert_int_equal(((int32_t *)tn_tensor_data(result.message.tensors[0]))[999], 7);
        tn_pool_result_fini(&result);
        pool_close_world(&w);
    }
}

TN_TEST(results_come_in_order_when_they_are_asked_for_so)
{
    struct pool_world w = pool_open_by(TN_START_FORK, 2);
    tn_pool_result result = {.struct_size = sizeof result};
    pool_submit(&w, WAIT, 0);
    for (int32_t i = 2; i <= 50; i++)
        pool_submit(&w, ADD_ONE, i);
    result = pool_next(&w);
    assert_int_not_equal(result.job, 1);
    uint64_t early = result.job;
    tn_pool_result_fini(&result);
    assert_int_equal(tn_pool_fetch(w.pool, 1, tnt_deadline(20), &result), TN_ERR_TIMED_OUT);
    TN_CHECK_OK(tn_event_set(w.go));
    for (uint64_t id = 1; id <= 50; id++) {
        if (id == early)
            continue;
        TN_CHECK_OK(tn_pool_fetch(w.pool, id, tnt_deadline(20000), &result));
        assert_int_equal(result.job, id);
        tn_pool_result_fini(&result);
    }
    assert_int_equal(tn_pool_fetch(w.pool, 50, TN_FOREVER, &result), TN_ERR_NOT_FOUND);
    pool_close_world(&w);
}

TN_TEST(a_result_can_be_asked_for_by_its_job)
{
    struct pool_world w = pool_open_by(TN_START_FORK, 2);
    tn_pool_result result = {.struct_size = sizeof result};
    uint64_t first = pool_submit(&w, ADD_ONE, 10), second = pool_submit(&w, ADD_ONE, 20);
    result = pool_get(&w, second);
    assert_int_equal(pool_number_in(&result), 21);
    tn_pool_result_fini(&result);
    assert_int_equal(tn_pool_fetch(w.pool, second, TN_FOREVER, &result), TN_ERR_NOT_FOUND);
    assert_int_equal(tn_pool_fetch(w.pool, 99, TN_FOREVER, &result), TN_ERR_NOT_FOUND);
    result = pool_get(&w, first);
    assert_int_equal(pool_number_in(&result), 11);
    tn_pool_result_fini(&result);
    assert_int_equal(tn_pool_fetch(w.pool, TN_POOL_ANY_JOB, TN_FOREVER, &result),
                     TN_ERR_NOT_FOUND);
    pool_close_world(&w);
}

TN_TEST(what_the_function_returns_is_the_status_of_its_job)
{
    struct pool_world w = pool_open_by(TN_START_FORK, 1);
    const int numbers[] = {1, -1, 4711, TN_ERR_FULL};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        tn_pool_result result = pool_get(&w, pool_submit(&w, FAIL, numbers[i]));
        assert_int_equal(result.status, numbers[i]);
        assert_string_equal(result.detail, "");
        tn_pool_result_fini(&result);
    }
    tn_pool_result result = pool_get(&w, pool_submit(&w, FAIL_SAYING, 0));
    assert_int_equal(result.status, TN_ERR_INVALID);
    pool_expect_detail(result.detail, "the queue is NULL");
    tn_pool_result_fini(&result);
    pool_close_world(&w);
}

TN_TEST(a_result_that_cannot_be_sent_is_an_error_of_its_job)
{
    struct pool_world w = pool_open_by(TN_START_FORK, 1);
    tn_pool_result result = pool_get(&w, pool_submit(&w, SEND_PRIVATE, 0));
    assert_int_equal(result.status, TN_ERR_INVALID);
    pool_expect_detail(result.detail, "could not be sent");
    assert_int_equal(result.message.tensor_count, 0);
    tn_pool_result_fini(&result);
    result = pool_get(&w, pool_submit(&w, ADD_ONE, 1));
    assert_int_equal(pool_number_in(&result), 2);
    tn_pool_result_fini(&result);
    pool_close_world(&w);
}

TN_TEST(a_job_and_a_result_may_be_empty)
{
    struct pool_world w = pool_open_by(TN_START_FORK, 1);
    tn_pool_result result = pool_get(&w, pool_submit(&w, KEEP_NOTHING, 0));
    assert_int_equal(result.status, 0);
    assert_int_equal(result.message.size_bytes, 0);
    assert_null(result.message.bytes);
    tn_pool_result_fini(&result);
    tn_pool_result_fini(&result);
    tn_pool_result_fini(NULL);
    pool_close_world(&w);
}

/* ---- room -------------------------------------------------------------------------------- */

/*
 * Both queues are small and nothing is fetched: a pool that did not file results while it
 * submits would block for ever.
 */
TN_TEST(submitting_more_than_fits_goes_on_while_workers_work)
{
    tn_pool_options options = pool_options(2);
    options.capacity = 1;
    struct pool_world w = pool_open_world(options);
    for (int32_t i = 0; i < 500; i++)
        pool_submit(&w, SEND_MUCH, 5000);
    for (int32_t i = 0; i < 500; i++) {
        tn_pool_result result = pool_get(&w, (uint64_t)i + 1);
        assert_int_equal(result.message.size_bytes, 5000);
        tn_pool_result_fini(&result);
    }
    pool_close_world(&w);
}

/* The results have more bytes than the domain has room for. */
TN_TEST(unfetched_results_take_no_room_from_jobs)
{
    enum { JOBS = 100, BYTES = 1 << 20 };
    tn_pool_options options = pool_options(2);
    options.capacity = 4;
    struct pool_world w = pool_open_world(options);
    for (int32_t i = 0; i < JOBS; i++)
        pool_submit(&w, i % 2 == 0 ? SEND_MUCH : SEND_BOTH, BYTES);
    for (uint64_t id = 1; id <= JOBS; id++) {
        tn_pool_result result = pool_get(&w, id);
        const uint8_t *bytes = result.message.bytes;
        assert_int_equal(result.message.size_bytes, BYTES);
        assert_int_equal(bytes[0], (uint8_t)id);
        assert_int_equal(bytes[BYTES - 1], (uint8_t)id);
        assert_int_equal(result.message.tensor_count, 1 - id % 2);
        if (result.message.tensor_count == 1)
            assert_int_equal(((int32_t *)tn_tensor_data(result.message.tensors[0]))[999], id);
        tn_pool_result_fini(&result);
    }
    pool_close_world(&w);
}

TN_TEST(a_hundred_thousand_jobs_take_no_shared_memory_of_their_own)
{
    struct pool_world w = pool_open_by(TN_START_FORK, 2);
    uint32_t before = live_blocks(w.domain);
    tn_deadline deadline = tnt_deadline(60000);
    tn_pool_result result = {.struct_size = sizeof result};
    for (int32_t i = 0; i < 100000; i++) {
        pool_submit(&w, ADD_ONE, i);
        assert_true(i % 1000 != 0 || tnt_until_ns(0) < deadline.ns);
    }
    assert_int_equal(live_blocks(w.domain), before);
    for (int32_t i = 0; i < 100000; i++) {
        TN_CHECK_OK(tn_pool_fetch(w.pool, (uint64_t)i + 1, deadline, &result));
        TN_CHECK(result.job == (uint64_t)i + 1);
        TN_CHECK(pool_number_in(&result) == i + 1);
        tn_pool_result_fini(&result);
    }
    pool_close_world(&w);
}

TN_TEST_WITHIN(a_job_larger_than_the_domain_is_refused_at_once, 20)
{
    struct pool_world w = pool_open_by(TN_START_FORK, 1);
    tn_message message = {.size_bytes = 65 << 20};
    void *bytes = calloc(1, message.size_bytes);
    uint64_t job = 0;
    message.bytes = bytes;
    assert_int_equal(tn_pool_submit(w.pool, &message, 0, TN_FOREVER, &job), TN_ERR_NO_MEMORY);
    pool_expect_detail(tn_error_detail(), "quota");
    assert_int_equal(tn_pool_submit(w.pool, &message, 0, TN_NOW, &job), TN_ERR_NO_MEMORY);
    pool_expect_detail(tn_error_detail(), "quota");
    assert_int_equal(job, 0);
    free(bytes);
    pool_close_world(&w);
}

TN_TEST(waiting_for_room_or_a_result_ends_at_the_deadline)
{
    tn_pool_options options = pool_options(1);
    options.capacity = 2;
    struct pool_world w = pool_open_world(options);
    tn_pool_result result = {.struct_size = sizeof result};
    uint64_t job = 0;
    pool_submit(&w, SLEEP, 0);
    pool_submit(&w, SLEEP, 0);
    pool_pop_pid(&w);
    assert_int_equal(tn_pool_submit(w.pool, NULL, 0, TN_NOW, &job), TN_ERR_TIMED_OUT);
    assert_non_null(strstr(tn_error_detail(), "the pool is full"));
    assert_int_equal(tn_pool_submit(w.pool, NULL, 0, tnt_deadline(70), &job), TN_ERR_TIMED_OUT);
    assert_non_null(strstr(tn_error_detail(), "the pool is full"));
    assert_int_equal(job, 0);
    assert_int_equal(tn_pool_fetch(w.pool, TN_POOL_ANY_JOB, TN_NOW, &result), TN_ERR_TIMED_OUT);
    assert_int_equal(tn_pool_fetch(w.pool, TN_POOL_ANY_JOB, tnt_deadline(70), &result),
                     TN_ERR_TIMED_OUT);
    assert_int_equal(tnt_pool_info(w.pool).job_count, 2);
    pool_close_world(&w);
}

/* ---- deaths ------------------------------------------------------------------------------ */

TN_TEST(a_killed_workers_job_runs_again_by_every_start_method)
{
    for (uint32_t method = 0; method < POOL_METHODS; method++) {
        struct pool_world w = pool_open_by(method, 2);
        uint64_t fragile = pool_submit(&w, KILL_ITSELF, 2), sound = pool_submit(&w, ADD_ONE, 1);
        tn_pool_result result = pool_get(&w, fragile);
        assert_int_equal(result.status, 0);
        assert_int_equal(result.attempt, 3);
        assert_int_equal(pool_number_in(&result), 3);
        tn_pool_result_fini(&result);
        result = pool_get(&w, sound);
        assert_int_equal(result.attempt, 1);
        tn_pool_result_fini(&result);
        pool_await_restart(&w, 2);
        pool_close_world(&w);
    }
}

TN_TEST(by_every_method_a_job_whose_workers_all_died_fails_by_name)
{
    for (uint32_t method = 0; method < POOL_METHODS; method++) {
        tn_pool_options options = pool_options(2);
        char text[64];
        options.start = method;
        options.attempts = 2;
        struct pool_world w = pool_open_world(options);
        pool_submit(&w, ADD_ONE, 1);
        uint64_t fatal = pool_submit(&w, KILL_ITSELF, 100);
        pool_submit(&w, ADD_ONE, 1);
        tn_pool_result result = pool_get(&w, fatal);
        assert_int_equal(result.status, TN_ERR_CHILD_FAILED);
        assert_int_equal(result.attempt, 2);
        pool_expect_detail(result.detail, "job 2 was started 2 times");
        pool_expect_detail(result.detail, "by signal 9");
        snprintf(text, sizeof text, "worker %u, process %d,", result.worker, result.pid);
        pool_expect_detail(result.detail, text);
        tn_pool_result_fini(&result);
        for (int i = 0; i < 2; i++) {
            result = pool_next(&w);
            assert_int_equal(result.status, 0);
            tn_pool_result_fini(&result);
        }
        pool_close_world(&w);
    }
}

TN_TEST(deaths_while_the_owner_was_away_are_still_reported)
{
    tn_pool_options options = pool_options(3);
    char text[64];
    options.attempts = 2;
    struct pool_world w = pool_open_world(options);
    uint64_t fatal = pool_submit(&w, KILL_ITSELF, 100);
    /* No call is made that would replace workers. */
    while (tn_queue_count(w.pool->results) == 0)
        TN_CHECK_OK(tn_domain_reap(w.domain, NULL));
    tn_pool_result result = pool_get(&w, fatal);
    snprintf(text, sizeof text, "worker %u, process %d, was ended by signal 9", result.worker,
             result.pid);
    pool_expect_detail(result.detail, text);
    tn_pool_result_fini(&result);
    pool_close_world(&w);
}

TN_TEST(a_job_whose_worker_exits_fails_with_code_and_message)
{
    tn_pool_options options = pool_options(1);
    options.attempts = 1;
    struct pool_world w = pool_open_world(options);
    tn_pool_result result = pool_get(&w, pool_submit(&w, EXIT, 0));
    assert_int_equal(result.status, TN_ERR_CHILD_FAILED);
    pool_expect_detail(result.detail, "job 1 was started 1 times");
    pool_expect_detail(result.detail, "exited with 0");
    tn_pool_result_fini(&result);
    result = pool_get(&w, pool_submit(&w, EXIT_SAYING, 0));
    assert_int_equal(result.status, TN_ERR_CHILD_FAILED);
    pool_expect_detail(result.detail, "exited with 1: out of cheese");
    tn_pool_result_fini(&result);
    pool_close_world(&w);
}

TN_TEST(by_every_method_idle_workers_that_died_are_replaced)
{
    for (uint32_t method = 0; method < POOL_METHODS; method++) {
        struct pool_world w = pool_open_by(method, 2);
        pid_t old[2] = {tnt_worker_pid(w.pool, 0), tnt_worker_pid(w.pool, 1)};
        pool_kill_worker(&w, 0);
        pool_await_restart(&w, 1);
        assert_int_not_equal(tnt_worker_pid(w.pool, 0), old[0]);
        assert_int_equal(tnt_worker_pid(w.pool, 1), old[1]);
        pool_kill_worker(&w, 0);
        pool_kill_worker(&w, 1);
        tn_pool_result result = pool_get(&w, pool_submit(&w, ADD_ONE, 1));
        assert_int_equal(pool_number_in(&result), 2);
        tn_pool_result_fini(&result);
        pool_await_restart(&w, 3);
        pool_close_world(&w);
    }
}

TN_TEST(a_wait_notices_a_workers_death_while_another_works)
{
    struct pool_world w = pool_open_by(TN_START_FORK, 2);
    pool_submit(&w, SLEEP, 0);
    pool_submit(&w, SLEEP, 0);
    pid_t pid = pool_pop_pid(&w);
    pool_pop_pid(&w);
    assert_int_equal(kill(pid, SIGKILL), 0);
    /* The job is done again: a third worker returns its pid. */
    tn_pool_result result = {.struct_size = sizeof result};
    assert_int_equal(tn_pool_fetch(w.pool, TN_POOL_ANY_JOB, tnt_deadline(500), &result),
                     TN_ERR_TIMED_OUT);
    assert_int_not_equal(pool_pop_pid(&w), pid);
    assert_int_equal(tnt_pool_info(w.pool).restart_count, 1);
    pool_close_world(&w);
}

/* The other worker works on; if there is none, calls end at their deadlines. */
TN_TEST_WITHIN(a_stopped_server_lets_a_pool_keep_its_deadlines, 40)
{
    for (uint32_t workers = 1; workers <= 2; workers++) {
        struct pool_world w = pool_open_by(TN_START_FORKSERVER, workers);
        pid_t server = tn_forkserver_pid(w.server);
        uint64_t late = tnt_until_ns(10000), patience_ns = w.pool->patience_ns;
        tn_pool_result result = {.struct_size = sizeof result};
        assert_int_equal(kill(server, SIGSTOP), 0);
        assert_int_equal(waitpid(server, NULL, WUNTRACED), server);
        pool_kill_worker(&w, 0);
        uint64_t job = pool_submit(&w, ADD_ONE, 1);
        for (int again = 0; again < 3 && workers == 1; again++)
            assert_int_equal(tn_pool_fetch(w.pool, job, tnt_deadline(30), &result),
                             TN_ERR_TIMED_OUT);
        if (workers == 1)
            assert_int_equal(kill(server, SIGCONT), 0);
        result = pool_get(&w, job);
        assert_int_equal(pool_number_in(&result), 2);
        tn_pool_result_fini(&result);
        assert_true(tnt_until_ns(0) < late);
        assert_int_equal(tnt_pool_info(w.pool).restart_count, workers == 1);
        assert_int_equal(kill(server, SIGCONT), 0);
        pool_await_restart(&w, 1);
        assert_true(w.pool->patience_ns == patience_ns); /* it was late only once */
        pool_close_world(&w);
    }
}

static int interrupt(void *context)
{
    (void)context;
    return -1;
}

TN_TEST(a_hook_ends_the_wait_of_a_pool_for_its_server)
{
    struct pool_world w = pool_open_by(TN_START_FORKSERVER, 1);
    pid_t server = tn_forkserver_pid(w.server);
    tn_pool_result result = {.struct_size = sizeof result};
    uint64_t job = pool_submit(&w, ADD_ONE, 1);
    result = pool_get(&w, job);
    tn_pool_result_fini(&result);
    assert_int_equal(kill(server, SIGSTOP), 0);
    assert_int_equal(waitpid(server, NULL, WUNTRACED), server);
    pool_kill_worker(&w, 0);
    tn_interrupt_set(interrupt, NULL);
    int status = tn_pool_submit(w.pool, NULL, 0, TN_NOW, &job);
    if (status == 0) /* the call replaced no worker */
        status = tn_pool_fetch(w.pool, job, TN_NOW, &result);
    assert_int_equal(status, TN_ERR_INTERRUPTED);
    /* The server still has the request, and the pool asks for no other worker. */
    if (tnt_pool_info(w.pool).job_count > 0)
        assert_int_equal(tn_pool_fetch(w.pool, job, TN_NOW, &result), TN_ERR_TIMED_OUT);
    tn_interrupt_set(NULL, NULL);
    assert_int_equal(kill(server, SIGCONT), 0);
    pool_await_restart(&w, 1);
    pool_close_world(&w);
}

static void await_collected(struct pool_world *w, uint32_t worker)
{
    tn_pool_result none = {.struct_size = sizeof none};
    uint64_t late = tnt_until_ns(10000);
    while (tnt_worker_pid(w->pool, worker) != 0) {
        assert_int_equal(tn_pool_fetch(w->pool, TN_POOL_ANY_JOB, TN_NOW, &none),
                         TN_ERR_NOT_FOUND);
        assert_true(tnt_until_ns(0) < late);
    }
}

/* As many as a pool of two workers replaces if they began no job. */
TN_TEST(a_pool_ends_when_workers_die_idle_and_its_server_is_stopped)
{
    struct pool_world w = pool_open_by(TN_START_FORKSERVER, 2);
    pid_t server = tn_forkserver_pid(w.server);
    tn_pool_result none = {.struct_size = sizeof none};
    for (uint32_t i = 0; i < 4; i++) {
        pool_kill_worker(&w, 0);
        pool_await_restart(&w, i + 1);
    }
    assert_int_equal(kill(server, SIGSTOP), 0);
    assert_int_equal(waitpid(server, NULL, WUNTRACED), server);
    for (uint32_t i = 0; i < 2; i++) {
        pool_kill_worker(&w, i);
        await_collected(&w, i);
    }
    int status = tn_pool_submit(w.pool, NULL, 0, TN_NOW, NULL);
    if (status == 0) /* the call replaced no worker */
        status = tn_pool_fetch(w.pool, TN_POOL_ANY_JOB, tnt_deadline(10000), &none);
    assert_int_equal(status, TN_ERR_CHILD_FAILED);
    assert_int_equal(kill(server, SIGCONT), 0);
    pool_close_world(&w);
}

#if defined(TN_KILL_POINTS)
void tni_kill_point_arm(const char *name, uint32_t passing);

/* Have each worker die when it passes the point for the second time. */
static void die_at(const char *point, uint32_t least_attempts)
{
    tn_pool_options options = pool_options(2);
    options.attempts = 1000;
    uint32_t attempts = 0;
    tni_kill_point_arm(point, 2);
    struct pool_world w = pool_open_world(options);
    for (int32_t i = 0; i < 40; i++)
        pool_submit(&w, ADD_ONE, i);
    /*
     * Fetch the last job first, so that second results arrive while the first ones wait to be
     * fetched.
     */
    for (uint64_t id = 40; id >= 1; id--) {
        tn_pool_result result = pool_get(&w, id);
        assert_int_equal(result.status, 0);
        assert_int_equal(pool_number_in(&result), id);
        attempts += result.attempt;
        tn_pool_result_fini(&result);
    }
    tn_pool_result none = {.struct_size = sizeof none};
    assert_int_equal(tn_pool_fetch(w.pool, TN_POOL_ANY_JOB, TN_FOREVER, &none),
                     TN_ERR_NOT_FOUND);
    assert_true(tnt_pool_info(w.pool).restart_count >= 10);
    assert_true(attempts >= least_attempts);
    tni_kill_point_arm(NULL, 0);
    pool_close_world(&w);
}

TN_TEST(a_worker_that_dies_before_its_ack_makes_no_second_result)
{
    die_at("pool_result_pushed", 40);
}

TN_TEST(a_worker_may_die_at_any_step_of_a_job)
{
    die_at("pool_job_taken", 50);
    die_at("pool_job_noted", 50);
    die_at("pool_job_acknowledged", 40);
    die_at("lease_recorded", 50);
    die_at("ack_emptied", 40);
}
#endif

TN_TEST_WITHIN(workers_killed_at_random_lose_and_double_no_job, 120)
{
    enum { JOBS = 3000 };
    tn_pool_options options = pool_options(3);
    static bool seen[JOBS + 1];
    options.attempts = 1000;
    struct pool_world w = pool_open_world(options);
    uint32_t submitted = 0, fetched = 0, killed = 0;
    tn_pool_result result = {.struct_size = sizeof result};
    while (fetched < JOBS) {
        while (submitted < JOBS && tnt_pool_info(w.pool).job_count < 100)
            submitted += pool_submit(&w, ADD_ONE, (int32_t)submitted) != 0;
        TN_CHECK_OK(tn_pool_fetch(w.pool, TN_POOL_ANY_JOB, tnt_deadline(20000), &result));
        assert_int_equal(result.status, 0);
        assert_int_equal(pool_number_in(&result), result.job);
        assert_false(seen[result.job]);
        seen[result.job] = true;
        tn_pool_result_fini(&result);
        pid_t pid = tnt_worker_pid(w.pool, (uint32_t)tnt_random_below(3));
        if (++fetched % 50 == 0 && pid != 0)
            killed += kill(pid, SIGKILL) == 0;
    }
    assert_true(killed > 30);
    assert_true(tnt_pool_info(w.pool).restart_count > 0);
    pool_close_world(&w);
}

TN_TEST(a_program_that_ends_at_once_is_not_started_for_ever)
{
    const char *const programs[] = {"true", "false"};
    const char *const says[] = {"exited with 0", "exited with 1"};
    for (size_t i = 0; i < 2; i++) {
        const char *const argv[] = {programs[i], NULL};
        tn_pool_options options = pool_options(2);
        tn_pool_result result = {.struct_size = sizeof result};
        options.start = TN_START_SPAWN;
        options.argv = argv;
        struct pool_world w = pool_open_world(options);
        pool_submit(&w, ADD_ONE, 1);
        for (int again = 0; again < 2; again++) {
            assert_int_equal(tn_pool_fetch(w.pool, TN_POOL_ANY_JOB, TN_FOREVER, &result),
                             TN_ERR_CHILD_FAILED);
            pool_expect_detail(tn_error_detail(), says[i]);
        }
        assert_true(tnt_pool_info(w.pool).restart_count <= 10);
        TN_CHECK_OK(tn_pool_end(w.pool));
        assert_int_equal(tn_pool_join(w.pool, TN_FOREVER), TN_ERR_CHILD_FAILED);
        pool_close_world(&w);
    }
}

TN_TEST(a_pool_works_without_its_fork_server_while_workers_live)
{
    struct pool_world w = pool_open_by(TN_START_FORKSERVER, 2);
    pid_t server = tn_forkserver_pid(w.server);
    char name[32];
    tn_pool_result result = {.struct_size = sizeof result};
    snprintf(name, sizeof name, "process %d,", (int)server);
    assert_int_equal(kill(server, SIGKILL), 0);
    pool_kill_worker(&w, 0);
    result = pool_get(&w, pool_submit(&w, ADD_ONE, 1));
    assert_int_equal(result.worker, 1);
    tn_pool_result_fini(&result);
    pool_submit(&w, SLEEP, 0);
    pool_pop_pid(&w);
    pool_kill_worker(&w, 1);
    assert_int_equal(tn_pool_fetch(w.pool, TN_POOL_ANY_JOB, TN_FOREVER, &result),
                     TN_ERR_PEER_DIED);
    pool_expect_detail(tn_error_detail(), name);
    pool_close_world(&w);
}

/* ---- messages that are lost -------------------------------------------------------------- */

enum { LOST_ELEMENTS = 1000 };

static tn_tensor *make_outside(tn_domain *domain, uint32_t strategy)
{
    tn_tensor_options options = {.struct_size = sizeof options, .strategy = strategy};
    int64_t size = LOST_ELEMENTS;
    tn_tensor *tensor = NULL;
    TN_CHECK_OK(tn_tensor_create(domain, TN_INT32, 1, &size, &options, &tensor));
    return tensor;
}

/* Submit a job of `count` tensors, whose files are removed before a worker takes it. */
static uint64_t submit_lost(struct pool_world *w, uint32_t count)
{
    struct pool_order order = {DOUBLE_TENSOR, 0};
    tn_tensor *tensors[2];
    uint64_t job;
    for (uint32_t i = 0; i < count; i++)
        tensors[i] = make_outside(w->domain, TN_STRATEGY_FILE_SYSTEM);
    tn_message message = {
        .bytes = &order, .size_bytes = sizeof order, .tensors = tensors, .tensor_count = count};
    TN_CHECK_OK(tn_pool_submit(w->pool, &message, 0, tnt_deadline(20000), &job));
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(unlink(tnt_info(tensors[i]).path), 0);
        tn_tensor_unref(tensors[i]);
    }
    return job;
}

static void expect_lost(tn_pool_result *result, int status, const char *what)
{
    char text[64];
    snprintf(text, sizeof text, "job %d%s", (int)result->job, what);
    assert_int_equal(result->status, status);
    pool_expect_detail(result->detail, text);
    assert_int_equal(result->message.size_bytes, 0);
    assert_int_equal(result->message.tensor_count, 0);
    tn_pool_result_fini(result);
}

static void expect_works(struct pool_world *w, uint64_t restarts)
{
    tn_pool_result result = pool_get(w, pool_submit(w, ADD_ONE, 1));
    assert_int_equal(pool_number_in(&result), 2);
    tn_pool_result_fini(&result);
    assert_int_equal(tn_pool_fetch(w->pool, TN_POOL_ANY_JOB, TN_FOREVER, &result),
                     TN_ERR_NOT_FOUND);
    assert_int_equal(tnt_pool_info(w->pool).restart_count, restarts);
}

TN_TEST(a_job_with_lost_tensors_has_a_result_by_every_start_method)
{
    for (uint32_t method = 0; method < POOL_METHODS; method++)
        for (uint32_t count = 1; count <= 2; count++) {
            struct pool_world w = pool_open_by(method, 1);
            pool_submit(&w, WAIT, 0);
            uint64_t job = submit_lost(&w, count);
            TN_CHECK_OK(tn_event_set(w.go));
            tn_pool_result result = pool_get(&w, job);
            assert_int_equal(result.attempt, 1);
            assert_int_equal(result.pid, tnt_worker_pid(w.pool, 0));
            expect_lost(&result, TN_ERR_NOT_FOUND, " lost its tensors: ");
            result = pool_next(&w);
            tn_pool_result_fini(&result);
            expect_works(&w, 0);
            pool_close_world(&w);
        }
}

/* Return tensors that no other process can open, as many as the job's bytes say. */
static int lose_tensors(tn_domain *domain, const tn_pool_job *job, tn_message *result,
                        void *context)
{
    const uint32_t *strategy = context;
    struct pool_order order;
    memcpy(&order, job->message->bytes, sizeof order);
    if (order.deed != KEEP_NOTHING)
        return pool_deed(domain, job, result, NULL);
    result->tensors = job->room;
    for (; result->tensor_count < (uint32_t)order.number; result->tensor_count++) {
        tn_tensor *tensor = make_outside(domain, *strategy);
        result->tensors[result->tensor_count] = tensor;
        if (*strategy == TN_STRATEGY_FILE_SYSTEM)
            TN_CHECK(unlink(tnt_info(tensor).path) == 0);
    }
    return 0;
}

static struct pool_world open_losing(uint32_t *strategy)
{
    struct pool_world w = {.domain = pool_open_domain()};
    tn_pool_options options = pool_options(1);
    options.attempts = 1;
    TN_CHECK_OK(tn_queue_open(w.domain, "pids", NULL, TN_OPEN_NEW, &w.pids));
    TN_CHECK_OK(tn_event_open(w.domain, "go", TN_OPEN_NEW, &w.go));
    TN_CHECK_OK(tn_pool_create(w.domain, &options, lose_tensors, strategy, &w.pool));
    return w;
}

TN_TEST(a_job_whose_result_is_lost_has_a_result_that_says_so)
{
    uint32_t strategy = TN_STRATEGY_FILE_SYSTEM;
    struct pool_world w = open_losing(&strategy);
    for (int32_t count = 1; count <= 2; count++) {
        tn_pool_result result = pool_get(&w, pool_submit(&w, KEEP_NOTHING, count));
        assert_int_equal(result.attempt, 1);
        assert_int_equal(result.pid, tnt_worker_pid(w.pool, 0));
        expect_lost(&result, TN_ERR_NOT_FOUND, " lost its result: ");
    }
    expect_works(&w, 0);
    pool_close_world(&w);
}

TN_TEST(results_whose_descriptors_died_with_a_worker_are_reported)
{
    uint32_t strategy = TN_STRATEGY_FILE_DESCRIPTOR;
    struct pool_world w = open_losing(&strategy);
    uint64_t jobs[] = {pool_submit(&w, KEEP_NOTHING, 1), pool_submit(&w, KEEP_NOTHING, 2)};
    uint64_t last = pool_submit(&w, SLEEP, 0);
    pool_pop_pid(&w);
    pool_kill_worker(&w, 0);
    for (size_t i = 0; i < 2; i++) {
        tn_pool_result result = pool_get(&w, jobs[i]);
        assert_true(result.status < 0);
        expect_lost(&result, result.status, " lost its result: ");
    }
    tn_pool_result result = pool_get(&w, last);
    assert_int_equal(result.status, TN_ERR_CHILD_FAILED);
    tn_pool_result_fini(&result);
    expect_works(&w, 1);
    pool_close_world(&w);
}

/* Damage the only message of a queue. */
static void break_message(const struct tni_queue *queue)
{
    uint32_t broken = 0;
    for (uint32_t i = 0; i < queue->capacity; i++) {
        struct tni_slot *slot =
            (struct tni_slot *)(void *)(queue->slots + (size_t)i * queue->slot_bytes);
        if (tni_slot_state(atomic_load(&slot->word)) != TNI_SLOT_FULL)
            continue;
        slot->form = 77;
        broken++;
    }
    assert_int_equal(broken, 1);
}

TN_TEST(jobs_and_results_that_cannot_be_read_are_lost_by_name)
{
    struct pool_world w = pool_open_by(TN_START_FORK, 1);
    pool_submit(&w, WAIT, 0);
    uint64_t job = pool_submit(&w, ADD_ONE, 1);
    while (tn_queue_count(w.pool->jobs) > 1) /* until a worker has taken the first job */
        sched_yield();
    break_message(tni_queue_of(w.pool->jobs));
    TN_CHECK_OK(tn_event_set(w.go));
    tn_pool_result result = pool_get(&w, job);
    expect_lost(&result, TN_ERR_CORRUPT, ": the job or its result was lost");
    result = pool_next(&w);
    tn_pool_result_fini(&result);
    expect_works(&w, 0);
    pool_close_world(&w);

    w = pool_open_by(TN_START_FORK, 1);
    job = pool_submit(&w, ADD_ONE, 1);
    assert_int_equal(tn_object_wait_any(&w.pool->results, 1, tnt_deadline(20000)), 0);
    break_message(tni_queue_of(w.pool->results));
    result = pool_get(&w, job);
    expect_lost(&result, TN_ERR_CORRUPT, ": the job or its result was lost");
    expect_works(&w, 0);
    pool_close_world(&w);
}
