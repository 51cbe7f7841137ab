/* SPDX-License-Identifier: Apache-2.0 */
/* build: makes struct tn_tensor. Private to the room tensor. */
#ifndef TNI_TENSOR_BUILD_H
#define TNI_TENSOR_BUILD_H

#include <string.h>

#include "tensor/storage.h"

/*
 * Whether the memory of a tensor that ended is kept for a while, so that tn_tensor_unref() can
 * report a second unref. Debug builds keep the memory, unless the address sanitizer finds such
 * an error anyway.
 */
#if defined(__SANITIZE_ADDRESS__)
#define TNI_TENSOR_CATCH 0
#elif defined(TN_KILL_POINTS) || !defined(__OPTIMIZE__)
#define TNI_TENSOR_CATCH 1
#else
#define TNI_TENSOR_CATCH 0
#endif
#define TNI_TENSOR_ENDED UINT32_C(0xdead0000) /* `refs` of a tensor that ended */

/* The memory of a tensor is reused only if the tensor has at most this many axes. */
enum { TNI_SPARE_NDIM = 4 };

/* The size of a tensor: what tni_tensor_measure() computes from a type and a shape. */
struct tni_size {
    size_t item_bytes;
    int64_t count;
};
/** Check a type and a shape. TN_ERR_INVALID, TN_ERR_UNSUPPORTED. */
int tni_tensor_measure(tn_dtype dtype, int32_t ndim, const int64_t *shape,
                       struct tni_size *ret_size);

/**
 * Make a tensor with one reference and a storage of its own, in one allocation. The storage has
 * no memory yet. The strides are row-major.
 * @return 0, TN_ERR_INVALID, TN_ERR_UNSUPPORTED, TN_ERR_NO_MEMORY
 */
int tni_tensor_build(tn_dtype dtype, int32_t ndim, const int64_t *shape,
                     tn_tensor **ret_tensor);

/**
 * Do what tni_tensor_build() does, but use spare memory of a thread record if it has any.
 * @param thread  this thread's record; NULL: the caller has none
 */
int tni_tensor_build_with(struct tni_thread *thread, tn_dtype dtype, int32_t ndim,
                          const int64_t *shape, tn_tensor **ret_tensor);
/**
 * Do what tni_tensor_build_with() does, of a measured shape. It has six parameters: those of
 * tni_tensor_build_with(), and one more that its callers have computed.
 * @param size  from tni_tensor_measure()
 */
int tni_tensor_build_measured(struct tni_thread *thread, tn_dtype dtype, int32_t ndim,
                              const int64_t *shape, const struct tni_size *size,
                              tn_tensor **ret_tensor);

/**
 * Make a tensor in a domain, which the caller fills and then completes by tni_ref_finish().
 * Takes the options and returns the errors of tn_tensor_create(). It has seven parameters:
 * those of tn_tensor_create(), and one more result.
 */
int tni_tensor_begin_shared(tn_domain *domain, tn_dtype dtype, int32_t ndim,
                            const int64_t *shape, const tn_tensor_options *options,
                            bool *ret_is_zero, tn_tensor **ret_tensor);

/** The tni_view_form() of a new tensor. */
static inline uint64_t tni_tensor_new_form(tn_dtype dtype, int32_t ndim)
{
    return tni_view_make_form(dtype, (uint32_t)ndim, TNI_VIEW_CONTIGUOUS);
}

/**
 * The spare tensor of a thread record: the tensor of this thread that ended last. The caller
 * may only read it. NULL: there is none.
 */
static inline tn_tensor *tni_tensor_last(const struct tni_thread *thread)
{
    struct tni_storage *s = (void *)thread->spares;
    return TNI_LIKELY(s != NULL) ? (tn_tensor *)(s + 1) : NULL;
}
/**
 * The spare tensor of a thread record, if it had this form and this shape; else NULL.
 * @param shape  may lie in shared memory, where another process may change it: after this call
 *               the caller uses the shape in the tensor
 */
static inline tn_tensor *tni_tensor_alike(const struct tni_thread *thread, uint64_t form,
                                          const int64_t *shape)
{
    tn_tensor *t = tni_tensor_last(thread);
    if (TNI_UNLIKELY(t == NULL) || TNI_UNLIKELY(t->form != form))
        return NULL;
    for (int32_t i = t->ndim; i-- > 0;)
        if (TNI_UNLIKELY(t->extents[i] != TNI_LOOK(shape[i])))
            return NULL;
    return t;
}
/**
 * Take the spare tensor of a thread record into use again. It has one reference, the shape that
 * it had, and no memory yet. pre: tni_tensor_last() is not NULL
 */
