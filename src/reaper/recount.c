/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recount: the stable recount.
 *
 * A block's records are counted while its word stands still and no live thread announces it,
 * looked at before and after. A thread that announces later than our second look moves the word
 * and so makes our CAS fail; one that moves a reference between records, which moves no word,
 * sees that we recount (header->recount) and moves the version for us. Announces of the dead do
 * not count: two dead seats that name one block would wait for each other.
 * Source: protocol C of docs/crash.md.
 *
 * Death of the recounter: the announces of the dead seat stay until their blocks are right; its
 * own `outer` names what it was taking apart; its claim on header->recount is ignored by the
 * next.
 */
#include "reaper/recount.h"

#include <string.h>

#include "queue/queue.h"
#include "share/share.h"

/* How long one suspect may be in motion: 1 ms. */
enum { MOST_SPAN = 1024, PATIENCE_NS = 1000 * 1000, SPINS = 64 };

/* ---- counting ---------------------------------------------------------------------------- */

uint64_t tni_recount_records(const struct tni_segment *s, tni_block block)
{
    return tni_ref_count_records(s, block) + tni_queue_count_records(s, block) +
           tni_ticket_count_records(s, block);
}

void tni_recount_for_each(const struct tni_segment *s, tni_record_fn *each, void *context)
{
    tni_ref_for_each_record(s, each, context);
    tni_queue_for_each_record(s, each, context);
    tni_ticket_for_each_record(s, each, context);
}

static uint64_t load_word(const struct tni_segment *s, tni_block block)
{
    return atomic_load(tni_word_at(s, block));
}

bool tni_recount_look(const struct tni_segment *s, uint32_t dead, const struct tni_thread *ours,
                      tni_block block, struct tni_recounted *ret_recounted)
{
    uint64_t word = load_word(s, block);
    if (tni_process_is_announced(s, dead, ours, block))
        return false;
    uint64_t records = tni_recount_records(s, block);
    if (tni_process_is_announced(s, dead, ours, block) || load_word(s, block) != word)
        return false;
    *ret_recounted = (struct tni_recounted){.word = word, .records = records};
    return true;
}

bool tni_recount_is_right(const struct tni_recounted *r)
{
    switch (tni_word_state(r->word)) {
    case TNI_BLOCK_FREE:
        return tni_word_count(r->word) == 0 && r->records == 0;
    case TNI_BLOCK_ALLOC:
        return tni_word_count(r->word) == r->records && r->records != 0;
    default:
        return false;
    }
}

/* ---- the claim --------------------------------------------------------------------------- */

int tni_recount_begin(struct tn_domain *d)
{
    _Atomic uint64_t *claim = &d->segment.header->recount;
    uint64_t deadline_ns = 0;

    while (!tni_process_claim(d, claim, &d->recounting, 0, false)) {
        uint64_t now_ns = tni_os_now_ns();
        if (deadline_ns == 0)
            deadline_ns = now_ns + PATIENCE_NS;
        if (now_ns >= deadline_ns)
            return tni_fail(TN_ERR_TIMED_OUT, "seat %u is recounting",
                            tni_who_seat(atomic_load(claim)));
        tni_os_yield();
    }
    /*
     * Before any look at an announce; pairs with the read-modify-write before
     * tni_ref_before_move().
     */
    atomic_thread_fence(memory_order_seq_cst);
    TNI_KILL_POINT("recount_begun");
    return 0;
}

void tni_recount_end(struct tn_domain *d)
{
    tni_process_unclaim(d, &d->segment.header->recount, &d->recounting);
}

/* ---- settling ---------------------------------------------------------------------------- */

