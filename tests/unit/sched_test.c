/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of the scheduler with threads. */
#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

#include "harness/harness.h"
#include "os/os.h"
#include "sched_threads_test.h"

/* ---- order ------------------------------------------------------------------------------- */

static int check_order(const tn_task_call *call)
{
    _Atomic uint64_t *done = call->context;
    TN_CHECK(atomic_load(done) == call->task);
    atomic_store(done, call->task + 1);
    return 0;
}

TN_TEST(a_chain_of_a_million_tasks_runs_in_its_order)
{
    enum { TASKS = 1000000 };
    _Atomic uint64_t done = 0;
    tn_sched *sched = open_sched("CPU=2");
    tn_graph *graph = open_graph(sched);
    tn_kind *kind = add_kind(sched, check_order, NULL);
    tn_task *tasks = calloc(TASKS, sizeof *tasks);
    uint64_t *ends = calloc(TASKS, sizeof *ends), *inputs = calloc(TASKS, sizeof *inputs);
    for (uint64_t i = 0; i < TASKS; i++) {
        tasks[i] = (tn_task){.kind = kind, .context = &done};
        ends[i] = i;
        inputs[i] = TN_TASK_OF_LIST(i);
    }
    TN_CHECK_OK(tn_graph_add(graph,
                             TN_OPTIONS(tn_task_list, .tasks = tasks, .count = TASKS,
                                        .input_ends = ends, .inputs = inputs),
                             NULL));
    TN_CHECK_OK(tn_graph_run(graph, TN_FOREVER));
    assert_true(done == TASKS);
    free(tasks);
    free(ends);
    free(inputs);
    tn_sched_close(sched);
}

/* Each task checks that its inputs have run. */
struct random_task {
    _Atomic bool has_run;
    struct random_task *inputs[3];
};

static int run_random_task(const tn_task_call *call)
{
    struct random_task *its = call->context;
    for (int i = 0; i < 3; i++)
        TN_CHECK(its->inputs[i] == NULL || atomic_load(&its->inputs[i]->has_run));
    TN_CHECK(!atomic_exchange(&its->has_run, true));
    return 0;
}

TN_TEST(tasks_of_random_graphs_run_once_and_after_their_inputs)
{
    enum { LISTS = 20, TASKS = 500, KINDS = 3 };
    static struct random_task all[LISTS * TASKS];
    static const char *const requests[KINDS] = {NULL, "CPU=0 GPU=1", "CPU=2"};
    tn_kind *kinds[KINDS];
    tn_sched *sched = open_sched("CPU=3 GPU=((0,1),(2))");
    tn_graph *graph = open_graph(sched);
    for (int i = 0; i < KINDS; i++)
        kinds[i] = add_kind(sched, run_random_task, requests[i]);
    for (uint64_t list = 0; list < LISTS; list++) {
        tn_task tasks[TASKS];
        uint64_t ends[TASKS], inputs[TASKS * 3], count = 0;
        for (uint64_t i = 0; i < TASKS; i++) {
            uint64_t id = list * TASKS + i;
            tasks[i] = (tn_task){.kind = kinds[tnt_random_below(KINDS)], .context = &all[id]};
            for (int j = 0; j < 3 && id > 0; j++) {
                uint64_t input = tnt_random_below(id);
                all[id].inputs[j] = &all[input];
                inputs[count++] =
                    input < list * TASKS ? input : TN_TASK_OF_LIST(input - list * TASKS);
            }
            ends[i] = count;
        }
        TN_CHECK_OK(tn_graph_add(graph,
                                 TN_OPTIONS(tn_task_list, .tasks = tasks, .count = TASKS,
                                            .input_ends = ends, .inputs = inputs),
                                 NULL));
    }
    TN_CHECK_OK(tn_graph_run(graph, TN_FOREVER));
    for (uint64_t i = 0; i < LISTS * TASKS; i++)
        assert_true(all[i].has_run);
    tn_graph_info info = {.struct_size = sizeof info};
    TN_CHECK_OK(tn_graph_get_info(graph, &info));
    assert_true(info.done == LISTS * TASKS);
    tn_sched_close(sched);
}

