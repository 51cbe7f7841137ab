/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests: a child has no part in a call that another thread of its parent is making (ref.c,
 * I6). Each call is stopped while it has a block and waits; the child goes on.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/harness.h"
#include "object/object.h"
#include "object/registry.h"

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
    uint64_t deadline_ns = tnt_until_ns(LONG_MS);
    while ((atomic_load(word) & TNI_WAIT_ARMED) == 0) {
        TN_CHECK(tni_os_now_ns() < deadline_ns);
        tni_os_yield();
    }
}

static void check_that_memory_is_free(int64_t bytes)
{
    tn_tensor *t;
    TN_CHECK_OK(tn_tensor_create(d, TN_UINT8, 1, &bytes, NULL, &t));
    tn_tensor_unref(t);
}

static int live_on(void *argument)
{
    (void)argument;
    for (int i = 0; i < TENSORS; i++)
        tn_tensor_unref(tensors[i]);
    q = tn_object_close(q);
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
    TN_CHECK_OK(tn_queue_open(d, NULL, &options, 0, &q));
    TN_CHECK_OK(tn_queue_push(q, &first, 0, TN_NOW));
}

static void drop_all(void)
{
    for (int i = 0; i < TENSORS; i++)
        tensors[i] = tn_tensor_unref(tensors[i]);
    q = tn_object_close(q);
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
        TN_CHECK_OK(tn_tensor_create(d, TN_UINT8, 1, &bytes, NULL, &tensors[i]));
    start(&pusher, push, NULL);
    await_armed(&((struct tn_object *)(void *)q)->object->room);
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

/* When the child goes on, another process may have the block that the parent packed. */
TN_TEST(a_child_that_the_hook_of_a_push_forks_pushes_a_message_too)
{
    int64_t bytes = MIB;
    int status;
    pthread_t pusher;
    begin(64 * MIB);
    open_full_queue();
    for (int i = 0; i < TENSORS; i++)
        TN_CHECK_OK(tn_tensor_create(d, TN_UINT8, 1, &bytes, NULL, &tensors[i]));
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

/* ---- what the child of a hook goes on with ----------------------------------------------- */

enum { MOST = 4096 };
static tn_queue *own;
static tn_message held[MOST], packed;
static uint32_t held_count;

static void open_small_domain(void)
{
    const tn_domain_options options = {
        .struct_size = sizeof options, .blocks = 1, .seats = 8, .flags = TN_DOMAIN_NO_MANAGER};
    d = tnt_domain(&options);
    ready = tnt_signal_open();
    go = tnt_signal_open();
}

/*
 * The child takes every block for messages, so also the one that its parent packed the
 * message into.
 */
static void take_all_blocks(void)
{
    int status = 0;
    tnt_await(&go);
    while (held_count < MOST && (status = tn_queue_push(own, &packed, 0, TN_NOW)) == 0)
        TN_CHECK_OK(tn_queue_pop(own, TN_NOW, &held[held_count++]));
    TN_CHECK(status == TN_ERR_FULL);
}

static int fork_once_and_end_the_child(void *context)
{
    fork_once(context);
    if (getpid() == parent)
        return 0;
    take_all_blocks();
    return -1;
}

static void *push_and_be_interrupted_in_a_child(void *argument)
{
    int status = tn_queue_push(q, &packed, 0, tnt_deadline(LONG_MS));
    (void)argument;
    if (getpid() != parent) {
        TN_CHECK(status == TN_ERR_INTERRUPTED);
        TN_CHECK(tn_queue_push(own, &packed, 0, TN_NOW) == TN_ERR_FULL);
        while (held_count > 0)
            tn_message_fini(&held[--held_count]);
        tn_object_close(own);
        drop_all();
        tn_domain_close(d);
        _exit(0);
    }
    TN_CHECK_OK(status);
    return NULL;
}

TN_TEST(a_hooks_child_of_a_push_frees_no_block_of_its_parent)
{
    pthread_t pusher;
    int status;
    open_small_domain();
    open_full_queue();
    const tn_queue_options options = {.struct_size = sizeof options, .capacity = 1};
    TN_CHECK_OK(tn_queue_open(d, NULL, &options, 0, &own));
    TN_CHECK_OK(tn_tensor_create(d, TN_UINT8, 1, (int64_t[]){8}, NULL, &tensors[0]));
    tensors[1] = tn_tensor_ref(tensors[0]);
    packed = (tn_message){
        .bytes = "x", .size_bytes = 1, .tensors = tensors, .tensor_count = TENSORS};
    parent = getpid();
    forked = 0;
    tn_interrupt_set(fork_once_and_end_the_child, NULL);
    start(&pusher, push_and_be_interrupted_in_a_child, NULL);
    tnt_await(&ready);
    pop(0);
    pop(TENSORS);
    TN_CHECK(pthread_join(pusher, NULL) == 0);
    tn_interrupt_set(NULL, NULL);
    TN_CHECK_OK(tn_domain_trim(d, 0, NULL)); /* this process keeps no free block either */
    tnt_signal(&go);
    TN_CHECK(waitpid(forked, &status, 0) == forked);
    assert_int_equal(status, 0);
    own = tn_object_close(own);
    drop_all();
    finish();
}

static tn_barrier *barrier;

static int fork_once_and_interrupt_the_child(void *context)
{
    fork_once(context);
    return getpid() == parent ? 0 : -1;
}

static void *meet(void *argument)
{
    (void)argument;
    int status = tn_barrier_wait(barrier, tnt_deadline(LONG_MS));
    if (getpid() != parent) {
        TN_CHECK(status == TN_ERR_INTERRUPTED);
        tn_object_close(barrier);
        tn_domain_close(d);
        _exit(0);
    }
    TN_CHECK_OK(status);
    return NULL;
}

TN_TEST(a_child_whose_wait_at_a_barrier_the_hook_ends_breaks_nothing)
{
    pthread_t waiter;
    int status;
    begin(64 * MIB);
    TN_CHECK_OK(tn_barrier_open(d, NULL, 2, 0, &barrier));
    parent = getpid();
    forked = 0;
    tn_interrupt_set(fork_once_and_interrupt_the_child, NULL);
    start(&waiter, meet, NULL);
    tnt_await(&ready);
    TN_CHECK(waitpid(forked, &status, 0) == forked);
    assert_int_equal(status, 0);
    assert_int_equal(tn_barrier_wait(barrier, tnt_deadline(LONG_MS)), 1);
    TN_CHECK(pthread_join(waiter, NULL) == 0);
    tn_interrupt_set(NULL, NULL);
    barrier = tn_object_close(barrier);
    finish();
}

static void *await_any(void *argument)
{
    (void)argument;
    TN_CHECK(tn_object_wait_any(&q, 1, tnt_deadline(LONG_MS)) == 0);
    if (getpid() != parent) {
        tn_object_close(q);
        tn_domain_close(d);
        _exit(0);
    }
    return NULL;
}

static void await_watchers(uint32_t least)
{
    const struct tni_object *object = ((struct tn_object *)(void *)q)->object;
    uint64_t deadline_ns = tnt_until_ns(LONG_MS);
    while (tni_seat_set_count(&object->watchers, TNI_NO_SEAT) < least) {
        TN_CHECK(tni_os_now_ns() < deadline_ns);
        tni_os_yield();
    }
}

TN_TEST(a_hooks_child_of_a_wait_for_any_queue_is_woken)
{
    const tn_queue_options options = {.struct_size = sizeof options, .capacity = 2};
    const tn_message m = {.bytes = "x", .size_bytes = 1};
    pthread_t waiter;
    int status;
    begin(64 * MIB);
    TN_CHECK_OK(tn_queue_open(d, NULL, &options, 0, &q));
    parent = getpid();
    forked = 0;
    tn_interrupt_set(fork_once, NULL);
    start(&waiter, await_any, NULL);
    tnt_await(&ready);
    await_watchers(2);
    TN_CHECK_OK(tn_queue_push(q, &m, 0, TN_NOW));
    TN_CHECK(pthread_join(waiter, NULL) == 0);
    tn_interrupt_set(NULL, NULL);
    TN_CHECK(waitpid(forked, &status, 0) == forked);
    assert_int_equal(status, 0);
    pop(0);
    q = tn_object_close(q);
    finish();
}

static int fork_once_and_await_the_child(void *context)
{
    int status;
    if (forked != 0)
        return 0;
    fork_once(context);
    if (getpid() == parent) {
        TN_CHECK(waitpid(forked, &status, 0) == forked);
        TN_CHECK(status == 0);
    }
    return 0;
}

static void *pop_unless_forked(void *argument)
{
    tn_message m;
    int status = tn_queue_pop(q, tnt_deadline(LONG_MS), &m);
    (void)argument;
    if (getpid() != parent) {
        TN_CHECK(status == TN_ERR_FORKED);
        _exit(0);
    }
    TN_CHECK_OK(status);
    tn_message_fini(&m);
    return NULL;
}

static void *await_any_unless_forked(void *argument)
{
    int status = tn_object_wait_any(&q, 1, tnt_deadline(LONG_MS));
    (void)argument;
    if (getpid() != parent) {
        TN_CHECK(status == TN_ERR_FORKED);
        _exit(0);
    }
    TN_CHECK(status == 0);
    return NULL;
}

static void *make_unless_forked(void *argument)
{
    int64_t bytes = 2 * MIB;
    int status =
        tn_tensor_create(d, TN_UINT8, 1, &bytes,
                         TN_OPTIONS(tn_tensor_options, .deadline = tnt_deadline(LONG_MS)),
                         (tn_tensor **)argument);
    if (getpid() != parent) {
        TN_CHECK(status == TN_ERR_FORKED);
        _exit(0);
    }
    TN_CHECK_OK(status);
    return NULL;
}

static void start_and_fork(pthread_t *waiter, void *(*wait)(void *), void *argument)
{
    parent = getpid();
    forked = 0;
    tn_interrupt_set(fork_once_and_await_the_child, NULL);
    start(waiter, wait, argument);
    tnt_await(&ready);
}

static void join(pthread_t waiter)
{
    TN_CHECK(pthread_join(waiter, NULL) == 0);
    tn_interrupt_set(NULL, NULL);
}

static void open_domain_of_one_seat(void)
{
    const tn_domain_options options = {.struct_size = sizeof options,
                                       .quota_bytes = 4 * MIB,
                                       .seats = 1,
                                       .flags = TN_DOMAIN_NO_MANAGER};
    d = tnt_domain(&options);
    ready = tnt_signal_open();
    go = tnt_signal_open();
}

static void push_beside_a_child_without_a_seat(void *(*wait)(void *))
{
    const tn_queue_options options = {.struct_size = sizeof options, .capacity = 1};
    const tn_message m = {.bytes = "x", .size_bytes = 1};
    pthread_t waiter;
    open_domain_of_one_seat();
    TN_CHECK_OK(tn_queue_open(d, NULL, &options, 0, &q));
    start_and_fork(&waiter, wait, NULL);
    TN_CHECK_OK(tn_queue_push(q, &m, 0, TN_NOW));
    join(waiter);
    q = tn_object_close(q);
    finish();
}

TN_TEST(a_hooks_child_of_a_pop_without_a_seat_takes_no_message)
{
    push_beside_a_child_without_a_seat(pop_unless_forked);
}

TN_TEST(a_hooks_child_of_a_wait_for_any_queue_learns_it_has_no_seat)
{
    push_beside_a_child_without_a_seat(await_any_unless_forked);
}

TN_TEST(a_hooks_child_of_a_memory_wait_without_a_seat_takes_none)
{
    int64_t bytes = 3 * MIB;
    pthread_t waiter;
    tn_tensor *large, *made;
    open_domain_of_one_seat();
    TN_CHECK_OK(tn_tensor_create(d, TN_UINT8, 1, &bytes, NULL, &large));
    start_and_fork(&waiter, make_unless_forked, &made);
    tn_tensor_unref(large);
    join(waiter);
    tn_tensor_unref(made);
    finish();
}

/* ---- tensors that are being written ------------------------------------------------------ */

enum { MUCH = 48 * MIB }; /* as much as the shared memory of a container has room for */

static _Atomic bool is_made;

static void *make_from_bytes(void *source)
{
    int64_t bytes = MUCH;
    tn_tensor *t;
    TN_CHECK_OK(tn_tensor_create(
        d, TN_UINT8, 1, &bytes,
        TN_OPTIONS(tn_tensor_options, .source = source, .source_bytes = MUCH), &t));
    atomic_store(&is_made, true);
    return t;
}

static tn_tensor *make_private(void)
{
    int64_t bytes = MUCH;
    tn_tensor *t;
    TN_CHECK_OK(tn_tensor_create_private(TN_UINT8, 1, &bytes, &t));
    return t;
}

static void *share(void *argument)
{
    tn_tensor *t = make_private();
    (void)argument;
    TN_CHECK_OK(tn_tensor_share(d, t, NULL));
    atomic_store(&is_made, true);
    return t;
}

static void *share_view(void *tensor)
{
    tn_tensor *t;
    TN_CHECK_OK(tn_tensor_clone(d, tensor, NULL, &t));
    atomic_store(&is_made, true);
    return t;
}

/* Make zeros in memory that was used before. */
static void *make_zeros_again(void *argument)
{
    int64_t bytes = MUCH;
    tn_tensor *t;
    (void)argument;
    TN_CHECK_OK(tn_tensor_create(d, TN_UINT8, 1, &bytes, NULL, &t));
    tn_tensor_unref(t);
    TN_CHECK_OK(tn_tensor_create(d, TN_UINT8, 1, &bytes,
                                 TN_OPTIONS(tn_tensor_options, .flags = TN_TENSOR_ZEROED), &t));
    atomic_store(&is_made, true);
    return t;
}

static bool is_being_written(void)
{
    const struct tni_geometry *g = &d->segment.geometry;
    for (uint32_t c = 1; c < g->class_count; c++)
        for (uint32_t i = 0; i < atomic_load(&d->local_limit[c]); i++) {
            uint32_t local = atomic_load(&d->local[g->classes[c].base + i]);
            if (local != TNI_LOCAL_BUSY && (local & TNI_LOCAL_UNFINISHED) != 0)
                return true;
        }
    return false;
}

static bool maps_storages(pid_t pid)
{
    char path[64], line[512];
    bool is_found = false;
    snprintf(path, sizeof path, "/proc/%d/maps", pid);
    FILE *maps = fopen(path, "r");
    TN_CHECK(maps != NULL);
    while (fgets(line, sizeof line, maps) != NULL)
        is_found |= strstr(line, "tenon-storage") != NULL || strstr(line, "tenon.") != NULL;
    fclose(maps);
    return is_found;
}

/* @return 0: the tensor was complete before the fork */
static pid_t fork_while_it_is_written(void *(*make)(void *), void *argument, void **ret_tensor)
{
    pthread_t maker;
    bool is_seen = false;
    atomic_store(&is_made, false);
    start(&maker, make, argument);
    while (!is_seen && !atomic_load(&is_made))
        is_seen = is_being_written();
    pid_t child = tnt_fork(live_on, NULL);
    bool is_late = !is_seen || !is_being_written();
    tnt_await(&ready);
    TN_CHECK(pthread_join(maker, ret_tensor) == 0);
    if (!is_late)
        return child;
    tnt_kill(child);
    return 0;
}

static void check_that_a_child_has_none_of_it(void *(*make)(void *), void *argument)
{
    enum { TRIES = 200 }; /* on a busy machine, few forks come at the right moment */
    void *t;
    pid_t child = 0;
    for (int i = 0; i < TRIES && child == 0; i++) {
        TN_CHECK_OK(tn_domain_trim(d, 0, NULL));
        child = fork_while_it_is_written(make, argument, &t);
        tn_tensor_unref(t);
    }
    assert_int_not_equal(child, 0);
    assert_false(maps_storages(child));
    check_that_memory_is_free(MUCH);
    tnt_kill(child);
}

static void check_all_makers(uint32_t strategy)
{
    tn_tensor *private = make_private();
    begin(MUCH + 16 * MIB);
    TN_CHECK_OK(tn_strategy_set(strategy));
    check_that_a_child_has_none_of_it(make_from_bytes, tn_tensor_data(private));
    check_that_a_child_has_none_of_it(share_view, private);
    check_that_a_child_has_none_of_it(share, NULL);
    tn_tensor_unref(private);
    finish();
}

TN_TEST(a_child_has_nothing_of_an_arena_tensor_that_is_being_written)
{
    check_all_makers(TN_STRATEGY_ARENA);
}

TN_TEST(a_child_has_nothing_of_zeros_that_are_being_written)
{
    begin(MUCH + 16 * MIB);
    check_that_a_child_has_none_of_it(make_zeros_again, NULL);
    finish();
}

TN_TEST(a_child_has_nothing_of_a_memory_object_that_is_being_written)
{
    check_all_makers(TN_STRATEGY_FILE_DESCRIPTOR);
}

TN_TEST(a_child_has_nothing_of_a_file_that_is_being_written)
{
    check_all_makers(TN_STRATEGY_FILE_SYSTEM);
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
    TN_CHECK_OK(tn_queue_open(d, NULL, &options, 0, &q));
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
