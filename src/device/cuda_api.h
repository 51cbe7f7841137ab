/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_api: the part of the CUDA driver API that tenon uses, so that tenon builds without
 * CUDA's headers. Names, values and layouts are those of NVIDIA's cuda.h, CUDA 13;
 * dev/check-cuda.py compares them with it. Private to the room device and to the tests' driver.
 */
#ifndef TNI_DEVICE_CUDA_API_H
#define TNI_DEVICE_CUDA_API_H

#include <stddef.h>
#include <stdint.h>

/* dev/check-cuda.py defines TNI_CUDA_REAL and includes cuda.h first. */
#ifndef TNI_CUDA_REAL

typedef int CUresult; /* 0, or a number of TNI_CUDA_ERRORS */
typedef int CUdevice; /* an ordinal, valid in this process only */
typedef unsigned long long CUdeviceptr;
typedef unsigned long long CUmemGenericAllocationHandle;
typedef uint64_t cuuint64_t;
typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUarray_st *CUarray;
typedef struct {
    char bytes[16];
} CUuuid;
typedef struct {
    char reserved[64];
} CUipcMemHandle, CUipcEventHandle;

/* Enumerations of cuda.h, as the type that the compilers of Linux give them. */
typedef unsigned CUdevice_attribute, CUpointer_attribute, CUstreamCaptureStatus,
    CUmemAllocationType, CUmemAllocationHandleType, CUmemAllocationGranularity_flags,
    CUmemLocationType, CUmemAccess_flags, CUmemorytype, CUdriverProcAddressQueryResult;

typedef struct {
    CUmemLocationType type;
    int id;
} CUmemLocation;
typedef struct {
    CUmemAllocationType type;
    CUmemAllocationHandleType requestedHandleTypes;
    CUmemLocation location;
    void *win32HandleMetaData;
    struct {
        unsigned char compressionType;
        unsigned char gpuDirectRDMACapable;
        unsigned short usage;
        unsigned char reserved[4];
    } allocFlags;
} CUmemAllocationProp;
typedef struct {
    CUmemLocation location;
    CUmemAccess_flags flags;
} CUmemAccessDesc;
typedef struct {
    size_t srcXInBytes, srcY;
    CUmemorytype srcMemoryType;
    const void *srcHost;
    CUdeviceptr srcDevice;
    CUarray srcArray;
    size_t srcPitch;
    size_t dstXInBytes, dstY;
    CUmemorytype dstMemoryType;
    void *dstHost;
    CUdeviceptr dstDevice;
    CUarray dstArray;
    size_t dstPitch;
    size_t WidthInBytes, Height;
} CUDA_MEMCPY2D;

#endif

/* V(name, value) for each constant. */
#define TNI_CUDA_VALUES(V)                                                                     \
    V(CU_DEVICE_ATTRIBUTE_INTEGRATED, 18)                                                      \
    V(CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, 20)                                                    \
    V(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, 33)                                                      \
    V(CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, 34)                                                   \
    V(CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 41)                                              \
    V(CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, 50)                                                   \
    V(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 102)                            \
    V(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 103)                    \
    V(CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 122)                                  \
    V(CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED, 125)                                            \
    V(CU_DEVICE_ATTRIBUTE_MPS_ENABLED, 133)                                                    \
    V(CU_COMPUTEMODE_EXCLUSIVE_PROCESS, 3)                                                     \
    V(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 2)                                                     \
    V(CU_POINTER_ATTRIBUTE_BUFFER_ID, 7)                                                       \
    V(CU_POINTER_ATTRIBUTE_IS_MANAGED, 8)                                                      \
    V(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, 9)                                                  \
    V(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, 10)                                     \
    V(CU_POINTER_ATTRIBUTE_MAPPED, 13)                                                         \
    V(CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, 14)                                           \
    V(CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, 17)                                                 \
    V(CU_MEMORYTYPE_HOST, 1)                                                                   \
    V(CU_MEMORYTYPE_DEVICE, 2)                                                                 \
    V(CU_MEM_ALLOCATION_TYPE_PINNED, 1)                                                        \
    V(CU_MEM_LOCATION_TYPE_DEVICE, 1)                                                          \
    V(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 1)                                             \
    V(CU_MEM_ACCESS_FLAGS_PROT_READ, 1)                                                        \
    V(CU_MEM_ACCESS_FLAGS_PROT_READWRITE, 3)                                                   \
    V(CU_MEM_ALLOC_GRANULARITY_MINIMUM, 0)                                                     \
    V(CU_MEMHOSTREGISTER_PORTABLE, 1)                                                          \
    V(CU_MEMHOSTREGISTER_DEVICEMAP, 2)                                                         \
    V(CU_MEMHOSTREGISTER_READ_ONLY, 8)                                                         \
    V(CU_STREAM_NON_BLOCKING, 1)                                                               \
    V(CU_STREAM_CAPTURE_STATUS_NONE, 0)                                                        \
    V(CU_EVENT_BLOCKING_SYNC, 1)                                                               \
    V(CU_EVENT_DISABLE_TIMING, 2)                                                              \
    V(CU_EVENT_INTERPROCESS, 4)                                                                \
    V(CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS, 1)                                                   \
    V(CU_STREAM_WAIT_VALUE_GEQ, 0)                                                             \
    V(CU_STREAM_WRITE_VALUE_DEFAULT, 0)                                                        \
    V(CU_GET_PROC_ADDRESS_LEGACY_STREAM, 1)

