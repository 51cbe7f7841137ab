/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: a channel gives each message to every subscriber, and keeps to its policy. */
#include <signal.h>
#include <unistd.h>

#include "process/channel_world.h"

enum { CAPACITY = 4 };
static const tn_channel_options small = {.struct_size = sizeof small, .capacity = CAPACITY};
static const tn_channel_options dropping = {
    .struct_size = sizeof dropping, .capacity = CAPACITY, .policy = TN_CHANNEL_DROP};
static const tn_channel_options disconnecting = {
    .struct_size = sizeof disconnecting, .capacity = CAPACITY, .policy = TN_CHANNEL_DISCONNECT};

static void publish_from(uint64_t first, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        publish(first + i);
}

static void expect_from(tn_channel *it, uint64_t first, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        expect(it, first + i);
}

/* ---- messages ---------------------------------------------------------------------------- */

TN_TEST(each_subscriber_receives_each_message_in_order)
{
    tn_channel *one, *other;
    begin(NULL);
    one = subscribe(TN_FROM_NEWEST);
    other = subscribe(TN_FROM_NEWEST);
    publish_from(1, 10);
    expect_from(one, 1, 10);
    expect_from(other, 1, 10);
    expect_none(one);
    expect_none(other);
    tn_object_close(one);
    tn_object_close(other);
    finish();
}

struct pair {
    struct tnt_signal has_subscribed, may_publish;
};

static int receive_ten(void *argument)
{
    struct pair *pair = argument;
    tn_channel *it = subscribe(TN_FROM_NEWEST);
    tnt_signal(&pair->has_subscribed);
    for (uint64_t i = 1; i <= 10; i++)
        TN_CHECK(receive_until(it, tnt_deadline(20000)) == i);
    tn_object_close(it);
    return 0;
}

TN_TEST(processes_receive_what_another_one_publishes)
{
    enum { READERS = 3 };
    struct pair pairs[READERS];
    pid_t pids[READERS];
    begin(NULL);
    for (int i = 0; i < READERS; i++) {
        pairs[i].has_subscribed = tnt_signal_open();
        pids[i] = tnt_fork(receive_ten, &pairs[i]);
        tnt_await(&pairs[i].has_subscribed);
        tnt_signal_close(&pairs[i].has_subscribed);
    }
    publish_from(1, 10);
    for (int i = 0; i < READERS; i++)
        tnt_wait_ok(pids[i]);
    finish();
}

TN_TEST(a_receive_copies_no_byte_of_a_tensor)
{
    tn_message m;
    begin(NULL);
    tn_channel *it = subscribe(TN_FROM_NEWEST);
    tn_tensor *t = make_tensor(1000, 3);
    TN_CHECK_OK(tn_tensor_set_name(t, "batch"));
    TN_CHECK_OK(tn_channel_publish(
        channel,
        &(tn_message){.bytes = "note", .size_bytes = 4, .tensors = &t, .tensor_count = 1},
        TN_NOW));
    TN_CHECK_OK(tn_channel_receive(it, TN_NOW, &m));
    assert_int_equal(m.tensor_count, 1);
    assert_true(tn_tensor_same_storage(m.tensors[0], t));
    assert_string_equal(tn_tensor_name(m.tensors[0]), "batch");
    assert_memory_equal(m.bytes, "note", 4);
    tn_message_fini(&m);
    tn_tensor_unref(t);
    tn_object_close(it);
    finish();
}

TN_TEST(a_message_is_released_by_its_last_receive)
{
    begin(NULL);
    tn_channel *one = subscribe(TN_FROM_NEWEST), *other = subscribe(TN_FROM_NEWEST);
    uint32_t before = live_blocks(d);
    publish_from(1, 5);
    expect_from(one, 1, 5);
    assert_int_equal(live_blocks(d), before + 5);
    expect_from(other, 1, 3);
    assert_int_equal(live_blocks(d), before + 2);
    expect_from(other, 4, 2);
    assert_int_equal(live_blocks(d), before);
    tn_object_close(one);
    tn_object_close(other);
    finish();
}

