/* SPDX-License-Identifier: Apache-2.0 */
/* resource: reads and prints the pools of a scheduler. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

#include "plan/parse.h"

uint32_t tni_pools_find(const struct tni_pools *pools, const char *name, size_t name_len)
{
    for (uint32_t i = 0; i < pools->count; i++)
        if (strlen(pools->pools[i].name) == name_len &&
            memcmp(pools->pools[i].name, name, name_len) == 0)
            return i;
    return UINT32_MAX;
}

/* ---- trees of slots ---------------------------------------------------------------------- */

/* The text of a tree that is read: "((0,1),(2,3))". */
struct tree_text {
    const struct tni_word *word;
    const char *at, *end;
    struct tni_pool *pool;
    uint32_t slot_room, group_room;
};

static int fail_tree(const struct tree_text *text, const char *what)
{
    return tni_fail(TN_ERR_INVALID, "%.*s=%.*s: %s", text->word->name_len, text->word->name,
                    TNI_MIN(text->word->value_len, 60), text->word->value, what);
}

static int grow(void **array, uint32_t count, uint32_t *room, size_t item_bytes)
{
    if (count < *room)
        return 0;
    uint32_t more = *room == 0 ? 16 : *room * 2;
    void *larger = realloc(*array, more * item_bytes);
    if (larger == NULL)
        return tni_fail(TN_ERR_NO_MEMORY, "there is no memory for %u slots", more);
    *array = larger;
    *room = more;
    return 0;
}

static int add_group(struct tree_text *text, uint32_t parent, uint32_t depth,
                     uint32_t *ret_group)
{
    struct tni_pool *pool = text->pool;
    int status = grow((void **)&pool->groups, pool->group_count, &text->group_room,
                      sizeof *pool->groups);
    if (status != 0)
        return status;
    pool->groups[pool->group_count] =
        (struct tni_group){.first = pool->slot_count, .parent = parent, .depth = depth};
    *ret_group = pool->group_count++;
    return 0;
}

static int add_slot(struct tree_text *text, uint32_t group)
{
    struct tni_pool *pool = text->pool;
    uint64_t id = 0;
    for (; text->at < text->end && isdigit((unsigned char)*text->at); text->at++) {
        id = id * 10 + (uint64_t)(*text->at - '0');
        if (id > INT32_MAX)
            return fail_tree(text, "the number of a slot is at most 2147483647");
    }
    for (uint32_t i = 0; i < pool->slot_count; i++)
        if (pool->slots[i].id == id)
            return fail_tree(text, "a slot is named twice");
    if (pool->slot_count == TNI_SLOTS)
        return fail_tree(text, "a resource has at most 1024 slots");
    int status =
        grow((void **)&pool->slots, pool->slot_count, &text->slot_room, sizeof *pool->slots);
    if (status != 0)
        return status;
    pool->slots[pool->slot_count++] =
        (struct tni_slot){.id = (uint32_t)id, .free = TNI_UNIT, .group = group};
    return 0;
}

static void skip_spaces(struct tree_text *text)
{
    while (text->at < text->end && isspace((unsigned char)*text->at))
        text->at++;
}

/* Read one group from its parenthesis on. It recurses at most TNI_GROUP_DEPTH deep. */
static int read_group(struct tree_text *text, uint32_t parent, uint32_t depth)
{
    uint32_t group = 0;
    if (depth == TNI_GROUP_DEPTH)
        return fail_tree(text, "groups are nested more than 8 deep");
    int status = add_group(text, parent, depth, &group);
    text->at++;
    skip_spaces(text);
    while (status == 0 && text->at < text->end && *text->at != ')') {
        if (*text->at == '(')
            status = read_group(text, group, depth + 1);
        else if (isdigit((unsigned char)*text->at))
            status = add_slot(text, group);
        else
            status = fail_tree(text, "a slot is a number of at least 0");
        if (status != 0)
            return status;
        skip_spaces(text);
        if (text->at < text->end && *text->at == ',')
            text->at++;
        else if (text->at < text->end && *text->at != ')')
            return fail_tree(text, "slots are parted by commas");
        skip_spaces(text);
    }
    if (status != 0)
        return status;
    if (text->at == text->end)
        return fail_tree(text, "a parenthesis is not closed");
    text->at++;
    struct tni_group *made = &text->pool->groups[group];
    made->count = text->pool->slot_count - made->first;
    made->end = text->pool->group_count;
    if (group != 0) {
        struct tni_group *outer = &text->pool->groups[parent];
        outer->widest = TNI_MAX(outer->widest, made->count);
    }
    return made->count != 0 ? 0 : fail_tree(text, "a group has no slot");
}

