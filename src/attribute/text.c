/* SPDX-License-Identifier: Apache-2.0 */
/* text: sets and reads the attributes with text: name, names of axes, metadata under keys. */
#include <stdio.h>
#include <string.h>

#include "attribute/edit.h"

_Static_assert(TNI_ATTRIBUTE_METADATA + 1 == TNI_ATTRIBUTE_KINDS, "metadata are the last kind");
enum { NAME_MAX_BYTES = 127, AXIS_NAME_MAX_BYTES = 63, KEY_MAX_BYTES = 63 };

/* ---- text -------------------------------------------------------------------------------- */

/*
 * The bytes of the code point at `at`; 0: the bytes are not UTF-8, or are a control character.
 * The text ends with a zero byte, which is never inside of a code point, so the loop ends
 * there. Source: RFC 3629, section 4, "Syntax of UTF-8 Byte Sequences".
 */
static uint32_t code_point_bytes(const uint8_t *at)
{
    uint8_t low = 0x80, high = 0xbf;
    if (at[0] < 0x80)
        return at[0] >= 0x20 && at[0] != 0x7f;
    uint32_t bytes = at[0] >= 0xf0 ? 4 : at[0] >= 0xe0 ? 3 : 2;
    if (at[0] < 0xc2 || at[0] > 0xf4)
        return 0;
    switch (at[0]) {
    case 0xc2: /* U+0080 to U+009F are control characters, too */
    case 0xe0:
        low = 0xa0;
        break;
    case 0xed:
        high = 0x9f;
        break;
    case 0xf0:
        low = 0x90;
        break;
    case 0xf4:
        high = 0x8f;
        break;
    default:
        break;
    }
    if (at[1] < low || at[1] > high)
        return 0;
    for (uint32_t i = 2; i < bytes; i++)
        if ((at[i] & 0xc0) != 0x80)
            return 0;
    return bytes;
}

/*
 * Check a text that must end with a zero byte within `size_bytes`. `ret_length` does not count
 * the zero byte. The errors do not quote the text, because it may not be printable.
 */
static int check_text(const char *what, const char *text, size_t size_bytes, size_t max_bytes,
                      size_t *ret_length)
{
    size_t length = strnlen(text, TNI_MIN(size_bytes, max_bytes + 1));
    if (length > max_bytes)
        return tni_fail(TN_ERR_INVALID, "%s has more than %zu bytes", what, max_bytes);
    if (length == size_bytes)
        return tni_fail(TN_ERR_INVALID, "%s has no zero byte at its end within %zu bytes", what,
                        size_bytes);
    for (size_t at = 0; at < length;) {
        uint32_t bytes = code_point_bytes((const uint8_t *)text + at);
        if (bytes == 0)
            return tni_fail(TN_ERR_INVALID,
                            "byte %zu of %s, 0x%02x, is not UTF-8 or is a control character",
                            at, what, (uint8_t)text[at]);
        at += bytes;
    }
    *ret_length = length;
    return 0;
}

/* ---- the tensor's name ------------------------------------------------------------------- */

int tni_attribute_check_name(const tn_tensor *t, const void *payload, uint32_t bytes)
{
    size_t length;
    (void)t;
    int status = check_text("the name", payload, bytes, NAME_MAX_BYTES, &length);
    if (status == 0 && (length == 0 || length + 1 != bytes))
        status = tni_fail(TN_ERR_INVALID,
                          "a name of %zu bytes and its zero byte do not fill %u bytes exactly",
                          length, bytes);
    return status;
}

int tn_tensor_set_name(tn_tensor *t, const char *name)
{
    struct tni_attribute_edit edit;
    int status = tni_tensor_check(t);
    if (status != 0)
        return status;
    size_t length = name != NULL ? strnlen(name, NAME_MAX_BYTES + 1) : 0;
    if (length == 0)
        return tni_attribute_remove(t, TNI_ATTRIBUTE_NAME);
    if (length > NAME_MAX_BYTES)
        return tni_fail(TN_ERR_INVALID, "the name has more than %d bytes", NAME_MAX_BYTES);
    status = tni_attribute_begin(t, TNI_ATTRIBUTE_NAME,
                                 tni_attribute_find(t, TNI_ATTRIBUTE_NAME), length + 1, &edit);
    if (status != 0)
        return status;
    memcpy(edit.payload, name, length);
    return tni_attribute_end(t, &edit, tni_attribute_check_name);
}

