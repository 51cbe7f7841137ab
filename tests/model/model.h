/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model: every interleaving, every kill, of the shipped source.
 *
 * The rooms of src/ are compiled a second time with -fsanitize=thread, and linked with a
 * runtime of ours in place of the sanitizer's: each access to shared memory, atomic or not,
 * with its memory order, is a call of the explorer. What is explored is therefore the source
 * itself, not a description of it.
 *
 * Nouns: process (a coroutine with private memory), world (all memory that the model has), step
 * (one access that others can see, by one process), state (the world, the stacks, and what the
 * memory model remembers).
 *
 * A model is run like this: setup() alone; then every order of the steps of run[0..n), with up
 * to `kills` processes ended before any of their steps; then, once each has returned or is
 * dead, check() alone. States that were seen before are not gone through again.
 *
 * Memory: MODEL_SC, sequential consistency. MODEL_TSO, a store buffer for each process, as x86
 * has it: the source as it is compiled for x86-64. MODEL_C11, release/acquire/relaxed/seq_cst
 * and fences of C11 by views: a load may read any store that its process has not seen to be
 * overwritten; the source as it is compiled for other machines. A plain access that races is a
 * failure.
 */
#ifndef TENON_TESTS_MODEL_H
#define TENON_TESTS_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MODEL_MOST_PROCESSES = 5 };
enum model_memory { MODEL_SC, MODEL_TSO, MODEL_C11 };

struct model {
    const char *name; /* a sentence: what holds */
    unsigned process_count;
    unsigned kills; /* most processes that die in one run */
    void (*setup)(void);
    void (*run[MODEL_MOST_PROCESSES])(void);
    void (*check)(void);     /* all have ended or are dead; may itself run library code */
    void (*invariant)(void); /* after every step, reads only; may be NULL */
    uint64_t most_states;    /* give up, and fail, above; 0: 20 million */
};

struct model_result {
    uint64_t states, steps, ends; /* ends: of whole runs that were checked */
    uint64_t killed;              /* of them with a kill */
    uint64_t outcomes;   /* numbers below 64 that model_outcome() was told, a bit each */
    const char *failure; /* NULL: none; else the sentence of model_require() */
    bool is_too_large; /* what failed is only that there are more states, or stores, than there
                          is room for */
    char trace[4096];  /* of the failing run: process, step, place, value; a line each */
};

/** @return whether it holds. `seconds` 0: to the end; else a failure when it takes longer. */
bool model_explore(const struct model *model, enum model_memory memory, unsigned seconds,
                   struct model_result *ret_result);

/* ---- for models -------------------------------------------------------------------------- */

/** Memory of the world, zeroed, at the same address in every run; only in setup(). */
void *model_shared(size_t bytes, size_t alignment);
/** The same for what one process alone uses: its accesses are no steps. */
void *model_private(size_t bytes, size_t alignment);

/** Which process runs; in setup() and check(): the number of processes. */
unsigned model_self(void);
/** For check() and for stand-ins of the os room: whether a process was killed, has returned. */
bool model_is_dead(unsigned process);
bool model_has_ended(unsigned process);
/** As model_is_dead(), but no step: for who has just been in model_yield(). */
bool model_peek_dead(unsigned process);

/** Fail the model, with the trace of this run, unless it holds. */
void model_require(bool holds, const char *sentence);

/** In check(): what came of this run, a number below 64. */
void model_outcome(unsigned number);

/**
 * A name for the trace. No step of its own: a process may die after each of its writes, and
 * what it does until its next one nobody sees.
 */
void model_point(const char *name);
/** What lies there, for the trace; in setup(). `name` stays the caller's. */
void model_name(const void *at, size_t bytes, const char *name);
/**
 * Plain accesses of these bytes may race, for a reason; in setup(). They are explored as
 * relaxed atomic accesses are. All other races are failures.
 */
void model_allow_race(const void *at, size_t bytes, const char *reason);

/** A number below `count`, every one of which is tried: what the world outside may do. */
unsigned model_choose(unsigned count);

/** Sleep if *word == seen, as a futex does; all processes asleep is a failure (a lost wake). */
void model_sleep(_Atomic uint32_t *word, uint32_t seen);
/** As model_sleep(), but may also end by itself. @return false: it did, a timeout */
bool model_sleep_timed(_Atomic uint32_t *word, uint32_t seen);
/** The same, but only once somebody died, and as often in each process as somebody did. */
bool model_sleep_slice(_Atomic uint32_t *word, uint32_t seen);
/** Wake up to `count` sleepers; which ones is a choice. @return how many */
unsigned model_wake(_Atomic uint32_t *word, unsigned count);
/** Not to be run again before somebody else changed the world, or ended. */
void model_yield(void);
/** As model_yield(), but once nobody else can go on it ends, with false. For patience. */
bool model_yield_timed(void);

#endif
