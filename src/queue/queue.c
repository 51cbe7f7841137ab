/* SPDX-License-Identifier: Apache-2.0 */
/*
 * queue: bounded queues of messages, as the public header has them.
 *
 * The room in one picture:
 *
 *     object.c   entries, names, openers, deaths        event.c semaphore.c lock.c
 *     ring.c     slots and their claims                  condition.c barrier.c
 *     message.c  what lies in a slot
 *     queue.c    roles, polling                          wait.c
 *
 * A process's role bits are set by its first push or pop, once for each handle, and tell whose
 * death ends whose wait.
 */
#include "queue/queue.h"

#include <string.h>

#include "queue/message.h"
#include "queue/ring.h"
#include "wait/wait.h"

enum {
    DEFAULT_CAPACITY = 256,
    MAX_CAPACITY = 1 << 20,
    DEFAULT_INLINE_BYTES = 128,
    MAX_INLINE_BYTES = 4096,
    VIEW_ROOM_BYTES = 40 /* a view of two dimensions; larger ones use the inline room too */
};

/* ---- making, opening, closing ------------------------------------------------------------ */

/* Private copies of an object's numbers, checked against the block that holds the slots. */
static int bind(struct tn_object *handle)
{
    struct tni_queue *q = tni_queue_of(handle);
    const struct tni_object *object = q->handle.object;
    uint32_t capacity = TNI_LOOK(object->capacity), slot_bytes = TNI_LOOK(object->slot_bytes);
    uint32_t policy = TNI_LOOK(object->flags);
    if (capacity < 1 || capacity > MAX_CAPACITY || slot_bytes % 64 != 0 || slot_bytes < 64 ||
        slot_bytes > 2 * MAX_INLINE_BYTES || policy > TN_QUEUE_LEASE)
        return tni_fail(TN_ERR_CORRUPT, "queue " TNI_NAME_FORMAT " has %u slots of %u bytes",
                        object->name, capacity, slot_bytes);
    q->slots =
        tni_object_ring(&q->handle.domain->segment, object, (uint64_t)capacity * slot_bytes);
    if (q->slots == NULL)
        return tni_fail(TN_ERR_CORRUPT, "queue " TNI_NAME_FORMAT " has no block for its slots",
                        object->name);
    q->capacity = capacity;
    q->slot_bytes = slot_bytes;
    q->room_bytes = slot_bytes - (uint32_t)sizeof(struct tni_slot);
    q->policy = policy;
    return 0;
}

static int read_options(const tn_queue_options *options, struct tni_object_spec *spec)
{
    tn_queue_options o = {0};
    int status = tni_take_options("tn_queue_options", options, sizeof o, &o);
    if (status != 0)
        return status;
    if (o.reserved != 0 || o.policy > TN_QUEUE_LEASE)
        return tni_fail(TN_ERR_INVALID, "queue policy %u", o.policy);
    if (o.capacity > MAX_CAPACITY || o.inline_bytes > MAX_INLINE_BYTES)
        return tni_fail(TN_ERR_INVALID, "a queue of %u messages with %u inline bytes",
                        o.capacity, o.inline_bytes);
    uint32_t inline_bytes = o.inline_bytes != 0 ? o.inline_bytes : DEFAULT_INLINE_BYTES;
    spec->wants_flags = o.policy != 0;
    spec->wanted_capacity = o.capacity;
    spec->count_name = "slots";
    spec->flags = o.policy;
    spec->capacity = o.capacity != 0 ? o.capacity : DEFAULT_CAPACITY;
    spec->slot_bytes =
        (uint32_t)tni_align_up(sizeof(struct tni_slot) + VIEW_ROOM_BYTES + inline_bytes, 64);
    spec->wanted_slot_bytes = o.inline_bytes != 0 ? spec->slot_bytes : 0;
    spec->ring_bytes = (uint64_t)spec->capacity * spec->slot_bytes;
    return 0;
}

int tn_queue_open(tn_domain *d, const char *name, const tn_queue_options *options,
                  uint32_t flags, tn_queue **ret_queue)
{
    struct tni_object_spec spec = {.kind = &tni_queue_kind, .name = name};
    int status = read_options(options, &spec);
    return status != 0 ? status : tni_object_open("tn_queue_open", d, &spec, flags, ret_queue);
}

