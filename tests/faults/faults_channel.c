/* SPDX-License-Identifier: Apache-2.0 */
/* Channels. */
#include "faults.h"

enum { LARGE_BYTES = 20000 };

static tn_channel *channel, *other;
static uint8_t large[LARGE_BYTES];
static const tn_message small = {.bytes = "four", .size_bytes = 4};

/* ---- making, opening, closing ------------------------------------------------------------ */

static void close_out(void) { tn_object_close(*FAULTS_OUT(tn_channel *)); }
static int create(void)
{
    return tn_channel_open(faults_d, "one", TN_OPTIONS(tn_channel_options, .capacity = 8),
                           TN_OPEN_NEW, FAULTS_OUT(tn_channel *));
}
FAULTS(tn_channel_open, .prepare = faults_begin, .call = create, .undo = close_out,
       .finish = faults_end)

static void publish_now(void) { TN_CHECK_OK(tn_channel_publish(channel, &small, TN_NOW)); }
static void make_channel(void)
{
    faults_begin();
    TN_CHECK_OK(tn_channel_open(faults_d, "channel",
                                TN_OPTIONS(tn_channel_options, .capacity = 2, .history = 1),
                                TN_OPEN_NEW, &channel));
    publish_now();
}
static void end_channel(void)
{
    channel = tn_object_close(channel);
    faults_end();
}
static tn_channel_info info(void)
{
    tn_channel_info i = {.struct_size = sizeof i};
    TN_CHECK_OK(tn_channel_get_info(channel, &i));
    return i;
}
static uint64_t kept(void) { return info().kept; }
#define WITH_CHANNEL .prepare = make_channel, .finish = end_channel, .measure = kept

static int open_by_name(void)
{
    return tn_channel_open(faults_d, "channel", NULL, TN_OPEN_EXISTING,
                           FAULTS_OUT(tn_channel *));
}
FAULTS_WHEN(tn_channel_open, it_exists, WITH_CHANNEL, .call = open_by_name, .undo = close_out)

static int open_by_id(void)
{
    return tn_object_open_id(faults_d, TN_OBJECT_CHANNEL, tn_object_id(channel),
                             FAULTS_OUT(tn_channel *));
}
FAULTS_WHEN(tn_object_open_id, of_a_channel, WITH_CHANNEL, .call = open_by_id,
            .undo = close_out)

/* The tensors of its message have memory of their own, which ends with it. */
static void open_other(void)
{
    tn_tensor *t[] = {faults_tensor_as(TN_STRATEGY_FILE_DESCRIPTOR, 0, 100),
                      faults_tensor_as(TN_STRATEGY_FILE_SYSTEM, 0, 100)};
    const tn_message m = {.tensors = t, .tensor_count = 2};
    TN_CHECK_OK(tn_channel_open(faults_d, NULL, NULL, 0, &other));
    TN_CHECK_OK(tn_channel_subscribe(other, TN_FROM_NEWEST));
    TN_CHECK_OK(tn_channel_publish(other, &m, TN_NOW));
    tn_tensor_unref(t[0]);
    tn_tensor_unref(t[1]);
}
static int close_other(void) { return other = tn_object_close(other), 0; }
FAULTS_WHEN(tn_object_close, of_a_channel, WITH_CHANNEL, .never_fails = true,
            .ends_files = true, .before = open_other, .call = close_other)

/* ---- publishing -------------------------------------------------------------------------- */

static int publish(void) { return tn_channel_publish(channel, &small, TN_NOW); }
FAULTS(tn_channel_publish, WITH_CHANNEL, .has_no_calls = true, .call = publish)

static int publish_large(void)
{
    const tn_message m = {.bytes = large, .size_bytes = LARGE_BYTES};
    return tn_channel_publish(channel, &m, TN_NOW);
}
FAULTS_WHEN(tn_channel_publish, it_is_large, WITH_CHANNEL, .call = publish_large)

static void make_full(void)
{
    make_channel();
    TN_CHECK_OK(tn_channel_subscribe(channel, TN_FROM_NEWEST));
    publish_now();
    publish_now();
}
static int publish_in_vain(void)
{
    return tn_channel_publish(channel, &small, tnt_deadline(2));
}
FAULTS_WHEN(tn_channel_publish, it_is_full, .prepare = make_full, .finish = end_channel,
            .measure = kept, .expected = TN_ERR_TIMED_OUT, .call = publish_in_vain)

/* ---- receiving --------------------------------------------------------------------------- */

static int subscribe(void) { return tn_channel_subscribe(channel, TN_FROM_NEWEST); }
static void unsubscribe_now(void) { TN_CHECK_OK(tn_channel_unsubscribe(channel)); }
FAULTS(tn_channel_subscribe, WITH_CHANNEL, .has_no_calls = true, .call = subscribe,
       .undo = unsubscribe_now)

static void subscribe_now(void) { TN_CHECK_OK(subscribe()); }
static int unsubscribe(void) { return tn_channel_unsubscribe(channel); }
FAULTS(tn_channel_unsubscribe, WITH_CHANNEL, .has_no_calls = true, .before = subscribe_now,
       .call = unsubscribe)

static void subscribe_to_the_oldest(void)
{
    TN_CHECK_OK(tn_channel_subscribe(channel, TN_FROM_OLDEST));
}
static void end_out(void) { tn_message_fini(FAULTS_OUT(tn_message)); }
static int receive(void) { return tn_channel_receive(channel, TN_NOW, FAULTS_OUT(tn_message)); }
FAULTS(tn_channel_receive, WITH_CHANNEL, .before = subscribe_to_the_oldest, .call = receive,
       .undo = end_out)

static void publish_a_tensor(void)
{
    tn_tensor *t = faults_tensor(1000);
    TN_CHECK_OK(
        tn_channel_publish(channel, &(tn_message){.tensors = &t, .tensor_count = 1}, TN_NOW));
    tn_tensor_unref(t);
    subscribe_to_the_oldest();
}
FAULTS_WHEN(tn_channel_receive, it_has_a_tensor, WITH_CHANNEL, .before = publish_a_tensor,
            .call = receive, .undo = end_out)

static int receive_in_vain(void)
{
    return tn_channel_receive(channel, tnt_deadline(2), FAULTS_OUT(tn_message));
}
FAULTS_WHEN(tn_channel_receive, there_is_none, WITH_CHANNEL, .expected = TN_ERR_TIMED_OUT,
            .before = subscribe_now, .call = receive_in_vain)

/* ---- the rest ---------------------------------------------------------------------------- */

static int end(void) { return tn_channel_end(channel); }
FAULTS(tn_channel_end, WITH_CHANNEL, .has_no_calls = true, .call = end)

static int describe(void)
{
    return tn_channel_get_info(channel, FAULTS_OUT_STRUCT(tn_channel_info));
}
FAULTS(tn_channel_get_info, WITH_CHANNEL, .has_no_calls = true, .call = describe)
