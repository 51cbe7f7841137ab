/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations whose process is killed, and what their runners share.
 *
 * An operation runs in a forked member of a domain. crash_runner.c kills the member at each of
 * its kill points, and tests/sweep at each of its instructions. A survivor reclaims the dead
 * member. Then crash_world.c checks that an audit finds nothing, that each live block has a
 * reason to live, and that every shared object still works.
 */
#ifndef TENON_TESTS_CRASH_H
#define TENON_TESTS_CRASH_H

#include "harness/harness.h"
#include "process/process.h"

/* A domain with one object of each kind. Each death has a new one. */
struct crash_world {
    const struct crash_op *op;
    char name[32]; /* the name of the domain, if the operation needs one */
    tn_domain *domain;
    tn_inspector *inspector;
    tn_queue *queue;
    tn_event *event; /* resets itself */
    tn_semaphore *semaphore;
    tn_lock *lock;
    tn_condition *condition;
    tn_barrier *barrier;   /* of two */
    tn_store *store;       /* that prepare() opened; the runner closes it */
    tn_queue *extra;       /* a second queue that prepare() opened; the runner closes it */
    tn_tensor *tensor[4];  /* tensors that prepare() made and the survivor holds; may be NULL */
    tn_message leased[16]; /* messages that prepare() leased to the survivor, which acknowledges
                              them */
    uint32_t leased_count;
    /* That prepare() opened, too: a channel, and two handles that are subscribers of it. */
    tn_channel *channel, *reader, *behind;
    uint8_t handle[TN_HANDLE_MAX_BYTES];
    size_t handle_bytes;
    uint64_t base_blocks; /* live before prepare() */
    bool has_died;        /* the process of the operation was killed before its end */
    unsigned file_count;  /* of crash_count_files() */
    pid_t helper;         /* a member that prepare() started; its finish() collects it */
};

struct crash_op {
    const char *name;
    uint32_t policy;   /* of the queue */
    bool is_owned;     /* the semaphore */
    bool is_one;       /* the semaphore has one permit instead of two */
    bool is_named;     /* the domain has a name, and so a tenond */
    bool needs_repair; /* prepare() damages the domain: the survivor audits with repair first */
    bool has_storages; /* it makes storages outside of the arena: no memory object of theirs may
                          be left */
    bool is_costly;    /* a run takes ten times as long as one of another operation */
    bool leaves_files; /* files may be left, which end with the domain */
    bool leaves_promises; /* a store may have a promise of the dead process */
    bool is_on_device;    /* it uses the fake driver, in a universe that ends with the world */
    uint32_t least, most; /* messages in the queue after a death; both 0: any number */
    void (*prepare)(struct crash_world *w); /* in the survivor; may be NULL */
    void (*run)(struct crash_world *w);     /* in the child */
    void (*finish)(struct crash_world *w); /* in the survivor: ends the processes that prepare()
                                              started; may be NULL */
    void (*check)(struct crash_world *w);  /* in the survivor, after it reclaimed every dead
                                              process; may be NULL */
};

extern const struct crash_op crash_memory_ops[], crash_push_ops[], crash_pop_ops[],
    crash_object_ops[], crash_sync_ops[], crash_member_ops[], crash_backing_ops[],
    crash_spawn_ops[], crash_store_ops[], crash_channel_ops[], crash_wake_ops[],
    crash_device_ops[];
/* All operations. The last entry is NULL. */
const struct crash_op *crash_nth(unsigned n);

typedef void crash_step_fn(struct crash_world *w);

/* ---- a world (crash_world.c) ------------------------------------------------------------- */

/* The exit code of an operation when a process that it started was killed. */
enum { CRASH_KILLED_BELOW = 78 };

void crash_make_world(struct crash_world *w, const struct crash_op *op);
/* In the survivor: reap until no dead seat is left. */
void crash_reap(struct crash_world *w);
/* Wait until the survivor is the only member, and check that the audit finds nothing. */
void crash_reclaim(struct crash_world *w);
/* Reclaim dead processes, make every check in the survivor, and end the world. */
void crash_judge(struct crash_world *w);

