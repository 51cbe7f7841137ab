/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dlpack_import: make a tensor over the memory of a DLPack capsule. dlpack_export.c names the
 * sources.
 */
#include "dlpack.h"

#include <stdlib.h>
#include <string.h>

enum { LEGACY = 1 }; /* as DLPack numbers the streams of CUDA */

/* The deleter of a tensor from before DLPack 1.0 that take_unversioned() has wrapped. */
static void release_wrapped(DLManagedTensorVersioned *managed)
{
    struct tnp_unversioned *old = managed->manager_ctx;
    if (old->deleter != NULL)
        old->deleter(old);
    free(managed);
}

static const char *device_name(int type)
{
    static const struct {
        int type;
        const char *name;
    } names[] = {{1, "cpu"},        {2, "cuda"},     {3, "cuda_host"},     {4, "opencl"},
                 {7, "vulkan"},     {8, "metal"},    {9, "vpi"},           {10, "rocm"},
                 {11, "rocm_host"}, {12, "ext_dev"}, {13, "cuda_managed"}, {14, "oneapi"},
                 {15, "webgpu"},    {16, "hexagon"}, {17, "maia"},         {18, "trn"}};
    for (size_t i = 0; i < TNP_COUNT(names); i++)
        if (names[i].type == type)
            return names[i].name;
    return "unknown";
}

static int check_device(long type, long number)
{
    if (type == kDLCPU || type == kDLCUDAHost || type == kDLROCMHost || type == kDLCUDA ||
        type == kDLROCM)
        return 0;
    PyErr_Format(
        PyExc_BufferError,
        "the tensor is on device %s:%ld (DLPack's type %ld): only memory of the CPU and of "
        "CUDA and ROCm devices can be shared, copy it to the CPU first",
        device_name((int)type), number, type);
    return -1;
}

static PyObject *take_versioned(PyObject *capsule)
{
    DLManagedTensorVersioned *managed = PyCapsule_GetPointer(capsule, VERSIONED);
    tn_tensor *tensor;
    if (managed == NULL)
        return NULL;
    const DLDevice *device = &managed->dl_tensor.device;
    if (managed->version.major == DLPACK_MAJOR_VERSION &&
        check_device((long)device->device_type, device->device_id) < 0)
        return NULL;
    int status = tn_tensor_from_dlpack(managed, &tensor);
    if (status != 0)
        return tnp_raise(status);
    if (PyCapsule_SetName(capsule, USED_VERSIONED) < 0)
        PyErr_Clear(); /* cannot happen: the capsule was valid before */
    return tnp_tensor_wrap(tensor, NULL);
}

static PyObject *take_unversioned(PyObject *capsule)
{
    struct tnp_unversioned *old = PyCapsule_GetPointer(capsule, UNVERSIONED);
    tn_tensor *tensor;
    if (old == NULL || check_device((long)old->dl_tensor.device.device_type,
                                    old->dl_tensor.device.device_id) < 0)
        return NULL;
    DLManagedTensorVersioned *managed = malloc(sizeof *managed);
    if (managed == NULL)
        return PyErr_NoMemory();
    *managed = (DLManagedTensorVersioned){
        .version = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION},
        .manager_ctx = old,
        .deleter = release_wrapped,
        .dl_tensor = old->dl_tensor,
    };
    int status = tn_tensor_from_dlpack(managed, &tensor);
    if (status != 0) {
        free(managed);
        return tnp_raise(status);
    }
    if (PyCapsule_SetName(capsule, USED_UNVERSIONED) < 0)
        PyErr_Clear();
    return tnp_tensor_wrap(tensor, NULL);
}

