/* SPDX-License-Identifier: Apache-2.0 */
/* Other processes: whether they live, signals, and what /proc tells about them. */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "os/linux.h"

#ifndef SYS_pidfd_send_signal
#define SYS_pidfd_send_signal 424
#endif
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

static int open_pid(int32_t pid)
{
    int fd = -1;
    TNI_LINUX_MAKE_FD(fd, (int)syscall(SYS_pidfd_open, pid, 0));
    return fd;
}

/* A pidfd is readable once the last thread has ended; the main thread may be a zombie long
 * before that. */
static bool is_gone(int pid_fd)
{
    struct pollfd poll_fd = {.fd = pid_fd, .events = POLLIN};
    int ready = 0;
    do {
        ready = poll(&poll_fd, 1, 0);
    } while (ready < 0 && errno == EINTR);
    return ready > 0 && (poll_fd.revents & (POLLIN | POLLHUP)) != 0;
}

/* While a process has other threads, a main thread that has ended is shown as a zombie. */
static bool is_zombie(const struct tni_linux_stat *stat)
{
    return (stat->state == 'Z' || stat->state == 'X') && stat->thread_count <= 1;
}

/* For use where a filter refuses pidfd_open(). pre: a pid of this pid namespace */
static bool is_gone_by_number(int32_t pid)
{
    char path[TNI_LINUX_PROC_BYTES];
    struct tni_linux_stat stat = {0};
    if (kill(pid, 0) != 0 && errno == ESRCH)
        return true;
    return tni_linux_proc_path(pid, path, "stat") && tni_linux_read_stat(path, &stat) == 0 &&
           is_zombie(&stat);
}

/*
 * Compare the identity with /proc/PID/stat. If another process has the pid by now, the start
 * time differs; it can be compared only within one time namespace. pre: a pid of this pid
 * namespace, and pid_fd is not readable, or -1: a filter refuses pidfd_open()
 */
static int compare_stat(const struct tni_os_process *process, bool check_image, int pid_fd)
{
    char path[TNI_LINUX_PROC_BYTES];
    struct tni_linux_stat stat = {0};
    struct tni_os_process self;
    if (!tni_linux_proc_path(process->pid, path, "stat") || tni_os_self(&self) != 0)
        return TNI_OS_UNKNOWN;
    if (tni_linux_read_stat(path, &stat) != 0)
        return (pid_fd >= 0 ? is_gone(pid_fd) : is_gone_by_number(process->pid))
                   ? TNI_OS_DEAD
                   : TNI_OS_UNKNOWN;
    if (pid_fd < 0 && is_zombie(&stat))
        return TNI_OS_DEAD;
    if (process->start_time == 0 || process->pid_space != self.pid_space)
        return TNI_OS_UNKNOWN;
    if (stat.start_time != process->start_time)
        return TNI_OS_DEAD;
    if (check_image && stat.image != 0 && process->image != 0 && stat.image != process->image)
        return TNI_OS_EXECED;
    return TNI_OS_ALIVE;
}

bool tni_os_has_pid_space(uint64_t pid_space)
{
    struct tni_os_process self;
    return tni_os_self(&self) == 0 && (uint32_t)self.pid_space == (uint32_t)pid_space;
}

/* @return a pidfd, or -1 and *ret_state: DEAD or UNKNOWN. pre: a pid of this pid namespace */
static int open_or_judge(int32_t pid, int *ret_state)
{
    int pid_fd = open_pid(pid);
    if (pid_fd >= 0)
        return pid_fd;
    /* EINVAL, ENOENT: the number is that of a thread of another process. */
    bool is_dead =
        errno == ESRCH || errno == EINVAL || errno == ENOENT || is_gone_by_number(pid);
    *ret_state = is_dead ? TNI_OS_DEAD : TNI_OS_UNKNOWN;
    return -1;
}

int tni_os_process_state(const struct tni_os_process *process, bool check_image)
{
    int state = TNI_OS_UNKNOWN;
    if (process->pid <= 0 || !tni_os_has_pid_space(process->pid_space))
        return state;
    int pid_fd = open_or_judge(process->pid, &state);
    if (pid_fd < 0)
        return state == TNI_OS_DEAD ? state : compare_stat(process, check_image, -1);
    state = is_gone(pid_fd) ? TNI_OS_DEAD : compare_stat(process, check_image, pid_fd);
    close(pid_fd);
    return state;
}

bool tni_os_process_is_gone(int32_t pid)
{
    int state = TNI_OS_UNKNOWN;
    if (pid <= 0)
        return false;
    int pid_fd = open_or_judge(pid, &state);
    if (pid_fd < 0)
        return state == TNI_OS_DEAD;
    bool is_dead = is_gone(pid_fd);
    close(pid_fd);
    return is_dead;
}

int tni_os_process_open(int32_t pid, int *ret_fd)
{
    int fd = pid > 0 ? open_pid(pid) : -1;
    if (fd < 0) {
        int error = pid > 0 ? errno : ESRCH;
        int status = error == EINVAL ? TN_ERR_NOT_FOUND : tni_linux_status(error);
        return tni_linux_fail(status, error, "pidfd_open of process %" PRId32, pid);
    }
    *ret_fd = fd;
    return 0;
}

