/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attribute: one attribute in its wire form, and putting one among others. Inside the room
 * tensor; see attribute.c for the invariants.
 */
#ifndef TNI_TENSOR_ATTRIBUTE_H
#define TNI_TENSOR_ATTRIBUTE_H

#include "tensor/build.h"
#include "tensor/dtype.h"

/* What follows the head, which is aligned to 8 bytes. */
static inline const void *tni_attribute_payload(const struct tni_attribute *attribute)
{
    return attribute + 1;
}

/** NULL: none of this kind; METADATA: the first. @param held  NULL: none at all */
const struct tni_attribute *tni_attribute_find_in(const struct tni_attributes *held,
                                                  uint16_t kind);
/** Of those that the tensor has, for who knows that no thread sets them. */
const struct tni_attribute *tni_attribute_find(const tn_tensor *tensor, uint16_t kind);
/** The next one that the tensor has, whatever its kind; NULL: no more. */
const struct tni_attribute *tni_attribute_next(const tn_tensor *tensor,
                                               const struct tni_attribute *attribute);

/**
 * Attributes as they will be: those of a tensor, with room for one of `kind` in place of `old`,
 * or behind the others of its kind for NULL.
 */
struct tni_attribute_edit {
    struct tni_attributes *made; /* private; NULL: none are left */
    void *payload;               /* zeroed, aligned to 8 bytes; NULL: the attribute goes */
    const struct tni_attribute *head;
};

/**
 * Begin to set an attribute. @param bytes  of its payload; 0 removes it
 * @return 0, TN_ERR_INVALID (too long together), TN_ERR_NO_MEMORY
 */
int tni_attribute_begin(const tn_tensor *tensor, uint16_t kind, const struct tni_attribute *old,
                        uint64_t bytes, struct tni_attribute_edit *ret_edit);
/** Check what was filled in. TN_ERR_INVALID: it does not fit the tensor; the edit is over. */
int tni_attribute_check(const tn_tensor *tensor, struct tni_attribute_edit *edit);
/** Let the tensor have them. */
void tni_attribute_commit(tn_tensor *tensor, struct tni_attribute_edit *edit);

/** Both: check, then commit. */
static inline int tni_attribute_end(tn_tensor *tensor, struct tni_attribute_edit *edit)
{
    int status = tni_attribute_check(tensor, edit);
    if (status == 0)
        tni_attribute_commit(tensor, edit);
    return status;
}

/** Take an attribute away; not having it is fine. TN_ERR_NO_MEMORY. */
int tni_attribute_remove(tn_tensor *tensor, uint16_t kind);

/** Whether [at, end) holds zeros only: what fills up to 8 bytes. */
bool tni_attribute_is_zero(const uint8_t *at, const uint8_t *end);

/*
 * What each kind must be to fit its tensor, in a private copy of its wire form: for setters and
 * for what came from another process. `bytes` is of the payload. TN_ERR_INVALID.
 */
typedef int tni_attribute_check_fn(const tn_tensor *tensor, const void *payload,
                                   uint32_t bytes);
tni_attribute_check_fn tni_attribute_check_name, tni_attribute_check_axis_names,
    tni_attribute_check_lod, tni_attribute_check_quantizer, tni_attribute_check_part,
    tni_attribute_check_metadata;

/** Whether two METADATA attributes, both checked, have one key. */
bool tni_attribute_same_key(const struct tni_attribute *a, const struct tni_attribute *b);

/** TN_QUANTIZER_*, NONE without one. */
uint32_t tni_attribute_scheme(const tn_tensor *tensor);

/** TN_ERR_UNSUPPORTED unless equal bits in both tensors stand for equal values. */
int tni_attributes_check_same_meaning(const tn_tensor *target, const tn_tensor *source);

#endif
