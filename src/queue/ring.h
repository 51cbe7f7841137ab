/* SPDX-License-Identifier: Apache-2.0 */
/* ring: the slots, and how processes claim them. Inside the room queue. */
#ifndef TNI_QUEUE_RING_H
#define TNI_QUEUE_RING_H

#include "queue/queue.h"

struct tni_queue {
    struct tn_object handle;
    /* Private copies of the object's numbers, checked when the handle was made. */
    uint8_t *slots;
    uint32_t capacity;
    uint32_t slot_bytes;
    uint32_t room_bytes; /* of a slot, for view and bytes */
    uint32_t policy;
    tn_device device; /* of the stream that messages follow; type 0: they follow none */
    void *stream;
    _Atomic uint32_t
        short_polls[2]; /* by is_push: how many polls in a row were short, see turn.c */
};

/** pre: `handle` is a queue's or NULL; or the caller uses only its struct tn_object. */
static inline struct tni_queue *tni_queue_of(const tn_queue *handle)
{
    return (struct tni_queue *)(uintptr_t)handle;
}

/* What a push writes into a slot. */
struct tni_parcel {
    uint8_t form;   /* TNI_FORM_* */
    bool is_plain;  /* FORM_TENSOR: tni_tensor_is_plain() */
    bool move;      /* the caller's reference to the block moves into the slot */
    bool is_tensor; /* the message is one tensor and nothing else */
    tni_block block;
    tn_tensor *tensor;           /* FORM_TENSOR: to be encoded; the push ends it if `move` */
    struct tni_attributes *held; /* of `tensor`; held since view_bytes was computed */
    uint32_t view_bytes;
    const void *bytes;
    uint32_t bytes_count;
};

/* A message in its slot: FULL when a pop found it, then TAKEN or LEASED by this process. */
struct tni_taken {
    struct tni_slot *slot;
    uint64_t word;
    uint64_t position;
    tni_block block; /* that the slot named when the message was found; 0: none */
    tni_block named; /* the same number, unchecked */
    uint32_t bytes_count;
    uint64_t form; /* as of tni_slot_make_form(); its attempt may be out of date */
};

/* A slot's content and form (layout/words.h), each read and written as one word. */
typedef uint64_t __attribute__((may_alias)) tni_slot_half;
static inline tni_slot_half *tni_slot_content(const struct tni_slot *slot)
{
    return (tni_slot_half *)((uintptr_t)slot + offsetof(struct tni_slot, block));
}
static inline tni_slot_half *tni_slot_form(const struct tni_slot *slot)
{
    return (tni_slot_half *)((uintptr_t)slot + offsetof(struct tni_slot, view_bytes));
}
/** The block that the slot names, unchecked. */
static inline tni_block tni_slot_block(const struct tni_slot *slot)
{
    return (tni_block){tni_content_block(TNI_LOOK(*tni_slot_content(slot)))};
}
/** The slot of a position; of a damaged position, the first slot. */
static inline struct tni_slot *tni_slot_at(const struct tni_queue *q, uint64_t position)
{
    uint32_t index = tni_position_index(position);
    if (TNI_UNLIKELY(index >= q->capacity))
        index = 0;
    return (struct tni_slot *)(void *)(q->slots + (size_t)index * q->slot_bytes);
}

/* Address of the slot `count` slots on, perhaps beyond the last one: only for prefetching. */
static inline const void *tni_slot_beyond(const struct tni_queue *q,
                                          const struct tni_slot *slot, uint32_t count)
{
    return (const void *)((uintptr_t)slot + (uintptr_t)count * q->slot_bytes);
}

enum { TNI_PUSHED = 1, TNI_POPPED = 2 };

/*
 * Whether this thread's last operation on any ring was the same one. If so, the thread will
 * likely use the next slots as well, and the caller prefetches their cache lines. Between two
 * processes that answer each other, a prefetch takes lines from the process that is about to
 * write them: a round trip took half as long again (docs/decisions/0052).
 */
static inline bool tni_thread_does_again(struct tni_thread *thread, uint8_t what)
{
    bool again = thread->last_on_ring == what;
    thread->last_on_ring = what;
    return again;
}

/* Limit on retries: more mean that the memory is damaged, or that others are very busy. */
enum { TNI_MOST_TRIES = 10000 };

/* ---- one quick check. False: only a full scan of the ring can tell ---------------------- */

/** The head, and the word of its slot. */
struct tni_seen {
    uint64_t position, word;
};
static inline struct tni_seen tni_ring_see(const struct tni_queue *q)
{
    uint64_t head = atomic_load_explicit(&q->handle.object->head, memory_order_relaxed);
    return (struct tni_seen){
        head, atomic_load_explicit(&tni_slot_at(q, head)->word, memory_order_acquire)};
}
/** Whether the slot at the head is EMPTY; then all slots after it are EMPTY, too. */
static inline bool tni_ring_looks_empty(const struct tni_queue *q)
{
    struct tni_seen seen = tni_ring_see(q);
    return seen.word == tni_position_empty(seen.position);
}
/**
 * Whether the slot at the head is FULL. If a producer is filling it, read it again a few times.
 * @param ret_seen  the last reading
 */
bool tni_ring_sees_full(const struct tni_queue *q, struct tni_seen *ret_seen);

