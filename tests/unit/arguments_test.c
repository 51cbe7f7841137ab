/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls that cannot be: without an argument that they need, on what is closed, with a reference
 * too many. Each is an error that changes nothing.
 */
#include <stdlib.h>
#include <string.h>

#include "harness/harness.h"
#include "harness/live_blocks.h"
#include "harness/tensor.h"
#include "queue/queue.h"
#include "ref/ref.h"
#include "share/share.h"

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

/* `OPEN(domain, name, flags, ret)` opens an object of one kind. */
#define OPENER_REFUSES(OPEN)                                                                   \
    do {                                                                                       \
        tn_object *none;                                                                       \
        INVALID(OPEN(NULL, NULL, 0, &none));                                                   \
        INVALID(OPEN(d, NULL, 0, NULL));                                                       \
        INVALID(OPEN(NULL, "x", TN_OPEN_EXISTING, &none));                                     \
        INVALID(OPEN(d, NULL, TN_OPEN_EXISTING, &none));                                       \
        INVALID(OPEN(d, "x", TN_OPEN_EXISTING, NULL));                                         \
        INVALID(OPEN(d, "x", TN_OPEN_EXISTING | TN_OPEN_NEW, &none));                          \
        INVALID(OPEN(d, "x", 1u << 20, &none));                                                \
        INVALID(OPEN(d, "no/name", 0, &none));                                                 \
        assert_int_equal(OPEN(d, "x", TN_OPEN_EXISTING, &none), TN_ERR_NOT_FOUND);             \
    } while (0)
#define OPEN_QUEUE(d_, name, flags, ret)     tn_queue_open(d_, name, NULL, flags, ret)
#define OPEN_SEMAPHORE(d_, name, flags, ret) tn_semaphore_open(d_, name, 1, flags, ret)
#define OPEN_BARRIER(d_, name, flags, ret)   tn_barrier_open(d_, name, 1, flags, ret)
#define OPEN_STORE(d, name, flags, it)       tn_store_open(d, name, NULL, flags, it)

TN_TEST(no_object_is_made_or_opened_without_what_it_takes)
{
    tn_object *it;
    begin();
    OPENER_REFUSES(OPEN_QUEUE);
    OPENER_REFUSES(tn_event_open);
    OPENER_REFUSES(OPEN_SEMAPHORE);
    OPENER_REFUSES(tn_lock_open);
    OPENER_REFUSES(tn_condition_open);
    OPENER_REFUSES(OPEN_BARRIER);
    OPENER_REFUSES(OPEN_STORE);
    INVALID(tn_object_open_id(NULL, 0, 1, &it));
    INVALID(tn_object_open_id(d, 0, 1, NULL));
    INVALID(tn_object_open_id(d, -1, 1, &it));
    INVALID(tn_object_open_id(d, TN_OBJECT_CHANNEL + 1, 1, &it));
    INVALID(tn_object_open_id(d, 0, 0, &it));
    assert_string_equal(tn_error_detail(),
                        "no object has the id 0, which tn_object_id() gives for NULL");
    assert_int_equal(tn_object_open_id(d, 0, UINT64_C(7) << 32, &it), TN_ERR_NOT_FOUND);
    assert_int_equal(tn_object_open_id(d, 0, UINT64_C(7) << 32 | 1, &it), TN_ERR_NOT_FOUND);
    assert_null(tn_object_close(NULL));
    assert_int_equal(tn_object_id(NULL), 0);
    INVALID(tn_object_kind(NULL));
    INVALID(tn_object_name(NULL, NULL, 0));
    finish();
}

/* ---- objects of another kind, and that are not as the caller says ------------------------ */

/* What tn_error_detail() says has this in it. */
#define SAYS(words) assert_non_null(strstr(tn_error_detail(), words))

