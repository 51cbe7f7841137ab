/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOGWILD_RUN_H
#define HOGWILD_RUN_H

#include "board.h"
#include "dataset.h"
#include "network.h"
#include "options.h"

/*
 * One run of the demo. Everything here is made before the workers are forked. They inherit
 * it, so the pointers below are valid in each of them and point to the same shared memory.
 */
struct run {
    struct options options;
    tn_domain *domain;
    struct dataset data;
    struct network network;
    tn_tensor *parameters; /* float32 [network_size()], updated in place by all trainers */
    tn_queue *batches;     /* messages of struct batch_name and two tensors, x and y */
    struct board board;
};

#endif