TN_TEST(a_message_without_a_subscriber_is_released_at_once)
{
    begin(NULL);
    uint32_t before = live_blocks(d);
    publish_from(1, 100);
    assert_int_equal(live_blocks(d), before);
    assert_int_equal(info_of(channel).published, 100);
    finish();
}

TN_TEST(a_message_that_was_received_outlives_the_channel)
{
    tn_message m;
    begin(NULL);
    tn_channel *it = subscribe(TN_FROM_NEWEST);
    tn_tensor *t = make_tensor(64, 9);
    TN_CHECK_OK(
        tn_channel_publish(channel, &(tn_message){.tensors = &t, .tensor_count = 1}, TN_NOW));
    tn_tensor_unref(t);
    TN_CHECK_OK(tn_channel_receive(it, TN_NOW, &m));
    tn_object_close(it);
    channel = tn_object_close(channel);
    assert_int_equal(*(const uint8_t *)tn_tensor_data(m.tensors[0]), 9);
    tn_message_fini(&m);
    tn_domain_close(d);
}

TN_TEST(a_large_message_arrives_whole)
{
    enum { BYTES = 300000 };
    static uint8_t bytes[BYTES];
    tn_message m;
    begin(NULL);
    tn_channel *it = subscribe(TN_FROM_NEWEST);
    for (int i = 0; i < BYTES; i++)
        bytes[i] = (uint8_t)(i * 7 >> 3);
    TN_CHECK_OK(tn_channel_publish(channel, &(tn_message){.bytes = bytes, .size_bytes = BYTES},
                                   TN_NOW));
    TN_CHECK_OK(tn_channel_receive(it, TN_NOW, &m));
    assert_int_equal(m.size_bytes, BYTES);
    assert_memory_equal(m.bytes, bytes, BYTES);
    tn_message_fini(&m);
    tn_object_close(it);
    finish();
}

/* ---- where a subscriber begins ----------------------------------------------------------- */

TN_TEST(a_late_subscriber_begins_with_the_newest_message)
{
    begin(TN_OPTIONS(tn_channel_options, .capacity = 8, .history = 4));
    publish_from(1, 6);
    tn_channel *it = subscribe(TN_FROM_NEWEST);
    expect_none(it);
    publish(7);
    expect(it, 7);
    tn_object_close(it);
    finish();
}

TN_TEST(a_late_subscriber_begins_with_the_oldest_kept_message)
{
    begin(TN_OPTIONS(tn_channel_options, .capacity = 8, .history = 4));
    publish_from(1, 6);
    tn_channel *it = subscribe(TN_FROM_OLDEST);
    expect_from(it, 3, 4);
    expect_none(it);
    tn_object_close(it);
    finish();
}

TN_TEST(a_history_keeps_so_many_messages_and_no_more)
{
    begin(TN_OPTIONS(tn_channel_options, .capacity = 8, .history = 3));
    uint32_t before = live_blocks(d);
    publish_from(1, 2);
    assert_int_equal(live_blocks(d), before + 2);
    publish_from(3, 20);
    assert_int_equal(live_blocks(d), before + 3);
    assert_int_equal(info_of(channel).kept, 3);
    finish();
}

TN_TEST(a_history_of_the_whole_capacity_is_kept)
{
    begin(TN_OPTIONS(tn_channel_options, .capacity = CAPACITY, .history = CAPACITY));
    publish_from(1, 11);
    tn_channel *it = subscribe(TN_FROM_OLDEST);
    expect_from(it, 8, CAPACITY);
    publish(12);
    expect(it, 12);
    tn_object_close(it);
    finish();
}

TN_TEST(who_begins_with_the_oldest_gets_what_others_still_need)
{
    begin(&small);
    tn_channel *slow = subscribe(TN_FROM_NEWEST);
    publish_from(1, 3);
    expect(slow, 1);
    tn_channel *late = subscribe(TN_FROM_OLDEST);
    expect_from(late, 2, 2);
    tn_object_close(slow);
    tn_object_close(late);
    finish();
}

TN_TEST(who_subscribes_again_begins_anew)
{
    begin(&small);
    tn_channel *it = subscribe(TN_FROM_NEWEST);
    publish_from(1, 3);
    TN_CHECK_OK(tn_channel_subscribe(it, TN_FROM_NEWEST));
    expect_none(it);
    publish(4);
    expect(it, 4);
    assert_int_equal(info_of(it).subscribers, 1);
    tn_object_close(it);
    finish();
}

