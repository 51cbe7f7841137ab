/* SPDX-License-Identifier: Apache-2.0 */
/*
 * queue: bounded queues of messages, and messages in blocks of their own.
 */
#ifndef TNI_QUEUE_H
#define TNI_QUEUE_H

#include <tenon/queue.h>

#include "sync/sync.h"
#include "tensor/tensor.h"

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

/** Check a message that a caller gives. @return 0, TN_ERR_INVALID */
int tni_message_check(const struct tn_domain *domain, const tn_message *message);

/* ---- messages in a message block of their own: whole.c ----------------------------------- */

/** What the block has before the bytes of the message. */
struct tni_message_head {
    const void *bytes; /* [size_bytes] */
    size_t size_bytes;
};
/**
 * Put a message into a new message block, of which the caller gets a local reference.
 * @return 0, or as tn_queue_push() for lack of memory or a wrong message
 */
int tni_message_make(struct tn_domain *domain, const tn_message *message,
                     const struct tni_message_head *head, uint64_t deadline_ns,
                     tni_block *ret_block);
/* What a slot or a message block says of a message, checked. All pointers are into them. */
struct tni_contents {
    uint8_t form;
    tni_block block; /* 0: none */
    uint32_t tensor_count;
    const uint8_t *views; /* of a message block, or the slot's own */
    uint32_t views_bytes;
    const uint32_t *records; /* [tensor_count]; NULL: the slot's block */
    const void *bytes;
    uint64_t bytes_count;
    bool are_bytes_shared; /* they stay in the block, which the message holds */
};
/**
 * Read the head of a message block. Its bytes begin with the head that tni_message_make() got,
 * aligned to 8. The block may be damaged, or be another message by now, so the caller checks
 * what it reads of the bytes.
 * @return 0, TN_ERR_CORRUPT: the block is no message
 */
int tni_message_look(const struct tni_segment *segment, tni_block block,
                     struct tni_contents *ret_contents);
/** As tni_message_look(), for the bytes alone. @return NULL: the block is no message */
const void *tni_message_bytes(const struct tni_segment *segment, tni_block block,
                              uint64_t *ret_count);
/* A record: while its word is `seen`, it keeps a block. */
struct tni_still {
    const _Atomic uint64_t *word;
    uint64_t seen;
};
/** Whether all that the caller has read so far is of the block that the record still keeps. */
static inline bool tni_is_still(const struct tni_still *still)
{
    atomic_thread_fence(memory_order_acquire);
    return atomic_load_explicit(still->word, memory_order_relaxed) == still->seen;
}
/**
 * Make a tn_message of a message block that a record keeps. The tensors are held, and few bytes
 * copied; if there are many bytes, the message holds the block in which they lie.
 * @param skipped_bytes  of the head
 * @return 0; TN_ERR_TIMED_OUT: the record has changed; TN_ERR_CORRUPT, TN_ERR_NO_MEMORY
 *         (private), TN_ERR_FULL, or as tn_queue_pop() for tensors
 */
int tni_message_get(struct tn_domain *domain, tni_block block, uint64_t skipped_bytes,
                    const struct tni_still *still, tn_message *ret_message);
/**
 * As tni_message_get(), of a message that the caller has read.
 * @param contents  from tni_message_look(), after which the record still kept the block; or of
 *                  one tensor, whose block the record keeps
 */
int tni_message_get_read(struct tn_domain *domain, const struct tni_contents *contents,
                         uint64_t skipped_bytes, const struct tni_still *still,
                         tn_message *ret_message);

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

/* ---- for the list of kinds --------------------------------------------------------------- */

extern const struct tni_kind tni_queue_kind;

#endif
