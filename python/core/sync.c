/* SPDX-License-Identifier: Apache-2.0 */
/* sync: the types Event, Semaphore, Lock and Condition. */
#include "object.h"

TNP_KIND(event, TN_OBJECT_EVENT, tn_event_open(domain, name, TN_OPEN_EXISTING, ret_handle))
TNP_KIND(semaphore, TN_OBJECT_SEMAPHORE,
         tn_semaphore_open(domain, name, 0, TN_OPEN_EXISTING, ret_handle))
TNP_KIND(lock, TN_OBJECT_LOCK, tn_lock_open(domain, name, TN_OPEN_EXISTING, ret_handle))
TNP_KIND(condition, TN_OBJECT_CONDITION,
         tn_condition_open(domain, name, TN_OPEN_EXISTING, ret_handle))

static PyObject *none_or_raise(int status)
{
    if (status != 0)
        return tnp_raise(status);
    Py_RETURN_NONE;
}

/* Return True for success, False for a timeout; else raise. */
static PyObject *bool_or_raise(int status)
{
    if (status != 0 && status != TN_ERR_TIMED_OUT)
        return tnp_raise(status);
    return PyBool_FromLong(status == 0);
}

static PyGetSetDef attributes[] = {TNP_OBJECT_ID, {NULL, NULL, NULL, NULL, NULL}};

#define WITH_KEYWORDS(function) ((PyCFunction)(void (*)(void))(function))
#define CREATE(function, arguments)                                                            \
    {                                                                                          \
        "create", WITH_KEYWORDS(function), METH_VARARGS | METH_KEYWORDS | METH_CLASS,          \
            "create(" arguments ")\n--\n\nMake one."                                           \
    }

/* Define create(domain, name=None), for kinds without further options. */
#define CREATE_BY_NAME(kind)                                                                   \
    static PyObject *create_##kind(PyObject *type, PyObject *args, PyObject *keywords)         \
    {                                                                                          \
        static char *names[] = {"domain", "name", NULL};                                       \
        PyObject *domain;                                                                      \
        const char *name = NULL;                                                               \
        tn_##kind *handle;                                                                     \
        if (!PyArg_ParseTupleAndKeywords(args, keywords, "O|z", names, &domain, &name))        \
            return NULL;                                                                       \
        tn_domain *d = tnp_domain_of(domain);                                                  \
        if (d == NULL)                                                                         \
            return NULL;                                                                       \
        int status = tn_##kind##_open(d, name, TN_OPEN_NEW, &handle);                          \
        return status != 0                                                                     \
                   ? tnp_raise(status)                                                         \
                   : tnp_object_wrap((PyTypeObject *)type, &kind##_kind, handle, domain);      \
    }
CREATE_BY_NAME(lock)
CREATE_BY_NAME(condition)

/* ---- events ------------------------------------------------------------------------------ */

static PyObject *create_event(PyObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"domain", "name", "auto_reset", NULL};
    PyObject *domain;
    const char *name = NULL;
    int auto_reset = 0;
    tn_event *event;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O|zp", names, &domain, &name,
                                     &auto_reset))
        return NULL;
    tn_domain *d = tnp_domain_of(domain);
    if (d == NULL)
        return NULL;
    int status = tn_event_open(
        d, name, TN_OPEN_NEW | (auto_reset != 0 ? TN_EVENT_AUTO_RESET : 0), &event);
    return status != 0 ? tnp_raise(status)
                       : tnp_object_wrap((PyTypeObject *)type, &event_kind, event, domain);
}

static PyObject *set_event(PyObject *self, PyObject *unused)
{
    tn_event *event = tnp_object_handle(self);
    (void)unused;
    return event == NULL ? NULL : none_or_raise(tn_event_set(event));
}

static PyObject *clear_event(PyObject *self, PyObject *unused)
{
    tn_event *event = tnp_object_handle(self);
    (void)unused;
    return event == NULL ? NULL : none_or_raise(tn_event_clear(event));
}

