/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Packets with a descriptor over a local socket that somebody else made, a stream or packets.
 *
 * On a stream a packet is never over-read: neither a byte nor a descriptor of the next one is
 * taken. A receive that finds nothing takes nothing, and so does one that only tries; one that
 * waits and sees its deadline in the middle of a packet leaves the stream out of step, as a
 * send does, and says so.
 */
#include <errno.h>
#include <inttypes.h>
#include <linux/sockios.h>
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "os/linux.h"

#ifndef SCM_PIDFD
#define SCM_PIDFD 0x04
#endif

enum {
    PACKET_BYTES = 1 << 16,
    RIGHTS_BYTES = CMSG_SPACE(253 * sizeof(int)), /* SCM_MAX_FD */
    OTHER_BYTES = 1024, /* credentials, labels: what the socket's owner may have asked for */
};

/** A local connection. @return 0 or TN_ERR_INVALID */
static int check_socket(int fd, bool *ret_is_stream)
{
    struct sockaddr_storage peer = {0};
    socklen_t size = sizeof peer;
    if (getpeername(fd, (struct sockaddr *)&peer, &size) != 0)
        return tni_linux_fail(TN_ERR_INVALID, errno, "descriptor %d is no connected socket",
                              fd);
    int type = -1;
    size = sizeof type;
    if (peer.ss_family != AF_UNIX || getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) != 0 ||
        (type != SOCK_STREAM && type != SOCK_SEQPACKET))
        return tni_fail(TN_ERR_INVALID,
                        "descriptor %d (family %d, type %d) is no local socket of a stream or "
                        "of packets (SOCK_SEQPACKET): others carry no descriptors",
                        fd, (int)peer.ss_family, type);
    *ret_is_stream = type == SOCK_STREAM;
    return 0;
}

static int fail_socket(int errno_value, int fd, const char *doing)
{
    int status = TN_ERR_SYSTEM;
    if (errno_value == EPIPE || errno_value == ECONNRESET)
        status = TN_ERR_CLOSED;
    else if (errno_value == EMSGSIZE || errno_value == EBADF || errno_value == ENOTCONN ||
             errno_value == EINVAL)
        status = TN_ERR_INVALID;
    return tni_linux_fail(status, errno_value, "%s at descriptor %d", doing, fd);
}

/* Sending. */

/** @return bytes, or -errno */
static ssize_t send_now(int fd, const char *bytes, size_t size_bytes, int sent_fd)
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof sent_fd)] = {0};
    struct iovec part = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = size_bytes};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (sent_fd >= 0) {
        message.msg_control = control;
        message.msg_controllen = sizeof control;
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof sent_fd);
        memcpy(CMSG_DATA(header), &sent_fd, sizeof sent_fd);
    }
    ssize_t sent = 0;
    do {
        sent = sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    } while (sent < 0 && errno == EINTR);
    return sent < 0 ? -errno : sent;
}

static int fail_unsent(int fd, size_t done, size_t size_bytes)
{
    if (done == 0)
        return tni_fail(TN_ERR_TIMED_OUT,
                        "descriptor %d has no room for %zu bytes: nobody reads", fd,
                        size_bytes);
    return tni_fail(
        TN_ERR_TIMED_OUT,
        "only %zu of %zu bytes could be sent at descriptor %d: the stream is out of "
        "step and can only be closed",
        done, size_bytes, fd);
}

/** @return 0: there is room; TN_ERR_TIMED_OUT with no sentence yet; another error */
static int wait_writable(int fd, uint64_t deadline_ns)
{
    struct pollfd poll_fd = {.fd = fd, .events = POLLOUT};
    int ready = tni_linux_poll(&poll_fd, 1, deadline_ns);
    if (ready < 0)
        return tni_linux_fail(TN_ERR_SYSTEM, -ready, "waiting for descriptor %d", fd);
    return ready > 0 ? 0 : TN_ERR_TIMED_OUT;
}

