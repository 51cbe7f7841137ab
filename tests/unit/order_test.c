/* SPDX-License-Identifier: Apache-2.0 */
/* The room order: timelines, without a driver. tests/gpu have the streams. */
#include "order/order.h"

#include "harness/harness.h"

static struct tn_domain *d;
static const struct tni_segment *s;
static const uint64_t one = UINT64_C(0x0000000100040001), other = UINT64_C(0x0000000200050001);

static void begin(void)
{
    const struct tni_segment_options options = {.name = "timelines",
                                                .seats = 2,
                                                .blocks = 16,
                                                .objects = 8,
                                                .tickets = 8,
                                                .quota_bytes = 1 << 20};
    struct tni_segment segment;
    TN_CHECK_OK(tni_segment_create(&options, &segment));
    TN_CHECK_OK(tni_process_join(&segment, 0, &d));
    s = &d->segment;
}

static void end(void)
{
    tni_order_leave(d, true);
    tni_process_begin_leave(d);
    tni_process_leave(d);
    tni_process_unkeep(d);
}

static uint32_t take(uint64_t who)
{
    uint32_t timeline;
    assert_true(tni_timeline_take(s, who, &timeline));
    return timeline;
}

/* The owner has issued numbers up to `issued`, and its streams have written them up to `now`.
 */
static void advance(uint32_t timeline, uint64_t issued, uint64_t now)
{
    atomic_store(&tni_timeline_at(s, timeline)->issued, issued);
    atomic_store(tni_value_at(s, timeline), now);
}

static enum tni_order_state state(uint32_t timeline, uint64_t value)
{
    return tni_order_state(s, tni_token_make(timeline, value));
}

TN_TEST(a_token_is_pending_until_its_number_is_written)
{
    begin();
    uint32_t timeline = take(one);
    advance(timeline, 5, 3);
    assert_int_equal(state(timeline, 3), TNI_ORDER_DONE);
    assert_int_equal(state(timeline, 4), TNI_ORDER_PENDING);
    assert_int_equal(tni_order_state(s, 0), TNI_ORDER_DONE);
    assert_int_equal(tni_order_sync(d, tni_token_make(timeline, 4), 0, true), TN_ERR_TIMED_OUT);
    assert_int_equal(tni_order_sync(d, tni_token_make(timeline, 4), tnt_until_ns(20), true),
                     TN_ERR_TIMED_OUT);
    atomic_store(tni_value_at(s, timeline), 4);
    TN_CHECK_OK(tni_order_sync(d, tni_token_make(timeline, 4), 0, true));
    end();
}

TN_TEST(what_the_dead_did_not_write_is_lost)
{
    begin();
    uint32_t timeline = take(one);
    advance(timeline, 5, 3);
    tni_timelines_reclaim(s, other, 7);
    assert_int_equal(state(timeline, 4), TNI_ORDER_PENDING);
    tni_timelines_reclaim(s, one, 7);
    assert_int_equal(state(timeline, 3), TNI_ORDER_DONE);
    assert_int_equal(state(timeline, 4), TNI_ORDER_LOST);
    assert_int_equal(state(timeline, 5), TNI_ORDER_LOST);
    assert_int_equal(tni_order_fail_lost(s, tni_token_make(timeline, 5)), TN_ERR_PEER_DIED);
    assert_false(tni_timelines_has(s, one));
    assert_int_equal(take(other), timeline);
    assert_true(tni_timelines_has(s, other));
    advance(timeline, 6, 6);
    assert_int_equal(state(timeline, 5), TNI_ORDER_LOST);
    assert_int_equal(state(timeline, 6), TNI_ORDER_DONE);
    end();
}

/* A recoverer may die at each step, and the next one begins again. */
TN_TEST(a_timeline_is_settled_twice)
{
    begin();
    uint32_t timeline = take(one);
    advance(timeline, 5, 3);
    tni_timeline_settle(s, timeline, one, 7);
    atomic_store(&tni_timeline_at(s, timeline)->owner, one);
    atomic_store(tni_value_at(s, timeline), 3);
    tni_timeline_settle(s, timeline, one, 7);
    assert_int_equal(atomic_load(&tni_timeline_at(s, timeline)->losses), 1);
    assert_int_equal(atomic_load(tni_value_at(s, timeline)), 5);
    tni_timeline_settle(s, timeline, one, 7); /* it has no owner */
    end();
}

TN_TEST(losses_are_remembered_while_there_are_other_timelines)
{
    begin();
    for (uint64_t i = 0; i < 3 * TNI_LOSSES; i++) {
        uint32_t timeline = take(one);
        uint64_t from = atomic_load(tni_value_at(s, timeline));
        assert_int_equal(timeline, i / TNI_LOSSES);
        advance(timeline, from + 2, from + 1);
        tni_timelines_reclaim(s, one, (int32_t)i);
    }
    for (uint32_t timeline = 0; timeline < 3; timeline++)
        for (uint64_t value = 1; value <= 2 * TNI_LOSSES; value++)
            assert_int_equal(state(timeline, value),
                             value % 2 == 0 ? TNI_ORDER_LOST : TNI_ORDER_DONE);
    end();
}

TN_TEST(each_timeline_has_one_owner)
{
    begin();
    uint32_t timeline;
    for (uint32_t i = 0; i < TNI_TIMELINES; i++)
        assert_int_equal(take(i % 2 == 0 ? one : other), i);
    assert_false(tni_timeline_take(s, one, &timeline));
    tni_timelines_reclaim(s, other, 7);
    for (uint32_t i = 1; i < TNI_TIMELINES; i += 2)
        assert_int_equal(take(one), i);
    assert_false(tni_timeline_take(s, other, &timeline));
    end();
}

TN_TEST(a_timeline_without_numbers_is_not_taken_again)
{
    begin();
    uint32_t timeline = take(one);
    advance(timeline, TNI_TOKEN_VALUES - 1, 0);
    tni_timelines_reclaim(s, one, 7);
    assert_int_not_equal(take(one), timeline);
    assert_true(atomic_load(&tni_timeline_at(s, timeline)->owner) == TNI_TIMELINE_RETIRED);
    end();
}

TN_TEST(a_token_that_nobody_issued_is_refused)
{
    begin();
    uint32_t timeline = take(one);
    advance(timeline, 5, 3);
    const uint64_t good[] = {0, tni_token_make(timeline, 1), tni_token_make(timeline, 5)};
    const uint64_t bad[] = {1,
                            tni_token_make(timeline, 0),
                            tni_token_make(timeline, 6),
                            tni_token_make(timeline + 1, 1),
                            tni_token_make(TNI_TIMELINES, 1),
                            UINT64_MAX};
    for (size_t i = 0; i < TNI_COUNT(good); i++)
        TN_CHECK_OK(tni_order_check(s, good[i]));
    for (size_t i = 0; i < TNI_COUNT(bad); i++) {
        assert_int_equal(tni_order_check(s, bad[i]), TN_ERR_CORRUPT);
        (void)tni_order_state(s, bad[i]); /* reads nothing beyond the table */
    }
    end();
}
