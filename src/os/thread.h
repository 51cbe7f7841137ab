/* SPDX-License-Identifier: Apache-2.0 */
/*
 * os/thread: threads of this process, and the mutexes and condition variables with which they
 * meet. Private memory only: nothing here may lie in a segment, because a dead process would
 * keep the mutex. A part of os.h.
 */
#ifndef TNI_OS_THREAD_H
#define TNI_OS_THREAD_H

#include <pthread.h>
#include <stdint.h>

typedef struct tni_os_mutex {
    pthread_mutex_t mutex;
} tni_os_mutex;

typedef struct tni_os_cond {
    pthread_cond_t cond;
} tni_os_cond;

typedef struct tni_os_thread {
    pthread_t thread;
} tni_os_thread;

int tni_os_mutex_init(tni_os_mutex *mutex);
void tni_os_mutex_fini(tni_os_mutex *mutex);
void tni_os_mutex_lock(tni_os_mutex *mutex);
void tni_os_mutex_unlock(tni_os_mutex *mutex);

/** Its deadlines are times of tni_os_now_ns(). */
int tni_os_cond_init(tni_os_cond *cond);
void tni_os_cond_fini(tni_os_cond *cond);
/**
 * Unlock the mutex, sleep until a wake-up or the deadline, and lock the mutex again. The wait
 * may end without a cause, so the caller checks its condition again in any case.
 */
void tni_os_cond_wait(tni_os_cond *cond, tni_os_mutex *mutex, uint64_t deadline_ns);
/** Wake up one thread that waits. */
void tni_os_cond_signal(tni_os_cond *cond);
/** Wake up every thread that waits. */
void tni_os_cond_broadcast(tni_os_cond *cond);

typedef void tni_os_thread_fn(void *context);
/**
 * Start a thread. It has every signal blocked, so that the program's handlers run in the
 * program's own threads. @param name  at most 15 bytes, shown by tools such as top
 */
int tni_os_thread_start(const char *name, tni_os_thread_fn *run, void *context,
                        tni_os_thread *ret_thread);
/** Wait until the thread has ended. */
void tni_os_thread_join(tni_os_thread *thread);

#endif
