/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan: how to copy the elements of one strided range of memory to another. Private to the room
 * tensor.
 *
 * A plan orders the axes by the strides of the target, largest first, reverses axes whose
 * target stride is negative, and joins neighbouring axes that are evenly spaced in both ranges.
 * Addresses are numbers: those of a device lead nowhere here.
 */
#ifndef TNI_TENSOR_PLAN_H
#define TNI_TENSOR_PLAN_H

#include "tensor/build.h"

/* Two strided ranges of memory with one shape. Steps are strides in bytes. */
struct tni_plan {
    int32_t ndim;
    int64_t shape[TN_MAX_NDIM];
    int64_t to_step[TN_MAX_NDIM];
    int64_t from_step[TN_MAX_NDIM];
    uintptr_t to;
    uintptr_t from;
    size_t item_bytes;
};

/* One end of a copy: the first element, and strides in elements. */
struct tni_end {
    uintptr_t address;
    const int64_t *strides;
};

/* Not tn_tensor_data(), after which a program may give a device work at any time. */
static inline struct tni_end tni_plan_end(const tn_tensor *t)
{
    return (struct tni_end){(uintptr_t)t->storage->data + t->byte_offset,
                            tni_tensor_strides(t)};
}

/** Plan a copy of elements with the type and shape of `like`, which has some. */
void tni_plan_make(struct tni_plan *plan, const tn_tensor *like, struct tni_end to,
                   struct tni_end from);

/** Copy what a plan says. pre: both ends are on the host */
void tni_plan_run(const struct tni_plan *plan);

/* Where the elements are whose indices along the first axes are these. */
struct tni_plan_position {
    int64_t at[TN_MAX_NDIM];
    uintptr_t to;
    uintptr_t from;
};

/** Go to the next indices of the first `ndim` axes, the last of which changes first. */
static inline bool tni_plan_next(const struct tni_plan *p, int32_t ndim,
                                 struct tni_plan_position *x)
{
    int32_t axis = ndim - 1;
    for (; axis >= 0 && ++x->at[axis] == p->shape[axis]; axis--) {
        x->at[axis] = 0;
        x->to -= (uintptr_t)((p->shape[axis] - 1) * p->to_step[axis]);
        x->from -= (uintptr_t)((p->shape[axis] - 1) * p->from_step[axis]);
    }
    if (axis < 0)
        return false;
    x->to += (uintptr_t)p->to_step[axis];
    x->from += (uintptr_t)p->from_step[axis];
    return true;
}

/*
 * How the elements of a tensor lie side by side in the order that they have in its memory. What
 * a stride of 0 repeats is there once.
 */
struct tni_packing {
    int64_t strides[TN_MAX_NDIM]; /* [ndim], elements */
    uint64_t first_bytes;         /* from the lowest byte to the first element */
    uint64_t bytes;               /* of all of them */
};
/** pre: the tensor has elements */
void tni_plan_pack(const tn_tensor *tensor, struct tni_packing *ret_packing);
/** Whether the elements of a tensor lie so. */
bool tni_plan_is_packed(const tn_tensor *tensor, const struct tni_packing *packing);

/**
 * Whether the bytes from the lowest to the highest one that two tensors occupy overlap. A
 * process may map one storage twice: then addresses differ, and offsets are compared.
 */
bool tni_plan_overlaps(const tn_tensor *one, const tn_tensor *other);

#endif
