/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Store: a map from keys to values, which are any objects (codec.c), or parts: bytes and
 * tensors, as a program in C puts and gets them.
 *
 * S1. Once the library has told this process to make a value, no code of Python runs before
 *     the call of make(). So an exception of a signal handler is raised inside of that call or
 *     after it, and get_or_make() gives up in each case.
 */
#include "store.h"

#include <string.h>

TNP_KIND(store, TN_OBJECT_STORE,
         tn_store_open(domain, name, NULL, TN_OPEN_EXISTING, ret_handle))

/* Raise KeyError if the key has no value, and else what the status says. @return NULL */
static PyObject *raise_for_key(int status, PyObject *key)
{
    if (status != TN_ERR_NOT_FOUND || PyErr_Occurred())
        return tnp_raise(status);
    PyErr_SetObject(PyExc_KeyError, key);
    return NULL;
}

/*
 * tn_store_get() also fails with TN_ERR_NOT_FOUND if the file of a tensor was removed. The key
 * then has a value, and the detail names the file.
 */
static bool has_no_value(int status)
{
    static const char words[] = "the store ";
    return status == TN_ERR_NOT_FOUND &&
           strncmp(tn_error_detail(), words, sizeof words - 1) == 0;
}

/* ---- making, opening --------------------------------------------------------------------- */

static PyObject *open_or_create(PyObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"domain", "name", "capacity", "budget_bytes", "evict", NULL};
    tn_store_options options = {.struct_size = sizeof options};
    PyObject *domain, *capacity = NULL, *budget_bytes = NULL;
    const char *name = NULL;
    tn_store *store;
    int evict = 0, status;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O|z$OOp", names, &domain, &name,
                                     &capacity, &budget_bytes, &evict) ||
        (capacity != NULL &&
         tnp_small_word(capacity, "a store cannot have the capacity", &options.capacity) < 0) ||
        (budget_bytes != NULL && tnp_word(budget_bytes, &options.budget_bytes) < 0))
        return NULL;
    options.flags = evict ? TN_STORE_EVICT : 0;
    tn_domain *d = tnp_domain_of(domain);
    if (d == NULL)
        return NULL;
    TNP_WAIT(domain, status, tn_store_open(d, name, &options, 0, &store));
    return status != 0 ? tnp_raise(status)
                       : tnp_object_wrap((PyTypeObject *)type, &store_kind, store, domain);
}

/* ---- put --------------------------------------------------------------------------------- */

static int read_lifetime(PyObject *lifetime, uint64_t *ret_ns)
{
    const double longest_s = 1e9;
    if (lifetime == NULL || lifetime == Py_None)
        return 0;
    double seconds = PyFloat_AsDouble(lifetime);
    if (seconds == -1.0 && PyErr_Occurred())
        return -1;
    if (!(seconds > 0)) {
        tnp_raise_text(TN_ERR_INVALID,
                       "the lifetime is %R: it must be more than 0 seconds, or None", lifetime);
        return -1;
    }
    *ret_ns = seconds > longest_s ? 0 : seconds < 1e-9 ? 1 : (uint64_t)(seconds * 1e9);
    return 0;
}

static int read_version(PyObject *version, uint64_t *ret)
{
    if (version == NULL || version == Py_None)
        return 0;
    if (tnp_word(version, ret) < 0)
        return -1;
    if (*ret != 0)
        return 0;
    tnp_raise_text(TN_ERR_INVALID, "if_version is 0, and no value has this version");
    return -1;
}

/* Put the bytes and the tensors of `encoded`. -1: raised */
static int put_encoded(PyObject *self, PyObject *key, const tnp_encoded *encoded,
                       const tn_store_put_options *options, uint64_t *ret_version)
{
    int status = 0;
    tn_tensor *few[TNP_FEW_TENSORS], **all = tnp_handles_of(encoded->tensors, few);
    const char *text = all == NULL ? NULL : tnp_key(key, false);
    tn_store *store = text == NULL ? NULL : tnp_object_handle(self);
    if (store != NULL) {
        tn_message message = {
            .bytes = encoded->start,
            .size_bytes = encoded->size_bytes,
            .tensors = all,
            .tensor_count =
                encoded->tensors == NULL ? 0 : (uint32_t)PyList_GET_SIZE(encoded->tensors)};
        TNP_OBJECT_WAIT(self, status,
                        tn_store_put(store, text, &message, options, ret_version));
        if (status != 0)
            raise_for_key(status, key);
        else
            tnp_count_sent(encoded);
    }
    if (all != few)
        PyMem_Free(all);
    return store == NULL || status != 0 ? -1 : 0;
}

