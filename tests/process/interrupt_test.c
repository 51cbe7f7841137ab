/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests: tn_interrupt_set(). The hook can end each kind of wait, and nothing is lost; if the
 * hook says to go on, the wait ends as it would have without the hook.
 *
 * The main thread waits. Another thread, the helper, sends it signals and gives it what it
 * waits for. The helper acts after the hook was called, because the main thread is in its
 * wait then.
 */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/harness.h"
#include "harness/tensor.h"
#include "object/object.h"
#include "os/os.h"
#include "wait/wait.h"

/*
 * A process keeps one socket for ringing bells. It is made here, before a test counts
 * descriptors.
 */
__attribute__((constructor)) static void ring_once(void) { tni_os_bell_ring(1); }

enum { QUOTA_BYTES = 32 << 20, LARGE_BYTES = 20 << 20, CAPACITY = 4 };

static tn_domain *d;
static pthread_t main_thread;
static pid_t main_id;

/* ---- the hook, and threads that answer signals through it -------------------------------- */

static _Atomic bool shall_end, is_told;
static _Atomic uint32_t asked, ended;

static void hear(int signal)
{
    (void)signal;
    atomic_store(&is_told, true);
}

static int check(void *context)
{
    TN_CHECK(context == &asked);
    bool ends = atomic_load(&shall_end) && atomic_load(&is_told);
    atomic_fetch_add(&ended, ends);
    atomic_fetch_add(&asked, 1);
    return ends ? -1 : 0;
}

static void listen(bool ends)
{
    struct sigaction action = {.sa_handler = hear, .sa_flags = SA_RESTART};
    TN_CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    atomic_store(&is_told, false);
    atomic_store(&shall_end, ends);
    atomic_store(&asked, 0);
    atomic_store(&ended, 0);
    main_thread = pthread_self();
    main_id = (pid_t)syscall(SYS_gettid);
    tn_interrupt_set(check, (void *)&asked);
}

static void await_count(_Atomic uint32_t *count, uint32_t least)
{
    while (atomic_load(count) < least)
        sched_yield();
}

static void begin(void)
{
    tn_domain_options options = {.struct_size = sizeof options,
                                 .quota_bytes = QUOTA_BYTES,
                                 .flags = TN_DOMAIN_NO_MANAGER};
    d = tnt_domain(&options);
}

static void finish(void)
{
    TN_CHECK_OK(tn_domain_reap(d, NULL));
    TNT_AUDIT(d);
    tn_domain_close(d);
}

/* ---- the kinds of waits ------------------------------------------------------------------ */

static tn_queue *queue, *other;
static tn_event *event;
static tn_semaphore *semaphore;
static tn_lock *lock;
static tn_tensor *large, *another;
static tn_process *process;
static tn_forkserver *server;
static tn_group *group;
static tn_pool *pool;
static uint32_t first_number, strategy;

static int push(tn_deadline deadline)
{
    tn_message m = {.bytes = &first_number, .size_bytes = sizeof first_number};
    int status = tn_queue_push(queue, &m, 0, deadline);
    first_number += status == 0;
    return status;
}

static int pop(tn_deadline deadline)
{
    tn_message m;
    int status = tn_queue_pop(queue, deadline, &m);
    if (status == 0)
        tn_message_fini(&m);
    return status;
}

static void open_queues(void)
{
    tn_queue_options options = {.struct_size = sizeof options, .capacity = CAPACITY};
    TN_CHECK_OK(tn_queue_open(d, NULL, &options, 0, &queue));
    TN_CHECK_OK(tn_queue_open(d, NULL, &options, 0, &other));
    first_number = 0;
}
static void close_queues(void)
{
    tn_object_close(other);
    tn_object_close(queue);
}
static void push_one(void) { TN_CHECK_OK(push(TN_NOW)); }

static void open_full(void)
{
    open_queues();
    for (uint32_t i = 0; i < CAPACITY; i++)
        push_one();
}
static void pop_one(void) { TN_CHECK_OK(pop(TN_NOW)); }
/*
 * Each number arrives once and in order; the number of the interrupted push does not arrive
 * twice.
 */
