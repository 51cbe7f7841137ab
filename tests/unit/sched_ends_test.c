/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of how tasks and graphs end: failures, attempts, tasks that pend, cancelling. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/harness.h"
#include "os/os.h"
#include "sched_threads_test.h"

TN_TEST(what_depends_on_a_failed_task_ends_with_the_first_cause)
{
    _Atomic uint64_t count = 0;
    uint64_t cause = 99;
    tn_sched *sched = open_sched("CPU=2");
    tn_graph *graph = open_graph(sched);
    tn_kind *good = add_kind(sched, count_call, NULL), *bad = add_kind(sched, fail_one, NULL);
    uint64_t first = add_task(graph, (tn_task){.kind = bad}, NULL, 0), last = first;
    for (int i = 0; i < 1000; i++)
        last = add_task(graph, (tn_task){.kind = good, .context = &count}, &last, 1);
    uint64_t alone = add_task(graph, (tn_task){.kind = good, .context = &count}, NULL, 0);
    assert_int_equal(tn_graph_run(graph, TN_FOREVER), TN_ERR_DENIED);
    assert_string_equal(tn_error_detail(), "task 0 (task): the task does not want to");
    assert_int_equal(tn_task_get_status(graph, last, &cause), TN_ERR_DENIED);
    assert_true(cause == first);
    TN_CHECK_OK(tn_task_get_status(graph, alone, NULL));
    assert_int_equal(count, 1);
    assert_int_equal(tn_task_get_status(graph, alone + 1, NULL), TN_ERR_NOT_FOUND);
    tn_sched_close(sched);
}

static int wait_for_itself(const tn_task_call *call)
{
    int *statuses = call->context;
    statuses[0] = tn_graph_wait(call->graph, TN_FOREVER);
    statuses[1] = tn_graph_run(call->graph, TN_FOREVER);
    statuses[2] = tn_graph_wait(call->graph, TN_NOW);
    return TN_TASK_DONE;
}

TN_TEST(a_task_cannot_wait_for_its_own_graph)
{
    int statuses[3] = {0};
    tn_sched *sched = open_sched("CPU=1");
    tn_graph *graph = open_graph(sched);
    tn_kind *kind = add_kind(sched, wait_for_itself, NULL);
    add_task(graph, (tn_task){.kind = kind, .context = statuses}, NULL, 0);
    TN_CHECK_OK(tn_graph_run(graph, tnt_deadline(10000)));
    assert_int_equal(statuses[0], TN_ERR_INVALID);
    assert_int_equal(statuses[1], TN_ERR_INVALID);
    assert_int_equal(statuses[2], TN_ERR_TIMED_OUT);
    tn_sched_close(sched);
}

/* One input has failed when the other ends well. */
TN_TEST(a_task_with_a_failed_input_ends_when_the_last_ends_well)
{
    _Atomic uint64_t count = 0;
    tn_sched *sched = open_sched("CPU=1");
    tn_graph *graph = open_graph(sched);
    tn_kind *good = add_kind(sched, count_call, NULL), *bad = add_kind(sched, fail_one, NULL);
    tn_task counted = {.kind = good, .context = &count};
    uint64_t inputs[3] = {add_task(graph, (tn_task){.kind = bad}, NULL, 0)};
    for (int i = 1; i < 3; i++)
        inputs[i] = add_task(graph, counted, NULL, 0);
    uint64_t first = add_task(graph, counted, inputs, 3),
             last = add_task(graph, counted, &first, 1);
    assert_int_equal(tn_graph_wait(graph, tnt_deadline(10000)), TN_ERR_DENIED);
    assert_int_equal(tn_task_get_status(graph, last, NULL), TN_ERR_DENIED);
    assert_int_equal(count, 2);
    tn_sched_close(sched);
}

static int fail_twice(const tn_task_call *call)
{
    *(uint32_t *)call->context = call->attempt;
    return call->attempt < 3 ? TN_TASK_RETRY : 0;
}

static int always_retry(const tn_task_call *call)
{
    (void)call;
    return TN_TASK_RETRY;
}

