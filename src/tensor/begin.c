/* SPDX-License-Identifier: Apache-2.0 */
/* begin: the options of a new tensor, and its memory in a domain. Invariants: tensor.c. */
#include <string.h>

#include "tensor/build.h"

/*
 * Give a tensor memory in a domain. If `options` is NULL, the strategy of this process is the
 * arena, and all options have their defaults.
 */
static int give_memory(tn_domain *domain, tn_tensor *t, const tn_tensor_options *options,
                       bool *ret_is_zero)
{
    uint64_t deadline_ns = options != NULL ? options->deadline.ns : 0;
    uint64_t bytes = (uint64_t)t->count * t->item_bytes;
    struct tni_mapping *mapping;
    tni_block block;
    bool lacks_other;
    int status;
    if (TNI_UNLIKELY(options != NULL && options->strategy == TN_STRATEGY_CUDA_VMM)) {
        struct tni_on_device memory;
        status = tni_on_device_new(domain, t, options, &memory);
        if (status == 0)
            tni_storage_set_on_device(t->storage, domain, &memory, bytes);
        *ret_is_zero = false;
        return status;
    }
    if (TNI_LIKELY(options == NULL || options->strategy == TN_STRATEGY_ARENA)) {
        struct tni_block_about about = tni_tensor_about(t);
        about.is_unfinished = bytes >= TNI_LONG_WRITE_BYTES;
        struct tni_new_block arena;
        status = tni_ref_alloc(domain, bytes, &about, deadline_ns, &arena);
        if (TNI_LIKELY(status == 0)) {
            tni_storage_set_shared(t->storage, domain, arena.block, bytes);
            *ret_is_zero = arena.is_zero;
        }
        return status;
    }
    status = tni_backed_new(domain, t, bytes, options, &block, &mapping, &lacks_other);
    if (status == 0)
        tni_storage_set_mapped(t->storage, domain, block, mapping);
    *ret_is_zero = true;
    return status;
}

int tni_tensor_begin_shared(tn_domain *domain, tn_dtype dtype, int32_t ndim,
                            const int64_t *shape, const tn_tensor_options *options,
                            bool *ret_is_zero, tn_tensor **ret_tensor)
{
    tn_tensor *t;
    tn_tensor_options ours;
    int status = tni_tensor_check_domain(domain);
    if (status != 0 || (status = tni_tensor_check_result(ret_tensor, "ret_tensor")) != 0)
        return status;
    if (TNI_UNLIKELY(options != NULL || tn_strategy_get() != TN_STRATEGY_ARENA)) {
        if ((status = tni_tensor_read_options(options, &ours)) != 0)
            return status;
        options = &ours;
    }
    if (TNI_UNLIKELY((status = tni_process_check(domain)) != 0))
        return status;
    struct tni_thread *thread = tni_thread_enter(domain);
    status = tni_tensor_build_with(thread, dtype, ndim, shape, &t);
    tni_thread_leave(thread);
    if (TNI_UNLIKELY(status != 0))
        return status;
    status = give_memory(domain, t, options, ret_is_zero);
    if (TNI_UNLIKELY(status != 0)) {
        thread = tni_thread_enter(domain);
        tni_tensor_forget(thread, t); /* the thread record keeps the tensor's private memory */
        tni_thread_leave(thread);
        return status;
    }
    *ret_tensor = t;
    return 0;
}

/* Choose the strategy by the device, if the options name one. */
static int read_device(tn_tensor_options *o)
{
    if (o->device.type == 0)
        o->device.type = TN_DEVICE_CPU;
    if (o->device.type == TN_DEVICE_CPU && o->device.id != 0)
        return tni_fail(TN_ERR_NOT_FOUND, "there is no device cpu:%d: the CPU is 0",
                        o->device.id);
    if (o->strategy == TN_STRATEGY_CUDA_VMM && o->device.type == TN_DEVICE_CPU)
        return tni_fail(TN_ERR_INVALID,
                        "the strategy 'cuda_vmm' is that of tensors on CUDA and ROCm devices: "
                        "the options name no such device");
    if (o->device.type == TN_DEVICE_CPU)
        return 0;
    if (o->strategy != TN_STRATEGY_DEFAULT && o->strategy != TN_STRATEGY_CUDA_VMM)
        return tni_fail(TN_ERR_INVALID,
                        "the strategy '%s' is of memory of the host, and not of device %d of "
                        "type %d",
                        tn_strategy_name(o->strategy), o->device.id, o->device.type);
    o->strategy = TN_STRATEGY_CUDA_VMM;
    return tni_device_check(o->device);
}

