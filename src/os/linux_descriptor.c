/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors, pipes, timers, loops. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "os/linux.h"

enum { POLL_ON_STACK = 64, LOOP_BATCH = 64 };

/* Keeps errno, so that a caller may close before it reports a failure. */
void tni_os_close(int fd)
{
    int error = errno;
    if (fd >= 0)
        close(fd);
    errno = error;
}

bool tni_linux_move_pair_up(int fds[2])
{
    fds[0] = tni_linux_above_streams(fds[0]);
    int error = errno;
    fds[1] = tni_linux_above_streams(fds[1]);
    if (fds[0] >= 0 && fds[1] >= 0)
        return true;
    errno = fds[0] < 0 ? error : errno;
    tni_os_close(fds[0]);
    tni_os_close(fds[1]);
    return false;
}

DIR *tni_linux_open_folder(const char *path)
{
    int fd = -1;
    TNI_LINUX_MAKE_FD(fd, open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NONBLOCK));
    DIR *folder = fd >= 0 ? fdopendir(fd) : NULL;
    if (folder == NULL)
        tni_os_close(fd);
    return folder;
}

FILE *tni_linux_open_text(const char *path)
{
    int fd = -1;
    TNI_LINUX_MAKE_FD(fd, open(path, O_RDONLY | O_CLOEXEC));
    FILE *file = fd >= 0 ? fdopen(fd, "r") : NULL;
    if (file == NULL)
        tni_os_close(fd);
    return file;
}

int tni_os_keep_on_exec(int fd)
{
    int flags = fcntl(fd, F_GETFD);
    if (flags < 0 || fcntl(fd, F_SETFD, flags & ~FD_CLOEXEC) != 0)
        return tni_linux_fail(TN_ERR_INVALID, errno, "descriptor %d", fd);
    return 0;
}

int tni_os_duplicate(int fd, int *ret_fd)
{
    int copy = -1;
    TNI_LINUX_MAKE((copy = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1)) >= 0);
    if (copy < 0)
        return tni_linux_fail(errno == EBADF ? TN_ERR_INVALID : TN_ERR_SYSTEM, errno,
                              "duplicating descriptor %d", fd);
    *ret_fd = copy;
    return 0;
}

/* The hard limit; linux.c has the soft one. */

uint64_t tni_os_hard_descriptor_limit(void)
{
    struct rlimit limit = {.rlim_max = RLIM_INFINITY};
    getrlimit(RLIMIT_NOFILE, &limit);
    return limit.rlim_max;
}

bool tni_os_has_descriptors_left(uint32_t count)
{
    int fds[TNI_LINUX_MESSAGE_FDS] = {-1};
    uint32_t made = 0, wanted = TNI_MIN(count, (uint32_t)TNI_LINUX_MESSAGE_FDS);
    for (bool goes_on = true; goes_on && made < wanted; made += goes_on) {
        TNI_LINUX_MAKE_FD(fds[made], epoll_create1(EPOLL_CLOEXEC));
        goes_on = fds[made] >= 0;
    }
    for (uint32_t i = 0; i < made; i++)
        tni_os_close(fds[i]);
    return made == wanted;
}

bool tni_os_has_descriptor_left(void) { return tni_os_has_descriptors_left(1); }

/* Waiting for one of several. */

/* Rounded up, and at most a minute: the caller checks the deadline and polls again. */
static int milliseconds_left(uint64_t deadline_ns)
{
    enum { MOST_MS = 60000 };
    const uint64_t ms_ns = 1000000;
    uint64_t now_ns = tni_os_now_ns();
    if (deadline_ns == TNI_FOREVER)
        return -1;
    uint64_t left_ns = deadline_ns > now_ns ? deadline_ns - now_ns : 0;
    return (int)TNI_MIN((left_ns + ms_ns - 1) / ms_ns, MOST_MS);
}

