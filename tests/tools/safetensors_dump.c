/* SPDX-License-Identifier: Apache-2.0 */
/*
 * safetensors_dump PATH...: print what the reader says of each file or index, a line of JSON
 * each, for tests/python/test_safetensors.py.
 */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "safetensors.h"

static json_t *dump_bytes(const struct safetensors *file,
                          const struct safetensors_tensor *tensor)
{
    static const char digits[] = "0123456789abcdef";
    size_t size_bytes = (size_t)safetensors_size(tensor);
    unsigned char *bytes = malloc(size_bytes + 1);
    char *text = malloc(2 * size_bytes + 1), error[SAFETENSORS_ERROR_BYTES];

    if (bytes == NULL || text == NULL || safetensors_read(file, tensor, bytes, error) < 0)
        abort();
    for (size_t i = 0; i < size_bytes; i++) {
        text[2 * i] = digits[bytes[i] >> 4];
        text[2 * i + 1] = digits[bytes[i] & 15];
    }
    json_t *dumped = json_stringn(text, 2 * size_bytes);
    free(bytes);
    free(text);
    return dumped;
}

static json_t *dump_tensor(const struct safetensors *file,
                           const struct safetensors_tensor *tensor)
{
    json_t *shape = json_array();
    char dtype[32];

    for (int32_t i = 0; i < tensor->ndim; i++)
        json_array_append_new(shape, json_integer(tensor->shape[i]));
    if (tn_dtype_name(tensor->dtype, dtype, sizeof dtype) < 0)
        abort();
    return json_pack("{s:s, s:s, s:o, s:I, s:I, s:o}", "name", tensor->name, "dtype", dtype,
                     "shape", shape, "begin", (json_int_t)tensor->begin_off, "end",
                     (json_int_t)tensor->end_off, "data", dump_bytes(file, tensor));
}

static json_t *dump_file(const struct safetensors *file)
{
    json_t *tensors = json_array(), *metadata = json_object();

    for (size_t i = 0; i < file->tensor_count; i++)
        json_array_append_new(tensors, dump_tensor(file, &file->tensors[i]));
    for (size_t i = 0; i < file->metadata_count; i++)
        json_object_set_new(metadata, file->metadata[i].key,
                            json_string(file->metadata[i].value));
    return json_pack("{s:s, s:o, s:o}", "path", file->path, "tensors", tensors, "metadata",
                     metadata);
}

static json_t *dump(const char *path)
{
    struct safetensors_model model;
    char error[SAFETENSORS_ERROR_BYTES];
    int status = safetensors_model_open(path, &model, error);

    if (status < 0)
        return json_pack("{s:s, s:s}", "status", tn_status_name(status), "error", error);
    json_t *files = json_array();
    for (size_t i = 0; i < model.file_count; i++)
        json_array_append_new(files, dump_file(&model.files[i]));
    safetensors_model_close(&model);
    return json_pack("{s:o}", "files", files);
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        json_t *dumped = dump(argv[i]);
        if (dumped == NULL || json_dumpf(dumped, stdout, JSON_COMPACT) != 0)
            return 1;
        putchar('\n');
        json_decref(dumped);
    }
    return 0;
}
