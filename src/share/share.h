/* SPDX-License-Identifier: Apache-2.0 */
/*
 * share: how a tensor crosses between processes outside of a queue. Handles and their tickets.
 * A ticket is a record: it owns one reference until it is used up, revoked or expired.
 */
#ifndef TNI_SHARE_H
#define TNI_SHARE_H

#include <tenon/handle.h>

#include "tensor/tensor.h"

/* What this room keeps of a domain. */
struct tni_share_part {
    _Atomic uint32_t ticket_hint; /* where a free ticket was seen last */
};
TNI_PART(share, TNI_PART_SHARE)

/**
 * End tickets whose time is over; and those of a seat that ended get their last 60 s.
 * @return the next expiry, or TNI_FOREVER
 */
uint64_t tni_ticket_expire(struct tn_domain *domain, uint64_t now_ns);
/** The same, now. @return how many tickets were ended */
uint32_t tni_ticket_expire_due(struct tn_domain *domain);
/**
 * A seat ended (died or left): its tickets without an end of their own get one; one that is
 * half made is undone.
 */
void tni_ticket_reclaim_seat(struct tn_domain *domain, uint64_t who);
/** Live tickets that name a block. */
uint64_t tni_ticket_count_records(const struct tni_segment *segment, tni_block block);
/** tn_ticket_for_each() without a seat. What it says of a block is as the block says it. */
int tni_ticket_for_each(const struct tni_segment *segment, tn_ticket_fn *each, void *context);
/** Call `each` with the block of every live ticket. */
void tni_ticket_for_each_record(const struct tni_segment *segment, tni_record_fn *each,
                                void *context);

#endif
