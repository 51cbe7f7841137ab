/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Packets with descriptors, over a local socket of the program's: a stream, or a socket of
 * packets.
 *
 * I1  A receive takes no byte and no descriptor of the next packet from a stream.
 * I2  A receive with a deadline of 0 takes a whole packet from a stream, or nothing. A send or
 * a receive whose later deadline passes in the middle of a packet leaves the stream out of
 *     step, and its detail says so.
 */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "os/linux.h"

int tni_linux_check_packets(int fd, bool *ret_is_stream)
{
    struct sockaddr_storage peer = {0};
    socklen_t size = sizeof peer;
    if (getpeername(fd, (struct sockaddr *)&peer, &size) != 0)
        return tni_linux_fail(TN_ERR_INVALID, errno, "descriptor %d is not a connected socket",
                              fd);
    int type = -1;
    size = sizeof type;
    if (peer.ss_family != AF_UNIX || getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) != 0 ||
        (type != SOCK_STREAM && type != SOCK_SEQPACKET))
        return tni_fail(TN_ERR_INVALID,
                        "descriptor %d (family %d, type %d) is not a local socket of a stream "
                        "or of packets (SOCK_SEQPACKET); other sockets carry no descriptors",
                        fd, (int)peer.ss_family, type);
    *ret_is_stream = type == SOCK_STREAM;
    return 0;
}

int tni_linux_fail_packet(int errno_value, int fd, const char *doing)
{
    int status = TN_ERR_SYSTEM;
    if (errno_value == EPIPE || errno_value == ECONNRESET)
        status = TN_ERR_CLOSED;
    else if (errno_value == EMSGSIZE || errno_value == EBADF || errno_value == ENOTCONN ||
             errno_value == EINVAL)
        status = TN_ERR_INVALID;
    return tni_linux_fail(status, errno_value, "%s at descriptor %d", doing, fd);
}

/** Send what is left after `done` bytes. @return bytes, or -errno */
static ssize_t send_now(int fd, const struct tni_os_message *message, size_t done)
{
    struct tni_linux_rights rights;
    struct iovec part = {.iov_base = (char *)(uintptr_t)message->bytes + done,
                         .iov_len = message->size_bytes - done};
    struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};
    tni_linux_attach(&header, &rights, message->fds, done == 0 ? message->fd_count : 0);
    ssize_t sent = 0;
    do {
        sent = sendmsg(fd, &header, MSG_NOSIGNAL | MSG_DONTWAIT);
    } while (sent < 0 && errno == EINTR);
    return sent < 0 ? -errno : sent;
}

static int fail_unsent(int fd, size_t done, size_t size_bytes)
{
    if (done == 0)
        return tni_fail(TN_ERR_TIMED_OUT,
                        "descriptor %d has no room for %zu bytes: the other side does not read",
                        fd, size_bytes);
    return tni_fail(
        TN_ERR_TIMED_OUT,
        "only %zu of %zu bytes could be sent at descriptor %d: the stream is out of "
        "step and can only be closed",
        done, size_bytes, fd);
}

/** @return 0: there is room; TN_ERR_TIMED_OUT, without a detail; another error */
static int wait_writable(int fd, uint64_t deadline_ns)
{
    struct pollfd poll_fd = {.fd = fd, .events = POLLOUT};
    int ready = tni_linux_poll(&poll_fd, 1, deadline_ns);
    if (ready < 0)
        return tni_linux_fail(TN_ERR_SYSTEM, -ready, "waiting for descriptor %d", fd);
    return ready > 0 ? 0 : TN_ERR_TIMED_OUT;
}

/*
 * poll() says that the socket is writable when there is room for a whole packet. So a deadline
 * of 0 does not send a part of a packet.
 */
static int send_all(int fd, const struct tni_os_message *message, uint64_t deadline_ns)
{
    for (size_t done = 0; done < message->size_bytes;) {
        int status = wait_writable(fd, deadline_ns);
        ssize_t sent = 0;
        if (status == 0)
            sent = send_now(fd, message, done);
        bool is_late = sent == -EAGAIN && tni_os_now_ns() >= deadline_ns;
        if (status == TN_ERR_TIMED_OUT || is_late)
            return fail_unsent(fd, done, message->size_bytes);
        if (status != 0)
            return status;
        if (sent < 0 && sent != -EAGAIN)
            return tni_linux_fail_packet((int)-sent, fd, "sending");
        done += sent > 0 ? (size_t)sent : 0;
    }
    return 0;
}

int tni_os_socket_send(int fd, const struct tni_os_message *message, uint64_t deadline_ns)
{
    bool is_stream = false;
    if (message->size_bytes == 0 || message->size_bytes > TNI_LINUX_PACKET_BYTES ||
        message->fd_count > TNI_LINUX_MESSAGE_FDS)
        return tni_fail(TN_ERR_INVALID,
                        "packet of %zu bytes and %" PRIu32
                        " descriptors: at least 1 byte, at most %d and %d",
                        message->size_bytes, message->fd_count, TNI_LINUX_PACKET_BYTES,
                        TNI_LINUX_MESSAGE_FDS);
    int status = tni_linux_check_packets(fd, &is_stream);
    return status == 0 ? send_all(fd, message, deadline_ns) : status;
}
