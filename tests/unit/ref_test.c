/* SPDX-License-Identifier: Apache-2.0 */
/* The room ref: counts and records of blocks agree. ref.c has I1 to I6. */
#include "ref/ref.h"

#include <string.h>
#include <unistd.h>

#include "harness/harness.h"

enum { MIB = 1 << 20, MOST_REFERENCES = 0xffffff };

static struct tn_domain *d;

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

static tni_block make(uint8_t kind, bool is_unfinished)
{
    const struct tni_block_about about = {.kind = kind, .is_unfinished = is_unfinished};
    struct tni_new_block made;
    TN_CHECK_OK(tni_ref_alloc(d, 1000, &about, 0, &made));
    return made.block;
}

static tni_block make_bytes(void) { return make(TNI_KIND_BYTES, false); }

static uint64_t word_of(tni_block block)
{
    return atomic_load(tni_word_at(&d->segment, block));
}

static uint32_t count_of(tni_block block) { return tni_word_count(word_of(block)); }
static bool is_free(tni_block block) { return (word_of(block) & TNI_WORD_USED) == 0; }

static bool has_hold(uint32_t seat, tni_block block)
{
    uint32_t at = tni_block_position(&d->segment.geometry, block);
    return atomic_load(tni_row_at(&d->segment, seat, at)) >> (at % 64) & 1;
}

static uint32_t locals_of(tni_block block)
{
    return atomic_load(&d->local[tni_block_position(&d->segment.geometry, block)]);
}

/* I1, when no operation is in flight. `more` records are this test's own. */
static void expect_counted(tni_block block, uint32_t more)
{
    assert_int_equal(count_of(block), tni_ref_count_records(&d->segment, block) + more);
    assert_false(tni_process_is_announced(&d->segment, NULL, block));
}

/* A record of this test's own, as a queue's slot would be one. */
static void lend(tni_block block, bool move)
{
    struct tni_thread *thread = tni_thread_enter(d);
    tni_announce_fence(thread, block);
    TN_CHECK_OK(tni_ref_lend(d, block, move));
    tni_announce_clear(thread);
    tni_thread_leave(thread);
}

static void adopt(tni_block block)
{
    struct tni_thread *thread = tni_thread_enter(d);
    tni_announce_fence(thread, block);
    tni_ref_before_move(d, block);
    tni_ref_adopt(d, thread, block);
    tni_thread_leave(thread);
}

/* ---- local references -------------------------------------------------------------------- */

TN_TEST(only_the_first_and_last_local_reference_change_the_hold)
{
    begin();
    tni_block block = make_bytes();
    assert_true(has_hold(d->seat, block));
    uint64_t word = word_of(block);
    tni_ref_local(d, block);
    assert_true(tni_ref_local_if_held(d, block));
    assert_int_equal(locals_of(block), 3);
    tni_ref_release(d, block);
    tni_ref_release(d, block);
    assert_int_equal(word_of(block), word);
    assert_true(has_hold(d->seat, block));
    expect_counted(block, 0);
    tni_ref_release(d, block);
    assert_false(has_hold(d->seat, block));
    assert_true(is_free(block));
    assert_false(tni_ref_local_if_held(d, block));
    finish();
}

TN_TEST(an_allocated_block_has_a_new_generation_and_one_holder)
{
    begin();
    tni_block block = make_bytes();
    uint32_t generation = tni_ref_generation(d, block);
    expect_counted(block, 0);
    tni_ref_release(d, block);
    assert_int_equal(make_bytes().id, block.id);
    assert_int_equal(tni_ref_generation(d, block), generation + 1);
    assert_int_equal(count_of(block), 1);
    tni_ref_release(d, block);
    finish();
}

TN_TEST(a_block_whose_word_is_wrongly_free_is_not_given_twice)
{
    begin();
    tni_block held = make_bytes(), hint = make_bytes();
    tni_ref_release(d, hint);
    struct tni_thread *thread = tni_thread_enter(d);
    uint32_t class_id = tni_block_class(held);
    thread->caches[class_id].id[thread->caches[class_id].count++] = held.id;
    tni_thread_leave(thread);
    uint64_t word = word_of(held);
    atomic_store(tni_word_at(&d->segment, held), tni_word_next(word, TNI_BLOCK_FREE, 0));
    tni_block other = make_bytes();
    assert_int_not_equal(other.id, held.id);
    assert_int_equal(locals_of(held), 1);
    tni_ref_release(d, other);
    tni_ref_release(d, held);
    finish();
}