TN_TEST(a_task_that_asks_for_it_runs_again_but_not_for_ever)
{
    uint32_t attempts = 0;
    tn_sched *sched = open_sched("CPU=2");
    tn_graph *graph = open_graph(sched);
    tn_kind *twice = add_kind(sched, fail_twice, NULL);
    tn_kind *always = add_kind(sched, always_retry, NULL);
    (void)add_task(graph, (tn_task){.kind = twice, .context = &attempts}, NULL, 0);
    TN_CHECK_OK(tn_graph_run(graph, TN_FOREVER));
    assert_int_equal(attempts, 3);
    (void)add_task(graph, (tn_task){.kind = always}, NULL, 0);
    assert_int_equal(tn_graph_run(graph, TN_FOREVER), TN_ERR_CHILD_FAILED);
    tn_sched_close(sched);
}

static int pend(const tn_task_call *call)
{
    struct tnt_signal *signal = call->context;
    tnt_signal(signal);
    return TN_TASK_PENDING;
}

TN_TEST(a_task_that_pends_ends_when_it_is_told_to)
{
    _Atomic uint64_t count = 0;
    struct tnt_signal signal = tnt_signal_open();
    tn_sched *sched = open_sched("CPU=1 GPU=(0)");
    tn_graph *graph = open_graph(sched);
    tn_kind *kind = add_kind(sched, pend, "GPU=1"), *next = add_kind(sched, count_call, NULL);
    uint64_t task = add_task(graph, (tn_task){.kind = kind, .context = &signal}, NULL, 0);
    (void)add_task(graph, (tn_task){.kind = next, .context = &count}, &task, 1);
    (void)add_task(graph, (tn_task){.kind = next, .context = &count}, NULL, 0);
    tnt_await(&signal);
    assert_int_equal(tn_graph_wait(graph, tnt_deadline(20)), TN_ERR_TIMED_OUT);
    assert_int_equal(count, 1); /* the one that does not wait for it got the CPU */
    TN_CHECK_OK(tn_task_end(graph, task, 0));
    TN_CHECK_OK(tn_graph_wait(graph, TN_FOREVER));
    assert_int_equal(count, 2);
    assert_int_equal(tn_task_end(graph, task, 0), TN_ERR_INVALID);
    tn_sched_close(sched);
    tnt_signal_close(&signal);
}

static int end_itself(const tn_task_call *call)
{
    int status = *(int *)call->context;
    if (status != 0)
        (void)tni_fail(status, "the answer was no");
    TN_CHECK_OK(tn_task_end(call->graph, call->task, status));
    (void)tni_fail(TN_ERR_SYSTEM, "an error of something else");
    return TN_TASK_PENDING;
}

static int end_itself_in_vain(const tn_task_call *call)
{
    static const int returns[] = {TN_TASK_RETRY, TN_TASK_DONE};
    TN_CHECK_OK(tn_task_end(call->graph, call->task, TN_ERR_DENIED));
    return returns[call->attempt - 1];
}

TN_TEST(a_task_that_does_not_pend_ends_as_its_function_says)
{
    tn_sched *sched = open_sched("CPU=1");
    tn_graph *graph = open_graph(sched);
    uint64_t task =
        add_task(graph, (tn_task){.kind = add_kind(sched, end_itself_in_vain, NULL)}, NULL, 0);
    TN_CHECK_OK(tn_graph_run(graph, TN_FOREVER));
    assert_int_equal(tn_task_get_status(graph, task, NULL), 0);
    tn_sched_close(sched);
}

TN_TEST(a_task_may_be_ended_before_its_function_returns)
{
    int good = 0, bad = TN_ERR_DENIED;
    tn_sched *sched = open_sched("CPU=1");
    tn_graph *graph = open_graph(sched);
    tn_kind *kind = add_kind(sched, end_itself, NULL);
    (void)add_task(graph, (tn_task){.kind = kind, .context = &good}, NULL, 0);
    TN_CHECK_OK(tn_graph_run(graph, TN_FOREVER));
    (void)add_task(graph, (tn_task){.kind = kind, .context = &bad}, NULL, 0);
    assert_int_equal(tn_graph_run(graph, TN_FOREVER), TN_ERR_DENIED);
    assert_non_null(strstr(tn_error_detail(), "the answer was no"));
    tn_sched_close(sched);
}

/* ---- tasks that a descriptor ends -------------------------------------------------------- */

