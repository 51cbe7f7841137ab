/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exchange: the same memory in other libraries: the buffer protocol, DLPack, __array__.
 *
 * Whatever looks at a tensor's memory from outside has an export of tn_tensor_to_dlpack(): it
 * keeps the storage, and forbids that it moves. An export may end in any thread, with or
 * without the GIL, and after the domain was closed.
 * Source: PEP 3118; the array API standard, "Data interchange mechanisms", and DLPack's "Python
 * Specification", https://dmlc.github.io/dlpack/latest/python_spec.html.
 *
 * It is one file since all three end one kind of export, by one set of rules.
 */
#include "core.h"

#include <stdlib.h>
#include <string.h>

static tn_tensor *of(PyObject *self) { return ((tnp_tensor *)self)->tensor; }

/* A failed call of tenon as `type`, with its detail. */
static PyObject *raise_as(PyObject *type)
{
    PyErr_SetString(type, tn_error_detail());
    return NULL;
}

static const char *name_of(tn_dtype dtype, char name[32])
{
    return tn_dtype_name(dtype, name, 32) == 0 ? name : "an unknown dtype";
}

/* ---- dtypes and letters ------------------------------------------------------------------ */

static const struct {
    uint8_t code;
    uint8_t bits;
    const char *letters;
} formats[] = {
    {kDLBool, 8, "?"},      {kDLInt, 8, "b"},        {kDLInt, 16, "h"},   {kDLInt, 32, "i"},
    {kDLInt, 64, "q"},      {kDLUInt, 8, "B"},       {kDLUInt, 16, "H"},  {kDLUInt, 32, "I"},
    {kDLUInt, 64, "Q"},     {kDLFloat, 16, "e"},     {kDLFloat, 32, "f"}, {kDLFloat, 64, "d"},
    {kDLComplex, 64, "Zf"}, {kDLComplex, 128, "Zd"},
};

const char *tnp_dtype_letters(tn_dtype dtype)
{
    for (size_t i = 0; i < TNP_COUNT(formats); i++)
        if (formats[i].code == TN_DTYPE_CODE(dtype) &&
            formats[i].bits == TN_DTYPE_BITS(dtype) && TN_DTYPE_LANES(dtype) == 1)
            return formats[i].letters;
    return NULL;
}

/* NumPy's int64 is C's long wherever that has 64 bits: `q` would be another type there. */
static const char *native_letters(tn_dtype dtype)
{
    const char *letters = tnp_dtype_letters(dtype);
    if (letters != NULL && sizeof(long) == 8 && letters[0] == 'q')
        return "l";
    if (letters != NULL && sizeof(long) == 8 && letters[0] == 'Q')
        return "L";
    return letters;
}

/* By what a letter stands for, and the size that the exporter states. */
static int code_of(const char *letters, uint8_t *ret_code)
{
    bool is_pair = letters[0] == 'Z' && letters[1] != '\0' && letters[2] == '\0';
    if (is_pair && strchr("fd", letters[1]) != NULL)
        return *ret_code = kDLComplex, 0;
    if (letters[0] == '\0' || letters[1] != '\0')
        return -1;
    if (letters[0] == '?')
        *ret_code = kDLBool;
    else if (strchr("bhilqn", letters[0]) != NULL)
        *ret_code = kDLInt;
    else if (strchr("BHILQN", letters[0]) != NULL)
        *ret_code = kDLUInt;
    else if (strchr("efd", letters[0]) != NULL)
        *ret_code = kDLFloat;
    else
        return -1;
    return 0;
}

static int fail_format(const char *format, const char *why)
{
    PyErr_Format(PyExc_TypeError, "a buffer of format '%.100s': %s", format, why);
    return -1;
}

int tnp_parse_format(const char *format, Py_ssize_t item_bytes, tn_dtype *ret)
{
    static const char foreign_order = PY_BIG_ENDIAN ? '<' : '>';
    const char *letters = format;
    if (letters[0] != '\0' && strchr("@=<>!", letters[0]) != NULL)
        letters++;
    bool is_foreign =
        letters != format && (*format == foreign_order || (!PY_BIG_ENDIAN && *format == '!'));
    if (is_foreign && item_bytes > 1)
        return fail_format(format, "its byte order is not this machine's");
    if (strchr(letters, 'O') != NULL)
        return fail_format(format, "objects of Python cannot be shared");
    if (strchr(letters, '{') != NULL || strchr(letters, ':') != NULL)
        return fail_format(format, "structured elements are no tensor's");
    if (letters[0] == 'M' || letters[0] == 'm')
        return fail_format(format, "dates and durations are no tensor's elements");
    uint8_t code;
    if (code_of(letters, &code) < 0 || item_bytes < 1 || item_bytes > 16)
        return fail_format(format, "no dtype of tensors has it");
    *ret = TN_DTYPE(code, item_bytes * 8, 1);
    if (tnp_dtype_letters(*ret) == NULL)
        return fail_format(format, "no dtype of tensors has it");
    return 0;
}

