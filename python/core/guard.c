/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Guard: a lock or a semaphore that behaves as the standard library's, over a lock or a
 * semaphore of sync.c. It knows which thread of this process holds it, and how often.
 *
 * The GIL protects the fields beside the core. A forked child has none of its parent's threads,
 * so it ignores the holder that it inherited.
 */
#include "guard.h"

#include <time.h>

#define CHECK_NS UINT64_C(100000000)

enum { SIGNALS, PERMITS, LOCK, RLOCK };

/* ---- which thread has it ----------------------------------------------------------------- */

/*
 * A number that no other thread of this process has or had. It costs no call into the system.
 */
static uint64_t this_thread(void)
{
    static _Thread_local uint64_t number __attribute__((tls_model("initial-exec")));
    static _Atomic uint64_t last;
    if (number == 0)
        number = atomic_fetch_add(&last, 1) + 1;
    return number;
}

bool tnp_guard_is_mine(const tnp_guard *guard)
{
    return guard->count > 0 && guard->forks == tnp_forks && guard->holder == this_thread();
}

/*
 * Note this thread as the holder. A lock that it acquired was free; of a semaphore, this
 * process may hold several permits.
 */
static void note_holder(tnp_guard *guard)
{
    bool has_others = guard->kind < LOCK && guard->forks == tnp_forks;
    guard->holder = this_thread();
    guard->count = has_others ? guard->count + 1 : 1;
    guard->forks = tnp_forks;
}

/* ---- acquire and release ----------------------------------------------------------------- */

static int acquire_core(const tnp_guard *guard, void *handle, tn_deadline deadline)
{
    if (guard->kind == RLOCK)
        return tn_lock_acquire(handle, deadline);
    return tn_semaphore_acquire(handle, deadline);
}

/*
 * The wait goes on after PEER_DIED. The dead process may not have used the lock at all, since a
 * forked child inherits all that its parent has; and another thread of this process may still
 * release it.
 */
static int wait_for_core(tnp_guard *guard, tn_deadline deadline)
{
    int status;
    do {
        void *handle = tnp_object_handle(guard->core);
        if (handle == NULL)
            return -1;
        TNP_OBJECT_WAIT(guard->core, status, acquire_core(guard, handle, deadline));
    } while (status == TN_ERR_PEER_DIED);
    return status;
}

static int sleep_until(tn_deadline deadline)
{
    struct timespec until = {.tv_sec = (time_t)(deadline.ns / 1000000000),
                             .tv_nsec = (long)(deadline.ns % 1000000000)};
    int error = clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
    return error == 0 ? TN_ERR_TIMED_OUT : TN_ERR_INTERRUPTED;
}

/*
 * A thread that owned a recursive lock has ended without releasing it. The lock comes back when
 * its process ends. Until then a waiter without a deadline gets TN_ERR_CORRUPT, and a waiter
 * with a deadline times out.
 */
static int wait_for_owner(tnp_guard *guard, tn_deadline deadline)
{
    int status = wait_for_core(guard, deadline);
    while (status == TN_ERR_CORRUPT && deadline.ns != TN_FOREVER.ns) {
        void *handle = tnp_object_handle(guard->core);
        if (handle == NULL)
            return -1;
        if ((status = acquire_core(guard, handle, TN_NOW)) != TN_ERR_TIMED_OUT)
            return status; /* the lock has come back, or its memory is corrupt */
        tn_deadline next_check = tn_deadline_after(CHECK_NS);
        bool is_last = deadline.ns <= next_check.ns;
        TNP_OBJECT_WAIT(guard->core, status, sleep_until(is_last ? deadline : next_check));
        if (PyErr_CheckSignals() < 0)
            return TN_ERR_INTERRUPTED;
        if (status == TN_ERR_TIMED_OUT && is_last)
            return status;
        status = wait_for_core(guard, deadline);
    }
    return status;
}

static void *core_of(const tnp_guard *guard)
{
    if (guard->core != NULL)
        return tnp_object_handle_inline(guard->core);
    PyErr_SetString(
        PyExc_ValueError,
        "the lock or semaphore was not initialised: its class did not call _begin()");
    return NULL;
}

