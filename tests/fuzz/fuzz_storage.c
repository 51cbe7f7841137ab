/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_storage: the header of a storage from elsewhere: a memory object by its descriptor, a
 * file by its path. A right header is damaged, or the object cut.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "backing/backing.h"
#include "fuzz.h"
#include "harness/tensor.h"
#include "storage.h"

/* On through a socket and back. */
static void send_on(tn_tensor *t)
{
    int fds[2];
    tn_tensor *again;
    FUZZ_CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) == 0);
    if (tn_tensor_send(t, fds[0], TN_SEND_READ_ONLY, TN_NOW) == 0) {
        FUZZ_CHECK(tn_tensor_receive(fds[1], TN_NOW, &again) == 0);
        fuzz_touch(again);
        tn_tensor_unref(again);
    }
    close(fds[0]);
    close(fds[1]);
}

static void open_by_path(const tn_storage_header *h, uint64_t file_bytes)
{
    char path[256];
    tn_tensor *t;
    snprintf(path, sizeof path, "%s/shm/storage", fuzz_folder());
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_TRUNC, 0600);
    if (fd < 0 || ftruncate(fd, (off_t)file_bytes) != 0 ||
        pwrite(fd, h, TNI_MIN(sizeof *h, file_bytes), 0) < 0)
        fuzz_fail("%s: %s", path, strerror(errno));
    if (tn_tensor_open_path(path, &t) == 0) {
        fuzz_touch(t);
        FUZZ_CHECK(strcmp(tnt_info(t).path, path) == 0);
        tn_tensor_unref(t);
    }
    close(fd);
    unlink(path);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size_bytes)
{
    struct fuzz_input in = fuzz_input(bytes, size_bytes);
    uint32_t flags = fuzz_u8(&in);
    tn_storage_header header;
    tn_tensor *t;
    fuzz_begin();
    fuzz_storage_header(flags & 2 ? TN_STRATEGY_FILE_SYSTEM : TN_STRATEGY_FILE_DESCRIPTOR,
                        &header);
    fuzz_overlay(&in, &header, sizeof header);
    if ((flags & 2) != 0) {
        open_by_path(&header,
                     (flags & 4) != 0 ? fuzz_u16(&in) : header.object_bytes % (1 << 20));
    } else {
        int fd = fuzz_storage_object(&header, flags);
        if (tn_tensor_from_descriptor(fd, &t) == 0) {
            fuzz_touch(t);
            send_on(t);
            tn_tensor_unref(t);
        }
        close(fd);
    }
    fuzz_end();
    return 0;
}
