/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Guard: a lock or a semaphore as the standard library's behave, over one of sync.c: who of this
 * process's threads has it, and how often. Synchronized: an object of ctypes behind a guard.
 *
 * The GIL guards what stands beside the core. A forked child has none of its parent's threads:
 * what it inherits of that counts for nothing.
 */
#include "guard.h"

/* ---- who has it -------------------------------------------------------------------------- */

/* A byte of each thread's own, whose address is had without a call. */
static _Thread_local char here __attribute__((tls_model("initial-exec")));
static uintptr_t this_thread(void) { return (uintptr_t)&here; }

bool tnp_guard_is_mine(const tnp_guard *guard)
{
    return guard->count > 0 && guard->forks == tnp_forks && guard->holder == this_thread();
}

static void note_holder(tnp_guard *guard, unsigned long count)
{
    guard->holder = this_thread();
    guard->count = count;
    guard->forks = tnp_forks;
}

/* ---- acquire and release ----------------------------------------------------------------- */

static int acquire_core(const tnp_guard *guard, void *handle, uint64_t deadline_ns)
{
    if (guard->kind == TNP_GUARD_RLOCK)
        return tn_lock_acquire(handle, deadline_ns);
    return tn_semaphore_acquire(handle, deadline_ns);
}

/*
 * The wait goes on when somebody died: a forked child has what its parent has, so who dies may
 * never have known of what is waited for; and a thread of this process may end the wait.
 */
static int wait_for_core(tnp_guard *guard, uint64_t deadline_ns)
{
    int status;
    do {
        void *handle = tnp_object_of(guard->core);
        if (handle == NULL)
            return -1;
        TNP_OBJECT_WAIT(guard->core, status, acquire_core(guard, handle, deadline_ns));
    } while (status == TN_ERR_PEER_DIED);
    return status;
}

static void *core_of(const tnp_guard *guard)
{
    if (guard->core != NULL)
        return tnp_object_here(guard->core);
    PyErr_SetString(PyExc_ValueError, "a lock or semaphore that was not made");
    return NULL;
}

int tnp_guard_acquire(tnp_guard *guard, uint64_t deadline_ns)
{
    if (guard->kind == TNP_GUARD_RLOCK && tnp_guard_is_mine(guard)) {
        guard->count++;
        return 1;
    }
    void *handle = core_of(guard);
    if (handle == NULL)
        return -1;
    int status = acquire_core(guard, handle, 0); /* most find it free */
    if (status == TN_ERR_TIMED_OUT || status == TN_ERR_PEER_DIED) {
        if (deadline_ns == 0)
            return 0;
        status = wait_for_core(guard, deadline_ns);
    }
    if (status >= 0) {
        note_holder(guard, 1);
        return 1;
    }
    if (status == TN_ERR_TIMED_OUT && !PyErr_Occurred())
        return 0;
    tnp_raise(status);
    return -1;
}

static int wake(tnp_guard *guard)
{
    PyObject *waking = guard->waking;
    if (waking == NULL)
        return 0;
    guard->waking = NULL;
    int failed = tnp_condition_broadcast(waking);
    Py_DECREF(waking);
    return failed;
}

int tnp_guard_wake_later(tnp_guard *guard, PyObject *core)
{
    bool is_later = guard->kind == TNP_GUARD_RLOCK && guard->waking == NULL;
    if (!is_later && guard->waking != core)
        return tnp_condition_broadcast(core);
    if (is_later) {
        Py_INCREF(core);
        guard->waking = core;
    }
    return 0;
}

static int release_rlock(tnp_guard *guard)
{
    if (!tnp_guard_is_mine(guard)) {
        PyErr_SetString(PyExc_AssertionError,
                        "attempt to release recursive lock not owned by thread");
        return -1;
    }
    if (--guard->count > 0)
        return 0;
    void *handle = core_of(guard);
    int status = handle == NULL ? 0 : tn_lock_release(handle);
    if (handle != NULL && status == 0)
        return wake(guard);
    if (status != 0)
        tnp_raise(status);
    return -1;
}