TN_TEST(a_circle_is_refused_and_the_graph_goes_on)
{
    _Atomic uint64_t count = 0;
    tn_sched *sched = open_sched("CPU=1");
    tn_graph *graph = open_graph(sched);
    tn_kind *kind = add_kind(sched, count_call, NULL);
    const tn_task tasks[] = {{.kind = kind, .context = &count},
                             {.kind = kind, .context = &count}};
    const uint64_t ends[] = {1, 2}, circle[] = {TN_TASK_OF_LIST(1), TN_TASK_OF_LIST(0)};
    tn_task_list list = {.struct_size = sizeof list,
                         .tasks = tasks,
                         .count = 2,
                         .input_ends = ends,
                         .inputs = circle};
    assert_int_equal(tn_graph_add(graph, &list, NULL), TN_ERR_INVALID);
    assert_non_null(strstr(tn_error_detail(), "circle"));
    const uint64_t missing[] = {7, TN_TASK_OF_LIST(0)};
    list.inputs = missing;
    assert_int_equal(tn_graph_add(graph, &list, NULL), TN_ERR_INVALID);
    assert_non_null(strstr(tn_error_detail(), "task 7 of the graph"));
    list.input_ends = NULL;
    TN_CHECK_OK(tn_graph_add(graph, &list, NULL));
    TN_CHECK_OK(tn_graph_run(graph, TN_FOREVER));
    assert_int_equal(count, 2);
    tn_sched_close(sched);
}

/* ---- resources --------------------------------------------------------------------------- */

struct use {
    _Atomic int slots[4], cpus, most_cpus;
};

static int use_slots(const tn_task_call *call)
{
    struct use *use = call->context;
    uint32_t ids[4];
    int count = tn_resource_id("GPU", ids, 4);
    TN_CHECK(count == 2 && ids[0] % 2 == 0 && ids[1] == ids[0] + 1);
    for (int i = 0; i < count; i++)
        TN_CHECK(atomic_fetch_add(&use->slots[ids[i]], 1) == 0);
    tni_os_yield();
    for (int i = 0; i < count; i++)
        atomic_fetch_sub(&use->slots[ids[i]], 1);
    TN_CHECK(tn_resource_id("CPU", ids, 4) == TN_ERR_INVALID);
    TN_CHECK(tn_resource_id("TPU", ids, 4) == TN_ERR_NOT_FOUND);
    return 0;
}

static int use_cpu(const tn_task_call *call)
{
    struct use *use = call->context;
    int now = atomic_fetch_add(&use->cpus, 1) + 1;
    TN_CHECK(now <= 2);
    tni_os_yield();
    atomic_fetch_sub(&use->cpus, 1);
    return 0;
}

TN_TEST(no_slot_and_no_cpu_is_used_twice_at_a_time)
{
    struct use use = {.cpus = 0};
    tn_sched *sched = open_sched("CPU=2 GPU=((0,1),(2,3))");
    tn_graph *graph = open_graph(sched);
    tn_kind *gpu = add_kind(sched, use_slots, "CPU=0 GPU=2");
    tn_kind *cpu = add_kind(sched, use_cpu, NULL);
    for (int i = 0; i < 2000; i++)
        (void)add_task(graph, (tn_task){.kind = i % 2 ? gpu : cpu, .context = &use}, NULL, 0);
    TN_CHECK_OK(tn_graph_wait(graph, TN_FOREVER));
    tn_sched_close(sched);
}

/* Tasks that meet: each waits until all have begun. */
struct meeting {
    _Atomic uint32_t count;
    uint32_t expected;
};

static int meet(const tn_task_call *call)
{
    struct meeting *meeting = call->context;
    if (atomic_fetch_add(&meeting->count, 1) + 1 == meeting->expected)
        tni_os_wake((_Atomic uint32_t *)&meeting->count, UINT32_MAX);
    for (uint32_t now; (now = atomic_load(&meeting->count)) < meeting->expected;)
        (void)tni_os_wait(&meeting->count, now, TNI_FOREVER);
    return 0;
}

