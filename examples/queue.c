/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <tenon/tenon.h>

static void must(int status)
{
    if (status < 0) {
        fprintf(stderr, "%s: %s\n", tn_status_name(status), tn_error_detail());
        exit(1);
    }
}

static int child(tn_domain *domain, void *queue)
{
    (void)domain;
    tn_tensor *tensor;
    must(tn_queue_pop_tensor(queue, TN_FOREVER, &tensor));
    float *value = tn_tensor_data(tensor); /* the parent's memory, not a copy of it */
    value[1] = 2 * value[0];
    tn_tensor_unref(tensor);
    return 0;
}

int main(void)
{
    tn_domain *domain;
    tn_queue *queue;
    tn_process *process;
    tn_tensor *tensor;
    tn_process_status end = {.struct_size = sizeof end};
    must(tn_domain_open(NULL, NULL, 0, &domain));
    must(tn_queue_open(domain, NULL, NULL, 0, &queue));
    must(tn_process_fork(domain, child, queue, 0, &process));
    must(tn_tensor_create(domain, TN_FLOAT32, 2, (int64_t[]){2, 3},
                          TN_OPTIONS(tn_tensor_options, .flags = TN_TENSOR_ZEROED), &tensor));
    float *value = tn_tensor_data(tensor);
    value[0] = 21;
    must(tn_queue_push_tensor(queue, tensor, 0, TN_FOREVER));
    must(tn_process_wait(process, TN_FOREVER, &end));
    printf("parent wrote %g, child wrote %g\n", (double)value[0], (double)value[1]);
    tn_process_close(process);
    tn_tensor_unref(tensor);
    tn_object_close(queue);
    tn_domain_close(domain);
    return end.exit_code;
}
