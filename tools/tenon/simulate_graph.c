/* SPDX-License-Identifier: Apache-2.0 */
/* simulate_graph: reads the kinds and the tasks of a graph. */
#include <stdlib.h>
#include <string.h>

#include "simulate.h"
#include "text.h"

/* A graph that is being read. */
struct reading {
    struct simulate_graph *graph;
    json_t *kind_places, *task_places; /* objects: from a name or an id to a place */
    size_t input_count, input_room;
    double sum_ns; /* of the times of all tasks */
};

static const struct simulate_number run_rule = {"run_s", 1e-9, 1e9, false};

/* ---- kinds ------------------------------------------------------------------------------- */

static int read_variant(const struct simulate_file *file, const json_t *object,
                        struct simulate_variant *variant)
{
    double run_s = 0;
    int code = simulate_get_text(file, object, "request", &variant->request);
    if (code == CMD_FINE)
        code = simulate_get_number(file, object, &run_rule, &run_s);
    variant->run_ns = (uint64_t)(run_s * 1e9 + 0.5);
    return code;
}

static int read_variants(struct simulate_file *file, const json_t *list,
                         struct simulate_kind *kind)
{
    static const char *const keys[] = {"request", "run_s", NULL};
    char place[sizeof file->place];
    size_t count = json_array_size(list); /* 0 if it is no array */
    int code = CMD_FINE;

    if (count == 0 || count > TN_VARIANTS)
        return simulate_fail(file, "variants is not an array of 1 to %d objects", TN_VARIANTS);
    memcpy(place, file->place, sizeof place);
    kind->variant_count = (uint32_t)count;
    for (size_t i = 0; code == CMD_FINE && i < count; i++) {
        const json_t *object = json_array_get(list, i);
        snprintf(file->place, sizeof file->place, "%.40s.variants[%zu]", place, i);
        code = simulate_check_keys(file, object, keys);
        if (code == CMD_FINE)
            code = read_variant(file, object, &kind->variants[i]);
    }
    if (code == CMD_FINE)
        memcpy(file->place, place, sizeof place);
    return code;
}

static int read_kind(struct reading *reading, uint32_t at)
{
    static const char *const keys[] = {"name",     "request",  "run_s",
                                       "variants", "affinity", NULL};
    struct simulate_file *file = &reading->graph->file;
    struct simulate_kind *kind = &reading->graph->kinds[at];
    const json_t *object = json_array_get(reading->graph->kinds_text, at);
    int code = simulate_check_keys(file, object, keys);

    if (code == CMD_FINE)
        code = simulate_get_text(file, object, "name", &kind->name);
    if (code == CMD_FINE)
        code = simulate_get_text(file, object, "affinity", &kind->affinity);
    if (code != CMD_FINE)
        return code;
    if (kind->name == NULL)
        return simulate_fail(file, "name is missing");
    if (json_object_get(reading->kind_places, kind->name) != NULL)
        return simulate_fail(file, "the name '%.64s' is that of an earlier kind", kind->name);
    if (json_object_set_new(reading->kind_places, kind->name, json_integer(at)) != 0)
        return cmd_no_memory("simulate");
    const json_t *variants = json_object_get(object, "variants");
    if (variants == NULL) {
        kind->variant_count = 1;
        return read_variant(file, object, &kind->variants[0]);
    }
    if (json_object_get(object, "request") != NULL || json_object_get(object, "run_s") != NULL)
        return simulate_fail(file, "it has variants, so request and run_s belong into them");
    return read_variants(file, variants, kind);
}

/* ---- tasks ------------------------------------------------------------------------------- */

static int read_id(struct reading *reading, uint32_t at, const json_t *object)
{
    struct simulate_graph *graph = reading->graph;
    const char *id = NULL;
    int code = simulate_get_text(&graph->file, object, "id", &id);
    if (code != CMD_FINE || id == NULL)
        return code;
    if (json_object_get(reading->task_places, id) != NULL)
        return simulate_fail(&graph->file, "the id '%.64s' is that of an earlier task", id);
    if (json_object_set_new(reading->task_places, id, json_integer(at)) != 0)
        return cmd_no_memory("simulate");
    graph->ids[at] = json_incref(json_object_get(object, "id"));
    return CMD_FINE;
}

static int read_kind_of(struct reading *reading, uint32_t at, const json_t *object)
{
    struct simulate_graph *graph = reading->graph;
    const char *name = NULL;
    int code = simulate_get_text(&graph->file, object, "kind", &name);
    if (code != CMD_FINE)
        return code;
    if (name == NULL)
        return simulate_fail(&graph->file, "kind is missing");
    const json_t *place = json_object_get(reading->kind_places, name);
    if (place == NULL)
        return simulate_fail(&graph->file, "no kind is called '%.64s'", name);
    graph->task_kinds[at] = (uint32_t)json_integer_value(place);
    return CMD_FINE;
}

