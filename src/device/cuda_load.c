/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_load: finds the functions of the driver at run time, and starts it.
 *
 * The driver hands out a function by name and version (cuGetProcAddress); an old one only by
 * the name that its library exports. tenon asks for the version whose parameters it knows,
 * never for the newest.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda.h"

struct tni_cuda tni_cuda_driver = {.lock = {PTHREAD_MUTEX_INITIALIZER}};

struct function {
    uint8_t group;
    const char *name, *symbol;
    int version;
    size_t offset; /* in struct tni_cuda */
};
#define FUNCTION(its_group, its_name, its_symbol, its_version, parameters)                     \
    {TNI_CUDA_##its_group, #its_name, #its_symbol, its_version,                                \
     offsetof(struct tni_cuda, its_name)},
static const struct function functions[] = {TNI_CUDA_FUNCTIONS(FUNCTION)};
static const struct function old_uuid[] = {TNI_CUDA_OLD_UUID(FUNCTION)};

static void *find(void *library, tni_cuGetProcAddress_v2 *get, const struct function *f)
{
    CUdriverProcAddressQueryResult result = 0;
    void *found = NULL;
    if (get == NULL)
        return tni_os_library_symbol(library, f->symbol);
    /* A success with NULL is possible. */
    return get(f->name, &found, f->version, CU_GET_PROC_ADDRESS_LEGACY_STREAM, &result) == 0
               ? found
               : NULL;
}

/* @return the name of the first function that the driver must have and has not; else NULL */
static const char *find_all(struct tni_cuda *cuda, void *library)
{
    tni_cuGetProcAddress_v2 *get;
    void *symbol = tni_os_library_symbol(library, "cuGetProcAddress_v2"), *found;
    const char *lacks = NULL;
    memcpy(&get, &symbol, sizeof get); /* C has no conversion from void * to a function */
    if (get != NULL && find(library, get, &functions[0]) == NULL)
        get = NULL; /* it does not work: take what the library exports */
    void *whole_uuid = find(library, get, old_uuid);
    memcpy(&cuda->get_whole_uuid, &whole_uuid, sizeof whole_uuid);
    cuda->missing = 0;
    for (size_t i = 0; i < TNI_COUNT(functions); i++) {
        const struct function *f = &functions[i];
        found = find(library, get, f);
        if (found == NULL && f->group == TNI_CUDA_uuid)
            found = whole_uuid;
        memcpy((char *)cuda + f->offset, &found, sizeof found);
        if (found != NULL)
            continue;
        cuda->missing |= 1u << f->group;
        if (lacks == NULL && (f->group == TNI_CUDA_core || f->group == TNI_CUDA_uuid))
            lacks = f->symbol;
    }
    return lacks;
}

/* What a failure to start means, for a person. */
static const char *explain(CUresult result)
{
    switch (result) {
    case CUDA_ERROR_STUB_LIBRARY:
        return "this is the toolkit's stub for linking, and not a driver";
    case CUDA_ERROR_NO_DEVICE:
        return "the driver sees no device (is CUDA_VISIBLE_DEVICES set?)";
    case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
        return "the library is of another version than the kernel's driver";
    default:
        return "the driver does not start";
    }
}

/* Whether the driver may start if it is asked again. */
static bool is_passing(CUresult result)
{
    return result == CUDA_ERROR_OUT_OF_MEMORY || result == CUDA_ERROR_DEVICE_UNAVAILABLE ||
           result == CUDA_ERROR_OPERATING_SYSTEM;
}

static int start(struct tni_cuda *cuda, const char *path)
{
    int count = 0;
    const char *name = NULL;
    CUresult result = cuda->cuInit(0);
    if (result == 0)
        result = cuda->cuDriverGetVersion(&cuda->version);
    if (result == 0)
        result = cuda->cuDeviceGetCount(&count);
    if (result == 0 && count <= 0)
        result = CUDA_ERROR_NO_DEVICE;
    if (result != 0) {
        bool has_name = cuda->cuGetErrorName(result, &name) == 0 && name != NULL;
        int status = !is_passing(result)                  ? TN_ERR_UNSUPPORTED
                     : result == CUDA_ERROR_OUT_OF_MEMORY ? TN_ERR_NO_MEMORY
                                                          : TN_ERR_DEVICE;
        return tni_fail(status, "%s: %s: %s (%d)", path, explain(result),
                        has_name ? name : "error", result);
    }
    struct tni_cuda_device *devices = calloc((size_t)count, sizeof *devices);
    if (devices == NULL)
        return tni_fail(TN_ERR_NO_MEMORY, "no private memory for %d devices", count);
    for (int i = 0; i < count && result == 0; i++)
        result = cuda->cuDeviceGet(&devices[i].number, i);
    if (result != 0) {
        free(devices);
        return tni_cuda_check(cuda, result, "cuDeviceGet");
    }
    cuda->devices = devices;
    cuda->device_count = count;
    return 0;
}

int tni_cuda_load(struct tni_cuda *cuda)
{
    const char *path = tni_os_environment("TENON_CUDA_LIBRARY");
    void *library = NULL;
    if (path == NULL || path[0] == '\0')
        path = "libcuda.so.1";
    int status = tni_os_library_open(path, &library);
    if (status != 0)
        return status;
    const char *lacks = find_all(cuda, library);
    if (lacks != NULL)
        return tni_fail(TN_ERR_UNSUPPORTED, "%s: the driver has no function %s", path, lacks);
    return start(cuda, path);
}
