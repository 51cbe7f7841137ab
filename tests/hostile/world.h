/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the processes of scribble_test share: a board in memory that is not tenon's.
 *
 * Nouns: worker (a member that works as users do), desk (what a worker says of itself on the
 * board), judge (the test: no member; it looks at desks and at how processes end), scribbler (a
 * member that writes noise), section (what it aims at).
 */
#ifndef TENON_TESTS_HOSTILE_WORLD_H
#define TENON_TESTS_HOSTILE_WORLD_H

#include <stdatomic.h>

#include "harness/harness.h"
#include "reaper/reaper.h"

enum {
    WORKERS = 3,
    WAIT_MS = 10,      /* deadline of a worker's calls that have one */
    MARGIN_MS = 5000,  /* they are back by then, however busy the machine is */
    UNBOUND_MS = 25000 /* calls without a deadline are */
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
    _Atomic uint64_t steps; /* of all workers: what the scribbler keeps pace with */
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
    SECTION_OPENS, /* the hints of who has what open, what is loose, whose tickets are where */
    SECTION_RINGS, /* the arena: slots of queues, counts of owned semaphores */
    SECTION_MESSAGES, /* the arena: message blocks, and blocks that stand for objects */
    SECTION_COUNT     /* all of them */
};

struct round {
    struct board *board;
    enum section section;
    uint32_t index; /* of a worker */
    struct tnt_signal ready;
};

/** Runs until board->stop; exits with 0 if every call came back in time. For tnt_fork(). */
int work(void *round);
/** The same for the one that creates the domain. */
int found(void *round);
/** Writes noise until board->stop. */
int scribble(void *round);

#endif
