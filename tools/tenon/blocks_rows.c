/* SPDX-License-Identifier: Apache-2.0 */
/* blocks_rows: collect the blocks of a domain, to print them sorted. */
#include <stdlib.h>
#include <string.h>

#include "blocks.h"

enum { MAX_SEATS = 1024 }; /* of a domain, see tn_domain_options */

/* ---- collecting -------------------------------------------------------------------------- */

/*
 * One block. Its holders are kept as numbers of seats: a million blocks may have many holders,
 * but a domain has few seats.
 */
struct row {
    tn_block_entry info; /* without holders; its texts are owned, or NULL and "" */
    size_t first_seat;   /* in `seats`, info.holder_count of them */
};

struct blocks_rows {
    const struct blocks_arguments *arguments;
    struct row *at; /* [count] */
    size_t count, room;
    uint16_t *seats; /* [seat_count] */
    size_t seat_count, seat_room;
    tn_holder holders[MAX_SEATS]; /* by seat */
};

bool blocks_is_wanted(const struct blocks_arguments *arguments, const tn_block_entry *info)
{
    if (arguments->holder_pid == 0)
        return true;
    for (uint32_t i = 0; i < info->holder_count; i++)
        if (info->holders[i].pid == arguments->holder_pid)
            return true;
    return false;
}

static bool make_room(struct blocks_rows *rows, uint32_t seats)
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

/*
 * Copy the borrowed texts; few blocks have any. After a failure, free_texts() frees what was
 * copied.
 */
static bool own_texts(tn_block_entry *info)
{
    const char *const *borrowed[] = {&info->path, &info->store, &info->key, &info->channel};
    const char *attributes = info->attributes;
    bool is_whole = true;

    for (size_t i = 0; i < sizeof borrowed / sizeof borrowed[0]; i++) {
        const char **text = (const char **)borrowed[i];
        if (*text == NULL)
            continue;
        *text = strdup(*text);
        is_whole = is_whole && *text != NULL;
    }
    info->attributes = attributes[0] != '\0' ? strdup(attributes) : "";
    return is_whole && info->attributes != NULL;
}

static void free_texts(tn_block_entry *info)
{
    free((char *)info->path);
    free((char *)info->store);
    free((char *)info->key);
    free((char *)info->channel);
    if (info->attributes != NULL && info->attributes[0] != '\0')
        free((char *)info->attributes);
}

struct blocks_rows *blocks_rows_create(const struct blocks_arguments *arguments)
{
    struct blocks_rows *rows = calloc(1, sizeof *rows);
    if (rows != NULL)
        rows->arguments = arguments;
    return rows;
}

struct blocks_rows *blocks_rows_destroy(struct blocks_rows *rows)
{
    if (rows == NULL)
        return NULL;
    for (size_t i = 0; i < rows->count; i++)
        free_texts(&rows->at[i].info);
    free(rows->at);
    free(rows->seats);
    free(rows);
    return NULL;
}

int blocks_rows_add(const tn_block_entry *info, void *context)
{
    struct blocks_rows *rows = context;

    if (!blocks_is_wanted(rows->arguments, info))
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
    return 0;
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

static void sort_and_cut(struct blocks_rows *rows)
{
    enum blocks_sort sort = rows->arguments->sort;
    uint64_t limit = rows->arguments->limit;

    if (sort != BLOCKS_BY_NUMBER && rows->count > 0)
        qsort(rows->at, rows->count, sizeof *rows->at,
              sort == BLOCKS_BY_BYTES ? compare_bytes : compare_age);
    while (limit != 0 && rows->count > limit)
        free_texts(&rows->at[--rows->count].info);
}

/* ---- printing ---------------------------------------------------------------------------- */

void blocks_rows_print(struct blocks_rows *rows, struct blocks_output *out)
{
    static tn_holder holders[MAX_SEATS];
    bool goes_on = true;

    sort_and_cut(rows);
    for (size_t i = 0; i < rows->count && goes_on; i++) {
        tn_block_entry info = rows->at[i].info;
        for (uint32_t h = 0; h < info.holder_count; h++)
            holders[h] = rows->holders[rows->seats[rows->at[i].first_seat + h]];
        info.holders = holders;
        goes_on = blocks_output_add(out, &info);
    }
}
