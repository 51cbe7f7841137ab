/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fake in HIP's dress: libfakehip has the same rules, and exports HIP's functions in place
 * of CUDA's. H1 to H6 of README.md are what HIP does otherwise. The control functions of fake.h
 * know functions by CUDA's names here as well.
 */
#include <sched.h>
#include <stdio.h>
#include <unistd.h>

#include "device/hip_api.h"
#include "fakecuda/exports.h"
#include "fakecuda/state.h"

static _Thread_local int current_device;  /* H3 */
static _Thread_local CUresult last_error; /* H4 */
static _Atomic unsigned memory_calls;     /* H1 */

static CUresult keep(CUresult result)
{
    if (result)
        last_error = result;
    return result;
}

/* H3: HIP begins with the first call that needs it, and so does the context of a device. */
static CUresult enter(void)
{
    if (local.pid && local.pid != getpid())
        return CUDA_SUCCESS; /* a forked child: the function itself says so */
    CUresult result = local.pid ? CUDA_SUCCESS : cuInit(0);
    return result ? result : context_use(current_device);
}

static void leave(void) { context_unuse(); }

#define NAMED(symbol, parameters, call)                                                        \
    FAKE_API CUresult symbol parameters;                                                       \
    CUresult symbol parameters { return keep(call); }

#define IN_DEVICE(symbol, parameters, call)                                                    \
    FAKE_API CUresult symbol parameters;                                                       \
    CUresult symbol parameters                                                                 \
    {                                                                                          \
        CUresult result = enter();                                                             \
        if (result)                                                                            \
            return keep(result);                                                               \
        result = call;                                                                         \
        leave();                                                                               \
        return keep(result);                                                                   \
    }

/* ---- devices, errors --------------------------------------------------------------------- */

NAMED(hipInit, (unsigned flags), cuInit(flags))
NAMED(hipRuntimeGetVersion, (int *ret_version), cuDriverGetVersion(ret_version))
NAMED(hipGetDeviceCount, (int *ret_count), cuDeviceGetCount(ret_count))
NAMED(hipDeviceGet, (CUdevice * ret_device, int ordinal), cuDeviceGet(ret_device, ordinal))
NAMED(hipDeviceGetName, (char *name, int size, CUdevice device),
      cuDeviceGetName(name, size, device))
NAMED(hipDeviceTotalMem, (size_t * ret_bytes, CUdevice device),
      cuDeviceTotalMem_v2(ret_bytes, device))
NAMED(hipDevicePrimaryCtxGetState, (CUdevice device, unsigned *ret_flags, int *ret_active),
      cuDevicePrimaryCtxGetState(device, ret_flags, ret_active))
NAMED(hipDeviceCanAccessPeer, (int *ret_can, CUdevice device, CUdevice peer),
      cuDeviceCanAccessPeer(ret_can, device, peer))
IN_DEVICE(hipMemGetInfo, (size_t * ret_free, size_t *ret_total),
          cuMemGetInfo_v2(ret_free, ret_total))
IN_DEVICE(hipDeviceSynchronize, (void), cuCtxSynchronize())

/* These two and the next two leave the last error as it is. */
FAKE_API CUresult hipDrvGetErrorName(CUresult error, const char **ret_name);
CUresult hipDrvGetErrorName(CUresult error, const char **ret_name)
{
    return cuGetErrorName(error, ret_name);
}

FAKE_API CUresult hipDrvGetErrorString(CUresult error, const char **ret_text);
CUresult hipDrvGetErrorString(CUresult error, const char **ret_text)
{
    return cuGetErrorString(error, ret_text);
}

FAKE_API CUresult hipPeekAtLastError(void);
CUresult hipPeekAtLastError(void) { return last_error; }

FAKE_API CUresult hipGetLastError(void);
CUresult hipGetLastError(void)
{
    CUresult error = last_error;
    last_error = CUDA_SUCCESS;
    return error;
}

FAKE_API CUresult hipGetDevice(int *ret_device);
CUresult hipGetDevice(int *ret_device)
{
    *ret_device = current_device;
    return CUDA_SUCCESS;
}

