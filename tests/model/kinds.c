/* SPDX-License-Identifier: Apache-2.0 */
/* The kinds of objects that models make; src/store/kinds.c has all kinds. */
#include "model/tiny.h"

static bool has_more(const struct tn_object *handle)
{
    return tni_ring_has_more(tni_queue_of(handle));
}

static int begin_wait(struct tn_object *handle)
{
    tni_object_take_role(handle, TN_CONSUMER);
    return 0;
}

static bool is_ready(struct tn_object *handle)
{
    return tni_ring_is_ready(tni_queue_of(handle));
}

static const struct tni_kind queue = {
    .number = TNI_OBJECT_QUEUE,
    .name = "queue",
    .handle_bytes = sizeof(struct tni_queue),
    .reclaim_seat = tni_ring_reclaim_seat,
    .end = tni_ring_end,
    .begin_wait = begin_wait,
    .is_ready = is_ready,
    .has_more = has_more,
};

static const struct tni_kind event = {
    .number = TNI_OBJECT_EVENT, .name = "event", .handle_bytes = sizeof(struct tn_object)};

static const struct tni_kind *const kinds[TNI_OBJECT_KINDS] = {
    [TNI_OBJECT_QUEUE] = &queue,
    [TNI_OBJECT_EVENT] = &event,
};

void tiny_set_kinds(struct tn_domain *d) { tni_object_set_kinds(d, kinds); }
