/* SPDX-License-Identifier: Apache-2.0 */
/*
 * geometry: see geometry.h.
 *
 * Nouns: section, size class, span.
 * I1  Equal numbers give an equal geometry, in every process and every build of one layout
 *     version.
 * I2  Sections do not overlap, and each starts on a page. Each class starts on 2 MiB.
 * I3  A class's base is a multiple of 64, so no 64-bit word of hints or of a row of holds has
 *     bits of two classes.
 * Callers: segment, to create and to attach. A death leaves nothing: all memory is private.
 */
#include "layout/layout.h"

enum { HUGE_BYTES = 2 << 20, SPAN_BYTES = 64 << 10, CACHE_BYTES = 1 << 20, CACHE_BLOCKS = 64 };
#define ADDRESS_SPACE_BYTES (UINT64_C(1) << 46)
#define LARGEST_BLOCK_BYTES (UINT64_C(1) << 43)

/*
 * Each size from 128 to 4096 is at most 50 % larger than the size before. Larger sizes are
 * powers of two: a block that is a span by itself commits only the bytes that were asked for.
 */
static const uint32_t small_sizes[] = {64,  128,  192,  256,  384,  512,
                                       768, 1024, 1536, 2048, 3072, 4096};
static const uint32_t message_sizes[TNI_MESSAGE_CLASSES] = {1 << 10, 8 << 10, 64 << 10,
                                                            512 << 10, 4 << 20};

static int add_class(struct tni_geometry *g, uint64_t size_bytes, uint32_t limit)
{
    struct tni_class_geometry *c = &g->classes[g->class_count];
    /* A payload block above a page is more than half full: the quota allows no more blocks. */
    uint64_t most = 2 * g->quota_limit_bytes / size_bytes + 1;
    uint64_t capacity = TNI_MIN(most, limit);

    c->size_bytes = size_bytes;
    c->capacity = (uint32_t)capacity;
    c->base = g->total_blocks;
    /* A span is a multiple of every page size, so no page belongs to two spans. */
    uint64_t power_part = size_bytes & -size_bytes;
    c->span = power_part >= SPAN_BYTES ? 1 : (uint32_t)(SPAN_BYTES / power_part);
    if (c->span > 1)
        g->span_pages[g->class_count] =
            UINT64_MAX >> (64 - c->span * size_bytes / g->page_bytes);
    c->cached = (uint32_t)TNI_MIN(CACHE_BYTES / size_bytes, (uint64_t)CACHE_BLOCKS);
    if (c->cached == 1)
        c->cached = 0;
    c->arena_off = tni_align_up(g->arena_bytes, HUGE_BYTES);
    uint64_t bytes = tni_align_up(capacity, c->span) * size_bytes;
    if (bytes > ADDRESS_SPACE_BYTES - c->arena_off)
        return tni_fail(TN_ERR_NO_MEMORY,
                        "a quota of %llu bytes needs more address space than there is",
                        (unsigned long long)g->quota_limit_bytes);
    g->arena_bytes = c->arena_off + bytes;
    g->total_blocks += (uint32_t)tni_align_up(capacity, 64);
    g->class_count++;
    return 0;
}

/*
 * Sizes of blocks of devices: powers of two, and from 1 MiB on one more between two of them, so
 * that a large tensor wastes a third at most. A slab has so many blocks that a trim, which
 * takes all of them, is short.
 */
static void add_device_class(struct tni_geometry *g, uint64_t size_bytes)
{
    enum { MOST_BLOCKS = 16384, MOST_SLABS = 4096 };
    struct tni_class_geometry *c = &g->classes[g->class_count++];
    uint32_t usable = (uint32_t)TNI_MIN(TNI_SLAB_BYTES / size_bytes, (uint64_t)MOST_BLOCKS);
    usable = TNI_MIN(usable, g->blocks);
    uint32_t span = UINT32_C(1) << tni_log2_up(usable);
    uint32_t slabs = TNI_MIN(TNI_MAX(g->blocks / span, 1u), (uint32_t)MOST_SLABS);
    *c = (struct tni_class_geometry){.size_bytes = size_bytes,
                                     .arena_off = UINT64_MAX, /* none */
                                     .capacity = slabs * span,
                                     .base = g->total_blocks,
                                     .span = span,
                                     .usable = usable};
    g->total_blocks += (uint32_t)tni_align_up(c->capacity, 64);
}

