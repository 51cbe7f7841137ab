/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sweep: kill an operation at each of its machine instructions, each time in a new world.
 *
 * Nouns: scene (a process that is stepped, and the world around it), boundary (see tracer.h),
 * row (the results of a sweep, in memory that all its processes share).
 * I1  Each boundary has its own process, which makes the world, brings the victim to the
 *     boundary, kills it, reclaims it, and makes the checks of crash_judge(). The exit code of
 *     this process is the result.
 * I2  A boundary counts as swept only if the victim was there (tracer.h, I1) and each check
 *     passed.
 */
#ifndef TENON_TESTS_SWEEP_H
#define TENON_TESTS_SWEEP_H

#include "sweep/tracer.h"

/* A member that is paused in the middle of its own operation while another member dies. */
struct sweep_peer {
    crash_step_fn *run;
    uint32_t pause;      /* the boundary of its run at which it is paused */
    struct trace *trace; /* of its run */
};

struct scene {
    char name[128];
    const struct crash_op *op;
    const char *point;       /* if set: a victim died there, and its reclaimer is stepped */
    bool in_child;           /* the first process that the operation forks is stepped */
    struct sweep_peer *peer; /* may be NULL */
};

struct sweep_plan {
    uint32_t every;    /* sweep every n-th boundary; 0 is 1 */
    uint32_t most;     /* sweep at most this many boundaries of a scene; 0: any number */
    uint32_t scenes;   /* at most this many scenes of a row; 0: all */
    uint32_t steps;    /* record at most this many steps of a run; 0: all */
    uint64_t seed;     /* decides the first boundary */
    int64_t at;        /* only this boundary; -1: all */
    int64_t pause;     /* pause the peer only at this boundary; -1: at several */
    const char *point; /* for the reaper: the kill point of the first death; NULL: each */
    uint64_t end_ns;   /* begin no boundary after this time; 0: no limit */
};

/*
 * A row ends after this many failures: if an operation hangs, each boundary takes a minute to
 * fail.
 */
enum { SWEEP_FAILURES = 3 };
struct sweep_row {
    uint32_t boundaries; /* of the scene; 0: it was not swept */
    uint32_t tried, swept, strayed, failures;
    uint32_t cut_at; /* a run was longer than these steps, which were recorded; 0: no run was */
    bool is_late;    /* the row was not complete at end_ns */
};

/*
 * Whether at most three in ten of the tried boundaries took another way than the recorded one.
 */
bool sweep_is_good(const struct sweep_row *row);
/* Called when a failure has been described on stdout; may be NULL. */
extern void (*sweep_on_failure)(void);

/* Record a run of the peer without a victim. */
void sweep_record_peer(struct scene *scene);
/* Sweep a scene and add the results to the row. Failures are described on stdout. */
void sweep_scene(struct scene *scene, const struct sweep_plan *plan, struct sweep_row *row);
/* Memory that forked children share, zeroed. */
void *sweep_share(size_t size_bytes);

/* ---- pairs (pairs.c) --------------------------------------------------------------------- */

/*
 * An operation of a victim or of a peer. Both run in a world that has an object for each
 * operation.
 */
struct pair_op {
    const char *name;
    crash_step_fn *run;
    uint32_t policy;     /* of the queue, if the victim runs this operation */
    int32_t least, most; /* messages that it adds to the queue or takes from it */
    bool needs_dead;     /* the operation needs a dead member that is not reclaimed */
    bool has_storages;
    bool has_store; /* the operation uses a store */
    bool has_channel;
};
extern const struct pair_op pair_ops[];
unsigned pair_op_count(void);
enum { PAIR_MESSAGES = 3 };

/*
 * Kill a victim while a peer is paused, at plan->scenes boundaries of the peer, kill points
 * first.
 */
void sweep_pair(const struct pair_op *victim, const struct pair_op *peer,
                const struct sweep_plan *plan, struct sweep_row *row);

/* ---- the reaper (reaper.c) --------------------------------------------------------------- */

/* Step the reclaimer of a death at each kill point of an operation. */
void sweep_reaper(const struct crash_op *op, const struct sweep_plan *plan,
                  struct sweep_row *row);
/*
 * false: the operation passes no kill point. The function names each such operation, so that
 * another one without kill points fails the sweep.
 */
bool sweep_has_points(const struct crash_op *op);
/* Whether the operation forks a process that is swept too. */
bool sweep_has_child(const struct crash_op *op);

#endif