TN_TEST(tasks_without_cpu_run_beside_those_that_have_all_cpus)
{
    struct meeting meeting = {.expected = 12};
    tn_sched *sched = open_sched("CPU=2");
    tn_graph *graph = open_graph(sched);
    tn_kind *with = add_kind(sched, meet, NULL), *without = add_kind(sched, meet, "CPU=0");
    for (int i = 0; i < 12; i++)
        (void)add_task(graph, (tn_task){.kind = i < 2 ? with : without, .context = &meeting},
                       NULL, 0);
    TN_CHECK_OK(tn_graph_run(graph, TN_FOREVER));
    tn_sched_close(sched);
}

/* Tasks that wait at a gate, and count how many do. */
struct beside {
    _Atomic uint32_t now, most;
    struct tnt_signal full, gate;
    uint32_t expected;
};

static int count_beside(const tn_task_call *call)
{
    struct beside *its = call->context;
    uint32_t now = atomic_fetch_add(&its->now, 1) + 1, most = atomic_load(&its->most);
    while (now > most && !atomic_compare_exchange_weak(&its->most, &most, now))
        ;
    if (now == its->expected)
        tnt_signal(&its->full);
    tnt_await(&its->gate);
    atomic_fetch_sub(&its->now, 1);
    return 0;
}

TN_TEST(so_many_tasks_without_a_cpu_run_at_a_time_as_threads_says)
{
    enum { TASKS = 30, THREADS = 5 };
    struct beside its = {
        .full = tnt_signal_open(), .gate = tnt_signal_open(), .expected = THREADS};
    _Atomic uint64_t count = 0;
    tn_sched *sched = open_sched("CPU=1 THREADS=5 GPU=(0,1,2,3,4,5,6,7)");
    tn_graph *graph = open_graph(sched), *other = open_graph(sched);
    tn_kind *kinds[] = {add_kind(sched, count_beside, "CPU=0"),
                        add_kind(sched, count_beside, "CPU=0 GPU=0.5")};
    for (int i = 0; i < TASKS; i++)
        (void)add_task(graph, (tn_task){.kind = kinds[i % 2], .context = &its}, NULL, 0);
    tnt_await(&its.full);
    /* A task with a CPU needs none of THREADS. */
    tn_kind *whole = add_kind(sched, count_call, NULL);
    (void)add_task(other, (tn_task){.kind = whole, .context = &count, .priority = -1}, NULL, 0);
    TN_CHECK_OK(tn_graph_wait(other, tnt_deadline(10000)));
    for (int i = 0; i < TASKS; i++)
        tnt_signal(&its.gate);
    TN_CHECK_OK(tn_graph_wait(graph, tnt_deadline(10000)));
    assert_int_equal(its.most, THREADS);
    tn_sched_close(sched);
    tnt_signal_close(&its.full);
    tnt_signal_close(&its.gate);
}

/* The first task waits until all others of its kind have begun. So far the kind took no time.
 */
struct gate {
    _Atomic int begun;
    int expected;
};

static int wait_at_gate(const tn_task_call *call)
{
    struct gate *gate = call->context;
    uint64_t end_ns = tni_os_now_ns() + 20 * (uint64_t)TN_SECOND;
    if (gate == NULL || atomic_fetch_add(&gate->begun, 1) > 0)
        return 0;
    while (atomic_load(&gate->begun) < gate->expected)
        if (tni_os_now_ns() >= end_ns)
            return TN_ERR_TIMED_OUT;
    return 0;
}

