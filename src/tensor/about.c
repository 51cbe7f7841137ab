/* SPDX-License-Identifier: Apache-2.0 */
/* about: references to tensors, and functions that read a tensor. Invariants: tensor.c. */
#include <stdlib.h>
#include <string.h>

#include "tensor/build.h"

uint32_t tni_tensor_strategy(const tn_tensor *tensor)
{
    const struct tni_storage *s = tensor->storage;
    if (s->outside != 0)
        return s->outside;
    if (s->domain == NULL)
        return TN_STRATEGY_DEFAULT;
    return s->mapping == NULL                     ? TN_STRATEGY_ARENA
           : s->mapping->is_ipc                   ? TN_STRATEGY_CUDA_IPC
           : tni_mapping_is_on_device(s->mapping) ? TN_STRATEGY_CUDA_VMM
           : s->mapping->path != NULL             ? TN_STRATEGY_FILE_SYSTEM
                                                  : TN_STRATEGY_FILE_DESCRIPTOR;
}

tn_tensor *tn_tensor_ref(tn_tensor *tensor)
{
    if (tensor != NULL)
        atomic_fetch_add_explicit(&tensor->refs, 1, memory_order_relaxed);
    return tensor;
}

#if TNI_TENSOR_CATCH
static bool has_ended(const tn_tensor *t)
{
    uint32_t refs = atomic_load_explicit(&t->refs, memory_order_relaxed);
    if (refs != TNI_TENSOR_ENDED)
        return false;
    tni_fail(TN_ERR_INVALID,
             "tn_tensor_unref(): the last reference to tensor %p was given back before",
             (const void *)t);
    tni_log(TNI_LOG_ERROR, "%s", tn_error_detail());
    return true;
}

#else
static bool has_ended(const tn_tensor *t)
{
    (void)t;
    return false;
}

#endif

tn_tensor *tn_tensor_unref(tn_tensor *tensor)
{
    if (tensor == NULL || has_ended(tensor))
        return NULL;
    /*
     * The acquire pairs with the release of the other owners, whose writes must come before the
     * memory is freed. A sole owner needs no atomic read-modify-write.
     */
    if (atomic_load_explicit(&tensor->refs, memory_order_acquire) == 1 ||
        atomic_fetch_sub_explicit(&tensor->refs, 1, memory_order_acq_rel) == 1)
        tni_tensor_end(tensor);
    return NULL;
}

void tni_tensor_forget(struct tni_thread *thread, tn_tensor *tensor)
{
    struct tni_storage *s = tensor->storage;
    if (TNI_UNLIKELY(s->mapping != NULL)) {
        tni_storage_forget_uses(s);
        tni_backing_unmap(s->domain, s->mapping);
    }
    tni_tensor_end_alone(tensor);
    s = tni_storage_retire(s);
    if (thread == NULL || s == NULL || !s->has_room ||
        !tni_thread_keep(thread, &s->spare, (tni_block){0}))
        free(s);
}

int tni_tensor_check_shared(const struct tn_domain *domain, const tn_tensor *tensor)
{
    if (TNI_LIKELY(tensor->storage->domain == domain && domain != NULL)) {
        if (TNI_LIKELY(tensor->storage->mapping == NULL))
            return 0;
        if (!tni_tensor_is_on_host(tensor) && !tensor->storage->mapping->is_ipc &&
            tni_backing_part(domain)->depot == NULL)
            return tni_fail(TN_ERR_UNSUPPORTED,
                            "the tensor is on a device, and the domain has no tenond, which "
                            "keeps what other processes map the memory with");
        tni_backing_ensure_deposited(tensor->storage->domain, tensor->storage->mapping);
        return 0;
    }
    if (tensor->storage->outside != 0)
        return tni_fail(TN_ERR_INVALID, "the tensor's memory came from outside of the domain: "
                                        "copy the tensor into a shared tensor");
    if (tensor->storage->domain == NULL)
        return tni_fail(TN_ERR_INVALID, "the tensor is private: tn_tensor_share() it first");
    return tni_fail(TN_ERR_INVALID, "the tensor is shared in another domain, '%s'",
                    tensor->storage->domain->segment.name);
}

void *tn_tensor_data(const tn_tensor *tensor)
{
    if (tensor == NULL || tensor->count == 0)
        return NULL;
    if (TNI_UNLIKELY(tensor->storage->mapping != NULL))
        tni_storage_touch(tensor);
    return tensor->storage->data + tensor->byte_offset;
}

tn_dtype tn_tensor_dtype(const tn_tensor *tensor) { return tensor != NULL ? tensor->dtype : 0; }
int32_t tn_tensor_ndim(const tn_tensor *tensor) { return tensor != NULL ? tensor->ndim : 0; }
const int64_t *tn_tensor_shape(const tn_tensor *tensor)
{
    return tensor != NULL ? tensor->extents : NULL;
}

tn_device tn_tensor_device(const tn_tensor *tensor)
{
    return tensor != NULL ? tni_tensor_device(tensor) : (tn_device){0, 0};
}

int64_t tn_tensor_count(const tn_tensor *tensor) { return tensor != NULL ? tensor->count : 0; }

bool tni_tensor_is_shared(const tn_tensor *tensor)
{
    return tensor->storage->domain != NULL || tensor->storage->outside != 0;
}

bool tni_tensor_is_read_only(const tn_tensor *tensor)
{
    const struct tni_storage *s = tensor->storage;
    return tensor->is_read_only || s->is_read_only ||
           (s->mapping != NULL && s->mapping->is_read_only);
}

static const char *path_of(const struct tni_storage *s)
{
    if (s->outside != 0)
        return ((const struct tni_mapping *)s->context)
            ->path; /* struct tni_outside in outside.h */
    return s->mapping != NULL ? s->mapping->path : NULL;
}

static bool is_incomplete(const struct tni_storage *s)
{
    uint64_t ready = atomic_load_explicit(&s->ready, memory_order_relaxed);
    if (tni_mapping_is_lost(s->domain, s->mapping))
        return true;
    return TNI_UNLIKELY(ready != 0) &&
           tni_order_state(&s->domain->segment, ready) == TNI_ORDER_LOST;
}

int tn_tensor_get_info(const tn_tensor *tensor, tn_tensor_info *ret_info)
{
    int status = tni_tensor_check(tensor);
    if (status != 0)
        return status;
    tn_tensor_info info = {
        .strides = tni_tensor_strides(tensor),
        .byte_offset = tensor->byte_offset,
        .size_bytes = tni_tensor_size_bytes(tensor),
        .storage_bytes = tni_storage_bytes(tensor->storage),
        .strategy = tni_tensor_strategy(tensor),
        .is_contiguous = tensor->is_contiguous,
        .is_shared = tni_tensor_is_shared(tensor),
        .is_read_only = tni_tensor_is_read_only(tensor),
        .is_incomplete = is_incomplete(tensor->storage),
        .path = path_of(tensor->storage),
    };
    return tni_give_struct("tn_tensor_info", &info, sizeof info, ret_info);
}

bool tn_tensor_same_storage(const tn_tensor *one, const tn_tensor *other)
{
    if (one == NULL || other == NULL)
        return false;
    const struct tni_storage *a = one->storage, *b = other->storage;
    if (a == b)
        return true;
    /*
     * One block can have two storages here, if its tensor was popped twice or the domain was
     * joined twice. So compare the arena and the number of the block.
     */
    return a->domain != NULL && b->domain != NULL && a->block.id == b->block.id &&
           a->domain->segment.arena_inode == b->domain->segment.arena_inode;
}
