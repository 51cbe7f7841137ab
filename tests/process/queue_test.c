/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests: queues between processes, as queue.h states them. ring.c I1 to I4.
 */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "harness/harness.h"
#include "harness/tensor.h"
#include "os/os.h"
#include "process/queue_world.h"
#include "queue/queue.h"
#include "wait/wait.h"

static tn_tensor *numbers(int64_t count, float first)
{
    tn_tensor *t;
    TN_CHECK_OK(tn_tensor_create(d, TN_FLOAT32, 1, &count, NULL, &t));
    for (int64_t i = 0; i < count; i++)
        ((float *)tn_tensor_data(t))[i] = first + (float)i;
    return t;
}

TN_TEST(what_is_pushed_is_popped_in_order_over_many_rounds)
{
    begin(8, 0);
    for (uint32_t i = 0; i < 1000; i += 5) {
        for (uint32_t k = 0; k < 5; k++)
            push_number(i + k);
        assert_int_equal(tn_queue_count(q), 5);
        for (uint32_t k = 0; k < 5; k++)
            assert_int_equal(pop_number(TN_NOW), i + k);
    }
    finish();
}

static int pop_one(void *argument)
{
    (void)argument;
    (void)pop_number(TN_NOW);
    return 0;
}

TN_TEST(a_count_is_zero_when_messages_were_taken_out_of_order)
{
    begin(8, 0);
    push_number(1);
    push_number(2);
    assert_true(tnt_kill_at("pop_taken", 1, pop_one, NULL));
    assert_int_equal(pop_number(TN_NOW), 2); /* the pop steps over the first message */
    assert_in_range(tn_queue_count(q), 1, 2);
    TN_CHECK_OK(tn_domain_reap(d, NULL));
    assert_in_range(tn_queue_count(q), 1, 2);
    assert_int_equal(pop_number(TN_NOW), 1);
    assert_int_equal(tn_queue_count(q), 0);
    finish();
}

static tn_semaphore *owed;

static int owe_and_pop(void *argument)
{
    TN_CHECK_OK(tn_semaphore_acquire(owed, TN_NOW));
    return pop_one(argument);
}

static int reap(void *argument)
{
    (void)argument;
    TN_CHECK_OK(tn_domain_reap(d, NULL));
    return 0;
}

TN_TEST(a_dead_consumers_message_is_back_before_its_permits)
{
    tn_queue_options options = {.struct_size = sizeof options, .capacity = 8};
    begin(8, 0);
    tn_object_close(q);
    TN_CHECK_OK(tn_semaphore_open(d, NULL, 2, TN_SEMAPHORE_OWNED, &owed));
    TN_CHECK_OK(tn_queue_open(d, NULL, &options, 0, &q));
    push_number(1);
    assert_true(tnt_kill_at("pop_taken", 1, owe_and_pop, NULL));
    assert_true(tnt_kill_at("semaphore_reclaim_announced", 1, reap, NULL));
    assert_int_equal(tn_semaphore_count(owed), 1);
    assert_int_equal(pop_number(TN_NOW), 1);
    TN_CHECK_OK(tn_domain_reap(d, NULL));
    assert_int_equal(tn_semaphore_count(owed), 2);
    tn_object_close(owed);
    finish();
}

static int stay_as_consumer(void *ready)
{
    TN_CHECK_OK(tn_queue_attach(q, TN_CONSUMER));
    tnt_signal(ready);
    return pause();
}

TN_TEST(peers_are_counted_by_role_until_their_death_is_reclaimed)
{
    struct tnt_signal ready = tnt_signal_open();
    begin(4, 0);
    push_number(1); /* it is a producer, and the only one */
    assert_int_equal(tnt_peers(q, TN_PRODUCER | TN_CONSUMER), 0);
    pid_t child = tnt_fork(stay_as_consumer, &ready);
    tnt_await(&ready);
    assert_int_equal(tnt_peers(q, TN_CONSUMER), 1);
    assert_int_equal(tnt_peers(q, TN_PRODUCER), 0);
    assert_int_equal(tnt_peers(q, TN_PRODUCER | TN_CONSUMER), 1);
    tnt_kill(child);
    assert_int_equal(tnt_peers(q, TN_CONSUMER), 1);
    TN_CHECK_OK(tn_domain_reap(d, NULL));
    assert_int_equal(tnt_peers(q, TN_CONSUMER), 0);
    assert_int_equal(tnt_peers(NULL, TN_CONSUMER), 0);
    assert_int_equal(pop_number(TN_NOW), 1);
    tnt_signal_close(&ready);
    finish();
}

TN_TEST(a_queue_holds_as_many_messages_as_it_was_made_for)
{
    static const uint32_t capacities[] = {1, 3, 5, 6, 7, 100, 1000};
    for (size_t i = 0; i < sizeof capacities / sizeof *capacities; i++) {
        const uint32_t capacity = capacities[i];
        const tn_message m = {.bytes = "x", .size_bytes = 1};
        begin(capacity, 0);
        assert_int_equal(tnt_capacity(q), capacity);
        for (uint32_t round = 0; round < 3; round++) {
            for (uint32_t n = 0; n < capacity; n++) {
                assert_int_equal(tn_queue_count(q), n);
                push_number(n);
            }
            assert_int_equal(tn_queue_push(q, &m, 0, TN_NOW), TN_ERR_TIMED_OUT);
            for (uint32_t n = 0; n < capacity; n++)
                assert_int_equal(pop_number(TN_NOW), n);
            assert_int_equal(tn_queue_count(q), 0);
            push_number(7); /* the next round begins at another slot */
            assert_int_equal(pop_number(TN_NOW), 7);
        }
        finish();
    }
}

