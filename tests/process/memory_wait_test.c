/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests: waiting for memory, of the arena or outside of it, in a domain without tenond. A
 * waiter uses no processor, wakes no other process, gives back what the arena keeps warm, and
 * reclaims dead processes.
 */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "alloc/alloc.h"
#include "harness/harness.h"
#include "harness/tensor.h"
#include "object/object.h"

enum { MIB = 1 << 20, LONG_MS = 10000, SOON_MS = 650, FEW = 3 };

static const uint32_t strategies[] = {TN_STRATEGY_ARENA, TN_STRATEGY_FILE_DESCRIPTOR,
                                      TN_STRATEGY_FILE_SYSTEM};
static tn_domain *d;
static struct tnt_signal ready;

static void begin_with(uint64_t quota_bytes)
{
    const tn_domain_options options = {.struct_size = sizeof options,
                                       .quota_bytes = quota_bytes,
                                       .watermark_bytes = quota_bytes,
                                       .seats = 8,
                                       .flags = TN_DOMAIN_NO_MANAGER};
    d = tnt_domain(&options);
    ready = tnt_signal_open();
}

static void begin(void) { begin_with(4 * MIB); }

static void finish(void)
{
    TN_CHECK_OK(tn_domain_reap(d, NULL));
    TNT_AUDIT(d);
    d = tn_domain_close(d);
    tnt_signal_close(&ready);
}

static int make(uint32_t strategy, int64_t bytes, tn_deadline deadline, tn_tensor **ret_tensor)
{
    return tn_tensor_create(
        d, TN_UINT8, 1, &bytes,
        TN_OPTIONS(tn_tensor_options, .strategy = strategy, .deadline = deadline), ret_tensor);
}

static uint32_t memory_wait(void) { return atomic_load(&d->segment.header->memory_wait); }

static void await_waiter(void)
{
    uint64_t deadline_ns = tnt_until_ns(LONG_MS);
    while ((memory_wait() & TNI_WAIT_ARMED) == 0) {
        TN_CHECK(tni_os_now_ns() < deadline_ns);
        tni_os_yield();
    }
}

static int hold_memory(void *argument)
{
    tn_tensor *t;
    (void)argument;
    TN_CHECK_OK(make(TN_STRATEGY_ARENA, 3 * MIB, TN_NOW, &t));
    tnt_signal(&ready);
    while (pause() == -1) {
    }
    return 0;
}

static int hold_memory_until_somebody_waits(void *argument)
{
    tn_tensor *t;
    (void)argument;
    TN_CHECK_OK(make(TN_STRATEGY_ARENA, 3 * MIB, TN_NOW, &t));
    tnt_signal(&ready);
    await_waiter();
    tn_tensor_unref(t);
    return 0;
}

/* ---- sleeping ---------------------------------------------------------------------------- */

/*
 * What a waiter gives back at its beginning and its end may be what others wait for, so it
 * wakes them then only.
 */
TN_TEST(a_wait_for_memory_wakes_no_other_process)
{
    tn_tensor *held, *t;
    begin();
    TN_CHECK_OK(make(TN_STRATEGY_ARENA, 3 * MIB, TN_NOW, &held));
    for (size_t i = 0; i < TNI_COUNT(strategies); i++) {
        uint32_t seen = memory_wait() / TNI_WAIT_EPOCH;
        assert_int_equal(make(strategies[i], 3 * MIB, tnt_deadline(SOON_MS), &t),
                         TN_ERR_TIMED_OUT);
        assert_in_range(memory_wait() / TNI_WAIT_EPOCH - seen, 0, FEW);
    }
    tn_tensor_unref(held);
    finish();
}

/*
 * Sooner than the age at which free memory goes back anyway, which a check in the wait would
 * do in the end.
 */
