/* SPDX-License-Identifier: Apache-2.0 */
/*
 * table: print rows of text in columns that are as wide as their longest cell; and print
 * numbers for people.
 */
#ifndef TENON_TOOL_TABLE_H
#define TENON_TOOL_TABLE_H

#include <stdbool.h>
#include <stdio.h>
#include <tenon/tensor.h>

enum { TABLE_COLUMNS = 16 }; /* the most that a table may have */
struct table_column {
    const char *heading;
    bool is_right; /* cells are aligned to the right, as numbers are */
};

struct table;

/** @param columns  [count], borrowed while the table lives. @return NULL: no memory */
struct table *table_create(const struct table_column *columns, size_t count);
/**
 * Add the next cell of the row, or the first of the next row. If there is no memory for it,
 * table_print() and table_flush() fail.
 */
void table_cell(struct table *table, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/** How many whole rows there are. */
size_t table_rows(const struct table *table);
/**
 * Leave columns out until the table is not wider than `width`, or no other may be left out. A
 * cell of the last column counts as 16 wide at most: the caller cuts it.
 * @param order  a digit for each column that may be left out, the first one first; not the last
 *        column
 */
void table_fit(struct table *table, size_t width, const char *order);
/**
 * Print the heading and all whole rows, each after `indent` spaces. @return 0, or -1: no memory
 */
int table_print(const struct table *table, int indent, FILE *file);
/**
 * Print the whole rows that were added since the last call, and free them. The first call
 * prints the heading. A column gets wider when a longer cell comes. @return 0, or -1: no memory
 */
int table_flush(struct table *table, FILE *file);
/** Returns NULL; NULL is accepted. */
struct table *table_destroy(struct table *table);

enum { TABLE_TEXT_BYTES = 32, TABLE_TENSOR_BYTES = 256 };
/** Print a size, as in "64 B" or "1.5 KiB". @return text */
const char *table_bytes(char text[TABLE_TEXT_BYTES], uint64_t bytes);
/** Print an age, as in "350 ms", "12.3 s", "3m04s", "2h05m" or "3d04h". @return text */
const char *table_age(char text[TABLE_TEXT_BYTES], uint64_t age_ns);
/** Print a type and at most 8 sizes, as in "float32[3, 224, 224]". @return text */
const char *table_tensor(char text[TABLE_TENSOR_BYTES], tn_dtype dtype, int32_t ndim,
                         const int64_t shape[8]);

#endif