TN_TEST(a_full_queue_times_out_and_an_empty_one_too)
{
    tn_message m = {.bytes = "x", .size_bytes = 1};
    begin(4, 0);
    assert_int_equal(tn_queue_pop(q, TN_NOW, &m), TN_ERR_TIMED_OUT);
    assert_int_equal(tn_queue_pop(q, (tn_deadline){1}, &m),
                     TN_ERR_TIMED_OUT); /* a deadline in the past */
    for (int i = 0; i < 4; i++)
        TN_CHECK_OK(tn_queue_push(q, &m, 0, TN_NOW));
    assert_int_equal(tn_queue_push(q, &m, 0, TN_NOW), TN_ERR_TIMED_OUT);
    assert_int_equal(tn_queue_push(q, &m, 0, tnt_deadline(20)), TN_ERR_TIMED_OUT);
    assert_string_equal(m.bytes, "x");
    finish();
}

TN_TEST(a_check_of_several_empty_queues_has_its_own_detail)
{
    begin(4, 0);
    assert_int_equal(tn_queue_attach(q, 0), TN_ERR_INVALID);
    assert_int_equal(tn_object_wait_any(&q, 1, TN_NOW), TN_ERR_TIMED_OUT);
    assert_string_equal(tn_error_detail(), "not ready, and the caller does not wait");
    finish();
}

TN_TEST(a_moved_tensor_keeps_its_memory_and_a_kept_one_is_shared)
{
    tn_tensor *moved, *kept, *twin;
    begin(4, 0);
    moved = numbers(10, 1);
    void *data = tn_tensor_data(moved);
    TN_CHECK_OK(tn_queue_push_tensor(q, moved, TN_PUSH_MOVE, TN_NOW));
    TN_CHECK_OK(tn_queue_pop_tensor(q, TN_NOW, &moved));
    assert_ptr_equal(tn_tensor_data(moved), data);
    kept = numbers(3, 7);
    TN_CHECK_OK(tn_queue_push_tensor(q, kept, 0, TN_NOW));
    TN_CHECK_OK(tn_queue_pop_tensor(q, TN_NOW, &twin));
    assert_true(tn_tensor_same_storage(kept, twin));
    tn_tensor_unref(kept);
    assert_true(((float *)tn_tensor_data(twin))[2] == 9);
    tn_tensor_unref(twin);
    tn_tensor_unref(moved);
    finish();
}

TN_TEST(a_push_that_fails_leaves_moved_tensors_with_the_caller)
{
    tn_tensor *t, *more[2];
    begin(1, 0);
    push_number(1);
    t = numbers(4, 4);
    assert_int_equal(tn_queue_push_tensor(q, t, TN_PUSH_MOVE, TN_NOW), TN_ERR_TIMED_OUT);
    more[0] = t;
    more[1] = tn_tensor_ref(t);
    tn_message m = {.tensors = more, .tensor_count = 2};
    assert_int_equal(tn_queue_push(q, &m, TN_PUSH_MOVE, TN_NOW), TN_ERR_TIMED_OUT);
    assert_true(((float *)tn_tensor_data(t))[3] == 7);
    tn_tensor_unref(t);
    tn_tensor_unref(t);
    finish();
}

TN_TEST(a_message_carries_many_tensors_and_small_or_large_bytes)
{
    enum { TENSORS = 300, LARGE = 3 << 20 };
    static uint8_t large[LARGE];
    tn_tensor *tensors[TENSORS];
    begin(4, 0);
    memset(large, 0x5a, sizeof large);
    for (size_t size = 5; size <= LARGE; size = size == 5       ? 70000
                                                : size == 70000 ? LARGE
                                                                : LARGE + 1) {
        tn_tensor *base = numbers(TENSORS + 1, 0);
        for (int64_t i = 0; i < TENSORS; i++)
            TN_CHECK_OK(tn_tensor_slice(base, 0, i, i + 2, -1, &tensors[i]));
        tn_message m = {
            .bytes = large, .size_bytes = size, .tensors = tensors, .tensor_count = TENSORS};
        TN_CHECK_OK(tn_queue_push(q, &m, TN_PUSH_MOVE, TN_NOW));
        tn_tensor_unref(base);
        tn_message got;
        TN_CHECK_OK(tn_queue_pop(q, TN_NOW, &got));
        assert_int_equal(got.tensor_count, TENSORS);
        assert_int_equal(got.size_bytes, size);
        assert_memory_equal(got.bytes, large, size);
        for (int64_t i = 0; i < TENSORS; i++) {
            assert_int_equal(tnt_info(got.tensors[i]).strides[0], -1);
            assert_true(*(float *)tn_tensor_data(got.tensors[i]) == (float)(i + 1));
        }
        assert_true(tn_tensor_same_storage(got.tensors[0], got.tensors[299]));
        tn_tensor *taken = got.tensors[7];
        got.tensors[7] = NULL;
        tn_message_fini(&got);
        assert_true(*(float *)tn_tensor_data(taken) == 8);
        tn_tensor_unref(taken);
        TNT_AUDIT(d);
    }
    finish();
}

