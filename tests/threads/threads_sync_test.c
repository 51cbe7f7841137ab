/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events, semaphores, locks, conditions, barriers and their table, between threads of several
 * members. What they guard is plain memory: if they order nothing, ThreadSanitizer sees it.
 */
#include <pthread.h>
#include <sched.h>
#include <string.h>

#include "threads/threads.h"
#include "wait/wait.h"

/* The same object in each member. */
static union {
    tn_event *event[MEMBERS];
    tn_semaphore *semaphore[MEMBERS];
    tn_lock *lock[MEMBERS];
    tn_barrier *barrier[MEMBERS];
} object;
static tn_condition *conditions[MEMBERS];

/* Guarded by what is tested, so not atomic. */
static struct {
    uint64_t count, twice;
    uint32_t waiting, boxes;
} guarded;

static unsigned seat_of(const struct worker *w) { return w->number % MEMBERS; }

static void change_guarded(void)
{
    TN_CHECK(guarded.twice == 2 * guarded.count);
    guarded.count++;
    sched_yield(); /* lets a thread run that was let in too early */
    guarded.twice += 2;
}

static void begin(void)
{
    memset(&guarded, 0, sizeof guarded);
    world_begin(4 << 20);
}

/* ---- locks and conditions ---------------------------------------------------------------- */

static void open_locks(void)
{
    TN_CHECK_OK(tn_lock_open(members[0], NULL, 0, &object.lock[0]));
    for (unsigned i = 1; i < MEMBERS; i++)
        TN_CHECK_OK(tn_object_open_id(members[i], TN_OBJECT_LOCK, tn_object_id(object.lock[0]),
                                      &object.lock[i]));
}

static void close_locks(void)
{
    for (unsigned i = 0; i < MEMBERS; i++)
        tn_object_close(object.lock[i]);
}

static void change_locked(struct worker *w)
{
    tn_lock *lock = object.lock[seat_of(w)];
    if (!DID(tn_lock_acquire(lock, soon()), TN_ERR_TIMED_OUT))
        return;
    change_guarded();
    TN_CHECK_OK(tn_lock_release(lock));
}

TN_TEST(a_lock_lets_one_thread_in)
{
    begin();
    open_locks();
    run_crews((struct crew[]){{change_locked, 5}, {NULL, 0}});
    assert_true(guarded.count > 0 && guarded.twice == 2 * guarded.count);
    close_locks();
    world_end();
}

/* Threads put and take boxes under the lock; a thread that finds none waits. */
static void put_box(struct worker *w)
{
    tn_lock *lock = object.lock[seat_of(w)];
    TN_CHECK_OK(tn_lock_acquire(lock, TN_FOREVER));
    guarded.boxes++;
    guarded.count++;
    TN_CHECK_OK(tn_lock_release(lock));
    if (worker_random(w, 2) == 0)
        TN_CHECK_OK(tn_condition_signal(conditions[seat_of(w)]));
    else
        TN_CHECK_OK(tn_condition_broadcast(conditions[seat_of(w)]));
    sched_yield();
}

static void take_box(struct worker *w)
{
    tn_lock *lock = object.lock[seat_of(w)];
    tn_deadline deadline = soon();
    int status = 0;
    TN_CHECK_OK(tn_lock_acquire(lock, TN_FOREVER));
    while (guarded.boxes == 0 && status == 0)
        if (!DID(status = tn_condition_wait(conditions[seat_of(w)], lock, deadline),
                 TN_ERR_TIMED_OUT))
            break;
    if (guarded.boxes > 0) {
        guarded.boxes--;
        guarded.twice++;
    }
    TN_CHECK_OK(tn_lock_release(lock));
}

