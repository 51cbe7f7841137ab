/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests of the scheduler in virtual time: how long graphs take beside a lower bound, groups,
 * affinity, waiting of wide tasks. A run is the same on every machine.
 */
#include <stdlib.h>
#include <string.h>

#include "harness/harness.h"
#include "sched_test.h"

#define MS UINT64_C(1000000)

enum { MOST_EVENTS = 4096 };

/* What ran, in the order of its end. */
static struct event {
    uint64_t task, began_ns, ended_ns;
    char kind[16], slots[32];
} events[MOST_EVENTS];
static uint32_t event_count;

static void remember(const tn_task_event *event, void *context)
{
    (void)context;
    assert_true(event_count < MOST_EVENTS);
    struct event *its = &events[event_count++];
    its->task = event->task;
    its->began_ns = event->began_ns;
    its->ended_ns = event->ended_ns;
    snprintf(its->kind, sizeof its->kind, "%s", event->kind);
    snprintf(its->slots, sizeof its->slots, "%s", event->slots);
}

static const struct event *find_event(uint64_t task)
{
    for (uint32_t i = 0; i < event_count; i++)
        if (events[i].task == task)
            return &events[i];
    fail_msg("task %llu did not run", (unsigned long long)task);
    return NULL;
}

static tn_sched *open_ordered(const char *resources, uint32_t order)
{
    tn_sched *sched;
    event_count = 0;
    TN_CHECK_OK(
        tn_sched_create(TN_OPTIONS(tn_sched_options, .resources = resources, .order = order,
                                   .flags = TN_SCHED_VIRTUAL, .trace = remember),
                        &sched));
    return sched;
}

static tn_sched *open_sched(const char *resources)
{
    return open_ordered(resources, TN_ORDER_AUTO);
}

static tn_kind *add_kind(tn_sched *sched, const char *name, const char *request,
                         uint64_t run_ns)
{
    tn_kind *kind;
    const tn_variant variant = {.request = request, .run_ns = run_ns};
    TN_CHECK_OK(tn_kind_create(
        sched,
        TN_OPTIONS(tn_kind_options, .name = name, .variants = &variant, .variant_count = 1),
        &kind));
    return kind;
}

static uint64_t run(tn_sched *sched, tn_graph *graph)
{
    tn_sched_info info = {.struct_size = sizeof info};
    TN_CHECK_OK(tn_graph_run(graph, TN_FOREVER));
    TN_CHECK_OK(tn_sched_get_info(sched, &info));
    for (uint32_t i = 0; i < info.resource_count; i++)
        assert_true(info.resources[i].free == info.resources[i].total);
    return info.now_ns;
}

/* ---- occupancy --------------------------------------------------------------------------- */

/* 40 tasks of one CPU and 10 of one GPU, 0.1 s each, on 4 CPUs and one GPU: 1 s if all overlap.
 */
static uint64_t run_40_and_10(bool gpu_first)
{
    tn_graph *graph;
    tn_sched *sched = open_sched("CPU=4 GPU=(0)");
    TN_CHECK_OK(tn_graph_create(sched, &graph));
    tn_kind *cpu = add_kind(sched, "cpu", NULL, 100 * MS);
    tn_kind *gpu = add_kind(sched, "gpu", "CPU=0 GPU=1", 100 * MS);
    for (int i = 0; i < 50; i++) {
        bool is_gpu = gpu_first ? i < 10 : i >= 40;
        (void)add_task(graph, (tn_task){.kind = is_gpu ? gpu : cpu}, NULL, 0);
    }
    uint64_t took_ns = run(sched, graph);
    tn_graph_close(graph);
    tn_sched_close(sched);
    return took_ns;
}

TN_TEST(cpu_and_gpu_tasks_overlap_in_any_order_of_arrival)
{
    assert_int_equal(run_40_and_10(false), 1000 * MS);
    assert_int_equal(run_40_and_10(true), 1000 * MS);
}

