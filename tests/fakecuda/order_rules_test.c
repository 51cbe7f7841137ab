/* SPDX-License-Identifier: Apache-2.0 */
/* The fake's rules of values, of order and of work that is left: R50, R51, R53, R56, R61. */
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fakecuda/world.h"

/* ---- two processes with one chunk and one word ------------------------------------------- */

struct pair {
    struct channel channel;
    struct tnt_signal step;
    struct tnt_signal over;
    _Atomic uint64_t *word;
};

static struct pair pair;
static struct chunk chunk;
static CUdeviceptr word;

static void begin(const struct fake_options *options)
{
    pair = (struct pair){channel_open(), tnt_signal_open(), tnt_signal_open(), NULL};
    pair.word = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(pair.word != MAP_FAILED);
    world_begin(options);
}

static void register_word(void)
{
    OK(cuMemHostRegister_v2(pair.word, 4096, CU_MEMHOSTREGISTER_DEVICEMAP));
    OK(cuMemHostGetDevicePointer_v2(&word, pair.word, 0));
}

static void enter_first(void)
{
    world_enter();
    register_word();
    chunk = chunk_create(CHUNK);
    int fd = chunk_export(&chunk);
    channel_send_fd(&pair.channel, fd);
    close(fd);
}

static void enter_second(void)
{
    world_enter();
    register_word();
    chunk = chunk_import(channel_receive_fd(&pair.channel), CHUNK,
                         CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
}

static int leave(void)
{
    OK(cuStreamSynchronize(NULL));
    OK(cuMemHostUnregister(pair.word));
    chunk_destroy(&chunk);
    world_leave();
    return 0;
}

static void end(void)
{
    munmap(pair.word, 4096);
    channel_close(&pair.channel);
    tnt_signal_close(&pair.step);
    tnt_signal_close(&pair.over);
    world_end();
}

/* ---- values ------------------------------------------------------------------------------ */

/* R50 */
TN_TEST(a_value_has_an_address_that_the_device_can_use)
{
    begin(NULL);
    enter_first();
    close(channel_receive_fd(&pair.channel));
    IS(CUDA_ERROR_INVALID_VALUE, cuStreamWriteValue64_v2(NULL, word + 4, 1, 0));
    IS(CUDA_ERROR_INVALID_VALUE,
       cuStreamWriteValue64_v2(NULL, (CUdeviceptr)(uintptr_t)pair.word, 1, 0));
    IS(CUDA_ERROR_INVALID_VALUE, cuStreamWaitValue64_v2(NULL, word + 4096, 1, 0));
    IS(CUDA_ERROR_NOT_SUPPORTED, cuStreamWaitValue64_v2(NULL, word, 1, 8));
    OK(cuStreamWriteValue64_v2(NULL, chunk.ptr + 64, 9, 0));
    OK(cuStreamWaitValue64_v2(NULL, chunk.ptr + 64, 9, 0));
    leave();
    end();
}

/* R51 */
TN_TEST(a_wait_for_a_value_that_nobody_writes_is_caught)
{
    begin(NULL);
    enter_first();
    close(channel_receive_fd(&pair.channel));
    OK(cuStreamWriteValue64_v2(NULL, word, 4, 0));
    OK(cuStreamWaitValue64_v2(NULL, word, 4, 0));
    OK(cuStreamSynchronize(NULL));
    OK(cuStreamWaitValue64_v2(NULL, word, 5, 0));
    world_expect("R51");
    /* The processor releases the stream that waits. */
    atomic_store(pair.word, 5);
    OK(cuStreamSynchronize(NULL));
    leave();
    end();
}

/* R53 */
TN_TEST(a_captured_stream_takes_no_value)
{
    CUstream stream;
    begin(NULL);
    enter_first();
    close(channel_receive_fd(&pair.channel));
    OK(cuStreamCreate(&stream, 0));
    fake_capture(stream, true);
    IS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamWriteValue64_v2(stream, word, 1, 0));
    IS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamWaitValue64_v2(stream, word, 1, 0));
    assert_int_equal(fake_forgive(), 0);
    IS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuMemsetD8Async(chunk.ptr, 1, 16, stream));
    world_expect("R53");
    fake_capture(stream, false);
    OK(cuStreamDestroy_v2(stream));
    leave();
    end();
}

