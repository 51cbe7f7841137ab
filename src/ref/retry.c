/* SPDX-License-Identifier: Apache-2.0 */
/* retry: how a call that lacks memory retries and waits. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ref/counts.h"

/* How long one round of attempts lasts before the call reclaims dead processes, or sleeps. */
#define ROUND_NS (UINT64_C(5) * 1000 * 1000)

/* Try once, and retry until `until_ns` or the deadline while the result is TNI_ALLOC_AGAIN. */
static int try_until(struct tn_domain *d, struct tni_retry *retry, uint64_t until_ns)
{
    int status = retry->attempt(d, retry);
    if (retry->deadline_ns != 0)
        until_ns = TNI_MIN(until_ns, retry->deadline_ns);
    for (uint32_t tries = 0; status == TNI_ALLOC_AGAIN && tni_os_now_ns() < until_ns; tries++) {
        tni_os_back_off(tries);
        status = retry->attempt(d, retry);
    }
    return status;
}

/*
 * Give all free memory back to the system, then try again. While a process is stopped in the
 * middle of a commit, attempts may return TNI_ALLOC_AGAIN for ever. The memory that was given
 * back makes room for this call and for that commit.
 */
static int try_with_all_given_back(struct tn_domain *d, struct tni_retry *retry)
{
    struct tni_thread *thread = tni_thread_enter(d);
    tni_alloc_trim(d, thread, 0);
    tni_thread_leave(thread);
    retry->given_ns = tni_os_now_ns();
    return retry->attempt(d, retry);
}

/* Dead processes may hold blocks and memory, or announce commits: reclaim them and retry. */
static int try_relieved(struct tn_domain *d, struct tni_retry *retry, int status)
{
    while (tni_ref_is_short(status) && tni_process_relieve(d, &retry->reliefs))
        status = try_until(d, retry, tni_os_now_ns() + ROUND_NS);
    return status;
}

/*
 * Sleep until a thread frees memory, or until the slice of the wait ends. The slice is needed
 * because no process notifies a waiter when the machine itself has memory again.
 * @param seen  what tni_alloc_arm() returned before the last try
 */
static int sleep_once(struct tn_domain *d, const struct tni_retry *retry, struct tni_wait *wait,
                      uint32_t seen)
{
    char why[256]; /* the error detail: tni_process_sleep() may reclaim, and replace it */
    snprintf(why, sizeof why, "%s", tn_error_detail());
    int slept = tni_process_sleep(d, &d->segment.header->memory_wait, seen, wait);
    if (slept != TN_ERR_TIMED_OUT)
        return slept;
    return tni_fail(TN_ERR_TIMED_OUT, "no memory for %llu bytes until the deadline: %s",
                    (unsigned long long)retry->bytes, why);
}

static int try_and_sleep(struct tn_domain *d, struct tni_retry *retry)
{
    struct tni_wait wait = {.deadline_ns = retry->deadline_ns};
    for (;;) {
        uint32_t seen = tni_alloc_arm(d);
        uint64_t now_ns = tni_os_now_ns();
        int status = try_until(d, retry, now_ns + ROUND_NS);
        if (status == TNI_ALLOC_AGAIN && now_ns - retry->given_ns >= TNI_REF_PATIENCE_NS)
            status = try_with_all_given_back(d, retry);
        if (!tni_ref_is_short(status) || retry->lacks_other)
            return status;
        if ((status = sleep_once(d, retry, &wait, seen)) != 0 ||
            /* The program's interrupt hook may have forked: this may be a child without a seat.
             */
            (status = tni_process_check(d)) != 0)
            return status;
    }
}

static int try_to_get(struct tn_domain *d, struct tni_retry *retry, int status)
{
    uint64_t begun_ns = tni_os_now_ns();
    uint64_t patience_ns = retry->deadline_ns == 0 ? TNI_REF_TRY_NS : TNI_REF_PATIENCE_NS;
    retry->given_ns = begun_ns;
    retry->reliefs = 0;
    if (retry->can_fit) {
        if (status == TNI_ALLOC_AGAIN)
            status = try_until(d, retry, begun_ns + ROUND_NS);
        status = try_relieved(d, retry, status);
        if (status == TNI_ALLOC_AGAIN) {
            status = try_until(d, retry, begun_ns + patience_ns);
            if (status == TNI_ALLOC_AGAIN)
                status = try_with_all_given_back(d, retry);
            status = try_relieved(d, retry, status);
        }
        if (tni_ref_is_short(status) && !retry->lacks_other && retry->deadline_ns != 0)
            return try_and_sleep(d, retry);
    }
    return status == TNI_ALLOC_AGAIN ? TN_ERR_NO_MEMORY : status;
}

/* At most once a second: a program may try again and again. */
static void log_shortage(void)
{
    enum { LEAST_NS = 1000 * 1000 * 1000 };
    static _Atomic uint64_t due_ns;
    uint64_t now_ns = tni_os_now_ns(), was_due_ns = atomic_load(&due_ns);
    if (now_ns >= was_due_ns &&
        atomic_compare_exchange_strong(&due_ns, &was_due_ns, now_ns + LEAST_NS))
        tni_log(TNI_LOG_WARNING, "out of memory: %s", tn_error_detail());
}

/* A call that no memory at all could help has no use for the names of holders. */
static int name_holders(const struct tn_domain *d, const struct tni_retry *retry, int status)
{
    char why[256], holders[160];
    if (!retry->can_fit || retry->lacks_other || retry->is_told)
        return status;
    snprintf(why, sizeof why, "%s", tn_error_detail());
    tni_holders_describe(&d->segment, retry->lacks_host ? NULL : retry->device, holders,
                         sizeof holders);
    return tni_fail(status, "%s; %s", why, holders);
}

int tni_ref_retry(struct tn_domain *d, struct tni_retry *retry, int status)
{
    status = try_to_get(d, retry, status);
    if (status == TN_ERR_NO_MEMORY || status == TN_ERR_TIMED_OUT) {
        status = name_holders(d, retry, status);
        log_shortage();
    }
    return status;
}
