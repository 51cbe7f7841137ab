/* SPDX-License-Identifier: Apache-2.0 */
/* The program of docs/guide/children.md. */
#undef NDEBUG
#include "must.h"

#include <assert.h>
#include <signal.h>
#include <string.h>

/* show: fork */
static int fill(tn_domain *domain, void *argument)
{
    (void)domain;
    tn_tensor *tensor = argument; /* the child has a reference of its own */
    memset(tn_tensor_data(tensor), 7, 1000);
    return 0;
}

static void run_one(tn_domain *domain, tn_tensor *tensor)
{
    tn_process *process;
    tn_process_status end = {.struct_size = sizeof end};
    must(tn_process_fork(domain, fill, tensor, 0, &process));
    must(tn_process_wait(process, TN_FOREVER, &end));
    if (end.signal != 0)
        fprintf(stderr, "signal %d ended process %d\n", end.signal, end.pid);
    else if (end.exit_code != 0)
        fprintf(stderr, "process %d ended with %d: %s\n", end.pid, end.exit_code, end.message);
    tn_process_close(process);
}
/* end */

/* show: parent */
static void start_program(tn_domain *domain, tn_queue *queue, const char *program)
{
    char number[32];
    tn_process *process;
    tn_process_status end = {.struct_size = sizeof end};
    snprintf(number, sizeof number, "%llu", (unsigned long long)tn_object_id(queue));
    must(tn_process_exec(domain, (const char *[]){program, number, NULL}, NULL, 0, &process));
    must(tn_process_wait(process, TN_FOREVER, &end));
    tn_process_close(process);
    assert(end.exit_code == 0);
}
/* end */

/* show: program */
static int be_program(const char *number)
{
    tn_domain *domain;
    tn_queue *queue;
    must(tn_domain_inherit(&domain));
    must(tn_object_open_id(domain, TN_OBJECT_QUEUE, strtoull(number, NULL, 10), &queue));
    must(tn_queue_push(queue, &(tn_message){.bytes = "done", .size_bytes = 4}, 0, TN_FOREVER));
    tn_object_close(queue);
    tn_domain_close(domain);
    return 0;
}
/* end */

/* show: group */
static int train(tn_domain *domain, uint32_t index, void *argument)
{
    (void)domain, (void)argument;
    if (index == 1)
        raise(SIGSEGV);
    while (raise(SIGSTOP) == 0) /* until the group ends it */
        continue;
    return 0;
}

static void run_group(tn_domain *domain)
{
    tn_group *group;
    tn_process_status first = {.struct_size = sizeof first};
    must(tn_group_create(domain, &group));
    must(tn_group_fork(group, 3, train, NULL));
    int status = tn_group_wait(group, TN_SECOND / 10, TN_FOREVER, &first);
    if (status == TN_ERR_CHILD_FAILED)
        printf("child %u was the first to fail, by signal %d\n", first.index, first.signal);
    tn_group_close(group);
}
/* end */

/* show: server */
static int add(tn_domain *domain, void *argument)
{
    (void)domain;
    const int *numbers = argument; /* a copy: the child has not seen main() since the start */
    return numbers[0] + numbers[1];
}

int main(int argc, char **argv)
{
    if (argc > 1)
        return be_program(argv[1]);
    tn_domain *domain;
    tn_forkserver *server;
    must(tn_domain_open(NULL, NULL, 0, &domain));
    must(tn_forkserver_start(domain, &server)); /* before the threads and the large memory */
    /* ... later, in any thread: */
    tn_process *process;
    tn_process_status end = {.struct_size = sizeof end};
    int numbers[] = {2, 3};
    must(tn_forkserver_fork(server, add, numbers, sizeof numbers, 0, &process));
    must(tn_process_wait(process, TN_FOREVER, &end)); /* end.exit_code is 5 */
    /* end */
    assert(end.exit_code == 5);
    tn_process_close(process);
    tn_forkserver_close(server);

    tn_tensor *tensor;
    tn_queue *queue;
    must(tn_tensor_create(domain, TN_UINT8, 1, (int64_t[]){1000}, NULL, &tensor));
    run_one(domain, tensor);
    assert(((const uint8_t *)tn_tensor_data(tensor))[999] == 7);
    tn_tensor_unref(tensor);
    must(tn_queue_open(domain, NULL, NULL, 0, &queue));
    start_program(domain, queue, argv[0]);
    assert(tn_queue_count(queue) == 1);
    tn_object_close(queue);
    run_group(domain);
    tn_domain_close(domain);
    return 0;
}
