/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device: tensors in the memory of devices.
 *
 * The address of such a tensor is one that only the device can follow. So every function that
 * reads or writes elements on the CPU calls tnp_tensor_check_on_cpu() first. Views, handles and
 * messages need no address.
 * Source: "CUDA Array Interface (Version 3)", documentation of Numba.
 */
#include "tensor.h"

#include <string.h>

static tn_tensor *tensor_in(PyObject *self) { return ((tnp_tensor *)self)->tensor; }

/* ---- names ------------------------------------------------------------------------------- */

PyObject *tnp_device_name(tn_device device)
{
    if (device.type == TN_DEVICE_CPU)
        return PyUnicode_FromString("cpu");
    return PyUnicode_FromFormat("%s:%d", device.type == TN_DEVICE_CUDA ? "cuda" : "rocm",
                                (int)device.id);
}

int tnp_device(PyObject *device, tn_device *ret_device)
{
    int status;
    if (PyTuple_Check(device) && PyTuple_GET_SIZE(device) > 0) /* tenon.Device: its name */
        device = PyTuple_GET_ITEM(device, 0);
    if (!PyUnicode_Check(device)) {
        PyErr_Format(PyExc_TypeError, "a device is a text, as \"cuda:0\" is, not %.200s",
                     Py_TYPE(device)->tp_name);
        return -1;
    }
    Py_ssize_t size;
    const char *text = PyUnicode_AsUTF8AndSize(device, &size);
    if (text == NULL)
        return -1;
    if (strlen(text) != (size_t)size) {
        PyErr_Format(PyExc_ValueError, "%R names no device: it has a null character", device);
        return -1;
    }
    TNP_UNLOCKED(status, tn_device_find(text, ret_device)); /* the driver may have to start */
    if (status != 0)
        tnp_raise(status);
    return status != 0 ? -1 : 0;
}

int tnp_tensor_fail_on_device(PyObject *self)
{
    PyObject *name = tnp_device_name(tn_tensor_device(tensor_in(self)));
    if (name != NULL)
        PyErr_Format(PyExc_TypeError,
                     "the tensor is on %U, and the CPU cannot read or write memory there: "
                     ".to(\"cpu\") makes a copy on the CPU",
                     name);
    Py_XDECREF(name);
    return -1;
}

/* ---- copies ------------------------------------------------------------------------------ */

PyObject *tnp_tensor_domain_for_copy(PyObject *self)
{
    PyObject *domain = tnp_tensor_domain(self);
    if (domain == NULL)
        domain = tnp_domain_default();
    else
        Py_INCREF(domain);
    if (domain != NULL && tnp_domain_of(domain) == NULL)
        Py_CLEAR(domain);
    return domain;
}

/* What tn_tensor_to() does, but the elements are there when the call returns. */
static int copy_to(tn_domain *domain, const tn_tensor *t, tn_device device, tn_tensor **ret)
{
    tn_tensor_options options = {.struct_size = sizeof options, .device = device};
    if (device.type == TN_DEVICE_CPU)
        options.strategy = TN_STRATEGY_ARENA;
    return tn_tensor_clone(domain, t, &options, ret);
}

PyObject *tnp_tensor_to(PyObject *self, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"device", "stream", NULL};
    PyObject *device_object, *stream_object = NULL;
    tn_device device, here = tn_tensor_device(tensor_in(self));
    void *stream;
    tn_tensor *t = tensor_in(self), *result;
    int status;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O|O:to", names, &device_object,
                                     &stream_object) ||
        tnp_stream(stream_object, &stream) < 0 || tnp_device(device_object, &device) < 0)
        return NULL;
    /* The number 0 has meant "wait" since to() exists; a library's default stream is a stream.
     */
    bool waits = stream_object == NULL || stream_object == Py_None ||
                 (PyLong_Check(stream_object) && stream == NULL);
    if (device.type == here.type && device.id == here.id) {
        Py_INCREF(self);
        return self;
    }
    PyObject *object = tnp_tensor_domain_for_copy(self);
    if (object == NULL)
        return NULL;
    tn_domain *domain = ((tnp_domain *)object)->domain;
    tnp_tensor_begin_use(self);
    TNP_WAIT(object, status,
             waits ? copy_to(domain, t, device, &result)
                   : tn_tensor_to(domain, t, device, stream, &result));
    tnp_tensor_end_use(self);
    PyObject *wrapped = status != 0 ? tnp_raise(status) : tnp_tensor_wrap(result, object);
    Py_DECREF(object);
    return wrapped;
}

/* ---- the CUDA array interface ------------------------------------------------------------ */

static PyObject *fail_attribute(const char *why)
{
    PyErr_Format(PyExc_AttributeError, "__cuda_array_interface__: %s", why);
    return NULL;
}

/* The text that NumPy has for a dtype, as "<f4". */
static PyObject *typestr(tn_dtype dtype)
{
    static const char letters[] = {
        [kDLInt] = 'i', [kDLUInt] = 'u', [kDLFloat] = 'f', [kDLComplex] = 'c', [kDLBool] = 'b'};
    int bytes = TN_DTYPE_BITS(dtype) / 8;
    char order = bytes == 1 ? '|' : PY_BIG_ENDIAN ? '>' : '<';
    return PyUnicode_FromFormat("%c%c%d", order, letters[TN_DTYPE_CODE(dtype)], bytes);
}

/* In bytes; None: the elements are in row-major order. */
static PyObject *strides_of(const tn_tensor *t, const DLTensor *dl)
{
    int64_t strides[TN_MAX_NDIM];
    if (tnp_info(t).is_contiguous)
        Py_RETURN_NONE;
    for (int32_t i = 0; i < dl->ndim; i++)
        strides[i] = dl->strides[i] * (dl->dtype.bits / 8);
    return tnp_tuple(strides, dl->ndim);
}

