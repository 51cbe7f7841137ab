/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attach: join, by name, a domain with 100 live tensors.
 * handle_roundtrip: export one tensor to bytes and import it.
 */
#include <stdio.h>
#include <unistd.h>

#include "bench.h"

enum { LIVE = 100, ATTACH_ROUNDS = 101, HANDLE_ROUNDS = 41, TRIPS = 20000 };

static double attach(const char *name)
{
    tn_domain *d;
    uint64_t since = bench_now_ns();
    bench_check(tn_domain_open(name, NULL, TN_OPEN_EXISTING, &d), "join");
    double ns = (double)(bench_now_ns() - since);
    tn_domain_close(d);
    return ns;
}

static double roundtrip(tn_domain *d, tn_tensor *t)
{
    uint8_t bytes[TN_HANDLE_MAX_BYTES];
    size_t used;
    uint64_t since = bench_now_ns();
    for (int i = 0; i < TRIPS; i++) {
        tn_tensor *twin;
        bench_check(tn_handle_export(t, NULL, bytes, sizeof bytes, &used), "export");
        bench_check(tn_handle_import(d, bytes, used, &twin), "import");
        tn_tensor_unref(twin);
    }
    return (double)(bench_now_ns() - since) / TRIPS;
}

int main(void)
{
    struct bench_series join = {0}, trip = {0};
    tn_tensor *tensors[LIVE];
    char name[64];
    int64_t shape = 1024;
    tn_domain *d;
    snprintf(name, sizeof name, "bench-attach-%d", (int)getpid());
    bench_check(tn_domain_open(name, NULL, TN_OPEN_NEW, &d), "domain");
    for (int i = 0; i < LIVE; i++)
        bench_check(tn_tensor_create(d, TN_FLOAT32, 1, &shape, NULL, &tensors[i]), "empty");
    for (int round = 0; round < ATTACH_ROUNDS; round++)
        bench_add(&join, attach(name));
    bench_print("attach", &join, "ms", NULL, 1e-6);
    for (int round = 0; round < HANDLE_ROUNDS; round++)
        bench_add(&trip, roundtrip(d, tensors[0]));
    bench_print("handle_roundtrip", &trip, "us", NULL, 1e-3);
    for (int i = 0; i < LIVE; i++)
        tn_tensor_unref(tensors[i]);
    tn_domain_close(d);
    return 0;
}
