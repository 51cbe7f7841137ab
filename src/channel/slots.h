/* SPDX-License-Identifier: Apache-2.0 */
/* slots: the ring of a channel, and its subscribers. Inside the room channel. */
#ifndef TNI_CHANNEL_SLOTS_H
#define TNI_CHANNEL_SLOTS_H

#include "channel/channel.h"

enum { TNI_CHANNEL_MOST_MESSAGES = 1 << 16, TNI_CHANNEL_MOST_SUBSCRIBERS = 1024 };

/* Where the parts of a channel's ring block lie, checked. */
struct tni_slots {
    struct tni_channel *head;
    struct tni_subscriber *subscribers; /* [most_subscribers] */
    struct tni_channel_slot *slots;     /* [capacity] */
    uint32_t capacity, history, most_subscribers;
};
uint64_t tni_slots_bytes(uint32_t capacity, uint32_t most_subscribers);
/** @return false: the object names no block for a channel of its numbers */
bool tni_slots_get(const struct tni_segment *segment, const struct tni_object *object,
                   struct tni_slots *ret_slots);
/** As tni_slots_get(), of an object that is a channel, and lives or is being ended. */
bool tni_slots_of(const struct tni_segment *segment, uint32_t object,
                  struct tni_slots *ret_slots);

struct tni_channel_handle {
    struct tn_object handle;
    struct tni_slots slots;
    uint32_t policy;
    /* This handle's subscription; NULL: it has none. */
    struct tni_subscriber *subscriber;
    uint64_t who; /* whose it is: a forked child inherits the handle, and has no subscription */
};
/** pre: `channel` is a channel's or NULL; or the caller uses only its struct tn_object. */
static inline struct tni_channel_handle *tni_channel_of(const tn_channel *channel)
{
    return (struct tni_channel_handle *)(uintptr_t)channel;
}
/** NULL: this process has not subscribed with this handle. */
static inline struct tni_subscriber *
tni_channel_subscriber(const struct tni_channel_handle *channel)
{
    return channel->subscriber != NULL && channel->who == channel->handle.domain->who
               ? channel->subscriber
               : NULL;
}

static inline struct tni_channel_slot *tni_slot_of(const struct tni_slots *slots,
                                                   uint64_t number)
{
    return &slots->slots[number % slots->capacity];
}
/** Whether the slot has, or had, the message with this number. */
static inline bool tni_slot_has(uint64_t word, uint64_t number)
{
    return tni_channel_number(word) == (uint32_t)number;
}
/** The block of a slot, if there is such a block; else the block 0. */
static inline tni_block tni_slot_message(const struct tni_segment *s, uint64_t word)
{
    tni_block block = {tni_channel_block(word)};
    return tni_geometry_has_block(&s->geometry, block.id) ? block : (tni_block){0};
}

/** How many subscribers the channel may have had: those after them are free. */
static inline uint32_t tni_slots_limit(const struct tni_slots *slots)
{
    return TNI_MIN(atomic_load(&slots->head->limit), slots->most_subscribers);
}
/**
 * The cursor of the slowest subscriber.
 * @param ret_slowest  NULL: not wanted
 * @return UINT64_MAX: the channel has no subscriber
 */
uint64_t tni_slots_slowest(const struct tni_slots *slots, uint32_t *ret_slowest);
/** How many messages a subscriber has lost since it received last. It counts them then. */
uint64_t tni_slots_unnoticed(const struct tni_slots *slots, uint64_t cursor);
/** Release the messages that every subscriber has received and that no history keeps. */
void tni_slots_release(struct tn_domain *domain, const struct tni_slots *slots);
/** Let a slot name no block, and drop the reference that it had. */
void tni_slots_empty(struct tn_domain *domain, struct tni_channel_slot *slot);

/** End a subscription, and release what waited for it. */
void tni_channel_leave(struct tn_domain *domain, const struct tni_slots *slots,
                       struct tni_subscriber *subscriber);
/**
 * Take the claim of the channel, and finish what a dead owner of it was publishing.
 * @return as tni_object_claim()
 */
int tni_channel_claim(struct tni_channel_handle *channel, uint64_t deadline_ns);
/** As tni_object_wait(), but poll longer before the first sleep. */
int tni_channel_wait(struct tni_channel_handle *channel, const struct tni_awaited *awaited,
                     uint64_t deadline_ns);
/** Whether a receive has something to do: a message, a report, or a gap. */
bool tni_channel_is_ready(const struct tni_channel_handle *channel);

#endif
