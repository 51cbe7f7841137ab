/* SPDX-License-Identifier: Apache-2.0 */
/*
 * alloc_free: one shared 4 KiB tensor made and dropped; baseline malloc + free of 4 KiB.
 * live_million: 1,000,000 shared tensors of 64 bytes made, held, dropped: time a tensor for
 * both together, and the descriptors and mappings of the process while it holds them.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench.h"

enum { ROUNDS = 41, PAIRS = 50000, MILLION = 1000000, MILLION_ROUNDS = 5 };

static uint32_t count_descriptors(void)
{
    uint32_t count = 0;
    DIR *folder = opendir("/proc/self/fd");
    if (folder == NULL)
        abort();
    while (readdir(folder) != NULL)
        count++;
    closedir(folder);
    return count - 3; /* ".", "..", and the folder itself */
}

static uint32_t count_mappings(void)
{
    uint32_t count = 0;
    FILE *file = fopen("/proc/self/maps", "r");
    if (file == NULL)
        abort();
    for (int c; (c = fgetc(file)) != EOF;)
        count += c == '\n';
    fclose(file);
    return count;
}

static double shared_pairs(tn_domain *d)
{
    int64_t shape = 1024;
    uint64_t since = bench_now_ns();
    for (int i = 0; i < PAIRS; i++) {
        tn_tensor *t;
        bench_check(tn_tensor_create(d, TN_FLOAT32, 1, &shape, NULL, &t), "empty");
        tn_tensor_unref(t);
    }
    return (double)(bench_now_ns() - since) / PAIRS;
}

static double malloc_pairs(void)
{
    uint64_t since = bench_now_ns();
    for (int i = 0; i < PAIRS; i++) {
        void *volatile p = malloc(4096);
        *(volatile char *)p = 1;
        free(p);
    }
    return (double)(bench_now_ns() - since) / PAIRS;
}

static double million(tn_domain *d, tn_tensor **tensors, uint32_t *ret_fds, uint32_t *ret_maps)
{
    int64_t shape = 16;
    uint64_t since = bench_now_ns();
    for (int i = 0; i < MILLION; i++)
        bench_check(tn_tensor_create(d, TN_FLOAT32, 1, &shape, NULL, &tensors[i]), "empty");
    uint64_t until = bench_now_ns();
    *ret_fds = count_descriptors();
    *ret_maps = count_mappings();
    uint64_t again = bench_now_ns();
    for (int i = 0; i < MILLION; i++)
        tn_tensor_unref(tensors[i]);
    return (double)(until - since + bench_now_ns() - again) / MILLION;
}

int main(void)
{
    struct bench_series ours = {0}, theirs = {0}, each = {0};
    uint32_t fds = 0, maps = 0;
    tn_domain *d;
    tn_tensor **tensors = malloc(MILLION * sizeof *tensors);
    if (tensors == NULL)
        return 1;
    bench_check(tn_domain_open(NULL, NULL, 0, &d), "domain");
    shared_pairs(d);
    for (int round = 0; round < ROUNDS; round++) {
        bench_add(&ours, shared_pairs(d));
        bench_add(&theirs, malloc_pairs());
    }
    bench_print("alloc_free", &ours, "ns", &theirs, 1);
    for (int round = 0; round < MILLION_ROUNDS; round++)
        bench_add(&each, million(d, tensors, &fds, &maps));
    printf(
        "{\"name\": \"live_million\", \"value\": %.4g, \"unit\": \"us\", \"baseline\": null, "
        "\"ratio\": null, \"n\": %u, \"descriptors\": %u, \"mappings\": %u}\n",
        bench_median(&each) * 1e-3, each.count, fds, maps);
    free(tensors);
    tn_domain_close(d);
    return 0;
}
