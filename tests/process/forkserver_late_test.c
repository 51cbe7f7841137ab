/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fork servers whose answer does not arrive: the asker gives up, or the server dies, just as
 * the child begins.
 */
#include "harness/harness.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "process/children.h"
#include "process/process.h"
#include "spawn/child.h"

static struct tnt_signal runs; /* set when a child's function has begun */

static int say_and_pause(tn_domain *domain, void *argument)
{
    (void)domain, (void)argument;
    tnt_signal(&runs);
    return pause_for_ever();
}

static pid_t stop_server(tn_forkserver *server)
{
    pid_t pid = tn_forkserver_pid(server);
    TN_CHECK(kill(pid, SIGSTOP) == 0);
    TN_CHECK(waitpid(pid, NULL, WUNTRACED) == pid);
    return pid;
}

static void expect_no_child(void)
{
    TN_CHECK(waitpid(-1, NULL, WNOHANG) == -1);
    TN_CHECK(errno == ECHILD);
}

static void expect_paused(tn_process *child)
{
    assert_non_null(child);
    assert_int_equal(tn_process_wait(child, TN_NOW, NULL), TN_ERR_TIMED_OUT);
    TN_CHECK_OK(tn_process_kill(child, SIGUSR1));
    assert_int_equal(await_end(child).signal, SIGUSR1);
    tn_process_close(child);
}

/* ---- the asker gives up ------------------------------------------------------------------ */

/* Called when the server may have answered and no caller has read the answer. */
static int interrupt_once_it_runs(void *context)
{
    (void)context;
    tnt_await(&runs);
    return -1;
}

TN_TEST(a_child_that_runs_is_returned_though_the_hook_says_stop)
{
    tn_domain *domain = open_domain(8);
    runs = tnt_signal_open();
    tn_forkserver *server = open_server(domain);
    for (int again = 0; again < 2; again++) {
        tn_process *child = NULL;
        tn_interrupt_set(interrupt_once_it_runs, NULL);
        int status = tn_forkserver_fork(server, say_and_pause, NULL, 0, 0, &child);
        tn_interrupt_set(NULL, NULL);
        assert_int_equal(status, 0);
        expect_paused(child);
    }
    tn_forkserver_close(server);
    expect_no_child();
    tnt_signal_close(&runs);
    close_domain(domain);
}

static int forks_passed;

/*
 * Stop before this process runs code of the room spawn. The first process that gets here is
 * the server.
 */
static void stop_as_the_second(struct tn_domain *domain)
{
    (void)domain;
    if (++forks_passed == 2)
        raise(SIGSTOP);
}

static int interrupt_once_it_is_stopped(void *context)
{
    (void)context;
    siginfo_t how;
    TN_CHECK(waitid(P_ALL, 0, &how, WSTOPPED) == 0);
    return -1;
}

static int forks_prepared;

static int stop_at_the_second(struct tn_domain *domain, uint32_t child)
{
    (void)domain, (void)child;
    return ++forks_prepared == 2 ? raise(SIGSTOP) : 0;
}

struct giving_up {
    tn_domain *domain;
    bool is_forked; /* true: when the asker gives up, the child is stopped; false: the server is
                     */
    bool has_no_descriptors; /* when the answer is read, no descriptor is free */
};

/* The child stays stopped until it is killed. */
static int give_up_on_stopped_child(void *argument)
{
    const struct giving_up *how = argument;
    static const struct rlimit none_left = {3, 3};
    tn_process *none = NULL;
    runs = tnt_signal_open();
    struct tni_fork_hooks hooks = {.child = stop_as_the_second};
    if (!how->is_forked)
        hooks.prepare = stop_at_the_second;
    tni_process_hook(how->domain, &hooks);
    tn_forkserver *server = open_server(how->domain);
    tn_interrupt_set(interrupt_once_it_is_stopped, NULL);
    TN_CHECK(tn_forkserver_fork(server, say_and_pause, NULL, 0, 0, &none) ==
             TN_ERR_INTERRUPTED);
    tn_interrupt_set(NULL, NULL);
    TN_CHECK(none == NULL);
    if (how->has_no_descriptors)
        TN_CHECK(setrlimit(RLIMIT_NOFILE, &none_left) == 0);
    if (!how->is_forked)
        TN_CHECK(kill(tn_forkserver_pid(server), SIGCONT) == 0);
    for (uint64_t late = tnt_until_ns(10000); !tni_server_is_free(server);) {
        TN_CHECK(tnt_until_ns(0) < late);
        sched_yield();
    }
    tn_forkserver_close(server);
    expect_no_child();
    tn_domain_close(how->domain);
    return 0;
}

