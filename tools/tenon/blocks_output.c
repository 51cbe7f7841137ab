/* SPDX-License-Identifier: Apache-2.0 */
/*
 * blocks_output: print each block soon after it is found. The output of a million blocks takes
 * no more memory than the rows of one table.
 */
#include <string.h>

#include "blocks.h"

enum { FIRST_ROWS = 32, MOST_ROWS = 1024 }; /* of a table, before it is printed */

/* ---- text -------------------------------------------------------------------------------- */

/* The processes that hold the block, and the store and key, or the channel, that keep it. */
static void add_holders(struct table *table, const tn_block_entry *info)
{
    enum { SHOWN = 4, KEY_SHOWN = 80 };
    char text[(SHOWN + 2) * 96] = "-";
    size_t used = 0;
    uint32_t count = info->holder_count;

    if (info->key != NULL)
        used +=
            (size_t)snprintf(text, sizeof text, "store %.47s: %.*s%s", info->store, KEY_SHOWN,
                             info->key, strlen(info->key) > KEY_SHOWN ? "..." : "");
    else if (info->channel != NULL)
        used += (size_t)snprintf(text, sizeof text, "channel %.47s", info->channel);
    for (uint32_t i = 0; i < count && i < SHOWN; i++) {
        const tn_holder *holder = &info->holders[i];
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%d %s",
                                 used > 0 ? ", " : "", holder->pid, holder->command);
    }
    if (count > SHOWN)
        table_cell(table, "%s and %u more", text, count - SHOWN);
    else
        table_cell(table, "%s", text);
}

static void add_details(struct table *table, const tn_block_entry *info)
{
    char text[TABLE_TEXT_BYTES];

    table_cell(table, "%s%s%s", info->strategy, info->is_write_once ? ", write once" : "",
               info->is_copy ? ", copy" : "");
    table_cell(table, "%s",
               info->object_bytes != 0 ? table_bytes(text, info->object_bytes) : "-");
    table_cell(table, "%s", info->attributes[0] != '\0' ? info->attributes : "-");
    table_cell(table, "%s",
               info->path != NULL        ? info->path
               : info->device[0] != '\0' ? info->device
                                         : "-");
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
        table_cell(table, "%s%s", info->strategy, info->is_copy ? ", copy" : "");
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
                                                  {"PATH OR DEVICE", false},
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

/* The words of a text, as an array. */
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
    cmd_json_set(object, "device",
                 info->device[0] != '\0' ? json_string(info->device) : json_null());
    cmd_json_set(object, "is_write_once", json_boolean(info->is_write_once));
    cmd_json_set(object, "is_copy", json_boolean(info->is_copy));
    cmd_json_set(object, "kind", json_string(info->kind));
    if (strcmp(info->kind, "tensor") == 0)
        set_tensor(object, info);
    cmd_json_set(object, "age_ns", cmd_json_count(info->age_ns));
    cmd_json_set(object, "creator_seat", cmd_json_count(info->creator_seat));
    cmd_json_set(object, "creator_pid", json_integer(info->creator_pid));
    cmd_json_set(object, "references", cmd_json_count(info->references));
    cmd_json_set(object, "in_messages", cmd_json_count(info->in_messages));
    cmd_json_set(object, "in_tickets", cmd_json_count(info->in_tickets));
    cmd_json_set(object, "store",
                 info->store != NULL ? cmd_json_text(info->store) : json_null());
    cmd_json_set(object, "channel",
                 info->channel != NULL ? cmd_json_text(info->channel) : json_null());
    cmd_json_set(object, "key", info->key != NULL ? cmd_json_text(info->key) : json_null());
    cmd_json_set(object, "holders", cmd_json_holders(info->holders, info->holder_count));
    return object;
}

/* ---- printing ---------------------------------------------------------------------------- */

bool blocks_output_open(const struct blocks_arguments *arguments, struct blocks_output *out)
{
    *out = (struct blocks_output){.arguments = arguments, .flush = FIRST_ROWS};
    if (arguments->common.as_json)
        return true;
    size_t count = choose_columns(arguments->is_long, out->columns);
    out->table = table_create(out->columns, count);
    return out->table != NULL;
}

static void flush_rows(struct blocks_output *out)
{
    out->is_out_of_memory |= table_flush(out->table, stdout) != 0;
    fflush(stdout);
    uint64_t more = out->count < MOST_ROWS ? out->count : MOST_ROWS;
    out->flush = out->count + more;
}

static void print_json(struct blocks_output *out, const tn_block_entry *info)
{
    fputs(out->count == 0 ? "[\n" : ",\n", stdout);
    json_t *object = json_block(info);
    out->is_out_of_memory |=
        object == NULL || (json_dumpf(object, stdout, JSON_COMPACT) != 0 && !ferror(stdout));
    json_decref(object);
    if (out->count == 0)
        fflush(stdout);
}

bool blocks_output_add(struct blocks_output *out, const tn_block_entry *info)
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

int blocks_output_close(struct blocks_output *out)
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