TN_TEST(messages_left_in_a_queue_are_released_when_it_ends)
{
    tn_tensor *t;
    uint64_t freed;
    begin(8, 0);
    for (int i = 0; i < 5; i++) {
        t = numbers(1 << 18, 0);
        TN_CHECK_OK(tn_queue_push_tensor(q, t, TN_PUSH_MOVE, TN_NOW));
    }
    q = tn_object_close(q);
    TNT_AUDIT(d);
    TN_CHECK_OK(tn_domain_trim(d, 0, &freed));
    assert_true(freed >= 5 << 20);
    finish();
}

TN_TEST(an_ended_queue_gives_what_is_left_and_takes_nothing)
{
    tn_message m = {.bytes = "x", .size_bytes = 1};
    begin(4, 0);
    push_number(11);
    TN_CHECK_OK(tn_queue_end(q));
    assert_int_equal(tn_queue_push(q, &m, 0, TN_FOREVER), TN_ERR_CLOSED);
    assert_int_equal(pop_number(TN_FOREVER), 11);
    assert_int_equal(tn_queue_pop(q, TN_FOREVER, &m), TN_ERR_CLOSED);
    finish();
}

TN_TEST(bad_messages_are_refused_and_the_queue_goes_on)
{
    tn_tensor *private_tensor, *t;
    int64_t shape = 4;
    begin(4, 0);
    TN_CHECK_OK(tn_tensor_create_private(TN_INT8, 1, &shape, &private_tensor));
    assert_int_equal(tn_queue_push_tensor(q, private_tensor, 0, TN_NOW), TN_ERR_INVALID);
    assert_int_equal(tn_queue_push_tensor(q, NULL, 0, TN_NOW), TN_ERR_INVALID);
    tn_message many = {.tensors = &private_tensor, .tensor_count = TN_MESSAGE_MAX_TENSORS + 1};
    assert_int_equal(tn_queue_push(q, &many, 0, TN_NOW), TN_ERR_INVALID);
    tn_message null = {.size_bytes = 4};
    assert_int_equal(tn_queue_push(q, &null, 0, TN_NOW), TN_ERR_INVALID);
    assert_int_equal(tn_queue_push(q, &null, 0x80, TN_NOW), TN_ERR_INVALID);
    push_number(3);
    assert_int_equal(tn_queue_pop_tensor(q, TN_NOW, &t), TN_ERR_INVALID);
    assert_int_equal(pop_number(TN_NOW), 3);
    tn_tensor_unref(private_tensor);
    finish();
}

TN_TEST(a_message_of_more_than_4_gib_of_attributes_is_refused)
{
    enum { COUNT = 150000, VALUE_BYTES = 30000 };
    static const char value[VALUE_BYTES];
    static tn_tensor *many[COUNT];
    tn_tensor *t;
    begin(4, 0);
    TN_CHECK_OK(tn_tensor_create(d, TN_INT8, 1, (int64_t[]){4},
                                 TN_OPTIONS(tn_tensor_options, .flags = TN_TENSOR_ZEROED), &t));
    TN_CHECK_OK(tn_tensor_set_metadata(t, "large", value, sizeof value));
    for (uint32_t i = 0; i < COUNT; i++)
        many[i] = t;
    tn_message m = {.tensors = many, .tensor_count = COUNT};
    assert_int_equal(tn_queue_push(q, &m, 0, TN_NOW), TN_ERR_INVALID);
    TN_CHECK(strstr(tn_error_detail(), "shapes and attributes") != NULL);
    m.tensor_count = 1;
    TN_CHECK_OK(tn_queue_push(q, &m, 0, TN_NOW));
    tn_tensor_unref(t);
    finish();
}

TN_TEST(names_and_ids_open_the_same_queue_and_only_queues)
{
    tn_queue *named, *again, *by_id, *other;
    tn_event *event;
    begin(4, 0);
    TN_CHECK_OK(tn_queue_open(d, "batches", NULL, TN_OPEN_NEW, &named));
    assert_int_equal(tn_queue_open(d, "batches", NULL, TN_OPEN_NEW, &again), TN_ERR_EXISTS);
    assert_int_equal(tn_queue_open(d, "a/b", NULL, TN_OPEN_NEW, &again), TN_ERR_INVALID);
    assert_int_equal(tn_queue_open(d, "", NULL, TN_OPEN_NEW, &again), TN_ERR_INVALID);
    assert_int_equal(tn_queue_open(d, "nothing", NULL, TN_OPEN_EXISTING, &again),
                     TN_ERR_NOT_FOUND);
    TN_CHECK_OK(tn_queue_open(d, "batches", NULL, TN_OPEN_EXISTING, &again));
    TN_CHECK_OK(tn_object_open_id(d, TN_OBJECT_QUEUE, tn_object_id(named), &by_id));
    tn_message m = {.bytes = "abc", .size_bytes = 3}, got;
    TN_CHECK_OK(tn_queue_push(again, &m, 0, TN_NOW));
    TN_CHECK_OK(tn_queue_pop(by_id, TN_NOW, &got));
    tn_message_fini(&got);
    TN_CHECK_OK(tn_event_open(d, "go", TN_OPEN_NEW, &event));
    assert_int_equal(tn_queue_open(d, "go", NULL, TN_OPEN_EXISTING, &other), TN_ERR_INVALID);
    uint64_t id = tn_object_id(named);
    tn_object_close(named);
    tn_object_close(again);
    tn_object_close(by_id);
    assert_int_equal(tn_object_open_id(d, TN_OBJECT_QUEUE, id, &named), TN_ERR_NOT_FOUND);
    tn_object_close(event);
    finish();
}

