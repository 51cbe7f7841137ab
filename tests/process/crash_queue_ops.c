/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations: queues. If a consumer died in a pop, `least` and `most` say how many messages
 * the queue's policy leaves.
 */
#include "process/crash.h"

#include <poll.h>
#include <string.h>

enum { LARGE_BYTES = 100 << 10, CAPACITY = 8 };

/* ---- push -------------------------------------------------------------------------------- */

static void push_bytes(struct crash_world *w) { crash_push(w, 0, 100); }

static void push_large_bytes(struct crash_world *w) { crash_push(w, 0, LARGE_BYTES); }

static void push_tensors(struct crash_world *w) { crash_push(w, 5, 100); }

static void push_moved(struct crash_world *w)
{
    tn_tensor *tensor = crash_tensor(w, 1000);
    TN_CHECK_OK(tn_queue_push_tensor(w->queue, tensor, TN_PUSH_MOVE, TN_NOW));
}

/* In builds that detect misuse, the memory of an ended tensor is used again after 256 ends. */
static void end_many(struct crash_world *w)
{
    for (int i = 0; i < 300; i++)
        tn_tensor_unref(crash_tensor(w, 1000));
}

static void pass_one(struct crash_world *w)
{
    tn_tensor *tensor = crash_tensor(w, 1000);
    TN_CHECK_OK(tn_queue_push_tensor(w->queue, tensor, TN_PUSH_MOVE, TN_NOW));
    TN_CHECK_OK(tn_queue_pop_tensor(w->queue, TN_NOW, &tensor));
    tn_tensor_unref(tensor);
}

/* The second tensor gets the memory of the first. */
static void pass_two(struct crash_world *w)
{
    pass_one(w);
    pass_one(w);
}

static void push_kept(struct crash_world *w)
{
    tn_tensor *tensor = crash_tensor(w, 1000);
    TN_CHECK_OK(tn_queue_push_tensor(w->queue, tensor, 0, TN_NOW));
}

static void hold_two(struct crash_world *w)
{
    w->tensor[0] = crash_tensor(w, 1000);
    w->tensor[1] = crash_tensor(w, 2000);
}

/* Push tensors that the survivor holds too, one of them twice. */
static void push_shared(struct crash_world *w)
{
    tn_tensor *tensors[3] = {w->tensor[0], w->tensor[1], w->tensor[0]};
    tn_message m = {.tensors = tensors, .tensor_count = 3};
    TN_CHECK_OK(tn_queue_push(w->queue, &m, 0, TN_NOW));
}

static void push_batch(struct crash_world *w)
{
    tn_message m[3];
    tn_tensor *tensors[3];
    uint8_t byte = CRASH_BYTE;
    for (int i = 0; i < 3; i++) {
        tensors[i] = crash_tensor(w, 1000);
        m[i] = (tn_message){
            .bytes = &byte, .size_bytes = 1, .tensors = &tensors[i], .tensor_count = 1};
    }
    assert_int_equal(tn_queue_push_many(w->queue, m, 3, TN_PUSH_MOVE, TN_NOW), 3);
}

static void lease_all(struct crash_world *w)
{
    for (uint32_t i = 0; i + 1 < CAPACITY; i++)
        crash_push(w, i % 2, 100);
    for (uint32_t i = 0; i + 1 < CAPACITY; i++)
        w->leased[w->leased_count++] = crash_pop(w);
}

/* The free slots lie after leased slots. */
static void push_around_leases(struct crash_world *w)
{
    for (int i = 0; i < 3; i++) {
        crash_push(w, 0, 100);
        tn_message m = crash_pop(w);
        TN_CHECK_OK(tn_message_ack(w->queue, &m));
        tn_message_fini(&m);
    }
}

static void fill(struct crash_world *w)
{
    for (uint32_t i = 0; i < CAPACITY; i++)
        crash_push(w, i % 2, 100);
}

static void push_full(struct crash_world *w)
{
    tn_tensor *tensor = crash_tensor(w, 1000);
    assert_int_equal(tn_queue_push_tensor(w->queue, tensor, TN_PUSH_MOVE, TN_NOW),
                     TN_ERR_TIMED_OUT);
    tn_tensor_unref(tensor);
}

