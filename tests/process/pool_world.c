/* SPDX-License-Identifier: Apache-2.0 */
#include "process/pool_world.h"

#include "harness/tensor.h"
#include "tensor/tensor.h"
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <tenon/sched.h>
#include <unistd.h>

tn_domain *pool_open_domain(void) { return pool_open_domain_of(64 << 20); }

tn_domain *pool_open_domain_of(uint64_t quota_bytes)
{
    tn_domain_options options = {.struct_size = sizeof options,
                                 .quota_bytes = quota_bytes,
                                 .seats = 32,
                                 .blocks = 4096,
                                 .flags = TN_DOMAIN_NO_MANAGER};
    return tnt_domain(&options);
}

void pool_close_domain(tn_domain *domain)
{
    TN_CHECK_OK(tn_domain_reap(domain, NULL));
    TNT_AUDIT(domain);
    assert_int_equal(live_blocks(domain), 0);
    tn_domain_close(domain);
}

/* ---- jobs -------------------------------------------------------------------------------- */

static void say_pid(tn_domain *domain)
{
    tn_queue *queue;
    pid_t pid = getpid();
    tn_message message = {.bytes = &pid, .size_bytes = sizeof pid};
    TN_CHECK_OK(tn_queue_open(domain, "pids", NULL, TN_OPEN_EXISTING, &queue));
    TN_CHECK_OK(tn_queue_push(queue, &message, 0, TN_NOW));
    tn_object_close(queue);
}

static int sleep_for_ever(tn_domain *domain)
{
    say_pid(domain);
    while (pause() == -1) {
    }
    return 0;
}

static int wait_for_go(tn_domain *domain)
{
    tn_event *event;
    TN_CHECK_OK(tn_event_open(domain, "go", TN_OPEN_EXISTING, &event));
    TN_CHECK_OK(tn_event_wait(event, tnt_deadline(20000)));
    tn_object_close(event);
    return 0;
}

static int let_go(tn_domain *domain)
{
    tn_event *event;
    TN_CHECK_OK(tn_event_open(domain, "go", TN_OPEN_EXISTING, &event));
    TN_CHECK_OK(tn_event_set(event));
    tn_object_close(event);
    return 0;
}

static int secede(tn_domain *domain, const struct pool_order *order, const tn_pool_job *job)
{
    for (int32_t i = 0; i < order->number; i++)
        TN_CHECK_OK(tn_task_secede());
    say_pid(domain);
    if (order->deed == SECEDE_DYING && job->attempt == 1)
        raise(SIGKILL);
    return wait_for_go(domain);
}

static int make_tensor(tn_domain *domain, int32_t value, bool is_private,
                       const tn_pool_job *job, tn_message *result)
{
    tn_tensor **list = job->room;
    int64_t size = 1000;
    int32_t status =
        is_private
            ? tn_tensor_create_private(TN_INT32, 1, &size, list)
            : tn_tensor_create(domain, TN_INT32, 1, &size,
                               TN_OPTIONS(tn_tensor_options, .flags = TN_TENSOR_ZEROED), list);
    TN_CHECK_OK(status);
    ((int32_t *)tn_tensor_data(list[0]))[999] = value;
    result->tensors = list;
    result->tensor_count = 1;
    return 0;
}

static int double_tensor(const tn_pool_job *job, tn_message *result)
{
    tn_tensor **list = job->room;
    TN_CHECK(job->message->tensor_count == 1);
    list[0] = job->message->tensors[0];
    job->message->tensors[0] = NULL;
    ((int32_t *)tn_tensor_data(list[0]))[0] *= 2;
    result->tensors = list;
    result->tensor_count = 1;
    return 0;
}

/* A private tensor of int32 like `from`, with the number added, is shared. */
static void add_tensor(tn_domain *domain, const tn_tensor *from, int32_t number,
                       tn_tensor **ret_sum)
{
    TN_CHECK_OK(tn_tensor_create_private(TN_INT32, 1, &from->count, ret_sum));
    const int32_t *numbers = tn_tensor_data(from);
    int32_t *sums = tn_tensor_data(*ret_sum);
    for (int64_t i = 0; i < from->count; i++)
        sums[i] = numbers[i] + number;
    TN_CHECK_OK(tn_tensor_share(domain, *ret_sum, NULL));
}

static int add_tensors(tn_domain *domain, int32_t number, const tn_pool_job *job,
                       tn_message *result)
{
    tn_tensor **list = job->room;
    TN_CHECK(job->message->tensor_count > 0);
    TN_CHECK_OK(tn_task_secede());
    for (uint32_t i = 0; i < job->message->tensor_count; i++)
        add_tensor(domain, job->message->tensors[i], number, &list[i]);
    result->tensors = list;
    result->tensor_count = job->message->tensor_count;
    return 0;
}

