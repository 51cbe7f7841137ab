/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shape: the type, the sizes and the strides of a tensor, and arithmetic on them that reports
 * every overflow. The room never reads the elements of a tensor.
 *
 * Some strides are never used: all strides of a tensor that has an axis of size 0, and the
 * stride of an axis of size 1. Such a stride may be any number, and every function here
 * ignores it.
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
    bool is_row_major; /* contiguous, and unused strides are those of a new tensor, too */
    bool is_read_only;
    bool is_inner; /* lies behind its storage in the same allocation */
    /* The tni_view_form() of this tensor without attributes. Ignores a read-only storage. */
    uint64_t form;
    struct tni_storage *storage;
    _Atomic(struct tni_attributes *) attributes; /* NULL: none */
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
    return TNI_LIKELY(tensor != NULL) ? 0 : tni_fail(TN_ERR_INVALID, "the tensor is NULL");
}

/** Check the parameter `name`, a pointer to the result. TN_ERR_INVALID: it is NULL. */
static inline int tni_tensor_check_result(const void *ret_result, const char *name)
{
    return TNI_LIKELY(ret_result != NULL) ? 0 : tni_fail_null(name);
}

enum { TNI_DTYPE_NAME_BYTES = 32 };

/** Write the name of a type, or its three numbers if it has no name. For error sentences. */
void tni_dtype_describe(tn_dtype dtype, char text[TNI_DTYPE_NAME_BYTES]);

/**
 * The bytes that the elements of a tensor occupy, relative to the first element: from low to
 * high, without high. An empty tensor has {0, 0}.
 */
struct tni_reach {
    int64_t low_bytes;  /* <= 0 */
    int64_t high_bytes; /* >= 0 */
};

/**
 * Check a shape and count its elements. A shape is valid if the product of the bytes of an
 * element and of all sizes that are not 0 fits in 63 bits. @return 0, TN_ERR_INVALID
 */
int tni_shape_count(int32_t ndim, const int64_t *shape, uint64_t item_bytes,
                    int64_t *ret_count);

/** Fill in row-major strides; a size of 0 counts as 1. pre: tni_shape_count() passed */
void tni_shape_row_major(int32_t ndim, const int64_t *shape, int64_t *ret_strides);

/** Whether all strides, used or not, are those that tni_shape_row_major() fills in. */
bool tni_shape_is_row_major(int32_t ndim, const int64_t *shape, const int64_t *strides);

/**
 * Whether the elements lie in row-major order without gaps. Ignores strides that are not used.
 */
bool tni_shape_is_contiguous(int32_t ndim, const int64_t *shape, const int64_t *strides);

/**
 * Compute which bytes the elements occupy. TN_ERR_INVALID: a bound does not fit in 63 bits.
 * pre: tni_shape_count() passed
 */
int tni_shape_reach(int32_t ndim, const int64_t *shape, const int64_t *strides,
                    uint64_t item_bytes, struct tni_reach *ret_reach);

/**
 * Simplify a shape with two sets of strides in place: remove the axes of size 1, and join two
 * neighbouring axes into one axis if the elements are evenly spaced in both sets. `b` may be
 * `a`. pre: no size is 0. @return how many axes are left
 */
int32_t tni_shape_collapse(int32_t ndim, int64_t *shape, int64_t *a, int64_t *b);

#endif
