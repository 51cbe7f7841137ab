/* SPDX-License-Identifier: Apache-2.0 */
/* What an address leads to: device memory, or memory of the host that is registered. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "fakecuda/exports.h"
#include "fakecuda/state.h"

/* ---- device memory ----------------------------------------------------------------------- */

static void aim(int found, CUdeviceptr address, struct target *ret_target)
{
    const struct mapping *mapping = &universe->mappings[found];
    const struct allocation *a = &universe->allocations[mapping->allocation];
    uint64_t off = address - mapping->address;
    *ret_target = (struct target){.bytes = device_memory((int)a->device) + a->off + off,
                                  .device = (int)a->device,
                                  .off = a->off + off,
                                  .length = mapping->bytes - off,
                                  .allocation = mapping->allocation};
}

struct registered *registered_at(CUdeviceptr address)
{
    for (int i = 0; i < MAX_REGISTERED; i++) {
        struct registered *r = &local.registered[i];
        if (r->host && r->device && address >= r->device && address - r->device < r->bytes)
            return r;
    }
    return NULL;
}

static bool aim_host(CUdeviceptr address, struct target *ret_target)
{
    const struct registered *r = registered_at(address);
    if (!r)
        return false;
    uint64_t off = address - r->device;
    *ret_target = (struct target){
        .bytes = r->host + off, .device = -1, .off = off, .length = r->bytes - off};
    return true;
}

bool target_find(CUdeviceptr address, struct target *ret_target)
{
    int found = mapping_find(address);
    if (found < 0)
        return aim_host(address, ret_target);
    aim(found, address, ret_target);
    return true;
}

/* R12, R13, R22: the world decides what becomes of memory that was freed. */
static bool may_use_freed(const struct mapping *mapping, CUdeviceptr address)
{
    if (!legacy_is_freed(mapping, address))
        return true;
    violation(mapping->kind == MAPPING_IMPORT ? "R13" : "R12",
              "work uses memory that its owner has freed");
    return universe->options.world != FAKE_FAULT;
}

static bool may_access(const struct mapping *mapping, CUdeviceptr address, int device,
                       bool writes)
{
    if (mapping->kind == MAPPING_VMM) {
        uint8_t access = mapping->access[device];
        return writes ? access == CU_MEM_ACCESS_FLAGS_PROT_READWRITE : access != 0;
    }
    int home = (int)universe->allocations[mapping->allocation].device;
    return (home == device || !universe->options.mig) && may_use_freed(mapping, address);
}

bool target_access(CUcontext context, CUdeviceptr address, bool writes,
                   struct target *ret_target)
{
    int found = mapping_find(address);
    if (found >= 0 && !may_access(&universe->mappings[found], address, context->device, writes))
        return false;
    if (!target_find(address, ret_target))
        return false;
    const struct registered *r = found < 0 ? registered_at(address) : NULL;
    return !r || !writes || !(r->flags & CU_MEMHOSTREGISTER_READ_ONLY);
}

/* Read or write without any rule. */
static int move(CUdeviceptr ptr, char *buffer, size_t bytes, bool writes)
{
    struct target target;
    if (!universe || local.pid != getpid())
        return 1;
    universe_lock();
    bool is_there = target_find(ptr, &target) && target.length >= bytes;
    if (is_there && writes)
        memcpy(target.bytes, buffer, bytes);
    else if (is_there)
        memcpy(buffer, target.bytes, bytes);
    universe_unlock();
    return is_there ? 0 : 1;
}

int fake_peek(CUdeviceptr ptr, void *buffer, size_t bytes)
{
    return move(ptr, buffer, bytes, false);
}

int fake_poke(CUdeviceptr ptr, const void *buffer, size_t bytes)
{
    char *copy = malloc(bytes ? bytes : 1);
    if (!copy)
        return 1;
    memcpy(copy, buffer, bytes);
    int result = move(ptr, copy, bytes, true);
    free(copy);
    return result;
}

/* ---- registered memory of the host ------------------------------------------------------- */

struct registered *registered_find(const void *host, uint64_t bytes)
{
    const char *start = host;
    for (int i = 0; i < MAX_REGISTERED; i++) {
        struct registered *r = &local.registered[i];
        if (r->host && start >= r->host && start + bytes <= r->host + r->bytes)
            return r;
    }
    return NULL;
}

static bool overlaps_registered(const char *start, uint64_t bytes)
{
    for (int i = 0; i < MAX_REGISTERED; i++) {
        const struct registered *r = &local.registered[i];
        if (r->host && start < r->host + r->bytes && r->host < start + bytes)
            return true;
    }
    return false;
}

