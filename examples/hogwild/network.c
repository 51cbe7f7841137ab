/* SPDX-License-Identifier: Apache-2.0 */
/*
 * network: the arithmetic, as plain loops whose innermost one the compiler turns into vectors.
 */
#include "network.h"
#include "random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The four parts of a row of parameters, or of its gradient. */
struct parts {
    float *weights1;
    float *biases1;
    float *weights2;
    float *biases2;
};

static struct parts split(const struct network *network, float *row)
{
    struct parts parts;
    parts.weights1 = row;
    parts.biases1 = parts.weights1 + (size_t)network->features * (size_t)network->hidden;
    parts.weights2 = parts.biases1 + network->hidden;
    parts.biases2 = parts.weights2 + (size_t)network->hidden * (size_t)network->classes;
    return parts;
}

size_t network_size(const struct network *network)
{
    size_t hidden = (size_t)network->hidden;
    return ((size_t)network->features + 1) * hidden + (hidden + 1) * (size_t)network->classes;
}

int network_scratch_init(const struct network *network, int32_t rows,
                         struct network_scratch *ret_scratch)
{
    struct network_scratch scratch = {.rows = rows};
    scratch.activation = malloc((size_t)rows * (size_t)network->hidden * sizeof(float));
    scratch.output = malloc((size_t)rows * (size_t)network->classes * sizeof(float));
    scratch.error = malloc((size_t)network->hidden * sizeof(float));
    if (scratch.activation == NULL || scratch.output == NULL || scratch.error == NULL) {
        network_scratch_fini(&scratch);
        return -1;
    }
    *ret_scratch = scratch;
    return 0;
}

void network_scratch_fini(struct network_scratch *scratch)
{
    free(scratch->activation);
    free(scratch->output);
    free(scratch->error);
    *scratch = (struct network_scratch){0};
}

/*
 * Uniform in +-sqrt(6 / inputs), which keeps the variance through a ReLU (He et al., ICCV
 * 2015).
 */
static void init_weights(float *weights, int32_t inputs, int32_t outputs, uint64_t *state)
{
    float bound = sqrtf(6.0f / (float)inputs);
    size_t count = (size_t)inputs * (size_t)outputs;
    for (size_t index = 0; index < count; ++index) {
        float unit = (float)(random_next(state) >> 40) * 0x1p-24f;
        weights[index] = (2.0f * unit - 1.0f) * bound;
    }
}

void network_init(const struct network *network, float *parameters, uint64_t seed)
{
    struct parts parts = split(network, parameters);
    memset(parameters, 0, network_size(network) * sizeof(float));
    init_weights(parts.weights1, network->features, network->hidden, &seed);
    init_weights(parts.weights2, network->hidden, network->classes, &seed);
}

/* to += factor * from */
static void add_scaled(float *restrict to, const float *restrict from, float factor,
                       int32_t count)
{
    for (int32_t index = 0; index < count; ++index)
        to[index] += factor * from[index];
}

/* out [outputs] = biases + in [inputs] * weights [inputs, outputs] */
static void layer(float *out, const float *in, const float *weights, const float *biases,
                  int32_t inputs, int32_t outputs)
{
    memcpy(out, biases, (size_t)outputs * sizeof(float));
    for (int32_t input = 0; input < inputs; ++input) {
        if (in[input] != 0.0f)
            add_scaled(out, weights + (size_t)input * (size_t)outputs, in[input], outputs);
    }
}

static void forward(const struct network *network, const struct parts *parts, const float *x,
                    int32_t rows, struct network_scratch *scratch)
{
    int32_t hidden = network->hidden;
    for (int32_t row = 0; row < rows; ++row) {
        float *activation = scratch->activation + (size_t)row * (size_t)hidden;
        float *output = scratch->output + (size_t)row * (size_t)network->classes;
        layer(activation, x + (size_t)row * (size_t)network->features, parts->weights1,
              parts->biases1, network->features, hidden);
        for (int32_t unit = 0; unit < hidden; ++unit)
            activation[unit] = activation[unit] > 0.0f ? activation[unit] : 0.0f;
        layer(output, activation, parts->weights2, parts->biases2, hidden, network->classes);
    }
}

