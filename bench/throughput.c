/* SPDX-License-Identifier: Apache-2.0 */
/*
 * throughput_1to1, _4to1, _1to4, _4to4, _8to8, _16to16: 4 KiB tensors a second, each allocated,
 * sent, received and released. The baseline of all but the first is throughput_1to1, which is
 * run before each of them.
 *
 * throughput_1to1_worst_tenth: a tenth of the runs were slower.
 *
 * throughput_16to16_worst_wait: the longest time in which a process neither sent nor received a
 * tensor while others did. The main process reads the counters of all processes once in a
 * millisecond, so that the processes themselves read no clock.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench.h"

enum { ROUNDS = 11, MESSAGES = 1000000, MOST = 16, LOOK_NS = 1000000 };

struct place {
    _Alignas(128) _Atomic uint64_t passed; /* tensors that this process sent or received */
};

struct shared {
    _Alignas(128) _Atomic uint32_t gate;
    struct place place[2 * MOST]; /* producers, then consumers */
};

struct job {
    tn_domain *domain;
    tn_queue *queue;
    uint32_t producers, consumers;
    struct shared *shared;
    uint32_t index; /* of this process */
};

static uint32_t party(const struct job *j) { return j->producers + j->consumers + 1; }
static uint64_t share(const struct job *j) { return MESSAGES / j->producers; }

static void count(const struct job *j, uint64_t passed)
{
    atomic_store_explicit(&j->shared->place[j->index].passed, passed, memory_order_relaxed);
}

static void produce(void *context)
{
    const struct job *j = context;
    int64_t shape = 1024;
    bench_meet(&j->shared->gate, party(j));
    for (uint64_t i = 0; i < share(j); i++) {
        tn_tensor *t;
        bench_check(tn_tensor_create(j->domain, TN_FLOAT32, 1, &shape,
                                     TN_OPTIONS(tn_tensor_options, .deadline = TN_FOREVER), &t),
                    "empty");
        bench_check(tn_queue_push_tensor(j->queue, t, TN_PUSH_MOVE, TN_FOREVER), "push");
        count(j, i + 1);
    }
    tn_domain_close(j->domain); /* without it, ending counts as dying */
}

static void consume(void *context)
{
    const struct job *j = context;
    tn_tensor *t;
    int status;
    bench_meet(&j->shared->gate, party(j));
    for (uint64_t i = 1; (status = tn_queue_pop_tensor(j->queue, TN_FOREVER, &t)) == 0; i++) {
        tn_tensor_unref(t);
        count(j, i);
    }
    if (status != TN_ERR_CLOSED)
        bench_check(status, "pop");
    tn_domain_close(j->domain);
}

/* Until the producers have sent all. @return the longest that a process stood still */
static uint64_t watch(const struct job *j)
{
    struct timespec pause = {.tv_nsec = LOOK_NS};
    uint64_t seen[2 * MOST] = {0}, since_ns[2 * MOST], worst_ns = 0;
    uint32_t left = j->producers;
    for (uint32_t i = 0; i < 2 * MOST; i++)
        since_ns[i] = bench_now_ns();
    while (left > 0) {
        nanosleep(&pause, NULL);
        uint64_t now_ns = bench_now_ns();
        left = 0;
        for (uint32_t i = 0; i < j->producers + j->consumers; i++) {
            uint64_t passed = atomic_load(&j->shared->place[i].passed);
            bool has_sent_all = i < j->producers && seen[i] == share(j);
            if (!has_sent_all && now_ns - since_ns[i] > worst_ns)
                worst_ns = now_ns - since_ns[i];
            if (passed != seen[i])
                since_ns[i] = now_ns;
            seen[i] = passed;
            left += i < j->producers && passed < share(j);
        }
    }
    return worst_ns;
}

static double run(struct job j, uint64_t *ret_worst_ns)
{
    tn_queue_options options = {.struct_size = sizeof options, .capacity = 1024};
    int pids[2 * MOST];
    uint32_t count = j.producers + j.consumers;
    memset(j.shared, 0, sizeof *j.shared);
    bench_check(tn_queue_open(j.domain, NULL, &options, 0, &j.queue), "queue");
    for (j.index = 0; j.index < count; j.index++)
        pids[j.index] = bench_fork(j.index < j.producers ? produce : consume, &j);
    bench_meet(&j.shared->gate, party(&j));
    uint64_t since_ns = bench_now_ns();
    *ret_worst_ns = watch(&j);
    bench_check(tn_queue_end(j.queue), "end");
    for (uint32_t i = 0; i < count; i++)
        bench_join(pids[i]);
    double seconds = (double)(bench_now_ns() - since_ns) * 1e-9;
    tn_object_close(j.queue);
    return (double)(share(&j) * j.producers) / seconds;
}

static const struct kind {
    const char *name;
    uint32_t producers, consumers;
} kinds[] = {
    {"throughput_4to1", 4, 1}, {"throughput_1to4", 1, 4},     {"throughput_4to4", 4, 4},
    {"throughput_8to8", 8, 8}, {"throughput_16to16", 16, 16},
};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

int main(void)
{
    static struct bench_series one, of[KINDS];
    struct job j = {.shared = bench_shared(sizeof(struct shared))};
    uint64_t worst_ns = 0, wait_ns;
    bench_check(tn_domain_open(NULL, NULL, 0, &j.domain), "domain");
    for (int round = 0; round < ROUNDS; round++) {
        for (uint32_t k = 0; k < KINDS; k++) {
            j.producers = j.consumers = 1;
            bench_add(&one, run(j, &wait_ns));
            j.producers = kinds[k].producers;
            j.consumers = kinds[k].consumers;
            bench_add(&of[k], run(j, &wait_ns));
            if (k == KINDS - 1 && wait_ns > worst_ns)
                worst_ns = wait_ns;
        }
    }
    bench_print("throughput_1to1", &one, "M/s", NULL, 1e-6);
    bench_print_value("throughput_1to1_worst_tenth", bench_quantile(&one, 0.1) * 1e-6, "M/s",
                      one.count);
    for (uint32_t k = 0; k < KINDS; k++)
        bench_print(kinds[k].name, &of[k], "M/s", &one, 1e-6);
    bench_print_value("throughput_16to16_worst_wait", (double)worst_ns * 1e-6, "ms", ROUNDS);
    tn_domain_close(j.domain);
    return 0;
}
