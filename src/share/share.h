/* SPDX-License-Identifier: Apache-2.0 */
/*
 * share: how a tensor crosses between processes outside of a queue. Handles and their tickets.
 * A ticket is a record: it owns one reference until it is used up, revoked or expired.
 */
#ifndef TNI_SHARE_H
#define TNI_SHARE_H

#include <tenon/handle.h>
#include <tenon/inspect.h>

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
/**
 * End the ticket that tn_ticket_entry's `id` names.
 * @return 0, TN_ERR_STALE (it has ended), TN_ERR_INVALID (no ticket has this id),
 *         TN_ERR_CORRUPT, TN_ERR_FORKED
 */
TN_NODISCARD int tni_ticket_revoke(struct tn_domain *domain, uint64_t id);
/** The id of the ticket that a handle names. TN_ERR_INVALID, TN_ERR_VERSION: not a handle. */
TN_NODISCARD int tni_handle_ticket(const void *bytes, size_t size_bytes, uint64_t *ret_ticket);
/** Call `each` for every live ticket. Sizes are reported as the block states them, unchecked.
 */
int tni_ticket_for_each(const struct tni_segment *segment, tn_ticket_entry_fn *each,
                        void *context);
/** Call `each` with the block of every live ticket. */
void tni_ticket_for_each_record(const struct tni_segment *segment, tni_record_fn *each,
                                void *context);

#endif