int tni_linux_poll(struct pollfd *polls, uint32_t count, uint64_t deadline_ns)
{
    for (;;) {
        struct timespec left;
        int ready = ppoll(polls, count, tni_linux_time_left(deadline_ns, &left), NULL);
        if (ready >= 0)
            return ready;
        if (errno == ENOSYS || errno == EPERM) /* a filter refuses ppoll(), so poll() is used */
            ready = poll(polls, count, milliseconds_left(deadline_ns));
        if (ready > 0 || (ready == 0 && tni_os_now_ns() >= deadline_ns))
            return ready;
        if (ready == 0)
            continue;
        if (errno != EINTR)
            return -errno;
    }
}

static int find_ready(const struct pollfd *polls, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (polls[i].revents & POLLNVAL)
            return tni_fail(TN_ERR_INVALID, "descriptor %d is not open", polls[i].fd);
        if (polls[i].revents != 0)
            return (int)i;
    }
    if (count == 1)
        return tni_fail(TN_ERR_TIMED_OUT, "descriptor %d has nothing to read", polls[0].fd);
    return tni_fail(TN_ERR_TIMED_OUT, "none of %" PRIu32 " descriptors has anything to read",
                    count);
}

int tni_os_poll(const int *fds, uint32_t count, uint64_t deadline_ns)
{
    struct pollfd few[POLL_ON_STACK];
    struct pollfd *polls = few;
    if (count > POLL_ON_STACK) {
        polls = malloc(count * sizeof *polls);
        if (polls == NULL)
            return tni_fail(TN_ERR_NO_MEMORY, "waiting for %" PRIu32 " descriptors", count);
    }
    for (uint32_t i = 0; i < count; i++)
        polls[i] = (struct pollfd){.fd = fds[i], .events = POLLIN};

    int ready = tni_linux_poll(polls, count, deadline_ns);
    int result = 0;
    if (ready < 0)
        result =
            tni_linux_fail(TN_ERR_SYSTEM, -ready, "waiting for %" PRIu32 " descriptors", count);
    else
        result = find_ready(polls, ready == 0 ? 0 : count);
    if (polls != few)
        free(polls);
    return result;
}

/* Pipes. */

int tni_os_pipe(int ret_fds[2])
{
    int ends[2], made = -1;
    TNI_LINUX_MAKE((made = pipe2(ends, O_CLOEXEC)) == 0);
    if (made != 0 || !tni_linux_move_pair_up(ends))
        return tni_linux_fail(TN_ERR_SYSTEM, errno, "pipe2");
    ret_fds[0] = ends[0];
    ret_fds[1] = ends[1];
    return 0;
}

int tni_os_read(int fd, void *bytes, size_t size_bytes)
{
    /* poll() first, since O_NONBLOCK would change the descriptor for every process that shares
     * it. */
    int ready = tni_os_poll(&fd, 1, 0);
    if (ready < 0)
        return ready;
    ssize_t got = 0;
    do {
        got = read(fd, bytes, TNI_MIN(size_bytes, (size_t)INT_MAX));
    } while (got < 0 && errno == EINTR);
    if (got >= 0)
        return (int)got;
    if (errno == EAGAIN)
        return tni_fail(TN_ERR_TIMED_OUT, "nothing to read from descriptor %d", fd);
    return tni_linux_fail(TN_ERR_SYSTEM, errno, "reading descriptor %d", fd);
}

/** @return 0 or an errno */
static int write_all(int fd, const char *bytes, size_t size_bytes)
{
    while (size_bytes > 0) {
        ssize_t done = write(fd, bytes, size_bytes);
        if (done >= 0) {
            bytes += done;
            size_bytes -= (size_t)done;
        } else if (errno == EAGAIN) {
            struct pollfd poll_fd = {.fd = fd, .events = POLLOUT};
            poll(&poll_fd, 1, -1);
        } else if (errno != EINTR) {
            return errno;
        }
    }
    return 0;
}

