/* SPDX-License-Identifier: Apache-2.0 */
/* Queues and messages. */
#include <string.h>

#include "faults.h"
#include "harness/tensor.h"

enum { LARGE_BYTES = 20000, TENSORS = 12 };

static tn_queue *q, *other;
static tn_tensor *tensors[TENSORS];
static tn_message popped, messages[3];
static uint8_t large[LARGE_BYTES];

/* ---- making, opening, closing ------------------------------------------------------------ */

static int create(void)
{
    tn_queue_options options = {.struct_size = sizeof options, .capacity = 8};
    return tn_queue_open(faults_d, "queue", &options, TN_OPEN_NEW, FAULTS_OUT(tn_queue *));
}
static void close_out(void) { tn_object_close(*FAULTS_OUT(tn_queue *)); }
FAULTS(tn_queue_open, .prepare = faults_begin, .call = create, .undo = close_out,
       .finish = faults_end)

static void make_queue_of(uint32_t policy)
{
    tn_queue_options options = {.struct_size = sizeof options, .capacity = 4, .policy = policy};
    faults_begin();
    TN_CHECK_OK(tn_queue_open(faults_d, "queue", &options, TN_OPEN_NEW, &q));
    TN_CHECK_OK(tn_queue_attach(q, TN_PRODUCER | TN_CONSUMER));
}
static void make_queue(void) { make_queue_of(TN_QUEUE_REDELIVER); }
static void make_leasing(void) { make_queue_of(TN_QUEUE_LEASE); }
static void end_queue(void)
{
    q = tn_object_close(q);
    faults_end();
}
static uint64_t waiting(void) { return tn_queue_count(q); }
#define WITH_QUEUE   .prepare = make_queue, .finish = end_queue, .measure = waiting
#define WITH_LEASING .prepare = make_leasing, .finish = end_queue, .measure = waiting

static int open_by_name(void)
{
    return tn_queue_open(faults_d, "queue", NULL, TN_OPEN_EXISTING, FAULTS_OUT(tn_queue *));
}
FAULTS_WHEN(tn_queue_open, it_exists, WITH_QUEUE, .call = open_by_name, .undo = close_out)

static int open_by_id(void)
{
    return tn_object_open_id(faults_d, TN_OBJECT_QUEUE, tn_object_id(q),
                             FAULTS_OUT(tn_queue *));
}
FAULTS(tn_object_open_id, WITH_QUEUE, .call = open_by_id, .undo = close_out)

static int get_kind(void) { return tn_object_kind(q) == TN_OBJECT_QUEUE ? 0 : TN_ERR_CORRUPT; }
FAULTS(tn_object_kind, WITH_QUEUE, .has_no_calls = true, .call = get_kind)

static int get_name(void)
{
    char name[48];
    return tn_object_name(q, name, sizeof name);
}
FAULTS(tn_object_name, WITH_QUEUE, .has_no_calls = true, .call = get_name)

static int get_id(void) { return tn_object_id(q) == 0; }
FAULTS(tn_object_id, WITH_QUEUE, .has_no_calls = true, .call = get_id)

static void open_other(void)
{
    tn_tensor *t = faults_tensor(100);
    TN_CHECK_OK(tn_queue_open(faults_d, NULL, NULL, 0, &other));
    TN_CHECK_OK(tn_queue_push_tensor(other, t, TN_PUSH_MOVE, TN_NOW));
}
static int close_other(void) { return other = tn_object_close(other), 0; }
FAULTS(tn_object_close, WITH_QUEUE, .never_fails = true, .has_no_calls = true,
       .before = open_other, .call = close_other)

/* The tensors that wait in it have memory of their own, which ends with it. */
static void open_other_with_storages(void)
{
    TN_CHECK_OK(tn_queue_open(faults_d, NULL, NULL, 0, &other));
    TN_CHECK_OK(tn_queue_push_tensor(
        other, faults_tensor_as(TN_STRATEGY_FILE_DESCRIPTOR, 0, 100), TN_PUSH_MOVE, TN_NOW));
    TN_CHECK_OK(tn_queue_push_tensor(other, faults_tensor_as(TN_STRATEGY_FILE_SYSTEM, 0, 100),
                                     TN_PUSH_MOVE, TN_NOW));
}
FAULTS_WHEN(tn_object_close, with_storages_in_it, WITH_QUEUE, .never_fails = true,
            .ends_files = true, .before = open_other_with_storages, .call = close_other)

static void close_now(void) { tn_object_close(other); }
static void open_plain(void) { TN_CHECK_OK(tn_queue_open(faults_d, NULL, NULL, 0, &other)); }
static int attach(void) { return tn_queue_attach(other, TN_PRODUCER | TN_CONSUMER); }
FAULTS(tn_queue_attach, WITH_QUEUE, .has_no_calls = true, .before = open_plain, .call = attach,
       .undo = close_now)

