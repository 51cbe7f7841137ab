/* SPDX-License-Identifier: Apache-2.0 */
/*
 * suspects: the blocks whose counts may be wrong after a death, and their recount.
 *
 * Noun: suspect (a block that a dead thread announced, marked by a bit). The bit outlives
 * the announce, so that the seat becomes FREE at once and does not wait for the recount of
 * its blocks.
 * I1  A bit is set, and header->suspects_added raised, before the announce is cleared.
 * I2  Only the owner of header->recount moves bits from MARKED to COUNTING: it sets the
 *     one, then clears the other. It clears a bit of COUNTING only after it found, or made,
 *     the block right while the bit stood there. So a mark that is set during a recount is
 *     left for the next one.
 * Callers: reclaim.c, manager.c, the audit. Death of the recounter: the bits stay until
 * their blocks are right.
 */
#include "queue/queue.h"
#include "reaper/recount.h"

/* Suspects of one pass over all records. */
#if !defined(MOST_SUSPECTS)
#define MOST_SUSPECTS 1024
#endif

/* How long one block is named while others wait for their turn; how long one call waits at
 * most. */
enum { TURN_NS = 2 * 1000 * 1000, PATIENCE_NS = 50 * 1000 * 1000 };
enum { MOST_NS = 1000 * 1000 * 1000 }; /* after this time no further batch is begun */

static uint64_t load_word(const struct tni_segment *s, tni_block block)
{
    return atomic_load(tni_word_at(s, block));
}

/* ---- marking suspects -------------------------------------------------------------------- */

static void mark(const struct tni_segment *s, tni_block block)
{
    uint32_t at = tni_block_position(&s->geometry, block);
    atomic_fetch_or(tni_suspects_at(s, TNI_SUSPECT_MARKED, at), UINT64_C(1) << (at % 64));
}

/*
 * Mark the blocks that an announce names. A span is cut to the most that an announce can mean:
 * what is committed together, or the blocks of one word of a row. A block that is FREE with
 * count 0 needs no repair.
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

/* `object` is not cleared here: take_announces() of a kind clears it. */
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

/*
 * A dead thread leaves a count too high, never too low. Any other mismatch is damage, which is
 * left for an audit.
 */
static bool is_damage(const struct tni_recounted *r)
{
    return tni_word_state(r->word) > TNI_BLOCK_ALLOC ||
           (tni_word_state(r->word) == TNI_BLOCK_FREE && r->records != 0) ||
           (tni_word_state(r->word) == TNI_BLOCK_ALLOC && r->records > tni_word_count(r->word));
}

/* @return whether the block is no suspect any more */
static bool repair_counted(struct tn_domain *d, struct tni_thread *thread, tni_block block,
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
    return tni_recount_repair(d, thread, block, r);
}

struct suspects {
    struct tn_domain *domain;
    struct tni_thread *thread;
    uint32_t count; /* of blocks, in this pass */
    uint32_t left;  /* of all passes: could not be repaired yet */
    bool has_repaired;
    bool is_cut;                    /* further suspects are marked */
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
    of->has_repaired = true;
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

/* One pass over all records, for all suspects. @return how many are still open */
static uint32_t repair_together(struct suspects *of)
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
            repair_counted(of->domain, of->thread, of->block[i], &of->seen[i]))
            close_suspect(of, i);
        open += of->is_open[i];
    }
    return open;
}

static void repair_named(struct suspects *of, uint32_t i, uint64_t until_ns)
{
    struct tni_recounted recounted;
    while (
        tni_recount_count_named(of->domain, of->thread, of->block[i], until_ns, &recounted)) {
        if (repair_counted(of->domain, of->thread, of->block[i], &recounted)) {
            close_suspect(of, i);
            return;
        }
        if (tni_os_now_ns() >= until_ns)
            return;
    }
}

/*
 * Each open suspect has a turn, again and again until the deadline: a suspect that a stopped
 * thread announces must not use up the time of the others.
 * @return how many are still open
 */
static uint32_t repair_in_turn(struct suspects *of, uint32_t open, uint64_t deadline_ns)
{
    do {
        bool is_last = open == 1;
        open = 0;
        for (uint32_t i = 0; i < of->count; i++) {
            if (!of->is_open[i])
                continue;
            uint64_t turn_ns = tni_os_now_ns() + TURN_NS;
            repair_named(of, i, is_last ? deadline_ns : TNI_MIN(turn_ns, deadline_ns));
            open += of->is_open[i];
        }
    } while (open > 0 && tni_os_now_ns() < deadline_ns);
    tni_process_name_recounted(of->domain, 0);
    return open;
}

static void repair_suspects(struct suspects *of, uint64_t deadline_ns)
{
    uint32_t open = repair_together(of);
    if (open > 0 && tni_os_now_ns() < deadline_ns)
        open = repair_in_turn(of, open, deadline_ns);
    of->left += open;
    of->count = 0;
}

/* I2. The suspects of 64 blocks, including those that a dead recounter had taken. */
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

/*
 * A damaged domain can have so many suspects that they would take minutes. Those that are left
 * at `limit_ns` stay marked.
 */
static void for_each_suspect(struct suspects *of, uint64_t deadline_ns, uint64_t limit_ns)
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
                if (of->count < MOST_SUSPECTS)
                    continue;
                repair_suspects(of, deadline_ns);
                if (tni_os_now_ns() >= limit_ns) {
                    of->is_cut = true;
                    return;
                }
            }
        }
    }
    if (of->count > 0)
        repair_suspects(of, deadline_ns);
}

/* @return how many are left */
static uint32_t recount_blocks(struct tn_domain *d, uint64_t deadline_ns)
{
    struct tni_header *h = d->segment.header;
    uint64_t added = atomic_load(&h->suspects_added); /* I1: their bits are set */
    if (added == atomic_load(&h->suspects_done))
        return 0;
    struct suspects of = {.domain = d, .thread = tni_thread_enter(d)};
    uint64_t now_ns = tni_os_now_ns();
    for_each_suspect(&of, TNI_MIN(deadline_ns, now_ns + PATIENCE_NS), now_ns + MOST_NS);
    tni_thread_leave(of.thread);
    of.left += of.is_cut;
    if (of.left == 0)
        atomic_store(&h->suspects_done, added);
    TNI_KILL_POINT("recount_suspects_done");
    if (of.has_repaired)
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
    return tni_fail(
        TN_ERR_TIMED_OUT,
        "%u blocks or more could not be recounted yet, because live threads are changing them, "
        "or because there are too many for one call",
        left);
}
