/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tensor: typed, strided views of storages.
 *
 * Nouns: tensor and storage. Both structs are private and have a count of references; the bytes
 * of a storage are private or shared.
 * I1  Every element that shape and strides name lies inside of the storage. Every function that
 *     makes a tensor checks this once.
 * I2  A shared storage owns one local reference to its block, and gives it back once.
 * I3  A tensor that is made together with its storage lies behind it in one allocation, which
 *     is freed with the storage. The tensor refers to the storage, so it cannot outlive it.
 * I4  In builds that catch misuse (TNI_TENSOR_CATCH in build.h) a tensor that ended stays
 *     readable until 256 more tensors have ended.
 * I5  A closed domain stays mapped until every local reference (I2) is back: tni_ref_close().
 * Callers: the user, on any thread; share, queue and spawn. A process that dies leaves a hold
 * in its seat's row, and the reaper gives it back. A block that the process was still filling
 * has a hold already, so the reaper frees it, too.
 */
#include "tensor/tensor.h"

#include <stdlib.h>
#include <string.h>

#include "tensor/build.h"

/*
 * The functions here with more than five parameters pass on those of tn_tensor_create(): a
 * struct would write them to memory on the hot path.
 */
static int make_shared(tn_domain *domain, tn_dtype dtype, int32_t ndim, const int64_t *shape,
                       const tn_tensor_options *options, tn_tensor **ret_tensor)
{
    bool is_zero;
    tn_tensor *t;
    int status = tni_tensor_check_result(ret_tensor, "ret_tensor");
    if (status == 0)
        status = tni_tensor_begin_shared(domain, dtype, ndim, shape, options, &is_zero, &t);
    if (TNI_UNLIKELY(status != 0))
        return status;
    if (tni_tensor_is_to_be_zeroed(options) && !is_zero) {
        if (tni_tensor_is_on_host(t))
            memset(t->storage->data, 0, tni_tensor_size_bytes(t));
        else if ((status = tni_device_zero(t)) != 0) {
            tn_tensor_unref(t);
            return status;
        }
    }
    tni_ref_finish(domain, t->storage->block);
    *ret_tensor = t;
    return 0;
}

/* Make a tensor and copy bytes into it. It has six parameters, as make_shared() has. */
static int make_filled(tn_domain *domain, tn_dtype dtype, int32_t ndim, const int64_t *shape,
                       const tn_tensor_options *given, tn_tensor **ret_tensor)
{
    tn_tensor_options options;
    tn_tensor *t;
    bool lacks_other;
    int status = tni_tensor_check_domain(domain);
    if (status != 0 || (status = tni_tensor_check_result(ret_tensor, "ret_tensor")) != 0 ||
        (status = tni_tensor_read_options(given, &options)) != 0 ||
        (status = tni_tensor_build(dtype, ndim, shape, &t)) != 0)
        return status;
    if (options.source_bytes != tni_tensor_size_bytes(t))
        status = tni_fail(TN_ERR_INVALID, "the source has %zu bytes, but the tensor takes %llu",
                          options.source_bytes, (unsigned long long)tni_tensor_size_bytes(t));
    else
        status = tni_storage_fill_new(domain, t, options.source, options.source_bytes, &options,
                                      &lacks_other);
    if (status != 0) {
        tni_tensor_end_new(t);
        return status;
    }
    *ret_tensor = t;
    return 0;
}

/*
 * Do what take_again() does for a block whose desc does not have the type and shape of this
 * tensor yet: write them into the desc.
 */
static __attribute__((noinline)) bool take_undescribed(tn_domain *domain,
                                                       struct tni_thread *thread, tn_tensor *t)
{
    struct tni_storage *s = t->storage;
    struct tni_block_about about = tni_tensor_about(t);
    s->size_bytes = tni_tensor_size_bytes(t);
    return tni_ref_alloc_again(domain, thread, &s->spare, s->size_bytes, &about);
}

/*
 * Give the tensor the block that it had before it ended. @return false: the block is in use
 * again, or the tensor has no block to return to
 */
