/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOGWILD_OPTIONS_H
#define HOGWILD_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

struct options {
    const char *x_path;
    const char *y_path;
    const char *json_path; /* NULL: none */
    double seconds;
    double rate; /* of learning, at the start */
    int32_t batch;
    int32_t hidden;
    int32_t loaders;
    int32_t trainers;
    uint64_t seed;
    bool is_plain;    /* progress as lines, not as one line that changes */
    bool is_peaceful; /* no worker is killed */
};

/** Read the command line; ends the program on --help and on mistakes. */
void options_parse(struct options *options, int argc, char **argv);

#endif
