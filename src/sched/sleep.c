/* SPDX-License-Identifier: Apache-2.0 */
/* sleep: waits of the program, which a signal handler of an interpreter can end. */
#include "sched/crew.h"

int tni_sched_sleep(struct tn_sched *sched, tni_os_cond *cond, uint64_t deadline_ns)
{
    uint64_t now_ns = tni_os_now_ns(), due_ns = tni_interrupt_due_ns();
    if (due_ns > now_ns) {
        tni_sched_wait(sched, cond, TNI_MIN(deadline_ns, due_ns));
        return 0;
    }
    tni_sched_unlock(sched);
    int status = tni_interrupt_ask(now_ns);
    tni_sched_lock(sched);
    return status;
}
