/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Many producers feed one consumer, with tensors of every strategy side by side. Each producer
 * ends as soon as it has pushed: what it pushed does not need it any more.
 */
#include "must.h"

enum { PRODUCERS = 6, EACH = 50, ELEMENTS = 256 };

static int producer(tn_domain *domain, uint32_t index, void *argument)
{
    tn_queue *queue = argument;
    must(tn_strategy_set(TN_STRATEGY_ARENA + index % 3));
    for (int i = 0; i < EACH; i++) {
        tn_tensor *tensor;
        must(tn_tensor_create(domain, TN_INT32, 1, (int64_t[]){ELEMENTS},
                              TN_OPTIONS(tn_tensor_options, .deadline = TN_FOREVER), &tensor));
        int32_t *element = tn_tensor_data(tensor);
        for (int e = 0; e < ELEMENTS; e++)
            element[e] = (int32_t)index;
        must(tn_queue_push_tensor(queue, tensor, TN_PUSH_MOVE, TN_FOREVER));
    }
    return 0;
}

int main(void)
{
    tn_domain *domain;
    tn_queue *queue;
    tn_group *group;
    int64_t sum = 0;
    int received[4] = {0};
    must(tn_domain_open(NULL, NULL, 0, &domain));
    must(tn_queue_open(domain, NULL, NULL, 0, &queue));
    must(tn_group_create(domain, &group));
    must(tn_group_fork(group, PRODUCERS, producer, queue));
    for (int i = 0; i < PRODUCERS * EACH; i++) {
        tn_tensor *tensor;
        must(tn_queue_pop_tensor(queue, TN_FOREVER, &tensor));
        const int32_t *element = tn_tensor_data(tensor);
        for (int e = 0; e < ELEMENTS; e++)
            sum += element[e];
        tn_tensor_info info = {.struct_size = sizeof info};
        must(tn_tensor_get_info(tensor, &info));
        received[info.strategy]++;
        tn_tensor_unref(tensor);
    }
    must(tn_group_wait(group, 0, TN_FOREVER, NULL));
    printf("%d by arena, %d by file_descriptor, %d by file_system, sum %lld\n", received[1],
           received[2], received[3], (long long)sum);
    tn_group_close(group);
    tn_object_close(queue);
    tn_domain_close(domain);
    return 0;
}
