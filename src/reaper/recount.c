/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recount: the stable recount, and the suspects that wait for it.
 *
 * A block's records are counted while its word stands still and no live thread announces it,
 * looked at before and after. A thread that announces later than our second look moves the word
 * and so makes our CAS fail; one that moves a reference between records, which moves no word,
 * sees that we recount (header->recount) and moves the version for us. Announces of the dead do
 * not count: two dead seats that name one block would wait for each other.
 * Source: protocol C of docs/crash.md.
 *
 * Suspect: a block that a dead thread announced. Its bit outlives the announce, so that a seat
 * is free at once, and the recount of its blocks waits for nobody's seat.
 * I1  A bit is set, and header->suspects_added raised, before the announce is cleared.
 * I2  Only the owner of header->recount moves bits from MARKED to COUNTING, sets and then
 *     clears, and it clears a bit of COUNTING only when the block was right after the bit stood
 *     there. So a mark that is set during a recount is left for the next one.
 * I3  A block that is not quiet is named in header->recounted: who is about to announce it
 *     waits. Each thread then is in the way once at most, and the recount ends, unless a thread
 *     that announces the block is stopped: then its bit stays.
 * Death of the recounter: the bits stay until their blocks are right; its own `outer` names
 * what it was taking apart; its claim on header->recount is ignored by the next.
 */
#include "reaper/recount.h"

#include <string.h>

#include "queue/queue.h"
#include "reaper/reaper.h"
#include "share/share.h"
#include "wait/wait.h"

/* Suspects of one pass over all records. */
#if !defined(MOST_SUSPECTS)
#define MOST_SUSPECTS 1024
#endif

/*
 * How long one block is named at a time while others wait for their turn; how long a call is
 * patient with all of them together; how long with another recounter.
 */
enum {
    TURN_NS = 2 * 1000 * 1000,
    PATIENCE_NS = 50 * 1000 * 1000,
    CLAIM_NS = 1000 * 1000,
    PAUSE_NS = 50 * 1000,
    SPINS = 64,
    YIELDS = 16
};

/* ---- the claim --------------------------------------------------------------------------- */

static void name_none(struct tn_domain *d) { tni_process_name_recounted(d, 0); }

int tni_recount_begin(struct tn_domain *d)
{
    _Atomic uint64_t *claim = &d->segment.header->recount;
    uint64_t deadline_ns = 0;

    while (!tni_process_claim(d, claim, &tni_reaper_part(d)->recounting, 0, false)) {
        uint64_t now_ns = tni_os_now_ns();
        if (deadline_ns == 0)
            deadline_ns = now_ns + CLAIM_NS;
        if (now_ns >= deadline_ns)
            return tni_fail(TN_ERR_TIMED_OUT, "seat %u is recounting",
                            tni_who_seat(atomic_load(claim)));
        tni_os_sleep_until(now_ns + PAUSE_NS); /* it may have a lower priority than we have */
    }
    /*
     * Before any look at an announce; pairs with the read-modify-write before
     * tni_ref_before_move().
     */
    atomic_thread_fence(memory_order_seq_cst);
    TNI_KILL_POINT("recount_begun");
    name_none(d); /* what a dead recounter had named */
    return 0;
}

void tni_recount_end(struct tn_domain *d)
{
    name_none(d);
    tni_process_unclaim(d, &d->segment.header->recount, &tni_reaper_part(d)->recounting);
}

void tni_recount_release(struct tn_domain *d, uint64_t who)
{
    struct tni_header *h = d->segment.header;
    /* If another takes the claim over meanwhile, a block of its own may stay unnamed. */
    if (atomic_load(&h->recount) == who)
        name_none(d);
    tni_claim_release(&h->recount, who);
}

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

bool tni_recount_look(const struct tni_segment *s, const struct tni_thread *ours,
                      tni_block block, struct tni_recounted *ret_recounted)
{
    uint64_t word = load_word(s, block);
    if (tni_process_is_announced(s, ours, block))
        return false;
    uint64_t records = tni_recount_records(s, block);
    if (tni_process_is_announced(s, ours, block) || load_word(s, block) != word)
        return false;
    *ret_recounted = (struct tni_recounted){.word = word, .records = records};
    return true;
}

