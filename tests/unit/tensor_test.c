/* SPDX-License-Identifier: Apache-2.0 */
/* Types, shapes and views. */
#include <tenon/dlpack.h>

#include "unit/tensor_test.h"

#include <stdlib.h>

#include "harness/tensor.h"
#include "tensor/build.h"

/* ---- types ------------------------------------------------------------------------------- */

TN_TEST(every_type_that_has_a_size_has_a_name_that_parses_back_to_it)
{
    unsigned sized = 0, refused = 0;
    for (unsigned code = 0; code < 256; code++)
        for (unsigned bits = 0; bits < 256; bits++) {
            tn_dtype dtype = TN_DTYPE(code, bits, 1), again;
            char name[32];
            size_t bytes = 0;
            int named = tn_dtype_name(dtype, name, sizeof name);
            int status = tn_dtype_size(dtype, &bytes);
            if (named == TN_ERR_INVALID) {
                assert_int_equal(status, TN_ERR_INVALID);
                continue;
            }
            assert_int_equal(named, 0);
            assert_int_equal(tn_dtype_parse(name, &again), 0);
            assert_memory_equal(&dtype, &again, sizeof dtype);
            if (status == 0) {
                assert_int_equal(bytes * 8, bits);
                sized++;
            } else {
                assert_int_equal(status, TN_ERR_UNSUPPORTED);
                assert_non_null(strstr(tn_error_detail(), name));
                refused++;
            }
        }
    assert_int_equal(sized, 24);
    assert_int_equal(refused, 11);
}

TN_TEST(lanes_multiply_the_size_and_stand_in_the_name)
{
    tn_dtype dtype = TN_DTYPE(kDLInt, 32, 4), again;
    char name[32];
    size_t bytes = 0;
    assert_int_equal(tn_dtype_name(dtype, name, sizeof name), 0);
    assert_string_equal(name, "int32x4");
    assert_int_equal(tn_dtype_size(dtype, &bytes), 0);
    assert_int_equal(bytes, 16);
    assert_int_equal(tn_dtype_parse("float8_e4m3b11fnuzx65535", &again), 0);
    assert_int_equal(TN_DTYPE_LANES(again), 65535);
    assert_int_equal(tn_dtype_name(again, name, sizeof name), 0);
    dtype = TN_DTYPE(kDLInt, 32, 0);
    assert_int_equal(tn_dtype_size(dtype, &bytes), TN_ERR_INVALID);
}

TN_TEST(names_that_are_none_are_refused)
{
    static const char *const wrong[] = {
        "",        "int",      "int24",       "float32 ", "Float32", "int32x",   "int32x0",
        "int32x1", "int32x04", "int32x65536", "int32x-1", "bool8",   "float8_e", "int32x2x2"};
    tn_dtype dtype;
    char name[8];
    for (size_t i = 0; i < TNI_COUNT(wrong); i++)
        assert_int_equal(tn_dtype_parse(wrong[i], &dtype), TN_ERR_INVALID);
    assert_int_equal(tn_dtype_parse(NULL, &dtype), TN_ERR_INVALID);
    assert_int_equal(tn_dtype_name(TN_FLOAT32, name, 7), TN_ERR_INVALID);
    assert_int_equal(tn_dtype_name(TN_FLOAT32, name, 8), 0);
}

/* ---- shapes ------------------------------------------------------------------------------ */

static int try_private(tn_dtype dtype, int32_t ndim, const int64_t *shape)
{
    tn_tensor *t = (tn_tensor *)8;
    int status = tn_tensor_create_private(dtype, ndim, shape, &t);
    if (status == 0)
        tn_tensor_unref(t);
    else
        assert_ptr_equal(t, (tn_tensor *)8);
    return status;
}

