/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors on a device that cross between processes, and outlive those that made them. */
#include "gpu/gpu.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BYTES = 1 << 20, SLAB = 64 << 20 };

static tn_domain *domain;
static tn_queue *queue;
static struct tnt_signal ready, go;

static void begin(const struct fake_options *options)
{
    gpu_begin(options);
    domain = tnt_domain(NULL);
    TN_CHECK_OK(tn_queue_open(domain, NULL, NULL, 0, &queue));
    ready = tnt_signal_open();
    go = tnt_signal_open();
}

static void end(void)
{
    tn_object_close(queue);
    TN_CHECK_OK(tn_domain_reap(domain, NULL));
    TNT_AUDIT(domain);
    tn_domain_close(domain);
    tnt_signal_close(&ready);
    tnt_signal_close(&go);
    gpu_end();
}

/* ---- crossing ---------------------------------------------------------------------------- */

static int produce(void *argument)
{
    uint8_t value = argument != NULL ? *(const uint8_t *)argument : 42;
    tn_tensor *tensor = gpu_tensor(domain, BYTES, value);
    gpu_push(queue, tensor);
    tn_tensor_unref(tensor);
    tn_domain_close(domain);
    return 0;
}

static int consume(void *unused)
{
    (void)unused;
    tn_tensor *tensor = gpu_pop(queue);
    gpu_expect(domain, tensor, 42);
    tn_tensor_unref(tensor);
    tn_domain_close(domain);
    return 0;
}

TN_TEST(a_tensor_outlives_the_process_that_made_it)
{
    begin(NULL);
    tnt_wait_ok(tnt_fork(produce, NULL)); /* it has ended before the tensor is popped */
    tn_tensor *tensor = gpu_pop(queue);
    assert_int_equal(tn_tensor_device(tensor).type, gpu_type);
    gpu_expect(domain, tensor, 42);
    tn_tensor_unref(tensor);
    end();
}

static int produce_and_die(void *unused)
{
    (void)unused;
    tn_tensor *tensor = gpu_tensor(domain, BYTES, 43);
    gpu_push(queue, tensor);
    tnt_signal(&ready);
    pause();
    return 1;
}

TN_TEST(a_tensor_outlives_a_producer_that_is_killed)
{
    begin(NULL);
    pid_t pid = tnt_fork(produce_and_die, NULL);
    tnt_await(&ready);
    tnt_kill(pid);
    tn_tensor *tensor = gpu_pop(queue);
    gpu_expect(domain, tensor, 43);
    tn_tensor_unref(tensor);
    end();
}

TN_TEST(a_mapped_tensor_outlives_a_producer_that_is_killed)
{
    begin(NULL);
    pid_t pid = tnt_fork(produce_and_die, NULL);
    tnt_await(&ready);
    tn_tensor *tensor = gpu_pop(queue);
    gpu_expect(domain, tensor, 43);
    tnt_kill(pid);
    gpu_expect(domain, tensor, 43);
    tn_tensor_unref(tensor);
    end();
}

TN_TEST(memory_of_a_killed_holder_is_given_back)
{
    begin(NULL);
    pid_t pid = tnt_fork(produce_and_die, NULL);
    tnt_await(&ready);
    tn_tensor *tensor = gpu_pop(queue);
    tn_tensor_unref(tensor);
    gpu_await_used(domain, SLAB); /* the producer still holds it */
    tnt_kill(pid);
    gpu_await_used(domain, 0); /* tenond reclaims the producer */
    end();
}

/* A consumer that passes the tensor on, when its producer is gone, and goes too. */
static int pass_on(void *argument)
{
    tn_queue *next = argument;
    tn_tensor *tensor = gpu_pop(queue);
    gpu_expect(domain, tensor, 44);
    if (!gpu_is_real())
        gpu_fake.message_sent(2);
    TN_CHECK_OK(tn_queue_push_tensor(next, tensor, 0, TN_NOW));
    tn_tensor_unref(tensor);
    tn_domain_close(domain);
    return 0;
}

TN_TEST(a_third_process_gets_a_tensor_from_its_second)
{
    uint8_t value = 44;
    tn_queue *next;
    tn_tensor *tensor;
    begin(NULL);
    TN_CHECK_OK(tn_queue_open(domain, NULL, NULL, 0, &next));
    tnt_wait_ok(tnt_fork(produce, &value));
    tnt_wait_ok(tnt_fork(pass_on, next));
    TN_CHECK_OK(tn_queue_pop_tensor(next, tnt_deadline(10000), &tensor));
    if (!gpu_is_real())
        gpu_fake.message_received(2);
    gpu_expect(domain, tensor, 44);
    tn_tensor_unref(tensor);
    tn_object_close(next);
    end();
}

TN_TEST(memory_lives_while_only_a_message_names_it)
{
    begin(NULL);
    tnt_wait_ok(tnt_fork(produce, NULL));
    gpu_await_used(domain, SLAB); /* no process has it mapped: tenond has a descriptor */
    tn_tensor *tensor = gpu_pop(queue);
    tn_tensor_unref(tensor);
    gpu_await_used(domain, 0);
    end();
}

