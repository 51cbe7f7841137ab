/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that was built with a library of another layout version: other_member NAME. It
 * makes a domain of that name, sends itself a storage that tenond keeps, says "ready", and
 * leaves when its input ends.
 */
#include <stdio.h>
#include <tenon/tenon.h>

static int fail(const char *what)
{
    fprintf(stderr, "other_member: %s: %s\n", what, tn_error_detail());
    return 1;
}

static int send_and_take(tn_queue *queue, tn_tensor *tensor)
{
    tn_tensor *arrived = NULL;
    int status = tn_queue_push_tensor(queue, tensor, TN_PUSH_MOVE, TN_NOW);
    if (status == 0)
        status = tn_queue_pop_tensor(queue, TN_NOW, &arrived);
    tn_tensor_unref(arrived);
    return status;
}

int main(int argc, char **argv)
{
    const tn_tensor_options options = {.struct_size = sizeof options,
                                       .strategy = TN_STRATEGY_FILE_DESCRIPTOR};
    tn_domain *domain;
    tn_queue *queue;
    tn_tensor *tensor;
    if (argc != 2 || tn_domain_open(argv[1], NULL, 0, &domain) != 0)
        return fail("no domain");
    if (tn_queue_open(domain, "q", NULL, TN_OPEN_NEW, &queue) != 0)
        return fail("no queue");
    if (tn_tensor_create(domain, TN_FLOAT32, 1, (int64_t[]){1000}, &options, &tensor) != 0)
        return fail("no tensor");
    if (send_and_take(queue, tensor) != 0)
        return fail("no message");
    printf("ready\n");
    fflush(stdout);
    while (getchar() != EOF) {
    }
    tn_object_close(queue);
    tn_domain_close(domain);
    return 0;
}
