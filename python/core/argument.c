/* SPDX-License-Identifier: Apache-2.0 */
/* Arguments: timeouts, shapes, dtypes. */
#include "core.h"

#include <string.h>

int tnp_deadline(PyObject *timeout, tn_deadline missing, tn_deadline *ret_deadline)
{
    if (timeout == NULL || timeout == Py_None) {
        *ret_deadline = timeout == NULL ? missing : TN_FOREVER;
        return 0;
    }
    double seconds = PyFloat_AsDouble(timeout);
    if (seconds == -1.0 && PyErr_Occurred())
        return -1;
    if (seconds != seconds) {
        PyErr_SetString(PyExc_ValueError,
                        "the timeout is NaN: it must be a number of seconds, or None");
        return -1;
    }
    if (seconds <= 0)
        *ret_deadline = TN_NOW;
    else if (seconds > 1e9)
        *ret_deadline = TN_FOREVER;
    else
        *ret_deadline = tn_deadline_after((uint64_t)(seconds * 1e9));
    return 0;
}

static int as_size(PyObject *number, int64_t *ret)
{
    PyObject *index = PyNumber_Index(number);
    if (index == NULL)
        return -1;
    *ret = PyLong_AsLongLong(index);
    Py_DECREF(index);
    return *ret == -1 && PyErr_Occurred() ? -1 : 0;
}

int tnp_word(PyObject *number, uint64_t *ret)
{
    PyObject *index = PyNumber_Index(number);
    if (index == NULL)
        return -1;
    *ret = PyLong_AsUnsignedLongLong(index);
    Py_DECREF(index);
    return *ret == UINT64_MAX && PyErr_Occurred() ? -1 : 0;
}

int tnp_small_word(PyObject *number, const char *refusal, uint32_t *ret)
{
    uint64_t word;
    if (tnp_word(number, &word) < 0)
        return -1;
    *ret = (uint32_t)word;
    if (word <= UINT32_MAX)
        return 0;
    tnp_raise_text(TN_ERR_INVALID, "%s %R", refusal, number);
    return -1;
}

int tnp_shape(PyObject *shape, int64_t ret_shape[TN_MAX_NDIM], int32_t *ret_ndim)
{
    if (PyIndex_Check(shape)) {
        *ret_ndim = 1;
        return as_size(shape, &ret_shape[0]);
    }
    PyObject *sizes = PySequence_Check(shape) ? PySequence_Tuple(shape) : NULL;
    if (sizes == NULL) {
        if (!PyErr_Occurred())
            PyErr_Format(PyExc_TypeError, "a shape is an int or a sequence of ints, not %.200s",
                         Py_TYPE(shape)->tp_name);
        return -1;
    }
    Py_ssize_t ndim = PyTuple_GET_SIZE(sizes);
    int failed = 0;
    if (ndim > TN_MAX_NDIM) {
        PyErr_Format(PyExc_ValueError, "%zd axes; at most %d are possible", ndim, TN_MAX_NDIM);
        failed = -1;
    }
    for (Py_ssize_t i = 0; i < ndim && failed == 0; i++)
        failed = as_size(PyTuple_GET_ITEM(sizes, i), &ret_shape[i]);
    Py_DECREF(sizes);
    *ret_ndim = (int32_t)ndim;
    return failed;
}

PyObject *tnp_tuple(const int64_t *numbers, int32_t count)
{
    PyObject *tuple = PyTuple_New(count);
    for (int32_t i = 0; tuple != NULL && i < count; i++) {
        PyObject *number = PyLong_FromLongLong(numbers[i]);
        if (number == NULL)
            Py_CLEAR(tuple);
        else
            PyTuple_SET_ITEM(tuple, i, number);
    }
    return tuple;
}

/* ---- dtypes ------------------------------------------------------------------------------ */

/* Names that NumPy or PyTorch have for a dtype that DLPack names differently. */
static const char *const aliases[][2] = {
    {"bool_", "bool"},     {"half", "float16"},     {"float", "float32"},
    {"double", "float64"}, {"short", "int16"},      {"int", "int32"},
    {"long", "int64"},     {"cfloat", "complex64"}, {"cdouble", "complex128"},
};

/*
 * Short names of NumPy, such as "f4" or "<i8": a letter and a number of bytes, in the byte
 * order of this machine.
 */
