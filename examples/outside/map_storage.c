/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program without tenon that reads a tensor: it takes the descriptor of a storage from the
 * Unix socket that is its standard input, maps it, and adds up the elements. It needs the
 * struct of <tenon/share.h>, and links nothing. It does not trust the sender, which is
 * send_storage.c in the tests.
 *
 * Here the tensor is the one that the storage was made for. The packet that the descriptor
 * comes with says which part of it was sent; docs/layout.md has its form.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <tenon/dlpack.h>
#include <tenon/share.h>
#include <unistd.h>

static void expect(int holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "map_storage: %s\n", what);
    exit(1);
}

static int receive_descriptor(int socket_fd)
{
    static char packet[1 << 16];
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr aligned;
    } control;
    struct iovec part = {.iov_base = packet, .iov_len = sizeof packet};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    int fd;
    expect(recvmsg(socket_fd, &message, MSG_CMSG_CLOEXEC) > 0, "nothing came");
    const struct cmsghdr *first = CMSG_FIRSTHDR(&message);
    expect(first != NULL && first->cmsg_level == SOL_SOCKET && first->cmsg_type == SCM_RIGHTS,
           "no descriptor came along");
    memcpy(&fd, CMSG_DATA(first), sizeof fd);
    return fd;
}

/*
 * The seals are checked first: a sealed memory object cannot be cut, so the size that is read
 * next stays true. F_GET_SEALS fails for a plain file, which any process could cut.
 */
static void check_seals(int fd)
{
    int seals = fcntl(fd, F_GET_SEALS);
    expect(seals >= 0 && (seals & F_SEAL_SHRINK) != 0, "its memory may go away");
}

/* The header, read once: another process may write it. */
static tn_storage_header check_header(const void *object, uint64_t object_bytes)
{
    tn_storage_header h;
    memcpy(&h, object, sizeof h);
    expect(memcmp(h.magic, TN_STORAGE_MAGIC, sizeof h.magic) == 0, "this is no storage");
    expect(h.version == TN_STORAGE_VERSION && h.must_understand == 0,
           "the storage is of another version");
    expect(h.data_offset >= sizeof h && h.data_offset % sizeof(float) == 0 &&
               h.data_offset <= object_bytes && h.data_bytes <= object_bytes - h.data_offset,
           "its data would lie outside");
    return h;
}

/* Elements of a row-major tensor of float32. */
static uint64_t count_elements(const tn_storage_header *h)
{
    uint64_t count = 1;
    expect(h->dtype_code == kDLFloat && h->dtype_bits == 32 && h->dtype_lanes == 1,
           "it is not of float32");
    expect(h->ndim >= 0 && h->ndim <= TN_MAX_NDIM, "it has too many axes");
    for (int32_t i = h->ndim - 1; i >= 0; i--) {
        expect(h->shape[i] == 1 || h->strides[i] == (int64_t)count, "it is not row-major");
        expect(!__builtin_mul_overflow(count, (uint64_t)h->shape[i], &count),
               "it is too large");
    }
    expect(h->byte_offset == 0 && count <= h->data_bytes / sizeof(float),
           "its elements would lie outside");
    return count;
}

int main(void)
{
    struct stat stat;
    int fd = receive_descriptor(STDIN_FILENO);
    check_seals(fd);
    expect(fstat(fd, &stat) == 0 && stat.st_size >= (off_t)sizeof(tn_storage_header),
           "the descriptor is too short");
    const char *object = mmap(NULL, (size_t)stat.st_size, PROT_READ, MAP_SHARED, fd, 0);
    expect(object != MAP_FAILED, "it cannot be mapped");
    tn_storage_header h = check_header(object, (uint64_t)stat.st_size);
    uint64_t count = count_elements(&h);
    const float *element = (const float *)(const void *)(object + h.data_offset);
    double sum = 0;
    for (uint64_t i = 0; i < count; i++)
        sum += element[i];
    printf("%llu elements, sum %g\n", (unsigned long long)count, sum);
    return 0;
}
