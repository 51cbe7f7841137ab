/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests: a process that sleeps at a queue, or polls for it, is woken, even if the process
 * that was to wake it is killed.
 */
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "harness/harness.h"
#include "harness/tensor.h"
#include "os/os.h"
#include "process/queue_world.h"
#include "queue/queue.h"
#include "wait/wait.h"

TN_TEST(the_pollable_descriptor_is_readable_until_it_is_cleared)
{
    tn_queue *queues[2];
    int fd;
    begin(4, 0);
    TN_CHECK_OK(tn_queue_open(d, NULL, NULL, 0, &queues[1]));
    TN_CHECK_OK(tn_domain_poll_fd(d, &fd));
    TN_CHECK_OK(tn_object_watch(queues[1], true));
    struct pollfd p = {.fd = fd, .events = POLLIN};
    assert_int_equal(poll(&p, 1, 0), 0);
    for (int i = 0; i < 3; i++) {
        tnt_wait_ok(tnt_fork(push_to_second, queues));
        assert_int_equal(poll(&p, 1, 10000), 1);
        tn_domain_poll_clear(d);
        assert_int_equal(poll(&p, 1, 0), 0);
    }
    assert_int_equal(tn_queue_count(queues[1]), 3);
    tn_object_close(queues[1]);
    finish();
}

static int push_a_lost_file_and_a_number(void *argument)
{
    const tn_tensor_options file = {.struct_size = sizeof file,
                                    .strategy = TN_STRATEGY_FILE_SYSTEM};
    int64_t count = 4;
    tn_tensor *t;
    (void)argument;
    TN_CHECK_OK(tn_tensor_create(d, TN_UINT8, 1, &count, &file, &t));
    TN_CHECK(unlink(tnt_info(t).path) == 0);
    TN_CHECK_OK(tn_queue_push_tensor(q, t, 0, TN_NOW));
    push_number(2);
    tn_tensor_unref(t);
    tn_domain_close(d); /* no seat is to be reclaimed */
    return 0;
}

static int take_and_discard(void *argument)
{
    struct tnt_signal *signals = argument;
    struct tni_thread *thread = tni_thread_enter(d);
    struct tni_taken taken = take_and_await_a_sleeper(thread, &signals[0]);
    tni_ring_discard(tni_queue_of(q), thread,
                     &taken); /* as a pop does with a message that is lost */
    tni_thread_leave(thread);
    tnt_await(&signals[1]); /* the death of this process would wake them too */
    return 0;
}

TN_TEST(the_end_is_told_when_the_last_message_that_was_out_is_lost)
{
    struct tnt_signal signals[2] = {tnt_signal_open(), tnt_signal_open()};
    tn_message m;
    begin(2, TN_QUEUE_LEASE);
    push_number(90);
    TN_CHECK_OK(tn_queue_end(q));
    pid_t pid = tnt_fork(take_and_discard, signals);
    tnt_await(&signals[0]);
    assert_int_equal(tn_queue_pop(q, TN_FOREVER, &m), TN_ERR_CLOSED);
    tnt_signal(&signals[1]);
    tnt_wait_ok(pid);
    tnt_signal_close(&signals[0]);
    tnt_signal_close(&signals[1]);
    finish();
}

#define SLICE_NS UINT64_C(100000000) /* after a slice a sleeper checks again */

static void *pop_what_is_lost(void *argument)
{
    tn_message m;
    _Atomic pid_t *id = argument;
    atomic_store(id, gettid());
    TN_CHECK(tn_queue_pop(q, TN_FOREVER, &m) == TN_ERR_NOT_FOUND);
    return NULL;
}

static void await_asleep(_Atomic pid_t *thread)
{
    char path[64], line[256], state = 0;
    while (state != 'S') {
        sched_yield();
        snprintf(path, sizeof path, "/proc/self/task/%d/stat", (int)atomic_load(thread));
        FILE *file = fopen(path, "re");
        if (file == NULL)
            continue;
        TN_CHECK(fgets(line, sizeof line, file) != NULL);
        fclose(file);
        const char *at = strstr(line, ") ");
        state = at != NULL ? at[2] : 0;
    }
}