bool tni_recount_look_named(struct tn_domain *d, const struct tni_thread *ours, tni_block block,
                            uint64_t until_ns, struct tni_recounted *ret_recounted)
{
    tni_process_name_recounted(d, block.id);
    TNI_KILL_POINT("recount_named");
    uint32_t tries = 0; /* stands still in the end, so that a model sees the same state again */
    while (!tni_recount_look(&d->segment, ours, block, ret_recounted)) {
        if (tries < SPINS)
            tni_relax();
        else if (tni_os_now_ns() >= until_ns)
            return false;
        else
            tni_os_back_off(tries - SPINS);
        tries += tries < SPINS + YIELDS;
    }
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

/* ---- reclaiming ----------------------------------------------------------------------------
 */

bool tni_recount_reclaim(struct tn_domain *d, struct tni_thread *thread, tni_block block,
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
    is_done = tni_ref_reclaim(d, thread, block, r->word, r->records);
    TNI_KILL_POINT("recount_reclaimed");
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
static bool reclaim_counted(struct tn_domain *d, struct tni_thread *thread, tni_block block,
                            const struct tni_recounted *r)
{
    if (tni_recount_is_right(r))
        return true;
    if (is_damage(r)) {
        tni_log(TNI_LOG_ERROR, "block %08x: state %u, count %u, but %llu records name it",
                block.id, tni_word_state(r->word), tni_word_count(r->word),
                (unsigned long long)r->records);
        return true;
    }
    return tni_recount_reclaim(d, thread, block, r);
}

/* ---- marking suspects -------------------------------------------------------------------- */

static void mark(const struct tni_segment *s, tni_block block)
{
    uint32_t at = tni_block_position(&s->geometry, block);
    atomic_fetch_or(tni_suspects_at(s, TNI_SUSPECT_MARKED, at), UINT64_C(1) << (at % 64));
}

/*
 * What an announce names, cut to what can be: a span is what is committed together, or the
 * blocks of one word of a row. A block that is free, and counted as free, has nothing that a
 * recount could repair.
 */
static void mark_announced(const struct tni_segment *s, const struct tni_announce *announce)
{
    const struct tni_geometry *g = &s->geometry;
    tni_block first = {atomic_load(&announce->block)}, outer = {atomic_load(&announce->outer)};
    uint32_t span = TNI_MAX(atomic_load(&announce->span), 1);

    if (tni_geometry_has_block(g, first.id)) {
        const struct tni_class_geometry *c = &g->classes[tni_block_class(first)];
        span =
            TNI_MIN(span, TNI_MIN(c->capacity - tni_block_index(first), TNI_MAX(c->span, 64)));
        for (uint32_t i = 0; i < span; i++) {
            tni_block block = {first.id + i};
            uint64_t word = load_word(s, block);
            if (tni_word_state(word) != TNI_BLOCK_FREE || tni_word_count(word) != 0)
                mark(s, block);
        }
    }
    if (tni_geometry_has_block(g, outer.id))
        mark(s, outer);
}

/* `object` is the queue's to reclaim and to clear: it may still have to come again for it. */
static void clear_announce(struct tni_announce *a)
{
    atomic_store(&a->commit_bytes, 0);
    atomic_store(&a->outer, 0);
    TNI_KILL_POINT("recount_outer_cleared");
    atomic_store(&a->block, 0);
    atomic_store(&a->span, 1);
}

void tni_recount_take_announces(struct tn_domain *d, uint32_t dead)
{
    for (uint32_t t = 0; t < TNI_THREADS; t++) {
        struct tni_announce *announce = tni_announce_at(&d->segment, dead, t);
        if (tni_announce_is_clear(announce))
            continue;
        mark_announced(&d->segment, announce);
        TNI_KILL_POINT("recount_marked");
        atomic_fetch_add(&d->segment.header->suspects_added, 1); /* I1 */
        clear_announce(announce);
        TNI_KILL_POINT("recount_announce_done");
    }
}

/* ---- recounting suspects ----------------------------------------------------------------- */

struct suspects {
    struct tn_domain *domain;
    struct tni_thread *thread;
    uint32_t count; /* of this pass */
    uint32_t left;  /* of all passes: were not quiet */
    bool has_reclaimed;
    tni_block block[MOST_SUSPECTS]; /* in rising order */
    struct tni_recounted seen[MOST_SUSPECTS];
    bool is_open[MOST_SUSPECTS];
};

static void close_suspect(struct suspects *of, uint32_t i)
{
    const struct tni_segment *s = &of->domain->segment;
    uint32_t at = tni_block_position(&s->geometry, of->block[i]);
    TNI_KILL_POINT("recount_block_done");
    atomic_fetch_and(tni_suspects_at(s, TNI_SUSPECT_COUNTING, at), ~(UINT64_C(1) << (at % 64)));
    of->is_open[i] = false;
    of->has_reclaimed = true;
}

static uint32_t find(const struct suspects *of, tni_block block)
{
    uint32_t low = 0, high = of->count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (of->block[middle].id < block.id)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void tally(tni_block block, void *context)
{
    struct suspects *of = context;
    uint32_t i = find(of, block);
    if (i < of->count && of->block[i].id == block.id)
        of->seen[i].records++;
}

/* One pass over all records, for all of them. @return how many are still open */
static uint32_t reclaim_together(struct suspects *of)
{
    const struct tni_segment *s = &of->domain->segment;
    uint32_t open = 0;

    for (uint32_t i = 0; i < of->count; i++)
        of->seen[i] = (struct tni_recounted){.word = load_word(s, of->block[i])};
    bool is_quiet[MOST_SUSPECTS] = {false};
    for (uint32_t i = 0; i < of->count; i++)
        is_quiet[i] = !tni_process_is_announced(s, of->thread, of->block[i]);
    tni_recount_for_each(s, tally, of);
    for (uint32_t i = 0; i < of->count; i++) {
        if (is_quiet[i] && !tni_process_is_announced(s, of->thread, of->block[i]) &&
            load_word(s, of->block[i]) == of->seen[i].word &&
            reclaim_counted(of->domain, of->thread, of->block[i], &of->seen[i]))
            close_suspect(of, i);
        open += of->is_open[i];
    }
    return open;
}

static void reclaim_named(struct suspects *of, uint32_t i, uint64_t until_ns)
{
    struct tni_recounted recounted;
    while (tni_recount_look_named(of->domain, of->thread, of->block[i], until_ns, &recounted)) {
        if (reclaim_counted(of->domain, of->thread, of->block[i], &recounted)) {
            close_suspect(of, i);
            return;
        }
        if (tni_os_now_ns() >= until_ns)
            return;
    }
}

/*
 * Each of those that are left has its turn, again and again until the deadline: one that a
 * stopped thread announces must not use up the patience for the others.
 * @return how many are still open
 */
static uint32_t reclaim_in_turn(struct suspects *of, uint32_t open, uint64_t deadline_ns)
{
    do {
        bool is_last = open == 1;
        open = 0;
        for (uint32_t i = 0; i < of->count; i++) {
            if (!of->is_open[i])
                continue;
            uint64_t turn_ns = tni_os_now_ns() + TURN_NS;
            reclaim_named(of, i, is_last ? deadline_ns : TNI_MIN(turn_ns, deadline_ns));
            open += of->is_open[i];
        }
    } while (open > 0 && tni_os_now_ns() < deadline_ns);
    name_none(of->domain);
    return open;
}

static void reclaim_suspects(struct suspects *of, uint64_t deadline_ns)
{
    uint32_t open = reclaim_together(of);
    if (open > 0 && tni_os_now_ns() < deadline_ns)
        open = reclaim_in_turn(of, open, deadline_ns);
    of->left += open;
    of->count = 0;
}

/* I2. The suspects of 64 blocks, those too that a dead recounter was at. */
static uint64_t take_marks(const struct tni_segment *s, uint32_t at)
{
    _Atomic uint64_t *marked = tni_suspects_at(s, TNI_SUSPECT_MARKED, at),
                     *counting = tni_suspects_at(s, TNI_SUSPECT_COUNTING, at);
    uint64_t bits = atomic_load(marked);
    if (bits != 0) {
        atomic_fetch_or(counting, bits);
        TNI_KILL_POINT("recount_taken");
        atomic_fetch_and(marked, ~bits);
    }
    return atomic_load(counting);
}

static void add(struct suspects *of, tni_block block)
{
    of->block[of->count] = block;
    of->is_open[of->count++] = true;
}

static void for_each_suspect(struct suspects *of, uint64_t deadline_ns)
{
    const struct tni_segment *s = &of->domain->segment;
    const struct tni_geometry *g = &s->geometry;
    for (uint32_t c = 1; c < g->class_count; c++) {
        uint32_t words = (tni_frontier(s, c) + 63) / 64;
        for (uint32_t w = 0; w < words; w++) {
            uint64_t bits = take_marks(s, g->classes[c].base + w * 64);
            for (; bits != 0; bits &= bits - 1) {
                tni_block block = tni_block_make(c, w * 64 + tni_low_bit(bits));
                if (tni_geometry_has_block(g, block.id))
                    add(of, block);
                if (of->count == MOST_SUSPECTS)
                    reclaim_suspects(of, deadline_ns);
            }
        }
    }
    if (of->count > 0)
        reclaim_suspects(of, deadline_ns);
}

/* @return how many are left */
static uint32_t recount_blocks(struct tn_domain *d, uint64_t deadline_ns)
{
    struct tni_header *h = d->segment.header;
    uint64_t added = atomic_load(&h->suspects_added); /* I1: whoever added has set the bits */
    if (added == atomic_load(&h->suspects_done))
        return 0;
    struct suspects of = {.domain = d, .thread = tni_thread_enter(d)};
    for_each_suspect(&of, TNI_MIN(deadline_ns, tni_os_now_ns() + PATIENCE_NS));
    tni_thread_leave(of.thread);
    if (of.left == 0)
        atomic_store(&h->suspects_done, added);
    TNI_KILL_POINT("recount_suspects_done");
    if (of.has_reclaimed)
        tni_alloc_wake(d);
    return of.left;
}

bool tni_recount_has_suspects(const struct tni_segment *s)
{
    return atomic_load(&s->header->suspects_added) != atomic_load(&s->header->suspects_done) ||
           tni_object_has_suspects(s);
}

int tni_recount_suspects(struct tn_domain *d, uint64_t deadline_ns)
{
    if (!tni_recount_has_suspects(&d->segment))
        return 0;
    int status = tni_recount_begin(d);
    if (status != 0)
        return status;
    uint32_t left = recount_blocks(d, deadline_ns);
    status = tni_object_recount(d, TNI_MIN(deadline_ns, tni_os_now_ns() + PATIENCE_NS));
    tni_recount_end(d);
    if (left == 0)
        return status;
    return tni_fail(TN_ERR_TIMED_OUT,
                    "%u blocks are still to be recounted: live threads are at work on them",
                    left);
}
