/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: the numbers of a domain, and where they put its sections, classes and blocks. */
#include <string.h>

#include "harness/harness.h"
#include "layout/layout.h"

#define MIB (UINT64_C(1) << 20)

enum { PAGE = 4096 };

static const struct tni_limits usual = {256, 1 << 16, 1024, 4096, 4096 * MIB};
static const struct tni_limits largest = {TNI_MAX_SEATS, TNI_MAX_BLOCKS, TNI_MAX_OBJECTS,
                                          TNI_MAX_TICKETS, (UINT64_C(1) << 46) / 52};

static void expect_error(int status, struct tni_limits limits, uint32_t page_bytes,
                         const char *text)
{
    struct tni_geometry g, before;
    memset(&before, 7, sizeof before);
    memcpy(&g, &before, sizeof g);
    assert_int_equal(tni_geometry_init(&limits, page_bytes, &g), status);
    TN_CHECK(strstr(tn_error_detail(), text) != NULL);
    assert_memory_equal(&g, &before, sizeof g);
}

TN_TEST(each_number_is_refused_at_zero_and_above_its_maximum)
{
    const uint32_t most[] = {TNI_MAX_SEATS, TNI_MAX_BLOCKS, TNI_MAX_OBJECTS, TNI_MAX_TICKETS};
    const char *const names[] = {"seats: ", "blocks: ", "objects: ", "tickets: "};
    for (size_t i = 0; i < TNI_COUNT(most); i++) {
        struct tni_limits limits = usual;
        uint32_t *const number[] = {&limits.seats, &limits.blocks, &limits.objects,
                                    &limits.tickets};
        *number[i] = 0;
        expect_error(TN_ERR_INVALID, limits, PAGE, names[i]);
        *number[i] = most[i] + 1;
        expect_error(TN_ERR_INVALID, limits, PAGE, names[i]);
        *number[i] = UINT32_MAX;
        expect_error(TN_ERR_INVALID, limits, PAGE, names[i]);
    }
}

TN_TEST(a_quota_outside_of_its_range_is_refused)
{
    const uint64_t bad[] = {0, MIB - 1, largest.quota_bytes + 1, UINT64_MAX};
    for (size_t i = 0; i < TNI_COUNT(bad); i++) {
        struct tni_limits limits = usual;
        limits.quota_bytes = bad[i];
        expect_error(TN_ERR_INVALID, limits, PAGE, "quota: ");
    }
}

TN_TEST(an_impossible_page_size_is_refused)
{
    const uint32_t bad[] = {0, 2048, 4097, 12288, 1 << 17, UINT32_MAX};
    for (size_t i = 0; i < TNI_COUNT(bad); i++)
        expect_error(TN_ERR_INVALID, usual, bad[i], "a page of ");
}

TN_TEST(a_domain_that_the_address_space_cannot_hold_is_refused)
{
    expect_error(TN_ERR_NO_MEMORY, largest, PAGE, "address space");
}

/* I2 and I3 of geometry.c. */
static void check_places(const struct tni_geometry *g)
{
    const uint64_t at[] = {0,
                           g->seats_off,
                           g->announces_off,
                           g->classes_off,
                           g->words_off,
                           g->descs_off,
                           g->hints_off,
                           g->suspects_off,
                           g->rows_off,
                           g->objects_off,
                           g->tickets_off,
                           g->names_off,
                           g->opens_off,
                           g->loose_off,
                           g->issues_off,
                           g->values_off,
                           g->timelines_off,
                           g->leases_off,
                           g->control_bytes};
    for (size_t i = 1; i < TNI_COUNT(at); i++)
        TN_CHECK(at[i] > at[i - 1] && at[i] % g->page_bytes == 0);
    for (uint32_t c = 1; c < g->class_count; c++) {
        const struct tni_class_geometry *class = &g->classes[c];
        bool is_last = c + 1 == g->class_count;
        uint32_t next = is_last ? g->total_blocks : g->classes[c + 1].base;
        TN_CHECK(class->base % 64 == 0 && class->base + class->capacity <= next);
    }
    for (uint32_t c = 1; c < g->host_classes; c++) {
        const struct tni_class_geometry *class = &g->classes[c];
        uint64_t bytes = tni_align_up(class->capacity, class->span) * class->size_bytes;
        bool is_last = c + 1 == g->host_classes;
        uint64_t end = is_last ? g->arena_bytes : g->classes[c + 1].arena_off;
        TN_CHECK(class->arena_off % (2 * MIB) == 0 && class->arena_off + bytes <= end);
        TN_CHECK(class->span * class->size_bytes % g->page_bytes == 0);
    }
    for (uint32_t c = g->host_classes; c < g->class_count; c++) {
        const struct tni_class_geometry *class = &g->classes[c];
        TN_CHECK(class->usable >= 1 && class->usable <= class->span);
        TN_CHECK(class->usable * class->size_bytes <= TNI_SLAB_BYTES);
        TN_CHECK((class->span & (class->span - 1)) == 0 && class->capacity % class->span == 0);
        TN_CHECK(class->cached == 0 && g->span_pages[c] == 0);
    }
    TN_CHECK(g->rows_off + (uint64_t)g->row_bytes * g->seats <= g->objects_off);
    TN_CHECK(g->total_blocks / 8 <= g->row_bytes);
}

