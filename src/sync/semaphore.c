/* SPDX-License-Identifier: Apache-2.0 */
/*
 * semaphore: permits, with or without owners.
 *
 * Word: value is {version:32, permits:32}. An owned semaphore also has a block of counts:
 * for each seat, the permits that it holds. An owned semaphore of one permit has no counts:
 * its word names the holder, {holder:32, permits:32}, and changes by one CAS, as a lock's
 * does (I5).
 * I1  In an owned semaphore permits + all counts <= capacity, always. The two sides are equal
 *     while no thread is between two steps. To acquire, a thread takes a permit, then raises
 *     its seat's count. To release, it lowers the count, then gives the permit back.
 * I2  A thread announces the object before the first of the two steps, and until after the
 *     second. A thread that releases a permit of another seat, and lowers that seat's count,
 *     announces the object, too.
 * I3  A recount sets permits to capacity - counts. It reads the word, checks that no live
 *     thread announces the object, adds up the counts, checks again, and swaps the word
 *     that it read. If a thread was between its two steps meanwhile, the recount sees its
 *     announce, or finds that the word has changed. A thread that is about to announce waits
 *     while header->recounted names the object, as with blocks (recount.c, I3).
 * I4  The announce of a dead thread becomes a mark, object->suspects_added, before it is
 *     cleared, so no seat waits for the recount. A recount sets suspects_done to the
 *     suspects_added before it.
 * I5  With one permit, the word is {0, 1} or {holder, 0}. No thread is ever between two
 *     steps, so no thread announces the object and no process recounts it.
 * Callers: users, the reaper. If a holder dies, the reaper gives back all its permits at once.
 * If a thread, also of a reaper, dies between two steps, permits are missing, and the announce
 * leads to a recount. Permits without owners are lost with the process that took them. A
 * process that closes the semaphore for the last time, or leaves, gives its permits back.
 */
#include "sync/semaphore.h"

enum { ALL_FLAGS = TN_SEMAPHORE_OWNED | TN_SEMAPHORE_ANY_RELEASES };

struct tni_semaphore {
    struct tn_object handle;
    uint32_t limit;         /* private copy: the most permits */
    _Atomic uint32_t *held; /* [seats]: permits of each seat; NULL: not owned, or is_one */
    bool is_one;            /* an owned semaphore of one permit */
    bool any_releases;
};

/* ---- making, opening, closing ------------------------------------------------------------ */

static int bind(struct tn_object *handle)
{
    struct tni_semaphore *semaphore = (struct tni_semaphore *)handle;
    const struct tni_object *object = handle->object;
    uint32_t flags = TNI_LOOK(object->flags);
    bool is_owned = (flags & TN_SEMAPHORE_OWNED) != 0;
    semaphore->any_releases = (flags & TN_SEMAPHORE_ANY_RELEASES) != 0;
    semaphore->limit = is_owned ? TNI_LOOK(object->capacity) : TNI_MAX_PERMITS;
    semaphore->is_one = tni_semaphore_is_one(object);
    if (!is_owned || semaphore->is_one)
        return 0;
    const struct tni_segment *s = &handle->domain->segment;
    semaphore->held = tni_object_ring(s, object, tni_semaphore_held_bytes(s));
    if (semaphore->held == NULL || semaphore->limit > TNI_MAX_PERMITS)
        return tni_fail(TN_ERR_CORRUPT,
                        "the semaphore " TNI_TITLE_FORMAT
                        " of %u permits names no block for the counts of its owners",
                        TNI_TITLE(object->name), object->capacity);
    return 0;
}

