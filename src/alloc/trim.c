/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trim: gives free memory back to the system, that of the largest blocks first. From a span of
 * small blocks, each page in which every block is free is given back.
 *
 * A trim takes all blocks in the pages under one announce, so that no thread gets such a block
 * while its pages are discarded. A death leaves announced blocks without a record, which the
 * reaper frees.
 */
#include "alloc/alloc.h"
#include "alloc/commit.h"
#include "alloc/hints.h"

static const tni_block none = {0};

/*
 * The pages of a span that have memory and in which every block is free, a bit each. For a
 * block that is a span by itself: 1 if the block is free and has memory.
 */
static uint64_t free_pages(const struct tn_domain *d, tni_block first, uint32_t count)
{
    const struct tni_geometry *g = &d->segment.geometry;
    uint64_t pages =
        atomic_load_explicit(&tni_desc_at(&d->segment, first)->committed, memory_order_relaxed);
    if (g->classes[tni_block_class(first)].span == 1)
        return tni_alloc_is_free(d, first) && tni_commit_end(d, first) != 0;
    pages &= ~TNI_SPAN_TRIMMED;
    uint64_t size_bytes = g->classes[tni_block_class(first)].size_bytes;
    for (uint64_t i = 0; pages != 0 && i < count; i++) {
        tni_block block = {first.id + (uint32_t)i};
        if (tni_alloc_is_free(d, block))
            continue;
        /* Go on with the block that has the first byte behind the last page of this block. */
        pages &= ~tni_block_pages(g, block);
        i = tni_align_up((i + 1) * size_bytes, g->page_bytes) / size_bytes - 1;
    }
    return pages;
}

void tni_alloc_untake_span(struct tn_domain *d, tni_block first, uint32_t count)
{
    bool was_full = false;
    for (uint32_t i = 0; i < count; i++)
        was_full |= tni_alloc_untake(d, (tni_block){first.id + i});
    if (was_full)
        tni_alloc_wake(d);
}

bool tni_alloc_take_span(struct tn_domain *d, tni_block first, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        _Atomic uint64_t *word = tni_word_at(&d->segment, (tni_block){first.id + i});
        uint64_t seen = atomic_load(word);
        if (tni_word_state(seen) == TNI_BLOCK_FREE && tni_word_count(seen) == 0 &&
            atomic_compare_exchange_strong(word, &seen,
                                           tni_word_next(seen, TNI_BLOCK_ALLOC, 1)))
            continue;
        tni_alloc_untake_span(d, first, i);
        return false;
    }
    return true;
}

/*
 * Discard up to `enough` bytes at the end of a block, so that the beginning of the block keeps
 * its memory. Memory beyond `committed` is discarded first. pre: this thread has taken the
 * block
 */
static uint64_t discard_end(struct tn_domain *d, tni_block block, uint64_t enough)
{
    uint64_t page_bytes = d->segment.geometry.page_bytes;
    struct tni_desc *desc = tni_desc_at(&d->segment, block);
    uint64_t had = tni_align_up(tni_segment_committed(&d->segment, block), page_bytes);
    uint64_t end = tni_commit_end(d, block);
    uint64_t keep = end > enough ? (end - enough) & ~(page_bytes - 1) : 0;
    keep = TNI_MIN(keep, had);
    atomic_store(&desc->committed, keep); /* must come before the discard: alloc.c I3 */
    TNI_KILL_POINT("trim_begun");
    if (end > keep && tni_segment_discard(&d->segment, block, keep, end - keep) != 0) {
        atomic_store(&desc->committed, had);
        return 0;
    }
    atomic_store(&desc->memory_end, keep); /* must come after the discard: I3 */
    return end - keep;
}

/*
 * Discard `count` pages of a span, from page `from` on. pre: this thread has taken every block
 * in these pages
 * @return bytes of the pages whose bit was set: other threads may have discarded some before
 */
static uint64_t discard_pages(struct tn_domain *d, tni_block first, uint32_t from,
                              uint32_t count)
{
    uint64_t page_bytes = d->segment.geometry.page_bytes;
    _Atomic uint64_t *committed = &tni_desc_at(&d->segment, first)->committed;
    uint64_t pages = ((UINT64_C(1) << count) - 1) << from, seen = atomic_load(committed);
    bool is_whole = count * page_bytes == tni_commit_span_bytes(d, tni_block_class(first));
    /* Clear the bits before the discard, and tell threads that commit the span (alloc.c I3). */
    while (!atomic_compare_exchange_weak(committed, &seen,
                                         is_whole ? 0 : (seen & ~pages) | TNI_SPAN_TRIMMED))
        ;
    if (tni_segment_discard(&d->segment, first, from * page_bytes, count * page_bytes) == 0)
        return tni_bit_count(pages & seen) * page_bytes;
    atomic_fetch_or(committed, pages & seen);
    return 0;
}

