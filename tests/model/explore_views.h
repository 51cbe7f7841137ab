/* SPDX-License-Identifier: Apache-2.0 */
/* explore_views: what the memory model of C11 remembers. Inside explore_views*.c. */
#ifndef TENON_TESTS_EXPLORE_VIEWS_H
#define TENON_TESTS_EXPLORE_VIEWS_H

#include "explore.h"

struct message {
    uint64_t value;
    struct view view;
    bool is_rmw; /* directly follows the message that it read */
};
struct atomic {
    uint16_t first, count; /* the range of its messages */
};
/* The last plain accesses of a byte. */
struct cell {
    uint8_t writer, write_clock, read_clock[PROCESSES];
};

struct views {
    struct view now[PROCESSES], acquire[PROCESSES], release[PROCESSES], order;
    bool has_told[PROCESSES]; /* another process may know of its accesses up to its clock */
    uint32_t message_count;
    struct atomic atomic[ATOMICS];
    struct message message[MESSAGES];
    struct cell cell[CELLS];
};
extern struct views views;

/* The atomics that are known so far. They are learned, and no part of a state. */
struct known_atomic {
    uint64_t at;
    uint32_t size_bytes;
};
extern struct known_atomic known_atomics[ATOMICS];
extern uint32_t known_atomic_count, known_cell_count;

/** Add the first message of an atomic: the value in memory. */
void views_add_initial(uint32_t atomic);

#endif
