/* SPDX-License-Identifier: Apache-2.0 */
/* request: reads, checks and prints what a task needs. */
#include <stdio.h>
#include <string.h>

#include "plan/parse.h"

/* Check one need against what there is, so that no task waits for ever. */
static int check_need(const struct tni_pools *pools, const struct tni_word *word, uint32_t at,
                      uint64_t amount)
{
    char all[TNI_REQUEST_TEXT_BYTES];
    if (at == UINT32_MAX) {
        tni_pools_print(pools, all, sizeof all);
        return tni_fail(
            TN_ERR_NOT_FOUND, "a task requests %.*s=%.*s, and the scheduler has only %s",
            word->name_len, word->name, TNI_MIN(word->value_len, 40), word->value, all);
    }
    const struct tni_pool *pool = &pools->pools[at];
    if (pool->has_slots && amount > TNI_UNIT && amount % TNI_UNIT != 0)
        return tni_fail(TN_ERR_INVALID,
                        "a task requests %s=%.*s: it may be whole slots, or a part of one",
                        pool->name, TNI_MIN(word->value_len, 40), word->value);
    if (amount > pool->total) {
        char total[TNI_AMOUNT_BYTES];
        return tni_fail(TN_ERR_NOT_FOUND,
                        "a task requests %s=%.*s, and the scheduler has %s=%s%s", pool->name,
                        TNI_MIN(word->value_len, 40), word->value, pool->name,
                        tni_amount_print(pool->total, total, sizeof total),
                        pool->has_slots ? " slots" : "");
    }
    return 0;
}

static void set_need(struct tni_request *request, uint32_t pool, uint64_t amount)
{
    uint32_t at = 0;
    while (at < request->count && request->needs[at].pool < pool)
        at++;
    memmove(&request->needs[at + 1], &request->needs[at],
            (request->count - at) * sizeof request->needs[0]);
    request->needs[at] = (struct tni_need){pool, amount};
    request->count++;
}

int tni_request_read(const struct tni_pools *pools, const char *text,
                     struct tni_request *ret_request)
{
    struct tni_request request = {0};
    struct tni_word word;
    uint32_t named = 0;
    int status = 0;
    while (text != NULL && (status = tni_word_next(&text, &word)) > 0) {
        uint64_t amount = 0;
        uint32_t at = tni_pools_find(pools, word.name, (size_t)word.name_len);
        status = tni_word_amount(&word, &amount);
        if (status == 0)
            status = check_need(pools, &word, at, amount);
        if (status == 0 && at == TNI_THREADS)
            status = tni_fail(TN_ERR_INVALID, "a task does not request THREADS: each task that "
                                              "requests less than one CPU gets one");
        if (status == 0 && (named >> at & 1) != 0)
            status =
                tni_fail(TN_ERR_INVALID, "a task requests %s twice", pools->pools[at].name);
        if (status != 0)
            return status;
        named |= 1u << at;
        if (amount != 0)
            set_need(&request, at, amount);
    }
    if (status < 0)
        return status;
    if ((named >> TNI_CPU & 1) == 0)
        set_need(&request, TNI_CPU, TNI_UNIT);
    if (request.count == 0 || request.needs[0].pool != TNI_CPU ||
        request.needs[0].amount < TNI_UNIT)
        set_need(&request, TNI_THREADS, TNI_UNIT);
    *ret_request = request;
    return 0;
}

void tni_request_print(const struct tni_pools *pools, const struct tni_request *request,
                       char *text, size_t size_bytes)
{
    char amount[TNI_AMOUNT_BYTES];
    size_t used = 0;
    bool has_cpu = request->count > 0 && request->needs[0].pool == TNI_CPU;
    snprintf(text, size_bytes, "%s", has_cpu ? "" : "CPU=0");
    used = strlen(text);
    for (uint32_t i = 0; i < request->count && used < size_bytes; i++) {
        const struct tni_need *need = &request->needs[i];
        if (need->pool == TNI_THREADS)
            continue;
        int len = snprintf(text + used, size_bytes - used, "%s%s=%s", used == 0 ? "" : " ",
                           pools->pools[need->pool].name,
                           tni_amount_print(need->amount, amount, sizeof amount));
        used += (size_t)TNI_MAX(len, 0);
    }
}

void tni_request_print_use(const struct tni_pools *pools, const struct tni_request *request,
                           char *text, size_t size_bytes)
{
    char used[TNI_AMOUNT_BYTES], total[TNI_AMOUNT_BYTES];
    size_t len = 0;
    text[0] = '\0';
    for (uint32_t i = 0; i < request->count && len < size_bytes; i++) {
        const struct tni_pool *pool = &pools->pools[request->needs[i].pool];
        int more =
            snprintf(text + len, size_bytes - len, "%s%s %s of %s", i == 0 ? "" : ", ",
                     pool->name, tni_amount_print(pool->total - pool->free, used, sizeof used),
                     tni_amount_print(pool->total, total, sizeof total));
        len += (size_t)TNI_MAX(more, 0);
    }
}

bool tni_request_is_same(const struct tni_request *a, const struct tni_request *b)
{
    if (a->count != b->count)
        return false;
    for (uint32_t i = 0; i < a->count; i++)
        if (a->needs[i].pool != b->needs[i].pool || a->needs[i].amount != b->needs[i].amount)
            return false;
    return true;
}

uint32_t tni_request_mask(const struct tni_request *request)
{
    uint32_t mask = 0;
    for (uint32_t i = 0; i < request->count; i++)
        mask |= 1u << request->needs[i].pool;
    return mask;
}

uint32_t tni_request_slots(const struct tni_pools *pools, const struct tni_request *request)
{
    uint64_t slots = 0;
    for (uint32_t i = 0; i < request->count; i++)
        if (pools->pools[request->needs[i].pool].has_slots)
            slots += (request->needs[i].amount + TNI_UNIT - 1) / TNI_UNIT;
    return (uint32_t)slots;
}