/* ---- slow subscribers -------------------------------------------------------------------- */

TN_TEST(a_publisher_waits_for_the_slowest_subscriber)
{
    begin(&small);
    tn_channel *quick = subscribe(TN_FROM_NEWEST), *slow = subscribe(TN_FROM_NEWEST);
    publish_from(1, CAPACITY);
    expect_from(quick, 1, CAPACITY);
    assert_int_equal(try_publish(5, TN_NOW), TN_ERR_TIMED_OUT);
    assert_int_equal(try_publish(5, tnt_deadline(20)), TN_ERR_TIMED_OUT);
    expect(slow, 1);
    publish(5);
    assert_int_equal(try_publish(6, TN_NOW), TN_ERR_TIMED_OUT);
    expect(quick, 5);
    expect_from(slow, 2, 4);
    tn_object_close(quick);
    tn_object_close(slow);
    finish();
}

TN_TEST(a_full_channel_names_the_process_that_does_not_receive)
{
    char wanted[64];
    begin(&small);
    tn_channel *slow = subscribe(TN_FROM_NEWEST);
    publish_from(1, CAPACITY);
    assert_int_equal(try_publish(5, TN_NOW), TN_ERR_TIMED_OUT);
    snprintf(wanted, sizeof wanted, "process %d has not received the last 4 messages",
             getpid());
    assert_non_null(strstr(tn_error_detail(), wanted));
    tn_object_close(slow);
    finish();
}

static int receive_one_later(void *argument)
{
    struct pair *pair = argument;
    tn_channel *it = subscribe(TN_FROM_NEWEST);
    tnt_signal(&pair->has_subscribed);
    tnt_await(&pair->may_publish);
    expect(it, 1);
    tnt_await(&pair->may_publish);
    tn_object_close(it);
    return 0;
}

TN_TEST(a_publisher_that_waits_goes_on_when_the_slowest_receives)
{
    struct pair pair = {tnt_signal_open(), tnt_signal_open()};
    begin(&small);
    pid_t pid = tnt_fork(receive_one_later, &pair);
    tnt_await(&pair.has_subscribed);
    publish_from(1, CAPACITY);
    tnt_signal(&pair.may_publish);
    TN_CHECK_OK(try_publish(5, tnt_deadline(20000)));
    tnt_signal(&pair.may_publish);
    tnt_wait_ok(pid);
    tnt_signal_close(&pair.has_subscribed);
    tnt_signal_close(&pair.may_publish);
    finish();
}

TN_TEST(a_slow_subscriber_loses_its_oldest_messages)
{
    begin(&dropping);
    tn_channel *quick = subscribe(TN_FROM_NEWEST), *slow = subscribe(TN_FROM_NEWEST);
    for (uint64_t i = 1; i <= 11; i++) {
        publish(i);
        expect(quick, i);
    }
    assert_int_equal(info_of(slow).lost, 7);
    expect_from(slow, 8, CAPACITY);
    expect_none(slow);
    assert_int_equal(info_of(slow).lost, 7);
    assert_int_equal(info_of(quick).lost, 0);
    assert_int_equal(info_of(channel).dropped, 7);
    tn_object_close(quick);
    tn_object_close(slow);
    finish();
}

/* What it receives next is released as before. */
TN_TEST(who_has_lost_messages_still_releases_the_others)
{
    begin(&dropping);
    tn_channel *it = subscribe(TN_FROM_NEWEST);
    publish_from(1, CAPACITY + 2);
    expect_from(it, 3, CAPACITY);
    assert_int_equal(info_of(it).kept, 0);
    publish(7);
    expect(it, 7);
    assert_int_equal(info_of(it).kept, 0);
    tn_object_close(it);
    finish();
}

