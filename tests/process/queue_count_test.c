/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests: the counts of a queue, and the search for its messages, are right when rounds wrap
 * and when a hint is behind.
 */
#include <signal.h>
#include <stdatomic.h>
#include <string.h>

#include "harness/harness.h"
#include "process/queue_world.h"
#include "queue/queue.h"

/* Begin as if so many rounds had passed: a round has 32 bits. */
static void begin_at_round(uint32_t capacity, uint32_t policy, uint32_t round)
{
    begin(capacity, policy);
    struct tni_queue *own = tni_queue_of(q);
    for (uint32_t i = 0; i < capacity; i++)
        atomic_store(&tni_slot_at(own, i)->word, tni_slot_word(round, TNI_SLOT_EMPTY, 0, 0));
    atomic_store(&own->handle.object->head, tni_position(round, 0));
    atomic_store(&own->handle.object->tail, tni_position(round, 0));
    atomic_store(&own->handle.object->unpushed, (uint64_t)round * capacity);
}

static uint64_t pushed_so_far(void)
{
    struct tni_queue_figures figures;
    tni_queue_figures(&d->segment, q->index, &figures);
    return figures.pushed;
}

static int push_and_take(void *unused)
{
    struct tni_taken taken;
    (void)unused;
    push_number(8);
    struct tni_thread *thread = tni_thread_enter(d);
    TN_CHECK_OK(tni_ring_find(tni_queue_of(q), &taken));
    TN_CHECK(tni_ring_take(tni_queue_of(q), thread, &taken));
    return raise(SIGKILL);
}

TN_TEST(counts_are_right_though_rounds_wrap_and_members_die)
{
    for (uint32_t capacity = 1; capacity <= 3; capacity++) {
        uint64_t pushed = 0;
        begin_at_round(capacity, 0, UINT32_MAX - 2);
        for (uint32_t i = 0; i < 6 * capacity; i++) {
            tnt_wait(tnt_fork(push_and_take,
                              NULL)); /* the message that it took is delivered again */
            TN_CHECK_OK(tn_domain_reap(d, NULL));
            assert_int_equal(tn_queue_count(q), 1);
            assert_int_equal(pop_number(TN_NOW), 8);
            assert_int_equal(tn_queue_count(q), 0);
            assert_int_equal(pushed_so_far(), ++pushed);
        }
        finish();
    }
}

TN_TEST(a_lease_that_lasts_while_rounds_wrap_comes_back)
{
    tn_message m;
    begin_at_round(3, TN_QUEUE_LEASE, UINT32_MAX - 1);
    push_number(1);
    TN_CHECK_OK(tn_queue_pop(q, TN_NOW, &m));
    for (uint32_t i = 0; i < 12; i++) {
        tn_message other;
        push_number(100 + i);
        TN_CHECK_OK(tn_queue_pop(q, TN_NOW, &other));
        TN_CHECK_OK(tn_message_ack(q, &other));
        tn_message_fini(&other);
    }
    assert_int_equal(tn_queue_count(q), 0);
    TN_CHECK_OK(tn_message_return(q, &m));
    tn_message_fini(&m);
    assert_true(tn_queue_count(q) >= 1);
    TN_CHECK_OK(tn_queue_pop(q, TN_NOW, &m));
    assert_int_equal(m.attempt, 1);
    TN_CHECK_OK(tn_message_ack(q, &m));
    tn_message_fini(&m);
    assert_int_equal(tn_queue_count(q), 0);
    finish();
}

TN_TEST(a_lease_of_the_last_round_before_the_wrap_is_found_again)
{
    tn_message m[3];
    begin_at_round(3, TN_QUEUE_LEASE, UINT32_MAX);
    for (uint32_t i = 0; i < 3; i++)
        push_number(i);
    for (uint32_t i = 0; i < 3; i++)
        TN_CHECK_OK(tn_queue_pop(q, TN_NOW, &m[i]));
    for (uint32_t i = 0; i < 2; i++) {
        TN_CHECK_OK(tn_message_ack(q, &m[i]));
        tn_message_fini(&m[i]);
    }
    assert_int_equal(tn_queue_count(q), 0);
    TN_CHECK_OK(tn_message_return(q, &m[2]));
    tn_message_fini(&m[2]);
    assert_int_equal(tn_queue_count(q), 1);
    TN_CHECK_OK(tn_queue_pop(q, TN_NOW, &m[2]));
    TN_CHECK_OK(tn_message_ack(q, &m[2]));
    tn_message_fini(&m[2]);
    finish();
}