TN_TEST(shapes_out_of_range_are_refused)
{
    int64_t ones[33];
    for (int i = 0; i < 33; i++)
        ones[i] = 1;
    assert_int_equal(try_private(TN_FLOAT32, 32, ones), 0);
    assert_int_equal(try_private(TN_FLOAT32, 33, ones), TN_ERR_INVALID);
    assert_int_equal(try_private(TN_FLOAT32, -1, ones), TN_ERR_INVALID);
    assert_int_equal(try_private(TN_FLOAT32, 1, NULL), TN_ERR_INVALID);
    assert_int_equal(try_private(TN_FLOAT32, 1, (int64_t[]){-1}), TN_ERR_INVALID);
    assert_int_equal(try_private(TN_FLOAT32, 1, (int64_t[]){INT64_MIN}), TN_ERR_INVALID);
    assert_int_equal(try_private(TN_FLOAT32, 1, (int64_t[]){INT64_C(1) << 61}), TN_ERR_INVALID);
    assert_int_equal(try_private(TN_UINT8, 2, (int64_t[]){INT64_C(1) << 32, INT64_C(1) << 31}),
                     TN_ERR_INVALID);
    assert_int_equal(try_private(TN_UINT8, 3, (int64_t[]){INT64_MAX, 0, INT64_MAX}),
                     TN_ERR_INVALID);
    assert_int_equal(try_private(TN_DTYPE(kDLFloat4_e2m1fn, 4, 1), 1, ones),
                     TN_ERR_UNSUPPORTED);
    assert_int_equal(try_private(TN_DTYPE(kDLInt, 7, 1), 1, ones), TN_ERR_INVALID);
}

TN_TEST(a_private_tensor_is_zeroed_aligned_and_row_major)
{
    tn_tensor *t;
    TN_CHECK_OK(tn_tensor_create_private(TN_FLOAT32, 3, (int64_t[]){2, 3, 5}, &t));
    assert_int_equal((uintptr_t)tn_tensor_data(t) % 64, 0);
    assert_memory_equal(tnt_info(t).strides, ((int64_t[]){15, 5, 1}), 24);
    assert_int_equal(tn_tensor_count(t), 30);
    assert_int_equal(tnt_info(t).size_bytes, 120);
    assert_int_equal(tnt_info(t).storage_bytes, 120);
    assert_true(tnt_info(t).is_contiguous);
    assert_false(tnt_info(t).is_shared);
    assert_false(tnt_info(t).is_read_only);
    for (int i = 0; i < 30; i++)
        assert_true(((float *)tn_tensor_data(t))[i] == 0);
    tn_tensor_unref(t);
}

TN_TEST(tensors_of_no_axes_have_one_element_and_empty_ones_have_none)
{
    tn_tensor *t, *v;
    TN_CHECK_OK(tn_tensor_create_private(TN_INT64, 0, NULL, &t));
    assert_int_equal(tn_tensor_count(t), 1);
    assert_non_null(tn_tensor_data(t));
    assert_true(tnt_info(t).is_contiguous);
    TN_CHECK_OK(tn_tensor_reshape(t, 3, (int64_t[]){1, -1, 1}, &v));
    assert_int_equal(tn_tensor_shape(v)[1], 1);
    tn_tensor_unref(v);
    TN_CHECK_OK(tn_tensor_transpose(t, NULL, &v));
    tn_tensor_unref(v);
    tn_tensor_unref(t);

    TN_CHECK_OK(tn_tensor_create_private(TN_INT64, 3, (int64_t[]){3, 0, 4}, &t));
    assert_int_equal(tn_tensor_count(t), 0);
    assert_null(tn_tensor_data(t));
    assert_true(tnt_info(t).is_contiguous);
    assert_memory_equal(tnt_info(t).strides, ((int64_t[]){4, 4, 1}), 24);
    TN_CHECK_OK(tn_tensor_reshape(t, 2, (int64_t[]){0, 7}, &v));
    tn_tensor_unref(v);
    assert_int_equal(tn_tensor_reshape(t, 2, (int64_t[]){0, -1}, &v), TN_ERR_INVALID);
    TN_CHECK_OK(tn_tensor_slice(t, 0, 2, 3, INT64_MIN, &v));
    assert_int_equal(tn_tensor_shape(v)[0], 1);
    tn_tensor_unref(v);
    tn_tensor_unref(t);
}

TN_TEST(strides_of_axes_of_size_one_do_not_make_a_tensor_uneven)
{
    tn_tensor *t, *v;
    TN_CHECK_OK(tn_tensor_create_private(TN_INT32, 1, (int64_t[]){6}, &t));
    TN_CHECK_OK(tn_tensor_view(t, TN_INT32, 3, (int64_t[]){2, 1, 3},
                               (int64_t[]){3, INT64_MIN, 1}, 0, &v));
    assert_true(tnt_info(v).is_contiguous);
    tn_tensor_unref(v);
    TN_CHECK_OK(
        tn_tensor_view(t, TN_INT32, 2, (int64_t[]){0, 3}, (int64_t[]){INT64_MAX, 77}, 24, &v));
    assert_true(tnt_info(v).is_contiguous);
    tn_tensor_unref(v);
    TN_CHECK_OK(tn_tensor_view(t, TN_INT32, 1, (int64_t[]){3}, (int64_t[]){2}, 4, &v));
    assert_false(tnt_info(v).is_contiguous);
    tn_tensor_unref(v);
    tn_tensor_unref(t);
}

