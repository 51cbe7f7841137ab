/* SPDX-License-Identifier: Apache-2.0 */
/* ring: slots, and how they are claimed. Inside the room queue. */
#ifndef TNI_QUEUE_RING_H
#define TNI_QUEUE_RING_H

#include "queue/object.h"

struct tn_queue {
    struct tni_handle handle;
    uint8_t *slots; /* checked at open; the numbers beside it are private copies */
    uint32_t capacity;
    uint32_t slot_bytes;
    uint32_t room_bytes; /* for view and bytes in a slot */
    uint32_t policy;
};

/* What goes into a slot. */
struct tni_parcel {
    uint8_t form;   /* TNI_FORM_* */
    bool is_plain;  /* FORM_TENSOR: tni_tensor_is_plain() */
    bool move;      /* the block's local reference goes along */
    bool is_tensor; /* the message is one tensor and nothing else */
    tni_block block;
    tn_tensor *tensor; /* FORM_TENSOR: encoded into the slot; with `move`, it ends then */
    struct tni_attributes *held; /* of `tensor`, since it was measured */
    uint32_t view_bytes;
    const void *bytes;
    uint32_t bytes_count;
};

/* A slot in our hands: TAKEN, or LEASED. */
struct tni_taken {
    struct tni_slot *slot;
    uint64_t word;
    uint64_t position;
    tni_block block; /* what it named when it was taken, and there is; 0: none */
    tni_block named; /* whether there is one or not */
};

static inline uint32_t tni_slot_round(uint64_t word) { return (uint32_t)(word >> 32); }
static inline uint32_t tni_slot_state(uint64_t word) { return (uint32_t)(word >> 24) & 0xff; }
static inline uint32_t tni_slot_seat(uint64_t word) { return (uint32_t)(word >> 8) & 0xffff; }
static inline uint32_t tni_slot_tag(uint64_t word) { return (uint32_t)word & 0xff; }
static inline uint64_t tni_slot_word(uint32_t round, uint32_t state, uint32_t seat,
                                     uint32_t tag)
{
    return (uint64_t)round << 32 | (uint64_t)state << 24 | (uint64_t)(seat & 0xffff) << 8 |
           (tag & 0xff);
}

/* ---- positions: {round:32, index of the slot:32} ------------------------------------------
 */

static inline uint32_t tni_position_round(uint64_t position)
{
    return (uint32_t)(position >> 32);
}
static inline uint32_t tni_position_index(uint64_t position) { return (uint32_t)position; }
static inline uint64_t tni_position(uint32_t round, uint32_t index)
{
    return (uint64_t)round << 32 | index;
}
/** The word of its slot before it is pushed to; and, but for {seat, thread}, once it is FULL.
 */
static inline uint64_t tni_position_empty(uint64_t position)
{
    return position - tni_position_index(position);
}
static inline uint64_t tni_position_full(uint64_t position)
{
    return tni_position_empty(position) | (uint64_t)TNI_SLOT_FULL << 24;
}
/** What noise made of a position leads to a slot all the same. */
static inline struct tni_slot *tni_slot_at(const struct tn_queue *q, uint64_t position)
{
    uint32_t index = tni_position_index(position);
    if (TNI_UNLIKELY(index >= q->capacity))
        index = 0;
    return (struct tni_slot *)(void *)(q->slots + (size_t)index * q->slot_bytes);
}

/* ---- one look, for who polls: false means that only a closer look can tell ----------------
 */

/** The slot at the head. */
struct tni_seen {
    uint64_t position, word;
};
static inline struct tni_seen tni_ring_see(const struct tn_queue *q)
{
    uint64_t head = atomic_load_explicit(&q->handle.object->head, memory_order_relaxed);
    return (struct tni_seen){
        head, atomic_load_explicit(&tni_slot_at(q, head)->word, memory_order_acquire)};
}
/** The slot at the head was not pushed to yet, and so none behind it was. */
static inline bool tni_ring_looks_empty(const struct tn_queue *q)
{
    struct tni_seen seen = tni_ring_see(q);
    return seen.word == tni_position_empty(seen.position);
}
/** The slot at the head is full, or its producer made it so while we looked a few times. */
bool tni_ring_sees_full(const struct tn_queue *q, struct tni_seen *ret_seen);