static bool is_queue(const tn_queue *handle)
{
    return tni_object_check(handle, TNI_OBJECT_QUEUE) == 0;
}

uint32_t tn_queue_capacity(const tn_queue *handle)
{
    return handle != NULL && handle->kind == TNI_OBJECT_QUEUE ? (tni_queue_of(handle))->capacity
                                                              : 0;
}

uint32_t tn_queue_peers(const tn_queue *q, uint32_t roles)
{
    if (!is_queue(q))
        return 0;
    const struct tni_object *object = q->object;
    uint32_t count = 0;
    for (uint32_t seat = 0; seat < q->domain->segment.geometry.seats; seat++)
        count += seat != q->domain->seat &&
                 (((roles & TN_PRODUCER) != 0 && tni_seat_set_has(&object->producers, seat)) ||
                  ((roles & TN_CONSUMER) != 0 && tni_seat_set_has(&object->consumers, seat)));
    return count;
}

uint32_t tn_queue_count(const tn_queue *q)
{
    return is_queue(q) ? tni_ring_count(tni_queue_of(q)) : 0;
}

int tn_queue_end(tn_queue *q)
{
    int status = tni_object_check(q, TNI_OBJECT_QUEUE);
    if (status == 0) {
        atomic_fetch_or(&q->object->ended, TNI_QUEUE_ENDED);
        TNI_KILL_POINT("queue_ended");
        tni_object_wake_all(&q->domain->segment, q->object);
    }
    return status;
}

/* ---- roles ------------------------------------------------------------------------------- */

static void take_role(struct tni_queue *q, uint32_t role)
{
    struct tni_object *object = q->handle.object;
    tni_seat_set_add(role == TN_PRODUCER ? &object->producers : &object->consumers,
                     q->handle.domain->seat);
    atomic_fetch_or(q->handle.roles, role);
}

static int begin(struct tni_queue *q, uint32_t role)
{
    int status = tni_object_check(&q->handle, TNI_OBJECT_QUEUE);
    if (TNI_LIKELY(status == 0) &&
        TNI_UNLIKELY((atomic_load_explicit(q->handle.roles, memory_order_relaxed) & role) == 0))
        take_role(q, role);
    return status;
}

int tn_queue_attach(tn_queue *queue, uint32_t roles)
{
    if (roles == 0 || (roles & ~(uint32_t)(TN_PRODUCER | TN_CONSUMER)) != 0)
        return tni_fail(TN_ERR_INVALID, "tn_queue_attach: roles %u", roles);
    int status = 0;
    for (uint32_t role = TN_PRODUCER; role <= TN_CONSUMER && status == 0; role <<= 1)
        if ((roles & role) != 0)
            status = begin(tni_queue_of(queue), role);
    return status;
}

/* `object` is the queue's: read once before the ring, compilers read it once more after. */
static inline bool is_there(const struct tni_queue *q, const struct tni_object *object)
{
    return atomic_load_explicit(&object->word, memory_order_relaxed) == q->handle.word;
}

/*
 * A process has no roles before its first push or pop, in a child however that was made, and
 * after it left: who has none may not look at the ring.
 */
static inline bool has_role(const struct tni_queue *q, uint32_t role)
{
    return (atomic_load_explicit(q->handle.roles, memory_order_relaxed) & role) != 0;
}

/* Whether the object lives too: then there is nothing else that begin() would do or say. */
static inline bool may_look(const struct tni_queue *q, uint32_t role)
{
    return has_role(q, role) && is_there(q, q->handle.object);
}

/*
 * Whether a call has nothing to say but that the queue is empty, or full. pre: may_look(), or
 * is_there()
 */
static inline bool has_no_news(const struct tni_queue *q, const struct tni_object *object,
                               uint32_t side)
{
    uint64_t death = atomic_load_explicit(&object->death[side], memory_order_relaxed);
    return (atomic_load_explicit(&object->ended, memory_order_relaxed) & TNI_QUEUE_ENDED) ==
               0 &&
           (uint32_t)(death >> 32) ==
               atomic_load_explicit(&q->handle.deaths_seen[side], memory_order_relaxed);
}