static PyObject *is_event_set(PyObject *self, PyObject *unused)
{
    tn_event *event = tnp_object_handle(self);
    (void)unused;
    return event == NULL ? NULL : PyBool_FromLong(tn_event_is_set(event));
}

static PyObject *wait_event(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                            PyObject *names)
{
    tn_event *event;
    tn_deadline deadline;
    if (tnp_timeout(args, nargs, names, 0, &deadline) < 0 ||
        (event = tnp_object_handle(self)) == NULL)
        return NULL;
    int status = tn_event_wait(event, TN_NOW);
    if (status == TN_ERR_TIMED_OUT && deadline.ns != 0)
        TNP_OBJECT_WAIT(self, status, tn_event_wait(event, deadline));
    return bool_or_raise(status);
}

static PyMethodDef event_methods[] = {
    CREATE(create_event, "$type, /, domain, name=None, auto_reset=False"),
    TNP_OBJECT_METHODS(event),
    {"set", set_event, METH_NOARGS,
     "set($self, /)\n--\n\n"
     "Let waiters pass."},
    {"clear", clear_event, METH_NOARGS,
     "clear($self, /)\n--\n\n"
     "Let waiters wait."},
    {"is_set", is_event_set, METH_NOARGS,
     "is_set($self, /)\n--\n\n"
     "Whether it is set."},
    {"wait", WITH_KEYWORDS(wait_event), METH_FASTCALL | METH_KEYWORDS,
     "wait($self, /, timeout=None)\n--\n\n"
     "Wait until it is set; False: the time is over."},
    {NULL, NULL, 0, NULL},
};

TNP_OBJECT_TYPE("Event", event, attributes, "Set or not; waiters pass while it is set.");

/* ---- semaphores -------------------------------------------------------------------------- */

static PyObject *create_semaphore(PyObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"domain",       "name",     "permits", "owned",
                            "any_releases", "existing", NULL};
    PyObject *domain;
    const char *name = NULL;
    unsigned permits = 1;
    int owned = 0, any_releases = 0, existing = 0;
    tn_semaphore *semaphore;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O|zIpp$p", names, &domain, &name,
                                     &permits, &owned, &any_releases, &existing))
        return NULL;
    tn_domain *d = tnp_domain_of(domain);
    if (d == NULL)
        return NULL;
    uint32_t flags = (owned ? (uint32_t)TN_SEMAPHORE_OWNED : 0) |
                     (any_releases ? (uint32_t)TN_SEMAPHORE_ANY_RELEASES : 0) |
                     (existing ? (uint32_t)TN_OPEN_EXISTING : (uint32_t)TN_OPEN_NEW);
    int status = tn_semaphore_open(d, name, permits, flags, &semaphore);
    return status != 0
               ? tnp_raise(status)
               : tnp_object_wrap((PyTypeObject *)type, &semaphore_kind, semaphore, domain);
}

static PyObject *acquire_semaphore(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                                   PyObject *names)
{
    tn_semaphore *semaphore;
    tn_deadline deadline;
    if (tnp_timeout(args, nargs, names, 0, &deadline) < 0 ||
        (semaphore = tnp_object_handle(self)) == NULL)
        return NULL;
    int status = tn_semaphore_acquire(semaphore, TN_NOW);
    if (status == TN_ERR_TIMED_OUT && deadline.ns != 0)
        TNP_OBJECT_WAIT(self, status, tn_semaphore_acquire(semaphore, deadline));
    return bool_or_raise(status);
}

static PyObject *release_semaphore(PyObject *self, PyObject *unused)
{
    tn_semaphore *semaphore = tnp_object_handle(self);
    (void)unused;
    return semaphore == NULL ? NULL : none_or_raise(tn_semaphore_release(semaphore));
}

static PyObject *get_semaphore(PyObject *self, PyObject *unused)
{
    tn_semaphore *semaphore = tnp_object_handle(self);
    (void)unused;
    return semaphore == NULL ? NULL : PyLong_FromUnsignedLong(tn_semaphore_count(semaphore));
}

