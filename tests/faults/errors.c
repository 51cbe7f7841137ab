/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which errors a system call may return to a caller whose arguments are right, the most
 * likely ones first. A call that is not listed stops the tests, so that none is forgotten.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "faults.h"

#define ONCE(number_)                                                                          \
    {                                                                                          \
        .number = (number_)                                                                    \
    }
#define LASTS(number_)                                                                         \
    {                                                                                          \
        .number = (number_), .lasts = true                                                     \
    }
#define DONE(number_)                                                                          \
    {                                                                                          \
        .number = (number_), .is_done = true                                                   \
    }

struct call {
    long number;
    const char *name;
    struct faults_error errors[FAULTS_ERRORS];
};

#define CALL(name_, ...)                                                                       \
    {                                                                                          \
        SYS_##name_, #name_, { __VA_ARGS__ }                                                   \
    }
#define SURE(name_)                                                                            \
    {                                                                                          \
        SYS_##name_, #name_,                                                                   \
        {                                                                                      \
            {                                                                                  \
                0                                                                              \
            }                                                                                  \
        }                                                                                      \
    }

static const struct call calls[] = {
    /* Descriptors. EMFILE lasts, as no descriptor is closed meanwhile. */
    CALL(openat, LASTS(EMFILE), ONCE(ENOMEM), ONCE(ENFILE), ONCE(EACCES), ONCE(EINTR)),
    CALL(open, LASTS(EMFILE), ONCE(ENOMEM), ONCE(ENFILE), ONCE(EACCES), ONCE(EINTR)),
    CALL(memfd_create, LASTS(EMFILE), ONCE(ENOMEM), ONCE(ENFILE), ONCE(EINVAL)),
    CALL(pipe2, LASTS(EMFILE), ONCE(ENFILE)),
    CALL(socket, LASTS(EMFILE), ONCE(ENOBUFS), ONCE(ENFILE), ONCE(ENOMEM)),
    CALL(socketpair, LASTS(EMFILE), ONCE(ENOBUFS), ONCE(ENFILE)),
    CALL(accept4, LASTS(EMFILE), ONCE(ECONNABORTED), ONCE(ENFILE), ONCE(EINTR)),
    CALL(epoll_create1, LASTS(EMFILE), ONCE(ENOMEM), ONCE(ENFILE)),
    CALL(inotify_init1, LASTS(EMFILE), ONCE(ENOMEM), ONCE(ENFILE)),
    CALL(inotify_add_watch, LASTS(ENOSPC), ONCE(ENOMEM), ONCE(EACCES)),
    CALL(timerfd_create, LASTS(EMFILE), ONCE(ENOMEM), ONCE(ENFILE)),
    CALL(pidfd_open, LASTS(EMFILE), ONCE(ENOMEM), ONCE(ENFILE)),
    CALL(dup, LASTS(EMFILE)),
    CALL(dup2, ONCE(EINTR), ONCE(EBUSY)),
    CALL(dup3, ONCE(EINTR), ONCE(EBUSY)),
    CALL(close, DONE(EINTR), DONE(EIO)),
    CALL(close_range, ONCE(ENOMEM), ONCE(ENOSYS)),
    /* Memory. */
    CALL(mmap, LASTS(ENOMEM), ONCE(EAGAIN), ONCE(ENFILE)),
    CALL(munmap, ONCE(ENOMEM)),
    CALL(mprotect, ONCE(ENOMEM)),
    CALL(madvise, LASTS(ENOMEM), ONCE(EAGAIN), ONCE(EINVAL), ONCE(EINTR), ONCE(EFAULT)),
    SURE(brk), /* malloc() asks mmap() then; and allocations fail by themselves */
    /* Files. */
    CALL(read, ONCE(EIO), ONCE(EINTR), ONCE(ENOMEM)),
    CALL(pread64, ONCE(EIO), ONCE(EINTR), ONCE(ENOMEM)),
    CALL(write, LASTS(ENOSPC), ONCE(EINTR), ONCE(EIO)),
    CALL(pwrite64, LASTS(ENOSPC), ONCE(EINTR), ONCE(ENOMEM), ONCE(EFBIG)),
    CALL(ftruncate, ONCE(ENOMEM), ONCE(EINTR), ONCE(ENOSPC)),
    CALL(fallocate, LASTS(ENOSPC), ONCE(EINTR), ONCE(ENOMEM), ONCE(EOPNOTSUPP)),
    CALL(fchmod, ONCE(EPERM), ONCE(EIO)),
    SURE(fstat), /* of an open descriptor: the kernel needs no memory for the answer */
    SURE(fstatfs),
    CALL(stat, ONCE(ENOMEM), ONCE(EACCES)),
    CALL(lstat, ONCE(ENOMEM), ONCE(EACCES)),
    CALL(newfstatat, ONCE(ENOMEM), ONCE(EACCES), ONCE(EIO)),
    CALL(statfs, ONCE(ENOMEM), ONCE(EINTR), ONCE(EIO)),
    CALL(lseek, ONCE(EINVAL)),
    CALL(getdents64, ONCE(ENOMEM), ONCE(EIO)),
    CALL(readlink, ONCE(ENOMEM), ONCE(EACCES)),
    CALL(readlinkat, ONCE(ENOMEM), ONCE(EACCES)),
    CALL(access, ONCE(ENOMEM), ONCE(EACCES)),
    CALL(faccessat, ONCE(ENOMEM), ONCE(EACCES)),
    CALL(faccessat2, ONCE(ENOMEM), ONCE(EACCES), ONCE(ENOSYS)),
    CALL(mkdir, ONCE(ENOSPC), ONCE(EACCES)),
    CALL(unlink, ONCE(EACCES), DONE(ENOENT), ONCE(EIO)),
    CALL(rename, ONCE(ENOSPC), ONCE(EACCES)),
    CALL(link, ONCE(ENOSPC), ONCE(EACCES)),
    CALL(linkat, ONCE(ENOSPC), ONCE(EACCES)),
    CALL(flock, ONCE(ENOLCK), ONCE(EINTR)),
    CALL(chdir, ONCE(EACCES), ONCE(ENOMEM)),
    CALL(getrandom, ONCE(EINTR), ONCE(ENOSYS)),
    /* Sockets and waiting. */
    CALL(bind, ONCE(EADDRINUSE), ONCE(ENOMEM), ONCE(EACCES)),
    CALL(listen, ONCE(EADDRINUSE)),
    CALL(connect, ONCE(ECONNREFUSED), ONCE(EAGAIN), ONCE(EINTR), ONCE(ENOENT), ONCE(EACCES)),
    CALL(sendmsg, ONCE(ENOBUFS), ONCE(EINTR), ONCE(EPIPE), ONCE(ETOOMANYREFS), ONCE(ENOMEM)),
    CALL(sendto, ONCE(ENOBUFS), ONCE(EINTR), ONCE(EAGAIN)),
    CALL(recvmsg, ONCE(ENOMEM), ONCE(EINTR), ONCE(ECONNRESET)),
    CALL(recvfrom, ONCE(ENOMEM), ONCE(EINTR)),
    CALL(getsockopt, ONCE(ENOMEM), ONCE(ENOBUFS)),
    CALL(setsockopt, ONCE(ENOMEM), ONCE(ENOBUFS)),
    CALL(getsockname, ONCE(ENOBUFS)),
    CALL(getpeername, ONCE(ENOBUFS)),
    CALL(shutdown, ONCE(ENOTCONN)),
    CALL(ioctl, ONCE(EINVAL)),
    CALL(poll, ONCE(ENOMEM), ONCE(EINTR)),
    CALL(ppoll, ONCE(ENOMEM), ONCE(EINTR)),
    CALL(epoll_ctl, ONCE(ENOMEM), ONCE(ENOSPC)),
    CALL(epoll_wait, ONCE(EINTR)),
    CALL(clock_nanosleep, ONCE(EINTR)),
    CALL(rt_sigtimedwait, ONCE(EINTR)),
    /* Processes. */
    CALL(clone, LASTS(EAGAIN), ONCE(ENOMEM)),
    CALL(clone3, LASTS(EAGAIN), ONCE(ENOMEM)),
    CALL(fork, LASTS(EAGAIN), ONCE(ENOMEM)),
    CALL(vfork, LASTS(EAGAIN), ONCE(ENOMEM)),
    CALL(execve, ONCE(ENOMEM), ONCE(E2BIG), ONCE(EACCES), ONCE(ETXTBSY)),
    CALL(wait4, ONCE(EINTR), DONE(ECHILD)),
    CALL(waitid, ONCE(EINTR)), /* ECHILD: of a child that was collected, which it was not */
    CALL(pidfd_send_signal, ONCE(EPERM)),
    CALL(kill, ONCE(EPERM)),
    CALL(prlimit64, ONCE(EPERM)),
    /* With arguments that are right, these succeed. */
    SURE(getpid),
    SURE(getppid),
    SURE(gettid),
    SURE(getuid),
    SURE(geteuid),
    SURE(getgid),
    SURE(umask),
    SURE(setsid),
    SURE(sched_yield),
    SURE(sched_getaffinity),
    SURE(rt_sigaction),
    SURE(rt_sigprocmask),
    SURE(rt_sigpending),
    SURE(rt_sigreturn),
    SURE(sysinfo),
    SURE(set_robust_list),
    SURE(rseq),
    SURE(prctl),
    SURE(exit),
    SURE(exit_group),
    SURE(restart_syscall),
    SURE(clock_gettime),
    SURE(tgkill),
    SURE(membarrier),
    SURE(sigaltstack),
};

