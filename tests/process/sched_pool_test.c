/* SPDX-License-Identifier: Apache-2.0 */
/* Tasks that run in the worker processes of a pool. */
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "harness/tensor.h"
#include "process/pool_world.h"
#include "spawn/spawn.h"

/* What a task sends, and what it got back. */
struct deed {
    struct pool_order order;
    tn_tensor *tensor;  /* sent; borrowed */
    tn_tensor *made;    /* taken; owned */
    struct deed *input; /* whose `made` is sent; NULL: none */
    int32_t number;     /* of the result */
    int32_t pid;
    uint32_t fills, takes;
    int take_status;
    uint32_t slot;
    int wait_status; /* of a call in `fill` */
};

static tn_sched *sched;
static tn_graph *graph;

static int fill(const tn_task_call *call)
{
    struct deed *deed = call->context;
    deed->fills++;
    if (deed->input != NULL)
        deed->tensor = deed->input->made;
    (void)!tn_resource_id("GPU", &deed->slot, 1);
    call->job->bytes = &deed->order;
    call->job->size_bytes = sizeof deed->order;
    call->job->tensors = &deed->tensor;
    call->job->tensor_count = deed->tensor != NULL;
    return TN_TASK_DONE;
}

static _Atomic int32_t last_pid;
static _Atomic uint32_t kill_each, take_count,
    kills; /* kill_each: 0, or after so many results */

static int take(const tn_task_call *call, tn_pool_result *result)
{
    struct deed *deed = call->context;
    deed->takes++;
    deed->pid = result->pid;
    last_pid = result->pid;
    if (kill_each != 0 && ++take_count % kill_each == 0)
        kills += kill(result->pid, SIGKILL) == 0;
    if (result->message.size_bytes == sizeof deed->number)
        memcpy(&deed->number, result->message.bytes, sizeof deed->number);
    if (result->message.tensor_count == 1) {
        deed->made = result->message.tensors[0];
        result->message.tensors[0] = NULL;
    }
    return deed->take_status;
}

static void open_sched(const char *resources)
{
    TN_CHECK_OK(tn_sched_create(TN_OPTIONS(tn_sched_options, .resources = resources), &sched));
    TN_CHECK_OK(tn_graph_create(sched, &graph));
}

static int make_kind(tn_pool *pool, tn_task_fn *run, const char *request,
                     tn_task_take_fn *takes, tn_kind **ret_kind)
{
    const tn_variant variant = {.run = run, .request = request};
    return tn_kind_create(sched,
                          TN_OPTIONS(tn_kind_options, .name = "deed", .variants = &variant,
                                     .variant_count = 1, .pool = pool, .take = takes),
                          ret_kind);
}

static tn_kind *pool_kind(tn_pool *pool, tn_task_fn *run, const char *request)
{
    tn_kind *kind;
    TN_CHECK_OK(make_kind(pool, run, request, take, &kind));
    return kind;
}

static tn_kind *kind_of(struct pool_world *w, const char *request)
{
    return pool_kind(w->pool, fill, request);
}

static tn_kind *local_kind(tn_task_fn *run, const char *request)
{
    tn_kind *kind;
    TN_CHECK_OK(make_kind(NULL, run, request, NULL, &kind));
    return kind;
}

/* @param input  a task of the graph, or UINT64_MAX */
static uint64_t add(tn_kind *kind, struct deed *deed, uint64_t input)
{
    return pool_add_task(graph, kind, deed, input);
}

static void await_tasks(uint64_t running, uint64_t done)
{
    tn_graph_info info = {.struct_size = sizeof info};
    uint64_t until = tnt_until_ns(20000);
    do {
        assert_true(tnt_until_ns(0) < until);
        TN_CHECK_OK(tn_graph_get_info(graph, &info));
    } while (info.running < running || info.done < done);
}

static void await_running(void) { await_tasks(1, 0); }

static int wait_for_all(void) { return tn_graph_wait(graph, tnt_deadline(30000)); }

static void close_all(struct pool_world *w)
{
    sched = tn_sched_close(sched);
    pool_close_world(w);
}

TN_TEST(by_every_method_tasks_run_in_the_workers)
{
    enum { TASKS = 300 };
    for (uint32_t method = 0; method < POOL_METHODS; method++) {
        struct pool_world w = pool_open_by(method, 2);
        static struct deed deeds[TASKS];
        open_sched("CPU=2");
        tn_kind *kind = kind_of(&w, NULL);
        for (int32_t i = 0; i < TASKS; i++) {
            deeds[i] = (struct deed){.order = {ADD_ONE, i}};
            add(kind, &deeds[i], i % 3 == 0 ? UINT64_MAX : (uint64_t)i - 1);
        }
        TN_CHECK_OK(wait_for_all());
        for (int32_t i = 0; i < TASKS; i++) {
            assert_int_equal(deeds[i].number, i + 1);
            assert_int_equal(deeds[i].takes, 1);
            assert_int_not_equal(deeds[i].pid, getpid());
        }
        close_all(&w);
    }
}

