/* SPDX-License-Identifier: Apache-2.0 */
/* make: allocates a block and sets its hold. See ref.c for the invariants. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ref/counts.h"

/* Write a block's desc, except for the generation and the time. */
static inline void describe(const struct tn_domain *d, struct tni_desc *desc, uint64_t bytes,
                            const struct tni_block_about *about)
{
    TNI_PUT(desc->creator_seat, (uint16_t)d->seat);
    TNI_PUT(desc->kind, about->kind);
    TNI_PUT(desc->ndim, about->ndim);
    TNI_PUT(desc->bytes, bytes);
    TNI_PUT(desc->dtype, about->dtype);
    TNI_PUT(desc->creator_pid, (uint32_t)d->me->pid);
    for (uint32_t i = 0; i < about->ndim && i < TNI_DESC_NDIM; i++)
        TNI_PUT(desc->shape[i], about->shape[i]);
}

/* Empty the list of records of a new message block. A recounter may still read the old list. */
static void clear_records(struct tni_records *records)
{
    atomic_store_explicit(&records->count, 0, memory_order_relaxed);
    memset((uint8_t *)records + sizeof records->count, 0,
           sizeof *records - sizeof records->count);
}

/*
 * Fail: the block's word said FREE although this process holds the block. Another process
 * overwrote the word or this process's row. Two tensors must not share the block, so local[b],
 * which the first tensor relies on (I2), is not changed. The block stays ALLOC until an audit
 * corrects its count.
 */
static __attribute__((noinline)) int fail_held(struct tni_thread *thread, tni_block block)
{
    tni_announce_clear(thread);
    return tni_fail(TN_ERR_CORRUPT,
                    "the word of block %08x says that it is free, but this process holds it",
                    block.id);
}

/*
 * Write the desc and the hold of a block that this thread has taken. Clears the announce. It
 * has six parameters: this function is inlined into the hot path, so they cost nothing.
 * @param about  NULL: the desc is already right
 */
static inline int record_hold(struct tn_domain *d, struct tni_thread *thread, tni_block block,
                              uint32_t at, uint64_t bytes, const struct tni_block_about *about)
{
    struct tni_desc *desc = tni_desc_of(&d->segment, at);
    if (TNI_UNLIKELY(atomic_load_explicit(&d->local[at], memory_order_relaxed) != 0))
        return fail_held(thread, block);
    TNI_PUT(desc->generation, desc->generation + 1);
    if (about != NULL)
        describe(d, desc, bytes, about);
    if (about != NULL && TNI_UNLIKELY(about->kind == TNI_KIND_MESSAGE))
        clear_records(tni_payload_at(&d->segment, block));
    tni_ref_set_hold(d, at);
    TNI_KILL_POINT("alloc_recorded");
    tni_announce_clear(thread);
    return 0;
}

bool tni_ref_alloc_again(struct tn_domain *d, struct tni_thread *thread,
                         const struct tni_spare *spare, uint64_t bytes,
                         const struct tni_block_about *about)
{
    tni_block block = spare->block;
    uint32_t at = spare->at;
    return TNI_LIKELY(tni_alloc_take_again(d, thread, spare)) &&
           TNI_LIKELY(record_hold(d, thread, block, at, bytes, about) == 0);
}

static inline int record_new(struct tn_domain *d, struct tni_thread *thread, tni_block block,
                             uint64_t bytes, const struct tni_block_about *about)
{
    uint32_t at = tni_block_position(&d->segment.geometry, block);
    tni_ref_note_local(d, block);
    int status = record_hold(d, thread, block, at, bytes, about);
    if (TNI_LIKELY(status == 0))
        tni_ref_born(d, at);
    return status;
}

bool tni_ref_alloc_warm(struct tn_domain *d, struct tni_thread *thread, uint64_t bytes,
                        const struct tni_block_about *about, tni_block *ret_block)
{
    return TNI_LIKELY(tni_alloc_take_warm(d, thread, bytes, ret_block)) &&
           TNI_LIKELY(record_new(d, thread, *ret_block, bytes, about) == 0);
}

