/* SPDX-License-Identifier: Apache-2.0 */
/* quantizer: sets and reads the attribute that maps the integers of a tensor to real values. */
#include <math.h>
#include <string.h>

#include "attribute/edit.h"

/* The head of the payload. The scales [count] and the zero points [count] follow. */
struct wire {
    uint32_t scheme;
    int32_t axis;
    uint32_t count;
    uint32_t reserved;
};
enum { ENTRY_BYTES = sizeof(double) + sizeof(int64_t) };
_Static_assert(sizeof(struct wire) == 16, "scales are aligned to 8");

static int check_type(const tn_tensor *t)
{
    char type[TNI_DTYPE_NAME_BYTES];
    if (TN_DTYPE_CODE(t->dtype) == kDLInt || TN_DTYPE_CODE(t->dtype) == kDLUInt)
        return 0;
    tni_dtype_describe(t->dtype, type);
    return tni_fail(TN_ERR_INVALID, "a quantizer needs an integer type, but the tensor has %s",
                    type);
}

static int check_wire(const tn_tensor *t, const struct wire *w)
{
    if (w->scheme != TN_QUANTIZER_AFFINE && w->scheme != TN_QUANTIZER_AFFINE_CHANNEL)
        return tni_fail(TN_ERR_INVALID, "no quantizer scheme has the number %u", w->scheme);
    if (w->reserved != 0)
        return tni_fail(TN_ERR_INVALID, "the field reserved of a quantizer is %u instead of 0",
                        w->reserved);
    if (w->scheme == TN_QUANTIZER_AFFINE) {
        if (w->axis != 0 || w->count != 1)
            return tni_fail(
                TN_ERR_INVALID,
                "an affine quantizer has axis %d and %u scales instead of axis 0 and 1 scale",
                w->axis, w->count);
        return 0;
    }
    if (w->axis < 0 || w->axis >= t->ndim)
        return tni_fail(TN_ERR_INVALID, "a quantizer by channel names axis %d of %d", w->axis,
                        t->ndim);
    if (w->count != (uint64_t)t->extents[w->axis])
        return tni_fail(TN_ERR_INVALID,
                        "a quantizer by channel has %u scales for axis %d of size %lld",
                        w->count, w->axis, (long long)t->extents[w->axis]);
    return 0;
}

static int check_scales(const double *scales, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (!isfinite(scales[i]) || scales[i] == 0)
            return tni_fail(TN_ERR_INVALID,
                            "scale %u of a quantizer is %g: it must be finite and not 0", i,
                            scales[i]);
    return 0;
}

int tni_attribute_check_quantizer(const tn_tensor *t, const void *payload, uint32_t bytes)
{
    struct wire w;
    if (bytes < sizeof w)
        return tni_fail(TN_ERR_INVALID, "a quantizer does not fit in %u bytes", bytes);
    memcpy(&w, payload, sizeof w);
    int status = check_type(t);
    if (status != 0 || (status = check_wire(t, &w)) != 0)
        return status;
    if (bytes != sizeof w + (uint64_t)w.count * ENTRY_BYTES)
        return tni_fail(TN_ERR_INVALID,
                        "a quantizer of %u scales does not fit its %u bytes exactly", w.count,
                        bytes);
    return check_scales((const double *)(const void *)((const uint8_t *)payload + sizeof w),
                        w.count);
}

int tn_tensor_set_quantizer(tn_tensor *t, const tn_quantizer *q)
{
    struct tni_attribute_edit edit;
    int status = tni_tensor_check(t);
    if (status != 0)
        return status;
    if (q == NULL || q->scheme == TN_QUANTIZER_NONE)
        return tni_attribute_remove(t, TNI_ATTRIBUTE_QUANTIZER);
    struct wire w = {q->scheme, q->axis, q->count, q->reserved};
    /* Check `count` before the arrays are read: it says how long the arrays are. */
    if ((status = check_type(t)) != 0 || (status = check_wire(t, &w)) != 0)
        return status;
    if (q->count > 0 && (q->scales == NULL || q->zero_points == NULL))
        return tni_fail(TN_ERR_INVALID, "%s of the quantizer is NULL",
                        q->scales == NULL ? "scales" : "zero_points");
    status = tni_attribute_begin(t, TNI_ATTRIBUTE_QUANTIZER,
                                 tni_attribute_find(t, TNI_ATTRIBUTE_QUANTIZER),
                                 sizeof w + (uint64_t)q->count * ENTRY_BYTES, &edit);
    if (status != 0)
        return status;
    uint8_t *to = edit.payload;
    memcpy(to, &w, sizeof w);
    if (q->count > 0) {
        memcpy(to + sizeof w, q->scales, q->count * sizeof(double));
        memcpy(to + sizeof w + q->count * sizeof(double), q->zero_points,
               q->count * sizeof(int64_t));
    }
    return tni_attribute_end(t, &edit, tni_attribute_check_quantizer);
}

uint32_t tni_attribute_scheme(const tn_tensor *t)
{
    struct wire w = {0};
    const struct tni_attribute *a = tni_attribute_find(t, TNI_ATTRIBUTE_QUANTIZER);
    if (a != NULL)
        memcpy(&w, tni_attribute_payload(a), sizeof w);
    return w.scheme;
}

bool tn_tensor_quantizer(const tn_tensor *t, tn_quantizer *ret_quantizer)
{
    struct wire w;
    const struct tni_attribute *a = tni_attribute_find(t, TNI_ATTRIBUTE_QUANTIZER);
    if (a == NULL)
        return false;
    const uint8_t *payload = tni_attribute_payload(a), *scales = payload + sizeof w;
    memcpy(&w, payload, sizeof w);
    if (ret_quantizer != NULL)
        *ret_quantizer = (tn_quantizer){
            .scheme = w.scheme,
            .axis = w.axis,
            .count = w.count,
            .scales = (const double *)(const void *)scales,
            .zero_points = (const int64_t *)(const void *)(scales + w.count * sizeof(double))};
    return true;
}
