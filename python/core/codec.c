/* SPDX-License-Identifier: Apache-2.0 */
/*
 * codec: any object as a message of bytes and tensors, and back.
 *
 * A message begins with a letter: TENSOR, ARRAY and FIXED_ARRAY (which its holder cannot write)
 * are one tensor and nothing else; PICKLE is a pickle of protocol 5. Arrays and tensors in an
 * object are not in its pickle but travel beside it as tensors: what lies in the domain already
 * as it is, what does not in one copy. Buffers that other types give to pickle (PEP 574) travel
 * in the same way, as bytes. Once a message has MANY_TENSORS, what would have been copied is in
 * the pickle itself; what is shared travels as it is, however many there are.
 *
 * A reducer that runs inside of dumps() lets a tensor travel with send(), which gives it a
 * number; take() gives the tensor of that number while loads() runs.
 *
 * I1. What stands in a message was written by another process: every number is checked here or
 *     by the library. The pickle itself is trusted, as pickles are: members are one user's.
 *
 * It is one file since each kind of object is written and read by two functions that must
 * agree, and stand side by side.
 */
#include "message.h"

#include <string.h>

enum { PICKLE = 'P', ARRAY = 'A', FIXED_ARRAY = 'F', TENSOR = 'T' };
enum {
    FEW_BYTES = 256,    /* a private buffer of no more is in the pickle itself */
    MANY_TENSORS = 4096 /* copies into blocks of their own cost more than they save */
};

/* Where a buffer of the pickle lies. */
struct place {
    uint32_t tensor;
    uint32_t reserved;
    uint64_t offset, size_bytes;
};

/* In front of the pickle; then places [place_count]. */
struct head {
    char kind;
    char reserved[3];
    uint32_t place_count;
};

/* What dumps() or loads() of this thread is at. */
struct passage {
    PyObject *domain;  /* borrowed; NULL: loading */
    PyObject *tensors; /* a list, borrowed */
    PyObject *places;  /* dumping: bytearray of struct place; NULL: none yet */
    tn_deadline deadline;
    struct passage *outer;
};
static _Thread_local struct passage *passage;

/* Of other modules, from when they are needed. */
static struct {
    PyObject *pickler, *loads, *bytes_io, *copyreg_table,
        *fork_table; /* the tables: borrowed */
} python;
static PyObject *reducers; /* {type: function}, what register() was told */
static PyObject *table;    /* those, ForkingPickler's and copyreg's together: a table_type */
static PyObject *reduce_function; /* the reducer of arrays and tensors */
static PyObject *keep_function;   /* the callback for buffers */
static PyObject *none;            /* a list, always empty */
static PyObject *array_function, *fixed_array_function, *take_function;

/* ---- NumPy, if it is there --------------------------------------------------------------- */

static PyTypeObject *ndarray_type;
static PyObject *ndarray_dtypes[18][5]; /* of a code and a size of 1 << n bytes */

/* False: nobody has imported it, so that nothing can be an array. */
static bool has_numpy(void)
{
    if (ndarray_type != NULL)
        return true;
    PyObject *name = PyUnicode_FromString("numpy");
    PyObject *numpy = name == NULL ? NULL : PyImport_GetModule(name);
    PyObject *type = numpy == NULL ? NULL : PyObject_GetAttrString(numpy, "ndarray");
    Py_XDECREF(name);
    Py_XDECREF(numpy);
    if (type != NULL && PyType_Check(type))
        ndarray_type = (PyTypeObject *)type;
    PyErr_Clear(); /* half imported */
    return ndarray_type != NULL;
}

static PyObject *numpy_dtype(tn_dtype dtype)
{
    unsigned log2 = 0;
    char name[32];
    while (log2 < 4 && (8u << log2) < TN_DTYPE_BITS(dtype))
        log2++;
    PyObject **place =
        TN_DTYPE_CODE(dtype) < 18 ? &ndarray_dtypes[TN_DTYPE_CODE(dtype)][log2] : NULL;
    if (place != NULL && *place != NULL)
        return *place;
    PyObject *numpy = PyImport_ImportModule("numpy"), *made = NULL;
    if (numpy != NULL && has_numpy() && place != NULL && TN_DTYPE_LANES(dtype) == 1 &&
        tn_dtype_name(dtype, name, sizeof name) == 0)
        made = PyObject_CallMethod(numpy, "dtype", "s", name);
    else if (!PyErr_Occurred())
        PyErr_SetString(PyExc_TypeError, "a message with an array of no known dtype");
    Py_XDECREF(numpy);
    return made == NULL ? NULL : (*place = made);
}