TN_TEST(an_object_of_another_kind_is_refused_and_unchanged)
{
    tn_message message = {0};
    tn_tensor *t;
    tn_queue *q;
    tn_event *event;
    tn_object *it;
    char name[48];
    begin();
    TN_CHECK_OK(tn_queue_open(d, "q", NULL, 0, &q));
    TN_CHECK_OK(tn_event_open(d, "e", 0, &event));
    assert_int_equal(tn_object_kind(q), TN_OBJECT_QUEUE);
    assert_int_equal(tn_object_kind(event), TN_OBJECT_EVENT);
    assert_int_equal(tn_object_name(event, name, sizeof name), 1);
    assert_string_equal(name, "e");
    INVALID(tn_object_name(event, name, 1));

    INVALID(tn_event_set(q));
    SAYS("the object is of the kind queue, not event");
    INVALID(tn_event_clear(q));
    INVALID(tn_event_wait(q, TN_NOW));
    assert_false(tn_event_is_set(q));
    INVALID(tn_semaphore_acquire(q, TN_NOW));
    INVALID(tn_semaphore_release(q));
    assert_int_equal(tn_semaphore_count(q), 0);
    INVALID(tn_lock_acquire(q, TN_NOW));
    INVALID(tn_lock_release(q));
    INVALID(tn_condition_wait(q, event, TN_NOW));
    INVALID(tn_condition_signal(q));
    INVALID(tn_condition_broadcast(q));
    INVALID(tn_barrier_wait(q, TN_NOW));
    INVALID(tn_barrier_reset(q));
    INVALID(tn_queue_push(event, &message, 0, TN_NOW));
    INVALID(tn_queue_push(event, &message, 0, tn_deadline_after(TN_MILLISECOND)));
    INVALID(tn_queue_push_many(event, &message, 1, 0, TN_NOW));
    INVALID(tn_queue_pop(event, TN_NOW, &message));
    INVALID(tn_queue_pop_many(event, 1, TN_NOW, &message));
    INVALID(tn_queue_pop_tensor(event, TN_NOW, &t));
    INVALID(tn_queue_attach(event, TN_PRODUCER));
    INVALID(tn_queue_end(event));
    INVALID(tn_object_watch(event, true));
    INVALID(tn_object_wait_any(&event, 1, TN_NOW));
    message.lease = 1;
    INVALID(tn_message_ack(event, &message));
    INVALID(tn_message_return(event, &message));
    assert_int_equal(tn_queue_count(event), 0);
    assert_int_equal(tnt_capacity(event), 0);
    assert_int_equal(tnt_peers(event, TN_PRODUCER), 0);

    INVALID(tn_event_open(d, "q", 0, &it));
    SAYS(", 'q', is of the kind queue, not event");
    INVALID(tn_object_open_id(d, TN_OBJECT_EVENT, tn_object_id(q), &it));
    TN_CHECK_OK(tn_object_open_id(d, 0, tn_object_id(q), &it));
    assert_int_equal(tn_object_kind(it), TN_OBJECT_QUEUE);
    tn_object_close(it);
    tn_object_close(q);
    tn_object_close(event);
    finish();
}

TN_TEST(an_open_joins_what_is_there_and_makes_what_is_not)
{
    tn_queue *q, *again;
    begin();
    TN_CHECK_OK(tn_queue_open(d, "q", NULL, 0, &q));
    TN_CHECK_OK(tn_queue_open(d, "q", NULL, 0, &again));
    assert_int_equal(tn_object_id(q), tn_object_id(again));
    tn_object_close(again);
    TN_CHECK_OK(tn_queue_open(d, "q", NULL, TN_OPEN_EXISTING, &again));
    assert_int_equal(tn_object_id(q), tn_object_id(again));
    assert_int_equal(tn_queue_open(d, "q", NULL, TN_OPEN_NEW, &again), TN_ERR_EXISTS);
    tn_object_close(again);
    tn_object_close(q);
    finish();
}

TN_TEST(an_object_that_differs_is_refused_with_both_numbers)
{
    const tn_queue_options leases = {.struct_size = sizeof leases, .policy = TN_QUEUE_LEASE};
    const tn_queue_options seven = {.struct_size = sizeof seven, .capacity = 7};
    const tn_queue_options long_slots = {.struct_size = sizeof long_slots,
                                         .inline_bytes = 4096};
    tn_object *it, *q, *event, *semaphore, *barrier;
    begin();
    TN_CHECK_OK(tn_queue_open(d, "q", NULL, 0, &q));
    TN_CHECK_OK(tn_event_open(d, "e", TN_EVENT_AUTO_RESET, &event));
    TN_CHECK_OK(tn_semaphore_open(d, "s", 2, TN_SEMAPHORE_OWNED, &semaphore));
    TN_CHECK_OK(tn_barrier_open(d, "b", 3, 0, &barrier));

    INVALID(tn_queue_open(d, "q", &seven, 0, &it));
    SAYS("the queue 'q' was made with capacity 256 instead of 7");
    INVALID(tn_queue_open(d, "q", &seven, TN_OPEN_EXISTING, &it));
    INVALID(tn_queue_open(d, "q", &leases, 0, &it));
    SAYS("the queue 'q' was made with policy 0 instead of 0x2");
    INVALID(tn_queue_open(d, "q", &long_slots, 0, &it));
    INVALID(tn_event_open(d, "e", 0, &it));
    INVALID(tn_semaphore_open(d, "s", 1, TN_SEMAPHORE_OWNED, &it));
    SAYS("was made with permits 2 instead of 1");
    INVALID(tn_semaphore_open(d, "s", 2, 0, &it));
    INVALID(tn_barrier_open(d, "b", 2, 0, &it));
    SAYS("was made with parties 3 instead of 2");

    TN_CHECK_OK(tn_event_open(d, "e", TN_OPEN_EXISTING, &it));
    tn_object_close(it);
    TN_CHECK_OK(tn_semaphore_open(d, "s", 0, TN_OPEN_EXISTING, &it));
    tn_object_close(it);
    TN_CHECK_OK(tn_barrier_open(d, "b", 0, TN_OPEN_EXISTING, &it));
    tn_object_close(it);
    tn_object_close(q);
    tn_object_close(event);
    tn_object_close(semaphore);
    tn_object_close(barrier);
    finish();
}