const char *tn_tensor_name(const tn_tensor *t)
{
    const struct tni_attribute *a = tni_attribute_find(t, TNI_ATTRIBUTE_NAME);
    return a != NULL ? tni_attribute_payload(a) : NULL;
}

/* ---- names of axes ----------------------------------------------------------------------- */

int tni_attribute_check_axis_names(const tn_tensor *t, const void *payload, uint32_t bytes)
{
    const char *text = payload;
    char what[32];
    size_t at = 0, length, letters = 0;
    for (int32_t i = 0; i < t->ndim; i++) {
        (void)snprintf(what, sizeof what, "the name of axis %d", i);
        int status = check_text(what, text + at, bytes - at, AXIS_NAME_MAX_BYTES, &length);
        if (status != 0)
            return status;
        letters += length;
        at += length + 1;
    }
    if (at != bytes || letters == 0)
        return tni_fail(
            TN_ERR_INVALID,
            "the names of %d axes take %zu of %u bytes and have %zu letters together", t->ndim,
            at, bytes, letters);
    return 0;
}

int tn_tensor_set_axis_names(tn_tensor *t, const char *const *names)
{
    size_t lengths[TN_MAX_NDIM], letters = 0;
    struct tni_attribute_edit edit;
    int status = tni_tensor_check(t);
    if (status != 0)
        return status;
    for (int32_t i = 0; names != NULL && i < t->ndim; i++) {
        if (names[i] == NULL)
            return tni_fail(TN_ERR_INVALID, "the name of axis %d is NULL", i);
        lengths[i] = strnlen(names[i], AXIS_NAME_MAX_BYTES + 1);
        if (lengths[i] > AXIS_NAME_MAX_BYTES)
            return tni_fail(TN_ERR_INVALID, "the name of axis %d has more than %d bytes", i,
                            AXIS_NAME_MAX_BYTES);
        letters += lengths[i];
    }
    if (letters == 0)
        return tni_attribute_remove(t, TNI_ATTRIBUTE_AXIS_NAMES);
    status = tni_attribute_begin(t, TNI_ATTRIBUTE_AXIS_NAMES,
                                 tni_attribute_find(t, TNI_ATTRIBUTE_AXIS_NAMES),
                                 letters + (size_t)t->ndim, &edit);
    if (status != 0)
        return status;
    uint8_t *to = edit.payload;
    for (int32_t i = 0; i < t->ndim; to += lengths[i++] + 1)
        memcpy(to, names[i], lengths[i]);
    return tni_attribute_end(t, &edit, tni_attribute_check_axis_names);
}

const char *tn_tensor_axis_name(const tn_tensor *t, int32_t axis)
{
    const struct tni_attribute *a = tni_attribute_find(t, TNI_ATTRIBUTE_AXIS_NAMES);
    if (a == NULL || axis < 0 || axis >= t->ndim)
        return NULL;
    const char *name = tni_attribute_payload(a);
    while (axis-- > 0)
        name += strlen(name) + 1;
    return name;
}

/* ---- metadata ---------------------------------------------------------------------------- */

/* The place of the value: behind the key and its zero byte, aligned to 8 bytes. */
static size_t value_offset(size_t key_length) { return tni_align_up(key_length + 1, 8); }

int tni_attribute_check_metadata(const tn_tensor *t, const void *payload, uint32_t bytes)
{
    const uint8_t *key = payload;
    size_t length;
    (void)t;
    int status =
        check_text("the metadata key", (const char *)key, bytes, KEY_MAX_BYTES, &length);
    if (status != 0)
        return status;
    size_t value_off = value_offset(length);
    if (length == 0 || value_off > bytes ||
        !tni_attribute_is_zero(key + length, key + value_off))
        return tni_fail(TN_ERR_INVALID,
                        "a metadata key of %zu bytes and its padding do not fit in %u bytes",
                        length, bytes);
    return 0;
}

bool tni_attribute_same_key(const struct tni_attribute *a, const struct tni_attribute *b)
{
    return strcmp(tni_attribute_payload(a), tni_attribute_payload(b)) == 0;
}

/*
 * Find a key among the metadata, which are the last kind of attribute. *ret_found is NULL if
 * the tensor does not have the key. @return how many keys the tensor has
 */
