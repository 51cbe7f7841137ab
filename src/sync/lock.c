/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lock: mutual exclusion, owned by a thread.
 *
 * Word: value is 0 (free), RECOVERED (free, and its last owner died), or {held:1,
 * recovered:1, incarnation:22, seat:16, thread:24} of the owner, with RECOVERED clear and
 * the kernel's thread id.
 * I1  A HELD word names its owner in the same 64 bits, so no death leaves a lock without an
 *     owner.
 * I2  Only the owner, or the reaper for a dead seat, changes a HELD word.
 * I3  value2 names the dead process before the word becomes RECOVERED; the next owner reads
 *     it.
 * Callers: users, condition.c. If an owner dies, the word stays HELD by a dead seat, until the
 * reaper makes it RECOVERED. If a process dies after it released the lock and before its
 * wake-up, the reaper wakes up a waiter. A process that closes a lock that it holds, or leaves
 * the domain, is treated as a dead owner.
 */
#include "sync/lock.h"

#include "sync/dead.h"

/* The kernel's id of this thread. The cached id is not used in a forked child. */
static uint32_t thread_id(void)
{
    static _Thread_local int32_t id TNI_TLS_INITIAL, id_pid TNI_TLS_INITIAL;
    int32_t pid = tni_os_pid();
    if (TNI_UNLIKELY(id_pid != pid)) {
        id = tni_os_thread_id();
        id_pid = pid;
    }
    return (uint32_t)id;
}

static uint64_t word_of_this_thread(const struct tn_domain *domain)
{
    return tni_lock_word(domain->incarnation, domain->seat, thread_id());
}

int tn_lock_open(tn_domain *domain, const char *name, uint32_t flags, tn_lock **ret_lock)
{
    struct tni_object_spec spec = {.kind = &tni_lock_kind, .name = name};
    return tni_object_open("tn_lock_open", domain, &spec, flags, ret_lock);
}

/* ---- acquire and release ----------------------------------------------------------------- */

struct acquire {
    const struct tn_domain *domain;
    struct tni_object *object;
    uint64_t own;
    uint32_t spins, attempts;
};

/*
 * Whether no thread will release the lock: the seat of its owner has been reclaimed, or the
 * owner's process lives but its thread has ended.
 */
static bool has_lost_owner(const struct tni_segment *s, uint64_t word)
{
    const struct tni_seat *entry = tni_seat_at(s, tni_lock_seat(word));
    uint64_t seat = atomic_load(&entry->word);
    if (tni_seat_state(seat) == TNI_SEAT_FREE ||
        (tni_seat_incarnation(seat) & 0x3fffff) != tni_lock_incarnation(word))
        return true;
    return tni_seat_state(seat) == TNI_SEAT_ALIVE &&
           tni_os_has_pid_space(TNI_LOOK(entry->pid_space)) &&
           tni_process_seat_state(s, tni_lock_seat(word)) == TNI_OS_ALIVE &&
           tni_os_lost_thread(atomic_load(&entry->pid), (int32_t)tni_lock_thread(word)) &&
           tni_process_seat_state(s, tni_lock_seat(word)) == TNI_OS_ALIVE;
}

static int fail_word(const struct acquire *a, uint64_t word)
{
    return tni_fail(
        TN_ERR_CORRUPT,
        "the lock " TNI_TITLE_FORMAT
        " is held by thread %u of seat %u, which has ended, or by no thread (word %llx)",
        TNI_TITLE(a->object->name), tni_lock_thread(word), tni_lock_seat(word),
        (unsigned long long)word);
}

/* @return 0: this thread can take a lock that has this word; else why it cannot */
static int check_free(struct acquire *a, uint64_t word)
{
    const struct tni_segment *s = &a->domain->segment;
    if (TNI_LIKELY(word == 0 || word == TNI_LOCK_RECOVERED))
        return 0;
    if (word == a->own)
        return tni_fail(TN_ERR_INVALID,
                        "this thread holds the lock " TNI_TITLE_FORMAT " already",
                        TNI_TITLE(a->object->name));
    if ((word & (TNI_LOCK_HELD | TNI_LOCK_RECOVERED)) != TNI_LOCK_HELD ||
        !tni_geometry_has_seat(&s->geometry, tni_lock_seat(word)))
        return fail_word(a, word);
    /*
     * Only a waiter that is about to sleep checks that the owner exists, because the check
     * needs system calls. The answer is valid only if the word is the same afterwards.
     */
    if (++a->attempts > a->spins + 2 && has_lost_owner(s, word) &&
        atomic_load(&a->object->value) == word)
        return fail_word(a, word);
    return TN_ERR_TIMED_OUT;
}

