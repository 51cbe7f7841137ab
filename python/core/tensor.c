/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tensor: the memory of the type, and copies between tensors. The methods stand in files above
 * this one; tensor_type.c puts them into the type.
 */
#include "tensor.h"

#include <string.h>

PyObject *tnp_tensor_wrap(tn_tensor *tensor, PyObject *domain)
{
    tnp_tensor *self = (tnp_tensor *)tnp_tensor_type.tp_alloc(&tnp_tensor_type, 0);
    if (self == NULL) {
        tn_tensor_unref(tensor);
        return NULL;
    }
    Py_XINCREF(domain);
    self->domain = domain;
    self->tensor = tensor;
    return (PyObject *)self;
}

PyObject *tnp_tensor_domain(PyObject *object)
{
    const tnp_tensor *self = (tnp_tensor *)object;
    return self->domain == NULL && self->base != NULL ? ((tnp_tensor *)self->base)->domain
                                                      : self->domain;
}

PyObject *tnp_tensor_wrap_view(tn_tensor *view, PyObject *tensor)
{
    PyObject *domain = tnp_tensor_domain(tensor), *base = ((tnp_tensor *)tensor)->base;
    tnp_tensor *self = (tnp_tensor *)tnp_tensor_wrap(view, domain);
    if (self != NULL && domain == NULL) {
        self->base = base != NULL ? base : tensor;
        Py_INCREF(self->base);
    }
    return (PyObject *)self;
}

/* Memory of a device is given back after the device's work, which may take long. */
static void release(tn_tensor *tensor)
{
    if (tn_tensor_device(tensor).type == TN_DEVICE_CPU) {
        tn_tensor_unref(tensor);
        return;
    }
    Py_BEGIN_ALLOW_THREADS;
    tn_tensor_unref(tensor);
    Py_END_ALLOW_THREADS;
}

static void dealloc(PyObject *object)
{
    tnp_tensor *self = (tnp_tensor *)object;
    if (self->weak != NULL)
        PyObject_ClearWeakRefs(object);
    release(self->tensor);
    Py_XDECREF(self->domain);
    Py_XDECREF(self->base);
    Py_TYPE(object)->tp_free(object);
}

PyTypeObject tnp_tensor_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "tenon.Tensor",
    .tp_doc = "A typed, strided view of a storage, which is shared or private.",
    .tp_basicsize = sizeof(tnp_tensor),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_dealloc = dealloc,
    .tp_weaklistoffset = offsetof(tnp_tensor, weak),
};

/* The first tensor over the same storage: its `domain` is set when the storage is shared. */
static tnp_tensor *first_of(PyObject *object)
{
    tnp_tensor *self = (tnp_tensor *)object;
    return self->base != NULL ? (tnp_tensor *)self->base : self;
}

void tnp_tensor_begin_use(PyObject *tensor)
{
    if (tensor != NULL)
        tnp_begin_wait(&first_of(tensor)->users);
}

void tnp_tensor_end_use(PyObject *tensor)
{
    if (tensor != NULL)
        tnp_end_wait(&first_of(tensor)->users);
}

void tnp_tensor_wait_until_unused(PyObject *tensor)
{
    while (tnp_waiter_count(&first_of(tensor)->users) > 0)
        tnp_pause();
}

/* A copy from or to a device waits for what the device does. */
static bool is_on_device(tnp_side side)
{
    return tn_tensor_device(side.tensor).type != TN_DEVICE_CPU;
}

int tnp_tensor_copy_status(tnp_side target, tnp_side source)
{
    int status;
    if (tnp_info(target.tensor).size_bytes < TNP_MANY_BYTES && !is_on_device(target) &&
        !is_on_device(source)) {
        status = tn_tensor_copy(target.tensor, source.tensor);
    } else {
        tnp_tensor_begin_use(target.owner);
        tnp_tensor_begin_use(source.owner);
        TNP_UNLOCKED(status, tn_tensor_copy(target.tensor, source.tensor));
        tnp_tensor_end_use(target.owner);
        tnp_tensor_end_use(source.owner);
    }
    return status;
}

int tnp_tensor_copy_all(tnp_side target, tnp_side source)
{
    int status = tnp_tensor_copy_status(target, source);
    if (status != 0)
        tnp_raise(status);
    return status != 0 ? -1 : 0;
}

PyObject *tnp_bytes(PyObject *tensor, const void *start, size_t size_bytes)
{
    if (size_bytes < TNP_MANY_BYTES)
        return PyBytes_FromStringAndSize(start, (Py_ssize_t)size_bytes);
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size_bytes);
    if (bytes == NULL)
        return NULL;
    tnp_tensor_begin_use(tensor);
    Py_BEGIN_ALLOW_THREADS memcpy(PyBytes_AS_STRING(bytes), start, size_bytes);
    Py_END_ALLOW_THREADS tnp_tensor_end_use(tensor);
    return bytes;
}
