/* SPDX-License-Identifier: Apache-2.0 */
/*
 * handoff_spin_rtt, handoff_sleep_rtt, handoff_size_flat: one tensor to a second process and
 * back.
 *
 * Baselines, between the same two processes in the same rounds: one cache line back and forth
 * (spin), one futex word back and forth (sleep). handoff_size_flat is the spin figure at 1 GiB
 * over the one at 64 bytes.
 *
 * Sleeping: each side, once awake, works for 50 us before it answers, so that the other is
 * asleep in the kernel by then; what counts is the time from "about to send" on one side to
 * "awake with it" on the other, both ways together.
 */
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "bench.h"

enum { ROUNDS = 41, SPIN_TRIPS = 2000, SLEEP_TRIPS = 100, WORK_NS = 50000 };

struct shared {
    _Alignas(128) _Atomic uint32_t ball;
    _Alignas(128) _Atomic uint32_t word;
    _Alignas(128) _Atomic uint32_t gate;
    _Alignas(128) _Atomic uint64_t sent_ns; /* one side at a time writes it */
    uint64_t second_ns[2];                  /* what the second process measured: futex, queue */
};

struct job {
    struct shared *shared;
    tn_queue *there, *back;
};

static void line_side(struct shared *s, uint32_t mine, uint32_t trips)
{
    for (uint32_t i = 0; i < trips; i++) {
        while (atomic_load_explicit(&s->ball, memory_order_acquire) != mine)
            bench_relax();
        atomic_store_explicit(&s->ball, !mine, memory_order_release);
    }
}

/* Arrived: how long did it take? Then work, and note when the answer leaves. */
static uint64_t arrive(struct shared *s)
{
    uint64_t now = bench_now_ns(), took = now - atomic_load(&s->sent_ns);
    while (bench_now_ns() < now + WORK_NS)
        bench_relax();
    atomic_store(&s->sent_ns, bench_now_ns());
    return took;
}

static uint64_t futex_side(struct shared *s, uint32_t mine, uint32_t trips)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < trips; i++) {
        while (atomic_load(&s->word) != mine)
            syscall(SYS_futex, &s->word, FUTEX_WAIT, !mine, NULL, NULL, 0);
        sum += arrive(s);
        atomic_store(&s->word, !mine);
        syscall(SYS_futex, &s->word, FUTEX_WAKE, 1, NULL, NULL, 0);
    }
    return sum;
}

static tn_tensor *spin_pop(tn_queue *queue)
{
    tn_tensor *t;
    int status;
    while ((status = tn_queue_pop_tensor(queue, 0, &t)) == TN_ERR_TIMED_OUT)
        bench_relax();
    bench_check(status, "pop");
    return t;
}

static void echo_spin(const struct job *j, uint32_t trips)
{
    for (uint32_t i = 0; i < trips; i++)
        bench_check(tn_queue_push_tensor(j->back, spin_pop(j->there), TN_PUSH_MOVE, 0), "push");
}

static tn_tensor *send_spin(const struct job *j, tn_tensor *t, uint32_t trips)
{
    for (uint32_t i = 0; i < trips; i++) {
        bench_check(tn_queue_push_tensor(j->there, t, TN_PUSH_MOVE, 0), "push");
        t = spin_pop(j->back);
    }
    return t;
}

static uint64_t sleep_side(struct shared *s, tn_queue *in, tn_queue *out, uint32_t trips)
{
    tn_tensor *t;
    uint64_t sum = 0;
    for (uint32_t i = 0; i < trips; i++) {
        bench_check(tn_queue_pop_tensor(in, TN_FOREVER, &t), "pop");
        sum += arrive(s);
        bench_check(tn_queue_push_tensor(out, t, TN_PUSH_MOVE, TN_FOREVER), "push");
    }
    return sum;
}

