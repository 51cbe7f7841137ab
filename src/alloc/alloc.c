/* SPDX-License-Identifier: Apache-2.0 */
/*
 * alloc: finds free blocks.
 *
 * Nouns: hint (a bit: the block may be free), cache (hints that one thread record keeps),
 * frontier (blocks at and above it were never used), sweep (a scan of the words themselves).
 * I1  A thread takes a block with one CAS on its word, {FREE, 0} -> {ALLOC, 1}, while it
 *     announces the block.
 * I2  Every FREE block below its frontier has a hint, or is in a live process's cache, or its
 *     class has `sweep` set. Only a thread in the middle of an operation breaks I2; if that
 *     thread dies, the reaper sets `sweep`. A thread sets `full` before it scans the words of a
 *     class for the last time. A thread that frees a block clears `full` if `full` is set. Each
 *     of these threads writes before it reads, so no free block is overlooked.
 * I3  desc.committed never claims more memory than the block has: a thread lowers it before a
 *     discard and raises it after a commit. If a block is a span by itself, desc.memory_end
 *     never claims less memory than the block has: a thread raises it before a commit and
 *     lowers it after a discard. The bytes between `committed` and `memory_end` may have any
 *     value, and the next thread that takes the block gives that memory back. For a span of
 *     several blocks, `committed` has a bit for each page. A page whose bit is clear may hold
 *     any bytes, so no block of such a span counts as zeroed. Only a thread that has taken
 *     every block in a page discards the page. A thread that also commits pages of other
 *     blocks sets the bits of these pages only if no page of the span was discarded meanwhile.
 * I4  committed memory + all commits in flight <= quota. Each thread announces its commit
 *     before it adds up the others. While a commit is in flight, one chunk of it may count
 *     twice. A thread that is refused only for that reason gets TNI_ALLOC_AGAIN.
 *
 * A death leaves a block {ALLOC, 1} that is announced and has no record (the reaper recounts
 * the block); lost hints (I2); memory of a FREE block between `committed` and `memory_end` (the
 * next thread that takes or trims the block gives the memory back); or memory behind a clear
 * bit of a span (the next commit of the page sets the bit).
 */
#include "alloc/alloc.h"

#include "alloc/commit.h"
#include "alloc/hints.h"

/* ---- taking ------------------------------------------------------------------------------ */

/* Take a block whose word the caller read as `seen`, {FREE, 0} (I1). Announces the block. */
static inline bool try_take_seen(struct tni_thread *thread, tni_block block,
                                 _Atomic uint64_t *word, uint64_t seen)
{
    /* State and count of `seen` are 0, so this addition sets both, and raises the version. */
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
        return false; /* any process can write a wrong hint */
    _Atomic uint64_t *word = tni_word_of(&d->segment, c->base + tni_block_index(block));
    uint64_t seen = atomic_load_explicit(word, memory_order_relaxed);
    if (TNI_UNLIKELY((seen & TNI_WORD_USED) != 0))
        return false;
    tni_yield_to_recount(thread, block, 1);
    return try_take_seen(thread, block, word, seen);
}

bool tni_alloc_try_take(struct tn_domain *d, struct tni_thread *thread, tni_block block)
{
    return try_take(d, thread, block);
}

static void untake(struct tn_domain *d, struct tni_thread *thread, tni_block block)
{
    tni_alloc_untake(d, block);
    tni_announce_clear(thread);
}

/*
 * When the table of blocks or the quota is used up: take a free block of the class, with memory
 * behind [0, bytes), from the cache of another thread.
 */
