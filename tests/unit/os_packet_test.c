/* SPDX-License-Identifier: Apache-2.0 */
/* Packets with a descriptor over sockets of the program's. Most tests run for both kinds. */
#include <netinet/in.h>
#include <sched.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "os_test.h"

enum { HEAD = 8, MOST = 1 << 16, SOON_NS = 20000000, OTHER_FD = 1000, PASS_PIDFD = 76 };

static const int kinds[] = {SOCK_STREAM, SOCK_SEQPACKET};

struct pair {
    int kind;
    int here;
    int there;
};

static struct pair open_pair(int kind)
{
    int ends[2];
    CHECK(socketpair(AF_UNIX, kind | SOCK_CLOEXEC, 0, ends) == 0);
    return (struct pair){.kind = kind, .here = ends[0], .there = ends[1]};
}

static void close_pair(struct pair pair)
{
    tni_os_close(pair.here);
    tni_os_close(pair.there);
}

/* A packet of these tests: its length, a number, and bytes computed from both. */

static char sent[MOST];
static char got[MOST];

static const char *make_packet(uint32_t size_bytes, uint32_t number)
{
    for (uint32_t i = HEAD; i < size_bytes; i++)
        sent[i] = (char)(i * 7 + number);
    memcpy(sent, &size_bytes, 4);
    memcpy(sent + 4, &number, 4);
    return sent;
}

static size_t total_of(const void *head)
{
    uint32_t size_bytes = 0;
    memcpy(&size_bytes, head, 4);
    return size_bytes;
}

/* sent_fd -1: no descriptor */
static int send_until(int fd, const void *bytes, size_t size_bytes, int sent_fd,
                      uint64_t deadline_ns)
{
    const struct tni_os_message message = {bytes, size_bytes, &sent_fd, sent_fd >= 0};
    return tni_os_socket_send(fd, &message, deadline_ns);
}

static int send_packet(int fd, uint32_t size_bytes, uint32_t number, int sent_fd)
{
    return send_until(fd, make_packet(size_bytes, number), size_bytes, sent_fd, soon());
}

static int receive(int fd, int *ret_fd, uint64_t deadline_ns)
{
    memset(got, 0, sizeof got);
    return tni_os_socket_receive(fd, &(struct tni_os_packet){got, sizeof got, HEAD, total_of},
                                 deadline_ns, ret_fd);
}

static void check_packet(int result, uint32_t size_bytes, uint32_t number)
{
    if (result < 0)
        fprintf(stderr, "%s\n", tn_error_detail());
    CHECK(result == (int)size_bytes);
    CHECK(memcmp(got, make_packet(size_bytes, number), size_bytes) == 0);
}

static bool is_same(int one_fd, int other_fd)
{
    struct stat one;
    struct stat other;
    return fstat(one_fd, &one) == 0 && fstat(other_fd, &other) == 0 &&
           one.st_ino == other.st_ino && one.st_dev == other.st_dev;
}

/* For what another sender may do. */
static void send_raw(int fd, const char *bytes, size_t size_bytes, const int *fds,
                     uint32_t count)
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(16 * sizeof(int))] = {0};
    struct iovec part = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = size_bytes};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (count > 0) {
        message.msg_control = control;
        message.msg_controllen = CMSG_SPACE(count * sizeof(int));
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(count * sizeof(int));
        memcpy(CMSG_DATA(header), fds, count * sizeof(int));
    }
    CHECK(sendmsg(fd, &message, MSG_NOSIGNAL) == (ssize_t)size_bytes);
}

/** Run the body once for each kind of socket, and see that no descriptor is left. */
static void for_both(void (*body)(struct pair *pair))
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        pid_t child = fork();
        if (child == 0) {
            uint32_t before = open_count();
            struct pair pair = open_pair(kinds[i]);
            body(&pair);
            close_pair(pair);
            CHECK(open_count() == before);
            _exit(0);
        }
        int status = -1;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
    }
}

/* Whole packets. */

static void whole_body(struct pair *pair)
{
    const uint32_t sizes[] = {HEAD, HEAD + 1, 640, 40000, MOST};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        int fd = -1;
        CHECK(send_packet(pair->here, sizes[i], (uint32_t)i, pair->here) == 0);
        check_packet(receive(pair->there, &fd, soon()), sizes[i], (uint32_t)i);
        CHECK(fd >= 0 && is_same(fd, pair->here) && (fcntl(fd, F_GETFD) & FD_CLOEXEC));
        tni_os_close(fd);
        CHECK(send_packet(pair->here, sizes[i], 9, -1) == 0);
        check_packet(receive(pair->there, &fd, 0), sizes[i], 9);
        CHECK(fd == -1);
    }
}

