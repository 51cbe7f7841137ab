/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wait: wait words and recoverable claims, through which processes synchronize; and a mutex for
 * the threads of one process.
 *
 * A wait word is {epoch:29, looking:1, pollers:1, armed:1}. A waiter arms the word, checks its
 * condition once more, and sleeps while the word has the value that it had when it was armed. A
 * waker makes the condition true, then notifies, which is a system call only if the word is
 * armed. `armed` stays set until a wake-up finds no sleeper. The word counts no sleepers, since
 * a death would make a count wrong; the kernel forgets a sleeper that dies. If a process dies
 * after it consumed a wake-up, the reaper wakes up the other sleepers. Every sleep is cut into
 * slices.
 *
 * `looking` means: a process that is awake, or that was woken up, checks the condition on
 * behalf of all sleepers, and notifies the next sleeper if something is left. Until then no
 * other sleeper is woken up. Only queues set `looking`, and only while the word is armed: the
 * process that checks sets it, or a waker sets it on behalf of the sleeper that it wakes up. If
 * the process that checks dies, the reaper clears `looking` and wakes up all sleepers. If that
 * process is stopped, another sleeper clears `looking` at the end of its slice.
 *
 * `pollers` means: some process has a pollable descriptor for the object.
 *
 * A claim is a 64-bit word that is 0 or names its owner, so that the death of the owner can be
 * noticed.
 */
#ifndef TNI_WAIT_H
#define TNI_WAIT_H

#include "layout/layout.h"

enum { TNI_WAIT_ARMED = 1, TNI_WAIT_POLLERS = 2, TNI_WAIT_LOOKING = 4, TNI_WAIT_EPOCH = 8 };

/*
 * A full fence between a read-modify-write and a later load of another word. On x86 the locked
 * instruction of the read-modify-write is that fence. C11 and other machines need a fence.
 */
static inline void tni_fence_after_modify(void)
{
#if !defined(__x86_64__)
    atomic_thread_fence(memory_order_seq_cst);
#endif
}

/** Arm the word. @return the value to sleep on, once the condition was checked again */
static inline uint32_t tni_wait_arm(_Atomic uint32_t *word)
{
    uint32_t seen = atomic_fetch_or(word, TNI_WAIT_ARMED) | TNI_WAIT_ARMED;
    tni_fence_after_modify();
    return seen;
}

int tni_wait_notify_slow(_Atomic uint32_t *word, uint32_t count);
void tni_wait_call_slow(_Atomic uint32_t *word);

/**
 * Wake up at most `count` sleepers, if there are any.
 * pre: a sequentially consistent read-modify-write has made the condition true, or follows that
 * change. It pairs with the one in tni_wait_arm(): either this call sees `armed`, or the waiter
 * sees the change.
 * @return whether `pollers` is set
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
 * Notify one sleeper, as tni_wait_notify() does, for the words of a queue. The call sets
 * `looking` on behalf of the sleeper, so further calls wake up no one until the sleeper has
 * checked the queue. The sleeper itself calls this function if something is left.
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
 * Clear `looking` after a sleep, however the sleep ended, since a waker may have set `looking`
 * on this thread's behalf. The thread then checks its condition, and calls tni_wait_call() if
 * something is left.
 */
static inline void tni_wait_awake(_Atomic uint32_t *word)
{
    /* Clear the bit without testing it first: a wake-up is no fence, so a load may be stale. */
    atomic_fetch_and(word, ~(uint32_t)TNI_WAIT_LOOKING);
    tni_fence_after_modify();
}

/** Change the word and wake up every sleeper, whether the word is armed or not. */
void tni_wait_notify_all(_Atomic uint32_t *word);

/*
 * A mutex for the threads of one process, in private memory, whose waiters sleep. A fork
 * handler locks each mutex that must be free in a child, and unlocks it in parent and child.
 */
struct tni_mutex {
    _Atomic uint32_t state; /* 0 free, 1 locked, 2 locked and a thread may sleep on it */
};
void tni_mutex_lock_slow(struct tni_mutex *mutex);
void tni_mutex_unlock_slow(struct tni_mutex *mutex);

static inline void tni_mutex_lock(struct tni_mutex *mutex)
{
    uint32_t free = 0;
    /* This acquire pairs with the release in tni_mutex_unlock(). */
    if (TNI_UNLIKELY(!atomic_compare_exchange_strong_explicit(
            &mutex->state, &free, 1, memory_order_acquire, memory_order_relaxed)))
        tni_mutex_lock_slow(mutex);
}
static inline void tni_mutex_unlock(struct tni_mutex *mutex)
{
    if (TNI_UNLIKELY(atomic_exchange_explicit(&mutex->state, 0, memory_order_release) == 2))
        tni_mutex_unlock_slow(mutex);
}
/** In a forked child: free a mutex that a thread of the parent had locked. */
static inline void tni_mutex_reset(struct tni_mutex *mutex)
{
    atomic_store_explicit(&mutex->state, 0, memory_order_relaxed);
}

/** Take the claim for `who` if it has no owner. @return whether `who` owns it now */
static inline bool tni_claim_try(_Atomic uint64_t *claim, uint64_t who)
{
    uint64_t free = 0;
    return atomic_compare_exchange_strong_explicit(claim, &free, who, memory_order_acq_rel,
                                                   memory_order_relaxed);
}
/**
 * Release the claim if `who` owns it. The owner calls this, or the reaper for a dead owner. The
 * CAS is sequentially consistent, as tni_wait_notify() requires.
 */
static inline void tni_claim_release(_Atomic uint64_t *claim, uint64_t who)
{
    atomic_compare_exchange_strong(claim, &who, 0);
}

#endif
