/* SPDX-License-Identifier: Apache-2.0 */
/* ring: what the reaper and the audit do. They check each number, as all come from shared
 * memory. */
#include <string.h>

#include "queue/slots.h"
#include "wait/wait.h"

struct slots {
    uint8_t *at;
    uint32_t capacity, slot_bytes;
};

static bool get_slots(const struct tni_segment *s, const struct tni_object *object,
                      struct slots *ret)
{
    uint32_t capacity = TNI_LOOK(object->capacity), slot_bytes = TNI_LOOK(object->slot_bytes);
    if (capacity == 0 || slot_bytes < sizeof(struct tni_slot) || slot_bytes % 64 != 0)
        return false;
    ret->at = tni_object_ring(s, object, (uint64_t)capacity * slot_bytes);
    ret->capacity = capacity;
    ret->slot_bytes = slot_bytes;
    return ret->at != NULL;
}

static struct tni_slot *nth(const struct slots *slots, uint32_t i)
{
    return (struct tni_slot *)(void *)(slots->at + (size_t)i * slots->slot_bytes);
}

static bool owns_block(uint64_t word)
{
    uint32_t state = tni_slot_state(word);
    return state >= TNI_SLOT_FULL && state <= TNI_SLOT_RETURNING;
}

/* Empty a slot, then drop the reference that it held. */
static void drop_slot(struct tn_domain *d, struct tni_slot *slot, uint64_t word)
{
    uint64_t empty = tni_slot_word(tni_slot_round(word) + 1, TNI_SLOT_EMPTY, 0, 0);
    tni_block block = tni_slot_block(slot);
    struct tni_thread *thread = tni_thread_enter(d);
    if (tni_geometry_has_block(&d->segment.geometry, block.id)) {
        tni_announce(thread, block, 1);
        if (atomic_compare_exchange_strong(&slot->word, &word, empty)) {
            TNI_KILL_POINT("drop_slot_emptied");
            tni_ref_drop(d, thread, block);
        } else {
            tni_announce_clear(thread);
        }
    } else {
        atomic_compare_exchange_strong(&slot->word, &word, empty);
    }
    tni_thread_leave(thread);
}

void tni_ring_reclaim_seat(struct tn_domain *d, struct tni_object *object, uint32_t seat)
{
    struct slots slots;
    if (!get_slots(&d->segment, object, &slots))
        return;
    for (uint32_t i = 0; i < slots.capacity; i++) {
        struct tni_slot *slot = nth(&slots, i);
        uint64_t word = atomic_load(&slot->word);
        uint32_t state = tni_slot_state(word);
        /* A dead process may have made the slot FULL again and not yet moved the head back. */
        if (state == TNI_SLOT_FULL)
            tni_ring_retreat_head(object, tni_position(tni_slot_round(word), i));
        if (tni_slot_seat(word) != seat || state == TNI_SLOT_EMPTY || state == TNI_SLOT_FULL)
            continue;
        if (state == TNI_SLOT_CLAIMED) {
            uint64_t empty = tni_slot_word(tni_slot_round(word) + 1, TNI_SLOT_EMPTY, 0, 0);
            if (atomic_compare_exchange_strong(&slot->word, &word, empty))
                tni_ring_note_unpushed(object);
        } else if (state == TNI_SLOT_TAKEN && object->flags == TN_QUEUE_DROP) {
            drop_slot(d, slot, word);
        } else if (state <= TNI_SLOT_RETURNING) {
            tni_ring_give_back(object, slot, word, i);
        }
        TNI_KILL_POINT("reclaim_slot");
    }
}

void tni_ring_end(struct tn_domain *d, struct tni_object *object)
{
    struct slots slots;
    if (!get_slots(&d->segment, object, &slots))
        return;
    for (uint32_t i = 0; i < slots.capacity; i++) {
        uint64_t word = atomic_load(&nth(&slots, i)->word);
        if (owns_block(word))
            drop_slot(d, nth(&slots, i), word);
    }
}