static void a_packet_arrives_whole_with_its_descriptor(void **state)
{
    (void)state;
    for_both(whole_body);
}

static void next_body(struct pair *pair)
{
    int fd = 42;
    CHECK(send_packet(pair->here, 100, 1, -1) == 0);
    CHECK(send_packet(pair->here, 200, 2, pair->here) == 0);
    CHECK(send_packet(pair->here, 300, 3, pair->there) == 0);
    check_packet(receive(pair->there, &fd, 0), 100, 1);
    CHECK(fd == -1);
    check_packet(receive(pair->there, &fd, 0), 200, 2);
    CHECK(is_same(fd, pair->here));
    tni_os_close(fd);
    check_packet(receive(pair->there, &fd, 0), 300, 3);
    CHECK(is_same(fd, pair->there));
    tni_os_close(fd);
}

static void nothing_of_the_next_packet_is_taken(void **state)
{
    (void)state;
    for_both(next_body);
}

static void many_descriptors_body(struct pair *pair)
{
    const int fds[] = {pair->there, pair->here, pair->here, pair->here, pair->here};
    int fd = -1;
    send_raw(pair->here, make_packet(50, 1), 50, fds, 5);
    uint32_t before = open_count();
    check_packet(receive(pair->there, &fd, soon()), 50, 1);
    CHECK(open_count() == before + 1 && is_same(fd, pair->there));
    tni_os_close(fd);
}

static void descriptors_beyond_the_first_are_closed(void **state)
{
    (void)state;
    for_both(many_descriptors_body);
}

static void asked_for_more_body(struct pair *pair)
{
    const int on = 1;
    int fd = -1;
    CHECK(setsockopt(pair->there, SOL_SOCKET, SO_PASSCRED, &on, sizeof on) == 0);
    setsockopt(pair->there, SOL_SOCKET, PASS_PIDFD, &on, sizeof on); /* Linux 6.5 */
    CHECK(send_packet(pair->here, 50, 1, pair->here) == 0);
    check_packet(receive(pair->there, &fd, soon()), 50, 1);
    CHECK(is_same(fd, pair->here));
    tni_os_close(fd);
}

static void a_socket_with_passed_credentials_leaks_no_descriptor(void **state)
{
    (void)state;
    for_both(asked_for_more_body);
}

/* Waiting. */

static void nothing_body(struct pair *pair)
{
    int fd = 42;
    CHECK(receive(pair->there, &fd, 0) == TN_ERR_TIMED_OUT);
    CHECK(receive(pair->there, &fd, tni_os_now_ns() + SOON_NS) == TN_ERR_TIMED_OUT);
    CHECK(fd == 42);
    CHECK(send_packet(pair->here, 50, 1, -1) == 0);
    check_packet(receive(pair->there, &fd, TNI_FOREVER), 50, 1);
}

static void receiving_ends_at_its_deadline(void **state)
{
    (void)state;
    for_both(nothing_body);
}

