/* SPDX-License-Identifier: Apache-2.0 */
/* blocks: what the files of `tenon blocks` share. */
#ifndef TENON_TOOL_BLOCKS_H
#define TENON_TOOL_BLOCKS_H

#include "cmd.h"
#include "table.h"

enum blocks_sort { BLOCKS_BY_NUMBER, BLOCKS_BY_BYTES, BLOCKS_BY_AGE };

struct blocks_arguments {
    struct cmd_arguments common;
    bool is_long;
    enum blocks_sort sort;
    uint64_t limit;     /* 0: none */
    int32_t holder_pid; /* 0: any */
};

/* ---- blocks_output.c --------------------------------------------------------------------- */

/** Prints blocks as they are handed to it, as text or as JSON. */
struct blocks_output {
    const struct blocks_arguments *arguments;
    struct table *table; /* NULL: JSON */
    struct table_column columns[TABLE_COLUMNS];
    uint64_t count; /* of blocks that were printed or are in the table */
    uint64_t flush; /* the count at which the table is printed */
    bool is_out_of_memory;
};
/** @return false: no memory */
bool blocks_output_open(const struct blocks_arguments *arguments,
                        struct blocks_output *ret_output);
/** @return whether to go on */
bool blocks_output_add(struct blocks_output *output, const tn_block_entry *info);
/** Print the rest. @return an exit code */
int blocks_output_close(struct blocks_output *output);

/* ---- blocks_rows.c ----------------------------------------------------------------------- */

/** Blocks that are collected to be sorted. */
struct blocks_rows;
/** @param arguments  borrowed while the rows live. NULL: no memory */
struct blocks_rows *blocks_rows_create(const struct blocks_arguments *arguments);
/** Add a block if it is wanted; for tn_inspect_blocks(). `rows` is a struct blocks_rows. */
int blocks_rows_add(const tn_block_entry *info, void *rows);
/** Sort the rows, cut them to the limit, and print them. */
void blocks_rows_print(struct blocks_rows *rows, struct blocks_output *output);
/** Returns NULL; NULL is accepted. */
struct blocks_rows *blocks_rows_destroy(struct blocks_rows *rows);
/** Whether the arguments ask for this block. */
bool blocks_is_wanted(const struct blocks_arguments *arguments, const tn_block_entry *info);

#endif