TN_TEST(a_result_goes_on_to_the_next_worker_without_a_copy)
{
    struct pool_world w = pool_open_by(TN_START_FORK, 2);
    open_sched("CPU=2");
    tn_kind *kind = kind_of(&w, NULL);
    struct deed make = {.order = {MAKE_TENSOR, 21}}, twice = {.order = {DOUBLE_TENSOR, 0}},
                again = twice;
    twice.input = &make;
    again.input = &twice;
    add(kind, &again, add(kind, &twice, add(kind, &make, UINT64_MAX)));
    TN_CHECK_OK(wait_for_all());
    assert_true(tn_tensor_same_storage(make.made, twice.made));
    assert_true(tn_tensor_same_storage(make.made, again.made));
    assert_int_equal(((int32_t *)tn_tensor_data(again.made))[999], 21);
    tn_tensor_unref(make.made);
    tn_tensor_unref(twice.made);
    tn_tensor_unref(again.made);
    close_all(&w);
}

TN_TEST(the_task_of_a_killed_worker_runs_again)
{
    struct pool_world w = pool_open_by(TN_START_FORK, 2);
    open_sched("CPU=2");
    struct deed deed = {.order = {KILL_ITSELF, 2}};
    add(kind_of(&w, NULL), &deed, UINT64_MAX);
    TN_CHECK_OK(wait_for_all());
    assert_int_equal(deed.number, 3); /* the third attempt */
    assert_int_equal(deed.takes, 1);
    close_all(&w);
}

TN_TEST(every_task_has_one_result_while_workers_are_killed)
{
    enum { TASKS = 20000, EACH = 2500, LEAST_KILLS = 5 };
    static struct deed deeds[TASKS];
    tn_pool_options options = pool_options(2);
    options.attempts = 100;
    struct pool_world w = pool_open_world(options);
    int status;
    kill_each = EACH; /* and others at any time, as often as this process gets to it */
    kills = take_count = 0;
    open_sched("CPU=2");
    tn_kind *kind = kind_of(&w, NULL);
    for (int32_t i = 0; i < TASKS; i++) {
        deeds[i] = (struct deed){.order = {ADD_ONE, i}};
        add(kind, &deeds[i], i % 10 == 0 ? UINT64_MAX : (uint64_t)i - 1);
    }
    while ((status = tn_graph_wait(graph, tnt_deadline(2))) == TN_ERR_TIMED_OUT)
        if (last_pid != 0)
            kills += kill(last_pid, SIGKILL) == 0; /* its number is not another's so soon */
    assert_int_equal(status, 0);
    assert_true(kills >= LEAST_KILLS);
    for (int32_t i = 0; i < TASKS; i++) {
        assert_int_equal(deeds[i].number, i + 1);
        assert_int_equal(deeds[i].takes, 1);
    }
    last_pid = 0;
    kill_each = 0;
    close_all(&w);
}

#if defined(TN_KILL_POINTS)
void tni_kill_point_arm(const char *name, uint32_t passing);

/* Each worker dies when it passes the point for the second time. */
static void run_while_workers_die_at(const char *point)
{
    enum { TASKS = 40 };
    struct deed deeds[TASKS];
    tn_pool_options options = pool_options(2);
    options.attempts = 1000;
    tni_kill_point_arm(point, 2);
    struct pool_world w = pool_open_world(options);
    open_sched("CPU=2 GPU=(0,1)");
    tn_kind *kind = kind_of(&w, "CPU=0 GPU=1");
    for (int32_t i = 0; i < TASKS; i++) {
        deeds[i] = (struct deed){.order = {ADD_ONE, i}};
        add(kind, &deeds[i], i % 4 == 0 ? UINT64_MAX : (uint64_t)i - 1);
    }
    TN_CHECK_OK(wait_for_all());
    for (int32_t i = 0; i < TASKS; i++) {
        assert_int_equal(deeds[i].number, i + 1);
        assert_int_equal(deeds[i].takes, 1);
    }
    assert_true(tnt_pool_info(w.pool).restart_count >= TASKS / 4);
    tn_sched_info info = {.struct_size = sizeof info};
    do /* until the last grant was given back */
        TN_CHECK_OK(tn_sched_get_info(sched, &info));
    while (info.running > 0);
    for (uint32_t i = 0; i < info.resource_count; i++)
        assert_true(info.resources[i].free == info.resources[i].total);
    tni_kill_point_arm(NULL, 0);
    close_all(&w);
}

TN_TEST(workers_may_die_at_any_step_of_a_task)
{
    static const char *const points[] = {"pool_job_taken",     "pool_job_noted",
                                         "pool_result_pushed", "pool_job_acknowledged",
                                         "lease_recorded",     "ack_emptied"};
    for (size_t i = 0; i < TNI_COUNT(points); i++)
        run_while_workers_die_at(points[i]);
}
#endif