static int send_much(uint8_t *much, const struct pool_order *order, const tn_pool_job *job,
                     tn_message *result)
{
    memset(much, (uint8_t)job->id, (size_t)order->number);
    result->bytes = much;
    result->size_bytes = (size_t)order->number;
    return 0;
}

static int send_late(tn_domain *domain, uint8_t *much, const struct pool_order *order,
                     const tn_pool_job *job, tn_message *result)
{
    signal(SIGTERM, SIG_IGN);
    say_pid(domain);
    wait_for_go(domain);
    return send_much(much, order, job, result);
}

static int fill_room(int32_t value, const tn_pool_job *job, tn_message *result)
{
    memcpy(job->room, &value, sizeof value);
    result->bytes = job->room;
    result->size_bytes = sizeof value;
    return 0;
}

int pool_deed(tn_domain *domain, const tn_pool_job *job, tn_message *result, void *context)
{
    static uint8_t much[1 << 20];
    struct pool_order order;
    (void)context;
    TN_CHECK(job->message->size_bytes >= sizeof order);
    memcpy(&order, job->message->bytes, sizeof order);
    switch ((enum pool_deed_kind)order.deed) {
    case ADD_ONE:
        return fill_room(order.number + 1, job, result);
    case DOUBLE_TENSOR:
        return double_tensor(job, result);
    case MAKE_TENSOR:
        return make_tensor(domain, order.number, false, job, result);
    case SEND_PRIVATE:
        return make_tensor(domain, order.number, true, job, result);
    case FAIL:
        return order.number;
    case FAIL_SAYING:
        return tn_queue_end(NULL);
    case KILL_ITSELF:
        if ((int32_t)job->attempt <= order.number)
            raise(SIGKILL);
        return fill_room((int32_t)job->attempt, job, result);
    case KILL_TOLD:
        say_pid(domain);
        return raise(SIGKILL);
    case EXIT:
        _exit(order.number);
    case EXIT_SAYING:
        tn_process_fail("out of cheese");
    case SLEEP:
        return sleep_for_ever(domain);
    case DEAF:
        signal(SIGTERM, SIG_IGN);
        return sleep_for_ever(domain);
    case WAIT:
        return wait_for_go(domain);
    case SEND_MUCH:
        return send_much(much, &order, job, result);
    case SEND_BOTH:
        make_tensor(domain, (int32_t)job->id, false, job, result);
        return send_much(much, &order, job, result);
    case ADD_TENSORS:
        return add_tensors(domain, order.number, job, result);
    case SECEDE:
    case SECEDE_DYING:
        return secede(domain, &order, job);
    case GO:
        return let_go(domain);
    case SEND_LATE:
        return send_late(domain, much, &order, job, result);
    default:
        return 0;
    }
}

/* ---- a pool for a test ------------------------------------------------------------------- */

static char self[4096];
const char *const pool_argv[] = {self, NULL};
const char *const pool_environment[] = {"POOL_TEST_PART=serve", NULL};

/* The library reads its own variables later than play_part() runs. */
static void arm_kill_point(void)
{
#if defined(TN_KILL_POINTS)
    char name[64];
    unsigned passing;
    const char *kills = getenv("POOL_TEST_KILL");
    tni_kill_point_list(getenv("POOL_TEST_LIST"));
    if (kills != NULL && sscanf(kills, "%63[^:]:%u", name, &passing) == 2)
        tni_kill_point_arm(name, passing);
#endif
}

/*
 * Runs before main(): a worker of a test's pool is no test, and the harness must not run in
 * it.
 */
__attribute__((constructor)) static void play_part(void)
{
    tn_domain *domain;
    ssize_t len = readlink("/proc/self/exe", self, sizeof self - 1);
    TN_CHECK(len > 0);
    const char *part = getenv("POOL_TEST_PART");
    if (part == NULL)
        return;
    if (tn_domain_inherit(&domain) != 0)
        tn_process_fail(tn_error_detail());
    arm_kill_point();
    if (tn_pool_serve(domain, pool_deed, NULL) != 0)
        tn_process_fail(tn_error_detail());
    tn_domain_close(domain);
    _exit(0);
}

tn_pool_options pool_options(uint32_t workers)
{
    return (tn_pool_options){.struct_size = sizeof(tn_pool_options), .workers = workers};
}

tn_pool *pool_open(tn_domain *domain, const tn_pool_options *options)
{
    tn_pool *pool = NULL;
    TN_CHECK_OK(tn_pool_create(
        domain, options, options->start == TN_START_SPAWN ? NULL : pool_deed, NULL, &pool));
    return pool;
}