static bool steal(struct tn_domain *d, struct tni_thread *thread, uint32_t class_id,
                  uint64_t bytes, tni_block *ret_block)
{
    uint32_t frontier = tni_frontier(&d->segment, class_id);
    for (uint32_t i = 0; i < frontier; i++) {
        tni_block block = tni_block_make(class_id, i);
        _Atomic uint64_t *word = tni_word_at(&d->segment, block);
        /*
         * A trim changes the word, so the block keeps its memory while the word is unchanged
         * (I3). This load pairs with the CAS with which a trim frees the block again.
         */
        uint64_t seen = atomic_load_explicit(word, memory_order_acquire);
        if ((seen & TNI_WORD_USED) != 0 || tni_segment_committed(&d->segment, block) < bytes)
            continue;
        tni_yield_to_recount(thread, block, 1);
        if (try_take_seen(thread, block, word, seen)) {
            *ret_block = block;
            return true;
        }
    }
    return false;
}

/*
 * When a class seems to be used up: take a block from another thread's cache, preferably a
 * block that has memory, or leave the class marked as `full` (I2).
 */
static bool steal_or_mark_full(struct tn_domain *d, struct tni_thread *thread,
                               uint32_t class_id, uint64_t bytes, tni_block *ret_block)
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
    /* At most two tries for each block: wrong hints must not keep this loop going for ever. */
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

/* Take a block of a class: normally the one that this thread freed last. */
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
 * The commit of `taken` failed with `status`. Use memory that free blocks still have: take a
 * free block that has enough memory, or give back as much free memory as this thread lacks, and
 * retry. The retry takes the same block, and the memory of that block is not given back:
 * otherwise each round could give back the memory that the next round needs. TN_ERR_NO_MEMORY:
 * no free memory is left to give back.
 */
static int trim_and_retry(struct tn_domain *d, struct tni_thread *thread, uint64_t bytes,
                          int status, struct tni_new_block *taken)
{
    enum { ROUNDS = 8 }; /* other threads may use the memory that was given back */
    uint32_t class_id = tni_block_class(taken->block);
    bool is_last = false;
    for (uint32_t round = 0;; round++) {
        untake(d, thread, taken->block);
        if (status != TN_ERR_NO_MEMORY && status != TNI_ALLOC_AGAIN)
            return status;
        if (round == 0 && steal(d, thread, class_id, bytes, &taken->block))
            return 0;
        if (status == TNI_ALLOC_AGAIN || is_last)
            return status;
        /* If nothing is left to trim, retry once: other threads may have freed enough. */
        is_last = tni_alloc_trim_some(d, thread, thread->missing_bytes, taken->block) == 0;
        if (round == ROUNDS || (!try_take(d, thread, taken->block) &&
                                !take_candidate(d, thread, class_id, &taken->block)))
            return TNI_ALLOC_AGAIN;
        status = tni_commit(d, thread, taken->block, bytes, &taken->is_zero);
        if (status == 0)
            return 0;
    }
}

/* No block of the class is free: take a block of one of the next few larger classes. */
static bool take_larger(struct tn_domain *d, struct tni_thread *thread, uint32_t class_id,
                        uint8_t kind, tni_block *ret_block)
{
    enum { LARGER_CLASSES = 4 };
    uint32_t end = kind == TNI_KIND_MESSAGE   ? TNI_MESSAGE_CLASSES + 1
                   : kind == TNI_KIND_BACKING ? 0
                                              : d->segment.geometry.host_classes;
    for (uint32_t c = class_id + 1; c <= class_id + LARGER_CLASSES && c < end; c++)
        if (take_candidate(d, thread, c, ret_block) ||
            steal_or_mark_full(d, thread, c, 0, ret_block))
            return true;
    return false;
}

