/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations that wake a sleeper, which is another member. A death between the change for
 * which it waits and its wake-up must not leave it asleep, so finish() waits until it ends.
 */
#include "process/crash.h"

#include <poll.h>
#include <sched.h>
#include <unistd.h>

#include "queue/queue.h"
#include "wait/wait.h"

enum { CAPACITY = 8 };

/* ---- the sleeper ------------------------------------------------------------------------- */

static void start_helper(struct crash_world *w, crash_step_fn *run)
{
    fflush(NULL);
    w->helper = fork();
    TN_CHECK(w->helper >= 0);
    if (w->helper == 0) {
        run(w);
        tn_domain_close(w->domain);
        fflush(NULL);
        _exit(0);
    }
}

static void await_armed(const _Atomic uint32_t *word)
{
    while ((atomic_load(word) & TNI_WAIT_ARMED) == 0)
        sched_yield();
}

static void collect(struct crash_world *w) { tnt_wait_ok(w->helper); }

/* ---- a push, and a pop ------------------------------------------------------------------- */

static void sleep_in_pop(struct crash_world *w)
{
    tn_message m;
    TN_CHECK_OK(tn_queue_pop(w->queue, TN_FOREVER, &m));
    tn_message_fini(&m);
}

/* The survivor has the role too, so no death is that of the last producer or consumer. */
static void attach(struct crash_world *w)
{
    TN_CHECK_OK(tn_queue_attach(w->queue, TN_PRODUCER | TN_CONSUMER));
}

static void start_popper(struct crash_world *w)
{
    attach(w);
    start_helper(w, sleep_in_pop);
    await_armed(&w->queue->object->items);
}

static void push_one(struct crash_world *w) { crash_push(w, 1, 100); }

/* If the push has happened, it must wake the sleeper. */
static void feed_popper(struct crash_world *w)
{
    if (tn_queue_count(w->queue) == 0)
        crash_push(w, 0, 1);
    collect(w);
}

/* An event loop that only the descriptor wakes: its poll() has no time limit and no slices. */
static void poll_for_a_message(struct crash_world *w, uint64_t number)
{
    struct pollfd p = {.events = POLLIN};
    tn_message m;
    int status;
    TN_CHECK_OK(tn_object_watch(w->queue, true));
    TN_CHECK_OK(tn_domain_poll_fd(w->domain, &p.fd));
    if (number != 0)
        atomic_store(&w->domain->me->bell_number, number);
    while ((status = tn_queue_pop(w->queue, TN_NOW, &m)) == TN_ERR_TIMED_OUT) {
        TN_CHECK(poll(&p, 1, -1) == 1);
        tn_domain_poll_clear(w->domain);
    }
    TN_CHECK_OK(status);
    tn_message_fini(&m);
}

static void sleep_in_poll(struct crash_world *w) { poll_for_a_message(w, 0); }

/* As if the sleeper were in another network namespace, where no bell has that number. */
static void sleep_in_watch(struct crash_world *w)
{
    poll_for_a_message(w, TNI_BELL_WATCHES | 2);
}

static void await_armed_descriptor(const struct crash_world *w)
{
    const struct tni_segment *s = &w->domain->segment;
    for (uint32_t seat = 0;; seat = (seat + 1) % s->geometry.seats) {
        if ((atomic_load(&tni_seat_at(s, seat)->bell_fd_armed) & TNI_BELL_ARMED) != 0)
            return;
        sched_yield();
    }
}

static void start_poller(struct crash_world *w)
{
    attach(w);
    start_helper(w, sleep_in_poll);
    await_armed_descriptor(w);
}

static void start_watcher(struct crash_world *w)
{
    attach(w);
    start_helper(w, sleep_in_watch);
    await_armed_descriptor(w);
}

static void push_two(struct crash_world *w)
{
    crash_push(w, 0, 100);
    crash_push(w, 1, 100);
}

static void fill(struct crash_world *w)
{
    for (uint32_t i = 0; i < CAPACITY; i++)
        crash_push(w, i % 2, 100);
}

static void sleep_in_push(struct crash_world *w)
{
    static const uint8_t byte = CRASH_BYTE;
    tn_message m = {.bytes = &byte, .size_bytes = 1};
    TN_CHECK_OK(tn_queue_push(w->queue, &m, 0, TN_FOREVER));
}

static void start_pusher(struct crash_world *w)
{
    attach(w);
    fill(w);
    start_helper(w, sleep_in_push);
    await_armed(&w->queue->object->room);
}

static void pop_one(struct crash_world *w)
{
    tn_message m = crash_pop(w);
    tn_message_fini(&m);
}

static void drain_for_pusher(struct crash_world *w)
{
    if (tn_queue_count(w->queue) == CAPACITY)
        pop_one(w);
    collect(w);
}

static void push_when_nearly_full(struct crash_world *w)
{
    crash_push(w, 1, 0);
    static const uint8_t byte = CRASH_BYTE;
    tn_message m = {.bytes = &byte, .size_bytes = 1};
    assert_int_equal(tn_queue_push(w->queue, &m, 0, TN_NOW), TN_ERR_TIMED_OUT);
}

static void fill_but_one(struct crash_world *w)
{
    for (uint32_t i = 0; i + 1 < CAPACITY; i++)
        crash_push(w, i % 2, 100);
}

static void push_sixteen(struct crash_world *w) { crash_push(w, 16, 1); }

/* ---- events, semaphores, barriers -------------------------------------------------------- */

static void sleep_at_event(struct crash_world *w)
{
    TN_CHECK_OK(tn_event_wait(w->event, TN_FOREVER));
}

