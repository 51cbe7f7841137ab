/* SPDX-License-Identifier: Apache-2.0 */
/*
 * table: rows of text, printed with columns as wide as what they hold; and numbers as people
 * read them.
 */
#ifndef TENON_TOOL_TABLE_H
#define TENON_TOOL_TABLE_H

#include <stdbool.h>
#include <stdio.h>
#include <tenon/tensor.h>

enum { TABLE_COLUMNS = 16 }; /* at most */
struct table_column {
    const char *heading;
    bool is_right; /* numbers: aligned to the right */
};

struct table;

/** @param columns  [count], borrowed while the table lives. NULL: no memory */
struct table *table_create(const struct table_column *columns, size_t count);
/**
 * Add the next cell, row by row from the left. What does not fit in memory makes table_print()
 * fail.
 */
void table_cell(struct table *table, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/**
 * Print the heading and all whole rows, each after `indent` spaces. @return 0, or -1: no memory
 */
int table_print(const struct table *table, int indent, FILE *file);
/**
 * Print the whole rows that were added since the last time, below one heading, and forget them:
 * a table of any length takes no more memory than the rows between two calls. Columns only grow
 * wider. @return 0, or -1: no memory
 */
int table_flush(struct table *table, FILE *file);
/** Returns NULL; NULL is accepted. */
struct table *table_destroy(struct table *table);

enum { TABLE_TEXT_BYTES = 32, TABLE_TENSOR_BYTES = 256 };
/** "64 B", "1.5 KiB". @return text */
const char *table_bytes(char text[TABLE_TEXT_BYTES], uint64_t bytes);
/** "350 ms", "12.3 s", "3m04s", "2h05m", "3d04h". @return text */
const char *table_age(char text[TABLE_TEXT_BYTES], uint64_t age_ns);
/** "float32[3, 224, 224]", from the first 8 sizes. @return text */
const char *table_tensor(char text[TABLE_TENSOR_BYTES], tn_dtype dtype, int32_t ndim,
                         const int64_t shape[8]);

#endif
