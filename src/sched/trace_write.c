/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trace_write: writes a trace as JSON that the viewers of Chrome and Perfetto open.
 *
 * Each resource is a process of the viewer. Its threads are lanes: one for each slot that was
 * in use, and one for each CPU. A task is drawn in each lane that it had, and an arrow leads
 * from each input to the task. A task without a slot that requests less than one CPU has a lane
 * of THREADS. For each resource, a counter shows how much of it was in use. The memories are
 * one more process, which has only counters.
 *
 * The begins and the ends of all tasks are gone through in the order of time, to give lanes to
 * the tasks and to count what is in use. So lanes are as few as possible, and no two tasks
 * overlap in one.
 *
 * Source: the Trace Event Format of Chrome; the events M, X, s, f and C.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "sched/trace.h"

enum { NO_SLOT = -1, MOST_LANES = 1024 /* of CPUs that one task is drawn in */ };

/* The lanes of one slot; or of the CPUs or threads, whose units have no identity. */
struct family {
    uint32_t pool;
    int64_t slot;               /* its number; NO_SLOT: none */
    struct tni_trace_list free; /* of uint32_t: lanes */
    uint32_t lane_count;
};

/* One row of the viewer. */
struct lane {
    uint32_t pool, number; /* number: in its family */
    int64_t slot;
    uint32_t family, tid;
};

struct moment {
    uint64_t ns;
    uint32_t task;
    /* Of one time, in this order; what takes no time does both before others begin. */
    enum { GIVES_CPU, ENDS, BEGINS_AND_ENDS, BEGINS } what;
};

struct writer {
    const struct tni_trace *trace;
    const struct tni_pools *pools;
    const struct tni_memories *memories;
    struct tni_trace_task *tasks; /* of the trace, by graph and number */
    size_t task_count;
    struct tni_trace_list families, lanes;
    struct tni_trace_list held; /* of uint32_t: lanes; those of one task side by side */
    struct moment *moments;     /* [moment_count], owned */
    size_t moment_count;
    int fd, status;
    bool has_event; /* one was written */
    size_t used;
    char buffer[8192];
};

/* ---- output ------------------------------------------------------------------------------ */

static void flush_out(struct writer *w)
{
    if (w->status == 0 && w->used > 0)
        w->status = tni_os_write(w->fd, w->buffer, w->used);
    w->used = 0;
}

/* A text that is printed has at most 256 bytes. */
__attribute__((format(printf, 2, 3))) static void put(struct writer *w, const char *format, ...)
{
    enum { MOST = 256 };
    va_list arguments;
    if (sizeof w->buffer - w->used < MOST)
        flush_out(w);
    va_start(arguments, format);
    int len = vsnprintf(w->buffer + w->used, MOST, format, arguments);
    va_end(arguments);
    w->used += (size_t)TNI_MAX(TNI_MIN(len, MOST - 1), 0);
}

static void put_text(struct writer *w, const char *text)
{
    put(w, "\"");
    for (const char *at = text; *at != '\0';) {
        unsigned char byte = (unsigned char)*at;
        int length = byte < 0x80 ? 1 : tni_text_measure(at);
        if (byte < ' ')
            put(w, "\\u%04x", byte);
        else if (byte == '"' || byte == '\\')
            put(w, "\\%c", byte);
        else if (length == 0)
            put(w, "\\ufffd"); /* not UTF-8, which JSON has to be */
        else
            put(w, "%.*s", length, at);
        at += TNI_MAX(length, 1);
    }
    put(w, "\"");
}

/* ---- lanes ------------------------------------------------------------------------------- */

static struct family *family_at(const struct writer *w, size_t i)
{
    return (struct family *)w->families.items + i;
}

static struct lane *lane_at(const struct writer *w, size_t i)
{
    return (struct lane *)w->lanes.items + i;
}

static uint32_t held_at(const struct writer *w, size_t i)
{
    const uint32_t *held = w->held.items;
    return held != NULL ? held[i] : 0; /* each task that has begun has a lane */
}