/* R7: block SIGPIPE, and consume the signal if this write raised it. */
int tni_os_write(int fd, const void *bytes, size_t size_bytes)
{
    sigset_t pipe_signal;
    sigset_t old_mask;
    sigset_t pending;
    sigemptyset(&pipe_signal);
    sigaddset(&pipe_signal, SIGPIPE);
    sigpending(&pending);
    pthread_sigmask(SIG_BLOCK, &pipe_signal, &old_mask);

    int error = write_all(fd, bytes, size_bytes);
    if (error == EPIPE && !sigismember(&pending, SIGPIPE)) {
        const struct timespec now = {0};
        while (sigtimedwait(&pipe_signal, NULL, &now) < 0 && errno == EINTR) {
        }
    }
    pthread_sigmask(SIG_SETMASK, &old_mask, NULL);
    if (error == 0)
        return 0;
    return tni_linux_fail(error == EPIPE ? TN_ERR_CLOSED : TN_ERR_SYSTEM, error,
                          "writing %zu bytes to descriptor %d", size_bytes, fd);
}

/* Timers. */

int tni_os_timer_create(uint64_t deadline_ns, int *ret_fd)
{
    const struct itimerspec at = {.it_value = tni_linux_timespec(deadline_ns)};
    int fd = -1;
    TNI_LINUX_MAKE_FD(fd, timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
    if (fd < 0)
        return tni_linux_fail(TN_ERR_SYSTEM, errno, "timerfd_create");
    if (timerfd_settime(fd, TFD_TIMER_ABSTIME, &at, NULL) != 0) {
        int error = errno;
        close(fd);
        return tni_linux_fail(TN_ERR_SYSTEM, error, "timerfd_settime");
    }
    *ret_fd = fd;
    return 0;
}

/* Loops. */

int tni_os_loop_create(int *ret_loop)
{
    int loop = -1;
    TNI_LINUX_MAKE_FD(loop, epoll_create1(EPOLL_CLOEXEC));
    if (loop < 0)
        return tni_linux_fail(TN_ERR_SYSTEM, errno, "epoll");
    *ret_loop = loop;
    return 0;
}

int tni_os_loop_add(int loop, int fd, uint64_t tag)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = tag};
    if (epoll_ctl(loop, EPOLL_CTL_ADD, fd, &event) == 0)
        return 0;
    if (errno == EPERM)
        return tni_fail(TN_ERR_INVALID,
                        "descriptor %d is of a file or a folder, which is always ready", fd);
    int status = errno == EEXIST  ? TN_ERR_EXISTS
                 : errno == EBADF ? TN_ERR_INVALID
                                  : TN_ERR_SYSTEM;
    return tni_linux_fail(status, errno, "adding descriptor %d to a loop", fd);
}

void tni_os_loop_remove(int loop, int fd)
{
    struct epoll_event unused = {0};
    epoll_ctl(loop, EPOLL_CTL_DEL, fd, &unused);
}

int tni_os_loop_wait(int loop, uint64_t *ret_tags, uint32_t max, uint64_t deadline_ns)
{
    /* Waits with ppoll(): epoll_wait() has milliseconds only, and epoll_pwait2() needs
     * Linux 5.11. */
    struct pollfd poll_fd = {.fd = loop, .events = POLLIN};
    int ready = tni_linux_poll(&poll_fd, 1, deadline_ns);
    if (ready == 0)
        return 0;

    struct epoll_event events[LOOP_BATCH];
    int count = 0;
    do {
        count = epoll_wait(loop, events, (int)TNI_MIN(max, (uint32_t)LOOP_BATCH), 0);
    } while (count < 0 && errno == EINTR);
    if (count < 0)
        return tni_linux_fail(TN_ERR_SYSTEM, errno, "waiting on loop %d", loop);
    for (int i = 0; i < count; i++)
        ret_tags[i] = events[i].data.u64;
    return count;
}
