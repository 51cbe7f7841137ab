/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TENON_DEADLINE_H
#define TENON_DEADLINE_H

#include <stdint.h>
#include <tenon/version.h>

TN_BEGIN_DECLS

/**
 * When a wait ends: an absolute time of CLOCK_MONOTONIC. A duration does not convert to it, so
 * that several calls in a row can share one deadline:
 *
 *     tn_deadline end = tn_deadline_after(5 * TN_SECOND);
 *     while (tn_queue_pop(queue, end, &message) == 0)
 *         ...
 */
typedef struct tn_deadline {
    uint64_t ns; /* of CLOCK_MONOTONIC; 0: do not wait; UINT64_MAX: wait for ever */
} tn_deadline;

/** Try once, and do not wait. A binding that cannot read this object makes {0} of its own. */
static const tn_deadline TN_NOW __attribute__((unused)) = {0};

/** Wait without a time limit: {UINT64_MAX}. */
static const tn_deadline TN_FOREVER __attribute__((unused)) = {UINT64_MAX};

/* Durations, in nanoseconds. */
#define TN_MICROSECOND UINT64_C(1000)
#define TN_MILLISECOND UINT64_C(1000000)
#define TN_SECOND      UINT64_C(1000000000)

/**
 * Make the deadline that lies `duration_ns` nanoseconds from now; TN_FOREVER if that is too far
 * away.
 *
 * Threads: any.   Blocks: never.   Fork: yes.
 */
TN_API tn_deadline tn_deadline_after(uint64_t duration_ns);

TN_END_DECLS

#endif
