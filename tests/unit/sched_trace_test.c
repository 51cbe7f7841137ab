/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of tn_sched_write_trace(): what the file has. */
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/harness.h"
#include "os/os.h"
#include "sched_threads_test.h"

static tn_sched *open_traced(const char *resources, uint32_t flags)
{
    tn_sched *sched;
    TN_CHECK_OK(tn_sched_create(
        TN_OPTIONS(tn_sched_options, .resources = resources, .flags = TN_SCHED_TRACE | flags),
        &sched));
    return sched;
}

/* The trace as a text, to be freed. */
static char *text_of(tn_sched *sched)
{
    FILE *file = tmpfile();
    assert_non_null(file);
    TN_CHECK_OK(tn_sched_write_trace(sched, fileno(file)));
    long size = lseek(fileno(file), 0, SEEK_END);
    char *text = calloc(1, (size_t)size + 1);
    assert_non_null(text);
    assert_int_equal(pread(fileno(file), text, (size_t)size, 0), size);
    fclose(file);
    return text;
}

static uint32_t count_of(const char *text, const char *part)
{
    uint32_t count = 0;
    while ((text = strstr(text, part)) != NULL) {
        count++;
        text++;
    }
    return count;
}

static int do_nothing(const tn_task_call *call) { return (void)call, TN_TASK_DONE; }

static int pend(const tn_task_call *call)
{
    (void)call;
    return TN_TASK_PENDING;
}

TN_TEST(a_trace_has_tasks_inputs_names_and_counters)
{
    tn_sched *sched = open_traced("CPU=2 GPU=((4,5),(6,7))", 0);
    tn_graph *graph = open_graph(sched);
    tn_kind *kind = add_kind(sched, do_nothing, "CPU=1 GPU=2");
    const tn_task tasks[] = {{.kind = kind}, {.kind = kind}, {.kind = kind}};
    const uint64_t ends[] = {0, 1, 3},
                   inputs[] = {TN_TASK_OF_LIST(0), TN_TASK_OF_LIST(0), TN_TASK_OF_LIST(1)};
    const char *const names[] = {"first", NULL, "the \"last\"\n"};
    TN_CHECK_OK(tn_graph_add(graph,
                             TN_OPTIONS(tn_task_list, .tasks = tasks, .count = 3,
                                        .input_ends = ends, .inputs = inputs, .names = names),
                             NULL));
    TN_CHECK_OK(tn_graph_wait(graph, tnt_deadline(10000)));
    tn_graph_close(graph); /* the trace outlives it */
    char *text = text_of(sched);
    assert_int_equal(count_of(text, "\"ph\":\"X\""),
                     3 * 3); /* a lane of a CPU and of two slots each */
    assert_int_equal(count_of(text, "\"args\":{\"task\":\"first\"}"), 3);
    assert_int_equal(count_of(text, "\"args\":{\"task\":1}"), 3);
    assert_int_equal(count_of(text, "the \\\"last\\\"\\u000a"), 3);
    assert_int_equal(count_of(text, "\"ph\":\"s\""), 3);
    assert_int_equal(count_of(text, "\"ph\":\"f\""), 3);
    assert_true(count_of(text, "GPU in use\",\"args\":{\"in use\":2}") > 0);
    assert_true(
        count_of(text, "{\"name\":\"GPU 4\"}") + count_of(text, "{\"name\":\"GPU 6\"}") > 0);
    assert_int_equal(count_of(text, "error"), 0);
    free(text);
    tn_sched_close(sched);
}

