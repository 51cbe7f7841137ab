/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tensor: tensors and their storages: made, viewed, copied, shared; DLPack. What other rooms
 * need of it: a tensor as bytes (struct tni_view) and back.
 */
#ifndef TNI_TENSOR_H
#define TNI_TENSOR_H

#include "attribute/attribute.h"
#include "ref/ref.h"

#define TNI_SIZE_IN_DESC UINT64_MAX

/*
 * A storage is private memory, foreign memory behind a deleter, or a block of a domain. Tensors
 * point at it and it at the bytes, so that sharing swaps one pointer for all views.
 */
struct tni_storage {
    struct tni_spare spare; /* once it has ended */
    _Atomic uint32_t refs;
    bool is_read_only;
    bool has_room;               /* its memory serves again: see build.c */
    uint8_t outside;             /* TN_STRATEGY_* of what came from beyond the domain */
    bool is_described;           /* its block's descriptor says what its own tensor is */
    _Atomic uint32_t exports;    /* DLPack exports that point into it */
    _Atomic int32_t mover;       /* pid, while one of its threads shares it; else 0 */
    struct tni_mapping *mapping; /* of a storage outside of the arena; else NULL */
    struct tn_domain *domain;    /* NULL: not shared */
    uint8_t *data;
    uint64_t
        size_bytes; /* TNI_SIZE_IN_DESC: what the block's descriptor says, when it matters */
    void (*release)(void *context); /* foreign or private memory; NULL for none */
    void *context;
    tni_block block; /* 0: not shared */
};

/** Bytes that tni_tensor_encode() will write. @param held  attributes of the tensor; or NULL */
static inline size_t tni_tensor_view_bytes(const tn_tensor *tensor,
                                           const struct tni_attributes *held)
{
    return sizeof(struct tni_view) +
           (size_t)tensor->ndim * sizeof(int64_t) * (tensor->is_row_major ? 1 : 2) +
           (held != NULL ? held->bytes : 0);
}

/**
 * Write a shared tensor, with these attributes, as a struct tni_view.
 * @param room_bytes  of `ret_view`, which is aligned to 8
 * @return bytes written; 0: they would be more than `room_bytes`, and nothing was written
 */
size_t tni_tensor_encode(const tn_tensor *tensor, const struct tni_attributes *held,
                         size_t room_bytes, void *ret_view);

/**
 * Whether it is of the usual kind: row-major, over a block of the arena that others may write,
 * without attributes. pre: it is shared
 */
static inline bool tni_tensor_is_plain(const tn_tensor *tensor)
{
    const struct tni_storage *s = tensor->storage;
    return tensor->is_row_major && s->mapping == NULL && !s->is_read_only &&
           atomic_load_explicit(&tensor->attributes, memory_order_relaxed) == NULL;
}
/**
 * The same of such a tensor, in tni_tensor_view_bytes(). Nobody asks for the generation of a
 * block that a record keeps: it is 0.
 */
static inline void tni_tensor_encode_plain(const tn_tensor *tensor, struct tni_view *ret_view)
{
    TNI_PUT(ret_view->block, tensor->storage->block.id);
    ret_view->generation = 0;
    TNI_PUT(ret_view->byte_offset, tensor->byte_offset);
    tni_view_set_form(ret_view, tensor->form);
    for (int32_t i = 0; i < tensor->ndim; i++)
        TNI_PUT(ret_view->extents[i], tensor->extents[i]);
}

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
/**
 * The same of a view that is aligned to 8 bytes, names this block of the arena, and has the
 * type and shape of the tensor that ended last in this thread's record: only its place is to be
 * checked. NULL: it is another one, ask tni_tensor_decode().
 */
tn_tensor *tni_tensor_decode_again(struct tn_domain *domain, struct tni_thread *thread,
                                   tni_block block, const struct tni_view *view,
                                   size_t size_bytes);

/* As struct tn_tensor_info says it. */
bool tni_tensor_is_shared(const tn_tensor *tensor);
bool tni_tensor_is_read_only(const tn_tensor *tensor);
uint32_t tni_tensor_strategy(const tn_tensor *tensor);

/** TN_ERR_INVALID unless the tensor's storage is shared in this domain. */
int tni_tensor_check_shared(const struct tn_domain *domain, const tn_tensor *tensor);

/** Whether nothing else refers to the tensor or to its storage. */
static inline bool tni_tensor_is_sole(const tn_tensor *tensor)
{
    return atomic_load_explicit(&tensor->refs, memory_order_acquire) == 1 &&
           atomic_load_explicit(&tensor->storage->refs, memory_order_acquire) == 1;
}
/**
 * Free the private side of a tensor whose block reference was moved away. pre: it is sole.
 * @param thread  the record in hand, which keeps the memory for the next tensor; NULL: none
 */
void tni_tensor_forget(struct tni_thread *thread, tn_tensor *tensor);

#endif
