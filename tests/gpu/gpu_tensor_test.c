/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors on a device, in one process: made, filled, copied, refused. */
#include "gpu/gpu.h"

#include <stdlib.h>
#include <string.h>
#include <tenon/dlpack.h>
#include <unistd.h>

/* Three MiB: a slab has 21 of them, and ends with a granule of the driver. */
enum { BYTES = 3 << 20, GRANULE = 2 << 20, SLAB = 64 << 20 };

static void expect_detail(const char *text)
{
    if (strstr(tn_error_detail(), text) == NULL)
        fail_msg("'%s' does not say '%s'", tn_error_detail(), text);
}

static int create(tn_domain *domain, tn_tensor_options options, tn_tensor **ret_tensor)
{
    options.struct_size = sizeof options;
    return tn_tensor_create(domain, TN_UINT8, 1, (int64_t[]){BYTES}, &options, ret_tensor);
}

static tn_tensor *made(tn_domain *domain, uint32_t flags)
{
    tn_tensor *tensor;
    TN_CHECK_OK(create(domain, (tn_tensor_options){.flags = flags, .device = gpu_0}, &tensor));
    return tensor;
}

TN_TEST(a_tensor_is_made_on_a_device_and_its_memory_is_given_back)
{
    gpu_begin(NULL);
    tn_domain *domain = tnt_domain(NULL);
    tn_tensor *tensor = made(domain, 0);
    tn_tensor_info info = {.struct_size = sizeof info};
    TN_CHECK_OK(tn_tensor_get_info(tensor, &info));
    assert_true(info.is_shared && info.is_contiguous && !info.is_read_only);
    assert_int_equal(info.strategy, TN_STRATEGY_CUDA_VMM);
    assert_int_equal(info.storage_bytes, BYTES);
    assert_int_equal(tn_tensor_device(tensor).type, gpu_type);
    assert_int_equal(tn_tensor_device(tensor).id, 0);
    assert_non_null(tn_tensor_data(tensor));
    gpu_await_used(domain, SLAB);
    TNT_AUDIT(domain);
    tn_tensor_unref(tensor);
    gpu_await_used(domain, 0);
    TNT_AUDIT(domain);
    tn_domain_close(domain);
    gpu_end();
}

/* What names memory of a device is memory of the host. */
TN_TEST(a_device_tensor_that_lacks_the_host_says_who_holds_the_host)
{
    enum { QUOTA = 4 << 20, MOST = 64 };
    const tn_domain_options small = {.struct_size = sizeof small, .quota_bytes = QUOTA};
    char holder[64];
    tn_tensor *held[MOST], *tensor = NULL;
    uint32_t count = 0;
    gpu_begin(NULL);
    tn_domain *domain = tnt_domain(&small);
    for (int64_t bytes = 1 << 20; bytes >= 4096; bytes /= 2)
        while (count < MOST &&
               tn_tensor_create(domain, TN_UINT8, 1, &bytes, NULL, &held[count]) == 0)
            count++;
    assert_int_equal(create(domain, (tn_tensor_options){.device = gpu_0}, &tensor),
                     TN_ERR_NO_MEMORY);
    snprintf(holder, sizeof holder, "process %d holds", (int)getpid());
    expect_detail(holder);
    for (uint32_t i = 0; i < count; i++)
        tn_tensor_unref(held[i]);
    TN_CHECK_OK(create(domain, (tn_tensor_options){.device = gpu_0}, &tensor));
    tn_tensor_unref(tensor);
    tn_domain_close(domain);
    gpu_end();
}

TN_TEST(a_tensor_is_filled_with_zeros_or_from_the_host)
{
    gpu_begin(NULL);
    tn_domain *domain = tnt_domain(NULL);
    tn_tensor *first = gpu_tensor(domain, BYTES, 0xab);
    gpu_expect(domain, first, 0xab);
    tn_tensor_unref(first);
    tn_tensor *zeroed = made(domain, TN_TENSOR_ZEROED);
    gpu_expect(domain, zeroed, 0);
    tn_tensor_unref(zeroed);
    tn_domain_close(domain);
    gpu_end();
}

