/* SPDX-License-Identifier: Apache-2.0 */
/* build: making struct tn_tensor. Inside the room tensor. */
#ifndef TNI_TENSOR_BUILD_H
#define TNI_TENSOR_BUILD_H

#include <string.h>

#include "tensor/storage.h"

/*
 * Whether a tensor that ended is kept for a while, so that one unref too many is named: in
 * debug builds, unless the address sanitizer finds it anyway.
 */
#if defined(__SANITIZE_ADDRESS__)
#define TNI_TENSOR_CATCH 0
#elif defined(TN_KILL_POINTS) || !defined(__OPTIMIZE__)
#define TNI_TENSOR_CATCH 1
#else
#define TNI_TENSOR_CATCH 0
#endif
#define TNI_TENSOR_ENDED UINT32_C(0xdead0000) /* refs of a tensor that ended */

/* The most axes of a tensor whose memory serves again. */
enum { TNI_SPARE_NDIM = 4 };

/* What follows from a type and a shape, once both are checked. */
struct tni_size {
    size_t item_bytes;
    int64_t count;
};
/** TN_ERR_INVALID, TN_ERR_UNSUPPORTED. */
int tni_tensor_measure(tn_dtype dtype, int32_t ndim, const int64_t *shape,
                       struct tni_size *ret_size);

/**
 * A tensor with a reference and a storage of its own, in one allocation; the storage has no
 * memory yet. Row-major strides are filled in.
 * @param size  as tni_tensor_measure() gave it; NULL: measure here
 * @return 0, TN_ERR_INVALID, TN_ERR_UNSUPPORTED, TN_ERR_NO_MEMORY
 */
int tni_tensor_build(tn_dtype dtype, int32_t ndim, const int64_t *shape,
                     const struct tni_size *size, tn_tensor **ret_tensor);

/** The same, in spare memory of the thread's record, if there is any. */
int tni_tensor_build_with(struct tni_thread *thread, tn_dtype dtype, int32_t ndim,
                          const int64_t *shape, tn_tensor **ret_tensor);

/**
 * A tensor in a domain, which the caller fills, and ends with tni_ref_finish().
 * @param options  as of tn_tensor_create()
 * @return as tn_tensor_create()
 */
int tni_tensor_begin_shared(tn_domain *domain, tn_dtype dtype, int32_t ndim,
                            const int64_t *shape, const tn_tensor_options *options,
                            bool *ret_is_zero, tn_tensor **ret_tensor);

/** tni_view_form() of a new tensor. */
static inline uint64_t tni_tensor_new_form(tn_dtype dtype, int32_t ndim)
{
    return tni_view_make_form(dtype, (uint32_t)ndim, TNI_VIEW_CONTIGUOUS);
}

/** The tensor that ended last in this thread's record, or NULL: to be looked at only. */
static inline tn_tensor *tni_tensor_last(const struct tni_thread *thread)
{
    struct tni_storage *s = (void *)thread->spares;
    return TNI_LIKELY(s != NULL) ? (tn_tensor *)(s + 1) : NULL;
}
/**
 * The same, if it had this form, at most 4 axes, and this shape; NULL: it had not.
 * @param shape  others may write it meanwhile: what counts is what the tensor has already
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
/** Make it new, with what was measured then, over no memory yet. pre: it is there */
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
 * As tni_tensor_build(), as a view of the storage of `base`, which gets one reference more;
 * read-only if `base` is. Its elements mean what those of `base` do.
 * @return as tni_tensor_build(); TN_ERR_UNSUPPORTED also: as tni_attributes_inherit()
 */
int tni_tensor_build_view(const tn_tensor *base, tn_dtype dtype, int32_t ndim,
                          const int64_t *shape, tn_tensor **ret_tensor);

static inline int tni_tensor_check_domain(const struct tn_domain *domain)
{
    return TNI_LIKELY(domain != NULL) ? 0 : tni_fail(TN_ERR_INVALID, "no domain");
}

/** What a block for this tensor is to say of itself. */
static inline struct tni_block_about tni_tensor_about(const tn_tensor *t)
{
    return (struct tni_block_about){.kind = TNI_KIND_TENSOR,
                                    .ndim = (uint8_t)t->ndim,
                                    .dtype = t->dtype,
                                    .shape = t->extents};
}

/** Options as they are meant, every default put in. TN_ERR_INVALID, TN_ERR_UNSUPPORTED. */
static inline bool tni_tensor_is_to_be_zeroed(const tn_tensor_options *options)
{
    return options != NULL && (options->flags & TN_TENSOR_ZEROED) != 0;
}
int tni_tensor_read_options(const tn_tensor_options *given, tn_tensor_options *ret_options);

/** As tni_tensor_encode(), of a tensor that may be in no domain: the caller writes the block.
 */
size_t tni_tensor_encode_all(const tn_tensor *tensor, const struct tni_attributes *held,
                             size_t room_bytes, struct tni_view *ret_view);
/**
 * Make a tensor over no memory yet of a view of a storage of `limit` bytes, after checking all
 * of it but the block that it names.
 * @return the bytes the view takes up, or as tni_tensor_decode()
 */
int tni_tensor_decode_as(const void *view, size_t size_bytes, uint64_t limit,
                         tn_tensor **ret_tensor);

/** After its strides were set. */
void tni_tensor_complete_strides(tn_tensor *tensor);
/** After anything that the form says has changed. */
static inline void tni_tensor_complete_form(tn_tensor *t)
{
    uint32_t flags = (t->is_row_major ? TNI_VIEW_CONTIGUOUS : 0u) |
                     (t->is_read_only ? TNI_VIEW_READ_ONLY : 0u);
    t->form = tni_view_make_form(t->dtype, (uint32_t)t->ndim, flags);
}

/** End a tensor, but not its reference to the storage. */
void tni_tensor_end_alone(tn_tensor *tensor);
/** End a tensor and its reference to the storage; the caller saw that it is the last. */
void tni_tensor_end(tn_tensor *tensor);

#endif
