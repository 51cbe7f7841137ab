/* SPDX-License-Identifier: Apache-2.0 */
/*
 * alloc: finding free blocks.
 *
 * Nouns: hint (a bit: may be free), cache (hints that this thread slot keeps), frontier (blocks
 * at and above it were never used), sweep (a look at the words themselves).
 * I1  A block is taken by one CAS on its word, FREE,0 -> ALLOC,1, while it is announced.
 * I2  Every FREE block below its frontier has a hint, is in a live process's cache, or its
 *     class has `sweep` set. What breaks I2 for a moment is a thread; its death sets `sweep`
 *     (the reaper).
 *     `full` is set before the words of a class are looked at for the last time, and cleared by
 *     whoever frees a block after it was set: both change first, and look then.
 * I3  desc.committed never claims more memory than there is: it falls before a discard and
 *     rises after a commit. Of a block that is committed by itself, desc.memory_end never
 *     claims less than there is: it rises before memory comes and falls after it went. What
 *     lies between the two may hold any bytes, and the next taker gives it back. Of a span,
 *     only a set bit says anything: a page without one may hold any bytes, so no block of a
 *     span is ever called zero. Pages are taken away only by who has taken every block in
 *     them; who commits pages of other blocks as well says so only if none was taken away
 *     meanwhile.
 * I4  committed + all commits in flight <= quota: both sides announce, then count. Until a
 *     commit has landed its last chunk may count twice: who is refused for that comes again.
 *
 * Death leaves: an announced block ALLOC,1 that nobody recorded (recounted by the reaper), lost
 * hints (I2), memory of a FREE block between `committed` and `memory_end` (given back by the
 * next taker or trim) or behind a clear bit of a span (committed again, for nothing).
 */
#include "alloc/alloc.h"

#include "alloc/commit.h"
#include "alloc/hints.h"

/* ---- taking ------------------------------------------------------------------------------ */

/* I1. From {FREE, 0}, as the word was seen. On success the block is announced. */
static inline bool try_take_seen(struct tni_thread *thread, tni_block block,
                                 _Atomic uint64_t *word, uint64_t seen)
{
    /* Only the version, the state and the count are added. */
    uint64_t taken = seen + TNI_WORD_VERSION_ONE + ((uint64_t)TNI_BLOCK_ALLOC << 24) + 1;
    tni_announce_now(thread, block);
    if (TNI_UNLIKELY(!atomic_compare_exchange_strong(word, &seen, taken))) {
        tni_announce_clear(thread);
        return false;
    }
    TNI_KILL_POINT("alloc_taken");
    return true;
}

static inline bool try_take(struct tn_domain *d, struct tni_thread *thread, tni_block block)
{
    const struct tni_class_geometry *c = &d->segment.geometry.classes[tni_block_class(block)];
    if (TNI_UNLIKELY(tni_block_index(block) >= c->capacity))
        return false; /* hints are anybody's to write */
    _Atomic uint64_t *word = tni_word_of(&d->segment, c->base + tni_block_index(block));
    uint64_t seen = atomic_load_explicit(word, memory_order_relaxed);
    if (TNI_UNLIKELY((seen & TNI_WORD_USED) != 0))
        return false;
    tni_let_recount(thread, block, 1);
    return try_take_seen(thread, block, word, seen);
}

static void untake(struct tn_domain *d, struct tni_thread *thread, tni_block block)
{
    tni_alloc_untake(d, block);
    tni_announce_clear(thread);
}

/*
 * When the table or the quota is used up: a free block of the class that others have in their
 * caches, with memory behind [0, bytes).
 */
static bool steal(struct tn_domain *d, struct tni_thread *thread, uint32_t class_id,
                  uint64_t bytes, tni_block *ret_block)
{
    uint32_t frontier = tni_frontier(&d->segment, class_id);
    for (uint32_t i = 0; i < frontier; i++) {
        tni_block block = tni_block_make(class_id, i);
        _Atomic uint64_t *word = tni_word_at(&d->segment, block);
        /* I3: a trim changes the word, so the memory is there while the word is as seen. This
         * load pairs with the CAS by which a trim gives the block back. */
        uint64_t seen = atomic_load_explicit(word, memory_order_acquire);
        if ((seen & TNI_WORD_USED) != 0 || tni_segment_committed(&d->segment, block) < bytes)
            continue;
        tni_let_recount(thread, block, 1);
        if (try_take_seen(thread, block, word, seen)) {
            *ret_block = block;
            return true;
        }
    }
    return false;
}

/*
 * I2. The class seems to be used up: of what others have in their caches, rather one with
 * memory.
 */
static bool take_last(struct tn_domain *d, struct tni_thread *thread, uint32_t class_id,
                      uint64_t bytes, tni_block *ret_block)
{
    _Atomic uint32_t *full = &tni_class_at(&d->segment, class_id)->full;
    if (atomic_load(full) != 0)
        return false;
    atomic_store(full, 1);
    if (!steal(d, thread, class_id, bytes, ret_block) &&
        !steal(d, thread, class_id, 0, ret_block))
        return false;
    atomic_store(full, 0);
    return true;
}