TN_TEST(a_trace_has_tasks_that_pended_and_tasks_that_failed)
{
    tn_sched *sched = open_traced("CPU=1", 0);
    tn_graph *graph = open_graph(sched), *other = open_graph(sched);
    add_task(graph, (tn_task){.kind = add_kind(sched, pend, "CPU=0")}, NULL, 0);
    add_task(other, (tn_task){.kind = add_kind(sched, fail_one, NULL)}, NULL, 0);
    assert_int_equal(tn_graph_wait(other, tnt_deadline(10000)), TN_ERR_DENIED);
    char *text = text_of(sched);
    assert_int_equal(count_of(text, "\"ph\":\"X\""), 1); /* the other has not ended */
    free(text);
    tn_graph_info info = {.struct_size = sizeof info};
    do
        TN_CHECK_OK(tn_graph_get_info(graph, &info));
    while (info.pending == 0);
    TN_CHECK_OK(tn_task_end(graph, 0, TN_ERR_FULL));
    assert_int_equal(tn_task_end(graph, 0, 0), TN_ERR_INVALID);
    assert_int_equal(tn_graph_wait(graph, tnt_deadline(10000)), TN_ERR_FULL);
    text = text_of(sched);
    assert_int_equal(count_of(text, "\"ph\":\"X\""), 2);
    assert_int_equal(count_of(text, "\"error\":\"TN_ERR_DENIED\""), 1);
    assert_int_equal(count_of(text, "\"error\":\"TN_ERR_FULL\""), 1);
    assert_int_equal(count_of(text, "{\"name\":\"thread 0\"}"), 1);
    free(text);
    tn_sched_close(sched);
}

static int do_without_cpu(const tn_task_call *call)
{
    return call->context != NULL ? TN_TASK_PENDING : tn_task_secede();
}

/* The largest value of a counter. */
static double most_in_use(const char *text, const char *counter)
{
    double most = 0;
    while ((text = strstr(text, counter)) != NULL) {
        text = strstr(text, "\"args\":{\"in use\":") + strlen("\"args\":{\"in use\":");
        double in_use = strtod(text, NULL);
        most = in_use > most ? in_use : most;
    }
    return most;
}

TN_TEST(a_cpu_is_traced_until_it_is_given_back)
{
    enum { TASKS = 20 };
    tn_sched *sched = open_traced("CPU=2 MEM=100", 0);
    tn_graph *graph = open_graph(sched);
    tn_kind *kind = add_kind(sched, do_without_cpu, "CPU=1 MEM=1");
    tn_graph_info info = {.struct_size = sizeof info};
    for (int i = 0; i < TASKS; i++)
        add_task(graph, (tn_task){.kind = kind, .context = i % 2 ? sched : NULL}, NULL, 0);
    do
        TN_CHECK_OK(tn_graph_get_info(graph, &info));
    while (info.pending < TASKS / 2);
    for (uint64_t i = 1; i < TASKS; i += 2)
        TN_CHECK_OK(tn_task_end(graph, i, 0));
    TN_CHECK_OK(tn_graph_wait(graph, tnt_deadline(10000)));
    char *text = text_of(sched);
    assert_int_equal(count_of(text, "\"ph\":\"X\""), TASKS);
    assert_true(most_in_use(text, "\"CPU in use\"") <= 2);
    assert_true(most_in_use(text, "\"MEM in use\"") >= TASKS / 2);
    assert_int_equal(count_of(text, "{\"name\":\"CPU 2\"}"), 0);
    free(text);
    tn_sched_close(sched);
}

TN_TEST(tasks_that_take_no_time_share_a_lane)
{
    tn_sched *sched = open_traced("CPU=2", TN_SCHED_VIRTUAL);
    tn_graph *graph = open_graph(sched);
    tn_kind *kind = add_kind(sched, do_nothing, NULL);
    for (int i = 0; i < 50; i++) /* their time is not known */
        add_task(graph, (tn_task){.kind = kind}, NULL, 0);
    TN_CHECK_OK(tn_graph_wait(graph, tnt_deadline(10000)));
    char *text = text_of(sched);
    assert_int_equal(count_of(text, "\"ph\":\"X\""), 50);
    assert_int_equal(count_of(text, "\"name\":\"thread_name\""), 1);
    free(text);
    tn_sched_close(sched);
}

/* ---- bytes ------------------------------------------------------------------------------- */

static int copy_nothing(void *context, const tn_memory *from, const tn_memory *to)
{
    return (void)context, (void)from, (void)to, 0;
}

static void drop_nothing(void *context, const tn_memory *memory)
{
    (void)context;
    (void)memory;
}

static tn_sched *open_traced_card(const char *memories, uint32_t flags)
{
    tn_sched *sched;
    TN_CHECK_OK(tn_sched_create(TN_OPTIONS(tn_sched_options, .resources = "CPU=1 GPU=((4,5))",
                                           .memories = memories, .links = "HOST=1000000000",
                                           .flags = TN_SCHED_TRACE | flags),
                                &sched));
    return sched;
}

