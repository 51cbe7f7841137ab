/* SPDX-License-Identifier: Apache-2.0 */
/* A process makes a tensor on a GPU and ends; another process goes on using the tensor. */
#include "must.h"

static int produce(tn_domain *domain, void *queue)
{
    const float numbers[] = {1, 2, 42};
    const tn_tensor_options options = {.struct_size = sizeof options,
                                       .device = {TN_DEVICE_CUDA, 0},
                                       .source = numbers,
                                       .source_bytes = sizeof numbers};
    tn_tensor *tensor;
    must(tn_tensor_create(domain, TN_FLOAT32, 1, (int64_t[]){3}, &options, &tensor));
    must(tn_queue_push_tensor(queue, tensor, TN_PUSH_MOVE, TN_FOREVER));
    return 0;
}

int main(void)
{
    tn_domain *domain;
    tn_queue *queue;
    tn_process *process;
    tn_process_status status = {.struct_size = sizeof status};
    tn_tensor *tensor, *here;
    must(tn_domain_open(NULL, NULL, 0, &domain));
    must(tn_queue_open(domain, NULL, NULL, 0, &queue));
    /* Before this process uses a GPU: a child that is forked later could not use it. */
    must(tn_process_fork(domain, produce, queue, 0, &process));
    must(tn_process_wait(process, TN_FOREVER, &status));
    tn_process_close(process);
    if (status.exit_code != 0)
        return 1; /* the child has said why: there may be no GPU */

    must(tn_queue_pop_tensor(queue, TN_NOW, &tensor));
    must(tn_tensor_create_private(TN_FLOAT32, 1, (int64_t[]){3}, &here));
    must(tn_tensor_copy(here, tensor));
    printf("the child has ended, and its tensor on device %d has %g\n",
           tn_tensor_device(tensor).id, (double)((float *)tn_tensor_data(here))[2]);
    tn_tensor_unref(here);
    tn_tensor_unref(tensor);
    tn_object_close(queue);
    tn_domain_close(domain);
    return 0;
}