TN_TEST(a_task_that_kills_its_workers_fails_and_names_them)
{
    struct pool_world w = pool_open_by(TN_START_FORK, 2);
    open_sched("CPU=2");
    tn_kind *kind = kind_of(&w, NULL);
    struct deed deadly = {.order = {KILL_TOLD}}, after = {.order = {ADD_ONE, 1}},
                other = {.order = {ADD_ONE, 1}};
    uint64_t cause, first = add(kind, &deadly, UINT64_MAX), second = add(kind, &after, first);
    assert_int_equal(wait_for_all(), TN_ERR_CHILD_FAILED);
    char sentence[512];
    snprintf(sentence, sizeof sentence, "%s", tn_error_detail());
    pool_expect_detail(sentence, "task 0 (deed)");
    pool_expect_detail(sentence, "was started 3 times, and each worker ended: worker");
    char named[64];
    for (uint32_t i = 0; i < 3; i++) {
        snprintf(named, sizeof named, "process %d%c", pool_pop_pid(&w), i < 2 ? ';' : ',');
        pool_expect_detail(sentence, named);
    }
    assert_int_equal(tn_task_get_status(graph, second, &cause), TN_ERR_CHILD_FAILED);
    assert_int_equal(cause, first);
    assert_int_equal(after.fills, 0);
    add(kind, &other, UINT64_MAX); /* the scheduler and the pool go on */
    assert_int_equal(wait_for_all(), TN_ERR_CHILD_FAILED);
    assert_int_equal(other.number, 2);
    close_all(&w);
}

TN_TEST(a_status_of_the_job_function_ends_the_task)
{
    struct pool_world w = pool_open_by(TN_START_FORK, 1);
    open_sched("CPU=1");
    tn_kind *kind = kind_of(&w, NULL);
    struct deed failing = {.order = {FAIL_SAYING, 0}}, retried = {.order = {FAIL, 2}},
                pending = {.order = {FAIL, TN_TASK_PENDING}};
    uint64_t cause, first = add(kind, &failing, UINT64_MAX);
    assert_int_equal(wait_for_all(), TN_ERR_INVALID);
    pool_expect_detail(tn_error_detail(), "NULL");
    assert_int_equal(tn_task_get_status(graph, first, &cause), TN_ERR_INVALID);
    uint64_t second = add(kind, &retried, UINT64_MAX);
    uint64_t third = add(kind, &pending, UINT64_MAX);
    (void)!wait_for_all();
    assert_int_equal(tn_task_get_status(graph, second, &cause), TN_ERR_CHILD_FAILED);
    assert_int_equal(retried.fills, 3); /* TN_TASK_RETRY, three times */
    assert_int_equal(tn_task_get_status(graph, third, &cause), TN_ERR_INVALID);
    assert_int_equal(failing.takes + retried.takes + pending.takes, 0);
    close_all(&w);
}

TN_TEST(a_task_whose_memory_ran_out_in_a_worker_runs_again_alone)
{
    struct pool_world w = pool_open_by(TN_START_FORK, 1);
    open_sched("CPU=1 MEM=4");
    tn_kind *kind = kind_of(&w, "MEM=1");
    struct deed sent = {.order = {FAIL, TN_TASK_OOM}},
                taken = {.order = {ADD_ONE, 0}, .take_status = TN_TASK_OOM};
    uint64_t cause, first = add(kind, &sent, UINT64_MAX),
                    second = add(kind, &taken, UINT64_MAX);
    assert_int_equal(wait_for_all(), TN_ERR_NO_MEMORY);
    pool_expect_detail(tn_error_detail(), "MEM 4 of 4");
    assert_int_equal(tn_task_get_status(graph, first, &cause), TN_ERR_NO_MEMORY);
    assert_int_equal(tn_task_get_status(graph, second, &cause), TN_ERR_NO_MEMORY);
    assert_int_equal(sent.fills, 2);
    assert_int_equal(taken.takes, 2);
    close_all(&w);
}

TN_TEST(what_take_returns_ends_the_task)
{
    struct pool_world w = pool_open_by(TN_START_FORK, 1);
    open_sched("CPU=1");
    tn_kind *kind = kind_of(&w, NULL);
    struct deed failing = {.order = {ADD_ONE, 0}, .take_status = TN_ERR_DENIED},
                retried = {.order = {ADD_ONE, 0}, .take_status = TN_TASK_RETRY};
    uint64_t cause, first = add(kind, &failing, UINT64_MAX),
                    second = add(kind, &retried, UINT64_MAX);
    assert_true(wait_for_all() < 0);
    assert_int_equal(tn_task_get_status(graph, first, &cause), TN_ERR_DENIED);
    assert_int_equal(tn_task_get_status(graph, second, &cause), TN_ERR_CHILD_FAILED);
    assert_int_equal(failing.takes, 1);
    assert_int_equal(retried.takes, 3);
    close_all(&w);
}

static _Atomic uint32_t counted;
static int count(const tn_task_call *call)
{
    (void)call;
    atomic_fetch_add(&counted, 1);
    return TN_TASK_DONE;
}

