/* SPDX-License-Identifier: Apache-2.0 */
/*
 * safetensors_index: reads an index, opens the files that it names, and compares the two. The
 * contracts stand in safetensors.h.
 *
 * I1  A file is opened in the folder of the index: its name has no '/' and no "..".
 * I2  Each tensor of a file has an entry of the index that names this file, and each entry
 *     has such a tensor. So no tensor is in two files.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "safetensors.h"
#include "safetensors_json.h"

/* An entry of weight_map. The texts are in the text of the index. */
struct entry {
    const char *tensor, *file;
};

struct reading {
    struct safetensors_place place;
    struct safetensors_json json;
    struct safetensors_model model;
    char *text;            /* owned */
    struct entry *entries; /* [entry_count], owned; sorted by the name of the tensor */
    const char **files;    /* [file_count], owned: the name of each file once, sorted */
    size_t entry_count, entry_room, file_count;
    bool has_map;
};

static int fail_memory(const struct reading *reading)
{
    return safetensors_fail(&reading->place, TN_ERR_NO_MEMORY,
                            "there is no memory for the index");
}

/* ---- the index --------------------------------------------------------------------------- */

static int check_entry(struct reading *reading, const struct entry *entry)
{
    int status = 0;

    reading->place.tensor = entry->tensor;
    if (entry->file[0] == '\0' || strchr(entry->file, '/') != NULL ||
        strcmp(entry->file, ".") == 0 || strstr(entry->file, "..") != NULL)
        status = safetensors_fail(&reading->place, TN_ERR_INVALID,
                                  "its file '%.256s' is not the name of a file in the folder "
                                  "of the index",
                                  entry->file);
    reading->place.tensor = NULL;
    return status;
}

static int add_entry(struct reading *reading, const struct entry *entry)
{
    struct entry *entries = safetensors_grow(reading->entries, reading->entry_count,
                                             &reading->entry_room, sizeof *entries);
    if (entries == NULL)
        return fail_memory(reading);
    reading->entries = entries;
    entries[reading->entry_count++] = *entry;
    return 0;
}

static int read_map(struct reading *reading)
{
    struct entry entry;
    char *tensor, *file;

    if (reading->has_map)
        return safetensors_fail(&reading->place, TN_ERR_INVALID, "it has weight_map twice");
    reading->has_map = true;
    int status = safetensors_json_enter(&reading->json, "weight_map");
    while (status >= 0 && (status = safetensors_json_next(&reading->json, &tensor)) > 0) {
        status =
            safetensors_json_text(&reading->json, "the text with the name of a file", &file);
        if (status < 0)
            return status;
        entry = (struct entry){tensor, file};
        status = check_entry(reading, &entry);
        if (status == 0)
            status = add_entry(reading, &entry);
    }
    return status;
}

/* Programs write what they like beside weight_map, such as the size of the model. */
static int skip_value(struct reading *reading)
{
    json_t *value;
    int status = safetensors_json_value(&reading->json, &value);
    if (status == 0)
        json_decref(value);
    return status;
}

static int read_index(struct reading *reading)
{
    char *key;
    int status = safetensors_json_enter(&reading->json, "the index");

    while (status >= 0 && (status = safetensors_json_next(&reading->json, &key)) > 0)
        status = strcmp(key, "weight_map") == 0 ? read_map(reading) : skip_value(reading);
    if (status == 0)
        status = safetensors_json_end(&reading->json);
    if (status == 0 && !reading->has_map)
        return safetensors_fail(&reading->place, TN_ERR_INVALID, "it has no weight_map");
    return status;
}

/* Read the file of the index into memory. */
static int load_text(struct reading *reading)
{
    uint64_t bytes;
    int fd;

    int status = safetensors_open_file(&reading->place, &fd, &bytes);
    if (status < 0)
        return status;
    if (bytes > SAFETENSORS_HEADER_BYTES) {
        status = safetensors_fail(&reading->place, TN_ERR_INVALID,
                                  "the index has %llu bytes, and at most %d are read",
                                  (unsigned long long)bytes, SAFETENSORS_HEADER_BYTES);
    } else {
        reading->text = malloc(bytes + 1);
        status = reading->text == NULL
                     ? fail_memory(reading)
                     : safetensors_read_file(&reading->place, fd, 0, reading->text, bytes);
    }
    close(fd);
    reading->json = (struct safetensors_json){
        .place = &reading->place,
        .noun = "the index",
        .begin = reading->text,
        .at = reading->text,
        .end = status == 0 ? reading->text + bytes : reading->text,
    };
    return status;
}

/* ---- its order --------------------------------------------------------------------------- */

static int compare_tensors(const void *left, const void *right)
{
    return strcmp(((const struct entry *)left)->tensor, ((const struct entry *)right)->tensor);
}

static int compare_texts(const void *left, const void *right)
{
    return strcmp(*(const char *const *)left, *(const char *const *)right);
}

static int sort_entries(struct reading *reading)
{
    struct entry *entries = reading->entries;

    if (reading->entry_count == 0)
        return 0;
    qsort(entries, reading->entry_count, sizeof *entries, compare_tensors);
    for (size_t i = 1; i < reading->entry_count; i++)
        if (strcmp(entries[i - 1].tensor, entries[i].tensor) == 0) {
            reading->place.tensor = entries[i].tensor;
            return safetensors_fail(&reading->place, TN_ERR_INVALID,
                                    "weight_map has this name twice");
        }
    return 0;
}

