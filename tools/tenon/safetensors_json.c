/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors_json: see safetensors_json.h. */
#include "safetensors_json.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "text.h"

enum { SHOWN_PATH_BYTES = 768, SHOWN_NAME_BYTES = 128, READ_BYTES = 1 << 30 };

/* ---- errors and memory ------------------------------------------------------------------- */

int safetensors_fail(const struct safetensors_place *place, int status, const char *format, ...)
{
    char path[PATH_MAX], tensor[SAFETENSORS_NAME_BYTES + 1];
    char sentence[SAFETENSORS_ERROR_BYTES / 2];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(sentence, sizeof sentence, format, arguments);
    va_end(arguments);
    snprintf(path, sizeof path, "%s", place->path);
    tni_text_shorten(path, SHOWN_PATH_BYTES);
    if (place->tensor == NULL) {
        snprintf(place->error, SAFETENSORS_ERROR_BYTES, "%.768s: %s", path, sentence);
    } else {
        snprintf(tensor, sizeof tensor, "%s", place->tensor);
        tni_text_shorten(tensor, SHOWN_NAME_BYTES);
        snprintf(place->error, SAFETENSORS_ERROR_BYTES, "%.768s: tensor '%.128s': %s", path,
                 tensor, sentence);
    }
    tni_text_clean(place->error);
    return status;
}

void *safetensors_grow(void *items, size_t count, size_t *room, size_t item_bytes)
{
    if (count < *room)
        return items;
    size_t more = *room != 0 ? 2 * *room : 16;
    void *grown = reallocarray(items, more, item_bytes);
    if (grown != NULL)
        *room = more;
    return grown;
}

/* ---- files ------------------------------------------------------------------------------- */

