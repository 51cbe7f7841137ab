/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recount: count the records of a block while they do not change, and repair the block's
 * count.
 *
 * The records of a block are counted while its word does not change and no live thread
 * announces the block; both are checked before and after. A thread that announces the block
 * after the second check changes the word, so the CAS of the repair fails. A thread that
 * moves a reference from one record to another changes no word; it sees the claim
 * header->recount and changes the version in the word (ref.c, I5). Announces of dead
 * threads are ignored: two dead seats that announce one block would wait for each other.
 * Source: protocol C of docs/crash.md.
 *
 * I1  One process at a time, the owner of header->recount, repairs counts.
 * I2  A repair changes the word of a block only if it is still the word that was read
 *     before the count.
 * I3  If threads keep changing a block, the recounter names it in header->recounted, and a
 *     thread that is about to announce it waits. So each thread delays the recount once at
 *     most, and the recount ends, unless a thread that announces the block is stopped.
 * Callers: suspects.c, the audit. Death of the recounter: its announce `outer` names the
 * block that it was repairing, and the next recounter ignores its claim on header->recount.
 */
#include "reaper/recount.h"

#include "channel/channel.h"
#include "queue/queue.h"
#include "reaper/reaper.h"
#include "share/share.h"
#include "store/store.h"
#include "wait/wait.h"

/* How long to wait for the claim; how often to check a block at once, and then with yields. */
enum { CLAIM_NS = 1000 * 1000, PAUSE_NS = 50 * 1000, SPINS = 64, YIELDS = 16 };

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
        tni_os_sleep_until(now_ns +
                           PAUSE_NS); /* not a spin: its owner may have a lower priority */
    }
    /*
     * Before any read of an announce. Pairs with the read-modify-write that a thread makes
     * before it calls tni_ref_before_move().
     */
    atomic_thread_fence(memory_order_seq_cst);
    TNI_KILL_POINT("recount_begun");
    name_none(d); /* a dead recounter may have left a name */
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
    /* Another owner of the claim may lose the name of its block; that block then takes longer.
     */
    if (atomic_load(&h->recount) == who)
        name_none(d);
    tni_claim_release(&h->recount, who);
}

/* ---- counting ---------------------------------------------------------------------------- */

uint64_t tni_recount_records(const struct tni_segment *s, tni_block block)
{
    return tni_ref_count_records(s, block) + tni_queue_count_records(s, block) +
           tni_store_count_records(s, block) + tni_channel_count_records(s, block) +
           tni_ticket_count_records(s, block);
}

void tni_recount_for_each(const struct tni_segment *s, tni_record_fn *each, void *context)
{
    tni_ref_for_each_record(s, each, context);
    tni_queue_for_each_record(s, each, context);
    tni_store_for_each_record(s, each, context);
    tni_channel_for_each_record(s, each, context);
    tni_ticket_for_each_record(s, each, context);
}

static uint64_t load_word(const struct tni_segment *s, tni_block block)
{
    return atomic_load(tni_word_at(s, block));
}

bool tni_recount_count(const struct tni_segment *s, const struct tni_thread *ours,
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

bool tni_recount_count_named(struct tn_domain *d, const struct tni_thread *ours,
                             tni_block block, uint64_t until_ns,
                             struct tni_recounted *ret_recounted)
{
    tni_process_name_recounted(d, block.id);
    TNI_KILL_POINT("recount_named");
    uint32_t tries = 0; /* stops rising, so that a model sees the same state again */
    while (!tni_recount_count(&d->segment, ours, block, ret_recounted)) {
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

/* ---- repair ----------------------------------------------------------------------------- */

bool tni_recount_repair(struct tn_domain *d, struct tni_thread *thread, tni_block block,
                        const struct tni_recounted *r)
{
    bool is_done;
    /*
     * A damaged word: a state that does not exist, or FREE although records name the block.
     * Rewrite it from the number of records.
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
