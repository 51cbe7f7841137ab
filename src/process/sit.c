/* SPDX-License-Identifier: Apache-2.0 */
/* sit: claims a seat, and writes the claimer's identity. See process.c, I1 to I4. */
#include <string.h>

#include "process/fork.h"

uint64_t tni_sit_word(uint32_t incarnation, uint32_t state, int32_t pid, const void *witness)
{
    return tni_seat_word(incarnation, state,
                         (uint32_t)pid | (witness != NULL ? TNI_SEAT_WITNESSED : 0));
}

/*
 * Claim a seat by one CAS of its word, which then names the claimer (I1, I3). The witness is
 * taken before the word says that the seat has a witness (I4).
 * @return 0, TN_ERR_EXISTS: another process was faster
 */
static int claim_word(const struct tni_segment *s, struct tni_sit *c, uint64_t word)
{
    _Atomic uint64_t *at = &tni_seat_at(s, c->seat)->word;
    uint32_t incarnation = tni_seat_incarnation(word);
    c->witness = NULL;
    int status = tni_os_witness_take(s->control_fd, tni_witness_number(c->seat, incarnation),
                                     &c->witness);
    if (status == TN_ERR_EXISTS)
        return status;
    if (status != 0)
        tni_log(TNI_LOG_INFO, "seat %u has no witness: %s", c->seat, tn_error_detail());
    TNI_KILL_POINT("join_witnessed");
    c->word = tni_sit_word(incarnation, TNI_SEAT_JOINING, c->process.pid, c->witness);
    if (atomic_compare_exchange_strong(at, &word, c->word))
        return 0;
    tni_os_witness_drop(c->witness);
    return TN_ERR_EXISTS;
}

static void write_identity(struct tni_seat *entry, const struct tni_sit *c)
{
    TNI_PUT(entry->start_time, c->process.start_time);
    TNI_PUT(entry->image, c->process.image);
    TNI_PUT(entry->pid_space, c->process.pid_space);
    TNI_PUT(entry->joined_ns, tni_os_shared_ns());
    atomic_store(&entry->flags, c->flags);
    atomic_store(&entry->parent, c->parent);
    atomic_store(&entry->bell_number, 0);
    atomic_store(&entry->bell, 0);
    atomic_store(&entry->bell_fd_armed, 0);
    if (c->command != NULL)
        memcpy(entry->command, c->command, sizeof entry->command);
    else
        tni_os_process_command(c->process.pid, entry->command, sizeof entry->command);
    /*
     * Until a forked child has written its own pid, only the witness tells whether it lives.
     * The parent's pid must not stand here, because the parent may end earlier.
     */
    bool is_by_witness = (c->flags & TNI_SEAT_FORKED) != 0 && c->witness != NULL;
    atomic_store(&entry->pid, is_by_witness ? 0 : c->process.pid);
}

int tni_sit_claim(const struct tni_segment *s, struct tni_sit *c)
{
    for (uint32_t seat = 0; seat < s->geometry.seats; seat++) {
        struct tni_seat *entry = tni_seat_at(s, seat);
        uint64_t word = atomic_load(&entry->word);
        c->seat = seat;
        if (tni_seat_state(word) != TNI_SEAT_FREE || claim_word(s, c, word) != 0)
            continue;
        TNI_KILL_POINT("join_claimed");
        tni_raise_limit(&s->header->seat_limit, seat + 1);
        write_identity(entry, c);
        return 0;
    }
    return tni_fail(TN_ERR_FULL, "all %u seats of the domain '%s' are taken", s->geometry.seats,
                    s->name);
}

void tni_sit_down(struct tn_domain *d, uint32_t seat, uint32_t incarnation, void *witness)
{
    d->witness = witness;
    d->seat = seat;
    d->clock_ahead_ns = (uint64_t)tni_os_clock_ahead_ns();
    d->incarnation = incarnation;
    d->who = tni_who(seat, incarnation);
    d->me = tni_seat_at(&d->segment, seat);
    d->row = tni_row_at(&d->segment, seat, 0);
    for (uint32_t t = 0; t < TNI_THREADS; t++) {
        d->threads[t].number = t;
        d->threads[t].announce = tni_announce_at(&d->segment, seat, t);
        d->threads[t].recounted = &d->segment.header->recounted;
        atomic_store(&d->threads[t].busy, 0);
    }
}

uint64_t tni_process_word(const struct tn_domain *d)
{
    return tni_sit_word(d->incarnation, TNI_SEAT_ALIVE, 0, d->witness);
}
