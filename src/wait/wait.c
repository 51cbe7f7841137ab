/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wait: see wait.h.
 *
 * Nouns: wait word, mutex.
 * I1  A waiter that armed the word, and then found its condition false, is woken up by every
 *     later notify, or finds the word changed.
 * I2  A waker clears `armed` only after a wake-up that found no sleeper, and by a CAS that
 *     expects the value that the word had before that wake-up. A waiter that armed the word but
 *     did not sleep yet sees the word change. A waiter that fell asleep between the wake-up and
 *     the CAS is woken up by a second wake-up, which wakes up all sleepers.
 * Callers: every room that waits. A death can leave `armed` set, which costs one system call,
 * or `looking`, which wait.h explains.
 */
#include "wait/wait.h"

#include "os/os.h"

int tni_wait_notify_slow(_Atomic uint32_t *word, uint32_t count)
{
    uint32_t value = atomic_fetch_add(word, TNI_WAIT_EPOCH) + TNI_WAIT_EPOCH;
    int woken = tni_os_wake(word, count);
    if (woken == 0 &&
        atomic_compare_exchange_strong(word, &value, value & ~(uint32_t)TNI_WAIT_ARMED))
        woken = tni_os_wake(word, INT32_MAX); /* for waiters that fell asleep meanwhile: I2 */
    return woken;
}

/*
 * No thread was asleep, so no sleeper will clear `looking`: clear `looking` and `armed`. A
 * process that relied on `looking`, or that armed the word meanwhile, finds the word changed or
 * is woken up.
 */
static void take_back(_Atomic uint32_t *word, uint32_t value)
{
    uint32_t cleared;
    bool is_unchanged = true;
    do {
        cleared = value & ~(uint32_t)(TNI_WAIT_ARMED | TNI_WAIT_LOOKING);
        if (!is_unchanged)
            cleared +=
                TNI_WAIT_EPOCH; /* a waiter that armed the word meanwhile must not sleep */
        is_unchanged = false;
    } while (!atomic_compare_exchange_weak(word, &value, cleared));
    tni_os_wake(word, INT32_MAX); /* for waiters that fell asleep meanwhile: I2 */
}

__attribute__((noinline)) void tni_wait_call_slow(_Atomic uint32_t *word)
{
    uint32_t seen = atomic_load(word), called;
    do {
        if ((seen & (TNI_WAIT_ARMED | TNI_WAIT_LOOKING)) != TNI_WAIT_ARMED)
            return;
        called = (seen | TNI_WAIT_LOOKING) + TNI_WAIT_EPOCH;
    } while (!atomic_compare_exchange_weak(word, &seen, called));
    TNI_KILL_POINT("wait_called");
    if (tni_os_wake(word, 1) == 0)
        take_back(word, called);
}

void tni_wait_notify_all(_Atomic uint32_t *word)
{
    atomic_fetch_add(word, TNI_WAIT_EPOCH);
    tni_os_wake(word, INT32_MAX);
}

void tni_mutex_lock_slow(struct tni_mutex *mutex)
{
    while (atomic_exchange_explicit(&mutex->state, 2, memory_order_acquire) != 0)
        tni_os_wait(&mutex->state, 2, TNI_FOREVER);
}

void tni_mutex_unlock_slow(struct tni_mutex *mutex) { tni_os_wake(&mutex->state, 1); }
