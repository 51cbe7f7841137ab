/* SPDX-License-Identifier: Apache-2.0 */
/* Threads, mutexes and condition variables of this process, by POSIX threads. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

#include "os/linux.h"

int tni_os_mutex_init(tni_os_mutex *mutex)
{
    int error = pthread_mutex_init(&mutex->mutex, NULL);
    return error == 0 ? 0 : tni_linux_fail(TN_ERR_NO_MEMORY, error, "making a mutex");
}

void tni_os_mutex_fini(tni_os_mutex *mutex) { pthread_mutex_destroy(&mutex->mutex); }

void tni_os_mutex_lock(tni_os_mutex *mutex) { pthread_mutex_lock(&mutex->mutex); }

void tni_os_mutex_unlock(tni_os_mutex *mutex) { pthread_mutex_unlock(&mutex->mutex); }

int tni_os_cond_init(tni_os_cond *cond)
{
    pthread_condattr_t attributes;
    int error = pthread_condattr_init(&attributes);
    if (error == 0) {
        pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
        error = pthread_cond_init(&cond->cond, &attributes);
        pthread_condattr_destroy(&attributes);
    }
    return error == 0 ? 0 : tni_linux_fail(TN_ERR_NO_MEMORY, error, "making a condition");
}

void tni_os_cond_fini(tni_os_cond *cond) { pthread_cond_destroy(&cond->cond); }

void tni_os_cond_wait(tni_os_cond *cond, tni_os_mutex *mutex, uint64_t deadline_ns)
{
    struct timespec until = tni_linux_timespec(deadline_ns);
    if (deadline_ns == TNI_FOREVER)
        pthread_cond_wait(&cond->cond, &mutex->mutex);
    else
        pthread_cond_timedwait(&cond->cond, &mutex->mutex, &until);
}

void tni_os_cond_signal(tni_os_cond *cond) { pthread_cond_signal(&cond->cond); }

void tni_os_cond_broadcast(tni_os_cond *cond) { pthread_cond_broadcast(&cond->cond); }

struct start {
    tni_os_thread_fn *run;
    void *context;
};

static void *run_thread(void *argument)
{
    struct start start = *(struct start *)argument;
    free(argument);
    start.run(start.context);
    return NULL;
}

int tni_os_thread_start(const char *name, tni_os_thread_fn *run, void *context,
                        tni_os_thread *ret_thread)
{
    sigset_t all, before;
    struct start *start = malloc(sizeof *start);
    if (start == NULL)
        return tni_fail(TN_ERR_NO_MEMORY, "there is no memory to start the thread %s", name);
    *start = (struct start){run, context};
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&ret_thread->thread, NULL, run_thread, start);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error != 0) {
        free(start);
        return tni_linux_fail(TN_ERR_SYSTEM, error, "starting the thread %s", name);
    }
    pthread_setname_np(ret_thread->thread, name);
    return 0;
}

void tni_os_thread_join(tni_os_thread *thread) { pthread_join(thread->thread, NULL); }
