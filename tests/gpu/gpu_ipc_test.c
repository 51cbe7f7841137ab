/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of a device that another library made, shared between processes where it lies. */
#include "gpu/gpu.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <tenon/dlpack.h>
#include <unistd.h>

#include "tensor/tensor.h"

enum { BYTES = 2 << 20, OFFSET = 4096 };

static tn_domain *domain;
static tn_queue *queue;
static struct tnt_signal ready, go;

static void begin_with(const struct fake_options *options, const tn_domain_options *of_domain)
{
    gpu_begin(options);
    domain = tnt_domain(of_domain);
    TN_CHECK_OK(tn_queue_open(domain, NULL, NULL, 0, &queue));
    ready = tnt_signal_open();
    go = tnt_signal_open();
}

static void begin(void) { begin_with(NULL, NULL); }

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

/* What a message says of the order of two processes is said to the fake as well. */
static void push(tn_tensor *tensor)
{
    if (!gpu_is_real())
        gpu_fake.message_sent(1);
    TN_CHECK_OK(tn_queue_push_tensor(queue, tensor, 0, tnt_deadline(10000)));
}

static tn_tensor *pop(void)
{
    tn_tensor *tensor;
    TN_CHECK_OK(tn_queue_pop_tensor(queue, tnt_deadline(10000), &tensor));
    if (!gpu_is_real())
        gpu_fake.message_received(1);
    return tensor;
}

/* ---- another library ----------------------------------------------------------------------
 */

/* Memory that has several tensors, and is freed with the last. */
struct memory {
    CUdeviceptr at;
    size_t bytes;
    bool is_private;
    int tensors;
};
struct export
{
    DLManagedTensorVersioned managed;
    int64_t shape[1];
    struct memory *memory;
};
static int freed; /* exports that were given back */

static struct memory *make_memory(size_t bytes, bool is_private)
{
    struct memory *m = calloc(1, sizeof *m);
    assert_non_null(m);
    *m = (struct memory){.bytes = bytes, .is_private = is_private};
    m->at = gpu_library_alloc(bytes, is_private);
    return m;
}

static void end_export(DLManagedTensorVersioned *managed)
{
    struct export *e = managed->manager_ctx;
    if (--e->memory->tensors == 0) {
        gpu_library_free(e->memory->at, e->memory->is_private ? e->memory->bytes : 0);
        free(e->memory);
    }
    free(e);
    freed++;
}

static DLManagedTensorVersioned *export_part(struct memory *m, size_t offset, size_t bytes)
{
    struct export *e = calloc(1, sizeof *e);
    assert_non_null(e);
    e->memory = m;
    m->tensors++;
    e->shape[0] = (int64_t)bytes;
    e->managed =
        (DLManagedTensorVersioned){.version = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION},
                                   .manager_ctx = e,
                                   .deleter = end_export,
                                   .dl_tensor = {.data = (void *)(uintptr_t)(m->at + offset),
                                                 .device = {kDLCUDA, 0},
                                                 .ndim = 1,
                                                 .dtype = {kDLUInt, 8, 1},
                                                 .shape = e->shape}};
    return &e->managed;
}

/* A tensor over a part of memory, all bytes of it `value`. It is private. */
static tn_tensor *wrap(struct memory *m, size_t offset, size_t bytes, uint8_t value)
{
    tn_tensor *tensor;
    TN_CHECK_OK(tn_tensor_from_dlpack(export_part(m, offset, bytes), &tensor));
    gpu_kernel_fill(tensor, value);
    return tensor;
}

static tn_tensor *share_part(struct memory *m, size_t offset, size_t bytes, uint8_t value)
{
    tn_tensor *tensor = wrap(m, offset, bytes, value);
    TN_CHECK_OK(tn_tensor_share(domain, tensor, NULL));
    TN_CHECK_OK(tn_tensor_record(tensor, NULL));
    return tensor;
}

static tn_tensor *share_new(uint8_t value)
{
    return share_part(make_memory(BYTES, false), OFFSET, BYTES - OFFSET, value);
}

/* Call tenon until so many exports were given back to the library. */
static void await_freed(int count)
{
    uint64_t end_ns = tnt_until_ns(20000);
    while (freed < count && tni_os_now_ns() < end_ns)
        TN_CHECK_OK(tn_domain_trim(domain, 0, NULL));
    assert_int_equal(freed, count);
}

static uint32_t strategy_of(const tn_tensor *tensor)
{
    tn_tensor_info info = {.struct_size = sizeof info};
    TN_CHECK_OK(tn_tensor_get_info(tensor, &info));
    return info.strategy;
}

