/* SPDX-License-Identifier: Apache-2.0 */
/* Arguments that the driver refuses, and old drivers: R3, R8, R36, R59, R60. */
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "fakecuda/world.h"

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

TN_TEST(a_device_that_is_not_there_is_refused)
{
    CUcontext context;
    CUdevice device;
    CUuuid uuid;
    char name[32];
    int number;
    size_t bytes;
    begin(NULL);
    IS(CUDA_ERROR_INVALID_DEVICE, cuDeviceGet(&device, 1));
    IS(CUDA_ERROR_INVALID_DEVICE, cuDeviceGet(&device, -1));
    IS(CUDA_ERROR_INVALID_DEVICE, cuDevicePrimaryCtxRetain(&context, 1));
    IS(CUDA_ERROR_INVALID_DEVICE, cuDevicePrimaryCtxRelease_v2(1));
    IS(CUDA_ERROR_INVALID_DEVICE, cuDeviceGetAttribute(&number, 41, 1));
    IS(CUDA_ERROR_INVALID_DEVICE, cuDeviceGetName(name, sizeof name, 1));
    IS(CUDA_ERROR_INVALID_DEVICE, cuDeviceTotalMem_v2(&bytes, 1));
    IS(CUDA_ERROR_INVALID_DEVICE, cuDeviceGetUuid_v2(&uuid, 1));
    IS(CUDA_ERROR_INVALID_DEVICE, cuDeviceCanAccessPeer(&number, 0, 1));
    end();
}

TN_TEST(a_device_says_its_name_size_and_attributes)
{
    char name[32], small[3];
    int number;
    size_t bytes, total;
    begin(NULL);
    OK(cuDeviceGetName(name, sizeof name, 0));
    assert_string_equal(name, "Fake device 0");
    OK(cuDeviceGetName(small, sizeof small, 0));
    assert_string_equal(small, "Fa");
    OK(cuDeviceTotalMem_v2(&bytes, 0));
    assert_int_equal(bytes, 1 << 30);
    OK(cuMemGetInfo_v2(&bytes, &total));
    assert_true(bytes == total && total == 1 << 30);
    OK(cuDeviceGetAttribute(&number, CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 0));
    assert_int_equal(number, 1);
    OK(cuDeviceGetAttribute(&number, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, 0));
    assert_int_equal(number, 0);
    IS(CUDA_ERROR_INVALID_VALUE, cuDeviceGetAttribute(&number, 99999, 0));
    OK(cuDriverGetVersion(&number));
    assert_int_equal(number, 13000);
    end();
}

/* R8 */
TN_TEST(more_results_without_a_place_are_refused)
{
    begin(NULL);
    CUpointer_attribute which = CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
    void *data = NULL;
    IS(CUDA_ERROR_INVALID_VALUE, cuInit(1));
    IS(CUDA_ERROR_INVALID_VALUE, cuGetErrorName(0, NULL));
    IS(CUDA_ERROR_INVALID_VALUE, cuDeviceGetAttribute(NULL, 41, 0));
    IS(CUDA_ERROR_INVALID_VALUE, cuDeviceGetName(NULL, 8, 0));
    IS(CUDA_ERROR_INVALID_VALUE, cuDeviceTotalMem_v2(NULL, 0));
    IS(CUDA_ERROR_INVALID_VALUE, cuDeviceGetUuid_v2(NULL, 0));
    IS(CUDA_ERROR_INVALID_VALUE, cuDeviceCanAccessPeer(NULL, 0, 0));
    IS(CUDA_ERROR_INVALID_VALUE, cuCtxGetDevice(NULL));
    IS(CUDA_ERROR_INVALID_VALUE, cuStreamIsCapturing(NULL, NULL));
    IS(CUDA_ERROR_INVALID_VALUE, cuStreamGetCtx(NULL, NULL));
    IS(CUDA_ERROR_INVALID_VALUE, cuMemHostGetDevicePointer_v2(NULL, &data, 0));
    IS(CUDA_ERROR_INVALID_VALUE, cuMemAlloc_v2(NULL, 16));
    IS(CUDA_ERROR_INVALID_VALUE, cuEventCreate(NULL, 0));
    IS(CUDA_ERROR_INVALID_VALUE, cuIpcGetEventHandle(NULL, NULL));
    IS(CUDA_ERROR_INVALID_VALUE, cuPointerGetAttributes(1, &which, &data, 4096));
    IS(CUDA_ERROR_INVALID_VALUE, cuPointerGetAttributes(0, &which, &data, 4096));
    IS(CUDA_ERROR_INVALID_VALUE, cuGetProcAddress_v2(NULL, &data, 2000, 1, NULL));
    end();
}