TN_TEST(workers_and_threads_share_the_resources)
{
    struct pool_world w = pool_open_by(TN_START_FORK, 2);
    open_sched("CPU=2");
    tn_kind *kind = kind_of(&w, "CPU=2"), *local = local_kind(count, NULL);
    struct deed slow = {.order = {WAIT, 0}};
    add(kind, &slow, UINT64_MAX);
    await_running();
    counted = 0;
    add(local, NULL, UINT64_MAX);
    assert_int_equal(tn_graph_wait(graph, tnt_deadline(50)), TN_ERR_TIMED_OUT);
    assert_int_equal(counted, 0); /* the worker has both CPUs */
    TN_CHECK_OK(tn_event_set(w.go));
    TN_CHECK_OK(wait_for_all());
    assert_int_equal(counted, 1);
    close_all(&w);
}

static int wait_for_event(const tn_task_call *call)
{
    TN_CHECK_OK(tn_event_wait(call->context, tnt_deadline(20000)));
    return TN_TASK_DONE;
}

/* The thread of the first task has nothing else to do afterwards. */
TN_TEST(a_task_for_a_worker_begins_when_a_thread_gives_back_its_cpu)
{
    struct pool_world w = pool_open_by(TN_START_FORK, 1);
    open_sched("CPU=1");
    tn_kind *kind = kind_of(&w, NULL), *local = local_kind(wait_for_event, NULL);
    struct deed deed = {.order = {ADD_ONE, 1}};
    const tn_task task = {.kind = local, .context = w.go};
    TN_CHECK_OK(
        tn_graph_add(graph, TN_OPTIONS(tn_task_list, .tasks = &task, .count = 1), NULL));
    await_running();
    add(kind, &deed, UINT64_MAX);
    TN_CHECK_OK(tn_event_set(w.go));
    TN_CHECK_OK(wait_for_all());
    assert_int_equal(deed.number, 2);
    close_all(&w);
}

TN_TEST(short_tasks_that_share_no_cpu_alone_are_sent_one_by_one)
{
    struct pool_world w = pool_open_by(TN_START_FORK, 2);
    open_sched("CPU=2 MEM=1");
    tn_kind *kind = kind_of(&w, "CPU=1 MEM=1");
    static struct deed quick[200], slow[2];
    for (int32_t i = 0; i < 200; i++) { /* so that they are known to be short */
        quick[i] = (struct deed){.order = {ADD_ONE, i}};
        add(kind, &quick[i], UINT64_MAX);
    }
    TN_CHECK_OK(wait_for_all());
    slow[0] = slow[1] = (struct deed){.order = {WAIT, 0}};
    const tn_task tasks[] = {{.kind = kind, .context = &slow[0]},
                             {.kind = kind, .context = &slow[1]}};
    TN_CHECK_OK(
        tn_graph_add(graph, TN_OPTIONS(tn_task_list, .tasks = tasks, .count = 2), NULL));
    assert_int_equal(tn_graph_wait(graph, tnt_deadline(50)), TN_ERR_TIMED_OUT);
    assert_int_equal(slow[0].fills + slow[1].fills, 1); /* there is MEM for one */
    TN_CHECK_OK(tn_event_set(w.go));
    TN_CHECK_OK(wait_for_all());
    close_all(&w);
}

/* While one worker is busy for long, the thread that waits for its result takes new tasks. */
TN_TEST(a_task_that_comes_later_does_not_wait_for_a_result)
{
    struct pool_world w = pool_open_by(TN_START_FORK, 2);
    open_sched("CPU=2");
    tn_kind *kind = kind_of(&w, NULL);
    struct deed slow = {.order = {WAIT, 0}};
    add(kind, &slow, UINT64_MAX);
    for (int32_t i = 0; i < 5; i++) {
        /* Usually, the thread waits when the task comes. */
        assert_int_equal(tn_graph_wait(graph, tnt_deadline(5)), TN_ERR_TIMED_OUT);
        struct deed quick = {.order = {ADD_ONE, i}};
        uint64_t cause, task = add(kind, &quick, UINT64_MAX), until = tnt_until_ns(10000);
        while (tn_task_get_status(graph, task, &cause) == TN_ERR_TIMED_OUT)
            assert_true(tnt_until_ns(0) < until);
        assert_int_equal(quick.number, i + 1);
    }
    TN_CHECK_OK(tn_event_set(w.go));
    TN_CHECK_OK(wait_for_all());
    close_all(&w);
}

TN_TEST(a_task_knows_its_slots_where_its_job_is_made)
{
    struct pool_world w = pool_open_by(TN_START_FORK, 2);
    open_sched("CPU=2 GPU=(7)");
    tn_kind *kind = kind_of(&w, "GPU=1");
    struct deed deeds[10];
    for (int32_t i = 0; i < 10; i++) {
        deeds[i] = (struct deed){.order = {ADD_ONE, i}};
        add(kind, &deeds[i], UINT64_MAX);
    }
    TN_CHECK_OK(wait_for_all());
    for (int32_t i = 0; i < 10; i++)
        assert_int_equal(deeds[i].slot, 7);
    close_all(&w);
}

