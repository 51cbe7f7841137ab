/* SPDX-License-Identifier: Apache-2.0 */
/* show: send */
#include "tutorial.h"

#include <string.h>

static void send_frame(tn_domain *domain, tn_queue *frames, int32_t number)
{
    tn_tensor *parts[2]; /* the picture, and its number */
    must(tn_tensor_create(domain, TN_UINT8, 2, (int64_t[]){HEIGHT, WIDTH}, NULL, &parts[0]));
    must(tn_tensor_create(domain, TN_INT32, 1, (int64_t[]){1}, NULL, &parts[1]));
    draw_frame(tn_tensor_data(parts[0]), number);
    *(int32_t *)tn_tensor_data(parts[1]) = number;
    tn_message message = {.tensors = parts, .tensor_count = 2};
    int status;
    do /* the last worker may die while the queue is full: another one may come */
        status = tn_queue_push(frames, &message, TN_PUSH_MOVE, TN_FOREVER);
    while (status == TN_ERR_PEER_DIED);
    must(status);
}
/* end */

/* show: collect */
/* Count the readings that have come, each frame once. */
static int collect(tn_queue *readings, tn_deadline deadline, char *is_read, int *right)
{
    tn_message message;
    int status = tn_queue_pop(readings, deadline, &message);
    if (status != 0)
        return status;
    const int32_t *reading = tn_tensor_data(message.tensors[0]); /* number, digit, process */
    if (!is_read[reading[0]]) { /* it comes twice if its worker died before it acknowledged */
        is_read[reading[0]] = 1;
        *right += reading[1] == digit_of(reading[0]);
    }
    tn_message_fini(&message);
    return 0;
}
/* end */

/* show: main */
int main(int argc, char **argv)
{
    int count = argc > 1 ? atoi(argv[1]) : 1000, right = 0;
    const char *name = argc > 2 ? argv[2] : "frames";
    char *is_read = calloc((size_t)count + 1, 1);
    tn_domain *domain;
    tn_queue *frames, *readings;
    must(tn_domain_open("line", NULL, 0, &domain));
    must(tn_queue_open(domain, name,
                       TN_OPTIONS(tn_queue_options, .capacity = 16, .policy = TN_QUEUE_LEASE),
                       0, &frames));
    must(tn_queue_open(domain, "readings", TN_OPTIONS(tn_queue_options, .capacity = 1024), 0,
                       &readings));
    for (int number = 1; number <= count; number++) {
        send_frame(domain, frames, number);
        while (collect(readings, TN_NOW, is_read, &right) == 0)
            continue;
    }
    must(tn_queue_end(frames)); /* workers take what is left, and end */
    while (memchr(is_read + 1, 0, (size_t)count) != NULL) {
        int status = collect(readings, tn_deadline_after(30 * TN_SECOND), is_read, &right);
        if (status != TN_ERR_PEER_DIED)
            must(status);
    }
    printf("%d of %d frames were read right\n", right, count);
    tn_object_close(frames);
    tn_object_close(readings);
    tn_domain_close(domain);
    free(is_read);
    return 0;
}
/* end */
