/* SPDX-License-Identifier: Apache-2.0 */
/* finish: what is done when tasks have ended, in threads and in virtual time alike. */
#include <stdio.h>
#include <stdlib.h>

#include "sched/crew.h"

/* This thread's detail; or, if the function of a task set none, what the status says. */
static const char *sentence_of(int status)
{
    return tn_error_detail()[0] != '\0' ? tn_error_detail() : tn_status_sentence(status);
}

void tni_finish_failure(struct tn_graph *graph, const struct tni_task *task, int status)
{
    if (graph->failure_status != 0)
        return;
    graph->failure_status = status;
    if (task == NULL)
        snprintf(graph->failure, sizeof graph->failure, "the graph was cancelled");
    else
        snprintf(graph->failure, sizeof graph->failure, "task %u (%.64s): %s", task->id,
                 task->kind->name, sentence_of(status));
}

void tni_finish_keep_sentence(struct tn_graph *graph, const struct tni_task *task)
{
    struct tni_early *early = malloc(sizeof *early);
    if (early == NULL)
        return; /* the status tells enough */
    early->task = task;
    snprintf(early->sentence, sizeof early->sentence, "%s", sentence_of(task->early_status));
    early->next = graph->early;
    graph->early = early;
}

int tni_finish_early(struct tn_graph *graph, const struct tni_task *task)
{
    const struct tni_early *early = graph->early;
    while (early != NULL && early->task != task)
        early = early->next;
    if (task->early_status == 0)
        return 0;
    return tni_fail(task->early_status, "%s",
                    early != NULL ? early->sentence : "it was ended with an error");
}

void tni_finish_count(struct tn_graph *graph, uint32_t ended)
{
    struct tn_sched *sched = graph->sched;
    sched->ended_count += ended;
    tni_moves_tell(sched);
    /* This release pairs with the acquire in tni_graph_has_ended(). */
    if (ended == 0 ||
        atomic_fetch_sub_explicit(&graph->tasks.unended, ended, memory_order_acq_rel) != ended)
        return;
    tni_os_cond_broadcast(&graph->ended);
    for (struct tni_worker *worker = sched->idle; worker != NULL; worker = worker->next_idle)
        if (worker->helps == graph) {
            worker->is_woken = true;
            tni_os_cond_signal(&worker->wake_up);
        }
}

void tni_finish_use(struct tn_sched *sched, struct tni_running *running, uint64_t now_ns)
{
    bool has_data = running->accesses != NULL;
    tni_plan_end(&sched->plan, running, now_ns);
    if (has_data)
        tni_moves_tell(sched);
}

/* Tasks that share a CPU give it back when the last of them that needs it secedes or ends. */
static void give_back_unneeded(struct tn_sched *sched, struct tni_running *running,
                               uint64_t now_ns)
{
    if (running->seceded > 0 && running->left == running->seceded)
        tni_plan_give_back(&sched->plan, running, TNI_BUILT_IN_MASK, now_ns);
}

void tni_finish_secede(struct tn_sched *sched, struct tni_task *task, uint64_t now_ns)
{
    if (task->has_seceded)
        return;
    task->has_seceded = true;
    task->running->seceded++;
    give_back_unneeded(sched, task->running, now_ns);
}

void tni_finish_running(struct tn_sched *sched, struct tni_task *task, uint64_t now_ns)
{
    struct tni_running *running = task->running;
    task->running = NULL;
    running->seceded -= task->has_seceded;
    task->has_seceded = false;
    if (--running->left > 0) {
        give_back_unneeded(sched, running, now_ns);
        return;
    }
    if (running->kind != NULL)
        tni_kind_learn(running->kind, running->variant, now_ns - running->began_ns,
                       running->count);
    tni_finish_use(sched, running, now_ns);
    free(running);
}

void tni_finish_later(struct tni_task *task, int status, uint64_t now_ns)
{
    struct tn_graph *graph = tni_graph_of(task);
    struct tni_chain ready = {0};
    uint32_t ended = 0;
    struct tni_slot_ref place = tni_running_place(task->running);
    tni_watch_end_of(graph->sched, task);
    task->running->has_failed = status < 0;
    if (status < 0)
        tni_finish_failure(graph, task, status);
    if (place.pool != TNI_NO_SLOT.pool)
        tni_task_made_on(task, place);
    tni_finish_running(graph->sched, task, now_ns);
    tni_task_end(task, status, &ready, &ended);
    tni_plan_push(&graph->sched->plan, &ready);
    tni_finish_count(graph, ended);
}

/* Whether the task reads data that it also writes: a second run would find other data. */
static bool updates_data(const struct tni_task *task)
{
    for (const struct tni_access *a = task->accesses; a != NULL && a->data != NULL; a++)
        if (a->mode == (TNI_READS | TNI_WRITES))
            return true;
    return false;
}

uint32_t tni_finish_call_flags(const struct tni_task *task)
{
    bool may_run_again = !task->kind->writes_inputs && !updates_data(task) &&
                         tni_kind_may_run_again(task->kind, task->variant);
    return may_run_again ? 0 : TN_CALL_LAST;
}

