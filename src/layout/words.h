/* SPDX-License-Identifier: Apache-2.0 */
/*
 * words: the words of shared memory whose bits are fields, and the only functions that encode
 * and decode them.
 *
 * {name:bits, ...} lists the fields of a word, the highest bits first. tests/abi/words_test.c
 * has a table of all such words and checks it against these functions, and `dev/layout-table.py
 * --check` compares every {name:bits, ...} in the sources and in docs/layout.md with that
 * table.
 *
 * A decoded number comes from shared memory: the caller checks it before use.
 */
#ifndef TNI_LAYOUT_WORDS_H
#define TNI_LAYOUT_WORDS_H

#include <stdbool.h>
#include <stdint.h>

/* ---- seats ------------------------------------------------------------------------------- */

/*
 * A seat's word is {incarnation:32, state:8, recoverer:24}. The states are:
 *
 *   FREE -> JOINING (taken; holds may be written already) -> ALIVE -> LEAVING -> FREE
 *   JOINING, ALIVE, LEAVING of a dead process -> REAPING -> FREE
 *
 * Each change to FREE raises the incarnation. While a seat is REAPING, `recoverer` names the
 * seat that reclaims it, as {incarnation:14, seat:10}; TNI_SEAT_NOBODY: no seat does yet. While
 * a seat is JOINING, ALIVE or LEAVING, `recoverer` is {unused:1, witnessed:1, pid:22}, where
 * `witnessed` says that the process has a witness (process.c, I4), and pid is 0 once the seat
 * is ALIVE. JOINING with TNI_SEAT_NOBODY is the seat of a child that does not exist.
 */
enum {
    TNI_SEAT_FREE = 0,
    TNI_SEAT_JOINING = 1,
    TNI_SEAT_ALIVE = 2,
    TNI_SEAT_LEAVING = 3,
    TNI_SEAT_REAPING = 4
};
#define TNI_SEAT_WITNESSED (1u << 22)
enum { TNI_SEAT_NOBODY = 0xffffff };
static inline uint32_t tni_seat_incarnation(uint64_t word) { return (uint32_t)(word >> 32); }
static inline uint32_t tni_seat_state(uint64_t word) { return (uint32_t)(word >> 24) & 0xff; }
static inline uint32_t tni_seat_recoverer(uint64_t word) { return (uint32_t)word & 0xffffff; }
/** The process that a JOINING or LEAVING seat names. */
static inline int32_t tni_seat_pid(uint64_t word)
{
    return (int32_t)(tni_seat_recoverer(word) & (TNI_SEAT_WITNESSED - 1));
}
static inline uint64_t tni_seat_word(uint32_t incarnation, uint32_t state, uint32_t recoverer)
{
    return (uint64_t)incarnation << 32 | (uint64_t)state << 24 | recoverer;
}
/** The value of `recoverer` that names a seat. Its incarnation tells later owners apart. */
static inline uint32_t tni_recoverer(uint32_t seat, uint32_t incarnation)
{
    return (incarnation << 10 | seat) & 0xffffff;
}
static inline uint32_t tni_recoverer_seat(uint32_t recoverer) { return recoverer & 0x3ff; }

/* `who` names the process of a seat: {incarnation:32, seat:16, 1:16}; 0 names no process. */
static inline uint64_t tni_who(uint32_t seat, uint32_t incarnation)
{
    return (uint64_t)incarnation << 32 | (uint64_t)(seat & 0xffff) << 16 | 1;
}
static inline uint32_t tni_who_seat(uint64_t who) { return (uint32_t)(who >> 16) & 0xffff; }
static inline uint32_t tni_who_incarnation(uint64_t who) { return (uint32_t)(who >> 32); }

/*
 * `bell_fd_armed` of a seat: {epoch:31, armed:1}. The epoch changes each time that the seat's
 * owner arms the word.
 */
enum { TNI_BELL_ARMED = 1, TNI_BELL_EPOCH = 2 };

/* ---- blocks ------------------------------------------------------------------------------ */

typedef struct tni_block {
    uint32_t id; /* {class:8, index:24}; 0 is no block */
} tni_block;
static inline uint32_t tni_block_class(tni_block block) { return block.id >> 24; }
static inline uint32_t tni_block_index(tni_block block) { return block.id & 0xffffff; }
static inline tni_block tni_block_make(uint32_t class_id, uint32_t index)
{
    return (tni_block){class_id << 24 | index};
}