/* ---- the buffer protocol, out ------------------------------------------------------------ */

struct buffer_export {
    DLManagedTensorVersioned *managed;
    Py_ssize_t numbers[]; /* shape [ndim], strides [ndim] in bytes */
};

/* The memory of a tensor that has none. */
static char nothing[16];

static bool is_dense(const Py_ssize_t *shape, const Py_ssize_t *strides, int ndim,
                     Py_ssize_t item_bytes, bool is_fortran)
{
    Py_ssize_t expected = item_bytes;
    for (int i = 0; i < ndim; i++)
        if (shape[i] == 0)
            return true;
    for (int i = 0; i < ndim; i++) {
        int axis = is_fortran ? i : ndim - 1 - i;
        if (shape[axis] != 1 && strides[axis] != expected)
            return false;
        expected *= shape[axis];
    }
    return true;
}

static const char *refuse(const Py_buffer *view, int flags)
{
    bool is_c = is_dense(view->shape, view->strides, view->ndim, view->itemsize, false);
    bool is_f = is_dense(view->shape, view->strides, view->ndim, view->itemsize, true);
    bool has = (flags & PyBUF_STRIDES) == PyBUF_STRIDES;
    if ((flags & PyBUF_WRITABLE) == PyBUF_WRITABLE && view->readonly)
        return "the tensor is read-only";
    if (((flags & PyBUF_C_CONTIGUOUS) == PyBUF_C_CONTIGUOUS || !has) && !is_c)
        return "the tensor is not contiguous in row-major order";
    if ((flags & PyBUF_F_CONTIGUOUS) == PyBUF_F_CONTIGUOUS && !is_f)
        return "the tensor is not contiguous in column-major order";
    if ((flags & PyBUF_ANY_CONTIGUOUS) == PyBUF_ANY_CONTIGUOUS && !is_c && !is_f)
        return "the tensor is not contiguous";
    return NULL;
}

static void end_export(struct buffer_export *export)
{
    export->managed->deleter(export->managed);
    PyMem_Free(export);
}

