/* SPDX-License-Identifier: Apache-2.0 */
/* recount: make the counts of blocks right (recount.c, suspects.c). Inside the room reaper. */
#ifndef TNI_REAPER_RECOUNT_H
#define TNI_REAPER_RECOUNT_H

#include "ref/ref.h"

/** Make suspects of the blocks that a dead seat announced, and clear its announces. */
void tni_recount_take_announces(struct tn_domain *domain, uint32_t dead);
/**
 * Recount the suspects, for 50 ms at most and not beyond the deadline.
 * @return 0, or TN_ERR_TIMED_OUT: live threads are changing some blocks, which stay suspects;
 * or another process recounts
 */
int tni_recount_suspects(struct tn_domain *domain, uint64_t deadline_ns);
/** Whether there may be suspects, or semaphores to be recounted. */
bool tni_recount_has_suspects(const struct tni_segment *segment);

/** How many records name a block. */
uint64_t tni_recount_records(const struct tni_segment *segment, tni_block block);
/** Call `each` with the block that each record names, unchecked. */
void tni_recount_for_each(const struct tni_segment *segment, tni_record_fn *each,
                          void *context);

/* What one count of the records of a block found. */
struct tni_recounted {
    uint64_t word; /* did not change while `records` were counted */
    uint64_t records;
};
/** Count the records of a block. @return false: a thread is changing the block; retry */
bool tni_recount_count(const struct tni_segment *segment, const struct tni_thread *ours,
                       tni_block block, struct tni_recounted *ret_recounted);
/**
 * The same for a block that threads change all the time: threads that have not begun yet wait
 * (recount.c, I3). pre: between tni_recount_begin() and tni_recount_end().
 * @return false: a thread was changing the block until `until_ns`; it may be stopped
 */
bool tni_recount_count_named(struct tn_domain *domain, const struct tni_thread *ours,
                             tni_block block, uint64_t until_ns,
                             struct tni_recounted *ret_recounted);
/** Whether word and records agree. */
bool tni_recount_is_right(const struct tni_recounted *recounted);

/**
 * Take the claim on recounts, by which references do not move between records unseen (ref.c,
 * I5). TN_ERR_TIMED_OUT: another process recounts.
 */
int tni_recount_begin(struct tn_domain *domain);
void tni_recount_end(struct tn_domain *domain);
/** Release the claim of `who`, which is dead or leaves. */
void tni_recount_release(struct tn_domain *domain, uint64_t who);

/**
 * Set the count of a block to the records that were counted, if its word is still the same;
 * free a block without records. pre: between tni_recount_begin() and tni_recount_end().
 * @return whether it was done
 */
bool tni_recount_repair(struct tn_domain *domain, struct tni_thread *thread, tni_block block,
                        const struct tni_recounted *recounted);

#endif
