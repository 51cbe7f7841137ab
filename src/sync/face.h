/* SPDX-License-Identifier: Apache-2.0 */
/*
 * face: who died, as locks and barriers say it. Inside the room sync.
 */
#ifndef TNI_SYNC_FACE_H
#define TNI_SYNC_FACE_H

#include "sync/sync.h"

/* Who died, in `value2` of locks and barriers: {pid:32, seat:16, 1:16}. */
static inline uint64_t tni_face_dead(const struct tni_segment *segment, uint32_t seat)
{
    uint32_t pid = (uint32_t)atomic_load(&tni_seat_at(segment, seat)->pid);
    return (uint64_t)pid << 32 | (uint64_t)(seat & 0xffff) << 16 | 1;
}
static inline uint32_t tni_face_dead_seat(uint64_t dead)
{
    return (uint32_t)(dead >> 16) & 0xffff;
}
static inline int32_t tni_face_dead_pid(uint64_t dead)
{
    return (int32_t)(uint32_t)(dead >> 32);
}

#endif
