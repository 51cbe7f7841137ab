/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of the room shape: types by name, and arithmetic on sizes and strides. */
#include <string.h>

#include "harness/harness.h"
#include "shape/shape.h"

TN_TEST(the_name_of_a_type_is_parsed_back_to_the_type)
{
    static const char *const known[] = {
        "bool",          "int8",     "uint64",  "bfloat16",     "complex128", "float8_e5m2fnuz",
        "float4_e2m1fn", "opaque64", "int32x2", "float32x65535"};
    char name[TNI_DTYPE_NAME_BYTES];
    for (size_t i = 0; i < TNI_COUNT(known); i++) {
        tn_dtype dtype = 0;
        TN_CHECK_OK(tn_dtype_parse(known[i], &dtype));
        TN_CHECK_OK(tn_dtype_name(dtype, name, sizeof name));
        assert_string_equal(name, known[i]);
    }
}

TN_TEST(a_text_that_is_not_exactly_a_name_names_no_type)
{
    static const char *const wrong[] = {
        "",           "float",         "float32 ",  "float32x", "float32x0",   "float32x1",
        "float32x02", "float32x65536", "float32y2", "Float32",  "float32x2x2", NULL};
    for (size_t i = 0; i < TNI_COUNT(wrong); i++) {
        tn_dtype dtype = TN_INT8;
        assert_int_equal(tn_dtype_parse(wrong[i], &dtype), TN_ERR_INVALID);
        assert_true(dtype == TN_INT8);
    }
}

TN_TEST(a_type_without_whole_bytes_has_no_size)
{
    size_t bytes = 7;
    assert_int_equal(tn_dtype_size(TN_DTYPE(kDLInt, 4, 1), &bytes), TN_ERR_UNSUPPORTED);
    assert_non_null(strstr(tn_error_detail(), "int4"));
    assert_int_equal(tn_dtype_size(TN_DTYPE(kDLOpaqueHandle, 64, 1), &bytes),
                     TN_ERR_UNSUPPORTED);
    assert_int_equal(tn_dtype_size(TN_DTYPE(kDLInt, 24, 1), &bytes), TN_ERR_INVALID);
    assert_int_equal(tn_dtype_size(TN_DTYPE(kDLInt, 8, 0), &bytes), TN_ERR_INVALID);
    assert_int_equal(bytes, 7);
    TN_CHECK_OK(tn_dtype_size(TN_DTYPE(kDLComplex, 128, 3), &bytes));
    assert_int_equal(bytes, 48);
}

TN_TEST(a_shape_is_refused_from_2_to_the_63_bytes_on)
{
    int64_t count = 5;
    const int64_t most[] = {INT64_MAX / 4}, over[] = {INT64_MAX / 4 + 1};
    const int64_t empty[] = {0, INT64_MAX / 4}, over_and_empty[] = {0, INT64_MAX / 4 + 1};
    const int64_t negative[] = {2, -1};
    TN_CHECK_OK(tni_shape_count(1, most, 4, &count));
    assert_true(count == INT64_MAX / 4);
    TN_CHECK_OK(tni_shape_count(2, empty, 4, &count));
    assert_int_equal(count, 0);
    TN_CHECK_OK(tni_shape_count(0, NULL, 4, &count));
    assert_int_equal(count, 1);
    assert_int_equal(tni_shape_count(1, over, 4, &count), TN_ERR_INVALID);
    assert_int_equal(tni_shape_count(2, over_and_empty, 4, &count), TN_ERR_INVALID);
    assert_int_equal(tni_shape_count(2, negative, 1, &count), TN_ERR_INVALID);
    assert_int_equal(tni_shape_count(1, NULL, 1, &count), TN_ERR_INVALID);
    assert_int_equal(tni_shape_count(TN_MAX_NDIM + 1, most, 1, &count), TN_ERR_INVALID);
    assert_int_equal(count, 1);
}

