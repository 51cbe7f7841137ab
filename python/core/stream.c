/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stream: the order of a tensor's work on streams of a device, across processes.
 *
 * A stream is an int, the handle that the driver has for it, or an object of a library that has
 * this number. tenon keeps no stream: the caller keeps it until the call returns, or, of a
 * queue, until the queue has another one.
 * Source: cuda_stream of torch.cuda.Stream, ptr of cupy.cuda.Stream, and __cuda_stream__ of
 * NVIDIA's cuda.core, "CUDA stream protocol".
 */
#include "tensor.h"

static tn_tensor *tensor_in(PyObject *self) { return ((tnp_tensor *)self)->tensor; }

/* ---- which stream ------------------------------------------------------------------------ */

/* What __cuda_stream__() gives: a version and the handle. NULL: raised. */
static PyObject *handle_by_protocol(PyObject *object)
{
    PyObject *pair = PyObject_GetAttrString(object, "__cuda_stream__");
    if (pair != NULL && PyCallable_Check(pair)) {
        PyObject *method = pair;
        pair = PyObject_CallNoArgs(method);
        Py_DECREF(method);
    }
    if (pair == NULL)
        return NULL;
    PyObject *handle = PySequence_Check(pair) && PySequence_Size(pair) == 2
                           ? PySequence_GetItem(pair, 1)
                           : NULL;
    if (handle == NULL && !PyErr_Occurred())
        PyErr_Format(PyExc_TypeError, "__cuda_stream__ of %.200s is not (version, handle)",
                     Py_TYPE(object)->tp_name);
    Py_DECREF(pair);
    return handle;
}

/* The handle of a stream, an int or an object like one, a new reference. NULL: raised. */
static PyObject *handle_of(PyObject *object)
{
    static const char *const names[] = {"cuda_stream", "ptr"};
    if (PyIndex_Check(object)) {
        Py_INCREF(object);
        return object;
    }
    for (size_t i = 0; i < TNP_COUNT(names); i++)
        if (PyObject_HasAttrString(object, names[i]))
            return PyObject_GetAttrString(object, names[i]);
    if (PyObject_HasAttrString(object, "__cuda_stream__"))
        return handle_by_protocol(object);
    PyErr_Format(PyExc_TypeError,
                 "a stream is an int, or an object with cuda_stream, ptr or __cuda_stream__, "
                 "not %.200s",
                 Py_TYPE(object)->tp_name);
    return NULL;
}

int tnp_stream(PyObject *object, void **ret_stream)
{
    uint64_t number = 0;
    if (object != NULL && object != Py_None) {
        PyObject *handle = handle_of(object);
        int failed = handle == NULL ? -1 : tnp_word(handle, &number);
        Py_XDECREF(handle);
        if (failed < 0)
            return -1;
    }
    *ret_stream = (void *)(uintptr_t)number;
    return 0;
}

/* ---- tensors ----------------------------------------------------------------------------- */

/* Of a method that has a stream as its only argument. NULL: raised. */
static PyObject *with_stream(PyObject *self, PyObject *argument, bool is_record)
{
    void *stream;
    int status;
    if (tnp_stream(argument, &stream) < 0)
        return NULL;
    PyObject *domain = tnp_tensor_domain(self);
    if (domain != NULL && tnp_domain_of(domain) == NULL)
        return NULL;
    tn_tensor *t = tensor_in(self);
    tnp_tensor_begin_use(self); /* where the driver cannot order streams, the call waits */
    if (domain == NULL)
        TNP_UNLOCKED(status,
                     is_record ? tn_tensor_record(t, stream) : tn_tensor_wait(t, stream));
    else
        TNP_WAIT(domain, status,
                 is_record ? tn_tensor_record(t, stream) : tn_tensor_wait(t, stream));
    tnp_tensor_end_use(self);
    if (status != 0)
        return tnp_raise(status);
    Py_RETURN_NONE;
}

static PyObject *stream_argument(PyObject *args, PyObject *keywords, const char *format)
{
    static char *names[] = {"stream", NULL};
    PyObject *stream = Py_None;
    return PyArg_ParseTupleAndKeywords(args, keywords, format, names, &stream) ? stream : NULL;
}

PyObject *tnp_tensor_record(PyObject *self, PyObject *args, PyObject *keywords)
{
    PyObject *stream = stream_argument(args, keywords, "|O:record");
    return stream == NULL ? NULL : with_stream(self, stream, true);
}

PyObject *tnp_tensor_wait(PyObject *self, PyObject *args, PyObject *keywords)
{
    PyObject *stream = stream_argument(args, keywords, "|O:wait");
    return stream == NULL ? NULL : with_stream(self, stream, false);
}

int tnp_tensor_let_wait(PyObject *self, void *stream)
{
    PyObject *handle = PyLong_FromUnsignedLongLong((uintptr_t)stream);
    PyObject *none = handle == NULL ? NULL : with_stream(self, handle, false);
    Py_XDECREF(handle);
    Py_XDECREF(none);
    return none == NULL ? -1 : 0;
}

PyObject *tnp_tensor_sync(PyObject *self, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"timeout", NULL};
    PyObject *timeout = Py_None;
    tn_deadline deadline;
    int status;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "|O:sync", names, &timeout) ||
        tnp_deadline(timeout, TN_FOREVER, &deadline) < 0)
        return NULL;
    PyObject *domain = tnp_tensor_domain(self);
    if (domain != NULL && tnp_domain_of(domain) == NULL)
        return NULL;
    tn_tensor *t = tensor_in(self);
    if (domain == NULL)
        status = tn_tensor_sync(t, deadline); /* private memory: nothing is pending */
    else
        TNP_WAIT(domain, status, tn_tensor_sync(t, deadline));
    if (status != 0)
        return tnp_raise(status);
    Py_RETURN_NONE;
}

int tnp_tensor_is_pending(PyObject *self)
{
    int status = tn_tensor_sync(tensor_in(self), TN_NOW);
    if (status == 0 || status == TN_ERR_TIMED_OUT)
        return status == 0 ? 0 : 1;
    tnp_raise(status);
    return -1;
}

PyObject *tnp_tensor_get_is_incomplete(PyObject *self, void *unused)
{
    (void)unused;
    return PyBool_FromLong(tnp_info(tensor_in(self)).is_incomplete);
}
