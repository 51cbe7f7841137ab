/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GuardCondition: a condition over a lock that behaves as the standard library's: notify(n)
 * wakes n threads.
 *
 * Nouns: the lock, which may be any lock; the gate, a lock of the condition's own; the table of
 * the waiting threads, in shared memory (turns.c).
 *
 * A waiter acquires the gate, takes a row in the table, and only then releases the lock. It
 * sleeps at the core, which releases the gate. A notifier acquires the gate too, so no
 * notification falls between these steps.
 *
 * C1. A row is free, or one word of it says the ticket of its thread and whether a notifier has
 * told the thread to wake up.
 *
 * C2. A notifier first marks rows and then wakes all sleepers. If the lock is a recursive
 * Guard, the wake-up comes when the notifier releases the lock, which the waiters need. If the
 * notifier is killed in between, no wake-up comes, so a sleeper checks its row every CHECK_NS.
 *
 * Death: a dead waiter leaves a row that notifiers skip; a notification that it had received is
 * lost. If the owner of the gate dies, the next thread acquires the gate, and each row is valid
 * (C1).
 */
#include "guard.h"
#include "turns.h"

#include <math.h>

#define CHECK_NS UINT64_C(500000000)

typedef struct {
    PyObject_HEAD PyObject *lock;
    PyObject *gate, *core; /* a Lock and a Condition of sync.c; NULL: _begin() was not called */
    Py_buffer memory;      /* of the table; obj NULL: there is none */
    tnp_turns turns;       /* in that memory */
} condition;

static tn_domain *domain_of(const condition *self)
{
    return tnp_domain_of(((tnp_object *)self->core)->domain);
}

/* Tell up to `most` waiters to wake up. -1: raised */
static int tell(const condition *self, long long most)
{
    const tn_domain *domain = domain_of(self);
    int told = domain == NULL ? -1 : tnp_turns_tell(&self->turns, domain, most);
    return told > 0 ? tnp_any_lock_wake_on_release(self->lock,
                                                   self->core) /* after marking rows (C2) */
                    : told;
}

/* ---- wait and notify --------------------------------------------------------------------- */

static const condition *check_begun(PyObject *object)
{
    const condition *self = (condition *)object;
    if (self->core != NULL)
        return self;
    PyErr_SetString(PyExc_ValueError,
                    "the condition was not initialised: its class did not call _begin()");
    return NULL;
}

/* @return false: this thread does not own the lock; raised */
static bool is_mine(const condition *self, const char *otherwise)
{
    int is = tnp_any_lock_is_mine(self->lock);
    if (is == 0)
        PyErr_SetString(PyExc_AssertionError, otherwise);
    return is > 0;
}

/*
 * Sleep until the row says so, or until the deadline. pre: this thread holds the gate, which it
 * holds again afterwards. -1: raised
 */
static int sleep_until_told(const condition *self, const tnp_turn *turn, tn_deadline deadline)
{
    int status = deadline.ns == 0 ? TN_ERR_TIMED_OUT : 0;
    while (status == 0 && !tnp_turn_is_told(turn)) {
        tn_deadline next_check =
            tn_deadline_after(CHECK_NS); /* a notifier may have died (C2) */
        bool is_last = deadline.ns <= next_check.ns;
        if (tnp_condition_wait(self->core, self->gate, is_last ? deadline : next_check,
                               &status) < 0)
            return -1;
        if (status == TN_ERR_PEER_DIED || (status == TN_ERR_TIMED_OUT && !is_last))
            status = 0; /* a thread of this process may still notify */
    }
    if (status != 0 && status != TN_ERR_TIMED_OUT)
        tnp_raise(status);
    return status != 0 && status != TN_ERR_TIMED_OUT ? -1 : 0;
}

/*
 * Call `next` even if an exception is set. The earlier exception stays, unless `next` raises.
 * @return -1: raised
 */
