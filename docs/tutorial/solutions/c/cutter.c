/* SPDX-License-Identifier: Apache-2.0 */
/* The first exercise: takes whole frames, and pushes views of their digits. */
#include "tutorial.h"

#include <unistd.h>

static void cut(tn_message *message, tn_queue *crops)
{
    tn_tensor *frame = message->tensors[0], *rows;
    tn_tensor *parts[2] = {NULL, message->tensors[1]};
    finding found = read_picture(tn_tensor_data(frame), HEIGHT, WIDTH, WIDTH);
    int64_t top = found.top * CELL, left = found.left * CELL;
    must(tn_tensor_slice(frame, 0, top, top + DIGIT_ROWS * CELL, 1, &rows));
    must(tn_tensor_slice(rows, 1, left, left + DIGIT_COLUMNS * CELL, 1, &parts[0]));
    tn_message crop = {.tensors = parts, .tensor_count = 2};
    must(tn_queue_push(crops, &crop, 0, TN_FOREVER));
    tn_tensor_unref(parts[0]);
    tn_tensor_unref(rows);
}

/* The worker may be started late: without this process the queue would end with its messages.
 */
static void wait_until_empty(tn_queue *crops)
{
    for (int i = 0; i < 3000 && tn_queue_count(crops) > 0; i++)
        usleep(10000); /* 30 seconds in all, as long as the camera waits */
}

int main(void)
{
    tn_domain *domain;
    tn_queue *frames, *crops;
    tn_message message;
    int status;
    tn_queue_options options = {
        .struct_size = sizeof options, .capacity = 16, .policy = TN_QUEUE_LEASE};
    must(tn_domain_open("line", NULL, 0, &domain));
    must(tn_queue_open(domain, "frames", &options, 0, &frames));
    must(tn_queue_open(domain, "crops", &options, 0, &crops));
    while ((status = tn_queue_pop(frames, TN_FOREVER, &message)) == 0) {
        cut(&message, crops);
        must(tn_message_ack(frames, &message));
        tn_message_fini(&message);
    }
    if (status != TN_ERR_CLOSED && status != TN_ERR_PEER_DIED) /* ended, or the camera died */
        must(status);
    must(tn_queue_end(crops));
    wait_until_empty(crops);
    tn_object_close(crops);
    tn_object_close(frames);
    tn_domain_close(domain);
    return 0;
}
