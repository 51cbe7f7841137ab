/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model: run the shipped source in every interleaving and with a kill before any step.
 *
 * The rooms of src/ are compiled a second time with -fsanitize=thread, and linked with a
 * runtime of this folder in place of the sanitizer's: each access to shared memory, atomic or
 * not, with its memory order, is a call of the explorer. So a model explores the source itself,
 * not a description of it.
 *
 * Nouns: process (a coroutine with private memory), world (all memory that the model has), step
 * (one access that others can see, by one process), state (the world, the stacks, and what the
 * memory model remembers).
 *
 * The explorer runs setup() alone. Then it runs run[0..n) in every order of their steps, and
 * kills up to `kills` processes before any of their steps. When each process has returned or
 * is dead, it runs check() alone. It does not continue from a state that it has seen before.
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
    const char *name; /* a sentence that the model checks */
    unsigned process_count;
    unsigned kills; /* at most this many processes die in one run */
    void (*setup)(void);
    void (*run[MODEL_MOST_PROCESSES])(void);
    void (*check)(void);     /* after each process has ended or died; may run library code */
    void (*invariant)(void); /* runs after every step and only reads; may be NULL */
    uint64_t most_states;    /* the model fails above this number; 0: 20 million */
};

struct model_result {
    uint64_t states, steps, ends; /* ends: complete runs that were checked */
    uint64_t killed;              /* those of them with a kill */
    uint64_t outcomes;            /* a bit for each number that model_outcome() got */
    const char *failure;          /* NULL: no failure; else the sentence of model_require() */
    bool is_too_large; /* the failure is that there are more states, or stores, than there is
                          room or time for */
    char trace[4096];  /* of the failing run: process, step, place, value; a line each */
};

/**
 * @return whether the sentence holds. `seconds` is a time limit after which the model fails;
 * 0: no limit.
 */
bool model_explore(const struct model *model, enum model_memory memory, unsigned seconds,
                   struct model_result *ret_result);

/* ---- for models -------------------------------------------------------------------------- */

/** Memory of the world, zeroed, at the same address in every run; only in setup(). */
void *model_shared(size_t bytes, size_t alignment);
/** Memory that only one process uses: an access to it is no step. */
void *model_private(size_t bytes, size_t alignment);

/** The number of the running process; in setup() and check(): the number of processes. */
unsigned model_self(void);
/**
 * Whether a process was killed. For check(), and for the functions that replace the room os;
 * so is model_has_ended(): whether it has returned.
 */
bool model_is_dead(unsigned process);
bool model_has_ended(unsigned process);
/**
 * As model_is_dead(), but no step: for a process that has just returned from model_yield().
 */
bool model_peek_dead(unsigned process);

/** Fail the model with the trace of this run, unless the condition holds. */
void model_require(bool holds, const char *sentence);

/** In check(): record the outcome of this run, a number below 64. */
void model_outcome(unsigned number);

/**
 * Put a name into the trace. This is no step: a process may die after each of its writes, and
 * no other process can see where it is until the next one.
 */
void model_point(const char *name);
/** Name some memory for the trace; in setup(). `name` is borrowed. */
void model_name(const void *at, size_t bytes, const char *name);
/**
 * Allow plain accesses of these bytes to race, for a reason; in setup(). The explorer takes
 * them for relaxed atomic accesses. Any other race is a failure.
 */
void model_allow_race(const void *at, size_t bytes, const char *reason);

/**
 * Choose a number below `count`; the explorer tries each of them. For events that the model
 * does not decide.
 */
unsigned model_choose(unsigned count);

/**
 * Sleep if *word == seen, as a futex does. The model fails if all processes sleep (a lost
 * wake-up).
 */
void model_sleep(_Atomic uint32_t *word, uint32_t seen);
/** As model_sleep(), but the sleep may also time out. @return false: it timed out */
bool model_sleep_timed(_Atomic uint32_t *word, uint32_t seen);
/**
 * As model_sleep_timed(), but it times out only after a death, and in each process once for
 * each death.
 */
bool model_sleep_slice(_Atomic uint32_t *word, uint32_t seen);
/** Wake up to `count` sleepers; the explorer tries each choice of them. @return how many */
unsigned model_wake(_Atomic uint32_t *word, unsigned count);
/** Do not run this process again before another process has changed the world or ended. */
void model_yield(void);
/**
 * As model_yield(), but it returns false when no other process can run. For calls with a time
 * limit.
 */
bool model_yield_timed(void);

#endif
