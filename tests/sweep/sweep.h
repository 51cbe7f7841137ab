/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sweep: a death at every machine instruction of an operation, each in a world of its own.
 *
 * Nouns: scene (what is stepped, and what stands around it), boundary (see tracer.h), row (what
 * a sweep found; in memory that all its processes share).
 * I1  Each boundary has a process of its own, which makes the world, brings the victim there,
 *     kills it, reclaims it, and asks all that crash_judge() asks. How it exits is the verdict.
 * I2  A boundary counts as swept only if the victim was there (tracer.h, I1) and all was well.
 */
#ifndef TENON_TESTS_SWEEP_H
#define TENON_TESTS_SWEEP_H

#include "sweep/tracer.h"

/* A member that is paused in the middle of an operation of its own while another one dies. */
struct sweep_peer {
    crash_step_fn *run;
    uint32_t pause;      /* a boundary of its own run */
    struct trace *trace; /* of that */
};

struct scene {
    char name[128];
    const struct crash_op *op;
    const char *point; /* if set: a victim died there, and who reclaims it is the one stepped */
    bool in_child;     /* the first process that the operation forks is the one stepped */
    struct sweep_peer *peer; /* may be NULL */
};

struct sweep_plan {
    uint32_t every;    /* n-th boundary; 0 is 1 */
    uint32_t most;     /* boundaries of one scene; 0: any number */
    uint32_t scenes;   /* most of a row that has several; 0: all */
    uint32_t steps;    /* most that are recorded of a way; 0: all */
    uint64_t seed;     /* where to begin */
    int64_t at;        /* this boundary alone; -1: not so */
    int64_t pause;     /* of the peer, at this boundary alone; -1: not so */
    const char *point; /* of the first death, for the reaper; NULL: each */
    uint64_t end_ns;   /* nothing is begun after it; 0: never */
};

/* Enough of one row: if an operation hangs, each boundary takes a minute to fail. */
enum { SWEEP_FAILURES = 3 };
struct sweep_row {
    uint32_t boundaries; /* of the scene; 0: it was not looked at */
    uint32_t tried, swept, strayed, failures;
    uint32_t cut_at; /* a way was longer than these steps, which were recorded; 0: none was */
    bool is_late;    /* end_ns came before its end */
};

/* Most of what was tried was swept: at most three in ten strayed. */
bool sweep_is_good(const struct sweep_row *row);
/* Called when a failure has been described on stdout; may be NULL. */
extern void (*sweep_on_failure)(void);

/* Record what the peer does when it is alone. */
void sweep_record_peer(struct scene *scene);
/* Adds to the row. Failures are described on stdout. */
void sweep_scene(struct scene *scene, const struct sweep_plan *plan, struct sweep_row *row);
/* Memory that forked children share, zeroed. */
void *sweep_share(size_t size_bytes);

/* ---- pairs (pairs.c) --------------------------------------------------------------------- */

/* Both are brought into a world that has something for each operation. */
struct pair_op {
    const char *name;
    crash_step_fn *run;
    uint32_t policy;     /* of the queue, if it is the victim's */
    int32_t least, most; /* messages that it adds to the queue or takes from it */
    bool needs_dead;     /* a dead member that nobody has reclaimed */
    bool has_storages;
};
extern const struct pair_op pair_ops[];
unsigned pair_op_count(void);
enum { PAIR_MESSAGES = 3 };

/* A victim against a peer that is paused at plan->scenes boundaries, kill points first. */
void sweep_pair(const struct pair_op *victim, const struct pair_op *peer,
                const struct sweep_plan *plan, struct sweep_row *row);

/* ---- the reaper (reaper.c) --------------------------------------------------------------- */

/* Who reclaims a death at each kill point of an operation. */
void sweep_reaper(const struct crash_op *op, const struct sweep_plan *plan,
                  struct sweep_row *row);
/* false: it comes to no kill point. Named, so that another one without any is a failure. */
bool sweep_has_points(const struct crash_op *op);
/* Whether the operation forks a process that is worth a sweep of its own. */
bool sweep_has_child(const struct crash_op *op);

#endif
