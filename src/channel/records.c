/* SPDX-License-Identifier: Apache-2.0 */
/*
 * records: what the reaper, the audit and inspection ask of channels. They check each number,
 * as all come from shared memory.
 *
 * Callers: the reaper, api. Death: nothing here writes.
 */
#include "channel/slots.h"

/* ---- records ----------------------------------------------------------------------------- */

static void tell_records(const struct tni_slots *slots, tni_record_fn *each, void *context)
{
    for (uint32_t i = 0; i < slots->capacity; i++) {
        tni_block block = {tni_channel_block(atomic_load(&slots->slots[i].word))};
        if (block.id != 0)
            each(block, context);
    }
}

void tni_channel_for_each_record(const struct tni_segment *s, tni_record_fn *each,
                                 void *context)
{
    uint32_t limit = tni_object_limit(s);
    for (uint32_t i = 0; i < limit; i++) {
        struct tni_slots slots;
        if (tni_slots_of(s, i, &slots))
            tell_records(&slots, each, context);
    }
}

uint64_t tni_channel_count_records(const struct tni_segment *s, tni_block block)
{
    return tni_record_count(s, tni_channel_for_each_record, block);
}

/* ---- inspection -------------------------------------------------------------------------- */

/* Nobody would end the subscription. */
static bool has_lost_subscriber(const struct tni_segment *s, const struct tni_slots *slots)
{
    for (uint32_t i = 0; i < slots->most_subscribers; i++) {
        uint64_t owner = atomic_load(&slots->subscribers[i].owner);
        if (owner != 0 && tni_process_who_state(s, owner) == TNI_SEAT_FREE &&
            atomic_load(&slots->subscribers[i].owner) == owner)
            return true;
    }
    return false;
}

const char *tni_channel_fault(const struct tni_segment *s, uint32_t index)
{
    const struct tni_object *object = tni_object_at(s, index);
    uint64_t word = atomic_load(&object->word);
    struct tni_slots slots;
    if (tni_object_state(word) != TNI_OBJECT_LIVE ||
        tni_object_kind(word) != TNI_OBJECT_CHANNEL)
        return NULL;
    if (!tni_slots_get(s, object, &slots))
        return "names no block for its messages";
    for (uint32_t i = 0; i < slots.capacity; i++) {
        uint64_t seen = atomic_load(&slots.slots[i].word);
        bool is_fine = tni_channel_block(seen) == 0 || tni_slot_message(s, seen).id != 0;
        if (!is_fine && atomic_load(&slots.slots[i].word) == seen)
            return "has a slot whose block does not exist";
    }
    return has_lost_subscriber(s, &slots) ? "has a subscriber whose seat is free" : NULL;
}

static void tell_kept(const struct tni_segment *s, uint32_t object, tni_block message,
                      tni_sent_fn *each, void *context)
{
    uint32_t count = 0;
    each(object, message, context);
    const struct tni_records *records = tni_class_is_message(tni_block_class(message))
                                            ? tni_records_at(s, message, &count)
                                            : NULL;
    for (uint32_t r = 0; records != NULL && r < count; r++)
        each(object, (tni_block){TNI_LOOK(records->block[r])}, context);
}

void tni_channel_for_each_kept(const struct tni_segment *s, tni_sent_fn *each, void *context)
{
    uint32_t limit = tni_object_limit(s);
    for (uint32_t i = 0; i < limit; i++) {
        struct tni_slots slots;
        if (!tni_slots_of(s, i, &slots))
            continue;
        for (uint32_t at = 0; at < slots.capacity; at++) {
            tni_block block = tni_slot_message(s, atomic_load(&slots.slots[at].word));
            if (block.id != 0)
                tell_kept(s, i, block, each, context);
        }
    }
}

static void count_parts(const struct tni_slots *slots, struct tni_channel_figures *figures)
{
    for (uint32_t i = 0; i < slots->capacity; i++)
        figures->kept += tni_channel_block(atomic_load(&slots->slots[i].word)) != 0;
    for (uint32_t i = 0; i < slots->most_subscribers; i++)
        figures->subscribers += atomic_load(&slots->subscribers[i].cursor) != 0;
}

/* A subscriber counts what it has lost when it receives: one that is stopped does not. */
static uint64_t count_dropped(const struct tni_slots *slots)
{
    uint64_t dropped = atomic_load(&slots->head->dropped);
    uint32_t limit = tni_slots_limit(slots);
    for (uint32_t i = 0; i < limit; i++)
        dropped += tni_slots_unnoticed(slots, atomic_load(&slots->subscribers[i].cursor));
    return dropped;
}

void tni_channel_figures(const struct tni_segment *s, uint32_t index,
                         struct tni_channel_figures *ret_figures)
{
    struct tni_slots slots;
    uint32_t slowest;
    *ret_figures = (struct tni_channel_figures){0};
    if (!tni_slots_of(s, index, &slots))
        return;
    struct tni_channel_figures figures = {.history = slots.history,
                                          .most_subscribers = slots.most_subscribers,
                                          .dropped = count_dropped(&slots),
                                          .disconnected =
                                              atomic_load(&slots.head->disconnected)};
    uint64_t cursor = tni_slots_slowest(&slots, &slowest);
    figures.published = atomic_load(&slots.head->last);
    if (cursor <= figures.published) {
        figures.most_behind = figures.published + 1 - cursor;
        figures.slowest_pid = atomic_load(&slots.subscribers[slowest].pid);
    }
    count_parts(&slots, &figures);
    *ret_figures = figures;
}