TN_TEST(the_stages_of_a_pipeline_overlap)
{
    tn_graph *graph;
    tn_sched *sched = open_sched("CPU=4 GPU=(0)");
    TN_CHECK_OK(tn_graph_create(sched, &graph));
    tn_kind *cpu = add_kind(sched, "cpu", NULL, 400 * MS);
    tn_kind *gpu = add_kind(sched, "gpu", "CPU=0 GPU=1", 100 * MS);
    for (int i = 0; i < 8; i++) {
        uint64_t first = add_task(graph, (tn_task){.kind = cpu}, NULL, 0);
        (void)add_task(graph, (tn_task){.kind = gpu}, &first, 1);
    }
    assert_int_equal(run(sched, graph), 1200 * MS);
    tn_sched_close(sched);
}

/* ---- random graphs beside a lower bound -------------------------------------------------- */

enum { TASKS = 200, KINDS = 4 };

/* The numbers of bench/sched.c, so that these are the graphs of its figure hybrid_makespan. */
static uint64_t random_state;
static uint64_t below(uint64_t limit)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (random_state >> 33) % limit;
}

/* The larger of the longest path, and the work of each resource through its amount. */
struct bound {
    uint64_t path_ns[TASKS];
    double work_ns[2]; /* CPU, GPU */
};

static double run_random(uint64_t seed)
{
    static const char *const requests[KINDS] = {NULL, "CPU=2", "CPU=0 GPU=1", "CPU=0 GPU=2"};
    static const double cpus[KINDS] = {1, 2, 0, 0}, gpus[KINDS] = {0, 0, 1, 2};
    tn_kind *kinds[KINDS];
    tn_task tasks[TASKS] = {{0}};
    uint64_t ends[TASKS], inputs[TASKS * 3], count = 0, longest = 0;
    struct bound bound = {0};
    random_state = seed;
    tn_graph *graph;
    tn_sched *sched = open_sched("CPU=8 GPU=((0,1),(2,3))");
    TN_CHECK_OK(tn_graph_create(sched, &graph));
    for (int k = 0; k < KINDS; k++)
        kinds[k] = add_kind(sched, "kind", requests[k], MS);
    for (uint64_t i = 0; i < TASKS; i++) {
        uint64_t k = below(8) < 5 ? 0 : 1 + below(KINDS - 1), from = 0;
        tasks[i] = (tn_task){.kind = kinds[k], .run_ns = (1 + below(20)) * MS};
        for (uint64_t j = below(3); i > 0 && j > 0; j--) {
            uint64_t input = i - 1 - below(i < 40 ? i : 40);
            inputs[count++] = TN_TASK_OF_LIST(input);
            from = bound.path_ns[input] > from ? bound.path_ns[input] : from;
        }
        ends[i] = count;
        bound.path_ns[i] = from + tasks[i].run_ns;
        longest = bound.path_ns[i] > longest ? bound.path_ns[i] : longest;
        bound.work_ns[0] += (double)tasks[i].run_ns * cpus[k] / 8;
        bound.work_ns[1] += (double)tasks[i].run_ns * gpus[k] / 4;
    }
    TN_CHECK_OK(tn_graph_add(graph,
                             TN_OPTIONS(tn_task_list, .tasks = tasks, .count = TASKS,
                                        .input_ends = ends, .inputs = inputs),
                             NULL));
    double least = (double)longest;
    for (int i = 0; i < 2; i++)
        least = bound.work_ns[i] > least ? bound.work_ns[i] : least;
    double ratio = (double)run(sched, graph) / least;
    for (uint64_t i = 0; i < TASKS; i++) /* no task begins before its inputs ended */
        for (uint64_t j = i > 0 ? ends[i - 1] : 0; j < ends[i]; j++)
            assert_true(find_event(i)->began_ns >=
                        find_event(inputs[j] & ~TN_TASK_OF_LIST(0))->ended_ns);
    tn_sched_close(sched);
    return ratio;
}

TN_TEST(random_graphs_take_little_more_than_their_lower_bound)
{
    enum { GRAPHS = 100 };
    double sum = 0, worst = 0;
    for (uint64_t seed = 0; seed < GRAPHS; seed++) {
        double ratio = run_random(seed);
        sum += ratio;
        worst = ratio > worst ? ratio : worst;
    }
    tnt_note("mean %.3f, worst %.3f", sum / GRAPHS, worst);
    assert_true(sum / GRAPHS <= 1.05);
    assert_true(worst <= 1.2);
}

/* ---- wide tasks -------------------------------------------------------------------------- */

/* ---- what if there were a thousand nodes ------------------------------------------------- */

