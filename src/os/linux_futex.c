/* SPDX-License-Identifier: Apache-2.0 */
/* Sleeping and waking up, by futexes. */
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "os/linux.h"

/* Without FUTEX_PRIVATE_FLAG, since other processes map the word at other addresses. */
int tni_os_wait(_Atomic uint32_t *word, uint32_t expected, uint64_t deadline_ns)
{
    if (deadline_ns == 0) {
        if (atomic_load_explicit(word, memory_order_acquire) != expected)
            return 0;
        return tni_fail(TN_ERR_TIMED_OUT, "nothing happened, and the deadline is 0");
    }

    struct timespec until = tni_linux_timespec(deadline_ns);
    long done =
        syscall(SYS_futex, word, FUTEX_WAIT_BITSET, expected,
                deadline_ns == TNI_FOREVER ? NULL : &until, NULL, FUTEX_BITSET_MATCH_ANY);
    if (done == 0 || errno == EAGAIN)
        return 0; /* the caller checks its condition again in both cases */
    if (errno == EINTR)
        return tni_fail_plain(TN_ERR_INTERRUPTED, "a signal came before anything else did");
    if (errno == ETIMEDOUT)
        return tni_fail(TN_ERR_TIMED_OUT, "nothing happened before the deadline");
    return tni_linux_fail(TN_ERR_SYSTEM, errno, "waiting on a word");
}

int tni_os_wake(_Atomic uint32_t *word, uint32_t count)
{
    uint32_t most = TNI_MIN(count, (uint32_t)INT_MAX);
    long woken = syscall(SYS_futex, word, FUTEX_WAKE, most, NULL, NULL, 0);
    return woken > 0 ? (int)woken : 0;
}

int tni_os_check_waits(void)
{
    static _Atomic bool is_known;
    _Atomic uint32_t word = 0;
    if (atomic_load_explicit(&is_known, memory_order_relaxed))
        return 0;
    if (syscall(SYS_futex, &word, FUTEX_WAKE, 1, NULL, NULL, 0) < 0)
        return tni_linux_fail(TN_ERR_SYSTEM, errno,
                              "the system call futex, which every wait needs, is refused");
    atomic_store_explicit(&is_known, true, memory_order_relaxed);
    return 0;
}

void tni_os_yield(void) { sched_yield(); }

void tni_os_back_off(uint32_t tries)
{
    enum { YIELDS = 16, SHORTEST_NS = 50 * 1000, DOUBLINGS = 4 };
    if (tries < YIELDS)
        sched_yield();
    else
        tni_os_sleep_until(tni_os_now_ns() + ((uint64_t)SHORTEST_NS
                                              << TNI_MIN(tries - YIELDS, (uint32_t)DOUBLINGS)));
}

void tni_os_sleep_until(uint64_t deadline_ns)
{
    struct timespec until = tni_linux_timespec(deadline_ns);
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR) {
    }
}
