/* SPDX-License-Identifier: Apache-2.0 */
/* storage: the bytes behind tensors, and who frees them. Inside the room tensor. */
#ifndef TNI_TENSOR_STORAGE_H
#define TNI_TENSOR_STORAGE_H

#include "tensor/tensor.h"

static inline struct tni_storage *tni_storage_ref(struct tni_storage *storage)
{
    atomic_fetch_add_explicit(&storage->refs, 1, memory_order_relaxed);
    return storage;
}

/** New again: with one reference, and about to get a block. Exports and movers have references.
 */
static inline void tni_storage_reset(struct tni_storage *s)
{
    atomic_store_explicit(&s->refs, 1, memory_order_relaxed);
    s->is_read_only = false;
    s->has_room = true;
    s->outside = 0;
    s->is_described = false;
    s->mapping = NULL;
}

/** With the last reference, the block or the private memory is given back too. */
void tni_storage_unref(struct tni_storage *storage);

/**
 * Zeroed private memory, aligned to 64 bytes, for a storage that has none. TN_ERR_NO_MEMORY.
 */
int tni_storage_set_private(struct tni_storage *storage, uint64_t size_bytes);

/**
 * Let a storage own a local reference of a block. What it owned before is the caller's to free.
 */
void tni_storage_set_shared(struct tni_storage *storage, struct tn_domain *domain,
                            tni_block block, uint64_t size_bytes);

/** The same of a block whose object is mapped; the mapping reference passes to the storage. */
void tni_storage_set_mapped(struct tni_storage *storage, struct tn_domain *domain,
                            tni_block block, struct tni_mapping *mapping);

/** Bytes of the whole storage. */
uint64_t tni_storage_bytes(const struct tni_storage *storage);

/*
 * Who writes so many bytes of a new block marks it unfinished meanwhile (ref.c, I6): a child
 * that another thread forks in the milliseconds that this takes has nothing of it. What is
 * smaller is written in microseconds.
 */
enum { TNI_LONG_WRITE_BYTES = 64 << 10 };

/**
 * Make a block with `source` in it, with one local reference: at the price of a copy where
 * memory is warm, and of one pass of the kernel where there is none yet. Errors as of
 * tni_ref_alloc().
 */
int tni_block_fill_new(struct tn_domain *domain, const void *source, uint64_t size_bytes,
                       const struct tni_block_about *about, uint64_t deadline_ns,
                       tni_block *ret_block);

/**
 * Put the tensor's storage, whose memory is `source` or which has none, into a domain, with
 * `source` in it; what memory it had is the caller's to free. Waits for memory until the
 * deadline.
 * @param options  as tni_tensor_read_options() gave them; NULL: this process's strategy
 * @param ret_lacks_other  as of struct tni_retry, after a failure
 */
int tni_storage_fill_new(struct tn_domain *domain, tn_tensor *tensor, const void *source,
                         uint64_t size_bytes, const tn_tensor_options *options,
                         bool *ret_lacks_other);

/**
 * Make a storage with an object of its own for a tensor, of zeros: a block with one local
 * reference, unfinished, and its mapping. Waits for memory until the deadline. Errors as of
 * tn_tensor_create().
 * @param ret_lacks_other  as of struct tni_retry, after a failure
 */
int tni_backed_new(struct tn_domain *domain, const tn_tensor *tensor, uint64_t size_bytes,
                   const tn_tensor_options *options, tni_block *ret_block,
                   struct tni_mapping **ret_mapping, bool *ret_lacks_other);

/** Whether such a storage could be made if all other memory were free. */
bool tni_backed_can_fit(const struct tn_domain *domain, const tn_tensor *tensor,
                        uint64_t size_bytes, const tn_tensor_options *options);

/** free() for views: where misuse is caught, the memory stays readable for a while. */
void tni_tensor_free_memory(void *memory);
/**
 * A storage's memory, with the tensor behind it, that may be used again or freed in place of
 * this one's, which stays readable for a while where misuse is caught. NULL: there is none yet.
 */
struct tni_storage *tni_storage_retire(struct tni_storage *storage);
#endif
