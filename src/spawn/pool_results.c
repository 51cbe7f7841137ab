/* SPDX-License-Identifier: Apache-2.0 */
/* pool_results: files the results that workers pushed, and finds lost jobs (pool.c, I1-I5). */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "spawn/pool.h"

static bool has_ended(const struct tni_job *job) { return job->last_death.pid != 0; }

/* Write the workers that died with a job, but for the last: "worker 0, process 11; ". */
static void print_earlier(const struct tni_job *job, char *text, size_t size_bytes)
{
    enum { SHOWN = 4 };
    uint32_t count = job->death_count > 0 ? job->death_count - 1 : 0;
    uint32_t first = count > SHOWN ? count - SHOWN : 0;
    size_t used = first == 0 ? 0 : (size_t)snprintf(text, size_bytes, "%u others; ", first);
    text[used] = '\0';
    for (uint32_t i = first; i < count && used < size_bytes; i++)
        used += (size_t)snprintf(text + used, size_bytes - used, "worker %u, process %d; ",
                                 job->deaths[i].worker, job->deaths[i].pid);
}

static uint32_t last_worker(const struct tni_job *job)
{
    return job->deaths[job->death_count - 1].worker;
}

static char *format_exhausted(const struct tni_job *job)
{
    char text[400], earlier[160], how[160], end[112];
    tni_child_describe_end(&job->last_death, end, sizeof end);
    if (!has_ended(job))
        snprintf(how, sizeof how, "the last had not begun it");
    else if (job->death_count == 0)
        snprintf(how, sizeof how, "process %d %s", job->last_death.pid, end);
    else
        snprintf(how, sizeof how, "worker %u, process %d, %s", last_worker(job),
                 job->last_death.pid, end);
    print_earlier(job, earlier, sizeof earlier);
    snprintf(text, sizeof text,
             "job %" PRIu64 " was started %u times, and each worker ended: %s%s", job->id,
             job->attempt, earlier, how);
    return strdup(text);
}

/*
 * Complete the result of a job that was started too often: say which workers had the job, and
 * how the last of them ended. The queue delivered the job again only after the worker had
 * ended, so the worker can be collected now.
 */
static void name_exhausted(struct tn_pool *pool, struct tni_job *job)
{
    tni_pool_collect_workers(pool);
    job->detail = format_exhausted(job);
    if (has_ended(job))
        job->pid = job->last_death.pid;
    if (job->death_count > 0)
        job->worker = last_worker(job);
}

static bool split(const tn_message *m, struct tni_pool_result_head *ret_head)
{
    if (m->size_bytes < sizeof *ret_head || m->bytes == NULL)
        return false;
    memcpy(ret_head, m->bytes, sizeof *ret_head);
    return ret_head->detail_bytes <= m->size_bytes - sizeof *ret_head;
}

static void finish_lost(struct tn_pool *pool, struct tni_job *job, int status, const char *what)
{
    char text[256];
    snprintf(text, sizeof text, "job %" PRIu64 "%s", job->id, what);
    job->status = status;
    job->detail = strdup(text);
    tni_jobs_finish(&pool->table, job);
}

/* Give a job whose result lost its tensors a result that says why: the error detail (I5). */
static void file_lost(struct tn_pool *pool, struct tni_job *job, int lost)
{
    char what[224];
    snprintf(what, sizeof what, " lost its result: %s", tn_error_detail());
    finish_lost(pool, job, lost, what);
}

/*
 * Note that a job has seceded, for the scheduler that has claimed the pool (I9). A worker that
 * has ended runs the job no more, and the job keeps its CPU for its next run.
 */
static void file_secession(struct tn_pool *pool, const struct tni_pool_result_head *head)
{
    struct tni_job *job = tni_jobs_find(&pool->table, head->job);
    if (job == NULL || job->is_done || !pool->is_claimed)
        return;
    for (uint32_t i = 0; i < job->death_count; i++)
        if (job->deaths[i].pid == head->pid)
            return;
    tni_jobs_secede(&pool->table, job, head->pid);
}

