/* SPDX-License-Identifier: Apache-2.0 */
/* reclaim: functions for the reaper: release a row, count records, reclaim blocks. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ref/counts.h"

/*
 * The holder of a device's block is dead, but the device may still do what the holder had
 * asked for. Whoever takes a block of the slab next waits for the device (struct tni_backing).
 */
static void dirty_slab(const struct tni_segment *s, tni_block block)
{
    tni_block slab = tni_slab_of(s, block);
    if (slab.id != 0)
        atomic_fetch_add(&((struct tni_backing *)tni_payload_look(s, slab))->dirtied, 1);
    TNI_KILL_POINT("slab_dirtied");
}

static void release_bit(struct tn_domain *d, struct tni_thread *thread, uint32_t seat,
                        tni_block block)
{
    if (seat != d->seat && tni_class_is_device(&d->segment.geometry, tni_block_class(block)))
        dirty_slab(&d->segment, block);
    tni_announce(thread, block, 1);
    tni_ref_clear_hold(tni_row_at(&d->segment, seat, 0),
                       tni_block_position(&d->segment.geometry, block));
    TNI_KILL_POINT("row_unrecorded");
    bool is_freed = tni_count_decrement(d, thread, block);
    tni_announce_clear(thread);
    if (is_freed)
        tni_alloc_publish(d, block);
}

/* Release the holds of blocks of the classes up to `end`. */
static uint64_t release_row(struct tn_domain *d, struct tni_thread *thread, uint32_t seat,
                            uint32_t end)
{
    const struct tni_geometry *g = &d->segment.geometry;
    uint64_t released = 0;

    for (uint32_t c = 1; c < end; c++) {
        uint32_t words = (tni_frontier(&d->segment, c) + 63) / 64;
        for (uint32_t w = 0; w < words; w++) {
            uint32_t at = g->classes[c].base + w * 64;
            uint64_t bits = atomic_load(tni_row_at(&d->segment, seat, at));
            for (; bits != 0; bits &= bits - 1, released++) {
                tni_block block = tni_block_make(c, w * 64 + tni_low_bit(bits));
                if (tni_geometry_has_block(g, block.id))
                    release_bit(d, thread, seat, block);
            }
        }
    }
    if (released > 0)
        tni_alloc_wake(d);
    return released;
}

uint64_t tni_ref_release_row(struct tn_domain *d, uint32_t seat, bool but_devices)
{
    const struct tni_geometry *g = &d->segment.geometry;
    struct tni_thread *thread = tni_thread_enter(d);
    uint64_t released =
        release_row(d, thread, seat, but_devices ? g->host_classes : g->class_count);
    tni_thread_leave(thread);
    return released;
}

bool tni_ref_holds_devices(const struct tni_segment *s, uint32_t seat)
{
    for (uint32_t c = s->geometry.host_classes; c < s->geometry.class_count; c++) {
        uint32_t words = (tni_frontier(s, c) + 63) / 64;
        for (uint32_t w = 0; w < words; w++)
            if (atomic_load(tni_row_at(s, seat, s->geometry.classes[c].base + w * 64)) != 0)
                return true;
    }
    return false;
}

/* How many local references are left. pre: the caller has taken every thread record */
static uint64_t sum_locals(struct tn_domain *d)
{
    const struct tni_geometry *g = &d->segment.geometry;
    uint64_t sum = 0;
    for (uint32_t c = 1; c < g->class_count; c++) {
        uint32_t limit = atomic_load(&d->local_limit[c]);
        for (uint32_t i = 0; i < limit; i++)
            sum += atomic_load_explicit(tni_local_at(d, tni_block_make(c, i)),
                                        memory_order_relaxed) &
                   ~TNI_LOCAL_UNFINISHED;
    }
    return sum;
}

void tni_ref_close(struct tn_domain *d)
{
    for (uint32_t t = 0; t < TNI_THREADS; t++)
        tni_thread_take(&d->threads[t]);
    if (!d->is_closed) {
        atomic_fetch_add(&d->keepers, sum_locals(d));
        if (d->seat != TNI_NO_SEAT)
            release_row(d, &d->threads[0], d->seat, d->segment.geometry.class_count);
        d->is_closed = true;
    }
    for (uint32_t t = 0; t < TNI_THREADS; t++)
        tni_thread_leave(&d->threads[t]);
}

