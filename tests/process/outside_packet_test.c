/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests: what arrives in place of a packet (packet.c states its form): other bytes on the
 * stream, half a packet, forged packets, descriptors of other files.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "harness/harness.h"
#include "harness/tensor.h"
#include "share/share.h"

enum { LONG_MS = 20000, COUNT = 1000, HEAD_BYTES = 24, PACKET_BYTES = 1 << 16 };

__attribute__((constructor)) static void ring_once(void) { tni_os_bell_ring(1); }

static tn_domain *make_domain(void)
{
    return tnt_domain(&(tn_domain_options){.struct_size = sizeof(tn_domain_options),
                                           .quota_bytes = 64 << 20,
                                           .flags = TN_DOMAIN_NO_MANAGER});
}

static tn_tensor *make(tn_domain *d)
{
    tn_tensor_options options = {.struct_size = sizeof options,
                                 .strategy = TN_STRATEGY_FILE_DESCRIPTOR};
    tn_tensor *t;
    TN_CHECK_OK(tn_tensor_create(d, TN_INT32, 2, (int64_t[]){10, COUNT / 10}, &options, &t));
    for (int32_t i = 0; i < COUNT; i++)
        ((int32_t *)tn_tensor_data(t))[i] = i;
    return t;
}

/* A packet that was received as bytes, and the sockets for it. */
struct wire {
    int ours, theirs; /* of packets */
    int fd;           /* the descriptor that came with the packet */
    size_t bytes;
    _Alignas(8) uint8_t packet[PACKET_BYTES];
};

static void raw_send(int socket_fd, const void *bytes, size_t size_bytes, int fd)
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof fd)] = {0};
    struct iovec part = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = size_bytes};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (fd >= 0) {
        message.msg_control = control;
        message.msg_controllen = sizeof control;
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        *header = (struct cmsghdr){
            .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof fd)};
        memcpy(CMSG_DATA(header), &fd, sizeof fd);
    }
    TN_CHECK(sendmsg(socket_fd, &message, MSG_NOSIGNAL) == (ssize_t)size_bytes);
}

static void open_wire(struct wire *wire, tn_tensor *t)
{
    int fds[2];
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))];
    struct iovec part = {.iov_base = wire->packet, .iov_len = sizeof wire->packet};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof control};
    TN_CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) == 0);
    wire->ours = fds[0];
    wire->theirs = fds[1];
    TN_CHECK_OK(tn_tensor_send(t, wire->ours, 0, TN_NOW));
    ssize_t got = recvmsg(wire->theirs, &message, MSG_CMSG_CLOEXEC);
    TN_CHECK(got > HEAD_BYTES);
    wire->bytes = (size_t)got;
    memcpy(&wire->fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof wire->fd);
}

static void close_wire(struct wire *wire)
{
    close(wire->ours);
    close(wire->theirs);
    close(wire->fd);
}

static void seal(uint8_t *packet, size_t bytes)
{
    uint64_t hash = tni_hash(packet, bytes - sizeof hash);
    memcpy(packet + bytes - sizeof hash, &hash, sizeof hash);
}

/* The status of receiving a packet with these bytes and this descriptor. */
static int result_of(const struct wire *wire, const void *packet, size_t bytes, int fd)
{
    tn_tensor *t = (tn_tensor *)8;
    raw_send(wire->ours, packet, bytes, fd);
    int status = tn_tensor_receive(wire->theirs, tnt_deadline(LONG_MS), &t);
    if (status == 0)
        tn_tensor_unref(t);
    else
        assert_ptr_equal(t, (tn_tensor *)8);
    return status;
}

/* The same with `value` written at `at`, and the hash computed again. */
static int result_with(const struct wire *wire, size_t at, uint64_t value, size_t value_bytes)
{
    uint8_t packet[PACKET_BYTES];
    memcpy(packet, wire->packet, wire->bytes);
    memcpy(packet + at, &value, value_bytes);
    seal(packet, wire->bytes);
    return result_of(wire, packet, wire->bytes, wire->fd);
}

