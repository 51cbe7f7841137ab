/* SPDX-License-Identifier: Apache-2.0 */
/* turn: what pushes and pops share: their roles, and how they wait. Inside the room queue. */
#ifndef TNI_QUEUE_TURN_H
#define TNI_QUEUE_TURN_H

#include "queue/ring.h"

/** Check the handle, and take the role if this is the first call that needs it. */
int tni_queue_begin(struct tni_queue *queue, uint32_t role);

struct tni_turn {
    _Atomic uint32_t *word;
    int side; /* whose death ends the wait */
    tni_try_fn *attempt;
    void *context;
    bool (*has_more)(struct tni_queue *);
};

/* `object` is the queue's: read once before the ring, compilers read it once more after. */
static inline bool tni_queue_is_there(const struct tni_queue *q,
                                      const struct tni_object *object)
{
    return atomic_load_explicit(&object->word, memory_order_relaxed) == q->handle.word;
}

/*
 * A process has no roles before its first push or pop, in a child however that was made, and
 * after it left: who has none may not look at the ring.
 */
static inline bool tni_queue_has_role(const struct tni_queue *q, uint32_t role)
{
    return (atomic_load_explicit(q->handle.roles, memory_order_relaxed) & role) != 0;
}

/* Whether the object lives too: then there is nothing else that tni_queue_begin() would do or
 * say. */
static inline bool tni_queue_may_look(const struct tni_queue *q, uint32_t role)
{
    return tni_queue_has_role(q, role) && tni_queue_is_there(q, q->handle.object);
}

/*
 * Whether a call has nothing to say but that the queue is empty, or full. pre:
 * tni_queue_may_look(), or tni_queue_is_there()
 */
static inline bool tni_queue_has_no_news(const struct tni_queue *q,
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
    return tni_fail_plain(TN_ERR_TIMED_OUT, "not ready, and not waiting");
}

/**
 * Wait for a turn, and try. pre: one attempt was in vain
 * @return what the last attempt did, or as tni_object_wait()
 */
int tni_queue_wait_turn(struct tni_queue *queue, const struct tni_turn *turn,
                        uint64_t deadline_ns);

#endif
