/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gets of a store beside puts, deletes and evictions of few keys. A value says which key it is
 * of, in its bytes and in a tensor, so a torn value or one of another key is seen. The keys of
 * a store lie in two chains of its table, and entries go from one to the other: so a reader may
 * stand on an entry that moves. One key is never deleted and must always be found.
 */
#ifndef TENON_TESTS_PROCESS_STORE_CHURN_H
#define TENON_TESTS_PROCESS_STORE_CHURN_H

#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "harness/harness.h"
#include "harness/tensor.h"

enum { CHURN_CHAINS = 2, CHURN_EACH = 4, CHURN_KEYS = CHURN_CHAINS * CHURN_EACH, BUCKETS = 64 };
/* Key 0 is the one that is never deleted, the last one of its chain. */
static char churn_keys[CHURN_KEYS][16];

struct churn_value {
    uint32_t key, words; /* words of `number` follow */
    uint64_t number;
};
enum { CHURN_WORDS = 60 };

static void churn_choose_keys(void)
{
    unsigned found[CHURN_CHAINS] = {0};
    for (unsigned n = 0; found[0] < CHURN_EACH || found[1] < CHURN_EACH; n++) {
        char name[16];
        int length = snprintf(name, sizeof name, "key%u", n);
        uint64_t chain = tni_hash_fast(name, (size_t)length) % BUCKETS;
        if (chain < CHURN_CHAINS && found[chain] < CHURN_EACH)
            memcpy(churn_keys[chain * CHURN_EACH + found[chain]++], name, sizeof name);
    }
}

/* @return the status of the put */
static inline int churn_put(tn_domain *d, tn_store *store, uint32_t key, uint64_t number)
{
    struct {
        struct churn_value head;
        uint64_t words[CHURN_WORDS];
    } value = {.head = {key, (uint32_t)(number % CHURN_WORDS), number}};
    const int64_t count = 1 + (int64_t)(number % 30);
    tn_tensor *t;
    for (uint32_t i = 0; i < value.head.words; i++)
        value.words[i] = number;
    int status = tn_tensor_create(d, TN_UINT64, 1, &count, NULL, &t);
    if (status != 0)
        return status;
    for (int64_t i = 0; i < count; i++)
        ((uint64_t *)tn_tensor_data(t))[i] = number;
    status = tn_store_put(
        store, churn_keys[key],
        &(tn_message){.bytes = &value,
                      .size_bytes = sizeof value.head + value.head.words * sizeof(uint64_t),
                      .tensors = &t,
                      .tensor_count = 1},
        TN_OPTIONS(tn_store_put_options, .flags = key == 0 ? TN_PUT_PINNED : 0,
                   .deadline = TN_FOREVER),
        NULL);
    tn_tensor_unref(t);
    return status;
}

static inline void churn_check(uint32_t key, const tn_message *m)
{
    struct churn_value head;
    TN_CHECK(m->size_bytes >= sizeof head);
    memcpy(&head, m->bytes, sizeof head);
    TN_CHECK(head.key == key);
    TN_CHECK(m->size_bytes == sizeof head + head.words * sizeof(uint64_t));
    const uint8_t *words = (const uint8_t *)m->bytes + sizeof head;
    for (uint32_t i = 0; i < head.words; i++)
        TN_CHECK(memcmp(words + i * sizeof(uint64_t), &head.number, sizeof(uint64_t)) == 0);
    TN_CHECK(m->tensor_count == 1);
    TN_CHECK(tn_tensor_count(m->tensors[0]) == 1 + (int64_t)(head.number % 30));
    const uint64_t *data = tn_tensor_data(m->tensors[0]);
    for (int64_t i = 0; i < tn_tensor_count(m->tensors[0]); i++)
        TN_CHECK(data[i] == head.number);
}

/* Get a key, and the one that is always there. */
static inline void churn_get(tn_store *store, uint32_t key)
{
    tn_message m;
    uint64_t version;
    TN_CHECK_OK(tn_store_get(store, churn_keys[0], &m, &version));
    churn_check(0, &m);
    tn_message_fini(&m);
    int status = tn_store_get(store, churn_keys[key], &m, &version);
    TN_CHECK(status == 0 || (status == TN_ERR_NOT_FOUND && key != 0));
    if (status == 0) {
        churn_check(key, &m);
        tn_message_fini(&m);
    }
}

static inline int churn_see(const tn_store_entry *entry, void *context)
{
    *(bool *)context |= strcmp(entry->key, churn_keys[0]) == 0;
    TN_CHECK(strncmp(entry->key, "key", 3) == 0 && entry->tensors == 1);
    return 0;
}

/* Put a key, or delete it if it is not the first. @param dice  a random number */
static inline void churn_change(tn_domain *d, tn_store *store, uint64_t dice)
{
    uint32_t key = (uint32_t)(dice % CHURN_KEYS);
    if (key != 0 && dice / CHURN_KEYS % 2 == 0) {
        int status = tn_store_delete(store, churn_keys[key], 0);
        TN_CHECK(status == 0 || status == TN_ERR_NOT_FOUND);
        return;
    }
    int status = churn_put(d, store, key, dice);
    TN_CHECK(status == 0 || status == TN_ERR_FULL);
}

#endif