/* ---- views ------------------------------------------------------------------------------- */

static int try_view(tn_tensor *t, int64_t size, int64_t stride, uint64_t byte_offset)
{
    tn_tensor *v = NULL;
    int status = tn_tensor_view(t, TN_INT32, 1, &size, &stride, byte_offset, &v);
    tn_tensor_unref(v);
    return status;
}

TN_TEST(a_view_reaches_every_byte_of_the_storage_and_none_beyond)
{
    tn_tensor *t, *part;
    TN_CHECK_OK(tn_tensor_create_private(TN_INT32, 1, (int64_t[]){10}, &t));
    assert_int_equal(try_view(t, 10, 1, 0), 0);
    assert_int_equal(try_view(t, 11, 1, 0), TN_ERR_INVALID);
    assert_int_equal(try_view(t, 10, 1, 1), TN_ERR_INVALID);
    assert_int_equal(try_view(t, 10, -1, 36), 0);
    assert_int_equal(try_view(t, 10, -1, 35), TN_ERR_INVALID);
    assert_int_equal(try_view(t, 11, -1, 36), TN_ERR_INVALID);
    assert_int_equal(try_view(t, INT64_C(1) << 60, 0, 36), 0);
    assert_int_equal(try_view(t, INT64_C(1) << 60, 0, 37), TN_ERR_INVALID);
    assert_int_equal(try_view(t, 1, 1, UINT64_MAX), TN_ERR_INVALID);
    assert_int_equal(try_view(t, 3, INT64_MAX, 0), TN_ERR_INVALID);
    assert_int_equal(try_view(t, 3, INT64_MIN, 0), TN_ERR_INVALID);
    assert_int_equal(try_view(t, 0, 1, 40), 0);
    assert_int_equal(try_view(t, 0, 1, 41), TN_ERR_INVALID);

    TN_CHECK_OK(tn_tensor_slice(t, 0, 2, 4, 1, &part));
    assert_int_equal(try_view(part, 10, 1, 0), 0);
    assert_int_equal(try_view(part, 11, 1, 0), TN_ERR_INVALID);
    assert_true(tn_tensor_same_storage(part, t));
    tn_tensor_unref(part);
    tn_tensor_unref(t);
}

TN_TEST(a_view_outlives_the_tensor_it_was_made_of)
{
    tn_tensor *t, *v;
    TN_CHECK_OK(tn_tensor_create_private(TN_INT32, 1, (int64_t[]){4}, &t));
    fill_with_positions(t);
    TN_CHECK_OK(tn_tensor_slice(t, 0, 0, 4, -1, &v));
    tn_tensor_ref(v);
    tn_tensor_unref(t);
    tn_tensor_unref(v);
    assert_int_equal(*(int32_t *)tn_tensor_data(v), 3);
    tn_tensor_unref(v);
}

TN_TEST(wrong_axes_ranges_and_shapes_are_refused)
{
    tn_tensor *t, *v = NULL, *w;
    TN_CHECK_OK(tn_tensor_create_private(TN_INT32, 2, (int64_t[]){4, 6}, &t));
    assert_int_equal(tn_tensor_slice(t, 2, 0, 1, 1, &v), TN_ERR_INVALID);
    assert_int_equal(tn_tensor_slice(t, -1, 0, 1, 1, &v), TN_ERR_INVALID);
    assert_int_equal(tn_tensor_slice(t, 0, 0, 5, 1, &v), TN_ERR_INVALID);
    assert_int_equal(tn_tensor_slice(t, 0, -1, 2, 1, &v), TN_ERR_INVALID);
    assert_int_equal(tn_tensor_slice(t, 0, 3, 2, 1, &v), TN_ERR_INVALID);
    assert_int_equal(tn_tensor_slice(t, 0, 0, 4, 0, &v), TN_ERR_INVALID);
    assert_int_equal(tn_tensor_transpose(t, (int32_t[]){0, 0}, &v), TN_ERR_INVALID);
    assert_int_equal(tn_tensor_transpose(t, (int32_t[]){0, 2}, &v), TN_ERR_INVALID);
    assert_int_equal(tn_tensor_reshape(t, 1, (int64_t[]){23}, &v), TN_ERR_INVALID);
    assert_int_equal(tn_tensor_reshape(t, 2, (int64_t[]){-1, -1}, &v), TN_ERR_INVALID);
    assert_int_equal(tn_tensor_reshape(t, 2, (int64_t[]){5, -1}, &v), TN_ERR_INVALID);
    assert_int_equal(
        tn_tensor_reshape(t, 2, (int64_t[]){INT64_C(1) << 33, INT64_C(1) << 33}, &v),
        TN_ERR_INVALID);
    assert_int_equal(tn_tensor_reshape(t, 33, NULL, &v), TN_ERR_INVALID);
    assert_int_equal(tn_tensor_reshape(NULL, 0, NULL, &v), TN_ERR_INVALID);
    TN_CHECK_OK(tn_tensor_transpose(t, NULL, &w));
    assert_int_equal(tn_tensor_reshape(w, 1, (int64_t[]){24}, &v), TN_ERR_INVALID);
    assert_null(v);
    tn_tensor_unref(w);
    tn_tensor_unref(t);
}