/* An array over a tensor, which it keeps. */
static PyObject *array_over(PyObject *tensor)
{
    const tn_tensor *t = ((tnp_tensor *)tensor)->tensor;
    PyObject *dtype = numpy_dtype(tn_tensor_dtype(t)), *array = NULL;
    if (dtype == NULL)
        return NULL;
    if (!tnp_info(t).is_contiguous) {
        PyObject *numpy = PyImport_ImportModule("numpy");
        if (numpy != NULL)
            array = PyObject_CallMethod(numpy, "asarray", "(O)", tensor);
        Py_XDECREF(numpy);
        return array;
    }
    PyObject *shape = tnp_tuple(tn_tensor_shape(t), tn_tensor_ndim(t));
    if (shape != NULL)
        array =
            PyObject_CallFunctionObjArgs((PyObject *)ndarray_type, shape, dtype, tensor, NULL);
    Py_XDECREF(shape);
    return array;
}

static PyObject *fixed_array_over(PyObject *tensor)
{
    PyObject *array = array_over(tensor);
    PyObject *done = array == NULL ? NULL : PyObject_CallMethod(array, "setflags", "i", 0);
    if (done == NULL)
        Py_CLEAR(array);
    Py_XDECREF(done);
    return array;
}

/* ---- tensors of what is sent ------------------------------------------------------------- */

static tn_tensor *of(PyObject *self) { return ((tnp_tensor *)self)->tensor; }

/* NULL: raised. */
static tn_tensor *new_tensor(PyObject *domain, tn_dtype dtype, int32_t ndim,
                             const int64_t *shape, tn_deadline deadline)
{
    tn_tensor *tensor;
    tnp_wanted wanted = {.dtype = dtype, .ndim = ndim, .deadline = deadline};
    if (tnp_domain_of(domain) == NULL)
        return NULL;
    memcpy(wanted.shape, shape, (size_t)ndim * sizeof shape[0]);
    int status = tnp_domain_make(domain, &wanted, &tensor);
    if (status != 0)
        tnp_raise(status);
    return status == 0 ? tensor : NULL;
}

static void copy_bytes(void *to, const void *from, size_t size_bytes)
{
    if (size_bytes < TNP_MANY_BYTES) {
        memcpy(to, from, size_bytes);
        return;
    }
    Py_BEGIN_ALLOW_THREADS memcpy(to, from, size_bytes);
    Py_END_ALLOW_THREADS
}

/*
 * Copy an array that is contiguous in neither row-major nor column-major order. Python's own
 * copy serves where a stride is no multiple of an element's size, which no tensor can have.
 * @return -1: raised
 */
static int copy_elements(tn_tensor *to, PyObject *array, Py_buffer *view)
{
    PyObject *source = tnp_from_buffer(NULL, array);
    if (source == NULL) {
        PyErr_Clear();
        return PyBuffer_ToContiguous(tn_tensor_data(to), view, view->len, 'C');
    }
    int failed = tnp_tensor_copy_all((tnp_side){.tensor = to},
                                     (tnp_side){.tensor = of(source), .owner = source});
    Py_DECREF(source);
    return failed;
}

/* The same elements in the domain, in the same order of axes. NULL: raised. */
static tn_tensor *copy_of(PyObject *domain, PyObject *array, Py_buffer *view, tn_dtype dtype,
                          tn_deadline deadline)
{
    int64_t shape[TN_MAX_NDIM];
    bool is_reversed =
        view->ndim > 1 && !PyBuffer_IsContiguous(view, 'C') && PyBuffer_IsContiguous(view, 'F');
    for (int i = 0; i < view->ndim; i++)
        shape[is_reversed ? view->ndim - 1 - i : i] = view->shape[i];
    tn_tensor *copy = new_tensor(domain, dtype, view->ndim, shape, deadline), *reversed;
    if (copy == NULL || view->len == 0)
        return copy;
    if (is_reversed || PyBuffer_IsContiguous(view, 'C')) {
        copy_bytes(tn_tensor_data(copy), view->buf, (size_t)view->len);
    } else if (copy_elements(copy, array, view) < 0) {
        tn_tensor_unref(copy);
        return NULL;
    }
    if (!is_reversed)
        return copy;
    int status = tn_tensor_transpose(copy, NULL, &reversed);
    tn_tensor_unref(copy);
    if (status != 0)
        tnp_raise(status);
    return status == 0 ? reversed : NULL;
}

/* The storage that the bytes lie in, if they lie in the domain. NULL: not. */
static tn_tensor *storage_of(PyObject *domain, const void *bytes, uint64_t size_bytes)
{
    tn_tensor *storage;
    tn_domain *d = ((tnp_domain *)domain)->domain;
    if (size_bytes == 0 || d == NULL || tn_tensor_find(d, bytes, size_bytes, &storage) != 0)
        return NULL;
    return storage;
}

/* A view of the storage that the buffer lies in, if it lies in the domain. NULL: not. */
static tn_tensor *found(PyObject *domain, const Py_buffer *view, tn_dtype dtype)
{
    int64_t shape[TN_MAX_NDIM], strides[TN_MAX_NDIM];
    const char *low = view->buf, *high = low + view->itemsize;
    tn_tensor *storage, *tensor;
    if (view->len == 0)
        return NULL;
    for (int i = 0; i < view->ndim; i++) {
        if (view->strides[i] % view->itemsize != 0)
            return NULL;
        shape[i] = view->shape[i];
        strides[i] = view->strides[i] / view->itemsize;
        *(view->strides[i] < 0 ? &low : &high) += view->strides[i] * (view->shape[i] - 1);
    }
    if ((storage = storage_of(domain, low, (uint64_t)(high - low))) == NULL)
        return NULL;
    uint64_t offset = (uint64_t)((const char *)view->buf - (char *)tn_tensor_data(storage));
    int status = tn_tensor_view(storage, dtype, view->ndim, shape, strides, offset, &tensor);
    tn_tensor_unref(storage);
    return status == 0 ? tensor : NULL;
}

