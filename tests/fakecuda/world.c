/* SPDX-License-Identifier: Apache-2.0 */
/* See world.h. */
#include "fakecuda/world.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static char path[256];
static CUdevice device;

void world_begin(const struct fake_options *options)
{
    snprintf(path, sizeof path, "%s/universe", tnt_folder());
    assert_int_equal(fake_make(path, options), 0);
    setenv("TENON_FAKECUDA", path, 1);
}

void world_end(void)
{
    char report[4096];
    int count = fake_end(path, report, sizeof report);
    if (count)
        printf("%s", report);
    assert_int_equal(count, 0);
}

void world_end_with(const char *text)
{
    char report[4096];
    int count = fake_end(path, report, sizeof report);
    if (!strstr(report, text))
        printf("%s", report);
    assert_true(count > 0);
    assert_non_null(strstr(report, text));
}

void world_expect(const char *rule)
{
    char text[4096], sought[16];
    snprintf(sought, sizeof sought, ", %s:", rule);
    int count = fake_violations(text, sizeof text);
    if (!strstr(text, sought))
        printf("%s", text);
    assert_true(count > 0);
    assert_non_null(strstr(text, sought));
    fake_forgive();
}

CUcontext world_enter(void)
{
    CUcontext context;
    OK(cuInit(0));
    OK(cuDeviceGet(&device, 0));
    OK(cuDevicePrimaryCtxRetain(&context, device));
    OK(cuCtxPushCurrent_v2(context));
    return context;
}

void world_leave(void)
{
    CUcontext context;
    OK(cuCtxPopCurrent_v2(&context));
    OK(cuDevicePrimaryCtxRelease_v2(device));
    fake_detach();
}

/* ---- chunks ------------------------------------------------------------------------------ */

CUmemAllocationProp world_properties(void)
{
    return (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0},
                                 .requestedHandleTypes =
                                     CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR};
}

CUmemAccessDesc world_access(CUmemAccess_flags flags)
{
    return (CUmemAccessDesc){.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}, .flags = flags};
}

static void chunk_map(struct chunk *chunk, CUmemAccess_flags flags)
{
    CUmemAccessDesc access = world_access(flags);
    OK(cuMemAddressReserve(&chunk->ptr, chunk->bytes, 0, 0, 0));
    OK(cuMemMap(chunk->ptr, chunk->bytes, 0, chunk->handle, 0));
    OK(cuMemSetAccess(chunk->ptr, chunk->bytes, &access, 1));
}

struct chunk chunk_create(size_t bytes)
{
    struct chunk made = {.bytes = bytes};
    CUmemAllocationProp properties = world_properties();
    OK(cuMemCreate(&made.handle, bytes, &properties, 0));
    chunk_map(&made, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    return made;
}

struct chunk chunk_import(int fd, size_t bytes, CUmemAccess_flags flags)
{
    struct chunk made = {.bytes = bytes};
    OK(cuMemImportFromShareableHandle(&made.handle, (void *)(intptr_t)fd,
                                      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    close(fd);
    chunk_map(&made, flags);
    return made;
}

int chunk_export(const struct chunk *chunk)
{
    int fd = -1;
    OK(cuMemExportToShareableHandle(&fd, chunk->handle,
                                    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    return fd;
}

void chunk_destroy(struct chunk *chunk)
{
    OK(cuMemUnmap(chunk->ptr, chunk->bytes));
    OK(cuMemAddressFree(chunk->ptr, chunk->bytes));
    OK(cuMemRelease(chunk->handle));
}

unsigned char byte_at(CUdeviceptr ptr)
{
    unsigned char byte = 0;
    assert_int_equal(fake_peek(ptr, &byte, 1), 0);
    return byte;
}

/* ---- channels ---------------------------------------------------------------------------- */

/* Either process may use either end: one only sends, the other only receives. */
struct channel channel_open(void)
{
    struct channel made;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, made.ends), 0);
    return made;
}

void channel_send_fd(const struct channel *channel, int fd)
{
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr header;
    } control = {.bytes = {0}};
    char byte = 0;
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    control.header.cmsg_level = SOL_SOCKET;
    control.header.cmsg_type = SCM_RIGHTS;
    control.header.cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(&control.header), &fd, sizeof fd);
    assert_int_equal(sendmsg(channel->ends[0], &message, 0), 1);
}

int channel_receive_fd(const struct channel *channel)
{
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr header;
    } control = {.bytes = {0}};
    char byte;
    int fd = -1;
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    assert_int_equal(recvmsg(channel->ends[1], &message, MSG_CMSG_CLOEXEC), 1);
    memcpy(&fd, CMSG_DATA(&control.header), sizeof fd);
    return fd;
}

void channel_send(const struct channel *channel, const void *bytes, size_t size)
{
    assert_int_equal(write(channel->ends[0], bytes, size), (ssize_t)size);
}

void channel_receive(const struct channel *channel, void *bytes, size_t size)
{
    assert_int_equal(recv(channel->ends[1], bytes, size, MSG_WAITALL), (ssize_t)size);
}

void channel_close(struct channel *channel)
{
    close(channel->ends[0]);
    close(channel->ends[1]);
}
