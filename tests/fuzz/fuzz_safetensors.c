/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_safetensors: a file of safetensors, or an index, as `tenon load` reads it. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fuzz.h"
#include "safetensors.h"

/* Of tensors that are read: a file may be sparse, and say more. */
enum { MOST_BYTES = 1 << 16 };

static void check_tensor(const struct safetensors *file,
                         const struct safetensors_tensor *tensor)
{
    uint64_t size_bytes = safetensors_size(tensor), expected_bytes;
    size_t item_bytes;
    char error[SAFETENSORS_ERROR_BYTES];

    FUZZ_CHECK(tn_dtype_size(tensor->dtype, &item_bytes) == 0);
    FUZZ_CHECK(tensor->name[0] != '\0' && strlen(tensor->name) <= SAFETENSORS_NAME_BYTES);
    FUZZ_CHECK(tensor->ndim >= 0 && tensor->ndim <= TN_MAX_NDIM);
    expected_bytes = item_bytes;
    for (int32_t i = 0; i < tensor->ndim; i++) {
        FUZZ_CHECK(tensor->shape[i] >= 0);
        expected_bytes *= (uint64_t)tensor->shape[i];
    }
    FUZZ_CHECK(size_bytes == expected_bytes);
    FUZZ_CHECK(safetensors_find(file, tensor->name) == tensor);
    if (size_bytes > MOST_BYTES)
        return;
    void *bytes = malloc(size_bytes + 1);
    FUZZ_CHECK(bytes != NULL && safetensors_read(file, tensor, bytes, error) == 0);
    free(bytes);
}

/* The tensors are the whole data, one behind the other. */
static void check_file(const struct safetensors *file)
{
    uint64_t at = file->data_off;

    for (size_t i = 0; i < file->tensor_count; i++) {
        FUZZ_CHECK(file->tensors[i].begin_off == at && file->tensors[i].end_off >= at);
        at = file->tensors[i].end_off;
        check_tensor(file, &file->tensors[i]);
    }
    FUZZ_CHECK(at == file->data_off + file->data_bytes);
    FUZZ_CHECK((uint64_t)lseek(file->fd, 0, SEEK_END) == at);
    for (size_t i = 0; i < file->metadata_count; i++)
        FUZZ_CHECK(file->metadata[i].key != NULL && file->metadata[i].value != NULL);
}

static void check_error(const char *error)
{
    const char *end = memchr(error, 0, SAFETENSORS_ERROR_BYTES);
    FUZZ_CHECK(end != NULL && end > error);
    for (const char *at = error; at < end; at++)
        FUZZ_CHECK((unsigned char)*at >= ' ' && *at != 0x7f);
}

static void try_file(const char *path)
{
    char error[SAFETENSORS_ERROR_BYTES];
    struct safetensors file;

    memset(error, 'x', sizeof error);
    if (safetensors_open(path, &file, error) == 0) {
        check_file(&file);
        safetensors_close(&file);
    } else {
        check_error(error);
    }
}

static void try_index(const char *path)
{
    char error[SAFETENSORS_ERROR_BYTES];
    struct safetensors_model model;

    memset(error, 'x', sizeof error);
    if (safetensors_model_open(path, &model, error) == 0) {
        for (size_t i = 0; i < model.file_count; i++)
            check_file(&model.files[i]);
        safetensors_model_close(&model);
    } else {
        check_error(error);
    }
}

static char paths[4][160]; /* of the two files that an index may name, an index, and a file */

static void remove_files(void)
{
    for (int i = 0; i < 4; i++)
        unlink(paths[i]);
}

static void put(const char *path, const uint8_t *bytes, size_t size_bytes)
{
    int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, bytes, size_bytes) != (ssize_t)size_bytes)
        fuzz_fail("no file");
    close(fd);
}

static void put_header(const char *path, const void *header, size_t header_bytes,
                       size_t data_bytes)
{
    uint64_t length = header_bytes;
    uint8_t *file = calloc(1, 8 + header_bytes + data_bytes);

    FUZZ_CHECK(file != NULL);
    memcpy(file, &length, 8);
    if (header_bytes > 0)
        memcpy(file + 8, header, header_bytes);
    put(path, file, 8 + header_bytes + data_bytes);
    free(file);
}

/* An index may name the file 1, which has the tensor a, and 2, which has b and c. */
static void put_files(void)
{
    static const char *const names[] = {"1", "2", "i.json", "f"};
    static const char *const headers[] = {
        "{\"a\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]}}",
        "{\"b\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]},"
        "\"c\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[1,1]}}"};

    if (paths[0][0] != '\0')
        return;
    for (int i = 0; i < 4; i++)
        snprintf(paths[i], sizeof paths[i], "%s/%s", fuzz_folder(), names[i]);
    atexit(remove_files);
    for (int i = 0; i < 2; i++)
        put_header(paths[i], headers[i], strlen(headers[i]), 1);
}

/*
 * The first byte chooses: an index; a file; or a header, whose length is that of the input, and
 * before it the size of the data.
 */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size_bytes)
{
    struct fuzz_input in = fuzz_input(bytes, size_bytes);
    uint32_t kind = fuzz_u8(&in) % 3, data_bytes = kind == 2 ? fuzz_u8(&in) : 0;

    fuzz_begin();
    put_files();
    const char *path = paths[kind == 0 ? 2 : 3];
    if (kind == 2)
        put_header(path, in.at, fuzz_left(&in), data_bytes);
    else
        put(path, in.at, fuzz_left(&in));
    if (kind == 0)
        try_index(path);
    else
        try_file(path);
    fuzz_end();
    return 0;
}
