/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exchange: the same memory in other libraries, by the buffer protocol (buffer.c), by DLPack
 * (dlpack_export.c, dlpack_import.c), by __cuda_array_interface__ (device.c,
 * cuda_array_import.c) and by __array__.
 *
 * Each library that has a tensor's memory holds an export of tn_tensor_to_dlpack(). The export
 * keeps the storage and forbids that it moves. An export may end in any thread, with or without
 * the GIL, and after the domain was closed.
 */
#include "tensor.h"

PyObject *tnp_tensor_from(PyObject *object)
{
    if (tnp_is_tensor(object)) {
        Py_INCREF(object);
        return object;
    }
    if (PyObject_CheckBuffer(object))
        return tnp_from_buffer(NULL, object);
    if (PyCapsule_CheckExact(object) || PyObject_HasAttrString(object, "__dlpack__"))
        return tnp_from_dlpack(object);
    if (tnp_has_cuda_array(object))
        return tnp_from_cuda_array(object);
    if (PyList_Check(object) || PyTuple_Check(object)) {
        PyObject *numpy = PyImport_ImportModule("numpy");
        PyObject *array =
            numpy == NULL ? NULL : PyObject_CallMethod(numpy, "asarray", "(O)", object);
        PyObject *tensor = array == NULL ? NULL : tnp_from_buffer(NULL, array);
        Py_XDECREF(numpy);
        Py_XDECREF(array);
        return tensor;
    }
    PyErr_Format(PyExc_TypeError,
                 "a number, a tensor, or an object with a buffer, __dlpack__ or "
                 "__cuda_array_interface__ is needed, not %.200s",
                 Py_TYPE(object)->tp_name);
    return NULL;
}

PyObject *tnp_tensor_array(PyObject *self, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"dtype", "copy", NULL};
    PyObject *dtype = Py_None, *copy = Py_None, *array = NULL, *result = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "|OO:__array__", names, &dtype, &copy))
        return NULL;
    PyObject *numpy = PyImport_ImportModule("numpy");
    PyObject *memory = numpy != NULL ? PyMemoryView_FromObject(self) : NULL;
    if (memory != NULL)
        array = PyObject_CallMethod(numpy, "asarray", "O", memory);
    if (array != NULL && copy == Py_True) {
        result = PyObject_CallMethod(numpy, "array", "OO", array, dtype);
    } else if (array != NULL) {
        result = PyObject_CallMethod(numpy, "asarray", "OO", array, dtype);
        if (result != NULL && copy == Py_False && result != array) {
            PyErr_Format(PyExc_ValueError, "dtype %R cannot be had without a copy", dtype);
            Py_CLEAR(result);
        }
    }
    Py_XDECREF(array);
    Py_XDECREF(memory);
    Py_XDECREF(numpy);
    return result;
}
