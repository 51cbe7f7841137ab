/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dlpack_export: a tensor as a DLPack capsule. exchange.c says what an export is.
 * Source: the array API standard, "Data interchange mechanisms", and DLPack's "Python
 * Specification", https://dmlc.github.io/dlpack/latest/python_spec.html.
 */
#include "dlpack.h"

#include <stdlib.h>

static tn_tensor *tensor_in(PyObject *self) { return ((tnp_tensor *)self)->tensor; }

/* Raise `type` for a failed call of tenon, with its detail. */
static PyObject *raise_as(PyObject *type)
{
    PyErr_SetString(type, tn_error_detail());
    return NULL;
}

static void release_unversioned(struct tnp_unversioned *self)
{
    DLManagedTensorVersioned *managed = self->manager_ctx;
    managed->deleter(managed);
    free(self);
}

/* The destructor of a capsule that no consumer took. */
static void release_capsule(PyObject *capsule)
{
    if (PyCapsule_IsValid(capsule, VERSIONED)) {
        DLManagedTensorVersioned *managed = PyCapsule_GetPointer(capsule, VERSIONED);
        managed->deleter(managed);
    } else if (PyCapsule_IsValid(capsule, UNVERSIONED)) {
        struct tnp_unversioned *old = PyCapsule_GetPointer(capsule, UNVERSIONED);
        old->deleter(old);
    }
}

/* Make a capsule. `managed` is consumed, also on failure. NULL: raised */
static PyObject *versioned_capsule(DLManagedTensorVersioned *managed)
{
    PyObject *capsule = PyCapsule_New(managed, VERSIONED, release_capsule);
    if (capsule == NULL)
        managed->deleter(managed);
    return capsule;
}

static PyObject *unversioned_capsule(DLManagedTensorVersioned *managed)
{
    struct tnp_unversioned *old = NULL;
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
    *old = (struct tnp_unversioned){managed->dl_tensor, managed, release_unversioned};
    PyObject *capsule = PyCapsule_New(old, UNVERSIONED, release_capsule);
    if (capsule == NULL)
        release_unversioned(old);
    return capsule;
}

/* What a consumer asks for. */
struct wish {
    bool may_copy, must_copy;
    bool wants_cpu;   /* else the tensor's own device */
    bool wants_order; /* the stream has to wait for what was recorded in the tensor */
    void *stream;
};

/* Make the tensor that a copy goes into. @return 0, or a status; 1: raised */
static int make_target(PyObject *self, bool on_cpu, tn_tensor **ret)
{
    const tn_tensor *t = tensor_in(self);
    if (on_cpu)
        return tn_tensor_create_private(tn_tensor_dtype(t), tn_tensor_ndim(t),
                                        tn_tensor_shape(t), ret);
    PyObject *domain = tnp_tensor_domain_for_copy(self);
    if (domain == NULL)
        return 1;
    int status = tnp_tensor_make_alike(t, domain, TN_NOW, ret);
    Py_DECREF(domain);
    return status;
}

static int export_copy(PyObject *self, bool on_cpu, DLManagedTensorVersioned **ret_managed)
{
    tn_tensor *dense;
    int status = make_target(self, on_cpu, &dense);
    if (status != 0)
        return status;
    status = tnp_tensor_copy_status((tnp_side){dense, NULL}, (tnp_side){tensor_in(self), self});
    if (status == 0 && (status = tn_tensor_to_dlpack(dense, ret_managed)) == 0)
        (*ret_managed)->flags |= DLPACK_FLAG_BITMASK_IS_COPIED;
    tn_tensor_unref(dense);
    return status;
}

static void (*library_deleter)(
    DLManagedTensorVersioned
        *managed); /* the deleter that the library sets, the same for all tensors */

/*
 * The deleter of an exported tensor. The thread that drops the tensor may not have the GIL,
 * while a thread with the GIL closes the domain. So the deleter takes the GIL. If the
 * interpreter shuts down, a thread without the GIL cannot get it: then the reference ends with
 * the process.
 */
static void release_with_gil(DLManagedTensorVersioned *managed)
{
    if (tnp_is_finalizing()) {
        if (PyGILState_Check())
            library_deleter(managed);
        return;
    }
    PyGILState_STATE state = PyGILState_Ensure();
    library_deleter(managed);
    PyGILState_Release(state);
}

/* Read a tuple of two ints. -1: raised */
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

static int fail_stream(PyObject *stream, const char *why)
{
    PyErr_Format(PyExc_ValueError, "stream=%R: %s", stream, why);
    return -1;
}

/*
 * The numbers of streams that DLPack forbids. CUDA: 1 is the legacy default stream, 2 that of
 * the thread, and 0 would be either. ROCm: 0 is the default stream, and 1 and 2 are none. -1:
 * raised
 */