TN_TEST(a_cancelled_graph_sends_no_more_jobs)
{
    struct pool_world w = pool_open_by(TN_START_FORK, 1);
    open_sched("CPU=1");
    tn_kind *kind = kind_of(&w, "CPU=1");
    struct deed slow = {.order = {WAIT, 0}}, later = {.order = {ADD_ONE, 0}};
    add(kind, &slow, UINT64_MAX);
    await_running();
    add(kind, &later, UINT64_MAX);
    TN_CHECK_OK(tn_graph_cancel(graph));
    TN_CHECK_OK(tn_event_set(w.go));
    assert_int_equal(wait_for_all(), TN_ERR_INTERRUPTED);
    assert_int_equal(slow.takes, 1);
    assert_int_equal(later.takes, 0);
    close_all(&w);
}

TN_TEST(many_tensors_go_through_a_small_domain)
{
    enum { TASKS = 200, BYTES = 200000 };
    tn_pool_options options = pool_options(2);
    struct pool_world w = pool_open_world_in(pool_open_domain_of(4 << 20), options);
    static struct deed deeds[TASKS];
    open_sched("CPU=2");
    tn_kind *kind = kind_of(&w, NULL);
    for (int32_t i = 0; i < TASKS; i++) {
        deeds[i] = (struct deed){.order = {SEND_MUCH, BYTES}};
        add(kind, &deeds[i], UINT64_MAX);
    }
    TN_CHECK_OK(wait_for_all());
    for (int32_t i = 0; i < TASKS; i++)
        assert_int_equal(deeds[i].takes, 1);
    close_all(&w);
}

TN_TEST(a_pool_without_workers_fails_its_tasks)
{
    struct pool_world w = {.domain = pool_open_domain()};
    const char *const argv[] = {"/bin/false", NULL};
    tn_pool_options options = pool_options(2);
    options.start = TN_START_SPAWN;
    options.argv = argv;
    options.capacity = 4;
    w = pool_open_world_in(w.domain, options);
    static struct deed deeds[20];
    open_sched("CPU=2");
    tn_kind *kind = kind_of(&w, NULL);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 20; i++)
            add(kind, &deeds[i], UINT64_MAX);
        assert_int_equal(wait_for_all(), TN_ERR_CHILD_FAILED);
    }
    close_all(&w);
}

static int wait_in_fill(const tn_task_call *call)
{
    struct deed *deed = call->context;
    deed->wait_status = tn_graph_wait(graph, tnt_deadline(1000));
    assert_int_equal(tn_task_secede(), TN_ERR_INVALID);
    return fill(call);
}

TN_TEST(the_function_of_a_task_cannot_wait_for_a_graph)
{
    struct pool_world w = pool_open_by(TN_START_FORK, 1);
    open_sched("CPU=1");
    struct deed deed = {.order = {ADD_ONE, 0}};
    add(pool_kind(w.pool, wait_in_fill, NULL), &deed, UINT64_MAX);
    TN_CHECK_OK(wait_for_all());
    assert_int_equal(deed.wait_status, TN_ERR_INVALID);
    assert_int_equal(deed.number, 1);
    close_all(&w);
}

static int pend(const tn_task_call *call)
{
    struct deed *deed = call->context;
    deed->wait_status = tn_task_end(call->graph, call->task, 0);
    return TN_TASK_PENDING;
}

TN_TEST(a_task_of_a_pool_cannot_pend)
{
    struct pool_world w = pool_open_by(TN_START_FORK, 1);
    open_sched("CPU=1");
    struct deed deed = {.order = {ADD_ONE, 0}};
    add(pool_kind(w.pool, pend, NULL), &deed, UINT64_MAX);
    assert_int_equal(wait_for_all(), TN_ERR_INVALID);
    pool_expect_detail(tn_error_detail(), "the kind has a pool");
    assert_int_equal(deed.wait_status, TN_ERR_INVALID);
    close_all(&w);
}

TN_TEST(a_pool_belongs_to_one_scheduler)
{
    struct pool_world w = pool_open_by(TN_START_FORK, 1);
    tn_sched *other;
    tn_kind *kind;
    open_sched("CPU=1");
    kind_of(&w, NULL);
    kind_of(&w, "CPU=1");
    tn_sched *first = sched;
    TN_CHECK_OK(tn_sched_create(NULL, &other));
    sched = other;
    assert_int_equal(make_kind(w.pool, fill, NULL, take, &kind), TN_ERR_INVALID);
    tn_sched_close(first);
    TN_CHECK_OK(make_kind(w.pool, fill, NULL, take, &kind)); /* it was given back */
    assert_int_equal(make_kind(NULL, fill, NULL, take, &kind),
                     TN_ERR_INVALID); /* `take` alone */
    close_all(&w);
}

/* ---- tasks that secede ------------------------------------------------------------------- */

