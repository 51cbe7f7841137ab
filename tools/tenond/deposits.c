/* SPDX-License-Identifier: Apache-2.0 */
/*
 * deposits: descriptors of storages outside of the arena, kept so that a storage can be
 * mapped after its maker has ended.
 *
 * Nouns: deposit (the descriptors of a block, under the block and its generation: one, or one
 * for each piece of its memory), sweep (a check of all deposits of a domain, which drops those
 * whose block has ended).
 * I1  A deposit is accepted only if it is what its block says: as many descriptors, each of an
 *     object with that inode, sealed against shrinking, of this user. Of memory of a device
 *     only the inode can be checked, which all memory of its driver has. The block is checked
 *     again before the descriptors are given out.
 * I2  A deposit whose block has ended is dropped by the next sweep: after a ring, or at the
 *     next tick. Sweeps take at most a part of our time, however many deposits there are.
 * I3  Deposits never use the descriptors that watches, connections and the message of one more
 *     deposit need. The vault has the same limit, and needs fewer descriptors for itself.
 * I4  All descriptors of a deposit come in one message, and are kept, sent to the vault, given
 *     out and closed together: no process has some of them only.
 * Death: our successor gets the deposits from the vault (recall.c), and from members that
 * still have the descriptors.
 */
#include <stdlib.h>

#include "tenond.h"

#define SWEEP_LEAST_NS UINT64_C(10000000)
enum { SWEEP_SHARE = 8, RESERVE_MOST = 600 + TNI_PIECES };

void tenond_deposits_limit(struct tenond *t)
{
    uint64_t limit = TNI_MIN(tni_os_raise_descriptor_limit(), (uint64_t)UINT32_MAX);
    t->descriptor_limit = (uint32_t)limit;
    t->deposit_limit = (uint32_t)(limit - TNI_MIN(limit / 2, (uint64_t)RESERVE_MOST)); /* I3 */
}

/* ---- the table --------------------------------------------------------------------------- */

static int ensure_table(struct tenond_domain *d)
{
    struct tenond_deposits *all = &d->deposits;
    const struct tni_geometry *g = &tenond_segment(d)->geometry;
    if (all->places == NULL) {
        uint64_t bytes = g->classes[TNI_BACKING_CLASS].capacity * sizeof *all->places;
        void *places;
        int status = tni_os_map_private(bytes, &places);
        if (status != 0)
            return status;
        all->places = places;
        all->places_bytes = bytes;
    }
    if (all->count == all->room) {
        uint32_t room = 2 * all->room + 64;
        struct tenond_deposit *grown = reallocarray(all->at, room, sizeof *grown);
        if (grown == NULL)
            return tni_fail(TN_ERR_NO_MEMORY, "no private memory for %u deposits", room);
        all->at = grown;
        all->room = room;
    }
    return 0;
}

/* @return the deposit of a block, or NULL */
static struct tenond_deposit *find(const struct tenond_domain *d, tni_block block)
{
    const struct tenond_deposits *all = &d->deposits;
    if (all->places == NULL || all->places[tni_block_index(block)] == 0)
        return NULL;
    return &all->at[all->places[tni_block_index(block)] - 1];
}

static void drop(struct tenond *t, struct tenond_domain *d, struct tenond_deposit *deposit)
{
    struct tenond_deposits *all = &d->deposits;
    tenond_mirror_drop(t, d, deposit);
    struct tenond_deposit *last = &all->at[--all->count];
    all->places[deposit->index] = 0;
    t->deposit_count -= deposit->bundle.count;
    bundle_close(&deposit->bundle);
    if (deposit == last)
        return;
    *deposit = *last;
    all->places[deposit->index] = (uint32_t)(deposit - all->at) + 1;
}

void tenond_deposits_fini(struct tenond *t, struct tenond_domain *d, bool is_over)
{
    struct tenond_deposits *all = &d->deposits;
    while (all->count > 0) {
        struct tenond_deposit *last = &all->at[all->count - 1];
        if (!is_over)
            tenond_mirror_leave(t, last);
        drop(t, d, last);
    }
    free(all->at);
    tni_os_unmap(all->places, all->places_bytes);
    *all = (struct tenond_deposits){.sweep_ns = TNI_FOREVER};
}

/* ---- what a block says ------------------------------------------------------------------- */

/*
 * A process that ends a block clears its strategy first, then makes the block FREE, then rings.
 * So a check after the ring sees that the block has ended.
 */
static int check_block(const struct tni_segment *s, tni_block block, uint32_t generation,
                       struct tni_backing *ret_backing)
{
    uint64_t word = atomic_load(tni_word_at(s, block));
    if (tni_word_state(word) != TNI_BLOCK_ALLOC ||
        tni_desc_at(s, block)->generation != generation ||
        tni_backing_read(s, block, ret_backing) != 0 || ret_backing->path[0] != '\0')
        return TN_ERR_STALE;
    return 0;
}

static int check_object(const struct tni_backing *b, int fd)
{
    struct tni_os_memory memory;
    uint64_t inode, device;
    if (b->device_type != 0)
        return tni_os_identify(fd, &inode, &device) == 0 && inode == atomic_load(&b->inode) &&
                       device == atomic_load(&b->device)
                   ? 0
                   : TN_ERR_INVALID;
    if (tni_os_memory_stat(fd, &memory) != 0 || !memory.is_sealed ||
        memory.uid != tni_os_uid() || memory.inode != atomic_load(&b->inode) ||
        memory.device != atomic_load(&b->device))
        return TN_ERR_INVALID;
    return 0;
}

