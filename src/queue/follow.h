/* SPDX-License-Identifier: Apache-2.0 */
/* follow: messages that follow a stream. Inside the room queue. */
#ifndef TNI_QUEUE_FOLLOW_H
#define TNI_QUEUE_FOLLOW_H

#include "queue/ring.h"

/* pre: tni_queue_follows() of all three */
static inline bool tni_queue_follows(const struct tni_queue *q)
{
    return TNI_UNLIKELY(q->device.type != 0);
}
/** Before a push: record its tensors on the stream. Returns the errors of tn_tensor_record().
 */
int tni_queue_record_all(const struct tni_queue *queue, const tn_message *message);
/** Before a pop: TN_ERR_INVALID if the stream cannot wait. */
int tni_queue_check_stream(const struct tni_queue *queue);
/** After a pop: let the stream wait for the tensors. */
void tni_queue_await_all(const struct tni_queue *queue, tn_tensor *const *tensors,
                         uint32_t count);

#endif