/* -1: raised */
static int put_value(PyObject *self, PyObject *key, PyObject *value,
                     const tn_store_put_options *options, uint64_t *ret_version)
{
    tnp_encoded encoded;
    if (tnp_key(key, false) == NULL || tnp_object_handle(self) == NULL ||
        tnp_encode(((tnp_object *)self)->domain, value, options->deadline, &encoded) < 0)
        return -1;
    int failed = put_encoded(self, key, &encoded, options, ret_version);
    tnp_encoded_fini(&encoded);
    return failed;
}

/* `parts` is a tuple of bytes and a sequence of tensors. -1: raised */
static int put_pair(PyObject *self, PyObject *key, PyObject *parts,
                    const tn_store_put_options *options, uint64_t *ret_version)
{
    Py_buffer bytes;
    PyObject *tensors;
    int failed = 0;
    if (!PyTuple_Check(parts)) {
        PyErr_Format(PyExc_TypeError, "the parts are a tuple of bytes and tensors, not %.200s",
                     Py_TYPE(parts)->tp_name);
        return -1;
    }
    if (!PyArg_ParseTuple(parts, "y*O:parts", &bytes, &tensors))
        return -1;
    tnp_encoded encoded = {.start = bytes.buf,
                           .size_bytes = (size_t)bytes.len,
                           .tensors = PySequence_List(tensors)};
    if (encoded.tensors == NULL)
        failed = -1;
    for (Py_ssize_t i = 0; failed == 0 && i < PyList_GET_SIZE(encoded.tensors); i++)
        if (!tnp_is_tensor(PyList_GET_ITEM(encoded.tensors, i))) {
            PyErr_Format(PyExc_TypeError, "tensors[%zd] is not a tenon.Tensor", i);
            failed = -1;
        }
    if (failed == 0)
        failed = put_encoded(self, key, &encoded, options, ret_version);
    tnp_encoded_fini(&encoded);
    PyBuffer_Release(&bytes);
    return failed;
}

static PyObject *put(PyObject *self, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"key",      "value",  "if_absent", "if_version",
                            "lifetime", "pinned", "timeout",   NULL};
    tn_store_put_options options = {.struct_size = sizeof options};
    PyObject *key, *value, *if_version = NULL, *lifetime = NULL, *timeout = NULL;
    int if_absent = 0, pinned = 0;
    uint64_t version;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "OO|$pOOpO", names, &key, &value,
                                     &if_absent, &if_version, &lifetime, &pinned, &timeout) ||
        read_version(if_version, &options.if_version) < 0 ||
        read_lifetime(lifetime, &options.lifetime_ns) < 0 ||
        tnp_deadline(timeout, TN_NOW, &options.deadline) < 0)
        return NULL;
    options.flags = (if_absent ? TN_PUT_IF_ABSENT : 0) | (pinned ? TN_PUT_PINNED : 0);
    return put_value(self, key, value, &options, &version) < 0
               ? NULL
               : PyLong_FromUnsignedLongLong(version);
}

static PyObject *put_parts(PyObject *self, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"key", "parts", "if_absent", "lifetime", "timeout", NULL};
    tn_store_put_options options = {.struct_size = sizeof options};
    PyObject *key, *parts, *lifetime = NULL, *timeout = NULL;
    int if_absent = 0;
    uint64_t version;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "OO|$pOO:put_parts", names, &key, &parts,
                                     &if_absent, &lifetime, &timeout) ||
        read_lifetime(lifetime, &options.lifetime_ns) < 0 ||
        tnp_deadline(timeout, TN_NOW, &options.deadline) < 0)
        return NULL;
    options.flags = if_absent ? TN_PUT_IF_ABSENT : 0;
    return put_pair(self, key, parts, &options, &version) < 0
               ? NULL
               : PyLong_FromUnsignedLongLong(version);
}

/* ---- get --------------------------------------------------------------------------------- */

