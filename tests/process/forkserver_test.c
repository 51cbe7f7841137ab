/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fork servers and their children.
 */
#include "harness/harness.h"
#include "harness/tensor.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "process/children.h"
#include "process/main_thread.h"
#include "process/process.h"

static int sleep_for_ever(tn_domain *domain, void *argument)
{
    (void)domain, (void)argument;
    return pause_for_ever();
}

static int exit_with(tn_domain *domain, void *argument)
{
    (void)domain;
    return *(int *)argument;
}

static tn_process *start_exit(tn_forkserver *server, int code)
{
    return start(server, exit_with, &code, sizeof code);
}

/* ---- the child --------------------------------------------------------------------------- */

static int sum_bytes(tn_domain *domain, void *argument)
{
    const uint8_t *bytes = argument;
    unsigned sum = 0;
    (void)domain;
    if ((uintptr_t)argument % 16 != 0)
        return 255;
    for (size_t i = 0; i < TN_FORKSERVER_MAX_BYTES; i++)
        sum += bytes[i];
    return (int)(sum % 251);
}

TN_TEST(a_child_of_a_server_gets_a_copy_of_its_argument)
{
    tn_domain *domain = open_domain(8);
    tn_forkserver *server = open_server(domain);
    static uint8_t bytes[TN_FORKSERVER_MAX_BYTES];
    unsigned sum = 0;
    for (size_t i = 0; i < sizeof bytes; i++)
        sum += bytes[i] = (uint8_t)tnt_random();
    tn_process *process = start(server, sum_bytes, bytes, sizeof bytes);
    memset(bytes, 0, sizeof bytes);
    assert_int_equal(end_of(process), (int)(sum % 251));
    for (int code = 0; code <= 255; code += 51)
        assert_int_equal(end_of(start_exit(server, code)), code);
    tn_forkserver_close(server);
    close_domain(domain);
}

struct expected_parent {
    pid_t parent;
    uint32_t parent_seat;
};

static int check_family(tn_domain *domain, void *argument)
{
    const struct expected_parent *expected = argument;
    if (getppid() != expected->parent)
        return 2;
    if (tnt_seat(domain) == expected->parent_seat)
        return 3;
    return (pid_t)syscall(SYS_gettid) == getpid() ? 0 : 4;
}

TN_TEST(a_servers_child_belongs_to_the_main_process_with_a_seat)
{
    tn_domain *domain = open_domain(8);
    tn_forkserver *server = open_server(domain);
    struct expected_parent expected = {getpid(), tnt_seat(domain)};
    assert_int_not_equal(tn_forkserver_pid(server), getpid());
    tn_process *process = start(server, check_family, &expected, sizeof expected);
    assert_int_not_equal(tn_process_pid(process), tn_forkserver_pid(server));
    assert_int_equal(end_of(process), 0);
    tn_forkserver_close(server);
    close_domain(domain);
}

TN_TEST(kill_wait_and_close_are_those_of_any_child)
{
    tn_domain *domain = open_domain(8);
    tn_forkserver *server = open_server(domain);
    unsigned before = tnt_descriptor_count();
    tn_process *process = start(server, sleep_for_ever, NULL, 0);
    assert_int_equal(tnt_descriptor_count(), before + 2);
    assert_int_equal(tn_process_wait(process, TN_NOW, NULL), TN_ERR_TIMED_OUT);
    TN_CHECK_OK(tn_process_kill(process, SIGUSR1));
    tn_process_status status = await_end(process);
    assert_int_equal(status.exit_code, -1);
    assert_int_equal(status.signal, SIGUSR1);
    assert_int_equal(status.pid, tn_process_pid(process));
    tn_process_close(process);
    process = start(server, sleep_for_ever, NULL, 0);
    pid_t pid = tn_process_pid(process);
    tn_process_close(process);
    assert_int_equal(kill(pid, 0), -1);
    assert_int_equal(errno, ESRCH);
    assert_int_equal(tnt_descriptor_count(), before);
    tn_forkserver_close(server);
    assert_int_equal(tnt_descriptor_count(), before - 3);
    close_domain(domain);
}

