/* SPDX-License-Identifier: Apache-2.0 */
/* synchronized: ctypes objects with a lock that each access acquires and releases. */
#include "guard.h"

typedef struct {
    PyObject_HEAD PyObject *obj;
    PyObject *lock; /* a Guard, or an object with acquire() and release() */
} synchronized;

static PyTypeObject synchronized_type;

/* Acquire the lock. @return the lock, a reference for release(); NULL: raised */
static PyObject *acquire(const synchronized *self)
{
    PyObject *lock = self->lock;
    if (lock == NULL || self->obj == NULL) {
        PyErr_SetString(
            PyExc_ValueError,
            "the synchronized object was not initialised: its _obj or _lock is missing");
        return NULL;
    }
    Py_INCREF(lock);
    if (tnp_any_lock_acquire(lock) < 0)
        Py_CLEAR(lock);
    return lock;
}

/*
 * Release the lock, and drop the reference. An exception that is set stays. -1: release() of
 * the lock raised
 */
static int release(PyObject *lock)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    int failed = tnp_any_lock_release(lock);
    Py_DECREF(lock);
    if (failed == 0) {
        PyErr_Restore(type, value, traceback);
        return 0;
    }
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
    return -1;
}

static PyObject *release_and_return(PyObject *lock, PyObject *result)
{
    if (release(lock) < 0)
        Py_CLEAR(result);
    return result;
}

static PyObject *get_item(PyObject *object, PyObject *key)
{
    const synchronized *self = (synchronized *)object;
    PyObject *lock = acquire(self);
    return lock == NULL ? NULL : release_and_return(lock, PyObject_GetItem(self->obj, key));
}

static int set_item(PyObject *object, PyObject *key, PyObject *value)
{
    const synchronized *self = (synchronized *)object;
    if (value == NULL)
        PyErr_SetString(PyExc_AttributeError, "__delitem__");
    PyObject *lock = value == NULL ? NULL : acquire(self);
    if (lock == NULL)
        return -1;
    int failed = PyObject_SetItem(self->obj, key, value);
    return release(lock) < 0 ? -1 : failed;
}

static Py_ssize_t length(PyObject *object)
{
    const synchronized *self = (synchronized *)object;
    if (self->obj != NULL)
        return PyObject_Size(self->obj);
    PyErr_SetString(
        PyExc_ValueError,
        "the synchronized object was not initialised: its _obj or _lock is missing");
    return -1;
}

static PyObject *iterate(PyObject *object) { return PySeqIter_New(object); }

/* The sequence iterator calls this; the index is never negative. */
static PyObject *get_at(PyObject *object, Py_ssize_t index)
{
    PyObject *key = PyLong_FromSsize_t(index);
    PyObject *item = key == NULL ? NULL : get_item(object, key);
    Py_XDECREF(key);
    return item;
}

static int traverse(PyObject *object, visitproc visit, void *arg)
{
    Py_VISIT(((synchronized *)object)->obj);
    Py_VISIT(((synchronized *)object)->lock);
    return 0;
}

static int clear(PyObject *object)
{
    Py_CLEAR(((synchronized *)object)->obj);
    Py_CLEAR(((synchronized *)object)->lock);
    return 0;
}

static void forget(PyObject *object)
{
    PyObject_GC_UnTrack(object);
    clear(object);
    Py_TYPE(object)->tp_free(object);
}

static PyMemberDef synchronized_members[] = {
    {"_obj", T_OBJECT_EX, offsetof(synchronized, obj), 0, "What is guarded."},
    {"_lock", T_OBJECT_EX, offsetof(synchronized, lock), 0, "What guards it."},
    {NULL, 0, 0, 0, NULL},
};

static PyTypeObject synchronized_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "tenon._core.Synchronized",
    .tp_doc = "An object with a lock around each access.",
    .tp_basicsize = sizeof(synchronized),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .tp_new = PyType_GenericNew,
    .tp_dealloc = forget,
    .tp_traverse = traverse,
    .tp_clear = clear,
    .tp_members = synchronized_members,
};

static PyMappingMethods array_mapping = {length, get_item, set_item};
static PySequenceMethods array_sequence = {.sq_length = length, .sq_item = get_at};

static PyTypeObject array_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "tenon._core.SynchronizedArray",
    .tp_doc = "An array with a lock around each access.",
    .tp_base = &synchronized_type,
    .tp_basicsize = sizeof(synchronized),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .tp_traverse = traverse,
    .tp_clear = clear,
    .tp_iter = iterate,
    .tp_as_mapping = &array_mapping,
    .tp_as_sequence = &array_sequence,
};

/* A descriptor for an attribute of the ctypes object, with the lock held around each access. */
typedef struct {
    PyObject_HEAD PyObject *name;
} attribute;

static PyObject *make_attribute(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    PyObject *name;
    if (keywords != NULL && PyDict_GET_SIZE(keywords) > 0) {
        PyErr_SetString(PyExc_TypeError, "SynchronizedAttribute takes a name only");
        return NULL;
    }
    if (!PyArg_ParseTuple(args, "U", &name))
        return NULL;
    attribute *self = (attribute *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    Py_INCREF(name);
    self->name = name;
    PyUnicode_InternInPlace(&self->name);
    return (PyObject *)self;
}

static void forget_attribute(PyObject *self)
{
    Py_XDECREF(((attribute *)self)->name);
    Py_TYPE(self)->tp_free(self);
}

static const synchronized *owner_of(PyObject *object)
{
    if (PyObject_TypeCheck(object, &synchronized_type))
        return (synchronized *)object;
    PyErr_Format(PyExc_TypeError, "a synchronized object is needed, not %.200s",
                 Py_TYPE(object)->tp_name);
    return NULL;
}

static PyObject *get_attribute(PyObject *self, PyObject *object, PyObject *type)
{
    (void)type;
    if (object == NULL) {
        Py_INCREF(self);
        return self;
    }
    const synchronized *owner = owner_of(object);
    PyObject *lock = owner == NULL ? NULL : acquire(owner);
    if (lock == NULL)
        return NULL;
    return release_and_return(lock, PyObject_GetAttr(owner->obj, ((attribute *)self)->name));
}

static int set_attribute(PyObject *self, PyObject *object, PyObject *value)
{
    const synchronized *owner = owner_of(object);
    if (owner != NULL && value == NULL)
        PyErr_Format(PyExc_AttributeError, "property %R of '%.200s' object has no deleter",
                     ((attribute *)self)->name, Py_TYPE(object)->tp_name);
    PyObject *lock = owner == NULL || value == NULL ? NULL : acquire(owner);
    if (lock == NULL)
        return -1;
    int failed = PyObject_SetAttr(owner->obj, ((attribute *)self)->name, value);
    return release(lock) < 0 ? -1 : failed;
}

static PyTypeObject attribute_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "tenon._core.SynchronizedAttribute",
    .tp_doc = "An attribute of what a Synchronized guards.",
    .tp_basicsize = sizeof(attribute),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = make_attribute,
    .tp_dealloc = forget_attribute,
    .tp_descr_get = get_attribute,
    .tp_descr_set = set_attribute,
};

int tnp_synchronized_init(PyObject *module)
{
    static const struct {
        const char *name;
        PyTypeObject *type;
    } types[] = {{"Synchronized", &synchronized_type},
                 {"SynchronizedArray", &array_type},
                 {"SynchronizedAttribute", &attribute_type}};
    for (size_t i = 0; i < TNP_COUNT(types); i++)
        if (PyType_Ready(types[i].type) < 0 ||
            tnp_add(module, types[i].name, (PyObject *)types[i].type) < 0)
            return -1;
    return 0;
}