static void in_pieces_body(void)
{
    struct pair pair = open_pair(SOCK_STREAM);
    pid_t child = fork();
    if (child == 0) {
        const char *bytes = make_packet(5000, 1);
        send_raw(pair.here, bytes, 1, &pair.here, 1);
        for (uint32_t at = 1; at < 5000; at++) {
            send_raw(pair.here, bytes + at, 1, NULL, 0);
            if (at % 100 == 0)
                sched_yield();
        }
        _exit(0);
    }
    int fd = -1;
    check_packet(receive(pair.there, &fd, soon()), 5000, 1);
    CHECK(is_same(fd, pair.here));
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static void a_stream_may_come_byte_by_byte(void **state)
{
    (void)state;
    run_in_child(in_pieces_body);
}

static void partial_body(void)
{
    struct pair pair = open_pair(SOCK_STREAM);
    const char *bytes = make_packet(100, 1);
    int fd = 42;
    send_raw(pair.here, bytes, 5, NULL, 0);
    CHECK(receive(pair.there, &fd, 0) == TN_ERR_TIMED_OUT);
    send_raw(pair.here, bytes + 5, 50, &pair.here, 1);
    CHECK(receive(pair.there, &fd, 0) == TN_ERR_TIMED_OUT && fd == 42);
    send_raw(pair.here, bytes + 55, 45, NULL, 0);
    check_packet(receive(pair.there, &fd, 0), 100, 1);
    CHECK(is_same(fd, pair.here));
    tni_os_close(fd);

    fd = 42;
    uint32_t before = open_count();
    send_raw(pair.here, make_packet(100, 2), 55, &pair.here, 1);
    CHECK(receive(pair.there, &fd, tni_os_now_ns() + SOON_NS) == TN_ERR_TIMED_OUT && fd == 42);
    CHECK(strstr(tn_error_detail(), "out of step") != NULL);
    CHECK(open_count() == before);
}

static void a_deadline_of_0_takes_no_part_of_a_packet(void **state)
{
    (void)state;
    run_in_child(partial_body);
}

/* The other side does not use tenon. */

static void senseless_body(struct pair *pair)
{
    int fd = 42;
    const bool is_stream = pair->kind == SOCK_STREAM;
    uint32_t before = open_count();
    send_raw(pair->here, "\0\0\0\0\0\0\0\0", HEAD, &pair->here, 1);
    CHECK(send_packet(pair->here, 100, 1, -1) == 0);
    CHECK(receive(pair->there, &fd, 0) == TN_ERR_INVALID && fd == 42);
    CHECK(open_count() == before);
    check_packet(receive(pair->there, &fd, 0), 100, 1);

    /* Shorter than its head; longer than the buffer. */
    fd = 42;
    send_raw(pair->here, "\7\0\0\0\0\0\0\0", HEAD, &pair->here, 1);
    CHECK(receive(pair->there, &fd, soon()) == TN_ERR_INVALID);
    send_raw(pair->here, "\1\0\1\0\0\0\0\0", HEAD, &pair->here, 1);
    CHECK(receive(pair->there, &fd, soon()) == TN_ERR_INVALID);
    CHECK(strstr(tn_error_detail(), "65537") != NULL);
    send_raw(pair->here, make_packet(101, 1), 101, &pair->here, 1);
    CHECK(tni_os_socket_receive(pair->there, &(struct tni_os_packet){got, 100, HEAD, total_of},
                                0, &fd) == TN_ERR_INVALID);
    if (is_stream) {
        char rest[101];
        CHECK(tni_os_read(pair->there, rest, sizeof rest) == 101 - HEAD);
    }
    CHECK(open_count() == before && fd == 42);
}

static void an_invalid_packet_is_refused_and_its_descriptor_closed(void **state)
{
    (void)state;
    for_both(senseless_body);
}

static void wrong_length_body(void)
{
    struct pair pair = open_pair(SOCK_SEQPACKET);
    int fd = 42;
    uint32_t before = open_count();
    send_raw(pair.here, make_packet(100, 1), 99, &pair.here, 1);
    CHECK(receive(pair.there, &fd, soon()) == TN_ERR_INVALID);
    send_raw(pair.here, make_packet(100, 1), 101, &pair.here, 1);
    CHECK(receive(pair.there, &fd, soon()) == TN_ERR_INVALID);
    send_raw(pair.here, make_packet(100, 1), HEAD - 1, &pair.here, 1);
    CHECK(receive(pair.there, &fd, soon()) == TN_ERR_INVALID);
    send_raw(pair.here, make_packet(100, 1), 0, &pair.here, 1);
    CHECK(receive(pair.there, &fd, soon()) < 0);
    CHECK(open_count() == before && fd == 42);
}

static void a_packet_of_another_length_than_it_says_is_refused(void **state)
{
    (void)state;
    run_in_child(wrong_length_body);
}

static void closed_body(struct pair *pair)
{
    int fd = 42;
    CHECK(send_packet(pair->here, 100, 1, -1) == 0);
    CHECK(send_packet(pair->there, 100, 2, -1) ==
          0); /* unread bytes, so that the close is a reset */
    tni_os_close(pair->here);
    pair->here = -1;
    check_packet(receive(pair->there, &fd, soon()), 100, 1);
    fd = 42;
    CHECK(receive(pair->there, &fd, TNI_FOREVER) == TN_ERR_CLOSED);
    CHECK(receive(pair->there, &fd, 0) == TN_ERR_CLOSED && fd == 42);
    CHECK(send_packet(pair->there, 100, 1, -1) == TN_ERR_CLOSED);
}

static void bytes_that_were_sent_come_before_the_end(void **state)
{
    (void)state;
    for_both(closed_body);
}

static void torn_body(void)
{
    struct pair pair = open_pair(SOCK_STREAM);
    int fd = 42;
    send_raw(pair.here, make_packet(100, 1), 60, &pair.there, 1);
    tni_os_close(pair.here);
    uint32_t before = open_count();
    CHECK(receive(pair.there, &fd, TNI_FOREVER) == TN_ERR_CLOSED && fd == 42);
    CHECK(strstr(tn_error_detail(), "60 bytes into a packet") != NULL);
    CHECK(open_count() == before);
}

static void an_end_in_the_middle_of_a_packet_is_closed(void **state)
{
    (void)state;
    run_in_child(torn_body);
}

/* Sending. */

static void full_body(struct pair *pair)
{
    uint32_t count = 0;
    int status = 0;
    int fd = -1;
    while (status == 0 && count < 100000) {
        status = send_until(pair->here, make_packet(5000, count), 5000, -1, 0);
        count += status == 0;
    }
    CHECK(status == TN_ERR_TIMED_OUT && count > 1);
    CHECK(send_until(pair->here, make_packet(5000, count), 5000, -1,
                     tni_os_now_ns() + SOON_NS) == TN_ERR_TIMED_OUT);
    for (uint32_t i = 0; i < count; i++)
        check_packet(receive(pair->there, &fd, 0), 5000, i);
    CHECK(receive(pair->there, &fd, 0) == TN_ERR_TIMED_OUT);
    CHECK(send_packet(pair->here, 5000, 1, -1) == 0);
}

static void a_send_ends_at_its_deadline_with_no_partial_packet(void **state)
{
    (void)state;
    for_both(full_body);
}

static void set_small_buffer(int fd)
{
    const int small = 4096;
    CHECK(setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof small) == 0);
}

