/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The room queue: slots and positions (ring.c, I1 to I4), forms of messages (message.c), and
 * roles. A queue of three slots, which is no power of two, unless a test says
 * otherwise.
 */
#include "queue/ring.h"

#include "object_room.h"

enum { CAPACITY = 3 };

static struct tni_queue *q;

static void begin(uint32_t policy)
{
    tn_queue *handle = NULL;
    join(16);
    static const struct tni_kind *const kinds[TNI_OBJECT_KINDS] = {[TNI_OBJECT_QUEUE] =
                                                                       &tni_queue_kind};
    tni_object_set_kinds(domain, kinds);
    tni_object_init(domain);
    TN_CHECK_OK(tn_queue_open(
        domain, NULL, TN_OPTIONS(tn_queue_options, .capacity = CAPACITY, .policy = policy), 0,
        &handle));
    q = tni_queue_of(handle);
}

static int push(uint32_t value)
{
    const tn_message message = {.bytes = &value, .size_bytes = sizeof value};
    return tn_queue_push(&q->handle, &message, 0, TN_NOW);
}

/* @return the value; or a status, below 0 */
static int64_t pop_attempt(uint32_t attempt)
{
    tn_message message = {0};
    uint32_t value = 0;
    int status = tn_queue_pop(&q->handle, TN_NOW, &message);
    if (status != 0)
        return status;
    assert_int_equal(message.size_bytes, sizeof value);
    assert_int_equal(message.attempt, attempt);
    memcpy(&value, message.bytes, sizeof value);
    tn_message_fini(&message);
    return value;
}

static int64_t pop(void) { return pop_attempt(0); }

static uint32_t slot_state(uint32_t index)
{
    return tni_slot_state(atomic_load(&tni_slot_at(q, index)->word));
}

static int push_in_child(void *argument) { return push(*(const uint32_t *)argument); }

static int pop_in_child(void *argument)
{
    (void)argument;
    return pop() >= 0 ? 0 : 1;
}

/* ---- arguments --------------------------------------------------------------------------- */

static void refuse(const tn_message *message, const char *sentence)
{
    assert_int_equal(tn_queue_push(&q->handle, message, 0, TN_NOW), TN_ERR_INVALID);
    assert_non_null(strstr(tn_error_detail(), sentence));
    assert_int_equal(tn_queue_count(&q->handle), 0);
}

TN_TEST(a_message_that_cannot_be_pushed_is_refused_by_what_is_wrong)
{
    begin(TN_QUEUE_REDELIVER);
    tn_tensor *none = NULL;
    refuse(&(tn_message){.tensors = &none, .tensor_count = TN_MESSAGE_MAX_TENSORS + 1},
           "it can have at most");
    refuse(&(tn_message){.tensor_count = 1}, "tensors of the message is NULL");
    refuse(&(tn_message){.size_bytes = 1}, "bytes of the message is NULL");
    refuse(&(tn_message){.bytes = "x", .size_bytes = SIZE_MAX}, "more than any memory has");
    refuse(&(tn_message){.tensors = &none, .tensor_count = 1},
           "tensor 0 of the message is NULL");
    finish();
}

TN_TEST(a_count_of_messages_that_no_result_can_tell_is_refused)
{
    begin(TN_QUEUE_REDELIVER);
    tn_message message = {0};
    const uint32_t count = UINT32_C(1) << 31;
    assert_int_equal(tn_queue_push_many(&q->handle, &message, count, 0, TN_NOW),
                     TN_ERR_INVALID);
    assert_non_null(strstr(tn_error_detail(), "count is 2147483648"));
    assert_int_equal(tn_queue_pop_many(&q->handle, count, TN_NOW, &message), TN_ERR_INVALID);
    assert_non_null(strstr(tn_error_detail(), "count is 2147483648"));
    assert_int_equal(tn_queue_count(&q->handle), 0);
    finish();
}

/* ---- positions --------------------------------------------------------------------------- */

TN_TEST(three_slots_keep_the_order_for_many_rounds)
{
    enum { MESSAGES = 1000 };
    uint32_t pushed = 0;
    begin(TN_QUEUE_REDELIVER);
    for (uint32_t popped = 0; popped < MESSAGES; popped++) {
        for (uint64_t n = tnt_random_below(CAPACITY) + 1; pushed - popped < n; pushed++)
            assert_int_equal(push(pushed), 0);
        assert_int_equal(tn_queue_count(&q->handle), pushed - popped);
        assert_int_equal(pop(), popped);
    }
    while (pushed < MESSAGES + CAPACITY)
        assert_int_equal(push(pushed++), 0);
    assert_int_equal(push(pushed), TN_ERR_TIMED_OUT);
    assert_int_equal(atomic_load(&q->handle.object->tail),
                     tni_position(pushed / CAPACITY, pushed % CAPACITY));
    finish();
}

