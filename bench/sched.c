/* SPDX-License-Identifier: Apache-2.0 */
/*
 * task_c, task_c_chain: an empty task of a million, from its submission to its end, with two
 * CPUs; the tasks wait for nothing, or each for the one before. Baseline: the least that a
 * scheduler has to do for a task, which is an indirect call and two atomic additions.
 * task_data: an empty task of 100,000 that reads one of 64 pieces of data, all of which fit on
 * its card; baseline: the same tasks without data.
 * task_process: an empty task of 100,000 that run in two worker processes of a pool; baseline:
 * the same jobs given to the pool without a scheduler.
 * hybrid_makespan: the end of 100 random graphs of tasks that need CPUs or slots of a GPU, in
 * virtual time; baseline: a lower bound, the larger of the longest path and of the work for
 * each resource. hybrid_makespan_worst: the worst of them. hybrid_makespan_40_10: 40 tasks of a
 * CPU and 10 of a GPU, each 0.1 s, on four CPUs and a GPU. hybrid_makespan_pipeline: 8 times a
 * task of 0.4 s for a CPU and one of 0.1 s for a GPU.
 */
#include <stdatomic.h>
#include <stdlib.h>

#include "bench.h"

enum { EMPTY = 1000000, JOBS = 100000, ROUNDS = 11 };

static const uint64_t ms = 1000000;

static int do_nothing(const tn_task_call *call)
{
    (void)call;
    return 0;
}

static tn_sched *open_sched(const char *resources, uint32_t flags)
{
    tn_sched *sched;
    bench_check(
        tn_sched_create(TN_OPTIONS(tn_sched_options, .resources = resources, .flags = flags),
                        &sched),
        "scheduler");
    return sched;
}

static tn_kind *add_kind(tn_sched *sched, const char *request)
{
    tn_kind *kind;
    const tn_variant variant = {.run = do_nothing, .request = request};
    bench_check(
        tn_kind_create(sched,
                       TN_OPTIONS(tn_kind_options, .variants = &variant, .variant_count = 1),
                       &kind),
        "kind");
    return kind;
}

/* ---- empty tasks ------------------------------------------------------------------------- */

static uint64_t ends[EMPTY], inputs[EMPTY];
static tn_task empty[EMPTY];

static double run_empty(bool is_chain)
{
    tn_sched *sched = open_sched("CPU=2", 0);
    tn_kind *kind = add_kind(sched, NULL);
    tn_graph *graph;
    for (uint64_t i = 0; i < EMPTY; i++) {
        empty[i].kind = kind;
        ends[i] = i;
        inputs[i] = TN_TASK_OF_LIST(i);
    }
    uint64_t since = bench_now_ns();
    bench_check(tn_graph_create(sched, &graph), "graph");
    bench_check(tn_graph_add(graph,
                             TN_OPTIONS(tn_task_list, .tasks = empty, .count = EMPTY,
                                        .input_ends = is_chain ? ends : NULL, .inputs = inputs),
                             NULL),
                "tasks");
    bench_check(tn_graph_run(graph, TN_FOREVER), "run");
    double took_ns = (double)(bench_now_ns() - since);
    tn_sched_close(sched);
    return took_ns / EMPTY;
}

static double call_only(void)
{
    static _Atomic uint64_t waiting_for, unended;
    tn_task_fn *volatile run = do_nothing;
    uint64_t since = bench_now_ns();
    for (uint64_t i = 0; i < EMPTY; i++) {
        const tn_task_call call = {.task = i};
        atomic_fetch_sub(&waiting_for, 1);
        (void)run(&call);
        atomic_fetch_sub(&unended, 1);
    }
    return (double)(bench_now_ns() - since) / EMPTY;
}

static void print_empty(void)
{
    struct bench_series wide = {0}, chain = {0}, least = {0};
    run_empty(false);
    for (int round = 0; round < ROUNDS; round++) {
        bench_add(&wide, run_empty(false));
        bench_add(&chain, run_empty(true));
        bench_add(&least, call_only());
    }
    bench_print("task_c", &wide, "us", &least, 1e-3);
    bench_print("task_c_chain", &chain, "us", &least, 1e-3);
}

/* ---- data -------------------------------------------------------------------------------- */

enum { PIECES = 64 };

static int copy_nothing(void *context, const tn_memory *from, const tn_memory *to)
{
    (void)context, (void)from, (void)to;
    return 0;
}

static void drop_nothing(void *context, const tn_memory *memory)
{
    (void)context, (void)memory;
}