static const struct faults_error duplicating[] = {LASTS(EMFILE), ONCE(EINTR)};
static const struct faults_error sealing[] = {ONCE(EBUSY), ONCE(EPERM)};
static const struct faults_error sleeping[] = {ONCE(EINTR), ONCE(EAGAIN)};
/* The kernel has room on its stack for so many. */
enum { FEW_POLLED = 8 };
static const struct faults_error polling_few[] = {ONCE(EINTR)};
static const struct faults_error using_a_pipe[] = {ONCE(EINTR)};
static const struct faults_error touching[] = {ONCE(EFAULT), ONCE(EAGAIN)};

#define COPY(list)                                                                             \
    (memcpy(ret_errors, list, sizeof(list)), (int)(sizeof(list) / sizeof((list)[0])))

static int errors_of_fcntl(uint64_t command, struct faults_error *ret_errors)
{
    switch (command) {
    case F_DUPFD:
    case F_DUPFD_CLOEXEC:
        return COPY(duplicating);
    case F_ADD_SEALS:
        return COPY(sealing);
    default: /* what an open descriptor is */
        return 0;
    }
}

static int errors_of_futex(uint64_t operation, struct faults_error *ret_errors)
{
    switch (operation & (uint64_t)FUTEX_CMD_MASK) {
    case FUTEX_WAIT:
    case FUTEX_WAIT_BITSET:
        return COPY(sleeping);
    case FUTEX_WAKE_OP:
        return COPY(touching);
    default: /* waking */
        return 0;
    }
}

