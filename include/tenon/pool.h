/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TENON_POOL_H
#define TENON_POOL_H

#include <tenon/process.h>
#include <tenon/queue.h>

TN_BEGIN_DECLS

/**
 * A pool: worker processes that take jobs from one queue and put results into another.
 *
 * A job is leased: when its worker dies, or exits in the middle of it, the job is started again
 * by another worker, up to a limit, and then fails with TN_ERR_CHILD_FAILED and a sentence that
 * names the job and its last worker. Each job has exactly one result, however often it ran; a
 * function that writes elsewhere must bear being run again. A job whose tensors cannot be had
 * any more (their file was removed, their descriptor went with a process), or whose result's
 * cannot, fails with what tn_queue_pop() says of such a message, and is not run again.
 *
 * The pool has no thread in the calling process. Workers that died are collected and started
 * again inside of the calls below, all of which do so; so a process that submits and then calls
 * nothing does not replace its dead. A fork server that does not answer (it is stopped, say)
 * holds up one such call for a second, or longer if it has been slow before; then the pool goes
 * on without that worker until the server has answered. Jobs that wait for room, and results
 * that wait to be fetched, cannot block each other: tn_pool_submit() receives results while it
 * waits, and keeps their bytes in private memory until they are fetched. The tensors of a
 * result stay in shared memory and count against the quota until tn_pool_result_fini(): a
 * caller that submits more jobs than the quota has room for must fetch results in between.
 *
 * Workers are children as of process.h, and end with the process that made the pool, however it
 * ends. They keep its signal handlers and ignored signals (TN_START_SPAWN: what is ignored). A
 * Ctrl-C reaches every process of the terminal's group, workers too; where the main process
 * means to finish its jobs after one, let the job function ignore SIGINT.
 *
 * Threads: one at a time per object.   Fork: not in a child.
 */
typedef struct tn_pool tn_pool;

/** How workers are started. */
enum {
    TN_START_FORK = 0,  /* tn_process_fork(). A worker holds what its parent held then, until it
                           ends: for pools that are made early, or do not live long */
    TN_START_SPAWN = 1, /* tn_process_exec(): a program that calls tn_pool_serve() */
    TN_START_FORKSERVER = 2 /* tn_forkserver_fork() */
};

/** A job, as its function sees it. Owned by the library; gone when the function returns. */
typedef struct tn_pool_job {
    uint64_t id;
    uint32_t worker;     /* which of the pool's workers this is, from 0 */
    uint32_t attempt;    /* 1, and more if workers died of this job before */
    tn_message *message; /* what was submitted; a tensor may be taken by setting its entry to
                            NULL */
    void *room;          /* [room_bytes], for the bytes of the result; nobody else's until the
                            next job */
    size_t room_bytes;
} tn_pool_job;

enum { TN_POOL_ROOM_BYTES = 4096 };

/**
 * Runs in a worker.
 *
 * @param ret_result  all zero; fill bytes, size_bytes, tensors, tensor_count or nothing. The
 *                    bytes and the array `tensors` are borrowed, and must last until the next
 *                    job begins (see `room`); each tensor's reference is consumed
 * @return what the result's status shall be: 0, or any other number; if it is negative, this
 *         thread's tn_error_detail() goes along
 */
typedef int tn_pool_fn(tn_domain *domain, const tn_pool_job *job, tn_message *ret_result,
                       void *context);

/** Zero in a field means its default. */
typedef struct tn_pool_options {
    size_t struct_size;    /* sizeof(tn_pool_options) */
    uint32_t workers;      /* default: the CPUs that this process may run on */
    uint32_t start;        /* TN_START_* */
    uint32_t attempts;     /* how often a job may be started; default 3 */
    uint32_t capacity;     /* jobs that are submitted and have no result yet, at most; default
                              256, at most 2^18 */
    uint32_t inline_bytes; /* as of tn_queue_options, for jobs and results; default 128 */
    uint32_t reserved;
    const char *const *argv;        /* TN_START_SPAWN: as of tn_process_exec(); copied */
    const char *const *environment; /* TN_START_SPAWN: the same, and TENON_POOL is refused */
    tn_forkserver *server;          /* TN_START_FORKSERVER: borrowed until the pool is closed;
                                       other pools and threads may use it as well */
} tn_pool_options;

/**
 * Make a pool and start its workers.
 *
 * @param options  borrowed; NULL for defaults
 * @param run      the job function; NULL with TN_START_SPAWN, where the program says it
 * @param context  passed on as it is: workers see a copy of this process's memory;
 *                 TN_START_FORKSERVER: as it was when the server started
 * @return 0, or TN_ERR_INVALID, TN_ERR_FULL (seats, objects), TN_ERR_NO_MEMORY, or why
 *         a worker could not be started, as of the function that starts it
 */
TN_API TN_NODISCARD int tn_pool_create(tn_domain *domain, const tn_pool_options *options,
                                       tn_pool_fn *run, void *context, tn_pool **ret_pool);

