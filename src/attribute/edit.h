/* SPDX-License-Identifier: Apache-2.0 */
/*
 * edit: reads one attribute, and replaces one attribute among the others of a tensor. Private
 * to the room attribute. The invariants are in edit.c.
 */
#ifndef TNI_ATTRIBUTE_EDIT_H
#define TNI_ATTRIBUTE_EDIT_H

#include "attribute/attribute.h"

enum { TNI_ATTRIBUTE_HEAD_BYTES = sizeof(struct tni_attribute) };
_Static_assert(TNI_ATTRIBUTE_HEAD_BYTES == 8, "payloads are aligned to 8");

/* The payload of an attribute. It follows the head, and so is aligned to 8 bytes, too. */
static inline const void *tni_attribute_payload(const struct tni_attribute *attribute)
{
    return attribute + 1;
}

static inline const struct tni_attribute *tni_attribute_at(const struct tni_attributes *a,
                                                           uint32_t at)
{
    return (const struct tni_attribute *)(const void *)((const uint8_t *)a->words + at);
}
/** Bytes of an attribute with its head and its padding. pre: the attribute was checked */
static inline uint32_t tni_attribute_bytes(const struct tni_attribute *attribute)
{
    return TNI_ATTRIBUTE_HEAD_BYTES + (uint32_t)tni_align_up(attribute->bytes, 8);
}
static inline uint32_t tni_attribute_position(const struct tni_attributes *a,
                                              const struct tni_attribute *attribute)
{
    return (uint32_t)((const uint8_t *)attribute - (const uint8_t *)a->words);
}
const char *tni_attribute_kind_name(uint16_t kind);

/** Allocate zeroed private memory for `bytes` bytes of attributes. NULL: out of memory */
struct tni_attributes *tni_attributes_alloc(uint64_t bytes);
/** Replace the attributes of a tensor by `made`. pre: `made` was checked for this tensor */
void tni_attributes_replace(tn_tensor *tensor, struct tni_attributes *made);

/** Find the first attribute of a kind. NULL: there is none. @param held  may be NULL */
const struct tni_attribute *tni_attribute_find_in(const struct tni_attributes *held,
                                                  uint16_t kind);
/** Find a tensor's first attribute of a kind. pre: no other thread sets attributes meanwhile */
const struct tni_attribute *tni_attribute_find(const tn_tensor *tensor, uint16_t kind);
/** The next attribute of the tensor, of any kind; NULL: there is no more. */
const struct tni_attribute *tni_attribute_next(const tn_tensor *tensor,
                                               const struct tni_attribute *attribute);

/**
 * A change of one attribute that is not visible yet: a private copy of all attributes of a
 * tensor, in which the caller fills in the payload of the new attribute. The new attribute
 * takes the place of `old`; if `old` is NULL, the new attribute follows the others of its kind.
 */
struct tni_attribute_edit {
    struct tni_attributes *made; /* private; NULL: no attribute is left */
    void *payload; /* zeroed, aligned to 8 bytes; NULL: the attribute is removed */
    const struct tni_attribute *head;
};

/**
 * Begin a change. @param bytes  of the payload; 0 removes the attribute
 * @return 0, TN_ERR_INVALID (all attributes together are too long), TN_ERR_NO_MEMORY
 */
int tni_attribute_begin(const tn_tensor *tensor, uint16_t kind, const struct tni_attribute *old,
                        uint64_t bytes, struct tni_attribute_edit *ret_edit);
/*
 * The check of a kind: whether a payload fits a tensor. Attributes from a setter and from
 * another process go through the same check. The payload is a private copy. TN_ERR_INVALID: the
 * payload does not fit.
 */
typedef int tni_attribute_check_fn(const tn_tensor *tensor, const void *payload,
                                   uint32_t bytes);
tni_attribute_check_fn tni_attribute_check_flags, tni_attribute_check_name,
    tni_attribute_check_axis_names, tni_attribute_check_lod, tni_attribute_check_quantizer,
    tni_attribute_check_part, tni_attribute_check_metadata;

/**
 * Check the payload of an edit. TN_ERR_INVALID: the payload does not fit; the edit was freed.
 */
int tni_attribute_check(const tn_tensor *tensor, struct tni_attribute_edit *edit,
                        tni_attribute_check_fn *check);
/** Give the tensor the changed attributes. */
void tni_attribute_commit(tn_tensor *tensor, struct tni_attribute_edit *edit);

/** Check the payload of an edit, and commit the edit if the check passes. */
static inline int tni_attribute_end(tn_tensor *tensor, struct tni_attribute_edit *edit,
                                    tni_attribute_check_fn *check)
{
    int status = tni_attribute_check(tensor, edit, check);
    if (status == 0)
        tni_attribute_commit(tensor, edit);
    return status;
}

/** Remove an attribute, if the tensor has it. TN_ERR_NO_MEMORY. */
int tni_attribute_remove(tn_tensor *tensor, uint16_t kind);

/** Whether the bytes from `at` up to `end` are all zero, as padding must be. */
bool tni_attribute_is_zero(const uint8_t *at, const uint8_t *end);

/** Whether two METADATA attributes have the same key. pre: both were checked */
bool tni_attribute_same_key(const struct tni_attribute *a, const struct tni_attribute *b);

#endif
