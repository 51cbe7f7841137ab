/* SPDX-License-Identifier: Apache-2.0 */
/*
 * safetensors_json: what the sources of safetensors share: errors, whole files, and JSON that
 * is read an entry at a time.
 *
 * jansson reads each text and each tensor by itself, and not the whole header: a header may
 * have 100 MB, whose values would take gigabytes, and an error names the tensor.
 */
#ifndef TENON_TOOL_SAFETENSORS_JSON_H
#define TENON_TOOL_SAFETENSORS_JSON_H

#include <jansson.h>

#include "safetensors.h"

/** What the sentence of an error begins with. */
struct safetensors_place {
    char *error; /* [SAFETENSORS_ERROR_BYTES] of the caller */
    const char *path;
    const char *tensor; /* NULL: it is about no tensor */
};
/** Write a sentence about the place to its buffer. @return `status` */
int safetensors_fail(const struct safetensors_place *place, int status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/**
 * Open a regular file of the place's path.
 * @param ret_fd  owned by the caller
 * @return 0, or TN_ERR_SYSTEM
 */
int safetensors_open_file(const struct safetensors_place *place, int *ret_fd,
                          uint64_t *ret_bytes);
/** Read bytes [off, off + bytes) of the file. @return as safetensors_read() */
int safetensors_read_file(const struct safetensors_place *place, int fd, uint64_t off, void *to,
                          size_t bytes);

/** JSON that is being read. A text of it is decoded in place and ends with NUL. */
struct safetensors_json {
    const struct safetensors_place *place;
    const char *noun;       /* how sentences call the JSON */
    char *begin, *at, *end; /* all of it, and what is not yet read */
    bool is_first;          /* no entry of the innermost object was read */
};

/** Read the begin of an object. @param what  how the sentence calls the object */
int safetensors_json_enter(struct safetensors_json *json, const char *what);
/**
 * Read on until the value of the next entry of the innermost object.
 * @return 1; 0: the object has ended; or a TN_ERR_*
 */
int safetensors_json_next(struct safetensors_json *json, char **ret_key);
/** Read a value that is a text. @param what  how the sentence calls it */
int safetensors_json_text(struct safetensors_json *json, const char *what, char **ret);
/**
 * Read a value of at most SAFETENSORS_TENSOR_BYTES bytes of JSON, which the caller owns.
 */
int safetensors_json_value(struct safetensors_json *json, json_t **ret_value);
/** Check that nothing follows. */
int safetensors_json_end(struct safetensors_json *json);

/** @return how sentences call the type of a value */
const char *safetensors_json_type(const json_t *value);

/** The shapes of tensors, one behind the other. */
struct safetensors_dims {
    int64_t *at; /* [count], owned */
    size_t count, room;
};
/**
 * Read the value of the entry of a tensor, all fields but its name and its shape, which is
 * appended to `dims`. Its offsets are those of the header.
 */
int safetensors_tensor_read(struct safetensors_json *json, struct safetensors_dims *dims,
                            struct safetensors_tensor *tensor);

/**
 * Make room for one more item in an array that grows by doubling. @return the array; NULL: no
 * memory, and the array is as it was
 */
void *safetensors_grow(void *items, size_t count, size_t *room, size_t item_bytes);

#endif
