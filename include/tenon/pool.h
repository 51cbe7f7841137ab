/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TENON_POOL_H
#define TENON_POOL_H

#include <tenon/process.h>
#include <tenon/queue.h>

TN_BEGIN_DECLS

/**
 * A pool: worker processes that take jobs from one queue and put results into another.
 *
 * A worker leases its job. If the worker dies, or exits in the middle of the job, another
 * worker starts the job again. After a limit of attempts the job fails with TN_ERR_CHILD_FAILED
 * and a sentence that names the job and its last worker. Each job has exactly one result,
 * however often it ran. A job function that writes elsewhere must therefore be able to run
 * twice. If a tensor of a job or of its result is lost, for example because its file was
 * removed, the job fails with the error that tn_queue_pop() has for such a message, and does
 * not run again.
 *
 * The pool has no thread in the process that made it. The calls below collect workers that
 * died, and start others in their place. A process that submits jobs and then makes no call
 * replaces no worker. A fork server that does not answer, for example because it is stopped,
 * delays one call by a second, or by more if it was slow before. Then the pool works without
 * that worker until the server answers.
 *
 * Jobs that wait for room and results that wait to be fetched do not block each other:
 * tn_pool_submit() receives results while it waits, and keeps their bytes in private memory.
 * The tensors of a result stay in shared memory and count against the quota until
 * tn_pool_result_fini(). A caller whose jobs have more results than the quota has room for must
 * fetch results between its submissions.
 *
 * The workers are child processes as in process.h. They end when the process that made the pool
 * ends, by whatever cause. They inherit its signal handlers and ignored signals
 * (TN_START_SPAWN: only the ignored signals). Ctrl-C at a terminal sends SIGINT to the workers
 * too. If the main process is to finish its jobs after Ctrl-C, let the job function ignore
 * SIGINT.
 *
 * Threads: one at a time per object.   Fork: not in a child.
 */
typedef struct tn_pool tn_pool;

/** How a pool starts its workers. */
enum {
    TN_START_FORK = 0, /* with tn_process_fork(). A worker holds, until it ends, what its parent
                          held at that moment: make such pools early, or for a short time */
    TN_START_SPAWN = 1,     /* with tn_process_exec(): a program that calls tn_pool_serve() */
    TN_START_FORKSERVER = 2 /* with tn_forkserver_fork() */
};

/** A job, as its function gets it. The library owns it; it ends when the function returns. */
typedef struct tn_pool_job {
    uint64_t id;
    uint32_t worker;     /* the index of this worker in the pool, from 0 */
    uint32_t attempt;    /* 1; more if workers died of this job before */
    tn_message *message; /* the submitted message; the function may take a tensor by setting its
                            entry to NULL */
    void *room;          /* [room_bytes], memory for the bytes of the result; the library does
                            not use it until the next job */
    size_t room_bytes;
} tn_pool_job;

enum { TN_POOL_ROOM_BYTES = 4096 };

/**
 * A job function: do one job in a worker.
 *
 * @param job         borrowed until the function returns
 * @param ret_result  all zero; the function may fill in bytes, size_bytes, tensors and
 *                    tensor_count. The bytes and the array `tensors` are borrowed until the
 * next job begins (see `room`); the reference of each tensor is consumed
 * @param context     as given to tn_pool_create() or tn_pool_serve()
 * @return the status of the result: 0, or any other number. With a negative number the result
 *         also gets this thread's tn_error_detail()
 */
typedef int tn_pool_fn(tn_domain *domain, const tn_pool_job *job, tn_message *ret_result,
                       void *context);

/** Zero in a field means its default. */
typedef struct tn_pool_options {
    size_t struct_size;    /* sizeof(tn_pool_options) */
    uint32_t workers;      /* how many; default: one for each CPU that this process may use */
    uint32_t start;        /* TN_START_* */
    uint32_t attempts;     /* how often a job may be started; default 3 */
    uint32_t capacity;     /* most jobs that are submitted and have no result yet; default 256,
                              at most 2^18 */
    uint32_t inline_bytes; /* as in tn_queue_options, for jobs and results; default 128 */
    uint32_t reserved;
    const char *const *argv;        /* TN_START_SPAWN: as tn_process_exec(); copied */
    const char *const *environment; /* TN_START_SPAWN: as tn_process_exec(), and TENON_POOL is
                                       refused; copied */
    tn_forkserver *server;          /* TN_START_FORKSERVER: borrowed until the pool is closed;
                                       other pools and threads may use it as well */
} tn_pool_options;

