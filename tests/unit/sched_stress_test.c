/* SPDX-License-Identifier: Apache-2.0 */
/* Several threads of a program make, run, cancel and close random graphs of one scheduler. */
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/harness.h"
#include "os/os.h"
#include "sched_threads_test.h"

enum { PROGRAMS = 3, GRAPHS = 40, MOST_TASKS = 60, CPUS = 3, SLOTS = 4, KINDS = 6, RING = 256 };

/* A task that pends waits here until another thread ends it. */
struct ending {
    tn_graph *graph;
    uint64_t task;
};

static struct {
    tn_sched *sched;
    tn_kind *kinds[KINDS];
    _Atomic int cpus, slots[SLOTS];
    _Atomic uint64_t begun, most_cpus;
    pthread_mutex_t lock; /* of the ring */
    struct ending ring[RING];
    uint32_t count;
    _Atomic bool is_over;
} world;

static void use_cpu(int change)
{
    int now = atomic_fetch_add(&world.cpus, change) + change;
    TN_CHECK(now <= CPUS);
}

static int run_plain(const tn_task_call *call)
{
    (void)call;
    use_cpu(1);
    atomic_fetch_add(&world.begun, 1);
    use_cpu(-1);
    return TN_TASK_DONE;
}

static int run_on_slots(const tn_task_call *call)
{
    uint32_t ids[SLOTS];
    (void)call;
    int count = tn_resource_id("GPU", ids, SLOTS);
    TN_CHECK(count == 1 || (count == 2 && ids[0] / 2 == ids[1] / 2));
    for (int i = 0; i < count; i++)
        TN_CHECK(atomic_fetch_add(&world.slots[ids[i]], 1) == 0);
    tn_task_set_bytes(ids[0]);
    atomic_fetch_add(&world.begun, 1);
    for (int i = 0; i < count; i++)
        atomic_fetch_sub(&world.slots[ids[i]], 1);
    return TN_TASK_DONE;
}

static int run_late(const tn_task_call *call)
{
    bool has_room;
    pthread_mutex_lock(&world.lock);
    has_room = world.count < RING;
    if (has_room)
        world.ring[world.count++] = (struct ending){call->graph, call->task};
    pthread_mutex_unlock(&world.lock);
    return has_room ? TN_TASK_PENDING : TN_TASK_DONE;
}

static int run_twice(const tn_task_call *call)
{
    return call->attempt < 2 ? TN_TASK_RETRY : TN_TASK_DONE;
}

static int run_and_secede(const tn_task_call *call)
{
    (void)call;
    use_cpu(1);
    use_cpu(-1);
    return tn_task_secede();
}

/* Ends what pends, in any order, so that every graph ends; half of it by a descriptor. */
static void *end_tasks(void *unused)
{
    unsigned seed = 7;
    int readable[2];
    (void)unused;
    TN_CHECK(pipe(readable) == 0 && write(readable[1], "x", 1) == 1);
    while (!atomic_load(&world.is_over)) {
        struct ending its = {NULL, 0};
        pthread_mutex_lock(&world.lock);
        if (world.count > 0) {
            uint32_t at = (uint32_t)rand_r(&seed) % world.count;
            its = world.ring[at];
            world.ring[at] = world.ring[--world.count];
        }
        pthread_mutex_unlock(&world.lock);
        if (its.graph == NULL)
            sched_yield();
        else if (rand_r(&seed) % 2 == 0)
            TN_CHECK_OK(tn_task_end(its.graph, its.task, 0));
        else
            TN_CHECK_OK(tn_task_end_on(its.graph, its.task, readable[0]));
    }
    close(readable[0]);
    close(readable[1]);
    return NULL;
}

static void add_random(tn_graph *graph, unsigned *seed, bool may_fail)
{
    uint32_t count = 1 + (uint32_t)rand_r(seed) % MOST_TASKS;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t inputs[3];
        uint32_t input_count = i > 0 ? (uint32_t)rand_r(seed) % 4 : 0;
        for (uint32_t j = 0; j < input_count; j++)
            inputs[j] = (uint32_t)rand_r(seed) % i;
        int kind = rand_r(seed) % (may_fail ? KINDS : KINDS - 1);
        (void)add_task(graph, (tn_task){.kind = world.kinds[kind]}, inputs, input_count);
    }
}

static void *be_a_program(void *argument)
{
    unsigned seed = *(unsigned *)argument;
    for (int i = 0; i < GRAPHS; i++) {
        tn_graph *graph;
        int how = rand_r(&seed) % 5;
        TN_CHECK_OK(tn_graph_create(world.sched, &graph));
        add_random(graph, &seed, how == 0);
        int status = 0;
        if (how == 1)
            status = tn_graph_run(graph, TN_FOREVER);
        else if (how == 2)
            TN_CHECK_OK(tn_graph_cancel(graph));
        else if (how != 3)
            status = tn_graph_wait(graph, TN_FOREVER);
        TN_CHECK(status == 0 || (how == 0 && status == TN_ERR_DENIED));
        tn_graph_close(graph); /* how == 3: while its tasks run */
    }
    return NULL;
}

TN_TEST_WITHIN(random_graphs_of_several_threads_all_end, 120)
{
    static const char *const requests[KINDS] = {NULL,      "CPU=0 GPU=1", "CPU=0 GPU=2",
                                                "GPU=0.5", NULL,          NULL};
    tn_task_fn *const runs[KINDS] = {run_plain, run_on_slots, run_on_slots,
                                     run_late,  run_twice,    fail_one};
    pthread_t programs[PROGRAMS], ender;
    unsigned seeds[PROGRAMS];
    pthread_mutex_init(&world.lock, NULL);
    world.sched = open_sched("CPU=3 GPU=((0,1),(2,3))");
    for (int i = 0; i < KINDS; i++)
        world.kinds[i] =
            add_kind(world.sched, i == 4 && tnt_random_below(2) == 0 ? run_and_secede : runs[i],
                     requests[i]);
    TN_CHECK(pthread_create(&ender, NULL, end_tasks, NULL) == 0);
    for (int i = 0; i < PROGRAMS; i++) {
        seeds[i] = (unsigned)tnt_random_below(UINT32_MAX);
        TN_CHECK(pthread_create(&programs[i], NULL, be_a_program, &seeds[i]) == 0);
    }
    for (int i = 0; i < PROGRAMS; i++)
        pthread_join(programs[i], NULL);
    atomic_store(&world.is_over, true);
    pthread_join(ender, NULL);
    assert_int_equal(world.cpus, 0);
    assert_int_equal(world.count, 0);
    tnt_note("%llu tasks of two kinds ran", (unsigned long long)atomic_load(&world.begun));
    tn_sched_close(world.sched);
}