/* Turn a row of outputs into the derivative of its loss; return the loss. */
static float softmax_loss(float *output, int32_t classes, int64_t label)
{
    float highest = output[0];
    float sum = 0.0f;
    for (int32_t class = 1; class < classes; ++class)
        highest = fmaxf(highest, output[class]);
    for (int32_t class = 0; class < classes; ++class)
        sum += output[class] = expf(output[class] - highest);
    for (int32_t class = 0; class < classes; ++class)
        output[class] /= sum;
    float loss = -logf(fmaxf(output[label], 1e-30f));
    output[label] -= 1.0f;
    return loss;
}

/* Add one row's part of the gradient; `output` holds the derivative of its loss. */
static void backward(const struct network *network, const struct parts *parts,
                     struct parts *gradient, const float *x, const float *activation,
                     const float *output, float *error)
{
    int32_t hidden = network->hidden;
    int32_t classes = network->classes;
    for (int32_t unit = 0; unit < hidden; ++unit) {
        error[unit] = 0.0f;
        if (activation[unit] == 0.0f)
            continue;
        const float *weights = parts->weights2 + (size_t)unit * (size_t)classes;
        for (int32_t class = 0; class < classes; ++class)
            error[unit] += weights[class] * output[class];
        add_scaled(gradient->weights2 + (size_t)unit * (size_t)classes, output,
                   activation[unit], classes);
    }
    add_scaled(gradient->biases2, output, 1.0f, classes);
    add_scaled(gradient->biases1, error, 1.0f, hidden);
    for (int32_t feature = 0; feature < network->features; ++feature) {
        if (x[feature] != 0.0f)
            add_scaled(gradient->weights1 + (size_t)feature * (size_t)hidden, error, x[feature],
                       hidden);
    }
}

float network_gradient(const struct network *network, const float *parameters, const float *x,
                       const int64_t *y, int32_t rows, struct network_scratch *scratch,
                       float *gradient)
{
    struct parts parts = split(network, (float *)(uintptr_t)parameters);
    struct parts gradient_parts = split(network, gradient);
    float loss = 0.0f;
    memset(gradient, 0, network_size(network) * sizeof(float));
    forward(network, &parts, x, rows, scratch);
    for (int32_t row = 0; row < rows; ++row) {
        float *output = scratch->output + (size_t)row * (size_t)network->classes;
        loss += softmax_loss(output, network->classes, y[row]);
        for (int32_t class = 0; class < network->classes; ++class)
            output[class] /= (float)rows;
        backward(network, &parts, &gradient_parts, x + (size_t)row * (size_t)network->features,
                 scratch->activation + (size_t)row * (size_t)network->hidden, output,
                 scratch->error);
    }
    return loss / (float)rows;
}

void network_step(float *parameters, const float *gradient, size_t size, float rate)
{
    for (size_t index = 0; index < size; ++index)
        parameters[index] -= rate * gradient[index];
}

static int64_t highest_of(const float *output, int32_t classes)
{
    int64_t best = 0;
    for (int32_t class = 1; class < classes; ++class)
        best = output[class] > output[best] ? class : best;
    return best;
}

int64_t network_correct(const struct network *network, const float *parameters, const float *x,
                        const int64_t *y, int64_t rows, struct network_scratch *scratch)
{
    struct parts parts = split(network, (float *)(uintptr_t)parameters);
    int64_t correct = 0;
    for (int64_t done = 0; done < rows; done += scratch->rows) {
        int32_t batch = rows - done < scratch->rows ? (int32_t)(rows - done) : scratch->rows;
        forward(network, &parts, x + done * network->features, batch, scratch);
        for (int32_t row = 0; row < batch; ++row)
            correct += highest_of(scratch->output + (size_t)row * (size_t)network->classes,
                                  network->classes) == y[done + row];
    }
    return correct;
}
