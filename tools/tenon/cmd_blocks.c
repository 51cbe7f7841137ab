/* SPDX-License-Identifier: Apache-2.0 */
/* tenon blocks: every block of one domain, and who keeps it. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cmd.h"
#include "table.h"

enum { MAX_SEATS = 1024 }; /* of a domain, see tn_domain_options */
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
    CMD_JSON_OPTION,
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
    tn_block_info info; /* without holders; path and attributes are owned, or NULL and "" */
    size_t first_seat;  /* in `seats`, info.holder_count of them */
};

struct rows {
    const struct arguments *arguments;
    struct row *at; /* [count] */
    size_t count, room;
    uint16_t *seats; /* [seat_count] */
    size_t seat_count, seat_room;
    tn_holder holders[MAX_SEATS]; /* by seat */
};

static bool is_wanted(const struct arguments *arguments, const tn_block_info *info)
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
static bool own_texts(tn_block_info *info)
{
    const char *path = info->path, *attributes = info->attributes;
    bool has_path = path != NULL, has_attributes = attributes[0] != '\0';

    info->path = has_path ? strdup(path) : NULL;
    info->attributes = has_attributes ? strdup(attributes) : "";
    return (!has_path || info->path != NULL) && info->attributes != NULL;
}

static void free_texts(tn_block_info *info)
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

static int add_row(const tn_block_info *info, void *context)
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
    /* In the order of numbers, enough is enough. */
    bool is_done = rows->arguments->sort == BY_NUMBER && rows->arguments->limit != 0 &&
                   rows->count == rows->arguments->limit;
    return is_done ? 1 : 0;
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

static void add_holders(struct table *table, const struct rows *rows, const struct row *row)
{
    enum { SHOWN = 4 };
    char text[SHOWN * 96] = "-";
    size_t used = 0;
    uint32_t count = row->info.holder_count;

    for (uint32_t i = 0; i < count && i < SHOWN; i++) {
        const tn_holder *holder = &rows->holders[rows->seats[row->first_seat + i]];
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%d %s", i > 0 ? ", " : "",
                                 holder->pid, holder->command);
    }
    if (count > SHOWN)
        table_cell(table, "%s and %u more", text, count - SHOWN);
    else
        table_cell(table, "%s", text);
}

/* Where its bytes are, in few letters. */
static const char *place(const tn_block_info *info)
{
    return strcmp(info->strategy, "file_descriptor") == 0 ? "memfd"
           : strcmp(info->strategy, "file_system") == 0   ? "file"
                                                          : info->strategy;
}

static void add_details(struct table *table, const tn_block_info *info)
{
    char text[TABLE_TEXT_BYTES];

    table_cell(table, "%s%s", info->strategy, info->is_write_once ? ", write once" : "");
    table_cell(table, "%s",
               info->object_bytes != 0 ? table_bytes(text, info->object_bytes) : "-");
    table_cell(table, "%s", info->attributes[0] != '\0' ? info->attributes : "-");
    table_cell(table, "%s", info->path != NULL ? info->path : "-");
}

static void add_line(struct table *table, const struct rows *rows, const struct row *row)
{
    const tn_block_info *info = &row->info;
    char text[TABLE_TEXT_BYTES], tensor[TABLE_TENSOR_BYTES];
    bool is_tensor = strcmp(info->kind, "tensor") == 0;

    table_cell(table, "%08x", info->block);
    table_cell(table, "%s", table_bytes(text, info->bytes));
    table_cell(table, "%s", info->kind);
    table_cell(table, "%s",
               is_tensor ? table_tensor(tensor, info->dtype, info->ndim, info->shape) : "-");
    table_cell(table, "%s", table_age(text, info->age_ns));
    table_cell(table, "%u", info->references);
    table_cell(table, "%u", info->in_messages);
    table_cell(table, "%u", info->in_tickets);
    if (rows->arguments->is_long)
        add_details(table, info);
    else
        table_cell(table, "%s", place(info));
    add_holders(table, rows, row);
}

