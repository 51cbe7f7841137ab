/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of tasks whose memory runs out. */
#include <stdatomic.h>
#include <string.h>

#include "harness/harness.h"
#include "os/os.h"
#include "sched_threads_test.h"

enum { MOST_RUNS = 8 };

/* What a task saw. Its first `failures` runs return TN_TASK_OOM. */
struct seen {
    uint32_t failures, runs;
    uint32_t attempt[MOST_RUNS], variant[MOST_RUNS], slots[MOST_RUNS], flags[MOST_RUNS];
    uint32_t held[MOST_RUNS]; /* slots that no other task could have */
    uint32_t first_slot[MOST_RUNS];
    bool was_alone;
};

static _Atomic uint32_t running, released;
static tn_sched *sched;

static uint32_t held_slots(void)
{
    tn_sched_info info = {.struct_size = sizeof info};
    double held = 0;
    TN_CHECK_OK(tn_sched_get_info(sched, &info));
    for (uint32_t i = 0; i < info.resource_count; i++)
        if (strcmp(info.resources[i].name, "GPU") == 0)
            held = info.resources[i].total - info.resources[i].free;
    return (uint32_t)held;
}

static int run_out(const tn_task_call *call)
{
    struct seen *seen = call->context;
    uint32_t run = seen->runs++, ids[4] = {0};
    TN_CHECK(run < MOST_RUNS);
    atomic_fetch_add(&running, 1);
    int slots = tn_resource_id("GPU", ids, 4);
    seen->attempt[run] = call->attempt;
    seen->variant[run] = call->variant;
    seen->flags[run] = call->flags;
    seen->slots[run] = slots > 0 ? (uint32_t)slots : 0;
    seen->held[run] = held_slots();
    seen->first_slot[run] = ids[0];
    seen->was_alone = true;
    for (int i = 0; i < 200; i++)
        seen->was_alone &= atomic_load(&running) == 1;
    atomic_fetch_sub(&running, 1);
    return run < seen->failures ? TN_TASK_OOM : TN_TASK_DONE;
}

static void release(void *context)
{
    (void)context;
    atomic_fetch_add(&released, 1);
}

static tn_sched *open_releasing(const char *resources)
{
    running = released = 0;
    TN_CHECK_OK(tn_sched_create(
        TN_OPTIONS(tn_sched_options, .resources = resources, .release_caches = release),
        &sched));
    return sched;
}

static void check_sentence(const char *part)
{
    if (strstr(tn_error_detail(), part) == NULL)
        fail_msg("'%s' does not say '%s'", tn_error_detail(), part);
}

TN_TEST(a_task_whose_memory_ran_out_runs_again_alone)
{
    enum { TASKS = 200 };
    static struct seen seen[TASKS];
    sched = open_releasing("CPU=4 MEM=16 GPU=((0,1),(2,3))");
    tn_graph *graph = open_graph(sched);
    tn_kind *kind = add_kind(sched, run_out, "CPU=1 MEM=2 GPU=1");
    for (uint32_t i = 0; i < TASKS; i++) {
        seen[i] = (struct seen){.failures = i % 5 == 0};
        add_task(graph, (tn_task){.kind = kind, .context = &seen[i]}, NULL, 0);
    }
    TN_CHECK_OK(tn_graph_wait(graph, tnt_deadline(20000)));
    for (uint32_t i = 0; i < TASKS; i++) {
        assert_int_equal(seen[i].runs, seen[i].failures + 1);
        assert_int_equal(seen[i].slots[0], 1);
        if (seen[i].failures == 0)
            continue;
        assert_true(seen[i].was_alone);        /* it had all of MEM, which each task requests */
        assert_int_equal(seen[i].held[1], 2);  /* both slots of one card */
        assert_int_equal(seen[i].slots[1], 1); /* as it requested */
        assert_int_equal(seen[i].first_slot[1] % 2, 0);
        assert_int_equal(seen[i].attempt[1], 1); /* the first run does not count */
    }
    assert_int_equal(released, TASKS / 5);
    tn_sched_close(sched);
}