TN_TEST(tasks_do_not_wait_behind_one_that_takes_long)
{
    enum { TASKS = 300 };
    tn_sched *sched = open_sched("CPU=2");
    tn_graph *graph = open_graph(sched);
    tn_kind *kind = add_kind(sched, wait_at_gate, NULL);
    struct gate gate = {.expected = TASKS};
    for (int round = 0; round < 4; round++) { /* in the last, one task takes long */
        tn_task tasks[TASKS];
        for (int i = 0; i < TASKS; i++)
            tasks[i] = (tn_task){.kind = kind, .context = round == 3 ? &gate : NULL};
        TN_CHECK_OK(tn_graph_add(
            graph, TN_OPTIONS(tn_task_list, .tasks = tasks, .count = TASKS), NULL));
        TN_CHECK_OK(tn_graph_run(graph, TN_FOREVER));
    }
    tn_sched_close(sched);
}

/* Steps of tasks that wait for each other. */
struct steps {
    struct tnt_signal is_held, go, long_began, last_ran;
};

static int hold_the_first_cpu(const tn_task_call *call)
{
    struct steps *steps = call->context;
    tnt_signal(&steps->is_held);
    tnt_await(&steps->go);
    return 0;
}

static int hold_the_other_cpu(const tn_task_call *call)
{
    struct steps *steps = call->context;
    tnt_signal(&steps->is_held);
    tnt_await(&steps->long_began);
    return 0;
}

/* Tasks of one kind, which is short, but for one of them. */
enum part { PART_NONE, PART_FIRST, PART_LONG, PART_LAST };

struct role {
    struct steps *steps;
    enum part part;
};

static int play_a_part(const tn_task_call *call)
{
    const struct role *role = call->context;
    if (role == NULL)
        return 0;
    if (role->part == PART_LONG) {
        tnt_signal(&role->steps->long_began);
        tnt_await(&role->steps->last_ran);
    } else if (role->part == PART_LAST) {
        tnt_signal(&role->steps->last_ran);
    }
    return 0;
}

/* The first task makes the last one ready, in a turn in which a long one is next. */
TN_TEST(what_became_ready_does_not_wait_for_a_long_task)
{
    enum { TASKS = 16 }; /* enough that a turn takes several */
    struct steps steps = {tnt_signal_open(), tnt_signal_open(), tnt_signal_open(),
                          tnt_signal_open()};
    tn_sched *sched = open_sched("CPU=2");
    tn_kind *kind = add_kind(sched, play_a_part, NULL);
    tn_graph *known = open_graph(sched), *holders = open_graph(sched),
             *graph = open_graph(sched);
    for (int i = 0; i < 200; i++) /* it is known to be short */
        (void)add_task(known, (tn_task){.kind = kind}, NULL, 0);
    TN_CHECK_OK(tn_graph_wait(known, TN_FOREVER));
    tn_task_fn *const hold[] = {hold_the_first_cpu, hold_the_other_cpu};
    for (int i = 0; i < 2; i++) {
        tn_task holder = {.kind = add_kind(sched, hold[i], NULL), .context = &steps};
        (void)add_task(holders, holder, NULL, 0);
        tnt_await(&steps.is_held);
    }
    struct role roles[TASKS];
    tn_task tasks[TASKS];
    uint64_t ends[TASKS] = {0};
    const uint64_t inputs[] = {TN_TASK_OF_LIST(0)};
    for (int i = 0; i < TASKS; i++) {
        roles[i] = (struct role){&steps, i == 0           ? PART_FIRST
                                         : i == 1         ? PART_LONG
                                         : i == TASKS - 1 ? PART_LAST
                                                          : PART_NONE};
        tasks[i] = (tn_task){.kind = kind, .context = &roles[i], .priority = TASKS - i};
    }
    ends[TASKS - 1] = 1;
    TN_CHECK_OK(tn_graph_add(graph,
                             TN_OPTIONS(tn_task_list, .tasks = tasks, .count = TASKS,
                                        .input_ends = ends, .inputs = inputs),
                             NULL));
    tnt_signal(&steps.go);
    TN_CHECK_OK(tn_graph_wait(graph, tnt_deadline(10000)));
    TN_CHECK_OK(tn_graph_wait(holders, tnt_deadline(10000)));
    tn_sched_close(sched);
    tnt_signal_close(&steps.is_held);
    tnt_signal_close(&steps.go);
    tnt_signal_close(&steps.long_began);
    tnt_signal_close(&steps.last_ran);
}

