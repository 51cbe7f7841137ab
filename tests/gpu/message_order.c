/* SPDX-License-Identifier: Apache-2.0 */
/*
 * message_order: tells the fake driver that a push comes before the pop of the same tensor, and
 * tn_event_set() before the tn_event_wait() that it ends. The fake knows only the order that
 * calls of the driver make. A program of one message and one event is linked with --wrap for
 * these functions.
 */
#include <tenon/tenon.h>

#include "fakecuda/fake.h"

enum { MESSAGE = 1, EVENT = 2 };

/* --wrap makes these names. */
/* NOLINTBEGIN(*-reserved-identifier,cert-dcl*,readability-identifier-naming) */
__typeof__(tn_queue_push_tensor) __real_tn_queue_push_tensor, __wrap_tn_queue_push_tensor;
__typeof__(tn_queue_pop_tensor) __real_tn_queue_pop_tensor, __wrap_tn_queue_pop_tensor;
__typeof__(tn_event_set) __real_tn_event_set, __wrap_tn_event_set;
__typeof__(tn_event_wait) __real_tn_event_wait, __wrap_tn_event_wait;

static int received(int status, uint64_t key)
{
    tn_device device;
    if (status != 0)
        return status;
    /* A process that has not begun to use the driver would learn nothing. */
    status = tn_device_find("cuda:0", &device);
    fake_message_received(key);
    return status;
}

int __wrap_tn_queue_push_tensor(tn_queue *queue, tn_tensor *tensor, uint32_t flags,
                                tn_deadline deadline)
{
    fake_message_sent(MESSAGE);
    return __real_tn_queue_push_tensor(queue, tensor, flags, deadline);
}

int __wrap_tn_queue_pop_tensor(tn_queue *queue, tn_deadline deadline, tn_tensor **ret_tensor)
{
    return received(__real_tn_queue_pop_tensor(queue, deadline, ret_tensor), MESSAGE);
}

int __wrap_tn_event_set(tn_event *event)
{
    fake_message_sent(EVENT);
    return __real_tn_event_set(event);
}

int __wrap_tn_event_wait(tn_event *event, tn_deadline deadline)
{
    return received(__real_tn_event_wait(event, deadline), EVENT);
}
/* NOLINTEND(*-reserved-identifier,cert-dcl*,readability-identifier-naming) */
