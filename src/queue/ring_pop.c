/* SPDX-License-Identifier: Apache-2.0 */
/* ring: take a message out of its slot, or lease it. The invariants are in ring.c. */
#include <string.h>

#include "queue/slots.h"
#include "wait/wait.h"

static inline void empty_slot(struct tni_queue *q, const struct tni_taken *taken)
{
    uint64_t empty = tni_slot_word(tni_slot_round(taken->word) + 1, TNI_SLOT_EMPTY, 0, 0);
    atomic_store_explicit(&taken->slot->word, empty, memory_order_release);
    TNI_KILL_POINT("pop_emptied");
    /* Its CAS is the fence before the reads of `room` and `ended`. */
    tni_ring_pass_emptied(q, taken->position);
    tni_wait_call(&q->handle.object->room);
    tni_ring_notify_end(q);
}

static inline __attribute__((always_inline)) void
take_end(struct tni_queue *q, struct tni_thread *thread, const struct tni_taken *taken)
{
    struct tn_domain *d = q->handle.domain;
    tni_block block = taken->block;
    if (block.id != 0)
        tni_ref_before_move(
            d, block); /* the CAS to TAKEN is the read-modify-write that it needs */
    empty_slot(q, taken);
    if (block.id != 0)
        tni_ref_adopt(d, thread, block);
}

void tni_ring_take_end(struct tni_queue *q, struct tni_thread *thread,
                       const struct tni_taken *taken)
{
    take_end(q, thread, taken);
}

/* Decode the message as one tensor like the last one. NULL: it is not; decode it in general. */
static inline tn_tensor *decode_alike(struct tni_queue *q, struct tni_thread *thread,
                                      const struct tni_taken *found)
{
    uint32_t view_bytes = tni_form_view_bytes(found->form);
    if (TNI_UNLIKELY(tni_form_form(found->form) != TNI_FORM_TENSOR ||
                     !tni_form_is_tensor(found->form) || view_bytes > q->room_bytes ||
                     found->block.id == 0))
        return NULL;
    return tni_tensor_decode_again(q->handle.domain, thread, found->block,
                                   (const void *)found->slot->data, view_bytes);
}

bool tni_ring_pop_plain(struct tni_queue *q, struct tni_seen seen, tn_tensor **ret_tensor)
{
    struct tni_thread *thread;
    if (TNI_UNLIKELY(!tni_seen_is_full(&seen)) ||
        TNI_UNLIKELY((thread = tni_thread_enter_home(q->handle.domain)) == NULL))
        return false;
    struct tni_taken at =
        tni_ring_as_found(q, tni_slot_at(q, seen.position), seen.position, seen.word);
    tn_tensor *tensor = decode_alike(q, thread, &at);
    bool is_taken = TNI_LIKELY(tensor != NULL) && TNI_LIKELY(tni_ring_take(q, thread, &at));
    if (TNI_LIKELY(is_taken)) {
        take_end(q, thread, &at);
        *ret_tensor = tensor;
    } else if (tensor != NULL) {
        tni_tensor_forget(thread, tensor);
    }
    tni_thread_leave(thread);
    return is_taken;
}

/*
 * A message that becomes a lease makes room if a slot after it is free: a push passes leases,
 * and does not pass messages.
 */
static void notify_room(struct tni_queue *q)
{
    _Atomic uint32_t *room = &q->handle.object->room;
    if (TNI_UNLIKELY((atomic_load(room) & TNI_WAIT_ARMED) != 0) && tni_ring_has_room(q))
        tni_wait_call(room);
}

int tni_ring_lease(struct tni_queue *q, struct tni_thread *thread,
                   const struct tni_taken *taken)
{
    struct tn_domain *d = q->handle.domain;
    tni_block block = taken->block;
    uint32_t round = tni_slot_round(taken->word);
    if (block.id != 0) {
        int status = tni_ref_pin(d, block);
        if (status != 0)
            return status;
        TNI_KILL_POINT("lease_pinned");
        tni_ref_adopt(d, thread, block);
    }
    /*
     * The tag is the round in which the lease began: it tells this lease from a later one of
     * the same slot, because a push may move the round of the word on.
     */
    atomic_store(&taken->slot->word, tni_slot_word(round, TNI_SLOT_LEASED, d->seat, round));
    TNI_KILL_POINT("lease_recorded");
    tni_ring_pass_head(q, taken->position, taken->position);
    tni_fence_after_modify();
    notify_room(q);
    return 0;
}

