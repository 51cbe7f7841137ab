/* SPDX-License-Identifier: Apache-2.0 */
/*
 * npy: reads NumPy's file format, strictly.
 *
 * Source: NEP 1, "A Simple File Format for NumPy Arrays": magic, version, header length, then a
 * Python dictionary with exactly the keys descr, fortran_order and shape, then the data. Ours
 * accepts less: five little-endian types, C order, and not one byte more than the shape says.
 */
#include "npy.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAGIC_BYTES = 8, MAX_HEADER_BYTES = 64 * 1024 };

static const struct {
    const char *descr;
    const char *name;
    size_t size;
} types[] = {
    [NPY_FLOAT32] = {"<f4", "float32", 4}, [NPY_FLOAT64] = {"<f8", "float64", 8},
    [NPY_INT32] = {"<i4", "int32", 4},     [NPY_INT64] = {"<i8", "int64", 8},
    [NPY_UINT8] = {"|u1", "uint8", 1},
};
enum { TYPE_COUNT = sizeof(types) / sizeof(types[0]) };

/* A file that is being read, and the place in its header. */
struct reader {
    FILE *file;
    const char *path;
    char *error;
    char *header; /* nul-terminated */
    const char *at;
};

const char *npy_type_name(enum npy_type type) { return types[type].name; }

__attribute__((format(printf, 2, 3))) static int refuse(struct reader *reader,
                                                        const char *format, ...)
{
    int used = snprintf(reader->error, NPY_ERROR_BYTES, "%.200s: ", reader->path);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(reader->error + used, (size_t)(NPY_ERROR_BYTES - used), format, arguments);
    va_end(arguments);
    return -1;
}

static int read_exactly(struct reader *reader, void *bytes, size_t size, const char *what)
{
    size_t got = fread(bytes, 1, size, reader->file);
    if (got == size)
        return 0;
    if (ferror(reader->file))
        return refuse(reader, "cannot be read: %s", strerror(errno));
    return refuse(reader, "is truncated: its %s has %zu of %zu bytes", what, got, size);
}

static int read_header(struct reader *reader)
{
    unsigned char magic[MAGIC_BYTES];
    unsigned char length[4] = {0};
    if (read_exactly(reader, magic, sizeof(magic), "magic number") != 0)
        return -1;
    if (memcmp(magic, "\x93NUMPY", 6) != 0)
        return refuse(reader, "is not a .npy file: its magic number is wrong");
    if (magic[6] < 1 || magic[6] > 3 || magic[7] != 0)
        return refuse(reader, "has format version %d.%d; 1.0, 2.0 and 3.0 are known", magic[6],
                      magic[7]);
    if (read_exactly(reader, length, magic[6] == 1 ? 2 : 4, "header length") != 0)
        return -1;
    size_t size = (size_t)length[0] | (size_t)length[1] << 8 | (size_t)length[2] << 16 |
                  (size_t)length[3] << 24;
    if (size > MAX_HEADER_BYTES)
        return refuse(reader, "has a header of %zu bytes; at most %d make sense", size,
                      MAX_HEADER_BYTES);
    reader->header = malloc(size + 1);
    if (reader->header == NULL)
        return refuse(reader, "no memory for its header of %zu bytes", size);
    if (read_exactly(reader, reader->header, size, "header") != 0)
        return -1;
    reader->header[size] = '\0';
    reader->at = reader->header;
    if (strlen(reader->header) != size)
        return refuse(reader, "has a zero byte in its header");
    while (size > 0 && strchr(" \n", reader->header[size - 1]) != NULL)
        reader->header[--size] = '\0'; /* padding */
    return 0;
}

static void skip_space(struct reader *reader) { reader->at += strspn(reader->at, " \t\r\n"); }

/*
 * Go past `text` and the space before it; false, and nothing moved, if something else is there.
 */
static bool take(struct reader *reader, const char *text)
{
    skip_space(reader);
    size_t size = strlen(text);
    if (strncmp(reader->at, text, size) != 0)
        return false;
    reader->at += size;
    return true;
}

static int expect(struct reader *reader, const char *text)
{
    if (take(reader, text))
        return 0;
    return refuse(reader, "has a malformed header: %s expected at \"%.16s\"", text, reader->at);
}

/* A quoted Python string without escapes. */
static int take_string(struct reader *reader, char *text, size_t size)
{
    skip_space(reader);
    char quote = *reader->at;
    if (quote != '\'' && quote != '"')
        return refuse(reader, "has a malformed header: a string expected at \"%.16s\"",
                      reader->at);
    size_t length = strcspn(reader->at + 1, quote == '"' ? "\"\\" : "'\\");
    if (reader->at[1 + length] != quote || length >= size)
        return refuse(reader,
                      "has a malformed header: a string that has no end or is too long");
    memcpy(text, reader->at + 1, length);
    text[length] = '\0';
    reader->at += length + 2;
    return 0;
}

static int take_type(struct reader *reader, struct npy *array)
{
    char descr[32];
    skip_space(reader);
    if (*reader->at == '[')
        return refuse(reader, "has records; plain arrays are supported");
    if (take_string(reader, descr, sizeof(descr)) != 0)
        return -1;
    for (int type = 0; type < TYPE_COUNT; ++type) {
        if (strcmp(descr, types[type].descr) == 0) {
            array->type = (enum npy_type)type;
            return 0;
        }
    }
    if (descr[0] == '>')
        return refuse(reader, "is big-endian (%s); little-endian is supported", descr);
    return refuse(reader,
                  "has elements of type %s; float32, float64, int32, int64 and uint8 are "
                  "supported",
                  descr);
}

