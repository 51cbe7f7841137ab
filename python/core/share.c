/* SPDX-License-Identifier: Apache-2.0 */
/*
 * share: make, move and find tensors in a domain, and handles.
 *
 * Shared memory never moves. Private memory moves when it is shared. So each access to private
 * memory holds the GIL, or an export of the memory, which forbids the move.
 */
#include "tensor.h"

static tn_tensor *tensor_in(PyObject *self) { return ((tnp_tensor *)self)->tensor; }

/* ---- making ------------------------------------------------------------------------------ */

static int parse_strategy(const char *name, uint32_t *ret_strategy)
{
    *ret_strategy = TN_STRATEGY_DEFAULT;
    if (name == NULL || tn_strategy_parse(name, ret_strategy) == 0)
        return 0;
    PyErr_Format(PyExc_ValueError, "no strategy has the name '%.100s'", name);
    return -1;
}

static int parse_wanted(PyObject *args, PyObject *keywords, tnp_tensor_request *ret)
{
    static char *names[] = {"shape",      "dtype",  "timeout", "strategy",
                            "write_once", "device", NULL};
    PyObject *shape, *dtype, *timeout = NULL, *device = Py_None;
    const char *strategy = NULL;
    int write_once = 0;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "OO|O$zpO", names, &shape, &dtype,
                                     &timeout, &strategy, &write_once, &device))
        return -1;
    *ret = (tnp_tensor_request){.flags = write_once ? TN_TENSOR_WRITE_ONCE : 0};
    if (tnp_shape(shape, ret->shape, &ret->ndim) < 0 || tnp_dtype(dtype, &ret->dtype) < 0 ||
        (device != Py_None && tnp_device(device, &ret->device) < 0) ||
        tnp_deadline(timeout, TN_NOW, &ret->deadline) < 0)
        return -1;
    return parse_strategy(strategy, &ret->strategy);
}

/*
 * Whether committing so much memory takes long, or memory of a device, whose driver may have to
 * start. An invalid size fails anyway.
 */
static bool is_much(const tnp_tensor_request *w)
{
    if (w->device.type != 0 && w->device.type != TN_DEVICE_CPU)
        return true;
    uint64_t bytes = (uint64_t)TN_DTYPE_BITS(w->dtype) * TN_DTYPE_LANES(w->dtype) / 8;
    for (int32_t i = 0; i < w->ndim; i++)
        if (w->shape[i] <= 0 || __builtin_mul_overflow(bytes, (uint64_t)w->shape[i], &bytes))
            return false;
    return bytes >= TNP_MANY_BYTES;
}

/*
 * The first try keeps the GIL, since memory is usually free. Waiting for memory, and committing
 * much of it, releases the GIL.
 */
int tnp_domain_make_tensor(PyObject *object, const tnp_tensor_request *w, tn_tensor **ret)
{
    tn_domain *domain = ((tnp_domain *)object)->domain;
    tn_tensor_options options = {.struct_size = sizeof options,
                                 .strategy = w->strategy,
                                 .flags = w->flags,
                                 .device = w->device};
    bool is_long = is_much(w);
    int status = TN_ERR_NO_MEMORY;
    if (!is_long)
        status = tn_tensor_create(domain, w->dtype, w->ndim, w->shape, &options, ret);
    options.deadline = w->deadline;
    if ((status == TN_ERR_NO_MEMORY || status == TN_ERR_FULL) &&
        (is_long || w->deadline.ns != 0))
        TNP_WAIT(object, status,
                 tn_tensor_create(domain, w->dtype, w->ndim, w->shape, &options, ret));
    return status;
}

static PyObject *make(PyObject *object, PyObject *args, PyObject *keywords, uint32_t flags)
{
    tnp_tensor_request request;
    tn_tensor *tensor;
    if (parse_wanted(args, keywords, &request) < 0 || tnp_domain_of(object) == NULL)
        return NULL;
    request.flags |= flags;
    int status = tnp_domain_make_tensor(object, &request, &tensor);
    return status != 0 ? tnp_raise(status) : tnp_tensor_wrap(tensor, object);
}

PyObject *tnp_domain_empty(PyObject *object, PyObject *args, PyObject *keywords)
{
    return make(object, args, keywords, 0);
}

PyObject *tnp_domain_zeros(PyObject *object, PyObject *args, PyObject *keywords)
{
    return make(object, args, keywords, TN_TENSOR_ZEROED);
}

