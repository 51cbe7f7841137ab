/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starting a program as a child, and dying with a parent.
 *
 * The child is made by vfork(), as in linux_start.c: the parent learns about a failed exec
 * without a pipe. The end of such a pipe could stay open for ever, in a child that another
 * thread forks. posix_spawn() cannot ask for a death signal.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "os/linux.h"

int32_t tni_os_parent_pid(void) { return (int32_t)getppid(); }

uint64_t tni_os_pipe_number(int fd)
{
    struct stat stat;
    if (fd < 0 || fstat(fd, &stat) != 0 || !S_ISFIFO(stat.st_mode))
        return 0;
    return (uint64_t)stat.st_ino;
}

/* Dying with a process, any thread of which may have forked this one. */

static int32_t watched_parent;
static int32_t
    watching_pid; /* in any other process, a child of this one, the handler does nothing */
static struct sigaction earlier_action;

/* A pid below 0 means that a filter refuses the call, so nothing is known. */
static bool has_other_parent(int32_t parent_pid)
{
    int32_t pid = (int32_t)getppid();
    return pid >= 0 && pid != parent_pid;
}

/*
 * The kernel sends the death signal when the thread that forked this process ends, and again
 * when the next thread that it makes the parent ends. getppid() changes only once the whole
 * parent has ended.
 */
static void check_parent(int number, siginfo_t *info, void *context)
{
    int error = errno;
    if (getpid() == watching_pid && has_other_parent(watched_parent))
        kill(getpid(), SIGKILL);
    if ((earlier_action.sa_flags & SA_SIGINFO) != 0)
        earlier_action.sa_sigaction(number, info, context);
    else if (earlier_action.sa_handler != SIG_DFL && earlier_action.sa_handler != SIG_IGN)
        earlier_action.sa_handler(number);
    errno = error;
}

void tni_os_die_with_process(int32_t parent_pid)
{
    int death_signal = 0;
    struct sigaction current;
    struct sigaction action = {.sa_sigaction = check_parent,
                               .sa_flags = SA_SIGINFO | SA_RESTART};
    sigset_t urgent;

    if (prctl(PR_GET_PDEATHSIG, &death_signal) == 0 && death_signal == SIGKILL)
        return; /* tni_os_spawn() has set SIGKILL, which no handler can catch */
    watched_parent = parent_pid;
    watching_pid = (int32_t)getpid();
    sigemptyset(&action.sa_mask);
    /* In a child of such a child the handler is installed already, and must not call itself. */
    if (sigaction(SIGURG, NULL, &current) == 0 &&
        ((current.sa_flags & SA_SIGINFO) == 0 || current.sa_sigaction != check_parent))
        earlier_action = current;
    sigaction(SIGURG, &action, NULL);
    sigemptyset(&urgent);
    sigaddset(&urgent, SIGURG);
    pthread_sigmask(SIG_UNBLOCK, &urgent, NULL);
    prctl(PR_SET_PDEATHSIG, SIGURG);
    /* The parent may have died before prctl(). */
    if (has_other_parent(parent_pid))
        _exit(128 + SIGKILL);
}

/* Starting a program. */

struct child {
    const struct tni_os_program *program;
    const char **environment; /* merged */
    int32_t parent_pid;
    sigset_t mask; /* of the thread, before all signals were blocked */
};

/*
 * Give signals with a handler their default action before they are unblocked, since the
 * handlers are the parent's. Ignored signals stay ignored, as exec leaves them.
 */
static void reset_handlers(void)
{
    for (int number = 1; number < NSIG; number++) {
        struct sigaction action;
        if (sigaction(number, NULL, &action) != 0)
            continue;
        if ((action.sa_flags & SA_SIGINFO) == 0 && action.sa_handler == SIG_IGN)
            continue;
        action = (struct sigaction){.sa_handler = SIG_DFL};
        sigaction(number, &action, NULL);
    }
}

/*
 * Runs in the child, in the parent's memory: only system calls, nothing that takes a lock.
 * @return an errno
 */
static int become(const struct child *child)
{
    const struct tni_os_program *program = child->program;
    reset_handlers();
    if (program->ends_with_us) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (has_other_parent(child->parent_pid))
            _exit(128 + SIGKILL);
    }
    for (uint32_t i = 0; i < program->keep_count; i++)
        if (fcntl(program->keep_fds[i], F_SETFD, 0) != 0)
            return errno;
    pthread_sigmask(SIG_SETMASK, &child->mask, NULL);
    execvpe(program->argv[0], (char *const *)program->argv, (char *const *)child->environment);
    return errno;
}

/** @return the pid, or -1 with errno */
static pid_t start(struct child *child, const char **ret_call)
{
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &child->mask);
    volatile int error = 0;
    pid_t pid = vfork();
    if (pid == 0) {
        error = become(child);
        _exit(127);
    }
    *ret_call = pid < 0 ? "vfork" : "execve";
    if (pid < 0)
        error = errno;
    pthread_sigmask(SIG_SETMASK, &child->mask, NULL);
    if (error != 0 && pid > 0)
        while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) {
        }
    errno = error;
    return error == 0 ? pid : -1;
}

int tni_os_spawn(const struct tni_os_program *program, int32_t *ret_pid)
{
    if (program->argv == NULL || program->argv[0] == NULL)
        return tni_fail(TN_ERR_INVALID, "no program to execute");
    struct child child = {.program = program,
                          .environment = tni_linux_merge_environment(program->environment),
                          .parent_pid = (int32_t)getpid()};
    if (child.environment == NULL)
        return tni_fail(TN_ERR_NO_MEMORY, "no memory for the environment of %s",
                        program->argv[0]);

    const char *call = "";
    pid_t pid = start(&child, &call);
    int error = errno;
    free(child.environment);
    if (pid > 0) {
        *ret_pid = (int32_t)pid;
        return 0;
    }
    int status = error == ENOMEM ? TN_ERR_SYSTEM : tni_linux_status(error);
    return tni_linux_fail(status, error, "starting %s (%s)", program->argv[0], call);
}

void tni_os_child_abort(int32_t pid)
{
    kill(pid, SIGKILL);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) {
    }
}
