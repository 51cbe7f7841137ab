/* SPDX-License-Identifier: Apache-2.0 */
/* wait: what a wait without the GIL needs of this thread, and what ends it: signals and forks.
 */
#include "core.h"

#include <pthread.h>
#include <time.h>

_Thread_local struct tnp_wait *tnp_wait_now;
_Thread_local tn_lock *tnp_waiting_with;

unsigned tnp_forks;
__attribute__((cold)) static void count_fork(void) { tnp_forks++; }

void tnp_pause(void)
{
    Py_BEGIN_ALLOW_THREADS nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    Py_END_ALLOW_THREADS
}

/* Called in a thread that waits without the GIL. Only the main thread runs handlers. */
static int check_signals(void *context)
{
    (void)context;
    if (tnp_wait_now != NULL && atomic_load(&tnp_wait_now->domain->is_closing))
        return 1;
    PyGILState_STATE state = PyGILState_Ensure();
    int raised = PyErr_CheckSignals(); /* what it raises stays with this thread's state */
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
