/* SPDX-License-Identifier: Apache-2.0 */
/* Tasks in worker processes: a part of docs/guide/scheduling.md. */
#undef NDEBUG
#include "must.h"

#include <assert.h>
#include <string.h>

enum { CHUNKS = 8, NUMBERS = 1 << 20 };

/* The numbers of a chunk are all 1. */
static int make_chunk(tn_domain *domain, void *room, tn_message *result)
{
    const int64_t shape[] = {NUMBERS};
    tn_tensor **made = room;
    int status = tn_tensor_create(domain, TN_FLOAT64, 1, shape, NULL, &made[0]);
    if (status != 0)
        return status;
    for (int64_t i = 0; i < NUMBERS; i++)
        ((double *)tn_tensor_data(made[0]))[i] = 1;
    result->tensors = made;
    result->tensor_count = 1;
    return TN_TASK_DONE;
}

static double sum_of(const tn_tensor *tensor)
{
    double sum = 0;
    for (int64_t i = 0; i < NUMBERS; i++)
        sum += ((const double *)tn_tensor_data(tensor))[i];
    return sum;
}

/* show: worker */
enum deed { MAKE, SUM };

/* In a worker: make a chunk, or add up the numbers of one. */
static int work(tn_domain *domain, const tn_pool_job *job, tn_message *result, void *context)
{
    enum deed deed;
    (void)context;
    memcpy(&deed, job->message->bytes, sizeof deed);
    if (deed == MAKE)
        return make_chunk(domain, job->room, result);
    *(double *)job->room = sum_of(job->message->tensors[0]); /* not copied: the same memory */
    result->bytes = job->room;
    result->size_bytes = sizeof(double);
    return TN_TASK_DONE;
}
/* end */

/* show: sender */
struct chunk {
    enum deed make, sum;
    tn_tensor *tensor; /* what the first task made, and the second reads */
    double total;
};

/* In this process: what goes to the worker. */
static int send_sum(const tn_task_call *call)
{
    struct chunk *chunk = call->context;
    call->job->bytes = &chunk->sum;
    call->job->size_bytes = sizeof chunk->sum;
    call->job->tensors = &chunk->tensor;
    call->job->tensor_count = 1;
    return TN_TASK_DONE;
}

/* In this process: what came back. */
static int take_sum(const tn_task_call *call, tn_pool_result *result)
{
    struct chunk *chunk = call->context;
    memcpy(&chunk->total, result->message.bytes, sizeof chunk->total);
    return TN_TASK_DONE;
}
/* end */

static int send_make(const tn_task_call *call)
{
    struct chunk *chunk = call->context;
    call->job->bytes = &chunk->make;
    call->job->size_bytes = sizeof chunk->make;
    return TN_TASK_DONE;
}

static int take_chunk(const tn_task_call *call, tn_pool_result *result)
{
    struct chunk *chunk = call->context;
    chunk->tensor = result->message.tensors[0];
    result->message.tensors[0] = NULL;
    return TN_TASK_DONE;
}

static tn_kind *make_kind(tn_sched *sched, tn_pool *pool, tn_task_fn *send,
                          tn_task_take_fn *take)
{
    tn_kind *kind;
    const tn_variant variant = {.run = send, .request = "CPU=1"};
    must(tn_kind_create(sched,
                        TN_OPTIONS(tn_kind_options, .variants = &variant, .variant_count = 1,
                                   .pool = pool, .take = take),
                        &kind));
    return kind;
}

int main(void)
{
    static struct chunk chunks[CHUNKS];
    /* show: run */
    tn_domain *domain;
    tn_pool *pool;
    tn_sched *sched;
    tn_graph *graph;
    must(tn_domain_open(NULL, NULL, 0, &domain));
    must(tn_pool_create(domain, TN_OPTIONS(tn_pool_options, .workers = 2), work, NULL, &pool));
    must(tn_sched_create(TN_OPTIONS(tn_sched_options, .resources = "CPU=2"), &sched));
    tn_kind *makes = make_kind(sched, pool, send_make, take_chunk);
    tn_kind *sums = make_kind(sched, pool, send_sum, take_sum);
    must(tn_graph_create(sched, &graph));
    for (int i = 0; i < CHUNKS; i++) {
        chunks[i] = (struct chunk){.make = MAKE, .sum = SUM};
        const tn_task tasks[] = {{.kind = makes, .context = &chunks[i]},
                                 {.kind = sums, .context = &chunks[i]}};
        const uint64_t inputs[] = {TN_TASK_OF_LIST(0)}, input_ends[] = {0, 1};
        must(tn_graph_add(graph,
                          TN_OPTIONS(tn_task_list, .tasks = tasks, .count = 2,
                                     .input_ends = input_ends, .inputs = inputs),
                          NULL));
    }
    must(tn_graph_wait(graph, TN_FOREVER));
    sched = tn_sched_close(sched); /* first: it uses the pool */
    pool = tn_pool_close(pool);
    /* end */
    for (int i = 0; i < CHUNKS; i++) {
        assert(chunks[i].total == NUMBERS);
        tn_tensor_unref(chunks[i].tensor);
    }
    tn_domain_close(domain);
    return 0;
}
