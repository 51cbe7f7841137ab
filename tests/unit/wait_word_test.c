/* SPDX-License-Identifier: Apache-2.0 */
/* Wait words between threads that nobody helps out of a wake that was lost. */
#include "harness/harness.h"

#include <pthread.h>

#include "os/os.h"
#include "sync/sync.h"

#define SECOND_NS UINT64_C(1000000000)

enum { SIDES = 2, ITEMS = 1000000, ROOM = 8 };

/* A counter with room for so many, and a wait word for each end. */
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
        /* Two seconds of silence, and there is something to be had. */
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

/* ---- a lock between threads -------------------------------------------------------------- */

enum { LOCKERS = 4, TURNS = 20000 };

static struct tni_mutex mutex;
static uint32_t turns; /* plain: the lock is what orders it */

static void *take_turns(void *argument)
{
    for (int i = 0; i < TURNS; i++) {
        tni_mutex_lock(&mutex);
        turns++;
        if (i % 64 == 0)
            tni_os_yield(); /* so that others come to sleep */
        tni_mutex_unlock(&mutex);
    }
    return argument;
}

TN_TEST(one_thread_at_a_time_has_a_mutex_and_every_sleeper_is_woken)
{
    pthread_t threads[LOCKERS];
    for (int i = 0; i < LOCKERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, take_turns, NULL), 0);
    for (int i = 0; i < LOCKERS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(turns, LOCKERS * TURNS);
    assert_int_equal(atomic_load(&mutex.state), 0);
}
