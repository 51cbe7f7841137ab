/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of the room alloc: what the quota refuses, and which memory is given back for it. */
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "harness/harness.h"
#include "ref/ref.h"

enum { MIB = 1 << 20 };

static struct tn_domain *d;

static void begin_with(uint64_t quota_bytes, uint32_t blocks)
{
    const struct tni_segment_options options = {.name = "",
                                                .seats = 4,
                                                .blocks = blocks,
                                                .objects = 8,
                                                .tickets = 8,
                                                .quota_bytes = quota_bytes,
                                                .watermark_bytes = quota_bytes};
    struct tni_segment segment;
    TN_CHECK_OK(tni_segment_create(&options, &segment));
    TN_CHECK_OK(tni_process_join(&segment, 0, &d));
    tni_alloc_init(d);
    TN_CHECK_OK(tni_ref_init(d));
}

static void begin(uint64_t quota_bytes) { begin_with(quota_bytes, 1 << 19); }

static void finish(void)
{
    tni_process_begin_leave(d);
    tni_ref_close(d);
    tni_process_leave(d);
    tni_process_unkeep(d);
}

static int take(uint64_t bytes, tni_block *ret_block)
{
    static const struct tni_block_about about = {.kind = TNI_KIND_BYTES};
    struct tni_new_block made;
    int status = tni_ref_alloc(d, bytes, &about, 0, &made);
    if (status == 0)
        *ret_block = made.block;
    return status;
}

static uint64_t committed(void)
{
    uint64_t bytes = 0;
    TN_CHECK_OK(tni_os_memory_committed(d->segment.arena_fd, &bytes));
    return bytes;
}

static void flush_and_trim(void)
{
    struct tni_thread *thread = tni_thread_enter(d);
    tni_alloc_flush(d, thread);
    tni_alloc_trim(d, thread, 0);
    tni_thread_leave(thread);
}

/* Write an announce of another seat, as if a thread of that seat were committing. */
static struct tni_announce *announce(uint32_t seat, uint64_t bytes)
{
    struct tni_announce *a = tni_announce_at(&d->segment, seat, 0);
    tni_raise_limit(&d->segment.header->seat_limit, seat + 1);
    atomic_store(&tni_seat_at(&d->segment, seat)->word, tni_seat_word(1, TNI_SEAT_ALIVE, 0));
    atomic_store(&a->commit_bytes, bytes);
    return a;
}

static int ask(uint64_t bytes)
{
    struct tni_thread *thread = tni_thread_enter(d);
    int status = tni_alloc_quota_begin(d, thread, bytes);
    if (status == 0)
        tni_alloc_quota_end(thread);
    tni_thread_leave(thread);
    return status;
}

static _Atomic int taken_large; /* the status of take_large(); 2: it has not ended */

static void *take_large(void *argument)
{
    static tni_block block;
    (void)argument;
    atomic_store(&taken_large, take(UINT64_C(300) * MIB, &block));
    return &block;
}

TN_TEST(a_request_that_fits_beside_a_commit_is_granted)
{
    pthread_t thread;
    void *block;
    begin(UINT64_C(512) * MIB);
    atomic_store(&taken_large, 2);
    pthread_create(&thread, NULL, take_large, NULL);
    while (atomic_load(&taken_large) == 2)
        assert_int_equal(ask(MIB), 0);
    pthread_join(thread, &block);
    assert_int_equal(atomic_load(&taken_large), 0);
    tni_ref_release(d, *(tni_block *)block);
    finish();
}

