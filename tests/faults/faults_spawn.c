/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Children: functions, programs, fork servers, groups. What fails in a child, fails before it
 * runs the user's function: its parent gets an error, or the child runs after all, whole.
 */
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "faults.h"
#include "harness/tensor.h"

static tn_process *child;
static tn_forkserver *server;
static tn_group *group;
static tn_process_status end_of = {.struct_size = sizeof end_of};

#define WITH_DOMAIN .prepare = faults_begin, .finish = faults_end
/* Our own children can always be signalled; a close() that cannot kill would wait for ever. */
#define KILLS .spared_call = SYS_pidfd_send_signal

static int use_domain(tn_domain *domain, void *argument)
{
    (void)argument;
    faults_child_runs();
    int64_t bytes = 100;
    tn_tensor *t;
    if (tn_tensor_create(domain, TN_UINT8, 1, &bytes,
                         TN_OPTIONS(tn_tensor_options, .flags = TN_TENSOR_ZEROED), &t) != 0)
        return 7;
    tn_tensor_unref(t);
    return 3;
}
static int use_in_group(tn_domain *domain, uint32_t index, void *argument)
{
    (void)index;
    return use_domain(domain, argument) == 3 ? 0 : 1;
}
static int wait_for_ever(tn_domain *domain, void *argument)
{
    (void)domain, (void)argument;
    faults_child_runs();
    for (;;)
        pause();
    return 0;
}

/* A child that was started is one that works. */
static void check_end(tn_process *process)
{
    tn_process_status status = {.struct_size = sizeof status};
    TN_CHECK_OK(tn_process_wait(process, tnt_deadline(20000), &status));
    if (status.exit_code != 3)
        fail_msg("the child ended with %d, signal %d: %s", status.exit_code, status.signal,
                 status.message);
    tn_process_close(process);
    TN_CHECK_OK(tn_domain_reap(faults_d, NULL));
}
static void check_out(void) { check_end(*FAULTS_OUT(tn_process *)); }

/* ---- functions and programs -------------------------------------------------------------- */

static int fork_it(void)
{
    return tn_process_fork(faults_d, use_domain, NULL, 0, FAULTS_OUT(tn_process *));
}
FAULTS(tn_process_fork, WITH_DOMAIN, KILLS, .forks = true, .call = fork_it, .undo = check_out)

static int exec_it(void)
{
    const char *const argv[] = {"sh", "-c", "exit 3", NULL};
    const char *const environment[] = {"FAULTS=1", NULL};
    return tn_process_exec(faults_d, argv, environment, 0, FAULTS_OUT(tn_process *));
}
FAULTS(tn_process_exec, WITH_DOMAIN, KILLS, .forks = true, .call = exec_it, .undo = check_out)

/* What a fault leaves is none: it only writes in its own seat, and asks for signals. */
static int follow_nobody(void)
{
    int status = tn_process_follow(faults_d, 1);
    return status == TN_ERR_NOT_FOUND ? 0 : status;
}
FAULTS(tn_process_follow, WITH_DOMAIN, .has_no_calls = true, .call = follow_nobody)

static void start_child(void)
{
    TN_CHECK_OK(tn_process_fork(faults_d, use_domain, NULL, 0, &child));
}
static void start_waiting(void)
{
    TN_CHECK_OK(tn_process_fork(faults_d, wait_for_ever, NULL, 0, &child));
}
static void close_child(void)
{
    child = tn_process_close(child);
    TN_CHECK_OK(tn_domain_reap(faults_d, NULL));
}
static int get_pid(void) { return tn_process_pid(child) > 0 ? 0 : TN_ERR_CORRUPT; }
FAULTS(tn_process_pid, WITH_DOMAIN, .has_no_calls = true, .before = start_waiting,
       .call = get_pid, .undo = close_child)

static int wait_for_child(void)
{
    return tn_process_wait(child, tnt_deadline(20000), FAULTS_OUT_STRUCT(tn_process_status));
}
FAULTS(tn_process_wait, WITH_DOMAIN, .before = start_child, .call = wait_for_child,
       .undo = close_child)

static int wait_in_vain(void)
{
    return tn_process_wait(child, tnt_deadline(2), FAULTS_OUT_STRUCT(tn_process_status));
}
FAULTS_WHEN(tn_process_wait, in_vain, WITH_DOMAIN, .expected = TN_ERR_TIMED_OUT,
            .before = start_waiting, .call = wait_in_vain, .undo = close_child)

static int kill_child(void) { return tn_process_kill(child, SIGTERM); }
FAULTS(tn_process_kill, WITH_DOMAIN, .before = start_waiting, .call = kill_child,
       .undo = close_child)

