/* SPDX-License-Identifier: Apache-2.0 */
/* A channel in a domain without tenond, for the tests of channels. Messages are numbers of 8
 * bytes. */
#ifndef TENON_TESTS_PROCESS_CHANNEL_WORLD_H
#define TENON_TESTS_PROCESS_CHANNEL_WORLD_H

#include <string.h>

#include "harness/harness.h"
#include "harness/live_blocks.h"

static tn_domain *d;
static tn_channel *channel;

/** @param options  of the channel; NULL: the defaults */
static void begin(const tn_channel_options *options)
{
    tn_domain_options domain = {
        .struct_size = sizeof domain, .quota_bytes = 64 << 20, .flags = TN_DOMAIN_NO_MANAGER};
    d = tnt_domain(&domain);
    TN_CHECK_OK(tn_channel_open(d, "channel", options, TN_OPEN_NEW, &channel));
}

static void finish(void)
{
    TN_CHECK_OK(tn_domain_reap(d, NULL));
    TNT_AUDIT(d);
    channel = tn_object_close(channel);
    TNT_AUDIT(d);
    TN_CHECK(live_blocks(d) == 0);
    tn_domain_close(d);
}

/** Another handle on the channel. */
static inline tn_channel *open_again(void)
{
    tn_channel *it;
    TN_CHECK_OK(tn_channel_open(d, "channel", NULL, TN_OPEN_EXISTING, &it));
    return it;
}

static inline tn_channel *subscribe(uint32_t from)
{
    tn_channel *it = open_again();
    TN_CHECK_OK(tn_channel_subscribe(it, from));
    return it;
}

static inline tn_tensor *make_tensor(int64_t bytes, uint8_t value)
{
    tn_tensor *t;
    TN_CHECK_OK(tn_tensor_create(d, TN_UINT8, 1, &bytes, NULL, &t));
    memset(tn_tensor_data(t), value, (size_t)bytes);
    return t;
}

/** An odd number travels as a tensor and nothing else, an even one as bytes. */
static inline int try_publish(uint64_t number, tn_deadline deadline)
{
    tn_tensor *t = NULL;
    tn_message m = {.bytes = &number, .size_bytes = sizeof number};
    if (number % 2 != 0) {
        t = make_tensor(sizeof number, 0);
        memcpy(tn_tensor_data(t), &number, sizeof number);
        m = (tn_message){.tensors = &t, .tensor_count = 1};
    }
    int status = tn_channel_publish(channel, &m, deadline);
    tn_tensor_unref(t);
    return status;
}

static inline void publish(uint64_t number) { TN_CHECK_OK(try_publish(number, TN_NOW)); }

static inline uint64_t number_of(const tn_message *m)
{
    uint64_t number;
    TN_CHECK(m->size_bytes == sizeof number || (m->size_bytes == 0 && m->tensor_count == 1));
    memcpy(&number, m->size_bytes != 0 ? m->bytes : tn_tensor_data(m->tensors[0]),
           sizeof number);
    return number;
}

static inline uint64_t receive_until(tn_channel *it, tn_deadline deadline)
{
    tn_message m;
    TN_CHECK_OK(tn_channel_receive(it, deadline, &m));
    uint64_t number = number_of(&m);
    tn_message_fini(&m);
    return number;
}

static inline void expect(tn_channel *it, uint64_t number)
{
    TN_CHECK(receive_until(it, TN_NOW) == number);
}

/** @param status  of a receive that does not wait */
static inline void expect_status(tn_channel *it, int status)
{
    tn_message m;
    TN_CHECK(tn_channel_receive(it, TN_NOW, &m) == status);
}

static inline void expect_none(tn_channel *it) { expect_status(it, TN_ERR_TIMED_OUT); }

static inline tn_channel_info info_of(const tn_channel *it)
{
    tn_channel_info info = {.struct_size = sizeof info};
    TN_CHECK_OK(tn_channel_get_info(it, &info));
    return info;
}

#endif