TN_TEST(a_refusal_due_to_an_unfinished_commit_is_to_be_retried)
{
    begin(UINT64_C(64) * MIB);
    /* First the other seat asks, and may be refused; then one of its chunks may count twice. */
    struct tni_announce *a = announce(1, TNI_COMMIT_ASKS | UINT64_C(64) * MIB);
    assert_int_equal(ask(MIB), TNI_ALLOC_AGAIN);
    atomic_store(&a->commit_bytes, UINT64_C(64) * MIB);
    assert_int_equal(ask(16 * MIB), TNI_ALLOC_AGAIN);
    assert_int_equal(ask(16 * MIB + 1), TN_ERR_NO_MEMORY);
    atomic_store(&a->commit_bytes, UINT64_C(32) * MIB);
    assert_int_equal(ask(32 * MIB), 0);
    atomic_store(&a->commit_bytes, 0);
    assert_int_equal(ask(64 * MIB), 0);
    assert_int_equal(ask(64 * MIB + 1), TN_ERR_NO_MEMORY);
    atomic_store(&tni_seat_at(&d->segment, 1)->word, 0);
    finish();
}

TN_TEST(a_refusal_due_to_memory_being_trimmed_is_to_be_retried)
{
    tni_block live;
    begin(UINT64_C(64) * MIB);
    TN_CHECK_OK(take(60 * MIB, &live));
    struct tni_announce *a = announce(1, TNI_COMMIT_GIVES | UINT64_C(8) * MIB);
    assert_int_equal(ask(12 * MIB), TNI_ALLOC_AGAIN);
    assert_int_equal(ask(12 * MIB + 1), TN_ERR_NO_MEMORY);
    assert_int_equal(ask(4 * MIB), 0);
    atomic_store(&a->commit_bytes, 0);
    assert_int_equal(ask(12 * MIB), TN_ERR_NO_MEMORY);
    atomic_store(&tni_seat_at(&d->segment, 1)->word, 0);
    tni_ref_release(d, live);
    finish();
}

struct turns {
    pthread_barrier_t barrier;
    int count;
};

static void *trim_at_each_turn(void *turns)
{
    struct turns *t = turns;
    for (int i = 0; i < t->count; i++) {
        pthread_barrier_wait(&t->barrier);
        flush_and_trim();
        pthread_barrier_wait(&t->barrier);
    }
    return NULL;
}

/* If the trimming thread gets no processor for long, a call may give up: then call again. */
static int take_beside_a_trim(uint64_t bytes, tni_block *ret_block)
{
    uint64_t begun_ns;
    int status;
    do {
        begun_ns = tni_os_now_ns();
        status = take(bytes, ret_block);
    } while (status == TN_ERR_NO_MEMORY && tni_os_now_ns() - begun_ns >= TNI_REF_TRY_NS);
    return status;
}

TN_TEST(memory_that_another_thread_is_trimming_is_waited_for)
{
    struct turns turns = {.count = 16};
    pthread_t thread;
    tni_block block;
    begin(UINT64_C(64) * MIB);
    pthread_barrier_init(&turns.barrier, NULL, 2);
    assert_int_equal(pthread_create(&thread, NULL, trim_at_each_turn, &turns), 0);
    for (int i = 0; i < turns.count; i++) {
        TN_CHECK_OK(take(40 * MIB, &block));
        tni_ref_release(d, block);
        pthread_barrier_wait(&turns.barrier);
        TN_CHECK_OK(take_beside_a_trim(30 * MIB, &block));
        tni_ref_release(d, block);
        pthread_barrier_wait(&turns.barrier);
    }
    pthread_join(thread, NULL);
    pthread_barrier_destroy(&turns.barrier);
    finish();
}

TN_TEST(free_memory_is_used_while_a_stopped_member_asks_for_more)
{
    tni_block warm[4], block;
    begin(UINT64_C(64) * MIB);
    for (int i = 0; i < 4; i++)
        TN_CHECK_OK(take(2 * MIB, &warm[i]));
    for (int i = 0; i < 4; i++)
        tni_ref_release(d, warm[i]);
    announce(1, TNI_COMMIT_ASKS | UINT64_C(50) * MIB);
    TN_CHECK_OK(take(8 * MIB, &block));
    assert_int_equal(committed(), 8 * MIB);
    atomic_store(&tni_announce_at(&d->segment, 1, 0)->commit_bytes, 0);
    atomic_store(&tni_seat_at(&d->segment, 1)->word, 0);
    tni_ref_release(d, block);
    finish();
}