int tni_tensor_read_options(const tn_tensor_options *given, tn_tensor_options *ret_options)
{
    tn_tensor_options o = {.struct_size = sizeof o};
    int status = tni_take_options("tn_tensor_options", given, sizeof o, &o);
    if (status != 0)
        return status;
    if ((o.flags & ~(uint32_t)(TN_TENSOR_WRITE_ONCE | TN_TENSOR_ZEROED)) != 0)
        return tni_fail(TN_ERR_INVALID,
                        "tn_tensor_options.flags has bits that are not known: 0x%x", o.flags);
    if (o.strategy != TN_STRATEGY_DEFAULT && tn_strategy_name(o.strategy) == NULL)
        return tni_fail(TN_ERR_INVALID, "no strategy has the number %u", o.strategy);
    if ((status = read_device(&o)) != 0)
        return status;
    if ((o.flags & TN_TENSOR_WRITE_ONCE) != 0 && o.strategy == TN_STRATEGY_DEFAULT)
        o.strategy = TN_STRATEGY_FILE_DESCRIPTOR;
    if (o.strategy == TN_STRATEGY_DEFAULT)
        o.strategy = tn_strategy_get();
    if ((o.flags & TN_TENSOR_WRITE_ONCE) != 0 && o.strategy != TN_STRATEGY_FILE_DESCRIPTOR &&
        o.strategy != TN_STRATEGY_CUDA_VMM)
        return tni_fail(
            TN_ERR_UNSUPPORTED,
            "TN_TENSOR_WRITE_ONCE needs the strategy 'file_descriptor': '%s' cannot keep "
            "other processes from writing",
            tn_strategy_name(o.strategy));
    if (o.source != NULL && tni_tensor_is_to_be_zeroed(&o))
        return tni_fail(TN_ERR_INVALID,
                        "the options have both TN_TENSOR_ZEROED and a source: only one of "
                        "them can fill the tensor");
    if (o.source == NULL && o.source_bytes != 0)
        return tni_fail(TN_ERR_INVALID, "source_bytes is %zu, but source is NULL",
                        o.source_bytes);
    *ret_options = o;
    return 0;
}

/* The tensor keeps its new memory if the device cannot fill it: the caller ends it. */
static int fill_on_device(struct tn_domain *domain, tn_tensor *t, const void *source,
                          uint64_t size_bytes, const tn_tensor_options *options)
{
    struct tni_on_device memory;
    int status = tni_on_device_new(domain, t, options, &memory);
    if (status != 0)
        return status;
    tni_storage_set_on_device(t->storage, domain, &memory, size_bytes);
    if ((status = tni_device_fill(t, source)) == 0)
        tni_ref_finish(domain, memory.block);
    return status;
}

int tni_storage_fill_new(struct tn_domain *domain, tn_tensor *t, const void *source,
                         uint64_t size_bytes, const tn_tensor_options *options,
                         bool *ret_lacks_other)
{
    tn_tensor_options ours;
    tni_block block;
    int status;
    *ret_lacks_other = false;
    if (options == NULL && tn_strategy_get() != TN_STRATEGY_ARENA) {
        if ((status = tni_tensor_read_options(NULL, &ours)) != 0)
            return status;
        options = &ours;
    }
    if (options == NULL || options->strategy == TN_STRATEGY_ARENA) {
        struct tni_block_about about = tni_tensor_about(t);
        status = tni_block_fill_new(domain, source, size_bytes, &about,
                                    options != NULL ? options->deadline.ns : 0, &block);
        if (status == 0)
            tni_storage_set_shared(t->storage, domain, block, size_bytes);
        return status;
    }
    if (options->strategy == TN_STRATEGY_CUDA_VMM)
        return fill_on_device(domain, t, source, size_bytes, options);
    struct tni_mapping *mapping;
    status = tni_backed_new(domain, t, size_bytes, options, &block, &mapping, ret_lacks_other);
    if (status != 0)
        return status;
    if (size_bytes > 0)
        memcpy(mapping->address + mapping->data_offset, source, size_bytes);
    tni_ref_finish(domain, block);
    tni_storage_set_mapped(t->storage, domain, block, mapping);
    return 0;
}
