/* SPDX-License-Identifier: Apache-2.0 */
/* Devices: found, counted, named, and what is said where there are none. */
#include "gpu/gpu.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "device/device.h"

static tn_device_info info_of(tn_device device)
{
    tn_device_info info = {.struct_size = sizeof info};
    TN_CHECK_OK(tn_device_get_info(device, &info));
    return info;
}

static void expect_detail(const char *text)
{
    if (strstr(tn_error_detail(), text) == NULL)
        fail_msg("'%s' does not say '%s'", tn_error_detail(), text);
}

/* ---- the host ---------------------------------------------------------------------------- */

TN_TEST(the_host_is_a_device_without_a_uuid)
{
    uint64_t free_bytes;
    assert_int_equal(tn_device_count(TN_DEVICE_CPU), 1);
    tn_device_info info = info_of(gpu_cpu);
    assert_string_equal(info.uuid_text, "");
    assert_string_equal(info.name, "host");
    assert_true(info.memory_bytes > 0);
    TN_CHECK_OK(tn_device_get_free(gpu_cpu, &free_bytes));
    assert_true(free_bytes > 0);
    assert_int_equal(tn_device_get_free((tn_device){TN_DEVICE_CPU, 1}, &free_bytes),
                     TN_ERR_NOT_FOUND);
}

TN_TEST(a_type_that_does_not_exist_is_refused)
{
    tn_device_info info = {.struct_size = sizeof info};
    uint64_t free_bytes;
    assert_int_equal(tn_device_count(0), TN_ERR_INVALID);
    assert_int_equal(tn_device_count(77), TN_ERR_INVALID);
    assert_int_equal(tn_device_get_info((tn_device){77, 0}, &info), TN_ERR_INVALID);
    assert_int_equal(tn_device_get_free((tn_device){-1, 0}, &free_bytes), TN_ERR_INVALID);
    assert_int_equal(tn_device_count(TN_DEVICE_ROCM), TN_ERR_UNSUPPORTED);
}

/* ---- devices ----------------------------------------------------------------------------- */

TN_TEST(each_device_has_a_uuid_of_its_own_and_is_found_by_it)
{
    gpu_begin(&(struct fake_options){.device_count = 3});
    int count = tn_device_count(gpu_type);
    assert_true(count >= 1);
    for (int32_t id = 0; id < count; id++) {
        tn_device found = {0, 0};
        tn_device_info info = info_of((tn_device){gpu_type, id});
        assert_int_equal(info.device.id, id);
        assert_int_equal(strlen(info.uuid_text), 40);
        assert_true(info.memory_bytes > 0 && info.name[0] != '\0');
        assert_true(info.driver_version >= 11000);
        TN_CHECK_OK(tn_device_find(info.uuid_text, &found));
        assert_int_equal(found.id, id);
        for (char *c = info.uuid_text; *c != '\0'; c++)
            if (*c >= 'a' && *c <= 'f')
                *c = (char)(*c - 'a' + 'A');
        found.id = -1;
        TN_CHECK_OK(tn_device_find(info.uuid_text, &found));
        assert_int_equal(found.id, id);
    }
    gpu_end();
}

TN_TEST(a_device_is_found_by_type_and_number)
{
    tn_device found = {0, 0};
    gpu_begin(&(struct fake_options){.device_count = 2});
    TN_CHECK_OK(tn_device_find("cpu", &found));
    assert_true(found.type == TN_DEVICE_CPU && found.id == 0);
    TN_CHECK_OK(tn_device_find(gpu_text("cuda"), &found));
    assert_true(found.type == gpu_type && found.id == 0);
    TN_CHECK_OK(tn_device_find(gpu_is_hip() ? "ROCM:0" : "CUDA:0", &found));
    assert_int_equal(tn_device_find(gpu_text("cuda:64"), &found), TN_ERR_NOT_FOUND);
    expect_detail(gpu_text("cuda:64"));
    assert_int_equal(tn_device_find("GPU-nonsense", &found), TN_ERR_INVALID);
    expect_detail("GPU-nonsense");
    const char *const malformed[] = {"",      "cuda:",   "cuda:x",  "cuda:1x",
                                     "cuda0", "cuda:-1", "cuda:0 ", "opencl:0"};
    for (size_t i = 0; i < sizeof malformed / sizeof malformed[0]; i++)
        assert_int_equal(tn_device_find(malformed[i], &found), TN_ERR_INVALID);
    gpu_end();
}

TN_TEST(numbers_are_of_the_process_and_uuids_are_not)
{
    gpu_need_fake();
    gpu_begin(&(struct fake_options){.device_count = 3});
    setenv("TENON_FAKECUDA_VISIBLE", "2,0", 1);
    assert_int_equal(tn_device_count(gpu_type), 2);
    tn_device_info first = info_of(gpu_0);
    setenv("TENON_FAKECUDA_VISIBLE", "", 1); /* it was read when the driver began */
    assert_string_equal(info_of(gpu_0).uuid_text, first.uuid_text);
    gpu_end();
}

