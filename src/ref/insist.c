/* SPDX-License-Identifier: Apache-2.0 */
/* ref: how an allocation waits for memory. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ref/counts.h"

/* One try among several: a look at the dead, or a sleep, comes after it. */
#define ROUND_NS (UINT64_C(5) * 1000 * 1000)

/* Try once; and again until then, or until the deadline, while it is open if there is room. */
static int try_until(struct tn_domain *d, struct tni_wish *wish, uint64_t until_ns)
{
    int status = wish->attempt(d, wish);
    if (wish->deadline_ns != 0)
        until_ns = TNI_MIN(until_ns, wish->deadline_ns);
    for (uint32_t tries = 0; status == TNI_ALLOC_AGAIN && tni_os_now_ns() < until_ns; tries++) {
        tni_os_back_off(tries);
        status = wish->attempt(d, wish);
    }
    return status;
}

/* Who is stopped in a commit leaves open if there is room: all that is free is given back. */
static int try_with_all_given_back(struct tn_domain *d, struct tni_wish *wish)
{
    struct tni_thread *thread = tni_thread_enter(d);
    tni_alloc_trim(d, thread, 0);
    tni_thread_leave(thread);
    wish->given_ns = tni_os_now_ns();
    return wish->attempt(d, wish);
}

/* The dead may have what is missing, or have announced that they commit. */
static int try_relieved(struct tn_domain *d, struct tni_wish *wish, int status)
{
    while (tni_ref_is_short(status) && tni_process_relieve(d, &wish->reliefs))
        status = try_until(d, wish, tni_os_now_ns() + ROUND_NS);
    return status;
}

/*
 * One sleep: until somebody frees memory, or the slice of the wait ends, as the machine's
 * memory comes back without a word.
 * @param seen  what tni_alloc_arm() returned before the last try
 */
static int sleep_once(struct tn_domain *d, const struct tni_wish *wish, struct tni_wait *wait,
                      uint32_t seen)
{
    char why[256]; /* who sleeps reclaims the dead, which may fail in its own ways */
    snprintf(why, sizeof why, "%s", tn_error_detail());
    int slept = tni_process_sleep(d, &d->segment.header->memory_wait, seen, wait);
    if (slept != TN_ERR_TIMED_OUT)
        return slept;
    return tni_fail(TN_ERR_TIMED_OUT, "no memory for %llu bytes until the deadline: %s",
                    (unsigned long long)wish->bytes, why);
}

static int try_and_sleep(struct tn_domain *d, struct tni_wish *wish)
{
    struct tni_wait wait = {.deadline_ns = wish->deadline_ns};
    for (;;) {
        uint32_t seen = tni_alloc_arm(d);
        uint64_t now_ns = tni_os_now_ns();
        int status = try_until(d, wish, now_ns + ROUND_NS);
        if (status == TNI_ALLOC_AGAIN && now_ns - wish->given_ns >= TNI_REF_PATIENCE_NS)
            status = try_with_all_given_back(d, wish);
        if (!tni_ref_is_short(status) || wish->lacks_other)
            return status;
        if ((status = sleep_once(d, wish, &wait, seen)) != 0 ||
            /* In a child that the program's hook forked, which may have no seat, too. */
            (status = tni_process_check(d)) != 0)
            return status;
    }
}

int tni_ref_insist(struct tn_domain *d, struct tni_wish *wish, int status)
{
    uint64_t begun_ns = tni_os_now_ns();
    uint64_t patience_ns = wish->deadline_ns == 0 ? TNI_REF_TRY_NS : TNI_REF_PATIENCE_NS;
    wish->given_ns = begun_ns;
    wish->reliefs = 0;
    if (wish->can_fit) {
        if (status == TNI_ALLOC_AGAIN)
            status = try_until(d, wish, begun_ns + ROUND_NS);
        status = try_relieved(d, wish, status);
        if (status == TNI_ALLOC_AGAIN) {
            status = try_until(d, wish, begun_ns + patience_ns);
            if (status == TNI_ALLOC_AGAIN)
                status = try_with_all_given_back(d, wish);
            status = try_relieved(d, wish, status);
        }
        if (tni_ref_is_short(status) && !wish->lacks_other && wish->deadline_ns != 0)
            return try_and_sleep(d, wish);
    }
    return status == TNI_ALLOC_AGAIN ? TN_ERR_NO_MEMORY : status;
}