/* Call `each` for every entry of every live message block. */
static void for_each_message_record(const struct tni_segment *s, tni_record_fn *each,
                                    void *context)
{
    for (uint32_t c = 1; c <= TNI_MESSAGE_CLASSES; c++) {
        uint32_t frontier = tni_frontier(s, c);
        for (uint32_t i = 0; i < frontier; i++) {
            tni_block message = tni_block_make(c, i);
            if (tni_word_state(atomic_load(tni_word_at(s, message))) != TNI_BLOCK_ALLOC ||
                !tni_alloc_has_memory(s, message))
                continue;
            uint32_t count;
            const struct tni_records *records = tni_records_at(s, message, &count);
            for (uint32_t r = 0; records != NULL && r < count; r++)
                each((tni_block){TNI_LOOK(records->block[r])}, context);
        }
    }
}

/* Call `each` for every slab that a span of a device's class names. */
static void for_each_slab_record(const struct tni_segment *s, tni_record_fn *each,
                                 void *context)
{
    for (uint32_t c = s->geometry.host_classes; c < s->geometry.class_count; c++) {
        uint32_t frontier = tni_frontier(s, c);
        for (uint32_t i = 0; i < frontier; i += s->geometry.classes[c].span) {
            tni_block slab = tni_slab_of(s, tni_block_make(c, i));
            if (slab.id != 0)
                each(slab, context);
        }
    }
}

static void for_each_hold(const struct tni_segment *s, uint32_t seat, tni_record_fn *each,
                          void *context)
{
    for (uint32_t c = 1; c < s->geometry.class_count; c++) {
        uint32_t words = (tni_frontier(s, c) + 63) / 64;
        for (uint32_t w = 0; w < words; w++) {
            uint64_t bits =
                atomic_load(tni_row_at(s, seat, s->geometry.classes[c].base + w * 64));
            for (; bits != 0; bits &= bits - 1)
                each(tni_block_make(c, w * 64 + tni_low_bit(bits)), context);
        }
    }
}

void tni_ref_for_each_record(const struct tni_segment *s, tni_record_fn *each, void *context)
{
    uint32_t limit = tni_seat_limit(s);
    for (uint32_t seat = 0; seat < limit; seat++)
        for_each_hold(s, seat, each, context);
    for_each_message_record(s, each, context);
    for_each_slab_record(s, each, context);
}

struct counted {
    tni_block block;
    uint64_t count;
};

static void count_same(tni_block block, void *context)
{
    struct counted *counted = context;
    counted->count += block.id == counted->block.id;
}

uint64_t tni_ref_count_records(const struct tni_segment *s, tni_block block)
{
    uint32_t at = tni_block_position(&s->geometry, block), limit = tni_seat_limit(s);
    struct counted counted = {.block = block};

    for (uint32_t seat = 0; seat < limit; seat++)
        counted.count += atomic_load(tni_row_at(s, seat, at)) >> (at % 64) & 1;
    if (!tni_class_is_message(tni_block_class(block))) /* no entry names a message block */
        for_each_message_record(s, count_same, &counted);
    if (tni_class_is_backing(tni_block_class(block)))
        for_each_slab_record(s, count_same, &counted);
    return counted.count;
}

bool tni_ref_reclaim(struct tn_domain *d, struct tni_thread *thread, tni_block block,
                     uint64_t seen, uint64_t records)
{
    _Atomic uint64_t *word = tni_word_at(&d->segment, block);

    if (tni_word_state(seen) == TNI_BLOCK_FREE || records > 0) {
        uint32_t state = tni_word_state(seen);
        uint32_t count = state == TNI_BLOCK_FREE ? 0 : (uint32_t)records;
        if (!atomic_compare_exchange_strong(word, &seen, tni_word_next(seen, state, count)))
            return false;
        /* A thread that failed to allocate the block meanwhile dropped the block's hint. */
        if (state == TNI_BLOCK_FREE)
            tni_alloc_publish(d, block);
        return true;
    }
    uint32_t generation = tni_ref_generation(d, block); /* valid if the CAS below succeeds */
    /*
     * After this CAS no other thread frees the block: the word has changed, and other
     * recounters skip a block that is announced as `outer`.
     */
    if (!atomic_compare_exchange_strong(word, &seen, tni_word_next(seen, TNI_BLOCK_ALLOC, 0)))
        return false;
    seen = tni_word_next(seen, TNI_BLOCK_ALLOC, 0);
    if (tni_class_is_message(tni_block_class(block)))
        tni_ref_release_records(d, thread, block);
    if (tni_class_is_backing(tni_block_class(block)))
        tni_backing_end(d, block, generation);
    if (atomic_compare_exchange_strong(word, &seen, tni_word_next(seen, TNI_BLOCK_FREE, 0)))
        tni_alloc_publish(d, block);
    return true;
}
