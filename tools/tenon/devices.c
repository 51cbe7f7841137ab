/* SPDX-License-Identifier: Apache-2.0 */
#include "devices.h"

#include <stdlib.h>
#include <string.h>

/* ---- listing ----------------------------------------------------------------------------- */

static int add_device(const tn_device_entry *device, void *context)
{
    struct devices *devices = context;
    size_t bytes = device->holder_count * sizeof *device->holders;
    tn_device_entry *grown = reallocarray(devices->at, devices->count + 1, sizeof *grown);
    if (grown == NULL)
        return TN_ERR_NO_MEMORY;
    devices->at = grown;
    tn_device_holder *holders = malloc(bytes + 1);
    if (holders == NULL)
        return TN_ERR_NO_MEMORY;
    memcpy(holders, device->holders, bytes);
    grown[devices->count] = *device;
    grown[devices->count++].holders = holders;
    return 0;
}

int devices_list(tn_inspector *inspector, struct devices *devices)
{
    return tn_inspect_devices(inspector, add_device, devices);
}

void devices_free(struct devices *devices)
{
    for (size_t i = 0; i < devices->count; i++)
        free((tn_device_holder *)devices->at[i].holders);
    free(devices->at);
    *devices = (struct devices){0};
}

/* ---- JSON -------------------------------------------------------------------------------- */

static json_t *json_holder(const tn_device_holder *holder)
{
    json_t *object = json_object();
    cmd_json_set(object, "seat", cmd_json_count(holder->seat));
    cmd_json_set(object, "pid", json_integer(holder->pid));
    cmd_json_set(object, "command", cmd_json_text(holder->command));
    cmd_json_set(object, "tensors", cmd_json_count(holder->tensors));
    cmd_json_set(object, "bytes", cmd_json_count(holder->bytes));
    return object;
}

static json_t *json_device(const tn_device_entry *device)
{
    json_t *object = json_object(), *holders = json_array();
    bool is_limited = device->quota_bytes != UINT64_MAX;
    for (uint32_t i = 0; i < device->holder_count; i++)
        json_array_append_new(holders, json_holder(&device->holders[i]));
    cmd_json_set(object, "uuid", json_string(device->uuid));
    cmd_json_set(object, "bytes", cmd_json_count(device->bytes));
    cmd_json_set(object, "quota_bytes",
                 is_limited ? cmd_json_count(device->quota_bytes) : json_null());
    cmd_json_set(object, "objects", cmd_json_count(device->objects));
    cmd_json_set(object, "tensors", cmd_json_count(device->tensors));
    cmd_json_set(object, "live_bytes", cmd_json_count(device->live_bytes));
    cmd_json_set(object, "unheld_bytes", cmd_json_count(device->unheld_bytes));
    cmd_json_set(object, "holders", holders);
    return object;
}

json_t *devices_json(const struct devices *devices)
{
    json_t *list = json_array();
    for (size_t i = 0; i < devices->count; i++)
        json_array_append_new(list, json_device(&devices->at[i]));
    return list;
}

/* ---- text -------------------------------------------------------------------------------- */

const char *devices_holders(char text[DEVICES_HOLDERS_BYTES], const tn_device_entry *device)
{
    enum { SHOWN = 4 };
    char bytes[TABLE_TEXT_BYTES];
    uint32_t count = device->holder_count;
    size_t used = 0;

#define ADD(...)                                                                               \
    (used += (size_t)snprintf(text + used, DEVICES_HOLDERS_BYTES - used, __VA_ARGS__))
    text[0] = '\0';
    for (uint32_t i = 0; i < count && i < SHOWN; i++)
        ADD("%s%d %s (%s)", i > 0 ? ", " : "", device->holders[i].pid,
            device->holders[i].command, table_bytes(bytes, device->holders[i].bytes));
    if (count > SHOWN)
        ADD(" and %u more", count - SHOWN);
    if (device->unheld_bytes > 0)
        ADD("%smessages and tickets (%s)", count > 0 ? ", " : "",
            table_bytes(bytes, device->unheld_bytes));
#undef ADD
    return used > 0 ? text : "-";
}

struct table *devices_table(bool has_domains)
{
    static const struct table_column columns[] = {
        {"DOMAIN", false}, {"DEVICE", false}, {"LIVE", true},    {"TENSORS", true},
        {"TAKEN", true},   {"QUOTA", true},   {"HOLDERS", false}};
    size_t skipped = has_domains ? 0 : 1;
    return table_create(columns + skipped, sizeof columns / sizeof columns[0] - skipped);
}

static void add_row(struct table *table, const tn_device_entry *device)
{
    char text[TABLE_TEXT_BYTES], holders[DEVICES_HOLDERS_BYTES];
    table_cell(table, "%s", device->uuid);
    table_cell(table, "%s", table_bytes(text, device->live_bytes));
    table_cell(table, "%" PRIu64, device->tensors);
    table_cell(table, "%s", table_bytes(text, device->bytes));
    table_cell(table, "%s",
               device->quota_bytes == UINT64_MAX ? "-"
                                                 : table_bytes(text, device->quota_bytes));
    table_cell(table, "%s", devices_holders(holders, device));
}

void devices_add_rows(struct table *table, const char *domain, const struct devices *devices)
{
    for (size_t i = 0; i < devices->count; i++) {
        if (domain != NULL)
            table_cell(table, "%s", domain);
        add_row(table, &devices->at[i]);
    }
}
