/* SPDX-License-Identifier: Apache-2.0 */
/* The fake's rules of cuMemAlloc(), its handles and pointers: R5, R9 to R24, R47. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "fakecuda/world.h"

/* ---- an exporter and an importer --------------------------------------------------------- */

/* The test's process exports; a child imports, and says by `step` when it has come so far. */
struct pair {
    struct channel handles;
    struct tnt_signal step;
    struct tnt_signal over;
};

static struct pair pair_open(void)
{
    return (struct pair){channel_open(), tnt_signal_open(), tnt_signal_open()};
}

static void pair_close(struct pair *pair)
{
    channel_close(&pair->handles);
    tnt_signal_close(&pair->step);
    tnt_signal_close(&pair->over);
}

static CUresult open_ptr(CUdeviceptr *ret_ptr, CUipcMemHandle handle)
{
    return cuIpcOpenMemHandle_v2(ret_ptr, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
}

static CUipcMemHandle receive(const struct pair *pair)
{
    CUipcMemHandle handle;
    channel_receive(&pair->handles, &handle, sizeof handle);
    return handle;
}

static void send_handle(const struct pair *pair, CUdeviceptr ptr)
{
    CUipcMemHandle handle;
    OK(cuIpcGetMemHandle(&handle, ptr));
    channel_send(&pair->handles, &handle, sizeof handle);
}

static CUdeviceptr alloc(size_t bytes)
{
    CUdeviceptr ptr;
    OK(cuMemAlloc_v2(&ptr, bytes));
    return ptr;
}

/* ---- allocating -------------------------------------------------------------------------- */

/* R9 */
TN_TEST(small_allocations_share_a_block)
{
    world_begin(NULL);
    world_enter();
    CUdeviceptr first = alloc(100), second = alloc(100), large = alloc(CHUNK + 1);
    assert_int_equal(first % 512, 0);
    assert_int_equal(second % 512, 0);
    assert_int_equal(first / CHUNK, second / CHUNK);
    assert_int_equal(fake_mem_used(0), 3 * CHUNK);
    OK(cuMemFree_v2(first));
    OK(cuMemFree_v2(second));
    OK(cuMemFree_v2(large));
    assert_int_equal(fake_mem_used(0), 0);
    world_leave();
    world_end();
}

/* R9 */
TN_TEST(a_write_beside_a_small_allocation_is_caught)
{
    world_begin(NULL);
    world_enter();
    CUdeviceptr ptr = alloc(100);
    OK(cuMemsetD8Async(ptr, 1, 101, NULL));
    OK(cuStreamSynchronize(NULL));
    OK(cuMemFree_v2(ptr));
    world_expect("R9");
    world_leave();
    world_end();
}

/* R10 */
TN_TEST(an_address_comes_again_but_no_buffer_id_or_handle)
{
    CUipcMemHandle handles[2];
    CUpointer_attribute which = CU_POINTER_ATTRIBUTE_BUFFER_ID;
    unsigned long long ids[2];
    CUdeviceptr ptrs[2];
    world_begin(NULL);
    world_enter();
    for (unsigned i = 0; i < 2; i++) {
        ptrs[i] = alloc(CHUNK);
        void *data = &ids[i];
        OK(cuPointerGetAttributes(1, &which, &data, ptrs[i]));
        OK(cuIpcGetMemHandle(&handles[i], ptrs[i]));
        OK(cuMemFree_v2(ptrs[i]));
    }
    assert_true(ptrs[0] == ptrs[1]);
    assert_true(ids[0] != ids[1]);
    assert_memory_not_equal(&handles[0], &handles[1], sizeof handles[0]);
    world_leave();
    world_end();
}

/* R11 */
TN_TEST(only_the_base_of_an_allocation_is_freed)
{
    world_begin(NULL);
    world_enter();
    CUdeviceptr ptr = alloc(4096);
    struct chunk chunk = chunk_create(CHUNK);
    IS(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(ptr + 512));
    IS(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(chunk.ptr));
    IS(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(4096));
    CUmemGenericAllocationHandle handle; /* R47 */
    IS(CUDA_ERROR_INVALID_VALUE, cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)ptr));
    IS(CUDA_ERROR_INVALID_VALUE,
       cuMemRetainAllocationHandle(NULL, (void *)(uintptr_t)chunk.ptr));
    IS(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(ptr, 4096));
    OK(cuMemFree_v2(ptr));
    IS(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(ptr));
    chunk_destroy(&chunk);
    world_leave();
    world_end();
}

