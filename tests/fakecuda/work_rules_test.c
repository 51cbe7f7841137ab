/* SPDX-License-Identifier: Apache-2.0 */
/* The fake's rules of streams, copies and registered memory: R52, R54, R55, R63. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "fakecuda/world.h"

static CUstream stream;
static struct chunk chunk;

static void begin(void)
{
    world_begin(NULL);
    world_enter();
    chunk = chunk_create(CHUNK);
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
}

static void end(void)
{
    OK(cuStreamSynchronize(stream));
    OK(cuStreamDestroy_v2(stream));
    chunk_destroy(&chunk);
    world_leave();
    world_end();
}

static char *map_page(void)
{
    char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(page != MAP_FAILED);
    return page;
}

TN_TEST(work_of_a_stream_is_done_in_order)
{
    unsigned char bytes[64];
    begin();
    for (unsigned char i = 1; i <= 50; i++)
        OK(cuMemsetD8Async(chunk.ptr, i, 64, stream));
    OK(cuMemcpyDtoDAsync_v2(chunk.ptr + 4096, chunk.ptr, 64, stream));
    OK(cuMemcpyDtoHAsync_v2(bytes, chunk.ptr + 4096, 64, stream));
    for (unsigned i = 0; i < 64; i++)
        assert_int_equal(bytes[i], 50);
    end();
}

TN_TEST(a_held_stream_does_one_operation_a_step)
{
    begin();
    fake_hold(stream);
    OK(fake_kernel_fill(stream, chunk.ptr, 16, 1));
    OK(fake_kernel_fill(stream, chunk.ptr, 16, 2));
    IS(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
    fake_step(stream);
    assert_int_equal(byte_at(chunk.ptr), 1);
    IS(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
    fake_step(stream);
    assert_int_equal(byte_at(chunk.ptr), 2);
    OK(cuStreamQuery(stream));
    fake_release(stream);
    end();
}

/* R55 */
TN_TEST(a_copy_on_the_device_returns_before_it_is_done)
{
    begin();
    OK(cuMemsetD8Async(chunk.ptr, 5, 16, stream));
    OK(cuStreamSynchronize(stream));
    fake_hold(stream);
    OK(cuMemcpyDtoDAsync_v2(chunk.ptr + 4096, chunk.ptr, 16, stream));
    assert_int_not_equal(byte_at(chunk.ptr + 4096), 5);
    fake_release(stream);
    OK(cuStreamSynchronize(stream));
    assert_int_equal(byte_at(chunk.ptr + 4096), 5);
    end();
}

/* R63 */
TN_TEST(a_copy_to_memory_that_overlaps_is_a_violation)
{
    begin();
    OK(cuMemcpyDtoDAsync_v2(chunk.ptr + 16, chunk.ptr, 16, stream));
    OK(cuMemcpyDtoDAsync_v2(chunk.ptr, chunk.ptr + 15, 16, stream));
    world_expect("R63");
    end();
}

/* Three rows of four bytes within the chunk, from every tenth byte to every sixth one. */
static CUDA_MEMCPY2D three_rows(void)
{
    return (CUDA_MEMCPY2D){.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                           .srcDevice = chunk.ptr,
                           .srcPitch = 10,
                           .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                           .dstDevice = chunk.ptr + 4096,
                           .dstPitch = 6,
                           .WidthInBytes = 4,
                           .Height = 3};
}

TN_TEST(a_copy_of_rows_copies_nothing_between_them)
{
    static const unsigned char wanted[18] = {0,  1,  2,  3,  99, 99, 10, 11, 12,
                                             13, 99, 99, 20, 21, 22, 23, 99, 99};
    unsigned char bytes[30], copied[18] = {0}, back[3][4] = {{0}}, from[3][5];
    begin();
    for (unsigned i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)i;
    OK(cuMemcpyHtoDAsync_v2(chunk.ptr, bytes, sizeof bytes, stream));
    OK(cuMemsetD8Async(chunk.ptr + 4096, 99, 18, stream));
    CUDA_MEMCPY2D rows = three_rows();
    OK(cuMemcpy2DAsync_v2(&rows, stream));
    OK(cuMemcpyDtoHAsync_v2(copied, chunk.ptr + 4096, 18, stream));
    assert_memory_equal(copied, wanted, 18);
    rows.dstMemoryType = CU_MEMORYTYPE_HOST;
    rows.dstHost = back;
    rows.dstPitch = 4;
    rows.srcXInBytes = 2; /* from the third byte of the second row on */
    rows.srcY = 1;
    rows.Height = 2;
    OK(cuMemcpy2DAsync_v2(&rows, stream));
    assert_int_equal(back[0][0], 12);
    assert_int_equal(back[1][3], 25);
    memset(from, 7, sizeof from);
    rows = three_rows();
    rows.srcMemoryType = CU_MEMORYTYPE_HOST;
    rows.srcHost = from;
    rows.srcPitch = 5;
    fake_hold(stream);
    OK(cuMemcpy2DAsync_v2(&rows, stream));
    memset(from, 8, sizeof from); /* pageable: it was read already */
    fake_release(stream);
    OK(cuMemcpyDtoHAsync_v2(copied, chunk.ptr + 4096, 18, stream));
    assert_true(copied[3] == 7 && copied[4] == 99 && copied[6] == 7 && copied[17] == 99);
    end();
}

