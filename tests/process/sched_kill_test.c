/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests: a worker process that is killed at a point on the way of a task that takes and returns
 * tensors stops no graph. The task runs again, up to its limit, and no block is left.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/base.h"
#include "harness/tensor.h"
#include "process/pool_world.h"

/*
 * The points that a worker passes from the end of one task to the end of the next, and what
 * becomes of a task all of whose workers die there, at the first passing: OVER, it has a
 * result, from one that died later or from one that did not pass the point; BEGUN, it has none,
 * and the error names each worker; EARLY, they die before they note that they began it, or
 * again when they are to say that it was begun too often, and the error names the last worker;
 * EITHER, as BEGUN, or a later worker finds memory that an earlier one has left.
 */
#define POINTS(X)                                                                              \
    X(pop_taken, EARLY)                                                                        \
    X(adopt_recorded, EARLY)                                                                   \
    X(lease_pinned, EARLY)                                                                     \
    X(lease_recorded, EARLY)                                                                   \
    X(pool_job_taken, EARLY)                                                                   \
    X(pool_job_noted, BEGUN)                                                                   \
    X(pool_job_seceded, BEGUN)                                                                 \
    X(alloc_frontier_moved, OVER)                                                              \
    X(alloc_taken, BEGUN)                                                                      \
    X(quota_asked, BEGUN)                                                                      \
    X(alloc_pages_committed, EITHER)                                                           \
    X(alloc_end_raised, BEGUN)                                                                 \
    X(alloc_recorded, BEGUN)                                                                   \
    X(tensor_written, BEGUN)                                                                   \
    X(tensor_copied, BEGUN)                                                                    \
    X(lend_incremented, BEGUN)                                                                 \
    X(records_added, BEGUN)                                                                    \
    X(push_claimed, EARLY)                                                                     \
    X(lend_moved, BEGUN)                                                                       \
    X(push_lent, EARLY)                                                                        \
    X(push_full, BEGUN)                                                                        \
    X(push_tail_passed, BEGUN)                                                                 \
    X(wait_called, BEGUN)                                                                      \
    X(release_announced, OVER)                                                                 \
    X(release_unrecorded, OVER)                                                                \
    X(ref_decremented, OVER)                                                                   \
    X(pool_result_pushed, OVER)                                                                \
    X(ack_emptied, OVER)                                                                       \
    X(pool_job_acknowledged, OVER)                                                             \
    X(take_apart_unrecorded, OVER)                                                             \
    X(ref_freed, OVER)
enum outcome { OVER, BEGUN, EARLY, EITHER };

/* ---- the world --------------------------------------------------------------------------- */

enum { ARM = 1000 }; /* a deed beside those of pool_world.h */
enum { SMALL = 1000, LARGE = 1 << 18, TENSORS = 2 };

/* What a task sends, and what it got back. */
struct deed {
    struct arming {
        struct pool_order order;
        char point[64]; /* "": the worker lists what it passes */
        char list[64];
    } arming;
    tn_tensor *tensors[TENSORS], *made[TENSORS]; /* sent, borrowed; taken, owned */
    struct deed *input;                          /* whose `made` is sent; NULL: none */
    uint32_t takes;
};

static tn_sched *sched;
static tn_graph *graph;
static tn_kind *kind;
static int list_fd = -1;
static char list_path[64];

/* Arm a point once: the worker that runs the task again dies nowhere. */
static int arm_or_do(tn_domain *domain, const tn_pool_job *job, tn_message *result,
                     void *context)
{
    struct arming arming;
    if (job->message->size_bytes != sizeof arming)
        return pool_deed(domain, job, result, context);
    memcpy(&arming, job->message->bytes, sizeof arming);
    if (arming.order.deed != ARM)
        return pool_deed(domain, job, result, context);
    if (arming.point[0] == '\0')
        tni_kill_point_list(arming.list);
    else if (job->attempt == 1)
        tni_kill_point_arm(arming.point, (uint32_t)arming.order.number);
    if (arming.point[0] == '-')
        tni_kill_point_list(NULL);
    return 0;
}

