/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wait: wait words and recoverable claims, two words that processes meet at; and a lock between
 * the threads of one process.
 *
 * A wait word is {epoch:29, looking:1, pollers:1, armed:1}. A waiter arms it, looks once more
 * at what it waits for, and sleeps while the word is as it was when armed. A waker changes what
 * is waited for, then notifies: no system call unless the word is armed. `armed` stays until a
 * wake finds nobody, so no count of sleepers exists that a death could falsify; a sleeper that
 * dies is forgotten by the kernel. A wake that was spent on a process that then died is made
 * good by the reaper, and by the slices in which everybody sleeps.
 *
 * `looking`: somebody who is awake, or was woken, looks for what the sleepers wait for, and
 * will pass on what it leaves; a call wakes nobody meanwhile. Set only while armed, by queues:
 * by who looks, and by who wakes a sleeper, on its behalf. If either dies, the reaper takes it
 * back and wakes all; if who looks is stopped, the others' next slices take it back.
 *
 * A claim is a 64-bit word that is 0 or names its owner, so that a dead owner can be found.
 */
#ifndef TNI_WAIT_H
#define TNI_WAIT_H

#include "layout/layout.h"

enum { TNI_WAIT_ARMED = 1, TNI_WAIT_POLLERS = 2, TNI_WAIT_LOOKING = 4, TNI_WAIT_EPOCH = 8 };

/*
 * Between a read-modify-write and a look at something else. For x86 a locked instruction is the
 * fence that this takes; for C11, and other machines, it orders nothing but its own place.
 */
static inline void tni_fence_after_modify(void)
{
#if !defined(__x86_64__)
    atomic_thread_fence(memory_order_seq_cst);
#endif
}

/** Announce a sleeper. @return the value to sleep on, after one more look */
static inline uint32_t tni_wait_arm(_Atomic uint32_t *word)
{
    uint32_t seen = atomic_fetch_or(word, TNI_WAIT_ARMED) | TNI_WAIT_ARMED;
    tni_fence_after_modify();
    return seen;
}

int tni_wait_notify_slow(_Atomic uint32_t *word, uint32_t count);
void tni_wait_call_slow(_Atomic uint32_t *word);

/**
 * Wake up to `count` sleepers, if there are any.
 * pre: a sequentially consistent read-modify-write lies between the change and this call; it
 * pairs with the one in tni_wait_arm(): either we see `armed`, or the waiter sees the change.
 * @return whether pollers are registered
 */
static inline bool tni_wait_notify(_Atomic uint32_t *word, uint32_t count)
{
    tni_fence_after_modify();
    uint32_t seen = atomic_load_explicit(word, memory_order_seq_cst);
    if (TNI_UNLIKELY((seen & (TNI_WAIT_ARMED | TNI_WAIT_LOOKING)) == TNI_WAIT_ARMED))
        tni_wait_notify_slow(word, count);
    return (seen & TNI_WAIT_POLLERS) != 0;
}

/**
 * As tni_wait_notify() of one, for a queue's words: while the sleeper that was woken is on its
 * way, it counts as one that looks, so the next call wakes nobody. It calls the next one itself
 * if something is left.
 */
static inline bool tni_wait_call(_Atomic uint32_t *word)
{
    tni_fence_after_modify();
    uint32_t seen = atomic_load_explicit(word, memory_order_seq_cst);
    if (TNI_UNLIKELY((seen & (TNI_WAIT_ARMED | TNI_WAIT_LOOKING)) == TNI_WAIT_ARMED))
        tni_wait_call_slow(word);
    return (seen & TNI_WAIT_POLLERS) != 0;
}

/**
 * After a sleep, however it ended: we may be the one that was called. Whoever is called next
 * must not rely on us, so a look has to follow, and a call if something is left.
 */
static inline void tni_wait_awake(_Atomic uint32_t *word)
{
    /* Not only if a load shows it: the wake-up itself orders nothing. */
    atomic_fetch_and(word, ~(uint32_t)TNI_WAIT_LOOKING);
    tni_fence_after_modify();
}

/** Wake every sleeper and change the word, whether armed or not. */
void tni_wait_notify_all(_Atomic uint32_t *word);

/*
 * A lock between the threads of one process, in private memory, whose waiters sleep. A fork
 * handler takes those that a child must find free, and frees them on both sides.
 */
struct tni_mutex {
    _Atomic uint32_t state; /* 0 free, 1 taken, 2 taken and somebody may sleep */
};
void tni_mutex_lock_slow(struct tni_mutex *mutex);
void tni_mutex_unlock_slow(struct tni_mutex *mutex);

static inline void tni_mutex_lock(struct tni_mutex *mutex)
{
    uint32_t free = 0;
    /* pairs with the release in tni_mutex_unlock() */
    if (TNI_UNLIKELY(!atomic_compare_exchange_strong_explicit(
            &mutex->state, &free, 1, memory_order_acquire, memory_order_relaxed)))
        tni_mutex_lock_slow(mutex);
}
static inline void tni_mutex_unlock(struct tni_mutex *mutex)
{
    if (TNI_UNLIKELY(atomic_exchange_explicit(&mutex->state, 0, memory_order_release) == 2))
        tni_mutex_unlock_slow(mutex);
}
/** In a forked child: what its parent had taken is free, and nobody sleeps. */
static inline void tni_mutex_reset(struct tni_mutex *mutex)
{
    atomic_store_explicit(&mutex->state, 0, memory_order_relaxed);
}

/** @return whether the claim is ours now */
static inline bool tni_claim_try(_Atomic uint64_t *claim, uint64_t who)
{
    uint64_t free = 0;
    return atomic_compare_exchange_strong_explicit(claim, &free, who, memory_order_acq_rel,
                                                   memory_order_relaxed);
}
/**
 * Only the owner, or the reaper for a dead one: nothing happens if it is another's.
 * Sequentially consistent: a tni_wait_notify() may follow at once.
 */
static inline void tni_claim_release(_Atomic uint64_t *claim, uint64_t who)
{
    atomic_compare_exchange_strong(claim, &who, 0);
}

#endif