/*
 * A block's word is {version:38, state:2, count:24}. One fetch_add changes count and version
 * together, and a version that overflows carries into no other field.
 */
enum { TNI_BLOCK_FREE = 0, TNI_BLOCK_ALLOC = 1 };
#define TNI_WORD_VERSION_ONE (UINT64_C(1) << 26)
#define TNI_WORD_INC         (TNI_WORD_VERSION_ONE + 1)
#define TNI_WORD_DEC         (TNI_WORD_VERSION_ONE - 1)
#define TNI_WORD_USED        UINT64_C(0x3ffffff) /* state and count; 0 is FREE with count 0 */
static inline uint32_t tni_word_count(uint64_t word) { return (uint32_t)(word & 0xffffff); }
static inline uint32_t tni_word_state(uint64_t word) { return (uint32_t)(word >> 24) & 3; }
/** The successor of `word`: the next version, with this state and count. */
static inline uint64_t tni_word_next(uint64_t word, uint32_t state, uint32_t count)
{
    return ((word & ~TNI_WORD_USED) + TNI_WORD_VERSION_ONE) | ((uint64_t)state << 24) | count;
}

/*
 * The block or object that is being recounted: {turn:32, block:32}. Class 255 has no blocks, so
 * a `block` of class 255 stands for an object: its index is the index of the object.
 */
static inline uint32_t tni_recounted_object(uint32_t index)
{
    return UINT32_C(0xff) << 24 | index;
}
static inline uint64_t tni_recounted_next(uint64_t word, uint32_t block_or_object)
{
    return ((word >> 32) + 1) << 32 | block_or_object;
}

/* The strategy of a storage outside the arena: {generation:24, strategy:8}; 0: no object. */
enum { TNI_STRATEGY_BITS = 8 };
static inline uint32_t tni_strategy_word(uint32_t strategy, uint32_t generation)
{
    return generation << TNI_STRATEGY_BITS | strategy;
}

/* ---- objects ----------------------------------------------------------------------------- */

/* An object's word is {generation:32, maker:16, state:8, kind:8}; `maker` is a seat. */
enum { TNI_OBJECT_MAKING = 1, TNI_OBJECT_LIVE = 2, TNI_OBJECT_ENDING = 3 };
static inline uint32_t tni_object_generation(uint64_t word) { return (uint32_t)(word >> 32); }
static inline uint32_t tni_object_maker(uint64_t word)
{
    return (uint32_t)(word >> 16) & 0xffff;
}
static inline uint32_t tni_object_state(uint64_t word) { return (uint32_t)(word >> 8) & 0xff; }
static inline uint32_t tni_object_kind(uint64_t word) { return (uint32_t)word & 0xff; }
static inline uint64_t tni_object_word(uint32_t generation, uint32_t maker, uint32_t state,
                                       uint32_t kind)
{
    return (uint64_t)generation << 32 | (uint64_t)maker << 16 | (uint64_t)state << 8 | kind;
}

/* The last death at an object: {deaths:32, seat:16, 1:16}; 0: none. */
static inline uint32_t tni_death_count(uint64_t death) { return (uint32_t)(death >> 32); }
static inline uint64_t tni_death_word(uint32_t deaths, uint32_t seat)
{
    return (uint64_t)deaths << 32 | (uint64_t)(seat & 0xffff) << 16 | 1;
}

/*
 * A lock's word: 0, or only RECOVERED (free, and the last owner died), or
 * {held:1, recovered:1, incarnation:22, seat:16, thread:24} of the owner.
 */
#define TNI_LOCK_HELD      (UINT64_C(1) << 63)
#define TNI_LOCK_RECOVERED (UINT64_C(1) << 62)
static inline uint64_t tni_lock_word(uint32_t incarnation, uint32_t seat, uint32_t thread)
{
    return TNI_LOCK_HELD | (uint64_t)(incarnation & 0x3fffff) << 40 |
           (uint64_t)(seat & 0xffff) << 24 | (thread & 0xffffff);
}
static inline uint32_t tni_lock_incarnation(uint64_t word)
{
    return (uint32_t)(word >> 40) & 0x3fffff;
}
static inline uint32_t tni_lock_seat(uint64_t word) { return (uint32_t)(word >> 24) & 0xffff; }
static inline uint32_t tni_lock_thread(uint64_t word) { return (uint32_t)word & 0xffffff; }

/*
 * A semaphore's word is {version:32, permits:32}. The word of an owned semaphore of one permit
 * is {holder:32, permits:32}, where `holder` is the seat of the holder + 1, or 0.
 */