TN_TEST(a_tensor_without_elements_is_made_on_a_device)
{
    gpu_begin(NULL);
    tn_domain *domain = tnt_domain(NULL);
    tn_tensor *tensor, *here;
    const tn_tensor_options options = {.struct_size = sizeof options, .device = gpu_0};
    TN_CHECK_OK(tn_tensor_create(domain, TN_FLOAT32, 2, (int64_t[]){0, 7}, &options, &tensor));
    assert_null(tn_tensor_data(tensor));
    TN_CHECK_OK(tn_tensor_to(domain, tensor, gpu_cpu, NULL, &here));
    assert_int_equal(tn_tensor_count(here), 0);
    tn_tensor_unref(here);
    tn_tensor_unref(tensor);
    tn_domain_close(domain);
    gpu_end();
}

/* ---- copies ------------------------------------------------------------------------------ */

TN_TEST(a_tensor_goes_to_a_device_and_back_with_its_attributes)
{
    gpu_begin(NULL);
    tn_domain *domain = tnt_domain(NULL);
    tn_tensor *here, *there, *back;
    TN_CHECK_OK(tn_tensor_create_private(TN_INT32, 2, (int64_t[]){100, 30}, &here));
    int32_t *data = tn_tensor_data(here);
    for (int i = 0; i < 3000; i++)
        data[i] = i;
    TN_CHECK_OK(tn_tensor_set_name(here, "weights"));
    TN_CHECK_OK(tn_tensor_to(domain, here, gpu_0, NULL, &there));
    assert_string_equal(tn_tensor_name(there), "weights");
    TN_CHECK_OK(tn_tensor_to(domain, there, gpu_cpu, NULL, &back));
    TN_CHECK_OK(tn_tensor_copy(back, there));
    assert_string_equal(tn_tensor_name(back), "weights");
    assert_memory_equal(tn_tensor_data(back), data, 3000 * sizeof *data);
    tn_tensor_unref(back);
    tn_tensor_unref(there);
    tn_tensor_unref(here);
    tn_domain_close(domain);
    gpu_end();
}

TN_TEST(a_clone_stays_on_the_device_of_its_tensor)
{
    gpu_begin(NULL);
    tn_domain *domain = tnt_domain(NULL);
    tn_tensor *tensor = gpu_tensor(domain, BYTES, 9), *clone, *here;
    TN_CHECK_OK(tn_tensor_clone(domain, tensor, NULL, &clone));
    assert_int_equal(tn_tensor_device(clone).type, gpu_type);
    tn_tensor_unref(tensor);
    gpu_expect(domain, clone, 9);
    const tn_tensor_options options = {.struct_size = sizeof options, .device = gpu_cpu};
    TN_CHECK_OK(tn_tensor_clone(domain, clone, &options, &here));
    assert_int_equal(tn_tensor_device(here).type, TN_DEVICE_CPU);
    assert_int_equal(*(uint8_t *)tn_tensor_data(here), 9);
    tn_tensor_unref(here);
    tn_tensor_unref(clone);
    tn_domain_close(domain);
    gpu_end();
}

TN_TEST(views_of_a_tensor_on_a_device_copy_their_part)
{
    gpu_begin(NULL);
    tn_domain *domain = tnt_domain(NULL);
    tn_tensor *tensor = gpu_tensor(domain, BYTES, 1), *part, *ones, *step;
    TN_CHECK_OK(tn_tensor_slice(tensor, 0, 1000, 2000, 1, &part));
    assert_int_equal(tn_tensor_device(part).type, gpu_type);
    TN_CHECK_OK(tn_tensor_create_private(TN_UINT8, 1, (int64_t[]){1000}, &ones));
    memset(tn_tensor_data(ones), 77, 1000);
    TN_CHECK_OK(tn_tensor_copy(part, ones));
    gpu_expect(domain, part, 77);
    tn_tensor *before;
    TN_CHECK_OK(tn_tensor_slice(tensor, 0, 0, 1000, 1, &before));
    gpu_expect(domain, before, 1);
    TN_CHECK_OK(tn_tensor_slice(tensor, 0, 0, 2000, 2, &step));
    memset(tn_tensor_data(ones), 55, 1000);
    TN_CHECK_OK(tn_tensor_copy(step, ones));
    gpu_expect(domain, step, 55);
    tn_tensor_unref(step);
    tn_tensor_unref(before);
    tn_tensor_unref(ones);
    tn_tensor_unref(part);
    tn_tensor_unref(tensor);
    tn_domain_close(domain);
    gpu_end();
}

