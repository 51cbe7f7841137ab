/* SPDX-License-Identifier: Apache-2.0 */
/*
 * holders: sums how much memory the process of each seat holds, for the sentence of a call that
 * lacks memory and for inspectors. It reads the rows of holds while other processes change
 * them, so a sum may be of two moments.
 */
#include <stdio.h>
#include <string.h>

#include "ref/ref.h"

enum { NAMED = 2 }; /* processes that a sentence names: it has 255 bytes in all */

/* ---- one block --------------------------------------------------------------------------- */

static bool is_backing_on(const struct tni_segment *s, tni_block block,
                          const struct tni_device_name *device, uint64_t *ret_bytes)
{
    struct tni_backing b;
    if (!tni_alloc_has_memory(s, block) || tni_backing_read(s, block, &b) != 0 ||
        (b.flags & TNI_BACKING_SLAB) != 0)
        return false;
    *ret_bytes = b.data_bytes;
    return device == NULL ? b.device_type == 0
                          : b.device_type == device->type &&
                                memcmp(b.device_uuid, device->uuid, sizeof device->uuid) == 0;
}

static bool has_slab_on(const struct tni_segment *s, tni_block block,
                        const struct tni_device_name *device)
{
    tni_block slab = tni_slab_of(s, block);
    return slab.id != 0 && tni_alloc_has_memory(s, slab) && tni_slab_is_on(s, slab, device);
}

/* Whether a block is on a device, or on the host, and how many bytes were asked for. */
static bool is_on(const struct tni_segment *s, tni_block block,
                  const struct tni_device_name *device, uint64_t *ret_bytes)
{
    uint32_t class_id = tni_block_class(block);
    if (tni_class_is_backing(class_id))
        return is_backing_on(s, block, device, ret_bytes);
    uint64_t asked = TNI_LOOK(tni_desc_at(s, block)->bytes);
    *ret_bytes = TNI_MIN(asked, tni_block_bytes(&s->geometry, block));
    return tni_class_is_device(&s->geometry, class_id)
               ? device != NULL && has_slab_on(s, block, device)
               : device == NULL;
}

/* ---- one seat ---------------------------------------------------------------------------- */

/* Any process can write a wrong size: sums stop at UINT64_MAX. */
static void add_block(const struct tni_segment *s, tni_block block,
                      const struct tni_device_name *device, struct tni_holding *holding)
{
    uint64_t bytes;
    if (!tni_geometry_has_block(&s->geometry, block.id) ||
        tni_word_state(atomic_load(tni_word_at(s, block))) != TNI_BLOCK_ALLOC ||
        !is_on(s, block, device, &bytes))
        return;
    holding->blocks++;
    if (!tni_add_size(holding->bytes, bytes, &holding->bytes))
        holding->bytes = UINT64_MAX;
}

static void add_class(const struct tni_segment *s, uint32_t class_id,
                      const struct tni_device_name *device, struct tni_holding *holding)
{
    uint32_t words = (tni_frontier(s, class_id) + 63) / 64;
    for (uint32_t w = 0; w < words; w++) {
        uint32_t at = s->geometry.classes[class_id].base + w * 64;
        uint64_t bits =
            atomic_load_explicit(tni_row_at(s, holding->seat, at), memory_order_relaxed);
        for (; bits != 0; bits &= bits - 1)
            add_block(s, tni_block_make(class_id, w * 64 + tni_low_bit(bits)), device, holding);
    }
}

static struct tni_holding sum_seat(const struct tni_segment *s, uint32_t seat,
                                   const struct tni_device_name *device)
{
    struct tni_holding holding = {.seat = seat};
    uint32_t first = device == NULL ? 1 : s->geometry.host_classes;
    uint32_t end = device == NULL ? s->geometry.host_classes : s->geometry.class_count;
    for (uint32_t c = first; c < end; c++)
        add_class(s, c, device, &holding);
    if (device != NULL)
        add_class(s, TNI_BACKING_CLASS, device, &holding);
    return holding;
}

/* ---- all seats --------------------------------------------------------------------------- */

/* Put one into the list, which is sorted and has room for so many. */
static void insert(struct tni_holding *list, uint32_t count, uint32_t room,
                   const struct tni_holding *holding)
{
    uint32_t i = count;
    for (; i > 0 && list[i - 1].bytes < holding->bytes; i--)
        if (i < room)
            list[i] = list[i - 1];
    if (i < room)
        list[i] = *holding;
}

uint32_t tni_holders_sum(const struct tni_segment *s, const struct tni_device_name *device,
                         struct tni_holding *ret_holdings, uint32_t room)
{
    uint32_t limit = tni_seat_limit(s), count = 0;
    for (uint32_t seat = 0; seat < limit; seat++) {
        if (tni_seat_state(atomic_load(&tni_seat_at(s, seat)->word)) == TNI_SEAT_FREE)
            continue;
        struct tni_holding holding = sum_seat(s, seat, device);
        if (holding.blocks == 0)
            continue;
        insert(ret_holdings, TNI_MIN(count, room), room, &holding);
        count++;
    }
    return count;
}

/* ---- the sentence ------------------------------------------------------------------------ */

static int32_t pid_of(const struct tni_segment *s, const struct tni_holding *holding)
{
    const struct tni_seat *seat = tni_seat_at(s, holding->seat);
    int32_t pid = atomic_load(&seat->pid);
    /* Between the claim of the seat and its identity, the word has the pid. */
    return pid != 0 ? pid : tni_seat_pid(atomic_load(&seat->word));
}

void tni_holders_describe(const struct tni_segment *s, const struct tni_device_name *device,
                          char *text, size_t size_bytes)
{
    struct tni_holding most[NAMED] = {0};
    uint32_t count = tni_holders_sum(s, device, most, NAMED);
    if (count == 0) {
        snprintf(text, size_bytes,
                 "no process holds any, but messages, tickets or values of stores may");
        return;
    }
    size_t used = (size_t)snprintf(text, size_bytes, "process %d holds %llu bytes",
                                   pid_of(s, &most[0]), (unsigned long long)most[0].bytes);
    if (count == NAMED)
        snprintf(text + used, size_bytes - used,
                 ", process %d %llu (shared blocks count for each)", pid_of(s, &most[1]),
                 (unsigned long long)most[1].bytes);
    else if (count > NAMED)
        snprintf(text + used, size_bytes - used,
                 ", process %d %llu, %u others less (shared blocks count for each)",
                 pid_of(s, &most[1]), (unsigned long long)most[1].bytes, count - NAMED);
}
