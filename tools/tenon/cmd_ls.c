/* SPDX-License-Identifier: Apache-2.0 */
/* tenon ls: the domains of this user. */
#include <stdlib.h>

#include "cmd.h"
#include "table.h"

static int print_json(const struct cmd_domains *domains)
{
    json_t *list = json_array();
    for (size_t i = 0; i < domains->count; i++)
        json_array_append_new(list, cmd_json_domain(&domains->at[i]));
    return cmd_json_print("ls", list);
}

/* Of a domain that another version of tenon made, only these figures are known. */
static void add_other(struct table *table, const tn_domain_entry *info)
{
    table_cell(table, "layout %u", info->other_layout);
    for (int i = 0; i < 3; i++)
        table_cell(table, "-");
    table_cell(table, "%d", info->creator_pid);
    table_cell(table, "-");
}

static void add_domain(struct table *table, const tn_domain_entry *info)
{
    char text[TABLE_TEXT_BYTES];

    table_cell(table, "%u/%u", info->seats_used, info->seats);
    table_cell(table, "%s", table_bytes(text, info->committed_bytes));
    table_cell(table, "%s", table_bytes(text, info->quota_bytes));
    table_cell(table, "%s", table_age(text, info->age_ns));
    table_cell(table, "%d", info->creator_pid);
    table_cell(table, "%s", info->runtime_folder[0] != '\0' ? info->runtime_folder : "-");
}

static int print_text(const struct cmd_domains *domains)
{
    static const struct table_column columns[] = {
        {"DOMAIN", false}, {"SEATS", true},       {"COMMITTED", true},      {"QUOTA", true},
        {"AGE", true},     {"CREATOR PID", true}, {"RUNTIME FOLDER", false}};
    struct table *table = table_create(columns, sizeof columns / sizeof columns[0]);
    char id[CMD_ID_BYTES];

    if (table == NULL)
        return cmd_no_memory("ls");
    for (size_t i = 0; i < domains->count; i++) {
        const tn_domain_entry *info = &domains->at[i];
        table_cell(table, "%s", cmd_domain_label(info, id));
        if (info->other_layout != 0)
            add_other(table, info);
        else
            add_domain(table, info);
    }
    int status = table_print(table, 0, stdout);
    table_destroy(table);
    return status == 0 ? CMD_FINE : cmd_no_memory("ls");
}

int cmd_ls(int argc, char **argv)
{
    struct cmd_arguments arguments = {.takes = CMD_TAKES_NO_DOMAIN};
    struct cmd_domains domains;

    if (cmd_parse(argc, argv, "List the domains of this user, those of all runtime folders.",
                  NULL, &arguments) != CMD_FINE)
        return CMD_USAGE;
    int status = cmd_list_domains(&domains);
    if (status != 0)
        return cmd_fail("ls", NULL, status);
    int code = arguments.as_json ? print_json(&domains) : print_text(&domains);
    free(domains.at);
    return code;
}
