/* SPDX-License-Identifier: Apache-2.0 */
/* Keepers: the ledger accounts for locks, conditions, permits, signals, events and barriers.
 * They use the store and channels, too: soak_store.c, soak_channel.c. */
#include "soak.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void judge(const char *call, int status)
{
    if (status == TN_ERR_PEER_DIED)
        soak_count(SOAK_N_PEERS, 1);
    else if (status != 0 && status != TN_ERR_TIMED_OUT)
        soak_fail_status(SOAK_ON_LOCKS, call, status);
}

/* ---- the lock ---------------------------------------------------------------------------- */

static bool lives(pid_t pid)
{
    char state = soak_process_state(pid);
    return state != 0 && state != 'Z' && state != 'X';
}

/*
 * The owner of the lock writes its name into the ledger after it has got the lock, and
 * removes it before it releases the lock. If another process finds a name there, that owner
 * has died, and the lock must have said so.
 */
static void have_lock(int result)
{
    uint64_t ours = (uint64_t)me.life << 32 | (uint32_t)getpid();
    uint64_t before = atomic_exchange(&soak->lock_owner, ours);
    int32_t peer = result == TN_LOCK_RECOVERED ? tn_error_peer().pid : 0;
    if (before != 0 && result != TN_LOCK_RECOVERED)
        soak_fail(SOAK_ON_LOCKS, "the lock was acquired while process %u (life %u) had it",
                  (uint32_t)before, (uint32_t)(before >> 32));
    if (before != 0 && lives((int32_t)(uint32_t)before))
        soak_fail(SOAK_ON_LOCKS, "the lock was recovered while process %u (life %u) had it",
                  (uint32_t)before, (uint32_t)(before >> 32));
    if (result == TN_LOCK_RECOVERED && lives(peer))
        soak_fail(SOAK_ON_LOCKS, "the lock was recovered from process %d, which lives", peer);
    uint64_t one = atomic_load(&soak->guarded[0]), two = atomic_load(&soak->guarded[1]);
    if (one != two && result != TN_LOCK_RECOVERED)
        soak_fail(SOAK_ON_LOCKS, "what the lock guards was half changed: %llu, %llu",
                  (unsigned long long)one, (unsigned long long)two);
    atomic_store(&soak->guarded[0], one + 1);
    if (soak_chance(10))
        usleep(soak_below(300));
    atomic_store(&soak->guarded[1], one + 1);
    soak_count(SOAK_N_LOCKS, 1);
    if (result == TN_LOCK_RECOVERED)
        soak_count(SOAK_N_RECOVERED, 1);
    soak_checked(SOAK_ON_LOCKS);
}

static void leave_lock(void)
{
    atomic_store(&soak->lock_owner, 0);
    soak_do(SOAK_UNLOCKING);
}

static void wait_at_condition(void)
{
    leave_lock();
    soak_do(SOAK_AT_CONDITION);
    int status = tn_condition_wait(me.condition, me.lock, soak_deadline(soak_below(10)));
    int recovered = status == TN_LOCK_RECOVERED ? TN_LOCK_RECOVERED : 0;
    if (status != TN_LOCK_RECOVERED)
        judge("tn_condition_wait", status);
    have_lock(recovered);
}

static void use_lock(void)
{
    soak_do(SOAK_LOCKING);
    int status = tn_lock_acquire(me.lock, soak_deadline(200));
    if (status < 0) {
        judge("tn_lock_acquire", status);
        return;
    }
    have_lock(status);
    if (soak_chance(30))
        wait_at_condition();
    leave_lock();
    status = tn_lock_release(me.lock);
    if (status != 0)
        soak_fail_status(SOAK_ON_LOCKS, "tn_lock_release", status);
    soak_do(SOAK_AT_CONDITION);
    judge("tn_condition_signal", soak_chance(50) ? tn_condition_signal(me.condition)
                                                 : tn_condition_broadcast(me.condition));
}

/* ---- permits, signals, events ------------------------------------------------------------ */

