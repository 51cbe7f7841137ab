/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch: wait for several objects at once, and poll a descriptor.
 *
 * Callers: users. Death: the reaper clears the seat's bit in `watchers`.
 */
#include "object/object.h"
#include "wait/wait.h"

static void watch(struct tn_object *handle)
{
    struct tni_object *object = handle->object;
    if (tni_seat_set_has(&object->watchers, handle->domain->seat))
        return;
    /*
     * POLLERS first: another thread that sees the bit in `watchers` relies on it. It is never
     * cleared: a push that finds no watcher loses little.
     */
    atomic_fetch_or(&object->items, TNI_WAIT_POLLERS);
    tni_seat_set_add(&object->watchers, handle->domain->seat);
}

static bool is_over(const struct tn_object *handle)
{
    const struct tni_object *object = handle->object;
    uint64_t death = atomic_load(&object->death[TNI_SIDE_PRODUCER]);
    return (atomic_load(&object->ended) & TNI_QUEUE_ENDED) != 0 ||
           (tni_death_count(death) != atomic_load(&handle->deaths_seen[TNI_SIDE_PRODUCER]) &&
            tni_seat_set_count(&object->producers, handle->domain->seat) == 0);
}

static bool is_ready(struct tn_object *handle)
{
    const struct tni_kind *kind = tni_kind_of(handle->domain, handle->kind);
    bool is_at_its_end = is_over(handle);
    return kind->is_ready(handle) || (is_at_its_end && !kind->has_more(handle));
}

static int find_ready(tn_object *const *objects, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (is_ready(objects[i]))
            return (int)i;
    return TN_ERR_TIMED_OUT;
}

static int begin(struct tn_object *handle)
{
    int status = tni_object_check_slow(handle, 0);
    if (status != 0)
        return status;
    const struct tni_kind *kind = tni_kind_of(handle->domain, handle->kind);
    if (kind->is_ready != NULL)
        return kind->begin_wait(handle);
    return tni_fail(TN_ERR_INVALID,
                    "the object is of the kind %s: only queues and channels are waited for so",
                    kind->name);
}

static int begin_all(tn_object *const *objects, uint32_t count)
{
    if (objects == NULL)
        return tni_fail_null("objects");
    if (count == 0 || count > INT32_MAX)
        return tni_fail(TN_ERR_INVALID,
                        "count is %u: tn_object_wait_any() takes 1 to %d objects", count,
                        INT32_MAX);
    for (uint32_t i = 0; i < count; i++) {
        int status = begin(objects[i]);
        if (status != 0)
            return status;
        if (objects[i]->domain != objects[0]->domain)
            return tni_fail(TN_ERR_INVALID,
                            "tn_object_wait_any: object %u is of another domain than object 0",
                            i);
    }
    return 0;
}

int tn_object_wait_any(tn_object *const *objects, uint32_t count, tn_deadline deadline)
{
    int status = begin_all(objects, count);
    if (status != 0)
        return status;
    struct tn_domain *d = objects[0]->domain;
    int found = find_ready(objects, count);
    if (found != TN_ERR_TIMED_OUT)
        return found;
    if (deadline.ns == 0)
        return tni_fail_plain(TN_ERR_TIMED_OUT, "not ready, and the caller does not wait");
    struct tni_wait wait = {.deadline_ns = deadline.ns};
    for (;;) {
        /* Checked in each round: the program's hook may have forked, and a child has another
         * seat. */
        if ((status = tni_process_check(d)) != 0)
            return status;
        for (uint32_t i = 0; i < count; i++)
            watch(objects[i]);
        uint32_t seen = tni_wait_arm(&d->me->bell);
        if ((found = find_ready(objects, count)) != TN_ERR_TIMED_OUT)
            return found;
        int slept = tni_process_sleep(d, &d->me->bell, seen, &wait);
        if (slept == TN_ERR_INTERRUPTED)
            return slept;
        if (slept == TN_ERR_TIMED_OUT) {
            found = find_ready(objects, count);
            return found != TN_ERR_TIMED_OUT ? found : tni_object_fail_late(deadline.ns);
        }
    }
}

int tn_object_watch(tn_object *handle, bool is_on)
{
    int status = begin(handle);
    if (status != 0)
        return status;
    if (is_on)
        watch(handle);
    else
        tni_seat_set_remove(&handle->object->watchers, handle->domain->seat);
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
