/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of cuMemAlloc(), which ends with its process: R9 to R13. Small pieces share a block,
 * as the driver may do; between them are bytes that nobody may write.
 */
#include <stdlib.h>

#include "fakecuda/exports.h"
#include "fakecuda/state.h"

enum { CANARY = 0xCA, ALIGNMENT = 512, JUNK = 0xDD };

static struct allocation *allocation_of(const struct mapping *mapping)
{
    return &universe->allocations[mapping->allocation];
}

static char *bytes_of(int allocation)
{
    const struct allocation *a = &universe->allocations[allocation];
    return device_memory((int)a->device) + a->off;
}

/* ---- pieces ------------------------------------------------------------------------------ */

struct piece *piece_of(uint64_t id)
{
    for (int i = 0; id && i < universe->piece_end; i++)
        if (universe->pieces[i].id == id)
            return &universe->pieces[i];
    return NULL;
}

struct piece *piece_at(const struct mapping *mapping, CUdeviceptr address)
{
    uint64_t off = address - mapping->address;
    for (int i = 0; i < universe->piece_end; i++) {
        struct piece *piece = &universe->pieces[i];
        if (piece->id && !piece->is_freed && piece->allocation == mapping->allocation &&
            off >= piece->off && off - piece->off < piece->bytes)
            return piece;
    }
    return NULL;
}

bool legacy_is_freed(const struct mapping *mapping, CUdeviceptr address)
{
    if (mapping->kind == MAPPING_OWN)
        return piece_at(mapping, address) == NULL;
    const struct piece *opened = piece_of(mapping->piece);
    return !opened || opened->is_freed || allocation_of(mapping)->is_freed;
}

/* The first piece that begins at or after an offset; NULL if there is none. */
static const struct piece *piece_from(int allocation, uint64_t off)
{
    const struct piece *first = NULL;
    for (int i = 0; i < universe->piece_end; i++) {
        const struct piece *piece = &universe->pieces[i];
        if (piece->id && piece->allocation == allocation && piece->off >= off &&
            (!first || piece->off < first->off))
            first = piece;
    }
    return first;
}

static bool is_canary(const char *bytes, uint64_t count)
{
    return count == 0 ||
           ((unsigned char)bytes[0] == CANARY && memcmp(bytes, bytes + 1, count - 1) == 0);
}

/* R9: the bytes between pieces are as they were. */
static void check_canary(int allocation)
{
    char *bytes = bytes_of(allocation);
    uint64_t end = universe->allocations[allocation].bytes;
    for (uint64_t off = 0; off < end;) {
        const struct piece *next = piece_from(allocation, off);
        uint64_t stop = next ? next->off : end;
        if (!is_canary(bytes + off, stop - off)) {
            violation("R9", "memory beside what cuMemAlloc() returned was written");
            memset(bytes + off, CANARY, stop - off);
        }
        off = next ? next->off + next->bytes : end;
    }
}

static void piece_remove(struct piece *piece)
{
    memset(bytes_of(piece->allocation) + piece->off, CANARY, piece->bytes);
    *piece = (struct piece){0};
}

void pieces_drop(int allocation)
{
    for (int i = 0; i < universe->piece_end; i++)
        if (universe->pieces[i].id && universe->pieces[i].allocation == allocation)
            universe->pieces[i] = (struct piece){0};
}

static bool is_opened(uint64_t piece)
{
    for (int i = 0; i < universe->mapping_end; i++)
        if (universe->mappings[i].kind == MAPPING_IMPORT &&
            universe->mappings[i].piece == piece)
            return true;
    return false;
}

void piece_settle(uint64_t id)
{
    struct piece *piece = piece_of(id);
    if (piece && piece->is_freed && !is_opened(id))
        piece_remove(piece);
}

static bool has_pieces(int allocation)
{
    for (int i = 0; i < universe->piece_end; i++)
        if (universe->pieces[i].id && universe->pieces[i].allocation == allocation &&
            !universe->pieces[i].is_freed)
            return true;
    return false;
}

/* ---- allocating -------------------------------------------------------------------------- */

