/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tensor: typed, strided views of storages.
 *
 * Nouns: tensor (private, counted), storage (private, counted; its bytes are shared or not).
 * I1  Every element that shape and strides name lies inside of the storage: checked when a
 *     tensor is made, of whatever it is made; never again.
 * I2  A storage that is shared owns one local reference of its block, and gives it back once.
 * I3  A tensor made together with its storage lies behind it in one allocation, which ends with
 *     the storage: such a tensor holds the storage, so it cannot outlive it.
 * I4  Where misuse is caught (build.h), a tensor that ended stays readable until 256 more
 *     ended.
 * I5  A closed domain lives until the last reference (I2) came back: tni_ref_close().
 * Callers: anybody, any thread. A death leaves a hold in the seat's row, which the reaper gives
 * back; a block that was being filled is held already, so that its memory is free again as
 * well.
 */
#include "tensor/tensor.h"

#include <stdlib.h>
#include <string.h>

#include "tensor/build.h"

/* ---- making ------------------------------------------------------------------------------ */

struct tni_block_about tni_tensor_about(const tn_tensor *t)
{
    return (struct tni_block_about){.kind = TNI_KIND_TENSOR,
                                    .ndim = (uint8_t)t->ndim,
                                    .dtype = t->dtype,
                                    .shape = t->extents};
}

/* What `options` is NULL for: this process's strategy, which usually is the arena. */
static int give_memory(tn_domain *domain, tn_tensor *t, const tn_tensor_options *options,
                       bool *ret_is_zero)
{
    uint64_t deadline_ns = options != NULL ? options->deadline.ns : 0;
    uint64_t bytes = (uint64_t)t->count * t->item_bytes;
    struct tni_mapping *mapping;
    tni_block block;
    bool lacks_other;
    int status;
    if (TNI_LIKELY(options == NULL || options->strategy == TN_STRATEGY_ARENA)) {
        struct tni_block_about about = tni_tensor_about(t);
        about.is_unfinished = bytes >= TNI_LONG_WRITE_BYTES;
        status = tni_ref_alloc(domain, bytes, &about, true, deadline_ns, &block, ret_is_zero);
        if (TNI_LIKELY(status == 0))
            tni_storage_set_shared(t->storage, domain, block, bytes);
        return status;
    }
    status = tni_backed_new(domain, t, bytes, options, &block, &mapping, &lacks_other);
    if (status == 0)
        tni_storage_set_mapped(t->storage, domain, block, mapping);
    *ret_is_zero = true;
    return status;
}

int tni_tensor_begin_shared(tn_domain *domain, tn_dtype dtype, int32_t ndim,
                            const int64_t *shape, const tn_tensor_options *options,
                            bool *ret_is_zero, tn_tensor **ret_tensor)
{
    tn_tensor *t;
    tn_tensor_options ours;
    int status = tni_tensor_check_domain(domain);
    if (status != 0 || (status = tni_tensor_check_result(ret_tensor)) != 0)
        return status;
    if (TNI_UNLIKELY(options != NULL || tn_strategy_get() != TN_STRATEGY_ARENA)) {
        if ((status = tni_tensor_read_options(options, &ours)) != 0)
            return status;
        options = &ours;
    }
    if (TNI_UNLIKELY((status = tni_process_check(domain)) != 0))
        return status;
    struct tni_thread *thread = tni_thread_enter(domain);
    status = tni_tensor_build_with(thread, dtype, ndim, shape, &t);
    tni_thread_leave(thread);
    if (TNI_UNLIKELY(status != 0))
        return status;
    status = give_memory(domain, t, options, ret_is_zero);
    if (TNI_UNLIKELY(status != 0)) {
        thread = tni_thread_enter(domain);
        tni_tensor_forget(thread, t); /* what was spare is spare again */
        tni_thread_leave(thread);
        return status;
    }
    *ret_tensor = t;
    return 0;
}

static int make_shared(tn_domain *domain, tn_dtype dtype, int32_t ndim, const int64_t *shape,
                       const tn_tensor_options *options, tn_tensor **ret_tensor)
{
    bool is_zero;
    tn_tensor *t;
    int status = tni_tensor_check_result(ret_tensor);
    if (status == 0)
        status = tni_tensor_begin_shared(domain, dtype, ndim, shape, options, &is_zero, &t);
    if (TNI_UNLIKELY(status != 0))
        return status;
    if (tni_tensor_is_to_be_zeroed(options) && !is_zero)
        memset(t->storage->data, 0, tni_tensor_size_bytes(t));
    tni_ref_finish(domain, t->storage->block);
    *ret_tensor = t;
    return 0;
}

