/* SPDX-License-Identifier: Apache-2.0 */
/* fork() and its handlers, exec, waiting for a child. */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "os/linux.h"

/* Handlers around fork. */

struct fork_handlers {
    void (*prepare)(void);
    void (*parent)(bool seems_failed);
    void (*child)(void);
};

enum { HANDLERS_NONE, HANDLERS_CHANGING, HANDLERS_SET };

static struct fork_handlers handlers;
static _Atomic uint32_t handlers_state;
static _Thread_local bool is_quiet TNI_TLS_INITIAL;

bool tni_os_fork_quiet(bool quiet)
{
    bool was_quiet = is_quiet;
    is_quiet = quiet;
    return was_quiet;
}

/*
 * The lock that the room process takes in `prepare` keeps forks of other threads out until the
 * handlers after the fork. errno is the only sign by which the handlers in the parent can tell
 * that fork() failed.
 */
TNI_AROUND_FORK static void before_fork(void)
{
    if (!is_quiet && handlers.prepare != NULL)
        handlers.prepare();
    if (!is_quiet)
        tni_linux_note_birth();
    errno = 0;
}

TNI_AROUND_FORK static void after_fork_in_parent(void)
{
    int error = errno;
    if (!is_quiet && handlers.parent != NULL)
        handlers.parent(error != 0);
    errno = error;
}

TNI_AROUND_FORK static void after_fork_in_child(void)
{
    if (!is_quiet && handlers.child != NULL)
        handlers.child();
}

void tni_linux_before_fork(void) { before_fork(); }

void tni_linux_after_fork(bool in_child)
{
    if (in_child)
        after_fork_in_child();
    else
        after_fork_in_parent();
}

int tni_os_at_fork(void (*prepare)(void), void (*parent)(bool seems_failed),
                   void (*child)(void))
{
    uint32_t state = HANDLERS_NONE;
    if (!atomic_compare_exchange_strong(&handlers_state, &state, HANDLERS_CHANGING)) {
        if (state == HANDLERS_SET && handlers.prepare == prepare && handlers.parent == parent &&
            handlers.child == child)
            return 0;
        return tni_fail(TN_ERR_EXISTS, "fork handlers were registered already");
    }
    handlers = (struct fork_handlers){.prepare = prepare, .parent = parent, .child = child};
    int error = pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
    if (error != 0) {
        atomic_store(&handlers_state, HANDLERS_NONE);
        return tni_fail_errno(TN_ERR_NO_MEMORY, error, "registering fork handlers");
    }
    atomic_store(&handlers_state, HANDLERS_SET);
    return 0;
}

/* Fork and exec. */

int tni_os_fork(void)
{
    pid_t pid = fork();
    if (pid < 0)
        return tni_linux_fail(tni_linux_status(errno), errno, "fork (clone)");
    return (int)pid;
}

static size_t count_strings(const char *const *strings)
{
    size_t count = 0;
    while (strings != NULL && strings[count] != NULL)
        count++;
    return count;
}

static bool has_same_name(const char *variable, const char *other)
{
    size_t len = strcspn(variable, "=");
    return strcspn(other, "=") == len && strncmp(variable, other, len) == 0;
}

const char **tni_linux_merge_environment(const char *const *added)
{
    size_t added_count = count_strings(added);
    size_t old_count = count_strings((const char *const *)environ);
    const char **merged = calloc(added_count + old_count + 1, sizeof *merged);
    if (merged == NULL)
        return NULL;

    size_t used = 0;
    for (size_t i = 0; i < old_count; i++) {
        bool is_replaced = false;
        for (size_t k = 0; k < added_count && !is_replaced; k++)
            is_replaced = has_same_name(environ[i], added[k]);
        if (!is_replaced)
            merged[used++] = environ[i];
    }
    for (size_t k = 0; k < added_count; k++)
        merged[used++] = added[k];
    return merged;
}

int tni_os_exec(const char *const *argv, const char *const *environment)
{
    if (argv == NULL || argv[0] == NULL)
        return tni_fail(TN_ERR_INVALID, "no program to execute");
    const char **merged = tni_linux_merge_environment(environment);
    if (merged == NULL)
        return tni_fail(TN_ERR_NO_MEMORY, "no memory for the environment of %s", argv[0]);

    execvpe(argv[0], (char *const *)argv, (char *const *)merged);
    int error = errno;
    free(merged);
    int status = error == ENOMEM ? TN_ERR_SYSTEM : tni_linux_status(error);
    return tni_linux_fail(status, error, "executing %s", argv[0]);
}

void tni_os_exit(int code) { _exit(code); }

/* Children. */

/** @return 1 when collected, 0 when not yet, or an error */
static int collect_child(int pid_fd, int32_t pid, siginfo_t *ret_info)
{
    siginfo_t info = {0};
    memset(&info, 0, sizeof info);
    int done = 0;
    do {
        /* By pidfd, since a newer child may already have the pid. */
        done = waitid((idtype_t)P_PIDFD, (id_t)pid_fd, &info, WEXITED | WNOHANG);
    } while (done != 0 && errno == EINTR);
    if (done != 0 && errno == ECHILD)
        return tni_fail(TN_ERR_NOT_FOUND,
                        "process %" PRId32 " is not a child, or was collected by someone else",
                        pid);
    if (done != 0)
        return tni_linux_fail(TN_ERR_SYSTEM, errno, "waitid of process %" PRId32, pid);
    if (info.si_pid == 0)
        return 0;
    *ret_info = info;
    return 1;
}

int tni_os_child_wait(int pid_fd, int32_t pid, uint64_t deadline_ns,
                      struct tni_os_exit *ret_exit)
{
    enum { RETRY_NS = 1000000 };
    siginfo_t info = {0};
    int done = collect_child(pid_fd, pid, &info);
    while (done == 0) {
        int status = tni_os_poll(&pid_fd, 1, deadline_ns);
        if (status == TN_ERR_TIMED_OUT)
            return tni_fail(status, "process %" PRId32 " is still running", pid);
        if (status < 0)
            return status;
        done = collect_child(pid_fd, pid, &info);
        /* It has ended, but a debugger collects it first. */
        if (done == 0) {
            uint64_t now = tni_os_now_ns();
            if (now >= deadline_ns)
                return tni_fail(TN_ERR_TIMED_OUT, "process %" PRId32 " is being traced", pid);
            tni_os_sleep_until(now + RETRY_NS);
        }
    }
    if (done < 0)
        return done;
    bool is_exit = info.si_code == CLD_EXITED;
    *ret_exit = (struct tni_os_exit){.exit_code = is_exit ? info.si_status : -1,
                                     .signal = is_exit ? 0 : info.si_status};
    return 0;
}