TN_TEST(a_condition_wakes_a_waiter_that_has_the_lock_again)
{
    begin();
    open_locks();
    TN_CHECK_OK(tn_condition_open(members[0], "boxes", TN_OPEN_NEW, &conditions[0]));
    TN_CHECK_OK(tn_condition_open(members[1], "boxes", TN_OPEN_EXISTING, &conditions[1]));
    TN_CHECK_OK(tn_object_open_id(members[2], TN_OBJECT_CONDITION, tn_object_id(conditions[0]),
                                  &conditions[2]));
    run_crews((struct crew[]){{put_box, 2}, {take_box, 4}, {NULL, 0}});
    assert_int_equal(guarded.count, guarded.twice + guarded.boxes);
    for (unsigned i = 0; i < MEMBERS; i++)
        tn_object_close(conditions[i]);
    close_locks();
    world_end();
}

/* ---- semaphores -------------------------------------------------------------------------- */

static void open_semaphores(uint32_t permits, uint32_t flags)
{
    TN_CHECK_OK(
        tn_semaphore_open(members[0], "s", permits, TN_OPEN_NEW | flags, &object.semaphore[0]));
    TN_CHECK_OK(tn_semaphore_open(members[1], "s", 0, TN_OPEN_EXISTING, &object.semaphore[1]));
    TN_CHECK_OK(tn_object_open_id(members[2], TN_OBJECT_SEMAPHORE,
                                  tn_object_id(object.semaphore[0]), &object.semaphore[2]));
}

static void close_semaphores(uint32_t permits)
{
    assert_int_equal(tn_semaphore_count(object.semaphore[0]), permits);
    for (unsigned i = 0; i < MEMBERS; i++)
        tn_object_close(object.semaphore[i]);
    world_end();
}

static void change_with_permit(struct worker *w)
{
    tn_semaphore *semaphore = object.semaphore[seat_of(w)];
    if (!DID(tn_semaphore_acquire(semaphore, soon()), TN_ERR_TIMED_OUT))
        return;
    change_guarded();
    TN_CHECK_OK(tn_semaphore_release(semaphore));
}

TN_TEST(one_owned_permit_lets_one_thread_in)
{
    begin();
    open_semaphores(1, TN_SEMAPHORE_OWNED);
    run_crews((struct crew[]){{change_with_permit, 5}, {NULL, 0}});
    assert_true(guarded.count > 0);
    close_semaphores(1);
}

TN_TEST(one_permit_without_an_owner_lets_one_thread_in)
{
    begin();
    open_semaphores(1, 0);
    run_crews((struct crew[]){{change_with_permit, 5}, {NULL, 0}});
    assert_true(guarded.count > 0);
    close_semaphores(1);
}

/* At most three are inside. */
static _Atomic uint32_t inside;
static void enter_and_leave(struct worker *w)
{
    tn_semaphore *semaphore = object.semaphore[seat_of(w)];
    if (!DID(tn_semaphore_acquire(semaphore, soon()), TN_ERR_TIMED_OUT))
        return;
    TN_CHECK(atomic_fetch_add(&inside, 1) < 3);
    sched_yield();
    atomic_fetch_sub(&inside, 1);
    TN_CHECK_OK(tn_semaphore_release(semaphore));
}

TN_TEST(three_owned_permits_let_three_threads_in)
{
    begin();
    open_semaphores(3, TN_SEMAPHORE_OWNED);
    run_crews((struct crew[]){{enter_and_leave, 6}, {NULL, 0}});
    close_semaphores(3);
}

/* ---- events ------------------------------------------------------------------------------ */

static void set_event(struct worker *w)
{
    TN_CHECK_OK(tn_event_set(object.event[seat_of(w)]));
    if (worker_random(w, 4) == 0)
        TN_CHECK_OK(tn_event_clear(object.event[seat_of(w)]));
    sched_yield();
}

static void wait_for_event(struct worker *w)
{
    DID(tn_event_wait(object.event[seat_of(w)], soon()), TN_ERR_TIMED_OUT);
    (void)tn_event_is_set(object.event[seat_of(w)]);
}

/* An auto-reset event as a token: the thread that passes has it alone, and gives it on. */
static void pass_token(struct worker *w)
{
    if (!DID(tn_event_wait(object.event[seat_of(w)], soon()), TN_ERR_TIMED_OUT))
        return;
    change_guarded();
    TN_CHECK_OK(tn_event_set(object.event[seat_of(w)]));
}