enum { RACKS = 25, RACK = 40, NARROW = 3000, WIDE = 40 };

/* Tasks for one node, and now and then one for a rack. @return the makespan */
static uint64_t run_on_racks(uint64_t *ret_work_ns)
{
    static char resources[8192];
    static tn_task tasks[NARROW + WIDE];
    unsigned seed = 5;
    size_t used = (size_t)snprintf(resources, sizeof resources, "THREADS=4096 NODE=(");
    for (int i = 0; i < RACKS * RACK; i++)
        used += (size_t)snprintf(resources + used, sizeof resources - used, "%s%d%s",
                                 i % RACK == 0 ? "(" : "", i,
                                 i % RACK < RACK - 1    ? ","
                                 : i < RACKS * RACK - 1 ? "),"
                                                        : "))");
    tn_sched *sched = open_ordered(resources, TN_ORDER_DEPTH);
    tn_graph *graph;
    TN_CHECK_OK(tn_graph_create(sched, &graph));
    tn_kind *narrow = add_kind(sched, "narrow", "CPU=0 NODE=1", MS);
    tn_kind *wide = add_kind(sched, "wide", "CPU=0 NODE=40", 20 * MS);
    *ret_work_ns = 0;
    for (int i = 0; i < NARROW + WIDE; i++) {
        bool is_wide = i % ((NARROW + WIDE) / WIDE) == 0;
        tasks[i].kind = is_wide ? wide : narrow;
        tasks[i].run_ns = (is_wide ? 20 : 1 + (uint64_t)(rand_r(&seed) % 20)) * MS;
        *ret_work_ns += tasks[i].run_ns * (is_wide ? RACK : 1);
    }
    TN_CHECK_OK(tn_graph_add(
        graph, TN_OPTIONS(tn_task_list, .tasks = tasks, .count = NARROW + WIDE), NULL));
    uint64_t makespan_ns = run(sched, graph);
    tn_sched_close(sched);
    return makespan_ns;
}

TN_TEST(a_thousand_nodes_are_kept_busy_and_each_run_is_the_same)
{
    uint64_t work_ns, again_ns, makespan_ns = run_on_racks(&work_ns);
    tnt_note("%llu ns for work of %llu ns on 1000 nodes", (unsigned long long)makespan_ns,
             (unsigned long long)work_ns);
    assert_true(makespan_ns < 13 * (work_ns / (RACKS * RACK)) / 10);
    assert_true(run_on_racks(&again_ns) == makespan_ns && again_ns == work_ns);
}

TN_TEST(a_wide_task_begins_after_few_narrow_ones)
{
    enum { THIN = 400 };
    tn_graph *graph;
    tn_sched *sched = open_ordered("CPU=4 GPU=((0,1),(2,3))", TN_ORDER_DEPTH);
    TN_CHECK_OK(tn_graph_create(sched, &graph));
    tn_kind *narrow = add_kind(sched, "narrow", "CPU=0 GPU=1", 0);
    tn_kind *wide = add_kind(sched, "wide", "CPU=0 GPU=4", 10 * MS);
    /* Times that differ, so that the four slots are never free at once by chance. */
    for (uint64_t i = 0; i < 4; i++)
        (void)add_task(graph, (tn_task){.kind = narrow, .run_ns = (7 + 4 * i) * MS}, NULL, 0);
    uint64_t its = add_task(graph, (tn_task){.kind = wide, .priority = 0}, NULL, 0);
    for (uint64_t i = 0; i < THIN; i++)
        (void)add_task(graph, (tn_task){.kind = narrow, .run_ns = (7 + i % 13) * MS}, NULL, 0);
    (void)run(sched, graph);
    uint32_t before = 0;
    for (uint32_t i = 0; i < event_count; i++)
        before += events[i].task != its && events[i].began_ns < find_event(its)->began_ns;
    tnt_note("%u narrow tasks began before the wide one", before);
    assert_true(before <=
                4 + 8 + 4); /* the first four, `skips`, and those of its last moment */
    tn_sched_close(sched);
}