PyObject *tnp_domain_find(PyObject *object, PyObject *args)
{
    PyObject *address_object, *size_object;
    uint64_t address, size_bytes;
    tn_domain *domain;
    tn_tensor *tensor;
    if (!PyArg_ParseTuple(args, "OO:find", &address_object, &size_object) ||
        tnp_word(address_object, &address) < 0 || tnp_word(size_object, &size_bytes) < 0 ||
        (domain = tnp_domain_of(object)) == NULL)
        return NULL;
    int status = tn_tensor_find(domain, (const void *)(uintptr_t)address, size_bytes, &tensor);
    if (status == TN_ERR_NOT_FOUND)
        Py_RETURN_NONE;
    return status != 0 ? tnp_raise(status) : tnp_tensor_wrap(tensor, object);
}

PyObject *tnp_domain_load_handle(PyObject *object, PyObject *handle)
{
    tn_domain *domain;
    Py_buffer bytes;
    tn_tensor *tensor;
    int status;
    if (PyObject_GetBuffer(handle, &bytes, PyBUF_SIMPLE) < 0)
        return NULL;
    if ((domain = tnp_domain_of(object)) == NULL) {
        PyBuffer_Release(&bytes);
        return NULL;
    }
    TNP_WAIT(object, status, tn_handle_import(domain, bytes.buf, (size_t)bytes.len, &tensor));
    PyBuffer_Release(&bytes);
    return status != 0 ? tnp_raise(status) : tnp_tensor_wrap(tensor, object);
}

PyObject *tnp_private(PyObject *module, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"shape", "dtype", NULL};
    PyObject *shape_object, *dtype_object;
    int64_t shape[TN_MAX_NDIM];
    int32_t ndim;
    tn_dtype dtype;
    tn_tensor *tensor;
    (void)module;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "OO:private", names, &shape_object,
                                     &dtype_object) ||
        tnp_shape(shape_object, shape, &ndim) < 0 || tnp_dtype(dtype_object, &dtype) < 0)
        return NULL;
    int status = tn_tensor_create_private(dtype, ndim, shape, &tensor);
    return status != 0 ? tnp_raise(status) : tnp_tensor_wrap(tensor, NULL);
}

/* ---- sharing ----------------------------------------------------------------------------- */

/*
 * Wait until the domain has room for so many bytes, by making another tensor of that size,
 * which is freed at once. The move itself needs the GIL, since no other thread may use memory
 * that moves.
 */
static int wait_for_room(PyObject *object, const tn_tensor *tensor, tn_deadline deadline)
{
    tn_domain *domain = ((tnp_domain *)object)->domain;
    uint64_t size_bytes = tnp_info(tensor).storage_bytes;
    int64_t shape[] = {size_bytes > INT64_MAX ? INT64_MAX : (int64_t)size_bytes};
    tn_device device = tn_tensor_device(tensor);
    tn_tensor *room;
    int status;
    TNP_WAIT(object, status,
             tn_tensor_create(
                 domain, TN_UINT8, 1, shape,
                 TN_OPTIONS(tn_tensor_options, .deadline = deadline, .device = device), &room));
    if (status == 0)
        tn_tensor_unref(room);
    return status;
}

/* Move with the GIL held, when no thread copies without it. */
static int share_now(PyObject *object, PyObject *domain_object, void *stream)
{
    tnp_tensor_wait_until_unused(object);
    tn_domain *domain = tnp_domain_of(domain_object);
    return domain == NULL ? TN_ERR_CLOSED
                          : tn_tensor_share(domain, tensor_in(object),
                                            TN_OPTIONS(tn_tensor_options, .stream = stream));
}

static bool lacks_room(int status)
{
    return status == TN_ERR_NO_MEMORY || status == TN_ERR_FULL;
}

int tnp_tensor_share_in(PyObject *object, PyObject *domain_object, tn_deadline deadline,
                        void *stream)
{
    tnp_tensor *self = (tnp_tensor *)object;
    int status = share_now(object, domain_object, stream);
    while (lacks_room(status) && deadline.ns != 0) {
        status = wait_for_room(domain_object, self->tensor, deadline);
        if (status != 0)
            break; /* includes the case that the domain can never have so much room */
        status = share_now(object, domain_object, stream);
        /* Other processes may take the room each time before this tensor gets it. */
        if (lacks_room(status) && tnp_now_ns() >= deadline.ns)
            status = TN_ERR_TIMED_OUT;
    }
    tnp_tensor *first = self->base != NULL ? (tnp_tensor *)self->base : self;
    if (status == 0 && tnp_tensor_domain(object) == NULL) {
        Py_INCREF(domain_object);
        first->domain = domain_object;
    }
    return status;
}