static void write_node(const char *address, const char *node)
{
    char path[256];
    snprintf(path, sizeof path, "mkdir -p '%s/bus/pci/devices/%s'", tnt_folder(), address);
    assert_int_equal(system(path), 0);
    snprintf(path, sizeof path, "%s/bus/pci/devices/%s/numa_node", tnt_folder(), address);
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    fprintf(file, "%s\n", node);
    assert_int_equal(fclose(file), 0);
}

TN_TEST(a_device_says_which_memory_of_the_host_is_near)
{
    gpu_need_fake();
    gpu_begin(&(struct fake_options){.device_count = 4});
    setenv("TENON_SYS_DIR", tnt_folder(), 1);
    write_node("0000:01:00.0", "0");
    write_node("0000:02:00.0", "1");
    write_node("0000:03:00.0", "-1");
    assert_string_equal(info_of((tn_device){gpu_type, 1}).pci, "0000:02:00.0");
    static const int32_t nodes[] = {0, 1, -1, -1};
    for (int32_t id = 0; id < 4; id++)
        assert_int_equal(info_of((tn_device){gpu_type, id}).numa_node, nodes[id]);
    assert_string_equal(info_of(gpu_cpu).pci, "");
    assert_int_equal(info_of(gpu_cpu).numa_node, -1);
    gpu_end();
}

TN_TEST(free_memory_of_a_device_needs_no_context_to_stay)
{
    uint64_t free_bytes = 0;
    gpu_begin(NULL);
    TN_CHECK_OK(tn_device_get_free(gpu_0, &free_bytes));
    assert_true(free_bytes > 0 && free_bytes <= info_of(gpu_0).memory_bytes);
    gpu_end();
}

TN_TEST(the_driver_says_which_device_has_an_address)
{
    enum { BYTES = 4096 };
    tn_device found = {0, 0};
    tn_tensor *second;
    const tn_tensor_options options = {.struct_size = sizeof options, .device = gpu_1};
    gpu_begin(&(struct fake_options){.device_count = 2});
    CUdeviceptr first = gpu_library_alloc(BYTES, GPU_ALLOCATED);
    TN_CHECK_OK(tn_device_find_address((void *)(uintptr_t)first, &found));
    assert_true(found.type == gpu_type && found.id == 0);
    if (tn_device_count(gpu_type) > 1) {
        tn_domain *domain = tnt_domain(NULL);
        TN_CHECK_OK(
            tn_tensor_create(domain, TN_UINT8, 1, (int64_t[]){BYTES}, &options, &second));
        const uint8_t *at = tn_tensor_data(second);
        TN_CHECK_OK(tn_device_find_address(at + BYTES - 1, &found));
        assert_true(found.type == gpu_type && found.id == 1);
        tn_tensor_unref(second);
        tn_domain_close(domain);
    }
    found = gpu_cpu;
    assert_int_equal(tn_device_find_address(&found, &found), TN_ERR_NOT_FOUND);
    expect_detail("is not of memory of a device");
    assert_int_equal(found.type, TN_DEVICE_CPU);
    assert_int_equal(tn_device_find_address(NULL, &found), TN_ERR_INVALID);
    assert_int_equal(tn_device_find_address(&found, NULL), TN_ERR_INVALID);
    gpu_library_free(first, 0, GPU_ALLOCATED);
    gpu_end();
}

TN_TEST(a_wait_for_a_stream_ends_when_its_work_is_done)
{
    CUcontext other;
    uint8_t byte = 0;
    gpu_need_fake();
    gpu_begin(NULL);
    tn_domain *domain = tnt_domain(NULL);
    tn_tensor *tensor = gpu_tensor(domain, 1, 1);
    CUdeviceptr at = (CUdeviceptr)(uintptr_t)tn_tensor_data(tensor);
    uint64_t before = gpu_fake.calls("cuStreamSynchronize");
    gpu_kernel_fill(tensor, 7);
    TN_CHECK_OK(tn_device_wait(gpu_0, NULL));
    assert_int_equal(gpu_fake.peek(at, &byte, 1), 0);
    assert_int_equal(byte, 7);
    assert_int_equal(gpu_fake.calls("cuStreamSynchronize"), before + 1);
    CUstream ours = gpu_stream(NULL); /* the tensor keeps the context */
    TN_CHECK_OK(tn_device_wait(gpu_0, ours));
    gpu_fake.capture(ours, true);
    assert_int_equal(tn_device_wait(gpu_0, ours), TN_ERR_INVALID);
    expect_detail("captured into a graph");
    gpu_fake.capture(ours, false);
    gpu_stream_end(ours, NULL);
    if (!gpu_is_hip()) {
        assert_int_equal(gpu_fake.context_create(&other, 0), 0);
        CUstream others = gpu_stream(other);
        assert_int_equal(tn_device_wait(gpu_0, others), TN_ERR_INVALID);
        gpu_stream_end(others, other);
        gpu_fake.context_destroy(other);
    }
    tn_tensor_unref(tensor);
    tn_domain_close(domain);
    TN_CHECK_OK(tn_device_wait(gpu_cpu, NULL));
    assert_int_equal(tn_device_wait((tn_device){gpu_type, 64}, NULL), TN_ERR_NOT_FOUND);
    assert_int_equal(tn_device_wait((tn_device){77, 0}, NULL), TN_ERR_INVALID);
    gpu_end();
}