TN_TEST(tensors_are_copied_between_devices)
{
    gpu_need_fake();
    gpu_begin(&(struct fake_options){.device_count = 2});
    tn_domain *domain = tnt_domain(NULL);
    tn_tensor *first = gpu_tensor(domain, BYTES, 5), *second;
    TN_CHECK_OK(tn_tensor_to(domain, first, (tn_device){gpu_type, 1}, NULL, &second));
    assert_int_equal(tn_tensor_device(second).id, 1);
    gpu_expect(domain, second, 5);
    TN_CHECK_OK(tn_tensor_copy(first, second)); /* and back */
    tn_tensor_unref(second);
    tn_tensor_unref(first);
    tn_domain_close(domain);
    gpu_end();
}

TN_TEST(a_tensor_on_a_device_is_exported_with_its_device)
{
    gpu_begin(NULL);
    tn_domain *domain = tnt_domain(NULL);
    tn_tensor *tensor = gpu_tensor(domain, BYTES, 5);
    DLManagedTensorVersioned *managed;
    TN_CHECK_OK(tn_tensor_to_dlpack(tensor, &managed));
    assert_int_equal(managed->dl_tensor.device.device_type, gpu_type);
    assert_int_equal(managed->dl_tensor.device.device_id, 0);
    assert_ptr_equal(managed->dl_tensor.data, tn_tensor_data(tensor));
    tn_tensor_unref(tensor);
    managed->deleter(managed);
    tn_domain_close(domain);
    gpu_end();
}

TN_TEST(a_tensor_is_found_by_an_address_of_its_device)
{
    gpu_begin(NULL);
    tn_domain *domain = tnt_domain(NULL);
    tn_tensor *tensor = gpu_tensor(domain, BYTES, 5), *found;
    TN_CHECK_OK(tn_tensor_find(domain, tn_tensor_data(tensor), 1000, &found));
    assert_true(tn_tensor_same_storage(found, tensor));
    assert_int_equal(tn_tensor_device(found).type, gpu_type);
    tn_tensor_unref(found);
    tn_tensor_unref(tensor);
    tn_domain_close(domain);
    gpu_end();
}

/* ---- pinned memory ----------------------------------------------------------------------- */

TN_TEST(memory_of_the_host_is_registered_until_its_tensors_end)
{
    gpu_begin(NULL);
    tn_domain *domain = tnt_domain(NULL);
    tn_tensor *there = gpu_tensor(domain, BYTES, 3), *here, *own, *view;
    TN_CHECK_OK(tn_tensor_create(domain, TN_UINT8, 1, (int64_t[]){BYTES}, NULL, &here));
    TN_CHECK_OK(tn_tensor_pin(here));
    TN_CHECK_OK(tn_tensor_pin(here)); /* once */
    TN_CHECK_OK(tn_tensor_copy(here, there));
    assert_int_equal(*(uint8_t *)tn_tensor_data(here), 3);
    TN_CHECK_OK(tn_tensor_slice(here, 0, 0, 100, 1, &view));
    tn_tensor_unref(here);
    TN_CHECK_OK(tn_tensor_copy(view, view));
    tn_tensor_unref(view); /* the last tensor over the storage ends it */

    TN_CHECK_OK(tn_tensor_create_private(TN_UINT8, 1, (int64_t[]){BYTES}, &own));
    TN_CHECK_OK(tn_tensor_pin(own));
    assert_int_equal(tn_tensor_share(domain, own, NULL), TN_ERR_DENIED);
    expect_detail("tn_tensor_unpin()");
    assert_int_equal(tn_tensor_resize_storage(own, 2 * BYTES), TN_ERR_DENIED);
    TN_CHECK_OK(tn_tensor_unpin(own));
    TN_CHECK_OK(tn_tensor_unpin(own));
    TN_CHECK_OK(tn_tensor_share(domain, own, NULL));
    assert_int_equal(tn_tensor_pin(there), TN_ERR_UNSUPPORTED);
    tn_tensor_unref(own);
    tn_tensor_unref(there);
    tn_domain_close(domain);
    gpu_end();
}