/*
 * An array as a tensor of the domain. NULL: raised; or, without an exception, it is none that a
 * tensor can be of, such as one of objects or dates, or would have to be copied and may not.
 * @param ret_is_fixed  it is in the domain, and its holder could not write what others can
 */
static PyObject *tensor_of_array(PyObject *domain, PyObject *array, bool may_copy,
                                 tn_deadline deadline, bool *ret_is_fixed)
{
    Py_buffer view;
    tn_dtype dtype;
    tn_tensor *tensor = NULL;
    *ret_is_fixed = false;
    if (PyObject_GetBuffer(array, &view, PyBUF_FULL_RO) < 0) {
        PyErr_Clear();
        return NULL;
    }
    if (view.ndim > TN_MAX_NDIM || tnp_parse_format(view.format, view.itemsize, &dtype) < 0)
        PyErr_Clear();
    else if ((tensor = found(domain, &view, dtype)) != NULL)
        *ret_is_fixed = view.readonly != 0;
    else if (may_copy)
        tensor = copy_of(domain, array, &view, dtype, deadline);
    PyBuffer_Release(&view);
    return tensor == NULL ? NULL : tnp_tensor_wrap(tensor, domain);
}

/* Whether a tensor lies in a domain, or in the same one by another name. */
static bool lies_in(PyObject *tensor, PyObject *domain)
{
    PyObject *own = tnp_tensor_domain(tensor);
    return own != NULL && ((tnp_domain *)own)->domain == ((tnp_domain *)domain)->domain;
}

/* A tensor as one of the domain: moved there if it is private, a copy where that cannot be. */
static PyObject *tensor_of_tensor(PyObject *domain, PyObject *object, tn_deadline deadline)
{
    const tn_tensor *t = of(object);
    int status = 0;
    if (tnp_domain_of(domain) == NULL)
        return NULL;
    if (!tnp_info(t).is_shared)
        status = tnp_tensor_share_in(object, domain, deadline);
    if (status == 0 && lies_in(object, domain)) {
        Py_INCREF(object);
        return object;
    }
    if (status != 0 && status != TN_ERR_DENIED)
        return tnp_raise(status);
    tn_tensor *copy =
        new_tensor(domain, tn_tensor_dtype(t), tn_tensor_ndim(t), tn_tensor_shape(t), deadline);
    if (copy == NULL)
        return NULL;
    if ((status = tn_tensor_copy_attributes(copy, t)) != 0)
        tnp_raise(status);
    if (status == 0 &&
        tnp_tensor_copy_all((tnp_side){copy, NULL}, (tnp_side){of(object), object}) == 0)
        return tnp_tensor_wrap(copy, domain);
    tn_tensor_unref(copy);
    return NULL;
}

/* ---- reducers ---------------------------------------------------------------------------- */

static bool has_many(void) { return PyList_GET_SIZE(passage->tensors) >= MANY_TENSORS; }

/* -1: raised */
static int check_room(void)
{
    if (PyList_GET_SIZE(passage->tensors) < TN_MESSAGE_MAX_TENSORS)
        return 0;
    PyErr_Format(PyExc_ValueError,
                 "more than TN_MESSAGE_MAX_TENSORS (%d) tensors, arrays and buffers in one "
                 "message: send the object in parts",
                 TN_MESSAGE_MAX_TENSORS);
    return -1;
}

/* Consumes `tensor`. @return its number, or NULL: raised */
static PyObject *send_along(PyObject *tensor)
{
    if (tensor == NULL)
        return NULL;
    Py_ssize_t number = PyList_GET_SIZE(passage->tensors);
    int failed = check_room() < 0 ? -1 : PyList_Append(passage->tensors, tensor);
    Py_DECREF(tensor);
    return failed < 0 ? NULL : PyLong_FromSsize_t(number);
}

static PyObject *reduction(PyObject *function, PyObject *number)
{
    if (number == NULL)
        return NULL;
    return Py_BuildValue("O(N)", function, number);
}

/* Dates and durations are no tensor's elements, but their numbers are. */
static bool has_dates(PyObject *dtype)
{
    PyObject *kind = PyObject_GetAttrString(dtype, "kind");
    const char *letter = kind == NULL ? NULL : PyUnicode_AsUTF8(kind);
    bool has = letter != NULL && (letter[0] == 'M' || letter[0] == 'm');
    Py_XDECREF(kind);
    return has;
}

