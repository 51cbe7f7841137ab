/* SPDX-License-Identifier: Apache-2.0 */
/* facts: the attributes of a tensor that cannot be set, and its repr(). */
#include "tensor.h"

static tn_tensor *tensor_in(PyObject *self) { return ((tnp_tensor *)self)->tensor; }

/* ---- what it is -------------------------------------------------------------------------- */

static size_t item_bytes(const tn_tensor *t)
{
    tn_dtype dtype = tn_tensor_dtype(t);
    return (size_t)TN_DTYPE_BITS(dtype) * TN_DTYPE_LANES(dtype) / 8;
}

static PyObject *get_shape(PyObject *self, void *unused)
{
    (void)unused;
    return tnp_tuple(tn_tensor_shape(tensor_in(self)), tn_tensor_ndim(tensor_in(self)));
}
static PyObject *get_strides(PyObject *self, void *unused)
{
    (void)unused;
    return tnp_tuple(tnp_info(tensor_in(self)).strides, tn_tensor_ndim(tensor_in(self)));
}
static PyObject *get_ndim(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromLong(tn_tensor_ndim(tensor_in(self)));
}
static PyObject *get_dtype(PyObject *self, void *unused)
{
    char name[32];
    (void)unused;
    int status = tn_dtype_name(tn_tensor_dtype(tensor_in(self)), name, sizeof name);
    return status != 0 ? tnp_raise(status) : PyUnicode_FromString(name);
}
static PyObject *get_size(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromLongLong(tn_tensor_count(tensor_in(self)));
}
static PyObject *get_itemsize(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromSize_t(item_bytes(tensor_in(self)));
}
static PyObject *get_nbytes(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromUnsignedLongLong(tnp_info(tensor_in(self)).size_bytes);
}
static PyObject *get_byte_offset(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromUnsignedLongLong(tnp_info(tensor_in(self)).byte_offset);
}
static PyObject *get_storage_bytes(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromUnsignedLongLong(tnp_info(tensor_in(self)).storage_bytes);
}
static PyObject *get_address(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromUnsignedLongLong((uintptr_t)tn_tensor_data(tensor_in(self)));
}
static PyObject *get_device(PyObject *self, void *unused)
{
    (void)unused;
    return tnp_device_name(tn_tensor_device(tensor_in(self)));
}
static PyObject *get_is_shared(PyObject *self, void *unused)
{
    (void)unused;
    return PyBool_FromLong(tnp_info(tensor_in(self)).is_shared);
}
static PyObject *get_is_contiguous(PyObject *self, void *unused)
{
    (void)unused;
    return PyBool_FromLong(tnp_info(tensor_in(self)).is_contiguous);
}
static PyObject *get_readonly(PyObject *self, void *unused)
{
    (void)unused;
    return PyBool_FromLong(tnp_info(tensor_in(self)).is_read_only);
}
static PyObject *get_strategy_of(PyObject *self, void *unused)
{
    const char *name = tn_strategy_name(tnp_info(tensor_in(self)).strategy);
    (void)unused;
    if (name == NULL)
        Py_RETURN_NONE;
    return PyUnicode_FromString(name);
}
static PyObject *get_path(PyObject *self, void *unused)
{
    const char *path = tnp_info(tensor_in(self)).path;
    (void)unused;
    if (path == NULL)
        Py_RETURN_NONE;
    return PyUnicode_DecodeFSDefault(path);
}
static PyObject *get_domain(PyObject *self, void *unused)
{
    PyObject *domain = tnp_tensor_domain(self);
    (void)unused;
    if (domain == NULL)
        Py_RETURN_NONE;
    Py_INCREF(domain);
    return domain;
}
PyGetSetDef tnp_tensor_facts[] = {
    {"shape", get_shape, NULL, "Elements along each axis.", NULL},
    {"strides", get_strides, NULL, "Elements, not bytes, from one to the next on each axis.",
     NULL},
    {"ndim", get_ndim, NULL, "Number of axes.", NULL},
    {"dtype", get_dtype, NULL, "Name of the elements' type, as in \"float32\".", NULL},
    {"size", get_size, NULL, "Number of elements.", NULL},
    {"itemsize", get_itemsize, NULL, "Bytes of an element.", NULL},
    {"nbytes", get_nbytes, NULL, "Bytes of all elements, were they contiguous.", NULL},
    {"byte_offset", get_byte_offset, NULL,
     "Of the first element, from the start of the storage.", NULL},
    {"storage_bytes", get_storage_bytes, NULL, "Bytes of the whole storage.", NULL},
    {"address", get_address, NULL, "Of the first element; 0 if there is none.", NULL},
    {"device", get_device, NULL, "\"cpu\", or as \"cuda:0\".", NULL},
    {"__cuda_array_interface__", tnp_tensor_cuda_array, NULL,
     "Of a tensor on a CUDA device: where it lies, for other libraries.", NULL},
    {"is_shared", get_is_shared, NULL, "Whether other processes can have its memory.", NULL},
    {"is_incomplete", tnp_tensor_get_is_incomplete, NULL,
     "Whether a process died before its device had done what it recorded.", NULL},
    {"is_contiguous", get_is_contiguous, NULL, "Whether its elements are in row-major order.",
     NULL},
    {"readonly", get_readonly, NULL, "Whether it cannot be written.", NULL},
    {"strategy", get_strategy_of, NULL, "How its storage is shared; None while it is private.",
     NULL},
    {"path", get_path, NULL, "Of the file of a storage shared by file_system; else None.",
     NULL},
    {"domain", get_domain, NULL, "The domain that it is shared in; None.", NULL},
    {"T", tnp_tensor_get_transposed, NULL, "A view with the axes reversed.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

/* What repr() says of the device: "" of the CPU. */
static PyObject *device_part(PyObject *self)
{
    if (tn_tensor_device(tensor_in(self)).type == TN_DEVICE_CPU)
        return PyUnicode_FromString("");
    PyObject *device = get_device(self, NULL);
    PyObject *part = device == NULL ? NULL : PyUnicode_FromFormat("device=%U, ", device);
    Py_XDECREF(device);
    return part;
}

PyObject *tnp_tensor_repr(PyObject *self)
{
    const char *strategy = tn_strategy_name(tnp_info(tensor_in(self)).strategy);
    const char *name = tn_tensor_name(tensor_in(self));
    PyObject *shape = get_shape(self, NULL), *dtype = get_dtype(self, NULL), *text = NULL;
    PyObject *label = name != NULL ? PyUnicode_FromString(name) : NULL;
    PyObject *device = device_part(self);
    if (shape != NULL && dtype != NULL && device != NULL && (name == NULL || label != NULL)) {
        text = PyUnicode_FromFormat(
            "tenon.Tensor(shape=%R, dtype=%U, %U%s%s%s", shape, dtype, device,
            strategy != NULL ? "shared by " : "", strategy != NULL ? strategy : "private",
            tnp_info(tensor_in(self)).is_read_only ? ", read-only" : "");
        PyObject *end = text == NULL    ? NULL
                        : label != NULL ? PyUnicode_FromFormat("%U, name=%R)", text, label)
                                        : PyUnicode_FromFormat("%U)", text);
        Py_XDECREF(text);
        text = end;
    }
    Py_XDECREF(shape);
    Py_XDECREF(dtype);
    Py_XDECREF(device);
    Py_XDECREF(label);
    return text;
}