static int close_it(void) { return child = tn_process_close(child), 0; }
static void reap(void) { TN_CHECK_OK(tn_domain_reap(faults_d, NULL)); }
FAULTS(tn_process_close, WITH_DOMAIN, KILLS, .never_fails = true, .before = start_waiting,
       .call = close_it, .undo = reap)

/* It ends the process, so it is called in a child, and what fails, fails there. */
__attribute__((noreturn)) static int say_and_fail(tn_domain *domain, void *argument)
{
    (void)domain, (void)argument;
    tn_process_fail("said");
}
/* It may not get as far as that; once it did, nothing keeps it from ending as it said. */
static int fail_in_child(void)
{
    if (tn_process_fork(faults_d, say_and_fail, NULL, 0, &child) != 0)
        return 0;
    int status = tn_process_wait(child, tnt_deadline(20000), &end_of);
    return status == 0 && end_of.exit_code != 1 ? TN_ERR_CORRUPT : status;
}
FAULTS(tn_process_fail, WITH_DOMAIN, .never_fails = true, .forks = true, .only_children = true,
       .call = fail_in_child, .undo = close_child)

/* ---- fork servers ------------------------------------------------------------------------ */

static int start_server(void)
{
    return tn_forkserver_start(faults_d, FAULTS_OUT(tn_forkserver *));
}
static void close_out_server(void)
{
    tn_forkserver_close(*FAULTS_OUT(tn_forkserver *));
    reap();
}
FAULTS(tn_forkserver_start, WITH_DOMAIN, KILLS, .call = start_server, .undo = close_out_server)

static void make_server(void)
{
    faults_begin();
    TN_CHECK_OK(tn_forkserver_start(faults_d, &server));
}
static void end_server(void)
{
    server = tn_forkserver_close(server);
    faults_end();
}
#define WITH_SERVER .prepare = make_server, .finish = end_server
static int fork_by_server(void)
{
    return tn_forkserver_fork(server, use_domain, "argument", 9, 0, FAULTS_OUT(tn_process *));
}
FAULTS(tn_forkserver_fork, WITH_SERVER, KILLS, .call = fork_by_server, .undo = check_out)

static int get_server_pid(void) { return tn_forkserver_pid(server) > 0 ? 0 : TN_ERR_CORRUPT; }
FAULTS(tn_forkserver_pid, WITH_SERVER, .has_no_calls = true, .call = get_server_pid)

static void start_one(void) { TN_CHECK_OK(tn_forkserver_start(faults_d, &server)); }
static int close_server(void) { return server = tn_forkserver_close(server), 0; }
FAULTS(tn_forkserver_close, WITH_DOMAIN, KILLS, .never_fails = true, .before = start_one,
       .call = close_server, .undo = reap)

/* ---- groups ------------------------------------------------------------------------------ */

static int create_group(void) { return tn_group_create(faults_d, FAULTS_OUT(tn_group *)); }
static void close_out_group(void) { tn_group_close(*FAULTS_OUT(tn_group *)); }
FAULTS(tn_group_create, WITH_DOMAIN, .call = create_group, .undo = close_out_group)

static void make_group(void) { TN_CHECK_OK(tn_group_create(faults_d, &group)); }
static void close_group(void)
{
    group = tn_group_close(group);
    reap();
}
static uint64_t group_count(void) { return tnt_group_count(group); }
static int fork_group(void) { return tn_group_fork(group, 2, use_in_group, NULL); }
static void wait_and_close(void)
{
    TN_CHECK_OK(tn_group_wait(group, 0, tnt_deadline(20000), NULL));
    close_group();
}
FAULTS(tn_group_fork, WITH_DOMAIN, KILLS, .keeps_memory = true, .forks = true,
       .measure = group_count, .before = make_group, .call = fork_group, .undo = wait_and_close)

static void make_group_and_child(void)
{
    make_group();
    start_waiting();
}
static int add(void) { return tn_group_add(group, child); }
FAULTS(tn_group_add, WITH_DOMAIN, .keeps_memory = true, .measure = group_count,
       .before = make_group_and_child, .call = add, .undo = close_group)

static void make_full_group(void)
{
    make_group();
    TN_CHECK_OK(fork_group());
}
static int wait_group(void)
{
    return tn_group_wait(group, 0, tnt_deadline(20000), FAULTS_OUT_STRUCT(tn_process_status));
}
FAULTS(tn_group_wait, WITH_DOMAIN, .before = make_full_group, .call = wait_group,
       .undo = close_group)

static int get(void) { return tn_group_get(group, 1) != NULL ? 0 : TN_ERR_CORRUPT; }
FAULTS(tn_group_get, WITH_DOMAIN, .has_no_calls = true, .before = make_full_group, .call = get,
       .undo = close_group)

static int close_all(void) { return group = tn_group_close(group), 0; }
FAULTS(tn_group_close, WITH_DOMAIN, KILLS, .never_fails = true, .before = make_full_group,
       .call = close_all, .undo = reap)
