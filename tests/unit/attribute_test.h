/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of attributes share: tensors that have them. */
#ifndef TENON_TESTS_UNIT_ATTRIBUTE_TEST_H
#define TENON_TESTS_UNIT_ATTRIBUTE_TEST_H

#include "harness/tensor.h"
#include "unit/tensor_test.h"

static inline tn_tensor *make(tn_dtype dtype, int32_t ndim, const int64_t *shape)
{
    tn_tensor *t = NULL;
    TN_CHECK_OK(tn_tensor_create_private(dtype, ndim, shape, &t));
    return t;
}

static inline tn_tensor *make_line(tn_dtype dtype, int64_t size)
{
    return make(dtype, 1, (int64_t[]){size});
}

/* The call failed with this status, and its sentence has these words. */
static inline void refused(int status, int wanted, const char *words)
{
    assert_int_equal(status, wanted);
    if (strstr(tn_error_detail(), words) == NULL)
        fail_msg("'%s' does not say '%s'", tn_error_detail(), words);
}

static inline void set_one_of_each(tn_tensor *t)
{
    const uint64_t coarse[] = {0, 1, 2}, fine[] = {0, 2, 3};
    const char *names[] = {"batch", "", "π"};
    const double scales[] = {0.5};
    const int64_t zeros[] = {-7};
    tn_quantizer quantizer = {TN_QUANTIZER_AFFINE, 0, 1, 0, scales, zeros};
    TN_CHECK_OK(tn_tensor_set_metadata(t, "step", "12345", 5));
    TN_CHECK_OK(tn_tensor_set_quantizer(t, &quantizer));
    TN_CHECK_OK(
        tn_tensor_set_lod(t, 2, (uint32_t[]){3, 3}, (const uint64_t *[]){coarse, fine}));
    TN_CHECK_OK(tn_tensor_set_axis_names(t, names));
    TN_CHECK_OK(tn_tensor_set_name(t, "gewichte-λ"));
    TN_CHECK_OK(tn_tensor_set_metadata(t, "epoch", "", 0));
    TN_CHECK_OK(tn_tensor_set_flags(t, TN_REQUIRES_GRAD | TN_PARAMETER));
}

static inline tn_tensor *make_full(void)
{
    tn_tensor *t = make(TN_INT32, 3, (int64_t[]){3, 2, 2});
    set_one_of_each(t);
    return t;
}

static inline void expect_one_of_each(const tn_tensor *t)
{
    tn_quantizer q;
    uint32_t count = 0;
    size_t bytes = 99;
    assert_int_equal(tn_tensor_flags(t), TN_REQUIRES_GRAD | TN_PARAMETER);
    assert_string_equal(tn_tensor_name(t), "gewichte-λ");
    assert_string_equal(tn_tensor_axis_name(t, 0), "batch");
    assert_string_equal(tn_tensor_axis_name(t, 1), "");
    assert_string_equal(tn_tensor_axis_name(t, 2), "π");
    assert_int_equal(tnt_lod_levels(t), 2);
    assert_memory_equal(tn_tensor_lod(t, 1, &count), ((uint64_t[]){0, 2, 3}), 24);
    assert_int_equal(count, 3);
    assert_true(tn_tensor_quantizer(t, &q));
    assert_int_equal(q.scheme, TN_QUANTIZER_AFFINE);
    assert_int_equal(q.count, 1);
    assert_true(q.scales[0] == 0.5);
    assert_int_equal(q.zero_points[0], -7);
    assert_memory_equal(tn_tensor_metadata(t, "step", &bytes), "12345", 5);
    assert_int_equal(bytes, 5);
    assert_non_null(tn_tensor_metadata(t, "epoch", &bytes));
    assert_int_equal(bytes, 0);
}

/* `count` times 'x'. */
static inline const char *letters(size_t count)
{
    static char text[300];
    memset(text, 'x', sizeof text);
    text[count] = '\0';
    return text;
}

static inline tn_sparse make_coo(tn_tensor *indices, tn_tensor *values)
{
    return (tn_sparse){.layout = TN_LAYOUT_COO,
                       .flags = TN_SPARSE_COALESCED,
                       .ndim = 3,
                       .part_count = 2,
                       .shape = {100, 200, 5},
                       .parts = {indices, values}};
}

static inline tn_sparse make_csr(tn_tensor *rows, tn_tensor *columns, tn_tensor *values)
{
    return (tn_sparse){.layout = TN_LAYOUT_CSR,
                       .ndim = 2,
                       .part_count = 3,
                       .shape = {10, 1000},
                       .parts = {rows, columns, values}};
}

static inline void unref_parts(const tn_sparse *s)
{
    for (int i = 0; i < 3; i++)
        tn_tensor_unref(s->parts[i]);
}

static inline tn_sparse new_coo(void)
{
    return make_coo(make(TN_INT64, 2, (int64_t[]){2, 7}),
                    make(TN_FLOAT32, 2, (int64_t[]){7, 5}));
}

static inline tn_sparse new_csr(void)
{
    return make_csr(make_line(TN_INT32, 11), make_line(TN_INT32, 4), make_line(TN_FLOAT64, 4));
}

#endif