/** Whether the slot at the tail is still in use for the round before, and not leased. */
static inline bool tni_ring_looks_full(const struct tni_queue *q)
{
    uint64_t tail = atomic_load_explicit(&q->handle.object->tail, memory_order_relaxed);
    uint64_t word = atomic_load_explicit(&tni_slot_at(q, tail)->word, memory_order_acquire);
    return (int32_t)(tni_slot_round(word) - tni_position_round(tail)) < 0 &&
           tni_slot_state(word) != TNI_SLOT_LEASED;
}

/**
 * Push a parcel into the next slot. TN_ERR_TIMED_OUT: the ring is full; TN_ERR_CLOSED: the
 * queue was ended; TN_ERR_FULL: the block has too many references.
 */
int tni_ring_push(struct tni_queue *queue, const struct tni_parcel *parcel);

/**
 * Push a tensor into the slot at the tail. pre: tni_tensor_is_plain(), and its view fits in a
 * slot; with `move` this process has no other reference. With `move` the push ends the tensor.
 * @param view_bytes  tni_tensor_view_bytes()
 * @return 0; TN_ERR_FULL; 1: not done, use tni_ring_push()
 */
int tni_ring_push_plain(struct tni_queue *queue, tn_tensor *tensor, uint32_t view_bytes,
                        bool move);

/**
 * The number of messages in the ring, with those that a push or pop is changing. It may be
 * too high. 0: there are none.
 */
uint32_t tni_ring_count(const struct tni_queue *queue);

/*
 * A pop finds a message, reads it, obtains all that it needs, and takes the message last: no
 * step after tni_ring_take() can fail. If a pop took a message and gave it back, other pops
 * would skip the message meanwhile, and get later messages of its producer first.
 *
 * What a pop reads before it takes the message may be garbage, because other processes may take
 * the message and push another. It was the message if tni_ring_take() or tni_ring_is_still()
 * returns true afterwards: while the word of a slot stays FULL in one round, the content of the
 * slot and of the blocks that it names does not change.
 */

/** Find the oldest message. @return 0, or TN_ERR_TIMED_OUT: empty */
int tni_ring_find(struct tni_queue *queue, struct tni_taken *ret_found);
/** Whether no process has taken the message since it was found. */
bool tni_ring_is_still(const struct tni_taken *found);
/**
 * Take the message that was found. Its slot is TAKEN then, and `thread` announces its block.
 * False: another process was faster, and `thread` announces nothing.
 */
static inline bool tni_ring_take(struct tni_queue *q, struct tni_thread *thread,
                                 struct tni_taken *found)
{
    struct tn_domain *d = q->handle.domain;
    tni_block block = found->block;
    bool is_next = tni_thread_does_again(thread, TNI_POPPED);
    if (TNI_LIKELY(block.id != 0)) {
        if (is_next)
            __builtin_prefetch(tni_word_at(&d->segment, block), 1);
        tni_announce(thread, block, 1);
    }
    uint64_t seen = found->word;
    uint64_t mine =
        tni_slot_word(tni_slot_round(seen), TNI_SLOT_TAKEN, d->seat, thread->number);
    if (TNI_UNLIKELY(!atomic_compare_exchange_strong(&found->slot->word, &seen, mine))) {
        if (block.id != 0)
            tni_announce_clear(thread);
        return false;
    }
    TNI_KILL_POINT("pop_taken");
    found->word = mine;
    if (is_next)
        __builtin_prefetch(tni_slot_beyond(q, found->slot, 2), 0);
    return true;
}

/** Complete a take: empty the slot, and turn its reference into a local one of this process. */
void tni_ring_take_end(struct tni_queue *queue, struct tni_thread *thread,
                       const struct tni_taken *taken);
/**
 * Pop the message that was seen at the head, if it is one tensor like the one that this thread
 * ended last. pre: the queue has no leases. False: not done, use tni_ring_find().
 */
bool tni_ring_pop_plain(struct tni_queue *queue, struct tni_seen seen, tn_tensor **ret_tensor);

/**
 * Complete a take as a lease: the message stays in its slot, and this process gets a reference
 * of its own. @return 0, or TN_ERR_FULL: as of tni_ref_pin(); only a damaged count causes this
 */
int tni_ring_lease(struct tni_queue *queue, struct tni_thread *thread,
                   const struct tni_taken *taken);
/** Complete a take by dropping the message. */
void tni_ring_discard(struct tni_queue *queue, struct tni_thread *thread,
                      const struct tni_taken *taken);

/**
 * End a lease: acknowledge it, or give it back to be delivered again. TN_ERR_STALE: this
 * process has no such lease.
 */
int tni_ring_lease_end(struct tni_queue *queue, uint64_t lease, bool give_back);

/**
 * Whether a message may still come without another push: one is in the queue, is being pushed,
 * or is taken or leased by another process and may come back.
 */
bool tni_ring_has_more(const struct tni_queue *queue);

/** Whether a pop would find something now. */
bool tni_ring_is_ready(struct tni_queue *queue);
/** Whether a push would find a slot now. */
bool tni_ring_has_room(struct tni_queue *queue);

/* Functions of tni_queue_kind; see struct tni_kind. */
void tni_ring_reclaim_seat(struct tn_domain *domain, struct tni_object *object, uint32_t seat);
void tni_ring_end(struct tn_domain *domain, struct tni_object *object);
uint64_t tni_ring_count_records(const struct tni_segment *segment,
                                const struct tni_object *object, tni_block block);
void tni_ring_for_each_record(const struct tni_segment *segment,
                              const struct tni_object *object, tni_record_fn *each,
                              void *context);

#endif