/* V(name, value) for each error that tenon knows, or that the tests' driver makes. */
#define TNI_CUDA_ERRORS(V)                                                                     \
    V(CUDA_ERROR_INVALID_VALUE, 1)                                                             \
    V(CUDA_ERROR_OUT_OF_MEMORY, 2)                                                             \
    V(CUDA_ERROR_NOT_INITIALIZED, 3)                                                           \
    V(CUDA_ERROR_DEINITIALIZED, 4)                                                             \
    V(CUDA_ERROR_STUB_LIBRARY, 34)                                                             \
    V(CUDA_ERROR_DEVICE_UNAVAILABLE, 46)                                                       \
    V(CUDA_ERROR_NO_DEVICE, 100)                                                               \
    V(CUDA_ERROR_INVALID_DEVICE, 101)                                                          \
    V(CUDA_ERROR_INVALID_CONTEXT, 201)                                                         \
    V(CUDA_ERROR_MAP_FAILED, 205)                                                              \
    V(CUDA_ERROR_ALREADY_MAPPED, 208)                                                          \
    V(CUDA_ERROR_ECC_UNCORRECTABLE, 214)                                                       \
    V(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, 217)                                                 \
    V(CUDA_ERROR_OPERATING_SYSTEM, 304)                                                        \
    V(CUDA_ERROR_INVALID_HANDLE, 400)                                                          \
    V(CUDA_ERROR_NOT_FOUND, 500)                                                               \
    V(CUDA_ERROR_NOT_READY, 600)                                                               \
    V(CUDA_ERROR_ILLEGAL_ADDRESS, 700)                                                         \
    V(CUDA_ERROR_LAUNCH_TIMEOUT, 702)                                                          \
    V(CUDA_ERROR_CONTEXT_IS_DESTROYED, 709)                                                    \
    V(CUDA_ERROR_ASSERT, 710)                                                                  \
    V(CUDA_ERROR_TOO_MANY_PEERS, 711)                                                          \
    V(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, 712)                                          \
    V(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, 713)                                              \
    V(CUDA_ERROR_HARDWARE_STACK_ERROR, 714)                                                    \
    V(CUDA_ERROR_ILLEGAL_INSTRUCTION, 715)                                                     \
    V(CUDA_ERROR_MISALIGNED_ADDRESS, 716)                                                      \
    V(CUDA_ERROR_INVALID_ADDRESS_SPACE, 717)                                                   \
    V(CUDA_ERROR_INVALID_PC, 718)                                                              \
    V(CUDA_ERROR_LAUNCH_FAILED, 719)                                                           \
    V(CUDA_ERROR_NOT_PERMITTED, 800)                                                           \
    V(CUDA_ERROR_NOT_SUPPORTED, 801)                                                           \
    V(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, 803)                                                  \
    V(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, 900)                                              \
    V(CUDA_ERROR_UNKNOWN, 999)

