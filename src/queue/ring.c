/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ring: slots, claimed one by one.
 *
 * Nouns: slot, position ({round:32, index:32}; after the last slot comes the first
 * one of the next round), head, tail. Rounds wrap; positions are compared by their signed
 * difference.
 * I1  A slot is claimed by a CAS on its word, which names round, state and owner; no ticket is
 *     handed out before, so a death leaves no hole without an owner.
 * I2  head and tail are hints. tail passes a position only when its slot was claimed in that
 *     round, or is leased and its word was moved on to that round. head passes a position only
 *     when nothing can be taken there; who makes something takable behind it moves it back, and
 *     who moved it over a lease looks again afterwards.
 * I3  FULL, TAKEN, LEASED and RETURNING slots own one reference of `block`. CLAIMED owns none:
 *     what its claimer had counted is announced.
 * I4  Positions are taken in order; so what one producer pushes is popped in order.
 * Callers: queue.c, and the reaper through tni_ring_*(). Death: CLAIMED is skipped; FULL is
 * still delivered; TAKEN goes back to FULL, or is dropped by policy; LEASED goes back to FULL
 * with its attempt count.
 * Source: the per-slot round is D. Vyukov's bounded MPMC queue, 1024cores.net, 2010; ours
 * claims the slot's own word instead of a shared counter, so that each claim has an owner.
 */
#include "queue/ring.h"

#include "queue/slots.h"
#include "wait/wait.h"

/* How often a pop reads a CLAIMED slot again: a producer that is running fills it in less. */
enum { CLAIM_LOOKS = 32 };

void tni_ring_retreat_head(struct tni_object *object, uint64_t position)
{
    uint64_t head = atomic_load(&object->head);
    while ((int64_t)(head - position) > 0 &&
           !atomic_compare_exchange_weak(&object->head, &head, position))
        ;
}

/* A bell is rung for those who poll; sleepers are woken one for each message. */
void tni_ring_announce_item(struct tni_queue *q)
{
    if (TNI_UNLIKELY(tni_wait_call(&q->handle.object->items)))
        tni_object_ring_watchers(&q->handle.domain->segment, q->handle.object);
}

/* But for one that pops too, whose own pops do not wait for its pushes. */
static bool has_no_producer(const struct tni_object *object)
{
    for (uint32_t w = 0; w < TNI_SEAT_WORDS; w++)
        if ((atomic_load(&object->producers.word[w]) &
             ~atomic_load(&object->consumers.word[w])) != 0)
            return false;
    return tni_seat_set_count(&object->producers, TNI_NO_SEAT) <= 1;
}

/* Whether a message is there or being pushed. As a rule the slot at the head says so at once.
 */
static bool has_full(const struct tni_queue *q)
{
    uint32_t head = tni_position_index(atomic_load(&q->handle.object->head));
    for (uint32_t i = 0; i < q->capacity; i++) {
        uint64_t word = atomic_load(&tni_slot_at(q, (head + i) % q->capacity)->word);
        uint32_t state = tni_slot_state(word);
        if (state == TNI_SLOT_CLAIMED || state == TNI_SLOT_FULL)
            return true;
    }
    return false;
}

/*
 * Of a queue that was ended, or whose last producer died, this may have been the last message
 * that others waited for: while it was out, it could come back. While another one is FULL, they
 * wait for that, and who empties its slot comes here.
 */
void tni_ring_wake_all(struct tni_queue *q)
{
    struct tni_object *object = q->handle.object;
    bool is_told =
        (atomic_load(&object->ended) & TNI_QUEUE_ENDED) != 0 || has_no_producer(object);
    if (is_told && !has_full(q))
        tni_object_wake_all(&q->handle.domain->segment, object);
}

/* ---- finding a message ------------------------------------------------------------------- */

/*
 * I2. From `head` to `position` there is nothing to take now; if `position` was a lease, it may
 * come to hold something.
 */
void tni_ring_pass_head(struct tni_queue *q, uint64_t head, uint64_t position)
{
    struct tni_object *object = q->handle.object;
    if (!tni_ring_move_head(q, head, tni_position_after(position, q->capacity)))
        return;
    uint64_t word = atomic_load(&tni_slot_at(q, position)->word);
    if (tni_slot_round(word) == tni_position_round(position) &&
        tni_slot_state(word) == TNI_SLOT_FULL)
        tni_ring_retreat_head(object, position);
}

/*
 * A head can be any number of rounds behind: while nobody pops, each pusher that dies with its
 * slot claimed moves the tail on and leaves the head. A slot whose word is in round r tells
 * that the tail has come to its position of round r - 1. So no slot is FULL in a position
 * before the one of round r - 2. @return that one, if `position` is before it
 */
static inline uint64_t catch_up(uint64_t position, int32_t ahead)
{
    return TNI_LIKELY(ahead <= 2)
               ? position
               : tni_position(tni_position_round(position) + (uint32_t)ahead - 2,
                              tni_position_index(position));
}

/*
 * How far the head can be behind the last message, when it has caught up: two rounds behind the
 * word of its slot, and the last push is less than a round beyond that word.
 */
static inline uint32_t farthest(const struct tni_queue *q) { return 3 * q->capacity; }

