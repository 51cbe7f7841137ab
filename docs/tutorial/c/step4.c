/* SPDX-License-Identifier: Apache-2.0 */
/* show: job */
#include "tutorial.h"

enum { WORKERS = 3, ROUNDS = 300 };

static int infer(tn_domain *domain, const tn_pool_job *job, tn_message *result, void *context)
{
    (void)domain, (void)context;
    int *digit = job->room;
    for (int round = 0; round < ROUNDS;
         round++) /* some ten milliseconds, as a larger network */
        *digit = read_digit(job->message->tensors[0]);
    result->bytes = digit;
    result->size_bytes = sizeof *digit;
    return 0;
}
/* end */

/* show: submit */
static void submit(tn_domain *domain, tn_pool *pool, int number)
{
    tn_tensor *frame;
    must(tn_tensor_create(domain, TN_UINT8, 2, (int64_t[]){HEIGHT, WIDTH}, NULL, &frame));
    draw_frame(tn_tensor_data(frame), number);
    tn_message job = {.tensors = &frame, .tensor_count = 1};
    must(tn_pool_submit(pool, &job, TN_PUSH_MOVE, TN_FOREVER, NULL));
}
/* end */

/* show: fetch */
static int fetch(tn_pool *pool, int number)
{
    tn_pool_result result = {.struct_size = sizeof result};
    must(tn_pool_fetch(pool, (uint64_t)number, TN_FOREVER, &result));
    must(result.status);
    int is_right = *(const int *)result.message.bytes == digit_of(number);
    if (result.attempt > 1)
        printf("frame %d was read in attempt %u, by process %d\n", number, result.attempt,
               result.pid);
    tn_pool_result_fini(&result);
    return is_right;
}
/* end */

/* show: main */
int main(int argc, char **argv)
{
    int frames = argc > 1 ? atoi(argv[1]) : 1000, right = 0;
    tn_domain *domain;
    tn_pool *pool;
    tn_pool_info info = {.struct_size = sizeof info};
    setvbuf(stdout, NULL, _IOLBF, 0);
    must(tn_domain_open("factory", NULL, 0, &domain));
    must(tn_pool_create(domain, TN_OPTIONS(tn_pool_options, .workers = WORKERS), infer, NULL,
                        &pool));
    must(tn_pool_get_info(pool, &info));
    for (uint32_t i = 0; i < info.worker_count; i++)
        printf("worker %u is process %d\n", i, info.worker_pids[i]);
    for (int number = 1; number <= frames; number++) {
        submit(domain, pool, number);
        if (number > 10) /* ten frames are under way */
            right += fetch(pool, number - 10);
    }
    must(tn_pool_end(pool));
    for (int number = frames > 10 ? frames - 9 : 1; number <= frames; number++)
        right += fetch(pool, number);
    must(tn_pool_join(pool, TN_FOREVER));
    must(tn_pool_get_info(pool, &info));
    printf("%d of %d frames were read right, %d workers were started again\n", right, frames,
           (int)info.restart_count);
    tn_pool_close(pool);
    tn_domain_close(domain);
    return 0;
}
/* end */