/* As if all rounds but the last had passed. */
static void go_to_last_round(void)
{
    struct tni_object *object = q->handle.object;
    for (uint32_t i = 0; i < CAPACITY; i++)
        atomic_store(&tni_slot_at(q, i)->word, tni_slot_word(UINT32_MAX, TNI_SLOT_EMPTY, 0, 0));
    atomic_store(&object->head, tni_position(UINT32_MAX, 0));
    atomic_store(&object->tail, tni_position(UINT32_MAX, 0));
    atomic_store(&object->unpushed, (uint64_t)UINT32_MAX * CAPACITY);
}

TN_TEST(order_and_counts_go_on_when_rounds_wrap)
{
    struct tni_queue_figures figures;
    begin(TN_QUEUE_REDELIVER);
    go_to_last_round();
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(push(i), 0);
    for (uint32_t i = 2; i < 4 * CAPACITY; i++) {
        assert_int_equal(push(i), 0);
        assert_int_equal(push(i), TN_ERR_TIMED_OUT);
        assert_int_equal(tn_queue_count(&q->handle), CAPACITY);
        assert_int_equal(pop(), i - 2);
        tni_queue_figures(&domain->segment, q->handle.index, &figures);
        assert_int_equal(figures.pushed, i + 1);
    }
    assert_int_equal(tni_position_round(atomic_load(&q->handle.object->tail)), 3);
    finish();
}

TN_TEST(head_and_tail_that_are_behind_lose_no_message)
{
    begin(TN_QUEUE_REDELIVER);
    for (uint32_t i = 0; i < 20 * CAPACITY; i++) { /* I2: they are hints */
        assert_int_equal(push(i), 0);
        assert_int_equal(pop(), i);
    }
    atomic_store(&q->handle.object->head, tni_position(3, 1));
    atomic_store(&q->handle.object->tail, tni_position(19, 2));
    assert_int_equal(push(7), 0);
    assert_int_equal(pop(), 7);
    assert_int_equal(pop(), TN_ERR_TIMED_OUT);
    finish();
}

/* ---- deaths ------------------------------------------------------------------------------ */

/* I1: the claim names its owner. */
TN_TEST(a_slot_claimed_by_a_dead_producer_is_skipped_then_used_again)
{
    uint32_t lost = 1;
    begin(TN_QUEUE_REDELIVER);
    assert_int_equal(push(0), 0);
    die_at("push_claimed", push_in_child, &lost);
    assert_int_equal(slot_state(1), TNI_SLOT_CLAIMED);
    assert_int_equal(tni_slot_seat(atomic_load(&tni_slot_at(q, 1)->word)), board->seat);
    assert_int_equal(push(2), 0);
    assert_int_equal(pop(), 0);
    assert_int_equal(pop(), 2); /* also before the seat is reclaimed */
    tni_ring_reclaim_seat(domain, q->handle.object, board->seat);
    assert_int_equal(slot_state(1), TNI_SLOT_EMPTY);
    assert_int_equal(pop(), TN_ERR_TIMED_OUT);
    for (uint32_t i = 0; i < CAPACITY; i++)
        assert_int_equal(push(i), 0);
    assert_int_equal(push(9), TN_ERR_TIMED_OUT);
    for (uint32_t i = 0; i < CAPACITY; i++)
        assert_int_equal(pop(), i);
    finish();
}

TN_TEST(a_message_that_a_dead_consumer_took_comes_first_again)
{
    begin(TN_QUEUE_REDELIVER);
    for (uint32_t i = 0; i < CAPACITY; i++)
        assert_int_equal(push(i), 0);
    die_at("pop_taken", pop_in_child, NULL);
    assert_int_equal(pop(), 1); /* the slot is skipped while its owner may live */
    tni_ring_reclaim_seat(domain, q->handle.object, board->seat);
    assert_int_equal(pop_attempt(1), 0);
    assert_int_equal(pop(), 2);
    finish();
}

TN_TEST(a_queue_that_drops_drops_what_a_dead_consumer_took)
{
    begin(TN_QUEUE_DROP);
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(push(i), 0);
    die_at("pop_taken", pop_in_child, NULL);
    tni_ring_reclaim_seat(domain, q->handle.object, board->seat);
    assert_int_equal(slot_state(0), TNI_SLOT_EMPTY);
    assert_int_equal(pop(), 1);
    finish();
}

static int reclaim_in_child(void *seat)
{
    tni_ring_reclaim_seat(domain, q->handle.object, *(const uint32_t *)seat);
    return 0;
}

TN_TEST(one_attempt_is_counted_however_often_recoverers_die)
{
    static const char *const points[] = {"slot_returning", "attempt_counted", "refill_full"};
    begin(TN_QUEUE_REDELIVER);
    for (uint32_t p = 0; p < TNI_COUNT(points); p++) {
        assert_int_equal(push(p), 0);
        die_at("pop_taken", pop_in_child, NULL);
        uint32_t dead = board->seat;
        die_at(points[p], reclaim_in_child, &dead);
        tni_ring_reclaim_seat(domain, q->handle.object, dead);
        assert_int_equal(pop_attempt(1), p);
    }
    finish();
}

/* ---- leases ------------------------------------------------------------------------------ */

