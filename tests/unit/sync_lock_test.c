/* SPDX-License-Identifier: Apache-2.0 */
/* Locks, between processes that are killed. */
#include "sync_test.h"

#include <string.h>

static int count_under_lock(void *lock)
{
    for (uint32_t i = 0; i < 3000; i++) {
        TN_CHECK_OK(tn_lock_acquire(lock, tnt_deadline(20000)));
        uint32_t seen = board->plain;
        if (i % 64 == 0)
            sched_yield();
        board->plain = seen + 1;
        TN_CHECK_OK(tn_lock_release(lock));
    }
    return 0;
}

TN_TEST(a_lock_is_held_by_one_process_at_a_time)
{
    tn_lock *lock;
    pid_t children[CHILDREN];
    begin();
    TN_CHECK_OK(tn_lock_open(domain, NULL, 0, &lock));
    for (uint32_t i = 0; i < CHILDREN; i++)
        children[i] = tnt_fork(count_under_lock, lock);
    for (uint32_t i = 0; i < CHILDREN; i++)
        tnt_wait_ok(children[i]);
    assert_int_equal(board->plain, CHILDREN * 3000);
    tn_object_close(lock);
    finish();
}

static int release_the_parents(void *lock)
{
    return tn_lock_release(lock) == TN_ERR_INVALID &&
                   tn_lock_acquire(lock, TN_NOW) == TN_ERR_TIMED_OUT
               ? 0
               : 1;
}

static void *release_anothers_lock(void *lock)
{
    return (void *)(intptr_t)tn_lock_release(lock);
}

TN_TEST(a_lock_belongs_to_one_thread_and_not_to_a_forked_child)
{
    tn_lock *lock;
    pthread_t thread;
    void *result;
    begin();
    TN_CHECK_OK(tn_lock_open(domain, NULL, 0, &lock));
    assert_int_equal(tn_lock_release(lock), TN_ERR_INVALID);
    assert_int_equal(tn_lock_acquire(lock, TN_NOW), 0);
    assert_int_equal(tn_lock_acquire(lock, TN_FOREVER), TN_ERR_INVALID);
    pthread_create(&thread, NULL, release_anothers_lock, lock);
    pthread_join(thread, &result);
    assert_int_equal((int)(intptr_t)result, TN_ERR_INVALID);
    tnt_wait_ok(tnt_fork(release_the_parents, lock));
    assert_int_equal(tn_lock_release(lock), 0);
    tn_object_close(lock);
    finish();
}

static int acquire_and_end(void *lock) { return tn_lock_acquire(lock, TN_NOW) >= 0 ? 0 : 1; }

TN_TEST(a_waiter_gets_a_dead_owners_lock_and_the_owners_pid)
{
    tn_lock *lock;
    begin();
    domain->survive = survive;
    TN_CHECK_OK(tn_lock_open(domain, NULL, 0, &lock));
    pid_t child = tnt_fork(acquire_and_end, lock);
    tnt_wait_ok(child);
    assert_int_equal(tn_lock_acquire(lock, TN_NOW), TN_ERR_TIMED_OUT);
    assert_int_equal(tn_lock_acquire(lock, TN_FOREVER), TN_LOCK_RECOVERED);
    assert_int_equal(tn_error_peer().pid, child);
    TN_CHECK_OK(tn_lock_release(lock));
    assert_int_equal(tn_lock_acquire(lock, TN_NOW), 0);
    TN_CHECK_OK(tn_lock_release(lock));
    tn_object_close(lock);
    finish();
}

static int hold_and_leave(void *argument)
{
    tn_lock *lock = argument;
    TN_CHECK_OK(tn_lock_acquire(lock, TN_NOW));
    tn_object_close(lock);
    return 0;
}

static void *hold_for_ever(void *lock)
{
    TN_CHECK(tn_lock_acquire(lock, TN_FOREVER) >= 0);
    atomic_fetch_add(&board->count, 1);
    while (pause() == -1) {
    }
    return NULL;
}

static int hold_in_a_thread(void *lock)
{
    pthread_t thread;
    TN_CHECK(pthread_create(&thread, NULL, hold_for_ever, lock) == 0);
    pthread_join(thread, NULL);
    return 1;
}