TN_TEST(an_error_has_a_name_and_a_text)
{
    const char *text;
    OK(cuGetErrorName(CUDA_ERROR_OUT_OF_MEMORY, &text));
    assert_string_equal(text, "CUDA_ERROR_OUT_OF_MEMORY");
    OK(cuGetErrorString(CUDA_ERROR_NOT_READY, &text));
    assert_non_null(text);
    OK(cuGetErrorName(CUDA_SUCCESS, &text));
    IS(CUDA_ERROR_INVALID_VALUE, cuGetErrorName(12345, &text));
}

TN_TEST(a_handle_that_is_none_is_refused)
{
    CUstreamCaptureStatus status;
    CUcontext context;
    CUevent event = (CUevent)(void *)&status;
    CUstream stream = (CUstream)(void *)&status;
    begin(NULL);
    IS(CUDA_ERROR_INVALID_CONTEXT, cuCtxPushCurrent_v2((CUcontext)(void *)&status));
    IS(CUDA_ERROR_INVALID_HANDLE, cuStreamDestroy_v2(stream));
    IS(CUDA_ERROR_INVALID_HANDLE, cuStreamDestroy_v2(NULL));
    IS(CUDA_ERROR_INVALID_HANDLE, cuStreamSynchronize(stream));
    IS(CUDA_ERROR_INVALID_HANDLE, cuStreamIsCapturing(stream, &status));
    IS(CUDA_ERROR_INVALID_HANDLE, cuStreamGetCtx(stream, &context));
    IS(CUDA_ERROR_INVALID_HANDLE, cuEventDestroy_v2(event));
    IS(CUDA_ERROR_INVALID_HANDLE, cuEventRecord(event, NULL));
    IS(CUDA_ERROR_INVALID_HANDLE, cuEventQuery(event));
    IS(CUDA_ERROR_INVALID_HANDLE, cuEventSynchronize(event));
    IS(CUDA_ERROR_INVALID_HANDLE, cuStreamWaitEvent(NULL, event, 0));
    IS(CUDA_ERROR_INVALID_VALUE,
       cuIpcOpenEventHandle(&event, (CUipcEventHandle){.reserved = {1}}));
    end();
}

/* R36 */
TN_TEST(properties_and_flags_that_no_memory_has_are_refused)
{
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp right = world_properties(), wrong = right;
    size_t bytes;
    int fd;
    begin(NULL);
    IS(CUDA_ERROR_INVALID_VALUE, cuMemGetAllocationGranularity(&bytes, &right, 2));
    IS(CUDA_ERROR_INVALID_VALUE, cuMemGetAllocationGranularity(NULL, &right, 0));
    wrong.type = 0;
    IS(CUDA_ERROR_INVALID_VALUE, cuMemCreate(&handle, CHUNK, &wrong, 0));
    wrong = right;
    wrong.requestedHandleTypes = 8;
    IS(CUDA_ERROR_NOT_SUPPORTED, cuMemCreate(&handle, CHUNK, &wrong, 0));
    wrong = right;
    wrong.allocFlags.usage = 1;
    IS(CUDA_ERROR_INVALID_VALUE, cuMemCreate(&handle, CHUNK, &wrong, 0));
    OK(cuMemCreate(&handle, CHUNK, &right, 0));
    IS(CUDA_ERROR_INVALID_VALUE, cuMemExportToShareableHandle(&fd, handle, 1, 1));
    IS(CUDA_ERROR_INVALID_VALUE, cuMemExportToShareableHandle(&fd, handle, 8, 0));
    IS(CUDA_ERROR_INVALID_VALUE, cuMemExportToShareableHandle(NULL, handle, 1, 0));
    IS(CUDA_ERROR_INVALID_VALUE, cuMemExportToShareableHandle(&fd, handle + 1, 1, 0));
    IS(CUDA_ERROR_INVALID_VALUE, cuMemImportFromShareableHandle(&handle, NULL, 8));
    IS(CUDA_ERROR_INVALID_VALUE, cuMemImportFromShareableHandle(NULL, NULL, 1));
    IS(CUDA_ERROR_INVALID_VALUE, cuMemGetAllocationPropertiesFromHandle(&wrong, handle + 1));
    OK(cuMemGetAllocationPropertiesFromHandle(&wrong, handle));
    assert_int_equal(wrong.requestedHandleTypes, 1);
    OK(cuMemRelease(handle));
    end();
}

