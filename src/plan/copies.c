/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copies: the copies of data in memories: their pins, and the room that they take.
 *
 * Nouns: data, copy, memory, link, access (data.h).
 */
#include <stdlib.h>

#include "plan/copies.h"

/* ---- copies ------------------------------------------------------------------------------ */

void tni_copy_add_idle(struct tni_plan *plan, struct tni_copy *copy)
{
    struct tni_memory *memory = tni_copy_memory(plan, copy);
    if (copy->is_kept)
        return;
    copy->next = &memory->oldest;
    copy->prev = memory->oldest.prev;
    copy->prev->next = copy->next->prev = copy;
    memory->idle += copy->data->bytes;
}

void tni_copy_remove_idle(struct tni_plan *plan, struct tni_copy *copy)
{
    if (copy->is_kept)
        return;
    copy->prev->next = copy->next;
    copy->next->prev = copy->prev;
    tni_copy_memory(plan, copy)->idle -= copy->data->bytes;
}

void tni_copy_take_room(struct tni_plan *plan, const struct tni_copy *copy, int64_t bytes)
{
    struct tni_memory *memory = tni_copy_memory(plan, copy);
    uint64_t *taken = copy->is_kept ? &memory->kept : &memory->used;
    *taken += (uint64_t)bytes;
}

bool tni_data_is_moving(const struct tni_plan *plan, const struct tni_data *data)
{
    for (uint32_t m = 0; m < plan->memories.count; m++)
        if (tni_copy_is_in_transit(&data->copies[m]))
            return true;
    return false;
}

void tni_copy_pin(struct tni_plan *plan, struct tni_copy *copy)
{
    if (copy->pins++ == 0 && tni_copy_has_room(copy))
        tni_copy_remove_idle(plan, copy);
}

void tni_copy_unpin(struct tni_plan *plan, struct tni_copy *copy)
{
    if (--copy->pins == 0 && tni_copy_has_room(copy))
        tni_copy_add_idle(plan, copy);
}

void tni_copy_pin_others(struct tni_plan *plan, const struct tni_copy *its)
{
    for (uint32_t m = 0; m < plan->memories.count; m++)
        if (m != its->memory && tni_copy_has_room(&its->data->copies[m]))
            tni_copy_pin(plan, &its->data->copies[m]);
}

void tni_copy_unpin_others(struct tni_plan *plan, const struct tni_copy *its)
{
    for (uint32_t m = 0; m < plan->memories.count; m++)
        if (m != its->memory && tni_copy_has_room(&its->data->copies[m]))
            tni_copy_unpin(plan, &its->data->copies[m]);
}

/* ---- data -------------------------------------------------------------------------------- */

struct tni_data *tni_data_create(struct tni_plan *plan, uint64_t bytes, uint32_t first)
{
    uint32_t count = plan->memories.count;
    struct tni_data *data = calloc(1, sizeof *data + count * sizeof data->copies[0]);
    if (data == NULL)
        return NULL;
    data->bytes = bytes;
    data->made_at = ++plan->data_events;
    for (uint32_t m = 0; m < count; m++)
        data->copies[m] = (struct tni_copy){.data = data, .memory = (uint8_t)m};
    if (first != TNI_NO_MEMORY) {
        struct tni_copy *copy = &data->copies[first];
        copy->data = data;
        copy->is_kept = copy->is_own = first == TNI_HOST;
        copy->state = TNI_COPY_VALID;
        tni_copy_take_room(plan, copy, (int64_t)bytes);
        tni_copy_add_idle(plan, copy);
    }
    return data;
}

bool tni_data_keep(struct tni_plan *plan, struct tni_data *data)
{
    struct tni_copy *copy = &data->copies[TNI_HOST];
    bool is_there = tni_copy_has_room(copy);
    if (copy->is_kept || tni_copy_is_in_transit(copy))
        return copy->is_kept;
    if (is_there)
        tni_copy_take_room(plan, copy, -(int64_t)data->bytes);
    if (is_there && copy->pins == 0)
        tni_copy_remove_idle(plan, copy);
    copy->is_kept = true;
    if (is_there)
        tni_copy_take_room(plan, copy, (int64_t)data->bytes);
    return true;
}

bool tni_data_is_quiet(const struct tni_plan *plan, const struct tni_data *data)
{
    /* This acquire pairs with the release in end_one(). */
    if (atomic_load_explicit(&data->uses, memory_order_acquire) != 0 ||
        tni_data_is_moving(plan, data))
        return false;
    for (uint32_t m = 0; m < plan->memories.count; m++)
        if (data->copies[m].pins > 0)
            return false;
    return true;
}

uint64_t tni_data_end_use(struct tni_plan *plan, struct tni_data *data)
{
    uint64_t held = 0;
    for (uint32_t m = 0; m < plan->memories.count; m++) {
        struct tni_copy *copy = &data->copies[m];
        if (tni_copy_has_room(copy))
            tni_copy_pin(plan, copy);
        if (tni_copy_has_room(copy) && !copy->is_own)
            held |= UINT64_C(1) << m;
    }
    return held;
}

void tni_data_free(struct tni_plan *plan, struct tni_data *data)
{
    for (uint32_t m = 0; m < plan->memories.count; m++)
        if (tni_copy_has_room(&data->copies[m]))
            tni_copy_take_room(plan, &data->copies[m], -(int64_t)data->bytes);
    free(data);
}

/* Whether a copy from one memory comes sooner than from another. A failed device gives none. */
static bool is_nearer(const struct tni_plan *plan, uint32_t one, uint32_t other, uint32_t to)
{
    const struct tni_memories *memories = &plan->memories;
    if (memories->all[one].is_lost != memories->all[other].is_lost)
        return memories->all[other].is_lost;
    return memories->ns_per_byte[tni_link_between(memories, one, to)] <
           memories->ns_per_byte[tni_link_between(memories, other, to)];
}

struct tni_copy *tni_data_source(const struct tni_plan *plan, struct tni_data *data,
                                 uint32_t to)
{
    struct tni_copy *best = NULL;
    for (uint32_t m = 0; m < plan->memories.count; m++)
        if (data->copies[m].state == TNI_COPY_VALID &&
            (best == NULL || is_nearer(plan, m, best->memory, to)))
            best = &data->copies[m];
    return best;
}
