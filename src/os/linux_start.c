/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starting a process that outlives this one. This process forks an intermediate process, the
 * helper, which closes all descriptors, starts the program, writes a report to a pipe, and
 * exits; so the program becomes a child of init. The helper always writes its report. The end
 * of the pipe would not be a reliable report: a child that another thread forks at the same
 * time has a copy of the write end, and may keep it open for ever. The helper's own pipe has no
 * such copy, since the helper has one thread.
 *
 * I1  The helper writes to its end of the pipe and to no other descriptor. Until the helper has
 *     moved the pipe to REPORT_FD, that number may be a file of the program that uses the
 *     library.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "os/linux.h"

#ifndef SYS_close_range
#define SYS_close_range 436
#endif

enum { REPORT_FD = 3 };

/* Up to run_helper(), only functions that POSIX allows after fork() in a process with threads.
 */

static int parse_number(const char *text)
{
    int number = 0;
    if (*text < '0' || *text > '9')
        return -1;
    for (; *text >= '0' && *text <= '9'; text++)
        number = number * 10 + (*text - '0');
    return number;
}

struct kernel_dirent {
    uint64_t inode;
    int64_t next;
    unsigned short size_bytes;
    unsigned char type;
    char name[];
};

/** Read some entries of the folder, and close those. @return how many, or -1 at the end */
static int close_batch(int folder, int first)
{
    _Alignas(struct kernel_dirent) char entries[2048];
    long got = syscall(SYS_getdents64, folder, entries, sizeof entries);
    if (got <= 0)
        return -1;
    int closed = 0;
    for (long at = 0; at < got;) {
        const struct kernel_dirent *entry = (const void *)(entries + at);
        int fd = parse_number(entry->name);
        if (fd >= first && fd != folder) {
            close(fd);
            closed++;
        }
        at += entry->size_bytes;
    }
    return closed;
}

static void close_from(int first)
{
    if (!tni_linux_is_forced(TNI_LINUX_CLOSE_RANGE) &&
        syscall(SYS_close_range, first, ~0u, 0) == 0)
        return;

    int folder = -1;
    TNI_LINUX_MAKE((folder = open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC)) >= 0);
    if (folder >= 0) {
        for (int closed = 0; (closed = close_batch(folder, first)) >= 0;) {
            /* A close may make the reader skip entries, so it starts again after a close. */
            if (closed > 0)
                lseek(folder, 0, SEEK_SET);
        }
        close(folder);
        return;
    }
    struct rlimit limit = {.rlim_cur = 1024};
    getrlimit(RLIMIT_NOFILE, &limit);
    for (rlim_t fd = (rlim_t)first; fd < TNI_MIN(limit.rlim_cur, (rlim_t)1 << 20); fd++)
        close((int)fd);
}

static void reset_signals(void)
{
    struct sigaction by_default = {.sa_handler = SIG_DFL};
    for (int number = 1; number < NSIG; number++)
        sigaction(number, &by_default, NULL);
    sigset_t none;
    sigemptyset(&none);
    pthread_sigmask(SIG_SETMASK, &none, NULL);
}

/*
 * Make REPORT_FD the report's pipe, 0 the input (-1: /dev/null), 1 and 2 /dev/null, and close
 * the rest. The caller may run without some of 0, 1 and 2, and pipe or input may have these
 * numbers, so the pipe is first moved to a number above 3.
 *
 * @param report_fd  updated: where the report is written, also after a failure (I1)
 */
static bool prepare_descriptors(int *report_fd, int input_fd)
{
    int report = -1;
    TNI_LINUX_MAKE((report = fcntl(*report_fd, F_DUPFD_CLOEXEC, REPORT_FD + 1)) >= 0);
    if (report < 0)
        return false;
    *report_fd = report;
    if (input_fd == 0 && fcntl(0, F_SETFD, 0) != 0)
        return false;
    if (input_fd > 0 && dup2(input_fd, 0) < 0)
        return false;
    if (dup2(report, REPORT_FD) < 0)
        return false;
    *report_fd = REPORT_FD;
    if (fcntl(REPORT_FD, F_SETFD, FD_CLOEXEC) != 0)
        return false;
    close_from(REPORT_FD + 1);
    int nothing = open("/dev/null", O_RDWR);
    if (nothing < 0)
        return false;
    for (int fd = input_fd >= 0 ? 1 : 0; fd <= 2; fd++) {
        if (fd != nothing && dup2(nothing, fd) < 0)
            return false;
    }
    if (nothing > 2)
        close(nothing);
    return true;
}

/* A report is one int: an errno, and above it the call that failed. */
enum { CALL_OTHER, CALL_CLONE, CALL_VFORK, CALL_EXECVE, CALL_COUNT, CALL_SHIFT = 16 };
static const char *const call_names[CALL_COUNT] = {"", " (clone)", " (vfork)", " (execve)"};
static int at_call(int error, int call) { return error | call << CALL_SHIFT; }

