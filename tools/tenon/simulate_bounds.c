/* SPDX-License-Identifier: Apache-2.0 */
/* simulate_bounds: computes times that no order of the tasks of a graph can undercut. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "simulate.h"

/* The tasks in an order in which inputs come first, by Kahn's method. */
struct walk {
    uint32_t *waits;          /* [task_count]: inputs that have not come yet */
    uint64_t *successor_ends; /* [task_count]: as input_ends */
    uint32_t *successors;
    uint32_t *order; /* [order_count] */
    uint32_t order_count;
};

static void free_walk(struct walk *walk)
{
    free(walk->waits);
    free(walk->successor_ends);
    free(walk->successors);
    free(walk->order);
}

static uint64_t first_of(const uint64_t *ends, uint32_t task)
{
    return task > 0 ? ends[task - 1] : 0;
}

/* Turn the edges around: from the inputs of tasks to the tasks after a task. */
static bool make_walk(const struct simulate_graph *graph, struct walk *walk)
{
    uint32_t count = graph->task_count;
    uint64_t edges = count > 0 ? graph->input_ends[count - 1] : 0;
    walk->waits = calloc(count + 1, sizeof *walk->waits);
    walk->successor_ends = calloc(count + 1, sizeof *walk->successor_ends);
    walk->successors = calloc(edges + 1, sizeof *walk->successors);
    walk->order = calloc(count + 1, sizeof *walk->order);
    if (walk->waits == NULL || walk->successor_ends == NULL || walk->successors == NULL ||
        walk->order == NULL)
        return false;
    /* Each end first is the begin of the next task's part, and moves as the part is filled. */
    for (uint64_t i = 0; i < edges; i++)
        walk->successor_ends[graph->inputs[i] + 1]++;
    for (uint32_t i = 0; i < count; i++)
        walk->successor_ends[i + 1] += walk->successor_ends[i];
    for (uint32_t i = 0; i < count; i++) {
        uint64_t first = first_of(graph->input_ends, i);
        walk->waits[i] = (uint32_t)(graph->input_ends[i] - first);
        for (uint64_t j = first; j < graph->input_ends[i]; j++)
            walk->successors[walk->successor_ends[graph->inputs[j]]++] = i;
    }
    return true;
}

static uint64_t fastest_ns(const struct simulate_graph *graph, uint32_t task)
{
    uint64_t least = UINT64_MAX;
    for (uint32_t i = 0; i < graph->kinds[graph->task_kinds[task]].variant_count; i++) {
        uint64_t run_ns = simulate_task_ns(graph, task, i);
        least = run_ns < least ? run_ns : least;
    }
    return least;
}

/* Go from inputs to the tasks after them. */
static void walk_ahead(const struct simulate_graph *graph, struct walk *walk,
                       struct simulate_bounds *bounds)
{
    for (uint32_t i = 0; i < graph->task_count; i++)
        if (walk->waits[i] == 0)
            walk->order[walk->order_count++] = i;
    for (uint32_t i = 0; i < walk->order_count; i++) {
        uint32_t task = walk->order[i];
        uint64_t end_ns = bounds->before_ns[task] + fastest_ns(graph, task);
        bounds->path_ns = end_ns > bounds->path_ns ? end_ns : bounds->path_ns;
        for (uint64_t j = first_of(walk->successor_ends, task); j < walk->successor_ends[task];
             j++) {
            uint32_t next = walk->successors[j];
            if (end_ns > bounds->before_ns[next])
                bounds->before_ns[next] = end_ns;
            if (--walk->waits[next] == 0)
                walk->order[walk->order_count++] = next;
        }
    }
}

/* Go from tasks to their inputs. */
static void walk_back(const struct simulate_graph *graph, const struct walk *walk,
                      struct simulate_bounds *bounds)
{
    for (uint32_t i = walk->order_count; i-- > 0;) {
        uint32_t task = walk->order[i];
        uint64_t rest_ns = bounds->after_ns[task] + fastest_ns(graph, task);
        for (uint64_t j = first_of(graph->input_ends, task); j < graph->input_ends[task]; j++)
            if (rest_ns > bounds->after_ns[graph->inputs[j]])
                bounds->after_ns[graph->inputs[j]] = rest_ns;
    }
}

/* An input of a task that waits which waits, too. There is one. */
static uint32_t input_that_waits(const struct simulate_graph *graph, const struct walk *walk,
                                 uint32_t task)
{
    uint64_t i = first_of(graph->input_ends, task);
    while (walk->waits[graph->inputs[i]] == 0)
        i++;
    return (uint32_t)graph->inputs[i];
}

