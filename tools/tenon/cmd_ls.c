/* SPDX-License-Identifier: Apache-2.0 */
/* tenon ls: the domains of this user, and what they have on devices. */
#include <stdlib.h>

#include "cmd.h"
#include "devices.h"
#include "table.h"

/* The domains, and what each has on devices. */
struct list {
    struct cmd_domains domains;
    struct devices *devices; /* [domains.count] */
};

static json_t *json_domain(const struct list *list, size_t i)
{
    json_t *domain = cmd_json_domain(&list->domains.at[i]);
    cmd_json_set(domain, "devices", devices_json(&list->devices[i]));
    return domain;
}

static int print_json(const struct list *list)
{
    json_t *domains = json_array();
    for (size_t i = 0; i < list->domains.count; i++)
        json_array_append_new(domains, json_domain(list, i));
    return cmd_json_print("ls", domains);
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

static int print_domains(const struct cmd_domains *domains)
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

/* Where no domain has memory of devices, there is no such part. */
static int print_devices(const struct list *list)
{
    struct table *table = devices_table(true);
    char id[CMD_ID_BYTES];
    size_t count = 0;

    if (table == NULL)
        return cmd_no_memory("ls");
    for (size_t i = 0; i < list->domains.count; i++) {
        devices_add_rows(table, cmd_domain_label(&list->domains.at[i], id), &list->devices[i]);
        count += list->devices[i].count;
    }
    if (count > 0)
        putchar('\n');
    int status = count > 0 ? table_print(table, 0, stdout) : 0;
    table_destroy(table);
    return status == 0 ? CMD_FINE : cmd_no_memory("ls");
}

static int print_text(const struct list *list)
{
    int code = print_domains(&list->domains);
    return code == CMD_FINE ? print_devices(list) : code;
}

/* A domain that has ended since it was listed has no devices. */
static int list_devices(const tn_domain_entry *info, struct devices *devices)
{
    char id[CMD_ID_BYTES];
    tn_inspector *inspector;

    if (info->other_layout != 0)
        return 0;
    cmd_hex_id(info, id);
    int status = cmd_inspect(id, &inspector);
    if (status != 0)
        return status == TN_ERR_NOT_FOUND ? 0 : status;
    status = devices_list(inspector, devices);
    tn_inspector_close(inspector);
    return status;
}

static int list_all(struct list *list)
{
    int status = cmd_list_domains(&list->domains);
    if (status != 0)
        return status;
    list->devices = calloc(list->domains.count + 1, sizeof *list->devices);
    if (list->devices == NULL)
        return TN_ERR_NO_MEMORY;
    for (size_t i = 0; i < list->domains.count && status == 0; i++)
        status = list_devices(&list->domains.at[i], &list->devices[i]);
    return status;
}

static void free_list(struct list *list)
{
    for (size_t i = 0; list->devices != NULL && i < list->domains.count; i++)
        devices_free(&list->devices[i]);
    free(list->devices);
    free(list->domains.at);
}

int cmd_ls(int argc, char **argv)
{
    struct cmd_arguments arguments = {.takes = CMD_TAKES_NO_DOMAIN};
    struct list list = {0};

    if (cmd_parse(argc, argv, "List the domains of this user, those of all runtime folders.",
                  NULL, &arguments) != CMD_FINE)
        return CMD_USAGE;
    int status = list_all(&list);
    int code = status != 0         ? cmd_fail("ls", NULL, status)
               : arguments.as_json ? print_json(&list)
                                   : print_text(&list);
    free_list(&list);
    return code;
}