static tn_data *make_data(tn_sched *sched, uint64_t bytes)
{
    tn_data *data;
    TN_CHECK_OK(
        tn_data_create(sched,
                       TN_OPTIONS(tn_data_options, .bytes = bytes, .flags = TN_DATA_ON_HOST,
                                  .copy = copy_nothing, .drop = drop_nothing),
                       &data));
    return data;
}

static void add_access(tn_graph *graph, tn_task task, tn_data *data, uint32_t mode)
{
    const tn_access access = {.data = data, .mode = mode};
    TN_CHECK_OK(tn_graph_add(graph,
                             TN_OPTIONS(tn_task_list, .tasks = &task, .count = 1,
                                        .access_ends = (uint64_t[]){1}, .accesses = &access),
                             NULL));
}

static void expect_counter(const char *text, const char *microseconds, const char *name,
                           uint64_t bytes)
{
    char part[160];
    snprintf(part, sizeof part, "\"ts\":%s,\"name\":\"%s\",\"args\":{\"bytes\":%llu}}",
             microseconds, name, (unsigned long long)bytes);
    if (count_of(text, part) != 1)
        fail_msg("%u times: %s in %s", count_of(text, part), part, text);
}

TN_TEST(a_trace_in_virtual_time_counts_the_bytes_of_each_memory)
{
    tn_sched *sched = open_traced_card("GPU=3000", TN_SCHED_VIRTUAL);
    tn_graph *graph = open_graph(sched);
    tn_kind *kind = add_kind(sched, do_nothing, "CPU=0 GPU=2");
    const tn_task task = {.kind = kind, .run_ns = 10000};
    tn_data *one = make_data(sched, 1000), *other = make_data(sched, 2500);
    add_access(graph, task, one, TN_READ | TN_WRITE);
    TN_CHECK_OK(tn_graph_wait(graph, tnt_deadline(10000)));
    add_access(graph, task, other, TN_READ); /* the first one leaves for it */
    TN_CHECK_OK(tn_graph_wait(graph, tnt_deadline(10000)));
    char *text = text_of(sched);
    expect_counter(text, "0.000", "host: bytes held", 3500);
    expect_counter(text, "0.000", "GPU 4: bytes held", 1000);
    expect_counter(text, "1.000", "GPU 4: bytes moved here", 1000);
    expect_counter(text, "11.000", "GPU 4: bytes held", 2500);
    expect_counter(text, "14.500", "host: bytes moved here", 1000);
    expect_counter(text, "14.500", "GPU 4: bytes moved here", 3500);
    assert_int_equal(count_of(text, "\"bytes\":"), 6);
    assert_int_equal(count_of(text, "\"args\":{\"name\":\"memory\"}"), 1);
    free(text);
    tn_sched_close(sched);
}

TN_TEST(a_trace_counts_the_bytes_that_are_held_and_moved)
{
    tn_sched *sched = open_traced_card("GPU=3000", 0);
    tn_graph *graph = open_graph(sched);
    tn_data *data = make_data(sched, 1000);
    const tn_task task = {.kind = add_kind(sched, do_nothing, "CPU=0 GPU=2")};
    add_access(graph, task, data, TN_READ | TN_WRITE);
    TN_CHECK_OK(tn_graph_wait(graph, tnt_deadline(10000)));
    TN_CHECK_OK(tn_data_fetch(data, tnt_deadline(10000)));
    tn_data_close(data);
    char *text = text_of(sched);
    static const char *const counters[] = {"host: bytes held", "GPU 4: bytes held",
                                           "GPU 4: bytes moved here", "host: bytes moved here"};
    for (size_t i = 0; i < TNI_COUNT(counters); i++) {
        char part[80];
        snprintf(part, sizeof part, "\"%s\",\"args\":{\"bytes\":1000}}", counters[i]);
        assert_int_equal(count_of(text, part), 1);
        part[strlen(part) - strlen("1000}}")] = '\0';
        assert_int_equal(count_of(text, part), i < 2 ? 2 : 1); /* held: and then 0 */
    }
    assert_int_equal(count_of(text, "\"bytes\":0}}"), 2);
    free(text);
    tn_sched_close(sched);
}

