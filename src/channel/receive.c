/* SPDX-License-Identifier: Apache-2.0 */
/*
 * receive: take the next message of a subscription. The invariants are in channel.c.
 *
 * A receive gets all that the message needs, checks that the slot still has the message, and
 * moves the cursor last. Callers: users. Death: the reaper gives back what was got, and ends
 * the subscription.
 */
#include "channel/slots.h"
#include "wait/wait.h"

enum { MOST_TRIES = 10000, AGAIN = 1 };

struct receiving {
    struct tni_channel_handle *channel;
    tn_message *ret_message;
};

static int fail_disconnected(const struct tni_channel_handle *channel)
{
    return tni_fail(TN_ERR_STALE,
                    "this subscriber of the channel " TNI_TITLE_FORMAT
                    " was %u messages behind, and was disconnected",
                    TNI_TITLE(channel->handle.object->name), channel->slots.capacity);
}

static int fail_unsubscribed(const struct tni_channel_handle *channel)
{
    return tni_fail(TN_ERR_INVALID,
                    "this process has not subscribed to the channel " TNI_TITLE_FORMAT
                    " with this handle: tn_channel_subscribe()",
                    TNI_TITLE(channel->handle.object->name));
}

/* The message whose tensors cannot be had is lost to this subscriber; see tn_queue_pop(). */
static bool is_lost(int status)
{
    return status == TN_ERR_CORRUPT || status == TN_ERR_NOT_FOUND || status == TN_ERR_VERSION;
}

/* Move the cursor to the next message. False: another thread has moved it, or a publisher has
 * disconnected the subscriber. */
static bool move_on(struct tni_channel_handle *channel, struct tni_subscriber *subscriber,
                    uint64_t number)
{
    const struct tni_slots *slots = &channel->slots;
    uint64_t seen = number;
    if (!atomic_compare_exchange_strong(&subscriber->cursor, &seen, number + 1))
        return false;
    TNI_KILL_POINT("channel_received");
    /* Messages before `number` that are left wait for a subscriber that is behind. */
    if (atomic_load(&slots->head->released) >= number - 1)
        tni_slots_release(channel->handle.domain, slots);
    if (channel->policy == TN_CHANNEL_WAIT)
        tni_wait_notify(&slots->head->space, INT32_MAX);
    return true;
}

/* A publisher has emptied the slot to fill it anew; or the subscriber began with the oldest
 * message, which was released meanwhile. */
static void pass_emptied(struct tni_channel_handle *channel, struct tni_subscriber *subscriber,
                         uint64_t number)
{
    if (move_on(channel, subscriber, number) && channel->policy == TN_CHANNEL_DROP) {
        atomic_fetch_add(&subscriber->dropped, 1);
        atomic_fetch_add(&channel->slots.head->dropped, 1);
    }
}

/* pre: the word names a block. @return as tni_message_get() */
static int get(struct tn_domain *d, const struct tni_channel_slot *slot,
               const struct tni_still *still, tn_message *ret_message)
{
    tni_block block = tni_slot_message(&d->segment, still->seen);
    if (tni_class_is_message(tni_block_class(block)))
        return tni_message_get(d, block, 0, still, ret_message);
    uint64_t view[TNI_CHANNEL_VIEW_WORDS];
    tni_copy_unstable(view, slot->view, sizeof view);
    const struct tni_contents contents = {.form = TNI_FORM_TENSOR,
                                          .block = block,
                                          .tensor_count = 1,
                                          .views = (const uint8_t *)view,
                                          .views_bytes = sizeof view};
    return tni_message_get_read(d, &contents, 0, still, ret_message);
}

static int take(const struct receiving *r, struct tni_subscriber *subscriber, uint64_t number,
                const struct tni_still *still)
{
    struct tn_domain *d = r->channel->handle.domain;
    tni_block block = tni_slot_message(&d->segment, still->seen);
    tn_message message;
    if (block.id == 0) {
        pass_emptied(r->channel, subscriber, number);
        return AGAIN;
    }
    int status = get(d, tni_slot_of(&r->channel->slots, number), still, &message);
    if (status == TN_ERR_TIMED_OUT)
        return AGAIN;
    if (status != 0 && !is_lost(status))
        return status;
    bool is_mine = move_on(r->channel, subscriber, number);
    if (!is_mine && status == 0)
        tn_message_fini(&message);
    if (!is_mine)
        return AGAIN;
    if (status == 0)
        *r->ret_message = message;
    return status;
}

