/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_ipc: memory of a device that another allocator made, and how other processes reach it.
 *
 * Memory of cuMemAlloc() and cudaMalloc() has a handle, 64 bytes that another process opens.
 * The handle is of the whole allocation, and so is what opening it maps. The driver does not
 * count who has it open: the allocation must not be freed before the last one has closed it.
 * Memory that its allocator mapped in pieces (cuMemMap) has a descriptor for each piece, if the
 * allocator asked for that when it made the piece; the driver counts who has these, and the
 * memory stays until the last one lets go. Pieces of one size that lie side by side are shared
 * so; others are copied.
 *
 * The driver is asked what a pointer is. No handle is tried: a library of the same process
 * would find the error, and memory of some allocators makes some drivers fail later.
 */
#include <string.h>

#include "device/cuda.h"
#include "device/hip_api.h"

/* ---- what memory is ---------------------------------------------------------------------- */

struct answer {
    unsigned type;
    int ordinal;
    uint64_t buffer_id;
    /* Drivers write one byte or four. */
    unsigned is_managed, is_capable;
    unsigned handle_types;
    void *pool;
};

static int ask(const struct tni_cuda *cuda, CUdeviceptr address, struct answer *ret)
{
    *ret = (struct answer){.ordinal = -1};
    CUpointer_attribute attributes[] = {
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
        CU_POINTER_ATTRIBUTE_BUFFER_ID,
        CU_POINTER_ATTRIBUTE_IS_MANAGED,
        CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
        CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES,
        CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE,
    };
    void *answers[] = {&ret->type,       &ret->ordinal,      &ret->buffer_id, &ret->is_managed,
                       &ret->is_capable, &ret->handle_types, &ret->pool};
    return tni_cuda_check(
        cuda, cuda->cuPointerGetAttributes(TNI_COUNT(attributes), attributes, answers, address),
        "cuPointerGetAttributes");
}

static int check_device(const struct tni_cuda *cuda, int32_t id, uint64_t address,
                        const struct answer *a)
{
    if (a->type == CU_MEMORYTYPE_DEVICE && a->ordinal == cuda->devices[id].number)
        return 0;
    return a->type == CU_MEMORYTYPE_DEVICE
               ? tni_fail(TN_ERR_INVALID, "address %llx is of device %d, and not of device %d",
                          (unsigned long long)address, a->ordinal, cuda->devices[id].number)
               : tni_fail(TN_ERR_INVALID, "address %llx is not of memory of a device",
                          (unsigned long long)address);
}

static bool has(const struct tni_cuda *cuda, enum tni_cuda_group group)
{
    return (cuda->missing >> group & 1) == 0;
}

static void leave_to_copy(struct tni_device_foreign *f, const char *why)
{
    f->way = TNI_FOREIGN_COPY;
    f->why = why;
}

