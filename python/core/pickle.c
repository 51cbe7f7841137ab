/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pickle: write objects as pickles, with the arrays, tensors and buffers in them beside the
 * pickle.
 *
 * A reducer that dumps() calls may attach a tensor to the message with send(), which returns
 * the number of the tensor. While loads() runs, take() of unpickle.c returns the tensor with
 * that number.
 */
#include "codec.h"

#include <string.h>

enum {
    MANY_TENSORS = 4096
}; /* with so many tensors, further copies into blocks of their own cost more than they save */

/* What this file uses of modules of Python. */
static struct {
    PyObject *pickler, *bytes_io;
    PyObject *copyreg_table, *fork_table; /* dicts */
} python;
static PyObject *reducers;        /* {type: function}, filled by register() */
static PyObject *table;           /* the dispatch table of the picklers: a table_type */
static PyObject *reduce_function; /* the reducer of arrays and tensors */
static PyObject *keep_function;   /* the callback for buffers */
static PyObject *array_function, *fixed_array_function, *take_function;

/* ---- reducers ---------------------------------------------------------------------------- */

static bool has_many_tensors(void)
{
    return PyList_GET_SIZE(tnp_conversion_now->tensors) >= MANY_TENSORS;
}

/* -1: raised */
static int check_tensor_count(void)
{
    if (PyList_GET_SIZE(tnp_conversion_now->tensors) < TN_MESSAGE_MAX_TENSORS)
        return 0;
    PyErr_Format(PyExc_ValueError,
                 "more than TN_MESSAGE_MAX_TENSORS (%d) tensors, arrays and buffers in one "
                 "message: send the object in parts",
                 TN_MESSAGE_MAX_TENSORS);
    return -1;
}

/* Append a tensor to the message; it is consumed. @return its number; NULL: raised */
static PyObject *attach_tensor(PyObject *tensor)
{
    if (tensor == NULL)
        return NULL;
    Py_ssize_t number = PyList_GET_SIZE(tnp_conversion_now->tensors);
    int failed =
        check_tensor_count() < 0 ? -1 : PyList_Append(tnp_conversion_now->tensors, tensor);
    Py_DECREF(tensor);
    return failed < 0 ? NULL : PyLong_FromSsize_t(number);
}

static PyObject *reduction(PyObject *function, PyObject *number)
{
    if (number == NULL)
        return NULL;
    return Py_BuildValue("O(N)", function, number);
}

static PyObject *reduce_array(PyObject *array)
{
    bool is_fixed;
    PyObject *tensor =
        tnp_transfer_array(tnp_conversion_now->domain, array, !has_many_tensors(),
                           tnp_conversion_now->deadline, &is_fixed);
    if (tensor != NULL)
        return reduction(is_fixed ? fixed_array_function : array_function,
                         attach_tensor(tensor));
    return PyErr_Occurred() ? NULL : tnp_reduce_by_numpy(array);
}

/* Check the number of tensors first, so that a tensor that is refused is not moved. */
static PyObject *send_tensor(PyObject *tensor)
{
    if (check_tensor_count() < 0)
        return NULL;
    return attach_tensor(
        tnp_transfer_tensor(tnp_conversion_now->domain, tensor, tnp_conversion_now->deadline));
}

static PyObject *reduce_tensor(PyObject *tensor)
{
    return reduction(take_function, send_tensor(tensor));
}

/* The pickler calls this for arrays and tensors, in place of their own __reduce_ex__(). */
static PyObject *reduce(PyObject *module, PyObject *object)
{
    (void)module;
    if (tnp_conversion_now == NULL || tnp_conversion_now->domain == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "the reducer works only while dumps() runs");
        return NULL;
    }
    return tnp_is_tensor(object) ? reduce_tensor(object) : reduce_array(object);
}

/*
 * The pickler calls this for a buffer that another type hands out. True keeps the buffer in the
 * pickle. A buffer that lies in the domain travels as it is; any other is copied into a tensor
 * of its own, unless it is small.
 */
