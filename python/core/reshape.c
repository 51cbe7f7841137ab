/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reshape: methods that make views with another shape, dtype or order of axes, and methods that
 * copy.
 */
#include "tensor.h"

#include <string.h>

static tn_tensor *tensor_in(PyObject *self) { return ((tnp_tensor *)self)->tensor; }

/* ---- views ------------------------------------------------------------------------------- */

static PyObject *wrap_view(int status, tn_tensor *view, PyObject *self)
{
    return status != 0 ? tnp_raise(status) : tnp_tensor_wrap_view(view, self);
}

PyObject *tnp_tensor_view(PyObject *self, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"shape", "dtype", "strides", "byte_offset", NULL};
    PyObject *shape_object, *dtype_object = Py_None, *strides_object = Py_None;
    PyObject *offset_object = Py_None;
    int64_t shape[TN_MAX_NDIM], strides[TN_MAX_NDIM];
    int32_t ndim, stride_count;
    tn_dtype dtype = tn_tensor_dtype(tensor_in(self));
    uint64_t byte_offset = tnp_info(tensor_in(self)).byte_offset;
    tn_tensor *result = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O|OOO:view", names, &shape_object,
                                     &dtype_object, &strides_object, &offset_object) ||
        tnp_shape(shape_object, shape, &ndim) < 0 ||
        (dtype_object != Py_None && tnp_dtype(dtype_object, &dtype) < 0) ||
        (strides_object != Py_None && tnp_shape(strides_object, strides, &stride_count) < 0))
        return NULL;
    if (strides_object != Py_None && stride_count != ndim) {
        PyErr_Format(PyExc_ValueError, "%d strides for %d axes", (int)stride_count, (int)ndim);
        return NULL;
    }
    if (offset_object != Py_None) {
        byte_offset = PyLong_AsUnsignedLongLong(offset_object);
        if (byte_offset == UINT64_MAX && PyErr_Occurred())
            return NULL;
    }
    int status =
        tn_tensor_view(tensor_in(self), dtype, ndim, shape,
                       strides_object != Py_None ? strides : NULL, byte_offset, &result);
    return wrap_view(status, result, self);
}

/* The arguments may be the numbers themselves, or one sequence of them. */
static PyObject *numbers_of(PyObject *args)
{
    return PyTuple_GET_SIZE(args) == 1 ? PyTuple_GET_ITEM(args, 0) : args;
}

PyObject *tnp_tensor_reshape(PyObject *self, PyObject *args)
{
    int64_t shape[TN_MAX_NDIM];
    int32_t ndim;
    tn_tensor *result = NULL;
    if (tnp_shape(numbers_of(args), shape, &ndim) < 0)
        return NULL;
    int status = tn_tensor_reshape(tensor_in(self), ndim, shape, &result);
    return wrap_view(status, result, self);
}

static PyObject *transpose_by(PyObject *self, const int32_t *axes)
{
    tn_tensor *result = NULL;
    int status = tn_tensor_transpose(tensor_in(self), axes, &result);
    return wrap_view(status, result, self);
}

PyObject *tnp_tensor_transpose(PyObject *self, PyObject *args)
{
    int64_t numbers[TN_MAX_NDIM];
    int32_t axes[TN_MAX_NDIM], count, ndim = tn_tensor_ndim(tensor_in(self));
    if (PyTuple_GET_SIZE(args) == 0)
        return transpose_by(self, NULL);
    if (tnp_shape(numbers_of(args), numbers, &count) < 0)
        return NULL;
    if (count != ndim) {
        PyErr_Format(PyExc_ValueError, "%d axes for a tensor of %d", (int)count, (int)ndim);
        return NULL;
    }
    for (int32_t i = 0; i < count; i++) {
        int64_t axis = numbers[i] < 0 ? numbers[i] + ndim : numbers[i];
        axes[i] = axis < 0 || axis >= ndim ? -1 : (int32_t)axis;
    }
    return transpose_by(self, axes);
}

PyObject *tnp_tensor_get_transposed(PyObject *self, void *unused)
{
    (void)unused;
    return transpose_by(self, NULL);
}

/* ---- copies ------------------------------------------------------------------------------ */

int tnp_tensor_make_alike(const tn_tensor *t, PyObject *domain, tn_deadline deadline,
                          tn_tensor **ret)
{
    if (domain == NULL)
        return tn_tensor_create_private(tn_tensor_dtype(t), tn_tensor_ndim(t),
                                        tn_tensor_shape(t), ret);
    tnp_tensor_request request = {.dtype = tn_tensor_dtype(t),
                                  .ndim = tn_tensor_ndim(t),
                                  .deadline = deadline,
                                  .device = tn_tensor_device(t)};
    memcpy(request.shape, tn_tensor_shape(t), (size_t)request.ndim * sizeof request.shape[0]);
    return tnp_domain_make_tensor(domain, &request, ret);
}

PyObject *tnp_tensor_copy(PyObject *self, PyObject *unused)
{
    PyObject *domain = tnp_tensor_domain(self);
    tn_tensor *result;
    (void)unused;
    if (domain != NULL && tnp_domain_of(domain) == NULL)
        return NULL;
    int status = tnp_tensor_make_alike(tensor_in(self), domain, TN_NOW, &result);
    if (status == 0 && (status = tn_tensor_copy_attributes(result, tensor_in(self))) != 0)
        tn_tensor_unref(result);
    if (status != 0)
        return tnp_raise(status);
    if (tnp_tensor_copy_all((tnp_side){result, NULL}, (tnp_side){tensor_in(self), self}) < 0) {
        tn_tensor_unref(result);
        return NULL;
    }
    return tnp_tensor_wrap(result, domain);
}

/*
 * For copy.deepcopy(). Without it the module would pickle the tensor, and the handle would give
 * the same storage.
 */
PyObject *tnp_tensor_deep_copy(PyObject *self, PyObject *memo)
{
    (void)memo;
    return tnp_tensor_copy(self, NULL);
}

PyObject *tnp_tensor_shallow_copy(PyObject *self, PyObject *unused)
{
    (void)unused;
    return tnp_tensor_wrap_view(tn_tensor_ref(tensor_in(self)), self);
}

PyObject *tnp_tensor_tobytes(PyObject *self, PyObject *unused)
{
    tn_tensor *t = tensor_in(self), *dense;
    (void)unused;
    if (tnp_tensor_check_on_cpu(self) < 0)
        return NULL;
    if (tnp_info(t).is_contiguous)
        return tnp_bytes(self, tn_tensor_data(t), tnp_info(t).size_bytes);
    int status = tn_tensor_create_private(tn_tensor_dtype(t), tn_tensor_ndim(t),
                                          tn_tensor_shape(t), &dense);
    if (status == 0 && (status = tn_tensor_copy_attributes(dense, t)) != 0)
        tn_tensor_unref(dense);
    if (status != 0)
        return tnp_raise(status);
    PyObject *bytes = NULL;
    if (tnp_tensor_copy_all((tnp_side){dense, NULL}, (tnp_side){t, self}) == 0)
        bytes = tnp_bytes(NULL, tn_tensor_data(dense), tnp_info(dense).size_bytes);
    tn_tensor_unref(dense);
    return bytes;
}
