/* SPDX-License-Identifier: Apache-2.0 */
/*
 * semaphore: permits, with or without owners.
 *
 * Word: value is {version:32, permits:32}. An owned semaphore also has a block of counts:
 * for each seat, the permits that it holds. An owned semaphore of one permit has no counts:
 * its word names the holder, {holder:32, permits:32}, and changes by one CAS, as a lock's
 * does (I5).
 * I1  In an owned semaphore permits + all counts <= capacity, always. They are equal while
 *     no thread is between two steps: it takes a permit, then counts it; it uncounts a
 *     permit, then gives it back.
 * I2  A thread announces the object before the first of the two steps, and until after the
 *     second. So does a thread that releases a permit of another seat, and takes it from
 *     that seat's count.
 * I3  A recount sets permits to capacity - counts. It reads the word, checks that no live
 *     thread announces the object, adds up the counts, checks again, and swaps the word
 *     that it read. A thread that was between its two steps meanwhile either is seen or has
 *     changed the word. A thread that is about to announce waits while header->recounted
 *     names the object, as with blocks (recount.c, I3).
 * I4  The announce of a dead thread becomes a mark, object->suspects_added, before it is
 *     cleared, so no seat waits for the recount. A recount sets suspects_done to the
 *     suspects_added before it.
 * I5  With one permit, the word is {0, 1} or {holder, 0}. No thread is ever between two
 *     steps, so no thread announces the object and no process recounts it.
 * Callers: users, the reaper. Death of a holder: the reaper gives back all its permits at
 * once. Death between two steps, also of a reaper: permits are missing, and the announce
 * leads to a recount. Permits without owners are lost with the process that took them. A
 * process that closes its last handle, or leaves, gives its permits back.
 */
#include "sync/sync.h"

enum { ALL_FLAGS = TN_SEMAPHORE_OWNED | TN_SEMAPHORE_ANY_RELEASES, MAX_PERMITS = INT32_MAX };

struct tni_semaphore {
    struct tn_object handle;
    uint32_t limit;         /* private copy: the most permits */
    _Atomic uint32_t *held; /* [seats]: permits of each; NULL: not owned, or of one permit */
    bool is_one;            /* owned, of one permit */
    bool any_releases;
};

enum { ONE_FREE = 1 }; /* the word of a single permit that is free (I5) */
static bool is_one(const struct tni_object *object)
{
    return (TNI_LOOK(object->flags) & TN_SEMAPHORE_OWNED) != 0 &&
           TNI_LOOK(object->capacity) == 1;
}

static uint64_t next_word(uint64_t word, uint32_t permits)
{
    return ((word >> 32) + 1) << 32 | permits;
}

static uint64_t held_bytes(const struct tni_segment *s)
{
    return (uint64_t)s->geometry.seats * sizeof(uint32_t);
}

/* ---- making, opening, closing ------------------------------------------------------------ */

static int bind(struct tn_object *handle)
{
    struct tni_semaphore *semaphore = (struct tni_semaphore *)handle;
    const struct tni_object *object = handle->object;
    uint32_t flags = TNI_LOOK(object->flags);
    bool is_owned = (flags & TN_SEMAPHORE_OWNED) != 0;
    semaphore->any_releases = (flags & TN_SEMAPHORE_ANY_RELEASES) != 0;
    semaphore->limit = is_owned ? TNI_LOOK(object->capacity) : MAX_PERMITS;
    semaphore->is_one = is_one(object);
    if (!is_owned || semaphore->is_one)
        return 0;
    const struct tni_segment *s = &handle->domain->segment;
    semaphore->held = tni_object_ring(s, object, held_bytes(s));
    if (semaphore->held == NULL || semaphore->limit > MAX_PERMITS)
        return tni_fail(TN_ERR_CORRUPT,
                        "semaphore " TNI_NAME_FORMAT
                        " of %u permits names no block for the counts of its owners",
                        object->name, object->capacity);
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
        return tni_fail(TN_ERR_INVALID, "tn_semaphore_open: the domain is NULL");
    if (spec.flags != 0 && (spec.flags & TN_SEMAPHORE_OWNED) == 0)
        return tni_fail(TN_ERR_INVALID, "TN_SEMAPHORE_ANY_RELEASES needs TN_SEMAPHORE_OWNED");
    if (permits > MAX_PERMITS)
        return tni_fail(TN_ERR_INVALID,
                        "a semaphore cannot have %u permits; it can have at most %d", permits,
                        MAX_PERMITS);
    spec.wants_flags = spec.flags != 0 || (flags & TN_OPEN_EXISTING) == 0;
    if (spec.flags != 0 && permits != 1)
        spec.ring_bytes = held_bytes(&domain->segment);
    return tni_object_open("tn_semaphore_open", domain, &spec, flags & ~spec.flags,
                           ret_semaphore);
}

uint32_t tn_semaphore_count(const tn_semaphore *semaphore)
{
    if (tni_object_check(semaphore, TNI_OBJECT_SEMAPHORE) != 0)
        return 0;
    return tni_semaphore_permits(atomic_load(&semaphore->object->value));
}

