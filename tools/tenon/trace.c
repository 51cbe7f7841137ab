/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trace: writes the run of a graph as JSON that the trace viewers of Chrome and Perfetto open.
 *
 * trace_write() goes through the begins and the ends of all tasks in the order of time. It
 * gives lanes to the tasks, and counts what is in use. So lanes are as few as possible, and no
 * two tasks overlap in one.
 *
 * Source: the Trace Event Format of Chrome; the events M, X, s, f and C.
 */
#include "trace.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum {
    RESOURCES = 32,
    UNIT = 10000,     /* amounts have four decimals */
    MOST_LANES = 1024 /* of CPUs that one task is drawn in */
};

/* One row of the viewer. */
struct lane {
    uint32_t family, number; /* in its family */
    uint32_t tid;
};

/* The lanes of one slot; or of the CPUs or threads, whose units have no identity. */
struct family {
    uint32_t resource;
    int64_t slot; /* -1: none */
    uint32_t lane_count, free_count, free_room;
    uint32_t *free; /* [free_count], owned: places in `lanes` */
};

struct task {
    struct trace_task given;
    size_t first_held;
    uint32_t held_count; /* lanes */
};

struct trace {
    const tn_resource_info *resources;
    uint32_t resource_count, cpu, threads; /* cpu, threads: UINT32_MAX: there is none */
    struct task *tasks;
    struct edge {
        uint32_t from, to;
    } * edges;
    struct family *families;
    struct lane *lanes;
    uint32_t *held; /* places in `lanes` */
    size_t task_count, task_room, edge_count, edge_room, family_count, family_room, lane_count,
        lane_room, held_count, held_room;
    FILE *file;
    bool has_event; /* one was written */
};

static uint32_t find_resource(const struct trace *trace, const char *name, size_t length)
{
    for (uint32_t i = 0; i < trace->resource_count; i++)
        if (strlen(trace->resources[i].name) == length &&
            memcmp(trace->resources[i].name, name, length) == 0)
            return i;
    return UINT32_MAX;
}

struct trace *trace_create(const tn_resource_info *resources, uint32_t count)
{
    struct trace *trace = calloc(1, sizeof *trace);
    if (trace == NULL || count > RESOURCES) {
        free(trace);
        return NULL;
    }
    trace->resources = resources;
    trace->resource_count = count;
    trace->cpu = find_resource(trace, "CPU", 3);
    trace->threads = find_resource(trace, "THREADS", 7);
    return trace;
}

struct trace *trace_destroy(struct trace *trace)
{
    if (trace == NULL)
        return NULL;
    for (size_t i = 0; i < trace->family_count; i++)
        free(trace->families[i].free);
    free(trace->families);
    free(trace->tasks);
    free(trace->edges);
    free(trace->lanes);
    free(trace->held);
    free(trace);
    return NULL;
}

/* Make room for one more item. @return the array, or NULL: no memory; it is as before */
static void *grow(void *array, size_t count, size_t *room, size_t item_bytes)
{
    if (count < *room)
        return array;
    size_t more = *room == 0 ? 64 : 2 * *room;
    void *larger = reallocarray(array, more, item_bytes);
    if (larger != NULL)
        *room = more;
    return larger;
}

int trace_add(struct trace *trace, const struct trace_task *task)
{
    struct task *tasks =
        grow(trace->tasks, trace->task_count, &trace->task_room, sizeof *tasks);
    if (tasks == NULL)
        return -1;
    trace->tasks = tasks;
    tasks[trace->task_count++] = (struct task){.given = *task};
    return 0;
}

int trace_connect(struct trace *trace, uint32_t from, uint32_t to)
{
    struct edge *edges =
        grow(trace->edges, trace->edge_count, &trace->edge_room, sizeof *edges);
    if (edges == NULL)
        return -1;
    trace->edges = edges;
    edges[trace->edge_count++] = (struct edge){from, to};
    return 0;
}

/* ---- lanes ------------------------------------------------------------------------------- */