/* A task whose function makes a pipe, and pends until the pipe is readable. */
struct question {
    int pipe[2];
    struct tnt_signal asked;
    int returns;
};

static struct question new_question(void)
{
    struct question q = {.asked = tnt_signal_open(), .returns = TN_TASK_PENDING};
    TN_CHECK(pipe(q.pipe) == 0);
    return q;
}

/* Only the scheduler has the end to read from afterwards. */
static int ask(const tn_task_call *call)
{
    struct question *q = call->context;
    TN_CHECK_OK(tn_task_end_on(call->graph, call->task, q->pipe[0]));
    close(q->pipe[0]);
    tnt_signal(&q->asked);
    return q->returns;
}

/* Whether nobody has the other end any more. Whoever calls this ignores SIGPIPE. */
static bool is_unheard(const struct question *q)
{
    return write(q->pipe[1], "x", 1) == -1 && errno == EPIPE;
}

static void end_question(struct question *q)
{
    close(q->pipe[1]);
    tnt_signal_close(&q->asked);
}

static void ask_and_answer(void (*answer)(struct question *q))
{
    _Atomic uint64_t count = 0;
    struct question q = new_question();
    signal(SIGPIPE, SIG_IGN);
    tn_sched *sched = open_sched("CPU=1");
    tn_graph *graph = open_graph(sched);
    uint64_t task =
        add_task(graph, (tn_task){.kind = add_kind(sched, ask, NULL), .context = &q}, NULL, 0);
    (void)add_task(graph,
                   (tn_task){.kind = add_kind(sched, count_call, NULL), .context = &count},
                   &task, 1);
    tnt_await(&q.asked);
    assert_int_equal(tn_graph_wait(graph, tnt_deadline(20)), TN_ERR_TIMED_OUT);
    answer(&q);
    TN_CHECK_OK(tn_graph_wait(graph, tnt_deadline(10000)));
    assert_int_equal(count, 1);
    assert_true(q.pipe[1] == -1 || is_unheard(&q)); /* the copy is closed */
    tn_sched_close(sched);
    end_question(&q);
}

static void write_byte(struct question *q) { TN_CHECK(write(q->pipe[1], "x", 1) == 1); }

static void hang_up(struct question *q)
{
    close(q->pipe[1]);
    q->pipe[1] = -1;
}

TN_TEST(a_task_ends_when_its_descriptor_is_readable) { ask_and_answer(write_byte); }
TN_TEST(a_task_ends_when_its_descriptor_is_at_its_end) { ask_and_answer(hang_up); }

TN_TEST(a_task_is_ended_before_its_descriptor_is_readable)
{
    struct question q = new_question();
    signal(SIGPIPE, SIG_IGN);
    tn_sched *sched = open_sched("CPU=1");
    tn_graph *graph = open_graph(sched);
    uint64_t task =
        add_task(graph, (tn_task){.kind = add_kind(sched, ask, NULL), .context = &q}, NULL, 0);
    tnt_await(&q.asked);
    (void)tni_fail(TN_ERR_DENIED, "nobody answers");
    TN_CHECK_OK(tn_task_end(graph, task, TN_ERR_DENIED));
    assert_int_equal(tn_graph_wait(graph, tnt_deadline(10000)), TN_ERR_DENIED);
    assert_true(is_unheard(&q));
    tn_sched_close(sched);
    end_question(&q);
}

TN_TEST(a_task_that_does_not_pend_gives_its_descriptor_back)
{
    struct question q = new_question();
    signal(SIGPIPE, SIG_IGN);
    q.returns = TN_TASK_DONE;
    tn_sched *sched = open_sched("CPU=1");
    tn_graph *graph = open_graph(sched);
    (void)add_task(graph, (tn_task){.kind = add_kind(sched, ask, NULL), .context = &q}, NULL,
                   0);
    TN_CHECK_OK(tn_graph_wait(graph, tnt_deadline(10000)));
    assert_true(is_unheard(&q));
    tn_sched_close(sched);
    end_question(&q);
}

static uint64_t add_and_await(tn_graph *graph, tn_kind *kind, struct question *q)
{
    uint64_t task = add_task(graph, (tn_task){.kind = kind, .context = q}, NULL, 0);
    tnt_await(&q->asked);
    return task;
}

