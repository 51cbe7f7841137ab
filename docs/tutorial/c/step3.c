/* SPDX-License-Identifier: Apache-2.0 */
/* show: job */
#include "tutorial.h"

enum { FRAMES = 100, WORKERS = 3 };

static int infer(tn_domain *domain, const tn_pool_job *job, tn_message *result, void *context)
{
    (void)domain, (void)context;
    int *digit = job->room; /* memory for the result's bytes */
    *digit = read_digit(job->message->tensors[0]);
    result->bytes = digit;
    result->size_bytes = sizeof *digit;
    return 0;
}
/* end */

/* show: main */
int main(void)
{
    tn_domain *domain;
    tn_pool *pool;
    int right = 0;
    must(tn_domain_open(NULL, NULL, 0, &domain));
    must(tn_pool_create(domain, TN_OPTIONS(tn_pool_options, .workers = WORKERS), infer, NULL,
                        &pool));
    for (int number = 1; number <= FRAMES; number++) {
        tn_tensor *frame;
        must(tn_tensor_create(domain, TN_UINT8, 2, (int64_t[]){HEIGHT, WIDTH}, NULL, &frame));
        draw_frame(tn_tensor_data(frame), number);
        tn_message job = {.tensors = &frame, .tensor_count = 1};
        must(tn_pool_submit(pool, &job, TN_PUSH_MOVE, TN_FOREVER, NULL));
    }
    must(tn_pool_end(pool)); /* no more jobs */
    for (int number = 1; number <= FRAMES; number++) {
        tn_pool_result result = {.struct_size = sizeof result};
        must(
            tn_pool_fetch(pool, (uint64_t)number, TN_FOREVER, &result)); /* jobs count from 1 */
        must(result.status);
        right += *(const int *)result.message.bytes == digit_of(number);
        tn_pool_result_fini(&result);
    }
    must(tn_pool_join(pool, TN_FOREVER));
    printf("%d of %d frames were read right\n", right, FRAMES);
    tn_pool_close(pool);
    tn_domain_close(domain);
    return 0;
}
/* end */
