/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_array_import: make a tensor over the memory of an object with __cuda_array_interface__.
 * device.c has the export.
 *
 * The interface does not name the device: the driver tells it by the address. Nor does it keep
 * the memory: the tensor keeps the object.
 * Source: "CUDA Array Interface (Version 3)", documentation of Numba.
 */
#include "tensor.h"

#include <stdlib.h>

#define INTERFACE "__cuda_array_interface__"

enum { OLDEST = 2, NEWEST = 3 }; /* versions. 2 has no `stream` */
enum { LEGACY = 1 };             /* as the interface numbers streams; 0 is none */

struct array_import {
    DLManagedTensorVersioned managed;
    PyObject *source;
    int64_t shape[TN_MAX_NDIM];
    int64_t strides[TN_MAX_NDIM]; /* elements */
    bool is_empty;
    void *stream; /* what has the work on the memory; NULL: it is done */
};

/* Any thread may call this. If the interpreter shuts down, the memory need not be released. */
static void release_import(DLManagedTensorVersioned *managed)
{
    struct array_import *import = managed->manager_ctx;
    if (tnp_is_finalizing())
        return;
    PyGILState_STATE state = PyGILState_Ensure();
    Py_DECREF(import->source);
    PyGILState_Release(state);
    free(import);
}

/* ---- the entries ------------------------------------------------------------------------- */

/* An entry, borrowed; None if it is missing and may be. NULL: raised. */
static PyObject *entry(PyObject *interface, const char *name, bool may_be_missing)
{
    PyObject *key = PyUnicode_FromString(name);
    PyObject *value = key == NULL ? NULL : PyDict_GetItemWithError(interface, key);
    Py_XDECREF(key);
    if (value == NULL && !PyErr_Occurred() && may_be_missing)
        return Py_None;
    if (value == NULL && !PyErr_Occurred())
        PyErr_Format(PyExc_ValueError, INTERFACE " has no '%s'", name);
    return value;
}

static int fail_type(const char *name, PyObject *value, const char *right)
{
    PyErr_Format(PyExc_TypeError, INTERFACE "['%s'] is %R, and not %s", name, value, right);
    return -1;
}

/* An entry that is an int of 64 bits. -1: raised. */
static int read_int(const char *name, PyObject *value, int64_t *ret)
{
    if (!PyIndex_Check(value))
        return fail_type(name, value, "an int");
    PyObject *index = PyNumber_Index(value);
    *ret = index == NULL ? -1 : PyLong_AsLongLong(index);
    Py_XDECREF(index);
    if (*ret != -1 || !PyErr_Occurred())
        return 0;
    if (PyErr_ExceptionMatches(PyExc_OverflowError))
        PyErr_Format(PyExc_ValueError, INTERFACE "['%s'] has %R, which is too large", name,
                     value);
    return -1;
}

/* A tuple of ints. -1: raised. */
static int read_ints(const char *name, PyObject *value, int64_t *ret_ints, int32_t *ret_count)
{
    if (!PyTuple_Check(value))
        return fail_type(name, value, "a tuple of ints");
    Py_ssize_t count = PyTuple_GET_SIZE(value);
    if (count > TN_MAX_NDIM) {
        PyErr_Format(PyExc_ValueError, INTERFACE "['%s'] has %zd axes; at most %d are possible",
                     name, count, TN_MAX_NDIM);
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++)
        if (read_int(name, PyTuple_GET_ITEM(value, i), &ret_ints[i]) < 0)
            return -1;
    *ret_count = (int32_t)count;
    return 0;
}

static int check_version(PyObject *interface)
{
    int64_t version;
    PyObject *value = entry(interface, "version", false);
    if (value == NULL || read_int("version", value, &version) < 0)
        return -1;
    if (version >= OLDEST && version <= NEWEST)
        return 0;
    PyErr_Format(PyExc_ValueError,
                 INTERFACE "['version'] is %R: only versions %d and %d are understood", value,
                 OLDEST, NEWEST);
    return -1;
}

static int check_mask(PyObject *interface)
{
    PyObject *mask = entry(interface, "mask", true);
    if (mask == NULL || mask == Py_None)
        return mask == NULL ? -1 : 0;
    PyErr_SetString(PyExc_ValueError, INTERFACE "['mask'] is set: no tensor has a mask");
    return -1;
}

