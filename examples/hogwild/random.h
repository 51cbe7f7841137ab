/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOGWILD_RANDOM_H
#define HOGWILD_RANDOM_H

#include <stdint.h>

/*
 * Source: Steele, Lea, Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014,
 * section 5 (SplitMix): a counter, and a mixing function over it. Good enough to shift
 * pictures.
 */
static inline uint64_t random_next(uint64_t *state)
{
    uint64_t bits = *state += UINT64_C(0x9e3779b97f4a7c15);
    bits = (bits ^ bits >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    bits = (bits ^ bits >> 27) * UINT64_C(0x94d049bb133111eb);
    return bits ^ bits >> 31;
}

/** 0 to limit - 1; limit below 2^32. */
static inline uint32_t random_below(uint64_t *state, uint32_t limit)
{
    return (uint32_t)((random_next(state) >> 32) * limit >> 32);
}

#endif
