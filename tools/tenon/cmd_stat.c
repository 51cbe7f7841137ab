/* SPDX-License-Identifier: Apache-2.0 */
/* tenon stat: memory, tables, seats and objects of one domain. */
#include <inttypes.h>
#include <string.h>

#include "cmd.h"
#include "devices.h"
#include "table.h"
#include "text.h"

/* ---- JSON -------------------------------------------------------------------------------- */

static int append_seat(const tn_seat_entry *seat, void *list)
{
    json_array_append_new(list, cmd_json_seat(seat));
    return 0;
}

static int append_object(const tn_object_entry *object, void *list)
{
    json_array_append_new(list, cmd_json_object(object));
    return 0;
}

static json_t *json_memory(const tn_domain_stat *stat)
{
    json_t *memory = json_object();

    cmd_json_set(memory, "committed_bytes", cmd_json_count(stat->domain.committed_bytes));
    cmd_json_set(memory, "quota_bytes", cmd_json_count(stat->domain.quota_bytes));
    cmd_json_set(memory, "watermark_bytes", cmd_json_count(stat->watermark_bytes));
    cmd_json_set(memory, "live_bytes", cmd_json_count(stat->live_bytes));
    cmd_json_set(memory, "free_bytes", cmd_json_count(stat->free_bytes));
    cmd_json_set(memory, "outside_bytes", cmd_json_count(stat->outside_bytes));
    cmd_json_set(memory, "outside_count", cmd_json_count(stat->outside_count));
    cmd_json_set(memory, "huge_page_bytes", cmd_json_count(stat->huge_page_bytes));
    cmd_json_set(memory, "huge_pages", json_string(stat->huge_pages));
    cmd_json_set(memory, "control_bytes", cmd_json_count(stat->control_bytes));
    return memory;
}

static int print_json(tn_inspector *inspector, const tn_domain_stat *stat,
                      const struct devices *devices)
{
    json_t *root = json_object(), *seats = json_array(), *objects = json_array();
    int status = tn_inspect_seats(inspector, append_seat, seats);
    if (status == 0)
        status = tn_inspect_objects(inspector, append_object, objects);

    cmd_json_set(root, "domain", cmd_json_domain(&stat->domain));
    cmd_json_set(root, "layout_version", cmd_json_count(stat->layout_version));
    cmd_json_set(root, "manager_pid", json_integer(stat->manager_pid));
    cmd_json_set(root, "memory", json_memory(stat));
    cmd_json_set(root, "blocks_live", cmd_json_count(stat->blocks_live));
    cmd_json_set(root, "blocks_limit", cmd_json_count(stat->blocks_limit));
    cmd_json_set(root, "objects_used", cmd_json_count(stat->objects_used));
    cmd_json_set(root, "objects_limit", cmd_json_count(stat->objects));
    cmd_json_set(root, "tickets_used", cmd_json_count(stat->tickets_used));
    cmd_json_set(root, "tickets_limit", cmd_json_count(stat->tickets));
    cmd_json_set(root, "deaths", cmd_json_count(stat->deaths));
    cmd_json_set(root, "manager_starts", cmd_json_count(stat->manager_starts));
    cmd_json_set(root, "foreign_copies", cmd_json_count(stat->foreign_copies));
    cmd_json_set(root, "foreign_copied_bytes", cmd_json_count(stat->foreign_copied_bytes));
    cmd_json_set(root, "seats", seats);
    cmd_json_set(root, "objects", objects);
    cmd_json_set(root, "devices", devices_json(devices));
    if (status != 0) {
        json_decref(root);
        return cmd_fail("stat", NULL, status);
    }
    return cmd_json_print("stat", root);
}

/* ---- text -------------------------------------------------------------------------------- */

