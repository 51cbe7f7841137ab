/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attribute: the attributes of tenon/attribute.h: flags, names and metadata, and the table of
 * all.
 */
#include "tensor.h"

#include <string.h>

static tn_tensor *tensor_in(PyObject *self) { return ((tnp_tensor *)self)->tensor; }

static int raise_if(int status)
{
    if (status != 0)
        tnp_raise(status);
    return status != 0 ? -1 : 0;
}

/* `del t.name` means the same as `t.name = None`. */
static bool is_none(const PyObject *value) { return value == NULL || value == Py_None; }

/* ---- flags ------------------------------------------------------------------------------- */

static PyObject *get_flags(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromUnsignedLong(tn_tensor_flags(tensor_in(self)));
}

static int set_flags(PyObject *self, PyObject *value, void *unused)
{
    (void)unused;
    unsigned long flags = is_none(value) ? 0 : PyLong_AsUnsignedLong(value);
    if (flags == (unsigned long)-1 && PyErr_Occurred())
        return -1;
    if (flags > UINT32_MAX) {
        PyErr_Format(PyExc_ValueError, "the flags 0x%lx do not fit into 32 bits", flags);
        return -1;
    }
    return raise_if(tn_tensor_set_flags(tensor_in(self), (uint32_t)flags));
}

static PyObject *get_requires_grad(PyObject *self, void *unused)
{
    (void)unused;
    return PyBool_FromLong((tn_tensor_flags(tensor_in(self)) & TN_REQUIRES_GRAD) != 0);
}

static int set_requires_grad(PyObject *self, PyObject *value, void *unused)
{
    (void)unused;
    int wanted = is_none(value) ? 0 : PyObject_IsTrue(value);
    if (wanted < 0)
        return -1;
    uint32_t flags = tn_tensor_flags(tensor_in(self)) & ~(uint32_t)TN_REQUIRES_GRAD;
    return raise_if(
        tn_tensor_set_flags(tensor_in(self), wanted ? flags | TN_REQUIRES_GRAD : flags));
}

/* ---- names ------------------------------------------------------------------------------- */

static PyObject *get_name(PyObject *self, void *unused)
{
    (void)unused;
    const char *name = tn_tensor_name(tensor_in(self));
    if (name == NULL)
        Py_RETURN_NONE;
    return PyUnicode_FromString(name);
}

/*
 * Read text, and refuse a zero byte in it. The result is borrowed from `value`. NULL: raised.
 */
static const char *text_of(PyObject *value)
{
    Py_ssize_t size;
    const char *text = PyUnicode_AsUTF8AndSize(value, &size);
    if (text != NULL && strlen(text) != (size_t)size) {
        PyErr_Format(PyExc_ValueError, "the name %R contains a zero byte", value);
        return NULL;
    }
    return text;
}

static int set_name(PyObject *self, PyObject *value, void *unused)
{
    (void)unused;
    const char *name = is_none(value) ? NULL : text_of(value);
    if (name == NULL && !is_none(value))
        return -1;
    return raise_if(tn_tensor_set_name(tensor_in(self), name));
}

static PyObject *get_axis_names(PyObject *self, void *unused)
{
    (void)unused;
    int32_t ndim = tn_tensor_ndim(tensor_in(self));
    if (tn_tensor_axis_name(tensor_in(self), 0) == NULL)
        Py_RETURN_NONE;
    PyObject *names = PyTuple_New(ndim);
    for (int32_t i = 0; names != NULL && i < ndim; i++) {
        PyObject *name = PyUnicode_FromString(tn_tensor_axis_name(tensor_in(self), i));
        if (name == NULL)
            Py_CLEAR(names);
        else
            PyTuple_SET_ITEM(names, i, name);
    }
    return names;
}

static int set_axis_names(PyObject *self, PyObject *value, void *unused)
{
    const char *names[TN_MAX_NDIM];
    int32_t ndim = tn_tensor_ndim(tensor_in(self));
    (void)unused;
    if (is_none(value))
        return raise_if(tn_tensor_set_axis_names(tensor_in(self), NULL));
    PyObject *items = PySequence_Fast(value, "axis names are a sequence of str or None");
    if (items == NULL)
        return -1;
    int failed = 0;
    if (PySequence_Fast_GET_SIZE(items) != ndim) {
        PyErr_Format(PyExc_ValueError, "%zd axis names for %d axes",
                     PySequence_Fast_GET_SIZE(items), ndim);
        failed = -1;
    }
    for (int32_t i = 0; i < ndim && failed == 0; i++) {
        PyObject *item = PySequence_Fast_GET_ITEM(items, i);
        names[i] = item == Py_None ? "" : text_of(item);
        failed = names[i] == NULL ? -1 : 0;
    }
    if (failed == 0)
        failed = raise_if(tn_tensor_set_axis_names(tensor_in(self), names));
    Py_DECREF(items);
    return failed;
}

