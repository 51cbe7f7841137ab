/* SPDX-License-Identifier: Apache-2.0 */
/*
 * records: the references that objects hold: each object to the block of its ring, and each
 * queue to the blocks of its messages.
 *
 * Callers: the reaper. Death: nothing here writes.
 */
#include "queue/ring.h"

uint64_t tni_queue_count_records(const struct tni_segment *s, tni_block block)
{
    uint32_t limit = tni_object_limit(s);
    uint64_t count = 0;
    for (uint32_t i = 0; i < limit; i++) {
        const struct tni_object *object = tni_object_at(s, i);
        uint64_t word = atomic_load(&object->word);
        if (tni_object_state(word) == TNI_OBJECT_FREE)
            continue;
        count += atomic_load(&object->ring) == block.id;
        if (tni_object_kind(word) == TNI_OBJECT_QUEUE)
            count += tni_ring_count_records(s, object, block);
    }
    return count;
}

void tni_queue_for_each_record(const struct tni_segment *s, tni_record_fn *each, void *context)
{
    uint32_t limit = tni_object_limit(s);
    for (uint32_t i = 0; i < limit; i++) {
        const struct tni_object *object = tni_object_at(s, i);
        uint64_t word = atomic_load(&object->word);
        if (tni_object_state(word) == TNI_OBJECT_FREE)
            continue;
        uint32_t ring = atomic_load(&object->ring);
        if (ring != 0)
            each((tni_block){ring}, context);
        if (tni_object_kind(word) == TNI_OBJECT_QUEUE)
            tni_ring_for_each_record(s, object, each, context);
    }
}
