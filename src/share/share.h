/* SPDX-License-Identifier: Apache-2.0 */
/*
 * share: handles, with which a tensor crosses between processes without a queue, and the
 * tickets behind them. A ticket is a record: it owns one reference to a block until it is used
 * up, revoked or expired.
 */
#ifndef TNI_SHARE_H
#define TNI_SHARE_H

#include <tenon/handle.h>
#include <tenon/inspect.h>

#include "tensor/tensor.h"

/* The private state of this room for a joined domain. */
struct tni_share_part {
    _Atomic uint32_t ticket_hint; /* a ticket that was free; the search begins there */
};
TNI_PART(share, TNI_PART_SHARE)

/**
 * End the tickets whose time is over, and give the tickets of dead issuers 60 s more.
 * @return when the next ticket expires, or TNI_FOREVER
 */
uint64_t tni_ticket_expire(struct tn_domain *domain, uint64_t now_ns);
/** The same for the present time. @return how many tickets ended */
uint32_t tni_ticket_expire_due(struct tn_domain *domain);
/**
 * Reclaim the tickets of a seat whose process died or left: a ticket bound to its issuer gets a
 * time at which it expires, and a half-made ticket is freed. Idempotent.
 */
void tni_ticket_reclaim_seat(struct tn_domain *domain, uint64_t who);
/** How many live tickets name a block. */
uint64_t tni_ticket_count_records(const struct tni_segment *segment, tni_block block);
/**
 * End the ticket that tn_ticket_entry's `id` names.
 * @return 0, TN_ERR_STALE (it has ended), TN_ERR_INVALID (no ticket has this id),
 *         TN_ERR_CORRUPT, TN_ERR_FORKED
 */
TN_NODISCARD int tni_ticket_revoke(struct tn_domain *domain, uint64_t id);
/** The id of the ticket that a handle names. TN_ERR_INVALID, TN_ERR_VERSION: not a handle. */
TN_NODISCARD int tni_handle_ticket(const void *bytes, size_t size_bytes, uint64_t *ret_ticket);
/** Call `each` for every live ticket. The sizes are those that the blocks state, unchecked. */
int tni_ticket_for_each(const struct tni_segment *segment, tn_ticket_entry_fn *each,
                        void *context);
/** Call `each` with the block of every live ticket. */
void tni_ticket_for_each_record(const struct tni_segment *segment, tni_record_fn *each,
                                void *context);

#endif
