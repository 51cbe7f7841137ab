/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan: decides which task runs next, and with which resources.
 *
 * Nouns: pool, slot, group, request (resource.c, request.c, slots.c); kind, signature (kind.c);
 * graph, task, edge (graph.c); order (order.c); lane (lane.c); running, reservation (here).
 *
 * I1  What running tasks hold and what is free are together what there is. No pool is below 0.
 * I2  The slots of one task lie in one group if a group is large enough.
 * I3  A task begins only after all of its inputs have ended without an error. It ends once.
 * I4  If a ready task could begin, tni_plan_next() finds one, unless a reservation or a wait
 *     for a better slot holds it back.
 * I5  A ready task that precedes all others that need its pools begins after at most `skips`
 *     other tasks and the end of those that run then: it gets a reservation, after those lanes
 *     that were overtaken `skips` times before its own.
 * I6  Between tni_plan_init() and tni_plan_fini() only tni_plan_add_kind(), tni_graph_add() and
 *     the first task of a new lane need memory. Without memory for a lane, its task is put into
 *     a lane of the same signature.
 *
 * Callers: the room sched, under its lock, and the simulator. A death leaves nothing, since the
 * room has only private memory.
 */
#include <stdlib.h>

#include "plan/lane.h"

static int check_options(const struct tni_plan_options *options)
{
    if (options->order > TNI_ORDER_RANK)
        return tni_fail(TN_ERR_INVALID, "order is %u: it is one of TN_ORDER_*", options->order);
    if (!(options->skew >= 0 && options->skew <= 1000))
        return tni_fail(TN_ERR_INVALID, "skew is %g: it is from 0 to 1000", options->skew);
    return 0;
}

int tni_plan_init(struct tni_plan *plan, const struct tni_plan_options *options)
{
    enum { SKIPS = 8 };
    int status = check_options(options);
    memset(plan, 0, sizeof *plan);
    if (status != 0)
        return status;
    status = tni_pools_init(&plan->pools, options->resources, options->cpu_count);
    if (status != 0)
        return status;
    status =
        tni_memories_init(&plan->memories, &plan->pools, options->memories, options->links);
    if (status != 0) {
        tni_pools_fini(&plan->pools);
        return status;
    }
    for (uint32_t i = 0; i < plan->pools.count; i++)
        plan->slot_most += plan->pools.pools[i].slot_count;
    plan->running.prev = plan->running.next = &plan->running;
    plan->order = options->order;
    plan->skips = options->skips != 0 ? options->skips : SKIPS;
    plan->skew = options->skew != 0 ? options->skew : 1;
    atomic_init(&plan->best_key, UINT64_MAX);
    return 0;
}

void tni_plan_fini(struct tni_plan *plan)
{
    tni_kinds_fini(plan);
    tni_memories_fini(&plan->memories);
    tni_pools_fini(&plan->pools);
}

void tni_plan_give_back(struct tni_plan *plan, struct tni_running *running, uint32_t pool_mask,
                        uint64_t now_ns)
{
    const struct tni_request *request = &running->signature->variants[running->variant].request;
    uint32_t mask = pool_mask & running->held_mask;
    uint64_t took_ns = now_ns > running->began_ns ? now_ns - running->began_ns : 0;
    for (uint32_t i = 0; i < request->count; i++)
        if ((mask >> request->needs[i].pool & 1) != 0)
            plan->busy[request->needs[i].pool] +=
                (double)request->needs[i].amount * (double)took_ns;
    tni_pools_give(&plan->pools, request, running->slots, mask);
    running->held_mask &= ~mask;
    if ((mask & TNI_BUILT_IN_MASK) != 0)
        running->cpu_until_ns = now_ns;
    if (mask != 0)
        tni_ready_take_back(plan); /* the card with their data may have a slot now */
    tni_ready_unblock(plan, mask);
}

void tni_plan_unblock(struct tni_plan *plan)
{
    tni_ready_take_back(plan);
    tni_ready_unblock(plan, UINT32_MAX);
}

void tni_plan_end(struct tni_plan *plan, struct tni_running *running, uint64_t now_ns)
{
    if (running->accesses != NULL) {
        tni_data_end(plan, running);
        tni_plan_unblock(plan); /* who waits for room, or for the data */
    }
    tni_plan_give_back(plan, running, UINT32_MAX, now_ns);
    running->prev->next = running->next;
    running->next->prev = running->prev;
}
