/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensor: the type; what it is, its views and its copies. One file, since a type's methods are
 * one table.
 */
#include "core.h"

#include <stddef.h>
#include <string.h>

static tn_tensor *of(PyObject *self) { return ((tnp_tensor *)self)->tensor; }

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

static void dealloc(PyObject *object)
{
    tnp_tensor *self = (tnp_tensor *)object;
    if (self->weak != NULL)
        PyObject_ClearWeakRefs(object);
    tn_tensor_unref(self->tensor);
    Py_XDECREF(self->domain);
    Py_XDECREF(self->base);
    Py_TYPE(object)->tp_free(object);
}

/* ---- views ------------------------------------------------------------------------------- */

static PyObject *wrap_view(int status, tn_tensor *view, PyObject *self)
{
    return status != 0 ? tnp_raise(status) : tnp_tensor_wrap_view(view, self);
}

static PyObject *view(PyObject *self, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"shape", "dtype", "strides", "byte_offset", NULL};
    PyObject *shape_object, *dtype_object = Py_None, *strides_object = Py_None;
    PyObject *offset_object = Py_None;
    int64_t shape[TN_MAX_NDIM], strides[TN_MAX_NDIM];
    int32_t ndim, stride_count;
    tn_dtype dtype = tn_tensor_dtype(of(self));
    uint64_t byte_offset = tnp_info(of(self)).byte_offset;
    tn_tensor *result = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O|OOO:view", names, &shape_object,
                                     &dtype_object, &strides_object, &offset_object) ||
        tnp_shape(shape_object, shape, &ndim) < 0 ||
        (dtype_object != Py_None && tnp_dtype(dtype_object, &dtype) < 0) ||
        (strides_object != Py_None && tnp_shape(strides_object, strides, &stride_count) < 0))
        return NULL;
    if (strides_object != Py_None && stride_count != ndim) {
        PyErr_Format(PyExc_ValueError, "%d strides for %d axes", (int)stride_count, (int)ndim);
        return NULL;
    }
    if (offset_object != Py_None) {
        byte_offset = PyLong_AsUnsignedLongLong(offset_object);
        if (byte_offset == UINT64_MAX && PyErr_Occurred())
            return NULL;
    }
    int status =
        tn_tensor_view(of(self), dtype, ndim, shape, strides_object != Py_None ? strides : NULL,
                       byte_offset, &result);
    return wrap_view(status, result, self);
}

/* Numbers given one by one, or as one sequence. */
static PyObject *numbers_of(PyObject *args)
{
    return PyTuple_GET_SIZE(args) == 1 ? PyTuple_GET_ITEM(args, 0) : args;
}

static PyObject *reshape(PyObject *self, PyObject *args)
{
    int64_t shape[TN_MAX_NDIM];
    int32_t ndim;
    tn_tensor *result = NULL;
    if (tnp_shape(numbers_of(args), shape, &ndim) < 0)
        return NULL;
    int status = tn_tensor_reshape(of(self), ndim, shape, &result);
    return wrap_view(status, result, self);
}

static PyObject *transpose_by(PyObject *self, const int32_t *axes)
{
    tn_tensor *result = NULL;
    int status = tn_tensor_transpose(of(self), axes, &result);
    return wrap_view(status, result, self);
}

static PyObject *transpose(PyObject *self, PyObject *args)
{
    int64_t numbers[TN_MAX_NDIM];
    int32_t axes[TN_MAX_NDIM], count, ndim = tn_tensor_ndim(of(self));
    if (PyTuple_GET_SIZE(args) == 0)
        return transpose_by(self, NULL);
    if (tnp_shape(numbers_of(args), numbers, &count) < 0)
        return NULL;
    if (count != ndim) {
        PyErr_Format(PyExc_ValueError, "%d axes for a tensor of %d", (int)count, (int)ndim);
        return NULL;
    }
    for (int32_t i = 0; i < count; i++) {
        int64_t axis = numbers[i] < 0 ? numbers[i] + ndim : numbers[i];
        axes[i] = axis < 0 || axis >= ndim ? -1 : (int32_t)axis;
    }
    return transpose_by(self, axes);
}

/* ---- copies ------------------------------------------------------------------------------ */

/* The one over the same storage that learns when it is shared. */
static tnp_tensor *first_of(PyObject *object)
{
    tnp_tensor *self = (tnp_tensor *)object;
    return self->base != NULL ? (tnp_tensor *)self->base : self;
}

