/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests: fork() inside of calls of the room spawn. The child has nothing of what its parent
 * waits for, whether the hook of tn_interrupt_set() forks it or another thread does. The
 * child can close its copies of the parent's objects, and that harms neither process.
 *
 * A hook runs in the thread that waits, so it forks at a known point. What a fork() of
 * another thread could meet is tested in the same way: the waiting thread itself forks, in
 * close() or free().
 */
#include "harness/harness.h"
#include "harness/tensor.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "os/os.h"
#include "process/children.h"
#include "process/pool_world.h"
#include "process/process.h"
#include "spawn/pool.h"

enum { LONG_MS = 10000 };

static void expect_exit(pid_t pid, int code)
{
    int fd = pidfd_of(pid), status;
    TN_CHECK(fd >= 0);
    TN_CHECK(ends_within(fd, LONG_MS));
    close(fd);
    TN_CHECK(waitpid(pid, &status, 0) == pid);
    TN_CHECK(WIFEXITED(status));
    TN_CHECK(WEXITSTATUS(status) == code);
}

/* ---- the hook forks ---------------------------------------------------------------------- */

static tn_domain *domain;
static tn_forkserver *server;
static tn_process *process;
static tn_group *group;
static struct pool_world world;
static tn_tensor *large;
static struct tnt_signal go;

static struct {
    pid_t parent, child;
    int answer;            /* what the wait returned in the child */
    bool (*is_time)(void); /* whether to fork now; NULL: at once */
    void (*let_go)(void);  /* called in both processes, so that the wait can end */
    unsigned child_fds;    /* descriptors of the child when it begins */
} hook;

/* The parent continues its wait when the child has ended. */
static int fork_once(void *context)
{
    (void)context;
    if (tni_os_thread_id() != hook.parent || hook.child != 0 ||
        (hook.is_time != NULL && !hook.is_time()))
        return 0;
    pid_t child = fork();
    TN_CHECK(child >= 0);
    hook.child = child != 0 ? child : getpid();
    hook.child_fds = tnt_descriptor_count();
    hook.let_go();
    if (child == 0)
        return hook.answer;
    expect_exit(child, 0);
    return 0;
}

struct kind {
    void (*open)(void);
    int (*wait)(void);
    void (*let_go)(void);
    void (*drop)(void); /* called in both processes: drop what the call waited for */
    bool (*is_time)(void);
    int answer;
    unsigned gives_back; /* how many descriptors the end of the wait closes in the child */
};

static void ends_in_the_child(const struct kind *kind)
{
    kind->open();
    hook.parent = getpid();
    hook.child = 0;
    hook.answer = kind->answer;
    hook.is_time = kind->is_time;
    hook.let_go = kind->let_go;
    tn_interrupt_set(fork_once, NULL);
    int status = kind->wait();
    tn_interrupt_set(NULL, NULL);
    if (getpid() != hook.parent) {
        TN_CHECK(status == TN_ERR_INVALID);
        TN_CHECK(tnt_descriptor_count() == hook.child_fds - kind->gives_back);
        kind->drop();
        tn_domain_close(domain);
        _exit(0);
    }
    TN_CHECK_OK(status);
    assert_int_not_equal(hook.child, 0);
    kind->drop();
    close_domain(domain);
}

