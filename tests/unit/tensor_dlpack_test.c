/* SPDX-License-Identifier: Apache-2.0 */
/* DLPack, both ways. */
#include <tenon/dlpack.h>

#include "unit/tensor_test.h"

#include "harness/tensor.h"
#include <stdlib.h>

/* A producer of another library, which counts how often it is told to end. */
struct foreign {
    DLManagedTensorVersioned managed;
    int64_t shape[33];
    int64_t strides[33];
    int32_t data[64];
    unsigned deleted;
};

static void delete_foreign(DLManagedTensorVersioned *managed)
{
    ((struct foreign *)managed->manager_ctx)->deleted++;
}

static struct foreign *make_foreign(int32_t ndim)
{
    struct foreign *f = calloc(1, sizeof *f);
    for (int i = 0; i < 64; i++)
        f->data[i] = i;
    for (int i = 0; i < 33; i++)
        f->shape[i] = f->strides[i] = 1;
    f->managed = (DLManagedTensorVersioned){
        .version = {1, 99},
        .manager_ctx = f,
        .deleter = delete_foreign,
        .dl_tensor = {.data = f->data,
                      .device = {kDLCPU, 0},
                      .ndim = ndim,
                      .dtype = {kDLInt, 32, 1},
                      .shape = f->shape,
                      .strides = f->strides},
    };
    return f;
}

TN_TEST(an_import_covers_exactly_what_its_strides_reach)
{
    struct foreign *f = make_foreign(2);
    tn_tensor *t, *v;
    f->shape[0] = 3, f->strides[0] = -10;
    f->shape[1] = 2, f->strides[1] = 4;
    f->managed.dl_tensor.byte_offset = 40 * 4;
    TN_CHECK_OK(tn_tensor_from_dlpack(&f->managed, &t));
    assert_ptr_equal(tn_tensor_data(t), &f->data[40]);
    assert_int_equal(tnt_info(t).byte_offset, 80);
    assert_int_equal(tnt_info(t).storage_bytes, 80 + 20);
    assert_int_equal(*(int32_t *)element_at(t, (int64_t[]){2, 1}), 24);
    assert_int_equal(tn_tensor_view(t, TN_INT32, 1, (int64_t[]){26}, NULL, 0, &v),
                     TN_ERR_INVALID);
    TN_CHECK_OK(tn_tensor_view(t, TN_INT32, 1, (int64_t[]){25}, NULL, 0, &v));
    tn_tensor_unref(t);
    assert_int_equal(f->deleted, 0);
    assert_int_equal(*(int32_t *)tn_tensor_data(v), 20);
    tn_tensor_unref(v);
    assert_int_equal(f->deleted, 1);
    free(f);
}

TN_TEST(an_import_without_strides_is_row_major)
{
    struct foreign *f = make_foreign(2);
    tn_tensor *t;
    f->shape[0] = 4, f->shape[1] = 5;
    f->managed.dl_tensor.strides = NULL;
    f->managed.dl_tensor.device.device_type = kDLCUDAHost;
    TN_CHECK_OK(tn_tensor_from_dlpack(&f->managed, &t));
    assert_true(tnt_info(t).is_contiguous);
    assert_int_equal(*(int32_t *)element_at(t, (int64_t[]){3, 4}), 19);
    tn_tensor_unref(t);
    assert_int_equal(f->deleted, 1);
    free(f);
}

TN_TEST(an_import_may_have_no_deleter_and_no_elements)
{
    struct foreign *f = make_foreign(2);
    tn_tensor *t;
    f->managed.deleter = NULL;
    f->managed.dl_tensor.data = NULL;
    f->shape[0] = 0;
    TN_CHECK_OK(tn_tensor_from_dlpack(&f->managed, &t));
    assert_null(tn_tensor_data(t));
    tn_tensor_unref(t);
    free(f);
}

static int try_import(struct foreign *f)
{
    tn_tensor *t = (tn_tensor *)8;
    int status = tn_tensor_from_dlpack(&f->managed, &t);
    assert_true(status < 0);
    assert_ptr_equal(t, (tn_tensor *)8);
    assert_int_equal(f->deleted, 0);
    free(f);
    return status;
}

TN_TEST(imports_that_make_no_sense_stay_with_the_caller)
{
    struct foreign *f = make_foreign(1);
    tn_tensor *t;
    f->managed.version.major = 2;
    assert_int_equal(try_import(f), TN_ERR_VERSION);
    f = make_foreign(1);
    f->managed.dl_tensor.device.device_type = kDLCUDA;
    assert_int_equal(try_import(f), TN_ERR_UNSUPPORTED);
    f = make_foreign(1);
    f->managed.dl_tensor.dtype = (DLDataType){kDLInt, 4, 1};
    assert_int_equal(try_import(f), TN_ERR_UNSUPPORTED);
    f = make_foreign(1);
    f->managed.dl_tensor.dtype = (DLDataType){99, 8, 1};
    assert_int_equal(try_import(f), TN_ERR_INVALID);
    f = make_foreign(33);
    assert_int_equal(try_import(f), TN_ERR_INVALID);
    f = make_foreign(-1);
    assert_int_equal(try_import(f), TN_ERR_INVALID);
    f = make_foreign(1);
    f->managed.dl_tensor.shape = NULL;
    assert_int_equal(try_import(f), TN_ERR_INVALID);
    f = make_foreign(1);
    f->managed.dl_tensor.data = NULL;
    assert_int_equal(try_import(f), TN_ERR_INVALID);
    f = make_foreign(1);
    f->shape[0] = -3;
    assert_int_equal(try_import(f), TN_ERR_INVALID);
    f = make_foreign(1);
    f->shape[0] = 3, f->strides[0] = INT64_MAX / 2;
    assert_int_equal(try_import(f), TN_ERR_INVALID);
    f = make_foreign(1);
    f->shape[0] = 2, f->strides[0] = INT64_MIN / 8;
    assert_int_equal(try_import(f), TN_ERR_INVALID);
    f = make_foreign(1);
    f->managed.dl_tensor.byte_offset = UINT64_MAX;
    assert_int_equal(try_import(f), TN_ERR_INVALID);
    f = make_foreign(1);
    f->managed.dl_tensor.data = (void *)12; /* the last of its elements would be at NULL */
    f->shape[0] = 4, f->strides[0] = -1;
    assert_int_equal(try_import(f), TN_ERR_INVALID);
    assert_int_equal(tn_tensor_from_dlpack(NULL, &t), TN_ERR_INVALID);
}