enum { WAITS_NS = 1200 * 1000 * 1000 };

static void *wait_for_eight(void *status)
{
    static const struct tni_block_about about = {.kind = TNI_KIND_BYTES};
    struct tni_new_block made;
    atomic_store((_Atomic int *)status,
                 tni_ref_alloc(d, 8 * MIB, &about, tni_os_now_ns() + WAITS_NS, &made));
    return NULL;
}

/* After its first second the waiter retries when a block is freed, and every 100 ms. */
TN_TEST(a_waiter_for_memory_gives_all_back_once_a_second)
{
    _Atomic int status = 0;
    pthread_t thread;
    tni_block warm, live;
    begin(UINT64_C(64) * MIB);
    TN_CHECK_OK(take(2 * MIB, &warm));
    TN_CHECK_OK(take(2 * MIB, &live));
    tni_ref_release(d, warm);
    announce(1, TNI_COMMIT_ASKS | UINT64_C(64) * MIB);
    assert_int_equal(pthread_create(&thread, NULL, wait_for_eight, &status), 0);
    while (committed() != 2 * MIB)
        sched_yield();
    tni_ref_release(d, live);
    pthread_join(thread, NULL);
    assert_int_equal(atomic_load(&status), TN_ERR_TIMED_OUT);
    assert_int_equal(committed(), 2 * MIB);
    atomic_store(&tni_announce_at(&d->segment, 1, 0)->commit_bytes, 0);
    atomic_store(&tni_seat_at(&d->segment, 1)->word, 0);
    finish();
}

TN_TEST(a_small_block_gets_its_page_while_another_member_asks)
{
    tni_block live, small;
    begin(UINT64_C(64) * MIB);
    uint64_t page_bytes = d->segment.geometry.page_bytes;
    TN_CHECK_OK(take(MIB, &live));
    announce(1, TNI_COMMIT_ASKS | (63 * MIB - page_bytes));
    TN_CHECK_OK(take(64, &small)); /* of a span of 64 KiB */
    assert_int_equal(committed(), MIB + page_bytes);
    atomic_store(&tni_announce_at(&d->segment, 1, 0)->commit_bytes, 0);
    atomic_store(&tni_seat_at(&d->segment, 1)->word, 0);
    tni_ref_release(d, small);
    tni_ref_release(d, live);
    finish();
}

TN_TEST(a_failing_allocation_gives_no_more_back_than_it_lacks)
{
    tni_block warm[8], live, other;
    begin(UINT64_C(32) * MIB);
    for (int i = 0; i < 8; i++)
        TN_CHECK_OK(take(2 * MIB, &warm[i]));
    TN_CHECK_OK(take(12 * MIB, &live));
    for (int i = 0; i < 8; i++)
        tni_ref_release(d, warm[i]);
    /* 28 MiB are committed, 16 MiB of which belong to free blocks: 4 MiB are missing. */
    TN_CHECK_OK(take(8 * MIB, &other));
    assert_int_equal(committed(), 32 * MIB);
    tni_ref_release(d, live);
    tni_ref_release(d, other);
    finish();
}

TN_TEST(a_block_that_lacks_memory_does_not_lose_what_it_has)
{
    enum { LACKS = 16 << 10 };
    tni_block live, first, second;
    begin(UINT64_C(32) * MIB);
    TN_CHECK_OK(take(28 * MIB, &live));
    TN_CHECK_OK(take(5 * MIB / 2, &first));
    TN_CHECK_OK(take(3 * MIB / 2, &second));
    tni_ref_release(d, first);
    tni_ref_release(d, second);
    /* The first block is taken again, and the second one gives back what the first one lacks.
     */
    TN_CHECK_OK(take(5 * MIB / 2 + LACKS, &first));
    assert_int_equal(committed(), 32 * MIB);
    assert_int_equal(tni_segment_committed(&d->segment, second), 3 * MIB / 2 - LACKS);
    tni_ref_release(d, live);
    tni_ref_release(d, first);
    finish();
}

