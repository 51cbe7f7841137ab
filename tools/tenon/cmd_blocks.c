/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tenon blocks: list every block of one domain with its holders. In the order of numbers, each
 * block is printed when it is found, so that a million blocks take no memory. Blocks that are
 * to be sorted are collected first.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "blocks.h"

/* ---- options ----------------------------------------------------------------------------- */

static const struct argp_option options[] = {
    CMD_COMMON_OPTIONS,
    {"sort", 's', "KEY", 0,
     "Print the largest or oldest first: bytes or age (default: by number)", 0},
    {"limit", 'n', "N", 0, "Print at most N blocks", 0},
    {"holder", 'p', "PID", 0, "Print only blocks that the process PID holds", 0},
    {"long", 'l', NULL, 0, "Print write-once, object bytes, attributes and path too", 0},
    {0}};

static uint64_t parse_number(struct argp_state *state, const char *what, const char *text,
                             uint64_t most)
{
    char *end;
    unsigned long long number = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || number < 1 || number > most)
        argp_error(state, "%s: '%s' is not a number from 1 to %" PRIu64, what, text, most);
    return number;
}

static enum blocks_sort parse_sort(struct argp_state *state, const char *text)
{
    if (strcmp(text, "bytes") == 0)
        return BLOCKS_BY_BYTES;
    if (strcmp(text, "age") == 0)
        return BLOCKS_BY_AGE;
    argp_error(state, "--sort: '%s' is neither bytes nor age", text);
    return BLOCKS_BY_NUMBER;
}

static error_t parse(int key, char *argument, struct argp_state *state)
{
    struct blocks_arguments *arguments = state->input;

    switch (key) {
    case 'l':
        arguments->is_long = true;
        return 0;
    case 's':
        arguments->sort = parse_sort(state, argument);
        return 0;
    case 'n':
        arguments->limit = parse_number(state, "--limit", argument, UINT32_MAX);
        return 0;
    case 'p':
        arguments->holder_pid = (int32_t)parse_number(state, "--holder", argument, INT32_MAX);
        return 0;
    default:
        return cmd_parse_key(key, argument, state);
    }
}

/* ---- in the order of numbers ------------------------------------------------------------- */

static int print_wanted(const tn_block_entry *info, void *context)
{
    struct blocks_output *out = context;

    if (!blocks_is_wanted(out->arguments, info))
        return 0;
    if (!blocks_output_add(out, info))
        return 1;
    return out->arguments->limit != 0 && out->count == out->arguments->limit;
}

/* ---- sorted ------------------------------------------------------------------------------ */

/* @return as tn_inspect_blocks() */
static int collect_and_print(struct blocks_output *out, tn_inspector *inspector)
{
    struct blocks_rows *rows = blocks_rows_create(out->arguments);
    if (rows == NULL)
        return TN_ERR_NO_MEMORY;
    int status = tn_inspect_blocks(inspector, blocks_rows_add, rows);
    if (status >= 0)
        blocks_rows_print(rows, out);
    blocks_rows_destroy(rows);
    return status;
}

/* ------------------------------------------------------------------------------------------ */

static int show(const struct blocks_arguments *arguments, tn_inspector *inspector)
{
    struct blocks_output out;
    if (!blocks_output_open(arguments, &out))
        return cmd_no_memory("blocks");
    int status = arguments->sort == BLOCKS_BY_NUMBER
                     ? tn_inspect_blocks(inspector, print_wanted, &out)
                     : collect_and_print(&out, inspector);
    if (status >= 0)
        return blocks_output_close(&out);
    table_destroy(out.table);
    return status == TN_ERR_NO_MEMORY ? cmd_no_memory("blocks")
                                      : cmd_fail("blocks", arguments->common.domain, status);
}

int cmd_blocks(int argc, char **argv)
{
    const struct argp argp = {.options = options, .parser = parse};
    struct blocks_arguments arguments = {.common.takes = CMD_TAKES_A_DOMAIN};
    tn_inspector *inspector;

    if (cmd_parse(argc, argv, "List every block of one domain, with its holders.", &argp,
                  &arguments.common) != CMD_FINE)
        return CMD_USAGE;
    int code = cmd_open("blocks", arguments.common.domain, &inspector);
    if (code != CMD_FINE)
        return code;
    code = show(&arguments, inspector);
    tn_inspector_close(inspector);
    return code;
}