/* ---- views against a model --------------------------------------------------------------- */

/* What a view should hold, element by element in row-major order. */
enum { MODEL_MAX = 4096, MODEL_NDIM = 6 };
struct model {
    int32_t ndim;
    int64_t shape[MODEL_NDIM];
    int32_t value[MODEL_MAX];
};

static int64_t model_count(const struct model *m)
{
    int64_t count = 1;
    for (int32_t i = 0; i < m->ndim; i++)
        count *= m->shape[i];
    return count;
}

static int64_t model_at(const struct model *m, const int64_t *place)
{
    int64_t at = 0;
    for (int32_t i = 0; i < m->ndim; i++)
        at = at * m->shape[i] + place[i];
    return at;
}

static void assert_is_model(const tn_tensor *t, const struct model *m)
{
    int64_t place[MODEL_NDIM] = {0}, n = 0;
    assert_int_equal(tn_tensor_ndim(t), m->ndim);
    for (int32_t i = 0; i < m->ndim; i++)
        assert_int_equal(tn_tensor_shape(t)[i], m->shape[i]);
    assert_int_equal(tn_tensor_count(t), model_count(m));
    if (model_count(m) == 0)
        return;
    bool is_dense = true;
    do {
        assert_int_equal(*(int32_t *)element_at(t, place), m->value[n]);
        is_dense = is_dense && element_at(t, place) == (uint8_t *)tn_tensor_data(t) + 4 * n;
        n++;
    } while (next_place(m->ndim, m->shape, place));
    assert_int_equal(tnt_info(t).is_contiguous, is_dense);
}

static void random_shape(struct model *m)
{
    m->ndim = (int32_t)tnt_random_below(MODEL_NDIM);
    for (int32_t i = 0; i < m->ndim; i++)
        m->shape[i] = (int64_t)(tnt_random_below(12) == 0 ? 0 : 1 + tnt_random_below(4));
}

static void slice_model(struct model *m, int32_t axis, int64_t start, int64_t stop,
                        int64_t step)
{
    struct model *old = malloc(sizeof *old);
    int64_t place[MODEL_NDIM] = {0}, size = 0;
    memcpy(old, m, sizeof *old);
    for (int64_t at = step > 0 ? start : stop - 1; at >= start && at < stop; at += step)
        size++;
    m->shape[axis] = size;
    if (model_count(m) > 0)
        do {
            int64_t from[MODEL_NDIM];
            memcpy(from, place, sizeof from);
            from[axis] = (step > 0 ? start : stop - 1) + place[axis] * step;
            m->value[model_at(m, place)] = old->value[model_at(old, from)];
        } while (next_place(m->ndim, m->shape, place));
    free(old);
}

static void transpose_model(struct model *m, const int32_t *axes)
{
    struct model *old = malloc(sizeof *old);
    int64_t place[MODEL_NDIM] = {0};
    memcpy(old, m, sizeof *old);
    for (int32_t i = 0; i < m->ndim; i++)
        m->shape[i] = old->shape[axes[i]];
    if (model_count(m) > 0)
        do {
            int64_t from[MODEL_NDIM];
            for (int32_t i = 0; i < m->ndim; i++)
                from[axes[i]] = place[i];
            m->value[model_at(m, place)] = old->value[model_at(old, from)];
        } while (next_place(m->ndim, m->shape, place));
    free(old);
}