TN_TEST(an_instance_of_a_card_has_its_own_uuid)
{
    gpu_need_cuda("HIP has no parts of a card");
    gpu_need_fake();
    gpu_begin(&(struct fake_options){.device_count = 2, .mig = true});
    tn_device_info info = info_of(gpu_0);
    assert_true((info.flags & TN_DEVICE_IS_PART) != 0);
    assert_memory_equal(info.uuid_text, "MIG-", 4);
    gpu_end();
}

TN_TEST(a_card_of_one_process_says_so)
{
    gpu_need_fake();
    gpu_begin(&(struct fake_options){.compute_mode = CU_COMPUTEMODE_EXCLUSIVE_PROCESS});
    assert_true((info_of(gpu_0).flags & TN_DEVICE_EXCLUSIVE) != 0);
    gpu_end();
}

/* ---- no devices -------------------------------------------------------------------------- */

static void expect_none(const char *why)
{
    tn_device_info info = {.struct_size = sizeof info};
    tn_device found;
    for (int i = 0; i < 2; i++) { /* and again */
        assert_int_equal(tn_device_count(gpu_type), TN_ERR_UNSUPPORTED);
        expect_detail(why);
        assert_int_equal(tn_device_get_info(gpu_0, &info), TN_ERR_UNSUPPORTED);
        expect_detail(why);
        assert_int_equal(tn_device_find(gpu_text("cuda:0"), &found), TN_ERR_UNSUPPORTED);
        assert_int_equal(tn_device_find("GPU-01234567-89ab-cdef-0123-456789abcdef", &found),
                         TN_ERR_UNSUPPORTED);
        assert_int_equal(tn_device_find_address(&found, &found), TN_ERR_UNSUPPORTED);
        assert_int_equal(tn_device_wait(gpu_0, NULL), TN_ERR_UNSUPPORTED);
    }
    TN_CHECK_OK(tn_device_find("cpu", &found));
}

TN_TEST(without_a_driver_there_is_no_device)
{
    gpu_set_library("/no/such/library.so");
    expect_none("/no/such/library.so");
}

TN_TEST(a_library_that_is_no_driver_is_named)
{
    gpu_set_library("libc.so.6");
    expect_none(gpu_is_hip() ? "libc.so.6: the driver has no function hip"
                             : "libc.so.6: the driver has no function cu");
}

static void expect_none_with(int32_t result, const char *why)
{
    gpu_need_fake();
    gpu_begin(&(struct fake_options){.init_result = result});
    expect_none(why);
    gpu_end();
}

TN_TEST(the_stub_of_the_toolkit_is_no_driver)
{
    expect_none_with(CUDA_ERROR_STUB_LIBRARY, "stub");
}

TN_TEST(a_driver_without_devices_says_so)
{
    expect_none_with(CUDA_ERROR_NO_DEVICE, "sees no device");
}

TN_TEST(a_driver_that_does_not_start_says_why)
{
    expect_none_with(CUDA_ERROR_UNKNOWN, "CUDA_ERROR_UNKNOWN (999)");
}

TN_TEST(a_driver_of_another_version_than_the_kernels_says_so)
{
    expect_none_with(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, "another version than the kernel's");
}

/* ---- old drivers ------------------------------------------------------------------------- */

static void expect_devices_without(uint32_t without, uint32_t version, bool shares)
{
    gpu_need_fake();
    if (gpu_is_hip())
        version = 60000000;
    gpu_begin(&(struct fake_options){.without = without, .driver_version = version});
    tn_device_info info = info_of(gpu_0);
    assert_int_equal((info.flags & TN_DEVICE_SHARES) != 0, shares);
    assert_int_equal(info.driver_version, version);
    gpu_end();
}

TN_TEST(a_driver_is_used_by_the_names_of_its_library)
{
    gpu_need_cuda("HIP has no functions by version");
    expect_devices_without(FAKE_NO_PROC_ADDRESS, 11070, true);
}

TN_TEST(an_old_driver_names_devices_by_its_old_function)
{
    expect_devices_without(FAKE_NO_UUID_V2, 11020, true);
}

