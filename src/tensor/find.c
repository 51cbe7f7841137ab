/* SPDX-License-Identifier: Apache-2.0 */
/*
 * find: from an address to the storage that lies there. See tensor.c for the invariants.
 *
 * In the arena a block's place follows from its number, and so the number from an address; that
 * this process holds the block says its count of local references, which is private. Nothing
 * that is shared is believed before one of those references is ours.
 */
#include "tensor/build.h"

/* Of the arena, for payload; 0: none. pre: `at` lies in the arena */
static tni_block block_at(const struct tni_geometry *g, uint64_t at)
{
    uint32_t c = g->class_count - 1;
    while (c >= TNI_SMALL_CLASS && g->classes[c].arena_off > at)
        c--;
    if (c < TNI_SMALL_CLASS)
        return (tni_block){0};
    uint64_t index = (at - g->classes[c].arena_off) / g->classes[c].size_bytes;
    if (index >= g->classes[c].capacity)
        return (tni_block){0}; /* what fills up the last span */
    return tni_block_make(c, (uint32_t)index);
}

/* pre: a local reference of `block` is ours, so that its descriptor stands */
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

/* Asked of all private memory that somebody sends: no time for numbers. */
static int fail_not_found(void)
{
    return tni_fail_plain(TN_ERR_NOT_FOUND,
                          "no storage of the domain that this process holds has these bytes");
}

/* A tensor over bytes that it does not have yet. */
static int build_bytes(uint64_t size_bytes, tn_tensor **ret_tensor)
{
    int64_t shape[] = {(int64_t)size_bytes};
    return tni_tensor_build(TN_UINT8, 1, shape, NULL, ret_tensor);
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

/* A mapping may be of a block that was given away, and is another's by now. */
static int find_mapped(struct tn_domain *d, uintptr_t address, uint64_t size_bytes,
                       tn_tensor **ret_tensor)
{
    struct tni_mapping *m = tni_backing_find(d, address, size_bytes);
    if (m == NULL)
        return fail_not_found();
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
    if (status != 0 || (status = tni_tensor_check_result(ret_tensor)) != 0 ||
        (status = tni_process_check(domain)) != 0)
        return status;
    uint64_t at = place - (uintptr_t)domain->segment.arena; /* below: wraps */
    if (at < domain->segment.geometry.arena_bytes)
        return find_in_arena(domain, place, size_bytes, ret_tensor);
    return find_mapped(domain, place, size_bytes, ret_tensor);
}
