/* SPDX-License-Identifier: Apache-2.0 */
/* Guards; and any lock: a Guard, or an object with acquire() and release(). With the GIL. */
#ifndef TENON_GUARD_H
#define TENON_GUARD_H

#include "object.h"

/* ---- guards (guard.c) -------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD PyObject *core; /* a tnp_object: a semaphore or a lock; NULL: not begun */
    int kind;                     /* one of those */
    int most;                     /* permits, beyond which release() raises */
    unsigned forks;               /* tnp_forks when `holder` was noted */
    uint64_t holder;              /* the thread of ours that took it last */
    unsigned long count;          /* how often threads of ours have it; 0: it was given back */
    PyObject *waking; /* a Condition of sync.c, see tnp_guard_wake_later(); or NULL */
} tnp_guard;
extern PyTypeObject tnp_guard_type;

/** 1: acquired; 0: not in time; -1: raised. */
int tnp_guard_acquire(tnp_guard *guard, tn_deadline deadline);
/** -1: raised. */
int tnp_guard_release(tnp_guard *guard);
bool tnp_guard_is_mine(const tnp_guard *guard);
int tnp_guard_release_all(tnp_guard *guard, unsigned long *ret_count);
int tnp_guard_acquire_again(tnp_guard *guard, unsigned long count);
int tnp_guard_wake_later(tnp_guard *guard, PyObject *core);

/* ---- any lock (any_lock.c) --------------------------------------------------------------- */

/** Wait as long as it takes. -1: raised */
int tnp_any_lock_acquire(PyObject *lock);
/** -1: raised */
int tnp_any_lock_release(PyObject *lock);
/** Whether the calling thread took it last, and has it; what is no Guard needs a _semlock. -1:
 * raised */
int tnp_any_lock_is_mine(PyObject *lock);
/** Give it back, however often this process has it. pre: this thread has it. -1: raised */
int tnp_any_lock_release_all(PyObject *lock, unsigned long *ret_count);
/** Take it that often again. -1: raised */
int tnp_any_lock_acquire_again(PyObject *lock, unsigned long count);
/**
 * Wake all that wait at a Condition of sync.c, who then need this lock: a recursive Guard wakes
 * them when it is given back, for sooner they would wait for it, and sleep again. -1: raised
 */
int tnp_any_lock_wake_later(PyObject *lock, PyObject *core);

#endif
