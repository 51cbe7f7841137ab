/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ring: slots, claimed one by one.
 *
 * Nouns: slot, position ({round:32, index:32}; after the last slot of a round comes the
 * first slot of the next one), head, tail. Rounds wrap; positions are compared by their
 * signed difference.
 * I1  A process claims a slot by a CAS on its word, which names round, state and owner. It
 *     takes no ticket before, so no death leaves a gap without an owner.
 * I2  head and tail are hints. The tail passes a position only after its slot was claimed
 *     in that round, or is leased and its word was moved on to that round. The head passes
 *     a position only when nothing can be taken there. A process that makes something
 *     takable behind the head moves the head back; one that moved the head over a lease
 *     reads the slot again.
 * I3  FULL, TAKEN, LEASED and RETURNING slots own one reference of `block`. A CLAIMED slot
 *     owns none: its claimer announces the reference that it counted.
 * I4  Positions are taken in order, so the messages of one producer are popped in order.
 * Callers: queue.c, push.c, pop.c, and the reaper. Death: the reaper makes CLAIMED empty,
 * so pops skip it; FULL is still delivered; TAKEN becomes FULL again, or is dropped, by
 * policy; LEASED becomes FULL again, with one more attempt.
 * Source: the round in each slot is from D. Vyukov's bounded MPMC queue, 1024cores.net,
 * 2010. Ours claims the slot's own word instead of a shared counter, so that each claim has
 * an owner.
 */
#include "queue/ring.h"

#include "queue/slots.h"
#include "wait/wait.h"

/* How often a pop reads a CLAIMED slot again: a running producer fills it sooner. */
enum { CLAIM_READS = 32 };

void tni_ring_retreat_head(struct tni_object *object, uint64_t position)
{
    uint64_t head = atomic_load(&object->head);
    while ((int64_t)(head - position) > 0 &&
           !atomic_compare_exchange_weak(&object->head, &head, position))
        ;
}

/* Every watcher is rung, but one sleeper is woken for each message. */
void tni_ring_notify_item(struct tni_queue *q)
{
    if (TNI_UNLIKELY(tni_wait_call(&q->handle.object->items)))
        tni_object_ring_watchers(&q->handle.domain->segment, q->handle.object);
}

/* Whether no producer is left, but for one that pops too: its pops do not wait for its pushes.
 */
static bool has_no_producer(const struct tni_object *object)
{
    for (uint32_t w = 0; w < TNI_SEAT_WORDS; w++)
        if ((atomic_load(&object->producers.word[w]) &
             ~atomic_load(&object->consumers.word[w])) != 0)
            return false;
    return tni_seat_set_count(&object->producers, TNI_NO_SEAT) <= 1;
}

/* Whether a message is in the ring or being pushed. Mostly the slot at the head tells. */
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
 * A process calls this after it took a message out of an ended or orphaned queue. Other
 * consumers may have waited for that message, which could have come back; if it was the last
 * one, wake them. If another message is FULL, the process that takes that one comes here.
 */
void tni_ring_wake_all(struct tni_queue *q)
{
    struct tni_object *object = q->handle.object;
    bool is_over =
        (atomic_load(&object->ended) & TNI_QUEUE_ENDED) != 0 || has_no_producer(object);
    if (is_over && !has_full(q))
        tni_object_wake_all(&q->handle.domain->segment, object);
}

/* ---- finding a message ------------------------------------------------------------------- */

/* I2 */
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
 * The head can be any number of rounds behind: while no process pops, each pusher that dies
 * with a slot CLAIMED moves the tail on and leaves the head. If the word of a slot is in round
 * r, the tail has come to the slot's position of round r - 1, so no message is before the
 * slot's position of round r - 2. `ahead` is r less the round of `position`.
 * @return the position of round r - 2, if `position` is before it; else `position`
 */
static inline uint64_t skip_old_rounds(uint64_t position, int32_t ahead)
{
    return TNI_LIKELY(ahead <= 2)
               ? position
               : tni_position(tni_position_round(position) + (uint32_t)ahead - 2,
                              tni_position_index(position));
}

