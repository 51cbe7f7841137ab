/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests that collect: tn_inspect_gc() also reclaims what other tests have just killed, in
 * every domain of this user. So a test that calls it has gc_ in its name, and `make test` runs
 * it alone.
 */
#ifndef TENON_TESTS_HARNESS_GC_H
#define TENON_TESTS_HARNESS_GC_H

#include <string.h>

#include "harness/harness.h"

static inline void tnt_gc(tn_audit_fn *each)
{
    if (strstr(tnt_name(), "gc_") == NULL)
        fail_msg("%s calls tn_inspect_gc(), so its name must contain gc_", tnt_name());
    TN_CHECK_OK(tn_inspect_gc(each, NULL));
}

#endif