/* Make the slot FULL, and move the head back to it. pre: no other process moves its word on. */
static void refill(struct tni_object *object, struct tni_slot *slot, uint64_t word,
                   uint32_t index)
{
    uint32_t round = tni_slot_round(word);
    uint16_t producer = tni_form_producer(TNI_LOOK(*tni_slot_form(slot)));
    uint64_t full = tni_slot_word(round, TNI_SLOT_FULL, producer, 0);
    if (!atomic_compare_exchange_strong(&slot->word, &word, full))
        return;
    TNI_KILL_POINT("refill_full");
    tni_ring_retreat_head(object, tni_position(round, index));
}

void tni_ring_discard(struct tni_queue *q, struct tni_thread *thread,
                      const struct tni_taken *taken)
{
    tni_block block = taken->block;
    empty_slot(q, taken);
    if (block.id != 0)
        tni_ref_drop(q->handle.domain, thread, block);
}

/*
 * The owner of the slot does this, or its recoverer, and after the death of either the next
 * recoverer. The attempt must be counted once: RETURNING keeps the low bit of the count as it
 * was before, and a process that finds another bit there does not count again.
 */
void tni_ring_give_back(struct tni_object *object, struct tni_slot *slot, uint64_t word,
                        uint32_t index)
{
    uint64_t form = TNI_LOOK(*tni_slot_form(slot));
    while (tni_slot_state(word) != TNI_SLOT_RETURNING) {
        uint64_t returning = tni_slot_word(tni_slot_round(word), TNI_SLOT_RETURNING,
                                           tni_slot_seat(word), tni_form_attempt(form) & 1);
        if (atomic_compare_exchange_strong(&slot->word, &word, returning))
            word = returning;
        else if (tni_slot_state(word) != TNI_SLOT_LEASED) /* only the round moves: I2 */
            return;
    }
    TNI_KILL_POINT("slot_returning");
    form = TNI_LOOK(*tni_slot_form(slot));
    if ((tni_form_attempt(form) & 1) == tni_slot_tag(word)) {
        TNI_PUT(*tni_slot_form(slot), tni_form_attempted(form));
        atomic_fetch_add_explicit(&object->redeliveries, 1, memory_order_relaxed);
    }
    TNI_KILL_POINT("attempt_counted");
    refill(object, slot, word, index);
}

int tni_ring_lease_end(struct tni_queue *q, uint64_t lease, bool give_back)
{
    struct tn_domain *d = q->handle.domain;
    struct tni_slot *slot = tni_slot_at(q, lease);
    uint64_t word = atomic_load(&slot->word);

    if (tni_position_index(lease) >= q->capacity || tni_slot_state(word) != TNI_SLOT_LEASED ||
        tni_slot_seat(word) != d->seat ||
        tni_slot_tag(word) != (tni_position_round(lease) & 0xff))
        return tni_fail(TN_ERR_STALE,
                        "the message with the lease %llu is not leased to this process",
                        (unsigned long long)lease + 1);
    struct tni_thread *thread = tni_thread_enter(d);
    if (give_back) {
        tni_ring_give_back(q->handle.object, slot, word, tni_position_index(lease));
    } else {
        tni_block block = tni_slot_block(slot);
        bool has_block = tni_geometry_has_block(&d->segment.geometry, block.id);
        if (has_block)
            tni_announce(thread, block, 1);
        bool is_leased = true;
        while (is_leased && !atomic_compare_exchange_strong(
                                &slot->word, &word,
                                tni_slot_word(tni_slot_round(word) + 1, TNI_SLOT_EMPTY, 0, 0)))
            is_leased = tni_slot_state(word) == TNI_SLOT_LEASED; /* only the round moves: I2 */
        TNI_KILL_POINT("ack_emptied");
        if (has_block && is_leased)
            tni_ref_drop(d, thread, block);
        else if (has_block)
            tni_announce_clear(thread);
    }
    tni_thread_leave(thread);
    if (give_back)
        tni_ring_notify_item(q);
    else
        tni_wait_call(&q->handle.object->room);
    if (!give_back)
        tni_ring_notify_end(q);
    return 0;
}
