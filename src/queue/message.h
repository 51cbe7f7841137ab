/* SPDX-License-Identifier: Apache-2.0 */
/* message: from tn_message to what fits in a slot, and back. Inside the room queue. */
#ifndef TNI_QUEUE_MESSAGE_H
#define TNI_QUEUE_MESSAGE_H

#include "queue/ring.h"

/**
 * Make a parcel. Tensors stay the caller's; a message block is made if the slot has no room.
 * @param move  the tensor's reference shall go along; the parcel says whether it can
 */
int tni_parcel_pack(struct tn_queue *queue, const tn_message *message, bool move,
                    uint64_t deadline_ns, struct tni_parcel *ret_parcel);
/** After the push: end what the parcel holds, and the moved tensors. */
void tni_parcel_end(struct tn_queue *queue, const struct tni_parcel *parcel,
                    const tn_message *message, bool is_pushed, bool move);

/**
 * Make a message of a taken slot and end the taking: taken or leased, by the queue's policy.
 * @param ret_lost  as of tni_queue_pop_bytes(); NULL: a message whose tensors are lost is
 * thrown away
 * @param keeps_lost  such a message goes back instead
 * @return 0, TN_ERR_NO_MEMORY (the message is back in the queue), TN_ERR_CORRUPT (thrown away)
 */
int tni_parcel_unpack(struct tn_queue *queue, struct tni_thread *thread,
                      const struct tni_taken *taken, tn_message *ret_message, int *ret_lost,
                      bool keeps_lost);

/**
 * The same for a slot that holds one tensor and nothing else. TN_ERR_INVALID: it does not; put
 * back.
 */
int tni_parcel_unpack_tensor(struct tn_queue *queue, struct tni_thread *thread,
                             const struct tni_taken *taken, tn_tensor **ret_tensor);

/**
 * Take one tensor, like the last one of this thread, from the head of the queue, as it was
 * seen.
 * @return 0, or as tni_parcel_unpack_tensor(); 1: there is no such message at the head
 */
int tni_parcel_pop_tensor(struct tn_queue *queue, struct tni_seen seen, tn_tensor **ret_tensor);

#endif