uint64_t tni_ring_count_records(const struct tni_segment *s, const struct tni_object *object,
                                tni_block block)
{
    struct slots slots;
    uint64_t count = 0;
    if (!get_slots(s, object, &slots))
        return 0;
    for (uint32_t i = 0; i < slots.capacity; i++) {
        const struct tni_slot *slot = nth(&slots, i);
        count += owns_block(atomic_load(&slot->word)) && tni_slot_block(slot).id == block.id;
    }
    return count;
}

void tni_ring_for_each_record(const struct tni_segment *s, const struct tni_object *object,
                              tni_record_fn *each, void *context)
{
    struct slots slots;
    if (!get_slots(s, object, &slots))
        return;
    for (uint32_t i = 0; i < slots.capacity; i++) {
        const struct tni_slot *slot = nth(&slots, i);
        uint32_t block = tni_slot_block(slot).id;
        if (owns_block(atomic_load(&slot->word)) && block != 0)
            each((tni_block){block}, context);
    }
}

/*
 * The order matters: a seat becomes FREE after its slots are reclaimed. So if a slot names a
 * FREE seat, and names it still afterwards, no recoverer will reclaim the slot.
 */
static bool is_orphaned(const struct tni_segment *s, const struct tni_slot *slot)
{
    uint64_t word = atomic_load(&slot->word);
    uint32_t state = tni_slot_state(word), seat = tni_slot_seat(word);
    if (state == TNI_SLOT_EMPTY || state == TNI_SLOT_FULL || state > TNI_SLOT_RETURNING)
        return false;
    return (!tni_geometry_has_seat(&s->geometry, seat) ||
            tni_seat_state(atomic_load(&tni_seat_at(s, seat)->word)) == TNI_SEAT_FREE) &&
           atomic_load(&slot->word) == word;
}

uint32_t tni_queue_count_orphaned(const struct tni_segment *s, uint32_t index)
{
    struct slots slots;
    uint32_t count = 0;
    if (!get_slots(s, tni_object_at(s, index), &slots))
        return 0;
    for (uint32_t i = 0; i < slots.capacity; i++)
        count += is_orphaned(s, nth(&slots, i));
    return count;
}

/*
 * Messages since the queue was made: the positions before the first one that has no push yet,
 * less those that the tail passed without a push.
 */
static uint64_t count_pushed(const struct tni_object *object, const struct slots *slots)
{
    uint64_t at = atomic_load(&object->tail), unpushed = atomic_load(&object->unpushed);
    uint64_t passed =
        (uint64_t)tni_position_round(at) * slots->capacity + tni_position_index(at);
    for (uint32_t n = 0; n < slots->capacity;
         n++, at = tni_position_after(at, slots->capacity), passed++) {
        uint32_t index = tni_position_index(at) % slots->capacity;
        if (!tni_ring_was_pushed_to(atomic_load(&nth(slots, index)->word), at))
            break;
    }
    uint64_t pushed = passed - unpushed; /* `unpushed` is negative after the rounds wrapped */
    return (int64_t)pushed < 0 ? 0 : pushed;
}

void tni_queue_figures(const struct tni_segment *s, uint32_t index,
                       struct tni_queue_figures *ret_figures)
{
    struct tni_queue_figures f = {0};
    struct slots slots;
    if (get_slots(s, tni_object_at(s, index), &slots)) {
        f.pushed = count_pushed(tni_object_at(s, index), &slots);
        for (uint32_t i = 0; i < slots.capacity; i++) {
            struct tni_slot *slot = nth(&slots, i);
            uint32_t state = tni_slot_state(atomic_load(&slot->word));
            bool is_out = state >= TNI_SLOT_TAKEN && state <= TNI_SLOT_RETURNING;
            f.full += state == TNI_SLOT_FULL;
            f.leased += is_out;
            f.redelivered += (state == TNI_SLOT_FULL || is_out) &&
                             tni_form_attempt(TNI_LOOK(*tni_slot_form(slot))) != 0;
            f.claimed += state == TNI_SLOT_CLAIMED;
        }
    }
    *ret_figures = f;
}
