/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests: a message that a process cannot receive stays in the queue, and a queue is over only
 * when no message can come any more.
 */
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>

#include "base/base.h"
#include "harness/harness.h"
#include "harness/tensor.h"
#include "process/queue_world.h"
#include "wait/wait.h"

static int try_push_number(uint32_t number)
{
    tn_message m = {.bytes = &number, .size_bytes = sizeof number};
    return tn_queue_push(q, &m, 0, TN_NOW);
}

#if defined(TN_KILL_POINTS)
/* ---- a message that cannot be had -------------------------------------------------------- */

static void push_file(void)
{
    const tn_tensor_options file = {.struct_size = sizeof file,
                                    .strategy = TN_STRATEGY_FILE_SYSTEM};
    int64_t count = 4;
    tn_tensor *t;
    TN_CHECK_OK(tn_tensor_create(d, TN_UINT8, 1, &count, &file, &t));
    TN_CHECK_OK(tn_queue_push_tensor(q, t, TN_PUSH_MOVE, TN_NOW));
}

/* @param argument  NULL: pop a message; else a tensor */
static int pop_without_descriptors(void *argument)
{
    struct rlimit none = {0, 0};
    tn_message m;
    tn_tensor *t;
    tni_kill_point_arm("pop_taken", 1); /* a process that takes a message is killed */
    TN_CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
    TN_CHECK((argument == NULL ? tn_queue_pop(q, TN_NOW, &m)
                               : tn_queue_pop_tensor(q, TN_NOW, &t)) == TN_ERR_FULL);
    return 0;
}

TN_TEST(a_message_that_cannot_be_had_for_want_of_room_is_not_taken)
{
    for (uint32_t policy = TN_QUEUE_REDELIVER; policy <= TN_QUEUE_LEASE; policy++) {
        tn_message m;
        begin(2, policy);
        push_file();
        TN_CHECK_OK(try_push_number(2));
        tnt_wait_ok(tnt_fork(pop_without_descriptors, NULL));
        if (policy != TN_QUEUE_LEASE)
            tnt_wait_ok(tnt_fork(pop_without_descriptors, d));
        TN_CHECK_OK(tn_queue_pop(q, TN_NOW, &m));
        assert_int_equal(m.tensor_count, 1);
        assert_int_equal(m.attempt, 0);
        if (policy == TN_QUEUE_LEASE)
            TN_CHECK_OK(tn_message_ack(q, &m));
        tn_message_fini(&m);
        finish();
    }
}

static int pop_a_row_without_descriptors(void *unused)
{
    struct rlimit none = {0, 0};
    tn_message m[2];
    (void)unused;
    tni_kill_point_arm("pop_taken", 2);
    TN_CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
    TN_CHECK(tn_queue_pop_many(q, 2, TN_NOW, m) == 1);
    tn_message_fini(&m[0]);
    return 0;
}

TN_TEST(a_row_of_pops_ends_before_a_message_that_it_cannot_have)
{
    tn_message m;
    begin(2, 0);
    TN_CHECK_OK(try_push_number(1));
    push_file();
    tnt_wait_ok(tnt_fork(pop_a_row_without_descriptors, NULL));
    TN_CHECK_OK(tn_queue_pop(q, TN_NOW, &m));
    assert_int_equal(m.tensor_count, 1);
    tn_message_fini(&m);
    finish();
}

#endif
/* ---- the end of a queue ------------------------------------------------------------------ */

static int take_and_die(void *argument)
{
    const _Atomic uint32_t *items = &((const struct tn_object *)q)->object->items;
    struct tni_thread *thread = tni_thread_enter(d);
    struct tni_taken taken;
    TN_CHECK_OK(tn_queue_attach(q, TN_CONSUMER));
    TN_CHECK_OK(tni_ring_find(tni_queue_of(q), &taken));
    TN_CHECK(tni_ring_take(tni_queue_of(q), thread, &taken));
    tnt_signal(argument);
    while ((atomic_load(items) & TNI_WAIT_ARMED) == 0)
        sched_yield();
    return raise(SIGKILL);
}

TN_TEST(an_ended_queue_waits_for_a_message_that_is_being_popped)
{
    struct tnt_signal is_taken = tnt_signal_open();
    tn_message m;
    begin(2, TN_QUEUE_REDELIVER);
    TN_CHECK_OK(try_push_number(1));
    TN_CHECK_OK(tn_queue_end(q));
    pid_t pid = tnt_fork(take_and_die, &is_taken);
    tnt_await(&is_taken);
    TN_CHECK_OK(tn_queue_pop(q, TN_FOREVER, &m));
    assert_int_equal(m.attempt, 1);
    tn_message_fini(&m);
    assert_int_equal(tn_queue_pop(q, TN_FOREVER, &m), TN_ERR_CLOSED);
    tnt_wait(pid);
    tnt_signal_close(&is_taken);
    finish();
}

