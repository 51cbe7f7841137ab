/* SPDX-License-Identifier: Apache-2.0 */
/*
 * event: a flag that is set or not set.
 *
 * Word: value is 1 (set) or 0.
 * I1  With auto reset, a waiter passes by the CAS 1 -> 0: at most one waiter passes for
 *     each set.
 * I2  The word changes before the wake-up, so a waiter that arms the wait word later sees the
 *     change.
 * Callers: users. If a setter dies before its wake-up, or a waiter dies after it was woken up
 * and before it passed, the reaper wakes up all waiters at each object that the dead process
 * had open. If a waiter dies after it passed, the set by which it passed is used up.
 */
#include "sync/sync.h"

int tn_event_open(tn_domain *domain, const char *name, uint32_t flags, tn_event **ret_event)
{
    struct tni_object_spec spec = {
        .kind = &tni_event_kind, .name = name, .flags = flags & TN_EVENT_AUTO_RESET};
    spec.wants_flags = spec.flags != 0 || (flags & TN_OPEN_EXISTING) == 0;
    return tni_object_open("tn_event_open", domain, &spec, flags & ~spec.flags, ret_event);
}

int tn_event_set(tn_event *event)
{
    int status = tni_object_check(event, TNI_OBJECT_EVENT);
    if (status != 0)
        return status;
    struct tni_object *object = event->object;
    atomic_exchange(&object->value, 1);
    TNI_KILL_POINT("event_set"); /* I2 */
    tni_wait_notify(&object->items, (object->flags & TN_EVENT_AUTO_RESET) != 0 ? 1 : INT32_MAX);
    return 0;
}

int tn_event_clear(tn_event *event)
{
    int status = tni_object_check(event, TNI_OBJECT_EVENT);
    if (status == 0)
        atomic_store(&event->object->value, 0);
    return status;
}

bool tn_event_is_set(const tn_event *event)
{
    return tni_object_check(event, TNI_OBJECT_EVENT) == 0 &&
           atomic_load(&event->object->value) != 0;
}

static int try_pass(void *context)
{
    struct tni_object *object = context;
    if (atomic_load(&object->value) == 0)
        return TN_ERR_TIMED_OUT;
    if ((object->flags & TN_EVENT_AUTO_RESET) == 0)
        return 0;
    uint64_t set = 1;
    if (!atomic_compare_exchange_strong(&object->value, &set, 0)) /* I1 */
        return set == 0 ? TN_ERR_TIMED_OUT
                        : tni_fail(TN_ERR_CORRUPT,
                                   "the event " TNI_TITLE_FORMAT " has the word %llx",
                                   TNI_TITLE(object->name), (unsigned long long)set);
    TNI_KILL_POINT("event_passed");
    return 0;
}

int tn_event_wait(tn_event *event, tn_deadline deadline)
{
    int status = tni_object_check(event, TNI_OBJECT_EVENT);
    if (status != 0)
        return status;
    struct tni_object *object = event->object;
    return tni_object_wait(event,
                           &(struct tni_awaited){.word = &object->items,
                                                 .side = TNI_SIDE_ANY,
                                                 .spins = tni_spins(event, &object->items),
                                                 .attempt = try_pass,
                                                 .context = object},
                           deadline.ns);
}

const struct tni_kind tni_event_kind = {
    .number = TNI_OBJECT_EVENT,
    .name = "event",
    .handle_bytes = sizeof(struct tn_object),
};
