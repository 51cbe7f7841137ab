/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: one process makes a value while others wait, and changes of a store end waits. */
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "harness/harness.h"
#include "object/object.h"
#include "process/store_world.h"

/* A process that rings tenond keeps a socket: made before a test counts its descriptors. */
__attribute__((constructor)) static void ring_once(void) { tni_os_bell_ring(1); }

/* ---- get or make ------------------------------------------------------------------------- */

static int make_or_get(const char *key)
{
    tn_message m;
    int status = tn_store_get_or_make(store, key, tn_deadline_after(20 * TN_SECOND), &m);
    if (status == 0)
        tn_message_fini(&m);
    return status;
}

TN_TEST(a_key_without_a_value_is_made_by_the_one_who_asks)
{
    begin(NULL);
    assert_int_equal(make_or_get("a"), TN_STORE_MAKE);
    expect_none("a");
    put("a", 4);
    assert_int_equal(make_or_get("a"), 0);
    expect_number("a", 4);
    finish();
}

/* What processes that ask for one key have done. */
struct crowd {
    _Atomic int makers, getters;
    struct tnt_signal begun, go;
};

static struct crowd *open_crowd(void)
{
    struct crowd *c =
        mmap(NULL, sizeof *c, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    TN_CHECK(c != MAP_FAILED);
    c->begun = tnt_signal_open();
    c->go = tnt_signal_open();
    return c;
}

static void close_crowd(struct crowd *c)
{
    tnt_signal_close(&c->begun);
    tnt_signal_close(&c->go);
    munmap(c, sizeof *c);
}

static int ask(void *argument)
{
    struct crowd *c = argument;
    int status = make_or_get("a");
    if (status == TN_STORE_MAKE) {
        atomic_fetch_add(&c->makers, 1);
        tnt_signal(&c->begun);
        tnt_await(&c->go);
        put("a", 11);
    } else {
        TN_CHECK_OK(status);
        atomic_fetch_add(&c->getters, 1);
    }
    return 0;
}

static void await_sleepers(void)
{
    const _Atomic uint32_t *items = &((const struct tn_object *)store)->object->items;
    while ((atomic_load(items) & TNI_WAIT_ARMED) == 0)
        sched_yield();
}

TN_TEST(one_of_many_makes_the_value_and_the_others_get_it)
{
    enum { PROCESSES = 8 };
    pid_t pids[PROCESSES];
    begin(NULL);
    struct crowd *c = open_crowd();
    for (int i = 0; i < PROCESSES; i++)
        pids[i] = tnt_fork(ask, c);
    tnt_await(&c->begun);
    await_sleepers();
    assert_int_equal(atomic_load(&c->getters), 0);
    tnt_signal(&c->go);
    for (int i = 0; i < PROCESSES; i++)
        tnt_wait_ok(pids[i]);
    assert_int_equal(atomic_load(&c->makers), 1);
    assert_int_equal(atomic_load(&c->getters), PROCESSES - 1);
    close_crowd(c);
    finish();
}

static int make_and_die(void *argument)
{
    struct crowd *c = argument;
    TN_CHECK(make_or_get("a") == TN_STORE_MAKE);
    tnt_signal(&c->begun);
    tnt_await(&c->go);
    raise(SIGKILL);
    return 0;
}

static int ask_and_make(void *argument)
{
    (void)argument;
    TN_CHECK(make_or_get("a") == TN_STORE_MAKE);
    put("a", 12);
    return 0;
}

TN_TEST(another_process_makes_the_value_when_the_maker_is_killed)
{
    begin(NULL);
    struct crowd *c = open_crowd();
    pid_t maker = tnt_fork(make_and_die, c);
    tnt_await(&c->begun);
    pid_t waiter = tnt_fork(ask_and_make, NULL);
    await_sleepers();
    tnt_signal(&c->go);
    assert_int_equal(tnt_wait(maker), SIGKILL);
    tnt_wait_ok(waiter);
    expect_number("a", 12);
    close_crowd(c);
    finish();
}

static int make_and_close(void *argument)
{
    struct crowd *c = argument;
    TN_CHECK(make_or_get("a") == TN_STORE_MAKE);
    tnt_signal(&c->begun);
    tnt_await(&c->go);
    store = tn_object_close(store);
    tnt_signal(&c->begun);
    tnt_await(&c->go);
    return 0;
}

TN_TEST(another_process_makes_the_value_when_the_maker_closes)
{
    begin(NULL);
    struct crowd *c = open_crowd();
    pid_t maker = tnt_fork(make_and_close, c);
    tnt_await(&c->begun);
    pid_t waiter = tnt_fork(ask_and_make, NULL);
    await_sleepers();
    tnt_signal(&c->go);
    tnt_await(&c->begun); /* the maker lives on */
    tnt_wait_ok(waiter);
    tnt_signal(&c->go);
    tnt_wait_ok(maker);
    close_crowd(c);
    finish();
}

TN_TEST(another_process_makes_the_value_when_the_maker_gives_up)
{
    begin(NULL);
    assert_int_equal(make_or_get("a"), TN_STORE_MAKE);
    pid_t waiter = tnt_fork(ask_and_make, NULL);
    await_sleepers();
    TN_CHECK_OK(tn_store_give_up(store, "a"));
    tnt_wait_ok(waiter);
    assert_int_equal(tn_store_give_up(store, "a"), TN_ERR_NOT_FOUND);
    finish();
}

static int expect_busy(void *argument)
{
    tn_message m;
    (void)argument;
    TN_CHECK(tn_store_get_or_make(store, "a", TN_NOW, &m) == TN_ERR_TIMED_OUT);
    TN_CHECK(tn_store_give_up(store, "a") == TN_ERR_NOT_FOUND); /* the parent's */
    return 0;
}

TN_TEST(a_promise_is_not_a_value_and_not_the_childs)
{
    begin(NULL);
    assert_int_equal(make_or_get("a"), TN_STORE_MAKE);
    tnt_wait_ok(tnt_fork(expect_busy, NULL));
    assert_int_equal(tn_store_delete(store, "a", 0), TN_ERR_NOT_FOUND);
    put("a", 1);
    assert_int_equal(make_or_get("a"), 0);
    finish();
}

static void *ask_in_thread(void *argument)
{
    ask(argument);
    return NULL;
}

TN_TEST(one_of_many_threads_makes_the_value)
{
    enum { THREADS = 4 };
    pthread_t threads[THREADS];
    begin(NULL);
    struct crowd *c = open_crowd();
    for (int i = 0; i < THREADS; i++)
        TN_CHECK(pthread_create(&threads[i], NULL, ask_in_thread, c) == 0);
    tnt_await(&c->begun);
    await_sleepers();
    tnt_signal(&c->go);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(atomic_load(&c->makers), 1);
    assert_int_equal(atomic_load(&c->getters), THREADS - 1);
    close_crowd(c);
    finish();
}

TN_TEST(a_value_whose_lifetime_is_over_is_made_again)
{
    begin(NULL);
    TN_CHECK_OK(try_put("a", 1, TN_OPTIONS(tn_store_put_options, .lifetime_ns = 1)));
    assert_int_equal(make_or_get("a"), TN_STORE_MAKE);
    put("a", 2);
    assert_int_equal(make_or_get("a"), 0);
    finish();
}

/* ---- changes ----------------------------------------------------------------------------- */

static int await_change(void *argument)
{
    uint64_t version;
    TN_CHECK_OK(tn_store_wait(store, argument, 1, tn_deadline_after(20 * TN_SECOND), &version));
    TN_CHECK(version >= 2);
    return 0;
}

TN_TEST(a_put_ends_a_wait_for_its_prefix)
{
    begin(NULL);
    put("x", 1);
    pid_t waiter = tnt_fork(await_change, (void *)(uintptr_t) "model/");
    await_sleepers();
    put("model/a", 2);
    tnt_wait_ok(waiter);
    finish();
}

TN_TEST(a_delete_ends_a_wait_for_its_key)
{
    begin(NULL);
    put("x", 1);
    pid_t waiter = tnt_fork(await_change, (void *)(uintptr_t) "x");
    await_sleepers();
    TN_CHECK_OK(tn_store_delete(store, "x", 0));
    tnt_wait_ok(waiter);
    finish();
}

TN_TEST(changes_of_other_keys_end_no_wait)
{
    uint64_t version = 0;
    begin(NULL);
    put("x", 1);
    put("y", 1);
    assert_int_equal(tn_store_wait(store, "model/", 0, TN_NOW, &version), TN_ERR_TIMED_OUT);
    assert_int_equal(version, 0);
    TN_CHECK_OK(tn_store_wait(store, "", 0, TN_NOW, &version));
    assert_int_equal(version, 2);
    assert_int_equal(tn_store_wait(store, "", 2, TN_NOW, &version), TN_ERR_TIMED_OUT);
    assert_int_equal(tn_store_wait(store, "", 3, TN_NOW, &version), TN_ERR_INVALID);
    finish();
}

TN_TEST(a_change_that_is_long_past_ends_a_wait)
{
    char key[16];
    uint64_t version;
    begin(NULL);
    put("model/a", 1);
    for (uint64_t i = 0; i < 300; i++)
        put(name_of(key, i), i);
    TN_CHECK_OK(tn_store_wait(store, "model/", 0, TN_NOW, &version));
    assert_int_equal(version, 301);
    assert_int_equal(tn_store_wait(store, "model/", version, TN_NOW, &version),
                     TN_ERR_TIMED_OUT);
    finish();
}

/* ---- lifetimes --------------------------------------------------------------------------- */

TN_TEST(a_reap_removes_values_whose_lifetime_is_over)
{
    begin(NULL);
    const tn_store_put_options soon = {.struct_size = sizeof soon, .lifetime_ns = 1};
    TN_CHECK_OK(try_put("a", 1, &soon));
    TN_CHECK_OK(try_put("b", 1, &soon));
    put("c", 1);
    TN_CHECK_OK(tn_domain_reap(d, NULL));
    assert_int_equal(info().count, 1);
    assert_int_equal(info().expirations, 2);
    finish();
}

TN_TEST(tenond_removes_values_whose_lifetime_is_over)
{
    tn_domain_options domain = {.struct_size = sizeof domain, .quota_bytes = 64 << 20};
    d = tnt_domain(&domain);
    TN_CHECK_OK(tn_store_open(d, "store", NULL, TN_OPEN_NEW, &store));
    uint64_t version = 0;
    TN_CHECK_OK(try_put("a", 1, TN_OPTIONS(tn_store_put_options, .lifetime_ns = 1000 * 1000)));
    TN_CHECK_OK(tn_store_wait(store, "a", 1, tn_deadline_after(20 * TN_SECOND), &version));
    assert_int_equal(info().count, 0);
    finish();
}