static void open_events(bool auto_reset)
{
    TN_CHECK_OK(tn_event_open(members[0], "e",
                              TN_OPEN_NEW | (auto_reset ? TN_EVENT_AUTO_RESET : 0),
                              &object.event[0]));
    TN_CHECK_OK(tn_event_open(members[1], "e", TN_OPEN_EXISTING, &object.event[1]));
    TN_CHECK_OK(tn_object_open_id(members[2], TN_OBJECT_EVENT, tn_object_id(object.event[0]),
                                  &object.event[2]));
}

static void close_events(void)
{
    for (unsigned i = 0; i < MEMBERS; i++)
        tn_object_close(object.event[i]);
    world_end();
}

TN_TEST(an_event_lets_waiters_pass_while_others_set_and_clear_it)
{
    begin();
    open_events(false);
    run_crews((struct crew[]){{set_event, 2}, {wait_for_event, 3}, {NULL, 0}});
    close_events();
}

TN_TEST(one_thread_passes_for_each_set_of_an_event_with_auto_reset)
{
    begin();
    open_events(true);
    TN_CHECK_OK(tn_event_set(object.event[0]));
    run_crews((struct crew[]){{pass_token, 4}, {NULL, 0}});
    assert_true(guarded.count > 0 && tn_event_is_set(object.event[0]));
    close_events();
}

/* ---- barriers ---------------------------------------------------------------------------- */

enum { PARTIES = 3, PHASES = 200 };
static uint32_t marks[PARTIES]; /* each party's own, read by all between two barriers */

static void pass_phases(struct worker *w)
{
    tn_barrier *barrier = object.barrier[seat_of(w)];
    if (w->rounds > 0) {
        sched_yield();
        return;
    }
    for (uint32_t phase = 1; phase <= PHASES; phase++) {
        marks[w->number] = phase;
        TN_CHECK_OK(tn_barrier_wait(barrier, TN_FOREVER));
        for (unsigned i = 0; i < PARTIES; i++)
            TN_CHECK(marks[i] == phase);
        TN_CHECK_OK(tn_barrier_wait(barrier, TN_FOREVER));
    }
}

static void open_barriers(void)
{
    TN_CHECK_OK(tn_barrier_open(members[0], "b", PARTIES, TN_OPEN_NEW, &object.barrier[0]));
    TN_CHECK_OK(tn_barrier_open(members[1], "b", 0, TN_OPEN_EXISTING, &object.barrier[1]));
    TN_CHECK_OK(tn_object_open_id(members[2], TN_OBJECT_BARRIER,
                                  tn_object_id(object.barrier[0]), &object.barrier[2]));
}

static void close_barriers(void)
{
    for (unsigned i = 0; i < MEMBERS; i++)
        tn_object_close(object.barrier[i]);
    world_end();
}

TN_TEST(a_barrier_holds_each_party_until_all_have_come)
{
    begin();
    open_barriers();
    run_crews((struct crew[]){{pass_phases, PARTIES}, {NULL, 0}});
    close_barriers();
}

/* Deadlines pass and break the barrier under the other threads, which reset it. */
static void wait_late_and_reset(struct worker *w)
{
    tn_barrier *barrier = object.barrier[seat_of(w)];
    tn_deadline deadline = tn_deadline_after(worker_random(w, MS));
    if (!DID(tn_barrier_wait(barrier, deadline), TN_ERR_TIMED_OUT, TN_ERR_CLOSED))
        TN_CHECK_OK(tn_barrier_reset(barrier));
}

TN_TEST(a_barrier_broken_by_deadlines_is_whole_after_a_reset)
{
    begin();
    open_barriers();
    run_crews((struct crew[]){{wait_late_and_reset, 5}, {NULL, 0}});
    close_barriers();
}

/* ---- the table of objects ---------------------------------------------------------------- */