TN_TEST(a_short_task_fills_what_is_reserved_for_a_later_time)
{
    tn_graph *graph;
    tn_sched *sched;
    TN_CHECK_OK(tn_sched_create(TN_OPTIONS(tn_sched_options, .resources = "CPU=4", .skips = 1,
                                           .order = TN_ORDER_DEPTH, .flags = TN_SCHED_VIRTUAL,
                                           .trace = remember),
                                &sched));
    event_count = 0;
    TN_CHECK_OK(tn_graph_create(sched, &graph));
    tn_kind *one = add_kind(sched, "one", NULL, 0);
    tn_kind *all = add_kind(sched, "all", "CPU=4", 10 * MS);
    for (int i = 0; i < 3; i++)
        (void)add_task(graph, (tn_task){.kind = one, .run_ns = 100 * MS}, NULL, 0);
    uint64_t wide = add_task(graph, (tn_task){.kind = all}, NULL, 0);
    for (int i = 0; i < 20; i++)
        (void)add_task(graph, (tn_task){.kind = one, .run_ns = 10 * MS}, NULL, 0);
    (void)run(sched, graph);
    assert_int_equal(find_event(wide)->began_ns, 100 * MS);
    uint32_t before = 0;
    for (uint32_t i = 0; i < event_count; i++)
        before += events[i].began_ns < 100 * MS;
    assert_int_equal(before, 3 + 10); /* the fourth CPU was in use all the time */
    tn_sched_close(sched);
}

/* ---- traces ------------------------------------------------------------------------------ */

/* The context is the text that is expected. */
static void compare_slots(const tn_task_event *event, void *context)
{
    assert_string_equal(event->slots, context);
    event_count++;
}

TN_TEST(a_trace_names_every_slot_of_a_wide_task)
{
    enum { SLOTS = 300, FIRST_ID = 1000000000 };
    char machine[SLOTS * 16] = "GPU=(", slots[SLOTS * 16] = "GPU=";
    for (uint32_t i = 0, used = 5, len = 4; i < SLOTS; i++) {
        used += (uint32_t)sprintf(machine + used, "%s%u%s", i > 0 ? "," : "", FIRST_ID + i,
                                  i == SLOTS - 1 ? ")" : "");
        len += (uint32_t)sprintf(slots + len, "%s%u", i > 0 ? "," : "", FIRST_ID + i);
    }
    tn_graph *graph;
    tn_sched *sched;
    event_count = 0;
    TN_CHECK_OK(tn_sched_create(TN_OPTIONS(tn_sched_options, .resources = machine,
                                           .flags = TN_SCHED_VIRTUAL, .trace = compare_slots,
                                           .trace_context = slots),
                                &sched));
    TN_CHECK_OK(tn_graph_create(sched, &graph));
    tn_kind *wide = add_kind(sched, "wide", "CPU=0 GPU=300", 1);
    (void)add_task(graph, (tn_task){.kind = wide}, NULL, 0);
    (void)run(sched, graph);
    assert_int_equal(event_count, 1);
    tn_sched_close(sched);
}

/* ---- affinity ---------------------------------------------------------------------------- */

TN_TEST(a_task_begins_on_the_slot_of_its_largest_input)
{
    tn_graph *graph;
    tn_kind *use;
    tn_sched *sched = open_sched("CPU=4 GPU=(0,1,2,3)");
    TN_CHECK_OK(tn_graph_create(sched, &graph));
    tn_kind *make = add_kind(sched, "make", "CPU=0 GPU=1", 10 * MS);
    const tn_variant variant = {.request = "CPU=0 GPU=1", .run_ns = 5 * MS};
    TN_CHECK_OK(tn_kind_create(sched,
                               TN_OPTIONS(tn_kind_options, .name = "use", .variants = &variant,
                                          .variant_count = 1, .affinity = "GPU"),
                               &use));
    uint64_t made[4], used[4];
    for (uint64_t i = 0; i < 4; i++)
        made[i] = add_task(graph, (tn_task){.kind = make, .bytes = 100 * (i + 1)}, NULL, 0);
    for (uint64_t i = 0; i < 4; i++) {
        const uint64_t inputs[] = {made[i], made[(i + 1) % 4]};
        used[i] = add_task(graph, (tn_task){.kind = use}, inputs, 2);
    }
    (void)run(sched, graph);
    uint32_t same = 0;
    for (uint64_t i = 0; i < 4; i++) {
        uint64_t largest = i == 3 ? 3 : i + 1;
        same += strcmp(find_event(used[i])->slots, find_event(made[largest])->slots) == 0;
    }
    assert_int_equal(same, 4); /* two of them wait for one slot, as its input is worth it */
    tn_sched_close(sched);
}