TN_TEST(a_table_of_objects_that_is_full_says_so)
{
    tn_domain_options options = {.struct_size = sizeof options,
                                 .quota_bytes = 16 << 20,
                                 .objects = 2,
                                 .flags = TN_DOMAIN_NO_MANAGER};
    tn_queue *two[3];
    d = tnt_domain(&options);
    TN_CHECK_OK(tn_queue_open(d, NULL, NULL, 0, &two[0]));
    TN_CHECK_OK(tn_queue_open(d, NULL, NULL, 0, &two[1]));
    assert_int_equal(tn_queue_open(d, NULL, NULL, 0, &two[2]), TN_ERR_FULL);
    tn_object_close(two[0]);
    TN_CHECK_OK(tn_queue_open(d, NULL, NULL, 0, &two[2]));
    tn_object_close(two[1]);
    tn_object_close(two[2]);
    tn_domain_close(d);
}

/* ---- between processes ------------------------------------------------------------------- */

enum { PRODUCERS = 3, CONSUMERS = 3, EACH = 20000 };

static int produce(void *argument)
{
    uint32_t producer = (uint32_t)(uintptr_t)argument;
    for (uint32_t i = 0; i < EACH; i++) {
        int64_t shape = 2;
        tn_tensor *t;
        TN_CHECK_OK(tn_tensor_create(d, TN_UINT32, 1, &shape,
                                     TN_OPTIONS(tn_tensor_options, .deadline = TN_FOREVER),
                                     &t));
        ((uint32_t *)tn_tensor_data(t))[0] = producer;
        ((uint32_t *)tn_tensor_data(t))[1] = i;
        TN_CHECK_OK(tn_queue_push_tensor(q, t, i % 2 ? TN_PUSH_MOVE : 0, TN_FOREVER));
        if (i % 2 == 0)
            tn_tensor_unref(t);
    }
    return 0;
}

/* Each consumer sees each producer's numbers rise; all together see every number once. */
static int consume(void *argument)
{
    tn_tensor *seen = argument, *t;
    uint32_t last[PRODUCERS] = {0};
    int status;
    while ((status = tn_queue_pop_tensor(q, TN_FOREVER, &t)) == 0) {
        const uint32_t *v = tn_tensor_data(t);
        TN_CHECK(v[0] < PRODUCERS && v[1] < EACH && v[1] + 1 > last[v[0]]);
        last[v[0]] = v[1] + 1;
        _Atomic uint8_t *mark = (_Atomic uint8_t *)tn_tensor_data(seen) + v[0] * EACH + v[1];
        TN_CHECK(atomic_fetch_add(mark, 1) == 0);
        tn_tensor_unref(t);
    }
    TN_CHECK(status == TN_ERR_CLOSED);
    return 0;
}

TN_TEST_WITHIN(nothing_is_lost_doubled_or_reordered_between_six_processes, 60)
{
    pid_t pids[PRODUCERS + CONSUMERS];
    int64_t shape = PRODUCERS * EACH;
    tn_tensor *seen;
    begin(64, 0);
    TN_CHECK_OK(tn_tensor_create(d, TN_UINT8, 1, &shape,
                                 TN_OPTIONS(tn_tensor_options, .flags = TN_TENSOR_ZEROED),
                                 &seen));
    for (uintptr_t i = 0; i < PRODUCERS; i++)
        pids[i] = tnt_fork(produce, (void *)i);
    for (int i = 0; i < CONSUMERS; i++)
        pids[PRODUCERS + i] = tnt_fork(consume, seen);
    for (int i = 0; i < PRODUCERS; i++)
        tnt_wait_ok(pids[i]);
    TN_CHECK_OK(tn_queue_end(q));
    for (int i = 0; i < CONSUMERS; i++)
        tnt_wait_ok(pids[PRODUCERS + i]);
    for (int64_t i = 0; i < shape; i++)
        assert_int_equal(((uint8_t *)tn_tensor_data(seen))[i], 1);
    tn_tensor_unref(seen);
    finish();
}

static void hang(void)
{
    for (;;)
        pause();
}

static int attach_and_hang(void *argument)
{
    struct tnt_signal *ready = argument;
    TN_CHECK_OK(tn_queue_attach(q, TN_PRODUCER));
    tnt_signal(ready);
    hang();
    return 0;
}

