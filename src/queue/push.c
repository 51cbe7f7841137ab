/* SPDX-License-Identifier: Apache-2.0 */
/* push: the public pushes. The invariants are in ring.c. */
#include "queue/follow.h"
#include "queue/message.h"
#include "queue/turn.h"
#include "wait/wait.h"

struct push {
    struct tni_queue *queue;
    const struct tni_parcel *parcel;
    uint64_t who; /* the process that packed the parcel */
};

/* This process is a child that the interrupt hook of the wait forked: the parcel is the
 * parent's. */
#define PUSH_FORKED 1

static int try_push(void *context)
{
    const struct push *p = context;
    if (TNI_UNLIKELY(!tni_process_is_same_member(p->queue->handle.domain, p->who)))
        return PUSH_FORKED;
    const struct tni_object *object = p->queue->handle.object;
    if (tni_ring_looks_full(p->queue) &&
        (atomic_load_explicit(&object->ended, memory_order_relaxed) & TNI_QUEUE_ENDED) == 0)
        return TN_ERR_TIMED_OUT;
    return tni_ring_push(p->queue, p->parcel);
}

static int push_parcel(struct tni_queue *q, const struct tni_parcel *parcel, uint64_t who,
                       uint64_t deadline_ns)
{
    int status = tni_ring_push(q, parcel);
    if (TNI_LIKELY(status != TN_ERR_TIMED_OUT))
        return status;
    struct push p = {q, parcel, who};
    return tni_queue_wait_turn(q,
                               &(struct tni_turn){&q->handle.object->room, TNI_SIDE_CONSUMER,
                                                  try_push, &p, tni_ring_has_room},
                               deadline_ns);
}

/* `is_next`: a later message of several. Its push does not wait, and reports no death. */
static int push_once(struct tni_queue *q, const tn_message *message, uint32_t flags,
                     uint64_t deadline_ns, bool is_next)
{
    struct tni_parcel parcel;
    bool move = (flags & TN_PUSH_MOVE) != 0;
    if (message == NULL || (flags & ~(uint32_t)TN_PUSH_MOVE) != 0)
        return message == NULL ? tni_fail_null("the message")
                               : tni_fail(TN_ERR_INVALID,
                                          "the flags of a push are %#x: 0 or TN_PUSH_MOVE is "
                                          "allowed",
                                          flags);
    int status = tni_queue_begin(q, TN_PRODUCER);
    if (status == 0 && tni_queue_follows(q))
        status = tni_queue_record_all(q, message);
    if (status == 0)
        status = tni_parcel_pack(q, message, move, deadline_ns, &parcel);
    if (status != 0)
        return status;
    uint64_t who = q->handle.domain->who;
    status = is_next ? tni_ring_push(q, &parcel) : push_parcel(q, &parcel, who, deadline_ns);
    if (TNI_UNLIKELY(status != 0) && !tni_process_is_same_member(q->handle.domain, who))
        parcel.form = TNI_FORM_BYTES; /* a child of the packer does not own its block */
    tni_parcel_end(q, &parcel, message, status == 0, move);
    return status;
}

static __attribute__((noinline)) int push(struct tni_queue *q, const tn_message *message,
                                          uint32_t flags, uint64_t deadline_ns, bool is_next)
{
    int status = push_once(q, message, flags, deadline_ns, is_next);
    while (TNI_UNLIKELY(status == PUSH_FORKED))
        status = push_once(q, message, flags, deadline_ns, is_next);
    return status;
}

/* For a push that does not wait: whether the queue is full. False: unknown, try a push. */
static inline bool has_no_room(const struct tni_queue *q, uint64_t deadline_ns)
{
    if (deadline_ns != 0 || q == NULL || !tni_queue_has_role(q, TN_PRODUCER))
        return false;
    const struct tni_object *object = q->handle.object;
    return tni_ring_looks_full(q) && tni_queue_is_live(q, object) &&
           tni_queue_has_no_report(q, object, TNI_SIDE_CONSUMER);
}

int tn_queue_push(tn_queue *queue, const tn_message *message, uint32_t flags,
                  tn_deadline deadline)
{
    struct tni_queue *q = tni_queue_of(queue);
    if (TNI_UNLIKELY(has_no_room(q, deadline.ns)))
        return tni_queue_fail_not_ready();
    return push(q, message, flags, deadline.ns, false);
}

int tn_queue_push_tensor(tn_queue *queue, tn_tensor *tensor, uint32_t flags,
                         tn_deadline deadline)
{
    struct tni_queue *q = tni_queue_of(queue);
    bool move = flags == TN_PUSH_MOVE;
    size_t view_bytes;
    if (TNI_LIKELY(q != NULL && tensor != NULL && tni_queue_may_use_ring(q, TN_PRODUCER) &&
                   tensor->storage->domain == q->handle.domain && tni_tensor_is_plain(tensor) &&
                   (view_bytes = tni_tensor_view_bytes(tensor, NULL)) <= q->room_bytes) &&
        TNI_LIKELY(move ? tni_tensor_can_move(tensor) : flags == 0)) {
        int status = tni_ring_push_plain(q, tensor, (uint32_t)view_bytes, move);
        if (TNI_LIKELY(status <= 0))
            return status;
    }
    if (tensor == NULL)
        return tni_fail_null("the tensor");
    tn_message message = {.tensors = &tensor, .tensor_count = 1};
    return tn_queue_push(queue, &message, flags, deadline);
}

int tn_queue_push_many(tn_queue *queue, const tn_message *messages, uint32_t count,
                       uint32_t flags, tn_deadline deadline)
{
    if (count == 0)
        return tni_object_check(queue, TNI_OBJECT_QUEUE);
    if (messages == NULL)
        return tni_fail_null("messages");
    if (count > INT32_MAX)
        return tni_fail(TN_ERR_INVALID, "count is %u: tn_queue_push_many() pushes at most %d",
                        count, INT32_MAX);
    int status = tn_queue_push(queue, &messages[0], flags, deadline);
    if (status != 0)
        return status;
    uint32_t pushed = 1;
    while (pushed < count && push(tni_queue_of(queue), &messages[pushed], flags, 0, true) == 0)
        pushed++;
    return (int)pushed;
}