TN_TEST(strides_that_are_not_used_are_ignored)
{
    const int64_t one[] = {2, 1, 3}, any[] = {3, -77, 1}, zero[] = {2, 0, 3};
    struct tni_reach reach;
    assert_true(tni_shape_is_contiguous(3, one, any));
    assert_false(tni_shape_is_row_major(3, one, any));
    assert_true(tni_shape_is_contiguous(3, zero, any));
    TN_CHECK_OK(tni_shape_reach(3, one, any, 4, &reach));
    assert_true(reach.low_bytes == 0 && reach.high_bytes == 24);
    TN_CHECK_OK(tni_shape_reach(3, zero, (int64_t[]){INT64_MAX, INT64_MIN, 1}, 4, &reach));
    assert_true(reach.low_bytes == 0 && reach.high_bytes == 0);
}

TN_TEST(a_reach_has_a_side_for_each_sign_and_63_bits)
{
    struct tni_reach reach = {7, 7};
    TN_CHECK_OK(tni_shape_reach(2, (int64_t[]){3, 4}, (int64_t[]){-10, 2}, 8, &reach));
    assert_int_equal(reach.low_bytes, -160);
    assert_int_equal(reach.high_bytes, 56);
    assert_int_equal(tni_shape_reach(1, (int64_t[]){3}, (int64_t[]){INT64_MAX / 2}, 8, &reach),
                     TN_ERR_INVALID);
    assert_int_equal(tni_shape_reach(1, (int64_t[]){2}, (int64_t[]){INT64_MIN}, 8, &reach),
                     TN_ERR_INVALID);
    assert_int_equal(reach.low_bytes, -160);
}

enum { MOST = 64 };

/* The positions of all elements in row-major order. @return how many */
static int list_positions(int32_t ndim, const int64_t *shape, const int64_t *strides,
                          int64_t *ret_positions)
{
    int count = 1;
    ret_positions[0] = 0;
    for (int32_t i = 0; i < ndim; i++) {
        int64_t grown[MOST];
        int next = 0;
        for (int at = 0; at < count; at++)
            for (int64_t k = 0; k < shape[i]; k++)
                grown[next++] = ret_positions[at] + k * strides[i];
        memcpy(ret_positions, grown, (size_t)next * sizeof grown[0]);
        count = next;
    }
    return count;
}

TN_TEST(collapsing_axes_keeps_every_element_in_its_order)
{
    static const struct {
        int64_t shape[4], a[4], b[4];
        int32_t left;
    } cases[] = {
        {{2, 3, 2, 4}, {24, 8, 4, 1}, {24, 8, 4, 1}, 1},
        {{2, 3, 2, 4}, {24, 8, 4, 1}, {24, 8, 4, 2}, 2},
        {{2, 1, 2, 4}, {8, 99, 4, 1}, {8, -5, 4, 1}, 1},
        {{2, 3, 2, 4}, {1, 2, 6, 12}, {24, 8, 4, 1}, 4},
        {{1, 1, 1, 1}, {5, 6, 7, 8}, {1, 2, 3, 4}, 0},
        {{2, 3, 2, 4}, {-24, -8, -4, -1}, {-24, -8, -4, -1}, 1},
    };
    for (size_t i = 0; i < TNI_COUNT(cases); i++) {
        int64_t shape[4], a[4], b[4], before[2][MOST], after[2][MOST];
        memcpy(shape, cases[i].shape, sizeof shape);
        memcpy(a, cases[i].a, sizeof a);
        memcpy(b, cases[i].b, sizeof b);
        int count = list_positions(4, shape, a, before[0]);
        list_positions(4, shape, b, before[1]);
        int32_t left = tni_shape_collapse(4, shape, a, b);
        assert_int_equal(left, cases[i].left);
        assert_int_equal(list_positions(left, shape, a, after[0]), count);
        list_positions(left, shape, b, after[1]);
        for (int side = 0; side < 2; side++)
            assert_memory_equal(before[side], after[side], (size_t)count * sizeof a[0]);
    }
}
