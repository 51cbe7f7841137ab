/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_attribute: attributes as they arrive with tensors, of any type and shape; and what the
 * setters and views make of those that were let in.
 */
#include <tenon/dlpack.h>

#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "tensor/tensor.h"

enum { TENSORS = 3, AXES = 4 };

static tn_tensor *make(struct fuzz_input *in)
{
    static const tn_dtype types[] = {TN_FLOAT32, TN_INT8,      TN_INT64,
                                     TN_INT32,   TN_COMPLEX64, TN_UINT8};
    int64_t shape[AXES];
    uint32_t what = fuzz_u8(in);
    int32_t ndim = (int32_t)(what % (AXES + 1));
    tn_tensor *tensor = NULL;
    for (int32_t i = 0; i < ndim; i++)
        shape[i] = fuzz_u8(in) % 16;
    FUZZ_CHECK(tn_tensor_create_private(types[what / 8 % TNI_COUNT(types)], ndim, shape,
                                        &tensor) == 0);
    return tensor;
}

/* Their own allocation, whose end ASan watches. */
static void adopt(struct fuzz_input *in, tn_tensor *tensor)
{
    size_t size = fuzz_u16(in) % 512 * 8;
    size = TNI_MIN(size, (fuzz_left(in) + 7) / 8 * 8);
    if (size == 0)
        return;
    uint8_t *bytes = malloc(size);
    if (bytes == NULL)
        return;
    fuzz_fill(in, bytes, size);
    (void)!tni_attributes_adopt(tensor, bytes, size);
    free(bytes);
}

static void set(struct fuzz_input *in, tn_tensor *tensor)
{
    uint32_t verb = fuzz_u8(in) % 6;
    char *text = fuzz_text(in, fuzz_u8(in));
    const char *const names[AXES] = {text, "", text, "x"};
    tn_quantizer quantizer = {.scheme = fuzz_u8(in) % 4,
                              .axis = (int32_t)(int8_t)fuzz_u8(in),
                              .count = 1,
                              .scales = (const double[]){0.5},
                              .zero_points = (const int64_t[]){3}};
    if (verb == 0)
        (void)!tn_tensor_set_flags(tensor, fuzz_u8(in));
    if (verb == 1)
        (void)!tn_tensor_set_name(tensor, text);
    if (verb == 2)
        (void)!tn_tensor_set_axis_names(tensor, names);
    if (verb == 3)
        (void)!tn_tensor_set_quantizer(tensor, &quantizer);
    if (verb == 4)
        (void)!tn_tensor_set_metadata(tensor, text, text, strlen(text));
    if (verb == 5)
        (void)!tn_tensor_set_lod(tensor, 0, NULL, NULL);
    free(text);
}

static void relate(tn_tensor **tensors)
{
    tn_sparse sparse;
    tn_tensor *view;
    (void)!tni_attributes_check_parts(tensors, TENSORS);
    (void)!tn_sparse_find(tensors, TENSORS, &sparse);
    (void)!tn_tensor_copy_attributes(tensors[0], tensors[1]);
    (void)!tn_tensor_copy(tensors[0], tensors[1]);
    if (tn_tensor_reshape(tensors[2], 1, (const int64_t[]){tn_tensor_count(tensors[2])},
                          &view) == 0) {
        fuzz_touch(view);
        tn_tensor_unref(view);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size_bytes)
{
    struct fuzz_input in = fuzz_input(bytes, size_bytes);
    tn_tensor *tensors[TENSORS];
    for (uint32_t i = 0; i < TENSORS; i++) {
        tensors[i] = make(&in);
        adopt(&in, tensors[i]);
        fuzz_touch(tensors[i]);
    }
    for (uint32_t n = 0; n < 8 && fuzz_left(&in) > 0; n++)
        set(&in, tensors[n % TENSORS]);
    relate(tensors);
    for (uint32_t i = 0; i < TENSORS; i++) {
        fuzz_touch(tensors[i]);
        tn_tensor_unref(tensors[i]);
    }
    return 0;
}