/* Waited for first: then there is room for all of a packet, and a try does not tear it. */
static int send_all(int fd, const char *bytes, size_t size_bytes, int sent_fd,
                    uint64_t deadline_ns)
{
    for (size_t done = 0; done < size_bytes;) {
        int status = wait_writable(fd, deadline_ns);
        ssize_t sent = 0;
        if (status == 0)
            sent = send_now(fd, bytes + done, size_bytes - done, done == 0 ? sent_fd : -1);
        bool is_late = sent == -EAGAIN && tni_os_now_ns() >= deadline_ns;
        if (status == TN_ERR_TIMED_OUT || is_late)
            return fail_unsent(fd, done, size_bytes);
        if (status != 0)
            return status;
        if (sent < 0 && sent != -EAGAIN)
            return fail_socket((int)-sent, fd, "sending");
        done += sent > 0 ? (size_t)sent : 0;
    }
    return 0;
}

int tni_os_socket_send(int fd, const void *bytes, size_t size_bytes, int sent_fd,
                       uint64_t deadline_ns)
{
    bool is_stream = false;
    if (size_bytes == 0 || size_bytes > PACKET_BYTES)
        return tni_fail(TN_ERR_INVALID, "packet of %zu bytes: at least 1 and at most %d",
                        size_bytes, PACKET_BYTES);
    int status = check_socket(fd, &is_stream);
    return status == 0 ? send_all(fd, bytes, size_bytes, sent_fd, deadline_ns) : status;
}

/* Receiving. */

struct packet {
    int socket_fd;
    char *bytes;
    size_t got;
    int fd;        /* the first that came, or -1 */
    bool has_lost; /* there was no room for one */
    uint64_t deadline_ns;
};

static void take_descriptors(struct packet *packet, struct msghdr *message)
{
    for (struct cmsghdr *at = CMSG_FIRSTHDR(message); at != NULL;
         at = CMSG_NXTHDR(message, at)) {
        if (at->cmsg_level != SOL_SOCKET ||
            (at->cmsg_type != SCM_RIGHTS && at->cmsg_type != SCM_PIDFD))
            continue;
        size_t count = (at->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; i++) {
            int fd = -1;
            memcpy(&fd, CMSG_DATA(at) + i * sizeof fd, sizeof fd);
            if (at->cmsg_type == SCM_RIGHTS && packet->fd < 0)
                packet->fd = fd;
            else
                tni_os_close(fd);
        }
    }
}

/** @return bytes, 0 at the end, or -errno */
static ssize_t receive_now(int fd, struct msghdr *message, int flags)
{
    bool was_reset = false;
    for (;;) {
        ssize_t got = recvmsg(fd, message, flags | MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        if (got >= 0)
            return got;
        /* Said once, and before what is still there to be read. */
        bool again = errno == EINTR || (errno == ECONNRESET && !was_reset);
        was_reset = was_reset || errno == ECONNRESET;
        if (again)
            continue;
        message->msg_controllen = 0; /* what lies in its buffer is of another message */
        return errno == ECONNRESET ? 0 : -errno;
    }
}

/** Take what is there, at most up to `want` bytes altogether. @return bytes, 0, or -errno */
static ssize_t take(struct packet *packet, size_t want, int *ret_flags)
{
    _Alignas(struct cmsghdr) char control[RIGHTS_BYTES + OTHER_BYTES];
    struct iovec part = {.iov_base = packet->bytes + packet->got,
                         .iov_len = want - packet->got};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof control};
    ssize_t got = receive_now(packet->socket_fd, &message, 0);
    if (got < 0)
        return got;
    take_descriptors(packet, &message);
    packet->has_lost = packet->has_lost || (message.msg_flags & MSG_CTRUNC) != 0;
    packet->got += (size_t)got;
    *ret_flags = message.msg_flags;
    return got;
}

static int fail_end(const struct packet *packet)
{
    if (packet->got == 0)
        return tni_fail(TN_ERR_CLOSED, "the other side of descriptor %d is closed",
                        packet->socket_fd);
    return tni_fail(TN_ERR_CLOSED,
                    "the other side of descriptor %d closed it %zu bytes into a packet",
                    packet->socket_fd, packet->got);
}