int safetensors_open_file(const struct safetensors_place *place, int *ret_fd,
                          uint64_t *ret_bytes)
{
    struct stat status;
    /* Without O_NONBLOCK, the open of a FIFO would wait for its writer. */
    int fd = open(place->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

    if (fd < 0)
        return safetensors_fail(place, TN_ERR_SYSTEM, "%s", strerror(errno));
    if (fstat(fd, &status) != 0) {
        int error = errno;
        close(fd);
        return safetensors_fail(place, TN_ERR_SYSTEM, "%s", strerror(error));
    }
    if (!S_ISREG(status.st_mode)) {
        close(fd);
        return safetensors_fail(place, TN_ERR_SYSTEM, "it is %s, not a regular file",
                                S_ISDIR(status.st_mode) ? "a folder" : "a special file");
    }
    *ret_fd = fd;
    *ret_bytes = (uint64_t)status.st_size;
    return 0;
}

int safetensors_read_file(const struct safetensors_place *place, int fd, uint64_t off, void *to,
                          size_t bytes)
{
    char *at = to;

    while (bytes > 0) {
        size_t wanted = bytes < READ_BYTES ? bytes : READ_BYTES;
        ssize_t got = pread(fd, at, wanted, (off_t)off);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return safetensors_fail(place, TN_ERR_SYSTEM,
                                    "a read at byte %" PRIu64 " of the file failed: %s", off,
                                    strerror(errno));
        if (got == 0)
            return safetensors_fail(place, TN_ERR_INVALID,
                                    "the file was truncated while it was read: %zu bytes from "
                                    "byte %" PRIu64 " on are missing",
                                    bytes, off);
        at += got;
        off += (uint64_t)got;
        bytes -= (size_t)got;
    }
    return 0;
}

/* ---- JSON -------------------------------------------------------------------------------- */

static void skip_space(struct safetensors_json *json)
{
    while (json->at < json->end &&
           (*json->at == ' ' || *json->at == '\t' || *json->at == '\n' || *json->at == '\r'))
        json->at++;
}

/* What stands at a byte, or where the text ends. */
static int fail_at(const struct safetensors_json *json, const char *wanted)
{
    size_t off = (size_t)(json->at - json->begin);
    unsigned char byte;

    if (json->at == json->end)
        return safetensors_fail(json->place, TN_ERR_INVALID,
                                "%s ends after %zu bytes, where %s has to be", json->noun, off,
                                wanted);
    byte = (unsigned char)*json->at;
    if (byte > ' ' && byte < 0x7f)
        return safetensors_fail(json->place, TN_ERR_INVALID,
                                "'%c' is at byte %zu of %s, where %s has to be", byte, off,
                                json->noun, wanted);
    return safetensors_fail(json->place, TN_ERR_INVALID,
                            "byte %zu of %s is 0x%02x, where %s has to be", off, json->noun,
                            byte, wanted);
}

/* The digits before a place, of which jansson shows only few. */
static int fail_number(const struct safetensors_json *json, size_t end)
{
    static const char marks[] = "+-.0123456789Ee";
    size_t begin = end;
    while (begin > 0 && memchr(marks, json->at[begin - 1], sizeof marks - 1) != NULL)
        begin--;
    return safetensors_fail(
        json->place, TN_ERR_INVALID, "the number %.*s%s is out of range, before byte %zu of %s",
        end - begin > 64 ? 64 : (int)(end - begin), json->at + begin,
        end - begin > 64 ? "..." : "", (size_t)(json->at - json->begin) + end, json->noun);
}

/* jansson has no text for some allocations that fail. */
static bool is_no_memory(const json_error_t *error)
{
    return json_error_code(error) == json_error_out_of_memory || error->text[0] == '\0';
}

/* A value that is cut can end in the middle of a character, which has 4 bytes at most. */
static int fail_parse(const struct safetensors_json *json, const json_error_t *error,
                      bool was_cut)
{
    size_t off = (size_t)(json->at - json->begin);

    if (is_no_memory(error))
        return safetensors_fail(json->place, TN_ERR_NO_MEMORY, "there is no memory for %s",
                                json->noun);
    if (was_cut && error->position + 4 >= SAFETENSORS_TENSOR_BYTES)
        return safetensors_fail(json->place, TN_ERR_INVALID,
                                "the value at byte %zu of %s has more than %d bytes", off,
                                json->noun, SAFETENSORS_TENSOR_BYTES);
    if (json_error_code(error) == json_error_numeric_overflow)
        return fail_number(json, (size_t)error->position);
    return safetensors_fail(json->place, TN_ERR_INVALID, "the value at byte %zu of %s: %s", off,
                            json->noun, error->text);
}

/* Let jansson read one value of at most so many bytes, and go on behind it. */
static int parse(struct safetensors_json *json, size_t most_bytes, json_t **ret_value)
{
    json_error_t error = {0};
    size_t left = (size_t)(json->end - json->at);
    bool is_cut = left > most_bytes;
    json_t *value = json_loadb(json->at, is_cut ? most_bytes : left,
                               JSON_DECODE_ANY | JSON_DISABLE_EOF_CHECK | JSON_ALLOW_NUL |
                                   JSON_REJECT_DUPLICATES,
                               &error);
    if (value == NULL)
        return fail_parse(json, &error, is_cut);
    json->at += error.position;
    *ret_value = value;
    return 0;
}

int safetensors_json_enter(struct safetensors_json *json, const char *what)
{
    char wanted[64];

    skip_space(json);
    if (json->at == json->end || *json->at != '{') {
        snprintf(wanted, sizeof wanted, "the '{' of %s", what);
        return fail_at(json, wanted);
    }
    json->at++;
    json->is_first = true;
    return 0;
}

/*
 * The JSON of a text is longer than the text by two quotes at least, so the text fits in its
 * place.
 */
int safetensors_json_text(struct safetensors_json *json, const char *what, char **ret)
{
    char *place = json->at;
    json_t *value = NULL;

    if (json->at == json->end || *json->at != '"')
        return fail_at(json, what);
    int status = parse(json, (size_t)(json->end - json->at), &value);
    if (value == NULL)
        return status;
    size_t bytes = json_string_length(value);
    memcpy(place, json_string_value(value), bytes + 1);
    json_decref(value);
    if (strlen(place) != bytes)
        return safetensors_fail(json->place, TN_ERR_INVALID,
                                "%s at byte %zu of %s has a NUL in it: '%s', NUL", what,
                                (size_t)(place - json->begin), json->noun, place);
    *ret = place;
    return 0;
}

int safetensors_json_next(struct safetensors_json *json, char **ret_key)
{
    skip_space(json);
    bool is_end = json->at < json->end && *json->at == '}';
    if (is_end) {
        json->at++;
        json->is_first = false; /* of the object around it */
        return 0;
    }
    if (!json->is_first) {
        if (json->at == json->end || *json->at != ',')
            return fail_at(json, "',' or '}'");
        json->at++;
        skip_space(json);
    }
    json->is_first = false;
    int status = safetensors_json_text(json, "the text of a name", ret_key);
    if (status < 0)
        return status;
    skip_space(json);
    if (json->at == json->end || *json->at != ':')
        return fail_at(json, "':'");
    json->at++;
    skip_space(json);
    return 1;
}

int safetensors_json_value(struct safetensors_json *json, json_t **ret_value)
{
    return parse(json, SAFETENSORS_TENSOR_BYTES, ret_value);
}

int safetensors_json_end(struct safetensors_json *json)
{
    skip_space(json);
    return json->at == json->end ? 0 : fail_at(json, "the end");
}

const char *safetensors_json_type(const json_t *value)
{
    static const char *const names[] = {
        [JSON_OBJECT] = "an object", [JSON_ARRAY] = "an array",  [JSON_STRING] = "a text",
        [JSON_INTEGER] = "a number", [JSON_REAL] = "a fraction", [JSON_TRUE] = "true",
        [JSON_FALSE] = "false",      [JSON_NULL] = "null"};
    return names[json_typeof(value)];
}
