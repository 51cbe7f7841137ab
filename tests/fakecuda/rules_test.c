/* SPDX-License-Identifier: Apache-2.0 */
/* The fake's rules of the start, of contexts and of devices: R1 to R8, R57 to R60, R62. */
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fakecuda/world.h"

static void set_device(CUdevice *ret_device) { OK(cuDeviceGet(ret_device, 0)); }

/* R1 */
TN_TEST(a_call_before_init_says_not_initialised)
{
    int count;
    world_begin(NULL);
    IS(CUDA_ERROR_NOT_INITIALIZED, cuDeviceGetCount(&count));
    OK(cuInit(0));
    OK(cuDeviceGetCount(&count));
    assert_int_equal(count, 1);
    world_end();
}

TN_TEST(without_a_universe_there_is_no_device)
{
    unsetenv("TENON_FAKECUDA");
    IS(CUDA_ERROR_NO_DEVICE, cuInit(0));
    setenv("TENON_FAKECUDA", "/nonexistent", 1);
    IS(CUDA_ERROR_NO_DEVICE, cuInit(0));
}

TN_TEST(init_fails_as_the_options_say)
{
    const CUresult codes[] = {CUDA_ERROR_STUB_LIBRARY, CUDA_ERROR_NO_DEVICE, CUDA_ERROR_UNKNOWN,
                              CUDA_ERROR_SYSTEM_DRIVER_MISMATCH};
    for (unsigned i = 0; i < 4; i++) {
        world_begin(&(struct fake_options){.init_result = codes[i]});
        IS(codes[i], cuInit(0));
        world_end();
    }
}

static int call_in_child(void *argument)
{
    int count;
    (void)argument;
    return cuDeviceGetCount(&count) == CUDA_ERROR_NOT_INITIALIZED ? 0 : 1;
}

/* R2 */
TN_TEST(a_forked_child_of_an_initialised_process_is_caught)
{
    world_begin(NULL);
    OK(cuInit(0));
    tnt_wait_ok(tnt_fork(call_in_child, NULL));
    world_expect("R2");
    world_end();
}

/* R3 */
TN_TEST(a_call_without_a_current_context_is_refused)
{
    CUstream stream;
    CUdevice device;
    size_t free_bytes, total;
    world_begin(NULL);
    OK(cuInit(0));
    IS(CUDA_ERROR_INVALID_CONTEXT, cuStreamCreate(&stream, 0));
    IS(CUDA_ERROR_INVALID_CONTEXT, cuCtxGetDevice(&device));
    IS(CUDA_ERROR_INVALID_CONTEXT, cuMemGetInfo_v2(&free_bytes, &total));
    IS(CUDA_ERROR_INVALID_CONTEXT, cuCtxPopCurrent_v2(NULL));
    world_end();
}

static void *push_only(void *context)
{
    OK(cuCtxPushCurrent_v2(context));
    return NULL;
}

/* R4 */
TN_TEST(a_thread_that_ends_without_its_pop_is_caught)
{
    pthread_t thread;
    world_begin(NULL);
    CUcontext context = world_enter();
    assert_int_equal(pthread_create(&thread, NULL, push_only, context), 0);
    pthread_join(thread, NULL);
    world_expect("R4");
    world_leave();
    world_end();
}

/* R4 */
TN_TEST(a_process_that_keeps_a_primary_context_is_caught)
{
    CUcontext context;
    CUdevice device;
    world_begin(NULL);
    OK(cuInit(0));
    set_device(&device);
    OK(cuDevicePrimaryCtxRetain(&context, device));
    fake_detach();
    world_expect("R4");
    world_end();
}

/* R4 */
TN_TEST(a_primary_context_released_too_often_is_caught)
{
    world_begin(NULL);
    OK(cuInit(0));
    IS(CUDA_ERROR_INVALID_CONTEXT, cuDevicePrimaryCtxRelease_v2(0));
    world_expect("R4");
    world_end();
}

struct pair {
    struct tnt_signal ready;
    struct tnt_signal over;
};

static int hold_context(void *argument)
{
    struct pair *pair = argument;
    world_enter();
    tnt_signal(&pair->ready);
    tnt_await(&pair->over);
    world_leave();
    return 0;
}

/* R6 */
TN_TEST(an_exclusive_device_has_no_context_for_a_second_process)
{
    CUcontext context;
    struct pair pair = {tnt_signal_open(), tnt_signal_open()};
    world_begin(&(struct fake_options){.compute_mode = CU_COMPUTEMODE_EXCLUSIVE_PROCESS});
    pid_t child = tnt_fork(hold_context, &pair);
    tnt_await(&pair.ready);
    OK(cuInit(0));
    IS(CUDA_ERROR_DEVICE_UNAVAILABLE, cuDevicePrimaryCtxRetain(&context, 0));
    tnt_signal(&pair.over);
    tnt_wait_ok(child);
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuDevicePrimaryCtxRelease_v2(0));
    tnt_signal_close(&pair.ready);
    tnt_signal_close(&pair.over);
    world_end();
}

