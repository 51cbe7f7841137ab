/* SPDX-License-Identifier: Apache-2.0 */
/*
 * queue: bounded queues of messages; events, semaphores, locks, conditions, barriers. All are
 * objects: entries of one table in the control segment, found by name or number.
 */
#ifndef TNI_QUEUE_H
#define TNI_QUEUE_H

#include <tenon/queue.h>
#include <tenon/sync.h>

#include "tensor/tensor.h"

struct tni_object;

/** Fork hook: objects that the parent has open are open in the child. */
int tni_queue_init(struct tn_domain *domain);
/** Close what this process has open, at leave; no handle points at the domain from then on. */
void tni_queue_fini(struct tn_domain *domain);

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

/* ---- for the reaper: each is idempotent and resumable ------------------------------------ */

/**
 * Settle a dead seat in every object: slots it claimed, took or leased, locks, permits,
 * barriers; its bits; and wake everybody whose wait this may end. Waits end before memory is
 * reclaimed. Objects that nobody has open any more are ended.
 * @return 0, or TN_ERR_TIMED_OUT: the registry is in use; everything else is done, come again
 */
int tni_queue_settle_seat(struct tn_domain *domain, uint32_t seat);
/**
 * Recount the semaphores that dead threads were changing. Until the deadline, who is about to
 * change one of them waits. pre: the claim header->recount is ours.
 * @return 0, or TN_ERR_TIMED_OUT: the living are in the way, or the registry is in use
 */
int tni_queue_recount(struct tn_domain *domain, uint64_t deadline_ns);
/**
 * End the objects that their last opener closed while another process had the registry. Those
 * stay whose registry is in use now.
 */
void tni_queue_finish_unopened(struct tn_domain *domain);
/** Whether there may be any. */
bool tni_queue_has_suspects(const struct tni_segment *segment);
/**
 * End an object that nobody has open or that is half ended, and undo one that is half made by
 * nobody. TN_ERR_TIMED_OUT: the registry is in use.
 */
int tni_queue_finish(struct tn_domain *domain, uint32_t object);
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
struct tni_object_figures {
    uint32_t count;      /* permits; waiters at a barrier; 1 if set or held */
    uint32_t owner_seat; /* of a lock that is held; else TNI_NO_SEAT */
};
/** Of objects other than queues. */
void tni_object_figures(const struct tni_segment *segment, uint32_t object,
                        struct tni_object_figures *ret_figures);
/** "queue", "event", ...; NULL for none */
/** Whether a look for the object's name would come to it. */
bool tni_names_has(const struct tni_segment *segment, uint32_t object);
const char *tni_object_kind_name(uint32_t kind);

static inline uint32_t tni_object_kind(uint64_t word) { return (uint32_t)word & 0xff; }
static inline uint32_t tni_object_state(uint64_t word) { return (uint32_t)(word >> 8) & 0xff; }
static inline uint32_t tni_object_maker(uint64_t word)
{
    return (uint32_t)(word >> 16) & 0xffff;
}
static inline uint32_t tni_object_generation(uint64_t word) { return (uint32_t)(word >> 32); }
static inline uint64_t tni_object_word(uint32_t generation, uint32_t maker, uint32_t state,
                                       uint32_t kind)
{
    return (uint64_t)generation << 32 | (uint64_t)maker << 16 | (uint64_t)state << 8 | kind;
}

#endif