TN_TEST(pop_returns_peer_died_when_the_last_producer_is_killed)
{
    struct tnt_signal ready = tnt_signal_open();
    tn_message m;
    begin(4, 0);
    pid_t pid = tnt_fork(attach_and_hang, &ready);
    tnt_await(&ready);
    kill(pid, SIGKILL);
    /* Without tenond the sleeper itself finds the death, after one of its slices. */
    assert_int_equal(tn_queue_pop(q, tnt_deadline(20000), &m), TN_ERR_PEER_DIED);
    assert_int_equal(tn_error_peer().pid, pid);
    /* The death is reported once; later waits are ordinary. */
    assert_int_equal(tn_queue_pop(q, tnt_deadline(10), &m), TN_ERR_TIMED_OUT);
    tnt_wait(pid);
    tnt_signal_close(&ready);
    finish();
}

static int push_three_and_die(void *argument)
{
    (void)argument;
    for (uint32_t i = 0; i < 3; i++) {
        tn_tensor *t = numbers(4, (float)i);
        TN_CHECK_OK(tn_queue_push_tensor(q, t, TN_PUSH_MOVE, TN_NOW));
    }
    raise(SIGKILL);
    return 0;
}

TN_TEST(messages_outlive_their_producer_and_precede_peer_died)
{
    tn_tensor *t;
    begin(4, 0);
    tnt_wait(tnt_fork(push_three_and_die, NULL));
    for (int i = 0; i < 3; i++) {
        TN_CHECK_OK(tn_queue_pop_tensor(q, TN_FOREVER, &t));
        assert_true(*(float *)tn_tensor_data(t) == (float)i);
        tn_tensor_unref(t);
    }
    assert_int_equal(tn_queue_pop_tensor(q, TN_FOREVER, &t), TN_ERR_PEER_DIED);
    finish();
}

static int pop_one_and_hang(void *argument)
{
    struct tnt_signal *ready = argument;
    tn_message m;
    TN_CHECK_OK(tn_queue_pop(q, TN_FOREVER, &m));
    tnt_signal(ready);
    hang();
    return 0;
}

TN_TEST(push_to_a_full_queue_ends_when_the_last_consumer_dies)
{
    struct tnt_signal ready = tnt_signal_open();
    tn_message m = {.bytes = "x", .size_bytes = 1};
    begin(2, 0);
    TN_CHECK_OK(tn_queue_push(q, &m, 0, TN_NOW));
    pid_t pid = tnt_fork(pop_one_and_hang, &ready);
    tnt_await(&ready);
    TN_CHECK_OK(tn_queue_push(q, &m, 0, TN_NOW));
    TN_CHECK_OK(tn_queue_push(q, &m, 0, TN_NOW));
    kill(pid, SIGKILL);
    assert_int_equal(tn_queue_push(q, &m, 0, tnt_deadline(20000)), TN_ERR_PEER_DIED);
    assert_int_equal(tn_error_peer().pid, pid);
    tnt_wait(pid);
    tnt_signal_close(&ready);
    finish();
}

/* The death is reported once, by a call that has nothing else to return. */
TN_TEST(pop_many_leaves_the_report_of_a_death_to_the_next_call)
{
    tn_message m[4];
    begin(8, 0);
    tnt_wait(tnt_fork(push_three_and_die, NULL));
    TN_CHECK_OK(tn_domain_reap(d, NULL));
    assert_int_equal(tn_queue_pop_many(q, 4, TN_FOREVER, m), 3);
    for (int i = 0; i < 3; i++)
        tn_message_fini(&m[i]);
    assert_int_equal(tn_queue_pop_many(q, 4, tnt_deadline(20000), m), TN_ERR_PEER_DIED);
    finish();
}

static int pop_two_and_die(void *argument)
{
    (void)argument;
    tn_message m[2];
    assert_int_equal(tn_queue_pop_many(q, 2, TN_NOW, m), 2);
    raise(SIGKILL);
    return 0;
}

TN_TEST(push_many_leaves_the_report_of_a_death_to_the_next_call)
{
    const tn_message m[4] = {{.bytes = "a", .size_bytes = 1},
                             {.bytes = "b", .size_bytes = 1},
                             {.bytes = "c", .size_bytes = 1},
                             {.bytes = "d", .size_bytes = 1}};
    begin(4, 0);
    assert_int_equal(tn_queue_push_many(q, m, 4, 0, TN_NOW), 4);
    tnt_wait(tnt_fork(pop_two_and_die, NULL));
    TN_CHECK_OK(tn_domain_reap(d, NULL));
    assert_int_equal(tn_queue_push_many(q, m, 4, 0, TN_FOREVER), 2);
    assert_int_equal(tn_queue_push_many(q, m, 4, 0, tnt_deadline(20000)), TN_ERR_PEER_DIED);
    finish();
}

/* Made by a child, because the maker of a storage has mapped it and needs no file. */
static int push_a_number_and_a_file(void *argument)
{
    const tn_tensor_options file = {.struct_size = sizeof file,
                                    .strategy = TN_STRATEGY_FILE_SYSTEM};
    int64_t count = 4;
    tn_tensor *t;
    (void)argument;
    TN_CHECK_OK(tn_tensor_create(d, TN_UINT8, 1, &count, &file, &t));
    push_number(1);
    TN_CHECK_OK(tn_queue_push_tensor(q, t, 0, TN_NOW));
    push_number(2);
    TN_CHECK(unlink(tnt_info(t).path) == 0);
    return 0;
}