static int make_filled(tn_domain *domain, tn_dtype dtype, int32_t ndim, const int64_t *shape,
                       const tn_tensor_options *given, tn_tensor **ret_tensor)
{
    tn_tensor_options options;
    tn_tensor *t;
    bool lacks_other;
    int status = tni_tensor_check_domain(domain);
    if (status != 0 || (status = tni_tensor_check_result(ret_tensor)) != 0 ||
        (status = tni_tensor_read_options(given, &options)) != 0 ||
        (status = tni_tensor_build(dtype, ndim, shape, NULL, &t)) != 0)
        return status;
    if (options.source_bytes != tni_tensor_size_bytes(t))
        status = tni_fail(TN_ERR_INVALID, "a source of %zu bytes for a tensor of %llu",
                          options.source_bytes, (unsigned long long)tni_tensor_size_bytes(t));
    else
        status = tni_storage_fill_new(domain, t, options.source, options.source_bytes, &options,
                                      &lacks_other);
    if (status != 0) {
        tni_tensor_end(t);
        return status;
    }
    *ret_tensor = t;
    return 0;
}

/* The same, if the block's descriptor says nothing of this tensor yet. */
static __attribute__((noinline)) bool take_undescribed(tn_domain *domain,
                                                       struct tni_thread *thread, tn_tensor *t)
{
    struct tni_storage *s = t->storage;
    struct tni_block_about about = tni_tensor_about(t);
    s->size_bytes = tni_tensor_size_bytes(t);
    return tni_ref_alloc_again(domain, thread, &s->spare, s->size_bytes, &about);
}

/* In the block that it had. False: others have that, or it has none any more. */
static inline __attribute__((always_inline)) bool
take_again(tn_domain *domain, struct tni_thread *thread, tn_tensor *t)
{
    struct tni_storage *s = t->storage;
    bool is_taken = TNI_LIKELY(s->is_described)
                        ? tni_ref_alloc_again(domain, thread, &s->spare, s->size_bytes, NULL)
                        : take_undescribed(domain, thread, t);
    if (TNI_UNLIKELY(!is_taken))
        return false;
    tni_tensor_take_spare(thread);
    s->is_described = true;
    return true;
}

/* In another block that this thread freed. False: it has none. */
static inline bool take_warm(tn_domain *domain, struct tni_thread *thread, tn_tensor *t)
{
    uint64_t bytes = tni_tensor_size_bytes(t);
    struct tni_block_about about = tni_tensor_about(t);
    tni_block block;
    if (TNI_UNLIKELY(!tni_ref_alloc_warm(domain, thread, bytes, &about, &block)))
        return false;
    tni_tensor_take_spare(thread);
    tni_storage_set_shared(t->storage, domain, block, bytes);
    t->storage->is_described = true;
    return true;
}

/* Whether only the deadline differs from the defaults. */
static inline bool is_plain(const tn_tensor_options *options)
{
    return options == NULL || (options->struct_size == sizeof *options &&
                               (options->strategy | options->flags) == 0 &&
                               options->source == NULL && options->source_bytes == 0);
}

/*
 * Where this thread cannot make the tensor in the block of the last one: in another block that
 * it freed, or anew. `thread` is its record, which this call leaves; NULL: it has none in hand.
 */
static __attribute__((noinline)) int
make_slowly(tn_domain *domain, tn_dtype dtype, int32_t ndim, const int64_t *shape,
            const tn_tensor_options *options, tn_tensor **ret_tensor, struct tni_thread *thread)
{
    if (TNI_LIKELY(thread != NULL)) {
        tn_tensor *t = tni_tensor_alike(thread, tni_tensor_new_form(dtype, ndim), shape);
        bool is_made = t != NULL && take_warm(domain, thread, t);
        tni_thread_leave(thread);
        if (TNI_LIKELY(is_made)) {
            *ret_tensor = t;
            return 0;
        }
    }
    return options != NULL && options->struct_size >= sizeof *options && options->source != NULL
               ? make_filled(domain, dtype, ndim, shape, options, ret_tensor)
               : make_shared(domain, dtype, ndim, shape, options, ret_tensor);
}