TN_TEST(memory_that_is_kept_warm_ends_each_wait_for_memory)
{
    enum { YOUNG_MS = 4000 };
    for (size_t i = 0; i < TNI_COUNT(strategies); i++) {
        tn_tensor *t;
        begin();
        pid_t holder = tnt_fork(hold_memory_until_somebody_waits, NULL);
        tnt_await(&ready);
        TN_CHECK_OK(make(strategies[i], 3 * MIB, tnt_deadline(YOUNG_MS), &t));
        tn_tensor_unref(t);
        tnt_wait_ok(holder);
        finish();
    }
}

/* While a thread that asked for memory is stopped, no other knows whether there is room. */
TN_TEST(a_call_ends_at_its_deadline_beside_one_that_is_stopped)
{
    const uint32_t waits_ms[] = {0, 10};
    enum { LAST = TNI_THREADS - 1 }; /* a thread record of this process that no thread uses */
    begin();
    struct tni_announce *stopped = tni_announce_at(&d->segment, d->seat, LAST);
    atomic_store(&d->threads[LAST].busy, 1);
    atomic_store(&stopped->commit_bytes, TNI_COMMIT_ASKS | 3 * MIB);
    for (size_t i = 0; i < TNI_COUNT(strategies) * TNI_COUNT(waits_ms); i++) {
        tn_tensor *t;
        uint64_t begun_ns = tni_os_now_ns();
        uint32_t wait_ms = waits_ms[i / TNI_COUNT(strategies)];
        int status = make(strategies[i % TNI_COUNT(strategies)], 3 * MIB,
                          wait_ms == 0 ? TN_NOW : tnt_deadline(wait_ms), &t);
        assert_int_equal(status, wait_ms == 0 ? TN_ERR_NO_MEMORY : TN_ERR_TIMED_OUT);
        assert_in_range(tni_os_now_ns() - begun_ns, 0, TNI_REF_PATIENCE_NS - 1);
    }
    atomic_store(&stopped->commit_bytes, 0);
    atomic_store(&d->threads[LAST].busy, 0);
    finish();
}

/*
 * The holder stays a member until it is told: a member that leaves gives back what it keeps
 * warm.
 */
static int hold_memory_and_wait_for_the_waiter(void *argument)
{
    tn_tensor *t;
    TN_CHECK_OK(make(TN_STRATEGY_ARENA, 3 * MIB, TN_NOW, &t));
    tnt_signal(&ready);
    await_waiter();
    tn_tensor_unref(t);
    tnt_await(argument);
    return 0;
}

/* A waiter gives free memory back more than once: here the memory becomes free later. */
TN_TEST(warm_memory_ends_a_wait_beside_a_stopped_process)
{
    enum { LAST = TNI_THREADS - 1, YOUNG_MS = 4000 };
    struct tnt_signal is_made = tnt_signal_open();
    tn_tensor *t;
    begin();
    struct tni_announce *stopped = tni_announce_at(&d->segment, d->seat, LAST);
    pid_t holder = tnt_fork(hold_memory_and_wait_for_the_waiter, &is_made);
    tnt_await(&ready);
    atomic_store(&d->threads[LAST].busy, 1);
    atomic_store(&stopped->commit_bytes, TNI_COMMIT_ASKS | MIB);
    TN_CHECK_OK(make(TN_STRATEGY_ARENA, MIB / 2, tnt_deadline(YOUNG_MS), &t));
    atomic_store(&stopped->commit_bytes, 0);
    atomic_store(&d->threads[LAST].busy, 0);
    tnt_signal(&is_made);
    tnt_wait_ok(holder);
    tn_tensor_unref(t);
    tnt_signal_close(&is_made);
    finish();
}

/* ---- what a wait keeps ------------------------------------------------------------------- */

static void *make_and_free(void *strategy)
{
    tn_tensor *t;
    TN_CHECK_OK(make(*(const uint32_t *)strategy, 3 * MIB, tnt_deadline(LONG_MS), &t));
    tn_tensor_unref(t);
    return NULL;
}

static int give_back_and_live_on(void *held)
{
    tn_tensor_unref(held);
    tnt_signal(&ready);
    while (pause() == -1) {
    }
    return 0;
}

