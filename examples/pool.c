/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Many producers, one consumer: simulators in processes of their own hand states to the main
 * process, which has a pool of two workers evaluate them. The states stay where they are; only
 * a few words travel. One worker is killed by its first job, which another one then does.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <tenon/tenon.h>

enum { SIMULATORS = 3, STATES = 40, SIZE = 1000 };

static void must(int status)
{
    if (status < 0) {
        fprintf(stderr, "%s: %s\n", tn_status_name(status), tn_error_detail());
        exit(1);
    }
}

/* A simulator: make states and push them; the queue owns them from then on. */
static int simulate(tn_domain *domain, uint32_t index, void *states)
{
    int64_t shape = SIZE;
    for (int n = 0; n < STATES; n++) {
        tn_tensor *state;
        must(tn_tensor_create(domain, TN_FLOAT32, 1, &shape, NULL, &state));
        float *value = tn_tensor_data(state);
        for (int i = 0; i < SIZE; i++)
            value[i] = (float)(index + 1);
        must(tn_queue_push_tensor(states, state, TN_PUSH_MOVE, TN_FOREVER));
    }
    return 0;
}

/* In a worker: the mean of a state. */
static int evaluate(tn_domain *domain, const tn_pool_job *job, tn_message *result,
                    void *context)
{
    (void)domain, (void)context;
    if (job->id == 1 && job->attempt == 1)
        raise(SIGKILL);
    const float *value = tn_tensor_data(job->message->tensors[0]);
    double *mean = job->room;
    *mean = 0;
    for (int i = 0; i < SIZE; i++)
        *mean += (double)value[i] / SIZE;
    result->bytes = mean;
    result->size_bytes = sizeof *mean;
    return 0;
}

static void submit(tn_pool *pool, tn_queue *states)
{
    tn_message message;
    must(tn_queue_pop(states, TN_FOREVER, &message));
    must(tn_pool_submit(pool, &message, 0, TN_FOREVER, NULL));
    tn_message_fini(&message);
}

static double fetch(tn_pool *pool, uint32_t *attempts)
{
    tn_pool_result result = {.struct_size = sizeof result};
    must(tn_pool_fetch(pool, TN_POOL_ANY_JOB, TN_FOREVER, &result));
    if (result.status != 0) {
        fprintf(stderr, "job %llu: %s\n", (unsigned long long)result.job, result.detail);
        exit(1);
    }
    double mean = *(const double *)result.message.bytes;
    *attempts += result.attempt;
    tn_pool_result_fini(&result);
    return mean;
}

int main(void)
{
    tn_domain *domain;
    tn_queue *states;
    tn_group *simulators;
    tn_pool *pool;
    tn_pool_options options = {.struct_size = sizeof options, .workers = 2};
    double sum = 0;
    uint32_t attempts = 0;
    must(tn_domain_open(NULL, NULL, 0, &domain));
    must(tn_queue_open(domain, NULL, NULL, 0, &states));
    must(tn_pool_create(domain, &options, evaluate, NULL, &pool));
    must(tn_group_create(domain, &simulators));
    must(tn_group_fork(simulators, SIMULATORS, simulate, states));
    for (int n = 0; n < SIMULATORS * STATES; n++)
        submit(pool, states);
    must(tn_group_wait(simulators, 0, TN_FOREVER, NULL));
    must(tn_pool_end(pool));
    for (int n = 0; n < SIMULATORS * STATES; n++)
        sum += fetch(pool, &attempts);
    must(tn_pool_join(pool, TN_FOREVER));
    printf("%d states in %u attempts, mean %.3f\n", SIMULATORS * STATES, attempts,
           sum / (SIMULATORS * STATES));
    tn_pool_close(pool);
    tn_group_close(simulators);
    tn_object_close(states);
    tn_domain_close(domain);
    return 0;
}