int tn_tensor_create(tn_domain *domain, tn_dtype dtype, int32_t ndim, const int64_t *shape,
                     const tn_tensor_options *options, tn_tensor **ret_tensor)
{
    struct tni_thread *thread = NULL;
    if (TNI_UNLIKELY(domain == NULL || ret_tensor == NULL || shape == NULL ||
                     (uint32_t)ndim > TNI_SPARE_NDIM || !tni_strategy_is_arena()) ||
        TNI_UNLIKELY(!is_plain(options)) || TNI_UNLIKELY(!tni_process_sits(domain)) ||
        TNI_UNLIKELY((thread = tni_thread_enter_home(domain)) == NULL))
        return make_slowly(domain, dtype, ndim, shape, options, ret_tensor, NULL);
    tn_tensor *t = tni_tensor_alike(thread, tni_tensor_new_form(dtype, ndim), shape);
    if (TNI_UNLIKELY(t == NULL) || TNI_UNLIKELY(!take_again(domain, thread, t)))
        return make_slowly(domain, dtype, ndim, shape, options, ret_tensor, thread);
    uint32_t at = t->storage->spare.at;
    tni_thread_leave(thread);
    *ret_tensor = t;
    tni_ref_born(domain, at);
    return 0;
}

int tn_tensor_create_private(tn_dtype dtype, int32_t ndim, const int64_t *shape,
                             tn_tensor **ret_tensor)
{
    tn_tensor *t;
    int status = tni_tensor_check_result(ret_tensor);
    if (status != 0 || (status = tni_tensor_build(dtype, ndim, shape, NULL, &t)) != 0)
        return status;
    status = tni_storage_set_private(t->storage, (uint64_t)t->count * t->item_bytes);
    if (status != 0) {
        tni_tensor_end(t);
        return status;
    }
    *ret_tensor = t;
    return 0;
}

/* ---- counting ---------------------------------------------------------------------------- */

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
             "tn_tensor_unref(): the last reference of tensor %p was given back before",
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
     * pairs with the release of who gave the last but one back; an only owner needs no locked
     * operation
     */
    if (atomic_load_explicit(&tensor->refs, memory_order_acquire) == 1 ||
        atomic_fetch_sub_explicit(&tensor->refs, 1, memory_order_acq_rel) == 1)
        tni_tensor_end(tensor);
    return NULL;
}

void tni_tensor_forget(struct tni_thread *thread, tn_tensor *tensor)
{
    struct tni_storage *s = tensor->storage;
    if (TNI_UNLIKELY(s->mapping != NULL))
        tni_backing_unmap(s->domain, s->mapping);
    tni_tensor_end_alone(tensor);
    s = tni_storage_retire(s);
    if (thread == NULL || s == NULL || !s->has_room ||
        !tni_thread_keep(thread, &s->spare, (tni_block){0}))
        free(s);
}

int tni_tensor_check_shared(const struct tn_domain *domain, const tn_tensor *tensor)
{
    if (TNI_LIKELY(tensor->storage->domain == domain && domain != NULL)) {
        if (TNI_UNLIKELY(tensor->storage->mapping != NULL))
            tni_backing_confirm(tensor->storage->domain, tensor->storage->mapping);
        return 0;
    }
    if (tensor->storage->outside != 0)
        return tni_fail(TN_ERR_INVALID, "the tensor's memory came from outside of the domain: "
                                        "copy it into a shared tensor");
    if (tensor->storage->domain == NULL)
        return tni_fail(TN_ERR_INVALID, "the tensor is private: tn_tensor_share() it first");
    return tni_fail(TN_ERR_INVALID, "the tensor is shared in another domain, '%s'",
                    tensor->storage->domain->segment.name);
}

/* ---- looking ----------------------------------------------------------------------------- */

void *tn_tensor_data(const tn_tensor *tensor)
{
    return tensor != NULL && tensor->count > 0 ? tensor->storage->data + tensor->byte_offset
                                               : NULL;
}

tn_dtype tn_tensor_dtype(const tn_tensor *tensor) { return tensor != NULL ? tensor->dtype : 0; }
int32_t tn_tensor_ndim(const tn_tensor *tensor) { return tensor != NULL ? tensor->ndim : 0; }
const int64_t *tn_tensor_shape(const tn_tensor *tensor)
{
    return tensor != NULL ? tensor->extents : NULL;
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
        return tni_outside_path(s);
    return s->mapping != NULL ? s->mapping->path : NULL;
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
     * Popped twice, or one domain joined twice: a block is what it is by its arena and its
     * number.
     */
    return a->domain != NULL && b->domain != NULL && a->block.id == b->block.id &&
           a->domain->segment.arena_inode == b->domain->segment.arena_inode;
}
