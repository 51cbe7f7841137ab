/* SPDX-License-Identifier: Apache-2.0 */
/* commit: see alloc.c for the invariants (I3, I4). */
#include "alloc/commit.h"

#include "alloc/alloc.h"

/* The first block of the span that `block` belongs to. */
static tni_block leader(const struct tn_domain *d, tni_block block)
{
    uint32_t span = d->segment.geometry.classes[tni_block_class(block)].span;
    return (tni_block){block.id & ~(span - 1)};
}

uint64_t tni_commit_span_bytes(const struct tn_domain *d, uint32_t class_id)
{
    const struct tni_class_geometry *c = &d->segment.geometry.classes[class_id];
    return c->span * c->size_bytes;
}

static bool was_touched(const struct tn_domain *d, tni_block first)
{
    uint32_t at = tni_block_position(&d->segment.geometry, first);
    return atomic_load_explicit(&d->mapped[at / 64], memory_order_relaxed) >> (at % 64) & 1;
}

static void set_touched(struct tn_domain *d, tni_block first)
{
    uint32_t at = tni_block_position(&d->segment.geometry, first);
    atomic_fetch_or_explicit(&d->mapped[at / 64], UINT64_C(1) << (at % 64),
                             memory_order_relaxed);
}

static void clear_touched(struct tn_domain *d, tni_block first)
{
    uint32_t at = tni_block_position(&d->segment.geometry, first);
    atomic_fetch_and_explicit(&d->mapped[at / 64], ~(UINT64_C(1) << (at % 64)),
                              memory_order_relaxed);
}

uint64_t tni_alloc_committed(const struct tn_domain *d, tni_block block)
{
    tni_block first = leader(d, block);
    uint64_t bytes =
        atomic_load_explicit(&tni_desc_at(&d->segment, first)->committed, memory_order_relaxed);
    uint64_t size = tni_block_bytes(&d->segment.geometry, block);
    if (d->segment.geometry.classes[tni_block_class(block)].span == 1)
        return TNI_MIN(bytes, size);
    return bytes != 0 ? size : 0;
}

void tni_alloc_set_committed(struct tn_domain *d, tni_block block, uint64_t bytes)
{
    tni_block first = leader(d, block);
    atomic_store_explicit(&tni_desc_at(&d->segment, first)->committed, bytes,
                          memory_order_release);
    /* It was written through the descriptor: no page of it is mapped yet. */
    clear_touched(d, first);
}

int tni_alloc_map(struct tn_domain *d, tni_block block, uint64_t bytes)
{
    if (TNI_LIKELY(bytes == 0 || was_touched(d, leader(d, block))))
        return 0;
    int status = tni_os_commit(tni_payload_at(&d->segment, block),
                               tni_align_up(bytes, d->segment.geometry.page_bytes));
    if (status == 0)
        set_touched(d, leader(d, block));
    return status;
}

bool tni_commit_is_done(const struct tn_domain *d, tni_block block, uint64_t bytes)
{
    return tni_alloc_committed(d, block) >= bytes && was_touched(d, leader(d, block));
}

/* What every thread of every seat says that it is committing. */
static uint64_t announced_bytes(const struct tni_segment *s)
{
    uint32_t limit = tni_seat_limit(s);
    uint64_t total = 0;
    for (uint32_t seat = 0; seat < limit; seat++) {
        if (tni_seat_state(atomic_load(&tni_seat_at(s, seat)->word)) == TNI_SEAT_FREE)
            continue;
        for (uint32_t t = 0; t < TNI_THREADS; t++) {
            uint64_t bytes = atomic_load(&tni_announce_at(s, seat, t)->commit_bytes);
            if (!tni_add_size(total, bytes, &total))
                return UINT64_MAX;
        }
    }
    return total;
}

