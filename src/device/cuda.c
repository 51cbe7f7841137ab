/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda: the driver as this process uses it: its devices, their contexts, its errors.
 *
 * I1  A process reaches the driver only if it loaded the driver itself. A forked child finds
 *     its parent's pid and fails, before it takes a lock that a thread of its parent may have.
 *     If its parent found no driver that can be used, neither does the child.
 * I2  tenon uses the primary context of a device, which the other libraries of the process use
 *     too. It keeps the context while it has memory of the device mapped, and for the length of
 *     each call; what was current in the thread is current again afterwards.
 */
#include <stdio.h>
#include <string.h>

#include "device/cuda.h"

/* ---- loading ----------------------------------------------------------------------------- */

static int fail_forked(const struct tni_memory_kind *kind, int32_t pid)
{
    const struct tni_cuda *cuda = kind->driver;
    int failure = atomic_load(&cuda->failure);
    if (failure != 0)
        return tni_fail(failure, "%s", cuda->why);
    return tni_fail(TN_ERR_FORKED,
                    "this process was forked from process %d, which used the driver of %s: "
                    "start processes that use it with spawn or a fork server",
                    pid, kind->name);
}

/* pre: the lock */
static int load_once(struct tni_cuda *cuda)
{
    if (!cuda->is_loaded) {
        int status = tni_cuda_load(cuda);
        if (status != 0 && status != TN_ERR_UNSUPPORTED)
            return status; /* the next call may succeed */
        if (status != 0)
            snprintf(cuda->why, sizeof cuda->why, "%s", tn_error_detail());
        atomic_store(&cuda->failure, status); /* after its sentence: fail_forked() */
        cuda->is_loaded = true;
    }
    int failure = atomic_load(&cuda->failure);
    return failure == 0 ? 0 : tni_fail(failure, "%s", cuda->why);
}

int tni_cuda_begin(const struct tni_memory_kind *kind)
{
    struct tni_cuda *cuda = kind->driver;
    int32_t self = tni_os_pid(), pid = 0;
    if (!atomic_compare_exchange_strong(&cuda->pid, &pid, self) && pid != self)
        return fail_forked(kind, pid);
    tni_os_mutex_lock(&cuda->lock);
    int status = load_once(cuda);
    tni_os_mutex_unlock(&cuda->lock);
    return status;
}

/* ---- contexts ---------------------------------------------------------------------------- */

/* pre: the lock */
static int retain(struct tni_cuda *cuda, struct tni_cuda_device *device)
{
    CUresult result = 0;
    if (device->users == 0)
        result = cuda->cuDevicePrimaryCtxRetain(&device->context, device->number);
    if (result != 0)
        return tni_cuda_check(cuda, result, "cuDevicePrimaryCtxRetain");
    device->users++;
    return 0;
}

void tni_cuda_release(struct tni_cuda *cuda, int32_t id)
{
    struct tni_cuda_device *device = &cuda->devices[id];
    if (atomic_load(&cuda->pid) != tni_os_pid())
        return; /* I1 */
    tni_os_mutex_lock(&cuda->lock);
    if (--device->users == 0)
        cuda->cuDevicePrimaryCtxRelease(device->number);
    tni_os_mutex_unlock(&cuda->lock);
}

int tni_cuda_enter(const struct tni_memory_kind *kind, int32_t id)
{
    struct tni_cuda *cuda = kind->driver;
    int status = tni_cuda_begin(kind);
    if (status != 0)
        return status;
    tni_os_mutex_lock(&cuda->lock);
    status = retain(cuda, &cuda->devices[id]);
    tni_os_mutex_unlock(&cuda->lock);
    if (status != 0)
        return status;
    status = tni_cuda_check(cuda, cuda->cuCtxPushCurrent(cuda->devices[id].context),
                            "cuCtxPushCurrent");
    if (status != 0)
        tni_cuda_release(cuda, id);
    return status;
}

void tni_cuda_leave(struct tni_cuda *cuda, int32_t id, bool keeps)
{
    CUcontext popped;
    cuda->cuCtxPopCurrent(&popped);
    if (!keeps)
        tni_cuda_release(cuda, id);
}

int tni_cuda_use(const struct tni_memory_kind *kind, int32_t id)
{
    int status = tni_cuda_enter(kind, id);
    if (status == 0)
        tni_cuda_leave(kind->driver, id, true);
    return status;
}

void tni_cuda_unuse(const struct tni_memory_kind *kind, int32_t id)
{
    tni_cuda_release(kind->driver, id);
}

/* ---- devices ----------------------------------------------------------------------------- */

int tni_cuda_count(const struct tni_memory_kind *kind)
{
    int status = tni_cuda_begin(kind);
    return status == 0 ? kind->driver->device_count : status;
}

