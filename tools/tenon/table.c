/* SPDX-License-Identifier: Apache-2.0 */
#include "table.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "text.h"

enum {
    GAP = 2,
    LAST_WIDTH = 16 /* of the last column, at least: table_fit() */
};

/* The texts of all cells lie in one buffer, each with a NUL at its end. */
struct table {
    const struct table_column *columns;
    size_t column_count;
    size_t cell_count;
    size_t width[TABLE_COLUMNS];
    bool is_hidden[TABLE_COLUMNS];
    char *text;
    size_t used, room;
    bool is_full;   /* there was no memory for a cell */
    bool is_headed; /* table_flush() has printed the heading */
};

struct table *table_create(const struct table_column *columns, size_t count)
{
    struct table *table = calloc(1, sizeof *table);
    if (table == NULL || count > TABLE_COLUMNS)
        return table_destroy(table);
    table->columns = columns;
    table->column_count = count;
    for (size_t c = 0; c < count; c++)
        table->width[c] = strlen(columns[c].heading);
    return table;
}

struct table *table_destroy(struct table *table)
{
    if (table != NULL)
        free(table->text);
    free(table);
    return NULL;
}

static bool make_room(struct table *table, size_t bytes)
{
    if (table->room - table->used >= bytes)
        return true;
    size_t room = 2 * table->room + bytes + 1024;
    char *grown = realloc(table->text, room);
    if (grown == NULL)
        return false;
    table->text = grown;
    table->room = room;
    return true;
}

size_t table_rows(const struct table *table) { return table->cell_count / table->column_count; }

void table_cell(struct table *table, const char *format, ...)
{
    va_list arguments, again;
    va_start(arguments, format);
    va_copy(again, arguments);
    int length = vsnprintf(NULL, 0, format, arguments);
    if (table->is_full || length < 0 || !make_room(table, (size_t)length + 1)) {
        table->is_full = true;
    } else {
        vsnprintf(table->text + table->used, (size_t)length + 1, format, again);
        tni_text_clean(table->text + table->used);
        size_t column = table->cell_count++ % table->column_count;
        if (table->width[column] < (size_t)length)
            table->width[column] = (size_t)length;
        table->used += (size_t)length + 1;
    }
    va_end(again);
    va_end(arguments);
}

static size_t shown_width(const struct table *table)
{
    size_t last = table->column_count - 1;
    size_t sum = table->width[last] < LAST_WIDTH ? table->width[last] : LAST_WIDTH;
    for (size_t c = 0; c < last; c++)
        sum += table->is_hidden[c] ? 0 : table->width[c] + GAP;
    return sum;
}

void table_fit(struct table *table, size_t width, const char *order)
{
    for (; *order != '\0' && shown_width(table) > width; order++)
        table->is_hidden[(size_t)(*order - '0')] = true;
}

static void print_cell(const struct table *table, size_t column, const char *text, FILE *file)
{
    if (table->is_hidden[column])
        return;
    int width = (int)table->width[column];
    bool is_last = column + 1 == table->column_count;

    if (table->columns[column].is_right)
        fprintf(file, "%*s", width, text);
    else
        fprintf(file, "%-*s", is_last ? 0 : width, text); /* no blanks at the end of a line */
    fprintf(file, "%*s", is_last ? 0 : GAP, "");
}

static void print_heading(const struct table *table, int indent, FILE *file)
{
    fprintf(file, "%*s", indent, "");
    for (size_t c = 0; c < table->column_count; c++)
        print_cell(table, c, table->columns[c].heading, file);
    fputc('\n', file);
}

static void print_rows(const struct table *table, int indent, FILE *file)
{
    const char *text = table->text;

    for (size_t row = 0; row < table->cell_count / table->column_count; row++) {
        fprintf(file, "%*s", indent, "");
        for (size_t c = 0; c < table->column_count; c++) {
            print_cell(table, c, text, file);
            text += strlen(text) + 1;
        }
        fputc('\n', file);
    }
}

int table_print(const struct table *table, int indent, FILE *file)
{
    print_heading(table, indent, file);
    print_rows(table, indent, file);
    return table->is_full ? -1 : 0;
}

int table_flush(struct table *table, FILE *file)
{
    if (!table->is_headed)
        print_heading(table, 0, file);
    table->is_headed = true;
    print_rows(table, 0, file);
    table->used = table->cell_count = 0;
    return table->is_full ? -1 : 0;
}

/* ---- numbers ----------------------------------------------------------------------------- */

const char *table_bytes(char text[TABLE_TEXT_BYTES], uint64_t bytes)
{
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double value = (double)bytes;
    size_t unit = 0;

    if (bytes < 1024) {
        snprintf(text, TABLE_TEXT_BYTES, "%" PRIu64 " B", bytes);
        return text;
    }
    /* printf() would round 1023.95 to 1024.0 */
    value /= 1024;
    while (value >= 1023.95) {
        value /= 1024;
        unit++;
    }
    snprintf(text, TABLE_TEXT_BYTES, "%.1f %s", value, units[unit]);
    return text;
}

const char *table_age(char text[TABLE_TEXT_BYTES], uint64_t age_ns)
{
    uint64_t ms = age_ns / 1000000, s = ms / 1000, m = s / 60, h = m / 60, d = h / 24;

    if (ms < 1000)
        snprintf(text, TABLE_TEXT_BYTES, "%" PRIu64 " ms", ms);
    else if (s < 60)
        snprintf(text, TABLE_TEXT_BYTES, "%" PRIu64 ".%" PRIu64 " s", s, ms % 1000 / 100);
    else if (m < 60)
        snprintf(text, TABLE_TEXT_BYTES, "%" PRIu64 "m%02" PRIu64 "s", m, s % 60);
    else if (h < 24)
        snprintf(text, TABLE_TEXT_BYTES, "%" PRIu64 "h%02" PRIu64 "m", h, m % 60);
    else
        snprintf(text, TABLE_TEXT_BYTES, "%" PRIu64 "d%02" PRIu64 "h", d, h % 24);
    return text;
}

const char *table_tensor(char text[TABLE_TENSOR_BYTES], tn_dtype dtype, int32_t ndim,
                         const int64_t shape[8])
{
    char name[TABLE_TEXT_BYTES];
    size_t used;

    if (tn_dtype_name(dtype, name, sizeof name) != 0)
        snprintf(name, sizeof name, "type %u:%u", TN_DTYPE_CODE(dtype), TN_DTYPE_BITS(dtype));
    /* TABLE_TENSOR_BYTES has room for a name and 8 numbers of 20 digits. */
    used = (size_t)snprintf(text, TABLE_TENSOR_BYTES, "%s[", name);
    for (int32_t i = 0; i < ndim && i < 8; i++)
        used += (size_t)snprintf(text + used, TABLE_TENSOR_BYTES - used, "%s%" PRId64,
                                 i > 0 ? ", " : "", shape[i]);
    if (ndim > 8)
        used += (size_t)snprintf(text + used, TABLE_TENSOR_BYTES - used, ", %d more", ndim - 8);
    snprintf(text + used, TABLE_TENSOR_BYTES - used, "]");
    return text;
}
