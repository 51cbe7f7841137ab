/* SPDX-License-Identifier: Apache-2.0 */
/* simulate_run: runs a graph in virtual time, and keeps what each task did. */
#include <stdlib.h>
#include <string.h>

#include "simulate.h"

/* A run, and what its trace function needs. */
struct run {
    const struct simulate_graph *graph;
    struct simulate_result *result;
    tn_sched *sched;
    bool has_memories; /* results of tasks are data */
    tn_kind **kinds;   /* [kind_count] */
    uint32_t *ended;   /* [ended_count]: tasks in the order of their ends */
    uint32_t ended_count;
};

static void remember(const tn_task_event *event, void *context)
{
    struct run *run = context;
    struct simulate_task *task = &run->result->tasks[event->task];
    task->began_ns = event->began_ns;
    task->ended_ns = event->ended_ns;
    task->variant = event->variant;
    run->ended[run->ended_count++] = (uint32_t)event->task;
}

/* ---- kinds ------------------------------------------------------------------------------- */

static uint32_t find_resource(const tn_sched_info *info, const char *name, size_t length)
{
    uint32_t at = 0;
    while (at < info->resource_count && (strlen(info->resources[at].name) != length ||
                                         memcmp(info->resources[at].name, name, length) != 0))
        at++;
    return at;
}

/* Read a request that the library has accepted, so it is well-formed. */
static void read_request(const tn_sched_info *info, const char *text,
                         double amounts[SIMULATE_RESOURCES])
{
    static const char gaps[] = " \t\n\v\f\r,;";
    uint32_t cpu = find_resource(info, "CPU", 3), threads = find_resource(info, "THREADS", 7);
    bool has_cpu = false;

    for (const char *at = text != NULL ? text : ""; *(at += strspn(at, gaps)) != '\0';) {
        size_t length = strcspn(at, "=");
        uint32_t resource = find_resource(info, at, length);
        char *end;
        amounts[resource] = strtod(at + length + 1, &end);
        has_cpu = has_cpu || resource == cpu;
        at = end;
    }
    if (!has_cpu)
        amounts[cpu] = 1;
    if (amounts[cpu] < 1)
        amounts[threads] = 1;
}

static int make_kind(struct run *run, uint32_t at)
{
    const struct simulate_kind *kind = &run->graph->kinds[at];
    tn_variant variants[TN_VARIANTS] = {{0}};
    for (uint32_t i = 0; i < kind->variant_count; i++)
        variants[i] = (tn_variant){.request = kind->variants[i].request,
                                   .run_ns = kind->variants[i].run_ns};
    tn_kind_options options = {.struct_size = sizeof options,
                               .name = kind->name,
                               .variants = variants,
                               .variant_count = kind->variant_count,
                               .affinity = kind->affinity};
    int status = tn_kind_create(run->sched, &options, &run->kinds[at]);
    if (status == TN_ERR_INVALID) {
        struct simulate_file file = run->graph->file;
        snprintf(file.place, sizeof file.place, "kinds[%u]", at);
        return simulate_fail(&file, "%s", tn_error_detail());
    }
    if (status != 0)
        return cmd_fail("simulate", run->graph->file.path, status);
    for (uint32_t i = 0; i < kind->variant_count; i++)
        read_request(&run->result->info, variants[i].request, run->result->amounts[at].of[i]);
    return CMD_FINE;
}

/* ---- tasks ------------------------------------------------------------------------------- */

/* The results of tasks, and which a task writes and reads. */
struct results {
    tn_data **data; /* [task_count]; NULL: the result has no bytes, or is not looked at */
    tn_access *accesses;
    uint64_t *access_ends; /* [task_count] */
};

static bool has_access(const tn_access *accesses, uint64_t count, const tn_data *data)
{
    uint64_t at = 0;
    while (at < count && accesses[at].data != data)
        at++;
    return at < count;
}