/* ---- references that move ---------------------------------------------------------------- */

TN_TEST(a_lent_reference_counts_beside_the_hold)
{
    begin();
    tni_block block = make_bytes();
    lend(block, false);
    assert_int_equal(count_of(block), 2);
    expect_counted(block, 1);
    tni_ref_release(d, block);
    assert_int_equal(count_of(block), 1);
    adopt(block);
    expect_counted(block, 0);
    tni_ref_release(d, block);
    assert_true(is_free(block));
    finish();
}

TN_TEST(a_last_reference_moves_without_a_change_of_the_count)
{
    begin();
    tni_block block = make_bytes();
    uint64_t word = word_of(block);
    lend(block, true);
    assert_int_equal(word_of(block), word);
    assert_false(has_hold(d->seat, block));
    assert_int_equal(locals_of(block), 0);
    expect_counted(block, 1);
    adopt(block);
    assert_int_equal(word_of(block), word);
    assert_true(has_hold(d->seat, block));
    tni_ref_release(d, block);
    assert_true(is_free(block));
    finish();
}

TN_TEST(a_moved_reference_leaves_the_others_their_hold)
{
    begin();
    tni_block block = make_bytes();
    tni_ref_local(d, block);
    lend(block, true);
    assert_int_equal(locals_of(block), 1);
    assert_true(has_hold(d->seat, block));
    expect_counted(block, 1);
    adopt(block); /* held already: the record's reference is dropped */
    assert_int_equal(locals_of(block), 2);
    expect_counted(block, 0);
    tni_ref_release(d, block);
    tni_ref_release(d, block);
    assert_true(is_free(block));
    finish();
}

TN_TEST(a_reference_that_moves_during_a_recount_changes_the_word)
{
    begin();
    tni_block block = make_bytes();
    uint64_t word = word_of(block);
    atomic_store(&d->segment.header->recount, d->who);
    lend(block, true);
    assert_int_not_equal(word_of(block), word);
    assert_int_equal(count_of(block), 1);
    atomic_store(&d->segment.header->recount, 0);
    adopt(block);
    tni_ref_release(d, block);
    finish();
}

TN_TEST(a_block_with_too_many_references_gets_no_record)
{
    begin();
    tni_block block = make_bytes();
    uint64_t word = word_of(block);
    struct tni_thread *thread = tni_thread_enter(d);
    atomic_store(tni_word_at(&d->segment, block),
                 tni_word_next(word, TNI_BLOCK_ALLOC, MOST_REFERENCES - 1));
    tni_announce_fence(thread, block);
    assert_int_equal(tni_ref_lend(d, block, false), TN_ERR_FULL);
    assert_int_equal(tni_ref_check_room(d, block), TN_ERR_FULL);
    assert_int_equal(tni_ref_pin(d, block), TN_ERR_FULL);
    assert_int_equal(count_of(block), MOST_REFERENCES - 1);
    tni_announce_clear(thread);
    tni_thread_leave(thread);
    atomic_store(tni_word_at(&d->segment, block), word);
    tni_ref_release(d, block);
    finish();
}

/* ---- message blocks ---------------------------------------------------------------------- */

TN_TEST(a_freed_message_block_drops_what_its_records_name)
{
    begin();
    tni_block message = make(TNI_KIND_MESSAGE, false), kept = make_bytes(),
              moved = make_bytes();
    TN_CHECK_OK(tni_records_add(d, message, kept, false));
    TN_CHECK_OK(tni_records_add(d, message, moved, true));
    assert_int_equal(tni_ref_count_records(&d->segment, kept), 2);
    assert_int_equal(tni_ref_count_records(&d->segment, moved), 1);
    expect_counted(kept, 0);
    expect_counted(moved, 0);
    tni_ref_release(d, message);
    assert_true(is_free(message));
    assert_true(is_free(moved));
    expect_counted(kept, 0);
    tni_ref_release(d, kept);
    assert_true(is_free(kept));
    finish();
}

