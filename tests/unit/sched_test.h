/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of the scheduler share. */
#ifndef TENON_TESTS_SCHED_TEST_H
#define TENON_TESTS_SCHED_TEST_H

#include "harness/harness.h"
#include "sched/sched.h"

/* Add one task that waits for `count` tasks of the graph. @return its number */
static inline uint64_t add_task(tn_graph *graph, tn_task task, const uint64_t *inputs,
                                uint64_t count)
{
    uint64_t first = 0;
    TN_CHECK_OK(tn_graph_add(graph,
                             TN_OPTIONS(tn_task_list, .tasks = &task, .count = 1,
                                        .input_ends = &count, .inputs = inputs),
                             &first));
    return first;
}

#endif
