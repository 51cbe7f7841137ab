/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attribute_number: the attributes that are lists of numbers: levels of detail, and quantizers.
 */
#include "tensor.h"

static tn_tensor *tensor_in(PyObject *self) { return ((tnp_tensor *)self)->tensor; }

static int raise_if(int status)
{
    if (status != 0)
        tnp_raise(status);
    return status != 0 ? -1 : 0;
}

/* `del t.lod` means the same as `t.lod = None`. */
static bool is_none(const PyObject *value) { return value == NULL || value == Py_None; }

/* ---- levels of detail -------------------------------------------------------------------- */

/*
 * Making a list may run Python code, which may end what the getter lent (P1). So the getter is
 * called again, until the count stays. NULL: raised.
 */
static PyObject *level_list(const tn_tensor *tensor, uint32_t level)
{
    uint32_t count = 0, before;
    const uint64_t *offsets = tn_tensor_lod(tensor, level, &count);
    PyObject *list = NULL;
    do {
        before = count;
        Py_XSETREF(list, PyList_New(before));
        if (list == NULL)
            return NULL;
        count = 0;
        offsets = tn_tensor_lod(tensor, level, &count);
    } while (count != before);
    for (uint32_t i = 0; list != NULL && i < count; i++) {
        PyObject *offset = PyLong_FromUnsignedLongLong(offsets[i]);
        if (offset == NULL)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, i, offset);
    }
    return list;
}

PyObject *tnp_tensor_get_lod(PyObject *self, void *unused)
{
    uint32_t levels = 0;
    while (tn_tensor_lod(tensor_in(self), levels, NULL) != NULL)
        levels++;
    (void)unused;
    if (levels == 0)
        Py_RETURN_NONE;
    PyObject *lod = PyList_New(levels);
    for (uint32_t i = 0; lod != NULL && i < levels; i++) {
        PyObject *level = level_list(tensor_in(self), i);
        if (level == NULL)
            Py_CLEAR(lod);
        else
            PyList_SET_ITEM(lod, i, level);
    }
    return lod;
}

/* Read the offsets of one level into memory of PyMem_New(). NULL: raised. */
static uint64_t *read_level(PyObject *level, uint32_t *ret_count)
{
    PyObject *items = PySequence_Tuple(level);
    if (items == NULL)
        return NULL;
    Py_ssize_t count = PyTuple_GET_SIZE(items);
    uint64_t *offsets = NULL;
    if (count > TN_ATTRIBUTES_MAX_BYTES)
        PyErr_Format(PyExc_ValueError, "%zd offsets in a level of detail", count);
    else if ((offsets = PyMem_New(uint64_t, (size_t)count + 1)) == NULL)
        PyErr_NoMemory();
    for (Py_ssize_t i = 0; offsets != NULL && i < count; i++) {
        offsets[i] = PyLong_AsUnsignedLongLong(PyTuple_GET_ITEM(items, i));
        if (offsets[i] == UINT64_MAX && PyErr_Occurred()) {
            PyMem_Free(offsets);
            offsets = NULL;
        }
    }
    Py_DECREF(items);
    *ret_count = (uint32_t)count;
    return offsets;
}

int tnp_tensor_set_lod(PyObject *self, PyObject *value, void *unused)
{
    uint64_t *offsets[TN_LOD_MAX_LEVELS] = {NULL};
    uint32_t counts[TN_LOD_MAX_LEVELS];
    int failed = 0;
    (void)unused;
    if (is_none(value))
        return raise_if(tn_tensor_set_lod(tensor_in(self), 0, NULL, NULL));
    PyObject *items = PySequence_Tuple(value);
    if (items == NULL)
        return -1;
    Py_ssize_t levels = PyTuple_GET_SIZE(items);
    if (levels > TN_LOD_MAX_LEVELS) {
        PyErr_Format(PyExc_ValueError, "%zd levels of detail; at most %d are possible", levels,
                     TN_LOD_MAX_LEVELS);
        failed = -1;
    }
    for (Py_ssize_t i = 0; i < levels && failed == 0; i++) {
        offsets[i] = read_level(PyTuple_GET_ITEM(items, i), &counts[i]);
        failed = offsets[i] == NULL ? -1 : 0;
    }
    if (failed == 0)
        failed = raise_if(tn_tensor_set_lod(tensor_in(self), (uint32_t)levels, counts,
                                            (const uint64_t *const *)offsets));
    for (size_t i = 0; i < TNP_COUNT(offsets); i++)
        PyMem_Free(offsets[i]);
    Py_DECREF(items);
    return failed;
}

/* ---- quantizers -------------------------------------------------------------------------- */

static int fill_tuples(const tn_quantizer *q, PyObject *scales, PyObject *zeros)
{
    for (uint32_t i = 0; i < q->count; i++) {
        PyObject *scale = PyFloat_FromDouble(q->scales[i]);
        PyObject *zero = PyLong_FromLongLong(q->zero_points[i]);
        PyTuple_SET_ITEM(scales, i, scale);
        PyTuple_SET_ITEM(zeros, i, zero);
        if (scale == NULL || zero == NULL)
            return -1;
    }
    return 0;
}

