/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hip: in what HIP, the interface of AMD's ROCm, differs from CUDA's driver.
 *
 * cuda_load.c fills in the same table of functions for both drivers. Most of HIP's functions
 * are CUDA's under other names (hip_api.h); the others have an adapter here, with the
 * parameters of CUDA's.
 *
 * I3  HIP has no contexts: a thread has a current device. A context of the device `n` is the
 *     pointer n + 1. Who pushes a context makes the device current; who pops it makes current
 *     again what was. HIP's own stack of contexts does not do the latter.
 * I4  HIP keeps the last error of each thread until the program asks for it, and a program
 *     takes it for one of its own calls. A thread that had none before has none afterwards.
 * I5  Some versions take a descriptor that is imported as a number, others as the place of it
 *     (ROCm before 7.1). The version says which, and the process tries that with memory of its
 *     own before it imports another's. It never tries both: a version that takes a number for a
 *     place would read there.
 */
#include "device/hip_api.h"

#include <stdio.h>
#include <string.h>

#include "device/cuda.h"

/* NOLINTNEXTLINE(bugprone-macro-parentheses): a list of parameters has its own */
#define MEMBER(symbol, parameters) CUresult(*symbol) parameters;
static struct {
    TNI_HIP_OTHER(MEMBER)
} hip;
#undef MEMBER

/* ---- contexts and errors ----------------------------------------------------------------- */

static CUcontext context_of(int device) { return (CUcontext)(uintptr_t)(device + 1); }

static int device_of(CUcontext context) { return (int)(uintptr_t)context - 1; }

enum { MOST_DEPTH = 8 };
static _Thread_local struct {
    int depth;
    struct {
        uint8_t device; /* fewer are supported */
        bool is_clean;  /* the thread had no error of HIP */
    } before[MOST_DEPTH];
} stack; /* small, since a library that is loaded late has little room for thread-local data */

static CUresult retain(CUcontext *ret_context, CUdevice device)
{
    *ret_context = context_of(device);
    return 0;
}

static CUresult release(CUdevice device)
{
    (void)device;
    return 0;
}

/* I4 */
static void clean(bool is_clean)
{
    if (is_clean)
        (void)hip.hipGetLastError();
}

/* I3 */
static CUresult push(CUcontext context)
{
    int device = 0;
    bool is_clean = hip.hipPeekAtLastError() == 0;
    CUresult result = stack.depth < MOST_DEPTH ? 0 : CUDA_ERROR_INVALID_CONTEXT;
    if (result == 0)
        result = hip.hipGetDevice(&device);
    if (result == 0)
        result = hip.hipSetDevice(device_of(context));
    if (result != 0) {
        clean(is_clean);
        return result;
    }
    stack.before[stack.depth].device = (uint8_t)device;
    stack.before[stack.depth++].is_clean = is_clean;
    return 0;
}

static CUresult pop(CUcontext *ret_context)
{
    *ret_context = NULL;
    if (stack.depth == 0)
        return CUDA_ERROR_INVALID_CONTEXT;
    stack.depth--;
    CUresult result = hip.hipSetDevice(stack.before[stack.depth].device);
    clean(stack.before[stack.depth].is_clean);
    return result;
}

static CUresult get_context(CUcontext *ret_context)
{
    int device = 0;
    CUresult result = hip.hipGetDevice(&device);
    *ret_context = context_of(device);
    return result;
}

/* ---- devices ----------------------------------------------------------------------------- */

/* HIP has no attribute for descriptors of memory: those that have the memory have them. */
static int number_of(CUdevice_attribute attribute)
{
    switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
        return HIP_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED;
    case CU_DEVICE_ATTRIBUTE_INTEGRATED:
        return HIP_ATTRIBUTE_INTEGRATED;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_MODE:
        return HIP_ATTRIBUTE_COMPUTE_MODE;
    case CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID:
        return HIP_ATTRIBUTE_PCI_DOMAIN_ID;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
        return HIP_ATTRIBUTE_PCI_BUS_ID;
    case CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID:
        return HIP_ATTRIBUTE_PCI_DEVICE_ID;
    default:
        return -1;
    }
}

