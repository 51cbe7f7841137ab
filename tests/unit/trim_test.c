/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The room alloc: what others do while memory is given back. The linker puts a function of this
 * test before tni_segment_discard(), which gives pages back to the system.
 */
#include "harness/harness.h"
#include "ref/ref.h"

enum { MIB = 1 << 20, BLOCKS = 16, LIVE = 9, ENOUGH = 100 };

static struct tn_domain *d;
static tni_block live; /* let go at the first discard; {0}: nothing is */
static unsigned discards;

int __real_tni_segment_discard(const struct tni_segment *segment, tni_block first,
                               uint64_t from, uint64_t bytes);
int __wrap_tni_segment_discard(const struct tni_segment *segment, tni_block first,
                               uint64_t from, uint64_t bytes);

int __wrap_tni_segment_discard(const struct tni_segment *segment, tni_block first,
                               uint64_t from, uint64_t bytes)
{
    tni_block block = live;
    live = (tni_block){0};
    if (block.id != 0)
        tni_ref_release(d, block);
    TN_CHECK(++discards < ENOUGH);
    return __real_tni_segment_discard(segment, first, from, bytes);
}

static void look_for_idle_memory(void)
{
    atomic_store(&d->idle_ns, 0); /* time has passed */
    tni_alloc_trim_idle(d);
}

TN_TEST(a_look_for_idle_memory_ends_though_a_block_is_freed_meanwhile)
{
    static const struct tni_segment_options options = {.name = "",
                                                       .seats = 4,
                                                       .blocks = 1 << 10,
                                                       .objects = 8,
                                                       .tickets = 8,
                                                       .quota_bytes = 64 * MIB,
                                                       .watermark_bytes = 64 * MIB};
    static const struct tni_block_about about = {.kind = TNI_KIND_BYTES};
    tni_block blocks[BLOCKS];
    struct tni_segment segment;
    bool is_zero;
    TN_CHECK_OK(tni_segment_create(&options, &segment));
    TN_CHECK_OK(tni_process_join(&segment, 0, &d));
    tni_alloc_init(d);
    TN_CHECK_OK(tni_ref_init(d));
    for (int i = 0; i < BLOCKS; i++)
        TN_CHECK_OK(
            tni_ref_alloc(d, tni_os_page_bytes(), &about, true, 0, &blocks[i], &is_zero));
    for (int i = 0; i < BLOCKS; i++)
        if (i != LIVE)
            tni_ref_release(d, blocks[i]);
    look_for_idle_memory();
    assert_int_equal(discards, 0);
    live = blocks[LIVE];
    look_for_idle_memory();
    assert_int_not_equal(discards, 0);
    tni_process_begin_leave(d);
    tni_ref_close(d);
    tni_process_leave(d);
    tni_process_unkeep(d);
}
