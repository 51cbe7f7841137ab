/* SPDX-License-Identifier: Apache-2.0 */
/* trace: what the tasks of a scheduler did, and how it is written. Private to the room sched.
 */
#ifndef TNI_SCHED_TRACE_H
#define TNI_SCHED_TRACE_H

#include <stdlib.h>

#include "os/os.h"
#include "sched/sched.h"

/* A task that has ended. */
struct tni_trace_task {
    const struct tn_kind *kind;
    const struct tni_request *request; /* what it had */
    uint32_t graph, number;            /* the number of its graph, and its own there */
    int32_t status, pid;
    uint64_t began_ns, ended_ns;
    uint64_t cpu_until_ns; /* it had its CPUs, or its thread, until then: ended_ns or before */
    const char *name;      /* set when the trace is written; NULL: it has none */
    size_t first_slot, first_lane;
    uint32_t slot_count, lane_count;
};

/* What a memory had from a time on, until its next one. */
struct tni_trace_bytes {
    uint64_t ns;
    uint64_t held, moved; /* bytes: of the copies there; and copied to it, until then */
    uint32_t memory;
};

/* An array that grows. */
struct tni_trace_list {
    void *items;
    size_t count, room;
};

struct tni_trace {
    tni_os_mutex lock;
    struct tni_trace_list tasks; /* of tni_trace_task */
    struct tni_trace_list slots; /* of tni_slot_ref: those of one task side by side */
    struct tni_trace_list edges, names;
    struct tni_trace_list bytes; /* of tni_trace_bytes, by time */
    struct {
        uint64_t held, moved;
        size_t count; /* of `bytes` after its last one; 0: there is none */
    } last[TNI_MEMORIES];
    uint32_t graph_count;
    bool lacks_memory; /* something was not noted */
};

struct tni_trace_edge {
    uint32_t graph, from, to;
};

struct tni_trace_name {
    uint32_t graph, number;
    char *name; /* owned */
};

/** Add an item of `item_bytes`. @return where to fill it in; NULL: no memory */
static inline void *tni_trace_push(struct tni_trace_list *list, size_t item_bytes)
{
    if (list->count == list->room) {
        size_t room = list->room == 0 ? 64 : 2 * list->room;
        void *larger =
            room <= SIZE_MAX / item_bytes ? realloc(list->items, room * item_bytes) : NULL;
        if (larger == NULL)
            return NULL;
        list->items = larger;
        list->room = room;
    }
    return (char *)list->items + list->count++ * item_bytes;
}
/**
 * Write all as JSON to a descriptor.
 * @param trace  a copy, whose tasks are put into another order
 * @return 0, TN_ERR_NO_MEMORY, TN_ERR_SYSTEM, TN_ERR_CLOSED
 */
int tni_trace_write(const struct tni_trace *trace, const struct tni_plan *plan, int fd);

#endif