static struct family *find_family(struct writer *w, uint32_t pool, int64_t slot)
{
    for (size_t i = 0; i < w->families.count; i++)
        if (family_at(w, i)->pool == pool && family_at(w, i)->slot == slot)
            return family_at(w, i);
    struct family *made = tni_trace_push(&w->families, sizeof *made);
    if (made != NULL)
        *made = (struct family){.pool = pool, .slot = slot};
    return made;
}

/* Make a lane that is in use. @return its index; UINT32_MAX: no memory */
static uint32_t add_lane(struct writer *w, struct family *family)
{
    struct lane *lane = tni_trace_push(&w->lanes, sizeof *lane);
    if (lane == NULL)
        return UINT32_MAX;
    *lane = (struct lane){.pool = family->pool,
                          .slot = family->slot,
                          .number = family->lane_count++,
                          .family = (uint32_t)(family - family_at(w, 0))};
    return (uint32_t)(w->lanes.count - 1);
}

static bool take_lane(struct writer *w, struct tni_trace_task *task, uint32_t pool,
                      int64_t slot)
{
    struct family *family = find_family(w, pool, slot);
    uint32_t *held = tni_trace_push(&w->held, sizeof *held);
    if (family == NULL || held == NULL)
        return false;
    *held = family->free.count > 0 ? ((uint32_t *)family->free.items)[--family->free.count]
                                   : add_lane(w, family);
    task->lane_count++;
    return *held != UINT32_MAX;
}

/* What the task had of a pool, in units. */
static uint64_t amount_of(const struct tni_trace_task *task, uint32_t pool)
{
    for (uint32_t i = 0; i < task->request->count; i++)
        if (task->request->needs[i].pool == pool)
            return task->request->needs[i].amount;
    return 0;
}

static bool take_lanes(struct writer *w, struct tni_trace_task *task)
{
    const struct tni_slot_ref *slots = w->trace->slots.items;
    task->first_lane = w->held.count;
    task->lane_count = 0;
    for (size_t i = task->first_slot; i < task->first_slot + task->slot_count; i++) {
        const struct tni_pool *pool = &w->pools->pools[slots[i].pool];
        if (!take_lane(w, task, slots[i].pool, pool->slots[slots[i].slot].id))
            return false;
    }
    uint64_t cpus = TNI_MIN(amount_of(task, TNI_CPU) / TNI_UNIT, MOST_LANES);
    for (uint64_t i = 0; i < cpus; i++)
        if (!take_lane(w, task, TNI_CPU, NO_SLOT))
            return false;
    return task->lane_count > 0 || take_lane(w, task, TNI_THREADS, NO_SLOT);
}

/* Whether the lane, counted from the first of the task, is of a CPU or of a thread. */
static bool is_cpu_lane(const struct tni_trace_task *task, size_t lane)
{
    return lane >= task->slot_count; /* lanes of slots come first */
}

static bool give_lanes(struct writer *w, const struct tni_trace_task *task, bool of_cpus)
{
    for (size_t i = task->lane_count; i > 0; i--) {
        uint32_t lane = held_at(w, task->first_lane + i - 1);
        if (is_cpu_lane(task, i - 1) != of_cpus)
            continue;
        struct family *family = family_at(w, lane_at(w, lane)->family);
        uint32_t *given = tni_trace_push(&family->free, sizeof *given);
        if (given == NULL)
            return false;
        *given = lane;
    }
    return true;
}

static int compare_numbers(int64_t a, int64_t b) { return (a > b) - (a < b); }

static int compare_lanes(const void *one, const void *other)
{
    const struct lane *a = *(struct lane *const *)one, *b = *(struct lane *const *)other;
    int order = compare_numbers(a->pool, b->pool);
    if (order == 0)
        order = compare_numbers(a->slot, b->slot);
    return order != 0 ? order : compare_numbers(a->number, b->number);
}