/*
 * Wake one of two sleepers for two messages, as a third one that was LOOKING does. @return
 * whether it was done before a sleeper's slice ended, after which that sleeper would find the
 * message by itself
 */
static bool wake_one_for_two(uint32_t *ret_wakes)
{
    pthread_t popper;
    _Atomic pid_t id = 0;
    begin(8, 0);
    _Atomic uint32_t *items = &((const struct tn_object *)q)->object->items;
    uint64_t begun_ns = tni_os_now_ns();
    pthread_create(&popper, NULL, pop_what_is_lost, &id);
    await_asleep(&id);
    atomic_fetch_or(items, TNI_WAIT_LOOKING);
    tnt_wait_ok(tnt_fork(push_a_lost_file_and_a_number, NULL));
    atomic_fetch_and(items, ~(uint32_t)TNI_WAIT_LOOKING);
    uint32_t epoch = atomic_load(items) / TNI_WAIT_EPOCH;
    tni_wait_notify(items, 1);
    uint64_t took_ns = tni_os_now_ns() - begun_ns;
    pthread_join(popper, NULL);
    *ret_wakes = atomic_load(items) / TNI_WAIT_EPOCH - epoch;
    assert_int_equal(pop_number(TN_NOW), 2);
    finish();
    return took_ns < SLICE_NS;
}

TN_TEST(a_sleeper_woken_for_a_lost_message_wakes_the_next_one)
{
    uint32_t wakes;
    while (!wake_one_for_two(&wakes)) {
    }
    assert_int_equal(wakes, 2);
}

static int pop_a_number(void *argument)
{
    (void)argument;
    TN_CHECK(pop_number(TN_FOREVER) == 6);
    return 0;
}

/* As if a process that set LOOKING were stopped for good. */
TN_TEST(a_sleeper_checks_again_without_a_wake_up)
{
    begin(4, 0);
    _Atomic uint32_t *items = &((const struct tn_object *)q)->object->items;
    atomic_fetch_or(items, TNI_WAIT_LOOKING);
    pid_t sleeper = tnt_fork(pop_a_number, NULL);
    while ((atomic_load(items) & TNI_WAIT_ARMED) == 0)
        sched_yield();
    push_number(6); /* wakes no process */
    tnt_wait_ok(sleeper);
    finish();
}

/* ---- room between leases ----------------------------------------------------------------- */

struct pusher {
    pthread_t thread;
    _Atomic pid_t id;
};

static void *push_when_there_is_room(void *argument)
{
    struct pusher *pusher = argument;
    atomic_store(&pusher->id, gettid());
    push_number(5);
    return NULL;
}

static void start_pusher(struct pusher *pusher)
{
    const _Atomic uint32_t *room = &((const struct tn_object *)q)->object->room;
    atomic_store(&pusher->id, 0);
    TN_CHECK(pthread_create(&pusher->thread, NULL, push_when_there_is_room, pusher) == 0);
    while ((atomic_load(room) & TNI_WAIT_ARMED) == 0)
        sched_yield();
    await_asleep(&pusher->id);
}

/* Begin with a queue all of whose messages this process has leased. */
static void begin_leased(uint32_t capacity, tn_message *messages)
{
    begin(capacity, TN_QUEUE_LEASE);
    for (uint32_t i = 0; i < capacity; i++)
        push_number(i);
    for (uint32_t i = 0; i < capacity; i++)
        TN_CHECK_OK(tn_queue_pop(q, TN_NOW, &messages[i]));
}

static void ack(tn_message *message)
{
    TN_CHECK_OK(tn_message_ack(q, message));
    tn_message_fini(message);
}