static int secede_and_meet(const tn_task_call *call)
{
    TN_CHECK_OK(tn_task_secede());
    TN_CHECK_OK(tn_task_secede());
    return meet(call);
}

static void meet_after_secede(const char *request)
{
    enum { TASKS = 100 }; /* more than CPU and THREADS are */
    struct meeting meeting = {.expected = TASKS};
    tn_sched *sched = open_sched("CPU=1");
    tn_graph *graph = open_graph(sched);
    tn_kind *kind = add_kind(sched, secede_and_meet, request);
    assert_int_equal(tn_task_secede(), TN_ERR_INVALID);
    for (int i = 0; i < TASKS; i++)
        (void)add_task(graph, (tn_task){.kind = kind, .context = &meeting}, NULL, 0);
    TN_CHECK_OK(tn_graph_wait(graph, TN_FOREVER));
    tn_sched_close(sched);
}

TN_TEST(a_task_that_secedes_gives_its_cpu_to_another) { meet_after_secede(NULL); }
TN_TEST(a_task_without_cpu_that_secedes_gives_its_thread_back) { meet_after_secede("CPU=0"); }

/* Each of these adds another one, until the short task has begun. */
struct stream {
    tn_kind *kind;
    _Atomic bool is_over;
};

static int add_another(const tn_task_call *call)
{
    struct stream *stream = call->context;
    if (!atomic_load(&stream->is_over))
        (void)add_task(call->graph,
                       (tn_task){.kind = stream->kind, .context = stream, .run_ns = 1000000},
                       NULL, 0);
    return 0;
}

static int end_stream(const tn_task_call *call)
{
    struct stream *stream = call->context;
    atomic_store(&stream->is_over, true);
    return 0;
}

TN_TEST(a_stream_of_long_tasks_does_not_keep_a_short_one_waiting)
{
    struct stream stream = {0};
    tn_sched *sched = open_sched("CPU=1"); /* by rank, since all times are known */
    tn_graph *graph = open_graph(sched);
    tn_kind *ends = add_kind(sched, end_stream, NULL);
    stream.kind = add_kind(sched, add_another, NULL);
    const tn_task tasks[] = {
        {.kind = stream.kind, .context = &stream, .run_ns = 1000000},
        {.kind = stream.kind, .context = &stream, .run_ns = 1000000},
        {.kind = ends, .context = &stream, .run_ns = 1000},
    };
    TN_CHECK_OK(
        tn_graph_add(graph, TN_OPTIONS(tn_task_list, .tasks = tasks, .count = 3), NULL));
    int status = tn_graph_wait(graph, tnt_deadline(10000));
    atomic_store(&stream.is_over, true);
    TN_CHECK_OK(status);
    tn_sched_close(sched);
}

static int run_inner(const tn_task_call *call)
{
    tn_sched *sched = call->context;
    _Atomic uint64_t count = 0;
    tn_graph *graph = open_graph(sched);
    tn_kind *kind = add_kind(sched, count_call, NULL);
    for (int i = 0; i < 10; i++)
        (void)add_task(graph, (tn_task){.kind = kind, .context = &count}, NULL, 0);
    TN_CHECK_OK(tn_graph_run(graph, TN_FOREVER));
    TN_CHECK(count == 10);
    tn_graph_close(graph);
    return 0;
}

TN_TEST(a_task_may_run_a_graph_of_its_scheduler)
{
    tn_sched *sched = open_sched("CPU=1");
    tn_graph *graph = open_graph(sched);
    tn_kind *kind = add_kind(sched, run_inner, NULL);
    for (int i = 0; i < 8; i++)
        (void)add_task(graph, (tn_task){.kind = kind, .context = sched}, NULL, 0);
    TN_CHECK_OK(tn_graph_run(graph, TN_FOREVER));
    tn_sched_close(sched);
}