static const tn_resource_info *cpu_of(tn_sched_info *info)
{
    *info = (tn_sched_info){.struct_size = sizeof *info};
    TN_CHECK_OK(tn_sched_get_info(sched, info));
    for (uint32_t i = 0; i < info->resource_count; i++)
        if (strcmp(info->resources[i].name, "CPU") == 0)
            return &info->resources[i];
    return NULL;
}

static void await_free_cpus(double free)
{
    tn_sched_info info;
    uint64_t until = tnt_until_ns(10000);
    while (cpu_of(&info)->free != free)
        assert_true(tnt_until_ns(0) < until);
}

TN_TEST(by_every_method_a_task_that_secedes_lets_another_run)
{
    for (uint32_t method = 0; method < POOL_METHODS; method++) {
        struct pool_world w = pool_open_by(method, 1);
        open_sched("CPU=1");
        tn_kind *kind = kind_of(&w, NULL);
        struct deed waits = {.order = {SECEDE, 1}}, lets_go = {.order = {GO, 0}};
        add(kind, &waits, UINT64_MAX);
        add(kind, &lets_go, UINT64_MAX);
        TN_CHECK_OK(wait_for_all());
        assert_int_equal(waits.takes + lets_go.takes, 2);
        await_free_cpus(1);
        sched = tn_sched_close(sched); /* until then the pool is the scheduler's */
        assert_int_equal(tnt_pool_info(w.pool).worker_count, 2);
        close_all(&w);
    }
}

TN_TEST(a_full_pool_takes_a_job_when_a_task_has_seceded)
{
    tn_pool_options options = pool_options(1);
    options.capacity = 1;
    struct pool_world w = pool_open_world(options);
    open_sched("CPU=1");
    tn_kind *kind = kind_of(&w, NULL);
    struct deed waits = {.order = {SECEDE, 1}}, lets_go = {.order = {GO, 0}};
    add(kind, &waits, UINT64_MAX);
    add(kind, &lets_go, UINT64_MAX);
    TN_CHECK_OK(wait_for_all());
    close_all(&w);
}

static int set_event(const tn_task_call *call)
{
    TN_CHECK_OK(tn_event_set(call->context));
    return TN_TASK_DONE;
}

static void add_local(tn_task_fn *run, tn_event *event)
{
    const tn_task task = {.kind = local_kind(run, NULL), .context = event};
    TN_CHECK_OK(
        tn_graph_add(graph, TN_OPTIONS(tn_task_list, .tasks = &task, .count = 1), NULL));
}

TN_TEST(a_task_in_a_thread_has_the_cpu_that_a_worker_gave_back)
{
    struct pool_world w = pool_open_by(TN_START_FORK, 1);
    open_sched("CPU=1");
    struct deed waits = {.order = {SECEDE, 1}};
    add(kind_of(&w, NULL), &waits, UINT64_MAX);
    pool_pop_pid(&w);
    add_local(set_event, w.go);
    TN_CHECK_OK(wait_for_all());
    close_all(&w);
}

/* Also from a worker that is killed then. */
static void await_seceded(struct pool_world *w)
{
    tn_message message;
    int status;
    while ((status = tn_queue_pop(w->pids, tnt_deadline(20000), &message)) ==
           TN_ERR_PEER_DIED) {
    }
    TN_CHECK_OK(status);
    tn_message_fini(&message);
}

/* One task has seceded, and another has the only CPU: a third must not begin. */
static void expect_no_other_cpu(struct pool_world *w, struct deed *deed, uint32_t attempts)
{
    tn_event *stop;
    TN_CHECK_OK(tn_event_open(w->domain, "stop", TN_OPEN_NEW, &stop));
    open_sched("CPU=1");
    add(kind_of(w, NULL), deed, UINT64_MAX);
    await_running(); /* else the next task might have the CPU first */
    add_local(wait_for_event, stop);
    for (uint32_t i = 0; i < attempts; i++)
        await_seceded(w);
    await_tasks(2, 0);
    counted = 0;
    add_local(count, NULL);
    assert_int_equal(tn_graph_wait(graph, tnt_deadline(100)), TN_ERR_TIMED_OUT);
    tn_sched_info info;
    assert_true(cpu_of(&info)->free == 0);
    assert_int_equal(counted, 0);
    TN_CHECK_OK(tn_event_set(w->go)); /* ends the task that seceded, which has no CPU to give */
    await_tasks(0, 1);
    assert_int_equal(tn_graph_wait(graph, tnt_deadline(100)), TN_ERR_TIMED_OUT);
    assert_int_equal(deed->takes, 1);
    assert_int_equal(counted, 0);
    TN_CHECK_OK(tn_event_set(stop));
    TN_CHECK_OK(wait_for_all());
    assert_int_equal(counted, 1);
    await_free_cpus(1);
    tn_object_close(stop);
}

TN_TEST(a_task_that_secedes_twice_gives_its_cpu_back_once)
{
    struct pool_world w = pool_open_by(TN_START_FORK, 1);
    struct deed deed = {.order = {SECEDE, 3}};
    expect_no_other_cpu(&w, &deed, 1);
    close_all(&w);
}

