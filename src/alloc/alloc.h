/* SPDX-License-Identifier: Apache-2.0 */
/*
 * alloc: finds free blocks, and puts memory behind them.
 *
 * A block is free if its word says FREE. Caches, hints and cursors only tell where to search.
 * So there is no list that a death could leave half changed, and a lost hint only costs a later
 * scan of the words.
 */
#ifndef TNI_ALLOC_H
#define TNI_ALLOC_H

#include "process/process.h"

/* The part of a struct tn_domain that this room uses. */
struct tni_alloc_part {
    uint64_t *idle;           /* sums of the spans' words at the last scan; NULL: none yet */
    _Atomic uint64_t idle_ns; /* when the next scan for idle memory is due */
};
TNI_PART(alloc, TNI_PART_ALLOC)

enum {
    /*
     * A status: nothing was taken, because it is not known yet whether the quota has room.
     * Other threads must first finish the commits that they announced. The caller gives its
     * thread record back and retries.
     */
    TNI_ALLOC_AGAIN = 1,
    /* A status: no slab of the device has a free block of the class. */
    TNI_ALLOC_NO_SLAB = 2,
    /* Memory is committed in chunks. One chunk of an announced commit may count twice. */
    TNI_COMMIT_CHUNK_BYTES = 16 << 20
};

/**
 * Whether a thread has found no free block in the class. Called after a block of the class
 * became FREE: alloc.c, I2.
 */
static inline bool tni_alloc_was_full(struct tn_domain *domain, uint32_t class_id)
{
    tni_fence_after_modify();
    return atomic_load_explicit(&tni_class_at(&domain->segment, class_id)->full,
                                memory_order_relaxed) != 0;
}
/** Whether a thread waits for memory. */
static inline bool tni_alloc_is_awaited(const struct tn_domain *domain)
{
    return (atomic_load_explicit(&domain->segment.header->memory_wait, memory_order_seq_cst) &
            TNI_WAIT_ARMED) != 0;
}

/** The block that tni_alloc_take() shall take. */
struct tni_alloc_request {
    uint64_t bytes;
    uint8_t kind;        /* TNI_KIND_* */
    bool is_uncommitted; /* memory may be missing behind the block: the caller commits it */
};

/** A block that a thread has taken. */
struct tni_new_block {
    tni_block block;
    bool is_zero; /* every byte is known to be zero */
};

/**
 * Take a free block of at least request->bytes and put memory behind it: FREE -> ALLOC with
 * count 1. The block stays announced by `thread`: the caller records the reference, then clears
 * the announce.
 * @param ret_new  undefined after a failure
 * @return 0, TNI_ALLOC_AGAIN, TN_ERR_NO_MEMORY, TN_ERR_FULL, TN_ERR_INVALID (larger than any
 *         class)
 */
int tni_alloc_take(struct tn_domain *domain, struct tni_thread *thread,
                   const struct tni_alloc_request *request, struct tni_new_block *ret_new);

/**
 * Take the block of payload on top of this thread's cache, if it has memory that this process
 * has touched. @return false: there is no such block
 */
bool tni_alloc_take_warm(struct tn_domain *domain, struct tni_thread *thread, uint64_t bytes,
                         tni_block *ret_block);

/**
 * Take the block in `spare` again, if the block is on top of this thread's cache and its word
 * has not changed since this thread freed it. Then no thread had the block since, and the block
 * still has its memory.
 */
bool tni_alloc_take_again(struct tn_domain *domain, struct tni_thread *thread,
                          const struct tni_spare *spare);

/**
 * Take a block whose number is a hint. Announces the block. @return false: it is not free, and
 * nothing is announced
 */
bool tni_alloc_try_take(struct tn_domain *domain, struct tni_thread *thread, tni_block block);

/* ---- blocks of devices: slab.c ----------------------------------------------------------- */

/** The slab that the span of a device's block names; id 0: none, or a damaged number. */
tni_block tni_slab_of(const struct tni_segment *segment, tni_block block);
/** Whether a block is that of a slab on this device. */
bool tni_slab_is_on(const struct tni_segment *segment, tni_block slab,
                    const struct tni_device_name *device);
/** How many blocks of a class a slab has memory for, from its span's first on. */
uint32_t tni_slab_usable(const struct tni_segment *segment, tni_block slab, uint32_t class_id);
/**
 * Take a free block of at least `bytes` from a slab on a device, as tni_alloc_take() does. The
 * block has memory, of any content.
 * @return 0, TNI_ALLOC_NO_SLAB, TN_ERR_INVALID (larger than any class)
 */
int tni_slab_take(struct tn_domain *domain, struct tni_thread *thread, uint64_t bytes,
                  const struct tni_device_name *device, tni_block *ret_block);
/** Publish hints of the first `count` blocks of a span, which has just got a slab. */
void tni_slab_publish(struct tn_domain *domain, tni_block first, uint32_t count);
/** Whether every block of a span is free at this moment. */
bool tni_slab_is_idle(const struct tn_domain *domain, tni_block first);

/** Take each of `count` blocks, or none. pre: this thread announces all of them */
bool tni_alloc_take_span(struct tn_domain *domain, tni_block first, uint32_t count);
/** Free them again, and wake up threads that found no block of the class meanwhile. */
void tni_alloc_untake_span(struct tn_domain *domain, tni_block first, uint32_t count);

