/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slots: chooses, takes and gives back what a task needs.
 *
 * Slots of one task lie in one group if a group is large enough, even if that group is busy
 * now: the task waits. The groups that come into question are the innermost ones that are large
 * enough. If only the whole resource is, the task gets slots of as few groups as possible.
 */
#include <stdlib.h>

#include "plan/resource.h"

/* Whether a task that is picked for may use what another lane reserved in this pool. */
static bool may_use_reserved(const struct tni_pool *pool, const struct tni_pick *pick)
{
    if (pool->reserver == NULL || pool->reserver == pick->lane)
        return true;
    return pick->run_ns != 0 && pool->reserved_from_ns != 0 &&
           pick->now_ns + pick->run_ns <= pool->reserved_from_ns;
}

static bool is_usable(const struct tni_pool *pool, uint32_t slot, const struct tni_pick *pick)
{
    /* Both differences are unsigned. */
    if (pick->only == pool && slot - pick->only_first >= pick->only_count)
        return false;
    return may_use_reserved(pool, pick) || slot - pool->reserved_first >= pool->reserved_count;
}

static uint32_t whole_free(const struct tni_pool *pool, uint32_t first, uint32_t count,
                           const struct tni_pick *pick)
{
    uint32_t found = 0;
    for (uint32_t i = first; i < first + count; i++)
        found += pool->slots[i].free == TNI_UNIT && is_usable(pool, i, pick);
    return found;
}

/* The innermost groups with room for n slots are where n slots may be taken. */
static bool is_candidate(const struct tni_group *group, uint32_t n)
{
    return group->count >= n && group->widest < n;
}

uint32_t tni_slot_distance(const struct tni_pool *pool, uint32_t a, uint32_t b)
{
    uint32_t group = pool->slots[a].group, distance = 1;
    if (a == b)
        return 0;
    while (b - pool->groups[group].first >= pool->groups[group].count) {
        group = pool->groups[group].parent;
        distance++;
    }
    return distance;
}

/* ---- choosing ---------------------------------------------------------------------------- */

static uint32_t near_slot(const struct tni_pick *pick, uint32_t pool)
{
    return pick->near.pool == pool ? pick->near.slot : UINT32_MAX;
}

/*
 * The best slot for a task that needs one slot, or a part of one. The nearest to `near`; then,
 * for a part, the slot with the least room; for a whole slot, one of the group with the most
 * room, or with the least while tasks with several slots are to come.
 */
static uint32_t find_slot(const struct tni_pool *pool, uint32_t amount, uint32_t near,
                          const struct tni_pick *pick)
{
    uint32_t best = UINT32_MAX, group = UINT32_MAX, room = 0;
    uint64_t best_score = UINT64_MAX;
    for (uint32_t i = 0; i < pool->slot_count; i++) {
        const struct tni_slot *slot = &pool->slots[i];
        if (slot->free < amount || !is_usable(pool, i, pick))
            continue;
        uint64_t away = near < pool->slot_count ? tni_slot_distance(pool, near, i) : 0;
        uint64_t load = slot->free;
        if (amount == TNI_UNIT) {
            if (slot->group != group) {
                const struct tni_group *its = &pool->groups[slot->group];
                group = slot->group;
                room = whole_free(pool, its->first, its->count, pick);
            }
            load = pool->wide_count > 0 ? room : TNI_SLOTS - room;
        }
        uint64_t score = away << 32 | load;
        if (score < best_score) {
            best_score = score;
            best = i;
        }
    }
    return best;
}

/* The best group for n slots: the one that has `near`, then the one with the least room. */
static uint32_t find_group(const struct tni_pool *pool, uint32_t n, uint32_t near,
                           const struct tni_pick *pick)
{
    uint32_t best = UINT32_MAX, best_room = UINT32_MAX;
    for (uint32_t i = 0; i < pool->group_count; i++) {
        const struct tni_group *group = &pool->groups[i];
        if (!is_candidate(group, n))
            continue;
        uint32_t room = whole_free(pool, group->first, group->count, pick);
        if (room < n)
            continue;
        if (near - group->first < group->count)
            return i;
        if (room < best_room) {
            best_room = room;
            best = i;
        }
    }
    return best;
}