static PyObject *take_capsule(PyObject *capsule)
{
    if (PyCapsule_IsValid(capsule, VERSIONED))
        return take_versioned(capsule);
    if (PyCapsule_IsValid(capsule, UNVERSIONED))
        return take_unversioned(capsule);
    const char *name = PyCapsule_GetName(capsule);
    PyErr_Clear();
    bool was_used = name != NULL &&
                    (strcmp(name, USED_VERSIONED) == 0 || strcmp(name, USED_UNVERSIONED) == 0);
    PyErr_Format(PyExc_ValueError,
                 was_used ? "the DLPack capsule '%.100s' was taken before"
                          : "a capsule '%.100s' is not one of DLPack",
                 name != NULL ? name : "");
    return NULL;
}

/* Check the device first, so that the source exports nothing in vain. */
static int check_source_device(PyObject *source, long *ret_type)
{
    PyObject *pair = PyObject_CallMethod(source, "__dlpack_device__", NULL);
    long numbers[2] = {kDLCPU, 0};
    if (pair == NULL && PyErr_ExceptionMatches(PyExc_AttributeError)) {
        PyErr_Clear();
        *ret_type = kDLCPU;
        return 0;
    }
    int failed = pair == NULL ? -1 : 0;
    for (Py_ssize_t i = 0; failed == 0 && i < 2; i++) {
        PyObject *item = PySequence_GetItem(pair, i);
        PyObject *index = item != NULL ? PyNumber_Index(item) : NULL;
        numbers[i] = index != NULL ? PyLong_AsLong(index) : -1;
        failed = index == NULL || PyErr_Occurred() ? -1 : 0;
        Py_XDECREF(index);
        Py_XDECREF(item);
    }
    Py_XDECREF(pair);
    *ret_type = numbers[0];
    return failed < 0 ? -1 : check_device(numbers[0], numbers[1]);
}

/*
 * The stream that the source is told, a new reference; None: none. Without one PyTorch orders
 * nothing, although DLPack says that this means the default stream. So it is always named on a
 * device. NULL: raised.
 */
static PyObject *stream_to_tell(PyObject *stream, long device_type)
{
    if ((stream == NULL || stream == Py_None) &&
        (device_type == kDLCUDA || device_type == kDLROCM))
        return PyLong_FromLong(device_type == kDLCUDA ? LEGACY : 0);
    if (stream == NULL)
        stream = Py_None;
    Py_INCREF(stream);
    return stream;
}

/* Whether an object is a tensor of PyTorch, which is not imported for this. -1: raised. */
static int is_of_torch(PyObject *source)
{
    PyObject *name = PyUnicode_FromString("torch");
    PyObject *torch = name == NULL ? NULL : PyImport_GetModule(name);
    PyObject *kind = torch == NULL ? NULL : PyObject_GetAttrString(torch, "Tensor");
    int result = kind != NULL ? PyObject_IsInstance(source, kind) : PyErr_Occurred() ? -1 : 0;
    if (torch != NULL && kind == NULL && PyErr_ExceptionMatches(PyExc_AttributeError)) {
        PyErr_Clear(); /* the module `torch` is another one, or is being imported */
        result = 0;
    }
    Py_XDECREF(kind);
    Py_XDECREF(torch);
    Py_XDECREF(name);
    return result;
}

/* PyTorch exports the memory of a negated view as if it were what the view shows. -1: raised.
 */
static int check_sign(PyObject *source)
{
    PyObject *is_negated = PyObject_CallMethod(source, "is_neg", NULL);
    int result = is_negated == NULL ? -1 : PyObject_IsTrue(is_negated);
    Py_XDECREF(is_negated);
    if (result > 0)
        PyErr_SetString(PyExc_BufferError,
                        "the tensor shows its memory negated: call resolve_neg() first");
    return result == 0 ? 0 : -1;
}

/* The capsule of a tensor of PyTorch on a device, which may be another than the current one. */
static PyObject *request_of_torch(PyObject *source, PyObject *stream)
{
    PyObject *ours = PyImport_ImportModule("tenon._torch_cuda");
    PyObject *capsule =
        ours == NULL ? NULL : PyObject_CallMethod(ours, "capsule_of", "OO", source, stream);
    Py_XDECREF(ours);
    return capsule;
}