/* Of a dtype that no tensor has: as NumPy pickles it, or by an array of integers. */
static PyObject *reduce_by_numpy(PyObject *array)
{
    PyObject *dtype = PyObject_GetAttrString(array, "dtype"), *result = NULL;
    if (dtype != NULL && has_dates(dtype)) {
        PyObject *view = PyObject_GetAttrString((PyObject *)ndarray_type, "view");
        PyObject *numbers = PyObject_CallMethod(array, "view", "s", "int64");
        if (view != NULL && numbers != NULL)
            result = Py_BuildValue("O(OO)", view, numbers, dtype);
        Py_XDECREF(view);
        Py_XDECREF(numbers);
    } else if (dtype != NULL && !PyErr_Occurred()) {
        result = PyObject_CallMethod(array, "__reduce_ex__", "i", 5);
    }
    Py_XDECREF(dtype);
    return result;
}

static PyObject *reduce_array(PyObject *array)
{
    bool is_fixed;
    PyObject *tensor =
        tensor_of_array(passage->domain, array, !has_many(), passage->deadline, &is_fixed);
    if (tensor != NULL)
        return reduction(is_fixed ? fixed_array_function : array_function, send_along(tensor));
    return PyErr_Occurred() ? NULL : reduce_by_numpy(array);
}

/* Refused before it is moved. */
static PyObject *send_tensor(PyObject *tensor)
{
    if (check_room() < 0)
        return NULL;
    return send_along(tensor_of_tensor(passage->domain, tensor, passage->deadline));
}

static PyObject *reduce_tensor(PyObject *tensor)
{
    return reduction(take_function, send_tensor(tensor));
}

/* Called by the pickler, in place of what an array or a tensor would give it. */
static PyObject *reduce_ours(PyObject *module, PyObject *object)
{
    (void)module;
    if (passage == NULL || passage->domain == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "a reducer of dumps() outside of dumps()");
        return NULL;
    }
    return tnp_is_tensor(object) ? reduce_tensor(object) : reduce_array(object);
}

/*
 * A buffer that some other type gives: true to keep it in the pickle. What lies in the domain
 * goes as it is, what does not is copied into a tensor of its own, unless it is small.
 */
static PyObject *keep_in_pickle(PyObject *module, PyObject *buffer)
{
    struct place place = {.tensor = (uint32_t)PyList_GET_SIZE(passage->tensors)};
    static const tn_dtype byte = TN_UINT8;
    Py_buffer view;
    (void)module;
    if (PyObject_GetBuffer(buffer, &view, PyBUF_FULL_RO) < 0)
        return NULL;
    int64_t size = view.len;
    place.size_bytes = (uint64_t)size;
    tn_tensor *storage = storage_of(passage->domain, view.buf, place.size_bytes);
    bool keep = storage == NULL && (size <= FEW_BYTES || has_many());
    if (storage != NULL) {
        place.offset = (uint64_t)((char *)view.buf - (char *)tn_tensor_data(storage));
    } else if (!keep) {
        storage = new_tensor(passage->domain, byte, 1, &size, passage->deadline);
        if (storage != NULL)
            copy_bytes(tn_tensor_data(storage), view.buf, (size_t)size);
    }
    PyBuffer_Release(&view);
    if (keep)
        Py_RETURN_TRUE;
    PyObject *number =
        storage == NULL ? NULL : send_along(tnp_tensor_wrap(storage, passage->domain));
    if (number == NULL)
        return NULL;
    Py_DECREF(number);
    PyObject *bytes = PyBytes_FromStringAndSize((char *)&place, sizeof place);
    if (bytes == NULL)
        return NULL;
    PyObject *longer = PySequence_InPlaceConcat(passage->places, bytes);
    Py_DECREF(bytes);
    if (longer == NULL)
        return NULL;
    Py_DECREF(longer);
    Py_RETURN_FALSE;
}

/* ---- pickling ---------------------------------------------------------------------------- */

static bool is_being_imported(PyObject *module)
{
    PyObject *spec = PyObject_GetAttrString(module, "__spec__");
    PyObject *flag = spec == NULL ? NULL : PyObject_GetAttrString(spec, "_initializing");
    bool is = flag == Py_True;
    Py_XDECREF(spec);
    Py_XDECREF(flag);
    PyErr_Clear(); /* no module of the import system's */
    return is;
}

/*
 * tenon.torch sets its reducers by itself, once somebody has imported PyTorch. Where it cannot,
 * tensors travel by those that PyTorch gave to ForkingPickler. -1: raised
 */
static int notice_torch(void)
{
    static bool is_noticed;
    PyObject *name = is_noticed ? NULL : PyUnicode_FromString("torch");
    PyObject *torch = name == NULL ? NULL : PyImport_GetModule(name);
    Py_XDECREF(name);
    if (torch == NULL)
        return PyErr_Occurred() ? -1 : 0;
    is_noticed = !is_being_imported(torch);
    Py_DECREF(torch);
    if (!is_noticed)
        return 0;
    PyObject *ours = PyImport_ImportModule("tenon.torch");
    if (ours == NULL) {
        PyErr_Clear(); /* an old PyTorch, or another module of that name */
        return 0;
    }
    PyObject *noticed = PyObject_CallMethod(ours, "_notice", NULL);
    Py_DECREF(ours);
    Py_XDECREF(noticed);
    return noticed == NULL ? -1 : 0;
}