static CUresult set_device(int device)
{
    CUresult result = local.pid ? CUDA_SUCCESS : cuInit(0);
    if (result || device_of(device) < 0)
        return result ? result : CUDA_ERROR_INVALID_DEVICE;
    current_device = device;
    return CUDA_SUCCESS;
}
NAMED(hipSetDevice, (int device), set_device(device))

static CUresult get_attribute(int *ret_value, int attribute, CUdevice device)
{
    static const struct {
        int number;
        CUdevice_attribute attribute;
    } known[] = {
        {HIP_ATTRIBUTE_COMPUTE_MODE, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE},
        {HIP_ATTRIBUTE_INTEGRATED, CU_DEVICE_ATTRIBUTE_INTEGRATED},
        {HIP_ATTRIBUTE_PCI_BUS_ID, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID},
        {HIP_ATTRIBUTE_PCI_DEVICE_ID, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID},
        {HIP_ATTRIBUTE_PCI_DOMAIN_ID, CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID},
        {HIP_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
         CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED},
    };
    for (unsigned i = 0; i < sizeof known / sizeof known[0]; i++)
        if (known[i].number == attribute)
            return cuDeviceGetAttribute(ret_value, known[i].attribute, device);
    return CUDA_ERROR_INVALID_VALUE;
}
NAMED(hipDeviceGetAttribute, (int *ret_value, int attribute, CUdevice device),
      get_attribute(ret_value, attribute, device))

/* Sixteen digits, and not sixteen bytes; "XX" for a card that has none. */
static CUresult get_uuid(CUuuid *ret_uuid, CUdevice device)
{
    CUuuid uuid;
    char text[sizeof uuid.bytes + 1] = "XX";
    bool has_none = universe && universe->options.without & FAKE_NO_UUID_V2;
    CUresult result =
        has_none ? cuDeviceGetUuid(&uuid, device) : cuDeviceGetUuid_v2(&uuid, device);
    if (result || !ret_uuid)
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    if (!has_none)
        snprintf(text, sizeof text, "%08x%08x", 0xfa4eu, (unsigned char)uuid.bytes[15] + 1u);
    memcpy(ret_uuid->bytes, text, sizeof ret_uuid->bytes);
    return CUDA_SUCCESS;
}
NAMED(hipDeviceGetUuid, (CUuuid * ret_uuid, CUdevice device), get_uuid(ret_uuid, device))

/* ---- streams ----------------------------------------------------------------------------- */

IN_DEVICE(hipStreamCreateWithFlags, (CUstream * ret_stream, unsigned flags),
          cuStreamCreate(ret_stream, flags))
IN_DEVICE(hipStreamDestroy, (CUstream stream), cuStreamDestroy_v2(stream))
IN_DEVICE(hipStreamSynchronize, (CUstream stream), cuStreamSynchronize(stream))
IN_DEVICE(hipStreamQuery, (CUstream stream), cuStreamQuery(stream))
IN_DEVICE(hipStreamIsCapturing, (CUstream stream, CUstreamCaptureStatus *ret_status),
          cuStreamIsCapturing(stream, ret_status))
IN_DEVICE(hipMemcpyHtoDAsync, (CUdeviceptr to, const void *from, size_t bytes, CUstream stream),
          cuMemcpyHtoDAsync_v2(to, from, bytes, stream))
IN_DEVICE(hipMemcpyDtoHAsync, (void *to, CUdeviceptr from, size_t bytes, CUstream stream),
          cuMemcpyDtoHAsync_v2(to, from, bytes, stream))
IN_DEVICE(hipMemcpyDtoDAsync, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream),
          cuMemcpyDtoDAsync_v2(to, from, bytes, stream))
IN_DEVICE(hipMemsetD8Async,
          (CUdeviceptr at, unsigned char value, size_t bytes, CUstream stream),
          cuMemsetD8Async(at, value, bytes, stream))
IN_DEVICE(hipMemcpyParam2DAsync, (const CUDA_MEMCPY2D *copy, CUstream stream),
          cuMemcpy2DAsync_v2(copy, stream))