static void end_trim(struct tni_thread *thread)
{
    tni_alloc_quota_end(thread);
    tni_announce_clear(thread);
    atomic_store_explicit(&thread->announce->span, 1, memory_order_relaxed);
}

/* Adjacent blocks to take, and the memory behind them to discard. */
struct part {
    tni_block block;
    uint32_t blocks;
    tni_block first;      /* the span's first block */
    uint32_t from, count; /* pages, in a span of several blocks */
    uint64_t enough;      /* how many bytes at most, if the block is a span by itself */
};

static uint64_t trim_part(struct tn_domain *d, struct tni_thread *thread,
                          const struct part *part)
{
    const struct tni_geometry *g = &d->segment.geometry;
    bool is_alone = g->classes[tni_block_class(part->first)].span == 1;
    uint64_t bytes = 0;
    tni_announce(thread, part->block, part->blocks);
    tni_commit_give(thread, is_alone ? TNI_MIN(part->enough, tni_commit_end(d, part->block))
                                     : (uint64_t)part->count * g->page_bytes);
    if (tni_alloc_take_span(d, part->block, part->blocks)) {
        TNI_KILL_POINT("trim_span_taken");
        bytes = is_alone ? discard_end(d, part->block, part->enough)
                         : discard_pages(d, part->first, part->from, part->count);
        TNI_KILL_POINT("trim_discarded");
        tni_alloc_untake_span(d, part->block, part->blocks);
    }
    end_trim(thread);
    return bytes;
}

static uint64_t trim_large(struct tn_domain *d, struct tni_thread *thread, tni_block block,
                           uint64_t enough)
{
    const struct part part = {.block = block, .blocks = 1, .first = block, .enough = enough};
    return trim_part(d, thread, &part);
}

/* Discard adjacent pages of a span: take every block that has bytes in them. */
static uint64_t trim_run(struct tn_domain *d, struct tni_thread *thread, tni_block first,
                         uint32_t from, uint32_t count)
{
    const struct tni_class_geometry *c = &d->segment.geometry.classes[tni_block_class(first)];
    uint64_t page_bytes = d->segment.geometry.page_bytes;
    uint64_t begin = from * page_bytes / c->size_bytes;
    uint64_t end = ((from + count) * page_bytes + c->size_bytes - 1) / c->size_bytes;
    end = TNI_MIN(end, TNI_MIN((uint64_t)c->span, c->capacity - tni_block_index(first)));
    const struct part part = {.block = {first.id + (uint32_t)begin},
                              .blocks = (uint32_t)(end - begin),
                              .first = first,
                              .from = from,
                              .count = count};
    return trim_part(d, thread, &part);
}

/* Called for a span whose `pages` are free. @return bytes that can be, or were, given back */
typedef uint64_t span_fn(struct tn_domain *, struct tni_thread *, tni_block, uint64_t pages,
                         uint64_t enough);

static uint64_t count_span(struct tn_domain *d, struct tni_thread *thread, tni_block first,
                           uint64_t pages, uint64_t enough)
{
    const struct tni_geometry *g = &d->segment.geometry;
    (void)thread;
    (void)enough;
    if (g->classes[tni_block_class(first)].span == 1)
        return tni_commit_end(d, first);
    return tni_bit_count(pages) * (uint64_t)g->page_bytes;
}

static uint64_t trim_span(struct tn_domain *d, struct tni_thread *thread, tni_block first,
                          uint64_t pages, uint64_t enough)
{
    uint64_t page_bytes = d->segment.geometry.page_bytes, freed = 0;
    if (d->segment.geometry.classes[tni_block_class(first)].span == 1)
        return trim_large(d, thread, first, enough);
    while (pages != 0 && freed < enough) {
        uint32_t from = tni_low_bit(pages);
        uint32_t count = tni_low_bit(~(pages >> from));
        uint64_t wanted = (enough - freed - 1) / page_bytes + 1;
        count = (uint32_t)TNI_MIN((uint64_t)count, wanted);
        freed += trim_run(d, thread, first, from, count);
        pages &= ~(((UINT64_C(1) << count) - 1) << from);
    }
    return freed;
}

/* The pages of `block`, a bit each, as free_pages() has them. */
static uint64_t own_pages(const struct tn_domain *d, tni_block block)
{
    const struct tni_geometry *g = &d->segment.geometry;
    return g->classes[tni_block_class(block)].span == 1 ? 1 : tni_block_pages(g, block);
}

/*
 * Call `each` for spans, largest blocks first, until the sum of its results reaches `enough`.
 * The pages of the block `kept` keep their memory.
 */