static struct family *get_family(struct trace *trace, uint32_t resource, int64_t slot)
{
    for (size_t i = 0; i < trace->family_count; i++)
        if (trace->families[i].resource == resource && trace->families[i].slot == slot)
            return &trace->families[i];
    struct family *families =
        grow(trace->families, trace->family_count, &trace->family_room, sizeof *families);
    if (families == NULL)
        return NULL;
    trace->families = families;
    families[trace->family_count] = (struct family){.resource = resource, .slot = slot};
    return &families[trace->family_count++];
}

/* Make a lane that is in use. Its family has room to keep it when it is free again. */
static bool add_lane(struct trace *trace, struct family *family)
{
    struct lane *lanes =
        grow(trace->lanes, trace->lane_count, &trace->lane_room, sizeof *lanes);
    if (lanes == NULL)
        return false;
    trace->lanes = lanes;
    if (family->lane_count == family->free_room) {
        uint32_t room = family->free_room == 0 ? 4 : 2 * family->free_room;
        uint32_t *larger = reallocarray(family->free, room, sizeof *larger);
        if (larger == NULL)
            return false;
        family->free = larger;
        family->free_room = room;
    }
    lanes[trace->lane_count++] =
        (struct lane){(uint32_t)(family - trace->families), family->lane_count++, 0};
    return true;
}

static bool take_lane(struct trace *trace, struct task *task, uint32_t resource, int64_t slot)
{
    struct family *family = get_family(trace, resource, slot);
    uint32_t *held = grow(trace->held, trace->held_count, &trace->held_room, sizeof *held);
    if (held != NULL)
        trace->held = held;
    if (family == NULL || held == NULL)
        return false;
    if (family->free_count > 0)
        held[trace->held_count] = family->free[--family->free_count];
    else if (add_lane(trace, family))
        held[trace->held_count] = (uint32_t)(trace->lane_count - 1);
    else
        return false;
    trace->held_count++;
    task->held_count++;
    return true;
}

/* Read slots, as in "GPU=0,1 NVME=3". */
static bool take_slots(struct trace *trace, struct task *task)
{
    const char *at = task->given.slots;
    while (at != NULL && *at != '\0') {
        const char *equals = strchr(at, '=');
        if (equals == NULL)
            break;
        uint32_t resource = find_resource(trace, at, (size_t)(equals - at));
        at = equals;
        do {
            char *end;
            long long slot = strtoll(at + 1, &end, 10);
            if (resource != UINT32_MAX && end != at + 1 &&
                !take_lane(trace, task, resource, slot))
                return false;
            at = end;
        } while (*at == ',');
        at += strspn(at, " ");
    }
    return true;
}

static bool take_lanes(struct trace *trace, struct task *task)
{
    task->first_held = trace->held_count;
    if (!take_slots(trace, task))
        return false;
    double cpus = trace->cpu < RESOURCES ? task->given.amounts[trace->cpu] : 0;
    uint32_t count = cpus < MOST_LANES ? (uint32_t)cpus : MOST_LANES; /* whole CPUs */
    for (uint32_t i = 0; i < count; i++)
        if (!take_lane(trace, task, trace->cpu, -1))
            return false;
    if (task->held_count > 0)
        return true;
    return take_lane(trace, task, trace->threads < RESOURCES ? trace->threads : 0, -1);
}

static void give_lanes(struct trace *trace, const struct task *task)
{
    for (uint32_t i = task->held_count; i > 0; i--) {
        uint32_t lane = trace->held[task->first_held + i - 1];
        struct family *family = &trace->families[trace->lanes[lane].family];
        family->free[family->free_count++] = lane;
    }
}

static int compare_numbers(int64_t a, int64_t b) { return (a > b) - (a < b); }

static int compare_lanes(const void *one, const void *other, void *context)
{
    const struct trace *trace = context;
    const struct lane *a = &trace->lanes[*(const uint32_t *)one],
                      *b = &trace->lanes[*(const uint32_t *)other];
    const struct family *x = &trace->families[a->family], *y = &trace->families[b->family];
    int order = compare_numbers(x->resource, y->resource);
    if (order == 0)
        order = compare_numbers(x->slot, y->slot);
    return order != 0 ? order : compare_numbers(a->number, b->number);
}

