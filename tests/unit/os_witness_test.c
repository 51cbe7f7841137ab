/* SPDX-License-Identifier: Apache-2.0 */
/* os: a witness ends with the memory of the process that took it, and with nothing else. */
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/harness.h"
#include "os/os.h"

static const uint64_t number = (UINT64_C(0xffffffff) << 16) | 1023; /* the largest number */

static int make_memory(void)
{
    int fd;
    TN_CHECK_OK(tni_os_memory_create("tenon-test", 1 << 16, &fd));
    return fd;
}

static void *take(int fd)
{
    void *witness = NULL;
    TN_CHECK_OK(tni_os_witness_take(fd, number, &witness));
    return witness;
}

static void *take_and_keep(int fd)
{
    void *witness = take(fd);
    tni_os_witness_keep(witness);
    return witness;
}

TN_TEST(a_witness_is_there_from_take_to_drop)
{
    int fd = make_memory(), reader;
    TN_CHECK_OK(tni_os_memory_reopen(fd, true, &reader));
    assert_int_equal(tni_os_witness_state(fd, number), TNI_OS_DEAD);
    unsigned descriptors = tnt_descriptor_count();
    void *witness = take_and_keep(fd), *second;
    assert_int_equal(tnt_descriptor_count(), descriptors);
    assert_int_equal(tni_os_witness_state(fd, number), TNI_OS_ALIVE);
    assert_int_equal(tni_os_witness_state(reader, number), TNI_OS_ALIVE);
    assert_int_equal(tni_os_witness_state(fd, number - 1), TNI_OS_DEAD);
    assert_int_equal(tni_os_witness_take(fd, number, &second), TN_ERR_EXISTS);
    tni_os_witness_drop(witness);
    assert_int_equal(tni_os_witness_state(reader, number), TNI_OS_DEAD);
    tni_os_close(reader);
    tni_os_close(fd);
}

struct seen {
    uint64_t inode;
    bool is_listed;
};

static void note(uint64_t inode, void *context)
{
    struct seen *seen = context;
    seen->is_listed |= inode == seen->inode;
}

static bool is_listed(int fd)
{
    struct tni_os_memory memory;
    TN_CHECK_OK(tni_os_memory_stat(fd, &memory));
    struct seen seen = {.inode = memory.inode};
    unsigned descriptors = tnt_descriptor_count();
    TN_CHECK_OK(tni_os_witness_for_each(note, &seen));
    assert_int_equal(tnt_descriptor_count(), descriptors);
    return seen.is_listed;
}

TN_TEST(a_witness_is_listed_from_take_to_drop)
{
    int fd = make_memory();
    assert_false(is_listed(fd));
    void *witness = take(fd);
    assert_true(is_listed(fd));
    tni_os_witness_drop(witness);
    assert_false(is_listed(fd));
    tni_os_close(fd);
}

TN_TEST(a_witness_is_unknown_through_a_wrong_descriptor)
{
    int fd = make_memory(), pipe_fds[2];
    assert_int_equal(tni_os_witness_state(-1, number), TNI_OS_UNKNOWN);
    TN_CHECK_OK(tni_os_pipe(pipe_fds));
    tni_os_close(pipe_fds[0]);
    assert_int_equal(tni_os_witness_state(pipe_fds[0], number), TNI_OS_UNKNOWN);
    tni_os_close(pipe_fds[1]);
    tni_os_close(fd);
}

struct plan {
    int fd;
    struct tnt_signal ready;
    int (*end)(void);
};

static int take_it_and(void *argument)
{
    struct plan *plan = argument;
    take_and_keep(plan->fd);
    tnt_signal(&plan->ready);
    return plan->end();
}

static int pause_for_ever(void)
{
    while (pause() == -1) {
    }
    return 0;
}

static int exit_at_once(void) { return 0; }

static int close_all_descriptors(void)
{
    for (int fd = 3; fd < 1024; fd++)
        close(fd);
    return pause_for_ever();
}

/* Repeat until the state is as expected: the process is about to reach it. */
static void await_state(int fd, int state)
{
    uint64_t deadline_ns = tnt_until_ns(10000);
    while (tni_os_witness_state(fd, number) != state) {
        TN_CHECK(tni_os_now_ns() < deadline_ns);
        tni_os_yield();
    }
}