/* R63 */
TN_TEST(a_pitch_that_is_too_short_or_too_long_is_refused)
{
    begin();
    for (int i = 0; i < 5; i++) {
        CUDA_MEMCPY2D rows = three_rows();
        size_t *wrong[] = {&rows.srcPitch, &rows.dstPitch, &rows.srcPitch, &rows.dstPitch,
                           &rows.srcXInBytes};
        *wrong[i] = i < 2 ? 3 : i < 4 ? (size_t)INT32_MAX + 1 : 7;
        IS(CUDA_ERROR_INVALID_VALUE, cuMemcpy2DAsync_v2(&rows, stream));
    }
    CUDA_MEMCPY2D rows = three_rows();
    rows.dstMemoryType = 3; /* an array */
    IS(CUDA_ERROR_INVALID_VALUE, cuMemcpy2DAsync_v2(&rows, stream));
    end();
}

/* R61: between the first byte and the last one. R54 */
TN_TEST(rows_overlap_what_lies_between_them)
{
    begin();
    CUDA_MEMCPY2D rows = three_rows();
    rows.dstDevice = chunk.ptr + 4;
    rows.dstPitch = 10;
    OK(cuMemcpy2DAsync_v2(&rows, stream));
    world_expect("R61");
    rows.dstDevice = chunk.ptr + CHUNK;
    IS(CUDA_ERROR_INVALID_VALUE, cuMemcpy2DAsync_v2(&rows, stream));
    end();
}

/* R54 */
TN_TEST(rows_that_reach_too_far_fail_the_context)
{
    begin();
    CUDA_MEMCPY2D rows = three_rows();
    rows.dstDevice = chunk.ptr + CHUNK - 8;
    OK(cuMemcpy2DAsync_v2(&rows, stream));
    IS(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamSynchronize(stream));
    world_end();
}

/* R63 */
TN_TEST(a_strict_driver_refuses_pitches_within_a_device)
{
    char byte[12] = {0};
    world_begin(&(struct fake_options){.strict_pitch = true});
    world_enter();
    chunk = chunk_create(CHUNK);
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CUDA_MEMCPY2D rows = three_rows();
    IS(CUDA_ERROR_INVALID_VALUE, cuMemcpy2DAsync_v2(&rows, stream));
    rows.srcPitch = rows.dstPitch = 512;
    OK(cuMemcpy2DAsync_v2(&rows, stream));
    rows.srcPitch = 10;
    rows.dstMemoryType = CU_MEMORYTYPE_HOST;
    rows.dstHost = byte;
    rows.dstPitch = 4;
    OK(cuMemcpy2DAsync_v2(&rows, stream));
    end();
}

/* R54 */
TN_TEST(a_copy_from_nowhere_is_refused_at_once)
{
    char byte = 0;
    begin();
    IS(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoDAsync_v2(chunk.ptr + CHUNK, &byte, 1, stream));
    IS(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoHAsync_v2(&byte, 4096, 1, stream));
    IS(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoDAsync_v2(chunk.ptr, 4096, 1, stream));
    IS(CUDA_ERROR_INVALID_HANDLE, cuMemsetD8Async(chunk.ptr, 0, 1, (CUstream)(void *)&chunk));
    end();
}

/* R54 */
TN_TEST(a_copy_that_is_too_long_fails_the_context)
{
    begin();
    OK(cuMemcpyDtoDAsync_v2(chunk.ptr + CHUNK - 16, chunk.ptr, 32, stream));
    IS(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamSynchronize(stream));
    world_end();
}

