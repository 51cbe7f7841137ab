/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pool_jobs: a hash table, in private memory, of the jobs of a pool. Job ids count up, so the
 * low bits of an id are a good hash.
 */
#include <stdlib.h>
#include <string.h>

#include "spawn/pool.h"

enum { LEAST_BUCKETS = 256 };

static struct tni_job **bucket_of(const struct tni_jobs *jobs, uint64_t id)
{
    return &jobs->table[id & jobs->mask];
}

static int grow(struct tni_jobs *jobs)
{
    uint64_t count = jobs->table == NULL ? LEAST_BUCKETS : 2 * (jobs->mask + 1);
    struct tni_jobs grown = *jobs;
    struct tni_job **old = jobs->table;
    grown.table = calloc(count, sizeof grown.table[0]);
    grown.mask = count - 1;
    if (grown.table == NULL)
        return tni_fail(TN_ERR_NO_MEMORY, "no private memory for %llu jobs",
                        (unsigned long long)jobs->count + 1);
    for (uint64_t i = 0; old != NULL && i <= jobs->mask; i++)
        for (struct tni_job *job = old[i], *same; job != NULL; job = same) {
            struct tni_job **bucket = bucket_of(&grown, job->id);
            same = job->same;
            job->same = *bucket;
            *bucket = job;
        }
    *jobs = grown;
    free(old); /* child.c, I7 */
    return 0;
}

int tni_jobs_reserve(struct tni_jobs *jobs)
{
    if (jobs->table == NULL || jobs->count > jobs->mask) {
        int status = grow(jobs);
        if (status != 0)
            return status;
    }
    if (jobs->free != NULL)
        return 0;
    jobs->free = calloc(1, sizeof *jobs->free);
    return jobs->free != NULL ? 0 : tni_fail(TN_ERR_NO_MEMORY, "no private memory for a job");
}

struct tni_job *tni_jobs_add(struct tni_jobs *jobs)
{
    struct tni_job *job = jobs->free;
    struct tni_job **bucket = bucket_of(jobs, ++jobs->newest);
    jobs->free = job->same;
    *job = (struct tni_job){.id = jobs->newest, .same = *bucket};
    *bucket = job;
    jobs->count++;
    jobs->under_way++;
    return job;
}

struct tni_job *tni_jobs_find(const struct tni_jobs *jobs, uint64_t id)
{
    if (jobs->table == NULL)
        return NULL;
    struct tni_job *job = *bucket_of(jobs, id);
    while (job != NULL && job->id != id)
        job = job->same;
    return job;
}

struct tni_job *tni_jobs_oldest(struct tni_jobs *jobs)
{
    struct tni_job *job = NULL;
    if (jobs->count == 0)
        return NULL;
    while (jobs->oldest <= jobs->newest && (job = tni_jobs_find(jobs, jobs->oldest)) == NULL)
        jobs->oldest++;
    return job;
}

void tni_jobs_secede(struct tni_jobs *jobs, struct tni_job *job, int32_t pid)
{
    struct tni_job **at = &jobs->told;
    jobs->seceded += job->seceded_pid == 0;
    job->seceded_pid = pid;
    if (job->was_told)
        return;
    job->was_told = true;
    while (*at != NULL)
        at = &(*at)->next_told;
    *at = job;
}

void tni_jobs_unsecede(struct tni_jobs *jobs, struct tni_job *job)
{
    jobs->seceded -= job->seceded_pid != 0;
    job->seceded_pid = 0;
}

/* A job of which a result has come, or will not come. */
static void forget_secession(struct tni_jobs *jobs, struct tni_job *job)
{
    struct tni_job **at = &jobs->told;
    tni_jobs_unsecede(jobs, job);
    if (!job->was_told)
        return;
    while (*at != NULL && *at != job)
        at = &(*at)->next_told;
    if (*at != NULL)
        *at = job->next_told;
    job->next_told = NULL;
}

void tni_jobs_finish(struct tni_jobs *jobs, struct tni_job *job)
{
    forget_secession(jobs, job);
    job->is_done = true;
    job->next = NULL;
    job->prev = jobs->last;
    *(jobs->last != NULL ? &jobs->last->next : &jobs->first) = job;
    jobs->last = job;
    jobs->under_way--;
}

void tni_jobs_drop(struct tni_jobs *jobs, struct tni_job *job)
{
    struct tni_job **at = bucket_of(jobs, job->id);
    while (*at != NULL && *at != job)
        at = &(*at)->same;
    if (*at != NULL)
        *at = job->same;
    if (job->is_done) {
        *(job->prev != NULL ? &job->prev->next : &jobs->first) = job->next;
        *(job->next != NULL ? &job->next->prev : &jobs->last) = job->prev;
    } else {
        forget_secession(jobs, job);
        jobs->under_way--;
    }
    jobs->count--;
    tn_message_fini(&job->message);
    free(job->detail);
    free(job->deaths);
    *job = (struct tni_job){.same = jobs->free};
    jobs->free = job;
}

uint64_t tni_jobs_give_up(struct tni_jobs *jobs)
{
    uint64_t given_up = 0;
    for (uint64_t i = 0; jobs->table != NULL && i <= jobs->mask; i++)
        for (struct tni_job *job = jobs->table[i], *same; job != NULL; job = same) {
            same = job->same;
            if (job->is_done)
                continue;
            tni_jobs_drop(jobs, job);
            given_up++;
        }
    return given_up;
}

static void free_all(struct tni_job *job)
{
    for (struct tni_job *same; job != NULL; job = same) {
        same = job->same;
        tn_message_fini(&job->message);
        free(job->detail);
        free(job->deaths);
        free(job);
    }
}

void tni_jobs_fini(struct tni_jobs *jobs)
{
    for (uint64_t i = 0; jobs->table != NULL && i <= jobs->mask; i++)
        free_all(jobs->table[i]);
    free_all(jobs->free);
    free(jobs->table);
    *jobs = (struct tni_jobs){0};
}
