/* SPDX-License-Identifier: Apache-2.0 */
/* shape: arithmetic on sizes and strides. The contracts stand in shape.h. */
#include "shape/shape.h"

int tni_shape_count(int32_t ndim, const int64_t *shape, uint64_t item_bytes, int64_t *ret_count)
{
    int64_t bytes = (int64_t)item_bytes, count = 1;
    bool is_empty = false;

    if (ndim < 0 || ndim > TN_MAX_NDIM)
        return tni_fail(TN_ERR_INVALID, "ndim is %d, but a tensor has 0 to %d axes", ndim,
                        TN_MAX_NDIM);
    if (ndim > 0 && shape == NULL)
        return tni_fail(TN_ERR_INVALID, "shape is NULL, but ndim is %d", ndim);
    for (int32_t i = 0; i < ndim; i++) {
        if (shape[i] < 0)
            return tni_fail(TN_ERR_INVALID, "axis %d has the negative size %lld", i,
                            (long long)shape[i]);
        if (shape[i] == 0)
            is_empty = true;
        else if (__builtin_mul_overflow(bytes, shape[i], &bytes))
            return tni_fail(TN_ERR_INVALID,
                            "the tensor would take 2^63 bytes or more, at axis %d of size %lld",
                            i, (long long)shape[i]);
        else
            count *= shape[i]; /* cannot overflow: count <= bytes */
    }
    *ret_count = is_empty ? 0 : count;
    return 0;
}

void tni_shape_row_major(int32_t ndim, const int64_t *shape, int64_t *ret_strides)
{
    int64_t step = 1;
    for (int32_t i = ndim - 1; i >= 0; i--) {
        ret_strides[i] = step;
        step *= shape[i] != 0 ? shape[i] : 1;
    }
}

bool tni_shape_is_row_major(int32_t ndim, const int64_t *shape, const int64_t *strides)
{
    int64_t step = 1;
    for (int32_t i = ndim - 1; i >= 0; i--) {
        if (strides[i] != step)
            return false;
        step *= shape[i] != 0 ? shape[i] : 1;
    }
    return true;
}

bool tni_shape_is_contiguous(int32_t ndim, const int64_t *shape, const int64_t *strides)
{
    int64_t step = 1;
    bool is_dense = true;
    for (int32_t i = ndim - 1; i >= 0; i--) {
        if (shape[i] == 0)
            return true;
        if (shape[i] != 1 && strides[i] != step)
            is_dense = false;
        step *= shape[i];
    }
    return is_dense;
}

int tni_shape_reach(int32_t ndim, const int64_t *shape, const int64_t *strides,
                    uint64_t item_bytes, struct tni_reach *ret_reach)
{
    struct tni_reach reach = {0, (int64_t)item_bytes};

    for (int32_t i = 0; i < ndim; i++)
        if (shape[i] == 0) {
            *ret_reach = (struct tni_reach){0, 0};
            return 0;
        }
    for (int32_t i = 0; i < ndim; i++) {
        int64_t far = 0;
        int64_t *side = strides[i] < 0 ? &reach.low_bytes : &reach.high_bytes;
        if (shape[i] == 1)
            continue;
        if (__builtin_mul_overflow(shape[i] - 1, strides[i], &far) ||
            __builtin_mul_overflow(far, (int64_t)item_bytes, &far) ||
            __builtin_add_overflow(*side, far, side))
            return tni_fail(
                TN_ERR_INVALID,
                "axis %d of size %lld with stride %lld reaches further than 2^63 bytes", i,
                (long long)shape[i], (long long)strides[i]);
    }
    *ret_reach = reach;
    return 0;
}

static bool is_evenly_spaced(int64_t outer_stride, int64_t inner_stride, int64_t inner_size)
{
    int64_t step = 0;
    return !__builtin_mul_overflow(inner_stride, inner_size, &step) && outer_stride == step;
}

int32_t tni_shape_collapse(int32_t ndim, int64_t *shape, int64_t *a, int64_t *b)
{
    int32_t kept = 0;

    for (int32_t i = 0; i < ndim; i++) {
        int64_t size = shape[i], step_a = a[i], step_b = b[i];
        if (size == 1)
            continue;
        if (kept > 0 && is_evenly_spaced(a[kept - 1], step_a, size) &&
            is_evenly_spaced(b[kept - 1], step_b, size)) {
            shape[kept - 1] *= size;
            kept--;
        } else {
            shape[kept] = size;
        }
        a[kept] = step_a;
        b[kept] = step_b;
        kept++;
    }
    return kept;
}
