/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One process fills another one's tensor on a GPU with 5 and signals.
 *
 * Lifetime by events: the owner keeps its tensor until the other side has said that it is done.
 * The GPU does its work later than it is given, so the other side waits for it before it says
 * so.
 */
#include "must.h"

enum { COUNT = 25 };

/* A private tensor of the host. */
static tn_tensor *on_host(float value)
{
    tn_tensor *tensor;
    must(tn_tensor_create_private(TN_FLOAT32, 1, (int64_t[]){COUNT}, &tensor));
    for (int64_t i = 0; i < COUNT; i++)
        ((float *)tn_tensor_data(tensor))[i] = value;
    return tensor;
}

static int filler(tn_domain *domain, void *queue)
{
    tn_event *done;
    tn_tensor *tensor, *fives = on_host(5);
    must(tn_event_open(domain, "done", TN_OPEN_EXISTING, &done));
    must(tn_queue_pop_tensor(queue, TN_FOREVER, &tensor));
    must(tn_tensor_copy_on(tensor, fives, NULL)); /* or a kernel on any stream */
    must(tn_device_wait(tn_tensor_device(tensor), NULL));
    tn_tensor_unref(tensor);
    must(tn_event_set(done));
    tn_tensor_unref(fives);
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
    /* Before this process uses a GPU: a child that is forked later could not use it. */
    must(tn_process_fork(domain, filler, queue, 0, &process));

    const tn_tensor_options options = {.struct_size = sizeof options,
                                       .flags = TN_TENSOR_ZEROED,
                                       .device = {TN_DEVICE_CUDA, 0}};
    must(tn_tensor_create(domain, TN_FLOAT32, 1, (int64_t[]){COUNT}, &options, &tensor));
    must(tn_queue_push_tensor(queue, tensor, 0, TN_FOREVER));
    must(tn_event_wait(done, tn_deadline_after(10 * UINT64_C(1000000000))));

    tn_tensor *here = on_host(0), *next = on_host(6);
    must(tn_tensor_copy(here, tensor));
    must(tn_tensor_copy(tensor, next)); /* the memory is the owner's again */
    printf("%d elements, the last one %g\n", COUNT,
           (double)((float *)tn_tensor_data(here))[COUNT - 1]);
    tn_tensor_unref(next);
    tn_tensor_unref(here);
    tn_tensor_unref(tensor);
    must(tn_process_wait(process, TN_FOREVER, NULL));
    tn_process_close(process);
    tn_object_close(done);
    tn_object_close(queue);
    tn_domain_close(domain);
    return 0;
}