/* File a result, or drop it if its job has a result already (I2). Consumes `m`. */
static void file_result(struct tn_pool *pool, tn_message *m, int lost)
{
    struct tni_pool_result_head head = {.kind = TNI_POOL_UNREAD};
    struct tni_job *job = split(m, &head) ? tni_jobs_find(&pool->table, head.job) : NULL;
    pool->may_have_lost |= head.kind == TNI_POOL_UNREAD;
    pool->is_woken |= head.kind == TNI_POOL_WAKE && pool->is_claimed;
    if (head.kind == TNI_POOL_SECEDED) {
        file_secession(pool, &head);
        job = NULL;
    }
    if (job == NULL || job->is_done) {
        tn_message_fini(m);
        return;
    }
    job->pid = head.pid;
    job->worker = head.worker;
    job->attempt = head.attempt;
    if (lost != 0) {
        file_lost(pool, job, lost);
        tn_message_fini(m);
        return;
    }
    const char *bytes = (const char *)m->bytes + sizeof head;
    size_t size_bytes = m->size_bytes - sizeof head - head.detail_bytes;
    job->status = head.status;
    if (head.detail_bytes > 0)
        job->detail = strndup(bytes + size_bytes, head.detail_bytes);
    if (head.kind == TNI_POOL_EXHAUSTED)
        name_exhausted(pool, job);
    job->message = *m;
    job->message.bytes = size_bytes > 0 ? bytes : NULL;
    job->message.size_bytes = size_bytes;
    tni_jobs_finish(&pool->table, job);
}

int tni_pool_check(const struct tn_pool *pool)
{
    if (pool == NULL)
        return tni_fail_null("the pool");
    if (pool->owner_pid != tni_os_pid())
        return tni_fail(TN_ERR_INVALID, "the process %d made the pool, and only it may use it",
                        pool->owner_pid);
    return tni_process_check(pool->domain);
}

int tni_pool_ask(const struct tn_pool *pool)
{
    int asked = tni_interrupt_ask(tni_os_now_ns()), status = tni_pool_check(pool);
    return status != 0 ? status : asked;
}

/* Returns TN_ERR_TIMED_OUT also if the hook was asked and wants the wait to go on. */
int tni_pool_file_next(struct tn_pool *pool, uint64_t deadline_ns)
{
    tn_message m;
    bool deferred = tni_interrupt_defer(true);
    int lost, status = tni_queue_pop_bytes(pool->results, deadline_ns, &m, &lost);
    tni_interrupt_defer(deferred);
    if (status == TN_ERR_INTERRUPTED && (status = tni_pool_ask(pool)) == 0)
        return TN_ERR_TIMED_OUT;
    if (status == 0)
        file_result(pool, &m, lost);
    return status;
}

bool tni_pool_is_empty(int status)
{
    return status == TN_ERR_TIMED_OUT || status == TN_ERR_PEER_DIED;
}

/*
 * Results are detached in the order in which they came, so the results that are still in shared
 * memory are the last of the list (I1). If private memory runs out, a result stays in shared
 * memory until the next call. @return whether shared memory was given back
 */
bool tni_pool_detach_results(struct tn_pool *pool)
{
    bool is_given = false;
    struct tni_job *job = pool->table.last;
    while (job != NULL && job->prev != NULL && !job->prev->is_detached)
        job = job->prev;
    for (; job != NULL && !job->is_detached; job = job->next) {
        int detached = tni_message_detach(&job->message);
        if (detached < 0)
            break;
        is_given |= detached > 0;
        job->is_detached = true;
    }
    return is_given;
}

int tni_pool_drain(struct tn_pool *pool)
{
    int status;
    do
        status = tni_pool_file_next(pool, 0);
    while (status == 0);
    return tni_pool_is_empty(status) ? 0 : status;
}

/*
 * A job leaves the queue of jobs only after its result is in the queue of results. So each
 * queue is checked only once: the queue of jobs, then the queue of results (I5).
 */
void tni_pool_find_lost(struct tn_pool *pool)
{
    struct tni_queue_figures jobs;
    tni_queue_figures(&pool->domain->segment, tni_object_id_index(pool->pass.jobs), &jobs);
    if (jobs.full + jobs.leased + jobs.claimed > 0 || tni_pool_drain(pool) != 0)
        return;
    pool->may_have_lost = false;
    (void)tni_jobs_oldest(&pool->table);
    for (uint64_t id = pool->table.oldest; id <= pool->table.newest; id++) {
        struct tni_job *job = tni_jobs_find(&pool->table, id);
        if (job != NULL && !job->is_done)
            finish_lost(
                pool, job, TN_ERR_CORRUPT,
                ": the job or its result was lost, because a message could not be read");
    }
}