/* Number the lanes by resource and slot: viewers show them in this order. */
static bool number_lanes(struct writer *w)
{
    struct lane **order = malloc((w->lanes.count + 1) * sizeof(struct lane *));
    for (size_t i = 0; order != NULL && i < w->lanes.count; i++)
        order[i] = lane_at(w, i);
    if (order == NULL)
        return false;
    qsort((void *)order, w->lanes.count, sizeof(struct lane *), compare_lanes);
    for (size_t i = 0; i < w->lanes.count; i++)
        order[i]->tid = (uint32_t)i + 1;
    free((void *)order);
    return true;
}

/* ---- events ------------------------------------------------------------------------------ */

/* The end of an event ends its line, too, so that a person can search in the file. */
static void begin_event(struct writer *w, const char *phase, uint32_t pool)
{
    put(w, "%s\n{\"ph\":\"%s\",\"pid\":%" PRIu32, w->has_event ? "," : "", phase, pool + 1);
    w->has_event = true;
}

static void begin_lane_event(struct writer *w, const char *phase, uint32_t lane)
{
    begin_event(w, phase, lane_at(w, lane)->pool);
    put(w, ",\"tid\":%" PRIu32, lane_at(w, lane)->tid);
}

static void put_time(struct writer *w, const char *key, uint64_t ns)
{
    put(w, ",\"%s\":%" PRIu64 ".%03" PRIu64, key, ns / 1000, ns % 1000);
}

static void put_lane_name(struct writer *w, uint32_t at)
{
    const struct lane *lane = lane_at(w, at);
    begin_lane_event(w, "M", at);
    put(w, ",\"name\":\"thread_name\",\"args\":{\"name\":\"%s",
        lane->pool == TNI_THREADS ? "thread" : w->pools->pools[lane->pool].name);
    if (lane->slot == NO_SLOT)
        put(w, " %" PRIu32, lane->number);
    else
        put(w, " %" PRId64, lane->slot);
    if (lane->slot != NO_SLOT && lane->number > 0) /* tasks shared the slot */
        put(w, " (%" PRIu32 ")", lane->number + 1);
    put(w, "\"}}");
}

static void put_names(struct writer *w)
{
    for (uint32_t i = 0; i < w->pools->count; i++) {
        begin_event(w, "M", i);
        put(w, ",\"name\":\"process_name\",\"args\":{\"name\":\"%s\"}}",
            w->pools->pools[i].name);
    }
    for (uint32_t i = 0; i < w->lanes.count; i++)
        put_lane_name(w, i);
}

static void put_task(struct writer *w, const struct tni_trace_task *task)
{
    for (uint32_t i = 0; i < task->lane_count; i++) {
        uint64_t until_ns = is_cpu_lane(task, i) ? task->cpu_until_ns : task->ended_ns;
        begin_lane_event(w, "X", held_at(w, task->first_lane + i));
        put_time(w, "ts", task->began_ns);
        put_time(w, "dur", until_ns - task->began_ns);
        put(w, ",\"cat\":\"task\",\"name\":");
        put_text(w, task->kind->name);
        put(w, ",\"args\":{\"task\":");
        if (task->name != NULL)
            put_text(w, task->name);
        else
            put(w, "%" PRIu32, task->number);
        if (task->pid != 0)
            put(w, ",\"worker\":%" PRId32, task->pid);
        if (task->status != 0)
            put(w, ",\"error\":\"%s\"", tn_status_name(task->status));
        put(w, "}}");
    }
}

/* An arrow from the last moment of the input, since its end may be the begin of another task.
 */
static void put_edge(struct writer *w, size_t at, const struct tni_trace_task *from,
                     const struct tni_trace_task *to)
{
    uint64_t until_ns = is_cpu_lane(from, 0) ? from->cpu_until_ns : from->ended_ns;
    uint64_t last_ns = until_ns - (until_ns > from->began_ns);
    static const char rest[] = ",\"cat\":\"input\",\"name\":\"input\",\"id\":%zu%s}";

    begin_lane_event(w, "s", held_at(w, from->first_lane));
    put_time(w, "ts", last_ns);
    put(w, rest, at, "");
    begin_lane_event(w, "f", held_at(w, to->first_lane));
    put_time(w, "ts", to->began_ns);
    put(w, rest, at, ",\"bp\":\"e\"");
}

