/* SPDX-License-Identifier: Apache-2.0 */
/* ticket: the life of one ticket. Inside the room share. */
#ifndef TNI_SHARE_TICKET_H
#define TNI_SHARE_TICKET_H

#include "share/share.h"

/* Which ticket a handle means: a number and which of its lives. */
struct tni_ticket_name {
    uint32_t index;
    uint64_t generation; /* 1 .. 2^36 - 1 */
};

/**
 * Make a ticket for a block that this process holds.
 * @param expires_ns  UINT64_MAX: never; TNI_TICKET_BOUND: with the issuer; |
 * TNI_TICKET_WITH_ISSUER: at once
 * @return 0, TN_ERR_FULL
 */
int tni_ticket_make(struct tn_domain *domain, struct tni_thread *thread, tni_block block,
                    uint32_t uses, uint64_t expires_ns, struct tni_ticket_name *ret_name);

/**
 * Take one use: on success this process has one more local reference of the block.
 * @param generation  of the block, as the handle states it
 * @return 0, TN_ERR_STALE, TN_ERR_INVALID (another block), TN_ERR_CORRUPT, TN_ERR_FULL
 * (references)
 */
int tni_ticket_use(struct tn_domain *domain, struct tni_thread *thread,
                   struct tni_ticket_name name, tni_block block, uint32_t generation);

/**
 * End a ticket whose word is LIVE: un-record, give the reference back.
 * @return 1; 0: the word is another by now; TN_ERR_CORRUPT: it names no block
 */
int tni_ticket_end(struct tn_domain *domain, struct tni_thread *thread, uint32_t index,
                   uint64_t word, uint32_t state);

/** TN_ERR_STALE if the ticket is over; 0: it was live a moment ago. */
int tni_ticket_check(const struct tn_domain *domain, struct tni_ticket_name name);

/** Why the ticket cannot be used: TN_ERR_STALE. pre: `word` is not LIVE with this generation */
int tni_ticket_fail_stale(struct tni_ticket_name name, uint64_t word);

/** tni_ticket_expire() for a thread that has its record. */
uint64_t tni_ticket_expire_with(struct tn_domain *domain, struct tni_thread *thread,
                                uint64_t now_ns, uint32_t *ret_ended);

/** Give a ticket that is bound to its issuer the time of its end: the issuer is gone. */
void tni_ticket_unbind(struct tni_ticket *ticket, uint64_t word, uint64_t now_ns);

/** The word, and with it what the maker wrote before. */
uint64_t tni_ticket_load(const struct tni_ticket *ticket);
/** Whether a block is one that a ticket may name. */
bool tni_ticket_names_tensor(const struct tn_domain *domain, tni_block block);
int tni_ticket_fail_corrupt(uint32_t index, tni_block block);
/** A search for a free ticket may begin with this one. */
void tni_ticket_note_free(struct tn_domain *domain, uint32_t index);

/** Whether the ticket's own end has come. */
bool tni_ticket_is_over_time(const struct tni_ticket *ticket, uint64_t now_ns);

#endif