TN_TEST(pop_many_leaves_an_unobtainable_message_to_the_next_call)
{
    tn_message m[4];
    begin(8, 0);
    tnt_wait_ok(tnt_fork(push_a_number_and_a_file, NULL));
    assert_int_equal(tn_queue_pop_many(q, 4, TN_NOW, m), 1);
    tn_message_fini(&m[0]);
    assert_int_equal(tn_queue_pop_many(q, 4, TN_NOW, m), TN_ERR_NOT_FOUND);
    assert_int_equal(tn_queue_pop_many(q, 4, TN_NOW, m), 1);
    tn_message_fini(&m[0]);
    finish();
}

TN_TEST(a_lease_of_a_killed_consumer_comes_again_with_its_attempt)
{
    struct tnt_signal ready = tnt_signal_open();
    tn_message m;
    begin(4, TN_QUEUE_LEASE);
    tn_tensor *t = numbers(4, 40);
    TN_CHECK_OK(tn_queue_push_tensor(q, t, TN_PUSH_MOVE, TN_NOW));
    for (uint32_t attempt = 1; attempt <= 3; attempt++) {
        pid_t pid = tnt_fork(pop_one_and_hang, &ready);
        tnt_await(&ready);
        assert_int_equal(tn_queue_pop(q, TN_NOW, &m), TN_ERR_TIMED_OUT);
        tnt_kill(pid);
        TN_CHECK_OK(tn_domain_reap(d, NULL));
    }
    TN_CHECK_OK(tn_queue_pop(q, TN_NOW, &m));
    assert_int_equal(m.attempt, 3);
    assert_true(((float *)tn_tensor_data(m.tensors[0]))[3] == 43);
    TN_CHECK_OK(tn_message_ack(q, &m));
    assert_int_equal(tn_message_ack(q, &m), TN_ERR_STALE);
    tn_message_fini(&m);
    assert_int_equal(tn_queue_pop(q, TN_NOW, &m), TN_ERR_TIMED_OUT);
    tnt_signal_close(&ready);
    finish();
}

static int pop_one_and_leave(void *argument)
{
    tn_message m;
    TN_CHECK_OK(tn_queue_pop(q, TN_FOREVER, &m));
    if (argument != NULL)
        q = tn_object_close(q);
    tn_domain_close(d);
    return 0;
}

TN_TEST(a_lease_of_a_consumer_that_leaves_in_order_comes_again)
{
    tn_message m;
    begin(2, TN_QUEUE_LEASE);
    push_number(77);
    for (uint32_t attempt = 1; attempt <= 2; attempt++) {
        tnt_wait_ok(tnt_fork(pop_one_and_leave, attempt == 1 ? q : NULL));
        TN_CHECK_OK(tn_queue_pop(q, TN_NOW, &m));
        assert_int_equal(m.attempt, 2 * attempt - 1);
        TN_CHECK_OK(tn_message_return(q, &m));
        tn_message_fini(&m);
    }
    TN_CHECK_OK(tn_queue_pop(q, TN_NOW, &m));
    TN_CHECK_OK(tn_message_ack(q, &m));
    tn_message_fini(&m);
    finish();
}

TN_TEST(an_ended_queue_waits_for_messages_leased_to_others)
{
    struct tnt_signal ready = tnt_signal_open();
    tn_message m;
    begin(2, TN_QUEUE_LEASE);
    push_number(78);
    pid_t pid = tnt_fork(pop_one_and_hang, &ready);
    tnt_await(&ready);
    TN_CHECK_OK(tn_queue_end(q));
    assert_int_equal(tn_queue_pop(q, tnt_deadline(10), &m), TN_ERR_TIMED_OUT);
    tnt_kill(pid);
    TN_CHECK_OK(tn_queue_pop(q, TN_FOREVER, &m));
    assert_int_equal(m.attempt, 1);
    TN_CHECK_OK(tn_message_ack(q, &m));
    tn_message_fini(&m);
    assert_int_equal(tn_queue_pop(q, TN_FOREVER, &m), TN_ERR_CLOSED);
    tnt_signal_close(&ready);
    finish();
}

TN_TEST(a_long_lease_does_not_stop_the_ring_and_comes_back_in_view)
{
    tn_message slow, m;
    begin(4, TN_QUEUE_LEASE);
    push_number(1000);
    TN_CHECK_OK(tn_queue_pop(q, TN_NOW, &slow));
    for (uint32_t i = 0; i < 100; i++) {
        push_number(i);
        TN_CHECK_OK(tn_queue_pop(q, TN_NOW, &m));
        assert_int_equal(*(const uint32_t *)m.bytes, i);
        TN_CHECK_OK(tn_message_ack(q, &m));
        tn_message_fini(&m);
    }
    TN_CHECK_OK(tn_message_return(q, &slow));
    tn_message_fini(&slow);
    TN_CHECK_OK(tn_queue_pop(q, TN_NOW, &m));
    assert_int_equal(*(const uint32_t *)m.bytes, 1000);
    assert_int_equal(m.attempt, 1);
    TN_CHECK_OK(tn_message_ack(q, &m));
    tn_message_fini(&m);
    finish();
}

