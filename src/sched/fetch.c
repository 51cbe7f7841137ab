/* SPDX-License-Identifier: Apache-2.0 */
/* fetch: the program's own use of data: reads it on the host, and closes it. */
#include <stdlib.h>

#include "sched/crew.h"

/* ---- fetching ---------------------------------------------------------------------------- */

static int check(const struct tn_data *data)
{
    return data == NULL ? tni_fail_null("data") : tni_sched_check(data->sched, "sched");
}

/* Whether this thread runs a task that writes the data, which it would wait for. */
static bool is_written_here(const struct tn_data *data)
{
    for (const struct tni_worker *worker = tni_crew_current(); worker != NULL;
         worker = worker->outer) {
        const struct tni_access *a = worker->task != NULL ? worker->task->accesses : NULL;
        for (; a != NULL && a->data != NULL; a++)
            if (a->data == data->its && (a->mode & TNI_WRITES) != 0)
                return true;
    }
    return false;
}

int tn_data_fetch(tn_data *data, tn_deadline deadline)
{
    int status = check(data);
    if (status != 0)
        return status;
    if (is_written_here(data))
        return tni_fail(TN_ERR_INVALID, "the task of this thread writes '%.64s'", data->name);
    struct tn_sched *sched = data->sched;
    const struct tni_access accesses[] = {{data->its, TNI_READS}, {0}};
    struct tni_running running = {.memory = TNI_HOST, .accesses = accesses};
    tni_sched_lock(sched);
    sched->data_waits++;
    while (status == 0 && !(tni_data_keep(&sched->plan, data->its) &&
                            tni_data_can_begin(&sched->plan, accesses, TNI_HOST))) {
        if (tni_os_now_ns() >= deadline.ns)
            status = tni_fail(TN_ERR_TIMED_OUT, "a task writes '%.64s', or a thread moves it",
                              data->name);
        else
            status = tni_sched_sleep(sched, &sched->data_changed, deadline.ns);
    }
    sched->data_waits--;
    if (status == 0)
        tni_data_begin(&sched->plan, &running, false);
    tni_sched_unlock(sched);
    if (status != 0)
        return status;
    status = tni_moves_run(sched, &running);
    tni_sched_lock(sched);
    tni_data_end(&sched->plan, &running);
    tni_plan_unblock(&sched->plan);
    tni_moves_tell(sched);
    (void)tni_crew_wake(sched);
    tni_sched_unlock(sched);
    return status != TN_TASK_OOM
               ? status
               : tni_fail(TN_ERR_NO_MEMORY, "the host has no memory for '%.64s'", data->name);
}

/* ---- tensors ----------------------------------------------------------------------------- */

/* Where the task of this thread has the data; TNI_NO_MEMORY: it does not name the data. */
static uint32_t memory_of_task(const struct tn_data *data)
{
    const struct tni_worker *worker = tni_crew_current();
    if (worker == NULL || worker->task == NULL || worker->task->accesses == NULL)
        return TNI_NO_MEMORY;
    for (const struct tni_access *a = worker->task->accesses; a->data != NULL; a++)
        if (a->data == data->its)
            return worker->running->memory;
    return TNI_NO_MEMORY;
}

tn_tensor *tn_data_tensor(tn_data *data)
{
    tn_tensor *tensor = NULL;
    if (check(data) != 0)
        return NULL;
    if (data->tensors == NULL) {
        tni_fail(TN_ERR_INVALID, "'%.64s' was made without a tensor", data->name);
        return NULL;
    }
    uint32_t memory = memory_of_task(data);
    if (memory != TNI_NO_MEMORY)
        return data->tensors->at[memory]; /* nobody moves it while the task runs */
    tni_sched_lock(data->sched);
    if (data->its->copies[TNI_HOST].state == TNI_COPY_VALID)
        tensor = data->tensors->at[TNI_HOST];
    tni_sched_unlock(data->sched);
    if (tensor == NULL)
        tni_fail(TN_ERR_INVALID,
                 "the host has no valid copy of '%.64s', and no task of this thread names it",
                 data->name);
    return tensor;
}

/* ---- closing ----------------------------------------------------------------------------- */

static void unlink_data(struct tn_sched *sched, struct tn_data *data)
{
    if (data->prev != NULL)
        data->prev->next = data->next;
    else
        sched->data = data->next;
    if (data->next != NULL)
        data->next->prev = data->prev;
}

static void drop_all(const struct tn_sched *sched, const struct tn_data *data, uint64_t held)
{
    for (; held != 0 && !tni_sched_is_virtual(sched); held &= held - 1)
        tni_data_drop(data, tni_low_bit(held));
}

/* Wait until no task names it. Under the lock, which is released meanwhile. */
static void await_quiet(struct tn_sched *sched, const struct tn_data *data)
{
    sched->data_waits++;
    while (!tni_data_is_quiet(&sched->plan, data->its))
        tni_sched_wait(sched, &sched->data_changed, TNI_FOREVER);
    sched->data_waits--;
}

tn_data *tn_data_close(tn_data *data)
{
    if (data == NULL)
        return NULL;
    struct tn_sched *sched = data->sched;
    bool is_own = sched->pid == tni_os_pid();
    if (is_own) {
        tni_sched_lock(sched);
        if (!tni_sched_is_virtual(sched))
            await_quiet(sched, data);
        uint64_t held = tni_data_end_use(&sched->plan, data->its);
        tni_sched_unlock(sched);
        drop_all(sched, data, held); /* not under the lock; no other thread knows it now */
        tni_sched_lock(sched);
    }
    unlink_data(sched, data);
    tni_data_free(&sched->plan, data->its);
    if (is_own) {
        tni_plan_unblock(&sched->plan); /* there is more room */
        (void)tni_crew_wake(sched);
        tni_sched_unlock(sched);
    }
    tni_tensors_free(data->tensors);
    free(data->name);
    free(data);
    return NULL;
}
