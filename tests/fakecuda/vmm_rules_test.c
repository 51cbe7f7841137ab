/* SPDX-License-Identifier: Apache-2.0 */
/* The fake's rules of counted memory: R36 to R49. */
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fakecuda/world.h"

/* R36 */
TN_TEST(memory_has_the_size_and_flags_of_the_driver)
{
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp properties = world_properties();
    size_t granularity;
    world_begin(NULL);
    OK(cuInit(0));
    OK(cuMemGetAllocationGranularity(&granularity, &properties, 0));
    assert_int_equal(granularity, CHUNK);
    IS(CUDA_ERROR_INVALID_VALUE, cuMemCreate(&handle, CHUNK / 2, &properties, 0));
    IS(CUDA_ERROR_INVALID_VALUE, cuMemCreate(&handle, 0, &properties, 0));
    IS(CUDA_ERROR_INVALID_VALUE, cuMemCreate(&handle, CHUNK, &properties, 1));
    IS(CUDA_ERROR_INVALID_VALUE, cuMemCreate(NULL, CHUNK, &properties, 0));
    properties.location.id = 1;
    IS(CUDA_ERROR_INVALID_DEVICE, cuMemCreate(&handle, CHUNK, &properties, 0));
    world_end();
}

TN_TEST(memory_ends_at_the_size_of_the_device)
{
    CUmemGenericAllocationHandle first, second;
    CUmemAllocationProp properties = world_properties();
    world_begin(&(struct fake_options){.memory_bytes = 4 * CHUNK});
    OK(cuInit(0));
    OK(cuMemCreate(&first, 3 * CHUNK, &properties, 0));
    IS(CUDA_ERROR_OUT_OF_MEMORY, cuMemCreate(&second, 2 * CHUNK, &properties, 0));
    OK(cuMemRelease(first));
    OK(cuMemCreate(&second, 2 * CHUNK, &properties, 0));
    OK(cuMemRelease(second));
    world_end();
}

/* R36, R37 */
TN_TEST(memory_is_mapped_whole_into_free_reserved_addresses)
{
    CUdeviceptr ptr;
    world_begin(NULL);
    OK(cuInit(0));
    struct chunk chunk = chunk_create(CHUNK);
    OK(cuMemAddressReserve(&ptr, CHUNK, 0, 0, 0));
    IS(CUDA_ERROR_INVALID_VALUE, cuMemMap(chunk.ptr, CHUNK, 0, chunk.handle, 0));
    IS(CUDA_ERROR_INVALID_VALUE, cuMemMap(ptr + CHUNK, CHUNK, 0, chunk.handle, 0));
    IS(CUDA_ERROR_INVALID_VALUE, cuMemMap(ptr, CHUNK, CHUNK, chunk.handle, 0));
    IS(CUDA_ERROR_INVALID_VALUE, cuMemMap(ptr, 2 * CHUNK, 0, chunk.handle, 0));
    IS(CUDA_ERROR_INVALID_VALUE, cuMemMap(ptr, CHUNK, 0, chunk.handle, 1));
    IS(CUDA_ERROR_INVALID_VALUE, cuMemMap(ptr, CHUNK, 0, chunk.handle + 1, 0));
    IS(CUDA_ERROR_INVALID_VALUE, cuMemMap(ptr + 4096, CHUNK, 0, chunk.handle, 0));
    OK(cuMemAddressFree(ptr, CHUNK));
    IS(CUDA_ERROR_INVALID_VALUE, cuMemMap(ptr, CHUNK, 0, chunk.handle, 0));
    chunk_destroy(&chunk);
    world_end();
}

static void make_without_access(struct chunk *chunk)
{
    CUmemAllocationProp properties = world_properties();
    chunk->bytes = CHUNK;
    OK(cuMemCreate(&chunk->handle, CHUNK, &properties, 0));
    OK(cuMemAddressReserve(&chunk->ptr, CHUNK, 0, 0, 0));
    OK(cuMemMap(chunk->ptr, CHUNK, 0, chunk->handle, 0));
}

/* R38 */
TN_TEST(memory_without_access_fails_the_context)
{
    struct chunk chunk;
    world_begin(NULL);
    world_enter();
    make_without_access(&chunk);
    OK(cuMemsetD8Async(chunk.ptr, 1, 16, NULL));
    IS(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamSynchronize(NULL));
    world_end();
}