/* Try once to allocate a block. */
static int alloc_with(struct tn_domain *d, struct tni_thread *thread, uint64_t bytes,
                      const struct tni_block_about *about, struct tni_new_block *ret_new)
{
    enum { MOST_HELD = 8 }; /* how many damaged blocks to skip: fail_held() */
    const struct tni_alloc_request request = {
        .bytes = bytes, .kind = about->kind, .is_uncommitted = about->is_uncommitted};
    int status = TN_ERR_CORRUPT;
    for (uint32_t tries = 0; status == TN_ERR_CORRUPT && tries < MOST_HELD; tries++) {
        if (TNI_UNLIKELY(about->device != NULL)) {
            ret_new->is_zero = false;
            status = tni_slab_take(d, thread, bytes, about->device, &ret_new->block);
        } else {
            status = tni_alloc_take(d, thread, &request, ret_new);
        }
        if (TNI_LIKELY(status == 0))
            status = record_new(d, thread, ret_new->block, bytes, about);
    }
    if (TNI_LIKELY(status == 0) && about->is_unfinished)
        atomic_fetch_or_explicit(tni_local_at(d, ret_new->block), TNI_LOCAL_UNFINISHED,
                                 memory_order_relaxed);
    return status;
}

void tni_ref_finish(struct tn_domain *d, tni_block block)
{
    _Atomic uint32_t *local = tni_local_at(d, block);
    if ((atomic_load_explicit(local, memory_order_relaxed) & TNI_LOCAL_UNFINISHED) != 0)
        atomic_fetch_and_explicit(local, ~TNI_LOCAL_UNFINISHED, memory_order_relaxed);
}

static int alloc_now(struct tn_domain *d, uint64_t bytes, const struct tni_block_about *about,
                     struct tni_new_block *ret_new)
{
    struct tni_thread *thread = tni_thread_enter(d);
    int status = alloc_with(d, thread, bytes, about, ret_new);
    tni_thread_leave(thread);
    return status;
}

int tni_ref_alloc_with(struct tn_domain *d, struct tni_thread *thread, uint64_t bytes,
                       const struct tni_block_about *about, tni_block *ret_block)
{
    struct tni_new_block taken;
    int status = alloc_with(d, thread, bytes, about, &taken);
    if (status == 0)
        *ret_block = taken.block;
    return status;
}

struct alloc_retry {
    struct tni_retry retry;
    const struct tni_block_about *about;
    struct tni_new_block *ret_new;
};

static int attempt_alloc(struct tn_domain *d, struct tni_retry *retry)
{
    const struct alloc_retry *r = (const struct alloc_retry *)retry;
    return alloc_now(d, retry->bytes, r->about, r->ret_new);
}

/* The size is also compared with the quota: blocks of the largest class exceed the quota. */
bool tni_ref_can_fit(const struct tn_domain *d, uint64_t bytes, uint8_t kind)
{
    const struct tni_geometry *g = &d->segment.geometry;
    return tni_geometry_class(g, bytes, kind) != 0 &&
           tni_align_up(bytes, g->page_bytes) <= g->quota_limit_bytes;
}

int tni_ref_alloc(struct tn_domain *d, uint64_t bytes, const struct tni_block_about *about,
                  uint64_t deadline_ns, struct tni_new_block *ret_new)
{
    int status = tni_process_check(d);
    if (status == 0)
        status = alloc_now(d, bytes, about, ret_new);
    if (TNI_LIKELY(!tni_ref_is_short(status)))
        return status;
    struct alloc_retry r = {.retry = {.attempt = attempt_alloc,
                                      .bytes = bytes,
                                      .deadline_ns = deadline_ns,
                                      .can_fit = tni_ref_can_fit(d, bytes, about->kind)},
                            .about = about,
                            .ret_new = ret_new};
    return tni_ref_retry(d, &r.retry, status);
}

uint32_t tni_ref_generation(const struct tn_domain *d, tni_block block)
{
    return TNI_LOOK(tni_desc_at(&d->segment, block)->generation);
}