/* @return 1: the value; 0: the key has none; -1: raised */
static int look_up(PyObject *self, PyObject *key, tn_message *ret_value, uint64_t *ret_version)
{
    const char *text = tnp_key(key, false);
    tn_store *store = text == NULL ? NULL : tnp_object_handle(self);
    if (store == NULL)
        return -1;
    int status = tn_store_get(store, text, ret_value, ret_version);
    if (status == 0 || has_no_value(status))
        return status == 0 ? 1 : 0;
    tnp_raise(status);
    return -1;
}

static PyObject *get(PyObject *self, PyObject *args)
{
    PyObject *key, *missing = NULL;
    tn_message message;
    if (!PyArg_ParseTuple(args, "O|O:get", &key, &missing))
        return NULL;
    int found = look_up(self, key, &message, NULL);
    if (found > 0)
        return tnp_message_value(self, &message);
    if (found == 0 && missing == NULL)
        PyErr_SetObject(PyExc_KeyError, key);
    if (found < 0 || missing == NULL)
        return NULL;
    Py_INCREF(missing);
    return missing;
}

static PyObject *get_with_version(PyObject *self, PyObject *key)
{
    tn_message message;
    uint64_t version;
    int found = look_up(self, key, &message, &version);
    if (found == 0)
        PyErr_SetObject(PyExc_KeyError, key);
    PyObject *value = found > 0 ? tnp_message_value(self, &message) : NULL;
    return value == NULL ? NULL : Py_BuildValue("(NK)", value, (unsigned long long)version);
}

static PyObject *parts(PyObject *self, PyObject *key)
{
    tn_message message;
    int found = look_up(self, key, &message, NULL);
    if (found == 0)
        PyErr_SetObject(PyExc_KeyError, key);
    return found <= 0 ? NULL : tnp_message_parts(self, &message);
}

static PyObject *contains(PyObject *self, PyObject *key)
{
    tn_message message;
    int found = look_up(self, key, &message, NULL);
    if (found > 0)
        tn_message_fini(&message);
    return found < 0 ? NULL : PyBool_FromLong(found);
}

/* ---- get or make ------------------------------------------------------------------------- */

/* The exception that was raised stays. */
static void give_up(PyObject *self, const char *key)
{
    PyObject *type, *error, *traceback;
    int status = 0;
    PyErr_Fetch(&type, &error, &traceback);
    tn_store *store = tnp_object_handle(self);
    if (store != NULL)
        TNP_OBJECT_WAIT(self, status, tn_store_give_up(store, key));
    (void)status;
    PyErr_Clear();
    PyErr_Restore(type, error, traceback);
}

/* How the values of a call are put and got: as objects, or as parts. */
struct form {
    int (*put)(PyObject *self, PyObject *key, PyObject *value,
               const tn_store_put_options *options, uint64_t *ret_version);
    PyObject *(*read)(PyObject *self, tn_message *message);
};

static const struct form as_object = {put_value, tnp_message_value},
                         as_parts = {put_pair, tnp_message_parts};

/* Call make() and put what it returns. All processes then use the memory of the store. */
static PyObject *make_value(PyObject *self, PyObject *key, PyObject *make,
                            const tn_store_put_options *options, const struct form *form)
{
    uint64_t version;
    tn_message message;
    PyObject *made = PyObject_CallObject(make, NULL);
    if (made == NULL || form->put(self, key, made, options, &version) < 0) {
        Py_XDECREF(made);
        give_up(self, PyUnicode_AsUTF8(key));
        return NULL;
    }
    int found = look_up(self, key, &message, NULL);
    if (found == 0)
        return made; /* the value has been removed already */
    Py_DECREF(made);
    return found < 0 ? NULL : form->read(self, &message);
}

static PyObject *get_or_make_as(PyObject *self, PyObject *args, PyObject *keywords,
                                const struct form *form)
{
    static char *names[] = {"key", "make", "timeout", "lifetime", "pinned", NULL};
    tn_store_put_options options = {.struct_size = sizeof options};
    PyObject *key, *make, *timeout = Py_None, *lifetime = NULL;
    tn_deadline deadline;
    tn_message message;
    int pinned = 0, status;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "OO|$OOp:get_or_make", names, &key, &make,
                                     &timeout, &lifetime, &pinned) ||
        tnp_deadline(timeout, TN_NOW, &deadline) < 0 ||
        read_lifetime(lifetime, &options.lifetime_ns) < 0)
        return NULL;
    if (!PyCallable_Check(make))
        return PyErr_Format(PyExc_TypeError, "make is a function, not %.200s",
                            Py_TYPE(make)->tp_name);
    options.flags = pinned ? TN_PUT_PINNED : 0;
    const char *text = tnp_key(key, false);
    tn_store *store = text == NULL ? NULL : tnp_object_handle(self);
    if (store == NULL)
        return NULL;
    TNP_OBJECT_WAIT(self, status, tn_store_get_or_make(store, text, deadline, &message));
    if (status == TN_STORE_MAKE)
        return make_value(self, key, make, &options, form); /* S1 */
    return status != 0 ? tnp_raise(status) : form->read(self, &message);
}

