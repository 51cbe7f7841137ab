/* SPDX-License-Identifier: Apache-2.0 */
/*
 * expire: ends tickets: when their time has come, when their issuer is gone, or when a caller
 * revokes them. The card is in ticket.c.
 */
#include "share/ticket.h"

bool tni_ticket_names_tensor(const struct tn_domain *d, tni_block block)
{
    return tni_geometry_has_block(&d->segment.geometry, block.id) &&
           !tni_class_is_message(tni_block_class(block));
}

int tni_ticket_fail_corrupt(uint64_t ticket, tni_block block)
{
    return tni_fail(TN_ERR_CORRUPT,
                    TNI_TICKET_FORMAT
                    " names the block %08x, which does not exist or holds no tensor",
                    ticket, block.id);
}

void tni_ticket_note_free(struct tn_domain *d, uint32_t index)
{
    atomic_store_explicit(&tni_share_part(d)->ticket_hint, index, memory_order_relaxed);
}

int tni_ticket_end(struct tn_domain *d, struct tni_thread *thread, uint32_t index,
                   uint64_t word, uint32_t state)
{
    struct tni_ticket *ticket = tni_ticket_at(&d->segment, index);
    tni_block block = {atomic_load_explicit(&ticket->block, memory_order_relaxed)};
    uint64_t over = tni_ticket_word(tni_ticket_generation(word), state, 0);

    if (!tni_ticket_names_tensor(d, block))
        return tni_ticket_fail_corrupt(tni_ticket_id(tni_ticket_generation(word), index),
                                       block);
    tni_announce(thread, block, 1);
    TNI_KILL_POINT("ticket_end_announced");
    if (!atomic_compare_exchange_strong(&ticket->word, &word, over)) {
        tni_announce_clear(thread);
        return 0;
    }
    TNI_KILL_POINT("ticket_end_unrecorded");
    tni_ticket_note_free(d, index);
    tni_ref_drop(d, thread, block);
    return 1;
}

int tni_ticket_fail_stale(struct tni_ticket_name name, uint64_t word)
{
    uint32_t state = tni_ticket_state(word);
    const char *why = "is over: it was used up, revoked, or it expired";
    if (tni_ticket_generation(word) == name.generation && state == TNI_TICKET_USED)
        why = "was used up: its last use was imported";
    if (tni_ticket_generation(word) == name.generation && state == TNI_TICKET_REVOKED)
        why = "was revoked";
    if (tni_ticket_generation(word) == name.generation && state == TNI_TICKET_EXPIRED)
        why = "expired";
    return tni_fail(TN_ERR_STALE, "the handle of ticket %016" PRIx64 " %s",
                    tni_ticket_id(name.generation, name.index), why);
}

bool tni_ticket_is_over_time(const struct tni_ticket *ticket, uint64_t now_ns)
{
    /* BOUND and never are both greater than any time. */
    return atomic_load_explicit(&ticket->expires_ns, memory_order_relaxed) <= now_ns;
}

static const uint64_t after_issuer_ns = 60 * UINT64_C(1000000000);

uint64_t tni_ticket_load(const struct tni_ticket *ticket)
{
    /* pairs with the release in tni_ticket_make() */
    return atomic_load_explicit(&ticket->word, memory_order_acquire);
}

/*
 * Idempotent: a ticket that has a time keeps it, because the CAS expects a bound ticket. The
 * expected value has the generation in it, so the CAS fails if the entry was reused meanwhile.
 */
void tni_ticket_unbind(struct tni_ticket *ticket, uint64_t word, uint64_t now_ns)
{
    uint64_t bound = TNI_TICKET_BOUND | tni_ticket_generation(word);
    uint64_t seen = atomic_load_explicit(&ticket->expires_ns, memory_order_relaxed);
    uint64_t end_ns = (seen & TNI_TICKET_WITH_ISSUER) != 0 ? now_ns : now_ns + after_issuer_ns;
    bound |= seen & TNI_TICKET_WITH_ISSUER;
    if (atomic_compare_exchange_strong(&ticket->expires_ns, &bound, end_ns))
        TNI_KILL_POINT("ticket_unbound");
}

static bool is_bound(const struct tni_ticket *ticket, uint64_t word)
{
    uint64_t end = atomic_load_explicit(&ticket->expires_ns, memory_order_relaxed);
    return (end & ~TNI_TICKET_WITH_ISSUER) == (TNI_TICKET_BOUND | tni_ticket_generation(word));
}

uint64_t tni_ticket_expire_with(struct tn_domain *d, struct tni_thread *thread, uint64_t now_ns,
                                uint32_t *ret_ended)
{
    uint32_t limit = tni_ticket_limit(&d->segment), ended = 0;
    uint64_t next_ns = TNI_FOREVER;

    for (uint32_t i = 0; i < limit; i++) {
        struct tni_ticket *ticket = tni_ticket_at(&d->segment, i);
        uint64_t word = tni_ticket_load(ticket);
        if (tni_ticket_state(word) != TNI_TICKET_LIVE)
            continue;
        if (is_bound(ticket, word) &&
            !tni_process_who_lives(&d->segment,
                                   atomic_load_explicit(&ticket->issuer, memory_order_relaxed)))
            tni_ticket_unbind(ticket, word, now_ns);
        if (tni_ticket_is_over_time(ticket, now_ns))
            ended += tni_ticket_end(d, thread, i, word, TNI_TICKET_EXPIRED) == 1;
        else if (!is_bound(ticket, word))
            next_ns = TNI_MIN(next_ns,
                              atomic_load_explicit(&ticket->expires_ns, memory_order_relaxed));
    }
    *ret_ended = ended;
    return next_ns < TNI_TICKET_BOUND ? next_ns : TNI_FOREVER;
}
