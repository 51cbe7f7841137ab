/* SPDX-License-Identifier: Apache-2.0 */
/*
 * audit: every block's count against the records that name it. The tables are in
 * audit_tables.c, storages outside of the arena in audit_storages.c.
 *
 * One pass over all records counts for all blocks at once. It takes no snapshot, so what it
 * suspects is looked at again one by one, and reported only if it stood still and was wrong
 * each time. Without a seat (an inspector) nobody can be asked to keep references in place, so
 * a suspect has several hearings.
 * Callers: api. Death: an inspector writes nothing; a repair is one CAS, or a settling.
 */
#include "reaper/audit.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "reaper/recount.h"

enum { SENTENCE_BYTES = 512, HEARINGS = 3, LOOKS = 200, NAMED_SEATS = 8, MOST_HEARD = 1000 };

/* ---- reporting --------------------------------------------------------------------------- */

void tni_audit_say(struct tni_audit *a, bool repaired, const char *format, ...)
{
    char sentence[SENTENCE_BYTES];
    va_list arguments;

    a->found++;
    if (a->each == NULL || a->stop != 0)
        return;
    va_start(arguments, format);
    vsnprintf(sentence, sizeof sentence, format, arguments);
    va_end(arguments);
    /* Names and paths are as shared memory has them: nothing that a terminal would obey. */
    for (char *c = sentence; *c != '\0'; c++)
        if ((uint8_t)*c < ' ' || *c == 0x7f)
            *c = '?';
    a->stop = a->each(sentence, repaired, a->context);
}

bool tni_audit_stays(struct tni_audit *a, tni_audit_wrong_fn *wrong, const void *subject)
{
    enum { TRIES = 25, FEW_TRIES = 2, PAUSE_NS = 2 * 1000 * 1000, PATIENT = 32 };
    bool is_patient = a->stayed < PATIENT;
    for (uint32_t i = 0; i < (is_patient ? TRIES : FEW_TRIES); i++) {
        if (!wrong(a, subject))
            return false;
        if (is_patient)
            tni_os_sleep_until(tni_os_now_ns() + PAUSE_NS);
        else
            tni_os_yield();
    }
    bool stays = wrong(a, subject);
    a->stayed += stays;
    return stays;
}

/* ---- the pass ---------------------------------------------------------------------------- */

/* Blocks are many and records few: [total_blocks] counts, sparse. */
struct tally {
    struct tni_audit *audit;
    uint32_t *records;
    uint64_t bytes;
    uint32_t stray;       /* records that name no block */
    uint32_t first_stray; /* what the first of them names */
};

static bool is_known(const struct tni_segment *s, tni_block block)
{
    return tni_geometry_has_block(&s->geometry, block.id) &&
           tni_block_index(block) < tni_frontier(s, tni_block_class(block));
}

static void tally(tni_block block, void *context)
{
    struct tally *t = context;
    if (is_known(t->audit->segment, block))
        t->records[tni_block_position(&t->audit->segment->geometry, block)]++;
    else if (t->stray++ == 0)
        t->first_stray = block.id;
}

static int tally_all(struct tni_audit *a, struct tally *ret_tally)
{
    struct tally t = {.audit = a, .bytes = (uint64_t)a->segment->geometry.total_blocks * 4};
    void *records;
    int status = tni_os_map_private(t.bytes, &records);
    if (status != 0)
        return status;
    t.records = records;
    tni_recount_for_each(a->segment, tally, &t);
    *ret_tally = t;
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
        tni_audit_say(a, repaired, "block %x: free, but %llu records name it%s%s%s", block.id,
                      records, open, names, close);
    else if (state == TNI_BLOCK_FREE)
        tni_audit_say(a, repaired, "block %x: free, but its count is %u", block.id, count);
    else if (state == TNI_BLOCK_ALLOC && records == 0)
        tni_audit_say(a, repaired, "block %x: count %u, but nothing names it", block.id, count);
    else if (state == TNI_BLOCK_ALLOC)
        tni_audit_say(a, repaired, "block %x: count %u, but %llu records name it%s%s%s",
                      block.id, count, records, open, names, close);
    else
        tni_audit_say(a, repaired, "block %x: in state %u, which does not exist", block.id,
                      state);
}