/* R36 */
TN_TEST(memory_has_the_granularity_of_the_options)
{
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp properties = world_properties();
    size_t bytes;
    assert_int_not_equal(fake_make("/nonexistent", &(struct fake_options){.granularity = 5}),
                         0);
    begin(&(struct fake_options){.granularity = 65536});
    OK(cuMemGetAllocationGranularity(&bytes, &properties, 0));
    assert_int_equal(bytes, 65536);
    IS(CUDA_ERROR_INVALID_VALUE, cuMemCreate(&handle, 32768, &properties, 0));
    struct chunk first = chunk_create(65536), second = chunk_create(3 * 65536);
    OK(cuMemsetD8Async(first.ptr, 1, first.bytes, NULL));
    OK(cuMemsetD8Async(second.ptr, 2, second.bytes, NULL));
    OK(cuStreamSynchronize(NULL));
    assert_int_equal(byte_at(first.ptr + 65535), 1);
    assert_int_equal(byte_at(second.ptr), 2);
    chunk_destroy(&first);
    chunk_destroy(&second);
    end();
}

/* R36 */
TN_TEST(addresses_and_accesses_that_cannot_be_are_refused)
{
    CUmemGenericAllocationHandle handle;
    CUmemAccessDesc access = world_access(CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    CUdeviceptr ptr;
    begin(NULL);
    struct chunk chunk = chunk_create(CHUNK);
    IS(CUDA_ERROR_INVALID_VALUE, cuMemAddressReserve(&ptr, 0, 0, 0, 0));
    IS(CUDA_ERROR_INVALID_VALUE, cuMemAddressReserve(&ptr, CHUNK / 2, 0, 0, 0));
    IS(CUDA_ERROR_INVALID_VALUE, cuMemAddressReserve(&ptr, CHUNK, 3, 0, 0));
    IS(CUDA_ERROR_INVALID_VALUE, cuMemAddressReserve(&ptr, CHUNK, 0, 0, 1));
    OK(cuMemAddressReserve(&ptr, CHUNK, 4 * CHUNK, 0, 0));
    assert_int_equal(ptr % (4 * CHUNK), 0);
    IS(CUDA_ERROR_INVALID_VALUE, cuMemSetAccess(ptr, CHUNK, &access, 1));
    OK(cuMemAddressFree(ptr, CHUNK));
    IS(CUDA_ERROR_INVALID_VALUE, cuMemSetAccess(chunk.ptr, CHUNK, &access, 0));
    IS(CUDA_ERROR_INVALID_VALUE, cuMemSetAccess(chunk.ptr, CHUNK, NULL, 1));
    IS(CUDA_ERROR_INVALID_VALUE, cuMemSetAccess(chunk.ptr, CHUNK / 2, &access, 1));
    access.flags = 2;
    IS(CUDA_ERROR_INVALID_VALUE, cuMemSetAccess(chunk.ptr, CHUNK, &access, 1));
    access = world_access(CU_MEM_ACCESS_FLAGS_PROT_READ);
    access.location.id = 7;
    IS(CUDA_ERROR_INVALID_DEVICE, cuMemSetAccess(chunk.ptr, CHUNK, &access, 1));
    IS(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(chunk.ptr, 0));
    IS(CUDA_ERROR_INVALID_VALUE, cuMemRetainAllocationHandle(&handle, &handle));
    chunk_destroy(&chunk);
    end();
}

TN_TEST(flags_that_a_stream_or_copy_cannot_have_are_refused)
{
    CUstream stream;
    CUevent event;
    char byte;
    begin(NULL);
    struct chunk chunk = chunk_create(CHUNK);
    IS(CUDA_ERROR_INVALID_VALUE, cuStreamCreate(&stream, 2));
    IS(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoDAsync_v2(chunk.ptr, NULL, 1, NULL));
    IS(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoHAsync_v2(NULL, chunk.ptr, 1, NULL));
    OK(cuMemcpyDtoHAsync_v2(&byte, chunk.ptr, 0, NULL));
    OK(cuEventCreate(&event, 0));
    IS(CUDA_ERROR_INVALID_VALUE, cuStreamWaitEvent(NULL, event, 1));
    OK(cuEventDestroy_v2(event));
    IS(CUDA_ERROR_INVALID_VALUE, cuMemHostRegister_v2(&byte, 1, 64));
    IS(CUDA_ERROR_INVALID_VALUE, cuMemHostRegister_v2(&byte, 0, 0));
    CUdeviceptr ptr;
    OK(cuMemHostRegister_v2(&byte, 1, 0));
    IS(CUDA_ERROR_INVALID_VALUE, cuMemHostGetDevicePointer_v2(&ptr, &byte, 0));
    OK(cuMemHostUnregister(&byte));
    OK(cuMemHostRegister_v2(&byte, 1, CU_MEMHOSTREGISTER_DEVICEMAP));
    IS(CUDA_ERROR_INVALID_VALUE, cuMemHostGetDevicePointer_v2(&ptr, &byte, 1));
    OK(cuMemHostUnregister(&byte));
    chunk_destroy(&chunk);
    end();
}

TN_TEST(memory_of_an_allocator_ends_at_the_size_of_the_device)
{
    CUdeviceptr first, second;
    begin(&(struct fake_options){.memory_bytes = 2 * CHUNK});
    IS(CUDA_ERROR_INVALID_VALUE, cuMemAlloc_v2(&first, 0));
    IS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&first, 3 * CHUNK));
    OK(cuMemAlloc_v2(&first, 2 * CHUNK));
    IS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&second, 16));
    OK(cuMemFree_v2(first));
    end();
}