static int take_and_finish(void *argument)
{
    struct tnt_signal *signals = argument;
    struct tni_thread *thread = tni_thread_enter(d);
    struct tni_taken taken = take_and_await_a_sleeper(thread, &signals[0]);
    tni_ring_take_end(tni_queue_of(q), thread, &taken);
    tni_thread_leave(thread);
    tnt_signal(&signals[1]);
    tnt_await(&signals[2]); /* the death of this process would wake them too */
    return 0;
}

TN_TEST(popping_the_last_message_of_an_ended_queue_wakes_the_others)
{
    struct tnt_signal signals[3] = {tnt_signal_open(), tnt_signal_open(), tnt_signal_open()};
    tn_message m;
    begin(2, TN_QUEUE_REDELIVER);
    TN_CHECK_OK(try_push_number(1));
    TN_CHECK_OK(tn_queue_end(q));
    pid_t pid = tnt_fork(take_and_finish, signals);
    tnt_await(&signals[0]);
    const _Atomic uint32_t *items = &((const struct tn_object *)q)->object->items;
    uint32_t epoch = atomic_load(items) / TNI_WAIT_EPOCH;
    assert_int_equal(tn_queue_pop(q, TN_FOREVER, &m), TN_ERR_CLOSED);
    tnt_await(&signals[1]);
    assert_int_not_equal(atomic_load(items) / TNI_WAIT_EPOCH, epoch);
    tnt_signal(&signals[2]);
    tnt_wait_ok(pid);
    for (int i = 0; i < 3; i++)
        tnt_signal_close(&signals[i]);
    finish();
}

TN_TEST(an_ended_queue_waits_for_a_push_that_had_begun)
{
    tn_message m;
    begin(2, 0);
    TN_CHECK_OK(tn_queue_attach(q, TN_PRODUCER | TN_CONSUMER));
    _Atomic uint64_t *word = &tni_slot_at(tni_queue_of(q), 0)->word;
    uint64_t empty = atomic_load(word);
    /* as if this process were in the middle of a push */
    atomic_store(word, empty | tni_slot_word(0, TNI_SLOT_CLAIMED, d->seat, 0));
    TN_CHECK_OK(tn_queue_end(q));
    assert_int_equal(tn_queue_pop(q, TN_NOW, &m), TN_ERR_TIMED_OUT);
    assert_int_equal(tn_object_wait_any(&q, 1, TN_NOW), TN_ERR_TIMED_OUT);
    atomic_store(word, empty);
    assert_int_equal(tn_object_wait_any(&q, 1, TN_NOW), 0);
    assert_int_equal(tn_queue_pop(q, TN_NOW, &m), TN_ERR_CLOSED);
    finish();
}

static int lease_one(void *argument)
{
    struct tnt_signal *signals = argument;
    tn_message m;
    TN_CHECK_OK(tn_queue_pop(q, TN_NOW, &m));
    tnt_signal(&signals[0]);
    tnt_await(&signals[1]);
    TN_CHECK_OK(tn_message_ack(q, &m));
    tn_message_fini(&m);
    return 0;
}

TN_TEST(wait_any_calls_no_queue_ready_whose_last_message_is_leased)
{
    struct tnt_signal signals[2] = {tnt_signal_open(), tnt_signal_open()};
    begin(2, TN_QUEUE_LEASE);
    TN_CHECK_OK(try_push_number(1));
    TN_CHECK_OK(tn_queue_end(q));
    pid_t pid = tnt_fork(lease_one, signals);
    tnt_await(&signals[0]);
    assert_int_equal(tn_object_wait_any(&q, 1, TN_NOW), TN_ERR_TIMED_OUT);
    tnt_signal(&signals[1]);
    assert_int_equal(tn_object_wait_any(&q, 1, TN_FOREVER), 0);
    tnt_wait_ok(pid);
    for (int i = 0; i < 2; i++)
        tnt_signal_close(&signals[i]);
    finish();
}

/* ---- the death of the last producer ------------------------------------------------------ */

static int push_and_be_killed(void *unused)
{
    (void)unused;
    TN_CHECK_OK(try_push_number(1));
    return raise(SIGKILL);
}