bool tni_recount_settle(struct tn_domain *d, struct tni_thread *thread, tni_block block,
                        const struct tni_recounted *r)
{
    bool is_done;
    /*
     * A block in a state that does not exist, or one that is named although it is free: as it
     * should be.
     */
    if (tni_word_state(r->word) > TNI_BLOCK_ALLOC ||
        (tni_word_state(r->word) == TNI_BLOCK_FREE && r->records != 0)) {
        uint64_t seen = r->word;
        uint32_t state = r->records != 0 ? TNI_BLOCK_ALLOC : TNI_BLOCK_FREE;
        return atomic_compare_exchange_strong(tni_word_at(&d->segment, block), &seen,
                                              tni_word_next(seen, state, (uint32_t)r->records));
    }
    atomic_store(&thread->announce->outer, block.id);
    TNI_KILL_POINT("recount_announced");
    is_done = tni_ref_settle(d, thread, block, r->word, r->records);
    TNI_KILL_POINT("recount_settled");
    atomic_store(&thread->announce->outer, 0);
    return is_done;
}

/*
 * A dead thread leaves counts too high, never too low: that would be damage, and is left for an
 * audit.
 */
static bool is_damage(const struct tni_recounted *r)
{
    return tni_word_state(r->word) > TNI_BLOCK_ALLOC ||
           (tni_word_state(r->word) == TNI_BLOCK_FREE && r->records != 0) ||
           (tni_word_state(r->word) == TNI_BLOCK_ALLOC && r->records > tni_word_count(r->word));
}

/* @return whether the block is dealt with */
static bool settle_counted(struct tn_domain *d, struct tni_thread *thread, tni_block block,
                           const struct tni_recounted *r)
{
    if (tni_recount_is_right(r))
        return true;
    if (is_damage(r)) {
        tni_log(TNI_LOG_ERROR, "block %x: state %u, count %u, but %llu records name it",
                block.id, tni_word_state(r->word), tni_word_count(r->word),
                (unsigned long long)r->records);
        return true;
    }
    return tni_recount_settle(d, thread, block, r);
}

/* ---- one suspect ------------------------------------------------------------------------- */

struct patience {
    uint64_t deadline_ns;
    uint32_t tries;
};

/* @return false when it is at its end */
static bool wait_a_little(struct patience *patience)
{
    if (patience->tries < SPINS) {
        patience->tries++;
        tni_relax();
        return true;
    }
    uint64_t now_ns = tni_os_now_ns();
    if (patience->deadline_ns == 0)
        patience->deadline_ns = now_ns + PATIENCE_NS;
    tni_os_yield();
    return now_ns < patience->deadline_ns;
}

static int fail_in_the_way(tni_block block)
{
    return tni_fail(TN_ERR_TIMED_OUT, "block %x: a live thread is at work on it", block.id);
}

static int settle_one(struct tn_domain *d, struct tni_thread *thread, uint32_t dead,
                      tni_block block)
{
    struct patience patience = {0};
    struct tni_recounted recounted;

    for (;;) {
        if (tni_recount_look(&d->segment, dead, thread, block, &recounted) &&
            settle_counted(d, thread, block, &recounted))
            return 0;
        if (!wait_a_little(&patience))
            return fail_in_the_way(block);
    }
}

/* ---- a span of suspects: one pass over all records for all of them ----------------------- */

struct span {
    const struct tni_segment *segment;
    tni_block first;
    uint32_t count;
    struct tni_recounted seen[MOST_SPAN];
    bool is_open[MOST_SPAN]; /* still to be dealt with */
};

static tni_block nth(const struct span *span, uint32_t i)
{
    return (tni_block){span->first.id + i};
}

static void tally(tni_block block, void *context)
{
    struct span *span = context;
    if (block.id >= span->first.id && block.id - span->first.id < span->count)
        span->seen[block.id - span->first.id].records++;
}

/* @return how many are still to be dealt with */
static uint32_t settle_span_once(struct tn_domain *d, struct tni_thread *thread, uint32_t dead,
                                 struct span *span)
{
    bool is_quiet[MOST_SPAN] = {false};
    uint32_t left = 0;