static int fail_not_ready(void)
{
    return tni_fail_plain(TN_ERR_TIMED_OUT, "not ready, and not waiting");
}

/* ---- push -------------------------------------------------------------------------------- */

struct push {
    struct tni_queue *queue;
    const struct tni_parcel *parcel;
    uint64_t who; /* packed the parcel */
};

/* This is a child that the interrupt hook of the wait forked: the parcel is its parent's. */
#define PUSH_FORKED 1

static int try_push(void *context)
{
    const struct push *p = context;
    if (TNI_UNLIKELY(!tni_process_is_still(p->queue->handle.domain, p->who)))
        return PUSH_FORKED;
    const struct tni_object *object = p->queue->handle.object;
    if (tni_ring_looks_full(p->queue) &&
        (atomic_load_explicit(&object->ended, memory_order_relaxed) & TNI_QUEUE_ENDED) == 0)
        return TN_ERR_TIMED_OUT;
    return tni_ring_push(p->queue, p->parcel);
}

/*
 * One that is awake wakes the next, if there is something for it: what came while one looked
 * woke nobody, and may be more than it took.
 */
static void pass_on(struct tni_queue *q, _Atomic uint32_t *word,
                    bool (*has_more)(struct tni_queue *))
{
    if ((atomic_load(word) & TNI_WAIT_ARMED) != 0 && has_more(q))
        tni_wait_call(word);
}

enum {
    GATHER_SPINS = 100,  /* pauses of the processor, about a microsecond */
    SHORT_LOOK = 32,     /* attempts, about a microsecond: a shorter wait counts as short */
    SHORT_LOOKS = 3,     /* after so many short waits in a row, messages gather */
    GATHER_CAPACITY = 64 /* smaller queues would run full, or empty, while messages gather */
};

/*
 * A consumer that takes each message at once waits each time until a cache line has come from
 * the producer's processor. If it waits a microsecond first, several messages come in the time
 * of one (docs/decisions/0053). So a thread that only pops, and whose waits were all short,
 * waits like that; so does a thread that only pushes and waits for room. A thread that pushes
 * and pops in turns does not: another process waits for its answer.
 */
static bool may_gather(const struct tni_queue *q, bool is_push)
{
    if (q->capacity < GATHER_CAPACITY ||
        atomic_load_explicit(&q->short_looks[is_push], memory_order_relaxed) < SHORT_LOOKS)
        return false;
    struct tni_thread *thread = tni_thread_enter(q->handle.domain);
    bool is_same = thread->last_on_ring == (is_push ? TNI_PUSHED : TNI_POPPED);
    tni_thread_leave(thread);
    return is_same;
}

static void note_look(struct tni_queue *q, bool is_push, bool is_short)
{
    uint32_t seen = atomic_load_explicit(&q->short_looks[is_push], memory_order_relaxed);
    seen = is_short ? TNI_MIN(seen + 1, (uint32_t)SHORT_LOOKS) : 0;
    atomic_store_explicit(&q->short_looks[is_push], seen, memory_order_relaxed);
}

/*
 * Look for a while before sleeping. While others sleep, say so: a push or pop then wakes none
 * of them for what we are about to take. Before we go, whatever was left to us is passed on:
 * who trusted us acted before we took the word back, so we see it.
 */
static int look(struct tni_queue *q, _Atomic uint32_t *word, tni_try_fn *attempt, void *context,
                bool (*has_more)(struct tni_queue *))
{
    int status = TN_ERR_TIMED_OUT;
    uint32_t seen = atomic_load_explicit(word, memory_order_relaxed);
    uint32_t spins = tni_spins(&q->handle, word);
    if (spins == 0) {
        tni_spins_learn(&q->handle, word, 0, false);
        return status;
    }
    bool is_told = (seen & (TNI_WAIT_ARMED | TNI_WAIT_LOOKING)) == TNI_WAIT_ARMED;
    if (is_told) {
        atomic_fetch_or(word, TNI_WAIT_LOOKING);
        TNI_KILL_POINT("queue_looking");
    }
    bool is_push = word == &q->handle.object->room;
    for (int i = may_gather(q, is_push) ? GATHER_SPINS : 0; i > 0; i--)
        tni_relax();
    uint32_t looks = 0;
    for (; status == TN_ERR_TIMED_OUT && looks < spins; looks++) {
        tni_relax();
        status = attempt(context);
    }
    note_look(q, is_push, status != TN_ERR_TIMED_OUT && looks < SHORT_LOOK);
    tni_spins_learn(&q->handle, word, spins, status != TN_ERR_TIMED_OUT);
    if (!is_told)
        return status;
    atomic_fetch_and(word, ~(uint32_t)TNI_WAIT_LOOKING);
    tni_fence_after_modify();
    if (status == TN_ERR_TIMED_OUT)
        status = attempt(context);
    if (status != TN_ERR_TIMED_OUT)
        pass_on(q, word, has_more);
    return status;
}