/* Without a driver there is no device whose stream messages could follow. */
static int set_stream(void) { return tn_queue_set_stream(q, (tn_device){0, 0}, NULL); }
FAULTS(tn_queue_set_stream, WITH_QUEUE, .has_no_calls = true, .call = set_stream)

static int end(void) { return tn_queue_end(other); }
FAULTS(tn_queue_end, WITH_QUEUE, .has_no_calls = true, .before = open_plain, .call = end,
       .undo = close_now)

static int count(void) { return (int)tn_queue_count(q); }
FAULTS(tn_queue_count, WITH_QUEUE, .has_no_calls = true, .call = count)
static int describe(void) { return tnt_capacity(q) == 4 ? 0 : TN_ERR_CORRUPT; }
FAULTS(tn_queue_get_info, WITH_QUEUE, .has_no_calls = true, .call = describe)

/* ---- pushing ----------------------------------------------------------------------------- */

static void drain(void)
{
    while (tn_queue_pop(q, TN_NOW, &popped) == 0)
        tn_message_fini(&popped);
}
static void unref_tensors(void)
{
    for (int i = 0; i < TENSORS; i++)
        tensors[i] = tn_tensor_unref(tensors[i]);
}
static void drain_and_unref(void)
{
    drain();
    unref_tensors();
}
static void make_tensors(void)
{
    for (int i = 0; i < TENSORS; i++)
        tensors[i] = faults_tensor(64);
}
static void make_private_and_large(void)
{
    make_tensors();
    TN_CHECK_OK(tn_tensor_set_metadata(tensors[0], "key", large, 5000));
}

static int push_small(void)
{
    tn_message message = {
        .bytes = "hello", .size_bytes = 5, .tensors = tensors, .tensor_count = 1};
    return tn_queue_push(q, &message, 0, TN_NOW);
}
FAULTS(tn_queue_push, WITH_QUEUE, .has_no_calls = true, .before = make_tensors,
       .call = push_small, .undo = drain_and_unref)

static int push_large(void)
{
    tn_message message = {.bytes = large,
                          .size_bytes = sizeof large,
                          .tensors = tensors,
                          .tensor_count = TENSORS};
    return tn_queue_push(q, &message, 0, TN_NOW);
}
static void trim_all(void) { TN_CHECK_OK(tn_domain_trim(faults_d, 0, NULL)); }
static void make_large_and_trim(void)
{
    make_private_and_large();
    trim_all();
}
FAULTS_WHEN(tn_queue_push, with_a_large_message, WITH_QUEUE, .before = make_large_and_trim,
            .call = push_large, .undo = drain_and_unref)

static int push_tensor(void) { return tn_queue_push_tensor(q, tensors[0], 0, TN_NOW); }
FAULTS(tn_queue_push_tensor, WITH_QUEUE, .has_no_calls = true, .before = make_tensors,
       .call = push_tensor, .undo = drain_and_unref)

static int push_many(void)
{
    for (int i = 0; i < 3; i++)
        messages[i] = (tn_message){.tensors = &tensors[i * 4], .tensor_count = 4};
    return tn_queue_push_many(q, messages, 3, 0, TN_NOW) == 3 ? 0 : TN_ERR_NO_MEMORY;
}
/* Once a domain has the memory behind its blocks, nothing is left to ask for. */
FAULTS(tn_queue_push_many, WITH_QUEUE, .has_no_calls = true, .before = make_tensors,
       .call = push_many, .undo = drain_and_unref)

static void fill_queue(void)
{
    make_tensors();
    for (int i = 0; i < 4; i++)
        TN_CHECK_OK(tn_queue_push_tensor(q, tensors[0], 0, TN_NOW));
}
static int push_until_late(void)
{
    return tn_queue_push_tensor(q, tensors[0], 0, tnt_deadline(2));
}
FAULTS_WHEN(tn_queue_push_tensor, asleep, WITH_QUEUE, .expected = TN_ERR_TIMED_OUT,
            .before = fill_queue, .call = push_until_late, .undo = drain_and_unref)

/* ---- popping ----------------------------------------------------------------------------- */

static void push_one(void)
{
    make_tensors();
    TN_CHECK_OK(push_small());
}
static int pop(void) { return tn_queue_pop(q, TN_NOW, FAULTS_OUT(tn_message)); }
static void fini_out(void)
{
    tn_message_fini(FAULTS_OUT(tn_message));
    unref_tensors();
}
FAULTS(tn_queue_pop, WITH_QUEUE, .before = push_one, .call = pop, .undo = fini_out)

static void push_large_one(void)
{
    make_private_and_large();
    TN_CHECK_OK(push_large());
}
FAULTS_WHEN(tn_queue_pop, with_a_large_message, WITH_QUEUE, .before = push_large_one,
            .call = pop, .undo = fini_out)