static void close_full(void)
{
    for (uint32_t i = 1; i <= CAPACITY; i++) {
        tn_message m;
        uint32_t number;
        TN_CHECK_OK(tn_queue_pop(queue, TN_NOW, &m));
        memcpy(&number, m.bytes, sizeof number);
        assert_int_equal(number, i);
        tn_message_fini(&m);
    }
    assert_int_equal(pop(TN_NOW), TN_ERR_TIMED_OUT);
    close_queues();
}

static int wait_any(tn_deadline deadline)
{
    tn_queue *const queues[] = {other, queue};
    int found = tn_object_wait_any(queues, TNI_COUNT(queues), deadline);
    return found == 1 ? 0 : found;
}

static void open_event(void)
{
    TN_CHECK_OK(tn_event_open(d, NULL, TN_EVENT_AUTO_RESET, &event));
}
static int wait_for_event(tn_deadline deadline) { return tn_event_wait(event, deadline); }
static void set_event(void) { TN_CHECK_OK(tn_event_set(event)); }
static void close_event(void) { tn_object_close(event); }

static void open_permits(uint32_t flags)
{
    TN_CHECK_OK(tn_semaphore_open(d, NULL, 1, flags, &semaphore));
    TN_CHECK_OK(tn_semaphore_acquire(semaphore, TN_NOW));
}
static void open_semaphore(void) { open_permits(0); }
static void open_owned(void) { open_permits(TN_SEMAPHORE_OWNED); }
static int wait_for_permit(tn_deadline deadline)
{
    return tn_semaphore_acquire(semaphore, deadline);
}
static void release_permit(void) { TN_CHECK_OK(tn_semaphore_release(semaphore)); }
/* One permit is held, as before; the interrupted wait took none. */
static void close_semaphore(void)
{
    release_permit();
    assert_int_equal(tn_semaphore_count(semaphore), 1);
    tn_object_close(semaphore);
}
static void close_owned(void)
{
    release_permit();
    assert_int_equal(tn_semaphore_release(semaphore), TN_ERR_INVALID);
    tn_object_close(semaphore);
}

static void open_lock(void) { TN_CHECK_OK(tn_lock_open(d, NULL, 0, &lock)); }
static void hold_lock(void) { TN_CHECK_OK(tn_lock_acquire(lock, TN_FOREVER)); }
static int wait_for_lock(tn_deadline deadline) { return tn_lock_acquire(lock, deadline); }
static void release_lock(void) { TN_CHECK_OK(tn_lock_release(lock)); }
static void close_lock(void)
{
    release_lock();
    tn_object_close(lock);
}

static int make_large(tn_deadline deadline, tn_tensor **ret_tensor)
{
    int64_t bytes = LARGE_BYTES;
    return tn_tensor_create(
        d, TN_UINT8, 1, &bytes,
        TN_OPTIONS(tn_tensor_options, .strategy = strategy, .deadline = deadline), ret_tensor);
}
static void use_memory_of(uint32_t of_strategy)
{
    strategy = of_strategy;
    TN_CHECK_OK(make_large(TN_NOW, &large));
}
static void use_arena(void) { use_memory_of(TN_STRATEGY_ARENA); }
static void use_files(void) { use_memory_of(TN_STRATEGY_FILE_DESCRIPTOR); }
static int wait_for_memory(tn_deadline deadline) { return make_large(deadline, &another); }
static void free_memory(void) { tn_tensor_unref(large); }
static void free_another(void) { tn_tensor_unref(another); }

static int stay(tn_domain *domain, void *argument)
{
    (void)domain;
    (void)argument;
    while (pause() == -1) {
    }
    return 0;
}
static int stay_in_group(tn_domain *domain, uint32_t index, void *argument)
{
    (void)index;
    return stay(domain, argument);
}
static void start_process(void) { TN_CHECK_OK(tn_process_fork(d, stay, NULL, 0, &process)); }
static int wait_for_process(tn_deadline deadline)
{
    return tn_process_wait(process, deadline, NULL);
}
static void end_process(void) { kill(tn_process_pid(process), SIGKILL); }
static void close_process(void) { tn_process_close(process); }

