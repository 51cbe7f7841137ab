/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TENON_SYNC_H
#define TENON_SYNC_H

#include <tenon/object.h>

TN_BEGIN_DECLS

/*
 * Events, semaphores, locks, conditions and barriers between the processes of a domain.
 *
 * Each is a tn_object: opened as a queue is, by a function of its kind, with the same flags and
 * errors (tn_queue_open()), and closed with tn_object_close(). A flag of the kind, and a number
 * that is not zero, must be those of an object that exists.
 *
 * All calls that wait take a deadline. They end with TN_ERR_PEER_DIED where a death means that
 * no process is left that could end the wait, and never hang because a process was killed. They
 * end with TN_ERR_INTERRUPTED as tn_interrupt_set() says. Each call also returns
 *     TN_ERR_INVALID  the object is NULL or of another kind
 *     TN_ERR_CLOSED, TN_ERR_FORKED  this process has left the domain, or has no seat in it
 *     TN_ERR_STALE    damage to shared memory has ended the object
 *     TN_ERR_CORRUPT  the object's word in shared memory makes no sense
 *
 * Threads: any number at once may use one object.   Fork: a child may use its parent's.
 */
typedef tn_object tn_event;
typedef tn_object tn_semaphore;
typedef tn_object tn_lock;
typedef tn_object tn_condition;
typedef tn_object tn_barrier;

/*
 * Flags of a kind are macros: C++20 warns of a bitwise or of two enumerations, and these go
 * with TN_OPEN_*.
 */

/** One waiter passes for each set. */
#define TN_EVENT_AUTO_RESET (1u << 8)
/**
 * Open an event, made unset. Waiters pass while it is set.
 * @param flags  TN_OPEN_*, TN_EVENT_*
 */
TN_API TN_NODISCARD int tn_event_open(tn_domain *domain, const char *name, uint32_t flags,
                                      tn_event **ret_event);
/** Set the event: every waiter passes, or one with TN_EVENT_AUTO_RESET. */
TN_API TN_NODISCARD int tn_event_set(tn_event *event);
/** Unset the event: waits that begin from now on wait for the next tn_event_set(). */
TN_API TN_NODISCARD int tn_event_clear(tn_event *event);
/** Tell whether the event is set now. False for NULL, and for an object of another kind. */
TN_API bool tn_event_is_set(const tn_event *event);
/**
 * Wait until the event is set.
 * @return 0, TN_ERR_TIMED_OUT, or TN_ERR_PEER_DIED: it is not set, a process that had it open
 *         died, and no other process has it open
 */
TN_API TN_NODISCARD int tn_event_wait(tn_event *event, tn_deadline deadline);

/** Permits belong to the process that acquired them: those of a dead process come back. */
#define TN_SEMAPHORE_OWNED (1u << 8)
/** With OWNED: a process without a permit may release one that another process holds. */
#define TN_SEMAPHORE_ANY_RELEASES (1u << 9)
/**
 * Open a semaphore, made with `permits` permits. An owned semaphore gets the permits of a dead
 * process back, and refuses a release by a process that holds none (with ANY_RELEASES: while no
 * process holds one). Any process may release a semaphore that is not owned, up to 2^31 - 1
 * permits, as a signal.
 * @param flags  TN_OPEN_*, TN_SEMAPHORE_*
 */
TN_API TN_NODISCARD int tn_semaphore_open(tn_domain *domain, const char *name, uint32_t permits,
                                          uint32_t flags, tn_semaphore **ret_semaphore);
/**
 * Acquire a permit, waiting until one is free.
 * @return 0, TN_ERR_TIMED_OUT, or TN_ERR_PEER_DIED: there is no permit, a process that had it
 *         open died, and no other process has it open
 */
TN_API TN_NODISCARD int tn_semaphore_acquire(tn_semaphore *semaphore, tn_deadline deadline);
/**
 * Release a permit, and let a waiter have it.
 * @return 0, or TN_ERR_INVALID: an owned semaphore of which this process (ANY_RELEASES: any
 *         process) holds no permit; overflow
 */
TN_API TN_NODISCARD int tn_semaphore_release(tn_semaphore *semaphore);
/** Count the permits that are free now; 0 for NULL. */
TN_API uint32_t tn_semaphore_count(const tn_semaphore *semaphore);

/**
 * A positive result: the lock is held, and its last owner died while it held the lock.
 *
 * The lock itself remembers the death. It ends, and forgets the death, when no process has it
 * open any more. So the death of the only process that has the lock open is told to nobody: to
 * learn of it, let another process keep the lock open.
 */
enum { TN_LOCK_RECOVERED = 1 };
/** Open a mutual exclusion lock. A thread owns it; it is not recursive. */
TN_API TN_NODISCARD int tn_lock_open(tn_domain *domain, const char *name, uint32_t flags,
                                     tn_lock **ret_lock);
/**
 * Acquire the lock, waiting until it is free.
 * @return 0: held; TN_LOCK_RECOVERED: held, and what it protects may be half changed
 *         (tn_error_peer() names the dead owner); TN_ERR_TIMED_OUT;
 *         TN_ERR_INVALID: this thread holds it already
 */
TN_API TN_NODISCARD int tn_lock_acquire(tn_lock *lock, tn_deadline deadline);
/**
 * Release the lock.
 * @return 0, or TN_ERR_INVALID: this thread does not hold it
 */
TN_API TN_NODISCARD int tn_lock_release(tn_lock *lock);

/** Open a condition variable, used with any tn_lock that the caller holds. */
TN_API TN_NODISCARD int tn_condition_open(tn_domain *domain, const char *name, uint32_t flags,
                                          tn_condition **ret_condition);
/**
 * Release the lock, wait for a signal, acquire the lock again. May return early: test the
 * condition in a loop.
 * @return 0, TN_LOCK_RECOVERED (as tn_lock_acquire), TN_ERR_TIMED_OUT, TN_ERR_INTERRUPTED or
 *         TN_ERR_PEER_DIED (a process that had it open died, and no other has it open); in all
 * these cases the lock is held again, however long that takes. TN_ERR_INVALID: the caller does
 * not hold the lock
 */
TN_API TN_NODISCARD int tn_condition_wait(tn_condition *condition, tn_lock *lock,
                                          tn_deadline deadline);
/** Wake one process that waits for the condition, if there is one. */
TN_API TN_NODISCARD int tn_condition_signal(tn_condition *condition);
/** Wake all processes that wait for the condition. */
TN_API TN_NODISCARD int tn_condition_broadcast(tn_condition *condition);

/** Open a barrier for `parties` waiters, 1 to 65535; 0 with TN_OPEN_EXISTING: any. */
TN_API TN_NODISCARD int tn_barrier_open(tn_domain *domain, const char *name, uint32_t parties,
                                        uint32_t flags, tn_barrier **ret_barrier);
/**
 * Wait until all parties came. A process that has the barrier open and dies, breaks it: every
 * waiter gets TN_ERR_PEER_DIED, until tn_barrier_reset(). A deadline that passes, or a wait
 * that is interrupted, breaks it too: this waiter gets TN_ERR_TIMED_OUT or TN_ERR_INTERRUPTED,
 * the others TN_ERR_CLOSED.
 * @return 0, or 1 for exactly one of the parties, or an error as above
 */
TN_API TN_NODISCARD int tn_barrier_wait(tn_barrier *barrier, tn_deadline deadline);
/** Repair a broken barrier. Afterwards no party has arrived. */
TN_API TN_NODISCARD int tn_barrier_reset(tn_barrier *barrier);

TN_END_DECLS

#endif