TN_TEST(an_export_comes_back_as_the_same_bytes_and_holds_its_tensor)
{
    tn_tensor *t, *v, *back;
    DLManagedTensorVersioned *managed;
    TN_CHECK_OK(tn_tensor_create_private(TN_INT32, 2, (int64_t[]){4, 6}, &t));
    fill_with_positions(t);
    TN_CHECK_OK(tn_tensor_slice(t, 1, 1, 6, -2, &v));
    tn_tensor_unref(t);
    void *data = tn_tensor_data(v);
    TN_CHECK_OK(tn_tensor_to_dlpack(v, &managed));
    assert_int_equal(managed->version.major, DLPACK_MAJOR_VERSION);
    assert_int_equal(managed->flags, 0);
    tn_tensor_unref(v);
    TN_CHECK_OK(tn_tensor_from_dlpack(managed, &back));
    assert_ptr_equal(tn_tensor_data(back), data);
    assert_memory_equal(tn_tensor_shape(back), ((int64_t[]){4, 3}), 16);
    assert_memory_equal(tnt_info(back).strides, ((int64_t[]){6, -2}), 16);
    assert_int_equal(*(int32_t *)element_at(back, (int64_t[]){3, 0}), 23);
    tn_tensor_unref(back);
}

TN_TEST(read_only_crosses_dlpack_both_ways_and_is_obeyed)
{
    struct foreign *f = make_foreign(1);
    tn_domain *domain = make_domain();
    tn_tensor *t, *v, *w;
    DLManagedTensorVersioned *managed;
    f->managed.flags = DLPACK_FLAG_BITMASK_READ_ONLY;
    f->shape[0] = 8;
    TN_CHECK_OK(tn_tensor_from_dlpack(&f->managed, &t));
    assert_true(tnt_info(t).is_read_only);
    TN_CHECK_OK(tn_tensor_slice(t, 0, 0, 4, 1, &v));
    assert_true(tnt_info(v).is_read_only);
    TN_CHECK_OK(tn_tensor_create_private(TN_INT32, 1, (int64_t[]){4}, &w));
    assert_int_equal(tn_tensor_copy(v, w), TN_ERR_DENIED);
    assert_int_equal(tn_tensor_copy(w, v), 0);
    assert_int_equal(tn_tensor_share(domain, v, NULL), TN_ERR_DENIED);
    TN_CHECK_OK(tn_tensor_to_dlpack(v, &managed));
    assert_int_equal(managed->flags, DLPACK_FLAG_BITMASK_READ_ONLY);
    managed->deleter(managed);
    tn_tensor_unref(w);
    tn_tensor_unref(v);
    tn_tensor_unref(t);
    assert_int_equal(f->deleted, 1);
    free(f);
    free_domain(domain);
}

TN_TEST(sharing_an_import_ends_the_foreign_memory_once)
{
    struct foreign *f = make_foreign(1);
    tn_domain *domain = make_domain();
    tn_tensor *t;
    f->shape[0] = 8, f->strides[0] = -3;
    f->managed.dl_tensor.byte_offset = 30 * 4;
    TN_CHECK_OK(tn_tensor_from_dlpack(&f->managed, &t));
    TN_CHECK_OK(tn_tensor_share(domain, t, NULL));
    assert_int_equal(f->deleted, 1);
    assert_int_equal(*(int32_t *)element_at(t, (int64_t[]){7}), 9);
    tn_tensor_unref(t);
    assert_int_equal(f->deleted, 1);
    free(f);
    free_domain(domain);
}

TN_TEST(memory_that_an_export_points_into_is_not_moved)
{
    tn_domain *domain = make_domain();
    tn_tensor *t;
    DLManagedTensorVersioned *managed;
    TN_CHECK_OK(tn_tensor_create_private(TN_INT32, 1, (int64_t[]){8}, &t));
    TN_CHECK_OK(tn_tensor_to_dlpack(t, &managed));
    assert_int_equal(tn_tensor_share(domain, t, NULL), TN_ERR_DENIED);
    managed->deleter(managed);
    TN_CHECK_OK(tn_tensor_share(domain, t, NULL));
    tn_tensor_unref(t);
    free_domain(domain);
}