static void start_group(void)
{
    TN_CHECK_OK(tn_group_create(d, &group));
    TN_CHECK_OK(tn_group_fork(group, 2, stay_in_group, NULL));
}
static int wait_for_group(tn_deadline deadline)
{
    int status = tn_group_wait(group, 0, deadline, NULL);
    return status == TN_ERR_CHILD_FAILED ? 0 : status; /* of a signal, as it shall */
}
static void end_group(void)
{
    for (uint32_t i = 0; i < tnt_group_count(group); i++)
        kill(tn_process_pid(tn_group_get(group, i)), SIGKILL);
}
static void close_group(void) { tn_group_close(group); }

static int return_seven(tn_domain *domain, void *argument)
{
    (void)domain;
    (void)argument;
    return 7;
}
static void stop_server(void)
{
    TN_CHECK_OK(tn_forkserver_start(d, &server));
    pid_t pid = tn_forkserver_pid(server);
    TN_CHECK(kill(pid, SIGSTOP) == 0);
    TN_CHECK(waitpid(pid, NULL, WUNTRACED) == pid);
}
static int fork_by_server(tn_deadline deadline)
{
    tn_process_status end = {.struct_size = sizeof end};
    (void)deadline;
    int status = tn_forkserver_fork(server, return_seven, NULL, 0, 0, &process);
    if (status != 0)
        return status;
    TN_CHECK_OK(tn_process_wait(process, tnt_deadline(20000), &end));
    assert_int_equal(end.exit_code, 7);
    tn_process_close(process);
    return 0;
}
static void continue_server(void) { kill(tn_forkserver_pid(server), SIGCONT); }
static void close_server(void) { tn_forkserver_close(server); }

/* Workers have the hook too, and no signal comes to them. */
static int work(tn_domain *domain, const tn_pool_job *job, tn_message *ret_result,
                void *context)
{
    (void)domain;
    (void)job;
    (void)ret_result;
    return tn_event_wait(context, TN_FOREVER);
}
static void start_pool(void)
{
    TN_CHECK_OK(tn_event_open(d, NULL, 0, &event));
    tn_pool_options options = {.struct_size = sizeof options, .workers = 1, .capacity = 1};
    TN_CHECK_OK(tn_pool_create(d, &options, work, event, &pool));
    TN_CHECK_OK(tn_pool_submit(pool, NULL, 0, TN_NOW, NULL));
}
static void start_ended_pool(void)
{
    start_pool();
    TN_CHECK_OK(tn_pool_end(pool));
}
static int fetch(tn_deadline deadline)
{
    tn_pool_result result = {.struct_size = sizeof result};
    int status = tn_pool_fetch(pool, TN_POOL_ANY_JOB, deadline, &result);
    if (status == 0) {
        assert_int_equal(result.status, 0);
        assert_int_equal(result.attempt, 1);
        tn_pool_result_fini(&result);
    }
    return status;
}
static int submit(tn_deadline deadline)
{
    return tn_pool_submit(pool, NULL, 0, deadline, NULL);
}
static int join(tn_deadline deadline) { return tn_pool_join(pool, deadline); }
static void close_pool(void)
{
    tn_pool_close(pool);
    tn_object_close(event);
}
/* The job of the interrupted submit was not submitted. */
static void close_submitted(void)
{
    assert_int_equal(fetch(tnt_deadline(20000)), 0);
    assert_int_equal(fetch(tnt_deadline(20000)), 0);
    assert_int_equal(fetch(TN_NOW), TN_ERR_NOT_FOUND);
    close_pool();
}