static CUcontext context_of(int device)
{
    if (context_use(device))
        return NULL;
    context_unuse();
    return context_primary(device);
}
IN_DEVICE(hipMemcpyPeerAsync,
          (CUdeviceptr to, int to_device, CUdeviceptr from, int from_device, size_t bytes,
           CUstream stream),
          cuMemcpyPeerAsync(to, context_of(to_device), from, context_of(from_device), bytes,
                            stream))

static CUresult get_stream_device(CUstream stream, CUdevice *ret_device)
{
    CUcontext context = NULL;
    CUresult result = cuStreamGetCtx(stream, &context);
    if (result == CUDA_SUCCESS)
        *ret_device = context->ordinal;
    return result;
}
IN_DEVICE(hipStreamGetDevice, (CUstream stream, CUdevice *ret_device),
          get_stream_device(stream, ret_device))

/* ---- memory of one process --------------------------------------------------------------- */

IN_DEVICE(hipMalloc, (CUdeviceptr * ret_at, size_t bytes), cuMemAlloc_v2(ret_at, bytes))
IN_DEVICE(hipFree, (CUdeviceptr at), cuMemFree_v2(at))
IN_DEVICE(hipHostRegister, (void *start, size_t bytes, unsigned flags),
          cuMemHostRegister_v2(start, bytes, flags))
IN_DEVICE(hipHostUnregister, (void *start), cuMemHostUnregister(start))
IN_DEVICE(hipHostGetDevicePointer, (CUdeviceptr * ret_at, void *start, unsigned flags),
          cuMemHostGetDevicePointer_v2(ret_at, start, flags))
IN_DEVICE(hipMemGetAddressRange, (CUdeviceptr * ret_base, size_t *ret_bytes, CUdeviceptr at),
          cuMemGetAddressRange_v2(ret_base, ret_bytes, at))

static bool is_version(int major, int minor)
{
    return (int)universe->options.driver_version >= TNI_HIP_VERSION(major, minor);
}

/* H5: what a version does not know is an error, and so is memory that HIP does not know. */
static CUresult get_pointer_attribute(void *data, CUpointer_attribute attribute, CUdeviceptr at)
{
    CUpointer_attribute type = CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
    unsigned found = 0;
    void *answer = &found;
    if (attribute == CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES ||
        attribute == CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE ||
        (attribute == CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE && !is_version(7, 12)))
        return CUDA_ERROR_NOT_SUPPORTED;
    CUresult result = cuPointerGetAttributes(1, &type, &answer, at);
    if (result == CUDA_SUCCESS && found == 0)
        result = CUDA_ERROR_INVALID_VALUE;
    return result ? result : cuPointerGetAttributes(1, &attribute, &data, at);
}
IN_DEVICE(hipPointerGetAttribute, (void *data, CUpointer_attribute attribute, CUdeviceptr at),
          get_pointer_attribute(data, attribute, at))

/* ---- memory of several processes --------------------------------------------------------- */

/* H6: a handle of memory that was mapped seems to be one. */
static CUresult get_handle(CUipcMemHandle *ret_handle, CUdeviceptr at)
{
    universe_lock();
    int found = mapping_find(at);
    bool is_mapped = found >= 0 && universe->mappings[found].kind == MAPPING_VMM;
    if (is_mapped)
        violation("H6", "a handle is taken of memory that was mapped");
    universe_unlock();
    if (!is_mapped)
        return cuIpcGetMemHandle(ret_handle, at);
    memset(ret_handle, 0, sizeof *ret_handle);
    return CUDA_SUCCESS;
}
IN_DEVICE(hipIpcGetMemHandle, (CUipcMemHandle * ret_handle, CUdeviceptr at),
          get_handle(ret_handle, at))

/* H5 */
static CUresult open_handle(CUdeviceptr *ret_at, CUipcMemHandle handle, unsigned flags)
{
    CUresult result = cuIpcOpenMemHandle_v2(ret_at, handle, flags);
    return result == CUDA_ERROR_INVALID_VALUE ? HIP_ERROR_INVALID_DEVICE_POINTER : result;
}
IN_DEVICE(hipIpcOpenMemHandle, (CUdeviceptr * ret_at, CUipcMemHandle handle, unsigned flags),
          open_handle(ret_at, handle, flags))