int tni_alloc_take(struct tn_domain *d, struct tni_thread *thread,
                   const struct tni_alloc_request *request, struct tni_new_block *ret_new)
{
    uint64_t bytes = request->bytes;
    uint32_t class_id = tni_geometry_class(&d->segment.geometry, bytes, request->kind);
    tni_block block;

    ret_new->is_zero = false;
    if (class_id == 0)
        return request->kind == TNI_KIND_MESSAGE
                   ? tni_fail(TN_ERR_INVALID, "a message of %llu bytes is too large",
                              (unsigned long long)bytes)
                   : tni_fail(TN_ERR_NO_MEMORY,
                              "%llu bytes are more than the domain's quota of %llu",
                              (unsigned long long)bytes,
                              (unsigned long long)d->segment.geometry.quota_limit_bytes);
    if (TNI_UNLIKELY(!take_candidate(d, thread, class_id, &block)) &&
        !steal_or_mark_full(d, thread, class_id, request->is_uncommitted ? 0 : bytes, &block) &&
        !take_larger(d, thread, class_id, request->kind, &block))
        return tni_fail(TN_ERR_FULL, "all %u blocks of %llu bytes are in use",
                        d->segment.geometry.classes[class_id].capacity,
                        (unsigned long long)d->segment.geometry.classes[class_id].size_bytes);
    ret_new->block = block;
    if (request->is_uncommitted || TNI_LIKELY(tni_commit_is_done(d, block, bytes)))
        return 0;
    int status = tni_commit(d, thread, block, bytes, &ret_new->is_zero);
    if (TNI_UNLIKELY(status != 0))
        status = trim_and_retry(d, thread, bytes, status, ret_new);
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
    /* I3: the block has memory as long as its word does not change. */
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
    uint32_t top = cache->count - 1; /* wraps if the cache is empty: the next test fails then */
    if (TNI_UNLIKELY(top >= TNI_CACHE_BLOCKS) || TNI_UNLIKELY(cache->id[top] != block.id) ||
        tni_thread_sees_recount(thread) ||
        TNI_UNLIKELY(!try_take_seen(thread, block, word, seen)))
        return false;
    cache->count = top;
    return true;
}

/* ---- giving back ------------------------------------------------------------------------- */

static void trim_to_watermark(struct tn_domain *d, struct tni_thread *thread)
{
    uint64_t keep =
        atomic_load_explicit(&d->segment.header->watermark_bytes, memory_order_relaxed);
    if (atomic_load_explicit(&d->segment.header->free_bytes, memory_order_relaxed) > keep)
        tni_alloc_trim(d, thread, keep - keep / 4);
}

/* Put a block back: the cache is full or missing, or a thread waits for blocks or memory. */
static __attribute__((noinline)) void put_slowly(struct tn_domain *d, struct tni_thread *thread,
                                                 tni_block block)
{
    uint32_t class_id = tni_block_class(block), limit = tni_hints_cached(d, class_id);
    struct tni_block_cache *cache = &thread->caches[class_id];

    if (limit == 0 || tni_alloc_was_full(d, class_id)) {
        tni_alloc_publish(d, block);
        trim_to_watermark(d, thread);
    } else {
        if (cache->count >= limit) {
            tni_hints_drain(d, class_id, cache,
                            limit / 2); /* the oldest hints: CPU caches have them least */
            trim_to_watermark(d, thread);
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

/* ---- a domain's private state ------------------------------------------------------------ */

/* In a forked child: drop the hints that belong to the parent. */
TNI_AROUND_FORK static void empty_caches(struct tn_domain *d)
{
    const struct tni_geometry *g = &d->segment.geometry;
    if (d->is_empty_in_children)
        return;
    for (uint32_t t = 0; t < TNI_THREADS; t++)
        for (uint32_t c = 1; d->threads[t].has_cached && c < g->class_count; c++)
            if (d->threads[t].caches[c].count > 0)
                d->threads[t].caches[c].count = 0;
    /* fork() does not copy page tables of shared memory: the child has no page mapped yet. */
    tni_os_discard_private(d->mapped, g->total_blocks / 8);
}

static void free_table(struct tn_domain *d)
{
    tni_os_unmap(tni_alloc_part(d)->idle, (uint64_t)d->segment.geometry.total_blocks * 8);
}

void tni_alloc_init(struct tn_domain *d)
{
    tni_process_hook(d, &(struct tni_fork_hooks){.child = empty_caches, .free = free_table});
}
