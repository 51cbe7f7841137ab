/* SPDX-License-Identifier: Apache-2.0 */
/* Copies against a copy of one element after the other. */
#include <tenon/dlpack.h>

#include "unit/tensor_test.h"

#include <stdlib.h>

enum { NDIM = 5, STORAGE_BYTES = 2048 };

static const tn_dtype types[] = {
    TN_INT8,  TN_INT16,      TN_DTYPE(kDLUInt, 8, 3), TN_FLOAT32,
    TN_INT64, TN_COMPLEX128, TN_DTYPE(kDLInt, 64, 3),
};

static tn_tensor *make_storage(void)
{
    tn_tensor *t;
    TN_CHECK_OK(tn_tensor_create_private(TN_UINT8, 1, (int64_t[]){STORAGE_BYTES}, &t));
    for (int i = 0; i < STORAGE_BYTES; i++)
        ((uint8_t *)tn_tensor_data(t))[i] = (uint8_t)tnt_random();
    return t;
}

/*
 * A view with random strides that fits; small ones are tried often, so that one is found soon.
 */
static tn_tensor *random_view(tn_tensor *storage, tn_dtype dtype, int32_t ndim,
                              const int64_t *shape, bool allow_zero)
{
    for (;;) {
        int64_t strides[NDIM];
        tn_tensor *v;
        int64_t step = 1;
        for (int32_t i = ndim - 1; i >= 0; i--) {
            strides[i] = tnt_random_below(3) == 0 ? (int64_t)tnt_random_below(9) : step;
            if (tnt_random_below(3) == 0)
                strides[i] = -strides[i];
            if (!allow_zero && strides[i] == 0)
                strides[i] = 1;
            step *= shape[i];
        }
        if (tnt_random_below(4) == 0 && ndim > 1) {
            int64_t first = strides[0];
            strides[0] = strides[ndim - 1];
            strides[ndim - 1] = first;
        }
        if (tn_tensor_view(storage, dtype, ndim, shape, strides,
                           tnt_random_below(STORAGE_BYTES), &v) == 0)
            return v;
    }
}

/* Whether two elements of a target share a byte: then the order of copying would show. */
static bool repeats(const tn_tensor *t, size_t item_bytes)
{
    uint8_t seen[STORAGE_BYTES] = {0};
    int64_t place[NDIM] = {0};
    do {
        size_t at = (size_t)(element_at(t, place) - (uint8_t *)t->storage->data);
        for (size_t i = 0; i < item_bytes; i++)
            if (seen[at + i]++ != 0)
                return true;
    } while (next_place(tn_tensor_ndim(t), tn_tensor_shape(t), place));
    return false;
}

/* All of the target's storage after a copy through a third buffer, one element at a time. */
static void copy_slowly(const tn_tensor *target, const tn_tensor *source, size_t item_bytes,
                        uint8_t *ret_storage)
{
    uint8_t *values = malloc((size_t)tn_tensor_count(source) * item_bytes), *at = values;
    int64_t place[NDIM] = {0};
    do {
        memcpy(at, element_at(source, place), item_bytes);
        at += item_bytes;
    } while (next_place(tn_tensor_ndim(source), tn_tensor_shape(source), place));
    memcpy(ret_storage, target->storage->data, STORAGE_BYTES);
    memset(place, 0, sizeof place);
    at = values;
    do {
        memcpy(ret_storage + (element_at(target, place) - target->storage->data), at,
               item_bytes);
        at += item_bytes;
    } while (next_place(tn_tensor_ndim(target), tn_tensor_shape(target), place));
    free(values);
}

TN_TEST_WITHIN(any_copy_does_what_one_element_after_the_other_would_do, 60)
{
    unsigned done = 0, same = 0;
    while (done < 4000) {
        tn_dtype dtype = types[tnt_random_below(TNI_COUNT(types))];
        int32_t ndim = (int32_t)tnt_random_below(NDIM + 1);
        int64_t shape[NDIM];
        size_t item_bytes;
        uint8_t expected[STORAGE_BYTES];
        TN_CHECK_OK(tn_dtype_size(dtype, &item_bytes));
        for (int32_t i = 0; i < ndim; i++)
            shape[i] = 1 + (int64_t)tnt_random_below(3);
        tn_tensor *one = make_storage();
        tn_tensor *other = tnt_random_below(2) == 0 ? tn_tensor_ref(one) : make_storage();
        if (ndim > 3)
            shape[0] = shape[1] = 1;
        tn_tensor *target = random_view(one, dtype, ndim, shape, false);
        tn_tensor *source = random_view(other, dtype, ndim, shape, true);
        if (!repeats(target, item_bytes)) {
            copy_slowly(target, source, item_bytes, expected);
            TN_CHECK_OK(tn_tensor_copy(target, source));
            assert_memory_equal(one->storage->data, expected, STORAGE_BYTES);
            done++;
            same += one == other;
        }
        tn_tensor_unref(target);
        tn_tensor_unref(source);
        tn_tensor_unref(one);
        tn_tensor_unref(other);
    }
    assert_true(same > 100 && same < done - 100);
}

TN_TEST(copies_that_make_no_sense_are_refused)
{
    tn_tensor *a, *b, *c, *d, *e;
    TN_CHECK_OK(tn_tensor_create_private(TN_INT32, 2, (int64_t[]){2, 3}, &a));
    TN_CHECK_OK(tn_tensor_create_private(TN_FLOAT32, 2, (int64_t[]){2, 3}, &b));
    TN_CHECK_OK(tn_tensor_create_private(TN_INT32, 2, (int64_t[]){3, 2}, &c));
    TN_CHECK_OK(tn_tensor_view(a, TN_INT32, 2, (int64_t[]){2, 3}, (int64_t[]){0, 1}, 0, &d));
    TN_CHECK_OK(tn_tensor_reshape(a, 1, (int64_t[]){6}, &e));
    assert_int_equal(tn_tensor_copy(a, b), TN_ERR_INVALID);
    assert_non_null(
        strstr(tn_error_detail(),
               "elements of type float32 cannot be copied to a tensor of type int32"));
    assert_int_equal(tn_tensor_copy(a, c), TN_ERR_INVALID);
    assert_int_equal(tn_tensor_copy(a, e), TN_ERR_INVALID);
    assert_int_equal(tn_tensor_copy(d, a), TN_ERR_INVALID);
    assert_int_equal(tn_tensor_copy(a, NULL), TN_ERR_INVALID);
    assert_int_equal(tn_tensor_copy(a, d), 0);
    tn_tensor_unref(a);
    tn_tensor_unref(b);
    tn_tensor_unref(c);
    tn_tensor_unref(d);
    tn_tensor_unref(e);
}
