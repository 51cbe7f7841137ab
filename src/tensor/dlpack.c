/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dlpack: exchanges tensors with other libraries of this process, without a copy.
 * Source: the DLPack specification 1.x, https://dmlc.github.io/dlpack/latest/, "C API".
 */
#include <tenon/dlpack.h>

#include <stdlib.h>
#include <string.h>

#include "tensor/build.h"

/* ---- export ------------------------------------------------------------------------------ */

struct dlpack_export {
    DLManagedTensorVersioned managed;
    tn_tensor *tensor; /* the export owns one reference */
    int64_t extents[];
};

static void delete_export(DLManagedTensorVersioned *managed)
{
    struct dlpack_export *export = managed->manager_ctx;
    /* pairs with the acquire in check_movable() and check_resizable() */
    atomic_fetch_sub_explicit(&export->tensor->storage->exports, 1, memory_order_release);
    tn_tensor_unref(export->tensor);
    free(export);
}

int tn_tensor_to_dlpack(tn_tensor *tensor, DLManagedTensorVersioned **ret_managed)
{
    int status = tni_tensor_check(tensor);
    if (status != 0 || (status = tni_tensor_check_result(ret_managed, "ret_managed")) != 0 ||
        (status = tni_attributes_check_plain(tensor, "DLPack")) != 0)
        return status;
    tn_device device = tni_tensor_device(tensor); /* the numbers are DLPack's */
    size_t extents_bytes = 2 * (size_t)tensor->ndim * sizeof(int64_t);
    struct dlpack_export *export = malloc(sizeof *export + extents_bytes);
    if (export == NULL)
        return tni_fail(TN_ERR_NO_MEMORY, "no private memory for a DLPack export");
    memcpy(export->extents, tensor->extents, extents_bytes);
    export->tensor = tn_tensor_ref(tensor);
    atomic_fetch_add_explicit(&tensor->storage->exports, 1, memory_order_relaxed);
    export->managed = (DLManagedTensorVersioned){
        .version = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION},
        .manager_ctx = export,
        .deleter = delete_export,
        .flags = tni_tensor_is_read_only(tensor) ? DLPACK_FLAG_BITMASK_READ_ONLY : 0,
        /* The offset is added to `data`: some libraries ignore `byte_offset`. */
        .dl_tensor = {.data = tn_tensor_data(tensor),
                      .device = {(DLDeviceType)device.type, device.id},
                      .ndim = tensor->ndim,
                      .dtype = {TN_DTYPE_CODE(tensor->dtype), TN_DTYPE_BITS(tensor->dtype),
                                TN_DTYPE_LANES(tensor->dtype)},
                      .shape = export->extents,
                      .strides = export->extents + tensor->ndim,
                      .byte_offset = 0},
    };
    *ret_managed = &export->managed;
    return 0;
}

/* ---- import ------------------------------------------------------------------------------ */

static void release_import(void *context)
{
    DLManagedTensorVersioned *managed = context;
    if (managed->deleter != NULL)
        managed->deleter(managed);
}

static bool is_on_device(const DLTensor *dl)
{
    return dl->device.device_type == kDLCUDA || dl->device.device_type == kDLROCM;
}

static int check_import(const DLManagedTensorVersioned *managed)
{
    if (managed == NULL)
        return tni_fail_null("managed");
    /* In another major version, only the layout of `version` is known. */
    if (managed->version.major != 1)
        return tni_fail(TN_ERR_VERSION,
                        "the tensor has version %u.%u of DLPack: only 1.x is understood",
                        managed->version.major, managed->version.minor);
    int device = (int)managed->dl_tensor.device.device_type; /* the numbers are tenon's */
    if (is_on_device(&managed->dl_tensor))
        return tni_device_check((tn_device){device, managed->dl_tensor.device.device_id});
    if (device != kDLCPU && device != kDLCUDAHost && device != kDLROCMHost)
        return tni_fail(
            TN_ERR_UNSUPPORTED,
            "a DLPack tensor on device type %d is not supported: only memory of the "
            "CPU and of CUDA and ROCm devices is",
            device);
    return 0;
}

/*
 * Make the storage exactly the bytes that the elements occupy. If a stride is negative, the
 * first element is not at the start of these bytes.
 */
static int cover(tn_tensor *t, const DLTensor *dl)
{
    struct tni_reach reach;
    int status =
        tni_shape_reach(t->ndim, t->extents, tni_tensor_strides(t), t->item_bytes, &reach);
    if (status != 0 || t->count == 0)
        return status;
    uint64_t below = 0 - (uint64_t)reach.low_bytes, first, end;
    if (dl->data == NULL)
        return tni_fail(TN_ERR_INVALID, "a DLPack tensor of %lld elements has no data",
                        (long long)t->count);
    if (!tni_add_size((uintptr_t)dl->data, dl->byte_offset, &first) || first <= below ||
        !tni_add_size(first, (uint64_t)reach.high_bytes, &end) || end > UINTPTR_MAX)
        return tni_fail(TN_ERR_INVALID,
                        "the elements of a DLPack tensor lie outside of the address space");
    t->storage->data = (uint8_t *)dl->data + dl->byte_offset - below;
    t->storage->size_bytes = below + (uint64_t)reach.high_bytes;
    t->byte_offset = below;
    return 0;
}

/* Mark a tensor whose memory is page-locked. A receiver gets the mark, but not such memory. */
static int note_device(tn_tensor *t, const DLTensor *dl)
{
    if (is_on_device(dl))
        t->storage->device = (tn_device){(int32_t)dl->device.device_type, dl->device.device_id};
    return dl->device.device_type == kDLCPU || is_on_device(dl)
               ? 0
               : tn_tensor_set_flags(t, TN_WAS_PINNED);
}

int tn_tensor_from_dlpack(DLManagedTensorVersioned *managed, tn_tensor **ret_tensor)
{
    tn_tensor *t;
    int status = check_import(managed);
    if (status != 0 || (status = tni_tensor_check_result(ret_tensor, "ret_tensor")) != 0)
        return status;
    const DLTensor *dl = &managed->dl_tensor;
    tn_dtype dtype = TN_DTYPE(dl->dtype.code, dl->dtype.bits, dl->dtype.lanes);
    if ((status = tni_tensor_build(dtype, dl->ndim, dl->shape, &t)) != 0)
        return status;
    for (int32_t i = 0; i < t->ndim && dl->strides != NULL; i++)
        tni_tensor_steps(t)[i] = dl->strides[i];
    tni_tensor_complete_strides(t);
    if ((status = cover(t, dl)) != 0 || (status = note_device(t, dl)) != 0) {
        tni_tensor_end(t);
        return status;
    }
    t->storage->is_read_only = (managed->flags & DLPACK_FLAG_BITMASK_READ_ONLY) != 0;
    t->storage->release = release_import;
    t->storage->context = managed;
    *ret_tensor = t;
    return 0;
}
