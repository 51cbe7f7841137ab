/* SPDX-License-Identifier: Apache-2.0 */
/*
 * channel: open channels, subscribe, end and describe them.
 *
 * Nouns: number (of a message, from 1), slot (of message n: n modulo the capacity), cursor (the
 * number of the message that a subscriber receives next), claim (`value2` of the object: who
 * publishes or subscribes).
 * I1  A slot's word {number, block} is the record of its message. A subscriber gets a message
 *     and looks at the word again: if it is the same, the record kept the block meanwhile.
 * I2  A message is published by one write to its slot, then `last` follows. Who has the claim
 *     after a publisher that died between the two lets `last` follow.
 * I3  A message is released when each cursor has passed it, and `history` later ones were
 *     published. Who moves the cursor that was last releases it. Its slot keeps the number.
 * I4  Only its own process moves a cursor, but a publisher sets it to 0 to disconnect it.
 * I5  With TN_CHANNEL_WAIT a slot is not taken again before each cursor has passed it.
 * Callers: users, the reaper. Death: who publishes has announced the blocks, for the reaper to
 * recount. The reaper ends the subscriptions of a dead process, and wakes who waits for it.
 *
 *     slots.c    where things lie, releasing    publish.c  sending, policies
 *     receive.c  receiving                      records.c  for the reaper, inspection
 */
#include "channel/slots.h"

enum { DEFAULT_CAPACITY = 64, DEFAULT_SUBSCRIBERS = 64 };

/* ---- making, opening, closing ------------------------------------------------------------ */

static int check_options(const tn_channel_options *o)
{
    if (o->policy > TN_CHANNEL_DISCONNECT)
        return tni_fail(TN_ERR_INVALID,
                        "tn_channel_options.policy is %u: no policy has this number",
                        o->policy);
    if (o->capacity > TNI_CHANNEL_MOST_MESSAGES)
        return tni_fail(TN_ERR_INVALID,
                        "a channel cannot have the capacity %u: it is at most %d", o->capacity,
                        TNI_CHANNEL_MOST_MESSAGES);
    if (o->subscribers > TNI_CHANNEL_MOST_SUBSCRIBERS)
        return tni_fail(TN_ERR_INVALID,
                        "a channel cannot have %u subscribers: it has at most %d",
                        o->subscribers, TNI_CHANNEL_MOST_SUBSCRIBERS);
    uint32_t capacity = o->capacity != 0 ? o->capacity : DEFAULT_CAPACITY;
    if (o->history > capacity)
        return tni_fail(TN_ERR_INVALID,
                        "a channel of the capacity %u cannot have a history of %u messages",
                        capacity, o->history);
    return 0;
}

static int read_options(const tn_channel_options *options, tn_channel_options *o,
                        struct tni_object_spec *spec)
{
    *o = (tn_channel_options){0};
    int status = tni_take_options("tn_channel_options", options, sizeof *o, o);
    if (status == 0)
        status = check_options(o);
    if (status != 0)
        return status;
    uint32_t most = o->subscribers != 0 ? o->subscribers : DEFAULT_SUBSCRIBERS;
    spec->wants_flags = o->policy != 0;
    spec->wanted_capacity = o->capacity;
    spec->count_name = "capacity";
    spec->flags_name = "policy";
    spec->flags = o->policy;
    spec->capacity = o->capacity != 0 ? o->capacity : DEFAULT_CAPACITY;
    spec->value = tni_channel_value(o->history, most);
    spec->ring_bytes = tni_slots_bytes(spec->capacity, most);
    return 0;
}

static int check_same(const struct tni_channel_handle *channel, const char *field,
                      uint32_t wanted, uint32_t found)
{
    if (wanted == 0 || wanted == found)
        return 0;
    return tni_fail(TN_ERR_INVALID,
                    "the channel " TNI_NAME_FORMAT " was made with %s %u instead of %u",
                    channel->handle.object->name, field, found, wanted);
}

int tn_channel_open(tn_domain *d, const char *name, const tn_channel_options *options,
                    uint32_t flags, tn_channel **ret_channel)
{
    struct tni_object_spec spec = {.kind = &tni_channel_kind, .name = name};
    tn_channel_options o;
    tn_channel *handle;
    int status = read_options(options, &o, &spec);
    if (status == 0)
        status = tni_object_open("tn_channel_open", d, &spec, flags,
                                 ret_channel != NULL ? &handle : NULL);
    if (status != 0)
        return status;
    const struct tni_channel_handle *channel = tni_channel_of(handle);
    status = check_same(channel, "history", o.history, channel->slots.history);
    if (status == 0)
        status =
            check_same(channel, "subscribers", o.subscribers, channel->slots.most_subscribers);
    if (status != 0)
        tn_object_close(handle);
    else
        *ret_channel = handle;
    return status;
}