/* R38 */
TN_TEST(an_access_beyond_a_mapping_fails_the_context)
{
    unsigned char bytes[32];
    world_begin(NULL);
    world_enter();
    struct chunk chunk = chunk_create(CHUNK);
    IS(CUDA_ERROR_ILLEGAL_ADDRESS,
       cuMemcpyDtoHAsync_v2(bytes, chunk.ptr + CHUNK - 16, 32, NULL));
    world_end();
}

static int read_only_writer(void *argument)
{
    unsigned char byte;
    world_enter();
    struct chunk chunk =
        chunk_import(channel_receive_fd(argument), CHUNK, CU_MEM_ACCESS_FLAGS_PROT_READ);
    OK(cuMemcpyDtoHAsync_v2(&byte, chunk.ptr, 1, NULL));
    assert_int_equal(byte, 7);
    OK(cuMemsetD8Async(chunk.ptr, 9, 16, NULL));
    IS(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamSynchronize(NULL));
    return 0;
}

/* R39 */
TN_TEST(a_write_to_a_read_only_mapping_fails_only_the_writer)
{
    struct channel channel = channel_open();
    world_begin(&(struct fake_options){.no_races = true});
    pid_t child = tnt_fork(read_only_writer, &channel);
    world_enter();
    struct chunk chunk = chunk_create(CHUNK);
    OK(cuMemsetD8Async(chunk.ptr, 7, CHUNK, NULL));
    OK(cuStreamSynchronize(NULL));
    int fd = chunk_export(&chunk);
    channel_send_fd(&channel, fd);
    close(fd);
    tnt_wait_ok(child);
    OK(cuStreamSynchronize(NULL));
    assert_int_equal(byte_at(chunk.ptr), 7);
    chunk_destroy(&chunk);
    channel_close(&channel);
    world_leave();
    world_end();
}

/* R40 */
TN_TEST(a_part_of_a_mapping_is_not_unmapped)
{
    world_begin(NULL);
    OK(cuInit(0));
    struct chunk chunk = chunk_create(2 * CHUNK);
    IS(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(chunk.ptr, CHUNK));
    IS(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(chunk.ptr + CHUNK, CHUNK));
    IS(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(chunk.ptr, 4 * CHUNK));
    chunk_destroy(&chunk);
    world_end();
}

/* R41 */
TN_TEST(addresses_are_freed_as_they_were_reserved_and_empty)
{
    world_begin(NULL);
    OK(cuInit(0));
    struct chunk chunk = chunk_create(2 * CHUNK);
    IS(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(chunk.ptr, 2 * CHUNK));
    OK(cuMemUnmap(chunk.ptr, 2 * CHUNK));
    IS(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(chunk.ptr, CHUNK));
    IS(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(chunk.ptr + CHUNK, CHUNK));
    OK(cuMemAddressFree(chunk.ptr, 2 * CHUNK));
    IS(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(chunk.ptr, 2 * CHUNK));
    OK(cuMemRelease(chunk.handle));
    world_end();
}

/* R42 */
TN_TEST(memory_is_exported_only_if_it_was_made_for_that)
{
    int fd;
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp properties = world_properties();
    properties.requestedHandleTypes = 0;
    world_begin(NULL);
    OK(cuInit(0));
    OK(cuMemCreate(&handle, CHUNK, &properties, 0));
    IS(CUDA_ERROR_INVALID_VALUE, cuMemExportToShareableHandle(&fd, handle, 1, 0));
    OK(cuMemRelease(handle));
    world_end();
}

/* R43 */
TN_TEST(each_export_is_a_new_descriptor_that_import_keeps)
{
    CUmemGenericAllocationHandle imported;
    world_begin(NULL);
    OK(cuInit(0));
    struct chunk chunk = chunk_create(CHUNK);
    int first = chunk_export(&chunk), second = chunk_export(&chunk);
    assert_int_not_equal(first, second);
    assert_true(fcntl(first, F_GETFD) & FD_CLOEXEC);
    OK(cuMemImportFromShareableHandle(&imported, (void *)(intptr_t)first, 1));
    OK(cuMemRelease(imported));
    OK(cuMemImportFromShareableHandle(&imported, (void *)(intptr_t)first, 1));
    OK(cuMemRelease(imported));
    close(first);
    IS(CUDA_ERROR_INVALID_VALUE,
       cuMemImportFromShareableHandle(&imported, (void *)(intptr_t)first, 1));
    close(second);
    chunk_destroy(&chunk);
    world_end();
}