TN_TEST(no_call_on_an_object_goes_without_the_object)
{
    tn_message message = {0};
    tn_tensor *t;
    begin();
    INVALID(tn_event_set(NULL));
    INVALID(tn_event_clear(NULL));
    INVALID(tn_event_wait(NULL, TN_NOW));
    assert_false(tn_event_is_set(NULL));
    INVALID(tn_semaphore_acquire(NULL, TN_NOW));
    INVALID(tn_semaphore_release(NULL));
    assert_int_equal(tn_semaphore_count(NULL), 0);
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
    INVALID(tn_object_watch(NULL, true));
    INVALID(tn_object_wait_any(NULL, 1, TN_NOW));
    INVALID(tn_message_ack(NULL, &message));
    assert_int_equal(tn_queue_count(NULL), 0);
    INVALID(tn_queue_get_info(NULL, &(tn_queue_info){.struct_size = sizeof(tn_queue_info)}));
    INVALID(tn_domain_get_info(NULL, NULL));
    tn_message_fini(NULL);
    tn_domain_poll_clear(NULL);
    INVALID(tn_domain_poll_fd(NULL, NULL));
    INVALID(tni_ticket_revoke(d, 0));
    INVALID(tn_handle_revoke(NULL, &message, sizeof message));
    INVALID(tn_handle_revoke(d, NULL, 1));
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
    INVALID(tn_queue_open(d, NULL, &options, 0, &q));
    options = (tn_queue_options){.struct_size = sizeof options, .policy = 3};
    INVALID(tn_queue_open(d, NULL, &options, 0, &q));
    options = (tn_queue_options){.struct_size = 1};
    INVALID(tn_queue_open(d, NULL, &options, 0, &q));
    INVALID(tn_semaphore_open(d, NULL, UINT32_MAX, 0, &semaphore));
    INVALID(tn_semaphore_open(d, NULL, 1, 1u << 7, &semaphore));
    INVALID(tn_barrier_open(d, NULL, 0, 0, &barrier));
    TN_CHECK_OK(tn_tensor_create(d, TN_UINT8, 1, &count,
                                 TN_OPTIONS(tn_tensor_options, .flags = TN_TENSOR_ZEROED), &t));
    INVALID(tn_handle_export(
        t, &(tn_handle_options){.struct_size = sizeof(tn_handle_options), .uses = 1u << 20},
        bytes, sizeof bytes, &used));
    INVALID(tn_handle_export(t, &(tn_handle_options){.struct_size = 1}, bytes, sizeof bytes,
                             &used));
    INVALID(tn_handle_revoke(d, bytes, 3));
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
    TN_CHECK_OK(tn_queue_open(d, NULL, NULL, 0, &q));
    const tn_message message = {.bytes = "x", .size_bytes = SIZE_MAX / 2};
    assert_true(tn_queue_push(q, &message, 0, TN_NOW) < 0);
    INVALID(tn_object_wait_any(&(tn_queue *){q}, 0, TN_NOW));
    INVALID(tn_queue_pop_tensor(q, TN_NOW, NULL));
    INVALID(tn_queue_pop_many(q, 1, TN_NOW, NULL));
    assert_int_equal(tn_queue_pop_many(q, 0, TN_NOW, NULL), 0);
    assert_int_equal(tn_queue_count(q), 0);
    tn_object_close(q);
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
    TN_CHECK_OK(tn_queue_open(d, NULL, NULL, 0, &both[0]));
    TN_CHECK_OK(tn_queue_open(other, NULL, NULL, 0, &both[1]));
    INVALID(tn_object_wait_any(both, 2, TN_NOW));
    tn_object_close(both[0]);
    tn_object_close(both[1]);
    tn_domain_close(other);
    finish();
}