void tnp_tensor_go_in(PyObject *tensor)
{
    if (tensor != NULL)
        tnp_go_in(&first_of(tensor)->users);
}

void tnp_tensor_come_out(PyObject *tensor)
{
    if (tensor != NULL)
        tnp_come_out(&first_of(tensor)->users);
}

void tnp_tensor_wait_until_unused(PyObject *tensor)
{
    while (tnp_waiting(&first_of(tensor)->users) > 0)
        tnp_pause();
}

int tnp_tensor_copy_status(tnp_side target, tnp_side source)
{
    int status;
    if (tnp_info(target.tensor).size_bytes < TNP_MANY_BYTES) {
        status = tn_tensor_copy(target.tensor, source.tensor);
    } else {
        tnp_tensor_go_in(target.owner);
        tnp_tensor_go_in(source.owner);
        TNP_UNLOCKED(status, tn_tensor_copy(target.tensor, source.tensor));
        tnp_tensor_come_out(target.owner);
        tnp_tensor_come_out(source.owner);
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
    tnp_tensor_go_in(tensor);
    Py_BEGIN_ALLOW_THREADS memcpy(PyBytes_AS_STRING(bytes), start, size_bytes);
    Py_END_ALLOW_THREADS tnp_tensor_come_out(tensor);
    return bytes;
}

/* A tensor of the same dtype and shape, in the same place. */
static int make_alike(const tn_tensor *t, PyObject *domain, tn_tensor **ret)
{
    if (domain == NULL)
        return tn_tensor_create_private(tn_tensor_dtype(t), tn_tensor_ndim(t),
                                        tn_tensor_shape(t), ret);
    tnp_wanted wanted = {.dtype = tn_tensor_dtype(t), .ndim = tn_tensor_ndim(t)};
    memcpy(wanted.shape, tn_tensor_shape(t), (size_t)wanted.ndim * sizeof wanted.shape[0]);
    return tnp_domain_make(domain, &wanted, ret);
}

static PyObject *copy(PyObject *self, PyObject *unused)
{
    PyObject *domain = tnp_tensor_domain(self);
    tn_tensor *result;
    (void)unused;
    if (domain != NULL && tnp_domain_of(domain) == NULL)
        return NULL;
    int status = make_alike(of(self), domain, &result);
    if (status == 0 && (status = tn_tensor_copy_attributes(result, of(self))) != 0)
        tn_tensor_unref(result);
    if (status != 0)
        return tnp_raise(status);
    if (tnp_tensor_copy_all((tnp_side){result, NULL}, (tnp_side){of(self), self}) < 0) {
        tn_tensor_unref(result);
        return NULL;
    }
    return tnp_tensor_wrap(result, domain);
}

/* copy.deepcopy() and copy.copy(): by way of a handle both would be the same storage. */
static PyObject *deep_copy(PyObject *self, PyObject *memo)
{
    (void)memo;
    return copy(self, NULL);
}

static PyObject *shallow_copy(PyObject *self, PyObject *unused)
{
    (void)unused;
    return tnp_tensor_wrap_view(tn_tensor_ref(of(self)), self);
}

static PyObject *tobytes(PyObject *self, PyObject *unused)
{
    tn_tensor *t = of(self), *dense;
    (void)unused;
    if (tnp_info(t).is_contiguous)
        return tnp_bytes(self, tn_tensor_data(t), tnp_info(t).size_bytes);
    int status = tn_tensor_create_private(tn_tensor_dtype(t), tn_tensor_ndim(t),
                                          tn_tensor_shape(t), &dense);
    if (status == 0 && (status = tn_tensor_copy_attributes(dense, t)) != 0)
        tn_tensor_unref(dense);
    if (status != 0)
        return tnp_raise(status);
    PyObject *bytes = NULL;
    if (tnp_tensor_copy_all((tnp_side){dense, NULL}, (tnp_side){t, self}) == 0)
        bytes = tnp_bytes(NULL, tn_tensor_data(dense), tnp_info(dense).size_bytes);
    tn_tensor_unref(dense);
    return bytes;
}

static PyObject *same_storage(PyObject *self, PyObject *other)
{
    if (!tnp_is_tensor(other)) {
        PyErr_Format(PyExc_TypeError, "a tenon.Tensor is needed, not %.200s",
                     Py_TYPE(other)->tp_name);
        return NULL;
    }
    return PyBool_FromLong(tn_tensor_same_storage(of(self), of(other)));
}

/* ---- what it is -------------------------------------------------------------------------- */

static size_t item_bytes(const tn_tensor *t)
{
    tn_dtype dtype = tn_tensor_dtype(t);
    return (size_t)TN_DTYPE_BITS(dtype) * TN_DTYPE_LANES(dtype) / 8;
}

static PyObject *get_shape(PyObject *self, void *unused)
{
    (void)unused;
    return tnp_tuple(tn_tensor_shape(of(self)), tn_tensor_ndim(of(self)));
}
static PyObject *get_strides(PyObject *self, void *unused)
{
    (void)unused;
    return tnp_tuple(tnp_info(of(self)).strides, tn_tensor_ndim(of(self)));
}
static PyObject *get_ndim(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromLong(tn_tensor_ndim(of(self)));
}
static PyObject *get_dtype(PyObject *self, void *unused)
{
    char name[32];
    (void)unused;
    int status = tn_dtype_name(tn_tensor_dtype(of(self)), name, sizeof name);
    return status != 0 ? tnp_raise(status) : PyUnicode_FromString(name);
}
static PyObject *get_size(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromLongLong(tn_tensor_count(of(self)));
}
static PyObject *get_itemsize(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromSize_t(item_bytes(of(self)));
}
static PyObject *get_nbytes(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromUnsignedLongLong(tnp_info(of(self)).size_bytes);
}
static PyObject *get_byte_offset(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromUnsignedLongLong(tnp_info(of(self)).byte_offset);
}
static PyObject *get_storage_bytes(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromUnsignedLongLong(tnp_info(of(self)).storage_bytes);
}
static PyObject *get_address(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromUnsignedLongLong((uintptr_t)tn_tensor_data(of(self)));
}
static PyObject *get_device(PyObject *self, void *unused)
{
    (void)self, (void)unused;
    return PyUnicode_FromString("cpu");
}
static PyObject *get_is_shared(PyObject *self, void *unused)
{
    (void)unused;
    return PyBool_FromLong(tnp_info(of(self)).is_shared);
}
static PyObject *get_is_contiguous(PyObject *self, void *unused)
{
    (void)unused;
    return PyBool_FromLong(tnp_info(of(self)).is_contiguous);
}
static PyObject *get_readonly(PyObject *self, void *unused)
{
    (void)unused;
    return PyBool_FromLong(tnp_info(of(self)).is_read_only);
}
static PyObject *get_strategy_of(PyObject *self, void *unused)
{
    const char *name = tn_strategy_name(tnp_info(of(self)).strategy);
    (void)unused;
    if (name == NULL)
        Py_RETURN_NONE;
    return PyUnicode_FromString(name);
}
static PyObject *get_path(PyObject *self, void *unused)
{
    const char *path = tnp_info(of(self)).path;
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
static PyObject *get_transposed(PyObject *self, void *unused)
{
    (void)unused;
    return transpose_by(self, NULL);
}

static PyGetSetDef facts[] = {
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
    {"device", get_device, NULL, "\"cpu\".", NULL},
    {"is_shared", get_is_shared, NULL, "Whether other processes can have its memory.", NULL},
    {"is_contiguous", get_is_contiguous, NULL, "Whether its elements are in row-major order.",
     NULL},
    {"readonly", get_readonly, NULL, "Whether it cannot be written.", NULL},
    {"strategy", get_strategy_of, NULL, "How its storage is shared; None while it is private.",
     NULL},
    {"path", get_path, NULL, "Of the file of a storage shared by file_system; else None.",
     NULL},
    {"domain", get_domain, NULL, "The domain that it is shared in; None.", NULL},
    {"T", get_transposed, NULL, "A view with the axes reversed.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

/* "[tenon.]Tensor(shape=(2, 3), dtype=float32, shared by arena)" */
static PyObject *repr(PyObject *self)
{
    const char *strategy = tn_strategy_name(tnp_info(of(self)).strategy);
    const char *name = tn_tensor_name(of(self));
    PyObject *shape = get_shape(self, NULL), *dtype = get_dtype(self, NULL), *text = NULL;
    PyObject *label = name != NULL ? PyUnicode_FromString(name) : NULL;
    if (shape != NULL && dtype != NULL && (name == NULL || label != NULL)) {
        text = PyUnicode_FromFormat("tenon.Tensor(shape=%R, dtype=%U, %s%s%s", shape, dtype,
                                    strategy != NULL ? "shared by " : "",
                                    strategy != NULL ? strategy : "private",
                                    tnp_info(of(self)).is_read_only ? ", read-only" : "");
        PyObject *end = text == NULL    ? NULL
                        : label != NULL ? PyUnicode_FromFormat("%U, name=%R)", text, label)
                                        : PyUnicode_FromFormat("%U)", text);
        Py_XDECREF(text);
        text = end;
    }
    Py_XDECREF(shape);
    Py_XDECREF(dtype);
    Py_XDECREF(label);
    return text;
}

/* ---- as a sequence, as a truth ----------------------------------------------------------- */

static Py_ssize_t length(PyObject *self)
{
    if (tn_tensor_ndim(of(self)) > 0)
        return (Py_ssize_t)tn_tensor_shape(of(self))[0];
    PyErr_SetString(PyExc_TypeError, "a tensor without axes has no len()");
    return -1;
}

static PyObject *sequence_item(PyObject *self, Py_ssize_t at)
{
    PyObject *index = PyLong_FromSsize_t(at), *item = NULL;
    if (index != NULL)
        item = tnp_tensor_subscript(self, index);
    Py_XDECREF(index);
    return item;
}

/* Without it, iterating would begin where there is nothing to iterate over. */
static PyObject *iterate(PyObject *self)
{
    if (tn_tensor_ndim(of(self)) > 0)
        return PySeqIter_New(self);
    PyErr_SetString(PyExc_TypeError, "a tensor without axes cannot be iterated over");
    return NULL;
}

static int truth(PyObject *self)
{
    if (tn_tensor_count(of(self)) != 1) {
        PyErr_Format(PyExc_ValueError, "a tensor of %lld elements is neither true nor false",
                     (long long)tn_tensor_count(of(self)));
        return -1;
    }
    PyObject *element = tnp_element_get(tn_tensor_dtype(of(self)), tn_tensor_data(of(self)));
    int result = element == NULL ? -1 : PyObject_IsTrue(element);
    Py_XDECREF(element);
    return result;
}

/* float(t) and int(t), of one element. */
static PyObject *number(PyObject *self, PyObject *(*convert)(PyObject *))
{
    PyObject *element = tnp_tensor_item(self, NULL);
    PyObject *result = element == NULL ? NULL : convert(element);
    Py_XDECREF(element);
    return result;
}

static PyObject *as_float(PyObject *self) { return number(self, PyNumber_Float); }
static PyObject *as_int(PyObject *self) { return number(self, PyNumber_Long); }

static PySequenceMethods as_sequence = {.sq_length = length, .sq_item = sequence_item};
static PyMappingMethods as_mapping = {.mp_length = length,
                                      .mp_subscript = tnp_tensor_subscript,
                                      .mp_ass_subscript = tnp_tensor_assign};
static PyNumberMethods as_number = {.nb_bool = truth, .nb_int = as_int, .nb_float = as_float};

/* ---- the type ---------------------------------------------------------------------------- */

#define WITH_KEYWORDS(function) ((PyCFunction)(void (*)(void))(function))

static PyMethodDef methods[] = {
    {"share", WITH_KEYWORDS(tnp_tensor_share), METH_VARARGS | METH_KEYWORDS,
     "share($self, /, domain=None, timeout=0)\n--\n\n"
     "Move its storage into the domain, for all its views; returns the tensor."},
    {"view", WITH_KEYWORDS(view), METH_VARARGS | METH_KEYWORDS,
     "view($self, /, shape, dtype=None, strides=None, byte_offset=None)\n--\n\n"
     "A view of the same storage with any shape, dtype and strides."},
    {"reshape", reshape, METH_VARARGS,
     "reshape($self, /, *shape)\n--\n\n"
     "The same elements in another shape, as a view."},
    {"transpose", transpose, METH_VARARGS,
     "transpose($self, /, *axes)\n--\n\n"
     "A view with the axes in another order."},
    {"copy", copy, METH_NOARGS,
     "copy($self, /)\n--\n\n"
     "A row-major copy in the same domain, or a private one if it is private."},
    {"__copy__", shallow_copy, METH_NOARGS,
     "__copy__($self, /)\n--\n\n"
     "Another view of the same storage."},
    {"__deepcopy__", deep_copy, METH_O,
     "__deepcopy__($self, memo, /)\n--\n\n"
     "As copy()."},
    {"copy_from", tnp_tensor_copy_from, METH_O,
     "copy_from($self, source, /)\n--\n\n"
     "Copy all elements of another tensor here."},
    {"tobytes", tobytes, METH_NOARGS,
     "tobytes($self, /)\n--\n\n"
     "The elements' bytes in row-major order."},
    {"tolist", tnp_tensor_tolist, METH_NOARGS,
     "tolist($self, /)\n--\n\n"
     "The elements as nested lists of numbers."},
    {"item", tnp_tensor_item, METH_NOARGS,
     "item($self, /)\n--\n\n"
     "The only element as a number."},
    {"same_storage", same_storage, METH_O,
     "same_storage($self, other, /)\n--\n\n"
     "Whether both are views of one storage."},
    {"to_handle", WITH_KEYWORDS(tnp_tensor_to_handle), METH_VARARGS | METH_KEYWORDS,
     "to_handle($self, /, uses=1, lifetime=...)\n--\n\n"
     "Bytes that any member of the domain can load `uses` times."},
    {"__reduce_ex__", tnp_tensor_reduce, METH_O, "By a handle, which may be loaded once."},
    {"__dlpack__", WITH_KEYWORDS(tnp_tensor_to_dlpack), METH_VARARGS | METH_KEYWORDS,
     "__dlpack__($self, /, *, stream=None, max_version=None, dl_device=None, copy=None)\n--\n\n"
     "A capsule for another library, without a copy."},
    {"__dlpack_device__", tnp_tensor_dlpack_device, METH_NOARGS,
     "__dlpack_device__($self, /)\n--\n\n"
     "(1, 0): the CPU."},
    {"__array__", WITH_KEYWORDS(tnp_tensor_array), METH_VARARGS | METH_KEYWORDS,
     "__array__($self, /, dtype=None, copy=None)\n--\n\n"
     "An array of NumPy over the same memory."},
    {NULL, NULL, 0, NULL},
};

PyTypeObject tnp_tensor_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "tenon.Tensor",
    .tp_doc = "A typed, strided view of a storage, which is shared or private.",
    .tp_basicsize = sizeof(tnp_tensor),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_dealloc = dealloc,
    .tp_repr = repr,
    .tp_as_number = &as_number,
    .tp_as_sequence = &as_sequence,
    .tp_as_mapping = &as_mapping,
    .tp_as_buffer = &tnp_tensor_buffer,
    .tp_iter = iterate,
    .tp_methods = methods,
    .tp_getset = facts,
    .tp_weaklistoffset = offsetof(tnp_tensor, weak),
};

/* ---- functions of the module ------------------------------------------------------------- */

static PyObject *dtype_name(PyObject *module, PyObject *dtype)
{
    char name[32];
    tn_dtype parsed;
    (void)module;
    if (tnp_dtype(dtype, &parsed) < 0)
        return NULL;
    int status = tn_dtype_name(parsed, name, sizeof name);
    return status != 0 ? tnp_raise(status) : PyUnicode_FromString(name);
}

static PyMethodDef functions[] = {
    {"private", WITH_KEYWORDS(tnp_private), METH_VARARGS | METH_KEYWORDS,
     "private($module, /, shape, dtype)\n--\n\n"
     "Make a tensor in private memory, all zero; share() moves it later."},
    {"from_dlpack", tnp_from_dlpack, METH_O,
     "from_dlpack($module, source, /)\n--\n\n"
     "A tensor over the memory of an object with __dlpack__, or of a capsule."},
    {"from_buffer", tnp_from_buffer, METH_O,
     "from_buffer($module, source, /)\n--\n\n"
     "A tensor over the memory of an object with the buffer protocol."},
    {"dtype_name", dtype_name, METH_O,
     "dtype_name($module, dtype, /)\n--\n\n"
     "The name of a dtype of NumPy or PyTorch, or of a type."},
    {NULL, NULL, 0, NULL},
};

static int add_attributes(void)
{
    for (PyGetSetDef *at = tnp_tensor_attributes; at->name != NULL; at++) {
        PyObject *descriptor = PyDescr_NewGetSet(&tnp_tensor_type, at);
        int failed = descriptor == NULL ||
                     PyDict_SetItemString(tnp_tensor_type.tp_dict, at->name, descriptor) < 0;
        Py_XDECREF(descriptor);
        if (failed)
            return -1;
    }
    PyType_Modified(&tnp_tensor_type);
    return 0;
}

int tnp_tensor_init(PyObject *module)
{
    if (PyType_Ready(&tnp_tensor_type) < 0 || add_attributes() < 0 ||
        PyModule_AddFunctions(module, functions) < 0)
        return -1;
    PyObject *type = (PyObject *)&tnp_tensor_type;
    Py_INCREF(type);
    if (PyModule_AddObject(module, "Tensor", type) == 0)
        return 0;
    Py_DECREF(type);
    return -1;
}