static struct plan start(int (*end)(void), pid_t *ret_pid)
{
    struct plan plan = {.fd = make_memory(), .ready = tnt_signal_open(), .end = end};
    *ret_pid = tnt_fork(take_it_and, &plan);
    tnt_await(&plan.ready);
    return plan;
}

static void finish(struct plan *plan)
{
    tnt_signal_close(&plan->ready);
    tni_os_close(plan->fd);
}

TN_TEST(a_witness_is_gone_when_its_process_can_be_waited_for)
{
    pid_t pid;
    struct plan plan = start(exit_at_once, &pid);
    tnt_wait_ok(pid);
    assert_int_equal(tni_os_witness_state(plan.fd, number), TNI_OS_DEAD);
    finish(&plan);
    plan = start(pause_for_ever, &pid);
    assert_int_equal(tni_os_witness_state(plan.fd, number), TNI_OS_ALIVE);
    tnt_kill(pid);
    assert_int_equal(tni_os_witness_state(plan.fd, number), TNI_OS_DEAD);
    finish(&plan);
}

static int exec_and_stay(void)
{
    execl("/bin/sh", "sh", "-c", "kill -STOP $$", (char *)NULL);
    return 1;
}

TN_TEST(a_witness_ends_with_exec)
{
    pid_t pid;
    int status;
    struct plan plan = start(exec_and_stay, &pid);
    TN_CHECK(waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status));
    assert_int_equal(tni_os_witness_state(plan.fd, number), TNI_OS_DEAD);
    tnt_kill(pid);
    finish(&plan);
}

TN_TEST(a_witness_outlives_every_descriptor_of_its_process)
{
    pid_t pid;
    struct plan plan = {
        .fd = make_memory(), .ready = tnt_signal_open(), .end = close_all_descriptors};
    struct tnt_signal closed = plan.ready;
    pid = tnt_fork(take_it_and, &plan);
    tnt_await(&plan.ready);
    /* The pipe ends when the process closes all its descriptors. */
    close(closed.write_fd);
    char byte;
    TN_CHECK(read(closed.read_fd, &byte, 1) == 0);
    assert_int_equal(tni_os_witness_state(plan.fd, number), TNI_OS_ALIVE);
    tnt_kill(pid);
    assert_int_equal(tni_os_witness_state(plan.fd, number), TNI_OS_DEAD);
    close(closed.read_fd);
    tni_os_close(plan.fd);
}

/* The child of a raw clone(): no handlers of libc run in it. */
static pid_t fork_somehow(unsigned how)
{
    pid_t pid = how == 0 ? fork() : how == 1 ? _Fork() : (pid_t)syscall(SYS_clone, SIGCHLD, 0);
    if (pid == 0)
        pause_for_ever();
    TN_CHECK(pid > 0);
    return pid;
}

TN_TEST(no_child_has_the_witness_that_its_parent_keeps)
{
    for (unsigned how = 0; how < 3; how++) {
        int fd = make_memory();
        void *witness = take_and_keep(fd);
        pid_t pid = fork_somehow(how);
        assert_int_equal(tni_os_witness_state(fd, number), TNI_OS_ALIVE);
        tni_os_witness_drop(witness);
        assert_int_equal(tni_os_witness_state(fd, number), TNI_OS_DEAD);
        tnt_kill(pid);
        tni_os_close(fd);
    }
}

TN_TEST(a_child_has_the_witness_that_was_taken_for_it)
{
    int fd = make_memory();
    void *witness = take(fd);
    pid_t pid = fork_somehow(0);
    tni_os_witness_drop(witness);
    assert_int_equal(tni_os_witness_state(fd, number), TNI_OS_ALIVE);
    tnt_kill(pid);
    await_state(fd, TNI_OS_DEAD);
    tni_os_close(fd);
}

static int try_without(void *argument)
{
    int fd = *(int *)argument;
    void *witness = &fd;
    setenv("TENON_FORCE_FALLBACK", "witness", 1);
    assert_int_equal(tni_os_witness_take(fd, number, &witness), TN_ERR_SYSTEM);
    assert_ptr_equal(witness, &fd);
    assert_int_equal(tni_os_witness_state(fd, number), TNI_OS_UNKNOWN);
    return 0;
}

TN_TEST(a_test_can_force_a_process_to_have_no_witness)
{
    int fd = make_memory();
    tnt_wait_ok(tnt_fork(try_without, &fd));
    tni_os_close(fd);
}