static void second(void *context)
{
    const struct job *j = context;
    for (int round = 0; round < ROUNDS; round++) {
        bench_meet(&j->shared->gate, 2);
        line_side(j->shared, 1, SPIN_TRIPS);
        echo_spin(j, SPIN_TRIPS); /* 4 KiB */
        echo_spin(j, SPIN_TRIPS); /* 64 B */
        echo_spin(j, SPIN_TRIPS); /* 1 GiB */
        bench_meet(&j->shared->gate, 2);
        j->shared->second_ns[0] = futex_side(j->shared, 1, SLEEP_TRIPS);
        bench_meet(&j->shared->gate, 2);
        j->shared->second_ns[1] = sleep_side(j->shared, j->there, j->back, SLEEP_TRIPS);
        bench_meet(&j->shared->gate, 2);
    }
}

static double per_trip(uint64_t since, uint32_t trips)
{
    return (double)(bench_now_ns() - since) / trips;
}

static tn_tensor *make(tn_domain *d, int64_t bytes)
{
    tn_tensor *t;
    int64_t shape = bytes / 4;
    bench_check(tn_tensor_empty(d, TN_FLOAT32, 1, &shape, 0, &t), "empty");
    return t;
}

int main(void)
{
    struct bench_series line = {0}, spin = {0}, small = {0}, large = {0}, futex = {0},
                        sleeping = {0};
    struct job j = {.shared = bench_shared(sizeof(struct shared))};
    tn_domain *d;
    bench_check(tn_domain_create(NULL, NULL, &d), "domain");
    bench_check(tn_queue_create(d, NULL, NULL, &j.there), "queue");
    bench_check(tn_queue_create(d, NULL, NULL, &j.back), "queue");
    tn_tensor *t4k = make(d, 4096), *t64 = make(d, 64);
    tn_tensor *t1g = make(d, INT64_C(1) << 30);
    int pid = bench_fork(second, &j);

    for (int round = 0; round < ROUNDS; round++) {
        atomic_store(&j.shared->ball, 1); /* the second process waits for it behind the gate */
        bench_meet(&j.shared->gate, 2);
        uint64_t since = bench_now_ns();
        line_side(j.shared, 0, SPIN_TRIPS);
        bench_add(&line, per_trip(since, SPIN_TRIPS));
        since = bench_now_ns();
        t4k = send_spin(&j, t4k, SPIN_TRIPS);
        bench_add(&spin, per_trip(since, SPIN_TRIPS));
        since = bench_now_ns();
        t64 = send_spin(&j, t64, SPIN_TRIPS);
        bench_add(&small, per_trip(since, SPIN_TRIPS));
        since = bench_now_ns();
        t1g = send_spin(&j, t1g, SPIN_TRIPS);
        bench_add(&large, per_trip(since, SPIN_TRIPS));
        atomic_store(&j.shared->sent_ns, bench_now_ns());
        atomic_store(&j.shared->word, 0);
        bench_meet(&j.shared->gate, 2);
        uint64_t ours_ns = futex_side(j.shared, 0, SLEEP_TRIPS);
        bench_meet(&j.shared->gate, 2);
        atomic_store(&j.shared->sent_ns, bench_now_ns());
        bench_check(tn_queue_push_tensor(j.there, t4k, TN_PUSH_MOVE, TN_FOREVER), "push");
        uint64_t queue_ns = sleep_side(j.shared, j.back, j.there, SLEEP_TRIPS - 1);
        bench_check(tn_queue_pop_tensor(j.back, TN_FOREVER, &t4k), "pop");
        bench_meet(&j.shared->gate, 2);
        bench_add(&futex, (double)(ours_ns + j.shared->second_ns[0]) / SLEEP_TRIPS);
        bench_add(&sleeping, (double)(queue_ns + j.shared->second_ns[1]) / SLEEP_TRIPS);
    }
    bench_join(pid);
    bench_print("handoff_spin_rtt", &spin, "ns", &line, 1);
    bench_print("handoff_sleep_rtt", &sleeping, "us", &futex, 1e-3);
    bench_print("handoff_size_flat", &large, "ns", &small, 1);
    tn_tensor_unref(t4k);
    tn_tensor_unref(t64);
    tn_tensor_unref(t1g);
    tn_queue_close(j.there);
    tn_queue_close(j.back);
    tn_domain_close(d);
    return 0;
}
