/* SPDX-License-Identifier: Apache-2.0 */
/* recount: making counts true. Inside the room reaper. */
#ifndef TNI_REAPER_RECOUNT_H
#define TNI_REAPER_RECOUNT_H

#include "ref/ref.h"

/** Make suspects of the blocks that a dead seat announced, and clear its announces. */
void tni_recount_take_announces(struct tn_domain *domain, uint32_t dead);
/**
 * Recount the suspects, with some patience, and not beyond the deadline.
 * @return 0, or TN_ERR_TIMED_OUT: a live thread was in the way of one, which stays a suspect;
 *         or somebody else recounts
 */
int tni_recount_suspects(struct tn_domain *domain, uint64_t deadline_ns);
/** Whether there may be any. */
bool tni_recount_has_suspects(const struct tni_segment *segment);

/** All records that name a block. */
uint64_t tni_recount_records(const struct tni_segment *segment, tni_block block);
/**
 * Call `each` with the block that each record in the domain names; the block may be anything.
 */
void tni_recount_for_each(const struct tni_segment *segment, tni_record_fn *each,
                          void *context);

/* What recounting one block once, without changing anything, found. */
struct tni_recounted {
    uint64_t word; /* stood still while `records` were counted */
    uint64_t records;
};
/** @return false: somebody is at work on it, look again */
bool tni_recount_look(const struct tni_segment *segment, const struct tni_thread *ours,
                      tni_block block, struct tni_recounted *ret_recounted);
/**
 * The same of a block that others may be at work on all the time: they are kept from beginning
 * anew (recount.c, I3). pre: between tni_recount_begin() and end.
 * @return false: until then a thread was at work on it; that thread may be stopped
 */
bool tni_recount_look_named(struct tn_domain *domain, const struct tni_thread *ours,
                            tni_block block, uint64_t until_ns,
                            struct tni_recounted *ret_recounted);
/** Whether word and records agree. */
bool tni_recount_is_right(const struct tni_recounted *recounted);

/**
 * Have references stay in place while we recount (ref.c, I5). TN_ERR_TIMED_OUT: somebody else
 * recounts.
 */
int tni_recount_begin(struct tn_domain *domain);
void tni_recount_end(struct tn_domain *domain);
/** Give the claim back for its owner, who is dead or leaves. */
void tni_recount_release(struct tn_domain *domain, uint64_t who);

/**
 * Make a block's word say what was counted, if it still is what it was; what nobody holds is
 * freed.
 * pre: between tni_recount_begin() and end. @return whether it was done
 */
bool tni_recount_reclaim(struct tn_domain *domain, struct tni_thread *thread, tni_block block,
                         const struct tni_recounted *recounted);

#endif
