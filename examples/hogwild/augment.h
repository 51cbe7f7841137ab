/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOGWILD_AUGMENT_H
#define HOGWILD_AUGMENT_H

#include <stdint.h>

/**
 * Copy one sample with a little noise, and, if its features are a square picture, shifted by up
 * to one pixel each way.
 *
 * @param to, from  [features]
 * @param side      pixels of an edge; 0 if the sample is no picture
 */
void augment(float *to, const float *from, int32_t features, int32_t side, uint64_t *random);

/** The edge of a square picture of so many features; 0 if there is none. */
int32_t augment_side(int32_t features);

#endif
