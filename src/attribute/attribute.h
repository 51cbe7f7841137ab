/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attribute: keeps what a framework knows of a tensor beside its type and shape: flags, names,
 * levels of detail, a quantizer, its part of a sparse tensor, metadata. The room keeps
 * attributes in the form in which messages carry them (struct tni_attribute in layout.h).
 */
#ifndef TNI_ATTRIBUTE_H
#define TNI_ATTRIBUTE_H

#include <tenon/attribute.h>

#include "layout/layout.h"
#include "shape/shape.h"

/*
 * All attributes of a tensor: a sequence of struct tni_attribute, each checked. Once a tensor
 * points at this struct, only `next` and `refs` change.
 */
struct tni_attributes {
    struct tni_attributes *next; /* in the list of replaced attributes: edit.c */
    _Atomic uint32_t refs;       /* one for the tensor, one for each tni_attributes_hold() */
    uint32_t bytes;              /* a multiple of 8, not 0 */
    uint32_t flags;              /* the payload of the FLAGS attribute; 0: there is none */
    uint64_t words[];
};

/**
 * Take a reference to the attributes that the tensor has now. They neither change nor go away
 * until tni_attributes_drop(), even if another thread sets attributes of the tensor meanwhile.
 * @return NULL: the tensor has no attributes
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
 * Copy the attributes that arrived with a view, check the copy, and give it to the tensor.
 * Another process may write `bytes` meanwhile.
 * TN_ERR_CORRUPT, TN_ERR_VERSION (the number of a kind is not known), TN_ERR_NO_MEMORY.
 */
int tni_attributes_adopt(tn_tensor *tensor, const void *bytes, size_t size_bytes);
/** Which kinds there are: bit n is set for the TNI_ATTRIBUTE_* with the number n. */
uint32_t tni_attributes_kinds(const struct tni_attributes *held);
/**
 * Give a new view those attributes of its base that say what the elements mean.
 * TN_ERR_UNSUPPORTED: the view cannot keep one of them.
 */
int tni_attributes_inherit(tn_tensor *view, const tn_tensor *base);
/**
 * Check that no attribute changes what the bits of the elements mean, for an interface that
 * cannot carry such an attribute. TN_ERR_UNSUPPORTED: there is one; the error names it.
 * @param what  the name of the interface, for the error
 */
int tni_attributes_check_plain(const tn_tensor *tensor, const char *what);
/**
 * Check the tensors of one message: all parts of each sparse tensor must be there, side by side
 * and in order. TN_ERR_INVALID.
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
/** The scheme of the quantizer of a tensor; TN_QUANTIZER_NONE: it has no quantizer. */
uint32_t tni_attribute_scheme(const tn_tensor *tensor);
/** Check that equal bits mean equal values in both tensors. TN_ERR_UNSUPPORTED: they do not. */
int tni_attributes_check_same_meaning(const tn_tensor *target, const tn_tensor *source);

#endif
