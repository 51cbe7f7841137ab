/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses of this process that lead to device memory, and what is mapped at them. */
#include <stdlib.h>
#include <sys/mman.h>

#include "fakecuda/state.h"

/* ---- ranges ------------------------------------------------------------------------------ */

/*
 * A range of addresses without access, at a random place: so it differs in processes that a
 * fork made, too.
 */
static char *map_somewhere(uint64_t bytes, uint64_t alignment)
{
    uint64_t skip = (universe_random(4096) + 1) * BLOCK_BYTES;
    size_t whole = bytes + alignment + skip;
    char *start =
        mmap(NULL, whole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (start == MAP_FAILED)
        return NULL;
    uint64_t address = ((uint64_t)(uintptr_t)start + skip + alignment - 1) & ~(alignment - 1);
    char *first = (char *)(uintptr_t)address;
    munmap(start, (size_t)(first - start));
    munmap(first + bytes, (size_t)(start + whole - first) - bytes);
    return first;
}

/* R10: an address that was given back is the first to be used again. */
static struct range *range_again(uint64_t bytes, uint64_t alignment)
{
    for (struct range *range = local.ranges; range; range = range->next)
        if (!range->is_taken && range->bytes == bytes && range->address % alignment == 0)
            return range;
    return NULL;
}

CUdeviceptr address_try(uint64_t bytes, uint64_t alignment)
{
    struct range *range = range_again(bytes, alignment);
    if (!range) {
        char *start = map_somewhere(bytes, alignment);
        if (!start)
            return 0;
        range = calloc(1, sizeof *range);
        if (!range)
            abort();
        range->address = (CUdeviceptr)(uintptr_t)start;
        range->bytes = bytes;
        range->next = local.ranges;
        local.ranges = range;
    }
    range->is_taken = true;
    return range->address;
}

CUdeviceptr address_take(uint64_t bytes, uint64_t alignment)
{
    CUdeviceptr address = address_try(bytes, alignment);
    if (!address)
        abort();
    return address;
}

struct range *address_find(CUdeviceptr address)
{
    for (struct range *range = local.ranges; range; range = range->next)
        if (range->is_taken && address >= range->address &&
            address - range->address < range->bytes)
            return range;
    return NULL;
}

void address_give(CUdeviceptr address)
{
    struct range *range = address_find(address);
    if (range)
        range->is_taken = range->is_reserved = false;
}

void addresses_reset(void)
{
    while (local.ranges) {
        struct range *range = local.ranges;
        local.ranges = range->next;
        munmap((void *)(uintptr_t)range->address, range->bytes);
        free(range);
    }
}

/* ---- mappings ---------------------------------------------------------------------------- */

int mapping_create(uint32_t kind, int allocation, CUdeviceptr address, uint64_t bytes)
{
    for (int i = 0; i < MAX_MAPPINGS; i++) {
        if (universe->mappings[i].kind)
            continue;
        universe->mappings[i] = (struct mapping){.kind = kind,
                                                 .process = local.process,
                                                 .allocation = allocation,
                                                 .refs = 1,
                                                 .address = address,
                                                 .bytes = bytes,
                                                 .buffer_id = universe_id()};
        universe->allocations[allocation].mapping_count++;
        universe->mapping_end = i < universe->mapping_end ? universe->mapping_end : i + 1;
        return i;
    }
    abort();
}

void mapping_destroy(int mapping)
{
    struct mapping gone = universe->mappings[mapping];
    universe->mappings[mapping] = (struct mapping){0};
    universe->allocations[gone.allocation].mapping_count--;
    allocation_settle(gone.allocation);
    piece_settle(gone.piece);
}

int mapping_find(CUdeviceptr address)
{
    for (int i = 0; i < universe->mapping_end; i++) {
        const struct mapping *mapping = &universe->mappings[i];
        if (mapping->kind && mapping->process == local.process && address >= mapping->address &&
            address - mapping->address < mapping->bytes)
            return i;
    }
    return -1;
}

bool mapping_overlaps(CUdeviceptr address, uint64_t bytes)
{
    for (int i = 0; i < universe->mapping_end; i++) {
        const struct mapping *mapping = &universe->mappings[i];
        if (mapping->kind && mapping->process == local.process &&
            address < mapping->address + mapping->bytes && mapping->address < address + bytes)
            return true;
    }
    return false;
}