int tnp_guard_release(tnp_guard *guard)
{
    if (guard->kind == TNP_GUARD_RLOCK)
        return release_rlock(guard);
    void *handle = core_of(guard);
    if (handle == NULL)
        return -1;
    int status = tn_semaphore_release(handle);
    if (status == 0) {
        guard->count = 0; /* no other thread of ours can have noted itself: we have the GIL */
        return 0;
    }
    if (status == TN_ERR_INVALID && guard->kind != TNP_GUARD_SIGNALS)
        PyErr_SetString(PyExc_ValueError, "semaphore or lock released too many times");
    else
        tnp_raise(status);
    return -1;
}

int tnp_guard_release_all(tnp_guard *guard, unsigned long *ret_count)
{
    *ret_count = guard->count;
    guard->count = 1;
    return tnp_guard_release(guard);
}

int tnp_guard_acquire_again(tnp_guard *guard, unsigned long count)
{
    int got = tnp_guard_acquire(guard, TN_FOREVER);
    if (got > 0)
        guard->count = count;
    return got < 0 ? -1 : 0;
}

/* ---- methods ----------------------------------------------------------------------------- */

/* acquire(block=True, timeout=None) */
static int read_acquire(PyObject *const *args, Py_ssize_t nargs, PyObject *names,
                        uint64_t *ret_deadline_ns)
{
    static const char *const expected[] = {"block", "timeout"};
    PyObject *given[2] = {NULL, NULL};
    Py_ssize_t keywords = names == NULL ? 0 : PyTuple_GET_SIZE(names);
    if (nargs + keywords > 2) {
        PyErr_Format(PyExc_TypeError, "acquire() takes at most 2 arguments (%zd given)",
                     nargs + keywords);
        return -1;
    }
    for (Py_ssize_t i = 0; i < nargs; i++)
        given[i] = args[i];
    for (Py_ssize_t i = 0; i < keywords; i++) {
        PyObject *name = PyTuple_GET_ITEM(names, i);
        size_t at = PyUnicode_CompareWithASCIIString(name, expected[0]) == 0 ? 0 : 1;
        if (given[at] != NULL ||
            (at == 1 && PyUnicode_CompareWithASCIIString(name, expected[1]) != 0)) {
            PyErr_Format(PyExc_TypeError, "acquire() got %R twice, or knows no such argument",
                         name);
            return -1;
        }
        given[at] = args[nargs + i];
    }
    int blocks = given[0] == NULL ? 1 : PyObject_IsTrue(given[0]);
    if (blocks < 0 || tnp_deadline(given[1], TN_FOREVER, ret_deadline_ns) < 0)
        return -1;
    if (!blocks)
        *ret_deadline_ns = 0;
    return 0;
}

static PyObject *acquire(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                         PyObject *names)
{
    uint64_t deadline_ns = TN_FOREVER;
    if ((nargs > 0 || names != NULL) && read_acquire(args, nargs, names, &deadline_ns) < 0)
        return NULL;
    int got = tnp_guard_acquire((tnp_guard *)self, deadline_ns);
    if (got < 0)
        return NULL;
    if (got == 0)
        Py_RETURN_FALSE;
    Py_RETURN_TRUE;
}

