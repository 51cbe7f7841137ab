/* SPDX-License-Identifier: Apache-2.0 */
/*
 * walk: calls that walk over all tickets: expire them, reclaim those of a seat, count records,
 * and list them for the user. The card is in ticket.c.
 */
#include "share/ticket.h"

static uint64_t expire(struct tn_domain *d, uint64_t now_ns, uint32_t *ret_ended)
{
    *ret_ended = 0;
    if (d->seat == TNI_NO_SEAT)
        return TNI_FOREVER;
    struct tni_thread *thread = tni_thread_enter(d);
    uint64_t next_ns = tni_ticket_expire_with(d, thread, now_ns, ret_ended);
    tni_thread_leave(thread);
    return next_ns;
}

uint64_t tni_ticket_expire(struct tn_domain *d, uint64_t now_ns)
{
    uint32_t ended;
    uint64_t ahead_ns = (uint64_t)tni_os_clock_ahead_ns();
    uint64_t next_ns = expire(d, now_ns - ahead_ns, &ended);
    return next_ns != TNI_FOREVER ? next_ns + ahead_ns : TNI_FOREVER;
}

uint32_t tni_ticket_expire_due(struct tn_domain *d)
{
    uint32_t ended;
    expire(d, tni_os_shared_ns(), &ended);
    return ended;
}

static void reclaim_ticket(struct tni_ticket *ticket, uint64_t who, uint64_t now_ns)
{
    uint64_t word = tni_ticket_load(ticket);
    if (tni_ticket_state(word) == TNI_TICKET_MAKING &&
        tni_ticket_uses(word) == tni_who_seat(who)) {
        uint64_t undone = tni_ticket_word(tni_ticket_generation(word), TNI_TICKET_FREE, 0);
        atomic_compare_exchange_strong(&ticket->word, &word, undone);
        TNI_KILL_POINT("ticket_undone");
    } else if (tni_ticket_state(word) == TNI_TICKET_LIVE &&
               atomic_load_explicit(&ticket->issuer, memory_order_relaxed) == who) {
        tni_ticket_unbind(ticket, word, now_ns);
    }
}

/*
 * ticket.c, I5. A mark is cleared after the tickets of its group are reclaimed. If this process
 * dies before, the next recoverer finds the mark and reclaims the group again.
 */
void tni_ticket_reclaim_seat(struct tn_domain *d, uint64_t who)
{
    uint32_t limit = tni_ticket_limit(&d->segment);
    uint32_t groups = (limit + TNI_TICKET_GROUP - 1) / TNI_TICKET_GROUP;
    _Atomic uint64_t *row = tni_issues_of(&d->segment, tni_who_seat(who));
    uint64_t now_ns = tni_os_shared_ns();

    for (uint32_t group = tni_bit_next(row, 0, groups); group < groups;
         group = tni_bit_next(row, group + 1, groups)) {
        uint32_t first = group * TNI_TICKET_GROUP;
        for (uint32_t i = first; i < TNI_MIN(first + TNI_TICKET_GROUP, limit); i++)
            reclaim_ticket(tni_ticket_at(&d->segment, i), who, now_ns);
        TNI_KILL_POINT("ticket_group_reclaimed");
        tni_bit_clear(row, group);
    }
    tni_bit_forget(row, groups);
}

void tni_ticket_for_each_record(const struct tni_segment *s, tni_record_fn *each, void *context)
{
    uint32_t limit = tni_ticket_limit(s);
    for (uint32_t i = 0; i < limit; i++) {
        const struct tni_ticket *ticket = tni_ticket_at(s, i);
        if (tni_ticket_state(tni_ticket_load(ticket)) != TNI_TICKET_LIVE)
            continue;
        tni_block block = {atomic_load_explicit(&ticket->block, memory_order_relaxed)};
        if (tni_geometry_has_block(&s->geometry, block.id))
            each(block, context);
    }
}

uint64_t tni_ticket_count_records(const struct tni_segment *s, tni_block block)
{
    return tni_record_count(s, tni_ticket_for_each_record, block);
}

/* ---- the public list --------------------------------------------------------------------- */

static uint64_t remaining(uint64_t expires_ns, uint64_t now_ns)
{
    if (expires_ns >= TNI_TICKET_BOUND)
        return TNI_FOREVER;
    return expires_ns > now_ns ? expires_ns - now_ns : 0;
}

/* The bytes of a storage as its maker asked for them, in the arena or outside of it. */
static uint64_t stated_bytes(const struct tni_segment *s, tni_block block)
{
    struct tni_backing backing;
    if (!tni_geometry_has_block(&s->geometry, block.id))
        return 0;
    if (!tni_class_is_backing(tni_block_class(block)))
        return TNI_LOOK(tni_desc_at(s, block)->bytes);
    return tni_backing_read(s, block, &backing) == 0 ? backing.data_bytes : 0;
}

/*
 * Read one ticket. @return whether it was live the whole time, so that the fields fit together
 */
static bool read_info(const struct tni_segment *s, uint32_t index, uint64_t now_ns,
                      tn_ticket_entry *ret_info)
{
    const struct tni_ticket *ticket = tni_ticket_at(s, index);
    uint64_t word = tni_ticket_load(ticket);
    if (tni_ticket_state(word) != TNI_TICKET_LIVE)
        return false;
    tni_block block = {atomic_load(&ticket->block)};
    uint64_t issuer = atomic_load(&ticket->issuer);
    *ret_info = (tn_ticket_entry){
        .id = tni_ticket_id(tni_ticket_generation(word), index),
        .uses_left = tni_ticket_uses(word),
        .issuer_seat = tni_who_seat(issuer),
        .issuer_pid = atomic_load(&ticket->issuer_pid),
        .block = block.id,
        .bytes = stated_bytes(s, block),
        .remaining_ns = remaining(atomic_load(&ticket->expires_ns), now_ns),
    };
    return tni_ticket_generation(atomic_load(&ticket->word)) == tni_ticket_generation(word);
}

int tni_ticket_for_each(const struct tni_segment *s, tn_ticket_entry_fn *each, void *context)
{
    uint32_t limit = tni_ticket_limit(s);
    uint64_t now_ns = tni_os_shared_ns();
    int stop = 0;
    for (uint32_t i = 0; i < limit && stop == 0; i++) {
        tn_ticket_entry info;
        if (read_info(s, i, now_ns, &info))
            stop = each(&info, context);
    }
    return stop;
}

int tni_ticket_revoke(struct tn_domain *domain, uint64_t id)
{
    struct tni_ticket_name name = {.index = (uint32_t)(id & 0xfffff), .generation = id >> 20};
    int status = tni_process_check(domain);
    if (status != 0)
        return status;
    if (name.index >= domain->segment.geometry.tickets || name.generation == 0 ||
        name.generation >= TNI_TICKET_GENERATIONS)
        return tni_fail(TN_ERR_INVALID,
                        "the ticket id %llx is outside of the range of this domain",
                        (unsigned long long)id);

    const struct tni_ticket *ticket = tni_ticket_at(&domain->segment, name.index);
    struct tni_thread *thread = tni_thread_enter(domain);
    do {
        uint64_t word = tni_ticket_load(ticket);
        if (tni_ticket_state(word) != TNI_TICKET_LIVE ||
            tni_ticket_generation(word) != name.generation)
            status = tni_ticket_fail_stale(name, word);
        else
            status = tni_ticket_end(domain, thread, name.index, word, TNI_TICKET_REVOKED);
    } while (status == 0);
    tni_thread_leave(thread);
    return TNI_MIN(status, 0);
}