static CUresult get_attribute(int *ret_value, CUdevice_attribute attribute, CUdevice device)
{
    int number = number_of(attribute);
    if (number < 0)
        return CUDA_ERROR_INVALID_VALUE;
    bool is_clean = hip.hipPeekAtLastError() == 0;
    CUresult result = hip.hipDeviceGetAttribute(ret_value, number, device);
    clean(is_clean);
    return result;
}

/* All cards that have no UUID say "XX". Such a card is told by its place on the bus. */
static CUresult get_uuid(CUuuid *ret_uuid, CUdevice device)
{
    static const char none[2] = {'X', 'X'}, zeros[16];
    int domain = 0, bus = 0, slot = 0;
    CUresult result = hip.hipDeviceGetUuid(ret_uuid, device);
    if (result != 0 || (memcmp(ret_uuid->bytes, none, sizeof none) != 0 &&
                        memcmp(ret_uuid->bytes, zeros, sizeof zeros) != 0))
        return result;
    get_attribute(&domain, CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, device);
    get_attribute(&bus, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, device);
    get_attribute(&slot, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, device);
    memset(ret_uuid, 0, sizeof *ret_uuid);
    snprintf(ret_uuid->bytes, sizeof ret_uuid->bytes, "%04x:%02x:%02x", domain & 0xffff,
             bus & 0xff, slot & 0xff);
    return 0;
}

/* ---- memory ------------------------------------------------------------------------------ */

/* What a version does not answer stays 0, which means no. */
static bool is_optional(CUpointer_attribute attribute)
{
    return attribute == CU_POINTER_ATTRIBUTE_IS_MANAGED ||
           attribute == CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE ||
           attribute == CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES ||
           attribute == CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE;
}

/* HIP's own function for several attributes fails if it does not know one of them. */
static CUresult get_attributes(unsigned count, CUpointer_attribute *attributes, void **data,
                               CUdeviceptr address)
{
    for (unsigned i = 0; i < count; i++) {
        CUresult result = hip.hipPointerGetAttribute(data[i], attributes[i], address);
        if (result == CUDA_ERROR_INVALID_VALUE &&
            attributes[i] == CU_POINTER_ATTRIBUTE_MEMORY_TYPE)
            return 0; /* not of HIP: CUDA answers 0 to everything */
        if (result != 0 && !is_optional(attributes[i]))
            return result;
    }
    return 0;
}

static CUresult get_stream_context(CUstream stream, CUcontext *ret_context)
{
    CUdevice device = -1;
    CUresult result = hip.hipStreamGetDevice(stream, &device);
    *ret_context = context_of(device);
    return result;
}

/* It has as many parameters as the driver's function. */
static CUresult copy_peer(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                          CUcontext from_context, size_t bytes, CUstream stream)
{
    return hip.hipMemcpyPeerAsync(to, device_of(to_context), from, device_of(from_context),
                                  bytes, stream);
}

/* ---- descriptors ------------------------------------------------------------------------- */

/* How this process gives a descriptor: I5. */
enum { WAY_UNKNOWN, WAY_NUMBER, WAY_PLACE, WAY_NONE };
static _Atomic int way;

/* HIP takes the number 0, which a process without a standard input may have, for no handle. */
static CUresult import_zero(CUmemGenericAllocationHandle *ret_handle,
                            CUmemAllocationHandleType type)
{
    int copy = -1;
    if (tni_os_duplicate(0, &copy) != 0)
        return CUDA_ERROR_OPERATING_SYSTEM;
    CUresult result =
        hip.hipMemImportFromShareableHandle(ret_handle, (void *)(uintptr_t)copy, type);
    tni_os_close(copy);
    return result;
}

