/* SPDX-License-Identifier: Apache-2.0 */
/*
 * channel_fanout: messages a second from one process to four, each a tensor of 4 KiB that the
 * publisher makes of private memory, and of which each subscriber reads a word of each cache
 * line. Baseline: a plain ring in shared memory with as many slots, written for this: the
 * writer copies 4 KiB into a slot and says that it is full, each reader copies them out and
 * says that it has; who waits gives its processor to others.
 * channel_latency: a tensor of 4 KiB from a publisher to the last of two subscribers that poll,
 * and that answer by a cache line; baseline: a cache line to both and back. It needs three
 * processors. channel_latency_one: the same with one subscriber.
 */
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"

enum {
    FAN_ROUNDS = 11,
    FAN_MESSAGES = 50000,
    READERS = 4,
    SLOTS = 64,
    BYTES = 4096,
    WORDS = BYTES / 8,
    LINE_WORDS = 8,
    TRIP_ROUNDS = 41,
    TRIPS = 2000,
    ANSWERERS = 2
};

struct slot {
    _Alignas(64) _Atomic uint64_t full; /* the number of the message */
    struct {
        _Alignas(64) _Atomic uint64_t has_read; /* the same */
    } reader[READERS];
    uint64_t data[WORDS];
};

struct shared {
    _Alignas(128) _Atomic uint32_t gate;
    _Alignas(128) _Atomic uint32_t ball;
    struct {
        _Alignas(128) _Atomic uint32_t ball;
    } answer[ANSWERERS];
    struct slot slots[SLOTS];
};

struct job {
    tn_domain *domain;
    tn_channel *channel;
    struct shared *shared;
    uint32_t index;     /* of this process */
    uint32_t answerers; /* of a round trip */
    uint32_t rounds;
};

static uint64_t source[WORDS];

/* A word of each line. */
static uint64_t sum(const uint64_t *data)
{
    uint64_t all = 0;
    for (uint32_t i = 0; i < WORDS; i += LINE_WORDS)
        all += data[i];
    return all;
}

static void expect(uint64_t found, uint64_t number)
{
    if (found != number * (WORDS / LINE_WORDS))
        bench_check(TN_ERR_CORRUPT, "a message is not what was sent");
}

static void fill(uint64_t *data, uint64_t number)
{
    for (uint32_t i = 0; i < WORDS; i += LINE_WORDS)
        source[i] = number;
    memcpy(data, source, BYTES);
}

/* ---- the channel ------------------------------------------------------------------------- */

static tn_tensor *make_tensor(const struct job *j)
{
    tn_tensor *t;
    bench_check(tn_tensor_create(j->domain, TN_UINT64, 1, (int64_t[]){WORDS},
                                 TN_OPTIONS(tn_tensor_options, .deadline = TN_FOREVER), &t),
                "tensor");
    return t;
}

static void publish(const struct job *j, tn_tensor *t)
{
    const tn_message m = {.tensors = &t, .tensor_count = 1};
    bench_check(tn_channel_publish(j->channel, &m, TN_FOREVER), "publish");
}

static void read_channel(void *context)
{
    const struct job *j = context;
    bench_check(tn_channel_subscribe(j->channel, TN_FROM_NEWEST), "subscribe");
    bench_meet(&j->shared->gate, READERS + 1);
    for (uint64_t i = 1; i <= FAN_MESSAGES; i++) {
        tn_message m;
        bench_check(tn_channel_receive(j->channel, TN_FOREVER, &m), "receive");
        expect(sum(tn_tensor_data(m.tensors[0])), i);
        tn_message_fini(&m);
    }
    tn_domain_close(j->domain);
}

static void write_channel(const struct job *j)
{
    for (uint64_t i = 1; i <= FAN_MESSAGES; i++) {
        tn_tensor *t = make_tensor(j);
        fill(tn_tensor_data(t), i);
        publish(j, t);
        tn_tensor_unref(t);
    }
}

/* ---- the ring ---------------------------------------------------------------------------- */

static void await(const _Atomic uint64_t *word, uint64_t number)
{
    for (int i = 0; atomic_load_explicit(word, memory_order_acquire) < number; i++)
        if (i < 100)
            bench_relax();
        else
            sched_yield();
}

static void read_ring(void *context)
{
    const struct job *j = context;
    uint64_t copy[WORDS];
    bench_meet(&j->shared->gate, READERS + 1);
    for (uint64_t i = 1; i <= FAN_MESSAGES; i++) {
        struct slot *slot = &j->shared->slots[i % SLOTS];
        await(&slot->full, i);
        memcpy(copy, slot->data, BYTES);
        atomic_store_explicit(&slot->reader[j->index].has_read, i, memory_order_release);
        expect(sum(copy), i);
    }
}

static void write_ring(const struct job *j)
{
    for (uint64_t i = 1; i <= FAN_MESSAGES; i++) {
        struct slot *slot = &j->shared->slots[i % SLOTS];
        for (uint32_t r = 0; r < READERS; r++)
            await(&slot->reader[r].has_read, i > SLOTS ? i - SLOTS : 0);
        fill(slot->data, i);
        atomic_store_explicit(&slot->full, i, memory_order_release);
    }
}

