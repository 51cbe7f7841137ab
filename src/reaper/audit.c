/* SPDX-License-Identifier: Apache-2.0 */
/*
 * audit: every block's count against the records that name it. The tables are in
 * audit_tables.c, storages outside of the arena in audit_storages.c.
 *
 * One pass over all records counts for all blocks at once. It takes no snapshot: a block whose
 * word changed during the pass, or that somebody announced before or after the pass, tells
 * nothing. So there are several passes; each leaves the blocks that were right out of the next.
 * I1  A block is wrong if it stood still and was wrong in pass after pass, and never right. A
 *     pass of a member, which has the claim on recounts, proves more than one of an inspector,
 *     which others do not know of: a reference that moves may hide from an inspector.
 * I2  A block that stood still in no pass is counted by a member under its name (recount.c,
 *     I3). What is left is not looked into: that is told apart, and is no discrepancy.
 * Callers: api. Death: an inspector writes nothing. A member leaves its claim on recounts, as a
 * recounter does; a repair is one CAS, or a reclaiming.
 */
#include "reaper/audit.h"

#include <stdio.h>
#include <string.h>

#include "reaper/recount.h"

enum { NAMED_SEATS = 8 };

/*
 * I1. What is wrong in 24 passes of an inspector, 2 ms apart, or in 3 of a member; how often
 * what moves is looked at, in hope that it stands still.
 */
enum {
    PROOF = 24,
    MEMBER_PROOF = 8,
    MOST_PASSES = 64,
    PAUSE_NS = 2 * 1000 * 1000,
    NAMED_NS = 50 * 1000 * 1000
};

/* ---- passes ------------------------------------------------------------------------------ */

/* What is known of a block; an array of all of them, by position, sparse. */
struct heard {
    uint64_t word; /* when the pass began */
    uint32_t records;
    uint8_t proof;
    bool is_open; /* it was not right yet */
    bool has_moved;
};

struct hearing {
    struct tni_audit *audit;
    struct heard *heard;
    uint64_t bytes;
    uint32_t frontiers[TNI_CLASSES];
    uint32_t open, wrong, moved; /* after a pass: blocks that are open; of these, such ones */
    uint32_t stray;              /* records that name no block */
    uint32_t first_stray;        /* what the first of them names */
};

static bool is_known(const struct tni_segment *s, tni_block block)
{
    return tni_geometry_has_block(&s->geometry, block.id) &&
           tni_block_index(block) < tni_frontier(s, tni_block_class(block));
}

static struct heard *heard_of(const struct hearing *h, tni_block block)
{
    return &h->heard[tni_block_position(&h->audit->segment->geometry, block)];
}

static void tally(tni_block block, void *context)
{
    struct hearing *h = context;
    if (is_known(h->audit->segment, block))
        heard_of(h, block)->records++;
    else if (h->stray++ == 0)
        h->first_stray = block.id;
}

typedef void block_fn(struct hearing *h, tni_block block, struct heard *heard);

static void for_each_open(struct hearing *h, block_fn *each)
{
    const struct tni_geometry *g = &h->audit->segment->geometry;
    for (uint32_t c = 1; c < g->class_count; c++)
        for (uint32_t i = 0; i < h->frontiers[c] && h->audit->stop == 0; i++) {
            tni_block block = tni_block_make(c, i);
            struct heard *heard = heard_of(h, block);
            if (heard->is_open)
                each(h, block, heard);
        }
}

static uint64_t load_word(const struct hearing *h, tni_block block)
{
    return atomic_load(tni_word_at(h->audit->segment, block));
}

static void begin_look(struct hearing *h, tni_block block, struct heard *heard)
{
    heard->word = load_word(h, block);
    heard->records = 0;
    heard->has_moved = false;
}

static void note_moved(struct hearing *h, uint32_t first, uint32_t span)
{
    const struct tni_geometry *g = &h->audit->segment->geometry;
    for (uint32_t i = 0; i < TNI_MAX(span, 1) && tni_geometry_has_block(g, first + i); i++)
        heard_of(h, (tni_block){first + i})->has_moved = true;
}

/* Announces of the dead too: their counts may be too high until they are reclaimed. */
static void note_announced(struct hearing *h)
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

/* A block that changes all the time, and is right when it is looked at, is well. */
static void end_look(struct hearing *h, tni_block block, struct heard *heard, uint8_t proof)
{
    struct tni_recounted now = {.word = load_word(h, block), .records = heard->records};
    if (tni_recount_is_right(&now)) {
        heard->is_open = false;
        return;
    }
    heard->has_moved |= now.word != heard->word || is_suspect(h->audit->segment, block);
    if (!heard->has_moved)
        heard->proof += proof;
    h->open++;
    h->moved += heard->has_moved;
    h->wrong += heard->proof >= PROOF;
}

static void end_look_of_member(struct hearing *h, tni_block block, struct heard *heard)
{
    end_look(h, block, heard, MEMBER_PROOF);
}

static void end_look_of_inspector(struct hearing *h, tni_block block, struct heard *heard)
{
    end_look(h, block, heard, 1);
}

/* As a recount of each block would look at it. */
static void pass(struct hearing *h)
{
    struct tn_domain *d = h->audit->domain;
    bool has_claim = d != NULL && tni_recount_begin(d) == 0;

    h->open = h->wrong = h->moved = h->stray = 0;
    for_each_open(h, begin_look);
    note_announced(h);
    tni_recount_for_each(h->audit->segment, tally, h);
    note_announced(h);
    for_each_open(h, has_claim ? end_look_of_member : end_look_of_inspector);
    if (has_claim)
        tni_recount_end(d);
}

