/* SPDX-License-Identifier: Apache-2.0 */
/* A store in a domain without tenond, for the tests of stores. Values are numbers of 8 bytes.
 */
#ifndef TENON_TESTS_PROCESS_STORE_WORLD_H
#define TENON_TESTS_PROCESS_STORE_WORLD_H

#include <stdio.h>
#include <string.h>

#include "harness/harness.h"

static tn_domain *d;
static tn_store *store;

/** @param options  of the store; NULL: the defaults */
static void begin(const tn_store_options *options)
{
    tn_domain_options domain = {
        .struct_size = sizeof domain, .quota_bytes = 64 << 20, .flags = TN_DOMAIN_NO_MANAGER};
    d = tnt_domain(&domain);
    TN_CHECK_OK(tn_store_open(d, "store", options, TN_OPEN_NEW, &store));
}

static void finish(void)
{
    TN_CHECK_OK(tn_domain_reap(d, NULL));
    TNT_AUDIT(d);
    store = tn_object_close(store);
    TNT_AUDIT(d);
    tn_domain_info info = {.struct_size = sizeof info};
    TN_CHECK_OK(tn_domain_get_info(d, &info));
    tn_domain_close(d);
}

static inline int try_put(const char *key, uint64_t number, const tn_store_put_options *options)
{
    tn_message m = {.bytes = &number, .size_bytes = sizeof number};
    return tn_store_put(store, key, &m, options, NULL);
}

static inline void put(const char *key, uint64_t number)
{
    TN_CHECK_OK(try_put(key, number, NULL));
}

static inline uint64_t number_of(const tn_message *m)
{
    uint64_t number;
    TN_CHECK(m->size_bytes == sizeof number);
    memcpy(&number, m->bytes, sizeof number);
    return number;
}

static inline void expect_number(const char *key, uint64_t number)
{
    tn_message m;
    TN_CHECK_OK(tn_store_get(store, key, &m, NULL));
    TN_CHECK(number_of(&m) == number);
    tn_message_fini(&m);
}

static inline void expect_none(const char *key)
{
    tn_message m;
    TN_CHECK(tn_store_get(store, key, &m, NULL) == TN_ERR_NOT_FOUND);
}

static inline tn_tensor *make_tensor(int64_t bytes, uint8_t value)
{
    tn_tensor *t;
    TN_CHECK_OK(tn_tensor_create(d, TN_UINT8, 1, &bytes, NULL, &t));
    memset(tn_tensor_data(t), value, (size_t)bytes);
    return t;
}

static inline void put_tensor(const char *key, tn_tensor *t,
                              const tn_store_put_options *options)
{
    TN_CHECK_OK(tn_store_put(store, key, &(tn_message){.tensors = &t, .tensor_count = 1},
                             options, NULL));
}

static inline const char *name_of(char key[16], uint64_t number)
{
    snprintf(key, 16, "%llu", (unsigned long long)number);
    return key;
}

static inline tn_store_info info(void)
{
    tn_store_info i = {.struct_size = sizeof i};
    TN_CHECK_OK(tn_store_get_info(store, &i));
    return i;
}

static int count_one(const tn_store_entry *entry, void *context)
{
    (void)entry;
    ++*(uint64_t *)context;
    return 0;
}

static inline uint64_t count_keys(const char *prefix)
{
    uint64_t count = 0;
    TN_CHECK_OK(tn_store_for_each(store, prefix, count_one, &count));
    return count;
}

#endif