static int fill(const tn_task_call *call)
{
    struct deed *deed = call->context;
    bool has_tensors = deed->arming.order.deed == ADD_TENSORS;
    call->job->bytes = &deed->arming;
    call->job->size_bytes = sizeof deed->arming;
    call->job->tensors = deed->input != NULL ? deed->input->made : deed->tensors;
    call->job->tensor_count = has_tensors ? TENSORS : 0;
    return TN_TASK_DONE;
}

static int take(const tn_task_call *call, tn_pool_result *result)
{
    struct deed *deed = call->context;
    deed->takes++;
    for (uint32_t i = 0; i < result->message.tensor_count; i++) {
        deed->made[i] = result->message.tensors[i];
        result->message.tensors[i] = NULL;
    }
    return TN_TASK_DONE;
}

static int count(const tn_task_call *call)
{
    ++*(uint32_t *)call->context;
    return TN_TASK_DONE;
}

static struct pool_world open_all(tn_pool_options options)
{
    struct pool_world w = {.domain = pool_open_domain()};
    TN_CHECK_OK(tn_queue_open(w.domain, "pids", NULL, TN_OPEN_NEW, &w.pids));
    TN_CHECK_OK(tn_event_open(w.domain, "go", TN_OPEN_NEW, &w.go));
    TN_CHECK_OK(tn_pool_create(
        w.domain, &options, options.start == TN_START_SPAWN ? NULL : arm_or_do, NULL, &w.pool));
    TN_CHECK_OK(tn_sched_create(TN_OPTIONS(tn_sched_options, .resources = "CPU=1"), &sched));
    TN_CHECK_OK(tn_graph_create(sched, &graph));
    const tn_variant variant = {.run = fill};
    TN_CHECK_OK(tn_kind_create(sched,
                               TN_OPTIONS(tn_kind_options, .name = "deed", .variants = &variant,
                                          .variant_count = 1, .pool = w.pool, .take = take),
                               &kind));
    return w;
}

/* The scheduler is usable, and has its CPU. */
static void expect_free(void)
{
    uint32_t counted = 0;
    tn_kind *local;
    const tn_variant variant = {.run = count};
    TN_CHECK_OK(tn_kind_create(
        sched,
        TN_OPTIONS(tn_kind_options, .name = "count", .variants = &variant, .variant_count = 1),
        &local));
    tn_graph *other;
    TN_CHECK_OK(tn_graph_create(sched, &other));
    const tn_task task = {.kind = local, .context = &counted};
    TN_CHECK_OK(
        tn_graph_add(other, TN_OPTIONS(tn_task_list, .tasks = &task, .count = 1), NULL));
    TN_CHECK_OK(tn_graph_wait(other, tnt_deadline(20000)));
    assert_int_equal(counted, 1);
    tn_sched_info info = {.struct_size = sizeof info};
    do /* until the grant was given back */
        TN_CHECK_OK(tn_sched_get_info(sched, &info));
    while (info.running > 0);
    for (uint32_t i = 0; i < info.resource_count; i++)
        assert_true(info.resources[i].free == info.resources[i].total);
}

static void close_all(struct pool_world *w)
{
    expect_free();
    sched = tn_sched_close(sched);
    pool_close_world(w); /* recounts the domain, in which no block is left */
}

/* @param input  a task of the graph, or UINT64_MAX */
static uint64_t add(struct deed *deed, uint64_t input)
{
    return pool_add_task(graph, kind, deed, input);
}

static struct deed adding(int32_t number)
{
    return (struct deed){.arming.order = {ADD_TENSORS, number}};
}

static void make_inputs(tn_domain *domain, struct deed *deed)
{
    static const int64_t sizes[TENSORS] = {SMALL, LARGE};
    for (uint32_t i = 0; i < TENSORS; i++)
        TN_CHECK_OK(tn_tensor_create(domain, TN_INT32, 1, &sizes[i],
                                     TN_OPTIONS(tn_tensor_options, .flags = TN_TENSOR_ZEROED),
                                     &deed->tensors[i]));
}