static bool has_room(const struct tni_pool *pool, uint32_t at, uint64_t amount,
                     const struct tni_pick *pick)
{
    if (pool->free < amount)
        return false;
    if (!pool->has_slots)
        return may_use_reserved(pool, pick) || pool->free - amount >= pool->reserved;
    if (amount > TNI_UNIT)
        return find_group(pool, (uint32_t)(amount / TNI_UNIT), near_slot(pick, at), pick) !=
               UINT32_MAX;
    return find_slot(pool, (uint32_t)amount, near_slot(pick, at), pick) != UINT32_MAX;
}

uint32_t tni_pools_lacking(const struct tni_pools *pools, const struct tni_request *request,
                           const struct tni_pick *pick)
{
    for (uint32_t i = request->count; i-- > 0;) {
        const struct tni_need *need = &request->needs[i];
        if (!has_room(&pools->pools[need->pool], need->pool, need->amount, pick))
            return need->pool;
    }
    return UINT32_MAX;
}

/* ---- taking ------------------------------------------------------------------------------ */

/* Slots that are being taken from one pool. */
struct taking {
    struct tni_pool *pool;
    const struct tni_pick *pick;
    struct tni_slot_ref *slots; /* the next one is written here */
    uint16_t number;            /* of the pool */
    uint64_t ends_ns;
};

static void take_slot(struct taking *taking, uint32_t slot, uint32_t amount)
{
    struct tni_slot *its = &taking->pool->slots[slot];
    its->free -= amount;
    its->ends_ns = taking->ends_ns;
    taking->pool->free -= amount;
    *taking->slots++ = (struct tni_slot_ref){taking->number, (uint16_t)slot};
}

/* A part of a group: a group directly inside it, or one slot directly inside it. */
struct part {
    uint32_t first, count, group; /* group: UINT32_MAX for a slot */
    uint32_t room;
};

/* Find the part of the group to take the next of n slots from: the tightest with room for all
   n, or else the one with the most room. */
static struct part find_part(const struct taking *taking, uint32_t group, uint32_t n)
{
    const struct tni_pool *pool = taking->pool;
    const struct tni_group *whole = &pool->groups[group];
    struct part best = {.room = 0};
    uint32_t next_group = group + 1;
    for (uint32_t slot = whole->first; slot < whole->first + whole->count;) {
        struct part part = {slot, 1, UINT32_MAX, 0};
        if (pool->slots[slot].group != group) {
            part.group = next_group;
            part.count = pool->groups[next_group].count;
            next_group = pool->groups[next_group].end;
        }
        part.room = whole_free(pool, part.first, part.count, taking->pick);
        bool is_better =
            best.room < n ? part.room > best.room : part.room >= n && part.room < best.room;
        if (is_better)
            best = part;
        slot += part.count;
    }
    return best;
}

/* Take n slots of a group that has room for them. It recurses as deep as groups are nested. */
static void take_from_group(struct taking *taking, uint32_t group, uint32_t n)
{
    while (n > 0) {
        struct part part = find_part(taking, group, n);
        uint32_t taken = TNI_MIN(part.room, n);
        if (part.group == UINT32_MAX)
            take_slot(taking, part.first, TNI_UNIT);
        else
            take_from_group(taking, part.group, taken);
        n -= taken;
    }
}

/* Ids need not ascend in the text of the pool, so slots are ordered by id. */
static void order_by_id(const struct tni_pool *pool, struct tni_slot_ref *slots, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++)
        for (uint32_t j = i;
             j > 0 && pool->slots[slots[j].slot].id < pool->slots[slots[j - 1].slot].id; j--) {
            struct tni_slot_ref other = slots[j];
            slots[j] = slots[j - 1];
            slots[j - 1] = other;
        }
}

bool tni_pools_take(struct tni_pools *pools, const struct tni_request *request,
                    const struct tni_pick *pick, struct tni_slot_ref *ret_slots)
{
    if (!tni_pools_can_take(pools, request, pick))
        return false;
    struct taking taking = {.pick = pick,
                            .slots = ret_slots,
                            .ends_ns =
                                pick->run_ns != 0 ? pick->now_ns + pick->run_ns : TNI_FOREVER};
    for (uint32_t i = 0; i < request->count; i++) {
        const struct tni_need *need = &request->needs[i];
        struct tni_pool *pool = &pools->pools[need->pool];
        struct tni_slot_ref *first = taking.slots;
        uint32_t n = (uint32_t)(need->amount / TNI_UNIT), near = near_slot(pick, need->pool);
        if (!pool->has_slots) {
            pool->free -= need->amount;
            continue;
        }
        taking.pool = pool;
        taking.number = (uint16_t)need->pool;
        if (n <= 1) {
            take_slot(&taking, find_slot(pool, (uint32_t)need->amount, near, pick),
                      (uint32_t)need->amount);
            continue;
        }
        take_from_group(&taking, find_group(pool, n, near, pick), n);
        order_by_id(pool, first, n);
    }
    return true;
}