static int read_dtype(PyObject *interface, DLDataType *ret)
{
    tn_dtype dtype;
    PyObject *value = entry(interface, "typestr", false);
    if (value == NULL)
        return -1;
    const char *text = PyUnicode_Check(value) ? PyUnicode_AsUTF8(value) : NULL;
    if (text == NULL)
        return PyErr_Occurred() ? -1 : fail_type("typestr", value, "a text, as '<f4'");
    bool has_order = text[0] == '<' || text[0] == '>' || text[0] == '|';
    if (!has_order || tnp_dtype(value, &dtype) < 0) {
        PyErr_Clear();
        PyErr_Format(PyExc_TypeError,
                     INTERFACE "['typestr'] is %R, and tensors have no such dtype", value);
        return -1;
    }
    *ret = (DLDataType){TN_DTYPE_CODE(dtype), TN_DTYPE_BITS(dtype), TN_DTYPE_LANES(dtype)};
    return 0;
}

static int read_shape(PyObject *interface, struct array_import *import)
{
    PyObject *value = entry(interface, "shape", false);
    DLTensor *dl = &import->managed.dl_tensor;
    if (value == NULL || read_ints("shape", value, import->shape, &dl->ndim) < 0)
        return -1;
    for (int32_t i = 0; i < dl->ndim; i++) {
        import->is_empty |= import->shape[i] == 0;
        if (import->shape[i] < 0) {
            PyErr_Format(PyExc_ValueError, INTERFACE "['shape'] is %R: no size is negative",
                         value);
            return -1;
        }
    }
    dl->shape = import->shape;
    return 0;
}

/* pre: the shape and the dtype are read */
static int read_strides(PyObject *interface, struct array_import *import)
{
    PyObject *value = entry(interface, "strides", true);
    DLTensor *dl = &import->managed.dl_tensor;
    int64_t item_bytes = dl->dtype.bits / 8;
    int32_t count;
    if (value == NULL || value == Py_None)
        return value == NULL ? -1 : 0;
    if (read_ints("strides", value, import->strides, &count) < 0)
        return -1;
    if (count != dl->ndim) {
        PyErr_Format(PyExc_ValueError, INTERFACE "['strides'] is %R, for %d axes", value,
                     (int)dl->ndim);
        return -1;
    }
    for (int32_t i = 0; i < count; i++) {
        if (import->strides[i] % item_bytes != 0 && import->shape[i] > 1) {
            PyErr_Format(PyExc_ValueError,
                         INTERFACE "['strides'] is %R: %lld bytes are no whole elements of "
                                   "%lld",
                         value, (long long)import->strides[i], (long long)item_bytes);
            return -1;
        }
        import->strides[i] /= item_bytes;
    }
    dl->strides = import->strides;
    return 0;
}

/* pre: the shape is read. The address of an array without elements is 0, or means nothing. */
static int read_data(PyObject *interface, struct array_import *import)
{
    PyObject *value = entry(interface, "data", false);
    uint64_t address;
    if (value == NULL)
        return -1;
    if (!PyTuple_Check(value) || PyTuple_GET_SIZE(value) != 2 ||
        !PyIndex_Check(PyTuple_GET_ITEM(value, 0)))
        return fail_type("data", value, "(an address, whether it is read-only)");
    int is_read_only = PyObject_IsTrue(PyTuple_GET_ITEM(value, 1));
    if (is_read_only < 0)
        return -1;
    if (tnp_word(PyTuple_GET_ITEM(value, 0), &address) < 0) {
        PyErr_Clear();
        PyErr_Format(PyExc_ValueError, INTERFACE "['data'] is %R: this is no address", value);
        return -1;
    }
    if (address == 0 && !import->is_empty) {
        PyErr_Format(PyExc_ValueError,
                     INTERFACE "['data'] is %R, but an array with elements has an address",
                     value);
        return -1;
    }
    import->managed.flags = is_read_only ? DLPACK_FLAG_BITMASK_READ_ONLY : 0;
    import->managed.dl_tensor.data = import->is_empty ? NULL : (void *)(uintptr_t)address;
    return 0;
}

static int read_stream(PyObject *interface, struct array_import *import)
{
    int64_t number;
    PyObject *value = entry(interface, "stream", true);
    if (value == NULL || value == Py_None)
        return value == NULL ? -1 : 0;
    if (read_int("stream", value, &number) < 0)
        return -1;
    if (number > 0) {
        import->stream = (void *)(uintptr_t)number;
        return 0;
    }
    PyErr_Format(PyExc_ValueError,
                 INTERFACE "['stream'] is %R: it is None, %d for the legacy default stream, 2 "
                           "for that of each thread, or the handle of a stream",
                 value, LEGACY);
    return -1;
}

