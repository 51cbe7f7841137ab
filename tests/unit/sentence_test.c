/* SPDX-License-Identifier: Apache-2.0 */
/* The sentences of errors: each names the one cause, in the words of the caller. */
#include <signal.h>
#include <string.h>

#include "harness/harness.h"
#include "harness/tensor.h"
#include <tenon/tenon.h>

static tn_domain *d;

static void begin(void)
{
    d = tnt_domain(&(tn_domain_options){.struct_size = sizeof(tn_domain_options),
                                        .quota_bytes = 16 << 20,
                                        .flags = TN_DOMAIN_NO_MANAGER});
}

static void finish(void)
{
    TNT_AUDIT(d);
    tn_domain_close(d);
}

#define INVALID_SAYS(call, sentence)                                                           \
    do {                                                                                       \
        assert_int_equal(call, TN_ERR_INVALID);                                                \
        assert_string_equal(tn_error_detail(), sentence);                                      \
    } while (0)

TN_TEST(a_wrong_option_is_named_and_no_other)
{
    tn_domain *domain = NULL;
    tn_queue *q = NULL;
    begin();
    INVALID_SAYS(tn_domain_open(NULL, TN_OPTIONS(tn_domain_options, .reserved = 1), 0, &domain),
                 "tn_domain_options.reserved is 1, not 0");
    INVALID_SAYS(tn_domain_open(NULL, TN_OPTIONS(tn_domain_options, .flags = 8), 0, &domain),
                 "tn_domain_options.flags is 0x8: only TN_DOMAIN_NO_MANAGER is known");
    INVALID_SAYS(tn_queue_open(d, NULL, TN_OPTIONS(tn_queue_options, .reserved = 1), 0, &q),
                 "tn_queue_options.reserved is 1, not 0");
    INVALID_SAYS(tn_queue_open(d, NULL, TN_OPTIONS(tn_queue_options, .policy = 9), 0, &q),
                 "tn_queue_options.policy is 9: no policy has this number");
    finish();
}

static int work(tn_domain *domain, const tn_pool_job *job, tn_message *result, void *context)
{
    (void)domain;
    (void)job;
    (void)result;
    (void)context;
    return 0;
}

TN_TEST(a_wrong_option_of_a_pool_is_named_with_its_limit)
{
    tn_pool *pool = NULL;
    const char *const argv[] = {"/bin/true", NULL};
    const char *const environment[] = {"A=1", "TENON_POOL=2", NULL};
    begin();
    INVALID_SAYS(
        tn_pool_create(d, TN_OPTIONS(tn_pool_options, .workers = 100000), work, NULL, &pool),
        "a pool cannot have 100000 workers: at most 1024 are allowed");
    INVALID_SAYS(
        tn_pool_create(d, TN_OPTIONS(tn_pool_options, .capacity = 1 << 20), work, NULL, &pool),
        "a pool cannot have a capacity of 1048576 jobs: at most 262144 are allowed");
    INVALID_SAYS(tn_pool_create(d, TN_OPTIONS(tn_pool_options, .start = 7), work, NULL, &pool),
                 "tn_pool_options.start is 7: no start method has this number");
    INVALID_SAYS(tn_pool_create(d,
                                TN_OPTIONS(tn_pool_options, .start = TN_START_SPAWN,
                                           .argv = argv, .environment = environment),
                                NULL, NULL, &pool),
                 "the environment of the pool has TENON_POOL, which the library sets itself");
    finish();
}

