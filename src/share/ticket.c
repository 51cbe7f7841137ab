/* SPDX-License-Identifier: Apache-2.0 */
/*
 * share: tickets and handles.
 *
 * Nouns: ticket (a record in the domain that owns one reference), handle (bytes that name
 * one).
 * I1  A LIVE ticket owns exactly one reference, however many uses are left. In every other
 *     state a ticket owns none, and is no record.
 * I2  The word of a ticket changes by CAS, except that the maker of a MAKING ticket stores
 *     it. Each MAKING raises the generation. So a CAS that succeeds from a LIVE word proves
 *     that the fields read before the CAS belonged to that life of the ticket.
 * I3  While a ticket is LIVE, its fields do not change, except that expires_ns may change
 *     once, from BOUND to a time.
 * I4  A ticket becomes a record, or stops to be one, only while a thread announces the block.
 *     If a recount runs meanwhile, the version of the block changes, and the recount is
 *     repeated.
 * I5  Before a ticket becomes MAKING, the maker's row of issues marks the ticket's group. So
 *     the reaper checks only marked groups of a dead seat's row. Only the reaper clears a
 *     mark.
 * Callers: handle.c; tenond and survivors (expire); reaper (reclaim_seat, records); inspect.
 * What a death leaves, and what the reaper does with it:
 *   after the ticket was taken      a MAKING ticket: tni_ticket_reclaim_seat() frees it
 *   after the count went up         the same, and a count one too high, announced: a recount
 *   pinned, the use not taken       a count one too high, announced, perhaps on a FREE block
 *   use taken, no hold yet          the same; the use is lost
 *   ended, reference not given back the same
 *   LIVE                            no damage: a bound ticket expires after 60 s, or at once
 */
#include "share/ticket.h"

/* How many tickets the first search checks: usually one of them is free. */
enum { PROBES = 8 };

/*
 * ---- finding a free ticket ----------------------------------------------------------------
 */

/* I2. Take a ticket that is not in use. @return whether it is now MAKING, by this seat */
static bool try_take(struct tn_domain *d, uint32_t index, struct tni_ticket_name *ret_name)
{
    _Atomic uint64_t *word = &tni_ticket_at(&d->segment, index)->word;
    uint64_t seen = atomic_load_explicit(word, memory_order_relaxed);
    uint32_t state = tni_ticket_state(seen);

    if (state != TNI_TICKET_FREE && state != TNI_TICKET_USED && state != TNI_TICKET_REVOKED &&
        state != TNI_TICKET_EXPIRED)
        return false;
    tni_bit_set(tni_issues_of(&d->segment, d->seat), index / TNI_TICKET_GROUP); /* I5 */
    uint64_t generation = (tni_ticket_generation(seen) + 1) % TNI_TICKET_GENERATIONS;
    generation += generation == 0; /* 0 names no ticket */
    if (!atomic_compare_exchange_strong(
            word, &seen, tni_ticket_word(generation, TNI_TICKET_MAKING, d->seat)))
        return false;
    *ret_name = (struct tni_ticket_name){.index = index, .generation = generation};
    atomic_store_explicit(&tni_share_part(d)->ticket_hint, index + 1, memory_order_relaxed);
    return true;
}

static bool scan(struct tn_domain *d, uint32_t from, uint32_t count, uint32_t limit,
                 struct tni_ticket_name *ret_name)
{
    for (uint32_t n = 0, at = from; n < count; n++, at++) {
        if (at >= limit)
            at = 0;
        if (try_take(d, at, ret_name))
            return true;
    }
    return false;
}

/*
 * Search for a free ticket: first near the hint, then among those that were never used, then
 * everywhere.
 */
static bool find(struct tn_domain *d, struct tni_ticket_name *ret_name)
{
    uint32_t limit = tni_ticket_limit(&d->segment), tickets = d->segment.geometry.tickets;
    uint32_t from = atomic_load_explicit(&tni_share_part(d)->ticket_hint, memory_order_relaxed);

    if (scan(d, from, TNI_MIN(limit, PROBES), limit, ret_name))
        return true;
    for (; limit < tickets; limit++) {
        /* Raised before the ticket is taken, so that the reaper's walk includes it. */
        tni_raise_limit(&d->segment.header->ticket_limit, limit + 1);
        if (try_take(d, limit, ret_name))
            return true;
    }
    return scan(d, from, tickets, tickets, ret_name);
}

