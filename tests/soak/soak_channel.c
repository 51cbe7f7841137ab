/* SPDX-License-Identifier: Apache-2.0 */
/* Channels: keepers publish and receive; the conductor looks at what is left. */
#include "soak.h"

#include <string.h>

/* No history: an audit finds no block, and no byte. */
enum { CAPACITY = 16, SUBSCRIBERS = 8 };
#define MAGIC UINT64_C(0x6c656e6e616863)

/* The bytes of a message, which has one tensor. */
struct sent {
    uint64_t magic;
    uint32_t life, number; /* who published it, and its how many-th it is */
    struct soak_part part;
    uint64_t again; /* `magic`, if the message is whole */
};

int soak_channels_open(tn_domain *domain, uint32_t flags)
{
    static const char *const names[SOAK_CHANNELS] = {"channel-waits", "channel-drops",
                                                     "channel-disconnects"};
    int status = 0;
    for (uint32_t i = 0; i < SOAK_CHANNELS && status == 0; i++) {
        const tn_channel_options options = {.struct_size = sizeof options,
                                            .capacity = CAPACITY,
                                            .subscribers = SUBSCRIBERS,
                                            .policy = TN_CHANNEL_WAIT + i};
        status = tn_channel_open(domain, names[i], &options, flags, &me.channels[i]);
    }
    return status;
}

void soak_channels_close(void)
{
    for (uint32_t i = 0; i < SOAK_CHANNELS; i++)
        me.channels[i] = tn_object_close(me.channels[i]);
}

/* @return whether a call may fail so while others are killed and stopped */
static bool is_refusal(int status)
{
    return status == TN_ERR_TIMED_OUT || status == TN_ERR_NO_MEMORY || status == TN_ERR_FULL ||
           status == TN_ERR_PEER_DIED;
}

static void judge(const char *call, int status)
{
    if (status < 0 && !is_refusal(status))
        soak_fail_status(SOAK_ON_CHANNELS, call, status);
}

static void publish(tn_channel *channel)
{
    struct sent sent = {.magic = MAGIC, .life = me.life, .again = MAGIC};
    tn_tensor *tensor;
    tn_message m = {
        .bytes = &sent, .size_bytes = sizeof sent, .tensors = &tensor, .tensor_count = 1};
    if (!soak_make_tensor(&sent.part, &tensor))
        return;
    soak_do(SOAK_AT_CHANNEL);
    /* A memory object would be lost with its last holder. */
    if (sent.part.strategy == TN_STRATEGY_ARENA) {
        sent.number = ++me.published;
        int status = tn_channel_publish(channel, &m, soak_deadline(20));
        judge("tn_channel_publish", status);
        soak_count(SOAK_N_PUBLISHED, status == 0);
    }
    soak_drop_tensors(&tensor, 1);
}

/* pre: the caller owns the message, which this ends. */
static struct sent check_message(tn_message *m)
{
    struct sent sent;
    if (m->size_bytes != sizeof sent || m->tensor_count != 1)
        soak_fail(SOAK_ON_CHANNELS, "a message has %zu bytes and %u tensors", m->size_bytes,
                  m->tensor_count);
    memcpy(&sent, m->bytes, sizeof sent);
    if (sent.magic != MAGIC || sent.again != MAGIC)
        soak_fail(SOAK_ON_CHANNELS, "a message is not whole");
    soak_check_tensor(m->tensors[0], &sent.part, "a message of a channel");
    soak_checked(SOAK_ON_CHANNELS);
    soak_count(SOAK_N_RECEIVED, 1);
    tn_message_fini(m);
    return sent;
}

/* @return whether there was a message */
static bool receive(tn_channel *channel, tn_deadline deadline, struct sent *last)
{
    tn_message m;
    soak_do(SOAK_AT_CHANNEL);
    int status = tn_channel_receive(channel, deadline, &m);
    if (status == TN_ERR_STALE) { /* it was disconnected */
        soak_count(SOAK_N_DISCONNECTED, 1);
        return false;
    }
    judge("tn_channel_receive", status);
    if (status != 0)
        return false;
    struct sent sent = check_message(&m);
    if (sent.life == last->life && sent.number <= last->number)
        soak_fail(SOAK_ON_CHANNELS, "message %u of life %u came after its message %u",
                  sent.number, sent.life, last->number);
    *last = sent;
    return true;
}

/* A subscription, during which others publish as much as this one receives, or more. */
static void subscribe(tn_channel *channel)
{
    struct sent last = {0};
    soak_do(SOAK_AT_CHANNEL);
    int status = tn_channel_subscribe(channel, soak_below(2));
    judge("tn_channel_subscribe", status);
    if (status != 0)
        return;
    for (uint32_t i = soak_below(24); i > 0 && soak_goes_on(); i--) {
        if (soak_chance(30))
            publish(channel);
        else if (!receive(channel, soak_chance(50) ? TN_NOW : soak_deadline(5), &last) &&
                 soak_chance(30))
            break;
    }
    if (soak_chance(50))
        judge("tn_channel_unsubscribe", tn_channel_unsubscribe(channel));
}

/* One that parks gives its subscriptions up, as the audit waits for none of them. */
void soak_use_channel(void)
{
    enum { TIMES = 4 };
    for (int i = 0; i < TIMES && soak_goes_on(); i++) {
        tn_channel *channel = me.channels[soak_below(SOAK_CHANNELS)];
        if (soak_chance(40))
            publish(channel);
        else
            subscribe(channel);
    }
    for (uint32_t i = 0; i < SOAK_CHANNELS; i++)
        judge("tn_channel_unsubscribe", tn_channel_unsubscribe(me.channels[i]));
    soak_do(SOAK_NOTHING);
}

/*
 * No other process is in a channel: no message waits for a dead one. Who takes the claim, as a
 * subscriber does, finishes what a publisher began that died.
 */
static void check_empty(tn_channel *channel)
{
    tn_channel_info info = {.struct_size = sizeof info};
    struct sent last = {0};
    int status = tn_channel_subscribe(channel, TN_FROM_OLDEST);
    if (status != 0)
        soak_fail_status(SOAK_ON_CHANNELS, "subscribing to a channel that nobody uses", status);
    while (receive(channel, TN_NOW, &last))
        continue;
    judge("tn_channel_unsubscribe", tn_channel_unsubscribe(channel));
    status = tn_channel_get_info(channel, &info);
    if (status != 0 || info.subscribers != 0 || info.most_behind != 0 || info.kept != 0)
        soak_fail(SOAK_ON_CHANNELS, "a channel that nobody uses has %u subscribers, keeps %u",
                  info.subscribers, info.kept);
}

void soak_check_channels(void)
{
    for (uint32_t i = 0; i < SOAK_CHANNELS; i++)
        check_empty(me.channels[i]);
}
