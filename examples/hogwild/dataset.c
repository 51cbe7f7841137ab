/* SPDX-License-Identifier: Apache-2.0 */
#include "dataset.h"
#include "failure.h"
#include "npy.h"

#include <stdlib.h>

enum { MIN_SAMPLES = 10, MAX_FEATURES = 1 << 20, MAX_CLASSES = 1000 };

static void load(const char *path, struct npy *array)
{
    char error[NPY_ERROR_BYTES];
    if (npy_load(path, array, error) != 0)
        fail("%s", error);
}

static void check_shapes(const struct npy *x, const struct npy *y, const char *x_path,
                         const char *y_path)
{
    if (x->ndim != 2)
        fail("%s: has %d dimensions; x must have 2, [samples, features]", x_path, x->ndim);
    if (y->ndim != 1)
        fail("%s: has %d dimensions; y must have 1, [samples]", y_path, y->ndim);
    if (x->shape[0] != y->shape[0])
        fail("%s has %lld samples, %s has %lld labels", x_path, (long long)x->shape[0], y_path,
             (long long)y->shape[0]);
    if (x->shape[0] < MIN_SAMPLES || x->shape[0] > INT32_MAX)
        fail("%s: has %lld samples; at least %d are needed", x_path, (long long)x->shape[0],
             MIN_SAMPLES);
    if (x->shape[1] < 1 || x->shape[1] > MAX_FEATURES)
        fail("%s: has %lld features; 1 to %d are possible", x_path, (long long)x->shape[1],
             MAX_FEATURES);
}

static int32_t count_classes(const int64_t *labels, int64_t count, const char *path)
{
    int64_t highest = 0;
    for (int64_t index = 0; index < count; ++index) {
        if (labels[index] < 0 || labels[index] >= MAX_CLASSES)
            fail("%s: label %lld at row %lld; 0 to %d are possible", path,
                 (long long)labels[index], (long long)index, MAX_CLASSES - 1);
        highest = labels[index] > highest ? labels[index] : highest;
    }
    return (int32_t)highest + 1;
}

static void *allocate(size_t count, size_t size)
{
    void *bytes = calloc(count, size);
    if (bytes == NULL)
        fail("no memory for %zu elements", count);
    return bytes;
}

void dataset_read(const char *x_path, const char *y_path, struct dataset_rows *ret_rows)
{
    struct npy x;
    struct npy y;
    load(x_path, &x);
    load(y_path, &y);
    check_shapes(&x, &y, x_path, y_path);
    struct dataset_rows rows = {
        .x = allocate(x.count, sizeof(float)),
        .y = allocate(y.count, sizeof(int64_t)),
        .samples = x.shape[0],
        .features = (int32_t)x.shape[1],
    };
    if (npy_to_float32(&x, rows.x) != 0)
        fail("%s: has an element that is not a finite float32", x_path);
    if (npy_to_int64(&y, rows.y) != 0)
        fail("%s: has elements of type %s; labels must be whole numbers", y_path,
             npy_type_name(y.type));
    rows.classes = count_classes(rows.y, rows.samples, y_path);
    npy_fini(&x);
    npy_fini(&y);
    *ret_rows = rows;
}

static tn_tensor *part(tn_tensor *tensor, int64_t start, int64_t stop)
{
    tn_tensor *view = NULL;
    must(tn_tensor_slice(tensor, 0, start, stop, 1, &view), "cannot take a part of the data");
    return view;
}

void dataset_share(tn_domain *domain, struct dataset_rows *rows, struct dataset *ret_dataset)
{
    struct dataset dataset = {.features = rows->features};
    int64_t shape[2] = {rows->samples, rows->features};
    size_t count = (size_t)rows->samples;
    dataset.test_count = rows->samples / 5;
    dataset.train_count = rows->samples - dataset.test_count;
    must(tn_tensor_create(
             domain, TN_FLOAT32, 2, shape,
             TN_OPTIONS(tn_tensor_options, .source = rows->x,
                        .source_bytes = count * (size_t)rows->features * sizeof(float)),
             &dataset.x),
         "no room for the samples");
    must(tn_tensor_create(domain, TN_INT64, 1, shape,
                          TN_OPTIONS(tn_tensor_options, .source = rows->y,
                                     .source_bytes = count * sizeof(int64_t)),
                          &dataset.y),
         "no room for the labels");
    dataset.train_x = part(dataset.x, 0, dataset.train_count);
    dataset.train_y = part(dataset.y, 0, dataset.train_count);
    dataset.test_x = part(dataset.x, dataset.train_count, rows->samples);
    dataset.test_y = part(dataset.y, dataset.train_count, rows->samples);
    free(rows->x);
    free(rows->y);
    *ret_dataset = dataset;
}

void dataset_drop(struct dataset *dataset)
{
    dataset->x = tn_tensor_unref(dataset->x);
    dataset->y = tn_tensor_unref(dataset->y);
    dataset->train_x = tn_tensor_unref(dataset->train_x);
    dataset->train_y = tn_tensor_unref(dataset->train_y);
    dataset->test_x = tn_tensor_unref(dataset->test_x);
    dataset->test_y = tn_tensor_unref(dataset->test_y);
}