/* @return how often the epoch of the wait word of pushes has changed */
static uint32_t room_epoch(void)
{
    const _Atomic uint32_t *room = &((const struct tn_object *)q)->object->room;
    return atomic_load(room) / TNI_WAIT_EPOCH;
}

/*
 * A producer may find the room by itself, at the end of its slice: then there is no wake-up
 * to see.
 */
enum { MOST_SLICES = 20 };

static bool does_a_lease_wake(void)
{
    struct pusher pusher;
    tn_message m[2];
    begin_leased(2, m);
    TN_CHECK_OK(tn_message_return(q, &m[0]));
    tn_message_fini(&m[0]);
    ack(&m[1]);
    start_pusher(&pusher); /* the free slot lies after a message */
    uint32_t before = room_epoch();
    TN_CHECK_OK(tn_queue_pop(q, TN_NOW, &m[0])); /* and now after a leased slot */
    bool is_woken = room_epoch() != before;
    pthread_join(pusher.thread, NULL);
    ack(&m[0]);
    finish();
    return is_woken;
}

TN_TEST(leasing_a_message_wakes_a_push_that_can_step_over_it)
{
    for (unsigned tries = 0; !does_a_lease_wake(); tries++)
        assert_true(tries < MOST_SLICES);
}

/* Wake one of two producers for two free slots, as a third one that was LOOKING does. */
static bool does_a_pusher_wake_the_next(void)
{
    struct pusher pushers[2];
    tn_message m[4];
    begin_leased(4, m);
    _Atomic uint32_t *room = &((const struct tn_object *)q)->object->room;
    for (int i = 0; i < 2; i++)
        start_pusher(&pushers[i]);
    atomic_fetch_or(room, TNI_WAIT_LOOKING);
    ack(&m[1]);
    ack(&m[3]);
    atomic_fetch_and(room, ~(uint32_t)TNI_WAIT_LOOKING);
    uint32_t before = room_epoch();
    tni_wait_notify(room, 1);
    for (int i = 0; i < 2; i++)
        pthread_join(pushers[i].thread, NULL);
    bool is_woken = room_epoch() - before == 2;
    ack(&m[0]);
    ack(&m[2]);
    finish();
    return is_woken;
}

TN_TEST(a_pusher_that_is_woken_wakes_the_next_one_beyond_a_lease)
{
    for (unsigned tries = 0; !does_a_pusher_wake_the_next(); tries++)
        assert_true(tries < MOST_SLICES);
}

/* ---- what a wait costs ------------------------------------------------------------------- */

TN_TEST(looks_before_a_sleep_end_while_they_do_not_pay)
{
    tn_message m;
    begin(4, 0);
    struct tn_object *handle = q;
    const _Atomic uint32_t *items = &handle->object->items, *room = &handle->object->room;
    assert_int_equal(tni_spins(handle, items), TNI_SPINS);
    for (int i = 0; i < TNI_DOUBT_MOST; i++)
        assert_int_equal(tn_queue_pop(q, (tn_deadline){1}, &m), TN_ERR_TIMED_OUT);
    uint32_t looks = 0;
    for (int i = 0; i < 2 * TNI_DOUBT_PROBES; i++) {
        looks += tni_spins(handle, items) != 0;
        assert_int_equal(tn_queue_pop(q, (tn_deadline){1}, &m), TN_ERR_TIMED_OUT);
    }
    assert_int_equal(looks, 2);
    assert_int_equal(tni_spins(handle, room), TNI_SPINS);
    tni_spins_learn(handle, items, TNI_SPINS, true);
    assert_int_equal(tni_spins(handle, items), TNI_SPINS);
    finish();
}

static uint64_t processor_ns(void)
{
    struct timespec t;
    TN_CHECK(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t) == 0);
    return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

enum waits { POP, PUSH, WAIT_ANY, EVENT, SEMAPHORE, WAITS };

