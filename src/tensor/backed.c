/* SPDX-License-Identifier: Apache-2.0 */
/* backed: storages with a memory object of their own. The invariants are in tensor.c. */
#include "tensor/build.h"

static struct tni_device_name device_of(const struct tni_backing_about *backing)
{
    struct tni_device_name device = {.type = backing->device.type};
    memcpy(device.uuid, backing->uuid, sizeof device.uuid);
    return device;
}

/* Make room on a device: end slabs that no tensor is in. @return bytes */
static uint64_t end_slabs(struct tn_domain *d, struct tni_thread *thread,
                          const struct tni_backing_about *backing)
{
    struct tni_device_name device = device_of(backing);
    uint64_t bytes = tni_ref_trim_slabs(d, thread, &device, backing->object_bytes);
    if (bytes > 0)
        tni_backing_sweep_slabs(d);
    return bytes;
}

int tni_backed_attempt(struct tn_domain *d, struct tni_retry *wish)
{
    struct tni_backed_wish *w = (struct tni_backed_wish *)wish;
    if (tni_backing_part(d)->depot != NULL)
        tni_backing_part(d)->depot->catch_up(d);
    struct tni_thread *thread = tni_thread_enter(d);
    int status = tni_ref_alloc_with(d, thread, sizeof(struct tni_backing), w->about, &w->block);
    wish->lacks_other = false;
    wish->lacks_host = status != 0;
    if (status == 0) {
        TNI_KILL_POINT("backed_allocated");
        status = tni_backing_create(d, thread, w->block, w->backing, &w->mapping);
        wish->lacks_other = status == TN_ERR_FULL; /* descriptors ran out, not memory */
        if (status != 0)
            tni_ref_release_unused(d, thread, w->block);
    }
    if ((status == TN_ERR_NO_MEMORY || status == TNI_ALLOC_AGAIN) &&
        w->backing->device.type != 0 && end_slabs(d, thread, w->backing) > 0)
        status = TNI_ALLOC_AGAIN;
    tni_thread_leave(thread);
    return status;
}

struct tni_backing_about tni_backed_about(const tn_tensor *t, uint64_t size_bytes,
                                          const tn_tensor_options *options)
{
    bool is_on_device = options->strategy == TN_STRATEGY_CUDA_VMM;
    return (struct tni_backing_about){.strategy = options->strategy,
                                      .device = is_on_device ? options->device : (tn_device){0},
                                      .flags = options->flags & TN_TENSOR_WRITE_ONCE,
                                      .is_unsealed =
                                          (options->flags & TNI_TENSOR_UNSEALED) != 0,
                                      .data_bytes = size_bytes,
                                      .dtype = t->dtype,
                                      .ndim = t->ndim,
                                      .shape = t->extents,
                                      .strides = tni_tensor_strides(t),
                                      .byte_offset = t->byte_offset};
}

bool tni_backed_can_fit(const struct tn_domain *d, const tn_tensor *t, uint64_t size_bytes,
                        const tn_tensor_options *options)
{
    struct tni_backing_about backing = tni_backed_about(t, size_bytes, options);
    return tni_backing_can_fit(d, &backing);
}

int tni_backed_new(struct tn_domain *d, const tn_tensor *t, uint64_t size_bytes,
                   const tn_tensor_options *options, tni_block *ret_block,
                   struct tni_mapping **ret_mapping, bool *ret_lacks_other)
{
    struct tni_block_about about = tni_tensor_about(t);
    struct tni_backing_about backing = tni_backed_about(t, size_bytes, options);
    about.kind = TNI_KIND_BACKING;
    about.is_unfinished = true;
    struct tni_backed_wish w = {.wish = {.attempt = tni_backed_attempt,
                                         .bytes = size_bytes,
                                         .deadline_ns = options->deadline.ns},
                                .backing = &backing,
                                .about = &about};
    int status = tni_process_check(d);
    if (status == 0)
        status = tni_backing_prepare(d, &backing);
    if (status == 0)
        status = tni_backed_attempt(d, &w.wish);
    if (tni_ref_is_short(status)) {
        struct tni_device_name device = device_of(&backing);
        w.wish.device = backing.device.type != 0 ? &device : NULL;
        w.wish.can_fit = tni_backing_can_fit(d, &backing);
        status = tni_ref_retry(d, &w.wish, status);
    }
    *ret_lacks_other = w.wish.lacks_other;
    if (status != 0)
        return status;
    *ret_block = w.block;
    *ret_mapping = w.mapping;
    return 0;
}
