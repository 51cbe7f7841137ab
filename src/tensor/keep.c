/* SPDX-License-Identifier: Apache-2.0 */
/*
 * keep: what this process keeps of memory that other libraries made and that it has shared.
 *
 * Nouns: keep (the library's function that frees the memory, and a reference to its block).
 * I1  The library gets its memory back in a call of this process, once no other process and no
 *     record has the storage, and no device works on it for anybody.
 * I2  As long as a process has an allocation open, one keep of the allocation stays, so that
 *     the library does not free the allocation. The maker asks the others to close it after
 *     some time, and at once if much memory waits.
 * I3  The list is taken off by whoever looks at it, so that no lock is held while the library
 *     frees memory. A forked child gives the references back that it inherited, and frees
 *     nothing: the library's memory is of its parent.
 * I4  A process gives back what it has of others' memory before it waits for those who have
 *     its own: otherwise two processes that leave at once would wait for each other.
 * I5  Memory in pieces has a descriptor of each, and the driver keeps it for whoever has one or
 *     has mapped it. So a maker that leaves neither copies it nor waits for others, but what
 *     they have then, the library does not get back: it would write other tensors there.
 * Death: the holds of a dead maker are released by the reaper. Its memory is gone with its
 * process: others get TN_ERR_PEER_DIED (backing/opened.c). Only pieces stay.
 */
#include <stdio.h>
#include <stdlib.h>

#include "tensor/keep.h"

static _Atomic(struct tni_keep *) keeps;
static _Atomic uint64_t allocations; /* numbers that this process has used */
/* How many more calls until the keeps are looked at again. */
static _Atomic int32_t credit;

void tni_keep_add(struct tni_keep *k)
{
    struct tni_keep *next = atomic_load(&keeps);
    do
        k->next = next;
    while (!atomic_compare_exchange_weak(&keeps, &next, k));
}

/* ---- what becomes of keeps ------------------------------------------------------------- */

/* Whether no other process and no record has the storage. */
static bool is_only_ours(const struct tni_keep *k)
{
    return tni_word_count(atomic_load(tni_word_at(&k->domain->segment, k->block))) == 1;
}

/* Whether only this process's own keep has the storage. */
static bool is_unused(const struct tni_keep *k)
{
    uint32_t at = tni_block_position(&k->domain->segment.geometry, k->block);
    return is_only_ours(k) && atomic_load(&k->domain->local[at]) == 1;
}

static void give_back(struct tni_keep *k)
{
    tni_backing_unmap(k->domain, k->mapping); /* before the block can be reused */
    tni_ref_release(k->domain, k->block);
    k->state = TNI_ENDED;
    k->ended_ns = tni_os_now_ns();
    TNI_KILL_POINT("foreign_given_back");
}

static bool has_ended(const struct tni_keep *k)
{
    struct tni_backing b;
    const struct tni_segment *s = &k->domain->segment;
    return tni_desc_at(s, k->block)->generation != k->generation ||
           tni_word_state(atomic_load(tni_word_at(s, k->block))) != TNI_BLOCK_ALLOC ||
           tni_backing_read(s, k->block, &b) == TN_ERR_NOT_FOUND;
}

/* Keeps of one allocation in a list. */
static uint32_t count_same(const struct tni_keep *list, const struct tni_keep *k)
{
    uint32_t count = 0;
    for (; list != NULL; list = list->next)
        count += list->pid == k->pid && list->domain == k->domain &&
                 list->of.allocation == k->of.allocation;
    return count;
}

/* What a process that died gave its devices is done. */
static bool settle(const struct tni_keep *k)
{
    const struct tni_memory_kind *kind = tni_memory_kind(k->device.type);
    if (kind->settle(kind, k->device.id) != 0)
        return false;
    tni_lease_end_over(&k->domain->segment, &k->of);
    return true;
}

enum { ASK_AFTER_NS = 1000 * 1000 * 1000, ASK_FROM_BYTES = 64 << 20 };

/*
 * I1, I2.
 * @param stay           keeps that were looked at already; the others are those after k
 * @param waiting_bytes  of keeps of ended storages, all together
 */