struct turn {
    _Atomic uint32_t *word;
    int side; /* whose death ends the wait */
    tni_try_fn *attempt;
    void *context;
    bool (*has_more)(struct tni_queue *);
};

/* pre: one attempt was in vain. */
static int wait_turn(struct tni_queue *q, const struct turn *t, uint64_t deadline_ns)
{
    int status = TN_ERR_TIMED_OUT;
    if (deadline_ns != 0)
        status = look(q, t->word, t->attempt, t->context, t->has_more);
    if (status != TN_ERR_TIMED_OUT)
        return status;
    status = tni_object_wait(&q->handle, t->word, t->side, TNI_LOOKED, deadline_ns, t->attempt,
                             t->context);
    /* Whatever came of it: we may have been the one who was woken for more than one message. */
    pass_on(q, t->word, t->has_more);
    return status;
}

static int push_parcel(struct tni_queue *q, const struct tni_parcel *parcel, uint64_t who,
                       uint64_t deadline_ns)
{
    int status = tni_ring_push(q, parcel);
    if (TNI_LIKELY(status != TN_ERR_TIMED_OUT))
        return status;
    struct push p = {q, parcel, who};
    return wait_turn(q,
                     &(struct turn){&q->handle.object->room, TNI_SIDE_CONSUMER, try_push, &p,
                                    tni_ring_has_room},
                     deadline_ns);
}

