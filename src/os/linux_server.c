/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a fork server needs: a pair of sockets, a fork whose child is a child of the server's
 * parent, and signal actions that leave signals to the parent.
 */
#include <errno.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "os/linux.h"

#ifndef PR_GET_TID_ADDRESS
#define PR_GET_TID_ADDRESS 40
#endif

uint32_t tni_os_cpu_count(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        return (uint32_t)CPU_COUNT(&set);
    long online =
        sysconf(_SC_NPROCESSORS_ONLN); /* the machine has more than a cpu_set_t can hold */
    return online > 0 ? (uint32_t)online : 1;
}

int tni_os_pair(int ret_fds[2])
{
    int fds[2], made = -1;
    TNI_LINUX_MAKE((made = socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds)) == 0);
    if (made != 0 || !tni_linux_move_pair_up(fds))
        return tni_linux_fail(TN_ERR_SYSTEM, errno, "a pair of sockets");
    ret_fds[0] = fds[0];
    ret_fds[1] = fds[1];
    return 0;
}

/* ---- signals ----------------------------------------------------------------------------- */

static struct sigaction saved_actions[NSIG];

static bool is_of_terminal(int number)
{
    return number == SIGINT || number == SIGQUIT || number == SIGHUP;
}

/* Not SIGURG, by which tni_os_die_with_process() may be told that the parent has ended. */
void tni_os_signals_serve(void)
{
    for (int number = 1; number < NSIG; number++) {
        struct sigaction *saved = &saved_actions[number];
        if (sigaction(number, NULL, saved) != 0 || number == SIGURG)
            continue;
        bool is_handled = (saved->sa_flags & SA_SIGINFO) != 0 ||
                          (saved->sa_handler != SIG_DFL && saved->sa_handler != SIG_IGN);
        if (!is_handled && !is_of_terminal(number))
            continue;
        struct sigaction action = {.sa_handler = is_of_terminal(number) ? SIG_IGN : SIG_DFL};
        sigaction(number, &action, NULL);
    }
}

void tni_os_signals_restore(void)
{
    for (int number = 1; number < NSIG; number++)
        if (number != SIGURG)
            sigaction(number, &saved_actions[number], NULL);
}

/* ---- a fork whose child is our sibling --------------------------------------------------- */

static long clone_sibling(void *tid_address, int32_t *pid_at)
{
    unsigned long flags = CLONE_PARENT | CLONE_PARENT_SETTID | (unsigned long)SIGCHLD;
    if (tid_address != NULL)
        flags |= CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID;
#if defined(__x86_64__)
    return syscall(SYS_clone, flags, NULL, pid_at, tid_address, 0UL);
#else
    return syscall(SYS_clone, flags, NULL, pid_at, 0UL, tid_address);
#endif
}

/*
 * libc has no fork with CLONE_PARENT. In a process of one thread, fork() of libc does two more
 * things, which are done here. It updates libc's copy of the thread id: the kernel does that,
 * where prctl() tells the address of the copy. And it registers the list of robust mutexes
 * again.
 */
int tni_os_fork_sibling(int32_t *pid_at)
{
    void *tid_address = NULL, *robust = NULL;
    size_t robust_bytes = 0;
    if (prctl(PR_GET_TID_ADDRESS, &tid_address) != 0)
        tid_address = NULL;
    bool has_robust = syscall(SYS_get_robust_list, 0, &robust, &robust_bytes) == 0;

    tni_linux_before_fork();
    long pid = clone_sibling(tid_address, pid_at);
    int error = errno;
    if (pid == 0) {
        if (has_robust && robust != NULL)
            syscall(SYS_set_robust_list, robust, robust_bytes);
        tni_linux_after_fork(true);
        return 0;
    }
    tni_linux_after_fork(false);
    if (pid < 0)
        return tni_linux_fail(tni_linux_status(error), error, "fork");
    return (int)pid;
}
