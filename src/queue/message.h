/* SPDX-License-Identifier: Apache-2.0 */
/* message: pack a tn_message into what fits in a slot, and unpack it. Inside the room queue. */
#ifndef TNI_QUEUE_MESSAGE_H
#define TNI_QUEUE_MESSAGE_H

#include "queue/ring.h"

/**
 * Make a parcel of a message. The tensors stay the caller's. If the message does not fit in a
 * slot, this makes a message block.
 * @param move  the caller's reference to a tensor shall move into the slot; ret_parcel->move
 * says whether it can
 */
int tni_parcel_pack(struct tni_queue *queue, const tn_message *message, bool move,
                    uint64_t deadline_ns, struct tni_parcel *ret_parcel);
/** After the push: release what the parcel holds, and end the caller's tensors if they moved.
 */
void tni_parcel_end(struct tni_queue *queue, const struct tni_parcel *parcel,
                    const tn_message *message, bool is_pushed, bool move);

/* Indices of tn_message.internal, for a popped message. */
enum { TNI_OWNS_DOMAIN, TNI_OWNS_BLOCK, TNI_OWNS_BUFFER };

/* What a pop shall return. */
struct tni_wanted {
    tn_message *message; /* this or `tensor` is not NULL */
    tn_tensor **tensor;  /* of a message that is one tensor and nothing else */
    int *
        lost; /* where to report a lost message, as tni_queue_pop_bytes() does; NULL: drop it */
    bool is_next; /* a later message of a pop of several: leave a lost message */
};

/**
 * Take the oldest message, or lease it, by the queue's policy. A message stays in the queue if
 * there is no memory to receive it, or if `wanted` asks for one tensor and it is not one.
 * @return 0; TN_ERR_TIMED_OUT: the queue is empty; else as tn_queue_pop()
 */
int tni_parcel_pop(struct tni_queue *queue, struct tni_thread *thread,
                   const struct tni_wanted *wanted);

#endif
