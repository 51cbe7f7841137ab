/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copy: copies elements from one tensor to another tensor of the same shape.
 *
 * A plan orders the axes by the strides of the target, largest first, reverses axes whose
 * target stride is negative, and joins neighbouring axes that are evenly spaced in both
 * tensors. The innermost axis is then copied as one line. Overlapping tensors are copied
 * through a private buffer, unless memmove() can copy them.
 */
#include <stdlib.h>
#include <string.h>

#include "tensor/build.h"

/* What to copy: two strided ranges of memory with one shape. Steps are strides in bytes. */
struct plan {
    int32_t ndim;
    int64_t shape[TN_MAX_NDIM];
    int64_t to_step[TN_MAX_NDIM];
    int64_t from_step[TN_MAX_NDIM];
    uint8_t *to;
    const uint8_t *from;
    size_t item_bytes;
};

/*
 * Insert an axis so that the target's steps fall from the first axis to the last. The caller
 * has made `to_step` positive.
 */
static void insert_axis(struct plan *p, int64_t size, int64_t to_step, int64_t from_step)
{
    int32_t at = p->ndim++;
    for (; at > 0 && p->to_step[at - 1] < to_step; at--) {
        p->shape[at] = p->shape[at - 1];
        p->to_step[at] = p->to_step[at - 1];
        p->from_step[at] = p->from_step[at - 1];
    }
    p->shape[at] = size;
    p->to_step[at] = to_step;
    p->from_step[at] = from_step;
}

/* One end of a copy: the first element, and strides in elements. */
struct end {
    uint8_t *data;
    const int64_t *strides;
};

static struct end end_of(const tn_tensor *t)
{
    return (struct end){tn_tensor_data(t), tni_tensor_strides(t)};
}

/* Plan a copy of elements with the type and shape of `like`. */
static void make_plan(struct plan *p, const tn_tensor *like, struct end to, struct end from)
{
    const int64_t *shape = like->extents;
    p->ndim = 0;
    p->to = to.data;
    p->from = from.data;
    p->item_bytes = like->item_bytes;
    for (int32_t i = 0; i < like->ndim; i++) {
        if (shape[i] == 1)
            continue;
        int64_t to_step = to.strides[i] * (int64_t)p->item_bytes;
        int64_t from_step = from.strides[i] * (int64_t)p->item_bytes;
        if (to_step < 0) {
            p->to += (shape[i] - 1) * to_step;
            p->from += (shape[i] - 1) * from_step;
            to_step = -to_step;
            from_step = -from_step;
        }
        insert_axis(p, shape[i], to_step, from_step);
    }
    p->ndim = tni_shape_collapse(p->ndim, p->shape, p->to_step, p->from_step);
}

/* Copy a line of elements. Where `bytes` is a constant, each copy is one move instruction. */
#define COPY_ITEMS(bytes)                                                                      \
    for (int64_t i = 0; i < count; i++)                                                        \
    memcpy(to + i * to_step, from + i * from_step, (bytes))

/* Copy a line along the last axis. pre: ndim is not 0 */
static void copy_line(const struct plan *p, uint8_t *to, const uint8_t *from)
{
    int64_t to_step = p->to_step[p->ndim - 1], from_step = p->from_step[p->ndim - 1];
    int64_t count = p->shape[p->ndim - 1];
    size_t item_bytes = p->item_bytes;
    if (to_step == (int64_t)item_bytes && from_step == to_step) {
        memcpy(to, from, (size_t)count * item_bytes);
        return;
    }
    switch (item_bytes) {
    case 1:
        COPY_ITEMS(1);
        break;
    case 2:
        COPY_ITEMS(2);
        break;
    case 4:
        COPY_ITEMS(4);
        break;
    case 8:
        COPY_ITEMS(8);
        break;
    case 16:
        COPY_ITEMS(16);
        break;
    default:
        COPY_ITEMS(item_bytes);
        break;
    }
}

static void run_plan(const struct plan *p)
{
    int64_t at[TN_MAX_NDIM] = {0};
    int32_t line = p->ndim - 1;
    uint8_t *to = p->to;
    const uint8_t *from = p->from;

    if (p->ndim == 0) {
        memcpy(to, from, p->item_bytes);
        return;
    }
    for (;;) {
        copy_line(p, to, from);
        int32_t axis = line - 1;
        for (; axis >= 0 && ++at[axis] == p->shape[axis]; axis--) {
            at[axis] = 0;
            to -= (p->shape[axis] - 1) * p->to_step[axis];
            from -= (p->shape[axis] - 1) * p->from_step[axis];
        }
        if (axis < 0)
            return;
        to += p->to_step[axis];
        from += p->from_step[axis];
    }
}