/* Number the lanes by resource and slot: viewers show them in this order. */
static int number_lanes(struct trace *trace)
{
    uint32_t *order = malloc((trace->lane_count + 1) * sizeof *order);
    if (order == NULL)
        return -1;
    for (uint32_t i = 0; i < trace->lane_count; i++)
        order[i] = i;
    qsort_r(order, trace->lane_count, sizeof *order, compare_lanes, trace);
    for (uint32_t i = 0; i < trace->lane_count; i++)
        trace->lanes[order[i]].tid = i + 1;
    free(order);
    return 0;
}

/* ---- JSON -------------------------------------------------------------------------------- */

/* The end of an event ends its line, too, so that a person can search in the file. */
static void begin_event(struct trace *trace, const char *phase, uint32_t resource)
{
    fprintf(trace->file, "%s\n{\"ph\":\"%s\",\"pid\":%" PRIu32, trace->has_event ? "," : "",
            phase, resource + 1);
    trace->has_event = true;
}

static void put_time(FILE *file, const char *key, uint64_t ns)
{
    fprintf(file, ",\"%s\":%" PRIu64 ".%03" PRIu64, key, ns / 1000, ns % 1000);
}

static void put_text(FILE *file, const char *text)
{
    putc('"', file);
    for (const unsigned char *at = (const unsigned char *)text; *at != '\0'; at++)
        if (*at < ' ')
            fprintf(file, "\\u%04x", *at);
        else if (*at == '"' || *at == '\\')
            fprintf(file, "\\%c", *at);
        else
            putc(*at, file);
    putc('"', file);
}

static void put_lane(struct trace *trace, const struct lane *lane)
{
    const struct family *family = &trace->families[lane->family];
    bool is_thread = family->slot < 0 && family->resource == trace->threads;
    const char *noun = is_thread ? "thread" : trace->resources[family->resource].name;

    begin_event(trace, "M", family->resource);
    fprintf(trace->file,
            ",\"tid\":%" PRIu32 ",\"name\":\"thread_name\",\"args\":{\"name\":\"%s", lane->tid,
            noun);
    if (family->slot < 0)
        fprintf(trace->file, " %" PRIu32, lane->number);
    else
        fprintf(trace->file, " %" PRId64, family->slot);
    if (family->slot >= 0 && lane->number > 0) /* tasks shared the slot */
        fprintf(trace->file, " (%" PRIu32 ")", lane->number + 1);
    fputs("\"}}", trace->file);
}

static void put_names(struct trace *trace)
{
    for (uint32_t i = 0; i < trace->resource_count; i++) {
        begin_event(trace, "M", i);
        fprintf(trace->file, ",\"name\":\"process_name\",\"args\":{\"name\":\"%s\"}}",
                trace->resources[i].name);
    }
    for (size_t i = 0; i < trace->lane_count; i++)
        put_lane(trace, &trace->lanes[i]);
}

static void begin_lane_event(struct trace *trace, const char *phase, uint32_t lane)
{
    begin_event(trace, phase, trace->families[trace->lanes[lane].family].resource);
    fprintf(trace->file, ",\"tid\":%" PRIu32, trace->lanes[lane].tid);
}

static void put_task(struct trace *trace, const struct task *task)
{
    const struct trace_task *given = &task->given;
    for (uint32_t i = 0; i < task->held_count; i++) {
        begin_lane_event(trace, "X", trace->held[task->first_held + i]);
        put_time(trace->file, "ts", given->began_ns);
        put_time(trace->file, "dur", given->ended_ns - given->began_ns);
        fputs(",\"cat\":\"task\",\"name\":", trace->file);
        put_text(trace->file, given->kind);
        fputs(",\"args\":{\"task\":", trace->file);
        if (given->id != NULL)
            put_text(trace->file, given->id);
        else
            fprintf(trace->file, "%" PRIu64, given->number);
        fputs("}}", trace->file);
    }
}

/* An arrow from the last moment of the input, since its end may be the begin of another task.
 */