/**
 * Submit a job, waiting while `capacity` jobs are under way.
 *
 * @param message  as of tn_queue_push(); NULL: an empty one
 * @param flags    TN_PUSH_*
 * @param ret_job  a number from 1 on, one higher for each job; may be NULL
 * @return 0, or TN_ERR_TIMED_OUT, TN_ERR_CLOSED (the pool was ended), TN_ERR_INVALID,
 *         TN_ERR_NO_MEMORY; TN_ERR_CHILD_FAILED: no worker runs, and those that were started
 *         ended one after the other before they began a job; or why none can be started;
 *         TN_ERR_INTERRUPTED: tn_interrupt_set()
 *
 * Blocks: until the deadline.
 * Crash: the workers end, and what was under way is given back.
 */
TN_API TN_NODISCARD int tn_pool_submit(tn_pool *pool, const tn_message *message, uint32_t flags,
                                       tn_deadline deadline, uint64_t *ret_job);

/** The result of a job. */
typedef struct tn_pool_result {
    size_t struct_size; /* sizeof(tn_pool_result), set by the caller */
    uint64_t job;
    int32_t status;   /* what the function returned; TN_ERR_CHILD_FAILED: every attempt's worker
                         died; TN_ERR_*: its result could not be sent, or it or its result
                         cannot be had any more: then there is no message, and `detail` names
                         the job. TN_ERR_CORRUPT: shared memory is damaged */
    int32_t pid;      /* of the worker */
    uint32_t worker;  /* its index */
    uint32_t attempt; /* which one this was, from 1 */
    tn_message message; /* owned by the caller, ended with tn_pool_result_fini() */
    char detail[256];   /* a sentence if status is negative and one is known; else "" */
} tn_pool_result;

/**
 * Give back what a result owns, and set its fields to 0, other than struct_size, so that it can
 * be used again. NULL, and a result that was never filled in but is zero, are accepted.
 */
TN_API void tn_pool_result_fini(tn_pool_result *result);

/** For tn_pool_fetch(): whichever result came first. Jobs are numbered from 1 on. */
enum { TN_POOL_ANY_JOB = 0 };

/**
 * Fetch the result of a job, waiting for it.
 *
 * @param job         as of tn_pool_submit(), or TN_POOL_ANY_JOB. Who fetches 1, 2, 3, ... has
 *                    results in the order of submission
 * @param ret_result  owned by the caller; untouched on failure
 * @return 0, or TN_ERR_TIMED_OUT; TN_ERR_NOT_FOUND: there is no such job, or its result was
 *         fetched already (any: no job is under way, and every result was fetched);
 *         TN_ERR_CLOSED: the same, and the pool was terminated; TN_ERR_CHILD_FAILED and others
 *         as of tn_pool_submit()
 */
TN_API TN_NODISCARD int tn_pool_fetch(tn_pool *pool, uint64_t job, tn_deadline deadline,
                                      tn_pool_result *ret_result);

/** No more jobs: workers finish what was submitted, and exit. */
TN_API TN_NODISCARD int tn_pool_end(tn_pool *pool);

/**
 * Wait until every job of an ended pool has its result and every worker has exited. Results can
 * still be fetched then.
 * @return 0, or TN_ERR_TIMED_OUT, TN_ERR_INVALID (the pool was not ended), and others as of
 *         tn_pool_submit()
 */
TN_API TN_NODISCARD int tn_pool_join(tn_pool *pool, tn_deadline deadline);

/**
 * End the workers now: SIGTERM, and SIGKILL for those that still run at the deadline. Jobs
 * without a result are given up. Returns when no worker is left; results that came can still be
 * fetched.
 */
TN_API TN_NODISCARD int tn_pool_terminate(tn_pool *pool, tn_deadline deadline);

/**
 * Kill the workers that still run, and free the pool with all its results. Returns NULL; NULL
 * is accepted.
 */
TN_API tn_pool *tn_pool_close(tn_pool *pool);

typedef struct tn_pool_info {
    size_t struct_size;     /* sizeof(tn_pool_info), set by the caller */
    uint32_t worker_count;  /* as the options said, whether they run or not */
    uint32_t job_count;     /* jobs that were submitted and whose result has not come */
    uint64_t restart_count; /* how often a worker was started in the place of one that ended */
    const int32_t *worker_pids; /* [worker_count]; 0: the worker does not run now. Borrowed
                                   until the next call on the pool */
} tn_pool_info;

/**
 * Describe the pool.
 * @param ret_info  its struct_size says how much is filled in; untouched on failure
 * @return 0, or TN_ERR_INVALID: an argument is NULL, or struct_size is out of range
 */
TN_API TN_NODISCARD int tn_pool_get_info(const tn_pool *pool, tn_pool_info *ret_info);

/**
 * In a program that a pool started, after tn_domain_inherit(): do jobs until the pool ends.
 * TENON_POOL says which pool.
 * @return 0: the pool was ended; TN_ERR_NOT_FOUND: TENON_POOL is not set, or meant for another
 *         process; TN_ERR_CORRUPT: it makes no sense; TN_ERR_PEER_DIED: the process that made
 * the pool has died; TN_ERR_INTERRUPTED: tn_interrupt_set(), no job is under way here any more;
 *         TN_ERR_FORKED: this is a child that the hook of tn_interrupt_set() forked
 */
TN_API TN_NODISCARD int tn_pool_serve(tn_domain *domain, tn_pool_fn *run, void *context);

TN_END_DECLS

#endif
