/* SPDX-License-Identifier: Apache-2.0 */
/* plan: orders the axes of a copy, and copies on the host. The contracts stand in plan.h. */
#include "tensor/plan.h"

#include <string.h>

/*
 * Insert an axis so that the target's steps fall from the first axis to the last. The caller
 * has made `to_step` positive.
 */
static void insert_axis(struct tni_plan *p, int64_t size, int64_t to_step, int64_t from_step)
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

void tni_plan_make(struct tni_plan *p, const tn_tensor *like, struct tni_end to,
                   struct tni_end from)
{
    const int64_t *shape = like->extents;
    p->ndim = 0;
    p->to = to.address;
    p->from = from.address;
    p->item_bytes = like->item_bytes;
    for (int32_t i = 0; i < like->ndim; i++) {
        if (shape[i] == 1)
            continue;
        int64_t to_step = to.strides[i] * (int64_t)p->item_bytes;
        int64_t from_step = from.strides[i] * (int64_t)p->item_bytes;
        if (to_step == 0 && from_step == 0)
            continue; /* all of them are one element, in both */
        if (to_step < 0) {
            p->to += (uintptr_t)((shape[i] - 1) * to_step);
            p->from += (uintptr_t)((shape[i] - 1) * from_step);
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
static void copy_line(const struct tni_plan *p, uint8_t *to, const uint8_t *from)
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

void tni_plan_run(const struct tni_plan *p)
{
    struct tni_plan_position x = {.to = p->to, .from = p->from};
    if (p->ndim == 0) {
        memcpy((uint8_t *)x.to, (const uint8_t *)x.from, p->item_bytes);
        return;
    }
    do
        copy_line(p, (uint8_t *)x.to, (const uint8_t *)x.from);
    while (tni_plan_next(p, p->ndim - 1, &x));
}

/* ---- packing ----------------------------------------------------------------------------- */

static uint64_t size_of_step(int64_t step)
{
    return step < 0 ? -(uint64_t)step : (uint64_t)step;
}

/* The axes whose strides are used and not 0, from the smallest stride on. @return how many */
static int32_t order_axes(const tn_tensor *t, int32_t order[TN_MAX_NDIM])
{
    const int64_t *strides = tni_tensor_strides(t);
    int32_t count = 0;
    for (int32_t i = 0; i < t->ndim; i++) {
        if (t->extents[i] == 1 || strides[i] == 0)
            continue;
        int32_t at = count++;
        for (; at > 0 && size_of_step(strides[order[at - 1]]) > size_of_step(strides[i]); at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
    return count;
}

void tni_plan_pack(const tn_tensor *t, struct tni_packing *ret_packing)
{
    int32_t order[TN_MAX_NDIM], count = order_axes(t, order);
    int64_t step = 1, first = 0;
    memset(ret_packing->strides, 0, sizeof ret_packing->strides);
    for (int32_t i = 0; i < count; i++) {
        int64_t size = t->extents[order[i]];
        bool falls = tni_tensor_strides(t)[order[i]] < 0;
        ret_packing->strides[order[i]] = falls ? -step : step;
        first += falls ? (size - 1) * step : 0;
        step *= size;
    }
    ret_packing->first_bytes = (uint64_t)first * t->item_bytes;
    ret_packing->bytes = (uint64_t)step * t->item_bytes;
}

bool tni_plan_is_packed(const tn_tensor *t, const struct tni_packing *packing)
{
    for (int32_t i = 0; i < t->ndim; i++)
        if (t->extents[i] != 1 && tni_tensor_strides(t)[i] != packing->strides[i])
            return false;
    return true;
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

bool tni_plan_overlaps(const tn_tensor *a, const tn_tensor *b)
{
    uint64_t a_low, a_high, b_low, b_high;
    bool is_same = tn_tensor_same_storage(a, b);
    byte_range(a, is_same ? a->byte_offset : tni_plan_end(a).address, &a_low, &a_high);
    byte_range(b, is_same ? b->byte_offset : tni_plan_end(b).address, &b_low, &b_high);
    return a_low < b_high && b_low < a_high;
}
