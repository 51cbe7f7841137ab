/* SPDX-License-Identifier: Apache-2.0 */
/*
 * follow: lets messages follow a stream: tn_queue_set_stream(). A forked child has no streams,
 * so its messages go as they are.
 */
#include "queue/follow.h"

static bool is_followed(const struct tni_queue *q, const tn_tensor *t)
{
    tn_device device = t != NULL ? tni_tensor_device(t) : (tn_device){0, 0};
    return device.type == q->device.type && device.id == q->device.id;
}

int tni_queue_record_all(const struct tni_queue *q, const tn_message *m)
{
    for (uint32_t i = 0; m->tensors != NULL && i < m->tensor_count; i++) {
        if (!is_followed(q, m->tensors[i]))
            continue;
        int status = tn_tensor_record(m->tensors[i], q->stream);
        if (status != 0 && status != TN_ERR_FORKED)
            return status;
    }
    return 0;
}

int tni_queue_check_stream(const struct tni_queue *q)
{
    const struct tni_memory_kind *kind = tni_memory_kind(q->device.type);
    int status = kind->check_stream(kind, q->device.id, q->stream);
    return status == TN_ERR_INVALID ? status : 0;
}

void tni_queue_await_all(const struct tni_queue *q, tn_tensor *const *tensors, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (is_followed(q, tensors[i]))
            tni_tensor_await_somehow(tensors[i], q->stream);
}

int tn_queue_set_stream(tn_queue *queue, tn_device device, void *stream)
{
    int status = tni_object_check(queue, TNI_OBJECT_QUEUE);
    struct tni_queue *q = tni_queue_of(queue);
    if (status == 0 && device.type == TN_DEVICE_CPU)
        status = tni_fail(TN_ERR_UNSUPPORTED, "the device is the CPU, which has no streams");
    if (status == 0 && device.type != 0)
        status = tni_device_check(device);
    if (status != 0)
        return status;
    if (q == NULL)
        __builtin_unreachable(); /* NULL is an error of tni_object_check() */
    q->device = device;
    q->stream = stream;
    return 0;
}