static void print_sums(const tn_domain_stat *stat)
{
    char id[CMD_ID_BYTES], one[TABLE_TEXT_BYTES], other[TABLE_TEXT_BYTES];
    const tn_domain_entry *info = &stat->domain;
    char folder[sizeof info->runtime_folder];
    double part = info->quota_bytes == 0
                      ? 0
                      : 100 * (double)info->committed_bytes / (double)info->quota_bytes;

    cmd_hex_id(info, id);
    memcpy(folder, info->runtime_folder, sizeof folder);
    tni_text_clean(folder);
    printf("domain       %s\n", info->name[0] != '\0' ? info->name : "(anonymous)");
    printf("id           %s\n", id);
    printf("age          %s, made by pid %d\n", table_age(one, info->age_ns),
           info->creator_pid);
    if (stat->manager_pid != 0 && info->runtime_folder[0] != '\0')
        printf("manager      tenond, pid %d, in %s\n", stat->manager_pid, folder);
    else if (stat->manager_pid != 0)
        printf("manager      tenond, pid %d\n", stat->manager_pid);
    else
        printf("manager      none\n");
    printf("deaths       %" PRIu64 " %s ended without leaving, tenond started %" PRIu64 " %s\n",
           stat->deaths, stat->deaths == 1 ? "process" : "processes", stat->manager_starts,
           stat->manager_starts == 1 ? "time" : "times");
    if (stat->foreign_copies != 0)
        printf("copies       %" PRIu64
               " of memory on devices that cannot be shared where it is, "
               "%s\n",
               stat->foreign_copies, table_bytes(one, stat->foreign_copied_bytes));
    printf("\nmemory\n");
    printf("  committed  %s of %s (%.0f %%)\n", table_bytes(one, info->committed_bytes),
           table_bytes(other, info->quota_bytes), part);
    printf("  live       %s in %" PRIu64 " blocks\n", table_bytes(one, stat->live_bytes),
           stat->blocks_live);
    printf("  free       %s, kept warm up to %s\n", table_bytes(one, stat->free_bytes),
           table_bytes(other, stat->watermark_bytes));
    printf("  outside    %s in %" PRIu64 " %s outside of the arena\n",
           table_bytes(one, stat->outside_bytes), stat->outside_count,
           stat->outside_count == 1 ? "object" : "objects");
    printf("  huge pages %s obtained, the system's policy is %s\n",
           table_bytes(one, stat->huge_page_bytes),
           stat->huge_pages[0] != '\0' ? stat->huge_pages : "not known");
    printf("  control    %s\n", table_bytes(one, stat->control_bytes));
    printf("\ntables\n");
    printf("  seats      %u of %u\n", info->seats_used, info->seats);
    printf("  blocks     %" PRIu64 ", at most %" PRIu64 " of one size class\n",
           stat->blocks_live, stat->blocks_limit);
    printf("  objects    %u of %u\n", stat->objects_used, stat->objects);
    printf("  tickets    %u of %u\n", stat->tickets_used, stat->tickets);
}

static void print_device(const tn_device_entry *device)
{
    char one[TABLE_TEXT_BYTES], other[TABLE_TEXT_BYTES], quota[TABLE_TEXT_BYTES];
    char holders[DEVICES_HOLDERS_BYTES];
    bool is_limited = device->quota_bytes != UINT64_MAX;
    printf("  %s: %s in %" PRIu64 " %s, of %s taken in %u %s%s%s\n", device->uuid,
           table_bytes(one, device->live_bytes), device->tensors,
           device->tensors == 1 ? "tensor" : "tensors", table_bytes(other, device->bytes),
           device->objects, device->objects == 1 ? "allocation" : "allocations",
           is_limited ? ", at most " : "",
           is_limited ? table_bytes(quota, device->quota_bytes) : "");
    if (device->tensors > 0)
        printf("    held by %s\n", devices_holders(holders, device));
}

/* A domain without memory of devices has no such part. */
static void print_devices(const struct devices *devices)
{
    if (devices->count > 0)
        printf("\ndevices\n");
    for (size_t i = 0; i < devices->count; i++)
        print_device(&devices->at[i]);
}

struct seats {
    struct table *table;
    bool has_devices;
};

static int add_seat(const tn_seat_entry *seat, void *context)
{
    const struct seats *seats = context;
    struct table *table = seats->table;
    char text[TABLE_TEXT_BYTES];

    table_cell(table, "%u", seat->seat);
    table_cell(table, "%d", seat->pid);
    table_cell(table, "%s", seat->state);
    table_cell(table, "%s", table_age(text, seat->age_ns));
    table_cell(table, "%" PRIu64, seat->blocks_held);
    table_cell(table, "%s", table_bytes(text, seat->bytes_held));
    if (seats->has_devices)
        table_cell(table, "%s", table_bytes(text, seat->device_bytes_held));
    table_cell(table, "%s%s", seat->command, seat->is_manager ? " (manager)" : "");
    return 0;
}

