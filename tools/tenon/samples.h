/* SPDX-License-Identifier: Apache-2.0 */
/* samples: the figures of domains at one moment, and what changed since an earlier one. */
#ifndef TENON_TOOL_SAMPLES_H
#define TENON_TOOL_SAMPLES_H

#include "cmd.h"
#include "devices.h"

struct sample {
    tn_domain_stat stat;
    uint64_t taken_ns;
    tn_seat_entry *seats; /* [seat_count], most bytes first, those on devices included */
    size_t seat_count;
    tn_object_entry *objects; /* [object_count], as in the table */
    size_t object_count;
    tn_scheduler_entry *schedulers; /* [scheduler_count] */
    size_t scheduler_count;
    struct devices devices;
};

struct samples {
    struct sample *at; /* [count] */
    size_t count;
};

/**
 * Take a sample of the domain of this name or id, or of every domain if `name` is NULL.
 * @param samples  empty; what was taken before a failure stays there
 * @return 0, or a TN_ERR_* that cmd_fail() can name
 */
int samples_take(const char *name, struct samples *samples);
void samples_free(struct samples *samples);
/** The sample of the same domain in an earlier list, or NULL. */
const struct sample *samples_find(const struct samples *before, const struct sample *sample);
/** Messages pushed each second since `before`, which may be NULL; negative: not known. */
double samples_rate(const struct sample *before, const struct sample *sample,
                    const tn_object_entry *queue);
/** The same, of tasks that ended. */
double samples_task_rate(const struct sample *before, const struct sample *sample,
                         const tn_scheduler_entry *scheduler);

#endif
