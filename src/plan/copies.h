/* SPDX-License-Identifier: Apache-2.0 */
/* copies: what data.c and begin.c do with a copy of data. */
#ifndef TNI_PLAN_COPIES_H
#define TNI_PLAN_COPIES_H

#include "plan/plan.h"

static inline struct tni_memory *tni_copy_memory(struct tni_plan *plan,
                                                 const struct tni_copy *copy)
{
    return &plan->memories.all[copy->memory];
}

static inline bool tni_copy_has_room(const struct tni_copy *copy)
{
    return copy->state == TNI_COPY_STALE || copy->state == TNI_COPY_VALID;
}

static inline bool tni_copy_is_in_transit(const struct tni_copy *copy)
{
    return copy->state == TNI_COPY_COMING || copy->state == TNI_COPY_GOING;
}

/** What a copy will take of its memory that it has not taken yet. */
static inline uint64_t tni_copy_room_for(const struct tni_copy *copy)
{
    return tni_copy_has_room(copy) || copy->is_kept ? 0 : copy->data->bytes;
}

/** Put it into the ring of its memory, as the one that was used last, unless it is kept. */
void tni_copy_add_idle(struct tni_plan *plan, struct tni_copy *copy);
void tni_copy_remove_idle(struct tni_plan *plan, struct tni_copy *copy);
/** The room that a copy takes, or gives back if `bytes` is negative, of what its memory has. */
void tni_copy_take_room(struct tni_plan *plan, const struct tni_copy *copy, int64_t bytes);
void tni_copy_pin(struct tni_plan *plan, struct tni_copy *copy);
void tni_copy_unpin(struct tni_plan *plan, struct tni_copy *copy);
/** No copy of data that is written is idle: it is neither evicted nor written back. */
void tni_copy_pin_others(struct tni_plan *plan, const struct tni_copy *its);
void tni_copy_unpin_others(struct tni_plan *plan, const struct tni_copy *its);

/** Whether a thread moves a copy of it. */
bool tni_data_is_moving(const struct tni_plan *plan, const struct tni_data *data);
/** The valid copy that is brought to a memory in the least time; NULL: none is valid. */
struct tni_copy *tni_data_source(const struct tni_plan *plan, struct tni_data *data,
                                 uint32_t to);

#endif