static struct buffer_export *make_export(tn_tensor *t)
{
    size_t ndim = (size_t)tn_tensor_ndim(t);
    struct buffer_export *export =
        PyMem_Malloc(sizeof *export + 2 * ndim * sizeof export->numbers[0]);
    if (export == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    if (tn_tensor_to_dlpack(t, &export->managed) != 0) {
        raise_as(PyExc_BufferError);
        PyMem_Free(export);
        return NULL;
    }
    return export;
}

static void fill_view(Py_buffer *view, struct buffer_export *export, const char *letters)
{
    const DLTensor *dl = &export->managed->dl_tensor;
    Py_ssize_t *shape = export->numbers, *strides = shape + dl->ndim;
    view->itemsize = dl->dtype.bits / 8;
    view->len = view->itemsize;
    for (int32_t i = 0; i < dl->ndim; i++) {
        shape[i] = (Py_ssize_t)dl->shape[i];
        strides[i] = (Py_ssize_t)dl->strides[i] * view->itemsize;
        view->len *= shape[i];
    }
    view->buf = dl->data != NULL ? dl->data : nothing;
    view->readonly = (export->managed->flags & DLPACK_FLAG_BITMASK_READ_ONLY) != 0;
    view->ndim = dl->ndim;
    view->format = (char *)letters;
    view->shape = shape;
    view->strides = strides;
    view->suboffsets = NULL;
    view->internal = export;
}

/* Leave out what was not asked for. */
static void trim_view(Py_buffer *view, int flags)
{
    if ((flags & PyBUF_FORMAT) != PyBUF_FORMAT)
        view->format = NULL;
    if ((flags & PyBUF_STRIDES) != PyBUF_STRIDES)
        view->strides = NULL;
    if ((flags & PyBUF_ND) != PyBUF_ND)
        view->shape = NULL;
}

static int get_buffer(PyObject *self, Py_buffer *view, int flags)
{
    tn_dtype dtype = tn_tensor_dtype(of(self));
    const char *letters = native_letters(dtype);
    char name[32];
    view->obj = NULL;
    if (letters == NULL) {
        PyErr_Format(PyExc_BufferError,
                     "the buffer protocol has no %s: hand the tensor over by DLPack, as "
                     "torch.from_dlpack() does",
                     name_of(dtype, name));
        return -1;
    }
    struct buffer_export *export = make_export(of(self));
    if (export == NULL)
        return -1;
    fill_view(view, export, letters);
    const char *refusal = refuse(view, flags);
    if (refusal != NULL) {
        PyErr_SetString(PyExc_BufferError, refusal);
        end_export(export);
        return -1;
    }
    trim_view(view, flags);
    Py_INCREF(self);
    view->obj = self;
    return 0;
}

static void release_buffer(PyObject *self, Py_buffer *view)
{
    (void)self;
    end_export(view->internal);
}

PyBufferProcs tnp_tensor_buffer = {.bf_getbuffer = get_buffer,
                                   .bf_releasebuffer = release_buffer};

/* ---- the buffer protocol, in ------------------------------------------------------------- */

struct buffer_import {
    DLManagedTensorVersioned managed;
    Py_buffer view;
    int64_t shape[PyBUF_MAX_NDIM];
    int64_t strides[PyBUF_MAX_NDIM]; /* elements */
};

static bool is_finalizing(void)
{
#if PY_VERSION_HEX >= 0x030d0000
    return !Py_IsInitialized() || Py_IsFinalizing();
#else
    return !Py_IsInitialized() || _Py_IsFinalizing();
#endif
}

/* In any thread. Once the interpreter is on its way out, nobody needs the memory back. */
static void end_import(DLManagedTensorVersioned *managed)
{
    struct buffer_import *import = managed->manager_ctx;
    if (is_finalizing())
        return;
    PyGILState_STATE state = PyGILState_Ensure();
    PyBuffer_Release(&import->view);
    PyGILState_Release(state);
    free(import);
}

/* Some leave out the shape, or the strides, of what lies side by side. */
static int read_extents(struct buffer_import *import)
{
    const Py_buffer *view = &import->view;
    for (int i = 0; i < view->ndim; i++) {
        import->shape[i] = view->shape != NULL ? view->shape[i] : view->len / view->itemsize;
        if (view->strides == NULL)
            continue;
        import->strides[i] = view->strides[i] / view->itemsize;
        if (view->strides[i] % view->itemsize != 0 && import->shape[i] > 1) {
            PyErr_Format(PyExc_ValueError,
                         "a buffer with steps of %zd bytes on axis %d, which are no whole "
                         "elements of %zd",
                         view->strides[i], i, view->itemsize);
            return -1;
        }
    }
    return 0;
}

static int fill_import(struct buffer_import *import)
{
    const Py_buffer *view = &import->view;
    tn_dtype dtype;
    if (tnp_parse_format(view->format != NULL ? view->format : "B", view->itemsize, &dtype) <
            0 ||
        read_extents(import) < 0)
        return -1;
    import->managed = (DLManagedTensorVersioned){
        .version = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION},
        .manager_ctx = import,
        .deleter = end_import,
        .flags = view->readonly ? DLPACK_FLAG_BITMASK_READ_ONLY : 0,
        .dl_tensor = {.data = view->buf,
                      .device = {kDLCPU, 0},
                      .ndim = view->ndim,
                      .dtype = {TN_DTYPE_CODE(dtype), TN_DTYPE_BITS(dtype),
                                TN_DTYPE_LANES(dtype)},
                      .shape = import->shape,
                      .strides = view->strides != NULL ? import->strides : NULL},
    };
    return 0;
}

/* What NumPy says of arrays that it lends nobody is no TypeError, and names no format. */
static void explain_refusal(PyObject *source)
{
    PyObject *type, *error, *traceback, *dtype;
    PyErr_Fetch(&type, &error, &traceback);
    dtype = PyObject_GetAttrString(source, "dtype");
    if (dtype == NULL || !PyErr_GivenExceptionMatches(type, PyExc_ValueError)) {
        PyErr_Clear();
        PyErr_Restore(type, error, traceback);
    } else {
        PyErr_Format(PyExc_TypeError, "an array of dtype %S cannot be shared: %S", dtype,
                     error != NULL ? error : Py_None);
        Py_XDECREF(type);
        Py_XDECREF(error);
        Py_XDECREF(traceback);
    }
    Py_XDECREF(dtype);
}