#ifndef TNI_CUDA_REAL
#define TNI_CUDA_NAME_VALUE(name, value) name = (value),
enum { TNI_CUDA_VALUES(TNI_CUDA_NAME_VALUE) CUDA_SUCCESS = 0 };
enum { TNI_CUDA_ERRORS(TNI_CUDA_NAME_VALUE) };
#undef TNI_CUDA_NAME_VALUE
#endif

/*
 * F(group, name, symbol, version, parameters) for each function. `symbol` is the name that
 * dlsym() finds. cuGetProcAddress() is asked for `name` in the version `version`, the first
 * that has these parameters: later versions of some names have others. Never look up `name` by
 * dlsym() where `symbol` differs: the driver also has that older function.
 */
#define TNI_CUDA_CORE(F)                                                                       \
    F(core, cuInit, cuInit, 2000, (unsigned))                                                  \
    F(core, cuDriverGetVersion, cuDriverGetVersion, 2020, (int *))                             \
    F(core, cuGetErrorName, cuGetErrorName, 6000, (CUresult, const char **))                   \
    F(core, cuGetErrorString, cuGetErrorString, 6000, (CUresult, const char **))               \
    F(core, cuDeviceGetCount, cuDeviceGetCount, 2000, (int *))                                 \
    F(core, cuDeviceGet, cuDeviceGet, 2000, (CUdevice *, int))                                 \
    F(core, cuDeviceGetAttribute, cuDeviceGetAttribute, 2000,                                  \
      (int *, CUdevice_attribute, CUdevice))                                                   \
    F(core, cuDeviceGetName, cuDeviceGetName, 2000, (char *, int, CUdevice))                   \
    F(core, cuDeviceTotalMem, cuDeviceTotalMem_v2, 3020, (size_t *, CUdevice))                 \
    F(core, cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, 7000, (CUcontext *, CUdevice)) \
    F(core, cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, 11000, (CUdevice))        \
    F(core, cuDevicePrimaryCtxGetState, cuDevicePrimaryCtxGetState, 7000,                      \
      (CUdevice, unsigned *, int *))                                                           \
    F(core, cuCtxGetCurrent, cuCtxGetCurrent, 4000, (CUcontext *))                             \
    F(core, cuCtxPushCurrent, cuCtxPushCurrent_v2, 4000, (CUcontext))                          \
    F(core, cuCtxPopCurrent, cuCtxPopCurrent_v2, 4000, (CUcontext *))                          \
    F(core, cuCtxGetDevice, cuCtxGetDevice, 2000, (CUdevice *))                                \
    F(core, cuCtxSynchronize, cuCtxSynchronize, 2000, (void))                                  \
    F(core, cuMemGetInfo, cuMemGetInfo_v2, 3020, (size_t *, size_t *))
/* The UUID of a MIG instance; without it, that of the whole device. One is needed. */
#define TNI_CUDA_UUID(F)                                                                       \
    F(uuid, cuDeviceGetUuid, cuDeviceGetUuid_v2, 11040, (CUuuid *, CUdevice))
#define TNI_CUDA_OLD_UUID(F)                                                                   \
    F(old_uuid, cuDeviceGetUuid, cuDeviceGetUuid, 9020, (CUuuid *, CUdevice))
#define TNI_CUDA_POINTERS(F)                                                                   \
    F(pointers, cuPointerGetAttributes, cuPointerGetAttributes, 7000,                          \
      (unsigned, CUpointer_attribute *, void **, CUdeviceptr))                                 \
    F(pointers, cuMemGetAddressRange, cuMemGetAddressRange_v2, 3020,                           \
      (CUdeviceptr *, size_t *, CUdeviceptr))
