/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copy: copies elements from one tensor to another tensor of the same shape. Overlapping
 * tensors are copied through a private buffer, unless memmove() can copy them.
 */
#include <stdlib.h>
#include <string.h>

#include "tensor/build.h"
#include "tensor/plan.h"

static void copy_apart(const tn_tensor *target, const tn_tensor *source)
{
    struct tni_plan p;
    tni_plan_make(&p, target, tni_plan_end(target), tni_plan_end(source));
    tni_plan_run(&p);
}

static int copy_through_buffer(const tn_tensor *target, const tn_tensor *source)
{
    struct tni_plan p;
    int64_t dense[TN_MAX_NDIM];
    uint8_t *buffer = malloc(tni_tensor_size_bytes(source));
    if (buffer == NULL)
        return tni_fail(TN_ERR_NO_MEMORY,
                        "no private memory for %llu bytes of overlapping tensors",
                        (unsigned long long)tni_tensor_size_bytes(source));
    tni_shape_row_major(source->ndim, source->extents, dense);
    struct tni_end between = {(uintptr_t)buffer, dense};
    tni_plan_make(&p, source, between, tni_plan_end(source));
    tni_plan_run(&p);
    tni_plan_make(&p, target, tni_plan_end(target), between);
    tni_plan_run(&p);
    free(buffer);
    return 0;
}

static int check_pair(const tn_tensor *target, const tn_tensor *source)
{
    char to_name[TNI_DTYPE_NAME_BYTES], from_name[TNI_DTYPE_NAME_BYTES];

    if (target->dtype != source->dtype) {
        tni_dtype_describe(target->dtype, to_name);
        tni_dtype_describe(source->dtype, from_name);
        return tni_fail(TN_ERR_INVALID,
                        "elements of type %s cannot be copied to a tensor of type %s",
                        from_name, to_name);
    }
    if (target->ndim != source->ndim)
        return tni_fail(TN_ERR_INVALID, "a tensor of %d axes cannot be copied to one of %d",
                        source->ndim, target->ndim);
    for (int32_t i = 0; i < target->ndim; i++) {
        if (target->extents[i] != source->extents[i])
            return tni_fail(TN_ERR_INVALID,
                            "axis %d has size %lld in the source but %lld in the target", i,
                            (long long)source->extents[i], (long long)target->extents[i]);
        if (target->extents[i] > 1 && tni_tensor_strides(target)[i] == 0)
            return tni_fail(
                TN_ERR_INVALID,
                "axis %d of the target has stride 0: its elements are one and the same", i);
    }
    if (tni_tensor_is_read_only(target))
        return tni_fail(TN_ERR_DENIED, "the target is read-only");
    return 0;
}

int tni_tensor_check_copy(const tn_tensor *target, const tn_tensor *source)
{
    int status = check_pair(target, source);
    return status != 0 ? status : tni_attributes_check_same_meaning(target, source);
}

int tn_tensor_copy(tn_tensor *target, const tn_tensor *source)
{
    if (target == NULL || source == NULL)
        return tni_fail_null(target == NULL ? "target" : "source");
    int status = tni_tensor_check_copy(target, source);
    if (status != 0 || target->count == 0)
        return status;
    if (!tni_tensor_is_on_host(target) || !tni_tensor_is_on_host(source)) {
        status = tni_device_copy_tensor(target, source, NULL);
        return status == 0 ? tni_device_wait_for(target, source) : status;
    }
    bool is_one_mapping = target->storage->data == source->storage->data ||
                          !tn_tensor_same_storage(target, source);
    if (target->is_contiguous && source->is_contiguous && is_one_mapping) {
        memmove(tn_tensor_data(target), tn_tensor_data(source), tni_tensor_size_bytes(target));
        return 0;
    }
    if (tni_plan_overlaps(target, source))
        return copy_through_buffer(target, source);
    copy_apart(target, source);
    return 0;
}
