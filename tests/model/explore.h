/* SPDX-License-Identifier: Apache-2.0 */
/*
 * explore: the inside of the explorer. model.h is its door.
 *
 *     explore.c          the search: what can happen next, what was seen already
 *     explore_step.c     what one step does; sleepers, deaths
 *     explore_memory.c   what a load may read: sc and tso
 *     explore_views*.c   the same for C11
 *     explore_door.c     model.h, for models
 *     explore_world.c    memory of the model: undo, hash, classes of places
 *     explore_process.c  coroutines and their stacks
 *     explore_trace.c    the failing run in words
 *     runtime.c          the calls that -fsanitize=thread puts into the source
 *
 * Nouns: place (8 aligned bytes of shared memory), op (what a process is about to do), machine
 * (all that is not memory: where each process stands, and what the memory model remembers).
 *
 * What is no step. If only one process uses a place, or no process writes it, other processes
 * cannot see when it is accessed, so the explorer does such an access at once. It learns which
 * places these are from random runs; if the search finds that it was wrong about a place, it
 * starts again. Plain accesses to places that several processes use are done at once, too,
 * because they must not race: for C11 each run proves by views that they do not; under
 * sequential consistency and TSO, random runs search for two processes that are about to access
 * one place. An access that model_allow_race() allows is a step.
 *
 * Waiting. A process in model_yield() continues after each change by another process, and once
 * more when no other process can continue, because a change may have come while it checked.
 * "all sleep" is a state in which a process has not ended and nothing but deaths can happen.
 *
 * Deaths. Other processes cannot tell a kill before a read from a kill after the last write
 * before that read. So a process may be killed after its writes, before its first step and
 * while it sleeps. If it is killed after a write that is no step, others do not see the death
 * at once: the process is DYING, and becomes DEAD by a step of its own. When a process is seen
 * to be dead, all its stores are in memory.
 */
#ifndef TENON_TESTS_EXPLORE_H
#define TENON_TESTS_EXPLORE_H

#include "model.h"

enum {
    PROCESSES = MODEL_MOST_PROCESSES,
    STACK_BYTES = 64 << 10,
    PLACE_BYTES = 8,
};
#define WORLD_BASE    UINT64_C(0x200000000000)
#define SHARED_BYTES  (UINT64_C(512) << 20)
#define PRIVATE_BYTES (UINT64_C(64) << 20)
#define MIRROR_BYTES  (UINT64_C(1) << 20)
#define PRIVATE_BASE  (WORLD_BASE + SHARED_BYTES)
#define MIRROR_BASE   (PRIVATE_BASE + PRIVATE_BYTES)
#define WORLD_END     (MIRROR_BASE + MIRROR_BYTES)
#define WORLD_BYTES   (WORLD_END - WORLD_BASE)
#define STACKS_BASE   (WORLD_END + (UINT64_C(1) << 20))
#define STACKS_END    (STACKS_BASE + (PROCESSES + 1) * (uint64_t)STACK_BYTES)

/* ---- what a process is about to do ------------------------------------------------------- */

enum op_kind {
    OP_NONE,
    OP_LOAD,
    OP_STORE,
    OP_RMW,
    OP_CAS,
    OP_FENCE,
    OP_PLAIN_READ,  /* a plain read of a place where accesses race */
    OP_PLAIN_WRITE, /* a plain write there; its value is known when the process continues */
    OP_POINT,       /* no access; the process may die here */
    OP_SLEEP,
    OP_ASLEEP,
    OP_WAKE,
    OP_YIELD,
    OP_CHOOSE,
    OP_LOOK,   /* reads whether process `operand` has ended or is dead */
    OP_RETURN, /* run() has returned */
};
enum rmw { RMW_EXCHANGE, RMW_ADD, RMW_SUB, RMW_AND, RMW_OR, RMW_XOR, RMW_NAND };
enum order { RELAXED, CONSUME, ACQUIRE, RELEASE, ACQ_REL, SEQ_CST }; /* the numbers of gcc */
enum nap { NAP_UNTIL_WOKEN, NAP_TIMED, NAP_SLICE };

