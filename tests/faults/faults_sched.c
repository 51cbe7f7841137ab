/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scheduler. Its threads are not traced: only system calls of the thread that calls fail,
 * and allocations of all threads.
 */
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "faults.h"

enum { LONG_MS = 20000, SHORT_MS = 2 };

static tn_sched *sched;
static tn_kind *kind, *pending, *on_gpu;
static tn_graph *graph;

static tn_deadline soon(void) { return tnt_deadline(LONG_MS); }

/* ---- tasks ------------------------------------------------------------------------------- */

static int do_nothing(const tn_task_call *call) { return (void)call, 0; }
static int pend(const tn_task_call *call) { return (void)call, TN_TASK_PENDING; }

static int make_kind(tn_sched *of, tn_task_fn *run, const char *request, tn_kind **ret_kind)
{
    const tn_variant variant = {.run = run, .request = request, .run_ns = 1000};
    return tn_kind_create(
        of, TN_OPTIONS(tn_kind_options, .variants = &variant, .variant_count = 1), ret_kind);
}

/* Two tasks, of which the second waits for the first. */
static int add(tn_graph *to, tn_kind *of, uint64_t *ret_first)
{
    const tn_task tasks[] = {{.kind = of}, {.kind = of}};
    const uint64_t ends[] = {0, 1}, inputs[] = {TN_TASK_OF_LIST(0)};
    return tn_graph_add(to,
                        TN_OPTIONS(tn_task_list, .tasks = tasks, .count = 2, .input_ends = ends,
                                   .inputs = inputs),
                        ret_first);
}

/* ---- schedulers -------------------------------------------------------------------------- */

static int create_with(uint32_t flags, tn_sched **ret_sched)
{
    return tn_sched_create(TN_OPTIONS(tn_sched_options,
                                      .resources = "CPU=2 MEM=16 GPU=((0,1),(2))",
                                      .memories = "GPU=1000", .flags = flags),
                           ret_sched);
}
static void make_with(uint32_t flags)
{
    TN_CHECK_OK(create_with(flags, &sched));
    TN_CHECK_OK(make_kind(sched, do_nothing, "CPU=1", &kind));
    TN_CHECK_OK(make_kind(sched, pend, "CPU=0 GPU=2", &pending));
    TN_CHECK_OK(make_kind(sched, do_nothing, "CPU=0 GPU=1", &on_gpu));
    TN_CHECK_OK(tn_graph_create(sched, &graph));
}
static void make(void) { make_with(0); }
static void end(void)
{
    sched = tn_sched_close(sched);
    graph = NULL;
}
#define WITH_SCHED .prepare = make, .finish = end

/* ---- worlds ------------------------------------------------------------------------------ */

static uint64_t tasks_of(tn_graph *of, bool that_pend)
{
    tn_graph_info info = {.struct_size = sizeof info};
    TN_CHECK_OK(tn_graph_get_info(of, &info));
    return that_pend ? info.pending : info.tasks;
}
static uint64_t tasks(void) { return graph == NULL ? 0 : tasks_of(graph, false); }

static void make_virtual(void) { make_with(TN_SCHED_VIRTUAL); }
static void make_virtual_tasks(void)
{
    make_virtual();
    TN_CHECK_OK(add(graph, kind, NULL));
}
static void make_tasks(void)
{
    make();
    TN_CHECK_OK(add(graph, kind, NULL));
}
static void make_idle_thread(void)
{
    make_tasks();
    TN_CHECK_OK(tn_graph_wait(graph, soon()));
}
static void make_pending(void)
{
    make();
    const tn_task task = {.kind = pending};
    TN_CHECK_OK(
        tn_graph_add(graph, TN_OPTIONS(tn_task_list, .tasks = &task, .count = 1), NULL));
    while (tasks_of(graph, true) == 0)
        sched_yield();
}
/* A close waits for the task, which is ended here if that was not done before. */
static void end_pending(void)
{
    if (tasks_of(graph, true) != 0)
        (void)!tn_task_end(graph, 0, 0); /* an error: its descriptor has ended it meanwhile */
    end();
}

/* What libc keeps for later threads, it has from here on: stacks; and one heap is enough. */
static void *be_one_of_many(void *barrier)
{
    pthread_barrier_wait(barrier);
    return NULL;
}
static void have_threads(void)
{
    enum { THREADS = 4 };
    pthread_t threads[THREADS];
    pthread_barrier_t barrier;
    TN_CHECK(mallopt(M_ARENA_MAX, 1) == 1);
    pthread_barrier_init(&barrier, NULL, THREADS);
    for (int i = 0; i < THREADS; i++)
        TN_CHECK(pthread_create(&threads[i], NULL, be_one_of_many, &barrier) == 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&barrier);
}