/*
 * How many positions a scan reads at most: catching up leaves the head two rounds behind the
 * word of its slot, and the last push is less than a round beyond that word.
 */
static inline uint32_t scan_limit(const struct tni_queue *q) { return 3 * q->capacity; }

/* I2 */
bool tni_ring_scan(struct tni_queue *q, bool may_pass, struct tni_ring_found *ret)
{
    struct tni_object *object = q->handle.object;
    uint64_t head = atomic_load_explicit(&object->head, memory_order_relaxed), at = head;

    ret->has_skipped = false;
    for (uint32_t n = 0; n <= scan_limit(q); n++, at = tni_position_after(at, q->capacity)) {
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
                return false; /* no push came here yet, nor to any slot after it */
            ret->has_skipped |= state != TNI_SLOT_LEASED;
        }
        if (ahead < 0) {
            /* A death left the head beyond a message: move it back. */
            if (state == TNI_SLOT_FULL && at == head)
                tni_ring_retreat_head(
                    object, tni_position(tni_slot_round(word), tni_position_index(at)));
            return false;
        }
        bool is_passable = ahead > 0 || state == TNI_SLOT_LEASED;
        bool is_head = at == head;
        at = skip_old_rounds(at, ahead);
        if (is_passable && may_pass && is_head) {
            tni_ring_pass_head(q, head, at);
            head = tni_position_after(at, q->capacity);
        }
    }
    return false;
}

/*
 * The tail may be behind such a position: a process that is killed after a push, or is about to
 * move the tail, leaves it behind.
 */
bool tni_ring_was_pushed_to(uint64_t word, uint64_t position)
{
    int32_t ahead = (int32_t)(tni_slot_round(word) - tni_position_round(position));
    uint32_t state = tni_slot_state(word);
    return ahead > 0 || (ahead == 0 && state != TNI_SLOT_EMPTY && state != TNI_SLOT_CLAIMED);
}

/* Count from the first position that is not yet emptied: the head may be behind it. */
static __attribute__((noinline)) uint32_t count_from_head(const struct tni_queue *q)
{
    uint64_t head = atomic_load(&q->handle.object->head),
             end = atomic_load(&q->handle.object->tail);
    for (uint32_t n = 0; n < q->capacity &&
                         tni_ring_was_pushed_to(atomic_load(&tni_slot_at(q, end)->word), end);
         n++)
        end = tni_position_after(end, q->capacity);
    for (uint32_t n = 0; n <= scan_limit(q); n++) {
        int64_t left = tni_position_distance(head, end, q->capacity);
        if (left <= 0)
            return 0;
        uint64_t word = atomic_load(&tni_slot_at(q, head)->word);
        int32_t ahead = (int32_t)(tni_slot_round(word) - tni_position_round(head));
        if (ahead < 0 || (ahead == 0 && tni_slot_state(word) != TNI_SLOT_LEASED))
            return (uint32_t)TNI_MIN(left, (int64_t)q->capacity);
        head = tni_position_after(skip_old_rounds(head, ahead), q->capacity);
    }
    return 0;
}

uint32_t tni_ring_count(const struct tni_queue *q)
{
    return tni_ring_looks_empty(q) ? 0 : count_from_head(q);
}

/*
 * Find the oldest message that can be taken. A slot that another process has CLAIMED or TAKEN
 * is skipped, because that process may be stopped. But a later message of the same producer
 * must not be taken first (I4). So after a skip the scan is repeated until it finds the same
 * slot again: that slot was FULL before the last scan began, and so was everything that its
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
    for (int i = 0; i < CLAIM_READS && tni_slot_state(ret_seen->word) == TNI_SLOT_CLAIMED;
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

/* Whether the slot has a message, or may have one without another push. */
static bool may_have_message(const struct tni_queue *q, uint64_t word)
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
        if (may_have_message(q, atomic_load(&tni_slot_at(q, i)->word)))
            return true;
    return false;
}

bool tni_ring_is_ready(struct tni_queue *q)
{
    struct tni_ring_found found;
    return tni_ring_scan(q, false, &found);
}