TN_TEST(names_that_are_no_utf8_are_replaced)
{
    tn_sched *sched = open_traced("CPU=1", 0);
    tn_graph *graph = open_graph(sched);
    const tn_task task = {.kind = add_kind(sched, do_nothing, NULL)};
    const char *const names[] = {"caf\xc3\xa9 \xff \xe2\x82"};
    TN_CHECK_OK(tn_graph_add(
        graph, TN_OPTIONS(tn_task_list, .tasks = &task, .count = 1, .names = names), NULL));
    TN_CHECK_OK(tn_graph_wait(graph, tnt_deadline(10000)));
    char *text = text_of(sched);
    assert_int_equal(count_of(text, "\"caf\xc3\xa9 \\ufffd \\ufffd\\ufffd\""), 1);
    free(text);
    tn_sched_close(sched);
}

struct writing {
    tn_sched *sched;
    int fd;
    _Atomic bool is_done;
};

static void *write_to_pipe(void *argument)
{
    struct writing *writing = argument;
    TN_CHECK_OK(tn_sched_write_trace(writing->sched, writing->fd));
    atomic_store(&writing->is_done, true);
    return NULL;
}

/* Nobody reads the pipe until the scheduler has done more. */
TN_TEST(a_trace_that_is_not_read_holds_nothing_up)
{
    enum { TASKS = 5000 };
    int fds[2];
    pthread_t thread;
    char byte, *rest = malloc(1 << 20);
    tn_sched *sched = open_traced("CPU=2", 0);
    tn_graph *graph = open_graph(sched);
    tn_kind *kind = add_kind(sched, do_nothing, NULL);
    for (int i = 0; i < TASKS; i++)
        add_task(graph, (tn_task){.kind = kind}, NULL, 0);
    TN_CHECK_OK(tn_graph_wait(graph, tnt_deadline(10000)));
    assert_int_equal(pipe(fds), 0);
    struct writing writing = {.sched = sched, .fd = fds[1]};
    assert_int_equal(pthread_create(&thread, NULL, write_to_pipe, &writing), 0);
    assert_int_equal(read(fds[0], &byte, 1), 1); /* it has begun, and the pipe is too small */
    tn_graph *other = open_graph(sched);
    add_task(other, (tn_task){.kind = kind}, NULL, 0);
    TN_CHECK_OK(tn_graph_wait(other, tnt_deadline(10000)));
    while (!atomic_load(&writing.is_done))
        if (poll(&(struct pollfd){.fd = fds[0], .events = POLLIN}, 1, 10) == 1)
            assert_true(read(fds[0], rest, 1 << 20) > 0);
    pthread_join(thread, NULL);
    close(fds[0]);
    close(fds[1]);
    free(rest);
    tn_sched_close(sched);
}

TN_TEST(a_trace_of_nothing_is_written_too)
{
    tn_sched *sched = open_traced("CPU=1", TN_SCHED_VIRTUAL);
    char *text = text_of(sched);
    assert_int_equal(count_of(text, "\"ph\":\"X\""), 0);
    assert_int_equal(count_of(text, "process_name"), 2);
    free(text);
    tn_sched_close(sched);
}

TN_TEST(a_trace_that_cannot_be_written_says_why)
{
    int fds[2];
    tn_sched *without = open_sched("CPU=1"), *sched = open_traced("CPU=1", 0);
    assert_int_equal(tn_sched_write_trace(NULL, 1), TN_ERR_INVALID);
    assert_int_equal(tn_sched_write_trace(without, 1), TN_ERR_INVALID);
    assert_non_null(strstr(tn_error_detail(), "TN_SCHED_TRACE"));
    assert_int_equal(tn_sched_write_trace(sched, -1), TN_ERR_SYSTEM);
    assert_int_equal(pipe(fds), 0);
    close(fds[0]);
    assert_int_equal(tn_sched_write_trace(sched, fds[1]), TN_ERR_CLOSED);
    close(fds[1]);
    tn_sched_close(without);
    tn_sched_close(sched);
}
