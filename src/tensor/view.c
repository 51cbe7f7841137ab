/* SPDX-License-Identifier: Apache-2.0 */
/* view: makes a tensor of another shape or strides over the storage of one. See tensor.c. */
#include <string.h>

#include "tensor/build.h"

/* Check I1 for a new view: every element lies inside of the storage. */
static int check_inside(const tn_tensor *v)
{
    uint64_t bytes = tni_storage_bytes(v->storage);
    struct tni_reach reach;
    int status =
        tni_shape_reach(v->ndim, v->extents, v->extents + v->ndim, v->item_bytes, &reach);

    if (status != 0)
        return status;
    if (v->byte_offset <= bytes && 0 - (uint64_t)reach.low_bytes <= v->byte_offset &&
        (uint64_t)reach.high_bytes <= bytes - v->byte_offset)
        return 0;
    return tni_fail(
        TN_ERR_INVALID,
        "the view reaches from byte %lld to byte %lld around the offset %llu, but the "
        "storage has %llu bytes",
        (long long)reach.low_bytes, (long long)reach.high_bytes,
        (unsigned long long)v->byte_offset, (unsigned long long)bytes);
}

int tn_tensor_view(tn_tensor *tensor, tn_dtype dtype, int32_t ndim, const int64_t *shape,
                   const int64_t *strides, uint64_t byte_offset, tn_tensor **ret_view)
{
    tn_tensor *v;
    int status = tni_tensor_check(tensor);
    if (status != 0 || (status = tni_tensor_check_result(ret_view, "ret_view")) != 0 ||
        (status = tni_tensor_build_view(tensor, dtype, ndim, shape, &v)) != 0)
        return status;
    v->byte_offset = byte_offset;
    for (int32_t i = 0; i < ndim && strides != NULL; i++)
        tni_tensor_steps(v)[i] = strides[i];
    tni_tensor_complete_strides(v);
    if ((status = check_inside(v)) != 0) {
        tn_tensor_unref(v);
        return status;
    }
    *ret_view = v;
    return 0;
}

/* ---- slice ------------------------------------------------------------------------------- */

static int check_axis(const tn_tensor *tensor, int32_t axis)
{
    if (axis >= 0 && axis < tensor->ndim)
        return 0;
    return tni_fail(TN_ERR_INVALID, "there is no axis %d: the tensor has %d axes", axis,
                    tensor->ndim);
}

static int check_range(int64_t size, int64_t start, int64_t stop, int64_t step)
{
    if (step != 0 && start >= 0 && start <= stop && stop <= size)
        return 0;
    return tni_fail(TN_ERR_INVALID,
                    "the range %lld to %lld by %lld is invalid for an axis of size %lld",
                    (long long)start, (long long)stop, (long long)step, (long long)size);
}

static int64_t count_range(int64_t start, int64_t stop, int64_t step)
{
    uint64_t stride = step < 0 ? 0 - (uint64_t)step : (uint64_t)step;
    uint64_t length = (uint64_t)(stop - start);
    return (int64_t)(length / stride + (length % stride != 0));
}

int tn_tensor_slice(tn_tensor *tensor, int32_t axis, int64_t start, int64_t stop, int64_t step,
                    tn_tensor **ret_view)
{
    int64_t shape[TN_MAX_NDIM];
    tn_tensor *v;
    int status = tni_tensor_check(tensor);
    if (status != 0 || (status = tni_tensor_check_result(ret_view, "ret_view")) != 0 ||
        (status = check_axis(tensor, axis)) != 0 ||
        (status = check_range(tensor->extents[axis], start, stop, step)) != 0)
        return status;
    const int64_t *strides = tni_tensor_strides(tensor);
    memcpy(shape, tensor->extents, (size_t)tensor->ndim * sizeof(int64_t));
    shape[axis] = count_range(start, stop, step);
    if ((status = tni_tensor_build_view(tensor, tensor->dtype, tensor->ndim, shape, &v)) != 0)
        return status;
    int64_t *steps = tni_tensor_steps(v);
    memcpy(steps, strides, (size_t)tensor->ndim * sizeof(int64_t));
    /* The product can overflow only if no element uses this stride. */
    if (__builtin_mul_overflow(strides[axis], step, &steps[axis]))
        steps[axis] = strides[axis];
    /* Every element of the slice is an element of the tensor, so I1 holds. */
    if (v->count > 0) {
        int64_t first = step > 0 ? start : stop - 1;
        if (first != 0)
            v->byte_offset += (uint64_t)first * (uint64_t)strides[axis] * v->item_bytes;
    }
    tni_tensor_complete_strides(v);
    *ret_view = v;
    return 0;
}

/* ---- transpose --------------------------------------------------------------------------- */

static int check_axes(int32_t ndim, const int32_t *axes)
{
    uint32_t seen = 0;
    for (int32_t i = 0; i < ndim; i++) {
        if (axes[i] < 0 || axes[i] >= ndim || (seen >> axes[i] & 1) != 0)
            return tni_fail(TN_ERR_INVALID,
                            "axis %d at position %d does not make a permutation of %d axes",
                            axes[i], i, ndim);
        seen |= UINT32_C(1) << axes[i];
    }
    return 0;
}