/* R11 */
TN_TEST(memory_that_is_never_freed_is_caught)
{
    world_begin(NULL);
    world_enter();
    alloc(4096);
    fake_detach();
    world_expect("R11");
    world_end();
}

/* R12 */
TN_TEST(a_free_with_work_in_flight_is_caught)
{
    CUstream stream;
    world_begin(NULL);
    world_enter();
    CUdeviceptr ptr = alloc(4096), other = alloc(4096);
    OK(cuStreamCreate(&stream, 0));
    fake_hold(stream);
    OK(cuMemsetD8Async(ptr, 1, 16, stream));
    OK(cuMemFree_v2(ptr));
    world_expect("R12");
    fake_release(stream);
    OK(cuStreamSynchronize(stream));
    world_expect("R12");
    OK(cuMemFree_v2(other));
    world_expect("R9");
    OK(cuStreamDestroy_v2(stream));
    world_leave();
    world_end();
}

/* ---- pointers ---------------------------------------------------------------------------- */

struct answer {
    unsigned type;
    int ordinal;
    bool is_legacy;
    bool is_mapped;
    unsigned handle_types;
    void *pool;
};

static struct answer ask(CUdeviceptr ptr)
{
    struct answer answer;
    CUpointer_attribute which[] = {
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
        CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
        CU_POINTER_ATTRIBUTE_MAPPED,
        CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES,
        CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE,
    };
    void *data[] = {&answer.type,      &answer.ordinal,      &answer.is_legacy,
                    &answer.is_mapped, &answer.handle_types, &answer.pool};
    OK(cuPointerGetAttributes(6, which, data, ptr));
    return answer;
}

TN_TEST(a_pointer_says_what_it_is)
{
    world_begin(NULL);
    world_enter();
    CUdeviceptr ptr = alloc(4096);
    struct chunk chunk = chunk_create(CHUNK);
    struct answer legacy = ask(ptr + 9), counted = ask(chunk.ptr), foreign = ask(4096);
    assert_int_equal(legacy.type, CU_MEMORYTYPE_DEVICE);
    assert_true(legacy.is_legacy && legacy.handle_types == 0);
    assert_int_equal(counted.type, CU_MEMORYTYPE_DEVICE);
    assert_true(!counted.is_legacy && counted.handle_types == 1);
    assert_int_equal(counted.ordinal, 0);
    assert_true(foreign.type == 0 && !foreign.is_mapped && foreign.ordinal < 0);
    assert_null(legacy.pool);
    OK(cuMemFree_v2(ptr));
    chunk_destroy(&chunk);
    world_leave();
    world_end();
}

TN_TEST(the_range_of_an_address_is_its_allocation)
{
    CUdeviceptr base;
    size_t bytes;
    world_begin(NULL);
    world_enter();
    CUdeviceptr ptr = alloc(5000);
    struct chunk chunk = chunk_create(CHUNK);
    OK(cuMemGetAddressRange_v2(&base, &bytes, ptr + 4999));
    assert_true(base == ptr && bytes == 5000);
    OK(cuMemGetAddressRange_v2(&base, &bytes, chunk.ptr + 1));
    assert_true(base == chunk.ptr && bytes == CHUNK);
    IS(CUDA_ERROR_NOT_FOUND, cuMemGetAddressRange_v2(&base, &bytes, 4096));
    OK(cuMemFree_v2(ptr));
    chunk_destroy(&chunk);
    world_leave();
    world_end();
}

