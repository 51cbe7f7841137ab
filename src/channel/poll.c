/* SPDX-License-Identifier: Apache-2.0 */
/*
 * poll: what a publisher or a subscriber does before it sleeps.
 *
 * It polls for some microseconds, and then gives its processor to others a few times. Where
 * there are more processes than processors, the others publish or receive many messages
 * meanwhile, which costs one wake-up each if it sleeps at once.
 * Callers: publish.c, receive.c. Death: nothing here writes shared memory.
 */
#include "channel/slots.h"

enum { YIELDS = 16 };

int tni_channel_wait(struct tni_channel_handle *channel, const struct tni_awaited *awaited,
                     uint64_t deadline_ns)
{
    struct tn_object *handle = &channel->handle;
    int status = awaited->attempt(awaited->context);
    uint32_t spins = deadline_ns != 0 ? tni_spins(handle, awaited->word) : 0;
    for (uint32_t i = 0; status == TN_ERR_TIMED_OUT && i < spins; i++) {
        tni_relax();
        status = awaited->attempt(awaited->context);
    }
    for (uint32_t i = 0; status == TN_ERR_TIMED_OUT && spins != 0 && i < YIELDS; i++) {
        tni_os_yield();
        status = awaited->attempt(awaited->context);
    }
    if (deadline_ns != 0)
        tni_spins_learn(handle, awaited->word, spins, status != TN_ERR_TIMED_OUT);
    return status != TN_ERR_TIMED_OUT ? status : tni_object_wait(handle, awaited, deadline_ns);
}
