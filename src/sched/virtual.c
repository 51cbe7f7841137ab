/* SPDX-License-Identifier: Apache-2.0 */
/*
 * virtual: runs graphs in virtual time. The same plan decides; a task takes its run_ns, and
 * nothing else takes time. So a run is the same on every machine.
 */
#include <stdlib.h>

#include "sched/crew.h"

static bool ends_before(const struct tni_event *a, const struct tni_event *b)
{
    return a->ends_ns != b->ends_ns ? a->ends_ns < b->ends_ns
                                    : a->running->began_ns < b->running->began_ns;
}

static void swap(struct tni_event *a, struct tni_event *b)
{
    struct tni_event other = *a;
    *a = *b;
    *b = other;
}

/* There is room for one more event. */
static void push_event(struct tn_sched *sched, struct tni_event event)
{
    uint32_t at = sched->event_count++;
    struct tni_event *events = sched->events;
    events[at] = event;
    for (; at > 0 && ends_before(&events[at], &events[(at - 1) / 2]); at = (at - 1) / 2)
        swap(&events[at], &events[(at - 1) / 2]);
}

static struct tni_event pop_event(struct tn_sched *sched)
{
    struct tni_event *events = sched->events, first = events[0];
    uint32_t count = --sched->event_count, at = 0;
    events[0] = events[count];
    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child + 1 < count && ends_before(&events[child + 1], &events[child]))
            child++;
        if (child >= count || !ends_before(&events[child], &events[at]))
            return first;
        swap(&events[child], &events[at]);
        at = child;
    }
}

/* Get what one more task needs, so that no task is chosen that cannot be kept. */
static struct tni_running *prepare(struct tn_sched *sched)
{
    if (sched->event_count == sched->event_room) {
        uint32_t room = sched->event_room == 0 ? 64 : 2 * sched->event_room;
        struct tni_event *larger = realloc(sched->events, room * sizeof *larger);
        if (larger == NULL)
            return NULL;
        sched->events = larger;
        sched->event_room = room;
    }
    return tni_running_create(sched);
}

/* Begin all tasks that can begin now. */
static int begin_tasks(struct tn_sched *sched)
{
    for (;;) {
        struct tni_chain tasks = {0};
        struct tni_running *running = prepare(sched);
        if (running == NULL)
            return tni_fail(TN_ERR_NO_MEMORY, "there is no memory for one more running task");
        const struct tni_taker taker = {.now_ns = sched->virtual_ns, .most = 1};
        if (!tni_plan_next(&sched->plan, &taker, running, &tasks)) {
            free(running);
            return 0;
        }
        struct tni_task *task = tasks.first;
        uint64_t run_ns = tni_task_time(task, running->variant);
        task->attempt = 1;
        uint64_t rest_ns = TNI_FOREVER - 1 - sched->virtual_ns; /* time does not wrap */
        running->has_run = true;
        if (running->moves != NULL) { /* its time begins when its data is there */
            push_event(sched, (struct tni_event){sched->virtual_ns +
                                                     TNI_MIN(running->move_ns, rest_ns),
                                                 task, running, true});
            continue;
        }
        push_event(sched, (struct tni_event){sched->virtual_ns + TNI_MIN(run_ns, rest_ns), task,
                                             running, false});
    }
}

/* The data of a task has come: the task runs. */
static void begin_after_move(struct tn_sched *sched, struct tni_event event)
{
    tni_moves_settle(sched, event.running);
    uint64_t run_ns = tni_task_time(event.task, event.running->variant);
    event.ends_ns += TNI_MIN(run_ns, TNI_FOREVER - 1 - event.ends_ns);
    event.is_move = false;
    push_event(sched, event);
}

static void end_task(struct tn_sched *sched)
{
    struct tni_chain ready = {0};
    uint32_t ended = 0;
    struct tni_event event = pop_event(sched);
    sched->virtual_ns = event.ends_ns;
    if (event.is_move) {
        begin_after_move(sched, event);
        return;
    }
    tni_finish_trace(sched, event.task, event.running, 0, event.ends_ns);
    tni_finish_use(sched, event.running, event.ends_ns);
    if (tni_running_place(event.running).pool != TNI_NO_SLOT.pool)
        tni_task_made_on(event.task, tni_running_place(event.running));
    tni_task_end(event.task, 0, &ready, &ended);
    tni_plan_push(&sched->plan, &ready);
    tni_finish_count(tni_graph_of(event.task), ended);
    free(event.running);
}

int tni_virtual_run(struct tn_sched *sched, const struct tn_graph *graph)
{
    while (!tni_graph_has_ended(graph)) {
        int status = begin_tasks(sched);
        if (status != 0)
            return status;
        if (sched->trace != NULL)
            tni_trace_memories(sched);
        uint64_t retry_ns = tni_plan_retry_ns(&sched->plan);
        if (sched->event_count == 0 && retry_ns == TNI_FOREVER)
            return tni_fail(TN_ERR_CORRUPT, "no task runs and none can begin");
        if (sched->event_count == 0 || retry_ns < sched->events[0].ends_ns)
            sched->virtual_ns = TNI_MAX(sched->virtual_ns, retry_ns);
        else
            end_task(sched);
        if (sched->trace != NULL)
            tni_trace_memories(sched);
    }
    return 0;
}
