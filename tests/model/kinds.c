/* SPDX-License-Identifier: Apache-2.0 */
/* Models: the kinds of objects that they make, as src/queue/kinds.c has them all. */
#include "queue/ring.h"

static bool has_more(const struct tn_object *handle)
{
    return tni_ring_has_more(tni_queue_of(handle));
}

static const struct tni_kind queue = {
    .number = TNI_OBJECT_QUEUE,
    .name = "queue",
    .handle_bytes = sizeof(struct tni_queue),
    .settle_seat = tni_ring_settle_seat,
    .end = tni_ring_end,
    .count_records = tni_ring_count_records,
    .for_each_record = tni_ring_for_each_record,
    .has_more = has_more,
};

static const struct tni_kind event = {
    .number = TNI_OBJECT_EVENT, .name = "event", .handle_bytes = sizeof(struct tn_object)};

const struct tni_kind *tni_kind_of(uint32_t number)
{
    return number == TNI_OBJECT_QUEUE ? &queue : number == TNI_OBJECT_EVENT ? &event : NULL;
}