static void unref_all(tn_tensor **tensors)
{
    for (uint32_t i = 0; i < TENSORS; i++) {
        tn_tensor_unref(tensors[i]);
        tensors[i] = NULL;
    }
}

static void expect_result(struct deed *deed, int32_t sum)
{
    assert_int_equal(deed->takes, 1);
    for (uint32_t i = 0; i < TENSORS; i++) {
        const int32_t *numbers = tn_tensor_data(deed->made[i]);
        for (int32_t k = 0; k < (i == 0 ? SMALL : LARGE); k++)
            TN_CHECK(numbers[k] == sum);
    }
    unref_all(deed->made);
}

/* ---- the list of points ------------------------------------------------------------------ */

static void open_list(void)
{
    list_fd = memfd_create("points", MFD_CLOEXEC);
    assert_true(list_fd >= 0);
    snprintf(list_path, sizeof list_path, "/proc/%d/fd/%d", (int)getpid(), list_fd);
}

static char *read_list(void)
{
    off_t size = lseek(list_fd, 0, SEEK_END);
    char *text = calloc(1, (size_t)size + 2);
    assert_non_null(text);
    text[0] = '\n'; /* each name stands between two ends of lines */
    assert_true(pread(list_fd, text + 1, (size_t)size, 0) == (ssize_t)size);
    close(list_fd);
    list_fd = -1;
    return text;
}

/* ---- one worker dies --------------------------------------------------------------------- */

/* A chain of two tasks, of which one worker lists the points, or dies at one of them.
 * @return whether it died */
static bool run_chain(const char *point, uint32_t passing)
{
    struct pool_world w = open_all(pool_options(1));
    struct deed arm = {.arming.order = {ARM, (int32_t)passing}}, first = adding(5),
                second = adding(7), last = {.arming.order = {ARM, 0}};
    snprintf(arm.arming.point, sizeof arm.arming.point, "%s", point);
    snprintf(arm.arming.list, sizeof arm.arming.list, "%s", list_path);
    last.arming.point[0] = '-'; /* no point has this name */
    make_inputs(w.domain, &first);
    second.input = &first;
    add(&last, add(&second, add(&first, add(&arm, UINT64_MAX))));
    TN_CHECK_OK(tn_graph_wait(graph, tnt_deadline(30000)));
    assert_int_equal(arm.takes + last.takes, 2);
    bool has_died = tnt_pool_info(w.pool).restart_count > 0;
    unref_all(first.tensors);
    expect_result(&second, 12);
    expect_result(&first, 5);
    close_all(&w);
    return has_died;
}

static void let_a_worker_die_at(const char *point)
{
    enum { MOST = 200 };
    uint32_t passing = 1;
    while (run_chain(point, passing)) {
        passing++;
        assert_true(passing < MOST);
    }
    if (passing == 1)
        fail_msg("no worker passes %s", point);
}

