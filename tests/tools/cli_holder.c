/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cli_holder NAME [COUNT [break | schedule | store]]: make a domain with known content, for
 * cli_test.py, and COUNT small tensors more. With "break": break the barrier, and put the first
 * message back; with "schedule": show a scheduler whose tasks wait; with "store": keep a
 * value in a store. Print "PARENT-PID
 * CHILD-PID" when that is done, and end when standard input ends. If NAME is "-", the domain is
 * anonymous and has no tenond.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tenon/tenon.h>
#include <unistd.h>

static void check(int status, const char *what)
{
    if (status >= 0)
        return;
    fprintf(stderr, "cli_holder: %s: %s: %s\n", what, tn_status_name(status),
            tn_error_detail());
    exit(1);
}

static int ready[2], done[2];

static void wait_for_end(int fd)
{
    char byte;
    while (read(fd, &byte, 1) > 0)
        ;
}

/* The child holds what its parent had at the fork, and makes one tensor more. */
static int run_child(tn_domain *domain, void *argument)
{
    tn_tensor *own;
    (void)argument;
    close(done[1]);
    check(tn_tensor_create(domain, TN_BFLOAT16, 3, (int64_t[]){2, 3, 4},
                           TN_OPTIONS(tn_tensor_options, .flags = TN_TENSOR_ZEROED), &own),
          "child's tensor");
    if (write(ready[1], "r", 1) != 1)
        return 1;
    wait_for_end(done[0]);
    return 0;
}

struct objects {
    tn_queue *queue;
    tn_event *event;
    tn_semaphore *semaphore;
    tn_lock *lock;
    tn_barrier *barrier;
};

static void make_objects(tn_domain *domain, struct objects *o)
{
    tn_tensor *tensor;
    const tn_queue_options options = {
        .struct_size = sizeof options, .capacity = 8, .policy = TN_QUEUE_LEASE};

    check(tn_queue_open(domain, "work", &options, TN_OPEN_NEW, &o->queue), "queue");
    check(tn_tensor_create(domain, TN_INT32, 2, (int64_t[]){5, 7},
                           TN_OPTIONS(tn_tensor_options, .flags = TN_TENSOR_ZEROED), &tensor),
          "queued tensor");
    check(tn_queue_push_tensor(o->queue, tensor, TN_PUSH_MOVE, TN_NOW), "push");
    check(tn_queue_push(o->queue, &(tn_message){.bytes = "hello", .size_bytes = 5}, 0, TN_NOW),
          "push");
    check(tn_event_open(domain, "go", TN_OPEN_NEW, &o->event), "event");
    check(tn_event_set(o->event), "event");
    check(tn_semaphore_open(domain, "room", 3, TN_OPEN_NEW, &o->semaphore), "semaphore");
    check(tn_lock_open(domain, "mutex", TN_OPEN_NEW, &o->lock), "lock");
    check(tn_lock_acquire(o->lock, TN_NOW), "lock");
    check(tn_barrier_open(domain, "meet", 4, TN_OPEN_NEW, &o->barrier), "barrier");
}

static void close_objects(struct objects *o)
{
    check(tn_lock_release(o->lock), "lock");
    tn_object_close(o->queue);
    tn_object_close(o->event);
    tn_object_close(o->semaphore);
    tn_object_close(o->lock);
    tn_object_close(o->barrier);
}

/* Tensors outside of the arena. They are made after the fork, so the child has none of them. */
struct outside {
    tn_tensor *memory; /* float16[4, 4], a ticket, three words of attributes */
    tn_tensor *once;   /* int16[3] */
    tn_tensor *file;   /* uint16[100] */
};

static void make_outside(tn_domain *domain, struct outside *o)
{
    tn_tensor_options options = {.struct_size = sizeof options,
                                 .strategy = TN_STRATEGY_FILE_DESCRIPTOR};
    const tn_handle_options twice = {
        .struct_size = sizeof twice, .uses = 2, .lifetime_ns = UINT64_C(3600000000000)};
    static uint8_t handle[TN_HANDLE_MAX_BYTES];
    size_t used;

    check(tn_tensor_create(domain, TN_FLOAT16, 2, (int64_t[]){4, 4}, &options, &o->memory),
          "memory object");
    check(tn_tensor_set_flags(o->memory, TN_REQUIRES_GRAD | TN_PARAMETER), "flags");
    check(tn_tensor_set_name(o->memory, "layer.weight"), "name");
    check(tn_handle_export(o->memory, &twice, handle, sizeof handle, &used), "handle");
    options.flags = TN_TENSOR_WRITE_ONCE;
    check(tn_tensor_create(domain, TN_INT16, 1, (int64_t[]){3}, &options, &o->once),
          "write once");
    options =
        (tn_tensor_options){.struct_size = sizeof options, .strategy = TN_STRATEGY_FILE_SYSTEM};
    check(tn_tensor_create(domain, TN_UINT16, 1, (int64_t[]){100}, &options, &o->file), "file");
}

/* A scheduler with five tasks: two have a GPU each and never end, and three wait for one. */
enum { TASKS = 5, GPUS = 2 };
struct schedule {
    tn_sched *sched;
    tn_graph *graph;
};

static int begun[2];

static int pend(const tn_task_call *call)
{
    (void)call;
    return write(begun[1], "b", 1) == 1 ? TN_TASK_PENDING : TN_ERR_SYSTEM;
}