/* ---- schedulers -------------------------------------------------------------------------- */

static int create(void) { return create_with(0, FAULTS_OUT(tn_sched *)); }
static void close_out(void) { tn_sched_close(*FAULTS_OUT(tn_sched *)); }
static int close_it(void) { return end(), 0; }
static int get_info(void)
{
    tn_sched_info info = {.struct_size = sizeof info};
    return tn_sched_get_info(sched, &info);
}
FAULTS(tn_sched_create, .call = create, .undo = close_out)
static int create_shown(void)
{
    return tn_sched_create(TN_OPTIONS(tn_sched_options, .domain = faults_d, .name = "shown"),
                           FAULTS_OUT(tn_sched *));
}
FAULTS_WHEN(tn_sched_create, a_domain_shows_it, .prepare = faults_begin, .finish = faults_end,
            .call = create_shown, .undo = close_out)
FAULTS(tn_sched_close, .prepare = have_threads, .never_fails = true, .depends = true,
       .before = make_idle_thread, .call = close_it)
static int trace_fd;
static void make_traced(void)
{
    trace_fd = memfd_create("trace", 0);
    TN_CHECK(trace_fd >= 0);
    make_with(TN_SCHED_TRACE | TN_SCHED_VIRTUAL);
    TN_CHECK_OK(add(graph, kind, NULL));
    TN_CHECK_OK(tn_graph_run(graph, TN_FOREVER));
}
static void end_traced(void)
{
    end();
    close(trace_fd);
}
static int write_trace(void) { return tn_sched_write_trace(sched, trace_fd); }
FAULTS(tn_sched_write_trace, .prepare = make_traced, .finish = end_traced, .call = write_trace)
FAULTS(tn_sched_get_info, WITH_SCHED, .has_no_calls = true, .call = get_info)

static int create_kind(void)
{
    return make_kind(sched, do_nothing, "CPU=0 MEM=2 GPU=3", FAULTS_OUT(tn_kind *));
}
/* What kinds with the same requests share is kept for the next kind. */
FAULTS(tn_kind_create, .keeps_memory = true, .before = make, .undo = end, .call = create_kind)

/* ---- data -------------------------------------------------------------------------------- */

static tn_data *data;
static void *on_card;
static int copy_data(void *context, const tn_memory *from, const tn_memory *to)
{
    (void)context, (void)from;
    if (to->resource != NULL && on_card == NULL)
        on_card = malloc(1);
    return to->resource == NULL || on_card != NULL ? 0 : TN_ERR_NO_MEMORY;
}
static void drop_data(void *context, const tn_memory *memory)
{
    (void)context;
    if (memory->resource != NULL)
        free(on_card);
    on_card = NULL;
}
static int create_data(tn_data **ret_data)
{
    return tn_data_create(sched,
                          TN_OPTIONS(tn_data_options, .bytes = 1, .flags = TN_DATA_ON_HOST,
                                     .copy = copy_data, .drop = drop_data),
                          ret_data);
}
static int create_out_data(void) { return create_data(FAULTS_OUT(tn_data *)); }
static void close_out_data(void) { tn_data_close(*FAULTS_OUT(tn_data *)); }
static void make_data(void)
{
    make();
    TN_CHECK_OK(create_data(&data));
}
static int fetch_data(void) { return tn_data_fetch(data, TN_NOW); }
static int close_data(void) { return data = tn_data_close(data), 0; }
static int get_memory(void)
{
    tn_memory_info info = {.struct_size = sizeof info};
    return tn_memory_get_info(sched, &(tn_memory){.resource = "GPU", .slot = 1}, &info);
}
static int add_with_data(void)
{
    const tn_task with_data = {.kind = on_gpu};
    const tn_access access = {.data = data, .mode = TN_READ};
    const uint64_t access_end = 1;
    return tn_graph_add(graph,
                        TN_OPTIONS(tn_task_list, .tasks = &with_data, .count = 1,
                                   .access_ends = &access_end, .accesses = &access),
                        FAULTS_OUT(uint64_t));
}
static void wait_and_end_data(void)
{
    (void)!tn_graph_wait(graph, soon()); /* the copy may have failed */
    end();
}
FAULTS(tn_data_create, WITH_SCHED, .call = create_out_data, .undo = close_out_data)
FAULTS(tn_data_fetch, .has_no_calls = true, .before = make_data, .call = fetch_data,
       .undo = end)