/* @return how many of columns [TABLE_COLUMNS] it filled in */
static size_t choose_columns(bool is_long, struct table_column columns[])
{
    static const struct table_column first[] = {
        {"BLOCK", false}, {"BYTES", true}, {"KIND", false}, {"TENSOR", false},
        {"AGE", true},    {"REFS", true},  {"MSGS", true},  {"TICKETS", true}};
    static const struct table_column usual[] = {{"WHERE", false}, {"HELD BY", false}};
    static const struct table_column details[] = {{"STRATEGY", false},
                                                  {"OBJECT", true},
                                                  {"ATTRIBUTES", false},
                                                  {"FILE", false},
                                                  {"HELD BY", false}};
    const struct table_column *last = is_long ? details : usual;
    size_t last_count =
        is_long ? sizeof details / sizeof details[0] : sizeof usual / sizeof usual[0];
    size_t first_count = sizeof first / sizeof first[0];

    memcpy(columns, first, sizeof first);
    memcpy(columns + first_count, last, last_count * sizeof *last);
    return first_count + last_count;
}

static int print_text(const struct rows *rows)
{
    struct table_column columns[TABLE_COLUMNS];
    size_t count = choose_columns(rows->arguments->is_long, columns);
    struct table *table = table_create(columns, count);

    if (table == NULL)
        return cmd_no_memory("blocks");
    for (size_t i = 0; i < rows->count; i++)
        add_line(table, rows, &rows->at[i]);
    int status = table_print(table, 0, stdout);
    table_destroy(table);
    return status == 0 ? CMD_FINE : cmd_no_memory("blocks");
}

/* ---- JSON -------------------------------------------------------------------------------- */

static json_t *json_holders(const struct rows *rows, const struct row *row)
{
    json_t *list = json_array();

    for (uint32_t i = 0; i < row->info.holder_count; i++) {
        const tn_holder *holder = &rows->holders[rows->seats[row->first_seat + i]];
        json_t *object = json_object();
        cmd_json_set(object, "seat", cmd_json_count(holder->seat));
        cmd_json_set(object, "pid", json_integer(holder->pid));
        cmd_json_set(object, "command", json_string(holder->command));
        json_array_append_new(list, object);
    }
    return list;
}

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

static void set_tensor(json_t *object, const tn_block_info *info)
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

static json_t *json_block(const struct rows *rows, const struct row *row)
{
    const tn_block_info *info = &row->info;
    json_t *object = json_object();

    cmd_json_set(object, "block", cmd_json_count(info->block));
    cmd_json_set(object, "bytes", cmd_json_count(info->bytes));
    cmd_json_set(object, "block_bytes", cmd_json_count(info->block_bytes));
    cmd_json_set(object, "strategy", json_string(info->strategy));
    cmd_json_set(object, "object_bytes", cmd_json_count(info->object_bytes));
    cmd_json_set(object, "path", info->path != NULL ? json_string(info->path) : json_null());
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
    cmd_json_set(object, "holders", json_holders(rows, row));
    return object;
}

/* Block by block: a document of a million blocks would not be small. */
static int print_json(const struct rows *rows)
{
    for (size_t i = 0; i < rows->count; i++) {
        fputs(i == 0 ? "[\n" : ",\n", stdout);
        json_t *object = json_block(rows, &rows->at[i]);
        int status = object == NULL ? -1 : json_dumpf(object, stdout, JSON_COMPACT);
        json_decref(object);
        if (status != 0)
            return ferror(stdout) ? CMD_TROUBLE : cmd_no_memory("blocks");
    }
    fputs(rows->count == 0 ? "[]\n" : "\n]\n", stdout);
    return CMD_FINE;
}

/* ------------------------------------------------------------------------------------------ */

static int show(const struct arguments *arguments, tn_inspector *inspector)
{
    struct rows *rows = calloc(1, sizeof *rows);
    if (rows == NULL)
        return cmd_no_memory("blocks");
    rows->arguments = arguments;
    int status = tn_inspect_blocks(inspector, add_row, rows), code;
    if (status == TN_ERR_NO_MEMORY) {
        code = cmd_no_memory("blocks");
    } else if (status < 0) {
        code = cmd_fail("blocks", arguments->common.domain, status);
    } else {
        sort_and_cut(rows);
        code = arguments->common.as_json ? print_json(rows) : print_text(rows);
    }
    free_rows(rows);
    return code;
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