/* ---- the two halves ---------------------------------------------------------------------- */

/* I2. An exchange, so that others see the announce before anything after it. */
static struct tni_thread *begin(struct tn_domain *domain, uint32_t index)
{
    struct tni_thread *thread = tni_thread_enter(domain);
    tni_yield_to_recount(thread, (tni_block){tni_recounted_object(index)}, 1);
    atomic_exchange(&thread->announce->object, index + 1);
    return thread;
}

static void end(struct tni_thread *thread)
{
    atomic_store(&thread->announce->object, 0);
    tni_thread_leave(thread);
}

static int take_permit(struct tni_object *object, uint32_t limit)
{
    uint64_t seen = atomic_load(&object->value);
    do {
        if (tni_semaphore_permits(seen) == 0)
            return TN_ERR_TIMED_OUT;
        if (tni_semaphore_permits(seen) > limit)
            return tni_fail(TN_ERR_CORRUPT,
                            "semaphore " TNI_NAME_FORMAT " has %u permits of %u", object->name,
                            tni_semaphore_permits(seen), limit);
    } while (!atomic_compare_exchange_weak(&object->value, &seen,
                                           next_word(seen, tni_semaphore_permits(seen) - 1)));
    return 0;
}

static int give_permits(struct tni_object *object, uint32_t limit, uint32_t count)
{
    uint64_t seen = atomic_load(&object->value);
    do {
        if (tni_semaphore_permits(seen) > limit || count > limit - tni_semaphore_permits(seen))
            return tni_fail(tni_semaphore_permits(seen) == MAX_PERMITS ? TN_ERR_INVALID
                                                                       : TN_ERR_CORRUPT,
                            "semaphore " TNI_NAME_FORMAT " has %u permits already",
                            object->name, tni_semaphore_permits(seen));
    } while (!atomic_compare_exchange_weak(
        &object->value, &seen, next_word(seen, tni_semaphore_permits(seen) + count)));
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
    struct tni_thread *thread = begin(domain, semaphore->handle.index);
    TNI_KILL_POINT("semaphore_announced");
    int status = take_permit(object, semaphore->limit);
    if (status == 0) {
        TNI_KILL_POINT("semaphore_taken");
        atomic_fetch_add(&semaphore->held[domain->seat], 1);
        TNI_KILL_POINT("semaphore_counted");
    }
    end(thread);
    return status;
}

static int fail_one(const struct tni_object *object, uint64_t word)
{
    return tni_fail(TN_ERR_CORRUPT,
                    "semaphore " TNI_NAME_FORMAT " of one permit has the word %llx",
                    object->name, (unsigned long long)word);
}

static int try_acquire_one(struct tni_semaphore *semaphore)
{
    struct tni_object *object = semaphore->handle.object;
    uint64_t seen = ONE_FREE;
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
    return tni_fail(TN_ERR_INVALID, "%s of the semaphore " TNI_NAME_FORMAT,
                    semaphore->any_releases ? "no process holds a permit"
                                            : "this process holds no permit",
                    semaphore->handle.object->name);
}

/* I5 */
static int release_one(struct tni_semaphore *semaphore)
{
    struct tni_object *object = semaphore->handle.object;
    uint64_t seen = tni_semaphore_one_held(semaphore->handle.domain->seat);
    while (!atomic_compare_exchange_strong(&object->value, &seen, ONE_FREE)) {
        if (seen != ONE_FREE && (uint32_t)seen != 0)
            return fail_one(object, seen);
        if (seen == ONE_FREE || !semaphore->any_releases)
            return fail_not_held(semaphore);
    }
    return 0;
}

static int release_owned(struct tni_semaphore *semaphore)
{
    struct tn_domain *domain = semaphore->handle.domain;
    struct tni_object *object = semaphore->handle.object;
    struct tni_thread *thread = begin(domain, semaphore->handle.index);
    int status = 0;
    if (uncount(&semaphore->held[domain->seat]) ||
        (semaphore->any_releases && uncount_anothers(semaphore))) {
        TNI_KILL_POINT("semaphore_uncounted");
        status = give_permits(object, semaphore->limit, 1);
        TNI_KILL_POINT("semaphore_given");
    } else {
        status = fail_not_held(semaphore);
    }
    end(thread);
    return status;
}