/* ---- the runner -------------------------------------------------------------------------- */

/* A kill point, and how often an operation passes it. */
struct crash_point {
    char name[64];
    unsigned passings;
};
enum { CRASH_MAX_POINTS = 256, CRASH_MOST_PASSINGS = 4 };
struct crash_points {
    struct crash_point point[CRASH_MAX_POINTS];
    unsigned count;
};

/*
 * Run a step in a forked member and kill the member at the n-th passing of a point; NULL: at
 * the end of the step, "": nowhere. @return whether it was killed there. Each process that it
 * started has ended too.
 */
bool crash_run_and_die(struct crash_world *w, crash_step_fn *step, const char *point,
                       unsigned passing);
/* Add the points that an operation passes when its process is not killed. */
void crash_learn(const struct crash_op *op, struct crash_points *points);
/* Kill at every passing of every point, and at the end of the operation. */
void crash_run(const struct crash_op *op);
/*
 * Kill the operation at each of its points, and kill its reclaimer at points of the reclaimer.
 */
void crash_run_reaper(const struct crash_op *op);
/* Add the points that the reaper passes after a death at each point of an operation. */
void crash_learn_reaper(const struct crash_op *op, struct crash_points *points);

/* ---- for operations ---------------------------------------------------------------------- */

/*
 * A shared tensor of bytes, all of them CRASH_BYTE; the runner checks every one that it pops.
 */
enum { CRASH_BYTE = 0x5a };
/*
 * Write the payload of a tensor. Programs do that, not the library: the sweep does not step
 * through it.
 */
void crash_fill(void *data, size_t size_bytes);
tn_tensor *crash_tensor(struct crash_world *w, int64_t bytes);
/* Make the same tensor in a storage outside of the arena: TN_STRATEGY_*, TN_SHARE_*. */
tn_tensor *crash_storage(struct crash_world *w, uint32_t strategy, uint32_t flags,
                         int64_t bytes);
/* Blocks that are not free. */
uint64_t crash_live_blocks(struct crash_world *w);
/* Count the files of the domain, held by any process. */
unsigned crash_count_files(struct crash_world *w);
/* Fail unless the domain has this many files, and if it is 0, no memory object either. */
void crash_check_storages(struct crash_world *w, unsigned files);
/* Do not search all processes for memory objects: that takes longer than ten deaths. */
extern bool crash_skips_search;
/*
 * Fail if a thread of a member still has a request to the quota: no member makes anything now.
 */
void crash_check_intents(struct crash_world *w);
/*
 * Push a message with bytes and tensors of `bytes` each. Only the message holds the tensors.
 */
void crash_push(struct crash_world *w, uint32_t tensor_count, size_t size_bytes);
/* A callback for tni_ticket_for_each(); the context is the domain. */
int crash_revoke(const tn_ticket_entry *ticket, void *context);
/* Pop one message, which must be there. */
tn_message crash_pop(struct crash_world *w);
/*
 * Fork in an operation, and wait for the child. If it was killed at a kill point, the
 * operation ends as killed too.
 */
void crash_fork(struct crash_world *w, void (*run)(struct crash_world *w));
/* Fork a member that lives until the function returns, and then leaves the domain. */
void crash_member(struct crash_world *w, void (*run)(struct crash_world *w));

/* ---- devices (crash_device_ops.c) -------------------------------------------------------- */

void crash_begin_device(void);
/* Fail if memory of the device is still used, or the fake driver has a complaint. */
void crash_end_device(void);
/* In a child: take each message, check its tensors, and make other tensors. */
void crash_use_device(struct crash_world *w);
/* Load the driver in this process, for an operation that uses it. */
void crash_load_driver(struct crash_world *w);
/* Kill this process at its n-th call of the driver from now, before or after it; 0: at none. */
void crash_kill_at_call(unsigned n, bool is_before);
/* Kill the process of an operation before and after each of its calls of the driver. */
void crash_run_driver(const struct crash_op *op);

#endif
