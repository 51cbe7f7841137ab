/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests: the attempt count of a leased message stays exact, whichever process dies while it
 * counts.
 */
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>

#include "harness/harness.h"

struct scene {
    tn_domain *domain;
    tn_queue *queue;
};

static void push_one(const struct scene *scene)
{
    const tn_message message = {.bytes = "once", .size_bytes = 4};
    TN_CHECK_OK(tn_queue_push(scene->queue, &message, 0, TN_NOW));
}

static int reclaim(void *argument)
{
    const struct scene *scene = argument;
    while (tn_domain_reap(scene->domain, NULL) == TN_ERR_TIMED_OUT)
        sched_yield();
    return 0;
}

static int pop_and_die(void *argument)
{
    const struct scene *scene = argument;
    tn_message message;
    TN_CHECK_OK(tn_queue_pop(scene->queue, TN_NOW, &message));
    raise(SIGKILL);
    return 1;
}

static int pop_and_return(void *argument)
{
    const struct scene *scene = argument;
    tn_message message;
    TN_CHECK_OK(tn_queue_pop(scene->queue, TN_NOW, &message));
    TN_CHECK_OK(tn_message_return(scene->queue, &message));
    tn_message_fini(&message);
    return 0;
}

static void expect_attempts(const struct scene *scene, uint32_t attempts)
{
    tn_message message;
    TN_CHECK_OK(tn_queue_pop(scene->queue, TN_NOW, &message));
    assert_int_equal(message.attempt, attempts);
    TN_CHECK_OK(tn_message_ack(scene->queue, &message));
    tn_message_fini(&message);
}

static void count_with_a_kill_at(const char *point)
{
    struct scene scene = {
        .domain = tnt_domain(&(tn_domain_options){.struct_size = sizeof(tn_domain_options),
                                                  .flags = TN_DOMAIN_NO_MANAGER})};
    const tn_queue_options options = {
        .struct_size = sizeof options, .capacity = 4, .policy = TN_QUEUE_LEASE};
    TN_CHECK_OK(tn_queue_open(scene.domain, NULL, &options, 0, &scene.queue));
    /*
     * Two attempts. One recoverer reclaims the dead seat and is killed meanwhile; another
     * finishes.
     */
    push_one(&scene);
    for (uint32_t attempt = 0; attempt < 2; attempt++) {
        assert_true(WIFSIGNALED(tnt_wait(tnt_fork(pop_and_die, &scene))));
        assert_true(tnt_kill_at(point, 1, reclaim, &scene));
        reclaim(&scene);
    }
    expect_attempts(&scene, 2);
    /* A leased message that its consumer gives back; the consumer is killed meanwhile. */
    push_one(&scene);
    assert_true(tnt_kill_at(point, 1, pop_and_return, &scene));
    reclaim(&scene);
    expect_attempts(&scene, 1);
    tn_object_close(scene.queue);
    TNT_AUDIT(scene.domain);
    tn_domain_close(scene.domain);
}

TN_TEST(an_attempt_counts_once_if_its_consumer_dies_before_counting)
{
    count_with_a_kill_at("slot_returning");
}

TN_TEST(an_attempt_counts_once_if_its_consumer_dies_after_counting)
{
    count_with_a_kill_at("attempt_counted");
}

TN_TEST(an_attempt_counts_once_if_its_consumer_dies_after_return)
{
    count_with_a_kill_at("refill_full");
}
