/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sparse: makes and checks sparse tensors. A sparse tensor is two or three dense tensors, its
 * parts, side by side in a message.
 *
 * The attribute of each part describes the whole sparse tensor and says which part the tensor
 * is. A part alone is a dense tensor like any other: it may be viewed, copied and exported.
 * Only a message must have all parts.
 */
#include <stdlib.h>
#include <string.h>

#include "attribute/edit.h"

enum { MAX_PARTS = 3 };

/* struct tni_attribute_part with room for the longest shape. */
struct whole {
    uint32_t layout;
    uint32_t flags;
    uint16_t part;
    uint16_t parts;
    int32_t ndim;
    int64_t shape[TN_MAX_NDIM];
};
_Static_assert(offsetof(struct whole, ndim) == offsetof(struct tni_attribute_part, ndim) &&
                   offsetof(struct whole, shape) == sizeof(struct tni_attribute_part),
               "struct whole begins as struct tni_attribute_part does");

static uint32_t part_count(uint32_t layout) { return layout == TN_LAYOUT_COO ? 2 : 3; }
static const char *layout_name(uint32_t layout)
{
    return layout == TN_LAYOUT_COO ? "COO" : "CSR";
}

static const char *part_name(uint32_t layout, uint32_t part)
{
    static const char *const names[][MAX_PARTS] = {{"indices", "values", ""},
                                                   {"row offsets", "columns", "values"}};
    return names[layout == TN_LAYOUT_CSR][TNI_MIN(part, MAX_PARTS - 1)];
}

/* ---- one part ---------------------------------------------------------------------------- */

static int check_whole(const struct whole *w)
{
    if (w->layout != TN_LAYOUT_COO && w->layout != TN_LAYOUT_CSR)
        return tni_fail(TN_ERR_INVALID, "no sparse layout has the number %u", w->layout);
    const char *name = layout_name(w->layout);
    if (w->flags != 0 && (w->flags != TN_SPARSE_COALESCED || w->layout != TN_LAYOUT_COO))
        return tni_fail(TN_ERR_INVALID, "a sparse tensor in %s cannot have the flags 0x%x",
                        name, w->flags);
    if (w->parts != part_count(w->layout) || w->part >= w->parts)
        return tni_fail(TN_ERR_INVALID,
                        "a sparse tensor in %s has %u parts, but this is part %u of %u", name,
                        part_count(w->layout), w->part, w->parts);
    if (w->ndim < 1 || w->ndim > TN_MAX_NDIM || (w->layout == TN_LAYOUT_CSR && w->ndim != 2))
        return tni_fail(TN_ERR_INVALID, "a sparse tensor in %s cannot have %d axes", name,
                        w->ndim);
    for (int32_t i = 0; i < w->ndim; i++)
        if (w->shape[i] < 0)
            return tni_fail(TN_ERR_INVALID,
                            "axis %d of a sparse tensor has the negative size %lld", i,
                            (long long)w->shape[i]);
    return 0;
}

static int check_axes(const tn_tensor *t, const struct whole *w, int32_t least, int32_t most)
{
    if (t->ndim >= least && t->ndim <= most)
        return 0;
    return tni_fail(
        TN_ERR_INVALID, "the %s of a sparse tensor in %s have %d axes: %d to %d are allowed",
        part_name(w->layout, w->part), layout_name(w->layout), t->ndim, least, most);
}

static int check_index_type(const tn_tensor *t, const struct whole *w)
{
    char type[TNI_DTYPE_NAME_BYTES];
    bool is_coo = w->layout == TN_LAYOUT_COO;
    if (t->dtype == TN_INT64 || (!is_coo && t->dtype == TN_INT32))
        return 0;
    tni_dtype_describe(t->dtype, type);
    return tni_fail(
        TN_ERR_INVALID, "the %s of a sparse tensor in %s have the type %s: it must be int64%s",
        part_name(w->layout, w->part), layout_name(w->layout), type, is_coo ? "" : " or int32");
}

/* Check that all axes of the values but the first are the last axes of the sparse tensor. */
static int check_dense_axes(const tn_tensor *t, const struct whole *w)
{
    int32_t sparse_ndim = w->ndim - (t->ndim - 1);
    for (int32_t i = 1; i < t->ndim; i++)
        if (t->extents[i] != w->shape[sparse_ndim + i - 1])
            return tni_fail(TN_ERR_INVALID,
                            "axis %d of the values has size %lld, but axis %d of the sparse "
                            "tensor has %lld",
                            i, (long long)t->extents[i], sparse_ndim + i - 1,
                            (long long)w->shape[sparse_ndim + i - 1]);
    return 0;
}

