/* SPDX-License-Identifier: Apache-2.0 */
/*
 * handoff_spin_rtt, handoff_sleep_rtt, handoff_size_flat: one tensor to a second process and
 * back. Each process is pinned to a processor.
 *
 * Baselines, between the same two processes in the same rounds: one cache line back and forth
 * (spin), one futex word back and forth (sleep). handoff_size_flat is the spin figure at 1 GiB
 * over the one at 64 bytes. handoff_spin_ring is the spin figure over the least that a ring of
 * slots can do: claim a slot, write six words, say that it is full; take it, read, say that it
 * is empty; slots as many and as large as a queue's, and nothing else.
 *
 * What a line takes depends on where the two processors are, so handoff_spin_rtt is for two
 * real cores and handoff_spin_rtt_siblings for two threads of one core. The line is measured
 * before and after the tensors: a round counts only if it took the same time both times. If
 * fewer than half of the rounds count, the figure is printed as not valid.
 *
 * Sleeping: each side, once awake, works for 50 us before it answers, so that the other is
 * asleep in the kernel by then; what counts is the time from "about to send" on one side to
 * "awake with it" on the other, both ways together.
 */
#include <linux/futex.h>
#include <math.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "bench.h"

enum { ROUNDS = 41, SPIN_TRIPS = 2000, SLEEP_TRIPS = 100, WORK_NS = 50000 };

/*
 * A virtual machine may call two threads of one core two cores. No two cores pass a line there
 * and back as fast as this.
 */
static const double SIBLINGS_NS = 90;
static const double SAME_LINE = 0.2; /* how far the two times of a line may be apart */

/* Rounds between two cores, or between two siblings. */
struct pair {
    struct bench_series line, spin, ratio, ring, over_ring; /* of the rounds that count */
    uint32_t rounds;
};

enum { SLOTS = 256, SLOT_WORDS = 24, VIEW_WORDS = 6 };

/* Word 0 of a slot: twice the round, and one more while it is full. */
struct ring {
    _Alignas(64) _Atomic uint64_t slots[SLOTS][SLOT_WORDS];
};

struct shared {
    struct ring there, back;
    _Alignas(128) _Atomic uint32_t ball;
    _Alignas(128) _Atomic uint32_t word;
    _Alignas(128) _Atomic uint32_t gate;
    _Alignas(128) _Atomic uint64_t sent_ns; /* one side at a time writes it */
    uint64_t second_ns[2];                  /* what the second process measured: futex, queue */
};

struct job {
    struct shared *shared;
    tn_queue *there, *back;
    int cpu[2]; /* -1: not pinned */
};

/* ---- the two processors ------------------------------------------------------------------ */

/* Whether a list such as "0,4" or "0-1" names it. */
static bool names(const char *list, int cpu)
{
    int from, to, used;
    for (; sscanf(list, "%d%n", &from, &used) == 1; list += *list == ',') {
        list += used;
        to = from;
        if (sscanf(list, "-%d%n", &to, &used) == 1)
            list += used;
        if (from <= cpu && cpu <= to)
            return true;
    }
    return false;
}

static bool are_siblings(int one, int other)
{
    char path[96], list[1024];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list",
             one);
    FILE *file = fopen(path, "re");
    bool is_named =
        file != NULL && fgets(list, sizeof list, file) != NULL && names(list, other);
    if (file != NULL)
        fclose(file);
    return is_named;
}

static bool is_virtual(void)
{
    char line[4096];
    FILE *file = fopen("/proc/cpuinfo", "re");
    bool is_found = false;
    while (file != NULL && !is_found && fgets(line, sizeof line, file) != NULL)
        is_found = strncmp(line, "flags", 5) == 0 && strstr(line, " hypervisor") != NULL;
    if (file != NULL)
        fclose(file);
    return is_found;
}