TN_TEST(a_wrong_option_of_a_scheduler_is_named_with_its_limit)
{
    const tn_variant variant = {.request = "CPU=1"};
    tn_sched *sched = NULL;
    tn_kind *kind = NULL;
    tn_graph *graph = NULL;
    INVALID_SAYS(tn_sched_create(TN_OPTIONS(tn_sched_options, .flags = 8), &sched),
                 "tn_sched_options.flags is 0x8: TN_SCHED_VIRTUAL and TN_SCHED_TRACE are "
                 "known");
    INVALID_SAYS(tn_sched_create(TN_OPTIONS(tn_sched_options, .flags = TN_SCHED_VIRTUAL,
                                            .domain = (tn_domain *)&sched),
                                 &sched),
                 "tn_sched_options.domain is set with TN_SCHED_VIRTUAL: no domain shows "
                 "virtual time");
    INVALID_SAYS(tn_sched_create(TN_OPTIONS(tn_sched_options, .reserved = 1), &sched),
                 "tn_sched_options.reserved is 1, not 0");
    TN_CHECK_OK(tn_sched_create(NULL, &sched));
    INVALID_SAYS(tn_sched_write_trace(sched, 1),
                 "the scheduler was made without TN_SCHED_TRACE: it has no trace");
    INVALID_SAYS(tn_kind_create(sched,
                                TN_OPTIONS(tn_kind_options, .variants = &variant,
                                           .variant_count = TN_VARIANTS + 1),
                                &kind),
                 "tn_kind_options.variant_count is 5: it is 1 to 4");
    INVALID_SAYS(
        tn_kind_create(sched,
                       TN_OPTIONS(tn_kind_options, .variants = &variant, .variant_count = 1),
                       &kind),
        "variants[0] has no function");
    tn_sched_close(sched);

    TN_CHECK_OK(
        tn_sched_create(TN_OPTIONS(tn_sched_options, .flags = TN_SCHED_VIRTUAL), &sched));
    TN_CHECK_OK(tn_kind_create(
        sched, TN_OPTIONS(tn_kind_options, .variants = &variant, .variant_count = 1), &kind));
    INVALID_SAYS(tn_kind_create(sched,
                                TN_OPTIONS(tn_kind_options, .variants = &variant,
                                           .variant_count = 1, .flags = 6),
                                &kind),
                 "tn_kind_options.flags is 0x6: TN_KIND_WRITES_INPUTS and TN_KIND_REPEATABLE "
                 "are known");
    TN_CHECK_OK(tn_graph_create(sched, &graph));
#define ADD(...)                                                                               \
    tn_graph_add(graph,                                                                        \
                 TN_OPTIONS(tn_task_list, .tasks = &(tn_task){__VA_ARGS__}, .count = 1), NULL)
    INVALID_SAYS(ADD(.kind = NULL), "the kind of task 0 is NULL");
    INVALID_SAYS(ADD(.kind = kind, .reserved = 1), "reserved of task 0 is 1, not 0");
    INVALID_SAYS(ADD(.kind = kind, .priority = 40000),
                 "the priority of task 0 is 40000: it is from -32768 to 32767");
#undef ADD
    tn_sched_close(sched);
}

TN_TEST(a_strategy_is_set_by_its_own_number)
{
    INVALID_SAYS(tn_strategy_set(TN_STRATEGY_DEFAULT),
                 "TN_STRATEGY_DEFAULT cannot be set: it stands for the strategy that is set");
    INVALID_SAYS(tn_strategy_set(77), "no strategy has the number 77");
}

TN_TEST(a_shape_that_cannot_be_says_why)
{
    tn_tensor *t = NULL, *view = NULL;
    TN_CHECK_OK(tn_tensor_create_private(TN_UINT8, 1, (int64_t[]){64}, &t));
    INVALID_SAYS(tn_tensor_reshape(t, 2, (int64_t[]){-1, -1}, &view),
                 "axes 0 and 1 of the new shape are -1: only one size may be -1");
    INVALID_SAYS(tn_tensor_reshape(t, 2, (int64_t[]){INT64_MAX, 8}, &view),
                 "the new shape has 2^63 elements or more, at axis 1 of size 8");
    INVALID_SAYS(tn_tensor_reshape(t, 2, (int64_t[]){4, -2}, &view),
                 "axis 1 of the new shape has the negative size -2");
    tn_tensor_unref(t);
}

