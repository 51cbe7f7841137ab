/* SPDX-License-Identifier: Apache-2.0 */
/*
 * poll: what a publisher or a subscriber does before it sleeps.
 *
 * It polls for some microseconds, and gives its processor to others now and then. Where there
 * are more processes than processors, the others publish or receive many messages meanwhile;
 * each would cost a wake-up if it slept at once.
 * Callers: publish.c, receive.c. Death: nothing here writes shared memory.
 */
#include "channel/slots.h"

enum { YIELDS = 16, SPINS = 10 };

/* SPINS attempts, then a yield, YIELDS times. */
static int poll(const struct tni_awaited *awaited)
{
    int status = TN_ERR_TIMED_OUT;
    for (uint32_t i = 0; status == TN_ERR_TIMED_OUT && i < YIELDS * SPINS; i++) {
        if (i % SPINS == SPINS - 1)
            tni_os_yield();
        else
            tni_relax();
        status = awaited->attempt(awaited->context);
    }
    return status;
}

int tni_channel_wait(struct tni_channel_handle *channel, const struct tni_awaited *awaited,
                     uint64_t deadline_ns)
{
    struct tn_object *handle = &channel->handle;
    int status = awaited->attempt(awaited->context);
    if (status != TN_ERR_TIMED_OUT)
        return status;
    uint32_t spins = deadline_ns != 0 ? tni_spins(handle, awaited->word) : 0;
    if (spins != 0)
        status = poll(awaited);
    if (deadline_ns != 0)
        tni_spins_learn(handle, awaited->word, spins, status != TN_ERR_TIMED_OUT);
    return status != TN_ERR_TIMED_OUT ? status : tni_object_wait(handle, awaited, deadline_ns);
}
