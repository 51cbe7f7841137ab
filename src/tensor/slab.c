/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slab: memory of a device for tensors. A tensor gets a block of a slab: alloc/slab.c. If no
 * slab has a free block, this process makes one. A tensor that is large, or that only its maker
 * may write, has an object of its own instead, as memory outside of the arena has. In a domain
 * without tenond each tensor has: no process could map the slab of another.
 */
#include "tensor/build.h"

enum { MOST_SLABS = 8 }; /* how often a call makes one: others may use its blocks up */

struct slab_wish {
    struct tni_retry wish;
    const struct tni_block_about *about;
    struct tni_backing_about slab;
    uint32_t class_id;
    struct tni_backed_wish own; /* for memory of its own, if there is no room for a slab */
    tni_block block;
    bool is_on_slab;
};

/* ---- a slab ------------------------------------------------------------------------------ */

/* Make a slab, and let it be cut into blocks. @return as tni_backing_create() */
static int add_slab(struct tn_domain *d, struct tni_thread *thread, struct slab_wish *w)
{
    const struct tni_block_about about = {
        .kind = TNI_KIND_BACKING, .is_unfinished = true, .dtype = TN_UINT8};
    struct tni_mapping *mapping;
    tni_block slab;
    int status = tni_ref_alloc_with(d, thread, sizeof(struct tni_backing), &about, &slab);
    w->wish.lacks_host = status != 0;
    if (status != 0)
        return status;
    status = tni_backing_create(d, thread, slab, &w->slab, &mapping);
    w->wish.lacks_other = status == TN_ERR_FULL; /* descriptors ran out, not memory */
    if (status != 0) {
        tni_ref_release_unused(d, thread, slab);
        return status;
    }
    TNI_KILL_POINT("slab_made");
    status = tni_ref_add_slab(d, thread, slab, w->class_id);
    tni_backing_unmap(d, mapping); /* it stays mapped: backing/device.c, I9 */
    if (status != 0)
        tni_ref_release_with(d, thread, slab);
    return status;
}

/* Make a slab. If the device or its quota has no room, end slabs of which no block is used. */
static int add_slab_somehow(struct tn_domain *d, struct tni_thread *thread, struct slab_wish *w)
{
    int status = add_slab(d, thread, w);
    if ((status != TN_ERR_NO_MEMORY && status != TNI_ALLOC_AGAIN) ||
        tni_ref_trim_slabs(d, thread, w->about->device, w->slab.object_bytes) == 0)
        return status;
    tni_backing_sweep_slabs(d);
    return add_slab(d, thread, w);
}

/* Take a block of a slab. After a failure the call has none. */
static int take_block(struct tn_domain *d, struct slab_wish *w)
{
    int status = TNI_ALLOC_NO_SLAB;
    tni_tensor_end_unfinished();
    tni_opened_sweep(d, false);
    tni_backing_sweep_slabs(d);
    if (tni_backing_part(d)->depot != NULL)
        tni_backing_part(d)->depot->catch_up(d);
    struct tni_thread *thread = tni_thread_enter(d);
    for (uint32_t made = 0; status == TNI_ALLOC_NO_SLAB && made < MOST_SLABS; made++) {
        status = tni_ref_alloc_with(d, thread, w->wish.bytes, w->about, &w->block);
        if (status == TNI_ALLOC_NO_SLAB && (status = add_slab_somehow(d, thread, w)) == 0)
            status = TNI_ALLOC_NO_SLAB;
    }
    tni_thread_leave(thread);
    return status == TNI_ALLOC_NO_SLAB ? TNI_ALLOC_AGAIN : status;
}

/* Take a block, or make an object if there is no room for a slab but for the tensor. */
static int attempt_once(struct tn_domain *d, struct tni_retry *wish)
{
    struct slab_wish *w = (struct slab_wish *)wish;
    wish->lacks_other = false;
    int status = take_block(d, w);
    w->is_on_slab = status == 0;
    if (!tni_ref_is_short(status) || wish->lacks_other)
        return status;
    status = tni_backed_attempt(d, &w->own.wish);
    wish->lacks_other = w->own.wish.lacks_other;
    wish->lacks_host = w->own.wish.lacks_host;
    return status;
}

/* Before the call gives up, it waits for the device to be done with what the program ended. */
static int attempt_on_device(struct tn_domain *d, struct tni_retry *wish)
{
    int status = attempt_once(d, wish);
    if (TNI_UNLIKELY(tni_ref_is_short(status)) && !wish->lacks_other &&
        tni_storage_await_unfinished())
        status = attempt_once(d, wish);
    return status;
}

/*
 * Wait until no work of a dead process is left that could write the blocks of a slab: its
 * process has ended (reaper), and the device has done work of this process since.
 */
static int settle(const struct tn_domain *d, const struct tni_mapping *m)
{
    const struct tni_memory_kind *kind = tni_memory_kind(m->memory.device.type);
    tni_block slab = tni_block_make(TNI_BACKING_CLASS, m->index);
    struct tni_backing *b = tni_payload_at(&d->segment, slab);
    uint64_t dirtied = atomic_load(&b->dirtied), settled = atomic_load(&b->settled);
    if (TNI_LIKELY(settled == dirtied))
        return 0;
    int status = kind->settle(kind, m->memory.device.id);
    if (status == 0)
        atomic_compare_exchange_strong(&b->settled, &settled, dirtied);
    return status;
}

