/* SPDX-License-Identifier: Apache-2.0 */
/*
 * safetensors: reads files of the format safetensors, and models whose tensors are in several
 * such files. It checks everything that a file says before it returns any of it.
 *
 * A file is 8 bytes with the length of the header, little-endian; the header, an object of
 * JSON; and the data. The header has for each tensor its type, its shape, and where in the
 * data its bytes begin and end. The tensors fill the data without gaps and without overlaps.
 * The bytes of a tensor are its elements in row-major order, little-endian. An index is a file
 * of JSON that names the file of each tensor of a model.
 *
 * What this reader refuses and the reference implementation, version 0.8, accepts: a header
 * that does not begin with '{', two tensors of one name, an unknown key of a tensor, an array
 * in place of the object of a tensor, metadata that is null or has a key twice, a NUL in a
 * text, and what a store of tenon cannot have: an empty or a long name, more axes than
 * TN_MAX_NDIM, a size or a product of sizes of 2^63 bytes or more, a type that is not a whole
 * number of bytes.
 */
#ifndef TENON_TOOL_SAFETENSORS_H
#define TENON_TOOL_SAFETENSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tenon/tensor.h>

enum {
    SAFETENSORS_ERROR_BYTES = 2048,
    /* Of the longest name, without its NUL; header, or index; and JSON about one tensor. */
    SAFETENSORS_NAME_BYTES = 512,
    SAFETENSORS_HEADER_BYTES = 100000000,
    SAFETENSORS_TENSOR_BYTES = 1 << 16
};

/** A tensor of a file. The file owns the text and the shape. */
struct safetensors_tensor {
    const char *name;     /* UTF-8, 1 to SAFETENSORS_NAME_BYTES bytes, no NUL in it */
    const int64_t *shape; /* [ndim], each >= 0; if ndim is 0, may be NULL */
    int32_t ndim;         /* 0 to TN_MAX_NDIM */
    tn_dtype dtype;
    uint64_t begin_off, end_off; /* in the file; the difference is the size of the tensor */
};

/** An entry of the metadata of a file, which owns the texts. */
struct safetensors_text {
    const char *key, *value; /* UTF-8 without NUL */
};

/** An open file. */
struct safetensors {
    char *path;
    int fd;                             /* for the caller, too, who only reads from it */
    struct safetensors_tensor *tensors; /* [tensor_count], in the order of the data */
    size_t tensor_count;
    struct safetensors_text *metadata; /* [metadata_count], in the order of the header */
    size_t metadata_count;
    uint64_t data_off, data_bytes; /* the data of all tensors, which ends with the file */
    /* Of this room only. */
    char *header;                           /* owns all texts */
    int64_t *dims;                          /* owns all shapes */
    struct safetensors_tensor **name_order; /* [tensor_count] */
};

/**
 * Open a file and read its header. The time is O(n log n) in the number of tensors. The
 * memory is that of the header, and some 100 bytes a tensor.
 * @param ret_file  ended with safetensors_close(); untouched on failure
 * @param error     [SAFETENSORS_ERROR_BYTES]: on failure a sentence that names the file, the
 *                  tensor, and what is wrong. It has no control characters
 * @return 0, or
 *         TN_ERR_INVALID      the file is not what the format demands, or is truncated
 *         TN_ERR_UNSUPPORTED  a tensor has a type that is not a whole number of bytes, too
 *                             many axes, or a name that is too long
 *         TN_ERR_SYSTEM       the file cannot be opened or read; it is no regular file
 *         TN_ERR_NO_MEMORY    private memory
 */
int safetensors_open(const char *path, struct safetensors *ret_file, char *error);
/** The file may be all zero, or closed already. */
void safetensors_close(struct safetensors *file);

/** @return NULL: the file has no tensor of this name */
const struct safetensors_tensor *safetensors_find(const struct safetensors *file,
                                                  const char *name);

/** How many bytes a tensor has. */
static inline uint64_t safetensors_size(const struct safetensors_tensor *tensor)
{
    return tensor->end_off - tensor->begin_off;
}

/**
 * Read all bytes of a tensor.
 * @param tensor  of this file
 * @param to      [safetensors_size()]
 * @param error   as of safetensors_open()
 * @return 0, or TN_ERR_INVALID (the file was truncated after it was opened) or TN_ERR_SYSTEM;
 *         then `to` may have some of the bytes
 * Threads: several may read from one file.
 */
int safetensors_read(const struct safetensors *file, const struct safetensors_tensor *tensor,
                     void *to, char *error);

/** A part of a tensor. */
struct safetensors_part {
    uint64_t off, bytes; /* from the begin of the tensor; all of it inside of the tensor */
};
/** As safetensors_read(), a part of a tensor. TN_ERR_INVALID: or it is not inside. */
int safetensors_read_part(const struct safetensors *file,
                          const struct safetensors_tensor *tensor, struct safetensors_part part,
                          void *to, char *error);

/* ---- models ------------------------------------------------------------------------------ */

/** A model: one file, or all files that an index names. No two tensors have one name. */
struct safetensors_model {
    struct safetensors *files; /* [file_count], in the order of their names */
    size_t file_count;
    size_t tensor_count; /* of all files */
    uint64_t data_bytes; /* of all files */
};

/** Whether the name is that of an index: it ends with ".json". */
bool safetensors_is_index(const char *path);

/**
 * Open a model: all files that an index names, each once, in the folder of the index; or, if
 * the path is none of an index, this one file. The index and the files have to name the same
 * tensors.
 * @param ret_model  ended with safetensors_model_close(); untouched on failure
 * @return as safetensors_open()
 */
int safetensors_model_open(const char *path, struct safetensors_model *ret_model, char *error);
/** The model may be all zero, or closed already. */
void safetensors_model_close(struct safetensors_model *model);

#endif