static void copy_apart(const tn_tensor *target, const tn_tensor *source)
{
    struct plan p;
    make_plan(&p, target, end_of(target), end_of(source));
    run_plan(&p);
}

static int copy_through_buffer(const tn_tensor *target, const tn_tensor *source)
{
    struct plan p;
    int64_t dense[TN_MAX_NDIM];
    uint8_t *buffer = malloc(tni_tensor_size_bytes(source));
    if (buffer == NULL)
        return tni_fail(TN_ERR_NO_MEMORY,
                        "no private memory for %llu bytes of overlapping tensors",
                        (unsigned long long)tni_tensor_size_bytes(source));
    tni_shape_row_major(source->ndim, source->extents, dense);
    struct end between = {buffer, dense};
    make_plan(&p, source, between, end_of(source));
    run_plan(&p);
    make_plan(&p, target, end_of(target), between);
    run_plan(&p);
    free(buffer);
    return 0;
}

/* ---- overlap ----------------------------------------------------------------------------- */

/* The bytes that a tensor occupies, from `start` on. I1: this cannot overflow. */
static void byte_range(const tn_tensor *t, uint64_t start, uint64_t *ret_low,
                       uint64_t *ret_high)
{
    struct tni_reach reach = {0, 0};
    if (tni_shape_reach(t->ndim, t->extents, tni_tensor_strides(t), t->item_bytes, &reach) != 0)
        reach = (struct tni_reach){0, 0};
    *ret_low = start + (uint64_t)reach.low_bytes;
    *ret_high = start + (uint64_t)reach.high_bytes;
}

/* A process may map one storage twice: then addresses differ, and offsets are compared. */
static bool overlaps(const tn_tensor *a, const tn_tensor *b)
{
    uint64_t a_low, a_high, b_low, b_high;
    bool is_same = tn_tensor_same_storage(a, b);
    byte_range(a, is_same ? a->byte_offset : (uintptr_t)tn_tensor_data(a), &a_low, &a_high);
    byte_range(b, is_same ? b->byte_offset : (uintptr_t)tn_tensor_data(b), &b_low, &b_high);
    return a_low < b_high && b_low < a_high;
}

static int check_pair(const tn_tensor *target, const tn_tensor *source)
{
    char to_name[TNI_DTYPE_NAME_BYTES], from_name[TNI_DTYPE_NAME_BYTES];

    if (target->dtype != source->dtype) {
        tni_dtype_describe(target->dtype, to_name);
        tni_dtype_describe(source->dtype, from_name);
        return tni_fail(TN_ERR_INVALID,
                        "elements of type %s cannot be copied to a tensor of type %s",
                        from_name, to_name);
    }
    if (target->ndim != source->ndim)
        return tni_fail(TN_ERR_INVALID, "a tensor of %d axes cannot be copied to one of %d",
                        source->ndim, target->ndim);
    for (int32_t i = 0; i < target->ndim; i++) {
        if (target->extents[i] != source->extents[i])
            return tni_fail(TN_ERR_INVALID,
                            "axis %d has size %lld in the source but %lld in the target", i,
                            (long long)source->extents[i], (long long)target->extents[i]);
        if (target->extents[i] > 1 && tni_tensor_strides(target)[i] == 0)
            return tni_fail(
                TN_ERR_INVALID,
                "axis %d of the target has stride 0: its elements are one and the same", i);
    }
    if (tni_tensor_is_read_only(target))
        return tni_fail(TN_ERR_DENIED, "the target is read-only");
    return 0;
}

int tni_tensor_check_copy(const tn_tensor *target, const tn_tensor *source)
{
    int status = check_pair(target, source);
    return status != 0 ? status : tni_attributes_check_same_meaning(target, source);
}

int tn_tensor_copy(tn_tensor *target, const tn_tensor *source)
{
    if (target == NULL || source == NULL)
        return tni_fail_null(target == NULL ? "target" : "source");
    int status = tni_tensor_check_copy(target, source);
    if (status != 0 || target->count == 0)
        return status;
    if (!tni_tensor_is_on_host(target) || !tni_tensor_is_on_host(source)) {
        status = tni_device_copy_tensor(target, source, NULL);
        return status == 0 ? tni_device_wait_for(target, source) : status;
    }
    bool is_one_mapping = target->storage->data == source->storage->data ||
                          !tn_tensor_same_storage(target, source);
    if (target->is_contiguous && source->is_contiguous && is_one_mapping) {
        memmove(tn_tensor_data(target), tn_tensor_data(source), tni_tensor_size_bytes(target));
        return 0;
    }
    if (overlaps(target, source))
        return copy_through_buffer(target, source);
    copy_apart(target, source);
    return 0;
}
