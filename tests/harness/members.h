/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TNT_MEMBERS_H
#define TNT_MEMBERS_H

#include "harness/harness.h"
#include "process/process.h"

/*
 * How many seats are taken, without visitors: `tenon gc`, run by another test or by a person
 * at this machine, takes a seat in every domain of this user for a moment. The function waits
 * until such a visitor has left.
 */
static inline uint32_t tnt_members(const struct tni_segment *segment, uint32_t expected)
{
    enum { VISIT_MS = 5000 };
    uint64_t deadline_ns = tnt_until_ns(VISIT_MS);
    uint32_t count;
    while ((count = tni_process_count(segment)) > expected && tni_os_now_ns() < deadline_ns)
        tni_os_yield();
    return count;
}

#endif
