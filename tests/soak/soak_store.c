/* SPDX-License-Identifier: Apache-2.0 */
/* Stores: keepers put, get, delete and make values; the conductor empties the store. */
#include "soak.h"

#include <stdio.h>
#include <string.h>

enum { KEYS = 12, CAPACITY = 8, BUDGET_KIB = 512 };
#define MAGIC UINT64_C(0x65726f7473)

/* The bytes of a value, which has one tensor. */
struct value {
    uint64_t magic;
    uint32_t key, life;
    struct soak_part part;
    uint64_t again; /* `magic`, if the value is whole */
};

int soak_store_open(tn_domain *domain, uint32_t flags)
{
    const tn_store_options options = {.struct_size = sizeof options,
                                      .capacity = CAPACITY,
                                      .flags = TN_STORE_EVICT,
                                      .budget_bytes = BUDGET_KIB << 10};
    return tn_store_open(domain, "store", &options, flags, &me.store);
}

static const char *name_of(uint32_t key)
{
    static char name[16];
    snprintf(name, sizeof name, "key%u", key);
    return name;
}

/* @return whether a call may fail so while others are killed and stopped */
static bool is_refusal(int status)
{
    return status == TN_ERR_TIMED_OUT || status == TN_ERR_NO_MEMORY || status == TN_ERR_FULL ||
           status == TN_ERR_NOT_FOUND;
}

static bool judge(const char *call, int status)
{
    if (status < 0 && !is_refusal(status))
        soak_fail_status(SOAK_ON_STORES, call, status);
    return status == 0;
}

/* @return whether the key has the value */
static bool put(uint32_t key)
{
    bool is_put = false;
    struct value value = {.magic = MAGIC, .key = key, .life = me.life, .again = MAGIC};
    tn_tensor *tensor;
    tn_message m = {
        .bytes = &value, .size_bytes = sizeof value, .tensors = &tensor, .tensor_count = 1};
    tn_store_put_options options = {.struct_size = sizeof options,
                                    .lifetime_ns =
                                        soak_chance(20) ? soak_below(30) * SOAK_MS_NS : 0,
                                    .deadline = soak_deadline(20)};
    if (!soak_make_tensor(&value.part, &tensor))
        return false;
    soak_do(SOAK_AT_STORE);
    /* A memory object would be lost with its last holder. */
    if (value.part.strategy == TN_STRATEGY_ARENA)
        is_put =
            judge("tn_store_put", tn_store_put(me.store, name_of(key), &m, &options, NULL));
    soak_count(SOAK_N_VALUES_PUT, is_put);
    soak_drop_tensors(&tensor, 1);
    return is_put;
}

/* pre: the caller owns the message, which this ends. */
static void check_value(uint32_t key, tn_message *m)
{
    struct value value;
    if (m->size_bytes != sizeof value || m->tensor_count != 1)
        soak_fail(SOAK_ON_STORES, "key%u has %zu bytes and %u tensors", key, m->size_bytes,
                  m->tensor_count);
    memcpy(&value, m->bytes, sizeof value);
    if (value.magic != MAGIC || value.again != MAGIC || value.key != key)
        soak_fail(SOAK_ON_STORES, "key%u has a value of key%u, or none that is whole", key,
                  value.key);
    soak_check_tensor(m->tensors[0], &value.part, "a value of a store");
    soak_checked(SOAK_ON_STORES);
    soak_count(SOAK_N_VALUES_GOT, 1);
    tn_message_fini(m);
}

static void get(uint32_t key)
{
    tn_message m;
    if (judge("tn_store_get", tn_store_get(me.store, name_of(key), &m, NULL)))
        check_value(key, &m);
}

static void get_or_make(uint32_t key)
{
    tn_message m;
    int status = tn_store_get_or_make(me.store, name_of(key), soak_deadline(20), &m);
    if (judge("tn_store_get_or_make", status))
        check_value(key, &m);
    else if (status == TN_STORE_MAKE && (soak_chance(20) || !put(key)))
        judge("tn_store_give_up", tn_store_give_up(me.store, name_of(key)));
}

static int count_one(const tn_store_entry *entry, void *context)
{
    ++*(uint32_t *)context;
    return strlen(entry->key) < 4;
}

static void list(void)
{
    uint32_t count = 0;
    int status = tn_store_for_each(me.store, "key", count_one, &count);
    if (status != 0 || count > CAPACITY)
        soak_fail(SOAK_ON_STORES, "a list of %u keys ended with %d", count, status);
}

static void use_once(void)
{
    uint32_t dice = soak_below(100), key = soak_below(KEYS);
    soak_do(SOAK_AT_STORE);
    if (dice < 40)
        get(key);
    else if (dice < 70)
        put(key);
    else if (dice < 85)
        get_or_make(key);
    else if (dice < 95)
        judge("tn_store_delete", tn_store_delete(me.store, name_of(key), 0));
    else
        list();
}

/* Often, so that many are killed in the middle of a change. */
void soak_use_store(void)
{
    enum { TIMES = 24 };
    for (int i = 0; i < TIMES && soak_goes_on(); i++)
        use_once();
    soak_do(SOAK_NOTHING);
}

/* No other process is in the store. A key of which a dead process promised a value has none. */
void soak_empty_store(void)
{
    tn_store_info info = {.struct_size = sizeof info};
    for (uint32_t key = 0; key < KEYS; key++) {
        tn_message m;
        int status = tn_store_get_or_make(me.store, name_of(key), TN_NOW, &m);
        if (status == 0) {
            check_value(key, &m);
            status = tn_store_delete(me.store, name_of(key), 0);
        } else if (status == TN_STORE_MAKE) {
            status = tn_store_give_up(me.store, name_of(key));
        }
        if (status != 0 && status != TN_ERR_NOT_FOUND)
            soak_fail_status(SOAK_ON_STORES, "emptying the store", status);
    }
    int status = tn_store_get_info(me.store, &info);
    if (status != 0 || info.count != 0 || info.bytes != 0)
        soak_fail(SOAK_ON_STORES, "an empty store says %u keys and %llu bytes", info.count,
                  (unsigned long long)info.bytes);
}
