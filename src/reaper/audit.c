/* SPDX-License-Identifier: Apache-2.0 */
/*
 * audit: check the count of every block against the records that name it. audit_tables.c
 * and audit_objects.c check the tables, audit_storages.c the storages outside of the arena,
 * audit_devices.c the memory of devices.
 *
 * One pass over all records counts the records of all blocks. A pass takes no snapshot: it
 * proves nothing about a block whose word changed during the pass, or that a thread
 * announced before or after it. So there are several passes, and each leaves out the blocks
 * that were right before.
 * I1  A block is wrong if it was wrong in several passes during which it did not change,
 *     and never right. A member has the claim on recounts during a pass, so one pass of a
 *     member proves more than one of an inspector: an inspector may miss a reference that
 *     moves from one record to another.
 * I2  If a block changed in every pass, a member counts it by name (recount.c, I3). Blocks
 *     that cannot be counted are reported as unchecked, not as discrepancies.
 * Callers: api. Death: an inspector writes nothing. A member leaves its claim on recounts,
 * as a recounter does; each repair is one CAS, or a reclaiming that can be repeated.
 */
#include "reaper/audit.h"

#include <stdio.h>
#include <string.h>

#include "reaper/recount.h"
#include "store/store.h"

enum { NAMED_SEATS = 8 };

/*
 * I1. A block is wrong after 24 wrong passes of an inspector, 2 ms apart, or after 3 of a
 * member. A block that changes gets 64 passes.
 */
enum {
    PROOF = 24,
    MEMBER_PROOF = 8,
    MOST_PASSES = 64,
    PAUSE_NS = 2 * 1000 * 1000,
    NAMED_NS = 50 * 1000 * 1000
};

/* ---- passes ------------------------------------------------------------------------------ */

/* What the passes found out about a block. All blocks are in one array, by position. */
struct candidate {
    uint64_t word; /* at the begin of the pass */
    uint32_t records;
    uint8_t proof;
    bool is_open; /* it was right in no pass yet */
    bool has_moved;
};

struct check {
    struct tni_audit *audit;
    struct candidate *candidates;
    uint64_t bytes;
    uint32_t frontiers[TNI_CLASSES];
    uint32_t open, wrong,
        moved;               /* after a pass: open blocks; how many of them are wrong, moved */
    uint32_t dangling;       /* records that name a block that does not exist */
    uint32_t first_dangling; /* what the first of them names */
};

static bool is_known(const struct tni_segment *s, tni_block block)
{
    return tni_geometry_has_block(&s->geometry, block.id) &&
           tni_block_index(block) < tni_frontier(s, tni_block_class(block));
}

static struct candidate *candidate_of(const struct check *h, tni_block block)
{
    return &h->candidates[tni_block_position(&h->audit->segment->geometry, block)];
}

static void tally(tni_block block, void *context)
{
    struct check *h = context;
    if (is_known(h->audit->segment, block))
        candidate_of(h, block)->records++;
    else if (h->dangling++ == 0)
        h->first_dangling = block.id;
}

typedef void block_fn(struct check *h, tni_block block, struct candidate *candidate);

static void for_each_open(struct check *h, block_fn *each)
{
    const struct tni_geometry *g = &h->audit->segment->geometry;
    for (uint32_t c = 1; c < g->class_count; c++)
        for (uint32_t i = 0; i < h->frontiers[c] && h->audit->stop == 0; i++) {
            tni_block block = tni_block_make(c, i);
            struct candidate *candidate = candidate_of(h, block);
            if (candidate->is_open)
                each(h, block, candidate);
        }
}

static uint64_t load_word(const struct check *h, tni_block block)
{
    return atomic_load(tni_word_at(h->audit->segment, block));
}

static void begin_block(struct check *h, tni_block block, struct candidate *candidate)
{
    candidate->word = load_word(h, block);
    candidate->records = 0;
    candidate->has_moved = false;
}

static void note_moved(struct check *h, uint32_t first, uint32_t span)
{
    const struct tni_geometry *g = &h->audit->segment->geometry;
    for (uint32_t i = 0; i < TNI_MAX(span, 1) && tni_geometry_has_block(g, first + i); i++)
        candidate_of(h, (tni_block){first + i})->has_moved = true;
}

/* Announces of dead threads count, too: their blocks may have a count too high until reclaimed.
 */
static void note_announced(struct check *h)
{
    const struct tni_segment *s = h->audit->segment;
    uint32_t limit = tni_seat_limit(s);
    for (uint32_t seat = 0; seat < limit; seat++) {
        if (tni_seat_state(atomic_load(&tni_seat_at(s, seat)->word)) == TNI_SEAT_FREE)
            continue;
        for (uint32_t t = 0; t < TNI_THREADS; t++) {
            const struct tni_announce *announce = tni_announce_at(s, seat, t);
            note_moved(h, atomic_load(&announce->block), atomic_load(&announce->span));
            note_moved(h, atomic_load(&announce->outer), 1);
        }
    }
}