static CUresult import(CUmemGenericAllocationHandle *ret_handle, void *number,
                       CUmemAllocationHandleType type)
{
    int fd = (int)(uintptr_t)number;
    if (atomic_load(&way) != WAY_NUMBER)
        return hip.hipMemImportFromShareableHandle(ret_handle, &fd, type);
    return fd == 0 ? import_zero(ret_handle, type)
                   : hip.hipMemImportFromShareableHandle(ret_handle, number, type);
}

/* Whether bytes that are written through one mapping are read through the other. */
static int compare(struct tni_cuda *cuda, const struct tni_device_memory *made,
                   const struct tni_device_memory *imported, bool *ret_is_same)
{
    uint64_t written[2] = {tni_os_now_ns(), (uint64_t)tni_os_pid()}, read[2];
    CUstream stream = NULL;
    memset(read, 0, sizeof read);
    CUresult result = cuda->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
    if (result != 0)
        return tni_cuda_check(cuda, result, "cuStreamCreate");
    result = cuda->cuMemcpyHtoDAsync(made->address, written, sizeof written, stream);
    if (result == 0)
        result = cuda->cuMemcpyDtoHAsync(read, imported->address, sizeof read, stream);
    CUresult waited = cuda->cuStreamSynchronize(stream);
    cuda->cuStreamDestroy(stream);
    *ret_is_same = memcmp(written, read, sizeof read) == 0;
    return tni_cuda_check(cuda, result != 0 ? result : waited, "cuMemcpyDtoHAsync");
}

