/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations that are killed: what their runners share.
 *
 * An operation runs in a forked member of a domain, which is killed: at each of its kill points
 * by crash_runner.c, at each of its instructions by tests/sweep. A survivor reclaims it, and
 * crash_world.c asks of the survivor: an audit that finds nothing, every live block accounted
 * for, and all that was shared still working.
 */
#ifndef TENON_TESTS_CRASH_H
#define TENON_TESTS_CRASH_H

#include "harness/harness.h"
#include "process/process.h"

/* One domain with one of each object, made anew for each death. */
struct crash_world {
    const struct crash_op *op;
    char name[32]; /* of the domain, if the operation wants one */
    tn_domain *domain;
    tn_inspector *inspector;
    tn_queue *queue;
    tn_event *event; /* resets itself */
    tn_semaphore *semaphore;
    tn_lock *lock;
    tn_condition *condition;
    tn_barrier *barrier;   /* of two */
    tn_queue *extra;       /* what prepare() opened besides; closed by the runner */
    tn_tensor *tensor[4];  /* what prepare() made and the survivor holds; may be NULL */
    tn_message leased[16]; /* what prepare() leased to the survivor; it acknowledges them */
    uint32_t leased_count;
    uint8_t handle[TN_HANDLE_MAX_BYTES];
    size_t handle_bytes;
    uint64_t base_blocks; /* live before prepare() */
    bool has_died;        /* the operation did not get to its end */
    unsigned file_count;  /* of crash_count_files() */
    pid_t helper;         /* a member that prepare() started; its finish() collects it */
};

struct crash_op {
    const char *name;
    uint32_t policy;   /* of the queue */
    bool is_owned;     /* the semaphore */
    bool is_one;       /* and it has one permit, not two */
    bool is_named;     /* the domain has a name, and so a tenond */
    bool needs_repair; /* prepare() damages the domain: the survivor audits with repair first */
    bool has_storages; /* outside of the arena: no object of theirs is left */
    bool is_costly;    /* its world, or its way, takes ten times as long as others */
    bool leaves_files; /* but for files, which go when the domain ends */
    uint32_t least, most; /* messages in the queue after a death; both 0: any number */
    void (*prepare)(struct crash_world *w); /* in the survivor; may be NULL */
    void (*run)(struct crash_world *w);     /* in the child */
    void (*finish)(struct crash_world *w);  /* in the survivor: ends who prepare() started; may
                                               be NULL */
    void (*check)(
        struct crash_world *w); /* in the survivor, once all is reclaimed; may be NULL */
};

extern const struct crash_op crash_memory_ops[], crash_push_ops[], crash_pop_ops[],
    crash_object_ops[], crash_sync_ops[], crash_member_ops[], crash_backing_ops[],
    crash_spawn_ops[], crash_wake_ops[];
/* All operations, one after the other; NULL is the end. */
const struct crash_op *crash_nth(unsigned n);

typedef void crash_step_fn(struct crash_world *w);

/* ---- a world (crash_world.c) ------------------------------------------------------------- */

/* What an operation exits with when something that it started was killed. */
enum { CRASH_KILLED_BELOW = 78 };

void crash_make_world(struct crash_world *w, const struct crash_op *op);
/* As the survivor: until no dead seat is left. */
void crash_reap(struct crash_world *w);
/* Until nobody but the survivor is left, and the audit finds nothing. */
void crash_reclaim(struct crash_world *w);
/* Reclaim, and ask of the survivor all that it must find; the world is gone afterwards. */
void crash_judge(struct crash_world *w);

/* ---- the runner -------------------------------------------------------------------------- */

/* A kill point and how often it is passed. */
struct crash_point {
    char name[64];
    unsigned passings;
};
enum { CRASH_MAX_POINTS = 192, CRASH_MOST_PASSINGS = 4 };
struct crash_points {
    struct crash_point point[CRASH_MAX_POINTS];
    unsigned count;
};

/*
 * Run a step in a forked member and kill it at the n-th passing of a point; NULL: at its end,
 * "": nowhere. @return whether it was killed there; all that it started has ended too.
 */
bool crash_run_and_die(struct crash_world *w, crash_step_fn *step, const char *point,
                       unsigned passing);
/* Add the points that an operation passes when nobody kills it. */
void crash_learn(const struct crash_op *op, struct crash_points *points);
/* Kill at every passing of every point, and at the end of the operation. */
void crash_run(const struct crash_op *op);
/* Let it die at each of its points, and kill who reclaims that, at points of his. */
void crash_run_reaper(const struct crash_op *op);
/* Add what the reaper passes after a death at each point of an operation. */
void crash_learn_reaper(const struct crash_op *op, struct crash_points *points);

/* ---- for operations ---------------------------------------------------------------------- */

/*
 * A shared tensor of bytes, all of them CRASH_BYTE; the runner checks every one that it pops.
 */
enum { CRASH_BYTE = 0x5a };
/* Writing payload is what a program does with a tensor; the sweep does not step through it. */
void crash_fill(void *data, size_t size_bytes);
tn_tensor *crash_tensor(struct crash_world *w, int64_t bytes);
/* The same in a storage outside of the arena: TN_STRATEGY_*, TN_SHARE_*. */
tn_tensor *crash_storage(struct crash_world *w, uint32_t strategy, uint32_t flags,
                         int64_t bytes);
/* Blocks that are not free. */
uint64_t crash_live_blocks(struct crash_world *w);
/* Files of the domain, whoever holds them. */
unsigned crash_count_files(struct crash_world *w);
/* Fail unless the domain has this many files, and if it is 0, no memory object either. */
void crash_check_storages(struct crash_world *w, unsigned files);
/* To look for memory objects in all processes takes longer than ten deaths: leave that out. */
extern bool crash_skips_search;
/* Fail if a thread of a member asks the quota for bytes: nobody is making anything now. */
void crash_check_intents(struct crash_world *w);
/* Push bytes and tensors of `bytes` each; the tensors are the message's alone. */
void crash_push(struct crash_world *w, uint32_t tensor_count, size_t size_bytes);
/* Of tni_ticket_for_each(), with the domain as its context. */
int crash_revoke(const tn_ticket_entry *ticket, void *context);
/* Pop one message, which must be there. */
tn_message crash_pop(struct crash_world *w);
/*
 * Fork in an operation, and wait. If the child was killed at a kill point, so is the operation.
 */
void crash_fork(struct crash_world *w, void (*run)(struct crash_world *w));
/* Fork a member that lives until the function returns; it leaves in good order. */
void crash_member(struct crash_world *w, void (*run)(struct crash_world *w));

#endif