static bool is_suspect(const struct tni_segment *s, tni_block block)
{
    uint32_t at = tni_block_position(&s->geometry, block);
    return ((atomic_load(tni_suspects_at(s, TNI_SUSPECT_MARKED, at)) |
             atomic_load(tni_suspects_at(s, TNI_SUSPECT_COUNTING, at))) >>
                (at % 64) &
            1) != 0;
}

/* A block whose count is right now is done, even if threads change it all the time. */
static void end_block(struct check *h, tni_block block, struct candidate *candidate,
                      uint8_t proof)
{
    struct tni_recounted now = {.word = load_word(h, block), .records = candidate->records};
    if (tni_recount_is_right(&now)) {
        candidate->is_open = false;
        return;
    }
    candidate->has_moved |= now.word != candidate->word || is_suspect(h->audit->segment, block);
    if (!candidate->has_moved)
        candidate->proof += proof;
    h->open++;
    h->moved += candidate->has_moved;
    h->wrong += candidate->proof >= PROOF;
}

static void end_block_of_member(struct check *h, tni_block block, struct candidate *candidate)
{
    end_block(h, block, candidate, MEMBER_PROOF);
}

static void end_block_of_inspector(struct check *h, tni_block block,
                                   struct candidate *candidate)
{
    end_block(h, block, candidate, 1);
}

/* Each block is checked as a recount would check it. */
static void run_pass(struct check *h)
{
    struct tn_domain *d = h->audit->domain;
    bool has_claim = d != NULL && tni_recount_begin(d) == 0;

    h->open = h->wrong = h->moved = h->dangling = 0;
    for_each_open(h, begin_block);
    note_announced(h);
    tni_recount_for_each(h->audit->segment, tally, h);
    note_announced(h);
    for_each_open(h, has_claim ? end_block_of_member : end_block_of_inspector);
    if (has_claim)
        tni_recount_end(d);
}

static int open_check(struct tni_audit *a, struct check *ret_check)
{
    const struct tni_geometry *g = &a->segment->geometry;
    struct check h = {.audit = a, .bytes = g->total_blocks * sizeof(struct candidate)};
    void *candidates;
    int status = tni_os_map_private(h.bytes, &candidates);
    if (status != 0)
        return status;
    h.candidates = candidates;
    for (uint32_t c = 1; c < g->class_count; c++) {
        h.frontiers[c] = tni_frontier(a->segment, c);
        for (uint32_t i = 0; i < h.frontiers[c]; i++)
            candidate_of(&h, tni_block_make(c, i))->is_open = true;
    }
    *ret_check = h;
    return 0;
}

/* ---- one block --------------------------------------------------------------------------- */

/* Names the records of a block, as in "seat 4, 7; 1 in queues; 2 in stores". */
static void name_records(const struct tni_segment *s, tni_block block, char *text,
                         size_t size_bytes)
{
    uint32_t at = tni_block_position(&s->geometry, block), limit = tni_seat_limit(s), seats = 0;
    uint64_t queues = tni_queue_count_records(s, block),
             stores = tni_store_count_records(s, block),
             tickets = tni_ticket_count_records(s, block);
    uint64_t of_ref = tni_ref_count_records(s, block);
    size_t used = 0;

#define ADD(...)                                                                               \
    (used += (size_t)snprintf(text + TNI_MIN(used, size_bytes - 1),                            \
                              size_bytes - TNI_MIN(used, size_bytes - 1), __VA_ARGS__))
    text[0] = 0;
    for (uint32_t seat = 0; seat < limit; seat++)
        if ((atomic_load(tni_row_at(s, seat, at)) >> (at % 64) & 1) != 0 &&
            ++seats <= NAMED_SEATS)
            ADD("%s%u", seats == 1 ? "seat " : ", ", seat);
    if (seats > NAMED_SEATS)
        ADD(" and %u more seats", seats - NAMED_SEATS);
    if (of_ref > seats)
        ADD("%s%llu in messages", used > 0 ? "; " : "", (unsigned long long)(of_ref - seats));
    if (queues > 0)
        ADD("%s%llu in queues", used > 0 ? "; " : "", (unsigned long long)queues);
    if (stores > 0)
        ADD("%s%llu in stores", used > 0 ? "; " : "", (unsigned long long)stores);
    if (tickets > 0)
        ADD("%s%llu in tickets", used > 0 ? "; " : "", (unsigned long long)tickets);
#undef ADD
}

