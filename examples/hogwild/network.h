/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOGWILD_NETWORK_H
#define HOGWILD_NETWORK_H

#include <stddef.h>
#include <stdint.h>

/*
 * A network with one hidden layer: features -> hidden (ReLU) -> classes (softmax, cross
 * entropy). Its parameters are one row of floats: weights [features, hidden], biases [hidden],
 * weights [hidden, classes], biases [classes].
 */
struct network {
    int32_t features;
    int32_t hidden;
    int32_t classes;
};

/*
 * Where a forward and a backward pass put what lies between; for batches of at most so many
 * rows.
 */
struct network_scratch {
    float *activation; /* [rows, hidden] */
    float *output;     /* [rows, classes] */
    float *error;      /* [hidden] */
    int32_t rows;
};

size_t network_size(const struct network *network);

/** @return 0, or -1: no memory */
int network_scratch_init(const struct network *network, int32_t rows,
                         struct network_scratch *ret_scratch);
void network_scratch_fini(struct network_scratch *scratch);

/** Random weights, biases 0. */
void network_init(const struct network *network, float *parameters, uint64_t seed);

/**
 * The mean gradient of the loss over a batch.
 *
 * @param x         [rows, features]
 * @param y         [rows], each 0 to classes - 1
 * @param gradient  [network_size()], written
 * @return the mean loss
 */
float network_gradient(const struct network *network, const float *parameters, const float *x,
                       const int64_t *y, int32_t rows, struct network_scratch *scratch,
                       float *gradient);

/** One step of gradient descent, in place. */
void network_step(float *parameters, const float *gradient, size_t size, float rate);

/**
 * How many of x [rows, features] the network takes for what y [rows] says; any number of rows.
 */
int64_t network_correct(const struct network *network, const float *parameters, const float *x,
                        const int64_t *y, int64_t rows, struct network_scratch *scratch);

#endif