/* ---- handles ----------------------------------------------------------------------------- */

/* R14, R47 */
TN_TEST(a_handle_is_only_of_memory_of_this_process)
{
    CUipcMemHandle handle;
    world_begin(&(struct fake_options){.strict_base = true});
    world_enter();
    CUdeviceptr ptr = alloc(4096);
    struct chunk chunk = chunk_create(CHUNK);
    IS(CUDA_ERROR_INVALID_VALUE, cuIpcGetMemHandle(&handle, ptr + 512));
    IS(CUDA_ERROR_INVALID_VALUE, cuIpcGetMemHandle(&handle, chunk.ptr));
    IS(CUDA_ERROR_INVALID_VALUE, cuIpcGetMemHandle(&handle, 4096));
    OK(cuIpcGetMemHandle(&handle, ptr));
    OK(cuMemFree_v2(ptr));
    chunk_destroy(&chunk);
    world_leave();
    world_end();
}

/* R16 */
TN_TEST(a_process_does_not_open_its_own_handle)
{
    CUipcMemHandle handle;
    CUdeviceptr opened;
    world_begin(NULL);
    world_enter();
    CUdeviceptr ptr = alloc(4096);
    OK(cuIpcGetMemHandle(&handle, ptr));
    IS(CUDA_ERROR_INVALID_CONTEXT, open_ptr(&opened, handle));
    OK(cuMemFree_v2(ptr));
    world_leave();
    world_end();
}

static int open_with_same_pid(void *argument)
{
    CUdeviceptr opened;
    setenv("TENON_FAKECUDA_PID", "77", 1);
    world_enter();
    IS(CUDA_ERROR_INVALID_CONTEXT, open_ptr(&opened, receive(argument)));
    world_leave();
    return 0;
}

/* R16 */
TN_TEST(a_process_of_the_same_pid_does_not_open_a_handle)
{
    struct pair pair = pair_open();
    world_begin(NULL);
    pid_t child = tnt_fork(open_with_same_pid, &pair);
    setenv("TENON_FAKECUDA_PID", "77", 1);
    world_enter();
    CUdeviceptr ptr = alloc(4096);
    send_handle(&pair, ptr);
    tnt_wait_ok(child);
    OK(cuMemFree_v2(ptr));
    unsetenv("TENON_FAKECUDA_PID");
    pair_close(&pair);
    world_leave();
    world_end();
}

static int open_and_close(void *argument)
{
    CUdeviceptr first, again, other;
    CUcontext second;
    CUipcMemHandle garbage = {{1, 2, 3}};
    CUipcMemHandle handle = receive(argument);
    world_enter();
    IS(CUDA_ERROR_INVALID_VALUE, cuIpcOpenMemHandle_v2(&first, handle, 0)); /* R15 */
    IS(CUDA_ERROR_INVALID_VALUE, open_ptr(&first, garbage));
    OK(open_ptr(&first, handle));
    OK(open_ptr(&again, handle));
    assert_true(first == again); /* R17 */
    assert_int_equal(byte_at(first), 5);
    assert_int_equal(fake_opens(), 1);

    OK(fake_context_create(&second, 0));
    OK(cuCtxPushCurrent_v2(second));
    IS(CUDA_ERROR_INVALID_CONTEXT, open_ptr(&other, handle));   /* R5 */
    IS(CUDA_ERROR_INVALID_CONTEXT, cuIpcCloseMemHandle(first)); /* R20 */
    world_expect("R20");
    OK(cuCtxPopCurrent_v2(NULL));
    fake_context_destroy(second);

    IS(CUDA_ERROR_INVALID_VALUE, cuIpcCloseMemHandle(first + 512)); /* R20 */
    IS(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(first));              /* R11 */
    IS(CUDA_ERROR_INVALID_VALUE, cuIpcGetMemHandle(&handle, first));
    OK(cuIpcCloseMemHandle(first));
    assert_int_equal(byte_at(first), 5);
    OK(cuIpcCloseMemHandle(first));
    IS(CUDA_ERROR_INVALID_VALUE, cuIpcCloseMemHandle(first));
    world_leave();
    return 0;
}