/* The first run has a descriptor that is readable, and asks for a second run without one. */
static int ask_at_first(const tn_task_call *call)
{
    struct question *q = call->context;
    if (call->attempt == 1) {
        write_byte(q);
        TN_CHECK_OK(tn_task_end_on(call->graph, call->task, q->pipe[0]));
        return TN_TASK_RETRY;
    }
    tnt_signal(&q->asked);
    return TN_TASK_PENDING;
}

TN_TEST(a_descriptor_of_an_earlier_run_ends_no_task)
{
    struct question q = new_question();
    tn_sched *sched = open_sched("CPU=1");
    tn_graph *graph = open_graph(sched);
    uint64_t task = add_and_await(graph, add_kind(sched, ask_at_first, NULL), &q);
    assert_int_equal(tn_graph_wait(graph, tnt_deadline(50)), TN_ERR_TIMED_OUT);
    TN_CHECK_OK(
        tn_task_end_on(graph, task, q.pipe[0])); /* from outside, of a task that pends */
    TN_CHECK_OK(tn_graph_wait(graph, tnt_deadline(10000)));
    close(q.pipe[0]);
    tn_sched_close(sched);
    end_question(&q);
}

static int ask_wrongly(const tn_task_call *call)
{
    struct question *q = call->context;
    int file = open("/proc/self/exe", O_RDONLY);
    TN_CHECK(file >= 0);
    TN_CHECK(tn_task_end_on(call->graph, call->task, 1 << 20) == TN_ERR_INVALID);
    TN_CHECK(strstr(tn_error_detail(), "1048576") != NULL);
    TN_CHECK(tn_task_end_on(call->graph, call->task, file) == TN_ERR_INVALID);
    char sentence[64];
    snprintf(sentence, sizeof sentence, "descriptor %d is of a file", file);
    TN_CHECK(strstr(tn_error_detail(), sentence) != NULL);
    TN_CHECK(tn_task_end_on(call->graph, call->task + 1, q->pipe[0]) == TN_ERR_NOT_FOUND);
    TN_CHECK_OK(tn_task_end_on(call->graph, call->task, q->pipe[0]));
    TN_CHECK(tn_task_end_on(call->graph, call->task, q->pipe[0]) == TN_ERR_EXISTS);
    close(file);
    tnt_signal(&q->asked);
    return TN_TASK_PENDING;
}

TN_TEST(a_descriptor_that_cannot_end_a_task_is_refused)
{
    struct question q = new_question();
    tn_sched *sched = open_sched("CPU=1");
    tn_graph *graph = open_graph(sched);
    uint64_t task = add_and_await(graph, add_kind(sched, ask_wrongly, NULL), &q);
    write_byte(&q);
    TN_CHECK_OK(tn_graph_wait(graph, tnt_deadline(10000)));
    assert_int_equal(tn_task_end_on(graph, task, q.pipe[0]), TN_ERR_INVALID); /* it has ended */
    close(q.pipe[0]);
    tn_sched_close(sched);
    end_question(&q);
}

static tn_sched *sched_of_parent;

static int close_as_child(void *unused)
{
    (void)unused;
    tn_sched_close(sched_of_parent);
    return 0;
}

TN_TEST(a_forked_child_that_closes_leaves_descriptors_watched)
{
    struct question q = new_question();
    tn_sched *sched = sched_of_parent = open_sched("CPU=1");
    tn_graph *graph = open_graph(sched);
    (void)add_task(graph, (tn_task){.kind = add_kind(sched, ask, NULL), .context = &q}, NULL,
                   0);
    tnt_await(&q.asked);
    assert_int_equal(tn_graph_wait(graph, tnt_deadline(1)), TN_ERR_TIMED_OUT); /* it pends */
    tnt_wait_ok(tnt_fork(close_as_child, NULL));
    write_byte(&q);
    TN_CHECK_OK(tn_graph_wait(graph, tnt_deadline(10000)));
    tn_sched_close(sched);
    end_question(&q);
}

/* ---- graphs ------------------------------------------------------------------------------ */

/* A task that is short, and one of the same kind that takes long. */
static int be_short_or_wait(const tn_task_call *call)
{
    if (call->context != NULL)
        tnt_await(call->context);
    return 0;
}