TN_TEST(a_child_that_is_forked_beside_a_wait_has_nothing_of_it)
{
    for (size_t i = 0; i < TNI_COUNT(strategies); i++) {
        pthread_t waiter;
        tn_tensor *held, *t;
        begin();
        TN_CHECK_OK(make(TN_STRATEGY_ARENA, 3 * MIB, TN_NOW, &held));
        TN_CHECK(pthread_create(&waiter, NULL, make_and_free, (void *)&strategies[i]) == 0);
        await_waiter();
        pid_t child = tnt_fork(give_back_and_live_on, held);
        tnt_await(&ready);
        tn_tensor_unref(held);
        TN_CHECK(pthread_join(waiter, NULL) == 0);
        TN_CHECK_OK(make(strategies[i], 3 * MIB, TN_NOW, &t));
        tn_tensor_unref(t);
        tnt_kill(child);
        finish();
    }
}

static void *make_nearly_all_and_free(void *strategy)
{
    /*
     * A page for the header and one for the record: each waiter needs all the memory there
     * is.
     */
    int64_t most = 4 * MIB - 2 * (int64_t)tni_os_page_bytes();
    tn_tensor *t;
    TN_CHECK_OK(make(*(const uint32_t *)strategy, most, tnt_deadline(LONG_MS), &t));
    tn_tensor_unref(t);
    return NULL;
}

TN_TEST(each_of_several_waiters_can_have_all_the_memory)
{
    enum { WAITERS = 3 };
    for (size_t i = 0; i < TNI_COUNT(strategies); i++) {
        pthread_t waiters[WAITERS];
        tn_tensor *held;
        begin();
        TN_CHECK_OK(make(TN_STRATEGY_ARENA, 3 * MIB, TN_NOW, &held));
        for (int w = 0; w < WAITERS; w++) {
            atomic_fetch_and(&d->segment.header->memory_wait, ~(uint32_t)TNI_WAIT_ARMED);
            TN_CHECK(pthread_create(&waiters[w], NULL, make_nearly_all_and_free,
                                    (void *)&strategies[i]) == 0);
            await_waiter();
        }
        tn_tensor_unref(held);
        for (int w = 0; w < WAITERS; w++)
            TN_CHECK(pthread_join(waiters[w], NULL) == 0);
        finish();
    }
}

static int64_t shared_bytes = 3 * MIB;

static int share_once(void *view)
{
    static _Atomic bool is_done;
    if (!atomic_exchange(&is_done, true)) {
        uint64_t begun_ns = tni_os_now_ns();
        assert_int_equal(
            tn_tensor_share(d, view,
                            TN_OPTIONS(tn_tensor_options, .deadline = tnt_deadline(10))),
            TN_ERR_TIMED_OUT);
        assert_in_range(tni_os_now_ns() - begun_ns, 0, TNI_REF_PATIENCE_NS);
        tnt_signal(&ready);
    }
    return 0;
}

static void *share(void *tensor)
{
    TN_CHECK_OK(tn_tensor_share(
        d, tensor, TN_OPTIONS(tn_tensor_options, .deadline = tnt_deadline(LONG_MS))));
    return NULL;
}

TN_TEST(a_share_that_waits_for_memory_delays_no_share_of_a_view)
{
    pthread_t waiter;
    tn_tensor *held, *t, *view;
    begin();
    TN_CHECK_OK(make(TN_STRATEGY_ARENA, 3 * MIB, TN_NOW, &held));
    TN_CHECK_OK(tn_tensor_create_private(TN_UINT8, 1, &shared_bytes, &t));
    TN_CHECK_OK(tn_tensor_slice(t, 0, 0, 100, 1, &view));
    TN_CHECK(pthread_create(&waiter, NULL, share, t) == 0);
    await_waiter();
    uint64_t begun_ns = tni_os_now_ns();
    assert_int_equal(tn_tensor_share(d, view, NULL), TN_ERR_NO_MEMORY);
    assert_in_range(tni_os_now_ns() - begun_ns, 0, TNI_REF_PATIENCE_NS);
    tn_interrupt_set(share_once, view);
    tnt_await(&ready);
    tn_interrupt_set(NULL, NULL);
    tn_tensor_unref(held);
    TN_CHECK(pthread_join(waiter, NULL) == 0);
    TN_CHECK(tnt_info(view).is_shared);
    tn_tensor_unref(view);
    tn_tensor_unref(t);
    finish();
}

