/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of device 0, as tenon makes and maps it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "gpu/facts/facts.h"

CUmemAllocationProp memory_properties(void)
{
    return (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .requestedHandleTypes =
                                     CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                 .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
}

CUdeviceptr memory_map(CUmemGenericAllocationHandle handle, size_t bytes,
                       CUmemAccess_flags flags)
{
    CUdeviceptr at = 0;
    CUmemAccessDesc access = {.location = memory_properties().location, .flags = flags};
    CALL(cuMemAddressReserve, &at, bytes, 0, 0, 0);
    CALL(cuMemMap, at, bytes, 0, handle, 0);
    CALL(cuMemSetAccess, at, bytes, &access, 1);
    return at;
}

struct memory memory_make(size_t bytes)
{
    struct memory memory = {.bytes = bytes};
    CUmemAllocationProp wanted = memory_properties();
    CALL(cuMemCreate, &memory.handle, bytes, &wanted, 0);
    memory.at = memory_map(memory.handle, bytes, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    return memory;
}

int memory_export(const struct memory *memory)
{
    int fd = -1;
    CALL(cuMemExportToShareableHandle, &fd, memory->handle,
         CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    return fd;
}

struct memory memory_import(int fd, size_t bytes, CUmemAccess_flags flags)
{
    struct memory memory = {.bytes = bytes};
    CALL(cuMemImportFromShareableHandle, &memory.handle, (void *)(uintptr_t)fd,
         CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    close(fd);
    memory.at = memory_map(memory.handle, bytes, flags);
    CALL(cuMemRelease, memory.handle);
    memory.handle = 0;
    return memory;
}

void memory_end(struct memory *memory)
{
    CALL(cuMemUnmap, memory->at, memory->bytes);
    CALL(cuMemAddressFree, memory->at, memory->bytes);
    if (memory->handle != 0)
        CALL(cuMemRelease, memory->handle);
    memory->handle = 0;
}

void memory_fill(CUdeviceptr at, size_t bytes, unsigned char value)
{
    CALL(cuMemsetD8Async, at, value, bytes, NULL);
    CALL(cuStreamSynchronize, NULL);
}

CUresult memory_read(void *to, CUdeviceptr at, size_t bytes)
{
    CUresult code = CODE(cuMemcpyDtoHAsync, to, at, bytes, NULL);
    return code != 0 ? code : CODE(cuStreamSynchronize, NULL);
}

long memory_differs(CUdeviceptr at, size_t bytes, unsigned char value, CUresult *ret_code)
{
    long wrong = 0;
    unsigned char *here = malloc(bytes);
    if (here == NULL)
        unanswered("no memory");
    CUresult code = memory_read(here, at, bytes);
    for (size_t i = 0; code == 0 && i < bytes; i++)
        wrong += here[i] != value;
    free(here);
    if (ret_code != NULL)
        *ret_code = code;
    return code == 0 ? wrong : -1;
}

void *memory_pinned(size_t bytes)
{
    void *here = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (here == MAP_FAILED)
        unanswered("mmap: %s", strerror(errno));
    memset(here, 0, bytes);
    CALL(cuMemHostRegister, here, bytes, CU_MEMHOSTREGISTER_PORTABLE);
    return here;
}

CUresult stream_await(CUstream stream, unsigned ms)
{
    uint64_t end_ns = now_ns() + UINT64_C(1000000) * ms;
    CUresult code;
    while ((code = CODE(cuStreamQuery, stream)) == CUDA_ERROR_NOT_READY && now_ns() < end_ns)
        pass_ms(1);
    return code;
}

uint64_t nth_size(unsigned n, unsigned copies)
{
    static const uint64_t sizes[] = {2u << 20, 64u << 20, UINT64_C(1) << 30, UINT64_C(8) << 30,
                                     UINT64_C(32) << 30};
    uint64_t most = is_small ? 4u << 20 : driver_free_bytes() / 10 * 9 / copies;
    if (is_quick && most > UINT64_C(1) << 30)
        most = UINT64_C(1) << 30;
    return n < sizeof sizes / sizeof sizes[0] && sizes[n] <= most ? sizes[n] : 0;
}
