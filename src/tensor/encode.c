/* SPDX-License-Identifier: Apache-2.0 */
/*
 * encode: turns a tensor into bytes (struct tni_view), and back.
 *
 * Other processes can write the memory in which the bytes lie. So each byte is read once, into
 * a private copy, and the copy is checked. The bytes need not be aligned. A pop reads them
 * before it takes its message: meanwhile another consumer may take the message, and a producer
 * may write the next one to the same place.
 */
#include <string.h>

#include "tensor/build.h"

/* A private copy of a view. */
union copied_view {
    struct tni_view head;
    uint8_t bytes[TNI_VIEW_MAX_BYTES];
};
_Static_assert(TNI_VIEW_MAX_BYTES ==
                   sizeof(struct tni_view) + sizeof(int64_t) * (2 * TN_MAX_NDIM + 1),
               "the copy has room for every view");

static size_t extent_count(const struct tni_view *head)
{
    return (size_t)head->ndim * ((head->flags & TNI_VIEW_CONTIGUOUS) != 0 ? 1 : 2) +
           ((head->flags & TNI_VIEW_TOKEN) != 0);
}

/* What the content waits for; 0: it is ready. */
static uint64_t token_of(const struct tni_view *head)
{
    return (head->flags & TNI_VIEW_TOKEN) != 0 ? (uint64_t)head->extents[extent_count(head) - 1]
                                               : 0;
}

/* Write into the block's desc which attributes the tensor has. The tool `tenon` shows them. */
static void describe_attributes(const tn_tensor *t, const struct tni_attributes *held)
{
    struct tni_desc *desc = tni_desc_at(&t->storage->domain->segment, t->storage->block);
    atomic_store_explicit(&desc->attributes, tni_attributes_kinds(held), memory_order_relaxed);
    atomic_store_explicit(&desc->flags, held->flags, memory_order_relaxed);
    atomic_store_explicit(&desc->sent, desc->generation, memory_order_release);
}

size_t tni_tensor_encode_all(const tn_tensor *t, const struct tni_attributes *held,
                             size_t room_bytes, struct tni_view *view)
{
    int32_t extents = t->is_row_major ? t->ndim : 2 * t->ndim;
    size_t bytes = tni_tensor_view_bytes(t, held);
    if (TNI_UNLIKELY(bytes > room_bytes))
        return 0;

    TNI_PUT(view->byte_offset, t->byte_offset);
    tni_view_set_form(view, t->form);
    if (TNI_UNLIKELY(tni_tensor_is_read_only(t)))
        view->flags |= TNI_VIEW_READ_ONLY;
    for (int32_t i = 0; i < extents; i++)
        TNI_PUT(view->extents[i], t->extents[i]);
    if (TNI_UNLIKELY(tni_storage_is_on_device(t->storage))) {
        view->flags |= TNI_VIEW_TOKEN;
        TNI_PUT(view->extents[extents],
                (int64_t)atomic_load_explicit(&t->storage->ready, memory_order_acquire));
        extents++;
    }
    if (TNI_UNLIKELY(held != NULL)) {
        view->attribute_bytes = (uint16_t)held->bytes;
        memcpy(view->extents + extents, held->words, held->bytes);
    }
    return bytes;
}

size_t tni_tensor_encode(const tn_tensor *t, const struct tni_attributes *held,
                         size_t room_bytes, void *ret_view)
{
    /* The caller aligned the buffer: a slot, a message block, a handle or a packet. */
    struct tni_view *view = ret_view;
    const struct tni_storage *s = t->storage;
    size_t bytes = tni_tensor_encode_all(t, held, room_bytes, view);
    if (TNI_UNLIKELY(bytes == 0))
        return 0;
    TNI_PUT(view->block, s->block.id);
    view->generation = tni_ref_generation(s->domain, s->block);
    if (TNI_UNLIKELY(held != NULL))
        describe_attributes(t, held);
    return bytes;
}

/* ---- checking ---------------------------------------------------------------------------- */

static int read_view(const void *view, size_t size_bytes, union copied_view *ret_copy)
{
    if (size_bytes < sizeof ret_copy->head)
        return tni_fail(TN_ERR_CORRUPT, "a view is truncated: it has only %zu bytes",
                        size_bytes);
    tni_copy_unstable(&ret_copy->head, view, sizeof ret_copy->head);
    const struct tni_view *head = &ret_copy->head;
    if (head->ndim > TN_MAX_NDIM || head->attribute_bytes % 8 != 0 ||
        head->attribute_bytes > TN_ATTRIBUTES_MAX_BYTES ||
        (head->flags & ~(TNI_VIEW_CONTIGUOUS | TNI_VIEW_READ_ONLY | TNI_VIEW_TOKEN)) != 0)
        return tni_fail(
            TN_ERR_CORRUPT,
            "a view states %u axes, flags 0x%x and %u bytes of attributes, which no view has",
            head->ndim, head->flags, head->attribute_bytes);
    size_t extents_bytes = extent_count(head) * sizeof(int64_t);
    if (size_bytes - sizeof *head < extents_bytes + head->attribute_bytes)
        return tni_fail(TN_ERR_CORRUPT, "a view of %u axes is truncated: it has only %zu bytes",
                        head->ndim, size_bytes);
    tni_copy_unstable(ret_copy->head.extents, (const uint8_t *)view + sizeof *head,
                      extents_bytes);
    return (int)(sizeof *head + extents_bytes + head->attribute_bytes);
}

