/* SPDX-License-Identifier: Apache-2.0 */
/*
 * face: what events, semaphores, locks, conditions and barriers share. Inside the room queue.
 */
#ifndef TNI_QUEUE_FACE_H
#define TNI_QUEUE_FACE_H

#include "queue/object.h"

/** 0, or why the object cannot be used. `handle` is the first member of what the user gave. */
static inline int tni_face_check(const struct tni_handle *handle)
{
    if (TNI_LIKELY(
            handle != NULL && handle->domain != NULL && tni_process_sits(handle->domain) &&
            atomic_load_explicit(&handle->object->word, memory_order_relaxed) == handle->word))
        return 0;
    if (TNI_UNLIKELY(handle == NULL))
        return tni_fail(TN_ERR_INVALID, "the object is NULL");
    if (TNI_UNLIKELY(handle->domain == NULL))
        return tni_fail(TN_ERR_CLOSED, "this process has left the object's domain");
    return tni_object_check(handle);
}

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