TN_TEST(sections_and_classes_do_not_overlap)
{
    const struct tni_limits smallest = {1, 1, 1, 1, MIB};
    const struct tni_limits large = {TNI_MAX_SEATS, 1 << 20, TNI_MAX_OBJECTS, TNI_MAX_TICKETS,
                                     MIB << 20};
    const struct tni_limits *const limits[] = {&smallest, &usual, &large};
    for (size_t i = 0; i < TNI_COUNT(limits); i++)
        for (uint32_t page = PAGE; page <= 1 << 16; page *= 4) {
            struct tni_geometry g;
            TN_CHECK_OK(tni_geometry_init(limits[i], page, &g));
            check_places(&g);
        }
}

TN_TEST(bytes_get_the_smallest_class_that_is_large_enough)
{
    struct tni_geometry g;
    TN_CHECK_OK(tni_geometry_init(&usual, PAGE, &g));
    for (uint32_t c = TNI_SMALL_CLASS; c < g.host_classes; c++) {
        assert_int_equal(tni_geometry_class(&g, g.classes[c].size_bytes, TNI_KIND_TENSOR), c);
        assert_int_equal(tni_geometry_class(&g, g.classes[c].size_bytes + 1, TNI_KIND_BYTES),
                         c + 1 < g.host_classes ? c + 1 : 0);
    }
    for (uint32_t c = 1; c <= TNI_MESSAGE_CLASSES; c++) {
        assert_int_equal(tni_geometry_class(&g, g.classes[c].size_bytes, TNI_KIND_MESSAGE), c);
        assert_int_equal(tni_geometry_class(&g, g.classes[c].size_bytes + 1, TNI_KIND_MESSAGE),
                         c < TNI_MESSAGE_CLASSES ? c + 1 : 0);
    }
    assert_int_equal(tni_geometry_class(&g, 0, TNI_KIND_TENSOR), TNI_SMALL_CLASS);
    assert_int_equal(tni_geometry_class(&g, UINT64_MAX, TNI_KIND_TENSOR), 0);
    assert_int_equal(tni_geometry_class(&g, UINT64_MAX, TNI_KIND_BACKING), TNI_BACKING_CLASS);
    for (uint32_t c = g.host_classes; c < g.class_count; c++) {
        assert_int_equal(tni_geometry_device_class(&g, g.classes[c].size_bytes), c);
        assert_int_equal(tni_geometry_device_class(&g, g.classes[c].size_bytes + 1),
                         c + 1 < g.class_count ? c + 1 : 0);
    }
    assert_int_equal(tni_geometry_device_class(&g, 0), g.host_classes);
    assert_int_equal(tni_geometry_device_class(&g, UINT64_MAX), 0);
}

TN_TEST(a_number_that_names_no_block_is_detected)
{
    struct tni_geometry g;
    TN_CHECK_OK(tni_geometry_init(&usual, PAGE, &g));
    for (uint32_t c = 1; c < g.class_count; c++) {
        TN_CHECK(tni_geometry_has_block(&g, tni_block_make(c, 0).id));
        TN_CHECK(tni_geometry_has_block(&g, tni_block_make(c, g.classes[c].capacity - 1).id));
        TN_CHECK(!tni_geometry_has_block(&g, tni_block_make(c, g.classes[c].capacity).id));
    }
    const uint32_t bad[] = {0, 5, g.class_count << 24, tni_recounted_object(0), UINT32_MAX};
    for (size_t i = 0; i < TNI_COUNT(bad); i++)
        TN_CHECK(!tni_geometry_has_block(&g, bad[i]));
}

TN_TEST(the_blocks_of_a_span_cover_its_pages_and_no_others)
{
    struct tni_geometry g;
    TN_CHECK_OK(tni_geometry_init(&usual, PAGE, &g));
    for (uint32_t c = 1; c < g.host_classes; c++) {
        uint64_t pages = 0;
        if (g.classes[c].span == 1)
            continue;
        for (uint32_t i = 0; i < g.classes[c].span; i++) {
            tni_block block = tni_block_make(c, g.classes[c].span + i);
            pages |= tni_block_pages(&g, block);
            assert_int_equal(tni_block_leader(&g, block).id,
                             tni_block_make(c, g.classes[c].span).id);
        }
        TN_CHECK(pages == g.span_pages[c] && (pages & TNI_SPAN_TRIMMED) == 0);
    }
}