TN_TEST(pageable_memory_is_copied_when_the_call_returns)
{
    char byte = 'a';
    begin();
    fake_hold(stream);
    OK(cuMemcpyHtoDAsync_v2(chunk.ptr, &byte, 1, stream));
    byte = 'b';
    fake_release(stream);
    OK(cuMemcpyDtoHAsync_v2(&byte, chunk.ptr, 1, stream));
    assert_int_equal(byte, 'a');
    end();
}

TN_TEST(rows_of_registered_memory_are_used_by_the_stream)
{
    begin();
    char *page = map_page();
    OK(cuMemHostRegister_v2(page, 4096, 0));
    CUDA_MEMCPY2D rows = three_rows();
    rows.srcMemoryType = CU_MEMORYTYPE_HOST;
    rows.srcHost = page;
    fake_hold(stream);
    OK(cuMemcpy2DAsync_v2(&rows, stream));
    page[23] = 'b'; /* the last byte of the last row */
    OK(cuMemHostUnregister(page));
    world_expect("R52");
    OK(cuMemHostRegister_v2(page, 4096, 0));
    fake_release(stream);
    OK(cuStreamSynchronize(stream));
    assert_int_equal(byte_at(chunk.ptr + 4096 + 15), 'b');
    OK(cuMemHostUnregister(page));
    munmap(page, 4096);
    end();
}

TN_TEST(registered_memory_is_copied_when_the_stream_comes_to_it)
{
    begin();
    char *page = map_page();
    OK(cuMemHostRegister_v2(page, 4096, 0));
    fake_hold(stream);
    OK(cuMemcpyHtoDAsync_v2(chunk.ptr, page, 1, stream));
    OK(cuMemcpyDtoHAsync_v2(page + 1, chunk.ptr, 1, stream));
    page[0] = 'b';
    fake_release(stream);
    OK(cuStreamSynchronize(stream));
    assert_int_equal(page[1], 'b');
    OK(cuMemHostUnregister(page));
    munmap(page, 4096);
    end();
}

/* R52 */
TN_TEST(memory_of_the_host_is_registered_once)
{
    CUdeviceptr ptr;
    begin();
    char *page = map_page();
    IS(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cuMemHostUnregister(page));
    OK(cuMemHostRegister_v2(page, 4096, CU_MEMHOSTREGISTER_DEVICEMAP));
    IS(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, cuMemHostRegister_v2(page, 4096, 0));
    IS(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, cuMemHostRegister_v2(page + 64, 64, 0));
    OK(cuMemHostGetDevicePointer_v2(&ptr, page + 8, 0));
    OK(cuMemsetD8Async(ptr, 6, 1, stream));
    OK(cuStreamSynchronize(stream));
    assert_int_equal(page[8], 6);
    OK(cuMemHostUnregister(page));
    IS(CUDA_ERROR_INVALID_VALUE, cuMemHostGetDevicePointer_v2(&ptr, page, 0));
    munmap(page, 4096);
    end();
}

/* R52 */
TN_TEST(memory_that_is_not_there_or_not_writable_is_refused)
{
    begin();
    char *page = map_page();
    mprotect(page, 4096, PROT_READ);
    IS(CUDA_ERROR_INVALID_VALUE, cuMemHostRegister_v2(page, 4096, 0));
    OK(cuMemHostRegister_v2(page, 4096, CU_MEMHOSTREGISTER_READ_ONLY));
    OK(cuMemHostUnregister(page));
    munmap(page, 4096);
    IS(CUDA_ERROR_INVALID_VALUE, cuMemHostRegister_v2(page, 4096, 0));
    IS(CUDA_ERROR_INVALID_VALUE, cuMemHostRegister_v2(NULL, 4096, 0));
    end();
}

/* R52 */
TN_TEST(memory_that_stays_registered_is_caught)
{
    world_begin(NULL);
    world_enter();
    char *page = map_page();
    OK(cuMemHostRegister_v2(page, 4096, 0));
    world_leave();
    world_expect("R52");
    world_end();
}

/* R52 */
TN_TEST(an_unregistering_with_work_in_flight_is_caught)
{
    begin();
    char *page = map_page();
    OK(cuMemHostRegister_v2(page, 4096, 0));
    fake_hold(stream);
    OK(cuMemcpyHtoDAsync_v2(chunk.ptr, page, 1, stream));
    OK(cuMemHostUnregister(page));
    world_expect("R52");
    fake_release(stream);
    end();
}