/*
 * The dispatch table of our picklers. It looks into the dicts that others fill each time, so
 * that a reducer that was registered last is the one that is used.
 */
static PyObject *look_up(PyObject *self, PyObject *type)
{
    PyObject *const dicts[] = {reducers, python.fork_table, python.copyreg_table};
    PyObject *found_there = NULL;
    (void)self;
    if (type == (PyObject *)&tnp_tensor_type ||
        (has_numpy() && type == (PyObject *)ndarray_type))
        found_there = reduce_function;
    for (size_t i = 0; found_there == NULL && i < TNP_COUNT(dicts); i++) {
        found_there = PyDict_GetItemWithError(dicts[i], type);
        if (found_there == NULL && PyErr_Occurred())
            return NULL;
    }
    if (found_there == NULL)
        PyErr_SetObject(PyExc_KeyError, type);
    Py_XINCREF(found_there);
    return found_there;
}

static PyMappingMethods look_up_methods = {.mp_subscript = look_up};

static PyTypeObject table_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "tenon._core.DispatchTable",
    .tp_doc = "The reducers that dumps() uses.",
    .tp_basicsize = sizeof(PyObject),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_as_mapping = &look_up_methods,
};

static PyObject *pickle(PyObject *value)
{
    PyObject *file = NULL, *pickler = NULL, *done = NULL, *bytes = NULL;
    if (notice_torch() < 0 || (file = PyObject_CallObject(python.bytes_io, NULL)) == NULL)
        return NULL;
    PyObject *arguments = Py_BuildValue("(Oi)", file, 5);
    PyObject *keywords = Py_BuildValue("{sO}", "buffer_callback", keep_function);
    if (arguments != NULL && keywords != NULL)
        pickler = PyObject_Call(python.pickler, arguments, keywords);
    if (pickler != NULL && PyObject_SetAttrString(pickler, "dispatch_table", table) == 0)
        done = PyObject_CallMethod(pickler, "dump", "(O)", value);
    if (done != NULL)
        bytes = PyObject_CallMethod(file, "getvalue", NULL);
    Py_XDECREF(arguments);
    Py_XDECREF(keywords);
    Py_XDECREF(done);
    Py_XDECREF(pickler);
    Py_DECREF(file);
    return bytes;
}

/* The head, the places and the pickle, as one. */
static PyObject *assemble(PyObject *pickled, PyObject *places)
{
    Py_ssize_t places_bytes = PyByteArray_GET_SIZE(places);
    Py_ssize_t pickle_bytes = PyBytes_GET_SIZE(pickled);
    struct head head = {.kind = PICKLE,
                        .place_count = (uint32_t)((size_t)places_bytes / sizeof(struct place))};
    PyObject *bytes =
        PyBytes_FromStringAndSize(NULL, (Py_ssize_t)sizeof head + places_bytes + pickle_bytes);
    if (bytes == NULL)
        return NULL;
    char *at = PyBytes_AS_STRING(bytes);
    memcpy(at, &head, sizeof head);
    memcpy(at + sizeof head, PyByteArray_AS_STRING(places), (size_t)places_bytes);
    memcpy(at + sizeof head + places_bytes, PyBytes_AS_STRING(pickled), (size_t)pickle_bytes);
    return bytes;
}

static int encode_pickle(PyObject *domain, PyObject *value, tn_deadline deadline,
                         tnp_encoded *ret)
{
    struct passage mine = {.domain = domain,
                           .tensors = PyList_New(0),
                           .places = PyByteArray_FromStringAndSize(NULL, 0),
                           .deadline = deadline,
                           .outer = passage};
    PyObject *pickled = NULL;
    ret->bytes = NULL;
    if (mine.tensors != NULL && mine.places != NULL) {
        passage = &mine;
        pickled = pickle(value);
        passage = mine.outer;
    }
    if (pickled != NULL)
        ret->bytes = assemble(pickled, mine.places);
    Py_XDECREF(pickled);
    Py_XDECREF(mine.places);
    ret->tensors = mine.tensors;
    if (ret->bytes == NULL)
        Py_CLEAR(ret->tensors);
    return ret->bytes == NULL ? -1 : 0;
}

/* Consumes `tensor`. */
static int encode_one(PyObject *tensor, char kind, tnp_encoded *ret)
{
    ret->bytes = PyBytes_FromStringAndSize(&kind, 1);
    ret->tensors = PyList_New(1);
    if (ret->bytes == NULL || ret->tensors == NULL) {
        Py_XDECREF(tensor);
        Py_CLEAR(ret->bytes);
        Py_CLEAR(ret->tensors);
        return -1;
    }
    PyList_SET_ITEM(ret->tensors, 0, tensor);
    return 0;
}

