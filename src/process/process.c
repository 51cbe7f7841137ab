/* SPDX-License-Identifier: Apache-2.0 */
/*
 * process: manages the table of seats.
 *
 * Nouns: seat, incarnation, thread record (an announce and private data beside it), witness.
 * I1  A process takes a FREE seat, and turns JOINING into ALIVE, by CAS. A later word is
 *     written by the seat's process, with plain stores, and by a recoverer once that process is
 *     dead. Each change to FREE raises the incarnation.
 * I2  A seat is FREE only when its row, its announces and its bits in objects are all zero.
 * I3  The word of a JOINING seat names the process that may write the identity beside it: the
 *     claimer; for a forked child the parent, until the child's CAS of exactly that word writes
 *     the child's pid. So a child that comes too late writes nothing. A seat that is UNBORN and
 *     has no pid belongs to a fork() that failed: no process has died here.
 * I4  If the word says so, the seat has a witness from before the CAS that took the seat until
 *     after the seat is FREE. The witness's number belongs to this incarnation alone. The
 *     witness tells whether the process lives, across exec and in every namespace; the pid is
 *     then only a name, which may show earlier that the process has ended. A forked child
 *     inherits the witness that its parent took for it. Without a witness, pid and start time
 *     tell whether the process lives, but only within the same namespace.
 * Callers: api at join and leave; the fork handlers; the reaper for the rest. A death at any
 * point leaves a seat JOINING, ALIVE or LEAVING whose process is dead; the reaper reclaims it.
 *
 * In this file: join and leave. domains.c has the list of domains, sit.c claims seats, fork.c
 * claims them for children, thread.c has the thread records, claims.c takes claims on shared
 * tables, seats.c tells whether processes live, bell.c has the pollable descriptor, and pass.c
 * has the environment variables for exec'ed programs.
 */
#include "process/process.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "process/fork.h"

int tni_process_no_seat(const struct tn_domain *domain)
{
    if (tni_process_is_copy(domain))
        tni_process_drop_parent_seats();
    if (domain->is_closed)
        return tni_fail(TN_ERR_CLOSED, "this process has left the domain '%s'",
                        domain->segment.name);
    return tni_fail(TN_ERR_FORKED,
                    "process %d was forked without a seat in the domain '%s': %s", tni_os_pid(),
                    domain->segment.name, domain->child_reason);
}

/* Bytes of `mapped` and of `roles`, which follows `mapped`. */
static uint64_t mapped_bytes(const struct tni_geometry *g)
{
    return tni_align_up(g->total_blocks / 8, TNI_CACHE_LINE) +
           (uint64_t)g->objects * sizeof(uint32_t);
}

/* Map the private tables. They are sparse: an untouched page costs nothing. */
static int map_private(struct tn_domain *d)
{
    const struct tni_geometry *g = &d->segment.geometry;
    void *caches = NULL, *local = NULL, *mapped = NULL;
    int status;

    if ((status = tni_os_map_private(sizeof(struct tni_block_cache) * TNI_CLASSES * TNI_THREADS,
                                     &caches)) != 0)
        return status;
    if ((status = tni_os_map_private((uint64_t)g->total_blocks * 4, &local)) != 0 ||
        (status = tni_os_map_private(mapped_bytes(g), &mapped)) != 0) {
        tni_os_unmap(caches, sizeof(struct tni_block_cache) * TNI_CLASSES * TNI_THREADS);
        tni_os_unmap(local, (uint64_t)g->total_blocks * 4);
        return status;
    }
    for (uint32_t t = 0; t < TNI_THREADS; t++)
        d->threads[t].caches = (struct tni_block_cache *)caches + (size_t)t * TNI_CLASSES;
    d->local = local;
    d->mapped = mapped;
    d->roles = (void *)((uint8_t *)mapped + tni_align_up(g->total_blocks / 8, TNI_CACHE_LINE));
    d->is_empty_in_children = tni_os_empty_in_children(caches, sizeof(struct tni_block_cache) *
                                                                   TNI_CLASSES * TNI_THREADS) &&
                              tni_os_empty_in_children(mapped, mapped_bytes(g));
    return 0;
}

static void unmap_private(struct tn_domain *d)
{
    const struct tni_geometry *g = &d->segment.geometry;
    for (uint32_t t = 0; t < TNI_THREADS; t++)
        while (d->threads[t].spares != NULL)
            free(tni_thread_take_spare(&d->threads[t]));
    tni_os_unmap(d->threads[0].caches,
                 sizeof(struct tni_block_cache) * TNI_CLASSES * TNI_THREADS);
    tni_os_unmap(d->local, (uint64_t)g->total_blocks * 4);
    tni_os_unmap(d->mapped, mapped_bytes(g));
}