/* R59 */
TN_TEST(a_driver_without_values_refuses_them)
{
    begin(&(struct fake_options){.without = FAKE_NO_MEM_OPS});
    world_enter();
    IS(CUDA_ERROR_NOT_SUPPORTED, cuStreamWriteValue64_v2(NULL, 4096, 1, 0));
    world_leave();
    end();
}

static int wait_for_value(void *argument)
{
    (void)argument;
    enter_second();
    tnt_await(&pair.over);
    OK(cuStreamWaitValue64_v2(NULL, word, 1, 0));
    OK(cuMemcpyDtoDAsync_v2(chunk.ptr + 4096, chunk.ptr, 16, NULL));
    /* So often that a wait which does not wait would have ended. */
    for (unsigned i = 0; i < 500; i++)
        IS(CUDA_ERROR_NOT_READY, cuStreamQuery(NULL));
    tnt_signal(&pair.step);
    OK(cuStreamSynchronize(NULL));
    assert_int_equal(byte_at(chunk.ptr + 4096), 7);
    return leave();
}

TN_TEST(a_stream_waits_for_the_value_of_another_process)
{
    begin(NULL);
    pid_t child = tnt_fork(wait_for_value, NULL);
    enter_first();
    fake_hold(NULL);
    OK(cuMemsetD8Async(chunk.ptr, 7, 16, NULL));
    OK(cuStreamWriteValue64_v2(NULL, word, 1, 0));
    tnt_signal(&pair.over);
    tnt_await(&pair.step);
    fake_release(NULL);
    tnt_wait_ok(child);
    leave();
    end();
}

/* ---- order ------------------------------------------------------------------------------- */

static int write_unannounced(void *argument)
{
    (void)argument;
    enter_second();
    tnt_await(&pair.over);
    OK(cuMemsetD8Async(chunk.ptr, 2, 16, NULL));
    return leave();
}

/* R56: the processes have agreed, but the fake was not told so. */
TN_TEST(accesses_of_two_processes_without_order_are_caught)
{
    begin(NULL);
    pid_t child = tnt_fork(write_unannounced, NULL);
    enter_first();
    OK(cuMemsetD8Async(chunk.ptr, 1, 16, NULL));
    OK(cuStreamSynchronize(NULL));
    tnt_signal(&pair.over);
    tnt_wait_ok(child);
    world_expect("R56");
    leave();
    end();
}

static int read_announced(void *argument)
{
    (void)argument;
    enter_second();
    tnt_await(&pair.over);
    fake_message_received(1);
    OK(cuMemcpyDtoDAsync_v2(chunk.ptr + 4096, chunk.ptr, 16, NULL));
    OK(cuStreamSynchronize(NULL));
    fake_message_sent(2);
    tnt_signal(&pair.step);
    return leave();
}

/* Write, tell the other process, and write again; `synchronizes` before telling. */
static void write_and_announce(bool synchronizes)
{
    begin(NULL);
    pid_t child = tnt_fork(read_announced, NULL);
    enter_first();
    OK(cuMemsetD8Async(chunk.ptr, 1, 16, NULL));
    if (synchronizes)
        OK(cuStreamSynchronize(NULL));
    fake_message_sent(1);
    if (!synchronizes)
        OK(cuStreamSynchronize(NULL));
    tnt_signal(&pair.over);
    tnt_await(&pair.step);
    fake_message_received(2);
    OK(cuMemsetD8Async(chunk.ptr, 2, 16, NULL));
    OK(cuStreamSynchronize(NULL));
    tnt_wait_ok(child);
    if (!synchronizes)
        world_expect("R56");
    leave();
    end();
}

/* R56 */
TN_TEST(a_message_after_synchronizing_makes_an_order) { write_and_announce(true); }

/* R56 */
TN_TEST(a_message_before_the_work_is_done_makes_no_order) { write_and_announce(false); }

static int read_elsewhere(void *argument)
{
    (void)argument;
    enter_second();
    tnt_await(&pair.over);
    OK(cuMemsetD8Async(chunk.ptr + 512, 2, 512, NULL));
    OK(cuMemcpyDtoDAsync_v2(chunk.ptr + 8192, chunk.ptr + 1024, 512, NULL));
    return leave();
}

