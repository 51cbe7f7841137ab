/* SPDX-License-Identifier: Apache-2.0 */
/*
 * data: whether a task can begin with its data in a memory, and how long that takes to come.
 *
 * Nouns: data, copy, memory, link, access (data.h). The invariants are in begin.c.
 */
#include "plan/copies.h"

/* ---- whether a task can begin ------------------------------------------------------------ */

uint64_t tni_data_cost_ns(const struct tni_plan *plan, const struct tni_access *accesses,
                          uint32_t memory)
{
    double cost = 0;
    for (const struct tni_access *a = accesses; a->data != NULL; a++) {
        if ((a->mode & TNI_READS) == 0 || a->data->copies[memory].state == TNI_COPY_VALID)
            continue;
        const struct tni_copy *source = tni_data_source(plan, a->data, memory);
        if (source != NULL)
            cost += (double)a->data->bytes *
                    plan->memories
                        .ns_per_byte[tni_link_between(&plan->memories, source->memory, memory)];
    }
    return (uint64_t)cost;
}

/* What a task takes of a memory, if all its data is there. */
static uint64_t bytes_of(const struct tni_access *accesses, uint32_t memory)
{
    uint64_t bytes = 0;
    for (const struct tni_access *a = accesses; a->data != NULL; a++)
        bytes += a->data->copies[memory].is_kept ? 0 : a->data->bytes;
    return bytes;
}

/* How many slots of a pool a request needs. */
static uint64_t slots_of(const struct tni_plan *plan, const struct tni_request *request,
                         const struct tni_pool *pool)
{
    uint64_t slots = 0;
    for (uint32_t i = 0; i < request->count; i++)
        if (&plan->pools.pools[request->needs[i].pool] == pool)
            slots = TNI_MAX(request->needs[i].amount / TNI_UNIT, 1);
    return slots;
}

bool tni_data_is_lost_at(const struct tni_plan *plan, const struct tni_request *request,
                         const struct tni_access *accesses, uint32_t memory)
{
    const struct tni_memory *its = &plan->memories.all[memory];
    if (TNI_LIKELY(!its->is_lost))
        return false;
    uint64_t slots = slots_of(plan, request, its->pool), bytes = bytes_of(accesses, memory);
    for (uint32_t m = 0; m < plan->memories.count; m++) {
        const struct tni_memory *other = &plan->memories.all[m];
        if (other->pool == its->pool && !other->is_lost && other->count >= slots &&
            other->capacity >= bytes)
            return true;
    }
    return false;
}

int tni_data_can_ever(const struct tni_plan *plan, const struct tn_kind *kind,
                      const struct tni_access *accesses)
{
    uint64_t bytes = 0, most = 0;
    bool fits = false;
    if (kind->signature->place != NULL)
        return tni_fail(TN_ERR_INVALID, "%.40s: tasks of a pool have no data", kind->name);
    for (uint32_t v = 0; v < kind->signature->variant_count; v++) {
        const struct tni_request *request = &kind->signature->variants[v].request;
        const struct tni_pool *pool = tni_memories_pool(&plan->memories, &plan->pools, request);
        uint64_t slots = slots_of(plan, request, pool);
        bool has_card = false;
        for (uint32_t m = 0; m < plan->memories.count; m++) {
            const struct tni_memory *its = &plan->memories.all[m];
            if (!tni_memory_is_of(&plan->memories, m, pool) || (m != 0 && its->count < slots))
                continue;
            has_card = true;
            bytes = bytes_of(accesses, m);
            fits |= bytes <= its->capacity;
            most = TNI_MAX(most, its->capacity);
        }
        if (!has_card)
            return tni_fail(
                TN_ERR_INVALID,
                "%.40s: its tasks have data and request %llu slots of %s: no card has "
                "that many",
                kind->name, (unsigned long long)slots, pool->name);
    }
    return fits ? 0
                : tni_fail(TN_ERR_INVALID,
                           "%.40s: the data of a task has %llu bytes, and the largest memory "
                           "for it %llu",
                           kind->name, (unsigned long long)bytes, (unsigned long long)most);
}

/* Whether tasks that run keep this one from the data. */
static bool is_used(const struct tni_access *access)
{
    const struct tni_data *data = access->data;
    /* Without readers nobody is waited for: two tasks never wait for each other. */
    return data->is_written ||
           (data->readers > 0 && ((access->mode & TNI_WRITES) != 0 || data->is_awaited));
}

bool tni_data_is_busy(const struct tni_plan *plan, const struct tni_access *accesses)
{
    for (const struct tni_access *a = accesses; a->data != NULL; a++)
        if (is_used(a) || tni_data_is_moving(plan, a->data))
            return true;
    return false;
}

void tni_data_await(const struct tni_access *accesses, bool is_awaited)
{
    for (const struct tni_access *a = accesses; a->data != NULL; a++)
        if ((a->mode & TNI_WRITES) != 0)
            a->data->is_awaited = is_awaited;
}

bool tni_data_can_begin(const struct tni_plan *plan, const struct tni_access *accesses,
                        uint32_t memory)
{
    const struct tni_memory *its = &plan->memories.all[memory];
    uint64_t needed = 0, own_idle = 0;
    for (const struct tni_access *a = accesses; a->data != NULL; a++) {
        const struct tni_copy *copy = &a->data->copies[memory];
        bool writes = (a->mode & TNI_WRITES) != 0;
        if (is_used(a) || tni_copy_is_in_transit(copy))
            return false;
        /* A copy that comes or goes elsewhere may be the only one, and would miss a write. */
        bool needs_source = copy->state != TNI_COPY_VALID && !writes;
        if ((writes || (needs_source && tni_data_source(plan, a->data, memory) == NULL)) &&
            tni_data_is_moving(plan, a->data))
            return false;
        needed += tni_copy_room_for(copy);
        own_idle +=
            tni_copy_has_room(copy) && copy->pins == 0 && !copy->is_kept ? a->data->bytes : 0;
    }
    return needed <= its->capacity - its->used + (its->idle - own_idle);
}

bool tni_data_is_alone(const struct tni_plan *plan, const struct tni_access *accesses,
                       uint32_t memory)
{
    const struct tni_memory *its = &plan->memories.all[memory];
    uint64_t others = its->used - its->idle;
    for (const struct tni_access *a = accesses; a->data != NULL; a++) {
        const struct tni_copy *copy = &a->data->copies[memory];
        others -=
            tni_copy_has_room(copy) && copy->pins > 0 && !copy->is_kept ? a->data->bytes : 0;
    }
    return memory == TNI_HOST || others == 0;
}