static int fail_saying(tn_domain *domain, void *argument)
{
    (void)domain;
    tn_process_fail(argument);
}

TN_TEST(a_child_of_a_server_leaves_a_message)
{
    tn_domain *domain = open_domain(8);
    tn_forkserver *server = open_server(domain);
    tn_process *process = start(server, fail_saying, "no such file", 13);
    assert_string_equal(await_end(process).message, "no such file");
    tn_process_close(process);
    tn_forkserver_close(server);
    close_domain(domain);
}

static int write_word(tn_domain *domain, void *argument)
{
    tn_tensor *tensor;
    tn_queue *queue;
    TN_CHECK_OK(tn_object_open_id(domain, TN_OBJECT_QUEUE, *(uint64_t *)argument, &queue));
    TN_CHECK_OK(tn_queue_pop_tensor(queue, tnt_deadline(10000), &tensor));
    *(int32_t *)tn_tensor_data(tensor) = 7;
    tn_tensor_unref(tensor);
    tn_object_close(queue);
    return 0;
}

TN_TEST(a_child_of_a_server_shares_what_was_made_after_the_server)
{
    tn_domain *domain = open_domain(8);
    tn_forkserver *server = open_server(domain);
    int64_t size = 1;
    tn_queue *queue;
    tn_tensor *tensor;
    TN_CHECK_OK(tn_queue_open(domain, NULL, NULL, 0, &queue));
    TN_CHECK_OK(tn_tensor_create(domain, TN_INT32, 1, &size,
                                 TN_OPTIONS(tn_tensor_options, .flags = TN_TENSOR_ZEROED),
                                 &tensor));
    TN_CHECK_OK(tn_queue_push_tensor(queue, tensor, 0, TN_NOW));
    uint64_t id = tn_object_id(queue);
    assert_int_equal(end_of(start(server, write_word, &id, sizeof id)), 0);
    assert_int_equal(*(int32_t *)tn_tensor_data(tensor), 7);
    tn_tensor_unref(tensor);
    tn_object_close(queue);
    tn_forkserver_close(server);
    close_domain(domain);
}

static void *take_twice(void *mutex)
{
    TN_CHECK(pthread_mutex_trylock(mutex) == EBUSY);
    return NULL;
}

static volatile sig_atomic_t raised;
static void note_signal(int number) { raised = number; }

/* What libc keeps of the calling thread must be right in the child. */
static int use_threads(tn_domain *domain, void *argument)
{
    pthread_mutexattr_t attribute;
    pthread_mutex_t mutex;
    pthread_t thread;
    (void)domain, (void)argument;
    TN_CHECK(pthread_mutexattr_init(&attribute) == 0);
    TN_CHECK(pthread_mutexattr_settype(&attribute, PTHREAD_MUTEX_ERRORCHECK) == 0);
    TN_CHECK(pthread_mutexattr_setprotocol(&attribute, PTHREAD_PRIO_INHERIT) == 0);
    TN_CHECK(pthread_mutex_init(&mutex, &attribute) == 0);
    TN_CHECK(pthread_mutex_lock(&mutex) == 0);
    TN_CHECK(pthread_mutex_lock(&mutex) == EDEADLK);
    TN_CHECK(pthread_create(&thread, NULL, take_twice, &mutex) == 0);
    TN_CHECK(pthread_join(thread, NULL) == 0);
    TN_CHECK(pthread_mutex_unlock(&mutex) == 0);
    /*
     * libc makes the clock's id of the pid that it keeps; the kernel refuses the pid of
     * another process.
     */
    clockid_t clock;
    struct timespec used;
    TN_CHECK(pthread_getcpuclockid(pthread_self(), &clock) == 0);
    TN_CHECK(clock_gettime(clock, &used) == 0);
    signal(SIGUSR2, note_signal);
    raise(SIGUSR2);
    return raised == SIGUSR2 ? 0 : 2;
}