/**
 * Make a pool and start its workers.
 *
 * @param options   borrowed; NULL for the defaults
 * @param run       the job function; NULL with TN_START_SPAWN, because the program gives the
 *                  function to tn_pool_serve()
 * @param context   passed on to `run`. The workers have a copy of this process's memory as it
 * is now (TN_START_FORKSERVER: as it was when the server started)
 * @param ret_pool  owned by the caller, ended with tn_pool_close(); untouched on failure
 * @return 0, or
 *         TN_ERR_INVALID    an argument is NULL, or an option is out of range
 *         TN_ERR_FULL       the domain has too few free seats or objects
 *         TN_ERR_NO_MEMORY  there is no private or shared memory
 *         TN_ERR_CLOSED, TN_ERR_FORKED  this process has left the domain, or has no seat in it
 *         Other errors as the function that starts a worker; the workers that ran are ended.
 *
 * Threads: any; but TN_START_FORK copies only the calling thread, see fork(2).
 * Blocks: until all workers run.   Crash: the workers end.
 */
TN_API TN_NODISCARD int tn_pool_create(tn_domain *domain, const tn_pool_options *options,
                                       tn_pool_fn *run, void *context, tn_pool **ret_pool);

/**
 * Submit a job. The call waits while `capacity` jobs have no result.
 *
 * @param message  borrowed; with TN_PUSH_MOVE the tensors are consumed on success; NULL: an
 *                 empty message
 * @param flags    TN_PUSH_*
 * @param ret_job  the number of the job, from 1 on, one higher for each job; may be NULL;
 *                 untouched on failure
 * @return 0, or
 *         TN_ERR_TIMED_OUT     there was no room before the deadline
 *         TN_ERR_CLOSED        the pool was ended, or this process has left the domain
 *         TN_ERR_INVALID       the pool is NULL or of another process, or the message cannot be
 *                              pushed (tn_queue_push())
 *         TN_ERR_NO_MEMORY     there is no private memory, or the domain has no room
 *         TN_ERR_CHILD_FAILED  no worker runs: each new worker ended before it began a job
 *         TN_ERR_INTERRUPTED   the hook of tn_interrupt_set() ended the wait
 *         TN_ERR_FORKED        this process has no seat
 *         Other errors as the function that starts a worker, if no worker can be started.
 *
 * Blocks: until the deadline.
 * Crash: the workers end, and the memory of the jobs is released.
 */
TN_API TN_NODISCARD int tn_pool_submit(tn_pool *pool, const tn_message *message, uint32_t flags,
                                       tn_deadline deadline, uint64_t *ret_job);

/** The result of a job, as tn_pool_fetch() fills it in. */
typedef struct tn_pool_result {
    size_t struct_size; /* sizeof(tn_pool_result), set by the caller */
    uint64_t job;
    int32_t status;     /* the function's result; or TN_ERR_CHILD_FAILED: the worker of every
                           attempt died; or another TN_ERR_*: the result could not be sent, or
                           a tensor of the job or of the result is lost. With these errors there
                           is no message, and `detail` names the job */
    int32_t pid;        /* of the worker */
    uint32_t worker;    /* the worker's index */
    uint32_t attempt;   /* the number of the attempt that gave this result, from 1 */
    tn_message message; /* owned by the caller, ended with tn_pool_result_fini() */
    char detail[256];   /* a sentence about a negative status; "" if there is none */
} tn_pool_result;

/**
 * Release what a result owns, and set its fields to 0, other than struct_size, so that it can
 * be used again.
 * @param result  NULL and a result that is all zero are accepted
 */
TN_API void tn_pool_result_fini(tn_pool_result *result);

/** For tn_pool_fetch(): the result that arrived first. No job has this number. */
enum { TN_POOL_ANY_JOB = 0 };

