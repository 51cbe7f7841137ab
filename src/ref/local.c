/* SPDX-License-Identifier: Apache-2.0 */
/* local: local references, and the hold bit of a seat. See ref.c, I2 and I3. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ref/counts.h"

void tni_ref_local(struct tn_domain *d, tni_block block)
{
    atomic_fetch_add_explicit(tni_local_at(d, block), 1, memory_order_relaxed);
}

static bool change_local(_Atomic uint32_t *local, uint32_t *seen, uint32_t next)
{
    if (TNI_IS_SOLO()) {
        atomic_store_explicit(local, next, memory_order_relaxed);
        return true;
    }
    return atomic_compare_exchange_weak_explicit(local, seen, next, memory_order_acq_rel,
                                                 memory_order_relaxed);
}

/*
 * Remove one local reference. @return true: the reference was the last one; local[b] is
 * TNI_LOCAL_BUSY, and the caller stores the next value
 */
static bool local_take_last(struct tn_domain *d, tni_block block)
{
    _Atomic uint32_t *local = tni_local_at(d, block);
    uint32_t seen = atomic_load_explicit(local, memory_order_relaxed), tries = 0;
    for (;;) {
        uint32_t next =
            (seen & ~TNI_LOCAL_UNFINISHED) == 1 ? (uint32_t)TNI_LOCAL_BUSY : seen - 1;
        if (TNI_UNLIKELY(seen == TNI_LOCAL_BUSY || seen == 0)) {
            if (seen == 0)
                return false; /* a forked child got no holds, or the block is released twice */
            tni_os_back_off(tries++);
            seen = atomic_load_explicit(local, memory_order_relaxed);
        } else if (change_local(local, &seen, next)) {
            return next == TNI_LOCAL_BUSY;
        }
    }
}

/*
 * Add one local reference. @return true: the reference is the first one; local[b] is
 * TNI_LOCAL_BUSY, and the caller stores the next value
 */
static bool local_add_first(struct tn_domain *d, tni_block block)
{
    _Atomic uint32_t *local = tni_local_at(d, block);
    uint32_t seen = atomic_load_explicit(local, memory_order_relaxed), tries = 0;
    for (;;) {
        uint32_t next = seen == 0 ? TNI_LOCAL_BUSY : seen + 1;
        if (TNI_UNLIKELY(seen == TNI_LOCAL_BUSY)) {
            tni_os_back_off(tries++);
            seen = atomic_load_explicit(local, memory_order_relaxed);
        } else if (change_local(local, &seen, next)) {
            return next == TNI_LOCAL_BUSY;
        }
    }
}

/*
 * Release the hold. pre: the last local reference was removed, and no process recounts the
 * block. @return true: the block is FREE, and *ret_freed is its word; false: this thread
 * announces the block, and the caller lowers its count
 */
static inline bool release_hold(struct tn_domain *d, struct tni_thread *thread, tni_block block,
                                uint32_t at, uint64_t *ret_freed)
{
    tni_announce_now(thread, block);
    TNI_KILL_POINT("release_announced");
    tni_ref_clear_hold(d->row, at);
    TNI_KILL_POINT("release_unrecorded");
    /*
     * local[b] must be 0 before the block can be FREE: another thread of this process may
     * allocate the block at once.
     */
    atomic_store_explicit(&d->local[at], 0, memory_order_release);
    if (TNI_UNLIKELY(tni_block_class(block) < TNI_SMALL_CLASS) ||
        TNI_UNLIKELY(!tni_count_free_sole(tni_word_of(&d->segment, at), ret_freed)))
        return false;
    tni_announce_clear(thread);
    return true;
}

/* Release a local reference; the last one also releases the hold. @return: the block is FREE */
static inline bool release_local(struct tn_domain *d, struct tni_thread *thread,
                                 tni_block block)
{
    uint32_t at = tni_block_position(&d->segment.geometry, block);
    uint64_t freed;
    if (!tni_ref_is_local(d, at, 1) && !local_take_last(d, block))
        return false;
    tni_yield_to_recount(thread, block, 1);
    if (TNI_LIKELY(release_hold(d, thread, block, at, &freed)))
        return true;
    bool is_freed = tni_count_decrement(d, thread, block);
    tni_announce_clear(thread);
    return is_freed;
}

void tni_ref_release_with(struct tn_domain *d, struct tni_thread *thread, tni_block block)
{
    if (release_local(d, thread, block))
        tni_alloc_put(d, thread, block);
}

void tni_ref_release_unused(struct tn_domain *d, struct tni_thread *thread, tni_block block)
{
    if (release_local(d, thread, block))
        tni_alloc_publish(d, block);
}