static void start_waiter(struct crash_world *w) { start_helper(w, sleep_at_event); }

static void set_event(struct crash_world *w) { TN_CHECK_OK(tn_event_set(w->event)); }

static void end_waiter(struct crash_world *w)
{
    set_event(w);
    collect(w);
    TN_CHECK_OK(tn_event_clear(w->event));
}

static void sleep_at_semaphore(struct crash_world *w)
{
    TN_CHECK_OK(tn_semaphore_acquire(w->semaphore, TN_FOREVER));
}

static void start_acquirer(struct crash_world *w)
{
    while (tn_semaphore_count(w->semaphore) > 0)
        TN_CHECK_OK(tn_semaphore_acquire(w->semaphore, TN_NOW));
    start_helper(w, sleep_at_semaphore);
}

static void release_semaphore(struct crash_world *w)
{
    TN_CHECK_OK(tn_semaphore_release(w->semaphore));
}

static void end_acquirer(struct crash_world *w)
{
    release_semaphore(w);
    collect(w);
}

static void sleep_at_barrier(struct crash_world *w)
{
    int status = tn_barrier_wait(w->barrier, TN_FOREVER);
    TN_CHECK(status >= 0 || status == TN_ERR_PEER_DIED);
}

static void start_arrival(struct crash_world *w) { start_helper(w, sleep_at_barrier); }

static void arrive(struct crash_world *w)
{
    TN_CHECK_OK(tn_barrier_wait(w->barrier, TN_FOREVER));
}

/* ---- what no other table has ------------------------------------------------------------- */

static void hold_one(struct crash_world *w) { w->tensor[0] = crash_tensor(w, 1000); }

/* Local references to a tensor that this process holds: none of them is a record. */
static void ref_and_unref(struct crash_world *w)
{
    tn_tensor *view;
    tn_tensor *own = crash_tensor(w, 100);
    tn_tensor_unref(tn_tensor_ref(w->tensor[0]));
    TN_CHECK_OK(tn_tensor_slice(w->tensor[0], 0, 0, 1000, 2, &view));
    tn_tensor_unref(w->tensor[0]);
    tn_tensor_unref(view);
    TN_CHECK_OK(tn_tensor_slice(own, 0, 0, 100, 2, &view));
    tn_tensor_unref(own);
    tn_tensor_unref(view);
}

enum { SMALLEST_BYTES = 64, LARGEST_BYTES = 4 << 20 };

/* New tensors of each size class of payload, and then each again from the cache. */
static void empty_of_each_class(struct crash_world *w)
{
    for (int64_t bytes = SMALLEST_BYTES; bytes <= LARGEST_BYTES; bytes *= 2) {
        tn_tensor *one, *other;
        TN_CHECK_OK(tn_tensor_create(w->domain, TN_UINT8, 1, &bytes, NULL, &one));
        tn_tensor_unref(one);
        TN_CHECK_OK(tn_tensor_create(w->domain, TN_UINT8, 1, &bytes, NULL, &other));
        tn_tensor_unref(other);
    }
}

/* No other process knows of the domain: its memory ends with this process. */
static void create_anonymous(struct crash_world *w)
{
    tn_domain *domain;
    tn_domain_options options = {.struct_size = sizeof options,
                                 .quota_bytes = 16 << 20,
                                 .seats = 4,
                                 .blocks = 256,
                                 .flags = TN_DOMAIN_NO_MANAGER};
    (void)w;
    TN_CHECK_OK(tn_domain_open(NULL, &options, 0, &domain));
    tn_domain_close(domain);
}

/* Without tasks, so the scheduler starts no thread. */
static void show_scheduler(struct crash_world *w)
{
    tn_sched *sched;
    tn_graph *graph;
    TN_CHECK_OK(tn_sched_create(TN_OPTIONS(tn_sched_options, .resources = "CPU=1",
                                           .domain = w->domain, .name = "shown"),
                                &sched));
    TN_CHECK_OK(tn_graph_create(sched, &graph));
    tn_graph_close(graph);
    tn_sched_close(sched);
}

const struct crash_op crash_wake_ops[] = {
    {.name = "push_waking_a_sleeper",
     .prepare = start_popper,
     .run = push_one,
     .finish = feed_popper},
    {.name = "push_waking_a_poller",
     .prepare = start_poller,
     .run = push_two,
     .finish = feed_popper},
    {.name = "push_waking_a_watcher",
     .prepare = start_watcher,
     .run = push_two,
     .finish = feed_popper},
    {.name = "pop_waking_a_sleeper",
     .prepare = start_pusher,
     .run = pop_one,
     .finish = drain_for_pusher},
    {.name = "push_nearly_full",
     .prepare = fill_but_one,
     .run = push_when_nearly_full,
     .least = 7,
     .most = 8},
    {.name = "push_sixteen_tensors", .run = push_sixteen, .most = 1},
    {.name = "event_waking_a_sleeper",
     .prepare = start_waiter,
     .run = set_event,
     .finish = end_waiter},
    {.name = "semaphore_waking_a_sleeper",
     .prepare = start_acquirer,
     .run = release_semaphore,
     .finish = end_acquirer},
    {.name = "barrier_waking_a_sleeper",
     .prepare = start_arrival,
     .run = arrive,
     .finish = collect},
    {.name = "ref_and_unref", .prepare = hold_one, .run = ref_and_unref},
    {.name = "empty_of_each_class", .is_costly = true, .run = empty_of_each_class},
    {.name = "domain_create_anonymous", .run = create_anonymous},
    {.name = "scheduler_shown", .run = show_scheduler},
    {0},
};
