/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pin: registers memory of the host with the driver of CUDA, so that devices reach it alone.
 *
 * A registration is of this process. It ends before the storage gives its memory back, after
 * all work of this process on its devices: no other process can get memory that a device of
 * this process still reaches.
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

/* Wait while another thread registers the storage or ends that. @return TNI_PIN_* before */
static uint8_t begin(struct tni_storage *s, uint8_t from)
{
    uint8_t state = from;
    for (uint32_t tries = 0; !atomic_compare_exchange_strong(&s->pin, &state, TNI_PIN_BUSY);
         tries++) {
        if (state != TNI_PIN_BUSY)
            return state;
        tni_os_back_off(tries);
        state = from;
    }
    return from;
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
    if (bytes == 0 || begin(s, TNI_PIN_NONE) == TNI_PIN_DONE)
        return 0;
    status = kind_of_pins()->pin(kind_of_pins(), s->data, bytes);
    if (status == 0 && s->domain != NULL)
        atomic_store(&tni_backing_part(s->domain)->has_pinned, true);
    atomic_store(&s->pin, status == 0 ? TNI_PIN_DONE : TNI_PIN_NONE);
    return status;
}

int tn_tensor_unpin(tn_tensor *tensor)
{
    int status = tni_tensor_check(tensor);
    if (status != 0 || begin(tensor->storage, TNI_PIN_DONE) == TNI_PIN_NONE)
        return status;
    status = kind_of_pins()->unpin(kind_of_pins(), tensor->storage->data);
    atomic_store(&tensor->storage->pin, status == 0 ? TNI_PIN_NONE : TNI_PIN_DONE);
    return status;
}
