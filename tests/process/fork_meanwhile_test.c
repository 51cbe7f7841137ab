/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests: what a child has of a call that another thread of its parent is in: nothing. ref.c I6.
 * Each call is stopped where it has a block and waits; the child lives on.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/harness.h"
#include "queue/object.h"
#include "queue/registry.h"

enum { MIB = 1 << 20, LONG_MS = 10000, TENSORS = 2 };

static tn_domain *d;
static tn_queue *q;
static tn_tensor *tensors[TENSORS];
static struct tnt_signal ready, go;

static void begin(uint64_t quota_bytes)
{
    const tn_domain_options options = {.struct_size = sizeof options,
                                       .quota_bytes = quota_bytes,
                                       .seats = 8,
                                       .flags = TN_DOMAIN_NO_MANAGER};
    d = tnt_domain(&options);
    ready = tnt_signal_open();
    go = tnt_signal_open();
}

static void finish(void)
{
    TN_CHECK_OK(tn_domain_reap(d, NULL));
    TNT_AUDIT(d);
    d = tn_domain_close(d);
    tnt_signal_close(&ready);
    tnt_signal_close(&go);
}

static void start(pthread_t *thread, void *(*run)(void *), void *argument)
{
    TN_CHECK(pthread_create(thread, NULL, run, argument) == 0);
}

static void await_armed(const _Atomic uint32_t *word)
{
    uint64_t deadline_ns = tnt_deadline(LONG_MS);
    while ((atomic_load(word) & TNI_WAIT_ARMED) == 0) {
        TN_CHECK(tni_os_now_ns() < deadline_ns);
        tni_os_yield();
    }
}

static void check_that_memory_is_free(int64_t bytes)
{
    tn_tensor *t;
    TN_CHECK_OK(tn_tensor_empty(d, TN_UINT8, 1, &bytes, 0, &t));
    tn_tensor_unref(t);
}

static int live_on(void *argument)
{
    (void)argument;
    for (int i = 0; i < TENSORS; i++)
        tn_tensor_unref(tensors[i]);
    q = tn_queue_close(q);
    tnt_signal(&ready);
    while (pause() == -1) {
    }
    return 0;
}

static pid_t fork_one_that_lives_on(void)
{
    pid_t child = tnt_fork(live_on, NULL);
    tnt_await(&ready);
    return child;
}

/* ---- push -------------------------------------------------------------------------------- */

static void open_full_queue(void)
{
    const tn_queue_options options = {.struct_size = sizeof options, .capacity = 1};
    const tn_message first = {.bytes = "x", .size_bytes = 1};
    TN_CHECK_OK(tn_queue_create(d, NULL, &options, &q));
    TN_CHECK_OK(tn_queue_push(q, &first, 0, 0));
}

static void drop_all(void)
{
    for (int i = 0; i < TENSORS; i++)
        tensors[i] = tn_tensor_unref(tensors[i]);
    q = tn_queue_close(q);
}

static void pop(uint32_t tensor_count)
{
    tn_message m;
    TN_CHECK_OK(tn_queue_pop(q, tnt_deadline(LONG_MS), &m));
    assert_int_equal(m.tensor_count, tensor_count);
    tn_message_fini(&m);
}

static void *push(void *argument)
{
    (void)argument;
    const tn_message m = {.tensors = tensors, .tensor_count = TENSORS};
    TN_CHECK_OK(tn_queue_push(q, &m, 0, tnt_deadline(LONG_MS)));
    return NULL;
}

TN_TEST(a_child_has_nothing_of_a_message_that_waits_for_room)
{
    int64_t bytes = 16 * MIB;
    pthread_t pusher;
    begin(64 * MIB);
    open_full_queue();
    for (int i = 0; i < TENSORS; i++)
        TN_CHECK_OK(tn_tensor_empty(d, TN_UINT8, 1, &bytes, 0, &tensors[i]));
    start(&pusher, push, NULL);
    await_armed(&((struct tni_handle *)(void *)q)->object->room);
    pid_t child = fork_one_that_lives_on();
    pop(0);
    pop(TENSORS);
    TN_CHECK(pthread_join(pusher, NULL) == 0);
    drop_all();
    check_that_memory_is_free(48 * MIB);
    tnt_kill(child);
    finish();
}

static pid_t parent, forked;

static int fork_once(void *context)
{
    (void)context;
    if (forked == 0) {
        forked = fork();
        TN_CHECK(forked >= 0);
        if (forked != 0)
            tnt_signal(&ready);
        else
            forked = getpid();
    }
    return 0;
}

