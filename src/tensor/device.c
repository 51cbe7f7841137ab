/* SPDX-License-Identifier: Apache-2.0 */
/* device: fills and copies tensors on devices, whose bytes the processor cannot reach. */
#include "tensor/build.h"

/* The device that does a copy: that of the target, or of the source if the target is here. */
static tn_device device_of(const tn_tensor *target, const tn_tensor *source)
{
    return tni_tensor_is_on_host(target) ? tni_tensor_device(source)
                                         : tni_tensor_device(target);
}

static struct tni_device_copy copy_between(const tn_tensor *target, const tn_tensor *source,
                                           void *stream)
{
    return (struct tni_device_copy){.direction =
                                        tni_tensor_is_on_host(target)   ? TNI_COPY_FROM_DEVICE
                                        : tni_tensor_is_on_host(source) ? TNI_COPY_TO_DEVICE
                                                                        : TNI_COPY_ON_DEVICE,
                                    .stream = stream,
                                    .to = (uintptr_t)tn_tensor_data(target),
                                    .from = (uintptr_t)tn_tensor_data(source),
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

int tni_device_wait_for(const tn_tensor *target, const tn_tensor *source, void *stream)
{
    tn_device device = device_of(target, source);
    const struct tni_memory_kind *kind = tni_memory_kind(device.type);
    return kind->wait(kind, device.id, stream);
}

int tni_device_zero(const struct tni_mapping *m)
{
    const struct tni_memory_kind *kind = tni_memory_kind(m->memory.device.type);
    struct tni_device_memory part = m->memory;
    part.bytes = m->data_bytes;
    int status = kind->fill(kind, &part, 0, NULL);
    return status == 0 ? kind->wait(kind, part.device.id, NULL) : status;
}

int tni_device_fill(const struct tni_mapping *m, const void *source, uint64_t size_bytes)
{
    const struct tni_memory_kind *kind = tni_memory_kind(m->memory.device.type);
    const struct tni_device_copy copy = {.direction = TNI_COPY_TO_DEVICE,
                                         .to = m->memory.address,
                                         .from = (uintptr_t)source,
                                         .bytes = size_bytes};
    int status = kind->copy(kind, m->memory.device.id, &copy);
    return status == 0 ? kind->wait(kind, m->memory.device.id, NULL) : status;
}