static tn_tensor *random_slice(tn_tensor *t, struct model *m)
{
    tn_tensor *v;
    if (m->ndim == 0)
        return tn_tensor_ref(t);
    int32_t axis = (int32_t)tnt_random_below((uint64_t)m->ndim);
    int64_t start = (int64_t)tnt_random_below((uint64_t)m->shape[axis] + 1);
    int64_t stop = start + (int64_t)tnt_random_below((uint64_t)(m->shape[axis] - start) + 1);
    int64_t step = (int64_t)tnt_random_below(3) + 1;
    if (tnt_random_below(2) == 0)
        step = -step;
    TN_CHECK_OK(tn_tensor_slice(t, axis, start, stop, step, &v));
    slice_model(m, axis, start, stop, step);
    return v;
}

static tn_tensor *random_transpose(tn_tensor *t, struct model *m)
{
    int32_t axes[MODEL_NDIM];
    tn_tensor *v;
    for (int32_t i = 0; i < m->ndim; i++) {
        int32_t other = (int32_t)tnt_random_below((uint64_t)i + 1);
        axes[i] = axes[other];
        axes[other] = i;
    }
    TN_CHECK_OK(tn_tensor_transpose(t, axes, &v));
    transpose_model(m, axes);
    return v;
}

/*
 * Whether the values, which are places in the storage, are an even function of the coordinates.
 */
static bool has_strides(const struct model *m)
{
    int64_t stride[MODEL_NDIM] = {0}, place[MODEL_NDIM] = {0}, n = 0;
    for (int32_t i = 0; i < m->ndim; i++) {
        int64_t one[MODEL_NDIM] = {0};
        one[i] = 1;
        if (m->shape[i] > 1)
            stride[i] = m->value[model_at(m, one)] - m->value[0];
    }
    do {
        int64_t expected = m->value[0];
        for (int32_t i = 0; i < m->ndim; i++)
            expected += place[i] * stride[i];
        if (m->value[n++] != expected)
            return false;
    } while (next_place(m->ndim, m->shape, place));
    return true;
}

/* Another shape of as many elements: factors dealt out to axes at random. */
static void random_reshape_model(struct model *m)
{
    int64_t left = model_count(m);
    m->ndim = (int32_t)tnt_random_below(MODEL_NDIM) + 1;
    for (int32_t i = 0; i < m->ndim; i++)
        m->shape[i] = 1;
    if (left == 0) {
        m->shape[0] = 0;
        return;
    }
    for (int64_t factor = 2; left > 1; factor++)
        for (; left % factor == 0; left /= factor)
            m->shape[tnt_random_below((uint64_t)m->ndim)] *= factor;
}

static unsigned reshaped, not_reshaped;

static tn_tensor *random_reshape(tn_tensor *t, struct model *m)
{
    struct model *old = malloc(sizeof *old);
    tn_tensor *v;
    memcpy(old, m, sizeof *old);
    random_reshape_model(m);
    int status = tn_tensor_reshape(t, m->ndim, m->shape, &v);
    if (status != 0) {
        assert_int_equal(status, TN_ERR_INVALID);
        assert_false(has_strides(m));
        memcpy(m, old, sizeof *m);
        v = tn_tensor_ref(t);
        not_reshaped++;
    } else {
        reshaped++;
    }
    free(old);
    return v;
}

TN_TEST_WITHIN(chained_views_agree_with_a_model, 60)
{
    struct model *m = malloc(sizeof *m);
    for (int round = 0; round < 3000; round++) {
        tn_tensor *t, *next;
        random_shape(m);
        TN_CHECK_OK(tn_tensor_create_private(TN_INT32, m->ndim, m->shape, &t));
        fill_with_positions(t);
        for (int32_t i = 0; i < model_count(m); i++)
            m->value[i] = i;
        for (int step = 0; step < 5; step++) {
            uint64_t kind = tnt_random_below(3);
            next = kind == 0   ? random_slice(t, m)
                   : kind == 1 ? random_transpose(t, m)
                               : random_reshape(t, m);
            tn_tensor_unref(t);
            t = next;
            assert_is_model(t, m);
        }
        tn_tensor_unref(t);
    }
    free(m);
    assert_true(reshaped > 100 && not_reshaped > 100);
}

TN_TEST(an_unref_too_many_is_named_in_debug_builds)
{
#if TNI_TENSOR_CATCH
    tn_tensor *t;
    TN_CHECK_OK(tn_tensor_create_private(TN_INT32, 0, NULL, &t));
    tn_tensor_unref(t);
    tn_tensor_unref(t);
    assert_non_null(strstr(tn_error_detail(), "was given back before"));
#else
    tnt_skip("this build does not look for it");
#endif
}