static int try_until_stopped(void *lock)
{
    enum { SHORT_NS = 50000 };
    while (atomic_load(&board->stop) == 0) {
        int status = tn_lock_acquire(lock, tn_deadline_after(SHORT_NS));
        if (status != TN_ERR_TIMED_OUT)
            TN_CHECK_OK(status);
        if (status >= 0)
            TN_CHECK_OK(tn_lock_release(lock));
    }
    return 0;
}

TN_TEST(a_killed_owner_is_not_taken_for_an_ended_thread)
{
    enum { KILLS = 150, WAITERS = 3 };
    tn_lock *lock;
    pid_t waiters[WAITERS];
    begin();
    TN_CHECK_OK(tn_lock_open(domain, NULL, 0, &lock));
    for (int i = 0; i < WAITERS; i++)
        waiters[i] = tnt_fork(try_until_stopped, lock);
    for (uint32_t i = 0; i < KILLS; i++) {
        pid_t child = tnt_fork(hold_in_a_thread, lock);
        while (atomic_load(&board->count) == i)
            sched_yield();
        tnt_kill(child);
        reclaim();
    }
    atomic_store(&board->stop, 1);
    for (int i = 0; i < WAITERS; i++)
        tnt_wait_ok(waiters[i]);
    tn_object_close(lock);
    finish();
}

static void *acquire_and_return(void *lock)
{
    return (void *)(intptr_t)tn_lock_acquire(lock, TN_NOW);
}

TN_TEST(a_lock_of_an_ended_thread_is_an_error_that_says_so)
{
    tn_lock *lock;
    pthread_t thread;
    begin();
    TN_CHECK_OK(tn_lock_open(domain, NULL, 0, &lock));
    TN_CHECK(pthread_create(&thread, NULL, acquire_and_return, lock) == 0);
    pthread_join(thread, NULL);
    assert_int_equal(tn_lock_acquire(lock, TN_FOREVER), TN_ERR_CORRUPT);
    assert_non_null(strstr(tn_error_detail(), "has ended"));
    tn_object_close(lock);
    finish();
}

TN_TEST(a_lock_that_is_closed_while_it_is_held_is_recovered)
{
    tn_lock *lock;
    begin();
    TN_CHECK_OK(tn_lock_open(domain, NULL, 0, &lock));
    pid_t child = tnt_fork(hold_and_leave, lock);
    tnt_wait_ok(child);
    assert_int_equal(tn_lock_acquire(lock, TN_NOW), TN_LOCK_RECOVERED);
    assert_int_equal(tn_error_peer().pid, child);
    TN_CHECK_OK(tn_lock_release(lock));
    tn_object_close(lock);
    finish();
}

static int lock_and_unlock(void *lock)
{
    TN_CHECK_OK(tn_lock_acquire(lock, TN_NOW));
    TN_CHECK_OK(tn_lock_release(lock));
    return 0;
}

TN_TEST(a_lock_can_be_had_wherever_its_owner_or_its_reaper_is_killed)
{
    static const char *const reaper_points[] = {"lock_dead_named", "lock_recovered"};
    tn_lock *lock;
    begin();
    TN_CHECK_OK(tn_lock_open(domain, NULL, 0, &lock));
    assert_true(tnt_kill_at("lock_released", 1, lock_and_unlock, lock));
    assert_int_equal(reclaim(), 1);
    assert_int_equal(tn_lock_acquire(lock, TN_NOW), 0);
    TN_CHECK_OK(tn_lock_release(lock));
    for (uint32_t i = 0; i < TNI_COUNT(reaper_points); i++) {
        assert_true(tnt_kill_at("lock_acquired", 1, lock_and_unlock, lock));
        assert_true(tnt_kill_at(reaper_points[i], 1, reap_as_a_stranger, lock));
        assert_int_equal(reclaim(), 2);
        assert_int_equal(tn_lock_acquire(lock, TN_NOW), TN_LOCK_RECOVERED);
        TN_CHECK_OK(tn_lock_release(lock));
    }
    tn_object_close(lock);
    finish();
}