/* A task writes its result, and reads those of its inputs. */
static void add_accesses(const struct simulate_graph *graph, struct results *results)
{
    uint64_t used = 0, input = 0;
    for (uint32_t i = 0; i < graph->task_count; i++) {
        uint64_t first = used;
        if (results->data[i] != NULL)
            results->accesses[used++] = (tn_access){.data = results->data[i], .mode = TN_WRITE};
        for (; input < graph->input_ends[i]; input++) {
            tn_data *data = results->data[graph->inputs[input]];
            if (data != NULL && !has_access(results->accesses + first, used - first, data))
                results->accesses[used++] = (tn_access){.data = data, .mode = TN_READ};
        }
        results->access_ends[i] = used;
    }
}

static int make_results(const struct run *run, struct results *ret)
{
    const struct simulate_graph *graph = run->graph;
    uint32_t count = graph->task_count;
    uint64_t input_count = count > 0 ? graph->input_ends[count - 1] : 0;
    ret->data = calloc(count + (size_t)1, sizeof(tn_data *));
    ret->accesses = calloc(count + input_count + 1, sizeof *ret->accesses);
    ret->access_ends = calloc(count + (size_t)1, sizeof *ret->access_ends);
    int status = ret->data == NULL || ret->accesses == NULL || ret->access_ends == NULL
                     ? TN_ERR_NO_MEMORY
                     : 0;
    for (uint32_t i = 0; i < count && status == 0; i++)
        if (graph->tasks[i].bytes > 0)
            status = tn_data_create(run->sched,
                                    TN_OPTIONS(tn_data_options, .name = "result",
                                               .bytes = graph->tasks[i].bytes,
                                               .flags = TN_DATA_TEMPORARY),
                                    &ret->data[i]);
    if (status == 0)
        add_accesses(graph, ret);
    return status;
}

/* The data is closed with the scheduler. */
static void free_results(struct results *results)
{
    free((void *)results->data);
    free(results->accesses);
    free(results->access_ends);
}

static int add_tasks(const struct run *run, tn_graph *made)
{
    struct results results = {0};
    const struct simulate_graph *graph = run->graph;
    uint32_t count = graph->task_count;
    uint64_t input_count = count > 0 ? graph->input_ends[count - 1] : 0;
    uint64_t *inputs = malloc((input_count + 1) * sizeof *inputs);
    const char **names = calloc(count + (size_t)1, sizeof(const char *));

    if (inputs == NULL || names == NULL) {
        free(inputs);
        free((void *)names);
        return TN_ERR_NO_MEMORY;
    }
    for (uint64_t i = 0; i < input_count; i++)
        inputs[i] = TN_TASK_OF_LIST(graph->inputs[i]);
    for (uint32_t i = 0; i < count; i++) {
        graph->tasks[i].kind = run->kinds[graph->task_kinds[i]];
        if (graph->ids[i] != NULL)
            names[i] = json_string_value(graph->ids[i]);
    }
    int status = run->has_memories ? make_results(run, &results) : 0;
    if (status == 0)
        status = tn_graph_add(made,
                              TN_OPTIONS(tn_task_list, .tasks = graph->tasks, .count = count,
                                         .input_ends = graph->input_ends, .inputs = inputs,
                                         .names = names, .access_ends = results.access_ends,
                                         .accesses = results.accesses),
                              NULL);
    free_results(&results);
    free(inputs);
    free((void *)names);
    return status;
}

static int run_tasks(struct run *run)
{
    tn_graph *graph;
    int status = tn_graph_create(run->sched, &graph);
    if (status != 0)
        return cmd_fail("simulate", run->graph->file.path, status);
    status = add_tasks(run, graph);
    if (status == 0)
        status = tn_graph_run(graph, TN_FOREVER);
    int code = status != 0 ? cmd_fail("simulate", run->graph->file.path, status) : CMD_FINE;
    tn_graph_close(graph);
    return code;
}

/* ---- what was full ----------------------------------------------------------------------- */

static int compare_times(const void *one, const void *other)
{
    uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)other;
    return (a > b) - (a < b);
}

static double amount_of(const struct run *run, uint32_t task, uint32_t resource)
{
    return run->result->amounts[run->graph->task_kinds[task]]
        .of[run->result->tasks[task].variant][resource];
}