TN_TEST(a_slow_subscriber_is_disconnected)
{
    begin(&disconnecting);
    tn_channel *quick = subscribe(TN_FROM_NEWEST), *slow = subscribe(TN_FROM_NEWEST);
    for (uint64_t i = 1; i <= CAPACITY; i++) {
        publish(i);
        expect(quick, i);
    }
    assert_int_equal(info_of(channel).disconnected, 0);
    publish(5);
    expect(quick, 5);
    expect_status(slow, TN_ERR_STALE);
    assert_non_null(strstr(tn_error_detail(), "disconnected"));
    tn_channel_info info = info_of(slow);
    assert_int_equal(info.disconnected, 1);
    assert_int_equal(info.subscribers, 1);
    assert_false(info.is_subscribed);
    assert_int_equal(info.kept, 0);
    tn_object_close(quick);
    tn_object_close(slow);
    finish();
}

TN_TEST(who_was_disconnected_may_subscribe_again)
{
    begin(&disconnecting);
    tn_channel *it = subscribe(TN_FROM_NEWEST);
    publish_from(1, CAPACITY + 1);
    expect_status(it, TN_ERR_STALE);
    TN_CHECK_OK(tn_channel_subscribe(it, TN_FROM_NEWEST));
    publish(9);
    expect(it, 9);
    tn_object_close(it);
    finish();
}

/* ---- who leaves and who dies ------------------------------------------------------------- */

TN_TEST(a_publisher_does_not_wait_for_who_has_unsubscribed)
{
    begin(&small);
    uint32_t before = live_blocks(d);
    tn_channel *it = subscribe(TN_FROM_NEWEST);
    publish_from(1, CAPACITY);
    TN_CHECK_OK(tn_channel_unsubscribe(it));
    assert_int_equal(live_blocks(d), before);
    publish_from(5, 20);
    expect_status(it, TN_ERR_INVALID);
    TN_CHECK_OK(tn_channel_unsubscribe(it));
    tn_object_close(it);
    finish();
}

TN_TEST(a_closed_handle_is_no_subscriber_any_more)
{
    begin(&small);
    tn_channel *it = subscribe(TN_FROM_NEWEST);
    publish_from(1, CAPACITY);
    tn_object_close(it); /* the process has another handle of the channel open */
    assert_int_equal(info_of(channel).subscribers, 0);
    publish_from(5, 20);
    finish();
}

/* ---- queues and channels together ------------------------------------------------------- */

static int publish_two(void *argument)
{
    (void)argument;
    publish(2);
    return 0;
}

static int push_three(void *argument)
{
    uint64_t number = 3;
    tn_message m = {.bytes = &number, .size_bytes = sizeof number};
    TN_CHECK_OK(tn_queue_push(argument, &m, 0, TN_NOW));
    return 0;
}

static uint64_t pop_from(tn_queue *queue)
{
    tn_message m;
    TN_CHECK_OK(tn_queue_pop(queue, TN_NOW, &m));
    uint64_t number = number_of(&m);
    tn_message_fini(&m);
    return number;
}

TN_TEST(one_wait_is_for_queues_and_channels_together)
{
    tn_queue *queue;
    tn_message none;
    begin(NULL);
    TN_CHECK_OK(tn_queue_open(d, "queue", NULL, 0, &queue));
    tn_channel *subscriber = subscribe(TN_FROM_NEWEST);
    tn_object *both[] = {queue, subscriber};
    assert_int_equal(tn_object_wait_any(both, 2, TN_NOW), TN_ERR_TIMED_OUT);
    publish(1); /* this process lives on as a publisher, and as a producer */
    push_three(queue);
    assert_int_equal(tn_object_wait_any(both + 1, 1, TN_NOW), 0);
    expect(subscriber, 1);
    assert_int_equal(tn_object_wait_any(both, 2, TN_NOW), 0);
    assert_int_equal(pop_from(queue), 3);
    pid_t pid = tnt_fork(publish_two, NULL);
    assert_int_equal(tn_object_wait_any(both, 2, tnt_deadline(20000)), 1);
    expect(subscriber, 2);
    tnt_wait_ok(pid);
    pid = tnt_fork(push_three, queue);
    assert_int_equal(tn_object_wait_any(both, 2, tnt_deadline(20000)), 0);
    assert_int_equal(pop_from(queue), 3);
    tnt_wait_ok(pid);
    TN_CHECK_OK(tn_channel_end(channel));
    assert_int_equal(tn_object_wait_any(both, 2, TN_NOW), 1);
    assert_int_equal(tn_channel_receive(subscriber, TN_NOW, &none), TN_ERR_CLOSED);
    tn_object_close(queue);
    tn_object_close(subscriber);
    finish();
}

