/* SPDX-License-Identifier: Apache-2.0 */
/*
 * safetensors: reads the header of a file, and the bytes of its tensors. The contracts stand
 * in safetensors.h.
 *
 * I1  An offset is compared with the size of the file before it is used.
 * I2  The time is O(n log n): names and places are sorted, and neighbours compared.
 */
#include "safetensors.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "safetensors_json.h"

/* A file whose header is being read. */
struct reading {
    struct safetensors_place place;
    struct safetensors_json json;
    struct safetensors file; /* offsets of its tensors: from the begin of the data */
    uint64_t file_bytes, header_bytes;
    struct safetensors_dims dims;
    size_t tensor_room, metadata_room;
    bool has_metadata;
};

static int fail_memory(const struct reading *reading)
{
    return safetensors_fail(&reading->place, TN_ERR_NO_MEMORY,
                            "there is no memory for its header");
}

/* ---- the header -------------------------------------------------------------------------- */

static int check_name(const struct reading *reading, const char *name)
{
    size_t bytes = strlen(name);

    if (bytes == 0)
        return safetensors_fail(&reading->place, TN_ERR_INVALID,
                                "the name of a tensor is empty, before byte %zu of the header",
                                (size_t)(reading->json.at - reading->json.begin));
    if (bytes > SAFETENSORS_NAME_BYTES)
        return safetensors_fail(&reading->place, TN_ERR_UNSUPPORTED,
                                "its name has %zu bytes, and a key of a store at most %d",
                                bytes, SAFETENSORS_NAME_BYTES);
    return 0;
}

/* Read a tensor, whose name was read. */
static int read_tensor(struct reading *reading, const char *name)
{
    struct safetensors_tensor tensor = {.name = name};

    reading->place.tensor = name[0] != '\0' ? name : NULL;
    int status = check_name(reading, name);
    if (status == 0)
        status = safetensors_tensor_read(&reading->json, &reading->dims, &tensor);
    if (status < 0)
        return status;
    struct safetensors_tensor *tensors =
        safetensors_grow(reading->file.tensors, reading->file.tensor_count,
                         &reading->tensor_room, sizeof tensor);
    if (tensors == NULL)
        return fail_memory(reading);
    reading->file.tensors = tensors;
    tensors[reading->file.tensor_count++] = tensor;
    reading->place.tensor = NULL;
    return 0;
}

static int compare_keys(const void *left, const void *right)
{
    return strcmp(*(const char *const *)left, *(const char *const *)right);
}

static int check_metadata_keys(const struct reading *reading)
{
    size_t count = reading->file.metadata_count;
    const char **keys = calloc(count + 1, sizeof *keys);
    int status = 0;

    if (keys == NULL)
        return fail_memory(reading);
    for (size_t i = 0; i < count; i++)
        keys[i] = reading->file.metadata[i].key;
    qsort(keys, count, sizeof *keys, compare_keys);
    for (size_t i = 1; i < count && status == 0; i++)
        if (strcmp(keys[i - 1], keys[i]) == 0)
            status = safetensors_fail(&reading->place, TN_ERR_INVALID,
                                      "its __metadata__ has two entries of the key '%.64s'",
                                      keys[i]);
    free(keys);
    return status;
}

static int read_metadata(struct reading *reading)
{
    char *key, *value;

    if (reading->has_metadata)
        return safetensors_fail(&reading->place, TN_ERR_INVALID, "it has __metadata__ twice");
    reading->has_metadata = true;
    int status = safetensors_json_enter(&reading->json, "__metadata__");
    if (status < 0)
        return status;
    while ((status = safetensors_json_next(&reading->json, &key)) > 0) {
        status = safetensors_json_text(&reading->json, "the text of an entry of __metadata__",
                                       &value);
        if (status < 0)
            return status;
        struct safetensors_text *metadata =
            safetensors_grow(reading->file.metadata, reading->file.metadata_count,
                             &reading->metadata_room, sizeof *metadata);
        if (metadata == NULL)
            return fail_memory(reading);
        reading->file.metadata = metadata;
        metadata[reading->file.metadata_count++] = (struct safetensors_text){key, value};
    }
    return status < 0 ? status : check_metadata_keys(reading);
}

static int read_entries(struct reading *reading)
{
    char *name;
    int status = safetensors_json_enter(&reading->json, "the header");

    while (status >= 0 && (status = safetensors_json_next(&reading->json, &name)) > 0)
        status = strcmp(name, "__metadata__") == 0 ? read_metadata(reading)
                                                   : read_tensor(reading, name);
    return status < 0 ? status : safetensors_json_end(&reading->json);
}

