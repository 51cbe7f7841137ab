/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ref: keeps the counts of blocks in agreement with the records that name the blocks.
 *
 * Nouns: hold, local reference, record, announce.
 * I1  count >= records. A count is too high only while a thread announces the block.
 * I2  local[b] > 0 exactly when this seat's hold bit of b is set, except while a thread that
 *     changes the bit has set local[b] to TNI_LOCAL_BUSY. Shared memory is written only when
 *     local[b] changes from 0 to 1 or from 1 to 0.
 * I3  One CAS makes a block FREE, from count 0, or from 1 by the only holder.
 * I4  The thread that brings a message block's count to 0 drops the references of its records.
 *     It announces the message block as `outer` until that block is FREE.
 * I5  A reference that moves between records changes no count. After its announce, and before
 *     it erases the old record, the moving thread reads header->recount; if a recount is going
 *     on, the thread raises the word's version. A recounter first takes that claim, and then
 *     reads the announces. So either the recounter sees the announce, or the moving thread sees
 *     the claim.
 * I6  Only one call knows a block that is TNI_LOCAL_UNFINISHED. fork() gives the child no hold
 *     and no local reference of the block, because nothing in the child would release it.
 * Callers: tensor, share, object, queue, reaper. docs/crash.md explains the protocol. A death
 * leaves an announced block whose count is one too high, or is 0 although the block is not
 * FREE; the reaper recounts that block. No death leaves a count too low.
 *
 * In this file: counts, and reading the records of message blocks. local.c has local
 * references, make.c new blocks, retry.c the wait for memory, records.c new records, fork.c the
 * fork hook, and reclaim.c the functions of the reaper.
 */
#include "ref/ref.h"

#include "ref/counts.h"

/* ---- counts ------------------------------------------------------------------------------ */

static int fail_full(tni_block block, uint32_t most)
{
    return tni_fail(TN_ERR_FULL, "block %08x has %u references, and cannot have more", block.id,
                    most);
}

int tni_count_increment(struct tn_domain *d, tni_block block, uint32_t most)
{
    uint64_t old = atomic_fetch_add(tni_word_at(&d->segment, block), TNI_WORD_INC);
    if (TNI_LIKELY(tni_word_count(old) < most))
        return 0;
    atomic_fetch_add(tni_word_at(&d->segment, block), TNI_WORD_DEC);
    return fail_full(block, most);
}

int tni_ref_check_room(struct tn_domain *d, tni_block block)
{
    uint64_t word = atomic_load_explicit(tni_word_at(&d->segment, block), memory_order_relaxed);
    return TNI_LIKELY(tni_word_count(word) < TNI_MOST_PINNED)
               ? 0
               : fail_full(block, TNI_MOST_PINNED);
}

bool tni_count_decrement(struct tn_domain *d, struct tni_thread *thread, tni_block block)
{
    _Atomic uint64_t *word = tni_word_at(&d->segment, block);
    uint64_t seen;
    bool is_message = tni_class_is_message(tni_block_class(block));
    bool is_backing = tni_class_is_backing(tni_block_class(block));
    /* Read the generation now: it cannot change while this thread has its reference. */
    uint32_t generation = is_backing ? tni_ref_generation(d, block) : 0;

    /* The last reference of a block that has no records and no object: free it at once. */
    if (!is_message && !is_backing && tni_count_free_sole(word, &seen))
        return true;
    if (is_message)
        atomic_store(&thread->announce->outer, block.id);
    seen = atomic_fetch_add(word, TNI_WORD_DEC) + TNI_WORD_DEC;
    TNI_KILL_POINT("ref_decremented");
    bool is_freed = false;
    if (tni_word_count(seen) == 0 && tni_word_state(seen) == TNI_BLOCK_ALLOC) {
        if (is_message)
            tni_ref_release_records(d, thread, block);
        if (is_backing)
            tni_backing_end(d, block, generation);
        is_freed =
            atomic_compare_exchange_strong(word, &seen, tni_word_next(seen, TNI_BLOCK_FREE, 0));
        TNI_KILL_POINT("ref_freed");
    }
    if (is_message)
        atomic_store(&thread->announce->outer, 0);
    return is_freed;
}

void tni_ref_drop(struct tn_domain *d, struct tni_thread *thread, tni_block block)
{
    bool is_freed = tni_count_decrement(d, thread, block);
    tni_announce_clear(thread);
    if (is_freed)
        tni_alloc_put(d, thread, block);
}

int tni_ref_pin(struct tn_domain *d, tni_block block)
{
    return tni_count_increment(d, block, TNI_MOST_PINNED);
}

/* ---- message blocks ---------------------------------------------------------------------- */

uint64_t tni_records_most(const struct tni_segment *s, tni_block block)
{
    uint64_t bytes = tni_block_bytes(&s->geometry, block) - sizeof(struct tni_records);
    return bytes / sizeof(uint32_t);
}

struct tni_records *tni_records_at(const struct tni_segment *s, tni_block block,
                                   uint32_t *ret_count)
{
    struct tni_records *records = tni_payload_look(s, block);
    uint64_t most = tni_records_most(s, block);
    uint32_t count = atomic_load_explicit(&records->count, memory_order_acquire);
    if (TNI_LIKELY(count <= most)) {
        *ret_count = count;
        return records;
    }
    tni_fail(TN_ERR_CORRUPT, "message block %08x states %u records, but has room for only %llu",
             block.id, count, (unsigned long long)most);
    return NULL;
}

void tni_ref_release_records(struct tn_domain *d, struct tni_thread *thread, tni_block message)
{
    uint32_t count;
    struct tni_records *records = tni_records_at(&d->segment, message, &count);
    /* If the count is damaged, the references stay until an audit finds them. */
    for (; records != NULL && count > 0; count--) {
        tni_block block = {TNI_LOOK(records->block[count - 1])};
        bool is_known = tni_geometry_has_block(&d->segment.geometry, block.id) &&
                        !tni_class_is_message(tni_block_class(block));
        if (is_known)
            tni_announce(thread, block, 1);
        atomic_store_explicit(&records->count, count - 1, memory_order_seq_cst);
        TNI_KILL_POINT("take_apart_unrecorded");
        if (is_known)
            tni_ref_drop(d, thread, block);
    }
}