static PyObject *get_or_make(PyObject *self, PyObject *args, PyObject *keywords)
{
    return get_or_make_as(self, args, keywords, &as_object);
}

static PyObject *parts_or_make(PyObject *self, PyObject *args, PyObject *keywords)
{
    return get_or_make_as(self, args, keywords, &as_parts);
}

/* ---- changes ----------------------------------------------------------------------------- */

static PyObject *remove_key(PyObject *self, PyObject *args)
{
    PyObject *key, *if_version = NULL;
    uint64_t version = 0;
    int status;
    if (!PyArg_ParseTuple(args, "O|O:delete", &key, &if_version) ||
        read_version(if_version, &version) < 0)
        return NULL;
    const char *text = tnp_key(key, false);
    tn_store *store = text == NULL ? NULL : tnp_object_handle(self);
    if (store == NULL)
        return NULL;
    TNP_OBJECT_WAIT(self, status, tn_store_delete(store, text, version));
    if (status != 0)
        return raise_for_key(status, key);
    Py_RETURN_NONE;
}

static PyObject *set_pinned(PyObject *self, PyObject *args)
{
    PyObject *key;
    int pinned, status;
    if (!PyArg_ParseTuple(args, "Op:set_pinned", &key, &pinned))
        return NULL;
    const char *text = tnp_key(key, false);
    tn_store *store = text == NULL ? NULL : tnp_object_handle(self);
    if (store == NULL)
        return NULL;
    TNP_OBJECT_WAIT(self, status, tn_store_set_pinned(store, text, pinned != 0));
    if (status != 0)
        return raise_for_key(status, key);
    Py_RETURN_NONE;
}

static PyObject *set_kept(PyObject *self, PyObject *kept)
{
    int is_kept = PyObject_IsTrue(kept);
    tn_store *store = is_kept < 0 ? NULL : tnp_object_handle(self);
    if (store == NULL)
        return NULL;
    int status = tn_store_set_kept(store, is_kept != 0);
    if (status != 0)
        return tnp_raise(status);
    Py_RETURN_NONE;
}

static PyObject *wait_for_change(PyObject *self, PyObject *args)
{
    PyObject *prefix, *since, *timeout = Py_None;
    tn_deadline deadline;
    uint64_t from, version;
    if (!PyArg_ParseTuple(args, "OO|O:wait", &prefix, &since, &timeout) ||
        tnp_word(since, &from) < 0 || tnp_deadline(timeout, TN_NOW, &deadline) < 0)
        return NULL;
    const char *text = tnp_key(prefix, true);
    tn_store *store = text == NULL ? NULL : tnp_object_handle(self);
    if (store == NULL)
        return NULL;
    int status = tn_store_wait(store, text, from, TN_NOW, &version);
    if (status == TN_ERR_TIMED_OUT && deadline.ns != 0)
        TNP_OBJECT_WAIT(self, status, tn_store_wait(store, text, from, deadline, &version));
    return status != 0 ? tnp_raise(status) : PyLong_FromUnsignedLongLong(version);
}

/* ---- the type ---------------------------------------------------------------------------- */

/* The fields of tenon.StoreInfo, in their order. */
static PyObject *get_info(PyObject *self, PyObject *unused)
{
    tn_store_info info = {.struct_size = sizeof info};
    tn_store *store = tnp_object_handle(self);
    (void)unused;
    if (store == NULL)
        return NULL;
    int status = tn_store_get_info(store, &info);
    if (status != 0)
        return tnp_raise(status);
    const unsigned long long numbers[] = {
        info.budget_bytes, info.count, info.bytes,   info.version,   info.hits,
        info.misses,       info.puts,  info.deletes, info.evictions, info.expirations};
    PyObject *list = Py_BuildValue("[IN]", (unsigned)info.capacity,
                                   PyBool_FromLong((info.flags & TN_STORE_EVICT) != 0));
    for (size_t i = 0; list != NULL && i < TNP_COUNT(numbers); i++) {
        PyObject *number = PyLong_FromUnsignedLongLong(numbers[i]);
        if (number == NULL || PyList_Append(list, number) < 0)
            Py_CLEAR(list);
        Py_XDECREF(number);
    }
    PyObject *tuple = list == NULL ? NULL : PyList_AsTuple(list);
    Py_XDECREF(list);
    return tuple;
}