static void small_buffer_body(void)
{
    struct pair pair = open_pair(SOCK_STREAM);
    CHECK(fcntl(pair.there, F_SETFL, O_NONBLOCK) == 0);
    set_small_buffer(pair.here);
    pid_t child = fork();
    if (child == 0) {
        for (uint32_t i = 0; i < 20; i++) {
            int fd = -1;
            check_packet(receive(pair.there, &fd, soon()), MOST, i);
            CHECK(is_same(fd, pair.here));
            tni_os_close(fd);
        }
        _exit(0);
    }
    for (uint32_t i = 0; i < 20; i++)
        CHECK(send_packet(pair.here, MOST, i, pair.here) == 0);
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);

    /* The other side is closed. */
    CHECK(send_until(pair.here, make_packet(MOST, 1), MOST, -1, 0) == TN_ERR_TIMED_OUT);
    CHECK(strstr(tn_error_detail(), "out of step") != NULL);
    int fd = open_pair(SOCK_SEQPACKET).here;
    set_small_buffer(fd);
    CHECK(send_packet(fd, MOST, 1, -1) ==
          TN_ERR_INVALID); /* larger than the socket can ever take */
}

static void a_packet_that_is_larger_than_the_buffer_is_sent_in_parts(void **state)
{
    (void)state;
    run_in_child(small_buffer_body);
}

