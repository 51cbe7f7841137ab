/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of tn_sched_write_trace(): what the file has. */
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
