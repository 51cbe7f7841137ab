/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of a device whose descriptor only tenond and its vault have. */
#include "gpu/gpu.h"

#include <signal.h>
#include <unistd.h>

#include "process/backing.h"

enum { BYTES = 1 << 20 };

static tn_domain *domain;
static tn_queue *queue;

static void begin(void)
{
    gpu_need_fake();
    gpu_begin(NULL);
    domain = tnt_domain(NULL);
    TN_CHECK_OK(tn_queue_open(domain, NULL, NULL, 0, &queue));
}

static void end(void)
{
    tn_object_close(queue);
    TN_CHECK_OK(tn_domain_reap(domain, NULL));
    TNT_AUDIT(domain);
    tn_domain_close(domain);
    gpu_end();
}

static int produce(void *unused)
{
    (void)unused;
    tn_tensor *tensor = gpu_tensor(domain, BYTES, 42);
    gpu_fake.message_sent(1);
    TN_CHECK_OK(tn_queue_push_tensor(queue, tensor, 0, TN_NOW));
    tn_tensor_unref(tensor);
    tn_domain_close(domain);
    return 0;
}

static void expect_message(void)
{
    tn_tensor *tensor;
    uint64_t deadline_ns = tnt_until_ns(BACKING_MS);
    int status;
    do /* a process does not ask a tenond again that was silent in the last second */
        status = tn_queue_pop_tensor(queue, tnt_deadline(20000), &tensor);
    while (status == TN_ERR_MANAGER && tni_os_now_ns() < deadline_ns);
    TN_CHECK_OK(status);
    gpu_fake.message_received(1);
    gpu_expect(domain, tensor, 42);
    tn_tensor_unref(tensor);
}

/* The message stays in the queue. */
static void expect_no_descriptor(const char *why)
{
    tn_tensor *tensor;
    assert_int_equal(tn_queue_pop_tensor(queue, tnt_deadline(20000), &tensor), TN_ERR_MANAGER);
    assert_non_null(strstr(tn_error_detail(), "only tenond can have the descriptor"));
    assert_non_null(strstr(tn_error_detail(), why));
    assert_int_equal(tn_queue_count(queue), 1);
}

TN_TEST(a_pop_fails_while_tenond_is_silent_and_loses_nothing)
{
    begin();
    tnt_wait_ok(tnt_fork(produce, NULL));
    int32_t tenond = manager_pid(domain);
    assert_int_equal(kill(tenond, SIGSTOP), 0);
    for (int i = 0; i < 3; i++)
        expect_no_descriptor("did not");
    assert_int_equal(kill(tenond, SIGCONT), 0);
    expect_message();
    end();
}

TN_TEST(a_tensor_is_not_made_while_tenond_is_silent)
{
    tn_tensor *tensor;
    const tn_tensor_options options = {.struct_size = sizeof options, .device = gpu_0};
    begin();
    int32_t tenond = manager_pid(domain);
    assert_int_equal(kill(tenond, SIGSTOP), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(
            tn_tensor_create(domain, TN_UINT8, 1, (int64_t[]){BYTES}, &options, &tensor),
            TN_ERR_MANAGER);
        assert_non_null(
            strstr(tn_error_detail(), i == 0 ? "descriptor: tenond has not answered for"
                                             : "descriptor: tenond did not answer"));
    }
    TN_CHECK_OK(tn_tensor_create(domain, TN_UINT8, 1, (int64_t[]){BYTES}, NULL, &tensor));
    tn_tensor_unref(tensor); /* the arena needs no tenond */
    assert_int_equal(kill(tenond, SIGCONT), 0);
    gpu_await_used(domain, 0);
    uint64_t deadline_ns = tnt_until_ns(BACKING_MS);
    int status;
    do
        status = tn_tensor_create(domain, TN_UINT8, 1, (int64_t[]){BYTES}, &options, &tensor);
    while (status == TN_ERR_MANAGER && tni_os_now_ns() < deadline_ns);
    TN_CHECK_OK(status);
    tn_tensor_unref(tensor);
    end();
}

/* tenond has started it, but perhaps it does not run yet. */
static int32_t await_any_vault(void)
{
    uint64_t deadline_ns = tnt_until_ns(BACKING_MS);
    int32_t vault;
    while ((vault = find_vault(0)) == 0) {
        TN_CHECK(tni_os_now_ns() < deadline_ns);
        tni_os_yield();
    }
    return vault;
}

/* The next tenond listens before the vault, which is stopped, has told it what it keeps. */
TN_TEST(a_tenond_that_waits_for_its_vault_gives_no_wrong_answer)
{
    begin();
    tnt_wait_ok(tnt_fork(produce, NULL));
    int32_t vault = await_any_vault();
    assert_int_equal(kill(vault, SIGSTOP), 0);
    kill_and_await(manager_pid(domain), SIGKILL);
    expect_no_descriptor("from its vault yet");
    assert_int_equal(kill(vault, SIGCONT), 0);
    expect_message();
    end();
}