/* Two that we may use: of two cores if there are any. @return whether they are siblings */
static bool choose(int cpu[2])
{
    cpu_set_t set;
    cpu[0] = cpu[1] = -1;
    if (sched_getaffinity(0, sizeof set, &set) != 0)
        return false;
    for (int siblings = 0; siblings <= 1; siblings++)
        for (int a = 0; a < CPU_SETSIZE; a++)
            for (int b = a + 1; CPU_ISSET((size_t)a, &set) && b < CPU_SETSIZE; b++)
                if (CPU_ISSET((size_t)b, &set) && are_siblings(a, b) == (siblings == 1)) {
                    cpu[0] = a;
                    cpu[1] = b;
                    return siblings == 1;
                }
    return false;
}

static void pin(int cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    if (cpu >= 0) {
        CPU_SET((size_t)cpu, &set);
        bench_check(sched_setaffinity(0, sizeof set, &set), "sched_setaffinity");
    }
}

/* ---- a line, a word, a queue ------------------------------------------------------------- */

static void line_side(struct shared *s, uint32_t mine, uint32_t trips)
{
    for (uint32_t i = 0; i < trips; i++) {
        while (atomic_load_explicit(&s->ball, memory_order_acquire) != mine)
            bench_relax();
        atomic_store_explicit(&s->ball, !mine, memory_order_release);
    }
}

static const uint64_t CLAIMED = UINT64_C(1) << 62, TAKEN = UINT64_C(1) << 63;

static void put(struct ring *ring, uint64_t position)
{
    _Atomic uint64_t *slot = ring->slots[position % SLOTS];
    uint64_t empty = position / SLOTS * 2, seen = empty;
    while (!atomic_compare_exchange_strong(&slot[0], &seen, empty | CLAIMED))
        seen = empty;
    for (int i = 1; i <= VIEW_WORDS; i++)
        atomic_store_explicit(&slot[i], position, memory_order_relaxed);
    atomic_store_explicit(&slot[0], empty + 1, memory_order_release);
}

static void take(struct ring *ring, uint64_t position)
{
    _Atomic uint64_t *slot = ring->slots[position % SLOTS];
    uint64_t full = position / SLOTS * 2 + 1, seen = full, sum = 0;
    while (atomic_load_explicit(&slot[0], memory_order_acquire) != full)
        bench_relax();
    if (!atomic_compare_exchange_strong(&slot[0], &seen, full | TAKEN))
        abort();
    for (int i = 1; i <= VIEW_WORDS; i++)
        sum += atomic_load_explicit(&slot[i], memory_order_relaxed);
    if (sum != VIEW_WORDS * position)
        abort();
    atomic_store_explicit(&slot[0], full + 1, memory_order_release);
}