static int pop_until_late(void)
{
    return tn_queue_pop(q, tnt_deadline(2), FAULTS_OUT(tn_message));
}
FAULTS_WHEN(tn_queue_pop, asleep, WITH_QUEUE, .expected = TN_ERR_TIMED_OUT,
            .call = pop_until_late)

static void push_storages(void)
{
    tensors[0] = faults_tensor_as(TN_STRATEGY_FILE_DESCRIPTOR, 0, 5000);
    tensors[1] = faults_tensor_as(TN_STRATEGY_FILE_SYSTEM, 0, 5000);
    tn_message message = {.tensors = tensors, .tensor_count = 2};
    TN_CHECK_OK(tn_queue_push(q, &message, 0, TN_NOW));
    unref_tensors();
}
FAULTS_WHEN(tn_queue_pop, with_storages_to_map, WITH_QUEUE, .searches = true,
            .before = push_storages, .call = pop, .undo = fini_out)

/* They take the memory that ended tensors of this thread have left. */
enum { TAKING = 32 };
static tn_tensor *taking[TAKING];
static int pop_tensor(void) { return tn_queue_pop_tensor(q, TN_NOW, FAULTS_OUT(tn_tensor *)); }
static void unref_out(void)
{
    tn_tensor_unref(*FAULTS_OUT(tn_tensor *));
    unref_tensors();
    for (int i = 0; i < TAKING; i++)
        taking[i] = tn_tensor_unref(taking[i]);
}
static void push_one_tensor(void)
{
    make_tensors();
    TN_CHECK_OK(push_tensor());
    for (int i = 0; i < TAKING; i++)
        TN_CHECK_OK(
            tn_tensor_create(faults_d, TN_UINT8, 3, (int64_t[]){1, 2, 3}, NULL, &taking[i]));
}
FAULTS(tn_queue_pop_tensor, WITH_QUEUE, .before = push_one_tensor, .call = pop_tensor,
       .undo = unref_out)

static void push_three(void)
{
    make_tensors();
    TN_CHECK_OK(push_many());
}
/*
 * A failure ends a pop of several messages early: the messages popped so far are counted, the
 * others stay in the queue.
 */
static int pop_many(void) { return tn_queue_pop_many(q, 3, TN_NOW, FAULTS_OUT(tn_message)); }
static void fini_many(void)
{
    tn_message poison;
    memset(&poison, 0xa5, sizeof poison);
    for (int i = 0; i < 3; i++)
        if (memcmp(&FAULTS_OUT(tn_message)[i], &poison, sizeof poison) != 0)
            tn_message_fini(&FAULTS_OUT(tn_message)[i]);
    drain_and_unref();
}
FAULTS(tn_queue_pop_many, WITH_QUEUE, .before = push_three, .call = pop_many, .undo = fini_many)

/* ---- several queues ---------------------------------------------------------------------- */

static int wait_any(void)
{
    tn_queue *both[] = {q, other};
    return tn_object_wait_any(both, 2, tnt_deadline(2));
}
FAULTS(tn_object_wait_any, WITH_QUEUE, .expected = TN_ERR_TIMED_OUT, .before = open_plain,
       .call = wait_any, .undo = close_now)

static int watch(void) { return tn_object_watch(other, true); }
FAULTS(tn_object_watch, WITH_QUEUE, .has_no_calls = true, .before = open_plain, .call = watch,
       .undo = close_now)

/* ---- leases ------------------------------------------------------------------------------ */

static void lease(void)
{
    make_tensors();
    TN_CHECK_OK(push_small());
    TN_CHECK_OK(tn_queue_pop(q, TN_NOW, &popped));
}
static void fini_popped(void)
{
    tn_message_fini(&popped);
    drain_and_unref();
}
static int ack(void) { return tn_message_ack(q, &popped); }
FAULTS(tn_message_ack, WITH_LEASING, .has_no_calls = true, .before = lease, .call = ack,
       .undo = fini_popped)

static void take_again(void)
{
    tn_message_fini(&popped);
    TN_CHECK_OK(tn_queue_pop(q, TN_NOW, &popped));
    TN_CHECK_OK(tn_message_ack(q, &popped));
    fini_popped();
}
static int give_back(void) { return tn_message_return(q, &popped); }
FAULTS(tn_message_return, WITH_LEASING, .has_no_calls = true, .before = lease,
       .call = give_back, .undo = take_again)

static void pop_storages(void)
{
    push_storages();
    TN_CHECK_OK(tn_queue_pop(q, TN_NOW, &popped));
}
static int fini(void) { return tn_message_fini(&popped), 0; }
FAULTS(tn_message_fini, WITH_QUEUE, .never_fails = true, .ends_files = true,
       .before = pop_storages, .call = fini)