/** Put a FREE block into this thread's cache, or publish it if other threads lack blocks. */
void tni_alloc_put(struct tn_domain *domain, struct tni_thread *thread, tni_block block);
/**
 * The fast case of tni_alloc_put(): the cache has room and no thread waits. @return false:
 * nothing was done; call tni_alloc_put()
 */
static inline bool tni_alloc_put_back(struct tn_domain *domain, struct tni_thread *thread,
                                      tni_block block)
{
    uint32_t class_id = tni_block_class(block);
    struct tni_block_cache *cache = &thread->caches[class_id];
    uint32_t limit = domain->segment.geometry.classes[class_id].cached, count = cache->count;
    if (TNI_UNLIKELY(count >= limit) ||
        TNI_UNLIKELY(tni_alloc_was_full(domain, class_id) || tni_alloc_is_awaited(domain)))
        return false;
    thread->has_cached = true;
    cache->id[count] = block.id;
    cache->count = count + 1;
    return true;
}
/**
 * Publish the hint of a FREE block to all processes, if this process will not need the block
 * soon. Wakes up no thread.
 * @return whether a thread had found no free block of the class, and may be waiting
 */
bool tni_alloc_publish(struct tn_domain *domain, tni_block block);

/**
 * Whether memory is recorded behind a block. Readers of payload check this first: reading a
 * page without memory would allocate it.
 */
static inline bool tni_alloc_has_memory(const struct tni_segment *segment, tni_block block)
{
    return tni_segment_committed(segment, block) != 0;
}
/**
 * Record that [0, bytes) of a block of this process may have memory, before memory is put
 * there. If this process dies or fails after that, the next process that takes the block gives
 * back the memory that `committed` does not cover. pre: the block is a span by itself
 */
void tni_alloc_raise_end(struct tn_domain *domain, tni_block block, uint64_t bytes);
/**
 * Give back the memory that a block of this process may have beyond `committed`. pre: the block
 * is a span by itself
 */
void tni_alloc_discard_excess(struct tn_domain *domain, tni_block block);
/**
 * Record that [0, bytes) of a block of this process now has memory, which this process has not
 * mapped yet. pre: the block is a span by itself
 */
void tni_alloc_set_committed(struct tn_domain *domain, tni_block block, uint64_t bytes);
/**
 * Map the memory behind [0, bytes) of a block, in large pieces instead of one page fault for
 * each page. Does nothing if this process has touched the block before. pre: these bytes have
 * memory, and the block is a span by itself
 */
int tni_alloc_map(struct tn_domain *domain, tni_block block, uint64_t bytes);
/**
 * Announce that this thread is about to commit `bytes`, and check them against the quota. The
 * caller ends the announce with tni_alloc_quota_end().
 * @return 0, TNI_ALLOC_AGAIN, TN_ERR_NO_MEMORY: the quota lacks thread->missing_bytes
 */
int tni_alloc_quota_begin(struct tn_domain *domain, struct tni_thread *thread, uint64_t bytes);
/** `bytes` of an announced commit are committed now: subtract them from the announce. */
void tni_alloc_quota_landed(struct tni_thread *thread, uint64_t bytes);
void tni_alloc_quota_end(struct tni_thread *thread);
/** Bytes of all memory objects and files of the host that blocks of TNI_BACKING_CLASS name. */
uint64_t tni_alloc_outside_bytes(const struct tni_segment *segment);

/** Arm header->memory_wait and return its value. The caller retries before it sleeps on it. */
uint32_t tni_alloc_arm(struct tn_domain *domain);
/** Wake up the threads that wait for memory. */
void tni_alloc_wake(struct tn_domain *domain);

/** Give free memory back to the system, except for about `keep_bytes`. @return bytes given */
uint64_t tni_alloc_trim(struct tn_domain *domain, struct tni_thread *thread,
                        uint64_t keep_bytes);
/**
 * Give about `bytes` of free memory back to the system, not more than needed, and none of the
 * block `kept`. For a thread that lacks memory itself. Wakes up no other waiter, because each
 * waiter also calls this function in each of its attempts.
 * @return bytes given back; 0: nothing is free
 */
uint64_t tni_alloc_trim_some(struct tn_domain *domain, struct tni_thread *thread,
                             uint64_t bytes, tni_block kept);

/**
 * Give back to the system the memory that was free at the last scan and that no process has
 * used since. Does nothing unless a scan is due: TNI_IDLE_NS after the last one, or later if
 * scans take long. tenond calls it repeatedly.
 */
void tni_alloc_trim_idle(struct tn_domain *domain);
#define TNI_IDLE_NS (UINT64_C(5) * 1000 * 1000 * 1000)

/** Publish every hint in this thread record's caches. */
void tni_alloc_flush(struct tn_domain *domain, struct tni_thread *thread);

/** Make the next search in each class scan all words: hints were lost with a dead process. */
void tni_alloc_mark_sweep(struct tn_domain *domain);

/** Register the fork hook. */
void tni_alloc_init(struct tn_domain *domain);

#endif
