/* SPDX-License-Identifier: Apache-2.0 */
/* channelless: what the reaper asks of channels, for models that make none. */
#include "channel/channel.h"

uint64_t tni_channel_count_records(const struct tni_segment *s, tni_block block)
{
    (void)s;
    (void)block;
    return 0;
}
void tni_channel_for_each_record(const struct tni_segment *s, tni_record_fn *each,
                                 void *context)
{
    (void)s;
    (void)each;
    (void)context;
}