/*
 * Claim a seat, under the lock of the list of domains, which fork() takes too: a child that was
 * forked between the claim and tni_os_witness_keep() would inherit the witness.
 */
static int claim_for_us(const struct tni_segment *s, struct tni_sit *c)
{
    tni_domains_lock();
    int status = tni_sit_claim(s, c);
    if (status == 0 && c->witness != NULL)
        tni_os_witness_keep(c->witness);
    tni_domains_unlock();
    return status;
}

int tni_process_join(struct tni_segment *segment, uint32_t flags, struct tn_domain **ret_domain)
{
    struct tni_sit claim = {.flags = flags};
    tni_domains_drop_if_copied();
    int status = tni_os_check_waits();
    if (status == 0)
        status = tni_os_self(&claim.process);
    if (status != 0 || (status = tni_fork_register()) != 0)
        return status;
    struct tn_domain *d =
        aligned_alloc(TNI_CACHE_LINE, tni_align_up(sizeof *d, TNI_CACHE_LINE));
    if (d == NULL)
        return tni_fail(TN_ERR_NO_MEMORY, "no private memory for a domain");
    memset(d, 0, sizeof *d);
    d->segment = *segment;
    d->mark = tni_os_mark();
    d->child_seat = TNI_NO_SEAT;
    d->is_manager = (flags & TNI_SEAT_MANAGER) != 0;
    atomic_store(&d->poll_fd, -1);
    atomic_store(&d->keepers, 1);
    if ((status = map_private(d)) != 0)
        goto free_domain;
    if ((status = claim_for_us(segment, &claim)) != 0)
        goto unmap;
    tni_sit_down(d, claim.seat, tni_seat_incarnation(claim.word), claim.witness);
    TNI_KILL_POINT("join_identity_written");
    if (!atomic_compare_exchange_strong(&d->me->word, &claim.word, tni_process_word(d))) {
        status =
            tni_fail(TN_ERR_CORRUPT,
                     "another process overwrote seat %u while this process joined", claim.seat);
        goto drop;
    }
    tni_domains_lock();
    d->next = tni_domains;
    tni_domains = d;
    tni_domains_unlock();
    *ret_domain = d;
    return 0;

drop:
    tni_os_witness_drop(d->witness);
unmap:
    unmap_private(d);
free_domain:
    free(d);
    return status;
}

void tni_process_begin_leave(struct tn_domain *d)
{
    if (d->seat != TNI_NO_SEAT)
        atomic_store(&d->me->word,
                     tni_sit_word(d->incarnation, TNI_SEAT_LEAVING, tni_os_pid(), d->witness));
}

void tni_process_leave(struct tn_domain *d)
{
    tni_domains_lock();
    for (struct tn_domain **at = &tni_domains; *at != NULL; at = &(*at)->next)
        if (*at == d) {
            *at = d->next;
            break;
        }
    tni_domains_unlock();
    if (d->seat != TNI_NO_SEAT) {
        atomic_store(&d->me->pid, 0);
        TNI_KILL_POINT("leave_before_free");
        /* The rooms above established I2 while the seat was LEAVING. */
        atomic_store(&d->me->word, tni_seat_word(d->incarnation + 1, TNI_SEAT_FREE, 0));
        TNI_KILL_POINT("leave_freed");
    }
    tni_os_witness_drop(d->witness); /* must come after the seat is FREE: I4 */
    d->witness = NULL;
    d->seat = TNI_NO_SEAT;
    d->is_closed = true;
    tni_process_bell_close(d);
    /*
     * The keepers may still need the mappings, but not the descriptors. Other processes find
     * domains by these descriptors, and could take this domain for a live one and join it.
     */
    tni_segment_close(&d->segment);
}

void tni_process_keep(struct tn_domain *d)
{
    atomic_fetch_add_explicit(&d->keepers, 1, memory_order_relaxed);
}

void tni_process_unkeep(struct tn_domain *d)
{
    if (atomic_fetch_sub_explicit(&d->keepers, 1, memory_order_acq_rel) == 1)
        tni_process_free(d);
}

void tni_process_free(struct tn_domain *d)
{
    for (uint32_t h = 0; h < d->hook_count; h++)
        if (d->hooks[h].free != NULL)
            d->hooks[h].free(d);
    unmap_private(d);
    tni_segment_detach(&d->segment);
    free(d);
}

void tni_process_hook(struct tn_domain *d, const struct tni_fork_hooks *hooks)
{
    if (d->hook_count < TNI_FORK_HOOKS)
        d->hooks[d->hook_count++] = *hooks;
}