/* Take the lock if its word is *seen; if not, set *seen to the word. */
static inline bool take(struct tni_object *object, uint64_t *seen, uint64_t own)
{
    if (TNI_UNLIKELY(!atomic_compare_exchange_strong(&object->value, seen, own)))
        return false;
    TNI_KILL_POINT("lock_acquired");
    return true;
}

static int try_acquire(void *context)
{
    struct acquire *a = context;
    uint64_t seen = 0; /* most locks are free */
    while (!take(a->object, &seen, a->own)) {
        int status = check_free(a, seen);
        if (status != 0)
            return status;
    }
    if (TNI_LIKELY(seen == 0))
        return 0;
    uint64_t dead = atomic_load(&a->object->value2); /* I3 */
    tni_set_peer(tni_dead_seat(dead), tni_dead_pid(dead));
    return TN_LOCK_RECOVERED;
}

static int acquire_slow(tn_lock *lock, uint64_t own, int side, uint64_t deadline_ns)
{
    struct tni_object *object = lock->object;
    uint32_t spins = tni_spins(lock, &object->items);
    struct acquire a = {lock->domain, object, own, spins, 0};
    int status = try_acquire(&a);
    if (status != TN_ERR_TIMED_OUT)
        return status;
    return tni_object_wait(lock,
                           &(struct tni_awaited){.word = &object->items,
                                                 .side = side,
                                                 .spins = spins,
                                                 .attempt = try_acquire,
                                                 .context = &a},
                           deadline_ns);
}

/*
 * Acquire a lock. `side` is TNI_SIDE_NONE or TNI_SIDE_THROUGH: no death ends the wait, because
 * the reaper recovers the lock of a dead owner. To acquire a free lock takes one
 * compare-and-swap.
 */
static int acquire(tn_lock *lock, int side, uint64_t deadline_ns)
{
    int status = tni_object_check(lock, TNI_OBJECT_LOCK);
    if (TNI_UNLIKELY(status != 0))
        return status;
    struct tni_object *object = lock->object;
    uint64_t own = word_of_this_thread(lock->domain), seen = 0;
    return TNI_LIKELY(take(object, &seen, own)) ? 0
                                                : acquire_slow(lock, own, side, deadline_ns);
}

int tn_lock_acquire(tn_lock *lock, tn_deadline deadline)
{
    return acquire(lock, TNI_SIDE_NONE, deadline.ns);
}

int tni_lock_acquire_again(tn_lock *lock)
{
    return acquire(lock, TNI_SIDE_THROUGH, TNI_FOREVER);
}

static int fail_not_held(const struct tni_object *object)
{
    return tni_fail(TN_ERR_INVALID, "this thread does not hold the lock " TNI_TITLE_FORMAT,
                    TNI_TITLE(object->name));
}

int tni_lock_check_held(const tn_lock *lock)
{
    int status = tni_object_check(lock, TNI_OBJECT_LOCK);
    if (status != 0)
        return status;
    const struct tni_object *object = lock->object;
    return atomic_load(&object->value) == word_of_this_thread(lock->domain)
               ? 0
               : fail_not_held(object);
}

int tn_lock_release(tn_lock *lock)
{
    int status = tni_object_check(lock, TNI_OBJECT_LOCK);
    if (status != 0)
        return status;
    struct tni_object *object = lock->object;
    uint64_t own = word_of_this_thread(lock->domain);
    if (!atomic_compare_exchange_strong(&object->value, &own, 0))
        return fail_not_held(object);
    TNI_KILL_POINT("lock_released");
    tni_wait_notify(&object->items, 1);
    return 0;
}

/* Recover the lock of a seat that is dead, or whose process closes the lock. Idempotent. */
static void reclaim_seat(struct tn_domain *domain, struct tni_object *object, uint32_t seat)
{
    uint64_t seen = atomic_load(&object->value);
    if ((seen & TNI_LOCK_HELD) == 0 || tni_lock_seat(seen) != seat)
        return;
    atomic_store(&object->value2, tni_dead_word(&domain->segment, seat)); /* I3 */
    TNI_KILL_POINT("lock_dead_named");
    if (atomic_compare_exchange_strong(&object->value, &seen, TNI_LOCK_RECOVERED)) {
        TNI_KILL_POINT("lock_recovered");
        tni_wait_notify(&object->items, 1);
    }
}

const struct tni_kind tni_lock_kind = {
    .number = TNI_OBJECT_LOCK,
    .name = "lock",
    .handle_bytes = sizeof(struct tn_object),
    .reclaim_seat = reclaim_seat,
    .close_seat = reclaim_seat,
};