static int take(struct tn_domain *d, struct tni_thread *thread,
                struct tni_ticket_name *ret_name)
{
    uint32_t ended;
    if (TNI_LIKELY(find(d, ret_name)))
        return 0;
    tni_ticket_expire_with(d, thread, tni_os_shared_ns(), &ended);
    if (find(d, ret_name))
        return 0;
    return tni_fail(TN_ERR_FULL, "all %u tickets of the domain '%s' are in use",
                    d->segment.geometry.tickets, d->segment.name);
}

/* ---- making ------------------------------------------------------------------------------ */

int tni_ticket_make(struct tn_domain *d, struct tni_thread *thread, tni_block block,
                    const struct tni_ticket_terms *terms, struct tni_ticket_name *ret_name)
{
    struct tni_ticket_name name;
    uint64_t expires_ns = terms->expires_ns;
    int status = take(d, thread, &name);
    if (status != 0)
        return status;
    TNI_KILL_POINT("ticket_making");
    struct tni_ticket *ticket = tni_ticket_at(&d->segment, name.index);
    tni_announce_fence(thread, block);
    status = tni_ref_lend(d, block, false);
    if (status != 0) {
        tni_announce_clear(thread);
        atomic_store(&ticket->word, tni_ticket_word(name.generation, TNI_TICKET_FREE, 0));
        return status;
    }
    if ((expires_ns & ~TNI_TICKET_WITH_ISSUER) == TNI_TICKET_BOUND)
        expires_ns |= name.generation;
    atomic_store_explicit(&ticket->block, block.id, memory_order_relaxed);
    atomic_store_explicit(&ticket->generation, tni_ref_generation(d, block),
                          memory_order_relaxed);
    atomic_store_explicit(&ticket->expires_ns, expires_ns, memory_order_relaxed);
    atomic_store_explicit(&ticket->issuer, d->who, memory_order_relaxed);
    atomic_store_explicit(&ticket->issuer_pid, atomic_load(&d->me->pid), memory_order_relaxed);
    TNI_KILL_POINT("ticket_written");
    /* I2: pairs with the acquire loads before a use, an end or a walk reads the fields. */
    atomic_store_explicit(&ticket->word,
                          tni_ticket_word(name.generation, TNI_TICKET_LIVE, terms->uses),
                          memory_order_release);
    TNI_KILL_POINT("ticket_live");
    tni_announce_clear(thread);
    *ret_name = name;
    return 0;
}

/* ---- ending ------------------------------------------------------------------------------ */

static bool is_live(struct tni_ticket_name name, uint64_t word)
{
    return tni_ticket_state(word) == TNI_TICKET_LIVE &&
           tni_ticket_generation(word) == name.generation;
}

int tni_ticket_check(const struct tn_domain *d, struct tni_ticket_name name)
{
    uint64_t word = atomic_load(&tni_ticket_at(&d->segment, name.index)->word);
    return is_live(name, word) ? 0 : tni_ticket_fail_stale(name, word);
}

/* ---- using ------------------------------------------------------------------------------- */

static bool has_own_end(const struct tni_ticket *ticket)
{
    return atomic_load_explicit(&ticket->expires_ns, memory_order_relaxed) < TNI_TICKET_BOUND;
}

/*
 * Check that the ticket names the block that the handle names. If it does not, the handle was
 * forged: tn_handle_export() makes no such handle.
 */
static int check_block(struct tn_domain *d, struct tni_ticket_name name, tni_block block,
                       uint32_t generation)
{
    const struct tni_ticket *ticket = tni_ticket_at(&d->segment, name.index);
    const uint64_t id = tni_ticket_id(name.generation, name.index);
    tni_block own = {atomic_load_explicit(&ticket->block, memory_order_relaxed)};
    uint32_t own_generation = atomic_load_explicit(&ticket->generation, memory_order_relaxed);

    if (!tni_ticket_names_tensor(d, own))
        return tni_ticket_fail_corrupt(id, own);
    if (own.id != block.id || own_generation != generation)
        return tni_fail(
            TN_ERR_INVALID,
            "the handle names block %08x (generation %u), but its ticket names %08x (%u)",
            block.id, generation, own.id, own_generation);
    if (tni_ref_generation(d, own) != own_generation)
        return tni_fail(TN_ERR_CORRUPT,
                        TNI_TICKET_FORMAT
                        " names block %08x of generation %u, but the block has generation %u",
                        id, own.id, own_generation, tni_ref_generation(d, own));
    return 0;
}