static int wait_in_vain(enum waits what, tn_event *event, tn_semaphore *semaphore)
{
    tn_message m = {.bytes = "x", .size_bytes = 1};
    tn_deadline deadline = tn_deadline_after(300 * TN_MILLISECOND);
    switch (what) {
    case POP:
        return tn_queue_pop(q, deadline, &m);
    case PUSH:
        return tn_queue_push(q, &m, 0, deadline);
    case WAIT_ANY:
        return tn_object_wait_any(&q, 1, deadline);
    case EVENT:
        return tn_event_wait(event, deadline);
    default:
        return tn_semaphore_acquire(semaphore, deadline);
    }
}

/* On a busy machine a wait that spins gets a share of a processor: far more than a tenth. */
TN_TEST(a_waiter_uses_no_processor)
{
    tn_event *event;
    tn_semaphore *semaphore;
    begin(1, 0);
    TN_CHECK_OK(tn_event_open(d, NULL, (0 ? TN_EVENT_AUTO_RESET : 0), &event));
    TN_CHECK_OK(tn_semaphore_open(d, NULL, 0, 0, &semaphore));
    for (int what = 0; what < WAITS; what++) {
        if (what == PUSH)
            push_number(1);
        uint64_t since = tni_os_now_ns(), used = processor_ns();
        assert_int_equal(wait_in_vain((enum waits)what, event, semaphore), TN_ERR_TIMED_OUT);
        assert_true(processor_ns() - used < (tni_os_now_ns() - since) / 10);
        if (what == PUSH)
            pop_number(TN_NOW);
    }
    tn_object_close(event);
    tn_object_close(semaphore);
    finish();
}

#if defined(TN_KILL_POINTS)

/* One process sleeps in a pop; another was killed after it set LOOKING. @return the sleeper */
static pid_t kill_the_one_that_looks(void)
{
    const _Atomic uint32_t *items = &((const struct tn_object *)q)->object->items;
    pid_t sleeper = tnt_fork(pop_a_number, NULL);
    while ((atomic_load(items) & TNI_WAIT_ARMED) == 0)
        sched_yield();
    assert_true(tnt_kill_at("queue_looking", 1, pop_a_number, NULL));
    assert_true((atomic_load(items) & TNI_WAIT_LOOKING) != 0);
    return sleeper;
}

TN_TEST(a_message_reaches_a_sleeper_when_its_spinning_peer_dies)
{
    begin(4, 0);
    pid_t sleeper = kill_the_one_that_looks();
    push_number(6); /* wakes no process */
    tnt_wait_ok(sleeper);
    finish();
}

static int attach_and_die(void *argument)
{
    (void)argument;
    TN_CHECK_OK(tn_queue_attach(q, TN_PRODUCER));
    raise(SIGKILL);
    return 0;
}

static int close_and_reap(void *argument)
{
    (void)argument;
    q = tn_object_close(q); /* so that the death of this process does not concern the queue */
    TN_CHECK_OK(tn_domain_reap(d, NULL));
    return 0;
}

TN_TEST(a_poll_reports_a_death_though_its_recoverer_was_killed)
{
    tn_message m;
    struct pollfd p = {.events = POLLIN};
    begin(4, 0);
    TN_CHECK_OK(tn_domain_poll_fd(d, &p.fd));
    TN_CHECK_OK(tn_object_watch(q, true));
    assert_int_equal(tn_queue_pop(q, TN_NOW, &m), TN_ERR_TIMED_OUT);
    tnt_wait(tnt_fork(attach_and_die, NULL));
    assert_true(tnt_kill_at("reclaim_object_closed", 1, close_and_reap, NULL));
    TN_CHECK_OK(tn_domain_reap(d, NULL));
    assert_int_equal(poll(&p, 1, 10000), 1);
    tn_domain_poll_clear(d);
    assert_int_equal(tn_queue_pop(q, TN_NOW, &m), TN_ERR_PEER_DIED);
    finish();
}