/**
 * Fetch the result of a job. The call waits until the job has a result.
 *
 * @param job         the number that tn_pool_submit() gave, or TN_POOL_ANY_JOB. A caller that
 *                    fetches 1, 2, 3, ... gets the results in the order of submission
 * @param ret_result  owned by the caller; its struct_size says how much is filled in; untouched
 *                    on failure
 * @return 0, or
 *         TN_ERR_TIMED_OUT    the job had no result at the deadline
 *         TN_ERR_NOT_FOUND    there is no such job, or its result was fetched before;
 *                             TN_POOL_ANY_JOB: every job has a result that was fetched
 *         TN_ERR_CLOSED       the pool was terminated and has no such result; or this process
 *                             has left the domain
 *         TN_ERR_INVALID      the pool is NULL or of another process; ret_result is NULL; or
 *                             struct_size is out of range
 *         TN_ERR_CHILD_FAILED, TN_ERR_INTERRUPTED, TN_ERR_NO_MEMORY, TN_ERR_FORKED  as
 *                             tn_pool_submit()
 *         Other errors as the function that starts a worker, if no worker can be started.
 *
 * Blocks: until the deadline.
 * Crash: the workers end, and the memory of the jobs is released.
 */
TN_API TN_NODISCARD int tn_pool_fetch(tn_pool *pool, uint64_t job, tn_deadline deadline,
                                      tn_pool_result *ret_result);

/**
 * End the pool: it takes no more jobs. The workers finish the submitted jobs, and exit. Results
 * can still be fetched.
 * @return 0, TN_ERR_INVALID (the pool is NULL or of another process), TN_ERR_CLOSED (this
 *         process has left the domain), or TN_ERR_FORKED (no seat)
 *
 * Blocks: bounded.
 */
TN_API TN_NODISCARD int tn_pool_end(tn_pool *pool);

/**
 * Wait until every job of an ended pool has a result and every worker has exited. Results can
 * still be fetched afterwards.
 * @return 0, or
 *         TN_ERR_TIMED_OUT  a worker still runs, or a job has no result, at the deadline
 *         TN_ERR_INVALID    the pool is NULL or of another process, or was not ended
 *         Other errors as tn_pool_submit().
 *
 * Blocks: until the deadline.
 */
TN_API TN_NODISCARD int tn_pool_join(tn_pool *pool, tn_deadline deadline);

/**
 * End the workers now. The call sends SIGTERM to them, and SIGKILL at the deadline to those
 * that still run (TN_NOW: SIGKILL at once). It returns when no worker is left. Jobs without a
 * result are given up. Results that have arrived can still be fetched.
 * @return as tn_pool_end()
 *
 * Blocks: until the deadline, and then until the killed workers have ended.
 */
TN_API TN_NODISCARD int tn_pool_terminate(tn_pool *pool, tn_deadline deadline);

/**
 * Kill the workers that still run, and free the pool with all its results.
 * @param pool  consumed; NULL is accepted
 * @return NULL
 *
 * Blocks: until the killed workers have ended.   Fork: a child frees its copy only.
 */
TN_API tn_pool *tn_pool_close(tn_pool *pool);

/** A pool and its workers. */
typedef struct tn_pool_info {
    size_t struct_size;         /* sizeof(tn_pool_info), set by the caller */
    uint32_t worker_count;      /* as in the options, whether or not they run, and those that
                                   were started since jobs seceded: tn_task_secede() */
    uint32_t job_count;         /* submitted jobs whose result has not arrived */
    uint64_t restart_count;     /* how often a new worker has replaced one that ended */
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
 * Do jobs until the pool ends. A program that a pool started calls this after
 * tn_domain_inherit(). The environment variable TENON_POOL says which pool.
 *
 * @param run      the job function
 * @param context  passed on to `run`
 * @return 0: the pool was ended; or
 *         TN_ERR_INVALID      the domain or run is NULL
 *         TN_ERR_NOT_FOUND    TENON_POOL is not set, or was set for another process
 *         TN_ERR_CORRUPT      TENON_POOL makes no sense
 *         TN_ERR_PEER_DIED    the process that made the pool has died
 *         TN_ERR_INTERRUPTED  the hook of tn_interrupt_set() ended the wait for a job
 *         TN_ERR_FORKED       this is a child that the hook of tn_interrupt_set() forked
 *         Other errors as tn_object_open_id(), tn_queue_pop() and tn_queue_push().
 *
 * Threads: one per process.   Blocks: until the pool ends.
 * Crash: another worker starts the job again.
 */
TN_API TN_NODISCARD int tn_pool_serve(tn_domain *domain, tn_pool_fn *run, void *context);

TN_END_DECLS

#endif
