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
    tn_tensor *test_x;  /* the rest */
    tn_tensor *test_y;
    int64_t samples;
    int64_t train_count;
    int64_t test_count;
    int32_t features;
    int32_t classes;
};

/** Read a pair of .npy files into a domain; fails the program on anything odd. */
void dataset_load(tn_domain *domain, const char *x_path, const char *y_path,
                  struct dataset *ret_dataset);
void dataset_drop(struct dataset *dataset);

#endif
