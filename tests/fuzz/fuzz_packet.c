/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_packet: what another process sends to tn_tensor_receive(): bytes with magic, lengths
 * and hash filled in where the input asks for it, in pieces, with the descriptor of a right
 * storage, of a damaged one, or of another file.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fuzz.h"
#include "storage.h"

enum {
    IS_STREAM = 1 << 0,
    HAS_MAGIC = 1 << 1,
    HAS_SIZES = 1 << 2,
    HAS_BLOCK = 1 << 3,
    HAS_HASH = 1 << 4,
    IS_CLOSED = 1 << 5,
    IS_LATE = 1 << 6,
    HEAD = 24, /* packet.c has the wire form */
    HASH = 8
};

static void complete(uint32_t flags, const tn_storage_header *h, uint8_t *bytes, uint32_t size)
{
    static const uint8_t start[] = {'T', 'E', 'N', 'O', 'N', 'P', 'K', 'T', 1, 0, HEAD, 0};
    if ((flags & HAS_MAGIC) != 0) {
        memset(bytes, 0, 16);
        memcpy(bytes, start, sizeof start);
    }
    if ((flags & HAS_SIZES) != 0) {
        uint32_t view_bytes = size - HEAD - HASH;
        memcpy(bytes + 16, &size, sizeof size);
        memcpy(bytes + 20, &view_bytes, sizeof view_bytes);
    }
    if ((flags & HAS_BLOCK) != 0 && size >= HEAD + 8 + HASH)
        memcpy(bytes + HEAD, &h->block, 8); /* and the generation */
    if ((flags & HAS_HASH) != 0) {
        uint64_t hash = tni_hash(bytes, size - HASH);
        memcpy(bytes + size - HASH, &hash, HASH);
    }
}

static void send_with(int socket_fd, const uint8_t *bytes, size_t size, const int *fds,
                      uint32_t count)
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(4 * sizeof(int))] = {0};
    struct iovec part = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = size};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (count > 0) {
        message.msg_control = control;
        message.msg_controllen = CMSG_SPACE(count * sizeof(int));
        struct cmsghdr *head = CMSG_FIRSTHDR(&message);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(count * sizeof(int));
        memcpy(CMSG_DATA(head), fds, count * sizeof(int));
    }
    (void)!sendmsg(socket_fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* In up to four pieces. */
static void send_packet(struct fuzz_input *in, uint32_t flags, const tn_storage_header *h,
                        int socket_fd, int object_fd)
{
    uint32_t count = fuzz_u8(in) % 4;
    const int fds[] = {object_fd, STDIN_FILENO, object_fd};
    size_t cuts[3] = {fuzz_u8(in), fuzz_u8(in), fuzz_u8(in)};
    size_t size = TNI_MIN(fuzz_left(in), (size_t)60000);
    uint8_t *bytes = malloc(size + 1);
    FUZZ_CHECK(bytes != NULL);
    fuzz_fill(in, bytes, size);
    if (size >= HEAD + HASH)
        complete(flags, h, bytes, (uint32_t)size);
    size_t at = 0;
    for (uint32_t i = 0; i < 3 && (flags & IS_STREAM) != 0 && cuts[i] != 0; i++) {
        size_t piece = TNI_MIN(cuts[i], size - at);
        send_with(socket_fd, bytes + at, piece, fds, at == 0 || cuts[i] % 2 != 0 ? count : 0);
        at += piece;
    }
    send_with(socket_fd, bytes + at, size - at, fds, at == 0 ? count : 0);
    free(bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size_bytes)
{
    struct fuzz_input in = fuzz_input(bytes, size_bytes);
    uint32_t flags = fuzz_u8(&in), object_flags = fuzz_u8(&in);
    tn_storage_header header;
    tn_tensor *t;
    int fds[2];
    fuzz_begin();
    fuzz_storage_header(TN_STRATEGY_FILE_DESCRIPTOR, &header);
    fuzz_overlay(&in, &header, sizeof header);
    int object_fd = fuzz_storage_object(&header, object_flags);
    int type = (flags & IS_STREAM) != 0 ? SOCK_STREAM : SOCK_SEQPACKET;
    FUZZ_CHECK(socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, fds) == 0);
    send_packet(&in, flags, &header, fds[0], object_fd);
    close(object_fd);
    if ((flags & IS_CLOSED) != 0)
        shutdown(fds[0], SHUT_WR);
    tn_deadline deadline = (flags & IS_LATE) != 0 ? tn_deadline_after(TN_MILLISECOND) : TN_NOW;
    for (int i = 0; i < 3 && tn_tensor_receive(fds[1], deadline, &t) == 0; i++) {
        fuzz_touch(t);
        tn_tensor_unref(t);
    }
    close(fds[0]);
    close(fds[1]);
    fuzz_end();
    return 0;
}