static int read_numbers(struct reading *reading, uint32_t at, const json_t *object)
{
    static const struct simulate_number bytes_rule = {"bytes", 0, 9007199254740992.0, true};
    static const struct simulate_number priority_rule = {"priority", -32768, 32767, true};
    struct simulate_graph *graph = reading->graph;
    double run_s = 0, bytes = 0, priority = 0;
    int code = simulate_get_number(&graph->file, object, &run_rule, &run_s);
    if (code == CMD_FINE)
        code = simulate_get_number(&graph->file, object, &bytes_rule, &bytes);
    if (code == CMD_FINE)
        code = simulate_get_number(&graph->file, object, &priority_rule, &priority);
    graph->tasks[at] = (tn_task){.run_ns = (uint64_t)(run_s * 1e9 + 0.5),
                                 .bytes = (uint64_t)bytes,
                                 .priority = (int32_t)priority};
    return code;
}

/* Each task must have a time, and all of them together must not overflow the virtual time. */
static int check_times(struct reading *reading, uint32_t at)
{
    enum { MOST_YEARS = 285 };
    struct simulate_graph *graph = reading->graph;
    const struct simulate_kind *kind = &graph->kinds[graph->task_kinds[at]];
    uint64_t longest = 0;
    for (uint32_t i = 0; i < kind->variant_count; i++) {
        uint64_t run_ns = simulate_task_ns(graph, at, i);
        if (run_ns == 0)
            return simulate_fail(&graph->file, "run_s is missing here and in the kind '%.64s'",
                                 kind->name);
        longest = run_ns > longest ? run_ns : longest;
    }
    reading->sum_ns += (double)longest;
    if (reading->sum_ns > MOST_YEARS * 365.0 * 86400e9)
        return simulate_fail(&graph->file, "up to here, the tasks take more than %d years",
                             MOST_YEARS);
    return CMD_FINE;
}

static int read_input(struct reading *reading, const json_t *value, uint64_t *ret)
{
    struct simulate_graph *graph = reading->graph;
    if (json_is_integer(value)) {
        json_int_t number = json_integer_value(value);
        if (number < 0 || number >= graph->task_count)
            return simulate_fail(&graph->file,
                                 "the input %" JSON_INTEGER_FORMAT " is no task: there are %u",
                                 number, graph->task_count);
        *ret = (uint64_t)number;
        return CMD_FINE;
    }
    if (!json_is_string(value))
        return simulate_fail(&graph->file, "an input is an id or the number of a task");
    const json_t *place = json_object_get(reading->task_places, json_string_value(value));
    if (place == NULL)
        return simulate_fail(&graph->file, "the input '%.64s' is no task",
                             json_string_value(value));
    *ret = (uint64_t)json_integer_value(place);
    return CMD_FINE;
}

static int read_inputs(struct reading *reading, uint32_t at, const json_t *object)
{
    struct simulate_graph *graph = reading->graph;
    const json_t *list = json_object_get(object, "inputs");
    size_t count = json_array_size(list);
    int code = CMD_FINE;

    if (list != NULL && !json_is_array(list))
        return simulate_fail(&graph->file, "inputs is no array");
    if (reading->input_count + count > reading->input_room) {
        size_t room = 2 * (reading->input_count + count);
        uint64_t *larger = reallocarray(graph->inputs, room, sizeof *larger);
        if (larger == NULL)
            return cmd_no_memory("simulate");
        graph->inputs = larger;
        reading->input_room = room;
    }
    for (size_t i = 0; code == CMD_FINE && i < count; i++)
        code = read_input(reading, json_array_get(list, i),
                          &graph->inputs[reading->input_count + i]);
    reading->input_count += count;
    graph->input_ends[at] = reading->input_count;
    return code;
}

static int read_task(struct reading *reading, uint32_t at, const json_t *object)
{
    int code = read_kind_of(reading, at, object);
    if (code == CMD_FINE)
        code = read_numbers(reading, at, object);
    if (code == CMD_FINE)
        code = check_times(reading, at);
    return code == CMD_FINE ? read_inputs(reading, at, object) : code;
}

