/* SPDX-License-Identifier: Apache-2.0 */
/* Attributes of tensors, sparse tensors. */
#include <string.h>

#include "faults.h"

enum { ROWS = 4 };

static tn_tensor *t, *u;
static tn_sparse sparse;
static const double scales[] = {0.5};
static const int64_t zero_points[] = {3};
static const uint32_t lod_counts[] = {3};
static const uint64_t lod_offsets[] = {0, 1, ROWS};
static const uint64_t *const lod[] = {lod_offsets};
static const char *const axis_names[] = {"rows"};

static void make(void)
{
    int64_t rows = ROWS;
    TN_CHECK_OK(tn_tensor_create_private(TN_INT8, 1, &rows, &t));
}
/* What was set is not changed by a setter that fails. */
static void set_all(void)
{
    const tn_quantizer quantizer = {TN_QUANTIZER_AFFINE, 0, 1, 0, scales, zero_points};
    make();
    TN_CHECK_OK(tn_tensor_set_flags(t, TN_BUFFER));
    TN_CHECK_OK(tn_tensor_set_name(t, "before"));
    TN_CHECK_OK(tn_tensor_set_axis_names(t, axis_names));
    TN_CHECK_OK(tn_tensor_set_lod(t, 1, lod_counts, lod));
    TN_CHECK_OK(tn_tensor_set_quantizer(t, &quantizer));
    TN_CHECK_OK(tn_tensor_set_metadata(t, "key", "value", 5));
}
static void unref(void) { t = tn_tensor_unref(t); }

static uint64_t hash(uint64_t sum, const void *bytes, size_t size)
{
    for (size_t i = 0; bytes != NULL && i < size; i++)
        sum = (sum ^ ((const uint8_t *)bytes)[i]) * UINT64_C(0x100000001b3);
    return sum * 31 + 1;
}
static uint64_t all_of(const tn_tensor *tensor)
{
    tn_quantizer quantizer = {0};
    uint32_t count = 0;
    size_t size = 0;
    const char *name = tn_tensor_name(tensor), *axis = tn_tensor_axis_name(tensor, 0);
    const uint64_t *offsets = tn_tensor_lod(tensor, 0, &count);
    const void *value = tn_tensor_metadata(tensor, "key", &size);
    uint64_t sum = tn_tensor_flags(tensor);
    sum = hash(sum, name, name != NULL ? strlen(name) : 0);
    sum = hash(sum, axis, axis != NULL ? strlen(axis) : 0);
    sum = hash(sum, offsets, count * sizeof *offsets);
    sum = hash(sum, value, size);
    if (tn_tensor_quantizer(tensor, &quantizer))
        sum = hash(sum, quantizer.scales, quantizer.count * sizeof *quantizer.scales);
    return sum;
}
static uint64_t measure(void) { return t != NULL ? all_of(t) : 0; }

/* ---- setting ----------------------------------------------------------------------------- */

#define SET(function, expression)                                                              \
    static int call_##function(void) { return expression; }                                    \
    FAULTS(function, .measure = measure, .before = make, .call = call_##function,              \
           .undo = unref)                                                                      \
    FAULTS_WHEN(function, again, .measure = measure, .before = set_all,                        \
                .call = call_##function, .undo = unref)
SET(tn_tensor_set_flags, tn_tensor_set_flags(t, TN_REQUIRES_GRAD))
SET(tn_tensor_set_name, tn_tensor_set_name(t, "a name that is longer than the one before"))
SET(tn_tensor_set_axis_names, tn_tensor_set_axis_names(t, (const char *const[]){"longer"}))
SET(tn_tensor_set_lod,
    tn_tensor_set_lod(t, 1, (const uint32_t[]){2},
                      (const uint64_t *const[]){(const uint64_t[]){0, ROWS}}))
static const double other_scales[] = {0.25};
static const tn_quantizer other_quantizer = {TN_QUANTIZER_AFFINE, 0,          1, 0,
                                             other_scales,        zero_points};
SET(tn_tensor_set_quantizer, tn_tensor_set_quantizer(t, &other_quantizer))
SET(tn_tensor_set_metadata, tn_tensor_set_metadata(t, "key", "another value", 13))

static void make_two(void)
{
    set_all();
    u = t;
    make();
}
static void unref_two(void)
{
    unref();
    u = tn_tensor_unref(u);
}
static int copy(void) { return tn_tensor_copy_attributes(t, u); }
FAULTS(tn_tensor_copy_attributes, .measure = measure, .before = make_two, .call = copy,
       .undo = unref_two)

/* ---- asking ------------------------------------------------------------------------------ */

#define ASK(function, expression)                                                              \
    static int ask_##function(void) { return (expression) ? 0 : TN_ERR_CORRUPT; }              \
    FAULTS(function, .has_no_calls = true, .prepare = set_all, .finish = unref,                \
           .call = ask_##function)
static int see(const char *key, const void *bytes, size_t size_bytes, void *context)
{
    (void)key, (void)bytes, (void)context;
    return size_bytes != 5;
}
ASK(tn_tensor_flags, tn_tensor_flags(t) == TN_BUFFER)
ASK(tn_tensor_name, tn_tensor_name(t) != NULL)
ASK(tn_tensor_axis_name, tn_tensor_axis_name(t, 0) != NULL)
ASK(tn_tensor_lod, tn_tensor_lod(t, 0, FAULTS_OUT(uint32_t)) != NULL)
ASK(tn_tensor_quantizer, tn_tensor_quantizer(t, FAULTS_OUT(tn_quantizer)))
ASK(tn_tensor_metadata, tn_tensor_metadata(t, "key", FAULTS_OUT(size_t)) != NULL)
ASK(tn_tensor_for_each_metadata, tn_tensor_for_each_metadata(t, see, NULL) == 0)

/* ---- sparse ------------------------------------------------------------------------------ */

static void make_parts(void)
{
    sparse = (tn_sparse){.layout = TN_LAYOUT_COO, .ndim = 1, .part_count = 2, .shape = {9}};
    TN_CHECK_OK(
        tn_tensor_create_private(TN_INT64, 2, (const int64_t[]){1, 2}, &sparse.parts[0]));
    TN_CHECK_OK(
        tn_tensor_create_private(TN_FLOAT32, 1, (const int64_t[]){2}, &sparse.parts[1]));
}
static void unref_parts(void)
{
    for (int i = 0; i < 2; i++)
        sparse.parts[i] = tn_tensor_unref(sparse.parts[i]);
}
static int mark(void) { return tn_sparse_mark(&sparse); }
static void make_marked(void)
{
    make_parts();
    TN_CHECK_OK(mark());
}
static int find_sparse(void) { return tn_sparse_find(sparse.parts, 2, FAULTS_OUT(tn_sparse)); }
/* Half a tensor would be worse than none. */
static uint64_t layout(void)
{
    tn_sparse found;
    return sparse.parts[0] != NULL && tn_sparse_find(sparse.parts, 2, &found) > 0
               ? 1 + found.layout
               : 0;
}
FAULTS(tn_sparse_mark, .measure = layout, .before = make_parts, .call = mark,
       .undo = unref_parts)
FAULTS(tn_sparse_find, .has_no_calls = true, .prepare = make_marked, .finish = unref_parts,
       .call = find_sparse)