/*
 * The head is at a lease that was given back and leased again; all slots but one are a round
 * ahead.
 */
TN_TEST(a_message_behind_leases_of_two_rounds_is_counted)
{
    tn_message m[4];
    begin(4, TN_QUEUE_LEASE);
    for (uint32_t i = 0; i < 4; i++)
        push_number(i);
    for (uint32_t i = 0; i < 4; i++)
        TN_CHECK_OK(tn_queue_pop(q, TN_NOW, &m[i]));
    TN_CHECK_OK(tn_message_return(q, &m[0]));
    tn_message_fini(&m[0]);
    TN_CHECK_OK(tn_queue_pop(q, TN_NOW, &m[0]));
    assert_int_equal(tn_queue_count(q), 0);
    TN_CHECK_OK(tn_message_ack(q, &m[3]));
    tn_message_fini(&m[3]);
    push_number(4);
    assert_true(tn_queue_count(q) >= 1);
    TN_CHECK_OK(tn_queue_pop(q, TN_NOW, &m[3]));
    assert_int_equal(tn_queue_count(q), 0);
    for (uint32_t i = 0; i < 4; i++) {
        TN_CHECK_OK(tn_message_ack(q, &m[i]));
        tn_message_fini(&m[i]);
    }
    finish();
}

#if defined(TN_KILL_POINTS)

static int push_a_nine(void *unused)
{
    (void)unused;
    push_number(9);
    return 0;
}

TN_TEST(a_message_is_counted_though_its_pusher_left_the_tail_behind)
{
    begin(2, 0);
    for (uint32_t i = 1; i <= 2; i++) {
        assert_true(tnt_kill_at("push_full", 1, push_a_nine, NULL));
        assert_int_equal(tn_queue_count(q), i);
        TN_CHECK_OK(tn_domain_reap(d, NULL));
        assert_int_equal(tn_queue_count(q), i);
    }
    for (uint32_t i = 2; i > 0; i--) {
        assert_int_equal(pop_number(TN_NOW), 9);
        assert_int_equal(tn_queue_count(q), i - 1);
    }
    finish();
}

/* No process pops while producers die with a claimed slot, so the head stays where it is. */
TN_TEST(a_message_is_found_however_far_the_head_is_behind)
{
    for (uint32_t capacity = 1; capacity <= 2; capacity++) {
        begin_at_round(capacity, 0, UINT32_MAX - 2);
        for (uint32_t i = 0; i < 8; i++) {
            assert_true(tnt_kill_at("push_claimed", 1, push_a_nine, NULL));
            TN_CHECK_OK(tn_domain_reap(d, NULL));
        }
        push_number(7);
        assert_int_equal(tn_queue_count(q), 1);
        assert_int_equal(tn_object_wait_any(&q, 1, TN_NOW), 0);
        assert_int_equal(pop_number(TN_NOW), 7);
        assert_int_equal(tn_queue_count(q), 0);
        finish();
    }
}

static uint32_t pop_and_acknowledge(void)
{
    tn_message m;
    uint32_t number;
    TN_CHECK_OK(tn_queue_pop(q, TN_NOW, &m));
    memcpy(&number, m.bytes, sizeof number);
    TN_CHECK_OK(tn_message_ack(q, &m));
    tn_message_fini(&m);
    return number;
}

/* Each pair of deaths has moved the lease in the head's slot to the next round. */
TN_TEST(a_message_is_found_behind_a_lease_that_was_carried_on)
{
    for (uint32_t deaths = 0; deaths <= 6; deaths++) {
        tn_message lease;
        begin(2, TN_QUEUE_LEASE);
        push_number(1);
        TN_CHECK_OK(tn_queue_pop(q, TN_NOW, &lease));
        push_number(2);
        assert_int_equal(pop_and_acknowledge(), 2);
        for (uint32_t i = 0; i < deaths; i++) {
            assert_true(tnt_kill_at("push_claimed", 1, push_a_nine, NULL));
            TN_CHECK_OK(tn_domain_reap(d, NULL));
        }
        push_number(7);
        assert_int_equal(tn_queue_count(q), 1);
        assert_int_equal(tn_object_wait_any(&q, 1, TN_NOW), 0);
        assert_int_equal(pop_and_acknowledge(), 7);
        TN_CHECK_OK(tn_message_ack(q, &lease));
        tn_message_fini(&lease);
        finish();
    }
}

#endif