static int wait_readable(const struct packet *packet)
{
    int ready = tni_os_poll(&packet->socket_fd, 1, packet->deadline_ns);
    if (ready != TN_ERR_TIMED_OUT)
        return ready;
    if (packet->got == 0)
        return tni_fail(TN_ERR_TIMED_OUT, "no packet at descriptor %d", packet->socket_fd);
    return tni_fail(TN_ERR_TIMED_OUT,
                    "only %zu bytes of a packet came at descriptor %d: the stream is out of "
                    "step and can only be closed",
                    packet->got, packet->socket_fd);
}

/** Take from a stream until there are `want` bytes. */
static int fill(struct packet *packet, size_t want)
{
    while (packet->got < want) {
        int flags = 0;
        ssize_t got = take(packet, want, &flags);
        if (got == 0)
            return fail_end(packet);
        if (got < 0 && got != -EAGAIN)
            return fail_socket((int)-got, packet->socket_fd, "receiving");
        int status = got == -EAGAIN ? wait_readable(packet) : 0;
        if (status != 0)
            return status;
    }
    return 0;
}

static int fail_room(const struct packet *packet, const char *what)
{
    return tni_fail(TN_ERR_SYSTEM,
                    "a packet %s at descriptor %d: no room for a descriptor (limit %" PRIu64
                    ")",
                    what, packet->socket_fd, tni_linux_descriptor_limit());
}

/**
 * Look at what is there without taking it. MSG_CTRUNC means that a descriptor is there as well.
 * @return bytes, 0 at the end, or -errno
 */
static ssize_t peek_now(int fd, struct iovec *parts, size_t part_count,
                        bool *ret_has_descriptor)
{
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = part_count};
    ssize_t got = receive_now(fd, &message, MSG_PEEK);
    *ret_has_descriptor = got > 0 && (message.msg_flags & MSG_CTRUNC) != 0;
    return got;
}

/*
 * Looking at a stream goes on to the next packet and stops behind the first descriptor: if that
 * is inside of the first `want` bytes, it is this packet's.
 */
static bool is_descriptor_of_first(const struct packet *packet, size_t want)
{
    char beyond = 0;
    bool has_descriptor = false;
    struct iovec parts[] = {{.iov_base = packet->bytes, .iov_len = want},
                            {.iov_base = &beyond, .iov_len = sizeof beyond}};
    ssize_t got = peek_now(packet->socket_fd, parts, TNI_COUNT(parts), &has_descriptor);
    return has_descriptor && (size_t)got <= want;
}

/** Wait for the head, or what there is of it. @return bytes, or an error */
static int peek(const struct packet *packet, size_t head_bytes, bool *ret_has_descriptor)
{
    ssize_t got = 0;
    do {
        int status = wait_readable(packet);
        if (status != 0)
            return status;
        struct iovec part = {.iov_base = packet->bytes, .iov_len = head_bytes};
        got = peek_now(packet->socket_fd, &part, 1, ret_has_descriptor);
    } while (got == -EAGAIN && packet->deadline_ns != 0);
    if (got == -EAGAIN)
        return tni_fail(TN_ERR_TIMED_OUT, "no packet at descriptor %d", packet->socket_fd);
    if (got == 0)
        return fail_end(packet);
    return got > 0 ? (int)got : fail_socket((int)-got, packet->socket_fd, "receiving");
}

static int fail_length(const struct packet *packet, size_t total, size_t size_bytes)
{
    if (total == 0)
        return tni_fail(TN_ERR_INVALID, "what came at descriptor %d is no packet of ours",
                        packet->socket_fd);
    return tni_fail(
        TN_ERR_INVALID,
        "a packet at descriptor %d says that it has %zu bytes: %zu came, at most %zu "
        "may",
        packet->socket_fd, total, packet->got, size_bytes);
}

/*
 * Only tried: nothing is taken unless all is there. Of a head whose first part carries the
 * descriptor no more than that part can be looked at; then it is the head that must be there.
 */