/* A block for the record is missing, which comes back; no descriptor is missing. */
TN_TEST(a_share_outside_of_the_arena_waits_for_a_block)
{
    enum { MOST = 64 };
    const tn_domain_options options = {
        .struct_size = sizeof options, .blocks = 1, .seats = 8, .flags = TN_DOMAIN_NO_MANAGER};
    for (size_t i = 1; i < TNI_COUNT(strategies); i++) {
        int64_t bytes = 8;
        pthread_t waiter;
        tn_tensor *all[MOST], *t;
        int made = 0, status = 0;
        d = tnt_domain(&options);
        ready = tnt_signal_open();
        while (made < MOST && (status = make(strategies[i], 8, TN_NOW, &all[made])) == 0)
            made++;
        assert_int_equal(status, TN_ERR_FULL);
        TN_CHECK_OK(tn_strategy_set(strategies[i]));
        TN_CHECK_OK(tn_tensor_create_private(TN_UINT8, 1, &bytes, &t));
        TN_CHECK(pthread_create(&waiter, NULL, share, t) == 0);
        await_waiter();
        tn_tensor_unref(all[--made]);
        TN_CHECK(pthread_join(waiter, NULL) == 0);
        assert_int_equal(tnt_info(t).strategy, strategies[i]);
        tn_tensor_unref(t);
        while (made > 0)
            tn_tensor_unref(all[--made]);
        finish();
    }
}

/* ---- messages ---------------------------------------------------------------------------- */

/*
 * The shapes of so many tensors do not fit into the slot, so each message needs a block of
 * several pages.
 */
enum { TENSORS = 4000, PRODUCERS = 3 };
static tn_queue *queue;
static tn_message message;

static void open_queue(tn_tensor **tensors)
{
    const tn_queue_options options = {.struct_size = sizeof options, .capacity = PRODUCERS};
    tn_tensor *t;
    TN_CHECK_OK(tn_tensor_create(d, TN_UINT8, 1, (int64_t[]){8},
                                 TN_OPTIONS(tn_tensor_options, .flags = TN_TENSOR_ZEROED), &t));
    for (uint32_t i = 0; i < TENSORS; i++)
        tensors[i] = t;
    TN_CHECK_OK(tn_queue_open(d, NULL, &options, 0, &queue));
    message = (tn_message){.bytes = calloc(1, 4 * MIB),
                           .size_bytes = 4 * MIB,
                           .tensors = tensors,
                           .tensor_count = TENSORS};
    TN_CHECK(message.bytes != NULL);
}

static void close_queue(void)
{
    queue = tn_object_close(queue);
    tn_tensor_unref(message.tensors[0]);
    free((void *)message.bytes);
}

static void pop_one(void)
{
    tn_message m;
    TN_CHECK_OK(tn_queue_pop(queue, tnt_deadline(LONG_MS), &m));
    tn_message_fini(&m);
}

/* Find the longest tensor for which there is memory. */
static void find_longest(void)
{
    int status;
    while ((status = tn_queue_push(queue, &message, 0, TN_NOW)) == TN_ERR_NO_MEMORY)
        message.size_bytes -= tni_os_page_bytes();
    TN_CHECK_OK(status);
    pop_one();
}

static void *push_longest(void *argument)
{
    (void)argument;
    TN_CHECK_OK(tn_queue_push(queue, &message, 0, tnt_deadline(LONG_MS)));
    return NULL;
}