static PyObject *release(PyObject *self, PyObject *unused)
{
    (void)unused;
    if (tnp_guard_release((tnp_guard *)self) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *enter(PyObject *self, PyObject *unused)
{
    (void)unused;
    if (tnp_guard_acquire((tnp_guard *)self, TN_FOREVER) < 0)
        return NULL;
    Py_RETURN_TRUE;
}

static PyObject *leave(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    (void)args, (void)nargs;
    return release(self, NULL);
}

static PyObject *is_mine(PyObject *self, PyObject *unused)
{
    (void)unused;
    return PyBool_FromLong(tnp_guard_is_mine((tnp_guard *)self));
}

static PyObject *count(PyObject *self, PyObject *unused)
{
    const tnp_guard *guard = (tnp_guard *)self;
    (void)unused;
    return PyLong_FromUnsignedLong(guard->forks == tnp_forks ? guard->count : 0);
}

static PyObject *release_save(PyObject *self, PyObject *unused)
{
    unsigned long count;
    (void)unused;
    if (tnp_guard_release_all((tnp_guard *)self, &count) < 0)
        return NULL;
    return PyLong_FromUnsignedLong(count);
}

static PyObject *acquire_restore(PyObject *self, PyObject *saved)
{
    unsigned long count = PyLong_AsUnsignedLong(saved);
    if (PyErr_Occurred() || tnp_guard_acquire_again((tnp_guard *)self, count) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *begin(PyObject *self, PyObject *args)
{
    tnp_guard *guard = (tnp_guard *)self;
    PyObject *core;
    int kind;
    if (!PyArg_ParseTuple(args, "Oi", &core, &kind))
        return NULL;
    bool fits = kind == TNP_GUARD_RLOCK ? tnp_is_lock(core) : tnp_is_semaphore(core);
    if (!fits || kind < TNP_GUARD_SIGNALS || kind > TNP_GUARD_RLOCK || guard->core != NULL) {
        PyErr_SetString(PyExc_TypeError, "a guard begins once, with a core of its kind");
        return NULL;
    }
    Py_INCREF(core);
    guard->core = core;
    guard->kind = kind;
    Py_RETURN_NONE;
}

static void dealloc(PyObject *self)
{
    if (wake((tnp_guard *)self) < 0)
        PyErr_Clear(); /* nobody can wait there any more */
    Py_XDECREF(((tnp_guard *)self)->core);
    Py_TYPE(self)->tp_free(self);
}

#define FASTCALL(function) ((PyCFunction)(void (*)(void))(function))

static PyMethodDef methods[] = {
    {"_begin", begin, METH_VARARGS,
     "_begin($self, core, kind, /)\n--\n\n"
     "Begin with a core; kind: 0 signals, 1 permits, 2 a lock, 3 a recursive lock."},
    {"acquire", FASTCALL(acquire), METH_FASTCALL | METH_KEYWORDS,
     "acquire($self, /, block=True, timeout=None)\n--\n\n"
     "Take it; False: it could not be had in time."},
    {"release", release, METH_NOARGS,
     "release($self, /)\n--\n\n"
     "Give it back."},
    {"__enter__", enter, METH_NOARGS,
     "__enter__($self, /)\n--\n\n"
     "Take it."},
    {"__exit__", FASTCALL(leave), METH_FASTCALL,
     "__exit__($self, /, *exception)\n--\n\n"
     "Give it back."},
    {"_is_mine", is_mine, METH_NOARGS,
     "_is_mine($self, /)\n--\n\n"
     "Whether the calling thread took it last, and has it."},
    {"_count", count, METH_NOARGS,
     "_count($self, /)\n--\n\n"
     "How often a thread of this process has it."},
    {"_release_save", release_save, METH_NOARGS,
     "_release_save($self, /)\n--\n\n"
     "Give it back, however often it was taken; returns what _acquire_restore() takes."},
    {"_acquire_restore", acquire_restore, METH_O,
     "_acquire_restore($self, saved, /)\n--\n\n"
     "Take it as often as before _release_save()."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef members[] = {
    {"_core", T_OBJECT, offsetof(tnp_guard, core), READONLY, "What it is over."},
    {NULL, 0, 0, 0, NULL},
};

PyTypeObject tnp_guard_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "tenon._core.Guard",
    .tp_doc = "A lock or semaphore, as the standard library's behave.",
    .tp_basicsize = sizeof(tnp_guard),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .tp_new = PyType_GenericNew,
    .tp_dealloc = dealloc,
    .tp_methods = methods,
    .tp_members = members,
};

/* ---- what a guard is taken for ----------------------------------------------------------- */

typedef struct {
    PyObject_HEAD PyObject *obj;
    PyObject *lock; /* a guard, or anything with acquire() and release() */
} synchronized;

static PyTypeObject synchronized_type;
static PyObject *acquire_name, *release_name;

static int call(PyObject *lock, PyObject *name)
{
    PyObject *result = PyObject_CallMethodNoArgs(lock, name);
    Py_XDECREF(result);
    return result == NULL ? -1 : 0;
}

/* Borrowed lock, for go_out(). NULL: raised. */
static PyObject *go_in(const synchronized *self)
{
    PyObject *lock = self->lock;
    if (lock == NULL || self->obj == NULL) {
        PyErr_SetString(PyExc_ValueError, "a synchronized object that was not made");
        return NULL;
    }
    Py_INCREF(lock);
    int failed = PyObject_TypeCheck(lock, &tnp_guard_type)
                     ? tnp_guard_acquire((tnp_guard *)lock, TN_FOREVER) < 0
                     : call(lock, acquire_name) < 0;
    if (failed)
        Py_CLEAR(lock);
    return lock;
}

/* What was raised meanwhile stays raised. -1: releasing it raised */
static int go_out(PyObject *lock)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    int failed = PyObject_TypeCheck(lock, &tnp_guard_type)
                     ? tnp_guard_release((tnp_guard *)lock) < 0
                     : call(lock, release_name) < 0;
    Py_DECREF(lock);
    if (!failed) {
        PyErr_Restore(type, value, traceback);
        return 0;
    }
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
    return -1;
}

static PyObject *go_out_with(PyObject *lock, PyObject *result)
{
    if (go_out(lock) < 0)
        Py_CLEAR(result);
    return result;
}

static PyObject *get_item(PyObject *object, PyObject *key)
{
    const synchronized *self = (synchronized *)object;
    PyObject *lock = go_in(self);
    return lock == NULL ? NULL : go_out_with(lock, PyObject_GetItem(self->obj, key));
}

static int set_item(PyObject *object, PyObject *key, PyObject *value)
{
    const synchronized *self = (synchronized *)object;
    PyObject *lock = go_in(self);
    if (lock == NULL)
        return -1;
    int failed =
        value == NULL ? PyObject_DelItem(self->obj, key) : PyObject_SetItem(self->obj, key, value);
    return go_out(lock) < 0 ? -1 : failed;
}

static Py_ssize_t length(PyObject *object)
{
    const synchronized *self = (synchronized *)object;
    if (self->obj != NULL)
        return PyObject_Size(self->obj);
    PyErr_SetString(PyExc_ValueError, "a synchronized object that was not made");
    return -1;
}

static PyObject *iterate(PyObject *object) { return PySeqIter_New(object); }

/* Sequences of Python's iterate by it; an index is never negative here. */
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

/* An attribute of the object, as one of what guards it. */
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
    PyObject *lock = owner == NULL ? NULL : go_in(owner);
    if (lock == NULL)
        return NULL;
    return go_out_with(lock, PyObject_GetAttr(owner->obj, ((attribute *)self)->name));
}

static int set_attribute(PyObject *self, PyObject *object, PyObject *value)
{
    const synchronized *owner = owner_of(object);
    PyObject *lock = owner == NULL ? NULL : go_in(owner);
    if (lock == NULL)
        return -1;
    int failed = PyObject_SetAttr(owner->obj, ((attribute *)self)->name, value);
    return go_out(lock) < 0 ? -1 : failed;
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

int tnp_guard_init(PyObject *module)
{
    static const struct {
        const char *name;
        PyTypeObject *type;
    } types[] = {{"Guard", &tnp_guard_type},
                 {"Synchronized", &synchronized_type},
                 {"SynchronizedArray", &array_type},
                 {"SynchronizedAttribute", &attribute_type}};
    acquire_name = PyUnicode_InternFromString("acquire");
    release_name = PyUnicode_InternFromString("release");
    if (acquire_name == NULL || release_name == NULL)
        return -1;
    for (size_t i = 0; i < TNP_COUNT(types); i++)
        if (PyType_Ready(types[i].type) < 0 ||
            tnp_add(module, types[i].name, (PyObject *)types[i].type) < 0)
            return -1;
    return 0;
}