static int give_one(struct tni_semaphore *semaphore)
{
    if (semaphore->is_one)
        return release_one(semaphore);
    if (semaphore->held != NULL)
        return release_owned(semaphore);
    return give_permits(semaphore->handle.object, semaphore->limit, 1);
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

/* ---- the dead ---------------------------------------------------------------------------- */

static bool has_announce_of(const struct tni_segment *s, uint32_t seat, uint32_t index)
{
    for (uint32_t t = 0; t < TNI_THREADS; t++)
        if (atomic_load(&tni_announce_at(s, seat, t)->object) == index + 1)
            return true;
    return false;
}

/* Whether a live thread announces the object. The process of a seat that is REAPING is dead. */
static bool has_live_announce(const struct tni_segment *s, uint32_t index)
{
    uint32_t limit = tni_seat_limit(s);
    for (uint32_t seat = 0; seat < limit; seat++) {
        uint32_t state = tni_seat_state(atomic_load(&tni_seat_at(s, seat)->word));
        if (state != TNI_SEAT_FREE && state != TNI_SEAT_REAPING &&
            has_announce_of(s, seat, index))
            return true;
    }
    return false;
}

static uint32_t permits_left(const struct tni_segment *s, const struct tni_object *object,
                             _Atomic uint32_t *held)
{
    uint64_t sum = 0;
    for (uint32_t seat = 0; seat < s->geometry.seats; seat++)
        sum += atomic_load(&held[seat]);
    uint32_t capacity = TNI_LOOK(object->capacity);
    return sum < capacity ? capacity - (uint32_t)sum : 0;
}

/* The counts of an owned semaphore; NULL: it is no such semaphore, or is damaged. */
static _Atomic uint32_t *held_of(const struct tni_segment *s, const struct tni_object *object)
{
    uint64_t word = atomic_load(&object->word);
    if (tni_object_state(word) != TNI_OBJECT_LIVE ||
        tni_object_kind(word) != TNI_OBJECT_SEMAPHORE ||
        (object->flags & TN_SEMAPHORE_OWNED) == 0)
        return NULL;
    return tni_object_ring(s, object, held_bytes(s));
}

static bool recount(struct tn_domain *domain, uint32_t index)
{
    const struct tni_segment *s = &domain->segment;
    struct tni_object *object = tni_object_at(s, index);
    uint32_t added = atomic_load(&object->suspects_added);
    _Atomic uint32_t *held = held_of(s, object);
    if (held != NULL) { /* NULL: the semaphore has ended since */
        uint64_t seen = atomic_load(&object->value);
        if (has_live_announce(s, index))
            return false;
        uint32_t permits = permits_left(s, object, held);
        if (has_live_announce(s, index) ||
            !atomic_compare_exchange_strong(&object->value, &seen, next_word(seen, permits)))
            return false;
        TNI_KILL_POINT("semaphore_recounted");
        tni_wait_notify(&object->items, INT32_MAX);
    }
    atomic_store(&object->suspects_done, added);
    return true;
}

static void take_announces(struct tn_domain *domain, uint32_t dead)
{
    const struct tni_segment *s = &domain->segment;
    for (uint32_t t = 0; t < TNI_THREADS; t++) {
        struct tni_announce *announce = tni_announce_at(s, dead, t);
        uint32_t named = atomic_load(&announce->object);
        if (named == 0)
            continue;
        if (tni_geometry_has_object(&s->geometry, named - 1)) {
            atomic_fetch_add(&tni_object_at(s, named - 1)->suspects_added, 1);
            TNI_KILL_POINT("semaphore_marked");
            tni_bit_set(tni_loose_of(s, TNI_LOOSE_SUSPECT), named - 1);
            atomic_fetch_add(&s->header->objects_added, 1);
        }
        atomic_store(&announce->object, 0); /* I4 */
    }
}

/*
 * Give back the permits of a seat that is dead, or whose process closes the semaphore.
 * Idempotent: this thread uncounts and gives permits under an announce of its own, and a single
 * permit by one CAS.
 */
static void reclaim_seat(struct tn_domain *domain, struct tni_object *object, uint32_t seat)
{
    const struct tni_segment *s = &domain->segment;
    uint32_t index = (uint32_t)(object - tni_object_at(s, 0));
    _Atomic uint32_t *held = held_of(s, object);
    if (is_one(object)) {
        uint64_t word = tni_semaphore_one_held(seat);
        if (atomic_compare_exchange_strong(&object->value, &word, ONE_FREE))
            TNI_KILL_POINT("semaphore_one_reclaimed");
    } else if (held == NULL) {
        return;
    } else if (atomic_load(&held[seat]) != 0) {
        struct tni_thread *thread = begin(domain, index);
        TNI_KILL_POINT("semaphore_reclaim_announced");
        uint32_t count = atomic_exchange(&held[seat], 0);
        TNI_KILL_POINT("semaphore_reclaim_uncounted");
        /* give_permits() refuses a damaged count; the reaper goes on. */
        if (count != 0 && give_permits(object, TNI_LOOK(object->capacity), count) != 0)
            tni_log(TNI_LOG_ERROR, "%s", tn_error_detail());
        TNI_KILL_POINT("semaphore_reclaim_given");
        end(thread);
    }
    tni_wait_notify(&object->items, INT32_MAX);
}

const struct tni_kind tni_semaphore_kind = {
    .number = TNI_OBJECT_SEMAPHORE,
    .name = "semaphore",
    .handle_bytes = sizeof(struct tni_semaphore),
    .bind = bind,
    .reclaim_seat = reclaim_seat,
    .close_seat = reclaim_seat,
    .take_announces = take_announces,
    .recount = recount,
};
