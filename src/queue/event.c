/* SPDX-License-Identifier: Apache-2.0 */
/*
 * event: set or not.
 *
 * Word: value is 1 (set) or 0.
 * I1  With auto reset, a waiter passes by the CAS 1 -> 0: one passes for each set at most.
 * I2  The change of the word comes before the wake: who arms later sees the change.
 * Callers: users. Death: between the change and the wake, and of one who was woken and did not
 * pass: the reaper wakes everybody who waits at an object that the dead had open. The set by
 * which the dead had passed is used up.
 */
#include "queue/face.h"
#include "sync/sync.h"

enum { AUTO_RESET = 1u << 0 }; /* in object->flags */

struct tn_event {
    struct tni_handle handle;
};

static int take_handle(int status, void *handle, tn_event **ret_event)
{
    if (status == 0)
        *ret_event = handle;
    return status;
}

int tn_event_create(tn_domain *domain, const char *name, bool auto_reset, tn_event **ret_event)
{
    struct tni_object_spec spec = {
        .kind = TNI_OBJECT_EVENT, .name = name, .flags = auto_reset ? AUTO_RESET : 0};
    void *handle = NULL;
    if (domain == NULL || ret_event == NULL)
        return tni_fail(TN_ERR_INVALID, "tn_event_create: NULL argument");
    int status = tni_object_create(domain, &spec, sizeof(struct tn_event), &handle);
    return take_handle(status, handle, ret_event);
}

int tn_event_open(tn_domain *domain, const char *name, tn_event **ret_event)
{
    void *handle = NULL;
    if (domain == NULL || name == NULL || ret_event == NULL)
        return tni_fail(TN_ERR_INVALID, "tn_event_open: NULL argument");
    int status =
        tni_object_open(domain, TNI_OBJECT_EVENT, name, 0, sizeof(struct tn_event), &handle);
    return take_handle(status, handle, ret_event);
}

int tn_event_open_id(tn_domain *domain, uint64_t id, tn_event **ret_event)
{
    void *handle = NULL;
    if (domain == NULL || ret_event == NULL)
        return tni_fail(TN_ERR_INVALID, "tn_event_open_id: NULL argument");
    int status =
        tni_object_open(domain, TNI_OBJECT_EVENT, NULL, id, sizeof(struct tn_event), &handle);
    return take_handle(status, handle, ret_event);
}

uint64_t tn_event_id(const tn_event *event)
{
    return event != NULL ? tni_object_id(&event->handle) : 0;
}

tn_event *tn_event_close(tn_event *event)
{
    tni_object_close(event != NULL ? &event->handle : NULL);
    return NULL;
}

int tn_event_set(tn_event *event)
{
    int status = tni_face_check((const struct tni_handle *)event);
    if (status != 0)
        return status;
    struct tni_object *object = event->handle.object;
    atomic_exchange(&object->value, 1);
    TNI_KILL_POINT("event_set"); /* I2 */
    tni_wait_notify(&object->items, (object->flags & AUTO_RESET) != 0 ? 1 : INT32_MAX);
    return 0;
}

int tn_event_clear(tn_event *event)
{
    int status = tni_face_check((const struct tni_handle *)event);
    if (status == 0)
        atomic_store(&event->handle.object->value, 0);
    return status;
}

bool tn_event_is_set(const tn_event *event)
{
    return tni_face_check((const struct tni_handle *)event) == 0 &&
           atomic_load(&event->handle.object->value) != 0;
}

static int try_pass(void *context)
{
    struct tni_object *object = context;
    if (atomic_load(&object->value) == 0)
        return TN_ERR_TIMED_OUT;
    if ((object->flags & AUTO_RESET) == 0)
        return 0;
    uint64_t set = 1;
    if (!atomic_compare_exchange_strong(&object->value, &set, 0)) /* I1 */
        return set == 0 ? TN_ERR_TIMED_OUT
                        : tni_fail(TN_ERR_CORRUPT, "event " TNI_NAME_FORMAT " is %llu",
                                   object->name, (unsigned long long)set);
    TNI_KILL_POINT("event_passed");
    return 0;
}

int tn_event_wait(tn_event *event, tn_deadline deadline)
{
    int status = tni_face_check((const struct tni_handle *)event);
    if (status != 0)
        return status;
    struct tni_object *object = event->handle.object;
    return tni_object_wait(&event->handle, &object->items, TNI_SIDE_ANY,
                           tni_spins(&event->handle, &object->items), deadline.ns, try_pass,
                           object);
}