/* Only a domain with memory of devices has a column for it. */
static struct table *create_seats(bool has_devices)
{
    static const struct table_column columns[] = {
        {"SEAT", true},        {"PID", true},        {"STATE", false},  {"AGE", true},
        {"BLOCKS HELD", true}, {"BYTES HELD", true}, {"COMMAND", false}};
    static const struct table_column with_devices[] = {
        {"SEAT", true},        {"PID", true},        {"STATE", false},     {"AGE", true},
        {"BLOCKS HELD", true}, {"BYTES HELD", true}, {"ON DEVICES", true}, {"COMMAND", false}};
    return has_devices ? table_create(with_devices, sizeof with_devices / sizeof *with_devices)
                       : table_create(columns, sizeof columns / sizeof *columns);
}

static int print_seats(tn_inspector *inspector, bool has_devices)
{
    struct seats seats = {.table = create_seats(has_devices), .has_devices = has_devices};

    if (seats.table == NULL)
        return cmd_no_memory("stat");
    int status = tn_inspect_seats(inspector, add_seat, &seats);
    printf("\n");
    int printed = status == 0 ? table_print(seats.table, 0, stdout) : 0;
    table_destroy(seats.table);
    return status != 0    ? cmd_fail("stat", NULL, status)
           : printed != 0 ? cmd_no_memory("stat")
                          : CMD_FINE;
}

/* The owners of a lock or of an owned semaphore, each as "PID (seat N)". */
static void add_owners(struct table *table, const tn_object_entry *object)
{
    enum { SHOWN = 4 };
    char text[SHOWN * 40] = "-";
    size_t used = 0;
    uint32_t count = object->owner_count;

    for (uint32_t i = 0; i < count && i < SHOWN; i++)
        used +=
            (size_t)snprintf(text + used, sizeof text - used, "%s%d (seat %u)",
                             i > 0 ? ", " : "", object->owners[i].pid, object->owners[i].seat);
    if (count > SHOWN)
        table_cell(table, "%s and %u more", text, count - SHOWN);
    else
        table_cell(table, "%s", text);
}

static int add_object(const tn_object_entry *object, void *context)
{
    struct table *table = context;
    if (strcmp(object->kind, "store") == 0 || strcmp(object->kind, "channel") == 0)
        return 0;
    table_cell(table, "%s", object->kind);
    table_cell(table, "%s", object->name[0] != '\0' ? object->name : "(anonymous)");
    table_cell(table, "%u", object->count);
    table_cell(table, "%u", object->capacity);
    table_cell(table, "%u", object->leased);
    table_cell(table, "%" PRIu64, object->pushed);
    table_cell(table, "%u", object->redeliveries);
    table_cell(table, "%u", object->openers);
    table_cell(table, "%u", object->producers);
    table_cell(table, "%u", object->consumers);
    add_owners(table, object);
    table_cell(table, "%s", object->ended ? "ended" : object->broken ? "broken" : "open");
    return 0;
}

static int add_store(const tn_object_entry *store, void *context)
{
    struct table *table = context;
    char bytes[TABLE_TEXT_BYTES], budget[TABLE_TEXT_BYTES];
    if (strcmp(store->kind, "store") != 0)
        return 0;
    table_cell(table, "%s", store->name[0] != '\0' ? store->name : "(anonymous)");
    table_cell(table, "%u", store->count);
    table_cell(table, "%u", store->capacity);
    table_cell(table, "%s", table_bytes(bytes, store->bytes));
    table_cell(table, "%s",
               store->budget_bytes != 0 ? table_bytes(budget, store->budget_bytes) : "-");
    table_cell(table, "%" PRIu64, store->hits);
    table_cell(table, "%" PRIu64, store->misses);
    table_cell(table, "%" PRIu64, store->evictions);
    table_cell(table, "%u", store->openers);
    return 0;
}

