/* SPDX-License-Identifier: Apache-2.0 */
/* load_files: the files of a model: opened together, compared, and described. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "load.h"

/* ---- all tensors ------------------------------------------------------------------------- */

uint64_t load_files_room(const struct safetensors_tensor *tensor)
{
    const uint64_t align = 64; /* of a tensor in a write-once arena */
    return (safetensors_size(tensor) + align - 1) / align * align;
}

int load_files_for_each(const struct load_files *files, load_tensor_fn *each, void *context)
{
    int stop = 0;
    for (size_t m = 0; m < files->count; m++)
        for (size_t f = 0; f < files->at[m].file_count; f++) {
            const struct safetensors *file = &files->at[m].files[f];
            for (size_t t = 0; t < file->tensor_count && stop == 0; t++)
                stop = each(file, &file->tensors[t], context);
        }
    return stop;
}

struct named {
    const char *name, *path;
};
struct names {
    struct named *at;
    size_t count;
};

static int add_name(const struct safetensors *file, const struct safetensors_tensor *tensor,
                    void *context)
{
    struct names *names = context;
    names->at[names->count++] = (struct named){tensor->name, file->path};
    return 0;
}

static int compare_names(const void *one, const void *other)
{
    return strcmp(((const struct named *)one)->name, ((const struct named *)other)->name);
}

static int check_names(const struct load_files *files)
{
    struct names names = {calloc(files->tensor_count + 1, sizeof *names.at), 0};
    int code = CMD_FINE;
    if (names.at == NULL)
        return cmd_no_memory("load");
    load_files_for_each(files, add_name, &names);
    qsort(names.at, names.count, sizeof *names.at, compare_names);
    for (size_t i = 1; i < names.count && code == CMD_FINE; i++)
        if (strcmp(names.at[i - 1].name, names.at[i].name) == 0) {
            fprintf(stderr, "tenon load: the tensor '%s' is in two files: %s and %s\n",
                    names.at[i].name, names.at[i - 1].path, names.at[i].path);
            code = CMD_TROUBLE;
        }
    free(names.at);
    return code;
}

static int add_size(const struct safetensors *file, const struct safetensors_tensor *tensor,
                    void *context)
{
    uint64_t *bytes = context;
    (void)file;
    *bytes += load_files_room(tensor);
    return 0;
}

/* ---- opening ----------------------------------------------------------------------------- */

int load_files_open(char *const *paths, size_t count, struct load_files *ret_files)
{
    struct load_files files = {.at = calloc(count, sizeof *files.at)};
    char error[SAFETENSORS_ERROR_BYTES];
    int code = files.at != NULL ? CMD_FINE : cmd_no_memory("load");

    for (size_t i = 0; i < count && code == CMD_FINE; i++) {
        if (safetensors_model_open(paths[i], &files.at[i], error) != 0) {
            fprintf(stderr, "tenon load: %s\n", error);
            code = CMD_TROUBLE;
        } else {
            files.tensor_count += files.at[files.count++].tensor_count;
        }
    }
    if (code == CMD_FINE && files.tensor_count > TN_MESSAGE_MAX_TENSORS) {
        fprintf(stderr, "tenon load: %zu tensors are too many: a model can have %d\n",
                files.tensor_count, TN_MESSAGE_MAX_TENSORS);
        code = CMD_TROUBLE;
    }
    if (code == CMD_FINE)
        code = check_names(&files);
    if (code != CMD_FINE) {
        load_files_close(&files);
        return code;
    }
    load_files_for_each(&files, add_size, &files.arena_bytes);
    *ret_files = files;
    return code;
}

void load_files_close(struct load_files *files)
{
    for (size_t i = 0; i < files->count; i++)
        safetensors_model_close(&files->at[i]);
    free(files->at);
    *files = (struct load_files){0};
}

/* ---- the description --------------------------------------------------------------------- */

static int append_name(const struct safetensors *file, const struct safetensors_tensor *tensor,
                       void *list)
{
    (void)file;
    return json_array_append_new(list, json_string(tensor->name));
}

/* Of two entries of one key, in two files, the later one counts. */
static void add_metadata(json_t *metadata, const struct safetensors *file)
{
    for (size_t i = 0; i < file->metadata_count; i++)
        cmd_json_set(metadata, file->metadata[i].key, json_string(file->metadata[i].value));
}

static json_t *describe_file(const struct safetensors *file)
{
    struct stat status = {0};
    json_t *object = json_object();
    char *path = realpath(file->path, NULL);
    cmd_json_set(object, "path", cmd_json_text(path != NULL ? path : file->path));
    free(path);
    (void)fstat(file->fd, &status);
    cmd_json_set(object, "bytes", cmd_json_count((uint64_t)status.st_size));
    cmd_json_set(
        object, "modified_ns",
        json_integer((json_int_t)status.st_mtim.tv_sec * 1000000000 + status.st_mtim.tv_nsec));
    return object;
}

static json_t *describe_files(const struct load_files *files, json_t *metadata)
{
    json_t *list = json_array();
    for (size_t m = 0; m < files->count; m++)
        for (size_t f = 0; f < files->at[m].file_count; f++) {
            json_array_append_new(list, describe_file(&files->at[m].files[f]));
            if (metadata != NULL)
                add_metadata(metadata, &files->at[m].files[f]);
        }
    return list;
}

char *load_files_describe(const struct load_files *files)
{
    json_t *root = json_object(), *names = json_array(), *metadata = json_object();
    int stop = load_files_for_each(files, append_name, names);
    cmd_json_set(root, "format", json_string("tenon.model"));
    cmd_json_set(root, "version", json_integer(1));
    cmd_json_set(root, "names", names);
    cmd_json_set(root, "files", describe_files(files, metadata));
    cmd_json_set(root, "metadata", metadata);
    char *text = stop == 0 ? json_dumps(root, JSON_COMPACT) : NULL;
    json_decref(root);
    return text;
}

bool load_files_made(const struct load_files *files, const tn_message *value)
{
    json_t *root = json_loadb(value->bytes, value->size_bytes, 0, NULL);
    json_t *ours = describe_files(files, NULL);
    bool is_same = root != NULL && json_equal(json_object_get(root, "files"), ours) == 1;
    json_decref(root);
    json_decref(ours);
    return is_same;
}
