/* SPDX-License-Identifier: Apache-2.0 */
/* ticket: makes, uses and ends one ticket. Private to the room share. */
#ifndef TNI_SHARE_TICKET_H
#define TNI_SHARE_TICKET_H

#include <inttypes.h>

#include "share/share.h"

/* A ticket in a sentence, as `tenon tickets` writes it. The argument is tni_ticket_id(). */
#define TNI_TICKET_FORMAT "ticket %016" PRIx64

/* The ticket that a handle names. The generation counts how often the entry was reused. */
struct tni_ticket_name {
    uint32_t index;
    uint64_t generation; /* 1 .. 2^36 - 1 */
};

/* How often a ticket can be used, and until when. */
struct tni_ticket_terms {
    uint32_t uses;
    /*
     * UINT64_MAX: never; TNI_TICKET_BOUND: 60 s after the issuer is gone; with
     * TNI_TICKET_WITH_ISSUER beside it: when the issuer is gone; else in shared time
     */
    uint64_t expires_ns;
};

/**
 * Make a ticket for a block that this process holds.
 * @return 0; TN_ERR_FULL: no ticket is free, or the block has as many references as it can
 * count
 */
int tni_ticket_make(struct tn_domain *domain, struct tni_thread *thread, tni_block block,
                    const struct tni_ticket_terms *terms, struct tni_ticket_name *ret_name);

/**
 * Take one use of a ticket. On success this process has one more local reference to the block.
 * @param generation  of the block, as the handle states it
 * @return 0; TN_ERR_STALE; TN_ERR_INVALID: the ticket names another block; TN_ERR_CORRUPT;
 *         TN_ERR_FULL: the block has as many references as it can count
 */
int tni_ticket_use(struct tn_domain *domain, struct tni_thread *thread,
                   struct tni_ticket_name name, tni_block block, uint32_t generation);

/**
 * End a ticket: move its word from `word`, which is LIVE, to `state`, and give its reference
 * back. @return 1; 0: the word is no longer `word`; TN_ERR_CORRUPT: the ticket names no block
 */
int tni_ticket_end(struct tn_domain *domain, struct tni_thread *thread, uint32_t index,
                   uint64_t word, uint32_t state);

/** Check that a ticket is live. 0: it was when the call read it. TN_ERR_STALE: it is over. */
int tni_ticket_check(const struct tn_domain *domain, struct tni_ticket_name name);

/** Fail with TN_ERR_STALE and say why the ticket is over. pre: `word` is not live for `name` */
int tni_ticket_fail_stale(struct tni_ticket_name name, uint64_t word);

/** tni_ticket_expire() for a thread that has entered its record. `now_ns` is shared time. */
uint64_t tni_ticket_expire_with(struct tn_domain *domain, struct tni_thread *thread,
                                uint64_t now_ns, uint32_t *ret_ended);

/** Give a ticket that is bound to its issuer, which is gone, a time at which it expires. */
void tni_ticket_unbind(struct tni_ticket *ticket, uint64_t word, uint64_t now_ns);

/** Load the word with acquire order: then the fields that its maker wrote can be read. */
uint64_t tni_ticket_load(const struct tni_ticket *ticket);
/** Whether a block exists and is of a kind that a ticket may name. */
bool tni_ticket_names_tensor(const struct tn_domain *domain, tni_block block);
int tni_ticket_fail_corrupt(uint64_t ticket, tni_block block);
/** Note that this ticket became free: the next search begins there. */
void tni_ticket_note_free(struct tn_domain *domain, uint32_t index);

/** Whether the time at which the ticket expires has come. */
bool tni_ticket_is_over_time(const struct tni_ticket *ticket, uint64_t now_ns);

#endif