static const struct call *find(long number)
{
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++)
        if (calls[i].number == number)
            return &calls[i];
    return NULL;
}

/* A sanitizer's own memory: it ends the process where it can have none. */
static bool is_of_a_sanitizer(long number, const uint64_t arguments[6])
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return (number == SYS_mmap && (int)arguments[4] < 0) || number == SYS_munmap ||
           number == SYS_madvise || number == SYS_mprotect;
#else
    (void)number, (void)arguments;
    return false;
#endif
}

static bool is_pipe(pid_t pid, int fd)
{
    char path[64], target[8] = "";
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)pid, fd);
    return readlink(path, target, sizeof target - 1) > 0 && strncmp(target, "pipe:", 5) == 0;
}

int faults_errors(pid_t pid, long number, const uint64_t arguments[6],
                  struct faults_error *ret_errors)
{
    if (number == SYS_fcntl)
        return errors_of_fcntl(arguments[1], ret_errors);
    if (number == SYS_futex)
        return errors_of_futex(arguments[1], ret_errors);
    if (is_of_a_sanitizer(number, arguments))
        return 0;
    if ((number == SYS_read || number == SYS_write) && is_pipe(pid, (int)arguments[0]))
        return COPY(using_a_pipe);
    if ((number == SYS_poll || number == SYS_ppoll) && arguments[1] <= FEW_POLLED)
        return COPY(polling_few);
    if (number == SYS_newfstatat && (arguments[3] & AT_EMPTY_PATH) != 0)
        return 0; /* fstat() */
    const struct call *call = find(number);
    if (call == NULL)
        return -1;
    int count = 0;
    while (count < FAULTS_ERRORS && call->errors[count].number != 0) {
        ret_errors[count] = call->errors[count];
        count++;
    }
    return count;
}

const char *faults_call_name(long number)
{
    static char text[32];
    const struct call *call = find(number);
    if (call != NULL)
        return call->name;
    if (number == SYS_fcntl)
        return "fcntl";
    if (number == SYS_futex)
        return "futex";
    snprintf(text, sizeof text, "system call %ld", number);
    return text;
}
