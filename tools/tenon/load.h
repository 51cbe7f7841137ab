/* SPDX-License-Identifier: Apache-2.0 */
/*
 * load: models that tenond keeps for all processes, and what their values say. A model is one
 * value of a store: its tensors, and bytes of JSON that describe them. docs/guide/store.md has
 * the form, which the Python package writes and reads, too.
 */
#ifndef TENON_TOOL_LOAD_H
#define TENON_TOOL_LOAD_H

#include "cmd.h"
#include "safetensors.h"

#define LOAD_DOMAIN "models" /* where models are, unless the command line says otherwise */
#define LOAD_STORE  "models"

/* The files of a model, open. */
struct load_files {
    struct safetensors_model *at; /* [count], one for each argument */
    size_t count;
    size_t tensor_count;
    uint64_t arena_bytes; /* that all tensors take in a write-once arena */
};
/** Open files, and check that no two have a tensor of one name. @return an exit code */
int load_files_open(char *const *paths, size_t count, struct load_files *ret_files);
void load_files_close(struct load_files *files);
/** How many bytes a tensor takes in the arena. */
uint64_t load_files_room(const struct safetensors_tensor *tensor);
/** Call `each` for each tensor, in order, until it returns something else than 0. */
typedef int load_tensor_fn(const struct safetensors *file,
                           const struct safetensors_tensor *tensor, void *context);
int load_files_for_each(const struct load_files *files, load_tensor_fn *each, void *context);
/** Describe the files. @return text of JSON, which the caller frees; NULL: no memory */
char *load_files_describe(const struct load_files *files);
/** Whether a value was made of the same files, which have not changed since. */
bool load_files_made(const struct load_files *files, const tn_message *value);

/* What the Python package is to load. */
struct load_python {
    const char *domain, *name, *path;
    uint64_t lifetime_ns; /* 0: until it is unloaded */
    const char *form;     /* of the report: "text", "quiet" or "json" */
};
/** Whether the name of a file ends as those of NumPy and PyTorch do, which Python reads. */
bool load_python_reads(const char *path);
/** Run Python in place of this program. @return an exit code: that failed */
int load_python_run(const struct load_python *load);

#endif
