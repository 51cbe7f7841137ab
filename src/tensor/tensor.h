/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tensor: makes tensors and storages, views them, copies them, shares them, and exchanges them
 * through DLPack. Rooms above use this header to turn a tensor into bytes (struct tni_view) and
 * back.
 */
#ifndef TNI_TENSOR_H
#define TNI_TENSOR_H

#include "attribute/attribute.h"
#include "order/order.h"
#include "ref/ref.h"

#define TNI_SIZE_IN_DESC UINT64_MAX
enum { TNI_STORAGE_USES = 3 };

/*
 * A storage is private memory, foreign memory with a deleter, or a block of a domain. Tensors
 * point at the storage, and the storage points at the bytes, so that tn_tensor_share() changes
 * one pointer for all views.
 */
struct tni_storage {
    struct tni_spare spare; /* used after the storage has ended */
    _Atomic uint32_t refs;
    bool is_read_only;
    bool has_room;            /* its private memory may be reused: alloc_both() in build.c */
    uint8_t outside;          /* TN_STRATEGY_* of memory from outside of any domain; else 0 */
    bool is_described;        /* the block's desc states the tensor behind this storage */
    _Atomic bool is_touched;  /* tni_storage_has_work() */
    _Atomic bool is_pinned;   /* registered with a driver: registered.c */
    _Atomic uint32_t exports; /* how many DLPack exports point into the memory */
    _Atomic int32_t mover;    /* pid of the process whose thread shares the storage now; or 0 */
    struct tni_mapping *mapping; /* NULL: the storage is in the arena, or not shared */
    tn_device device;            /* of private memory on a device: foreign.c; else type 0 */
    struct tn_domain *domain;    /* NULL: not shared */
    uint8_t *data;
    uint64_t size_bytes; /* TNI_SIZE_IN_DESC: read it from the block's desc when needed */
    void (*release)(void *context); /* frees foreign or private memory; NULL: nothing to free */
    void *context;
    tni_block block; /* 0: not shared */
    /*
     * On a device; else 0. What the content waits for; and, protected by the lock of uses.c,
     * what this process gave the device for the storage and has to await before the memory goes
     * to others.
     */
    _Atomic uint64_t ready;
    uint64_t uses[TNI_STORAGE_USES];
};

static inline bool tni_storage_is_on_device(const struct tni_storage *s)
{
    return TNI_UNLIKELY(s->mapping != NULL) && s->mapping->memory.device.type != 0;
}
/** Whether this process may have given a device work for the storage, which is on a device. */
static inline bool tni_storage_has_work(const struct tni_storage *s)
{
    return tni_storage_is_on_device(s) &&
           (atomic_load_explicit(&s->is_touched, memory_order_relaxed) ||
            (s->uses[0] | s->uses[1] | s->uses[2]) != 0);
}
/** The program may give the device work for the storage that no token stands for. */
static inline void tni_storage_touch(const tn_tensor *tensor)
{
    atomic_store_explicit(&tensor->storage->is_touched, true, memory_order_relaxed);
}

/** Bytes that tni_tensor_encode() writes. @param held  attributes to write along; NULL: none */
static inline size_t tni_tensor_view_bytes(const tn_tensor *tensor,
                                           const struct tni_attributes *held)
{
    return sizeof(struct tni_view) +
           (size_t)tensor->ndim * sizeof(int64_t) * (tensor->is_row_major ? 1 : 2) +
           (tni_storage_is_on_device(tensor->storage) ? sizeof(uint64_t) : 0) +
           (held != NULL ? held->bytes : 0);
}

/**
 * Write a shared tensor, with these attributes, as a struct tni_view.
 * @param room_bytes  size of the buffer `ret_view`, which is aligned to 8 bytes
 * @return bytes written; 0: the view does not fit in `room_bytes`, and nothing was written
 */
size_t tni_tensor_encode(const tn_tensor *tensor, const struct tni_attributes *held,
                         size_t room_bytes, void *ret_view);

/**
 * Whether a tensor is of the usual kind: row-major, in a block of the arena, without
 * attributes, not read-only by its storage. pre: it is shared
 */
static inline bool tni_tensor_is_plain(const tn_tensor *tensor)
{
    const struct tni_storage *s = tensor->storage;
    return tensor->is_row_major && s->mapping == NULL && !s->is_read_only &&
           atomic_load_explicit(&tensor->attributes, memory_order_relaxed) == NULL;
}
/**
 * Encode a tensor for which tni_tensor_is_plain() holds. The generation is written as 0: a
 * record keeps the block, so no reader needs to recognise a reused block.
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
 * Check a view that came from another process: its type, its axes, sizes and strides, and that
 * every element lies inside of its block. @return the bytes of the view, or TN_ERR_CORRUPT
 */
