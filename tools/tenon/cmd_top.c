/* SPDX-License-Identifier: Apache-2.0 */
/* tenon top: how much each process holds, also on devices, and what queues and schedulers do.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "samples.h"
#include "screen.h"
#include "table.h"
#include "top_schedulers.h"

struct arguments {
    struct cmd_arguments common;
    bool once;
    double delay_s;
};

/* ---- options ----------------------------------------------------------------------------- */

static const struct argp_option options[] = {
    CMD_COMMON_OPTIONS,
    {"delay", 'd', "SECONDS", 0, "Time between two frames, from 0.1 (default 1)", 0},
    {"once", '1', NULL, 0, "Print one frame, measured over one delay, and end", 0},
    {0}};

static error_t parse(int key, char *argument, struct argp_state *state)
{
    struct arguments *arguments = state->input;
    char *end;

    switch (key) {
    case '1':
        arguments->once = true;
        return 0;
    case 'd':
        arguments->delay_s = strtod(argument, &end);
        if (end == argument || *end != '\0' ||
            !(arguments->delay_s >= 0.1 && arguments->delay_s <= 86400))
            argp_error(state, "--delay: '%s' is not a number of seconds from 0.1 to 86400",
                       argument);
        return 0;
    default:
        return cmd_parse_key(key, argument, state);
    }
}

/* ---- text -------------------------------------------------------------------------------- */

static bool is_queue(const tn_object_entry *object)
{
    return strcmp(object->kind, "queue") == 0;
}

/* A part of the first line, if it fits there. */
struct line {
    FILE *file;
    size_t used, width;
};