TN_TEST(threads_mutexes_and_raise_work_in_a_child_of_a_server)
{
    tn_domain *domain = open_domain(8);
    tn_forkserver *server = open_server(domain);
    assert_int_equal(end_of(start(server, use_threads, NULL, 0)), 0);
    tn_forkserver_close(server);
    close_domain(domain);
}

static int count_descriptors(tn_domain *domain, void *argument)
{
    (void)domain, (void)argument;
    return (int)tnt_descriptor_count();
}

TN_TEST(a_servers_child_has_no_descriptor_of_server_or_sibling)
{
    tn_domain *domain = open_domain(32);
    tn_process *alone = NULL, *siblings[12];
    TN_CHECK_OK(tn_process_fork(domain, count_descriptors, NULL, 0, &alone));
    int expected = end_of(alone);
    tn_forkserver *server = open_server(domain), *other = open_server(domain);
    for (size_t i = 0; i < 12; i++)
        siblings[i] = start(server, sleep_for_ever, NULL, 0);
    assert_int_equal(end_of(start(server, count_descriptors, NULL, 0)), expected);
    assert_int_equal(end_of(start(other, count_descriptors, NULL, 0)), expected);
    TN_CHECK_OK(tn_process_fork(domain, count_descriptors, NULL, 0, &alone));
    assert_int_equal(end_of(alone), expected);
    for (size_t i = 0; i < 12; i++)
        tn_process_close(siblings[i]);
    tn_forkserver_close(other);
    tn_forkserver_close(server);
    close_domain(domain);
}

/* ---- the server -------------------------------------------------------------------------- */

TN_TEST(a_server_that_died_is_named_and_its_children_go_on)
{
    tn_domain *domain = open_domain(8);
    tn_forkserver *server = open_server(domain);
    tn_process *child = start(server, sleep_for_ever, NULL, 0), *none = NULL;
    unsigned before = tnt_descriptor_count();
    pid_t pid = tn_forkserver_pid(server);
    int fd = pidfd_of(pid);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_true(ends_within(fd, 10000));
    close(fd);
    for (int again = 0; again < 2; again++) {
        char name[32];
        assert_int_equal(tn_forkserver_fork(server, sleep_for_ever, NULL, 0, 0, &none),
                         TN_ERR_PEER_DIED);
        snprintf(name, sizeof name, "process %d,", (int)pid);
        assert_non_null(strstr(tn_error_detail(), name));
        assert_int_equal(tn_error_peer().pid, pid);
        assert_null(none);
    }
    assert_int_equal(tnt_descriptor_count(), before - 2);
    assert_int_equal(tn_process_wait(child, tnt_deadline(20), NULL), TN_ERR_TIMED_OUT);
    TN_CHECK_OK(tn_process_kill(child, SIGUSR1));
    assert_int_equal(await_end(child).signal, SIGUSR1);
    tn_process_close(child);
    tn_forkserver_close(server);
    close_domain(domain);
}

#if defined(TN_KILL_POINTS)
void tni_kill_point_arm(const char *name, uint32_t passing);

TN_TEST(a_server_that_dies_before_it_has_answered_loses_no_child)
{
    tn_domain *domain = open_domain(8);
    tni_kill_point_arm("forkserver_forked", 1);
    tn_forkserver *server = open_server(domain);
    tni_kill_point_arm(NULL, 0);
    tn_process *child = start_exit(server, 9), *none = NULL;
    assert_int_equal(end_of(child), 9);
    assert_int_equal(tn_forkserver_fork(server, sleep_for_ever, NULL, 0, 0, &none),
                     TN_ERR_PEER_DIED);
    tn_forkserver_close(server);
    close_domain(domain);
}

TN_TEST(a_child_without_a_seat_whose_server_died_leaves_no_zombie)
{
    tn_domain *domain = open_domain(2);
    tn_process *none = NULL;
    tni_kill_point_arm("forkserver_forked", 1);
    tn_forkserver *server = open_server(domain);
    tni_kill_point_arm(NULL, 0);
    assert_int_equal(tn_forkserver_fork(server, sleep_for_ever, NULL, 0, 0, &none),
                     TN_ERR_FULL);
    assert_non_null(strstr(tn_error_detail(), "seat"));
    assert_null(none);
    tn_forkserver_close(server);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
    close_domain(domain);
}

