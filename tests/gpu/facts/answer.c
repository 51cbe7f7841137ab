/* SPDX-License-Identifier: Apache-2.0 */
/* What a question answers, and figures. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "gpu/facts/facts.h"

bool is_small, is_quick;

/* One write for a line, so that the lines of several processes do not mix. */
static void print_line(const char *kind, const char *format, va_list arguments)
{
    char text[1024];
    vsnprintf(text, sizeof text, format, arguments);
    for (char *c = text; *c != '\0'; c++)
        if (*c == '\n')
            *c = ' ';
    dprintf(STDOUT_FILENO, "%s\t%s\n", kind, text);
}

void say(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    print_line("said", format, arguments);
    va_end(arguments);
}

void agree(bool holds) { dprintf(STDOUT_FILENO, "agrees\t%s\n", holds ? "yes" : "no"); }

/* The processes that this one forked end with it. */
void unanswered(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    print_line("unanswered", format, arguments);
    va_end(arguments);
    _exit(3);
}

uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void pass_ms(unsigned ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L}, NULL);
}

/* ---- figures ----------------------------------------------------------------------------- */

void samples_add(struct samples *samples, double value)
{
    if (samples->count < MOST_SAMPLES)
        samples->values[samples->count++] = value;
}

static int compare(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

void figure(const char *what, uint64_t bytes, struct samples *samples, const char *unit)
{
    unsigned n = samples->count;
    if (n == 0)
        return;
    qsort(samples->values, n, sizeof samples->values[0], compare);
    unsigned last = (99 * n + 99) / 100 - 1; /* 99 of 100 are not worse */
    bool is_time = strcmp(unit, "GB/s") != 0 && strcmp(unit, "ratio") != 0;
    dprintf(STDOUT_FILENO, "figure\t%s\t%llu\t%.4g\t%.4g\t%u\t%s\n", what,
            (unsigned long long)bytes, samples->values[n / 2],
            samples->values[is_time ? last : n - 1 - last], n, unit);
    samples->count = 0;
}

unsigned sized(unsigned large, unsigned small)
{
    if (is_small)
        return small;
    return is_quick && large / 5 > small ? large / 5 : large;
}

int sizes_read(int argc, char **argv)
{
    is_small = argc > 1 && strcmp(argv[1], "--small") == 0;
    is_quick = argc > 1 && strcmp(argv[1], "--quick") == 0;
    return is_small || is_quick ? 2 : 1;
}
