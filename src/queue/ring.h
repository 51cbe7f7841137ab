/* SPDX-License-Identifier: Apache-2.0 */
/* ring: slots, and how they are claimed. Inside the room queue. */
#ifndef TNI_QUEUE_RING_H
#define TNI_QUEUE_RING_H

#include "queue/object.h"

struct tn_queue {
    struct tni_handle handle;
    uint8_t *slots; /* checked at open; the numbers beside it are private copies */
    uint32_t capacity;
    uint32_t mask;
    uint32_t shift;
    uint32_t slot_bytes;
    uint32_t room_bytes; /* for view and bytes in a slot */
    uint32_t policy;
};

/* What goes into a slot. */
struct tni_parcel {
    uint8_t form; /* TNI_FORM_* */
    bool move;    /* the block's local reference goes along */
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
    tni_block block; /* what it named when it was taken; 0: none */
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

/**
 * Put a parcel into the next slot. TN_ERR_TIMED_OUT: full; TN_ERR_CLOSED; TN_ERR_FULL: too many
 * references.
 */
int tni_ring_push(struct tn_queue *queue, const struct tni_parcel *parcel);

/** At most the messages in the ring, those in the hands of a push or a pop too; 0: none. */
uint32_t tni_ring_count(const struct tn_queue *queue);

/**
 * Take the oldest message: its slot is TAKEN and its block announced by `thread`.
 * @return 0, or TN_ERR_TIMED_OUT: empty
 */
int tni_ring_take(struct tn_queue *queue, struct tni_thread *thread,
                  struct tni_taken *ret_taken);

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
