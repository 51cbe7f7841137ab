/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tensor_type: the tables of the type, which refer to the methods in the files below, and the
 * functions of the module that make tensors.
 */
#include "tensor.h"

static tn_tensor *tensor_in(PyObject *self) { return ((tnp_tensor *)self)->tensor; }

static PyObject *same_storage(PyObject *self, PyObject *other)
{
    if (!tnp_is_tensor(other)) {
        PyErr_Format(PyExc_TypeError, "a tenon.Tensor is needed, not %.200s",
                     Py_TYPE(other)->tp_name);
        return NULL;
    }
    return PyBool_FromLong(tn_tensor_same_storage(tensor_in(self), tensor_in(other)));
}

/* ---- as a sequence, as a truth ----------------------------------------------------------- */

static Py_ssize_t length(PyObject *self)
{
    if (tn_tensor_ndim(tensor_in(self)) > 0)
        return (Py_ssize_t)tn_tensor_shape(tensor_in(self))[0];
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

/*
 * Without this function iter() would accept a tensor without axes, and the first next() would
 * fail.
 */
static PyObject *iterate(PyObject *self)
{
    if (tn_tensor_ndim(tensor_in(self)) > 0)
        return PySeqIter_New(self);
    PyErr_SetString(PyExc_TypeError, "a tensor without axes cannot be iterated over");
    return NULL;
}

static int truth(PyObject *self)
{
    if (tnp_tensor_check_on_cpu(self) < 0)
        return -1;
    if (tn_tensor_count(tensor_in(self)) != 1) {
        PyErr_Format(PyExc_ValueError, "a tensor of %lld elements is neither true nor false",
                     (long long)tn_tensor_count(tensor_in(self)));
        return -1;
    }
    PyObject *element =
        tnp_element_get(tn_tensor_dtype(tensor_in(self)), tn_tensor_data(tensor_in(self)));
    int result = element == NULL ? -1 : PyObject_IsTrue(element);
    Py_XDECREF(element);
    return result;
}

/* Convert a tensor of one element, for float() and int(). */
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
     "share($self, /, domain=None, timeout=0, *, stream=None)\n--\n\n"
     "Move its storage into the domain, for all its views; returns the tensor."},
    {"view", WITH_KEYWORDS(tnp_tensor_view), METH_VARARGS | METH_KEYWORDS,
     "view($self, /, shape, dtype=None, strides=None, byte_offset=None)\n--\n\n"
     "A view of the same storage with any shape, dtype and strides."},
    {"reshape", tnp_tensor_reshape, METH_VARARGS,
     "reshape($self, /, *shape)\n--\n\n"
     "The same elements in another shape, as a view."},
    {"transpose", tnp_tensor_transpose, METH_VARARGS,
     "transpose($self, /, *axes)\n--\n\n"
     "A view with the axes in another order."},
    {"copy", tnp_tensor_copy, METH_NOARGS,
     "copy($self, /)\n--\n\n"
     "A row-major copy in the same domain, or a private one if it is private."},
    {"__copy__", tnp_tensor_shallow_copy, METH_NOARGS,
     "__copy__($self, /)\n--\n\n"
     "Another view of the same storage."},
    {"__deepcopy__", tnp_tensor_deep_copy, METH_O,
     "__deepcopy__($self, memo, /)\n--\n\n"
     "As copy()."},
    {"copy_from", tnp_tensor_copy_from, METH_O,
     "copy_from($self, source, /)\n--\n\n"
     "Copy all elements of another tensor here."},
    {"tobytes", tnp_tensor_tobytes, METH_NOARGS,
     "tobytes($self, /)\n--\n\n"
     "The elements' bytes in row-major order."},
    {"tolist", tnp_tensor_tolist, METH_NOARGS,
     "tolist($self, /)\n--\n\n"
     "The elements as nested lists of numbers."},
    {"item", tnp_tensor_item, METH_NOARGS,
     "item($self, /)\n--\n\n"
     "The only element as a number."},
    {"to", WITH_KEYWORDS(tnp_tensor_to), METH_VARARGS | METH_KEYWORDS,
     "to($self, /, device, stream=None)\n--\n\n"
     "A tensor on another device with the same elements; itself if it is there."},
    {"record", WITH_KEYWORDS(tnp_tensor_record), METH_VARARGS | METH_KEYWORDS,
     "record($self, /, stream=None)\n--\n\n"
     "Say that a stream has been given the work on the tensor: receivers wait for it."},
    {"wait", WITH_KEYWORDS(tnp_tensor_wait), METH_VARARGS | METH_KEYWORDS,
     "wait($self, /, stream=None)\n--\n\n"
     "Let a stream wait for what was recorded; the call itself does not wait."},
    {"sync", WITH_KEYWORDS(tnp_tensor_sync), METH_VARARGS | METH_KEYWORDS,
     "sync($self, /, timeout=None)\n--\n\n"
     "Wait until what was recorded is done."},
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
     "The device: (1, 0) is the CPU, (2, n) the CUDA device n, (10, n) the ROCm device "
     "n."},
    {"__array__", WITH_KEYWORDS(tnp_tensor_array), METH_VARARGS | METH_KEYWORDS,
     "__array__($self, /, dtype=None, copy=None)\n--\n\n"
     "An array of NumPy over the same memory."},
    {NULL, NULL, 0, NULL},
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
    {"from_dlpack", WITH_KEYWORDS(tnp_module_from_dlpack), METH_VARARGS | METH_KEYWORDS,
     "from_dlpack($module, source, /, *, stream=None)\n--\n\n"
     "A tensor over the memory of an object with __dlpack__, or of a capsule."},
    {"from_cuda_array", WITH_KEYWORDS(tnp_module_from_cuda_array), METH_VARARGS | METH_KEYWORDS,
     "from_cuda_array($module, source, /, *, stream=None)\n--\n\n"
     "A tensor over the memory of an object with __cuda_array_interface__."},
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

static void fill_type(void)
{
    PyTypeObject *type = &tnp_tensor_type;
    type->tp_repr = tnp_tensor_repr;
    type->tp_as_number = &as_number;
    type->tp_as_sequence = &as_sequence;
    type->tp_as_mapping = &as_mapping;
    type->tp_as_buffer = &tnp_tensor_buffer;
    type->tp_iter = iterate;
    type->tp_methods = methods;
    type->tp_getset = tnp_tensor_facts;
}

int tnp_tensor_init(PyObject *module)
{
    fill_type();
    if (PyType_Ready(&tnp_tensor_type) < 0 || add_attributes() < 0 ||
        PyModule_AddFunctions(module, functions) < 0)
        return -1;
    return tnp_add(module, "Tensor", (PyObject *)&tnp_tensor_type);
}