/* ---- on the stream ----------------------------------------------------------------------- */

TN_TEST(a_stream_is_not_read_beyond_the_packet)
{
    tn_domain *d = make_domain();
    tn_tensor *t = make(d), *there;
    char text[8] = "";
    int fds[2];
    TN_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
    TN_CHECK(write(fds[0], "before", 6) == 6);
    TN_CHECK_OK(tn_tensor_send(t, fds[0], 0, TN_NOW));
    TN_CHECK_OK(tn_tensor_send(t, fds[0], TN_SEND_READ_ONLY, TN_NOW));
    TN_CHECK(write(fds[0], "after", 5) == 5);
    TN_CHECK(read(fds[1], text, 6) == 6);
    assert_string_equal(text, "before");
    for (int i = 0; i < 2; i++) {
        TN_CHECK_OK(tn_tensor_receive(fds[1], TN_NOW, &there));
        assert_int_equal(tnt_info(there).is_read_only, i == 1);
        tn_tensor_unref(there);
    }
    memset(text, 0, sizeof text);
    assert_int_equal(read(fds[1], text, sizeof text), 5);
    assert_string_equal(text, "after");
    close(fds[0]);
    close(fds[1]);
    tn_tensor_unref(t);
    tn_domain_close(d);
}

TN_TEST(a_packet_that_is_refused_leaves_the_stream_in_step)
{
    static struct wire wire;
    tn_domain *d = make_domain();
    tn_tensor *t = make(d), *there;
    int fds[2];
    open_wire(&wire, t);
    TN_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
    wire.packet[8] = 2; /* another version */
    seal(wire.packet, wire.bytes);
    raw_send(fds[0], wire.packet, wire.bytes, wire.fd);
    TN_CHECK_OK(tn_tensor_send(t, fds[0], 0, TN_NOW));
    assert_int_equal(tn_tensor_receive(fds[1], TN_NOW, &there), TN_ERR_VERSION);
    TN_CHECK_OK(tn_tensor_receive(fds[1], TN_NOW, &there));
    tn_tensor_unref(there);
    close(fds[0]);
    close(fds[1]);
    close_wire(&wire);
    tn_tensor_unref(t);
    tn_domain_close(d);
}

struct half {
    const struct wire *wire;
    int fds[2];
    size_t bytes;
};

static int send_half_and_die(void *argument)
{
    const struct half *half = argument;
    raw_send(half->fds[0], half->wire->packet, half->bytes, half->wire->fd);
    raise(SIGKILL);
    return 1;
}

TN_TEST(half_a_packet_of_a_dead_sender_is_its_end)
{
    static struct wire wire;
    tn_domain *d = make_domain();
    tn_tensor *t = make(d), *there;
    open_wire(&wire, t);
    const size_t halves[] = {1, HEAD_BYTES - 1, HEAD_BYTES, HEAD_BYTES + 1, wire.bytes - 1};
    for (size_t i = 0; i < TNI_COUNT(halves); i++) {
        struct half half = {.wire = &wire, .bytes = halves[i]};
        TN_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, half.fds) == 0);
        pid_t pid = tnt_fork(send_half_and_die, &half);
        close(half.fds[0]);
        assert_int_equal(tn_tensor_receive(half.fds[1], tnt_deadline(LONG_MS), &there),
                         TN_ERR_CLOSED);
        assert_int_equal(tnt_wait(pid), SIGKILL);
        close(half.fds[1]);
    }
    close_wire(&wire);
    tn_tensor_unref(t);
    tn_domain_close(d);
}

/* ---- packets ----------------------------------------------------------------------------- */

