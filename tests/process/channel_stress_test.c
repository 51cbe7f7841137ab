/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests: subscribers get every message of every publisher in order, beside others that are
 * killed at any time.
 *
 *   TN_CHANNEL_ROUNDS=n  messages of each publisher; by default 3000, and 20 times that at full
 *                        size
 */
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "process/channel_world.h"

enum { PUBLISHERS = 2, READERS = 2, CAPACITY = 16 };

/* What a message says. It lies in the bytes, or, if the count is odd, at the beginning of the
 * tensor, which then is all that the message has. The rest of the tensor is the count. */
struct note {
    uint32_t publisher;
    uint32_t is_last;
    uint64_t count;
};
static struct board {
    _Atomic uint64_t received;
    _Atomic uint32_t running; /* publishers that have not ended */
} * board;

static uint64_t rounds(void)
{
    const char *text = getenv("TN_CHANNEL_ROUNDS");
    return text != NULL ? strtoull(text, NULL, 10) : tnt_is_full() ? 60000 : 3000;
}

static int send(const struct note *note)
{
    tn_tensor *t = make_tensor(64, (uint8_t)note->count);
    tn_message m = {.tensors = &t, .tensor_count = 1};
    if (note->count % 2 != 0) {
        memcpy(tn_tensor_data(t), note, sizeof *note);
    } else {
        m.bytes = note;
        m.size_bytes = sizeof *note;
    }
    int status = tn_channel_publish(channel, &m, tnt_deadline(60000));
    tn_tensor_unref(t);
    return status;
}

static int publish_for_rounds(void *argument)
{
    struct note note = {.publisher = *(const uint32_t *)argument};
    for (note.count = 1; note.count <= rounds(); note.count++) {
        note.is_last = note.count == rounds();
        TN_CHECK_OK(send(&note));
    }
    atomic_fetch_sub(&board->running, 1);
    return 0;
}

/* Publishers that are killed count from 1 each, as publisher PUBLISHERS. */
static int publish_until_killed(void *argument)
{
    struct note note = {.publisher = PUBLISHERS};
    (void)argument;
    for (note.count = 1; atomic_load(&board->running) != 0; note.count++)
        TN_CHECK_OK(send(&note));
    return 0;
}

/* @param last  [PUBLISHERS + 1], the count of the last message of each; -1 at first
 * @param may_lose  messages, as a channel that drops them does */
static struct note receive_one(tn_channel *it, uint64_t *last, bool may_lose)
{
    tn_message m;
    struct note note;
    TN_CHECK_OK(tn_channel_receive(it, tnt_deadline(60000), &m));
    TN_CHECK((m.size_bytes == sizeof note || m.size_bytes == 0) && m.tensor_count == 1);
    const uint8_t *bytes = tn_tensor_data(m.tensors[0]);
    memcpy(&note, m.size_bytes != 0 ? m.bytes : bytes, sizeof note);
    for (size_t i = m.size_bytes != 0 ? 0 : sizeof note; i < 64; i++)
        TN_CHECK(bytes[i] == (uint8_t)note.count);
    TN_CHECK(note.publisher <= PUBLISHERS);
    if (note.publisher < PUBLISHERS && last[note.publisher] != UINT64_MAX)
        TN_CHECK(may_lose ? note.count > last[note.publisher]
                          : note.count == last[note.publisher] + 1);
    last[note.publisher] = note.count;
    tn_message_fini(&m);
    atomic_fetch_add(&board->received, 1);
    return note;
}

struct reading {
    struct tnt_signal has_subscribed;
    bool may_lose;
};

static int receive_all(void *argument)
{
    struct reading *r = argument;
    uint64_t last[PUBLISHERS + 1] = {r->may_lose ? UINT64_MAX : 0,
                                     r->may_lose ? UINT64_MAX : 0};
    tn_channel *it = subscribe(TN_FROM_NEWEST);
    tnt_signal(&r->has_subscribed);
    for (uint32_t ended = 0; ended < PUBLISHERS;) {
        struct note note = receive_one(it, last, r->may_lose);
        ended += note.publisher < PUBLISHERS && note.is_last;
        if (r->may_lose && atomic_load(&board->running) == 0)
            break;
    }
    tn_object_close(it);
    return 0;
}

static int receive_until_killed(void *argument)
{
    uint64_t last[PUBLISHERS + 1] = {UINT64_MAX, UINT64_MAX};
    tn_channel *it = subscribe(TN_FROM_OLDEST);
    (void)argument;
    while (atomic_load(&board->running) != 0) {
        tn_message m;
        if (tn_channel_receive(it, TN_NOW, &m) == 0)
            tn_message_fini(&m);
    }
    (void)last;
    return 0;
}

/* Each victim is killed after some messages of any process. */
static void kill_victims(void)
{
    for (uint64_t i = 0; i < rounds() / 30; i++) {
        uint64_t until = atomic_load(&board->received) + 1 + tnt_random_below(20);
        pid_t victim = tnt_fork(i % 2 == 0 ? publish_until_killed : receive_until_killed, NULL);
        while (atomic_load(&board->received) < until && atomic_load(&board->running) != 0) {
        }
        tnt_kill(victim);
    }
}

static void run(uint32_t policy, bool kills)
{
    struct reading readings[READERS];
    pid_t readers[READERS], publishers[PUBLISHERS];
    uint32_t numbers[PUBLISHERS];
    board =
        mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    TN_CHECK(board != MAP_FAILED);
    atomic_store(&board->running, PUBLISHERS);
    begin(TN_OPTIONS(tn_channel_options, .capacity = CAPACITY, .policy = policy));
    for (int i = 0; i < READERS; i++) {
        readings[i] = (struct reading){tnt_signal_open(), policy != TN_CHANNEL_WAIT};
        readers[i] = tnt_fork(receive_all, &readings[i]);
        tnt_await(&readings[i].has_subscribed);
        tnt_signal_close(&readings[i].has_subscribed);
    }
    for (uint32_t i = 0; i < PUBLISHERS; i++) {
        numbers[i] = i;
        publishers[i] = tnt_fork(publish_for_rounds, &numbers[i]);
    }
    if (kills)
        kill_victims();
    for (int i = 0; i < PUBLISHERS; i++)
        tnt_wait_ok(publishers[i]);
    if (policy != TN_CHANNEL_WAIT) /* a reader may have lost the last messages */
        TN_CHECK_OK(send(&(struct note){.publisher = PUBLISHERS, .count = 1}));
    for (int i = 0; i < READERS; i++)
        tnt_wait_ok(readers[i]);
    tnt_note("%llu received, %llu lost", (unsigned long long)atomic_load(&board->received),
             (unsigned long long)info_of(channel).dropped);
    int status;
    while ((status = tn_domain_reap(d, NULL)) == TN_ERR_TIMED_OUT) {
    }
    TN_CHECK_OK(status);
    TN_CHECK(info_of(channel).kept == 0 || policy != TN_CHANNEL_WAIT);
    finish();
    munmap(board, sizeof *board);
}

TN_TEST_WITHIN(each_reader_gets_each_message_of_each_publisher, 120)
{
    run(TN_CHANNEL_WAIT, false);
}
TN_TEST_WITHIN(each_reader_gets_each_message_while_others_are_killed, 120)
{
    run(TN_CHANNEL_WAIT, true);
}
TN_TEST_WITHIN(a_reader_that_loses_messages_gets_the_others_in_order, 120)
{
    run(TN_CHANNEL_DROP, false);
}
TN_TEST_WITHIN(a_reader_that_loses_messages_outlives_who_is_killed, 120)
{
    run(TN_CHANNEL_DROP, true);
}