/*
 * The number of the oldest message that a subscriber has not lost. The slot at its cursor tells
 * more than `last`, which a publisher writes later.
 */
static uint64_t find_oldest(const struct tni_slots *slots, uint64_t cursor, uint64_t word)
{
    uint64_t last = atomic_load(&slots->head->last);
    int32_t ahead = (int32_t)(tni_channel_number(word) - (uint32_t)cursor);
    if (ahead > 0)
        last = TNI_MAX(last, cursor + (uint32_t)ahead);
    return last >= slots->capacity ? last + 1 - slots->capacity : 1;
}

/* Pass over messages that have been replaced, and let `released` follow. @return false: there
 * are none */
static bool skip_lost(const struct tni_channel_handle *channel,
                      struct tni_subscriber *subscriber, uint64_t cursor, uint64_t word)
{
    const struct tni_slots *slots = &channel->slots;
    uint64_t oldest = find_oldest(slots, cursor, word), lost = oldest - cursor;
    if (oldest <= cursor)
        return false;
    if (atomic_compare_exchange_strong(&subscriber->cursor, &cursor, oldest)) {
        atomic_fetch_add(&subscriber->dropped, lost);
        atomic_fetch_add(&slots->head->dropped, lost);
        tni_slots_release(channel->handle.domain, slots);
    }
    return true;
}

/* `ended` is read before the slot: an ended channel is over only when no message is left. */
static int attempt(void *context)
{
    const struct receiving *r = context;
    const struct tni_slots *slots = &r->channel->slots;
    const struct tni_object *object = r->channel->handle.object;
    struct tni_subscriber *subscriber = tni_channel_subscriber(r->channel);
    if (subscriber == NULL)
        return fail_unsubscribed(r->channel);
    for (uint32_t tries = 0; tries < MOST_TRIES; tries++) {
        bool is_ended =
            (atomic_load_explicit(&object->ended, memory_order_acquire) & TNI_QUEUE_ENDED) != 0;
        uint64_t number = atomic_load(&subscriber->cursor);
        if (number == 0)
            return fail_disconnected(r->channel);
        const _Atomic uint64_t *at = &tni_slot_of(slots, number)->word;
        const struct tni_still still = {at, atomic_load_explicit(at, memory_order_acquire)};
        if (tni_slot_has(still.seen, number)) {
            int status = take(r, subscriber, number, &still);
            if (status != AGAIN)
                return status;
        } else if (!skip_lost(r->channel, subscriber, number, still.seen)) {
            return is_ended
                       ? tni_fail(TN_ERR_CLOSED, "the channel " TNI_TITLE_FORMAT " was ended",
                                  TNI_TITLE(object->name))
                       : TN_ERR_TIMED_OUT;
        }
    }
    return TN_ERR_TIMED_OUT;
}

int tn_channel_receive(tn_channel *handle, tn_deadline deadline, tn_message *ret_message)
{
    int status = tni_object_check(handle, TNI_OBJECT_CHANNEL);
    if (status == 0 && ret_message == NULL)
        status = tni_fail_null("ret_message");
    if (status != 0)
        return status;
    struct receiving r = {tni_channel_of(handle), ret_message};
    const struct tni_awaited awaited = {.word = &handle->object->items,
                                        .side = TNI_SIDE_PRODUCER,
                                        .spins = TNI_HAS_POLLED,
                                        .attempt = attempt,
                                        .context = &r};
    return tni_channel_wait(r.channel, &awaited, deadline.ns);
}

bool tni_channel_is_ready(const struct tni_channel_handle *channel)
{
    const struct tni_subscriber *subscriber = tni_channel_subscriber(channel);
    uint64_t cursor = subscriber != NULL ? atomic_load(&subscriber->cursor) : 0;
    if (cursor == 0)
        return true; /* a receive says why there is nothing */
    uint64_t word = atomic_load(&tni_slot_of(&channel->slots, cursor)->word);
    return tni_slot_has(word, cursor) || find_oldest(&channel->slots, cursor, word) > cursor;
}
