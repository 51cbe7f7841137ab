/* SPDX-License-Identifier: Apache-2.0 */
/* kind: tasks that have the same functions and requests; and what is learned about their time.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/lane.h"

/* Add the sentence of a request that can never be met. */
static void add_detail(char *text, size_t size_bytes)
{
    size_t len = strlen(text);
    snprintf(text + len, size_bytes - len, "%s%s", len > 0 ? "; " : "", tn_error_detail());
}

/*
 * Read the requests of the variants. A variant for which there is too little of a resource is
 * left out, if another can run.
 */
static int read_variants(const struct tni_plan *plan, const struct tni_kind_options *options,
                         struct tni_signature *ret, uint8_t ret_numbers[TNI_VARIANTS])
{
    char details[400] = "";
    ret->place = options->place;
    for (uint32_t i = 0; i < options->variant_count; i++) {
        uint32_t at = ret->variant_count;
        int status =
            tni_request_read(&plan->pools, options->requests[i], &ret->variants[at].request);
        if (status == 0)
            ret_numbers[ret->variant_count++] = (uint8_t)i;
        else if (status == TN_ERR_NOT_FOUND)
            add_detail(details, sizeof details);
        else
            return status;
    }
    if (ret->variant_count == 0)
        return tni_fail(TN_ERR_INVALID, "%s", details);
    tni_signature_complete(plan, ret);
    return 0;
}

void tni_signature_complete(const struct tni_plan *plan, struct tni_signature *signature)
{
    const struct tni_variant *first = &signature->variants[0];
    for (uint32_t i = 0; i < signature->variant_count; i++) {
        struct tni_variant *variant = &signature->variants[i];
        variant->pool_mask = tni_request_mask(&variant->request);
        variant->slot_count = tni_request_slots(&plan->pools, &variant->request);
        signature->pool_mask |= variant->pool_mask;
    }
    signature->is_batch = signature->variant_count == 1 && first->slot_count == 0 &&
                          (first->pool_mask >> TNI_THREADS & 1) == 0;
    /* In worker processes, tasks that share a grant may run at the same time. Each would use
     * as much memory, for example, as all of them were granted. */
    if (signature->place != NULL)
        signature->is_batch = signature->is_batch && first->pool_mask == 1u << TNI_CPU &&
                              first->request.needs[0].amount == TNI_UNIT;
}

static bool is_same(const struct tni_signature *a, const struct tni_signature *b)
{
    if (a->variant_count != b->variant_count || a->place != b->place)
        return false;
    for (uint32_t i = 0; i < a->variant_count; i++)
        if (!tni_request_is_same(&a->variants[i].request, &b->variants[i].request))
            return false;
    return true;
}

/* Find the signature of these variants, or make it, with its first lane. */
static struct tni_signature *find_signature(struct tni_plan *plan,
                                            const struct tni_signature *wanted)
{
    struct tni_signature *found = plan->signatures;
    while (found != NULL && !is_same(found, wanted))
        found = found->next;
    if (found != NULL)
        return found;
    found = malloc(sizeof *found);
    struct tni_lane *lane = calloc(1, sizeof *lane);
    if (found == NULL || lane == NULL) {
        free(found);
        free(lane);
        return NULL;
    }
    *found = *wanted;
    lane->signature = found;
    lane->near = TNI_NO_SLOT;
    found->lanes = lane;
    found->next = plan->signatures;
    plan->signatures = found;
    return found;
}

/* What only a variant requests that was left out is passed over. */
static int read_affinity(const struct tni_plan *plan, const struct tni_kind_options *options,
                         const struct tni_signature *signature, uint32_t *ret_mask)
{
    bool is_whole = signature->variant_count == options->variant_count;
    const char *text = options->affinity;
    uint32_t mask = 0;
    while (text != NULL && *(text += strspn(text, ", ")) != '\0') {
        size_t len = strcspn(text, ", ");
        uint32_t pool = tni_pools_find(&plan->pools, text, len);
        bool is_requested = pool != UINT32_MAX && (signature->pool_mask >> pool & 1) != 0;
        if (!is_requested && is_whole)
            return tni_fail(TN_ERR_INVALID,
                            "affinity names %.*s, which the kind of task does not request",
                            (int)TNI_MIN(len, 40), text);
        if (is_requested && !plan->pools.pools[pool].has_slots)
            return tni_fail(TN_ERR_INVALID, "affinity names %s, which has no slots",
                            plan->pools.pools[pool].name);
        mask |= is_requested ? 1u << pool : 0;
        text += len;
    }
    *ret_mask = mask;
    return 0;
}

struct tn_kind *tni_kind_make(struct tni_plan *plan, const struct tni_signature *signature,
                              const char *name)
{
    struct tni_signature *its = find_signature(plan, signature);
    struct tn_kind *kind = calloc(1, sizeof *kind);
    char *copy = strdup(name);
    if (its == NULL || kind == NULL || copy == NULL) {
        free(kind);
        free(copy);
        return NULL;
    }
    kind->plan = plan;
    kind->name = copy;
    kind->signature = its;
    kind->next = plan->kinds;
    plan->kinds = kind;
    return kind;
}

int tni_plan_add_kind(struct tni_plan *plan, const struct tni_kind_options *options,
                      struct tn_kind **ret_kind)
{
    struct tni_signature wanted = {0};
    uint8_t numbers[TNI_VARIANTS];
    uint32_t affinity_mask = 0;
    int status = read_variants(plan, options, &wanted, numbers);
    if (status == 0)
        status = read_affinity(plan, options, &wanted, &affinity_mask);
    if (status != 0)
        return status;
    struct tn_kind *kind =
        tni_kind_make(plan, &wanted, options->name != NULL ? options->name : "task");
    if (kind == NULL)
        return tni_fail(TN_ERR_NO_MEMORY, "there is no memory for a kind of task");
    kind->affinity_mask = affinity_mask;
    kind->attempts = options->attempts;
    kind->take = options->take;
    kind->writes_inputs = options->writes_inputs;
    kind->is_repeatable = options->is_repeatable;
    for (uint32_t i = 0; i < wanted.variant_count; i++) {
        kind->run[i] = options->run[numbers[i]];
        kind->mean_ns[i] = options->run_ns[numbers[i]];
        kind->numbers[i] = numbers[i];
    }
    *ret_kind = kind;
    return 0;
}

void tni_kinds_fini(struct tni_plan *plan)
{
    while (plan->kinds != NULL) {
        struct tn_kind *kind = plan->kinds;
        plan->kinds = kind->next;
        free(kind->name);
        free(kind);
    }
    while (plan->signatures != NULL) {
        struct tni_signature *signature = plan->signatures;
        plan->signatures = signature->next;
        while (signature->lanes != NULL) {
            struct tni_lane *lane = signature->lanes;
            signature->lanes = lane->next;
            free(lane);
        }
        free(signature);
    }
}

void tni_kind_learn(struct tn_kind *kind, uint32_t variant, uint64_t took_ns, uint32_t count)
{
    enum { WEIGHT = 8 };
    uint64_t sample = TNI_MAX(took_ns / count, 1), *mean = &kind->mean_ns[variant];
    if (*mean == 0)
        *mean = sample;
    else
        *mean = TNI_MAX((*mean * (WEIGHT - 1) + sample) / WEIGHT, 1);
}
