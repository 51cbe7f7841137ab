/* SPDX-License-Identifier: Apache-2.0 */
/* pool: what the owner and the workers of a pool share. Private to the room spawn. */
#ifndef TNI_SPAWN_POOL_H
#define TNI_SPAWN_POOL_H

#include <tenon/pool.h>

#include "spawn/child.h"

/* ---- between owner and worker ------------------------------------------------------------ */

/* What a worker needs to find its pool. */
struct tni_pool_pass {
    uint64_t jobs, results, boards; /* queues, by id */
    uint32_t worker, attempts;
};
#define TNI_POOL_VARIABLE "TENON_POOL"
enum { TNI_POOL_VARIABLE_BYTES = 128 };

/*
 * The board: a shared tensor of [workers][TNI_POOL_ROW] words. A worker writes its own row, and
 * the owner reads the row after the worker ended. The board is used only for error sentences
 * and to count workers that ended before they began a job. A new worker pops the board from the
 * queue of boards. The pool sends no handle, because its ticket would outlive the owner.
 */
enum { TNI_POOL_ROW_JOB, TNI_POOL_ROW_BEGUN, TNI_POOL_ROW = 8 };
static inline _Atomic uint64_t *tni_pool_row(const tn_tensor *board, uint32_t worker)
{
    return (_Atomic uint64_t *)tn_tensor_data(board) + (size_t)worker * TNI_POOL_ROW;
}

/* This head stands before the bytes of a job. */
struct tni_pool_job_head {
    uint64_t job;
    uint64_t reserved;
};

/*
 * This head stands before the bytes of a result; the bytes of the detail follow the result.
 * UNREAD: the message of a job was lost, so the worker does not know the id of the job. WAKE:
 * not a result; another thread of the owner ends the wait for results. SECEDED: not a result;
 * the job goes on, and needs no CPU.
 */
enum {
    TNI_POOL_DONE = 1,
    TNI_POOL_EXHAUSTED = 2,
    TNI_POOL_UNREAD = 3,
    TNI_POOL_WAKE = 4,
    TNI_POOL_SECEDED = 5
};
struct tni_pool_result_head {
    uint64_t job;
    int32_t status;
    int32_t pid;
    uint32_t worker;
    uint32_t attempt;
    uint32_t kind; /* TNI_POOL_* */
    uint32_t detail_bytes;
};

/** Write the value of the variable TENON_POOL for a child of this process. */
void tni_pool_write_variable(const struct tni_pool_pass *pass, char *value, size_t size_bytes);
/**
 * Do jobs until the pool has no more jobs.
 * @return 0, or an error of tn_pool_serve()
 */
int tni_pool_work(struct tn_domain *domain, const struct tni_pool_pass *pass, tn_pool_fn *run,
                  void *context);

/* ---- jobs of the owner (pool_jobs.c) ----------------------------------------------------- */

/* A job that was submitted and whose result was not fetched yet. */
struct tni_job {
    uint64_t id;
    struct tni_job *same;        /* the next job with this hash */
    struct tni_job *prev, *next; /* in the list of results, in the order of arrival */
    bool is_done, is_detached;   /* is_detached: no bytes of the message are in shared memory */
    bool was_told;               /* that it has seceded, in this run or in an earlier one */
    int32_t seceded_pid;         /* the worker in which it has seceded; 0: it has not */
    struct tni_job *next_told;   /* in the list `told` */
    int32_t status, pid;
    uint32_t worker, attempt;
    void *context;                /* of tni_pool_give() */
    tn_message message;           /* owned */
    char *detail;                 /* owned; NULL: none */
    tn_process_status last_death; /* its pid is 0: no worker died with the job */
    uint32_t death_count;
    struct tni_death {
        uint32_t worker;
        int32_t pid;
    } * deaths; /* owned; [death_count]: the workers that died with it, the last one last */
};

struct tni_jobs {
    struct tni_job **table; /* [mask + 1] */
    struct tni_job *free;   /* linked by `same` */
    struct tni_job *first, *last;
    uint64_t mask;
    uint64_t count, under_way;
    uint64_t newest;      /* the largest id that was given to a job */
    uint64_t oldest;      /* no job with a smaller id is in the table */
    uint32_t seceded;     /* jobs under way whose seceded_pid is set */
    struct tni_job *told; /* jobs under way that tni_pool_next_seceded() returns next */
};

/** Make room for one more job, so that tni_jobs_add() cannot fail. */
int tni_jobs_reserve(struct tni_jobs *jobs);
/** Add a job, which is then under way. pre: tni_jobs_reserve() */
struct tni_job *tni_jobs_add(struct tni_jobs *jobs);
/** Find a job by its id. @return NULL: no job has this id */
struct tni_job *tni_jobs_find(const struct tni_jobs *jobs, uint64_t id);
/** Find the job with the smallest id. @return NULL: there are no jobs */
struct tni_job *tni_jobs_oldest(struct tni_jobs *jobs);
/** Note that a job has seceded in a worker, or that this worker has ended. */
void tni_jobs_secede(struct tni_jobs *jobs, struct tni_job *job, int32_t pid);
void tni_jobs_unsecede(struct tni_jobs *jobs, struct tni_job *job);
/** Note that the result of a job has come. */
void tni_jobs_finish(struct tni_jobs *jobs, struct tni_job *job);
/** Remove a job, and free what it owns. */
void tni_jobs_drop(struct tni_jobs *jobs, struct tni_job *job);
/** Drop all jobs that have no result. @return how many jobs were dropped */
uint64_t tni_jobs_give_up(struct tni_jobs *jobs);
void tni_jobs_fini(struct tni_jobs *jobs);