static int run_after(int failed, int (*next)(const condition *self, unsigned long count),
                     const condition *self, unsigned long count)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    if (next(self, count) == 0) {
        PyErr_Restore(type, value, traceback);
        return failed;
    }
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
    return -1;
}

static int leave_gate(const condition *self, unsigned long unused)
{
    (void)unused;
    return tnp_lock_release(self->gate);
}

static int acquire_again(const condition *self, unsigned long count)
{
    return tnp_any_lock_acquire_again(self->lock, count);
}

static PyObject *wait(PyObject *object, PyObject *const *args, Py_ssize_t nargs,
                      PyObject *names)
{
    const condition *self = check_begun(object);
    tn_deadline deadline;
    unsigned long count;
    if (self == NULL || tnp_timeout(args, nargs, names, 0, &deadline) < 0)
        return NULL;
    if (!is_mine(self, "must acquire() condition before using wait()"))
        return NULL;
    if (tnp_lock_acquire(self->gate) < 0)
        return NULL;
    const tn_domain *domain = domain_of(self);
    tnp_turn *turn = domain == NULL ? NULL : tnp_turns_enter(&self->turns, domain);
    if (turn == NULL || tnp_any_lock_release_all(self->lock, &count) < 0) {
        if (turn != NULL)
            (void)tnp_turn_leave(turn);
        run_after(-1, leave_gate, self, 0);
        return NULL;
    }
    int failed = sleep_until_told(self, turn, deadline);
    bool was_told = tnp_turn_leave(turn);
    failed = run_after(failed, leave_gate, self, 0);
    failed = run_after(failed, acquire_again, self, count);
    return failed < 0 ? NULL : PyBool_FromLong(was_told);
}

static PyObject *notify_some(PyObject *object, long long most)
{
    const condition *self = check_begun(object);
    if (self == NULL)
        return NULL;
    if (!is_mine(self, "lock is not owned"))
        return NULL;
    if (tnp_lock_acquire(self->gate) < 0 ||
        run_after(tell(self, most), leave_gate, self, 0) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *notify(PyObject *self, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"n", NULL};
    PyObject *given = NULL;
    double most = 1;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "|O", names, &given))
        return NULL;
    if (given != NULL)
        most = PyFloat_AsDouble(given);
    if (most == -1.0 && PyErr_Occurred()) {
        if (!PyErr_ExceptionMatches(PyExc_OverflowError))
            return NULL;
        PyErr_Clear();
        most = (double)INT64_MAX;
    }
    bool is_all = most > (double)INT32_MAX;
    return notify_some(self, is_all ? INT64_MAX : most > 0 ? (long long)ceil(most) : 0);
}

static PyObject *notify_all(PyObject *self, PyObject *unused)
{
    (void)unused;
    return notify_some(self, INT64_MAX);
}

/* It does not hold the gate, so the number may change at once. */
static PyObject *count_waiting(PyObject *object, PyObject *unused)
{
    const condition *self = check_begun(object);
    const tn_domain *domain = self == NULL ? NULL : domain_of(self);
    long count = domain == NULL ? -1 : tnp_turns_count(&self->turns, domain);
    (void)unused;
    return count < 0 ? NULL : PyLong_FromLong(count);
}

static PyObject *enter(PyObject *object, PyObject *unused)
{
    const condition *self = check_begun(object);
    (void)unused;
    if (self == NULL || tnp_any_lock_acquire(self->lock) < 0)
        return NULL;
    Py_RETURN_TRUE;
}

static PyObject *leave(PyObject *object, PyObject *const *args, Py_ssize_t nargs)
{
    const condition *self = check_begun(object);
    (void)args, (void)nargs;
    if (self == NULL || tnp_any_lock_release(self->lock) < 0)
        return NULL;
    Py_RETURN_NONE;
}

/* ---- beginning and end ------------------------------------------------------------------- */

