/* SPDX-License-Identifier: Apache-2.0 */
/* flags: sets and reads the attribute that has TN_REQUIRES_GRAD and other flags. */
#include <string.h>

#include "attribute/edit.h"

static const struct {
    uint32_t bit;
    const char *name;
} flag_names[] = {
    {TN_REQUIRES_GRAD, "TN_REQUIRES_GRAD"}, {TN_STOP_GRADIENT, "TN_STOP_GRADIENT"},
    {TN_PARAMETER, "TN_PARAMETER"},         {TN_BUFFER, "TN_BUFFER"},
    {TN_CONJUGATE, "TN_CONJUGATE"},         {TN_NEGATIVE, "TN_NEGATIVE"},
    {TN_WAS_PINNED, "TN_WAS_PINNED"}};

static int check_flag_bits(const tn_tensor *t, uint32_t flags)
{
    static const uint32_t pairs[] = {TN_REQUIRES_GRAD | TN_STOP_GRADIENT,
                                     TN_PARAMETER | TN_BUFFER};
    char type[TNI_DTYPE_NAME_BYTES];
    uint32_t known = 0;
    for (size_t i = 0; i < TNI_COUNT(flag_names); i++)
        known |= flag_names[i].bit;
    if ((flags & ~known) != 0)
        return tni_fail(TN_ERR_INVALID, "the tensor flags 0x%x are not known", flags & ~known);
    for (size_t i = 0; i < TNI_COUNT(pairs); i++)
        if ((flags & pairs[i]) == pairs[i])
            return tni_fail(TN_ERR_INVALID, "the flags %s and %s exclude each other",
                            flag_names[2 * i].name, flag_names[2 * i + 1].name);
    if ((flags & TN_CONJUGATE) != 0 && TN_DTYPE_CODE(t->dtype) != kDLComplex) {
        tni_dtype_describe(t->dtype, type);
        return tni_fail(TN_ERR_INVALID,
                        "the flag TN_CONJUGATE needs a complex type, but the tensor has %s",
                        type);
    }
    return 0;
}

int tni_attribute_check_flags(const tn_tensor *t, const void *payload, uint32_t bytes)
{
    uint32_t flags;
    if (bytes != sizeof flags)
        return tni_fail(TN_ERR_INVALID, "the flags take %u bytes instead of %zu", bytes,
                        sizeof flags);
    memcpy(&flags, payload, sizeof flags);
    return flags != 0 ? check_flag_bits(t, flags)
                      : tni_fail(TN_ERR_INVALID,
                                 "the attribute 'flags' is 0: it must be left out instead");
}

int tn_tensor_set_flags(tn_tensor *t, uint32_t flags)
{
    struct tni_attribute_edit edit;
    int status = tni_tensor_check(t);
    if (status != 0)
        return status;
    if (flags == 0)
        return tni_attribute_remove(t, TNI_ATTRIBUTE_FLAGS);
    status =
        tni_attribute_begin(t, TNI_ATTRIBUTE_FLAGS, tni_attribute_find(t, TNI_ATTRIBUTE_FLAGS),
                            sizeof flags, &edit);
    if (status != 0)
        return status;
    memcpy(edit.payload, &flags, sizeof flags);
    return tni_attribute_end(t, &edit, tni_attribute_check_flags);
}

uint32_t tn_tensor_flags(const tn_tensor *t)
{
    return t != NULL && t->attributes != NULL ? t->attributes->flags : 0;
}