static void put_counter(struct writer *w, uint32_t pool, uint64_t ns, uint64_t units)
{
    begin_event(w, "C", pool);
    put_time(w, "ts", ns);
    put(w, ",\"name\":\"%s in use\",\"args\":{\"in use\":%" PRIu64, w->pools->pools[pool].name,
        units / TNI_UNIT);
    if (units % TNI_UNIT != 0)
        put(w, ".%04" PRIu64, units % TNI_UNIT);
    put(w, "}}");
}

static void count_use(uint64_t in_use[TNI_POOLS], const struct moment *moment,
                      const struct tni_trace_task *task)
{
    for (uint32_t i = 0; i < task->request->count; i++) {
        uint32_t pool = task->request->needs[i].pool;
        uint64_t units = task->request->needs[i].amount;
        bool is_built_in = pool < TNI_BUILT_IN;
        if (moment->what == BEGINS)
            in_use[pool] += units;
        else if (moment->what == (is_built_in ? GIVES_CPU : ENDS))
            in_use[pool] -= units;
    }
}

/* One counter event for each time at which an amount changes. */
static void put_counters(struct writer *w)
{
    uint64_t in_use[TNI_POOLS] = {0}, shown[TNI_POOLS] = {0};

    for (size_t i = 0; i < w->moment_count; i++) {
        count_use(in_use, &w->moments[i], &w->tasks[w->moments[i].task]);
        if (i + 1 < w->moment_count && w->moments[i + 1].ns == w->moments[i].ns)
            continue;
        for (uint32_t j = 0; j < w->pools->count; j++)
            if (in_use[j] != shown[j])
                put_counter(w, j, w->moments[i].ns, shown[j] = in_use[j]);
    }
}

/* ---- bytes ------------------------------------------------------------------------------- */

static void put_bytes(struct writer *w, const struct tni_trace_bytes *its, const char *what,
                      uint64_t bytes)
{
    const struct tni_memory *memory = &w->memories->all[its->memory];
    begin_event(w, "C", w->pools->count);
    put_time(w, "ts", its->ns);
    if (memory->pool == NULL)
        put(w, ",\"name\":\"%s", its->memory == TNI_HOST ? "host" : "disk");
    else
        put(w, ",\"name\":\"%s %" PRIu32, memory->pool->name,
            memory->pool->slots[memory->first].id);
    put(w, ": bytes %s\",\"args\":{\"bytes\":%" PRIu64 "}}", what, bytes);
}

/* Two counters for each memory that had any data. */
static void put_memories(struct writer *w)
{
    const struct tni_trace_bytes *bytes = w->trace->bytes.items;
    uint64_t held[TNI_MEMORIES] = {0}, moved[TNI_MEMORIES] = {0};
    if (w->trace->bytes.count == 0)
        return;
    begin_event(w, "M", w->pools->count);
    put(w, ",\"name\":\"process_name\",\"args\":{\"name\":\"memory\"}}");
    for (size_t i = 0; i < w->trace->bytes.count; i++) {
        const struct tni_trace_bytes *its = &bytes[i];
        if (its->held != held[its->memory])
            put_bytes(w, its, "held", held[its->memory] = its->held);
        if (its->moved != moved[its->memory])
            put_bytes(w, its, "moved here", moved[its->memory] = its->moved);
    }
}

/* ---- order ------------------------------------------------------------------------------- */

static int compare_keys(uint32_t graph, uint32_t number, uint32_t other_graph,
                        uint32_t other_number)
{
    int order = compare_numbers(graph, other_graph);
    return order != 0 ? order : compare_numbers(number, other_number);
}

static int compare_tasks(const void *one, const void *other)
{
    const struct tni_trace_task *a = one, *b = other;
    return compare_keys(a->graph, a->number, b->graph, b->number);
}

/* @return the task of a graph, or NULL: it has not ended */
static struct tni_trace_task *find_task(const struct writer *w, uint32_t graph, uint32_t number)
{
    const struct tni_trace_task wanted = {.graph = graph, .number = number};
    return w->task_count == 0
               ? NULL
               : bsearch(&wanted, w->tasks, w->task_count, sizeof *w->tasks, compare_tasks);
}

