/* SPDX-License-Identifier: Apache-2.0 */
/* The driver: loaded by name, and started. */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fakecuda/fake.h"
#include "gpu/facts/facts.h"

struct driver cu;
static void *library;

struct function {
    const char *symbol;
    size_t offset;
};
#define FUNCTION(group, name, symbol, version, parameters)                                     \
    {#symbol, offsetof(struct driver, name)},
static const struct function functions[] = {
    TNI_CUDA_FUNCTIONS(FUNCTION) FACTS_FUNCTIONS(FUNCTION) FACTS_OLD_FUNCTIONS(FUNCTION)};

const char *driver_load(void)
{
    const char *path = getenv("TENON_CUDA_LIBRARY");
    if (path == NULL || path[0] == '\0')
        path = "libcuda.so.1";
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        return dlerror();
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
        void *found = dlsym(library, functions[i].symbol);
        memcpy((char *)&cu + functions[i].offset, &found, sizeof found);
    }
    return cu.cuInit != NULL ? NULL : "the library has no function cuInit()";
}

bool driver_is_fake(void) { return dlsym(library, "fake_make") != NULL; }

int driver_make_universe(void)
{
    __typeof__(fake_make) *make;
    const struct fake_options options = {0};
    const char *path = getenv("TENON_FAKECUDA");
    void *found = dlsym(library, "fake_make");
    memcpy(&make, &found, sizeof found);
    return make != NULL && path != NULL ? make(path, &options) : 1;
}

CUresult driver_lacks(const char *name) { unanswered("the driver lacks %s()", name); }

void driver_must(CUresult code, const char *name)
{
    if (code != 0)
        unanswered("%s() failed: %s", name, driver_text(code));
}

const char *driver_text(CUresult code)
{
    static char texts[8][80];
    static unsigned next;
    const char *name = NULL;
    if (code == 0)
        return "success";
    if (cu.cuGetErrorName == NULL || cu.cuGetErrorName(code, &name) != 0 || name == NULL)
        name = "error";
    char *text = texts[next++ % 8];
    snprintf(text, sizeof texts[0], "%s (%d)", name, code);
    return text;
}

void driver_enter(void)
{
    CUcontext context;
    CUdevice device;
    CALL(cuInit, 0);
    CALL(cuDeviceGet, &device, 0);
    CALL(cuDevicePrimaryCtxRetain, &context, device);
    CALL(cuCtxPushCurrent, context);
}

uint64_t driver_free_bytes(void)
{
    size_t free_bytes = 0, all = 0;
    CALL(cuMemGetInfo, &free_bytes, &all);
    return free_bytes;
}
