/* SPDX-License-Identifier: Apache-2.0 */
/* The threads that wait at a condition (turns.c, condition.c). */
#ifndef TENON_CORE_TURNS_H
#define TENON_CORE_TURNS_H

#include "core.h"

/* The row of a thread that waits, in shared memory. */
typedef struct {
    _Atomic uint64_t word;   /* {ticket:63, told:1}; 0: free. Stored after `member` */
    _Atomic uint64_t member; /* tn_domain_info's */
} tnp_turn;

struct tnp_turn_table;
typedef struct {
    struct tnp_turn_table *table;
    uint64_t most; /* rows */
} tnp_turns;

/** Find the table in a buffer. @return false: the buffer has no room for one row */
bool tnp_turns_init(tnp_turns *turns, const Py_buffer *memory);
/** Take a row with a ticket behind all others. NULL: raised. */
tnp_turn *tnp_turns_enter(const tnp_turns *turns, const tn_domain *domain);
bool tnp_turn_is_told(const tnp_turn *turn);
/** Free the row. @return whether the thread was told to wake up */
bool tnp_turn_leave(tnp_turn *turn);
/**
 * Tell up to `most` threads to wake up, the oldest first. @return 1: some were told; 0: no
 * thread waits; -1: raised.
 */
int tnp_turns_tell(const tnp_turns *turns, const tn_domain *domain, long long most);
/**
 * The number of live threads that wait and were not told. It may change at once. -1: raised.
 */
long tnp_turns_count(const tnp_turns *turns, const tn_domain *domain);

#endif
