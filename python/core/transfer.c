/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transfer: make arrays and tensors available as tensors of a domain. Memory that lies in the
 * domain is used as it is, private tensors are moved into it, and all other memory is copied
 * once.
 */
#include "codec.h"

#include <string.h>

static tn_tensor *tensor_in(PyObject *self) { return ((tnp_tensor *)self)->tensor; }

/* NULL: raised. */
tn_tensor *tnp_new_tensor(PyObject *domain, tn_dtype dtype, int32_t ndim, const int64_t *shape,
                          tn_deadline deadline)
{
    tn_tensor *tensor;
    tnp_tensor_request request = {.dtype = dtype, .ndim = ndim, .deadline = deadline};
    if (tnp_domain_of(domain) == NULL)
        return NULL;
    memcpy(request.shape, shape, (size_t)ndim * sizeof shape[0]);
    int status = tnp_domain_make_tensor(domain, &request, &tensor);
    if (status != 0)
        tnp_raise(status);
    return status == 0 ? tensor : NULL;
}

void tnp_copy_bytes(void *to, const void *from, size_t size_bytes)
{
    if (size_bytes < TNP_MANY_BYTES) {
        memcpy(to, from, size_bytes);
        return;
    }
    Py_BEGIN_ALLOW_THREADS memcpy(to, from, size_bytes);
    Py_END_ALLOW_THREADS
}

/*
 * Copy an array that is contiguous in neither row-major nor column-major order. If a stride is
 * not a multiple of the element size, no tensor can describe the array, and
 * PyBuffer_ToContiguous() copies it.
 * @return -1: raised
 */
static int copy_elements(tn_tensor *to, PyObject *array, Py_buffer *view)
{
    PyObject *source = tnp_from_buffer(NULL, array);
    if (source == NULL) {
        PyErr_Clear();
        return PyBuffer_ToContiguous(tn_tensor_data(to), view, view->len, 'C');
    }
    int failed = tnp_tensor_copy_all((tnp_side){.tensor = to},
                                     (tnp_side){.tensor = tensor_in(source), .owner = source});
    Py_DECREF(source);
    return failed;
}

/*
 * Copy the elements into the domain. A column-major array becomes a column-major tensor. NULL:
 * raised.
 */
static tn_tensor *copy_of(PyObject *domain, PyObject *array, Py_buffer *view, tn_dtype dtype,
                          tn_deadline deadline)
{
    int64_t shape[TN_MAX_NDIM];
    bool is_reversed =
        view->ndim > 1 && !PyBuffer_IsContiguous(view, 'C') && PyBuffer_IsContiguous(view, 'F');
    for (int i = 0; i < view->ndim; i++)
        shape[is_reversed ? view->ndim - 1 - i : i] = view->shape[i];
    tn_tensor *copy = tnp_new_tensor(domain, dtype, view->ndim, shape, deadline), *reversed;
    if (copy == NULL || view->len == 0)
        return copy;
    if (is_reversed || PyBuffer_IsContiguous(view, 'C')) {
        tnp_copy_bytes(tn_tensor_data(copy), view->buf, (size_t)view->len);
    } else if (copy_elements(copy, array, view) < 0) {
        tn_tensor_unref(copy);
        return NULL;
    }
    if (!is_reversed)
        return copy;
    int status = tn_tensor_transpose(copy, NULL, &reversed);
    tn_tensor_unref(copy);
    if (status != 0)
        tnp_raise(status);
    return status == 0 ? reversed : NULL;
}

tn_tensor *tnp_storage_of(PyObject *domain, const void *bytes, uint64_t size_bytes)
{
    tn_tensor *storage;
    tn_domain *d = ((tnp_domain *)domain)->domain;
    if (size_bytes == 0 || d == NULL || tn_tensor_find(d, bytes, size_bytes, &storage) != 0)
        return NULL;
    return storage;
}