TN_TEST(a_task_of_cpus_whose_memory_ran_out_runs_with_all_of_them)
{
    enum { TASKS = 100 };
    static struct seen seen[TASKS];
    sched = open_releasing("CPU=3");
    tn_graph *graph = open_graph(sched);
    tn_kind *kind = add_kind(sched, run_out, NULL);
    for (uint32_t i = 0; i < TASKS; i++) {
        seen[i] = (struct seen){.failures = i % 10 == 0};
        add_task(graph, (tn_task){.kind = kind, .context = &seen[i]}, NULL, 0);
    }
    TN_CHECK_OK(tn_graph_wait(graph, tnt_deadline(20000)));
    for (uint32_t i = 0; i < TASKS; i += 10)
        assert_true(seen[i].runs == 2 && seen[i].was_alone);
    tn_sched_close(sched);
}

static tn_kind *add_both(void)
{
    tn_kind *kind;
    const tn_variant variants[] = {{.run = run_out, .request = "CPU=0 GPU=1"},
                                   {.run = run_out, .request = "CPU=1"},
                                   {.run = run_out, .request = "CPU=1 GPU=2"}};
    TN_CHECK_OK(tn_kind_create(sched,
                               TN_OPTIONS(tn_kind_options, .name = "both", .attempts = 1,
                                          .variants = variants, .variant_count = 3),
                               &kind));
    return kind;
}

TN_TEST(a_task_runs_as_another_variant_if_its_memory_runs_out_alone)
{
    struct seen seen = {.failures = 2};
    sched = open_releasing("CPU=2 GPU=((0,1),(2,3))");
    tn_graph *graph = open_graph(sched);
    add_task(graph, (tn_task){.kind = add_both(), .context = &seen}, NULL, 0);
    TN_CHECK_OK(tn_graph_wait(graph, tnt_deadline(20000)));
    const uint32_t variants[] = {0, 0, 1}, slots[] = {1, 1, 0}, flags[] = {0, 0, TN_CALL_LAST};
    assert_int_equal(seen.runs, 3);
    assert_memory_equal(seen.flags, flags, sizeof flags);
    assert_memory_equal(seen.variant, variants, sizeof variants);
    assert_memory_equal(seen.slots, slots, sizeof slots);
    assert_true(seen.held[1] >= 2); /* a card, and, for a moment, what its first run had */
    assert_int_equal(released, 2);
    tn_sched_close(sched);
}

TN_TEST(a_variant_that_cannot_run_is_left_out_when_memory_runs_out)
{
    struct seen seen = {.failures = 2};
    const tn_variant variants[] = {{.run = run_out, .request = "CPU=0 TPU=1"},
                                   {.run = run_out, .request = "CPU=0 GPU=1"},
                                   {.run = run_out, .request = "CPU=1"}};
    tn_kind *kind;
    sched = open_releasing("CPU=2 GPU=((0,1),(2,3))");
    TN_CHECK_OK(tn_kind_create(
        sched, TN_OPTIONS(tn_kind_options, .variants = variants, .variant_count = 3), &kind));
    tn_graph *graph = open_graph(sched);
    add_task(graph, (tn_task){.kind = kind, .context = &seen}, NULL, 0);
    TN_CHECK_OK(tn_graph_wait(graph, tnt_deadline(20000)));
    const uint32_t numbers[] = {1, 1, 2};
    assert_int_equal(seen.runs, 3);
    assert_memory_equal(seen.variant, numbers, sizeof numbers);
    tn_sched_close(sched);
}

TN_TEST(a_task_whose_memory_always_runs_out_says_what_is_in_use)
{
    struct seen seen = {.failures = 99}, other = {.failures = 0};
    sched = open_releasing("CPU=2 GPU=((0,1),(2,3))");
    tn_graph *graph = open_graph(sched);
    add_task(graph, (tn_task){.kind = add_both(), .context = &seen}, NULL, 0);
    assert_int_equal(tn_graph_wait(graph, tnt_deadline(20000)), TN_ERR_NO_MEMORY);
    check_sentence("task 0 (both): its memory ran out, also when it ran alone");
    assert_int_equal(seen.runs, 3);
    tn_sched_close(sched);
    sched = open_releasing("CPU=2 GPU=((0,1),(2,3))");
    graph = open_graph(sched);
    tn_kind *gpu = add_kind(sched, run_out, "CPU=0 GPU=0.5");
    seen = (struct seen){.failures = 99};
    add_task(graph, (tn_task){.kind = gpu, .context = &seen}, NULL, 0);
    assert_int_equal(tn_graph_wait(graph, tnt_deadline(20000)), TN_ERR_NO_MEMORY);
    check_sentence("in use: THREADS ");
    check_sentence(", GPU 2"); /* and, for a moment, what its first run had */
    assert_int_equal(seen.runs, 2);
    add_task(graph, (tn_task){.kind = gpu, .context = &other}, NULL, 0);
    assert_int_equal(tn_graph_wait(graph, tnt_deadline(20000)), TN_ERR_NO_MEMORY);
    assert_int_equal(other.runs, 1); /* the scheduler goes on */
    tn_sched_close(sched);
}

