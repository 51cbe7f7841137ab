/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trim: free memory goes back to the system, span by span, the largest blocks first.
 *
 * A span is taken whole under one announce, so that nobody gets a block of it while its pages
 * go, and a death leaves blocks that nobody recorded, which the reaper frees.
 */
#include "alloc/alloc.h"
#include "alloc/commit.h"

static bool is_free(const struct tn_domain *d, tni_block block)
{
    uint64_t word = atomic_load_explicit(tni_word_at(&d->segment, block), memory_order_relaxed);
    return tni_word_state(word) == TNI_BLOCK_FREE && tni_word_count(word) == 0;
}

/* Memory behind a span of which every block is free; 0 otherwise. */
static uint64_t free_bytes_of_span(const struct tn_domain *d, tni_block first, uint32_t count)
{
    uint64_t bytes =
        atomic_load_explicit(&tni_desc_at(&d->segment, first)->committed, memory_order_relaxed);
    for (uint32_t i = 0; bytes != 0 && i < count; i++)
        if (!is_free(d, (tni_block){first.id + i}))
            bytes = 0;
    return TNI_MIN(bytes, tni_commit_span_bytes(d, tni_block_class(first)));
}

/* Take every block of a span, or none. */
static bool take_span(struct tn_domain *d, tni_block first, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        _Atomic uint64_t *word = tni_word_at(&d->segment, (tni_block){first.id + i});
        uint64_t seen = atomic_load(word);
        if (tni_word_state(seen) == TNI_BLOCK_FREE && tni_word_count(seen) == 0 &&
            atomic_compare_exchange_strong(word, &seen,
                                           tni_word_next(seen, TNI_BLOCK_ALLOC, 1)))
            continue;
        while (i-- > 0)
            tni_alloc_untake(d, (tni_block){first.id + i});
        return false;
    }
    return true;
}

/*
 * A span of several blocks goes whole; of a large block, its end: what it keeps is warm for the
 * next. @return bytes given back
 */
static uint64_t discard_span(struct tn_domain *d, struct tni_thread *thread, tni_block first,
                             uint32_t count, uint64_t enough)
{
    struct tni_desc *desc = tni_desc_at(&d->segment, first);
    uint64_t page_bytes = d->segment.geometry.page_bytes;
    uint64_t bytes = 0, keep = 0;
    int status = 0;

    tni_announce(thread, first, count);
    if (take_span(d, first, count)) {
        TNI_KILL_POINT("trim_span_taken");
        bytes = atomic_load(&desc->committed);
        bytes = TNI_MIN(bytes, tni_commit_span_bytes(d, tni_block_class(first)));
        bytes = tni_align_up(bytes, page_bytes);
        if (count == 1 && bytes > enough)
            keep = (bytes - enough) & ~(page_bytes - 1);
        atomic_store(&desc->committed, keep); /* alloc.c I3: before the pages go */
        if (bytes > keep)
            status = tni_os_discard((uint8_t *)tni_payload_at(&d->segment, first) + keep,
                                    bytes - keep);
        TNI_KILL_POINT("trim_discarded");
        if (status != 0) {
            atomic_store(&desc->committed, bytes);
            bytes = keep;
        }
        for (uint32_t i = 0; i < count; i++)
            tni_alloc_untake(d, (tni_block){first.id + i});
    }
    tni_announce_clear(thread);
    atomic_store_explicit(&thread->announce->span, 1, memory_order_relaxed);
    return bytes - keep;
}

/* @return bytes that it has, or gave back: `enough` of a larger block */
typedef uint64_t span_fn(struct tn_domain *, struct tni_thread *, tni_block, uint32_t count,
                         uint64_t enough);

static uint64_t count_span(struct tn_domain *d, struct tni_thread *thread, tni_block first,
                           uint32_t count, uint64_t enough)
{
    (void)thread;
    (void)enough;
    return free_bytes_of_span(d, first, count);
}

static uint64_t trim_span(struct tn_domain *d, struct tni_thread *thread, tni_block first,
                          uint32_t count, uint64_t enough)
{
    return free_bytes_of_span(d, first, count) != 0
               ? discard_span(d, thread, first, count, enough)
               : 0;
}

/*
 * Call `each` for spans, largest blocks first, until the sum of its results reaches `enough`.
 */
static uint64_t for_each_span(struct tn_domain *d, struct tni_thread *thread, uint64_t enough,
                              span_fn *each)
{
    uint64_t sum = 0;
    for (uint32_t class_id = d->segment.geometry.class_count - 1; class_id >= 1; class_id--) {
        const struct tni_class_geometry *c = &d->segment.geometry.classes[class_id];
        uint32_t frontier = tni_frontier(&d->segment, class_id);
        for (uint32_t i = 0; i < frontier && sum < enough; i += c->span)
            sum += each(d, thread, tni_block_make(class_id, i),
                        TNI_MIN(c->span, c->capacity - i), enough - sum);
    }
    return sum;
}

uint64_t tni_alloc_trim(struct tn_domain *d, struct tni_thread *thread, uint64_t keep_bytes)
{
    uint64_t have = for_each_span(d, thread, UINT64_MAX, count_span);
    uint64_t freed = 0;

    if (have > keep_bytes)
        freed = for_each_span(d, thread, have - keep_bytes, trim_span);
    atomic_store_explicit(&d->segment.header->free_bytes, have - TNI_MIN(have, freed),
                          memory_order_relaxed);
    if (freed > 0)
        tni_alloc_wake(d);
    return freed;
}

uint64_t tni_alloc_trim_some(struct tn_domain *d, struct tni_thread *thread, uint64_t bytes)
{
    uint64_t freed = for_each_span(d, thread, bytes, trim_span);
    tni_alloc_note_taken(d, freed);
    if (freed > 0)
        tni_alloc_wake(d);
    return freed;
}
