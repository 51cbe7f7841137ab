/* SPDX-License-Identifier: Apache-2.0 */
/*
 * process: the table of seats.
 *
 * Nouns: seat, incarnation, thread (an announce record and its private side), witness.
 * I1  A seat that is FREE or JOINING is taken by CAS. The word of a seat that is taken is
 *     written by its process, by plain stores, and by its recoverer once that process is dead.
 *     Each FREE raises the incarnation.
 * I2  A seat is FREE only when its row, its announces and its bits in objects are all zero.
 * I3  A JOINING seat's word names the process that it waits for: the claimer; for a forked
 *     child the parent, until the child's CAS of just that word put its own name there. Only
 *     who is named in the word writes the identity beside it, so a late child harms nobody.
 *     UNBORN, and no pid: fork() failed, and nobody has died here.
 * I4  A seat whose word says so has a witness, of a number that is this incarnation's alone,
 *     from before the CAS that took it until after it is FREE. The witness says whether its
 *     process lives, also across exec and from another namespace; the pid is then a name, and
 *     may only say sooner that it ended. A forked child inherits the witness that its parent
 *     took for it. Where none can be had, pid and start time say it, and to nobody in another
 *     namespace.
 * Callers: api at join and leave; fork handlers; reaper for the rest. Death: at any point
 * leaves a seat JOINING, ALIVE or LEAVING whose process is dead; the reaper reclaims it.
 *
 * Here: join and leave. sit.c claims seats, fork.c gives children theirs, thread.c has the
 * thread records, seats.c says who lives.
 */
#include "process/process.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "process/fork.h"

int tni_process_no_seat(const struct tn_domain *domain)
{
    if (tni_process_is_copy(domain))
        tni_process_set_apart();
    if (domain->is_closed)
        return tni_fail(TN_ERR_CLOSED, "this process has left the domain '%s'",
                        domain->segment.name);
    return tni_fail(TN_ERR_FORKED,
                    "process %d was forked without a seat in the domain '%s': %s", tni_os_pid(),
                    domain->segment.name, domain->child_reason);
}

/* `mapped`, and `roles` behind it. */
static uint64_t mapped_bytes(const struct tni_geometry *g)
{
    return tni_align_up(g->total_blocks / 8, TNI_CACHE_LINE) +
           (uint64_t)g->objects * sizeof(uint32_t);
}

/* Private tables, sparse: what is never touched costs nothing. */
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
 * With the list of domains in hand: a child that is forked meanwhile would have the witness
 * too.
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
    tni_domains_leave_copies();
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
        status = tni_fail(TN_ERR_CORRUPT, "seat %u was taken from this process while it joined",
                          claim.seat);
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
        /* I2 was established by the rooms above, while the seat was LEAVING. */
        atomic_store(&d->me->word, tni_seat_word(d->incarnation + 1, TNI_SEAT_FREE, 0));
        TNI_KILL_POINT("leave_freed");
    }
    tni_os_witness_drop(d->witness); /* I4: no earlier */
    d->witness = NULL;
    d->seat = TNI_NO_SEAT;
    d->is_closed = true;
    tni_process_bell_close(d);
    /*
     * What is still mapped for the keepers must not be found, and so joined, as a living
     * domain.
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
