/* SPDX-License-Identifier: Apache-2.0 */
/* tni_os_socket_receive(); its invariants are in linux_packet.c. */
#include <errno.h>
#include <inttypes.h>
#include <linux/sockios.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "os/linux.h"

#ifndef SCM_PIDFD
#define SCM_PIDFD 0x04
#endif

enum {
    RIGHTS_BYTES = sizeof(struct tni_linux_rights),
    OTHER_BYTES = 1024, /* credentials and labels, which the program may have turned on */
};

struct arrival {
    int socket_fd;
    const struct tni_os_packet *packet; /* where it goes */
    size_t got;                         /* bytes taken so far */
    int fd;                             /* the first descriptor that came with it, or -1 */
    bool has_lost;                      /* the table had no room for a descriptor */
    uint64_t deadline_ns;
};

static char *bytes_of(const struct arrival *a) { return a->packet->bytes; }

/* Keep the first descriptor of the message, and close the others. */
static void take_descriptors(struct arrival *a, struct msghdr *message)
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
            if (at->cmsg_type == SCM_RIGHTS && a->fd < 0 && !a->has_lost) {
                a->fd = tni_linux_above_streams(fd);
                a->has_lost = a->fd < 0;
            } else {
                tni_os_close(fd);
            }
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
        /* The kernel reports a reset once, before the bytes that can still be read. */
        bool again = errno == EINTR || (errno == ECONNRESET && !was_reset);
        was_reset = was_reset || errno == ECONNRESET;
        if (again)
            continue;
        message->msg_controllen =
            0; /* the buffer still holds the control data of an earlier message */
        return errno == ECONNRESET ? 0 : -errno;
    }
}

/**
 * Take the bytes that are there, until the packet has at most `want` bytes. @return bytes, 0 at
 * the end, or -errno
 */
static ssize_t take(struct arrival *a, size_t want, int *ret_flags)
{
    _Alignas(struct cmsghdr) char control[RIGHTS_BYTES + OTHER_BYTES];
    struct iovec part = {.iov_base = bytes_of(a) + a->got, .iov_len = want - a->got};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof control};
    ssize_t got = receive_now(a->socket_fd, &message, 0);
    if (got < 0)
        return got;
    take_descriptors(a, &message);
    a->has_lost = a->has_lost || (message.msg_flags & MSG_CTRUNC) != 0;
    a->got += (size_t)got;
    *ret_flags = message.msg_flags;
    return got;
}

static int fail_end(const struct arrival *a)
{
    if (a->got == 0)
        return tni_fail(TN_ERR_CLOSED, "the other side of descriptor %d is closed",
                        a->socket_fd);
    return tni_fail(TN_ERR_CLOSED,
                    "the other side of descriptor %d closed it %zu bytes into a packet",
                    a->socket_fd, a->got);
}

static int wait_readable(const struct arrival *a)
{
    int ready = tni_os_poll(&a->socket_fd, 1, a->deadline_ns);
    if (ready != TN_ERR_TIMED_OUT)
        return ready;
    if (a->got == 0)
        return tni_fail(TN_ERR_TIMED_OUT, "no packet at descriptor %d", a->socket_fd);
    return tni_fail(TN_ERR_TIMED_OUT,
                    "only %zu bytes of a packet came at descriptor %d: the stream is out of "
                    "step and can only be closed",
                    a->got, a->socket_fd);
}

/** Take from a stream until the packet has `want` bytes. */
static int fill(struct arrival *a, size_t want)
{
    while (a->got < want) {
        int flags = 0;
        ssize_t got = take(a, want, &flags);
        if (got == 0)
            return fail_end(a);
        if (got < 0 && got != -EAGAIN)
            return tni_linux_fail_packet((int)-got, a->socket_fd, "receiving");
        int status = got == -EAGAIN ? wait_readable(a) : 0;
        if (status != 0)
            return status;
    }
    return 0;
}

static int fail_room(const struct arrival *a, const char *what)
{
    return tni_fail(TN_ERR_SYSTEM,
                    "a packet %s at descriptor %d: no room for a descriptor (limit %" PRIu64
                    ")",
                    what, a->socket_fd, tni_linux_descriptor_limit());
}

/**
 * Read the bytes that are there, and leave them in the socket. There is no buffer for control
 * data, so MSG_CTRUNC means that a descriptor came with the bytes.
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
 * A peek at a stream reads on into the next packet, and stops after the part that a descriptor
 * came with. So if it stops within the first `want` bytes, the descriptor is this packet's.
 */
static bool is_descriptor_of_first(const struct arrival *a, size_t want)
{
    char beyond = 0;
    bool has_descriptor = false;
    struct iovec parts[] = {{.iov_base = bytes_of(a), .iov_len = want},
                            {.iov_base = &beyond, .iov_len = sizeof beyond}};
    ssize_t got = peek_now(a->socket_fd, parts, TNI_COUNT(parts), &has_descriptor);
    return has_descriptor && (size_t)got <= want;
}