static int read_interface(PyObject *interface, struct array_import *import)
{
    import->managed = (DLManagedTensorVersioned){
        .version = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION},
        .manager_ctx = import,
        .deleter = release_import,
    };
    return check_version(interface) < 0 || check_mask(interface) < 0 ||
                   read_dtype(interface, &import->managed.dl_tensor.dtype) < 0 ||
                   read_shape(interface, import) < 0 || read_strides(interface, import) < 0 ||
                   read_data(interface, import) < 0 || read_stream(interface, import) < 0
               ? -1
               : 0;
}

/* ---- importing --------------------------------------------------------------------------- */

/* An array without elements may be of any device. -1: raised. */
static int find_device(struct array_import *import)
{
    tn_device device = {TN_DEVICE_CUDA, 0};
    const void *data = import->managed.dl_tensor.data;
    int status = 0;
    if (!import->is_empty) /* the driver may have to start */
        TNP_UNLOCKED(status, tn_device_find_address(data, &device));
    import->managed.dl_tensor.device = (DLDevice){(DLDeviceType)device.type, device.id};
    if (status == TN_ERR_NOT_FOUND)
        PyErr_Format(PyExc_ValueError, INTERFACE "['data']: %s", tn_error_detail());
    else if (status != 0)
        tnp_raise(status);
    return status != 0 ? -1 : 0;
}

/*
 * Wait for the work on the memory, unless the program says that it orders its own work
 * (stream=-1), or will use the memory on the same stream. -1: raised.
 */
static int wait_for_work(const struct array_import *import, PyObject *consumer)
{
    const DLDevice *at = &import->managed.dl_tensor.device;
    void *stream;
    int status;
    if (import->stream == NULL || import->is_empty)
        return 0;
    if (consumer != Py_None) {
        if (PyLong_Check(consumer) && PyLong_AsLong(consumer) == -1 && !PyErr_Occurred())
            return 0;
        PyErr_Clear(); /* a number that is no long */
        if (tnp_stream(consumer, &stream) < 0)
            return -1;
        if (stream == import->stream || (stream == NULL && import->stream == (void *)LEGACY))
            return 0;
    }
    TNP_UNLOCKED(status, tn_device_wait((tn_device){(int32_t)at->device_type, at->device_id},
                                        import->stream));
    if (status == TN_ERR_INVALID)
        PyErr_Format(PyExc_ValueError, INTERFACE "['stream']: %s", tn_error_detail());
    else if (status != 0)
        tnp_raise(status);
    return status != 0 ? -1 : 0;
}

/* The interface of an object, a new reference. NULL: raised. */
static PyObject *interface_of(PyObject *source)
{
    PyObject *interface = PyObject_GetAttrString(source, INTERFACE);
    if (interface == NULL && PyErr_ExceptionMatches(PyExc_AttributeError)) {
        PyErr_Clear();
        PyErr_Format(PyExc_TypeError, "%.200s has no " INTERFACE, Py_TYPE(source)->tp_name);
    } else if (interface != NULL && !PyDict_Check(interface)) {
        PyErr_Format(PyExc_TypeError, INTERFACE " of %.200s is %.200s, not a dict",
                     Py_TYPE(source)->tp_name, Py_TYPE(interface)->tp_name);
        Py_CLEAR(interface);
    }
    return interface;
}

static PyObject *from_cuda_array(PyObject *source, PyObject *consumer)
{
    tn_tensor *tensor;
    if (tnp_is_tensor(source)) {
        Py_INCREF(source);
        return source;
    }
    PyObject *interface = interface_of(source);
    if (interface == NULL)
        return NULL;
    struct array_import *import = calloc(1, sizeof *import);
    int failed = import == NULL ? -1 : read_interface(interface, import);
    Py_DECREF(interface);
    if (import == NULL)
        return PyErr_NoMemory();
    if (failed == 0 && find_device(import) == 0 && wait_for_work(import, consumer) == 0) {
        int status = tn_tensor_from_dlpack(&import->managed, &tensor);
        if (status == 0) {
            Py_INCREF(source);
            import->source = source;
            return tnp_tensor_wrap(tensor, NULL);
        }
        tnp_raise(status);
    }
    free(import);
    return NULL;
}

bool tnp_has_cuda_array(PyObject *object) { return PyObject_HasAttrString(object, INTERFACE); }

PyObject *tnp_from_cuda_array(PyObject *source) { return from_cuda_array(source, Py_None); }

PyObject *tnp_module_from_cuda_array(PyObject *module, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"", "stream", NULL};
    PyObject *source, *stream = Py_None;
    (void)module;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O|$O:from_cuda_array", names, &source,
                                     &stream))
        return NULL;
    return from_cuda_array(source, stream);
}