TN_TEST(memory_that_cannot_be_registered_is_an_error)
{
    gpu_need_fake();
    gpu_begin(NULL);
    tn_domain *domain = tnt_domain(NULL);
    tn_tensor *tensor;
    TN_CHECK_OK(tn_tensor_create(domain, TN_UINT8, 1, (int64_t[]){BYTES}, NULL, &tensor));
    gpu_fake.fail_nth("cuMemHostRegister_v2", 1, CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(tn_tensor_pin(tensor), TN_ERR_NO_MEMORY);
    gpu_fake.fail_nth("cuMemHostRegister_v2", 1, CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    assert_int_equal(tn_tensor_pin(tensor), TN_ERR_EXISTS);
    TN_CHECK_OK(tn_tensor_pin(tensor));
    tn_tensor_unref(tensor);
    tn_domain_close(domain);
    gpu_end();
}

/* ---- refused ----------------------------------------------------------------------------- */

TN_TEST(options_that_do_not_fit_a_device_are_refused)
{
    gpu_begin(NULL);
    tn_domain *domain = tnt_domain(NULL);
    tn_tensor *tensor = NULL, *own;
    assert_int_equal(
        create(domain,
               (tn_tensor_options){.device = gpu_0, .strategy = TN_STRATEGY_FILE_SYSTEM},
               &tensor),
        TN_ERR_INVALID);
    expect_detail("'file_system'");
    const int32_t other_type = gpu_is_hip() ? TN_DEVICE_CUDA : TN_DEVICE_ROCM; /* no driver */
    assert_int_equal(
        create(domain, (tn_tensor_options){.strategy = TN_STRATEGY_CUDA_VMM}, &tensor),
        TN_ERR_INVALID);
    assert_int_equal(create(domain, (tn_tensor_options){.device = {gpu_type, 99}}, &tensor),
                     TN_ERR_NOT_FOUND);
    expect_detail(gpu_text("cuda:99"));
    assert_int_equal(create(domain, (tn_tensor_options){.device = {TN_DEVICE_CPU, 1}}, &tensor),
                     TN_ERR_NOT_FOUND);
    assert_int_equal(create(domain, (tn_tensor_options){.device = {other_type, 0}}, &tensor),
                     TN_ERR_UNSUPPORTED);
    assert_int_equal(create(domain, (tn_tensor_options){.device = {77, 0}}, &tensor),
                     TN_ERR_INVALID);
    TN_CHECK_OK(tn_tensor_create_private(TN_UINT8, 1, (int64_t[]){10}, &own));
    const tn_tensor_options options = {.struct_size = sizeof options, .device = gpu_0};
    assert_int_equal(tn_tensor_share(domain, own, &options), TN_ERR_INVALID);
    expect_detail("tn_tensor_to()");
    assert_null(tensor);
    tn_tensor_unref(own);
    TNT_AUDIT(domain);
    tn_domain_close(domain);
    gpu_end();
}

TN_TEST(without_a_driver_a_tensor_on_a_device_is_only_an_error)
{
    gpu_set_library("/no/such/library.so");
    tn_domain *domain = tnt_domain(NULL);
    tn_tensor *tensor = NULL;
    assert_int_equal(create(domain, (tn_tensor_options){.device = gpu_0}, &tensor),
                     TN_ERR_UNSUPPORTED);
    expect_detail("/no/such/library.so");
    TN_CHECK_OK(create(domain, (tn_tensor_options){.device = gpu_cpu}, &tensor));
    tn_tensor_unref(tensor);
    tn_domain_close(domain);
}

TN_TEST(a_device_that_shares_no_memory_is_refused)
{
    gpu_need_fake();
    gpu_begin(&(struct fake_options){.without = FAKE_NO_POSIX_FD});
    tn_domain *domain = tnt_domain(NULL);
    tn_tensor *tensor = NULL;
    assert_int_equal(create(domain, (tn_tensor_options){.device = gpu_0}, &tensor),
                     TN_ERR_UNSUPPORTED);
    expect_detail(gpu_text("cannot share memory of device cuda:0"));
    tn_domain_close(domain);
    gpu_end();
}

/* ---- room -------------------------------------------------------------------------------- */

TN_TEST(a_device_that_is_full_says_how_much_is_where)
{
    gpu_need_fake();
    gpu_begin(&(struct fake_options){.memory_bytes = 8 * GRANULE});
    tn_domain *domain = tnt_domain(NULL);
    tn_tensor *tensors[4] = {0}, *tensor = NULL;
    for (int i = 0; i < 4; i++)
        tensors[i] = made(domain, 0);
    assert_int_equal(create(domain, (tn_tensor_options){.device = gpu_0}, &tensor),
                     TN_ERR_NO_MEMORY);
    expect_detail("has 0 bytes free, and 4194304 are needed");
    expect_detail("the domain has taken 16777216; process ");
    expect_detail(" holds 12582912 bytes");
    TNT_AUDIT(domain);
    tn_tensor_unref(tensors[2]);
    tensors[2] = made(domain, 0);
    for (int i = 0; i < 4; i++)
        tn_tensor_unref(tensors[i]);
    tn_domain_close(domain);
    gpu_end();
}

TN_TEST(the_quota_of_devices_is_that_of_each_device)
{
    gpu_need_fake();
    gpu_begin(&(struct fake_options){.device_count = 2});
    const tn_domain_options options = {.struct_size = sizeof options,
                                       .device_quota_bytes = 5 * GRANULE};
    tn_domain *domain = tnt_domain(&options);
    tn_domain_info info = {.struct_size = sizeof info};
    TN_CHECK_OK(tn_domain_get_info(domain, &info));
    assert_int_equal(info.device_quota_bytes, 5 * GRANULE);
    tn_tensor *first = made(domain, 0), *second = made(domain, 0), *third = NULL;
    assert_int_equal(create(domain, (tn_tensor_options){.device = gpu_0}, &third),
                     TN_ERR_NO_MEMORY);
    expect_detail("quota of 10485760 for a device, of which it has taken 8388608; process ");
    expect_detail(" holds 6291456 bytes");
    assert_null(third);
    TN_CHECK_OK(create(domain, (tn_tensor_options){.device = {gpu_type, 1}}, &third));
    tn_tensor_unref(third);
    TN_CHECK_OK(tn_domain_set_device_quota(domain, 0));
    third = made(domain, 0);
    tn_tensor_unref(third);
    tn_tensor_unref(second);
    tn_tensor_unref(first);
    tn_domain_close(domain);
    gpu_end();
}

TN_TEST(each_failing_call_of_the_driver_leaves_nothing)
{
    gpu_need_fake();
    gpu_begin(NULL);
    static const char *const functions[] = {"cuMemCreate",     "cuMemAddressReserve",
                                            "cuMemMap",        "cuMemSetAccess",
                                            "cuMemRelease",    "cuMemExportToShareableHandle",
                                            "cuMemsetD8Async", "cuStreamSynchronize"};
    tn_domain *domain = tnt_domain(NULL);
    tn_tensor *tensor = made(domain, 0);
    tn_tensor_unref(tensor);
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
        tensor = NULL;
        TN_CHECK_OK(tn_domain_trim(domain, 0, NULL)); /* so that it needs a slab */
        gpu_fake.fail_nth(functions[i], 1, CUDA_ERROR_UNKNOWN);
        int status = create(
            domain, (tn_tensor_options){.device = gpu_0, .flags = TN_TENSOR_ZEROED}, &tensor);
        if (strcmp(functions[i], "cuMemRelease") == 0) {
            assert_int_equal(status, 0); /* its failure loses a handle, and nothing else */
            tn_tensor_unref(tensor);
            continue;
        }
        assert_int_equal(status, TN_ERR_DEVICE);
        expect_detail(gpu_function(functions[i]));
        assert_null(tensor);
        TNT_AUDIT(domain);
        TN_CHECK_OK(create(domain, (tn_tensor_options){.device = gpu_0}, &tensor));
        tn_tensor_unref(tensor);
    }
    tn_domain_close(domain);
    gpu_fake.detach(); /* the handle that was lost */
    gpu_fake.forgive();
    gpu_end();
}
