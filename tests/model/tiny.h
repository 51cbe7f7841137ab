/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tiny: a tiny domain in the memory of a model, made by hand, without a system call.
 *
 * Process i of the model sits in seat i, as pid i + 1, or is one more thread of the first, in
 * seat 0. One seat more is free, for the janitor: whoever reclaims, in check(), what is left.
 * Blocks: `blocks` of payload and at most one message block. What no scenario writes lies in
 * private memory, so that to read it is no step; tiny_check_constants() proves that nobody
 * wrote there.
 */
#ifndef TENON_TESTS_MODEL_TINY_H
#define TENON_TESTS_MODEL_TINY_H

#include "model.h"
#include "queue/ring.h"
#include "ref/ref.h"
#include "share/ticket.h"
#include "tiny_os.h"

enum { TINY_MOST_BLOCKS = 4, TINY_PAYLOAD_CLASS = TNI_SMALL_CLASS };

struct tiny_spec {
    uint32_t processes;
    uint32_t seats; /* without the janitor's: of the processes, then of others */
    uint32_t blocks;
    bool has_message; /* a message block */
    uint32_t tickets;
    uint32_t slots;     /* of one queue, whose ring is the last block of payload; 0: none */
    uint32_t objects;   /* free entries behind the queue */
    bool has_alloc;     /* blocks are allocated, not only held from the beginning */
    bool are_joining;   /* seats are free at first, but for tiny_sit() */
    bool has_threads;   /* locked instructions for what only own threads touch */
    uint32_t threads;   /* so many of the processes are threads of the first; none is killed */
    bool has_no_slices; /* who sleeps until somebody wakes it does not look between */
};

/** Lay the domain out; in setup(). */
void tiny_begin(const struct tiny_spec *spec);

extern struct tni_segment tiny_segment;
/** The private object of each process, and of who runs check(). */
extern struct tn_domain *tiny_domains[MODEL_MOST_PROCESSES + 1];
/** Of the process that runs. */
struct tn_domain *tiny_me(void);

/** A block of payload, and the message block. */
static inline tni_block tiny_block(uint32_t index)
{
    return tni_block_make(TINY_PAYLOAD_CLASS, index);
}
static inline tni_block tiny_message(void) { return tni_block_make(1, 0); }

/* ---- for setup() ------------------------------------------------------------------------- */

/** A process sits in a seat from the beginning. */
void tiny_sit(uint32_t process, uint32_t seat);
/** A block is allocated, and a seat holds it, with so many local references. */
void tiny_hold(uint32_t seat, tni_block block, uint32_t references);
/** A seat whose process died as it announced a block, whose count it left one too high. */
void tiny_dead_announces(uint32_t seat, tni_block block);
/** A seat's process died before the model began. */
void tiny_kill(uint32_t seat);
/** A message block that a seat holds, with these records. */
void tiny_fill_message(uint32_t seat, const tni_block *blocks, uint32_t count);
/** A seat is being reclaimed by another one. */
void tiny_reclaimed_by(uint32_t seat, uint32_t recoverer);
/** A slot of the queue is in this state, by this seat, and owns a block (0: none). */
void tiny_slot(uint32_t index, uint32_t state, uint32_t seat, tni_block block);
/** A live ticket of generation 1. */
void tiny_ticket(uint32_t index, tni_block block, uint32_t uses, uint32_t issuer);
/** The process's handle on the queue. */
struct tni_queue *tiny_queue(uint32_t process);
/** Tell a domain of the kinds that models make. */
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

/** Wait until somebody has died, or all others have ended. @return whether somebody has died */
bool tiny_await_death(void);
/** Reclaim who is dead now. */
void tiny_reclaim_all(void);
/** Reclaim the dead until no dead process has a seat, and whoever else reclaims them is done.
 */
void tiny_reclaim_until_done(void);
/** A reference that this process has: its block is allocated, and of this generation. */
void tiny_check_mine(tni_block block, uint32_t generation);
uint32_t tiny_generation(tni_block block);
/** header->recounted, without a step. */
uint64_t tiny_recounted(void);

/* ---- what must hold ---------------------------------------------------------------------- */

/** count >= records; nothing that is recorded is FREE. To be called after every step. */
void tiny_invariant(void);
/**
 * Everybody has ended or is dead: the janitor reclaims the dead; then count = records, FREE
 * exactly when both are 0, no announce, no claim, and each living process has what it believes
 * to have.
 */
void tiny_check(void);
/** Explore a model in every memory that this program is compiled for; fail the test, with the
 * trace, unless it holds. */
void tiny_explore(const struct model *model);
/** How far the models go: as far as `make test` has time for; TN_TEST_FULL; TN_MODEL_DEEP. */
enum tiny_size { TINY_QUICK, TINY_FULL, TINY_DEEP };
enum tiny_size tiny_size(void);
/**
 * The same of a model with many states: at a smaller size than this, all of it in sequential
 * consistency, in the tests for x86-64 only; and of a model with deaths, the machine's own
 * orders without a death.
 */
void tiny_explore_at(enum tiny_size size, const struct model *model);
/** The same, of what is the kernel's, which is sequentially consistent. */
void tiny_explore_in_order(const struct model *model);
/** Sizes that take minutes are wanted: TN_MODEL_DEEP. */
bool tiny_is_deep(void);
/** The largest models are to be smaller: C11 has many more states, and it is not TN_MODEL_DEEP.
 */
bool tiny_is_tight(void);
/** Smaller still: C11, and TINY_QUICK. */
bool tiny_is_tightest(void);
/** The same, and the living have left nothing for the janitor to do. */
void tiny_check_reclaimed(void);
/** Blocks of payload that are not FREE. */
uint32_t tiny_allocated(void);

#endif