int tni_slab_map(struct tn_domain *d, tni_block block, struct tni_mapping **ret_mapping)
{
    const struct tni_segment *s = &d->segment;
    tni_block first = tni_block_leader(&s->geometry, block), slab = tni_slab_of(s, block);
    uint64_t end = (uint64_t)(block.id - first.id + 1) * tni_block_bytes(&s->geometry, block);
    tni_backing_sweep_slabs(d);
    if (slab.id == 0) {
        tni_fail(TN_ERR_CORRUPT,
                 "the domain is damaged: block %08x is memory of a device, but no slab of the "
                 "device is recorded for it",
                 block.id);
        return TN_ERR_CORRUPT;
    }
    int status = tni_backing_map(d, slab, tni_ref_generation(d, slab), ret_mapping);
    if (status == 0 && (!(*ret_mapping)->is_slab || end > (*ret_mapping)->data_bytes)) {
        tni_backing_unmap(d, *ret_mapping);
        status = tni_fail(TN_ERR_CORRUPT,
                          "the domain is damaged: block %08x lies beyond the end of the "
                          "device's slab that is recorded for it",
                          block.id);
    }
    if (status == 0)
        atomic_store_explicit(&(*ret_mapping)->first, first.id, memory_order_relaxed);
    return status;
}

/* ---- a tensor's memory ------------------------------------------------------------------- */

/* Map the slab of the block that was taken. */
static int finish_on_slab(struct tn_domain *d, tni_block block,
                          struct tni_on_device *ret_memory)
{
    struct tni_mapping *mapping;
    int status = tni_slab_map(d, block, &mapping);
    if (status == 0 && (status = settle(d, mapping)) != 0)
        tni_backing_unmap(d, mapping);
    if (status != 0) {
        tni_ref_release(d, block);
        return status;
    }
    *ret_memory =
        (struct tni_on_device){.block = block, .mapping = mapping, .is_on_slab = true};
    return 0;
}

static int new_small(struct tn_domain *d, struct slab_wish *w, struct tni_on_device *ret_memory)
{
    int status = attempt_on_device(d, &w->wish);
    if (tni_ref_is_short(status)) {
        w->wish.can_fit = tni_backing_can_fit(d, w->own.backing);
        status = tni_ref_retry(d, &w->wish, status);
    }
    if (status == 0 && w->is_on_slab)
        return finish_on_slab(d, w->block, ret_memory);
    if (status == 0)
        *ret_memory = (struct tni_on_device){.block = w->own.block, .mapping = w->own.mapping};
    return status;
}

/* The bytes of a new slab for a class, of which each block is whole. */
static uint64_t slab_bytes(const struct tn_domain *d, uint32_t class_id)
{
    const struct tni_class_geometry *c = &d->segment.geometry.classes[class_id];
    uint64_t most = atomic_load(&d->segment.header->device_slab_bytes);
    uint64_t blocks =
        TNI_MIN(TNI_MIN(most, (uint64_t)TNI_SLAB_BYTES) / c->size_bytes, (uint64_t)c->usable);
    return TNI_MAX(blocks, 1) * c->size_bytes;
}

/* pre: the tensor fits into a block of the class */
static int new_of_class(struct tn_domain *d, const tn_tensor *t, uint32_t class_id,
                        const tn_tensor_options *options, struct tni_on_device *ret_memory)
{
    uint64_t size_bytes = tni_tensor_size_bytes(t);
    struct tni_device_name device = {.type = options->device.type};
    struct tni_block_about about = tni_tensor_about(t), own_about = about;
    struct tni_backing_about own = tni_backed_about(t, size_bytes, options);
    struct slab_wish w = {.wish = {.attempt = attempt_on_device,
                                   .bytes = size_bytes,
                                   .deadline_ns = options->deadline.ns},
                          .about = &about,
                          .class_id = class_id,
                          .slab = {.strategy = TN_STRATEGY_CUDA_VMM,
                                   .flags = TNI_BACKING_SLAB,
                                   .device = options->device,
                                   .data_bytes = slab_bytes(d, class_id)},
                          .own = {.backing = &own, .about = &own_about}};
    int status = tni_backing_prepare(d, &w.slab);
    if (status == 0)
        status = tni_backing_prepare(d, &own);
    if (status != 0)
        return status;
    memcpy(device.uuid, own.uuid, sizeof device.uuid);
    about.device = w.wish.device = &device;
    about.is_unfinished = own_about.is_unfinished = true;
    own_about.kind = TNI_KIND_BACKING;
    return new_small(d, &w, ret_memory);
}

int tni_on_device_new(struct tn_domain *d, const tn_tensor *t, const tn_tensor_options *options,
                      struct tni_on_device *ret_memory)
{
    uint64_t size_bytes = tni_tensor_size_bytes(t);
    uint32_t class_id = tni_geometry_device_class(&d->segment.geometry, size_bytes);
    bool lacks_other;
    int status = tni_process_check(d);
    if (status != 0)
        return status;
    tni_tensor_end_unfinished();
    tni_backing_sweep_slabs(d);
    if (class_id != 0 && (options->flags & TN_TENSOR_WRITE_ONCE) == 0 &&
        tni_backing_part(d)->depot != NULL)
        return new_of_class(d, t, class_id, options, ret_memory);
    ret_memory->is_on_slab = false;
    return tni_backed_new(d, t, size_bytes, options, &ret_memory->block, &ret_memory->mapping,
                          &lacks_other);
}

void tni_storage_set_on_device(struct tni_storage *s, struct tn_domain *d,
                               const struct tni_on_device *memory, uint64_t size_bytes)
{
    if (memory->is_on_slab)
        tni_storage_set_on_slab(s, d, memory->block, memory->mapping, size_bytes);
    else
        tni_storage_set_mapped(s, d, memory->block, memory->mapping);
}
