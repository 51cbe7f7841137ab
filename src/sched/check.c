/* SPDX-License-Identifier: Apache-2.0 */
/* check: whether a scheduler may be used in this process, and what time it is for it. */
#include "sched/crew.h"

int tni_sched_check(const struct tn_sched *sched, const char *name)
{
    if (sched == NULL)
        return tni_fail_null(name);
    if (sched->pid != tni_os_pid())
        return tni_fail(TN_ERR_FORKED,
                        "the scheduler is of process %d, and has no threads here", sched->pid);
    return 0;
}

uint64_t tni_sched_now_ns(const struct tn_sched *sched)
{
    return tni_sched_is_virtual(sched) ? sched->virtual_ns : tni_os_now_ns();
}
