/* SPDX-License-Identifier: Apache-2.0 */
/* The start of the driver, the devices and what they say of themselves. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "fakecuda/exports.h"
#include "fakecuda/state.h"

/* ---- the start --------------------------------------------------------------------------- */

/* R7, R62: which devices this process sees, in which order. */
static void read_visible(void)
{
    int count = (int)universe->options.device_count;
    const char *text = getenv("TENON_FAKECUDA_VISIBLE");
    local.visible_count = 0;
    if (!text) {
        for (int i = 0; i < count; i++)
            local.visible[local.visible_count++] = i;
        return;
    }
    while (*text && local.visible_count < MAX_DEVICES) {
        char *end;
        long device = strtol(text, &end, 10);
        if (end == text || device < 0 || device >= count)
            return;
        local.visible[local.visible_count++] = (int)device;
        text = *end == ',' ? end + 1 : end;
    }
}

int device_of(CUdevice ordinal)
{
    return ordinal >= 0 && ordinal < local.visible_count ? local.visible[ordinal] : -1;
}

int ordinal_of(int device)
{
    for (int i = 0; i < local.visible_count; i++)
        if (local.visible[i] == device)
            return i;
    return -1;
}

static CUresult init(unsigned flags)
{
    if (flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (!universe)
        return CUDA_ERROR_NO_DEVICE;
    if (universe->options.init_result)
        return universe->options.init_result;
    if (local.is_detached)
        return CUDA_ERROR_DEINITIALIZED;
    if (local.pid)
        return CUDA_SUCCESS;
    read_visible();
    if (local.visible_count == 0)
        return CUDA_ERROR_NO_DEVICE;
    processes_attach();
    local.pid = getpid();
    return CUDA_SUCCESS;
}

CUresult cuInit(unsigned flags)
{
    universe_open();
    CUresult result = call_enter(FN_cuInit, NEEDS_NOTHING);
    return result ? result : call_leave(init(flags));
}

static CUresult get_version(int *ret_version)
{
    if (!ret_version)
        return CUDA_ERROR_INVALID_VALUE;
    *ret_version = universe ? (int)universe->options.driver_version : 0;
    return CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int *ret_version)
{
    universe_open();
    CUresult result = call_enter(FN_cuDriverGetVersion, NEEDS_NOTHING);
    return result ? result : call_leave(get_version(ret_version));
}

/* ---- errors ------------------------------------------------------------------------------ */

static const char *error_name(CUresult error)
{
#define ERROR_NAME(name, value)                                                                \
    if (error == (value))                                                                      \
        return #name;
    TNI_CUDA_ERRORS(ERROR_NAME)
#undef ERROR_NAME
    return error == CUDA_SUCCESS ? "CUDA_SUCCESS" : NULL;
}

static CUresult get_error(CUresult error, const char **ret_text)
{
    if (!ret_text)
        return CUDA_ERROR_INVALID_VALUE;
    *ret_text = error_name(error);
    return *ret_text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorName(CUresult error, const char **ret_name)
{
    CUresult result = call_enter(FN_cuGetErrorName, NEEDS_NOTHING);
    return result ? result : call_leave(get_error(error, ret_name));
}

CUresult cuGetErrorString(CUresult error, const char **ret_text)
{
    CUresult result = call_enter(FN_cuGetErrorString, NEEDS_NOTHING);
    return result ? result : call_leave(get_error(error, ret_text));
}

/* ---- devices ----------------------------------------------------------------------------- */

static CUresult get_count(int *ret_count)
{
    if (!ret_count)
        return CUDA_ERROR_INVALID_VALUE;
    *ret_count = local.visible_count;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *ret_count)
{
    CUresult result = call_enter(FN_cuDeviceGetCount, NEEDS_INIT);
    return result ? result : call_leave(get_count(ret_count));
}

static CUresult get_device(CUdevice *ret_device, int ordinal)
{
    if (!ret_device)
        return CUDA_ERROR_INVALID_VALUE;
    if (device_of(ordinal) < 0)
        return CUDA_ERROR_INVALID_DEVICE;
    *ret_device = ordinal;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *ret_device, int ordinal)
{
    CUresult result = call_enter(FN_cuDeviceGet, NEEDS_INIT);
    return result ? result : call_leave(get_device(ret_device, ordinal));
}

static bool has(uint32_t group) { return !(universe->options.without & group); }

/* @return the value, or -1 for an attribute that this driver does not know */
static int attribute_of(CUdevice_attribute attribute, int device)
{
    switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID:
    case CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID:
        return 0;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
        return device + 1;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_MODE:
        return (int)universe->options.compute_mode;
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
        return 1;
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
        return has(FAKE_NO_VMM);
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
        return has(FAKE_NO_VMM) && has(FAKE_NO_POSIX_FD);
    case CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS:
        return has(FAKE_NO_MEM_OPS);
    case CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED:
        return has(FAKE_NO_IPC_EVENTS);
    case CU_DEVICE_ATTRIBUTE_INTEGRATED:
    case CU_DEVICE_ATTRIBUTE_MPS_ENABLED:
        return 0;
    default:
        return -1;
    }
}

static CUresult get_attribute(int *ret_value, CUdevice_attribute attribute, CUdevice ordinal)
{
    if (!ret_value)
        return CUDA_ERROR_INVALID_VALUE;
    if (device_of(ordinal) < 0)
        return CUDA_ERROR_INVALID_DEVICE;
    int value = attribute_of(attribute, device_of(ordinal));
    if (value < 0)
        return CUDA_ERROR_INVALID_VALUE;
    *ret_value = value;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int *ret_value, CUdevice_attribute attribute, CUdevice ordinal)
{
    CUresult result = call_enter(FN_cuDeviceGetAttribute, NEEDS_INIT);
    return result ? result : call_leave(get_attribute(ret_value, attribute, ordinal));
}

static CUresult get_name(char *name, int size, CUdevice ordinal)
{
    if (!name || size <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (device_of(ordinal) < 0)
        return CUDA_ERROR_INVALID_DEVICE;
    snprintf(name, (size_t)size, "Fake device %d", device_of(ordinal));
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int size, CUdevice ordinal)
{
    CUresult result = call_enter(FN_cuDeviceGetName, NEEDS_INIT);
    return result ? result : call_leave(get_name(name, size, ordinal));
}

static CUresult total_mem(size_t *ret_bytes, CUdevice ordinal)
{
    if (!ret_bytes)
        return CUDA_ERROR_INVALID_VALUE;
    if (device_of(ordinal) < 0)
        return CUDA_ERROR_INVALID_DEVICE;
    *ret_bytes = universe->options.memory_bytes;
    return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem_v2(size_t *ret_bytes, CUdevice ordinal)
{
    CUresult result = call_enter(FN_cuDeviceTotalMem_v2, NEEDS_INIT);
    return result ? result : call_leave(total_mem(ret_bytes, ordinal));
}

/* An instance of a divided device has a UUID of its own; only the newer function says it. */
static CUresult get_uuid(CUuuid *ret_uuid, CUdevice ordinal, bool is_v2)
{
    if (!ret_uuid)
        return CUDA_ERROR_INVALID_VALUE;
    int device = device_of(ordinal);
    if (device < 0)
        return CUDA_ERROR_INVALID_DEVICE;
    bool is_instance = universe->options.mig && is_v2;
    for (int i = 0; i < 16; i++)
        ret_uuid->bytes[i] = (char)(0x40 + i);
    ret_uuid->bytes[0] = is_instance ? 'M' : 'G';
    ret_uuid->bytes[15] = (char)(universe->options.mig && !is_v2 ? 0 : device);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid_v2(CUuuid *ret_uuid, CUdevice ordinal)
{
    CUresult result = call_enter(FN_cuDeviceGetUuid_v2, NEEDS_INIT);
    return result ? result : call_leave(get_uuid(ret_uuid, ordinal, true));
}

CUresult cuDeviceGetUuid(CUuuid *ret_uuid, CUdevice ordinal)
{
    CUresult result = call_enter(FN_cuDeviceGetUuid, NEEDS_INIT);
    return result ? result : call_leave(get_uuid(ret_uuid, ordinal, false));
}

static CUresult can_access_peer(int *ret_can, CUdevice ordinal, CUdevice peer)
{
    if (!ret_can)
        return CUDA_ERROR_INVALID_VALUE;
    if (device_of(ordinal) < 0 || device_of(peer) < 0)
        return CUDA_ERROR_INVALID_DEVICE;
    *ret_can = ordinal != peer && !universe->options.mig;
    return CUDA_SUCCESS;
}

CUresult cuDeviceCanAccessPeer(int *ret_can, CUdevice ordinal, CUdevice peer)
{
    CUresult result = call_enter(FN_cuDeviceCanAccessPeer, NEEDS_INIT);
    return result ? result : call_leave(can_access_peer(ret_can, ordinal, peer));
}

static CUresult get_mem_info(size_t *ret_free, size_t *ret_total)
{
    if (!ret_free || !ret_total)
        return CUDA_ERROR_INVALID_VALUE;
    processes_sweep();
    allocations_sweep();
    *ret_total = universe->options.memory_bytes;
    *ret_free = *ret_total - device_used(context_device(context_current()));
    return CUDA_SUCCESS;
}

CUresult cuMemGetInfo_v2(size_t *ret_free, size_t *ret_total)
{
    CUresult result = call_enter(FN_cuMemGetInfo_v2, NEEDS_CONTEXT);
    return result ? result : call_leave(get_mem_info(ret_free, ret_total));
}