/*
 * Making tuples may run Python code, which may end what the getter lent (P1). So the getter is
 * called again, until the count stays.
 */
PyObject *tnp_tensor_get_quantizer(PyObject *self, void *unused)
{
    PyObject *scales = NULL, *zeros = NULL, *result = NULL;
    tn_quantizer q = {0};
    uint32_t before;
    (void)unused;
    if (!tn_tensor_quantizer(tensor_in(self), &q))
        Py_RETURN_NONE;
    do {
        before = q.count;
        Py_XSETREF(scales, PyTuple_New(before));
        Py_XSETREF(zeros, PyTuple_New(before));
        if (scales == NULL || zeros == NULL)
            goto end;
        q.count = 0;
    } while (tn_tensor_quantizer(tensor_in(self), &q) && q.count != before);
    if (q.count == 0)
        result = Py_BuildValue("");
    else if (fill_tuples(&q, scales, zeros) == 0 && q.scheme == TN_QUANTIZER_AFFINE_CHANNEL)
        result = Py_BuildValue("OOi", scales, zeros, (int)q.axis);
    else if (!PyErr_Occurred())
        result = Py_BuildValue("OOO", scales, zeros, Py_None);
end:
    Py_XDECREF(scales);
    Py_XDECREF(zeros);
    return result;
}

/*
 * Make a tuple of a number or a sequence of numbers. Converting a number may run Python code,
 * which cannot change a tuple. NULL: raised.
 */
static PyObject *as_tuple(PyObject *value)
{
    if (PyNumber_Check(value) && !PySequence_Check(value))
        return PyTuple_Pack(1, value);
    return PySequence_Tuple(value);
}

static int read_numbers(PyObject *scales, PyObject *zeros, double *ret_scales,
                        int64_t *ret_zeros)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(scales); i++) {
        ret_scales[i] = PyFloat_AsDouble(PyTuple_GET_ITEM(scales, i));
        if (ret_scales[i] == -1.0 && PyErr_Occurred())
            return -1;
        ret_zeros[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(zeros, i));
        if (ret_zeros[i] == -1 && PyErr_Occurred())
            return -1;
    }
    return 0;
}

static int set_parsed(PyObject *self, PyObject *scales, PyObject *zeros, PyObject *axis)
{
    Py_ssize_t count = PyTuple_GET_SIZE(scales);
    if (count != PyTuple_GET_SIZE(zeros) || count > TN_ATTRIBUTES_MAX_BYTES) {
        PyErr_Format(PyExc_ValueError, "a quantizer of %zd scales and %zd zero points", count,
                     PyTuple_GET_SIZE(zeros));
        return -1;
    }
    long number = axis == Py_None ? 0 : PyLong_AsLong(axis);
    if (number == -1 && PyErr_Occurred())
        return -1;
    if (number < 0)
        number += tn_tensor_ndim(tensor_in(self));
    double *values = PyMem_New(double, (size_t)count + 1);
    int64_t *points = PyMem_New(int64_t, (size_t)count + 1);
    int failed = -1;
    if (values == NULL || points == NULL)
        PyErr_NoMemory();
    else
        failed = read_numbers(scales, zeros, values, points);
    if (failed == 0) {
        tn_quantizer q = {.scheme = axis == Py_None ? TN_QUANTIZER_AFFINE
                                                    : TN_QUANTIZER_AFFINE_CHANNEL,
                          .axis = (int32_t)(number > TN_MAX_NDIM ? TN_MAX_NDIM : number),
                          .count = (uint32_t)count,
                          .scales = values,
                          .zero_points = points};
        failed = raise_if(tn_tensor_set_quantizer(tensor_in(self), &q));
    }
    PyMem_Free(values);
    PyMem_Free(points);
    return failed;
}

int tnp_tensor_set_quantizer(PyObject *self, PyObject *value, void *unused)
{
    PyObject *scales, *zeros, *axis = Py_None;
    (void)unused;
    if (is_none(value))
        return raise_if(tn_tensor_set_quantizer(tensor_in(self), NULL));
    if (!PyTuple_Check(value)) {
        PyErr_Format(PyExc_TypeError,
                     "a quantizer is (scales, zero_points, axis or None), not %.200s",
                     Py_TYPE(value)->tp_name);
        return -1;
    }
    if (!PyArg_ParseTuple(value, "OO|O:quantizer", &scales, &zeros, &axis))
        return -1;
    scales = as_tuple(scales);
    zeros = scales != NULL ? as_tuple(zeros) : NULL;
    int failed = zeros != NULL ? set_parsed(self, scales, zeros, axis) : -1;
    Py_XDECREF(scales);
    Py_XDECREF(zeros);
    return failed;
}
