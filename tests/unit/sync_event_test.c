/* SPDX-License-Identifier: Apache-2.0 */
/* Events; bad input to all of the kind. */
#include <stdlib.h>
#include <string.h>

#include "sync_test.h"

/* ---- events ------------------------------------------------------------------------------ */

struct two_events {
    tn_event *go, *passed;
};

static int pass_until_stopped(void *argument)
{
    struct two_events *events = argument;
    for (bool stopped = false; !stopped;) {
        TN_CHECK_OK(tn_event_wait(events->go, TN_FOREVER));
        stopped = atomic_load(&board->stop) != 0;
        atomic_fetch_add(&board->count, 1);
        TN_CHECK_OK(tn_event_set(events->passed));
    }
    return 0;
}

TN_TEST(each_set_of_an_auto_reset_event_passes_one_process)
{
    enum { SETS = 500 };
    struct two_events events;
    pid_t children[CHILDREN];
    begin();
    TN_CHECK_OK(tn_event_open(domain, NULL, TN_EVENT_AUTO_RESET, &events.go));
    TN_CHECK_OK(tn_event_open(domain, NULL, TN_EVENT_AUTO_RESET, &events.passed));
    for (uint32_t i = 0; i < CHILDREN; i++)
        children[i] = tnt_fork(pass_until_stopped, &events);
    for (uint32_t i = 0; i < SETS + CHILDREN; i++) {
        if (i == SETS)
            atomic_store(&board->stop, 1);
        TN_CHECK_OK(tn_event_set(events.go));
        TN_CHECK_OK(tn_event_wait(events.passed, tnt_deadline(20000)));
        assert_int_equal(atomic_load(&board->count), i + 1);
        assert_false(tn_event_is_set(events.go));
    }
    for (uint32_t i = 0; i < CHILDREN; i++)
        tnt_wait_ok(children[i]);
    tn_object_close(events.go);
    tn_object_close(events.passed);
    finish();
}

TN_TEST(a_set_event_lets_everybody_pass_until_it_is_cleared)
{
    tn_event *event, *again;
    begin();
    TN_CHECK_OK(tn_event_open(domain, "ready", TN_OPEN_NEW, &event));
    assert_int_equal(tn_event_wait(event, TN_NOW), TN_ERR_TIMED_OUT);
    TN_CHECK_OK(tn_event_set(event));
    TN_CHECK_OK(tn_event_open(domain, "ready", TN_OPEN_EXISTING, &again));
    assert_true(tn_event_is_set(again));
    TN_CHECK_OK(tn_event_wait(event, TN_NOW));
    TN_CHECK_OK(tn_event_wait(again, TN_NOW));
    TN_CHECK_OK(tn_event_clear(again));
    assert_int_equal(tn_event_wait(event, tnt_deadline(1)), TN_ERR_TIMED_OUT);
    tn_object_close(again);
    TN_CHECK_OK(tn_object_open_id(domain, TN_OBJECT_EVENT, tn_object_id(event), &again));
    tn_object_close(again);
    tn_object_close(event);
    finish();
}

static void *wait_for_event(void *event)
{
    atomic_fetch_add(&board->count, 1);
    return (void *)(intptr_t)tn_event_wait(event, TN_FOREVER);
}

TN_TEST(the_last_peers_death_ends_every_wait_and_is_reported_once)
{
    tn_event *event;
    pthread_t threads[2];
    void *result;
    struct tnt_signal is_there = tnt_signal_open();
    begin();
    domain->survive = survive;
    TN_CHECK_OK(tn_event_open(domain, NULL, 0, &event));
    pid_t child = tnt_fork(stay, &is_there);
    tnt_await(&is_there);
    for (uint32_t i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, wait_for_event, event);
    while (atomic_load(&board->count) < 2)
        sched_yield();
    await_sleeper(event);
    tnt_kill(child);
    for (uint32_t i = 0; i < 2; i++) {
        pthread_join(threads[i], &result);
        assert_int_equal((int)(intptr_t)result, TN_ERR_PEER_DIED);
    }
    assert_int_equal(tn_event_wait(event, tnt_deadline(1)), TN_ERR_TIMED_OUT);
    tn_object_close(event);
    tnt_signal_close(&is_there);
    finish();
}