static void put_edge(struct trace *trace, size_t at)
{
    const struct task *from = &trace->tasks[trace->edges[at].from];
    const struct task *to = &trace->tasks[trace->edges[at].to];
    uint64_t last_ns = from->given.ended_ns;
    static const char rest[] = ",\"cat\":\"input\",\"name\":\"input\",\"id\":%zu%s}";

    begin_lane_event(trace, "s", trace->held[from->first_held]);
    put_time(trace->file, "ts", last_ns > from->given.began_ns ? last_ns - 1 : last_ns);
    fprintf(trace->file, rest, at, "");
    begin_lane_event(trace, "f", trace->held[to->first_held]);
    put_time(trace->file, "ts", to->given.began_ns);
    fprintf(trace->file, rest, at, ",\"bp\":\"e\"");
}

static void put_counter(struct trace *trace, uint32_t resource, uint64_t ns, int64_t units)
{
    begin_event(trace, "C", resource);
    put_time(trace->file, "ts", ns);
    fprintf(trace->file, ",\"name\":\"%s in use\",\"args\":{\"in use\":%" PRId64,
            trace->resources[resource].name, units / UNIT);
    if (units % UNIT != 0)
        fprintf(trace->file, ".%04" PRId64, units % UNIT);
    fputs("}}", trace->file);
}

/* ---- the order of time ------------------------------------------------------------------- */

struct moment {
    uint64_t ns;
    uint32_t task;
    /* Of one time: what ends then, what begins then, and what does both. */
    enum { ENDS, BEGINS, ENDS_AT_ONCE } what;
};

static int compare_moments(const void *one, const void *other)
{
    const struct moment *a = one, *b = other;
    if (a->ns != b->ns)
        return a->ns < b->ns ? -1 : 1;
    int order = compare_numbers(a->what, b->what);
    return order != 0 ? order : compare_numbers(a->task, b->task);
}

/* @return [2 * task_count], owned by the caller; NULL: no memory */
static struct moment *make_moments(const struct trace *trace)
{
    struct moment *moments = malloc((trace->task_count + 1) * 2 * sizeof *moments);
    for (uint32_t i = 0; moments != NULL && i < trace->task_count; i++) {
        const struct trace_task *task = &trace->tasks[i].given;
        bool at_once = task->began_ns == task->ended_ns;
        moments[2 * (size_t)i] = (struct moment){task->began_ns, i, BEGINS};
        moments[2 * (size_t)i + 1] =
            (struct moment){task->ended_ns, i, at_once ? ENDS_AT_ONCE : ENDS};
    }
    if (moments != NULL)
        qsort(moments, 2 * trace->task_count, sizeof *moments, compare_moments);
    return moments;
}

static int assign_lanes(struct trace *trace, const struct moment *moments)
{
    for (size_t i = 0; i < 2 * trace->task_count; i++) {
        struct task *task = &trace->tasks[moments[i].task];
        if (moments[i].what != BEGINS)
            give_lanes(trace, task);
        else if (!take_lanes(trace, task))
            return -1;
    }
    return number_lanes(trace);
}

/* One counter event for each time at which an amount changes. */
static void put_counters(struct trace *trace, const struct moment *moments)
{
    int64_t in_use[RESOURCES] = {0}, shown[RESOURCES] = {0};
    size_t count = 2 * trace->task_count;

    for (size_t i = 0; i < count; i++) {
        const double *amounts = trace->tasks[moments[i].task].given.amounts;
        for (uint32_t j = 0; j < trace->resource_count; j++) {
            int64_t units = (int64_t)(amounts[j] * UNIT + 0.5);
            in_use[j] += moments[i].what == BEGINS ? units : -units;
        }
        if (i + 1 < count && moments[i + 1].ns == moments[i].ns)
            continue;
        for (uint32_t j = 0; j < trace->resource_count; j++)
            if (in_use[j] != shown[j])
                put_counter(trace, j, moments[i].ns, shown[j] = in_use[j]);
    }
}

int trace_write(struct trace *trace, FILE *file)
{
    struct moment *moments = make_moments(trace);
    if (moments == NULL || assign_lanes(trace, moments) != 0) {
        free(moments);
        return -1;
    }
    trace->file = file;
    fputs("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[", file);
    put_names(trace);
    for (size_t i = 0; i < trace->task_count; i++)
        put_task(trace, &trace->tasks[i]);
    for (size_t i = 0; i < trace->edge_count; i++)
        put_edge(trace, i);
    put_counters(trace, moments);
    fputs("\n]}\n", file);
    free(moments);
    return 0;
}