static PyObject *keep_in_pickle(PyObject *module, PyObject *buffer)
{
    struct tnp_place place = {.tensor = (uint32_t)PyList_GET_SIZE(tnp_conversion_now->tensors)};
    static const tn_dtype byte = TN_UINT8;
    Py_buffer view;
    (void)module;
    if (PyObject_GetBuffer(buffer, &view, PyBUF_FULL_RO) < 0)
        return NULL;
    int64_t size = view.len;
    place.size_bytes = (uint64_t)size;
    tn_tensor *storage = tnp_storage_of(tnp_conversion_now->domain, view.buf, place.size_bytes);
    bool keep = storage == NULL && (size <= TNP_FEW_BYTES || has_many_tensors());
    if (storage != NULL) {
        place.offset = (uint64_t)((char *)view.buf - (char *)tn_tensor_data(storage));
    } else if (!keep) {
        storage = tnp_new_tensor(tnp_conversion_now->domain, byte, 1, &size,
                                 tnp_conversion_now->deadline);
        if (storage != NULL) {
            tnp_copy_bytes(tn_tensor_data(storage), view.buf, (size_t)size);
            tnp_note_copy(place.size_bytes);
        }
    }
    PyBuffer_Release(&view);
    if (keep)
        Py_RETURN_TRUE;
    PyObject *number =
        storage == NULL ? NULL
                        : attach_tensor(tnp_tensor_wrap(storage, tnp_conversion_now->domain));
    if (number == NULL)
        return NULL;
    Py_DECREF(number);
    PyObject *bytes = PyBytes_FromStringAndSize((char *)&place, sizeof place);
    if (bytes == NULL)
        return NULL;
    PyObject *longer = PySequence_InPlaceConcat(tnp_conversion_now->places, bytes);
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
    PyErr_Clear(); /* the module has no ordinary spec */
    return is;
}

/*
 * Let tenon.torch register its reducers, once the program has imported PyTorch. If it cannot,
 * tensors travel by the reducers that PyTorch registered with ForkingPickler. -1: raised
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
        PyErr_Clear(); /* PyTorch is too old, or the module `torch` is another one */
        return 0;
    }
    PyObject *noticed = PyObject_CallMethod(ours, "_notice", NULL);
    Py_DECREF(ours);
    Py_XDECREF(noticed);
    return noticed == NULL ? -1 : 0;
}

/*
 * The lookup of the dispatch table. It searches the dicts each time, since any module may
 * register a reducer at any time.
 */
