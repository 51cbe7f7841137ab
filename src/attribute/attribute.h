/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attribute: what a framework knows of a tensor beside its type and shape (flags, names, levels
 * of detail, a quantizer, parts of a sparse tensor, metadata), kept as it travels.
 */
#ifndef TNI_ATTRIBUTE_H
#define TNI_ATTRIBUTE_H

#include <tenon/attribute.h>

#include "layout/layout.h"
#include "shape/shape.h"

/*
 * Attributes as they travel: checked struct tni_attribute, one after the other. Immutable but
 * for the two fields in front.
 */
struct tni_attributes {
    struct tni_attributes *next; /* among those that wait for their end; edit.c */
    _Atomic uint32_t refs;       /* the tensor's, and one of each call that holds them */
    uint32_t bytes;              /* a multiple of 8, not 0 */
    uint32_t flags;              /* what the FLAGS attribute says; else 0 */
    uint64_t words[];
};

/**
 * Hold the attributes that the tensor has now until tni_attributes_drop(): they stay as they
 * are, whatever another thread sets meanwhile. NULL: the tensor has none.
 */
struct tni_attributes *tni_attributes_hold_all(const tn_tensor *tensor);
static inline struct tni_attributes *tni_attributes_hold(const tn_tensor *tensor)
{
    return TNI_LIKELY(atomic_load_explicit(&tensor->attributes, memory_order_relaxed) == NULL)
               ? NULL
               : tni_attributes_hold_all(tensor);
}
void tni_attributes_drop_all(struct tni_attributes *held);
static inline void tni_attributes_drop(struct tni_attributes *held)
{
    if (TNI_UNLIKELY(held != NULL))
        tni_attributes_drop_all(held);
}

/**
 * Check the attributes that stand in a copy of a view, and make them the tensor's.
 * TN_ERR_CORRUPT, TN_ERR_VERSION (a kind that is not known, by number), TN_ERR_NO_MEMORY.
 */
int tni_attributes_adopt(tn_tensor *tensor, const void *bytes, size_t size_bytes);
/** A bit for each TNI_ATTRIBUTE_* among them. */
uint32_t tni_attributes_kinds(const struct tni_attributes *held);
/**
 * Give a new view what its base's elements mean. TN_ERR_UNSUPPORTED: one of the base's
 * attributes cannot be kept by a view.
 */
int tni_attributes_inherit(tn_tensor *view, const tn_tensor *base);
/** TN_ERR_UNSUPPORTED, naming what changes the meaning of elements, for a user that cannot. */
int tni_attributes_check_plain(const tn_tensor *tensor, const char *what);
/**
 * That tensors [count], which travel together, hold all parts of each sparse tensor side by
 * side. TN_ERR_INVALID.
 */
int tni_attributes_check_all_parts(tn_tensor *const *tensors, uint32_t count);
static inline int tni_attributes_check_parts(tn_tensor *const *tensors, uint32_t count)
{
    if (TNI_LIKELY(count == 0 ||
                   (count == 1 && atomic_load_explicit(&tensors[0]->attributes,
                                                       memory_order_relaxed) == NULL)))
        return 0;
    return tni_attributes_check_all_parts(tensors, count);
}
/** TN_QUANTIZER_*, NONE without one. */
uint32_t tni_attribute_scheme(const tn_tensor *tensor);
/** TN_ERR_UNSUPPORTED unless equal bits in both tensors stand for equal values. */
int tni_attributes_check_same_meaning(const tn_tensor *target, const tn_tensor *source);

#endif