/* Fail, and say who has what. Under the lock. */
static int fail_memory(struct tn_sched *sched, const struct tni_task *task,
                       const struct tni_running *running, const struct tni_device_room *room,
                       const char *why)
{
    char use[TNI_REQUEST_TEXT_BYTES], has[TNI_FAILURE_BYTES], rest[TNI_FAILURE_BYTES];
    uint32_t memory = tni_memory_of(sched, running);
    tni_request_print_use(&sched->plan.pools,
                          &task->kind->signature->variants[task->variant].request, use,
                          sizeof use);
    tni_memory_print(sched, memory, running, has, sizeof has);
    tni_device_room_print(sched, memory, room, rest, sizeof rest);
    return tni_fail(TN_ERR_NO_MEMORY, "its memory ran out%s; in use: %s%s%s", why, use, has,
                    rest);
}

/* Find as what the task runs again whose memory ran out. Under the lock. @return 0, an error */
static int run_elsewhere(struct tn_sched *sched, struct tni_task *task,
                         const struct tni_running *running, const struct tni_device_room *room)
{
    const struct tn_kind *kind = task->kind;
    /* Memory may run out while data is brought, before the function is called. */
    bool has_run = task->accesses == NULL || running->has_run;
    bool writes_inputs = has_run && (kind->writes_inputs || updates_data(task));
    struct tn_kind *again =
        writes_inputs ? NULL : tni_kind_again(&sched->plan, task->kind, task->variant);
    const char *why = writes_inputs ? ", and it does not run again, since it writes its inputs"
                                    : ", also when it ran alone";
    if (again == NULL)
        return fail_memory(sched, task, running, room, why);
    task->kind = again;
    task->attempt--; /* this run does not count */
    return 0;
}

bool tni_finish_again(struct tn_sched *sched, struct tni_task *task,
                      const struct tni_running *running, int *status)
{
    if (*status != TN_TASK_OOM &&
        (*status != TN_TASK_RETRY || task->attempt >= task->kind->attempts))
        return false;
    bool is_again = *status == TN_TASK_RETRY;
    struct tni_device_room room = {0};
    if (!is_again)
        room = tni_device_room_read(sched, tni_memory_of(sched, running));
    tni_sched_lock(sched);
    if (!is_again) {
        *status = run_elsewhere(sched, task, running, &room);
        is_again = *status == 0;
    }
    task->is_ended_early = false; /* that was said of the run that has ended */
    tni_watch_end_of(sched, task);
    tni_sched_unlock(sched);
    return is_again;
}

int tni_finish_status(const struct tni_task *task, int status)
{
    if (status == TN_TASK_RETRY)
        return tni_fail(TN_ERR_CHILD_FAILED,
                        "it asked to be run again %u times, and may run %u times",
                        task->attempt, task->kind->attempts);
    if (status > 0)
        return tni_fail(TN_ERR_INVALID,
                        "its function returned %d, which is no TN_TASK_* and no TN_ERR_*",
                        status);
    return status;
}

/* A text of all slots, ",4294967295" each, after a name of each resource. */
static size_t text_bytes(const struct tn_sched *sched)
{
    return sched->options.trace == NULL ? 0
                                        : sched->plan.slot_most * sizeof ",4294967295" +
                                              TNI_POOLS * (TNI_POOL_NAME_BYTES + sizeof " =");
}

/* Write the slots of a task behind them, as in "GPU=0,1 NVME=3". */
static const char *print_slots(const struct tn_sched *sched, const struct tni_running *running)
{
    char *text = (char *)&running->slots[sched->plan.slot_most];
    size_t size_bytes = text_bytes(sched);
    const struct tni_variant *variant = &running->signature->variants[running->variant];
    size_t used = 0;
    uint32_t pool = UINT32_MAX;
    text[0] = '\0';
    for (uint32_t i = 0; i < variant->slot_count && used < size_bytes; i++) {
        const struct tni_slot_ref *at = &running->slots[i];
        const struct tni_pool *its = &sched->plan.pools.pools[at->pool];
        int len = at->pool == pool
                      ? snprintf(text + used, size_bytes - used, ",%u", its->slots[at->slot].id)
                      : snprintf(text + used, size_bytes - used, "%s%s=%u",
                                 used == 0 ? "" : " ", its->name, its->slots[at->slot].id);
        pool = at->pool;
        used += (size_t)TNI_MAX(len, 0);
    }
    return text;
}

void tni_finish_trace(const struct tn_sched *sched, const struct tni_task *task,
                      const struct tni_running *running, int status, uint64_t ended_ns)
{
    if (sched->trace != NULL)
        tni_trace_note(sched->trace, task, running, status, ended_ns);
    if (sched->options.trace == NULL)
        return;
    const tn_task_event event = {.graph = tni_graph_of(task),
                                 .task = task->id,
                                 .kind = task->kind->name,
                                 .variant = task->kind->numbers[running->variant],
                                 .status = status,
                                 .began_ns = running->began_ns,
                                 .ended_ns = ended_ns,
                                 .slots = print_slots(sched, running),
                                 .pid = running->pid};
    sched->options.trace(&event, sched->options.trace_context);
}

struct tni_running *tni_running_create(const struct tn_sched *sched)
{
    struct tni_running *running =
        calloc(1, sizeof *running + sched->plan.slot_most * sizeof running->slots[0] +
                      text_bytes(sched));
    if (running != NULL)
        running->slots = (struct tni_slot_ref *)(running + 1);
    return running;
}
