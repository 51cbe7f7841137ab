/* SPDX-License-Identifier: Apache-2.0 */
/* show: child */
#include "tutorial.h"

static int look(tn_domain *domain, void *argument)
{
    (void)domain;
    tn_queue *queue = argument; /* a forked child may use what its parent opened */
    tn_tensor *frame;
    must(tn_queue_pop_tensor(queue, TN_FOREVER, &frame));
    printf("the child sees a %d\n", read_digit(frame));
    ((uint8_t *)tn_tensor_data(frame))[0] =
        255; /* its first pixel, in the one memory of both */
    tn_tensor_unref(frame);
    return 0;
}
/* end */

/* show: parent */
int main(void)
{
    tn_domain *domain;
    tn_queue *queue;
    tn_tensor *frame;
    tn_process *child;
    must(tn_domain_open(NULL, NULL, 0, &domain));
    must(tn_queue_open(domain, NULL, NULL, 0, &queue));
    must(tn_process_fork(domain, look, queue, 0, &child));
    must(tn_tensor_create(domain, TN_UINT8, 2, (int64_t[]){HEIGHT, WIDTH}, NULL, &frame));
    draw_frame(tn_tensor_data(frame), 3);
    must(tn_queue_push_tensor(queue, frame, 0, TN_FOREVER));
    must(tn_process_wait(child, TN_FOREVER, NULL));
    printf("the parent reads the child's pixel: %d\n", ((uint8_t *)tn_tensor_data(frame))[0]);
    tn_process_close(child);
    tn_tensor_unref(frame);
    tn_object_close(queue);
    tn_domain_close(domain);
    return 0;
}
/* end */