TN_TEST(a_worker_killed_after_its_task_seceded_gives_no_cpu_twice)
{
    struct pool_world w = pool_open_by(TN_START_FORK, 1);
    struct deed deed = {.order = {SECEDE_DYING, 1}};
    expect_no_other_cpu(&w, &deed, 2);
    close_all(&w);
}

#if defined(TN_KILL_POINTS)
/* The worker has told that the task has seceded, and that is all that it did. */
TN_TEST(a_worker_may_die_when_it_has_told_that_its_task_seceded)
{
    tni_kill_point_arm("pool_job_seceded", 1);
    struct pool_world w = pool_open_by(TN_START_FORK, 1);
    tni_kill_point_arm(NULL, 0); /* the workers after the first do not die */
    struct deed deed = {.order = {SECEDE, 1}};
    expect_no_other_cpu(&w, &deed, 1);
    sched = tn_sched_close(sched);
    assert_true(tnt_pool_info(w.pool).restart_count >= 1);
    close_all(&w);
}
#endif

TN_TEST(a_short_task_that_secedes_keeps_no_cpu_from_those_beside_it)
{
    struct pool_world w = pool_open_by(TN_START_FORK, 1);
    open_sched("CPU=1");
    tn_kind *kind = kind_of(&w, NULL);
    static struct deed quick[200];
    for (int32_t i = 0; i < 200; i++) { /* so that tasks of the kind share a CPU */
        quick[i] = (struct deed){.order = {ADD_ONE, i}};
        add(kind, &quick[i], UINT64_MAX);
    }
    TN_CHECK_OK(wait_for_all());
    struct deed deeds[] = {{.order = {ADD_ONE, 0}},
                           {.order = {SECEDE, 1}},
                           {.order = {ADD_ONE, 0}},
                           {.order = {SECEDE, 1}},
                           {.order = {GO, 0}}};
    tn_task tasks[TNI_COUNT(deeds)];
    for (size_t i = 0; i < TNI_COUNT(deeds); i++)
        tasks[i] = (tn_task){.kind = kind, .context = &deeds[i]};
    TN_CHECK_OK(tn_graph_add(
        graph, TN_OPTIONS(tn_task_list, .tasks = tasks, .count = TNI_COUNT(tasks)), NULL));
    TN_CHECK_OK(wait_for_all());
    for (size_t i = 0; i < TNI_COUNT(deeds); i++)
        assert_int_equal(deeds[i].takes, 1);
    await_free_cpus(1);
    close_all(&w);
}

TN_TEST(a_pool_has_a_worker_for_each_task_that_has_seceded)
{
    enum { TASKS = 12 };
    struct pool_world w = pool_open_by(TN_START_FORK, 1);
    open_sched("CPU=1");
    tn_kind *kind = kind_of(&w, NULL);
    struct deed deeds[TASKS], more = {.order = {ADD_ONE, 1}};
    for (int32_t i = 0; i < TASKS; i++) {
        deeds[i] = (struct deed){.order = {SECEDE, 1}};
        add(kind, &deeds[i], UINT64_MAX);
    }
    for (int32_t i = 0; i < TASKS; i++)
        pool_pop_pid(&w); /* all wait at the same time */
    add(kind, &more, UINT64_MAX);
    await_tasks(0, 1);
    TN_CHECK_OK(tn_event_set(w.go));
    TN_CHECK_OK(wait_for_all());
    assert_int_equal(more.number, 2);
    await_free_cpus(1);
    sched = tn_sched_close(sched);
    assert_int_equal(tnt_pool_info(w.pool).worker_count, TASKS + 1);
    close_all(&w);
}

TN_TEST(a_job_without_a_scheduler_may_secede)
{
    struct pool_world w = pool_open_by(TN_START_FORK, 1);
    pool_submit(&w, SECEDE, 2);
    pool_pop_pid(&w);
    TN_CHECK_OK(tn_event_set(w.go));
    tn_pool_result result = pool_next(&w);
    assert_int_equal(result.status, 0);
    tn_pool_result_fini(&result);
    assert_int_equal(tnt_pool_info(w.pool).worker_count, 1);
    pool_close_world(&w);
}

/* ---- everything at once ------------------------------------------------------------------ */

enum { MIXED = 2000, MIXED_KINDS = 5 };

static int do_it_here(const tn_task_call *call)
{
    struct deed *deed = call->context;
    deed->number = deed->order.number + 1;
    return deed->order.deed == FAIL && deed->fills++ == 0 ? TN_TASK_OOM : TN_TASK_DONE;
}

static void make_mixed_kinds(struct pool_world *w, tn_pool *other, tn_kind **kinds)
{
    kinds[0] = kind_of(w, NULL);
    kinds[1] = kind_of(w, "CPU=1 MEM=3");
    kinds[2] = pool_kind(other, fill, "CPU=0 GPU=1");
    kinds[3] = local_kind(do_it_here, NULL);
    kinds[4] = local_kind(do_it_here, "GPU=0.5 MEM=1");
}