#define TNI_CUDA_STREAMS(F)                                                                    \
    F(streams, cuStreamCreate, cuStreamCreate, 2000, (CUstream *, unsigned))                   \
    F(streams, cuStreamDestroy, cuStreamDestroy_v2, 4000, (CUstream))                          \
    F(streams, cuStreamSynchronize, cuStreamSynchronize, 2000, (CUstream))                     \
    F(streams, cuStreamQuery, cuStreamQuery, 2000, (CUstream))                                 \
    F(streams, cuMemcpyHtoDAsync, cuMemcpyHtoDAsync_v2, 3020,                                  \
      (CUdeviceptr, const void *, size_t, CUstream))                                           \
    F(streams, cuMemcpyDtoHAsync, cuMemcpyDtoHAsync_v2, 3020,                                  \
      (void *, CUdeviceptr, size_t, CUstream))                                                 \
    F(streams, cuMemcpyDtoDAsync, cuMemcpyDtoDAsync_v2, 3020,                                  \
      (CUdeviceptr, CUdeviceptr, size_t, CUstream))                                            \
    F(streams, cuMemsetD8Async, cuMemsetD8Async, 3020,                                         \
      (CUdeviceptr, unsigned char, size_t, CUstream))
/* Copies of rows. Without it each row is a copy. */
#define TNI_CUDA_PITCHED(F)                                                                    \
    F(pitched, cuMemcpy2DAsync, cuMemcpy2DAsync_v2, 3020, (const CUDA_MEMCPY2D *, CUstream))
#define TNI_CUDA_CAPTURE(F)                                                                    \
    F(capture, cuStreamIsCapturing, cuStreamIsCapturing, 10000,                                \
      (CUstream, CUstreamCaptureStatus *))
#define TNI_CUDA_STREAM_CONTEXT(F)                                                             \
    F(stream_context, cuStreamGetCtx, cuStreamGetCtx, 9020, (CUstream, CUcontext *))
/* Memory that the driver counts for every process that has it: tenon's own. */
#define TNI_CUDA_VMM(F)                                                                        \
    F(vmm, cuMemGetAllocationGranularity, cuMemGetAllocationGranularity, 10020,                \
      (size_t *, const CUmemAllocationProp *, CUmemAllocationGranularity_flags))               \
    F(vmm, cuMemCreate, cuMemCreate, 10020,                                                    \
      (CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *,                    \
       unsigned long long))                                                                    \
    F(vmm, cuMemRelease, cuMemRelease, 10020, (CUmemGenericAllocationHandle))                  \
    F(vmm, cuMemAddressReserve, cuMemAddressReserve, 10020,                                    \
      (CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long))                        \
    F(vmm, cuMemAddressFree, cuMemAddressFree, 10020, (CUdeviceptr, size_t))                   \
    F(vmm, cuMemMap, cuMemMap, 10020,                                                          \
      (CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long))         \
    F(vmm, cuMemUnmap, cuMemUnmap, 10020, (CUdeviceptr, size_t))                               \
    F(vmm, cuMemSetAccess, cuMemSetAccess, 10020,                                              \
      (CUdeviceptr, size_t, const CUmemAccessDesc *, size_t))                                  \
    F(vmm, cuMemExportToShareableHandle, cuMemExportToShareableHandle, 10020,                  \
      (void *, CUmemGenericAllocationHandle, CUmemAllocationHandleType, unsigned long long))   \
    F(vmm, cuMemImportFromShareableHandle, cuMemImportFromShareableHandle, 10020,              \
      (CUmemGenericAllocationHandle *, void *, CUmemAllocationHandleType))                     \
    F(vmm, cuMemGetAllocationPropertiesFromHandle, cuMemGetAllocationPropertiesFromHandle,     \
      10020, (CUmemAllocationProp *, CUmemGenericAllocationHandle))
#define TNI_CUDA_RETAIN(F)                                                                     \
    F(retain, cuMemRetainAllocationHandle, cuMemRetainAllocationHandle, 11000,                 \
      (CUmemGenericAllocationHandle *, void *))
/* Memory of the host that the device reads and writes by itself. */
#define TNI_CUDA_REGISTER(F)                                                                   \
    F(registering, cuMemHostRegister, cuMemHostRegister_v2, 6050, (void *, size_t, unsigned))  \
    F(registering, cuMemHostUnregister, cuMemHostUnregister, 4000, (void *))                   \
    F(registering, cuMemHostGetDevicePointer, cuMemHostGetDevicePointer_v2, 3020,              \
      (CUdeviceptr *, void *, unsigned))