static void say_block(struct tni_audit *a, tni_block block, const struct tni_recounted *r,
                      bool repaired)
{
    char names[160];
    uint32_t state = tni_word_state(r->word), count = tni_word_count(r->word);
    unsigned long long records = r->records;

    name_records(a->segment, block, names, sizeof names);
    const char *open = names[0] != 0 ? " (" : "", *close = names[0] != 0 ? ")" : "";
    if (state == TNI_BLOCK_FREE && records != 0)
        tni_audit_report(a, repaired, "block %08x: free, but %llu records name it%s%s%s",
                         block.id, records, open, names, close);
    else if (state == TNI_BLOCK_FREE)
        tni_audit_report(a, repaired, "block %08x: free, but its count is %u", block.id, count);
    else if (state == TNI_BLOCK_ALLOC && records == 0)
        tni_audit_report(a, repaired, "block %08x: count %u, but nothing names it", block.id,
                         count);
    else if (state == TNI_BLOCK_ALLOC)
        tni_audit_report(a, repaired, "block %08x: count %u, but %llu records name it%s%s%s",
                         block.id, count, records, open, names, close);
    else
        tni_audit_report(a, repaired, "block %08x: in state %u, which does not exist", block.id,
                         state);
}

/* ---- blocks that are left --------------------------------------------------------------- */

/* I2. pre: this process has the claim on recounts. @return whether the block was counted */
static bool count_named(struct tni_audit *a, tni_block block, struct tni_recounted *ret)
{
    struct tni_thread *thread = tni_thread_enter(a->domain);
    bool is_counted = tni_recount_count_named(a->domain, thread, block, a->named_until_ns, ret);
    tni_thread_leave(thread);
    return is_counted;
}

static bool repair(struct tni_audit *a, tni_block block, const struct tni_recounted *r)
{
    struct tni_thread *thread = tni_thread_enter(a->domain);
    bool is_repaired = tni_recount_repair(a->domain, thread, block, r);
    tni_thread_leave(thread);
    return is_repaired;
}

static void recheck_as_member(struct tni_audit *a, tni_block block)
{
    struct tni_recounted r;
    if (is_suspect(a->segment, block) || !count_named(a, block, &r))
        a->unchecked++;
    else if (!tni_recount_is_right(&r))
        say_block(a, block, &r, a->is_repair && repair(a, block, &r));
}

static void recheck(struct check *h, tni_block block, struct candidate *candidate)
{
    struct tni_audit *a = h->audit;
    struct tni_recounted last = {.word = candidate->word, .records = candidate->records};
    if (a->domain != NULL && tni_recount_begin(a->domain) == 0) {
        recheck_as_member(a, block);
        tni_recount_end(a->domain);
    } else if (candidate->proof < PROOF) {
        a->unchecked++;
    } else {
        say_block(a, block, &last, false);
    }
}

/* ---- all blocks ------------------------------------------------------------------------ */

struct dangling {
    const struct tni_segment *segment;
    uint32_t count;
};

static void count_dangling(tni_block block, void *context)
{
    struct dangling *dangling = context;
    dangling->count += !is_known(dangling->segment, block);
}

static bool has_dangling_records(const struct tni_audit *a, const void *subject)
{
    struct dangling dangling = {.segment = a->segment};
    (void)subject;
    tni_recount_for_each(a->segment, count_dangling, &dangling);
    return dangling.count != 0;
}

static int check_references(struct tni_audit *a)
{
    struct check h;
    int status = open_check(a, &h);
    if (status != 0)
        return status;
    run_pass(&h);
    uint32_t dangling = h.dangling, first = h.first_dangling;
    for (uint32_t n = 1; n < MOST_PASSES && h.open > h.wrong; n++) {
        tni_os_sleep_until(tni_os_now_ns() + PAUSE_NS);
        run_pass(&h);
    }
    if (dangling != 0 && tni_audit_stays_wrong(a, has_dangling_records, NULL))
        tni_audit_report(a, false,
                         "%u records name blocks that do not exist, such as block %08x",
                         dangling, first);
    a->named_until_ns = tni_os_now_ns() + NAMED_NS;
    for_each_open(&h, recheck);
    tni_os_unmap(h.candidates, h.bytes);
    return 0;
}

int tni_audit(const struct tni_segment *segment, struct tn_domain *domain, bool is_repair,
              struct tni_audit_report *report)
{
    struct tni_audit a = {.segment = segment,
                          .domain = domain,
                          .is_repair = is_repair,
                          .each = report->each,
                          .context = report->context};

    /* Dead seats first: a block that a dead thread announced is right once its seat is
     * reclaimed. */
    tni_audit_tables(&a);
    if (is_repair && a.stop == 0)
        tni_recount_suspects(domain, TNI_FOREVER); /* if this fails, its blocks are unchecked */
    int status = a.stop == 0 ? tni_audit_storages(&a) : 0;
    if (a.stop == 0 && status == 0)
        status = tni_audit_devices(&a);
    if (a.stop == 0)
        tni_audit_timelines(&a);
    if (a.stop == 0 && status == 0)
        status = check_references(&a);
    report->unchecked = a.unchecked;
    if (a.stop != 0)
        return a.stop;
    return status != 0 ? status : a.found;
}
