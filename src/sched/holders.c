/* SPDX-License-Identifier: Apache-2.0 */
/*
 * holders: who has what of a memory, in words, for the error of a task that found no room
 * there.
 */
#include <stdio.h>

#include "sched/crew.h"

enum { SHOWN = 3 }; /* data that are named: the largest ones */

tn_memory tni_memory_named(const struct tn_sched *sched, uint32_t memory)
{
    const struct tni_memories *memories = &sched->plan.memories;
    const struct tni_memory *its = &memories->all[memory];
    if (memories->has_disk && memory == TNI_DISK)
        return (tn_memory){.resource = TN_MEMORY_DISK};
    return its->pool == NULL ? (tn_memory){0}
                             : (tn_memory){.resource = its->pool->name,
                                           .slot = its->pool->slots[its->first].id};
}

uint32_t tni_memory_of(const struct tn_sched *sched, const struct tni_running *running)
{
    const struct tni_memories *memories = &sched->plan.memories;
    const struct tni_slot_ref slot = tni_running_place(running);
    if (running->accesses != NULL || slot.pool == TNI_NO_SLOT.pool)
        return running->accesses != NULL ? running->memory : TNI_HOST;
    for (uint32_t m = 0; m < memories->count; m++) {
        const struct tni_memory *its = &memories->all[m];
        if (its->pool == &sched->plan.pools.pools[slot.pool] && slot.slot >= its->first &&
            slot.slot - its->first < its->count)
            return m;
    }
    return TNI_HOST;
}

/* ---- texts ------------------------------------------------------------------------------- */

struct text {
    char *at;
    size_t size_bytes, used;
};

/* What has no room is cut. */
__attribute__((format(printf, 2, 3))) static void put(struct text *text, const char *format,
                                                      ...)
{
    va_list arguments;
    if (text->used >= text->size_bytes)
        return;
    va_start(arguments, format);
    int length =
        vsnprintf(text->at + text->used, text->size_bytes - text->used, format, arguments);
    va_end(arguments);
    text->used += (size_t)TNI_MAX(length, 0);
}

static void put_name(struct text *text, const struct tn_sched *sched, uint32_t memory)
{
    const tn_memory named = tni_memory_named(sched, memory);
    if (memory == TNI_HOST)
        put(text, "; the host");
    else if (sched->plan.memories.all[memory].pool == NULL)
        put(text, "; the disk");
    else
        put(text, "; %s %u", named.resource, named.slot);
}

/* ---- holders ----------------------------------------------------------------------------- */

struct holders {
    const struct tn_data *largest[SHOWN];
    uint32_t count;       /* of all data with a copy there */
    uint64_t shown_bytes; /* of the largest ones */
    uint64_t bytes;       /* of all */
};

static void add_holder(struct holders *holders, const struct tn_data *data)
{
    uint32_t at = TNI_MIN(holders->count, (uint32_t)SHOWN);
    holders->count++;
    holders->bytes += data->its->bytes;
    for (; at > 0 && holders->largest[at - 1]->its->bytes < data->its->bytes; at--)
        if (at < SHOWN)
            holders->largest[at] = holders->largest[at - 1];
    if (at < SHOWN)
        holders->largest[at] = data;
}

static struct holders find_holders(const struct tn_sched *sched, uint32_t memory)
{
    struct holders holders = {0};
    for (const struct tn_data *data = sched->data; data != NULL; data = data->next)
        if (data->its->copies[memory].state != TNI_COPY_NONE)
            add_holder(&holders, data);
    for (uint32_t i = 0; i < TNI_MIN(holders.count, (uint32_t)SHOWN); i++)
        holders.shown_bytes += holders.largest[i]->its->bytes;
    return holders;
}

/* What a task that runs does with data; 0: nothing. */
static uint32_t mode_of(const struct tni_running *running, const struct tni_data *data)
{
    const struct tni_access *a = running->accesses;
    while (a != NULL && a->data != NULL && a->data != data)
        a++;
    return a != NULL && a->data != NULL ? a->mode : 0;
}