static int check_coo_part(const tn_tensor *t, const struct whole *w)
{
    int status;
    if (w->part == 1) {
        status = check_axes(t, w, 1, TNI_MIN(w->ndim + 1, TN_MAX_NDIM));
        return status != 0 ? status : check_dense_axes(t, w);
    }
    if ((status = check_axes(t, w, 2, 2)) != 0 || (status = check_index_type(t, w)) != 0)
        return status;
    if (t->extents[0] <= w->ndim)
        return 0;
    return tni_fail(TN_ERR_INVALID, "the indices name %lld axes, but the sparse tensor has %d",
                    (long long)t->extents[0], w->ndim);
}

static int check_csr_part(const tn_tensor *t, const struct whole *w)
{
    int status = check_axes(t, w, 1, 1);
    if (status != 0 || w->part == 2)
        return status;
    if ((status = check_index_type(t, w)) != 0 || w->part == 1)
        return status;
    if (t->extents[0] - 1 == w->shape[0])
        return 0;
    return tni_fail(TN_ERR_INVALID,
                    "there are %lld row offsets, but the sparse tensor has %lld rows",
                    (long long)t->extents[0], (long long)w->shape[0]);
}

static int check_one(const tn_tensor *t, const struct whole *w)
{
    return w->layout == TN_LAYOUT_COO ? check_coo_part(t, w) : check_csr_part(t, w);
}

static size_t part_bytes(int32_t ndim)
{
    return sizeof(struct tni_attribute_part) + (size_t)ndim * sizeof(int64_t);
}

/* Read the payload of a part. pre: the payload has as many bytes as its number of axes needs */
static void read_part(const void *payload, struct whole *ret_whole)
{
    memcpy(ret_whole, payload, sizeof(struct tni_attribute_part));
    memcpy(ret_whole, payload, part_bytes(ret_whole->ndim));
}

int tni_attribute_check_part(const tn_tensor *t, const void *payload, uint32_t bytes)
{
    struct whole w = {0};
    memcpy(&w, payload, TNI_MIN(bytes, sizeof(struct tni_attribute_part)));
    if (bytes < sizeof(struct tni_attribute_part) || w.ndim < 0 || w.ndim > TN_MAX_NDIM ||
        bytes != part_bytes(w.ndim))
        return tni_fail(TN_ERR_INVALID, "a part of a sparse tensor does not fit its %u bytes",
                        bytes);
    read_part(payload, &w);
    int status = check_whole(&w);
    return status != 0 ? status : check_one(t, &w);
}

/* ---- all parts --------------------------------------------------------------------------- */

/* Check that the parts of a COO tensor fit each other. pre: each part passed check_one() */
static int check_coo_together(tn_tensor *const *parts, const struct whole *w)
{
    const tn_tensor *indices = parts[0], *values = parts[1];
    int32_t dense = values->ndim - 1;
    if (indices->extents[0] + dense != w->ndim)
        return tni_fail(
            TN_ERR_INVALID,
            "the indices name %lld axes and the values have %d dense ones, but the sparse "
            "tensor has %d axes",
            (long long)indices->extents[0], dense, w->ndim);
    if (indices->extents[1] != values->extents[0])
        return tni_fail(TN_ERR_INVALID, "a sparse tensor has %lld indices but %lld values",
                        (long long)indices->extents[1], (long long)values->extents[0]);
    return 0;
}

static int check_csr_together(tn_tensor *const *parts)
{
    if (parts[0]->dtype != parts[1]->dtype)
        return tni_fail(
            TN_ERR_INVALID,
            "the row offsets and the columns of a sparse tensor have different types: int32 "
            "and int64");
    if (parts[1]->extents[0] != parts[2]->extents[0])
        return tni_fail(TN_ERR_INVALID, "a sparse tensor has %lld columns but %lld values",
                        (long long)parts[1]->extents[0], (long long)parts[2]->extents[0]);
    return 0;
}

static int check_together(tn_tensor *const *parts, const struct whole *w)
{
    return w->layout == TN_LAYOUT_COO ? check_coo_together(parts, w)
                                      : check_csr_together(parts);
}

static int read_sparse(const tn_sparse *s, struct whole *ret_whole)
{
    if (s == NULL)
        return tni_fail_null("sparse");
    if (s->ndim < 0 || s->ndim > TN_MAX_NDIM || s->part_count > MAX_PARTS)
        return tni_fail(TN_ERR_INVALID, "a sparse tensor cannot have %d axes in %u parts",
                        s->ndim, s->part_count);
    *ret_whole = (struct whole){.layout = s->layout,
                                .flags = s->flags,
                                .parts = (uint16_t)s->part_count,
                                .ndim = s->ndim};
    memcpy(ret_whole->shape, s->shape, (size_t)s->ndim * sizeof(int64_t));
    int status = check_whole(ret_whole);
    for (uint32_t i = 0; i < s->part_count && status == 0; i++) {
        status = tni_tensor_check(s->parts[i]);
        for (uint32_t j = 0; j < i && status == 0; j++)
            if (s->parts[i] == s->parts[j])
                status = tni_fail(TN_ERR_INVALID, "parts %u and %u are the same tensor", j, i);
    }
    return status;
}

