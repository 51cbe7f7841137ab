/* SPDX-License-Identifier: Apache-2.0 */
/* to: copies tensors from and to devices in the order of a stream, and moves them there. */
#include "tensor/build.h"

/* The storage, if it is on a device. */
static struct tni_storage *there(const tn_tensor *t)
{
    return tni_tensor_is_on_host(t) || t->storage->domain == NULL ? NULL : t->storage;
}

static int use_both(const tn_tensor *target, const tn_tensor *source, void *stream)
{
    const tn_tensor *doer = tni_tensor_is_on_host(target) ? source : target;
    struct tni_storage *shared = there(target) != NULL ? there(target) : there(source);
    if (shared == NULL) { /* private memory alone has no order */
        tn_device device = tni_tensor_device(doer);
        const struct tni_memory_kind *kind = tni_memory_kind(device.type);
        return kind->wait(kind, device.id, stream);
    }
    const struct tni_use use = {.device = tni_tensor_device(doer),
                                .stream = stream,
                                .writes = there(target),
                                .reads = there(source)};
    return tni_storage_use(shared->domain, &use);
}

int tn_tensor_copy_on(tn_tensor *target, const tn_tensor *source, void *stream)
{
    if (target == NULL || source == NULL)
        return tni_fail_null(target == NULL ? "target" : "source");
    if (tni_tensor_is_on_host(target) && tni_tensor_is_on_host(source))
        return tn_tensor_copy(target, source);
    int status = tni_tensor_check_copy(target, source);
    if (status != 0 || target->count == 0)
        return status;
    status = tni_device_copy_tensor(target, source, stream);
    return status == 0 ? use_both(target, source, stream) : status;
}

int tn_tensor_to(tn_domain *domain, const tn_tensor *tensor, tn_device device, void *stream,
                 tn_tensor **ret_tensor)
{
    tn_tensor *t;
    tn_tensor_options options = {.struct_size = sizeof options, .device = device};
    bool is_zero;
    int status = tni_tensor_check(tensor);
    if (status == 0)
        status = tni_tensor_check_result(ret_tensor, "ret_tensor");
    if (status == 0 && device.type == TN_DEVICE_CPU)
        options.strategy = TN_STRATEGY_ARENA;
    if (status == 0)
        status = tni_tensor_begin_shared(domain, tensor->dtype, tensor->ndim, tensor->extents,
                                         &options, &is_zero, &t);
    if (status != 0)
        return status;
    if ((status = tn_tensor_copy_attributes(t, tensor)) != 0 ||
        (status = tn_tensor_copy_on(t, tensor, stream)) != 0) {
        tn_tensor_unref(t);
        return status;
    }
    tni_ref_finish(domain, t->storage->block);
    *ret_tensor = t;
    return 0;
}
