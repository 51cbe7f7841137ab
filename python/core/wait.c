/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wait: the state of a wait without the GIL, and what ends a wait early: signals and closing.
 */
#include "core.h"

#include <pthread.h>
#include <time.h>

_Thread_local struct tnp_wait *tnp_wait_now;
_Thread_local tn_lock *tnp_held_in_wait;

unsigned tnp_forks;
__attribute__((cold)) static void count_fork(void) { tnp_forks++; }

void tnp_pause(void)
{
    Py_BEGIN_ALLOW_THREADS nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    Py_END_ALLOW_THREADS
}

/*
 * The library calls this in a thread that waits without the GIL. CPython runs signal handlers
 * in the main thread only.
 */
static int check_signals(void *context)
{
    (void)context;
    const struct tnp_wait *wait = tnp_wait_now;
    if (wait != NULL && (atomic_load(&wait->domain->is_closing) ||
                         (wait->was_closed != NULL && wait->was_closed(wait))))
        return 1;
    PyGILState_STATE state = PyGILState_Ensure();
    tnp_log_deliver();
    int raised = PyErr_CheckSignals(); /* an exception of the handler stays with the state of
                                          this thread */
    PyGILState_Release(state);
    return raised;
}

int tnp_wait_init(PyObject *module)
{
    (void)module;
    tn_interrupt_set(check_signals, NULL);
    if (pthread_atfork(NULL, NULL, count_fork) == 0)
        return 0;
    PyErr_NoMemory();
    return -1;
}