static bool is_backed(const struct tni_view *head)
{
    return tni_class_is_backing(head->block >> 24);
}

/*
 * How many bytes of a block a view may use. A block whose memory is committed for it alone has
 * memory only for the bytes that its desc states. Other blocks have memory to their end, so the
 * cache line of their desc need not be read.
 */
static uint64_t usable_bytes(const struct tni_segment *s, tni_block block)
{
    uint64_t bytes = tni_block_bytes(&s->geometry, block);
    if (tni_class_is_backing(tni_block_class(block)))
        return TNI_LOOK(((const struct tni_backing *)tni_payload_at(s, block))->data_bytes);
    if (s->geometry.classes[tni_block_class(block)].span == 1 ||
        tni_class_is_device(&s->geometry, tni_block_class(block))) {
        uint64_t stated = TNI_LOOK(tni_desc_at(s, block)->bytes);
        bytes = TNI_MIN(bytes, stated);
    }
    return bytes;
}

static int check_place(const union copied_view *copy, uint64_t limit, int64_t count,
                       size_t item_bytes)
{
    const struct tni_view *head = &copy->head;
    struct tni_reach reach = {0, count * (int64_t)item_bytes};

    if ((head->flags & TNI_VIEW_CONTIGUOUS) == 0 &&
        tni_shape_reach(head->ndim, head->extents, head->extents + head->ndim, item_bytes,
                        &reach) != 0)
        return tni_fail(TN_ERR_CORRUPT, "a view of block %08x is invalid: %s", head->block,
                        tn_error_detail());
    if (head->byte_offset > limit || 0 - (uint64_t)reach.low_bytes > head->byte_offset ||
        (uint64_t)reach.high_bytes > limit - head->byte_offset)
        return tni_fail(TN_ERR_CORRUPT,
                        "a view of block %08x reaches beyond the %llu bytes of the block",
                        head->block, (unsigned long long)limit);
    return 0;
}

static int check_block(const struct tni_segment *s, const struct tni_view *head)
{
    if (!tni_geometry_has_block(&s->geometry, head->block) ||
        tni_class_is_message(head->block >> 24))
        return tni_fail(TN_ERR_CORRUPT,
                        "a view names the block %08x, which does not exist or holds no tensor",
                        head->block);
    return tni_order_check(s, token_of(head));
}

/* Check all of a view but its block. `limit`: bytes of the storage. pre: check_block() passed
 */
static int check_copy(const union copied_view *copy, uint64_t limit, struct tni_size *ret_size)
{
    const struct tni_view *head = &copy->head;

    if (tni_tensor_measure(TN_DTYPE(head->code, head->bits, head->lanes), head->ndim,
                           head->extents, ret_size) != 0)
        return tni_fail(TN_ERR_CORRUPT, "a view of block %08x is invalid: %s", head->block,
                        tn_error_detail());
    return check_place(copy, limit, ret_size->count, ret_size->item_bytes);
}

int tni_view_check(const struct tni_segment *segment, const void *view, size_t size_bytes)
{
    union copied_view copy;
    struct tni_size size;
    int used = read_view(view, size_bytes, &copy);
    if (used < 0)
        return used;
    int status = check_block(segment, &copy.head);
    if (status == 0)
        status = check_copy(&copy, usable_bytes(segment, (tni_block){copy.head.block}), &size);
    return status != 0 ? status : used;
}

/* ---- back to a tensor -------------------------------------------------------------------- */

/* Make the tensor; its storage has no memory yet. pre: check_copy() gave `size` */
static int build_copy(struct tni_thread *thread, const union copied_view *copy,
                      const struct tni_size *size, const uint8_t *attributes,
                      tn_tensor **ret_tensor)
{
    const struct tni_view *head = &copy->head;
    tn_tensor *t;
    int status =
        tni_tensor_build_measured(thread, TN_DTYPE(head->code, head->bits, head->lanes),
                                  head->ndim, head->extents, size, &t);
    if (status != 0)
        return status;
    if ((head->flags & TNI_VIEW_CONTIGUOUS) == 0) {
        memcpy(tni_tensor_steps(t), head->extents + head->ndim, head->ndim * sizeof(int64_t));
        tni_tensor_complete_strides(t);
    }
    t->byte_offset = head->byte_offset;
    t->is_read_only = (head->flags & TNI_VIEW_READ_ONLY) != 0;
    tni_tensor_complete_form(t);
    if (TNI_UNLIKELY(head->attribute_bytes != 0) &&
        (status = tni_attributes_adopt(t, attributes, head->attribute_bytes)) != 0) {
        tni_tensor_end(t);
        return status;
    }
    *ret_tensor = t;
    return 0;
}

