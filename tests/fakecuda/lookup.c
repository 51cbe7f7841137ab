/* SPDX-License-Identifier: Apache-2.0 */
/* cuGetProcAddress(), and the old functions that nobody may call. */
#include <stdio.h>
#include <stdlib.h>

#include "fakecuda/exports.h"
#include "fakecuda/state.h"

typedef void any_fn(void);

/* The old functions have other parameters, some of 32 bits; the driver still exports them. */
#define OLD_FUNCTIONS(F)                                                                       \
    F(cuMemAlloc)                                                                              \
    F(cuMemFree)                                                                               \
    F(cuMemGetAddressRange)                                                                    \
    F(cuMemHostRegister)                                                                       \
    F(cuMemHostGetDevicePointer)                                                               \
    F(cuEventDestroy)                                                                          \
    F(cuStreamDestroy)                                                                         \
    F(cuCtxPushCurrent)                                                                        \
    F(cuCtxPopCurrent)                                                                         \
    F(cuMemcpyHtoDAsync)                                                                       \
    F(cuMemcpyDtoHAsync)                                                                       \
    F(cuMemcpyDtoDAsync)                                                                       \
    F(cuMemcpy2DAsync)                                                                         \
    F(cuDevicePrimaryCtxRelease)                                                               \
    F(cuIpcOpenMemHandle)                                                                      \
    F(cuDeviceTotalMem)                                                                        \
    F(cuMemGetInfo)                                                                            \
    F(cuStreamWriteValue64)                                                                    \
    F(cuStreamWaitValue64)

__attribute__((noreturn)) static void refuse_old(const char *name)
{
    if (universe_open()) {
        universe_lock();
        violation("R0", "%s is an old function with other parameters", name);
        universe_unlock();
    }
    fprintf(stderr, "fakecuda: %s is an old function with other parameters\n", name);
    abort();
}

#define OLD_FUNCTION(name)                                                                     \
    DRIVER_API void name(void);                                                                \
    void name(void) { refuse_old(#name); }
OLD_FUNCTIONS(OLD_FUNCTION)

static void call_other_version(void)
{
    refuse_old("A function that cuGetProcAddress() found in another version");
}

#define FIND(group, name, symbol, version, parameters)                                         \
    {#group, #name, #symbol, version, (any_fn *)symbol},
static const struct {
    const char *group;
    const char *name;
    const char *symbol;
    int version;
    any_fn *function;
} functions[] = {TNI_CUDA_FUNCTIONS(FIND) TNI_CUDA_OLD_UUID(FIND)};

static const struct {
    const char *group;
    uint32_t without;
} groups[] = {
    {"uuid", FAKE_NO_UUID_V2},         {"vmm", FAKE_NO_VMM},
    {"retain", FAKE_NO_RETAIN},        {"timeline", FAKE_NO_MEM_OPS},
    {"events", FAKE_NO_EVENTS},        {"capture", FAKE_NO_CAPTURE},
    {"registering", FAKE_NO_REGISTER}, {"pitched", FAKE_NO_PITCHED},
};

/* R59: an old driver lacks a group, or what came after its own version. */
static bool is_missing(const char *group, int version)
{
    if (!universe)
        return false;
    uint32_t without = universe->options.without;
    for (unsigned i = 0; i < sizeof groups / sizeof groups[0]; i++)
        if (strcmp(group, groups[i].group) == 0 && without & groups[i].without)
            return true;
    return version > (int)universe->options.driver_version;
}

/* dlsym() finds each function in the fake, so one that is missing refuses each call. */
bool function_is_missing(int function)
{
    return is_missing(functions[function].group, functions[function].version);
}

void *fake_find(const char *symbol)
{
    void *found = NULL;
    for (unsigned i = 0; i < sizeof functions / sizeof functions[0]; i++)
        if (strcmp(functions[i].symbol, symbol) == 0)
            memcpy(&found, &functions[i].function, sizeof found);
    return found;
}

/* What the driver answers to a name and the version that the program was built for. */
static any_fn *find(const char *name, int version)
{
    any_fn *found = NULL;
    for (unsigned i = 0; i < sizeof functions / sizeof functions[0]; i++) {
        if (strcmp(functions[i].name, name) != 0)
            continue;
        bool has_it = !is_missing(functions[i].group, functions[i].version);
        if (functions[i].version == version)
            return has_it ? functions[i].function : NULL;
        found = has_it ? call_other_version : found;
    }
    return found;
}

CUresult cuGetProcAddress_v2(const char *name, void **ret_function, int version,
                             cuuint64_t flags, CUdriverProcAddressQueryResult *ret_result)
{
    universe_open();
    if (universe && universe->options.without & FAKE_NO_PROC_ADDRESS)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (!name || !ret_function || flags > 2)
        return CUDA_ERROR_INVALID_VALUE;
    any_fn *found = find(name, version);
    memcpy(ret_function, &found, sizeof found);
    if (ret_result)
        *ret_result = found ? 0 : 1;
    return CUDA_SUCCESS;
}
