/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spawn: starts child processes that are members of a domain, and manages groups of them, fork
 * servers and pools. Its calls are public, but for those below.
 */
#ifndef TNI_SPAWN_H
#define TNI_SPAWN_H

#include <tenon/pool.h>
#include <tenon/process.h>

/*
 * For a thread that keeps a pool busy and has other things to do, the scheduler's. Between
 * tni_pool_claim() and tni_pool_release() only that thread uses the pool, but for
 * tni_pool_wake().
 */

/** 0; TN_ERR_INVALID: the pool is claimed, or of another process; or as tn_queue_attach(). */
int tni_pool_claim(struct tn_pool *pool);
void tni_pool_release(struct tn_pool *pool);
/**
 * As tn_pool_submit(), without waiting.
 * @param context  tni_pool_take() returns it with the result
 */
int tni_pool_give(struct tn_pool *pool, const tn_message *message, void *context,
                  uint64_t *ret_job);
/** As tn_pool_fetch() of any job. TN_ERR_TIMED_OUT also if tni_pool_wake() was called. */
int tni_pool_take(struct tn_pool *pool, tn_deadline deadline, tn_pool_result *ret_result,
                  void **ret_context);
/** Let a call of tni_pool_take() return, the next one if there is none. Threads: any. */
void tni_pool_wake(struct tn_pool *pool);
/**
 * The next job that has seceded (tni_pool_secede()) since the last call, once for each job.
 * tni_pool_take() returns TN_ERR_TIMED_OUT while there is one.
 * @return whether there was one
 */
bool tni_pool_next_seceded(struct tn_pool *pool, uint64_t *ret_job, void **ret_context);
/** How many more jobs tni_pool_give() takes. */
uint32_t tni_pool_room(const struct tn_pool *pool);
uint32_t tni_pool_worker_count(const struct tn_pool *pool);

/* In a worker: */

/** Whether this thread runs a job of a pool. */
bool tni_pool_runs_job(void);
/**
 * Tell the owner that the job of this thread needs no CPU any more. A scheduler that has
 * claimed the pool gives the CPU to another task, and the pool may start one more worker.
 * @return 0, or as tn_queue_push(). pre: tni_pool_runs_job()
 */
int tni_pool_secede(void);

#endif