static uint64_t align(uint64_t bytes)
{
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* The lowest place in a block, with a gap behind it. @return UINT64_MAX if there is none */
static uint64_t place_in(int allocation, uint64_t bytes)
{
    uint64_t off = 0, end = universe->allocations[allocation].bytes;
    for (;;) {
        const struct piece *next = piece_from(allocation, off);
        uint64_t stop = next ? next->off : end;
        if (stop >= off && stop - off >= align(bytes) + ALIGNMENT)
            return off;
        if (!next)
            return UINT64_MAX;
        off = align(next->off + next->bytes) + ALIGNMENT;
    }
}

static CUdeviceptr piece_create(int mapping, uint64_t off, uint64_t bytes)
{
    int allocation = universe->mappings[mapping].allocation;
    for (int i = 0; i < MAX_PIECES; i++) {
        if (universe->pieces[i].id)
            continue;
        universe->pieces[i] = (struct piece){
            .id = universe_id(), .allocation = allocation, .off = off, .bytes = bytes};
        universe->piece_end = i < universe->piece_end ? universe->piece_end : i + 1;
        memset(bytes_of(allocation) + off, JUNK, bytes < BLOCK_BYTES ? bytes : BLOCK_BYTES);
        return universe->mappings[mapping].address + off;
    }
    abort();
}

/* @return the mapping, or -1 if there is no memory */
static int block_create(uint64_t bytes)
{
    CUcontext context = context_current();
    uint64_t whole = (bytes + BLOCK_BYTES - 1) / BLOCK_BYTES * BLOCK_BYTES;
    int allocation = allocation_create(context_device(context), whole, ALLOCATION_LEGACY);
    if (allocation < 0)
        return -1;
    CUdeviceptr address = address_take(whole, BLOCK_BYTES);
    universe->allocations[allocation].owner_address = address;
    int mapping = mapping_create(MAPPING_OWN, allocation, address, whole);
    universe->mappings[mapping].context = context;
    char *start = bytes_of(allocation);
    if (bytes <= BLOCK_BYTES / 2)
        memset(start, CANARY, whole);
    else
        memset(start + bytes, CANARY, whole - bytes);
    return mapping;
}

static CUdeviceptr take_small(uint64_t bytes)
{
    for (int i = 0; i < universe->mapping_end; i++) {
        const struct mapping *mapping = &universe->mappings[i];
        if (mapping->kind != MAPPING_OWN || mapping->process != local.process ||
            mapping->context != context_current() || mapping->bytes != BLOCK_BYTES)
            continue;
        uint64_t off = place_in(mapping->allocation, bytes);
        if (off != UINT64_MAX)
            return piece_create(i, off, bytes);
    }
    return 0;
}

static CUresult alloc(CUdeviceptr *ret_address, size_t bytes)
{
    if (!ret_address || bytes == 0)
        return CUDA_ERROR_INVALID_VALUE;
    CUdeviceptr address = bytes <= BLOCK_BYTES / 2 ? take_small(bytes) : 0;
    if (!address) {
        int mapping = block_create(bytes);
        if (mapping < 0)
            return CUDA_ERROR_OUT_OF_MEMORY;
        address = piece_create(mapping, 0, bytes);
    }
    *ret_address = address;
    return CUDA_SUCCESS;
}

CUresult cuMemAlloc_v2(CUdeviceptr *ret_address, size_t bytes)
{
    CUresult result = call_enter(FN_cuMemAlloc_v2, NEEDS_CONTEXT);
    return result ? result : call_leave(alloc(ret_address, bytes));
}

/* ---- freeing ----------------------------------------------------------------------------- */

/* The world decides how long an importer still has what its owner freed. */
static void piece_free(struct piece *piece)
{
    if (is_opened(piece->id) && universe->options.world == FAKE_KEEP)
        piece->is_freed = true;
    else
        piece_remove(piece);
}

/* The owner lets go of a block without pieces. */
static void block_settle(int mapping)
{
    int allocation = universe->mappings[mapping].allocation;
    if (has_pieces(allocation))
        return;
    struct allocation *a = &universe->allocations[allocation];
    if (universe->mappings[mapping].process == local.process)
        address_give(universe->mappings[mapping].address);
    a->is_freed = true;
    a->owner = -1;
    if (a->mapping_count > 1 && universe->options.world == FAKE_RECYCLE)
        allocation_recycle(allocation);
    mapping_destroy(mapping);
}

static CUresult free_memory(CUdeviceptr address)
{
    int found = mapping_find(address);
    if (found < 0 || universe->mappings[found].kind != MAPPING_OWN)
        return CUDA_ERROR_INVALID_VALUE;
    struct mapping *mapping = &universe->mappings[found];
    struct piece *piece = piece_at(mapping, address);
    if (!piece || mapping->address + piece->off != address)
        return CUDA_ERROR_INVALID_VALUE;
    if (streams_touch(address, piece->bytes))
        violation("R12", "memory is freed that work in flight uses");
    if (is_opened(piece->id))
        processes_sweep();
    if (is_opened(piece->id))
        violation("R13", "memory is freed that another process has open");
    check_canary(mapping->allocation);
    piece_free(piece);
    block_settle(found);
    return CUDA_SUCCESS;
}

CUresult cuMemFree_v2(CUdeviceptr address)
{
    CUresult result = call_enter(FN_cuMemFree_v2, NEEDS_CONTEXT);
    return result ? result : call_leave(free_memory(address));
}

static void free_block(int mapping)
{
    int allocation = universe->mappings[mapping].allocation;
    for (int i = 0; i < universe->piece_end; i++) {
        struct piece *piece = &universe->pieces[i];
        if (piece->id && !piece->is_freed && piece->allocation == allocation)
            piece_free(piece);
    }
    block_settle(mapping);
}

void legacy_drop(int process)
{
    for (int i = 0; i < universe->mapping_end; i++)
        if (universe->mappings[i].kind == MAPPING_OWN &&
            universe->mappings[i].process == process)
            free_block(i);
}

void legacy_end_context(CUcontext context)
{
    for (int i = 0; i < universe->mapping_end; i++) {
        const struct mapping *mapping = &universe->mappings[i];
        if (mapping->kind == MAPPING_OWN && mapping->process == local.process &&
            mapping->context == context)
            free_block(i);
    }
}

/* R22 is for who ends in order: one that is killed could not wait for those who use it. */
void legacy_check_end(void)
{
    for (int i = 0; i < universe->piece_end; i++) {
        const struct piece *piece = &universe->pieces[i];
        if (!piece->id || piece->is_freed ||
            universe->allocations[piece->allocation].owner != local.process)
            continue;
        check_canary(piece->allocation);
        if (is_opened(piece->id))
            violation("R22", "the process ends while another one has its memory open");
        violation("R11", "memory of cuMemAlloc() is not freed");
    }
}