/* The driver is asked for each of these; one that it does not know is 0. */
enum {
    SHARES,
    SHARES_BY_FD,
    INTEGRATED,
    COMPUTE_MODE,
    PCI_DOMAIN,
    PCI_BUS,
    PCI_DEVICE,
    ATTRIBUTES
};
static const CUdevice_attribute attributes[ATTRIBUTES] = {
    [SHARES] = CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
    [SHARES_BY_FD] = CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
    [INTEGRATED] = CU_DEVICE_ATTRIBUTE_INTEGRATED,
    [COMPUTE_MODE] = CU_DEVICE_ATTRIBUTE_COMPUTE_MODE,
    [PCI_DOMAIN] = CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID,
    [PCI_BUS] = CU_DEVICE_ATTRIBUTE_PCI_BUS_ID,
    [PCI_DEVICE] = CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID,
};

static int read_attributes(const struct tni_cuda *cuda, CUdevice device, int values[ATTRIBUTES])
{
    for (int i = 0; i < ATTRIBUTES; i++) {
        CUresult result = cuda->cuDeviceGetAttribute(&values[i], attributes[i], device);
        if (result == CUDA_ERROR_INVALID_VALUE)
            values[i] = 0;
        else if (result != 0)
            return tni_cuda_check(cuda, result, "cuDeviceGetAttribute");
    }
    return 0;
}

/* A card's first function is 0. The bus of a device that is not on one is 0, a bridge's. */
static void write_pci(const int values[ATTRIBUTES], char text[16])
{
    if (values[PCI_BUS] != 0)
        snprintf(text, 16, "%04x:%02x:%02x.0", (unsigned)values[PCI_DOMAIN] & 0xffff,
                 (unsigned)values[PCI_BUS] & 0xff, (unsigned)values[PCI_DEVICE] & 0xff);
}

static uint32_t read_flags(const struct tni_cuda *cuda, CUdevice device,
                           const int values[ATTRIBUTES])
{
    uint32_t flags = 0;
    if ((cuda->missing >> TNI_CUDA_vmm & 1) == 0 && values[SHARES] != 0 &&
        values[SHARES_BY_FD] != 0)
        flags |= TN_DEVICE_SHARES;
    CUuuid part, whole;
    if (cuda->get_whole_uuid != NULL && cuda->cuDeviceGetUuid(&part, device) == 0 &&
        cuda->get_whole_uuid(&whole, device) == 0 && memcmp(&part, &whole, sizeof part) != 0)
        flags |= TN_DEVICE_IS_PART;
    if (values[INTEGRATED] != 0)
        flags |= TN_DEVICE_INTEGRATED;
    if (values[COMPUTE_MODE] == CU_COMPUTEMODE_EXCLUSIVE_PROCESS)
        flags |= TN_DEVICE_EXCLUSIVE;
    return flags;
}

/* pre: the lock */
static int ask(const struct tni_memory_kind *kind, int32_t id, tn_device_info *ret_info)
{
    const struct tni_cuda *cuda = kind->driver;
    tn_device_info info = {.device = {kind->type, id}, .driver_version = cuda->version};
    CUdevice device = cuda->devices[id].number;
    int values[ATTRIBUTES];
    size_t bytes = 0;
    int status = tni_cuda_check(
        cuda, cuda->cuDeviceGetName(info.name, sizeof info.name, device), "cuDeviceGetName");
    if (status == 0)
        status =
            tni_cuda_check(cuda, cuda->cuDeviceTotalMem(&bytes, device), "cuDeviceTotalMem");
    if (status == 0)
        status =
            tni_cuda_check(cuda, cuda->cuDeviceGetUuid((CUuuid *)(void *)info.uuid, device),
                           "cuDeviceGetUuid");
    if (status == 0)
        status = read_attributes(cuda, device, values);
    if (status != 0)
        return status;
    info.flags = read_flags(cuda, device, values);
    write_pci(values, info.pci);
    info.name[sizeof info.name - 1] = '\0';
    info.memory_bytes = bytes;
    *ret_info = info;
    return 0;
}

int tni_cuda_describe(const struct tni_memory_kind *kind, int32_t id, tn_device_info *ret_info)
{
    struct tni_cuda *cuda = kind->driver;
    int status = tni_cuda_begin(kind);
    if (status != 0)
        return status;
    struct tni_cuda_device *device = &cuda->devices[id];
    tni_os_mutex_lock(&cuda->lock);
    if (!device->is_described) {
        status = ask(kind, id, &device->info);
        device->is_described = status == 0;
    }
    if (status == 0)
        *ret_info = device->info;
    tni_os_mutex_unlock(&cuda->lock);
    return status;
}

int tni_cuda_count_free(const struct tni_memory_kind *kind, int32_t id, uint64_t *ret_bytes)
{
    struct tni_cuda *cuda = kind->driver;
    size_t free_bytes = 0, total = 0;
    int status = tni_cuda_enter(kind, id);
    if (status != 0)
        return status;
    status = tni_cuda_check(cuda, cuda->cuMemGetInfo(&free_bytes, &total), "cuMemGetInfo");
    tni_cuda_leave(cuda, id, false);
    if (status == 0)
        *ret_bytes = free_bytes;
    return status;
}