int tn_tensor_transpose(tn_tensor *tensor, const int32_t *axes, tn_tensor **ret_view)
{
    int32_t reversed[TN_MAX_NDIM];
    int64_t shape[TN_MAX_NDIM] = {0};
    tn_tensor *v;
    int status = tni_tensor_check(tensor);
    if (status != 0 || (status = tni_tensor_check_result(ret_view, "ret_view")) != 0)
        return status;
    int32_t ndim = tensor->ndim;
    for (int32_t i = 0; i < ndim; i++)
        reversed[i] = ndim - 1 - i;
    if (axes == NULL)
        axes = reversed;
    if ((status = check_axes(ndim, axes)) != 0)
        return status;
    for (int32_t i = 0; i < ndim; i++)
        shape[i] = tensor->extents[axes[i]];
    if ((status = tni_tensor_build_view(tensor, tensor->dtype, ndim, shape, &v)) != 0)
        return status;
    for (int32_t i = 0; i < ndim; i++)
        tni_tensor_steps(v)[i] = tni_tensor_strides(tensor)[axes[i]];
    tni_tensor_complete_strides(v);
    *ret_view = v;
    return 0;
}

/* ---- reshape ----------------------------------------------------------------------------- */

/* Replace a size of -1, if there is one, by the size that makes `count` elements. */
static int infer_size(int64_t count, int32_t ndim, int64_t *shape)
{
    int32_t unknown = -1;
    int64_t known = 1;

    for (int32_t i = 0; i < ndim; i++) {
        if (shape[i] == -1 && unknown < 0)
            unknown = i;
        else if (shape[i] == -1)
            return tni_fail(TN_ERR_INVALID,
                            "axes %d and %d of the new shape are -1: only one size may be -1",
                            unknown, i);
        else if (shape[i] < 0)
            return tni_fail(TN_ERR_INVALID,
                            "axis %d of the new shape has the negative size %lld", i,
                            (long long)shape[i]);
        else if (__builtin_mul_overflow(known, shape[i], &known))
            return tni_fail(TN_ERR_INVALID,
                            "the new shape has 2^63 elements or more, at axis %d of size %lld",
                            i, (long long)shape[i]);
    }
    if (unknown >= 0 && known != 0 && count % known == 0) {
        shape[unknown] = count / known;
        return 0;
    }
    if (unknown < 0 && known == count)
        return 0;
    return tni_fail(TN_ERR_INVALID, "%lld elements do not fill the new shape exactly",
                    (long long)count);
}

/*
 * Compute strides that give the same elements another shape. First join the old axes into the
 * longest runs of evenly spaced elements. Then, from the last axis on, the size of each new
 * axis must divide the number of elements that are left of a run. @return whether such strides
 * exist
 */
static bool find_strides(const tn_tensor *t, int32_t ndim, const int64_t *shape,
                         int64_t *ret_strides)
{
    int64_t runs[TN_MAX_NDIM], steps[TN_MAX_NDIM];
    memcpy(runs, t->extents, (size_t)t->ndim * sizeof(int64_t));
    memcpy(steps, tni_tensor_strides(t), (size_t)t->ndim * sizeof(int64_t));
    int32_t run = tni_shape_collapse(t->ndim, runs, steps, steps) - 1;
    int64_t left = run >= 0 ? runs[run] : 1, step = run >= 0 ? steps[run] : 1;

    for (int32_t i = ndim - 1; i >= 0; i--) {
        if (shape[i] != 1 && left == 1 && run > 0) {
            run--;
            left = runs[run];
            step = steps[run];
        }
        if (left % shape[i] != 0)
            return false;
        ret_strides[i] = step;
        left /= shape[i];
        /* `step` can wrap only after the last element of a run: the next axes have size 1. */
        step = (int64_t)((uint64_t)step * (uint64_t)shape[i]);
    }
    return true;
}

int tn_tensor_reshape(tn_tensor *tensor, int32_t ndim, const int64_t *shape,
                      tn_tensor **ret_view)
{
    int64_t sizes[TN_MAX_NDIM], strides[TN_MAX_NDIM];
    tn_tensor *v;
    int status = tni_tensor_check(tensor);
    if (status != 0 || (status = tni_tensor_check_result(ret_view, "ret_view")) != 0)
        return status;
    if (ndim < 0 || ndim > TN_MAX_NDIM)
        return tni_fail(TN_ERR_INVALID, "ndim is %d, but a tensor has 0 to %d axes", ndim,
                        TN_MAX_NDIM);
    if (ndim > 0 && shape == NULL)
        return tni_fail(TN_ERR_INVALID, "shape is NULL, but ndim is %d", ndim);
    for (int32_t i = 0; i < ndim; i++)
        sizes[i] = shape[i];
    if ((status = infer_size(tensor->count, ndim, sizes)) != 0)
        return status;
    if (tensor->count > 0 && !find_strides(tensor, ndim, sizes, strides))
        return tni_fail(TN_ERR_INVALID, "the strides of the tensor allow no view of the new "
                                        "shape: copy it into a contiguous one first");
    if ((status = tni_tensor_build_view(tensor, tensor->dtype, ndim, sizes, &v)) != 0)
        return status;
    if (tensor->count > 0) {
        for (int32_t i = 0; i < ndim; i++)
            tni_tensor_steps(v)[i] = strides[i];
        tni_tensor_complete_strides(v);
    }
    *ret_view = v;
    return 0;
}