/** The slot at the tail is in use since the round before, and not leased. */
static inline bool tni_ring_looks_full(const struct tn_queue *q)
{
    uint64_t tail = atomic_load_explicit(&q->handle.object->tail, memory_order_relaxed);
    uint64_t word = atomic_load_explicit(&tni_slot_at(q, tail)->word, memory_order_acquire);
    return (int32_t)(tni_slot_round(word) - tni_position_round(tail)) < 0 &&
           tni_slot_state(word) != TNI_SLOT_LEASED;
}

/**
 * Put a parcel into the next slot. TN_ERR_TIMED_OUT: full; TN_ERR_CLOSED; TN_ERR_FULL: too many
 * references.
 */
int tni_ring_push(struct tn_queue *queue, const struct tni_parcel *parcel);

/**
 * The same of a tensor that tni_tensor_is_plain(), and has room in a slot, into the slot at the
 * tail; it ends then if it moves. pre: with `move`, it is sole
 * @return 0, TN_ERR_FULL; 1: ask tni_ring_push()
 */
int tni_ring_push_plain(struct tn_queue *queue, tn_tensor *tensor, bool move);

/** At most the messages in the ring, those in the hands of a push or a pop too; 0: none. */
uint32_t tni_ring_count(const struct tn_queue *queue);

/**
 * Take the oldest message: its slot is TAKEN and its block announced by `thread`.
 * @return 0, or TN_ERR_TIMED_OUT: empty
 */
int tni_ring_take(struct tn_queue *queue, struct tni_thread *thread,
                  struct tni_taken *ret_taken);
/**
 * The same, if that message is one tensor and nothing else. TN_ERR_INVALID: it is not. Such a
 * message stays FULL all the time: a slot that is TAKEN for a moment is stepped over by others,
 * who would then get later messages of its producer first.
 */
int tni_ring_take_tensor(struct tn_queue *queue, struct tni_thread *thread,
                         struct tni_taken *ret_taken);

/**
 * The same of a tensor that was seen to be FULL at the head. @return whether it is taken, with
 * this thread's record in hand; else ask tni_ring_take_tensor()
 */
bool tni_ring_take_head(struct tn_queue *queue, struct tni_seen seen,
                        struct tni_thread **ret_thread, struct tni_taken *ret_taken);

/** The message is ours: the slot is empty, its reference a local one of this process. */
void tni_ring_take_end(struct tn_queue *queue, struct tni_thread *thread,
                       const struct tni_taken *taken);
/**
 * The message stays in its slot, leased to this process, which gets a reference of its own.
 * @return 0 or TN_ERR_FULL
 */
int tni_ring_lease(struct tn_queue *queue, struct tni_thread *thread,
                   const struct tni_taken *taken);
/** Put it back as it was. */
void tni_ring_untake(struct tn_queue *queue, struct tni_thread *thread,
                     const struct tni_taken *taken);
/** Throw it away. */
void tni_ring_discard(struct tn_queue *queue, struct tni_thread *thread,
                      const struct tni_taken *taken);

/**
 * End a lease: acknowledged, or given back to be delivered again. TN_ERR_STALE: not leased to
 * us.
 */
int tni_ring_lease_end(struct tn_queue *queue, uint64_t lease, bool give_back);

/** Whether a message is out with another process, and may come back. */
bool tni_ring_is_leased(const struct tn_queue *queue);

/** Whether a pop would find something now. */
bool tni_ring_is_ready(struct tn_queue *queue);
/** Whether a push would find a slot now. */
bool tni_ring_has_room(struct tn_queue *queue);

#endif