FAULTS(tn_data_close, .never_fails = true, .has_no_calls = true, .before = make_data,
       .call = close_data, .undo = end)
/* ---- data with a tensor, on the host ----------------------------------------------------- */

static tn_tensor *tensor;
static void make_with_domain(void)
{
    faults_begin();
    TN_CHECK_OK(tn_sched_create(TN_OPTIONS(tn_sched_options, .resources = "CPU=2",
                                           .domain = faults_d, .name = "tensors"),
                                &sched));
    tensor = faults_tensor(64);
}
static void end_with_domain(void)
{
    sched = tn_sched_close(sched);
    tensor = tn_tensor_unref(tensor);
    faults_end();
}
static int create_from(tn_data **ret_data)
{
    return tn_data_create(sched, TN_OPTIONS(tn_data_options, .tensor = tensor), ret_data);
}
static int create_out_from(void) { return create_from(FAULTS_OUT(tn_data *)); }
static void make_from(void) { TN_CHECK_OK(create_from(&data)); }
static void close_from(void) { data = tn_data_close(data); }
static int get_tensor(void) { return tn_data_tensor(data) == tensor ? 0 : TN_ERR_CORRUPT; }
FAULTS_WHEN(tn_data_create, from_a_tensor, .prepare = make_with_domain,
            .finish = end_with_domain, .call = create_out_from, .undo = close_out_data)
FAULTS(tn_data_tensor, .never_fails = true, .has_no_calls = true, .prepare = make_with_domain,
       .finish = end_with_domain, .before = make_from, .call = get_tensor, .undo = close_from)

FAULTS(tn_memory_get_info, WITH_SCHED, .has_no_calls = true, .call = get_memory)
FAULTS_WHEN(tn_graph_add, with_data, .keeps_memory = true, .prepare = have_threads,
            .before = make_data, .measure = tasks, .call = add_with_data,
            .undo = wait_and_end_data)

/* ---- graphs ------------------------------------------------------------------------------ */

static int create_graph(void) { return tn_graph_create(sched, FAULTS_OUT(tn_graph *)); }
static void close_out_graph(void) { tn_graph_close(*FAULTS_OUT(tn_graph *)); }
FAULTS(tn_graph_create, WITH_SCHED, .call = create_graph, .undo = close_out_graph)

static int add_tasks(void) { return add(graph, kind, FAULTS_OUT(uint64_t)); }
/* Whatever failed, the tasks run. */
static void wait_and_end(void)
{
    TN_CHECK_OK(tn_graph_wait(graph, soon()));
    end();
}
/* Room for tasks is kept for the next list. */
FAULTS(tn_graph_add, .keeps_memory = true, .prepare = have_threads, .before = make,
       .measure = tasks, .call = add_tasks, .undo = wait_and_end)
FAULTS_WHEN(tn_graph_add, in_virtual_time, .keeps_memory = true, .before = make_virtual,
            .measure = tasks, .call = add_tasks, .undo = wait_and_end)

static int wait_soon(void) { return tn_graph_wait(graph, soon()); }
static int wait_late(void) { return tn_graph_wait(graph, tnt_deadline(SHORT_MS)); }
static int run_soon(void) { return tn_graph_run(graph, soon()); }
static int run_late(void) { return tn_graph_run(graph, tnt_deadline(SHORT_MS)); }
FAULTS(tn_graph_wait, .prepare = have_threads, .depends = true, .before = make_tasks,
       .call = wait_soon, .undo = end)
FAULTS_WHEN(tn_graph_wait, late, .prepare = have_threads, .expected = TN_ERR_TIMED_OUT,
            .before = make_pending, .call = wait_late, .undo = end_pending)
FAULTS_WHEN(tn_graph_wait, in_virtual_time, .keeps_memory = true, .before = make_virtual_tasks,
            .call = wait_soon, .undo = end)
/* A thread that begins frees what it was started with. */
FAULTS(tn_graph_run, .prepare = have_threads, .keeps_memory = true, .before = make_tasks,
       .call = run_soon, .undo = end)
FAULTS_WHEN(tn_graph_run, late, .prepare = have_threads, .expected = TN_ERR_TIMED_OUT,
            .before = make_pending, .call = run_late, .undo = end_pending)
FAULTS_WHEN(tn_graph_run, in_virtual_time, .keeps_memory = true, .before = make_virtual_tasks,
            .call = run_soon, .undo = end)

static int cancel(void) { return tn_graph_cancel(graph); }
static int close_graph(void) { return graph = tn_graph_close(graph), 0; }
FAULTS(tn_graph_cancel, .prepare = have_threads, .depends = true, .before = make_pending,
       .call = cancel, .undo = end_pending)
