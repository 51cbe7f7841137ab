/* SPDX-License-Identifier: Apache-2.0 */
/* counts: what the files of the room ref share. Inside the room; the invariants are in ref.c.
 */
#ifndef TNI_REF_COUNTS_H
#define TNI_REF_COUNTS_H

#include "ref/ref.h"

/*
 * A count has 24 bits. Each record that a push or an export makes may lead to one reference
 * more in each process that receives it, for as long as one of its threads works: so many are
 * left over for them.
 */
enum { TNI_MOST_PINNED = 0xfffff0, TNI_MOST_RECORDED = TNI_MOST_PINNED - 0x10000 };

static inline _Atomic uint32_t *tni_local_at(struct tn_domain *d, tni_block block)
{
    return &d->local[tni_block_position(&d->segment.geometry, block)];
}

/* I3. From {ALLOC, 1} by the only holder. pre: there is nothing to take apart; announced */
static inline bool tni_count_free_sole(_Atomic uint64_t *word, uint64_t *ret_freed)
{
    const uint64_t sole = ((uint64_t)TNI_BLOCK_ALLOC << 24) + 1;
    uint64_t seen = atomic_load_explicit(word, memory_order_acquire);
    *ret_freed = seen - sole + TNI_WORD_VERSION_ONE;
    return TNI_LIKELY((seen & TNI_WORD_USED) == sole) &&
           TNI_LIKELY(atomic_compare_exchange_strong(word, &seen, *ret_freed));
}

/** One more reference, up to `most`. TN_ERR_FULL. */
int tni_count_increment(struct tn_domain *domain, tni_block block, uint32_t most);
/** I3. pre: announced. @return whether the block is FREE now, by us */
bool tni_count_decrement(struct tn_domain *domain, struct tni_thread *thread, tni_block block);
/** I4. Give the references of a message block back, and free it. pre: count 0; announced */
void tni_ref_take_apart(struct tn_domain *domain, struct tni_thread *thread, tni_block message);

/** How many records a message block has room for. */
uint64_t tni_records_most(const struct tni_segment *segment, tni_block block);

#endif