TN_TEST(an_allocation_above_the_quota_gives_no_memory_back)
{
    tni_block warm;
    begin(UINT64_C(32) * MIB);
    TN_CHECK_OK(take(2 * MIB, &warm));
    tni_ref_release(d, warm);
    atomic_store(&d->segment.header->quota_bytes, 4 * MIB);
    assert_int_equal(take(4 * MIB + 1, &warm), TN_ERR_NO_MEMORY);
    assert_int_equal(committed(), 2 * MIB);
    finish();
}

TN_TEST(a_large_free_block_gives_only_its_end_back)
{
    tni_block large, other;
    begin(UINT64_C(32) * MIB);
    TN_CHECK_OK(take(30 * MIB, &large));
    tni_ref_release(d, large);
    TN_CHECK_OK(take(4 * MIB, &other));
    assert_int_equal(committed(), 32 * MIB);
    tni_ref_release(d, other);
    finish();
}

enum { SMALL = 64, SMALL_COUNT = (16 * MIB) / SMALL, EACH = 1024 };
static tni_block small[SMALL_COUNT];

/* Keep one block in 1024. @return how many; they need one page each */
static uint32_t keep_few(void)
{
    uint32_t live = 0;
    for (uint32_t i = 0; i < SMALL_COUNT; i++)
        TN_CHECK_OK(take(SMALL, &small[i]));
    for (uint32_t i = 0; i < SMALL_COUNT; i++)
        if (i % EACH == 0)
            small[live++] = small[i];
        else
            tni_ref_release(d, small[i]);
    return live;
}

TN_TEST(a_live_small_block_keeps_its_page_and_no_more)
{
    tni_block large;
    begin(UINT64_C(16) * MIB);
    uint32_t live = keep_few();
    uint64_t page_bytes = d->segment.geometry.page_bytes;
    for (uint32_t i = 0; i < live; i++)
        memset(tni_payload_at(&d->segment, small[i]), (int)i, SMALL);
    TN_CHECK_OK(take(8 * MIB, &large));
    flush_and_trim();
    assert_int_equal(committed(), 8 * MIB + live * page_bytes);
    for (uint32_t i = 0; i < live; i++) {
        const uint8_t *bytes = tni_payload_at(&d->segment, small[i]);
        assert_int_equal(bytes[0] + bytes[SMALL - 1], 2 * (uint8_t)i);
        tni_ref_release(d, small[i]);
    }
    tni_ref_release(d, large);
    flush_and_trim();
    assert_int_equal(committed(), 0);
    finish();
}

TN_TEST(a_block_taken_in_a_trimmed_span_gets_its_own_memory)
{
    begin(UINT64_C(16) * MIB);
    uint32_t live = keep_few();
    flush_and_trim();
    uint64_t before = committed();
    for (uint32_t i = live; i < 2 * live; i++) {
        TN_CHECK_OK(take(SMALL, &small[i]));
        assert_int_equal(tni_segment_committed(&d->segment, small[i]), SMALL);
        memset(tni_payload_at(&d->segment, small[i]), 1, SMALL);
    }
    /* The pages were committed one by one, as the blocks were taken. */
    uint64_t pages = live * SMALL / d->segment.geometry.page_bytes + 1;
    assert_in_range(committed(), before, before + pages * d->segment.geometry.page_bytes);
    for (uint32_t i = 0; i < 2 * live; i++)
        tni_ref_release(d, small[i]);
    flush_and_trim();
    assert_int_equal(committed(), 0);
    finish();
}

static void *trim_again_and_again(void *stop)
{
    while (!atomic_load((_Atomic bool *)stop))
        flush_and_trim();
    return NULL;
}