/* Narrow tasks count those that began before the wide one. */
struct overtaking {
    _Atomic uint64_t begun, before_wide;
};

static int be_narrow(const tn_task_call *call)
{
    struct overtaking *its = call->context;
    atomic_fetch_add(&its->begun, 1);
    tni_os_sleep_until(tni_os_now_ns() + 200 * 1000);
    return 0;
}

static int be_wide(const tn_task_call *call)
{
    struct overtaking *its = call->context;
    atomic_store(&its->before_wide, atomic_load(&its->begun));
    return 0;
}

TN_TEST(the_end_of_other_graphs_lets_nobody_overtake_a_wide_task)
{
    enum { NARROW = 2000 };
    struct overtaking its = {0};
    tn_sched *sched = open_sched("CPU=2");
    tn_kind *narrow = add_kind(sched, be_narrow, NULL),
            *wide = add_kind(sched, be_wide, "CPU=2");
    tn_graph *graph = open_graph(sched), *one = open_graph(sched);
    for (int i = 0; i < NARROW; i++)
        (void)add_task(graph, (tn_task){.kind = narrow, .context = &its}, NULL, 0);
    while (atomic_load(&its.begun) == 0)
        sched_yield();
    uint64_t before = atomic_load(&its.begun);
    (void)add_task(one, (tn_task){.kind = wide, .context = &its, .priority = 1}, NULL, 0);
    while (tn_graph_wait(one, TN_NOW) != 0)
        tn_graph_close(open_graph(sched));
    tnt_note("%llu narrow tasks began before the wide one",
             (unsigned long long)(its.before_wide - before));
    assert_true(its.before_wide - before < 100); /* 8, and what began meanwhile */
    TN_CHECK_OK(tn_graph_cancel(graph));
    tn_sched_close(sched);
}

/* ---- waiting for a better slot ----------------------------------------------------------- */

struct slots {
    struct tnt_signal began, go_on;
    uint32_t made, blocked, used;
};

static int make_input(const tn_task_call *call)
{
    struct slots *slots = call->context;
    return tn_resource_id("GPU", &slots->made, 1) == 1 ? 0 : TN_ERR_CORRUPT;
}

static int block_slot(const tn_task_call *call)
{
    struct slots *slots = call->context;
    TN_CHECK(tn_resource_id("GPU", &slots->blocked, 1) == 1);
    tnt_signal(&slots->began);
    tnt_await(&slots->go_on);
    return 0;
}

static int use_input(const tn_task_call *call)
{
    struct slots *slots = call->context;
    TN_CHECK(tn_resource_id("GPU", &slots->used, 1) == 1);
    tnt_signal(&slots->go_on);
    return 0;
}

TN_TEST(a_task_gives_up_a_slot_whose_task_takes_longer_than_expected)
{
    static tn_task_fn *const runs[] = {make_input, block_slot, use_input};
    struct slots slots = {.began = tnt_signal_open(), .go_on = tnt_signal_open()};
    tn_kind *kinds[3];
    tn_sched *sched = open_sched("CPU=1 GPU=(0,1)");
    tn_graph *graph = open_graph(sched);
    for (int i = 0; i < 3; i++) {
        const tn_variant variant = {.run = runs[i], .request = "CPU=0 GPU=1"};
        TN_CHECK_OK(tn_kind_create(sched,
                                   TN_OPTIONS(tn_kind_options, .variants = &variant,
                                              .variant_count = 1, .affinity = "GPU"),
                                   &kinds[i]));
    }
    uint64_t input = add_task(graph, (tn_task){.kind = kinds[0], .context = &slots}, NULL, 0);
    TN_CHECK_OK(tn_graph_wait(graph, TN_FOREVER));
    (void)add_task(
        graph, (tn_task){.kind = kinds[1], .context = &slots, .run_ns = 50 * TN_MILLISECOND},
        &input, 1);
    tnt_await(&slots.began);
    (void)add_task(
        graph, (tn_task){.kind = kinds[2], .context = &slots, .run_ns = 100 * TN_MILLISECOND},
        &input, 1);
    TN_CHECK_OK(tn_graph_wait(graph, TN_FOREVER));
    assert_int_equal(slots.blocked, slots.made);
    assert_int_not_equal(slots.used, slots.made);
    tn_sched_close(sched);
    tnt_signal_close(&slots.began);
    tnt_signal_close(&slots.go_on);
}