enum { PF_EXITING = 4 };

static bool is_killed(const struct tni_linux_stat *stat)
{
    return (stat->signals & 1u << (SIGKILL - 1)) != 0;
}

static bool is_ending(int32_t pid)
{
    char path[TNI_LINUX_PROC_BYTES];
    struct tni_linux_stat stat = {0};
    return !tni_linux_proc_path(pid, path, "stat") || tni_linux_read_stat(path, &stat) != 0 ||
           (stat.flags & PF_EXITING) != 0 || is_killed(&stat);
}

/* If only the main thread ends, the process goes on, unless all of it is being killed. */
bool tni_os_process_is_ending(int32_t pid)
{
    char path[TNI_LINUX_PROC_BYTES];
    struct tni_linux_stat stat = {0};
    if (tni_os_process_is_gone(pid))
        return true;
    if (pid <= 0 || !tni_linux_proc_path(pid, path, "stat") ||
        tni_linux_read_stat(path, &stat) != 0)
        return false;
    return is_killed(&stat) || ((stat.flags & PF_EXITING) != 0 && stat.thread_count <= 1);
}

/*
 * The threads of a killed process end one by one. SIGKILL is pending for each thread, and is
 * cleared a moment before the kernel marks the thread as exiting. In that moment the process
 * seems to live, so it is checked twice.
 */
bool tni_os_lost_thread(int32_t pid, int32_t thread_id)
{
    enum { INSTANT_NS = 2 * 1000 * 1000 };
    if (pid <= 0 || thread_id <= 0)
        return true;
    if (syscall(SYS_tgkill, pid, thread_id, 0) == 0 || errno != ESRCH || is_ending(pid))
        return false;
    tni_os_sleep_until(tni_os_now_ns() + INSTANT_NS);
    return !is_ending(pid);
}

/* The pid of a pidfd. It stays valid until the process is collected. -1: it has ended. */
static int32_t pid_of(int pid_fd)
{
    char path[TNI_LINUX_PROC_BYTES], text[512];
    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", pid_fd);
    ssize_t len = tni_linux_read_text(path, text, sizeof text);
    const char *at = len > 0 ? strstr(text, "\nPid:") : NULL;
    return at != NULL ? (int32_t)strtol(at + sizeof "\nPid:" - 1, NULL, 10) : -1;
}

int tni_os_process_signal(int pid_fd, int signal)
{
    if (syscall(SYS_pidfd_send_signal, pid_fd, signal, NULL, 0) == 0)
        return 0;
    /* A filter refuses the call, or the process is another user's: kill() tells which. */
    if ((errno == ENOSYS || errno == EPERM) && !is_gone(pid_fd)) {
        int32_t pid = pid_of(pid_fd);
        if (pid > 0 && kill(pid, signal) == 0)
            return 0;
    }
    if (errno == EINVAL)
        return tni_fail(TN_ERR_INVALID, "no signal has the number %d", signal);
    int status = errno == EBADF ? TN_ERR_INVALID : tni_linux_status(errno);
    return tni_linux_fail(status, errno, "sending the signal %d by descriptor %d", signal,
                          pid_fd);
}

int tni_os_process_signal_number(int32_t pid, int signal)
{
    if (pid > 0 && kill(pid, signal) == 0)
        return 0;
    int error = pid > 0 ? errno : ESRCH;
    return tni_linux_fail(tni_linux_status(error), error, "kill of process %" PRId32, pid);
}

void tni_os_process_command(int32_t pid, char *text, size_t size_bytes)
{
    if (size_bytes == 0)
        return;
    char path[TNI_LINUX_PROC_BYTES];
    ssize_t len = -1;
    if (tni_linux_proc_path(pid, path, "cmdline"))
        len = tni_linux_read_text(path, text, size_bytes);
    if (len <= 0 && tni_linux_proc_path(pid, path, "comm"))
        len = tni_linux_read_text(path, text, size_bytes);
    while (len > 0 && (text[len - 1] == '\0' || text[len - 1] == '\n'))
        len--;
    len = TNI_MAX(len, 0);
    for (ssize_t i = 0; i < len; i++)
        text[i] = text[i] == '\0' ? ' ' : text[i];
    text[len] = '\0';
    tni_text_clean(text); /* a long text may have been cut inside a character */
}

uint64_t tni_os_process_huge_bytes(int32_t pid, uint64_t inode)
{
    char path[TNI_LINUX_PROC_BYTES];
    if (!tni_linux_proc_path(pid, path, "smaps"))
        return 0;
    FILE *file = tni_linux_open_text(path);
    if (file == NULL)
        return 0;

    char *line = NULL;
    size_t size = 0;
    uint64_t sum_kib = 0;
    bool is_ours = false;
    while (getline(&line, &size, file) > 0) {
        uint64_t found = 0;
        uint64_t kib = 0;
        if (sscanf(line, "%*x-%*x %*s %*x %*x:%*x %" SCNu64, &found) == 1)
            is_ours = found == inode;
        else if (is_ours && sscanf(line, "ShmemPmdMapped: %" SCNu64, &kib) == 1)
            sum_kib += kib;
    }
    free(line);
    fclose(file);
    return sum_kib * 1024;
}