/*
 * Several looks, each at a block that stands still. @return whether it was wrong each time, in
 * the same way
 */
static bool is_wrong(const struct tni_audit *a, const struct tni_thread *ours, tni_block block,
                     struct tni_recounted *ret_recounted)
{
    struct tni_recounted first = {0}, now;
    uint32_t hearings = 0;

    for (uint32_t look = 0; look < LOOKS && hearings < HEARINGS; look++) {
        if (look > 0)
            tni_os_yield();
        if (!tni_recount_look(a->segment, ours, block, &now))
            continue; /* in motion */
        if (tni_recount_is_right(&now))
            return false;
        if (hearings == 0 || now.word != first.word || now.records != first.records) {
            first = now;
            hearings = 0;
        }
        hearings++;
    }
    *ret_recounted = first;
    return hearings == HEARINGS; /* what never stands still is at work, and well */
}

/* pre: a member. @return whether it is right now */
static bool repair(struct tni_audit *a, tni_block block, bool *ret_was_wrong,
                   struct tni_recounted *ret_recounted)
{
    bool has_claim = tni_recount_begin(a->domain) == 0;
    struct tni_thread *thread = tni_thread_enter(a->domain);
    *ret_was_wrong = is_wrong(a, thread, block, ret_recounted);
    bool is_repaired = *ret_was_wrong && has_claim &&
                       tni_recount_settle(a->domain, thread, block, ret_recounted);
    tni_thread_leave(thread);
    if (has_claim)
        tni_recount_end(a->domain);
    return is_repaired;
}

static void check_block(struct tni_audit *a, tni_block block)
{
    struct tni_recounted recounted;
    bool was_wrong, is_repaired = false;

    if (a->domain != NULL)
        is_repaired = repair(a, block, &was_wrong, &recounted);
    else
        was_wrong = is_wrong(a, NULL, block, &recounted);
    if (was_wrong)
        say_block(a, block, &recounted, is_repaired);
}

static void check_blocks(struct tni_audit *a, const struct tally *t)
{
    const struct tni_geometry *g = &a->segment->geometry;
    uint32_t heard = 0; /* each hearing is a look at every record there is */

    for (uint32_t c = 1; c < g->class_count; c++) {
        uint32_t frontier = tni_frontier(a->segment, c);
        for (uint32_t i = 0; i < frontier && a->stop == 0; i++) {
            tni_block block = tni_block_make(c, i);
            struct tni_recounted now = {.word = atomic_load(tni_word_at(a->segment, block)),
                                        .records = t->records[tni_block_position(g, block)]};
            if (!tni_recount_is_right(&now) && ++heard <= MOST_HEARD)
                check_block(a, block);
        }
    }
    if (heard > MOST_HEARD && a->stop == 0)
        tni_audit_say(a, false, "%u more blocks may be wrong: they were not looked into",
                      heard - MOST_HEARD);
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
    struct tally t;
    int status = tally_all(a, &t);
    if (status != 0)
        return status;
    if (t.stray != 0 && tni_audit_stays(a, has_strays, NULL))
        tni_audit_say(a, false, "%u records name blocks that do not exist, such as %x", t.stray,
                      t.first_stray);
    check_blocks(a, &t);
    tni_os_unmap(t.records, t.bytes);
    return 0;
}

int tni_audit(const struct tni_segment *segment, struct tn_domain *domain, tn_audit_fn *each,
              void *context)
{
    struct tni_audit a = {
        .segment = segment, .domain = domain, .each = each, .context = context};

    /* The dead first: what they announced is theirs, and right once they are settled. */
    tni_audit_tables(&a);
    int status = a.stop == 0 ? tni_audit_storages(&a) : 0;
    if (a.stop == 0 && status == 0)
        status = check_references(&a);
    if (a.stop != 0)
        return a.stop;
    return status != 0 ? status : a.found;
}