/* R43 */
TN_TEST(a_descriptor_of_something_else_is_not_imported)
{
    CUmemGenericAllocationHandle imported;
    world_begin(NULL);
    OK(cuInit(0));
    int fd = eventfd(7, EFD_CLOEXEC);
    IS(CUDA_ERROR_INVALID_VALUE,
       cuMemImportFromShareableHandle(&imported, (void *)(intptr_t)fd, 1));
    close(fd);
    fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    IS(CUDA_ERROR_INVALID_VALUE,
       cuMemImportFromShareableHandle(&imported, (void *)(intptr_t)fd, 1));
    close(fd);
    world_end();
}

/* R44 */
TN_TEST(a_handle_released_too_often_is_caught)
{
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp properties = world_properties();
    world_begin(NULL);
    OK(cuInit(0));
    OK(cuMemCreate(&handle, CHUNK, &properties, 0));
    OK(cuMemRelease(handle));
    IS(CUDA_ERROR_INVALID_VALUE, cuMemRelease(handle));
    world_expect("R44");
    world_end();
}

/* R44 */
TN_TEST(what_a_process_leaves_at_its_end_is_caught)
{
    char report[4096];
    world_begin(NULL);
    OK(cuInit(0));
    chunk_create(CHUNK);
    fake_detach();
    assert_int_equal(fake_violations(report, sizeof report), 3);
    assert_non_null(strstr(report, "a handle of"));
    assert_non_null(strstr(report, "a mapping of"));
    assert_non_null(strstr(report, "a reservation of"));
    fake_forgive();
    world_end();
}

/* R44 */
TN_TEST(a_descriptor_that_stays_open_is_caught)
{
    world_begin(NULL);
    OK(cuInit(0));
    struct chunk chunk = chunk_create(CHUNK);
    int fd = chunk_export(&chunk);
    chunk_destroy(&chunk);
    world_end_with("1 descriptors");
    close(fd);
}

/* R45 */
TN_TEST(memory_is_freed_with_its_last_descriptor)
{
    struct channel channel = channel_open();
    world_begin(NULL);
    OK(cuInit(0));
    struct chunk chunk = chunk_create(CHUNK);
    int fd = chunk_export(&chunk);
    chunk_destroy(&chunk);
    assert_int_equal(fake_mem_used(0), CHUNK);
    channel_send_fd(&channel, fd);
    close(fd);
    assert_int_equal(fake_mem_used(0), CHUNK);
    fd = channel_receive_fd(&channel);
    int copy = dup(fd);
    close(fd);
    assert_int_equal(fake_mem_used(0), CHUNK);
    chunk = chunk_import(copy, CHUNK, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    chunk_destroy(&chunk);
    assert_int_equal(fake_mem_used(0), 0);
    channel_close(&channel);
    world_end();
}

/* R45 */
TN_TEST(memory_stays_while_one_mapping_is_left)
{
    world_begin(NULL);
    OK(cuInit(0));
    struct chunk chunk = chunk_create(CHUNK);
    OK(cuMemRelease(chunk.handle));
    assert_int_equal(fake_mem_used(0), CHUNK);
    assert_int_equal(fake_poke(chunk.ptr, "a", 1), 0);
    assert_int_equal(byte_at(chunk.ptr), 'a');
    OK(cuMemUnmap(chunk.ptr, CHUNK));
    assert_int_equal(fake_mem_used(0), 0);
    OK(cuMemAddressFree(chunk.ptr, CHUNK));
    world_end();
}

static int export_and_die(void *argument)
{
    world_enter();
    struct chunk chunk = chunk_create(CHUNK);
    assert_int_equal(fake_poke(chunk.ptr, "k", 1), 0);
    channel_send_fd(argument, chunk_export(&chunk));
    raise(SIGKILL);
    return 0;
}

/* R45 */
TN_TEST(a_descriptor_keeps_the_memory_of_a_process_that_died)
{
    struct channel channel = channel_open();
    world_begin(NULL);
    int status = tnt_wait(tnt_fork(export_and_die, &channel));
    assert_true(WIFSIGNALED(status));
    assert_int_equal(fake_mem_used(0), CHUNK);
    world_enter();
    struct chunk chunk = chunk_import(channel_receive_fd(&channel), CHUNK, 3);
    assert_int_equal(byte_at(chunk.ptr), 'k');
    chunk_destroy(&chunk);
    channel_close(&channel);
    world_leave();
    world_end();
}

/* R46 */
TN_TEST(an_unmap_with_work_in_flight_is_caught)
{
    CUstream stream;
    world_begin(NULL);
    world_enter();
    struct chunk chunk = chunk_create(CHUNK);
    OK(cuStreamCreate(&stream, 0));
    fake_hold(stream);
    OK(cuMemsetD8Async(chunk.ptr, 1, CHUNK, stream));
    OK(cuMemUnmap(chunk.ptr, CHUNK));
    world_expect("R46");
    fake_release(stream);
    IS(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamSynchronize(stream));
    world_end();
}

static int import_unseen(void *argument)
{
    CUmemGenericAllocationHandle handle;
    int fd = channel_receive_fd(argument);
    setenv("TENON_FAKECUDA_VISIBLE", "1", 1);
    OK(cuInit(0));
    IS(CUDA_ERROR_NOT_SUPPORTED,
       cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fd, 1));
    return 0;
}