static int run_out_then_retry(const tn_task_call *call)
{
    static const int statuses[] = {TN_TASK_OOM, TN_TASK_RETRY, TN_TASK_DONE};
    return statuses[((struct seen *)call->context)->runs++];
}

TN_TEST(a_run_whose_memory_ran_out_is_no_attempt)
{
    struct seen seen = {0};
    const tn_variant variant = {.run = run_out_then_retry};
    tn_kind *kind;
    sched = open_releasing("CPU=2");
    tn_graph *graph = open_graph(sched);
    TN_CHECK_OK(tn_kind_create(
        sched,
        TN_OPTIONS(tn_kind_options, .attempts = 2, .variants = &variant, .variant_count = 1),
        &kind));
    add_task(graph, (tn_task){.kind = kind, .context = &seen}, NULL, 0);
    TN_CHECK_OK(tn_graph_wait(graph, tnt_deadline(20000)));
    assert_int_equal(seen.runs, 3);
    tn_sched_close(sched);
}

static int hold(const tn_task_call *call)
{
    tnt_await(call->context);
    return TN_TASK_DONE;
}

/* Others hold one slot of each of two cards; the third card has the slots that are asked for.
 */
TN_TEST(alone_is_never_with_a_part_of_a_card)
{
    struct seen seen = {.failures = 1};
    struct tnt_signal gate = tnt_signal_open();
    sched = open_releasing("CPU=8 GPU=((0,1),(2,3),(4,5))");
    tn_graph *graph = open_graph(sched), *other = open_graph(sched);
    tn_kind *holds = add_kind(sched, hold, "GPU=1");
    tn_kind *wide = add_kind(sched, run_out, "GPU=3");
    for (int i = 0; i < 2; i++)
        add_task(other, (tn_task){.kind = holds, .context = &gate}, NULL, 0);
    add_task(graph, (tn_task){.kind = wide, .context = &seen}, NULL, 0);
    assert_int_equal(tn_graph_wait(graph, tnt_deadline(50)), TN_ERR_TIMED_OUT);
    assert_true(seen.runs <= 1);
    for (int i = 0; i < 2; i++)
        tnt_signal(&gate);
    TN_CHECK_OK(tn_graph_wait(graph, tnt_deadline(20000)));
    assert_int_equal(seen.runs, 2);
    assert_int_equal(seen.held[1], 6);
    assert_int_equal(seen.slots[1], 3);
    TN_CHECK_OK(tn_graph_wait(other, tnt_deadline(20000)));
    tn_sched_close(sched);
    tnt_signal_close(&gate);
}

TN_TEST(a_task_that_writes_its_inputs_does_not_run_again)
{
    struct seen seen = {.failures = 1};
    const tn_variant variant = {.run = run_out, .request = "MEM=1.5"};
    tn_kind *kind;
    sched = open_releasing("CPU=1 MEM=4");
    tn_graph *graph = open_graph(sched);
    TN_CHECK_OK(tn_kind_create(sched,
                               TN_OPTIONS(tn_kind_options, .flags = TN_KIND_WRITES_INPUTS,
                                          .variants = &variant, .variant_count = 1),
                               &kind));
    add_task(graph, (tn_task){.kind = kind, .context = &seen}, NULL, 0);
    assert_int_equal(tn_graph_wait(graph, tnt_deadline(20000)), TN_ERR_NO_MEMORY);
    check_sentence("since it writes its inputs; in use: CPU 1 of 1, MEM 1.5 of 4");
    assert_int_equal(seen.runs, 1);
    assert_int_equal(seen.flags[0], TN_CALL_LAST);
    assert_int_equal(tn_kind_create(sched,
                                    TN_OPTIONS(tn_kind_options, .flags = 4,
                                               .variants = &variant, .variant_count = 1),
                                    &kind),
                     TN_ERR_INVALID);
    tn_sched_close(sched);
}
