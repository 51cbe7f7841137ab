/* SPDX-License-Identifier: Apache-2.0 */
/* storage: the memory behind tensors, and how it is freed. Private to the room tensor. */
#ifndef TNI_TENSOR_STORAGE_H
#define TNI_TENSOR_STORAGE_H

#include <string.h>

#include "tensor/tensor.h"

static inline struct tni_storage *tni_storage_ref(struct tni_storage *storage)
{
    atomic_fetch_add_explicit(&storage->refs, 1, memory_order_relaxed);
    return storage;
}

/**
 * Reset a storage that ended, for reuse: one reference and no block yet. `exports` and `mover`
 * are 0 already, because an export and a mover each have a reference to the storage; for
 * `ready` and `uses` see tni_storage_forget_uses().
 */
static inline void tni_storage_reset(struct tni_storage *s)
{
    atomic_store_explicit(&s->refs, 1, memory_order_relaxed);
    s->is_read_only = false;
    s->has_room = true;
    s->outside = 0;
    s->is_described = false;
    s->mapping = NULL;
    s->device = (tn_device){0};
    atomic_store_explicit(&s->is_touched, false, memory_order_relaxed);
    atomic_store_explicit(&s->is_pinned, false, memory_order_relaxed);
}
/** A storage with a mapping has ended: `ready` and `uses` are 0 in all others. */
static inline void tni_storage_forget_uses(struct tni_storage *s)
{
    atomic_store_explicit(&s->ready, 0, memory_order_relaxed);
    memset(s->uses, 0, sizeof s->uses);
}

/**
 * Drop a reference. The last one also gives back the block or frees the private memory; if a
 * device may still use the memory, and the driver does not let this process wait for that, a
 * later call of tni_storage_end_unfinished() does it.
 */
void tni_storage_unref(struct tni_storage *storage);
/**
 * Register the memory of a storage on the host with the driver of CUDA, if it is not yet.
 * @return 0, TN_ERR_EXISTS (by somebody else), TN_ERR_NO_MEMORY, TN_ERR_UNSUPPORTED,
 *         TN_ERR_DEVICE
 */
int tni_storage_pin(struct tni_storage *storage, uint64_t size_bytes);
/** End that, if it is registered. TN_ERR_DEVICE: it stays registered. */
int tni_storage_unpin(struct tni_storage *storage);
/** Wait until the devices have done their work for ended storages. False: there were none. */
bool tni_storage_await_unfinished(void);

/* ---- uses.c: what this process gave devices for storages on them ------------------------- */

/** What uses.c asks of a stream: all that it was given so far. */
struct tni_use {
    tn_device device;
    void *stream;
    struct tni_storage *writes; /* its content waits for that; on a device, or NULL */
    struct tni_storage *reads;  /* not to be given away before that; on a device, or NULL */
};
/**
 * Make a token for what the stream was given, and put it into the storages. After a failure the
 * device may still do it: the storages are touched.
 * @return as tni_order_signal()
 */
int tni_storage_use(struct tn_domain *domain, const struct tni_use *use);
/** Whether the device has done all that the storage's tokens stand for. */
bool tni_storage_is_unused(const struct tni_storage *storage);

/** Give a storage zeroed private memory, aligned to 64 bytes. TN_ERR_NO_MEMORY. */
int tni_storage_set_private(struct tni_storage *storage, uint64_t size_bytes);

/**
 * Give a storage a block. The storage takes over the caller's local reference to the block. The
 * caller frees what the storage owned before.
 */
void tni_storage_set_shared(struct tni_storage *storage, struct tn_domain *domain,
                            tni_block block, uint64_t size_bytes);

/**
 * Give a storage a block of the backing class. The storage takes over the caller's local
 * reference to the block, and the caller's reference to `mapping`.
 */
void tni_storage_set_mapped(struct tni_storage *storage, struct tn_domain *domain,
                            tni_block block, struct tni_mapping *mapping);

/**
 * Give a storage a block of a device. The storage takes over the caller's local reference to
 * the block, and the caller's reference to `mapping`, which is of the block's slab.
 */
void tni_storage_set_on_slab(struct tni_storage *storage, struct tn_domain *domain,
                             tni_block block, struct tni_mapping *mapping, uint64_t size_bytes);

/** The size of the whole storage in bytes. */
uint64_t tni_storage_bytes(const struct tni_storage *storage);

/*
 * A thread that fills a new block of at least this size marks the block unfinished until the
 * block is filled (ref.c, I6), so that a child which another thread forks meanwhile gets no
 * hold of the block. A smaller block is filled within microseconds, and is not marked.
 */
enum { TNI_LONG_WRITE_BYTES = 64 << 10 };

/**
 * Make a block with one local reference and copy `source` into it. The part of the block that
 * has memory is copied; for the rest, a write by the kernel allocates and fills the pages.
 * Returns the errors of tni_ref_alloc(). It has six parameters: a range of bytes, how to make
 * the block, and the result.
 */
