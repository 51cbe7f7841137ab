/* SPDX-License-Identifier: Apache-2.0 */
/* tenon simulate: run a graph in virtual time, and show how far that is from the best. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "simulate.h"
#include "table.h"
#include "text.h"

struct arguments {
    struct cmd_arguments common;
    const char *graph, *machine, *resources, *trace; /* NULL: not given */
};

/* ---- options ----------------------------------------------------------------------------- */

static const struct argp_option options[] = {
    CMD_COMMON_OPTIONS,
    {"resources", 'r', "TEXT", 0,
     "Resources, as in 'CPU=4 GPU=((0,1),(2,3))', instead of those of MACHINE.json", 0},
    {"trace", 't', "FILE", 0, "Write what ran when, for the viewers of Chrome and Perfetto", 0},
    {0}};

static error_t parse(int key, char *argument, struct argp_state *state)
{
    struct arguments *arguments = state->input;

    switch (key) {
    case 'r':
        arguments->resources = argument;
        return 0;
    case 't':
        arguments->trace = argument;
        return 0;
    case ARGP_KEY_ARG:
        if (state->arg_num > 1)
            argp_error(state, "'%s' is one argument too many", argument);
        if (state->arg_num == 0)
            arguments->graph = argument;
        else
            arguments->machine = argument;
        return 0;
    case ARGP_KEY_NO_ARGS:
        argp_error(state, "GRAPH.json is missing");
        return 0;
    default:
        return cmd_parse_key(key, argument, state);
    }
}

/* ---- output ------------------------------------------------------------------------------ */

/* What is printed of a run. */
struct report {
    const struct simulate_graph *graph;
    const struct simulate_result *result;
    struct simulate_bounds bounds;
};

static const char *bound_name(const struct report *report)
{
    int32_t at = report->bounds.most_of;
    return at < 0 ? "critical path" : report->result->info.resources[at].name;
}

/* Threads are without limit to a person, as long as no task waits for one. */
static bool is_shown(const struct report *report, uint32_t resource)
{
    return strcmp(report->result->info.resources[resource].name, "THREADS") != 0 ||
           report->result->was_full[resource];
}

/* The part of a resource that was in use. @return negative: there was nothing or no time */
static double occupancy(const struct report *report, uint32_t resource)
{
    const tn_sched_info *info = &report->result->info;
    double most = info->resources[resource].total * (double)info->now_ns;
    return most > 0 ? info->resources[resource].busy_ns / most : -1;
}

/* @return negative: no task has a time */
static double ratio(const struct report *report)
{
    uint64_t bound_ns = report->bounds.most_ns;
    return bound_ns > 0 ? (double)report->result->info.now_ns / (double)bound_ns : -1;
}

static json_t *json_part(double part) { return part < 0 ? json_null() : json_real(part); }

static json_t *json_resource(const struct report *report, uint32_t at)
{
    const tn_resource_info *resource = &report->result->info.resources[at];
    json_t *object = json_object();

    cmd_json_set(object, "name", cmd_json_text(resource->name));
    cmd_json_set(object, "total", json_real(resource->total));
    cmd_json_set(object, "busy_ns", cmd_json_count((uint64_t)(resource->busy_ns + 0.5)));
    cmd_json_set(object, "occupancy", json_part(occupancy(report, at)));
    cmd_json_set(object, "bound_ns", cmd_json_count(report->bounds.resource_ns[at]));
    return object;
}

static int print_json(const struct report *report)
{
    const tn_sched_info *info = &report->result->info;
    json_t *root = json_object(), *resources = json_array();

    cmd_json_set(root, "tasks", cmd_json_count(report->graph->task_count));
    cmd_json_set(root, "makespan_ns", cmd_json_count(info->now_ns));
    cmd_json_set(root, "bound_ns", cmd_json_count(report->bounds.most_ns));
    cmd_json_set(root, "bound_of", cmd_json_text(bound_name(report)));
    cmd_json_set(root, "makespan_per_bound", json_part(ratio(report)));
    cmd_json_set(root, "critical_path_ns", cmd_json_count(report->bounds.path_ns));
    cmd_json_set(root, "moved_bytes", cmd_json_count(info->moved_bytes));
    cmd_json_set(root, "evicted_bytes", cmd_json_count(info->evicted_bytes));
    for (uint32_t i = 0; i < info->resource_count; i++)
        if (is_shown(report, i))
            json_array_append_new(resources, json_resource(report, i));
    cmd_json_set(root, "resources", resources);
    return cmd_json_print("simulate", root);
}

