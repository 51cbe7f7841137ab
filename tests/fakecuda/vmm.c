/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that the driver counts: R36 to R49. */
#include <stdlib.h>
#include <unistd.h>

#include "fakecuda/exports.h"
#include "fakecuda/state.h"

static uint64_t granularity(void) { return universe->options.granularity; }

static bool is_aligned(uint64_t number) { return number % granularity() == 0; }

/* ---- properties -------------------------------------------------------------------------- */

/* @return 0, or a code for properties that no allocation can have */
static CUresult check_properties(const CUmemAllocationProp *properties)
{
    if (!properties || properties->type != CU_MEM_ALLOCATION_TYPE_PINNED ||
        properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    if (properties->requestedHandleTypes & ~(unsigned)CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (properties->requestedHandleTypes && universe->options.without & FAKE_NO_POSIX_FD)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (properties->win32HandleMetaData || properties->allocFlags.usage ||
        properties->allocFlags.compressionType)
        return CUDA_ERROR_INVALID_VALUE;
    return device_of(properties->location.id) < 0 ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

static CUresult get_granularity(size_t *ret_bytes, const CUmemAllocationProp *properties,
                                CUmemAllocationGranularity_flags option)
{
    if (!ret_bytes || option > 1)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult code = check_properties(properties);
    if (code == CUDA_SUCCESS)
        *ret_bytes = granularity();
    return code;
}

CUresult cuMemGetAllocationGranularity(size_t *ret_bytes, const CUmemAllocationProp *properties,
                                       CUmemAllocationGranularity_flags option)
{
    CUresult result = call_enter(FN_cuMemGetAllocationGranularity, NEEDS_NO_FAULT);
    return result ? result : call_leave(get_granularity(ret_bytes, properties, option));
}

/* ---- handles ----------------------------------------------------------------------------- */

static struct handle *handle_find(CUmemGenericAllocationHandle value)
{
    for (int i = 0; value && i < universe->handle_end; i++)
        if (universe->handles[i].value == value &&
            universe->handles[i].process == local.process)
            return &universe->handles[i];
    return NULL;
}

/* Handles are numbers without meaning: the same memory has others in each process. */
static CUmemGenericAllocationHandle handle_create(int allocation,
                                                  CUmemGenericAllocationHandle value)
{
    for (int i = 0; i < MAX_HANDLES; i++) {
        if (universe->handles[i].value)
            continue;
        if (!value)
            value = universe_id() << 20 | universe_random(1 << 20);
        universe->handles[i] = (struct handle){
            .value = value, .process = local.process, .allocation = allocation, .refs = 1};
        universe->allocations[allocation].handle_count++;
        universe->handle_end = i < universe->handle_end ? universe->handle_end : i + 1;
        return value;
    }
    abort();
}

static CUresult create(CUmemGenericAllocationHandle *ret_handle, size_t bytes,
                       const CUmemAllocationProp *properties, unsigned long long flags)
{
    CUresult code = check_properties(properties);
    if (code)
        return code;
    if (!ret_handle || flags != 0 || bytes == 0 || !is_aligned(bytes))
        return CUDA_ERROR_INVALID_VALUE;
    int allocation =
        allocation_create(device_of(properties->location.id), bytes, ALLOCATION_VMM);
    if (allocation < 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    universe->allocations[allocation].handle_types = properties->requestedHandleTypes;
    *ret_handle = handle_create(allocation, 0);
    return CUDA_SUCCESS;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *ret_handle, size_t bytes,
                     const CUmemAllocationProp *properties, unsigned long long flags)
{
    CUresult result = call_enter(FN_cuMemCreate, NEEDS_NO_FAULT);
    return result ? result : call_leave(create(ret_handle, bytes, properties, flags));
}

static CUresult release(CUmemGenericAllocationHandle value)
{
    struct handle *handle = handle_find(value);
    if (!handle) {
        violation("R44", "a handle is released that this process does not have");
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (--handle->refs > 0)
        return CUDA_SUCCESS;
    int allocation = handle->allocation;
    *handle = (struct handle){0};
    universe->allocations[allocation].handle_count--;
    allocation_settle(allocation);
    return CUDA_SUCCESS;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    CUresult result = call_enter(FN_cuMemRelease, NEEDS_NO_FAULT);
    return result ? result : call_leave(release(handle));
}

static CUresult get_properties(CUmemAllocationProp *ret_properties,
                               CUmemGenericAllocationHandle value)
{
    const struct handle *handle = handle_find(value);
    if (!handle || !ret_properties)
        return CUDA_ERROR_INVALID_VALUE;
    const struct allocation *a = &universe->allocations[handle->allocation];
    *ret_properties = (CUmemAllocationProp){
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = a->handle_types,
        .location = {CU_MEM_LOCATION_TYPE_DEVICE, ordinal_of((int)a->device)}};
    return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *ret_properties,
                                                CUmemGenericAllocationHandle handle)
{
    CUresult result = call_enter(FN_cuMemGetAllocationPropertiesFromHandle, NEEDS_NO_FAULT);
    return result ? result : call_leave(get_properties(ret_properties, handle));
}

/* R49: the handle of the one chunk that the address is in. */
static CUresult retain(CUmemGenericAllocationHandle *ret_handle, void *address)
{
    int found = mapping_find((CUdeviceptr)(uintptr_t)address);
    if (!ret_handle || found < 0 || universe->mappings[found].kind != MAPPING_VMM)
        return CUDA_ERROR_INVALID_VALUE;
    const struct mapping *mapping = &universe->mappings[found];
    struct handle *handle = handle_find(mapping->handle);
    if (handle)
        handle->refs++;
    else
        handle_create(mapping->allocation, mapping->handle);
    *ret_handle = mapping->handle;
    return CUDA_SUCCESS;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *ret_handle, void *address)
{
    CUresult result = call_enter(FN_cuMemRetainAllocationHandle, NEEDS_NO_FAULT);
    return result ? result : call_leave(retain(ret_handle, address));
}

/* ---- descriptors ------------------------------------------------------------------------- */

static CUresult export_handle(void *ret_fd, CUmemGenericAllocationHandle value,
                              CUmemAllocationHandleType type, unsigned long long flags)
{
    const struct handle *handle = handle_find(value);
    if (!ret_fd || !handle || flags != 0 || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_INVALID_VALUE;
    if (!(universe->allocations[handle->allocation].handle_types & type))
        return CUDA_ERROR_INVALID_VALUE;
    int fd = export_create(handle->allocation);
    if (fd < 0)
        return CUDA_ERROR_OPERATING_SYSTEM;
    memcpy(ret_fd, &fd, sizeof fd);
    return CUDA_SUCCESS;
}

CUresult cuMemExportToShareableHandle(void *ret_fd, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType type, unsigned long long flags)
{
    CUresult result = call_enter(FN_cuMemExportToShareableHandle, NEEDS_NO_FAULT);
    return result ? result : call_leave(export_handle(ret_fd, handle, type, flags));
}

/* R48, R60: a device that this process does not see, it cannot have memory of. */
static CUresult import_handle(CUmemGenericAllocationHandle *ret_handle, void *fd,
                              CUmemAllocationHandleType type)
{
    if (!ret_handle || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_INVALID_VALUE;
    int allocation = export_find((int)(intptr_t)fd);
    if (allocation < 0)
        return CUDA_ERROR_INVALID_VALUE;
    int device = (int)universe->allocations[allocation].device;
    CUcontext context = context_current();
    if (ordinal_of(device) < 0)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (universe->options.mig && context && context_device(context) != device)
        return CUDA_ERROR_NOT_SUPPORTED;
    *ret_handle = handle_create(allocation, 0);
    return CUDA_SUCCESS;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *ret_handle, void *fd,
                                        CUmemAllocationHandleType type)
{
    CUresult result = call_enter(FN_cuMemImportFromShareableHandle, NEEDS_NO_FAULT);
    return result ? result : call_leave(import_handle(ret_handle, fd, type));
}

/* ---- addresses --------------------------------------------------------------------------- */

static CUresult reserve(CUdeviceptr *ret_address, size_t bytes, size_t alignment,
                        unsigned long long flags)
{
    if (!ret_address || bytes == 0 || !is_aligned(bytes) || flags != 0 ||
        (alignment & (alignment - 1)) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (alignment < granularity())
        alignment = granularity();
    *ret_address = address_try(bytes, alignment);
    if (!*ret_address)
        return CUDA_ERROR_OUT_OF_MEMORY;
    address_find(*ret_address)->is_reserved = true;
    return CUDA_SUCCESS;
}

CUresult cuMemAddressReserve(CUdeviceptr *ret_address, size_t bytes, size_t alignment,
                             CUdeviceptr hint, unsigned long long flags)
{
    (void)hint; /* the driver may ignore it, and so does the fake always */
    CUresult result = call_enter(FN_cuMemAddressReserve, NEEDS_NO_FAULT);
    return result ? result : call_leave(reserve(ret_address, bytes, alignment, flags));
}

static CUresult free_address(CUdeviceptr address, size_t bytes)
{
    const struct range *range = address_find(address);
    if (!range || !range->is_reserved || range->address != address || range->bytes != bytes ||
        mapping_overlaps(address, bytes))
        return CUDA_ERROR_INVALID_VALUE;
    address_give(address);
    return CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr address, size_t bytes)
{
    CUresult result = call_enter(FN_cuMemAddressFree, NEEDS_NO_FAULT);
    return result ? result : call_leave(free_address(address, bytes));
}

/* Whether reserved addresses begin here and go on for so many bytes. */
static bool is_reserved(CUdeviceptr address, uint64_t bytes)
{
    const struct range *range = address_find(address);
    return range && range->is_reserved && address - range->address + bytes <= range->bytes;
}

static CUresult map(CUdeviceptr address, size_t bytes, size_t off,
                    CUmemGenericAllocationHandle value, unsigned long long flags)
{
    const struct handle *handle = handle_find(value);
    if (!handle || flags != 0 || off != 0 || bytes == 0 || !is_aligned(bytes) ||
        !is_aligned(address) || bytes > universe->allocations[handle->allocation].bytes)
        return CUDA_ERROR_INVALID_VALUE;
    if (!is_reserved(address, bytes) || mapping_overlaps(address, bytes))
        return CUDA_ERROR_INVALID_VALUE;
    int mapping = mapping_create(MAPPING_VMM, handle->allocation, address, bytes);
    universe->mappings[mapping].handle = value;
    return CUDA_SUCCESS;
}

CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t off,
                  CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    CUresult result = call_enter(FN_cuMemMap, NEEDS_NO_FAULT);
    return result ? result : call_leave(map(address, bytes, off, handle, flags));
}

/*
 * Whether mappings fill this range, each of them whole: no call takes a part of one.
 * `do_one` is called for each.
 */
static bool for_whole_mappings(CUdeviceptr address, uint64_t bytes, void (*do_one)(int, void *),
                               void *argument)
{
    CUdeviceptr end = address + bytes;
    while (address < end) {
        int found = mapping_find(address);
        if (found < 0)
            return false;
        const struct mapping *mapping = &universe->mappings[found];
        if (mapping->kind != MAPPING_VMM || mapping->address != address ||
            mapping->bytes > end - address)
            return false;
        address += mapping->bytes;
        if (do_one)
            do_one(found, argument);
    }
    return true;
}

static void unmap_one(int mapping, void *argument)
{
    (void)argument;
    mapping_destroy(mapping);
}

static CUresult unmap(CUdeviceptr address, size_t bytes)
{
    if (bytes == 0 || !for_whole_mappings(address, bytes, NULL, NULL))
        return CUDA_ERROR_INVALID_VALUE;
    if (streams_touch(address, bytes))
        violation("R46", "memory is unmapped that work in flight uses");
    for_whole_mappings(address, bytes, unmap_one, NULL);
    return CUDA_SUCCESS;
}

CUresult cuMemUnmap(CUdeviceptr address, size_t bytes)
{
    CUresult result = call_enter(FN_cuMemUnmap, NEEDS_NO_FAULT);
    return result ? result : call_leave(unmap(address, bytes));
}

static void set_one(int mapping, void *argument)
{
    const CUmemAccessDesc *access = argument;
    universe->mappings[mapping].access[device_of(access->location.id)] = (uint8_t)access->flags;
}

/* @return 0, or the code for an access that the memory mapped there cannot have */
static CUresult check_access(CUdeviceptr address, const CUmemAccessDesc *access)
{
    if (access->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
        (access->flags != 0 && access->flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
         access->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE))
        return CUDA_ERROR_INVALID_VALUE;
    int device = device_of(access->location.id);
    if (device < 0)
        return CUDA_ERROR_INVALID_DEVICE;
    const struct mapping *mapping = &universe->mappings[mapping_find(address)];
    int home = (int)universe->allocations[mapping->allocation].device;
    return universe->options.mig && home != device ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
}

static CUresult set_access(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *accesses,
                           size_t count)
{
    if (!accesses || count == 0 || bytes == 0 ||
        !for_whole_mappings(address, bytes, NULL, NULL))
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++) {
        CUresult code = check_access(address, &accesses[i]);
        if (code)
            return code;
    }
    for (size_t i = 0; i < count; i++) {
        CUmemAccessDesc access = accesses[i];
        for_whole_mappings(address, bytes, set_one, &access);
    }
    return CUDA_SUCCESS;
}

CUresult cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *accesses,
                        size_t count)
{
    CUresult result = call_enter(FN_cuMemSetAccess, NEEDS_NO_FAULT);
    return result ? result : call_leave(set_access(address, bytes, accesses, count));
}