int tni_block_fill_new(struct tn_domain *domain, const void *source, uint64_t size_bytes,
                       const struct tni_block_about *about, uint64_t deadline_ns,
                       tni_block *ret_block);

/**
 * Give the tensor's storage shared memory in a domain, and copy `source` into it. `source` may
 * be the private memory of the storage, which the caller frees afterwards. Waits for memory
 * until the deadline of the options.
 * @param options  from tni_tensor_read_options(); NULL: the strategy of this process
 * @param ret_lacks_other  after a failure: the value for `lacks_other` of struct tni_retry
 * It has six parameters: a tensor, a range of bytes, options, and a result.
 */
int tni_storage_fill_new(struct tn_domain *domain, tn_tensor *tensor, const void *source,
                         uint64_t size_bytes, const tn_tensor_options *options,
                         bool *ret_lacks_other);

/**
 * Make a memory object of its own for a tensor, filled with zeros: a block with one local
 * reference, marked unfinished, and the mapping of the object. Waits for memory until the
 * deadline of the options. Returns the errors of tn_tensor_create().
 * @param ret_lacks_other  after a failure: the value for `lacks_other` of struct tni_retry
 * It has seven parameters, of which three are results.
 */
int tni_backed_new(struct tn_domain *domain, const tn_tensor *tensor, uint64_t size_bytes,
                   const tn_tensor_options *options, tni_block *ret_block,
                   struct tni_mapping **ret_mapping, bool *ret_lacks_other);

/* An attempt to make a memory object for a tensor. */
struct tni_backed_wish {
    struct tni_retry wish;
    const struct tni_backing_about *backing;
    const struct tni_block_about *about;
    tni_block block; /* these two are the result */
    struct tni_mapping *mapping;
};
/**
 * Try once to make a block of the backing class and its memory object, for tni_ref_retry().
 * After a failure neither exists.
 * @param wish  of a struct tni_backed_wish
 */
int tni_backed_attempt(struct tn_domain *domain, struct tni_retry *wish);
/*
 * A flag in tn_tensor_options that no caller of the library can set: the write-once storage is
 * filled by tni_backing_write() before it is sealed.
 */
#define TNI_TENSOR_UNSEALED (UINT32_C(1) << 31)
/** What a memory object for a tensor is to be. */
struct tni_backing_about tni_backed_about(const tn_tensor *tensor, uint64_t size_bytes,
                                          const tn_tensor_options *options);

/** A tensor's new memory on a device. */
struct tni_on_device {
    tni_block block;             /* with one local reference, marked unfinished */
    struct tni_mapping *mapping; /* of the block's own object, or of its slab */
    bool is_on_slab;
};
/**
 * Make memory on a device for a tensor: a block of a slab, or, if the tensor is large or to be
 * written once, an object of its own. Waits for memory until the deadline of the options.
 * Returns the errors of tn_tensor_create().
 */
int tni_on_device_new(struct tn_domain *domain, const tn_tensor *tensor,
                      const tn_tensor_options *options, struct tni_on_device *ret_memory);
/** Give a storage memory of tni_on_device_new(). */
void tni_storage_set_on_device(struct tni_storage *storage, struct tn_domain *domain,
                               const struct tni_on_device *memory, uint64_t size_bytes);
/** Map the slab of a block of a device. TN_ERR_CORRUPT, and the errors of tni_backing_map(). */
int tni_slab_map(struct tn_domain *domain, tni_block block, struct tni_mapping **ret_mapping);

/** Share a private tensor on a device. @param options  from tni_tensor_read_options() */
int tni_foreign_share(struct tn_domain *domain, tn_tensor *tensor,
                      const tn_tensor_options *options);
/** Give memory back to the libraries that made it, if no other process has it any more. */
void tni_foreign_sweep(void);
/** Do that, unless many keep it and it was done lately. */
void tni_foreign_sweep_soon(void);

/** Whether tni_backed_new() could succeed if all memory of the domain were free. */
bool tni_backed_can_fit(const struct tn_domain *domain, const tn_tensor *tensor,
                        uint64_t size_bytes, const tn_tensor_options *options);

/** Free a view. With TNI_TENSOR_CATCH the memory stays readable for a while (tensor.c, I4). */
void tni_tensor_free_memory(void *memory);
/**
 * Retire a storage that ended, with the tensor behind it, and get a storage whose memory may be
 * reused or freed now. Without TNI_TENSOR_CATCH the call returns `storage` itself. With
 * TNI_TENSOR_CATCH `storage` stays readable for a while, and the call returns a storage that
 * ended earlier; NULL: there is none yet.
 */
struct tni_storage *tni_storage_retire(struct tni_storage *storage);
#endif