static double run_with_data(bool has_data)
{
    static tn_access accesses[JOBS];
    tn_data *pieces[PIECES];
    tn_sched *sched;
    tn_graph *graph;
    bench_check(tn_sched_create(TN_OPTIONS(tn_sched_options, .resources = "CPU=2 GPU=((0,1))",
                                           .memories = "GPU=1000000"),
                                &sched),
                "scheduler");
    tn_kind *kind = add_kind(sched, "CPU=0 GPU=1");
    for (int i = 0; i < PIECES; i++)
        bench_check(
            tn_data_create(sched,
                           TN_OPTIONS(tn_data_options, .bytes = 1000, .flags = TN_DATA_ON_HOST,
                                      .copy = copy_nothing, .drop = drop_nothing),
                           &pieces[i]),
            "data");
    for (uint64_t i = 0; i < JOBS; i++) {
        empty[i].kind = kind;
        ends[i] = i + 1;
        accesses[i] = (tn_access){.data = pieces[i % PIECES], .mode = TN_READ};
    }
    uint64_t since = bench_now_ns();
    bench_check(tn_graph_create(sched, &graph), "graph");
    bench_check(
        tn_graph_add(graph,
                     TN_OPTIONS(tn_task_list, .tasks = empty, .count = JOBS,
                                .access_ends = has_data ? ends : NULL, .accesses = accesses),
                     NULL),
        "tasks");
    bench_check(tn_graph_wait(graph, TN_FOREVER), "wait");
    double took_ns = (double)(bench_now_ns() - since);
    tn_sched_close(sched);
    return took_ns / JOBS;
}

static void print_data(void)
{
    struct bench_series took = {0}, least = {0};
    run_with_data(true);
    for (int round = 0; round < ROUNDS; round++) {
        bench_add(&took, run_with_data(true));
        bench_add(&least, run_with_data(false));
    }
    bench_print("task_data", &took, "us", &least, 1e-3);
}

/* ---- worker processes -------------------------------------------------------------------- */

static int do_no_job(tn_domain *domain, const tn_pool_job *job, tn_message *ret_result,
                     void *context)
{
    (void)domain, (void)job, (void)ret_result, (void)context;
    return 0;
}

static double run_in_processes(tn_pool *pool)
{
    tn_sched *sched = open_sched("CPU=2", 0);
    tn_kind *kind;
    tn_graph *graph;
    const tn_variant variant = {.run = do_nothing};
    bench_check(tn_kind_create(sched,
                               TN_OPTIONS(tn_kind_options, .variants = &variant,
                                          .variant_count = 1, .pool = pool),
                               &kind),
                "kind");
    for (uint64_t i = 0; i < JOBS; i++)
        empty[i].kind = kind;
    uint64_t since = bench_now_ns();
    bench_check(tn_graph_create(sched, &graph), "graph");
    bench_check(
        tn_graph_add(graph, TN_OPTIONS(tn_task_list, .tasks = empty, .count = JOBS), NULL),
        "tasks");
    bench_check(tn_graph_wait(graph, TN_FOREVER), "wait");
    double took_ns = (double)(bench_now_ns() - since);
    tn_sched_close(sched);
    return took_ns / JOBS;
}

/* Keep as many jobs under way as the pool takes, which is 256. */
static double run_jobs(tn_pool *pool)
{
    tn_pool_result result = {.struct_size = sizeof result};
    uint64_t given = 0, since = bench_now_ns();
    for (uint64_t fetched = 0; fetched < JOBS; fetched++) {
        for (; given < JOBS && given < fetched + 256; given++)
            bench_check(tn_pool_submit(pool, NULL, 0, TN_FOREVER, NULL), "submit");
        bench_check(tn_pool_fetch(pool, TN_POOL_ANY_JOB, TN_FOREVER, &result), "fetch");
        tn_pool_result_fini(&result);
    }
    return (double)(bench_now_ns() - since) / JOBS;
}

static void print_processes(void)
{
    struct bench_series took = {0}, least = {0};
    tn_domain *domain;
    tn_pool *pool;
    bench_check(tn_domain_open(NULL, NULL, 0, &domain), "domain");
    bench_check(tn_pool_create(domain, TN_OPTIONS(tn_pool_options, .workers = 2), do_no_job,
                               NULL, &pool),
                "pool");
    run_in_processes(pool);
    for (int round = 0; round < ROUNDS; round++) {
        bench_add(&took, run_in_processes(pool));
        bench_add(&least, run_jobs(pool));
    }
    bench_print("task_process", &took, "us", &least, 1e-3);
    tn_pool_close(pool);
    tn_domain_close(domain);
}

/* ---- virtual time ------------------------------------------------------------------------ */

/* Run what is in the list. @return the virtual time at its end */
static double run_virtual(tn_sched *sched, const tn_task_list *list)
{
    tn_graph *graph;
    bench_check(tn_graph_create(sched, &graph), "graph");
    bench_check(tn_graph_add(graph, list, NULL), "tasks");
    bench_check(tn_graph_run(graph, TN_FOREVER), "run");
    tn_sched_info info = {.struct_size = sizeof info};
    bench_check(tn_sched_get_info(sched, &info), "info");
    tn_sched_close(sched);
    return (double)info.now_ns;
}

/* The same numbers in each run, so that figures can be compared. */
static uint64_t random_state;
static uint64_t below(uint64_t limit)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (random_state >> 33) % limit;
}

