/* SPDX-License-Identifier: Apache-2.0 */
/* worker: a member that uses every kind of object, and the objects that it has open. */
#ifndef TENON_TESTS_HOSTILE_WORKER_H
#define TENON_TESTS_HOSTILE_WORKER_H

#include "world.h"

enum { QUEUES = 3, KEPT = 24, HANDLE_BYTES = 1024, STORE_KEYS = 8, CHANNELS = 3 };

struct worker {
    struct board *board;
    struct desk *desk;
    uint32_t index;
    tn_domain *domain;
    tn_queue *queues[QUEUES]; /* one for each policy */
    tn_event *event;
    tn_semaphore *permits, *owned;
    tn_lock *lock;
    tn_condition *condition;
    tn_barrier *barrier;
    tn_store *store;
    tn_channel *channels[CHANNELS]; /* one for each policy */
    tn_tensor *kept[KEPT];
    uint8_t handle[HANDLE_BYTES]; /* the handle that was exported last */
    size_t handle_bytes;
    bool is_founder;
    /* Kept for the end of a call: a forked child writes at its parent's desk. */
    const char *doing;
    uint64_t since_ns, limit_ns;
};

/** Note that a call begins, which must return within `limit_ms`. */
void call_begins(struct worker *w, const char *what, uint32_t limit_ms);
/** Note that the call returned, and check its time and status. @return status */
int call_ends(struct worker *w, int status);

/* Make a call with the deadline that soon() gave, and one without. */
#define TIMED(w, call)   (call_begins(w, #call, WAIT_MS + MARGIN_MS), call_ends(w, call))
#define UNTIMED(w, call) (call_begins(w, #call, UNBOUND_MS), call_ends(w, call))
#define VOID(w, call)    (call_begins(w, #call, UNBOUND_MS), (void)(call), (void)call_ends(w, 0))

tn_deadline soon(void);

/** Open the objects that are missing. */
void open_objects(struct worker *w);
void close_objects(struct worker *w);
/** Do one operation, chosen at random. */
void do_something(struct worker *w);

#endif