static bool encode_plain(PyObject *value, tnp_encoded *ret)
{
    static const struct head head = {.kind = PICKLE};
    size_t pickle_bytes =
        tnp_pickle_plain(value, ret->plain + sizeof head, sizeof ret->plain - sizeof head);
    if (pickle_bytes == 0)
        return false;
    memcpy(ret->plain, &head, sizeof head);
    ret->start = ret->plain;
    ret->size_bytes = sizeof head + pickle_bytes;
    ret->bytes = ret->tensors = NULL;
    return true;
}

int tnp_encode(PyObject *domain, PyObject *value, tn_deadline deadline, tnp_encoded *ret)
{
    PyObject *tensor = NULL;
    char kind = TENSOR;
    bool is_fixed;
    int failed;
    if (tnp_domain_of(domain) == NULL)
        return -1;
    if (encode_plain(value, ret))
        return 0;
    if (has_numpy() && Py_TYPE(value) == ndarray_type) {
        tensor = tensor_of_array(domain, value, true, deadline, &is_fixed);
        kind = is_fixed ? FIXED_ARRAY : ARRAY;
    } else if (Py_TYPE(value) == &tnp_tensor_type) {
        tensor = tensor_of_tensor(domain, value, deadline);
    }
    if (tensor != NULL)
        failed = encode_one(tensor, kind, ret);
    else
        failed = PyErr_Occurred() ? -1 : encode_pickle(domain, value, deadline, ret);
    if (failed == 0) {
        ret->start = PyBytes_AS_STRING(ret->bytes);
        ret->size_bytes = (size_t)PyBytes_GET_SIZE(ret->bytes);
    }
    return failed;
}

void tnp_encoded_fini(tnp_encoded *encoded)
{
    Py_CLEAR(encoded->bytes);
    Py_CLEAR(encoded->tensors);
}

/* ---- unpickling -------------------------------------------------------------------------- */

static PyObject *fail_message(const char *what)
{
    PyErr_Format(PyExc_ValueError, "not a message of tenon's for Python: %s", what);
    return NULL;
}

/* The buffers of the pickle, as a list; checked against the tensors that came. */
static PyObject *find_buffers(const char *places, uint32_t count, PyObject *tensors)
{
    PyObject *buffers = PyList_New(0);
    for (uint32_t i = 0; buffers != NULL && i < count; i++) {
        struct place place;
        PyObject *view = NULL, *part = NULL;
        memcpy(&place, places + i * sizeof place, sizeof place);
        if (place.tensor < PyList_GET_SIZE(tensors)) {
            PyObject *tensor = PyList_GET_ITEM(tensors, place.tensor);
            uint64_t all = tnp_info(((tnp_tensor *)tensor)->tensor).size_bytes;
            if (place.offset <= all && place.size_bytes <= all - place.offset)
                view = PyMemoryView_FromObject(tensor);
            else
                fail_message("a buffer lies outside of its tensor");
        } else {
            fail_message("a buffer is of a tensor that did not come");
        }
        if (view != NULL)
            part = PySequence_GetSlice(view, (Py_ssize_t)place.offset,
                                       (Py_ssize_t)(place.offset + place.size_bytes));
        Py_XDECREF(view);
        if (part == NULL || PyList_Append(buffers, part) < 0)
            Py_CLEAR(buffers);
        Py_XDECREF(part);
    }
    return buffers;
}

/* Let the exception that was raised say what the message was of. */
static void note_names(PyObject *memory)
{
    PyObject *type, *error, *traceback, *done = NULL;
    PyErr_Fetch(&type, &error, &traceback);
    PyErr_NormalizeException(&type, &error, &traceback);
    PyObject *explain = PyImport_ImportModule("tenon._explain");
    if (explain != NULL)
        done = PyObject_CallMethod(explain, "note", "OO", error, memory);
    Py_XDECREF(explain);
    Py_XDECREF(done);
    PyErr_Clear();
    PyErr_Restore(type, error, traceback);
}

/* The common case: nothing travelled beside it. */
static PyObject *unpickle_alone(const char *bytes, Py_ssize_t size_bytes)
{
    PyObject *pickled = PyBytes_FromStringAndSize(bytes, size_bytes);
    PyObject *value =
        pickled == NULL ? NULL : PyObject_CallFunctionObjArgs(python.loads, pickled, NULL);
    if (value == NULL && pickled != NULL)
        note_names(pickled);
    Py_XDECREF(pickled);
    return value;
}

static PyObject *unpickle(const char *bytes, Py_ssize_t size_bytes, PyObject *buffers)
{
    if (PyList_GET_SIZE(buffers) == 0 && size_bytes <= FEW_BYTES)
        return unpickle_alone(bytes, size_bytes);
    PyObject *value = NULL, *keywords = NULL;
    PyObject *memory =
        PyMemoryView_FromMemory((char *)(uintptr_t)bytes, size_bytes, PyBUF_READ);
    PyObject *arguments = memory == NULL ? NULL : PyTuple_Pack(1, memory);
    if (arguments != NULL)
        keywords = Py_BuildValue("{sO}", "buffers", buffers);
    if (keywords != NULL)
        value = PyObject_Call(python.loads, arguments, keywords);
    if (value == NULL && memory != NULL)
        note_names(memory);
    Py_XDECREF(keywords);
    Py_XDECREF(arguments);
    Py_XDECREF(memory);
    return value;
}

