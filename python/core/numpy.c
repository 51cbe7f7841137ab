/* SPDX-License-Identifier: Apache-2.0 */
/*
 * numpy: NumPy arrays over tensors. NumPy is imported when the first message with an array
 * arrives.
 */
#include "codec.h"

PyTypeObject *tnp_ndarray_type;
static PyObject
    *ndarray_dtypes[18][5]; /* dtypes, by code and by size: index n is 1 << n bytes */

/* @return false: no module has imported NumPy, so no object is an array */
bool tnp_has_numpy(void)
{
    if (tnp_ndarray_type != NULL)
        return true;
    PyObject *name = PyUnicode_FromString("numpy");
    PyObject *numpy = name == NULL ? NULL : PyImport_GetModule(name);
    PyObject *type = numpy == NULL ? NULL : PyObject_GetAttrString(numpy, "ndarray");
    Py_XDECREF(name);
    Py_XDECREF(numpy);
    if (type != NULL && PyType_Check(type))
        tnp_ndarray_type = (PyTypeObject *)type;
    PyErr_Clear(); /* another thread is still importing NumPy */
    return tnp_ndarray_type != NULL;
}

static PyObject *numpy_dtype(tn_dtype dtype)
{
    unsigned log2 = 0;
    char name[32];
    while (log2 < 4 && (8u << log2) < TN_DTYPE_BITS(dtype))
        log2++;
    PyObject **place =
        TN_DTYPE_CODE(dtype) < 18 ? &ndarray_dtypes[TN_DTYPE_CODE(dtype)][log2] : NULL;
    if (place != NULL && *place != NULL)
        return *place;
    PyObject *numpy = PyImport_ImportModule("numpy"), *made = NULL;
    if (numpy != NULL && tnp_has_numpy() && place != NULL && TN_DTYPE_LANES(dtype) == 1 &&
        tn_dtype_name(dtype, name, sizeof name) == 0)
        made = PyObject_CallMethod(numpy, "dtype", "s", name);
    else if (!PyErr_Occurred())
        PyErr_SetString(PyExc_TypeError,
                        "the message has an array of a dtype that NumPy does not have");
    Py_XDECREF(numpy);
    return made == NULL ? NULL : (*place = made);
}

PyObject *tnp_array_over(PyObject *tensor)
{
    const tn_tensor *t = ((tnp_tensor *)tensor)->tensor;
    PyObject *dtype = numpy_dtype(tn_tensor_dtype(t)), *array = NULL;
    if (dtype == NULL)
        return NULL;
    if (!tnp_info(t).is_contiguous) {
        PyObject *numpy = PyImport_ImportModule("numpy");
        if (numpy != NULL)
            array = PyObject_CallMethod(numpy, "asarray", "(O)", tensor);
        Py_XDECREF(numpy);
        return array;
    }
    PyObject *shape = tnp_tuple(tn_tensor_shape(t), tn_tensor_ndim(t));
    if (shape != NULL)
        array = PyObject_CallFunctionObjArgs((PyObject *)tnp_ndarray_type, shape, dtype, tensor,
                                             NULL);
    Py_XDECREF(shape);
    return array;
}

PyObject *tnp_fixed_array_over(PyObject *tensor)
{
    PyObject *array = tnp_array_over(tensor);
    PyObject *done = array == NULL ? NULL : PyObject_CallMethod(array, "setflags", "i", 0);
    if (done == NULL)
        Py_CLEAR(array);
    Py_XDECREF(done);
    return array;
}

/*
 * Whether a dtype holds dates or durations. No tensor has such elements, but their numbers are
 * integers.
 */
static bool has_dates(PyObject *dtype)
{
    PyObject *kind = PyObject_GetAttrString(dtype, "kind");
    const char *letter = kind == NULL ? NULL : PyUnicode_AsUTF8(kind);
    bool has = letter != NULL && (letter[0] == 'M' || letter[0] == 'm');
    Py_XDECREF(kind);
    return has;
}

/* For a dtype that no tensor has: pickle dates as integers, all else as NumPy does. */
PyObject *tnp_reduce_by_numpy(PyObject *array)
{
    PyObject *dtype = PyObject_GetAttrString(array, "dtype"), *result = NULL;
    if (dtype != NULL && has_dates(dtype)) {
        PyObject *view = PyObject_GetAttrString((PyObject *)tnp_ndarray_type, "view");
        PyObject *numbers = PyObject_CallMethod(array, "view", "s", "int64");
        if (view != NULL && numbers != NULL)
            result = Py_BuildValue("O(OO)", view, numbers, dtype);
        Py_XDECREF(view);
        Py_XDECREF(numbers);
    } else if (dtype != NULL && !PyErr_Occurred()) {
        result = PyObject_CallMethod(array, "__reduce_ex__", "i", 5);
    }
    Py_XDECREF(dtype);
    return result;
}