static tn_sched *sched;
static tn_graph *graph;
static int pend(const tn_task_call *call)
{
    (void)call;
    return TN_TASK_PENDING;
}
static void add_pending_task(void)
{
    tn_graph_info info = {.struct_size = sizeof info};
    tn_kind *pending;
    const tn_variant variant = {.run = pend};
    TN_CHECK_OK(tn_sched_create(TN_OPTIONS(tn_sched_options, .resources = "CPU=1"), &sched));
    TN_CHECK_OK(tn_kind_create(
        sched, TN_OPTIONS(tn_kind_options, .variants = &variant, .variant_count = 1),
        &pending));
    TN_CHECK_OK(tn_graph_create(sched, &graph));
    const tn_task task = {.kind = pending};
    TN_CHECK_OK(
        tn_graph_add(graph, TN_OPTIONS(tn_task_list, .tasks = &task, .count = 1), NULL));
    do
        TN_CHECK_OK(tn_graph_get_info(graph, &info));
    while (info.pending == 0);
}
static int wait_for_graph(tn_deadline deadline) { return tn_graph_wait(graph, deadline); }
static int run_graph(tn_deadline deadline) { return tn_graph_run(graph, deadline); }
static void end_task(void) { TN_CHECK_OK(tn_task_end(graph, 0, 0)); }
static void close_sched(void) { sched = tn_sched_close(sched); }

struct kind {
    void (*open)(void);
    void (*hold)(void); /* in the helper, before the wait */
    int (*wait)(tn_deadline deadline);
    void (*give)(void); /* in the helper: what the wait waits for */
    void (*close)(void);
};

/* ---- what is true of each kind ----------------------------------------------------------- */

struct help {
    const struct kind *kind;
    struct tnt_signal holds;
    _Atomic bool has_ended; /* the wait */
};

static void *help(void *argument)
{
    struct help *h = argument;
    if (h->kind->hold != NULL)
        h->kind->hold();
    tnt_signal(&h->holds);
    await_count(&asked, 1);
    pthread_kill(main_thread, SIGUSR1);
    if (!atomic_load(&shall_end))
        await_count(&asked, 3);
    while (atomic_load(&shall_end) && !atomic_load(&h->has_ended))
        sched_yield();
    h->kind->give();
    return NULL;
}

static void ends_and_loses_nothing(const struct kind *kind)
{
    struct help h = {.kind = kind, .holds = tnt_signal_open()};
    pthread_t helper;
    begin();
    kind->open();
    listen(true);
    TN_CHECK(pthread_create(&helper, NULL, help, &h) == 0);
    tnt_await(&h.holds);
    assert_int_equal(kind->wait(TN_FOREVER), TN_ERR_INTERRUPTED);
    assert_string_equal(tn_error_detail(), "the program's hook ended the wait");
    assert_int_equal(atomic_load(&ended), 1);
    tn_interrupt_set(NULL, NULL);
    atomic_store(&h.has_ended, true);
    pthread_join(helper, NULL);
    assert_int_equal(kind->wait(tnt_deadline(20000)), 0);
    kind->close();
    finish();
    tnt_signal_close(&h.holds);
}

static void goes_on_and_ends_well(const struct kind *kind)
{
    struct help h = {.kind = kind, .holds = tnt_signal_open()};
    pthread_t helper;
    begin();
    kind->open();
    listen(false);
    TN_CHECK(pthread_create(&helper, NULL, help, &h) == 0);
    tnt_await(&h.holds);
    assert_int_equal(kind->wait(TN_FOREVER), 0);
    assert_true(atomic_load(&is_told));
    tn_interrupt_set(NULL, NULL);
    pthread_join(helper, NULL);
    kind->close();
    finish();
    tnt_signal_close(&h.holds);
}

