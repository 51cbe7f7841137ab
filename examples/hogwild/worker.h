/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOGWILD_WORKER_H
#define HOGWILD_WORKER_H

#include "run.h"

enum role { LOADER, TRAINER };

/* A loader or a trainer, as the main process sees it. */
struct worker {
    struct run *run;
    tn_process *process;
    enum role role;
    int32_t line; /* its own on the board; a replacement gets a new one */
};

const char *role_name(enum role role);

/** Start a worker; `worker` must stay where it is until worker_end(). */
void worker_start(struct run *run, enum role role, int32_t line, struct worker *worker);

/** Its line on the board. */
struct board_line *worker_line(const struct worker *worker);

/** Fail the program if it has ended. Waits for that until the deadline. */
void worker_watch(struct worker *worker, tn_deadline deadline);

/** Wait until it comes to its end, and fail the program if that was not in good order. */
void worker_end(struct worker *worker);

#endif