/* Each says how large its result is; `tn_task.bytes` says the opposite. */
static int make_of_some_size(const tn_task_call *call)
{
    struct slots *slots = call->context;
    uint32_t slot;
    TN_CHECK(tn_resource_id("GPU", &slot, 1) == 1);
    TN_CHECK_OK(tn_task_set_bytes(call->task == 0 ? 10 : 1000));
    if (call->task == 1)
        slots->made = slot;
    tnt_signal(&slots->began);
    tnt_await(&slots->go_on); /* so that each has a slot of its own */
    return 0;
}

TN_TEST(what_a_task_says_of_its_size_counts)
{
    struct slots slots = {.began = tnt_signal_open(), .go_on = tnt_signal_open()};
    tn_sched *sched = open_sched("CPU=1 GPU=(0,1)");
    tn_graph *graph = open_graph(sched);
    tn_kind *make = add_kind(sched, make_of_some_size, "CPU=0 GPU=1"), *use;
    const tn_variant variant = {.run = use_input, .request = "CPU=0 GPU=1"};
    TN_CHECK_OK(tn_kind_create(sched,
                               TN_OPTIONS(tn_kind_options, .variants = &variant,
                                          .variant_count = 1, .affinity = "GPU"),
                               &use));
    /* The times let the last task wait for its slot, if that is given back a moment later. */
    const tn_task user = {.kind = use, .context = &slots, .run_ns = 100 * TN_SECOND};
    uint64_t inputs[2];
    for (uint64_t i = 0; i < 2; i++) {
        tn_task maker = {.kind = make, .context = &slots, .run_ns = 10 * TN_SECOND};
        maker.bytes = 1000 - 990 * i;
        inputs[i] = add_task(graph, maker, NULL, 0);
    }
    (void)add_task(graph, user, inputs, 2);
    for (int i = 0; i < 2; i++)
        tnt_await(&slots.began);
    for (int i = 0; i < 2; i++)
        tnt_signal(&slots.go_on);
    TN_CHECK_OK(tn_graph_wait(graph, tnt_deadline(10000)));
    assert_int_equal(slots.used, slots.made);
    tn_sched_close(sched);
    tnt_signal_close(&slots.began);
    tnt_signal_close(&slots.go_on);
}

/* ---- a forked child ---------------------------------------------------------------------- */

static int close_in_child(void *argument)
{
    tn_sched *sched = argument;
    tn_graph *graph;
    assert_int_equal(tn_graph_create(sched, &graph), TN_ERR_FORKED);
    tn_sched_close(sched);
    return 0;
}

struct refused {
    tn_sched *sched;
    tn_kind *kind;
    atomic_bool has_ended;
};

/* From here on, this thread starts no other; that of the test does not either, as it is in no
 * call of the scheduler. */
static int wait_where_no_thread_starts(const tn_task_call *call)
{
    struct refused *its = call->context;
    tn_graph *graph = open_graph(its->sched);
    if (!tnt_refuse(SYS_clone3, EAGAIN) || !tnt_refuse(SYS_clone, EAGAIN)) {
        atomic_store(&its->has_ended, true);
        return TN_ERR_UNSUPPORTED;
    }
    (void)add_task(graph, (tn_task){.kind = its->kind}, NULL, 0);
    int status = tn_graph_wait(graph, tnt_deadline(10000));
    tn_graph_close(graph);
    atomic_store(&its->has_ended, true);
    return status;
}

