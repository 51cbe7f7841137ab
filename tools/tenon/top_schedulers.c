/* SPDX-License-Identifier: Apache-2.0 */
/* top_schedulers: the schedulers of a sample, as a table and as JSON. */
#include "top_schedulers.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { LIST_BYTES = 512 }; /* of a list of resources, which is cut */

/* ---- text -------------------------------------------------------------------------------- */

static void add_to_list(char *text, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void add_to_list(char *text, const char *format, ...)
{
    size_t used = strlen(text);
    va_list arguments;
    if (used > 0 && used + 2 < LIST_BYTES)
        used += (size_t)snprintf(text + used, LIST_BYTES - used, ", ");
    va_start(arguments, format);
    vsnprintf(text + used, LIST_BYTES - used, format, arguments);
    va_end(arguments);
}

/* "CPU 3/4, GPU 2/2, cards 1.5 GiB/16.0 GiB": in use, and in all. THREADS is left out while
   none is in use, and the memory of cards if there is none. */
static void list_used(const tn_sched_info *info, char text[LIST_BYTES])
{
    text[0] = '\0';
    for (uint32_t i = 0; i < info->resource_count; i++) {
        const tn_resource_info *its = &info->resources[i];
        double used = its->total - its->free;
        if (used != 0 || strcmp(its->name, "THREADS") != 0)
            add_to_list(text, "%s %.10g/%.10g", its->name, used, its->total);
    }
    if (info->card_capacity > 0) {
        char used[TABLE_TEXT_BYTES], total[TABLE_TEXT_BYTES];
        add_to_list(text, "cards %s/%s", table_bytes(used, info->card_bytes),
                    table_bytes(total, info->card_capacity));
    }
}

/* "GPU 10, CPU 2": ready tasks that lack the resource. */
static const char *list_waiting(const tn_sched_info *info, char text[LIST_BYTES])
{
    text[0] = '\0';
    for (uint32_t i = 0; i < info->resource_count; i++)
        if (info->resources[i].waiting > 0)
            add_to_list(text, "%s %u", info->resources[i].name, info->resources[i].waiting);
    return text[0] != '\0' ? text : "-";
}

static void add_row(struct table *table, double per_second, const tn_scheduler_entry *scheduler)
{
    char list[LIST_BYTES], age[TABLE_TEXT_BYTES];
    const tn_sched_info *info = &scheduler->info;
    table_cell(table, "%d", scheduler->pid);
    if (per_second < 0)
        table_cell(table, "-");
    else
        table_cell(table, "%.0f", per_second);
    table_cell(table, "%" PRIu64, info->tasks);
    table_cell(table, "%u", info->ready);
    table_cell(table, "%u", info->running);
    table_cell(table, "%s", table_age(age, scheduler->changed_ns));
    table_cell(table, "%s", list_waiting(info, list));
    list_used(info, list);
    table_cell(table, "%s", list);
    table_cell(table, "%s", scheduler->name[0] != '\0' ? scheduler->name : "(no name)");
}

struct table *top_schedulers_table(const struct sample *before, const struct sample *sample)
{
    static const struct table_column columns[] = {
        {"PID", true},          {"TASKS/S", true}, {"TASKS", true},
        {"READY", true},        {"RUNNING", true}, {"CHANGED", true},
        {"WAITING FOR", false}, {"IN USE", false}, {"SCHEDULER", false}};
    struct table *table = table_create(columns, sizeof columns / sizeof columns[0]);
    for (size_t i = 0; i < sample->scheduler_count && table != NULL; i++)
        add_row(table, samples_task_rate(before, sample, &sample->schedulers[i]),
                &sample->schedulers[i]);
    return table;
}

/* ---- JSON -------------------------------------------------------------------------------- */

static json_t *json_resource(const tn_resource_info *info)
{
    json_t *object = json_object();
    cmd_json_set(object, "name", cmd_json_text(info->name));
    cmd_json_set(object, "total", json_real(info->total));
    cmd_json_set(object, "free", json_real(info->free));
    cmd_json_set(object, "busy_ns", json_real(info->busy_ns));
    cmd_json_set(object, "waiting", cmd_json_count(info->waiting));
    return object;
}

static json_t *json_scheduler(double per_second, const tn_scheduler_entry *scheduler)
{
    const tn_sched_info *info = &scheduler->info;
    json_t *object = json_object(), *resources = json_array();
    cmd_json_set(object, "seat", cmd_json_count(scheduler->seat));
    cmd_json_set(object, "pid", json_integer(scheduler->pid));
    cmd_json_set(object, "name", cmd_json_text(scheduler->name));
    cmd_json_set(object, "changed_ns", cmd_json_count(scheduler->changed_ns));
    cmd_json_set(object, "tasks", cmd_json_count(info->tasks));
    cmd_json_set(object, "ended", cmd_json_count(info->ended));
    cmd_json_set(object, "tasks_per_s", per_second < 0 ? json_null() : json_real(per_second));
    cmd_json_set(object, "ready", cmd_json_count(info->ready));
    cmd_json_set(object, "running", cmd_json_count(info->running));
    cmd_json_set(object, "threads", cmd_json_count(info->threads));
    cmd_json_set(object, "moved_bytes", cmd_json_count(info->moved_bytes));
    cmd_json_set(object, "evicted_bytes", cmd_json_count(info->evicted_bytes));
    cmd_json_set(object, "card_bytes", cmd_json_count(info->card_bytes));
    cmd_json_set(object, "card_capacity", cmd_json_count(info->card_capacity));
    for (uint32_t i = 0; i < info->resource_count; i++)
        json_array_append_new(resources, json_resource(&info->resources[i]));
    cmd_json_set(object, "resources", resources);
    return object;
}

json_t *top_schedulers_json(const struct sample *before, const struct sample *sample)
{
    json_t *array = json_array();
    for (size_t i = 0; i < sample->scheduler_count; i++)
        json_array_append_new(
            array, json_scheduler(samples_task_rate(before, sample, &sample->schedulers[i]),
                                  &sample->schedulers[i]));
    return array;
}
