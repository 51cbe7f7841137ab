/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the processes of scribble_test share: a board, in memory outside of the domain.
 *
 * Nouns: worker (a member that makes the calls of a user), desk (the place on the board where
 * a worker notes its call), judge (the test, which is no member: it checks the desks and the
 * ends of processes), scribbler (a member that writes noise), section (the part of the domain
 * that it writes to).
 */
#ifndef TENON_TESTS_HOSTILE_WORLD_H
#define TENON_TESTS_HOSTILE_WORLD_H

#include <stdatomic.h>

#include "harness/harness.h"
#include "reaper/reaper.h"

enum {
    WORKERS = 3,
    WAIT_MS = 10,     /* the time limit the index of a worker's calls with a deadline */
    MARGIN_MS = 5000, /* such a call must return within this time more, on a busy machine too */
    UNBOUND_MS = 25000 /* a call without a deadline must return within this time */
};

struct desk {
    _Atomic(const char *) doing; /* NULL: between calls */
    _Atomic uint64_t since_ns, limit_ns;
    _Atomic uint32_t pid;
    _Atomic uint64_t calls, errors, longest_ns;
    _Atomic(const char *) longest;
};

struct board {
    _Atomic uint32_t stop;
    _Atomic uint64_t steps; /* the steps of all workers; the scribbler keeps pace with them */
    _Atomic uint64_t writes;
    struct desk desks[WORKERS];
    char name[32]; /* of the domain */
    uint64_t seed;
};

enum section {
    SECTION_HEADER,
    SECTION_SEATS,
    SECTION_ANNOUNCES,
    SECTION_CLASSES,
    SECTION_WORDS,
    SECTION_DESCS,
    SECTION_HINTS,
    SECTION_SUSPECTS,
    SECTION_ROWS,
    SECTION_OBJECTS,
    SECTION_TICKETS,
    SECTION_NAMES,
    SECTION_OPENS,    /* rows of bits: open and loose objects, issued tickets */
    SECTION_RINGS,    /* the arena: slots of queues, counts of owned semaphores */
    SECTION_MESSAGES, /* the arena: message blocks, and blocks that stand for objects */
    SECTION_COUNT     /* all of them */
};

struct round {
    struct board *board;
    enum section section;
    uint32_t index; /* of a worker */
    struct tnt_signal ready;
};

/** Work until board->stop. For tnt_fork(). @return 0: every call returned in time */
int work(void *round);
/** Work as the member that creates the domain. */
int found(void *round);
/** Write noise until board->stop. */
int scribble(void *round);

#endif