/* Import what this process has made. A failure that may pass decides nothing. */
static int try_way(struct tni_cuda *cuda, const struct tni_device_memory *made, int fd,
                   bool *ret_is_right)
{
    struct tni_device_memory imported = *made;
    CUmemGenericAllocationHandle handle = 0;
    CUresult result = cuda->cuMemImportFromShareableHandle(
        &handle, (void *)(uintptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    *ret_is_right = false;
    if (result != 0)
        return result == CUDA_ERROR_OUT_OF_MEMORY || tni_cuda_is_lost(result)
                   ? tni_cuda_check(cuda, result, "cuMemImportFromShareableHandle")
                   : 0;
    int status = tni_cuda_map_handle(cuda, &imported, handle);
    cuda->cuMemRelease(handle);
    if (status != 0)
        return status;
    status = compare(cuda, made, &imported, ret_is_right);
    tni_cuda_unmap_memory(cuda, &imported);
    return status;
}

static int find_way(struct tni_cuda *cuda, int32_t id)
{
    struct tni_device_memory made = {.device = {TN_DEVICE_ROCM, id}};
    bool is_right = false;
    int fd = -1, status = tni_cuda_make_smallest(cuda, &made, &fd);
    if (status != 0)
        return status;
    atomic_store(&way, cuda->version >= TNI_HIP_VERSION(7, 1) ? WAY_NUMBER : WAY_PLACE);
    status = try_way(cuda, &made, fd, &is_right);
    if (status != 0 || !is_right)
        atomic_store(&way, status != 0 ? WAY_UNKNOWN : WAY_NONE);
    tni_cuda_unmap_memory(cuda, &made);
    tni_os_close(fd);
    return status;
}

/* Before the first import of this process. pre: the turn is taken; the device is entered */
static int prepare_import(struct tni_cuda *cuda, int32_t id)
{
    int status = atomic_load(&way) == WAY_UNKNOWN ? find_way(cuda, id) : 0;
    if (status != 0 || atomic_load(&way) != WAY_NONE)
        return status;
    return tni_fail(TN_ERR_UNSUPPORTED,
                    "the driver, of ROCm %d.%d, does not import memory that this process has "
                    "exported itself",
                    cuda->version / TNI_HIP_VERSION(1, 0),
                    cuda->version % TNI_HIP_VERSION(1, 0) / TNI_HIP_VERSION(0, 1));
}

/* ---- functions --------------------------------------------------------------------------- */

typedef void any_fn(void);

static const struct {
    const char *name, *symbol;
    any_fn *adapter; /* NULL: the symbol itself */
} functions[] = {
#define SAME(name, symbol) {#name, #symbol, NULL},
    TNI_HIP_SAME(SAME)
#undef SAME
#define ADAPTED(name, symbol, adapter)                                                         \
    {                                                                                          \
#name, #symbol, (any_fn *)(adapter)                                                    \
    }
        ADAPTED(cuDeviceGetAttribute, hipDeviceGetAttribute, get_attribute),
    ADAPTED(cuDeviceGetUuid, hipDeviceGetUuid, get_uuid),
    ADAPTED(cuDevicePrimaryCtxRetain, hipSetDevice, retain),
    ADAPTED(cuDevicePrimaryCtxRelease, hipSetDevice, release),
    ADAPTED(cuCtxGetCurrent, hipGetDevice, get_context),
    ADAPTED(cuCtxPushCurrent, hipSetDevice, push),
    ADAPTED(cuCtxPopCurrent, hipSetDevice, pop),
    ADAPTED(cuPointerGetAttributes, hipPointerGetAttribute, get_attributes),
    ADAPTED(cuStreamGetCtx, hipStreamGetDevice, get_stream_context),
    ADAPTED(cuMemImportFromShareableHandle, hipMemImportFromShareableHandle, import),
    ADAPTED(cuMemcpyPeerAsync, hipMemcpyPeerAsync, copy_peer),
#undef ADAPTED
};

static const char *symbol_of(const char *name)
{
    for (size_t i = 0; i < TNI_COUNT(functions); i++)
        if (strcmp(functions[i].name, name) == 0)
            return functions[i].symbol;
    return NULL;
}

/* The functions that the adapters call. */
static void find_others(void *library)
{
    void *found;
#define FIND(symbol, parameters)                                                               \
    found = tni_os_library_symbol(library, #symbol);                                           \
    memcpy(&hip.symbol, &found, sizeof found);
    TNI_HIP_OTHER(FIND)
#undef FIND
}

static void *find(void *library, const char *name)
{
    if (hip.hipGetDevice == NULL)
        find_others(library);
    for (size_t i = 0; i < TNI_COUNT(functions); i++) {
        if (strcmp(functions[i].name, name) != 0)
            continue;
        void *found = tni_os_library_symbol(library, functions[i].symbol);
        if (found != NULL && functions[i].adapter != NULL)
            memcpy(&found, &functions[i].adapter, sizeof found);
        return found;
    }
    return NULL;
}

/* Every library of ROCm 6 has these. */
static const char *lacks(void)
{
    return hip.hipGetDevice == NULL         ? "hipGetDevice"
           : hip.hipPeekAtLastError == NULL ? "hipPeekAtLastError"
           : hip.hipGetLastError == NULL    ? "hipGetLastError"
                                            : NULL;
}

static void forget_error(void) { (void)hip.hipGetLastError(); }

/*
 * Streams of HIP can write words and wait for them only where HIP allocated the words itself,
 * and events for several processes made the processor wait until ROCm 7.2. So the processor
 * waits for the stream before a tensor is handed on: order.c does so without the timeline.
 * cuMemRetainAllocationHandle: some versions read through a null pointer for other memory.
 */
static const struct tni_cuda_differences differences = {
    .product = "ROCm",
    .major = TNI_HIP_VERSION(1, 0),
    .minor = TNI_HIP_VERSION(0, 1),
    .oldest = TNI_HIP_VERSION(6, 0),
    .variable = "TENON_HIP_LIBRARY",
    .libraries = {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so"},
    .visible = "HIP_VISIBLE_DEVICES",
    .why_private = "the driver does not say that processes can share it",
    .without = 1u << TNI_CUDA_timeline | 1u << TNI_CUDA_events | 1u << TNI_CUDA_retain,
    .find = find,
    .symbol = symbol_of,
    .lacks = lacks,
    .forget_error = forget_error,
    .prepare_import = prepare_import,
    .takes_turns = true,
    .forgets_imports = true,
};

struct tni_cuda tni_hip_driver = {.differences = &differences,
                                  .turns = {PTHREAD_MUTEX_INITIALIZER},
                                  .lock = {PTHREAD_MUTEX_INITIALIZER}};