int tni_view_check(const struct tni_segment *segment, const void *view, size_t size_bytes);

/**
 * Check a view as tni_view_check() does, and make a tensor of it. On success the tensor takes
 * over the caller's local reference to the block.
 * @return the bytes of the view, or TN_ERR_CORRUPT, TN_ERR_NO_MEMORY
 */
int tni_tensor_decode(struct tn_domain *domain, const void *view, size_t size_bytes,
                      tn_tensor **ret_tensor);
/** As tni_tensor_decode(), and use spare memory of this thread's record if it has any. */
int tni_tensor_decode_with(struct tn_domain *domain, struct tni_thread *thread,
                           const void *view, size_t size_bytes, tn_tensor **ret_tensor);
/**
 * A fast tni_tensor_decode() that reuses the spare tensor of this thread's record. It works if
 * the view has the type and shape of the spare tensor. Type and shape were checked when the
 * spare tensor was made, so only the place inside of the block is left to check. pre: the view
 * is aligned to 8 bytes
 * @param block  the block of the arena that the view must name
 * @return NULL: the view differs, or there is no spare tensor; call tni_tensor_decode()
 */
tn_tensor *tni_tensor_decode_again(struct tn_domain *domain, struct tni_thread *thread,
                                   tni_block block, const struct tni_view *view,
                                   size_t size_bytes);

/** The device of a tensor; {TN_DEVICE_CPU, 0} if its memory is the host's. */
static inline tn_device tni_tensor_device(const tn_tensor *tensor)
{
    const struct tni_mapping *m = tensor->storage->mapping;
    if (m != NULL && tni_mapping_is_on_device(m))
        return m->memory.device;
    return TNI_UNLIKELY(tensor->storage->device.type != 0) ? tensor->storage->device
                                                           : (tn_device){TN_DEVICE_CPU, 0};
}
static inline bool tni_tensor_is_on_host(const tn_tensor *tensor)
{
    return tni_tensor_device(tensor).type == TN_DEVICE_CPU;
}

/* Each of these functions returns the field of struct tn_tensor_info that has its name. */
bool tni_tensor_is_shared(const tn_tensor *tensor);
bool tni_tensor_is_read_only(const tn_tensor *tensor);
uint32_t tni_tensor_strategy(const tn_tensor *tensor);

/** Check that the tensor's storage is shared in this domain. TN_ERR_INVALID: it is not. */
int tni_tensor_check_shared(const struct tn_domain *domain, const tn_tensor *tensor);

/**
 * Whether the caller's reference to the block can go to another record as it is: the caller has
 * the only reference to the tensor, and the tensor has the only one to its storage. If a device
 * may still reach the memory, tn_tensor_unref() has to wait for that first.
 */
static inline bool tni_tensor_can_move(const tn_tensor *tensor)
{
    const struct tni_storage *s = tensor->storage;
    return atomic_load_explicit(&tensor->refs, memory_order_acquire) == 1 &&
           atomic_load_explicit(&s->refs, memory_order_acquire) == 1 &&
           !tni_storage_has_work(s) &&
           !TNI_UNLIKELY(atomic_load_explicit(&s->is_pinned, memory_order_relaxed));
}
/**
 * Free the private memory of a tensor, but do not give back its reference to the block: another
 * record owns the reference now. pre: the tensor has one reference, and
 * its storage too
 * @param thread  this thread's record, which keeps the memory for the next tensor; NULL: none
 */
void tni_tensor_forget(struct tni_thread *thread, tn_tensor *tensor);

/**
 * Wait in a stream for the content of a tensor on a device. If the stream cannot wait, the call
 * does. pre: the stream is of the tensor's device
 * @return as tni_order_await()
 */
int tni_tensor_await(const tn_tensor *tensor, void *stream);
/** Wait in a stream, or, if the stream cannot wait, here: for a call that may not fail. */
void tni_tensor_await_somehow(const tn_tensor *tensor, void *stream);
/**
 * Give back memory that this process kept for its devices, which need it no more, and memory of
 * other libraries that no other process has any more.
 */
void tni_tensor_end_unfinished(void);
/**
 * Before this process leaves: move what others may get later of the memory of its libraries,
 * and wait, for a bounded time, for what others have open. pre: its devices have done all that
 * it gave them, if they can
 */
void tni_foreign_leave(struct tn_domain *domain);

#endif