static uint64_t for_each_span(struct tn_domain *d, struct tni_thread *thread, uint64_t enough,
                              span_fn *each, tni_block kept)
{
    tni_block kept_first = tni_block_leader(&d->segment.geometry, kept);
    uint64_t sum = 0;
    for (uint32_t class_id = d->segment.geometry.host_classes - 1; class_id >= 1; class_id--) {
        const struct tni_class_geometry *c = &d->segment.geometry.classes[class_id];
        uint32_t frontier = tni_frontier(&d->segment, class_id);
        for (uint32_t i = 0; i < frontier && sum < enough; i += c->span) {
            tni_block first = tni_block_make(class_id, i);
            uint64_t pages = free_pages(d, first, TNI_MIN(c->span, c->capacity - i));
            if (first.id == kept_first.id)
                pages &= ~own_pages(d, kept);
            if (pages != 0)
                sum += each(d, thread, first, pages, enough - sum);
        }
    }
    return sum;
}

uint64_t tni_alloc_trim(struct tn_domain *d, struct tni_thread *thread, uint64_t keep_bytes)
{
    uint64_t have = for_each_span(d, thread, UINT64_MAX, count_span, none);
    uint64_t freed = 0;

    if (have > keep_bytes)
        freed = for_each_span(d, thread, have - keep_bytes, trim_span, none);
    atomic_store_explicit(&d->segment.header->free_bytes, have - TNI_MIN(have, freed),
                          memory_order_relaxed);
    if (freed > 0)
        tni_alloc_wake(d);
    return freed;
}

uint64_t tni_alloc_trim_some(struct tn_domain *d, struct tni_thread *thread, uint64_t bytes,
                             tni_block kept)
{
    uint64_t freed = for_each_span(d, thread, bytes, trim_span, kept);
    tni_alloc_note_taken(d, freed);
    return freed;
}

/* ---- by age ------------------------------------------------------------------------------ */

/* The sum of a span's words. If any word changes, the sum changes: versions only rise. */
static uint64_t sum_words(const struct tn_domain *d, tni_block first)
{
    const struct tni_class_geometry *c = &d->segment.geometry.classes[tni_block_class(first)];
    uint32_t count = TNI_MIN(c->span, c->capacity - tni_block_index(first));
    uint64_t sum = 0;
    for (uint32_t i = 0; i < count; i++)
        sum += atomic_load_explicit(tni_word_at(&d->segment, (tni_block){first.id + i}),
                                    memory_order_relaxed);
    return sum;
}

static uint64_t trim_if_idle(struct tn_domain *d, struct tni_thread *thread, tni_block first,
                             uint64_t pages, uint64_t enough)
{
    enum { PIECE_BYTES = 64 << 20 }; /* another thread can take the block between two pieces */
    const struct tni_class_geometry *c = &d->segment.geometry.classes[tni_block_class(first)];
    uint64_t *seen = &tni_alloc_part(d)->idle[c->base + tni_block_index(first) / c->span];
    uint64_t sum = sum_words(d, first), freed = 0, part = 1;
    uint64_t most = count_span(d, thread, first, pages, enough);
    if (*seen != sum) {
        *seen = sum;
        return 0;
    }
    if (c->span != 1)
        return trim_span(d, thread, first, pages, most);
    /* Stop after `most` bytes: another thread may take the block and commit it again. */
    while (part != 0 && freed < most && free_pages(d, first, 1) != 0) {
        part = trim_span(d, thread, first, pages, PIECE_BYTES);
        freed += part;
    }
    return freed;
}

/* Begin a scan for idle memory, if it is due. @return whether this thread does the scan */
static bool begin_idle(struct tn_domain *d)
{
    uint64_t now_ns = tni_os_now_ns(), due_ns = atomic_load(&tni_alloc_part(d)->idle_ns),
             committed = 0;
    if (now_ns < due_ns ||
        !atomic_compare_exchange_strong(&tni_alloc_part(d)->idle_ns, &due_ns,
                                        now_ns + TNI_IDLE_NS) ||
        tni_os_memory_committed(d->segment.arena_fd, &committed) != 0 || committed == 0)
        return false;
    void *idle = tni_alloc_part(d)->idle;
    if (idle == NULL &&
        tni_os_map_private((uint64_t)d->segment.geometry.total_blocks * 8, &idle) != 0)
        return false;
    tni_alloc_part(d)->idle = idle;
    return true;
}

void tni_alloc_trim_idle(struct tn_domain *d)
{
    enum { SHARE = 200 }; /* the pause after a scan is 200 times the scan, at most 30 s */
    if (!begin_idle(d))
        return;
    uint64_t begun_ns = tni_os_now_ns();
    struct tni_thread *thread = tni_thread_enter(d);
    tni_alloc_note_taken(d, for_each_span(d, thread, UINT64_MAX, trim_if_idle, none));
    tni_thread_leave(thread);
    uint64_t done_ns = tni_os_now_ns();
    atomic_store(&tni_alloc_part(d)->idle_ns,
                 done_ns + tni_pause_ns(done_ns - begun_ns, SHARE, TNI_IDLE_NS));
}
