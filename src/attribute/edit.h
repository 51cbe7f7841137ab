/* SPDX-License-Identifier: Apache-2.0 */
/*
 * edit: one attribute in its wire form, and how one is put among others. Inside the room
 * attribute; see edit.c for the invariants.
 */
#ifndef TNI_ATTRIBUTE_EDIT_H
#define TNI_ATTRIBUTE_EDIT_H

#include "attribute/attribute.h"

enum { TNI_ATTRIBUTE_HEAD_BYTES = sizeof(struct tni_attribute) };
_Static_assert(TNI_ATTRIBUTE_HEAD_BYTES == 8, "payloads are aligned to 8");

/* What follows the head, which is aligned to 8 bytes. */
static inline const void *tni_attribute_payload(const struct tni_attribute *attribute)
{
    return attribute + 1;
}

static inline const struct tni_attribute *tni_attribute_at(const struct tni_attributes *a,
                                                           uint32_t at)
{
    return (const struct tni_attribute *)(const void *)((const uint8_t *)a->words + at);
}
/** With its head and what fills it up. pre: it was checked */
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

/** Private memory for attributes of `bytes`, zeroed; NULL: there is none. */
struct tni_attributes *tni_attributes_alloc(uint64_t bytes);
/** Let the tensor have these, which were checked, in place of those that it has. */
void tni_attributes_replace(tn_tensor *tensor, struct tni_attributes *made);

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
/*
 * What each kind must be to fit its tensor, in a private copy of its wire form: for setters and
 * for what came from another process. `bytes` is of the payload. TN_ERR_INVALID.
 */
typedef int tni_attribute_check_fn(const tn_tensor *tensor, const void *payload,
                                   uint32_t bytes);
tni_attribute_check_fn tni_attribute_check_flags, tni_attribute_check_name,
    tni_attribute_check_axis_names, tni_attribute_check_lod, tni_attribute_check_quantizer,
    tni_attribute_check_part, tni_attribute_check_metadata;

/** Check what was filled in. TN_ERR_INVALID: it does not fit the tensor; the edit is over. */
int tni_attribute_check(const tn_tensor *tensor, struct tni_attribute_edit *edit,
                        tni_attribute_check_fn *check);
/** Let the tensor have them. */
void tni_attribute_commit(tn_tensor *tensor, struct tni_attribute_edit *edit);

/** Both: check, then commit. */
static inline int tni_attribute_end(tn_tensor *tensor, struct tni_attribute_edit *edit,
                                    tni_attribute_check_fn *check)
{
    int status = tni_attribute_check(tensor, edit, check);
    if (status == 0)
        tni_attribute_commit(tensor, edit);
    return status;
}

/** Take an attribute away; not having it is fine. TN_ERR_NO_MEMORY. */
int tni_attribute_remove(tn_tensor *tensor, uint16_t kind);

/** Whether [at, end) holds zeros only: what fills up to 8 bytes. */
bool tni_attribute_is_zero(const uint8_t *at, const uint8_t *end);

/** Whether two METADATA attributes, both checked, have one key. */
bool tni_attribute_same_key(const struct tni_attribute *a, const struct tni_attribute *b);

#endif