/* R7, R62 */
TN_TEST(the_visible_devices_have_the_order_that_is_asked_for)
{
    CUuuid first, second;
    int count;
    world_begin(&(struct fake_options){.device_count = 3});
    setenv("TENON_FAKECUDA_VISIBLE", "2,0", 1);
    OK(cuInit(0));
    OK(cuDeviceGetCount(&count));
    assert_int_equal(count, 2);
    OK(cuDeviceGetUuid_v2(&first, 0));
    OK(cuDeviceGetUuid_v2(&second, 1));
    assert_int_equal(first.bytes[15], 2);
    assert_int_equal(second.bytes[15], 0);
    IS(CUDA_ERROR_INVALID_DEVICE, cuDeviceGetUuid_v2(&first, 2));
    unsetenv("TENON_FAKECUDA_VISIBLE");
    world_end();
}

TN_TEST(a_process_that_sees_no_device_cannot_init)
{
    world_begin(NULL);
    setenv("TENON_FAKECUDA_VISIBLE", "", 1);
    IS(CUDA_ERROR_NO_DEVICE, cuInit(0));
    unsetenv("TENON_FAKECUDA_VISIBLE");
    world_end();
}

/* R8 */
TN_TEST(a_result_without_a_place_is_refused)
{
    world_begin(NULL);
    world_enter();
    IS(CUDA_ERROR_INVALID_VALUE, cuDeviceGetCount(NULL));
    IS(CUDA_ERROR_INVALID_VALUE, cuDeviceGet(NULL, 0));
    IS(CUDA_ERROR_INVALID_VALUE, cuDevicePrimaryCtxRetain(NULL, 0));
    IS(CUDA_ERROR_INVALID_VALUE, cuCtxGetCurrent(NULL));
    IS(CUDA_ERROR_INVALID_VALUE, cuStreamCreate(NULL, 0));
    IS(CUDA_ERROR_INVALID_VALUE, cuDriverGetVersion(NULL));
    IS(CUDA_ERROR_INVALID_VALUE, cuMemGetInfo_v2(NULL, NULL));
    world_leave();
    world_end();
}

/* R57 */
TN_TEST(the_nth_call_fails_as_it_is_told)
{
    int count;
    world_begin(NULL);
    OK(cuInit(0));
    fake_fail_nth("cuDeviceGetCount", 2, CUDA_ERROR_UNKNOWN);
    OK(cuDeviceGetCount(&count));
    IS(CUDA_ERROR_UNKNOWN, cuDeviceGetCount(&count));
    OK(cuDeviceGetCount(&count));
    fake_fail_nth(NULL, 1, CUDA_ERROR_OUT_OF_MEMORY);
    IS(CUDA_ERROR_OUT_OF_MEMORY, cuDriverGetVersion(&count));
    assert_int_equal(fake_calls("cuDeviceGetCount"), 3);
    assert_int_equal(fake_calls(NULL), 5);
    assert_int_equal(fake_calls_total("cuDeviceGetCount"), 3);
    world_end();
}

static const char *kill_when;

/* `result` is in shared memory: it shows whether the call had an effect. */
static int die_at_create(void *result)
{
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp properties = world_properties();
    OK(cuInit(0));
    fake_kill_nth(2, kill_when);
    OK(cuMemCreate(&handle, CHUNK, &properties, 0));
    cuMemCreate(result, CHUNK, &properties, 0);
    return 1;
}

/* R57: a process that is killed before or after a call leaves no memory. */
TN_TEST(a_process_is_killed_at_its_nth_call)
{
    uint64_t *result =
        mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(result != MAP_FAILED);
    world_begin(NULL);
    for (unsigned i = 0; i < 2; i++) {
        kill_when = i == 0 ? "before" : "after";
        *result = 0;
        int status = tnt_wait(tnt_fork(die_at_create, result));
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        assert_int_equal(fake_calls_total("cuMemCreate"), 2 + 2 * i);
        assert_int_equal(*result != 0, i);
        assert_int_equal(fake_mem_used(0), 0);
    }
    munmap(result, 4096);
    world_end();
}

static int die_by_environment(void *argument)
{
    setenv("TENON_FAKECUDA_KILL", "2:before", 1);
    setenv("TENON_FAKECUDA_FAIL", *(const char *)argument == '*' ? "*:1:999" : "cuInit:1:999",
           1);
    IS(CUDA_ERROR_UNKNOWN, cuInit(0));
    cuInit(0);
    return 1;
}

TN_TEST(the_environment_sets_faults_for_other_programs)
{
    char functions[] = "*c";
    world_begin(NULL);
    for (unsigned i = 0; i < 2; i++) {
        int status = tnt_wait(tnt_fork(die_by_environment, &functions[i]));
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    }
    world_end();
}

