/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_npy: a .npy file, as the example reads it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fuzz.h"
#include "npy.h"

static void convert(const struct npy *array)
{
    float *values = calloc(array->count + 1, sizeof *values);
    int64_t *integers = calloc(array->count + 1, sizeof *integers);
    if (values != NULL && integers != NULL) {
        (void)npy_to_float32(array, values);
        (void)npy_to_int64(array, integers);
    }
    free(values);
    free(integers);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size_bytes)
{
    char path[64], error[NPY_ERROR_BYTES];
    struct npy array;
    int fd = memfd_create("npy", MFD_CLOEXEC);
    if (fd < 0 || write(fd, bytes, size_bytes) != (ssize_t)size_bytes)
        fuzz_fail("no file");
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    memset(error, 'x', sizeof error);
    if (npy_load(path, &array, error) == 0) {
        FUZZ_CHECK(array.ndim >= 0 && array.ndim <= NPY_MAX_NDIM);
        FUZZ_CHECK(npy_type_name(array.type) != NULL);
        convert(&array);
        npy_fini(&array);
    } else {
        FUZZ_CHECK(memchr(error, 0, sizeof error) != NULL);
    }
    close(fd);
    return 0;
}