static int print_resources(const struct report *report)
{
    static const struct table_column columns[] = {
        {"RESOURCE", false}, {"TOTAL", true}, {"OCCUPANCY", true}, {"LOWER BOUND", true}};
    struct table *table = table_create(columns, sizeof columns / sizeof columns[0]);

    if (table == NULL)
        return cmd_no_memory("simulate");
    for (uint32_t i = 0; i < report->result->info.resource_count; i++) {
        if (!is_shown(report, i))
            continue;
        table_cell(table, "%s", report->result->info.resources[i].name);
        table_cell(table, "%.12g", report->result->info.resources[i].total);
        if (occupancy(report, i) < 0)
            table_cell(table, "-");
        else
            table_cell(table, "%.1f %%", 100 * occupancy(report, i));
        table_cell(table, "%.6g s", (double)report->bounds.resource_ns[i] / 1e9);
    }
    int status = table_print(table, 0, stdout);
    table_destroy(table);
    return status == 0 ? CMD_FINE : cmd_no_memory("simulate");
}

static int print_text(const struct report *report)
{
    char moved[TABLE_TEXT_BYTES], evicted[TABLE_TEXT_BYTES];
    const struct simulate_bounds *bounds = &report->bounds;
    const tn_sched_info *info = &report->result->info;

    printf("tasks          %" PRIu32 "\n", report->graph->task_count);
    printf("makespan       %.6g s", (double)report->result->info.now_ns / 1e9);
    if (ratio(report) >= 0)
        printf(", %.3f times the lower bound", ratio(report));
    printf("\nlower bound    %.6g s, of %s%s\n", (double)bounds->most_ns / 1e9,
           bounds->most_of < 0 ? "the " : "", bound_name(report));
    printf("critical path  %.6g s\n", (double)bounds->path_ns / 1e9);
    if (info->card_capacity > 0)
        printf("moved          %s between memories, %s left a full one\n",
               table_bytes(moved, info->moved_bytes),
               table_bytes(evicted, info->evicted_bytes));
    printf("\n");
    return print_resources(report);
}

/* ---- trace ------------------------------------------------------------------------------- */

static int fail_write(const char *path, const char *why)
{
    char shown[CMD_SENTENCE_BYTES];
    snprintf(shown, sizeof shown, "%s", path);
    fprintf(stderr, "tenon simulate: %s: the trace cannot be written: %s\n",
            tni_text_clean(shown), why);
    return CMD_TROUBLE;
}

static int write_trace(const struct report *report, const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0)
        return fail_write(path, strerror(errno));
    int status = tn_sched_write_trace(report->result->sched, fd);
    if (status == TN_ERR_NO_MEMORY) {
        close(fd);
        return cmd_no_memory("simulate");
    }
    int code = status != 0 ? fail_write(path, tn_error_detail()) : CMD_FINE;
    if (close(fd) != 0 && code == CMD_FINE)
        code = fail_write(path, strerror(errno));
    return code;
}

/* ---- the verb ---------------------------------------------------------------------------- */

static int simulate(const struct arguments *arguments, const struct simulate_graph *graph,
                    const struct simulate_machine *machine)
{
    struct simulate_result result = {0};
    struct report report = {.graph = graph, .result = &result};
    int code = simulate_bound_path(graph, &report.bounds);

    if (code == CMD_FINE)
        code = simulate_run(graph, machine, arguments->trace != NULL, &result);
    if (code == CMD_FINE)
        simulate_bound_resources(graph, &result, &report.bounds);
    if (code == CMD_FINE && arguments->trace != NULL)
        code = write_trace(&report, arguments->trace);
    if (code == CMD_FINE)
        code = arguments->common.as_json ? print_json(&report) : print_text(&report);
    simulate_bounds_fini(&report.bounds);
    simulate_result_fini(&result);
    return code;
}

int cmd_simulate(int argc, char **argv)
{
    const struct argp argp = {.options = options, .parser = parse};
    struct arguments arguments = {.common.takes = CMD_TAKES_A_GRAPH};
    struct simulate_graph graph = {0};
    struct simulate_machine machine = {0};

    if (cmd_parse(argc, argv,
                  "Run a graph of tasks in virtual time on a machine with these resources, and "
                  "show how long it takes beside lower bounds. Without MACHINE.json, the "
                  "resources are those of TENON_RESOURCES and of this machine.",
                  &argp, &arguments.common) != CMD_FINE)
        return CMD_USAGE;
    int code = CMD_FINE;
    if (arguments.machine != NULL)
        code = simulate_machine_read(arguments.machine, &machine);
    if (arguments.resources != NULL) {
        machine.path = "--resources";
        machine.resources = arguments.resources;
    }
    if (code == CMD_FINE)
        code = simulate_graph_read(arguments.graph, &graph);
    if (code == CMD_FINE)
        code = simulate(&arguments, &graph, &machine);
    simulate_graph_fini(&graph);
    json_decref(machine.root);
    return code;
}
