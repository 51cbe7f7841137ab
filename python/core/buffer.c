/* SPDX-License-Identifier: Apache-2.0 */
/*
 * buffer: lend the memory of a tensor by the buffer protocol, and make tensors over memory that
 * others lend. exchange.c says what an export is.
 * Source: PEP 3118.
 */
#include "tensor.h"

#include <stdlib.h>
#include <string.h>

static tn_tensor *tensor_in(PyObject *self) { return ((tnp_tensor *)self)->tensor; }

/* Raise `type` for a failed call of tenon, with its detail. */
static PyObject *raise_as(PyObject *type)
{
    PyErr_SetString(type, tn_error_detail());
    return NULL;
}

static const char *name_of(tn_dtype dtype, char name[32])
{
    return tn_dtype_name(dtype, name, 32) == 0 ? name : "an unknown dtype";
}

/* ---- the buffer protocol, out ------------------------------------------------------------ */

/*
 * NumPy's int64 is the C type long wherever long has 64 bits. The letter `q` would be a
 * different dtype there.
 */
static const char *native_letters(tn_dtype dtype)
{
    const char *letters = tnp_dtype_letters(dtype);
    if (letters != NULL && sizeof(long) == 8 && letters[0] == 'q')
        return "l";
    if (letters != NULL && sizeof(long) == 8 && letters[0] == 'Q')
        return "L";
    return letters;
}

struct buffer_export {
    DLManagedTensorVersioned *managed;
    Py_ssize_t numbers[]; /* shape [ndim], strides [ndim] in bytes */
};

/* The address that an empty tensor shows. */
static char no_elements[16];

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

static const char *find_refusal(const Py_buffer *view, int flags)
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

static void release_export(struct buffer_export *export)
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
    view->buf = dl->data != NULL ? dl->data : no_elements;
    view->readonly = (export->managed->flags & DLPACK_FLAG_BITMASK_READ_ONLY) != 0;
    view->ndim = dl->ndim;
    view->format = (char *)letters;
    view->shape = shape;
    view->strides = strides;
    view->suboffsets = NULL;
    view->internal = export;
}

/* Clear the fields that the consumer did not ask for. */
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
    tn_dtype dtype = tn_tensor_dtype(tensor_in(self));
    const char *letters = native_letters(dtype);
    char name[32];
    view->obj = NULL;
    if (tnp_tensor_check_on_cpu(self) < 0)
        return -1;
    if (letters == NULL) {
        PyErr_Format(PyExc_BufferError,
                     "the buffer protocol has no %s: hand the tensor over by DLPack, as "
                     "torch.from_dlpack() does",
                     name_of(dtype, name));
        return -1;
    }
    struct buffer_export *export = make_export(tensor_in(self));
    if (export == NULL)
        return -1;
    fill_view(view, export, letters);
    const char *refusal = find_refusal(view, flags);
    if (refusal != NULL) {
        PyErr_SetString(PyExc_BufferError, refusal);
        release_export(export);
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
    release_export(view->internal);
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

/* Any thread may call this. If the interpreter shuts down, the memory need not be released. */
static void release_import(DLManagedTensorVersioned *managed)
{
    struct buffer_import *import = managed->manager_ctx;
    if (tnp_is_finalizing())
        return;
    PyGILState_STATE state = PyGILState_Ensure();
    PyBuffer_Release(&import->view);
    PyGILState_Release(state);
    free(import);
}

/* An exporter may leave out the shape or the strides of contiguous memory. */
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
        .deleter = release_import,
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

/*
 * NumPy refuses arrays of objects or dates with a ValueError that names no dtype: raise a
 * TypeError that names it.
 */
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