/* R48 */
TN_TEST(memory_of_a_device_that_is_not_visible_is_refused)
{
    struct channel channel = channel_open();
    world_begin(&(struct fake_options){.device_count = 2});
    pid_t child = tnt_fork(import_unseen, &channel);
    OK(cuInit(0));
    struct chunk chunk = chunk_create(CHUNK);
    int fd = chunk_export(&chunk);
    channel_send_fd(&channel, fd);
    close(fd);
    tnt_wait_ok(child);
    chunk_destroy(&chunk);
    channel_close(&channel);
    world_end();
}

/* R60 */
TN_TEST(an_instance_has_no_access_to_memory_of_another)
{
    CUmemAccessDesc access = world_access(CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    world_begin(&(struct fake_options){.device_count = 2, .mig = true});
    OK(cuInit(0));
    struct chunk chunk = chunk_create(CHUNK);
    access.location.id = 1;
    IS(CUDA_ERROR_NOT_SUPPORTED, cuMemSetAccess(chunk.ptr, CHUNK, &access, 1));
    chunk_destroy(&chunk);
    world_end();
}

/* R49 */
TN_TEST(a_retained_handle_is_that_of_one_chunk)
{
    CUmemGenericAllocationHandle handles[2], retained;
    CUmemAllocationProp properties = world_properties();
    CUmemAccessDesc access = world_access(CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    CUdeviceptr ptr;
    world_begin(NULL);
    world_enter();
    OK(cuMemAddressReserve(&ptr, 2 * CHUNK, 0, 0, 0));
    for (unsigned i = 0; i < 2; i++) {
        OK(cuMemCreate(&handles[i], CHUNK, &properties, 0));
        OK(cuMemMap(ptr + i * CHUNK, CHUNK, 0, handles[i], 0));
    }
    OK(cuMemSetAccess(ptr, 2 * CHUNK, &access, 1));
    OK(cuMemRetainAllocationHandle(&retained, (void *)(uintptr_t)(ptr + CHUNK + 5)));
    assert_int_equal(retained, handles[1]);
    OK(cuMemRelease(retained));
    OK(cuMemsetD8Async(ptr + CHUNK - 8, 3, 16, NULL));
    OK(cuStreamSynchronize(NULL));
    assert_int_equal(byte_at(ptr + CHUNK), 3);
    OK(cuMemUnmap(ptr, 2 * CHUNK));
    OK(cuMemAddressFree(ptr, 2 * CHUNK));
    OK(cuMemRelease(handles[0]));
    OK(cuMemRelease(handles[1]));
    world_leave();
    world_end();
}

TN_TEST(the_processor_faults_on_a_device_address)
{
    world_begin(NULL);
    OK(cuInit(0));
    struct chunk chunk = chunk_create(CHUNK);
    int fds[2];
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    /* The kernel reads the address as the processor does. */
    assert_int_equal(write(fds[1], (void *)(uintptr_t)chunk.ptr, 1), -1);
    close(fds[0]);
    close(fds[1]);
    chunk_destroy(&chunk);
    world_end();
}

TN_TEST(an_address_that_was_freed_is_used_again_first)
{
    world_begin(NULL);
    OK(cuInit(0));
    struct chunk first = chunk_create(CHUNK);
    chunk_destroy(&first);
    struct chunk second = chunk_create(CHUNK);
    assert_true(first.ptr == second.ptr);
    assert_true(first.handle != second.handle);
    chunk_destroy(&second);
    world_end();
}