static void give_names(const struct writer *w)
{
    const struct tni_trace_name *names = w->trace->names.items;
    for (size_t i = 0; i < w->trace->names.count; i++) {
        struct tni_trace_task *task = find_task(w, names[i].graph, names[i].number);
        if (task != NULL)
            task->name = names[i].name;
    }
}

static int compare_moments(const void *one, const void *other)
{
    const struct moment *a = one, *b = other;
    if (a->ns != b->ns)
        return a->ns < b->ns ? -1 : 1;
    int order = compare_numbers(a->what, b->what);
    return order != 0 ? order : compare_numbers(a->task, b->task);
}

static bool make_moments(struct writer *w)
{
    w->moments = malloc((w->task_count + 1) * 3 * sizeof *w->moments);
    if (w->moments == NULL)
        return false;
    for (uint32_t i = 0; i < w->task_count; i++) {
        const struct tni_trace_task *task = &w->tasks[i];
        struct moment *next = &w->moments[w->moment_count];
        if (task->began_ns == task->ended_ns) {
            next[0] = (struct moment){task->began_ns, i, BEGINS_AND_ENDS};
            w->moment_count += 1;
            continue;
        }
        next[0] = (struct moment){task->began_ns, i, BEGINS};
        next[1] = (struct moment){task->cpu_until_ns, i, GIVES_CPU};
        next[2] = (struct moment){task->ended_ns, i, ENDS};
        w->moment_count += 3;
    }
    qsort(w->moments, w->moment_count, sizeof *w->moments, compare_moments);
    return true;
}

static bool assign_lanes(struct writer *w)
{
    for (size_t i = 0; i < w->moment_count; i++) {
        struct tni_trace_task *task = &w->tasks[w->moments[i].task];
        bool begins = w->moments[i].what >= BEGINS_AND_ENDS, is_done = true;
        if (begins)
            is_done = take_lanes(w, task);
        if (is_done && w->moments[i].what != BEGINS && w->moments[i].what != ENDS)
            is_done = give_lanes(w, task, true);
        if (is_done && w->moments[i].what != BEGINS && w->moments[i].what != GIVES_CPU)
            is_done = give_lanes(w, task, false);
        if (!is_done)
            return false;
    }
    return number_lanes(w);
}

static void put_all(struct writer *w)
{
    const struct tni_trace_edge *edges = w->trace->edges.items;
    put(w, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[");
    put_names(w);
    for (size_t i = 0; i < w->task_count; i++)
        put_task(w, &w->tasks[i]);
    for (size_t i = 0; i < w->trace->edges.count; i++) {
        const struct tni_trace_task *from = find_task(w, edges[i].graph, edges[i].from),
                                    *to = find_task(w, edges[i].graph, edges[i].to);
        if (from != NULL && to != NULL)
            put_edge(w, i, from, to);
    }
    put_counters(w);
    put_memories(w);
    put(w, "\n]}\n");
    flush_out(w);
}

int tni_trace_write(const struct tni_trace *trace, const struct tni_plan *plan, int fd)
{
    struct writer *w = calloc(1, sizeof *w);
    if (w == NULL)
        return tni_fail(TN_ERR_NO_MEMORY, "there is no memory to write a trace");
    w->trace = trace;
    w->pools = &plan->pools;
    w->memories = &plan->memories;
    w->fd = fd;
    w->tasks = trace->tasks.items;
    w->task_count = trace->tasks.count;
    if (w->task_count > 0)
        qsort(w->tasks, w->task_count, sizeof *w->tasks, compare_tasks);
    give_names(w);
    if (make_moments(w) && assign_lanes(w))
        put_all(w);
    else
        w->status = tni_fail(TN_ERR_NO_MEMORY, "there is no memory to write a trace");
    int status = w->status;
    for (size_t i = 0; i < w->families.count; i++)
        free(family_at(w, i)->free.items);
    free(w->families.items);
    free(w->lanes.items);
    free(w->held.items);
    free(w->moments);
    free(w);
    return status;
}