static bool parse_code(const char *name, tn_dtype *ret_dtype)
{
    static const struct {
        char letter, code;
    } letters[] = {
        {'b', kDLBool}, {'i', kDLInt}, {'u', kDLUInt}, {'f', kDLFloat}, {'c', kDLComplex}};
    if (name[0] == '=' || name[0] == '|' || name[0] == (PY_LITTLE_ENDIAN ? '<' : '>'))
        name++;
    if (name[0] == '\0' || name[1] < '1' || name[1] > '9' ||
        (name[2] != '\0' && strcmp(name + 1, "16") != 0))
        return false;
    int bytes = name[2] == '\0' ? name[1] - '0' : 16;
    size_t size;
    for (size_t i = 0; i < TNP_COUNT(letters); i++) {
        *ret_dtype = TN_DTYPE(letters[i].code, 8 * bytes, 1);
        if (name[0] == letters[i].letter && (name[0] != 'b' || bytes == 1))
            return tn_dtype_size(*ret_dtype, &size) == 0 &&
                   tnp_dtype_letters(*ret_dtype) != NULL;
    }
    return false;
}

static int parse_name(const char *name, tn_dtype *ret_dtype)
{
    if (parse_code(name, ret_dtype))
        return 0;
    static const char torch[] = "torch.";
    if (strncmp(name, torch, sizeof torch - 1) == 0)
        name += sizeof torch - 1;
    for (size_t i = 0; i < TNP_COUNT(aliases); i++)
        if (strcmp(name, aliases[i][0]) == 0)
            name = aliases[i][1];
    return tn_dtype_parse(name, ret_dtype);
}

static int of_python_type(PyObject *dtype, tn_dtype *ret_dtype)
{
    if (dtype == (PyObject *)&PyFloat_Type)
        *ret_dtype = TN_FLOAT64;
    else if (dtype == (PyObject *)&PyLong_Type)
        *ret_dtype = TN_INT64;
    else if (dtype == (PyObject *)&PyBool_Type)
        *ret_dtype = TN_BOOL;
    else if (dtype == (PyObject *)&PyComplex_Type)
        *ret_dtype = TN_COMPLEX128;
    else
        return -1;
    return 0;
}

/*
 * The name of a dtype: its `name` (NumPy), its `__name__` (a scalar type), or its str(), which
 * is "torch.float32" for PyTorch.
 */
static PyObject *name_of(PyObject *dtype)
{
    static const char *const attributes[] = {"name", "__name__"};
    if (PyUnicode_Check(dtype)) {
        Py_INCREF(dtype);
        return dtype;
    }
    for (size_t i = 0; i < TNP_COUNT(attributes); i++) {
        PyObject *name = PyObject_GetAttrString(dtype, attributes[i]);
        if (name != NULL && PyUnicode_Check(name))
            return name;
        Py_XDECREF(name);
        PyErr_Clear();
    }
    return PyObject_Str(dtype);
}

/* The name of a dtype of NumPy does not tell its byte order; `isnative` does. */
static bool is_foreign_order(PyObject *dtype)
{
    PyObject *native = PyObject_GetAttrString(dtype, "isnative");
    bool foreign = native != NULL && PyObject_Not(native) == 1;
    Py_XDECREF(native);
    PyErr_Clear();
    return foreign;
}

int tnp_dtype(PyObject *dtype, tn_dtype *ret_dtype)
{
    if (of_python_type(dtype, ret_dtype) == 0)
        return 0;
    PyObject *name = name_of(dtype);
    const char *text = name == NULL ? NULL : PyUnicode_AsUTF8(name);
    int failed = text == NULL ? -1 : 0;
    if (failed == 0 && (is_foreign_order(dtype) || parse_name(text, ret_dtype) != 0)) {
        PyErr_Format(PyExc_TypeError, "tensors have no dtype %R", dtype);
        failed = -1;
    }
    Py_XDECREF(name);
    return failed;
}

int tnp_timeout(PyObject *const *args, Py_ssize_t nargs, PyObject *names, Py_ssize_t before,
                tn_deadline *ret_deadline)
{
    Py_ssize_t given = nargs + (names == NULL ? 0 : PyTuple_GET_SIZE(names));
    if (nargs < before || given > before + 1 ||
        (names != NULL && PyTuple_GET_SIZE(names) > 0 &&
         PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names, 0), "timeout") != 0)) {
        PyErr_Format(PyExc_TypeError,
                     "the function takes %zd arguments and an optional `timeout`", before);
        return -1;
    }
    return tnp_deadline(given > before ? args[before] : NULL, TN_FOREVER, ret_deadline);
}
