/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shape: sizes and strides, and the arithmetic that cannot overflow. Inside the room tensor.
 *
 * A size of 0 makes a tensor empty, and then no stride is ever used; a stride of an axis of
 * size 1 is not used either. So both may be any number, and every function here passes over
 * them.
 */
#ifndef TNI_TENSOR_SHAPE_H
#define TNI_TENSOR_SHAPE_H

#include <tenon/tensor.h>

#include "base/base.h"

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