/* Read how many bytes the header has. */
static int read_length(struct reading *reading)
{
    unsigned char length[8] = {0};
    uint64_t bytes = 0;

    if (reading->file_bytes < sizeof length)
        return safetensors_fail(&reading->place, TN_ERR_INVALID,
                                "it has %" PRIu64 " bytes, and the length of its header has 8",
                                reading->file_bytes);
    int status =
        safetensors_read_file(&reading->place, reading->file.fd, 0, length, sizeof length);
    if (status < 0)
        return status;
    for (size_t i = 0; i < sizeof length; i++)
        bytes |= (uint64_t)length[i] << 8 * i;
    if (bytes == 0)
        return safetensors_fail(&reading->place, TN_ERR_INVALID, "its header has 0 bytes");
    if (bytes > SAFETENSORS_HEADER_BYTES)
        return safetensors_fail(&reading->place, TN_ERR_INVALID,
                                "its header has %" PRIu64
                                " bytes, and the format allows %d: is it such a file?",
                                bytes, SAFETENSORS_HEADER_BYTES);
    if (bytes > reading->file_bytes - sizeof length)
        return safetensors_fail(&reading->place, TN_ERR_INVALID,
                                "its header has %" PRIu64 " bytes, and the file only %" PRIu64
                                " after their number: it is truncated",
                                bytes, reading->file_bytes - sizeof length);
    reading->header_bytes = bytes;
    reading->file.data_off = bytes + sizeof length;
    reading->file.data_bytes = reading->file_bytes - reading->file.data_off;
    return 0;
}

/* Read the bytes of the header. */
static int read_header(struct reading *reading)
{
    char *header = malloc(reading->header_bytes + 1);

    if (header == NULL)
        return fail_memory(reading);
    reading->file.header = header;
    int status = safetensors_read_file(&reading->place, reading->file.fd,
                                       reading->file.data_off - reading->header_bytes, header,
                                       reading->header_bytes);
    if (status < 0)
        return status;
    if (header[0] != '{')
        return safetensors_fail(&reading->place, TN_ERR_INVALID,
                                "its header begins with the byte 0x%02x, not with '{'",
                                (unsigned char)header[0]);
    reading->json = (struct safetensors_json){
        .place = &reading->place,
        .noun = "the header",
        .begin = header,
        .at = header,
        .end = header + reading->header_bytes,
    };
    return 0;
}

/* ---- all tensors ------------------------------------------------------------------------- */

static int compare_numbers(uint64_t left, uint64_t right)
{
    return (left > right) - (left < right);
}

static int compare_places(const void *left, const void *right)
{
    const struct safetensors_tensor *a = left, *b = right;
    int order = compare_numbers(a->begin_off, b->begin_off);
    if (order == 0)
        order = compare_numbers(a->end_off, b->end_off);
    return order != 0 ? order : strcmp(a->name, b->name);
}

static int compare_names(const void *left, const void *right)
{
    const struct safetensors_tensor *const *a = left, *const *b = right;
    return strcmp((*a)->name, (*b)->name);
}

/* The tensors are in the order of the header, as their sizes are. Scalars may have no array. */
static void place_shapes(struct safetensors *file)
{
    size_t at = 0;
    for (size_t i = 0; i < file->tensor_count; i++) {
        file->tensors[i].shape = file->dims != NULL ? file->dims + at : NULL;
        at += (size_t)file->tensors[i].ndim;
    }
}

static int check_names(struct reading *reading)
{
    struct safetensors *file = &reading->file;
    struct safetensors_tensor **order = calloc(file->tensor_count + 1, sizeof *order);

    if (order == NULL)
        return fail_memory(reading);
    file->name_order = order;
    for (size_t i = 0; i < file->tensor_count; i++)
        order[i] = &file->tensors[i];
    qsort(order, file->tensor_count, sizeof *order, compare_names);
    for (size_t i = 1; i < file->tensor_count; i++)
        if (strcmp(order[i - 1]->name, order[i]->name) == 0) {
            reading->place.tensor = order[i]->name;
            return safetensors_fail(&reading->place, TN_ERR_INVALID,
                                    "the header has this name twice");
        }
    return 0;
}