static PyObject *decode_pickle(const char *bytes, size_t size_bytes, PyObject *tensors)
{
    struct head head;
    if (size_bytes < sizeof head)
        return fail_message("too short");
    memcpy(&head, bytes, sizeof head);
    size_t room = (size_bytes - sizeof head) / sizeof(struct place);
    if (head.place_count > room)
        return fail_message("too short for its buffers");
    const char *places = bytes + sizeof head;
    size_t before = sizeof head + head.place_count * sizeof(struct place);
    PyObject *buffers = none;
    if (head.place_count == 0)
        Py_INCREF(buffers);
    else if ((buffers = find_buffers(places, head.place_count, tensors)) == NULL)
        return NULL;
    struct passage mine = {.tensors = tensors, .outer = passage};
    passage = &mine;
    PyObject *value = unpickle(bytes + before, (Py_ssize_t)(size_bytes - before), buffers);
    passage = mine.outer;
    Py_DECREF(buffers);
    return value;
}

PyObject *tnp_decode(const char *bytes, Py_ssize_t size_bytes, PyObject *tensors)
{
    char kind = size_bytes > 0 ? bytes[0] : 0;
    if (tensors == NULL)
        tensors = none;
    if (kind == PICKLE)
        return decode_pickle(bytes, (size_t)size_bytes, tensors);
    if ((kind != ARRAY && kind != FIXED_ARRAY && kind != TENSOR) ||
        PyList_GET_SIZE(tensors) != 1)
        return fail_message(size_bytes == 0 ? "it is empty" : "its first byte says nothing");
    PyObject *tensor = PyList_GET_ITEM(tensors, 0);
    if (kind != TENSOR)
        return kind == ARRAY ? array_over(tensor) : fixed_array_over(tensor);
    Py_INCREF(tensor);
    return tensor;
}

/* ---- the module's functions -------------------------------------------------------------- */

static PyObject *dump(PyObject *module, PyObject *args)
{
    PyObject *value, *domain = Py_None;
    tnp_encoded encoded;
    (void)module;
    if (!PyArg_ParseTuple(args, "O|O", &value, &domain))
        return NULL;
    if (domain == Py_None)
        domain = tnp_domain_default();
    else
        Py_INCREF(domain);
    if (domain == NULL)
        return NULL;
    int failed = tnp_encode(domain, value, TN_NOW, &encoded);
    Py_DECREF(domain);
    if (failed < 0)
        return NULL;
    if (encoded.bytes == NULL)
        encoded.bytes =
            PyBytes_FromStringAndSize(encoded.start, (Py_ssize_t)encoded.size_bytes);
    if (encoded.tensors == NULL)
        encoded.tensors = PyList_New(0);
    if (encoded.bytes != NULL && encoded.tensors != NULL)
        return Py_BuildValue("(NN)", encoded.bytes, encoded.tensors);
    tnp_encoded_fini(&encoded);
    return NULL;
}

static PyObject *load(PyObject *module, PyObject *args)
{
    PyObject *sequence, *value = NULL;
    Py_buffer data;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*O", &data, &sequence))
        return NULL;
    PyObject *tensors = PySequence_List(sequence);
    for (Py_ssize_t i = 0; tensors != NULL && i < PyList_GET_SIZE(tensors); i++)
        if (!tnp_is_tensor(PyList_GET_ITEM(tensors, i))) {
            PyErr_Format(PyExc_TypeError, "tensors[%zd] is no tensor", i);
            Py_CLEAR(tensors);
        }
    if (tensors != NULL)
        value = tnp_decode(data.buf, data.len, tensors);
    Py_XDECREF(tensors);
    PyBuffer_Release(&data);
    return value;
}

