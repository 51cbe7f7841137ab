/* SPDX-License-Identifier: Apache-2.0 */
/*
 * seats: tells whether the process of a seat is alive; sets of seats. Part of the door
 * process.h: other rooms include process.h, not this header.
 */
#ifndef TNI_PROCESS_SEATS_H
#define TNI_PROCESS_SEATS_H

#include "segment/segment.h"

/* The number of the witness of a seat's process. No two incarnations share a number. */
static inline uint64_t tni_witness_number(uint32_t seat, uint32_t incarnation)
{
    return (uint64_t)incarnation << 16 | seat;
}
/**
 * Whether the process that took the seat is alive. A process that has exec'ed since counts as
 * dead, and so does the process of a free seat. The answer is the same in every namespace,
 * unless the process could get no witness.
 * @return TNI_OS_ALIVE, TNI_OS_DEAD or TNI_OS_UNKNOWN
 */
int tni_process_seat_state(const struct tni_segment *segment, uint32_t seat);
/**
 * Whether this process can use the seat's pid to find or kill the seat's process, because both
 * processes are in the same pid namespace. True also after the seat's process has exec'ed.
 */
bool tni_process_is_here(const struct tni_segment *segment, uint32_t seat);
/**
 * The TNI_SEAT_* state of the seat that `who` names. FREE: `who` is malformed, or the seat has
 * another incarnation by now.
 */
uint32_t tni_process_who_state(const struct tni_segment *segment, uint64_t who);
/** Whether the process that `who` names still has its seat, which no process reclaims. */
bool tni_process_who_lives(const struct tni_segment *segment, uint64_t who);
/** Whether tni_process_who_lives() holds, and the process is not known to have ended. */
bool tni_process_who_runs(const struct tni_segment *segment, uint64_t who);
/** How many seats belong to dead processes and are not reclaimed yet. */
uint32_t tni_process_count_dead(const struct tni_segment *segment);
/** Whether a live process has a seat that is still JOINING. */
bool tni_process_has_joining(const struct tni_segment *segment);
/** How many seats are taken, not counting tenond's. */
uint32_t tni_process_count(const struct tni_segment *segment);
/** How many seats processes other than tenond can have at once: all that no tenond has. */
uint32_t tni_process_limit(const struct tni_segment *segment);

/* Sets of seats. */
static inline bool tni_seat_set_has(const struct tni_seat_set *set, uint32_t seat)
{
    return atomic_load_explicit(&set->word[seat / 64], memory_order_seq_cst) >> (seat % 64) & 1;
}
static inline void tni_seat_set_add(struct tni_seat_set *set, uint32_t seat)
{
    atomic_fetch_or(&set->word[seat / 64], UINT64_C(1) << (seat % 64));
}
static inline void tni_seat_set_remove(struct tni_seat_set *set, uint32_t seat)
{
    atomic_fetch_and(&set->word[seat / 64], ~(UINT64_C(1) << (seat % 64)));
}
/** How many seats are in the set, not counting `except` (TNI_NO_SEAT: count all). */
uint32_t tni_seat_set_count(const struct tni_seat_set *set, uint32_t except);

#endif