TN_TEST(the_pollable_descriptor_is_one_however_often_it_is_asked_for)
{
    tn_queue *q;
    int one, again;
    begin();
    TN_CHECK_OK(tn_queue_open(d, NULL, NULL, 0, &q));
    TN_CHECK_OK(tn_object_watch(q, true));
    TN_CHECK_OK(tn_domain_poll_fd(d, &one));
    TN_CHECK_OK(tn_domain_poll_fd(d, &again));
    assert_int_equal(one, again);
    TN_CHECK_OK(tn_object_watch(q, false));
    tn_object_close(q);
    finish();
}

TN_TEST(a_tenond_that_cannot_be_started_is_an_error_that_names_it)
{
    const tn_domain_options options = {.struct_size = sizeof options, .quota_bytes = 16 << 20};
    tn_inspector *inspector;
    setenv("TENON_TENOND", "relative/tenond", 1);
    assert_int_equal(tn_domain_open(NULL, &options, 0, &d), TN_ERR_MANAGER);
    assert_non_null(strstr(tn_error_detail(), "relative/tenond"));
    setenv("TENON_TENOND", "/nowhere/tenond", 1);
    assert_int_equal(tn_domain_open(NULL, &options, 0, &d), TN_ERR_MANAGER);
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
    TN_CHECK_OK(tn_queue_open(d, NULL, NULL, 0, &q));
    TN_CHECK_OK(tn_event_open(d, NULL, 0, &event));
    TN_CHECK_OK(tn_semaphore_open(d, NULL, 1, TN_SEMAPHORE_OWNED, &semaphore));
    TN_CHECK_OK(tn_lock_open(d, NULL, 0, &lock));
    TN_CHECK_OK(tn_condition_open(d, NULL, 0, &condition));
    TN_CHECK_OK(tn_barrier_open(d, NULL, 1, 0, &barrier));
    tn_domain_close(d);
    CLOSED(tn_queue_push(q, &message, 0, TN_NOW));
    CLOSED(tn_queue_pop(q, TN_NOW, &message));
    CLOSED(tn_queue_pop_many(q, 1, TN_NOW, &message));
    CLOSED(tn_queue_attach(q, TN_CONSUMER));
    CLOSED(tn_queue_end(q));
    CLOSED(tn_object_watch(q, true));
    CLOSED(tn_object_wait_any(&q, 1, TN_NOW));
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
    tn_object_close(q);
    tn_object_close(event);
    tn_object_close(semaphore);
    tn_object_close(lock);
    tn_object_close(condition);
    tn_object_close(barrier);
}

TN_TEST(a_lease_is_ended_once)
{
    const tn_queue_options options = {.struct_size = sizeof options, .policy = TN_QUEUE_LEASE};
    tn_message message = {.bytes = "x", .size_bytes = 1};
    tn_queue *q;
    begin();
    TN_CHECK_OK(tn_queue_open(d, NULL, &options, 0, &q));
    TN_CHECK_OK(tn_queue_push(q, &message, 0, TN_NOW));
    TN_CHECK_OK(tn_queue_pop(q, TN_NOW, &message));
    tn_message again = message;
    TN_CHECK_OK(tn_message_ack(q, &message));
    assert_int_equal(tn_message_ack(q, &again), TN_ERR_STALE);
    assert_int_equal(tn_message_return(q, &again), TN_ERR_STALE);
    tn_message_fini(&message);
    tn_object_close(q);
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
    TN_CHECK_OK(tn_queue_open(d, NULL, &options, 0, &q));
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
    tn_object_close(q);
    finish();
}

/* A message of two tensors is there whole or not at all: the second has no room for one more.
 */
TN_TEST(a_pop_without_all_references_leaves_the_message_queued)
{
    const int64_t count = 4;
    tn_tensor *t[2];
    tn_message message;
    tn_queue *q;
    begin();
    TN_CHECK_OK(tn_queue_open(d, NULL, NULL, 0, &q));
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
    tn_object_close(q);
    finish();
}

TN_TEST(a_lease_without_a_reference_leaves_the_message_queued)
{
    const tn_queue_options options = {.struct_size = sizeof options, .policy = TN_QUEUE_LEASE};
    const int64_t count = 4;
    tn_message message;
    tn_tensor *t;
    tn_queue *q;
    begin();
    TN_CHECK_OK(tn_queue_open(d, NULL, &options, 0, &q));
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
    tn_object_close(q);
    finish();
}