/* A task that pins a copy: it runs with the copy, or it writes the data elsewhere. Or NULL. */
static const struct tni_running *find_pinner(const struct tn_sched *sched,
                                             const struct tni_copy *copy)
{
    const struct tni_running *head = &sched->plan.running;
    for (const struct tni_running *its = head->next; its != head; its = its->next) {
        uint32_t mode = mode_of(its, copy->data);
        if (mode != 0 && (its->memory == copy->memory || (mode & TNI_WRITES) != 0))
            return its;
    }
    return NULL;
}

static void put_holder(struct text *text, const struct tn_sched *sched,
                       const struct tni_copy *copy, const struct tni_running *running)
{
    const struct tn_data *data = copy->data->owner;
    const struct tni_running *pinner = copy->pins > 0 ? find_pinner(sched, copy) : NULL;
    put(text, "'%.32s' %llu", data->name, (unsigned long long)copy->data->bytes);
    if (pinner != NULL && pinner == running)
        put(text, " (this task)");
    else if (pinner != NULL)
        put(text, " (task %u, %.24s)", pinner->task->id, pinner->task->kind->name);
    else if (copy->state == TNI_COPY_COMING || copy->state == TNI_COPY_GOING)
        put(text, " (it is moved)");
    else if (copy->pins > 0)
        put(text, " (it is copied)");
    else if (copy->is_own)
        put(text, " (the program's)");
}

void tni_memory_print(const struct tn_sched *sched, uint32_t memory,
                      const struct tni_running *running, char *text, size_t size_bytes)
{
    const struct tni_memory *its = &sched->plan.memories.all[memory];
    const struct holders holders = find_holders(sched, memory);
    struct text out = {.at = text, .size_bytes = size_bytes};
    text[0] = '\0';
    if (holders.count == 0 && its->capacity == UINT64_MAX)
        return; /* a host without an end, of which no data has a part */
    put_name(&out, sched, memory);
    put(&out, " has %llu", (unsigned long long)its->used);
    if (its->capacity != UINT64_MAX)
        put(&out, " of %llu", (unsigned long long)its->capacity);
    put(&out, " bytes in use");
    if (its->kept > 0)
        put(&out, ", and %llu of the program", (unsigned long long)its->kept);
    for (uint32_t i = 0; i < TNI_MIN(holders.count, (uint32_t)SHOWN); i++) {
        put(&out, "%s", i == 0 ? ": " : ", ");
        put_holder(&out, sched, &holders.largest[i]->its->copies[memory], running);
    }
    if (holders.count > SHOWN)
        put(&out, ", %u others %llu", holders.count - SHOWN,
            (unsigned long long)(holders.bytes - holders.shown_bytes));
}

/* ---- devices ----------------------------------------------------------------------------- */

struct tni_device_room tni_device_room_read(const struct tn_sched *sched, uint32_t memory)
{
    struct tni_device_room room = {0};
    if (sched->devices == NULL || sched->devices[memory].type == 0)
        return room;
    tn_device device = sched->devices[memory];
    tn_device_info info = {.struct_size = sizeof info};
    if (tn_device_get_info(device, &info) == 0 &&
        tn_device_get_free(device, &room.free_bytes) == 0)
        room.total_bytes = info.memory_bytes;
    return room;
}

void tni_device_room_print(const struct tn_sched *sched, uint32_t memory,
                           const struct tni_device_room *room, char *text, size_t size_bytes)
{
    text[0] = '\0';
    if (room->total_bytes == 0)
        return;
    uint64_t used = room->total_bytes - TNI_MIN(room->free_bytes, room->total_bytes);
    uint64_t own = TNI_MIN(sched->plan.memories.all[memory].used, used);
    snprintf(text, size_bytes,
             "; of the %llu bytes of cuda:%d, %llu are free, and %llu are not the scheduler's",
             (unsigned long long)room->total_bytes, sched->devices[memory].id,
             (unsigned long long)room->free_bytes, (unsigned long long)(used - own));
}