PyObject *tnp_from_buffer(PyObject *module, PyObject *source)
{
    struct buffer_import *import = malloc(sizeof *import);
    tn_tensor *tensor;
    (void)module;
    if (import == NULL)
        return PyErr_NoMemory();
    if (PyObject_GetBuffer(source, &import->view, PyBUF_RECORDS_RO) < 0) {
        explain_refusal(source);
        free(import);
        return NULL;
    }
    if (fill_import(import) == 0) {
        int status = tn_tensor_from_dlpack(&import->managed, &tensor);
        if (status == 0)
            return tnp_tensor_wrap(tensor, NULL);
        tnp_raise(status);
    }
    PyBuffer_Release(&import->view);
    free(import);
    return NULL;
}

/* ---- DLPack, out ------------------------------------------------------------------------- */

#define VERSIONED        "dltensor_versioned"
#define USED_VERSIONED   "used_dltensor_versioned"
#define UNVERSIONED      "dltensor"
#define USED_UNVERSIONED "used_dltensor"

/* DLManagedTensor, as DLPack had it before 1.0. */
struct unversioned {
    DLTensor dl_tensor;
    void *manager_ctx;
    void (*deleter)(struct unversioned *self);
};

static void end_unversioned(struct unversioned *self)
{
    DLManagedTensorVersioned *managed = self->manager_ctx;
    managed->deleter(managed);
    free(self);
}

/* A capsule that nobody took. */
static void end_capsule(PyObject *capsule)
{
    if (PyCapsule_IsValid(capsule, VERSIONED)) {
        DLManagedTensorVersioned *managed = PyCapsule_GetPointer(capsule, VERSIONED);
        managed->deleter(managed);
    } else if (PyCapsule_IsValid(capsule, UNVERSIONED)) {
        struct unversioned *old = PyCapsule_GetPointer(capsule, UNVERSIONED);
        old->deleter(old);
    }
}

/* `managed` is consumed, also on failure. */
static PyObject *versioned_capsule(DLManagedTensorVersioned *managed)
{
    PyObject *capsule = PyCapsule_New(managed, VERSIONED, end_capsule);
    if (capsule == NULL)
        managed->deleter(managed);
    return capsule;
}

static PyObject *unversioned_capsule(DLManagedTensorVersioned *managed)
{
    struct unversioned *old = NULL;
    if ((managed->flags & DLPACK_FLAG_BITMASK_READ_ONLY) != 0)
        PyErr_SetString(PyExc_BufferError,
                        "the tensor is read-only, and DLPack before 1.0 cannot "
                        "say so: ask with max_version=(1, 0)");
    else if ((old = malloc(sizeof *old)) == NULL)
        PyErr_NoMemory();
    if (old == NULL) {
        managed->deleter(managed);
        return NULL;
    }
    *old = (struct unversioned){managed->dl_tensor, managed, end_unversioned};
    PyObject *capsule = PyCapsule_New(old, UNVERSIONED, end_capsule);
    if (capsule == NULL)
        end_unversioned(old);
    return capsule;
}

static int export_copy(PyObject *self, DLManagedTensorVersioned **ret_managed)
{
    tn_tensor *dense, *t = of(self);
    int status = tn_tensor_create_private(tn_tensor_dtype(t), tn_tensor_ndim(t),
                                          tn_tensor_shape(t), &dense);
    if (status != 0)
        return status;
    status = tnp_tensor_copy_status((tnp_side){dense, NULL}, (tnp_side){t, self});
    if (status == 0 && (status = tn_tensor_to_dlpack(dense, ret_managed)) == 0)
        (*ret_managed)->flags |= DLPACK_FLAG_BITMASK_IS_COPIED;
    tn_tensor_unref(dense);
    return status;
}

static void (*end_of_library)(DLManagedTensorVersioned *managed); /* its deleter, of all */

/*
 * The thread that lets the tensor go may have no GIL, while a thread that has the GIL closes
 * the domain. Once the interpreter is on its way out, a thread without the GIL cannot get it
 * any more: the reference then ends with the process.
 */
static void end_with_gil(DLManagedTensorVersioned *managed)
{
    if (is_finalizing()) {
        if (PyGILState_Check())
            end_of_library(managed);
        return;
    }
    PyGILState_STATE state = PyGILState_Ensure();
    end_of_library(managed);
    PyGILState_Release(state);
}

