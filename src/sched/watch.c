/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch: descriptors that end tasks, and the thread that waits for them.
 *
 * Nouns: watch (a copy of the program's descriptor, and the task that it ends).
 * I1  The scheduler's lock protects the watches and the set of descriptors, so the thread takes
 *     from the set only watches that are still there.
 * I2  A watch ends with its task, or before the task runs again. Another thread may make one
 *     while the function of the task returns something else than TN_TASK_PENDING: such a watch
 *     ends with its graph, or when its descriptor is readable, and ends no task.
 * I3  The set is shared with a forked child, which closes its copies and changes nothing in it.
 */
#include <stdlib.h>

#include "sched/crew.h"

struct tni_watch {
    struct tni_watch *prev, *next; /* of the scheduler */
    struct tni_task *task;
    int fd; /* owned */
};

struct tni_watcher {
    tni_os_thread thread;
    int set;         /* owned; of descriptors; the tag of each is its watch, or 0: the pipe */
    int end_pipe[2]; /* owned; readable when the thread is to end */
    tni_watch_fn *end;
    struct tni_watch *watches;
};

/* Take a watch out and free it. Under the lock, or in a forked child. */
static void end_watch(struct tni_watcher *watcher, struct tni_watch *watch, bool is_own)
{
    if (watch->prev != NULL)
        watch->prev->next = watch->next;
    else
        watcher->watches = watch->next;
    if (watch->next != NULL)
        watch->next->prev = watch->prev;
    if (is_own) {
        atomic_store_explicit(&watch->task->watch, NULL, memory_order_relaxed);
        tni_os_loop_remove(watcher->set, watch->fd);
    }
    tni_os_close(watch->fd);
    free(watch);
}

void tni_watch_end_of(struct tn_sched *sched, struct tni_task *task)
{
    struct tni_watch *watch = atomic_load_explicit(&task->watch, memory_order_relaxed);
    if (watch != NULL)
        end_watch(sched->watcher, watch, true);
}

void tni_watch_end_locked(struct tn_sched *sched, struct tni_task *task)
{
    tni_sched_lock(sched);
    tni_watch_end_of(sched, task);
    tni_sched_unlock(sched);
}

void tni_watch_end_graph(struct tn_sched *sched, const struct tn_graph *graph)
{
    struct tni_watch *next;
    if (sched->watcher == NULL)
        return;
    for (struct tni_watch *watch = sched->watcher->watches; watch != NULL; watch = next) {
        next = watch->next;
        if (tni_graph_of(watch->task) == graph)
            end_watch(sched->watcher, watch, true);
    }
}

/* ---- the thread -------------------------------------------------------------------------- */

static void run_watcher(void *context)
{
    struct tn_sched *sched = context;
    struct tni_watcher *watcher = sched->watcher;
    uint64_t tag;
    for (;;) {
        if (tni_os_poll(&watcher->set, 1, TNI_FOREVER) != 0)
            continue;
        tni_sched_lock(sched);
        int count = tni_os_loop_wait(watcher->set, &tag, 1, 0);
        if (count == 1 && tag == 0)
            break;
        if (count == 1) {
            struct tni_task *task = ((struct tni_watch *)(uintptr_t)tag)->task;
            tni_watch_end_of(sched, task);
            (void)watcher->end(sched, task, 0); /* I2: it may have ended */
        }
        tni_sched_unlock(sched);
    }
    tni_sched_unlock(sched);
}

static void free_watcher(struct tni_watcher *watcher)
{
    tni_os_close(watcher->set);
    tni_os_close(watcher->end_pipe[0]);
    tni_os_close(watcher->end_pipe[1]);
    free(watcher);
}

/* Make a watcher without a thread. */
static int make_watcher(struct tni_watcher **ret_watcher)
{
    struct tni_watcher *watcher = malloc(sizeof *watcher);
    if (watcher == NULL)
        return tni_fail(TN_ERR_NO_MEMORY, "there is no memory to watch descriptors");
    *watcher = (struct tni_watcher){.set = -1, .end_pipe = {-1, -1}};
    int status = tni_os_loop_create(&watcher->set);
    if (status == 0)
        status = tni_os_pipe(watcher->end_pipe);
    if (status == 0)
        status = tni_os_loop_add(watcher->set, watcher->end_pipe[0], 0);
    if (status != 0)
        free_watcher(watcher);
    else
        *ret_watcher = watcher;
    return status;
}

void tni_watcher_end(struct tn_sched *sched)
{
    struct tni_watcher *watcher = sched->watcher;
    bool is_own = sched->pid == tni_os_pid();
    if (watcher == NULL)
        return;
    if (is_own) {
        (void)tni_os_write(watcher->end_pipe[1], "", 1); /* the pipe is empty and open */
        tni_os_thread_join(&watcher->thread);
    }
    while (watcher->watches != NULL)
        end_watch(watcher, watcher->watches, is_own);
    free_watcher(watcher);
    sched->watcher = NULL;
}

/* ---- making ------------------------------------------------------------------------------ */

static int add_watch(struct tni_watcher *watcher, struct tni_task *task, int fd)
{
    struct tni_watch *watch = malloc(sizeof *watch);
    if (watch == NULL)
        return tni_fail(TN_ERR_NO_MEMORY, "there is no memory to watch a descriptor");
    *watch = (struct tni_watch){.next = watcher->watches, .task = task, .fd = -1};
    int status = tni_os_duplicate(fd, &watch->fd);
    if (status == 0) {
        status = tni_os_loop_add(watcher->set, watch->fd, (uintptr_t)watch);
        if (status == TN_ERR_INVALID) /* the error names the copy */
            tni_fail(status, "descriptor %d is of a file or a folder, which is always ready",
                     fd);
    }
    if (status != 0) {
        tni_os_close(watch->fd);
        free(watch);
        return status;
    }
    if (watcher->watches != NULL)
        watcher->watches->prev = watch;
    watcher->watches = watch;
    /* Relaxed: a thread that misses it leaves what I2 allows. */
    atomic_store_explicit(&task->watch, watch, memory_order_relaxed);
    return 0;
}

int tni_watch_begin(struct tn_sched *sched, struct tni_task *task, int fd, tni_watch_fn *end)
{
    struct tni_watcher *watcher = sched->watcher;
    if (watcher != NULL)
        return add_watch(watcher, task, fd);
    int status = make_watcher(&watcher);
    if (status != 0)
        return status;
    watcher->end = end;
    status = add_watch(watcher, task, fd);
    sched->watcher = watcher; /* where the thread looks for it */
    if (status == 0)
        status = tni_os_thread_start("tenon watch", run_watcher, sched, &watcher->thread);
    if (status != 0) {
        tni_watch_end_of(sched, task);
        sched->watcher = NULL;
        free_watcher(watcher);
    }
    return status;
}