struct pool_world pool_open_world(tn_pool_options options)
{
    return pool_open_world_in(pool_open_domain(), options);
}

struct pool_world pool_open_world_in(tn_domain *domain, tn_pool_options options)
{
    struct pool_world w = {.domain = domain};
    if (options.start == TN_START_FORKSERVER) {
        TN_CHECK_OK(tn_forkserver_start(w.domain, &w.server));
        options.server = w.server;
    } else if (options.start == TN_START_SPAWN && options.argv == NULL) {
        options.argv = pool_argv;
        options.environment = pool_environment;
    }
    TN_CHECK_OK(tn_queue_open(w.domain, "pids", NULL, TN_OPEN_NEW, &w.pids));
    TN_CHECK_OK(tn_event_open(w.domain, "go", TN_OPEN_NEW, &w.go));
    w.pool = pool_open(w.domain, &options);
    return w;
}

struct pool_world pool_open_by(uint32_t method, uint32_t workers)
{
    tn_pool_options options = pool_options(workers);
    options.start = method;
    return pool_open_world(options);
}

void pool_close_world(struct pool_world *w)
{
    assert_null(tn_pool_close(w->pool));
    tn_object_close(w->pids);
    tn_object_close(w->go);
    tn_forkserver_close(w->server);
    pool_close_domain(w->domain);
}

uint64_t pool_add_task(tn_graph *graph, tn_kind *kind, void *context, uint64_t input)
{
    const tn_task task = {.kind = kind, .context = context};
    const uint64_t ends[] = {input != UINT64_MAX};
    uint64_t first;
    TN_CHECK_OK(tn_graph_add(graph,
                             TN_OPTIONS(tn_task_list, .tasks = &task, .count = 1,
                                        .input_ends = ends, .inputs = &input),
                             &first));
    return first;
}

uint64_t pool_submit(struct pool_world *w, enum pool_deed_kind deed, int32_t number)
{
    struct pool_order order = {(int32_t)deed, number};
    tn_message message = {.bytes = &order, .size_bytes = sizeof order};
    uint64_t job = 0;
    TN_CHECK_OK(tn_pool_submit(w->pool, &message, 0, tnt_deadline(20000), &job));
    return job;
}

tn_pool_result pool_next(struct pool_world *w)
{
    tn_pool_result result = {.struct_size = sizeof result};
    TN_CHECK_OK(tn_pool_fetch(w->pool, TN_POOL_ANY_JOB, tnt_deadline(20000), &result));
    return result;
}

tn_pool_result pool_get(struct pool_world *w, uint64_t job)
{
    tn_pool_result result = {.struct_size = sizeof result};
    TN_CHECK_OK(tn_pool_fetch(w->pool, job, tnt_deadline(20000), &result));
    assert_int_equal(result.job, job);
    return result;
}

int32_t pool_number_in(const tn_pool_result *result)
{
    int32_t number;
    assert_int_equal(result->message.size_bytes, sizeof number);
    memcpy(&number, result->message.bytes, sizeof number);
    return number;
}

pid_t pool_pop_pid(struct pool_world *w)
{
    tn_message message;
    pid_t pid;
    TN_CHECK_OK(tn_queue_pop(w->pids, tnt_deadline(20000), &message));
    memcpy(&pid, message.bytes, sizeof pid);
    tn_message_fini(&message);
    return pid;
}

int pool_pidfd(pid_t pid) { return (int)syscall(434, pid, 0); } /* pidfd_open */

bool pool_ends_within(int pid_fd, int ms)
{
    struct pollfd poll_fd = {.fd = pid_fd, .events = POLLIN};
    return poll(&poll_fd, 1, ms) == 1;
}

void pool_kill_worker(struct pool_world *w, uint32_t worker)
{
    pid_t pid = tnt_worker_pid(w->pool, worker);
    int fd = pool_pidfd(pid);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_true(pool_ends_within(fd, 10000));
    close(fd);
}

void pool_await_restart(struct pool_world *w, uint64_t restarts)
{
    uint64_t deadline = tnt_until_ns(10000);
    tn_pool_result result = {.struct_size = sizeof result};
    while (tnt_pool_info(w->pool).restart_count < restarts) {
        int status = tn_pool_fetch(w->pool, TN_POOL_ANY_JOB, tnt_deadline(20), &result);
        assert_true(status == TN_ERR_NOT_FOUND || status == TN_ERR_TIMED_OUT);
        assert_true(tnt_until_ns(0) < deadline);
    }
}

void pool_expect_detail(const char *text, const char *part)
{
    if (strstr(text, part) == NULL)
        fail_msg("'%s' does not say '%s'", text, part);
}
