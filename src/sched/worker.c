/* SPDX-License-Identifier: Apache-2.0 */
/*
 * worker: makes workers; and the tasks that a worker has taken, or made ready, and does not run
 * yet.
 *
 * Two threads use its two lists. The worker adds and takes tasks, without the lock of the
 * scheduler. The guard (crew.c), with the lock, takes all tasks out if the worker makes no
 * progress, so that other workers can run them.
 */
#include <stdlib.h>

#include "sched/crew.h"
#include "spawn/spawn.h"

int tni_worker_init(struct tn_sched *sched, struct tni_worker *worker)
{
    *worker = (struct tni_worker){.sched = sched, .running = tni_running_create(sched)};
    if (worker->running == NULL)
        return tni_fail(TN_ERR_NO_MEMORY, "there is no memory for a worker");
    int status = tni_os_cond_init(&worker->wake_up);
    if (status != 0)
        free(worker->running);
    return status;
}

void tni_worker_fini(struct tni_worker *worker)
{
    tni_os_cond_fini(&worker->wake_up);
    free(worker->running);
}

void tni_worker_take_waiting(struct tni_worker *worker, struct tni_chain *chain)
{
    struct tni_task *next,
        *task = atomic_exchange_explicit(&worker->waiting, NULL, memory_order_acquire);
    for (; task != NULL; task = next) {
        next = task->next;
        tni_chain_append(chain, task);
    }
}

void tni_worker_add_ready(struct tni_worker *worker, struct tni_chain *chain)
{
    struct tni_task *task;
    while ((task = tni_chain_take(chain)) != NULL) {
        task->next = atomic_load_explicit(&worker->readied, memory_order_relaxed);
        while (!atomic_compare_exchange_weak_explicit(
            &worker->readied, &task->next, task, memory_order_release, memory_order_relaxed)) {
        }
    }
}

void tni_worker_take_ready(struct tni_worker *worker, struct tni_chain *chain)
{
    struct tni_task *next,
        *oldest = NULL,
        *task = atomic_exchange_explicit(&worker->readied, NULL, memory_order_acquire);
    for (; task != NULL; task = next) { /* the newest comes first */
        next = task->next;
        task->next = oldest;
        oldest = task;
    }
    for (task = oldest; task != NULL; task = next) {
        next = task->next;
        tni_chain_append(chain, task);
    }
}

bool tni_workers_look(struct tn_sched *sched)
{
    struct tni_chain tasks = {0};
    for (struct tni_worker *worker = sched->workers; worker != NULL; worker = worker->next) {
        uint32_t run_count = atomic_load_explicit(&worker->run_count, memory_order_relaxed);
        if (run_count == worker->seen_count) {
            tni_worker_take_waiting(worker, &tasks);
            tni_worker_take_ready(worker, &tasks);
        }
        worker->seen_count = run_count;
    }
    bool is_found = tasks.first != NULL;
    tni_plan_push(&sched->plan, &tasks);
    return is_found;
}

void tni_places_wake(struct tn_sched *sched, uint64_t now_ns)
{
    for (struct tni_place *place = sched->places; place != NULL; place = place->next) {
        if (place->is_called || place->is_full ||
            !tni_plan_can_start(&sched->plan, place, now_ns))
            continue;
        place->is_called = true;
        if (place->is_fetching)
            tni_pool_wake(place->pool);
        else
            tni_os_cond_signal(&place->worker.wake_up);
    }
}
