/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOGWILD_KILLING_H
#define HOGWILD_KILLING_H

#include "worker.h"

/* What became of one worker that was killed. */
struct killing {
    enum role role;
    int32_t pid;
    uint32_t seat;
    double at_s;     /* since the start of the training; set by the caller */
    uint64_t blocks; /* that it held when it died, shared ones included */
    uint64_t bytes;
    uint64_t own_blocks; /* of these, held by no other process */
    uint64_t own_bytes;
    char own_things[96]; /* these, as in "float32 [32, 64], int64 [32], a message" */
    double released_ms;  /* from kill() until its seat was gone, with all its holds */
};

/**
 * Kill a worker with SIGKILL at a moment when it has a batch in its hands, see what it held,
 * and wait until all of that is released. Its process object is closed.
 */
void killing_do(tn_inspector *inspector, struct worker *worker, struct killing *ret_killing);

#endif
