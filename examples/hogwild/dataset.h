/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOGWILD_DATASET_H
#define HOGWILD_DATASET_H

#include <tenon/tenon.h>

/* Samples and labels in shared memory, and the two parts of them, which are views. */
struct dataset {
    tn_tensor *x;       /* float32 [samples, features] */
    tn_tensor *y;       /* int64 [samples], 0 to classes - 1 */
    tn_tensor *train_x; /* the first four fifths */
    tn_tensor *train_y;
    tn_tensor *test_x; /* the rest */
    tn_tensor *test_y;
    int64_t train_count;
    int64_t test_count;
    int32_t features;
};

/* The same, as read from files, in private memory. */
struct dataset_rows {
    float *x;   /* [samples, features] */
    int64_t *y; /* [samples], 0 to classes - 1 */
    int64_t samples;
    int32_t features;
    int32_t classes;
};

/** Read a pair of .npy files; fails the program on anything odd. */
void dataset_read(const char *x_path, const char *y_path, struct dataset_rows *ret_rows);

/** Share what was read, and free it. */
void dataset_share(tn_domain *domain, struct dataset_rows *rows, struct dataset *ret_dataset);
/** Give the tensors back; the counts stay. */
void dataset_drop(struct dataset *dataset);

#endif