/* Read the ids first: an input may be a later task. */
static int read_tasks(struct reading *reading, const json_t *list)
{
    static const char *const keys[] = {"id",    "kind",     "inputs", "run_s",
                                       "bytes", "priority", NULL};
    struct simulate_file *file = &reading->graph->file;
    uint32_t count = reading->graph->task_count;
    int code = CMD_FINE;

    for (uint32_t i = 0; code == CMD_FINE && i < count; i++) {
        const json_t *object = json_array_get(list, i);
        snprintf(file->place, sizeof file->place, "tasks[%u]", i);
        code = simulate_check_keys(file, object, keys);
        if (code == CMD_FINE)
            code = read_id(reading, i, object);
    }
    for (uint32_t i = 0; code == CMD_FINE && i < count; i++) {
        snprintf(file->place, sizeof file->place, "tasks[%u]", i);
        code = read_task(reading, i, json_array_get(list, i));
    }
    return code;
}

/* ---- graphs ------------------------------------------------------------------------------ */

static bool make_arrays(struct simulate_graph *graph)
{
    graph->kinds = calloc(graph->kind_count + 1, sizeof *graph->kinds);
    graph->tasks = calloc(graph->task_count + 1, sizeof *graph->tasks);
    graph->task_kinds = calloc(graph->task_count + 1, sizeof *graph->task_kinds);
    graph->ids = calloc(graph->task_count + 1, sizeof(json_t *));
    graph->input_ends = calloc(graph->task_count + 1, sizeof *graph->input_ends);
    return graph->kinds != NULL && graph->tasks != NULL && graph->task_kinds != NULL &&
           graph->ids != NULL && graph->input_ends != NULL;
}

static int read_root(struct reading *reading, const json_t *root)
{
    enum { MOST = 1 << 29 }; /* tasks that a graph may have */
    static const char *const keys[] = {"$schema", "kinds", "tasks", NULL};
    struct simulate_graph *graph = reading->graph;
    json_t *kinds = json_object_get(root, "kinds"), *tasks = json_object_get(root, "tasks");
    int code = simulate_check_keys(&graph->file, root, keys);

    if (code != CMD_FINE)
        return code;
    if (!json_is_array(kinds) || !json_is_array(tasks))
        return simulate_fail(&graph->file, "%s is missing, or no array",
                             json_is_array(kinds) ? "tasks" : "kinds");
    if (json_array_size(kinds) > MOST || json_array_size(tasks) > MOST)
        return simulate_fail(&graph->file, "there are more than %d kinds or tasks", MOST);
    graph->kinds_text = json_incref(kinds);
    graph->kind_count = (uint32_t)json_array_size(kinds);
    graph->task_count = (uint32_t)json_array_size(tasks);
    if (!make_arrays(graph))
        return cmd_no_memory("simulate");
    for (uint32_t i = 0; code == CMD_FINE && i < graph->kind_count; i++) {
        snprintf(graph->file.place, sizeof graph->file.place, "kinds[%u]", i);
        code = read_kind(reading, i);
    }
    return code == CMD_FINE ? read_tasks(reading, tasks) : code;
}

int simulate_graph_read(const char *path, struct simulate_graph *ret_graph)
{
    struct simulate_graph graph = {.file.path = path};
    struct reading reading = {
        .graph = &graph, .kind_places = json_object(), .task_places = json_object()};
    json_t *root = NULL;
    int code = simulate_load(&graph.file, &root);

    if (code == CMD_FINE && (reading.kind_places == NULL || reading.task_places == NULL))
        code = cmd_no_memory("simulate");
    if (code == CMD_FINE)
        code = read_root(&reading, root);
    json_decref(root);
    json_decref(reading.kind_places);
    json_decref(reading.task_places);
    graph.file.place[0] = '\0';
    if (code == CMD_FINE)
        *ret_graph = graph;
    else
        simulate_graph_fini(&graph);
    return code;
}

void simulate_graph_fini(struct simulate_graph *graph)
{
    for (uint32_t i = 0; graph->ids != NULL && i < graph->task_count; i++)
        json_decref(graph->ids[i]);
    json_decref(graph->kinds_text);
    free(graph->kinds);
    free(graph->tasks);
    free(graph->task_kinds);
    free((void *)graph->ids);
    free(graph->input_ends);
    free(graph->inputs);
}

uint64_t simulate_task_ns(const struct simulate_graph *graph, uint32_t task, uint32_t variant)
{
    uint64_t run_ns = graph->tasks[task].run_ns;
    return run_ns != 0 ? run_ns
                       : graph->kinds[graph->task_kinds[task]].variants[variant].run_ns;
}

const char *simulate_task_name(const struct simulate_graph *graph, uint32_t task,
                               char text[SIMULATE_NAME_BYTES])
{
    if (graph->ids[task] == NULL)
        snprintf(text, SIMULATE_NAME_BYTES, "%u", task);
    else
        snprintf(text, SIMULATE_NAME_BYTES, "'%.61s'", json_string_value(graph->ids[task]));
    return text;
}