/* Hide the hint of a block, as if another process had it in its cache. */
static void hide_hint(tni_block block)
{
    uint32_t at = tni_block_position(&d->segment.geometry, block);
    struct tni_thread *thread = tni_thread_enter(d);
    tni_alloc_flush(d, thread);
    tni_thread_leave(thread);
    atomic_fetch_and(tni_hints_at(&d->segment, at), ~(UINT64_C(1) << (at % 64)));
}

TN_TEST(a_stolen_block_has_its_memory_while_another_thread_trims)
{
    struct turns turns = {.count = 128};
    pthread_t thread;
    tni_block block;
    begin(4 * MIB);
    pthread_barrier_init(&turns.barrier, NULL, 2);
    assert_int_equal(pthread_create(&thread, NULL, trim_at_each_turn, &turns), 0);
    for (int i = 0; i < turns.count; i++) {
        TN_CHECK_OK(take(3 * MIB, &block));
        tni_ref_release(d, block);
        hide_hint(block);
        pthread_barrier_wait(&turns.barrier);
        TN_CHECK_OK(take(3 * MIB, &block));
        assert_in_range(tni_segment_committed(&d->segment, block), 3 * MIB, 4 * MIB);
        tni_ref_release(d, block);
        pthread_barrier_wait(&turns.barrier);
    }
    pthread_join(thread, NULL);
    pthread_barrier_destroy(&turns.barrier);
    finish();
}

/* alloc.c I3, while another thread trims as fast as it can. */
TN_TEST(a_block_has_its_recorded_memory_while_another_thread_trims)
{
    enum { ROUNDS = 300, HELD = 64, SIZE = 192 };
    static _Atomic bool stop;
    static tni_block held[HELD];
    pthread_t thread;
    begin(UINT64_C(16) * MIB);
    assert_int_equal(pthread_create(&thread, NULL, trim_again_and_again, &stop), 0);
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < HELD; i++) {
            TN_CHECK_OK(take(SIZE, &held[i]));
            memset(tni_payload_at(&d->segment, held[i]), i + 1, SIZE);
        }
        for (int i = 0; i < HELD; i++) {
            const uint8_t *bytes = tni_payload_at(&d->segment, held[i]);
            assert_int_equal(tni_segment_committed(&d->segment, held[i]), SIZE);
            assert_int_equal(bytes[0] + bytes[SIZE - 1], 2 * (i + 1));
            if (i % 16 != round % 16)
                tni_ref_release(d, held[i]);
        }
        for (int i = round % 16; i < HELD; i += 16)
            tni_ref_release(d, held[i]);
    }
    atomic_store(&stop, true);
    pthread_join(thread, NULL);
    flush_and_trim();
    assert_int_equal(committed(), 0);
    finish();
}

TN_TEST(a_full_class_is_known_full_without_a_scan_of_its_blocks)
{
    enum { OF_ALL = 64 };
    static tni_block all[5 * OF_ALL + 1];
    uint32_t taken = 0;
    begin_with(UINT64_C(16) * MIB, OF_ALL);
    while (taken <= 5 * OF_ALL && take(SMALL, &all[taken]) == 0)
        taken++;
    /* The class of this size, and the four larger classes that serve when it is full. */
    assert_int_equal(taken, 5 * OF_ALL);
    assert_int_equal(take(SMALL, &all[taken]), TN_ERR_FULL);
    /* Free a block without clearing `full`: no allocation scans the words and finds it. */
    _Atomic uint64_t *word = tni_word_at(&d->segment, all[0]);
    uint64_t live = atomic_load(word);
    atomic_store(word, tni_word_next(live, TNI_BLOCK_FREE, 0));
    assert_int_equal(take(SMALL, &all[taken]), TN_ERR_FULL);
    atomic_store(word, live);
    for (uint32_t i = 0; i < 5; i++) {
        tni_block block = all[i * OF_ALL];
        tni_ref_release(d, block);
        TN_CHECK_OK(take(SMALL, &all[i * OF_ALL]));
        assert_int_equal(all[i * OF_ALL].id, block.id);
        assert_int_equal(take(SMALL, &all[taken]), TN_ERR_FULL);
    }
    for (uint32_t i = 0; i < taken; i++)
        tni_ref_release(d, all[i]);
    finish();
}

