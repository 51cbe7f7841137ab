/* SPDX-License-Identifier: Apache-2.0 */
/* tutorial.h, for C and C++: the camera that draws, the network that reads, and what a program
 * in C does about an error. */
#ifndef TUTORIAL_H
#define TUTORIAL_H

#include <stdio.h>
#include <stdlib.h>
#include <tenon/tenon.h>

enum { HEIGHT = 240, WIDTH = 320, CELL = 16 }; /* pixels */
enum { DIGIT_ROWS = 5, DIGIT_COLUMNS = 3 };    /* cells */

/* Five rows of three cells. */
static const char *const digits[10] = {
    "####.##.##.####", ".#.##..#..#.###", "###..#####..###", "###..####..####",
    "#.##.####..#..#", "####..###..####", "####..####.####", "###..#..#..#..#",
    "####.#####.####", "####.####..####",
};

/* If a call failed, print why, and exit. */
static inline int must(int status)
{
    if (status < 0) {
        fprintf(stderr, "%s: %s\n", tn_status_name(status), tn_error_detail());
        exit(1);
    }
    return status;
}

/* The camera: the picture of one digit, somewhere in a frame with noise. */
static inline int digit_of(int number) { return number * 7 % 10; }

static inline void draw_frame(uint8_t *pixels, int number)
{
    const char *digit = digits[digit_of(number)];
    int top = number * 3 % (HEIGHT / CELL - DIGIT_ROWS + 1);
    int left = number * 5 % (WIDTH / CELL - DIGIT_COLUMNS + 1);
    unsigned noise = 12345 + (unsigned)number;
    for (int y = 0; y < HEIGHT; y++)
        for (int x = 0; x < WIDTH; x++) {
            int row = y / CELL - top, column = x / CELL - left;
            int is_inside =
                row >= 0 && row < DIGIT_ROWS && column >= 0 && column < DIGIT_COLUMNS;
            int is_lit = is_inside && digit[row * DIGIT_COLUMNS + column] == '#';
            noise = noise * 1103515245 + 12345;
            pixels[y * WIDTH + x] = (uint8_t)((is_lit ? 160 : 20) + (noise >> 16) % 64);
        }
}

typedef struct finding {
    int digit, top, left; /* the place in cells */
} finding;

/* The network: one layer, which compares each place of the picture with ten digits. */
static inline finding read_picture(const uint8_t *pixels, int height, int width,
                                   int64_t row_stride)
{
    static float cells[HEIGHT / CELL][WIDTH / CELL];
    int rows = height / CELL, columns = width / CELL;
    for (int y = 0; y < rows; y++)
        for (int x = 0; x < columns; x++) {
            int sum = 0;
            for (int i = 0; i < CELL * CELL; i++)
                sum += pixels[(y * CELL + i / CELL) * row_stride + x * CELL + i % CELL];
            cells[y][x] = (float)sum / (CELL * CELL);
        }
    float best = -1000;
    finding found = {0, 0, 0};
    for (int digit = 0; digit < 10; digit++)
        for (int top = 0; top + DIGIT_ROWS <= rows; top++)
            for (int left = 0; left + DIGIT_COLUMNS <= columns; left++) {
                float lit = 0, dark = 0;
                int lit_count = 0;
                for (int i = 0; i < DIGIT_ROWS * DIGIT_COLUMNS; i++) {
                    float cell = cells[top + i / DIGIT_COLUMNS][left + i % DIGIT_COLUMNS];
                    int is_lit = digits[digit][i] == '#';
                    lit_count += is_lit;
                    *(is_lit ? &lit : &dark) += cell;
                }
                float score = lit / (float)lit_count -
                              dark / (float)(DIGIT_ROWS * DIGIT_COLUMNS - lit_count);
                if (score > best) {
                    best = score;
                    found.digit = digit, found.top = top, found.left = left;
                }
            }
    return found;
}

static inline int read_digit(const tn_tensor *frame)
{
    return read_picture((const uint8_t *)tn_tensor_data(frame), HEIGHT, WIDTH, WIDTH).digit;
}

#endif