/* R5, R15, R17, R20 */
TN_TEST(opens_of_a_handle_are_counted_in_one_context)
{
    struct pair pair = pair_open();
    world_begin(&(struct fake_options){.no_races = true});
    pid_t child = tnt_fork(open_and_close, &pair);
    world_enter();
    CUdeviceptr ptr = alloc(4096);
    assert_int_equal(fake_poke(ptr, "\5", 1), 0);
    send_handle(&pair, ptr);
    tnt_wait_ok(child);
    OK(cuMemFree_v2(ptr));
    pair_close(&pair);
    world_leave();
    world_end();
}

/* R18 */
static int open_too_late(void *argument)
{
    CUdeviceptr opened;
    struct pair *pair = argument;
    CUipcMemHandle handle = receive(pair);
    tnt_await(&pair->over);
    world_enter();
    IS(CUDA_ERROR_INVALID_VALUE, open_ptr(&opened, handle));
    world_leave();
    return 0;
}

/* R18 */
TN_TEST(a_handle_of_freed_memory_is_refused)
{
    struct pair pair = pair_open();
    world_begin(NULL);
    pid_t child = tnt_fork(open_too_late, &pair);
    world_enter();
    CUdeviceptr ptr = alloc(4096);
    send_handle(&pair, ptr);
    OK(cuMemFree_v2(ptr));
    tnt_signal(&pair.over);
    tnt_wait_ok(child);
    pair_close(&pair);
    world_leave();
    world_end();
}

static int export_and_die(void *argument)
{
    struct pair *pair = argument;
    world_enter();
    send_handle(pair, alloc(4096));
    tnt_await(&pair->over);
    raise(SIGKILL);
    return 0;
}

/* R18 */
TN_TEST(a_handle_of_a_dead_process_is_refused)
{
    CUdeviceptr opened;
    struct pair pair = pair_open();
    world_begin(NULL);
    pid_t child = tnt_fork(export_and_die, &pair);
    CUipcMemHandle handle = receive(&pair);
    tnt_signal(&pair.over);
    assert_true(WIFSIGNALED(tnt_wait(child)));
    world_enter();
    IS(CUDA_ERROR_INVALID_VALUE, open_ptr(&opened, handle));
    pair_close(&pair);
    world_leave();
    world_end();
}

static int keep_old_open(void *argument)
{
    CUdeviceptr old, new;
    struct pair *pair = argument;
    world_enter();
    OK(open_ptr(&old, receive(pair)));
    tnt_signal(&pair->step);
    CUipcMemHandle handle = receive(pair);
    IS(CUDA_ERROR_ALREADY_MAPPED, open_ptr(&new, handle));
    OK(cuIpcCloseMemHandle(old));
    OK(open_ptr(&new, handle));
    OK(cuIpcCloseMemHandle(new));
    world_leave();
    return 0;
}

/* R13, R19 */
TN_TEST(new_memory_at_an_old_address_is_not_opened_beside_it)
{
    struct pair pair = pair_open();
    world_begin(NULL);
    pid_t child = tnt_fork(keep_old_open, &pair);
    world_enter();
    CUdeviceptr ptr = alloc(CHUNK);
    send_handle(&pair, ptr);
    tnt_await(&pair.step);
    OK(cuMemFree_v2(ptr));
    world_expect("R13");
    assert_int_equal(fake_mem_used(0), CHUNK);
    assert_true(alloc(CHUNK) == ptr);
    send_handle(&pair, ptr);
    tnt_wait_ok(child);
    OK(cuMemFree_v2(ptr));
    assert_int_equal(fake_mem_used(0), 0);
    pair_close(&pair);
    world_leave();
    world_end();
}

