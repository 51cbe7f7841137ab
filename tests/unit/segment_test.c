/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: a segment of whose arena only windows are mapped. */
#include <string.h>
#include <unistd.h>

#include "harness/harness.h"
#include "os/os.h"
#include "segment/segment.h"

#define MIB (UINT64_C(1) << 20)

static struct tni_segment whole, sparse;

static void fail_window(void)
{
    tnt_check(false, "that a window can be mapped", __FILE__, __LINE__);
}

static void open_both(uint64_t quota_bytes)
{
    const struct tni_segment_options options = {.name = "",
                                                .seats = 8,
                                                .blocks = 1 << 16,
                                                .objects = 16,
                                                .tickets = 16,
                                                .quota_bytes = quota_bytes};
    TN_CHECK_OK(tni_segment_create(&options, &whole));
    TN_CHECK_OK(tni_segment_attach_sparse(dup(whole.control_fd), dup(whole.arena_fd),
                                          fail_window, &sparse));
}

static void close_both(void)
{
    tni_segment_detach(&sparse);
    tni_segment_detach(&whole);
}

/* The first and the last bytes of a block are the same through both mappings. */
static void expect_same(tni_block block)
{
    uint64_t last = tni_block_bytes(&whole.geometry, block) - sizeof block.id;
    uint8_t *here = tni_payload_at(&whole, block), *there = tni_payload_look(&sparse, block);
    memcpy(here, &block.id, sizeof block.id);
    memcpy(here + last, &block.id, sizeof block.id);
    assert_memory_equal(there, &block.id, sizeof block.id);
    assert_memory_equal(there + last, &block.id, sizeof block.id);
    assert_ptr_equal(tni_payload_look(&sparse, block), there);
}

TN_TEST(each_block_is_found_through_windows_where_it_is)
{
    open_both(64 * MIB);
    const struct tni_geometry *g = &whole.geometry;
    for (uint32_t c = 1; c < g->host_classes; c++) {
        uint32_t step = g->classes[c].capacity / 61 + 1;
        for (uint32_t i = 0; i < g->classes[c].capacity; i += step)
            expect_same(tni_block_make(c, i));
        expect_same(tni_block_make(c, g->classes[c].capacity - 1));
        expect_same(tni_block_make(c, 0));
    }
    close_both();
}

TN_TEST(a_pointer_stays_good_while_more_windows_are_mapped)
{
    open_both(64 * MIB);
    const struct tni_class_geometry *c = &whole.geometry.classes[1];
    uint8_t *first = tni_payload_look(&sparse, tni_block_make(1, 0));
    memset(tni_payload_at(&whole, tni_block_make(1, 0)), 7, c->size_bytes);
    for (uint32_t i = 0; i < c->capacity; i++)
        (void)tni_payload_look(&sparse, tni_block_make(1, i));
    assert_int_equal(first[c->size_bytes - 1], 7);
    close_both();
}

TN_TEST(memory_that_is_not_mapped_is_given_back)
{
    uint64_t bytes;
    open_both(64 * MIB);
    tni_block block = tni_block_make(5, 0);
    memset(tni_payload_at(&whole, block), 1, MIB);
    TN_CHECK_OK(tni_segment_discard(&sparse, block, 0, MIB));
    TN_CHECK_OK(tni_os_memory_committed(whole.arena_fd, &bytes));
    assert_int_equal(bytes, 0);
    close_both();
}

/* An address space has room for only two whole arenas of this size. */
TN_TEST(sixteen_large_arenas_fit_in_one_process_as_windows)
{
    struct tni_segment all[16];
    open_both(MIB << 20);
    for (int i = 0; i < 16; i++) {
        TN_CHECK_OK(tni_segment_attach_sparse(dup(whole.control_fd), dup(whole.arena_fd),
                                              fail_window, &all[i]));
        (void)tni_payload_look(&all[i], tni_block_make(1, 0));
    }
    for (int i = 0; i < 16; i++)
        tni_segment_detach(&all[i]);
    close_both();
}
