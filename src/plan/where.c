/* SPDX-License-Identifier: Apache-2.0 */
/* where: in the memory of which card a task that has data begins. */
#include "plan/lane.h"

static bool can_begin(const struct tni_plan *plan, const struct tni_request *request,
                      const struct tni_access *accesses, const struct tni_pick *pick,
                      uint32_t memory)
{
    const struct tni_lane *lane = pick->lane;
    return tni_pools_can_take(&plan->pools, request, pick) &&
           tni_data_can_begin(plan, accesses, memory) &&
           (TNI_LIKELY(!tni_kind_is_alone(tni_lane_head(lane)->kind)) ||
            tni_data_is_alone(plan, accesses, memory));
}

/* When a slot of the card is free, if its tasks end as expected. TNI_FOREVER: not known. */
static uint64_t card_free_ns(const struct tni_memory *memory)
{
    uint64_t soonest = TNI_FOREVER;
    for (uint32_t i = memory->first; i < memory->first + memory->count; i++)
        soonest = TNI_MIN(soonest, memory->pool->slots[i].ends_ns);
    return soonest;
}

/*
 * The cheapest card may be busy. @return until when to wait for it, because the task would
 * begin there before its data were on the card that is free; 0: no longer
 */
static uint64_t wait_for_card(const struct tni_plan *plan, const struct tni_where *where,
                              uint32_t cheapest, uint64_t cheapest_ns, uint64_t now_ns)
{
    uint64_t free_ns = card_free_ns(&plan->memories.all[cheapest]);
    uint64_t gain_ns = where->cost_ns - cheapest_ns;
    return free_ns != TNI_FOREVER && free_ns > now_ns && free_ns - now_ns < gain_ns
               ? now_ns + gain_ns
               : 0;
}

bool tni_where_find(const struct tni_plan *plan, const struct tni_request *request,
                    const struct tni_access *accesses, struct tni_pick *pick,
                    struct tni_where *ret)
{
    const struct tni_memories *memories = &plan->memories;
    uint32_t cheapest = UINT32_MAX;
    uint64_t cheapest_ns = UINT64_MAX;
    *ret = (struct tni_where){.memory = UINT32_MAX, .cost_ns = UINT64_MAX};
    pick->only = tni_memories_pool(memories, &plan->pools, request);
    if (pick->only == NULL) {
        ret->memory = TNI_HOST;
        ret->cost_ns = tni_data_cost_ns(plan, accesses, TNI_HOST);
        return can_begin(plan, request, accesses, pick, TNI_HOST);
    }
    for (uint32_t m = 1; m < memories->count; m++) {
        const struct tni_memory *memory = &memories->all[m];
        if (memory->pool != pick->only || tni_data_is_lost_at(plan, request, accesses, m))
            continue;
        uint64_t cost_ns = tni_data_cost_ns(plan, accesses, m);
        if (cost_ns < cheapest_ns) {
            cheapest = m;
            cheapest_ns = cost_ns;
        }
        pick->only_first = memory->first;
        pick->only_count = memory->count;
        if (cost_ns < ret->cost_ns && can_begin(plan, request, accesses, pick, m)) {
            ret->memory = m;
            ret->cost_ns = cost_ns;
        }
    }
    if (ret->memory == UINT32_MAX)
        return false;
    pick->only_first = memories->all[ret->memory].first;
    pick->only_count = memories->all[ret->memory].count;
    if (cheapest_ns < ret->cost_ns)
        ret->wait_until_ns = wait_for_card(plan, ret, cheapest, cheapest_ns, pick->now_ns);
    return true;
}

uint64_t tni_where_least_ns(const struct tni_plan *plan, const struct tni_request *request,
                            const struct tni_access *accesses)
{
    const struct tni_pool *pool = tni_memories_pool(&plan->memories, &plan->pools, request);
    uint64_t least = UINT64_MAX;
    for (uint32_t m = 0; m < plan->memories.count; m++)
        if (tni_memory_is_of(&plan->memories, m, pool))
            least = TNI_MIN(least, tni_data_cost_ns(plan, accesses, m));
    return least;
}