int tn_semaphore_open(tn_domain *domain, const char *name, uint32_t permits, uint32_t flags,
                      tn_semaphore **ret_semaphore)
{
    struct tni_object_spec spec = {.kind = &tni_semaphore_kind,
                                   .name = name,
                                   .flags = flags & ALL_FLAGS,
                                   .capacity = permits,
                                   .wanted_capacity = permits,
                                   .count_name = "permits",
                                   .value = permits};
    if (domain == NULL)
        return tni_fail_null("the domain");
    if (spec.flags != 0 && (spec.flags & TN_SEMAPHORE_OWNED) == 0)
        return tni_fail(TN_ERR_INVALID, "TN_SEMAPHORE_ANY_RELEASES needs TN_SEMAPHORE_OWNED");
    if (permits > TNI_MAX_PERMITS)
        return tni_fail(TN_ERR_INVALID,
                        "a semaphore cannot have %u permits; it can have at most %d", permits,
                        TNI_MAX_PERMITS);
    spec.wants_flags = spec.flags != 0 || (flags & TN_OPEN_EXISTING) == 0;
    if (spec.flags != 0 && permits != 1)
        spec.ring_bytes = tni_semaphore_held_bytes(&domain->segment);
    return tni_object_open("tn_semaphore_open", domain, &spec, flags & ~spec.flags,
                           ret_semaphore);
}

uint32_t tn_semaphore_count(const tn_semaphore *semaphore)
{
    if (tni_object_check(semaphore, TNI_OBJECT_SEMAPHORE) != 0)
        return 0;
    return tni_semaphore_permits(atomic_load(&semaphore->object->value));
}

/* ---- the two steps ----------------------------------------------------------------------- */

static int take_permit(struct tni_object *object, uint32_t limit)
{
    uint64_t seen = atomic_load(&object->value);
    do {
        if (tni_semaphore_permits(seen) == 0)
            return TN_ERR_TIMED_OUT;
        if (tni_semaphore_permits(seen) > limit)
            return tni_fail(TN_ERR_CORRUPT,
                            "the semaphore " TNI_TITLE_FORMAT " has %u permits of %u",
                            TNI_TITLE(object->name), tni_semaphore_permits(seen), limit);
    } while (!atomic_compare_exchange_weak(
        &object->value, &seen, tni_semaphore_next(seen, tni_semaphore_permits(seen) - 1)));
    return 0;
}

static bool uncount(_Atomic uint32_t *held)
{
    uint32_t seen = atomic_load(held);
    do {
        if (seen == 0)
            return false;
    } while (!atomic_compare_exchange_weak(held, &seen, seen - 1));
    return true;
}

/* ---- acquire and release ----------------------------------------------------------------- */

static int try_acquire_owned(struct tni_semaphore *semaphore)
{
    struct tn_domain *domain = semaphore->handle.domain;
    struct tni_object *object = semaphore->handle.object;
    if (tni_semaphore_permits(atomic_load(&object->value)) == 0)
        return TN_ERR_TIMED_OUT;
    struct tni_thread *thread = tni_semaphore_begin(domain, semaphore->handle.index);
    TNI_KILL_POINT("semaphore_announced");
    int status = take_permit(object, semaphore->limit);
    if (status == 0) {
        TNI_KILL_POINT("semaphore_taken");
        atomic_fetch_add(&semaphore->held[domain->seat], 1);
        TNI_KILL_POINT("semaphore_counted");
    }
    tni_semaphore_end(thread);
    return status;
}

static int fail_one(const struct tni_object *object, uint64_t word)
{
    return tni_fail(TN_ERR_CORRUPT,
                    "the semaphore " TNI_TITLE_FORMAT " of one permit has the word %llx",
                    TNI_TITLE(object->name), (unsigned long long)word);
}

static int try_acquire_one(struct tni_semaphore *semaphore)
{
    struct tni_object *object = semaphore->handle.object;
    uint64_t seen = TNI_SEMAPHORE_ONE_FREE;
    if (!atomic_compare_exchange_strong(&object->value, &seen,
                                        tni_semaphore_one_held(semaphore->handle.domain->seat)))
        return (uint32_t)seen == 0 ? TN_ERR_TIMED_OUT : fail_one(object, seen);
    TNI_KILL_POINT("semaphore_one_taken");
    return 0;
}

static int try_acquire(void *context)
{
    struct tni_semaphore *semaphore = context;
    if (semaphore->is_one)
        return try_acquire_one(semaphore);
    if (semaphore->held != NULL)
        return try_acquire_owned(semaphore);
    return take_permit(semaphore->handle.object, semaphore->limit);
}

