/* SPDX-License-Identifier: Apache-2.0 */
/* A queue in a domain without tenond, for the tests of queues. */
#ifndef TENON_TESTS_PROCESS_QUEUE_WORLD_H
#define TENON_TESTS_PROCESS_QUEUE_WORLD_H

#include <sched.h>
#include <string.h>

#include "harness/harness.h"
#include "os/os.h"
#include "queue/ring.h" /* before `q` and `d`, which its functions use as names */

/*
 * A process keeps a socket with which it rings bells. It is made before a test counts its
 * descriptors.
 */
__attribute__((constructor)) static void ring_once(void) { tni_os_bell_ring(1); }

static tn_domain *d;
static tn_queue *q;

static void begin(uint32_t capacity, uint32_t policy)
{
    tn_domain_options options = {
        .struct_size = sizeof options, .quota_bytes = 64 << 20, .flags = TN_DOMAIN_NO_MANAGER};
    tn_queue_options queue = {
        .struct_size = sizeof queue, .capacity = capacity, .policy = policy};
    d = tnt_domain(&options);
    TN_CHECK_OK(tn_queue_open(d, NULL, &queue, 0, &q));
}

static void finish(void)
{
    tn_object_close(q);
    TN_CHECK_OK(tn_domain_reap(d, NULL));
    TNT_AUDIT(d);
    tn_domain_close(d);
}

static inline void push_number(uint32_t number)
{
    tn_message m = {.bytes = &number, .size_bytes = sizeof number};
    TN_CHECK_OK(tn_queue_push(q, &m, 0, TN_FOREVER));
}

static inline uint32_t pop_number(tn_deadline deadline)
{
    tn_message m;
    uint32_t number;
    TN_CHECK_OK(tn_queue_pop(q, deadline, &m));
    assert_int_equal(m.size_bytes, sizeof number);
    memcpy(&number, m.bytes, sizeof number);
    tn_message_fini(&m);
    return number;
}

/** Take the oldest message, tell the test, and continue when a process sleeps at the queue. */
static inline struct tni_taken take_and_await_a_sleeper(struct tni_thread *thread,
                                                        struct tnt_signal *is_taken)
{
    const _Atomic uint32_t *items = &((const struct tn_object *)q)->object->items;
    struct tni_taken taken;
    TN_CHECK_OK(tni_ring_find(tni_queue_of(q), &taken));
    TN_CHECK(tni_ring_take(tni_queue_of(q), thread, &taken));
    tnt_signal(is_taken);
    while ((atomic_load(items) & TNI_WAIT_ARMED) == 0)
        sched_yield();
    return taken;
}

/** In a child: push a byte to the second of two queues. */
static inline int push_to_second(void *argument)
{
    tn_queue **queues = argument;
    tn_message m = {.bytes = "x", .size_bytes = 1};
    TN_CHECK_OK(tn_queue_push(queues[1], &m, 0, TN_NOW));
    return 0;
}

#endif