TN_TEST(a_tensor_is_imported_after_tenond_was_killed)
{
    begin(NULL);
    tnt_wait_ok(tnt_fork(produce, NULL));
    tn_domain_stat stat = {.struct_size = sizeof stat};
    tn_inspector *inspector;
    char id[33] = {0};
    tn_domain_info info = {.struct_size = sizeof info};
    TN_CHECK_OK(tn_domain_get_info(domain, &info));
    for (int i = 0; i < 16; i++)
        snprintf(id + 2 * i, 3, "%02x", info.id[i]);
    TN_CHECK_OK(tn_inspector_open(id, &inspector));
    TN_CHECK_OK(tn_inspect_stat(inspector, &stat));
    tn_inspector_close(inspector);
    kill(stat.manager_pid, SIGKILL);
    tn_tensor *tensor = gpu_pop(queue); /* the vault had the descriptor */
    gpu_expect(domain, tensor, 42);
    tn_tensor_unref(tensor);
    end();
}

/* ---- write once -------------------------------------------------------------------------- */

static int write_refused(void *unused)
{
    (void)unused;
    tn_tensor *tensor = gpu_pop(queue), *own;
    gpu_expect(domain, tensor, 45);
    TN_CHECK_OK(tn_tensor_create_private(TN_UINT8, 1, (int64_t[]){BYTES}, &own));
    assert_int_equal(tn_tensor_copy(tensor, own), TN_ERR_DENIED);
    if (!gpu_is_real()) { /* and a kernel's write ends this process's context, not others' */
        gpu_kernel_fill(tensor, 1);
        tn_tensor *other = NULL;
        const tn_tensor_options options = {
            .struct_size = sizeof options, .flags = TN_TENSOR_ZEROED, .device = gpu_0};
        assert_int_equal(
            tn_tensor_create(domain, TN_UINT8, 1, (int64_t[]){BYTES}, &options, &other),
            TN_ERR_DEVICE);
        assert_non_null(strstr(tn_error_detail(), "started anew"));
    }
    _exit(0); /* its context is lost */
}

TN_TEST(others_cannot_write_a_tensor_that_is_write_once)
{
    begin(NULL);
    pid_t pid = tnt_fork(write_refused, NULL);
    uint8_t *source = malloc(BYTES);
    memset(source, 45, BYTES);
    const tn_tensor_options options = {.struct_size = sizeof options,
                                       .flags = TN_TENSOR_WRITE_ONCE,
                                       .source = source,
                                       .source_bytes = BYTES,
                                       .device = gpu_0};
    tn_tensor *tensor;
    TN_CHECK_OK(tn_tensor_create(domain, TN_UINT8, 1, (int64_t[]){BYTES}, &options, &tensor));
    gpu_push(queue, tensor);
    tnt_wait_ok(pid);
    gpu_expect(domain, tensor, 45);
    tn_tensor_unref(tensor);
    free(source);
    end();
}

/* ---- devices of the receiver ------------------------------------------------------------- */

static int receive_renumbered(void *unused)
{
    (void)unused;
    setenv("TENON_FAKECUDA_VISIBLE", "1,0", 1);
    tn_tensor *tensor = gpu_pop(queue);
    assert_int_equal(tn_tensor_device(tensor).id, 1);
    gpu_expect(domain, tensor, 46);
    tn_tensor_unref(tensor);
    tn_domain_close(domain);
    return 0;
}

TN_TEST(a_receiver_that_numbers_devices_otherwise_finds_the_device)
{
    gpu_need_fake();
    begin(&(struct fake_options){.device_count = 2});
    pid_t pid = tnt_fork(receive_renumbered, NULL);
    tn_tensor *tensor = gpu_tensor(domain, BYTES, 46);
    gpu_push(queue, tensor);
    tnt_wait_ok(pid);
    tn_tensor_unref(tensor);
    end();
}

static int receive_hidden(void *unused)
{
    (void)unused;
    tn_tensor *tensor = NULL;
    setenv("TENON_FAKECUDA_VISIBLE", "1", 1);
    assert_int_equal(tn_queue_pop_tensor(queue, tnt_deadline(10000), &tensor),
                     TN_ERR_UNSUPPORTED);
    assert_non_null(strstr(tn_error_detail(), "does not see the device with the UUID GPU-"));
    tn_domain_close(domain);
    return 0;
}

TN_TEST(a_receiver_that_does_not_see_the_device_loses_no_message)
{
    gpu_need_fake();
    begin(&(struct fake_options){.device_count = 2});
    pid_t pid = tnt_fork(receive_hidden, NULL);
    tn_tensor *tensor = gpu_tensor(domain, BYTES, 47), *again;
    gpu_push(queue, tensor);
    tn_tensor_unref(tensor);
    tnt_wait_ok(pid);
    again = gpu_pop(queue);
    gpu_expect(domain, again, 47);
    tn_tensor_unref(again);
    end();
}