static int push_and_be_killed(void *argument)
{
    (void)argument;
    push_number(7);
    return 0;
}

/*
 * A poller whose bell no other process reaches, as in another network namespace, has a watch
 * of the control segment in its place. A process that reclaims a dead one rings that watch.
 */
TN_TEST(a_poll_through_a_watch_ends_though_the_ringer_was_killed)
{
    tn_message m;
    struct pollfd p = {.events = POLLIN};
    begin(4, 0);
    TN_CHECK_OK(tn_domain_poll_fd(d, &p.fd));
    atomic_store(&d->me->bell_number, TNI_BELL_WATCHES | 2);
    TN_CHECK_OK(tn_object_watch(q, true));
    assert_int_equal(tn_queue_pop(q, TN_NOW, &m), TN_ERR_TIMED_OUT);
    assert_true(tnt_kill_at("watch_rings", 1, push_and_be_killed, NULL));
    TN_CHECK_OK(tn_domain_reap(d, NULL));
    assert_int_equal(poll(&p, 1, 10000), 1);
    tn_domain_poll_clear(d);
    TN_CHECK(pop_number(TN_NOW) == 7);
    finish();
}

static int watch_and_be_killed(void *argument)
{
    int fd;
    (void)argument;
    TN_CHECK_OK(tn_object_watch(q, true));
    TN_CHECK_OK(tn_domain_poll_fd(d, &fd));
    return 0;
}

TN_TEST(the_bell_of_a_dead_process_blocks_no_push)
{
    begin(4, 0);
    assert_true(tnt_kill_at("bell_named", 1, watch_and_be_killed, NULL));
    push_number(7);
    TN_CHECK_OK(tn_domain_reap(d, NULL));
    for (uint32_t seat = 1; seat < d->segment.geometry.seats; seat++)
        assert_int_equal(atomic_load(&tni_seat_at(&d->segment, seat)->bell_number), 0);
    TN_CHECK(pop_number(TN_NOW) == 7);
    finish();
}

static int pop_the_number(void *argument)
{
    (void)argument;
    TN_CHECK(pop_number(TN_NOW) == 7);
    return 0;
}

TN_TEST(a_poller_wakes_though_the_one_that_rang_was_killed)
{
    struct pollfd p = {.events = POLLIN};
    begin(4, 0);
    TN_CHECK_OK(tn_domain_poll_fd(d, &p.fd));
    TN_CHECK_OK(tn_object_watch(q, true));
    for (int i = 0; i < 2; i++) {
        assert_true(tnt_kill_at("bell_rung", 1, push_and_be_killed, NULL));
        assert_int_equal(poll(&p, 1, 0), 1);
        assert_int_equal(pop_number(TN_NOW), 7);
        /* The last message of the dead producer was popped: that rings, too. */
        tn_domain_poll_clear(d);
    }
    finish();
}

/*
 * A poller could wait for ever with empty queues, if others took the messages that the killed
 * process did not ring for.
 */
TN_TEST(a_poller_whose_message_another_one_took_hears_of_the_next)
{
    struct pollfd p = {.events = POLLIN};
    begin(4, 0);
    TN_CHECK_OK(tn_domain_poll_fd(d, &p.fd));
    TN_CHECK_OK(tn_object_watch(q, true));
    assert_true(tnt_kill_at("bell_rings", 1, push_and_be_killed, NULL));
    tnt_wait_ok(tnt_fork(pop_the_number, NULL));
    tnt_wait_ok(tnt_fork(push_and_be_killed, NULL));
    assert_int_equal(poll(&p, 1, 10000), 1);
    tn_domain_poll_clear(d);
    assert_int_equal(pop_number(TN_NOW), 7);
    finish();
}

static int push_a_six(void *argument)
{
    (void)argument;
    push_number(6);
    return 0;
}

enum { TURNS = 100 };

struct turns {
    tn_queue *answers;
    tn_lock *lock;
};