int tnp_guard_acquire(tnp_guard *guard, tn_deadline deadline)
{
    if (guard->kind == RLOCK && tnp_guard_is_mine(guard)) {
        guard->count++;
        return 1;
    }
    void *handle = core_of(guard);
    if (handle == NULL)
        return -1;
    int status = acquire_core(guard, handle, TN_NOW); /* most calls find it free */
    if (status == TN_ERR_TIMED_OUT || status == TN_ERR_PEER_DIED) {
        if (deadline.ns == 0)
            return 0;
        status = wait_for_owner(guard, deadline);
    }
    if (status >= 0) {
        note_holder(guard);
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

int tnp_guard_wake_on_release(tnp_guard *guard, PyObject *core)
{
    bool is_later = guard->kind == RLOCK && guard->waking == NULL;
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
        if (core_of(guard) != NULL) /* else core_of() has raised: a closed core is why a
                                       condition wait could not acquire it again */
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
    if (guard->kind == RLOCK)
        return release_rlock(guard);
    void *handle = core_of(guard);
    if (handle == NULL)
        return -1;
    bool is_most = guard->kind == SIGNALS && guard->most < INT32_MAX &&
                   tn_semaphore_count(handle) >= (uint32_t)guard->most;
    int status = is_most ? TN_ERR_INVALID : tn_semaphore_release(handle);
    if (status == 0) {
        /*
         * No other thread of this process can have noted itself meanwhile: this one holds the
         * GIL.
         */
        guard->count -= guard->count > 0;
        return 0;
    }
    if (status == TN_ERR_INVALID)
        PyErr_SetString(PyExc_ValueError, "semaphore or lock released too many times");
    else
        tnp_raise(status);
    return -1;
}

int tnp_guard_release_all(tnp_guard *guard, unsigned long *ret_count)
{
    int failed = 0;
    *ret_count = guard->count;
    if (guard->kind == RLOCK)
        guard->count = 1;
    for (unsigned long count = guard->count; count > 0 && failed == 0; count--)
        failed = tnp_guard_release(guard);
    return failed;
}

int tnp_guard_acquire_again(tnp_guard *guard, unsigned long count)
{
    unsigned long times = guard->kind == RLOCK ? 1 : count;
    int got = 1;
    for (; times > 0 && got > 0; times--)
        got = tnp_guard_acquire(guard, TN_FOREVER);
    if (got > 0 && guard->kind == RLOCK)
        guard->count = count;
    return got < 0 ? -1 : 0;
}

/* ---- methods ----------------------------------------------------------------------------- */

/* Python 3.12 and newer take any object as `block`; older versions take an int. -1: raised */
static int is_true(PyObject *block)
{
#if PY_VERSION_HEX >= 0x030c0000
    return PyObject_IsTrue(block);
#else
    long number = PyLong_AsLong(block);
    return number == -1 && PyErr_Occurred() ? -1 : number != 0;
#endif
}

/* Read the arguments of acquire(block=True, timeout=None). -1: raised */
static int read_acquire(PyObject *const *args, Py_ssize_t nargs, PyObject *names,
                        tn_deadline *ret_deadline)
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
    int blocks = given[0] == NULL ? 1 : is_true(given[0]);
    if (blocks < 0 || tnp_deadline(given[1], TN_FOREVER, ret_deadline) < 0)
        return -1;
    if (!blocks)
        *ret_deadline = TN_NOW;
    return 0;
}

static PyObject *acquire(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                         PyObject *names)
{
    tn_deadline deadline = TN_FOREVER;
    if ((nargs > 0 || names != NULL) && read_acquire(args, nargs, names, &deadline) < 0)
        return NULL;
    int got = tnp_guard_acquire((tnp_guard *)self, deadline);
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

static PyObject *begin(PyObject *self, PyObject *args)
{
    tnp_guard *guard = (tnp_guard *)self;
    PyObject *core;
    int kind, most;
    if (!PyArg_ParseTuple(args, "Oii", &core, &kind, &most))
        return NULL;
    bool fits = kind == RLOCK ? tnp_is_lock(core) : tnp_is_semaphore(core);
    if (!fits || kind < SIGNALS || kind > RLOCK || guard->core != NULL) {
        PyErr_SetString(PyExc_TypeError, "_begin() of a guard needs a lock or a semaphore of "
                                         "its kind, and may be called once");
        return NULL;
    }
    Py_INCREF(core);
    guard->core = core;
    guard->kind = kind;
    guard->most = most;
    Py_RETURN_NONE;
}

static void dealloc(PyObject *self)
{
    if (wake((tnp_guard *)self) < 0)
        PyErr_Clear(); /* no waiter can be left */
    Py_XDECREF(((tnp_guard *)self)->core);
    Py_TYPE(self)->tp_free(self);
}

#define FASTCALL(function) ((PyCFunction)(void (*)(void))(function))

static PyMethodDef methods[] = {
    {"_begin", begin, METH_VARARGS,
     "_begin($self, core, kind, maxvalue, /)\n--\n\n"
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
    {NULL, NULL, 0, NULL},
};

static PyMemberDef members[] = {
    {"_core", T_OBJECT, offsetof(tnp_guard, core), READONLY, "What it is over."},
    {"_guard_kind", T_INT, offsetof(tnp_guard, kind), READONLY, "As _begin() was told."},
    {"_maxvalue", T_INT, offsetof(tnp_guard, most), READONLY, "As _begin() was told."},
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

int tnp_guard_init(PyObject *module)
{
    if (PyType_Ready(&tnp_guard_type) < 0)
        return -1;
    return tnp_add(module, "Guard", (PyObject *)&tnp_guard_type);
}