static int list_files(struct reading *reading)
{
    const char **files = calloc(reading->entry_count + 1, sizeof *files);
    size_t count = 0;

    if (files == NULL)
        return fail_memory(reading);
    for (size_t i = 0; i < reading->entry_count; i++)
        files[i] = reading->entries[i].file;
    qsort(files, reading->entry_count, sizeof *files, compare_texts);
    for (size_t i = 0; i < reading->entry_count; i++)
        if (count == 0 || strcmp(files[count - 1], files[i]) != 0)
            files[count++] = files[i];
    reading->files = files;
    reading->file_count = count;
    return 0;
}

/* ---- its files --------------------------------------------------------------------------- */

static const struct entry *find_entry(const struct reading *reading, const char *tensor)
{
    const struct entry wanted = {.tensor = tensor};
    return reading->entry_count == 0 ? NULL
                                     : bsearch(&wanted, reading->entries, reading->entry_count,
                                               sizeof wanted, compare_tensors);
}

/* Check each tensor of a file against the index. */
static int check_file(struct reading *reading, const struct safetensors *file, const char *name)
{
    int status = 0;

    for (size_t i = 0; i < file->tensor_count && status == 0; i++) {
        const struct entry *entry = find_entry(reading, file->tensors[i].name);
        reading->place.tensor = file->tensors[i].name;
        if (entry == NULL)
            status =
                safetensors_fail(&reading->place, TN_ERR_INVALID,
                                 "it is in '%.256s', and weight_map does not name it", name);
        else if (strcmp(entry->file, name) != 0)
            status = safetensors_fail(&reading->place, TN_ERR_INVALID,
                                      "it is in '%.256s', and weight_map says '%.256s'", name,
                                      entry->file);
    }
    if (status == 0)
        reading->place.tensor = NULL;
    return status;
}

/* Open a file beside the index as the next one of the model. */
static int open_one(struct reading *reading, const char *name)
{
    const char *slash = strrchr(reading->place.path, '/');
    size_t folder_bytes = slash != NULL ? (size_t)(slash - reading->place.path) + 1 : 0;
    size_t name_bytes = strlen(name);
    char *path = malloc(folder_bytes + name_bytes + 1);
    struct safetensors *file = &reading->model.files[reading->model.file_count];

    if (path == NULL)
        return fail_memory(reading);
    memcpy(path, reading->place.path, folder_bytes);
    memcpy(path + folder_bytes, name, name_bytes + 1);
    int status = safetensors_open(path, file, reading->place.error);
    free(path);
    if (status < 0)
        return status;
    reading->model.file_count++;
    reading->model.tensor_count += file->tensor_count;
    reading->model.data_bytes += file->data_bytes;
    return check_file(reading, file, name);
}

/* All tensors of files are in the index: are all of the index in files? */
static int check_entries(struct reading *reading)
{
    const struct safetensors_model *model = &reading->model;

    if (model->tensor_count == reading->entry_count)
        return 0;
    for (size_t i = 0; i < reading->entry_count; i++) {
        const struct entry *entry = &reading->entries[i];
        const char **file = bsearch(&entry->file, reading->files, reading->file_count,
                                    sizeof *reading->files, compare_texts);
        if (safetensors_find(&model->files[file - reading->files], entry->tensor) == NULL) {
            reading->place.tensor = entry->tensor;
            return safetensors_fail(&reading->place, TN_ERR_INVALID,
                                    "weight_map says that it is in '%.256s', and it is not",
                                    entry->file);
        }
    }
    return 0;
}

static int open_files(struct reading *reading)
{
    reading->model.files = calloc(reading->file_count + 1, sizeof *reading->model.files);
    if (reading->model.files == NULL)
        return fail_memory(reading);
    for (size_t i = 0; i < reading->file_count; i++) {
        int status = open_one(reading, reading->files[i]);
        if (status < 0)
            return status;
    }
    return check_entries(reading);
}

static int open_index(struct reading *reading)
{
    int status = load_text(reading);
    if (status == 0)
        status = read_index(reading);
    if (status == 0)
        status = sort_entries(reading);
    if (status == 0)
        status = list_files(reading);
    return status == 0 ? open_files(reading) : status;
}

static int open_single(struct reading *reading)
{
    struct safetensors_model *model = &reading->model;

    model->files = calloc(1, sizeof *model->files);
    if (model->files == NULL)
        return fail_memory(reading);
    int status = safetensors_open(reading->place.path, model->files, reading->place.error);
    if (status < 0)
        return status;
    model->file_count = 1;
    model->tensor_count = model->files->tensor_count;
    model->data_bytes = model->files->data_bytes;
    return 0;
}

/* ---- the door ---------------------------------------------------------------------------- */

bool safetensors_is_index(const char *path)
{
    static const char end[] = ".json";
    size_t bytes = strlen(path);
    return bytes >= sizeof end - 1 && strcmp(path + bytes - (sizeof end - 1), end) == 0;
}

int safetensors_model_open(const char *path, struct safetensors_model *ret_model, char *error)
{
    struct reading reading = {.place = {.error = error, .path = path}};
    int status = safetensors_is_index(path) ? open_index(&reading) : open_single(&reading);

    free(reading.text);
    free(reading.entries);
    free(reading.files);
    if (status < 0) {
        safetensors_model_close(&reading.model);
        return status;
    }
    *ret_model = reading.model;
    return 0;
}

void safetensors_model_close(struct safetensors_model *model)
{
    for (size_t i = 0; i < model->file_count; i++)
        safetensors_close(&model->files[i]);
    free(model->files);
    *model = (struct safetensors_model){0};
}
