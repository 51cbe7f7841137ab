/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls that cannot be: without an argument that they need, on what is closed, with a reference
 * too many. Each is an error that changes nothing.
 */
#include <stdlib.h>
#include <string.h>

#include "harness/harness.h"
#include "harness/live_blocks.h"
#include "queue/ring.h"
#include "ref/ref.h"

static tn_domain *d;

static void begin(void)
{
    d = tnt_domain(&(tn_domain_options){.struct_size = sizeof(tn_domain_options),
                                        .quota_bytes = 16 << 20,
                                        .flags = TN_DOMAIN_NO_MANAGER});
}

static void finish(void)
{
    TNT_AUDIT(d);
    tn_domain_close(d);
}

#define INVALID(call) assert_int_equal(call, TN_ERR_INVALID)
#define CLOSED(call)  assert_int_equal(call, TN_ERR_CLOSED)

/* ---- arguments that are missing ---------------------------------------------------------- */

#define OPENERS_REFUSE(kind, create)                                                           \
    do {                                                                                       \
        tn_##kind *it;                                                                         \
        INVALID(create);                                                                       \
        INVALID(tn_##kind##_open(NULL, "x", &it));                                             \
        INVALID(tn_##kind##_open(d, NULL, &it));                                               \
        INVALID(tn_##kind##_open(d, "x", NULL));                                               \
        INVALID(tn_##kind##_open_id(NULL, 1, &it));                                            \
        INVALID(tn_##kind##_open_id(d, 1, NULL));                                              \
        assert_int_equal(tn_##kind##_open_id(d, UINT64_C(7) << 32, &it), TN_ERR_NOT_FOUND);    \
        assert_int_equal(tn_##kind##_open(d, "x", &it), TN_ERR_NOT_FOUND);                     \
        INVALID(tn_##kind##_open(d, "no/name", &it));                                          \
        assert_null(tn_##kind##_close(NULL));                                                  \
        assert_int_equal(tn_##kind##_id(NULL), 0);                                             \
    } while (0)

TN_TEST(no_object_is_made_or_opened_without_what_it_takes)
{
    begin();
    OPENERS_REFUSE(queue, tn_queue_create(NULL, NULL, NULL, &it));
    OPENERS_REFUSE(queue, tn_queue_create(d, NULL, NULL, NULL));
    OPENERS_REFUSE(event, tn_event_create(NULL, NULL, false, &it));
    OPENERS_REFUSE(event, tn_event_create(d, NULL, false, NULL));
    OPENERS_REFUSE(semaphore, tn_semaphore_create(NULL, NULL, 1, 0, &it));
    OPENERS_REFUSE(semaphore, tn_semaphore_create(d, NULL, 1, 0, NULL));
    OPENERS_REFUSE(lock, tn_lock_create(NULL, NULL, &it));
    OPENERS_REFUSE(lock, tn_lock_create(d, NULL, NULL));
    OPENERS_REFUSE(condition, tn_condition_create(NULL, NULL, &it));
    OPENERS_REFUSE(condition, tn_condition_create(d, NULL, NULL));
    OPENERS_REFUSE(barrier, tn_barrier_create(NULL, NULL, 1, &it));
    OPENERS_REFUSE(barrier, tn_barrier_create(d, NULL, 1, NULL));
    finish();
}

TN_TEST(no_call_on_an_object_goes_without_the_object)
{
    tn_message message;
    tn_tensor *t;
    begin();
    INVALID(tn_event_set(NULL));
    INVALID(tn_event_clear(NULL));
    INVALID(tn_event_wait(NULL, TN_NOW));
    assert_false(tn_event_is_set(NULL));
    INVALID(tn_semaphore_acquire(NULL, TN_NOW));
    INVALID(tn_semaphore_release(NULL));
    assert_int_equal(tn_semaphore_get(NULL), 0);
    INVALID(tn_lock_acquire(NULL, TN_NOW));
    INVALID(tn_lock_release(NULL));
    INVALID(tn_condition_signal(NULL));
    INVALID(tn_condition_broadcast(NULL));
    INVALID(tn_condition_wait(NULL, NULL, TN_NOW));
    INVALID(tn_barrier_wait(NULL, TN_NOW));
    INVALID(tn_barrier_reset(NULL));
    INVALID(tn_queue_push(NULL, &message, 0, TN_NOW));
    INVALID(tn_queue_pop(NULL, TN_NOW, &message));
    INVALID(tn_queue_pop_tensor(NULL, TN_NOW, &t));
    INVALID(tn_queue_end(NULL));
    INVALID(tn_queue_attach(NULL, TN_PRODUCER));
    INVALID(tn_queue_watch(NULL, true));
    INVALID(tn_queue_wait_any(NULL, 1, TN_NOW));
    INVALID(tn_message_ack(NULL, &message));
    assert_int_equal(tn_queue_count(NULL), 0);
    assert_int_equal(tn_queue_capacity(NULL), 0);
    tn_message_fini(NULL);
    tn_domain_poll_clear(NULL);
    INVALID(tn_domain_poll_fd(NULL, NULL));
    INVALID(tn_ticket_for_each(NULL, NULL, NULL));
    INVALID(tn_ticket_for_each(d, NULL, NULL));
    INVALID(tn_ticket_revoke(NULL, (tn_ticket_id){1}));
    INVALID(tn_ticket_revoke(d, (tn_ticket_id){0}));
    finish();
}

TN_TEST(options_that_make_no_sense_are_refused)
{
    tn_queue_options options = {.struct_size = sizeof options};
    const int64_t count = 1;
    uint8_t bytes[TN_HANDLE_MAX_BYTES];
    size_t used;
    tn_queue *q;
    tn_tensor *t;
    tn_semaphore *semaphore;
    tn_barrier *barrier;
    begin();
    options.capacity = 1u << 21;
    INVALID(tn_queue_create(d, NULL, &options, &q));
    options = (tn_queue_options){.struct_size = sizeof options, .policy = 3};
    INVALID(tn_queue_create(d, NULL, &options, &q));
    options = (tn_queue_options){.struct_size = 1};
    INVALID(tn_queue_create(d, NULL, &options, &q));
    INVALID(tn_semaphore_create(d, NULL, UINT32_MAX, 0, &semaphore));
    INVALID(tn_semaphore_create(d, NULL, 1, 1u << 7, &semaphore));
    INVALID(tn_barrier_create(d, NULL, 0, &barrier));
    TN_CHECK_OK(tn_tensor_create(d, TN_UINT8, 1, &count,
                                 TN_OPTIONS(tn_tensor_options, .flags = TN_TENSOR_ZEROED), &t));
    INVALID(tn_handle_export(
        t, &(tn_handle_options){.struct_size = sizeof(tn_handle_options), .uses = 1u << 20},
        bytes, sizeof bytes, &used));
    INVALID(tn_handle_export(t, &(tn_handle_options){.struct_size = 1}, bytes, sizeof bytes,
                             &used));
    INVALID(tn_handle_ticket(bytes, 3, &(tn_ticket_id){0}));
    INVALID(tn_handle_ticket(bytes, 3, NULL));
    INVALID(tn_handle_export(NULL, NULL, bytes, sizeof bytes, &used));
    INVALID(tn_handle_export(t, NULL, bytes, sizeof bytes, NULL));
    INVALID(tn_handle_import(NULL, bytes, sizeof bytes, &t));
    INVALID(tn_handle_import(d, bytes, sizeof bytes, NULL));
    tn_tensor_unref(t);
    finish();
}

TN_TEST(a_message_larger_than_any_block_is_refused)
{
    tn_queue *q;
    begin();
    TN_CHECK_OK(tn_queue_create(d, NULL, NULL, &q));
    const tn_message message = {.bytes = "x", .size_bytes = SIZE_MAX / 2};
    assert_true(tn_queue_push(q, &message, 0, TN_NOW) < 0);
    INVALID(tn_queue_wait_any(&(tn_queue *){q}, 0, TN_NOW));
    INVALID(tn_queue_pop_tensor(q, TN_NOW, NULL));
    INVALID(tn_queue_pop_many(q, 1, TN_NOW, NULL));
    assert_int_equal(tn_queue_pop_many(q, 0, TN_NOW, NULL), 0);
    assert_int_equal(tn_queue_count(q), 0);
    tn_queue_close(q);
    finish();
}

TN_TEST(queues_of_two_domains_cannot_be_waited_for_together)
{
    tn_queue *both[2];
    tn_domain *other;
    begin();
    other = tnt_domain(&(tn_domain_options){.struct_size = sizeof(tn_domain_options),
                                            .quota_bytes = 16 << 20,
                                            .flags = TN_DOMAIN_NO_MANAGER});
    TN_CHECK_OK(tn_queue_create(d, NULL, NULL, &both[0]));
    TN_CHECK_OK(tn_queue_create(other, NULL, NULL, &both[1]));
    INVALID(tn_queue_wait_any(both, 2, TN_NOW));
    tn_queue_close(both[0]);
    tn_queue_close(both[1]);
    tn_domain_close(other);
    finish();
}

TN_TEST(the_pollable_descriptor_is_one_however_often_it_is_asked_for)
{
    tn_queue *q;
    int one, again;
    begin();
    TN_CHECK_OK(tn_queue_create(d, NULL, NULL, &q));
    TN_CHECK_OK(tn_queue_watch(q, true));
    TN_CHECK_OK(tn_domain_poll_fd(d, &one));
    TN_CHECK_OK(tn_domain_poll_fd(d, &again));
    assert_int_equal(one, again);
    TN_CHECK_OK(tn_queue_watch(q, false));
    tn_queue_close(q);
    finish();
}

TN_TEST(a_tenond_that_cannot_be_started_is_an_error_that_names_it)
{
    const tn_domain_options options = {.struct_size = sizeof options, .quota_bytes = 16 << 20};
    tn_inspector *inspector;
    setenv("TENON_TENOND", "relative/tenond", 1);
    assert_int_equal(tn_domain_create(NULL, &options, &d), TN_ERR_MANAGER);
    assert_non_null(strstr(tn_error_detail(), "relative/tenond"));
    setenv("TENON_TENOND", "/nowhere/tenond", 1);
    assert_int_equal(tn_domain_create(NULL, &options, &d), TN_ERR_MANAGER);
    assert_non_null(strstr(tn_error_detail(), "/nowhere/tenond"));
    begin(); /* a domain to be compared with */
    assert_int_equal(tn_inspector_open("0123456789abcdef0123456789abcdeX", &inspector),
                     TN_ERR_NOT_FOUND);
    finish();
}

/* ---- what is closed ---------------------------------------------------------------------- */

TN_TEST(objects_of_a_domain_that_was_left_say_so)
{
    tn_queue *q;
    tn_event *event;
    tn_semaphore *semaphore;
    tn_lock *lock;
    tn_condition *condition;
    tn_barrier *barrier;
    tn_message message = {0};
    begin();
    TN_CHECK_OK(tn_queue_create(d, NULL, NULL, &q));
    TN_CHECK_OK(tn_event_create(d, NULL, false, &event));
    TN_CHECK_OK(tn_semaphore_create(d, NULL, 1, TN_SEMAPHORE_OWNED, &semaphore));
    TN_CHECK_OK(tn_lock_create(d, NULL, &lock));
    TN_CHECK_OK(tn_condition_create(d, NULL, &condition));
    TN_CHECK_OK(tn_barrier_create(d, NULL, 1, &barrier));
    tn_domain_close(d);
    CLOSED(tn_queue_push(q, &message, 0, TN_NOW));
    CLOSED(tn_queue_pop(q, TN_NOW, &message));
    CLOSED(tn_queue_pop_many(q, 1, TN_NOW, &message));
    CLOSED(tn_queue_attach(q, TN_CONSUMER));
    CLOSED(tn_queue_end(q));
    CLOSED(tn_queue_watch(q, true));
    CLOSED(tn_queue_wait_any(&q, 1, TN_NOW));
    message.lease = 1;
    CLOSED(tn_message_ack(q, &message));
    CLOSED(tn_event_set(event));
    CLOSED(tn_event_clear(event));
    CLOSED(tn_event_wait(event, TN_NOW));
    CLOSED(tn_semaphore_acquire(semaphore, TN_NOW));
    CLOSED(tn_semaphore_release(semaphore));
    CLOSED(tn_lock_acquire(lock, TN_NOW));
    CLOSED(tn_lock_release(lock));
    CLOSED(tn_condition_signal(condition));
    CLOSED(tn_condition_broadcast(condition));
    CLOSED(tn_condition_wait(condition, lock, TN_NOW));
    CLOSED(tn_barrier_wait(barrier, TN_NOW));
    CLOSED(tn_barrier_reset(barrier));
    tn_queue_close(q);
    tn_event_close(event);
    tn_semaphore_close(semaphore);
    tn_lock_close(lock);
    tn_condition_close(condition);
    tn_barrier_close(barrier);
}

TN_TEST(a_lease_is_ended_once)
{
    const tn_queue_options options = {.struct_size = sizeof options, .policy = TN_QUEUE_LEASE};
    tn_message message = {.bytes = "x", .size_bytes = 1};
    tn_queue *q;
    begin();
    TN_CHECK_OK(tn_queue_create(d, NULL, &options, &q));
    TN_CHECK_OK(tn_queue_push(q, &message, 0, TN_NOW));
    TN_CHECK_OK(tn_queue_pop(q, TN_NOW, &message));
    tn_message again = message;
    TN_CHECK_OK(tn_message_ack(q, &message));
    assert_int_equal(tn_message_ack(q, &again), TN_ERR_STALE);
    assert_int_equal(tn_message_return(q, &again), TN_ERR_STALE);
    tn_message_fini(&message);
    tn_queue_close(q);
    finish();
}

/* ---- more references than a count can say ------------------------------------------------ */

static tni_block block_of(const tn_tensor *t) { return t->storage->block; }

/* As if 2^24 - 1 others held it, for as long as `is_full`. */
static void fill_count(const tn_tensor *t, bool is_full)
{
    _Atomic uint64_t *word = tni_word_at(&d->segment, block_of(t));
    uint64_t seen = atomic_load(word);
    atomic_store(word, tni_word_next(seen, tni_word_state(seen), is_full ? 0xffffff : 1));
}

TN_TEST(a_block_with_all_references_that_it_can_have_gets_no_more)
{
    const int64_t count = 4;
    uint8_t bytes[TN_HANDLE_MAX_BYTES];
    const tn_queue_options options = {.struct_size = sizeof options, .inline_bytes = 16};
    const tn_handle_options twice = {.struct_size = sizeof twice, .uses = 2};
    size_t used;
    tn_tensor *t, *another;
    tn_queue *q;
    begin();
    TN_CHECK_OK(tn_queue_create(d, NULL, &options, &q));
    TN_CHECK_OK(tn_tensor_create(d, TN_UINT8, 1, &count,
                                 TN_OPTIONS(tn_tensor_options, .flags = TN_TENSOR_ZEROED), &t));
    tn_tensor *both[2] = {t, t};
    static const uint8_t large[1 << 17]; /* in a block of their own */
    const tn_message with_bytes = {
        .bytes = large, .size_bytes = sizeof large, .tensors = &t, .tensor_count = 1};

    const uint32_t live = live_blocks(d);
    fill_count(t, true);
    assert_int_equal(tn_queue_push_tensor(q, t, 0, TN_NOW), TN_ERR_FULL);
    assert_int_equal(
        tn_queue_push(q, &(tn_message){.tensors = both, .tensor_count = 2}, 0, TN_NOW),
        TN_ERR_FULL);
    assert_int_equal(tn_queue_push(q, &with_bytes, 0, TN_NOW), TN_ERR_FULL);
    assert_int_equal(tn_handle_export(t, NULL, bytes, sizeof bytes, &used), TN_ERR_FULL);
    assert_int_equal(live_blocks(d), live);
    fill_count(t, false);
    TNT_AUDIT(d);

    TN_CHECK_OK(tn_handle_export(t, &twice, bytes, sizeof bytes, &used));
    fill_count(t, true);
    assert_int_equal(tn_handle_import(d, bytes, used, &another), TN_ERR_FULL);
    _Atomic uint64_t *word = tni_word_at(&d->segment, block_of(t));
    atomic_store(word, tni_word_next(atomic_load(word), TNI_BLOCK_ALLOC, 2));
    TN_CHECK_OK(tn_handle_import(d, bytes, used, &another));
    tn_tensor_unref(another);
    TN_CHECK_OK(tn_queue_push_tensor(q, t, 0, TN_NOW));
    tn_tensor_unref(t);
    TN_CHECK_OK(tn_queue_pop_tensor(q, TN_NOW, &t));
    tn_tensor_unref(t);
    tn_queue_close(q);
    finish();
}

/* A message of two tensors is there whole or not at all: the second has no room for one more.
 */
TN_TEST(a_pop_that_gets_not_all_references_leaves_the_message_in_the_queue)
{
    const int64_t count = 4;
    tn_tensor *t[2];
    tn_message message;
    tn_queue *q;
    begin();
    TN_CHECK_OK(tn_queue_create(d, NULL, NULL, &q));
    for (unsigned i = 0; i < 2; i++)
        TN_CHECK_OK(tn_tensor_create(d, TN_UINT8, 1, &count,
                                     TN_OPTIONS(tn_tensor_options, .flags = TN_TENSOR_ZEROED),
                                     &t[i]));
    const tni_block second = block_of(t[1]);
    TN_CHECK_OK(
        tn_queue_push(q, &(tn_message){.tensors = t, .tensor_count = 2}, TN_PUSH_MOVE, TN_NOW));
    _Atomic uint64_t *word = tni_word_at(&d->segment, second);
    atomic_store(word, tni_word_next(atomic_load(word), TNI_BLOCK_ALLOC, 0xffffff));
    assert_int_equal(tn_queue_pop(q, TN_NOW, &message), TN_ERR_FULL);
    atomic_store(word, tni_word_next(atomic_load(word), TNI_BLOCK_ALLOC, 1));
    TNT_AUDIT(d);
    TN_CHECK_OK(tn_queue_pop(q, TN_NOW, &message));
    assert_int_equal(message.tensor_count, 2);
    tn_message_fini(&message);
    tn_queue_close(q);
    finish();
}

TN_TEST(a_lease_that_gets_no_reference_leaves_the_message_in_the_queue)
{
    const tn_queue_options options = {.struct_size = sizeof options, .policy = TN_QUEUE_LEASE};
    const int64_t count = 4;
    tn_message message;
    tn_tensor *t;
    tn_queue *q;
    begin();
    TN_CHECK_OK(tn_queue_create(d, NULL, &options, &q));
    TN_CHECK_OK(tn_tensor_create(d, TN_UINT8, 1, &count,
                                 TN_OPTIONS(tn_tensor_options, .flags = TN_TENSOR_ZEROED), &t));
    const tni_block block = block_of(t);
    TN_CHECK_OK(tn_queue_push_tensor(q, t, TN_PUSH_MOVE, TN_NOW));
    _Atomic uint64_t *word = tni_word_at(&d->segment, block);
    atomic_store(word, tni_word_next(atomic_load(word), TNI_BLOCK_ALLOC, 0xffffff));
    assert_int_equal(tn_queue_pop(q, TN_NOW, &message), TN_ERR_FULL);
    atomic_store(word, tni_word_next(atomic_load(word), TNI_BLOCK_ALLOC, 1));
    TN_CHECK_OK(tn_queue_pop(q, TN_NOW, &message));
    assert_int_equal(message.attempt, 0);
    TN_CHECK_OK(tn_message_ack(q, &message));
    tn_message_fini(&message);
    tn_queue_close(q);
    finish();
}
