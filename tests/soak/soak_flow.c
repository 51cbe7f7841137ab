/* SPDX-License-Identifier: Apache-2.0 */
/* Producers, consumers, and relays, which pop and push. */
#include "soak.h"

#include <poll.h>
#include <string.h>
#include <unistd.h>

enum { HELD = 12, MANY = 4, RELAYED = SOAK_QUEUES - 1, EXIT_GONE = 0 };

/* ---- producing --------------------------------------------------------------------------- */

static struct soak_parcel parcel;

static bool begin_parcel(void)
{
    uint32_t id = soak_new_entry();
    memset(&parcel.wire, 0, sizeof parcel.wire);
    parcel.wire.id = id;
    if (id == UINT32_MAX)
        usleep(1000); /* an audit is due */
    return id != UINT32_MAX;
}

static void produce_one(uint32_t queue)
{
    uint32_t wanted = soak_chance(70) ? 1 : soak_below(SOAK_MESSAGE_TENSORS + 1);
    if (!begin_parcel())
        return;
    for (uint32_t i = 0; i < wanted; i++) {
        if (!soak_make_tensor(&parcel.wire.parts[i], &parcel.tensors[i]))
            break;
        parcel.wire.part_count++;
    }
    if (soak_chance(12))
        soak_export(&parcel, &soak->entries[parcel.wire.id]);
    soak_push(&parcel, queue);
}

void soak_produce(uint32_t turns)
{
    for (uint32_t i = 0; i < turns && soak_goes_on(); i++)
        produce_one(soak_below(SOAK_QUEUES));
}

/* ---- consuming --------------------------------------------------------------------------- */

/* Messages that were popped and not finished yet. */
static struct held {
    tn_message message;
    struct soak_wire wire;
    uint32_t queue;
} held[HELD];
static uint32_t held_count;

static void end_lease(struct held *h)
{
    if (soak_queue_kinds[h->queue].policy != TN_QUEUE_LEASE)
        return;
    if (!soak_chance(10)) {
        soak_acknowledge(h->queue, &h->message, h->wire.id);
        return;
    }
    soak_do_at(SOAK_RETURNING, h->queue, 1);
    int status = tn_message_return(me.queues[h->queue], &h->message);
    if (status != 0)
        soak_fail_status(SOAK_ON_MESSAGES, "tn_message_return of a lease of ours", status);
    soak_count(SOAK_N_RETURNED, 1);
}

/* Finish them in any order, after a check that their contents did not change. */
static void finish_one(uint32_t index)
{
    struct held *h = &held[index];
    soak_do(SOAK_CHECKING);
    soak_check_contents(&h->message, &h->wire);
    end_lease(h);
    soak_do(SOAK_RELEASING);
    tn_message_fini(&h->message);
    held[index] = held[--held_count];
}

static void finish_all(void)
{
    while (held_count > 0)
        finish_one(held_count - 1);
}

static void take_in(const tn_message *messages, uint32_t count, uint32_t queue)
{
    uint32_t first = held_count;
    for (uint32_t i = 0; i < count; i++) {
        struct held *h = &held[held_count++];
        h->message = messages[i];
        h->queue = queue;
        soak_receive(&h->message, queue, &h->wire);
    }
    /* The ledger has every message of this pop; none is only in this process. */
    soak_do(SOAK_CHECKING);
    for (uint32_t i = first; i < held_count; i++) {
        soak_check_contents(&held[i].message, &held[i].wire);
        if (held[i].wire.handle_bytes > 0)
            soak_import(&held[i].message, &held[i].wire);
    }
}

static void pop(uint32_t queue, tn_deadline deadline)
{
    tn_message messages[MANY];
    uint32_t count = soak_chance(25) ? MANY : 1;
    soak_do_at(SOAK_POPPING, queue, count);
    int status = count == 1 ? tn_queue_pop(me.queues[queue], deadline, messages)
                            : tn_queue_pop_many(me.queues[queue], count, deadline, messages);
    if (status < 0)
        soak_judge_pop(status, queue);
    else
        take_in(messages, count == 1 ? 1 : (uint32_t)status, queue);
}

static void wait_for_any(void)
{
    soak_do(SOAK_WAITING);
    int status = tn_object_wait_any(me.queues, SOAK_QUEUES, soak_deadline(30));
    if (status < 0 && status != TN_ERR_TIMED_OUT)
        soak_fail_status(SOAK_ON_MESSAGES, "tn_object_wait_any", status);
    if (status >= 0)
        pop((uint32_t)status, TN_NOW);
}

static void wait_with_poll(uint32_t queue)
{
    int fd = -1;
    soak_do(SOAK_WAITING);
    int status = tn_object_watch(me.queues[queue], true);
    if (status == 0)
        status = tn_domain_poll_fd(me.domain, &fd);
    if (status != 0)
        soak_fail_status(SOAK_ON_MESSAGES, "watching a queue", status);
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    if (poll(&poll_fd, 1, 20) == 1)
        tn_domain_poll_clear(me.domain);
    pop(queue, TN_NOW);
    status = tn_object_watch(me.queues[queue], false);
    if (status != 0)
        soak_fail_status(SOAK_ON_MESSAGES, "tn_object_watch", status);
}

static void consume_one(void)
{
    uint32_t dice = soak_below(100), queue = soak_below(SOAK_QUEUES);
    if (dice < 40)
        wait_for_any();
    else if (dice < 50)
        wait_with_poll(queue);
    else
        pop(queue, dice < 75 ? TN_NOW : soak_deadline(soak_below(40)));
    while (held_count > HELD - MANY || (held_count > 0 && soak_chance(60)))
        finish_one(soak_below(held_count));
}

void soak_consume(uint32_t turns)
{
    for (uint32_t i = 0; i < turns && soak_goes_on(); i++)
        consume_one();
    if (soak_chance(20) && soak_goes_on()) /* with open leases, and with tensors in hand */
        _exit(EXIT_GONE);
    finish_all();
}

/* ---- passing on -------------------------------------------------------------------------- */

static void pass_on(struct held *h)
{
    if (!begin_parcel())
        return;
    for (uint32_t i = 0; i < h->message.tensor_count; i++) {
        parcel.tensors[i] = h->message.tensors[i];
        parcel.wire.parts[i] = h->wire.parts[i];
        h->message.tensors[i] = NULL;
        parcel.wire.part_count++;
    }
    soak_push(&parcel, RELAYED);
}

void soak_relay(uint32_t turns)
{
    for (uint32_t i = 0; i < turns && soak_goes_on(); i++) {
        pop(soak_below(RELAYED), soak_deadline(20));
        while (held_count > 0) {
            if (soak_chance(80))
                pass_on(&held[held_count - 1]);
            finish_one(held_count - 1);
        }
    }
}