static int bind(struct tn_object *handle)
{
    struct tni_channel_handle *channel = tni_channel_of(handle);
    const struct tni_object *object = handle->object;
    channel->policy = TNI_LOOK(object->flags);
    if (!tni_slots_get(&handle->domain->segment, object, &channel->slots) ||
        channel->policy > TN_CHANNEL_DISCONNECT)
        return tni_fail(TN_ERR_CORRUPT,
                        "the channel " TNI_TITLE_FORMAT
                        " is damaged: it names no memory block for its %u messages",
                        TNI_TITLE(object->name), TNI_LOOK(object->capacity));
    return 0;
}

/* ---- subscriptions ----------------------------------------------------------------------- */

/* A dead owner may have filled the next slot, and not stored `last`: do that now (I2). */
int tni_channel_claim(struct tni_channel_handle *channel, uint64_t deadline_ns)
{
    struct tni_object *object = channel->handle.object;
    const struct tni_slots *slots = &channel->slots;
    int status = tni_object_claim(channel->handle.domain, object, deadline_ns);
    if (status != 0)
        return status;
    TNI_KILL_POINT("channel_claimed");
    uint64_t next = atomic_load(&slots->head->last) + 1;
    if (TNI_UNLIKELY(tni_slot_has(atomic_load(&tni_slot_of(slots, next)->word), next))) {
        atomic_store(&slots->head->last, next);
        tni_slots_release(channel->handle.domain, slots);
    }
    return 0;
}

/* The number of the oldest message that the channel still has; of the next one if it has none.
 */
static uint64_t find_oldest(const struct tni_slots *slots)
{
    uint64_t next = atomic_load(&slots->head->last) + 1;
    uint64_t number = next > slots->capacity ? next - slots->capacity : 1;
    for (; number < next; number++) {
        uint64_t word = atomic_load(&tni_slot_of(slots, number)->word);
        if (tni_slot_has(word, number) && tni_channel_block(word) != 0)
            break;
    }
    return number;
}

/* pre: the claim, so that nothing is published meanwhile. */
static int subscribe_in(struct tni_channel_handle *channel, uint32_t from)
{
    struct tn_domain *d = channel->handle.domain;
    const struct tni_slots *slots = &channel->slots;
    uint32_t i = 0;
    while (i < slots->most_subscribers && !tni_claim_try(&slots->subscribers[i].owner, d->who))
        i++;
    if (i == slots->most_subscribers)
        return tni_fail(TN_ERR_FULL,
                        "the channel " TNI_TITLE_FORMAT " has all of its %u subscribers",
                        TNI_TITLE(channel->handle.object->name), slots->most_subscribers);
    TNI_KILL_POINT("channel_subscribing");
    struct tni_subscriber *subscriber = &slots->subscribers[i];
    atomic_store(&subscriber->pid, tni_os_pid());
    atomic_store(&subscriber->dropped, 0);
    if (atomic_load(&slots->head->limit) <= i)
        atomic_store(&slots->head->limit, i + 1);
    atomic_store(&subscriber->cursor, from == TN_FROM_OLDEST
                                          ? find_oldest(slots)
                                          : atomic_load(&slots->head->last) + 1);
    channel->subscriber = subscriber;
    channel->who = d->who;
    return 0;
}

static void leave(struct tni_channel_handle *channel)
{
    struct tni_subscriber *subscriber = tni_channel_subscriber(channel);
    channel->subscriber = NULL;
    if (subscriber != NULL)
        tni_channel_leave(channel->handle.domain, &channel->slots, subscriber);
}

int tn_channel_subscribe(tn_channel *handle, uint32_t from)
{
    int status = tni_object_check(handle, TNI_OBJECT_CHANNEL);
    if (status == 0 && from > TN_FROM_OLDEST)
        status = tni_fail(TN_ERR_INVALID, "`from` is %u, not TN_FROM_NEWEST or TN_FROM_OLDEST",
                          from);
    if (status != 0)
        return status;
    struct tni_channel_handle *channel = tni_channel_of(handle);
    leave(channel);
    tni_object_take_role(handle, TN_CONSUMER);
    status = tni_channel_claim(channel, 0);
    if (status == 0) {
        status = subscribe_in(channel, from);
        tni_object_unclaim(handle->domain, handle->object);
    }
    return status;
}