/* ---- the owner --------------------------------------------------------------------------- */

struct tn_pool {
    struct tn_domain *domain; /* kept */
    int32_t owner_pid;
    uint32_t worker_count, start, limit; /* worker_count: as its maker asked for */
    uint32_t place_count; /* worker_count, and TNI_POOL_EXTRA for jobs that secede (I9) */
    uint32_t used_count;  /* places in which there is or was a worker */
    tn_pool_fn *run;
    void *context;
    tn_forkserver *server;
    char **argv, **environment; /* owned; environment has an entry free for TENON_POOL */
    size_t environment_count;
    tn_queue *jobs, *results, *boards;
    tn_tensor *board;
    struct tni_pool_pass pass;
    struct tn_process **workers; /* [place_count]; NULL: it does not run */
    int32_t *pids;               /* [place_count], as tn_pool_get_info() reported them last */
    int *fds;                    /* [place_count], for poll */
    struct tni_jobs table;
    uint8_t *out; /* the bytes of the job that is submitted now */
    size_t out_bytes;
    bool is_ended, is_over;
    bool is_claimed, is_woken; /* spawn.h */
    bool
        may_have_lost; /* a message that could not be read, or a worker that may have had one */
    uint64_t given_up, restarts;
    uint32_t early_ends; /* how many workers in a row ended before they began a job */
    uint64_t begun;      /* jobs that all workers had begun at the last count */
    uint64_t begun_by_gone;
    tn_process_status last_end;
    int start_status;     /* of the last start of a worker; start_detail says why it failed */
    uint64_t patience_ns; /* how long the pool waits for a fork server to start a worker */
    char start_detail[256];
    uint64_t tend_ns; /* before this time, calls that do not wait replace no workers */
};

/* ---- results (pool_results.c) ------------------------------------------------------------ */

/** Check that this process made the pool, and that its domain can be used. */
int tni_pool_check(const struct tn_pool *pool);
/** Ask the program's hook whether to go on. In a child that the hook forks: TN_ERR_INVALID. */
int tni_pool_ask(const struct tn_pool *pool);
/**
 * Pop and file one result.
 * @return the status of the pop; TN_ERR_TIMED_OUT also if the program's hook was asked
 */
int tni_pool_file_next(struct tn_pool *pool, uint64_t deadline_ns);
/** Whether a pop that ended with `status` found nothing. */
bool tni_pool_is_empty(int status);
/**
 * File all results that are in the queue.
 * @return 0; or an error: the queue may still have results
 */
int tni_pool_drain(struct tn_pool *pool);
/**
 * Copy results that nobody fetched yet to private memory. @return whether shared memory was
 * given back
 */
bool tni_pool_detach_results(struct tn_pool *pool);
/** Find jobs that no queue and no worker has. Each gets a result that says that it is lost. */
void tni_pool_find_lost(struct tn_pool *pool);

/* ---- workers (pool_children.c) ----------------------------------------------------------- */

enum { TNI_POOL_EXTRA = 32 }; /* most workers beside those that the pool's maker asked for */
enum { TNI_POOL_SLICE_NS = 20 * 1000 * 1000 };         /* how often a wait checks the workers */
enum { TNI_POOL_SERVER_WAIT_NS = 1000 * 1000 * 1000 }; /* how long to wait for a fork server */

/** Start the worker with this index, which does not run. `wait` is for a fork server. */
int tni_pool_start_worker(struct tn_pool *pool, uint32_t index, struct tni_wait *wait);
/** How many workers run or were not collected yet. */
uint32_t tni_pool_count_workers(const struct tn_pool *pool);
/** Whether a job waits for one more worker, because others have seceded (pool_replace.c, I9).
 */
bool tni_pool_wants_extra(const struct tn_pool *pool);
/** Collect workers that have ended, and note how they ended. */
void tni_pool_collect_workers(struct tn_pool *pool);
/** Reset `early_ends` if a worker began a job since the last call (pool.c, I6). */
void tni_pool_note_progress(struct tn_pool *pool);
/**
 * Collect and replace workers that ended (pool_replace.c).
 * @return 0; why no worker is left for the jobs that are under way; TN_ERR_INTERRUPTED: the
 *         program's hook ended the wait for a fork server; an error of tni_pool_check(): the
 *         hook forked
 */
int tni_pool_replace_workers(struct tn_pool *pool);
/** Send a signal to all workers. */
void tni_pool_signal_workers(struct tn_pool *pool, int signal);
/** Sleep until a worker ends, for a slice of time at most. */
void tni_pool_await_worker(struct tn_pool *pool, uint64_t deadline_ns);

#endif
