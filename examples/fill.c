/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One process fills another one's 5 x 5 tensor with 5 and signals.
 *
 * Lifetime by events: the owner keeps its tensor until the other side has said that it is done.
 */
#include "must.h"

static int filler(tn_domain *domain, void *argument)
{
    tn_queue *queue = argument;
    tn_event *done;
    tn_tensor *tensor;
    must(tn_event_open(domain, "done", TN_OPEN_EXISTING, &done));
    must(tn_queue_pop_tensor(queue, TN_FOREVER, &tensor));
    float *element = tn_tensor_data(tensor);
    for (int64_t i = 0; i < tn_tensor_count(tensor); i++)
        element[i] = 5;
    tn_tensor_unref(tensor);
    must(tn_event_set(done));
    tn_object_close(done);
    return 0;
}

int main(void)
{
    tn_domain *domain;
    tn_queue *queue;
    tn_event *done;
    tn_process *process;
    tn_tensor *tensor;
    must(tn_domain_open(NULL, NULL, 0, &domain));
    must(tn_queue_open(domain, NULL, NULL, 0, &queue));
    must(tn_event_open(domain, "done", TN_OPEN_NEW, &done));
    must(tn_tensor_create(domain, TN_FLOAT32, 2, (int64_t[]){5, 5},
                          TN_OPTIONS(tn_tensor_options, .flags = TN_TENSOR_ZEROED), &tensor));
    must(tn_process_fork(domain, filler, queue, 0, &process));
    must(tn_queue_push_tensor(queue, tensor, 0, TN_FOREVER));
    must(tn_event_wait(done, tn_deadline_after(10 * UINT64_C(1000000000))));
    const float *element = tn_tensor_data(tensor);
    float sum = 0;
    for (int64_t i = 0; i < tn_tensor_count(tensor); i++)
        sum += element[i];
    printf("25 elements, each %g\n", (double)sum / 25);
    tn_tensor_unref(tensor);
    must(tn_process_wait(process, TN_FOREVER, NULL));
    tn_process_close(process);
    tn_object_close(done);
    tn_object_close(queue);
    tn_domain_close(domain);
    return 0;
}
