/* SPDX-License-Identifier: Apache-2.0 */
/* device: fills and copies tensors on devices, whose bytes the processor cannot reach. */
#include "tensor/build.h"

/* The device that does a copy: that of the target, or of the source if the target is here. */
static tn_device device_of(const tn_tensor *target, const tn_tensor *source)
{
    return tni_tensor_is_on_host(target) ? tni_tensor_device(source)
                                         : tni_tensor_device(target);
}

/* Not tn_tensor_data(), after which a program may give the device work at any time. */
static uintptr_t address_of(const tn_tensor *t)
{
    return (uintptr_t)t->storage->data + t->byte_offset;
}

static struct tni_device_copy copy_between(const tn_tensor *target, const tn_tensor *source,
                                           void *stream)
{
    tn_device to = tni_tensor_device(target), from = tni_tensor_device(source);
    return (struct tni_device_copy){.direction = to.type == TN_DEVICE_CPU ? TNI_COPY_FROM_DEVICE
                                                 : from.type == TN_DEVICE_CPU
                                                     ? TNI_COPY_TO_DEVICE
                                                 : from.id != to.id ? TNI_COPY_BETWEEN_DEVICES
                                                                    : TNI_COPY_ON_DEVICE,
                                    .from_id = from.id,
                                    .stream = stream,
                                    .to = address_of(target),
                                    .from = address_of(source),
                                    .bytes = tni_tensor_size_bytes(target)};
}

int tni_device_copy_tensor(const tn_tensor *target, const tn_tensor *source, void *stream)
{
    tn_device device = device_of(target, source);
    const struct tni_memory_kind *kind = tni_memory_kind(device.type);
    if (!target->is_contiguous || !source->is_contiguous)
        return tni_fail(TN_ERR_UNSUPPORTED,
                        "the %s is not contiguous: only contiguous tensors are copied from and "
                        "to devices",
                        target->is_contiguous ? "source" : "target");
    struct tni_device_copy copy = copy_between(target, source, stream);
    return kind->copy(kind, device.id, &copy);
}

/* Wait for the default stream. After a wait that fails, the device may still do its work. */
static int wait_here(const tn_tensor *t)
{
    tn_device device = tni_tensor_device(t);
    const struct tni_memory_kind *kind = tni_memory_kind(device.type);
    int status = kind->wait(kind, device.id, NULL);
    if (status != 0)
        tni_storage_touch(t);
    return status;
}

int tni_device_wait_for(const tn_tensor *target, const tn_tensor *source)
{
    int status = wait_here(tni_tensor_is_on_host(target) ? source : target);
    if (status != 0) {
        tni_storage_touch(target);
        tni_storage_touch(source);
    }
    return status;
}

int tni_device_zero(const tn_tensor *t)
{
    tn_device device = tni_tensor_device(t);
    const struct tni_memory_kind *kind = tni_memory_kind(device.type);
    const struct tni_device_memory part = {.device = device,
                                           .address = (uintptr_t)t->storage->data,
                                           .bytes = tni_tensor_size_bytes(t)};
    int status = kind->fill(kind, &part, 0, NULL);
    return status == 0 ? wait_here(t) : status;
}

int tni_device_fill(const tn_tensor *t, const void *source)
{
    tn_device device = tni_tensor_device(t);
    const struct tni_memory_kind *kind = tni_memory_kind(device.type);
    const struct tni_device_copy copy = {.direction = TNI_COPY_TO_DEVICE,
                                         .to = (uintptr_t)t->storage->data,
                                         .from = (uintptr_t)source,
                                         .bytes = tni_tensor_size_bytes(t)};
    int status = kind->copy(kind, device.id, &copy);
    return status == 0 ? wait_here(t) : status;
}
