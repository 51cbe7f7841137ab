/* SPDX-License-Identifier: Apache-2.0 */
/*
 * queue: bounded queues of messages; and the list of all kinds of objects.
 */
#ifndef TNI_QUEUE_H
#define TNI_QUEUE_H

#include <tenon/queue.h>

#include "sync/sync.h"
#include "tensor/tensor.h"

/** Register all kinds of objects. A process that joins a domain calls this before all else. */
void tni_queue_set_kinds(struct tn_domain *domain);
/** As tni_queue_set_kinds(), and register the fork hook of the room object. */
void tni_queue_init(struct tn_domain *domain);

/**
 * Pop as tn_queue_pop() does, for a caller that must learn of each message that was pushed,
 * even if the tensors of the message cannot be had any more.
 *
 * @param ret_lost  0; or the TN_ERR_* with which tn_queue_pop() would drop the message, and
 * whose sentence is this thread's. Then `ret_message` has the bytes and no tensors, and is
 * leased as it would be with them. If not even the bytes can be read, it is empty and not
 * leased
 * @return as tn_queue_pop(), except that 0 stands for a lost message, too
 */
int tni_queue_pop_bytes(tn_queue *queue, uint64_t deadline_ns, tn_message *ret_message,
                        int *ret_lost);

/**
 * Copy the bytes of a popped message to private memory, and release the shared memory in which
 * they lie. The tensors stay. On TN_ERR_NO_MEMORY (private) the message is as it was.
 * @return 1: shared memory was released; 0: there was none; or TN_ERR_NO_MEMORY
 */
int tni_message_detach(tn_message *message);

/* ---- for the reaper --------------------------------------------------------------------- */

/** How many records name a block: those in slots, and those of objects for their rings. */
uint64_t tni_queue_count_records(const struct tni_segment *segment, tni_block block);
void tni_queue_for_each_record(const struct tni_segment *segment, tni_record_fn *each,
                               void *context);

/* ---- for inspect ------------------------------------------------------------------------- */

struct tni_queue_figures {
    uint64_t pushed; /* messages since the queue was made */
    uint32_t full, leased, claimed;
    uint32_t redelivered; /* of the full and leased ones, delivered before */
};
void tni_queue_figures(const struct tni_segment *segment, uint32_t object,
                       struct tni_queue_figures *ret_figures);
/** Slots whose owner's seat is free or does not exist. Only damage makes one. */
uint32_t tni_queue_count_orphaned(const struct tni_segment *segment, uint32_t object);

#endif
