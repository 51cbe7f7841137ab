/* SPDX-License-Identifier: Apache-2.0 */
#include "options.h"

#include <argp.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

enum { OPTION_Y = 256, OPTION_JSON, OPTION_NO_KILL, OPTION_PLAIN, OPTION_RATE };

static const char description[] =
    "Train a small neural network from several processes that update one set of parameters in "
    "shared memory, without a lock, and kill some of them on the way.\v"
    "The files hold x [samples, features], numbers, and y [samples], labels from 0; their rows "
    "are in random order, and the last fifth is the test part. If the features are a square "
    "picture, the loaders shift it by a pixel now and then.";

static const struct argp_option table[] = {
    {"x", 'x', "FILE", 0, "features, .npy (build/demo/digits_x.npy)", 0},
    {"y", OPTION_Y, "FILE", 0, "labels, .npy (build/demo/digits_y.npy)", 0},
    {"seconds", 's', "N", 0, "how long to train (20)", 0},
    {"batch", 'b', "N", 0, "samples in a batch (32)", 0},
    {"hidden", 'h', "N", 0, "units in the hidden layer (64)", 0},
    {"rate", OPTION_RATE, "R", 0, "learning rate at the start (0.2)", 0},
    {"loaders", 'l', "N", 0, "processes that make batches (2)", 0},
    {"trainers", 't', "N", 0, "processes that train (2)", 0},
    {"seed", 'r', "N", 0, "of all random numbers (1)", 0},
    {"json", OPTION_JSON, "FILE", 0, "write what happened, for dev/demo-plot.py", 0},
    {"no-kill", OPTION_NO_KILL, NULL, 0, "kill nobody", 0},
    {"plain", OPTION_PLAIN, NULL, 0, "progress as lines, even on a terminal", 0},
    {0},
};

static double number(const char *text, double low, double high, struct argp_state *state)
{
    char *end;
    errno = 0;
    double value = strtod(text, &end);
    if (end == text || *end != '\0' || errno != 0 || !(value >= low && value <= high))
        argp_error(state, "%s: a number from %g to %g is wanted", text, low, high);
    return value;
}

static int32_t whole(const char *text, int32_t low, int32_t high, struct argp_state *state)
{
    double value = number(text, low, high, state);
    if (value != floor(value))
        argp_error(state, "%s: a whole number is wanted", text);
    return (int32_t)value;
}

static error_t parse(int key, char *argument, struct argp_state *state)
{
    struct options *options = state->input;
    switch (key) {
    case 'x':
        options->x_path = argument;
        return 0;
    case OPTION_Y:
        options->y_path = argument;
        return 0;
    case 's':
        options->seconds = number(argument, 1, 3600, state);
        return 0;
    case 'b':
        options->batch = whole(argument, 1, 4096, state);
        return 0;
    case 'h':
        options->hidden = whole(argument, 1, 4096, state);
        return 0;
    case OPTION_RATE:
        options->rate = number(argument, 1e-6, 10, state);
        return 0;
    case 'l':
        options->loaders = whole(argument, 1, 64, state);
        return 0;
    case 't':
        options->trainers = whole(argument, 1, 64, state);
        return 0;
    case 'r':
        options->seed = (uint64_t)whole(argument, 0, INT32_MAX, state);
        return 0;
    case OPTION_JSON:
        options->json_path = argument;
        return 0;
    case OPTION_NO_KILL:
        options->is_peaceful = true;
        return 0;
    case OPTION_PLAIN:
        options->is_plain = true;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

void options_parse(struct options *options, int argc, char **argv)
{
    static const struct argp argp = {.options = table, .parser = parse, .doc = description};
    *options = (struct options){
        .x_path = "build/demo/digits_x.npy",
        .y_path = "build/demo/digits_y.npy",
        .seconds = 20,
        .rate = 0.2,
        .batch = 32,
        .hidden = 64,
        .loaders = 2,
        .trainers = 2,
        .seed = 1,
        .is_plain = !isatty(STDOUT_FILENO),
    };
    argp_parse(&argp, argc, argv, 0, NULL, options);
}