PyObject *tnp_tensor_share(PyObject *self, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"domain", "timeout", "stream", NULL};
    PyObject *domain = Py_None, *timeout = NULL, *stream_object = NULL;
    tn_deadline deadline;
    void *stream;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "|OO$O:share", names, &domain, &timeout,
                                     &stream_object) ||
        tnp_deadline(timeout, TN_NOW, &deadline) < 0 || tnp_stream(stream_object, &stream) < 0)
        return NULL;
    if (domain != Py_None)
        Py_INCREF(domain);
    else if ((domain = tnp_tensor_domain(self)) != NULL)
        Py_INCREF(domain); /* the tensor stays where it is */
    else if ((domain = tnp_domain_default()) == NULL)
        return NULL;
    int status = tnp_tensor_share_in(self, domain, deadline, stream);
    Py_DECREF(domain);
    if (status != 0)
        return tnp_raise(status);
    Py_INCREF(self);
    return self;
}

/* Check that the tensor lies in a domain that is open in this process. -1: raised */
static int check_in_domain(PyObject *self, const char *what)
{
    PyObject *domain = tnp_tensor_domain(self);
    if (domain != NULL)
        return tnp_domain_of(domain) != NULL ? 0 : -1;
    PyErr_Format(PyExc_ValueError,
                 tnp_info(tensor_in(self)).is_shared
                     ? "%s: the tensor's memory came from outside of a domain: copy() it"
                     : "%s: the tensor is private: call its share() first",
                 what);
    return -1;
}

/*
 * Read `lifetime`: Ellipsis is the default of the library; 0 ends the handle with this process.
 * -1: raised
 */
static int parse_lifetime(PyObject *lifetime, tn_handle_options *ret)
{
    if (lifetime == NULL || lifetime == Py_Ellipsis)
        return 0;
    ret->lifetime_ns = TN_NO_EXPIRY;
    if (lifetime == Py_None)
        return 0;
    double seconds = PyFloat_AsDouble(lifetime);
    if (seconds == -1.0 && PyErr_Occurred())
        return -1;
    if (seconds == 0) {
        ret->lifetime_ns = 0;
        ret->flags = TN_HANDLE_WITH_ISSUER;
        return 0;
    }
    if (!(seconds > 0)) {
        PyErr_Format(
            PyExc_ValueError,
            "a handle cannot live for %R seconds: a positive number, 0 or None is possible",
            lifetime);
        return -1;
    }
    if (seconds < 1e9)
        ret->lifetime_ns = seconds < 1e-9 ? 1 : (uint64_t)(seconds * 1e9);
    return 0;
}

static PyObject *export_handle(PyObject *self, const tn_handle_options *options)
{
    uint8_t bytes[TN_HANDLE_MAX_BYTES];
    size_t used;
    int status = tn_handle_export(tensor_in(self), options, bytes, sizeof bytes, &used);
    return status != 0 ? tnp_raise(status)
                       : PyBytes_FromStringAndSize((const char *)bytes, (Py_ssize_t)used);
}

enum { MOST_USES = (1 << 20) - 1 }; /* as of tn_handle_options */

PyObject *tnp_tensor_to_handle(PyObject *self, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"uses", "lifetime", NULL};
    PyObject *lifetime = NULL;
    long long uses = 1;
    tn_handle_options options = {.struct_size = sizeof options};
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "|LO:to_handle", names, &uses,
                                     &lifetime) ||
        parse_lifetime(lifetime, &options) < 0)
        return NULL;
    if (uses < 1 || uses > MOST_USES) {
        PyErr_Format(PyExc_ValueError, "a handle cannot have %lld uses: 1 to %d are possible",
                     uses, MOST_USES);
        return NULL;
    }
    if (check_in_domain(self, "to_handle()") < 0)
        return NULL;
    options.uses = (uint32_t)uses;
    return export_handle(self, &options);
}

/* Pickle a tensor as a handle that can be loaded once. */
PyObject *tnp_tensor_reduce(PyObject *self, PyObject *protocol)
{
    PyObject *result = NULL;
    (void)protocol;
    if (check_in_domain(self, "pickling") < 0)
        return NULL;
    PyObject *tenon = PyImport_ImportModule("tenon");
    PyObject *rebuild = tenon != NULL ? PyObject_GetAttrString(tenon, "_rebuild_tensor") : NULL;
    PyObject *handle = rebuild != NULL ? export_handle(self, NULL) : NULL;
    if (handle != NULL)
        result = Py_BuildValue(
            "O(sO)", rebuild,
            tnp_domain_info(((tnp_domain *)tnp_tensor_domain(self))->domain).name, handle);
    Py_XDECREF(handle);
    Py_XDECREF(rebuild);
    Py_XDECREF(tenon);
    return result;
}