/* @return messages a second */
static double fan_out(struct job j, void (*read)(void *), void (*write)(const struct job *))
{
    int pids[READERS];
    memset(j.shared, 0, sizeof *j.shared);
    bench_check(tn_channel_open(j.domain, NULL,
                                TN_OPTIONS(tn_channel_options, .capacity = SLOTS), 0,
                                &j.channel),
                "channel");
    for (j.index = 0; j.index < READERS; j.index++)
        pids[j.index] = bench_fork(read, &j);
    bench_meet(&j.shared->gate, READERS + 1);
    uint64_t since_ns = bench_now_ns();
    write(&j);
    for (uint32_t i = 0; i < READERS; i++)
        bench_join(pids[i]);
    double seconds = (double)(bench_now_ns() - since_ns) * 1e-9;
    tn_object_close(j.channel);
    return FAN_MESSAGES / seconds;
}

/* ---- round trips ------------------------------------------------------------------------- */

static void pin(uint32_t index)
{
    cpu_set_t mine, one;
    uint32_t seen = 0;
    CPU_ZERO(&one);
    if (sched_getaffinity(0, sizeof mine, &mine) != 0)
        return;
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &mine) && seen++ == index)
            CPU_SET(cpu, &one);
    bench_check(sched_setaffinity(0, sizeof one, &one), "sched_setaffinity");
}

static void give_back(const struct job *j, uint32_t ball)
{
    atomic_store(&j->shared->answer[j->index].ball, ball);
}

static void answer(void *context)
{
    const struct job *j = context;
    uint32_t ball = 0;
    pin(j->index + 1);
    bench_check(tn_channel_subscribe(j->channel, TN_FROM_NEWEST), "subscribe");
    bench_meet(&j->shared->gate, j->answerers + 1);
    for (uint32_t r = 0; r < j->rounds; r++) {
        for (uint32_t i = 0; i < TRIPS; i++) {
            ball++;
            while (atomic_load(&j->shared->ball) != ball)
                bench_relax();
            give_back(j, ball);
        }
        for (uint32_t i = 0; i < TRIPS; i++) {
            tn_message m;
            int status;
            do
                status = tn_channel_receive(j->channel, TN_NOW, &m);
            while (status == TN_ERR_TIMED_OUT);
            bench_check(status, "receive");
            give_back(j, ++ball);
            tn_message_fini(&m);
        }
    }
    tn_domain_close(j->domain);
}

static void await_answers(const struct job *j, uint32_t ball)
{
    for (uint32_t a = 0; a < j->answerers; a++)
        while (atomic_load(&j->shared->answer[a].ball) != ball)
            bench_relax();
}

static double pass_balls(const struct job *j, uint32_t *ball)
{
    uint64_t since_ns = bench_now_ns();
    for (uint32_t i = 0; i < TRIPS; i++) {
        atomic_store(&j->shared->ball, ++*ball);
        await_answers(j, *ball);
    }
    return (double)(bench_now_ns() - since_ns) / TRIPS;
}

static double pass_messages(const struct job *j, tn_tensor *t, uint32_t *ball)
{
    uint64_t since_ns = bench_now_ns();
    for (uint32_t i = 0; i < TRIPS; i++) {
        publish(j, t);
        await_answers(j, ++*ball);
    }
    return (double)(bench_now_ns() - since_ns) / TRIPS;
}

static void measure_trips(struct job j, const char *name)
{
    static struct bench_series trips, lines;
    int pids[ANSWERERS];
    uint32_t ball = 0;
    cpu_set_t mine;
    trips.count = lines.count = 0;
    j.rounds = TRIP_ROUNDS;
    memset(j.shared, 0, sizeof *j.shared);
    bench_check(sched_getaffinity(0, sizeof mine, &mine), "sched_getaffinity");
    bench_check(tn_channel_open(j.domain, NULL, NULL, 0, &j.channel), "channel");
    tn_tensor *t = make_tensor(&j);
    for (j.index = 0; j.index < j.answerers; j.index++)
        pids[j.index] = bench_fork(answer, &j);
    pin(0);
    bench_meet(&j.shared->gate, j.answerers + 1);
    for (uint32_t r = 0; r < TRIP_ROUNDS; r++) {
        bench_add(&lines, pass_balls(&j, &ball));
        bench_add(&trips, pass_messages(&j, t, &ball));
    }
    for (uint32_t a = 0; a < j.answerers; a++)
        bench_join(pids[a]);
    tn_tensor_unref(t);
    tn_object_close(j.channel);
    bench_check(sched_setaffinity(0, sizeof mine, &mine), "sched_setaffinity");
    bench_print(name, &trips, "ns", &lines, 1);
}

static uint32_t count_processors(void)
{
    cpu_set_t mine;
    return sched_getaffinity(0, sizeof mine, &mine) == 0 ? (uint32_t)CPU_COUNT(&mine) : 1;
}

int main(void)
{
    static struct bench_series channels, rings;
    struct job j = {.shared = bench_shared(sizeof(struct shared))};
    bench_check(tn_domain_open(NULL, NULL, 0, &j.domain), "domain");
    for (int round = 0; round < FAN_ROUNDS; round++) {
        bench_add(&channels, fan_out(j, read_channel, write_channel));
        bench_add(&rings, fan_out(j, read_ring, write_ring));
    }
    bench_print("channel_fanout", &channels, "M/s", &rings, 1e-6);
    if (count_processors() >= 2) {
        j.answerers = 1;
        measure_trips(j, "channel_latency_one");
    }
    j.answerers = ANSWERERS;
    if (count_processors() > ANSWERERS)
        measure_trips(j, "channel_latency");
    else
        fprintf(stderr, "channel_latency needs %d processors\n", ANSWERERS + 1);
    tn_domain_close(j.domain);
    return 0;
}