static void give_slot(struct tni_slot *slot, uint32_t amount)
{
    slot->free += amount;
    if (slot->free == TNI_UNIT)
        slot->ends_ns = 0;
}

void tni_pools_give(struct tni_pools *pools, const struct tni_request *request,
                    const struct tni_slot_ref *slots, uint32_t pool_mask)
{
    for (uint32_t i = 0; i < request->count; i++) {
        const struct tni_need *need = &request->needs[i];
        struct tni_pool *pool = &pools->pools[need->pool];
        bool is_given = (pool_mask >> need->pool & 1) != 0;
        uint32_t n = pool->has_slots ? (uint32_t)TNI_MAX(need->amount / TNI_UNIT, 1) : 0;
        pool->free += is_given ? need->amount : 0;
        for (uint32_t j = 0; j < n; j++, slots++)
            if (is_given)
                give_slot(&pool->slots[slots->slot], (uint32_t)(need->amount / n));
    }
}

/* ---- when there will be room ------------------------------------------------------------- */

/* When n slots of a range are free, if their tasks end as expected. */
static uint64_t range_ends_ns(const struct tni_pool *pool, uint32_t first, uint32_t count,
                              uint32_t n)
{
    uint64_t last = 0;
    for (uint32_t i = first; i < first + count; i++) {
        uint32_t sooner = 0;
        for (uint32_t j = first; j < first + count; j++)
            sooner += pool->slots[j].ends_ns < pool->slots[i].ends_ns;
        if (sooner < n)
            last = TNI_MAX(last, pool->slots[i].ends_ns);
    }
    return last;
}

uint64_t tni_pool_slots_free_ns(const struct tni_pool *pool, uint64_t amount)
{
    uint32_t n = (uint32_t)TNI_MAX(amount / TNI_UNIT, 1);
    uint64_t soonest = TNI_FOREVER;
    for (uint32_t i = 0; i < pool->group_count; i++)
        if (is_candidate(&pool->groups[i], n) || (n == 1 && i == 0)) {
            const struct tni_group *group = &pool->groups[i];
            soonest = TNI_MIN(soonest, range_ends_ns(pool, group->first, group->count, n));
        }
    return soonest;
}

/* ---- reserving --------------------------------------------------------------------------- */

/* Reserve where the lane's task can begin soonest: where most is free. */
static void reserve_slots(struct tni_pool *pool, uint64_t amount)
{
    const struct tni_pick any = {0};
    uint32_t n = (uint32_t)(amount / TNI_UNIT);
    uint64_t best = 0;
    for (uint32_t i = 0; i < pool->slot_count && n <= 1; i++)
        if (pool->slots[i].free + 1 > best) {
            best = pool->slots[i].free + 1;
            pool->reserved_first = i;
            pool->reserved_count = 1;
        }
    for (uint32_t i = 0; i < pool->group_count && n > 1; i++) {
        const struct tni_group *group = &pool->groups[i];
        uint64_t room = UINT64_C(1) + whole_free(pool, group->first, group->count, &any);
        if (is_candidate(group, n) && room > best) {
            best = room;
            pool->reserved_first = group->first;
            pool->reserved_count = group->count;
        }
    }
}

bool tni_pools_reserve(struct tni_pools *pools, const struct tni_request *request,
                       const void *lane)
{
    for (uint32_t i = 0; i < request->count; i++)
        if (pools->pools[request->needs[i].pool].reserver != NULL)
            return false;
    for (uint32_t i = 0; i < request->count; i++) {
        struct tni_pool *pool = &pools->pools[request->needs[i].pool];
        if (pool->has_slots)
            reserve_slots(pool, request->needs[i].amount);
        else
            pool->reserved = request->needs[i].amount;
        pool->reserver = lane;
        pool->reserved_from_ns = 0;
    }
    return true;
}

void tni_pools_unreserve(struct tni_pools *pools, const void *lane)
{
    for (uint32_t i = 0; i < pools->count; i++) {
        struct tni_pool *pool = &pools->pools[i];
        if (pool->reserver != lane)
            continue;
        pool->reserver = NULL;
        pool->reserved = 0;
        pool->reserved_count = 0;
    }
}