/* `is_next`: of several, after the first. It does not wait, and takes no news of a death. */
static int push_once(struct tni_queue *q, const tn_message *message, uint32_t flags,
                     uint64_t deadline_ns, bool is_next)
{
    struct tni_parcel parcel;
    bool move = (flags & TN_PUSH_MOVE) != 0;
    if (message == NULL || (flags & ~(uint32_t)TN_PUSH_MOVE) != 0)
        return tni_fail(TN_ERR_INVALID, "tn_queue_push: no message, or flags %x", flags);
    int status = begin(q, TN_PRODUCER);
    if (status == 0)
        status = tni_parcel_pack(q, message, move, deadline_ns, &parcel);
    if (status != 0)
        return status;
    uint64_t who = q->handle.domain->who;
    status = is_next ? tni_ring_push(q, &parcel) : push_parcel(q, &parcel, who, deadline_ns);
    if (TNI_UNLIKELY(status != 0) && !tni_process_is_still(q->handle.domain, who))
        parcel.form = TNI_FORM_BYTES; /* this process has no block to give back */
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

/* For who does not wait: false means that only the long way knows. */
static inline bool has_no_room(const struct tni_queue *q, uint64_t deadline_ns)
{
    if (deadline_ns != 0 || q == NULL || !has_role(q, TN_PRODUCER))
        return false;
    const struct tni_object *object = q->handle.object;
    return tni_ring_looks_full(q) && is_there(q, object) &&
           has_no_news(q, object, TNI_SIDE_CONSUMER);
}

int tn_queue_push(tn_queue *queue, const tn_message *message, uint32_t flags,
                  tn_deadline deadline)
{
    struct tni_queue *q = tni_queue_of(queue);
    if (TNI_UNLIKELY(has_no_room(q, deadline.ns)))
        return fail_not_ready();
    return push(q, message, flags, deadline.ns, false);
}

int tn_queue_push_tensor(tn_queue *queue, tn_tensor *tensor, uint32_t flags,
                         tn_deadline deadline)
{
    struct tni_queue *q = tni_queue_of(queue);
    bool move = flags == TN_PUSH_MOVE;
    size_t view_bytes;
    if (TNI_LIKELY(q != NULL && tensor != NULL && may_look(q, TN_PRODUCER) &&
                   tensor->storage->domain == q->handle.domain && tni_tensor_is_plain(tensor) &&
                   (view_bytes = tni_tensor_view_bytes(tensor, NULL)) <= q->room_bytes) &&
        TNI_LIKELY(move ? tni_tensor_is_sole(tensor) : flags == 0)) {
        int status = tni_ring_push_plain(q, tensor, (uint32_t)view_bytes, move);
        if (TNI_LIKELY(status <= 0))
            return status;
    }
    tn_message message = {.tensors = &tensor, .tensor_count = 1};
    return tn_queue_push(queue, &message, flags, deadline);
}

int tn_queue_push_many(tn_queue *queue, const tn_message *messages, uint32_t count,
                       uint32_t flags, tn_deadline deadline)
{
    if (count == 0 || count > INT32_MAX || messages == NULL)
        return count == 0 ? 0 : tni_fail(TN_ERR_INVALID, "%u messages at once", count);
    int status = tn_queue_push(queue, &messages[0], flags, deadline);
    if (status != 0)
        return status;
    uint32_t pushed = 1;
    while (pushed < count && push(tni_queue_of(queue), &messages[pushed], flags, 0, true) == 0)
        pushed++;
    return (int)pushed;
}

/* ---- pop --------------------------------------------------------------------------------- */

struct pop {
    struct tni_queue *queue;
    struct tni_wanted wanted;
};

/*
 * The end of a queue counts only when nothing is left: looked at before the look for a message.
 */
static int try_pop(void *context)
{
    const struct pop *p = context;
    struct tni_queue *q = p->queue;
    bool is_ended = (atomic_load_explicit(&q->handle.object->ended, memory_order_acquire) &
                     TNI_QUEUE_ENDED) != 0;
    struct tni_thread *thread = tni_thread_enter(q->handle.domain);
    int status = tni_parcel_pop(q, thread, &p->wanted);
    if (status == TN_ERR_TIMED_OUT && is_ended && !tni_ring_has_more(q))
        status = tni_fail(TN_ERR_CLOSED, "the queue " TNI_NAME_FORMAT " was ended",
                          q->handle.object->name);
    tni_thread_leave(thread);
    return status;
}

/* As try_pop(), for a caller that polls: it looks at the ring once before it takes a record. */
static int poll_pop(void *context)
{
    const struct pop *p = context;
    const struct tni_object *object = p->queue->handle.object;
    if (tni_ring_looks_empty(p->queue) &&
        (atomic_load_explicit(&object->ended, memory_order_acquire) & TNI_QUEUE_ENDED) == 0)
        return TN_ERR_TIMED_OUT;
    return try_pop(context);
}

/* As has_no_room(). */
static inline bool has_nothing(const struct tni_queue *q, uint64_t deadline_ns)
{
    if (deadline_ns != 0 || q == NULL || !has_role(q, TN_CONSUMER))
        return false;
    const struct tni_object *object = q->handle.object;
    return tni_ring_looks_empty(q) && is_there(q, object) &&
           has_no_news(q, object, TNI_SIDE_PRODUCER);
}

static int pop(struct pop *p, uint64_t deadline_ns)
{
    struct tni_queue *q = p->queue;
    int status = begin(q, TN_CONSUMER);
    if (TNI_UNLIKELY(status != 0))
        return status;
    if (TNI_UNLIKELY(p->wanted.tensor != NULL && q->policy == TN_QUEUE_LEASE))
        return tni_fail(TN_ERR_INVALID,
                        "the queue " TNI_NAME_FORMAT
                        " has leases: its messages are popped by tn_queue_pop()",
                        q->handle.object->name);
    status = try_pop(p);
    if (TNI_LIKELY(status != TN_ERR_TIMED_OUT))
        return status;
    return wait_turn(q,
                     &(struct turn){&q->handle.object->items, TNI_SIDE_PRODUCER, poll_pop, p,
                                    tni_ring_is_ready},
                     deadline_ns);
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
        return tni_fail(TN_ERR_INVALID, "tn_queue_pop: NULL argument");
    if (has_nothing(q, deadline.ns))
        return fail_not_ready();
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
 * pre: the caller read the slot at the head, and it was not empty. If its producer was still
 * filling it, look once more before pop_tensor() searches the whole ring.
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
        return tni_fail(TN_ERR_INVALID, "tn_queue_pop_tensor: NULL argument");
    if (TNI_LIKELY(may_look(q, TN_CONSUMER) && q->policy != TN_QUEUE_LEASE)) {
        struct tni_seen seen = tni_ring_see(q);
        if (TNI_LIKELY(seen.word != tni_position_empty(seen.position)))
            return pop_seen_tensor(q, deadline.ns, ret_tensor, seen);
        if (deadline.ns == 0 && has_no_news(q, q->handle.object, TNI_SIDE_PRODUCER))
            return fail_not_ready();
    }
    return pop_tensor(q, deadline.ns, ret_tensor);
}

/* What ends the row is for the next call to report: the news of a death, a lost message. */
static int pop_next(struct tni_queue *q, tn_message *ret_message)
{
    int status = begin(q, TN_CONSUMER);
    return status != 0 ? status
                       : try_pop(&(struct pop){q, {.message = ret_message, .is_next = true}});
}

int tn_queue_pop_many(tn_queue *queue, uint32_t count, tn_deadline deadline,
                      tn_message *ret_messages)
{
    if (count == 0 || count > INT32_MAX || ret_messages == NULL)
        return count == 0 ? 0 : tni_fail(TN_ERR_INVALID, "%u messages at once", count);
    int status = tn_queue_pop(queue, deadline, &ret_messages[0]);
    if (status != 0)
        return status;
    uint32_t popped = 1;
    while (popped < count && pop_next(tni_queue_of(queue), &ret_messages[popped]) == 0)
        popped++;
    return (int)popped;
}

/* ---- leases ------------------------------------------------------------------------------ */

static int end_lease(tn_queue *queue, tn_message *message, bool give_back)
{
    struct tni_queue *q = tni_queue_of(queue);
    if (message == NULL)
        return tni_fail(TN_ERR_INVALID, "the message is NULL");
    if (message->lease == 0)
        return tni_fail(TN_ERR_STALE, "the message is not leased");
    int status = begin(q, TN_CONSUMER);
    if (status == 0)
        status = tni_ring_lease_end(q, message->lease - 1, give_back);
    if (status == 0)
        message->lease = 0;
    return status;
}

int tn_message_ack(tn_queue *q, tn_message *message) { return end_lease(q, message, false); }

int tn_message_return(tn_queue *q, tn_message *message) { return end_lease(q, message, true); }

/* ---- several at once --------------------------------------------------------------------- */

static void watch(struct tni_queue *q)
{
    struct tni_object *object = q->handle.object;
    if (tni_seat_set_has(&object->watchers, q->handle.domain->seat))
        return;
    /* First: another thread that sees the bit relies on it. Stays: a look at the set is cheap.
     */
    atomic_fetch_or(&object->items, TNI_WAIT_POLLERS);
    tni_seat_set_add(&object->watchers, q->handle.domain->seat);
}

static bool is_ready(struct tni_queue *q)
{
    const struct tni_object *object = q->handle.object;
    uint64_t death = atomic_load(&object->death[TNI_SIDE_PRODUCER]);
    bool is_over =
        (atomic_load(&object->ended) & TNI_QUEUE_ENDED) != 0 ||
        ((uint32_t)(death >> 32) != atomic_load(&q->handle.deaths_seen[TNI_SIDE_PRODUCER]) &&
         tni_seat_set_count(&object->producers, q->handle.domain->seat) == 0);
    return tni_ring_is_ready(q) || (is_over && !tni_ring_has_more(q));
}

static int find_ready(tn_queue *const *queues, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (is_ready(tni_queue_of(queues[i])))
            return (int)i;
    return TN_ERR_TIMED_OUT;
}

int tn_queue_wait_any(tn_queue *const *queues, uint32_t count, tn_deadline deadline)
{
    if (queues == NULL || count == 0 || count > INT32_MAX)
        return tni_fail(TN_ERR_INVALID, "tn_queue_wait_any: %u queues", count);
    for (uint32_t i = 0; i < count; i++) {
        int status = begin(tni_queue_of(queues[i]), TN_CONSUMER);
        if (status != 0)
            return status;
        if (queues[i]->domain != queues[0]->domain)
            return tni_fail(TN_ERR_INVALID,
                            "queues of different domains cannot be waited for together");
    }
    struct tn_domain *d = queues[0]->domain;
    int found = find_ready(queues, count);
    if (found != TN_ERR_TIMED_OUT)
        return found;
    if (deadline.ns == 0)
        return fail_not_ready();
    struct tni_wait wait = {.deadline_ns = deadline.ns};
    for (;;) {
        /* Each time: a child that the program's hook forked in the sleep has its own seat. */
        int status = tni_process_check(d);
        if (status != 0)
            return status;
        for (uint32_t i = 0; i < count; i++)
            watch(tni_queue_of(queues[i]));
        uint32_t seen = tni_wait_arm(&d->me->bell);
        if ((found = find_ready(queues, count)) != TN_ERR_TIMED_OUT)
            return found;
        int slept = tni_process_sleep(d, &d->me->bell, seen, &wait);
        if (slept == TN_ERR_INTERRUPTED)
            return slept;
        if (slept == TN_ERR_TIMED_OUT) {
            found = find_ready(queues, count);
            return found != TN_ERR_TIMED_OUT
                       ? found
                       : tni_fail(TN_ERR_TIMED_OUT,
                                  "none of %u queues was ready until the deadline", count);
        }
    }
}

int tn_queue_watch(tn_queue *queue, bool is_on)
{
    struct tni_queue *q = tni_queue_of(queue);
    int status = begin(q, TN_CONSUMER);
    if (status != 0)
        return status;
    if (is_on)
        watch(q);
    else
        tni_seat_set_remove(&q->handle.object->watchers, q->handle.domain->seat);
    return 0;
}

/* Each time another value: who rang before, and disarms only now, leaves this one armed. */
static void arm_descriptor(struct tn_domain *d)
{
    uint32_t seen = atomic_load(&d->me->bell_fd_armed);
    while (!atomic_compare_exchange_weak(&d->me->bell_fd_armed, &seen,
                                         (seen | TNI_BELL_ARMED) + TNI_BELL_EPOCH))
        ;
    tni_fence_after_modify();
}

int tn_domain_poll_fd(tn_domain *d, int *ret_fd)
{
    int fd;
    if (d == NULL || ret_fd == NULL)
        return tni_fail(TN_ERR_INVALID, "tn_domain_poll_fd: NULL argument");
    int status = tni_process_check(d);
    if (status != 0)
        return status;
    bool is_new = atomic_load(&d->poll_fd) < 0;
    if ((status = tni_process_bell_open(d, &fd)) != 0)
        return status;
    if (is_new)
        arm_descriptor(d);
    *ret_fd = fd;
    return 0;
}

void tn_domain_poll_clear(tn_domain *d)
{
    if (d == NULL || tni_process_check(d) != 0 || atomic_load(&d->poll_fd) < 0)
        return;
    if (tni_process_bell_lost_tenond(d))
        atomic_store(&d->survive_ns, 0); /* now, whenever the last look was */
    if (d->survive != NULL)
        d->survive(d); /* who polls waits in no call that would look */
    tni_process_bell_clear(d);
    arm_descriptor(d); /* before the caller looks at its queues */
}

static bool has_more(const struct tn_object *handle)
{
    return tni_ring_has_more(tni_queue_of(handle));
}

/* Leases that were not acknowledged, and what a pop had in its hands. */
static void close_seat(struct tn_domain *d, struct tni_object *object, uint32_t seat)
{
    if (tni_seat_set_has(&object->consumers, seat))
        tni_ring_settle_seat(d, object, seat);
}

const struct tni_kind tni_queue_kind = {
    .number = TNI_OBJECT_QUEUE,
    .name = "queue",
    .handle_bytes = sizeof(struct tni_queue),
    .bind = bind,
    .settle_seat = tni_ring_settle_seat,
    .close_seat = close_seat,
    .end = tni_ring_end,
    .has_more = has_more,
};
