/* SPDX-License-Identifier: Apache-2.0 */
/*
 * semaphore_reclaim: reclaims the permits of dead seats, and recounts permits. The invariants
 * are in semaphore.c.
 *
 * Callers: the reaper, through tni_semaphore_kind. If a recoverer dies, another one repeats the
 * steps.
 */
#include "sync/semaphore.h"

static bool has_announce_of(const struct tni_segment *s, uint32_t seat, uint32_t index)
{
    for (uint32_t t = 0; t < TNI_THREADS; t++)
        if (atomic_load(&tni_announce_at(s, seat, t)->object) == index + 1)
            return true;
    return false;
}

/* Whether a live thread announces the object. Skips seats that are REAPING: they are dead. */
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

/* The counts of an owned semaphore. NULL: the object has no counts, or is damaged. */
static _Atomic uint32_t *held_of(const struct tni_segment *s, const struct tni_object *object)
{
    uint64_t word = atomic_load(&object->word);
    if (tni_object_state(word) != TNI_OBJECT_LIVE ||
        tni_object_kind(word) != TNI_OBJECT_SEMAPHORE ||
        (object->flags & TN_SEMAPHORE_OWNED) == 0)
        return NULL;
    return tni_object_ring(s, object, tni_semaphore_held_bytes(s));
}

bool tni_semaphore_recount(struct tn_domain *domain, uint32_t index)
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
            !atomic_compare_exchange_strong(&object->value, &seen,
                                            tni_semaphore_next(seen, permits)))
            return false;
        TNI_KILL_POINT("semaphore_recounted");
        tni_wait_notify(&object->items, INT32_MAX);
    }
    atomic_store(&object->suspects_done, added);
    return true;
}

void tni_semaphore_take_announces(struct tn_domain *domain, uint32_t dead)
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
 * Idempotent: this thread lowers the count and gives the permits back while it announces the
 * object, or gives back a single permit by one CAS.
 */
void tni_semaphore_reclaim_seat(struct tn_domain *domain, struct tni_object *object,
                                uint32_t seat)
{
    const struct tni_segment *s = &domain->segment;
    uint32_t index = (uint32_t)(object - tni_object_at(s, 0));
    _Atomic uint32_t *held = held_of(s, object);
    if (tni_semaphore_is_one(object)) {
        uint64_t word = tni_semaphore_one_held(seat);
        if (atomic_compare_exchange_strong(&object->value, &word, TNI_SEMAPHORE_ONE_FREE))
            TNI_KILL_POINT("semaphore_one_reclaimed");
    } else if (held == NULL) {
        return;
    } else if (atomic_load(&held[seat]) != 0) {
        struct tni_thread *thread = tni_semaphore_begin(domain, index);
        TNI_KILL_POINT("semaphore_reclaim_announced");
        uint32_t count = atomic_exchange(&held[seat], 0);
        TNI_KILL_POINT("semaphore_reclaim_uncounted");
        /* tni_semaphore_give() fails for a damaged count. Log that and go on. */
        if (count != 0 && tni_semaphore_give(object, TNI_LOOK(object->capacity), count) != 0)
            tni_log(TNI_LOG_ERROR, "%s", tn_error_detail());
        TNI_KILL_POINT("semaphore_reclaim_given");
        tni_semaphore_end(thread);
    }
    tni_wait_notify(&object->items, INT32_MAX);
}