/* A process of ordinary priority that runs on the processor of a real-time one. */
static int answer_in_turns(void *argument)
{
    const struct turns *turns = argument;
    const struct sched_param ordinary = {0};
    TN_CHECK(sched_setscheduler(0, SCHED_OTHER, &ordinary) == 0);
    for (uint32_t i = 0; i < TURNS; i++) {
        tn_message m = {.bytes = &i, .size_bytes = sizeof i};
        TN_CHECK_OK(tn_lock_acquire(turns->lock, TN_FOREVER));
        TN_CHECK(pop_number(TN_FOREVER) ==
                 i); /* the owner of the lock waits in its turn then */
        TN_CHECK_OK(tn_lock_release(turns->lock));
        TN_CHECK_OK(tn_queue_push(turns->answers, &m, 0, TN_FOREVER));
    }
    return 0;
}

/*
 * A real-time process that spun as long as it waits would keep the processor, and the process
 * that it waits for would never run.
 */
TN_TEST_WITHIN(a_real_time_process_lets_the_one_run_that_it_waits_for, 60)
{
    struct turns turns;
    struct rusage before, after;
    cpu_set_t one;
    const struct sched_param real_time = {.sched_priority = 1};
    begin(4, 0);
    TN_CHECK_OK(tn_queue_open(d, NULL, NULL, 0, &turns.answers));
    TN_CHECK_OK(tn_lock_open(d, NULL, 0, &turns.lock));
    CPU_ZERO(&one);
    CPU_SET((size_t)sched_getcpu(), &one);
    TN_CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
    if (sched_setscheduler(0, SCHED_FIFO, &real_time) != 0)
        tnt_skip("a real-time priority needs a privilege");
    pid_t child = tnt_fork(answer_in_turns, &turns);
    getrusage(RUSAGE_SELF, &before);
    for (uint32_t i = 0; i < TURNS; i++) {
        tn_message m;
        push_number(i);
        TN_CHECK_OK(tn_lock_acquire(turns.lock, TN_FOREVER));
        TN_CHECK_OK(tn_lock_release(turns.lock));
        TN_CHECK_OK(tn_queue_pop(turns.answers, TN_FOREVER, &m));
        tn_message_fini(&m);
    }
    getrusage(RUSAGE_SELF, &after);
    tnt_wait_ok(child);
    /*
     * The kernel takes the processor from a real-time process only after it has used it for
     * 0.95 s.
     */
    assert_true(after.ru_utime.tv_sec - before.ru_utime.tv_sec < 2);
    tn_object_close(turns.answers);
    tn_object_close(turns.lock);
    finish();
}

/* That sleeper checks when its slice ends, or is woken because of the death. */
TN_TEST(a_message_reaches_a_sleeper_though_its_waker_was_killed)
{
    begin(4, 0);
    const _Atomic uint32_t *items = &((const struct tn_object *)q)->object->items;
    pid_t sleeper = tnt_fork(pop_a_number, NULL);
    while ((atomic_load(items) & TNI_WAIT_ARMED) == 0)
        sched_yield();
    assert_true(tnt_kill_at("wait_called", 1, push_a_six, NULL));
    TN_CHECK_OK(tn_domain_reap(d, NULL));
    tnt_wait_ok(sleeper);
    assert_true((atomic_load(items) & TNI_WAIT_LOOKING) == 0);
    finish();
}

TN_TEST(reclaiming_a_process_that_was_looking_clears_looking)
{
    begin(4, 0);
    const _Atomic uint32_t *items = &((const struct tn_object *)q)->object->items;
    pid_t sleeper = kill_the_one_that_looks();
    TN_CHECK_OK(tn_domain_reap(d, NULL));
    assert_true((atomic_load(items) & TNI_WAIT_LOOKING) == 0);
    push_number(6);
    tnt_wait_ok(sleeper);
    finish();
}
#endif
