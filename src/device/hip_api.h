/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hip_api: the part of HIP that tenon uses. It is that of CUDA's driver under other names, with
 * the same structures, constants and numbers of errors; hip.c adapts what differs. Names and
 * values are those of AMD's hip_runtime_api.h, ROCm 6 and 7; dev/check-hip.py compares them
 * with it. Private to the room device and to the tests' driver.
 */
#ifndef TNI_DEVICE_HIP_API_H
#define TNI_DEVICE_HIP_API_H

#include "device/cuda_api.h"

/* V(name, value) for each constant that has another number than CUDA's. */
#define TNI_HIP_VALUES(V)                                                                      \
    V(HIP_ATTRIBUTE_COMPUTE_MODE, 6)                                                           \
    V(HIP_ATTRIBUTE_INTEGRATED, 16)                                                            \
    V(HIP_ATTRIBUTE_PCI_BUS_ID, 67)                                                            \
    V(HIP_ATTRIBUTE_PCI_DEVICE_ID, 68)                                                         \
    V(HIP_ATTRIBUTE_PCI_DOMAIN_ID, 69)                                                         \
    V(HIP_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 89)                                   \
    V(HIP_ERROR_INVALID_DEVICE_POINTER, 17)                                                    \
    V(HIP_ERROR_RUNTIME_MEMORY, 1052)

#define TNI_HIP_NAME_VALUE(name, value) name = (value),
enum { TNI_HIP_VALUES(TNI_HIP_NAME_VALUE) HIP_SUCCESS = 0 };
#undef TNI_HIP_NAME_VALUE

/* A version is major * 10000000 + minor * 100000 + a number of the build. */
#define TNI_HIP_VERSION(major, minor) ((major)*10000000 + (minor)*100000)

/* S(name, symbol): the library's `symbol` has the parameters of CUDA's `name`. */
#define TNI_HIP_SAME(S)                                                                        \
    S(cuInit, hipInit)                                                                         \
    S(cuDriverGetVersion, hipRuntimeGetVersion)                                                \
    S(cuGetErrorName, hipDrvGetErrorName)                                                      \
    S(cuGetErrorString, hipDrvGetErrorString)                                                  \
    S(cuDeviceGetCount, hipGetDeviceCount)                                                     \
    S(cuDeviceGet, hipDeviceGet)                                                               \
    S(cuDeviceGetName, hipDeviceGetName)                                                       \
    S(cuDeviceTotalMem, hipDeviceTotalMem)                                                     \
    S(cuDevicePrimaryCtxGetState, hipDevicePrimaryCtxGetState)                                 \
    S(cuCtxGetDevice, hipGetDevice)                                                            \
    S(cuCtxSynchronize, hipDeviceSynchronize)                                                  \
    S(cuMemGetInfo, hipMemGetInfo)                                                             \
    S(cuMemGetAddressRange, hipMemGetAddressRange)                                             \
    S(cuStreamCreate, hipStreamCreateWithFlags)                                                \
    S(cuStreamDestroy, hipStreamDestroy)                                                       \
    S(cuStreamSynchronize, hipStreamSynchronize)                                               \
    S(cuStreamQuery, hipStreamQuery)                                                           \
    S(cuMemcpyHtoDAsync, hipMemcpyHtoDAsync)                                                   \
    S(cuMemcpyDtoHAsync, hipMemcpyDtoHAsync)                                                   \
    S(cuMemcpyDtoDAsync, hipMemcpyDtoDAsync)                                                   \
    S(cuMemsetD8Async, hipMemsetD8Async)                                                       \
    S(cuMemcpy2DAsync, hipMemcpyParam2DAsync)                                                  \
    S(cuStreamIsCapturing, hipStreamIsCapturing)                                               \
    S(cuMemGetAllocationGranularity, hipMemGetAllocationGranularity)                           \
    S(cuMemCreate, hipMemCreate)                                                               \
    S(cuMemRelease, hipMemRelease)                                                             \
    S(cuMemAddressReserve, hipMemAddressReserve)                                               \
    S(cuMemAddressFree, hipMemAddressFree)                                                     \
    S(cuMemMap, hipMemMap)                                                                     \
    S(cuMemUnmap, hipMemUnmap)                                                                 \
    S(cuMemSetAccess, hipMemSetAccess)                                                         \
    S(cuMemExportToShareableHandle, hipMemExportToShareableHandle)                             \
    S(cuMemGetAllocationPropertiesFromHandle, hipMemGetAllocationPropertiesFromHandle)         \
    S(cuMemHostRegister, hipHostRegister)                                                      \
    S(cuMemHostUnregister, hipHostUnregister)                                                  \
    S(cuMemHostGetDevicePointer, hipHostGetDevicePointer)                                      \
    S(cuMemAlloc, hipMalloc)                                                                   \
    S(cuMemFree, hipFree)                                                                      \
    S(cuIpcGetMemHandle, hipIpcGetMemHandle)                                                   \
    S(cuIpcOpenMemHandle, hipIpcOpenMemHandle)                                                 \
    S(cuIpcCloseMemHandle, hipIpcCloseMemHandle)                                               \
    S(cuDeviceCanAccessPeer, hipDeviceCanAccessPeer)

/* O(symbol, parameters): functions with other parameters, or another meaning, than CUDA's. */
#define TNI_HIP_OTHER(O)                                                                       \
    O(hipGetDevice, (int *))                                                                   \
    O(hipSetDevice, (int))                                                                     \
    O(hipPeekAtLastError, (void))                                                              \
    O(hipGetLastError, (void))                                                                 \
    O(hipDeviceGetAttribute, (int *, int, CUdevice))                                           \
    O(hipDeviceGetUuid, (CUuuid *, CUdevice))                                                  \
    O(hipPointerGetAttribute, (void *, CUpointer_attribute, CUdeviceptr))                      \
    O(hipStreamGetDevice, (CUstream, CUdevice *))                                              \
    O(hipMemImportFromShareableHandle,                                                         \
      (CUmemGenericAllocationHandle *, void *, CUmemAllocationHandleType))                     \
    O(hipMemcpyPeerAsync, (CUdeviceptr, int, CUdeviceptr, int, size_t, CUstream))

#endif
