/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hints: keeps hints where free blocks are, and wakes up threads that wait for memory.
 *
 * A hint is one bit for each block. Each class has a cursor at which the next search begins. A
 * hint may be wrong in both directions: the word of the block decides (alloc.c, I1, I2).
 */
#include <string.h>

#include "alloc/commit.h"
#include "alloc/hints.h"
#include "wait/wait.h"

/* Bytes of the arena: blocks of devices have none. */
static uint64_t payload_bytes(const struct tn_domain *d, uint32_t class_id, uint32_t blocks)
{
    if (tni_class_is_device(&d->segment.geometry, class_id))
        return 0;
    return d->segment.geometry.classes[class_id].size_bytes * blocks;
}

static void note_free(struct tn_domain *d, uint64_t bytes)
{
    atomic_fetch_add_explicit(&d->segment.header->free_bytes, bytes, memory_order_relaxed);
}

void tni_alloc_note_taken(struct tn_domain *d, uint64_t bytes)
{
    _Atomic uint64_t *total = &d->segment.header->free_bytes;
    if (atomic_fetch_sub_explicit(total, bytes, memory_order_relaxed) < bytes)
        /* The total is an estimate, but it must not wrap around to a huge number. */
        atomic_store_explicit(total, 0, memory_order_relaxed);
}

/* Publish hints. Adjacent `ids` whose hints are in one word take one atomic operation. */
static void publish(struct tn_domain *d, const uint32_t *ids, uint32_t count)
{
    const struct tni_geometry *g = &d->segment.geometry;
    uint32_t i = 0;
    while (i < count) {
        uint32_t position = tni_block_position(g, (tni_block){ids[i]});
        uint64_t bits = 0;
        for (; i < count; i++) {
            uint32_t next = tni_block_position(g, (tni_block){ids[i]});
            if (next / 64 != position / 64)
                break;
            bits |= UINT64_C(1) << (next % 64);
        }
        atomic_fetch_or(tni_hints_at(&d->segment, position), bits);
    }
}

/* Search the hints of a class from its cursor on, and take up to `want`. @return how many */
static uint32_t fetch_hints(struct tn_domain *d, uint32_t class_id, uint32_t want,
                            uint32_t *ret_ids)
{
    const struct tni_class_geometry *c = &d->segment.geometry.classes[class_id];
    struct tni_class *shared = tni_class_at(&d->segment, class_id);
    uint32_t frontier = tni_frontier(&d->segment, class_id), words = (frontier + 63) / 64;
    uint32_t start = atomic_load_explicit(&shared->cursor, memory_order_relaxed);
    uint32_t count = 0;

    if (words == 0)
        return 0;
    if (start >= words)
        start = 0;
    for (uint32_t n = 0; n < words && count < want; n++) {
        uint32_t w = start + n < words ? start + n : start + n - words;
        _Atomic uint64_t *hints = tni_hints_at(&d->segment, c->base + w * 64);
        uint64_t seen = atomic_load_explicit(hints, memory_order_relaxed);
        if (w == words - 1 && frontier % 64 != 0)
            seen &= (UINT64_C(1) << (frontier % 64)) - 1; /* hints at and above it are damage */
        if (seen == 0)
            continue;
        uint64_t taken = seen;
        for (uint32_t have = (uint32_t)__builtin_popcountll(taken); have > want - count; have--)
            taken &= ~(UINT64_C(1) << (63 - __builtin_clzll(taken)));
        taken &= atomic_fetch_and(hints, ~taken);
        if (n != 0)
            atomic_store_explicit(&shared->cursor, w, memory_order_relaxed);
        /* Push the highest first, so that the lowest is popped first. */
        for (; taken != 0; count++) {
            uint32_t bit = 63 - (uint32_t)__builtin_clzll(taken);
            taken &= ~(UINT64_C(1) << bit);
            ret_ids[count] = tni_block_make(class_id, w * 64 + bit).id;
        }
    }
    if (count > 0)
        tni_alloc_note_taken(d, payload_bytes(d, class_id, count));
    return count;
}

uint32_t tni_hints_sweep(struct tn_domain *d, uint32_t class_id)
{
    uint32_t frontier = tni_frontier(&d->segment, class_id), found = 0;
    for (uint32_t i = 0; i < frontier; i++) {
        tni_block block = tni_block_make(class_id, i);
        uint64_t word =
            atomic_load_explicit(tni_word_at(&d->segment, block), memory_order_relaxed);
        if (tni_word_state(word) == TNI_BLOCK_FREE) {
            publish(d, &block.id, 1);
            found++;
        }
    }
    return found;
}