static void one_descriptor_body(void)
{
    struct pair pair = open_pair(SOCK_STREAM);
    set_small_buffer(pair.here);
    pid_t child = fork();
    if (child == 0) {
        CHECK(send_packet(pair.here, MOST, 1, pair.here) == 0);
        _exit(0);
    }
    uint32_t all = 0;
    for (int done = 0; done < MOST;) {
        int fds[8];
        uint32_t count = 0;
        int size = tni_os_receive(pair.there, &(struct tni_os_buffer){got, sizeof got, fds, 8},
                                  soon(), &count);
        CHECK(size > 0 && size < MOST);
        done += size;
        all += count;
    }
    CHECK(all == 1);
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static void a_packet_sent_in_parts_has_its_descriptor_once(void **state)
{
    (void)state;
    run_in_child(one_descriptor_body);
}

/* Descriptors. */

static void set_limit(uint32_t soft, uint32_t hard)
{
    const struct rlimit limit = {.rlim_cur = soft, .rlim_max = hard};
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

static uint32_t next_number(void)
{
    int fd = dup(0);
    CHECK(fd >= 0 && close(fd) == 0);
    return (uint32_t)fd;
}

static void check_full_table(int kind)
{
    char expected[64];
    struct pair pair = open_pair(kind);
    int fd = 42;
    uint32_t full = next_number();
    snprintf(expected, sizeof expected, "no room for a descriptor (limit %u)", (unsigned)full);
    CHECK(send_packet(pair.here, 100, 1, -1) == 0);
    CHECK(send_packet(pair.here, 100, 2, pair.here) == 0);
    CHECK(send_packet(pair.here, 100, 3, pair.here) == 0);
    set_limit(full, full);
    check_packet(receive(pair.there, &fd, soon()), 100, 1);
    fd = 42;
    CHECK(receive(pair.there, &fd, soon()) == TN_ERR_SYSTEM && fd == 42);
    CHECK(strstr(tn_error_detail(), expected) != NULL);

    /* The packet waited until there was room. */
    close(pair.here);
    check_packet(receive(pair.there, &fd, soon()), 100, 2);
    CHECK(fd >= 0);
}

static void several_body(struct pair *pair)
{
    enum { MOST_FDS = 253 };
    static const uint32_t counts[] = {0, 1, 128, MOST_FDS};
    int fds[MOST_FDS + 1], taken[MOST_FDS], fd = -1;
    for (int i = 0; i <= MOST_FDS; i++)
        fds[i] = i % 2 == 0 ? pair->here : pair->there;
    uint32_t before = open_count();
    struct tni_os_message message = {make_packet(100, 1), 100, fds, MOST_FDS + 1};
    CHECK(tni_os_socket_send(pair->here, &message, soon()) == TN_ERR_INVALID);
    for (size_t n = 0; n < sizeof counts / sizeof *counts; n++) {
        uint32_t count = 9999;
        message.fd_count = counts[n];
        CHECK(tni_os_socket_send(pair->here, &message, soon()) == 0);
        CHECK(tni_os_receive(pair->there,
                             &(struct tni_os_buffer){got, sizeof got, taken, MOST_FDS}, soon(),
                             &count) == 100);
        CHECK(count == counts[n] && open_count() == before + count);
        for (uint32_t i = 0; i < count; i++) {
            CHECK(is_same(taken[i], fds[i]));
            tni_os_close(taken[i]);
        }
        /* A receive that has one place keeps the first. */
        CHECK(tni_os_socket_send(pair->here, &message, soon()) == 0);
        check_packet(receive(pair->there, &fd, soon()), 100, 1);
        CHECK(counts[n] == 0 ? fd == -1 : is_same(fd, fds[0]));
        tni_os_close(fd);
        CHECK(open_count() == before);
    }
}

static void a_packet_carries_many_descriptors_in_their_order(void **state)
{
    (void)state;
    for_both(several_body);
}

static void full_table_body(void) { check_full_table(SOCK_STREAM); }

static void full_table_of_packets_body(void) { check_full_table(SOCK_SEQPACKET); }

static void a_full_table_fails_before_a_packet_is_taken(void **state)
{
    (void)state;
    run_in_child(full_table_body);
    run_in_child(full_table_of_packets_body);
}

static void raised_body(void)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        struct pair pair = open_pair(kinds[i]);
        int fd = -1;
        CHECK(send_packet(pair.here, 100, 1, pair.here) == 0);
        uint32_t full = next_number();
        set_limit(full, OTHER_FD);
        check_packet(receive(pair.there, &fd, soon()), 100, 1);
        CHECK(fd == (int)full);
    }
}

static void the_soft_limit_is_raised_for_a_packet(void **state)
{
    (void)state;
    run_in_child(raised_body);
}

static void check_too_many(int kind)
{
    struct pair pair = open_pair(kind);
    const int fds[] = {pair.here, pair.here, pair.here, pair.here, pair.here};
    int fd = 42;
    uint32_t full = next_number();
    send_raw(pair.here, make_packet(100, 1), 100, fds, 5);
    CHECK(send_packet(pair.here, 100, 2, -1) == 0);
    set_limit(full + 2, full + 2);
    uint32_t before = open_count();
    CHECK(receive(pair.there, &fd, soon()) == TN_ERR_SYSTEM && fd == 42);
    CHECK(strstr(tn_error_detail(), "no room for a descriptor") != NULL);
    CHECK(open_count() == before);
    check_packet(receive(pair.there, &fd, soon()), 100, 2);
}

