/* SPDX-License-Identifier: Apache-2.0 */
/* What the driver says of an address: attributes and the range of its allocation. */
#include <stdlib.h>

#include "fakecuda/exports.h"
#include "fakecuda/state.h"

/* The range of what was allocated; of an import it is the whole block. */
struct extent {
    CUdeviceptr base;
    uint64_t bytes;
    uint64_t buffer_id;
};

static bool extent_of(CUdeviceptr address, struct extent *ret_extent)
{
    int found = mapping_find(address);
    if (found < 0)
        return false;
    const struct mapping *mapping = &universe->mappings[found];
    *ret_extent = (struct extent){mapping->address, mapping->bytes, mapping->buffer_id};
    if (mapping->kind != MAPPING_OWN)
        return true;
    const struct piece *piece = piece_at(mapping, address);
    if (piece)
        *ret_extent = (struct extent){mapping->address + piece->off, piece->bytes, piece->id};
    return piece != NULL;
}

static CUresult get_range(CUdeviceptr *ret_base, size_t *ret_bytes, CUdeviceptr address)
{
    struct extent extent;
    if (!extent_of(address, &extent))
        return CUDA_ERROR_NOT_FOUND;
    if (ret_base)
        *ret_base = extent.base;
    if (ret_bytes)
        *ret_bytes = extent.bytes;
    return CUDA_SUCCESS;
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *ret_base, size_t *ret_bytes, CUdeviceptr address)
{
    CUresult result = call_enter(FN_cuMemGetAddressRange_v2, NEEDS_CONTEXT);
    return result ? result : call_leave(get_range(ret_base, ret_bytes, address));
}

/* ---- attributes -------------------------------------------------------------------------- */

struct facts {
    unsigned memory_type;
    int ordinal;
    bool is_legacy;
    bool is_mapped;
    unsigned handle_types;
    uint64_t buffer_id;
};

enum { NO_DEVICE = -2 };

static struct facts facts_of_host(CUdeviceptr address)
{
    struct facts facts = {.ordinal = NO_DEVICE};
    if (registered_at(address) || registered_find((const void *)(uintptr_t)address, 1)) {
        facts.memory_type = CU_MEMORYTYPE_HOST;
        facts.is_mapped = true;
        facts.ordinal = context_current() ? context_current()->ordinal : NO_DEVICE;
    }
    return facts;
}

static struct facts facts_of(CUdeviceptr address)
{
    struct extent extent;
    if (!extent_of(address, &extent))
        return facts_of_host(address);
    const struct mapping *mapping = &universe->mappings[mapping_find(address)];
    const struct allocation *a = &universe->allocations[mapping->allocation];
    return (struct facts){.memory_type = CU_MEMORYTYPE_DEVICE,
                          .ordinal = ordinal_of((int)a->device),
                          .is_legacy = mapping->kind == MAPPING_OWN,
                          .is_mapped = true,
                          .handle_types = a->handle_types,
                          .buffer_id = extent.buffer_id};
}

/* A truth is one byte: what the caller's variable held in the others stays there. */
static bool put(void *data, CUpointer_attribute attribute, const struct facts *facts)
{
    const bool no = false;
    void *const none = NULL;
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        return memcpy(data, &facts->memory_type, sizeof facts->memory_type);
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        return memcpy(data, &facts->buffer_id, sizeof facts->buffer_id);
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        return memcpy(data, &no, sizeof no);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        return memcpy(data, &facts->ordinal, sizeof facts->ordinal);
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        return memcpy(data, &facts->is_legacy, sizeof facts->is_legacy);
    case CU_POINTER_ATTRIBUTE_MAPPED:
        return memcpy(data, &facts->is_mapped, sizeof facts->is_mapped);
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        return memcpy(data, &facts->handle_types, sizeof facts->handle_types);
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        return memcpy(data, &none, sizeof none);
    default:
        return false;
    }
}

static CUresult get_attributes(unsigned count, const CUpointer_attribute *attributes,
                               void **data, CUdeviceptr address)
{
    if (count == 0 || !attributes || !data)
        return CUDA_ERROR_INVALID_VALUE;
    struct facts facts = facts_of(address);
    for (unsigned i = 0; i < count; i++)
        if (!data[i] || !put(data[i], attributes[i], &facts))
            return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute *attributes, void **data,
                                CUdeviceptr address)
{
    CUresult result = call_enter(FN_cuPointerGetAttributes, NEEDS_NO_FAULT);
    return result ? result : call_leave(get_attributes(count, attributes, data, address));
}
