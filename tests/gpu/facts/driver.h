/* SPDX-License-Identifier: Apache-2.0 */
/*
 * driver: the functions of the CUDA driver that the facts and figures of a GPU call: those of
 * tenon, and some that tenon does not use. dev/check-cuda.py compares the declarations with
 * NVIDIA's cuda.h.
 */
#ifndef TENON_TESTS_FACTS_DRIVER_H
#define TENON_TESTS_FACTS_DRIVER_H

#include <stdbool.h>

#include "device/cuda_api.h"

#ifndef TNI_CUDA_REAL
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUmemPoolHandle_st *CUmemoryPool;
typedef struct {
    CUmemAllocationType allocType;
    CUmemAllocationHandleType handleTypes;
    CUmemLocation location;
    void *win32SecurityAttributes;
    unsigned char
        reserved[64]; /* CUDA 12.2 and later have named fields here; 0 is the default */
} CUmemPoolProps;
#endif

#define FACTS_VALUES(V)                                                                        \
    V(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 75)                                        \
    V(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 76)                                        \
    V(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 115)                                         \
    V(CU_MEM_ALLOC_GRANULARITY_RECOMMENDED, 1)                                                 \
    V(CU_MEM_ATTACH_GLOBAL, 1)

/* As TNI_CUDA_FUNCTIONS. */
#define FACTS_FUNCTIONS(F)                                                                     \
    F(facts, cuMemAllocManaged, cuMemAllocManaged, 6000, (CUdeviceptr *, size_t, unsigned))    \
    F(facts, cuMemAllocAsync, cuMemAllocAsync, 11020, (CUdeviceptr *, size_t, CUstream))       \
    F(facts, cuMemPoolCreate, cuMemPoolCreate, 11020,                                          \
      (CUmemoryPool *, const CUmemPoolProps *))                                                \
    F(facts, cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync, 11020,                          \
      (CUdeviceptr *, size_t, CUmemoryPool, CUstream))                                         \
    F(facts, cuModuleLoadData, cuModuleLoadData, 2000, (CUmodule *, const void *))             \
    F(facts, cuModuleGetFunction, cuModuleGetFunction, 2000,                                   \
      (CUfunction *, CUmodule, const char *))                                                  \
    F(facts, cuLaunchKernel, cuLaunchKernel, 4000,                                             \
      (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,       \
       CUstream, void **, void **))
/* From CUDA 13 on, cuda.h declares it no more, but the driver still has it. */
#define FACTS_OLD_FUNCTIONS(F)                                                                 \
    F(facts, cuCtxCreate, cuCtxCreate_v2, 3020, (CUcontext *, unsigned, CUdevice))

#ifndef TNI_CUDA_REAL

#define FACTS_NAME_VALUE(name, value) name = (value),
enum { FACTS_VALUES(FACTS_NAME_VALUE) };
#undef FACTS_NAME_VALUE

#define FACTS_MEMBER(group, name, symbol, version, parameters) CUresult(*name) parameters;
struct driver {
    TNI_CUDA_FUNCTIONS(FACTS_MEMBER)
    FACTS_FUNCTIONS(FACTS_MEMBER)
    FACTS_OLD_FUNCTIONS(FACTS_MEMBER)
};
#undef FACTS_MEMBER

/** The functions of the driver; NULL: the driver lacks this one. Filled in by driver_load(). */
extern struct driver cu;

/** Load $TENON_CUDA_LIBRARY or libcuda.so.1. @return NULL, or what is wrong with it */
const char *driver_load(void);
/** Whether the driver is the fake of the tests. */
bool driver_is_fake(void);
/** Make the fake's devices, in the file $TENON_FAKECUDA. @return 0, or an errno */
int driver_make_universe(void);

/** Call a function of the driver, and end this question if the driver lacks it. @return its
 * code */
#define CODE(name, ...) (cu.name != NULL ? cu.name(__VA_ARGS__) : driver_lacks(#name))
/** The same, and end this question if the call fails. */
#define CALL(name, ...) driver_must(CODE(name, __VA_ARGS__), #name)
/** End this question unless the driver has the function. */
#define NEED(name) ((void)(cu.name != NULL ? 0 : driver_lacks(#name)))
CUresult driver_lacks(const char *name) __attribute__((noreturn));
void driver_must(CUresult code, const char *name);
/** "success", or the name and number of an error. Valid until the eighth call after this one.
 */
const char *driver_text(CUresult code);

/** Start the driver, and make the primary context of device 0 current. */
void driver_enter(void);
/** Bytes of device 0 that no process uses. */
uint64_t driver_free_bytes(void);

#endif
#endif