#define TNI_CUDA_TIMELINE(F)                                                                   \
    F(timeline, cuStreamWriteValue64, cuStreamWriteValue64_v2, 11070,                          \
      (CUstream, CUdeviceptr, cuuint64_t, unsigned))                                           \
    F(timeline, cuStreamWaitValue64, cuStreamWaitValue64_v2, 11070,                            \
      (CUstream, CUdeviceptr, cuuint64_t, unsigned))
#define TNI_CUDA_EVENTS(F)                                                                     \
    F(events, cuEventCreate, cuEventCreate, 2000, (CUevent *, unsigned))                       \
    F(events, cuEventDestroy, cuEventDestroy_v2, 4000, (CUevent))                              \
    F(events, cuEventRecord, cuEventRecord, 2000, (CUevent, CUstream))                         \
    F(events, cuEventQuery, cuEventQuery, 2000, (CUevent))                                     \
    F(events, cuEventSynchronize, cuEventSynchronize, 2000, (CUevent))                         \
    F(events, cuStreamWaitEvent, cuStreamWaitEvent, 3020, (CUstream, CUevent, unsigned))
/* Memory of this process alone. */
#define TNI_CUDA_MEMORY(F)                                                                     \
    F(memory, cuMemAlloc, cuMemAlloc_v2, 3020, (CUdeviceptr *, size_t))                        \
    F(memory, cuMemFree, cuMemFree_v2, 3020, (CUdeviceptr))
/* Memory and events of other allocators, which end with the process that made them. */
#define TNI_CUDA_IPC(F)                                                                        \
    F(ipc, cuIpcGetMemHandle, cuIpcGetMemHandle, 4010, (CUipcMemHandle *, CUdeviceptr))        \
    F(ipc, cuIpcOpenMemHandle, cuIpcOpenMemHandle_v2, 11000,                                   \
      (CUdeviceptr *, CUipcMemHandle, unsigned))                                               \
    F(ipc, cuIpcCloseMemHandle, cuIpcCloseMemHandle, 4010, (CUdeviceptr))                      \
    F(ipc, cuIpcGetEventHandle, cuIpcGetEventHandle, 4010, (CUipcEventHandle *, CUevent))      \
    F(ipc, cuIpcOpenEventHandle, cuIpcOpenEventHandle, 4010, (CUevent *, CUipcEventHandle))
#define TNI_CUDA_PEERS(F)                                                                      \
    F(peers, cuDeviceCanAccessPeer, cuDeviceCanAccessPeer, 4000, (int *, CUdevice, CUdevice))  \
    F(peers, cuMemcpyPeerAsync, cuMemcpyPeerAsync, 4000,                                       \
      (CUdeviceptr, CUcontext, CUdeviceptr, CUcontext, size_t, CUstream))

#define TNI_CUDA_FUNCTIONS(F)                                                                  \
    TNI_CUDA_CORE(F)                                                                           \
    TNI_CUDA_UUID(F)                                                                           \
    TNI_CUDA_POINTERS(F)                                                                       \
    TNI_CUDA_STREAMS(F)                                                                        \
    TNI_CUDA_PITCHED(F)                                                                        \
    TNI_CUDA_CAPTURE(F)                                                                        \
    TNI_CUDA_STREAM_CONTEXT(F)                                                                 \
    TNI_CUDA_VMM(F)                                                                            \
    TNI_CUDA_RETAIN(F)                                                                         \
    TNI_CUDA_REGISTER(F)                                                                       \
    TNI_CUDA_TIMELINE(F)                                                                       \
    TNI_CUDA_EVENTS(F)                                                                         \
    TNI_CUDA_MEMORY(F)                                                                         \
    TNI_CUDA_IPC(F)                                                                            \
    TNI_CUDA_PEERS(F)

typedef CUresult tni_cuGetProcAddress_v2(const char *name, void **ret_function, int version,
                                         cuuint64_t flags,
                                         CUdriverProcAddressQueryResult *ret_result);

#endif
