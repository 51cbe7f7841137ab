/* SPDX-License-Identifier: Apache-2.0 */
/* sched: what the type Scheduler and its runs of graphs share. */
#ifndef TENON_CORE_SCHED_H
#define TENON_CORE_SCHED_H

#include "core.h"

typedef struct tnp_sched tnp_sched;

/* What a task calls: the first member of a struct with the rest. */
struct tnp_call {
    tnp_sched *of; /* that runs it */
    /* With the GIL; returns what a tn_task_fn returns. */
    int (*run)(struct tnp_call *call, const tn_task_call *now);
};

/* What a scheduler notes of its tasks, if it was made with trace=True (trace.c). */
struct tnp_trace;

/* A graph of Python calls that runs, or that ran and has tasks that have not ended (run.c). */
struct tnp_run;

/* The graph of a batch of calls (batch.c). */
struct tnp_batch_entry {
    tn_graph *graph;
    bool is_open; /* its object is there, and may add calls */
};

struct tnp_sched {
    PyObject_HEAD tn_sched *sched; /* NULL: closed */
    PyObject *weak;
    tn_kind **kinds; /* [kind_count], owned by sched; Python names a kind by its index */
    size_t kind_count, kind_room;
    struct tnp_batch_entry *batches; /* [batch_count] */
    size_t batch_count, batch_room;
    uint32_t waiters;           /* threads that wait for batches, which stay meanwhile */
    bool has_affinity;          /* some kinds have */
    uint32_t callers;           /* threads in run() or close() */
    bool is_ending;             /* runs end as soon as their tasks that have begun */
    PyObject *ran_out;          /* owned; tells whether an error says that memory ran out, and
                                   gives memory back; NULL: no task runs again */
    struct tnp_trace *trace;    /* owned; NULL: nothing is noted */
    struct tnp_run *unfinished; /* runs that were left before all their tasks had ended */
};

/** The scheduler whose task this thread runs; NULL: it runs none. */
extern _Thread_local const tnp_sched *tnp_sched_of_task;
/** Note in the trace, if there is one, that the task of this thread gave back its CPU then. */
void tnp_note_secession(uint64_t at_ns);
/** How large the result of the task of this thread is, as it said last; 0: it did not. */
extern _Thread_local uint64_t tnp_bytes_of_task;
/** Say how large it is, for affinity and for the trace. @return a status */
int tnp_say_bytes(uint64_t bytes);

/**
 * The call of a task has returned in a child that the task has forked, with an error or not:
 * end the child, as leave_forked() of tenon._resources says.
 */
_Noreturn void tnp_leave_forked(void);

/** The scheduler of an object that is not closed. NULL: raised (Closed) */
tn_sched *tnp_sched_of(tnp_sched *its);
/** The kind for an index. NULL: raised (Invalid) */
tn_kind *tnp_kind_of(tnp_sched *its, PyObject *index);
/**
 * Make room for one more item of an array: `room` items fit into it, and `count` are there.
 * PyMem_RawFree() frees it, also without the GIL.
 * @return the array, which may have moved, or NULL: no memory, and the array is as before
 */
static inline void *tnp_grow(void *array, size_t item_bytes, size_t count, size_t *room)
{
    if (count < *room)
        return array;
    size_t more = *room == 0 ? 64 : 2 * *room;
    void *larger =
        more <= SIZE_MAX / item_bytes ? PyMem_RawRealloc(array, more * item_bytes) : NULL;
    if (larger != NULL)
        *room = more;
    return larger;
}
/** Make a trace. NULL: no memory */
struct tnp_trace *tnp_trace_make(void);
void tnp_trace_free(struct tnp_trace *trace);
/** A tn_trace_fn; the context is a trace. With the GIL, as all that threads of a scheduler do.
 */
void tnp_trace_note(const tn_task_event *event, void *trace);
/** Note when a task gave back its CPU, before it ends. */
void tnp_trace_secede(struct tnp_trace *trace, const tn_task_call *call, uint64_t at_ns);
/** Begin to note a graph. 0, or a status */
int tnp_trace_begin(struct tnp_trace *trace, const tn_graph *graph);
/** The number of a graph in the trace: of the one of this address that was begun last. */
uint64_t tnp_trace_number(const struct tnp_trace *trace, const tn_graph *graph);
/** Note that a task of the graph that was begun last waits for another. 0, or a status */
int tnp_trace_connect(struct tnp_trace *trace, uint32_t from, uint32_t to);
/** Scheduler.events, Scheduler.edges: see _core.pyi. */
PyObject *tnp_sched_events(tnp_sched *its, PyObject *unused);
PyObject *tnp_sched_edges(tnp_sched *its, PyObject *unused);

/** Scheduler.batch: see _core.pyi. */
PyObject *tnp_sched_batch(tnp_sched *its, PyObject *unused);
/** Make the type Batch. -1: raised */
int tnp_batch_init(PyObject *module);
/** Scheduler.kind: see _core.pyi. */
PyObject *tnp_sched_kind(tnp_sched *its, PyObject *args);
/** Scheduler.run: see _core.pyi. */
PyObject *tnp_sched_run(tnp_sched *its, PyObject *args);
/** Make the names of attributes. -1: raised */
int tnp_run_init(void);
/** Free the runs of `unfinished` that have ended; all of them after the scheduler is closed. */
void tnp_runs_free(tnp_sched *its);

#endif
