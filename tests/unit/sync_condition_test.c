/* SPDX-License-Identifier: Apache-2.0 */
/* Conditions, between processes that are killed. */
#include "sync_test.h"

struct box {
    tn_lock *lock;
    tn_condition *filled, *emptied;
};

enum { ROUNDS = 3000 };

static int fill_box(void *argument)
{
    const struct box *box = argument;
    for (uint32_t i = 0; i < ROUNDS; i++) {
        TN_CHECK_OK(tn_lock_acquire(box->lock, TN_FOREVER));
        while (board->plain != 0)
            TN_CHECK_OK(tn_condition_wait(box->emptied, box->lock, tnt_deadline(20000)));
        board->plain = 1;
        TN_CHECK_OK(tn_lock_release(box->lock));
        TN_CHECK_OK(tn_condition_signal(box->filled)); /* without the lock: the harder case */
    }
    return 0;
}

static int empty_box(void *argument)
{
    const struct box *box = argument;
    for (uint32_t i = 0; i < ROUNDS; i++) {
        TN_CHECK_OK(tn_lock_acquire(box->lock, TN_FOREVER));
        while (board->plain == 0)
            TN_CHECK_OK(tn_condition_wait(box->filled, box->lock, tnt_deadline(20000)));
        board->plain = 0;
        atomic_fetch_add(&board->count, 1);
        TN_CHECK_OK(tn_lock_release(box->lock));
        TN_CHECK_OK(tn_condition_signal(box->emptied));
    }
    return 0;
}

static void open_box(struct box *box)
{
    TN_CHECK_OK(tn_lock_open(domain, NULL, 0, &box->lock));
    TN_CHECK_OK(tn_condition_open(domain, NULL, 0, &box->filled));
    TN_CHECK_OK(tn_condition_open(domain, NULL, 0, &box->emptied));
}

static void close_box(struct box *box)
{
    tn_object_close(box->emptied);
    tn_object_close(box->filled);
    tn_object_close(box->lock);
}

/* Sleepers look again every 100 ms; were wakes lost, that alone would take too long. */
TN_TEST_WITHIN(no_wake_up_is_lost_between_two_fillers_and_two_emptiers, 60)
{
    struct box box;
    pid_t children[CHILDREN];
    begin();
    open_box(&box);
    for (uint32_t i = 0; i < CHILDREN; i++)
        children[i] = tnt_fork(i % 2 == 0 ? fill_box : empty_box, &box);
    for (uint32_t i = 0; i < CHILDREN; i++)
        tnt_wait_ok(children[i]);
    assert_int_equal(atomic_load(&board->count), 2 * ROUNDS);
    close_box(&box);
    finish();
}

static int wait_for_broadcast(void *argument)
{
    const struct box *box = argument;
    TN_CHECK_OK(tn_lock_acquire(box->lock, TN_FOREVER));
    atomic_fetch_add(&board->count, 1);
    while (board->plain == 0)
        TN_CHECK_OK(tn_condition_wait(box->filled, box->lock, TN_FOREVER));
    TN_CHECK_OK(tn_lock_release(box->lock));
    return 0;
}

TN_TEST(a_broadcast_wakes_every_waiter)
{
    struct box box;
    pid_t children[CHILDREN];
    begin();
    open_box(&box);
    for (uint32_t i = 0; i < CHILDREN; i++)
        children[i] = tnt_fork(wait_for_broadcast, &box);
    while (atomic_load(&board->count) < CHILDREN)
        sched_yield();
    TN_CHECK_OK(tn_lock_acquire(box.lock, TN_FOREVER)); /* the last of them waits by now */
    board->plain = 1;
    TN_CHECK_OK(tn_condition_broadcast(box.filled));
    TN_CHECK_OK(tn_lock_release(box.lock));
    for (uint32_t i = 0; i < CHILDREN; i++)
        tnt_wait_ok(children[i]);
    close_box(&box);
    finish();
}

TN_TEST(a_wait_that_ends_without_a_signal_holds_the_lock_again)
{
    struct box box;
    struct tnt_signal is_there = tnt_signal_open();
    begin();
    domain->survive = survive;
    open_box(&box);
    assert_int_equal(tn_condition_wait(box.filled, NULL, TN_NOW), TN_ERR_INVALID);
    assert_int_equal(tn_condition_wait(box.filled, box.lock, TN_NOW), TN_ERR_INVALID);
    TN_CHECK_OK(tn_lock_acquire(box.lock, TN_NOW));
    assert_int_equal(tn_condition_wait(box.filled, box.lock, TN_NOW), TN_ERR_TIMED_OUT);
    assert_int_equal(tn_condition_wait(box.filled, box.lock, tnt_deadline(5)),
                     TN_ERR_TIMED_OUT);
    pid_t child = tnt_fork(stay, &is_there);
    tnt_await(&is_there);
    tnt_kill(child);
    assert_int_equal(tn_condition_wait(box.filled, box.lock, TN_FOREVER), TN_ERR_PEER_DIED);
    assert_int_equal(tn_error_peer().pid, child);
    TN_CHECK_OK(tn_lock_release(box.lock));
    close_box(&box);
    tnt_signal_close(&is_there);
    finish();
}

static int lock_and_end(void *argument)
{
    const struct box *box = argument;
    TN_CHECK_OK(tn_lock_acquire(box->lock, TN_FOREVER));
    return 0;
}

TN_TEST(a_wait_reports_a_recovered_lock_before_the_other_death)
{
    struct box box;
    begin();
    domain->survive = survive;
    open_box(&box);
    TN_CHECK_OK(tn_lock_acquire(box.lock, TN_NOW));
    pid_t child = tnt_fork(lock_and_end, &box); /* gets the lock when we wait */
    assert_int_equal(tn_condition_wait(box.filled, box.lock, TN_FOREVER), TN_LOCK_RECOVERED);
    assert_int_equal(tn_error_peer().pid, child);
    assert_int_equal(tn_condition_wait(box.filled, box.lock, TN_FOREVER), TN_ERR_PEER_DIED);
    TN_CHECK_OK(tn_lock_release(box.lock));
    tnt_wait_ok(child);
    close_box(&box);
    finish();
}

static int wait_once(void *argument)
{
    const struct box *box = argument;
    TN_CHECK_OK(tn_lock_acquire(box->lock, TN_FOREVER));
    int status = tn_condition_wait(box->filled, box->lock, tnt_deadline(20000));
    TN_CHECK_OK(tn_lock_release(box->lock));
    return status;
}

static void *wait_in_thread(void *box) { return (void *)(intptr_t)wait_once(box); }

static int signal_filled(void *argument)
{
    const struct box *box = argument;
    return tn_condition_signal(box->filled);
}

TN_TEST(a_signal_arrives_if_its_sender_or_another_waiter_is_killed)
{
    struct box box;
    pthread_t waiter;
    void *result;
    begin();
    open_box(&box);
    pthread_create(&waiter, NULL, wait_in_thread, &box);
    await_sleeper(box.filled);
    assert_true(tnt_kill_at("condition_lock_released", 1, wait_once, &box));
    assert_true(tnt_kill_at("condition_signalled", 1, signal_filled, &box));
    assert_int_equal(reclaim(), 2);
    pthread_join(waiter, &result);
    assert_int_equal((int)(intptr_t)result, 0);
    assert_int_equal(tn_lock_acquire(box.lock, TN_NOW), 0);
    TN_CHECK_OK(tn_lock_release(box.lock));
    close_box(&box);
    finish();
}