static int forks_passed;

/* The first process that gets here is the server. */
static void die_as_the_second(struct tn_domain *domain)
{
    (void)domain;
    if (++forks_passed == 2)
        raise(SIGKILL);
}

TN_TEST(a_child_that_was_killed_as_its_server_was_leaves_no_zombie)
{
    tn_domain *domain = open_domain(8);
    tn_process *none = NULL;
    tni_process_hook(domain, &(struct tni_fork_hooks){.child = die_as_the_second});
    tni_kill_point_arm("forkserver_forked", 1);
    tn_forkserver *server = open_server(domain);
    tni_kill_point_arm(NULL, 0);
    assert_int_equal(tn_forkserver_fork(server, sleep_for_ever, NULL, 0, 0, &none),
                     TN_ERR_SYSTEM);
    assert_null(none);
    tn_forkserver_close(server);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
    close_domain(domain);
}

TN_TEST(a_server_goes_on_after_a_child_that_died_at_its_start)
{
    tn_domain *domain = open_domain(8);
    tn_process *none = NULL;
    tni_kill_point_arm("process_bound_to_parent", 2); /* the server passes this point, too */
    tn_forkserver *server = open_server(domain);
    tni_kill_point_arm(NULL, 0);
    for (int again = 0; again < 2; again++)
        assert_int_equal(tn_forkserver_fork(server, sleep_for_ever, NULL, 0, 0, &none),
                         TN_ERR_SYSTEM);
    tn_forkserver_close(server);
    close_domain(domain);
}
#endif

TN_TEST(bad_requests_are_errors_and_the_server_goes_on)
{
    tn_domain *domain = open_domain(3);
    tn_forkserver *server = open_server(domain), *none_server = NULL;
    tn_process *none = NULL;
    static uint8_t bytes[TN_FORKSERVER_MAX_BYTES + 1];
    unsigned before = tnt_descriptor_count();
    assert_int_equal(tn_forkserver_start(NULL, &none_server), TN_ERR_INVALID);
    assert_int_equal(tn_forkserver_start(domain, NULL), TN_ERR_INVALID);
    assert_int_equal(tn_forkserver_fork(NULL, exit_with, NULL, 0, 0, &none), TN_ERR_INVALID);
    assert_int_equal(tn_forkserver_fork(server, NULL, NULL, 0, 0, &none), TN_ERR_INVALID);
    assert_int_equal(tn_forkserver_fork(server, exit_with, NULL, 4, 0, &none), TN_ERR_INVALID);
    assert_int_equal(tn_forkserver_fork(server, exit_with, bytes, sizeof bytes, 0, &none),
                     TN_ERR_INVALID);
    assert_int_equal(tn_forkserver_fork(server, exit_with, bytes, 4, 8, &none), TN_ERR_INVALID);
    tn_process *child = start(server, sleep_for_ever, NULL, 0);
    assert_int_equal(tn_forkserver_fork(server, exit_with, bytes, 4, 0, &none), TN_ERR_FULL);
    assert_non_null(strstr(tn_error_detail(), "seat"));
    tn_process_close(child);
    TN_CHECK_OK(tn_domain_reap(domain, NULL));
    assert_int_equal(end_of(start_exit(server, 5)), 5);
    assert_int_equal(tnt_descriptor_count(), before);
    assert_null(tn_forkserver_close(NULL));
    tn_forkserver_close(server);
    close_domain(domain);
}

/* Hard limits, so the library cannot raise them. */
static const struct rlimit none_left = {3, 3};

static int ask_without_descriptors(void *domain)
{
    tn_forkserver *server = open_server(domain);
    tn_process *none = NULL;
    TN_CHECK(setrlimit(RLIMIT_NOFILE, &none_left) == 0);
    TN_CHECK(tn_forkserver_fork(server, sleep_for_ever, NULL, 0, 0, &none) == TN_ERR_SYSTEM);
    TN_CHECK(none == NULL);
    tn_forkserver_close(server);
    tn_domain_close(domain);
    return 0;
}

