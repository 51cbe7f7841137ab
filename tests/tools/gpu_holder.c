/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_holder NAME: make a domain with tensors on a device, for gpu_cli_test.py: one of 4 KiB
 * that a child holds too, one of 3 MiB, and one of 1 MiB that only a queue has. Print
 * "PARENT-PID CHILD-PID" when that is done, and end when standard input ends.
 */
#include <stdio.h>
#include <stdlib.h>
#include <tenon/tenon.h>
#include <unistd.h>

static void check(int status, const char *what)
{
    if (status >= 0)
        return;
    fprintf(stderr, "gpu_holder: %s: %s: %s\n", what, tn_status_name(status),
            tn_error_detail());
    exit(1);
}

static int ready[2], done[2];
static tn_queue *queue;

static void wait_for_end(int fd)
{
    char byte;
    while (read(fd, &byte, 1) > 0)
        ;
}

/* The child needs no driver to hold a tensor, but to map it. */
static int run_child(tn_domain *domain, void *argument)
{
    tn_tensor *tensor;
    (void)domain, (void)argument;
    close(done[1]);
    check(tn_queue_pop_tensor(queue, TN_FOREVER, &tensor), "pop");
    if (write(ready[1], "r", 1) != 1)
        return 1;
    wait_for_end(done[0]);
    tn_tensor_unref(tensor);
    return 0;
}

static tn_tensor *make(tn_domain *domain, int64_t bytes)
{
    const tn_tensor_options options = {.struct_size = sizeof options,
                                       .device = {TN_DEVICE_CUDA, 0}};
    tn_tensor *tensor;
    check(tn_tensor_create(domain, TN_UINT8, 1, &bytes, &options, &tensor), "tensor");
    return tensor;
}

int main(int argc, char **argv)
{
    const tn_domain_options options = {.struct_size = sizeof options,
                                       .quota_bytes = UINT64_C(256) << 20,
                                       .device_quota_bytes = UINT64_C(1) << 30,
                                       .seats = 16};
    tn_domain *domain;
    tn_process *child;
    char byte;

    if (argc != 2 || pipe(ready) != 0 || pipe(done) != 0)
        return 2;
    check(tn_domain_open(argv[1], &options, TN_OPEN_NEW, &domain), "domain");
    check(tn_queue_open(domain, "work", NULL, TN_OPEN_NEW, &queue), "queue");
    check(tn_process_fork(domain, run_child, NULL, 0, &child), "child");
    close(done[0]);
    tn_tensor *shared = make(domain, 4096), *own = make(domain, 3 << 20);
    check(tn_queue_push_tensor(queue, shared, 0, TN_NOW), "push");
    if (read(ready[0], &byte, 1) != 1)
        return 1;
    check(tn_queue_push_tensor(queue, make(domain, 1 << 20), TN_PUSH_MOVE, TN_NOW), "push");
    printf("%d %d\n", (int)getpid(), tn_process_pid(child));
    fflush(stdout);
    wait_for_end(STDIN_FILENO);
    close(done[1]);
    tn_process_close(child);
    tn_tensor_unref(shared);
    tn_tensor_unref(own);
    tn_object_close(queue);
    tn_domain_close(domain);
    return 0;
}