static bool may_free(const struct tni_keep *k, const struct tni_keep *stay,
                     uint64_t *waiting_bytes)
{
    const struct tni_segment *s = &k->domain->segment;
    if (!has_ended(k))
        return false;
    struct tni_lease_counts leases = tni_lease_count(s, &k->of);
    if (leases.dying > 0 || (leases.over > 0 && !settle(k)))
        return false;
    if (leases.live == 0 || count_same(k, k) + count_same(stay, k) > 1)
        return true;
    *waiting_bytes += k->bytes;
    if (*waiting_bytes >= ASK_FROM_BYTES || tni_os_now_ns() - k->ended_ns >= ASK_AFTER_NS)
        tni_lease_want(s, &k->of);
    return false;
}

/* I3 */
static void forget_as_child(struct tni_keep *k)
{
    if (k->state == TNI_KEPT)
        give_back(k);
    free(k);
}

/* Look at each keep of a list. @return those that stay */
static struct tni_keep *sort(struct tni_keep *list, struct tni_keep **ret_done)
{
    struct tni_keep *stay = NULL, *next;
    uint64_t waiting_bytes = 0;
    for (struct tni_keep *k = list; k != NULL; k = next) {
        next = k->next;
        if (k->state == TNI_KEPT && is_unused(k))
            give_back(k);
        bool is_done = k->state == TNI_COPIED
                           ? !tni_order_is_owed(k->domain, k->token)
                           : k->state == TNI_ENDED && may_free(k, stay, &waiting_bytes);
        struct tni_keep **to = is_done ? ret_done : &stay;
        k->next = *to;
        *to = k;
    }
    return stay;
}

static struct tni_keep *without_parents(struct tni_keep *list)
{
    struct tni_keep *ours = NULL, *next;
    for (; list != NULL; list = next) {
        next = list->next;
        if (list->pid != tni_os_pid()) {
            forget_as_child(list);
            continue;
        }
        list->next = ours;
        ours = list;
    }
    return ours;
}

void tni_foreign_sweep(void)
{
    struct tni_keep *done = NULL, *next;
    if (TNI_LIKELY(atomic_load(&keeps) == NULL))
        return;
    struct tni_keep *list = without_parents(atomic_exchange(&keeps, NULL));
    int32_t kept = 0;
    for (struct tni_keep *k = sort(list, &done); k != NULL; k = next, kept++) {
        next = k->next;
        tni_keep_add(k);
    }
    atomic_store(&credit, kept / 4);
    for (; done != NULL; done = next) {
        next = done->next;
        done->release(done->context);
        free(done);
    }
}

void tni_foreign_sweep_soon(void)
{
    if (TNI_UNLIKELY(atomic_load(&keeps) != NULL) && atomic_fetch_sub(&credit, 1) <= 0)
        tni_foreign_sweep();
}

/*
 * The allocation may have a number already. If another thread has taken the list off, it gets
 * a second one, and others open it twice.
 */
void tni_keep_name(const struct tn_domain *d, const struct tni_device_foreign *memory,
                   struct tni_lessor *ret_of)
{
    struct tni_keep *list = without_parents(atomic_exchange(&keeps, NULL)), *next;
    *ret_of = (struct tni_lessor){.maker = d->who};
    for (; list != NULL; list = next) {
        next = list->next;
        if (list->state != TNI_COPIED && list->domain == d && list->of.maker == d->who &&
            list->at == memory->base && list->whole_bytes == memory->bytes &&
            list->buffer_id == memory->buffer_id)
            ret_of->allocation = list->of.allocation;
        tni_keep_add(list);
    }
    if (ret_of->allocation == 0)
        ret_of->allocation = atomic_fetch_add(&allocations, 1) + 1;
}

/* ---- leaving --------------------------------------------------------------------------- */

/* What a process that leaves a domain learns of its keeps. */
struct leaving {
    struct tn_domain *domain;
    uint32_t seat; /* a process that has memory open */
    char why[256]; /* the last storage that is lost could not be copied */
};

/* Move a storage that others may get later into memory of tenon, unless others have it now. */
static void move(struct leaving *l, struct tni_keep *k)
{
    if (tni_foreign_is_held(l->domain, k->block, &l->seat))
        return;
    int status = tni_foreign_move(l->domain, k->block, k->mapping);
    if (status == 0) {
        give_back(k);
    } else if (status != TN_ERR_EXISTS) {
        snprintf(l->why, sizeof l->why, "%s", tn_error_detail());
        k->state = TNI_LOST;
    }
}

