/* SPDX-License-Identifier: Apache-2.0 */
/*
 * queue: bounded queues of messages; and the table of which kinds of objects there are.
 */
#ifndef TNI_QUEUE_H
#define TNI_QUEUE_H

#include <tenon/queue.h>

#include "sync/sync.h"
#include "tensor/tensor.h"

/** Tell the table of objects which kinds there are: first of all for each domain. */
void tni_queue_set_kinds(struct tn_domain *domain);
/** The same, and the fork hook of objects. */
void tni_queue_init(struct tn_domain *domain);

/**
 * Pop as tn_queue_pop() does, for who must learn of each message that was pushed, even if its
 * tensors cannot be had any more.
 *
 * @param ret_lost  0; or the TN_ERR_* that tn_queue_pop() drops the message with, whose
 * sentence is this thread's: then `ret_message` has the bytes and no tensors, and is leased as
 * it would be with them. It is empty, and not leased, if not even its bytes can be read
 * @return as tn_queue_pop(), except that 0 stands for a lost message, too
 */
int tni_queue_pop_bytes(tn_queue *queue, uint64_t deadline_ns, tn_message *ret_message,
                        int *ret_lost);

/**
 * Give back the shared memory that the bytes of a popped message lie in: they are copied to
 * private memory. Its tensors stay. On TN_ERR_NO_MEMORY (private) it is as it was.
 * @return 1: memory was given back; 0: there was none; or TN_ERR_NO_MEMORY
 */
int tni_message_detach(tn_message *message);

/* ---- for the reaper --------------------------------------------------------------------- */

/** Records in slots and rings that name a block. */
uint64_t tni_queue_count_records(const struct tni_segment *segment, tni_block block);
void tni_queue_for_each_record(const struct tni_segment *segment, tni_record_fn *each,
                               void *context);

/* ---- for inspect ------------------------------------------------------------------------- */

struct tni_queue_figures {
    uint64_t pushed; /* messages since it was made */
    uint32_t full, leased, claimed;
    uint32_t redelivered; /* of those that are full or leased */
};
void tni_queue_figures(const struct tni_segment *segment, uint32_t object,
                       struct tni_queue_figures *ret_figures);
/** Slots that are owned by a seat in which nobody sits: none, but after damage. */
uint32_t tni_queue_count_strays(const struct tni_segment *segment, uint32_t object);

#endif