/* R4 */
TN_TEST(a_context_that_stays_pushed_at_the_end_is_caught)
{
    char report[2048];
    CUcontext context;
    world_begin(NULL);
    context = world_enter();
    OK(cuDevicePrimaryCtxRelease_v2(0));
    fake_detach();
    assert_int_equal(fake_violations(report, sizeof report), 1);
    world_expect("R4");
    IS(CUDA_ERROR_DEINITIALIZED, cuCtxPushCurrent_v2(context));
    world_end();
}

/* R3 */
TN_TEST(a_released_context_is_not_used)
{
    CUstream stream;
    world_begin(NULL);
    world_enter();
    OK(cuDevicePrimaryCtxRelease_v2(0));
    IS(CUDA_ERROR_INVALID_CONTEXT, cuStreamCreate(&stream, 0));
    OK(cuCtxPopCurrent_v2(NULL));
    world_end();
}

TN_TEST(a_context_is_synchronized_with_all_its_streams)
{
    CUstream stream;
    begin(NULL);
    struct chunk chunk = chunk_create(CHUNK);
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (unsigned char i = 1; i <= 100; i++)
        OK(cuMemsetD8Async(chunk.ptr, i, 16, stream));
    OK(cuCtxSynchronize());
    assert_int_equal(byte_at(chunk.ptr), 100);
    fake_capture(stream, true);
    IS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuCtxSynchronize());
    fake_capture(stream, false);
    OK(cuStreamDestroy_v2(stream));
    chunk_destroy(&chunk);
    end();
}

/* R58 */
TN_TEST(a_value_without_access_fails_the_context)
{
    CUdeviceptr ptr;
    for (int writes = 0; writes < 2; writes++) {
        char *page =
            mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        unsigned flags = CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_READ_ONLY;
        begin(NULL);
        struct chunk chunk = chunk_create(CHUNK);
        CUmemAccessDesc none = world_access(0);
        OK(cuMemSetAccess(chunk.ptr, CHUNK, &none, 1));
        OK(cuMemHostRegister_v2(page, 4096, flags));
        OK(cuMemHostGetDevicePointer_v2(&ptr, page, 0));
        OK(writes ? cuStreamWriteValue64_v2(NULL, ptr, 1, 0)
                  : cuStreamWaitValue64_v2(NULL, chunk.ptr, 0, 0));
        IS(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamSynchronize(NULL));
        fake_detach();
        fake_forgive();
        munmap(page, 4096);
        world_end();
    }
}

