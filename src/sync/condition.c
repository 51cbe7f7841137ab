/* SPDX-License-Identifier: Apache-2.0 */
/*
 * condition: releases a lock, waits for a signal, and acquires the lock again.
 *
 * Word: value is the sequence, the number of signals so far.
 * I1  A waiter reads the sequence while it holds the lock, and passes when the sequence has
 *     changed. So it misses no signal after its release of the lock, however late it sleeps.
 * I2  A waiter that began after a signal may get the wake-up that was meant for an earlier
 *     waiter; then it wakes up another waiter. An interrupted wait consumed no wake-up
 *     (tni_process_sleep()).
 * Callers: users. If a signaller dies before its wake-up, or a waiter dies after it was woken
 * up, the reaper wakes up all waiters, and the waiters that a signal was meant for pass by I1.
 * For the death of a waiter that has the lock again, see lock.c.
 */
#include "sync/lock.h"
#include "sync/sync.h"

/*
 * How often a waiter passes a wake-up on (I2). Without this limit, two waiters that both began
 * after the signal could pass one wake-up back and forth for ever.
 */
enum { MAX_PASSED_ON = 4 };

int tn_condition_open(tn_domain *domain, const char *name, uint32_t flags,
                      tn_condition **ret_condition)
{
    struct tni_object_spec spec = {.kind = &tni_condition_kind, .name = name};
    return tni_object_open("tn_condition_open", domain, &spec, flags, ret_condition);
}

/* ---- wait and signal --------------------------------------------------------------------- */

struct wait {
    struct tni_object *object;
    uint64_t sequence;
    uint32_t epoch;     /* of the wait word: each wake-up changes it */
    uint32_t passed_on; /* how many wake-ups this waiter passed on */
};

static uint32_t epoch_of(struct tni_object *object)
{
    return atomic_load(&object->items) / TNI_WAIT_EPOCH;
}

static int try_pass(void *context)
{
    struct wait *w = context;
    if (atomic_load(&w->object->value) != w->sequence)
        return 0; /* I1 */
    if (TNI_UNLIKELY(epoch_of(w->object) != w->epoch)) {
        if (w->passed_on++ < MAX_PASSED_ON)
            tni_wait_notify(&w->object->items, 1); /* I2 */
        w->epoch = epoch_of(w->object);
    }
    return TN_ERR_TIMED_OUT;
}

int tn_condition_wait(tn_condition *condition, tn_lock *lock, tn_deadline deadline)
{
    int status = tni_object_check(condition, TNI_OBJECT_CONDITION);
    if (status != 0 || (status = tni_lock_check_held(lock)) != 0)
        return status;
    struct tn_object *handle = condition;
    struct tni_object *object = handle->object;
    uint32_t deaths_seen = atomic_load(&handle->deaths_seen[TNI_SIDE_ANY]);
    struct wait w = {object, atomic_load(&object->value), epoch_of(object), 0};

    if ((status = tn_lock_release(lock)) != 0)
        return status;
    TNI_KILL_POINT("condition_lock_released");
    status = tni_object_wait(handle,
                             &(struct tni_awaited){.word = &object->items,
                                                   .side = TNI_SIDE_ANY,
                                                   .spins = tni_spins(handle, &object->items),
                                                   .attempt = try_pass,
                                                   .context = &w},
                             deadline.ns);
    int acquired = tni_lock_acquire_again(lock);
    if (acquired == 0)
        return status;
    /*
     * The lock's owner died, too. This call reports the death of the owner, and the next wait
     * reports the death that ended this wait.
     */
    if (status == TN_ERR_PEER_DIED)
        atomic_store(&handle->deaths_seen[TNI_SIDE_ANY], deaths_seen);
    return acquired;
}

static int wake(tn_condition *condition, uint32_t count)
{
    int status = tni_object_check(condition, TNI_OBJECT_CONDITION);
    if (status != 0)
        return status;
    struct tni_object *object = condition->object;
    atomic_fetch_add(&object->value, 1);
    TNI_KILL_POINT("condition_signalled");
    tni_wait_notify(&object->items, count);
    return 0;
}

int tn_condition_signal(tn_condition *condition) { return wake(condition, 1); }

int tn_condition_broadcast(tn_condition *condition) { return wake(condition, INT32_MAX); }

const struct tni_kind tni_condition_kind = {
    .number = TNI_OBJECT_CONDITION,
    .name = "condition",
    .handle_bytes = sizeof(struct tn_object),
};