static int subscribe_and_stay(void *argument)
{
    struct pair *pair = argument;
    subscribe(TN_FROM_NEWEST);
    tnt_signal(&pair->has_subscribed);
    for (;;)
        pause();
    return 0;
}

TN_TEST(a_dead_subscriber_holds_up_no_publisher)
{
    struct pair pair = {.has_subscribed = tnt_signal_open()};
    begin(&small);
    pid_t pid = tnt_fork(subscribe_and_stay, &pair);
    tnt_await(&pair.has_subscribed);
    publish_from(1, CAPACITY);
    assert_int_equal(try_publish(5, TN_NOW), TN_ERR_TIMED_OUT);
    tnt_kill(pid);
    TN_CHECK_OK(try_publish(5, tnt_deadline(20000)));
    TN_CHECK_OK(tn_domain_reap(d, NULL));
    assert_int_equal(info_of(channel).subscribers, 0);
    assert_int_equal(info_of(channel).kept, 0);
    tnt_signal_close(&pair.has_subscribed);
    finish();
}

TN_TEST(a_stopped_subscriber_is_the_slowest)
{
    struct pair pair = {.has_subscribed = tnt_signal_open()};
    begin(&dropping);
    pid_t pid = tnt_fork(subscribe_and_stay, &pair);
    tnt_await(&pair.has_subscribed);
    TN_CHECK(kill(pid, SIGSTOP) == 0);
    publish_from(1, 50);
    tn_channel_info info = info_of(channel);
    assert_int_equal(info.slowest_pid, pid);
    assert_int_equal(info.most_behind, 50);
    assert_int_equal(info.kept, CAPACITY);
    assert_int_equal(info.dropped, 50 - CAPACITY); /* though it has not seen that */
    tnt_kill(pid);
    TN_CHECK_OK(tn_domain_reap(d, NULL));
    assert_int_equal(info_of(channel).dropped, 50 - CAPACITY);
    tnt_signal_close(&pair.has_subscribed);
    finish();
}

static int publish_and_die(void *argument)
{
    (void)argument;
    publish_from(1, 3);
    raise(SIGKILL);
    return 0;
}

TN_TEST(the_death_of_the_last_publisher_ends_a_wait)
{
    tn_message m;
    begin(&small);
    tn_channel *it = subscribe(TN_FROM_NEWEST);
    pid_t pid = tnt_fork(publish_and_die, NULL);
    for (uint64_t i = 1; i <= 3; i++)
        TN_CHECK(receive_until(it, tnt_deadline(20000)) == i);
    assert_int_equal(tn_channel_receive(it, tnt_deadline(20000), &m), TN_ERR_PEER_DIED);
    assert_int_equal(tn_error_peer().pid, pid);
    tnt_wait(pid);
    tn_object_close(it);
    finish();
}

TN_TEST(an_ended_channel_gives_what_is_left)
{
    begin(&small);
    tn_channel *it = subscribe(TN_FROM_NEWEST);
    publish_from(1, 2);
    TN_CHECK_OK(tn_channel_end(channel));
    assert_int_equal(try_publish(3, TN_NOW), TN_ERR_CLOSED);
    expect_from(it, 1, 2);
    expect_status(it, TN_ERR_CLOSED);
    TN_CHECK_OK(tn_channel_end(channel));
    assert_true(info_of(it).is_ended);
    tn_object_close(it);
    finish();
}

static int wait_for_the_end(void *argument)
{
    tn_message m;
    struct pair *pair = argument;
    tn_channel *it = subscribe(TN_FROM_NEWEST);
    tnt_signal(&pair->has_subscribed);
    TN_CHECK(tn_channel_receive(it, tnt_deadline(20000), &m) == TN_ERR_CLOSED);
    tn_object_close(it);
    return 0;
}

TN_TEST(the_end_of_a_channel_ends_a_wait)
{
    struct pair pair = {.has_subscribed = tnt_signal_open()};
    begin(&small);
    pid_t pid = tnt_fork(wait_for_the_end, &pair);
    tnt_await(&pair.has_subscribed);
    TN_CHECK_OK(tn_channel_end(channel));
    tnt_wait_ok(pid);
    tnt_signal_close(&pair.has_subscribed);
    finish();
}

