/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tensor: types, shapes, strides, views, storages; DLPack. What other rooms need of it: a
 * tensor as bytes (struct tni_view) and back.
 */
#ifndef TNI_TENSOR_H
#define TNI_TENSOR_H

#include <tenon/attribute.h>
#include <tenon/tensor.h>

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

/*
 * Attributes as they travel: checked struct tni_attribute, one after the other. Immutable but
 * for the two fields in front.
 */
struct tni_attributes {
    struct tni_attributes *next; /* among those that wait for their end; attribute.c */
    _Atomic uint32_t refs;       /* the tensor's, and one of each call that holds them */
    uint32_t bytes;              /* a multiple of 8, not 0 */
    uint32_t flags;              /* what the FLAGS attribute says; else 0 */
    uint64_t words[];
};

struct tn_tensor {
    _Atomic uint32_t refs;
    tn_dtype dtype;
    int32_t ndim;
    bool is_contiguous;
    bool is_row_major; /* contiguous, and with just the strides that a new tensor has */
    bool is_read_only;
    bool is_inner; /* lies behind its storage, in one allocation */
    uint64_t form; /* tni_view_form() of it without attributes; its storage may be read-only */
    struct tni_storage *storage;
    _Atomic(struct tni_attributes *) attributes; /* its own; NULL: none */
    uint64_t byte_offset;
    int64_t count; /* elements */
    uint64_t item_bytes;
    int64_t extents[]; /* shape [ndim], strides [ndim] */
};

/**
 * Hold the attributes that the tensor has now until tni_attributes_drop(): they stay as they
 * are, whatever another thread sets meanwhile. NULL: the tensor has none.
 */
struct tni_attributes *tni_attributes_hold_all(const tn_tensor *tensor);
static inline struct tni_attributes *tni_attributes_hold(const tn_tensor *tensor)
{
    return TNI_LIKELY(atomic_load_explicit(&tensor->attributes, memory_order_relaxed) == NULL)
               ? NULL
               : tni_attributes_hold_all(tensor);
}
void tni_attributes_drop_all(struct tni_attributes *held);
static inline void tni_attributes_drop(struct tni_attributes *held)
{
    if (TNI_UNLIKELY(held != NULL))
        tni_attributes_drop_all(held);
}

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

/**
 * Check the attributes that stand in a copy of a view, and make them the tensor's.
 * TN_ERR_CORRUPT, TN_ERR_VERSION (a kind that is not known, by number), TN_ERR_NO_MEMORY.
 */
int tni_attributes_adopt(tn_tensor *tensor, const void *bytes, size_t size_bytes);
/** A bit for each TNI_ATTRIBUTE_* among them. */
uint32_t tni_attributes_kinds(const struct tni_attributes *held);
/**
 * Give a new view what its base's elements mean. TN_ERR_UNSUPPORTED: one of the base's
 * attributes cannot be kept by a view.
 */
int tni_attributes_inherit(tn_tensor *view, const tn_tensor *base);
/** TN_ERR_UNSUPPORTED, naming what changes the meaning of elements, for a user that cannot. */
int tni_attributes_check_plain(const tn_tensor *tensor, const char *what);
/**
 * That tensors [count], which travel together, hold all parts of each sparse tensor side by
 * side. TN_ERR_INVALID.
 */
int tni_attributes_check_all_parts(tn_tensor *const *tensors, uint32_t count);
static inline int tni_attributes_check_parts(tn_tensor *const *tensors, uint32_t count)
{
    if (TNI_LIKELY(count == 0 ||
                   (count == 1 && atomic_load_explicit(&tensors[0]->attributes,
                                                       memory_order_relaxed) == NULL)))
        return 0;
    return tni_attributes_check_all_parts(tensors, count);
}

static inline const int64_t *tni_tensor_strides(const tn_tensor *tensor)
{
    return tensor->extents + tensor->ndim;
}
static inline uint64_t tni_tensor_size_bytes(const tn_tensor *tensor)
{
    return (uint64_t)tensor->count * tensor->item_bytes;
}
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
