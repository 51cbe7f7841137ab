/* SPDX-License-Identifier: Apache-2.0 */
/*
 * adopt: checks attributes that come from another process or tensor, and gives them to a
 * tensor.
 */
#include <stdlib.h>
#include <string.h>

#include "attribute/edit.h"

/* The check of each kind of attribute (edit.c, I7). */
static tni_attribute_check_fn *const checks[TNI_ATTRIBUTE_KINDS] = {
    [TNI_ATTRIBUTE_FLAGS] = tni_attribute_check_flags,
    [TNI_ATTRIBUTE_NAME] = tni_attribute_check_name,
    [TNI_ATTRIBUTE_AXIS_NAMES] = tni_attribute_check_axis_names,
    [TNI_ATTRIBUTE_LOD] = tni_attribute_check_lod,
    [TNI_ATTRIBUTE_QUANTIZER] = tni_attribute_check_quantizer,
    [TNI_ATTRIBUTE_PART] = tni_attribute_check_part,
    [TNI_ATTRIBUTE_METADATA] = tni_attribute_check_metadata,
};

/*
 * Check the head and the padding of one attribute. @param left  bytes that may be read from its
 * head on: a multiple of 8, not 0
 */
static int check_frame(const struct tni_attribute *attribute, uint32_t left)
{
    if (attribute->kind == 0 || attribute->kind >= TNI_ATTRIBUTE_KINDS)
        return tni_fail(TN_ERR_VERSION, "the attribute of kind %u is not known",
                        attribute->kind);
    const char *name = tni_attribute_kind_name(attribute->kind);
    if (attribute->reserved != 0 || attribute->bytes > left - TNI_ATTRIBUTE_HEAD_BYTES)
        return tni_fail(
            TN_ERR_CORRUPT,
            "the attribute '%s' states %u bytes, but %u are left; its field reserved is "
            "0x%x",
            name, attribute->bytes, left - TNI_ATTRIBUTE_HEAD_BYTES, attribute->reserved);
    const uint8_t *payload = tni_attribute_payload(attribute);
    if (!tni_attribute_is_zero(payload + attribute->bytes,
                               payload + tni_align_up(attribute->bytes, 8)))
        return tni_fail(TN_ERR_CORRUPT, "the padding of the attribute '%s' is not zero", name);
    return 0;
}

/*
 * Check that an attribute may follow `before`. Metadata keys stand in the order in which the
 * user set them, so a new key is compared with each earlier one.
 */
static int check_order(const struct tni_attributes *a,
                       const struct tni_attribute *first_of_kind,
                       const struct tni_attribute *before,
                       const struct tni_attribute *attribute)
{
    const char *name = tni_attribute_kind_name(attribute->kind);
    if (before == NULL || attribute->kind > before->kind)
        return 0;
    if (attribute->kind < before->kind)
        return tni_fail(TN_ERR_CORRUPT, "the attribute '%s' stands behind '%s'", name,
                        tni_attribute_kind_name(before->kind));
    if (attribute->kind != TNI_ATTRIBUTE_METADATA)
        return tni_fail(TN_ERR_CORRUPT, "the attribute '%s' occurs twice", name);
    uint32_t keys = 1;
    for (uint32_t at = tni_attribute_position(a, first_of_kind);
         tni_attribute_at(a, at) != attribute;
         at += tni_attribute_bytes(tni_attribute_at(a, at)), keys++)
        if (tni_attribute_same_key(tni_attribute_at(a, at), attribute))
            return tni_fail(TN_ERR_CORRUPT, "the metadata key '%s' occurs twice",
                            (const char *)tni_attribute_payload(attribute));
    if (keys > TN_METADATA_MAX_KEYS)
        return tni_fail(TN_ERR_CORRUPT, "the metadata have %u keys: at most %d are allowed",
                        keys, TN_METADATA_MAX_KEYS);
    return 0;
}

static int check_all(const tn_tensor *t, const struct tni_attributes *a)
{
    const struct tni_attribute *before = NULL, *first_of_kind = NULL;
    for (uint32_t at = 0; at < a->bytes; at += tni_attribute_bytes(before)) {
        const struct tni_attribute *attribute = tni_attribute_at(a, at);
        int status = check_frame(attribute, a->bytes - at);
        if (status != 0)
            return status;
        if (checks[attribute->kind](t, tni_attribute_payload(attribute), attribute->bytes) != 0)
            return tni_fail(TN_ERR_CORRUPT, "the attribute '%s' does not fit its tensor: %s",
                            tni_attribute_kind_name(attribute->kind), tn_error_detail());
        if (before == NULL || before->kind != attribute->kind)
            first_of_kind = attribute;
        if ((status = check_order(a, first_of_kind, before, attribute)) != 0)
            return status;
        before = attribute;
    }
    return 0;
}

int tni_attributes_adopt(tn_tensor *t, const void *bytes, size_t size_bytes)
{
    if (size_bytes > TN_ATTRIBUTES_MAX_BYTES || size_bytes % 8 != 0)
        return tni_fail(
            TN_ERR_CORRUPT,
            "the attributes take %zu bytes: at most %d are allowed, and a multiple of 8",
            size_bytes, TN_ATTRIBUTES_MAX_BYTES);
    if (size_bytes == 0)
        return 0;
    struct tni_attributes *made = tni_attributes_alloc(size_bytes);
    if (made == NULL)
        return tni_fail(TN_ERR_NO_MEMORY, "no private memory for attributes");
    /* Copy the bytes before checking them: another process may write them meanwhile. */
    tni_copy_unstable(made->words, bytes, size_bytes);
    int status = check_all(t, made);
    if (status != 0)
        free(made);
    else
        tni_attributes_replace(t, made);
    return status;
}

/* Check that all attributes fit the target, and copy the attributes. `from` may be NULL. */
static int check_and_copy(const tn_tensor *target, const struct tni_attributes *from,
                          struct tni_attributes **ret_made)
{
    int status = 0;
    *ret_made = NULL;
    for (uint32_t at = 0; from != NULL && at < from->bytes && status == 0;
         at += tni_attribute_bytes(tni_attribute_at(from, at))) {
        const struct tni_attribute *one = tni_attribute_at(from, at);
        status = checks[one->kind](target, tni_attribute_payload(one), one->bytes);
    }
    if (status != 0 || from == NULL)
        return status;
    *ret_made = tni_attributes_alloc(from->bytes);
    if (*ret_made == NULL)
        return tni_fail(TN_ERR_NO_MEMORY, "no private memory for attributes");
    memcpy((*ret_made)->words, from->words, from->bytes);
    return 0;
}

int tn_tensor_copy_attributes(tn_tensor *target, const tn_tensor *source)
{
    if (target == NULL || source == NULL)
        return tni_fail_null(target == NULL ? "target" : "source");
    struct tni_attributes *from = tni_attributes_hold(source), *made;
    int status = check_and_copy(target, from, &made);
    tni_attributes_drop(from);
    if (status == 0)
        tni_attributes_replace(target, made);
    return status;
}