static struct pool_order random_order(int32_t number)
{
    uint64_t chance = tnt_random_below(200);
    if (chance == 0)
        return (struct pool_order){KILL_ITSELF, 1};
    if (chance < 4)
        return (struct pool_order){FAIL, chance == 1 ? TN_TASK_RETRY : TN_TASK_OOM};
    return (struct pool_order){ADD_ONE, number};
}

/* Nothing is left that could wake up a thread which was not called when it should have been. */
TN_TEST(mixed_graphs_over_threads_and_two_pools_end)
{
    struct pool_world w = pool_open_by(TN_START_FORK, 1);
    tn_pool_options options = pool_options(2);
    options.capacity = 2;
    tn_pool *other = pool_open(w.domain, &options);
    for (int round = 0; round < 6; round++) {
        static struct deed deeds[MIXED];
        static tn_task tasks[MIXED];
        static uint64_t ends[MIXED], inputs[2 * MIXED];
        uint64_t count = 0;
        tn_kind *kinds[MIXED_KINDS];
        open_sched("CPU=3 MEM=10 GPU=((0,1),(2,3))");
        make_mixed_kinds(&w, other, kinds);
        for (int32_t i = 0; i < MIXED; i++) {
            deeds[i] = (struct deed){.order = random_order(i)};
            tasks[i] = (tn_task){.kind = kinds[tnt_random_below(MIXED_KINDS)],
                                 .context = &deeds[i],
                                 .priority = (int32_t)tnt_random_below(3)};
            for (uint64_t j = tnt_random_below(3); i > 0 && j > 0; j--)
                inputs[count++] = TN_TASK_OF_LIST(tnt_random_below((uint64_t)i));
            ends[i] = count;
        }
        TN_CHECK_OK(tn_graph_add(graph,
                                 TN_OPTIONS(tn_task_list, .tasks = tasks, .count = MIXED,
                                            .input_ends = ends, .inputs = inputs),
                                 NULL));
        assert_int_not_equal(wait_for_all(), TN_ERR_TIMED_OUT);
        tn_graph_info info = {.struct_size = sizeof info};
        TN_CHECK_OK(tn_graph_get_info(graph, &info));
        assert_int_equal(info.done + info.failed, MIXED);
        for (int32_t i = 0; i < MIXED; i++)
            if (tn_task_get_status(graph, (uint64_t)i, NULL) == 0 &&
                deeds[i].order.deed == ADD_ONE)
                assert_int_equal(deeds[i].number, i + 1);
        sched = tn_sched_close(sched);
    }
    tn_pool_close(other);
    pool_close_world(&w);
}

TN_TEST(a_pool_that_was_given_back_is_used_as_before)
{
    struct pool_world w = pool_open_by(TN_START_FORK, 2);
    for (int round = 0; round < 20; round++) {
        static struct deed deeds[50];
        open_sched("CPU=2");
        tn_kind *kind = kind_of(&w, NULL);
        for (int32_t i = 0; i < 50; i++) { /* each may call the thread that waits */
            deeds[i] = (struct deed){.order = {ADD_ONE, i}};
            add(kind, &deeds[i], UINT64_MAX);
        }
        TN_CHECK_OK(wait_for_all());
        sched = tn_sched_close(sched);
        pool_submit(&w, ADD_ONE, round);
        tn_pool_result result = pool_next(&w);
        assert_int_equal(pool_number_in(&result), round + 1);
        tn_pool_result_fini(&result);
    }
    pool_close_world(&w);
}

TN_TEST(a_call_to_the_thread_of_a_scheduler_gone_is_no_result)
{
    struct pool_world w = pool_open_by(TN_START_FORK, 1);
    TN_CHECK_OK(tni_pool_claim(w.pool));
    tni_pool_wake(w.pool);
    tni_pool_release(w.pool);
    pool_submit(&w, ADD_ONE, 1);
    tn_pool_result result = pool_next(&w);
    assert_int_equal(pool_number_in(&result), 2);
    tn_pool_result_fini(&result);
    pool_close_world(&w);
}

/* ---- traces ------------------------------------------------------------------------------ */

static _Atomic int32_t traced_pid;
static void trace(const tn_task_event *event, void *context)
{
    (void)context;
    traced_pid = event->pid;
}

TN_TEST(a_trace_names_the_worker)
{
    struct pool_world w = pool_open_by(TN_START_FORK, 1);
    TN_CHECK_OK(tn_sched_create(
        TN_OPTIONS(tn_sched_options, .resources = "CPU=1", .trace = trace), &sched));
    TN_CHECK_OK(tn_graph_create(sched, &graph));
    struct deed deed = {.order = {ADD_ONE, 0}};
    add(kind_of(&w, NULL), &deed, UINT64_MAX);
    TN_CHECK_OK(wait_for_all());
    assert_int_equal(traced_pid, deed.pid);
    assert_int_equal(deed.pid, tnt_worker_pid(w.pool, 0));
    close_all(&w);
}