static void add_device_classes(struct tni_geometry *g)
{
    enum { FROM_BYTES = 512, FINE_BYTES = 1 << 20, MOST_BYTES = TNI_SLAB_BYTES / 2 };
    g->host_classes = g->class_count;
    for (uint64_t size = FROM_BYTES; size <= MOST_BYTES; size *= 2) {
        add_device_class(g, size);
        if (size >= FINE_BYTES && size < MOST_BYTES)
            add_device_class(g, size + size / 2);
    }
}

uint32_t tni_geometry_device_class(const struct tni_geometry *g, uint64_t bytes)
{
    for (uint32_t c = g->host_classes; c < g->class_count; c++)
        if (bytes <= g->classes[c].size_bytes)
            return c;
    return 0;
}

static uint64_t place(uint64_t *offset, uint64_t size_bytes, uint64_t page_bytes)
{
    uint64_t here = *offset;
    *offset = tni_align_up(here + size_bytes, page_bytes);
    return here;
}

/* Bytes of a row of `bits` bits with its head, in whole cache lines. */
static uint64_t bits_bytes(uint32_t bits)
{
    return TNI_ROW_HEAD * sizeof(uint64_t) + tni_align_up(bits, 512) / 8;
}

static int check_number(const char *what, uint32_t number, uint32_t most)
{
    if (number >= 1 && number <= most)
        return 0;
    return tni_fail(TN_ERR_INVALID, "%s: %u is not in 1 to %u", what, number, most);
}

static int check_limits(const struct tni_limits *l, uint32_t page_bytes)
{
    int status;
    if ((status = check_number("seats", l->seats, TNI_MAX_SEATS)) != 0 ||
        (status = check_number("blocks", l->blocks, TNI_MAX_BLOCKS)) != 0 ||
        (status = check_number("objects", l->objects, TNI_MAX_OBJECTS)) != 0 ||
        (status = check_number("tickets", l->tickets, TNI_MAX_TICKETS)) != 0)
        return status;
    if (page_bytes < 4096 || page_bytes > SPAN_BYTES || (page_bytes & (page_bytes - 1)) != 0)
        return tni_fail(TN_ERR_INVALID,
                        "a page of %u bytes is not a power of two in 4096 to %d", page_bytes,
                        SPAN_BYTES);
    if (l->quota_bytes < TNI_MIN_QUOTA_BYTES || l->quota_bytes > ADDRESS_SPACE_BYTES / 52)
        return tni_fail(TN_ERR_INVALID, "quota: %llu bytes is not in 1 MiB to 1.23 TiB",
                        (unsigned long long)l->quota_bytes);
    return 0;
}

static int add_classes(struct tni_geometry *g)
{
    int status;
    for (size_t i = 0; i < TNI_COUNT(message_sizes); i++)
        if ((status = add_class(g, message_sizes[i], g->blocks)) != 0)
            return status;
    if ((status = add_class(g, TNI_BACKING_BLOCK_BYTES,
                            TNI_MIN(g->blocks, (uint32_t)TNI_MAX_BACKINGS))) != 0)
        return status;
    for (size_t i = 0; i < TNI_COUNT(small_sizes); i++)
        if ((status = add_class(g, small_sizes[i], g->blocks)) != 0)
            return status;
    for (uint64_t size = 8192; size / 2 < g->quota_limit_bytes && size <= LARGEST_BLOCK_BYTES;
         size *= 2)
        if ((status = add_class(g, size, g->blocks)) != 0)
            return status;

    for (uint32_t n = 0; n < TNI_COUNT(g->small_class); n++) {
        uint32_t c = TNI_SMALL_CLASS;
        while (g->classes[c].size_bytes < n * UINT64_C(64))
            c++;
        g->small_class[n] = (uint8_t)c;
    }
    add_device_classes(g);
    return 0;
}

