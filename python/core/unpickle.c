/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unpickle: read pickles, and the tensors that came beside them.
 *
 * Another process wrote the message (I1 of codec.c), so this file checks each number in it.
 */
#include "codec.h"

#include <string.h>

static PyObject *loads;      /* pickle.loads */
static PyObject *no_buffers; /* a list, always empty */

PyObject *tnp_fail_message(const char *what)
{
    return tnp_raise_text(
        TN_ERR_INVALID,
        "the message has no value that put() of Python wrote: %s. receive() of "
        "a tenon.Queue, or parts() of a tenon.Store, gives its data and tensors",
        what);
}

/* The buffers of the pickle, as a list. Each place is checked against the tensors that came. */
static PyObject *find_buffers(const char *places, uint32_t count, PyObject *tensors)
{
    PyObject *buffers = PyList_New(0);
    for (uint32_t i = 0; buffers != NULL && i < count; i++) {
        struct tnp_place place;
        PyObject *view = NULL, *part = NULL;
        memcpy(&place, places + i * sizeof place, sizeof place);
        if (place.tensor < PyList_GET_SIZE(tensors)) {
            PyObject *tensor = PyList_GET_ITEM(tensors, place.tensor);
            uint64_t all = tnp_info(((tnp_tensor *)tensor)->tensor).size_bytes;
            if (place.offset <= all && place.size_bytes <= all - place.offset)
                view = PyMemoryView_FromObject(tensor);
            else
                tnp_fail_message("a buffer lies outside of its tensor");
        } else {
            tnp_fail_message("a buffer is of a tensor that did not come");
        }
        if (view != NULL)
            part = PySequence_GetSlice(view, (Py_ssize_t)place.offset,
                                       (Py_ssize_t)(place.offset + place.size_bytes));
        Py_XDECREF(view);
        if (part == NULL || PyList_Append(buffers, part) < 0)
            Py_CLEAR(buffers);
        Py_XDECREF(part);
    }
    return buffers;
}

/* Add a note to the exception that was raised: which classes the pickle names. */
static void note_names(PyObject *memory)
{
    PyObject *type, *error, *traceback, *done = NULL;
    PyErr_Fetch(&type, &error, &traceback);
    PyErr_NormalizeException(&type, &error, &traceback);
    PyObject *explain = PyImport_ImportModule("tenon._explain");
    if (explain != NULL)
        done = PyObject_CallMethod(explain, "note", "OO", error, memory);
    Py_XDECREF(explain);
    Py_XDECREF(done);
    PyErr_Clear();
    PyErr_Restore(type, error, traceback);
}

/* The common case: no buffer came beside the pickle. */
static PyObject *unpickle_alone(const char *bytes, Py_ssize_t size_bytes)
{
    PyObject *pickled = PyBytes_FromStringAndSize(bytes, size_bytes);
    PyObject *value =
        pickled == NULL ? NULL : PyObject_CallFunctionObjArgs(loads, pickled, NULL);
    if (value == NULL && pickled != NULL)
        note_names(pickled);
    Py_XDECREF(pickled);
    return value;
}

static PyObject *unpickle(const char *bytes, Py_ssize_t size_bytes, PyObject *buffers)
{
    if (PyList_GET_SIZE(buffers) == 0 && size_bytes <= TNP_FEW_BYTES)
        return unpickle_alone(bytes, size_bytes);
    PyObject *value = NULL, *keywords = NULL;
    PyObject *memory =
        PyMemoryView_FromMemory((char *)(uintptr_t)bytes, size_bytes, PyBUF_READ);
    PyObject *arguments = memory == NULL ? NULL : PyTuple_Pack(1, memory);
    if (arguments != NULL)
        keywords = Py_BuildValue("{sO}", "buffers", buffers);
    if (keywords != NULL)
        value = PyObject_Call(loads, arguments, keywords);
    if (value == NULL && memory != NULL)
        note_names(memory);
    Py_XDECREF(keywords);
    Py_XDECREF(arguments);
    Py_XDECREF(memory);
    return value;
}

PyObject *tnp_decode_pickle(const char *bytes, size_t size_bytes, PyObject *tensors)
{
    struct tnp_head head;
    if (size_bytes < sizeof head)
        return tnp_fail_message("it is too short");
    memcpy(&head, bytes, sizeof head);
    size_t room = (size_bytes - sizeof head) / sizeof(struct tnp_place);
    if (head.place_count > room)
        return tnp_fail_message("it is too short for its buffers");
    const char *places = bytes + sizeof head;
    size_t before = sizeof head + head.place_count * sizeof(struct tnp_place);
    PyObject *buffers = no_buffers;
    if (head.place_count == 0)
        Py_INCREF(buffers);
    else if ((buffers = find_buffers(places, head.place_count, tensors)) == NULL)
        return NULL;
    struct tnp_conversion mine = {.tensors = tensors, .outer = tnp_conversion_now};
    tnp_conversion_now = &mine;
    PyObject *value = unpickle(bytes + before, (Py_ssize_t)(size_bytes - before), buffers);
    tnp_conversion_now = mine.outer;
    Py_DECREF(buffers);
    return value;
}

/* Borrowed; NULL: raised. */
static PyObject *tensor_numbered(PyObject *number)
{
    Py_ssize_t n = PyLong_AsSsize_t(number);
    if (n == -1 && PyErr_Occurred())
        return NULL;
    if (tnp_conversion_now == NULL || tnp_conversion_now->domain != NULL || n < 0 ||
        n >= PyList_GET_SIZE(tnp_conversion_now->tensors))
        return tnp_fail_message("it names a tensor that did not come with it");
    return PyList_GET_ITEM(tnp_conversion_now->tensors, n);
}

static PyObject *take(PyObject *module, PyObject *number)
{
    PyObject *tensor = tensor_numbered(number);
    (void)module;
    Py_XINCREF(tensor);
    return tensor;
}

static PyObject *take_array(PyObject *module, PyObject *number)
{
    PyObject *tensor = tensor_numbered(number);
    (void)module;
    return tensor == NULL ? NULL : tnp_array_over(tensor);
}

static PyObject *take_fixed_array(PyObject *module, PyObject *number)
{
    PyObject *tensor = tensor_numbered(number);
    (void)module;
    return tensor == NULL ? NULL : tnp_fixed_array_over(tensor);
}

static PyMethodDef functions[] = {
    {"take", take, METH_O,
     "take($module, number, /)\n--\n\n"
     "While loads() runs: the tensor of a number."},
    {"take_array", take_array, METH_O,
     "take_array($module, number, /)\n--\n\n"
     "The same, as an array of NumPy's."},
    {"take_fixed_array", take_fixed_array, METH_O,
     "take_fixed_array($module, number, /)\n--\n\n"
     "The same, which cannot be written."},
    {NULL, NULL, 0, NULL},
};

int tnp_unpickle_init(PyObject *module)
{
    PyObject *pickle = PyImport_ImportModule("pickle");
    loads = pickle == NULL ? NULL : PyObject_GetAttrString(pickle, "loads");
    Py_XDECREF(pickle);
    no_buffers = PyList_New(0);
    if (loads == NULL || no_buffers == NULL)
        return -1;
    return PyModule_AddFunctions(module, functions);
}