TN_TEST(a_list_of_no_messages_needs_a_queue_all_the_same)
{
    tn_queue *q = NULL;
    begin();
    assert_int_equal(tn_queue_push_many(NULL, NULL, 0, 0, TN_NOW), TN_ERR_INVALID);
    assert_int_equal(tn_queue_pop_many(NULL, 0, TN_NOW, NULL), TN_ERR_INVALID);
    TN_CHECK_OK(tn_queue_open(d, NULL, NULL, 0, &q));
    assert_int_equal(tn_queue_push_many(q, NULL, 0, 0, TN_NOW), 0);
    assert_int_equal(tn_queue_pop_many(q, 0, TN_NOW, NULL), 0);
    tn_object_close(q);
    finish();
}

TN_TEST(a_message_larger_than_the_quota_is_refused_at_once)
{
    static const char byte = 1;
    const tn_message message = {.bytes = &byte, .size_bytes = (size_t)1 << 40};
    tn_queue *q = NULL;
    begin();
    TN_CHECK_OK(tn_queue_open(d, NULL, NULL, 0, &q));
    assert_int_equal(tn_queue_push(q, &message, 0, TN_FOREVER), TN_ERR_NO_MEMORY);
    tn_object_close(q);
    finish();
}

TN_TEST(an_unleased_message_is_told_from_an_object_of_another_kind)
{
    tn_message message = {0};
    tn_queue *q = NULL;
    begin();
    TN_CHECK_OK(
        tn_queue_open(d, NULL, TN_OPTIONS(tn_queue_options, .policy = TN_QUEUE_LEASE), 0, &q));
    assert_int_equal(tn_message_ack(NULL, &message), TN_ERR_INVALID);
    assert_int_equal(tn_message_return(NULL, &message), TN_ERR_INVALID);
    assert_int_equal(tn_message_ack(q, &message), TN_ERR_STALE);
    message.lease = 5;
    assert_int_equal(tn_message_ack(q, &message), TN_ERR_STALE);
    assert_string_equal(tn_error_detail(),
                        "the message with the lease 5 is not leased to this process");
    tn_object_close(q);
    finish();
}

TN_TEST(an_object_without_a_name_has_none_in_a_sentence)
{
    tn_lock *lock = NULL, *named = NULL;
    tn_queue *q = NULL;
    tn_message message;
    begin();
    TN_CHECK_OK(tn_lock_open(d, NULL, 0, &lock));
    TN_CHECK_OK(tn_lock_open(d, "mine", 0, &named));
    INVALID_SAYS(tn_lock_release(lock), "this thread does not hold the lock without a name");
    INVALID_SAYS(tn_lock_release(named), "this thread does not hold the lock 'mine'");
    TN_CHECK_OK(tn_queue_open(d, NULL, NULL, 0, &q));
    TN_CHECK_OK(tn_queue_end(q));
    assert_int_equal(tn_queue_pop(q, TN_NOW, &message), TN_ERR_CLOSED);
    assert_string_equal(tn_error_detail(), "the queue without a name was ended");
    tn_object_close(q);
    tn_object_close(lock);
    tn_object_close(named);
    finish();
}

TN_TEST(every_wait_names_a_duration_that_was_taken_for_a_deadline)
{
    tn_barrier *barrier = NULL;
    tn_queue *q = NULL;
    begin();
    TN_CHECK_OK(tn_barrier_open(d, "b", 2, 0, &barrier));
    TN_CHECK_OK(tn_queue_open(d, NULL, NULL, 0, &q));
    assert_int_equal(tn_barrier_wait(barrier, (tn_deadline){1000}), TN_ERR_TIMED_OUT);
    assert_non_null(strstr(tn_error_detail(), "1 of 2 parties had arrived at the barrier 'b'"));
    assert_non_null(strstr(tn_error_detail(), "CLOCK_MONOTONIC"));
    assert_int_equal(tn_object_wait_any(&q, 1, (tn_deadline){1000}), TN_ERR_TIMED_OUT);
    assert_non_null(strstr(tn_error_detail(), "CLOCK_MONOTONIC"));
    TN_CHECK_OK(tn_barrier_reset(barrier));
    assert_int_equal(tn_barrier_wait(barrier, TN_NOW), TN_ERR_TIMED_OUT);
    assert_string_equal(tn_error_detail(),
                        "1 of 2 parties had arrived at the barrier 'b': the deadline passed");
    tn_object_close(barrier);
    tn_object_close(q);
    finish();
}

