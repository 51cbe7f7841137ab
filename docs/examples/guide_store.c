/* SPDX-License-Identifier: Apache-2.0 */
/* The program of docs/guide/store.md. */
#undef NDEBUG
#include "must.h"

#include <assert.h>

enum { WEIGHTS = 1000, WORKERS = 3 };

/* show: publish */
static void publish(tn_domain *domain, tn_store *store)
{
    tn_tensor *weights;
    must(tn_tensor_create(domain, TN_FLOAT32, 1, (int64_t[]){WEIGHTS}, NULL, &weights));
    float *numbers = tn_tensor_data(weights);
    for (int i = 0; i < WEIGHTS; i++)
        numbers[i] = (float)i;
    must(tn_store_put(store, "model/weights",
                      &(tn_message){.tensors = &weights, .tensor_count = 1}, NULL, NULL));
    tn_tensor_unref(weights); /* the store has a reference of its own */
}
/* end */

/* show: use */
static double sum_of_weights(tn_store *store)
{
    tn_message got;
    double sum = 0;
    must(tn_store_get(store, "model/weights", &got, NULL));
    const float *numbers = tn_tensor_data(got.tensors[0]); /* the memory that was published */
    for (int i = 0; i < WEIGHTS; i++)
        sum += numbers[i];
    tn_message_fini(&got); /* until here the memory stays, whatever happens to the key */
    return sum;
}
/* end */

/* Reads an image and prepares it; here, it has one number. */
static tn_tensor *prepare(tn_domain *domain)
{
    tn_tensor *image;
    must(tn_tensor_create(domain, TN_INT64, 1, (int64_t[]){1}, NULL, &image));
    *(int64_t *)tn_tensor_data(image) = 17;
    return image;
}

/* show: make */
static int work(tn_domain *domain, void *argument)
{
    tn_store *cache = argument;
    tn_tensor *image;
    tn_message got;
    if (must(tn_store_get_or_make(cache, "image/17", TN_FOREVER, &got)) == TN_STORE_MAKE) {
        image = prepare(domain); /* in one process; if it dies, in the next */
        must(tn_store_put(cache, "image/17",
                          &(tn_message){.tensors = &image, .tensor_count = 1}, NULL, NULL));
    } else {
        image = got.tensors[0];
        got.tensors[0] = NULL; /* ours now */
        tn_message_fini(&got);
    }
    int64_t number = *(const int64_t *)tn_tensor_data(image);
    tn_tensor_unref(image);
    return number == 17 ? 0 : 1;
}
/* end */

static void cache_images(tn_domain *domain)
{
    tn_process *workers[WORKERS];
    /* show: cache */
    tn_store *cache; /* at most 64 MiB: what was used least recently goes first */
    must(tn_store_open(
        domain, "images",
        TN_OPTIONS(tn_store_options, .flags = TN_STORE_EVICT, .budget_bytes = 64 << 20), 0,
        &cache));
    /* end */
    for (int i = 0; i < WORKERS; i++)
        must(tn_process_fork(domain, work, cache, 0, &workers[i]));
    for (int i = 0; i < WORKERS; i++) {
        tn_process_status ended = {.struct_size = sizeof ended};
        must(tn_process_wait(workers[i], TN_FOREVER, &ended));
        assert(ended.exit_code == 0);
        tn_process_close(workers[i]);
    }
    tn_store_info info = {.struct_size = sizeof info};
    must(tn_store_get_info(cache, &info));
    assert(info.puts == 1);
    tn_object_close(cache);
}

/* show: replace */
static int double_weights(tn_domain *domain, tn_store *store)
{
    for (;;) {
        tn_message old;
        tn_tensor *new;
        uint64_t version;
        must(tn_store_get(store, "model/weights", &old, &version));
        must(tn_tensor_create(domain, TN_FLOAT32, 1, (int64_t[]){WEIGHTS}, NULL, &new));
        for (int i = 0; i < WEIGHTS; i++)
            ((float *)tn_tensor_data(new))[i] =
                2 * ((const float *)tn_tensor_data(old.tensors[0]))[i];
        int status = tn_store_put(
            store, "model/weights", &(tn_message){.tensors = &new, .tensor_count = 1},
            TN_OPTIONS(tn_store_put_options, .if_version = version), NULL);
        tn_tensor_unref(new);
        tn_message_fini(&old);
        if (status != TN_ERR_STALE) /* STALE: another process has replaced them meanwhile */
            return must(status);
    }
}
/* end */

int main(void)
{
    tn_domain *domain;
    tn_store *store;
    must(tn_domain_open(NULL, NULL, 0, &domain));
    must(tn_store_open(domain, "models", NULL, 0, &store));
    publish(domain, store);
    assert(sum_of_weights(store) == WEIGHTS * (WEIGHTS - 1) / 2.0);
    double_weights(domain, store);
    assert(sum_of_weights(store) == WEIGHTS * (WEIGHTS - 1.0));
    cache_images(domain);
    tn_object_close(store);
    tn_domain_close(domain);
    return 0;
}