/** Wait for the head or a part of it, and leave it in the socket. @return bytes, or an error */
static int peek(const struct arrival *a, bool *ret_has_descriptor)
{
    ssize_t got = 0;
    do {
        int status = wait_readable(a);
        if (status != 0)
            return status;
        struct iovec part = {.iov_base = bytes_of(a), .iov_len = a->packet->head_bytes};
        got = peek_now(a->socket_fd, &part, 1, ret_has_descriptor);
    } while (got == -EAGAIN && a->deadline_ns != 0);
    if (got == -EAGAIN)
        return tni_fail(TN_ERR_TIMED_OUT, "no packet at descriptor %d", a->socket_fd);
    if (got == 0)
        return fail_end(a);
    return got > 0 ? (int)got : tni_linux_fail_packet((int)-got, a->socket_fd, "receiving");
}

static size_t total_of(const struct arrival *a) { return a->packet->total(bytes_of(a)); }

static int fail_length(const struct arrival *a, size_t total)
{
    if (total == 0)
        return tni_fail(TN_ERR_INVALID,
                        "the bytes received at descriptor %d are not a packet of tenon",
                        a->socket_fd);
    return tni_fail(
        TN_ERR_INVALID,
        "a packet at descriptor %d says that it has %zu bytes: %zu came, at most %zu "
        "may",
        a->socket_fd, total, a->got, a->packet->size_bytes);
}

/*
 * For a deadline of 0: nothing is taken from the stream unless the whole packet is there. If
 * the descriptor came with a first part of the head, only that part could be peeked at: `want`
 * is then the size of the head.
 */
static int check_is_whole(const struct arrival *a, size_t want)
{
    int there = 0;
    if (ioctl(a->socket_fd, SIOCINQ, &there) != 0)
        return tni_linux_fail(TN_ERR_SYSTEM, errno, "descriptor %d", a->socket_fd);
    if ((size_t)there < want)
        return tni_fail(TN_ERR_TIMED_OUT, "%d of %zu bytes of a packet are at descriptor %d",
                        there, want, a->socket_fd);
    return 0;
}

/** Check, before anything is taken, that the packet can be taken. @return 0 or an error */
static int check_stream(const struct arrival *a)
{
    bool has_descriptor = false;
    size_t head_bytes = a->packet->head_bytes;
    int peeked = peek(a, &has_descriptor);
    if (peeked < 0)
        return peeked;
    size_t want = (size_t)peeked < head_bytes ? head_bytes : total_of(a);
    if (want < head_bytes || want > a->packet->size_bytes)
        return 0; /* receive_from_stream() takes the head and refuses the packet */
    if (has_descriptor && !tni_os_has_descriptor_left() && is_descriptor_of_first(a, want))
        return fail_room(a, "waits");
    return a->deadline_ns == 0 ? check_is_whole(a, want) : 0;
}

static int receive_from_stream(struct arrival *a)
{
    int status = check_stream(a);
    if (status == 0)
        status = fill(a, a->packet->head_bytes);
    if (status != 0)
        return status;
    size_t want = total_of(a);
    if (want < a->packet->head_bytes || want > a->packet->size_bytes)
        return fail_length(a, want);
    return fill(a, want);
}

static int receive_packet(struct arrival *a)
{
    int flags = 0;
    ssize_t got = 0;
    do {
        bool has_descriptor = false;
        int peeked = peek(a, &has_descriptor);
        if (peeked < 0)
            return peeked;
        if (has_descriptor && !tni_os_has_descriptor_left())
            return fail_room(a, "waits");
        got = take(a, a->packet->size_bytes, &flags);
    } while (got == -EAGAIN && a->deadline_ns != 0);
    if (got == 0)
        return fail_end(a);
    if (got == -EAGAIN)
        return tni_fail(TN_ERR_TIMED_OUT, "no packet at descriptor %d", a->socket_fd);
    if (got < 0)
        return tni_linux_fail_packet((int)-got, a->socket_fd, "receiving");

    size_t want = a->got < a->packet->head_bytes ? 0 : total_of(a);
    if (want != a->got || (flags & MSG_TRUNC))
        return fail_length(a, want);
    return 0;
}

int tni_os_socket_receive(int fd, const struct tni_os_packet *packet, uint64_t deadline_ns,
                          int *ret_fd)
{
    if (packet->head_bytes == 0 || packet->size_bytes < packet->head_bytes ||
        packet->size_bytes > TNI_LINUX_PACKET_BYTES)
        return tni_fail(TN_ERR_INVALID,
                        "packets of %zu to %zu bytes: at least 1 and at most %d",
                        packet->head_bytes, packet->size_bytes, TNI_LINUX_PACKET_BYTES);
    bool is_stream = false;
    int status = tni_linux_check_packets(fd, &is_stream);
    if (status != 0)
        return status;

    struct arrival a = {
        .socket_fd = fd, .packet = packet, .fd = -1, .deadline_ns = deadline_ns};
    status = is_stream ? receive_from_stream(&a) : receive_packet(&a);
    if (status == 0 && a.has_lost)
        status = fail_room(&a, "is lost");
    if (status != 0) {
        tni_os_close(a.fd);
        return status;
    }
    *ret_fd = a.fd;
    return (int)a.got;
}