int tn_channel_unsubscribe(tn_channel *handle)
{
    int status = tni_object_check(handle, TNI_OBJECT_CHANNEL);
    if (status == 0)
        leave(tni_channel_of(handle));
    return status;
}

static void unbind(struct tn_object *handle) { leave(tni_channel_of(handle)); }

/* ---- the end, figures -------------------------------------------------------------------- */

int tn_channel_end(tn_channel *handle)
{
    int status = tni_object_check(handle, TNI_OBJECT_CHANNEL);
    if (status == 0)
        status = tni_channel_claim(tni_channel_of(handle), 0);
    if (status != 0)
        return status;
    atomic_fetch_or(&handle->object->ended, TNI_QUEUE_ENDED);
    TNI_KILL_POINT("channel_ended");
    tni_object_unclaim(handle->domain, handle->object);
    tni_wait_notify(&tni_channel_of(handle)->slots.head->space, INT32_MAX);
    tni_object_wake_all(&handle->domain->segment, handle->object);
    return 0;
}

int tn_channel_get_info(const tn_channel *handle, tn_channel_info *ret_info)
{
    int status = tni_object_check(handle, TNI_OBJECT_CHANNEL);
    if (status != 0)
        return status;
    const struct tni_channel_handle *channel = tni_channel_of(handle);
    const struct tni_subscriber *subscriber = tni_channel_subscriber(channel);
    struct tni_channel_figures figures;
    tni_channel_figures(&handle->domain->segment, handle->index, &figures);
    tn_channel_info info = {.capacity = channel->slots.capacity,
                            .history = figures.history,
                            .most_subscribers = figures.most_subscribers,
                            .policy = channel->policy,
                            .subscribers = figures.subscribers,
                            .kept = figures.kept,
                            .published = figures.published,
                            .dropped = figures.dropped,
                            .disconnected = figures.disconnected,
                            .most_behind = figures.most_behind,
                            .slowest_pid = figures.slowest_pid,
                            .is_ended =
                                (atomic_load(&handle->object->ended) & TNI_QUEUE_ENDED) != 0};
    uint64_t cursor = subscriber != NULL ? atomic_load(&subscriber->cursor) : 0;
    if (cursor != 0) {
        uint64_t next = figures.published + 1;
        info.is_subscribed = true;
        info.waiting = TNI_MIN(next > cursor ? next - cursor : 0, channel->slots.capacity);
        info.lost =
            atomic_load(&subscriber->dropped) + tni_slots_unnoticed(&channel->slots, cursor);
    }
    return tni_give_struct("tn_channel_info", &info, sizeof info, ret_info);
}

/* ---- the kind ---------------------------------------------------------------------------- */

/* Idempotent. pre: the seat's process is dead, or is this one and has no handle left. */
static void reclaim_seat(struct tn_domain *d, struct tni_object *object, uint32_t seat)
{
    struct tni_slots slots;
    if (!tni_slots_get(&d->segment, object, &slots))
        return;
    for (uint32_t i = 0; i < slots.most_subscribers; i++) {
        uint64_t owner = atomic_load(&slots.subscribers[i].owner);
        if (owner != 0 && tni_who_seat(owner) == seat)
            tni_channel_leave(d, &slots, &slots.subscribers[i]);
    }
    /* The dead process may have moved its cursor, and done nothing after that. */
    tni_slots_release(d, &slots);
    tni_wait_notify_all(&slots.head->space);
}

/* Idempotent. pre: no process has the channel open, and the caller has the registry. */
static void end(struct tn_domain *d, struct tni_object *object)
{
    struct tni_slots slots;
    if (!tni_slots_get(&d->segment, object, &slots))
        return;
    for (uint32_t i = 0; i < slots.capacity; i++)
        tni_slots_empty(d, &slots.slots[i]);
}

static int begin_wait(struct tn_object *handle)
{
    return tni_object_check(handle, TNI_OBJECT_CHANNEL);
}

static bool is_ready(struct tn_object *handle)
{
    return tni_channel_is_ready(tni_channel_of(handle));
}

static bool has_more(const struct tn_object *handle)
{
    return tni_channel_is_ready(tni_channel_of(handle));
}

const struct tni_kind tni_channel_kind = {
    .number = TNI_OBJECT_CHANNEL,
    .name = "channel",
    .handle_bytes = sizeof(struct tni_channel_handle),
    .bind = bind,
    .unbind = unbind,
    .reclaim_seat = reclaim_seat,
    .close_seat = reclaim_seat,
    .end = end,
    .begin_wait = begin_wait,
    .is_ready = is_ready,
    .has_more = has_more,
};
