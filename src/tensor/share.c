/* SPDX-License-Identifier: Apache-2.0 */
/* share: moves private storages into a domain, clones tensors, and resizes private storages. */
#include <stdlib.h>
#include <string.h>

#include "tensor/build.h"

/* ---- moving ------------------------------------------------------------------------------ */

static int check_movable(const struct tn_domain *domain, const tn_tensor *t)
{
    const struct tni_storage *s = t->storage;
    uint32_t exports = atomic_load_explicit(&s->exports, memory_order_acquire);
    if (s->domain != NULL)
        return tni_fail(TN_ERR_INVALID, "the tensor is already shared in the domain '%s'",
                        s->domain->segment.name);
    if (s->outside != 0)
        return tni_fail(TN_ERR_INVALID, "the tensor's memory came from outside of the domain: "
                                        "copy the tensor into a shared tensor");
    if (tni_tensor_is_read_only(t))
        return tni_fail(TN_ERR_DENIED, "the tensor is read-only: its memory cannot be moved");
    if (atomic_load(&s->is_pinned))
        return tni_fail(TN_ERR_DENIED, "the tensor's memory is registered with a driver and "
                                       "cannot be moved: tn_tensor_unpin() it first");
    if (exports > 0)
        return tni_fail(TN_ERR_DENIED,
                        "%u DLPack exports point into the tensor's memory: it cannot be moved",
                        exports);
    return tni_process_check(domain);
}

/* Sharing a shared tensor does nothing. So fail if the caller asks for new write protection. */
static int check_same_protection(const tn_tensor *t, const tn_tensor_options *options)
{
    const struct tni_mapping *m = t->storage->mapping;
    bool is_write_once = m != NULL && m->is_write_once;
    if ((options->flags & TN_TENSOR_WRITE_ONCE) != 0 && !is_write_once)
        return tni_fail(
            TN_ERR_DENIED,
            "the tensor is already shared by the strategy '%s' and other processes may write "
            "it: TN_TENSOR_WRITE_ONCE comes too late",
            tn_strategy_name(tni_tensor_strategy(t)));
    return 0;
}

/* Move the storage into the domain, unless it is there already. pre: become_mover() */
static int move(tn_domain *domain, tn_tensor *t, const tn_tensor_options *options,
                bool *ret_lacks_other)
{
    struct tni_storage *s = t->storage;
    int status;
    *ret_lacks_other = false;
    if (s->domain == domain)
        return check_same_protection(t, options);
    if (s->device.type != 0 && s->domain == NULL)
        return tni_foreign_share(domain, t, options);
    if ((status = check_movable(domain, t)) != 0)
        return status;
    void (*release)(void *context) = s->release;
    void *context = s->context;
    status = tni_storage_fill_new(domain, t, s->data, s->size_bytes, options, ret_lacks_other);
    if (status == 0 && release != NULL)
        release(context);
    return status;
}

static bool can_fit(const struct tn_domain *domain, const tn_tensor *t, uint64_t size_bytes,
                    const tn_tensor_options *options)
{
    return options->strategy == TN_STRATEGY_ARENA
               ? tni_ref_can_fit(domain, size_bytes, TNI_KIND_TENSOR)
               : tni_backed_can_fit(domain, t, size_bytes, options);
}

/*
 * Become the thread that moves the storage. Threads may share views of one storage at the same
 * time: the first moves it, and the others wait and find it moved. In a forked child `mover`
 * may be the pid of the parent, whose thread does not exist here: the child takes over.
 */
static void become_mover(struct tni_storage *s)
{
    int32_t self = tni_os_pid(), other = 0;
    uint32_t tries = 0;
    while (!atomic_compare_exchange_weak_explicit(&s->mover, &other, self, memory_order_acquire,
                                                  memory_order_relaxed)) {
        if (other == self) {
            tni_os_back_off(tries++);
            other = 0;
        }
    }
}

struct share_wish {
    struct tni_retry wish;
    tn_tensor *tensor;
    const tn_tensor_options *options;
};

/*
 * Try once to move the storage. The mover does not wait for memory: the caller waits between
 * two attempts, and another thread or the program's hook may move the storage meanwhile.
 */
static int attempt_share(struct tn_domain *domain, struct tni_retry *wish)
{
    const struct share_wish *w = (const struct share_wish *)wish;
    become_mover(w->tensor->storage);
    int status = move(domain, w->tensor, w->options, &wish->lacks_other);
    /* pairs with the acquire in become_mover() */
    atomic_store_explicit(&w->tensor->storage->mover, 0, memory_order_release);
    return status;
}

static int read_options_of_copy(const tn_tensor_options *given, tn_tensor_options *ret_options)
{
    int status = tni_tensor_read_options(given, ret_options);
    if (status == 0 && (tni_tensor_is_to_be_zeroed(ret_options) || ret_options->source != NULL))
        return tni_fail(
            TN_ERR_INVALID,
            "the options have TN_TENSOR_ZEROED or a source: only tn_tensor_create() takes "
            "these, because share and clone copy the elements");
    return status;
}

/* A storage on the host can be moved to other memory of the host only: pointers point into it.
 */