/* Begin with a queue that has a message of a dead producer. */
static void begin_orphaned(uint32_t policy)
{
    begin(2, policy);
    TN_CHECK_OK(tn_queue_attach(q, TN_CONSUMER));
    tnt_wait(tnt_fork(push_and_be_killed, NULL));
    TN_CHECK_OK(tn_domain_reap(d, NULL));
}

static int lease_and_return(void *argument)
{
    struct tnt_signal *signals = argument;
    tn_message m;
    TN_CHECK_OK(tn_queue_pop(q, TN_NOW, &m));
    tnt_signal(&signals[0]);
    tnt_await(&signals[1]);
    TN_CHECK_OK(tn_message_return(q, &m));
    tn_message_fini(&m);
    return 0;
}

TN_TEST(no_death_is_reported_while_a_message_may_come_back)
{
    struct tnt_signal signals[2] = {tnt_signal_open(), tnt_signal_open()};
    tn_message m;
    begin_orphaned(TN_QUEUE_LEASE);
    pid_t pid = tnt_fork(lease_and_return, signals);
    tnt_await(&signals[0]);
    assert_int_equal(tn_queue_pop(q, TN_NOW, &m), TN_ERR_TIMED_OUT);
    assert_int_equal(tn_object_wait_any(&q, 1, TN_NOW), TN_ERR_TIMED_OUT);
    tnt_signal(&signals[1]);
    TN_CHECK_OK(tn_queue_pop(q, TN_FOREVER, &m));
    assert_int_equal(m.attempt, 1);
    /* A message that this process has leased itself is no reason to wait. */
    tn_message other;
    assert_int_equal(tn_object_wait_any(&q, 1, TN_NOW), 0);
    assert_int_equal(tn_queue_pop(q, TN_NOW, &other), TN_ERR_PEER_DIED);
    TN_CHECK_OK(tn_message_ack(q, &m));
    tn_message_fini(&m);
    tnt_wait_ok(pid);
    for (int i = 0; i < 2; i++)
        tnt_signal_close(&signals[i]);
    finish();
}

/* @return how often the epoch of the wait word of pops has changed */
static uint32_t wakes(void)
{
    const _Atomic uint32_t *items = &((const struct tn_object *)q)->object->items;
    return atomic_load(items) / TNI_WAIT_EPOCH;
}

static int lease_and_ack_beside_a_sleeper(void *argument)
{
    const _Atomic uint32_t *items = &((const struct tn_object *)q)->object->items;
    struct tnt_signal *signals = argument;
    tn_message m;
    TN_CHECK_OK(tn_queue_pop(q, TN_NOW, &m));
    tnt_signal(&signals[0]);
    while ((atomic_load(items) & TNI_WAIT_ARMED) == 0)
        sched_yield();
    TN_CHECK_OK(tn_message_ack(q, &m));
    tn_message_fini(&m);
    tnt_signal(&signals[1]);
    tnt_await(&signals[2]); /* the death of this process would wake them too */
    return 0;
}

/* @param take  takes the message, and ends that once another process sleeps */
static void expect_a_wake(uint32_t policy, tnt_child_fn *take)
{
    struct tnt_signal signals[3] = {tnt_signal_open(), tnt_signal_open(), tnt_signal_open()};
    tn_message m;
    begin_orphaned(policy);
    pid_t pid = tnt_fork(take, signals);
    tnt_await(&signals[0]);
    uint32_t before = wakes();
    assert_int_equal(tn_queue_pop(q, TN_FOREVER, &m), TN_ERR_PEER_DIED);
    tnt_await(&signals[1]);
    assert_int_not_equal(wakes(), before);
    tnt_signal(&signals[2]);
    tnt_wait_ok(pid);
    for (int i = 0; i < 3; i++)
        tnt_signal_close(&signals[i]);
    finish();
}

TN_TEST(ending_the_last_message_of_a_dead_process_wakes_the_others)
{
    expect_a_wake(TN_QUEUE_LEASE, lease_and_ack_beside_a_sleeper);
    expect_a_wake(TN_QUEUE_REDELIVER, take_and_finish);
}

TN_TEST(a_dead_consumers_message_returns_before_its_death_is_told)
{
    struct tnt_signal is_taken = tnt_signal_open();
    tn_message m;
    begin_orphaned(TN_QUEUE_REDELIVER);
    pid_t pid = tnt_fork(take_and_die, &is_taken);
    tnt_await(&is_taken);
    TN_CHECK_OK(tn_queue_pop(q, TN_FOREVER, &m));
    assert_int_equal(m.attempt, 1);
    tn_message_fini(&m);
    assert_int_equal(tn_queue_pop(q, TN_FOREVER, &m), TN_ERR_PEER_DIED);
    tnt_wait(pid);
    tnt_signal_close(&is_taken);
    finish();
}

