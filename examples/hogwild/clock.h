/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOGWILD_CLOCK_H
#define HOGWILD_CLOCK_H

#include <stdint.h>
#include <time.h>

/** CLOCK_MONOTONIC, ns: the clock of tenon's deadlines. */
static inline uint64_t clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

#endif
