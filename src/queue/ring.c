/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ring: slots, claimed one by one.
 *
 * Nouns: slot, position ({round:32, index of the slot:32}; after the last slot comes the first
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

#include <string.h>

#include "wait/wait.h"

/* How often a pop reads a CLAIMED slot again: a producer that is running fills it in less. */
enum { CLAIM_LOOKS = 32 };

/* What noise made of a position still leads to a slot, and on to a position that there is. */
static uint64_t after(uint64_t position, uint32_t capacity)
{
    return TNI_LIKELY(tni_position_index(position) + UINT64_C(1) < capacity)
               ? position + 1
               : tni_position(tni_position_round(position) + 1, 0);
}

/* Positions from `from` to `to`; below 0 if `to` comes first. */
static int64_t distance(uint64_t from, uint64_t to, uint32_t capacity)
{
    return (int64_t)(int32_t)(tni_position_round(to) - tni_position_round(from)) * capacity +
           tni_position_index(to) - tni_position_index(from);
}

static void retreat_head(struct tni_object *object, uint64_t position)
{
    uint64_t head = atomic_load(&object->head);
    while ((int64_t)(head - position) > 0 &&
           !atomic_compare_exchange_weak(&object->head, &head, position))
        ;
}

/* A bell is rung for those who poll; sleepers are woken one for each message. */
static void announce_item(struct tni_queue *q)
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
static __attribute__((noinline)) void wake_all(struct tni_queue *q)
{
    struct tni_object *object = q->handle.object;
    bool is_told =
        (atomic_load(&object->ended) & TNI_QUEUE_ENDED) != 0 || has_no_producer(object);
    if (is_told && !has_full(q))
        tni_object_wake_all(&q->handle.domain->segment, object);
}

static inline void tell_end(struct tni_queue *q)
{
    if (TNI_UNLIKELY(atomic_load(&q->handle.object->ended) != 0))
        wake_all(q);
}

static __attribute__((noinline)) int fail_ended(const struct tni_queue *q)
{
    return tni_fail(TN_ERR_CLOSED, "the queue " TNI_NAME_FORMAT " was ended",
                    q->handle.object->name);
}

/* ---- push -------------------------------------------------------------------------------- */

/* A position that the tail passes, or passed, without a push. For figures only. */
static void note_unpushed(struct tni_object *object)
{
    atomic_fetch_add_explicit(&object->unpushed, 1, memory_order_relaxed);
}

/*
 * Whether a slot can be claimed behind the leases that begin at `tail`: else they are not
 * stepped over yet.
 */
static bool has_room_behind(const struct tni_queue *q, uint64_t tail)
{
    uint64_t at = tail;
    for (uint32_t n = 1; n < q->capacity; n++) {
        at = after(at, q->capacity);
        uint64_t word = atomic_load_explicit(&tni_slot_at(q, at)->word, memory_order_relaxed);
        int32_t ahead = (int32_t)(tni_slot_round(word) - tni_position_round(at));
        if (ahead != -1 || tni_slot_state(word) != TNI_SLOT_LEASED)
            return ahead >= 0;
    }
    return false;
}

/* Noise must not keep us here: more steps than this are for the caller's next try. */
static uint64_t most_steps(const struct tni_queue *q)
{
    return 64 * (uint64_t)q->capacity + 1024;
}

/* A slot that is a round further than a tail that stands still: no push can have come there. */
static int fail_ahead(const struct tni_queue *q, uint64_t tail, int32_t ahead)
{
    return tni_fail(
        TN_ERR_CORRUPT, "queue " TNI_NAME_FORMAT ": slot %u is %d rounds ahead of round %u",
        q->handle.object->name, tni_position_index(tail), ahead, tni_position_round(tail));
}

/* I2. @return the tail now */
static inline uint64_t pass_tail(const struct tni_queue *q, uint64_t position)
{
    struct tni_object *object = q->handle.object;
    uint64_t seen = position, next = after(position, q->capacity);
    if (!atomic_compare_exchange_strong(&object->tail, &seen, next))
        return seen;
    if (TNI_UNLIKELY(next == 0)) /* all rounds are through: tni_queue_figures() counts on */
        atomic_fetch_sub_explicit(&object->unpushed, (uint64_t)q->capacity << 32,
                                  memory_order_relaxed);
    return next;
}

/*
 * I1. @return the claimed position; TN_ERR_TIMED_OUT when the ring is full; TN_ERR_CORRUPT
 */
static int claim(struct tni_queue *q, uint32_t tag, uint64_t *ret_position)
{
    struct tni_object *object = q->handle.object;
    uint64_t tail = atomic_load_explicit(&object->tail, memory_order_relaxed);
    uint64_t left = most_steps(q);

    for (uint32_t passed = 0; passed <= q->capacity && left > 0; left--) {
        struct tni_slot *slot = tni_slot_at(q, tail);
        uint64_t word = atomic_load_explicit(&slot->word, memory_order_acquire);
        uint32_t round = tni_position_round(tail), state = tni_slot_state(word);
        int32_t ahead = (int32_t)(tni_slot_round(word) - round);

        if (ahead == 0 && state == TNI_SLOT_EMPTY) {
            uint64_t mine = tni_slot_word(round, TNI_SLOT_CLAIMED, q->handle.domain->seat, tag);
            if (atomic_compare_exchange_strong(&slot->word, &word, mine)) {
                *ret_position = tail;
                return 0;
            }
            continue;
        }
        if (ahead < 0) {
            if (state != TNI_SLOT_LEASED || ahead != -1 || !has_room_behind(q, tail))
                return TN_ERR_TIMED_OUT;
            /* I2: a lease may last; the ring goes on around it. */
            uint64_t moved =
                tni_slot_word(round, TNI_SLOT_LEASED, tni_slot_seat(word), tni_slot_tag(word));
            if (!atomic_compare_exchange_strong(&slot->word, &word, moved))
                continue;
            note_unpushed(object);
            passed++;
        }
        if (TNI_UNLIKELY(ahead > 1) && atomic_load(&object->tail) == tail)
            return fail_ahead(q, tail, ahead);
        /* The hint is behind: help it along. */
        tail = pass_tail(q, tail);
    }
    return TN_ERR_TIMED_OUT;
}

/* pre: view and bytes fit into the slot; the view is encoded as it was measured */
static inline void write_slot(struct tni_queue *q, struct tni_slot *slot,
                              const struct tni_parcel *p)
{
    TNI_PUT(*tni_slot_content(slot), (uint64_t)p->bytes_count << 32 | p->block.id);
    TNI_PUT(*tni_slot_form(slot),
            tni_slot_make_form(p->view_bytes, p->form, p->is_tensor, q->handle.domain->seat));
    if (p->is_plain)
        tni_tensor_encode_plain(p->tensor, (void *)slot->data);
    else if (p->form == TNI_FORM_TENSOR)
        tni_tensor_encode(p->tensor, p->held, p->view_bytes, slot->data);
    if (p->bytes_count != 0)
        memcpy(slot->data + p->view_bytes, p->bytes, p->bytes_count);
}

/* Where a push stands: the slot was {round, EMPTY, 0, 0}, and is CLAIMED by us. */
struct claimed {
    struct tni_slot *slot;
    uint64_t position, word;
};

static inline uint64_t claim_word(const struct tni_queue *q, const struct tni_thread *thread,
                                  uint64_t empty)
{
    return empty | tni_slot_word(0, TNI_SLOT_CLAIMED, q->handle.domain->seat, thread->number);
}

/*
 * From the claimed slot to the end, with the thread's record given back. The block is
 * announced, and the claiming was the read-modify-write that ref.c, I5 asks for.
 */
static inline __attribute__((always_inline)) int push_claimed(struct tni_queue *q,
                                                              struct tni_thread *thread,
                                                              const struct claimed *c,
                                                              const struct tni_parcel *p)
{
    struct tn_domain *d = q->handle.domain;
    struct tni_slot *slot = c->slot;
    int status = 0;
    TNI_KILL_POINT("push_claimed");
    /* After the claim: who finds the queue ended and this slot EMPTY says that it is over. */
    if (TNI_UNLIKELY((atomic_load(&q->handle.object->ended) & TNI_QUEUE_ENDED) != 0)) {
        status = fail_ended(q);
    } else {
        write_slot(q, slot, p);
        if (p->block.id != 0)
            status = tni_ref_lend(d, p->block, p->move);
    }
    TNI_KILL_POINT("push_lent");
    /* Pairs with the acquire in scan(). Without a reference the slot is skipped. */
    uint64_t done = c->word + ((uint64_t)(TNI_SLOT_FULL - TNI_SLOT_CLAIMED) << 24);
    if (TNI_UNLIKELY(status != 0)) {
        note_unpushed(q->handle.object);
        done = tni_slot_word(tni_position_round(c->position) + 1, TNI_SLOT_EMPTY, 0, 0);
    }
    atomic_store_explicit(&slot->word, done, memory_order_release);
    TNI_KILL_POINT("push_full");
    if (tni_thread_does_again(thread, TNI_PUSHED)) {
        __builtin_prefetch(tni_slot_beyond(q, slot, 1), 1);
        __builtin_prefetch(tni_slot_beyond(q, slot, 4), 1);
    }
    pass_tail(q, c->position); /* and the fence that announce_item() asks for */
    TNI_KILL_POINT("push_tail_passed");
    if (TNI_LIKELY(status == 0) && p->move && p->form == TNI_FORM_TENSOR)
        tni_tensor_forget(thread, p->tensor);
    if (p->block.id != 0)
        tni_announce_clear(thread);
    tni_thread_leave(thread);
    if (TNI_LIKELY(status == 0))
        announce_item(q);
    else
        tell_end(q); /* who waits for what is claimed */
    return status;
}

int tni_ring_push(struct tni_queue *q, const struct tni_parcel *p)
{
    struct tni_object *object = q->handle.object;
    struct claimed c;

    if (TNI_UNLIKELY((atomic_load_explicit(&object->ended, memory_order_relaxed) &
                      TNI_QUEUE_ENDED) != 0))
        return fail_ended(q);
    struct tni_thread *thread = tni_thread_enter(q->handle.domain);
    if (p->block.id != 0)
        tni_announce(thread, p->block, 1);
    int status = claim(q, thread->number, &c.position);
    if (TNI_LIKELY(status == 0)) {
        c.slot = tni_slot_at(q, c.position);
        c.word = claim_word(q, thread, tni_position_empty(c.position));
        return push_claimed(q, thread, &c, p);
    }
    if (p->block.id != 0)
        tni_announce_clear(thread);
    tni_thread_leave(thread);
    return status;
}

int tni_ring_push_plain(struct tni_queue *q, tn_tensor *tensor, uint32_t view_bytes, bool move)
{
    struct tni_object *object = q->handle.object;
    struct claimed c = {.position = atomic_load_explicit(&object->tail, memory_order_relaxed)};
    c.slot = tni_slot_at(q, c.position);
    uint64_t word = atomic_load_explicit(&c.slot->word, memory_order_acquire);
    const tni_block block = tensor->storage->block;
    struct tni_thread *thread;
    if (TNI_UNLIKELY(word != tni_position_empty(c.position)) || TNI_UNLIKELY(block.id == 0) ||
        TNI_UNLIKELY((thread = tni_thread_enter_home(q->handle.domain)) == NULL))
        return 1;
    const struct tni_parcel p = {.form = TNI_FORM_TENSOR,
                                 .is_plain = true,
                                 .is_tensor = true,
                                 .move = move,
                                 .block = block,
                                 .tensor = tensor,
                                 .view_bytes = view_bytes};
    c.word = claim_word(q, thread, word);
    tni_announce(thread, block, 1);
    if (TNI_LIKELY(atomic_compare_exchange_strong(&c.slot->word, &word, c.word)))
        return push_claimed(q, thread, &c, &p);
    tni_announce_clear(thread);
    tni_thread_leave(thread);
    return 1;
}

/* ---- take -------------------------------------------------------------------------------- */

static inline bool move_head(struct tni_queue *q, uint64_t from, uint64_t to)
{
    return atomic_compare_exchange_strong(&q->handle.object->head, &from, to);
}

/* I2. The position will never hold anything again. */
static inline void pass_emptied(struct tni_queue *q, uint64_t position)
{
    move_head(q, position, after(position, q->capacity));
}

/*
 * I2. From `head` to `position` there is nothing to take now; if `position` was a lease, it may
 * come to hold something.
 */
static void pass_head(struct tni_queue *q, uint64_t head, uint64_t position)
{
    struct tni_object *object = q->handle.object;
    if (!move_head(q, head, after(position, q->capacity)))
        return;
    uint64_t word = atomic_load(&tni_slot_at(q, position)->word);
    if (tni_slot_round(word) == tni_position_round(position) &&
        tni_slot_state(word) == TNI_SLOT_FULL)
        retreat_head(object, position);
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

struct found {
    uint64_t position, word;
    bool has_skipped; /* a slot before it is being pushed or popped */
};

/* Find the first FULL slot from the head on; false: there is none. */
static bool scan(struct tni_queue *q, bool may_pass, struct found *ret)
{
    struct tni_object *object = q->handle.object;
    uint64_t head = atomic_load_explicit(&object->head, memory_order_relaxed), at = head;

    ret->has_skipped = false;
    for (uint32_t n = 0; n <= farthest(q); n++, at = after(at, q->capacity)) {
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
                retreat_head(object,
                             tni_position(tni_slot_round(word), tni_position_index(at)));
            return false;
        }
        bool is_passable = ahead > 0 || state == TNI_SLOT_LEASED;
        bool is_head = at == head;
        at = catch_up(at, ahead);
        if (is_passable && may_pass && is_head) {
            pass_head(q, head, at);
            head = after(at, q->capacity);
        }
    }
    return false;
}

/*
 * Whether a slot's word says that a push to this position came to its end. The tail may be
 * behind such positions: who is killed after a push, or is about to pass the tail, leaves it.
 */
static bool was_pushed_to(uint64_t word, uint64_t position)
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
    for (uint32_t n = 0;
         n < q->capacity && was_pushed_to(atomic_load(&tni_slot_at(q, end)->word), end); n++)
        end = after(end, q->capacity);
    for (uint32_t n = 0; n <= farthest(q); n++) {
        int64_t left = distance(head, end, q->capacity);
        if (left <= 0)
            return 0;
        uint64_t word = atomic_load(&tni_slot_at(q, head)->word);
        int32_t ahead = (int32_t)(tni_slot_round(word) - tni_position_round(head));
        if (ahead < 0 || (ahead == 0 && tni_slot_state(word) != TNI_SLOT_LEASED))
            return (uint32_t)TNI_MIN(left, (int64_t)q->capacity);
        head = after(catch_up(head, ahead), q->capacity);
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
static bool find_full(struct tni_queue *q, bool may_pass, struct found *ret)
{
    struct found again;
    if (!scan(q, may_pass, ret))
        return false;
    for (uint32_t tries = 0; TNI_UNLIKELY(ret->has_skipped); tries++) {
        if (tries == TNI_MOST_TRIES || !scan(q, may_pass, &again))
            return false;
        if (again.position == ret->position && again.word == ret->word)
            return true;
        *ret = again;
    }
    return true;
}

static inline struct tni_taken as_found(const struct tni_queue *q, struct tni_slot *slot,
                                        uint64_t position, uint64_t word)
{
    uint64_t content = TNI_LOOK(*tni_slot_content(slot));
    tni_block named = {(uint32_t)content}, block = named;
    if (TNI_UNLIKELY(!tni_geometry_has_block(&q->handle.domain->segment.geometry, block.id)))
        block.id = 0;
    return (struct tni_taken){.slot = slot,
                              .word = word,
                              .position = position,
                              .block = block,
                              .named = named,
                              .bytes_count = (uint32_t)(content >> 32),
                              .form = TNI_LOOK(*tni_slot_form(slot))};
}

int tni_ring_find(struct tni_queue *q, struct tni_taken *ret_found)
{
    struct found found;
    if (!find_full(q, true, &found))
        return TN_ERR_TIMED_OUT;
    *ret_found = as_found(q, tni_slot_at(q, found.position), found.position, found.word);
    return 0;
}

static bool is_full(const struct tni_seen *seen)
{
    return seen->word >> 24 == tni_position_full(seen->position) >> 24;
}

bool tni_ring_sees_full(const struct tni_queue *q, struct tni_seen *ret_seen)
{
    *ret_seen = tni_ring_see(q);
    for (int i = 0; i < CLAIM_LOOKS && tni_slot_state(ret_seen->word) == TNI_SLOT_CLAIMED;
         i++) {
        tni_relax();
        *ret_seen = tni_ring_see(q);
    }
    return is_full(ret_seen);
}

bool tni_ring_is_still(const struct tni_taken *found)
{
    atomic_thread_fence(memory_order_acquire);
    return atomic_load_explicit(&found->slot->word, memory_order_relaxed) == found->word;
}

static inline void empty_slot(struct tni_queue *q, const struct tni_taken *taken)
{
    uint64_t empty = tni_slot_word(tni_slot_round(taken->word) + 1, TNI_SLOT_EMPTY, 0, 0);
    atomic_store_explicit(&taken->slot->word, empty, memory_order_release);
    TNI_KILL_POINT("pop_emptied");
    pass_emptied(q, taken->position); /* and the fence before the looks at `room`, `ended` */
    tni_wait_call(&q->handle.object->room);
    tell_end(q);
}

static inline __attribute__((always_inline)) void
take_end(struct tni_queue *q, struct tni_thread *thread, const struct tni_taken *taken)
{
    struct tn_domain *d = q->handle.domain;
    tni_block block = taken->block;
    if (block.id != 0)
        tni_ref_before_move(d, block); /* the CAS to TAKEN was the read-modify-write */
    empty_slot(q, taken);
    if (block.id != 0)
        tni_ref_adopt(d, thread, block);
}

void tni_ring_take_end(struct tni_queue *q, struct tni_thread *thread,
                       const struct tni_taken *taken)
{
    take_end(q, thread, taken);
}

/* One tensor like the last one, over no reference yet. NULL: go the long way. */
static inline tn_tensor *decode_alike(struct tni_queue *q, struct tni_thread *thread,
                                      const struct tni_taken *found)
{
    uint32_t view_bytes = tni_form_view_bytes(found->form);
    if (TNI_UNLIKELY(tni_form_form(found->form) != TNI_FORM_TENSOR ||
                     !tni_form_is_tensor(found->form) || view_bytes > q->room_bytes ||
                     found->block.id == 0))
        return NULL;
    return tni_tensor_decode_again(q->handle.domain, thread, found->block,
                                   (const void *)found->slot->data, view_bytes);
}

bool tni_ring_pop_plain(struct tni_queue *q, struct tni_seen seen, tn_tensor **ret_tensor)
{
    struct tni_thread *thread;
    if (TNI_UNLIKELY(!is_full(&seen)) ||
        TNI_UNLIKELY((thread = tni_thread_enter_home(q->handle.domain)) == NULL))
        return false;
    struct tni_taken at = as_found(q, tni_slot_at(q, seen.position), seen.position, seen.word);
    tn_tensor *tensor = decode_alike(q, thread, &at);
    bool is_taken = TNI_LIKELY(tensor != NULL) && TNI_LIKELY(tni_ring_take(q, thread, &at));
    if (TNI_LIKELY(is_taken)) {
        take_end(q, thread, &at);
        *ret_tensor = tensor;
    } else if (tensor != NULL) {
        tni_tensor_forget(thread, tensor);
    }
    tni_thread_leave(thread);
    return is_taken;
}

/*
 * A message that becomes a lease makes room if a free slot lies behind it: a push steps over
 * leases, and not over messages.
 */
static void tell_room(struct tni_queue *q)
{
    _Atomic uint32_t *room = &q->handle.object->room;
    if (TNI_UNLIKELY((atomic_load(room) & TNI_WAIT_ARMED) != 0) && tni_ring_has_room(q))
        tni_wait_call(room);
}

int tni_ring_lease(struct tni_queue *q, struct tni_thread *thread,
                   const struct tni_taken *taken)
{
    struct tn_domain *d = q->handle.domain;
    tni_block block = taken->block;
    uint32_t round = tni_slot_round(taken->word);
    if (block.id != 0) {
        int status = tni_ref_pin(d, block);
        if (status != 0)
            return status;
        TNI_KILL_POINT("lease_pinned");
        tni_ref_adopt(d, thread, block);
    }
    /*
     * The tag tells this lease from the next one of the same slot: the round may move on under
     * it.
     */
    atomic_store(&taken->slot->word, tni_slot_word(round, TNI_SLOT_LEASED, d->seat, round));
    TNI_KILL_POINT("lease_recorded");
    pass_head(q, taken->position, taken->position);
    tni_fence_after_modify();
    tell_room(q);
    return 0;
}

/* FULL again, where pops will look. pre: TAKEN or RETURNING, which nobody else moves on */
static void refill(struct tni_object *object, struct tni_slot *slot, uint64_t word,
                   uint32_t index)
{
    uint32_t round = tni_slot_round(word);
    uint16_t producer = tni_form_producer(TNI_LOOK(*tni_slot_form(slot)));
    uint64_t full = tni_slot_word(round, TNI_SLOT_FULL, producer, 0);
    if (!atomic_compare_exchange_strong(&slot->word, &word, full))
        return;
    TNI_KILL_POINT("refill_full");
    retreat_head(object, tni_position(round, index));
}

void tni_ring_discard(struct tni_queue *q, struct tni_thread *thread,
                      const struct tni_taken *taken)
{
    tni_block block = taken->block;
    empty_slot(q, taken);
    if (block.id != 0)
        tni_ref_drop(q->handle.domain, thread, block);
}

/*
 * Count one more attempt, and make the slot FULL. Its owner does this, or, when that one is
 * dead, its recoverer; and whoever comes after one of them that died in between. So the word
 * says first what the count was: who finds it different does not count again. The slot is ours
 * alone.
 */
static void give_back_slot(struct tni_object *object, struct tni_slot *slot, uint64_t word,
                           uint32_t index)
{
    uint64_t form = TNI_LOOK(*tni_slot_form(slot));
    while (tni_slot_state(word) != TNI_SLOT_RETURNING) {
        uint64_t returning = tni_slot_word(tni_slot_round(word), TNI_SLOT_RETURNING,
                                           tni_slot_seat(word), tni_form_attempt(form) & 1);
        if (atomic_compare_exchange_strong(&slot->word, &word, returning))
            word = returning;
        else if (tni_slot_state(word) != TNI_SLOT_LEASED) /* only its round moves: I2 */
            return;
    }
    TNI_KILL_POINT("slot_returning");
    form = TNI_LOOK(*tni_slot_form(slot));
    if ((tni_form_attempt(form) & 1) == tni_slot_tag(word))
        TNI_PUT(*tni_slot_form(slot), tni_form_attempted(form));
    TNI_KILL_POINT("attempt_counted");
    refill(object, slot, word, index);
}

int tni_ring_lease_end(struct tni_queue *q, uint64_t lease, bool give_back)
{
    struct tn_domain *d = q->handle.domain;
    struct tni_slot *slot = tni_slot_at(q, lease);
    uint64_t word = atomic_load(&slot->word);

    if (tni_position_index(lease) >= q->capacity || tni_slot_state(word) != TNI_SLOT_LEASED ||
        tni_slot_seat(word) != d->seat ||
        tni_slot_tag(word) != (tni_position_round(lease) & 0xff))
        return tni_fail(TN_ERR_STALE, "message %llx is not leased to this process",
                        (unsigned long long)lease);
    struct tni_thread *thread = tni_thread_enter(d);
    if (give_back) {
        give_back_slot(q->handle.object, slot, word, tni_position_index(lease));
    } else {
        tni_block block = tni_slot_block(slot);
        bool has_block = tni_geometry_has_block(&d->segment.geometry, block.id);
        if (has_block)
            tni_announce(thread, block, 1);
        bool is_leased = true;
        while (is_leased && !atomic_compare_exchange_strong(
                                &slot->word, &word,
                                tni_slot_word(tni_slot_round(word) + 1, TNI_SLOT_EMPTY, 0, 0)))
            is_leased = tni_slot_state(word) == TNI_SLOT_LEASED; /* only its round moves: I2 */
        TNI_KILL_POINT("ack_emptied");
        if (has_block && is_leased)
            tni_ref_drop(d, thread, block);
        else if (has_block)
            tni_announce_clear(thread);
    }
    tni_thread_leave(thread);
    if (give_back)
        announce_item(q);
    else
        tni_wait_call(&q->handle.object->room);
    if (!give_back)
        tell_end(q);
    return 0;
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
    struct found found;
    return scan(q, false, &found);
}

bool tni_ring_has_room(struct tni_queue *q)
{
    uint64_t tail = atomic_load(&q->handle.object->tail);
    uint64_t word = atomic_load(&tni_slot_at(q, tail)->word);
    int32_t ahead = (int32_t)(tni_slot_round(word) - tni_position_round(tail));
    return ahead >= 0 ||
           (ahead == -1 && tni_slot_state(word) == TNI_SLOT_LEASED && has_room_behind(q, tail));
}

/* ---- for the reaper: from shared memory alone, every number checked ---------------------- */

struct slots {
    uint8_t *at;
    uint32_t capacity, slot_bytes;
};

static bool get_slots(const struct tni_segment *s, const struct tni_object *object,
                      struct slots *ret)
{
    uint32_t capacity = TNI_LOOK(object->capacity), slot_bytes = TNI_LOOK(object->slot_bytes);
    if (capacity == 0 || slot_bytes < sizeof(struct tni_slot) || slot_bytes % 64 != 0)
        return false;
    ret->at = tni_object_ring(s, object, (uint64_t)capacity * slot_bytes);
    ret->capacity = capacity;
    ret->slot_bytes = slot_bytes;
    return ret->at != NULL;
}

static struct tni_slot *nth(const struct slots *slots, uint32_t i)
{
    return (struct tni_slot *)(void *)(slots->at + (size_t)i * slots->slot_bytes);
}

static bool owns_block(uint64_t word)
{
    uint32_t state = tni_slot_state(word);
    return state >= TNI_SLOT_FULL && state <= TNI_SLOT_RETURNING;
}

/* Un-record what a slot holds, then drop it. */
static void drop_slot(struct tn_domain *d, struct tni_slot *slot, uint64_t word)
{
    uint64_t empty = tni_slot_word(tni_slot_round(word) + 1, TNI_SLOT_EMPTY, 0, 0);
    tni_block block = tni_slot_block(slot);
    struct tni_thread *thread = tni_thread_enter(d);
    if (tni_geometry_has_block(&d->segment.geometry, block.id)) {
        tni_announce(thread, block, 1);
        if (atomic_compare_exchange_strong(&slot->word, &word, empty)) {
            TNI_KILL_POINT("drop_slot_emptied");
            tni_ref_drop(d, thread, block);
        } else {
            tni_announce_clear(thread);
        }
    } else {
        atomic_compare_exchange_strong(&slot->word, &word, empty);
    }
    tni_thread_leave(thread);
}

void tni_ring_settle_seat(struct tn_domain *d, struct tni_object *object, uint32_t seat)
{
    struct slots slots;
    if (!get_slots(&d->segment, object, &slots))
        return;
    for (uint32_t i = 0; i < slots.capacity; i++) {
        struct tni_slot *slot = nth(&slots, i);
        uint64_t word = atomic_load(&slot->word);
        uint32_t state = tni_slot_state(word);
        /* Refilled by the dead, perhaps, before it could say where: pops must look there. */
        if (state == TNI_SLOT_FULL)
            retreat_head(object, tni_position(tni_slot_round(word), i));
        if (tni_slot_seat(word) != seat || state == TNI_SLOT_EMPTY || state == TNI_SLOT_FULL)
            continue;
        if (state == TNI_SLOT_CLAIMED) {
            uint64_t empty = tni_slot_word(tni_slot_round(word) + 1, TNI_SLOT_EMPTY, 0, 0);
            if (atomic_compare_exchange_strong(&slot->word, &word, empty))
                note_unpushed(object);
        } else if (state == TNI_SLOT_TAKEN && object->flags == TN_QUEUE_DROP) {
            drop_slot(d, slot, word);
        } else if (state <= TNI_SLOT_RETURNING) {
            give_back_slot(object, slot, word, i);
        }
        TNI_KILL_POINT("settle_slot");
    }
}

void tni_ring_end(struct tn_domain *d, struct tni_object *object)
{
    struct slots slots;
    if (!get_slots(&d->segment, object, &slots))
        return;
    for (uint32_t i = 0; i < slots.capacity; i++) {
        uint64_t word = atomic_load(&nth(&slots, i)->word);
        if (owns_block(word))
            drop_slot(d, nth(&slots, i), word);
    }
}

uint64_t tni_ring_count_records(const struct tni_segment *s, const struct tni_object *object,
                                tni_block block)
{
    struct slots slots;
    uint64_t count = 0;
    if (!get_slots(s, object, &slots))
        return 0;
    for (uint32_t i = 0; i < slots.capacity; i++) {
        const struct tni_slot *slot = nth(&slots, i);
        count += owns_block(atomic_load(&slot->word)) && tni_slot_block(slot).id == block.id;
    }
    return count;
}

void tni_ring_for_each_record(const struct tni_segment *s, const struct tni_object *object,
                              tni_record_fn *each, void *context)
{
    struct slots slots;
    if (!get_slots(s, object, &slots))
        return;
    for (uint32_t i = 0; i < slots.capacity; i++) {
        const struct tni_slot *slot = nth(&slots, i);
        uint32_t block = tni_slot_block(slot).id;
        if (owns_block(atomic_load(&slot->word)) && block != 0)
            each((tni_block){block}, context);
    }
}

/*
 * Asked in this order: a seat becomes FREE once its slots are settled, so a slot that names a
 * free seat, and still does, is one that nobody will settle.
 */
static bool is_stray(const struct tni_segment *s, const struct tni_slot *slot)
{
    uint64_t word = atomic_load(&slot->word);
    uint32_t state = tni_slot_state(word), seat = tni_slot_seat(word);
    if (state == TNI_SLOT_EMPTY || state == TNI_SLOT_FULL || state > TNI_SLOT_RETURNING)
        return false;
    return (!tni_geometry_has_seat(&s->geometry, seat) ||
            tni_seat_state(atomic_load(&tni_seat_at(s, seat)->word)) == TNI_SEAT_FREE) &&
           atomic_load(&slot->word) == word;
}

uint32_t tni_queue_count_strays(const struct tni_segment *s, uint32_t index)
{
    struct slots slots;
    uint32_t count = 0;
    if (!get_slots(s, tni_object_at(s, index), &slots))
        return 0;
    for (uint32_t i = 0; i < slots.capacity; i++)
        count += is_stray(s, nth(&slots, i));
    return count;
}

/* From the tail on, to the first position that nobody pushed to. */
static uint64_t count_pushed(const struct tni_object *object, const struct slots *slots)
{
    uint64_t at = atomic_load(&object->tail), unpushed = atomic_load(&object->unpushed);
    uint64_t passed =
        (uint64_t)tni_position_round(at) * slots->capacity + tni_position_index(at);
    for (uint32_t n = 0; n < slots->capacity; n++, at = after(at, slots->capacity), passed++) {
        uint32_t index = tni_position_index(at) % slots->capacity;
        if (!was_pushed_to(atomic_load(&nth(slots, index)->word), at))
            break;
    }
    uint64_t pushed = passed - unpushed; /* `unpushed` is below 0 once rounds have wrapped */
    return (int64_t)pushed < 0 ? 0 : pushed;
}

void tni_queue_figures(const struct tni_segment *s, uint32_t index,
                       struct tni_queue_figures *ret_figures)
{
    struct tni_queue_figures f = {0};
    struct slots slots;
    if (get_slots(s, tni_object_at(s, index), &slots)) {
        f.pushed = count_pushed(tni_object_at(s, index), &slots);
        for (uint32_t i = 0; i < slots.capacity; i++) {
            struct tni_slot *slot = nth(&slots, i);
            uint32_t state = tni_slot_state(atomic_load(&slot->word));
            bool is_out = state >= TNI_SLOT_TAKEN && state <= TNI_SLOT_RETURNING;
            f.full += state == TNI_SLOT_FULL;
            f.leased += is_out;
            f.redelivered += (state == TNI_SLOT_FULL || is_out) &&
                             tni_form_attempt(TNI_LOOK(*tni_slot_form(slot))) != 0;
            f.claimed += state == TNI_SLOT_CLAIMED;
        }
    }
    *ret_figures = f;
}
