/* SPDX-License-Identifier: Apache-2.0 */
/* pop: the public pops, and the ends of leases. The invariants are in ring.c. */
#include "queue/follow.h"
#include "queue/message.h"
#include "queue/turn.h"
#include "wait/wait.h"

struct pop {
    struct tni_queue *queue;
    struct tni_wanted wanted;
};

/* `ended` is read before the ring: an ended queue is over only when no message is left. */
static int try_pop(void *context)
{
    const struct pop *p = context;
    struct tni_queue *q = p->queue;
    bool is_ended = (atomic_load_explicit(&q->handle.object->ended, memory_order_acquire) &
                     TNI_QUEUE_ENDED) != 0;
    struct tni_thread *thread = tni_thread_enter(q->handle.domain);
    int status = tni_parcel_pop(q, thread, &p->wanted);
    if (status == TN_ERR_TIMED_OUT && is_ended && !tni_ring_has_more(q))
        status = tni_fail(TN_ERR_CLOSED, "the queue " TNI_TITLE_FORMAT " was ended",
                          TNI_TITLE(q->handle.object->name));
    tni_thread_leave(thread);
    return status;
}

/* As try_pop(), for polling: it reads the slot at the head before it takes a thread record. */
static int poll_pop(void *context)
{
    const struct pop *p = context;
    const struct tni_object *object = p->queue->handle.object;
    if (tni_ring_looks_empty(p->queue) &&
        (atomic_load_explicit(&object->ended, memory_order_acquire) & TNI_QUEUE_ENDED) == 0)
        return TN_ERR_TIMED_OUT;
    return try_pop(context);
}

/* For a pop that does not wait: whether the queue is empty. False: unknown, try a pop. */
static inline bool has_nothing(const struct tni_queue *q, uint64_t deadline_ns)
{
    if (deadline_ns != 0 || q == NULL || !tni_queue_has_role(q, TN_CONSUMER))
        return false;
    const struct tni_object *object = q->handle.object;
    return tni_ring_looks_empty(q) && tni_queue_is_live(q, object) &&
           tni_queue_has_no_report(q, object, TNI_SIDE_PRODUCER);
}

/* What a pop that has succeeded returns comes in the order of the handle's stream. */
static void await(const struct pop *p)
{
    const struct tni_wanted *w = &p->wanted;
    if (w->tensor != NULL)
        tni_queue_await_all(p->queue, w->tensor, 1);
    else
        tni_queue_await_all(p->queue, w->message->tensors, w->message->tensor_count);
}

static int pop(struct pop *p, uint64_t deadline_ns)
{
    struct tni_queue *q = p->queue;
    int status = tni_queue_begin(q, TN_CONSUMER);
    if (TNI_UNLIKELY(status != 0))
        return status;
    if (q == NULL)
        __builtin_unreachable(); /* NULL is an error of tni_queue_begin() */
    if (TNI_UNLIKELY(p->wanted.tensor != NULL && q->policy == TN_QUEUE_LEASE))
        return tni_fail(TN_ERR_INVALID,
                        "the queue " TNI_TITLE_FORMAT
                        " has leases: its messages are popped by tn_queue_pop()",
                        TNI_TITLE(q->handle.object->name));
    if (tni_queue_follows(q) && (status = tni_queue_check_stream(q)) != 0)
        return status;
    status = try_pop(p);
    if (TNI_UNLIKELY(status == TN_ERR_TIMED_OUT))
        status =
            tni_queue_wait_turn(q,
                                &(struct tni_turn){&q->handle.object->items, TNI_SIDE_PRODUCER,
                                                   poll_pop, p, tni_ring_is_ready},
                                deadline_ns);
    if (tni_queue_follows(q) && status == 0)
        await(p);
    return status;
}

static __attribute__((noinline)) int pop_message(struct tni_queue *q, uint64_t deadline_ns,
                                                 tn_message *ret_message)
{
    return pop(&(struct pop){q, {.message = ret_message}}, deadline_ns);
}

int tn_queue_pop(tn_queue *queue, tn_deadline deadline, tn_message *ret_message)
{
    struct tni_queue *q = tni_queue_of(queue);
    if (ret_message == NULL)
        return tni_fail_null("ret_message");
    if (has_nothing(q, deadline.ns))
        return tni_queue_fail_not_ready();
    return pop_message(q, deadline.ns, ret_message);
}

