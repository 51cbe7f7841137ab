/* SPDX-License-Identifier: Apache-2.0 */
/* counts: functions that the files of the room ref share. The invariants are in ref.c. */
#ifndef TNI_REF_COUNTS_H
#define TNI_REF_COUNTS_H

#include "ref/ref.h"

/*
 * A count has 24 bits. No record is added to a block that has TNI_MOST_RECORDED references, so
 * that receivers can still pin the block: each thread of each process may add one reference for
 * the length of an operation.
 */
enum { TNI_MOST_PINNED = 0xfffff0, TNI_MOST_RECORDED = TNI_MOST_PINNED - 0x10000 };

static inline _Atomic uint32_t *tni_local_at(struct tn_domain *d, tni_block block)
{
    return &d->local[tni_block_position(&d->segment.geometry, block)];
}

/*
 * Free a block that has only the caller's reference: {ALLOC, 1} -> {FREE, 0} (I3). pre: this
 * thread announces the block; the block has no records and no object
 */
static inline bool tni_count_free_sole(_Atomic uint64_t *word, uint64_t *ret_freed)
{
    const uint64_t sole = ((uint64_t)TNI_BLOCK_ALLOC << 24) + 1;
    uint64_t seen = atomic_load_explicit(word, memory_order_acquire);
    *ret_freed = seen - sole + TNI_WORD_VERSION_ONE;
    return TNI_LIKELY((seen & TNI_WORD_USED) == sole) &&
           TNI_LIKELY(atomic_compare_exchange_strong(word, &seen, *ret_freed));
}

/** Add one reference, unless the block has `most`. TN_ERR_FULL. */
int tni_count_increment(struct tn_domain *domain, tni_block block, uint32_t most);
/**
 * Remove one reference (I3). pre: `thread` announces the block
 * @return whether this call made the block FREE
 */
bool tni_count_decrement(struct tn_domain *domain, struct tni_thread *thread, tni_block block);
/**
 * Drop the references of a message block's records (I4). pre: `thread` announces the block as
 * `outer`; the block has count 0 and is not FREE
 */
void tni_ref_release_records(struct tn_domain *domain, struct tni_thread *thread,
                             tni_block message);

/** How many records a message block has room for. */
uint64_t tni_records_most(const struct tni_segment *segment, tni_block block);

#endif