/* If the library looked at the word and gave the stream nothing, the fake learns that here. */
static void wait_for(const tn_tensor *tensor)
{
    if (gpu_is_real()) {
        TN_CHECK_OK(tn_tensor_wait(tensor, NULL));
        return;
    }
    uint64_t before = gpu_fake.calls("cuStreamWaitValue64_v2");
    uint64_t token = atomic_load(&tensor->storage->ready);
    TN_CHECK_OK(tn_tensor_wait(tensor, NULL));
    if (token != 0 && gpu_fake.calls("cuStreamWaitValue64_v2") == before)
        gpu_fake.value_seen(
            (void *)(uintptr_t)tni_value_at(&domain->segment, tni_token_timeline(token)));
}

/* ---- one process --------------------------------------------------------------------------
 */

TN_TEST(memory_of_a_library_is_a_private_tensor_on_its_device)
{
    begin();
    tn_tensor *tensor = wrap(make_memory(BYTES, false), 0, BYTES, 7);
    assert_int_equal(tn_tensor_device(tensor).type, TN_DEVICE_CUDA);
    assert_int_equal(strategy_of(tensor), TN_STRATEGY_DEFAULT);
    assert_int_equal(tn_tensor_record(tensor, NULL), TN_ERR_INVALID);
    gpu_expect(domain, tensor, 7);
    tn_tensor *clone;
    TN_CHECK_OK(tn_tensor_clone(domain, tensor, NULL, &clone));
    gpu_expect(domain, clone, 7);
    tn_tensor_unref(clone);
    tn_tensor_unref(tensor);
    assert_int_equal(freed, 1);
    end();
}

TN_TEST(sharing_leaves_the_memory_where_it_is)
{
    begin();
    struct memory *m = make_memory(BYTES, false);
    tn_tensor *tensor = wrap(m, OFFSET, BYTES - OFFSET, 8);
    void *data = tn_tensor_data(tensor);
    TN_CHECK_OK(tn_tensor_share(domain, tensor, NULL));
    assert_ptr_equal(tn_tensor_data(tensor), data);
    assert_int_equal(strategy_of(tensor), TN_STRATEGY_CUDA_IPC);
    gpu_expect(domain, tensor, 8);
    push(tensor);
    tn_tensor *again = pop();
    assert_ptr_equal(tn_tensor_data(again), data); /* no process opens what is its own */
    tn_tensor_unref(tensor);
    assert_int_equal(freed, 0);
    tn_tensor_unref(again);
    await_freed(1);
    end();
}

/* ---- two processes ------------------------------------------------------------------------
 */

static int consume(void *argument)
{
    int count = *(const int *)argument;
    for (int i = 0; i < count; i++) {
        tn_tensor *tensor = pop();
        assert_int_equal(strategy_of(tensor), TN_STRATEGY_CUDA_IPC);
        wait_for(tensor);
        gpu_expect(domain, tensor, (uint8_t)(10 + i));
        tn_tensor_unref(tensor);
    }
    if (!gpu_is_real())
        assert_int_equal(gpu_fake.calls("cuIpcOpenMemHandle"), 1);
    tn_domain_close(domain);
    return 0;
}

TN_TEST(a_receiver_opens_an_allocation_once)
{
    int count = 20;
    begin();
    pid_t pid = tnt_fork(consume, &count);
    struct memory *m = make_memory(BYTES, false);
    for (int i = 0; i < count; i++) {
        tn_tensor *tensor = share_part(m, (size_t)i * OFFSET, OFFSET, (uint8_t)(10 + i));
        push(tensor);
        tn_tensor_unref(tensor);
    }
    tnt_wait_ok(pid);
    await_freed(count);
    end();
}

static int hold(void *unused)
{
    (void)unused;
    tn_tensor *tensor = pop();
    wait_for(tensor);
    gpu_expect(domain, tensor, 20);
    tnt_signal(&ready);
    tnt_await(&go);
    gpu_expect(domain, tensor, 20);
    tn_tensor_unref(tensor);
    tn_domain_close(domain);
    return 0;
}

TN_TEST(a_library_gets_its_memory_back_when_nobody_has_it)
{
    begin();
    pid_t pid = tnt_fork(hold, NULL);
    tn_tensor *tensor = share_new(20);
    push(tensor);
    tn_tensor_unref(tensor);
    tnt_await(&ready);
    TN_CHECK_OK(tn_domain_trim(domain, 0, NULL));
    assert_int_equal(freed, 0);
    tnt_signal(&go);
    tnt_wait_ok(pid);
    await_freed(1);
    end();
}
