/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of the scheduler with threads share. */
#ifndef TENON_TESTS_SCHED_THREADS_TEST_H
#define TENON_TESTS_SCHED_THREADS_TEST_H

#include <stdatomic.h>

#include "sched_test.h"

static inline tn_sched *open_sched(const char *resources)
{
    tn_sched *sched;
    TN_CHECK_OK(tn_sched_create(TN_OPTIONS(tn_sched_options, .resources = resources), &sched));
    return sched;
}

static inline tn_kind *add_kind(tn_sched *sched, tn_task_fn *run, const char *request)
{
    tn_kind *kind;
    const tn_variant variant = {.run = run, .request = request};
    TN_CHECK_OK(tn_kind_create(
        sched, TN_OPTIONS(tn_kind_options, .variants = &variant, .variant_count = 1), &kind));
    return kind;
}

static inline tn_graph *open_graph(tn_sched *sched)
{
    tn_graph *graph;
    TN_CHECK_OK(tn_graph_create(sched, &graph));
    return graph;
}

static inline int count_call(const tn_task_call *call)
{
    atomic_fetch_add((_Atomic uint64_t *)call->context, 1);
    return 0;
}

static inline int fail_one(const tn_task_call *call)
{
    (void)call;
    return tni_fail(TN_ERR_DENIED, "the task does not want to");
}

#endif