TN_TEST(the_default_stream_waits_for_those_that_block)
{
    CUstream blocking;
    begin();
    OK(cuStreamCreate(&blocking, 0));
    fake_hold(blocking);
    fake_hold(stream);
    OK(cuMemsetD8Async(chunk.ptr, 1, 16, stream));
    OK(cuMemsetD8Async(chunk.ptr, 2, 16, blocking));
    OK(cuMemsetD8Async(chunk.ptr + 4096, 3, 16, NULL));
    IS(CUDA_ERROR_NOT_READY, cuStreamQuery(NULL));
    fake_release(blocking);
    OK(cuStreamSynchronize(NULL));
    assert_int_equal(byte_at(chunk.ptr), 2);
    fake_release(stream);
    OK(cuStreamDestroy_v2(blocking));
    end();
}

TN_TEST(a_stream_knows_its_context_and_its_capture)
{
    CUcontext context, current;
    CUstreamCaptureStatus status;
    begin();
    OK(cuStreamGetCtx(stream, &context));
    OK(cuCtxGetCurrent(&current));
    assert_ptr_equal(context, current);
    OK(cuStreamIsCapturing(stream, &status));
    assert_int_equal(status, CU_STREAM_CAPTURE_STATUS_NONE);
    fake_capture(stream, true);
    OK(cuStreamIsCapturing(stream, &status));
    assert_int_not_equal(status, CU_STREAM_CAPTURE_STATUS_NONE);
    IS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamSynchronize(stream));
    fake_capture(stream, false);
    end();
}

TN_TEST(a_destroyed_stream_is_refused_but_does_its_work)
{
    CUstream blocking;
    begin();
    OK(cuStreamCreate(&blocking, 0));
    fake_hold(blocking);
    OK(cuMemsetD8Async(chunk.ptr, 4, 16, blocking));
    OK(cuStreamDestroy_v2(blocking));
    IS(CUDA_ERROR_INVALID_HANDLE, cuStreamSynchronize(blocking));
    OK(cuMemsetD8Async(chunk.ptr + 4096, 5, 16, NULL));
    OK(cuStreamSynchronize(NULL));
    assert_int_equal(byte_at(chunk.ptr), 4);
    end();
}

TN_TEST(random_delays_keep_the_order_of_a_stream)
{
    world_begin(&(struct fake_options){.delays = true, .seed = tnt_random()});
    world_enter();
    chunk = chunk_create(CHUNK);
    OK(cuStreamCreate(&stream, 0));
    for (unsigned char i = 1; i <= 30; i++)
        OK(cuMemsetD8Async(chunk.ptr, i, 16, stream));
    OK(cuStreamSynchronize(stream));
    assert_int_equal(byte_at(chunk.ptr), 30);
    end();
}

static int send_handle(void *channel)
{
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp properties = world_properties();
    OK(cuInit(0));
    OK(cuMemCreate(&handle, CHUNK, &properties, 0));
    channel_send(channel, &handle, sizeof handle);
    OK(cuMemRelease(handle));
    fake_detach();
    return 0;
}

/* What is random, such as the number of a handle, is the same if the seed is. */
static CUmemGenericAllocationHandle handle_of_seed(uint64_t seed)
{
    world_begin(&(struct fake_options){.seed = seed});
    struct channel channel = channel_open();
    tnt_wait_ok(tnt_fork(send_handle, &channel));
    CUmemGenericAllocationHandle handle;
    channel_receive(&channel, &handle, sizeof handle);
    channel_close(&channel);
    world_end();
    return handle;
}

TN_TEST(a_seed_decides_what_is_random)
{
    CUmemGenericAllocationHandle first = handle_of_seed(17);
    assert_true(handle_of_seed(17) == first);
    assert_true(handle_of_seed(18) != first);
}

/* The delays are random, but so many of them take some time together. */
TN_TEST(an_operation_may_begin_later_than_it_could)
{
    enum { COUNT = 200, LEAST_NS = 2000000 };
    struct timespec before, after;
    world_begin(&(struct fake_options){.delays = true, .seed = tnt_random()});
    world_enter();
    chunk = chunk_create(CHUNK);
    OK(cuStreamCreate(&stream, 0));
    fake_hold(stream);
    for (int i = 0; i < COUNT; i++)
        OK(cuMemsetD8Async(chunk.ptr, 1, 16, stream));
    clock_gettime(CLOCK_MONOTONIC, &before);
    fake_release(stream);
    OK(cuStreamSynchronize(stream));
    clock_gettime(CLOCK_MONOTONIC, &after);
    long ns = (after.tv_sec - before.tv_sec) * 1000000000 + after.tv_nsec - before.tv_nsec;
    assert_true(ns >= LEAST_NS);
    end();
}