static PyObject *find_reducer(PyObject *self, PyObject *type)
{
    PyObject *const dicts[] = {reducers, python.fork_table, python.copyreg_table};
    PyObject *found_there = NULL;
    (void)self;
    if (type == (PyObject *)&tnp_tensor_type ||
        (tnp_has_numpy() && type == (PyObject *)tnp_ndarray_type))
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

static PyMappingMethods table_methods = {.mp_subscript = find_reducer};

static PyTypeObject table_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "tenon._core.DispatchTable",
    .tp_doc = "The reducers that dumps() uses.",
    .tp_basicsize = sizeof(PyObject),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_as_mapping = &table_methods,
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

/* Concatenate the head, the places and the pickle. */
static PyObject *assemble(PyObject *pickled, PyObject *places)
{
    Py_ssize_t places_bytes = PyByteArray_GET_SIZE(places);
    Py_ssize_t pickle_bytes = PyBytes_GET_SIZE(pickled);
    struct tnp_head head = {.kind = TNP_PICKLE,
                            .place_count =
                                (uint32_t)((size_t)places_bytes / sizeof(struct tnp_place))};
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

int tnp_encode_pickle(PyObject *domain, PyObject *value, tn_deadline deadline, tnp_encoded *ret)
{
    struct tnp_conversion mine = {.domain = domain,
                                  .tensors = PyList_New(0),
                                  .places = PyByteArray_FromStringAndSize(NULL, 0),
                                  .deadline = deadline,
                                  .outer = tnp_conversion_now};
    PyObject *pickled = NULL;
    ret->bytes = NULL;
    if (mine.tensors != NULL && mine.places != NULL) {
        tnp_conversion_now = &mine;
        pickled = pickle(value);
        tnp_conversion_now = mine.outer;
    }
    ret->copied = mine.copied;
    if (pickled != NULL)
        ret->bytes = assemble(pickled, mine.places);
    Py_XDECREF(pickled);
    Py_XDECREF(mine.places);
    ret->tensors = mine.tensors;
    if (ret->bytes == NULL)
        Py_CLEAR(ret->tensors);
    return ret->bytes == NULL ? -1 : 0;
}

/* ---- functions of the module ------------------------------------------------------------- */

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
    return PyBool_FromLong(tnp_conversion_now != NULL && tnp_conversion_now->domain != NULL);
}

static PyObject *dumping(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    if (tnp_conversion_now == NULL || tnp_conversion_now->domain == NULL)
        Py_RETURN_NONE;
    if (tnp_conversion_now->deadline.ns == TN_FOREVER.ns)
        return Py_BuildValue("(OO)", tnp_conversion_now->domain, Py_None);
    uint64_t now_ns = tnp_now_ns();
    double left = tnp_conversion_now->deadline.ns > now_ns
                      ? (double)(tnp_conversion_now->deadline.ns - now_ns)
                      : 0;
    return Py_BuildValue("(Od)", tnp_conversion_now->domain, left / 1e9);
}

static PyObject *send(PyObject *module, PyObject *tensor)
{
    (void)module;
    if (tnp_conversion_now == NULL || tnp_conversion_now->domain == NULL) {
        PyErr_SetString(PyExc_RuntimeError,
                        "send() works only while dumps() runs: call it from a reducer");
        return NULL;
    }
    if (!tnp_is_tensor(tensor)) {
        PyErr_Format(PyExc_TypeError, "a tenon.Tensor is needed, not %.200s",
                     Py_TYPE(tensor)->tp_name);
        return NULL;
    }
    return send_tensor(tensor);
}

static PyMethodDef functions[] = {
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
    {NULL, NULL, 0, NULL},
};
static PyMethodDef reduce_definition = {"reduce", reduce, METH_O, NULL};
static PyMethodDef keep_definition = {"keep", keep_in_pickle, METH_O, NULL};

static PyObject *attribute_of(const char *module, const char *name)
{
    PyObject *imported = PyImport_ImportModule(module);
    PyObject *found_there = imported == NULL ? NULL : PyObject_GetAttrString(imported, name);
    Py_XDECREF(imported);
    return found_there;
}

int tnp_pickle_init(PyObject *module)
{
    python.pickler = attribute_of("pickle", "Pickler");
    python.bytes_io = attribute_of("io", "BytesIO");
    python.copyreg_table = attribute_of("copyreg", "dispatch_table");
    python.fork_table = attribute_of("tenon._cpython", "extra_reducers"); /* ForkingPickler's */
    reducers = PyDict_New();
    reduce_function = PyCFunction_New(&reduce_definition, NULL);
    keep_function = PyCFunction_New(&keep_definition, NULL);
    if (PyModule_AddFunctions(module, functions) < 0 || PyType_Ready(&table_type) < 0)
        return -1;
    table = table_type.tp_alloc(&table_type, 0);
    array_function = PyObject_GetAttrString(module, "take_array");
    fixed_array_function = PyObject_GetAttrString(module, "take_fixed_array");
    take_function = PyObject_GetAttrString(module, "take");
    return python.pickler == NULL || python.bytes_io == NULL || python.copyreg_table == NULL ||
                   !PyDict_Check(python.copyreg_table) || python.fork_table == NULL ||
                   !PyDict_Check(python.fork_table) || reducers == NULL || table == NULL ||
                   reduce_function == NULL || keep_function == NULL || array_function == NULL ||
                   fixed_array_function == NULL || take_function == NULL
               ? -1
               : 0;
}
