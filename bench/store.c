/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_get: a get of one of 1,000 present keys, and the release of its value, a tensor of
 * 4 KiB; baseline: the lookup of the same key in a hash map of this program, and an atomic
 * increment and decrement of a count beside it.
 * store_get_held: the same while this process holds all values.
 * store_put: a put of a shared tensor under one of these keys, in place of another.
 * store_evict: a put of 8 bytes under a new key into a full store that evicts.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "bench.h"

enum { ROUNDS = 101, TURNS = 2000, KEYS = 1000, BUCKETS = 2048, KEY_BYTES = 32 };

static char keys[KEYS][KEY_BYTES];
static tn_domain *d;
static tn_store *store;

/* ---- the baseline ------------------------------------------------------------------------ */

struct place {
    const char *key;
    _Atomic uint64_t count;
};
static struct place places[BUCKETS];

/* FNV-1a, which is as simple as a hash of short keys can be. */
static uint64_t hash(const char *key)
{
    uint64_t h = UINT64_C(14695981039346656037);
    for (; *key != '\0'; key++)
        h = (h ^ (uint8_t)*key) * UINT64_C(1099511628211);
    return h;
}

static struct place *find(const char *key)
{
    uint64_t at = hash(key) % BUCKETS;
    while (places[at].key != NULL && strcmp(places[at].key, key) != 0)
        at = (at + 1) % BUCKETS;
    return &places[at];
}

static double look_up(void)
{
    uint64_t since = bench_now_ns();
    for (uint32_t i = 0; i < TURNS; i++) {
        struct place *place = find(keys[i * 7919 % KEYS]);
        atomic_fetch_add(&place->count, 1);
        atomic_fetch_sub(&place->count, 1);
    }
    return (double)(bench_now_ns() - since) / TURNS;
}

/* ---- the store --------------------------------------------------------------------------- */

static tn_tensor *make_tensor(void)
{
    tn_tensor *tensor;
    bench_check(tn_tensor_create(d, TN_FLOAT32, 1, (int64_t[]){1024}, NULL, &tensor), "tensor");
    return tensor;
}

static double get_all(void)
{
    uint64_t since = bench_now_ns();
    for (uint32_t i = 0; i < TURNS; i++) {
        tn_message m;
        bench_check(tn_store_get(store, keys[i * 7919 % KEYS], &m, NULL), "get");
        tn_message_fini(&m);
    }
    return (double)(bench_now_ns() - since) / TURNS;
}

static void put(tn_store *to, const char *key, tn_tensor *tensor)
{
    const tn_message value = {.tensors = &tensor, .tensor_count = 1};
    bench_check(tn_store_put(to, key, &value, NULL, NULL), "put");
}

static double put_all(tn_tensor *tensor)
{
    uint64_t since = bench_now_ns();
    for (uint32_t i = 0; i < TURNS; i++)
        put(store, keys[i * 7919 % KEYS], tensor);
    return (double)(bench_now_ns() - since) / TURNS;
}

/* A value that no process holds, under keys that were evicted long ago. */
static double evict_all(tn_store *cache)
{
    static char more[4 * KEYS][KEY_BYTES];
    static uint32_t turn;
    const tn_message value = {.bytes = "12345678", .size_bytes = 8};
    if (more[0][0] == '\0')
        for (uint32_t i = 0; i < 4 * KEYS; i++)
            snprintf(more[i], KEY_BYTES, "cached/%u", i);
    uint64_t since = bench_now_ns();
    for (uint32_t i = 0; i < TURNS; i++)
        bench_check(tn_store_put(cache, more[turn++ % (4 * KEYS)], &value, NULL, NULL), "put");
    return (double)(bench_now_ns() - since) / TURNS;
}

int main(void)
{
    struct bench_series gets = {0}, held_gets = {0}, lookups = {0}, puts = {0}, evicts = {0};
    static tn_message held[KEYS];
    tn_store *cache;
    bench_check(tn_domain_open(NULL, NULL, 0, &d), "domain");
    bench_check(tn_store_open(d, NULL, NULL, 0, &store), "store");
    bench_check(
        tn_store_open(d, NULL,
                      TN_OPTIONS(tn_store_options, .capacity = KEYS, .flags = TN_STORE_EVICT),
                      0, &cache),
        "cache");
    for (uint32_t i = 0; i < KEYS; i++) {
        snprintf(keys[i], KEY_BYTES, "model/layer.%u.weight", i);
        find(keys[i])->key = keys[i];
        tn_tensor *tensor = make_tensor();
        put(store, keys[i], tensor);
        tn_tensor_unref(tensor);
    }
    for (int round = 0; round < ROUNDS; round++) {
        bench_add(&gets, get_all());
        bench_add(&lookups, look_up());
    }
    bench_print("store_get", &gets, "ns", &lookups, 1);
    for (uint32_t i = 0; i < KEYS; i++)
        bench_check(tn_store_get(store, keys[i], &held[i], NULL), "get");
    for (int round = 0; round < ROUNDS; round++)
        bench_add(&held_gets, get_all());
    bench_print("store_get_held", &held_gets, "ns", &lookups, 1);
    for (uint32_t i = 0; i < KEYS; i++)
        tn_message_fini(&held[i]);

    tn_tensor *tensor = make_tensor();
    put_all(tensor);
    evict_all(cache);
    for (int round = 0; round < ROUNDS; round++) {
        bench_add(&puts, put_all(tensor));
        bench_add(&evicts, evict_all(cache));
    }
    bench_print("store_put", &puts, "us", NULL, 1e-3);
    bench_print("store_evict", &evicts, "us", NULL, 1e-3);
    tn_tensor_unref(tensor);
    tn_object_close(cache);
    tn_object_close(store);
    tn_domain_close(d);
    return 0;
}