static int receive_without_driver(void *unused)
{
    (void)unused;
    tn_tensor *tensor = NULL;
    gpu_set_library("/no/such/library.so");
    assert_int_equal(tn_queue_pop_tensor(queue, tnt_deadline(10000), &tensor),
                     TN_ERR_UNSUPPORTED);
    tn_domain_close(domain);
    return 0;
}

TN_TEST(a_receiver_without_a_driver_loses_no_message)
{
    begin(NULL);
    pid_t pid = tnt_fork(receive_without_driver, NULL);
    tn_tensor *tensor = gpu_tensor(domain, BYTES, 47), *again;
    gpu_push(queue, tensor);
    tn_tensor_unref(tensor);
    tnt_wait_ok(pid);
    again = gpu_pop(queue);
    gpu_expect(domain, again, 47);
    tn_tensor_unref(again);
    end();
}

/* ---- fork -------------------------------------------------------------------------------- */

static int use_in_child(void *argument)
{
    tn_tensor *tensor = argument, *made = NULL;
    const tn_tensor_options options = {.struct_size = sizeof options, .device = gpu_0};
    tn_tensor *own;
    TN_CHECK_OK(tn_tensor_create_private(TN_UINT8, 1, (int64_t[]){BYTES}, &own));
    assert_int_equal(tn_tensor_copy(own, tensor), TN_ERR_FORKED);
    assert_int_equal(tn_tensor_create(domain, TN_UINT8, 1, (int64_t[]){BYTES}, &options, &made),
                     TN_ERR_FORKED);
    TN_CHECK_OK(tn_queue_push_tensor(queue, tensor, 0, TN_NOW)); /* it may pass the tensor on */
    tn_tensor_unref(tensor);
    tn_domain_close(domain);
    return 0;
}

TN_TEST(a_forked_child_passes_a_tensor_on_that_it_cannot_use)
{
    begin(NULL);
    tn_tensor *tensor = gpu_tensor(domain, BYTES, 48);
    tnt_wait_ok(tnt_fork(use_in_child, tensor));
    tn_tensor_unref(tensor);
    tensor = gpu_pop(queue);
    gpu_expect(domain, tensor, 48);
    tn_tensor_unref(tensor);
    end();
}

/* ---- deaths at each call of the driver --------------------------------------------------- */

enum { MOST_CALLS = 200 };

static int produce_killed(void *argument)
{
    const unsigned *nth = argument;
    gpu_fake.kill_nth(*nth / 2 + 1, *nth % 2 == 0 ? "before" : "after");
    return produce(NULL);
}

/* Whether a child that is killed at its n-th call came to its end before that. */
static bool comes_through(tnt_child_fn *run, unsigned nth)
{
    int status = tnt_wait(tnt_fork(run, &nth));
    if (WIFEXITED(status)) {
        assert_int_equal(WEXITSTATUS(status), 0);
        return true;
    }
    assert_int_equal(WTERMSIG(status), SIGKILL);
    return false;
}

/* A producer, and then a consumer in another process, one of them killed at a point. */
static void kill_at(const char *point, tnt_child_fn *killed)
{
    begin(NULL);
    if (killed == consume)
        tnt_wait_ok(tnt_fork(produce, NULL));
    assert_true(tnt_kill_at(point, 1, killed, NULL));
    TN_CHECK_OK(tn_domain_reap(domain, NULL));
    if (killed == produce)
        assert_int_equal(tn_queue_count(queue), 0);
    else
        tnt_wait_ok(tnt_fork(consume, NULL)); /* the message came again */
    gpu_await_used(domain, 0);
    end();
}

TN_TEST(a_death_after_memory_was_made_leaves_nothing)
{
    kill_at("backing_device_made", produce);
}

TN_TEST(a_death_after_memory_was_described_leaves_nothing)
{
    kill_at("backing_device_filled", produce);
}

TN_TEST(a_death_after_memory_was_mapped_leaves_the_message)
{
    kill_at("backing_device_mapped", consume);
}

TN_TEST_WITHIN(a_producer_killed_at_any_call_of_the_driver_leaves_nothing, 120)
{
    gpu_need_fake();
    begin(NULL);
    tn_queue *first = queue;
    bool is_through = false;
    for (unsigned nth = 0; !is_through; nth++) {
        assert_true(nth < MOST_CALLS);
        TN_CHECK_OK(tn_queue_open(domain, NULL, NULL, 0, &queue));
        is_through = comes_through(produce_killed, nth);
        tn_object_close(
            queue); /* and the messages with it: this process must not have a driver */
        TN_CHECK_OK(tn_domain_reap(domain, NULL));
        gpu_await_used(domain, 0);
        TNT_AUDIT(domain);
        assert_true(nth > 20 || !is_through);
    }
    queue = first;
    end();
}