static PyMethodDef semaphore_methods[] = {
    CREATE(create_semaphore,
           "$type, /, domain, name=None, permits=1, owned=False, any_releases=False, *, "
           "existing=False"),
    TNP_OBJECT_METHODS(semaphore),
    {"acquire", WITH_KEYWORDS(acquire_semaphore), METH_FASTCALL | METH_KEYWORDS,
     "acquire($self, /, timeout=None)\n--\n\n"
     "Take a permit; False: the time is over."},
    {"release", release_semaphore, METH_NOARGS,
     "release($self, /)\n--\n\n"
     "Give a permit."},
    {"get", get_semaphore, METH_NOARGS,
     "get($self, /)\n--\n\n"
     "Permits that are free now."},
    {NULL, NULL, 0, NULL},
};

TNP_OBJECT_TYPE("Semaphore", semaphore, attributes, "Permits.");

PyObject *tnp_semaphore_checked(PyObject *object)
{
    if (PyObject_TypeCheck(object, &semaphore_type))
        return object;
    PyErr_Format(PyExc_TypeError, "a tenon._core.Semaphore is needed, not %.200s",
                 Py_TYPE(object)->tp_name);
    return NULL;
}

/* ---- locks ------------------------------------------------------------------------------- */

static PyObject *acquire_lock(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                              PyObject *names)
{
    tn_lock *lock;
    tn_deadline deadline;
    if (tnp_timeout(args, nargs, names, 0, &deadline) < 0 ||
        (lock = tnp_object_handle(self)) == NULL)
        return NULL;
    int status = tn_lock_acquire(lock, TN_NOW);
    if (status == TN_ERR_TIMED_OUT && deadline.ns != 0)
        TNP_OBJECT_WAIT(self, status, tn_lock_acquire(lock, deadline));
    if (status < 0 && status != TN_ERR_TIMED_OUT)
        return tnp_raise(status);
    if (status == TN_LOCK_RECOVERED) {
        long pid = tn_error_peer().pid;
        return PyLong_FromLong(pid > 0 ? pid
                                       : 1); /* the pid of a corrupt word may be negative */
    }
    return PyLong_FromLong(status == TN_ERR_TIMED_OUT ? -1 : 0);
}

static PyObject *release_lock(PyObject *self, PyObject *unused)
{
    tn_lock *lock = tnp_object_handle(self);
    (void)unused;
    return lock == NULL ? NULL : none_or_raise(tn_lock_release(lock));
}

static PyMethodDef lock_methods[] = {
    CREATE(create_lock, "$type, /, domain, name=None"),
    TNP_OBJECT_METHODS(lock),
    {"acquire", WITH_KEYWORDS(acquire_lock), METH_FASTCALL | METH_KEYWORDS,
     "acquire($self, /, timeout=None)\n--\n\n"
     "0: held; above 0: held, and this process, the last owner, died holding it; -1: the time "
     "limit passed."},
    {"release", release_lock, METH_NOARGS,
     "release($self, /)\n--\n\n"
     "Give it back."},
    {NULL, NULL, 0, NULL},
};

TNP_OBJECT_TYPE("Lock", lock, attributes, "A lock that a thread owns.");

/* ---- conditions -------------------------------------------------------------------------- */

int tnp_condition_wait(PyObject *self, PyObject *lock, tn_deadline deadline, int *ret_status)
{
    tn_condition *condition = tnp_object_handle(self);
    tn_lock *l = condition == NULL ? NULL : tnp_object_handle(lock);
    int status;
    if (l == NULL)
        return -1;
    if (!tnp_object_shares_domain(self, lock)) { /* the library reports the error */
        *ret_status = tn_condition_wait(condition, l, TN_NOW);
        return 0;
    }
    tnp_object_begin_wait(lock);
    tnp_held_in_wait = l;
    TNP_OBJECT_WAIT(self, status, tn_condition_wait(condition, l, deadline));
    tnp_held_in_wait = NULL;
    tnp_object_end_wait(lock);
    *ret_status = status == TN_LOCK_RECOVERED ? 0 : status;
    return PyErr_Occurred()
               ? -1
               : 0; /* a signal handler raised; this thread holds the lock all the same */
}

