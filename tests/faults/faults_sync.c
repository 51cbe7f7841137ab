/* SPDX-License-Identifier: Apache-2.0 */
/* Events, semaphores, locks, conditions, barriers. */
#include "faults.h"

static tn_event *event;
static tn_semaphore *semaphore;
static tn_lock *lock;
static tn_condition *condition;
static tn_barrier *barrier;

static void make_all(void)
{
    faults_begin();
    TN_CHECK_OK(tn_event_open(faults_d, "event", TN_OPEN_NEW, &event));
    TN_CHECK_OK(tn_semaphore_open(faults_d, "semaphore", 1, TN_OPEN_NEW | TN_SEMAPHORE_OWNED,
                                  &semaphore));
    TN_CHECK_OK(tn_lock_open(faults_d, "lock", TN_OPEN_NEW, &lock));
    TN_CHECK_OK(tn_condition_open(faults_d, "condition", TN_OPEN_NEW, &condition));
    TN_CHECK_OK(tn_barrier_open(faults_d, "barrier", 2, TN_OPEN_NEW, &barrier));
}
static void end_all(void)
{
    tn_object_close(event);
    tn_object_close(semaphore);
    tn_object_close(lock);
    tn_object_close(condition);
    tn_object_close(barrier);
    faults_end();
}
#define WITH_ALL .prepare = make_all, .finish = end_all

