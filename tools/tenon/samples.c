/* SPDX-License-Identifier: Apache-2.0 */
#include "samples.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

void samples_free(struct samples *samples)
{
    for (size_t i = 0; i < samples->count; i++) {
        free(samples->at[i].seats);
        free(samples->at[i].objects);
        free(samples->at[i].schedulers);
        devices_free(&samples->at[i].devices);
    }
    free(samples->at);
    *samples = (struct samples){0};
}

static int add_seat(const tn_seat_entry *seat, void *context)
{
    struct sample *sample = context;
    tn_seat_entry *grown = reallocarray(sample->seats, sample->seat_count + 1, sizeof *grown);
    if (grown == NULL)
        return TN_ERR_NO_MEMORY;
    grown[sample->seat_count++] = *seat;
    sample->seats = grown;
    return 0;
}

static int add_object(const tn_object_entry *object, void *context)
{
    struct sample *sample = context;
    tn_object_entry *grown =
        reallocarray(sample->objects, sample->object_count + 1, sizeof *grown);
    if (grown == NULL)
        return TN_ERR_NO_MEMORY;
    grown[sample->object_count] = *object;
    grown[sample->object_count].owners = NULL; /* borrowed, and a queue has no owner */
    grown[sample->object_count++].owner_count = 0;
    sample->objects = grown;
    return 0;
}

static int add_scheduler(const tn_scheduler_entry *scheduler, void *context)
{
    struct sample *sample = context;
    tn_scheduler_entry *grown =
        reallocarray(sample->schedulers, sample->scheduler_count + 1, sizeof *grown);
    if (grown == NULL)
        return TN_ERR_NO_MEMORY;
    grown[sample->scheduler_count++] = *scheduler;
    sample->schedulers = grown;
    return 0;
}

static int compare_seats(const void *one, const void *other)
{
    const tn_seat_entry *a = one, *b = other;
    uint64_t of_a = a->bytes_held + a->device_bytes_held;
    uint64_t of_b = b->bytes_held + b->device_bytes_held;
    if (of_a != of_b)
        return of_a < of_b ? 1 : -1;
    return (a->seat > b->seat) - (a->seat < b->seat);
}

/* After a failure the sample has what was taken before, for samples_free(). */
static int fill(tn_inspector *inspector, struct sample *sample)
{
    sample->stat.struct_size = sizeof sample->stat;
    int status = tn_inspect_stat(inspector, &sample->stat);
    if (status == 0)
        status = tn_inspect_seats(inspector, add_seat, sample);
    sample->taken_ns = now_ns();
    if (status == 0)
        status = tn_inspect_objects(inspector, add_object, sample);
    if (status == 0)
        status = tn_inspect_schedulers(inspector, add_scheduler, sample);
    if (status == 0)
        status = devices_list(inspector, &sample->devices);
    if (sample->seat_count > 0)
        qsort(sample->seats, sample->seat_count, sizeof *sample->seats, compare_seats);
    return status;
}

static int add_sample(const char *name, struct samples *samples)
{
    tn_inspector *inspector;
    int status = tn_inspector_open(name, &inspector);
    if (status != 0)
        return status;
    struct sample *grown = reallocarray(samples->at, samples->count + 1, sizeof *grown);
    if (grown == NULL) {
        tn_inspector_close(inspector);
        return TN_ERR_NO_MEMORY;
    }
    samples->at = grown;
    grown[samples->count] = (struct sample){0};
    status = fill(inspector, &grown[samples->count++]);
    tn_inspector_close(inspector);
    return status;
}

int samples_take(const char *name, struct samples *samples)
{
    struct cmd_domains domains;
    char id[CMD_ID_BYTES];

    if (name != NULL)
        return add_sample(name, samples);
    int status = cmd_list_domains(&domains);
    if (status != 0)
        return status;
    for (size_t i = 0; i < domains.count && status == 0; i++) {
        if (domains.at[i].other_layout != 0)
            continue; /* made by another version of tenon */
        cmd_hex_id(&domains.at[i], id);
        status = add_sample(id, samples);
        if (status == TN_ERR_NOT_FOUND)
            status = 0; /* the domain ended since it was listed */
    }
    free(domains.at);
    return status;
}

const struct sample *samples_find(const struct samples *before, const struct sample *sample)
{
    for (size_t i = 0; i < before->count; i++)
        if (memcmp(before->at[i].stat.domain.id, sample->stat.domain.id,
                   sizeof sample->stat.domain.id) == 0)
            return &before->at[i];
    return NULL;
}

/* Seconds between two samples; 0: not known. */
static double seconds_between(const struct sample *before, const struct sample *sample)
{
    if (before == NULL || sample->taken_ns <= before->taken_ns)
        return 0;
    return (double)(sample->taken_ns - before->taken_ns) / 1e9;
}

double samples_rate(const struct sample *before, const struct sample *sample,
                    const tn_object_entry *queue)
{
    double seconds = seconds_between(before, sample);
    for (size_t i = 0; seconds > 0 && i < before->object_count; i++)
        if (before->objects[i].id == queue->id && before->objects[i].pushed <= queue->pushed)
            return (double)(queue->pushed - before->objects[i].pushed) / seconds;
    return -1;
}

double samples_task_rate(const struct sample *before, const struct sample *sample,
                         const tn_scheduler_entry *scheduler)
{
    double seconds = seconds_between(before, sample);
    for (size_t i = 0; seconds > 0 && i < before->scheduler_count; i++) {
        const tn_scheduler_entry *same = &before->schedulers[i];
        if (same->block == scheduler->block && same->pid == scheduler->pid &&
            same->info.ended <= scheduler->info.ended)
            return (double)(scheduler->info.ended - same->info.ended) / seconds;
    }
    return -1;
}