/* A pair of numbers, or None. -1: raised */
static int parse_pair(PyObject *pair, const char *what, long ret[2])
{
    if (PyTuple_Check(pair) && PyTuple_GET_SIZE(pair) == 2) {
        for (Py_ssize_t i = 0; i < 2; i++)
            if ((ret[i] = PyLong_AsLong(PyTuple_GET_ITEM(pair, i))) == -1 && PyErr_Occurred())
                return -1;
        return 0;
    }
    PyErr_Format(PyExc_TypeError, "%s is a tuple of two ints, not %R", what, pair);
    return -1;
}

static int check_target(PyObject *stream, PyObject *device)
{
    long pair[2];
    if (stream != Py_None) {
        PyErr_Format(PyExc_ValueError, "stream=%R: memory of the CPU has none", stream);
        return -1;
    }
    if (device == Py_None)
        return 0;
    if (parse_pair(device, "dl_device", pair) < 0)
        return -1;
    if (pair[0] == kDLCPU && pair[1] == 0)
        return 0;
    PyErr_Format(PyExc_BufferError, "dl_device=(%ld, %ld): the tensor is on the CPU, (%d, 0)",
                 pair[0], pair[1], (int)kDLCPU);
    return -1;
}

/*
 * DLPack allows negative strides, and PyTorch ends the process over one, so that nobody is
 * given any. Those that are never taken, as of one element, become 0. -1: raised
 */
static int reclaim_strides(PyObject *self, DLTensor *dl)
{
    bool is_empty = tnp_info(of(self)).size_bytes == 0;
    for (int32_t i = 0; i < dl->ndim; i++) {
        if (dl->strides[i] >= 0)
            continue;
        if (!is_empty && dl->shape[i] > 1) {
            PyObject *strides = tnp_tuple(dl->strides, dl->ndim);
            if (strides != NULL)
                PyErr_Format(PyExc_BufferError,
                             "strides %R: not every library takes negative ones by DLPack; "
                             "copy() the tensor, or let NumPy have it by np.asarray()",
                             strides);
            Py_XDECREF(strides);
            return -1;
        }
        dl->strides[i] = 0;
    }
    return 0;
}

PyObject *tnp_tensor_to_dlpack(PyObject *self, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"stream", "max_version", "dl_device", "copy", NULL};
    PyObject *stream = Py_None, *version = Py_None, *device = Py_None, *copy = Py_None;
    DLManagedTensorVersioned *managed;
    long most[2] = {0, 0};
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "|$OOOO:__dlpack__", names, &stream,
                                     &version, &device, &copy) ||
        check_target(stream, device) < 0 ||
        (version != Py_None && parse_pair(version, "max_version", most) < 0))
        return NULL;
    int wants_copy = copy == Py_None ? 0 : PyObject_IsTrue(copy);
    if (wants_copy < 0)
        return NULL;
    int status =
        wants_copy ? export_copy(self, &managed) : tn_tensor_to_dlpack(of(self), &managed);
    if (status == TN_ERR_UNSUPPORTED)
        return raise_as(PyExc_BufferError);
    if (status != 0)
        return tnp_raise(status);
    if (reclaim_strides(self, &managed->dl_tensor) < 0) {
        managed->deleter(managed);
        return NULL;
    }
    end_of_library = managed->deleter;
    managed->deleter = end_with_gil;
    return most[0] >= 1 ? versioned_capsule(managed) : unversioned_capsule(managed);
}

PyObject *tnp_tensor_dlpack_device(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    return Py_BuildValue("ii", (int)kDLCPU, 0);
}

/* ---- DLPack, in -------------------------------------------------------------------------- */