/*
 * Find out whether all THREADS were in use at some time. Each task takes one or none, so tasks
 * need not be told apart: only their times are sorted.
 */
static int find_full_threads(struct run *run, uint32_t threads)
{
    uint64_t *begins = malloc((run->ended_count + (size_t)1) * sizeof *begins);
    uint32_t count = 0, at = 0, in_use = 0, most = 0;
    if (begins == NULL)
        return cmd_no_memory("simulate");
    for (uint32_t i = 0; i < run->ended_count; i++)
        if (amount_of(run, run->ended[i], threads) > 0)
            begins[count++] = run->result->tasks[run->ended[i]].began_ns;
    qsort(begins, count, sizeof *begins, compare_times);
    for (uint32_t i = 0; i < run->ended_count && at < count; i++) {
        if (amount_of(run, run->ended[i], threads) <= 0)
            continue;
        for (; at < count && begins[at] < run->result->tasks[run->ended[i]].ended_ns; at++)
            in_use++;
        most = in_use > most ? in_use : most;
        in_use--;
    }
    free(begins);
    run->result->was_full[threads] = most >= run->result->info.resources[threads].total;
    return CMD_FINE;
}

/* ---- runs -------------------------------------------------------------------------------- */

static int get_info(const struct run *run)
{
    int status = tn_sched_get_info(run->sched, &run->result->info);
    return status != 0 ? cmd_fail("simulate", NULL, status) : CMD_FINE;
}

static int run_graph(struct run *run)
{
    const tn_sched_info *info = &run->result->info;
    int code = get_info(run);
    for (uint32_t i = 0; code == CMD_FINE && i < run->graph->kind_count; i++)
        code = make_kind(run, i);
    if (code == CMD_FINE)
        code = run_tasks(run);
    if (code == CMD_FINE)
        code = get_info(run);
    return code == CMD_FINE ? find_full_threads(run, find_resource(info, "THREADS", 7)) : code;
}

static bool make_arrays(struct run *run)
{
    const struct simulate_graph *graph = run->graph;
    struct simulate_result *result = run->result;
    result->tasks = calloc(graph->task_count + (size_t)1, sizeof *result->tasks);
    result->amounts = calloc(graph->kind_count + (size_t)1, sizeof *result->amounts);
    run->kinds = calloc(graph->kind_count + (size_t)1, sizeof(tn_kind *));
    run->ended = calloc(graph->task_count + (size_t)1, sizeof *run->ended);
    return result->tasks != NULL && result->amounts != NULL && run->kinds != NULL &&
           run->ended != NULL;
}

int simulate_run(const struct simulate_graph *graph, const struct simulate_machine *machine,
                 bool is_traced, struct simulate_result *ret_result)
{
    struct simulate_result result = {.info.struct_size = sizeof result.info};
    struct run run = {
        .graph = graph, .result = &result, .has_memories = machine->memories != NULL};
    const tn_sched_options options = {.struct_size = sizeof options,
                                      .resources = machine->resources,
                                      .memories = machine->memories,
                                      .links = machine->links,
                                      .flags =
                                          TN_SCHED_VIRTUAL | (is_traced ? TN_SCHED_TRACE : 0),
                                      .order = machine->order,
                                      .skips = machine->skips,
                                      .skew = machine->skew,
                                      .trace = remember,
                                      .trace_context = &run};
    int code = make_arrays(&run) ? CMD_FINE : cmd_no_memory("simulate");

    if (code == CMD_FINE) {
        int status = tn_sched_create(&options, &run.sched);
        code = status != 0 ? cmd_fail("simulate", machine->path, status) : run_graph(&run);
    }
    free((void *)run.kinds);
    free(run.ended);
    result.sched = run.sched;
    if (code == CMD_FINE)
        *ret_result = result;
    else
        simulate_result_fini(&result);
    return code;
}

void simulate_result_fini(struct simulate_result *result)
{
    tn_sched_close(result->sched);
    free(result->tasks);
    free(result->amounts);
}
