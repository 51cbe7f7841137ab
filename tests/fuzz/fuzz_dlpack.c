/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_dlpack: shapes, strides, offsets and pointers of a DLPack tensor. The library cannot
 * tell a wrong pointer from a right one, so elements are touched only if all of them lie in
 * this program's buffer; what is computed of them must make sense wherever they lie.
 */
#include <tenon/dlpack.h>

#include "fuzz.h"
#include "harness/tensor.h"
#include "tensor/tensor.h"

enum { AXES = 40, BUFFER = 4096 };

static uint8_t buffer[BUFFER];
static uint32_t deleted;

static void delete (DLManagedTensorVersioned *managed)
{
    (void)managed;
    deleted++;
}

static bool is_in_buffer(const tn_tensor *t)
{
    uintptr_t begin = (uintptr_t)buffer, data = (uintptr_t)t->storage->data;
    return data >= begin && data - begin <= BUFFER &&
           t->storage->size_bytes <= BUFFER - (data - begin);
}

static void use(struct fuzz_input *in, tn_tensor *t)
{
    tn_tensor *view;
    DLManagedTensorVersioned *again;
    int64_t numbers[3];
    FUZZ_CHECK(tnt_info(t).byte_offset <= t->storage->size_bytes);
    if (is_in_buffer(t))
        fuzz_touch(t);
    if (tn_tensor_to_dlpack(t, &again) == 0)
        again->deleter(again);
    for (int i = 0; i < 3; i++)
        numbers[i] = (int64_t)fuzz_number(in);
    if (tn_tensor_slice(t, (int32_t)fuzz_u8(in) - 1, numbers[0], numbers[1], numbers[2],
                        &view) == 0) {
        if (is_in_buffer(view))
            fuzz_touch(view);
        tn_tensor_unref(view);
    }
    if (tn_tensor_reshape(t, 3, numbers, &view) == 0)
        tn_tensor_unref(view);
    if (tn_tensor_view(t, tn_tensor_dtype(t), 2, numbers, numbers + 1, fuzz_number(in),
                       &view) == 0) {
        if (is_in_buffer(view))
            fuzz_touch(view);
        tn_tensor_unref(view);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size_bytes)
{
    struct fuzz_input in = fuzz_input(bytes, size_bytes);
    int64_t shape[AXES], strides[AXES];
    uint32_t flags = fuzz_u8(&in), was_deleted = deleted;
    tn_tensor *t;
    DLManagedTensorVersioned managed = {.version = {.major = 1}, .deleter = delete};
    DLTensor *dl = &managed.dl_tensor;
    dl->device.device_type = (flags & 1) != 0 ? kDLCPU : (DLDeviceType)(fuzz_u8(&in) % 16);
    dl->dtype = (flags & 2) != 0
                    ? (DLDataType){kDLFloat, 32, 1}
                    : (DLDataType){fuzz_u8(&in), fuzz_u8(&in), (uint16_t)fuzz_u16(&in)};
    dl->ndim = (flags & 4) != 0 ? (int32_t)(fuzz_u8(&in) % 4) : (int32_t)fuzz_number(&in);
    dl->byte_offset = (flags & 8) != 0 ? 0 : fuzz_number(&in);
    dl->data = (flags & 16) != 0 ? buffer + fuzz_u16(&in) % BUFFER
                                 : (void *)(uintptr_t)fuzz_number(&in);
    managed.flags = flags >> 6;
    for (int i = 0; i < AXES; i++) {
        shape[i] = (int64_t)fuzz_number(&in);
        strides[i] = (int64_t)fuzz_number(&in);
    }
    dl->shape = shape;
    dl->strides = (flags & 32) != 0 ? strides : NULL;
    if (tn_tensor_from_dlpack(&managed, &t) == 0) {
        in = fuzz_input(bytes, size_bytes);
        use(&in, t);
        tn_tensor_unref(t);
        FUZZ_CHECK(deleted == was_deleted + 1);
    }
    FUZZ_CHECK(deleted <= was_deleted + 1);
    return 0;
}