TN_TEST(who_waits_for_a_graph_does_not_wait_for_a_task_of_another)
{
    struct tnt_signal gate = tnt_signal_open(), go_on = tnt_signal_open();
    tn_sched *sched = open_sched("CPU=1");
    tn_kind *first = add_kind(sched, be_short_or_wait, NULL);
    tn_kind *kind = add_kind(sched, be_short_or_wait, NULL);
    tn_graph *before = open_graph(sched), *graph = open_graph(sched),
             *other = open_graph(sched);
    for (int i = 0; i < 100; i++) /* it is known to be short */
        (void)add_task(before, (tn_task){.kind = kind}, NULL, 0);
    TN_CHECK_OK(tn_graph_wait(before, TN_FOREVER));
    (void)add_task(before, (tn_task){.kind = first, .context = &gate}, NULL, 0);
    (void)add_task(other, (tn_task){.kind = kind, .context = &go_on}, NULL, 0);
    (void)add_task(graph, (tn_task){.kind = kind, .priority = 1}, NULL, 0); /* runs first */
    tnt_signal(&gate);
    TN_CHECK_OK(tn_graph_wait(graph, tnt_deadline(10000)));
    tnt_signal(&go_on);
    TN_CHECK_OK(tn_graph_wait(other, TN_FOREVER));
    tn_sched_close(sched);
    tnt_signal_close(&gate);
    tnt_signal_close(&go_on);
}

static int wait_for_signal(const tn_task_call *call)
{
    struct tnt_signal *signals = call->context;
    tnt_signal(&signals[0]);
    tnt_await(&signals[1]);
    return 0;
}

TN_TEST(tasks_of_a_cancelled_graph_do_not_begin)
{
    _Atomic uint64_t count = 0;
    struct tnt_signal signals[2] = {tnt_signal_open(), tnt_signal_open()};
    tn_sched *sched = open_sched("CPU=1");
    tn_graph *graph = open_graph(sched);
    tn_kind *waits = add_kind(sched, wait_for_signal, NULL);
    tn_kind *counts = add_kind(sched, count_call, NULL);
    uint64_t first = add_task(graph, (tn_task){.kind = waits, .context = signals}, NULL, 0);
    for (int i = 0; i < 100; i++)
        (void)add_task(graph, (tn_task){.kind = counts, .context = &count}, &first,
                       (uint64_t)i % 2);
    tnt_await(&signals[0]);
    TN_CHECK_OK(tn_graph_cancel(graph));
    tnt_signal(&signals[1]);
    assert_int_equal(tn_graph_wait(graph, TN_FOREVER), TN_ERR_INTERRUPTED);
    assert_int_equal(count, 0);
    TN_CHECK_OK(tn_task_get_status(graph, first, NULL));
    assert_int_equal(tn_graph_add(graph, TN_OPTIONS(tn_task_list), NULL), TN_ERR_CLOSED);
    tn_graph *another = open_graph(sched);
    (void)add_task(another, (tn_task){.kind = counts, .context = &count}, NULL, 0);
    TN_CHECK_OK(tn_graph_run(another, TN_FOREVER));
    assert_int_equal(count, 1);
    tn_sched_close(sched);
    for (int i = 0; i < 2; i++)
        tnt_signal_close(&signals[i]);
}

TN_TEST(a_cancelled_graph_says_so_even_if_all_that_ran_was_done)
{
    struct tnt_signal signals[2] = {tnt_signal_open(), tnt_signal_open()};
    tn_sched *sched = open_sched("CPU=1");
    tn_graph *graph = open_graph(sched);
    tn_kind *waits = add_kind(sched, wait_for_signal, NULL);
    (void)add_task(graph, (tn_task){.kind = waits, .context = signals}, NULL, 0);
    tnt_await(&signals[0]);
    TN_CHECK_OK(tn_graph_cancel(graph));
    tnt_signal(&signals[1]);
    assert_int_equal(tn_graph_wait(graph, TN_FOREVER), TN_ERR_INTERRUPTED);
    assert_string_equal(tn_error_detail(), "the graph was cancelled");
    tn_sched_close(sched);
    for (int i = 0; i < 2; i++)
        tnt_signal_close(&signals[i]);
}