static int produce_and_leave(void *argument)
{
    struct tnt_signal *signals = argument;
    TN_CHECK_OK(tn_queue_attach(q, TN_PRODUCER));
    tnt_signal(&signals[0]);
    tnt_await(&signals[1]);
    tn_object_close(q);
    tn_domain_close(d);
    return 0;
}

TN_TEST(a_death_is_told_after_the_last_producer_left_in_order)
{
    struct tnt_signal signals[2] = {tnt_signal_open(), tnt_signal_open()};
    char said[128];
    tn_message m;
    begin(2, TN_QUEUE_REDELIVER);
    pid_t leaver = tnt_fork(produce_and_leave, signals);
    tnt_await(&signals[0]);
    pid_t killed = tnt_fork(push_and_be_killed, NULL);
    tnt_wait(killed);
    TN_CHECK_OK(tn_domain_reap(d, NULL));
    TN_CHECK_OK(tn_queue_pop(q, TN_NOW, &m));
    tn_message_fini(&m);
    assert_int_equal(tn_queue_pop(q, TN_NOW, &m), TN_ERR_TIMED_OUT);
    tnt_signal(&signals[1]);
    tnt_wait_ok(leaver);
    assert_int_equal(tn_queue_pop(q, TN_FOREVER, &m), TN_ERR_PEER_DIED);
    assert_int_equal(tn_error_peer().pid, killed);
    snprintf(said, sizeof said, "process %d in seat %u, a producer of queue ", (int)killed,
             tn_error_peer().seat);
    assert_non_null(strstr(tn_error_detail(), said));
    assert_non_null(strstr(tn_error_detail(), ", died, and no other producer is left"));
    assert_null(strstr(tn_error_detail(), "the last"));
    for (int i = 0; i < 2; i++)
        tnt_signal_close(&signals[i]);
    finish();
}

#if defined(TN_KILL_POINTS)

static int attach_and_die(void *role)
{
    TN_CHECK_OK(tn_queue_attach(q, *(const uint32_t *)role));
    return raise(SIGKILL);
}

static int close_and_reap(void *unused)
{
    (void)unused;
    q = tn_object_close(q); /* so that the death of this process does not concern the queue */
    TN_CHECK_OK(tn_domain_reap(d, NULL));
    return 0;
}

TN_TEST(a_death_is_reported_though_its_recoverer_is_killed)
{
    for (uint32_t role = TN_PRODUCER; role <= TN_CONSUMER; role <<= 1) {
        tn_message m;
        begin(1, 0);
        TN_CHECK_OK(tn_queue_attach(q, role == TN_PRODUCER ? TN_CONSUMER : TN_PRODUCER));
        tnt_wait(tnt_fork(attach_and_die, &role));
        assert_true(tnt_kill_at("reclaim_role_noted", 1, close_and_reap, NULL));
        TN_CHECK_OK(tn_domain_reap(d, NULL));
        if (role == TN_PRODUCER) {
            assert_int_equal(tn_object_wait_any(&q, 1, TN_NOW), 0);
            assert_int_equal(tn_queue_pop(q, TN_NOW, &m), TN_ERR_PEER_DIED);
        } else {
            TN_CHECK_OK(try_push_number(1));
            assert_int_equal(try_push_number(2), TN_ERR_PEER_DIED);
        }
        assert_int_equal(tnt_peers(q, role), 0);
        finish();
    }
}

#endif
/* ---- the last one that can serve leaves, after an earlier death -----------------------------
 */

static int produce_until_told(void *argument)
{
    struct tnt_signal *signals = argument;
    TN_CHECK_OK(tn_queue_attach(q, TN_PRODUCER));
    tnt_signal(&signals[0]);
    tnt_await(&signals[1]);
    tn_object_close(q);
    return 0;
}

static int push_again_and_be_killed(void *unused)
{
    (void)unused;
    uint64_t id = tn_object_id(q);
    push_number(1);
    tn_object_close(q);
    TN_CHECK_OK(tn_object_open_id(d, TN_OBJECT_QUEUE, id, &q));
    push_number(2);
    return raise(SIGKILL);
}

TN_TEST(a_process_that_reopens_a_queue_and_pushes_is_a_producer)
{
    tn_message m;
    begin(2, 0);
    TN_CHECK_OK(tn_queue_attach(q, TN_CONSUMER));
    tnt_wait(tnt_fork(push_again_and_be_killed, NULL));
    assert_int_equal(pop_number(TN_NOW), 1);
    assert_int_equal(pop_number(TN_NOW), 2);
    TN_CHECK_OK(tn_domain_reap(d, NULL));
    assert_int_equal(tn_queue_pop(q, TN_NOW, &m), TN_ERR_PEER_DIED);
    finish();
}