static int read_tree(const struct tni_word *word, struct tni_pool *pool)
{
    struct tree_text text = {
        .word = word, .at = word->value, .end = word->value + word->value_len, .pool = pool};
    int status = read_group(&text, 0, 0);
    if (status == 0 && text.at != text.end)
        status = fail_tree(&text, "text follows the last parenthesis");
    pool->has_slots = true;
    pool->total = pool->free = (uint64_t)pool->slot_count * TNI_UNIT;
    return status;
}

/* ---- pools ------------------------------------------------------------------------------- */

static int read_pool(struct tni_pools *pools, const struct tni_word *word, uint32_t *named)
{
    uint32_t at = tni_pools_find(pools, word->name, (size_t)word->name_len);
    if (at == UINT32_MAX && pools->count == TNI_POOLS)
        return tni_fail(TN_ERR_INVALID, "there are more than %d resources", TNI_POOLS);
    if (at == UINT32_MAX)
        at = pools->count++;
    struct tni_pool *pool = &pools->pools[at];
    if ((*named >> at & 1) != 0)
        return tni_fail(TN_ERR_INVALID, "the resource %s is given twice", pool->name);
    *named |= 1u << at;
    memcpy(pool->name, word->name, (size_t)word->name_len);
    if (word->value_len > 0 && word->value[0] == '(') {
        if (at < TNI_BUILT_IN)
            return tni_fail(TN_ERR_INVALID, "%s is a number: its units have no identity",
                            pool->name);
        return read_tree(word, pool);
    }
    int status = tni_word_amount(word, &pool->total);
    if (status == 0 && at < TNI_BUILT_IN && pool->total < TNI_UNIT)
        status = tni_fail(TN_ERR_INVALID, "%s=%.*s: a scheduler has at least one", pool->name,
                          word->value_len, word->value);
    pool->free = pool->total;
    return status;
}

static void init_pool(struct tni_pool *pool, const char *name, uint64_t count)
{
    snprintf(pool->name, sizeof pool->name, "%s", name);
    pool->total = pool->free = count * TNI_UNIT;
}

int tni_pools_init(struct tni_pools *pools, const char *text, uint32_t cpu_count)
{
    enum { THREADS = 64 };
    struct tni_word word;
    uint32_t named = 0;
    int status = 0;
    memset(pools, 0, sizeof *pools);
    pools->count = TNI_BUILT_IN;
    init_pool(&pools->pools[TNI_CPU], "CPU", cpu_count);
    init_pool(&pools->pools[TNI_THREADS], "THREADS", THREADS);
    while (text != NULL && (status = tni_word_next(&text, &word)) > 0)
        if ((status = read_pool(pools, &word, &named)) != 0)
            break;
    if (status != 0)
        tni_pools_fini(pools);
    return status;
}

void tni_pools_fini(struct tni_pools *pools)
{
    for (uint32_t i = 0; i < pools->count; i++) {
        free(pools->pools[i].slots);
        free(pools->pools[i].groups);
    }
    pools->count = 0;
}

void tni_pools_print(const struct tni_pools *pools, char *text, size_t size_bytes)
{
    char amount[TNI_AMOUNT_BYTES];
    size_t used = 0;
    text[0] = '\0';
    for (uint32_t i = 0; i < pools->count && used < size_bytes; i++) {
        const struct tni_pool *pool = &pools->pools[i];
        int len = snprintf(text + used, size_bytes - used, "%s%s=%s%s", i == 0 ? "" : " ",
                           pool->name, tni_amount_print(pool->total, amount, sizeof amount),
                           pool->has_slots ? (pool->slot_count == 1 ? " slot" : " slots") : "");
        used += (size_t)TNI_MAX(len, 0);
    }
}