TN_TEST(fork_fails_without_a_descriptor_and_the_server_goes_on)
{
    tn_domain *domain = open_domain(8);
    tnt_wait_ok(tnt_fork(ask_without_descriptors, domain));
    tn_forkserver *server = open_server(domain);
    tn_process *none = NULL;
    unsigned before = tnt_descriptor_count();
    assert_int_equal(end_of(start_exit(server, 5)), 5);
    /* The table of the server is full: a request arrives without its descriptor. */
    assert_int_equal(prlimit(tn_forkserver_pid(server), RLIMIT_NOFILE, &none_left, NULL), 0);
    for (int again = 0; again < 2; again++)
        assert_int_equal(tn_forkserver_fork(server, sleep_for_ever, NULL, 0, 0, &none),
                         TN_ERR_SYSTEM);
    assert_int_equal(tnt_descriptor_count(), before);
    tn_forkserver_close(server);
    close_domain(domain);
}

static int use_another_ones(void *argument)
{
    tn_forkserver *server = argument;
    tn_process *none = NULL;
    TN_CHECK(tn_forkserver_fork(server, sleep_for_ever, NULL, 0, 0, &none) == TN_ERR_INVALID);
    tn_forkserver_close(server);
    return 0;
}

TN_TEST(a_process_that_did_not_start_a_server_cannot_use_or_end_it)
{
    tn_domain *domain = open_domain(8);
    tn_forkserver *server = open_server(domain);
    tnt_wait_ok(tnt_fork(use_another_ones, server));
    assert_int_equal(end_of(start_exit(server, 5)), 5);
    tn_forkserver_close(server);
    close_domain(domain);
}

struct threads {
    tn_domain *domain;
    tn_forkserver *server;
    int first,
        started; /* the exit code of the server's first child; how many children it started */
};

static void start_eight(struct threads *job, tn_forkserver *server)
{
    for (int i = 0; i < 8; i++) {
        free(malloc(100000));
        TN_CHECK(end_of(start_exit(server, job->first + i)) == job->first + i);
        job->started++;
    }
}

static void *start_with_own(void *argument)
{
    struct threads *job = argument;
    tn_forkserver *server = open_server(job->domain);
    start_eight(job, server);
    tn_forkserver_close(server);
    return NULL;
}

static void *start_with_shared(void *argument)
{
    struct threads *job = argument;
    start_eight(job, job->server);
    return NULL;
}

