/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kinds: the list of all kinds of objects.
 *
 * Callers: each process that joins a domain. Death: the table is constant.
 */
#include "channel/channel.h"
#include "store/table.h"

_Static_assert((int)TN_OBJECT_QUEUE == (int)TNI_OBJECT_QUEUE &&
                   (int)TN_OBJECT_STORE == (int)TNI_OBJECT_STORE &&
                   (int)TN_OBJECT_CHANNEL + 1 == (int)TNI_OBJECT_KINDS,
               "the numbers of the API are those of the shared layout");

static const struct tni_kind *const kinds[TNI_OBJECT_KINDS] = {
    [TNI_OBJECT_QUEUE] = &tni_queue_kind,         [TNI_OBJECT_EVENT] = &tni_event_kind,
    [TNI_OBJECT_SEMAPHORE] = &tni_semaphore_kind, [TNI_OBJECT_LOCK] = &tni_lock_kind,
    [TNI_OBJECT_CONDITION] = &tni_condition_kind, [TNI_OBJECT_BARRIER] = &tni_barrier_kind,
    [TNI_OBJECT_STORE] = &tni_store_kind,         [TNI_OBJECT_CHANNEL] = &tni_channel_kind,
};

void tni_store_set_kinds(struct tn_domain *d) { tni_object_set_kinds(d, kinds); }

void tni_store_init(struct tn_domain *d)
{
    tni_store_set_kinds(d);
    tni_object_init(d);
}