static void *push_and_exit_in_a_child(void *argument)
{
    push(argument);
    if (getpid() != parent)
        _exit(0);
    return NULL;
}

/* The block that the parent packed may be another's by the time that the child goes on. */
TN_TEST(a_child_that_the_hook_of_a_push_forks_pushes_a_message_too)
{
    int64_t bytes = MIB;
    int status;
    pthread_t pusher;
    begin(64 * MIB);
    open_full_queue();
    for (int i = 0; i < TENSORS; i++)
        TN_CHECK_OK(tn_tensor_empty(d, TN_UINT8, 1, &bytes, 0, &tensors[i]));
    parent = getpid();
    forked = 0;
    tn_interrupt_set(fork_once, NULL);
    start(&pusher, push_and_exit_in_a_child, NULL);
    tnt_await(&ready);
    pop(0);
    pop(TENSORS);
    pop(TENSORS);
    TN_CHECK(pthread_join(pusher, NULL) == 0);
    tn_interrupt_set(NULL, NULL);
    TN_CHECK(waitpid(forked, &status, 0) == forked);
    assert_int_equal(status, 0);
    drop_all();
    finish();
}

/* ---- tensors with given bytes ------------------------------------------------------------ */

enum { MUCH = 256 * MIB };

static _Atomic bool is_made;

static void *make_from_bytes(void *source)
{
    int64_t bytes = MUCH;
    tn_tensor *t;
    TN_CHECK_OK(tn_tensor_from_bytes(d, TN_UINT8, 1, &bytes, source, MUCH, 0, &t));
    atomic_store(&is_made, true);
    return t;
}

static void *share(void *tensor)
{
    TN_CHECK_OK(tn_tensor_share(d, tensor, 0));
    atomic_store(&is_made, true);
    return tensor;
}

static bool stands_aside(void)
{
    for (uint32_t t = 0; t < TNI_THREADS; t++)
        if (atomic_load(&d->threads[t].aside) != TNI_ASIDE_NOT)
            return true;
    return false;
}

static void check_that_a_child_has_none_of_it(void *(*make)(void *), void *argument)
{
    pthread_t maker;
    void *t;
    bool is_seen = false;
    atomic_store(&is_made, false);
    start(&maker, make, argument);
    while (!is_seen && !atomic_load(&is_made))
        is_seen = stands_aside();
    assert_true(is_seen);
    pid_t child = fork_one_that_lives_on();
    TN_CHECK(pthread_join(maker, &t) == 0);
    tn_tensor_unref(t);
    check_that_memory_is_free(MUCH);
    tnt_kill(child);
}

TN_TEST(a_child_has_nothing_of_a_tensor_whose_bytes_are_being_written)
{
    int64_t bytes = MUCH;
    tn_tensor *private;
    void *source = malloc(MUCH);
    TN_CHECK(source != NULL);
    memset(source, 1, MUCH);
    begin(MUCH + 16 * MIB);
    check_that_a_child_has_none_of_it(make_from_bytes, source);
    free(source);
    TN_CHECK_OK(tn_domain_trim(d, 0, NULL));
    TN_CHECK_OK(tn_tensor_private(TN_UINT8, 1, &bytes, &private));
    check_that_a_child_has_none_of_it(share, private);
    finish();
}

/* ---- rings ------------------------------------------------------------------------------- */

static int hold_the_registry(void *argument)
{
    (void)argument;
    TN_CHECK(tni_registry_take(d, 0));
    tnt_signal(&ready);
    tnt_await(&go);
    tni_registry_leave(d);
    return 0;
}

static void *create_queue(void *argument)
{
    const tn_queue_options options = {
        .struct_size = sizeof options, .capacity = 8192, .inline_bytes = 4096};
    (void)argument;
    TN_CHECK_OK(tn_queue_create(d, NULL, &options, &q));
    return NULL;
}

TN_TEST(a_child_has_nothing_of_a_queue_that_is_being_made)
{
    pthread_t maker;
    begin(64 * MIB);
    pid_t holder = tnt_fork(hold_the_registry, NULL);
    tnt_await(&ready);
    start(&maker, create_queue, NULL);
    await_armed(&d->segment.header->registry_wait);
    pid_t child = fork_one_that_lives_on();
    tnt_signal(&go);
    TN_CHECK(pthread_join(maker, NULL) == 0);
    tnt_wait_ok(holder);
    drop_all();
    check_that_memory_is_free(48 * MIB);
    tnt_kill(child);
    finish();
}