TN_TEST(the_only_thread_does_not_wait_for_tasks_that_need_another)
{
    tn_sched *sched = open_sched("CPU=1 THREADS=1");
    tn_graph *graph = open_graph(sched);
    struct refused refused = {.sched = sched, .kind = add_kind(sched, count_call, NULL)};
    tn_kind *outer = add_kind(sched, wait_where_no_thread_starts, NULL);
    (void)add_task(graph, (tn_task){.kind = outer, .context = &refused}, NULL, 0);
    while (!atomic_load(&refused.has_ended))
        sched_yield();
    int status = tn_graph_wait(graph, TN_FOREVER);
    tn_sched_close(sched);
    if (status == TN_ERR_UNSUPPORTED)
        tnt_skip("no system call can be refused here");
    assert_int_equal(status, TN_ERR_SYSTEM);
}

static int call_in_child(void *argument)
{
    uint32_t slot;
    (void)argument;
    return tn_task_secede() == TN_ERR_FORKED && tn_task_set_bytes(1) == TN_ERR_FORKED &&
                   tn_resource_id("GPU", &slot, 1) == TN_ERR_FORKED
               ? 0
               : 1;
}

static int fork_in_task(const tn_task_call *call)
{
    uint32_t slot;
    (void)call;
    tnt_wait_ok(tnt_fork(call_in_child, NULL));
    return tn_resource_id("GPU", &slot, 1) == 1 ? TN_TASK_DONE : TN_ERR_CORRUPT;
}

TN_TEST(a_child_that_a_task_forks_runs_no_task)
{
    tn_sched *sched = open_sched("CPU=1 GPU=(3)");
    tn_graph *graph = open_graph(sched);
    tn_kind *kind = add_kind(sched, fork_in_task, "GPU=1");
    add_task(graph, (tn_task){.kind = kind}, NULL, 0);
    TN_CHECK_OK(tn_graph_run(graph, tnt_deadline(20000)));
    tn_sched_close(sched);
}

TN_TEST(a_forked_child_can_only_close_a_scheduler)
{
    _Atomic uint64_t count = 0;
    tn_sched *sched = open_sched("CPU=2");
    tn_graph *graph = open_graph(sched);
    tn_kind *kind = add_kind(sched, count_call, NULL);
    (void)add_task(graph, (tn_task){.kind = kind, .context = &count}, NULL, 0);
    TN_CHECK_OK(tn_graph_run(graph, TN_FOREVER));
    tnt_wait_ok(tnt_fork(close_in_child, sched));
    tn_sched_close(sched);
}

TN_TEST(an_option_that_is_out_of_range_is_refused)
{
    tn_sched *sched;
    tn_kind *kind;
    assert_int_equal(tn_sched_create(TN_OPTIONS(tn_sched_options, .order = 3), &sched),
                     TN_ERR_INVALID);
    assert_int_equal(tn_sched_create(TN_OPTIONS(tn_sched_options, .flags = 4), &sched),
                     TN_ERR_INVALID);
    assert_int_equal(tn_sched_create(TN_OPTIONS(tn_sched_options, .skew = -1), &sched),
                     TN_ERR_INVALID);
    sched = open_sched("CPU=1 GPU=(0) MEM=4");
    const tn_variant variant = {.run = fail_one, .request = "GPU=1 MEM=1"};
    tn_kind_options o = {
        .struct_size = sizeof o, .variants = &variant, .variant_count = 1, .affinity = "MEM"};
    assert_int_equal(tn_kind_create(sched, &o, &kind), TN_ERR_INVALID);
    o.affinity = "TPU";
    assert_int_equal(tn_kind_create(sched, &o, &kind), TN_ERR_INVALID);
    o.affinity = "GPU";
    o.variant_count = 5;
    assert_int_equal(tn_kind_create(sched, &o, &kind), TN_ERR_INVALID);
    o.variant_count = 1;
    TN_CHECK_OK(tn_kind_create(sched, &o, &kind));
    tn_sched_close(sched);
}
