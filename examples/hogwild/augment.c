/* SPDX-License-Identifier: Apache-2.0 */
/* augment: what the loaders do to each sample, so that the network sees no picture twice. */
#include "augment.h"
#include "random.h"

#include <string.h>

#define NOISE 0.4f

int32_t augment_side(int32_t features)
{
    int32_t side = 0;
    while (side * side < features)
        ++side;
    return side * side == features && side >= 4 ? side : 0;
}

/* One pixel either way now and then: the pictures of the test part fill their frame too. */
static int32_t random_shift(uint64_t *random)
{
    static const int32_t shifts[8] = {-1, 1};
    return shifts[random_below(random, 8)];
}

static void shift(float *to, const float *from, int32_t side, int32_t down, int32_t right)
{
    for (int32_t row = 0; row < side; ++row) {
        int32_t source = row - down;
        for (int32_t column = 0; column < side; ++column) {
            int32_t across = column - right;
            int is_inside = source >= 0 && source < side && across >= 0 && across < side;
            to[row * side + column] = is_inside ? from[source * side + across] : 0.0f;
        }
    }
}

/* Uniform noise, a fifth of the range of a pixel either way; four values from each draw. */
static void add_noise(float *values, int32_t count, uint64_t *random)
{
    uint64_t bits = 0;
    for (int32_t index = 0; index < count; ++index) {
        bits = index % 4 == 0 ? random_next(random) : bits >> 16;
        values[index] += ((float)(bits & 0xffff) * 0x1p-16f - 0.5f) * NOISE;
    }
}

void augment(float *to, const float *from, int32_t features, int32_t side, uint64_t *random)
{
    if (side != 0) {
        int32_t down = random_shift(random);
        int32_t right = random_shift(random);
        shift(to, from, side, down, right);
    } else {
        memcpy(to, from, (size_t)features * sizeof(float));
    }
    add_noise(to, features, random);
}
