/* SPDX-License-Identifier: Apache-2.0 */
/* build: makes and ends struct tn_tensor. The invariants are in tensor.c. */
#include "tensor/build.h"

#include <stdlib.h>
#include <string.h>

static size_t tensor_bytes(int32_t ndim)
{
    return sizeof(tn_tensor) + 2 * (size_t)ndim * sizeof(int64_t);
}

/*
 * Get memory for a tensor and its storage in one allocation (I3). pre: ndim is valid
 * @param thread  this thread's record, whose spare memory may be used; NULL: none
 */
static tn_tensor *alloc_both(struct tni_thread *thread, int32_t ndim)
{
    bool has_room = ndim <= TNI_SPARE_NDIM;
    struct tni_storage *s =
        has_room && thread != NULL && thread->spares != NULL
            ? (void *)tni_thread_take_spare(thread)
            : malloc(sizeof *s + tensor_bytes(TNI_MAX(ndim, (int32_t)TNI_SPARE_NDIM)));
    if (s == NULL)
        return NULL;
    *s = (struct tni_storage){.refs = 1, .has_room = has_room};
    tn_tensor *t = (tn_tensor *)(s + 1);
    *t = (tn_tensor){.refs = 1, .is_inner = true, .storage = s};
    return t;
}

static tn_tensor *alloc_view(const tn_tensor *base, int32_t ndim)
{
    tn_tensor *t = malloc(tensor_bytes(ndim));
    if (t == NULL)
        return NULL;
    *t = (tn_tensor){.refs = 1,
                     .is_read_only = base->is_read_only,
                     .storage = tni_storage_ref(base->storage),
                     .byte_offset = base->byte_offset};
    return t;
}

int tni_tensor_measure(tn_dtype dtype, int32_t ndim, const int64_t *shape,
                       struct tni_size *ret_size)
{
    int status = tn_dtype_size(dtype, &ret_size->item_bytes);
    return status != 0 ? status
                       : tni_shape_count(ndim, shape, ret_size->item_bytes, &ret_size->count);
}

/* Set type, shape and strides. If `t` is NULL, its allocation failed: TN_ERR_NO_MEMORY. */
static int fill(tn_tensor *t, tn_dtype dtype, int32_t ndim, const int64_t *shape,
                const struct tni_size *size)
{
    if (t == NULL)
        return tni_fail(TN_ERR_NO_MEMORY, "no private memory for a tensor of %d axes", ndim);
    t->dtype = dtype;
    t->ndim = ndim;
    t->is_contiguous = true;
    t->is_row_major = true;
    tni_tensor_complete_form(t);
    t->count = size->count;
    t->item_bytes = size->item_bytes;
    for (int32_t i = 0; i < ndim; i++)
        t->extents[i] = shape[i];
    tni_shape_row_major(ndim, t->extents, tni_tensor_steps(t));
    return 0;
}

int tni_tensor_build_measured(struct tni_thread *thread, tn_dtype dtype, int32_t ndim,
                              const int64_t *shape, const struct tni_size *size,
                              tn_tensor **ret_tensor)
{
    tn_tensor *t = alloc_both(thread, ndim);
    int status = fill(t, dtype, ndim, shape, size);
    if (status == 0)
        *ret_tensor = t;
    return status;
}

int tni_tensor_build_with(struct tni_thread *thread, tn_dtype dtype, int32_t ndim,
                          const int64_t *shape, tn_tensor **ret_tensor)
{
    struct tni_size size;
    int status = tni_tensor_measure(dtype, ndim, shape, &size);
    return status != 0
               ? status
               : tni_tensor_build_measured(thread, dtype, ndim, shape, &size, ret_tensor);
}

int tni_tensor_build(tn_dtype dtype, int32_t ndim, const int64_t *shape, tn_tensor **ret_tensor)
{
    return tni_tensor_build_with(NULL, dtype, ndim, shape, ret_tensor);
}

int tni_tensor_build_view(const tn_tensor *base, tn_dtype dtype, int32_t ndim,
                          const int64_t *shape, tn_tensor **ret_tensor)
{
    struct tni_size size;
    int status = tni_tensor_measure(dtype, ndim, shape, &size);
    if (status != 0)
        return status;
    tn_tensor *v = alloc_view(base, ndim);
    if ((status = fill(v, dtype, ndim, shape, &size)) != 0)
        return status;
    if (TNI_UNLIKELY(base->attributes != NULL) &&
        (status = tni_attributes_inherit(v, base)) != 0) {
        tni_tensor_end(v);
        return status;
    }
    *ret_tensor = v;
    return 0;
}

void tni_tensor_end_alone(tn_tensor *t)
{
    tni_attributes_drop(t->attributes);
#if TNI_TENSOR_CATCH
    atomic_store_explicit(&t->refs, TNI_TENSOR_ENDED, memory_order_relaxed);
#endif
    if (!t->is_inner)
        tni_tensor_free_memory(t);
}

void tni_tensor_end(tn_tensor *t)
{
    struct tni_storage *s = t->storage;
    tni_tensor_end_alone(t);
    tni_storage_unref(s);
}

void tni_tensor_complete_strides(tn_tensor *t)
{
    t->is_contiguous = tni_shape_is_contiguous(t->ndim, t->extents, tni_tensor_strides(t));
    t->is_row_major =
        t->is_contiguous && tni_shape_is_row_major(t->ndim, t->extents, tni_tensor_strides(t));
    tni_tensor_complete_form(t);
}
