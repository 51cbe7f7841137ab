/* SPDX-License-Identifier: Apache-2.0 */
/*
 * queue: open, count and end queues, and the roles of processes.
 *
 *     push.c  pop.c              the public calls
 *     turn.c                     how a push or pop waits
 *     message.c pack.c unpack.c  a message, and how it lies in a slot
 *     ring.c  ring_*.c           the slots, and how processes claim them
 *
 * A process's first push or pop of a queue sets the process's role bit in the object. The bits
 * tell whose death ends whose wait.
 */
#include "queue/queue.h"

#include <string.h>

#include "queue/ring.h"
#include "queue/turn.h"

enum {
    DEFAULT_CAPACITY = 256,
    MAX_CAPACITY = 1 << 20,
    DEFAULT_INLINE_BYTES = 128,
    MAX_INLINE_BYTES = 4096,
    VIEW_ROOM_BYTES = 40 /* a view of two dimensions; a larger view takes inline bytes */
};

/* ---- making, opening, closing ------------------------------------------------------------ */

/* Keep private copies of the object's numbers, checked against the block of its slots. */
static int bind(struct tn_object *handle)
{
    struct tni_queue *q = tni_queue_of(handle);
    const struct tni_object *object = q->handle.object;
    uint32_t capacity = TNI_LOOK(object->capacity), slot_bytes = TNI_LOOK(object->slot_bytes);
    uint32_t policy = TNI_LOOK(object->flags);
    if (capacity < 1 || capacity > MAX_CAPACITY || slot_bytes % 64 != 0 || slot_bytes < 64 ||
        slot_bytes > 2 * MAX_INLINE_BYTES || policy > TN_QUEUE_LEASE)
        return tni_fail(TN_ERR_CORRUPT,
                        "the queue " TNI_TITLE_FORMAT " has %u slots of %u bytes",
                        TNI_TITLE(object->name), capacity, slot_bytes);
    q->slots =
        tni_object_ring(&q->handle.domain->segment, object, (uint64_t)capacity * slot_bytes);
    if (q->slots == NULL)
        return tni_fail(TN_ERR_CORRUPT,
                        "the queue " TNI_TITLE_FORMAT " names no block for its slots",
                        TNI_TITLE(object->name));
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
    if (o.policy > TN_QUEUE_LEASE)
        return tni_fail(TN_ERR_INVALID,
                        "tn_queue_options.policy is %u: no policy has this number", o.policy);
    if (o.reserved != 0)
        return tni_fail(TN_ERR_INVALID, "tn_queue_options.reserved is %u, not 0", o.reserved);
    if (o.capacity > MAX_CAPACITY || o.inline_bytes > MAX_INLINE_BYTES)
        return tni_fail(
            TN_ERR_INVALID,
            "a queue cannot have the capacity %u with inline_bytes %u: the capacity is at most "
            "%d, and inline_bytes are at most %d",
            o.capacity, o.inline_bytes, MAX_CAPACITY, MAX_INLINE_BYTES);
    uint32_t inline_bytes = o.inline_bytes != 0 ? o.inline_bytes : DEFAULT_INLINE_BYTES;
    spec->wants_flags = o.policy != 0;
    spec->wanted_capacity = o.capacity;
    spec->count_name = "capacity";
    spec->flags_name = "policy";
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

int tn_queue_get_info(const tn_queue *q, tn_queue_info *ret_info)
{
    int status = tni_object_check(q, TNI_OBJECT_QUEUE);
    if (status != 0)
        return status;
    const struct tni_object *object = q->object;
    const struct tni_queue *ring = tni_queue_of(q);
    tn_queue_info info = {.capacity = ring->capacity,
                          .inline_bytes = ring->slot_bytes - (uint32_t)sizeof(struct tni_slot) -
                                          VIEW_ROOM_BYTES,
                          .policy = ring->policy,
                          .count = tni_ring_count(ring),
                          .is_ended = (atomic_load(&object->ended) & TNI_QUEUE_ENDED) != 0};
    for (uint32_t seat = 0; seat < q->domain->segment.geometry.seats; seat++) {
        if (seat == q->domain->seat)
            continue;
        bool is_producer = tni_seat_set_has(&object->producers, seat);
        bool is_consumer = tni_seat_set_has(&object->consumers, seat);
        info.other_producers += is_producer;
        info.other_consumers += is_consumer;
        info.others += is_producer || is_consumer;
    }
    return tni_give_struct("tn_queue_info", &info, sizeof info, ret_info);
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

int tni_queue_begin(struct tni_queue *q, uint32_t role)
{
    /* `q` may be NULL, so it is cast: the handle is its first member. */
    int status = tni_object_check((const struct tn_object *)q, TNI_OBJECT_QUEUE);
    if (TNI_LIKELY(status == 0) &&
        TNI_UNLIKELY((atomic_load_explicit(q->handle.roles, memory_order_relaxed) & role) == 0))
        tni_object_take_role(&q->handle, role);
    return status;
}

int tn_queue_attach(tn_queue *queue, uint32_t roles)
{
    if (roles == 0 || (roles & ~(uint32_t)(TN_PRODUCER | TN_CONSUMER)) != 0)
        return tni_fail(
            TN_ERR_INVALID,
            "tn_queue_attach: the roles are %#x, not TN_PRODUCER or TN_CONSUMER or both",
            roles);
    int status = 0;
    for (uint32_t role = TN_PRODUCER; role <= TN_CONSUMER && status == 0; role <<= 1)
        if ((roles & role) != 0)
            status = tni_queue_begin(tni_queue_of(queue), role);
    return status;
}

static bool has_more(const struct tn_object *handle)
{
    return tni_ring_has_more(tni_queue_of(handle));
}

static int begin_wait(struct tn_object *handle)
{
    return tni_queue_begin(tni_queue_of(handle), TN_CONSUMER);
}

static bool is_ready(struct tn_object *handle)
{
    return tni_ring_is_ready(tni_queue_of(handle));
}

/* Only a consumer has anything in the ring: leases, and what a pop of it has taken. */
static void close_seat(struct tn_domain *d, struct tni_object *object, uint32_t seat)
{
    if (tni_seat_set_has(&object->consumers, seat))
        tni_ring_reclaim_seat(d, object, seat);
}

const struct tni_kind tni_queue_kind = {
    .number = TNI_OBJECT_QUEUE,
    .name = "queue",
    .handle_bytes = sizeof(struct tni_queue),
    .bind = bind,
    .reclaim_seat = tni_ring_reclaim_seat,
    .close_seat = close_seat,
    .end = tni_ring_end,
    .begin_wait = begin_wait,
    .is_ready = is_ready,
    .has_more = has_more,
};