int tni_queue_pop_bytes(tn_queue *queue, uint64_t deadline_ns, tn_message *ret_message,
                        int *ret_lost)
{
    *ret_lost = 0;
    return pop(&(struct pop){tni_queue_of(queue), {.message = ret_message, .lost = ret_lost}},
               deadline_ns);
}

static __attribute__((noinline)) int pop_tensor(struct tni_queue *q, uint64_t deadline_ns,
                                                tn_tensor **ret_tensor)
{
    return pop(&(struct pop){q, {.tensor = ret_tensor}}, deadline_ns);
}

/*
 * pre: the caller read the slot at the head, and the slot was not EMPTY. If a producer was
 * still filling it, read it once more before pop_tensor() searches the whole ring.
 */
static __attribute__((noinline)) int pop_seen_tensor(struct tni_queue *q, uint64_t deadline_ns,
                                                     tn_tensor **ret_tensor,
                                                     struct tni_seen seen)
{
    bool is_again = false;
    do {
        if (TNI_LIKELY(tni_ring_pop_plain(q, seen, ret_tensor)))
            return 0;
        is_again = !is_again;
    } while (is_again && tni_ring_sees_full(q, &seen));
    return pop_tensor(q, deadline_ns, ret_tensor);
}

int tn_queue_pop_tensor(tn_queue *queue, tn_deadline deadline, tn_tensor **ret_tensor)
{
    struct tni_queue *q = tni_queue_of(queue);
    if (q == NULL || ret_tensor == NULL)
        return tni_fail_null(q == NULL ? "the queue" : "ret_tensor");
    if (TNI_LIKELY(tni_queue_may_use_ring(q, TN_CONSUMER) && q->policy != TN_QUEUE_LEASE)) {
        struct tni_seen seen = tni_ring_see(q);
        if (TNI_LIKELY(seen.word != tni_position_empty(seen.position)))
            return pop_seen_tensor(q, deadline.ns, ret_tensor, seen);
        if (deadline.ns == 0 && tni_queue_has_no_report(q, q->handle.object, TNI_SIDE_PRODUCER))
            return tni_queue_fail_not_ready();
    }
    return pop_tensor(q, deadline.ns, ret_tensor);
}

/* A death, or a lost message, ends the list; the next call reports it. */
static int pop_next(struct tni_queue *q, tn_message *ret_message)
{
    struct pop p = {q, {.message = ret_message, .is_next = true}};
    int status = tni_queue_begin(q, TN_CONSUMER);
    if (status == 0)
        status = try_pop(&p);
    if (status == 0 && tni_queue_follows(q))
        await(&p);
    return status;
}

int tn_queue_pop_many(tn_queue *queue, uint32_t count, tn_deadline deadline,
                      tn_message *ret_messages)
{
    if (count == 0)
        return tni_object_check(queue, TNI_OBJECT_QUEUE);
    if (ret_messages == NULL)
        return tni_fail_null("ret_messages");
    if (count > INT32_MAX)
        return tni_fail(TN_ERR_INVALID, "count is %u: tn_queue_pop_many() pops at most %d",
                        count, INT32_MAX);
    int status = tn_queue_pop(queue, deadline, &ret_messages[0]);
    if (status != 0)
        return status;
    uint32_t popped = 1;
    while (popped < count && pop_next(tni_queue_of(queue), &ret_messages[popped]) == 0)
        popped++;
    return (int)popped;
}

static int end_lease(tn_queue *queue, tn_message *message, bool give_back)
{
    struct tni_queue *q = tni_queue_of(queue);
    if (message == NULL)
        return tni_fail(TN_ERR_INVALID, "the message is NULL");
    int status;
    if (message->lease == 0 && (status = tni_object_check(queue, TNI_OBJECT_QUEUE)) != 0)
        return status;
    if (message->lease == 0)
        return tni_fail(
            TN_ERR_STALE,
            "the message is not leased: it was acknowledged or given back before, or its "
            "queue has no leases");
    status = tni_queue_begin(q, TN_CONSUMER);
    if (status == 0)
        status = tni_ring_lease_end(q, message->lease - 1, give_back);
    if (status == 0)
        message->lease = 0;
    return status;
}

int tn_message_ack(tn_queue *q, tn_message *message) { return end_lease(q, message, false); }

int tn_message_return(tn_queue *q, tn_message *message) { return end_lease(q, message, true); }