/* `stream` is what the source orders its work before. */
static PyObject *request_by_protocol(PyObject *source, PyObject *stream)
{
    PyObject *method = PyObject_GetAttrString(source, "__dlpack__"), *capsule = NULL;
    PyObject *none = method != NULL ? PyTuple_New(0) : NULL;
    PyObject *keywords = none != NULL
                             ? Py_BuildValue("{s(ii)}", "max_version", DLPACK_MAJOR_VERSION,
                                             DLPACK_MINOR_VERSION)
                             : NULL;
    if (keywords != NULL && stream != Py_None &&
        PyDict_SetItemString(keywords, "stream", stream) < 0)
        Py_CLEAR(keywords);
    if (keywords != NULL)
        capsule = PyObject_Call(method, none, keywords);
    if (keywords != NULL && capsule == NULL && PyErr_ExceptionMatches(PyExc_TypeError)) {
        PyErr_Clear(); /* the source follows DLPack before 1.0 */
        PyDict_DelItemString(keywords, "max_version");
        capsule = PyObject_Call(method, none, keywords);
    }
    Py_XDECREF(keywords);
    Py_XDECREF(none);
    Py_XDECREF(method);
    return capsule;
}

/* `stream` is NULL or None: the source orders its work before the legacy default stream. */
static PyObject *request_capsule(PyObject *source, PyObject *stream)
{
    long type;
    if (check_source_device(source, &type) < 0)
        return NULL;
    int is_torch = is_of_torch(source);
    if (is_torch < 0 || (is_torch && check_sign(source) < 0))
        return NULL;
    PyObject *told = stream_to_tell(stream, type);
    if (told == NULL)
        return NULL;
    bool is_on_device = type == kDLCUDA || type == kDLROCM;
    PyObject *capsule = is_torch && is_on_device ? request_of_torch(source, told)
                                                 : request_by_protocol(source, told);
    Py_DECREF(told);
    return capsule;
}

static PyObject *from_dlpack(PyObject *source, PyObject *stream)
{
    if (tnp_is_tensor(source)) {
        Py_INCREF(source);
        return source;
    }
    if (PyCapsule_CheckExact(source))
        return take_capsule(source);
    if (!PyObject_HasAttrString(source, "__dlpack__")) {
        PyErr_Format(PyExc_TypeError, "%.200s has no __dlpack__", Py_TYPE(source)->tp_name);
        return NULL;
    }
    PyObject *capsule = request_capsule(source, stream), *tensor = NULL;
    if (capsule != NULL && !PyCapsule_CheckExact(capsule))
        PyErr_Format(PyExc_TypeError, "__dlpack__ of %.200s gave %.200s, not a capsule",
                     Py_TYPE(source)->tp_name, Py_TYPE(capsule)->tp_name);
    else if (capsule != NULL)
        tensor = take_capsule(capsule);
    Py_XDECREF(capsule);
    return tensor;
}

PyObject *tnp_from_dlpack(PyObject *source) { return from_dlpack(source, NULL); }

/* The number by which DLPack knows the consumer's stream, a new reference. NULL: raised. */
static PyObject *number_for_dlpack(PyObject *stream)
{
    void *handle;
    if (stream == Py_None || (PyLong_Check(stream) && PyLong_AsLong(stream) == -1)) {
        Py_INCREF(stream);
        return stream;
    }
    PyErr_Clear(); /* a number that is no long */
    if (tnp_stream(stream, &handle) < 0)
        return NULL;
    return PyLong_FromUnsignedLongLong(handle == NULL ? LEGACY : (uintptr_t)handle);
}

PyObject *tnp_module_from_dlpack(PyObject *module, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"", "stream", NULL};
    PyObject *source, *stream = Py_None;
    (void)module;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O|$O:from_dlpack", names, &source,
                                     &stream))
        return NULL;
    PyObject *number = number_for_dlpack(stream);
    PyObject *tensor = number == NULL ? NULL : from_dlpack(source, number);
    Py_XDECREF(number);
    return tensor;
}