TN_TEST(a_packet_that_says_anything_else_is_refused)
{
    static struct wire wire;
    tn_domain *d = make_domain();
    tn_tensor *t = make(d);
    open_wire(&wire, t);
    assert_int_equal(result_of(&wire, wire.packet, wire.bytes, wire.fd), 0);
    assert_int_equal(result_of(&wire, wire.packet, wire.bytes, -1), TN_ERR_INVALID);
    assert_int_equal(result_of(&wire, wire.packet, wire.bytes - 1, wire.fd), TN_ERR_INVALID);
    assert_int_equal(result_of(&wire, wire.packet, 3, wire.fd), TN_ERR_INVALID);
    assert_int_equal(result_of(&wire, "no packet at all, but text", 26, -1), TN_ERR_INVALID);
    assert_int_equal(result_with(&wire, 0, 'X', 1), TN_ERR_INVALID);
    assert_int_equal(result_with(&wire, 8, 2, 2), TN_ERR_VERSION);
    assert_int_equal(result_with(&wire, 12, 1, 4), TN_ERR_VERSION);
    assert_int_equal(result_with(&wire, 10, 16, 2), TN_ERR_INVALID); /* head */
    assert_int_equal(result_with(&wire, 10, 32, 2), TN_ERR_INVALID);
    assert_int_equal(result_with(&wire, 16, 1 << 20, 4), TN_ERR_INVALID); /* total */
    assert_int_equal(result_with(&wire, 20, 8, 4), TN_ERR_INVALID);       /* view */
    assert_int_equal(result_with(&wire, 20, UINT32_MAX, 4), TN_ERR_INVALID);
    const size_t view = HEAD_BYTES;
    assert_int_equal(result_with(&wire, view, 1, 4), TN_ERR_INVALID);       /* block */
    assert_int_equal(result_with(&wire, view + 4, 77, 4), TN_ERR_INVALID);  /* generation */
    assert_int_equal(result_with(&wire, view + 8, 4, 8), TN_ERR_INVALID);   /* byte offset */
    assert_int_equal(result_with(&wire, view + 16, 99, 1), TN_ERR_INVALID); /* type */
    assert_int_equal(result_with(&wire, view + 20, 33, 1), TN_ERR_INVALID); /* axes */
    assert_int_equal(result_with(&wire, view + 24, 11, 8), TN_ERR_INVALID); /* shape */
    assert_int_equal(result_with(&wire, view + 24, UINT64_MAX, 8), TN_ERR_INVALID);
    close_wire(&wire);
    tn_tensor_unref(t);
    tn_domain_close(d);
}

TN_TEST(a_packet_with_any_byte_altered_is_invalid)
{
    static struct wire wire;
    tn_domain *d = make_domain();
    tn_tensor *t = make(d);
    open_wire(&wire, t);
    for (size_t i = 0; i < wire.bytes; i++) {
        wire.packet[i] ^= 1;
        assert_int_equal(result_of(&wire, wire.packet, wire.bytes, wire.fd), TN_ERR_INVALID);
        wire.packet[i] ^= 1;
    }
    close_wire(&wire);
    tn_tensor_unref(t);
    tn_domain_close(d);
}

/* Check that every element lies in the storage, with arithmetic that cannot overflow. */
static void assert_inside(const tn_tensor *t)
{
    __int128 low = tnt_info(t).byte_offset, high = low;
    size_t item_bytes;
    TN_CHECK_OK(tn_dtype_size(tn_tensor_dtype(t), &item_bytes));
    for (int32_t i = 0; i < tn_tensor_ndim(t); i++) {
        __int128 size = tn_tensor_shape(t)[i], stride = tnt_info(t).strides[i];
        assert_true(size >= 0);
        if (size == 0)
            return;
        *(stride < 0 ? &low : &high) += (size - 1) * stride * (__int128)item_bytes;
    }
    assert_true(low >= 0);
    assert_true(high + (__int128)item_bytes <= (__int128)tnt_info(t).storage_bytes);
}