/* Check that a tensor begins where the one before ends. `before`: NULL: it is the first. */
static int check_place(struct reading *reading, const struct safetensors_tensor *tensor,
                       const struct safetensors_tensor *before)
{
    uint64_t free_off = before != NULL ? before->end_off : 0;

    reading->place.tensor = tensor->name;
    if (tensor->begin_off < free_off)
        return safetensors_fail(&reading->place, TN_ERR_INVALID,
                                "its data begins at byte %" PRIu64
                                ", before that of tensor '%.128s' ends, at byte %" PRIu64,
                                tensor->begin_off, before->name, free_off);
    if (tensor->begin_off > free_off)
        return safetensors_fail(&reading->place, TN_ERR_INVALID,
                                "its data begins at byte %" PRIu64
                                ", and no tensor has the bytes from %" PRIu64 " on before it",
                                tensor->begin_off, free_off);
    if (tensor->end_off > reading->file.data_bytes)
        return safetensors_fail(&reading->place, TN_ERR_INVALID,
                                "its data ends at byte %" PRIu64
                                ", and the data of the file at byte %" PRIu64
                                ": the file is truncated",
                                tensor->end_off, reading->file.data_bytes);
    reading->place.tensor = NULL;
    return 0;
}

static int check_places(struct reading *reading)
{
    struct safetensors *file = &reading->file;
    const struct safetensors_tensor *before = NULL;

    for (size_t i = 0; i < file->tensor_count; i++) {
        int status = check_place(reading, &file->tensors[i], before);
        if (status < 0)
            return status;
        before = &file->tensors[i];
    }
    uint64_t end_off = before != NULL ? before->end_off : 0;
    if (end_off != file->data_bytes)
        return safetensors_fail(&reading->place, TN_ERR_INVALID,
                                "its data has %" PRIu64 " bytes, and its tensors end at byte "
                                "%" PRIu64,
                                file->data_bytes, end_off);
    for (size_t i = 0; i < file->tensor_count; i++) {
        file->tensors[i].begin_off += file->data_off;
        file->tensors[i].end_off += file->data_off;
    }
    return 0;
}

static int check_tensors(struct reading *reading)
{
    place_shapes(&reading->file);
    if (reading->file.tensor_count > 0)
        qsort(reading->file.tensors, reading->file.tensor_count, sizeof *reading->file.tensors,
              compare_places);
    int status = check_names(reading);
    return status < 0 ? status : check_places(reading);
}

/* ---- the door ---------------------------------------------------------------------------- */

static int open_file(struct reading *reading)
{
    reading->file.path = strdup(reading->place.path);
    if (reading->file.path == NULL)
        return fail_memory(reading);
    int status =
        safetensors_open_file(&reading->place, &reading->file.fd, &reading->file_bytes);
    if (status == 0)
        status = read_length(reading);
    if (status == 0)
        status = read_header(reading);
    if (status < 0)
        return status;
    status = read_entries(reading);
    reading->file.dims = reading->dims.at;
    return status < 0 ? status : check_tensors(reading);
}

int safetensors_open(const char *path, struct safetensors *ret_file, char *error)
{
    struct reading reading = {.place = {.error = error, .path = path}, .file.fd = -1};
    int status = open_file(&reading);

    if (status < 0) {
        safetensors_close(&reading.file);
        return status;
    }
    *ret_file = reading.file;
    return 0;
}

void safetensors_close(struct safetensors *file)
{
    if (file->path != NULL && file->fd >= 0)
        close(file->fd);
    free(file->path);
    free(file->tensors);
    free(file->metadata);
    free(file->header);
    free(file->dims);
    free(file->name_order);
    *file = (struct safetensors){.fd = -1};
}

const struct safetensors_tensor *safetensors_find(const struct safetensors *file,
                                                  const char *name)
{
    const struct safetensors_tensor wanted = {.name = name}, *key = &wanted;
    struct safetensors_tensor **found = NULL;

    if (file->tensor_count > 0)
        found = bsearch(&key, file->name_order, file->tensor_count, sizeof *file->name_order,
                        compare_names);
    return found != NULL ? *found : NULL;
}

int safetensors_read_part(const struct safetensors *file,
                          const struct safetensors_tensor *tensor, struct safetensors_part part,
                          void *to, char *error)
{
    const struct safetensors_place place = {error, file->path, tensor->name};
    uint64_t size_bytes = safetensors_size(tensor);

    if (part.off > size_bytes || part.bytes > size_bytes - part.off)
        return safetensors_fail(&place, TN_ERR_INVALID,
                                "it has %" PRIu64 " bytes, and the part has %" PRIu64
                                " from byte %" PRIu64 " on",
                                size_bytes, part.bytes, part.off);
    return safetensors_read_file(&place, file->fd, tensor->begin_off + part.off, to,
                                 part.bytes);
}

int safetensors_read(const struct safetensors *file, const struct safetensors_tensor *tensor,
                     void *to, char *error)
{
    struct safetensors_part all = {0, safetensors_size(tensor)};
    return safetensors_read_part(file, tensor, all, to, error);
}
