/* SPDX-License-Identifier: Apache-2.0 */
/* channels: the ring block of a channel. Included by layout.h. */
#ifndef TNI_LAYOUT_CHANNELS_H
#define TNI_LAYOUT_CHANNELS_H

#include <stdatomic.h>

#include "base/base.h"

/*
 * The block has this head, then the subscribers, then the slots, one for each message that the
 * channel has room for. `value` of the channel's struct tni_object is {history:32,
 * subscribers:32}, and `value2` the claim (tni_who()) of the process that publishes or
 * subscribes.
 *
 * Messages have numbers from 1. Message n has the slot n modulo the capacity.
 */
struct tni_channel {
    _Alignas(64) _Atomic uint64_t last;     /* the number of the last message */
    _Alignas(64) _Atomic uint64_t released; /* no message up to this number is left */
    _Atomic uint32_t space; /* wait word of publishers that wait for a subscriber */
    /* What seldom changes has a cache line of its own. */
    _Alignas(64) _Atomic uint64_t dropped;
    _Atomic uint64_t disconnected;
    _Atomic uint32_t limit; /* subscribers from this index on have never been used */
};

struct tni_subscriber {
    /* The number of the message that it receives next. 0: it is none, or is disconnected. */
    _Alignas(64) _Atomic uint64_t cursor;
    _Alignas(64) _Atomic uint64_t owner; /* tni_who(); 0: free */
    _Atomic uint64_t dropped;
    _Atomic int32_t pid;
};

/*
 * The word of a slot is {number:32, block:32}: the low half of the message's number. The block
 * is a record; 0: the message was released. It is a message block; or that of a tensor, which
 * is all that the message has, and `view` is its encoded struct tni_view. A publisher writes
 * `view` only while the block is 0.
 */
enum { TNI_CHANNEL_VIEW_WORDS = 7 };
struct tni_channel_slot {
    _Alignas(64) _Atomic uint64_t word;
    uint64_t view[TNI_CHANNEL_VIEW_WORDS];
};
static inline uint32_t tni_channel_number(uint64_t word) { return (uint32_t)(word >> 32); }
static inline uint32_t tni_channel_block(uint64_t word) { return (uint32_t)word; }
static inline uint64_t tni_channel_word(uint64_t number, uint32_t block)
{
    return (number & UINT32_MAX) << 32 | block;
}

static inline uint32_t tni_channel_history(uint64_t value) { return (uint32_t)(value >> 32); }
static inline uint32_t tni_channel_subscribers(uint64_t value) { return (uint32_t)value; }
static inline uint64_t tni_channel_value(uint32_t history, uint32_t subscribers)
{
    return (uint64_t)history << 32 | subscribers;
}

#endif
