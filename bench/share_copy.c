/* SPDX-License-Identifier: Apache-2.0 */
/*
 * share_copy, share_copy_cold: move a private 64 MiB tensor into the domain. Figures are bytes
 * a second. Warm: the domain has a free block of this size; the baseline is memcpy between two
 * buffers that were touched. Cold: a new domain each time; the baseline is new shared memory,
 * populated in one call, then memcpy into it, which is what the move needs at least without us.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bench.h"

enum { ROUNDS = 21 };
#define BYTES (INT64_C(64) << 20)

static tn_tensor *make_private(void)
{
    tn_tensor *t;
    int64_t shape = BYTES / 4;
    bench_check(tn_tensor_create_private(TN_FLOAT32, 1, &shape, &t), "private");
    memset(tn_tensor_data(t), 1, (size_t)BYTES);
    return t;
}

static double share(tn_domain *d)
{
    tn_tensor *t = make_private();
    uint64_t since = bench_now_ns();
    bench_check(tn_tensor_share(d, t, NULL), "share");
    double rate = (double)BYTES / (double)(bench_now_ns() - since);
    tn_tensor_unref(t);
    return rate;
}

static double copy(void *target)
{
    tn_tensor *t = make_private();
    uint64_t since = bench_now_ns();
    memcpy(target, tn_tensor_data(t), (size_t)BYTES);
    double rate = (double)BYTES / (double)(bench_now_ns() - since);
    tn_tensor_unref(t);
    return rate;
}

static double copy_cold(void)
{
    tn_tensor *t = make_private();
    int fd = memfd_create("baseline", 0);
    uint64_t since = bench_now_ns();
    if (fd < 0 || ftruncate(fd, BYTES) != 0)
        abort();
    void *target =
        mmap(NULL, (size_t)BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
    if (target == MAP_FAILED)
        abort();
    memcpy(target, tn_tensor_data(t), (size_t)BYTES);
    double rate = (double)BYTES / (double)(bench_now_ns() - since);
    munmap(target, (size_t)BYTES);
    close(fd);
    tn_tensor_unref(t);
    return rate;
}

static double share_cold(void)
{
    tn_domain_options options = {.struct_size = sizeof options, .flags = TN_DOMAIN_NO_MANAGER};
    tn_domain *d;
    bench_check(tn_domain_open(NULL, &options, 0, &d), "domain");
    double rate = share(d);
    tn_domain_close(d);
    return rate;
}

int main(void)
{
    struct bench_series warm = {0}, plain = {0}, cold = {0}, fresh = {0};
    void *target = bench_shared((uint64_t)BYTES);
    tn_domain *d;
    bench_check(tn_domain_open(NULL, NULL, 0, &d), "domain");
    share(d); /* the first one is cold */
    memset(target, 2, (size_t)BYTES);
    for (int round = 0; round < ROUNDS; round++) {
        bench_add(&warm, share(d));
        bench_add(&plain, copy(target));
        bench_add(&cold, share_cold());
        bench_add(&fresh, copy_cold());
    }
    bench_print("share_copy", &warm, "GB/s", &plain, 1);
    bench_print("share_copy_cold", &cold, "GB/s", &fresh, 1);
    tn_domain_close(d);
    return 0;
}