/* R58 */
TN_TEST(a_context_that_failed_fails_each_later_call)
{
    CUstream stream, other;
    size_t free_bytes, total;
    world_begin(NULL);
    world_enter();
    struct chunk chunk = chunk_create(CHUNK);
    OK(cuStreamCreate(&stream, 0));
    OK(fake_kernel_fill(stream, chunk.ptr + CHUNK - 16, 32, 1));
    IS(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamSynchronize(stream));
    IS(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamCreate(&other, 0));
    IS(CUDA_ERROR_ILLEGAL_ADDRESS, cuMemGetInfo_v2(&free_bytes, &total));
    IS(CUDA_ERROR_ILLEGAL_ADDRESS, cuMemsetD8Async(chunk.ptr, 0, 1, stream));
    IS(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamQuery(stream));
    world_end();
}

/* R59 */
TN_TEST(an_old_driver_lacks_groups_and_versions)
{
    void *function;
    world_begin(&(struct fake_options){.driver_version = 11020, .without = FAKE_NO_VMM});
    OK(cuGetProcAddress_v2("cuMemCreate", &function, 10020, 1, NULL));
    assert_null(function);
    OK(cuGetProcAddress_v2("cuDeviceGetUuid", &function, 11040, 1, NULL));
    assert_null(function);
    OK(cuGetProcAddress_v2("cuDeviceGetUuid", &function, 9020, 1, NULL));
    assert_non_null(function);
    int has_it;
    OK(cuInit(0));
    OK(cuDeviceGetAttribute(&has_it, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
                            0));
    assert_int_equal(has_it, 0);
    world_end();
}

TN_TEST(each_function_is_found_by_its_name_and_version)
{
#define FIND(group, name, symbol, version, parameters) {#name, version},
    static const struct {
        const char *name;
        int version;
    } all[] = {TNI_CUDA_FUNCTIONS(FIND)};
    world_begin(NULL);
    for (unsigned i = 0; i < sizeof all / sizeof all[0]; i++) {
        void *function = NULL;
        OK(cuGetProcAddress_v2(all[i].name, &function, all[i].version, 1, NULL));
        assert_non_null(function);
    }
    world_end();
}

TN_TEST(each_function_is_exported_by_its_symbol)
{
#define SYMBOL(group, name, symbol, version, parameters) #symbol,
    static const char *const symbols[] = {TNI_CUDA_FUNCTIONS(SYMBOL)
                                              TNI_CUDA_OLD_UUID(SYMBOL) "cuGetProcAddress_v2",
                                          "fake_make", "fake_end"};
    void *library = dlopen("libfakecuda.so", RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    assert_non_null(library);
    for (unsigned i = 0; i < sizeof symbols / sizeof symbols[0]; i++)
        assert_non_null(dlsym(library, symbols[i]));
    assert_null(dlsym(library, "universe_lock"));
    dlclose(library);
}

static int call_new_version(void *argument)
{
    void *function;
    void (*call)(void);
    (void)argument;
    OK(cuGetProcAddress_v2("cuCtxGetDevice", &function, 13000, 1, NULL));
    memcpy(&call, &function, sizeof call);
    call();
    return 0;
}

TN_TEST(a_function_of_another_version_aborts)
{
    world_begin(NULL);
    int status = tnt_wait(tnt_fork(call_new_version, NULL));
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    world_expect("R0");
    world_end();
}

void cuMemAlloc(void);

static int call_old_function(void *argument)
{
    (void)argument;
    cuMemAlloc();
    return 0;
}

TN_TEST(an_old_function_aborts)
{
    world_begin(NULL);
    int status = tnt_wait(tnt_fork(call_old_function, NULL));
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    world_expect("R0");
    world_end();
}

/* R60 */
TN_TEST(instances_of_a_device_have_uuids_but_no_peers)
{
    CUuuid old, new;
    int can;
    world_begin(&(struct fake_options){.device_count = 2, .mig = true});
    OK(cuInit(0));
    OK(cuDeviceGetUuid(&old, 1));
    OK(cuDeviceGetUuid_v2(&new, 1));
    assert_memory_not_equal(&old, &new, sizeof old);
    OK(cuDeviceCanAccessPeer(&can, 0, 1));
    assert_int_equal(can, 0);
    world_end();
}

static int abort_at_violation(void *argument)
{
    (void)argument;
    setenv("TENON_FAKECUDA_ABORT", "1", 1);
    OK(cuInit(0));
    cuMemRelease(1);
    return 0;
}

TN_TEST(a_violation_aborts_if_it_is_told_to)
{
    world_begin(NULL);
    int status = tnt_wait(tnt_fork(abort_at_violation, NULL));
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    world_expect("R44");
    world_end();
}

static int stay(void *argument)
{
    struct pair *pair = argument;
    OK(cuInit(0));
    tnt_signal(&pair->ready);
    tnt_await(&pair->over);
    return 0;
}

TN_TEST(the_end_complains_of_a_process_that_is_attached)
{
    struct pair pair = {tnt_signal_open(), tnt_signal_open()};
    world_begin(NULL);
    pid_t child = tnt_fork(stay, &pair);
    tnt_await(&pair.ready);
    world_end_with("still attached");
    tnt_signal(&pair.over);
    tnt_wait_ok(child);
    tnt_signal_close(&pair.ready);
    tnt_signal_close(&pair.over);
}
