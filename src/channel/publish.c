/* SPDX-License-Identifier: Apache-2.0 */
/*
 * publish: send a message to all subscribers. The invariants are in channel.c.
 *
 * What the message needs is complete before the claim is taken. Callers: users. Death: I2.
 */
#include <string.h>

#include "channel/slots.h"
#include "wait/wait.h"

/* ---- room for a message ------------------------------------------------------------------ */

/* The number of the message whose slot the next one takes; 0: there was none. */
static uint64_t find_oldest(const struct tni_slots *slots)
{
    uint64_t next = atomic_load(&slots->head->last) + 1;
    return next > slots->capacity ? next - slots->capacity : 0;
}

/* Whether every subscriber has received the oldest message. */
static bool has_space(const struct tni_channel_handle *channel)
{
    const struct tni_slots *slots = &channel->slots;
    uint64_t oldest = find_oldest(slots);
    return atomic_load(&slots->head->released) >= oldest ||
           tni_slots_slowest(slots, NULL) > oldest;
}

static int attempt_space(void *context)
{
    const struct tni_channel_handle *channel = context;
    bool is_ended = (atomic_load(&channel->handle.object->ended) & TNI_QUEUE_ENDED) != 0;
    return is_ended || has_space(channel) ? 0 : TN_ERR_TIMED_OUT;
}

static int fail_behind(const struct tni_channel_handle *channel)
{
    const struct tni_slots *slots = &channel->slots;
    uint32_t slowest = 0;
    uint64_t cursor = tni_slots_slowest(slots, &slowest);
    if (cursor == UINT64_MAX)
        return tni_fail(TN_ERR_TIMED_OUT, "the deadline passed");
    return tni_fail(TN_ERR_TIMED_OUT,
                    "the channel " TNI_TITLE_FORMAT
                    " is full: process %d has not received the last %llu messages",
                    TNI_TITLE(channel->handle.object->name),
                    (int)atomic_load(&slots->subscribers[slowest].pid),
                    (unsigned long long)(atomic_load(&slots->head->last) + 1 - cursor));
}

static int wait_for_space(struct tni_channel_handle *channel, uint64_t deadline_ns)
{
    const struct tni_awaited awaited = {.word = &channel->slots.head->space,
                                        .side = TNI_SIDE_NONE,
                                        .spins = TNI_HAS_POLLED,
                                        .attempt = attempt_space,
                                        .context = channel};
    int status = tni_channel_wait(channel, &awaited, deadline_ns);
    return status == TN_ERR_TIMED_OUT ? fail_behind(channel) : status;
}

/* Disconnect each subscriber that has not received the oldest message (I4). */
static void disconnect_slow(struct tni_channel_handle *channel)
{
    const struct tni_slots *slots = &channel->slots;
    uint64_t oldest = find_oldest(slots);
    uint32_t limit = tni_slots_limit(slots);
    for (uint32_t i = 0; i < limit; i++) {
        _Atomic uint64_t *cursor = &slots->subscribers[i].cursor;
        uint64_t seen = atomic_load(cursor);
        while (seen != 0 && seen <= oldest)
            if (atomic_compare_exchange_weak(cursor, &seen, 0)) {
                atomic_fetch_add(&slots->head->disconnected, 1);
                break;
            }
    }
}

/* ---- publishing -------------------------------------------------------------------------- */

/* What a slot shall have: a message block, or the block of the only tensor and its view. */
struct parcel {
    tni_block block;
    bool is_ours; /* a message block, of which this process has the only reference */
    uint64_t view[TNI_CHANNEL_VIEW_WORDS];
};

/* A tensor that is all that the message has, and whose view fits in a slot, goes as it is. */
static bool pack_tensor(const tn_message *m, struct parcel *p)
{
    if (m->tensor_count != 1 || m->size_bytes != 0)
        return false;
    const tn_tensor *tensor = m->tensors[0];
    struct tni_attributes *held = tni_attributes_hold(tensor);
    bool is_packed = tni_tensor_encode(tensor, held, sizeof p->view, p->view) != 0;
    tni_attributes_drop(held);
    p->block = tensor->storage->block;
    return is_packed;
}

static int pack(struct tn_domain *d, const tn_message *m, uint64_t deadline_ns,
                struct parcel *p)
{
    int status = tni_message_check(d, m);
    if (status != 0 || pack_tensor(m, p))
        return status;
    p->is_ours = true;
    return tni_message_make(d, m, &(struct tni_message_head){0}, deadline_ns, &p->block);
}

/*
 * The slot has no message while its view changes, so that who reads a view sees by the word
 * that it changed. pre: the claim: nobody else fills the slot
 */