static int check_is_whole(const struct packet *packet, size_t want)
{
    int there = 0;
    if (ioctl(packet->socket_fd, SIOCINQ, &there) != 0)
        return tni_linux_fail(TN_ERR_SYSTEM, errno, "descriptor %d", packet->socket_fd);
    if ((size_t)there < want)
        return tni_fail(TN_ERR_TIMED_OUT, "%d of %zu bytes of a packet are at descriptor %d",
                        there, want, packet->socket_fd);
    return 0;
}

/** Before anything is taken: whether this packet can be. @return 0 or an error */
static int check_stream(const struct packet *packet, size_t size_bytes, size_t head_bytes,
                        size_t (*total)(const void *head))
{
    bool has_descriptor = false;
    int peeked = peek(packet, head_bytes, &has_descriptor);
    if (peeked < 0)
        return peeked;
    size_t want = (size_t)peeked < head_bytes ? head_bytes : total(packet->bytes);
    if (want < head_bytes || want > size_bytes)
        return 0; /* refused once the head is taken */
    if (has_descriptor && !tni_os_has_descriptor_left() && is_descriptor_of_first(packet, want))
        return fail_room(packet, "waits");
    return packet->deadline_ns == 0 ? check_is_whole(packet, want) : 0;
}

static int receive_from_stream(struct packet *packet, size_t size_bytes, size_t head_bytes,
                               size_t (*total)(const void *head))
{
    int status = check_stream(packet, size_bytes, head_bytes, total);
    if (status == 0)
        status = fill(packet, head_bytes);
    if (status != 0)
        return status;
    size_t want = total(packet->bytes);
    if (want < head_bytes || want > size_bytes)
        return fail_length(packet, want, size_bytes);
    return fill(packet, want);
}

static int receive_packet(struct packet *packet, size_t size_bytes, size_t head_bytes,
                          size_t (*total)(const void *head))
{
    int flags = 0;
    ssize_t got = 0;
    do {
        bool has_descriptor = false;
        int peeked = peek(packet, head_bytes, &has_descriptor);
        if (peeked < 0)
            return peeked;
        if (has_descriptor && !tni_os_has_descriptor_left())
            return fail_room(packet, "waits");
        got = take(packet, size_bytes, &flags);
    } while (got == -EAGAIN && packet->deadline_ns != 0);
    if (got == 0)
        return fail_end(packet);
    if (got == -EAGAIN)
        return tni_fail(TN_ERR_TIMED_OUT, "no packet at descriptor %d", packet->socket_fd);
    if (got < 0)
        return fail_socket((int)-got, packet->socket_fd, "receiving");

    size_t want = packet->got < head_bytes ? 0 : total(packet->bytes);
    if (want != packet->got || (flags & MSG_TRUNC))
        return fail_length(packet, want, size_bytes);
    return 0;
}

int tni_os_socket_receive(int fd, void *bytes, size_t size_bytes, size_t head_bytes,
                          size_t (*total)(const void *head), int *ret_fd, uint64_t deadline_ns)
{
    if (head_bytes == 0 || size_bytes < head_bytes || size_bytes > PACKET_BYTES)
        return tni_fail(TN_ERR_INVALID,
                        "packets of %zu to %zu bytes: at least 1 and at most %d", head_bytes,
                        size_bytes, PACKET_BYTES);
    bool is_stream = false;
    int status = check_socket(fd, &is_stream);
    if (status != 0)
        return status;

    struct packet packet = {
        .socket_fd = fd, .bytes = bytes, .fd = -1, .deadline_ns = deadline_ns};
    if (is_stream)
        status = receive_from_stream(&packet, size_bytes, head_bytes, total);
    else
        status = receive_packet(&packet, size_bytes, head_bytes, total);
    if (status == 0 && packet.has_lost)
        status = fail_room(&packet, "is lost");
    if (status != 0) {
        tni_os_close(packet.fd);
        return status;
    }
    *ret_fd = packet.fd;
    return (int)packet.got;
}
