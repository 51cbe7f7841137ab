/* SPDX-License-Identifier: Apache-2.0 */
/* turn: what pushes and pops share: roles and waiting. Inside the room queue. */
#ifndef TNI_QUEUE_TURN_H
#define TNI_QUEUE_TURN_H

#include "queue/ring.h"

/** Check the handle, and set this process's role bit if this is its first call in that role. */
int tni_queue_begin(struct tni_queue *queue, uint32_t role);

/* What a push or pop waits for. */
struct tni_turn {
    _Atomic uint32_t *word; /* `room` or `items` */
    int side;               /* whose death ends the wait */
    tni_try_fn *attempt;
    void *context;
    bool (*has_more)(struct tni_queue *); /* whether another waiter could go on, too */
};

/*
 * Whether the object is still the queue. `object` is the queue's: a caller that has read the
 * pointer passes it on, because a compiler would read it again after other loads.
 */
static inline bool tni_queue_is_live(const struct tni_queue *q, const struct tni_object *object)
{
    return atomic_load_explicit(&object->word, memory_order_relaxed) == q->handle.word;
}

/*
 * A process without a role must not read the ring: it may have left the domain, or be a forked
 * child that has not pushed or popped yet.
 */
static inline bool tni_queue_has_role(const struct tni_queue *q, uint32_t role)
{
    return (atomic_load_explicit(q->handle.roles, memory_order_relaxed) & role) != 0;
}

/* If true, tni_queue_begin() would do nothing and return 0. */
static inline bool tni_queue_may_use_ring(const struct tni_queue *q, uint32_t role)
{
    return tni_queue_has_role(q, role) && tni_queue_is_live(q, q->handle.object);
}

/*
 * Whether a call that finds the queue full, or empty, has no end of the queue and no death to
 * report. pre: tni_queue_may_use_ring(), or tni_queue_is_live()
 */
static inline bool tni_queue_has_no_report(const struct tni_queue *q,
                                           const struct tni_object *object, uint32_t side)
{
    uint64_t death = atomic_load_explicit(&object->death[side], memory_order_relaxed);
    return (atomic_load_explicit(&object->ended, memory_order_relaxed) & TNI_QUEUE_ENDED) ==
               0 &&
           tni_death_count(death) ==
               atomic_load_explicit(&q->handle.deaths_seen[side], memory_order_relaxed);
}

static inline int tni_queue_fail_not_ready(void)
{
    return tni_fail_plain(TN_ERR_TIMED_OUT, "not ready, and the caller does not wait");
}

/**
 * Wait until an attempt does not return TN_ERR_TIMED_OUT. pre: one attempt returned it
 * @return as the last attempt, or as tni_object_wait()
 */
int tni_queue_wait_turn(struct tni_queue *queue, const struct tni_turn *turn,
                        uint64_t deadline_ns);

#endif
