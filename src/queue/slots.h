/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slots: what the files of the ring share. Inside the room queue. The invariants are in ring.c.
 */
#ifndef TNI_QUEUE_SLOTS_H
#define TNI_QUEUE_SLOTS_H

#include "queue/ring.h"

/* The position after a damaged one is one that exists, too. */
static inline uint64_t tni_position_after(uint64_t position, uint32_t capacity)
{
    return TNI_LIKELY(tni_position_index(position) + UINT64_C(1) < capacity)
               ? position + 1
               : tni_position(tni_position_round(position) + 1, 0);
}

/* How many positions `to` is after `from`; negative: before it. */
static inline int64_t tni_position_distance(uint64_t from, uint64_t to, uint32_t capacity)
{
    return (int64_t)(int32_t)(tni_position_round(to) - tni_position_round(from)) * capacity +
           tni_position_index(to) - tni_position_index(from);
}

static inline bool tni_ring_move_head(struct tni_queue *q, uint64_t from, uint64_t to)
{
    return atomic_compare_exchange_strong(&q->handle.object->head, &from, to);
}

/* I2. The slot is empty for the next round: no message comes to this position any more. */
static inline void tni_ring_pass_emptied(struct tni_queue *q, uint64_t position)
{
    tni_ring_move_head(q, position, tni_position_after(position, q->capacity));
}

static inline bool tni_seen_is_full(const struct tni_seen *seen)
{
    return seen->word >> 24 == tni_position_full(seen->position) >> 24;
}

static inline struct tni_taken tni_ring_as_found(const struct tni_queue *q,
                                                 struct tni_slot *slot, uint64_t position,
                                                 uint64_t word)
{
    uint64_t content = TNI_LOOK(*tni_slot_content(slot));
    tni_block named = {(uint32_t)content}, block = named;
    if (TNI_UNLIKELY(!tni_geometry_has_block(&q->handle.domain->segment.geometry, block.id)))
        block.id = 0;
    return (struct tni_taken){.slot = slot,
                              .word = word,
                              .position = position,
                              .block = block,
                              .named = named,
                              .bytes_count = tni_content_bytes(content),
                              .form = TNI_LOOK(*tni_slot_form(slot))};
}

/* Count a position that the tail passes without a push; figures subtract it. */
static inline void tni_ring_note_unpushed(struct tni_object *object)
{
    atomic_fetch_add_explicit(&object->unpushed, 1, memory_order_relaxed);
}

struct tni_ring_found {
    uint64_t position, word;
    bool has_skipped; /* a slot before it is CLAIMED or TAKEN */
};

/** Find the first FULL slot from the head on; false: there is none. */
bool tni_ring_scan(struct tni_queue *queue, bool may_pass, struct tni_ring_found *ret_found);
/**
 * I2. Move the head from `head` to after `position`; there is nothing to take in between. If
 * the lease at `position` became FULL again meanwhile, move the head back.
 */
void tni_ring_pass_head(struct tni_queue *queue, uint64_t head, uint64_t position);
/** Whether a slot's word says that a push to this position is complete. */
bool tni_ring_was_pushed_to(uint64_t word, uint64_t position);
/**
 * Make a slot FULL again and add one to its attempts. pre: the slot is TAKEN, LEASED or
 * RETURNING by this process, or by a dead one that this process reclaims.
 */
void tni_ring_give_back(struct tni_object *object, struct tni_slot *slot, uint64_t word,
                        uint32_t index);
/** Move the head back to a position, unless it is there or before it. */
void tni_ring_retreat_head(struct tni_object *object, uint64_t position);
/** A message was pushed: wake one sleeper, and ring the watchers. */
void tni_ring_notify_item(struct tni_queue *queue);
/** If no message can come any more and none is left, wake all waiters. */
void tni_ring_wake_all(struct tni_queue *queue);
static inline void tni_ring_notify_end(struct tni_queue *q)
{
    if (TNI_UNLIKELY(atomic_load(&q->handle.object->ended) != 0))
        tni_ring_wake_all(q);
}

#endif