static inline void tni_tensor_take_spare(struct tni_thread *thread)
{
    struct tni_storage *s = (void *)tni_thread_take_spare(thread);
    tn_tensor *t = (tn_tensor *)(s + 1);
    tni_storage_reset(s);
    atomic_store_explicit(&t->refs, 1, memory_order_relaxed);
    atomic_store_explicit(&t->attributes, NULL, memory_order_relaxed);
    t->byte_offset = 0;
}

/**
 * Make a tensor that is a view of the storage of `base`. It takes a reference to the storage,
 * is read-only if `base` is, and inherits the attributes that say what the elements mean.
 * @return as tni_tensor_build(), and the errors of tni_attributes_inherit()
 */
int tni_tensor_build_view(const tn_tensor *base, tn_dtype dtype, int32_t ndim,
                          const int64_t *shape, tn_tensor **ret_tensor);

static inline int tni_tensor_check_domain(const struct tn_domain *domain)
{
    return TNI_LIKELY(domain != NULL) ? 0 : tni_fail(TN_ERR_INVALID, "the domain is NULL");
}

/** What the desc of a block for this tensor states. */
static inline struct tni_block_about tni_tensor_about(const tn_tensor *t)
{
    return (struct tni_block_about){.kind = TNI_KIND_TENSOR,
                                    .ndim = (uint8_t)t->ndim,
                                    .dtype = t->dtype,
                                    .shape = t->extents};
}

static inline bool tni_tensor_is_to_be_zeroed(const tn_tensor_options *options)
{
    return options != NULL && (options->flags & TN_TENSOR_ZEROED) != 0;
}
/** Check options and replace 0 by its default. TN_ERR_INVALID, TN_ERR_UNSUPPORTED. */
int tni_tensor_read_options(const tn_tensor_options *given, tn_tensor_options *ret_options);

/**
 * Write a view as tni_tensor_encode() does, but without the block and its generation, which the
 * caller writes. The tensor need not be in a domain.
 */
size_t tni_tensor_encode_all(const tn_tensor *tensor, const struct tni_attributes *held,
                             size_t room_bytes, struct tni_view *ret_view);
/**
 * Check a view of a storage of `limit` bytes, except for the block that it names, and make a
 * tensor of it whose storage has no memory yet.
 * @return the bytes of the view, or an error of tni_tensor_decode()
 */
int tni_tensor_decode_as(const void *view, size_t size_bytes, uint64_t limit,
                         tn_tensor **ret_tensor);

/** Check that tn_tensor_copy() may copy `source` to `target`. TN_ERR_*. */
int tni_tensor_check_copy(const tn_tensor *target, const tn_tensor *source);

/* ---- device.c ---------------------------------------------------------------------------- */

/** Copy between tensors, one of which is on a device, in the order of a stream. */
int tni_device_copy_tensor(const tn_tensor *target, const tn_tensor *source, void *stream);
/** Wait until the default stream has done such a copy. */
int tni_device_wait_for(const tn_tensor *target, const tn_tensor *source);
/** Fill a new tensor on a device with zeros, or with bytes of the host, and wait until it is.
 */
int tni_device_zero(const tn_tensor *tensor);
int tni_device_fill(const tn_tensor *tensor, const void *source);

/** Compute the fields that depend on the strides. Call it after you set the strides. */
void tni_tensor_complete_strides(tn_tensor *tensor);
/** Compute `form`. Call it after a change of the type, of is_row_major or of is_read_only. */
static inline void tni_tensor_complete_form(tn_tensor *t)
{
    uint32_t flags = (t->is_row_major ? TNI_VIEW_CONTIGUOUS : 0u) |
                     (t->is_read_only ? TNI_VIEW_READ_ONLY : 0u);
    t->form = tni_view_make_form(t->dtype, (uint32_t)t->ndim, flags);
}

/** End a tensor, but keep its reference to the storage. */
void tni_tensor_end_alone(tn_tensor *tensor);
/** End a tensor and its reference to the storage. pre: no reference to the tensor is left */
void tni_tensor_end(tn_tensor *tensor);
/**
 * End a tensor that tni_tensor_build() made and that has no attributes and no views. Its memory
 * is that of its storage (I3), which a compiler that inlines tni_tensor_end() cannot know: gcc
 * would warn of a free() of the tensor alone.
 */
static inline void tni_tensor_end_new(const tn_tensor *t) { tni_storage_unref(t->storage); }

#endif
