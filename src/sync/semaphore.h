/* SPDX-License-Identifier: Apache-2.0 */
/*
 * semaphore: functions that users of a semaphore and the reaper share. Private to the room
 * sync; the invariants are in semaphore.c.
 */
#ifndef TNI_SYNC_SEMAPHORE_H
#define TNI_SYNC_SEMAPHORE_H

#include "sync/sync.h"

enum { TNI_MAX_PERMITS = INT32_MAX };
enum { TNI_SEMAPHORE_ONE_FREE = 1 }; /* the word of a single permit that is free (I5) */

/** Whether the semaphore is an owned semaphore of one permit. */
static inline bool tni_semaphore_is_one(const struct tni_object *object)
{
    return (TNI_LOOK(object->flags) & TN_SEMAPHORE_OWNED) != 0 &&
           TNI_LOOK(object->capacity) == 1;
}

/** The next word of a semaphore: another version, with this many permits. */
static inline uint64_t tni_semaphore_next(uint64_t word, uint32_t permits)
{
    return ((word >> 32) + 1) << 32 | permits;
}

/** Size of the block of counts in bytes. */
static inline uint64_t tni_semaphore_held_bytes(const struct tni_segment *s)
{
    return (uint64_t)s->geometry.seats * sizeof(uint32_t);
}

/*
 * Announce the object before the first step (I2). The announce is an exchange, so that other
 * processes see it before every later write of this thread.
 */
static inline struct tni_thread *tni_semaphore_begin(struct tn_domain *domain, uint32_t index)
{
    struct tni_thread *thread = tni_thread_enter(domain);
    tni_yield_to_recount(thread, (tni_block){tni_recounted_object(index)}, 1);
    atomic_exchange(&thread->announce->object, index + 1);
    return thread;
}

/** After the second step: clear the announce. */
static inline void tni_semaphore_end(struct tni_thread *thread)
{
    atomic_store(&thread->announce->object, 0);
    tni_thread_leave(thread);
}

/** Give `count` permits back. Fails if the semaphore would have more than `limit` permits. */
static inline int tni_semaphore_give(struct tni_object *object, uint32_t limit, uint32_t count)
{
    uint64_t seen = atomic_load(&object->value);
    do {
        if (tni_semaphore_permits(seen) > limit || count > limit - tni_semaphore_permits(seen))
            return tni_fail(tni_semaphore_permits(seen) == TNI_MAX_PERMITS ? TN_ERR_INVALID
                                                                           : TN_ERR_CORRUPT,
                            "the semaphore " TNI_TITLE_FORMAT " has %u permits already",
                            TNI_TITLE(object->name), tni_semaphore_permits(seen));
    } while (!atomic_compare_exchange_weak(
        &object->value, &seen, tni_semaphore_next(seen, tni_semaphore_permits(seen) + count)));
    return 0;
}

/** The functions of tni_semaphore_kind for a dead seat; see struct tni_kind. */
void tni_semaphore_reclaim_seat(struct tn_domain *domain, struct tni_object *object,
                                uint32_t seat);
void tni_semaphore_take_announces(struct tn_domain *domain, uint32_t dead);
bool tni_semaphore_recount(struct tn_domain *domain, uint32_t index);

#endif