const struct crash_op crash_push_ops[] = {
    {.name = "push_bytes", .run = push_bytes, .least = 0, .most = 1},
    {.name = "push_large_bytes",
     .is_costly = true,
     .run = push_large_bytes,
     .least = 0,
     .most = 1},
    {.name = "push_a_moved_tensor", .run = push_moved, .least = 0, .most = 1},
    {.name = "push_a_kept_tensor", .run = push_kept, .least = 0, .most = 1},
    {.name = "pass_a_tensor_like_the_last", .prepare = end_many, .run = pass_two, .most = 1},
    {.name = "push_five_tensors", .run = push_tensors, .least = 0, .most = 1},
    {.name = "push_shared_tensors", .prepare = hold_two, .run = push_shared, .most = 1},
    {.name = "push_a_batch", .run = push_batch, .least = 0, .most = 3},
    {.name = "push_to_a_full_ring", .prepare = fill, .run = push_full, .least = 8, .most = 8},
    {.name = "push_around_leases",
     .policy = TN_QUEUE_LEASE,
     .prepare = lease_all,
     .run = push_around_leases,
     .most = 1},
    {0},
};

/* ---- pop --------------------------------------------------------------------------------- */

static void two_bytes(struct crash_world *w)
{
    crash_push(w, 0, 100);
    crash_push(w, 0, 100);
}

static void two_tensors(struct crash_world *w)
{
    crash_push(w, 1, 0);
    crash_push(w, 1, 0);
}

static void two_full(struct crash_world *w)
{
    crash_push(w, 5, 100);
    crash_push(w, 3, LARGE_BYTES);
}

/* The process holds the tensor already, so the reference of the message is one too many. */
static void two_held(struct crash_world *w)
{
    hold_two(w);
    TN_CHECK_OK(tn_queue_push_tensor(w->queue, w->tensor[0], 0, TN_NOW));
    push_shared(w);
}

static void pop_one(struct crash_world *w) { crash_pop(w); }

static void pop_and_fini(struct crash_world *w)
{
    tn_message m = crash_pop(w);
    tn_message_fini(&m);
    m = crash_pop(w);
    tn_message_fini(&m);
}

static void pop_tensor(struct crash_world *w)
{
    tn_tensor *tensor;
    TN_CHECK_OK(tn_queue_pop_tensor(w->queue, TN_NOW, &tensor));
}

/* A message that is not one tensor stays in the queue. */
static void pop_no_tensor(struct crash_world *w)
{
    tn_tensor *tensor;
    assert_int_equal(tn_queue_pop_tensor(w->queue, TN_NOW, &tensor), TN_ERR_INVALID);
}

static void pop_batch(struct crash_world *w)
{
    tn_message m[4];
    assert_int_equal(tn_queue_pop_many(w->queue, 4, TN_NOW, m), 2);
}

static void pop_and_ack(struct crash_world *w)
{
    tn_message m = crash_pop(w);
    TN_CHECK_OK(tn_message_ack(w->queue, &m));
    tn_message_fini(&m);
}

static void pop_and_return(struct crash_world *w)
{
    tn_message m = crash_pop(w);
    TN_CHECK_OK(tn_message_return(w->queue, &m));
    tn_message_fini(&m);
}

/* A consumer that closes the queue returns its leased message. */
static void pop_and_close(struct crash_world *w)
{
    tn_message m = crash_pop(w);
    tn_message_fini(&m);
    w->queue = tn_object_close(w->queue);
}

static void pop_nothing(struct crash_world *w)
{
    tn_message m;
    assert_int_equal(tn_queue_pop(w->queue, TN_NOW, &m), TN_ERR_TIMED_OUT);
}

#define POP(name_, policy_, prepare_, run_, least_)                                            \
    {                                                                                          \
        .name = name_, .policy = policy_, .prepare = prepare_, .run = run_, .least = least_,   \
        .most = 2                                                                              \
    }

const struct crash_op crash_pop_ops[] = {
    POP("pop_bytes_redeliver", TN_QUEUE_REDELIVER, two_bytes, pop_one, 1),
    POP("pop_bytes_drop", TN_QUEUE_DROP, two_bytes, pop_one, 1),
    POP("pop_bytes_lease", TN_QUEUE_LEASE, two_bytes, pop_one, 2),
    POP("pop_a_tensor_redeliver", TN_QUEUE_REDELIVER, two_tensors, pop_tensor, 1),
    POP("pop_a_tensor_drop", TN_QUEUE_DROP, two_tensors, pop_tensor, 1),
    POP("pop_a_tensor_lease", TN_QUEUE_LEASE, two_tensors, pop_one, 2),
    POP("pop_many_tensors_redeliver", TN_QUEUE_REDELIVER, two_full, pop_one, 1),
    POP("pop_many_tensors_drop", TN_QUEUE_DROP, two_full, pop_one, 1),
    POP("pop_many_tensors_lease", TN_QUEUE_LEASE, two_full, pop_one, 2),
    POP("pop_held_tensors", TN_QUEUE_REDELIVER, two_held, pop_and_fini, 0),
    POP("pop_and_fini", TN_QUEUE_REDELIVER, two_full, pop_and_fini, 0),
    POP("pop_of_another_form", TN_QUEUE_REDELIVER, two_full, pop_no_tensor, 2),
    POP("pop_a_batch", TN_QUEUE_REDELIVER, two_full, pop_batch, 0),
    POP("pop_a_batch_lease", TN_QUEUE_LEASE, two_full, pop_batch, 2),
    POP("ack_bytes", TN_QUEUE_LEASE, two_bytes, pop_and_ack, 1),
    POP("ack_a_tensor", TN_QUEUE_LEASE, two_tensors, pop_and_ack, 1),
    POP("ack_many_tensors", TN_QUEUE_LEASE, two_full, pop_and_ack, 1),
    POP("close_with_a_lease", TN_QUEUE_LEASE, two_tensors, pop_and_close, 2),
    POP("return_bytes", TN_QUEUE_LEASE, two_bytes, pop_and_return, 2),
    POP("return_many_tensors", TN_QUEUE_LEASE, two_full, pop_and_return, 2),
    {.name = "pop_nothing", .run = pop_nothing},
    {0},
};

