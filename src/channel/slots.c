/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slots: where the ring of a channel lies, who is slowest, and what may be released.
 *
 * Callers: the files of this room. Death: who dies while it releases a message has announced
 * the message's block, and the reaper recounts it. `released` is behind then; the next release
 * goes on from there.
 */
#include "channel/slots.h"

/* ---- the ring block ---------------------------------------------------------------------- */

uint64_t tni_slots_bytes(uint32_t capacity, uint32_t most_subscribers)
{
    return sizeof(struct tni_channel) +
           (uint64_t)most_subscribers * sizeof(struct tni_subscriber) +
           (uint64_t)capacity * sizeof(struct tni_channel_slot);
}

bool tni_slots_get(const struct tni_segment *s, const struct tni_object *object,
                   struct tni_slots *ret_slots)
{
    uint64_t value = atomic_load(&object->value);
    uint32_t capacity = TNI_LOOK(object->capacity), most = tni_channel_subscribers(value);
    if (capacity == 0 || capacity > TNI_CHANNEL_MOST_MESSAGES || most == 0 ||
        most > TNI_CHANNEL_MOST_SUBSCRIBERS || tni_channel_history(value) > capacity)
        return false;
    uint8_t *ring = tni_object_ring(s, object, tni_slots_bytes(capacity, most));
    if (ring == NULL)
        return false;
    uint8_t *after_head = ring + sizeof(struct tni_channel);
    uint8_t *after = after_head + most * sizeof(struct tni_subscriber);
    *ret_slots = (struct tni_slots){.head = (struct tni_channel *)(void *)ring,
                                    .subscribers = (struct tni_subscriber *)(void *)after_head,
                                    .slots = (struct tni_channel_slot *)(void *)after,
                                    .capacity = capacity,
                                    .history = tni_channel_history(value),
                                    .most_subscribers = most};
    return true;
}

bool tni_slots_of(const struct tni_segment *s, uint32_t index, struct tni_slots *ret_slots)
{
    const struct tni_object *object = tni_object_at(s, index);
    uint64_t word = atomic_load(&object->word);
    return tni_object_kind(word) == TNI_OBJECT_CHANNEL &&
           tni_object_state(word) != TNI_OBJECT_FREE &&
           tni_object_state(word) != TNI_OBJECT_MAKING && tni_slots_get(s, object, ret_slots);
}

/* ---- the slowest subscriber -------------------------------------------------------------- */

uint64_t tni_slots_slowest(const struct tni_slots *slots, uint32_t *ret_slowest)
{
    uint64_t slowest = UINT64_MAX;
    uint32_t limit = tni_slots_limit(slots);
    for (uint32_t i = 0; i < limit; i++) {
        uint64_t cursor = atomic_load(&slots->subscribers[i].cursor);
        if (cursor == 0 || cursor >= slowest)
            continue;
        slowest = cursor;
        if (ret_slowest != NULL)
            *ret_slowest = i;
    }
    return slowest;
}

uint64_t tni_slots_unnoticed(const struct tni_slots *slots, uint64_t cursor)
{
    uint64_t next = atomic_load(&slots->head->last) + 1;
    return cursor != 0 && next > cursor && next - cursor > slots->capacity
               ? next - cursor - slots->capacity
               : 0;
}

/* ---- releasing --------------------------------------------------------------------------- */

static void empty(struct tn_domain *d, struct tni_channel_slot *slot, uint64_t word)
{
    uint64_t emptied = word & ~(uint64_t)UINT32_MAX;
    tni_block block = tni_slot_message(&d->segment, word);
    if (block.id == 0) {
        atomic_compare_exchange_strong(&slot->word, &word, emptied);
        return;
    }
    struct tni_thread *thread = tni_thread_enter(d);
    tni_announce_fence(thread, block);
    if (atomic_compare_exchange_strong(&slot->word, &word, emptied)) {
        TNI_KILL_POINT("channel_emptied");
        tni_ref_drop(d, thread, block);
    } else {
        tni_announce_clear(thread); /* another process was faster */
    }
    tni_thread_leave(thread);
}

void tni_slots_empty(struct tn_domain *d, struct tni_channel_slot *slot)
{
    empty(d, slot, atomic_load(&slot->word));
}

/* The number of the last message that may be released. */
static uint64_t find_last(const struct tni_slots *slots)
{
    /* Read before the cursors: a subscriber that comes meanwhile begins after it, or with a
     * message that the channel still has. */
    uint64_t last = atomic_load(&slots->head->last), next = last + 1;
    uint64_t word = atomic_load(&tni_slot_of(slots, next)->word);
    int32_t ahead = (int32_t)(tni_channel_number(word) - (uint32_t)next);
    /* Its publisher lets `last` follow later, and does not look at the cursors again. */
    if (ahead >= 0)
        last = next + (uint32_t)ahead;
    uint64_t passed = last > slots->history ? last - slots->history : 0;
    uint64_t received = tni_slots_slowest(slots, NULL) - 1;
    return TNI_MIN(passed, received);
}

/*
 * A subscriber that has moved on looks at `released`; this stores `released` and looks at the
 * cursors again. So one of the two sees that the next message may go, too.
 */
void tni_slots_release(struct tn_domain *d, const struct tni_slots *slots)
{
    _Atomic uint64_t *released = &slots->head->released;
    uint64_t from = atomic_load(released), to;
    while ((to = find_last(slots)) > from) {
        uint64_t at = to - from > slots->capacity ? to - slots->capacity + 1 : from + 1;
        for (; at <= to; at++) {
            struct tni_channel_slot *slot = tni_slot_of(slots, at);
            uint64_t word = atomic_load(&slot->word);
            if (tni_slot_has(word, at) && tni_channel_block(word) != 0)
                empty(d, slot, word);
        }
        TNI_KILL_POINT("channel_released");
        if (atomic_compare_exchange_strong(released, &from, to))
            from = to;
    }
}

void tni_channel_leave(struct tn_domain *d, const struct tni_slots *slots,
                       struct tni_subscriber *subscriber)
{
    uint64_t cursor = atomic_exchange(&subscriber->cursor, 0);
    TNI_KILL_POINT("channel_left"); /* who dies here does not count what was lost */
    atomic_fetch_add(&slots->head->dropped, tni_slots_unnoticed(slots, cursor));
    atomic_exchange(&subscriber->owner, 0);
    tni_slots_release(d, slots);
    tni_wait_notify(&slots->head->space, INT32_MAX);
}
