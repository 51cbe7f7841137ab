/* SPDX-License-Identifier: Apache-2.0 */
/* Operations: events, semaphores, locks, conditions, barriers. */
#include "process/crash.h"

#include <pthread.h>

static void event(struct crash_world *w)
{
    TN_CHECK_OK(tn_event_set(w->event));
    TN_CHECK_OK(tn_event_wait(w->event, TN_NOW));
    TN_CHECK_OK(tn_event_clear(w->event));
}

static void acquire(struct crash_world *w)
{
    TN_CHECK_OK(tn_semaphore_acquire(w->semaphore, TN_NOW));
    TN_CHECK_OK(tn_semaphore_acquire(w->semaphore, TN_NOW));
    assert_int_equal(tn_semaphore_acquire(w->semaphore, TN_NOW), TN_ERR_TIMED_OUT);
}

static void acquire_and_release(struct crash_world *w)
{
    TN_CHECK_OK(tn_semaphore_acquire(w->semaphore, TN_NOW));
    TN_CHECK_OK(tn_semaphore_release(w->semaphore));
}

static void close_with_permit(struct crash_world *w)
{
    TN_CHECK_OK(tn_semaphore_acquire(w->semaphore, TN_NOW));
    w->semaphore = tn_object_close(w->semaphore);
}

static void release_anothers(struct crash_world *w)
{
    TN_CHECK_OK(tn_semaphore_release(w->semaphore));
    assert_int_equal(tn_semaphore_release(w->semaphore), TN_ERR_INVALID);
}

/* The lock has this process as its owner, or no owner. */
static void find_released_once(struct crash_world *w)
{
    uint32_t all = w->op->is_one ? 1 : 2;
    int expected = tn_semaphore_count(w->semaphore) == all ? TN_ERR_INVALID : 0;
    assert_int_equal(tn_semaphore_release(w->semaphore), expected);
}

static void acquire_one(struct crash_world *w)
{
    TN_CHECK_OK(tn_semaphore_acquire(w->semaphore, TN_NOW));
}

static void lock(struct crash_world *w) { TN_CHECK_OK(tn_lock_acquire(w->lock, TN_NOW)); }

static void lock_and_unlock(struct crash_world *w)
{
    lock(w);
    TN_CHECK_OK(tn_lock_release(w->lock));
}

static void close_locked(struct crash_world *w)
{
    lock(w);
    w->lock = tn_object_close(w->lock);
}

/* If the lock was held at the death, the next owner is told so. */
static void find_recovered(struct crash_world *w)
{
    if (w->has_died)
        return;
    assert_int_equal(tn_lock_acquire(w->lock, TN_NOW), TN_LOCK_RECOVERED);
    TN_CHECK_OK(tn_lock_release(w->lock));
}

static void condition_wait(struct crash_world *w)
{
    lock(w);
    assert_int_equal(tn_condition_wait(w->condition, w->lock, (tn_deadline){1}),
                     TN_ERR_TIMED_OUT);
    TN_CHECK_OK(tn_lock_release(w->lock));
}

static void condition_signal(struct crash_world *w)
{
    TN_CHECK_OK(tn_condition_signal(w->condition));
    TN_CHECK_OK(tn_condition_broadcast(w->condition));
}

static void *wait_at_barrier(void *argument)
{
    struct crash_world *w = argument;
    TN_CHECK_OK(tn_barrier_wait(w->barrier, TN_FOREVER));
    return NULL;
}

static void barrier(struct crash_world *w)
{
    pthread_t thread;
    TN_CHECK(pthread_create(&thread, NULL, wait_at_barrier, w) == 0);
    TN_CHECK_OK(tn_barrier_wait(w->barrier, TN_FOREVER));
    pthread_join(thread, NULL);
}

static void barrier_late(struct crash_world *w)
{
    assert_int_equal(tn_barrier_wait(w->barrier, TN_NOW), TN_ERR_TIMED_OUT);
    TN_CHECK_OK(tn_barrier_reset(w->barrier));
}

static void find_broken(struct crash_world *w)
{
    assert_int_equal(tn_barrier_wait(w->barrier, TN_NOW), TN_ERR_PEER_DIED);
}

const struct crash_op crash_sync_ops[] = {
    {.name = "event", .run = event},
    {.name = "semaphore_acquire", .run = acquire_and_release},
    {.name = "semaphore_acquire_owned", .is_owned = true, .run = acquire},
    {.name = "semaphore_release_owned", .is_owned = true, .run = acquire_and_release},
    {.name = "semaphore_release_anothers",
     .is_owned = true,
     .prepare = acquire_one,
     .run = release_anothers,
     .check = find_released_once},
    {.name = "semaphore_close_owned", .is_owned = true, .run = close_with_permit},
    {.name = "semaphore_acquire_one", .is_owned = true, .is_one = true, .run = acquire_one},
    {.name = "semaphore_release_one",
     .is_owned = true,
     .is_one = true,
     .run = acquire_and_release},
    {.name = "semaphore_release_anothers_one",
     .is_owned = true,
     .is_one = true,
     .prepare = acquire_one,
     .run = release_anothers,
     .check = find_released_once},
    {.name = "semaphore_close_one", .is_owned = true, .is_one = true, .run = close_with_permit},
    {.name = "lock_acquire", .run = lock, .check = find_recovered},
    {.name = "lock_release", .run = lock_and_unlock},
    {.name = "lock_close", .run = close_locked, .check = find_recovered},
    {.name = "condition_wait", .run = condition_wait},
    {.name = "condition_signal", .run = condition_signal},
    {.name = "barrier_wait", .run = barrier, .check = find_broken},
    {.name = "barrier_late_and_reset", .run = barrier_late, .check = find_broken},
    {0},
};
