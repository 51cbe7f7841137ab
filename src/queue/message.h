/* SPDX-License-Identifier: Apache-2.0 */
/* message: from tn_message to what fits in a slot, and back. Inside the room queue. */
#ifndef TNI_QUEUE_MESSAGE_H
#define TNI_QUEUE_MESSAGE_H

#include "queue/ring.h"

/**
 * Make a parcel. Tensors stay the caller's; a message block is made if the slot has no room.
 * @param move  the tensor's reference shall go along; the parcel says whether it can
 */
int tni_parcel_pack(struct tni_queue *queue, const tn_message *message, bool move,
                    uint64_t deadline_ns, struct tni_parcel *ret_parcel);
/** After the push: end what the parcel holds, and the moved tensors. */
void tni_parcel_end(struct tni_queue *queue, const struct tni_parcel *parcel,
                    const tn_message *message, bool is_pushed, bool move);

/* What tn_message.internal keeps of a popped message. */
enum { TNI_OWNS_DOMAIN, TNI_OWNS_BLOCK, TNI_OWNS_BUFFER };

/* What a pop is to give. */
struct tni_wanted {
    tn_message *message; /* one of the two */
    tn_tensor **tensor;  /* of a message that is one tensor and nothing else */
    int *lost;           /* as of tni_queue_pop_bytes(); NULL: what is lost is thrown away */
    bool is_next; /* of several, after the first: what is lost stays, for who can be told */
};

/**
 * Take the oldest message, or lease it, by the queue's policy. One that cannot be had, for want
 * of memory or because it is not one tensor as it should be, stays in the queue all the time.
 * @return 0, TN_ERR_TIMED_OUT (there is none), or as tn_queue_pop()
 */
int tni_parcel_pop(struct tni_queue *queue, struct tni_thread *thread,
                   const struct tni_wanted *wanted);

#endif
