/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors_files: writes files for tests of their reader, in the folder of the test. */
#ifndef TENON_TESTS_SAFETENSORS_FILES_H
#define TENON_TESTS_SAFETENSORS_FILES_H

#include "harness/harness.h"

#include <stdlib.h>
#include <string.h>

#include "safetensors.h"

enum { PUT_PATH_BYTES = 512, PUT_MOST_BYTES = 1 << 20 };

/** The path of a file in the folder of the test; static until the next call. */
static inline const char *put_path(const char *name)
{
    static char path[PUT_PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s", tnt_folder(), name);
    return path;
}

/** Write a file. @return its path, as put_path() */
static inline const char *put_bytes(const char *name, const void *bytes, size_t size_bytes)
{
    FILE *file = fopen(put_path(name), "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size_bytes, file), size_bytes);
    assert_int_equal(fclose(file), 0);
    return put_path(name);
}

/** Build a file of the format: byte i of its data is i + 1. @return its size */
static inline size_t put_build(char *file, const char *header, size_t header_bytes,
                               size_t data_bytes)
{
    assert_true(8 + header_bytes + data_bytes <= PUT_MOST_BYTES);
    for (size_t i = 0; i < 8; i++)
        file[i] = (char)(header_bytes >> 8 * i);
    memcpy(file + 8, header, header_bytes);
    for (size_t i = 0; i < data_bytes; i++)
        file[8 + header_bytes + i] = (char)(i + 1);
    return 8 + header_bytes + data_bytes;
}

/** Write a file of the format. @return its path, as put_path() */
static inline const char *put_header(const char *name, const char *header, size_t data_bytes)
{
    char *file = malloc(PUT_MOST_BYTES);
    assert_non_null(file);
    const char *path =
        put_bytes(name, file, put_build(file, header, strlen(header), data_bytes));
    free(file);
    return path;
}

/** Check that a sentence has all of these words, which end with NULL. */
static inline void assert_says(const char *sentence, const char *const *words)
{
    assert_non_null(memchr(sentence, 0, SAFETENSORS_ERROR_BYTES));
    for (; *words != NULL; words++)
        if (strstr(sentence, *words) == NULL)
            fail_msg("\"%s\" does not say \"%s\"", sentence, *words);
}
#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

#endif