/* Each kind is made, opened by name and by id, and closed. */
#define KIND(kind, number, create_call, open_call)                                             \
    static int create_##kind(void) { return create_call; }                                     \
    FAULTS(tn_##kind##_open, WITH_ALL, .call = create_##kind, .undo = close_out)               \
    static int open_##kind(void) { return open_call; }                                         \
    FAULTS_WHEN(tn_##kind##_open, it_exists, WITH_ALL, .call = open_##kind, .undo = close_out) \
    static int open_##kind##_by_id(void)                                                       \
    {                                                                                          \
        return tn_object_open_id(faults_d, number, tn_object_id(kind),                         \
                                 FAULTS_OUT(tn_object *));                                     \
    }                                                                                          \
    FAULTS_WHEN(tn_object_open_id, of_a_##kind, WITH_ALL, .call = open_##kind##_by_id,         \
                .undo = close_out)                                                             \
    static void make_other_##kind(void)                                                        \
    {                                                                                          \
        TN_CHECK_OK(create_##kind());                                                          \
        other = *FAULTS_OUT(tn_object *);                                                      \
    }                                                                                          \
    FAULTS_WHEN(tn_object_close, of_a_##kind, WITH_ALL, .never_fails = true,                   \
                .has_no_calls = true, .before = make_other_##kind, .call = close_other)

static tn_object *other;
static void close_out(void) { tn_object_close(*FAULTS_OUT(tn_object *)); }
static int close_other(void) { return other = tn_object_close(other), 0; }

KIND(event, TN_OBJECT_EVENT,
     tn_event_open(faults_d, "one", TN_OPEN_NEW | TN_EVENT_AUTO_RESET, FAULTS_OUT(tn_event *)),
     tn_event_open(faults_d, "event", TN_OPEN_EXISTING, FAULTS_OUT(tn_event *)))
KIND(semaphore, TN_OBJECT_SEMAPHORE,
     tn_semaphore_open(faults_d, "one", 3, TN_OPEN_NEW, FAULTS_OUT(tn_semaphore *)),
     tn_semaphore_open(faults_d, "semaphore", 0, TN_OPEN_EXISTING, FAULTS_OUT(tn_semaphore *)))
KIND(lock, TN_OBJECT_LOCK, tn_lock_open(faults_d, "one", TN_OPEN_NEW, FAULTS_OUT(tn_lock *)),
     tn_lock_open(faults_d, "lock", TN_OPEN_EXISTING, FAULTS_OUT(tn_lock *)))
KIND(condition, TN_OBJECT_CONDITION,
     tn_condition_open(faults_d, "one", TN_OPEN_NEW, FAULTS_OUT(tn_condition *)),
     tn_condition_open(faults_d, "condition", TN_OPEN_EXISTING, FAULTS_OUT(tn_condition *)))
KIND(barrier, TN_OBJECT_BARRIER,
     tn_barrier_open(faults_d, "one", 2, TN_OPEN_NEW, FAULTS_OUT(tn_barrier *)),
     tn_barrier_open(faults_d, "barrier", 0, TN_OPEN_EXISTING, FAULTS_OUT(tn_barrier *)))

/* ---- events ------------------------------------------------------------------------------ */

static uint64_t is_set(void) { return tn_event_is_set(event); }
static int set_event(void) { return tn_event_set(event); }
static void clear_now(void) { TN_CHECK_OK(tn_event_clear(event)); }
static void set_now(void) { TN_CHECK_OK(tn_event_set(event)); }
static int clear_event(void) { return tn_event_clear(event); }
static int ask_event(void) { return tn_event_is_set(event); }
static int wait_for_event(void) { return tn_event_wait(event, tnt_deadline(2)); }
FAULTS(tn_event_set, WITH_ALL, .has_no_calls = true, .measure = is_set, .call = set_event,
       .undo = clear_now)
FAULTS(tn_event_clear, WITH_ALL, .has_no_calls = true, .before = set_now, .call = clear_event)
FAULTS(tn_event_is_set, WITH_ALL, .has_no_calls = true, .call = ask_event)
FAULTS(tn_event_wait, WITH_ALL, .expected = TN_ERR_TIMED_OUT, .measure = is_set,
       .call = wait_for_event)

/* ---- semaphores -------------------------------------------------------------------------- */

static uint64_t permits(void) { return tn_semaphore_count(semaphore); }
static int acquire(void) { return tn_semaphore_acquire(semaphore, TN_NOW); }
static void acquire_now(void) { TN_CHECK_OK(tn_semaphore_acquire(semaphore, TN_NOW)); }
static void release_now(void) { TN_CHECK_OK(tn_semaphore_release(semaphore)); }
static int release(void) { return tn_semaphore_release(semaphore); }
static int acquire_late(void) { return tn_semaphore_acquire(semaphore, tnt_deadline(2)); }
static int get_permits(void) { return (int)tn_semaphore_count(semaphore); }
FAULTS_WHEN(tn_semaphore_acquire, free, WITH_ALL, .has_no_calls = true, .measure = permits,
            .call = acquire, .undo = release_now)
FAULTS(tn_semaphore_acquire, WITH_ALL, .expected = TN_ERR_TIMED_OUT, .measure = permits,
       .before = acquire_now, .call = acquire_late, .undo = release_now)
FAULTS(tn_semaphore_release, WITH_ALL, .has_no_calls = true, .measure = permits,
       .before = acquire_now, .call = release)
FAULTS(tn_semaphore_count, WITH_ALL, .has_no_calls = true, .call = get_permits)

/* ---- locks and conditions ---------------------------------------------------------------- */

static int lock_it(void) { return tn_lock_acquire(lock, TN_NOW); }
static void lock_now(void) { TN_CHECK_OK(tn_lock_acquire(lock, TN_NOW)); }
static void unlock_now(void) { TN_CHECK_OK(tn_lock_release(lock)); }
static int unlock(void) { return tn_lock_release(lock); }
static pid_t holder;
static struct tnt_signal held, done;
static int hold(void *unused)
{
    (void)unused;
    TN_CHECK_OK(tn_lock_acquire(lock, TN_NOW));
    tnt_signal(&held);
    tnt_await(&done);
    TN_CHECK_OK(tn_lock_release(lock));
    return 0;
}
static void make_holder(void)
{
    make_all();
    held = tnt_signal_open();
    done = tnt_signal_open();
    holder = tnt_fork(hold, NULL);
    tnt_await(&held);
}
static void end_holder(void)
{
    tnt_signal(&done);
    tnt_wait(holder);
    end_all();
}
static int lock_late(void) { return tn_lock_acquire(lock, tnt_deadline(2)); }
FAULTS_WHEN(tn_lock_acquire, free, WITH_ALL, .has_no_calls = true, .call = lock_it,
            .undo = unlock_now)
FAULTS(tn_lock_acquire, .prepare = make_holder, .finish = end_holder,
       .expected = TN_ERR_TIMED_OUT, .call = lock_late)
FAULTS(tn_lock_release, WITH_ALL, .has_no_calls = true, .before = lock_now, .call = unlock)

static int wait_condition(void) { return tn_condition_wait(condition, lock, tnt_deadline(2)); }
static int signal_it(void) { return tn_condition_signal(condition); }
static int broadcast(void) { return tn_condition_broadcast(condition); }
FAULTS(tn_condition_wait, WITH_ALL, .expected = TN_ERR_TIMED_OUT, .before = lock_now,
       .call = wait_condition, .undo = unlock_now)
FAULTS(tn_condition_signal, WITH_ALL, .has_no_calls = true, .call = signal_it)
FAULTS(tn_condition_broadcast, WITH_ALL, .has_no_calls = true, .call = broadcast)

/* ---- barriers ---------------------------------------------------------------------------- */

static int wait_barrier(void) { return tn_barrier_wait(barrier, tnt_deadline(2)); }
static int reset_barrier(void) { return tn_barrier_reset(barrier); }
static void reset_now(void) { TN_CHECK_OK(tn_barrier_reset(barrier)); }
FAULTS(tn_barrier_wait, WITH_ALL, .expected = TN_ERR_TIMED_OUT, .call = wait_barrier,
       .undo = reset_now)
FAULTS(tn_barrier_reset, WITH_ALL, .has_no_calls = true, .call = reset_barrier)
