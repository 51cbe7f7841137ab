/* SPDX-License-Identifier: Apache-2.0 */
/* commit: puts memory behind blocks, within the quota. Private to the room alloc. */
#ifndef TNI_ALLOC_COMMIT_H
#define TNI_ALLOC_COMMIT_H

#include "process/process.h"

/** Whether [0, bytes) of the block has memory that this process has touched. */
bool tni_commit_is_there(const struct tn_domain *domain, tni_block block, uint64_t bytes);
/**
 * Whether all pages of the block's span have memory that this process has touched. This quick
 * test is true for most spans of several blocks, and false for a block that is a span by
 * itself.
 */
static inline bool tni_commit_is_whole(const struct tn_domain *domain, tni_block block)
{
    const struct tni_geometry *g = &domain->segment.geometry;
    const struct tni_class_geometry *c = &g->classes[tni_block_class(block)];
    uint32_t at = c->base + (tni_block_index(block) & ~(c->span - 1));
    uint64_t committed = atomic_load_explicit(&tni_desc_of(&domain->segment, at)->committed,
                                              memory_order_relaxed);
    uint64_t mapped = atomic_load_explicit(&domain->mapped[at / 64], memory_order_relaxed);
    return TNI_LIKELY(committed != 0 && committed == g->span_pages[tni_block_class(block)] &&
                      (mapped >> (at % 64) & 1) != 0);
}
static inline bool tni_commit_is_done(const struct tn_domain *domain, tni_block block,
                                      uint64_t bytes)
{
    return tni_commit_is_whole(domain, block) || tni_commit_is_there(domain, block, bytes);
}

/**
 * Put memory behind [0, bytes) of a block that this thread announces.
 * @return the results of tni_alloc_quota_begin()
 */
int tni_commit(struct tn_domain *domain, struct tni_thread *thread, tni_block block,
               uint64_t bytes, bool *ret_is_zero);

/**
 * The offset from which on a block has no memory. Between tni_segment_committed() and this
 * offset the block may have memory. pre: the block is a span by itself
 */
static inline uint64_t tni_commit_end(const struct tn_domain *domain, tni_block block)
{
    const struct tni_geometry *g = &domain->segment.geometry;
    uint64_t end = atomic_load_explicit(&tni_desc_at(&domain->segment, block)->memory_end,
                                        memory_order_relaxed);
    uint64_t committed = tni_segment_committed(&domain->segment, block);
    return tni_align_up(TNI_MIN(TNI_MAX(end, committed), tni_block_bytes(g, block)),
                        g->page_bytes);
}

/** Whether the block is free at this moment. Taking it checks again. */
static inline bool tni_alloc_is_free(const struct tn_domain *domain, tni_block block)
{
    uint64_t word =
        atomic_load_explicit(tni_word_at(&domain->segment, block), memory_order_relaxed);
    return tni_word_state(word) == TNI_BLOCK_FREE && tni_word_count(word) == 0;
}

/** The bytes of a span, which are committed together. */
uint64_t tni_commit_span_bytes(const struct tn_domain *domain, uint32_t class_id);

/**
 * Announce that this thread is giving up to `bytes` back to the system, so that a thread that
 * lacks memory retries instead of failing. The caller ends the announce with
 * tni_alloc_quota_end().
 */
void tni_commit_give(struct tni_thread *thread, uint64_t bytes);

#endif