static PyObject *begin(PyObject *object, PyObject *args)
{
    condition *self = (condition *)object;
    PyObject *lock, *gate, *core, *tensor;
    if (!PyArg_ParseTuple(args, "OOOO", &lock, &gate, &core, &tensor))
        return NULL;
    if (self->core != NULL || self->memory.obj != NULL || !tnp_is_lock(gate) ||
        !tnp_is_condition(core)) {
        PyErr_SetString(PyExc_TypeError, "_begin() of a condition needs a lock, a "
                                         "tenon._core.Lock and a tenon._core.Condition, and "
                                         "may be called once");
        return NULL;
    }
    if (PyObject_GetBuffer(tensor, &self->memory, PyBUF_WRITABLE) < 0)
        return NULL;
    if (!tnp_turns_init(&self->turns, &self->memory)) {
        PyBuffer_Release(&self->memory);
        PyErr_SetString(PyExc_ValueError,
                        "the buffer for the table of waiting threads has no room for one row");
        return NULL;
    }
    Py_INCREF(lock);
    Py_INCREF(gate);
    Py_INCREF(core);
    self->lock = lock;
    self->gate = gate;
    self->core = core;
    Py_RETURN_NONE;
}

/* The lock may be an object that refers to the condition. */
static int traverse(PyObject *object, visitproc visit, void *arg)
{
    Py_VISIT(((condition *)object)->lock);
    return 0;
}

static void dealloc(PyObject *object)
{
    condition *self = (condition *)object;
    PyObject_GC_UnTrack(object);
    if (self->memory.obj != NULL)
        PyBuffer_Release(&self->memory);
    Py_XDECREF(self->lock);
    Py_XDECREF(self->gate);
    Py_XDECREF(self->core);
    Py_TYPE(object)->tp_free(object);
}

#define FUNCTION(function) ((PyCFunction)(void (*)(void))(function))

static PyMethodDef methods[] = {
    {"_begin", begin, METH_VARARGS,
     "_begin($self, lock, gate, core, table, /)\n--\n\n"
     "Begin with any lock, a Lock, a Condition, and memory for 16 bytes, and 16 a waiter."},
    {"wait", FUNCTION(wait), METH_FASTCALL | METH_KEYWORDS,
     "wait($self, /, timeout=None)\n--\n\n"
     "Let the lock go, wait, and take it again; False: nobody notified in time."},
    {"notify", FUNCTION(notify), METH_VARARGS | METH_KEYWORDS,
     "notify($self, /, n=1)\n--\n\n"
     "Wake up to n of those that wait."},
    {"notify_all", notify_all, METH_NOARGS,
     "notify_all($self, /)\n--\n\n"
     "Wake all that wait."},
    {"_count_waiting", count_waiting, METH_NOARGS,
     "_count_waiting($self, /)\n--\n\n"
     "How many living threads wait, and were not told to wake."},
    {"__enter__", enter, METH_NOARGS,
     "__enter__($self, /)\n--\n\n"
     "Take the lock."},
    {"__exit__", FUNCTION(leave), METH_FASTCALL,
     "__exit__($self, /, *exception)\n--\n\n"
     "Give the lock back."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef members[] = {
    {"_lock", T_OBJECT, offsetof(condition, lock), READONLY, "Its lock."},
    {"_gate", T_OBJECT, offsetof(condition, gate), READONLY, "Guards who waits."},
    {"_core", T_OBJECT, offsetof(condition, core), READONLY, "Where they sleep."},
    {NULL, 0, 0, 0, NULL},
};

static PyTypeObject condition_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "tenon._core.GuardCondition",
    .tp_doc = "A condition over a lock.",
    .tp_basicsize = sizeof(condition),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .tp_new = PyType_GenericNew,
    .tp_dealloc = dealloc,
    .tp_traverse = traverse,
    .tp_methods = methods,
    .tp_members = members,
};

int tnp_condition_init(PyObject *module)
{
    if (PyType_Ready(&condition_type) < 0)
        return -1;
    return tnp_add(module, "GuardCondition", (PyObject *)&condition_type);
}