static int check_stays(const tn_tensor *tensor, const tn_tensor_options *options)
{
    if (options->device.type == TN_DEVICE_CPU)
        return 0;
    if (tensor->storage->device.type == options->device.type &&
        tensor->storage->device.id == options->device.id)
        return 0;
    return tni_fail(TN_ERR_INVALID, "sharing a private tensor leaves it on the CPU: "
                                    "tn_tensor_to() makes one on a device");
}

int tn_tensor_share(tn_domain *domain, tn_tensor *tensor, const tn_tensor_options *given)
{
    tn_tensor_options options;
    int status = tni_tensor_check_domain(domain);
    if (status != 0 || (status = tni_tensor_check(tensor)) != 0 ||
        (status = read_options_of_copy(given, &options)) != 0 ||
        (status = check_stays(tensor, &options)) != 0)
        return status;
    uint64_t deadline_ns = options.deadline.ns;
    options.deadline = TN_NOW; /* attempt_share() does not wait */
    struct share_wish w = {.wish = {.attempt = attempt_share,
                                    .deadline_ns = deadline_ns,
                                    .is_told = true}, /* by the call that an attempt makes */
                           .tensor = tensor,
                           .options = &options};
    status = attempt_share(domain, &w.wish);
    if (!tni_ref_is_short(status) || deadline_ns == 0)
        return status;
    w.wish.bytes = tni_storage_bytes(tensor->storage);
    w.wish.can_fit = can_fit(domain, tensor, w.wish.bytes, &options);
    return tni_ref_retry(domain, &w.wish, status);
}

/* Read options whose default device is that of the tensor. */
static int read_options_of_clone(const tn_tensor *tensor, const tn_tensor_options *given,
                                 tn_tensor_options *ret_options)
{
    tn_tensor_options options = {.struct_size = sizeof options};
    int status = tni_take_options("tn_tensor_options", given, sizeof options, &options);
    if (status == 0 && options.device.type == 0)
        options.device = tni_tensor_device(tensor);
    return status == 0 ? read_options_of_copy(&options, ret_options) : status;
}

int tn_tensor_clone(tn_domain *domain, const tn_tensor *tensor, const tn_tensor_options *given,
                    tn_tensor **ret_tensor)
{
    tn_tensor *t;
    tn_tensor_options options;
    bool is_zero;
    int status = tni_tensor_check(tensor);
    if (status == 0)
        status = tni_tensor_check_result(ret_tensor, "ret_tensor");
    if (status == 0)
        status = read_options_of_clone(tensor, given, &options);
    if (status == 0)
        status = tni_tensor_begin_shared(domain, tensor->dtype, tensor->ndim, tensor->extents,
                                         &options, &is_zero, &t);
    if (status != 0)
        return status;
    /*
     * Copy the attributes first: tn_tensor_copy() refuses two tensors if only one of them has
     * the conjugate bit.
     */
    if ((status = tn_tensor_copy_attributes(t, tensor)) != 0 ||
        (status = tn_tensor_copy(t, tensor)) != 0) {
        tn_tensor_unref(t);
        return status;
    }
    tni_ref_finish(domain, t->storage->block);
    *ret_tensor = t;
    return 0;
}

/* ---- resizing ---------------------------------------------------------------------------- */

static int check_resizable(const tn_tensor *t, uint64_t size_bytes)
{
    const struct tni_storage *s = t->storage;
    if (s->domain != NULL || s->outside != 0)
        return tni_fail(TN_ERR_DENIED,
                        "a shared storage cannot be resized: other processes map %llu bytes",
                        (unsigned long long)tni_storage_bytes(s));
    if (s->release != free || tni_tensor_is_read_only(t))
        return tni_fail(TN_ERR_DENIED,
                        "the storage is read-only, or another library owns its memory");
    if (atomic_load_explicit(&s->exports, memory_order_acquire) > 0)
        return tni_fail(TN_ERR_DENIED,
                        "a DLPack export points into the storage: it cannot be resized");
    if (atomic_load(&s->is_pinned))
        return tni_fail(TN_ERR_DENIED, "the storage is registered with a driver: "
                                       "tn_tensor_unpin() it first");
    struct tni_reach reach;
    int status =
        tni_shape_reach(t->ndim, t->extents, tni_tensor_strides(t), t->item_bytes, &reach);
    if (status != 0)
        return status;
    uint64_t least = t->byte_offset + (uint64_t)reach.high_bytes;
    if (atomic_load_explicit(&s->refs, memory_order_acquire) > 1)
        least = s->size_bytes;
    if (size_bytes < least)
        return tni_fail(TN_ERR_INVALID,
                        "a storage of %llu bytes is too small: its views need %llu",
                        (unsigned long long)size_bytes, (unsigned long long)least);
    return 0;
}

int tn_tensor_resize_storage(tn_tensor *tensor, uint64_t size_bytes)
{
    int status = tni_tensor_check(tensor);
    if (status != 0 || (status = check_resizable(tensor, size_bytes)) != 0)
        return status;
    struct tni_storage *s = tensor->storage, old = *s;
    if ((status = tni_storage_set_private(s, size_bytes)) != 0)
        return status;
    if (old.size_bytes > 0)
        memcpy(s->data, old.data, TNI_MIN(old.size_bytes, size_bytes));
    old.release(old.context);
    return 0;
}
