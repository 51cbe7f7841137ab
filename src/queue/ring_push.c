/* SPDX-License-Identifier: Apache-2.0 */
/* ring: claim a slot and write a message into it. The invariants are in ring.c. */
#include <string.h>

#include "queue/slots.h"
#include "wait/wait.h"

static __attribute__((noinline)) int fail_ended(const struct tni_queue *q)
{
    return tni_fail(TN_ERR_CLOSED, "the queue " TNI_TITLE_FORMAT " was ended",
                    TNI_TITLE(q->handle.object->name));
}

/*
 * Whether a slot can be claimed after the leases that begin at `tail`. If not, the tail stays:
 * it passes leases only to reach such a slot.
 */
static bool has_room_behind(const struct tni_queue *q, uint64_t tail)
{
    uint64_t at = tail;
    for (uint32_t n = 1; n < q->capacity; n++) {
        at = tni_position_after(at, q->capacity);
        uint64_t word = atomic_load_explicit(&tni_slot_at(q, at)->word, memory_order_relaxed);
        int32_t ahead = (int32_t)(tni_slot_round(word) - tni_position_round(at));
        if (ahead != -1 || tni_slot_state(word) != TNI_SLOT_LEASED)
            return ahead >= 0;
    }
    return false;
}

/* A limit, so that damage does not keep a push here; the caller tries again. */
static uint64_t max_steps(const struct tni_queue *q)
{
    return 64 * (uint64_t)q->capacity + 1024;
}

/* The word of the slot at the tail is more than one round ahead, which no push brings about. */
static int fail_ahead(const struct tni_queue *q, uint64_t tail, int32_t ahead)
{
    return tni_fail(TN_ERR_CORRUPT,
                    "the queue " TNI_TITLE_FORMAT ": slot %u is %d rounds ahead of round %u",
                    TNI_TITLE(q->handle.object->name), tni_position_index(tail), ahead,
                    tni_position_round(tail));
}

/* I2. @return the tail now */
static inline uint64_t pass_tail(const struct tni_queue *q, uint64_t position)
{
    struct tni_object *object = q->handle.object;
    uint64_t seen = position, next = tni_position_after(position, q->capacity);
    if (!atomic_compare_exchange_strong(&object->tail, &seen, next))
        return seen;
    if (TNI_UNLIKELY(next ==
                     0)) /* rounds wrapped to 0: correct `unpushed`, for tni_queue_figures() */
        atomic_fetch_sub_explicit(&object->unpushed, (uint64_t)q->capacity << 32,
                                  memory_order_relaxed);
    return next;
}

/*
 * I1. Claim the slot at the tail. @return 0; TN_ERR_TIMED_OUT: the ring is full; TN_ERR_CORRUPT
 */
static int claim(struct tni_queue *q, uint32_t tag, uint64_t *ret_position)
{
    struct tni_object *object = q->handle.object;
    uint64_t tail = atomic_load_explicit(&object->tail, memory_order_relaxed);
    uint64_t left = max_steps(q);

    for (uint32_t passed = 0; passed <= q->capacity && left > 0; left--) {
        struct tni_slot *slot = tni_slot_at(q, tail);
        uint64_t word = atomic_load_explicit(&slot->word, memory_order_acquire);
        uint32_t round = tni_position_round(tail), state = tni_slot_state(word);
        int32_t ahead = (int32_t)(tni_slot_round(word) - round);

        if (ahead == 0 && state == TNI_SLOT_EMPTY) {
            uint64_t mine = tni_slot_word(round, TNI_SLOT_CLAIMED, q->handle.domain->seat, tag);
            if (atomic_compare_exchange_strong(&slot->word, &word, mine)) {
                *ret_position = tail;
                return 0;
            }
            continue;
        }
        if (ahead < 0) {
            if (state != TNI_SLOT_LEASED || ahead != -1 || !has_room_behind(q, tail))
                return TN_ERR_TIMED_OUT;
            /* I2: a lease may last long, so the ring goes on around it. */
            uint64_t moved =
                tni_slot_word(round, TNI_SLOT_LEASED, tni_slot_seat(word), tni_slot_tag(word));
            if (!atomic_compare_exchange_strong(&slot->word, &word, moved))
                continue;
            tni_ring_note_unpushed(object);
            passed++;
        }
        if (TNI_UNLIKELY(ahead > 1) && atomic_load(&object->tail) == tail)
            return fail_ahead(q, tail, ahead);
        /* The tail is behind: move it on. */
        tail = pass_tail(q, tail);
    }
    return TN_ERR_TIMED_OUT;
}

/* pre: view and bytes fit into the slot. */
static inline void write_slot(struct tni_queue *q, struct tni_slot *slot,
                              const struct tni_parcel *p)
{
    TNI_PUT(*tni_slot_content(slot), tni_content_make(p->bytes_count, p->block.id));
    TNI_PUT(*tni_slot_form(slot),
            tni_slot_make_form(p->view_bytes, p->form, p->is_tensor, q->handle.domain->seat));
    if (p->is_plain)
        tni_tensor_encode_plain(p->tensor, (void *)slot->data);
    else if (p->form == TNI_FORM_TENSOR)
        tni_tensor_encode(p->tensor, p->held, p->view_bytes, slot->data);
    if (p->bytes_count != 0)
        memcpy(slot->data + p->view_bytes, p->bytes, p->bytes_count);
}

/* A slot that was EMPTY and that this process has CLAIMED. */
struct claimed {
    struct tni_slot *slot;
    uint64_t position, word;
};