static PyGetSetDef store_attributes[] = {TNP_OBJECT_ID, {NULL, NULL, NULL, NULL, NULL}};

#define WITH_KEYWORDS(function) ((PyCFunction)(void (*)(void))(function))

static PyMethodDef store_methods[] = {
    {"open_or_create", WITH_KEYWORDS(open_or_create), METH_VARARGS | METH_KEYWORDS | METH_CLASS,
     "open_or_create($type, /, domain, name=None, *, capacity=0, budget_bytes=0, "
     "evict=False)\n--\n\n"
     "Open the store of this name, or make it. One that exists and differs from an argument "
     "that is not 0 is refused."},
    TNP_OBJECT_METHODS(store),
    {"put", WITH_KEYWORDS(put), METH_VARARGS | METH_KEYWORDS,
     "put($self, /, key, value, *, if_absent=False, if_version=None, lifetime=None, "
     "pinned=False, timeout=0)\n--\n\n"
     "Give a key a value, which is any object that can be pickled; returns its version."},
    {"put_parts", WITH_KEYWORDS(put_parts), METH_VARARGS | METH_KEYWORDS,
     "put_parts($self, /, key, parts, *, if_absent=False, lifetime=None, timeout=0)\n--\n\n"
     "Give a key a value of (bytes, tensors); returns its version."},
    {"get", get, METH_VARARGS,
     "get($self, key, missing=..., /)\n--\n\n"
     "The value of a key; KeyError, or `missing`, if it has none."},
    {"get_with_version", get_with_version, METH_O,
     "get_with_version($self, key, /)\n--\n\n"
     "(value, version)"},
    {"parts", parts, METH_O,
     "parts($self, key, /)\n--\n\n"
     "(bytes, tensors) of a value."},
    {"contains", contains, METH_O,
     "contains($self, key, /)\n--\n\n"
     "Whether a key has a value."},
    {"get_or_make", WITH_KEYWORDS(get_or_make), METH_VARARGS | METH_KEYWORDS,
     "get_or_make($self, /, key, make, *, timeout=None, lifetime=None, pinned=False)\n--\n\n"
     "The value of a key; if it has none, one process calls make() and puts the result."},
    {"parts_or_make", WITH_KEYWORDS(parts_or_make), METH_VARARGS | METH_KEYWORDS,
     "parts_or_make($self, /, key, make, *, timeout=None, lifetime=None, pinned=False)\n--\n\n"
     "The same with (bytes, tensors), which make() returns, too."},
    {"delete", remove_key, METH_VARARGS,
     "delete($self, key, if_version=None, /)\n--\n\n"
     "Remove a key and its value."},
    {"set_pinned", set_pinned, METH_VARARGS,
     "set_pinned($self, key, pinned, /)\n--\n\n"
     "Choose whether a value may be evicted."},
    {"set_kept", set_kept, METH_O,
     "set_kept($self, kept, /)\n--\n\n"
     "Choose whether tenond keeps the store while it has values."},
    {"entries", tnp_store_entries, METH_O,
     "entries($self, prefix, /)\n--\n\n"
     "(key, version, bytes, seconds left, tensors, pinned, pid of the maker) of each key."},
    {"count", tnp_store_count, METH_NOARGS,
     "count($self, /)\n--\n\n"
     "How many keys have a value."},
    {"wait", wait_for_change, METH_VARARGS,
     "wait($self, prefix, since, timeout=None, /)\n--\n\n"
     "Wait for a change after a version; returns the last version."},
    {"info", get_info, METH_NOARGS,
     "info($self, /)\n--\n\n"
     "How the store was made, and what it did."},
    {NULL, NULL, 0, NULL},
};

TNP_OBJECT_TYPE("Store", store, store_attributes, "A map from keys to values.");

int tnp_store_init(PyObject *module)
{
    if (PyType_Ready(&store_type) < 0)
        return -1;
    return tnp_add(module, "Store", (PyObject *)&store_type);
}
