/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two programs (here one, run twice) that share tensors: the first makes a domain and starts
 * the second, which joins it and pops what the first pushes until the queue ends.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tenon/tenon.h>

enum { TENSORS = 3, ELEMENTS = 1000 };

static int must(int status)
{
    if (status < 0) {
        fprintf(stderr, "outside: %s: %s\n", tn_status_name(status), tn_error_detail());
        exit(1);
    }
    return status;
}

static int read_all(void)
{
    tn_domain *domain;
    tn_queue *queue;
    tn_tensor *tensor;
    int status;
    must(tn_domain_inherit(&domain));
    must(tn_queue_open(domain, "numbers", NULL, TN_OPEN_EXISTING, &queue));
    while ((status = tn_queue_pop_tensor(queue, TN_FOREVER, &tensor)) == 0) {
        const int64_t *number = tn_tensor_data(tensor);
        int64_t sum = 0;
        for (int64_t index = 0; index < tn_tensor_count(tensor); ++index)
            sum += number[index];
        printf("%lld numbers, sum %lld\n", (long long)tn_tensor_count(tensor), (long long)sum);
        tn_tensor_unref(tensor);
    }
    if (status != TN_ERR_CLOSED)
        must(status);
    tn_object_close(queue);
    tn_domain_close(domain);
    return 0;
}

static void push_numbers(tn_domain *domain, tn_queue *queue, int64_t start)
{
    tn_tensor *tensor;
    must(tn_tensor_create(domain, TN_INT64, 1, (int64_t[]){ELEMENTS},
                          TN_OPTIONS(tn_tensor_options, .deadline = TN_FOREVER), &tensor));
    int64_t *number = tn_tensor_data(tensor);
    for (int64_t index = 0; index < ELEMENTS; ++index)
        number[index] = start + index;
    must(tn_queue_push_tensor(queue, tensor, TN_PUSH_MOVE, TN_FOREVER));
}

static int write_all(const char *program)
{
    tn_domain *domain;
    tn_queue *queue;
    tn_process *reader;
    tn_process_status end = {.struct_size = sizeof end};
    must(tn_domain_open(NULL, NULL, 0, &domain));
    must(tn_queue_open(domain, "numbers", NULL, TN_OPEN_NEW, &queue));
    must(tn_process_exec(domain, (const char *const[]){program, "read", NULL}, NULL, 0,
                         &reader));
    for (int64_t index = 0; index < TENSORS; ++index)
        push_numbers(domain, queue, index * ELEMENTS);
    must(tn_queue_end(queue));
    must(tn_process_wait(reader, TN_FOREVER, &end));
    tn_process_close(reader);
    tn_object_close(queue);
    tn_domain_close(domain);
    return end.exit_code;
}

int main(int argc, char **argv)
{
    return argc > 1 && strcmp(argv[1], "read") == 0 ? read_all() : write_all(argv[0]);
}
