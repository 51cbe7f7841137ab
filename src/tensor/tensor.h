/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tensor: types, shapes, strides, views, storages; DLPack. What other rooms need of it: a
 * tensor as bytes (struct tni_view) and back.
 */
#ifndef TNI_TENSOR_H
#define TNI_TENSOR_H

#include <tenon/tensor.h>

#include "ref/ref.h"

#define TNI_SIZE_IN_DESC UINT64_MAX

/*
 * A storage is private memory, foreign memory behind a deleter, or a block of a domain. Tensors
 * point at it and it at the bytes, so that sharing swaps one pointer for all views.
 */
struct tni_storage {
    _Atomic uint32_t refs;
    bool is_read_only;
    _Atomic uint32_t exports; /* DLPack exports that point into it */
    tni_block block;          /* 0: not shared */
    struct tn_domain *domain; /* NULL: not shared */
    uint8_t *data;
    uint64_t
        size_bytes; /* TNI_SIZE_IN_DESC: what the block's descriptor says, when it matters */
    void (*release)(void *context); /* foreign or private memory; NULL for none */
    void *context;
};

struct tn_tensor {
    _Atomic uint32_t refs;
    tn_dtype dtype;
    int32_t ndim;
    bool is_contiguous;
    bool is_read_only;
    bool is_inner; /* lies behind its storage, in one allocation */
    struct tni_storage *storage;
    uint64_t byte_offset;
    int64_t count; /* elements */
    uint64_t item_bytes;
    int64_t extents[]; /* shape [ndim], strides [ndim] */
};

/**
 * Write a shared tensor as a struct tni_view. @return bytes written; pre: room for
 * TNI_VIEW_MAX_BYTES, aligned to 8
 */
size_t tni_tensor_encode(const tn_tensor *tensor, void *ret_view);

/**
 * Check a view that came from another process: type, ndim, sizes, strides, every element inside
 * of its block. @return the bytes it takes up, or TN_ERR_CORRUPT
 */
int tni_view_check(const struct tni_segment *segment, const void *view, size_t size_bytes);

/**
 * Make a tensor of a view, checking it as tni_view_check() does. The caller's local reference
 * of the block passes to it on success.
 * @return the bytes the view takes up, or TN_ERR_CORRUPT, TN_ERR_NO_MEMORY
 */
int tni_tensor_decode(struct tn_domain *domain, const void *view, size_t size_bytes,
                      tn_tensor **ret_tensor);

/** TN_ERR_INVALID unless the tensor's storage is shared in this domain. */
int tni_tensor_check_shared(const struct tn_domain *domain, const tn_tensor *tensor);

/**
 * Free the private side of a tensor whose block reference was moved away. pre: refs and storage
 * refs are 1
 */
bool tni_tensor_is_sole(const tn_tensor *tensor);
void tni_tensor_forget(tn_tensor *tensor);

#endif