static uint32_t find_key(const tn_tensor *t, const char *key,
                         const struct tni_attribute **ret_found)
{
    uint32_t keys = 0;
    const struct tni_attribute *a = tni_attribute_find(t, TNI_ATTRIBUTE_METADATA);
    *ret_found = NULL;
    for (; a != NULL; a = tni_attribute_next(t, a), keys++)
        if (strcmp(tni_attribute_payload(a), key) == 0)
            *ret_found = a;
    return keys;
}

struct value {
    const void *bytes; /* NULL: the key is removed */
    size_t size_bytes;
};

/* Begin to set the value of a key. @param length  of the key, without its zero byte */
static int begin_metadata(tn_tensor *t, const char *key, size_t length, struct value value,
                          struct tni_attribute_edit *ret_edit)
{
    const void *bytes = value.bytes;
    size_t size_bytes = value.size_bytes;
    const struct tni_attribute *old;
    uint32_t keys = find_key(t, key, &old);
    bool is_gone = bytes == NULL && size_bytes == 0;
    if (bytes == NULL && size_bytes != 0)
        return tni_fail(TN_ERR_INVALID,
                        "bytes is NULL for the metadata key '%s', but size_bytes is %zu", key,
                        size_bytes);
    if (size_bytes > TN_ATTRIBUTES_MAX_BYTES)
        return tni_fail(
            TN_ERR_INVALID,
            "the metadata '%s' have %zu bytes: all attributes together have at most %d", key,
            size_bytes, TN_ATTRIBUTES_MAX_BYTES);
    if (old == NULL && !is_gone && keys == TN_METADATA_MAX_KEYS)
        return tni_fail(TN_ERR_INVALID,
                        "the metadata '%s' would be key %u: at most %d are allowed", key,
                        keys + 1, TN_METADATA_MAX_KEYS);
    return tni_attribute_begin(t, TNI_ATTRIBUTE_METADATA, old,
                               is_gone ? 0 : value_offset(length) + size_bytes, ret_edit);
}

int tn_tensor_set_metadata(tn_tensor *t, const char *key, const void *bytes, size_t size_bytes)
{
    struct tni_attribute_edit edit;
    size_t length;
    int status = tni_tensor_check(t);
    if (status != 0)
        return status;
    if (key == NULL || key[0] == '\0')
        return tni_fail(TN_ERR_INVALID, "the metadata key is %s",
                        key == NULL ? "NULL" : "empty");
    if ((status = check_text("the metadata key", key, SIZE_MAX, KEY_MAX_BYTES, &length)) != 0 ||
        (status = begin_metadata(t, key, length, (struct value){bytes, size_bytes}, &edit)) !=
            0)
        return status;
    if (edit.payload != NULL) {
        memcpy(edit.payload, key, length);
        if (size_bytes > 0)
            memcpy((uint8_t *)edit.payload + value_offset(length), bytes, size_bytes);
    }
    return tni_attribute_end(t, &edit, tni_attribute_check_metadata);
}

static const void *value_of(const struct tni_attribute *a, size_t *ret_size_bytes)
{
    const uint8_t *payload = tni_attribute_payload(a);
    size_t value_off = value_offset(strlen((const char *)payload));
    *ret_size_bytes = a->bytes - value_off;
    return payload + value_off;
}

const void *tn_tensor_metadata(const tn_tensor *t, const char *key, size_t *ret_size_bytes)
{
    const struct tni_attribute *found = NULL;
    size_t size_bytes;
    if (key != NULL)
        (void)find_key(t, key, &found);
    if (found == NULL)
        return NULL;
    const void *value = value_of(found, &size_bytes);
    if (ret_size_bytes != NULL)
        *ret_size_bytes = size_bytes;
    return value;
}

int tn_tensor_for_each_metadata(const tn_tensor *t, tn_metadata_fn *each, void *context)
{
    int status = tni_tensor_check(t);
    if (status == 0 && each == NULL)
        status = tni_fail_null("each");
    if (status != 0)
        return status;
    const struct tni_attribute *a = tni_attribute_find(t, TNI_ATTRIBUTE_METADATA);
    for (; a != NULL && status == 0; a = tni_attribute_next(t, a)) {
        size_t size_bytes;
        const void *value = value_of(a, &size_bytes);
        status = each(tni_attribute_payload(a), value, size_bytes, context);
    }
    return status;
}
