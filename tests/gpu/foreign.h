/* SPDX-License-Identifier: Apache-2.0 */
/* foreign: a domain with a queue, for the tests of memory that another library made. */
#ifndef TENON_TESTS_GPU_FOREIGN_H
#define TENON_TESTS_GPU_FOREIGN_H

#include "gpu/gpu.h"
#include "process/backing.h"
#include "tensor/tensor.h"

static tn_domain *domain;
static tn_queue *queue;
static struct tnt_signal ready, go;

static inline void begin_with(const struct fake_options *options,
                              const tn_domain_options *of_domain)
{
    gpu_begin(options);
    domain = tnt_domain(of_domain);
    TN_CHECK_OK(tn_queue_open(domain, NULL, NULL, 0, &queue));
    ready = tnt_signal_open();
    go = tnt_signal_open();
}

static inline void end(void)
{
    tn_object_close(queue);
    TN_CHECK_OK(tn_domain_reap(domain, NULL));
    TNT_AUDIT(domain);
    tn_domain_close(domain);
    tnt_signal_close(&ready);
    tnt_signal_close(&go);
    gpu_end();
}

/** A private tensor in a part of a library's memory, all bytes of it `value`. */
static inline tn_tensor *wrap(struct gpu_memory *m, size_t offset, size_t bytes, uint8_t value)
{
    tn_tensor *tensor = gpu_memory_tensor(m, offset, bytes);
    gpu_kernel_fill(tensor, value);
    return tensor;
}

/** The same, shared. */
static inline tn_tensor *share_part(struct gpu_memory *m, size_t offset, size_t bytes,
                                    uint8_t value)
{
    tn_tensor *tensor = wrap(m, offset, bytes, value);
    TN_CHECK_OK(tn_tensor_share(domain, tensor, NULL));
    TN_CHECK_OK(tn_tensor_record(tensor, NULL));
    return tensor;
}

static inline void push_and_unref(tn_tensor *tensor)
{
    gpu_push(queue, tensor);
    tn_tensor_unref(tensor);
}

/** Call tenon until so many tensors were given back to the library. */
static inline void await_freed(int count)
{
    uint64_t end_ns = tnt_until_ns(20000);
    while (gpu_given_back < count && tni_os_now_ns() < end_ns)
        TN_CHECK_OK(tn_domain_trim(domain, 0, NULL));
    assert_int_equal(gpu_given_back, count);
}

static inline uint32_t strategy_of(const tn_tensor *tensor)
{
    tn_tensor_info info = {.struct_size = sizeof info};
    TN_CHECK_OK(tn_tensor_get_info(tensor, &info));
    return info.strategy;
}

/* ---- descriptions that a process has damaged --------------------------------------------- */

static inline struct tni_backing *description_of(const tn_tensor *tensor)
{
    return tni_payload_at(&domain->segment, tensor->storage->block);
}

/** What a process wrote into descriptions, and what their receivers get. */
struct forgeries {
    tn_tensor *(*share_new)(uint8_t value);
    void (*forge)(struct tni_backing *description, int which);
    int count;
    const int *wanted; /* [count] */
};

struct turn {
    struct tnt_signal *signal;
    int wanted;
};

static inline int receive_damaged_in_turn(void *argument)
{
    tn_tensor *tensor = NULL;
    struct turn *turn = argument;
    tnt_await(turn->signal);
    int status = tn_queue_pop_tensor(queue, tnt_deadline(10000), &tensor);
    if (status != turn->wanted)
        fail_msg("%d instead of %d: %s", status, turn->wanted, tn_error_detail());
    assert_null(tensor);
    tn_domain_close(domain);
    return 0;
}

/** A process that forks must not have used the driver, so all receivers begin first. */
static inline void expect_refused(const struct forgeries *f)
{
    enum { MOST = 16 };
    pid_t pids[MOST];
    struct tnt_signal turns[MOST];
    assert_true(f->count <= MOST);
    for (int i = 0; i < f->count; i++) {
        turns[i] = tnt_signal_open();
        pids[i] = tnt_fork(receive_damaged_in_turn, &(struct turn){&turns[i], f->wanted[i]});
    }
    for (int i = 0; i < f->count; i++) {
        tn_tensor *tensor = f->share_new(30), *again;
        struct tni_backing was = *description_of(tensor);
        f->forge(description_of(tensor), i);
        gpu_push(queue, tensor);
        tnt_signal(&turns[i]);
        tnt_wait_ok(pids[i]);
        *description_of(tensor) = was;
        bool is_kept = f->wanted[i] == TN_ERR_UNSUPPORTED || f->wanted[i] == TN_ERR_NO_MEMORY;
        assert_int_equal(tn_queue_pop_tensor(queue, TN_NOW, &again) == 0, is_kept);
        if (is_kept)
            tn_tensor_unref(again);
        tn_tensor_unref(tensor);
        await_freed(i + 1);
        tnt_signal_close(&turns[i]);
    }
}

/* ---- kills ------------------------------------------------------------------------------- */

static inline int receive_one(void *unused)
{
    (void)unused;
    tn_tensor_unref(gpu_pop(queue));
    TN_CHECK_OK(tn_domain_trim(domain, 0, NULL));
    tn_domain_close(domain);
    return 0;
}

struct maker {
    tn_tensor *(*share_new)(uint8_t value);
};

/* The receiver may have died with the message, or before it took that. */
static inline int make_for_the_killed(void *argument)
{
    const struct maker *maker = argument;
    tn_tensor *again;
    push_and_unref(maker->share_new(40));
    tnt_signal(&ready);
    tnt_await(&go);
    if (tn_queue_pop_tensor(queue, TN_NOW, &again) == 0)
        tn_tensor_unref(again);
    await_freed(1);
    tn_domain_close(domain);
    return 0;
}

/** A process of its own makes each tensor: that which forks must not use the driver before. */
static inline void expect_nothing_of_killed_receivers(tn_tensor *(*share_new)(uint8_t value))
{
    static const char *const points[] = {"lease_claimed", "lease_taken", "lease_opened",
                                         "lease_closed"};
    for (size_t i = 0; i < sizeof points / sizeof points[0]; i++) {
        pid_t pid = tnt_fork(make_for_the_killed, &(struct maker){share_new});
        tnt_await(&ready);
        assert_true(tnt_kill_at(points[i], 1, receive_one, NULL));
        tnt_signal(&go);
        tnt_wait_ok(pid);
        assert_false(tni_leases_has(&domain->segment, TNI_LEASE_OVER));
    }
}

#endif