static int end_lease_of_another(void *argument)
{
    tn_message *m = argument;
    TN_CHECK(tn_message_ack(q, m) == TN_ERR_STALE);
    TN_CHECK(tn_message_return(q, m) == TN_ERR_STALE);
    return 0;
}

TN_TEST(only_the_process_that_has_a_lease_can_end_it)
{
    tn_message m, again;
    begin(2, TN_QUEUE_LEASE);
    push_number(79);
    TN_CHECK_OK(tn_queue_pop(q, TN_NOW, &m));
    tnt_wait_ok(tnt_fork(end_lease_of_another, &m));
    assert_int_equal(tn_queue_pop(q, TN_NOW, &again), TN_ERR_TIMED_OUT); /* still leased */
    TN_CHECK_OK(tn_message_ack(q, &m));
    tn_message_fini(&m);
    finish();
}

TN_TEST(a_lease_that_was_ended_does_not_end_the_next_one_of_its_slot)
{
    tn_message m, old, again;
    begin(2, TN_QUEUE_LEASE);
    push_number(0);
    TN_CHECK_OK(tn_queue_pop(q, TN_NOW, &m));
    old = m;
    for (uint32_t i = 1; i <= 2; i++) { /* the second message is in the slot of the first */
        TN_CHECK_OK(tn_message_ack(q, &m));
        tn_message_fini(&m);
        push_number(i);
        TN_CHECK_OK(tn_queue_pop(q, TN_NOW, &m));
    }
    assert_int_equal(tn_message_ack(q, &old), TN_ERR_STALE);
    assert_int_equal(tn_message_return(q, &old), TN_ERR_STALE);
    assert_int_equal(tn_queue_pop(q, TN_NOW, &again), TN_ERR_TIMED_OUT); /* still leased */
    TN_CHECK_OK(tn_message_ack(q, &m));
    tn_message_fini(&m);
    finish();
}

/* Woken by the end of the lease: the end of a sleeper's slice would find it too, but later. */
TN_TEST(the_end_of_a_lease_wakes_waiters_for_messages_and_for_room)
{
    tn_message m;
    begin(2, TN_QUEUE_LEASE);
    struct tni_object *object = ((const struct tn_object *)q)->object;
    push_number(80);
    TN_CHECK_OK(tn_queue_pop(q, TN_NOW, &m));
    uint32_t seen = tni_wait_arm(&object->items); /* as a process that sleeps in a pop does */
    TN_CHECK_OK(tn_message_return(q, &m));
    assert_int_not_equal(atomic_load(&object->items) / TNI_WAIT_EPOCH, seen / TNI_WAIT_EPOCH);
    tn_message_fini(&m);

    TN_CHECK_OK(tn_queue_pop(q, TN_NOW, &m));
    seen = tni_wait_arm(&object->room); /* as a process that sleeps in a push does */
    TN_CHECK_OK(tn_message_ack(q, &m));
    assert_int_not_equal(atomic_load(&object->room) / TNI_WAIT_EPOCH, seen / TNI_WAIT_EPOCH);
    tn_message_fini(&m);
    finish();
}

TN_TEST(as_many_leases_as_slots_fill_the_queue_until_an_ack)
{
    tn_message leased[4], m = {.bytes = "x", .size_bytes = 1};
    begin(4, TN_QUEUE_LEASE);
    for (int i = 0; i < 4; i++) {
        TN_CHECK_OK(tn_queue_push(q, &m, 0, TN_NOW));
        TN_CHECK_OK(tn_queue_pop(q, TN_NOW, &leased[i]));
    }
    assert_int_equal(tn_queue_push(q, &m, 0, TN_NOW), TN_ERR_TIMED_OUT);
    TN_CHECK_OK(tn_message_ack(q, &leased[2]));
    TN_CHECK_OK(tn_queue_push(q, &m, 0, TN_NOW));
    for (int i = 0; i < 4; i++) {
        if (i != 2)
            TN_CHECK_OK(tn_message_ack(q, &leased[i]));
        tn_message_fini(&leased[i]);
    }
    finish();
}

TN_TEST(many_are_pushed_and_popped_at_once_as_far_as_they_fit)
{
    tn_message in[6], out[6];
    uint32_t n[6];
    begin(4, 0);
    for (uint32_t i = 0; i < 6; i++) {
        n[i] = i;
        in[i] = (tn_message){.bytes = &n[i], .size_bytes = sizeof n[i]};
    }
    assert_int_equal(tn_queue_push_many(q, in, 6, 0, TN_NOW), 4);
    assert_int_equal(tn_queue_push_many(q, in, 6, 0, TN_NOW), TN_ERR_TIMED_OUT);
    assert_int_equal(tn_queue_push_many(q, in, 0, 0, TN_NOW), 0);
    assert_int_equal(tn_queue_pop_many(q, 6, TN_NOW, out), 4);
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(*(const uint32_t *)out[i].bytes, i);
        tn_message_fini(&out[i]);
    }
    assert_int_equal(tn_queue_pop_many(q, 6, TN_NOW, out), TN_ERR_TIMED_OUT);
    finish();
}