struct op {
    uint8_t kind, rmw, order, fail_order, size_bytes, nap;
    bool is_weak;
    bool has_failed;     /* a compare-and-swap that failed though the value was right */
    uint32_t span_bytes; /* the length of a plain range; `size_bytes` is 0 then */
    uint64_t at, operand, expected;
    uint64_t result;  /* the value read; how many were woken; the choice */
    const void *from; /* the place in the source */
};

/* ---- the machine ------------------------------------------------------------------------- */

enum status { ALIVE, BLOCKED, SLEEPING, ENDED, DYING, DEAD };

struct process {
    uint8_t status;
    bool can_die;    /* its last step was a write */
    bool has_news;   /* something changed since its last yield */
    bool has_looked; /* it tried again after the last change: trying once more is of no use */
    uint8_t looks;   /* how often it read old values since the last change */
    uint8_t slices_used; /* how many of its sleeps were cut short, at most one for each death */
    uint32_t sp;    /* the offset of its stack pointer; the live part of the stack lies above */
    uint32_t image; /* the place where the live part was saved */
    uint64_t hash[2]; /* of the live part */
    struct op op;
    const char *point; /* the kill point that it passed last; for the trace */
};

enum { TSO_ENTRIES = 8 };
struct tso_entry {
    uint64_t at, value;
    uint32_t size_bytes;
};
struct tso {
    uint32_t count[PROCESSES];
    struct tso_entry entry[PROCESSES][TSO_ENTRIES];
};

/* What a process knows, or the reader of a message: of each atomic, the last store known. */
enum { ATOMICS = 96, MESSAGES = 512, CELLS = 2048 };
struct view {
    uint8_t at[ATOMICS];      /* the position in the modification order of each atomic */
    uint8_t clock[PROCESSES]; /* how much of each process's plain accesses is known */
};

struct machine {
    struct process process[PROCESSES + 1]; /* the last entry: setup() and check() */
    uint32_t kills, deaths;
};

/* ---- places ------------------------------------------------------------------------------ */

enum {
    PLACE_OWNER =
        7, /* the number + 1 of the only process that used it; 0: there were several, or none */
    PLACE_MANY = 1 << 3, /* several processes read it */
    PLACE_WRITTEN = 1 << 4,
    PLACE_SHARED = 1 << 5,
    PLACE_RACY = 1 << 6 /* plain accesses of it race */
};

enum phase { PHASE_SETUP, PHASE_LEARN, PHASE_SEARCH, PHASE_CHECK, PHASE_LOOK };

struct explorer {
    const struct model *model;
    enum model_memory memory;
    struct model_result *result;
    enum phase phase;
    unsigned self;    /* the process that runs; process_count: setup() or check() */
    bool is_inside;   /* whether a coroutine runs */
    bool has_learned; /* a place turned out to be shared, so the search so far was wrong */
    bool has_failed;
    uint64_t restarts;
    bool yields[PROCESSES]; /* whether the process ever yields; learned */
    struct machine machine;
    struct tso tso;
    uint8_t *place;                   /* by (address - WORLD_BASE) / 8 */
    uint64_t shared_end, private_end; /* the end of the memory that setup() asked for */
    char failure[256];
};
extern struct explorer ex;