static int use_an_inherited_handle(void *argument)
{
    tn_channel *it = argument;
    expect_status(it, TN_ERR_INVALID);
    TN_CHECK_OK(tn_channel_unsubscribe(it)); /* not its parent's subscription */
    publish(8);
    TN_CHECK_OK(tn_channel_subscribe(it, TN_FROM_OLDEST));
    expect_from(it, 7, 2);
    return 0;
}

TN_TEST(a_forked_child_has_no_subscription_of_its_parent)
{
    begin(&small);
    tn_channel *it = subscribe(TN_FROM_NEWEST);
    publish(7);
    tnt_wait_ok(tnt_fork(use_an_inherited_handle, it));
    expect_from(it, 7, 2);
    tn_object_close(it);
    finish();
}

/* ---- bad input --------------------------------------------------------------------------- */

static int open_with(const tn_channel_options *options, uint32_t flags)
{
    tn_channel *it;
    int status = tn_channel_open(d, "channel", options, flags, &it);
    if (status == 0)
        tn_object_close(it);
    return status;
}

static void expect_refused(const tn_channel_options *options, const char *detail)
{
    tn_channel *it;
    assert_int_equal(tn_channel_open(d, "another", options, 0, &it), TN_ERR_INVALID);
    if (strstr(tn_error_detail(), detail) == NULL)
        fail_msg("the detail is: %s", tn_error_detail());
}

TN_TEST(options_out_of_range_are_refused_by_name)
{
    begin(NULL);
    expect_refused(TN_OPTIONS(tn_channel_options, .capacity = (1 << 16) + 1), "capacity");
    expect_refused(TN_OPTIONS(tn_channel_options, .subscribers = 1025), "subscribers");
    expect_refused(TN_OPTIONS(tn_channel_options, .policy = 3), "policy");
    expect_refused(TN_OPTIONS(tn_channel_options, .capacity = 3, .history = 4), "history");
    finish();
}

TN_TEST(a_channel_that_differs_from_the_options_is_refused)
{
    begin(TN_OPTIONS(tn_channel_options, .capacity = 8, .history = 2, .subscribers = 3));
    TN_CHECK_OK(open_with(TN_OPTIONS(tn_channel_options, .capacity = 8, .history = 2), 0));
    assert_int_equal(open_with(TN_OPTIONS(tn_channel_options, .capacity = 9), 0),
                     TN_ERR_INVALID);
    assert_int_equal(open_with(TN_OPTIONS(tn_channel_options, .history = 3), 0),
                     TN_ERR_INVALID);
    assert_non_null(strstr(tn_error_detail(), "history 2 instead of 3"));
    assert_int_equal(open_with(TN_OPTIONS(tn_channel_options, .subscribers = 4), 0),
                     TN_ERR_INVALID);
    assert_int_equal(open_with(TN_OPTIONS(tn_channel_options, .policy = TN_CHANNEL_DROP), 0),
                     TN_ERR_INVALID);
    finish();
}

TN_TEST(a_channel_has_so_many_subscribers_and_no_more)
{
    begin(TN_OPTIONS(tn_channel_options, .subscribers = 2));
    tn_channel *one = subscribe(TN_FROM_NEWEST), *other = subscribe(TN_FROM_NEWEST);
    assert_int_equal(tn_channel_subscribe(channel, TN_FROM_NEWEST), TN_ERR_FULL);
    assert_non_null(strstr(tn_error_detail(), "2 subscribers"));
    tn_object_close(one);
    TN_CHECK_OK(tn_channel_subscribe(channel, TN_FROM_NEWEST));
    tn_object_close(other);
    finish();
}

TN_TEST(a_receive_without_a_subscription_says_so)
{
    begin(NULL);
    expect_status(channel, TN_ERR_INVALID);
    assert_non_null(strstr(tn_error_detail(), "tn_channel_subscribe()"));
    assert_int_equal(tn_channel_subscribe(channel, 2), TN_ERR_INVALID);
    finish();
}
