/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: wait words between threads. Nothing but a timeout would end a lost wake-up. */
#include "harness/harness.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "os/os.h"
#include "wait/wait.h"

#define SECOND_NS UINT64_C(1000000000)

enum { SIDES = 2, ITEMS = 1000000, ROOM = 8 };

/* A counter from 0 to ROOM, and a wait word for each end. */
static _Atomic uint32_t filled;
static _Alignas(64) _Atomic uint32_t items;
static _Alignas(64) _Atomic uint32_t room;
static _Atomic uint32_t lost;

static bool put(void)
{
    uint32_t seen = atomic_load(&filled);
    while (seen < ROOM)
        if (atomic_compare_exchange_weak(&filled, &seen, seen + 1))
            return true;
    return false;
}

static bool take(void)
{
    uint32_t seen = atomic_load(&filled);
    while (seen > 0)
        if (atomic_compare_exchange_weak(&filled, &seen, seen - 1))
            return true;
    return false;
}

static void wait_for(_Atomic uint32_t *word, bool (*attempt)(void))
{
    while (!attempt()) {
        uint32_t seen = tni_wait_arm(word);
        if (attempt())
            return;
        int status = tni_os_wait(word, seen, tni_os_now_ns() + 2 * SECOND_NS);
        /* A lost wake-up: the condition is true, but no thread woke this one for 2 s. */
        if (status == TN_ERR_TIMED_OUT && attempt()) {
            atomic_fetch_add(&lost, 1);
            return;
        }
    }
}

static void *produce(void *argument)
{
    for (int n = 0; n < ITEMS && atomic_load(&lost) == 0; n++) {
        wait_for(&room, put);
        tni_wait_notify(&items, 1);
    }
    return argument;
}

static void *consume(void *argument)
{
    for (int n = 0; n < ITEMS && atomic_load(&lost) == 0; n++) {
        wait_for(&items, take);
        tni_wait_notify(&room, 1);
    }
    return argument;
}

TN_TEST_WITHIN(no_wake_is_lost_when_two_sleep_on_one_word, 60)
{
    pthread_t threads[2 * SIDES];
    for (int i = 0; i < 2 * SIDES; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, i < SIDES ? produce : consume, NULL),
                         0);
    for (int i = 0; i < 2 * SIDES; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(atomic_load(&lost), 0);
}

/* ---- one wake-up at a time --------------------------------------------------------------- */

static _Atomic uint32_t word;
static _Atomic uint32_t
    woken; /* threads that were woken up and have not called tni_wait_awake() */
static _Atomic uint32_t may_go;

/* As a sleeper at a queue, which waits for `may_go` before tni_wait_awake(). */
static void *sleep_until_may_go(void *argument)
{
    uint32_t seen = tni_wait_arm(&word);
    atomic_store((_Atomic pid_t *)argument, gettid());
    while (tni_os_wait(&word, seen, TNI_FOREVER) == 0 && atomic_load(&word) == seen)
        ;
    atomic_fetch_add(&woken, 1);
    while (atomic_load(&may_go) == 0)
        tni_os_yield();
    tni_wait_awake(&word);
    return NULL;
}

static void await_asleep(_Atomic pid_t *thread)
{
    char path[64], line[256], state = 0;
    while (atomic_load(thread) == 0)
        tni_os_yield();
    while (state != 'S') {
        tni_os_yield();
        snprintf(path, sizeof path, "/proc/self/task/%d/stat", (int)atomic_load(thread));
        FILE *file = fopen(path, "re");
        TN_CHECK(file != NULL && fgets(line, sizeof line, file) != NULL);
        fclose(file);
        const char *at = strstr(line, ") ");
        state = at != NULL ? at[2] : 0;
    }
}

TN_TEST(no_second_sleeper_is_woken_before_the_first_has_checked)
{
    pthread_t threads[2];
    _Atomic pid_t ids[2] = {0, 0};
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, sleep_until_may_go, &ids[i]), 0);
    for (int i = 0; i < 2; i++)
        await_asleep(&ids[i]);
    uint32_t before = atomic_load(&word);
    for (int i = 0; i < 3; i++)
        tni_wait_call(&word);
    assert_int_equal(atomic_load(&word), before + TNI_WAIT_EPOCH + TNI_WAIT_LOOKING);
    while (atomic_load(&woken) == 0)
        tni_os_yield();
    atomic_store(&may_go, 1);
    while ((atomic_load(&word) & TNI_WAIT_LOOKING) != 0)
        tni_os_yield();
    /* Both threads slept on the same value: the other one still sleeps. */
    assert_int_equal(atomic_load(&woken), 1);
    tni_wait_call(&word);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
}

TN_TEST(a_call_that_finds_no_sleeper_clears_looking_and_armed)
{
    atomic_store(&word, 0);
    tni_wait_arm(&word);
    tni_wait_call(&word);
    assert_int_equal(atomic_load(&word) % TNI_WAIT_EPOCH, 0);
}

/* ---- a lock between threads -------------------------------------------------------------- */

enum { LOCKERS = 4, TURNS = 20000 };

static struct tni_mutex mutex;
static uint32_t turns; /* not atomic: the mutex orders the writes */

static void *take_turns(void *argument)
{
    for (int i = 0; i < TURNS; i++) {
        tni_mutex_lock(&mutex);
        turns++;
        if (i % 64 == 0)
            tni_os_yield(); /* so that other threads have to sleep */
        tni_mutex_unlock(&mutex);
    }
    return argument;
}

TN_TEST(a_mutex_excludes_threads_and_wakes_every_sleeper)
{
    pthread_t threads[LOCKERS];
    for (int i = 0; i < LOCKERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, take_turns, NULL), 0);
    for (int i = 0; i < LOCKERS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(turns, LOCKERS * TURNS);
    assert_int_equal(atomic_load(&mutex.state), 0);
}
