/* SPDX-License-Identifier: Apache-2.0 */
/* The fake's rules of events: R25 to R35. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fakecuda/world.h"

enum { SHARED = CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING };

static CUevent event;

static void begin(const struct fake_options *options)
{
    world_begin(options);
    world_enter();
}

static void end(void)
{
    world_leave();
    world_end();
}

TN_TEST(an_event_is_done_when_its_stream_has_come_to_it)
{
    CUstream first, second;
    begin(NULL);
    struct chunk chunk = chunk_create(CHUNK);
    OK(cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&event, 0));
    OK(cuEventQuery(event));
    fake_hold(first);
    OK(cuMemsetD8Async(chunk.ptr, 1, 16, first));
    OK(cuEventRecord(event, first));
    IS(CUDA_ERROR_NOT_READY, cuEventQuery(event));
    OK(cuStreamWaitEvent(second, event, 0));
    OK(cuMemcpyDtoDAsync_v2(chunk.ptr + 4096, chunk.ptr, 16, second));
    IS(CUDA_ERROR_NOT_READY, cuStreamQuery(second));
    fake_release(first);
    OK(cuStreamSynchronize(second));
    OK(cuEventSynchronize(event));
    assert_int_equal(byte_at(chunk.ptr + 4096), 1);
    OK(cuEventDestroy_v2(event));
    IS(CUDA_ERROR_INVALID_HANDLE, cuEventQuery(event));
    OK(cuStreamDestroy_v2(first));
    OK(cuStreamDestroy_v2(second));
    chunk_destroy(&chunk);
    end();
}

/* R25 */
TN_TEST(an_event_of_several_processes_has_no_time)
{
    begin(NULL);
    IS(CUDA_ERROR_INVALID_VALUE, cuEventCreate(&event, CU_EVENT_INTERPROCESS));
    IS(CUDA_ERROR_INVALID_VALUE, cuEventCreate(&event, 64));
    OK(cuEventCreate(&event, SHARED));
    OK(cuEventDestroy_v2(event));
    end();
}

/* R26, R27 */
TN_TEST(a_handle_is_of_a_shared_event_for_another_process)
{
    CUipcEventHandle handle;
    CUevent opened;
    begin(NULL);
    OK(cuEventCreate(&event, 0));
    IS(CUDA_ERROR_INVALID_HANDLE, cuIpcGetEventHandle(&handle, event));
    OK(cuEventDestroy_v2(event));
    OK(cuEventCreate(&event, SHARED));
    OK(cuIpcGetEventHandle(&handle, event));
    IS(CUDA_ERROR_INVALID_CONTEXT, cuIpcOpenEventHandle(&opened, handle));
    OK(cuEventDestroy_v2(event));
    end();
}

/* R31 */
TN_TEST(there_are_only_so_many_events_of_several_processes)
{
    CUevent second;
    begin(&(struct fake_options){.max_events = 1});
    OK(cuEventCreate(&event, SHARED));
    IS(CUDA_ERROR_OUT_OF_MEMORY, cuEventCreate(&second, SHARED));
    OK(cuEventDestroy_v2(event));
    OK(cuEventCreate(&second, SHARED));
    OK(cuEventDestroy_v2(second));
    end();
}

/* R33 */
TN_TEST(an_event_that_is_not_destroyed_is_caught)
{
    begin(NULL);
    OK(cuEventCreate(&event, 0));
    world_leave();
    world_expect("R33");
    world_end();
}

/* R34 */
TN_TEST(an_event_is_recorded_only_in_its_context)
{
    CUcontext second;
    CUstream stream;
    begin(NULL);
    OK(cuEventCreate(&event, 0));
    OK(fake_context_create(&second, 0));
    OK(cuCtxPushCurrent_v2(second));
    OK(cuStreamCreate(&stream, 0));
    IS(CUDA_ERROR_INVALID_HANDLE, cuEventRecord(event, stream));
    OK(cuStreamDestroy_v2(stream));
    OK(cuCtxPopCurrent_v2(NULL));
    fake_context_destroy(second);
    OK(cuEventDestroy_v2(event));
    end();
}

/* ---- two processes ----------------------------------------------------------------------- */

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

static void send_event(const struct pair *pair)
{
    CUipcEventHandle handle;
    OK(cuEventCreate(&event, SHARED));
    OK(cuIpcGetEventHandle(&handle, event));
    channel_send(&pair->handles, &handle, sizeof handle);
}

static CUresult receive_event(const struct pair *pair, CUevent *ret_event)
{
    CUipcEventHandle handle;
    channel_receive(&pair->handles, &handle, sizeof handle);
    return cuIpcOpenEventHandle(ret_event, handle);
}

static int wait_before_record(void *argument)
{
    struct pair *pair = argument;
    CUevent opened;
    world_enter();
    OK(receive_event(pair, &opened));
    OK(cuStreamWaitEvent(NULL, opened, 0));
    world_expect("R29");
    OK(cuStreamSynchronize(NULL));
    tnt_signal(&pair->step);
    tnt_await(&pair->over);
    OK(cuStreamWaitEvent(NULL, opened, 0));
    OK(cuStreamSynchronize(NULL));
    OK(cuEventQuery(opened));
    OK(cuEventDestroy_v2(opened));
    world_leave();
    return 0;
}

