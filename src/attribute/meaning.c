/* SPDX-License-Identifier: Apache-2.0 */
/* meaning: handles attributes that say what the bits of elements mean, in views and copies. */
#include <string.h>

#include "attribute/edit.h"

static uint32_t flags_in(const struct tni_attributes *a) { return a != NULL ? a->flags : 0; }

enum { MEANING_FLAGS = TN_CONJUGATE | TN_NEGATIVE };

/* The name of the first attribute that changes what the bits of elements mean; NULL: none. */
static const char *meaning_name(uint32_t flags, uint32_t scheme)
{
    return (flags & TN_CONJUGATE) != 0             ? "conjugate bit"
           : (flags & TN_NEGATIVE) != 0            ? "negative bit"
           : scheme == TN_QUANTIZER_AFFINE_CHANNEL ? "quantizer by channel"
           : scheme != TN_QUANTIZER_NONE           ? "quantizer"
                                                   : NULL;
}

int tni_attributes_check_plain(const tn_tensor *t, const char *what)
{
    if (TNI_LIKELY(t->attributes == NULL))
        return 0;
    const char *name = meaning_name(t->attributes->flags, tni_attribute_scheme(t));
    return name == NULL
               ? 0
               : tni_fail(TN_ERR_UNSUPPORTED, "%s cannot carry the tensor's %s", what, name);
}

static int inherit_quantizer(tn_tensor *view, const tn_tensor *base)
{
    tn_quantizer quantizer;
    if (!tn_tensor_quantizer(base, &quantizer))
        return 0;
    if (quantizer.scheme == TN_QUANTIZER_AFFINE_CHANNEL)
        return tni_fail(TN_ERR_UNSUPPORTED,
                        "a view cannot keep the tensor's quantizer by channel, along axis %d",
                        quantizer.axis);
    return tn_tensor_set_quantizer(view, &quantizer);
}

int tni_attributes_inherit(tn_tensor *view, const tn_tensor *base)
{
    if (TNI_LIKELY(base->attributes == NULL))
        return 0;
    uint32_t flags = base->attributes->flags & MEANING_FLAGS;
    const char *name = meaning_name(flags, tni_attribute_scheme(base));
    if (name == NULL)
        return 0;
    if (view->dtype != base->dtype)
        return tni_fail(TN_ERR_UNSUPPORTED,
                        "a view of another type cannot keep the tensor's %s", name);
    int status = flags != 0 ? tn_tensor_set_flags(view, flags) : 0;
    return status != 0 ? status : inherit_quantizer(view, base);
}

static bool has_equal_quantizer(const struct tni_attributes *one,
                                const struct tni_attributes *other)
{
    const struct tni_attribute *a = tni_attribute_find_in(one, TNI_ATTRIBUTE_QUANTIZER);
    const struct tni_attribute *b = tni_attribute_find_in(other, TNI_ATTRIBUTE_QUANTIZER);
    if (a == NULL || b == NULL)
        return a == b;
    return a->bytes == b->bytes &&
           memcmp(tni_attribute_payload(a), tni_attribute_payload(b), a->bytes) == 0;
}

int tni_attributes_check_same_meaning(const tn_tensor *target, const tn_tensor *source)
{
    struct tni_attributes *a = tni_attributes_hold(target), *b = tni_attributes_hold(source);
    uint32_t differ = (flags_in(a) ^ flags_in(b)) & MEANING_FLAGS;
    int status = 0;
    if (differ != 0)
        status =
            tni_fail(TN_ERR_UNSUPPORTED,
                     "one of the two tensors has the %s and the other has not: they cannot be "
                     "copied",
                     meaning_name(differ, TN_QUANTIZER_NONE));
    else if (!has_equal_quantizer(a, b))
        status = tni_fail(TN_ERR_UNSUPPORTED,
                          "the quantizers of the two tensors differ: they cannot be copied");
    tni_attributes_drop(a);
    tni_attributes_drop(b);
    return status;
}
