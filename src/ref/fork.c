/* SPDX-License-Identifier: Apache-2.0 */
/* fork: gives a forked child its own holds of this process's blocks. See ref.c, I6. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ref/counts.h"

static bool is_unfinished(const struct tn_domain *d, uint32_t at)
{
    uint32_t local = atomic_load_explicit(&d->local[at], memory_order_relaxed);
    return local != TNI_LOCAL_BUSY && (local & TNI_LOCAL_UNFINISHED) != 0;
}

/*
 * Leave out the holds of unfinished blocks (I6).
 * @param bits  64 adjacent holds
 * @return those that the child gets
 */
static uint64_t without_unfinished(struct tn_domain *d, uint32_t at, uint64_t bits)
{
    for (uint64_t left = bits; left != 0; left &= left - 1) {
        if (!is_unfinished(d, at + tni_low_bit(left)))
            continue;
        bits &= ~(left & -left);
        tni_ref_part(d)->withheld++;
    }
    return bits;
}

/*
 * Write the child's holds of 64 adjacent blocks, under one announce: one increment for each
 * block (I1), then one write of the child's row for all of them.
 */
static int give_child_word(struct tn_domain *d, uint32_t child, tni_block first, uint64_t bits)
{
    struct tni_thread *thread = tni_process_fork_thread(d);
    uint32_t at = tni_block_position(&d->segment.geometry, first);
    uint64_t given = 0;
    int status = 0;

    tni_announce(thread, first, 64);
    for (; bits != 0 && status == 0; bits &= bits - 1) {
        status =
            tni_count_increment(d, (tni_block){first.id + tni_low_bit(bits)}, TNI_MOST_PINNED);
        TNI_KILL_POINT("fork_incremented");
        if (status == 0)
            given |= bits & -bits;
    }
    atomic_fetch_or(tni_row_at(&d->segment, child, at), given);
    TNI_KILL_POINT("fork_recorded");
    tni_announce_clear(thread);
    return status;
}

/* In the parent, write the child's holds. pre: this process has taken every thread record */
static int give_child_holds(struct tn_domain *d, uint32_t child)
{
    const struct tni_geometry *g = &d->segment.geometry;
    int status = 0;

    tni_ref_part(d)->withheld = 0;
    for (uint32_t c = 1; c < g->class_count && status == 0; c++) {
        uint32_t words = (tni_frontier(&d->segment, c) + 63) / 64;
        for (uint32_t w = 0; w < words && status == 0; w++) {
            tni_block first = tni_block_make(c, w * 64);
            uint64_t bits =
                atomic_load(tni_row_at(&d->segment, d->seat, tni_block_position(g, first)));
            if (g->classes[c].capacity - w * 64 < 64) /* bits that name no block are damage */
                bits &= (UINT64_C(1) << (g->classes[c].capacity - w * 64)) - 1;
            bits = without_unfinished(d, tni_block_position(g, first), bits);
            if (bits != 0)
                status = give_child_word(d, child, first, bits);
        }
    }
    atomic_store_explicit(&tni_process_fork_thread(d)->announce->span, 1, memory_order_relaxed);
    return status;
}

/*
 * In the child, which has no other threads: drop the local references of unfinished blocks
 * (I6). If the child has no seat, the parent counted no `withheld` blocks for it.
 */
TNI_AROUND_FORK static void forget_unfinished(struct tn_domain *d)
{
    const struct tni_geometry *g = &d->segment.geometry;
    if (d->seat != TNI_NO_SEAT && tni_ref_part(d)->withheld == 0)
        return;
    for (uint32_t c = 1; c < g->class_count; c++) {
        uint32_t base = g->classes[c].base, limit = atomic_load(&d->local_limit[c]);
        for (uint32_t i = 0; i < limit; i++)
            if (is_unfinished(d, base + i))
                atomic_store_explicit(&d->local[base + i], 0, memory_order_relaxed);
    }
}

static void free_table(struct tn_domain *d)
{
    tni_os_unmap(tni_ref_part(d)->rested, (uint64_t)d->segment.geometry.total_blocks * 8);
}

int tni_ref_init(struct tn_domain *d)
{
    tni_process_hook(d, &(struct tni_fork_hooks){.prepare = give_child_holds,
                                                 .child = forget_unfinished,
                                                 .free = free_table});
    return 0;
}