/* Find the first FULL slot from the head on; false: there is none. */
bool tni_ring_scan(struct tni_queue *q, bool may_pass, struct tni_ring_found *ret)
{
    struct tni_object *object = q->handle.object;
    uint64_t head = atomic_load_explicit(&object->head, memory_order_relaxed), at = head;

    ret->has_skipped = false;
    for (uint32_t n = 0; n <= farthest(q); n++, at = tni_position_after(at, q->capacity)) {
        uint64_t word = atomic_load_explicit(&tni_slot_at(q, at)->word, memory_order_acquire);
        uint32_t state = tni_slot_state(word);
        int32_t ahead = (int32_t)(tni_slot_round(word) - tni_position_round(at));
        if (TNI_LIKELY(ahead == 0)) {
            if (state == TNI_SLOT_FULL) {
                ret->position = at;
                ret->word = word;
                return true;
            }
            if (state == TNI_SLOT_EMPTY)
                return false; /* not pushed yet, and nothing behind it is */
            ret->has_skipped |= state != TNI_SLOT_LEASED;
        }
        if (ahead < 0) {
            /* The head is beyond something takable: a hint that a death left behind. */
            if (state == TNI_SLOT_FULL && at == head)
                tni_ring_retreat_head(
                    object, tni_position(tni_slot_round(word), tni_position_index(at)));
            return false;
        }
        bool is_passable = ahead > 0 || state == TNI_SLOT_LEASED;
        bool is_head = at == head;
        at = catch_up(at, ahead);
        if (is_passable && may_pass && is_head) {
            tni_ring_pass_head(q, head, at);
            head = tni_position_after(at, q->capacity);
        }
    }
    return false;
}

/*
 * Whether a slot's word says that a push to this position came to its end. The tail may be
 * behind such positions: who is killed after a push, or is about to pass the tail, leaves it.
 */
bool tni_ring_was_pushed_to(uint64_t word, uint64_t position)
{
    int32_t ahead = (int32_t)(tni_slot_round(word) - tni_position_round(position));
    uint32_t state = tni_slot_state(word);
    return ahead > 0 || (ahead == 0 && state != TNI_SLOT_EMPTY && state != TNI_SLOT_CLAIMED);
}

/* The head is behind where messages were taken out of order: those in front are not counted. */
static __attribute__((noinline)) uint32_t count_from_head(const struct tni_queue *q)
{
    uint64_t head = atomic_load(&q->handle.object->head),
             end = atomic_load(&q->handle.object->tail);
    for (uint32_t n = 0; n < q->capacity &&
                         tni_ring_was_pushed_to(atomic_load(&tni_slot_at(q, end)->word), end);
         n++)
        end = tni_position_after(end, q->capacity);
    for (uint32_t n = 0; n <= farthest(q); n++) {
        int64_t left = tni_position_distance(head, end, q->capacity);
        if (left <= 0)
            return 0;
        uint64_t word = atomic_load(&tni_slot_at(q, head)->word);
        int32_t ahead = (int32_t)(tni_slot_round(word) - tni_position_round(head));
        if (ahead < 0 || (ahead == 0 && tni_slot_state(word) != TNI_SLOT_LEASED))
            return (uint32_t)TNI_MIN(left, (int64_t)q->capacity);
        head = tni_position_after(catch_up(head, ahead), q->capacity);
    }
    return 0;
}

uint32_t tni_ring_count(const struct tni_queue *q)
{
    return tni_ring_looks_empty(q) ? 0 : count_from_head(q);
}

/*
 * The oldest message that can be taken. Slots that others are at work on are stepped over, not
 * waited for: one of them may be stopped. But what its producer pushed into a later slot must
 * not be taken before it (I4): so after a step over, the scan is repeated until it finds the
 * same slot again. That one was FULL before the last scan began, and so was everything its
 * producer had pushed before.
 */
static bool find_full(struct tni_queue *q, bool may_pass, struct tni_ring_found *ret)
{
    struct tni_ring_found again;
    if (!tni_ring_scan(q, may_pass, ret))
        return false;
    for (uint32_t tries = 0; TNI_UNLIKELY(ret->has_skipped); tries++) {
        if (tries == TNI_MOST_TRIES || !tni_ring_scan(q, may_pass, &again))
            return false;
        if (again.position == ret->position && again.word == ret->word)
            return true;
        *ret = again;
    }
    return true;
}

int tni_ring_find(struct tni_queue *q, struct tni_taken *ret_found)
{
    struct tni_ring_found found;
    if (!find_full(q, true, &found))
        return TN_ERR_TIMED_OUT;
    *ret_found =
        tni_ring_as_found(q, tni_slot_at(q, found.position), found.position, found.word);
    return 0;
}

bool tni_ring_sees_full(const struct tni_queue *q, struct tni_seen *ret_seen)
{
    *ret_seen = tni_ring_see(q);
    for (int i = 0; i < CLAIM_LOOKS && tni_slot_state(ret_seen->word) == TNI_SLOT_CLAIMED;
         i++) {
        tni_relax();
        *ret_seen = tni_ring_see(q);
    }
    return tni_seen_is_full(ret_seen);
}

bool tni_ring_is_still(const struct tni_taken *found)
{
    atomic_thread_fence(memory_order_acquire);
    return atomic_load_explicit(&found->slot->word, memory_order_relaxed) == found->word;
}

/* Whether a message is in the slot, or may come to be there without another push. */
static bool has_or_gets(const struct tni_queue *q, uint64_t word)
{
    uint32_t state = tni_slot_state(word);
    if (state == TNI_SLOT_CLAIMED || state == TNI_SLOT_FULL)
        return true;
    return state >= TNI_SLOT_TAKEN && state <= TNI_SLOT_RETURNING &&
           tni_slot_seat(word) != q->handle.domain->seat && q->policy != TN_QUEUE_DROP;
}

bool tni_ring_has_more(const struct tni_queue *q)
{
    for (uint32_t i = 0; i < q->capacity; i++)
        if (has_or_gets(q, atomic_load(&tni_slot_at(q, i)->word)))
            return true;
    return false;
}

bool tni_ring_is_ready(struct tni_queue *q)
{
    struct tni_ring_found found;
    return tni_ring_scan(q, false, &found);
}

/* ---- for the reaper: from shared memory alone, every number checked ---------------------- */