static __attribute__((noinline)) bool take_next(struct tn_domain *d, struct tni_thread *thread,
                                                uint32_t class_id, tni_block *ret_block)
{
    struct tni_block_cache *cache = &thread->caches[class_id];
    /* Every block twice: hints that are noise must not keep us here. */
    uint32_t left = 2 * d->segment.geometry.classes[class_id].capacity + TNI_FETCH_BLOCKS;
    thread->has_cached = true;
    for (;;) {
        for (; cache->count > 0 && left > 0; left--) {
            tni_block block = {cache->id[--cache->count]};
            if (try_take(d, thread, block)) {
                *ret_block = block;
                return true;
            }
        }
        if (left == 0 || tni_hints_refill(d, class_id, cache) == 0)
            return false;
    }
}

/* The block that this thread freed last, as a rule. */
static inline bool take_candidate(struct tn_domain *d, struct tni_thread *thread,
                                  uint32_t class_id, tni_block *ret_block)
{
    struct tni_block_cache *cache = &thread->caches[class_id];
    if (TNI_LIKELY(cache->count > 0)) {
        tni_block block = {cache->id[--cache->count]};
        if (TNI_LIKELY(try_take(d, thread, block))) {
            *ret_block = block;
            return true;
        }
    }
    return take_next(d, thread, class_id, ret_block);
}

/*
 * No memory for the block that was taken, for this reason: what others keep warm, in this class
 * or another, may do. No more of it is given back than is missing. The block keeps what it has,
 * and is taken again: else each round could give back what the next one lacks. NO_MEMORY is
 * told only when nothing is left to give back.
 */
static int take_elsewhere(struct tn_domain *d, struct tni_thread *thread, uint64_t bytes,
                          int status, tni_block *block, bool *ret_is_zero)
{
    enum { ROUNDS = 8 }; /* others may be quicker to what was given back */
    uint32_t class_id = tni_block_class(*block);
    bool is_last = false;
    for (uint32_t round = 0;; round++) {
        untake(d, thread, *block);
        if (status != TN_ERR_NO_MEMORY && status != TNI_ALLOC_AGAIN)
            return status;
        if (round == 0 && steal(d, thread, class_id, bytes, block))
            return 0;
        if (status == TNI_ALLOC_AGAIN || is_last)
            return status;
        /* What others had in hand, and gave back meanwhile, may be enough. */
        is_last = tni_alloc_trim_some(d, thread, thread->missing_bytes, *block) == 0;
        if (round == ROUNDS ||
            (!try_take(d, thread, *block) && !take_candidate(d, thread, class_id, block)))
            return TNI_ALLOC_AGAIN;
        status = tni_commit(d, thread, *block, bytes, ret_is_zero);
        if (status == 0)
            return 0;
    }
}

/* No block of its class is free: the next ones will do, but not ones of another size
 * altogether. */
static bool take_larger(struct tn_domain *d, struct tni_thread *thread, uint32_t class_id,
                        uint8_t kind, tni_block *ret_block)
{
    enum { LARGER_CLASSES = 4 };
    uint32_t end = kind == TNI_KIND_MESSAGE   ? TNI_MESSAGE_CLASSES + 1
                   : kind == TNI_KIND_BACKING ? 0
                                              : d->segment.geometry.class_count;
    for (uint32_t c = class_id + 1; c <= class_id + LARGER_CLASSES && c < end; c++)
        if (take_candidate(d, thread, c, ret_block) || take_last(d, thread, c, 0, ret_block))
            return true;
    return false;
}

int tni_alloc_take(struct tn_domain *d, struct tni_thread *thread, uint64_t bytes, uint8_t kind,
                   bool want_memory, tni_block *ret_block, bool *ret_is_zero)
{
    uint32_t class_id = tni_geometry_class(&d->segment.geometry, bytes, kind);
    tni_block block;

    *ret_is_zero = false;
    if (class_id == 0)
        return kind == TNI_KIND_MESSAGE
                   ? tni_fail(TN_ERR_INVALID, "a message of %llu bytes is too large",
                              (unsigned long long)bytes)
                   : tni_fail(TN_ERR_NO_MEMORY,
                              "%llu bytes are more than the domain's quota of %llu",
                              (unsigned long long)bytes,
                              (unsigned long long)d->segment.geometry.quota_limit_bytes);
    if (TNI_UNLIKELY(!take_candidate(d, thread, class_id, &block)) &&
        !take_last(d, thread, class_id, want_memory ? bytes : 0, &block) &&
        !take_larger(d, thread, class_id, kind, &block))
        return tni_fail(TN_ERR_FULL, "all %u blocks of %llu bytes are in use",
                        d->segment.geometry.classes[class_id].capacity,
                        (unsigned long long)d->segment.geometry.classes[class_id].size_bytes);
    if (!want_memory || TNI_LIKELY(tni_commit_is_done(d, block, bytes))) {
        *ret_block = block;
        return 0;
    }
    *ret_block = block;
    int status = tni_commit(d, thread, block, bytes, ret_is_zero);
    if (TNI_UNLIKELY(status != 0))
        status = take_elsewhere(d, thread, bytes, status, ret_block, ret_is_zero);
    return status;
}