static int take_order(struct reader *reader)
{
    if (take(reader, "False"))
        return 0;
    if (take(reader, "True"))
        return refuse(reader, "is in Fortran order; save numpy.ascontiguousarray() of it");
    return refuse(reader, "has a malformed header: True or False expected at \"%.16s\"",
                  reader->at);
}

static int take_size(struct reader *reader, int64_t *ret_size)
{
    skip_space(reader);
    if (*reader->at < '0' || *reader->at > '9')
        return refuse(reader, "has a malformed shape at \"%.16s\"", reader->at);
    char *end;
    errno = 0;
    long long size = strtoll(reader->at, &end, 10);
    if (errno != 0)
        return refuse(reader, "has a size in its shape that is too large");
    reader->at = end;
    *ret_size = size;
    return 0;
}

/* A Python tuple: (), (3,), (3, 4) */
static int take_shape(struct reader *reader, struct npy *array)
{
    if (expect(reader, "(") != 0)
        return -1;
    while (!take(reader, ")")) {
        if (array->ndim == NPY_MAX_NDIM)
            return refuse(reader, "has more than %d dimensions", NPY_MAX_NDIM);
        if (take_size(reader, &array->shape[array->ndim++]) != 0)
            return -1;
        if (take(reader, ","))
            continue;
        if (array->ndim == 1)
            return refuse(reader, "has a shape that is not a tuple");
        if (expect(reader, ")") != 0)
            return -1;
        break;
    }
    return 0;
}

static int take_entry(struct reader *reader, struct npy *array, unsigned *seen)
{
    static const char *const keys[] = {"descr", "fortran_order", "shape"};
    char key[32];
    if (take_string(reader, key, sizeof(key)) != 0 || expect(reader, ":") != 0)
        return -1;
    for (unsigned index = 0; index < 3; ++index) {
        if (strcmp(key, keys[index]) != 0)
            continue;
        if (*seen & 1u << index)
            return refuse(reader, "has the key %s twice in its header", key);
        *seen |= 1u << index;
        return index == 0   ? take_type(reader, array)
               : index == 1 ? take_order(reader)
                            : take_shape(reader, array);
    }
    return refuse(reader, "has the unknown key %s in its header", key);
}

static int parse_header(struct reader *reader, struct npy *array)
{
    unsigned seen = 0;
    if (expect(reader, "{") != 0)
        return -1;
    while (!take(reader, "}")) {
        if (take_entry(reader, array, &seen) != 0)
            return -1;
        if (take(reader, ","))
            continue;
        if (expect(reader, "}") != 0)
            return -1;
        break;
    }
    skip_space(reader);
    if (*reader->at != '\0')
        return refuse(reader, "has something behind its header: \"%.16s\"", reader->at);
    if (seen != 7)
        return refuse(reader, "lacks descr, fortran_order or shape in its header");
    return 0;
}

static int read_data(struct reader *reader, struct npy *array)
{
    size_t bytes = types[array->type].size;
    for (int axis = 0; axis < array->ndim; ++axis) {
        if (__builtin_mul_overflow(bytes, (size_t)array->shape[axis], &bytes))
            return refuse(reader, "has a shape that overflows");
    }
    array->count = bytes / types[array->type].size;
    array->data = malloc(bytes != 0 ? bytes : 1);
    if (array->data == NULL)
        return refuse(reader, "no memory for %zu bytes", bytes);
    if (read_exactly(reader, array->data, bytes, "data") != 0)
        return -1;
    if (fgetc(reader->file) != EOF)
        return refuse(reader, "has more than the %zu bytes of data that its shape asks for",
                      bytes);
    return 0;
}

int npy_load(const char *path, struct npy *ret_array, char *error)
{
    struct npy array = {0};
    struct reader reader = {.file = fopen(path, "rb"), .path = path, .error = error};
    if (reader.file == NULL)
        return refuse(&reader, "cannot be opened: %s", strerror(errno));
    int status = read_header(&reader);
    if (status == 0)
        status = parse_header(&reader, &array);
    if (status == 0)
        status = read_data(&reader, &array);
    free(reader.header);
    fclose(reader.file);
    if (status != 0)
        npy_fini(&array);
    else
        *ret_array = array;
    return status;
}

void npy_fini(struct npy *array)
{
    free(array->data);
    *array = (struct npy){0};
}

static double element(const struct npy *array, size_t index)
{
    switch (array->type) {
    case NPY_FLOAT32:
        return (double)((const float *)array->data)[index];
    case NPY_FLOAT64:
        return ((const double *)array->data)[index];
    case NPY_INT32:
        return ((const int32_t *)array->data)[index];
    case NPY_INT64:
        return (double)((const int64_t *)array->data)[index];
    case NPY_UINT8:
        break;
    }
    return ((const uint8_t *)array->data)[index];
}

int npy_to_float32(const struct npy *array, float *values)
{
    for (size_t index = 0; index < array->count; ++index) {
        values[index] = (float)element(array, index);
        if (!isfinite(values[index]))
            return -1;
    }
    return 0;
}

int npy_to_int64(const struct npy *array, int64_t *values)
{
    if (array->type == NPY_FLOAT32 || array->type == NPY_FLOAT64)
        return -1;
    for (size_t index = 0; index < array->count; ++index) {
        if (array->type == NPY_INT64)
            values[index] = ((const int64_t *)array->data)[index];
        else
            values[index] = (int64_t)element(array, index);
    }
    return 0;
}