static void add_part(struct line *line, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void add_part(struct line *line, const char *format, ...)
{
    char text[3 * TABLE_TEXT_BYTES];
    va_list arguments;

    va_start(arguments, format);
    int length = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (length < 0 || line->used + (size_t)length > line->width)
        return;
    fputs(text, line->file);
    line->used += (size_t)length;
}

static void print_head(FILE *file, const struct sample *sample, size_t width)
{
    char id[CMD_ID_BYTES], one[TABLE_TEXT_BYTES], other[TABLE_TEXT_BYTES];
    const tn_domain_stat *stat = &sample->stat;
    const char *label = cmd_domain_label(&stat->domain, id);
    struct line line = {.file = file, .used = strlen(label), .width = width};

    fputs(label, file);
    add_part(&line, "  up %s", table_age(one, stat->domain.age_ns));
    add_part(&line, "  seats %u", stat->domain.seats_used);
    add_part(&line, "  deaths %" PRIu64, stat->deaths);
    add_part(&line, "  committed %s of %s", table_bytes(one, stat->domain.committed_bytes),
             table_bytes(other, stat->domain.quota_bytes));
    add_part(&line, "  live %s", table_bytes(one, stat->live_bytes));
    add_part(&line, "  free %s", table_bytes(one, stat->free_bytes));
    add_part(&line, "  blocks %" PRIu64, stat->blocks_live);
    fputc('\n', file);
}

/* Print a table with an indent. @param order  as of table_fit() */
static int print_fitting(FILE *file, struct table *table, size_t width, const char *order)
{
    enum { INDENT = 2 };
    table_fit(table, width < INDENT ? 0 : width - INDENT, order);
    return table_print(table, INDENT, file);
}

/* Only a domain with memory of devices has a column for it. */
static struct table *create_seats(bool has_devices)
{
    static const struct table_column columns[] = {{"PID", true},         {"BYTES HELD", true},
                                                  {"BLOCKS HELD", true}, {"STATE", false},
                                                  {"AGE", true},         {"COMMAND", false}};
    static const struct table_column with_devices[] = {
        {"PID", true}, {"BYTES HELD", true}, {"BLOCKS HELD", true}, {"STATE", false},
        {"AGE", true}, {"ON DEVICES", true}, {"COMMAND", false}};
    return has_devices ? table_create(with_devices, sizeof with_devices / sizeof *with_devices)
                       : table_create(columns, sizeof columns / sizeof *columns);
}

static int print_seats(FILE *file, const struct sample *sample, size_t width)
{
    bool has_devices = sample->devices.count > 0;
    struct table *table = create_seats(has_devices);
    char text[TABLE_TEXT_BYTES];

    if (table == NULL)
        return -1;
    for (size_t i = 0; i < sample->seat_count; i++) {
        const tn_seat_entry *seat = &sample->seats[i];
        table_cell(table, "%d", seat->pid);
        table_cell(table, "%s", table_bytes(text, seat->bytes_held));
        table_cell(table, "%" PRIu64, seat->blocks_held);
        table_cell(table, "%s", seat->state);
        table_cell(table, "%s", table_age(text, seat->age_ns));
        if (has_devices)
            table_cell(table, "%s", table_bytes(text, seat->device_bytes_held));
        table_cell(table, "%s%s", seat->command, seat->is_manager ? " (manager)" : "");
    }
    /* blocks, age, state, bytes, bytes on devices */
    int status = print_fitting(file, table, width, has_devices ? "24315" : "2431");
    table_destroy(table);
    return status;
}

static int print_queues(FILE *file, const struct sample *before, const struct sample *sample,
                        size_t width)
{
    static const struct table_column columns[] = {
        {"PUSHES/S", true},  {"COUNT", true},     {"LEASED", true}, {"REDELIVERIES", true},
        {"PRODUCERS", true}, {"CONSUMERS", true}, {"QUEUE", false}};
    struct table *table = table_create(columns, sizeof columns / sizeof columns[0]);
    size_t shown = 0;

    if (table == NULL)
        return -1;
    for (size_t i = 0; i < sample->object_count; i++) {
        const tn_object_entry *queue = &sample->objects[i];
        if (!is_queue(queue))
            continue;
        double per_second = samples_rate(before, sample, queue);
        shown++;
        if (per_second < 0)
            table_cell(table, "-");
        else
            table_cell(table, "%.0f", per_second);
        table_cell(table, "%u/%u", queue->count, queue->capacity);
        table_cell(table, "%u", queue->leased);
        table_cell(table, "%u", queue->redeliveries);
        table_cell(table, "%u", queue->producers);
        table_cell(table, "%u", queue->consumers);
        table_cell(table, "%s%s", queue->name[0] != '\0' ? queue->name : "(anonymous)",
                   queue->ended ? " (ended)" : "");
    }
    /* producers, consumers, redeliveries, leased, pushes, count */
    int status = shown > 0 ? print_fitting(file, table, width, "453201") : 0;
    table_destroy(table);
    return status;
}

static int print_schedulers(FILE *file, const struct sample *before,
                            const struct sample *sample, size_t width)
{
    if (sample->scheduler_count == 0)
        return 0;
    struct table *table = top_schedulers_table(before, sample);
    int status = table == NULL ? -1 : print_fitting(file, table, width, TOP_SCHEDULERS_ORDER);
    table_destroy(table);
    return status;
}

static int print_devices(FILE *file, const struct sample *sample, size_t width)
{
    if (sample->devices.count == 0)
        return 0;
    struct table *table = devices_table(false);
    if (table == NULL)
        return -1;
    devices_add_rows(table, NULL, &sample->devices);
    int status = print_fitting(file, table, width, DEVICES_ORDER);
    table_destroy(table);
    return status;
}

/* @return the frame, owned by the caller; NULL: no memory */
static char *render(const struct samples *before, const struct samples *samples, size_t width)
{
    char *text = NULL;
    size_t size;
    int status = 0;
    FILE *file = open_memstream(&text, &size);

    if (file == NULL)
        return NULL;
    if (samples->count == 0)
        fprintf(file, "no domains\n");
    for (size_t i = 0; i < samples->count && status == 0; i++) {
        const struct sample *sample = &samples->at[i];
        if (i > 0)
            fputc('\n', file);
        print_head(file, sample, width);
        const struct sample *earlier = samples_find(before, sample);
        status = print_seats(file, sample, width);
        if (status == 0)
            status = print_devices(file, sample, width);
        if (status == 0)
            status = print_queues(file, earlier, sample, width);
        if (status == 0)
            status = print_schedulers(file, earlier, sample, width);
    }
    if (fclose(file) != 0 || status != 0) {
        free(text);
        return NULL;
    }
    return text;
}

/* ---- JSON -------------------------------------------------------------------------------- */

static json_t *json_sample(const struct sample *before, const struct sample *sample)
{
    json_t *object = json_object(), *seats = json_array(), *queues = json_array();

    cmd_json_set(object, "domain", cmd_json_domain(&sample->stat.domain));
    cmd_json_set(object, "live_bytes", cmd_json_count(sample->stat.live_bytes));
    cmd_json_set(object, "free_bytes", cmd_json_count(sample->stat.free_bytes));
    cmd_json_set(object, "blocks_live", cmd_json_count(sample->stat.blocks_live));
    cmd_json_set(object, "deaths", cmd_json_count(sample->stat.deaths));
    for (size_t i = 0; i < sample->seat_count; i++)
        json_array_append_new(seats, cmd_json_seat(&sample->seats[i]));
    for (size_t i = 0; i < sample->object_count; i++) {
        if (!is_queue(&sample->objects[i]))
            continue;
        double per_second = samples_rate(before, sample, &sample->objects[i]);
        json_t *queue = cmd_json_object(&sample->objects[i]);
        cmd_json_set(queue, "pushes_per_s",
                     per_second < 0 ? json_null() : json_real(per_second));
        json_array_append_new(queues, queue);
    }
    cmd_json_set(object, "seats", seats);
    cmd_json_set(object, "devices", devices_json(&sample->devices));
    cmd_json_set(object, "queues", queues);
    cmd_json_set(object, "schedulers", top_schedulers_json(before, sample));
    return object;
}

/* One frame, one line. @return an exit code */
static int print_json(const struct samples *before, const struct samples *samples)
{
    json_t *frame = json_array();
    for (size_t i = 0; i < samples->count; i++)
        json_array_append_new(
            frame, json_sample(samples_find(before, &samples->at[i]), &samples->at[i]));
    int status = frame == NULL ? -1 : json_dumpf(frame, stdout, JSON_COMPACT);
    json_decref(frame);
    putchar('\n');
    if (fflush(stdout) != 0 || ferror(stdout))
        return CMD_TROUBLE;
    return status == 0 ? CMD_FINE : cmd_no_memory("top");
}

/* ---- frames ------------------------------------------------------------------------------ */

static int show(const struct arguments *arguments, const struct samples *before,
                const struct samples *samples)
{
    if (arguments->common.as_json)
        return print_json(before, samples);
    char *text = render(before, samples, arguments->once ? SIZE_MAX : screen_columns());
    if (text == NULL)
        return cmd_no_memory("top");
    if (arguments->once)
        fputs(text, stdout);
    else
        screen_show(text);
    free(text);
    return ferror(stdout) ? CMD_TROUBLE : CMD_FINE; /* main() reports a failed write */
}

/*
 * @param ret_status  of the last samples; the caller prints an error after it closed the screen
 */
static int run_frames(const struct arguments *arguments, int *ret_status)
{
    struct samples before = {0}, samples = {0};
    uint64_t delay_ns = (uint64_t)(arguments->delay_s * 1e9);
    bool is_first = true, is_over = false;
    int code = CMD_FINE, status = 0;

    while (code == CMD_FINE && !is_over) {
        if ((status = samples_take(arguments->common.domain, &samples)) != 0)
            break;
        /* With --once, the first samples only serve to compute rates. */
        if (!is_first || !arguments->once)
            code = show(arguments, &before, &samples);
        is_over = (arguments->once && !is_first) || code != CMD_FINE || screen_wait(delay_ns);
        is_first = false;
        samples_free(&before);
        before = samples;
        samples = (struct samples){0};
    }
    samples_free(&before);
    samples_free(&samples);
    *ret_status = status;
    return code;
}

int cmd_top(int argc, char **argv)
{
    const struct argp argp = {.options = options, .parser = parse};
    struct arguments arguments = {.common.takes = CMD_TAKES_ONE_OR_ALL, .delay_s = 1};
    int status;

    if (cmd_parse(
            argc, argv,
            "Show how much each process holds, and what queues and schedulers do, again and "
            "again. q or Ctrl-C ends it.",
            &argp, &arguments.common) != CMD_FINE)
        return CMD_USAGE;
    bool has_screen = !arguments.once && !arguments.common.as_json;
    if (has_screen)
        screen_open();
    int code = run_frames(&arguments, &status);
    if (has_screen)
        screen_close();
    return status != 0 ? cmd_fail("top", arguments.common.domain, status) : code;
}