static int open_hearing(struct tni_audit *a, struct hearing *ret_hearing)
{
    const struct tni_geometry *g = &a->segment->geometry;
    struct hearing h = {.audit = a, .bytes = g->total_blocks * sizeof(struct heard)};
    void *heard;
    int status = tni_os_map_private(h.bytes, &heard);
    if (status != 0)
        return status;
    h.heard = heard;
    for (uint32_t c = 1; c < g->class_count; c++) {
        h.frontiers[c] = tni_frontier(a->segment, c);
        for (uint32_t i = 0; i < h.frontiers[c]; i++)
            heard_of(&h, tni_block_make(c, i))->is_open = true;
    }
    *ret_hearing = h;
    return 0;
}

/* ---- one block --------------------------------------------------------------------------- */

/* "seats 4 and 7; 1 in queues; 2 tickets", as much as fits. */
static void name_records(const struct tni_segment *s, tni_block block, char *text,
                         size_t size_bytes)
{
    uint32_t at = tni_block_position(&s->geometry, block), limit = tni_seat_limit(s), seats = 0;
    uint64_t queues = tni_queue_count_records(s, block),
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
        tni_audit_say(a, repaired, "block %08x: free, but %llu records name it%s%s%s", block.id,
                      records, open, names, close);
    else if (state == TNI_BLOCK_FREE)
        tni_audit_say(a, repaired, "block %08x: free, but its count is %u", block.id, count);
    else if (state == TNI_BLOCK_ALLOC && records == 0)
        tni_audit_say(a, repaired, "block %08x: count %u, but nothing names it", block.id,
                      count);
    else if (state == TNI_BLOCK_ALLOC)
        tni_audit_say(a, repaired, "block %08x: count %u, but %llu records name it%s%s%s",
                      block.id, count, records, open, names, close);
    else
        tni_audit_say(a, repaired, "block %08x: in state %u, which does not exist", block.id,
                      state);
}

/* ---- what is left ------------------------------------------------------------------------ */

/* I2. pre: the claim on recounts. @return whether the block stood still */
static bool count_named(struct tni_audit *a, tni_block block, struct tni_recounted *ret)
{
    struct tni_thread *thread = tni_thread_enter(a->domain);
    bool stood = tni_recount_look_named(a->domain, thread, block, a->named_until_ns, ret);
    tni_thread_leave(thread);
    return stood;
}

static bool repair(struct tni_audit *a, tni_block block, const struct tni_recounted *r)
{
    struct tni_thread *thread = tni_thread_enter(a->domain);
    bool is_repaired = tni_recount_reclaim(a->domain, thread, block, r);
    tni_thread_leave(thread);
    return is_repaired;
}

static void judge_as_member(struct tni_audit *a, tni_block block)
{
    struct tni_recounted r;
    if (is_suspect(a->segment, block) || !count_named(a, block, &r))
        a->unchecked++;
    else if (!tni_recount_is_right(&r))
        say_block(a, block, &r, a->is_repair && repair(a, block, &r));
}

static void judge(struct hearing *h, tni_block block, struct heard *heard)
{
    struct tni_audit *a = h->audit;
    struct tni_recounted last = {.word = heard->word, .records = heard->records};
    if (a->domain != NULL && tni_recount_begin(a->domain) == 0) {
        judge_as_member(a, block);
        tni_recount_end(a->domain);
    } else if (heard->proof < PROOF) {
        a->unchecked++;
    } else {
        say_block(a, block, &last, false);
    }
}

/* ---- all of it --------------------------------------------------------------------------- */

struct strays {
    const struct tni_segment *segment;
    uint32_t count;
};

static void count_stray(tni_block block, void *context)
{
    struct strays *strays = context;
    strays->count += !is_known(strays->segment, block);
}

static bool has_strays(const struct tni_audit *a, const void *subject)
{
    struct strays strays = {.segment = a->segment};
    (void)subject;
    tni_recount_for_each(a->segment, count_stray, &strays);
    return strays.count != 0;
}

static int check_references(struct tni_audit *a)
{
    struct hearing h;
    int status = open_hearing(a, &h);
    if (status != 0)
        return status;
    pass(&h);
    uint32_t stray = h.stray, first_stray = h.first_stray;
    for (uint32_t n = 1; n < MOST_PASSES && h.open > h.wrong; n++) {
        tni_os_sleep_until(tni_os_now_ns() + PAUSE_NS);
        pass(&h);
    }
    if (stray != 0 && tni_audit_stays(a, has_strays, NULL))
        tni_audit_say(a, false, "%u records name blocks that do not exist, such as %08x", stray,
                      first_stray);
    a->named_until_ns = tni_os_now_ns() + NAMED_NS;
    for_each_open(&h, judge);
    tni_os_unmap(h.heard, h.bytes);
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

    /* The dead first: what they announced is theirs, and right once they are reclaimed. */
    tni_audit_tables(&a);
    if (is_repair && a.stop == 0)
        tni_recount_suspects(domain, TNI_FOREVER); /* what it cannot do is not looked into */
    int status = a.stop == 0 ? tni_audit_storages(&a) : 0;
    if (a.stop == 0 && status == 0)
        status = check_references(&a);
    report->unchecked = a.unchecked;
    if (a.stop != 0)
        return a.stop;
    return status != 0 ? status : a.found;
}