static inline uint32_t tni_semaphore_permits(uint64_t word) { return (uint32_t)word; }
static inline uint64_t tni_semaphore_one_held(uint32_t seat)
{
    return (uint64_t)(seat + 1) << 32;
}
/** The holder's seat; TNI_NO_SEAT (0xffff): the permit is free. */
static inline uint32_t tni_semaphore_one_holder(uint64_t word)
{
    uint32_t holder = (uint32_t)(word >> 32);
    return holder != 0 ? holder - 1 : 0xffff;
}

/* A barrier's word: {generation:24, fates:16, arrived:16, fate:8}; `fates` has 8 x 2 bits. */
static inline uint32_t tni_barrier_generation(uint64_t word) { return (uint32_t)(word >> 40); }
static inline uint32_t tni_barrier_fates(uint64_t word)
{
    return (uint32_t)(word >> 24) & 0xffff;
}
static inline uint32_t tni_barrier_arrived(uint64_t word)
{
    return (uint32_t)(word >> 8) & 0xffff;
}
static inline uint32_t tni_barrier_fate(uint64_t word) { return (uint32_t)word & 0xff; }
/** Whether waiters get an error until tn_barrier_reset(). */
static inline bool tni_barrier_is_broken(uint64_t word) { return tni_barrier_fate(word) != 0; }

/* The dead owner of a lock, or the process that broke a barrier: {pid:32, seat:16, 1:16}. */
static inline uint64_t tni_dead_make(uint32_t pid, uint32_t seat)
{
    return (uint64_t)pid << 32 | (uint64_t)(seat & 0xffff) << 16 | 1;
}
static inline uint32_t tni_dead_seat(uint64_t dead) { return (uint32_t)(dead >> 16) & 0xffff; }
static inline int32_t tni_dead_pid(uint64_t dead) { return (int32_t)(uint32_t)(dead >> 32); }

/* ---- slots of a queue -------------------------------------------------------------------- */

/*
 * A slot's word is {round:32, state:8, seat:16, tag:8}. `tag` is the number of a thread; in a
 * RETURNING slot `tag` is the lowest bit of `attempt`.
 */
enum {
    TNI_SLOT_EMPTY = 0,
    TNI_SLOT_CLAIMED = 1,
    TNI_SLOT_FULL = 2,
    TNI_SLOT_TAKEN = 3,
    TNI_SLOT_LEASED = 4,
    TNI_SLOT_RETURNING = 5 /* from LEASED to FULL */
};
static inline uint32_t tni_slot_round(uint64_t word) { return (uint32_t)(word >> 32); }
static inline uint32_t tni_slot_state(uint64_t word) { return (uint32_t)(word >> 24) & 0xff; }
static inline uint32_t tni_slot_seat(uint64_t word) { return (uint32_t)(word >> 8) & 0xffff; }
static inline uint32_t tni_slot_tag(uint64_t word) { return (uint32_t)word & 0xff; }
static inline uint64_t tni_slot_word(uint32_t round, uint32_t state, uint32_t seat,
                                     uint32_t tag)
{
    return (uint64_t)round << 32 | (uint64_t)state << 24 | (uint64_t)(seat & 0xffff) << 8 |
           (tag & 0xff);
}

/* A position in a ring is {round:32, index:32}, with the index of a slot; rounds wrap. */
static inline uint32_t tni_position_round(uint64_t position)
{
    return (uint32_t)(position >> 32);
}
static inline uint32_t tni_position_index(uint64_t position) { return (uint32_t)position; }
static inline uint64_t tni_position(uint32_t round, uint32_t index)
{
    return (uint64_t)round << 32 | index;
}
/** The word of the slot at this position before a push. */
static inline uint64_t tni_position_empty(uint64_t position)
{
    return position - tni_position_index(position);
}
/** The word of the slot once it is FULL, without seat and tag. */
static inline uint64_t tni_position_full(uint64_t position)
{
    return tni_position_empty(position) | (uint64_t)TNI_SLOT_FULL << 24;
}

/*
 * The fields `block` and `bytes_count` of a slot, read and written as one word, its content:
 * {bytes_count:32, block:32}.
 */
static inline uint64_t tni_content_make(uint32_t bytes_count, uint32_t block)
{
    return (uint64_t)bytes_count << 32 | block;
}
static inline uint32_t tni_content_bytes(uint64_t content) { return (uint32_t)(content >> 32); }
static inline uint32_t tni_content_block(uint64_t content) { return (uint32_t)content; }