/* Take blocks that were never used: move the frontier by a span. @return how many */
static uint32_t advance(struct tn_domain *d, uint32_t class_id, uint32_t *ret_ids)
{
    const struct tni_class_geometry *c = &d->segment.geometry.classes[class_id];
    struct tni_class *shared = tni_class_at(&d->segment, class_id);
    uint32_t from = atomic_load(&shared->frontier);
    uint32_t step;
    do {
        if (from >= c->capacity)
            return 0;
        step = TNI_MIN(TNI_MIN(c->span, TNI_CACHE_BLOCKS), c->capacity - from);
    } while (!atomic_compare_exchange_weak(&shared->frontier, &from, from + step));
    TNI_KILL_POINT("alloc_frontier_moved");
    for (uint32_t i = 0; i < step; i++)
        ret_ids[i] = tni_block_make(class_id, from + step - 1 - i).id;
    return step;
}

uint32_t tni_hints_refill(struct tn_domain *d, uint32_t class_id, struct tni_block_cache *cache)
{
    struct tni_class *shared = tni_class_at(&d->segment, class_id);
    uint32_t want = TNI_MAX(1, TNI_MIN(tni_hints_cached(d, class_id), TNI_FETCH_BLOCKS));

    cache->count = 0;
    if (atomic_load_explicit(&shared->full, memory_order_relaxed) != 0)
        return 0;
    cache->count = fetch_hints(d, class_id, want, cache->id);
    if (cache->count == 0 && atomic_load_explicit(&shared->sweep, memory_order_relaxed) != 0 &&
        atomic_exchange(&shared->sweep, 0) != 0 && tni_hints_sweep(d, class_id) > 0)
        cache->count = fetch_hints(d, class_id, want, cache->id);
    if (cache->count == 0)
        cache->count = advance(d, class_id, cache->id);
    return cache->count;
}

void tni_hints_drain(struct tn_domain *d, uint32_t class_id, struct tni_block_cache *cache,
                     uint32_t count)
{
    publish(d, cache->id, count);
    note_free(d, payload_bytes(d, class_id, count));
    cache->count -= count;
    memmove(cache->id, cache->id + count, cache->count * sizeof cache->id[0]);
}

bool tni_alloc_publish(struct tn_domain *d, tni_block block)
{
    uint32_t class_id = tni_block_class(block);
    publish(d, &block.id, 1);
    note_free(d, payload_bytes(d, class_id, 1));
    bool was_full = tni_alloc_was_full(d, class_id);
    if (was_full)
        atomic_store(&tni_class_at(&d->segment, class_id)->full, 0);
    return was_full;
}

bool tni_alloc_untake(struct tn_domain *d, tni_block block)
{
    _Atomic uint64_t *word = tni_word_at(&d->segment, block);
    uint64_t seen = atomic_load(word);
    while (!atomic_compare_exchange_weak(word, &seen,
                                         tni_word_count(seen) == 1
                                             ? tni_word_next(seen, TNI_BLOCK_FREE, 0)
                                             : seen + TNI_WORD_DEC))
        ;
    return tni_alloc_publish(d, block);
}

void tni_alloc_flush(struct tn_domain *d, struct tni_thread *thread)
{
    for (uint32_t c = 1; c < d->segment.geometry.class_count; c++)
        if (thread->caches[c].count > 0)
            tni_hints_drain(d, c, &thread->caches[c], thread->caches[c].count);
}

void tni_alloc_mark_sweep(struct tn_domain *d)
{
    for (uint32_t c = 1; c < d->segment.geometry.class_count; c++) {
        struct tni_class *shared = tni_class_at(&d->segment, c);
        atomic_store(&shared->sweep, 1);
        atomic_store(&shared->full, 0); /* a process that freed a block may have died before it
                                           cleared `full` */
    }
}

uint32_t tni_alloc_arm(struct tn_domain *d)
{
    return tni_wait_arm(&d->segment.header->memory_wait);
}

void tni_alloc_wake(struct tn_domain *d)
{
    tni_wait_notify(&d->segment.header->memory_wait, INT32_MAX);
}
