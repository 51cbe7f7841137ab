/* SPDX-License-Identifier: Apache-2.0 */
/* Any lock: a Guard (guard.c), or an object with acquire() and release(), called with the GIL.
 */
#ifndef TENON_GUARD_H
#define TENON_GUARD_H

#include "object.h"

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
