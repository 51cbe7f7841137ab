/* SPDX-License-Identifier: Apache-2.0 */
/*
 * throughput_1to1, throughput_4to1, throughput_1to4: 4 KiB tensors a second, each allocated,
 * sent, received and released. The baseline of the latter two is throughput_1to1 in the same
 * rounds.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench.h"

enum { ROUNDS = 11, MESSAGES = 1000000, MOST = 4 };

struct job {
    tn_domain *domain;
    tn_queue *queue;
    uint32_t producers, consumers;
    _Atomic uint32_t *gate;
};

static uint32_t party(const struct job *j) { return j->producers + j->consumers + 1; }

static void produce(void *context)
{
    const struct job *j = context;
    int64_t shape = 1024;
    bench_meet(j->gate, party(j));
    for (uint32_t i = 0; i < MESSAGES / j->producers; i++) {
        tn_tensor *t;
        bench_check(tn_tensor_empty(j->domain, TN_FLOAT32, 1, &shape, TN_FOREVER, &t), "empty");
        bench_check(tn_queue_push_tensor(j->queue, t, TN_PUSH_MOVE, TN_FOREVER), "push");
    }
    tn_domain_close(j->domain); /* without it, ending counts as dying */
}

static void consume(void *context)
{
    const struct job *j = context;
    tn_tensor *t;
    int status;
    bench_meet(j->gate, party(j));
    while ((status = tn_queue_pop_tensor(j->queue, TN_FOREVER, &t)) == 0)
        tn_tensor_unref(t);
    if (status != TN_ERR_CLOSED)
        bench_check(status, "pop");
    tn_domain_close(j->domain);
}

static double run(tn_domain *d, uint32_t producers, uint32_t consumers, _Atomic uint32_t *gate)
{
    struct job j = {d, NULL, producers, consumers, gate};
    tn_queue_options options = {.struct_size = sizeof options, .capacity = 1024};
    int pids[2 * MOST];
    atomic_store(gate, 0);
    bench_check(tn_queue_create(d, NULL, &options, &j.queue), "queue");
    for (uint32_t i = 0; i < producers; i++)
        pids[i] = bench_fork(produce, &j);
    for (uint32_t i = 0; i < consumers; i++)
        pids[producers + i] = bench_fork(consume, &j);
    bench_meet(gate, party(&j));
    uint64_t since = bench_now_ns();
    for (uint32_t i = 0; i < producers; i++)
        bench_join(pids[i]);
    bench_check(tn_queue_end(j.queue), "end");
    for (uint32_t i = 0; i < consumers; i++)
        bench_join(pids[producers + i]);
    double seconds = (double)(bench_now_ns() - since) * 1e-9;
    tn_queue_close(j.queue);
    return (MESSAGES / producers * producers) / seconds;
}

int main(void)
{
    struct bench_series one = {0}, many_in = {0}, many_out = {0};
    _Atomic uint32_t *gate = bench_shared(4096);
    tn_domain *d;
    bench_check(tn_domain_create(NULL, NULL, &d), "domain");
    for (int round = 0; round < ROUNDS; round++) {
        bench_add(&one, run(d, 1, 1, gate));
        bench_add(&many_in, run(d, MOST, 1, gate));
        bench_add(&many_out, run(d, 1, MOST, gate));
    }
    bench_print("throughput_1to1", &one, "M/s", NULL, 1e-6);
    bench_print("throughput_4to1", &many_in, "M/s", &one, 1e-6);
    bench_print("throughput_1to4", &many_out, "M/s", &one, 1e-6);
    tn_domain_close(d);
    return 0;
}