/* Three names for objects of five kinds: each call finds what another just made, or ended. */
static void make_and_close(struct worker *w)
{
    static const char *const names[] = {"x", "y", "z"};
    const char *name = names[worker_random(w, 3)];
    bool creates = worker_random(w, 2) == 0;
    struct tn_domain *d = w->domain;
#define ALLOWED TN_ERR_EXISTS, TN_ERR_NOT_FOUND, TN_ERR_INVALID, TN_ERR_FULL
    switch (worker_random(w, 4)) {
    case 0: {
        tn_event *event;
        if (DID(creates ? tn_event_open(d, name, TN_OPEN_NEW, &event)
                        : tn_event_open(d, name, TN_OPEN_EXISTING, &event),
                ALLOWED))
            tn_object_close(event);
        break;
    }
    case 1: {
        tn_semaphore *semaphore;
        if (DID(creates ? tn_semaphore_open(d, name, 2, TN_OPEN_NEW | TN_SEMAPHORE_OWNED,
                                            &semaphore)
                        : tn_semaphore_open(d, name, 0, TN_OPEN_EXISTING, &semaphore),
                ALLOWED))
            tn_object_close(semaphore);
        break;
    }
    case 2: {
        tn_lock *lock;
        if (DID(creates ? tn_lock_open(d, name, TN_OPEN_NEW, &lock)
                        : tn_lock_open(d, name, TN_OPEN_EXISTING, &lock),
                ALLOWED))
            tn_object_close(lock);
        break;
    }
    default: {
        tn_barrier *barrier;
        if (DID(creates ? tn_barrier_open(d, name, 2, TN_OPEN_NEW, &barrier)
                        : tn_barrier_open(d, name, 0, TN_OPEN_EXISTING, &barrier),
                ALLOWED))
            tn_object_close(barrier);
    }
    }
#undef ALLOWED
}

TN_TEST(objects_of_one_name_are_made_opened_and_ended_at_once)
{
    begin();
    run_crews((struct crew[]){{make_and_close, 5}, {NULL, 0}});
    world_end();
}

/* ---- one thread closes what another opens ------------------------------------------------ */

static void *open_it(void *argument)
{
    tn_semaphore **ret_semaphore = argument;
    if (!DID(tn_semaphore_open(members[0], "it", 0, TN_OPEN_EXISTING, ret_semaphore),
             TN_ERR_NOT_FOUND))
        *ret_semaphore = NULL;
    return NULL;
}

static void *close_it(void *semaphore)
{
    tn_object_close(semaphore);
    return NULL;
}

static bool has_handles(struct tn_domain *d)
{
    while (atomic_exchange_explicit(&tni_object_part(d)->handles_lock.state, 2,
                                    memory_order_acquire) != 0)
        sched_yield();
    bool has = tni_object_part(d)->handles != NULL;
    tni_mutex_unlock(&tni_object_part(d)->handles_lock);
    return has;
}

/*
 * The names are claimed by another member until one thread waits to open the object, and
 * another one to close the only handle that there was.
 */
static void open_while_closing(void)
{
    struct tni_header *h = members[0]->segment.header;
    tn_semaphore *first, *second;
    pthread_t opener, closer;
    TN_CHECK_OK(
        tn_semaphore_open(members[0], "it", 1, TN_OPEN_NEW | TN_SEMAPHORE_OWNED, &first));
    TN_CHECK(tni_claim_try(&h->registry, members[1]->who));
    atomic_store(&h->registry_wait, 0);
    assert_int_equal(pthread_create(&opener, NULL, open_it, &second), 0);
    while ((atomic_load(&h->registry_wait) & TNI_WAIT_ARMED) == 0)
        sched_yield();
    assert_int_equal(pthread_create(&closer, NULL, close_it, first), 0);
    while (has_handles(members[0]))
        sched_yield();
    tni_claim_release(&h->registry, members[1]->who);
    tni_wait_notify(&h->registry_wait, 1);
    pthread_join(opener, NULL);
    pthread_join(closer, NULL);
    if (second != NULL) {
        TN_CHECK_OK(tn_semaphore_acquire(second, TN_NOW));
        TN_CHECK_OK(tn_semaphore_release(second));
    }
    tn_object_close(second);
}

TN_TEST(an_object_stays_open_for_one_thread_while_another_closes_it)
{
    begin();
    for (unsigned i = 0; i < 100; i++)
        open_while_closing();
    world_end();
}