FAULTS(tn_graph_close, .prepare = have_threads, .never_fails = true, .depends = true,
       .before = make_tasks, .call = close_graph, .undo = end)

static int get_graph_info(void)
{
    tn_graph_info info = {.struct_size = sizeof info};
    return tn_graph_get_info(graph, &info);
}
FAULTS(tn_graph_get_info, .has_no_calls = true, .before = make_virtual_tasks,
       .call = get_graph_info, .undo = end)

/* ---- tasks ------------------------------------------------------------------------------- */

static int get_status(void) { return tn_task_get_status(graph, 0, NULL); }
static int end_task(void) { return tn_task_end(graph, 0, 0); }
FAULTS(tn_task_get_status, .has_no_calls = true, .expected = TN_ERR_TIMED_OUT,
       .before = make_virtual_tasks, .call = get_status, .undo = end)
FAULTS(tn_task_end, .prepare = have_threads, .depends = true, .before = make_pending,
       .call = end_task, .undo = end_pending)

static int ends[2];
static void make_pending_and_pipe(void)
{
    make_pending();
    TN_CHECK(pipe(ends) == 0);
}
static int end_task_on(void) { return tn_task_end_on(graph, 0, ends[0]); }
static void end_pending_and_pipe(void)
{
    close(ends[1]); /* this ends the task, if the call has not failed */
    close(ends[0]);
    end_pending();
}
FAULTS(tn_task_end_on, .prepare = have_threads, .depends = true,
       .before = make_pending_and_pipe, .call = end_task_on, .undo = end_pending_and_pipe)

/* Here, this thread runs no task. */
static int secede(void) { return tn_task_secede(); }
static int set_bytes(void) { return tn_task_set_bytes(1); }
static int get_slots(void) { return tn_resource_id("GPU", FAULTS_OUT(uint32_t), 1); }
FAULTS(tn_task_secede, .has_no_calls = true, .expected = TN_ERR_INVALID, .call = secede)
FAULTS(tn_task_set_bytes, .has_no_calls = true, .expected = TN_ERR_INVALID, .call = set_bytes)
FAULTS(tn_resource_id, .has_no_calls = true, .expected = TN_ERR_INVALID, .call = get_slots)

/* Both in a task. */
static int secede_in_a_task(const tn_task_call *call)
{
    uint32_t ids[3];
    (void)call;
    int count = tn_resource_id("GPU", ids, 3);
    if (count < 0)
        return count;
    return count == 2 ? tn_task_secede() : TN_ERR_CORRUPT;
}
/* A task that waits for others, for which there may be no thread. */
static int wait_in_a_task(const tn_task_call *call)
{
    tn_graph *inner;
    (void)call;
    int status = tn_graph_create(sched, &inner);
    if (status != 0)
        return status;
    status = add(inner, kind, NULL);
    if (status == 0)
        status = tn_graph_wait(inner, soon());
    tn_graph_close(inner);
    return status;
}
static tn_kind *acting;
static int act(int (*wait)(tn_graph *of, tn_deadline deadline))
{
    const tn_task task = {.kind = acting};
    tn_graph *outer;
    int status = tn_graph_create(sched, &outer);
    if (status != 0)
        return status;
    status = tn_graph_add(outer, TN_OPTIONS(tn_task_list, .tasks = &task, .count = 1), NULL);
    if (status == 0)
        status = wait(outer, soon());
    tn_graph_close(outer);
    return status;
}
static int act_here(void) { return act(tn_graph_run); }
static int act_in_a_thread(void) { return act(tn_graph_wait); }
static void make_seceding(void)
{
    make();
    TN_CHECK_OK(make_kind(sched, secede_in_a_task, "CPU=1 GPU=2", &acting));
}
static void make_waiting(void)
{
    make();
    TN_CHECK_OK(make_kind(sched, wait_in_a_task, "CPU=1", &acting));
}
/* A thread that was started stays. */
#define IN_A_TASK .prepare = have_threads, .keeps_memory = true, .undo = end
FAULTS_WHEN(tn_graph_run, of_a_task_that_secedes, IN_A_TASK, .before = make_seceding,
            .call = act_here)
FAULTS_WHEN(tn_graph_run, of_a_task_that_waits, IN_A_TASK, .before = make_waiting,
            .call = act_here)
FAULTS_WHEN(tn_graph_wait, for_a_task_that_waits, IN_A_TASK, .before = make_waiting,
            .call = act_in_a_thread)
