/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Guards (guard.c), and functions for any lock: a Guard, or an object with acquire() and
 * release(). Call all of them with the GIL.
 */
#ifndef TENON_GUARD_H
#define TENON_GUARD_H

#include "object.h"

/* ---- guards (guard.c) -------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD PyObject
        *core;           /* a semaphore or a lock of sync.c; NULL: _begin() was not called */
    int kind;            /* SIGNALS, PERMITS, LOCK or RLOCK of guard.c */
    int most;            /* release() raises beyond so many permits */
    unsigned forks;      /* tnp_forks when `holder` was written */
    uint64_t holder;     /* the thread of this process that acquired it last */
    unsigned long count; /* how often threads of this process hold it */
    PyObject *waking; /* a Condition of sync.c that release wakes: tnp_guard_wake_on_release();
                         or NULL */
} tnp_guard;
extern PyTypeObject tnp_guard_type;

/** @return 1: acquired; 0: not before the deadline; -1: raised. */
int tnp_guard_acquire(tnp_guard *guard, tn_deadline deadline);
/** -1: raised. */
int tnp_guard_release(tnp_guard *guard);
bool tnp_guard_is_mine(const tnp_guard *guard);
int tnp_guard_release_all(tnp_guard *guard, unsigned long *ret_count);
int tnp_guard_acquire_again(tnp_guard *guard, unsigned long count);
int tnp_guard_wake_on_release(tnp_guard *guard, PyObject *core);

/* ---- any lock (any_lock.c) --------------------------------------------------------------- */

/** Acquire the lock without a time limit. -1: raised */
int tnp_any_lock_acquire(PyObject *lock);
/** -1: raised */
int tnp_any_lock_release(PyObject *lock);
/**
 * Whether the calling thread acquired the lock last and holds it. A lock that is no Guard needs
 * a `_semlock`, as the locks of the standard library have. -1: raised
 */
int tnp_any_lock_is_mine(PyObject *lock);
/** Release the lock as often as this process holds it. pre: this thread holds it. -1: raised */
int tnp_any_lock_release_all(PyObject *lock, unsigned long *ret_count);
/** Acquire the lock `count` times. -1: raised */
int tnp_any_lock_acquire_again(PyObject *lock, unsigned long count);
/**
 * Wake all waiters of a Condition of sync.c, each of which then acquires this lock. If the lock
 * is a recursive Guard, its release wakes them: woken sooner, they would only sleep again on
 * the lock. -1: raised
 */
int tnp_any_lock_wake_on_release(PyObject *lock, PyObject *core);

#endif