static int close_with_work(void *argument)
{
    CUdeviceptr opened;
    CUstream stream;
    world_enter();
    OK(open_ptr(&opened, receive(argument)));
    OK(cuStreamCreate(&stream, 0));
    fake_hold(stream);
    OK(cuMemsetD8Async(opened, 1, 16, stream));
    OK(cuIpcCloseMemHandle(opened));
    world_expect("R20");
    fake_release(stream);
    IS(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamSynchronize(stream)); /* R21 */
    return 0;
}

static int use_after_close(void *argument)
{
    CUdeviceptr opened;
    world_enter();
    OK(open_ptr(&opened, receive(argument)));
    OK(cuIpcCloseMemHandle(opened));
    IS(CUDA_ERROR_INVALID_VALUE, cuMemsetD8Async(opened, 1, 16, NULL));
    OK(fake_kernel_fill(NULL, opened, 16, 1));
    IS(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamSynchronize(NULL));
    return 0;
}

static int leave_open(void *argument)
{
    CUdeviceptr opened;
    world_enter();
    OK(open_ptr(&opened, receive(argument)));
    world_leave();
    return 0;
}

/* Run an importer of one allocation of this process to its end. */
static void run_importer(tnt_child_fn *importer)
{
    struct pair pair = pair_open();
    world_begin(NULL);
    pid_t child = tnt_fork(importer, &pair);
    world_enter();
    CUdeviceptr ptr = alloc(4096);
    send_handle(&pair, ptr);
    tnt_wait_ok(child);
    fake_mem_used(0); /* the kernel's part for who ended without a word */
    OK(cuMemFree_v2(ptr));
    pair_close(&pair);
    world_leave();
}

/* R20, R21 */
TN_TEST(a_close_with_work_in_flight_is_caught)
{
    run_importer(close_with_work);
    world_end();
}

/* R21 */
TN_TEST(work_on_memory_that_was_closed_fails_the_context)
{
    run_importer(use_after_close);
    world_end();
}

/* R24 */
TN_TEST(a_handle_that_is_not_closed_is_caught)
{
    run_importer(leave_open);
    world_expect("R24");
    world_end();
}

/* ---- the three worlds -------------------------------------------------------------------- */

static enum fake_world world;

/* The owner frees `a`, and the world decides what is then there. */
static int use_after_free(void *argument)
{
    CUdeviceptr opened;
    unsigned char byte;
    struct pair *pair = argument;
    world_enter();
    OK(open_ptr(&opened, receive(pair)));
    tnt_signal(&pair->step);
    tnt_await(&pair->over);
    CUresult result = cuMemcpyDtoHAsync_v2(&byte, opened, 1, NULL);
    world_expect("R13");
    if (world == FAKE_FAULT) {
        IS(CUDA_ERROR_ILLEGAL_ADDRESS, result);
        return 0;
    }
    OK(result);
    assert_int_equal(byte, world == FAKE_KEEP ? 'a' : 'b');
    OK(cuIpcCloseMemHandle(opened));
    world_leave();
    return 0;
}

static void free_while_open(enum fake_world chosen)
{
    struct pair pair = pair_open();
    world = chosen;
    world_begin(&(struct fake_options){.world = chosen, .no_races = true});
    pid_t child = tnt_fork(use_after_free, &pair);
    world_enter();
    CUdeviceptr ptr = alloc(CHUNK);
    assert_int_equal(fake_poke(ptr, "a", 1), 0);
    send_handle(&pair, ptr);
    tnt_await(&pair.step);
    OK(cuMemFree_v2(ptr));
    world_expect("R13");
    ptr = alloc(CHUNK);
    assert_int_equal(fake_poke(ptr, "b", 1), 0);
    tnt_signal(&pair.over);
    tnt_wait_ok(child);
    OK(cuMemFree_v2(ptr));
    pair_close(&pair);
    world_leave();
    assert_int_equal(fake_mem_used(0), 0);
    world_end();
}