TN_TEST(a_full_message_block_takes_no_other_record)
{
    uint32_t count;
    begin();
    tni_block message = make(TNI_KIND_MESSAGE, false), block = make_bytes();
    struct tni_records *records = tni_records_at(&d->segment, message, &count);
    assert_int_equal(count, 0);
    uint64_t most = (tni_block_bytes(&d->segment.geometry, message) - sizeof *records) / 4;
    for (uint64_t i = 0; i < most; i++)
        TN_CHECK_OK(tni_records_add(d, message, block, false));
    assert_int_equal(tni_records_add(d, message, block, false), TN_ERR_CORRUPT);
    assert_int_equal(count_of(block), most + 1);
    tni_ref_release(d, message);
    expect_counted(block, 0);
    tni_ref_release(d, block);
    finish();
}

/* ---- fork and death ---------------------------------------------------------------------- */

static tni_block finished, unfinished;

static int check_inherited(void *argument)
{
    (void)argument;
    assert_true(has_hold(d->seat, finished));
    assert_int_equal(locals_of(finished), 1);
    assert_false(has_hold(d->seat, unfinished));
    assert_int_equal(locals_of(unfinished), 0);
    assert_int_equal(count_of(finished), 2);
    assert_int_equal(count_of(unfinished), 1);
    return 0;
}

TN_TEST(a_forked_child_holds_every_block_that_is_finished)
{
    begin();
    finished = make(TNI_KIND_BYTES, true);
    unfinished = make(TNI_KIND_BYTES, true);
    tni_ref_finish(d, finished);
    tnt_wait_ok(tnt_fork(check_inherited, NULL));
    /* The child ended with its hold: the reaper's part. */
    assert_int_equal(count_of(finished), 2);
    assert_int_equal(tni_ref_release_row(d, 1, false), 1);
    assert_int_equal(tni_ref_release_row(d, 1, false), 0);
    expect_counted(finished, 0);
    tni_ref_finish(d, unfinished);
    tni_ref_release(d, finished);
    tni_ref_release(d, unfinished);
    assert_true(is_free(finished) && is_free(unfinished));
    atomic_store(&tni_seat_at(&d->segment, 1)->word, 0);
    finish();
}

static bool reclaim(tni_block block, uint64_t seen, uint64_t records)
{
    struct tni_thread *thread = tni_thread_enter(d);
    atomic_store(&thread->announce->outer, block.id);
    bool is_done = tni_ref_reclaim(d, thread, block, seen, records);
    atomic_store(&thread->announce->outer, 0);
    tni_thread_leave(thread);
    return is_done;
}

/* As a thread leaves it that is killed between its announce and its record. */
static void count_once_too_often(tni_block block) { TN_CHECK_OK(tni_ref_pin(d, block)); }

TN_TEST(a_count_that_a_death_left_too_high_is_corrected)
{
    begin();
    tni_block block = make_bytes();
    count_once_too_often(block);
    assert_int_equal(count_of(block), 2);
    assert_true(reclaim(block, word_of(block), tni_ref_count_records(&d->segment, block)));
    expect_counted(block, 0);
    tni_ref_release(d, block);
    assert_true(is_free(block));
    finish();
}

TN_TEST(an_unrecorded_message_block_drops_its_references)
{
    begin();
    tni_block message = make(TNI_KIND_MESSAGE, false), block = make_bytes();
    TN_CHECK_OK(tni_records_add(d, message, block, true));
    lend(message, true); /* and no record is written */
    assert_int_equal(tni_ref_count_records(&d->segment, message), 0);
    assert_true(reclaim(message, word_of(message), 0));
    assert_true(is_free(message));
    assert_true(is_free(block));
    finish();
}

TN_TEST(a_recount_does_not_change_a_word_that_has_moved_on)
{
    begin();
    tni_block block = make_bytes();
    uint64_t seen = word_of(block);
    lend(block, false);
    uint64_t now = word_of(block);
    assert_false(reclaim(block, seen, 0));
    assert_false(reclaim(block, seen, 1));
    assert_int_equal(word_of(block), now);
    tni_ref_release(d, block);
    adopt(block);
    tni_ref_release(d, block);
    finish();
}

TN_TEST(references_that_are_left_at_close_keep_the_domain)
{
    begin();
    tni_block block = make_bytes();
    tni_ref_local(d, block);
    tni_process_begin_leave(d);
    tni_ref_close(d);
    assert_true(is_free(block));
    assert_int_equal(atomic_load(&d->keepers), 3);
    tni_process_leave(d);
    tni_ref_release(d, block);
    tni_ref_release(d, block);
    assert_int_equal(atomic_load(&d->keepers), 1);
    tni_process_unkeep(d);
}
