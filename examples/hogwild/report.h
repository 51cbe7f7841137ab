/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOGWILD_REPORT_H
#define HOGWILD_REPORT_H

#include "killing.h"
#include "run.h"

enum { REPORT_MAX_KILLINGS = 2 };

struct sample {
    double at_s;
    double accuracy;
    int64_t batches;
    double handoffs_per_s; /* tensors that reached a trainer, since the sample before */
};

/* Everything that the run found out. */
struct report {
    const struct options *options;
    struct sample *samples; /* [sample_count] */
    size_t sample_count;
    size_t sample_room;
    struct killing killings[REPORT_MAX_KILLINGS];
    int32_t killing_count;
    struct board_account account;
    int64_t queue_pushed; /* as the queue itself counted */
    int64_t handoffs;     /* tensors */
    double elapsed_s;     /* of training, until the queue was empty */
    double accuracy;      /* at the end */
    int64_t discrepancies;
    int64_t leaked_blocks;
    int64_t leaked_bytes;
};

void report_add(struct report *report, struct sample sample);

/** Show how far it is: one line that changes, or, if that was asked for, a line each second. */
void report_progress(const struct report *report, double seconds);

/** Print what happened. @return whether all is as it must be */
bool report_print(const struct report *report);

/** Write everything as JSON; fails the program if it cannot. */
void report_write(const struct report *report, const struct run *run, const char *path);

void report_fini(struct report *report);

#endif