TN_TEST(pushes_pass_a_lease_for_many_rounds_and_it_comes_back_first)
{
    tn_message leased = {0}, message = {0};
    begin(TN_QUEUE_LEASE);
    assert_int_equal(push(100), 0);
    assert_int_equal(tn_queue_pop(&q->handle, TN_NOW, &leased), 0);
    for (uint32_t i = 0; i < 10 * CAPACITY; i++) {
        assert_int_equal(push(i), 0);
        assert_int_equal(tn_queue_pop(&q->handle, TN_NOW, &message), 0);
        assert_int_equal(*(const uint32_t *)message.bytes, i);
        assert_int_equal(tn_message_ack(&q->handle, &message), 0);
        tn_message_fini(&message);
    }
    assert_int_equal(push(1), 0);
    assert_int_equal(push(2), 0);
    assert_int_equal(push(3), TN_ERR_TIMED_OUT);
    assert_int_equal(tn_message_return(&q->handle, &leased), 0);
    tn_message_fini(&leased);
    assert_int_equal(tn_queue_pop(&q->handle, TN_NOW, &message), 0);
    assert_int_equal(*(const uint32_t *)message.bytes, 100);
    assert_int_equal(message.attempt, 1);
    tn_message_fini(&message);
    finish();
}

TN_TEST(a_lease_of_the_last_round_comes_back_in_the_first)
{
    tn_message leased = {0}, message = {0};
    begin(TN_QUEUE_LEASE);
    go_to_last_round();
    for (uint32_t i = 0; i < CAPACITY; i++) {
        assert_int_equal(push(i), 0);
        tn_message_fini(&leased);
        assert_int_equal(tn_queue_pop(&q->handle, TN_NOW, &leased), 0);
        if (i + 1 < CAPACITY)
            assert_int_equal(tn_message_ack(&q->handle, &leased), 0);
    }
    assert_int_equal(atomic_load(&q->handle.object->head), tni_position(0, 0));
    assert_int_equal(tn_message_return(&q->handle, &leased), 0);
    assert_int_equal(atomic_load(&q->handle.object->head), tni_position(UINT32_MAX, 2));
    tn_message_fini(&leased);
    assert_int_equal(tn_queue_pop(&q->handle, TN_NOW, &message), 0);
    assert_int_equal(*(const uint32_t *)message.bytes, CAPACITY - 1);
    tn_message_fini(&message);
    finish();
}

TN_TEST(a_lease_is_ended_once_and_by_its_own_process)
{
    tn_message first = {0}, second = {0};
    begin(TN_QUEUE_LEASE);
    assert_int_equal(push(1), 0);
    assert_int_equal(tn_queue_pop(&q->handle, TN_NOW, &first), 0);
    uint64_t lease = first.lease - 1;
    assert_int_equal(tn_message_ack(&q->handle, &first), 0);
    assert_int_equal(tni_ring_lease_end(q, lease, false), TN_ERR_STALE);
    for (uint32_t i = 0; i < CAPACITY; i++) /* a later lease of the same slot */
        assert_int_equal(push(i), 0);
    for (uint32_t i = 0; i < CAPACITY; i++) {
        tn_message_fini(&second);
        assert_int_equal(tn_queue_pop(&q->handle, TN_NOW, &second), 0);
    }
    assert_int_equal(tni_position_index(second.lease - 1), tni_position_index(lease));
    assert_int_equal(tni_ring_lease_end(q, lease, false), TN_ERR_STALE);
    tn_message_fini(&first);
    tn_message_fini(&second);
    finish();
}

/* ---- messages, roles, kinds -------------------------------------------------------------- */

TN_TEST(bytes_that_fill_the_slot_lie_in_it_and_one_more_in_a_block)
{
    struct tni_taken found;
    uint8_t bytes[8192] = {1};
    begin(TN_QUEUE_REDELIVER);
    for (uint32_t more = 0; more < 2; more++) {
        tn_message message = {.bytes = bytes, .size_bytes = q->room_bytes + more};
        assert_int_equal(tn_queue_push(&q->handle, &message, 0, TN_NOW), 0);
        assert_int_equal(tni_ring_find(q, &found), 0);
        assert_int_equal(tni_form_form(found.form), more ? TNI_FORM_MESSAGE : TNI_FORM_BYTES);
        assert_int_equal(found.block.id != 0, more);
        if (more) /* I3 */
            assert_int_equal(tni_queue_count_records(&domain->segment, found.block), 1);
        assert_int_equal(tn_queue_pop(&q->handle, TN_NOW, &message), 0);
        assert_int_equal(message.size_bytes, q->room_bytes + more);
        tn_message_fini(&message);
    }
    finish();
}

TN_TEST(the_first_push_and_the_first_pop_take_a_role)
{
    begin(TN_QUEUE_REDELIVER);
    const struct tni_object *object = q->handle.object;
    assert_int_equal(push(1), 0);
    assert_true(tni_seat_set_has(&object->producers, domain->seat));
    assert_false(tni_seat_set_has(&object->consumers, domain->seat));
    assert_int_equal(pop(), 1);
    assert_true(tni_seat_set_has(&object->consumers, domain->seat));
    finish();
}
