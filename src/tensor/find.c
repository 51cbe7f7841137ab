/* SPDX-License-Identifier: Apache-2.0 */
/*
 * find: finds the storage that contains an address. The invariants are in tensor.c.
 *
 * In the arena, the number of a block gives its address, and an address gives the number. The
 * private count of local references says whether this process holds the block. Shared memory is
 * read only after this call has taken a local reference, so that the block cannot be freed and
 * reused meanwhile.
 */
#include "tensor/build.h"

/*
 * The payload block at an offset of the arena; id 0: there is none. pre: `at` is in the arena
 */
static tni_block block_at(const struct tni_geometry *g, uint64_t at)
{
    uint32_t c = g->host_classes - 1;
    while (c >= TNI_SMALL_CLASS && g->classes[c].arena_off > at)
        c--;
    if (c < TNI_SMALL_CLASS)
        return (tni_block){0};
    uint64_t index = (at - g->classes[c].arena_off) / g->classes[c].size_bytes;
    if (index >= g->classes[c].capacity)
        return (tni_block){0}; /* `at` is behind the last block of the class */
    return tni_block_make(c, (uint32_t)index);
}

/*
 * Whether the block is a storage that contains these bytes.
 * pre: the caller has a local reference to the block, so its desc does not change
 */
static bool is_storage_with(const struct tni_segment *s, tni_block block, uint64_t at,
                            uint64_t size_bytes, uint64_t *ret_storage_bytes)
{
    const struct tni_desc *desc = tni_desc_at(s, block);
    uint64_t stated = desc->bytes, room = tni_block_bytes(&s->geometry, block);
    uint64_t bytes = TNI_MIN(stated, room);
    *ret_storage_bytes = bytes;
    return desc->kind == TNI_KIND_TENSOR && at <= bytes && size_bytes <= bytes - at &&
           (at < bytes || at == 0);
}

/* A sender makes this error for each private tensor, so the sentence is not formatted. */
static int fail_not_found(void)
{
    return tni_fail_plain(
        TN_ERR_NOT_FOUND,
        "this process holds no storage of the domain that contains these bytes");
}

/* Make a tensor of uint8; its storage has no memory yet. */
static int build_bytes(uint64_t size_bytes, tn_tensor **ret_tensor)
{
    int64_t shape[] = {(int64_t)size_bytes};
    return tni_tensor_build(TN_UINT8, 1, shape, ret_tensor);
}

static int find_in_arena(struct tn_domain *d, uintptr_t address, uint64_t size_bytes,
                         tn_tensor **ret_tensor)
{
    const struct tni_segment *s = &d->segment;
    uint64_t at = address - (uintptr_t)s->arena, storage_bytes;
    tni_block block = block_at(&s->geometry, at);
    tn_tensor *t;
    if (block.id == 0 || !tni_ref_local_if_held(d, block))
        return fail_not_found();
    int status = 0;
    if (!is_storage_with(s, block, at - tni_block_offset(&s->geometry, block), size_bytes,
                         &storage_bytes))
        status = fail_not_found();
    else
        status = build_bytes(storage_bytes, &t);
    if (status != 0) {
        tni_ref_release(d, block);
        return status;
    }
    tni_storage_set_shared(t->storage, d, block, storage_bytes);
    *ret_tensor = t;
    return 0;
}

/* The block of a mapped slab in which an address lies. */
static tni_block block_on_slab(const struct tn_domain *d, const struct tni_mapping *m,
                               uintptr_t address)
{
    tni_block first = {atomic_load_explicit(&m->first, memory_order_relaxed)};
    uint64_t size_bytes = tni_block_bytes(&d->segment.geometry, first);
    return (tni_block){first.id + (uint32_t)((address - (uintptr_t)m->address) / size_bytes)};
}

/* Find a storage in a slab. The caller's reference to the mapping is consumed. */
static int find_on_slab(struct tn_domain *d, struct tni_mapping *m, uintptr_t address,
                        uint64_t size_bytes, tn_tensor **ret_tensor)
{
    const struct tni_segment *s = &d->segment;
    tni_block block = block_on_slab(d, m, address);
    bool is_held =
        tni_geometry_has_block(&s->geometry, block.id) && tni_ref_local_if_held(d, block);
    uint64_t begin =
        (uintptr_t)m->address + (block.id - tni_block_leader(&s->geometry, block).id) *
                                    tni_block_bytes(&s->geometry, block);
    uint64_t storage_bytes;
    tn_tensor *t;
    int status = 0;
    if (!is_held || !is_storage_with(s, block, address - begin, size_bytes, &storage_bytes))
        status = fail_not_found();
    else
        status = build_bytes(storage_bytes, &t);
    if (status != 0) {
        tni_backing_unmap(d, m);
        if (is_held)
            tni_ref_release(d, block);
        return status;
    }
    tni_storage_set_on_slab(t->storage, d, block, m, storage_bytes);
    *ret_tensor = t;
    return 0;
}

/*
 * Find a storage among the mappings of objects. A mapping may outlive its storage, and the
 * block may be reused, so the generation is compared.
 */
static int find_mapped(struct tn_domain *d, uintptr_t address, uint64_t size_bytes,
                       tn_tensor **ret_tensor)
{
    struct tni_mapping *m = tni_backing_find(d, address, size_bytes);
    if (m == NULL)
        return fail_not_found();
    if (m->is_slab && atomic_load_explicit(&m->first, memory_order_relaxed) != 0)
        return find_on_slab(d, m, address, size_bytes, ret_tensor);
    tni_block block = tni_block_make(TNI_BACKING_CLASS, m->index);
    bool is_held = tni_ref_local_if_held(d, block);
    tn_tensor *t;
    int status = 0;
    if (!is_held || tni_ref_generation(d, block) != m->generation)
        status = fail_not_found();
    else
        status = build_bytes(m->data_bytes, &t);
    if (status != 0) {
        tni_backing_unmap(d, m);
        if (is_held)
            tni_ref_release(d, block);
        return status;
    }
    tni_storage_set_mapped(t->storage, d, block, m);
    *ret_tensor = t;
    return 0;
}

int tn_tensor_find(tn_domain *domain, const void *address, uint64_t size_bytes,
                   tn_tensor **ret_tensor)
{
    uintptr_t place = (uintptr_t)address;
    int status = tni_tensor_check_domain(domain);
    if (status != 0 || (status = tni_tensor_check_result(ret_tensor, "ret_tensor")) != 0 ||
        (status = tni_process_check(domain)) != 0)
        return status;
    uint64_t at =
        place - (uintptr_t)domain->segment.arena; /* an address below the arena wraps */
    if (at < domain->segment.geometry.arena_bytes)
        return find_in_arena(domain, place, size_bytes, ret_tensor);
    return find_mapped(domain, place, size_bytes, ret_tensor);
}
