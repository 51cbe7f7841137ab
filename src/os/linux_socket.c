/* SPDX-License-Identifier: Apache-2.0 */
/* Local sockets of packets between processes of one user. */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "os/linux.h"

enum { BACKLOG = 128 };

/* Connections. */

static int path_address(const char *path, struct sockaddr_un *ret_address)
{
    size_t len = strlen(path);
    if (len >= sizeof ret_address->sun_path)
        return tni_fail(
            TN_ERR_INVALID,
            "socket path %s has %zu bytes, at most %zu fit: set TENON_RUNTIME_DIR to a "
            "shorter one",
            path, len, sizeof ret_address->sun_path - 1);
    *ret_address = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(ret_address->sun_path, path, len + 1);
    return 0;
}

static int socket_address(const char *name, struct sockaddr_un *ret_address)
{
    char path[TNI_LINUX_PATH_BYTES * 2];
    int status = tni_linux_runtime_path(name, path, sizeof path);
    return status == 0 ? path_address(path, ret_address) : status;
}

static int check_peer(int fd, const char *name)
{
    struct ucred peer;
    socklen_t size = sizeof peer;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0)
        return tni_linux_fail(TN_ERR_SYSTEM, errno, "socket %s: the credentials of its peer",
                              name);
    if (peer.uid != tni_os_uid())
        return tni_fail(TN_ERR_DENIED,
                        "socket %s: process %" PRId32 " has uid %u, not %" PRIu32, name,
                        (int32_t)peer.pid, (unsigned)peer.uid, tni_os_uid());
    return 0;
}