/* ---- the queue itself -------------------------------------------------------------------- */

static void open_extra(struct crash_world *w)
{
    tn_queue_options options = {.struct_size = sizeof options, .capacity = 4};
    TN_CHECK_OK(tn_queue_open(w->domain, "extra", &options, TN_OPEN_NEW, &w->extra));
}

static void create(struct crash_world *w)
{
    tn_queue *anonymous;
    open_extra(w);
    TN_CHECK_OK(tn_queue_open(w->domain, NULL, NULL, 0, &anonymous));
}

/* The name of the closed object is free again. */
static void create_again(struct crash_world *w) { open_extra(w); }

static void lose_names(struct crash_world *w)
{
    open_extra(w);
    atomic_store(&w->domain->segment.header->names_lost, 1);
}

static void open_by_name(struct crash_world *w)
{
    tn_queue *queue, *other;
    TN_CHECK_OK(tn_queue_open(w->domain, "extra", NULL, TN_OPEN_EXISTING, &queue));
    TN_CHECK_OK(tn_object_open_id(w->domain, TN_OBJECT_QUEUE, tn_object_id(queue), &other));
}

static void close_extra(struct crash_world *w) { w->extra = tn_object_close(w->extra); }

static void create_and_close(struct crash_world *w)
{
    tn_tensor *tensor = crash_tensor(w, 1000);
    open_extra(w);
    TN_CHECK_OK(tn_queue_push_tensor(w->extra, tensor, 0, TN_NOW));
    TN_CHECK_OK(tn_queue_push_tensor(w->extra, tensor, TN_PUSH_MOVE, TN_NOW));
    close_extra(w);
}

static void end(struct crash_world *w)
{
    TN_CHECK_OK(tn_queue_attach(w->queue, TN_PRODUCER | TN_CONSUMER));
    TN_CHECK_OK(tn_queue_end(w->queue));
}

static void wait_any(struct crash_world *w)
{
    tn_queue *queues[2] = {w->extra, w->queue};
    assert_int_equal(tn_object_wait_any(queues, 2, TN_NOW), 1);
    assert_int_equal(tn_object_wait_any(&queues[0], 1, (tn_deadline){1}), TN_ERR_TIMED_OUT);
}

static void extra_and_message(struct crash_world *w)
{
    open_extra(w);
    crash_push(w, 1, 100);
}

static void watch(struct crash_world *w)
{
    struct pollfd poll_fd = {.events = POLLIN};
    TN_CHECK_OK(tn_domain_poll_fd(w->domain, &poll_fd.fd));
    TN_CHECK_OK(tn_object_watch(w->queue, true));
    crash_push(w, 0, 100);
    assert_int_equal(poll(&poll_fd, 1, 1000), 1);
    tn_domain_poll_clear(w->domain);
    crash_pop(w);
}

const struct crash_op crash_object_ops[] = {
    {.name = "queue_create", .run = create, .check = create_again},
    {.name = "queue_open", .prepare = open_extra, .run = open_by_name},
    {.name = "queue_open_with_lost_names", .prepare = lose_names, .run = open_by_name},
    {.name = "queue_close", .prepare = open_extra, .run = close_extra},
    {.name = "queue_close_by_the_last", .run = create_and_close, .check = create_again},
    {.name = "queue_end", .prepare = two_full, .run = end, .least = 2, .most = 2},
    {.name = "queue_wait_any",
     .prepare = extra_and_message,
     .run = wait_any,
     .least = 1,
     .most = 1},
    {.name = "queue_watch", .run = watch},
    {0},
};