static void give_up(bool is_forked, bool has_no_descriptors)
{
    struct giving_up how = {open_domain(8), is_forked, has_no_descriptors};
    tnt_wait_ok(tnt_fork(give_up_on_stopped_child, &how));
    close_domain(how.domain);
}

TN_TEST(a_child_whose_asker_gave_up_is_killed_at_once)
{
    for (unsigned i = 0; i < 4; i++)
        give_up((i & 1) != 0, (i & 2) != 0);
}

#if defined(TN_KILL_POINTS)
void tni_kill_point_arm(const char *name, uint32_t passing);

TN_TEST(a_child_whose_asker_and_server_are_gone_is_killed_at_once)
{
    tni_kill_point_arm("forkserver_forked", 1);
    give_up(true, false);
    give_up(true, true);
}
#endif

/* ---- the server dies --------------------------------------------------------------------- */

static struct {
    pid_t server; /* 0: do nothing */
    bool is_killed_here;
} at_next_look;

/*
 * The server forks its child and dies, right before an asker checks whether the server lives.
 */
static void let_server_fork_and_die(void)
{
    int fd = pidfd_of(at_next_look.server);
    TN_CHECK(fd >= 0);
    TN_CHECK(kill(at_next_look.server, SIGCONT) == 0);
    tnt_await(&runs);
    if (at_next_look.is_killed_here)
        TN_CHECK(kill(at_next_look.server, SIGKILL) == 0);
    TN_CHECK(ends_within(fd, 10000));
    close(fd);
    at_next_look.server = 0;
}

/*
 * This waitid() replaces that of libc. With it the library checks whether a child of its
 * process has ended.
 */
int waitid(idtype_t type, id_t id, siginfo_t *info, int options)
{
    if (at_next_look.server != 0)
        let_server_fork_and_die();
    return (int)syscall(SYS_waitid, type, id, info, options, NULL);
}

static void fork_and_die_at_a_look(tn_domain *domain, tn_forkserver *server,
                                   bool is_killed_here)
{
    tn_process *child = NULL;
    at_next_look.is_killed_here = is_killed_here;
    at_next_look.server = stop_server(server);
    TN_CHECK_OK(tn_forkserver_fork(server, say_and_pause, NULL, 0, 0, &child));
    assert_int_equal(at_next_look.server, 0);
    expect_paused(child);
    tn_forkserver_close(server);
    expect_no_child();
    tnt_signal_close(&runs);
    close_domain(domain);
}

TN_TEST(a_server_that_forks_and_dies_loses_no_child)
{
    tn_domain *domain = open_domain(8);
    runs = tnt_signal_open();
    fork_and_die_at_a_look(domain, open_server(domain), true);
}

#if defined(TN_KILL_POINTS)
TN_TEST(a_server_that_dies_before_it_answers_loses_no_child)
{
    tn_domain *domain = open_domain(8);
    runs = tnt_signal_open();
    tni_kill_point_arm("forkserver_forked", 1);
    tn_forkserver *server = open_server(domain);
    tni_kill_point_arm(NULL, 0);
    fork_and_die_at_a_look(domain, server, false);
}

TN_TEST(a_child_that_dies_as_it_claims_its_request_is_an_error)
{
    tn_domain *domain = open_domain(8);
    tn_process *none = NULL;
    tni_kill_point_arm("forkserver_claimed", 1);
    tn_forkserver *server = open_server(domain);
    tni_kill_point_arm(NULL, 0);
    for (int again = 0; again < 2; again++)
        assert_int_equal(tn_forkserver_fork(server, say_and_pause, NULL, 0, 0, &none),
                         TN_ERR_SYSTEM);
    assert_null(none);
    tn_forkserver_close(server);
    expect_no_child();
    close_domain(domain);
}
#endif