TN_TEST(a_process_that_ended_its_driver_does_not_begin_again)
{
    world_begin(NULL);
    OK(cuInit(0));
    fake_detach();
    IS(CUDA_ERROR_DEINITIALIZED, cuInit(0));
    world_end();
}

TN_TEST(an_export_fails_without_a_descriptor)
{
    struct rlimit before, none = {0, 0};
    int fd;
    begin(NULL);
    struct chunk chunk = chunk_create(CHUNK);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none.rlim_max = before.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    IS(CUDA_ERROR_OPERATING_SYSTEM, cuMemExportToShareableHandle(&fd, chunk.handle, 1, 0));
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    chunk_destroy(&chunk);
    end();
}

/* R59 */
TN_TEST(each_missing_group_is_refused_and_not_found)
{
    static const struct {
        uint32_t without;
        const char *name;
        int version;
    } groups[] = {
        {FAKE_NO_UUID_V2, "cuDeviceGetUuid", 11040},
        {FAKE_NO_VMM, "cuMemMap", 10020},
        {FAKE_NO_MEM_OPS, "cuStreamWaitValue64", 11070},
        {FAKE_NO_RETAIN, "cuMemRetainAllocationHandle", 11000},
        {FAKE_NO_CAPTURE, "cuStreamIsCapturing", 10000},
        {FAKE_NO_EVENTS, "cuEventRecord", 2000},
        {FAKE_NO_REGISTER, "cuMemHostRegister", 6050},
    };
    for (unsigned i = 0; i < sizeof groups / sizeof groups[0]; i++) {
        void *function = NULL;
        world_begin(&(struct fake_options){.without = groups[i].without});
        OK(cuGetProcAddress_v2(groups[i].name, &function, groups[i].version, 1, NULL));
        assert_null(function);
        world_end();
    }
    CUmemGenericAllocationHandle handle;
    begin(&(struct fake_options){.without = FAKE_NO_RETAIN});
    IS(CUDA_ERROR_NOT_SUPPORTED, cuMemRetainAllocationHandle(&handle, NULL));
    end();
}

/* R59 */
TN_TEST(a_driver_without_descriptors_makes_memory_without_them)
{
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp properties = world_properties();
    int has_it;
    begin(&(struct fake_options){.without = FAKE_NO_POSIX_FD});
    OK(cuDeviceGetAttribute(
        &has_it, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 0));
    assert_int_equal(has_it, 0);
    IS(CUDA_ERROR_NOT_SUPPORTED, cuMemCreate(&handle, CHUNK, &properties, 0));
    properties.requestedHandleTypes = 0;
    OK(cuMemCreate(&handle, CHUNK, &properties, 0));
    OK(cuMemRelease(handle));
    end();
}

/* R59 */
TN_TEST(a_driver_may_have_no_way_to_find_functions)
{
    void *function;
    world_begin(&(struct fake_options){.without = FAKE_NO_PROC_ADDRESS});
    IS(CUDA_ERROR_NOT_SUPPORTED, cuGetProcAddress_v2("cuInit", &function, 2000, 1, NULL));
    world_end();
}

/* R60 */
TN_TEST(memory_of_another_instance_is_not_imported)
{
    CUmemGenericAllocationHandle handle;
    CUcontext context;
    begin(&(struct fake_options){.device_count = 2, .mig = true});
    struct chunk chunk = chunk_create(CHUNK);
    int fd = chunk_export(&chunk);
    OK(cuDevicePrimaryCtxRetain(&context, 1));
    OK(cuCtxPushCurrent_v2(context));
    IS(CUDA_ERROR_NOT_SUPPORTED,
       cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fd, 1));
    OK(cuCtxPopCurrent_v2(NULL));
    OK(cuDevicePrimaryCtxRelease_v2(1));
    IS(CUDA_ERROR_INVALID_VALUE,
       cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fd, 8));
    IS(CUDA_ERROR_INVALID_VALUE, cuMemImportFromShareableHandle(NULL, (void *)(intptr_t)fd, 1));
    OK(cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fd, 1));
    OK(cuMemRelease(handle));
    close(fd);
    chunk_destroy(&chunk);
    end();
}