/* R56 */
TN_TEST(accesses_of_other_bytes_of_a_page_are_no_race)
{
    begin(NULL);
    pid_t child = tnt_fork(read_elsewhere, NULL);
    enter_first();
    OK(cuMemsetD8Async(chunk.ptr, 1, 512, NULL));
    OK(cuMemcpyDtoDAsync_v2(chunk.ptr + 16384, chunk.ptr + 1024, 512, NULL));
    OK(cuStreamSynchronize(NULL));
    tnt_signal(&pair.over);
    tnt_wait_ok(child);
    leave();
    end();
}

/* What a third process does, and which message it has received before. */
struct turn {
    struct tnt_signal go;
    uint64_t key; /* 0 is none */
    size_t off;
    size_t bytes;
    size_t to; /* where it copies what it reads */
    bool writes;
};

static int take_turn(void *argument)
{
    struct turn *turn = argument;
    enter_second();
    tnt_await(&turn->go);
    if (turn->key)
        fake_message_received(turn->key);
    CUdeviceptr ptr = chunk.ptr + turn->off;
    if (turn->writes)
        OK(cuMemsetD8Async(ptr, 1, turn->bytes, NULL));
    else
        OK(cuMemcpyDtoDAsync_v2(chunk.ptr + turn->to, ptr, turn->bytes, NULL));
    return leave();
}

/*
 * This process writes the bytes to 48 and from 96 of a page, and sends message 1; then the
 * others take their turns.
 */
static void take_turns(struct turn *second, struct turn *third)
{
    begin(NULL);
    second->go = tnt_signal_open();
    third->go = tnt_signal_open();
    pid_t children[] = {tnt_fork(take_turn, second), tnt_fork(take_turn, third)};
    enter_first();
    int fd = chunk_export(&chunk);
    channel_send_fd(&pair.channel, fd);
    close(fd);
    OK(cuMemsetD8Async(chunk.ptr, 1, 48, NULL));
    OK(cuMemsetD8Async(chunk.ptr + 96, 1, 4000, NULL));
    OK(cuStreamSynchronize(NULL));
    fake_message_sent(1);
    tnt_signal(&second->go);
    tnt_wait_ok(children[0]);
    assert_int_equal(fake_forgive(), 0);
    tnt_signal(&third->go);
    tnt_wait_ok(children[1]);
    tnt_signal_close(&second->go);
    tnt_signal_close(&third->go);
}

static void end_turns(void)
{
    leave();
    end();
}

/* R56 */
TN_TEST(a_later_write_of_a_part_does_not_hide_the_rest)
{
    struct turn second = {.key = 1, .off = 64, .bytes = 16, .writes = true};
    struct turn before = {.off = 32, .bytes = 16, .to = 8192};
    struct turn after = {.off = 96, .bytes = 16, .to = 8192};
    take_turns(&second, &before);
    world_expect("R56");
    end_turns();
    take_turns(&second, &after);
    world_expect("R56");
    end_turns();
}

/* R56 */
TN_TEST(a_later_read_does_not_hide_a_write)
{
    struct turn second = {.key = 1, .bytes = 4096, .to = 8192};
    struct turn third = {.bytes = 16, .to = 16384};
    take_turns(&second, &third);
    world_expect("R56");
    end_turns();
}

/* R56 */
TN_TEST(a_message_of_another_key_makes_no_order)
{
    struct turn second = {.key = 1, .off = 8192, .bytes = 16, .to = 16384};
    struct turn third = {.key = 2, .bytes = 16, .to = 32768};
    struct turn same_slot = {.key = 1025, .bytes = 16, .to = 32768};
    take_turns(&second, &third);
    world_expect("R56");
    end_turns();
    take_turns(&second, &same_slot);
    world_expect("R56");
    end_turns();
}

/* R56 */
TN_TEST(two_processes_may_read_without_order)
{
    struct turn second = {.key = 1, .bytes = 4096, .to = CHUNK / 4};
    struct turn third = {.key = 1, .bytes = 4096, .to = CHUNK / 2};
    take_turns(&second, &third);
    end_turns();
}