/* ---- metadata ---------------------------------------------------------------------------- */

static int add_metadata(const char *key, const void *bytes, size_t size_bytes, void *context)
{
    PyObject *value = PyBytes_FromStringAndSize(bytes, (Py_ssize_t)size_bytes);
    int failed = value == NULL || PyDict_SetItemString(context, key, value) < 0;
    Py_XDECREF(value);
    return failed;
}

static PyObject *get_metadata(PyObject *self, void *unused)
{
    PyObject *metadata = PyDict_New();
    (void)unused;
    if (metadata != NULL &&
        tn_tensor_for_each_metadata(tensor_in(self), add_metadata, metadata) != 0)
        Py_CLEAR(metadata);
    return metadata;
}

static int put_one(tn_tensor *tensor, PyObject *key, PyObject *value)
{
    Py_buffer bytes;
    const char *text = PyUnicode_Check(key) ? text_of(key) : NULL;
    if (text == NULL) {
        if (!PyErr_Occurred())
            PyErr_Format(PyExc_TypeError, "a key of metadata is str, not %.200s",
                         Py_TYPE(key)->tp_name);
        return -1;
    }
    if (PyObject_GetBuffer(value, &bytes, PyBUF_SIMPLE) < 0)
        return -1;
    /* The library removes the key if the pointer is NULL. */
    const void *start = bytes.buf != NULL ? bytes.buf : "";
    int failed = raise_if(tn_tensor_set_metadata(tensor, text, start, (size_t)bytes.len));
    PyBuffer_Release(&bytes);
    return failed;
}

static int put_all(tn_tensor *tensor, PyObject *metadata)
{
    PyObject *key, *value;
    Py_ssize_t at = 0;
    while (PyDict_Next(metadata, &at, &key, &value))
        if (put_one(tensor, key, value) < 0)
            return -1;
    return 0;
}

/* Remove the keys of `metadata` from the tensor. A key that is no text cannot be there. */
static void remove_all(tn_tensor *tensor, PyObject *metadata)
{
    PyObject *key, *value;
    Py_ssize_t at = 0;
    size_t size_bytes;
    while (PyDict_Next(metadata, &at, &key, &value)) {
        const char *text = PyUnicode_Check(key) ? PyUnicode_AsUTF8(key) : NULL;
        if (text == NULL)
            PyErr_Clear();
        else if (tn_tensor_metadata(tensor, text, &size_bytes) != NULL)
            (void)!tn_tensor_set_metadata(tensor, text, NULL, 0);
    }
}

/* Set all entries or none: on failure the former entries are put back. */
static int set_metadata(PyObject *self, PyObject *value, void *unused)
{
    PyObject *before = get_metadata(self, NULL), *type, *error, *traceback;
    (void)unused;
    PyObject *after = PyDict_New();
    int failed = before == NULL || after == NULL ? -1 : 0;
    if (failed == 0 && !is_none(value))
        failed = PyDict_Update(after, value);
    if (failed == 0) {
        remove_all(tensor_in(self), before);
        failed = put_all(tensor_in(self), after);
        if (failed != 0) {
            PyErr_Fetch(&type, &error, &traceback);
            remove_all(tensor_in(self), after);
            if (put_all(tensor_in(self), before) < 0)
                PyErr_Clear();
            PyErr_Restore(type, error, traceback);
        }
    }
    Py_XDECREF(before);
    Py_XDECREF(after);
    return failed;
}

PyGetSetDef tnp_tensor_attributes[] = {
    {"flags", get_flags, set_flags, "TN_REQUIRES_GRAD and so on.", NULL},
    {"requires_grad", get_requires_grad, set_requires_grad,
     "Whether a gradient is wanted of it: one of the flags.", NULL},
    {"name", get_name, set_name, "A name of at most 127 bytes; None.", NULL},
    {"axis_names", get_axis_names, set_axis_names, "A name for each axis; None.", NULL},
    {"lod", tnp_tensor_get_lod, tnp_tensor_set_lod,
     "Levels of detail: offsets of sequences, coarse to fine; None.", NULL},
    {"quantizer", tnp_tensor_get_quantizer, tnp_tensor_set_quantizer,
     "(scales, zero_points, axis): real = (element - zero_point) * scale; axis None: one "
     "for all; None.",
     NULL},
    {"metadata", get_metadata, set_metadata,
     "The user's own bytes by key: a copy; assign to change it.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