struct line {
    uint64_t start;
    uint64_t end;
    char access[8];
    uint64_t off;
    uint64_t space;
    uint64_t inode;
};

static bool read_line(const char *text, struct line *line)
{
    unsigned long long start, end, off, inode;
    unsigned major, minor;
    if (sscanf(text, "%llx-%llx %7s %llx %x:%x %llu", &start, &end, line->access, &off, &major,
               &minor, &inode) != 7)
        return false;
    line->start = start;
    line->end = end;
    line->off = off;
    line->space = (uint64_t)major << 32 | minor;
    line->inode = inode;
    return true;
}

/*
 * Whether the range is mapped and may be accessed so; then say which part of which file it
 * is, so that a word in it is known to be the same in another process.
 */
bool registered_locate(struct registered *r)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    uint64_t at = (uint64_t)(uintptr_t)r->host, end = at + r->bytes;
    bool writes = !(r->flags & CU_MEMHOSTREGISTER_READ_ONLY);
    char text[512];
    struct line line;
    while (maps && at < end && fgets(text, sizeof text, maps)) {
        if (!read_line(text, &line) || line.end <= at)
            continue;
        if (line.start > at || line.access[0] != 'r' || (writes && line.access[1] != 'w'))
            break;
        if (at == (uint64_t)(uintptr_t)r->host) {
            bool is_shared = line.access[3] == 's';
            r->space = is_shared ? line.space + 1000 : 1000 + me()->instance;
            r->inode = is_shared ? line.inode : 0;
            r->off = is_shared ? line.off + (at - line.start) : at;
        }
        at = line.end;
    }
    if (maps)
        fclose(maps);
    return at >= end;
}

static CUresult host_register(void *host, size_t bytes, unsigned flags)
{
    const unsigned known = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP |
                           CU_MEMHOSTREGISTER_READ_ONLY;
    if (!host || bytes == 0 || flags & ~known)
        return CUDA_ERROR_INVALID_VALUE;
    if (overlaps_registered(host, bytes))
        return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    struct registered made = {.host = host, .bytes = bytes, .flags = flags};
    if (!registered_locate(&made))
        return CUDA_ERROR_INVALID_VALUE;
    for (int i = 0; i < MAX_REGISTERED; i++) {
        if (local.registered[i].host)
            continue;
        if (flags & CU_MEMHOSTREGISTER_DEVICEMAP)
            made.device = address_take((bytes + PAGE - 1) / PAGE * PAGE, PAGE);
        local.registered[i] = made;
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemHostRegister_v2(void *host, size_t bytes, unsigned flags)
{
    CUresult result = call_enter(FN_cuMemHostRegister_v2, NEEDS_CONTEXT);
    return result ? result : call_leave(host_register(host, bytes, flags));
}

static CUresult host_unregister(void *host)
{
    struct registered *r = host ? registered_find(host, 1) : NULL;
    if (!r)
        return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    if (r->host != host)
        return CUDA_ERROR_INVALID_VALUE;
    if (streams_touch((CUdeviceptr)(uintptr_t)host, r->bytes) ||
        (r->device && streams_touch(r->device, r->bytes)))
        violation("R52", "memory of the host is unregistered that work in flight uses");
    if (r->device)
        address_give(r->device);
    *r = (struct registered){0};
    return CUDA_SUCCESS;
}

CUresult cuMemHostUnregister(void *host)
{
    CUresult result = call_enter(FN_cuMemHostUnregister, NEEDS_CONTEXT);
    return result ? result : call_leave(host_unregister(host));
}

static CUresult get_device_pointer(CUdeviceptr *ret_address, const char *host, unsigned flags)
{
    const struct registered *r = host ? registered_find(host, 1) : NULL;
    if (!ret_address || flags != 0 || !r || !r->device)
        return CUDA_ERROR_INVALID_VALUE;
    *ret_address = r->device + (CUdeviceptr)(host - r->host);
    return CUDA_SUCCESS;
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *ret_address, void *host, unsigned flags)
{
    CUresult result = call_enter(FN_cuMemHostGetDevicePointer_v2, NEEDS_CONTEXT);
    return result ? result : call_leave(get_device_pointer(ret_address, host, flags));
}

void registered_check_end(void)
{
    for (int i = 0; i < MAX_REGISTERED; i++)
        if (local.registered[i].host)
            violation("R52", "memory of the host is still registered: %llu bytes",
                      (unsigned long long)local.registered[i].bytes);
}
