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

/** Bytes of the whole storage. */
uint64_t tni_storage_bytes(const struct tni_storage *storage);

/**
 * Make a block with `source` in it, with one local reference: at the price of a copy where
 * memory is warm, and of one pass of the kernel where there is none yet. Errors as of
 * tni_ref_alloc().
 */
int tni_block_fill_new(struct tn_domain *domain, const void *source, uint64_t size_bytes,
                       const struct tni_block_about *about, uint64_t deadline_ns,
                       tni_block *ret_block);

/**
 * free() for tensors and storages: where misuse is caught, the memory stays readable for a
 * while.
 */
void tni_tensor_free_memory(void *memory);

#endif