static PyObject *register_reducer(PyObject *module, PyObject *args)
{
    PyObject *type, *function;
    (void)module;
    if (!PyArg_ParseTuple(args, "O!O", &PyType_Type, &type, &function) ||
        PyDict_SetItem(reducers, type, function) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *is_dumping(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    return PyBool_FromLong(passage != NULL && passage->domain != NULL);
}

static PyObject *dumping(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    if (passage == NULL || passage->domain == NULL)
        Py_RETURN_NONE;
    if (passage->deadline.ns == TN_FOREVER.ns)
        return Py_BuildValue("(OO)", passage->domain, Py_None);
    uint64_t now_ns = tnp_now_ns();
    double left = passage->deadline.ns > now_ns ? (double)(passage->deadline.ns - now_ns) : 0;
    return Py_BuildValue("(Od)", passage->domain, left / 1e9);
}

static PyObject *send(PyObject *module, PyObject *tensor)
{
    (void)module;
    if (passage == NULL || passage->domain == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "send() outside of dumps()");
        return NULL;
    }
    if (!tnp_is_tensor(tensor)) {
        PyErr_Format(PyExc_TypeError, "a tenon.Tensor is needed, not %.200s",
                     Py_TYPE(tensor)->tp_name);
        return NULL;
    }
    return send_tensor(tensor);
}

/* Borrowed; NULL: raised. */
static PyObject *tensor_numbered(PyObject *number)
{
    Py_ssize_t n = PyLong_AsSsize_t(number);
    if (n == -1 && PyErr_Occurred())
        return NULL;
    if (passage == NULL || passage->domain != NULL || n < 0 ||
        n >= PyList_GET_SIZE(passage->tensors))
        return fail_message("it names a tensor that did not come with it");
    return PyList_GET_ITEM(passage->tensors, n);
}

static PyObject *take(PyObject *module, PyObject *number)
{
    PyObject *tensor = tensor_numbered(number);
    (void)module;
    Py_XINCREF(tensor);
    return tensor;
}

static PyObject *take_array(PyObject *module, PyObject *number)
{
    PyObject *tensor = tensor_numbered(number);
    (void)module;
    return tensor == NULL ? NULL : array_over(tensor);
}

static PyObject *take_fixed_array(PyObject *module, PyObject *number)
{
    PyObject *tensor = tensor_numbered(number);
    (void)module;
    return tensor == NULL ? NULL : fixed_array_over(tensor);
}

static PyMethodDef functions[] = {
    {"dumps", dump, METH_VARARGS,
     "dumps($module, value, domain=None, /)\n--\n\n"
     "(bytes, tensors) of any object that can be pickled."},
    {"loads", load, METH_VARARGS,
     "loads($module, data, tensors, /)\n--\n\n"
     "The object of dumps()."},
    {"register", register_reducer, METH_VARARGS,
     "register($module, kind, reduce, /)\n--\n\n"
     "Set the reducer that dumps() uses for objects of just this type."},
    {"is_dumping", is_dumping, METH_NOARGS,
     "is_dumping($module, /)\n--\n\n"
     "Whether dumps() runs in this thread."},
    {"dumping", dumping, METH_NOARGS,
     "dumping($module, /)\n--\n\n"
     "(domain, seconds left to wait for memory) of the dumps() of this thread; or None."},
    {"send", send, METH_O,
     "send($module, tensor, /)\n--\n\n"
     "In a reducer: let a tensor travel along; returns its number."},
    {"take", take, METH_O,
     "take($module, number, /)\n--\n\n"
     "While loads() runs: the tensor of a number."},
    {"take_array", take_array, METH_O,
     "take_array($module, number, /)\n--\n\n"
     "The same, as an array of NumPy's."},
    {"take_fixed_array", take_fixed_array, METH_O,
     "take_fixed_array($module, number, /)\n--\n\n"
     "The same, which cannot be written."},
    {NULL, NULL, 0, NULL},
};
static PyMethodDef reduce_definition = {"reduce", reduce_ours, METH_O, NULL};
static PyMethodDef keep_definition = {"keep", keep_in_pickle, METH_O, NULL};

static PyObject *attribute_of(const char *module, const char *name)
{
    PyObject *imported = PyImport_ImportModule(module);
    PyObject *found_there = imported == NULL ? NULL : PyObject_GetAttrString(imported, name);
    Py_XDECREF(imported);
    return found_there;
}

/* ForkingPickler keeps what was registered with it in a dict of its class. */
static PyObject *fork_reducers(void)
{
    PyObject *pickler = attribute_of("multiprocessing.reduction", "ForkingPickler");
    PyObject *extra =
        pickler == NULL ? NULL : PyObject_GetAttrString(pickler, "_extra_reducers");
    Py_XDECREF(pickler);
    return extra;
}

int tnp_codec_init(PyObject *module)
{
    python.pickler = attribute_of("pickle", "Pickler");
    python.loads = attribute_of("pickle", "loads");
    python.bytes_io = attribute_of("io", "BytesIO");
    python.copyreg_table = attribute_of("copyreg", "dispatch_table");
    python.fork_table = fork_reducers();
    reducers = PyDict_New();
    none = PyList_New(0);
    reduce_function = PyCFunction_New(&reduce_definition, NULL);
    keep_function = PyCFunction_New(&keep_definition, NULL);
    if (PyModule_AddFunctions(module, functions) < 0 || PyType_Ready(&table_type) < 0)
        return -1;
    table = table_type.tp_alloc(&table_type, 0);
    array_function = PyObject_GetAttrString(module, "take_array");
    fixed_array_function = PyObject_GetAttrString(module, "take_fixed_array");
    take_function = PyObject_GetAttrString(module, "take");
    return python.pickler == NULL || python.loads == NULL || python.bytes_io == NULL ||
                   python.copyreg_table == NULL || !PyDict_Check(python.copyreg_table) ||
                   python.fork_table == NULL || !PyDict_Check(python.fork_table) ||
                   reducers == NULL || none == NULL || table == NULL ||
                   reduce_function == NULL || keep_function == NULL || array_function == NULL ||
                   fixed_array_function == NULL || take_function == NULL
               ? -1
               : 0;
}