IN_DEVICE(hipIpcCloseMemHandle, (CUdeviceptr at), cuIpcCloseMemHandle(at))

/* H1: these calls race in the driver. */
static void begin_memory_call(void)
{
    enum { YIELDS = 8 };
    if (atomic_fetch_add(&memory_calls, 1) != 0) {
        universe_lock();
        violation("H1", "two threads are in calls for mapped memory");
        universe_unlock();
    }
    for (int i = 0; i < YIELDS; i++)
        sched_yield();
}

#define ONE_BY_ONE(symbol, parameters, call)                                                   \
    FAKE_API CUresult symbol parameters;                                                       \
    CUresult symbol parameters                                                                 \
    {                                                                                          \
        CUresult result = enter();                                                             \
        if (result)                                                                            \
            return keep(result);                                                               \
        begin_memory_call();                                                                   \
        result = call;                                                                         \
        atomic_fetch_sub(&memory_calls, 1);                                                    \
        leave();                                                                               \
        return keep(result);                                                                   \
    }

/* H2: the descriptor is a number since version 7.1, and was the place of one before. */
static CUresult import(CUmemGenericAllocationHandle *ret_handle, void *descriptor,
                       CUmemAllocationHandleType type)
{
    int fd = (int)(intptr_t)descriptor;
    if (!descriptor)
        return CUDA_ERROR_INVALID_VALUE;
    if (!is_version(7, 1) && !universe->options.takes_numbers)
        memcpy(&fd, descriptor, sizeof fd);
    return cuMemImportFromShareableHandle(ret_handle, (void *)(intptr_t)fd, type);
}

/* H2: of an imported handle it says nothing. */
static CUresult get_properties(CUmemAllocationProp *ret_properties,
                               CUmemGenericAllocationHandle handle)
{
    if (!ret_properties || !handle)
        return CUDA_ERROR_INVALID_VALUE;
    *ret_properties = (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED};
    return CUDA_SUCCESS;
}

IN_DEVICE(hipMemGetAllocationGranularity,
          (size_t * ret_bytes, const CUmemAllocationProp *properties, unsigned option),
          cuMemGetAllocationGranularity(ret_bytes, properties, option))
IN_DEVICE(hipMemGetAllocationPropertiesFromHandle,
          (CUmemAllocationProp * ret_properties, CUmemGenericAllocationHandle handle),
          get_properties(ret_properties, handle))
ONE_BY_ONE(hipMemCreate,
           (CUmemGenericAllocationHandle * ret_handle, size_t bytes,
            const CUmemAllocationProp *properties, unsigned long long flags),
           cuMemCreate(ret_handle, bytes, properties, flags))
ONE_BY_ONE(hipMemRelease, (CUmemGenericAllocationHandle handle), cuMemRelease(handle))
ONE_BY_ONE(hipMemAddressReserve,
           (CUdeviceptr * ret_at, size_t bytes, size_t alignment, CUdeviceptr hint,
            unsigned long long flags),
           cuMemAddressReserve(ret_at, bytes, alignment, hint, flags))
ONE_BY_ONE(hipMemAddressFree, (CUdeviceptr at, size_t bytes), cuMemAddressFree(at, bytes))
ONE_BY_ONE(hipMemMap,
           (CUdeviceptr at, size_t bytes, size_t off, CUmemGenericAllocationHandle handle,
            unsigned long long flags),
           cuMemMap(at, bytes, off, handle, flags))
ONE_BY_ONE(hipMemUnmap, (CUdeviceptr at, size_t bytes), cuMemUnmap(at, bytes))
ONE_BY_ONE(hipMemSetAccess,
           (CUdeviceptr at, size_t bytes, const CUmemAccessDesc *accesses, size_t count),
           cuMemSetAccess(at, bytes, accesses, count))
ONE_BY_ONE(hipMemExportToShareableHandle,
           (void *ret_fd, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,
            unsigned long long flags),
           cuMemExportToShareableHandle(ret_fd, handle, type, flags))
ONE_BY_ONE(hipMemImportFromShareableHandle,
           (CUmemGenericAllocationHandle * ret_handle, void *descriptor,
            CUmemAllocationHandleType type),
           import(ret_handle, descriptor, type))
