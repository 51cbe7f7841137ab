/* SPDX-License-Identifier: Apache-2.0 */
/* Handles of memory of cuMemAlloc(): R5, R14 to R24. */
#include <stdlib.h>
#include <time.h>

#include "fakecuda/exports.h"
#include "fakecuda/state.h"

/* What the 64 bytes of a handle hold. They are never the same for two allocations. */
struct content {
    uint64_t piece;
    uint64_t instance;
    int32_t pid;
    int32_t reserved;
    uint64_t check;
};

static uint64_t check_of(const struct content *content)
{
    uint64_t mixed = (content->piece ^ MAGIC) * 0x9e3779b97f4a7c15;
    return mixed + content->instance + (uint64_t)content->pid;
}

/* ---- getting ----------------------------------------------------------------------------- */

static CUresult get_handle(CUipcMemHandle *ret_handle, CUdeviceptr address)
{
    int found = mapping_find(address);
    if (!ret_handle || found < 0 || universe->mappings[found].kind != MAPPING_OWN)
        return CUDA_ERROR_INVALID_VALUE;
    const struct mapping *mapping = &universe->mappings[found];
    const struct piece *piece = piece_at(mapping, address);
    if (!piece || (universe->options.strict_base && mapping->address + piece->off != address))
        return CUDA_ERROR_INVALID_VALUE;
    struct content content = {
        .piece = piece->id, .instance = me()->instance, .pid = me()->fake_pid};
    content.check = check_of(&content);
    memset(ret_handle, 0, sizeof *ret_handle);
    memcpy(ret_handle, &content, sizeof content);
    return CUDA_SUCCESS;
}

CUresult cuIpcGetMemHandle(CUipcMemHandle *ret_handle, CUdeviceptr address)
{
    CUresult result = call_enter(FN_cuIpcGetMemHandle, NEEDS_CONTEXT);
    return result ? result : call_leave(get_handle(ret_handle, address));
}

/* ---- opening ----------------------------------------------------------------------------- */

static bool is_import(const struct mapping *mapping)
{
    return mapping->kind == MAPPING_IMPORT && mapping->process == local.process;
}

static struct allocation *allocation_of(const struct mapping *mapping)
{
    return &universe->allocations[mapping->allocation];
}

/* R5, R19: what this process has open already may be in the way. */
static CUresult check_others(const struct content *content, const struct allocation *wanted)
{
    CUcontext context = context_current();
    for (int i = 0; i < universe->mapping_end; i++) {
        const struct mapping *other = &universe->mappings[i];
        if (!is_import(other) || allocation_of(other)->owner_instance != content->instance)
            continue;
        const struct allocation *a = allocation_of(other);
        if (other->context != context && other->context->device == context->device)
            return CUDA_ERROR_INVALID_CONTEXT;
        if (a->id != wanted->id && a->owner_address < wanted->owner_address + wanted->bytes &&
            wanted->owner_address < a->owner_address + a->bytes)
            return CUDA_ERROR_ALREADY_MAPPED;
    }
    return CUDA_SUCCESS;
}

/* R17: the same handle in the same context is open already. */
static struct mapping *opened_before(uint64_t piece)
{
    for (int i = 0; i < universe->mapping_end; i++) {
        struct mapping *mapping = &universe->mappings[i];
        if (is_import(mapping) && mapping->piece == piece &&
            mapping->context == context_current())
            return mapping;
    }
    return NULL;
}

/* R23: an open takes time, the more the larger the memory is. */
static void take_time(uint64_t bytes)
{
    uint64_t ns = universe->options.open_cost_ns_per_mib * (bytes >> 20);
    if (ns == 0)
        return;
    universe_unlock();
    nanosleep(&(struct timespec){.tv_sec = (time_t)(ns / 1000000000),
                                 .tv_nsec = (long)(ns % 1000000000)},
              NULL);
    universe_lock();
}

static CUdeviceptr open_new(const struct piece *piece)
{
    uint64_t id = piece->id, off = piece->off;
    uint64_t bytes = universe->allocations[piece->allocation].bytes;
    CUdeviceptr address = address_take(bytes, BLOCK_BYTES);
    int found = mapping_create(MAPPING_IMPORT, piece->allocation, address, bytes);
    universe->mappings[found].context = context_current();
    universe->mappings[found].piece = id;
    universe->mappings[found].piece_off = off;
    universe->opens++;
    take_time(bytes);
    return address + off;
}

/* R16, R18: who may open the handle at all. */
static CUresult check_handle(const struct content *content, struct piece **ret_piece)
{
    if (content->check != check_of(content))
        return CUDA_ERROR_INVALID_VALUE;
    if (content->pid == me()->fake_pid)
        return CUDA_ERROR_INVALID_CONTEXT;
    processes_sweep();
    struct piece *piece = piece_of(content->piece);
    if (!piece || piece->is_freed)
        return CUDA_ERROR_INVALID_VALUE;
    *ret_piece = piece;
    return CUDA_SUCCESS;
}

static CUresult open_handle(CUdeviceptr *ret_address, const CUipcMemHandle *handle,
                            unsigned flags)
{
    struct content content;
    struct piece *piece = NULL;
    memcpy(&content, handle, sizeof content);
    if (!ret_address || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult code = check_handle(&content, &piece);
    if (code)
        return code;
    const struct allocation *a = &universe->allocations[piece->allocation];
    code = check_others(&content, a);
    if (code)
        return code;
    if (universe->options.mig && context_device(context_current()) != (int)a->device)
        return CUDA_ERROR_MAP_FAILED;
    struct mapping *before = opened_before(piece->id);
    if (before)
        before->refs++;
    *ret_address = before ? before->address + piece->off : open_new(piece);
    return CUDA_SUCCESS;
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *ret_address, CUipcMemHandle handle, unsigned flags)
{
    CUresult result = call_enter(FN_cuIpcOpenMemHandle_v2, NEEDS_CONTEXT);
    return result ? result : call_leave(open_handle(ret_address, &handle, flags));
}

uint64_t fake_opens(void)
{
    if (!universe_open())
        return 0;
    universe_lock();
    uint64_t opens = universe->opens;
    universe_unlock();
    return opens;
}

/* ---- closing ----------------------------------------------------------------------------- */

static CUresult close_handle(CUdeviceptr address)
{
    int found = mapping_find(address);
    if (found < 0 || !is_import(&universe->mappings[found]))
        return CUDA_ERROR_INVALID_VALUE;
    struct mapping *mapping = &universe->mappings[found];
    if (mapping->address + mapping->piece_off != address)
        return CUDA_ERROR_INVALID_VALUE;
    if (mapping->context != context_current()) {
        violation("R20", "a handle is closed in another context than it was opened in");
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    if (--mapping->refs > 0)
        return CUDA_SUCCESS;
    if (streams_touch(mapping->address, mapping->bytes))
        violation("R20", "a handle is closed while work in flight uses the memory");
    address_give(mapping->address);
    mapping_destroy(found);
    return CUDA_SUCCESS;
}

CUresult cuIpcCloseMemHandle(CUdeviceptr address)
{
    CUresult result = call_enter(FN_cuIpcCloseMemHandle, NEEDS_CONTEXT);
    return result ? result : call_leave(close_handle(address));
}