static PyObject *wait_condition(PyObject *self, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"lock", "timeout", NULL};
    PyObject *lock, *timeout = Py_None;
    tn_deadline deadline;
    int status;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O!|O", names, &lock_type, &lock,
                                     &timeout) ||
        tnp_deadline(timeout, TN_NOW, &deadline) < 0)
        return NULL;
    if (tnp_condition_wait(self, lock, deadline, &status) < 0)
        return NULL;
    return bool_or_raise(status);
}

static PyObject *signal_condition(PyObject *self, PyObject *unused)
{
    tn_condition *condition = tnp_object_handle(self);
    (void)unused;
    return condition == NULL ? NULL : none_or_raise(tn_condition_signal(condition));
}

static PyObject *broadcast_condition(PyObject *self, PyObject *unused)
{
    tn_condition *condition = tnp_object_handle(self);
    (void)unused;
    return condition == NULL ? NULL : none_or_raise(tn_condition_broadcast(condition));
}

int tnp_condition_broadcast(PyObject *self)
{
    tn_condition *condition = tnp_object_handle(self);
    int status = condition == NULL ? 0 : tn_condition_broadcast(condition);
    if (status != 0)
        tnp_raise(status);
    return condition == NULL || status != 0 ? -1 : 0;
}

static PyMethodDef condition_methods[] = {
    CREATE(create_condition, "$type, /, domain, name=None"),
    TNP_OBJECT_METHODS(condition),
    {"wait", WITH_KEYWORDS(wait_condition), METH_VARARGS | METH_KEYWORDS,
     "wait($self, /, lock, timeout=None)\n--\n\n"
     "Release the lock, wait for a signal, acquire the lock; False: the time is over."},
    {"signal", signal_condition, METH_NOARGS,
     "signal($self, /)\n--\n\n"
     "Wake one."},
    {"broadcast", broadcast_condition, METH_NOARGS,
     "broadcast($self, /)\n--\n\n"
     "Wake all."},
    {NULL, NULL, 0, NULL},
};

TNP_OBJECT_TYPE("Condition", condition, attributes, "A condition, used with a Lock.");

/* ------------------------------------------------------------------------------------------ */

int tnp_lock_acquire(PyObject *lock)
{
    tn_lock *l = tnp_object_handle(lock);
    if (l == NULL)
        return -1;
    int status = tn_lock_acquire(l, TN_NOW);
    if (status == TN_ERR_TIMED_OUT)
        TNP_OBJECT_WAIT(lock, status, tn_lock_acquire(l, TN_FOREVER));
    if (status < 0)
        tnp_raise(status);
    return status < 0 ? -1 : 0;
}

int tnp_lock_release(PyObject *lock)
{
    tn_lock *l = tnp_object_handle(lock);
    int status = l == NULL ? 0 : tn_lock_release(l);
    if (status != 0)
        tnp_raise(status);
    return l == NULL || status != 0 ? -1 : 0;
}

bool tnp_is_condition(PyObject *object) { return PyObject_TypeCheck(object, &condition_type); }

bool tnp_is_semaphore(PyObject *object) { return PyObject_TypeCheck(object, &semaphore_type); }
bool tnp_is_lock(PyObject *object) { return PyObject_TypeCheck(object, &lock_type); }

int tnp_sync_init(PyObject *module)
{
    static const struct {
        const char *name;
        PyTypeObject *type;
    } types[] = {{"Event", &event_type},
                 {"Semaphore", &semaphore_type},
                 {"Lock", &lock_type},
                 {"Condition", &condition_type}};
    for (size_t i = 0; i < TNP_COUNT(types); i++)
        if (PyType_Ready(types[i].type) < 0 ||
            tnp_add(module, types[i].name, (PyObject *)types[i].type) < 0)
            return -1;
    return 0;
}