/*
 * By vfork(), since fork() would run fork handlers of other libraries in the helper, which has
 * lost its threads. The error comes through a pipe, since sanitizers and emulators make vfork()
 * a fork(), where memory is not shared.
 *
 * @return 0, an errno, or at_call()
 */
static int spawn_program(const char *path, char *const *argv, char *const *environment)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        return errno;
    pid_t pid = vfork();
    if (pid == 0) {
        setsid();
        execve(path, argv, environment);
        int error = at_call(errno, CALL_EXECVE);
        ssize_t written = write(ends[1], &error, sizeof error);
        _exit(written == (ssize_t)sizeof error ? 127 : 126);
    }
    int error = pid < 0 ? at_call(errno, CALL_VFORK) : 0;
    close(ends[1]);
    while (pid > 0 && read(ends[0], &error, sizeof error) < 0 && errno == EINTR) {
    }
    close(ends[0]);
    return error;
}

struct program {
    const char *path;
    char *const *argv, *const *environment;
    int input_fd;
};

__attribute__((noreturn)) static void run_helper(const struct program *program, int report_fd)
{
    int error = 0;
    if (!prepare_descriptors(&report_fd, program->input_fd))
        error = errno == 0 ? EIO : errno;
    (void)!chdir("/"); /* so that the folder's file system can be unmounted */
    if (error == 0) {
        reset_signals();
        error = spawn_program(program->path, program->argv, program->environment);
    }
    ssize_t written = write(report_fd, &error, sizeof error);
    _exit(written == (ssize_t)sizeof error ? 0 : 1);
}

/* All signals are blocked, so the helper does not run signal handlers of the program. */
static pid_t fork_quietly(sigset_t *ret_old_mask)
{
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, ret_old_mask);
    bool was_quiet = tni_os_fork_quiet(true);
    pid_t pid = fork();
    if (pid != 0) {
        int error = errno;
        tni_os_fork_quiet(was_quiet);
        pthread_sigmask(SIG_SETMASK, ret_old_mask, NULL);
        errno = error;
    }
    return pid;
}

/** @return the errno that the helper process reported; EIO: it died before it reported */
static int wait_for_report(int report_fd, pid_t helper)
{
    int fds[2] = {report_fd, -1};
    int helper_fd = -1;
    if (tni_os_process_open(helper, &helper_fd) == 0)
        fds[1] = helper_fd;
    tni_os_poll(fds, 2, TNI_FOREVER);

    int error = EIO;
    if (tni_os_read(report_fd, &error, sizeof error) != (int)sizeof error)
        error = EIO;
    tni_os_close(helper_fd);
    while (waitpid(helper, NULL, 0) < 0 && errno == EINTR) {
    }
    return error;
}

static int start(const struct program *program)
{
    const char *path = program->path;
    int ends[2];
    int status = tni_os_pipe(ends);
    if (status != 0)
        return status;

    sigset_t old_mask;
    pid_t helper = fork_quietly(&old_mask);
    if (helper == 0)
        run_helper(program, ends[1]);
    int error = helper < 0 ? at_call(errno, CALL_CLONE) : 0;
    tni_os_close(ends[1]);
    if (error == 0)
        error = wait_for_report(ends[0], helper);
    tni_os_close(ends[0]);
    if (error == 0)
        return 0;
    uint32_t call = (uint32_t)error >> CALL_SHIFT;
    error &= (1 << CALL_SHIFT) - 1;
    status = error == ENOMEM ? TN_ERR_SYSTEM : tni_linux_status(error);
    return tni_linux_fail(status, error, "starting %s%s", path,
                          call < CALL_COUNT ? call_names[call] : "");
}

int tni_os_start_detached_on(const char *path, const char *const *argv, int input_fd)
{
    struct tni_linux_folder_pass pass;
    int count = tni_linux_pass_folder(&pass);
    const char *added[4] = {0};
    memcpy(added, pass.variables, (size_t)count * sizeof added[0]);
    added[count] = tni_linux_log_variable();
    /*
     * A program with more rights than its user passes on nothing that its user chose: it may
     * have become its owner altogether, so that the kernel would not tell the new program to
     * distrust its environment.
     */
    bool is_trusted = getauxval(AT_SECURE) == 0;
    const char **merged = is_trusted ? tni_linux_merge_environment(added) : NULL;
    if (is_trusted && merged == NULL)
        return tni_fail(TN_ERR_NO_MEMORY, "no memory for the environment of %s", path);
    const char **environment = is_trusted ? merged : added;
    int status = start(&(struct program){.path = path,
                                         .argv = (char *const *)argv,
                                         .environment = (char *const *)environment,
                                         .input_fd = input_fd});
    free(merged);
    return status;
}

int tni_os_start_detached(const char *path, const char *const *argv)
{
    return tni_os_start_detached_on(path, argv, -1);
}