/* One of before 1.0, in the clothes of 1.x. */
static void end_dressed(DLManagedTensorVersioned *managed)
{
    struct unversioned *old = managed->manager_ctx;
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

static bool is_cpu(long type)
{
    return type == kDLCPU || type == kDLCUDAHost || type == kDLROCMHost;
}

static int check_device(long type, long number)
{
    if (is_cpu(type))
        return 0;
    PyErr_Format(
        PyExc_BufferError,
        "the tensor is on device %s:%ld (DLPack's type %ld): only memory of the CPU can "
        "be shared, copy it there first",
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
        PyErr_Clear(); /* it was valid a moment ago */
    return tnp_tensor_wrap(tensor, NULL);
}

static PyObject *take_unversioned(PyObject *capsule)
{
    struct unversioned *old = PyCapsule_GetPointer(capsule, UNVERSIONED);
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
        .deleter = end_dressed,
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

/* Before anything is exported: a stream, or a copy, would be in vain. */
static int ask_device(PyObject *source)
{
    PyObject *pair = PyObject_CallMethod(source, "__dlpack_device__", NULL);
    long numbers[2] = {kDLCPU, 0};
    if (pair == NULL && PyErr_ExceptionMatches(PyExc_AttributeError)) {
        PyErr_Clear();
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
    return failed < 0 ? -1 : check_device(numbers[0], numbers[1]);
}

static PyObject *ask_capsule(PyObject *source)
{
    PyObject *method = PyObject_GetAttrString(source, "__dlpack__"), *capsule = NULL;
    PyObject *none = method != NULL ? PyTuple_New(0) : NULL;
    PyObject *keywords = none != NULL
                             ? Py_BuildValue("{s(ii)}", "max_version", DLPACK_MAJOR_VERSION,
                                             DLPACK_MINOR_VERSION)
                             : NULL;
    if (keywords != NULL)
        capsule = PyObject_Call(method, none, keywords);
    if (keywords != NULL && capsule == NULL && PyErr_ExceptionMatches(PyExc_TypeError)) {
        PyErr_Clear(); /* it is of before 1.0 */
        capsule = PyObject_CallNoArgs(method);
    }
    Py_XDECREF(keywords);
    Py_XDECREF(none);
    Py_XDECREF(method);
    return capsule;
}

PyObject *tnp_from_dlpack(PyObject *module, PyObject *source)
{
    (void)module;
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
    if (ask_device(source) < 0)
        return NULL;
    PyObject *capsule = ask_capsule(source), *tensor = NULL;
    if (capsule != NULL && !PyCapsule_CheckExact(capsule))
        PyErr_Format(PyExc_TypeError, "__dlpack__ of %.200s gave %.200s, not a capsule",
                     Py_TYPE(source)->tp_name, Py_TYPE(capsule)->tp_name);
    else if (capsule != NULL)
        tensor = take_capsule(capsule);
    Py_XDECREF(capsule);
    return tensor;
}

PyObject *tnp_tensor_of(PyObject *object)
{
    if (tnp_is_tensor(object)) {
        Py_INCREF(object);
        return object;
    }
    if (PyObject_CheckBuffer(object))
        return tnp_from_buffer(NULL, object);
    if (PyCapsule_CheckExact(object) || PyObject_HasAttrString(object, "__dlpack__"))
        return tnp_from_dlpack(NULL, object);
    if (PyList_Check(object) || PyTuple_Check(object)) {
        PyObject *numpy = PyImport_ImportModule("numpy");
        PyObject *array =
            numpy == NULL ? NULL : PyObject_CallMethod(numpy, "asarray", "(O)", object);
        PyObject *tensor = array == NULL ? NULL : tnp_from_buffer(NULL, array);
        Py_XDECREF(numpy);
        Py_XDECREF(array);
        return tensor;
    }
    PyErr_Format(PyExc_TypeError,
                 "a number, a tensor, or an object with a buffer or __dlpack__ is needed, not "
                 "%.200s",
                 Py_TYPE(object)->tp_name);
    return NULL;
}

/* ---- NumPy ------------------------------------------------------------------------------- */

PyObject *tnp_tensor_array(PyObject *self, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"dtype", "copy", NULL};
    PyObject *dtype = Py_None, *copy = Py_None, *array = NULL, *result = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "|OO:__array__", names, &dtype, &copy))
        return NULL;
    PyObject *numpy = PyImport_ImportModule("numpy");
    PyObject *memory = numpy != NULL ? PyMemoryView_FromObject(self) : NULL;
    if (memory != NULL)
        array = PyObject_CallMethod(numpy, "asarray", "O", memory);
    if (array != NULL && copy == Py_True) {
        result = PyObject_CallMethod(numpy, "array", "OO", array, dtype);
    } else if (array != NULL) {
        result = PyObject_CallMethod(numpy, "asarray", "OO", array, dtype);
        if (result != NULL && copy == Py_False && result != array) {
            PyErr_Format(PyExc_ValueError, "dtype %R cannot be had without a copy", dtype);
            Py_CLEAR(result);
        }
    }
    Py_XDECREF(array);
    Py_XDECREF(memory);
    Py_XDECREF(numpy);
    return result;
}
