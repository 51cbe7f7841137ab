/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slab: finds free blocks of devices.
 *
 * Noun: slab (memory of a device, cut into the blocks of one span). alloc.c has the other
 * words. I5  A block of a device is taken only from a span that names a slab, and a span loses
 * its slab only while one thread has taken every block of it. So a block that is not FREE has
 *     memory.
 * I6  Blocks of devices are in no cache. So I2 holds with hints and `sweep` alone.
 * Callers: ref. A death leaves an announced block without a record, or lost hints, as in
 * alloc.c.
 */
#include <string.h>

#include "alloc/commit.h"
#include "alloc/hints.h"

static const tni_block none = {0};

tni_block tni_slab_of(const struct tni_segment *s, tni_block block)
{
    tni_block first = tni_block_leader(&s->geometry, block);
    uint64_t id = atomic_load(&tni_desc_at(s, first)->committed);
    tni_block slab = {(uint32_t)id};
    bool is_slab = id <= UINT32_MAX && tni_class_is_backing(tni_block_class(slab)) &&
                   tni_geometry_has_block(&s->geometry, slab.id);
    return is_slab ? slab : none;
}

bool tni_slab_is_on(const struct tni_segment *s, tni_block slab,
                    const struct tni_device_name *device)
{
    const struct tni_backing *b = tni_payload_look(s, slab);
    return atomic_load_explicit(&b->strategy, memory_order_acquire) != 0 &&
           (TNI_LOOK(b->flags) & TNI_BACKING_SLAB) != 0 &&
           TNI_LOOK(b->device_type) == device->type &&
           memcmp(b->device_uuid, device->uuid, sizeof device->uuid) == 0;
}

uint32_t tni_slab_usable(const struct tni_segment *s, tni_block slab, uint32_t class_id)
{
    const struct tni_class_geometry *c = &s->geometry.classes[class_id];
    const struct tni_backing *b = tni_payload_look(s, slab);
    uint64_t fit = TNI_LOOK(b->data_bytes) / c->size_bytes;
    return (uint32_t)TNI_MIN(fit, (uint64_t)c->usable);
}

/* The bits of positions [from, to) in the word of `from`, and the first position after it. */
static uint64_t bits_of_word(uint32_t from, uint32_t to, uint32_t *ret_next)
{
    uint32_t end = TNI_MIN((from | 63) + 1, to);
    *ret_next = end;
    return (UINT64_MAX >> (63 - (end - 1) % 64)) & (UINT64_MAX << (from % 64));
}

/* Take a block that has a hint, of the first `count` of a span. */
static bool take_hinted(struct tn_domain *d, struct tni_thread *thread, tni_block first,
                        uint32_t count, tni_block *ret_block)
{
    uint32_t begin = tni_block_position(&d->segment.geometry, first), next;
    for (uint32_t at = begin; at < begin + count; at = next) {
        uint64_t mask = bits_of_word(at, begin + count, &next);
        _Atomic uint64_t *hints = tni_hints_at(&d->segment, at);
        uint64_t seen = atomic_load_explicit(hints, memory_order_relaxed) & mask;
        for (; seen != 0; seen &= seen - 1) {
            uint64_t bit = seen & -seen;
            if ((atomic_fetch_and(hints, ~bit) & bit) == 0)
                continue; /* another thread took the hint */
            tni_block block = {first.id + (at - at % 64) + tni_low_bit(bit) - begin};
            if (tni_alloc_try_take(d, thread, block)) {
                *ret_block = block;
                return true;
            }
        }
    }
    return false;
}

static bool take_on(struct tn_domain *d, struct tni_thread *thread, uint32_t class_id,
                    const struct tni_device_name *device, tni_block *ret_block)
{
    const struct tni_segment *s = &d->segment;
    uint32_t span = s->geometry.classes[class_id].span, frontier = tni_frontier(s, class_id);
    for (uint32_t i = 0; i < frontier; i += span) {
        tni_block first = tni_block_make(class_id, i), slab = tni_slab_of(s, first);
        if (slab.id != 0 && tni_slab_is_on(s, slab, device) &&
            take_hinted(d, thread, first, tni_slab_usable(s, slab, class_id), ret_block))
            return true;
    }
    return false;
}

/* I5: the span may have lost its slab between the look at it and the take. */
static bool keeps_slab(struct tn_domain *d, struct tni_thread *thread, tni_block block)
{
    if (tni_slab_of(&d->segment, block).id != 0)
        return true;
    tni_alloc_untake(d, block);
    tni_announce_clear(thread);
    return false;
}

int tni_slab_take(struct tn_domain *d, struct tni_thread *thread, uint64_t bytes,
                  const struct tni_device_name *device, tni_block *ret_block)
{
    uint32_t class_id = tni_geometry_device_class(&d->segment.geometry, bytes);
    tni_block block;
    if (class_id == 0)
        return tni_fail(TN_ERR_INVALID, "%llu bytes need memory of their own",
                        (unsigned long long)bytes);
    struct tni_class *shared = tni_class_at(&d->segment, class_id);
    bool is_taken = take_on(d, thread, class_id, device, &block);
    if (!is_taken && atomic_load_explicit(&shared->sweep, memory_order_relaxed) != 0 &&
        atomic_exchange(&shared->sweep, 0) != 0 && tni_hints_sweep(d, class_id) > 0)
        is_taken = take_on(d, thread, class_id, device, &block);
    if (!is_taken || !keeps_slab(d, thread, block))
        return TNI_ALLOC_NO_SLAB;
    *ret_block = block;
    return 0;
}

void tni_slab_publish(struct tn_domain *d, tni_block first, uint32_t count)
{
    uint32_t begin = tni_block_position(&d->segment.geometry, first), next;
    for (uint32_t at = begin; at < begin + count; at = next) {
        uint64_t bits = bits_of_word(at, begin + count, &next);
        atomic_fetch_or(tni_hints_at(&d->segment, at), bits);
    }
}

bool tni_slab_is_idle(const struct tn_domain *d, tni_block first)
{
    uint32_t span = d->segment.geometry.classes[tni_block_class(first)].span;
    for (uint32_t i = 0; i < span; i++)
        if (!tni_alloc_is_free(d, (tni_block){first.id + i}))
            return false;
    return true;
}
