/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests of the room alloc: what other threads do while one thread trims. The linker lets this
 * test intercept tni_segment_discard(), which gives pages back to the system, and
 * tni_alloc_untake(), which frees the blocks in them again.
 */
#include "alloc/alloc.h"
#include "harness/harness.h"
#include "ref/ref.h"

enum { MIB = 1 << 20, BLOCKS = 16, LIVE = 9, ENOUGH = 100 };

static struct tn_domain *d;
static tni_block live;           /* released at the first discard; {0}: none */
static uint64_t used_again;      /* at each untake, a thread takes and frees so many bytes */
static uint64_t given_meanwhile; /* bytes that another trim gave back at the first discard */
static bool gives_meanwhile;     /* the next discard begins another trim */
static bool breaks;              /* the discards after that fail */
static unsigned discards;

int __real_tni_segment_discard(const struct tni_segment *segment, tni_block first,
                               uint64_t from, uint64_t bytes);
int __wrap_tni_segment_discard(const struct tni_segment *segment, tni_block first,
                               uint64_t from, uint64_t bytes);
bool __real_tni_alloc_untake(struct tn_domain *domain, tni_block block);
bool __wrap_tni_alloc_untake(struct tn_domain *domain, tni_block block);

static uint64_t trim_all(void)
{
    struct tni_thread *thread = tni_thread_enter(d);
    uint64_t bytes = tni_alloc_trim_some(d, thread, UINT64_MAX, (tni_block){0});
    tni_thread_leave(thread);
    return bytes;
}

int __wrap_tni_segment_discard(const struct tni_segment *segment, tni_block first,
                               uint64_t from, uint64_t bytes)
{
    tni_block block = live;
    live = (tni_block){0};
    if (block.id != 0)
        tni_ref_release(d, block);
    TN_CHECK(++discards < ENOUGH);
    if (gives_meanwhile) {
        gives_meanwhile = false;
        given_meanwhile = trim_all();
    } else if (breaks && given_meanwhile != 0) {
        return tni_fail(TN_ERR_SYSTEM, "the pages stay");
    }
    return __real_tni_segment_discard(segment, first, from, bytes);
}

static void take(uint64_t bytes, tni_block *ret_block)
{
    static const struct tni_block_about about = {.kind = TNI_KIND_BYTES};
    struct tni_new_block made;
    TN_CHECK_OK(tni_ref_alloc(d, bytes, &about, 0, &made));
    *ret_block = made.block;
}

bool __wrap_tni_alloc_untake(struct tn_domain *domain, tni_block block)
{
    bool was_full = __real_tni_alloc_untake(domain, block);
    tni_block same;
    if (used_again != 0) {
        take(used_again, &same);
        TN_CHECK(same.id == block.id);
        tni_ref_release(d, same);
    }
    return was_full;
}

static void begin(void)
{
    static const struct tni_segment_options options = {.name = "",
                                                       .seats = 4,
                                                       .blocks = 1 << 10,
                                                       .objects = 8,
                                                       .tickets = 8,
                                                       .quota_bytes = 64 * MIB,
                                                       .watermark_bytes = 64 * MIB};
    struct tni_segment segment;
    TN_CHECK_OK(tni_segment_create(&options, &segment));
    TN_CHECK_OK(tni_process_join(&segment, 0, &d));
    tni_alloc_init(d);
    TN_CHECK_OK(tni_ref_init(d));
}

static void finish(void)
{
    tni_process_begin_leave(d);
    tni_ref_close(d);
    tni_process_leave(d);
    tni_process_unkeep(d);
}

/* Take all blocks of a span, a page each, and free all but one. */
static void take_one_of_a_span(tni_block *ret_block)
{
    tni_block blocks[BLOCKS];
    for (int i = 0; i < BLOCKS; i++)
        take(tni_os_page_bytes(), &blocks[i]);
    for (int i = 0; i < BLOCKS; i++)
        if (i != LIVE)
            tni_ref_release(d, blocks[i]);
    *ret_block = blocks[LIVE];
}

static void scan_for_idle_memory(void)
{
    atomic_store(&tni_alloc_part(d)->idle_ns, 0); /* a scan is due */
    tni_alloc_trim_idle(d);
}

/* ---- idle memory ------------------------------------------------------------------------- */

TN_TEST(an_idle_scan_ends_though_a_block_is_freed_meanwhile)
{
    tni_block block;
    begin();
    take_one_of_a_span(&block);
    scan_for_idle_memory();
    assert_int_equal(discards, 0);
    live = block;
    scan_for_idle_memory();
    assert_int_not_equal(discards, 0);
    finish();
}

TN_TEST(an_idle_scan_ends_though_a_block_is_used_again)
{
    tni_block block;
    begin();
    take(2 * MIB, &block);
    tni_ref_release(d, block);
    scan_for_idle_memory();
    assert_int_equal(discards, 0);
    used_again = 2 * MIB;
    scan_for_idle_memory();
    assert_int_equal(discards, 1);
    used_again = 0;
    finish();
}

/* ---- two trims at once ------------------------------------------------------------------- */

TN_TEST(pages_that_another_thread_discarded_are_counted_once)
{
    uint64_t page_bytes = tni_os_page_bytes(), before = 0, after = 0;
    tni_block block;
    begin();
    take_one_of_a_span(&block);
    TN_CHECK_OK(tni_os_memory_committed(d->segment.arena_fd, &before));
    gives_meanwhile = true;
    uint64_t given = trim_all();
    assert_int_not_equal(given_meanwhile, 0);
    TN_CHECK_OK(tni_os_memory_committed(d->segment.arena_fd, &after));
    assert_int_equal(given + given_meanwhile, before - after);
    assert_int_equal(after, page_bytes);
    tni_ref_release(d, block);
    finish();
}

TN_TEST(pages_that_another_thread_discarded_are_not_recorded)
{
    tni_block block;
    begin();
    take_one_of_a_span(&block);
    gives_meanwhile = breaks = true;
    trim_all();
    breaks = false;
    assert_int_not_equal(given_meanwhile, 0);
    tni_block first = tni_block_leader(&d->segment.geometry, block);
    uint64_t pages = atomic_load(&tni_desc_at(&d->segment, first)->committed);
    uint64_t committed = 0;
    TN_CHECK_OK(tni_os_memory_committed(d->segment.arena_fd, &committed));
    assert_int_equal(tni_bit_count(pages & ~TNI_SPAN_TRIMMED) * tni_os_page_bytes(), committed);
    tni_ref_release(d, block);
    finish();
}