static void too_many_body(void) { check_too_many(SOCK_STREAM); }

static void too_many_of_packets_body(void) { check_too_many(SOCK_SEQPACKET); }

static void
more_descriptors_than_there_is_room_for_are_closed_and_the_next_packet_comes(void **state)
{
    (void)state;
    run_in_child(too_many_body);
    run_in_child(too_many_of_packets_body);
}

/* Other sockets. */

static void check_refused(int fd)
{
    int ret_fd = 42;
    CHECK(fd >= 0);
    CHECK(send_packet(fd, 100, 1, -1) == TN_ERR_INVALID);
    CHECK(receive(fd, &ret_fd, TNI_FOREVER) == TN_ERR_INVALID && ret_fd == 42);
}

static int connect_to_loopback(void)
{
    struct sockaddr_in local = {.sin_family = AF_INET,
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof local;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(bind(listener, (const struct sockaddr *)&local, size) == 0);
    CHECK(listen(listener, 1) == 0);
    CHECK(getsockname(listener, (struct sockaddr *)&local, &size) == 0);
    CHECK(connect(fd, (const struct sockaddr *)&local, size) == 0);
    return fd;
}

static void others_body(void)
{
    struct pair datagrams = open_pair(SOCK_DGRAM);
    int ends[2];
    check_refused(datagrams.here);
    CHECK(tni_os_pipe(ends) == 0);
    check_refused(ends[0]);
    CHECK(send_until(-1, "x", 1, -1, 0) == TN_ERR_INVALID);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const struct sockaddr_un any = {.sun_family = AF_UNIX};
        int fd = socket(AF_UNIX, kinds[i], 0);
        check_refused(fd);
        CHECK(bind(fd, (const struct sockaddr *)&any, sizeof any.sun_family) == 0);
        CHECK(listen(fd, 1) == 0);
        check_refused(fd);
    }
    check_refused(connect_to_loopback());

    struct pair pair = open_pair(SOCK_STREAM);
    CHECK(send_until(pair.here, sent, 0, -1, 0) == TN_ERR_INVALID);
    CHECK(send_until(pair.here, sent, MOST + 1, -1, 0) == TN_ERR_INVALID);
    CHECK(send_until(pair.here, sent, 1, OTHER_FD, soon()) == TN_ERR_INVALID);
}

static void other_sockets_and_other_files_are_refused(void **state)
{
    (void)state;
    run_in_child(others_body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_packet_arrives_whole_with_its_descriptor),
        cmocka_unit_test(nothing_of_the_next_packet_is_taken),
        cmocka_unit_test(descriptors_beyond_the_first_are_closed),
        cmocka_unit_test(a_socket_with_passed_credentials_leaks_no_descriptor),
        cmocka_unit_test(receiving_ends_at_its_deadline),
        cmocka_unit_test(a_stream_may_come_byte_by_byte),
        cmocka_unit_test(a_deadline_of_0_takes_no_part_of_a_packet),
        cmocka_unit_test(an_invalid_packet_is_refused_and_its_descriptor_closed),
        cmocka_unit_test(a_packet_of_another_length_than_it_says_is_refused),
        cmocka_unit_test(bytes_that_were_sent_come_before_the_end),
        cmocka_unit_test(an_end_in_the_middle_of_a_packet_is_closed),
        cmocka_unit_test(a_send_ends_at_its_deadline_with_no_partial_packet),
        cmocka_unit_test(a_packet_that_is_larger_than_the_buffer_is_sent_in_parts),
        cmocka_unit_test(a_packet_sent_in_parts_has_its_descriptor_once),
        cmocka_unit_test(a_packet_carries_many_descriptors_in_their_order),
        cmocka_unit_test(a_full_table_fails_before_a_packet_is_taken),
        cmocka_unit_test(the_soft_limit_is_raised_for_a_packet),
        cmocka_unit_test(
            more_descriptors_than_there_is_room_for_are_closed_and_the_next_packet_comes),
        cmocka_unit_test(other_sockets_and_other_files_are_refused),
    };
    return cmocka_run_group_tests_name("os packet", tests, NULL, NULL);
}