/* I1 */
static int check_objects(const struct tni_backing *b, const struct tenond_offer *offer)
{
    int status = offer->fd_count == tni_backing_descriptors(b) ? 0 : TN_ERR_INVALID;
    for (uint32_t i = 0; status == 0 && i < offer->fd_count; i++)
        status = check_object(b, offer->fds[i]);
    return status;
}

/* ---- requests ---------------------------------------------------------------------------- */

static bool is_backing(const struct tenond_domain *d, tni_block block)
{
    return tni_geometry_has_block(&tenond_segment(d)->geometry, block.id) &&
           tni_class_is_backing(tni_block_class(block));
}

static int add(struct tenond *t, struct tenond_domain *d, const struct tenond_offer *offer)
{
    struct tenond_deposits *all = &d->deposits;
    struct bundle bundle;
    if ((uint64_t)t->deposit_count + offer->fd_count > t->deposit_limit)
        return TN_ERR_FULL;
    int status = ensure_table(d);
    if (status == 0)
        status = bundle_make(offer->fds, offer->fd_count, &bundle);
    if (status != 0)
        return status;
    uint32_t index = tni_block_index(offer->block);
    all->at[all->count++] = (struct tenond_deposit){
        .index = index, .generation = offer->generation, .bundle = bundle};
    all->places[index] = all->count;
    t->deposit_count += bundle.count;
    atomic_store(
        &((struct tni_backing *)tni_payload_look(tenond_segment(d), offer->block))->depositary,
        d->domain->who);
    TNI_KILL_POINT("tenond_deposit_named");
    return 0;
}

int tenond_deposit_keep(struct tenond *t, struct tenond_domain *d,
                        const struct tenond_offer *offer, struct tenond_deposit **ret_deposit)
{
    struct tni_backing b;
    if (!is_backing(d, offer->block))
        return TN_ERR_INVALID;
    int status = check_block(tenond_segment(d), offer->block, offer->generation, &b);
    if (status == 0)
        status = check_objects(&b, offer);
    if (status != 0)
        return status;
    struct tenond_deposit *deposit = find(d, offer->block);
    if (deposit != NULL && deposit->generation == offer->generation &&
        deposit->bundle.count == offer->fd_count) {
        bundle_close_fds(offer->fds, offer->fd_count); /* we have them already */
        *ret_deposit = deposit;
        return 0;
    }
    /* Of an earlier generation, which no sweep has seen yet, or from before a move. */
    if (deposit != NULL)
        drop(t, d, deposit);
    if ((status = add(t, d, offer)) == 0)
        *ret_deposit = find(d, offer->block);
    return status;
}

int tenond_deposit(struct tenond *t, struct tenond_domain *d, const struct tenond_offer *offer)
{
    struct tenond_deposit *deposit;
    int status = tenond_deposit_keep(t, d, offer, &deposit);
    if (status != 0)
        return status;
    TNI_KILL_POINT("tenond_deposit_kept");
    tenond_mirror_put(t, d, deposit);
    TNI_KILL_POINT("tenond_deposit_mirrored");
    return 0;
}

int tenond_fetch(struct tenond_domain *d, tni_block block, uint32_t generation,
                 const struct bundle **ret_bundle)
{
    struct tni_backing b;
    struct tenond_deposit *deposit = is_backing(d, block) ? find(d, block) : NULL;
    if (deposit == NULL || deposit->generation != generation ||
        check_block(tenond_segment(d), block, generation, &b) != 0 ||
        deposit->bundle.count != tni_backing_descriptors(&b))
        return TN_ERR_NOT_FOUND;
    *ret_bundle = &deposit->bundle;
    return 0;
}

/* ---- sweeping ---------------------------------------------------------------------------- */

void tenond_sweep_soon(struct tenond_domain *d)
{
    if (d->deposits.count > 0)
        d->deposits.sweep_ns = TNI_MIN(d->deposits.sweep_ns, d->deposits.earliest_ns);
}

static void sweep(struct tenond *t, struct tenond_domain *d)
{
    struct tenond_deposits *all = &d->deposits;
    struct tni_backing b;
    /* Backward: drop() moves the last deposit, which was checked already, into the gap. */
    for (uint32_t i = all->count; i-- > 0;) {
        tni_block block = tni_block_make(TNI_BACKING_CLASS, all->at[i].index);
        if (check_block(tenond_segment(d), block, all->at[i].generation, &b) != 0) {
            drop(t, d, &all->at[i]);
            TNI_KILL_POINT("tenond_deposit_dropped");
        }
    }
}

uint64_t tenond_sweep_due(struct tenond *t, struct tenond_domain *d, uint64_t now_ns)
{
    struct tenond_deposits *all = &d->deposits;
    if (now_ns < all->sweep_ns)
        return all->sweep_ns;
    sweep(t, d);
    uint64_t done_ns = tni_os_now_ns();
    uint64_t pause_ns = tni_pause_ns(done_ns - now_ns, SWEEP_SHARE, SWEEP_LEAST_NS);
    all->sweep_ns = TNI_FOREVER;
    all->earliest_ns = done_ns + pause_ns;
    return TNI_FOREVER;
}