static int add_channel(const tn_object_entry *channel, void *context)
{
    struct table *table = context;
    if (strcmp(channel->kind, "channel") != 0)
        return 0;
    table_cell(table, "%s", channel->name[0] != '\0' ? channel->name : "(anonymous)");
    table_cell(table, "%u", channel->count);
    table_cell(table, "%u", channel->capacity);
    table_cell(table, "%" PRIu64, channel->pushed);
    table_cell(table, "%s", channel->policy);
    table_cell(table, "%u", channel->producers);
    table_cell(table, "%u", channel->subscribers);
    table_cell(table, "%" PRIu64, channel->most_behind);
    table_cell(table, "%d", channel->slowest_pid);
    table_cell(table, "%" PRIu64, channel->dropped);
    table_cell(table, "%" PRIu64, channel->disconnected);
    table_cell(table, "%s", channel->ended ? "ended" : "open");
    return 0;
}

/* Print a table of objects, unless it is empty. */
static int print_table_of(tn_inspector *inspector, struct table *table, tn_object_entry_fn *add)
{
    if (table == NULL)
        return cmd_no_memory("stat");
    int status = tn_inspect_objects(inspector, add, table);
    int printed = 0;
    if (status == 0 && table_rows(table) > 0) {
        printf("\n");
        printed = table_print(table, 0, stdout);
    }
    table_destroy(table);
    return status != 0    ? cmd_fail("stat", NULL, status)
           : printed != 0 ? cmd_no_memory("stat")
                          : CMD_FINE;
}

static int print_objects(tn_inspector *inspector)
{
    static const struct table_column columns[] = {
        {"KIND", false},     {"NAME", false},     {"COUNT", true},        {"CAPACITY", true},
        {"LEASED", true},    {"PUSHED", true},    {"REDELIVERIES", true}, {"OPENERS", true},
        {"PRODUCERS", true}, {"CONSUMERS", true}, {"OWNERS", false},      {"STATE", false}};
    static const struct table_column stores[] = {
        {"STORE", false}, {"KEYS", true},      {"CAPACITY", true},
        {"BYTES", true},  {"BUDGET", true},    {"HITS", true},
        {"MISSES", true}, {"EVICTIONS", true}, {"OPENERS", true}};
    static const struct table_column channels[] = {
        {"CHANNEL", false},    {"MESSAGES", true},     {"CAPACITY", true},
        {"PUBLISHED", true},   {"POLICY", false},      {"PUBLISHERS", true},
        {"SUBSCRIBERS", true}, {"BEHIND", true},       {"SLOWEST PID", true},
        {"DROPPED", true},     {"DISCONNECTED", true}, {"STATE", false}};
    int code = print_table_of(
        inspector, table_create(columns, sizeof columns / sizeof columns[0]), add_object);
    if (code == CMD_FINE)
        code = print_table_of(inspector, table_create(stores, sizeof stores / sizeof stores[0]),
                              add_store);
    if (code == CMD_FINE)
        code = print_table_of(inspector,
                              table_create(channels, sizeof channels / sizeof channels[0]),
                              add_channel);
    return code;
}

static int print_text(tn_inspector *inspector, const tn_domain_stat *stat,
                      const struct devices *devices)
{
    print_sums(stat);
    print_devices(devices);
    int code = print_seats(inspector, devices->count > 0);
    if (code == CMD_FINE && stat->objects_used > 0)
        code = print_objects(inspector);
    return code;
}

static int show(const struct cmd_arguments *arguments, tn_inspector *inspector)
{
    tn_domain_stat stat = {.struct_size = sizeof stat};
    struct devices devices = {0};
    int status = tn_inspect_stat(inspector, &stat);
    if (status == 0)
        status = devices_list(inspector, &devices);
    int code = status != 0          ? cmd_fail("stat", arguments->domain, status)
               : arguments->as_json ? print_json(inspector, &stat, &devices)
                                    : print_text(inspector, &stat, &devices);
    devices_free(&devices);
    return code;
}

int cmd_stat(int argc, char **argv)
{
    struct cmd_arguments arguments = {.takes = CMD_TAKES_A_DOMAIN};
    tn_inspector *inspector;

    if (cmd_parse(argc, argv, "Show memory, tables, seats and objects of one domain.", NULL,
                  &arguments) != CMD_FINE)
        return CMD_USAGE;
    int code = cmd_open("stat", arguments.domain, &inspector);
    if (code != CMD_FINE)
        return code;
    code = show(&arguments, inspector);
    tn_inspector_close(inspector);
    return code;
}