/*
 * The fields `view_bytes` to `producer` of a slot, read and written as one word, its form:
 * {producer:16, attempt:16, is_tensor:8, form:8, view_bytes:16}. A new form has attempt 0.
 */
static inline uint64_t tni_slot_make_form(uint32_t view_bytes, uint8_t form, bool is_tensor,
                                          uint32_t producer)
{
    return (uint64_t)(producer & 0xffff) << 48 | (uint64_t)is_tensor << 24 |
           (uint64_t)form << 16 | (view_bytes & 0xffff);
}
static inline uint32_t tni_form_view_bytes(uint64_t form) { return form & 0xffff; }
static inline uint8_t tni_form_form(uint64_t form) { return (uint8_t)(form >> 16); }
static inline bool tni_form_is_tensor(uint64_t form) { return (form >> 24 & 0xff) == 1; }
static inline uint16_t tni_form_attempt(uint64_t form) { return (uint16_t)(form >> 32); }
static inline uint16_t tni_form_producer(uint64_t form) { return (uint16_t)(form >> 48); }
/** The form with its attempt raised by one. */
static inline uint64_t tni_form_attempted(uint64_t form)
{
    const uint64_t attempts = UINT64_C(0xffff) << 32;
    return (form & ~attempts) | ((form + (UINT64_C(1) << 32)) & attempts);
}

/* ---- tickets ----------------------------------------------------------------------------- */

/* A ticket's word is {generation:36, state:8, uses:20}. A LIVE ticket owns a reference. */
enum {
    TNI_TICKET_FREE = 0,   /* never used, or ended long ago */
    TNI_TICKET_MAKING = 1, /* `uses` is the maker's seat */
    TNI_TICKET_LIVE = 2,
    TNI_TICKET_USED =
        3, /* USED, REVOKED, EXPIRED: why the ticket ended; the entry may be taken again */
    TNI_TICKET_REVOKED = 4,
    TNI_TICKET_EXPIRED = 5
};
#define TNI_TICKET_GENERATIONS (UINT64_C(1) << 36)
enum { TNI_TICKET_MAX_USES = (1 << 20) - 1 };
static inline uint64_t tni_ticket_word(uint64_t generation, uint32_t state, uint32_t uses)
{
    return generation << 28 | (uint64_t)state << 20 | uses;
}
static inline uint64_t tni_ticket_generation(uint64_t word) { return word >> 28; }
static inline uint32_t tni_ticket_state(uint64_t word) { return (uint32_t)(word >> 20) & 0xff; }
static inline uint32_t tni_ticket_uses(uint64_t word)
{
    return (uint32_t)word & TNI_TICKET_MAX_USES;
}
/** The seat of the process that makes the ticket. pre: MAKING */
static inline uint32_t tni_ticket_maker(uint64_t word) { return tni_ticket_uses(word); }

/*
 * The public id of a ticket is {generation:44, index:20}. The public id of an object is
 * {generation:32, number:32}.
 */
static inline uint64_t tni_ticket_id(uint64_t generation, uint32_t index)
{
    return generation << 20 | index;
}
/* `number` is the index + 1, so that no object has the id 0. */
static inline uint64_t tni_object_id(uint32_t generation, uint32_t index)
{
    return (uint64_t)generation << 32 | (index + 1);
}
/** For the id 0 and others that name no entry: an index that no table has. */
static inline uint32_t tni_object_id_index(uint64_t id) { return (uint32_t)id - 1; }
static inline uint32_t tni_object_id_generation(uint64_t id) { return (uint32_t)(id >> 32); }

/* ---- timelines --------------------------------------------------------------------------- */

/*
 * A token is {timeline:12, value:52}: what it stands for is ready once the word of the timeline
 * has reached `value`. `timeline` is the index + 1; the token 0 stands for what is ready.
 */
#define TNI_TOKEN_VALUES (UINT64_C(1) << 52)
static inline uint64_t tni_token_make(uint32_t timeline, uint64_t value)
{
    return (timeline + UINT64_C(1)) << 52 | value;
}
/** The index. Of the token 0, and of others that name no timeline: one that no table has. */
static inline uint32_t tni_token_timeline(uint64_t token)
{
    return (uint32_t)(token >> 52) - 1;
}
static inline uint64_t tni_token_value(uint64_t token)
{
    return token & (TNI_TOKEN_VALUES - 1);
}

#endif