    for (uint32_t i = 0; i < span->count; i++) {
        span->seen[i] = (struct tni_recounted){.word = load_word(span->segment, nth(span, i))};
        is_quiet[i] = span->is_open[i] &&
                      !tni_process_is_announced(span->segment, dead, thread, nth(span, i));
    }
    tni_recount_for_each(span->segment, tally, span);
    for (uint32_t i = 0; i < span->count; i++) {
        if (is_quiet[i] &&
            !tni_process_is_announced(span->segment, dead, thread, nth(span, i)) &&
            load_word(span->segment, nth(span, i)) == span->seen[i].word &&
            settle_counted(d, thread, nth(span, i), &span->seen[i]))
            span->is_open[i] = false;
        left += span->is_open[i];
    }
    return left;
}

static int settle_span(struct tn_domain *d, struct tni_thread *thread, uint32_t dead,
                       tni_block first, uint32_t count)
{
    struct patience patience = {0};
    struct span span = {.segment = &d->segment, .first = first, .count = count};
    uint32_t left = 0;

    for (uint32_t i = 0; i < count; i++) {
        /* Free, and counted as free: the common case, and nothing to repair. */
        uint64_t word = load_word(&d->segment, nth(&span, i));
        span.is_open[i] = tni_word_state(word) != TNI_BLOCK_FREE || tni_word_count(word) != 0;
        left += span.is_open[i];
    }
    while (left > 0) {
        left = settle_span_once(d, thread, dead, &span);
        if (left > 0 && !wait_a_little(&patience))
            return fail_in_the_way(first);
    }
    return 0;
}

/* ---- a dead seat ------------------------------------------------------------------------- */

/*
 * What an announce names, cut to what can be; a span never is longer than what is committed
 * together.
 */
static int settle_announce(struct tn_domain *d, struct tni_thread *thread, uint32_t dead,
                           const struct tni_announce *announce)
{
    const struct tni_geometry *g = &d->segment.geometry;
    tni_block first = {atomic_load(&announce->block)}, outer = {atomic_load(&announce->outer)};
    uint32_t span = TNI_MAX(atomic_load(&announce->span), 1);
    int status = 0;

    if (tni_geometry_has_block(g, first.id)) {
        const struct tni_class_geometry *c = &g->classes[tni_block_class(first)];
        span = TNI_MIN(span, TNI_MIN(c->capacity - tni_block_index(first), c->span));
        span = TNI_MIN(span, (uint32_t)MOST_SPAN);
        status = span <= 1 ? settle_one(d, thread, dead, first)
                           : settle_span(d, thread, dead, first, span);
    }
    TNI_KILL_POINT("recount_block_done");
    if (outer.id != first.id && tni_geometry_has_block(g, outer.id)) {
        int of_outer = settle_one(d, thread, dead, outer);
        status = status != 0 ? status : of_outer;
    }
    return status;
}

/* `object` is the queue's to settle and to clear: it may still have to come again for it. */
static void clear_announce(struct tni_announce *a)
{
    atomic_store(&a->commit_bytes, 0);
    atomic_store(&a->outer, 0);
    TNI_KILL_POINT("recount_outer_cleared");
    atomic_store(&a->block, 0);
    atomic_store(&a->span, 1);
}

int tni_recount_seat(struct tn_domain *d, uint32_t dead)
{
    int status = 0;
    bool has_claim = false;

    for (uint32_t t = 0; t < TNI_THREADS; t++) {
        struct tni_announce *announce = tni_announce_at(&d->segment, dead, t);
        if (tni_announce_is_clear(announce))
            continue;
        if (!has_claim && (status = tni_recount_begin(d)) != 0)
            return status;
        has_claim = true;
        struct tni_thread *thread = tni_thread_enter(d);
        int one = settle_announce(d, thread, dead, announce);
        tni_thread_leave(thread);
        if (one == 0)
            clear_announce(announce);
        status = status != 0 ? status : one;
        TNI_KILL_POINT("recount_announce_done");
    }
    if (has_claim)
        tni_recount_end(d);
    return status;
}