/* ---- order of lists ---------------------------------------------------------------------- */

/* Task 2 leads the way to task 3; by depth, task 1 runs before it. */
static uint64_t run_first_of(uint64_t first_ns)
{
    tn_graph *graph;
    tn_sched *sched = open_sched("CPU=1");
    TN_CHECK_OK(tn_graph_create(sched, &graph));
    tn_kind *kind = add_kind(sched, "kind", NULL, 0);
    (void)add_task(graph, (tn_task){.kind = kind, .run_ns = first_ns}, NULL, 0);
    const tn_task tasks[] = {{.kind = kind, .run_ns = MS},
                             {.kind = kind, .run_ns = MS},
                             {.kind = kind, .run_ns = 9 * MS}};
    const uint64_t ends[] = {0, 0, 1}, inputs[] = {TN_TASK_OF_LIST(1)};
    TN_CHECK_OK(tn_graph_add(graph,
                             TN_OPTIONS(tn_task_list, .tasks = tasks, .count = 3,
                                        .input_ends = ends, .inputs = inputs),
                             NULL));
    (void)run(sched, graph);
    uint64_t first = find_event(1)->began_ns < find_event(2)->began_ns ? 1 : 2;
    tn_sched_close(sched);
    return first;
}

TN_TEST(all_lists_of_a_scheduler_have_the_order_of_the_first)
{
    assert_int_equal(run_first_of(MS), 2); /* by rank */
    assert_int_equal(run_first_of(0), 1);  /* by depth: a time was not known */
}

TN_TEST(virtual_time_does_not_wrap)
{
    enum { LONG_TASKS = 40 };
    tn_graph *graph;
    tn_sched *sched = open_sched("CPU=1");
    TN_CHECK_OK(tn_graph_create(sched, &graph));
    tn_kind *kind = add_kind(sched, "long", NULL, TN_RUN_NS_MAX);
    uint64_t last = 0;
    for (uint64_t i = 0; i < LONG_TASKS; i++)
        last = add_task(graph, (tn_task){.kind = kind}, &last, i > 0);
    assert_true(run(sched, graph) >= 15 * TN_RUN_NS_MAX);
    for (uint64_t i = 0; i < LONG_TASKS; i++)
        assert_true(find_event(i)->began_ns <= find_event(i)->ended_ns);
    const tn_task longer = {.kind = kind, .run_ns = TN_RUN_NS_MAX + 1};
    assert_int_equal(
        tn_graph_add(graph, TN_OPTIONS(tn_task_list, .tasks = &longer, .count = 1), NULL),
        TN_ERR_INVALID);
    const tn_variant variant = {.run_ns = TN_RUN_NS_MAX + 1};
    assert_int_equal(
        tn_kind_create(sched,
                       TN_OPTIONS(tn_kind_options, .variants = &variant, .variant_count = 1),
                       &kind),
        TN_ERR_INVALID);
    tn_sched_close(sched);
}

/* ---- variants ---------------------------------------------------------------------------- */

TN_TEST(a_variant_is_used_if_it_ends_before_the_better_one_could)
{
    tn_graph *graph;
    tn_kind *kind;
    tn_sched *sched = open_sched("CPU=2 GPU=(0)");
    const tn_variant variants[] = {{.request = "CPU=0 GPU=1", .run_ns = 10 * MS},
                                   {.request = "CPU=1", .run_ns = 50 * MS}};
    TN_CHECK_OK(tn_graph_create(sched, &graph));
    TN_CHECK_OK(tn_kind_create(
        sched, TN_OPTIONS(tn_kind_options, .variants = variants, .variant_count = 2), &kind));
    tn_task tasks[14];
    for (int i = 0; i < 14; i++)
        tasks[i] = (tn_task){.kind = kind};
    TN_CHECK_OK(
        tn_graph_add(graph, TN_OPTIONS(tn_task_list, .tasks = tasks, .count = 14), NULL));
    assert_int_equal(run(sched, graph), 100 * MS); /* ten on the GPU, four on the CPUs */
    tn_sched_close(sched);
}