/* ---- memory that the program has locked -------------------------------------------------- */

enum { LOCKED_BYTES = 16 << 10, LARGE = 2 * MIB };

/* Take a block and lock its first pages, as a program does that forgets to unlock them. */
static void take_locked(uint64_t bytes, tni_block *ret_block)
{
    TN_CHECK_OK(take(bytes, ret_block));
    if (mlock(tni_payload_at(&d->segment, *ret_block), LOCKED_BYTES) != 0)
        tnt_skip("this process may lock no memory");
}

TN_TEST(memory_that_the_program_has_locked_is_given_back)
{
    tni_block blocks[2];
    begin(UINT64_C(4) * MIB);
    take_locked(LARGE, &blocks[0]);
    take_locked(LOCKED_BYTES, &blocks[1]);
    tni_ref_release(d, blocks[0]);
    tni_ref_release(d, blocks[1]);
    TN_CHECK_OK(take(4 * MIB, &blocks[0])); /* needs all of the quota */
    tni_ref_release(d, blocks[0]);
    flush_and_trim();
    assert_int_equal(committed(), 0);
    finish();
}

/* The program closed the arena's descriptor, and opened a file that got its number. */
TN_TEST(a_trim_discards_through_the_arenas_descriptor_only)
{
    int arena_fd, other;
    tni_block block;
    begin(UINT64_C(4) * MIB);
    take_locked(LARGE, &block);
    TN_CHECK((arena_fd = dup(d->segment.arena_fd)) >= 0);
    TN_CHECK_OK(tni_os_memory_create("other", d->segment.geometry.arena_bytes, &other));
    uint64_t offset = tni_block_offset(&d->segment.geometry, block);
    TN_CHECK_OK(tni_os_write_at(other, offset, "kept", 4));
    TN_CHECK(dup2(other, d->segment.arena_fd) >= 0);
    tni_ref_release(d, block);
    flush_and_trim();
    char text[4];
    TN_CHECK_OK(tni_os_read_at(other, offset, text, sizeof text));
    assert_memory_equal(text, "kept", sizeof text);
    TN_CHECK(dup2(arena_fd, d->segment.arena_fd) >= 0);
    close(other);
    close(arena_fd);
    finish();
}

/* ---- idle memory ------------------------------------------------------------------------- */

static void scan_for_idle_memory(void)
{
    atomic_store(&tni_alloc_part(d)->idle_ns, 0); /* a scan is due */
    tni_alloc_trim_idle(d);
}

TN_TEST(memory_unused_since_the_last_scan_is_given_back)
{
    tni_block idle[2], used[2], live;
    begin(UINT64_C(64) * MIB);
    TN_CHECK_OK(take(20 * MIB, &idle[0]));
    TN_CHECK_OK(take(SMALL, &idle[1]));
    TN_CHECK_OK(take(2 * MIB, &used[0]));
    TN_CHECK_OK(take(256, &used[1]));
    TN_CHECK_OK(take(MIB, &live));
    for (int i = 0; i < 2; i++) {
        tni_ref_release(d, idle[i]);
        tni_ref_release(d, used[i]);
    }
    uint64_t before = committed();
    scan_for_idle_memory();
    assert_int_equal(committed(), before);
    for (int i = 0; i < 2; i++) {
        TN_CHECK_OK(take(i == 0 ? 2 * MIB : 256, &used[i]));
        tni_ref_release(d, used[i]);
    }
    scan_for_idle_memory();
    assert_int_equal(committed(), 3 * MIB + (64 << 10));
    tni_alloc_trim_idle(d); /* no scan is due */
    assert_int_equal(committed(), 3 * MIB + (64 << 10));
    scan_for_idle_memory();
    assert_int_equal(committed(), MIB);
    tni_ref_release(d, live);
    finish();
}
