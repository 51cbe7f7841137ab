/* SPDX-License-Identifier: Apache-2.0 */
/* memories: the memories of cards and of the host, and the speeds of the links between them. */
#include <stdlib.h>

#include "plan/parse.h"
#include "plan/plan.h"

/* A card is an innermost group of slots; without inner groups, each slot is one. */
static bool is_card(const struct tni_pool *pool, uint32_t group)
{
    return pool->groups[group].end == group + 1 && pool->group_count > 1;
}

/* @param group  of the card; 0: it is a slot in no group */
static int add_memory(struct tni_memories *memories, struct tni_pool *pool, uint32_t group,
                      uint64_t capacity, struct tni_memory **ret_memory)
{
    if (memories->count == TNI_MEMORIES)
        return tni_fail(TN_ERR_INVALID, "there are more than %d memories", TNI_MEMORIES - 1);
    struct tni_memory *memory = &memories->all[memories->count++];
    *memory = (struct tni_memory){.pool = pool, .capacity = capacity, .node = -1};
    memory->oldest.prev = memory->oldest.next = &memory->oldest;
    if (group != 0) {
        memory->first = pool->groups[group].first;
        memory->count = pool->groups[group].count;
        memory->parent = pool->groups[group].parent;
    }
    *ret_memory = memory;
    return 0;
}

static int add_slot(struct tni_memories *memories, struct tni_pool *pool, uint32_t slot,
                    uint64_t capacity)
{
    struct tni_memory *memory;
    int status = add_memory(memories, pool, 0, capacity, &memory);
    if (status == 0) {
        memory->first = slot;
        memory->count = 1;
    }
    return status;
}

int tni_memories_add(struct tni_memories *memories, struct tni_pool *pool, uint64_t capacity,
                     const char *option)
{
    struct tni_memory *memory;
    int status = 0;
    if (memories->has_disk && strcmp(pool->name, "DISK") == 0)
        return tni_fail(TN_ERR_INVALID,
                        "%s names DISK, and memories names HOST: so DISK is what the host "
                        "evicts to",
                        option);
    for (uint32_t i = 0; pool->group_count == 1 && i < pool->slot_count && status == 0; i++)
        status = add_slot(memories, pool, i, capacity);
    for (uint32_t g = 0; g < pool->group_count && status == 0; g++)
        if (is_card(pool, g))
            status = add_memory(memories, pool, g, capacity, &memory);
    /* A slot beside inner groups is in none of them. */
    for (uint32_t i = 0; pool->group_count > 1 && i < pool->slot_count; i++)
        if (!is_card(pool, pool->slots[i].group))
            return tni_fail(TN_ERR_INVALID,
                            "%s names %s, of which slot %u lies beside groups: it is not known "
                            "which card it is",
                            option, pool->name, pool->slots[i].id);
    return status;
}

bool tni_memories_has(const struct tni_memories *memories, const struct tni_pool *pool)
{
    for (uint32_t i = 0; i < memories->count; i++)
        if (memories->all[i].pool == pool)
            return true;
    return false;
}

static bool is_word(const struct tni_word *word, const char *name)
{
    return strlen(name) == (size_t)word->name_len &&
           memcmp(name, word->name, (size_t)word->name_len) == 0;
}

/* The host has an end, and there is a disk for what it evicts. */
static int read_host(struct tni_memories *memories, const struct tni_word *word)
{
    uint64_t amount = 0;
    int status = tni_word_amount(word, &amount);
    if (status == 0 && memories->all[TNI_HOST].capacity != UINT64_MAX)
        status = tni_fail_plain(TN_ERR_INVALID, "memories names HOST twice");
    if (status == 0)
        memories->all[TNI_HOST].capacity = amount / TNI_UNIT;
    return status;
}

/* Whether the host has an end: the disk is a memory before those of cards. */
static bool names_host(const char *text)
{
    struct tni_word word;
    while (text != NULL && tni_word_next(&text, &word) > 0)
        if (is_word(&word, "HOST"))
            return true;
    return false;
}

static int read_capacities(struct tni_memories *memories, struct tni_pools *pools,
                           const char *text)
{
    struct tni_word word;
    int status = 0;
    while (text != NULL && (status = tni_word_next(&text, &word)) > 0) {
        uint32_t at = tni_pools_find(pools, word.name, (size_t)word.name_len);
        uint64_t amount = 0;
        if (is_word(&word, "HOST")) {
            if ((status = read_host(memories, &word)) != 0)
                return status;
            continue;
        }
        if (at == UINT32_MAX || !pools->pools[at].has_slots)
            return tni_fail(TN_ERR_INVALID, "memories names %.*s, which has no slots",
                            word.name_len, word.name);
        if (tni_memories_has(memories, &pools->pools[at]))
            return tni_fail(TN_ERR_INVALID, "memories names %s twice", pools->pools[at].name);
        status = tni_word_amount(&word, &amount);
        if (status == 0)
            status =
                tni_memories_add(memories, &pools->pools[at], amount / TNI_UNIT, "memories");
        if (status != 0)
            return status;
    }
    return status;
}