int tn_semaphore_acquire(tn_semaphore *handle, tn_deadline deadline)
{
    struct tni_semaphore *semaphore = (struct tni_semaphore *)handle;
    int status = tni_object_check(handle, TNI_OBJECT_SEMAPHORE);
    if (TNI_UNLIKELY(status != 0))
        return status;
    if (TNI_LIKELY((status = try_acquire(semaphore)) != TN_ERR_TIMED_OUT))
        return status;
    _Atomic uint32_t *word = &handle->object->items;
    return tni_object_wait(handle,
                           &(struct tni_awaited){.word = word,
                                                 .side = TNI_SIDE_ANY,
                                                 .spins = tni_spins(handle, word),
                                                 .attempt = try_acquire,
                                                 .context = semaphore},
                           deadline.ns);
}

static bool uncount_anothers(struct tni_semaphore *semaphore)
{
    const struct tni_segment *s = &semaphore->handle.domain->segment;
    for (uint32_t seat = 0; seat < s->geometry.seats; seat++)
        if (uncount(&semaphore->held[seat]))
            return true;
    return false;
}

static int fail_not_held(const struct tni_semaphore *semaphore)
{
    return tni_fail(TN_ERR_INVALID, "%s of the semaphore " TNI_TITLE_FORMAT,
                    semaphore->any_releases ? "no process holds a permit"
                                            : "this process holds no permit",
                    TNI_TITLE(semaphore->handle.object->name));
}

/* Release the permit of an owned semaphore of one permit (I5). */
static int release_one(struct tni_semaphore *semaphore)
{
    struct tni_object *object = semaphore->handle.object;
    uint64_t seen = tni_semaphore_one_held(semaphore->handle.domain->seat);
    while (!atomic_compare_exchange_strong(&object->value, &seen, TNI_SEMAPHORE_ONE_FREE)) {
        if (seen != TNI_SEMAPHORE_ONE_FREE && (uint32_t)seen != 0)
            return fail_one(object, seen);
        if (seen == TNI_SEMAPHORE_ONE_FREE || !semaphore->any_releases)
            return fail_not_held(semaphore);
    }
    return 0;
}

static int release_owned(struct tni_semaphore *semaphore)
{
    struct tn_domain *domain = semaphore->handle.domain;
    struct tni_object *object = semaphore->handle.object;
    struct tni_thread *thread = tni_semaphore_begin(domain, semaphore->handle.index);
    int status = 0;
    if (uncount(&semaphore->held[domain->seat]) ||
        (semaphore->any_releases && uncount_anothers(semaphore))) {
        TNI_KILL_POINT("semaphore_uncounted");
        status = tni_semaphore_give(object, semaphore->limit, 1);
        TNI_KILL_POINT("semaphore_given");
    } else {
        status = fail_not_held(semaphore);
    }
    tni_semaphore_end(thread);
    return status;
}

static int give_one(struct tni_semaphore *semaphore)
{
    if (semaphore->is_one)
        return release_one(semaphore);
    if (semaphore->held != NULL)
        return release_owned(semaphore);
    return tni_semaphore_give(semaphore->handle.object, semaphore->limit, 1);
}

int tn_semaphore_release(tn_semaphore *semaphore)
{
    int status = tni_object_check(semaphore, TNI_OBJECT_SEMAPHORE);
    if (TNI_UNLIKELY(status != 0) ||
        (status = give_one((struct tni_semaphore *)semaphore)) != 0)
        return status;
    TNI_KILL_POINT("semaphore_released");
    tni_wait_notify(&semaphore->object->items, 1);
    return 0;
}

const struct tni_kind tni_semaphore_kind = {
    .number = TNI_OBJECT_SEMAPHORE,
    .name = "semaphore",
    .handle_bytes = sizeof(struct tni_semaphore),
    .bind = bind,
    .reclaim_seat = tni_semaphore_reclaim_seat,
    .close_seat = tni_semaphore_reclaim_seat,
    .take_announces = tni_semaphore_take_announces,
    .recount = tni_semaphore_recount,
};
