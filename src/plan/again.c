/* SPDX-License-Identifier: Apache-2.0 */
/*
 * again: as what a task runs again whose memory ran out. First it runs alone, with all of what
 * it requests a part of; then as another variant, which needs none of that.
 *
 * Both are kinds of the plan, with a signature of their own: a task that is to run alone waits
 * for it as any task waits for its resources, with a reservation, and without a special case.
 */
#include <stdlib.h>

#include "plan/lane.h"

/* The slots of each innermost group: of a card, if slots are parts of cards. 0: they differ. */
static uint64_t card_slots(const struct tni_pool *pool)
{
    uint64_t slots = 0, in_cards = 0;
    for (uint32_t i = 1; i < pool->group_count; i++) {
        const struct tni_group *group = &pool->groups[i];
        if (group->end != i + 1)
            continue;
        if (slots != 0 && group->count != slots)
            return 0;
        slots = group->count;
        in_cards += slots;
    }
    return in_cards == pool->slot_count ? slots : 0;
}

/*
 * The slots of the largest card, where cards with memories differ in size: a task with data has
 * its slots on one card. If their memories differ, too, its data may need any of them.
 */
static uint64_t largest_card(const struct tni_memories *memories, const struct tni_pool *pool,
                             uint64_t amount)
{
    uint64_t most = 0, capacity = 0;
    for (uint32_t m = 0; m < memories->count; m++) {
        if (memories->all[m].pool != pool)
            continue;
        if (most != 0 && memories->all[m].capacity != capacity)
            return amount;
        capacity = memories->all[m].capacity;
        most = TNI_MAX(most, memories->all[m].count * (uint64_t)TNI_UNIT);
    }
    return most;
}

static uint64_t all_of(const struct tni_plan *plan, const struct tni_pool *pool,
                       uint64_t amount)
{
    if (!pool->has_slots)
        return pool->total;
    if (pool->group_count == 1) /* a list of devices: whole ones */
        return (amount + TNI_UNIT - 1) / TNI_UNIT * TNI_UNIT;
    uint64_t card = card_slots(pool) * TNI_UNIT;
    if (card == 0)
        card = largest_card(&plan->memories, pool, amount);
    return amount <= card ? card : pool->total; /* of several cards it might get parts */
}

/* The request with which nothing else has what this one needs a part of. */
static void ask_for_all(const struct tni_plan *plan, struct tni_request *request)
{
    bool is_cpu_only = (tni_request_mask(request) & ~(uint32_t)TNI_BUILT_IN_MASK) == 0;
    for (uint32_t i = 0; i < request->count; i++) {
        struct tni_need *need = &request->needs[i];
        if (need->pool >= TNI_BUILT_IN || (is_cpu_only && need->pool == TNI_CPU))
            need->amount = all_of(plan, &plan->pools.pools[need->pool], need->amount);
    }
}

static void copy_variant(struct tn_kind *to, struct tni_signature *signature,
                         const struct tn_kind *from, uint32_t variant)
{
    uint32_t at = signature->variant_count++;
    signature->variants[at].request = from->signature->variants[variant].request;
    to->run[at] = from->run[variant];
    to->mean_ns[at] = from->mean_ns[variant];
    to->numbers[at] = from->numbers[variant];
}

/* Add a kind for tasks of another kind. NULL: there is no memory */
static struct tn_kind *add_kind(struct tni_plan *plan, struct tn_kind *of,
                                const struct tn_kind *wanted, struct tni_signature *signature)
{
    signature->place = of->signature->place;
    tni_signature_complete(plan, signature);
    struct tn_kind *kind = tni_kind_make(plan, signature, of->name);
    if (kind == NULL)
        return NULL;
    memcpy(kind->run, wanted->run, sizeof kind->run);
    memcpy(kind->mean_ns, wanted->mean_ns, sizeof kind->mean_ns);
    memcpy(kind->numbers, wanted->numbers, sizeof kind->numbers);
    kind->take = of->take;
    kind->affinity_mask = of->affinity_mask & kind->signature->pool_mask;
    kind->attempts = of->attempts;
    kind->of = of;
    return kind;
}

static struct tn_kind *make_alone(struct tni_plan *plan, struct tn_kind *of, uint32_t variant)
{
    struct tni_signature signature = {0};
    struct tn_kind wanted = {0};
    if (of->alone[variant] == NULL) {
        copy_variant(&wanted, &signature, of, variant);
        ask_for_all(plan, &signature.variants[0].request);
        of->alone[variant] = add_kind(plan, of, &wanted, &signature);
    }
    return of->alone[variant];
}

/* Whether a variant requests none of the resources of another one, but what is built in. */
static bool is_elsewhere(const struct tn_kind *kind, uint32_t variant, uint32_t other)
{
    const struct tni_variant *variants = kind->signature->variants;
    uint32_t scarce = variants[variant].pool_mask & ~(uint32_t)TNI_BUILT_IN_MASK;
    return scarce != 0 && (variants[other].pool_mask & scarce) == 0;
}

static struct tn_kind *make_elsewhere(struct tni_plan *plan, struct tn_kind *of,
                                      uint32_t variant)
{
    struct tni_signature signature = {0};
    struct tn_kind wanted = {0};
    if (of->elsewhere[variant] != NULL)
        return of->elsewhere[variant];
    for (uint32_t i = 0; i < of->signature->variant_count; i++)
        if (is_elsewhere(of, variant, i))
            copy_variant(&wanted, &signature, of, i);
    if (signature.variant_count == 0)
        return NULL;
    of->elsewhere[variant] = add_kind(plan, of, &wanted, &signature);
    if (of->elsewhere[variant] != NULL)
        of->elsewhere[variant]->is_last = true;
    return of->elsewhere[variant];
}

uint32_t tni_kind_first_variant(const struct tn_kind *kind, uint32_t variant)
{
    const struct tn_kind *first = kind->of != NULL ? kind->of : kind;
    uint32_t at = 0;
    while (first->numbers[at] != kind->numbers[variant])
        at++;
    return at;
}

struct tn_kind *tni_kind_again(struct tni_plan *plan, struct tn_kind *kind, uint32_t variant)
{
    if (kind->is_last)
        return NULL;
    return kind->of == NULL ? make_alone(plan, kind, variant)
                            : make_elsewhere(plan, kind->of, tni_kind_first_variant(kind, 0));
}

bool tni_kind_may_run_again(const struct tn_kind *kind, uint32_t variant)
{
    if (kind->is_last || kind->of == NULL)
        return !kind->is_last;
    uint32_t first = tni_kind_first_variant(kind, variant);
    for (uint32_t i = 0; i < kind->of->signature->variant_count; i++)
        if (is_elsewhere(kind->of, first, i))
            return true;
    return false;
}
