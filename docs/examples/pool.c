/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of tenon/pool.h. */
#undef NDEBUG
#include "must.h"

#include <assert.h>
#include <signal.h>

/* show: tn_pool_create */
static int square(tn_domain *domain, const tn_pool_job *job, tn_message *result, void *context)
{
    (void)domain, (void)context;
    const double *number = job->message->bytes;
    double *answer = job->room; /* it lasts until the next job */
    *answer = *number * *number;
    result->bytes = answer;
    result->size_bytes = sizeof *answer;
    return 0;
}

static tn_pool *make_pool(tn_domain *domain)
{
    tn_pool *pool;
    must(
        tn_pool_create(domain, TN_OPTIONS(tn_pool_options, .workers = 2), square, NULL, &pool));
    return pool;
}
/* end */

static void run_jobs(tn_pool *pool)
{
    /* show: tn_pool_submit */
    uint64_t job;
    double number = 12;
    must(tn_pool_submit(pool, &(tn_message){.bytes = &number, .size_bytes = sizeof number}, 0,
                        TN_FOREVER, &job));
    /* end */

    /* show: tn_pool_fetch tn_pool_result_fini */
    tn_pool_result result = {.struct_size = sizeof result};
    must(tn_pool_fetch(pool, job, TN_FOREVER, &result));
    if (result.status < 0)
        printf("job %llu: %s\n", (unsigned long long)result.job, result.detail);
    else
        printf("12 * 12 = %g\n", *(const double *)result.message.bytes);
    tn_pool_result_fini(&result);
    /* end */

    /* show: tn_pool_get_info */
    tn_pool_info info = {.struct_size = sizeof info};
    must(tn_pool_get_info(pool, &info));
    for (uint32_t i = 0; i < info.worker_count; i++)
        printf("worker %u is process %d\n", i, info.worker_pids[i]);
    /* end */

    /* show: tn_pool_end tn_pool_join tn_pool_close */
    must(tn_pool_end(pool)); /* no more jobs */
    must(tn_pool_join(pool, TN_FOREVER));
    pool = tn_pool_close(pool);
    /* end */
}

static void use_program(tn_domain *domain, const char *program)
{
    tn_pool *pool;
    must(tn_pool_create(domain,
                        TN_OPTIONS(tn_pool_options, .workers = 1, .start = TN_START_SPAWN,
                                   .argv = (const char *[]){program, "worker", NULL}),
                        NULL, NULL, &pool));
    run_jobs(pool);
}

static int be_program(void)
{
    /* show: tn_pool_serve */
    tn_domain *domain; /* a program that a pool with TN_START_SPAWN started */
    must(tn_domain_inherit(&domain));
    must(tn_pool_serve(domain, square, NULL)); /* returns when the pool has ended */
    tn_domain_close(domain);
    /* end */
    return 0;
}

int main(int argc, char **argv)
{
    if (argc > 1)
        return be_program();
    tn_domain *domain;
    setvbuf(stdout, NULL, _IOLBF, 0); /* a worker has no copy of what is not printed yet */
    must(tn_domain_open(NULL, NULL, 0, &domain));
    run_jobs(make_pool(domain));
    use_program(domain, argv[0]);

    tn_pool *pool = make_pool(domain);
    /* show: tn_pool_terminate */
    must(tn_pool_terminate(pool, tn_deadline_after(2 * TN_SECOND))); /* without the open jobs */
    /* end */
    tn_pool_close(pool);
    tn_domain_close(domain);
    return 0;
}
