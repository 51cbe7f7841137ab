/* SPDX-License-Identifier: Apache-2.0 */
/* inspect_devices: the memory that a domain has on devices, and who holds it. */
#include <stdlib.h>
#include <string.h>

#include "api/inspect.h"
#include "ref/ref.h"

enum { MOST_DEVICES = 64 };

struct devices {
    const struct tni_segment *segment;
    uint32_t count;
    struct tni_device_name names[MOST_DEVICES];
    tn_device_entry entries[MOST_DEVICES];
};

/* The entry of the device that a description names; NULL: there are too many devices. */
static tn_device_entry *entry_of(struct devices *all, const struct tni_backing *b)
{
    uint32_t i = 0;
    while (i < all->count && (all->names[i].type != b->device_type ||
                              memcmp(all->names[i].uuid, b->device_uuid, 16) != 0))
        i++;
    if (i == MOST_DEVICES)
        return NULL;
    if (i == all->count) {
        all->count++;
        all->names[i].type = b->device_type;
        memcpy(all->names[i].uuid, b->device_uuid, 16);
        all->entries[i] = (tn_device_entry){
            .type = b->device_type,
            .quota_bytes = atomic_load(&all->segment->header->device_quota_bytes)};
        tni_device_write_uuid(b->device_uuid, (b->device_flags & TN_DEVICE_IS_PART) != 0,
                              all->entries[i].uuid);
    }
    return &all->entries[i];
}

/* Any process can write a wrong size: sums stop at UINT64_MAX. */
static void add(uint64_t *sum, uint64_t bytes)
{
    if (!tni_add_size(*sum, bytes, sum))
        *sum = UINT64_MAX;
}

static bool is_held(const struct tni_segment *s, tni_block block)
{
    uint32_t at = tni_block_position(&s->geometry, block), limit = tni_seat_limit(s);
    for (uint32_t seat = 0; seat < limit; seat++)
        if ((atomic_load_explicit(tni_row_at(s, seat, at), memory_order_relaxed) >> (at % 64) &
             1) != 0)
            return true;
    return false;
}

static void add_tensor(const struct devices *all, tn_device_entry *entry, tni_block block)
{
    uint64_t bytes = tni_inspect_block_bytes(all->segment, block);
    entry->tensors++;
    add(&entry->live_bytes, bytes);
    if (!is_held(all->segment, block))
        add(&entry->unheld_bytes, bytes);
}

static void add_object(struct devices *all, tni_block block)
{
    struct tni_backing b;
    if (!tni_inspect_backing(all->segment, block, &b) || b.device_type == 0)
        return;
    tn_device_entry *entry = entry_of(all, &b);
    if (entry == NULL)
        return;
    entry->objects++;
    add(&entry->bytes, b.object_bytes);
    if ((b.flags & TNI_BACKING_SLAB) == 0)
        add_tensor(all, entry, block);
}

static void add_block(struct devices *all, tni_block block)
{
    struct tni_backing b;
    uint64_t word = atomic_load(tni_word_at(all->segment, block));
    if (tni_word_state(word) != TNI_BLOCK_ALLOC || !tni_inspect_slab(all->segment, block, &b))
        return;
    tn_device_entry *entry = entry_of(all, &b);
    if (entry != NULL)
        add_tensor(all, entry, block);
}

static void add_all(struct devices *all)
{
    const struct tni_segment *s = all->segment;
    uint32_t frontier = tni_frontier(s, TNI_BACKING_CLASS);
    for (uint32_t i = 0; i < frontier; i++)
        add_object(all, tni_block_make(TNI_BACKING_CLASS, i));
    for (uint32_t c = s->geometry.host_classes; c < s->geometry.class_count; c++) {
        frontier = tni_frontier(s, c);
        for (uint32_t i = 0; i < frontier; i++)
            add_block(all, tni_block_make(c, i));
    }
}

/* ---- holders ----------------------------------------------------------------------------- */

/* Room for one device after the other. */
struct holders {
    uint32_t room;
    struct tni_holding *holdings; /* [room] */
    tn_device_holder *at;         /* [room] */
};

static uint32_t list_holders(const struct tni_segment *s, const struct tni_device_name *device,
                             const struct holders *holders)
{
    uint32_t count = tni_holders_sum(s, device, holders->holdings, holders->room);
    count = TNI_MIN(count, holders->room); /* seats may have been taken meanwhile */
    for (uint32_t i = 0; i < count; i++) {
        const struct tni_holding *holding = &holders->holdings[i];
        tn_device_holder *holder = &holders->at[i];
        *holder = (tn_device_holder){.seat = holding->seat,
                                     .pid = tni_inspect_seat_pid(s, holding->seat),
                                     .tensors = holding->blocks,
                                     .bytes = holding->bytes};
        tni_inspect_seat_command(s, holding->seat, holder->command, sizeof holder->command);
    }
    return count;
}

static int report_all(struct devices *all, tn_device_entry_fn *each, void *context)
{
    struct holders holders = {.room = tni_seat_limit(all->segment) + 1};
    int stop = 0;
    if (all->count == 0)
        return 0;
    holders.holdings = calloc(holders.room, sizeof *holders.holdings);
    holders.at = calloc(holders.room, sizeof *holders.at);
    if (holders.holdings == NULL || holders.at == NULL)
        stop = tni_fail(TN_ERR_NO_MEMORY, "no private memory for the holders of a device");
    for (uint32_t i = 0; i < all->count && stop == 0; i++) {
        tn_device_entry *entry = &all->entries[i];
        entry->holder_count = list_holders(all->segment, &all->names[i], &holders);
        entry->holders = holders.at;
        stop = each(entry, context);
    }
    free(holders.holdings);
    free(holders.at);
    return stop;
}

int tn_inspect_devices(tn_inspector *inspector, tn_device_entry_fn *each, void *context)
{
    if (inspector == NULL || each == NULL)
        return tni_fail_null(inspector == NULL ? "the inspector" : "each");
    struct devices all = {.segment = &inspector->segment};
    add_all(&all);
    return report_all(&all, each, context);
}
