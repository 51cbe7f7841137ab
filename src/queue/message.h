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
/**
 * The same of one tensor without attributes, in a slot. False: it is another kind of message;
 * ask tni_parcel_pack().
 */
static inline bool tni_parcel_pack_plain(struct tn_queue *queue, tn_tensor *tensor, bool move,
                                         struct tni_parcel *ret_parcel)
{
    if (TNI_UNLIKELY(tensor == NULL || tensor->storage->domain != queue->handle.domain ||
                     atomic_load_explicit(&tensor->attributes, memory_order_relaxed) != NULL))
        return false;
    size_t view_bytes = tni_tensor_view_bytes(tensor, NULL);
    *ret_parcel = (struct tni_parcel){.form = TNI_FORM_TENSOR,
                                      .move = move && tni_tensor_is_sole(tensor),
                                      .block = tensor->storage->block,
                                      .tensor = tensor,
                                      .view_bytes = (uint32_t)view_bytes};
    return view_bytes <= queue->room_bytes;
}
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

#endif