static inline __attribute__((always_inline)) bool
take_again(tn_domain *domain, struct tni_thread *thread, tn_tensor *t)
{
    struct tni_storage *s = t->storage;
    bool is_taken = TNI_LIKELY(s->is_described)
                        ? tni_ref_alloc_again(domain, thread, &s->spare, s->size_bytes, NULL)
                        : take_undescribed(domain, thread, t);
    if (TNI_UNLIKELY(!is_taken))
        return false;
    tni_tensor_take_spare(thread);
    s->is_described = true;
    return true;
}

/* Give the tensor another block that this thread freed. @return false: there is none to give */
static inline bool take_warm(tn_domain *domain, struct tni_thread *thread, tn_tensor *t)
{
    uint64_t bytes = tni_tensor_size_bytes(t);
    struct tni_block_about about = tni_tensor_about(t);
    tni_block block;
    if (TNI_UNLIKELY(!tni_ref_alloc_warm(domain, thread, bytes, &about, &block)))
        return false;
    tni_tensor_take_spare(thread);
    tni_storage_set_shared(t->storage, domain, block, bytes);
    t->storage->is_described = true;
    return true;
}

/* Whether all options but the deadline have their defaults. */
static inline bool is_plain(const tn_tensor_options *options)
{
    return options == NULL || (options->struct_size == sizeof *options &&
                               (options->strategy | options->flags) == 0 &&
                               (options->device.type | options->device.id) == 0 &&
                               options->source == NULL && options->source_bytes == 0);
}

/*
 * Make a tensor that cannot reuse the block of the spare tensor. It gets another block that
 * this thread freed, or a new one. `thread` is this thread's record, which the call leaves;
 * NULL: the caller did not enter a record.
 */
static __attribute__((noinline)) int
make_slowly(tn_domain *domain, tn_dtype dtype, int32_t ndim, const int64_t *shape,
            const tn_tensor_options *options, tn_tensor **ret_tensor, struct tni_thread *thread)
{
    if (TNI_LIKELY(thread != NULL)) {
        tn_tensor *t = tni_tensor_alike(thread, tni_tensor_new_form(dtype, ndim), shape);
        bool is_made = t != NULL && take_warm(domain, thread, t);
        tni_thread_leave(thread);
        if (TNI_LIKELY(is_made)) {
            *ret_tensor = t;
            return 0;
        }
    }
    return options != NULL &&
                   options->struct_size >= offsetof(tn_tensor_options, source_bytes) &&
                   options->source != NULL
               ? make_filled(domain, dtype, ndim, shape, options, ret_tensor)
               : make_shared(domain, dtype, ndim, shape, options, ret_tensor);
}

int tn_tensor_create(tn_domain *domain, tn_dtype dtype, int32_t ndim, const int64_t *shape,
                     const tn_tensor_options *options, tn_tensor **ret_tensor)
{
    struct tni_thread *thread = NULL;
    if (TNI_UNLIKELY(domain == NULL || ret_tensor == NULL || shape == NULL ||
                     (uint32_t)ndim > TNI_SPARE_NDIM || !tni_strategy_is_arena()) ||
        TNI_UNLIKELY(!is_plain(options)) || TNI_UNLIKELY(!tni_process_is_member(domain)) ||
        TNI_UNLIKELY((thread = tni_thread_enter_home(domain)) == NULL))
        return make_slowly(domain, dtype, ndim, shape, options, ret_tensor, NULL);
    tn_tensor *t = tni_tensor_alike(thread, tni_tensor_new_form(dtype, ndim), shape);
    if (TNI_UNLIKELY(t == NULL) || TNI_UNLIKELY(!take_again(domain, thread, t)))
        return make_slowly(domain, dtype, ndim, shape, options, ret_tensor, thread);
    uint32_t at = t->storage->spare.at;
    tni_thread_leave(thread);
    *ret_tensor = t;
    tni_ref_born(domain, at);
    return 0;
}

int tn_tensor_create_private(tn_dtype dtype, int32_t ndim, const int64_t *shape,
                             tn_tensor **ret_tensor)
{
    tn_tensor *t;
    int status = tni_tensor_check_result(ret_tensor, "ret_tensor");
    if (status != 0 || (status = tni_tensor_build(dtype, ndim, shape, &t)) != 0)
        return status;
    status = tni_storage_set_private(t->storage, (uint64_t)t->count * t->item_bytes);
    if (status != 0) {
        tni_tensor_end_new(t);
        return status;
    }
    *ret_tensor = t;
    return 0;
}