static void place_sections(struct tni_geometry *g)
{
    uint64_t at = 0, page = g->page_bytes, seats = g->seats;
    g->row_bytes = tni_align_up(g->total_blocks / 8, page);
    place(&at, sizeof(struct tni_header), page);
    g->seats_off = place(&at, seats * sizeof(struct tni_seat), page);
    g->announces_off = place(&at, seats * TNI_THREADS * sizeof(struct tni_announce), page);
    g->classes_off = place(&at, TNI_CLASSES * sizeof(struct tni_class), page);
    g->words_off = place(&at, (uint64_t)g->total_blocks * sizeof(uint64_t), page);
    g->descs_off = place(&at, (uint64_t)g->total_blocks * sizeof(struct tni_desc), page);
    g->hints_off = place(&at, g->total_blocks / 8, page);
    g->suspects_off = place(&at, TNI_SUSPECT_ROWS * g->row_bytes, page);
    g->rows_off = place(&at, g->row_bytes * seats, page);
    g->objects_off = place(&at, (uint64_t)g->objects * sizeof(struct tni_object), page);
    g->tickets_off = place(&at, (uint64_t)g->tickets * sizeof(struct tni_ticket), page);
    g->names_off = place(&at, (uint64_t)tni_geometry_names(g) * sizeof(uint32_t), page);
    g->opens_bytes = bits_bytes(g->objects);
    g->opens_off = place(&at, g->opens_bytes * seats, page);
    g->loose_off = place(&at, g->opens_bytes * TNI_LOOSE_ROWS, page);
    g->issues_bytes = bits_bytes((g->tickets + TNI_TICKET_GROUP - 1) / TNI_TICKET_GROUP);
    g->issues_off = place(&at, g->issues_bytes * seats, page);
    g->values_off = place(&at, TNI_TIMELINES * sizeof(uint64_t), page);
    g->timelines_off = place(&at, TNI_TIMELINES * sizeof(struct tni_timeline), page);
    g->leases_off = place(&at, TNI_LEASES * sizeof(struct tni_lease), page);
    g->control_bytes = at;
}

int tni_geometry_init(const struct tni_limits *limits, uint32_t page_bytes,
                      struct tni_geometry *ret_geometry)
{
    struct tni_geometry g = {.seats = limits->seats,
                             .blocks = limits->blocks,
                             .objects = limits->objects,
                             .tickets = limits->tickets,
                             .quota_limit_bytes = limits->quota_bytes,
                             .page_bytes = page_bytes,
                             .class_count = 1};
    int status = check_limits(limits, page_bytes);
    if (status == 0)
        status = add_classes(&g);
    if (status != 0)
        return status;
    place_sections(&g);
    g.arena_bytes = tni_align_up(g.arena_bytes, HUGE_BYTES);
    *ret_geometry = g;
    return 0;
}

uint32_t tni_geometry_class(const struct tni_geometry *g, uint64_t bytes, uint8_t kind)
{
    if (kind == TNI_KIND_BACKING)
        return TNI_BACKING_CLASS;
    if (kind == TNI_KIND_MESSAGE) {
        for (uint32_t c = 1; c <= TNI_MESSAGE_CLASSES; c++)
            if (bytes <= g->classes[c].size_bytes)
                return c;
        return 0;
    }
    if (bytes <= 4096)
        return g->small_class[(bytes + 63) / 64];
    uint32_t power = tni_log2_up(bytes); /* 8192 is 13 */
    uint32_t found = TNI_SMALL_CLASS + (uint32_t)TNI_COUNT(small_sizes) + (power - 13);
    return power <= 43 && found < g->host_classes ? found : 0;
}
