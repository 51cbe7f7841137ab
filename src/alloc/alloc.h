/* SPDX-License-Identifier: Apache-2.0 */
/*
 * alloc: which blocks are free, and memory behind them.
 *
 * Free is what a block's word says; caches, hints and cursors only tell where to look. So there
 * is no list that a death could tear, and a lost hint costs a later look at the words.
 */
#ifndef TNI_ALLOC_H
#define TNI_ALLOC_H

#include "process/process.h"

/* What this room keeps of a domain. */
struct tni_alloc_part {
    uint64_t *idle;           /* a span's words when it was last looked at; NULL: not yet */
    _Atomic uint64_t idle_ns; /* when they are looked at again */
};
TNI_PART(alloc, TNI_PART_ALLOC)

enum {
    /*
     * Whether there is room is known once others have committed what they announced. Nothing is
     * taken: come again, with no thread record in hand meanwhile.
     */
    TNI_ALLOC_AGAIN = 1,
    /* Memory is committed in pieces: so much of an announced commit may count twice. */
    TNI_COMMIT_CHUNK_BYTES = 16 << 20
};

/** Of a class of which a block is FREE since: somebody had found none. alloc.c, I2 */
static inline bool tni_alloc_was_full(struct tn_domain *domain, uint32_t class_id)
{
    tni_fence_after_modify();
    return atomic_load_explicit(&tni_class_at(&domain->segment, class_id)->full,
                                memory_order_relaxed) != 0;
}
/** Whether somebody waits for memory. */
static inline bool tni_alloc_is_awaited(const struct tn_domain *domain)
{
    return (atomic_load_explicit(&domain->segment.header->memory_wait, memory_order_seq_cst) &
            TNI_WAIT_ARMED) != 0;
}

/**
 * Take a free block of at least `bytes` and have memory behind it: FREE -> ALLOC with count 1.
 *
 * The block stays announced by `thread`: the caller records the reference, then clears the
 * announce.
 * @param want_memory  false: the block may lack memory behind it, see tni_alloc_committed()
 * @param ret_is_zero  every byte is zero
 * @return 0, TNI_ALLOC_AGAIN, TN_ERR_NO_MEMORY, TN_ERR_FULL, TN_ERR_INVALID (larger than any
 *         class)
 */
int tni_alloc_take(struct tn_domain *domain, struct tni_thread *thread, uint64_t bytes,
                   uint8_t kind, bool want_memory, tni_block *ret_block, bool *ret_is_zero);

/**
 * The same of payload, from this thread's cache and with memory that this process has touched.
 * False: there is none.
 */
bool tni_alloc_take_warm(struct tn_domain *domain, struct tni_thread *thread, uint64_t bytes,
                         tni_block *ret_block);

/**
 * The same of the block in `spare`, if this thread freed it last and its word is as that left
 * it: then nobody had it since, and the memory that was behind it still is.
 */
bool tni_alloc_take_again(struct tn_domain *domain, struct tni_thread *thread,
                          const struct tni_spare *spare);

/** A hint that a block, whose word says FREE, can be had. */
void tni_alloc_put(struct tn_domain *domain, struct tni_thread *thread, tni_block block);
/** The same where nobody waits for it and this thread keeps few. False: ask tni_alloc_put(). */
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
 * The same for one that no thread of this process will want soon: straight to everybody. Wakes
 * nobody. @return whether somebody had found none of its class, and may wait for one
 */
bool tni_alloc_publish(struct tn_domain *domain, tni_block block);

/**
 * Whether a block is said to have memory behind it: where there is none there is nothing to
 * read, and a look would put some there.
 */
static inline bool tni_alloc_has_memory(const struct tni_segment *segment, tni_block block)
{
    return tni_segment_committed(segment, block) != 0;
}
/**
 * Say that [0, bytes) of a block of this process may have memory, before some comes: who dies
 * or fails from here on leaves a block of which the next one gives back what nobody knows. pre:
 * this and the next two: the block is committed by itself (span is 1)
 */
void tni_alloc_raise_end(struct tn_domain *domain, tni_block block, uint64_t bytes);
/** Give back what a block of this process may have beyond what it is said to have. */
void tni_alloc_mend(struct tn_domain *domain, tni_block block);
/**
 * Say that [0, bytes) of a block of this process now has memory behind it, though it is not
 * mapped yet.
 */
void tni_alloc_set_committed(struct tn_domain *domain, tni_block block, uint64_t bytes);
/**
 * Map [0, bytes) of a block, which has memory there, in one call instead of a fault for each
 * page; nothing if this process has touched it before. pre: the block is committed by itself
 * (span is 1)
 */
int tni_alloc_map(struct tn_domain *domain, tni_block block, uint64_t bytes);
/**
 * Ask the quota for `bytes` that are about to be committed; end with tni_alloc_quota_end().
 * @return 0, TNI_ALLOC_AGAIN, TN_ERR_NO_MEMORY: thread->missing_bytes are too many
 */
int tni_alloc_quota_begin(struct tn_domain *domain, struct tni_thread *thread, uint64_t bytes);
/** `bytes` of them have memory behind them now, and count as that. */
void tni_alloc_quota_landed(struct tni_thread *thread, uint64_t bytes);
void tni_alloc_quota_end(struct tni_thread *thread);
/** Bytes of the objects that blocks of TNI_BACKING_CLASS name: the arena does not have them. */
uint64_t tni_alloc_outside_bytes(const struct tni_segment *segment);

/** Arm header->memory_wait and read it; look for memory once more before sleeping on it. */
uint32_t tni_alloc_arm(struct tn_domain *domain);
/** Wake who waits for memory. */
void tni_alloc_wake(struct tn_domain *domain);

/**
 * Give free memory back to the system until about `keep_bytes` stay. @return bytes given back
 */
uint64_t tni_alloc_trim(struct tn_domain *domain, struct tni_thread *thread,
                        uint64_t keep_bytes);
/**
 * The same of about `bytes`, and no more than that; nothing of the block `kept`. For this
 * thread itself: nobody is woken, as each try of a wait gives back by itself what is free.
 * @return bytes given back; 0: there is nothing
 */
uint64_t tni_alloc_trim_some(struct tn_domain *domain, struct tni_thread *thread,
                             uint64_t bytes, tni_block kept);

/**
 * Give memory back to the system that was free at the last look, and that nobody has used
 * since; a look is due after TNI_IDLE_NS, or later if it takes long. Call it now and then.
 */
void tni_alloc_trim_idle(struct tn_domain *domain);
#define TNI_IDLE_NS (UINT64_C(5) * 1000 * 1000 * 1000)

/** Publish everything this process has cached; at leave, and when somebody waits for memory. */
void tni_alloc_flush(struct tn_domain *domain, struct tni_thread *thread);

/** Have all words of all classes looked at anew: hints of the dead are lost. */
void tni_alloc_mark_sweep(struct tn_domain *domain);

/** Hook for fork. */
void tni_alloc_init(struct tn_domain *domain);

#endif