static int produce_and_be_killed(void *unused)
{
    (void)unused;
    TN_CHECK_OK(tn_queue_attach(q, TN_PRODUCER));
    return raise(SIGKILL);
}

/* A queue with two producers: one is dead, and the child leaves when it is told to. */
static pid_t begin_without_producer(struct tnt_signal *signals)
{
    for (int i = 0; i < 2; i++)
        signals[i] = tnt_signal_open();
    begin(2, 0);
    TN_CHECK_OK(tn_queue_attach(q, TN_CONSUMER));
    pid_t pid = tnt_fork(produce_until_told, signals);
    tnt_await(&signals[0]);
    tnt_wait(tnt_fork(produce_and_be_killed, NULL));
    TN_CHECK_OK(tn_domain_reap(d, NULL));
    assert_int_equal(tn_object_wait_any(&q, 1, TN_NOW), TN_ERR_TIMED_OUT);
    return pid;
}

static void finish_orphaned(struct tnt_signal *signals, pid_t pid)
{
    tn_message m;
    assert_int_equal(tn_queue_pop(q, TN_NOW, &m), TN_ERR_PEER_DIED);
    tnt_wait_ok(pid);
    for (int i = 0; i < 2; i++)
        tnt_signal_close(&signals[i]);
    finish();
}

TN_TEST(a_poller_learns_that_the_last_producer_left_after_a_death)
{
    struct tnt_signal signals[2];
    struct pollfd p = {.events = POLLIN};
    pid_t pid = begin_without_producer(signals);
    TN_CHECK_OK(tn_domain_poll_fd(d, &p.fd));
    TN_CHECK_OK(tn_object_watch(q, true));
    tn_domain_poll_clear(d);
    assert_int_equal(tn_object_wait_any(&q, 1, TN_NOW), TN_ERR_TIMED_OUT);
    tnt_signal(&signals[1]);
    assert_int_equal(poll(&p, 1, 10000), 1);
    assert_int_equal(tn_object_wait_any(&q, 1, TN_NOW), 0);
    finish_orphaned(signals, pid);
}

TN_TEST(a_sleeper_wakes_when_the_last_producer_leaves_after_a_death)
{
    struct tnt_signal signals[2];
    pid_t pid = begin_without_producer(signals);
    uint32_t before = wakes();
    tnt_signal(&signals[1]);
    while (wakes() == before) /* the time limit of the test ends this loop */
        sched_yield();
    finish_orphaned(signals, pid);
}

/* ---- a push beside the end --------------------------------------------------------------- */

static _Atomic uint32_t pushed;

static void *push_until_the_end(void *is_tensor)
{
    int64_t count = 4;
    tn_tensor *t;
    int status = 0;
    for (;;) {
        if (is_tensor == NULL) {
            status = try_push_number(1);
        } else {
            TN_CHECK_OK(tn_tensor_create(d, TN_UINT8, 1, &count, NULL, &t));
            status = tn_queue_push_tensor(q, t, TN_PUSH_MOVE, TN_NOW);
            if (status != 0)
                tn_tensor_unref(t);
        }
        if (status == TN_ERR_CLOSED)
            return NULL;
        if (status == 0)
            atomic_fetch_add(&pushed, 1);
        else
            TN_CHECK(status == TN_ERR_TIMED_OUT);
    }
}

TN_TEST_WITHIN(every_message_that_was_pushed_comes_before_the_end, 120)
{
    for (uint32_t round = 0; round < 400; round++) {
        pthread_t pusher;
        uint32_t popped = 0;
        tn_message m;
        int status;
        begin(2, 0);
        atomic_store(&pushed, 0);
        TN_CHECK(pthread_create(&pusher, NULL, push_until_the_end,
                                round % 2 == 0 ? NULL : &pushed) == 0);
        while (popped < 8)
            if (tn_queue_pop(q, TN_FOREVER, &m) == 0) {
                tn_message_fini(&m);
                popped++;
            }
        TN_CHECK_OK(tn_queue_end(q));
        while ((status = tn_queue_pop(q, TN_NOW, &m)) != TN_ERR_CLOSED)
            if (status == 0) {
                tn_message_fini(&m);
                popped++;
            }
        pthread_join(pusher, NULL);
        assert_int_equal(popped, atomic_load(&pushed));
        finish();
    }
}
