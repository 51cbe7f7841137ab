/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reap_100k: a process that holds 100,000 tensors is killed; time from its pidfd becoming
 * readable until a survivor has released all of them (tenond runs the same code).
 * reclaim_60k: the same of a process that has an event, a tensor and a ticket, in a domain with
 * 60,000 events of others; baseline: the same in a domain with 10.
 * kill_to_wait_error: SIGKILL of the last producer until the sleeping consumer has its error;
 * the baseline is another thread's pidfd becoming readable after the same kill.
 */
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "bench.h"

enum { REAP_ROUNDS = 11, HELD = 100000, KILL_ROUNDS = 41, MANY = 60000, FEW = 10 };

struct job {
    tn_domain *domain;
    tn_queue *queue;
    _Atomic uint32_t *gate;
    uint64_t noticed_ns, failed_ns;
    int pid_fd, keeper;
    uint32_t events;
};

static int open_pid(int pid)
{
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (fd < 0) {
        perror("pidfd_open");
        exit(1);
    }
    return fd;
}

static void await_end(int pid_fd)
{
    struct pollfd p = {.fd = pid_fd, .events = POLLIN};
    while (poll(&p, 1, -1) != 1)
        ;
}

static void hold_many(void *context)
{
    const struct job *j = context;
    int64_t shape = 16;
    for (int i = 0; i < HELD; i++) {
        tn_tensor *t;
        bench_check(tn_tensor_create(j->domain, TN_FLOAT32, 1, &shape, NULL, &t), "empty");
    }
    bench_meet(j->gate, 2);
    for (;;)
        pause();
}

/* One of each. */
static void hold_little(void *context)
{
    const struct job *j = context;
    unsigned char handle[TN_HANDLE_MAX_BYTES];
    size_t used;
    int64_t shape = 16;
    tn_event *event;
    tn_tensor *t;
    bench_check(tn_event_open(j->domain, "last", TN_OPEN_EXISTING, &event), "event");
    bench_check(tn_tensor_create(j->domain, TN_FLOAT32, 1, &shape, NULL, &t), "empty");
    bench_check(tn_handle_export(t, NULL, handle, sizeof handle, &used), "export");
    bench_meet(j->gate, 2);
    for (;;)
        pause();
}

static double reap_once(struct job *j, void (*hold)(void *))
{
    uint32_t reaped = 0;
    atomic_store(j->gate, 0);
    int pid = bench_fork(hold, j);
    int fd = open_pid(pid);
    bench_meet(j->gate, 2);
    kill(pid, SIGKILL);
    await_end(fd);
    uint64_t since = bench_now_ns();
    while (reaped == 0)
        bench_check(tn_domain_reap(j->domain, &reaped), "reap");
    double ns = (double)(bench_now_ns() - since);
    close(fd);
    bench_join(pid);
    return ns;
}

/* Others' objects are another process's: a forked child has all that its parent has. */
static void keep_events(void *context)
{
    const struct job *j = context;
    for (uint32_t i = 0; i < j->events; i++) {
        tn_event *event;
        const char *name = i + 1 == j->events ? "last" : NULL;
        bench_check(tn_event_open(j->domain, name, TN_OPEN_NEW, &event), "event");
    }
    bench_meet(j->gate, 2);
    for (;;)
        pause();
}

static void begin_among(struct job *j, uint32_t events)
{
    const tn_domain_options options = {
        .struct_size = sizeof options, .objects = 65536, .flags = TN_DOMAIN_NO_MANAGER};
    j->gate = bench_shared(4096);
    j->events = events;
    bench_check(tn_domain_open(NULL, &options, 0, &j->domain), "domain");
    j->keeper = bench_fork(keep_events, j);
    bench_meet(j->gate, 2);
}

static void end_among(struct job *j)
{
    kill(j->keeper, SIGKILL);
    bench_join(j->keeper);
    bench_check(tn_domain_reap(j->domain, NULL), "reap");
    tn_domain_close(j->domain);
}

