/* SPDX-License-Identifier: Apache-2.0 */
/* pool_replace: replaces workers that ended, and reports when it gives up (pool.c, I6, I7). */
#include <stdio.h>

#include "spawn/pool.h"

enum {
    TEND_NS = 10 * 1000 * 1000 /* calls that do not wait replace workers at most this often */
};
static const uint64_t most_patience_ns = UINT64_C(10000000000); /* limit of `patience_ns` */

/* Whether the last start of a worker failed because a fork server did not answer in time. */
static bool was_unanswered(const struct tn_pool *pool)
{
    return pool->start_status == TN_ERR_TIMED_OUT || pool->start_status == TN_ERR_INTERRUPTED;
}

static uint32_t early_ends_limit(const struct tn_pool *pool) { return pool->worker_count + 4; }

/*
 * Beside the jobs that have seceded, `worker_count` others shall run. A worker that was started
 * for that stays, and waits for jobs as the others do.
 */
bool tni_pool_wants_extra(const struct tn_pool *pool)
{
    if (TNI_LIKELY(pool->table.seceded == 0))
        return false;
    uint32_t running = tni_pool_count_workers(pool);
    return running < pool->place_count && running < pool->worker_count + pool->table.seceded &&
           running < pool->table.under_way;
}

static int fail_early_ends(const struct tn_pool *pool)
{
    char end[TNI_CHILD_END_BYTES];
    if (pool->start_status != 0 && !was_unanswered(pool))
        return tni_fail(pool->start_status, "no worker can be started: %s", pool->start_detail);
    tni_child_describe_end(&pool->last_end, end, sizeof end);
    return tni_fail(TN_ERR_CHILD_FAILED,
                    "%u workers ended one after the other before they began a job; the last, "
                    "process %d, %s",
                    pool->early_ends, pool->last_end.pid, end);
}

static bool is_wanted(struct tn_pool *pool)
{
    if (pool->early_ends >= early_ends_limit(pool))
        tni_pool_note_progress(pool);
    if (pool->is_over || pool->early_ends >= early_ends_limit(pool))
        return false;
    if (!pool->is_ended)
        return true;
    /*
     * The pool is ending. The workers that still run finish the jobs. Only if none runs, one
     * worker is started for the jobs that still have no result.
     */
    if (pool->table.under_way > 0)
        (void)!tni_pool_drain(pool);
    return pool->table.under_way > 0 && tni_pool_count_workers(pool) == 0;
}

/*
 * Whether the pool waits for its fork server before it starts another worker (I7). If too many
 * workers ended early, the pool starts none, and so does not wait (I6).
 */
static bool awaits_server(const struct tn_pool *pool)
{
    return pool->start == TN_START_FORKSERVER && was_unanswered(pool) &&
           pool->early_ends < early_ends_limit(pool);
}

static void note_failed_start(struct tn_pool *pool, uint32_t index)
{
    if (pool->start_status == TN_ERR_INTERRUPTED)
        return;
    tni_log(TNI_LOG_WARNING, "worker %u of a pool cannot be started: %s", index,
            pool->start_detail);
    if (awaits_server(pool))
        pool->patience_ns = TNI_MIN(2 * pool->patience_ns, most_patience_ns);
}

/*
 * Start workers in the places of those that ended.
 * @return 0; TN_ERR_INTERRUPTED; an error of tni_pool_check(): the program's hook forked
 */
static int restart(struct tn_pool *pool)
{
    for (uint32_t i = 0; i < pool->place_count; i++) {
        if (pool->workers[i] != NULL)
            continue;
        if (i >= pool->worker_count && !tni_pool_wants_extra(pool))
            break;
        if (!is_wanted(pool))
            continue;
        if (awaits_server(pool) && !tni_server_is_free(pool->server))
            return 0;
        struct tni_wait wait = {.deadline_ns = tn_deadline_after(pool->patience_ns).ns};
        bool is_first = i >= pool->used_count;
        pool->used_count += is_first;
        int started = tni_pool_start_worker(pool, i, &wait), status = tni_pool_check(pool);
        if (status != 0)
            return status;
        if (started != 0) {
            note_failed_start(pool, i);
            return started == TN_ERR_INTERRUPTED ? started : 0;
        }
        pool->patience_ns = TNI_POOL_SERVER_WAIT_NS;
        pool->restarts += !is_first;
    }
    return 0;
}

int tni_pool_replace_workers(struct tn_pool *pool)
{
    pool->tend_ns = tni_os_coarse_ns() + TEND_NS;
    tni_pool_collect_workers(pool);
    int status = restart(pool);
    if (status != 0)
        return status;
    if (pool->is_over || tni_pool_count_workers(pool) > 0 || awaits_server(pool) ||
        (pool->is_ended && pool->table.under_way == 0))
        return 0;
    return fail_early_ends(pool);
}