static int sleep_for_ever(tn_domain *domain, void *argument)
{
    (void)argument;
    tn_event *event = NULL;
    return tn_event_open(domain, NULL, 0, &event) || tn_event_wait(event, TN_FOREVER);
}

TN_TEST(a_signal_that_does_not_exist_is_named)
{
    tn_process *child = NULL;
    begin();
    TN_CHECK_OK(tn_process_fork(d, sleep_for_ever, NULL, 0, &child));
    INVALID_SAYS(tn_process_kill(child, 9999), "no signal has the number 9999");
    tn_process_close(child);
    TN_CHECK_OK(tn_domain_reap(d, NULL));
    finish();
}

/* A group closes each child once. */
TN_TEST(a_child_is_put_into_one_group_once)
{
    tn_process *child = NULL;
    tn_group *group = NULL, *other = NULL;
    begin();
    TN_CHECK_OK(tn_group_create(d, &group));
    TN_CHECK_OK(tn_group_create(d, &other));
    TN_CHECK_OK(tn_process_fork(d, sleep_for_ever, NULL, 0, &child));
    TN_CHECK_OK(tn_group_add(group, child));
    assert_int_equal(tn_group_add(group, child), TN_ERR_INVALID);
    assert_int_equal(tn_group_add(other, child), TN_ERR_INVALID);
    assert_non_null(strstr(tn_error_detail(), "is in a group already"));
    assert_ptr_equal(tn_group_get(group, 0), child);
    assert_null(tn_group_get(group, 1));
    tn_group_close(other);
    tn_group_close(group);
    TN_CHECK_OK(tn_domain_reap(d, NULL));
    finish();
}

TN_TEST(a_program_gets_the_variables_of_the_caller_or_an_error)
{
    const char *const argv[] = {"/bin/true", NULL}, *const empty[] = {"", NULL};
    const char *const no_value[] = {"A=1", "B", NULL}, *const no_name[] = {"=1", NULL};
    const char *const ours[] = {"TENON_DOMAIN=1,2", NULL};
    tn_process *child = NULL;
    begin();
    INVALID_SAYS(tn_process_exec(d, empty, NULL, 0, &child),
                 "argv[0], the program to start, is empty");
    INVALID_SAYS(tn_process_exec(d, argv, no_value, 0, &child),
                 "'B' in the environment is not NAME=VALUE");
    INVALID_SAYS(tn_process_exec(d, argv, no_name, 0, &child),
                 "'=1' in the environment is not NAME=VALUE");
    INVALID_SAYS(tn_process_exec(d, argv, ours, 0, &child),
                 "the environment has TENON_DOMAIN, which the library sets itself");
    finish();
}

TN_TEST(a_name_in_the_form_of_an_id_makes_no_domain)
{
    tn_domain *domain = NULL;
    const char *name = "0123456789abcdefABCDEF0123456789";
    assert_int_equal(tn_domain_open(name, NULL, TN_OPEN_NEW, &domain), TN_ERR_INVALID);
    assert_non_null(strstr(tn_error_detail(), "are the id of a domain"));
    assert_int_equal(tn_domain_open(name, NULL, TN_OPEN_EXISTING, &domain), TN_ERR_NOT_FOUND);
    assert_int_equal(tn_domain_open(name, NULL, 0, &domain), TN_ERR_INVALID);
}