#define KIND(name, ...)                                                                        \
    TN_TEST(a_child_forked_in_##name##_has_nothing_of_it)                                      \
    {                                                                                          \
        ends_in_the_child(&(struct kind){__VA_ARGS__});                                        \
    }

/* ---- fork servers ------------------------------------------------------------------------ */

static int return_seven(tn_domain *of_child, void *argument)
{
    (void)of_child, (void)argument;
    return 7;
}

static void stop_child(pid_t pid)
{
    TN_CHECK(kill(pid, SIGSTOP) == 0);
    TN_CHECK(waitpid(pid, NULL, WUNTRACED) == pid);
}

static void open_stopped_server(void)
{
    domain = open_domain(8);
    server = open_server(domain);
    stop_child(tn_forkserver_pid(server));
}

static int fork_by_server(void)
{
    int status = tn_forkserver_fork(server, return_seven, NULL, 0, 0, &process);
    if (status == 0)
        TN_CHECK(end_of(process) == 7);
    return status;
}

static void continue_server(void) { TN_CHECK(kill(tn_forkserver_pid(server), SIGCONT) == 0); }

static void drop_server(void) { tn_forkserver_close(server); }

KIND(a_wait_for_a_fork_server, .open = open_stopped_server, .wait = fork_by_server,
     .let_go = continue_server, .drop = drop_server, .gives_back = 1)
KIND(a_wait_for_a_fork_server_that_its_hook_ends, .open = open_stopped_server,
     .wait = fork_by_server, .let_go = continue_server, .drop = drop_server, .answer = -1,
     .gives_back = 1)

static pthread_t other;

static void *fork_by_server_too(void *argument)
{
    (void)argument;
    tn_process *others = NULL;
    TN_CHECK_OK(tn_forkserver_fork(server, return_seven, NULL, 0, 0, &others));
    TN_CHECK(end_of(others) == 7);
    return NULL;
}

static void open_server_that_another_asks(void)
{
    open_stopped_server();
    TN_CHECK(pthread_create(&other, NULL, fork_by_server_too, NULL) == 0);
    while (tni_server_is_free(server))
        sched_yield();
}

static void drop_server_and_asker(void)
{
    if (getpid() == hook.parent)
        pthread_join(other, NULL);
    drop_server();
}

KIND(a_wait_for_the_turn_at_a_fork_server, .open = open_server_that_another_asks,
     .wait = fork_by_server, .let_go = continue_server, .drop = drop_server_and_asker)

/* ---- children and groups ----------------------------------------------------------------- */

static int fail_when_told(tn_domain *of_child, void *argument)
{
    (void)of_child, (void)argument;
    tnt_await(&go);
    tn_process_fail("it was told to");
}

static int fail_in_group(tn_domain *of_child, uint32_t index, void *argument)
{
    (void)index;
    return fail_when_told(of_child, argument);
}

static void expect_failure(const tn_process_status *end)
{
    TN_CHECK(end->exit_code == 1);
    TN_CHECK(strcmp(end->message, "it was told to") == 0);
}

static void open_process(void)
{
    domain = open_domain(8);
    go = tnt_signal_open();
    TN_CHECK_OK(tn_process_fork(domain, fail_when_told, NULL, 0, &process));
}

static int wait_for_process(void)
{
    tn_process_status end = {.struct_size = sizeof end};
    int status = tn_process_wait(process, TN_FOREVER, &end);
    if (status == 0)
        expect_failure(&end);
    return status;
}

static void tell(void) { tnt_signal(&go); }

static void drop_process(void)
{
    tn_process_close(process);
    tnt_signal_close(&go);
}

KIND(a_wait_for_a_child, .open = open_process, .wait = wait_for_process, .let_go = tell,
     .drop = drop_process)
KIND(a_wait_for_a_child_that_its_hook_ends, .open = open_process, .wait = wait_for_process,
     .let_go = tell, .drop = drop_process, .answer = -1)

static void open_group(void)
{
    domain = open_domain(8);
    go = tnt_signal_open();
    TN_CHECK_OK(tn_group_create(domain, &group));
    TN_CHECK_OK(tn_group_fork(group, 1, fail_in_group, NULL));
}

static int wait_for_group(void)
{
    tn_process_status end = {.struct_size = sizeof end};
    int status = tn_group_wait(group, 0, TN_FOREVER, &end);
    if (status == TN_ERR_CHILD_FAILED)
        expect_failure(&end);
    return status == TN_ERR_CHILD_FAILED ? 0 : status;
}

static void drop_group(void)
{
    tn_group_close(group);
    tnt_signal_close(&go);
}

KIND(a_wait_for_a_group, .open = open_group, .wait = wait_for_group, .let_go = tell,
     .drop = drop_group)

/* ---- pools ------------------------------------------------------------------------------- */

static void open_pool_by(uint32_t method)
{
    world = pool_open_by(method, 1);
    domain = world.domain;
}

static void open_busy_pool(void)
{
    open_pool_by(TN_START_FORK);
    pool_submit(&world, WAIT, 5);
}

static int fetch(void)
{
    tn_pool_result result = {.struct_size = sizeof result};
    int status = tn_pool_fetch(world.pool, TN_POOL_ANY_JOB, TN_FOREVER, &result);
    if (status == 0) {
        TN_CHECK_OK(result.status);
        tn_pool_result_fini(&result);
    }
    return status;
}

static void set_go(void) { TN_CHECK_OK(tn_event_set(world.go)); }

static void drop_pool(void)
{
    tn_pool_close(world.pool);
    tn_object_close(world.pids);
    tn_object_close(world.go);
    tn_forkserver_close(world.server);
}

KIND(a_wait_for_a_result, .open = open_busy_pool, .wait = fetch, .let_go = set_go,
     .drop = drop_pool)
KIND(a_wait_for_a_result_that_its_hook_ends, .open = open_busy_pool, .wait = fetch,
     .let_go = set_go, .drop = drop_pool, .answer = -1)

enum { LARGE_BYTES = 20 << 20 };

static void open_pool_without_memory(void)
{
    int64_t bytes = LARGE_BYTES;
    world = pool_open_world_in(pool_open_domain_of(32 << 20), pool_options(1));
    domain = world.domain;
    TN_CHECK_OK(tn_tensor_create(domain, TN_UINT8, 1, &bytes, NULL, &large));
}

static void free_memory(void) { large = tn_tensor_unref(large); }

/* Submit a job while there is no other; it has one result. */
static int submit_much(void)
{
    static const struct {
        struct pool_order order;
        uint8_t more[LARGE_BYTES];
    } much = {{ADD_ONE, 1}, {0}};
    tn_message message = {.bytes = &much, .size_bytes = sizeof much};
    int status = tn_pool_submit(world.pool, &message, 0, TN_FOREVER, NULL);
    if (status != 0)
        return status;
    TN_CHECK_OK(fetch());
    TN_CHECK(fetch() == TN_ERR_NOT_FOUND);
    return 0;
}

KIND(a_submit_that_waits_for_memory, .open = open_pool_without_memory, .wait = submit_much,
     .let_go = free_memory, .drop = drop_pool)

static void open_ended_pool(void)
{
    open_pool_by(TN_START_FORK);
    pool_submit(&world, ADD_ONE, 1);
    TN_CHECK_OK(fetch());
    stop_child(tnt_worker_pid(world.pool, 0));
    TN_CHECK_OK(tn_pool_end(world.pool));
}

static int join(void) { return tn_pool_join(world.pool, TN_FOREVER); }

static void continue_worker(void)
{
    TN_CHECK(kill(tnt_worker_pid(world.pool, 0), SIGCONT) == 0);
}

KIND(a_wait_for_a_pools_end, .open = open_ended_pool, .wait = join, .let_go = continue_worker,
     .drop = drop_pool)

static void open_pool_without_worker(void)
{
    open_pool_by(TN_START_FORKSERVER);
    pool_submit(&world, WAIT, 5);
    pool_kill_worker(&world, 0);
    stop_child(tn_forkserver_pid(world.server));
}

static bool is_asking(void) { return !tni_server_is_free(world.server); }

static void let_worker_start(void)
{
    TN_CHECK(kill(tn_forkserver_pid(world.server), SIGCONT) == 0);
    set_go();
}

KIND(a_wait_for_a_pools_fork_server, .open = open_pool_without_worker, .wait = fetch,
     .let_go = let_worker_start, .drop = drop_pool, .is_time = is_asking, .gives_back = 1)

static int fork_in_worker(void *context)
{
    (void)context;
    if (getpid() == hook.parent || hook.child != 0 || (hook.is_time != NULL && !hook.is_time()))
        return 0;
    hook.child = fork();
    TN_CHECK(hook.child >= 0);
    if (hook.child == 0)
        hook.child = getpid();
    if (hook.child == getpid())
        return 0;
    expect_exit(hook.child, 1);
    tnt_signal(&go);
    return 0;
}

static void open_pool_whose_worker_forks(bool (*is_time)(void))
{
    hook.parent = getpid();
    hook.is_time = is_time;
    go = tnt_signal_open();
    domain = pool_open_domain_of(32 << 20);
    tn_interrupt_set(fork_in_worker, NULL);
    world = pool_open_world_in(domain, pool_options(1));
    tn_interrupt_set(NULL, NULL);
}

static void expect_one_result(void)
{
    tn_pool_result result = pool_next(&world);
    assert_int_equal(result.pid, tnt_worker_pid(world.pool, 0));
    assert_int_equal(result.status, 0);
    assert_int_equal(result.attempt, 1);
    tn_pool_result_fini(&result);
    pool_close_world(&world);
    tnt_signal_close(&go);
}

TN_TEST(a_child_forked_in_a_worker_that_waits_for_a_job_is_no_worker)
{
    open_pool_whose_worker_forks(NULL);
    tnt_await(&go);
    pool_submit(&world, ADD_ONE, 1);
    expect_one_result();
}

enum { MIB = 1 << 20 };

static bool is_memory_short(void)
{
    int64_t bytes = MIB;
    tn_tensor *t;
    bool is_short = tn_tensor_create(domain, TN_UINT8, 1, &bytes, NULL, &t) != 0;
    if (!is_short)
        tn_tensor_unref(t);
    return is_short;
}

TN_TEST(a_child_forked_in_a_waiting_worker_is_no_worker)
{
    tn_tensor *all[32];
    int64_t bytes = MIB;
    uint32_t count = 0;
    open_pool_whose_worker_forks(is_memory_short);
    while (!is_memory_short())
        TN_CHECK_OK(tn_tensor_create(domain, TN_UINT8, 1, &bytes, NULL, &all[count++]));
    pool_submit(&world, SEND_MUCH, MIB);
    tnt_await(&go);
    while (count > 0)
        tn_tensor_unref(all[--count]);
    expect_one_result();
}

/* ---- another thread forks ---------------------------------------------------------------- */

static struct {
    pid_t parent;
    int fd;                              /* fork after this descriptor was closed; -1: do not */
    bool (*is_freed)(const void *block); /* fork after this block was freed; NULL: do not */
    void (*in_child)(void);              /* the child closes its copies here */
} at;

static void fork_here(void)
{
    pid_t child = fork();
    TN_CHECK(child >= 0);
    if (child != 0) {
        expect_exit(child, 0);
        return;
    }
    at.in_child();
    _exit(0);
}

/* This close() replaces that of libc. */
int close(int fd)
{
    int status = (int)syscall(SYS_close, fd);
    if (at.fd == fd && getpid() == at.parent) {
        at.fd = -1;
        fork_here();
    }
    return status;
}

static int watched_fd;

static void close_copy_of_process(void)
{
    TN_CHECK(fcntl(STDERR_FILENO, F_DUPFD, watched_fd) == watched_fd);
    tn_process_close(process);
    TN_CHECK(fcntl(watched_fd, F_GETFD) >= 0);
}

static void fork_when_collected(bool is_pid_fd)
{
    open_process();
    tell();
    watched_fd = is_pid_fd ? process->pid_fd : process->message_fd;
    at.parent = getpid();
    at.in_child = close_copy_of_process;
    at.fd = watched_fd;
    TN_CHECK_OK(wait_for_process());
    assert_int_equal(at.fd, -1);
    drop_process();
    close_domain(domain);
}

TN_TEST(a_copy_of_a_collected_child_closes_nothing_twice)
{
    fork_when_collected(true);
    fork_when_collected(false);
}

static int look_at_descriptors(tn_domain *of_child, void *argument)
{
    (void)of_child;
    return fcntl(*(const int *)argument, F_GETFD) >= 0 ? 0 : 1;
}

static int close_server_and_fork(void *argument)
{
    (void)argument;
    unsigned before = tnt_descriptor_count();
    drop_server();
    int mine = -1, fd;
    for (unsigned i = tnt_descriptor_count(); i <= before; i++) {
        TN_CHECK((fd = dup(STDERR_FILENO)) >= 0);
        TN_CHECK_OK(tn_process_fork(domain, look_at_descriptors, &fd, 0, &process));
        TN_CHECK(end_of(process) == 0);
        mine = fd;
    }
    TN_CHECK(mine >= 0);
    return 0;
}

TN_TEST(a_child_that_closed_its_copy_of_a_server_can_fork)
{
    domain = open_domain(8);
    server = open_server(domain);
    tnt_wait_ok(tnt_fork(close_server_and_fork, NULL));
    drop_server();
    close_domain(domain);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) /* they have free() */
/* This free() replaces that of libc. */
void free(void *block)
{
    static void (*libc_free)(void *);
    bool is_it = at.is_freed != NULL && block != NULL && at.is_freed(block);
    if (libc_free == NULL)
        *(void **)&libc_free = dlsym(RTLD_NEXT, "free");
    libc_free(block);
    if (is_it) {
        at.is_freed = NULL;
        fork_here();
    }
}

/* realloc() moves each block here, so every old block is freed. */
void *realloc(void *block, size_t size_bytes)
{
    void *moved = malloc(size_bytes);
    if (moved != NULL && block != NULL)
        memcpy(moved, block, TNI_MIN(size_bytes, malloc_usable_size(block)));
    if (moved != NULL)
        free(block);
    return moved;
}

static pid_t freed_pid;
static const void *freed_block;

static bool is_child_with_pid(const void *block)
{
    const struct tn_process *child = block;
    return malloc_usable_size((void *)block) >= sizeof *child && child->domain == domain &&
           child->pid == freed_pid;
}

static bool is_block(const void *block) { return block == freed_block; }

static bool is_list_of_process(const void *block)
{
    return malloc_usable_size((void *)block) >= sizeof process &&
           memcmp(block, &process, sizeof process) == 0;
}

static void stop_as_the_second(struct tn_domain *of_child)
{
    static int passed; /* counts the server and its child */
    (void)of_child;
    if (++passed == 2)
        raise(SIGSTOP);
}

static int interrupt_once_it_is_stopped(void *context)
{
    (void)context;
    siginfo_t how;
    TN_CHECK(waitid(P_ALL, 0, &how, WSTOPPED) == 0);
    freed_pid = how.si_pid;
    at.is_freed = is_child_with_pid;
    return -1;
}

TN_TEST(a_copy_of_a_server_closes_a_late_child_once)
{
    domain = open_domain(8);
    tni_process_hook(domain, &(struct tni_fork_hooks){.child = stop_as_the_second});
    server = open_server(domain);
    at.in_child = drop_server;
    tn_interrupt_set(interrupt_once_it_is_stopped, NULL);
    TN_CHECK(fork_by_server() == TN_ERR_INTERRUPTED);
    tn_interrupt_set(NULL, NULL);
    assert_null(at.is_freed);
    drop_server();
    close_domain(domain);
}

TN_TEST(a_copy_of_a_pool_closes_a_dead_worker_once)
{
    open_pool_by(TN_START_FORK);
    at.in_child = drop_pool;
    freed_pid = tnt_worker_pid(world.pool, 0);
    at.is_freed = is_child_with_pid;
    pool_kill_worker(&world, 0);
    pool_await_restart(&world, 1);
    assert_null(at.is_freed);
    pool_close_world(&world);
}

TN_TEST(a_copy_of_a_pool_with_a_growing_table_can_be_closed)
{
    tn_pool_options options = pool_options(1);
    options.capacity = 1024;
    world = pool_open_world(options);
    pool_submit(&world, KEEP_NOTHING, 0);
    at.in_child = drop_pool;
    freed_block = world.pool->table.table;
    at.is_freed = is_block;
    for (uint32_t i = 1; i < options.capacity && at.is_freed != NULL; i++)
        pool_submit(&world, KEEP_NOTHING, 0);
    assert_null(at.is_freed);
    pool_close_world(&world);
}

TN_TEST(a_copy_of_a_pool_with_a_longer_job_can_be_closed)
{
    uint8_t bytes[1 << 16] = {0};
    tn_message message = {.bytes = bytes, .size_bytes = sizeof bytes};
    open_pool_by(TN_START_FORK);
    pool_submit(&world, KEEP_NOTHING, 0);
    at.in_child = drop_pool;
    freed_block = world.pool->out;
    at.is_freed = is_block;
    TN_CHECK_OK(tn_pool_submit(world.pool, &message, 0, TN_NOW, NULL));
    assert_null(at.is_freed);
    pool_close_world(&world);
}

TN_TEST(a_copy_of_a_growing_group_can_be_closed)
{
    open_group();
    process = tn_group_get(group, 0);
    at.in_child = drop_group;
    at.is_freed = is_list_of_process;
    TN_CHECK_OK(tn_group_fork(group, 1, fail_in_group, NULL));
    assert_null(at.is_freed);
    drop_group();
    close_domain(domain);
}
#endif
