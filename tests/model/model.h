/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model: every interleaving, every kill, of the shipped source.
 *
 * The rooms of src/ are compiled a second time with -fsanitize=thread, and linked with a runtime
 * of ours in place of the sanitizer's: each access to shared memory, atomic or not, with its
 * memory order, is a call of the explorer. What is explored is therefore the source itself, not
 * a description of it.
 *
 * Nouns: process (a coroutine with private memory), world (all memory that the model has), step
 * (one access that others can see, by one process), state (the world, the stacks, and what the
 * memory model remembers).
 *
 * A model is run like this: setup() alone; then every order of the steps of run[0..n), with up to
 * `kills` processes ended before any of their steps; then, once each has returned or is dead,
 * check() alone. States that were seen before are not gone through again.
 *
 * Memory: MODEL_SC, sequential consistency. MODEL_TSO, a store buffer for each process, as x86
 * has it: the source as it is compiled for x86-64. MODEL_C11, release/acquire/relaxed/seq_cst and
 * fences of C11 by views: a load may read any store that its process has not seen to be
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
    const char *failure;          /* NULL: none; else the sentence of model_require() */
    char trace[4096];             /* of the failing run: process, step, place, value; a line each */
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

/** Fail the model, with the trace of this run, unless it holds. */
void model_require(bool holds, const char *sentence);

/** One step that touches nothing, with a name for the trace, at which a process can die. */
void model_point(const char *name);

/** A number below `count`, every one of which is tried: what the world outside may do. */
unsigned model_choose(unsigned count);

/** Sleep if *word == seen, as a futex does; all processes asleep is a failure (a lost wake). */
void model_sleep(_Atomic uint32_t *word, uint32_t seen);
/** As model_sleep(), but may also end by itself: a timeout. */
bool model_sleep_timed(_Atomic uint32_t *word, uint32_t seen);
/** Wake up to `count` sleepers; which ones is a choice. @return how many */
unsigned model_wake(_Atomic uint32_t *word, unsigned count);
/** Not to be run again before somebody else changed the world, or ended. */
void model_yield(void);

#endif