static void use_permits(void)
{
    uint32_t got = 0, wanted = 1 + soak_below(SOAK_PERMITS - 1);
    soak_do(SOAK_AT_SEMAPHORE);
    for (; got < wanted; got++) {
        int status = tn_semaphore_acquire(me.permits, soak_deadline(20));
        judge("tn_semaphore_acquire", status);
        if (status != 0)
            break;
        soak_count(SOAK_N_PERMITS, 1);
    }
    if (soak_chance(30))
        usleep(soak_below(500));
    for (; got > 0; got--) {
        int status = tn_semaphore_release(me.permits);
        if (status != 0)
            soak_fail_status(SOAK_ON_LOCKS, "tn_semaphore_release of a permit of ours", status);
    }
}

/*
 * A semaphore without owners: every up and down is counted, those that a kill cut short
 * apart.
 */
static void use_signal(void)
{
    bool is_up = soak_chance(50);
    soak_do(is_up ? SOAK_AT_SIGNAL_UP : SOAK_AT_SIGNAL_DOWN);
    int status = is_up ? tn_semaphore_release(me.signal)
                       : tn_semaphore_acquire(me.signal, soak_deadline(soak_below(20)));
    judge("the signal", status);
    if (status == 0)
        atomic_fetch_add(is_up ? &soak->ups : &soak->downs, 1);
    /* A death between the line above and this one also counts as cut short: see the audit. */
    soak_do(SOAK_NOTHING);
}

static void use_events(void)
{
    soak_do(SOAK_AT_EVENT);
    if (soak_chance(50))
        judge("tn_event_set", tn_event_set(soak_chance(50) ? me.door : me.bell));
    else
        judge("tn_event_wait", tn_event_wait(soak_chance(50) ? me.door : me.bell,
                                             soak_deadline(soak_below(20))));
    if (soak_chance(20))
        judge("tn_event_clear", tn_event_clear(me.door));
}

/* ---- a barrier, made by the first process that needs it ---------------------------------- */

static tn_barrier *open_barrier(void)
{
    tn_barrier *barrier = NULL;
    soak_do(SOAK_MAKING_OBJECT);
    int status = tn_barrier_open(me.domain, "barrier", 2, TN_OPEN_NEW, &barrier);
    if (status == TN_ERR_EXISTS)
        status = tn_barrier_open(me.domain, "barrier", 0, TN_OPEN_EXISTING, &barrier);
    /* The barrier may have ended since. */
    if (status != 0 && status != TN_ERR_NOT_FOUND && status != TN_ERR_FULL)
        soak_fail_status(SOAK_ON_LOCKS, "opening a barrier", status);
    return barrier;
}

static void use_barrier(void)
{
    tn_barrier *barrier = open_barrier();
    for (int i = 0; i < 3 && barrier != NULL && soak_goes_on(); i++) {
        soak_do(SOAK_AT_BARRIER);
        int status = tn_barrier_wait(barrier, soak_deadline(10));
        if (status >= 0) {
            soak_count(SOAK_N_BARRIERS, 1);
            continue;
        }
        if (status != TN_ERR_CLOSED)
            judge("tn_barrier_wait", status);
        soak_count(SOAK_N_BROKEN, 1);
        judge("tn_barrier_reset", tn_barrier_reset(barrier));
    }
    soak_do(SOAK_MAKING_OBJECT);
    tn_object_close(barrier);
}

void soak_keep(uint32_t turns)
{
    static void (*const uses[])(void) = {
        use_lock,         use_lock,         use_permits,      use_permits,
        use_signal,       use_signal,       use_events,       use_barrier,
        soak_use_store,   soak_use_store,   soak_use_store,   soak_use_store,
        soak_use_channel, soak_use_channel, soak_use_channel, soak_use_channel};
    for (uint32_t i = 0; i < turns && soak_goes_on(); i++)
        uses[soak_below(sizeof uses / sizeof uses[0])]();
}
