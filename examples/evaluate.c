/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Four processes evaluate one shared model, each on rows of its own.
 *
 * The model is published in a write-once arena: one copy, which no reader can change. Its
 * memory is released by reference counts: each process releases what it has, in any order.
 */
#include <string.h>

#include "must.h"

enum { WORKERS = 4, ROWS = 64, INPUTS = 16, OUTPUTS = 4 };

struct shared {
    tn_queue *queue; /* to each worker: weights, bias, rows, results */
};

static void evaluate(const float *weights, const float *bias, const float *row, float *result)
{
    for (int o = 0; o < OUTPUTS; o++) {
        result[o] = bias[o];
        for (int i = 0; i < INPUTS; i++)
            result[o] += weights[o * INPUTS + i] * row[i];
    }
}

static int worker(tn_domain *domain, uint32_t index, void *argument)
{
    const struct shared *shared = argument;
    tn_message message;
    (void)domain;
    must(tn_queue_pop(shared->queue, TN_FOREVER, &message));
    const float *weights = tn_tensor_data(message.tensors[0]);
    const float *bias = tn_tensor_data(message.tensors[1]);
    const float *rows = tn_tensor_data(message.tensors[2]);
    float *results = tn_tensor_data(message.tensors[3]);
    for (uint32_t row = index; row < ROWS; row += WORKERS)
        evaluate(weights, bias, rows + row * INPUTS, results + row * OUTPUTS);
    tn_tensor_info info = {.struct_size = sizeof info};
    must(tn_tensor_get_info(message.tensors[0], &info));
    tn_message_fini(&message);
    return info.is_read_only ? 0 : 1;
}

int main(void)
{
    struct shared shared;
    tn_domain *domain;
    tn_arena *model;
    tn_group *group;
    tn_tensor *tensors[4];
    must(tn_domain_open(NULL, NULL, 0, &domain));
    must(tn_queue_open(domain, NULL, NULL, 0, &shared.queue));
    must(tn_arena_create(domain, 4096, TN_NOW, &model));
    must(tn_arena_allocate(model, TN_FLOAT32, 2, (int64_t[]){OUTPUTS, INPUTS}, &tensors[0]));
    must(tn_arena_allocate(model, TN_FLOAT32, 1, (int64_t[]){OUTPUTS}, &tensors[1]));
    must(tn_tensor_create(domain, TN_FLOAT32, 2, (int64_t[]){ROWS, INPUTS},
                          TN_OPTIONS(tn_tensor_options, .flags = TN_TENSOR_ZEROED),
                          &tensors[2]));
    must(tn_tensor_create(domain, TN_FLOAT32, 2, (int64_t[]){ROWS, OUTPUTS},
                          TN_OPTIONS(tn_tensor_options, .flags = TN_TENSOR_ZEROED),
                          &tensors[3]));
    float *weights = tn_tensor_data(tensors[0]), *bias = tn_tensor_data(tensors[1]);
    float *rows = tn_tensor_data(tensors[2]);
    const float *results = tn_tensor_data(tensors[3]);
    for (int i = 0; i < OUTPUTS * INPUTS; i++)
        weights[i] = (float)(i % 7) - 3;
    for (int o = 0; o < OUTPUTS; o++)
        bias[o] = (float)o;
    for (int i = 0; i < ROWS * INPUTS; i++)
        rows[i] = (float)(i % 11);

    must(tn_group_create(domain, &group));
    must(tn_group_fork(group, WORKERS, worker, &shared));
    for (int i = 0; i < WORKERS; i++)
        must(tn_queue_push(shared.queue, &(tn_message){.tensors = tensors, .tensor_count = 4},
                           0, TN_FOREVER));
    must(tn_group_wait(group, 0, TN_FOREVER, NULL));

    int right = 0;
    for (int row = 0; row < ROWS; row++) {
        float wanted[OUTPUTS];
        evaluate(weights, bias, rows + row * INPUTS, wanted);
        right += memcmp(wanted, results + row * OUTPUTS, sizeof wanted) == 0;
    }
    printf("%d processes, one model, %d of %d rows right\n", WORKERS, right, ROWS);
    tn_group_close(group);
    for (int i = 0; i < 4; i++)
        tn_tensor_unref(tensors[i]);
    tn_arena_close(model);
    tn_object_close(shared.queue);
    tn_domain_close(domain);
    return right != ROWS;
}