static bool has_descriptor(const struct answer *a)
{
    return (a->handle_types & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0;
}

/* Choose the way by what the driver said. */
static void choose(const struct tni_cuda *cuda, const struct answer *a,
                   struct tni_device_foreign *f)
{
    if (a->is_managed != 0)
        leave_to_copy(f, "it is managed memory");
    else if (a->pool != NULL)
        leave_to_copy(f, "it is from a pool of the driver");
    else if (a->is_capable != 0 && has(cuda, TNI_CUDA_ipc))
        f->way = TNI_FOREIGN_HANDLE;
    else if (a->is_capable != 0)
        leave_to_copy(f, "the driver has no handles of memory");
    else if (has_descriptor(a) && has(cuda, TNI_CUDA_retain) && has(cuda, TNI_CUDA_vmm))
        f->way = TNI_FOREIGN_PIECES;
    else if (a->handle_types != 0)
        leave_to_copy(
            f,
            "its allocator mapped it in pieces, and the driver gives no descriptors of them");
    else
        leave_to_copy(f, cuda->differences->why_private);
}

/* Find the whole allocation. pre: the context is current */
static int measure(const struct tni_cuda *cuda, uint64_t address, uint64_t bytes,
                   struct tni_device_foreign *f)
{
    CUdeviceptr base = 0;
    size_t whole = 0;
    CUresult result = cuda->cuMemGetAddressRange(&base, &whole, address);
    if (result != 0)
        return tni_cuda_check(cuda, result, "cuMemGetAddressRange");
    uint64_t at = address - base;
    f->base = base;
    f->bytes = whole;
    if (address >= base && at <= whole && bytes <= whole - at)
        return 0;
    if (f->way == TNI_FOREIGN_HANDLE)
        return tni_fail(
            TN_ERR_INVALID, "the %llu bytes at %llx reach beyond the %llu of their allocation",
            (unsigned long long)bytes, (unsigned long long)address, (unsigned long long)whole);
    if (f->way == TNI_FOREIGN_COPY)
        f->why = "it is in several pieces";
    return 0;
}

/* Add the piece that follows those that were found. @return why the memory is copied, or NULL
 */
static const char *add_piece(const struct tni_cuda *cuda, struct tni_device_foreign *f)
{
    uint64_t next = f->base + f->bytes * f->piece_count;
    uint64_t ids[2] = {f->buffer_id};
    struct answer a;
    CUdeviceptr base = 0;
    size_t bytes = 0;
    if (f->piece_count == TNI_DEVICE_PIECES)
        return "it is in too many pieces";
    if (cuda->cuMemGetAddressRange(&base, &bytes, next) != 0 || base != next ||
        ask(cuda, next, &a) != 0)
        return "the driver does not tell its pieces";
    if (bytes != f->bytes)
        return "its pieces have several sizes";
    if (!has_descriptor(&a) || a.ordinal != cuda->devices[f->device.id].number)
        return "some of its pieces have no descriptor, or are of another device";
    ids[1] = a.buffer_id;
    f->buffer_id = f->piece_count == 0 ? a.buffer_id : tni_hash(ids, sizeof ids);
    f->piece_count++;
    return NULL;
}

/*
 * Find all pieces that the memory lies in: measure() has found the first. The id stands for
 * those of all.
 */
static void find_pieces(const struct tni_cuda *cuda, uint64_t address, uint64_t bytes,
                        struct tni_device_foreign *f)
{
    uint64_t end = address - f->base + bytes;
    const char *why = NULL;
    while (why == NULL && f->bytes * f->piece_count < end)
        why = add_piece(cuda, f);
    f->bytes *= f->piece_count;
    if (why != NULL)
        leave_to_copy(f, why);
}

int tni_cuda_classify(const struct tni_memory_kind *kind, int32_t id, uint64_t address,
                      uint64_t bytes, struct tni_device_foreign *ret_foreign)
{
    struct tni_cuda *cuda = kind->driver;
    struct tni_device_foreign f = {.device = {kind->type, id}};
    struct answer a;
    int status = tni_cuda_enter(kind, id);
    if (status != 0)
        return status;
    if (!has(cuda, TNI_CUDA_pointers)) {
        leave_to_copy(&f, "the driver does not say what it is");
    } else {
        status = ask(cuda, address, &a);
        if (status == 0)
            status = check_device(cuda, id, address, &a);
        if (status == 0) {
            f.buffer_id = a.buffer_id;
            choose(cuda, &a, &f);
            status = measure(cuda, address, bytes, &f);
            if (status == 0 && f.way == TNI_FOREIGN_PIECES)
                find_pieces(cuda, address, bytes, &f);
        }
    }
    tni_cuda_leave(cuda, id, false);
    if (status == 0)
        *ret_foreign = f;
    return status;
}

int tni_cuda_locate(const struct tni_memory_kind *kind, uint64_t address, int32_t *ret_id)
{
    struct tni_cuda *cuda = kind->driver;
    struct answer a;
    int status = tni_cuda_begin(kind);
    if (status == 0)
        status = tni_cuda_need(cuda, TNI_CUDA_pointers, "finding the device of an address");
    if (status == 0)
        status = ask(cuda, address, &a); /* it needs no context */
    if (status != 0)
        return status;
    for (int32_t id = 0; id < cuda->device_count && a.type == CU_MEMORYTYPE_DEVICE; id++)
        if (cuda->devices[id].number == a.ordinal) {
            *ret_id = id;
            return 0;
        }
    return tni_fail(TN_ERR_NOT_FOUND, "address %llx is not of memory of a device",
                    (unsigned long long)address);
}

/* ---- exporting --------------------------------------------------------------------------- */

int tni_cuda_export(const struct tni_memory_kind *kind,
                    const struct tni_device_foreign *foreign,
                    uint8_t ret_handle[TNI_DEVICE_HANDLE_BYTES])
{
    struct tni_cuda *cuda = kind->driver;
    CUipcMemHandle handle;
    int status = tni_cuda_enter(kind, foreign->device.id);
    if (status != 0)
        return status;
    status = tni_cuda_check(cuda, cuda->cuIpcGetMemHandle(&handle, foreign->base),
                            "cuIpcGetMemHandle");
    tni_cuda_leave(cuda, foreign->device.id, false);
    if (status == 0)
        memcpy(ret_handle, &handle, sizeof handle);
    return status;
}

static int export_piece(const struct tni_cuda *cuda, uint64_t address, int *ret_fd)
{
    CUmemGenericAllocationHandle handle = 0;
    int status = tni_cuda_check(
        cuda, cuda->cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)address),
        "cuMemRetainAllocationHandle");
    if (status != 0)
        return status;
    status = tni_cuda_check(cuda,
                            cuda->cuMemExportToShareableHandle(
                                ret_fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
                            "cuMemExportToShareableHandle");
    cuda->cuMemRelease(handle);
    return status;
}