static int place(struct tn_domain *d, struct tni_channel_slot *slot, uint64_t number,
                 const struct parcel *p)
{
    while (tni_channel_block(atomic_load(&slot->word)) != 0)
        tni_slots_empty(d, slot);
    struct tni_thread *thread = tni_thread_enter(d);
    tni_announce_fence(thread, p->block);
    int status = tni_ref_lend(d, p->block, p->is_ours);
    if (status == 0) {
        TNI_KILL_POINT("channel_lent");
        atomic_thread_fence(memory_order_release); /* after what emptied the slot */
        if (!p->is_ours)
            memcpy(slot->view, p->view, sizeof slot->view);
        TNI_KILL_POINT("channel_written");
        atomic_store(&slot->word, tni_channel_word(number, p->block.id));
        TNI_KILL_POINT("channel_placed");
    }
    tni_announce_clear(thread);
    tni_thread_leave(thread);
    return status;
}

/* Whether a subscriber may want what is published. One that was disconnected counts for a
 * while. */
static bool has_subscriber(const struct tni_slots *slots)
{
    uint32_t i = 0, limit = tni_slots_limit(slots);
    while (i < limit && atomic_load(&slots->subscribers[i].owner) == 0)
        i++;
    return i < limit;
}

/* pre: the claim. @return 0, and our reference is consumed; TN_ERR_TIMED_OUT: no room */
static int publish_in(struct tni_channel_handle *channel, const struct parcel *p)
{
    struct tn_domain *d = channel->handle.domain;
    const struct tni_slots *slots = &channel->slots;
    if ((atomic_load(&channel->handle.object->ended) & TNI_QUEUE_ENDED) != 0)
        return tni_fail(TN_ERR_CLOSED, "the channel " TNI_TITLE_FORMAT " was ended",
                        TNI_TITLE(channel->handle.object->name));
    if (channel->policy != TN_CHANNEL_DROP && !has_space(channel)) {
        if (channel->policy == TN_CHANNEL_WAIT)
            return TN_ERR_TIMED_OUT;
        disconnect_slow(channel);
    }
    uint64_t number = atomic_load(&slots->head->last) + 1;
    int status = place(d, tni_slot_of(slots, number), number, p);
    if (status != 0)
        return status;
    atomic_store(&slots->head->last, number);
    if (slots->history != 0 || channel->policy == TN_CHANNEL_DISCONNECT ||
        !has_subscriber(slots))
        tni_slots_release(d, slots);
    return 0;
}

enum { PUBLISH_FORKED = 1 };

/* @return PUBLISH_FORKED: this is a child that the hook of a wait forked; what was packed is
 * its parent's */
static int publish_packed(struct tni_channel_handle *channel, const struct parcel *p,
                          uint64_t deadline_ns)
{
    struct tn_domain *d = channel->handle.domain;
    struct tni_object *object = channel->handle.object;
    uint64_t who = d->who;
    for (;;) {
        int status = tni_channel_claim(channel, deadline_ns);
        if (status != 0)
            return status;
        status = publish_in(channel, p);
        tni_object_unclaim(d, object);
        if (status != TN_ERR_TIMED_OUT)
            return status;
        status = wait_for_space(channel, deadline_ns);
        if (!tni_process_is_same_member(d, who))
            return PUBLISH_FORKED;
        if (status != 0)
            return status;
    }
}

static int publish(struct tni_channel_handle *channel, const tn_message *message,
                   uint64_t deadline_ns)
{
    struct tn_object *handle = &channel->handle;
    struct parcel p = {0};
    int status = tni_object_check(handle, TNI_OBJECT_CHANNEL);
    if (status == 0 && message == NULL)
        status = tni_fail_null("the message");
    if (status != 0)
        return status;
    struct tn_domain *d = handle->domain;
    if ((atomic_load_explicit(handle->roles, memory_order_relaxed) & TN_PRODUCER) == 0)
        tni_object_take_role(handle, TN_PRODUCER);
    status = pack(d, message, deadline_ns, &p);
    if (status != 0)
        return status;
    status = publish_packed(channel, &p, deadline_ns);
    if (status == 0) {
        if (tni_wait_notify(&handle->object->items, INT32_MAX))
            tni_object_ring_watchers(&d->segment, handle->object);
    } else if (status != PUBLISH_FORKED && p.is_ours) {
        tni_ref_release(d, p.block);
    }
    return status;
}

int tn_channel_publish(tn_channel *handle, const tn_message *message, tn_deadline deadline)
{
    int status;
    do
        status = publish(tni_channel_of(handle), message, deadline.ns);
    while (status == PUBLISH_FORKED);
    return status;
}
