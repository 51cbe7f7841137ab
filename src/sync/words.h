/* SPDX-License-Identifier: Apache-2.0 */
/*
 * words: what the words of locks, semaphores and barriers say, for those who change them and
 * for who looks on (figures.c). Inside the room sync.
 */
#ifndef TNI_SYNC_WORDS_H
#define TNI_SYNC_WORDS_H

#include "sync/sync.h"

/* A lock: 0, or free and RECOVERED, or {HELD:1, RECOVERED:1, incarnation:22, seat:16,
 * thread:24}. */
#define TNI_LOCK_HELD      (UINT64_C(1) << 63)
#define TNI_LOCK_RECOVERED (UINT64_C(1) << 62)
static inline uint64_t tni_lock_word(uint32_t incarnation, uint32_t seat, uint32_t thread)
{
    return TNI_LOCK_HELD | (uint64_t)(incarnation & 0x3fffff) << 40 |
           (uint64_t)(seat & 0xffff) << 24 | (thread & 0xffffff);
}
static inline uint32_t tni_lock_incarnation(uint64_t word)
{
    return (uint32_t)(word >> 40) & 0x3fffff;
}
static inline uint32_t tni_lock_seat(uint64_t word) { return (uint32_t)(word >> 24) & 0xffff; }
static inline uint32_t tni_lock_thread(uint64_t word) { return (uint32_t)word & 0xffffff; }

/* A semaphore: {version:32, permits:32}; owned, of one permit: {holder's seat + 1:32,
 * permits:32}. */
static inline uint32_t tni_semaphore_permits(uint64_t word) { return (uint32_t)word; }
static inline uint64_t tni_semaphore_one_held(uint32_t seat)
{
    return (uint64_t)(seat + 1) << 32;
}
/** The holder's seat, or TNI_NO_SEAT. */
static inline uint32_t tni_semaphore_one_holder(uint64_t word)
{
    uint32_t holder_and_one = (uint32_t)(word >> 32);
    return holder_and_one != 0 ? holder_and_one - 1 : TNI_NO_SEAT;
}

/* A barrier: {generation:24, fates of the last eight:16, arrived:16, fate of this one:8}. */
static inline uint32_t tni_barrier_generation(uint64_t word) { return (uint32_t)(word >> 40); }
static inline uint32_t tni_barrier_arrived(uint64_t word)
{
    return (uint32_t)(word >> 8) & 0xffff;
}
static inline uint32_t tni_barrier_fate(uint64_t word) { return (uint32_t)word & 0xff; }

/* Who died, in `value2` of locks and barriers: {pid:32, seat:16, 1:16}. */
static inline uint64_t tni_dead_word(const struct tni_segment *segment, uint32_t seat)
{
    uint32_t pid = (uint32_t)atomic_load(&tni_seat_at(segment, seat)->pid);
    return (uint64_t)pid << 32 | (uint64_t)(seat & 0xffff) << 16 | 1;
}
static inline uint32_t tni_dead_seat(uint64_t dead) { return (uint32_t)(dead >> 16) & 0xffff; }
static inline int32_t tni_dead_pid(uint64_t dead) { return (int32_t)(uint32_t)(dead >> 32); }

#endif