static int read_links(struct tni_memories *memories, const char *text)
{
    static const char *const names[TNI_LINKS] = {[TNI_LINK_HOST] = "HOST",
                                                 [TNI_LINK_PEER] = "PEER",
                                                 [TNI_LINK_FAR] = "FAR",
                                                 [TNI_LINK_DISK] = "DISK"};
    struct tni_word word;
    int status = 0;
    while (text != NULL && (status = tni_word_next(&text, &word)) > 0) {
        uint32_t link = 0;
        uint64_t amount = 0;
        while (link < TNI_LINKS && !is_word(&word, names[link]))
            link++;
        if (link == TNI_LINKS)
            return tni_fail(TN_ERR_INVALID,
                            "links names %.*s: there are HOST, PEER, FAR and DISK",
                            word.name_len, word.name);
        if ((status = tni_word_amount(&word, &amount)) != 0)
            return status;
        if (amount == 0)
            return tni_fail(TN_ERR_INVALID,
                            "links: %s=0: a link carries more than 0 bytes a second",
                            names[link]);
        memories->ns_per_byte[link] = 1e9 * TNI_UNIT / (double)amount;
        memories->is_measured[link] = true;
    }
    return status;
}

uint32_t tni_link_between(const struct tni_memories *memories, uint32_t from, uint32_t to)
{
    const struct tni_memory *a = &memories->all[from], *b = &memories->all[to];
    if (memories->has_disk && (from == TNI_DISK || to == TNI_DISK))
        return TNI_LINK_DISK;
    if (from == TNI_HOST || to == TNI_HOST)
        return TNI_LINK_HOST;
    bool is_far = (a->pool == b->pool && a->parent != b->parent) ||
                  (a->node >= 0 && b->node >= 0 && a->node != b->node);
    return is_far ? TNI_LINK_FAR : TNI_LINK_PEER;
}

int tni_memories_init(struct tni_memories *memories, struct tni_pools *pools,
                      const char *capacities, const char *links)
{
    *memories = (struct tni_memories){.all = calloc(TNI_MEMORIES, sizeof *memories->all)};
    if (memories->all == NULL)
        return tni_fail(TN_ERR_NO_MEMORY, "there is no memory for a scheduler");
    for (uint32_t i = 0; i < TNI_LINKS; i++)
        memories->ns_per_byte[i] = i == TNI_LINK_DISK ? 1 : 0.1; /* 1 and 10 GB/s at first */
    struct tni_memory *memory;
    int status = add_memory(memories, NULL, 0, UINT64_MAX, &memory);
    memories->has_disk = names_host(capacities);
    if (status == 0 && memories->has_disk)
        status = add_memory(memories, NULL, 0, UINT64_MAX, &memory);
    if (status == 0)
        status = read_capacities(memories, pools, capacities);
    if (status == 0)
        status = read_links(memories, links);
    if (!memories->is_measured[TNI_LINK_FAR]) /* until it is known, near cards are better */
        memories->ns_per_byte[TNI_LINK_FAR] = 2 * memories->ns_per_byte[TNI_LINK_PEER];
    if (status != 0)
        tni_memories_fini(memories);
    return status;
}

void tni_memories_fini(struct tni_memories *memories)
{
    free(memories->all);
    memories->all = NULL;
    memories->count = 0;
}

const struct tni_pool *tni_memories_pool(const struct tni_memories *memories,
                                         const struct tni_pools *pools,
                                         const struct tni_request *request)
{
    for (uint32_t i = 0; i < request->count; i++)
        for (uint32_t m = 1; m < memories->count; m++)
            if (memories->all[m].pool == &pools->pools[request->needs[i].pool])
                return memories->all[m].pool;
    return NULL;
}

void tni_link_learn(struct tni_memories *memories, uint32_t link, uint64_t bytes,
                    uint64_t took_ns)
{
    enum { WEIGHT = 8, LEAST_BYTES = 1 << 16 }; /* less tells of the call, not of the link */
    double sample = (double)TNI_MAX(took_ns, 1) / (double)TNI_MAX(bytes, 1);
    if (bytes < LEAST_BYTES)
        return;
    double *mean = &memories->ns_per_byte[link];
    *mean = memories->is_measured[link] ? (*mean * (WEIGHT - 1) + sample) / WEIGHT : sample;
    memories->is_measured[link] = true;
}
