/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sync: see sync.h.
 *
 * I1  A waiter that armed the word after its last look is woken, or finds the word changed, by
 *     every later notify.
 * I2  `armed` is cleared only by a CAS on the value whose wake found nobody. A waiter that
 *     armed before and had not yet slept sees the word change; one that fell asleep between
 *     that wake and the CAS is woken by a second wake, of everybody, and arms again.
 * Callers: every room that waits. Death: leaves `armed` set at worst, which costs one wake.
 */
#include "wait/wait.h"

#include "os/os.h"

int tni_wait_notify_slow(_Atomic uint32_t *word, uint32_t count)
{
    uint32_t value = atomic_fetch_add(word, TNI_WAIT_EPOCH) + TNI_WAIT_EPOCH;
    int woken = tni_os_wake(word, count);
    if (woken == 0 &&
        atomic_compare_exchange_strong(word, &value, value & ~(uint32_t)TNI_WAIT_ARMED))
        woken = tni_os_wake(word, INT32_MAX); /* I2 */
    return woken;
}

/*
 * Nobody was asleep, so nobody is on its way: take back what we said. Who relied on it, or
 * armed meanwhile, looks again.
 */
static void take_back(_Atomic uint32_t *word, uint32_t value)
{
    uint32_t none;
    bool is_ours = true;
    do {
        none = value & ~(uint32_t)(TNI_WAIT_ARMED | TNI_WAIT_LOOKING);
        if (!is_ours)
            none += TNI_WAIT_EPOCH; /* who armed after our call must not sleep on this value */
        is_ours = false;
    } while (!atomic_compare_exchange_weak(word, &value, none));
    tni_os_wake(word, INT32_MAX); /* I2 */
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