TN_TEST(each_of_several_producers_can_have_all_the_memory)
{
    tn_tensor *tensors[TENSORS], *held;
    pthread_t producers[PRODUCERS];
    begin();
    open_queue(tensors);
    find_longest();
    TN_CHECK_OK(make(TN_STRATEGY_ARENA, 3 * MIB, TN_NOW, &held));
    for (int p = 0; p < PRODUCERS; p++) {
        atomic_fetch_and(&d->segment.header->memory_wait, ~(uint32_t)TNI_WAIT_ARMED);
        TN_CHECK(pthread_create(&producers[p], NULL, push_longest, NULL) == 0);
        await_waiter();
    }
    tn_tensor_unref(held);
    for (int p = 0; p < PRODUCERS; p++)
        pop_one();
    for (int p = 0; p < PRODUCERS; p++)
        TN_CHECK(pthread_join(producers[p], NULL) == 0);
    close_queue();
    finish();
}

/* ---- what can never be ------------------------------------------------------------------- */

/* Larger by one byte than the largest that fits, though not than the largest block. */
static void expect_detail(const char *format, int pid)
{
    char text[160];
    snprintf(text, sizeof text, format, pid);
    if (strstr(tn_error_detail(), text) == NULL)
        fail_msg("'%s' does not say '%s'", tn_error_detail(), text);
}

TN_TEST(a_full_quota_says_who_holds_its_memory)
{
    tn_tensor *held, *more = NULL, *private;
    begin();
    TN_CHECK_OK(make(TN_STRATEGY_FILE_DESCRIPTOR, MIB / 2, TN_NOW, &held));
    pid_t pid = tnt_fork(hold_memory, NULL);
    tnt_await(&ready);
    assert_int_equal(make(TN_STRATEGY_ARENA, MIB, TN_NOW, &more), TN_ERR_NO_MEMORY);
    expect_detail("would pass the domain's quota of 4194304; process %d holds ", pid);
    expect_detail(", process %d 524288 (shared blocks count for each)", getpid());
    assert_int_equal(make(TN_STRATEGY_ARENA, MIB, tnt_deadline(10), &more), TN_ERR_TIMED_OUT);
    expect_detail("process %d holds ", pid);
    TN_CHECK_OK(tn_tensor_create_private(TN_UINT8, 1, (int64_t[]){MIB}, &private));
    const tn_tensor_options options = {.struct_size = sizeof options,
                                       .deadline = tnt_deadline(10)};
    assert_int_equal(tn_tensor_share(d, private, &options), TN_ERR_TIMED_OUT);
    const char *first = strstr(tn_error_detail(), " holds ");
    TN_CHECK(first != NULL && strstr(first + 1, " holds ") == NULL); /* it is said once */
    assert_int_equal(make(TN_STRATEGY_ARENA, 5 * MIB, TN_NOW, &more), TN_ERR_NO_MEMORY);
    TN_CHECK(strstr(tn_error_detail(), "process") == NULL); /* no holder is to blame */
    tn_tensor_unref(private);
    tn_tensor_unref(held);
    tnt_kill(pid);
    finish();
}

TN_TEST(what_is_larger_than_the_quota_can_be_is_not_waited_for)
{
    int64_t quota = 5 * MIB, page = (int64_t)tni_os_page_bytes();
    for (size_t i = 0; i < TNI_COUNT(strategies); i++) {
        /*
         * A storage outside of the arena has one page before the data, and one page for the
         * record.
         */
        int64_t most = strategies[i] == TN_STRATEGY_ARENA ? quota : quota - 2 * page;
        tn_tensor *t;
        begin_with((uint64_t)quota);
        TN_CHECK_OK(make(strategies[i], most, TN_NOW, &t));
        tn_tensor_unref(t);
        assert_int_equal(make(strategies[i], most + 1, tnt_deadline(SOON_MS), &t),
                         TN_ERR_NO_MEMORY);
        finish();
    }
}

/* ---- dead processes ---------------------------------------------------------------------- */

static void *kill_once_somebody_waits(void *argument)
{
    await_waiter();
    tnt_kill(*(pid_t *)argument);
    return NULL;
}

