/* SPDX-License-Identifier: Apache-2.0 */
/*
 * channel: one message to every subscriber.
 */
#ifndef TNI_CHANNEL_H
#define TNI_CHANNEL_H

#include <tenon/channel.h>

#include "queue/queue.h"

/* ---- for the reaper ---------------------------------------------------------------------- */

/** How many slots of channels name a block. */
uint64_t tni_channel_count_records(const struct tni_segment *segment, tni_block block);
void tni_channel_for_each_record(const struct tni_segment *segment, tni_record_fn *each,
                                 void *context);
/** Why the ring of a channel is damaged; NULL: it is not. */
const char *tni_channel_fault(const struct tni_segment *segment, uint32_t object);

/* ---- for inspect ------------------------------------------------------------------------- */

struct tni_channel_figures {
    uint32_t history, most_subscribers;
    uint32_t subscribers, kept;
    uint64_t published, dropped, disconnected;
    uint64_t most_behind;
    int32_t slowest_pid;
};
void tni_channel_figures(const struct tni_segment *segment, uint32_t object,
                         struct tni_channel_figures *ret_figures);
/** @param block  a message of the channel, or a block that the message names */
typedef void tni_sent_fn(uint32_t object, tni_block block, void *context);
/** Call `each` for every block that the messages of channels keep. */
void tni_channel_for_each_kept(const struct tni_segment *segment, tni_sent_fn *each,
                               void *context);

/* ---- for the list of kinds --------------------------------------------------------------- */

extern const struct tni_kind tni_channel_kind;

#endif
