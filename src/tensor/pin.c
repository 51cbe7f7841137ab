/* SPDX-License-Identifier: Apache-2.0 */
/* pin: registers the memory of tensors on the host, so that devices reach it alone. */
#include "tensor/build.h"

static int check_pinnable(const tn_tensor *t)
{
    if (!tni_tensor_is_on_host(t))
        return tni_fail(TN_ERR_UNSUPPORTED,
                        "the tensor is on device %s:%d: only memory of the host is registered",
                        tni_memory_kind(tni_tensor_device(t).type)->name,
                        tni_tensor_device(t).id);
    if (tni_tensor_is_read_only(t))
        return tni_fail(TN_ERR_DENIED, "the tensor is read-only: its memory is not registered");
    const struct tni_memory_kind *kind;
    return tni_device_kind_of_pins(&kind);
}

int tn_tensor_pin(tn_tensor *tensor)
{
    int status = tni_tensor_check(tensor);
    if (status == 0)
        status = check_pinnable(tensor);
    if (status != 0)
        return status;
    uint64_t size_bytes = tni_storage_bytes(tensor->storage);
    return size_bytes != 0 ? tni_storage_pin(tensor->storage, size_bytes) : 0;
}

int tn_tensor_unpin(tn_tensor *tensor)
{
    int status = tni_tensor_check(tensor);
    return status != 0 ? status : tni_storage_unpin(tensor->storage);
}