static int check_stream(const tn_tensor *t, PyObject *stream, long long number)
{
    bool is_rocm = tn_tensor_device(t).type == TN_DEVICE_ROCM;
    if (!is_rocm && number == 0)
        return fail_stream(stream, "DLPack does not say which stream that is; 1 is the legacy "
                                   "default stream");
    if (is_rocm && (number == 1 || number == 2))
        return fail_stream(stream, "that is no stream of ROCm; 0 is the default stream");
    return 0;
}

/*
 * Read the consumer's stream by the rules of DLPack: None is the default stream, -1 asks for no
 * order. -1: raised
 */
static int parse_stream(PyObject *self, PyObject *stream, struct wish *wish)
{
    int overflow;
    bool is_on_cpu = tn_tensor_device(tensor_in(self)).type == TN_DEVICE_CPU;
    wish->stream = NULL;
    wish->wants_order = !is_on_cpu;
    if (stream == Py_None)
        return 0;
    if (is_on_cpu)
        return fail_stream(stream, "memory of the CPU has none");
    long long number = PyLong_AsLongLongAndOverflow(stream, &overflow);
    if (number == -1 && PyErr_Occurred())
        return -1;
    if (overflow == 0 && check_stream(tensor_in(self), stream, number) < 0)
        return -1;
    if (number < -1 || overflow < 0)
        return fail_stream(stream, "a stream is a positive number, or -1");
    wish->wants_order = number != -1;
    return number == -1 ? 0 : tnp_stream(stream, &wish->stream);
}

/* Read which device the consumer wants. -1: raised */
static int parse_target(PyObject *self, PyObject *target, struct wish *wish)
{
    tn_device here = tn_tensor_device(tensor_in(self));
    long pair[2];
    if (target == Py_None)
        return 0;
    if (parse_pair(target, "dl_device", pair) < 0)
        return -1;
    if (pair[0] == here.type && pair[1] == here.id)
        return 0;
    wish->wants_cpu = pair[0] == kDLCPU && pair[1] == 0;
    wish->must_copy = true;
    if (wish->wants_cpu && wish->may_copy)
        return 0;
    PyObject *name =
        here.type == TN_DEVICE_CPU ? PyUnicode_FromString("the CPU") : tnp_device_name(here);
    if (name != NULL)
        PyErr_Format(PyExc_BufferError, "dl_device=(%ld, %ld): the tensor is on %U, (%d, %d)%s",
                     pair[0], pair[1], name, (int)here.type, (int)here.id,
                     wish->wants_cpu ? ", and copy=False forbids a copy" : "");
    Py_XDECREF(name);
    return -1;
}

static int parse_wish(PyObject *self, PyObject *target, PyObject *copy, struct wish *ret)
{
    int wants_copy = copy == Py_None ? 0 : PyObject_IsTrue(copy);
    if (wants_copy < 0)
        return -1;
    ret->must_copy = wants_copy != 0;
    ret->may_copy = copy == Py_None || wants_copy != 0;
    ret->wants_cpu = tn_tensor_device(tensor_in(self)).type == TN_DEVICE_CPU;
    return parse_target(self, target, ret);
}

/*
 * DLPack allows negative strides, but PyTorch aborts the process when it gets one, so no
 * consumer is given any. A stride that is never used, as on an axis of one element, becomes 0.
 * -1: raised
 */
static int replace_negative_strides(PyObject *self, DLTensor *dl)
{
    bool is_empty = tnp_info(tensor_in(self)).size_bytes == 0;
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
    struct wish wish;
    DLManagedTensorVersioned *managed;
    long most[2] = {0, 0};
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "|$OOOO:__dlpack__", names, &stream,
                                     &version, &device, &copy) ||
        parse_stream(self, stream, &wish) < 0 || parse_wish(self, device, copy, &wish) < 0 ||
        (version != Py_None && parse_pair(version, "max_version", most) < 0))
        return NULL;
    /* A copy waits for the content itself, and is done when it is exported. */
    if (!wish.must_copy && wish.wants_order && tnp_tensor_let_wait(self, wish.stream) < 0)
        return NULL;
    int status = wish.must_copy ? export_copy(self, wish.wants_cpu, &managed)
                                : tn_tensor_to_dlpack(tensor_in(self), &managed);
    if (status > 0)
        return NULL;
    if (status == TN_ERR_UNSUPPORTED)
        return raise_as(PyExc_BufferError);
    if (status != 0)
        return tnp_raise(status);
    if (replace_negative_strides(self, &managed->dl_tensor) < 0) {
        managed->deleter(managed);
        return NULL;
    }
    library_deleter = managed->deleter;
    managed->deleter = release_with_gil;
    return most[0] >= 1 ? versioned_capsule(managed) : unversioned_capsule(managed);
}

PyObject *tnp_tensor_dlpack_device(PyObject *self, PyObject *unused)
{
    tn_device device = tn_tensor_device(tensor_in(self));
    (void)unused;
    return Py_BuildValue("ii", (int)device.type, (int)device.id);
}