uint64_t tni_alloc_outside_bytes(const struct tni_segment *s)
{
    uint32_t frontier = tni_frontier(s, TNI_BACKING_CLASS);
    uint64_t total = 0;
    for (uint32_t i = 0; i < frontier; i++) {
        tni_block block = tni_block_make(TNI_BACKING_CLASS, i);
        const struct tni_backing *b = tni_payload_at(s, block);
        if (tni_word_state(atomic_load(tni_word_at(s, block))) == TNI_BLOCK_ALLOC &&
            tni_alloc_has_memory(s, block) &&
            atomic_load_explicit(&b->strategy, memory_order_acquire) != 0 &&
            !tni_add_size(total, TNI_LOOK(b->object_bytes), &total))
            return UINT64_MAX;
    }
    return total;
}

/*
 * I4: our intent is visible before we count, and so is everybody else's before theirs. Intents
 * are counted before what is there: a commit that ends meanwhile counts twice, never not at
 * all.
 */
static int fail_quota(uint64_t bytes, uint64_t quota)
{
    return tni_fail(TN_ERR_NO_MEMORY, "%llu more bytes would pass the domain's quota of %llu",
                    (unsigned long long)bytes, (unsigned long long)quota);
}

int tni_alloc_quota_begin(struct tn_domain *d, struct tni_thread *thread, uint64_t bytes)
{
    uint64_t quota = TNI_MIN(atomic_load(&d->segment.header->quota_bytes),
                             d->segment.geometry.quota_limit_bytes);
    uint64_t committed = 0;

    /* What can never be must not stand in the way of others, not even for a moment. */
    if (bytes > quota)
        return fail_quota(bytes, quota);
    atomic_store(&thread->announce->commit_bytes, bytes);
    uint64_t total = announced_bytes(&d->segment);
    int status = tni_segment_check_descriptors(&d->segment);
    if (status == 0)
        status = tni_os_memory_committed(d->segment.arena_fd, &committed);
    uint64_t outside = tni_alloc_outside_bytes(&d->segment);
    if (status == 0 && (!tni_add_size(total, committed, &total) ||
                        !tni_add_size(total, outside, &total) || total > quota))
        status = fail_quota(bytes, quota);
    if (status != 0)
        atomic_store(&thread->announce->commit_bytes, 0);
    return status;
}

void tni_alloc_quota_end(struct tni_thread *thread)
{
    atomic_store(&thread->announce->commit_bytes, 0);
}

int tni_commit(struct tn_domain *d, struct tni_thread *thread, tni_block block, uint64_t bytes,
               bool *ret_is_zero)
{
    const struct tni_geometry *g = &d->segment.geometry;
    uint32_t class_id = tni_block_class(block);
    bool is_span = g->classes[class_id].span > 1;
    tni_block first = leader(d, block);
    uint64_t have = atomic_load(&tni_desc_at(&d->segment, first)->committed);
    uint64_t need =
        is_span ? tni_commit_span_bytes(d, class_id) : tni_align_up(bytes, g->page_bytes);
    uint8_t *start = tni_payload_at(&d->segment, first);

    /*
     * The last span of a class may reach beyond its last block, never beyond the class's own
     * part.
     */
    have = TNI_MIN(tni_align_up(have, g->page_bytes), need);
    if (have < need) {
        int status = tni_alloc_quota_begin(d, thread, need - have);
        if (status != 0)
            return status;
        status = tni_os_commit(start + have, need - have);
        TNI_KILL_POINT("alloc_committed");
        if (status == 0)
            atomic_store(&tni_desc_at(&d->segment, first)->committed, need); /* I3 */
        tni_alloc_quota_end(thread);
        if (status != 0)
            return status;
        *ret_is_zero = have == 0 && !is_span;
    }
    if (have > 0 && !was_touched(d, first)) {
        /* Others committed it: map it here in one call instead of a fault for each page. */
        int status = tni_os_commit(start, have);
        if (status != 0)
            return status;
    }
    set_touched(d, first);
    return 0;
}
