/* SPDX-License-Identifier: Apache-2.0 */
/* show: camera */
#include "tutorial.h"

enum { FRAMES = 60, ROOM = 4, ROUNDS = 600 };

static int film(tn_domain *domain, void *argument)
{
    tn_queue *queue = argument;
    int dropped = 0;
    for (int number = 1; number <= FRAMES; number++) {
        tn_deadline next = tn_deadline_after(TN_SECOND / 100); /* when the next frame is due */
        tn_tensor *frame;
        must(tn_tensor_create(domain, TN_UINT8, 2, (int64_t[]){HEIGHT, WIDTH}, NULL, &frame));
        draw_frame(tn_tensor_data(frame), number);
        int status = tn_queue_push_tensor(queue, frame, TN_PUSH_MOVE, next);
        if (status == TN_ERR_TIMED_OUT) { /* the queue is full, and this frame is late */
            tn_tensor_unref(frame);       /* a push that fails consumes nothing */
            dropped++;
        } else {
            must(status);
        }
    }
    must(tn_queue_end(queue)); /* no frame comes any more */
    return dropped;            /* the exit code of this process */
}
/* end */

/* show: main */
int main(void)
{
    tn_domain *domain;
    tn_queue *queue;
    tn_process *camera;
    tn_process_status end = {.struct_size = sizeof end};
    tn_tensor *frame;
    int status, count = 0;
    must(tn_domain_open(NULL, NULL, 0, &domain));
    must(
        tn_queue_open(domain, NULL, TN_OPTIONS(tn_queue_options, .capacity = ROOM), 0, &queue));
    must(tn_process_fork(domain, film, queue, 0, &camera));
    while ((status = tn_queue_pop_tensor(queue, tn_deadline_after(5 * TN_SECOND), &frame)) ==
           0) {
        for (int round = 0; round < ROUNDS; round++)
            read_digit(frame);
        count++;
        tn_tensor_unref(frame);
    }
    if (status == TN_ERR_PEER_DIED)
        printf("the camera, process %d, was killed\n", tn_error_peer().pid);
    else if (status != TN_ERR_CLOSED) /* CLOSED: the queue was ended, and is empty */
        must(status);
    must(tn_process_wait(camera, TN_FOREVER, &end));
    printf("%d frames were read, %d were dropped\n", count, end.exit_code);
    tn_process_close(camera);
    tn_object_close(queue);
    tn_domain_close(domain);
    return 0;
}
/* end */
