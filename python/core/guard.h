/* SPDX-License-Identifier: Apache-2.0 */
/* Guard: what the locks and semaphores of tenon.multiprocessing are (guard.c). */
#ifndef TENON_GUARD_H
#define TENON_GUARD_H

#include "core.h"

enum { TNP_GUARD_SIGNALS, TNP_GUARD_PERMITS, TNP_GUARD_LOCK, TNP_GUARD_RLOCK };

typedef struct {
    PyObject_HEAD PyObject *core; /* a tnp_object: a semaphore or a lock; NULL: not begun */
    int kind;                     /* TNP_GUARD_* */
    unsigned forks;               /* tnp_forks when `holder` was noted */
    uintptr_t holder;             /* the thread of ours that took it last */
    unsigned long count;          /* how often that thread has it; 0: it gave it back */
    PyObject *waking;             /* a Condition of sync.c, see below; or NULL */
} tnp_guard;
extern PyTypeObject tnp_guard_type;

/** Whether the calling thread took it last, and has it. */
bool tnp_guard_is_mine(const tnp_guard *guard);
/** Call it with the GIL, which goes while it waits. @return 1, 0: the time is over; -1: raised */
int tnp_guard_acquire(tnp_guard *guard, uint64_t deadline_ns);
/** -1: raised (ValueError, AssertionError). */
int tnp_guard_release(tnp_guard *guard);
/**
 * Wake all that wait at a Condition of sync.c, who then need this guard: a recursive lock wakes
 * them when it is given back, for sooner they would wait for it, and sleep again.
 */
int tnp_guard_wake_later(tnp_guard *guard, PyObject *core);
/** Give it back, however often this thread has it. pre: it has it. -1: raised. */
int tnp_guard_release_all(tnp_guard *guard, unsigned long *ret_count);
/** Take it that often again. -1: raised. */
int tnp_guard_acquire_again(tnp_guard *guard, unsigned long count);

#endif