TN_TEST(a_driver_without_mapped_memory_has_devices_that_share_none)
{
    expect_devices_without(FAKE_NO_VMM, 11020, false);
}

TN_TEST(a_driver_without_descriptors_has_devices_that_share_none)
{
    expect_devices_without(FAKE_NO_POSIX_FD, 11020, false);
}

/* ---- fork -------------------------------------------------------------------------------- */

static int child_is_refused(void *unused)
{
    (void)unused;
    tn_device_info info = {.struct_size = sizeof info};
    uint64_t free_bytes;
    assert_int_equal(tn_device_count(gpu_type), TN_ERR_FORKED);
    expect_detail("was forked from process");
    assert_int_equal(tn_device_get_info(gpu_0, &info), TN_ERR_FORKED);
    assert_int_equal(tn_device_get_free(gpu_0, &free_bytes), TN_ERR_FORKED);
    assert_int_equal(tn_device_count(TN_DEVICE_CPU), 1);
    return 0;
}

TN_TEST(a_forked_child_of_a_process_with_a_driver_is_refused)
{
    gpu_begin(NULL);
    assert_true(tn_device_count(gpu_type) >= 1);
    tnt_wait_ok(tnt_fork(child_is_refused, NULL));
    gpu_end();
}

static int child_counts(void *unused)
{
    (void)unused;
    assert_true(tn_device_count(gpu_type) >= 1);
    return 0;
}

TN_TEST(a_forked_child_uses_a_driver_that_its_parent_did_not)
{
    gpu_begin(NULL);
    tnt_wait_ok(tnt_fork(child_counts, NULL));
    assert_true(tn_device_count(gpu_type) >= 1);
    gpu_end();
}

/* ---- failures that pass ------------------------------------------------------------------ */

TN_TEST(a_driver_that_did_not_start_once_is_asked_again)
{
    gpu_need_fake();
    gpu_begin(NULL);
    gpu_fake.fail_nth("cuInit", 1, CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(tn_device_count(gpu_type), TN_ERR_NO_MEMORY);
    assert_int_equal(tn_device_count(gpu_type), 1);
    gpu_end();
}

TN_TEST(a_device_that_could_not_be_described_once_is_asked_again)
{
    tn_device_info info = {.struct_size = sizeof info};
    gpu_need_fake();
    gpu_begin(NULL);
    gpu_fake.fail_nth("cuDeviceGetAttribute", 1, CUDA_ERROR_UNKNOWN);
    assert_int_equal(tn_device_get_info(gpu_0, &info), TN_ERR_DEVICE);
    assert_true((info_of(gpu_0).flags & TN_DEVICE_SHARES) != 0);
    gpu_end();
}

static int count_none(void *unused)
{
    (void)unused;
    assert_int_equal(tn_device_count(gpu_type), TN_ERR_UNSUPPORTED);
    return 0;
}

TN_TEST(a_child_of_a_process_that_found_no_driver_finds_none)
{
    gpu_set_library("/nonexistent/libcuda.so.1");
    assert_int_equal(tn_device_count(gpu_type), TN_ERR_UNSUPPORTED);
    tnt_wait_ok(tnt_fork(count_none, NULL));
}

/* ---- descriptors ------------------------------------------------------------------------- */

TN_TEST(a_descriptor_that_is_not_what_it_should_be_is_refused)
{
    enum { GRANULE = 2 << 20 };
    const struct tni_memory_kind *kind = tni_memory_kind(gpu_type);
    struct tni_device_memory made = {.device = gpu_0, .bytes = GRANULE}, mapped = made;
    int fd, other = memfd_create("other", MFD_CLOEXEC);
    gpu_need_fake();
    gpu_begin(&(struct fake_options){.device_count = 2});
    assert_int_equal(tn_device_count(gpu_type), 2);
    TN_CHECK_OK(kind->make(kind, &made, &fd));
    assert_int_equal(kind->map(kind, &mapped, &other, 1),
                     TN_ERR_CORRUPT); /* no memory of a device */
    mapped.device.id = 1;
    if (!gpu_is_hip()) /* which does not say of which device a descriptor is */
        assert_int_equal(kind->map(kind, &mapped, &fd, 1), TN_ERR_CORRUPT);
    mapped = (struct tni_device_memory){.device = gpu_0, .bytes = 2 * GRANULE};
    assert_int_equal(kind->map(kind, &mapped, &fd, 1), TN_ERR_CORRUPT);
    expect_detail("less than 4194304 bytes");
    mapped.bytes = GRANULE;
    TN_CHECK_OK(kind->map(kind, &mapped, &fd, 1));
    assert_true(mapped.address != made.address);
    kind->unmap(kind, &mapped);
    kind->unmap(kind, &made);
    close(fd);
    close(other);
    gpu_end();
}
