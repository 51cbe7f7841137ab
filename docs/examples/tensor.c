/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of tenon/tensor.h. */
#undef NDEBUG
#include "must.h"

#include <assert.h>
#include <string.h>
#include <tenon/dlpack.h>

static void use_types(void)
{
    /* show: tn_dtype_name tn_dtype_parse tn_dtype_size */
    char name[32];
    tn_dtype dtype;
    size_t size_bytes;
    must(tn_dtype_name(TN_BFLOAT16, name, sizeof name)); /* "bfloat16" */
    must(tn_dtype_parse("complex64", &dtype));           /* TN_COMPLEX64 */
    must(tn_dtype_size(dtype, &size_bytes));             /* 8 */
    /* end */
    assert(dtype == TN_COMPLEX64 && size_bytes == 8 && strcmp(name, "bfloat16") == 0);
}

static void make(tn_domain *domain)
{
    /* show: tn_tensor_create tn_tensor_data */
    tn_tensor *image;
    must(tn_tensor_create(domain, TN_FLOAT32, 2, (int64_t[]){480, 640},
                          TN_OPTIONS(tn_tensor_options, .flags = TN_TENSOR_ZEROED), &image));
    float *pixels = tn_tensor_data(image);
    pixels[10 * 640 + 20] = 1; /* row 10, column 20 */
    /* end */

    /* show: tn_tensor_ref tn_tensor_unref */
    tn_tensor *kept = tn_tensor_ref(image); /* a second reference of this process */
    image = tn_tensor_unref(image);         /* NULL; the tensor lives on */
    kept = tn_tensor_unref(kept);           /* the last one: the memory is free */
    /* end */

    /* show: tn_tensor_create_private tn_tensor_share */
    tn_tensor *table; /* in private memory, as malloc() gives it */
    must(tn_tensor_create_private(TN_INT64, 1, (int64_t[]){1000}, &table));
    must(tn_tensor_share(domain, table, NULL)); /* now it can be pushed */
    int64_t *value = tn_tensor_data(table);     /* not where it was before */
    /* end */
    value[0] = 1;

    /* show: tn_tensor_clone */
    tn_tensor *rows, *copy;
    must(tn_tensor_slice(table, 0, 0, 10, 1, &rows));
    must(tn_tensor_clone(domain, rows, NULL, &copy)); /* 10 rows, not the whole table */
    /* end */
    assert(tn_tensor_count(copy) == 10);

    /* show: tn_tensor_same_storage */
    assert(tn_tensor_same_storage(rows, table)); /* a view */
    assert(!tn_tensor_same_storage(copy, table));
    /* end */
    tn_tensor_unref(copy);
    tn_tensor_unref(rows);
    tn_tensor_unref(table);
}

static void view(tn_tensor *image) /* float32 [4, 6] */
{
    tn_tensor *views[5];
    /* show: tn_tensor_view tn_tensor_slice tn_tensor_transpose tn_tensor_reshape */
    must(tn_tensor_slice(image, 1, 0, 6, 2, &views[0]));  /* [4, 3]: columns 0, 2, 4 */
    must(tn_tensor_slice(image, 0, 0, 4, -1, &views[1])); /* rows 3, 2, 1, 0 */
    must(tn_tensor_transpose(image, NULL, &views[2]));    /* [6, 4] */
    must(tn_tensor_reshape(image, 2, (int64_t[]){2, -1}, &views[3])); /* [2, 12] */
    must(tn_tensor_view(image, TN_FLOAT32, 1, (int64_t[]){4}, (int64_t[]){7}, 0,
                        &views[4])); /* the diagonal: each element is 7 behind the last */
    /* end */

    /* show: tn_tensor_dtype tn_tensor_ndim tn_tensor_shape tn_tensor_count */
    tn_tensor *columns = views[0];
    assert(tn_tensor_dtype(columns) == TN_FLOAT32);
    assert(tn_tensor_ndim(columns) == 2);
    assert(tn_tensor_shape(columns)[1] == 3);
    assert(tn_tensor_count(columns) == 12);
    /* end */

    /* show: tn_tensor_get_info */
    tn_tensor_info info = {.struct_size = sizeof info};
    must(tn_tensor_get_info(columns, &info));
    assert(info.strides[1] == 2 && !info.is_contiguous && info.is_shared);
    /* end */

    /* show: tn_tensor_copy */
    tn_tensor *dense;
    must(tn_tensor_create_private(TN_FLOAT32, 2, (int64_t[]){4, 3}, &dense));
    must(tn_tensor_copy(dense, columns)); /* same type and shape, any strides */
    /* end */
    tn_tensor_unref(dense);
    for (int i = 0; i < 5; i++)
        tn_tensor_unref(views[i]);
}

static void find(tn_domain *domain, tn_tensor *image)
{
    /* show: tn_tensor_find */
    const float *pixel = (const float *)tn_tensor_data(image) + 5; /* from another library */
    tn_tensor *storage;
    must(tn_tensor_find(domain, pixel, sizeof *pixel, &storage)); /* uint8 [96] */
    /* end */
    assert(tn_tensor_same_storage(storage, image));
    tn_tensor_unref(storage);
}

static void exchange(tn_tensor *image)
{
    /* show: tn_tensor_to_dlpack tn_tensor_from_dlpack */
    struct DLManagedTensorVersioned *managed;
    tn_tensor *imported;
    must(tn_tensor_to_dlpack(image, &managed)); /* for any library that reads DLPack */
    if (tn_tensor_from_dlpack(managed, &imported) != 0) {
        managed->deleter(managed); /* a failed import leaves it with us */
        return;
    }
    /* end */
    assert(tn_tensor_data(imported) == tn_tensor_data(image));
    tn_tensor_unref(imported);
}

/* For a machine with a card; without one nothing is done. */
static void use_device(tn_domain *domain, tn_tensor *image)
{
    tn_device device;
    if (tn_device_find("cuda:0", &device) != 0)
        return;
    /* show: tn_tensor_pin */
    must(tn_tensor_pin(image)); /* for many copies from or to the same memory */
    /* end */
    /* show: tn_tensor_to tn_tensor_copy_on tn_tensor_device */
    tn_tensor *there;
    must(tn_tensor_to(domain, image, device, NULL, &there)); /* NULL: the default stream */
    assert(tn_tensor_device(there).type == TN_DEVICE_CUDA);
    must(tn_tensor_copy_on(image, there, NULL)); /* does not wait */
    must(tn_tensor_copy(image, there));          /* waits */
    /* end */
    /* show: tn_tensor_record tn_tensor_wait tn_tensor_sync */
    /* The producer has given the stream its work on the tensor. Who gets the tensor: */
    must(tn_tensor_record(there,
                          NULL));      /* NULL: the default stream, which is that stream here */
    must(tn_tensor_wait(there, NULL)); /* what the stream is given now comes after that work */
    must(tn_tensor_sync(there, tn_deadline_after(5000))); /* or waits without a stream */
    /* end */
    /* show: tn_tensor_unpin */
    must(tn_tensor_unpin(image));
    /* end */
    tn_tensor_unref(there);
}

int main(void)
{
    tn_domain *domain;
    tn_tensor *image;
    use_types();
    must(tn_domain_open(NULL, NULL, 0, &domain));
    make(domain);
    must(tn_tensor_create(domain, TN_FLOAT32, 2, (int64_t[]){4, 6}, NULL, &image));
    view(image);
    find(domain, image);
    exchange(image);
    use_device(domain, image);
    tn_tensor_unref(image);
    tn_domain_close(domain);
    return 0;
}
