/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations: channels. After a death all subscribers of the survivor have the message of the
 * operation, or none has; they have each message before it, and go on with the next one.
 */
#include "process/crash.h"

#include <string.h>

enum { CAPACITY = 3, HISTORY = 1, NEW = 1001, LATER = 2000, TENSOR_BYTES = 1000 };

/* ---- messages ---------------------------------------------------------------------------- */

/* A message with an odd number is a tensor and nothing else, which begins with the number. */
static int try_publish(struct crash_world *w, uint64_t number)
{
    tn_tensor *tensor = crash_tensor(w, TENSOR_BYTES);
    tn_message m = {.tensors = &tensor, .tensor_count = 1};
    if (number % 2 != 0) {
        memcpy(tn_tensor_data(tensor), &number, sizeof number);
    } else {
        m.bytes = &number;
        m.size_bytes = sizeof number;
    }
    int status = tn_channel_publish(w->channel, &m, TN_NOW);
    tn_tensor_unref(tensor);
    return status;
}

static void publish(struct crash_world *w, uint64_t number)
{
    TN_CHECK_OK(try_publish(w, number));
}

/* @return the number of the next message, whose tensor is whole; 0: there is none */
static uint64_t receive(tn_channel *channel)
{
    tn_message m;
    uint64_t number;
    int status = tn_channel_receive(channel, TN_NOW, &m);
    if (status == TN_ERR_TIMED_OUT || status == TN_ERR_CLOSED || status == TN_ERR_PEER_DIED)
        return 0;
    TN_CHECK_OK(status);
    assert_int_equal(m.tensor_count, 1);
    assert_int_equal(tn_tensor_count(m.tensors[0]), TENSOR_BYTES);
    const uint8_t *bytes = tn_tensor_data(m.tensors[0]);
    assert_true(m.size_bytes == sizeof number || m.size_bytes == 0);
    memcpy(&number, m.size_bytes != 0 ? m.bytes : bytes, sizeof number);
    assert_int_equal(number % 2 != 0, m.size_bytes == 0);
    for (size_t i = m.size_bytes != 0 ? 0 : sizeof number; i < TENSOR_BYTES; i++)
        TN_CHECK(bytes[i] == CRASH_BYTE);
    tn_message_fini(&m);
    return number;
}

static void expect(tn_channel *channel, uint64_t number)
{
    assert_int_equal(receive(channel), number);
}

static tn_channel_info info_of(tn_channel *channel)
{
    tn_channel_info info = {.struct_size = sizeof info};
    TN_CHECK_OK(tn_channel_get_info(channel, &info));
    return info;
}

/* ---- the channel ------------------------------------------------------------------------- */

static void open_of(struct crash_world *w, uint32_t policy, uint32_t history)
{
    TN_CHECK_OK(tn_channel_open(w->domain, "channel",
                                TN_OPTIONS(tn_channel_options, .capacity = CAPACITY,
                                           .history = history, .policy = policy),
                                TN_OPEN_NEW, &w->channel));
}

static tn_channel *subscribe_again(struct crash_world *w)
{
    tn_channel *it;
    TN_CHECK_OK(tn_channel_open(w->domain, "channel", NULL, TN_OPEN_EXISTING, &it));
    TN_CHECK_OK(tn_channel_subscribe(it, TN_FROM_NEWEST));
    return it;
}

/*
 * Messages 1 and 2 went to `reader` only. `behind` has received none of those after them, of
 * which there are so many.
 */
enum { FIRST_BEHIND = 3 };
static void prepare_with(struct crash_world *w, uint32_t policy, uint64_t behind)
{
    uint64_t number = 1;
    open_of(w, policy, HISTORY);
    w->reader = subscribe_again(w);
    for (; number < FIRST_BEHIND; number++) {
        publish(w, number);
        expect(w->reader, number);
    }
    w->behind = subscribe_again(w);
    for (; number < FIRST_BEHIND + behind; number++) {
        publish(w, number);
        expect(w->reader, number);
    }
}

static void with_room(struct crash_world *w) { prepare_with(w, TN_CHANNEL_WAIT, 1); }
static void full(struct crash_world *w) { prepare_with(w, TN_CHANNEL_WAIT, CAPACITY); }
static void full_to_drop(struct crash_world *w) { prepare_with(w, TN_CHANNEL_DROP, CAPACITY); }
static void full_to_disconnect(struct crash_world *w)
{
    prepare_with(w, TN_CHANNEL_DISCONNECT, CAPACITY);
}
static void nobody(struct crash_world *w) { open_of(w, TN_CHANNEL_WAIT, 0); }

/* Everything was received: the channel keeps its history, and has its subscribers. */
static void check_settled(struct crash_world *w, uint32_t subscribers, uint32_t kept)
{
    tn_channel_info info = info_of(w->channel);
    assert_int_equal(info.subscribers, subscribers);
    assert_int_equal(info.most_behind, 0);
    assert_int_equal(info.kept, kept);
}

/*
 * The survivor publishes more than the channel has room for, all of which its subscribers
 * receive.
 */
static void go_on(struct crash_world *w)
{
    bool has_behind = info_of(w->behind).is_subscribed;
    for (uint64_t number = LATER; number < LATER + 2 * CAPACITY; number++) {
        publish(w, number);
        expect(w->reader, number);
        if (has_behind)
            expect(w->behind, number);
    }
    check_settled(w, 1 + has_behind, HISTORY);
}

/* ---- operations -------------------------------------------------------------------------- */

static void publish_new(struct crash_world *w) { publish(w, NEW); }
static void publish_new_with_bytes(struct crash_world *w) { publish(w, NEW + 1); }

