/* SPDX-License-Identifier: Apache-2.0 */
#include "bench.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

uint64_t bench_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void bench_add(struct bench_series *series, double value)
{
    if (series->count < BENCH_MAX_ROUNDS)
        series->value[series->count++] = value;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double bench_quantile(const struct bench_series *series, double part)
{
    double sorted[BENCH_MAX_ROUNDS];
    if (series->count == 0)
        return 0;
    memcpy(sorted, series->value, series->count * sizeof sorted[0]);
    qsort(sorted, series->count, sizeof sorted[0], compare);
    uint32_t place = (uint32_t)(part * series->count);
    return sorted[place < series->count ? place : series->count - 1];
}

double bench_median(const struct bench_series *series) { return bench_quantile(series, 0.5); }

void bench_print(const char *name, const struct bench_series *ours, const char *unit,
                 const struct bench_series *baseline, double scale)
{
    double value = bench_median(ours) * scale;
    if (baseline == NULL) {
        printf("{\"name\": \"%s\", \"value\": %.6g, \"unit\": \"%s\", \"baseline\": null, "
               "\"ratio\": null, \"n\": %u}\n",
               name, value, unit, ours->count);
    } else {
        double base = bench_median(baseline) * scale;
        printf("{\"name\": \"%s\", \"value\": %.6g, \"unit\": \"%s\", \"baseline\": %.6g, "
               "\"ratio\": %.4g, \"n\": %u}\n",
               name, value, unit, base, base != 0 ? value / base : 0, ours->count);
    }
    fflush(stdout);
}

void bench_print_value(const char *name, double value, const char *unit, uint32_t n)
{
    printf("{\"name\": \"%s\", \"value\": %.6g, \"unit\": \"%s\", \"baseline\": null, "
           "\"ratio\": null, \"n\": %u}\n",
           name, value, unit, n);
    fflush(stdout);
}

void bench_print_note(const char *name, const struct bench_series *ours, const char *unit,
                      double scale, const char *note_key, double note)
{
    printf("{\"name\": \"%s\", \"value\": %.6g, \"unit\": \"%s\", \"baseline\": null, "
           "\"ratio\": null, "
           "\"n\": %u, \"%s\": %.6g}\n",
           name, bench_median(ours) * scale, unit, ours->count, note_key, note);
    fflush(stdout);
}

int bench_check(int status, const char *what)
{
    if (status >= 0)
        return status;
    fprintf(stderr, "%s: %s: %s\n", what, tn_status_name(status), tn_error_detail());
    exit(1);
}

int bench_fork(void (*run)(void *), void *context)
{
    fflush(stdout);
    int pid = fork();
    if (pid == 0) {
        run(context);
        _exit(0);
    }
    if (pid < 0) {
        perror("fork");
        exit(1);
    }
    return pid;
}

void bench_join(int pid)
{
    int status;
    if (waitpid(pid, &status, 0) == pid && status != 0 && !WIFSIGNALED(status)) {
        fprintf(stderr, "a child ended with status %x\n", (unsigned)status);
        exit(1);
    }
}

void *bench_shared(uint64_t size_bytes)
{
    void *address = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE,
                         MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (address == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
    return address;
}

void bench_meet(_Atomic uint32_t *gate, uint32_t count)
{
    uint32_t mine = atomic_fetch_add(gate, 1);
    uint32_t target = mine - mine % count + count;
    while (atomic_load(gate) < target)
        sched_yield();
}
