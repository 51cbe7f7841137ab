/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOGWILD_NPY_H
#define HOGWILD_NPY_H

#include <stddef.h>
#include <stdint.h>

/*
 * One array of a .npy file: format 1.0, 2.0 or 3.0, little-endian, C order, of the types below.
 * Anything else is an error that says what was found.
 */
enum npy_type { NPY_FLOAT32, NPY_FLOAT64, NPY_INT32, NPY_INT64, NPY_UINT8 };

enum { NPY_MAX_NDIM = 8, NPY_ERROR_BYTES = 512 };

struct npy {
    enum npy_type type;
    int ndim;
    int64_t shape[NPY_MAX_NDIM];
    size_t count; /* elements */
    void *data;   /* [count], malloc'ed */
};

/**
 * Read a file. @return 0; or -1, and `error` [NPY_ERROR_BYTES] says why. `ret_array` is ended
 * with npy_fini().
 */
int npy_load(const char *path, struct npy *ret_array, char *error);

void npy_fini(struct npy *array);

/** The type's name, as in "float32"; static. */
const char *npy_type_name(enum npy_type type);

/** Convert all elements. @return 0, or -1 when one of them is not a finite number */
int npy_to_float32(const struct npy *array, float *values);

/** Convert all elements. @return 0, or -1 when the type is a floating-point one */
int npy_to_int64(const struct npy *array, int64_t *values);

#endif