TN_TEST(memory_of_a_killed_process_ends_each_wait)
{
    for (size_t i = 0; i < TNI_COUNT(strategies); i++) {
        pthread_t killer;
        tn_tensor *t;
        begin();
        pid_t holder = tnt_fork(hold_memory, NULL);
        tnt_await(&ready);
        TN_CHECK(pthread_create(&killer, NULL, kill_once_somebody_waits, &holder) == 0);
        TN_CHECK_OK(make(strategies[i], 3 * MIB, tnt_deadline(LONG_MS), &t));
        TN_CHECK(pthread_join(killer, NULL) == 0);
        tn_tensor_unref(t);
        finish();
    }
}

static int make_in_arena(void *argument)
{
    tn_tensor *t;
    (void)argument;
    return make(TN_STRATEGY_ARENA, 3 * MIB, TN_NOW, &t);
}

TN_TEST(memory_that_a_dead_process_had_asked_for_is_there)
{
    for (size_t i = 0; i < TNI_COUNT(strategies); i++) {
        tn_tensor *t;
        begin();
        TN_CHECK(tnt_kill_at("quota_asked", 1, make_in_arena, NULL));
        TN_CHECK_OK(make(strategies[i], 3 * MIB, TN_NOW, &t));
        tn_tensor_unref(t);
        finish();
    }
}

/* ---- woken all the time ------------------------------------------------------------------ */

struct noise {
    pthread_t thread;
    _Atomic uint32_t *word;
    pid_t victim; /* killed once a waiter has slept; 0: none */
    _Atomic bool is_over;
};

static void *wake_all_the_time(void *argument)
{
    struct noise *noise = argument;
    while (!atomic_load(&noise->is_over)) {
        if (noise->victim != 0 && (atomic_load(noise->word) & TNI_WAIT_ARMED) != 0) {
            tnt_kill(noise->victim);
            noise->victim = 0;
        }
        tni_wait_notify_all(noise->word);
        tni_os_yield();
    }
    return NULL;
}

static void begin_noise(struct noise *noise)
{
    TN_CHECK(pthread_create(&noise->thread, NULL, wake_all_the_time, noise) == 0);
}

static void end_noise(struct noise *noise)
{
    atomic_store(&noise->is_over, true);
    TN_CHECK(pthread_join(noise->thread, NULL) == 0);
}

TN_TEST(a_wait_for_memory_that_is_woken_often_reclaims_dead_seats)
{
    for (size_t i = 0; i < TNI_COUNT(strategies); i++) {
        tn_tensor *t;
        begin();
        struct noise noise = {.word = &d->segment.header->memory_wait,
                              .victim = tnt_fork(hold_memory, NULL)};
        tnt_await(&ready);
        begin_noise(&noise);
        TN_CHECK_OK(make(strategies[i], 3 * MIB, tnt_deadline(LONG_MS), &t));
        end_noise(&noise);
        tn_tensor_unref(t);
        finish();
    }
}

static int produce_nothing(void *argument)
{
    tn_queue *q = NULL;
    TN_CHECK_OK(tn_queue_open(d, argument, NULL, TN_OPEN_EXISTING, &q));
    TN_CHECK_OK(tn_queue_attach(q, TN_PRODUCER));
    tnt_signal(&ready);
    while (pause() == -1) {
    }
    return 0;
}

TN_TEST(a_pop_that_is_woken_on_and_on_hears_of_its_producers_death)
{
    static char name[] = "q";
    tn_queue *q = NULL;
    tn_message m;
    begin();
    TN_CHECK_OK(tn_queue_open(d, name, NULL, TN_OPEN_NEW, &q));
    TN_CHECK_OK(tn_queue_attach(q, TN_CONSUMER));
    struct noise noise = {.word = &((struct tn_object *)q)->object->items,
                          .victim = tnt_fork(produce_nothing, name)};
    tnt_await(&ready);
    begin_noise(&noise);
    assert_int_equal(tn_queue_pop(q, tnt_deadline(LONG_MS), &m), TN_ERR_PEER_DIED);
    end_noise(&noise);
    tn_object_close(q);
    finish();
}