static int read_after_event(void *argument)
{
    CUipcEventHandle handle;
    CUevent event;
    (void)argument;
    enter_second();
    channel_receive(&pair.channel, &handle, sizeof handle);
    OK(cuIpcOpenEventHandle(&event, handle));
    OK(cuStreamWaitEvent(NULL, event, 0));
    OK(cuMemcpyDtoDAsync_v2(chunk.ptr + 4096, chunk.ptr, 16, NULL));
    OK(cuEventDestroy_v2(event));
    OK(cuStreamSynchronize(NULL));
    tnt_await(&pair.over);
    OK(cuMemcpyDtoDAsync_v2(chunk.ptr + 4096, chunk.ptr, 16, NULL));
    return leave();
}

/* R56: as a cache does that waits for the producer only when it opens the memory. */
TN_TEST(an_event_orders_only_what_follows_its_wait)
{
    CUipcEventHandle handle;
    CUevent event;
    begin(NULL);
    pid_t child = tnt_fork(read_after_event, NULL);
    enter_first();
    OK(cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
    OK(cuMemsetD8Async(chunk.ptr, 1, 16, NULL));
    OK(cuEventRecord(event, NULL));
    OK(cuIpcGetEventHandle(&handle, event));
    channel_send(&pair.channel, &handle, sizeof handle);
    OK(cuStreamSynchronize(NULL));
    OK(cuMemsetD8Async(chunk.ptr + 64, 1, 16, NULL));
    OK(cuStreamSynchronize(NULL));
    assert_int_equal(fake_forgive(), 0);
    OK(cuMemsetD8Async(chunk.ptr, 2, 16, NULL));
    OK(cuStreamSynchronize(NULL));
    tnt_signal(&pair.over);
    tnt_wait_ok(child);
    world_expect("R56");
    OK(cuEventDestroy_v2(event));
    leave();
    end();
}

/* R56: what one stream of a process does hides nothing of another. */
TN_TEST(an_event_of_one_stream_does_not_order_another)
{
    CUipcEventHandle handle;
    CUevent event;
    CUstream streams[2];
    begin(NULL);
    pid_t child = tnt_fork(read_after_event, NULL);
    enter_first();
    OK(cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
    OK(cuIpcGetEventHandle(&handle, event));
    for (unsigned i = 0; i < 2; i++) {
        OK(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
        fake_hold(streams[i]);
        OK(cuMemsetD8Async(chunk.ptr, 1, 16, streams[i]));
    }
    OK(cuEventRecord(event, streams[1]));
    fake_step(streams[0]);
    fake_release(streams[1]);
    OK(cuEventSynchronize(event));
    channel_send(&pair.channel, &handle, sizeof handle);
    tnt_signal(&pair.over);
    tnt_wait_ok(child);
    world_expect("R56");
    for (unsigned i = 0; i < 2; i++) {
        fake_release(streams[i]);
        OK(cuStreamDestroy_v2(streams[i]));
    }
    OK(cuEventDestroy_v2(event));
    leave();
    end();
}

static int set_by_processor(void *argument)
{
    (void)argument;
    enter_second();
    OK(cuMemsetD8Async(chunk.ptr, 1, 16, NULL));
    OK(cuStreamSynchronize(NULL));
    atomic_store(pair.word, 1);
    fake_value_set(pair.word);
    tnt_signal(&pair.step);
    return leave();
}

/* R56 */
TN_TEST(a_value_of_the_processor_makes_an_order_if_it_is_said)
{
    begin(NULL);
    pid_t child = tnt_fork(set_by_processor, NULL);
    enter_first();
    tnt_await(&pair.step);
    OK(cuStreamWaitValue64_v2(NULL, word, 1, 0));
    OK(cuMemsetD8Async(chunk.ptr, 2, 16, NULL));
    OK(cuStreamSynchronize(NULL));
    tnt_wait_ok(child);
    leave();
    end();
}

static int set_by_stream(void *argument)
{
    (void)argument;
    enter_second();
    OK(cuMemsetD8Async(chunk.ptr, 1, 16, NULL));
    OK(cuStreamWriteValue64_v2(NULL, word, 1, 0));
    OK(cuStreamSynchronize(NULL));
    tnt_signal(&pair.step);
    return leave();
}

/* R56 */
TN_TEST(a_value_that_the_processor_reads_makes_an_order)
{
    begin(NULL);
    pid_t child = tnt_fork(set_by_stream, NULL);
    enter_first();
    tnt_await(&pair.step);
    assert_int_equal(atomic_load(pair.word), 1);
    fake_value_seen(pair.word);
    OK(cuMemsetD8Async(chunk.ptr, 2, 16, NULL));
    OK(cuStreamSynchronize(NULL));
    tnt_wait_ok(child);
    leave();
    end();
}

/* R56 */
TN_TEST(accesses_are_not_compared_if_the_options_say_so)
{
    begin(&(struct fake_options){.no_races = true});
    pid_t child = tnt_fork(write_unannounced, NULL);
    enter_first();
    OK(cuMemsetD8Async(chunk.ptr, 1, 16, NULL));
    OK(cuStreamSynchronize(NULL));
    tnt_signal(&pair.over);
    tnt_wait_ok(child);
    leave();
    end();
}

/* ---- work that is left ------------------------------------------------------------------- */

static int die_with_work(void *argument)
{
    CUstream stream;
    (void)argument;
    enter_second();
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    fake_hold(stream);
    OK(fake_kernel_fill(stream, chunk.ptr, 16, 9));
    OK(fake_kernel_copy(stream, chunk.ptr + 4096, chunk.ptr, 16));
    const CUDA_MEMCPY2D rows = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                                .srcDevice = chunk.ptr,
                                .srcPitch = 4,
                                .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                                .dstDevice = chunk.ptr + 8192,
                                .dstPitch = 100,
                                .WidthInBytes = 4,
                                .Height = 4};
    OK(cuMemcpy2DAsync_v2(&rows, stream));
    raise(SIGKILL);
    return 0;
}

static void kill_writer(const struct fake_options *options)
{
    begin(options);
    pid_t child = tnt_fork(die_with_work, NULL);
    enter_first();
    assert_true(WIFSIGNALED(tnt_wait(child)));
}

/* R61 */
TN_TEST(work_of_a_dead_process_is_done_by_the_next_synchronize)
{
    kill_writer(NULL);
    assert_int_not_equal(byte_at(chunk.ptr), 9);
    OK(cuStreamSynchronize(NULL));
    assert_int_equal(byte_at(chunk.ptr), 9);
    assert_int_equal(byte_at(chunk.ptr + 4096), 9);
    assert_int_equal(byte_at(chunk.ptr + 8192 + 303), 9);
    assert_int_not_equal(byte_at(chunk.ptr + 8192 + 304), 9);
    OK(cuMemsetD8Async(chunk.ptr, 1, 16, NULL));
    OK(cuStreamSynchronize(NULL));
    assert_int_equal(byte_at(chunk.ptr), 1);
    leave();
    end();
}

/* R61 */
TN_TEST(a_query_that_says_done_also_ends_the_work_of_the_dead)
{
    kill_writer(NULL);
    OK(cuStreamQuery(NULL));
    assert_int_equal(byte_at(chunk.ptr), 9);
    leave();
    end();
}

/* R61 */
TN_TEST(memory_used_before_the_work_of_the_dead_ends_is_caught)
{
    kill_writer(NULL);
    OK(cuMemsetD8Async(chunk.ptr, 1, 16, NULL));
    OK(cuStreamSynchronize(NULL));
    world_expect("R56");
    assert_int_equal(byte_at(chunk.ptr), 9);
    leave();
    end();
}

/* R61 */
TN_TEST(memory_freed_before_the_work_of_the_dead_ends_is_caught)
{
    kill_writer(NULL);
    fake_hold(NULL);
    OK(cuMemsetD8Async(chunk.ptr, 1, 16, NULL));
    fake_step(NULL);
    assert_int_equal(fake_forgive(), 0);
    chunk_destroy(&chunk);
    assert_int_equal(fake_mem_used(0), 0);
    world_expect("R56");
    OK(cuMemHostUnregister(pair.word));
    world_leave();
    end();
}

static int die_behind_waits(void *argument)
{
    CUstream streams[2];
    (void)argument;
    enter_second();
    tnt_await(&pair.over);
    OK(cuStreamCreate(&streams[0], CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&streams[1], CU_STREAM_NON_BLOCKING));
    fake_hold(streams[0]);
    OK(cuStreamWaitValue64_v2(streams[1], word, 2, 0));
    world_expect("R51");
    OK(cuStreamWaitValue64_v2(streams[0], word, 1, 0));
    OK(fake_kernel_fill(streams[0], chunk.ptr, 16, 9));
    OK(fake_kernel_fill(streams[1], chunk.ptr + 4096, 16, 9));
    raise(SIGKILL);
    return 0;
}

/* R61: what waits for a value that is written is done after that; other work never is. */
TN_TEST(work_of_the_dead_still_waits_for_values)
{
    begin(NULL);
    pid_t child = tnt_fork(die_behind_waits, NULL);
    enter_first();
    OK(cuMemsetD8Async(chunk.ptr, 1, 16, NULL));
    OK(cuStreamWriteValue64_v2(NULL, word, 1, 0));
    OK(cuStreamSynchronize(NULL));
    tnt_signal(&pair.over);
    assert_true(WIFSIGNALED(tnt_wait(child)));
    OK(cuStreamSynchronize(NULL));
    assert_int_equal(byte_at(chunk.ptr), 9);
    assert_int_not_equal(byte_at(chunk.ptr + 4096), 9);
    leave();
    end();
}

static int die_behind_event(void *argument)
{
    CUipcEventHandle handle;
    CUstream stream;
    CUevent event;
    (void)argument;
    enter_second();
    channel_receive(&pair.channel, &handle, sizeof handle);
    OK(cuIpcOpenEventHandle(&event, handle));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    fake_hold(stream);
    OK(cuStreamWaitEvent(stream, event, 0));
    OK(fake_kernel_fill(stream, chunk.ptr, 16, 9));
    raise(SIGKILL);
    return 0;
}

/* The event that the dead process' work waits for is done, or it never is. */
static void kill_behind_event(bool is_done)
{
    CUipcEventHandle handle;
    CUstream stream;
    CUevent event;
    begin(NULL);
    pid_t child = tnt_fork(die_behind_event, NULL);
    enter_first();
    OK(cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    if (!is_done)
        fake_hold(stream);
    OK(cuMemsetD8Async(chunk.ptr, 1, 16, stream));
    OK(cuEventRecord(event, stream));
    OK(cuIpcGetEventHandle(&handle, event));
    channel_send(&pair.channel, &handle, sizeof handle);
    if (is_done)
        OK(cuStreamSynchronize(stream));
    assert_true(WIFSIGNALED(tnt_wait(child)));
    OK(cuStreamSynchronize(NULL));
    fake_release(stream);
    OK(cuStreamSynchronize(stream));
    assert_int_equal(byte_at(chunk.ptr), is_done ? 9 : 1);
    OK(cuEventDestroy_v2(event));
    OK(cuStreamDestroy_v2(stream));
    leave();
    end();
}

/* R61 */
TN_TEST(work_of_the_dead_is_done_after_its_event) { kill_behind_event(true); }

/* R61 */
TN_TEST(work_of_the_dead_behind_an_event_that_is_not_done_is_lost) { kill_behind_event(false); }

/* R61 */
TN_TEST(in_other_worlds_the_work_of_the_dead_is_lost)
{
    kill_writer(&(struct fake_options){.world = FAKE_FAULT});
    OK(cuStreamSynchronize(NULL));
    assert_int_not_equal(byte_at(chunk.ptr), 9);
    leave();
    end();
}

static int die_after_work(void *argument)
{
    (void)argument;
    enter_second();
    OK(cuMemsetD8Async(chunk.ptr, 1, 16, NULL));
    OK(cuStreamSynchronize(NULL));
    raise(SIGKILL);
    return 0;
}

/* R56: without a round trip, nothing orders the work of a dead process. */
TN_TEST(a_synchronize_after_a_death_orders_the_dead_ones_work)
{
    begin(NULL);
    pid_t child = tnt_fork(die_after_work, NULL);
    enter_first();
    assert_true(WIFSIGNALED(tnt_wait(child)));
    OK(cuStreamSynchronize(NULL));
    OK(cuMemsetD8Async(chunk.ptr, 2, 16, NULL));
    leave();
    end();
}