bool tni_alloc_take_warm(struct tn_domain *d, struct tni_thread *thread, uint64_t bytes,
                         tni_block *ret_block)
{
    uint32_t class_id = tni_geometry_class(&d->segment.geometry, bytes, TNI_KIND_TENSOR);
    struct tni_block_cache *cache = &thread->caches[class_id];
    if (TNI_UNLIKELY(cache->count == 0) || tni_thread_sees_recount(thread))
        return false;
    tni_block block = {cache->id[cache->count - 1]};
    _Atomic uint64_t *word = tni_word_at(&d->segment, block);
    uint64_t seen = atomic_load_explicit(word, memory_order_acquire);
    /* I3: it has memory as long as its word stays as it was seen. */
    if (TNI_UNLIKELY((seen & TNI_WORD_USED) != 0 || !tni_commit_is_whole(d, block)))
        return false;
    cache->count--;
    *ret_block = block;
    return try_take_seen(thread, block, word, seen);
}

bool tni_alloc_take_again(struct tn_domain *d, struct tni_thread *thread,
                          const struct tni_spare *spare)
{
    tni_block block = spare->block;
    uint64_t seen = spare->freed;
    _Atomic uint64_t *word = tni_word_of(&d->segment, spare->at);
    struct tni_block_cache *cache = &thread->caches[tni_block_class(block)];
    uint32_t top = cache->count - 1; /* of none it is far beyond the last one */
    if (TNI_UNLIKELY(top >= TNI_CACHE_BLOCKS) || TNI_UNLIKELY(cache->id[top] != block.id) ||
        tni_thread_sees_recount(thread) ||
        TNI_UNLIKELY(!try_take_seen(thread, block, word, seen)))
        return false;
    cache->count = top;
    return true;
}

/* ---- giving back ------------------------------------------------------------------------- */

static void over_watermark(struct tn_domain *d, struct tni_thread *thread)
{
    uint64_t keep =
        atomic_load_explicit(&d->segment.header->watermark_bytes, memory_order_relaxed);
    if (atomic_load_explicit(&d->segment.header->free_bytes, memory_order_relaxed) > keep)
        tni_alloc_trim(d, thread, keep - keep / 4);
}

/* The cache is full, or the class is for no cache, or somebody is short of its blocks. */
static __attribute__((noinline)) void put_slowly(struct tn_domain *d, struct tni_thread *thread,
                                                 tni_block block)
{
    uint32_t class_id = tni_block_class(block), limit = tni_hints_cached(d, class_id);
    struct tni_block_cache *cache = &thread->caches[class_id];

    if (limit == 0 || tni_alloc_was_full(d, class_id)) {
        tni_alloc_publish(d, block);
        over_watermark(d, thread);
    } else {
        if (cache->count >= limit) {
            tni_hints_drain(d, class_id, cache,
                            limit / 2); /* the oldest, which are the coldest */
            over_watermark(d, thread);
        }
        thread->has_cached = true;
        cache->id[cache->count++] = block.id;
    }
    if (tni_alloc_is_awaited(d))
        tni_alloc_wake(d);
}

void tni_alloc_put(struct tn_domain *d, struct tni_thread *thread, tni_block block)
{
    if (TNI_UNLIKELY(!tni_alloc_put_back(d, thread, block)))
        put_slowly(d, thread, block);
}

/* ---- a domain's private state --------------------------------------------------------------
 */

TNI_AROUND_FORK static void forget(struct tn_domain *d)
{
    const struct tni_geometry *g = &d->segment.geometry;
    if (d->is_empty_in_children)
        return;
    for (uint32_t t = 0; t < TNI_THREADS; t++)
        for (uint32_t c = 1; d->threads[t].has_cached && c < g->class_count; c++)
            if (d->threads[t].caches[c].count > 0)
                d->threads[t].caches[c].count = 0;
    /* Page tables of shared memory are not copied: the child touched nothing yet. */
    tni_os_discard_private(d->mapped, g->total_blocks / 8);
}

static void free_table(struct tn_domain *d)
{
    tni_os_unmap(tni_alloc_part(d)->idle, (uint64_t)d->segment.geometry.total_blocks * 8);
}

void tni_alloc_init(struct tn_domain *d)
{
    tni_process_hook(d, &(struct tni_fork_hooks){.child = forget, .free = free_table});
}
