/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shape: the type, sizes and strides of a tensor, and arithmetic on them that cannot overflow.
 * It reads no memory of a tensor.
 *
 * A size of 0 makes a tensor empty, and then no stride is ever used; a stride of an axis of
 * size 1 is not used either. So both may be any number, and every function here passes over
 * them.
 */
#ifndef TNI_SHAPE_H
#define TNI_SHAPE_H

#include <tenon/dlpack.h>
#include <tenon/tensor.h>

#include "base/base.h"

struct tni_attributes;
struct tni_storage;

struct tn_tensor {
    _Atomic uint32_t refs;
    tn_dtype dtype;
    int32_t ndim;
    bool is_contiguous;
    bool is_row_major; /* contiguous, and with just the strides that a new tensor has */
    bool is_read_only;
    bool is_inner; /* lies behind its storage, in one allocation */
    uint64_t form; /* tni_view_form() of it without attributes; its storage may be read-only */
    struct tni_storage *storage;
    _Atomic(struct tni_attributes *) attributes; /* its own; NULL: none */
    uint64_t byte_offset;
    int64_t count; /* elements */
    uint64_t item_bytes;
    int64_t extents[]; /* shape [ndim], strides [ndim] */
};

static inline const int64_t *tni_tensor_strides(const tn_tensor *tensor)
{
    return tensor->extents + tensor->ndim;
}
static inline uint64_t tni_tensor_size_bytes(const tn_tensor *tensor)
{
    return (uint64_t)tensor->count * tensor->item_bytes;
}
static inline int64_t *tni_tensor_sizes(tn_tensor *tensor) { return tensor->extents; }
static inline int64_t *tni_tensor_steps(tn_tensor *tensor)
{
    return tensor->extents + tensor->ndim;
}

static inline int tni_tensor_check(const tn_tensor *tensor)
{
    return TNI_LIKELY(tensor != NULL) ? 0 : tni_fail(TN_ERR_INVALID, "no tensor");
}

/** Of where a function is to leave its result. TN_ERR_INVALID: NULL. */
static inline int tni_tensor_check_result(const void *ret_result)
{
    if (TNI_LIKELY(ret_result != NULL))
        return 0;
    return tni_fail(TN_ERR_INVALID, "no place for the result");
}

enum { TNI_DTYPE_NAME_BYTES = 32 };

/** The name, or the three numbers of a type that has none: for error details. */
void tni_dtype_describe(tn_dtype dtype, char text[TNI_DTYPE_NAME_BYTES]);

/**
 * Bytes that a tensor's elements take up, relative to its first one: [low, high). Empty: 0, 0.
 */
struct tni_reach {
    int64_t low_bytes;  /* <= 0 */
    int64_t high_bytes; /* >= 0 */
};

/**
 * Check a shape and count its elements. The sizes that are not 0, and the bytes of an element,
 * have a product that fits in 63 bits. @return 0, TN_ERR_INVALID
 */
int tni_shape_count(int32_t ndim, const int64_t *shape, uint64_t item_bytes,
                    int64_t *ret_count);

/** Strides in row-major order; an axis of size 0 counts as 1. pre: tni_shape_count() passed */
void tni_shape_row_major(int32_t ndim, const int64_t *shape, int64_t *ret_strides);

/** Whether the strides are exactly those of tni_shape_row_major(). */
bool tni_shape_is_row_major(int32_t ndim, const int64_t *shape, const int64_t *strides);

/**
 * Whether the elements lie in row-major order without gaps: strides that are not used do not
 * matter.
 */
bool tni_shape_is_contiguous(int32_t ndim, const int64_t *shape, const int64_t *strides);

/**
 * How far the elements reach. TN_ERR_INVALID: further than 63 bits. pre: tni_shape_count()
 * passed
 */
int tni_shape_reach(int32_t ndim, const int64_t *shape, const int64_t *strides,
                    uint64_t item_bytes, struct tni_reach *ret_reach);

/**
 * Join neighbouring axes that are evenly spaced under both sets of strides, and leave out those
 * of size 1, in place. `b` may be `a`. pre: no size is 0. @return how many axes are left
 */
int32_t tni_shape_collapse(int32_t ndim, int64_t *shape, int64_t *a, int64_t *b);

#endif