static uint64_t nasty(void)
{
    static const uint64_t known[] = {
        0, 1, UINT64_MAX, 2, 64, 4096, INT64_MAX, (uint64_t)INT64_MAX + 1, 1u << 31, 1 << 20};
    return known[tnt_random_below(TNI_COUNT(known))] + tnt_random_below(3) - 1;
}

/* @return whether the packet was accepted */
static bool receive_whatever(const struct wire *wire, const uint8_t *packet, size_t bytes)
{
    tn_tensor *t;
    raw_send(wire->ours, packet, bytes, wire->fd);
    int status = tn_tensor_receive(wire->theirs, tnt_deadline(LONG_MS), &t);
    if (status != 0) {
        assert_true(status == TN_ERR_INVALID || status == TN_ERR_VERSION);
        return false;
    }
    assert_inside(t);
    tn_tensor_unref(t);
    return true;
}

TN_TEST_WITHIN(whatever_a_packet_says_its_elements_lie_in_the_storage, 60)
{
    static struct wire wire;
    static uint8_t packet[PACKET_BYTES];
    tn_domain *d = make_domain();
    tn_tensor *t = make(d), *view;
    TN_CHECK_OK(tn_tensor_slice(t, 0, 1, 9, -2, &view));
    open_wire(&wire, view);
    unsigned accepted = 0, descriptors = tnt_descriptor_count();
    for (int round = 0; round < 20000; round++) {
        memcpy(packet, wire.packet, wire.bytes);
        for (uint64_t n = 1 + tnt_random_below(3); n > 0; n--) {
            uint64_t number = nasty();
            size_t room = wire.bytes - 16 - 8; /* all but magic and hash */
            if (tnt_random_below(2) == 0)
                packet[16 + tnt_random_below(room)] = (uint8_t)tnt_random();
            else
                memcpy(packet + 16 + 8 * tnt_random_below(room / 8), &number, 8);
        }
        seal(packet, wire.bytes);
        accepted += receive_whatever(&wire, packet, wire.bytes);
    }
    tnt_note("%u of 20000 accepted", accepted);
    assert_in_range(accepted, 100, 19000);
    assert_int_equal(tnt_descriptor_count(), descriptors);
    close_wire(&wire);
    tn_tensor_unref(view);
    tn_tensor_unref(t);
    tn_domain_close(d);
}

/* ---- descriptors ------------------------------------------------------------------------- */

static int result_with_fd(const struct wire *wire, int fd)
{
    tn_tensor *t = NULL;
    int status = tn_tensor_from_descriptor(fd, &t);
    assert_int_equal(result_of(wire, wire->packet, wire->bytes, fd), status);
    tn_tensor_unref(t);
    close(fd);
    return status;
}

/* Make a memory object that begins with this header. */
static int forge(const tn_storage_header *header, uint64_t bytes, int seals)
{
    int fd = memfd_create("forged", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    TN_CHECK(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0);
    size_t written = bytes < sizeof *header ? bytes : sizeof *header;
    TN_CHECK(pwrite(fd, header, written, 0) == (ssize_t)written);
    TN_CHECK(seals == 0 || fcntl(fd, F_ADD_SEALS, seals) == 0);
    return fd;
}

static tn_storage_header header_of(int fd)
{
    tn_storage_header header;
    TN_CHECK(pread(fd, &header, sizeof header, 0) == sizeof header);
    return header;
}

TN_TEST(a_descriptor_that_is_no_memory_object_is_refused)
{
    static struct wire wire;
    tn_domain *d = make_domain();
    tn_tensor *t = make(d);
    char path[] = "/tmp/outside-XXXXXX", shm_path[] = "/dev/shm/outside-XXXXXX";
    int pipes[2];
    open_wire(&wire, t);
    TN_CHECK(pipe2(pipes, O_CLOEXEC) == 0);
    close(pipes[1]);
    assert_int_equal(result_with_fd(&wire, pipes[0]), TN_ERR_INVALID);
    assert_int_equal(result_with_fd(&wire, open("/dev/null", O_RDWR | O_CLOEXEC)),
                     TN_ERR_INVALID);
    assert_int_equal(result_with_fd(&wire, open("/", O_RDONLY | O_CLOEXEC)), TN_ERR_INVALID);
    assert_int_equal(result_with_fd(&wire, open("/proc/self/mem", O_RDONLY | O_CLOEXEC)),
                     TN_ERR_INVALID);
    assert_int_equal(result_with_fd(&wire, socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)),
                     TN_ERR_INVALID);
    assert_int_equal(result_with_fd(&wire, mkostemp(path, O_CLOEXEC)), TN_ERR_INVALID);
    assert_int_equal(result_with_fd(&wire, mkostemp(shm_path, O_CLOEXEC)), TN_ERR_INVALID);
    unlink(path);
    unlink(shm_path);
    close_wire(&wire);
    tn_tensor_unref(t);
    tn_domain_close(d);
}

