/* SPDX-License-Identifier: Apache-2.0 */
/* simulate: reads a graph and a machine, runs the graph in virtual time, and bounds its time.
 */
#ifndef TENON_TOOL_SIMULATE_H
#define TENON_TOOL_SIMULATE_H

#include "cmd.h"

enum { SIMULATE_RESOURCES = sizeof((tn_sched_info){0}.resources) / sizeof(tn_resource_info) };

/* ---- JSON files -------------------------------------------------------------------------- */

/** A JSON file, and the place in it that the sentence of an error names. */
struct simulate_file {
    const char *path;
    char place[64]; /* as in "kinds[1].variants[0]"; "": the whole document */
};

/** Read the file, or print why that failed. @return an exit code */
int simulate_load(const struct simulate_file *file, json_t **ret_root);
/** Print a sentence about the place in the file to standard error. @return CMD_USAGE */
int simulate_fail(const struct simulate_file *file, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/**
 * Check that the value is an object whose keys are all known, or print what is wrong.
 * @param keys  ends with NULL. @return an exit code
 */
int simulate_check_keys(const struct simulate_file *file, const json_t *value,
                        const char *const *keys);
/** Get a text, or print that it is none. @param ret  untouched if the object has no such key */
int simulate_get_text(const struct simulate_file *file, const json_t *object, const char *key,
                      const char **ret);

struct simulate_number {
    const char *key;
    double least, most;
    bool is_whole; /* whole numbers only */
};
/** Get a number, or print what is wrong. @param ret  untouched if the object has no such key */
int simulate_get_number(const struct simulate_file *file, const json_t *object,
                        const struct simulate_number *rule, double *ret);

/* ---- graphs ------------------------------------------------------------------------------ */

struct simulate_variant {
    const char *request; /* NULL: one CPU */
    uint64_t run_ns;     /* 0: each task says it */
};

struct simulate_kind {
    const char *name, *affinity; /* affinity: NULL: none */
    struct simulate_variant variants[TN_VARIANTS];
    uint32_t variant_count;
};

/* The text of kinds belongs to the document, which is kept. */
struct simulate_graph {
    struct simulate_file file;
    json_t *kinds_text;            /* owns the text of the kinds */
    struct simulate_kind *kinds;   /* [kind_count] */
    tn_task *tasks;                /* [task_count]; `kind` is set by simulate_run() */
    uint32_t *task_kinds;          /* [task_count]: places in `kinds` */
    json_t **ids;                  /* [task_count]: a text each; NULL: the task has no id */
    uint64_t *input_ends, *inputs; /* as in tn_task_list; inputs without TN_TASK_OF_LIST */
    uint32_t kind_count, task_count;
};

/** Read a graph, or print what is wrong with it. @return an exit code */
int simulate_graph_read(const char *path, struct simulate_graph *ret_graph);
/** The graph may be half read, or all zero. */
void simulate_graph_fini(struct simulate_graph *graph);
/** How long a task runs as a variant of its kind. */
uint64_t simulate_task_ns(const struct simulate_graph *graph, uint32_t task, uint32_t variant);
enum { SIMULATE_NAME_BYTES = 64 };
/** @return how sentences name a task: 'its id', or its number */
const char *simulate_task_name(const struct simulate_graph *graph, uint32_t task,
                               char text[SIMULATE_NAME_BYTES]);

/* ---- machines ---------------------------------------------------------------------------- */

struct simulate_machine {
    const char *path;      /* that sentences name; NULL: none */
    json_t *root;          /* owns the text of `resources` */
    const char *resources; /* NULL: those of this machine */
    const char *memories;  /* of cards; NULL: results are everywhere at once */
    const char *links;     /* NULL: the defaults of the library */
    uint32_t order, skips; /* as in tn_sched_options */
    double skew;
};

/** Read a machine, or print what is wrong with it. @return an exit code */
int simulate_machine_read(const char *path, struct simulate_machine *ret_machine);

/* ---- runs -------------------------------------------------------------------------------- */

/** What a task did. */
struct simulate_task {
    uint64_t began_ns, ended_ns;
    uint32_t variant;
};

/** What each variant of a kind takes of each resource. */
struct simulate_amounts {
    double of[TN_VARIANTS][SIMULATE_RESOURCES];
};

struct simulate_result {
    tn_sched_info info;                /* at the end */
    struct simulate_task *tasks;       /* [task_count] */
    struct simulate_amounts *amounts;  /* [kind_count] */
    bool was_full[SIMULATE_RESOURCES]; /* all of it was in use at some time */
    tn_sched *sched;                   /* owned: it has the trace, if one was asked for */
};

/**
 * Run the graph in virtual time, or print why that failed.
 * @param is_traced  for tn_sched_write_trace()
 * @return an exit code
 */
int simulate_run(const struct simulate_graph *graph, const struct simulate_machine *machine,
                 bool is_traced, struct simulate_result *ret_result);
/** The result may be half made, or all zero. */
void simulate_result_fini(struct simulate_result *result);

/* ---- lower bounds ------------------------------------------------------------------------ */

/** Times that no order of the tasks can undercut. */
struct simulate_bounds {
    uint64_t path_ns; /* the longest path, each task at its fastest */
    /* Of the longest path through each task, what is before it and after it: [task_count],
       owned. */
    uint64_t *before_ns, *after_ns;
    /* The work that needs it, through its total; and the least that is before and after. */
    uint64_t resource_ns[SIMULATE_RESOURCES];
    uint64_t most_ns; /* the largest of them */
    int32_t most_of;  /* a resource; -1: the longest path */
};

/** Compute the longest paths, or print which tasks wait in a circle. @return an exit code */
int simulate_bound_path(const struct simulate_graph *graph, struct simulate_bounds *ret_bounds);
/** The bounds may be half made, or all zero. */
void simulate_bounds_fini(struct simulate_bounds *bounds);
/** Compute the bounds of the resources, and the largest one. pre: the paths are set */
void simulate_bound_resources(const struct simulate_graph *graph,
                              const struct simulate_result *result,
                              struct simulate_bounds *bounds);

#endif