/*
 * The number of the stream that a consumer has to follow. Work that other processes recorded
 * has no stream here, so the legacy default stream waits for it. None: all of it is done. NULL:
 * raised.
 */
static PyObject *stream_to_follow(PyObject *self)
{
    enum { LEGACY = 1 };
    int pending = tnp_tensor_is_pending(self);
    if (pending < 0 || (pending > 0 && tnp_tensor_let_wait(self, NULL) < 0))
        return NULL;
    if (pending > 0)
        return PyLong_FromLong(LEGACY);
    Py_RETURN_NONE;
}

static PyObject *describe_array(PyObject *self, const DLTensor *dl)
{
    const tn_tensor *t = tensor_in(self);
    PyObject *shape = tnp_tuple(dl->shape, dl->ndim), *strides = strides_of(t, dl);
    PyObject *type = typestr(tn_tensor_dtype(t)), *interface = NULL;
    PyObject *stream = stream_to_follow(self);
    if (shape != NULL && strides != NULL && type != NULL && stream != NULL)
        interface = Py_BuildValue("{sOsOs(KO)sOsisO}", "shape", shape, "typestr", type, "data",
                                  (unsigned long long)(uintptr_t)dl->data,
                                  tnp_info(t).is_read_only ? Py_True : Py_False, "strides",
                                  strides, "version", 3, "stream", stream);
    Py_XDECREF(stream);
    Py_XDECREF(shape);
    Py_XDECREF(strides);
    Py_XDECREF(type);
    return interface;
}

PyObject *tnp_tensor_cuda_array(PyObject *self, void *unused)
{
    DLManagedTensorVersioned *managed;
    (void)unused;
    if (tn_tensor_device(tensor_in(self)).type != TN_DEVICE_CUDA)
        return fail_attribute("the tensor is not on a CUDA device");
    if (tnp_dtype_letters(tn_tensor_dtype(tensor_in(self))) == NULL)
        return fail_attribute("NumPy has no such dtype: hand the tensor over by DLPack");
    int status = tn_tensor_to_dlpack(tensor_in(self), &managed); /* refuses a pending bit */
    if (status == TN_ERR_UNSUPPORTED)
        return fail_attribute(tn_error_detail());
    if (status != 0)
        return tnp_raise(status);
    PyObject *interface = describe_array(self, &managed->dl_tensor);
    managed->deleter(managed);
    return interface;
}

/* ---- functions of the module ------------------------------------------------------------- */

static PyObject *text_of(const char *text)
{
    return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
}

/* (name, model, uuid, memory_bytes, driver_version, shares, pci, numa_node); NULL: raised */
static PyObject *describe_device(tn_device device)
{
    tn_device_info info = {.struct_size = sizeof info};
    int status;
    TNP_UNLOCKED(status, tn_device_get_info(device, &info));
    if (status != 0)
        return tnp_raise(status);
    return Py_BuildValue("(NNNKiNNi)", tnp_device_name(device), text_of(info.name),
                         text_of(info.uuid_text), (unsigned long long)info.memory_bytes,
                         (int)info.driver_version,
                         PyBool_FromLong((info.flags & TN_DEVICE_SHARES) != 0),
                         text_of(info.pci), (int)info.numa_node);
}

/* -1: raised */
static int add_devices(PyObject *list, int32_t type)
{
    int count, status = 0;
    TNP_UNLOCKED(count, tn_device_count(type));
    if (count < 0 && count != TN_ERR_UNSUPPORTED) {
        tnp_raise(count);
        return -1;
    }
    for (int32_t id = 0; status == 0 && id < count; id++) {
        PyObject *device = describe_device((tn_device){type, id});
        status = device == NULL ? -1 : PyList_Append(list, device);
        Py_XDECREF(device);
    }
    return status;
}

static PyObject *devices(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    PyObject *list = PyList_New(0);
    if (list != NULL &&
        (add_devices(list, TN_DEVICE_CUDA) < 0 || add_devices(list, TN_DEVICE_ROCM) < 0))
        Py_CLEAR(list);
    return list;
}

static PyObject *find_device(PyObject *module, PyObject *text)
{
    tn_device device;
    (void)module;
    return tnp_device(text, &device) < 0 ? NULL : tnp_device_name(device);
}

static PyObject *set_torch_memory(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *domain, *fail;
    uint64_t address;
    if (!PyArg_ParseTuple(args, "OO:set_torch_memory", &domain, &fail) ||
        tnp_word(fail, &address) < 0)
        return NULL;
    tn_domain *d = tnp_domain_of(domain);
    if (d == NULL)
        return NULL;
    tnp_torch_memory_use(d, (tnp_torch_fail)(uintptr_t)address);
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"set_torch_memory", set_torch_memory, METH_VARARGS,
     "set_torch_memory($module, domain, fail, /)\n--\n\n"
     "Let tenon_torch_alloc() take memory of this domain; `fail` is the address of a\n"
     "function that throws, or 0."},
    {"devices", devices, METH_NOARGS,
     "devices($module, /)\n--\n\n"
     "A tuple for each device of this process, without the CPU."},
    {"find_device", find_device, METH_O,
     "find_device($module, text, /)\n--\n\n"
     "The name of the device that a text or a UUID names."},
    {NULL, NULL, 0, NULL},
};

int tnp_device_init(PyObject *module) { return PyModule_AddFunctions(module, functions); }