static void expect_behind(struct crash_world *w, uint64_t from, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        expect(w->behind, from + i);
}

/* @return the message of the operation; 0: it is not there. Without a death it is */
static uint64_t find_new(struct crash_world *w)
{
    uint64_t number = receive(w->reader);
    assert_true(number == NEW || number == NEW + 1 || (number == 0 && w->has_died));
    return number;
}

static void check_published(struct crash_world *w)
{
    uint64_t found = find_new(w);
    expect_behind(w, FIRST_BEHIND, 1);
    expect(w->behind, found);
    go_on(w);
}

/* A publisher that drops empties the slot first, and may die then. */
static void check_dropped(struct crash_world *w)
{
    uint64_t found = find_new(w), first = receive(w->behind), lost = first - FIRST_BEHIND;
    assert_true(lost == 1 || (lost == 0 && found == 0));
    expect_behind(w, first + 1, CAPACITY - lost - 1);
    expect(w->behind, found);
    assert_int_equal(info_of(w->behind).lost, lost);
    go_on(w);
}

/* Only if it was disconnected may it miss the message. */
static void check_disconnected(struct crash_world *w)
{
    bool is_published = find_new(w) != 0, is_left = info_of(w->behind).is_subscribed;
    assert_true(!is_left || !is_published);
    if (is_left)
        expect_behind(w, FIRST_BEHIND, CAPACITY);
    else
        assert_true(w->has_died || info_of(w->channel).disconnected == 1);
    go_on(w);
}

/* A subscriber of its own; the messages stay for `behind`. */
static void receive_one(struct crash_world *w)
{
    TN_CHECK_OK(tn_channel_subscribe(w->channel, TN_FROM_OLDEST));
    expect(w->channel, FIRST_BEHIND);
}
static void check_unchanged(struct crash_world *w)
{
    expect(w->reader, 0);
    expect_behind(w, FIRST_BEHIND, CAPACITY);
    expect(w->behind, 0);
    go_on(w);
}

/* The only subscriber: who dies with the message it waits for lets it go. */
static void subscribe_and_publish(struct crash_world *w)
{
    TN_CHECK_OK(tn_channel_subscribe(w->channel, TN_FROM_NEWEST));
    publish(w, NEW);
}
static void receive_the_last(struct crash_world *w)
{
    subscribe_and_publish(w);
    expect(w->channel, NEW);
}
static void unsubscribe(struct crash_world *w)
{
    subscribe_and_publish(w);
    TN_CHECK_OK(tn_channel_unsubscribe(w->channel));
}
static void close_subscribed(struct crash_world *w)
{
    subscribe_and_publish(w);
    w->channel = tn_object_close(w->channel);
}
/* Who takes the claim, as a subscriber does, finishes what the dead one was publishing. */
static void check_nothing_waits(struct crash_world *w)
{
    assert_int_equal(info_of(w->channel).subscribers, 0);
    w->reader = subscribe_again(w);
    check_settled(w, 1, 0);
    w->behind = subscribe_again(w);
    for (uint64_t number = LATER; number < LATER + 2 * CAPACITY; number++) {
        publish(w, number);
        expect(w->reader, number);
        expect(w->behind, number);
    }
    check_settled(w, 2, 0);
}

static void end(struct crash_world *w) { TN_CHECK_OK(tn_channel_end(w->channel)); }
static void check_ended(struct crash_world *w)
{
    bool is_ended = info_of(w->channel).is_ended;
    tn_message m;
    assert_true(is_ended || w->has_died);
    if (!is_ended) {
        check_unchanged(w);
        return;
    }
    expect_behind(w, FIRST_BEHIND, CAPACITY);
    assert_int_equal(tn_channel_receive(w->behind, TN_NOW, &m), TN_ERR_CLOSED);
    assert_int_equal(tn_channel_receive(w->reader, TN_NOW, &m), TN_ERR_CLOSED);
    assert_int_equal(try_publish(w, LATER), TN_ERR_CLOSED);
    check_settled(w, 2, HISTORY);
}

static void make_and_close(struct crash_world *w)
{
    open_of(w, TN_CHANNEL_WAIT, HISTORY);
    publish(w, NEW);
    w->channel = tn_object_close(w->channel);
}
/* The name is free again. */
static void make_again(struct crash_world *w)
{
    with_room(w);
    expect(w->behind, FIRST_BEHIND);
    go_on(w);
}

const struct crash_op crash_channel_ops[] = {
    {.name = "channel_publish",
     .prepare = with_room,
     .run = publish_new,
     .check = check_published},
    {.name = "channel_publish_with_bytes",
     .prepare = with_room,
     .run = publish_new_with_bytes,
     .check = check_published},
    {.name = "channel_publish_dropping",
     .prepare = full_to_drop,
     .run = publish_new,
     .check = check_dropped},
    {.name = "channel_publish_disconnecting",
     .prepare = full_to_disconnect,
     .run = publish_new,
     .check = check_disconnected},
    {.name = "channel_subscribe_from_the_oldest",
     .prepare = full,
     .run = receive_one,
     .check = check_unchanged},
    {.name = "channel_receive_the_last",
     .prepare = nobody,
     .run = receive_the_last,
     .check = check_nothing_waits},
    {.name = "channel_unsubscribe",
     .prepare = nobody,
     .run = unsubscribe,
     .check = check_nothing_waits},
    {.name = "channel_close_of_a_subscriber",
     .prepare = nobody,
     .run = close_subscribed,
     .check = check_nothing_waits},
    {.name = "channel_end", .prepare = full, .run = end, .check = check_ended},
    {.name = "channel_create_and_close_by_the_last",
     .run = make_and_close,
     .check = make_again},
    {0},
};
