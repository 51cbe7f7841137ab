/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tenon blocks: every block of one domain, and who keeps it. By number, each block is printed
 * when it is found, so that a million of them take no memory. Only what is to be sorted is
 * collected first.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cmd.h"
#include "table.h"

enum { MAX_SEATS = 1024 };                  /* of a domain, see tn_domain_options */
enum { FIRST_ROWS = 32, MOST_ROWS = 1024 }; /* that a table has before it is printed */
enum sort { BY_NUMBER, BY_BYTES, BY_AGE };

struct arguments {
    struct cmd_arguments common;
    bool is_long;
    enum sort sort;
    uint64_t limit;
    int32_t holder_pid; /* 0: any */
};

/* ---- options ----------------------------------------------------------------------------- */

static const struct argp_option options[] = {
    CMD_COMMON_OPTIONS,
    {"sort", 's', "KEY", 0, "Largest or oldest first: bytes or age (default: by number)", 0},
    {"limit", 'n', "N", 0, "Show at most N blocks", 0},
    {"holder", 'p', "PID", 0, "Show what the process PID holds", 0},
    {"long", 'l', NULL, 0, "Show the strategy, object, attributes and file of each as well", 0},
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

static enum sort parse_sort(struct argp_state *state, const char *text)
{
    if (strcmp(text, "bytes") == 0)
        return BY_BYTES;
    if (strcmp(text, "age") == 0)
        return BY_AGE;
    argp_error(state, "--sort: '%s' is neither bytes nor age", text);
    return BY_NUMBER;
}

static error_t parse(int key, char *argument, struct argp_state *state)
{
    struct arguments *arguments = state->input;

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

/* ---- collecting -------------------------------------------------------------------------- */

/*
 * One block. Its holders are kept as numbers of seats, since a million blocks have few of
 * those.
 */
struct row {
    tn_block_entry info; /* without holders; path and attributes are owned, or NULL and "" */
    size_t first_seat;   /* in `seats`, info.holder_count of them */
};

struct rows {
    const struct arguments *arguments;
    struct row *at; /* [count] */
    size_t count, room;
    uint16_t *seats; /* [seat_count] */
    size_t seat_count, seat_room;
    tn_holder holders[MAX_SEATS]; /* by seat */
};

static bool is_wanted(const struct arguments *arguments, const tn_block_entry *info)
{
    if (arguments->holder_pid == 0)
        return true;
    for (uint32_t i = 0; i < info->holder_count; i++)
        if (info->holders[i].pid == arguments->holder_pid)
            return true;
    return false;
}

static bool make_room(struct rows *rows, uint32_t seats)
{
    if (rows->count == rows->room) {
        size_t room = 2 * rows->room + 64;
        struct row *grown = reallocarray(rows->at, room, sizeof *grown);
        if (grown == NULL)
            return false;
        rows->at = grown;
        rows->room = room;
    }
    if (rows->seat_room - rows->seat_count < seats) {
        size_t room = 2 * rows->seat_room + seats;
        uint16_t *grown = reallocarray(rows->seats, room, sizeof *grown);
        if (grown == NULL)
            return false;
        rows->seats = grown;
        rows->seat_room = room;
    }
    return true;
}

/* What was borrowed; few blocks have either. After a failure, what was had is owned. */
static bool own_texts(tn_block_entry *info)
{
    const char *path = info->path, *attributes = info->attributes;
    bool has_path = path != NULL, has_attributes = attributes[0] != '\0';

    info->path = has_path ? strdup(path) : NULL;
    info->attributes = has_attributes ? strdup(attributes) : "";
    return (!has_path || info->path != NULL) && info->attributes != NULL;
}

static void free_texts(tn_block_entry *info)
{
    free((char *)info->path);
    if (info->attributes != NULL && info->attributes[0] != '\0')
        free((char *)info->attributes);
}

static void free_rows(struct rows *rows)
{
    for (size_t i = 0; i < rows->count; i++)
        free_texts(&rows->at[i].info);
    free(rows->at);
    free(rows->seats);
    free(rows);
}

static int add_row(const tn_block_entry *info, void *context)
{
    struct rows *rows = context;

    if (!is_wanted(rows->arguments, info))
        return 0;
    if (!make_room(rows, info->holder_count))
        return TN_ERR_NO_MEMORY;
    struct row *row = &rows->at[rows->count++];
    *row = (struct row){.info = *info, .first_seat = rows->seat_count};
    row->info.holders = NULL;
    if (!own_texts(&row->info))
        return TN_ERR_NO_MEMORY;
    for (uint32_t i = 0; i < info->holder_count; i++) {
        uint32_t seat = info->holders[i].seat % MAX_SEATS;
        rows->holders[seat] = info->holders[i];
        rows->seats[rows->seat_count++] = (uint16_t)seat;
    }
    return 0;
}

static int compare(uint64_t a, uint64_t b) { return (a > b) - (a < b); }

static int compare_bytes(const void *one, const void *other)
{
    const struct row *a = one, *b = other;
    int order = compare(b->info.bytes, a->info.bytes);
    return order != 0 ? order : compare(a->info.block, b->info.block);
}

static int compare_age(const void *one, const void *other)
{
    const struct row *a = one, *b = other;
    int order = compare(b->info.age_ns, a->info.age_ns);
    return order != 0 ? order : compare(a->info.block, b->info.block);
}

static void sort_and_cut(struct rows *rows)
{
    enum sort sort = rows->arguments->sort;
    uint64_t limit = rows->arguments->limit;

    if (sort != BY_NUMBER && rows->count > 0)
        qsort(rows->at, rows->count, sizeof *rows->at,
              sort == BY_BYTES ? compare_bytes : compare_age);
    while (limit != 0 && rows->count > limit)
        free_texts(&rows->at[--rows->count].info);
}

/* ---- text -------------------------------------------------------------------------------- */

static void add_holders(struct table *table, const tn_block_entry *info)
{
    enum { SHOWN = 4 };
    char text[SHOWN * 96] = "-";
    size_t used = 0;
    uint32_t count = info->holder_count;

    for (uint32_t i = 0; i < count && i < SHOWN; i++) {
        const tn_holder *holder = &info->holders[i];
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%d %s", i > 0 ? ", " : "",
                                 holder->pid, holder->command);
    }
    if (count > SHOWN)
        table_cell(table, "%s and %u more", text, count - SHOWN);
    else
        table_cell(table, "%s", text);
}

static void add_details(struct table *table, const tn_block_entry *info)
{
    char text[TABLE_TEXT_BYTES];

    table_cell(table, "%s%s", info->strategy, info->is_write_once ? ", write once" : "");
    table_cell(table, "%s",
               info->object_bytes != 0 ? table_bytes(text, info->object_bytes) : "-");
    table_cell(table, "%s", info->attributes[0] != '\0' ? info->attributes : "-");
    table_cell(table, "%s", info->path != NULL ? info->path : "-");
}

static void add_line(struct table *table, const tn_block_entry *info, bool is_long)
{
    char text[TABLE_TEXT_BYTES], tensor[TABLE_TENSOR_BYTES];
    bool is_tensor = strcmp(info->kind, "tensor") == 0;

    table_cell(table, CMD_BLOCK_FORMAT, info->block);
    table_cell(table, "%s", table_bytes(text, info->bytes));
    table_cell(table, "%s", info->kind);
    table_cell(table, "%s",
               is_tensor ? table_tensor(tensor, info->dtype, info->ndim, info->shape) : "-");
    table_cell(table, "%s", table_age(text, info->age_ns));
    table_cell(table, "%u", info->references);
    table_cell(table, "%u", info->in_messages);
    table_cell(table, "%u", info->in_tickets);
    if (is_long)
        add_details(table, info);
    else
        table_cell(table, "%s", info->strategy);
    add_holders(table, info);
}

/* @return how many of columns [TABLE_COLUMNS] it filled in */
static size_t choose_columns(bool is_long, struct table_column columns[])
{
    static const struct table_column first[] = {
        {"BLOCK", false}, {"BYTES", true}, {"KIND", false}, {"TENSOR", false},
        {"AGE", true},    {"REFS", true},  {"MSGS", true},  {"TICKETS", true}};
    static const struct table_column usual[] = {{"STRATEGY", false}, {"HOLDERS", false}};
    static const struct table_column details[] = {{"STRATEGY", false},
                                                  {"OBJECT BYTES", true},
                                                  {"ATTRIBUTES", false},
                                                  {"PATH", false},
                                                  {"HOLDERS", false}};
    const struct table_column *last = is_long ? details : usual;
    size_t last_count =
        is_long ? sizeof details / sizeof details[0] : sizeof usual / sizeof usual[0];
    size_t first_count = sizeof first / sizeof first[0];

    memcpy(columns, first, sizeof first);
    memcpy(columns + first_count, last, last_count * sizeof *last);
    return first_count + last_count;
}

/* ---- JSON -------------------------------------------------------------------------------- */

/* A word for each, in order. */
static json_t *json_words(const char *text)
{
    json_t *list = json_array();

    while (*text != '\0') {
        size_t length = strcspn(text, " ");
        json_array_append_new(list, json_stringn(text, length));
        text += length + strspn(text + length, " ");
    }
    return list;
}

static void set_tensor(json_t *object, const tn_block_entry *info)
{
    char name[TABLE_TEXT_BYTES];
    json_t *shape = json_array();

    for (int32_t i = 0; i < info->ndim && i < 8; i++)
        json_array_append_new(shape, json_integer(info->shape[i]));
    bool is_known = tn_dtype_name(info->dtype, name, sizeof name) == 0;
    cmd_json_set(object, "dtype", is_known ? json_string(name) : json_null());
    cmd_json_set(object, "ndim", json_integer(info->ndim));
    cmd_json_set(object, "shape", shape);
    cmd_json_set(object, "attributes", json_words(info->attributes));
}

static json_t *json_block(const tn_block_entry *info)
{
    json_t *object = json_object();

    cmd_json_set(object, "block", cmd_json_block(info->block));
    cmd_json_set(object, "bytes", cmd_json_count(info->bytes));
    cmd_json_set(object, "block_bytes", cmd_json_count(info->block_bytes));
    cmd_json_set(object, "strategy", json_string(info->strategy));
    cmd_json_set(object, "object_bytes", cmd_json_count(info->object_bytes));
    cmd_json_set(object, "path", info->path != NULL ? cmd_json_text(info->path) : json_null());
    cmd_json_set(object, "is_write_once", json_boolean(info->is_write_once));
    cmd_json_set(object, "kind", json_string(info->kind));
    if (strcmp(info->kind, "tensor") == 0)
        set_tensor(object, info);
    cmd_json_set(object, "age_ns", cmd_json_count(info->age_ns));
    cmd_json_set(object, "creator_seat", cmd_json_count(info->creator_seat));
    cmd_json_set(object, "creator_pid", json_integer(info->creator_pid));
    cmd_json_set(object, "references", cmd_json_count(info->references));
    cmd_json_set(object, "in_messages", cmd_json_count(info->in_messages));
    cmd_json_set(object, "in_tickets", cmd_json_count(info->in_tickets));
    cmd_json_set(object, "holders", cmd_json_holders(info->holders, info->holder_count));
    return object;
}

/* ---- printing ---------------------------------------------------------------------------- */

/* Blocks go to it one by one, and are printed soon. */
struct output {
    const struct arguments *arguments;
    struct table *table; /* NULL: JSON */
    struct table_column columns[TABLE_COLUMNS];
    uint64_t count; /* of blocks that were printed or are in the table */
    uint64_t flush; /* the count at which the table is printed */
    bool is_out_of_memory;
};

static bool open_output(const struct arguments *arguments, struct output *out)
{
    *out = (struct output){.arguments = arguments, .flush = FIRST_ROWS};
    if (arguments->common.as_json)
        return true;
    size_t count = choose_columns(arguments->is_long, out->columns);
    out->table = table_create(out->columns, count);
    return out->table != NULL;
}

static void flush_rows(struct output *out)
{
    out->is_out_of_memory |= table_flush(out->table, stdout) != 0;
    fflush(stdout);
    uint64_t more = out->count < MOST_ROWS ? out->count : MOST_ROWS;
    out->flush = out->count + more;
}

static void print_json(struct output *out, const tn_block_entry *info)
{
    fputs(out->count == 0 ? "[\n" : ",\n", stdout);
    json_t *object = json_block(info);
    out->is_out_of_memory |=
        object == NULL || (json_dumpf(object, stdout, JSON_COMPACT) != 0 && !ferror(stdout));
    json_decref(object);
    if (out->count == 0)
        fflush(stdout);
}

/* @return whether to go on */
static bool print_block(struct output *out, const tn_block_entry *info)
{
    if (out->table == NULL)
        print_json(out, info);
    else
        add_line(out->table, info, out->arguments->is_long);
    out->count++;
    if (out->table != NULL && out->count == out->flush)
        flush_rows(out);
    return !out->is_out_of_memory && !ferror(stdout);
}

/* @return an exit code */
static int close_output(struct output *out)
{
    if (out->table != NULL)
        flush_rows(out);
    else
        fputs(out->count == 0 ? "[]\n" : "\n]\n", stdout);
    table_destroy(out->table);
    if (out->is_out_of_memory)
        return cmd_no_memory("blocks");
    return ferror(stdout) ? CMD_TROUBLE : CMD_FINE;
}

/* ---- in the order of numbers ------------------------------------------------------------- */

static int print_wanted(const tn_block_entry *info, void *context)
{
    struct output *out = context;

    if (!is_wanted(out->arguments, info))
        return 0;
    if (!print_block(out, info))
        return 1;
    return out->arguments->limit != 0 && out->count == out->arguments->limit;
}

/* ---- sorted ------------------------------------------------------------------------------ */

static void print_sorted(struct output *out, const struct rows *rows)
{
    static tn_holder holders[MAX_SEATS];
    bool goes_on = true;

    for (size_t i = 0; i < rows->count && goes_on; i++) {
        tn_block_entry info = rows->at[i].info;
        for (uint32_t h = 0; h < info.holder_count; h++)
            holders[h] = rows->holders[rows->seats[rows->at[i].first_seat + h]];
        info.holders = holders;
        goes_on = print_block(out, &info);
    }
}

/* @return as tn_inspect_blocks() */
static int collect_and_print(struct output *out, tn_inspector *inspector)
{
    struct rows *rows = calloc(1, sizeof *rows);
    if (rows == NULL)
        return TN_ERR_NO_MEMORY;
    rows->arguments = out->arguments;
    int status = tn_inspect_blocks(inspector, add_row, rows);
    if (status >= 0) {
        sort_and_cut(rows);
        print_sorted(out, rows);
    }
    free_rows(rows);
    return status;
}

/* ------------------------------------------------------------------------------------------ */

static int show(const struct arguments *arguments, tn_inspector *inspector)
{
    struct output out;
    if (!open_output(arguments, &out))
        return cmd_no_memory("blocks");
    int status = arguments->sort == BY_NUMBER ? tn_inspect_blocks(inspector, print_wanted, &out)
                                              : collect_and_print(&out, inspector);
    if (status >= 0)
        return close_output(&out);
    table_destroy(out.table);
    return status == TN_ERR_NO_MEMORY ? cmd_no_memory("blocks")
                                      : cmd_fail("blocks", arguments->common.domain, status);
}

int cmd_blocks(int argc, char **argv)
{
    const struct argp argp = {.options = options, .parser = parse};
    struct arguments arguments = {.common.takes = CMD_TAKES_A_DOMAIN};
    tn_inspector *inspector;

    if (cmd_parse(argc, argv, "Show every block of one domain, and who keeps it.", &argp,
                  &arguments.common) != CMD_FINE)
        return CMD_USAGE;
    int code = cmd_open("blocks", arguments.common.domain, &inspector);
    if (code != CMD_FINE)
        return code;
    code = show(&arguments, inspector);
    tn_inspector_close(inspector);
    return code;
}
