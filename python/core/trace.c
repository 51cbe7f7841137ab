/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trace: notes what tasks of a scheduler did, for tenon.trace().
 *
 * All of it happens with the GIL. Numbers of graphs are given here, since the address of a
 * graph is used again when it is closed.
 */
#include "sched.h"

#include <stdlib.h>
#include <string.h>

_Thread_local uint64_t tnp_bytes_of_task;

struct event {
    char *kind, *slots; /* owned */
    uint64_t graph, task, began_ns, ended_ns, cpu_until_ns;
    uint64_t bytes; /* of its result, if that is an array */
    uint32_t variant;
    int status;
};

struct tnp_trace {
    struct event *events; /* [event_count], owned */
    struct edge {
        uint64_t graph;
        uint32_t from, to;
    } * edges; /* [edge_count], owned */
    struct begun {
        const tn_graph *graph;
        uint64_t number;
    } * begun; /* [begun_count], owned: the newest last */
    struct seceded {
        const tn_graph *graph;
        uint64_t task, at_ns;
    } * seceded; /* [seceded_count], owned: tasks without a CPU, which have not ended */
    size_t event_count, event_room, edge_count, edge_room, begun_count, begun_room;
    size_t seceded_count, seceded_room;
    uint64_t lost; /* events for which there was no memory */
};

struct tnp_trace *tnp_trace_make(void) { return calloc(1, sizeof(struct tnp_trace)); }

void tnp_trace_free(struct tnp_trace *trace)
{
    if (trace == NULL)
        return;
    for (size_t i = 0; i < trace->event_count; i++) {
        free(trace->events[i].kind);
        free(trace->events[i].slots);
    }
    PyMem_RawFree(trace->events);
    PyMem_RawFree(trace->edges);
    PyMem_RawFree(trace->begun);
    PyMem_RawFree(trace->seceded);
    free(trace);
}

int tnp_trace_begin(struct tnp_trace *trace, const tn_graph *graph)
{
    struct begun *begun =
        tnp_grow(trace->begun, sizeof *begun, trace->begun_count, &trace->begun_room);
    if (begun == NULL)
        return TN_ERR_NO_MEMORY;
    trace->begun = begun;
    begun[trace->begun_count] = (struct begun){graph, trace->begun_count + 1};
    trace->begun_count++;
    return 0;
}

int tnp_trace_connect(struct tnp_trace *trace, uint32_t from, uint32_t to)
{
    struct edge *edges =
        tnp_grow(trace->edges, sizeof *edges, trace->edge_count, &trace->edge_room);
    if (edges == NULL)
        return TN_ERR_NO_MEMORY;
    trace->edges = edges;
    edges[trace->edge_count++] =
        (struct edge){trace->begun[trace->begun_count - 1].number, from, to};
    return 0;
}

uint64_t tnp_trace_number(const struct tnp_trace *trace, const tn_graph *graph)
{
    size_t i = trace->begun_count;
    while (i > 0 && trace->begun[i - 1].graph != graph)
        i--;
    return i > 0 ? trace->begun[i - 1].number : 0;
}

void tnp_trace_secede(struct tnp_trace *trace, const tn_task_call *call, uint64_t at_ns)
{
    struct seceded *seceded =
        tnp_grow(trace->seceded, sizeof *seceded, trace->seceded_count, &trace->seceded_room);
    if (seceded == NULL) {
        trace->lost++;
        return;
    }
    trace->seceded = seceded;
    seceded[trace->seceded_count++] = (struct seceded){call->graph, call->task, at_ns};
}

/* Until when a task that has ended had its CPU. An earlier run of the task may have notes too.
 */
static uint64_t take_cpu_until(struct tnp_trace *trace, const tn_task_event *event)
{
    uint64_t until_ns = event->ended_ns;
    for (size_t i = trace->seceded_count; i > 0; i--) {
        const struct seceded *seceded = &trace->seceded[i - 1];
        if (seceded->graph != event->graph || seceded->task != event->task)
            continue;
        if (seceded->at_ns >= event->began_ns && seceded->at_ns < until_ns)
            until_ns = seceded->at_ns;
        trace->seceded[i - 1] = trace->seceded[--trace->seceded_count];
    }
    return until_ns;
}

void tnp_trace_note(const tn_task_event *event, void *context)
{
    struct tnp_trace *trace = context;
    struct event *events =
        tnp_grow(trace->events, sizeof *events, trace->event_count, &trace->event_room);
    char *kind = strdup(event->kind), *slots = strdup(event->slots);
    uint64_t cpu_until_ns = take_cpu_until(trace, event);
    if (events != NULL)
        trace->events = events;
    if (events == NULL || kind == NULL || slots == NULL) {
        free(kind);
        free(slots);
        trace->lost++;
        return;
    }
    events[trace->event_count++] =
        (struct event){.kind = kind,
                       .slots = slots,
                       .graph = tnp_trace_number(trace, event->graph),
                       .task = event->task,
                       .began_ns = event->began_ns,
                       .ended_ns = event->ended_ns,
                       .cpu_until_ns = cpu_until_ns,
                       .bytes = tnp_bytes_of_task,
                       .variant = event->variant,
                       .status = event->status};
}

PyObject *tnp_sched_events(tnp_sched *its, PyObject *unused)
{
    (void)unused;
    const struct tnp_trace *trace = its->trace;
    if (trace != NULL && trace->lost > 0)
        return PyErr_NoMemory();
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list != NULL && trace != NULL && i < trace->event_count; i++) {
        const struct event *event = &trace->events[i];
        PyObject *item = Py_BuildValue(
            "KKssKKKiKI", (unsigned long long)event->graph, (unsigned long long)event->task,
            event->kind, event->slots, (unsigned long long)event->began_ns,
            (unsigned long long)event->ended_ns, (unsigned long long)event->cpu_until_ns,
            event->status, (unsigned long long)event->bytes, event->variant);
        if (item == NULL || PyList_Append(list, item) < 0)
            Py_CLEAR(list);
        Py_XDECREF(item);
    }
    return list;
}

PyObject *tnp_sched_edges(tnp_sched *its, PyObject *unused)
{
    (void)unused;
    const struct tnp_trace *trace = its->trace;
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list != NULL && trace != NULL && i < trace->edge_count; i++) {
        const struct edge *edge = &trace->edges[i];
        PyObject *item =
            Py_BuildValue("KII", (unsigned long long)edge->graph, edge->from, edge->to);
        if (item == NULL || PyList_Append(list, item) < 0)
            Py_CLEAR(list);
        Py_XDECREF(item);
    }
    return list;
}