/*
 * Undo a pin. If the block is FREE, an allocator may have skipped it because of the pin, and
 * its hint is lost: publish it again. While it is pinned, a block changes neither to FREE nor
 * from FREE, so the state is read once.
 */
static void unpin(struct tn_domain *d, struct tni_thread *thread, tni_block block)
{
    uint64_t word = atomic_load(tni_word_at(&d->segment, block));
    tni_ref_drop(d, thread, block);
    TNI_KILL_POINT("ticket_unpinned");
    if (tni_word_state(word) == TNI_BLOCK_FREE)
        tni_alloc_publish(d, block);
}

/*
 * Take the last use: the ticket's reference becomes a local reference of this process.
 * @return false: the word is no longer `word`
 */
static bool use_last(struct tn_domain *d, struct tni_thread *thread, uint32_t index,
                     uint64_t word, tni_block block)
{
    uint64_t used = tni_ticket_word(tni_ticket_generation(word), TNI_TICKET_USED, 0);
    tni_announce(thread, block, 1);
    TNI_KILL_POINT("ticket_use_announced");
    if (!atomic_compare_exchange_strong(&tni_ticket_at(&d->segment, index)->word, &word,
                                        used)) {
        tni_announce_clear(thread);
        return false;
    }
    TNI_KILL_POINT("ticket_used_up");
    tni_ticket_note_free(d, index);
    tni_ref_before_move(d, block); /* I4; the CAS was the read-modify-write */
    tni_ref_adopt(d, thread, block);
    return true;
}

/*
 * Take one of several uses. The pin adds a reference before the ticket is known to be live; a
 * CAS that succeeds proves that it was, and that the block was allocated.
 * @return 1; 0: the word is no longer `word`; or an error of tni_ref_pin()
 */
static int use_one(struct tn_domain *d, struct tni_thread *thread, uint32_t index,
                   uint64_t word, tni_block block)
{
    tni_announce(thread, block, 1);
    int status = tni_ref_pin(d, block);
    if (status != 0) {
        tni_announce_clear(thread);
        return status;
    }
    TNI_KILL_POINT("ticket_pinned");
    if (!atomic_compare_exchange_strong(&tni_ticket_at(&d->segment, index)->word, &word,
                                        word - 1)) {
        unpin(d, thread, block);
        return 0;
    }
    TNI_KILL_POINT("ticket_use_taken");
    tni_ref_adopt(d, thread, block);
    return 1;
}

/*
 * Wait-free: an attempt is repeated only if another process took a use, and there are finitely
 * many uses, or if the ticket is over.
 */
int tni_ticket_use(struct tn_domain *d, struct tni_thread *thread, struct tni_ticket_name name,
                   tni_block block, uint32_t generation)
{
    struct tni_ticket *ticket = tni_ticket_at(&d->segment, name.index);
    for (;;) {
        /* pairs with the release in tni_ticket_make() */
        uint64_t word = atomic_load_explicit(&ticket->word, memory_order_acquire);
        if (!is_live(name, word))
            return tni_ticket_fail_stale(name, word);
        int status = check_block(d, name, block, generation);
        if (status != 0 && atomic_load(&ticket->word) == word)
            return status;
        if (status != 0)
            continue; /* the fields belonged to another life of the ticket: I2 */
        if (has_own_end(ticket) && tni_ticket_is_over_time(ticket, tni_os_shared_ns()))
            status = tni_ticket_end(d, thread, name.index, word, TNI_TICKET_EXPIRED);
        else if ((tni_ticket_uses(word) == 1 && use_last(d, thread, name.index, word, block)) ||
                 (tni_ticket_uses(word) > 1 &&
                  (status = use_one(d, thread, name.index, word, block)) == 1))
            return 0;
        else if (tni_ticket_uses(word) == 0)
            return tni_fail(TN_ERR_CORRUPT, TNI_TICKET_FORMAT " is live but has no uses left",
                            tni_ticket_id(name.generation, name.index));
        if (status < 0)
            return status;
    }
}
