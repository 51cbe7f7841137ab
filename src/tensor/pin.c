/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pin: registers memory of the host with the driver of CUDA, so that devices reach it alone.
 *
 * A registration is of this process. It ends before the storage gives its memory back: no other
 * process can get memory that a device of this process still reaches.
 */
#include "tensor/build.h"

static const struct tni_memory_kind *kind_of_pins(void)
{
    return tni_memory_kind(TN_DEVICE_CUDA);
}

static int check_pinnable(const tn_tensor *t)
{
    if (!tni_tensor_is_on_host(t))
        return tni_fail(TN_ERR_UNSUPPORTED,
                        "the tensor is on device cuda:%d: only memory of the "
                        "host is registered",
                        tni_tensor_device(t).id);
    if (tni_tensor_is_read_only(t))
        return tni_fail(TN_ERR_DENIED, "the tensor is read-only: its memory is not registered");
    int count = tn_device_count(TN_DEVICE_CUDA);
    return count < 0 ? count : 0;
}

int tn_tensor_pin(tn_tensor *tensor)
{
    int status = tni_tensor_check(tensor);
    if (status == 0)
        status = check_pinnable(tensor);
    if (status != 0)
        return status;
    struct tni_storage *s = tensor->storage;
    uint64_t bytes = tni_storage_bytes(s);
    if (bytes == 0 || atomic_exchange(&s->is_pinned, true))
        return 0;
    status = kind_of_pins()->pin(kind_of_pins(), s->data, bytes);
    if (status != 0)
        atomic_store(&s->is_pinned, false);
    return status;
}

int tn_tensor_unpin(tn_tensor *tensor)
{
    int status = tni_tensor_check(tensor);
    if (status != 0 || !atomic_exchange(&tensor->storage->is_pinned, false))
        return status;
    return kind_of_pins()->unpin(kind_of_pins(), tensor->storage->data);
}