/* R29 */
TN_TEST(a_wait_before_the_first_record_is_caught)
{
    struct pair pair = pair_open();
    world_begin(NULL);
    pid_t child = tnt_fork(wait_before_record, &pair);
    world_enter();
    send_event(&pair);
    tnt_await(&pair.step);
    OK(cuEventRecord(event, NULL));
    tnt_signal(&pair.over);
    tnt_wait_ok(child);
    OK(cuEventDestroy_v2(event));
    pair_close(&pair);
    end();
}

static int wait_when_told(void *argument)
{
    struct pair *pair = argument;
    CUevent opened;
    world_enter();
    OK(receive_event(pair, &opened));
    tnt_await(&pair->over);
    OK(cuStreamWaitEvent(NULL, opened, 0));
    tnt_signal(&pair->step);
    tnt_await(&pair->over);
    OK(cuEventDestroy_v2(opened));
    world_leave();
    return 0;
}

/* R30 */
TN_TEST(a_second_record_before_an_announced_wait_is_caught)
{
    struct pair pair = pair_open();
    world_begin(NULL);
    pid_t child = tnt_fork(wait_when_told, &pair);
    world_enter();
    send_event(&pair);
    OK(cuEventRecord(event, NULL));
    fake_wait_announced(event);
    OK(cuEventRecord(event, NULL));
    world_expect("R30");
    tnt_signal(&pair.over);
    tnt_await(&pair.step);
    OK(cuEventRecord(event, NULL));
    tnt_signal(&pair.over);
    tnt_wait_ok(child);
    OK(cuEventDestroy_v2(event));
    pair_close(&pair);
    end();
}

static int use_after_destroy(void *argument)
{
    struct pair *pair = argument;
    CUevent opened;
    world_enter();
    OK(receive_event(pair, &opened));
    tnt_signal(&pair->step);
    tnt_await(&pair->over);
    OK(cuEventQuery(opened));
    world_expect("R28");
    OK(cuEventDestroy_v2(opened));
    world_leave();
    return 0;
}

/* R28 */
TN_TEST(an_event_that_its_owner_has_destroyed_is_not_used)
{
    struct pair pair = pair_open();
    world_begin(NULL);
    pid_t child = tnt_fork(use_after_destroy, &pair);
    world_enter();
    send_event(&pair);
    tnt_await(&pair.step);
    OK(cuEventDestroy_v2(event));
    tnt_signal(&pair.over);
    tnt_wait_ok(child);
    pair_close(&pair);
    end();
}

static int open_after_destroy(void *argument)
{
    struct pair *pair = argument;
    CUevent opened;
    tnt_await(&pair->over);
    world_enter();
    CUresult result = receive_event(pair, &opened);
    assert_true(result == CUDA_ERROR_INVALID_VALUE || result == CUDA_ERROR_INVALID_HANDLE);
    world_leave();
    return 0;
}

/* R28 */
TN_TEST(a_handle_of_a_destroyed_event_is_refused)
{
    struct pair pair = pair_open();
    world_begin(NULL);
    pid_t child = tnt_fork(open_after_destroy, &pair);
    world_enter();
    send_event(&pair);
    OK(cuEventDestroy_v2(event));
    tnt_signal(&pair.over);
    tnt_wait_ok(child);
    pair_close(&pair);
    end();
}

static int open_without_shm(void *argument)
{
    CUevent opened;
    world_enter();
    CUresult result = receive_event(argument, &opened);
    assert_true(result == CUDA_ERROR_MAP_FAILED || result == CUDA_ERROR_OPERATING_SYSTEM);
    world_leave();
    return 0;
}

/* R32 */
TN_TEST(an_event_is_not_opened_without_shared_memory)
{
    struct pair pair = pair_open();
    world_begin(&(struct fake_options){.no_shared_shm = true});
    pid_t child = tnt_fork(open_without_shm, &pair);
    world_enter();
    send_event(&pair);
    tnt_wait_ok(child);
    OK(cuEventDestroy_v2(event));
    pair_close(&pair);
    end();
}

static int record_and_die(void *argument)
{
    struct pair *pair = argument;
    CUstream stream;
    world_enter();
    send_event(pair);
    OK(cuStreamCreate(&stream, 0));
    fake_hold(stream);
    OK(cuEventRecord(event, stream));
    tnt_await(&pair->over);
    raise(SIGKILL);
    return 0;
}

/* R35 */
TN_TEST(a_record_of_a_process_that_died_is_never_done)
{
    CUevent opened;
    struct pair pair = pair_open();
    world_begin(NULL);
    pid_t child = tnt_fork(record_and_die, &pair);
    world_enter();
    OK(receive_event(&pair, &opened));
    tnt_signal(&pair.over);
    assert_true(WIFSIGNALED(tnt_wait(child)));
    assert_int_equal(fake_mem_used(0), 0);
    IS(CUDA_ERROR_NOT_READY, cuEventQuery(opened));
    OK(cuEventDestroy_v2(opened));
    pair_close(&pair);
    end();
}

/* R59 */
TN_TEST(a_driver_without_events_refuses_them)
{
    begin(&(struct fake_options){.without = FAKE_NO_EVENTS});
    IS(CUDA_ERROR_NOT_SUPPORTED, cuEventCreate(&event, 0));
    end();
    begin(&(struct fake_options){.without = FAKE_NO_IPC_EVENTS});
    IS(CUDA_ERROR_NOT_SUPPORTED, cuEventCreate(&event, SHARED));
    end();
}
