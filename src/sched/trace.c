/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trace: notes what tasks did, for tn_sched_write_trace(). It has a lock of its own, which is
 * taken last, because tasks end with and without the lock of the scheduler.
 *
 * Kinds live as long as the scheduler, so they are not copied. Graphs do not: a graph has a
 * number for the trace.
 */
#include <stdlib.h>

#include "sched/crew.h"
#include "sched/trace.h"

int tni_trace_create(struct tni_trace **ret_trace)
{
    struct tni_trace *trace = calloc(1, sizeof *trace);
    if (trace == NULL)
        return tni_fail(TN_ERR_NO_MEMORY, "there is no memory for a trace");
    int status = tni_os_mutex_init(&trace->lock);
    if (status != 0) {
        free(trace);
        return status;
    }
    *ret_trace = trace;
    return 0;
}

static void free_lists(struct tni_trace *trace)
{
    free(trace->tasks.items);
    free(trace->slots.items);
    free(trace->edges.items);
    free(trace->names.items);
    free(trace->bytes.items);
}

void tni_trace_free(struct tni_trace *trace, bool is_own)
{
    if (trace == NULL)
        return;
    struct tni_trace_name *names = trace->names.items;
    for (size_t i = 0; i < trace->names.count; i++)
        free(names[i].name);
    free_lists(trace);
    if (is_own)
        tni_os_mutex_fini(&trace->lock);
    free(trace);
}

uint32_t tni_trace_graph(struct tni_trace *trace)
{
    tni_os_mutex_lock(&trace->lock);
    uint32_t number = ++trace->graph_count;
    tni_os_mutex_unlock(&trace->lock);
    return number;
}

/* ---- lists of tasks ---------------------------------------------------------------------- */

static bool note_edge(struct tni_trace *trace, struct tni_trace_edge edge)
{
    struct tni_trace_edge *noted = tni_trace_push(&trace->edges, sizeof *noted);
    if (noted != NULL)
        *noted = edge;
    return noted != NULL;
}

static bool note_name(struct tni_trace *trace, uint32_t graph, uint32_t number,
                      const char *name)
{
    char *copy = strdup(name);
    struct tni_trace_name *noted =
        copy != NULL ? tni_trace_push(&trace->names, sizeof *noted) : NULL;
    if (noted != NULL)
        *noted = (struct tni_trace_name){graph, number, copy};
    else
        free(copy);
    return noted != NULL;
}

void tni_trace_add(struct tni_trace *trace, uint32_t graph, uint32_t first,
                   const tn_task_list *list)
{
    bool is_noted = true;
    uint64_t at = 0;
    tni_os_mutex_lock(&trace->lock);
    for (uint32_t i = 0; i < list->count && is_noted; i++) {
        for (; is_noted && list->input_ends != NULL && at < list->input_ends[i]; at++) {
            uint64_t input = list->inputs[at];
            bool is_of_list = (input & TNI_INPUT_IN_LIST) != 0;
            uint32_t from = (uint32_t)input + (is_of_list ? first : 0);
            is_noted = note_edge(trace, (struct tni_trace_edge){graph, from, first + i});
        }
        if (is_noted && list->names != NULL && list->names[i] != NULL)
            is_noted = note_name(trace, graph, first + i, list->names[i]);
    }
    trace->lacks_memory |= !is_noted;
    tni_os_mutex_unlock(&trace->lock);
}

/* ---- ends of tasks ----------------------------------------------------------------------- */

static bool note_slots(struct tni_trace *trace, const struct tni_running *running,
                       uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        struct tni_slot_ref *noted = tni_trace_push(&trace->slots, sizeof *noted);
        if (noted == NULL)
            return false;
        *noted = running->slots[i];
    }
    return true;
}