/*
 * A memory object of huge pages can be sealed, and mapped without memory: reading a page that
 * has none would be a bus error.
 */
TN_TEST(a_descriptor_of_huge_pages_is_refused)
{
    static struct wire wire;
    tn_tensor *none = NULL;
    int fd = memfd_create("huge", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB);
    if (fd < 0)
        tnt_skip("this system has no huge pages of its own kind");
    TN_CHECK(ftruncate(fd, 1 << 30) == 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
    tn_domain *d = make_domain();
    tn_tensor *t = make(d);
    open_wire(&wire, t);
    assert_int_equal(tn_tensor_from_descriptor(fd, &none), TN_ERR_INVALID);
    assert_non_null(strstr(tn_error_detail(), "hugetlbfs"));
    assert_int_equal(result_with_fd(&wire, fd), TN_ERR_INVALID);
    close_wire(&wire);
    tn_tensor_unref(t);
    tn_domain_close(d);
}

TN_TEST(an_unsealed_or_short_descriptor_is_refused)
{
    static struct wire wire;
    tn_domain *d = make_domain();
    tn_tensor *t = make(d);
    open_wire(&wire, t);
    tn_storage_header header = header_of(wire.fd);
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), bytes = header.object_bytes;
    const int sealed = F_SEAL_SHRINK;
    assert_int_equal(result_with_fd(&wire, forge(&header, bytes, sealed)), 0);
    assert_int_equal(result_with_fd(&wire, forge(&header, bytes, 0)), TN_ERR_INVALID);
    assert_non_null(strstr(tn_error_detail(), "not sealed"));
    assert_int_equal(result_with_fd(&wire, forge(&header, bytes, F_SEAL_GROW)), TN_ERR_INVALID);
    assert_int_equal(result_with_fd(&wire, forge(&header, bytes - page, sealed)),
                     TN_ERR_INVALID);
    assert_int_equal(result_with_fd(&wire, forge(&header, bytes - 1, sealed)), TN_ERR_INVALID);
    assert_int_equal(result_with_fd(&wire, forge(&header, page, sealed)), TN_ERR_INVALID);
    assert_int_equal(result_with_fd(&wire, forge(&header, 100, sealed)), TN_ERR_INVALID);
    assert_int_equal(result_with_fd(&wire, forge(&header, 0, sealed)), TN_ERR_INVALID);
    close_wire(&wire);
    tn_tensor_unref(t);
    tn_domain_close(d);
}

static int result_with_header(const struct wire *wire, const tn_storage_header *header,
                              uint64_t bytes)
{
    return result_with_fd(wire, forge(header, bytes, F_SEAL_SHRINK));
}