static double larger(double one, double other) { return one > other ? one : other; }

/* A graph of 200 tasks; a task waits for up to two of the 40 before it. */
static void run_random(struct bench_series *took, struct bench_series *least)
{
    enum { TASKS = 200, KINDS = 4, CPUS = 8, SLOTS = 4 };
    static const char *const requests[KINDS] = {NULL, "CPU=2", "CPU=0 GPU=1", "CPU=0 GPU=2"};
    static const double cpus[KINDS] = {1, 2, 0, 0}, slots[KINDS] = {0, 0, 1, 2};
    tn_sched *sched = open_sched("CPU=8 GPU=((0,1),(2,3))", TN_SCHED_VIRTUAL);
    tn_kind *kinds[KINDS];
    tn_task tasks[TASKS] = {{0}};
    double path_ns[TASKS], longest_ns = 0, cpu_ns = 0, slot_ns = 0;
    uint64_t count = 0;
    for (int k = 0; k < KINDS; k++)
        kinds[k] = add_kind(sched, requests[k]);
    for (uint64_t i = 0; i < TASKS; i++) {
        uint64_t k = below(8) < 5 ? 0 : 1 + below(KINDS - 1);
        tasks[i] = (tn_task){.kind = kinds[k], .run_ns = (1 + below(20)) * ms};
        path_ns[i] = 0;
        for (uint64_t j = below(3); i > 0 && j > 0; j--) {
            uint64_t input = i - 1 - below(i < 40 ? i : 40);
            inputs[count++] = TN_TASK_OF_LIST(input);
            path_ns[i] = larger(path_ns[i], path_ns[input]);
        }
        ends[i] = count;
        path_ns[i] += (double)tasks[i].run_ns;
        longest_ns = larger(longest_ns, path_ns[i]);
        cpu_ns += (double)tasks[i].run_ns * cpus[k] / CPUS;
        slot_ns += (double)tasks[i].run_ns * slots[k] / SLOTS;
    }
    bench_add(took, run_virtual(sched, TN_OPTIONS(tn_task_list, .tasks = tasks, .count = TASKS,
                                                  .input_ends = ends, .inputs = inputs)));
    bench_add(least, larger(longest_ns, larger(cpu_ns, slot_ns)));
}

static void print_random(void)
{
    enum { GRAPHS = 100 };
    struct bench_series took = {0}, least = {0};
    double sum = 0, worst = 0;
    for (uint64_t graph = 0; graph < GRAPHS; graph++) {
        random_state = graph;
        run_random(&took, &least);
        double ratio = took.value[graph] / least.value[graph];
        sum += ratio;
        worst = larger(worst, ratio);
    }
    bench_print_value("hybrid_makespan", sum / GRAPHS, "x", GRAPHS);
    bench_print_value("hybrid_makespan_worst", worst, "x", GRAPHS);
}

static void print_40_10(void)
{
    tn_sched *sched = open_sched("CPU=4 GPU=(0)", TN_SCHED_VIRTUAL);
    tn_kind *cpu = add_kind(sched, NULL), *gpu = add_kind(sched, "CPU=0 GPU=1");
    tn_task tasks[50];
    for (int i = 0; i < 50; i++)
        tasks[i] = (tn_task){.kind = i < 40 ? cpu : gpu, .run_ns = 100 * ms};
    double took_ns = run_virtual(sched, TN_OPTIONS(tn_task_list, .tasks = tasks, .count = 50));
    bench_print_value("hybrid_makespan_40_10", took_ns / (1000.0 * (double)ms), "x", 1);
}

static void print_pipeline(void)
{
    enum { LENGTH = 8 };
    tn_sched *sched = open_sched("CPU=4 GPU=(0)", TN_SCHED_VIRTUAL);
    tn_kind *cpu = add_kind(sched, NULL), *gpu = add_kind(sched, "CPU=0 GPU=1");
    tn_task tasks[2 * LENGTH];
    for (uint64_t i = 0; i < LENGTH; i++) {
        tasks[i] = (tn_task){.kind = cpu, .run_ns = 400 * ms};
        tasks[LENGTH + i] = (tn_task){.kind = gpu, .run_ns = 100 * ms};
        ends[i] = 0;
        ends[LENGTH + i] = i + 1;
        inputs[i] = TN_TASK_OF_LIST(i);
    }
    double took_ns = run_virtual(sched, TN_OPTIONS(tn_task_list, .tasks = tasks,
                                                   .count = UINT64_C(2) * LENGTH,
                                                   .input_ends = ends, .inputs = inputs));
    /* Two rounds on four CPUs; the GPU needs 0.4 s for the last four. */
    bench_print_value("hybrid_makespan_pipeline", took_ns / (1200.0 * (double)ms), "x", 1);
}

int main(void)
{
    print_empty();
    print_data();
    print_processes();
    print_random();
    print_40_10();
    print_pipeline();
    return 0;
}