void tni_trace_note(struct tni_trace *trace, const struct tni_task *task,
                    const struct tni_running *running, int status, uint64_t ended_ns)
{
    const struct tni_variant *variant = &running->signature->variants[running->variant];
    uint64_t began_ns = running->began_ns, cpu_until_ns = running->cpu_until_ns;
    if (cpu_until_ns == 0 || cpu_until_ns > ended_ns)
        cpu_until_ns = ended_ns;
    else if (cpu_until_ns <= began_ns)
        cpu_until_ns = TNI_MIN(began_ns + 1, ended_ns); /* it gives back what it has taken */
    tni_os_mutex_lock(&trace->lock);
    size_t first_slot = trace->slots.count;
    struct tni_trace_task *noted = note_slots(trace, running, variant->slot_count)
                                       ? tni_trace_push(&trace->tasks, sizeof *noted)
                                       : NULL;
    if (noted != NULL)
        *noted = (struct tni_trace_task){.kind = task->kind,
                                         .request = &variant->request,
                                         .graph = tni_graph_of(task)->trace_number,
                                         .number = task->id,
                                         .status = status,
                                         .pid = running->pid,
                                         .began_ns = began_ns,
                                         .ended_ns = ended_ns,
                                         .cpu_until_ns = cpu_until_ns,
                                         .first_slot = first_slot,
                                         .slot_count = variant->slot_count};
    else
        trace->lacks_memory = true;
    tni_os_mutex_unlock(&trace->lock);
}

/* ---- bytes of memories ------------------------------------------------------------------- */

/* Of one time, a memory has what it had last. */
static bool note_bytes(struct tni_trace *trace, struct tni_trace_bytes now)
{
    size_t *count = &trace->last[now.memory].count;
    struct tni_trace_bytes *noted = trace->bytes.items;
    if (*count > 0 && noted[*count - 1].ns == now.ns) {
        noted[*count - 1] = now;
        return true;
    }
    noted = tni_trace_push(&trace->bytes, sizeof *noted);
    if (noted == NULL)
        return false;
    *noted = now;
    *count = trace->bytes.count;
    return true;
}

void tni_trace_memories(struct tn_sched *sched)
{
    struct tni_trace *trace = sched->trace;
    const struct tni_memories *memories = &sched->plan.memories;
    for (uint32_t m = 0; m < memories->count; m++) {
        const struct tni_memory *its = &memories->all[m];
        uint64_t held = its->used + its->kept, moved = its->arrivals_bytes;
        if (held == trace->last[m].held && moved == trace->last[m].moved)
            continue; /* only the lock of the scheduler is needed to look at these two */
        tni_os_mutex_lock(&trace->lock);
        if (!note_bytes(trace,
                        (struct tni_trace_bytes){tni_sched_now_ns(sched), held, moved, m}))
            trace->lacks_memory = true;
        trace->last[m].held = held;
        trace->last[m].moved = moved;
        tni_os_mutex_unlock(&trace->lock);
    }
}

/* ---- writing ----------------------------------------------------------------------------- */

static bool copy_list(struct tni_trace_list *to, const struct tni_trace_list *from,
                      size_t item_bytes)
{
    to->items = malloc(from->count * item_bytes + 1);
    if (to->items != NULL && from->count > 0)
        memcpy(to->items, from->items, from->count * item_bytes);
    to->count = to->room = from->count;
    return to->items != NULL;
}

/*
 * Copy the trace, so that no task waits while it is written, which takes as long as the reader
 * of a pipe wants. Names are only added, so theirs are shared. @return 0, TN_ERR_NO_MEMORY
 */
static int copy_trace(struct tni_trace *to, struct tni_trace *from)
{
    tni_os_mutex_lock(&from->lock);
    bool is_copied = copy_list(&to->tasks, &from->tasks, sizeof(struct tni_trace_task));
    is_copied &= copy_list(&to->slots, &from->slots, sizeof(struct tni_slot_ref));
    is_copied &= copy_list(&to->edges, &from->edges, sizeof(struct tni_trace_edge));
    is_copied &= copy_list(&to->names, &from->names, sizeof(struct tni_trace_name));
    is_copied &= copy_list(&to->bytes, &from->bytes, sizeof(struct tni_trace_bytes));
    bool lacks_memory = from->lacks_memory;
    tni_os_mutex_unlock(&from->lock);
    if (lacks_memory)
        return tni_fail_plain(TN_ERR_NO_MEMORY,
                              "there was no memory to note what all tasks did");
    return is_copied ? 0 : tni_fail(TN_ERR_NO_MEMORY, "there is no memory to write a trace");
}

int tn_sched_write_trace(tn_sched *sched, int fd)
{
    int status = tni_sched_check(sched, "sched");
    if (status != 0)
        return status;
    if (sched->trace == NULL)
        return tni_fail_plain(TN_ERR_INVALID,
                              "the scheduler was made without TN_SCHED_TRACE: it has no trace");
    struct tni_trace copy = {0};
    status = copy_trace(&copy, sched->trace);
    if (status == 0)
        status = tni_trace_write(&copy, &sched->plan, fd);
    free_lists(&copy);
    return status;
}
