/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_memory: memory of a device that processes share.
 *
 * The driver counts this memory for everything that refers to it: a handle or a mapping in any
 * process, a descriptor that is open or on its way in a socket. So no process can lose memory
 * that it has mapped, whichever process made it and has died since. A mapping alone keeps the
 * memory: each function here releases the handle before it returns.
 */
#include <string.h>

#include "device/cuda.h"

/* Some drivers race in these calls if several threads make them. */
static void take_turn(struct tni_cuda *cuda)
{
    if (cuda->differences->takes_turns)
        tni_os_mutex_lock(&cuda->turns);
}

static void end_turn(struct tni_cuda *cuda)
{
    if (cuda->differences->takes_turns)
        tni_os_mutex_unlock(&cuda->turns);
}

static CUmemAllocationProp properties(const struct tni_cuda *cuda, int32_t id)
{
    return (CUmemAllocationProp){
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = cuda->devices[id].number}};
}

/* pre: the context is current */
static int ask_granularity(struct tni_cuda *cuda, int32_t id, size_t *ret_bytes)
{
    CUmemAllocationProp wanted = properties(cuda, id);
    size_t bytes = 0;
    int status = tni_cuda_need(cuda, TNI_CUDA_vmm, "memory that processes share");
    if (status == 0)
        status = tni_cuda_check(cuda,
                                cuda->cuMemGetAllocationGranularity(
                                    &bytes, &wanted, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
                                "cuMemGetAllocationGranularity");
    if (status == 0 && (bytes == 0 || (bytes & (bytes - 1)) != 0))
        status = tni_fail(TN_ERR_DEVICE, "the driver states a granularity of %zu bytes", bytes);
    if (status == 0)
        *ret_bytes = bytes;
    return status;
}

int tni_cuda_granularity(const struct tni_memory_kind *kind, int32_t id, uint64_t *ret_bytes)
{
    struct tni_cuda *cuda = kind->driver;
    size_t bytes = 0;
    int status = tni_cuda_begin(kind);
    if (status == 0 && (*ret_bytes = atomic_load(&cuda->devices[id].granularity)) != 0)
        return 0;
    if (status == 0)
        status = tni_cuda_enter(kind, id);
    if (status != 0)
        return status;
    status = ask_granularity(cuda, id, &bytes);
    tni_cuda_leave(cuda, id, false);
    if (status == 0) {
        atomic_store(&cuda->devices[id].granularity, bytes);
        *ret_bytes = bytes;
    }
    return status;
}

/* Reserve addresses for a memory. */
static int reserve(struct tni_cuda *cuda, struct tni_device_memory *m)
{
    CUdeviceptr at = 0;
    int status = tni_cuda_check(cuda, cuda->cuMemAddressReserve(&at, m->bytes, 0, 0, 0),
                                "cuMemAddressReserve");
    if (status == 0)
        m->address = at;
    return status;
}

/* A driver refuses the size of memory that is smaller, which only that of a descriptor is. */
static int map_at(struct tni_cuda *cuda, const struct tni_device_memory *m,
                  CUmemGenericAllocationHandle handle, bool is_imported)
{
    CUresult result = cuda->cuMemMap(m->address, m->bytes, 0, handle, 0);
    return is_imported && result == CUDA_ERROR_INVALID_VALUE
               ? tni_fail(TN_ERR_CORRUPT, "a descriptor is of memory of less than %llu bytes",
                          (unsigned long long)m->bytes)
               : tni_cuda_check(cuda, result, "cuMemMap");
}

/*
 * Let the device reach what was mapped; after a failure, undo all.
 * @param status        of the mapping
 * @param mapped_bytes  from the address of the memory on
 */
static int finish_mapping(struct tni_cuda *cuda, const struct tni_device_memory *m, int status,
                          uint64_t mapped_bytes)
{
    CUmemAccessDesc access = {.location = properties(cuda, m->device.id).location,
                              .flags = m->is_read_only ? CU_MEM_ACCESS_FLAGS_PROT_READ
                                                       : CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    if (status == 0)
        status = tni_cuda_check(cuda, cuda->cuMemSetAccess(m->address, m->bytes, &access, 1),
                                "cuMemSetAccess");
    if (status != 0 && mapped_bytes > 0)
        cuda->cuMemUnmap(m->address, mapped_bytes);
    if (status != 0)
        cuda->cuMemAddressFree(m->address, m->bytes);
    return status;
}

/* Reserve addresses for a memory, and map it there. */
int tni_cuda_map_handle(struct tni_cuda *cuda, struct tni_device_memory *m,
                        CUmemGenericAllocationHandle handle)
{
    int status = reserve(cuda, m);
    if (status != 0)
        return status;
    status = map_at(cuda, m, handle, false);
    return finish_mapping(cuda, m, status, status == 0 ? m->bytes : 0);
}

void tni_cuda_unmap_memory(struct tni_cuda *cuda, const struct tni_device_memory *m)
{
    cuda->cuMemUnmap(m->address, m->bytes);
    cuda->cuMemAddressFree(m->address, m->bytes);
}

/* pre: the context is current */
static int make(struct tni_cuda *cuda, struct tni_device_memory *m, int *ret_fd)
{
    CUmemAllocationProp wanted = properties(cuda, m->device.id);
    CUmemGenericAllocationHandle handle = 0;
    int status = tni_cuda_need(cuda, TNI_CUDA_vmm, "memory that processes share");
    if (status == 0)
        status = tni_cuda_check(cuda, cuda->cuMemCreate(&handle, m->bytes, &wanted, 0),
                                "cuMemCreate");
    if (status != 0)
        return status;
    status = tni_cuda_map_handle(cuda, m, handle);
    if (status == 0) {
        status =
            tni_cuda_check(cuda,
                           cuda->cuMemExportToShareableHandle(
                               ret_fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
                           "cuMemExportToShareableHandle");
        if (status != 0)
            tni_cuda_unmap_memory(cuda, m);
    }
    cuda->cuMemRelease(handle);
    return status;
}

int tni_cuda_make_smallest(struct tni_cuda *cuda, struct tni_device_memory *m, int *ret_fd)
{
    size_t bytes = 0;
    int status = ask_granularity(cuda, m->device.id, &bytes);
    m->bytes = bytes;
    return status == 0 ? make(cuda, m, ret_fd) : status;
}

int tni_cuda_make(const struct tni_memory_kind *kind, struct tni_device_memory *m, int *ret_fd)
{
    int32_t id = m->device.id;
    int status = tni_cuda_enter(kind, id);
    if (status != 0)
        return status;
    take_turn(kind->driver);
    status = make(kind->driver, m, ret_fd);
    end_turn(kind->driver);
    tni_cuda_leave(kind->driver, id, status == 0);
    return status;
}

/* The driver does not say what is wrong with a descriptor. */
static int fail_descriptor(const struct tni_cuda *cuda, CUresult result,
                           const struct tni_device_memory *m, const char *function)
{
    int status = tni_cuda_check(cuda, result, function);
    if (result != CUDA_ERROR_INVALID_VALUE && result != CUDA_ERROR_INVALID_HANDLE &&
        result != CUDA_ERROR_OPERATING_SYSTEM)
        return status;
    return tni_fail(TN_ERR_CORRUPT,
                    "a descriptor is not that of %llu bytes of device %d, or is of another "
                    "driver: %s() failed (%d)",
                    (unsigned long long)m->bytes, m->device.id, tni_cuda_symbol(cuda, function),
                    result);
}

/*
 * Where the driver does not refuse a size, the descriptor tells it. One of a kind that has no
 * size tells 0.
 */
static int check_size(const struct tni_device_memory *m, int fd)
{
    uint64_t bytes = 0;
    if (tni_os_descriptor_end(fd, &bytes) != 0 || bytes == 0 || bytes >= m->bytes)
        return 0;
    return tni_fail(TN_ERR_CORRUPT, "a descriptor is of memory of %llu bytes, and not of %llu",
                    (unsigned long long)bytes, (unsigned long long)m->bytes);
}

static int check_found(const struct tni_cuda *cuda, const struct tni_device_memory *m,
                       CUmemGenericAllocationHandle handle)
{
    CUmemAllocationProp found = {0};
    if (cuda->differences->forgets_imports)
        return 0;
    int status =
        tni_cuda_check(cuda, cuda->cuMemGetAllocationPropertiesFromHandle(&found, handle),
                       "cuMemGetAllocationPropertiesFromHandle");
    if (status != 0 || (found.location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
                        found.location.id == cuda->devices[m->device.id].number))
        return status;
    return tni_fail(TN_ERR_CORRUPT,
                    "a descriptor is that of memory of device %d, and not of device %d",
                    found.location.id, m->device.id);
}

/* Map what one descriptor is of where the piece lies. pre: the addresses are reserved */
static int import_piece(struct tni_cuda *cuda, const struct tni_device_memory *piece, int fd)
{
    CUmemGenericAllocationHandle handle = 0;
    int status = cuda->differences->forgets_imports ? check_size(piece, fd) : 0;
    if (status != 0)
        return status;
    CUresult result = cuda->cuMemImportFromShareableHandle(
        &handle, (void *)(uintptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    if (result != 0)
        return fail_descriptor(cuda, result, piece, "cuMemImportFromShareableHandle");
    status = check_found(cuda, piece, handle);
    if (status == 0)
        status = map_at(cuda, piece, handle, true);
    cuda->cuMemRelease(handle);
    return status;
}

/* pre: the context is current */
static int import(struct tni_cuda *cuda, struct tni_device_memory *m, const int *fds,
                  uint32_t count)
{
    const struct tni_cuda_differences *differences = cuda->differences;
    uint64_t mapped_bytes = 0;
    int status = tni_cuda_need(cuda, TNI_CUDA_vmm, "memory that processes share");
    if (status == 0 && differences->prepare_import != NULL)
        status = differences->prepare_import(cuda, m->device.id);
    if (status == 0)
        status = reserve(cuda, m);
    if (status != 0)
        return status;
    struct tni_device_memory piece = *m;
    piece.bytes = m->bytes / count;
    for (uint32_t i = 0; status == 0 && i < count; i++) {
        status = import_piece(cuda, &piece, fds[i]);
        piece.address += piece.bytes;
        mapped_bytes += status == 0 ? piece.bytes : 0;
    }
    return finish_mapping(cuda, m, status, mapped_bytes);
}

int tni_cuda_map(const struct tni_memory_kind *kind, struct tni_device_memory *m,
                 const int *fds, uint32_t count)
{
    int32_t id = m->device.id;
    int status = tni_cuda_enter(kind, id);
    if (status != 0)
        return status;
    take_turn(kind->driver);
    status = import(kind->driver, m, fds, count);
    end_turn(kind->driver);
    tni_cuda_leave(kind->driver, id, status == 0);
    return status;
}

void tni_cuda_unmap(const struct tni_memory_kind *kind, const struct tni_device_memory *m)
{
    struct tni_cuda *cuda = kind->driver;
    int32_t id = m->device.id;
    if (tni_cuda_enter(kind, id) != 0)
        return; /* a forked child has only numbers of its parent */
    take_turn(cuda);
    tni_cuda_unmap_memory(cuda, m);
    end_turn(cuda);
    tni_cuda_leave(cuda, id, false);
    tni_cuda_release(cuda, id); /* what tni_cuda_make() or tni_cuda_map() kept */
}