static void start_in_threads(tn_domain *domain, tn_forkserver *server,
                             void *(*start_many)(void *))
{
    pthread_t threads[4];
    struct threads jobs[4];
    for (int i = 0; i < 4; i++) {
        jobs[i] = (struct threads){domain, server, 10 * i, 0};
        assert_int_equal(pthread_create(&threads[i], NULL, start_many, &jobs[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(jobs[i].started, 8);
    }
}

TN_TEST(threads_may_have_servers_of_their_own)
{
    tn_domain *domain = open_domain(32);
    start_in_threads(domain, NULL, start_with_own);
    close_domain(domain);
}

TN_TEST_WITHIN(threads_that_share_a_server_get_their_own_children, 30)
{
    tn_domain *domain = open_domain(32);
    tn_forkserver *server = open_server(domain);
    start_in_threads(domain, server, start_with_shared);
    tn_forkserver_close(server);
    close_domain(domain);
}

/* ---- signals ----------------------------------------------------------------------------- */

static int tell_signals(tn_domain *domain, void *argument)
{
    struct sigaction interrupt, user;
    (void)domain, (void)argument;
    sigaction(SIGINT, NULL, &interrupt);
    sigaction(SIGUSR1, NULL, &user);
    return (interrupt.sa_handler == SIG_DFL ? 1 : 0) + (user.sa_handler == note_signal ? 2 : 0);
}

TN_TEST(a_server_ignores_terminal_signals_and_its_children_do_not)
{
    tn_domain *domain = open_domain(8);
    signal(SIGUSR1, note_signal);
    signal(SIGINT, SIG_DFL);
    tn_forkserver *server = open_server(domain);
    signal(SIGUSR1, SIG_IGN);
    /* After its first answer the server serves requests. */
    assert_int_equal(end_of(start(server, tell_signals, NULL, 0)), 3);
    const int numbers[] = {SIGINT, SIGQUIT, SIGHUP};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        assert_int_equal(kill(tn_forkserver_pid(server), numbers[i]), 0);
        assert_int_equal(end_of(start(server, tell_signals, NULL, 0)), 3);
    }
    tn_forkserver_close(server);
    signal(SIGUSR1, SIG_DFL);
    close_domain(domain);
}

/* ---- with the main process --------------------------------------------------------------- */

struct family {
    tn_domain *domain;
    int pids[2]; /* a pipe for the pids of the server and of the child, once both run */
    pid_t server, child;
    uint32_t flags;
    bool is_threaded, has_lost_its_server, has_exited, has_no_main_thread;
    tn_process *process;
};

static void *start_family(void *argument)
{
    struct family *family = argument;
    tn_process *process = NULL;
    tn_forkserver *server = open_server(family->domain);
    int server_fd = pidfd_of(tn_forkserver_pid(server));
    TN_CHECK_OK(tn_forkserver_fork(server, sleep_for_ever, NULL, 0, family->flags, &process));
    family->server = tn_forkserver_pid(server);
    family->child = tn_process_pid(process);
    if (family->has_lost_its_server) {
        TN_CHECK(kill(family->server, SIGKILL) == 0);
        TN_CHECK(ends_within(server_fd, 10000));
    }
    return process;
}

static void *go_on_without_main_thread(void *argument)
{
    struct family *family = argument;
    pid_t pids[2] = {family->server, family->child};
    int server_fd = pidfd_of(family->server);
    await_end_of_main_thread();
    TN_CHECK(tn_process_wait(family->process, tnt_deadline(50), NULL) == TN_ERR_TIMED_OUT);
    TN_CHECK(!ends_within(server_fd, 0));
    TN_CHECK(write(family->pids[1], pids, sizeof pids) == sizeof pids);
    pause_for_ever();
    return NULL;
}

static int leave_main_thread(struct family *family)
{
    pthread_t thread;
    family->process = start_family(family);
    TN_CHECK(pthread_create(&thread, NULL, go_on_without_main_thread, family) == 0);
    pthread_exit(NULL);
}

static int be_main(void *argument)
{
    struct family *family = argument;
    pthread_t thread;
    void *process = NULL;
    if (family->has_no_main_thread)
        return leave_main_thread(family);
    if (family->is_threaded) {
        TN_CHECK(pthread_create(&thread, NULL, start_family, family) == 0);
        TN_CHECK(pthread_join(thread, &process) == 0);
        TN_CHECK(tn_process_wait(process, tnt_deadline(50), NULL) == TN_ERR_TIMED_OUT);
    } else {
        start_family(family);
    }
    pid_t pids[2] = {family->server, family->child};
    TN_CHECK(write(family->pids[1], pids, sizeof pids) == sizeof pids);
    if (family->has_exited)
        _exit(0);
    return pause_for_ever();
}

struct descriptors {
    int server, child; /* pidfds; -1: the process has ended already */
    pid_t child_pid;
};

static struct descriptors watch(const struct family *family)
{
    pid_t pids[2];
    TN_CHECK(read(family->pids[0], pids, sizeof pids) == sizeof pids);
    return (struct descriptors){pidfd_of(pids[0]), pidfd_of(pids[1]), pids[1]};
}

static void expect_ends(int pid_fd)
{
    assert_true(pid_fd < 0 || ends_within(pid_fd, 10000));
    close(pid_fd);
}

static void end_family(const struct family *family)
{
    close(family->pids[0]);
    close(family->pids[1]);
    close_domain(family->domain);
}

/* However the main process ends, all that it started ends with it. */
static void family_ends(struct family family, int signal)
{
    family.domain = open_domain(8);
    assert_int_equal(pipe(family.pids), 0);
    pid_t main_pid = tnt_fork(be_main, &family);
    struct descriptors fds = watch(&family);
    if (!family.has_exited) {
        assert_true(fds.child >= 0);
        assert_false(ends_within(fds.child, 0));
        assert_int_equal(kill(main_pid, signal), 0);
    }
    tnt_wait(main_pid);
    expect_ends(fds.server);
    if ((family.flags & TN_PROCESS_DETACHED) != 0) {
        assert_false(ends_within(fds.child, 50));
        assert_int_equal(kill(fds.child_pid, SIGKILL), 0);
    }
    expect_ends(fds.child);
    end_family(&family);
}

TN_TEST(server_and_child_end_when_the_main_process_is_killed)
{
    family_ends((struct family){0}, SIGKILL);
}

TN_TEST(server_and_child_end_when_the_main_process_gets_sigterm)
{
    family_ends((struct family){0}, SIGTERM);
}

TN_TEST(server_and_child_end_when_the_main_process_exits_abruptly)
{
    family_ends((struct family){.has_exited = true}, 0);
}

TN_TEST(server_and_child_survive_the_thread_that_started_them)
{
    family_ends((struct family){.is_threaded = true}, SIGKILL);
}

TN_TEST(server_and_child_survive_an_exit_of_the_main_thread_only)
{
    family_ends((struct family){.has_no_main_thread = true}, SIGKILL);
}

TN_TEST(a_child_whose_server_died_ends_with_the_main_process)
{
    family_ends((struct family){.has_lost_its_server = true}, SIGKILL);
    family_ends((struct family){.has_lost_its_server = true, .is_threaded = true}, SIGKILL);
}

TN_TEST(a_detached_child_of_a_server_outlives_the_main_process)
{
    family_ends((struct family){.flags = TN_PROCESS_DETACHED}, SIGKILL);
}

/* ---- a server that is stopped -------------------------------------------------------------
 */

struct asker {
    tn_forkserver *server;
    struct tnt_signal asks;
    _Atomic pid_t thread;
};

static void *ask_for_child(void *argument)
{
    struct asker *asker = argument;
    asker->thread = (pid_t)syscall(SYS_gettid);
    tnt_signal(&asker->asks);
    return start_exit(asker->server, 7);
}

/* Wait until a thread of this process sleeps. */
static void await_sleep(pid_t thread)
{
    char path[64], line[256] = "";
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", (int)thread);
    for (uint64_t deadline = tnt_until_ns(10000); strstr(line, ") S") == NULL;) {
        FILE *file = fopen(path, "r");
        TN_CHECK(file != NULL && fgets(line, sizeof line, file) != NULL);
        fclose(file);
        TN_CHECK(tnt_until_ns(0) < deadline);
        sched_yield();
    }
}

static pid_t stop_server(tn_forkserver *server)
{
    pid_t pid = tn_forkserver_pid(server);
    TN_CHECK(kill(pid, SIGSTOP) == 0);
    TN_CHECK(waitpid(pid, NULL, WUNTRACED) == pid);
    return pid;
}

TN_TEST_WITHIN(a_stopped_server_delays_only_its_callers, 20)
{
    tn_domain *domain = open_domain(16);
    tn_forkserver *other = open_server(domain);
    struct asker asker = {.server = open_server(domain), .asks = tnt_signal_open()};
    pthread_t thread;
    void *process = NULL;
    int code = 9;
    pid_t stopped = stop_server(asker.server);
    assert_int_equal(pthread_create(&thread, NULL, ask_for_child, &asker), 0);
    tnt_await(&asker.asks);
    await_sleep(asker.thread);
    for (int i = 0; i < 3; i++) {
        tn_process *child = NULL;
        TN_CHECK_OK(tn_process_fork(domain, exit_with, &code, 0, &child));
        assert_int_equal(end_of(child), code);
        assert_int_equal(end_of(start_exit(other, code)), code);
    }
    assert_int_equal(kill(stopped, SIGCONT), 0);
    assert_int_equal(pthread_join(thread, &process), 0);
    assert_int_equal(end_of(process), 7);
    tn_forkserver_close(asker.server);
    tn_forkserver_close(other);
    tnt_signal_close(&asker.asks);
    close_domain(domain);
}

static int run_fd;

static int say_code(tn_domain *domain, void *argument)
{
    (void)domain;
    TN_CHECK(write(run_fd, argument, 1) == 1);
    return *(uint8_t *)argument;
}

static int interrupt(void *context)
{
    (void)context;
    return -1;
}

enum after_giving_up { ASK_AGAIN, CLOSE, CLOSE_STOPPED, KILL };

/* The server has a request whose asker has given up. */
static void give_up_and(enum after_giving_up next)
{
    int ends[2];
    const uint8_t first = 1, second = 2;
    uint8_t said = 0;
    tn_domain *domain = open_domain(8);
    tn_process *none = NULL;
    assert_int_equal(pipe(ends), 0);
    run_fd = ends[1];
    tn_forkserver *server = open_server(domain);
    unsigned before = tnt_descriptor_count();
    pid_t stopped = stop_server(server);
    tn_interrupt_set(interrupt, NULL);
    for (int again = 0; again < 2; again++)
        assert_int_equal(tn_forkserver_fork(server, say_code, &first, 1, 0, &none),
                         TN_ERR_INTERRUPTED);
    tn_interrupt_set(NULL, NULL);
    assert_null(none);
    assert_int_equal(tnt_descriptor_count(), before);
    if (next != CLOSE_STOPPED)
        assert_int_equal(kill(stopped, next == KILL ? SIGKILL : SIGCONT), 0);
    if (next == ASK_AGAIN)
        assert_int_equal(end_of(start(server, say_code, &second, 1)), second);
    if (next == KILL)
        assert_int_equal(tn_forkserver_fork(server, say_code, &second, 1, 0, &none),
                         TN_ERR_PEER_DIED);
    tn_forkserver_close(server);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
    close(ends[1]);
    assert_int_equal(read(ends[0], &said, 1), next == ASK_AGAIN);
    assert_int_equal(said, next == ASK_AGAIN ? second : 0);
    close(ends[0]);
    close_domain(domain);
}

TN_TEST(a_child_whose_caller_gave_up_runs_nothing_and_is_collected)
{
    give_up_and(ASK_AGAIN);
    give_up_and(CLOSE);
    give_up_and(CLOSE_STOPPED);
    give_up_and(KILL);
}

static int ask_the_same(void *argument)
{
    tn_forkserver *server = argument;
    tn_interrupt_set(NULL, NULL);
    TN_CHECK(kill(tn_forkserver_pid(server), SIGCONT) == 0);
    TN_CHECK(end_of(start_exit(server, 3)) == 3);
    return 0;
}

TN_TEST_WITHIN(the_hook_of_a_wait_for_a_server_may_call_the_server, 20)
{
    tn_domain *domain = open_domain(8);
    tn_forkserver *server = open_server(domain);
    stop_server(server);
    tn_interrupt_set(ask_the_same, server);
    assert_int_equal(end_of(start_exit(server, 7)), 7);
    tn_forkserver_close(server);
    close_domain(domain);
}

static int be_interrupted(void *argument)
{
    signal(SIGINT, SIG_DFL);
    setpgid(0, 0);
    return be_main(argument);
}

/*
 * As Ctrl-C does: a signal to every process of the group. The server ignores it, and ends
 * nevertheless.
 */
TN_TEST(nothing_is_left_when_the_process_group_is_killed)
{
    const int numbers[] = {SIGINT, SIGKILL};
    for (size_t i = 0; i < 2; i++) {
        struct family family = {.domain = open_domain(8)};
        assert_int_equal(pipe(family.pids), 0);
        pid_t main_pid = tnt_fork(be_interrupted, &family);
        struct descriptors fds = watch(&family);
        assert_int_equal(kill(-main_pid, numbers[i]), 0);
        tnt_wait(main_pid);
        expect_ends(fds.server);
        expect_ends(fds.child);
        end_family(&family);
    }
}
