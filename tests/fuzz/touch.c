/* SPDX-License-Identifier: Apache-2.0 */
/* touch: read everything that a tensor from elsewhere lets one read. */
#include <string.h>

#include "fuzz.h"
#include "harness/tensor.h"

static volatile uint8_t sink;

static void read_bytes(const void *bytes, size_t size_bytes)
{
    const uint8_t *at = bytes;
    for (size_t i = 0; i < size_bytes; i++)
        sink = (uint8_t)(sink ^ at[i]);
}

/* The elements at the two ends of what it reaches. */
static void touch_elements(const tn_tensor *t)
{
    size_t item_bytes;
    int64_t low = 0, high = 0;
    FUZZ_CHECK(tn_dtype_size(tn_tensor_dtype(t), &item_bytes) == 0);
    for (int32_t i = 0; i < tn_tensor_ndim(t); i++) {
        int64_t far = (tn_tensor_shape(t)[i] - 1) * tnt_info(t).strides[i];
        low += far < 0 ? far : 0;
        high += far > 0 ? far : 0;
    }
    const uint8_t *data = tn_tensor_data(t);
    FUZZ_CHECK(data != NULL);
    read_bytes(data + low * (int64_t)item_bytes, item_bytes);
    read_bytes(data + high * (int64_t)item_bytes, item_bytes);
}

static int read_metadata(const char *key, const void *bytes, size_t size_bytes, void *context)
{
    (void)context;
    read_bytes(key, strlen(key) + 1);
    read_bytes(bytes, size_bytes);
    return 0;
}

static void touch_attributes(const tn_tensor *t)
{
    tn_quantizer quantizer;
    if (tn_tensor_name(t) != NULL)
        read_bytes(tn_tensor_name(t), strlen(tn_tensor_name(t)));
    for (int32_t i = -1; i <= tn_tensor_ndim(t); i++) {
        const char *name = tn_tensor_axis_name(t, i);
        if (name != NULL)
            read_bytes(name, strlen(name));
    }
    for (uint32_t i = 0; i <= TN_LOD_MAX_LEVELS; i++) {
        uint32_t count = 0;
        const uint64_t *offsets = tn_tensor_lod(t, i, &count);
        if (offsets != NULL)
            read_bytes(offsets, count * sizeof *offsets);
    }
    if (tn_tensor_quantizer(t, &quantizer)) {
        read_bytes(quantizer.scales, quantizer.count * sizeof *quantizer.scales);
        read_bytes(quantizer.zero_points, quantizer.count * sizeof *quantizer.zero_points);
    }
    FUZZ_CHECK(tn_tensor_for_each_metadata(t, read_metadata, NULL) == 0);
}

void fuzz_touch(tn_tensor *t)
{
    tn_tensor *view = NULL;
    int32_t ndim = tn_tensor_ndim(t);
    FUZZ_CHECK(ndim >= 0 && ndim <= TN_MAX_NDIM);
    FUZZ_CHECK(tn_tensor_count(t) >= 0);
    if (tn_tensor_count(t) > 0)
        touch_elements(t);
    touch_attributes(t);
    if (tn_tensor_transpose(t, NULL, &view) == 0)
        tn_tensor_unref(view);
    view = NULL;
    if (ndim > 0 &&
        tn_tensor_slice(t, ndim - 1, 0, tn_tensor_shape(t)[ndim - 1], 2, &view) == 0)
        tn_tensor_unref(view);
}