struct leaver {
    tn_event *event;
    struct tnt_signal leave, has_left, end;
};

static int close_when_told(void *argument)
{
    struct leaver *leaver = argument;
    tnt_await(&leaver->leave);
    tn_object_close(leaver->event);
    tnt_signal(&leaver->has_left);
    tnt_await(&leaver->end); /* its death would wake them too */
    return 0;
}

static int be_killed(void *unused)
{
    (void)unused;
    return raise(SIGKILL);
}

TN_TEST(the_last_other_process_that_leaves_after_a_death_wakes_all)
{
    struct leaver leaver = {
        .leave = tnt_signal_open(), .has_left = tnt_signal_open(), .end = tnt_signal_open()};
    begin();
    TN_CHECK_OK(tn_event_open(domain, NULL, 0, &leaver.event));
    pid_t child = tnt_fork(close_when_told, &leaver);
    tnt_wait(tnt_fork(be_killed, NULL));
    assert_int_equal(reclaim(), 1);
    assert_int_equal(tn_event_wait(leaver.event, TN_NOW), TN_ERR_TIMED_OUT);
    uint32_t before = atomic_load(&inside(leaver.event)->items) / TNI_WAIT_EPOCH;
    tnt_signal(&leaver.leave);
    tnt_await(&leaver.has_left);
    assert_int_not_equal(atomic_load(&inside(leaver.event)->items) / TNI_WAIT_EPOCH, before);
    assert_int_equal(tn_event_wait(leaver.event, TN_NOW), TN_ERR_PEER_DIED);
    tnt_signal(&leaver.end);
    tnt_wait_ok(child);
    tn_object_close(leaver.event);
    tnt_signal_close(&leaver.leave);
    tnt_signal_close(&leaver.has_left);
    tnt_signal_close(&leaver.end);
    finish();
}

static int set_event(void *event) { return tn_event_set(event); }

TN_TEST(a_sleeper_passes_if_the_setter_dies_before_its_wake_up)
{
    tn_event *event;
    pthread_t thread;
    void *result;
    begin();
    TN_CHECK_OK(tn_event_open(domain, NULL, TN_EVENT_AUTO_RESET, &event));
    pthread_create(&thread, NULL, wait_for_event, event);
    await_sleeper(event);
    assert_true(tnt_kill_at("event_set", 1, set_event, event));
    assert_int_equal(reclaim(), 1);
    pthread_join(thread, &result);
    assert_int_equal((int)(intptr_t)result, 0);
    tn_object_close(event);
    finish();
}

/* ---- bad input --------------------------------------------------------------------------- */

TN_TEST(bad_arguments_are_refused)
{
    tn_event *event = NULL, *second = NULL;
    tn_semaphore *semaphore = NULL;
    tn_barrier *barrier = NULL;
    tn_lock *lock = NULL;
    begin();
    assert_int_equal(tn_semaphore_open(domain, NULL, 1, TN_SEMAPHORE_ANY_RELEASES, &semaphore),
                     TN_ERR_INVALID);
    assert_int_equal(tn_semaphore_open(domain, NULL, 1, 1u << 10, &semaphore), TN_ERR_INVALID);
    assert_int_equal(tn_semaphore_open(domain, NULL, 1u << 31, 0, &semaphore), TN_ERR_INVALID);
    assert_int_equal(tn_barrier_open(domain, NULL, 0, 0, &barrier), TN_ERR_INVALID);
    assert_int_equal(tn_barrier_open(domain, NULL, 1 << 16, 0, &barrier), TN_ERR_INVALID);
    assert_int_equal(tn_event_open(domain, ".hidden", TN_OPEN_NEW, &event), TN_ERR_INVALID);
    assert_int_equal(tn_event_open(domain, "nobody", TN_OPEN_EXISTING, &event),
                     TN_ERR_NOT_FOUND);
    TN_CHECK_OK(tn_event_open(domain, "it", TN_OPEN_NEW, &event));
    assert_int_equal(tn_event_open(domain, "it", TN_OPEN_NEW, &second), TN_ERR_EXISTS);
    assert_int_equal(tn_lock_open(domain, "it", TN_OPEN_EXISTING, &lock), TN_ERR_INVALID);
    assert_int_equal(tn_event_wait(NULL, TN_NOW), TN_ERR_INVALID);
    assert_null(second);
    assert_null(semaphore);
    assert_null(barrier);
    assert_null(lock);
    assert_null(tn_object_close(NULL));
    tn_object_close(event);
    finish();
}

