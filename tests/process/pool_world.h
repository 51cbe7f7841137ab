/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the tests of pools share: a domain with a pool, and a job function that does what each
 * job says. A test program that uses this header can be started as a worker.
 */
#ifndef TENON_TESTS_POOL_WORLD_H
#define TENON_TESTS_POOL_WORLD_H

#include "harness/harness.h"
#include "harness/live_blocks.h"

/* The first word of a job: what the job does. */
enum pool_deed_kind {
    ADD_ONE,       /* result: the number + 1 */
    DOUBLE_TENSOR, /* doubles its tensor in place, and returns it */
    MAKE_TENSOR,   /* returns a new one of `number` */
    KEEP_NOTHING,
    FAIL, /* returns the number */
    FAIL_SAYING,
    KILL_ITSELF, /* while the attempt is at most the number */
    KILL_TOLD,   /* pushes its pid to the queue "pids", then kills itself */
    EXIT,
    EXIT_SAYING,
    SLEEP,        /* pushes its pid to the queue "pids", then sleeps */
    WAIT,         /* for the event "go" */
    SEND_PRIVATE, /* a tensor that cannot be sent */
    SEND_MUCH,    /* `number` bytes, each the job's number */
    SEND_BOTH,    /* the same, and a new tensor of the job's number */
    SEND_LATE,    /* the same as SEND_MUCH, without SIGTERM, after its pid and a WAIT */
    DEAF,         /* as SLEEP, without SIGTERM */
    ADD_TENSORS,  /* secedes, and returns tensors like its own with the number added */
    SECEDE,       /* secedes as often as the number says, pushes its pid, then WAIT */
    SECEDE_DYING, /* the same, but the first attempt kills itself instead of WAIT */
    GO            /* sets the event "go" */
};

struct pool_order {
    int32_t deed;
    int32_t number;
};

int pool_deed(tn_domain *domain, const tn_pool_job *job, tn_message *result, void *context);
extern const char *const pool_argv[], *const pool_environment[]; /* this program, as a worker */

struct pool_world {
    tn_domain *domain;
    tn_forkserver *server;
    tn_queue *pids;
    tn_event *go;
    tn_pool *pool;
};

/* TN_START_* */
enum { POOL_METHODS = 3 };

/* A domain without tenond: a worker must end without its help. */
tn_domain *pool_open_domain(void);
tn_domain *pool_open_domain_of(uint64_t quota_bytes);
void pool_close_domain(tn_domain *domain);
tn_pool_options pool_options(uint32_t workers);
tn_pool *pool_open(tn_domain *domain, const tn_pool_options *options);
struct pool_world pool_open_world(tn_pool_options options);
struct pool_world pool_open_world_in(tn_domain *domain, tn_pool_options options);
struct pool_world pool_open_by(uint32_t method, uint32_t workers);
void pool_close_world(struct pool_world *w);

/* Each of these fails the test unless it succeeds. */
/* @param input  a task of the graph, or UINT64_MAX. @return the task */
uint64_t pool_add_task(tn_graph *graph, tn_kind *kind, void *context, uint64_t input);
uint64_t pool_submit(struct pool_world *w, enum pool_deed_kind deed, int32_t number);
tn_pool_result pool_next(struct pool_world *w);
tn_pool_result pool_get(struct pool_world *w, uint64_t job);
int32_t pool_number_in(const tn_pool_result *result);
/* The next pid that a sleeping job pushed. */
pid_t pool_pop_pid(struct pool_world *w);
int pool_pidfd(pid_t pid);
bool pool_ends_within(int pid_fd, int ms);
/* Kill a worker, and wait until it has ended. */
void pool_kill_worker(struct pool_world *w, uint32_t worker);
/* Wait until the pool has restarted this many workers. Its calls replace dead workers. */
void pool_await_restart(struct pool_world *w, uint64_t restarts);
void pool_expect_detail(const char *text, const char *part);

#endif