#define KIND(name, ...)                                                                        \
    static const struct kind name = {__VA_ARGS__};                                             \
    TN_TEST(the_hook_ends_##name##_which_loses_nothing) { ends_and_loses_nothing(&name); }     \
    TN_TEST(name##_goes_on_when_the_hook_says_so) { goes_on_and_ends_well(&name); }

KIND(a_pop, .open = open_queues, .wait = pop, .give = push_one, .close = close_queues)
KIND(a_push, .open = open_full, .wait = push, .give = pop_one, .close = close_full)
KIND(a_wait_for_any, .open = open_queues, .wait = wait_any, .give = push_one,
     .close = close_queues)
KIND(a_wait_for_an_event, .open = open_event, .wait = wait_for_event, .give = set_event,
     .close = close_event)
KIND(a_wait_for_a_permit, .open = open_semaphore, .wait = wait_for_permit,
     .give = release_permit, .close = close_semaphore)
KIND(a_wait_for_an_owned_permit, .open = open_owned, .wait = wait_for_permit,
     .give = release_permit, .close = close_owned)
KIND(a_wait_for_a_lock, .open = open_lock, .hold = hold_lock, .wait = wait_for_lock,
     .give = release_lock, .close = close_lock)
KIND(a_wait_for_memory_of_the_arena, .open = use_arena, .wait = wait_for_memory,
     .give = free_memory, .close = free_another)
KIND(a_wait_for_memory_of_another_strategy, .open = use_files, .wait = wait_for_memory,
     .give = free_memory, .close = free_another)
KIND(a_wait_for_a_child, .open = start_process, .wait = wait_for_process, .give = end_process,
     .close = close_process)
KIND(a_wait_for_a_fork_server, .open = stop_server, .wait = fork_by_server,
     .give = continue_server, .close = close_server)
KIND(a_wait_for_a_group, .open = start_group, .wait = wait_for_group, .give = end_group,
     .close = close_group)
KIND(a_wait_for_a_result, .open = start_pool, .wait = fetch, .give = set_event,
     .close = close_pool)
KIND(a_submit, .open = start_pool, .wait = submit, .give = set_event, .close = close_submitted)
KIND(a_wait_for_a_pools_end, .open = start_ended_pool, .wait = join, .give = set_event,
     .close = close_pool)
KIND(a_wait_for_a_graph, .open = add_pending_task, .wait = wait_for_graph, .give = end_task,
     .close = close_sched)
KIND(a_run_of_a_graph, .open = add_pending_task, .wait = run_graph, .give = end_task,
     .close = close_sched)

/* ---- conditions -------------------------------------------------------------------------- */

static tn_condition *condition;
static _Atomic bool is_released;

static void open_condition(void)
{
    open_lock();
    TN_CHECK_OK(tn_condition_open(d, NULL, 0, &condition));
    hold_lock();
}

static void close_condition(void)
{
    tn_object_close(condition);
    tn_object_close(lock);
}

static void await_sleeper(const void *handle)
{
    const struct tni_object *object = ((const struct tn_object *)handle)->object;
    while ((atomic_load(&object->items) & TNI_WAIT_ARMED) == 0)
        sched_yield();
}

static char state_of(pid_t thread)
{
    char path[64], line[256] = "";
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", (int)thread);
    FILE *file = fopen(path, "r");
    TN_CHECK(file != NULL && fgets(line, sizeof line, file) != NULL);
    fclose(file);
    const char *state = strstr(line, ") ");
    return state != NULL ? state[2] : '?';
}

static void await_asleep(pid_t thread)
{
    while (state_of(thread) != 'S')
        sched_yield();
}

/*
 * The waiter is told to end while another thread has the lock: it does not call the hook
 * again before it has the lock.
 */
static void *keep_the_lock(void *argument)
{
    (void)argument;
    await_count(&asked, 1);
    hold_lock();
    pthread_kill(main_thread, SIGUSR1);
    await_count(&ended, 1);
    uint32_t before = atomic_load(&asked);
    await_sleeper(lock);
    for (int i = 0; i < 3; i++) {
        await_asleep(main_id);
        pthread_kill(main_thread, SIGUSR1);
    }
    await_asleep(main_id);
    TN_CHECK(atomic_load(&asked) == before);
    atomic_store(&is_released, true);
    release_lock();
    return NULL;
}

TN_TEST(a_wait_for_a_condition_that_the_hook_ends_has_the_lock_again)
{
    pthread_t helper;
    begin();
    open_condition();
    listen(true);
    TN_CHECK(pthread_create(&helper, NULL, keep_the_lock, NULL) == 0);
    assert_int_equal(tn_condition_wait(condition, lock, TN_FOREVER), TN_ERR_INTERRUPTED);
    assert_true(atomic_load(&is_released));
    assert_int_equal(atomic_load(&ended), 1);
    release_lock();
    pthread_join(helper, NULL);
    tn_interrupt_set(NULL, NULL);
    close_condition();
    finish();
}

static void *signal_condition(void *argument)
{
    (void)argument;
    await_count(&asked, 1);
    pthread_kill(main_thread, SIGUSR1);
    await_count(&asked, 3);
    hold_lock();
    TN_CHECK_OK(tn_condition_signal(condition));
    release_lock();
    return NULL;
}

TN_TEST(a_wait_for_a_condition_goes_on_when_the_hook_says_so)
{
    pthread_t helper;
    begin();
    open_condition();
    listen(false);
    TN_CHECK(pthread_create(&helper, NULL, signal_condition, NULL) == 0);
    assert_int_equal(tn_condition_wait(condition, lock, TN_FOREVER), 0);
    release_lock();
    pthread_join(helper, NULL);
    tn_interrupt_set(NULL, NULL);
    close_condition();
    finish();
}

static int wait_in_child(void *argument)
{
    tn_interrupt_set(NULL, NULL);
    hold_lock();
    tnt_signal(argument);
    TN_CHECK_OK(tn_condition_wait(condition, lock, tnt_deadline(20000)));
    release_lock();
    return 0;
}

static void *end_waiter(void *argument)
{
    (void)argument;
    await_count(&asked, 1);
    pthread_kill(main_thread, SIGUSR1);
    return NULL;
}

/*
 * Sleepers check every 100 ms: if the signals were lost, the checks alone would take too
 * long.
 */
TN_TEST_WITHIN(a_signal_of_a_condition_goes_to_an_uninterrupted_waiter, 60)
{
    struct tnt_signal waits = tnt_signal_open();
    begin();
    open_condition();
    for (int round = 0; round < 20; round++) {
        pthread_t helper;
        release_lock();
        pid_t child = tnt_fork(wait_in_child, &waits);
        tnt_await(&waits);
        hold_lock(); /* the waiter has released the lock, so it waits */
        listen(true);
        TN_CHECK(pthread_create(&helper, NULL, end_waiter, NULL) == 0);
        assert_int_equal(tn_condition_wait(condition, lock, TN_FOREVER), TN_ERR_INTERRUPTED);
        tn_interrupt_set(NULL, NULL);
        pthread_join(helper, NULL);
        TN_CHECK_OK(tn_condition_signal(condition));
        release_lock();
        tnt_wait_ok(child);
        hold_lock();
    }
    release_lock();
    close_condition();
    finish();
    tnt_signal_close(&waits);
}

/* ---- barriers ---------------------------------------------------------------------------- */

static tn_barrier *barrier;

static void *come_last(void *argument)
{
    await_count(&asked, 1);
    pthread_kill(main_thread, SIGUSR1);
    await_count(&asked, 3);
    *(int *)argument = tn_barrier_wait(barrier, TN_FOREVER);
    return NULL;
}

static int come_first(void *argument)
{
    (void)argument;
    tn_interrupt_set(NULL, NULL);
    return tn_barrier_wait(barrier, tnt_deadline(20000)) == TN_ERR_CLOSED ? 0 : 1;
}

TN_TEST(a_barrier_is_broken_by_a_waiter_that_the_hook_ends)
{
    pthread_t helper;
    begin();
    TN_CHECK_OK(tn_barrier_open(d, NULL, 3, 0, &barrier));
    pid_t child = tnt_fork(come_first, NULL);
    await_sleeper(barrier);
    listen(true);
    TN_CHECK(pthread_create(&helper, NULL, end_waiter, NULL) == 0);
    assert_int_equal(tn_barrier_wait(barrier, TN_FOREVER), TN_ERR_INTERRUPTED);
    assert_non_null(strstr(tn_error_detail(), "2 of 3 parties had arrived"));
    pthread_join(helper, NULL);
    tn_interrupt_set(NULL, NULL);
    assert_int_equal(tn_barrier_wait(barrier, TN_FOREVER), TN_ERR_CLOSED);
    tnt_wait_ok(child);
    TN_CHECK_OK(tn_barrier_reset(barrier));
    assert_int_equal(tn_barrier_wait(barrier, TN_NOW), TN_ERR_TIMED_OUT);
    tn_object_close(barrier);
    finish();
}

TN_TEST(a_wait_at_a_barrier_goes_on_when_the_hook_says_so)
{
    pthread_t helper;
    int of_last = -1;
    begin();
    TN_CHECK_OK(tn_barrier_open(d, NULL, 2, 0, &barrier));
    listen(false);
    TN_CHECK(pthread_create(&helper, NULL, come_last, &of_last) == 0);
    assert_int_equal(tn_barrier_wait(barrier, TN_FOREVER), 0);
    pthread_join(helper, NULL);
    assert_int_equal(of_last, 1);
    tn_interrupt_set(NULL, NULL);
    tn_object_close(barrier);
    finish();
}

/* ---- the hook itself --------------------------------------------------------------------- */

enum { SIGNALS = 50 };

static void *send_signals(void *argument)
{
    uint64_t *begun_ns = argument;
    await_count(&asked, 1);
    *begun_ns = tnt_until_ns(0);
    for (uint32_t i = 0; i < SIGNALS; i++) {
        await_asleep(main_id);
        uint32_t before = atomic_load(&asked);
        pthread_kill(main_thread, SIGUSR1);
        await_count(&asked, before + 1);
    }
    set_event();
    return NULL;
}

/* Without signals the hook is called every 100 ms, which would take five seconds. */
TN_TEST(the_hook_is_called_when_a_signal_comes)
{
    pthread_t helper;
    uint64_t begun_ns = 0;
    begin();
    open_event();
    listen(false);
    TN_CHECK(pthread_create(&helper, NULL, send_signals, &begun_ns) == 0);
    TN_CHECK_OK(tn_event_wait(event, TN_FOREVER));
    uint64_t took_ns = tnt_until_ns(0) - begun_ns;
    pthread_join(helper, NULL);
    tn_interrupt_set(NULL, NULL);
    assert_true(took_ns < SIGNALS * UINT64_C(50000000));
    close_event();
    finish();
}

/* The library has no lock and no thread record when it calls the hook. */
static int use_everything(void *context)
{
    tn_tensor *tensor;
    int64_t bytes = 4096;
    TN_CHECK_OK(tn_tensor_create(d, TN_UINT8, 1, &bytes, NULL, &tensor));
    TN_CHECK_OK(tn_queue_push_tensor(context, tensor, 0, TN_NOW));
    tn_tensor_unref(tensor);
    tn_queue *mine;
    TN_CHECK_OK(tn_queue_open(d, NULL, NULL, 0, &mine));
    TN_CHECK(tn_queue_pop_tensor(mine, tnt_deadline(1), &tensor) == TN_ERR_TIMED_OUT);
    tn_object_close(mine);
    TN_CHECK_OK(tn_domain_reap(d, NULL));
    return 0;
}

TN_TEST(the_hook_may_use_the_domain_and_what_is_waited_for)
{
    tn_tensor *tensor;
    begin();
    open_queues();
    tn_interrupt_set(use_everything, queue);
    TN_CHECK_OK(tn_queue_pop_tensor(queue, tnt_deadline(20000), &tensor));
    tn_interrupt_set(NULL, NULL);
    tn_tensor_unref(tensor);
    close_queues();
    finish();
}

TN_TEST(a_call_that_does_not_wait_calls_no_hook)
{
    begin();
    open_queues();
    listen(true);
    atomic_store(&is_told, true);
    push_one();
    assert_int_equal(pop(TN_FOREVER), 0);
    assert_int_equal(pop(TN_NOW), TN_ERR_TIMED_OUT);
    assert_int_equal(atomic_load(&asked), 0);
    tn_interrupt_set(NULL, NULL);
    close_queues();
    finish();
}