static void reclaim_among_many(void)
{
    struct job full = {0}, empty = {0};
    struct bench_series many = {0}, few = {0};
    begin_among(&full, MANY);
    begin_among(&empty, FEW);
    for (int round = 0; round < KILL_ROUNDS; round++) {
        bench_add(&many, reap_once(&full, hold_little));
        bench_add(&few, reap_once(&empty, hold_little));
    }
    bench_print("reclaim_60k", &many, "us", &few, 1e-3);
    end_among(&full);
    end_among(&empty);
}

static void produce_nothing(void *context)
{
    const struct job *j = context;
    bench_check(tn_queue_attach(j->queue, TN_PRODUCER), "attach");
    bench_meet(j->gate, 2);
    for (;;)
        pause();
}

static void *watch_pid(void *context)
{
    struct job *j = context;
    await_end(j->pid_fd);
    j->noticed_ns = bench_now_ns();
    return NULL;
}

static void *wait_for_message(void *context)
{
    struct job *j = context;
    tn_message m;
    int status = tn_queue_pop(j->queue, TN_FOREVER, &m);
    j->failed_ns = bench_now_ns();
    if (status != TN_ERR_PEER_DIED) {
        fprintf(stderr, "pop gave %s\n", tn_status_name(status));
        exit(1);
    }
    return NULL;
}

/*
 * Asleep in the kernel: the thread's own word for it, instead of a guess at how long it takes.
 */
static void await_asleep(int thread_count)
{
    char path[64], state;
    int asleep = 0;
    while (asleep < thread_count) {
        asleep = 0;
        FILE *list = popen("cat /proc/$PPID/task/*/stat", "r");
        char line[1024];
        if (list == NULL)
            abort();
        while (fgets(line, sizeof line, list) != NULL)
            if (sscanf(line, "%63s (%*[^)]) %c", path, &state) == 2)
                asleep += state == 'S';
        pclose(list);
    }
}

static void kill_once(struct job *j, struct bench_series *ours, struct bench_series *theirs)
{
    pthread_t watcher, waiter;
    atomic_store(j->gate, 0);
    bench_check(tn_queue_open(j->domain, NULL, NULL, 0, &j->queue), "queue");
    int pid = bench_fork(produce_nothing, j);
    j->pid_fd = open_pid(pid);
    bench_meet(j->gate, 2);
    pthread_create(&watcher, NULL, watch_pid, j);
    pthread_create(&waiter, NULL, wait_for_message, j);
    await_asleep(3); /* both, and this one in pclose() as it reads */
    uint64_t since = bench_now_ns();
    kill(pid, SIGKILL);
    pthread_join(waiter, NULL);
    pthread_join(watcher, NULL);
    bench_add(ours, (double)(j->failed_ns - since));
    bench_add(theirs, (double)(j->noticed_ns - since));
    close(j->pid_fd);
    bench_join(pid);
    tn_object_close(j->queue);
}

int main(void)
{
    struct bench_series reap = {0}, error = {0}, notice = {0};
    tn_domain_options options = {.struct_size = sizeof options, .flags = TN_DOMAIN_NO_MANAGER};
    struct job j = {.gate = bench_shared(4096)};
    bench_check(tn_domain_open(NULL, &options, 0, &j.domain), "domain");
    for (int round = 0; round < REAP_ROUNDS; round++)
        bench_add(&reap, reap_once(&j, hold_many));
    bench_print("reap_100k", &reap, "ms", NULL, 1e-6);
    tn_domain_close(j.domain);
    reclaim_among_many();
    bench_check(tn_domain_open(NULL, NULL, 0, &j.domain), "domain");
    for (int round = 0; round < KILL_ROUNDS; round++)
        kill_once(&j, &error, &notice);
    bench_print("kill_to_wait_error", &error, "us", &notice, 1e-3);
    tn_domain_close(j.domain);
    return 0;
}