int tni_cuda_export_pieces(const struct tni_memory_kind *kind,
                           const struct tni_device_foreign *f, int *ret_fds)
{
    struct tni_cuda *cuda = kind->driver;
    uint32_t count = 0;
    int status = tni_cuda_enter(kind, f->device.id);
    if (status != 0)
        return status;
    for (; status == 0 && count < f->piece_count; count += status == 0)
        status =
            export_piece(cuda, f->base + f->bytes / f->piece_count * count, &ret_fds[count]);
    tni_cuda_leave(cuda, f->device.id, false);
    for (uint32_t i = 0; status != 0 && i < count; i++)
        tni_os_close(ret_fds[i]);
    return status;
}

/* ---- opening ----------------------------------------------------------------------------- */

/* What an error says about a handle that was made by a process that still runs. */
static int fail_open(const struct tni_cuda *cuda, CUresult result, int32_t id)
{
    switch (result) {
    case CUDA_ERROR_ALREADY_MAPPED:
        return tni_fail(TN_ERR_EXISTS,
                        "this process has memory open that was at the same place, and that the "
                        "process which made it has freed");
    case CUDA_ERROR_INVALID_CONTEXT:
        return tni_fail(TN_ERR_UNSUPPORTED,
                        "the driver does not open memory of a process with the number of this "
                        "one, as in another container, nor in a second context of device %d",
                        id);
    case CUDA_ERROR_INVALID_VALUE:
    case CUDA_ERROR_INVALID_HANDLE:
    case HIP_ERROR_INVALID_DEVICE_POINTER:
        return tni_fail(TN_ERR_NOT_FOUND,
                        "the driver does not know the memory any more: it was freed, or the "
                        "process that made it has ended");
    case CUDA_ERROR_MAP_FAILED:
    case CUDA_ERROR_PEER_ACCESS_UNSUPPORTED:
    case CUDA_ERROR_TOO_MANY_PEERS:
    case CUDA_ERROR_NOT_SUPPORTED:
    case CUDA_ERROR_NOT_PERMITTED:
        return tni_fail(TN_ERR_UNSUPPORTED,
                        "device %d cannot reach the memory of the other process (error %d): it "
                        "is a part of a card (MIG), or cannot reach the other card",
                        id, result);
    default:
        return tni_cuda_check(cuda, result, "cuIpcOpenMemHandle");
    }
}

/* The memory that was opened has at least as many bytes as the other process said. */
static int check_opened(const struct tni_cuda *cuda, CUdeviceptr opened, uint64_t bytes)
{
    CUdeviceptr base = 0;
    size_t whole = 0;
    if (!has(cuda, TNI_CUDA_pointers))
        return 0;
    int status = tni_cuda_check(cuda, cuda->cuMemGetAddressRange(&base, &whole, opened),
                                "cuMemGetAddressRange");
    if (status == 0 &&
        (opened < base || opened - base > whole || bytes > whole - (opened - base)))
        status = tni_fail(TN_ERR_CORRUPT,
                          "memory of another process has %zu bytes, and not the %llu that its "
                          "description states",
                          whole, (unsigned long long)bytes);
    return status;
}

int tni_cuda_open(const struct tni_memory_kind *kind, struct tni_device_memory *memory,
                  const uint8_t handle[TNI_DEVICE_HANDLE_BYTES])
{
    struct tni_cuda *cuda = kind->driver;
    int32_t id = memory->device.id;
    CUipcMemHandle wanted;
    CUdeviceptr opened = 0;
    memcpy(&wanted, handle, sizeof wanted);
    int status = tni_cuda_enter(kind, id);
    if (status != 0)
        return status;
    status = tni_cuda_need(cuda, TNI_CUDA_ipc, "memory of other allocators");
    if (status == 0) {
        CUresult result =
            cuda->cuIpcOpenMemHandle(&opened, wanted, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
        status = result != 0 ? fail_open(cuda, result, id) : 0;
    }
    if (status == 0 && (status = check_opened(cuda, opened, memory->bytes)) != 0)
        cuda->cuIpcCloseMemHandle(opened);
    tni_cuda_leave(cuda, id, status == 0);
    if (status == 0)
        memory->address = opened;
    return status;
}

void tni_cuda_close(const struct tni_memory_kind *kind, const struct tni_device_memory *memory)
{
    struct tni_cuda *cuda = kind->driver;
    int32_t id = memory->device.id;
    if (tni_cuda_enter(kind, id) != 0)
        return; /* a forked child has only numbers of its parent */
    CUresult result = cuda->cuIpcCloseMemHandle(memory->address);
    if (result != 0)
        tni_log(TNI_LOG_DEBUG, "memory of another process stays open: %d", result);
    tni_cuda_leave(cuda, id, false);
    tni_cuda_release(cuda, id); /* what tni_cuda_open() kept */
}