/* `position` goes on from round to round. */
static void ring_side(struct shared *s, bool is_first, uint64_t *position, uint32_t trips)
{
    for (uint32_t i = 0; i < trips; i++, ++*position) {
        if (is_first)
            put(&s->there, *position);
        take(is_first ? &s->back : &s->there, *position);
        if (!is_first)
            put(&s->back, *position);
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
    while ((status = tn_queue_pop_tensor(queue, TN_NOW, &t)) == TN_ERR_TIMED_OUT)
        bench_relax();
    bench_check(status, "pop");
    return t;
}

static void echo_spin(const struct job *j, uint32_t trips)
{
    for (uint32_t i = 0; i < trips; i++)
        bench_check(tn_queue_push_tensor(j->back, spin_pop(j->there), TN_PUSH_MOVE, TN_NOW),
                    "push");
}

static tn_tensor *send_spin(const struct job *j, tn_tensor *t, uint32_t trips)
{
    for (uint32_t i = 0; i < trips; i++) {
        bench_check(tn_queue_push_tensor(j->there, t, TN_PUSH_MOVE, TN_NOW), "push");
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
    uint64_t position = 0;
    pin(j->cpu[1]);
    for (int round = 0; round < ROUNDS; round++) {
        bench_meet(&j->shared->gate, 2);
        line_side(j->shared, 1, SPIN_TRIPS);
        echo_spin(j, SPIN_TRIPS); /* 4 KiB */
        ring_side(j->shared, false, &position, SPIN_TRIPS);
        line_side(j->shared, 1, SPIN_TRIPS);
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

/* Before and after, it is the second process's turn. */
static double measure_line(struct shared *s)
{
    uint64_t since = bench_now_ns();
    line_side(s, 0, SPIN_TRIPS);
    return per_trip(since, SPIN_TRIPS);
}

static void note_round(struct pair *pair, double before, double spin, double ring, double after)
{
    double line = (before + after) / 2;
    pair->rounds++;
    if (fabs(before - after) > SAME_LINE * line)
        return;
    bench_add(&pair->line, line);
    bench_add(&pair->spin, spin);
    bench_add(&pair->ratio, spin / line);
    bench_add(&pair->ring, ring);
    bench_add(&pair->over_ring, spin / ring);
}

/* `ratio` is the median of the rounds' ratios. */
static void print_one(const char *name, const char *what, const struct pair *pair,
                      const struct bench_series *baseline, const struct bench_series *ratio)
{
    printf("{\"name\": \"%s\", \"value\": %.6g, \"unit\": \"ns\", \"baseline\": %.6g, "
           "\"ratio\": %.4g, \"n\": %u, \"rounds\": %u, \"pair\": \"%s\", \"valid\": %s}\n",
           name, bench_median(&pair->spin), bench_median(baseline), bench_median(ratio),
           pair->spin.count, pair->rounds, what,
           2 * pair->spin.count >= pair->rounds ? "true" : "false");
    fflush(stdout);
}

static void print_pair(const char *suffix, const char *what, const struct pair *pair)
{
    char name[64];
    if (pair->rounds == 0)
        return;
    snprintf(name, sizeof name, "handoff_spin_rtt%s", suffix);
    print_one(name, what, pair, &pair->line, &pair->ratio);
    snprintf(name, sizeof name, "handoff_spin_ring%s", suffix);
    print_one(name, what, pair, &pair->ring, &pair->over_ring);
}

static tn_tensor *make(tn_domain *d, int64_t bytes)
{
    tn_tensor *t;
    int64_t shape = bytes / 4;
    bench_check(tn_tensor_create(d, TN_FLOAT32, 1, &shape, NULL, &t), "empty");
    return t;
}

int main(void)
{
    static struct bench_series small, large, futex, sleeping;
    static struct pair pairs[2]; /* cores, siblings */
    struct job j = {.shared = bench_shared(sizeof(struct shared))};
    tn_domain *d;
    bench_check(tn_domain_open(NULL, NULL, 0, &d), "domain");
    bench_check(tn_queue_open(d, NULL, NULL, 0, &j.there), "queue");
    bench_check(tn_queue_open(d, NULL, NULL, 0, &j.back), "queue");
    tn_tensor *t4k = make(d, 4096), *t64 = make(d, 64);
    tn_tensor *t1g = make(d, INT64_C(1) << 30);
    atomic_store(&j.shared->ball, 1);
    uint64_t position = 0;
    bool are_threads = choose(j.cpu), is_guest = is_virtual();
    int pid = bench_fork(second, &j);
    pin(j.cpu[0]);

    for (int round = 0; round < ROUNDS; round++) {
        bench_meet(&j.shared->gate, 2);
        double before = measure_line(j.shared);
        uint64_t since = bench_now_ns();
        t4k = send_spin(&j, t4k, SPIN_TRIPS);
        double spin = per_trip(since, SPIN_TRIPS);
        since = bench_now_ns();
        ring_side(j.shared, true, &position, SPIN_TRIPS);
        double ring = per_trip(since, SPIN_TRIPS);
        double after = measure_line(j.shared);
        bool are_near = are_threads || (is_guest && before + after < 2 * SIBLINGS_NS);
        note_round(&pairs[are_near], before, spin, ring, after);
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
    print_pair("", "two cores", &pairs[0]);
    print_pair("_siblings", "two threads of a core", &pairs[1]);
    bench_print("handoff_sleep_rtt", &sleeping, "us", &futex, 1e-3);
    bench_print("handoff_size_flat", &large, "ns", &small, 1);
    tn_tensor_unref(t4k);
    tn_tensor_unref(t64);
    tn_tensor_unref(t1g);
    tn_object_close(j.there);
    tn_object_close(j.back);
    tn_domain_close(d);
    return 0;
}
