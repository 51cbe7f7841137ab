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
 * the owner reads the row after the worker ended. It is used only for error sentences and to
 * count workers that ended before they began a job. A new worker pops the board from the queue
 * of boards: a handle would not do, because its ticket would outlive the owner.
 */
enum { TNI_POOL_ROW_JOB, TNI_POOL_ROW_BEGUN, TNI_POOL_ROW = 8 };
static inline _Atomic uint64_t *tni_pool_row(const tn_tensor *board, uint32_t worker)
{
    return (_Atomic uint64_t *)tn_tensor_data(board) + (size_t)worker * TNI_POOL_ROW;
}

/* Stands before the bytes of a job. */
struct tni_pool_job_head {
    uint64_t job;
    uint64_t reserved;
};

/*
 * Stands before the bytes of a result; the bytes of the detail follow them. UNREAD: the message
 * of a job was lost, so the worker does not know the id of the job.
 */
enum { TNI_POOL_DONE = 1, TNI_POOL_EXHAUSTED = 2, TNI_POOL_UNREAD = 3 };
struct tni_pool_result_head {
    uint64_t job;
    int32_t status;
    int32_t pid;
    uint32_t worker;
    uint32_t attempt;
    uint32_t kind; /* TNI_POOL_* */
    uint32_t detail_bytes;
};

/** Write the value of TENON_POOL for a child of this process. */
void tni_pool_write_variable(const struct tni_pool_pass *pass, char *value, size_t size_bytes);
/**
 * Do jobs until there are no more.
 * @return 0, or as tn_pool_serve()
 */
int tni_pool_work(struct tn_domain *domain, const struct tni_pool_pass *pass, tn_pool_fn *run,
                  void *context);

/* ---- jobs of the owner (pool_jobs.c) ----------------------------------------------------- */

/* A job that was submitted and whose result was not fetched yet. */
struct tni_job {
    uint64_t id;
    struct tni_job *same;        /* the next one with this hash */
    struct tni_job *prev, *next; /* in the list of results, in the order of arrival */
    bool is_done, is_detached;   /* detached: no bytes of the message are in shared memory */
    int32_t status, pid;
    uint32_t worker, attempt;
    tn_message message; /* owned */
    char *detail;       /* owned; NULL: none */
    tn_process_status death;
    uint32_t death_worker,
        death_count; /* the last worker that died with it, and how many did */
};

struct tni_jobs {
    struct tni_job **table; /* [mask + 1] */
    struct tni_job *free;   /* linked by `same` */
    struct tni_job *first, *last;
    uint64_t mask;
    uint64_t count, under_way;
    uint64_t newest; /* id */
    uint64_t oldest; /* no job with a smaller id is in the table */
};

/** Make room for one more, so that tni_jobs_add() cannot fail. */
int tni_jobs_reserve(struct tni_jobs *jobs);
/** Add a job, which is then under way. pre: tni_jobs_reserve() */
struct tni_job *tni_jobs_add(struct tni_jobs *jobs);
/** NULL: none. */
struct tni_job *tni_jobs_find(const struct tni_jobs *jobs, uint64_t id);
/** The job with the smallest id; NULL: there is none. */
struct tni_job *tni_jobs_oldest(struct tni_jobs *jobs);
/** Its result has come. */
void tni_jobs_finish(struct tni_jobs *jobs, struct tni_job *job);
/** Remove a job, and free what it owns. */
void tni_jobs_drop(struct tni_jobs *jobs, struct tni_job *job);
/** Drop those without a result. @return how many */
uint64_t tni_jobs_give_up(struct tni_jobs *jobs);
void tni_jobs_fini(struct tni_jobs *jobs);

/* ---- the owner --------------------------------------------------------------------------- */

struct tn_pool {
    struct tn_domain *domain; /* kept */
    int32_t owner_pid;
    uint32_t worker_count, start, limit;
    tn_pool_fn *run;
    void *context;
    tn_forkserver *server;
    char **argv, **environment; /* owned; environment has an entry free for TENON_POOL */
    size_t environment_count;
    tn_queue *jobs, *results, *boards;
    tn_tensor *board;
    struct tni_pool_pass pass;
    struct tn_process **workers; /* [worker_count]; NULL: it does not run */
    int32_t *pids;               /* [worker_count], as tn_pool_get_info() reported them last */
    int *fds;                    /* [worker_count], for poll */
    struct tni_jobs table;
    uint8_t *out; /* a job's bytes */
    size_t out_bytes;
    bool is_ended, is_over;
    bool
        may_have_lost; /* a message that could not be read, or a worker that may have had one */
    uint64_t given_up, restarts;
    uint32_t early_ends; /* of workers that began no job, one after the other */
    uint64_t begun;      /* jobs that all workers had begun at the last count */
    uint64_t begun_by_gone;
    tn_process_status last_end;
    int start_status;     /* of the last start, with its sentence */
    uint64_t patience_ns; /* so long a fork server may take for a new worker */
    char start_detail[256];
    uint64_t tend_ns; /* when it is due */
};

/* ---- results (pool_results.c) ------------------------------------------------------------ */

/** Fails in another process than that which made the pool. */
int tni_pool_check(const struct tn_pool *pool);
/** Ask the program's hook whether to go on. In a child that the hook forks: TN_ERR_INVALID. */
int tni_pool_ask(const struct tn_pool *pool);
/** File one result. @return as a pop; TN_ERR_TIMED_OUT also when the hook was asked */
int tni_pool_file_next(struct tn_pool *pool, uint64_t deadline_ns);
/** Whether a pop that ended with `status` found nothing. */
bool tni_pool_is_empty(int status);
/**
 * File all results that are there.
 * @return 0, or why there may be more
 */
int tni_pool_drain(struct tn_pool *pool);
/**
 * Copy results that nobody fetched yet to private memory. @return whether shared memory was
 * given back
 */
bool tni_pool_detach_results(struct tn_pool *pool);
/** End the jobs that are in no queue and with no worker: each gets a result that says so. */
void tni_pool_find_lost(struct tn_pool *pool);

/* ---- its workers (pool_children.c)
 * ----------------------------------------------------------- */

enum { TNI_POOL_SLICE_NS = 20 * 1000 * 1000 };         /* how often a wait checks the workers */
enum { TNI_POOL_SERVER_WAIT_NS = 1000 * 1000 * 1000 }; /* how long to wait for a fork server */

/** Start the worker with this index, which does not run. `wait` is for a fork server. */
int tni_pool_start_worker(struct tn_pool *pool, uint32_t index, struct tni_wait *wait);
/** How many workers run or were not collected yet. */
uint32_t tni_pool_count_workers(const struct tn_pool *pool);
/** Collect workers that have ended, and note how they ended. */
void tni_pool_collect_workers(struct tn_pool *pool);
/** Reset `early_ends` if a worker began a job since the last call (pool.c, I6). */
void tni_pool_note_progress(struct tn_pool *pool);
/**
 * Collect and replace workers that ended (pool_replace.c).
 * @return 0; why no worker is left for the jobs that are under way; TN_ERR_INTERRUPTED: the
 *         program's hook ended the wait for a fork server; as tni_pool_check(): the hook forked
 */
int tni_pool_replace_workers(struct tn_pool *pool);
/** Send a signal to all workers. */
void tni_pool_signal_workers(struct tn_pool *pool, int signal);
/** Sleep until a worker ends, for a slice of time at most. */
void tni_pool_await_worker(struct tn_pool *pool, uint64_t deadline_ns);

#endif
