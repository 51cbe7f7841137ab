/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tracer: run a process one instruction at a time, and record the addresses of its
 * instructions.
 *
 * Nouns: traced (a member that is stepped), place (its next instruction's address), boundary k
 * (the place after k instructions), trace (the places of all boundaries of a run), route (the
 * shortest way to a boundary, in single steps and in runs to a breakpoint).
 * I1  A traced process is at boundary k only if it came along the route and the last steps were
 *     to the places of the trace. Else it has strayed, and the boundary is not counted.
 * I2  A system call is one instruction. So is what an operation asks for the test's own sake:
 *     crash_fill(), which writes payload, and crash_check_...(). So is a call of the fake
 *     driver: crash_run_driver() kills before and after each. A repeated instruction (rep)
 *     counts once each time.
 * Only the thread that runs the operation is stepped. Linux on x86-64 only: elsewhere
 * tracer_why_not() says so.
 */
#ifndef TENON_TESTS_TRACER_H
#define TENON_TESTS_TRACER_H

#include "process/crash.h"

struct traced {
    pid_t pid;    /* the stepped process */
    pid_t member; /* our child: the stepped process, or its parent */
    int end_fd;   /* reports the end of file when each process that it started has ended */
    uint64_t place;
    bool has_ended; /* nothing is left to step: it exited, or is another program */
    int status;     /* of its end, as of waitpid(); with has_ended */
};

/* @return NULL, or why nothing can be stepped here */
const char *tracer_why_not(void);
/*
 * Whether there are breakpoints. Without them the tracer steps all the way to each boundary.
 */
bool tracer_has_breakpoints(void);
/* Use no breakpoints. */
void tracer_only_walk(void);

/*
 * Fork a member of the world that will do `step` and exit with 0. It stops before the first
 * instruction of `step`; or with in_child, the first process that it forks stops before its
 * first instruction.
 */
void tracer_start(struct traced *t, struct crash_world *w, crash_step_fn *step, bool in_child);
/* One instruction. @return whether there is a next one */
bool tracer_step(struct traced *t);
/* Run until it comes to a place other than its present one. @return whether it came there */
bool tracer_run_to(struct traced *t, uint64_t place);
/* Kill it where it is. Returns when each process that it started has ended. */
void tracer_kill(struct traced *t);
/* Let it continue, and wait for its end, which must be an exit with 0. */
void tracer_finish(struct traced *t);

/* ---- traces ------------------------------------------------------------------------------ */

enum { TRACE_MOST = 1 << 22 };
struct trace {
    uint64_t *place; /* [TRACE_MOST], shared with forked children, as the other two are */
    uint32_t count;  /* boundaries: one more than instructions */
    bool is_whole;   /* it came to its end */
    uint32_t *stops; /* [TRACE_MOST]: on the shortest way to it */
    int32_t *from;   /* [TRACE_MOST]: where the route to it comes from; -1: the one before */
};

struct trace *trace_make(void);
struct trace *trace_free(struct trace *trace);
/*
 * Step to the end, and record the places. With may_block_ms, the trace ends at a step that
 * takes that long, since it waits for another process.
 */
void trace_record(struct trace *trace, struct traced *t, uint32_t most, unsigned may_block_ms);
/* Find all routes. pre: recorded */
void trace_route(struct trace *trace);
/* pre: at boundary 0. @return whether it is at boundary k now */
bool trace_walk(const struct trace *trace, struct traced *t, uint32_t k);
/* I2: whether a function of the test begins here that is one instruction. */
bool tracer_is_one(uint64_t place);
/* Whether boundary k is where the operation is over. */
bool trace_is_end(const struct trace *trace, uint32_t k);

#endif