static int begin_part(const tn_tensor *t, const struct whole *w,
                      struct tni_attribute_edit *ret_edit)
{
    size_t bytes = part_bytes(w->ndim);
    int status = tni_attribute_begin(
        t, TNI_ATTRIBUTE_PART, tni_attribute_find(t, TNI_ATTRIBUTE_PART), bytes, ret_edit);
    if (status != 0)
        return status;
    memcpy(ret_edit->payload, w, bytes);
    return tni_attribute_check(t, ret_edit, tni_attribute_check_part);
}

int tn_sparse_mark(const tn_sparse *s)
{
    struct tni_attribute_edit edits[MAX_PARTS];
    struct whole w = {0};
    uint32_t begun = 0;
    int status = read_sparse(s, &w);
    if (status != 0)
        return status;
    for (; begun < s->part_count; begun++) {
        w.part = (uint16_t)begun;
        if ((status = begin_part(s->parts[begun], &w, &edits[begun])) != 0)
            break;
    }
    if (status == 0)
        status = check_together(s->parts, &w);
    for (uint32_t i = 0; i < begun; i++)
        if (status == 0)
            tni_attribute_commit(s->parts[i], &edits[i]);
        else
            free(edits[i].made);
    return status;
}

/* ---- finding ----------------------------------------------------------------------------- */

/* Read which part a tensor is. @return whether it is a part of a sparse tensor */
static bool get_part(const tn_tensor *t, struct whole *ret_whole)
{
    struct tni_attributes *held = tni_attributes_hold(t);
    const struct tni_attribute *a =
        held != NULL ? tni_attribute_find_in(held, TNI_ATTRIBUTE_PART) : NULL;
    if (a != NULL)
        read_part(tni_attribute_payload(a), ret_whole);
    tni_attributes_drop(held);
    return a != NULL;
}

static bool is_same_whole(const struct whole *a, const struct whole *b)
{
    return a->layout == b->layout && a->flags == b->flags && a->ndim == b->ndim &&
           memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof(int64_t)) == 0;
}

/*
 * Check the sparse or dense tensor that begins with the first of these tensors. @return how
 * many of the tensors belong to it, or TN_ERR_INVALID
 */
static int find_whole(tn_tensor *const *tensors, uint32_t count, struct whole *ret_whole)
{
    struct whole other;
    if (!get_part(tensors[0], ret_whole)) {
        *ret_whole = (struct whole){0};
        return 1;
    }
    uint32_t layout = ret_whole->layout, parts = ret_whole->parts;
    if (ret_whole->part != 0)
        return tni_fail(TN_ERR_INVALID, "the %s of a sparse tensor in %s do not follow the %s",
                        part_name(layout, ret_whole->part), layout_name(layout),
                        part_name(layout, ret_whole->part - 1u));
    for (uint32_t i = 1; i < parts; i++)
        if (i >= count || !get_part(tensors[i], &other) || other.part != i ||
            !is_same_whole(ret_whole, &other))
            return tni_fail(
                TN_ERR_INVALID, "the %s of a sparse tensor in %s are missing behind the %s",
                part_name(layout, i), layout_name(layout), part_name(layout, i - 1));
    int status = check_together(tensors, ret_whole);
    return status != 0 ? status : (int)parts;
}

int tni_attributes_check_all_parts(tn_tensor *const *tensors, uint32_t count)
{
    struct whole w;
    for (uint32_t i = 0; i < count;) {
        if (TNI_LIKELY(tensors[i]->attributes == NULL)) {
            i++;
            continue;
        }
        int taken = find_whole(tensors + i, count - i, &w);
        if (taken < 0)
            return taken;
        i += (uint32_t)taken;
    }
    return 0;
}

int tn_sparse_find(tn_tensor *const *tensors, uint32_t count, tn_sparse *ret_sparse)
{
    struct whole w;
    int status = tni_tensor_check_result(ret_sparse, "ret_sparse");
    if (status != 0)
        return status;
    if (tensors == NULL)
        return tni_fail_null("tensors");
    if (count == 0)
        return tni_fail(TN_ERR_INVALID, "count is 0: there is no sparse tensor to find");
    for (uint32_t i = 0; i < TNI_MIN(count, MAX_PARTS) && status == 0; i++)
        status = tni_tensor_check(tensors[i]);
    if (status != 0)
        return status;
    int taken = find_whole(tensors, count, &w);
    if (taken < 0)
        return taken;
    tn_sparse s = {.layout = w.layout,
                   .flags = w.flags,
                   .ndim = w.layout == TN_LAYOUT_STRIDED ? tensors[0]->ndim : w.ndim,
                   .part_count = (uint32_t)taken};
    memcpy(s.shape, w.layout == TN_LAYOUT_STRIDED ? tensors[0]->extents : w.shape,
           (size_t)s.ndim * sizeof(int64_t));
    for (int i = 0; i < taken; i++)
        s.parts[i] = tensors[i];
    *ret_sparse = s;
    return taken;
}