/* A time limit for connect and send, so that a stopped peer cannot block this process. */
static void limit_sending(int fd)
{
    const struct timeval limit = {.tv_sec = TNI_LINUX_SEND_SECONDS};
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

int tni_os_listen(const char *name, int *ret_fd)
{
    struct sockaddr_un address;
    int status = socket_address(name, &address);
    if (status != 0)
        return status;
    int fd = -1, kind = SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK;
    TNI_LINUX_MAKE_FD(fd, socket(AF_UNIX, kind, 0));
    if (fd < 0)
        return tni_linux_fail(TN_ERR_SYSTEM, errno, "socket %s", address.sun_path);

    unlink(address.sun_path);
    if (bind(fd, (const struct sockaddr *)&address, sizeof address) != 0 ||
        listen(fd, BACKLOG) != 0) {
        int error = errno;
        close(fd);
        return tni_linux_fail(tni_linux_status(error), error, "listening at %s",
                              address.sun_path);
    }
    *ret_fd = fd;
    return 0;
}

int tni_os_accept(int fd, int *ret_fd)
{
    int accepted = -1;
    do {
        TNI_LINUX_MAKE_FD(accepted, accept4(fd, NULL, NULL, SOCK_CLOEXEC));
    } while (accepted < 0 && errno == ECONNABORTED);
    if (accepted < 0 && errno == EAGAIN)
        return tni_fail(TN_ERR_TIMED_OUT, "no process is connecting to descriptor %d", fd);
    if (accepted < 0)
        return tni_linux_fail(TN_ERR_SYSTEM, errno, "accepting at descriptor %d", fd);

    int status = check_peer(accepted, "accepted");
    if (status != 0) {
        close(accepted);
        return status;
    }
    limit_sending(accepted);
    *ret_fd = accepted;
    return 0;
}

static int fail_connect(int errno_value, const char *path)
{
    int status = tni_linux_status(errno_value);
    if (errno_value == ECONNREFUSED)
        status = TN_ERR_NOT_FOUND;
    if (errno_value == EAGAIN)
        status = TN_ERR_TIMED_OUT;
    return tni_linux_fail(status, errno_value, "connecting to %s", path);
}

static int connect_to(const struct sockaddr_un *address, int *ret_fd)
{
    int fd = -1;
    TNI_LINUX_MAKE_FD(fd, socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    if (fd < 0)
        return tni_linux_fail(TN_ERR_SYSTEM, errno, "socket %s", address->sun_path);

    limit_sending(fd);
    int error = 0;
    do {
        error = connect(fd, (const struct sockaddr *)address, sizeof *address) == 0 ? 0 : errno;
    } while (error == EINTR);
    int status =
        error == 0 ? check_peer(fd, address->sun_path) : fail_connect(error, address->sun_path);
    if (status != 0) {
        close(fd);
        return status;
    }
    *ret_fd = fd;
    return 0;
}

int tni_os_connect(const char *name, int *ret_fd)
{
    struct sockaddr_un address;
    int status = socket_address(name, &address);
    return status == 0 ? connect_to(&address, ret_fd) : status;
}

int tni_os_connect_in(const char *folder, const char *name, int *ret_fd)
{
    char path[TNI_LINUX_PATH_BYTES * 2];
    struct sockaddr_un address;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    int status = path_address(path, &address);
    return status == 0 ? connect_to(&address, ret_fd) : status;
}

uint64_t tni_os_socket_number(int fd)
{
    struct stat stat;
    if (fd < 0 || fstat(fd, &stat) != 0 || !S_ISSOCK(stat.st_mode))
        return 0;
    return (uint64_t)stat.st_ino;
}

/* Messages. */

void tni_linux_attach(struct msghdr *message, struct tni_linux_rights *rights, const int *fds,
                      uint32_t fd_count)
{
    if (fd_count == 0)
        return;
    message->msg_control = rights->bytes;
    message->msg_controllen = CMSG_SPACE(fd_count * sizeof(int));
    memset(rights->bytes, 0, message->msg_controllen);
    struct cmsghdr *header = CMSG_FIRSTHDR(message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(fd_count * sizeof(int));
    memcpy(CMSG_DATA(header), fds, fd_count * sizeof(int));
}

int tni_os_send(int fd, const void *bytes, size_t size_bytes, const int *fds, uint32_t fd_count)
{
    if (size_bytes == 0 || fd_count > TNI_LINUX_MESSAGE_FDS)
        return tni_fail(TN_ERR_INVALID,
                        "message of %zu bytes and %" PRIu32
                        " descriptors: at least 1 and at most %d",
                        size_bytes, fd_count, TNI_LINUX_MESSAGE_FDS);

    struct tni_linux_rights rights;
    struct iovec part = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = size_bytes};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    tni_linux_attach(&message, &rights, fds, fd_count);
    ssize_t sent = 0;
    do {
        sent = sendmsg(fd, &message, MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    if (sent >= 0)
        return 0;
    int status = TN_ERR_SYSTEM;
    if (errno == EPIPE || errno == ECONNRESET || errno == ENOTCONN)
        status = TN_ERR_CLOSED;
    else if (errno == EAGAIN)
        status = TN_ERR_TIMED_OUT;
    else if (errno == EMSGSIZE || errno == EBADF)
        status = TN_ERR_INVALID;
    return tni_linux_fail(status, errno, "sendmsg of %zu bytes and %" PRIu32 " descriptors",
                          size_bytes, fd_count);
}

static void close_all(const int *fds, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        tni_os_close(fds[i]);
}

/**
 * Take the descriptors out of a message. @return how many; one that could not be moved above
 * the standard streams is -1, and the message is marked as if the table had been full
 */
static uint32_t take_descriptors(struct msghdr *message, int fds[TNI_LINUX_MESSAGE_FDS])
{
    uint32_t count = 0;
    for (struct cmsghdr *at = CMSG_FIRSTHDR(message); at != NULL;
         at = CMSG_NXTHDR(message, at)) {
        if (at->cmsg_level != SOL_SOCKET || at->cmsg_type != SCM_RIGHTS)
            continue;
        uint32_t here = (uint32_t)((at->cmsg_len - CMSG_LEN(0)) / sizeof(int));
        here = TNI_MIN(here, (uint32_t)TNI_LINUX_MESSAGE_FDS - count);
        memcpy(fds + count, CMSG_DATA(at), here * sizeof(int));
        count += here;
    }
    for (uint32_t i = 0; i < count; i++) {
        fds[i] = tni_linux_above_streams(fds[i]);
        if (fds[i] < 0)
            message->msg_flags |= MSG_CTRUNC;
    }
    return count;
}

/* The control buffer takes all descriptors of a message, so MSG_CTRUNC means a full table. */
static int check_received(const struct msghdr *message, const struct tni_os_buffer *buffer,
                          uint32_t fd_count)
{
    if (message->msg_flags & MSG_CTRUNC)
        return tni_linux_fail(TN_ERR_SYSTEM, EMFILE, "descriptors of a message were lost");
    if (message->msg_flags & MSG_TRUNC)
        return tni_fail(TN_ERR_INVALID, "a message is longer than the %zu bytes it may have",
                        buffer->size_bytes);
    if (fd_count > buffer->max_fds)
        return tni_fail(TN_ERR_INVALID,
                        "a message has %" PRIu32 " descriptors, at most %" PRIu32 " may come",
                        fd_count, buffer->max_fds);
    return 0;
}

/** @return bytes, or -errno */
static ssize_t receive_now(int fd, struct msghdr *message)
{
    for (;;) {
        ssize_t got = recvmsg(fd, message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        if (got >= 0)
            return got;
        if (errno == EINTR)
            continue;
        message->msg_controllen =
            0; /* the buffer still holds the control data of an earlier message */
        return errno == ECONNRESET ? 0 : -errno;
    }
}

int tni_os_receive(int fd, const struct tni_os_buffer *buffer, uint64_t deadline_ns,
                   uint32_t *ret_fd_count)
{
    struct tni_linux_rights rights;
    struct iovec part = {.iov_base = buffer->bytes,
                         .iov_len = TNI_MIN(buffer->size_bytes, (size_t)INT_MAX)};
    struct msghdr message;
    ssize_t got = 0;
    do {
        int ready = tni_os_poll(&fd, 1, deadline_ns);
        if (ready < 0)
            return ready;
        message = (struct msghdr){.msg_iov = &part,
                                  .msg_iovlen = 1,
                                  .msg_control = rights.bytes,
                                  .msg_controllen = sizeof rights.bytes};
        got = receive_now(fd, &message);
    } while (got == -EAGAIN && deadline_ns != 0);
    if (got == -EAGAIN)
        return tni_fail(TN_ERR_TIMED_OUT, "no message at descriptor %d", fd);
    if (got < 0)
        return tni_linux_fail(TN_ERR_SYSTEM, (int)-got, "recvmsg at descriptor %d", fd);

    int fds[TNI_LINUX_MESSAGE_FDS];
    uint32_t count = take_descriptors(&message, fds);
    int status = check_received(&message, buffer, count);
    if (status != 0) {
        close_all(fds, count);
        return status;
    }
    if (count > 0)
        memcpy(buffer->fds, fds, count * sizeof(int));
    if (ret_fd_count != NULL)
        *ret_fd_count = count;
    return (int)got;
}
