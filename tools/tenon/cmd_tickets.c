/* SPDX-License-Identifier: Apache-2.0 */
/* tenon tickets: list the tickets of one domain, each with the block that it keeps. */
#include <inttypes.h>

#include "cmd.h"
#include "table.h"

static int add_line(const tn_ticket_entry *ticket, void *context)
{
    struct table *table = context;
    char text[TABLE_TEXT_BYTES];

    table_cell(table, "%016" PRIx64, ticket->id);
    table_cell(table, CMD_BLOCK_FORMAT, ticket->block);
    table_cell(table, "%s", table_bytes(text, ticket->bytes));
    table_cell(table, "%u", ticket->uses_left);
    table_cell(table, "%s",
               ticket->remaining_ns == TN_NO_EXPIRY ? "-"
                                                    : table_age(text, ticket->remaining_ns));
    table_cell(table, "%u", ticket->issuer_seat);
    table_cell(table, "%d", ticket->issuer_pid);
    return 0;
}

static int print_text(const char *name, tn_inspector *inspector)
{
    static const struct table_column columns[] = {
        {"TICKET", true},    {"BLOCK", false},      {"BYTES", true},     {"USES LEFT", true},
        {"TIME LEFT", true}, {"ISSUER SEAT", true}, {"ISSUER PID", true}};
    struct table *table = table_create(columns, sizeof columns / sizeof columns[0]);

    if (table == NULL)
        return cmd_no_memory("tickets");
    int status = tn_inspect_tickets(inspector, add_line, table);
    int printed = status == 0 ? table_print(table, 0, stdout) : 0;
    table_destroy(table);
    return status != 0    ? cmd_fail("tickets", name, status)
           : printed != 0 ? cmd_no_memory("tickets")
                          : CMD_FINE;
}

static int append(const tn_ticket_entry *ticket, void *context)
{
    json_t *list = context, *object = json_object();
    char id[17];

    snprintf(id, sizeof id, "%016" PRIx64, ticket->id);
    cmd_json_set(object, "id", json_string(id));
    cmd_json_set(object, "block", cmd_json_block(ticket->block));
    cmd_json_set(object, "bytes", cmd_json_count(ticket->bytes));
    cmd_json_set(object, "uses_left", cmd_json_count(ticket->uses_left));
    cmd_json_set(object, "remaining_ns",
                 ticket->remaining_ns == TN_NO_EXPIRY ? json_null()
                                                      : cmd_json_count(ticket->remaining_ns));
    cmd_json_set(object, "issuer_seat", cmd_json_count(ticket->issuer_seat));
    cmd_json_set(object, "issuer_pid", json_integer(ticket->issuer_pid));
    json_array_append_new(list, object);
    return 0;
}

static int print_json(const char *name, tn_inspector *inspector)
{
    json_t *list = json_array();
    int status = tn_inspect_tickets(inspector, append, list);

    if (status == 0)
        return cmd_json_print("tickets", list);
    json_decref(list);
    return cmd_fail("tickets", name, status);
}

int cmd_tickets(int argc, char **argv)
{
    struct cmd_arguments arguments = {.takes = CMD_TAKES_A_DOMAIN};
    tn_inspector *inspector;

    if (cmd_parse(argc, argv, "List every ticket of one domain: what exported handles keep.",
                  NULL, &arguments) != CMD_FINE)
        return CMD_USAGE;
    int code = cmd_open("tickets", arguments.domain, &inspector);
    if (code != CMD_FINE)
        return code;
    code = arguments.as_json ? print_json(arguments.domain, inspector)
                             : print_text(arguments.domain, inspector);
    tn_inspector_close(inspector);
    return code;
}