TN_TEST(a_storage_whose_header_says_anything_else_is_refused)
{
    static struct wire wire;
    tn_domain *d = make_domain();
    tn_tensor *t = make(d), *there = NULL;
    open_wire(&wire, t);
    const tn_storage_header header = header_of(wire.fd);
    const uint64_t bytes = header.object_bytes;
    tn_storage_header h = header;
    h.version = 2;
    assert_int_equal(result_with_header(&wire, &h, bytes), TN_ERR_VERSION);
    h = header, h.must_understand = 4;
    assert_int_equal(result_with_header(&wire, &h, bytes), TN_ERR_VERSION);
    h = header, h.magic[0] = 0;
    assert_int_equal(result_with_header(&wire, &h, bytes), TN_ERR_INVALID);
    h = header, h.object_bytes += 1;
    assert_int_equal(result_with_header(&wire, &h, bytes), TN_ERR_INVALID);
    h = header, h.object_bytes = UINT64_MAX;
    assert_int_equal(result_with_header(&wire, &h, bytes), TN_ERR_INVALID);
    h = header, h.object_bytes = 0;
    assert_int_equal(result_with_header(&wire, &h, bytes), TN_ERR_INVALID);
    h = header, h.data_bytes = bytes;
    assert_int_equal(result_with_header(&wire, &h, bytes), TN_ERR_INVALID);
    h = header, h.data_offset = 0;
    assert_int_equal(result_with_header(&wire, &h, bytes), TN_ERR_INVALID);
    h = header, h.data_offset = UINT64_C(1) << 63;
    assert_int_equal(result_with_header(&wire, &h, bytes), TN_ERR_INVALID);
    /*
     * The header describes the tensor that the storage was made for; a packet does not depend
     * on it.
     */
    h = header, h.ndim = -1;
    int fd = forge(&h, bytes, F_SEAL_SHRINK);
    assert_int_equal(tn_tensor_from_descriptor(fd, &there), TN_ERR_INVALID);
    close(fd);
    h = header, h.shape[0] = 11;
    fd = forge(&h, bytes, F_SEAL_SHRINK);
    assert_int_equal(tn_tensor_from_descriptor(fd, &there), TN_ERR_INVALID);
    close(fd);
    h = header, h.strategy = TN_STRATEGY_FILE_SYSTEM;
    fd = forge(&h, bytes, F_SEAL_SHRINK);
    assert_int_equal(tn_tensor_from_descriptor(fd, &there), TN_ERR_INVALID);
    close(fd);
    close_wire(&wire);
    tn_tensor_unref(t);
    tn_domain_close(d);
}

TN_TEST_WITHIN(whatever_a_storage_says_its_elements_lie_in_it, 60)
{
    static struct wire wire;
    tn_domain *d = make_domain();
    tn_tensor *t = make(d), *there;
    unsigned accepted = 0;
    open_wire(&wire, t);
    const tn_storage_header header = header_of(wire.fd);
    for (int round = 0; round < 20000; round++) {
        _Alignas(8) uint8_t bytes[sizeof header];
        memcpy(bytes, &header, sizeof header);
        for (uint64_t n = 1 + tnt_random_below(3); n > 0; n--) {
            uint64_t number = nasty();
            size_t room = offsetof(tn_storage_header, strides) + 32 - 12;
            if (tnt_random_below(2) == 0)
                bytes[12 + tnt_random_below(room)] = (uint8_t)tnt_random();
            else
                memcpy(bytes + 8 + 8 * tnt_random_below(room / 8), &number, 8);
        }
        int fd = forge((const tn_storage_header *)(const void *)bytes, header.object_bytes,
                       F_SEAL_SHRINK);
        int status = tn_tensor_from_descriptor(fd, &there);
        close(fd);
        assert_true(status == 0 || status == TN_ERR_INVALID || status == TN_ERR_VERSION);
        if (status != 0)
            continue;
        assert_inside(there);
        accepted++;
        tn_tensor_unref(there);
    }
    tnt_note("%u of 20000 accepted", accepted);
    assert_in_range(accepted, 100, 19900);
    close_wire(&wire);
    tn_tensor_unref(t);
    tn_domain_close(d);
}
