/* SPDX-License-Identifier: Apache-2.0 */
/* F1: what the driver and the card offer. F11: the driver in a forked child. */
#include <unistd.h>

#include "gpu/facts/facts.h"

static int attribute(CUdevice_attribute which)
{
    int value = -1;
    CUresult code = CODE(cuDeviceGetAttribute, &value, which, 0);
    return code == 0 ? value : -code;
}

static void ask_attributes(int unused)
{
    (void)unused;
    int version = 0;
    size_t bytes = 0;
    char name[100] = "";
    CALL(cuInit, 0);
    CALL(cuDriverGetVersion, &version);
    CALL(cuDeviceGetName, name, sizeof name, 0);
    CALL(cuDeviceTotalMem, &bytes, 0);
    say("%s, compute capability %d.%d, %zu bytes, driver API %d", name,
        attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
        attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR), bytes, version);
    int vmm = attribute(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
    int fds = attribute(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
    int unified = attribute(CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING);
    say("mapped memory %d, descriptors %d, unified addresses %d, 64-bit stream memory "
        "operations %d, events between processes %d, memory pools %d",
        vmm, fds, unified, attribute(CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS),
        attribute(CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED),
        attribute(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED));
    say("compute mode %d, MPS %d, integrated %d", attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_MODE),
        attribute(CU_DEVICE_ATTRIBUTE_MPS_ENABLED), attribute(CU_DEVICE_ATTRIBUTE_INTEGRATED));
    agree(vmm == 1 && fds == 1 && unified == 1);
}

static void ask_granularity(int unused)
{
    (void)unused;
    size_t least = 0, recommended = 0;
    CUmemAllocationProp wanted = memory_properties();
    driver_enter();
    CALL(cuMemGetAllocationGranularity, &least, &wanted, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    CUresult code = CODE(cuMemGetAllocationGranularity, &recommended, &wanted,
                         CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
    say("least: %zu bytes; recommended: %zu bytes (%s)", least, recommended, driver_text(code));
    agree(least == GRANULE);
}

static void own_context(int socket, int unused)
{
    (void)unused;
    peer_await(socket);
    driver_enter();
    peer_signal(socket);
    peer_await(socket);
}

static void ask_context(int unused)
{
    (void)unused;
    CUcontext context;
    struct peer peer = peer_start(own_context, 0);
    uint64_t begun_ns = now_ns();
    CALL(cuInit, 0);
    uint64_t started_ns = now_ns();
    CALL(cuDevicePrimaryCtxRetain, &context, 0);
    uint64_t made_ns = now_ns();
    CALL(cuCtxPushCurrent, context);
    uint64_t before = driver_free_bytes();
    peer_signal(peer.socket);
    peer_await(peer.socket);
    uint64_t after = driver_free_bytes();
    say("cuInit() took %.1f ms, the primary context %.1f ms; the context of a second process "
        "takes %.1f MiB of the device",
        (double)(started_ns - begun_ns) / 1e6, (double)(made_ns - started_ns) / 1e6,
        (double)(int64_t)(before - after) / (1 << 20));
    peer_signal(peer.socket);
    (void)peer_join(&peer);
}

static void ask_without_context(int unused)
{
    (void)unused;
    CUmemGenericAllocationHandle handle = 0;
    CUmemAllocationProp wanted = memory_properties();
    CUmemAccessDesc access = {.location = wanted.location,
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUdeviceptr at = 0;
    int fd = -1;
    CALL(cuInit, 0);
    CUresult code = CODE(cuMemCreate, &handle, GRANULE, &wanted, 0);
    say("without a context, cuMemCreate(): %s", driver_text(code));
    if (code != 0)
        return;
    say("export: %s", driver_text(CODE(cuMemExportToShareableHandle, &fd, handle,
                                       CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0)));
    code = CODE(cuMemAddressReserve, &at, GRANULE, 0, 0, 0);
    if (code == 0)
        code = CODE(cuMemMap, at, GRANULE, 0, handle, 0);
    say("reserve and map: %s", driver_text(code));
    if (code == 0)
        say("access: %s", driver_text(CODE(cuMemSetAccess, at, GRANULE, &access, 1)));
}

/* ---- F11 --------------------------------------------------------------------------------- */

static void call_in_child(int socket, int unused)
{
    int count = 0;
    size_t free_bytes = 0, all = 0;
    CUcontext context = NULL;
    (void)unused;
    say("in the child: cuDeviceGetCount(): %s", driver_text(CODE(cuDeviceGetCount, &count)));
    say("cuCtxGetCurrent(): %s", driver_text(CODE(cuCtxGetCurrent, &context)));
    say("cuMemGetInfo(): %s", driver_text(CODE(cuMemGetInfo, &free_bytes, &all)));
    say("cuCtxSynchronize(): %s", driver_text(CODE(cuCtxSynchronize)));
    say("cuInit(): %s", driver_text(CODE(cuInit, 0)));
    peer_signal(socket);
}

/* The child is forked after the driver was used: just what no program may do. */
static void ask_forked(int unused)
{
    (void)unused;
    driver_enter();
    memory_fill(memory_make(GRANULE).at, GRANULE, PATTERN);
    struct peer peer = peer_start(call_in_child, 0);
    if (!peer_join(&peer))
        say("the child did not come to its end");
    CUresult code = CODE(cuCtxSynchronize);
    say("the parent's cuCtxSynchronize() after that: %s", driver_text(code));
    agree(code == 0);
}

const struct question driver_questions[] = {
    {"F1.1", "What do the card and the driver offer?",
     "mapped memory, descriptors of it, unified addresses", ask_attributes, 0},
    {"F1.2", "Which granularity has mapped memory?", "2 MiB", ask_granularity, 0},
    {"F1.3", "What does a context take?", "", ask_context, 0},
    {"F1.4", "Can memory be made and mapped without a context?", "", ask_without_context, 0},
    {"F11", "What do calls in a forked child of a process with a driver return?",
     "tenon makes none there; the parent is not disturbed", ask_forked, 0},
    {0}};
