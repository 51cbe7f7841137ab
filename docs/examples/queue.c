/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of tenon/queue.h. */
#undef NDEBUG
#include "must.h"

#include <assert.h>

static void push_and_pop(tn_domain *domain)
{
    /* show: tn_queue_open */
    tn_queue *queue; /* whichever process comes first makes it */
    must(tn_queue_open(domain, "frames", TN_OPTIONS(tn_queue_options, .capacity = 64), 0,
                       &queue));
    /* end */

    tn_tensor *image, *mask;
    must(tn_tensor_create(domain, TN_UINT8, 2, (int64_t[]){480, 640}, NULL, &image));
    must(tn_tensor_create(domain, TN_BOOL, 2, (int64_t[]){480, 640}, NULL, &mask));
    /* show: tn_queue_push */
    tn_tensor *tensors[] = {image, mask};
    tn_message frame = {
        .bytes = "frame 1", .size_bytes = 7, .tensors = tensors, .tensor_count = 2};
    must(tn_queue_push(queue, &frame, TN_PUSH_MOVE, TN_FOREVER));
    /* Both references belong to the message now: this process does not use image and mask. */
    /* end */

    /* show: tn_queue_pop tn_message_fini */
    tn_message message;
    int status = tn_queue_pop(queue, tn_deadline_after(5 * TN_SECOND), &message);
    if (status == TN_ERR_TIMED_OUT)
        printf("no frame came for five seconds\n");
    else if (must(status) == 0) {
        const uint8_t *pixel = tn_tensor_data(message.tensors[0]);
        printf("%.*s begins with %d\n", (int)message.size_bytes, (const char *)message.bytes,
               pixel[0]);
        tn_message_fini(&message); /* gives bytes and tensors back */
    }
    /* end */

    /* show: tn_queue_push_tensor tn_queue_pop_tensor */
    must(tn_tensor_create(domain, TN_FLOAT32, 1, (int64_t[]){1000}, NULL, &image));
    must(tn_queue_push_tensor(queue, image, 0, TN_FOREVER)); /* keeps our reference */
    image = tn_tensor_unref(image);
    must(tn_queue_pop_tensor(queue, TN_FOREVER, &image)); /* in any process */
    /* end */
    tn_tensor_unref(image);

    /* show: tn_queue_push_many tn_queue_pop_many */
    tn_message batch[16] = {{.bytes = "a", .size_bytes = 1}, {.bytes = "b", .size_bytes = 1}};
    int pushed = must(tn_queue_push_many(queue, batch, 2, 0, TN_FOREVER));
    int popped = must(tn_queue_pop_many(queue, 16, TN_FOREVER, batch)); /* 1 to 16 */
    for (int i = 0; i < popped; i++)
        tn_message_fini(&batch[i]);
    /* end */
    assert(pushed == 2 && popped == 2);

    /* show: tn_queue_attach tn_queue_count tn_queue_get_info */
    must(tn_queue_attach(queue, TN_CONSUMER)); /* before the first pop */
    tn_queue_info info = {.struct_size = sizeof info};
    must(tn_queue_get_info(queue, &info));
    printf("%u of %u messages, %u other processes push\n", tn_queue_count(queue), info.capacity,
           info.other_producers);
    /* end */

    /* show: tn_queue_set_stream */
    tn_device device;
    if (tn_device_find("cuda:0", &device) == 0)
        must(tn_queue_set_stream(queue, device, NULL)); /* NULL: the default stream */
    /* end */

    /* show: tn_queue_end */
    must(tn_queue_end(queue)); /* what is in the queue can still be popped */
    assert(tn_queue_push(queue, &batch[0], 0, TN_NOW) == TN_ERR_CLOSED);
    assert(tn_queue_pop(queue, TN_FOREVER, &message) == TN_ERR_CLOSED);
    /* end */
    tn_object_close(queue);
}

static void lease(tn_domain *domain)
{
    tn_queue *jobs;
    tn_message job;
    must(tn_queue_open(domain, "jobs", TN_OPTIONS(tn_queue_options, .policy = TN_QUEUE_LEASE),
                       0, &jobs));
    must(tn_queue_push(jobs, &(tn_message){.bytes = "job", .size_bytes = 3}, 0, TN_NOW));
    bool is_busy = true;
    /* show: tn_message_ack tn_message_return */
    must(tn_queue_pop(jobs, TN_FOREVER, &job)); /* of a queue with TN_QUEUE_LEASE */
    if (is_busy && job.attempt < 3)
        must(tn_message_return(jobs, &job)); /* another consumer gets it */
    else
        must(tn_message_ack(jobs, &job)); /* done: it does not come again */
    tn_message_fini(&job);
    /* end */
    must(tn_queue_pop(jobs, TN_FOREVER, &job));
    assert(job.attempt == 1);
    must(tn_message_ack(jobs, &job));
    tn_message_fini(&job);
    tn_object_close(jobs);
}

int main(void)
{
    tn_domain *domain;
    must(tn_domain_open(NULL, NULL, 0, &domain));
    push_and_pop(domain);
    lease(domain);
    tn_domain_close(domain);
    return 0;
}
