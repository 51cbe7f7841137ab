/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of tenon/sync.h. */
#undef NDEBUG
#include "must.h"

#include <assert.h>

static void use_event(tn_domain *domain)
{
    /* show: tn_event_open tn_event_set tn_event_wait */
    tn_event *ready;
    must(tn_event_open(domain, "ready", 0, &ready));
    must(tn_event_set(ready));              /* one process */
    must(tn_event_wait(ready, TN_FOREVER)); /* another one */
    /* end */
    /* show: tn_event_clear tn_event_is_set */
    must(tn_event_clear(ready));
    assert(!tn_event_is_set(ready));
    /* end */
    tn_object_close(ready);
}

static void use_semaphore(tn_domain *domain)
{
    /* show: tn_semaphore_open tn_semaphore_acquire tn_semaphore_release tn_semaphore_count */
    tn_semaphore *devices; /* four permits; those of a process that dies come back */
    must(tn_semaphore_open(domain, "devices", 4, TN_SEMAPHORE_OWNED, &devices));
    must(tn_semaphore_acquire(devices, TN_FOREVER));
    printf("%u devices are free\n", tn_semaphore_count(devices));
    must(tn_semaphore_release(devices));
    /* end */
    tn_object_close(devices);
}

static void repair(void) {}

static void use_lock(tn_domain *domain)
{
    bool is_full = false;
    /* show: tn_lock_open tn_lock_acquire tn_lock_release */
    tn_lock *lock;
    must(tn_lock_open(domain, "table", 0, &lock));
    if (must(tn_lock_acquire(lock, TN_FOREVER)) == TN_LOCK_RECOVERED)
        repair(); /* its last owner died: what the lock protects may be half changed */
    must(tn_lock_release(lock));
    /* end */

    /* show: tn_condition_open tn_condition_wait */
    tn_condition *room;
    must(tn_condition_open(domain, "room", 0, &room));
    must(tn_lock_acquire(lock, TN_FOREVER));
    while (is_full) /* a wait may return early */
        must(tn_condition_wait(room, lock, TN_FOREVER));
    must(tn_lock_release(lock));
    /* end */

    /* show: tn_condition_signal tn_condition_broadcast */
    must(tn_condition_signal(room));    /* wakes one process that waits */
    must(tn_condition_broadcast(room)); /* wakes all */
    /* end */
    tn_object_close(room);
    tn_object_close(lock);
}

static int meet(tn_domain *domain, uint32_t index, void *argument)
{
    (void)domain, (void)index;
    tn_barrier *barrier = argument;
    /* show: tn_barrier_wait tn_barrier_reset */
    int status = tn_barrier_wait(barrier, tn_deadline_after(10 * TN_SECOND));
    if (status == 1)
        printf("all have come, and one process says so\n");
    else if (status < 0)
        must(tn_barrier_reset(barrier)); /* a party died or gave up */
    /* end */
    return 0;
}

int main(void)
{
    tn_domain *domain;
    tn_group *group;
    must(tn_domain_open(NULL, NULL, 0, &domain));
    use_event(domain);
    use_semaphore(domain);
    use_lock(domain);
    /* show: tn_barrier_open */
    tn_barrier *barrier;
    must(tn_barrier_open(domain, "epoch", 3, 0, &barrier)); /* three parties */
    /* end */
    must(tn_group_create(domain, &group));
    must(tn_group_fork(group, 3, meet, barrier));
    must(tn_group_wait(group, 0, TN_FOREVER, NULL));
    tn_group_close(group);
    tn_object_close(barrier);
    tn_domain_close(domain);
    return 0;
}