static void make_schedule(tn_domain *domain, struct schedule *s)
{
    const tn_variant variant = {.run = pend, .request = "CPU=0 GPU=1 MEM=0.25"};
    tn_kind *kind;
    tn_task tasks[TASKS];
    char byte;
    check(tn_sched_create(TN_OPTIONS(tn_sched_options, .domain = domain, .name = "pipeline",
                                     .resources = "CPU=3 GPU=(0,1) MEM=1.5"),
                          &s->sched),
          "scheduler");
    check(tn_kind_create(s->sched,
                         TN_OPTIONS(tn_kind_options, .variants = &variant, .variant_count = 1),
                         &kind),
          "kind");
    check(tn_graph_create(s->sched, &s->graph), "graph");
    for (int i = 0; i < TASKS; i++)
        tasks[i] = (tn_task){.kind = kind};
    check(pipe(begun), "pipe");
    check(
        tn_graph_add(s->graph, TN_OPTIONS(tn_task_list, .tasks = tasks, .count = TASKS), NULL),
        "tasks");
    for (int i = 0; i < GPUS; i++)
        if (read(begun[0], &byte, 1) != 1)
            exit(1);
}

/* A store that alone keeps a tensor of 1000 bytes. */
static tn_store *make_store(tn_domain *domain)
{
    tn_store *store;
    tn_tensor *tensor;
    check(tn_store_open(domain, "models",
                        TN_OPTIONS(tn_store_options, .capacity = 100, .budget_bytes = 1 << 20),
                        0, &store),
          "store");
    check(tn_tensor_create(domain, TN_UINT8, 1, (int64_t[]){1000}, NULL, &tensor), "tensor");
    tn_message value = {.tensors = &tensor, .tensor_count = 1};
    check(tn_store_put(store, "small/layer.0.weight", &value, NULL, NULL), "put");
    tn_tensor_unref(tensor);
    return store;
}

static void close_schedule(struct schedule *s)
{
    tn_graph_cancel(s->graph);
    for (uint64_t task = 0; task < TASKS; task++)
        (void)!tn_task_end(s->graph, task, 0); /* an error: it did not begin */
    tn_sched_close(s->sched);
}

enum { MOST = 100000 };
static tn_tensor *many[MOST];

static void make_many(tn_domain *domain, long count)
{
    for (long i = 0; i < count && i < MOST; i++)
        check(tn_tensor_create(domain, TN_FLOAT32, 1, (int64_t[]){16}, NULL, &many[i]), "many");
}

int main(int argc, char **argv)
{
    const tn_domain_options options = {
        .struct_size = sizeof options,
        .quota_bytes = UINT64_C(256) << 20,
        .watermark_bytes = 1u << 20,
        .seats = 16,
        .flags = argc == 2 && strcmp(argv[1], "-") == 0 ? TN_DOMAIN_NO_MANAGER : 0};
    tn_domain *domain;
    tn_tensor *matrix, *bytes, *scalar;
    struct objects objects;
    struct outside outside;
    struct schedule schedule = {0};
    tn_process *child;
    static uint8_t handle[TN_HANDLE_MAX_BYTES];
    size_t used;
    char byte;

    if (argc < 2 || argc > 4 || pipe(ready) != 0 || pipe(done) != 0)
        return 2;
    check(tn_domain_open(options.flags != 0 ? NULL : argv[1], &options, TN_OPEN_NEW, &domain),
          "domain");
    check(tn_tensor_create(domain, TN_FLOAT32, 2, (int64_t[]){3, 4},
                           TN_OPTIONS(tn_tensor_options, .flags = TN_TENSOR_ZEROED), &matrix),
          "matrix");
    check(tn_tensor_create(domain, TN_UINT8, 1, (int64_t[]){1000},
                           TN_OPTIONS(tn_tensor_options, .flags = TN_TENSOR_ZEROED), &bytes),
          "bytes");
    check(tn_process_fork(domain, run_child, NULL, 0, &child), "child");
    close(done[0]);
    if (read(ready[0], &byte, 1) != 1)
        return 1;
    /* Made after the fork, so the child does not hold it. */
    check(tn_tensor_create(domain, TN_FLOAT64, 0, NULL,
                           TN_OPTIONS(tn_tensor_options, .flags = TN_TENSOR_ZEROED), &scalar),
          "scalar");
    make_objects(domain, &objects);
    make_outside(domain, &outside);
    bool breaks = argc == 4 && strcmp(argv[3], "break") == 0;
    tn_store *store = argc == 4 && strcmp(argv[3], "store") == 0 ? make_store(domain) : NULL;
    if (argc == 4 && !breaks && store == NULL)
        make_schedule(domain, &schedule);
    if (breaks) {
        tn_message m;
        if (tn_barrier_wait(objects.barrier, TN_NOW) != TN_ERR_TIMED_OUT)
            return 1;
        check(tn_queue_pop(objects.queue, TN_NOW, &m), "pop");
        check(tn_message_return(objects.queue, &m), "return");
        tn_message_fini(&m);
    }
    check(tn_handle_export(bytes, NULL, handle, sizeof handle, &used), "handle");
    make_many(domain, argc >= 3 ? strtol(argv[2], NULL, 10) : 0);
    printf("%d %d\n", (int)getpid(), tn_process_pid(child));
    fflush(stdout);
    wait_for_end(STDIN_FILENO);
    close(done[1]);
    tn_process_close(child);
    tn_object_close(store);
    if (schedule.sched != NULL)
        close_schedule(&schedule);
    close_objects(&objects);
    tn_tensor_unref(outside.memory);
    tn_tensor_unref(outside.once);
    tn_tensor_unref(outside.file);
    tn_tensor_unref(matrix);
    tn_tensor_unref(bytes);
    tn_tensor_unref(scalar);
    for (long i = 0; i < MOST; i++)
        tn_tensor_unref(many[i]);
    tn_domain_close(domain);
    return 0;
}
