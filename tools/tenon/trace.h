/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trace: writes the run of a graph as JSON that the trace viewers of Chrome and Perfetto open.
 *
 * Each resource is a process of the viewer. Its threads are lanes: one for each slot that was
 * in use, and one for each CPU. A task is drawn in each lane that it had, and an arrow leads
 * from each input to the task. A task without a slot that requests less than one CPU has a lane
 * of THREADS. For each resource, a counter shows how much of it was in use.
 */
#ifndef TENON_TOOL_TRACE_H
#define TENON_TOOL_TRACE_H

#include <stdint.h>
#include <stdio.h>
#include <tenon/sched.h>

/** A task that ran. All pointers are borrowed until trace_destroy(). */
struct trace_task {
    const char *kind;      /* the name of its kind */
    const char *id;        /* NULL: it has none */
    const char *slots;     /* as in tn_task_event */
    const double *amounts; /* [resource_count]: what it had of each resource */
    uint64_t number;       /* in its graph */
    uint64_t began_ns, ended_ns;
};

struct trace;

/**
 * @param resources  [count], 32 at most: of tn_sched_info; borrowed until trace_destroy()
 * @return NULL: no memory
 */
struct trace *trace_create(const tn_resource_info *resources, uint32_t count);
/** Add a task. The first one has the place 0. @return 0, or -1: no memory */
int trace_add(struct trace *trace, const struct trace_task *task);
/** Add an edge from an input to a task, by their places. @return 0, or -1: no memory */
int trace_connect(struct trace *trace, uint32_t from, uint32_t to);
/** Write all to the file, once. @return 0, or -1: no memory; ferror() tells a failed write */
int trace_write(struct trace *trace, FILE *file);
/** Returns NULL; NULL is accepted. */
struct trace *trace_destroy(struct trace *trace);

#endif