/* I5: tenond may be another one than that which got the descriptors. */
static void lend(struct tni_keep *k)
{
    tni_backing_ensure_deposited(k->domain, k->mapping);
    k->state = TNI_LENT;
}

/* @return whether the library can have its memory back: no other process needs it */
static bool let_go(struct leaving *l, struct tni_keep *k)
{
    const struct tni_segment *s = &l->domain->segment;
    if (k->state == TNI_KEPT && (is_unused(k) || (k->is_in_pieces && is_only_ours(k))))
        give_back(k);
    if (k->state == TNI_KEPT && k->is_in_pieces)
        lend(k);
    if (k->state == TNI_KEPT)
        move(l, k);
    if (k->state == TNI_COPIED)
        return true;
    if (k->state != TNI_ENDED)
        return false;
    struct tni_lease_counts leases = tni_lease_count(s, &k->of);
    if (leases.live > 0) {
        l->seat = tni_who_seat(leases.holder);
        tni_lease_want(s, &k->of);
    }
    return (leases.live == 0 || k->is_in_pieces) && leases.dying == 0 &&
           (leases.over == 0 || settle(k));
}

/* @return whether no keep of the domain is left for which it is worth to wait */
static bool let_all_go(struct leaving *l, struct tni_keep **list)
{
    bool is_all = true;
    for (struct tni_keep **at = list; *at != NULL;) {
        struct tni_keep *k = *at;
        if (k->domain != l->domain || !let_go(l, k)) {
            is_all &= k->domain != l->domain || k->state == TNI_LOST || k->state == TNI_LENT;
            at = &k->next;
            continue;
        }
        *at = k->next;
        k->release(k->context);
        free(k);
    }
    return is_all;
}

/* How many keeps of a domain are left, by their state. */
struct left {
    uint32_t used, lost, lent;
};

static void warn(const struct leaving *l, struct left left)
{
    if (left.lent > 0)
        tni_log(TNI_LOG_INFO,
                "domain '%s' is left, and %u tensors of others stay in memory that this "
                "process's allocators mapped in pieces: the allocators do not get it back",
                l->domain->segment.name, left.lent);
    if (left.used > 0)
        tni_log(TNI_LOG_WARNING,
                "domain '%s' is left although other processes, such as that in seat %u, use %u "
                "tensors in memory of this process's allocators: these tensors end with it",
                l->domain->segment.name, l->seat, left.used);
    if (left.lost > 0)
        tni_log(TNI_LOG_WARNING,
                "domain '%s' is left with %u tensors in messages or records whose memory is of "
                "this process's allocators: they end with it, because the last of them could "
                "not be copied: %s",
                l->domain->segment.name, left.lost, l->why);
}

/*
 * What others still have open after that time is never given back to the library: it ends with
 * the process. So does what is lost, because another process may be opening it.
 */
static void abandon(const struct leaving *l, struct tni_keep *list)
{
    struct tni_keep *next;
    struct left left = {0};
    for (; list != NULL; list = next) {
        next = list->next;
        if (list->domain != l->domain) {
            tni_keep_add(list);
            continue;
        }
        *(list->state == TNI_LOST   ? &left.lost
          : list->state == TNI_LENT ? &left.lent
                                    : &left.used) += 1;
        if (list->state != TNI_ENDED)
            give_back(list);
        free(list);
    }
    warn(l, left);
}

void tni_foreign_leave(struct tn_domain *d)
{
    struct leaving l = {.domain = d, .seat = TNI_NO_SEAT};
    if (atomic_load(&keeps) == NULL || d->seat == TNI_NO_SEAT)
        return;
    uint64_t deadline_ns = tni_os_now_ns() + d->foreign_wait_ns;
    tni_opened_sweep(d, true); /* I4 */
    struct tni_keep *list = without_parents(atomic_exchange(&keeps, NULL));
    for (uint32_t tries = 0; !let_all_go(&l, &list) && tni_os_now_ns() < deadline_ns; tries++)
        tni_os_back_off(tries);
    abandon(&l, list);
}
