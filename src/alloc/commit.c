/* SPDX-License-Identifier: Apache-2.0 */
/* commit: puts memory behind blocks, within the quota. Invariants: alloc.c, I3 and I4. */
#include "alloc/commit.h"

#include "alloc/alloc.h"

enum { ASIDE_FROM_BYTES = 1 << 20 }; /* fork() may run during a commit of so many bytes */

static tni_block leader(const struct tn_domain *d, tni_block block)
{
    return tni_block_leader(&d->segment.geometry, block);
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

void tni_alloc_set_committed(struct tn_domain *d, tni_block block, uint64_t bytes)
{
    tni_block first = leader(d, block);
    atomic_store_explicit(&tni_desc_at(&d->segment, first)->committed, bytes,
                          memory_order_release);
    /* The caller wrote with a system call: this process has mapped no page of the block yet. */
    clear_touched(d, first);
}

void tni_alloc_raise_end(struct tn_domain *d, tni_block block, uint64_t bytes)
{
    if (tni_commit_end(d, block) < bytes)
        atomic_store(&tni_desc_at(&d->segment, block)->memory_end, bytes);
    TNI_KILL_POINT("alloc_end_raised");
}

void tni_alloc_discard_excess(struct tn_domain *d, tni_block block)
{
    uint64_t have =
        tni_align_up(tni_segment_committed(&d->segment, block), d->segment.geometry.page_bytes);
    uint64_t end = tni_commit_end(d, block);
    if (TNI_LIKELY(end == have) ||
        tni_segment_discard(&d->segment, block, have, end - have) != 0)
        return;
    TNI_KILL_POINT("alloc_mended");
    atomic_store(&tni_desc_at(&d->segment, block)->memory_end, have);
}

int tni_alloc_map(struct tn_domain *d, tni_block block, uint64_t bytes)
{
    if (TNI_LIKELY(bytes == 0 || was_touched(d, leader(d, block))))
        return 0;
    uint64_t end = tni_align_up(bytes, d->segment.geometry.page_bytes);
    int status = 0;
    for (uint64_t off = 0; off < end && status == 0; off += TNI_COMMIT_CHUNK_BYTES)
        status = tni_os_commit((uint8_t *)tni_payload_at(&d->segment, block) + off,
                               TNI_MIN(end - off, (uint64_t)TNI_COMMIT_CHUNK_BYTES));
    if (status == 0)
        set_touched(d, leader(d, block));
    return status;
}

bool tni_commit_is_there(const struct tn_domain *d, tni_block block, uint64_t bytes)
{
    return tni_segment_committed(&d->segment, block) >= bytes &&
           was_touched(d, leader(d, block));
}

/* Sums over the announces of all threads but one. */
struct intents {
    uint64_t granted, asked;
    /*
     * Bytes that count against the quota now but may soon not count: one chunk of each granted
     * commit, which counts twice if it is committed already, and memory that is being given
     * back.
     */
    uint64_t may_fall;
};

static int sum_intents(const struct tni_segment *s, const struct tni_announce *own,
                       struct intents *ret_intents)
{
    uint32_t limit = tni_seat_limit(s);
    struct intents sum = {0};
    bool fits = true;
    for (uint32_t seat = 0; seat < limit; seat++) {
        if (tni_seat_state(atomic_load(&tni_seat_at(s, seat)->word)) == TNI_SEAT_FREE)
            continue;
        for (uint32_t t = 0; t < TNI_THREADS; t++) {
            const struct tni_announce *a = tni_announce_at(s, seat, t);
            uint64_t bytes = a == own ? 0 : atomic_load(&a->commit_bytes);
            if ((bytes & TNI_COMMIT_GIVES) != 0) {
                fits &= tni_add_size(sum.may_fall, bytes & ~TNI_COMMIT_GIVES, &sum.may_fall);
            } else if ((bytes & TNI_COMMIT_ASKS) != 0) {
                fits &= tni_add_size(sum.asked, bytes & ~TNI_COMMIT_ASKS, &sum.asked);
            } else if (bytes != 0) {
                fits &= tni_add_size(sum.granted, bytes, &sum.granted);
                fits &=
                    tni_add_size(sum.may_fall, TNI_MIN(bytes, (uint64_t)TNI_COMMIT_CHUNK_BYTES),
                                 &sum.may_fall);
            }
        }
    }
    *ret_intents = sum;
    return fits ? 0 : TN_ERR_NO_MEMORY;
}

uint64_t tni_alloc_outside_bytes(const struct tni_segment *s)
{
    uint32_t frontier = tni_frontier(s, TNI_BACKING_CLASS);
    uint64_t total = 0;
    for (uint32_t i = 0; i < frontier; i++) {
        tni_block block = tni_block_make(TNI_BACKING_CLASS, i);
        const struct tni_backing *b = tni_payload_look(s, block);
        if (tni_word_state(atomic_load(tni_word_at(s, block))) == TNI_BLOCK_ALLOC &&
            tni_alloc_has_memory(s, block) &&
            atomic_load_explicit(&b->strategy, memory_order_acquire) != 0 &&
            TNI_LOOK(b->device_type) == 0 &&
            !tni_add_size(total, TNI_LOOK(b->object_bytes), &total))
            return UINT64_MAX;
    }
    return total;
}

static int fail_quota(uint64_t bytes, uint64_t quota)
{
    return tni_fail(TN_ERR_NO_MEMORY, "%llu more bytes would pass the domain's quota of %llu",
                    (unsigned long long)bytes, (unsigned long long)quota);
}

/*
 * Grant or refuse a request. `here` is the committed memory plus this request. The sum with the
 * announces of other threads may be too large only for the moment: other requests may still be
 * refused, one chunk of another commit may count twice, and memory that other threads are
 * giving back still counts. If there would be room without these bytes, the caller retries.
 */
static int check_quota(struct tni_thread *thread, uint64_t here, const struct intents *others,
                       uint64_t quota)
{
    uint64_t sure, all;
    if (!tni_add_size(here, others->granted, &sure) || !tni_add_size(sure, others->asked, &all))
        return TN_ERR_NO_MEMORY;
    if (all <= quota)
        return 0;
    if (sure - TNI_MIN(sure, others->may_fall) <= quota)
        return TNI_ALLOC_AGAIN;
    thread->missing_bytes = sure - quota;
    return TN_ERR_NO_MEMORY;
}

/*
 * Each thread announces its request before it adds up the announces of other threads (I4). It
 * reads the committed memory after that. So a chunk that is committed in between counts twice;
 * no chunk is left out. If two threads ask at once, both may be refused; then both retry.
 */
int tni_alloc_quota_begin(struct tn_domain *d, struct tni_thread *thread, uint64_t bytes)
{
    uint64_t quota = TNI_MIN(atomic_load(&d->segment.header->quota_bytes),
                             d->segment.geometry.quota_limit_bytes);
    uint64_t committed = 0, here;
    struct intents others;

    /*
     * Do not announce a request that can never be granted: it would make other threads retry.
     * Leave missing_bytes 0: giving memory back would not help.
     */
    thread->missing_bytes = 0;
    if (bytes > quota)
        return fail_quota(bytes, quota);
    thread->missing_bytes = UINT64_MAX;
    atomic_store(&thread->announce->commit_bytes, bytes | TNI_COMMIT_ASKS);
    TNI_KILL_POINT("quota_asked");
    int summed = sum_intents(&d->segment, thread->announce, &others);
    int status = tni_segment_check_descriptors(&d->segment);
    if (status == 0)
        status = tni_os_memory_committed(d->segment.arena_fd, &committed);
    if (status == 0) {
        bool fits = tni_add_size(committed, tni_alloc_outside_bytes(&d->segment), &here) &&
                    tni_add_size(here, bytes, &here);
        status =
            fits && summed == 0 ? check_quota(thread, here, &others, quota) : TN_ERR_NO_MEMORY;
        if (status != 0)
            fail_quota(bytes, quota);
    }
    atomic_store(&thread->announce->commit_bytes, status == 0 ? bytes : 0);
    return status;
}

void tni_commit_give(struct tni_thread *thread, uint64_t bytes)
{
    atomic_store(&thread->announce->commit_bytes, bytes | TNI_COMMIT_GIVES);
}

void tni_alloc_quota_landed(struct tni_thread *thread, uint64_t bytes)
{
    _Atomic uint64_t *intent = &thread->announce->commit_bytes;
    uint64_t seen = atomic_load_explicit(intent, memory_order_relaxed);
    atomic_store(intent, seen - TNI_MIN(bytes, seen)); /* must not wrap, even if damaged */
}

void tni_alloc_quota_end(struct tni_thread *thread)
{
    atomic_store(&thread->announce->commit_bytes, 0);
}

/*
 * Commit one chunk. A fork() may run meanwhile: the announce stays, and the block has no hold
 * yet, so a child cannot inherit one.
 */
static int populate(struct tni_thread *thread, uint8_t *start, uint64_t bytes)
{
    if (bytes < ASIDE_FROM_BYTES)
        return tni_os_commit(start, bytes);
    tni_thread_step_aside(thread);
    int status = tni_os_commit(start, bytes);
    tni_thread_come_back(thread);
    return status;
}

/*
 * Map memory that another process committed, with one call for each chunk instead of one page
 * fault for each page.
 */
static int map_chunks(struct tni_thread *thread, uint8_t *start, uint64_t bytes)
{
    int status = 0;
    for (uint64_t off = 0; off < bytes && status == 0; off += TNI_COMMIT_CHUNK_BYTES)
        status = populate(thread, start + off,
                          TNI_MIN(bytes - off, (uint64_t)TNI_COMMIT_CHUNK_BYTES));
    return status;
}

/*
 * Commit [have, need) of a block, chunk by chunk. Each chunk is first added to `committed`, and
 * then subtracted from the announce (I3, I4). pre: tni_alloc_quota_begin() granted the bytes
 */
static int commit_chunks(struct tn_domain *d, struct tni_thread *thread, tni_block first,
                         uint64_t have, uint64_t need)
{
    uint8_t *start = tni_payload_at(&d->segment, first);
    int status = 0;
    while (have < need && status == 0) {
        uint64_t part = TNI_MIN(need - have, (uint64_t)TNI_COMMIT_CHUNK_BYTES);
        status = populate(thread, start + have, part);
        TNI_KILL_POINT("alloc_committed");
        if (status == 0) {
            have += part;
            atomic_store(&tni_desc_at(&d->segment, first)->committed, have);
            tni_alloc_quota_landed(thread, part);
        }
    }
    return status;
}

/* ---- a block by itself ------------------------------------------------------------------- */

static int commit_large(struct tn_domain *d, struct tni_thread *thread, tni_block block,
                        uint64_t bytes, bool *ret_is_zero)
{
    uint64_t page_bytes = d->segment.geometry.page_bytes;
    uint64_t need = tni_align_up(bytes, page_bytes);
    uint64_t have = atomic_load(&tni_desc_at(&d->segment, block)->committed);
    int status = 0;

    have = TNI_MIN(tni_align_up(have, page_bytes), need);
    if (have < need) {
        /* Discard unneeded memory of the block first: it would count against the quota, too. */
        tni_alloc_discard_excess(d, block);
        bool has_none = tni_commit_end(d, block) == 0;
        if ((status = tni_alloc_quota_begin(d, thread, need - have)) != 0)
            return status;
        tni_alloc_raise_end(d, block, need);
        status = commit_chunks(d, thread, block, have, need);
        tni_alloc_quota_end(thread);
        if (status != 0) {
            thread->missing_bytes = UINT64_MAX; /* it is unknown how much the machine lacks */
            return status;
        }
        *ret_is_zero = has_none;
    }
    if (have > 0 && !was_touched(d, block))
        status = map_chunks(thread, tni_payload_at(&d->segment, block), have);
    return status;
}

/* ---- a span of several blocks ------------------------------------------------------------ */

static int commit_pages(const struct tn_domain *d, tni_block first, uint64_t pages)
{
    uint64_t page_bytes = d->segment.geometry.page_bytes;
    uint8_t *start = tni_payload_at(&d->segment, first);
    int status = 0;
    while (pages != 0 && status == 0) {
        uint32_t from = tni_low_bit(pages);
        uint32_t count = tni_low_bit(~(pages >> from));
        status = tni_os_commit(start + from * page_bytes, count * page_bytes);
        pages &= ~(((UINT64_C(1) << count) - 1) << from);
    }
    return status;
}

/*
 * Set the bits of `pages`, which this thread has committed (I3). `own` are the pages of this
 * thread's block, which no other thread can discard. If the span was trimmed after the caller
 * read `seen`, the other pages may have no memory any more, so only the bits of `own` are set.
 */
static void record_pages(_Atomic uint64_t *committed, uint64_t seen, uint64_t pages,
                         uint64_t own)
{
    while ((seen & TNI_SPAN_TRIMMED) == 0)
        if (atomic_compare_exchange_weak(committed, &seen, seen | pages))
            return;
    atomic_fetch_or(committed, own);
}

/*
 * Commit all pages of the block's span at once, or only the block's own pages if the quota has
 * no room for the span or a part of the span was trimmed.
 */
static int commit_span(struct tn_domain *d, struct tni_thread *thread, tni_block block)
{
    const struct tni_geometry *g = &d->segment.geometry;
    tni_block first = leader(d, block);
    _Atomic uint64_t *committed = &tni_desc_at(&d->segment, first)->committed;
    uint64_t seen = atomic_load(committed), own = tni_block_pages(g, block);
    uint64_t all = g->span_pages[tni_block_class(block)];
    uint64_t want = ((seen & TNI_SPAN_TRIMMED) != 0 ? own : all) & ~seen;
    int status = 0;

    if ((own & ~seen) != 0) {
        status = tni_alloc_quota_begin(d, thread, tni_bit_count(want) * g->page_bytes);
        if ((status == TN_ERR_NO_MEMORY || status == TNI_ALLOC_AGAIN) &&
            want != (own & ~seen)) {
            want = own & ~seen;
            status = tni_alloc_quota_begin(d, thread, tni_bit_count(want) * g->page_bytes);
        }
        if (status != 0)
            return status;
        status = commit_pages(d, first, want);
        TNI_KILL_POINT("alloc_pages_committed");
        if (status == 0)
            record_pages(committed, seen, want, own);
        else
            thread->missing_bytes = UINT64_MAX;
        tni_alloc_quota_end(thread);
    }
    if (status == 0 && !was_touched(d, first))
        status = commit_pages(d, first, seen & all & own);
    return status;
}

int tni_commit(struct tn_domain *d, struct tni_thread *thread, tni_block block, uint64_t bytes,
               bool *ret_is_zero)
{
    bool is_span = d->segment.geometry.classes[tni_block_class(block)].span > 1;
    int status = is_span ? commit_span(d, thread, block)
                         : commit_large(d, thread, block, bytes, ret_is_zero);
    if (status == 0)
        set_touched(d, leader(d, block));
    return status;
}
