/* SPDX-License-Identifier: Apache-2.0 */
/* lane: ready tasks that need the same, in order. Private to the room plan. */
#ifndef TNI_PLAN_LANE_H
#define TNI_PLAN_LANE_H

#include "plan/plan.h"

/*
 * A lane has a signature, the resources that its tasks feed, and the slot that made their
 * inputs. If the first task of a lane cannot begin, none of the lane can, and other lanes go
 * on.
 */
struct tni_lane {
    struct tni_signature *signature;
    uint32_t feeds;
    struct tni_slot_ref near;
    struct tni_chain sorted; /* tasks that came in their order */
    struct tni_task *heap;   /* the others: a pairing heap, by `child` and `next` */
    uint32_t count;
    uint32_t skipped;      /* how often a later task that needs the same pools began */
    uint64_t overtaken_at; /* `overtaken_count` when that was too often */
    bool is_blocked;       /* the first task cannot begin until something is given back, */
    uint64_t gives_up_ns;  /* or until then, if it waits for a better one; 0: it does not */
    struct tni_lane *next; /* of the signature */
    struct tni_lane *prev_active, *next_active;
};

/** The first task; the lane is not empty. */
struct tni_task *tni_lane_head(const struct tni_lane *lane);
void tni_lane_push(struct tni_lane *lane, struct tni_task *task);
struct tni_task *tni_lane_pop(struct tni_lane *lane);

/** Whether `a` comes before `b`. */
static inline bool tni_task_precedes(const struct tni_task *a, const struct tni_task *b)
{
    return a->key != b->key ? a->key < b->key : a->id < b->id;
}

/* ---- the lanes of a plan (ready.c) ------------------------------------------------------- */

struct tni_task *tni_ready_pop(struct tni_plan *plan, struct tni_lane *lane);
/** Let the next task of a lane come first until data was moved. @return false: it stays */
bool tni_ready_set_aside(struct tni_plan *plan, struct tni_lane *lane);
/** Put the tasks that were set aside back into their lanes. */
void tni_ready_take_back(struct tni_plan *plan);
/** Let the lanes that need one of the pools try again. */
void tni_ready_unblock(struct tni_plan *plan, uint32_t pool_mask);
/** Drop the reservation of a lane, if there is one. */
void tni_ready_unreserve(struct tni_plan *plan, struct tni_lane *lane);
/** Set best_key. */
void tni_ready_set_best(struct tni_plan *plan);

/* ---- where a task has its data (where.c) ------------------------------------------------- */

struct tni_where {
    uint32_t memory;
    uint64_t cost_ns;       /* to bring there what the task reads */
    uint64_t wait_until_ns; /* a cheaper card is worth waiting for until then; 0: none is */
};
/**
 * Find the cheapest card that has what the request needs, and room for the data.
 * @param pick  its `only` is set to the card
 * @return false: the task cannot begin now
 */
bool tni_where_find(const struct tni_plan *plan, const struct tni_request *request,
                    const struct tni_access *accesses, struct tni_pick *pick,
                    struct tni_where *ret);
/** The cost on the cheapest card, free or not. */
uint64_t tni_where_least_ns(const struct tni_plan *plan, const struct tni_request *request,
                            const struct tni_access *accesses);

/* ---- kinds (kind.c) ---------------------------------------------------------------------- */

/** Fill in what follows from the requests, the number of variants and the place. */
void tni_signature_complete(const struct tni_plan *plan, struct tni_signature *signature);
/** Add a kind with this signature, which is copied, unless there is one. NULL: no memory */
struct tn_kind *tni_kind_make(struct tni_plan *plan, const struct tni_signature *signature,
                              const char *name);
void tni_kinds_fini(struct tni_plan *plan);

#endif
