/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tiny: a very small domain in the memory of a model, made without a system call.
 *
 * Process i of the model has seat i and the pid i + 1, or is another thread of the first
 * process, in seat 0. One more seat is free for the janitor, which reclaims in check() all
 * that is left. Blocks: `blocks` of payload, and message blocks. Memory that no
 * scenario writes is private, so that a read of it is no step; tiny_check_constants() checks
 * that no process wrote there.
 */
#ifndef TENON_TESTS_MODEL_TINY_H
#define TENON_TESTS_MODEL_TINY_H

#include "model.h"
#include "queue/ring.h"
#include "ref/ref.h"
#include "share/ticket.h"
#include "tiny_os.h"

enum { TINY_MOST_BLOCKS = 4, TINY_MOST_MESSAGES = 8, TINY_PAYLOAD_CLASS = TNI_SMALL_CLASS };

struct tiny_spec {
    uint32_t processes;
    uint32_t seats; /* without the seat of the janitor: first those of the processes */
    uint32_t blocks;
    uint32_t messages;      /* message blocks */
    uint32_t message_bytes; /* of each; 0: 64 */
    uint32_t tickets;
    uint32_t slots;   /* of one queue, whose ring is the last block of payload; 0: none */
    uint32_t objects; /* free entries behind the queue */
    /* Of one object of another kind in place of the queue, which setup() fills in; 0: none. Its
       ring is the last block of payload, and `count_records` counts what it keeps, without a
       step. */
    uint32_t ring_bytes;
    uint32_t (*count_records)(tni_block block);
    bool has_alloc;   /* blocks are allocated, not only held from the beginning */
    bool are_joining; /* each seat is free at first, unless tiny_sit() takes it */
    bool has_threads; /* locked instructions for words that only threads of one process write */
    uint32_t threads; /* this many of the processes are threads of the first; none is killed */
    bool has_no_slices; /* a sleeper does not wake up by itself to scan for dead processes */
};

/** Lay the domain out; in setup(). */
void tiny_begin(const struct tiny_spec *spec);

extern struct tni_segment tiny_segment;
/** The private object of each process, and that of check(). */
extern struct tn_domain *tiny_domains[MODEL_MOST_PROCESSES + 1];
/** That of the running process. */
struct tn_domain *tiny_me(void);

/** A block of payload, and a message block. */
static inline tni_block tiny_block(uint32_t index)
{
    return tni_block_make(TINY_PAYLOAD_CLASS, index);
}
static inline tni_block tiny_message_at(uint32_t index) { return tni_block_make(1, index); }
static inline tni_block tiny_message(void) { return tiny_message_at(0); }

/* ---- for setup() ------------------------------------------------------------------------- */

/** Give a process a seat from the beginning. */
void tiny_sit(uint32_t process, uint32_t seat);
/** Allocate a block that a seat holds with this many local references. */
void tiny_hold(uint32_t seat, tni_block block, uint32_t references);
/** A dead process has announced a block and left the count of the block one too high. */
void tiny_dead_announces(uint32_t seat, tni_block block);
/** The process of a seat died before the model began. */
void tiny_kill(uint32_t seat);
/** Make the first message block with these records, which a seat holds. */
void tiny_fill_message(uint32_t seat, const tni_block *blocks, uint32_t count);
/** A seat is being reclaimed by another one. */
void tiny_reclaimed_by(uint32_t seat, uint32_t recoverer);
/** A slot of the queue is in this state, by this seat, and owns a block (0: none). */
void tiny_slot(uint32_t index, uint32_t state, uint32_t seat, tni_block block);
/** A live ticket of generation 1. */
void tiny_ticket(uint32_t index, tni_block block, uint32_t uses, uint32_t issuer);
/** The process's handle on the queue. */
struct tni_queue *tiny_queue(uint32_t process);
/** Register the kinds of objects that models make. */
void tiny_set_kinds(struct tn_domain *domain);
/** Find a message and take it, as a pop does. @return whether there is one */
static inline bool tiny_take(struct tni_queue *queue, struct tni_thread *thread,
                             struct tni_taken *ret_taken)
{
    while (tni_ring_find(queue, ret_taken) == 0)
        if (tni_ring_take(queue, thread, ret_taken))
            return true;
    return false;
}

/* ---- for scenarios ----------------------------------------------------------------------- */

/** Wait until a process has died, or all others have ended. @return whether one has died */
bool tiny_await_death(void);
/** Reclaim the processes that are dead now. */
void tiny_reclaim_all(void);
/** Reclaim until no dead process has a seat and each other reclaimer has finished. */
void tiny_reclaim_until_done(void);
/** Check a reference of this process: its block is allocated and has this generation. */
void tiny_check_mine(tni_block block, uint32_t generation);
uint32_t tiny_generation(tni_block block);
/** header->recounted, without a step. */
uint64_t tiny_recounted(void);

/* ---- what must hold ---------------------------------------------------------------------- */

/** Check that count >= records and that no recorded block is FREE. For every step. */
void tiny_invariant(void);
/**
 * For check(): the janitor reclaims dead processes. Then count = records, a block is FREE if
 * and only if both are 0, there is no announce and no claim, and each live process has the
 * references that it believes to have.
 */
void tiny_check(void);
/** Explore a model in every memory that this program is compiled for; fail the test, with the
 * trace, unless it holds. */
void tiny_explore(const struct model *model);
/** The size of the models: that of `make test`, of TN_TEST_FULL, of TN_MODEL_DEEP. */
enum tiny_size { TINY_QUICK, TINY_FULL, TINY_DEEP };
enum tiny_size tiny_size(void);
/**
 * Explore a model with many states. At a smaller size than `size`, the tests for x86-64
 * explore it in sequential consistency only; a model with deaths is also explored in the
 * memory of the machine without a death.
 */
void tiny_explore_at(enum tiny_size size, const struct model *model);
/** Explore a model whose shared state is in the kernel, which is sequentially consistent. */
void tiny_explore_in_order(const struct model *model);
/** Whether TN_MODEL_DEEP asks for sizes that take minutes. */
bool tiny_is_deep(void);
/**
 * Whether the largest models must be smaller: C11, which has many more states, without
 * TN_MODEL_DEEP.
 */
bool tiny_is_tight(void);
/** Whether they must be smaller still: C11 and TINY_QUICK. */
bool tiny_is_tightest(void);
/** As tiny_check(), and the live processes have left nothing for the janitor. */
void tiny_check_reclaimed(void);
/** Blocks of payload that are not FREE. */
uint32_t tiny_allocated(void);
/** Message blocks that are not FREE. */
uint32_t tiny_allocated_messages(void);
/** For check(), after tiny_check(): count = records, and a block is FREE if both are 0. */
void tiny_check_blocks(void);

#endif
