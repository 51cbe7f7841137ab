/* SPDX-License-Identifier: Apache-2.0 */
/* ring: slots, and how they are claimed. Inside the room queue. */
#ifndef TNI_QUEUE_RING_H
#define TNI_QUEUE_RING_H

#include "queue/queue.h"

struct tni_queue {
    struct tn_object handle;
    uint8_t *slots; /* checked at open; the numbers beside it are private copies */
    uint32_t capacity;
    uint32_t slot_bytes;
    uint32_t room_bytes; /* for view and bytes in a slot */
    uint32_t policy;
    _Atomic uint32_t short_looks[2]; /* of pops, of pushes: in a row that ended at once */
};

/** pre: `handle` is a queue's, or NULL, or nothing but its struct tn_object is looked at. */
static inline struct tni_queue *tni_queue_of(const tn_queue *handle)
{
    return (struct tni_queue *)(uintptr_t)handle;
}

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

/* A message in its slot: FULL as it was found, or TAKEN or LEASED and in our hands. */
struct tni_taken {
    struct tni_slot *slot;
    uint64_t word;
    uint64_t position;
    tni_block block; /* what it named when it was found, and there is; 0: none */
    tni_block named; /* whether there is one or not */
    uint32_t bytes_count;
    uint64_t form; /* tni_slot_make_form(); its attempt is that of a former taker, perhaps */
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
/** The block that the slot names: a number from shared memory, to be checked before use. */
static inline tni_block tni_slot_block(const struct tni_slot *slot)
{
    return (tni_block){tni_content_block(TNI_LOOK(*tni_slot_content(slot)))};
}
/** What noise made of a position leads to a slot all the same. */
static inline struct tni_slot *tni_slot_at(const struct tni_queue *q, uint64_t position)
{
    uint32_t index = tni_position_index(position);
    if (TNI_UNLIKELY(index >= q->capacity))
        index = 0;
    return (struct tni_slot *)(void *)(q->slots + (size_t)index * q->slot_bytes);
}

/* Where a slot further on is, for a hint to the processor: perhaps beyond the last one. */
static inline const void *tni_slot_beyond(const struct tni_queue *q,
                                          const struct tni_slot *slot, uint32_t count)
{
    return (const void *)((uintptr_t)slot + (uintptr_t)count * q->slot_bytes);
}

enum { TNI_PUSHED = 1, TNI_POPPED = 2 };

/*
 * Whether this thread's last operation on any ring was the same one. Then it will likely use
 * the next slots as well, and the caller prefetches their cache lines. Between two processes
 * that answer each other a prefetch takes lines from the process that is about to write them: a
 * round trip took half as long again (docs/decisions/0052).
 */
static inline bool tni_thread_does_again(struct tni_thread *thread, uint8_t what)
{
    bool again = thread->last_on_ring == what;
    thread->last_on_ring = what;
    return again;
}

/* Looks that find another thing each time: others are at work, or it is noise. */
enum { TNI_MOST_TRIES = 10000 };

/* ---- one look, for who polls: false means that only a closer look can tell ----------------
 */

/** The slot at the head. */
struct tni_seen {
    uint64_t position, word;
};
static inline struct tni_seen tni_ring_see(const struct tni_queue *q)
{
    uint64_t head = atomic_load_explicit(&q->handle.object->head, memory_order_relaxed);
    return (struct tni_seen){
        head, atomic_load_explicit(&tni_slot_at(q, head)->word, memory_order_acquire)};
}
/** The slot at the head was not pushed to yet, and so none behind it was. */
static inline bool tni_ring_looks_empty(const struct tni_queue *q)
{
    struct tni_seen seen = tni_ring_see(q);
    return seen.word == tni_position_empty(seen.position);
}
/**
 * Whether the slot at the head is FULL. While a producer is filling it, read it again a few
 * times. *ret_seen is the last reading.
 */
bool tni_ring_sees_full(const struct tni_queue *q, struct tni_seen *ret_seen);

/** The slot at the tail is in use since the round before, and not leased. */
static inline bool tni_ring_looks_full(const struct tni_queue *q)
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
int tni_ring_push(struct tni_queue *queue, const struct tni_parcel *parcel);

/**
 * The same of a tensor that tni_tensor_is_plain(), and has room in a slot, into the slot at the
 * tail; it ends then if it moves. pre: with `move`, it is sole
 * @param view_bytes  tni_tensor_view_bytes()
 * @return 0, TN_ERR_FULL; 1: ask tni_ring_push()
 */
int tni_ring_push_plain(struct tni_queue *queue, tn_tensor *tensor, uint32_t view_bytes,
                        bool move);

/** At most the messages in the ring, those in the hands of a push or a pop too; 0: none. */
uint32_t tni_ring_count(const struct tni_queue *queue);

/*
 * A pop finds a message, reads it and obtains all that it needs, and takes the message last:
 * nothing that fails comes after tni_ring_take(). A message that is taken and given back would
 * be stepped over by others meanwhile, who would get later messages of its producer first.
 *
 * What is read before the taking may be noise, as others may take and replace the message. It
 * was the message if tni_ring_take() or tni_ring_is_still() says yes afterwards: the content of
 * a slot, and of the blocks that it names, stands still while its word stays FULL in one round.
 */

/** Find the oldest message. @return 0, or TN_ERR_TIMED_OUT: empty */
int tni_ring_find(struct tni_queue *queue, struct tni_taken *ret_found);
/** Whether nobody has taken the message since it was found. */
bool tni_ring_is_still(const struct tni_taken *found);
/**
 * Take what was found: its slot is TAKEN and its block announced by `thread`. False: others
 * were quicker, and nothing is announced.
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

/** The message is ours: the slot is empty, its reference a local one of this process. */
void tni_ring_take_end(struct tni_queue *queue, struct tni_thread *thread,
                       const struct tni_taken *taken);
/**
 * Pop, of a queue without leases, the message that was seen at the head, if it is one tensor
 * like the one that ended last in this thread's record. False: only a general pop can tell.
 */
bool tni_ring_pop_plain(struct tni_queue *queue, struct tni_seen seen, tn_tensor **ret_tensor);

/**
 * The message stays in its slot, leased to this process, which gets a reference of its own.
 * @return 0, or TN_ERR_FULL: as of tni_ref_pin(), which only noise brings about
 */
int tni_ring_lease(struct tni_queue *queue, struct tni_thread *thread,
                   const struct tni_taken *taken);
/** Throw it away. */
void tni_ring_discard(struct tni_queue *queue, struct tni_thread *thread,
                      const struct tni_taken *taken);

/**
 * End a lease: acknowledged, or given back to be delivered again. TN_ERR_STALE: not leased to
 * us.
 */
int tni_ring_lease_end(struct tni_queue *queue, uint64_t lease, bool give_back);

/**
 * Whether there may be a message yet: one that is in the queue or in the middle of a push, or
 * is out with another process and may come back.
 */
bool tni_ring_has_more(const struct tni_queue *queue);

/** Whether a pop would find something now. */
bool tni_ring_is_ready(struct tni_queue *queue);
/** Whether a push would find a slot now. */
bool tni_ring_has_room(struct tni_queue *queue);

extern const struct tni_kind tni_queue_kind;
/* What the queue does for the table of objects: see struct tni_kind. */
void tni_ring_reclaim_seat(struct tn_domain *domain, struct tni_object *object, uint32_t seat);
void tni_ring_end(struct tn_domain *domain, struct tni_object *object);
uint64_t tni_ring_count_records(const struct tni_segment *segment,
                                const struct tni_object *object, tni_block block);
void tni_ring_for_each_record(const struct tni_segment *segment,
                              const struct tni_object *object, tni_record_fn *each,
                              void *context);

#endif
