/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bells and watches. A bell is a datagram socket with an abstract name, which exists as long as
 * a descriptor of the socket. Another user may ring it, or take its name first, so a ring is
 * only a hint to check shared memory.
 *
 * An abstract name is valid in one network namespace. A watch works in all of them: an inotify
 * watch of the memory object reports writes through a descriptor. The descriptor is opened anew
 * for each ring, since kernels from 6.14 on do not report writes through the descriptor that
 * memfd_create() returned.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/sockios.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "os/linux.h"

enum { RING_ATTEMPTS = 2, CLEAR_MOST = 4096, RING_CHARGE_BYTES = 8192 };

/* Not snprintf(): a forked child that rings would have to map many pages of its code. */
TNI_AROUND_FORK static char *put_number(char *at, uint64_t number, uint64_t base, int digits)
{
    uint64_t place = 1;
    for (int i = 1; i < digits; i++)
        place *= base;
    for (; place > 0; place /= base) {
        uint64_t digit = number / place % base;
        *at++ = (char)(digit < 10 ? '0' + digit : 'a' + digit - 10);
    }
    return at;
}

static int count_digits(uint32_t number)
{
    return number < 10 ? 1 : 1 + count_digits(number / 10);
}

TNI_AROUND_FORK static socklen_t bell_address(uint64_t number, struct sockaddr_un *ret_address)
{
    *ret_address = (struct sockaddr_un){.sun_family = AF_UNIX};
    /* An abstract name begins with NUL, and does not end with one. */
    static const char begin[] = "tenon-bell-";
    uint32_t uid = tni_os_uid();
    char *at = ret_address->sun_path + 1;
    memcpy(at, begin, sizeof begin - 1);
    at = put_number(at + sizeof begin - 1, uid, 10, count_digits(uid));
    *at++ = '-';
    at = put_number(at, number, 16, 16);
    return (socklen_t)(at - (char *)ret_address);
}

TNI_AROUND_FORK static int open_socket(void)
{
    int fd = -1;
    TNI_LINUX_MAKE_FD(fd, socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    return fd;
}

int tni_os_bell_create(uint64_t number, int *ret_fd)
{
    struct sockaddr_un address;
    socklen_t size = bell_address(number, &address);
    int fd = open_socket();
    if (fd < 0)
        return tni_linux_fail(TN_ERR_SYSTEM, errno, "bell %016" PRIx64, number);
    if (bind(fd, (const struct sockaddr *)&address, size) != 0) {
        int error = errno;
        close(fd);
        return tni_linux_fail(error == EADDRINUSE ? TN_ERR_EXISTS : TN_ERR_SYSTEM, error,
                              "bell %016" PRIx64, number);
    }
    *ret_fd = fd;
    return 0;
}

/** @return 0 or an errno */
TNI_AROUND_FORK static int send_ring(int fd, uint64_t number)
{
    struct sockaddr_un address;
    socklen_t size = bell_address(number, &address);
    ssize_t sent = 0;
    do {
        sent = sendto(fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL, (const struct sockaddr *)&address,
                      size);
    } while (sent < 0 && errno == EINTR);
    return sent < 0 ? errno : 0;
}

/*
 * EAGAIN has two causes. If the bell's queue is full, the bell is readable, and the ring is not
 * needed. If other bells have not read too many rings of this socket, this ring is lost, so it
 * is sent through a new socket.
 */
static bool ring_again(int fd, uint64_t number)
{
    int unread = 0;
    int most = 0;
    socklen_t size = sizeof most;
    if (ioctl(fd, SIOCOUTQ, &unread) == 0 &&
        getsockopt(fd, SOL_SOCKET, SO_SNDBUF, &most, &size) == 0 &&
        unread + RING_CHARGE_BYTES < most)
        return true;
    int fresh = open_socket();
    if (fresh < 0)
        return false;
    int error = send_ring(fresh, number);
    close(fresh);
    return error == 0 || error == EAGAIN;
}

/**
 * The socket with which this process rings, or a new one if that is `known_bad`. -1: no
 * descriptors left.
 */
TNI_AROUND_FORK static int ringing_socket(int known_bad)
{
    static _Atomic int kept = -1;
    int fd = atomic_load(&kept);
    if (fd >= 0 && fd != known_bad)
        return fd;
    int fresh = open_socket();
    if (fresh < 0)
        return -1;
    if (atomic_compare_exchange_strong(&kept, &fd, fresh))
        return fresh;
    close(fresh);
    return fd;
}

TNI_AROUND_FORK bool tni_os_bell_ring(uint64_t number)
{
    int saved_errno = errno;
    int fd = -1;
    bool is_rung = false;
    for (int attempt = 0; attempt < RING_ATTEMPTS; attempt++) {
        fd = ringing_socket(fd);
        if (fd < 0)
            break;
        int error = send_ring(fd, number);
        is_rung = error == 0 || (error == EAGAIN && ring_again(fd, number));
        if (is_rung || error == EAGAIN || error == ECONNREFUSED || error == ENOBUFS ||
            error == ENOMEM)
            break;
        /* The program closed the descriptor, which may be a file of its own by now: leave it
         * open and use another. */
    }
    errno = saved_errno;
    return is_rung;
}

void tni_os_bell_clear(int fd)
{
    /* Bounded, since another process may ring faster than this loop reads. */
    for (int i = 0; i < CLEAR_MOST; i++) {
        char byte;
        if (recv(fd, &byte, 1, MSG_DONTWAIT) < 0 && errno != EINTR)
            return;
    }
}

/* ---- watches ----------------------------------------------------------------------------- */

enum { WATCH_PATH_BYTES = 32 };

static void path_of(int fd, char path[WATCH_PATH_BYTES])
{
    snprintf(path, WATCH_PATH_BYTES, "/proc/self/fd/%d", fd);
}

int tni_os_watch_create(int memory_fd, int *ret_fd)
{
    char path[WATCH_PATH_BYTES];
    path_of(memory_fd, path);
    int fd = -1;
    TNI_LINUX_MAKE_FD(fd, inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
    if (fd < 0)
        return tni_linux_fail(TN_ERR_SYSTEM, errno, "inotify_init1");
    if (inotify_add_watch(fd, path, IN_MODIFY) < 0) {
        int error = errno;
        close(fd);
        return tni_linux_fail(TN_ERR_SYSTEM, error, "inotify_add_watch of %s", path);
    }
    *ret_fd = fd;
    return 0;
}

int tni_os_watch_ring(int memory_fd, uint64_t offset)
{
    char path[WATCH_PATH_BYTES];
    int saved_errno = errno;
    int status = tni_linux_check_file_size("a ring", "of a watched object", offset + 1);
    if (status != 0)
        return status;
    path_of(memory_fd, path);
    int fd = -1;
    TNI_LINUX_MAKE_FD(fd, open(path, O_WRONLY | O_CLOEXEC));
    if (fd < 0)
        return tni_linux_fail(tni_linux_status(errno), errno, "opening %s", path);
    ssize_t done = pwrite(fd, "", 1, (off_t)offset);
    int error = errno;
    close(fd);
    if (done != 1)
        return tni_linux_fail(tni_linux_status(error), error, "pwrite64 to %s", path);
    errno = saved_errno;
    return 0;
}

void tni_os_watch_clear(int fd)
{
    _Alignas(struct inotify_event) char events[1024];
    for (int i = 0; i < CLEAR_MOST && read(fd, events, sizeof events) > 0; i++)
        ;
}