/* explore_world.c */
void world_open(void);
void world_close(void);
/** Called after setup(): from now on changes are recorded, so that they can be undone. */
void world_reclaim_base(void);
uint32_t world_mark(void);
void world_undo(uint32_t mark);
extern uint64_t world_hash[2];
void world_add_name(uint64_t at, uint64_t size_bytes, const char *text);
/** Name an address for the trace. */
void world_name(uint64_t at, char *text, size_t size_bytes);
/** Called before the running process writes these bytes. */
void world_note(uint64_t at, uint64_t size_bytes);
/** Called after the bytes that were noted have been written. */
void world_take_notes(void);
void world_write(uint64_t at, uint32_t size_bytes, uint64_t value);
uint64_t world_read(uint64_t at, uint32_t size_bytes);
/** Load the static variables of the process that runs next. */
void world_load_statics(unsigned process);
bool world_is_step(unsigned process, uint64_t at, uint32_t size_bytes, bool is_write);
bool world_place_has(uint64_t at, uint32_t size_bytes, uint8_t flag);
void world_allow_race(uint64_t at, uint64_t size_bytes);
bool world_is_allowed_race(uint64_t at);
/** Note that accesses of these bytes race: they are steps from now on. */
void world_mark_race(uint64_t at, uint64_t size_bytes, const void *from);
static inline uint64_t mix(uint64_t a, uint64_t b)
{
    __uint128_t product =
        (__uint128_t)(a ^ UINT64_C(0x9E3779B97F4A7C15)) * (b ^ UINT64_C(0xD6E8FEB86659FD93));
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/* explore_process.c */
void process_open(void);
void process_prepare(unsigned process, void (*run)(void));
/** Run a process up to its next op. */
void process_run(unsigned process);
/** Called by the process: stop before `op`. Returns when the explorer continues the process. */
void process_stop(const struct op *op);
/** Give the run of this process up. Does not return. */
void process_abandon(void) __attribute__((noreturn));
void process_save(unsigned process);
void process_forget_images(uint32_t mark);
uint32_t process_image_mark(void);

/* explore_step.c */
enum what { DO_STEP, DO_KILL, DO_BURY, DO_FLUSH, DO_TIME_OUT };
struct transition {
    uint8_t process, what;
    uint16_t choice;
};
/** List the transitions that can happen now. @return how many */
unsigned step_list(struct transition *ret, unsigned most);
void step_do(struct transition transition);
/** Whether a process has not ended, and nothing but deaths can happen. */
bool step_is_stuck(const struct transition *list, unsigned count);
/** Fail unless the invariant of the model holds. */
void step_check_invariant(void);
void reach_yield(unsigned process);
uint64_t step_look(unsigned process, const struct op *op);
bool step_is_look_final(const struct op *op);
extern bool step_has_written;
void step_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* explore_memory.c, explore_views.c */
uint64_t memory_apply(const struct op *op, uint64_t old);
unsigned memory_choices(unsigned process, const struct op *op);
/** Do the op, and store its result in it. @return whether other processes can see a change */
bool memory_do(unsigned process, struct op *op, unsigned choice);
void memory_flush(unsigned process);
void memory_drain(unsigned process);
/** Called when a process has continued after a plain access that races. */
void memory_after_plain(unsigned process, struct op *op);
void views_open(void);
void views_close(void);
/** Called at the beginning of a run. */
void views_start(void);
unsigned views_choices(unsigned process, const struct op *op);
bool views_do(unsigned process, struct op *op, unsigned choice);
void views_fence(unsigned process, uint8_t order);
bool views_has_unseen(unsigned process);
/** Make all stores visible to a process, without an order. */
void views_catch_up(unsigned process);
void views_see_end(unsigned process, unsigned ended);
/** Check a plain access to bytes that several processes use. */
void views_plain(unsigned process, uint64_t at, uint64_t size_bytes, bool is_write,
                 const void *from);
/** Called after a plain write that races, and that views_do() has done. */
void views_after_race(const struct op *op, uint64_t value);
/** Called after a plain write that views_plain() was told of. */
void views_after_plain(unsigned process, uint64_t at, uint64_t size_bytes);
/** Forget stores that no process can read any more, and number the others anew. */
void views_normalise(void);
void views_hash(uint64_t hash[2]);
enum { VIEWS_MOST_BYTES = 128 << 10 };
size_t views_save(uint8_t *ret);
void views_load(const uint8_t *saved);

/* runtime.c */
/** In a process: stop before `op`. @return its result */
uint64_t runtime_stop(struct op *op);
/** Forget the op that is under way. */
void runtime_reset(void);

/* explore_trace.c */
void trace_clear(void);
void trace_push(struct transition transition, const struct op *op, const char *point);
/** Add the result of the step to the trace. */
void trace_result(uint64_t result);
void trace_cut(uint32_t length);
uint32_t trace_length(void);
void trace_write(char *text, size_t size_bytes);
const char *trace_place(const void *from, char *text, size_t size_bytes);

#endif