TN_TEST(damaged_words_are_reported_as_corrupt)
{
    tn_event *event;
    tn_semaphore *semaphore;
    tn_lock *lock;
    tn_barrier *barrier;
    begin();
    TN_CHECK_OK(tn_event_open(domain, NULL, TN_EVENT_AUTO_RESET, &event));
    TN_CHECK_OK(tn_semaphore_open(domain, NULL, 2, TN_SEMAPHORE_OWNED, &semaphore));
    TN_CHECK_OK(tn_lock_open(domain, NULL, 0, &lock));
    TN_CHECK_OK(tn_barrier_open(domain, NULL, 2, 0, &barrier));
    for (uint32_t i = 0; i < 1000; i++) {
        uint64_t word = tnt_random();
        atomic_store(&inside(event)->value, word | 2);
        assert_int_equal(tn_event_wait(event, TN_NOW), TN_ERR_CORRUPT);
        atomic_store(&inside(semaphore)->value, word | 4);
        assert_int_equal(tn_semaphore_acquire(semaphore, TN_NOW), TN_ERR_CORRUPT);
        atomic_store(&inside(lock)->value, word & ~(UINT64_C(1) << 63));
        assert_int_equal(tn_lock_acquire(lock, TN_NOW), TN_ERR_CORRUPT);
        atomic_store(&inside(barrier)->value, word | ARRIVED(2));
        assert_int_equal(tn_barrier_wait(barrier, TN_NOW), TN_ERR_CORRUPT);
        assert_int_equal(tn_barrier_reset(barrier), TN_ERR_CORRUPT);
    }
    tn_object_close(event);
    tn_object_close(semaphore);
    tn_object_close(lock);
    tn_object_close(barrier);
    finish();
}

TN_TEST(an_object_of_a_domain_that_was_left_is_closed)
{
    tn_event *event;
    tn_lock *lock;
    begin();
    TN_CHECK_OK(tn_event_open(domain, NULL, 0, &event));
    TN_CHECK_OK(tn_lock_open(domain, NULL, 0, &lock));
    TN_CHECK_OK(tn_lock_acquire(lock, TN_NOW));
    finish();
    assert_int_equal(tn_event_wait(event, TN_FOREVER), TN_ERR_CLOSED);
    assert_int_equal(tn_lock_release(lock), TN_ERR_CLOSED);
    assert_false(tn_event_is_set(event));
    tn_object_close(event);
    tn_object_close(lock);
}

TN_TEST(a_duration_taken_for_a_deadline_is_named_by_its_age)
{
    tn_event *event;
    begin();
    TN_CHECK_OK(tn_event_open(domain, NULL, 0, &event));
    uint64_t before_s = tni_os_now_ns() / UINT64_C(1000000000);
    assert_int_equal(tn_event_wait(event, (tn_deadline){1000}), TN_ERR_TIMED_OUT);
    char *end = NULL;
    assert_non_null(strstr(tn_error_detail(), "CLOCK_MONOTONIC"));
    const char *number = strstr(tn_error_detail(), "passed ");
    assert_non_null(number);
    unsigned long long late_s = strtoull(number + strlen("passed "), &end, 10);
    assert_in_range(late_s, before_s, before_s + 60);
    assert_memory_equal(end, " s ago", 6);
    assert_int_equal(tn_event_wait(event, tn_deadline_after(1000)), TN_ERR_TIMED_OUT);
    assert_string_equal(tn_error_detail(), "the deadline passed");
    tn_object_close(event);
    finish();
}