/* Check a view against the `limit` bytes of its storage, and make its tensor. */
static int build_within(struct tni_thread *thread, const union copied_view *copy,
                        uint64_t limit, const uint8_t *attributes, tn_tensor **ret_tensor)
{
    struct tni_size size;
    int status = check_copy(copy, limit, &size);
    return status != 0 ? status : build_copy(thread, copy, &size, attributes, ret_tensor);
}

int tni_tensor_decode_as(const void *view, size_t size_bytes, uint64_t limit,
                         tn_tensor **ret_tensor)
{
    union copied_view copy;
    int used = read_view(view, size_bytes, &copy);
    if (used < 0)
        return used;
    const uint8_t *attributes = (const uint8_t *)view + used - copy.head.attribute_bytes;
    int status = build_within(NULL, &copy, limit, attributes, ret_tensor);
    return status != 0 ? status : used;
}

/* A view of a block of a device, whose slab is mapped. */
static int decode_on_slab(struct tn_domain *d, const union copied_view *copy,
                          const uint8_t *attributes, tn_tensor **ret_tensor)
{
    tni_block block = {copy->head.block};
    uint64_t limit = usable_bytes(&d->segment, block);
    struct tni_mapping *mapping;
    int status = tni_slab_map(d, block, &mapping);
    if (status != 0)
        return status;
    status = build_within(NULL, copy, limit, attributes, ret_tensor);
    if (status != 0) {
        tni_backing_unmap(d, mapping);
        return status;
    }
    tni_storage_set_on_slab((*ret_tensor)->storage, d, block, mapping, limit);
    atomic_store_explicit(&(*ret_tensor)->storage->ready, token_of(&copy->head),
                          memory_order_relaxed);
    return 0;
}

static int decode_backed(struct tn_domain *d, const union copied_view *copy,
                         const uint8_t *attributes, tn_tensor **ret_tensor)
{
    tni_block block = {copy->head.block};
    struct tni_mapping *mapping;
    int status = tni_backing_map(d, block, copy->head.generation, &mapping);
    if (status != 0)
        return status;
    status = build_within(NULL, copy, mapping->data_bytes, attributes, ret_tensor);
    if (status != 0) {
        tni_backing_unmap(d, mapping);
        return status;
    }
    tni_storage_set_mapped((*ret_tensor)->storage, d, block, mapping);
    if (tni_mapping_is_on_device(mapping))
        atomic_store_explicit(&(*ret_tensor)->storage->ready, token_of(&copy->head),
                              memory_order_relaxed);
    return 0;
}

tn_tensor *tni_tensor_decode_again(struct tn_domain *d, struct tni_thread *thread,
                                   tni_block block, const struct tni_view *view,
                                   size_t size_bytes)
{
    const tn_tensor *last = tni_tensor_last(thread);
    if (TNI_UNLIKELY(last == NULL || !last->is_row_major ||
                     size_bytes != tni_tensor_view_bytes(last, NULL) ||
                     TNI_LOOK(view->block) != block.id ||
                     tni_block_class(block) < TNI_SMALL_CLASS ||
                     tni_class_is_device(&d->segment.geometry, tni_block_class(block))))
        return NULL;
    tn_tensor *t = tni_tensor_alike(thread, tni_view_form(view), view->extents);
    uint64_t limit = usable_bytes(&d->segment, block), offset = TNI_LOOK(view->byte_offset);
    if (TNI_UNLIKELY(t == NULL) ||
        TNI_UNLIKELY(offset > limit || tni_tensor_size_bytes(t) > limit - offset))
        return NULL;
    tni_tensor_take_spare(thread);
    tni_storage_set_shared(t->storage, d, block, TNI_SIZE_IN_DESC);
    t->byte_offset = offset;
    return t;
}

int tni_tensor_decode_with(struct tn_domain *domain, struct tni_thread *thread,
                           const void *view, size_t size_bytes, tn_tensor **ret_tensor)
{
    union copied_view copy;
    int used = read_view(view, size_bytes, &copy);
    if (used < 0)
        return used;
    const uint8_t *attributes = (const uint8_t *)view + used - copy.head.attribute_bytes;
    tni_block block = {copy.head.block};
    int status = check_block(&domain->segment, &copy.head);
    if (TNI_UNLIKELY(status == 0 && is_backed(&copy.head))) {
        status = decode_backed(domain, &copy, attributes, ret_tensor);
        return status != 0 ? status : used;
    }
    if (TNI_UNLIKELY(status == 0 &&
                     tni_class_is_device(&domain->segment.geometry, tni_block_class(block)))) {
        status = decode_on_slab(domain, &copy, attributes, ret_tensor);
        return status != 0 ? status : used;
    }
    if (status == 0)
        status = build_within(thread, &copy, usable_bytes(&domain->segment, block), attributes,
                              ret_tensor);
    if (status != 0)
        return status;
    tni_storage_set_shared((*ret_tensor)->storage, domain, block, TNI_SIZE_IN_DESC);
    return used;
}

int tni_tensor_decode(struct tn_domain *domain, const void *view, size_t size_bytes,
                      tn_tensor **ret_tensor)
{
    return tni_tensor_decode_with(domain, NULL, view, size_bytes, ret_tensor);
}
