/* SPDX-License-Identifier: Apache-2.0 */
/* The program of docs/guide/pools.md. */
#undef NDEBUG
#include "must.h"

#include <assert.h>
#include <signal.h>

enum { JOBS = 20, SIZE = 1000 };

/* show: job */
static int double_all(tn_domain *domain, const tn_pool_job *job, tn_message *result,
                      void *context)
{
    (void)context;
    const float *in = tn_tensor_data(job->message->tensors[0]);
    tn_tensor **out = job->room; /* memory for the result's bytes, or, as here, its array */
    int status = tn_tensor_create(domain, TN_FLOAT32, 1, (int64_t[]){SIZE}, NULL, out);
    if (status != 0)
        return status; /* the result's status; tn_error_detail() goes along */
    float *value = tn_tensor_data(*out);
    for (int i = 0; i < SIZE; i++)
        value[i] = 2 * in[i];
    if (job->id == 3 && job->attempt == 1)
        raise(SIGKILL); /* another worker does this job again */
    result->tensors = out;
    result->tensor_count = 1;
    return 0;
}
/* end */

/* show: submit */
static void submit(tn_domain *domain, tn_pool *pool, int n)
{
    tn_tensor *tensor;
    must(tn_tensor_create(domain, TN_FLOAT32, 1, (int64_t[]){SIZE}, NULL, &tensor));
    float *value = tn_tensor_data(tensor);
    for (int i = 0; i < SIZE; i++)
        value[i] = (float)n;
    tn_message job = {.tensors = &tensor, .tensor_count = 1};
    must(tn_pool_submit(pool, &job, TN_PUSH_MOVE, TN_FOREVER, NULL));
}
/* end */

/* show: fetch */
static int fetch(tn_pool *pool)
{
    tn_pool_result result = {.struct_size = sizeof result};
    must(tn_pool_fetch(pool, TN_POOL_ANY_JOB, TN_FOREVER, &result));
    if (result.status < 0)
        fprintf(stderr, "job %llu failed: %s\n", (unsigned long long)result.job, result.detail);
    else
        printf("job %llu: %g, in attempt %u\n", (unsigned long long)result.job,
               (double)*(const float *)tn_tensor_data(result.message.tensors[0]),
               result.attempt);
    int attempts = (int)result.attempt;
    tn_pool_result_fini(&result);
    return attempts;
}
/* end */

int main(void)
{
    tn_domain *domain;
    int attempts = 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    must(tn_domain_open(NULL, NULL, 0, &domain));
    /* show: pool */
    tn_pool *pool;
    must(tn_pool_create(domain, TN_OPTIONS(tn_pool_options, .workers = 4, .attempts = 2),
                        double_all, NULL, &pool));
    for (int n = 0; n < JOBS; n++)
        submit(domain, pool, n);
    must(tn_pool_end(pool)); /* no more jobs */
    for (int n = 0; n < JOBS; n++)
        attempts += fetch(pool);
    must(tn_pool_join(pool, TN_FOREVER));
    pool = tn_pool_close(pool);
    /* end */
    assert(attempts == JOBS + 1);
    tn_domain_close(domain);
    return 0;
}