/* @return the lowest task of a circle. pre: there is one */
static uint32_t find_circle(const struct simulate_graph *graph, const struct walk *walk)
{
    uint32_t task = 0;
    while (walk->waits[task] == 0)
        task++;
    for (uint32_t i = 0; i < graph->task_count; i++) /* after so many steps it is in a circle */
        task = input_that_waits(graph, walk, task);
    uint32_t lowest = task, at = task;
    while ((at = input_that_waits(graph, walk, at)) != task)
        lowest = at < lowest ? at : lowest;
    return lowest;
}

static int fail_circle(const struct simulate_graph *graph, const struct walk *walk)
{
    enum { SHOWN = 4 }; /* tasks beside the first */
    char names[(SHOWN + 2) * (SIMULATE_NAME_BYTES + 8)], name[SIMULATE_NAME_BYTES];
    uint32_t first = find_circle(graph, walk), at = first, length = 0;
    size_t used =
        (size_t)snprintf(names, sizeof names, "%s", simulate_task_name(graph, first, name));

    for (; (at = input_that_waits(graph, walk, at)) != first; length++)
        if (length < SHOWN)
            used += (size_t)snprintf(names + used, sizeof names - used, " for %s",
                                     simulate_task_name(graph, at, name));
    if (length > SHOWN)
        snprintf(names + used, sizeof names - used, " for %u more", length - SHOWN);
    return simulate_fail(&graph->file, "tasks wait in a circle: %s for %s", names,
                         simulate_task_name(graph, first, name));
}

int simulate_bound_path(const struct simulate_graph *graph, struct simulate_bounds *ret_bounds)
{
    struct walk walk = {0};
    int code = CMD_FINE;
    ret_bounds->before_ns = calloc(graph->task_count + 1, sizeof *ret_bounds->before_ns);
    ret_bounds->after_ns = calloc(graph->task_count + 1, sizeof *ret_bounds->after_ns);
    if (ret_bounds->before_ns != NULL && ret_bounds->after_ns != NULL &&
        make_walk(graph, &walk)) {
        walk_ahead(graph, &walk, ret_bounds);
        walk_back(graph, &walk, ret_bounds);
        if (walk.order_count < graph->task_count)
            code = fail_circle(graph, &walk);
    } else {
        code = cmd_no_memory("simulate");
    }
    free_walk(&walk);
    return code;
}

void simulate_bounds_fini(struct simulate_bounds *bounds)
{
    free(bounds->before_ns);
    free(bounds->after_ns);
}

/* The least that a task takes of a resource: of its variants, which the scheduler chooses from.
 */
static double least_work(const struct simulate_graph *graph,
                         const struct simulate_amounts *amounts, uint32_t task,
                         uint32_t resource)
{
    double least = INFINITY;
    for (uint32_t i = 0; i < graph->kinds[graph->task_kinds[task]].variant_count; i++) {
        double work = amounts->of[i][resource] * (double)simulate_task_ns(graph, task, i);
        least = work < least ? work : least;
    }
    return least;
}

/* The resource does nothing before its first task may begin, and after its last one. */
static uint64_t bound_resource(const struct simulate_graph *graph,
                               const struct simulate_result *result,
                               const struct simulate_bounds *bounds, uint32_t resource)
{
    double work = 0, total = result->info.resources[resource].total;
    uint64_t before_ns = UINT64_MAX, after_ns = UINT64_MAX;
    for (uint32_t i = 0; i < graph->task_count; i++) {
        double least = least_work(graph, &result->amounts[graph->task_kinds[i]], i, resource);
        if (least <= 0)
            continue;
        work += least;
        before_ns = bounds->before_ns[i] < before_ns ? bounds->before_ns[i] : before_ns;
        after_ns = bounds->after_ns[i] < after_ns ? bounds->after_ns[i] : after_ns;
    }
    /* Rounded up at most to the next ns, which a run takes, too. */
    return work > 0 && total > 0 ? before_ns + (uint64_t)(work / total + 0.5) + after_ns : 0;
}

void simulate_bound_resources(const struct simulate_graph *graph,
                              const struct simulate_result *result,
                              struct simulate_bounds *bounds)
{
    bounds->most_ns = bounds->path_ns;
    bounds->most_of = -1;
    for (uint32_t i = 0; i < result->info.resource_count; i++) {
        bounds->resource_ns[i] = bound_resource(graph, result, bounds, i);
        if (bounds->resource_ns[i] > bounds->most_ns) {
            bounds->most_ns = bounds->resource_ns[i];
            bounds->most_of = (int32_t)i;
        }
    }
}
