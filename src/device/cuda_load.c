/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_load: finds the functions of a driver at run time, and starts it.
 *
 * The driver hands out a function by name and version (cuGetProcAddress); an old one only by
 * the name that its library exports. tenon asks for the version whose parameters it knows,
 * never for the newest.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda.h"

static const struct tni_cuda_differences cuda_differences = {
    .product = "CUDA",
    .major = 1000,
    .minor = 10,
    .variable = "TENON_CUDA_LIBRARY",
    .libraries = {"libcuda.so.1"},
    .visible = "CUDA_VISIBLE_DEVICES",
    .why_private = "its allocator made it for one process only",
};

struct tni_cuda tni_cuda_driver = {.differences = &cuda_differences,
                                   .turns = {PTHREAD_MUTEX_INITIALIZER},
                                   .lock = {PTHREAD_MUTEX_INITIALIZER}};

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

static tni_cuGetProcAddress_v2 *find_finder(void *library)
{
    tni_cuGetProcAddress_v2 *get;
    void *symbol = tni_os_library_symbol(library, "cuGetProcAddress_v2");
    memcpy(&get, &symbol, sizeof get); /* C has no conversion from void * to a function */
    if (get != NULL && find(library, get, &functions[0]) == NULL)
        get = NULL; /* it does not work: take what the library exports */
    return get;
}

/* Put the function into its place, or note that its group is missing. @return whether it is */
static bool put(struct tni_cuda *cuda, const struct function *f, void *found)
{
    memcpy((char *)cuda + f->offset, &found, sizeof found);
    if (found == NULL)
        cuda->missing |= 1u << f->group;
    return found != NULL;
}

static bool is_needed(const struct function *f)
{
    return f->group == TNI_CUDA_core || f->group == TNI_CUDA_uuid;
}

/* @return the name of the first function that the driver must have and has not; else NULL */
static const char *find_all(struct tni_cuda *cuda, void *library)
{
    tni_cuGetProcAddress_v2 *get = find_finder(library);
    const char *lacks = NULL;
    void *whole_uuid = find(library, get, old_uuid);
    memcpy(&cuda->get_whole_uuid, &whole_uuid, sizeof whole_uuid);
    for (size_t i = 0; i < TNI_COUNT(functions); i++) {
        const struct function *f = &functions[i];
        void *found = find(library, get, f);
        if (found == NULL && f->group == TNI_CUDA_uuid)
            found = whole_uuid;
        if (!put(cuda, f, found) && lacks == NULL && is_needed(f))
            lacks = f->symbol;
    }
    return lacks;
}

/* The same for a driver with functions of other names. */
static const char *find_others(struct tni_cuda *cuda, void *library)
{
    const struct tni_cuda_differences *differences = cuda->differences;
    const char *lacks = NULL;
    cuda->missing = differences->without;
    for (size_t i = 0; i < TNI_COUNT(functions); i++) {
        const struct function *f = &functions[i];
        const char *symbol = differences->symbol(f->name);
        if (symbol != NULL && !put(cuda, f, differences->find(library, f->name)) &&
            lacks == NULL && is_needed(f))
            lacks = symbol;
    }
    return lacks != NULL ? lacks : differences->lacks();
}

/* What a failure to start means, for a person. */
static const char *explain(CUresult result)
{
    switch (result) {
    case CUDA_ERROR_STUB_LIBRARY:
        return "this is the toolkit's stub for linking, and not a driver";
    case CUDA_ERROR_NO_DEVICE:
        return "the driver sees no device";
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

static int fail_start(const struct tni_cuda *cuda, CUresult result, const char *path)
{
    const char *name = NULL;
    bool has_name = cuda->cuGetErrorName(result, &name) == 0 && name != NULL;
    int status = !is_passing(result)                  ? TN_ERR_UNSUPPORTED
                 : result == CUDA_ERROR_OUT_OF_MEMORY ? TN_ERR_NO_MEMORY
                                                      : TN_ERR_DEVICE;
    if (cuda->differences->forget_error != NULL)
        cuda->differences->forget_error();
    if (result == CUDA_ERROR_NO_DEVICE)
        return tni_fail(status, "%s: %s (is %s set?): %s (%d)", path, explain(result),
                        cuda->differences->visible, has_name ? name : "error", result);
    return tni_fail(status, "%s: %s: %s (%d)", path, explain(result), has_name ? name : "error",
                    result);
}

static int start(struct tni_cuda *cuda, const char *path)
{
    int count = 0;
    CUresult result = cuda->cuInit(0);
    if (result == 0)
        result = cuda->cuDriverGetVersion(&cuda->version);
    if (result == 0)
        result = cuda->cuDeviceGetCount(&count);
    if (result == 0 && count <= 0)
        result = CUDA_ERROR_NO_DEVICE;
    if (result != 0)
        return fail_start(cuda, result, path);
    if (cuda->version < cuda->differences->oldest)
        return tni_fail(TN_ERR_UNSUPPORTED, "%s: version %d of the driver is too old", path,
                        cuda->version);
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

/* The library that the environment names, or the first that is there. */
static int open_library(const struct tni_cuda_differences *differences, void **ret_library,
                        const char **ret_path)
{
    *ret_path = tni_os_environment(differences->variable);
    if (*ret_path != NULL && (*ret_path)[0] != '\0')
        return tni_os_library_open(*ret_path, ret_library);
    int status = TN_ERR_UNSUPPORTED;
    for (size_t i = 0; status != 0 && differences->libraries[i] != NULL; i++) {
        *ret_path = differences->libraries[i];
        status = tni_os_library_open(*ret_path, ret_library);
    }
    return status;
}

int tni_cuda_load(struct tni_cuda *cuda)
{
    const char *path = NULL;
    void *library = NULL;
    int status = open_library(cuda->differences, &library, &path);
    if (status != 0)
        return status;
    cuda->missing = 0;
    const char *lacks =
        cuda->differences->find != NULL ? find_others(cuda, library) : find_all(cuda, library);
    if (lacks != NULL)
        return tni_fail(TN_ERR_UNSUPPORTED, "%s: the driver has no function %s", path, lacks);
    return start(cuda, path);
}