/* A view that matches the buffer, if the buffer lies in the domain. NULL: it does not. */
static tn_tensor *find_view(PyObject *domain, const Py_buffer *view, tn_dtype dtype)
{
    int64_t shape[TN_MAX_NDIM], strides[TN_MAX_NDIM];
    const char *low = view->buf, *high = low + view->itemsize;
    tn_tensor *storage, *tensor;
    if (view->len == 0)
        return NULL;
    for (int i = 0; i < view->ndim; i++) {
        if (view->strides[i] % view->itemsize != 0)
            return NULL;
        shape[i] = view->shape[i];
        strides[i] = view->strides[i] / view->itemsize;
        *(view->strides[i] < 0 ? &low : &high) += view->strides[i] * (view->shape[i] - 1);
    }
    if ((storage = tnp_storage_of(domain, low, (uint64_t)(high - low))) == NULL)
        return NULL;
    uint64_t offset = (uint64_t)((const char *)view->buf - (char *)tn_tensor_data(storage));
    int status = tn_tensor_view(storage, dtype, view->ndim, shape, strides, offset, &tensor);
    tn_tensor_unref(storage);
    return status == 0 ? tensor : NULL;
}

PyObject *tnp_transfer_array(PyObject *domain, PyObject *array, bool may_copy,
                             tn_deadline deadline, bool *ret_is_fixed)
{
    Py_buffer view;
    tn_dtype dtype;
    tn_tensor *tensor = NULL;
    *ret_is_fixed = false;
    if (PyObject_GetBuffer(array, &view, PyBUF_FULL_RO) < 0) {
        PyErr_Clear();
        return NULL;
    }
    if (view.ndim > TN_MAX_NDIM || tnp_parse_format(view.format, view.itemsize, &dtype) < 0)
        PyErr_Clear();
    else if ((tensor = find_view(domain, &view, dtype)) != NULL)
        *ret_is_fixed = view.readonly != 0;
    else if (may_copy && (tensor = copy_of(domain, array, &view, dtype, deadline)) != NULL)
        tnp_note_copy((uint64_t)view.len);
    PyBuffer_Release(&view);
    return tensor == NULL ? NULL : tnp_tensor_wrap(tensor, domain);
}

/* Whether a tensor lies in a domain. Two Python objects may stand for one domain. */
static bool lies_in(PyObject *tensor, PyObject *domain)
{
    PyObject *own = tnp_tensor_domain(tensor);
    return own != NULL && ((tnp_domain *)own)->domain == ((tnp_domain *)domain)->domain;
}

/* NULL: on a device, where the address is for those who give its work a stream. */
static const void *host_address(const tn_tensor *t)
{
    return tn_tensor_device(t).type == TN_DEVICE_CPU ? tn_tensor_data(t) : NULL;
}

/* A private tensor is moved. Where moving is denied, the tensor is copied. */
PyObject *tnp_transfer_tensor(PyObject *domain, PyObject *object, tn_deadline deadline)
{
    const tn_tensor *t = tensor_in(object);
    const void *former = host_address(t);
    int status = 0;
    if (tnp_domain_of(domain) == NULL)
        return NULL;
    if (!tnp_info(t).is_shared)
        status = tnp_tensor_share_in(object, domain, deadline, NULL);
    if (status == 0 && lies_in(object, domain)) {
        if (host_address(t) != former)
            tnp_note_copy(tnp_info(t).size_bytes);
        Py_INCREF(object);
        return object;
    }
    if (status != 0 && status != TN_ERR_DENIED)
        return tnp_raise(status);
    tn_tensor *copy;
    if (tnp_domain_of(domain) == NULL)
        return NULL;
    if ((status = tnp_tensor_make_alike(t, domain, deadline, &copy)) != 0)
        return tnp_raise(status);
    if ((status = tn_tensor_copy_attributes(copy, t)) != 0)
        tnp_raise(status);
    if (status == 0 && tnp_tensor_copy_all((tnp_side){copy, NULL},
                                           (tnp_side){tensor_in(object), object}) == 0) {
        tnp_note_copy(tnp_info(copy).size_bytes);
        return tnp_tensor_wrap(copy, domain);
    }
    tn_tensor_unref(copy);
    return NULL;
}