#define ONE_DIES(name, outcome)                                                                \
    TN_TEST(tasks_go_on_when_a_worker_dies_at_##name) { let_a_worker_die_at(#name); }
POINTS(ONE_DIES)

/* A worker passes queue_looking only if others sleep at the queue; queue_wake_test kills there.
 */
static bool has_test(const char *name)
{
#define IS_SAME(point, outcome) || strcmp(name, #point) == 0
    return strcmp(name, "queue_looking") == 0 POINTS(IS_SAME);
#undef IS_SAME
}

TN_TEST(all_points_that_a_worker_passes_have_a_test)
{
    open_list();
    assert_false(run_chain("", 0));
    char *text = read_list(), *rest = NULL;
    uint32_t named = 0;
    for (const char *name = strtok_r(text, "\n", &rest); name != NULL;
         name = strtok_r(NULL, "\n", &rest), named++)
        if (!has_test(name))
            fail_msg("a worker passes %s, and no test kills it there", name);
    assert_true(named > 50);
    free(text);
}

/* ---- all workers die --------------------------------------------------------------------- */

/* A worker that is a new process, with a variable of its environment. */
static struct pool_world open_spawned(const char *variable)
{
    const char *const environment[] = {pool_environment[0], variable, NULL};
    tn_pool_options options = pool_options(1);
    options.start = TN_START_SPAWN;
    options.argv = pool_argv;
    options.environment = environment;
    return open_all(options);
}

/* How often a worker passes a point until it pops its first task. */
static uint32_t count_before(const char *point)
{
    char variable[128], line[80];
    open_list();
    snprintf(variable, sizeof variable, "POOL_TEST_LIST=%s", list_path);
    struct pool_world w = open_spawned(variable);
    struct deed deed = adding(5);
    make_inputs(w.domain, &deed);
    add(&deed, UINT64_MAX);
    TN_CHECK_OK(tn_graph_wait(graph, tnt_deadline(30000)));
    unref_all(deed.tensors);
    expect_result(&deed, 5);
    close_all(&w);
    char *text = read_list(), *first = strstr(text, "\npool_job_taken\n");
    assert_non_null(first);
    *first = '\0';
    for (char *next = text; (next = strstr(next, "\npop_taken\n")) != NULL; next++)
        first = next;
    first[1] = '\0';
    uint32_t count = 0;
    snprintf(line, sizeof line, "\n%s\n", point);
    for (char *next = text; (next = strstr(next, line)) != NULL; next++)
        count++;
    free(text);
    return count;
}

static void expect_failure(const struct pool_world *w, enum outcome outcome)
{
    char sentence[512];
    snprintf(sentence, sizeof sentence, "%s", tn_error_detail());
    pool_expect_detail(sentence, "task 0 (deed)");
    if (outcome == BEGUN) {
        pool_expect_detail(sentence, "was started 3 times, and each worker ended: worker 0, "
                                     "process ");
        assert_true(tnt_pool_info(w->pool).restart_count >= 3);
    } else {
        pool_expect_detail(sentence, "workers ended one after the other before they began");
        pool_expect_detail(sentence, "the last, process ");
    }
    pool_expect_detail(sentence, "was ended by signal 9");
}

/* A task of which each worker dies at the same point, and one that needs its result. */
static void let_all_workers_die_at(const char *point, enum outcome outcome)
{
    char variable[128];
    snprintf(variable, sizeof variable, "POOL_TEST_KILL=%s:%u", point, count_before(point) + 1);
    struct pool_world w = open_spawned(variable);
    struct deed first = adding(5), second = adding(7);
    make_inputs(w.domain, &first);
    second.input = &first;
    uint64_t cause, begun = add(&first, UINT64_MAX);
    int status = outcome == OVER || outcome == EITHER
                     ? tn_graph_wait(graph, tnt_deadline(30000))
                     : TN_ERR_TIMED_OUT;
    if (status == 0) {
        expect_result(&first, 5);
    } else if (outcome == EITHER) {
        assert_int_equal(status, TN_ERR_CHILD_FAILED);
        expect_failure(&w, BEGUN);
    } else {
        assert_true(outcome != OVER);
        uint64_t after = add(&second, begun);
        assert_int_equal(tn_graph_wait(graph, tnt_deadline(30000)), TN_ERR_CHILD_FAILED);
        expect_failure(&w, outcome);
        assert_int_equal(tn_task_get_status(graph, after, &cause), TN_ERR_CHILD_FAILED);
        assert_int_equal(cause, begun);
        assert_int_equal(first.takes + second.takes, 0);
    }
    unref_all(first.tensors);
    close_all(&w);
}

#define ALL_DIE(name, outcome)                                                                 \
    TN_TEST(tasks_end_when_all_workers_die_at_##name)                                          \
    {                                                                                          \
        let_all_workers_die_at(#name, outcome);                                                \
    }
POINTS(ALL_DIE)