/* R13 */
TN_TEST(freed_memory_stays_for_its_importer_in_keep) { free_while_open(FAKE_KEEP); }

/* R13 */
TN_TEST(freed_memory_fails_its_importer_in_fault) { free_while_open(FAKE_FAULT); }

/* R13 */
TN_TEST(freed_memory_is_another_allocation_in_recycle) { free_while_open(FAKE_RECYCLE); }

static int export_and_leave(void *argument)
{
    struct pair *pair = argument;
    world_enter();
    CUdeviceptr ptr = alloc(CHUNK);
    send_handle(pair, ptr);
    tnt_await(&pair->over);
    fake_detach();
    return 0;
}

/* R22 */
TN_TEST(a_process_that_ends_while_its_memory_is_open_is_caught)
{
    CUdeviceptr opened;
    struct pair pair = pair_open();
    world_begin(NULL);
    pid_t child = tnt_fork(export_and_leave, &pair);
    world_enter();
    OK(open_ptr(&opened, receive(&pair)));
    tnt_signal(&pair.over);
    tnt_wait_ok(child);
    world_expect("R22");
    OK(cuMemsetD8Async(opened, 1, 16, NULL));
    OK(cuStreamSynchronize(NULL));
    world_expect("R13");
    OK(cuIpcCloseMemHandle(opened));
    pair_close(&pair);
    world_leave();
    world_end();
}

static int time_open(void *argument)
{
    CUdeviceptr opened;
    struct timespec before, after;
    world_enter();
    CUipcMemHandle handle = receive(argument);
    clock_gettime(CLOCK_MONOTONIC, &before);
    OK(open_ptr(&opened, handle));
    clock_gettime(CLOCK_MONOTONIC, &after);
    long ns = (after.tv_sec - before.tv_sec) * 1000000000 + after.tv_nsec - before.tv_nsec;
    assert_true(ns >= 2 * 5000000);
    OK(cuIpcCloseMemHandle(opened));
    world_leave();
    return 0;
}

/* R23 */
TN_TEST(an_open_takes_time_for_each_mebibyte)
{
    struct pair pair = pair_open();
    world_begin(&(struct fake_options){.open_cost_ns_per_mib = 5000000});
    pid_t child = tnt_fork(time_open, &pair);
    world_enter();
    CUdeviceptr ptr = alloc(CHUNK);
    send_handle(&pair, ptr);
    tnt_wait_ok(child);
    OK(cuMemFree_v2(ptr));
    pair_close(&pair);
    world_leave();
    world_end();
}

static int open_in_other_instance(void *argument)
{
    CUdeviceptr opened;
    CUcontext context;
    CUipcMemHandle handle = receive(argument);
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, 1));
    OK(cuCtxPushCurrent_v2(context));
    IS(CUDA_ERROR_MAP_FAILED, open_ptr(&opened, handle));
    OK(cuCtxPopCurrent_v2(NULL));
    OK(cuDevicePrimaryCtxRelease_v2(1));
    fake_detach();
    return 0;
}

/* R60 */
TN_TEST(a_handle_is_not_opened_in_another_instance)
{
    struct pair pair = pair_open();
    world_begin(&(struct fake_options){.device_count = 2, .mig = true});
    pid_t child = tnt_fork(open_in_other_instance, &pair);
    world_enter();
    CUdeviceptr ptr = alloc(CHUNK);
    send_handle(&pair, ptr);
    tnt_wait_ok(child);
    OK(cuMemFree_v2(ptr));
    pair_close(&pair);
    world_leave();
    world_end();
}