static inline uint64_t claim_word(const struct tni_queue *q, const struct tni_thread *thread,
                                  uint64_t empty)
{
    return empty | tni_slot_word(0, TNI_SLOT_CLAIMED, q->handle.domain->seat, thread->number);
}

/*
 * Complete a push into a claimed slot, and give the thread's record back. pre: the thread
 * announces the block, and claimed the slot by a read-modify-write after that, as ref.c, I5
 * demands.
 */
static inline __attribute__((always_inline)) int push_claimed(struct tni_queue *q,
                                                              struct tni_thread *thread,
                                                              const struct claimed *c,
                                                              const struct tni_parcel *p)
{
    struct tn_domain *d = q->handle.domain;
    struct tni_slot *slot = c->slot;
    int status = 0;
    TNI_KILL_POINT("push_claimed");
    /*
     * Checked after the claim: a pop that finds the queue ended and this slot EMPTY reports
     * that the queue is over.
     */
    if (TNI_UNLIKELY((atomic_load(&q->handle.object->ended) & TNI_QUEUE_ENDED) != 0)) {
        status = fail_ended(q);
    } else {
        write_slot(q, slot, p);
        if (p->block.id != 0)
            status = tni_ref_lend(d, p->block, p->move);
    }
    TNI_KILL_POINT("push_lent");
    /*
     * Pairs with the acquire in tni_ring_scan(). A push that failed leaves the slot EMPTY for
     * the next round, and pops skip the position.
     */
    uint64_t done = c->word + ((uint64_t)(TNI_SLOT_FULL - TNI_SLOT_CLAIMED) << 24);
    if (TNI_UNLIKELY(status != 0)) {
        tni_ring_note_unpushed(q->handle.object);
        done = tni_slot_word(tni_position_round(c->position) + 1, TNI_SLOT_EMPTY, 0, 0);
    }
    atomic_store_explicit(&slot->word, done, memory_order_release);
    TNI_KILL_POINT("push_full");
    if (tni_thread_does_again(thread, TNI_PUSHED)) {
        __builtin_prefetch(tni_slot_beyond(q, slot, 1), 1);
        __builtin_prefetch(tni_slot_beyond(q, slot, 4), 1);
    }
    pass_tail(q, c->position); /* its CAS is the fence that tni_ring_notify_item() needs */
    TNI_KILL_POINT("push_tail_passed");
    if (TNI_LIKELY(status == 0) && p->move && p->form == TNI_FORM_TENSOR)
        tni_tensor_forget(thread, p->tensor);
    if (p->block.id != 0)
        tni_announce_clear(thread);
    tni_thread_leave(thread);
    if (TNI_LIKELY(status == 0))
        tni_ring_notify_item(q);
    else
        tni_ring_notify_end(q); /* wake those that waited for this slot */
    return status;
}

int tni_ring_push(struct tni_queue *q, const struct tni_parcel *p)
{
    struct tni_object *object = q->handle.object;
    struct claimed c;

    if (TNI_UNLIKELY((atomic_load_explicit(&object->ended, memory_order_relaxed) &
                      TNI_QUEUE_ENDED) != 0))
        return fail_ended(q);
    struct tni_thread *thread = tni_thread_enter(q->handle.domain);
    if (p->block.id != 0)
        tni_announce(thread, p->block, 1);
    int status = claim(q, thread->number, &c.position);
    if (TNI_LIKELY(status == 0)) {
        c.slot = tni_slot_at(q, c.position);
        c.word = claim_word(q, thread, tni_position_empty(c.position));
        return push_claimed(q, thread, &c, p);
    }
    if (p->block.id != 0)
        tni_announce_clear(thread);
    tni_thread_leave(thread);
    return status;
}

int tni_ring_push_plain(struct tni_queue *q, tn_tensor *tensor, uint32_t view_bytes, bool move)
{
    struct tni_object *object = q->handle.object;
    struct claimed c = {.position = atomic_load_explicit(&object->tail, memory_order_relaxed)};
    c.slot = tni_slot_at(q, c.position);
    uint64_t word = atomic_load_explicit(&c.slot->word, memory_order_acquire);
    const tni_block block = tensor->storage->block;
    struct tni_thread *thread;
    if (TNI_UNLIKELY(word != tni_position_empty(c.position)) || TNI_UNLIKELY(block.id == 0) ||
        TNI_UNLIKELY((thread = tni_thread_enter_home(q->handle.domain)) == NULL))
        return 1;
    const struct tni_parcel p = {.form = TNI_FORM_TENSOR,
                                 .is_plain = true,
                                 .is_tensor = true,
                                 .move = move,
                                 .block = block,
                                 .tensor = tensor,
                                 .view_bytes = view_bytes};
    c.word = claim_word(q, thread, word);
    tni_announce(thread, block, 1);
    if (TNI_LIKELY(atomic_compare_exchange_strong(&c.slot->word, &word, c.word)))
        return push_claimed(q, thread, &c, &p);
    tni_announce_clear(thread);
    tni_thread_leave(thread);
    return 1;
}

bool tni_ring_has_room(struct tni_queue *q)
{
    uint64_t tail = atomic_load(&q->handle.object->tail);
    uint64_t word = atomic_load(&tni_slot_at(q, tail)->word);
    int32_t ahead = (int32_t)(tni_slot_round(word) - tni_position_round(tail));
    return ahead >= 0 ||
           (ahead == -1 && tni_slot_state(word) == TNI_SLOT_LEASED && has_room_behind(q, tail));
}
