/* SPDX-License-Identifier: Apache-2.0 */
/* worker: a member that uses everything, and what it has open. */
#ifndef TENON_TESTS_HOSTILE_WORKER_H
#define TENON_TESTS_HOSTILE_WORKER_H

#include "world.h"

enum { QUEUES = 3, KEPT = 24, HANDLE_BYTES = 1024 };

struct worker {
    struct board *board;
    struct desk *desk;
    uint32_t index;
    tn_domain *domain;
    tn_queue *queues[QUEUES]; /* by policy */
    tn_event *event;
    tn_semaphore *permits, *owned;
    tn_lock *lock;
    tn_condition *condition;
    tn_barrier *barrier;
    tn_tensor *kept[KEPT];
    uint8_t handle[HANDLE_BYTES]; /* exported last */
    size_t handle_bytes;
    bool is_founder;
    /* Of the last call, for its end: a forked child writes at its parent's desk. */
    const char *doing;
    uint64_t since_ns, limit_ns;
};

/** A call begins, which must end within `limit_ms`. */
void call_begins(struct worker *w, const char *what, uint32_t limit_ms);
/** It ended: checks time and status. @return status */
int call_ends(struct worker *w, int status);

/* A call with the deadline that soon() gave, and one without. */
#define TIMED(w, call)   (call_begins(w, #call, WAIT_MS + MARGIN_MS), call_ends(w, call))
#define UNTIMED(w, call) (call_begins(w, #call, UNBOUND_MS), call_ends(w, call))
#define VOID(w, call)    (call_begins(w, #call, UNBOUND_MS), (void)(call), (void)call_ends(w, 0))

tn_deadline soon(void);

/** Open what is missing. */
void open_objects(struct worker *w);
void close_objects(struct worker *w);
/** One operation, chosen at random. */
void do_something(struct worker *w);

#endif
