/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench: what the programs in this folder share. A figure is the median of many rounds, and its
 * baseline is measured in the same rounds, interleaved; one JSON line a figure goes to stdout.
 */
#ifndef TENON_BENCH_H
#define TENON_BENCH_H

#include <stdbool.h>
#include <stdint.h>
#include <tenon/tenon.h>

enum { BENCH_MAX_ROUNDS = 256 };

struct bench_series {
    double value[BENCH_MAX_ROUNDS];
    uint32_t count;
};

uint64_t bench_now_ns(void);
void bench_add(struct bench_series *series, double value);
double bench_median(const struct bench_series *series);
/** The value below which `part` of the series lies, between 0 and 1. */
double bench_quantile(const struct bench_series *series, double part);

/**
 * Print a figure: the median of `ours`, the median of `baseline` (NULL: there is none), and
 * ours / baseline.
 * @param is_rate  more is better; the ratio is the same
 */
void bench_print(const char *name, const struct bench_series *ours, const char *unit,
                 const struct bench_series *baseline, double scale);
/** Print one number that was made of `n` rounds. */
void bench_print_value(const char *name, double value, const char *unit, uint32_t n);
/** Print a figure that has a limit instead of a peer. */
void bench_print_note(const char *name, const struct bench_series *ours, const char *unit,
                      double scale, const char *note_key, double note);

/** End the program with the detail, unless status >= 0. Returns it. */
int bench_check(int status, const char *what);

/** A process that runs `run`; its exit code is the result's. */
int bench_fork(void (*run)(void *), void *context);
void bench_join(int pid);

/** Zeroed memory that forked children share, for baselines and for starting together. */
void *bench_shared(uint64_t size_bytes);
/** Wait until `count` processes have come here. */
void bench_meet(_Atomic uint32_t *gate, uint32_t count);
static inline void bench_relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

#endif