/*
 * Release a local reference of a process that has no seat, and so has no hold. If the domain is
 * closed, the reference is one of the domain's keepers.
 */
static void release_private(struct tn_domain *d, tni_block block)
{
    if (d->is_closed)
        tni_process_unkeep(d);
    else if (atomic_load_explicit(tni_local_at(d, block), memory_order_relaxed) > 0)
        atomic_fetch_sub_explicit(tni_local_at(d, block), 1, memory_order_relaxed);
}

static void keep_or_free(struct tni_thread *thread, struct tni_spare *spare)
{
    bool is_kept = spare != NULL && tni_thread_keep(thread, spare, (tni_block){0});
    tni_thread_leave(thread);
    if (!is_kept)
        free(spare);
}

static __attribute__((noinline)) void release_slowly(struct tn_domain *d, tni_block block,
                                                     struct tni_spare *spare)
{
    if (tni_process_is_copy(d))
        tni_process_drop_parent_seats();
    struct tni_thread *thread = tni_thread_enter(d);
    /* tni_ref_close() takes every thread record before it sets is_closed, so this is stable. */
    bool is_member = TNI_LIKELY(d->seat != TNI_NO_SEAT && !d->is_closed);
    if (is_member)
        tni_ref_release_with(d, thread, block);
    keep_or_free(thread, spare);
    if (!is_member)
        release_private(d, block); /* this call may free the domain */
}

void tni_ref_release(struct tn_domain *d, tni_block block) { release_slowly(d, block, NULL); }

/* The slow part of a release, after the hold was released. @param is_free  the block is FREE */
static __attribute__((noinline)) void end_release(struct tn_domain *d,
                                                  struct tni_thread *thread, tni_block block,
                                                  bool is_free, struct tni_spare *spare)
{
    if (is_free)
        tni_alloc_put(d, thread, block);
    else
        tni_ref_drop(d, thread, block);
    keep_or_free(thread, spare);
}

void tni_ref_release_and_keep(struct tn_domain *d, tni_block block, struct tni_spare *spare)
{
    struct tni_thread *thread;
    if (TNI_UNLIKELY(!tni_process_is_member(d)) ||
        TNI_UNLIKELY((thread = tni_thread_enter_home(d)) == NULL)) {
        release_slowly(d, block, spare);
        return;
    }
    uint32_t at = tni_block_position(&d->segment.geometry, block);
    if (TNI_UNLIKELY(d->is_closed) || tni_thread_sees_recount(thread) ||
        TNI_UNLIKELY(!tni_ref_is_local(d, at, 1))) {
        tni_thread_leave(thread);
        release_slowly(d, block, spare);
        return;
    }
    bool is_free = release_hold(d, thread, block, at, &spare->freed);
    if (TNI_UNLIKELY(!is_free) || TNI_UNLIKELY(!tni_alloc_put_back(d, thread, block))) {
        end_release(d, thread, block, is_free, spare);
        return;
    }
    spare->at = at;
    bool is_kept = tni_thread_keep(thread, spare, block);
    tni_thread_leave(thread);
    if (TNI_UNLIKELY(!is_kept))
        free(spare);
}

void tni_ref_adopt_more(struct tn_domain *d, struct tni_thread *thread, tni_block block)
{
    if (local_add_first(d, block)) { /* another thread's reference ended a moment ago */
        tni_ref_record_hold(d, thread, block, tni_block_position(&d->segment.geometry, block));
        return;
    }
    /* This process holds the block already, so drop the reference of the record. */
    TNI_KILL_POINT("adopt_held_already");
    tni_ref_drop(d, thread, block);
}

/*
 * Raise the count for the record first, while the caller's own reference still keeps the block.
 * Other threads may release their references meanwhile. If the caller's reference then is the
 * last one, the record takes over the reference of the hold, and the count is lowered again.
 */
int tni_ref_lend_more(struct tn_domain *d, tni_block block, bool move)
{
    uint32_t at = tni_block_position(&d->segment.geometry, block);
    if (move && tni_ref_is_local(d, at, TNI_LOCAL_UNFINISHED | 1)) {
        tni_ref_move_hold(d, block, at);
        return 0;
    }
    int status = tni_count_increment(d, block, TNI_MOST_RECORDED);
    TNI_KILL_POINT("lend_incremented");
    if (status == 0 && move && local_take_last(d, block)) {
        atomic_fetch_add(tni_word_at(&d->segment, block), TNI_WORD_DEC);
        tni_ref_move_hold(d, block, at);
    }
    return status;
}
