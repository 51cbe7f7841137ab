/* SPDX-License-Identifier: Apache-2.0 */
/* The demo's arithmetic. */
#include "harness/harness.h"

#include <math.h>
#include <stdlib.h>

#include "augment.h"
#include "network.h"

enum { FEATURES = 5, HIDDEN = 7, CLASSES = 3, ROWS = 4, SIZE = 6 * HIDDEN + 8 * CLASSES };

static const struct network network = {FEATURES, HIDDEN, CLASSES};

static void make_batch(float *x, int64_t *y)
{
    for (int i = 0; i < ROWS * FEATURES; i++)
        x[i] = sinf((float)(i * i + 1));
    for (int i = 0; i < ROWS; i++)
        y[i] = i % CLASSES;
}

TN_TEST(the_gradient_is_the_slope_of_the_loss)
{
    float parameters[SIZE], gradient[SIZE], ignored[SIZE], x[ROWS * FEATURES];
    int64_t y[ROWS];
    struct network_scratch scratch;
    const float step = 1e-3f;

    assert_int_equal(network_size(&network), SIZE);
    assert_int_equal(network_scratch_init(&network, ROWS, &scratch), 0);
    network_init(&network, parameters, 1);
    make_batch(x, y);
    network_gradient(&network, parameters, x, y, ROWS, &scratch, gradient);
    for (int i = 0; i < SIZE; i++) {
        float before = parameters[i];
        parameters[i] = before + step;
        float above = network_gradient(&network, parameters, x, y, ROWS, &scratch, ignored);
        parameters[i] = before - step;
        float below = network_gradient(&network, parameters, x, y, ROWS, &scratch, ignored);
        parameters[i] = before;
        assert_true(fabsf((above - below) / (2 * step) - gradient[i]) < 2e-3f);
    }
    network_scratch_fini(&scratch);
}

TN_TEST(steps_along_the_gradient_learn_a_batch_by_heart)
{
    float parameters[SIZE], gradient[SIZE], x[ROWS * FEATURES];
    int64_t y[ROWS];
    struct network_scratch scratch;

    assert_int_equal(network_scratch_init(&network, 3, &scratch), 0); /* not all rows at once */
    network_init(&network, parameters, 1);
    make_batch(x, y);
    for (int n = 0; n < 2000; n++) {
        network_gradient(&network, parameters, x + n % 2 * FEATURES, y + n % 2, 3, &scratch,
                         gradient);
        network_step(parameters, gradient, SIZE, 0.2f);
    }
    assert_int_equal(network_correct(&network, parameters, x, y, ROWS, &scratch), ROWS);
    network_scratch_fini(&scratch);
}

TN_TEST(a_sample_is_shifted_by_a_pixel_at_most_and_noise_is_small)
{
    float from[64] = {0}, to[64];
    uint64_t random = tnt_random();

    assert_int_equal(augment_side(64), 8);
    assert_int_equal(augment_side(63), 0);
    from[3 * 8 + 4] = 9;
    for (int n = 0; n < 1000; n++) {
        int at = 0;
        augment(to, from, 64, 8, &random);
        for (int i = 0; i < 64; i++) {
            at = to[i] > to[at] ? i : at;
            assert_true(fabsf(to[i]) < 0.25f || fabsf(to[i] - 9) < 0.25f);
        }
        assert_true(abs(at / 8 - 3) <= 1 && abs(at % 8 - 4) <= 1);
    }
}
