/* SPDX-License-Identifier: Apache-2.0 */
/* watch: wait for several queues at once, and poll a descriptor. */
#include "queue/turn.h"
#include "wait/wait.h"

static void watch(struct tni_queue *q)
{
    struct tni_object *object = q->handle.object;
    if (tni_seat_set_has(&object->watchers, q->handle.domain->seat))
        return;
    /*
     * POLLERS first: another thread that sees the bit in `watchers` relies on it. It is never
     * cleared: a push that finds no watcher loses little.
     */
    atomic_fetch_or(&object->items, TNI_WAIT_POLLERS);
    tni_seat_set_add(&object->watchers, q->handle.domain->seat);
}

static bool is_ready(struct tni_queue *q)
{
    const struct tni_object *object = q->handle.object;
    uint64_t death = atomic_load(&object->death[TNI_SIDE_PRODUCER]);
    bool is_over =
        (atomic_load(&object->ended) & TNI_QUEUE_ENDED) != 0 ||
        (tni_death_count(death) != atomic_load(&q->handle.deaths_seen[TNI_SIDE_PRODUCER]) &&
         tni_seat_set_count(&object->producers, q->handle.domain->seat) == 0);
    return tni_ring_is_ready(q) || (is_over && !tni_ring_has_more(q));
}

static int find_ready(tn_queue *const *queues, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (is_ready(tni_queue_of(queues[i])))
            return (int)i;
    return TN_ERR_TIMED_OUT;
}

int tn_queue_wait_any(tn_queue *const *queues, uint32_t count, tn_deadline deadline)
{
    if (queues == NULL)
        return tni_fail_null("queues");
    if (count == 0 || count > INT32_MAX)
        return tni_fail(TN_ERR_INVALID, "count is %u: tn_queue_wait_any() takes 1 to %d queues",
                        count, INT32_MAX);
    for (uint32_t i = 0; i < count; i++) {
        int status = tni_queue_begin(tni_queue_of(queues[i]), TN_CONSUMER);
        if (status != 0)
            return status;
        if (queues[i]->domain != queues[0]->domain)
            return tni_fail(TN_ERR_INVALID,
                            "tn_queue_wait_any: queue %u is of another domain than queue 0", i);
    }
    struct tn_domain *d = queues[0]->domain;
    int found = find_ready(queues, count);
    if (found != TN_ERR_TIMED_OUT)
        return found;
    if (deadline.ns == 0)
        return tni_queue_fail_not_ready();
    struct tni_wait wait = {.deadline_ns = deadline.ns};
    for (;;) {
        /* Checked in each round: the program's hook may have forked, and a child has another
         * seat. */
        int status = tni_process_check(d);
        if (status != 0)
            return status;
        for (uint32_t i = 0; i < count; i++)
            watch(tni_queue_of(queues[i]));
        uint32_t seen = tni_wait_arm(&d->me->bell);
        if ((found = find_ready(queues, count)) != TN_ERR_TIMED_OUT)
            return found;
        int slept = tni_process_sleep(d, &d->me->bell, seen, &wait);
        if (slept == TN_ERR_INTERRUPTED)
            return slept;
        if (slept == TN_ERR_TIMED_OUT) {
            found = find_ready(queues, count);
            return found != TN_ERR_TIMED_OUT ? found : tni_object_fail_late(deadline.ns);
        }
    }
}

int tn_queue_watch(tn_queue *queue, bool is_on)
{
    struct tni_queue *q = tni_queue_of(queue);
    int status = tni_queue_begin(q, TN_CONSUMER);
    if (status != 0)
        return status;
    if (is_on)
        watch(q);
    else
        tni_seat_set_remove(&q->handle.object->watchers, q->handle.domain->seat);
    return 0;
}

/*
 * The word gets a new value each time: a process that rang for an older value, and disarms only
 * now, leaves this one armed.
 */
static void arm_descriptor(struct tn_domain *d)
{
    uint32_t seen = atomic_load(&d->me->bell_fd_armed);
    while (!atomic_compare_exchange_weak(&d->me->bell_fd_armed, &seen,
                                         (seen | TNI_BELL_ARMED) + TNI_BELL_EPOCH))
        ;
    tni_fence_after_modify();
}

int tn_domain_poll_fd(tn_domain *d, int *ret_fd)
{
    int fd;
    if (d == NULL || ret_fd == NULL)
        return tni_fail_null(d == NULL ? "the domain" : "ret_fd");
    int status = tni_process_check(d);
    if (status != 0)
        return status;
    bool is_new = atomic_load(&d->poll_fd) < 0;
    if ((status = tni_process_bell_open(d, &fd)) != 0)
        return status;
    if (is_new)
        arm_descriptor(d);
    *ret_fd = fd;
    return 0;
}

void tn_domain_poll_clear(tn_domain *d)
{
    if (d == NULL || tni_process_check(d) != 0 || atomic_load(&d->poll_fd) < 0)
        return;
    if (tni_process_bell_lost_tenond(d))
        atomic_store(&d->survive_ns, 0); /* now, whenever the last check was */
    if (d->survive != NULL)
        d->survive(d); /* a program that polls the descriptor makes no call that does this while
                          it waits */
    tni_process_bell_clear(d);
    arm_descriptor(d); /* before the caller tries its queues */
}
