/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of tenon/store.h. */
#undef NDEBUG
#include "must.h"

#include <assert.h>

static int print_entry(const tn_store_entry *entry, void *context)
{
    (void)context;
    printf("%s: version %llu, %llu bytes%s\n", entry->key, (unsigned long long)entry->version,
           (unsigned long long)entry->bytes, entry->is_pinned ? ", pinned" : "");
    return 0;
}

/* A value that takes long to compute: here, four numbers. */
static tn_tensor *compute(tn_domain *domain)
{
    tn_tensor *tensor;
    must(tn_tensor_create(domain, TN_FLOAT32, 1, (int64_t[]){4}, NULL, &tensor));
    float *numbers = tn_tensor_data(tensor);
    for (int i = 0; i < 4; i++)
        numbers[i] = (float)i;
    return tensor;
}

static void put_and_get(tn_domain *domain, tn_store *store)
{
    tn_tensor *weights = compute(domain);
    /* show: tn_store_put */
    uint64_t version;
    tn_message value = {.tensors = &weights, .tensor_count = 1};
    must(tn_store_put(store, "model/layer.0.weight", &value, NULL, &version));
    /* Another process can replace exactly this value: if_version = version. */
    /* end */
    tn_tensor_unref(weights);

    /* show: tn_store_get */
    tn_message got;
    int status = tn_store_get(store, "model/layer.0.weight", &got, NULL);
    if (status == TN_ERR_NOT_FOUND)
        printf("no process has put it yet\n");
    else if (must(status) == 0) {
        const float *numbers = tn_tensor_data(got.tensors[0]); /* the same memory: no copy */
        printf("%g\n", numbers[3]);
        tn_message_fini(&got);
    }
    /* end */

    /* show: tn_store_set_pinned tn_store_delete */
    must(tn_store_set_pinned(store, "model/layer.0.weight", true)); /* not to be evicted */
    must(tn_store_delete(store, "model/layer.0.weight", version));  /* unless it was replaced */
    /* end */
    assert(tn_store_delete(store, "model/layer.0.weight", 0) == TN_ERR_NOT_FOUND);
}

static void get_or_make(tn_domain *domain, tn_store *store)
{
    bool can_make = true;
    /* show: tn_store_get_or_make tn_store_give_up */
    tn_message value;
    int status = must(tn_store_get_or_make(store, "image/17", TN_FOREVER, &value));
    if (status == TN_STORE_MAKE && can_make) { /* one process computes, and the others wait */
        tn_tensor *made = compute(domain);
        tn_message message = {.tensors = &made, .tensor_count = 1};
        must(tn_store_put(store, "image/17", &message, NULL, NULL));
        tn_tensor_unref(made);
    } else if (status == TN_STORE_MAKE) {
        must(tn_store_give_up(store, "image/17")); /* another one is told to make it */
    } else {
        tn_message_fini(&value);
    }
    /* end */
    assert(tn_store_give_up(store, "image/17") == TN_ERR_NOT_FOUND);
}

int main(void)
{
    tn_domain *domain;
    must(tn_domain_open(NULL, NULL, 0, &domain));
    /* show: tn_store_open */
    tn_store *store; /* whichever process comes first makes it: a cache of 64 MiB */
    must(tn_store_open(
        domain, "cache",
        TN_OPTIONS(tn_store_options, .flags = TN_STORE_EVICT, .budget_bytes = 64 << 20), 0,
        &store));
    /* end */
    put_and_get(domain, store);
    get_or_make(domain, store);

    /* show: tn_store_wait */
    uint64_t version = 0;
    int status =
        tn_store_wait(store, "image/", version, tn_deadline_after(TN_SECOND), &version);
    if (status == 0)
        printf("a value of image/ was put or removed; the store is at version %llu\n",
               (unsigned long long)version);
    /* end */
    assert(status == 0);

    /* show: tn_store_set_kept */
    must(tn_store_set_kept(store, true)); /* tenond keeps it until its last value is deleted */
    /* end */
    must(tn_store_set_kept(store, false));

    /* show: tn_store_for_each tn_store_get_info */
    must(tn_store_for_each(store, "image/", print_entry, NULL));
    tn_store_info info = {.struct_size = sizeof info};
    must(tn_store_get_info(store, &info));
    printf("%u keys, %llu bytes, %llu hits, %llu misses\n", info.count,
           (unsigned long long)info.bytes, (unsigned long long)info.hits,
           (unsigned long long)info.misses);
    /* end */
    tn_object_close(store);
    tn_domain_close(domain);
    return 0;
}
