/* SPDX-License-Identifier: Apache-2.0 */
/* The example that reads a tensor without tenon, and senders that it must not trust. */
#include <tenon/dlpack.h>

#include "harness/harness.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { DATA_OFFSET = 4096, ELEMENTS = 1000 };

/* A storage as map_storage reads it: a header, and elements that are all 0. */
static void fill_object(int fd)
{
    tn_storage_header h = {.version = TN_STORAGE_VERSION,
                           .data_offset = DATA_OFFSET,
                           .data_bytes = ELEMENTS * sizeof(float),
                           .dtype_code = kDLFloat,
                           .dtype_bits = 32,
                           .dtype_lanes = 1,
                           .ndim = 1,
                           .shape = {ELEMENTS},
                           .strides = {1}};
    memcpy(h.magic, TN_STORAGE_MAGIC, sizeof h.magic);
    assert_int_equal(pwrite(fd, &h, sizeof h, 0), sizeof h);
    assert_int_equal(ftruncate(fd, DATA_OFFSET + ELEMENTS * (off_t)sizeof(float)), 0);
}

static void send_descriptor(int socket_fd, int fd)
{
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr aligned;
    } control = {0};
    struct iovec part = {.iov_base = "x", .iov_len = 1};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    struct cmsghdr *first = CMSG_FIRSTHDR(&message);
    first->cmsg_level = SOL_SOCKET;
    first->cmsg_type = SCM_RIGHTS;
    first->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(first), &fd, sizeof fd);
    assert_int_equal(sendmsg(socket_fd, &message, 0), 1);
}

/* What map_storage, which is sent `fd`, exits with. */
static int read_by_example(int fd)
{
    const char *program = getenv("MAP_STORAGE");
    int sockets[2], status = 0;
    assert_non_null(program);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets), 0);
    pid_t reader = fork();
    if (reader == 0) {
        int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
        dup2(nowhere, STDOUT_FILENO);
        dup2(nowhere, STDERR_FILENO);
        dup2(sockets[1], STDIN_FILENO);
        execl(program, program, (char *)NULL);
        _exit(127);
    }
    send_descriptor(sockets[0], fd);
    assert_int_equal(waitpid(reader, &status, 0), reader);
    close(sockets[0]);
    close(sockets[1]);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

TN_TEST(the_reader_takes_memory_that_is_sealed_against_shrinking)
{
    int fd = memfd_create("storage", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_true(fd >= 0);
    fill_object(fd);
    assert_int_equal(read_by_example(fd), 1);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    assert_int_equal(read_by_example(fd), 0);
    close(fd);
}

TN_TEST(the_reader_refuses_a_file_that_has_no_seals)
{
    char path[4200];
    snprintf(path, sizeof path, "%s/storage", tnt_folder());
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    fill_object(fd);
    assert_int_equal(read_by_example(fd), 1);
    close(fd);
    unlink(path);
}
