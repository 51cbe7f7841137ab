/* SPDX-License-Identifier: Apache-2.0 */
/* inspect_devices: the memory that a domain has on devices. */
#include <string.h>

#include "api/inspect.h"

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

static void add_tensor(tn_device_entry *entry, uint64_t bytes)
{
    entry->tensors++;
    add(&entry->live_bytes, bytes);
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
        add_tensor(entry, b.data_bytes);
}

static void add_block(struct devices *all, tni_block block)
{
    struct tni_backing b;
    uint64_t word = atomic_load(tni_word_at(all->segment, block));
    if (tni_word_state(word) != TNI_BLOCK_ALLOC || !tni_inspect_slab(all->segment, block, &b))
        return;
    tn_device_entry *entry = entry_of(all, &b);
    if (entry != NULL)
        add_tensor(entry, tni_inspect_block_bytes(all->segment, block));
}

int tn_inspect_devices(tn_inspector *inspector, tn_device_entry_fn *each, void *context)
{
    if (inspector == NULL || each == NULL)
        return tni_fail_null(inspector == NULL ? "the inspector" : "each");
    const struct tni_segment *s = &inspector->segment;
    struct devices all = {.segment = s};
    uint32_t frontier = tni_frontier(s, TNI_BACKING_CLASS);
    for (uint32_t i = 0; i < frontier; i++)
        add_object(&all, tni_block_make(TNI_BACKING_CLASS, i));
    for (uint32_t c = s->geometry.host_classes; c < s->geometry.class_count; c++) {
        frontier = tni_frontier(s, c);
        for (uint32_t i = 0; i < frontier; i++)
            add_block(&all, tni_block_make(c, i));
    }
    int stop = 0;
    for (uint32_t i = 0; i < all.count && stop == 0; i++)
        stop = each(&all.entries[i], context);
    return stop;
}