/* ---- several threads --------------------------------------------------------------------- */

enum { NUMBERS = 50000 };

static void *push_numbers(void *unused)
{
    (void)unused;
    for (uint32_t i = 0; i < NUMBERS; i++) {
        tn_message m = {.bytes = &i, .size_bytes = sizeof i};
        TN_CHECK_OK(tn_queue_push(q, &m, 0, TN_FOREVER));
    }
    return NULL;
}

static void *ask_for_tensors(void *stop)
{
    tn_tensor *t;
    while (!atomic_load((atomic_bool *)stop)) {
        int status = tn_queue_pop_tensor(q, TN_NOW, &t);
        TN_CHECK(status == TN_ERR_INVALID || status == TN_ERR_TIMED_OUT);
    }
    return NULL;
}

TN_TEST(a_failed_pop_of_a_tensor_keeps_the_order_of_messages)
{
    pthread_t pusher, asker;
    atomic_bool stop = false;
    begin(8, 0);
    TN_CHECK(pthread_create(&pusher, NULL, push_numbers, NULL) == 0);
    TN_CHECK(pthread_create(&asker, NULL, ask_for_tensors, &stop) == 0);
    for (uint32_t i = 0; i < NUMBERS; i++) {
        tn_message m;
        TN_CHECK_OK(tn_queue_pop(q, TN_FOREVER, &m));
        assert_memory_equal(m.bytes, &i, sizeof i);
        tn_message_fini(&m);
    }
    atomic_store(&stop, true);
    pthread_join(pusher, NULL);
    pthread_join(asker, NULL);
    finish();
}

TN_TEST(wait_any_names_the_queue_that_became_ready)
{
    tn_queue *queues[2];
    tn_message m;
    begin(4, 0);
    queues[0] = q;
    TN_CHECK_OK(tn_queue_open(d, NULL, NULL, 0, &queues[1]));
    assert_int_equal(tn_object_wait_any(queues, 2, TN_NOW), TN_ERR_TIMED_OUT);
    assert_int_equal(tn_object_wait_any(queues, 2, tnt_deadline(10)), TN_ERR_TIMED_OUT);
    for (int i = 0; i < 20; i++) {
        pid_t pid = tnt_fork(push_to_second, queues);
        assert_int_equal(tn_object_wait_any(queues, 2, TN_FOREVER), 1);
        TN_CHECK_OK(tn_queue_pop(queues[1], TN_NOW, &m));
        tn_message_fini(&m);
        tnt_wait_ok(pid);
    }
    TN_CHECK_OK(tn_queue_end(queues[0]));
    assert_int_equal(tn_object_wait_any(queues, 2, TN_FOREVER), 0);
    tn_object_close(queues[1]);
    finish();
}

static void *push_later(void *argument)
{
    push_number((uint32_t)(uintptr_t)argument);
    return NULL;
}

TN_TEST(a_sleeping_pop_is_woken_by_a_push)
{
    pthread_t thread;
    begin(4, 0);
    for (uintptr_t i = 0; i < 50; i++) {
        pthread_create(&thread, NULL, push_later, (void *)i);
        assert_int_equal(pop_number(TN_FOREVER), i);
        pthread_join(thread, NULL);
    }
    finish();
}

static int use_after_all(void *argument)
{
    tn_message m = {.bytes = "x", .size_bytes = 1};
    (void)argument;
    TN_CHECK(tn_queue_push(q, &m, 0, TN_NOW) == TN_ERR_FORKED);
    TN_CHECK(strstr(tn_error_detail(), "seat") != NULL);
    int64_t shape = 1;
    tn_tensor *t;
    TN_CHECK(tn_tensor_create(d, TN_INT8, 1, &shape, NULL, &t) == TN_ERR_FORKED);
    return 0;
}

TN_TEST(a_forked_child_without_a_seat_gets_an_error)
{
    tn_domain_options options = {.struct_size = sizeof options,
                                 .quota_bytes = 16 << 20,
                                 .seats = 1,
                                 .flags = TN_DOMAIN_NO_MANAGER};
    d = tnt_domain(&options);
    TN_CHECK_OK(tn_queue_open(d, NULL, NULL, 0, &q));
    tnt_wait_ok(tnt_fork(use_after_all, NULL));
    push_number(5);
    assert_int_equal(pop_number(TN_NOW), 5);
    finish();
}

static int child_of_child(void *argument)
{
    (void)argument;
    push_number(tnt_seat(d));
    return 0;
}

static int fork_again(void *argument)
{
    (void)argument;
    push_number(tnt_seat(d));
    tnt_wait_ok(tnt_fork(child_of_child, NULL));
    return 0;
}

TN_TEST(every_forked_process_has_a_seat_of_its_own)
{
    begin(4, 0);
    tnt_wait_ok(tnt_fork(fork_again, NULL));
    uint32_t one = pop_number(TN_NOW), two = pop_number(TN_NOW);
    assert_int_not_equal(one, two);
    assert_int_not_equal(one, tnt_seat(d));
    assert_int_not_equal(two, tnt_seat(d));
    TN_CHECK_OK(tn_domain_reap(d, NULL));
    finish();
}
